/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_floor.c - how long a store takes to a load on another CPU of this machine, which the
 * timed mode takes off.
 */
#include "emu_now.h"
#include "emu_ticks.h"
#include "emu_timing.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOKS        512u
#define PHASES       4u  /* of a window */
#define TURNS        48u /* in a phase, of each line */
#define PROBES       8u  /* the same */
#define WINDOWS      8u  /* at most */
#define AGREE        0.25 /* two windows do, when their ways differ by this part of the shorter one */
#define MEASURE_NS   100000000u /* no window begins later: two threads may have to share a CPU */
#define GIVE_UP_NS   1000000000u /* the first samples have not come: others in the job wait for this process */
#define FLOOR_MAX_NS 500 /* two CPUs are never farther apart than this */
#define PLACE_NS     50000 /* between two looks whether the other thread has begun */
#define PLACE_TRIES  10000u
#define LINES        32u
#define REST_NS      600u /* between two stores: who waits for a put has looked for so long, too */

/* Each way has lines of its own, as puts have: a CPU that stores to one that the other has
 * stored to has to take it over, which it pays for (a Zen 4: 25 ns).  Many: where the caches
 * keep a line depends on its address (an Emerald Rapids: 165 to 225 ns). */
struct line {
    _Atomic uint64_t word __attribute__((aligned(EMU_LINE)));
    _Atomic uint64_t rested; /* of an answer: how long it was kept back, in ticks */
};

static struct {
    struct line      there[LINES], back[LINES];
    _Atomic bool     stop __attribute__((aligned(EMU_LINE)));
    _Atomic bool     placed;
} pingpong;

/* Returns how long it was, or was to be.  A CPU that stands still for a moment does so here, too.  With the wait
 * that puts have, what it is late by is of the way, as with them; and how a store comes that another kind
 * of wait ends is not how theirs comes (on one of Intel's 55 or 100 ns instead of 125). */
static uint64_t rest(uint64_t ticks)
{
    uint64_t begin = emu_ticks(), now;

    if (emu_floor_waits) {
        emu_ticks_wait(begin + ticks);
        return ticks;
    }
    do {
        now = emu_ticks();
    } while (now - begin < ticks);
    return now - begin;
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
            atomic_store_explicit(&pingpong.back[seen % LINES].rested, rest(ticks), memory_order_relaxed);
            atomic_store_explicit(&pingpong.back[seen % LINES].word, seen, memory_order_release);
        }
    }
    return NULL;
}

/* What a look at the clock takes: the lower quartile */
static uint64_t look_takes(void)
{
    uint64_t sample[LOOKS], t;

    for (unsigned n = 0; n < LOOKS; n++) {
        t         = emu_ticks();
        sample[n] = emu_ticks() - t;
    }
    qsort(sample, LOOKS, sizeof(sample[0]), emu_by_value);
    return sample[LOOKS / 4];
}

/* Nothing else in this loop: who looks less often sees what was stored sooner (with a count of the looks 80 ns
 * instead of 118, and puts came 50 ns late). */
static void wait_back(uint64_t w)
{
    while (atomic_load_explicit(&pingpong.back[w % LINES].word, memory_order_acquire) != w) {
    }
}

/* What was measured of each line, in a window */
struct samples {
    uint64_t took[LINES][PHASES * TURNS];
    unsigned n;
};

/* Of each line the lower part, on the average, and the last of it; on the average of the lines */
struct lower {
    double average, last;
};

static struct lower samples_lower(struct samples *s, double part)
{
    struct lower sum = {0, 0};
    unsigned     num = (unsigned)(s->n * part) + 1;

    for (unsigned i = 0; i < LINES; i++) {
        uint64_t all = 0;

        qsort(s->took[i], s->n, sizeof(s->took[i][0]), emu_by_value);
        for (unsigned k = 0; k < num; k++) {
            all += s->took[i][k];
        }
        sum.average += (double)all / num / LINES;
        sum.last += (double)s->took[i][num - 1] / LINES;
    }
    return sum;
}

/* When no window begins any more, when there has to be something, and whether there was not */
struct limit {
    uint64_t end, give_up;
    bool     gave_up;
};

/* There and back, with two looks at the clock.  w: the next store */
static void turns(struct samples *s, uint64_t *w, uint64_t ticks, struct limit *l)
{
    for (unsigned n = 0; (n < TURNS) && ((s->n == 0) || (emu_ticks() < l->end)); n++, s->n++) {
        for (unsigned i = 0; i < LINES; i++, (*w)++) {
            uint64_t t, took;

            rest(ticks);
            t = emu_ticks();
            atomic_store_explicit(&pingpong.there[*w % LINES].word, *w, memory_order_release);
            wait_back(*w);
            took             = emu_ticks() - t;
            t                = atomic_load_explicit(&pingpong.back[*w % LINES].rested, memory_order_relaxed);
            s->took[i][s->n] = (took > t) ? took - t : 0;
            if ((s->n == 0) && (emu_ticks() >= l->give_up)) {
                l->gave_up = true;
                return;
            }
        }
    }
}

