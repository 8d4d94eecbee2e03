/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_floor.c - how long a store takes to a load on another CPU of this machine, which the
 * timed mode takes off.
 */
#include "emu_timing.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNKS       64
#define ROUNDS       32
#define MEASURE_NS   40000000u
#define FLOOR_MAX_NS 500 /* two CPUs are never farther apart than this */
#define LINES        32u
#define PROBES       32u /* of each line */
#define REST_NS      600u /* between two stores: who waits for a put has looked for so long, too */

/* Each way has lines of its own, as puts have: a CPU that stores to one that the other has
 * stored to has to take it over, which it pays for (a Zen 4: 25 ns).  Many: where the caches
 * keep a line depends on its address (an Emerald Rapids: 165 to 225 ns). */
struct line {
    _Atomic uint64_t word __attribute__((aligned(EMU_LINE)));
};

static struct {
    struct line      there[LINES], back[LINES];
    _Atomic bool     stop __attribute__((aligned(EMU_LINE)));
    _Atomic bool     placed;
} pingpong;

static void rest(uint64_t ticks)
{
    for (uint64_t begin = emu_ticks(); emu_ticks() - begin < ticks;) {
    }
}

static void *answer(void *arg)
{
    uint64_t seen = 0, ticks = emu_ticks_of_ns(REST_NS);

    sched_setaffinity(0, sizeof(cpu_set_t), arg);
    atomic_store(&pingpong.placed, true);
    while (!atomic_load_explicit(&pingpong.stop, memory_order_relaxed)) {
        uint64_t w = atomic_load_explicit(&pingpong.there[(seen + 1) % LINES].word, memory_order_acquire);
        if (w == seen + 1) {
            seen = w;
            rest(ticks);
            atomic_store_explicit(&pingpong.back[seen % LINES].word, seen, memory_order_release);
        }
    }
    return NULL;
}

/* What a wait takes, with the looks at the clock at its ends, which are not the way's */
static uint64_t rests(uint64_t ticks)
{
    uint64_t sample[CHUNKS];

    for (unsigned n = 0; n < CHUNKS; n++) {
        uint64_t t = emu_ticks();
        for (int i = 0; i < ROUNDS; i++) {
            rest(ticks);
        }
        sample[n] = emu_ticks() - t;
    }
    qsort(sample, CHUNKS, sizeof(sample[0]), emu_by_value);
    return sample[CHUNKS / 4];
}

static void wait_back(uint64_t w)
{
    while (atomic_load_explicit(&pingpong.back[w % LINES].word, memory_order_acquire) != w) {
    }
}

/* What a probe takes on lines that the other CPU looks at, in ticks; w: the next store */
static uint64_t probes(uint64_t w, uint64_t ticks)
{
    static uint64_t sample[PROBES * LINES];
    uint64_t        begin = emu_ticks(), sum = 0;
    unsigned        n = 0, part;

    for (; (n < PROBES * LINES) && (emu_ticks() - begin < emu_ticks_of_ns(MEASURE_NS)); w++) {
        rest(ticks);
        sample[n++] = emu_way_probe((void *)&pingpong.there[w % LINES].word);
        rest(ticks);
        atomic_store_explicit(&pingpong.there[w % LINES].word, w, memory_order_release);
        wait_back(w);
    }
    qsort(sample, n, sizeof(sample[0]), emu_by_value);
    part = n - n / 8; /* the others were disturbed */
    for (unsigned i = 0; i < part; i++) {
        sum += sample[i];
    }
    return (part > 0) ? sum / part : 0;
}

/* The lower quartile of short series, because other work disturbs some of them */
struct emu_floor emu_floor_measure(void)
{
    struct emu_floor none = {0, 0}, found;
    uint64_t  sample[CHUNKS], begin, w = 1, ticks = emu_ticks_of_ns(REST_NS);
    double    ticks_per_ns = (double)emu_ticks_of_ns(1000000000u) / 1e9;
    cpu_set_t mine, other;
    unsigned  n = 0;
    pthread_t thread;
    uint64_t  alone;
    int       here = sched_getcpu();

    sched_getaffinity(0, sizeof(mine), &mine);
    CPU_ZERO(&other);
    for (int c = 0; c < (int)sysconf(_SC_NPROCESSORS_ONLN); c++) {
        if (c != here) {
            CPU_SET(c, &other);
        }
    }
    if (CPU_COUNT(&other) == 0) {
        return none;
    }
    cpu_set_t just;
    CPU_ZERO(&just);
    CPU_SET(here, &just);
    for (unsigned i = 0; i < LINES; i++) {
        atomic_store(&pingpong.there[i].word, 0);
        atomic_store(&pingpong.back[i].word, 0);
    }
    atomic_store(&pingpong.stop, false);
    atomic_store(&pingpong.placed, false);
    if (pthread_create(&thread, NULL, answer, &other)) {
        return none;
    }
    sched_setaffinity(0, sizeof(just), &just);
    alone = rests(ticks);
    while (!atomic_load(&pingpong.placed)) {
        sched_yield();
    }
    begin = emu_ticks(); /* not before: it may be long until the other one runs, and one series there must be */
    for (; (n < CHUNKS) && (emu_ticks() - begin < emu_ticks_of_ns(MEASURE_NS)); n++) {
        uint64_t t = emu_ticks();
        for (int i = 0; i < ROUNDS; i++, w++) {
            rest(ticks);
            atomic_store_explicit(&pingpong.there[w % LINES].word, w, memory_order_release);
            wait_back(w);
        }
        sample[n] = emu_ticks() - t;
    }
    found.probe = emu_way_is_by_line() ? (double)probes(w, ticks) / ticks_per_ns : 0;
    atomic_store(&pingpong.stop, true);
    pthread_join(thread, NULL);
    sched_setaffinity(0, sizeof(mine), &mine);
    qsort(sample, n, sizeof(sample[0]), emu_by_value);
    double one_way = ((double)sample[n / 4] / 2 - (double)alone) / ROUNDS / ticks_per_ns;
    found.way      = (one_way < 0) ? 0 : (one_way < FLOOR_MAX_NS) ? one_way : FLOOR_MAX_NS;
    return found;
}
