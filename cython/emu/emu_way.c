/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_way.c - how much longer, or shorter, than on the average (emu_floor.c) the way of a store
 * to a load is for one cache line.
 *
 * Where a cache is in parts all over the chip, each keeping the lines of some addresses, both
 * CPUs ask the part that a line belongs to: an Emerald Rapids takes 150 to 205 ns from store to
 * load, each line its own time.  Asking that part is most of what an atomic instruction takes
 * on a line that the other CPU has read.  So, while the put waits for its time, one that changes
 * nothing is timed: what it takes more than on the average, the way takes twice, as the store
 * and then the load ask (48 lines, in two of four series that nothing disturbed: slopes of 2.2
 * and 1.7, correlated by 0.83 and 0.98).
 */
#include "emu_timing.h"

#include <stdatomic.h>

#define LINES      256u /* that are remembered */
#define PROBES     16u  /* of a line, first of all; the average is over so many */
#define PROBE_EACH 32u  /* and one in so many of its puts after that */
#define PROBE_NS   150u /* before the put's time: whoever looks at the line has it back by then */
#define TWICE      2
#define MOST_NS    60   /* two lines never differ by more */

struct known {
    _Atomic uintptr_t line;
    _Atomic uint32_t  took, seen, puts; /* average, ticks */
};
static struct known known[LINES];
static uint32_t     average; /* ticks; 0: not known here */
static int64_t      most;
static uint64_t     before;

bool emu_way_is_by_line(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

void emu_way_init(double probe_ns)
{
    double ticks_per_ns = (double)emu_ticks_of_ns(1000000u) / 1e6;

    average = (uint32_t)(probe_ns * ticks_per_ns);
    most    = (int64_t)(MOST_NS * ticks_per_ns);
    before  = emu_ticks_of_ns(PROBE_NS);
}

uint64_t emu_way_probe(void *at)
{
    uint64_t          begin = emu_ticks();
    _Atomic uint32_t *word  = (_Atomic uint32_t *)((uintptr_t)at & ~(uintptr_t)3);

    atomic_fetch_add(word, 0);
    return emu_ticks() - begin;
}

/* One that took far less was not shared with another CPU, one that took far more was disturbed. */
static bool is_likely(uint64_t took)
{
    return (took > average / 2) && (took < average + average / 2);
}

int64_t emu_timing_way(void *at, uint64_t due)
{
    uintptr_t     line = (uintptr_t)at & ~(uintptr_t)63;
    struct known *k    = &known[(line / 64) % LINES];
    int64_t       more;
    uint32_t      seen, puts;

    if (average == 0) {
        return 0;
    }
    if (atomic_load_explicit(&k->line, memory_order_relaxed) != line) {
        atomic_store_explicit(&k->line, line, memory_order_relaxed);
        atomic_store_explicit(&k->seen, 0, memory_order_relaxed);
        atomic_store_explicit(&k->puts, 0, memory_order_relaxed);
        atomic_store_explicit(&k->took, average, memory_order_relaxed);
    }
    seen = atomic_load_explicit(&k->seen, memory_order_relaxed);
    puts = atomic_load_explicit(&k->puts, memory_order_relaxed);
    atomic_store_explicit(&k->puts, puts + 1, memory_order_relaxed);
    if (((puts < PROBES) || (puts % PROBE_EACH == 0)) && ((int64_t)(due - emu_ticks()) > (int64_t)before)) {
        uint64_t took = emu_way_probe(at);

        if (is_likely(took)) {
            int64_t had = (int64_t)atomic_load_explicit(&k->took, memory_order_relaxed);
            int64_t n   = (seen < PROBES) ? seen + 1 : PROBES;

            atomic_store_explicit(&k->took, (uint32_t)(had + ((int64_t)took - had) / n), memory_order_relaxed);
            atomic_store_explicit(&k->seen, seen + 1, memory_order_relaxed);
        }
    }
    more = TWICE * ((int64_t)atomic_load_explicit(&k->took, memory_order_relaxed) - (int64_t)average);
    return (more > most) ? most : (more < -most) ? -most : more;
}