/* A probe on lines that the other CPU looks at */
static void probes(struct samples *s, uint64_t *w, uint64_t ticks, struct limit *l)
{
    for (unsigned n = 0; (n < PROBES) && (emu_ticks() < l->end); n++, s->n++) {
        for (unsigned i = 0; i < LINES; i++, (*w)++) {
            rest(ticks);
            s->took[i][s->n] = emu_way_probe((void *)&pingpong.there[*w % LINES].word);
            rest(ticks);
            atomic_store_explicit(&pingpong.there[*w % LINES].word, *w, memory_order_release);
            wait_back(*w);
        }
    }
}

/* One window: 12 ms or more.  All zero where it was given up before there was anything. */
static struct emu_floor window(uint64_t *w, struct limit *l)
{
    static struct samples turned, probed; /* not for a stack; one thread at a time joins a job */
    struct emu_floor      found        = {0, 0};
    struct lower          way;
    uint64_t              ticks        = emu_ticks_of_ns(REST_NS);
    double                ticks_per_ns = (double)emu_ticks_of_ns(1000000000u) / 1e9, look = (double)look_takes();

    turned.n = probed.n = 0;
    for (unsigned p = 0; (p < PHASES) && !l->gave_up; p++) {
        turns(&turned, w, ticks, l);
        if (emu_way_is_by_line() && !l->gave_up) {
            probes(&probed, w, ticks, l);
        }
    }
    if (turned.n == 0) {
        return found;
    }
    way = samples_lower(&turned, emu_floor_waits ? 2. / 3 : 1. / 3);
    found.way = ((emu_floor_waits ? way.average : way.last) - 2 * look) / 2 / ticks_per_ns;
    found.way = (found.way < 0) ? 0 : (found.way < FLOOR_MAX_NS) ? found.way : FLOOR_MAX_NS;
    if (probed.n > 0) {
        found.probe = samples_lower(&probed, 1. / 3).last / ticks_per_ns;
    }
    return found;
}

/* Until the two shortest of them agree; those two, on the average.  Other work makes a way longer, never
 * shorter; but what it makes longer all the time it does to puts, too, so they need not agree well.  Probes
 * are fewer, and may be disturbed in a window that is not: the shortest. */
static struct emu_floor windows(void)
{
    uint64_t         w = 1, begin = emu_ticks();
    struct limit     l = {begin + emu_ticks_of_ns(MEASURE_NS), begin + emu_ticks_of_ns(GIVE_UP_NS), false};
    struct emu_floor first = window(&w, &l), second = first, next;
    double           probe = first.probe;

    for (unsigned n = 1; (n < WINDOWS) && (emu_ticks() < l.end); n++) {
        next = window(&w, &l);
        if (l.gave_up) {
            break;
        }
        if (next.way < first.way) {
            second = first;
            first  = next;
        } else if ((n == 1) || (next.way < second.way)) {
            second = next;
        }
        probe = (next.probe < probe) ? next.probe : probe;
        if (second.way <= first.way * (1 + AGREE)) {
            return (struct emu_floor){(first.way + second.way) / 2, probe};
        }
    }
    return (struct emu_floor){first.way, probe};
}

/* Other work disturbs some of it: processes that begin as this one does, for milliseconds, and
 * other machines on this host.  So each turn is for itself, without the time for which it was kept
 * back, of each line the lower two thirds count, and a window that nobody confirms does not.  Not less: where a way
 * takes one of two times, puts do, too. */
struct emu_floor emu_floor_measure(void)
{
    struct emu_floor none = {0, 0}, found;
    cpu_set_t        mine, other;
    pthread_t        thread;
    int              here = sched_getcpu();

    if ((here < 0) || sched_getaffinity(0, sizeof(mine), &mine)) {
        return none; /* more CPUs than are told apart */
    }
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
    /* asleep: beside a thread that only yields a new one can starve for seconds */
    for (unsigned n = 0; !atomic_load(&pingpong.placed) && (n < PLACE_TRIES); n++) {
        emu_sleep(PLACE_NS);
    }
    found = atomic_load(&pingpong.placed) ? windows() : none;
    atomic_store(&pingpong.stop, true);
    pthread_join(thread, NULL);
    sched_setaffinity(0, sizeof(mine), &mine);
    return found;
}
