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
#define PROBES     8u   /* of a line, first of all; the average is over so many */
#define PROBE_EACH 16u  /* and one in so many of its puts after that */
#define PROBE_NS   150u /* before the put's time: whoever looks at the line has it back by then */
#define UNASKED    256u /* one in so many puts is probed even if there is no time: else one that has
                         * none because the way was thought too long would stay too early */
#define TWICE      2
#define APART_NS   30u  /* what a line's probe takes differs from the average by no more */

struct known {
    _Atomic uintptr_t line;
    _Atomic uint32_t  took, seen, puts; /* average, ticks */
};
static struct known known[LINES];
static uint32_t     average; /* ticks; 0: not known here */
static int64_t      least, apart;
static uint64_t     before;

static _Atomic uint32_t all_puts;

bool emu_way_is_by_line(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

void emu_way_init(struct emu_floor floor_)
{
    double ticks_per_ns = (double)emu_ticks_of_ns(1000000u) / 1e6;

    average = (uint32_t)(floor_.probe * ticks_per_ns);
    least   = -(int64_t)(floor_.way * ticks_per_ns);
    apart   = (int64_t)(APART_NS * ticks_per_ns);
    before  = emu_ticks_of_ns(PROBE_NS);
}

uint64_t emu_way_probe(void *at)
{
    uint64_t          begin = emu_ticks();
    _Atomic uint32_t *word  = (_Atomic uint32_t *)((uintptr_t)at & ~(uintptr_t)3);

    atomic_fetch_add(word, 0);
    return emu_ticks() - begin;
}

/* Has this put, of a line that had so many before, the time for a probe? */
static bool to_be_probed(uint32_t puts, uint64_t due)
{
    uint32_t all = atomic_load_explicit(&all_puts, memory_order_relaxed);

    atomic_store_explicit(&all_puts, all + 1, memory_order_relaxed);
    if ((all < PROBES) || (all % UNASKED == 0)) {
        return true;
    }
    return ((puts < PROBES) || (puts % PROBE_EACH == 0)) && ((int64_t)(due - emu_ticks()) > (int64_t)before);
}

/* The average follows a host that moves a CPU nearer to the other one, or farther: what is taken
 * off may become nothing, but grows only as lines differ, as a put that is early is worse than one that
 * is late.  One probe that was disturbed counts as half as much more. */
static void learn(struct known *k, int64_t took)
{
    uint32_t seen = atomic_load_explicit(&k->seen, memory_order_relaxed);
    int64_t  had  = (int64_t)atomic_load_explicit(&k->took, memory_order_relaxed);
    int64_t  n    = (seen < PROBES) ? (int64_t)seen + 1 : PROBES;

    took = (took < had / 2) ? had / 2 : (took > had + had / 2) ? had + had / 2 : took;
    atomic_store_explicit(&k->took, (uint32_t)(had + (took - had) / n), memory_order_relaxed);
    atomic_store_explicit(&k->seen, seen + 1, memory_order_relaxed);
}

/* What the way takes more, when the probe took so much more: twice, as far as lines differ; the rest
 * is a CPU that is nearer now, or a disturbed average (twice 1600 windows of emu_floor.c: slopes of 0.8 to 1.2) */
static int64_t off(int64_t more)
{
    int64_t line = (more > apart) ? apart : (more < -apart) ? -apart : more;

    more = (TWICE - 1) * line + more;
    return (more > TWICE * apart) ? TWICE * apart : (more < least) ? least : more;
}

int64_t emu_timing_way(void *at, uint64_t due)
{
    uintptr_t     line = (uintptr_t)at & ~(uintptr_t)63;
    struct known *k    = &known[(line / 64) % LINES];
    uint32_t      puts;

    if (average == 0) {
        return 0;
    }
    if (atomic_load_explicit(&k->line, memory_order_relaxed) != line) {
        atomic_store_explicit(&k->line, line, memory_order_relaxed);
        atomic_store_explicit(&k->seen, 0, memory_order_relaxed);
        atomic_store_explicit(&k->puts, 0, memory_order_relaxed);
        atomic_store_explicit(&k->took, average, memory_order_relaxed);
    }
    puts = atomic_load_explicit(&k->puts, memory_order_relaxed);
    atomic_store_explicit(&k->puts, puts + 1, memory_order_relaxed);
    if (to_be_probed(puts, due)) {
        learn(k, (int64_t)emu_way_probe(at));
    }
    return off((int64_t)atomic_load_explicit(&k->took, memory_order_relaxed) - (int64_t)average);
}
