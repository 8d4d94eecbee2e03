/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_ticks.c - the CPU's counter, and how long a look at it takes.
 *
 * A CPU that was idle, or has a neighbour, is slower for a while: for the first 20 ms of a job by
 * a factor of up to ten, on a host of the tests.  What calls take is then as much more as a look at the
 * counter.  When it was only measured as a job began, and that was such a moment, everything came
 * up to 1 us early afterwards.
 */
#include "emu_now.h"
#include "emu_ticks.h"
#include "emu_modes.h"

#include <time.h>

#define CALIBRATE_NS   4e6
#define PAIRS          8u
#define SLEEP_NS       200000u /* longer waits sleep for a part of the time */
#define SLEEP_END_NS   120000u
#define SPIN_NS        300u /* the last part of a wait: nothing but looks */
#define LOOKS          2u   /* in it, and one more, at least, to know what one takes */
#define LOOK_SHARE     8    /* of what a look takes unlike those before, the part that counts */
#define EACH           4u   /* call counts; the others are not to be longer for it */
#define UNLOOKED       256u /* after so many times without a wait: ... */
#define PARTS          4u   /* ... so often so many looks, all the same */
#define PART_LOOKS     6u

double          emu_ticks_per_ns = 1;
static uint64_t tk_sleep, tk_spin;

static __thread struct {
    uint64_t took;     /* the end of the last wait ... */
    unsigned looks;    /* ... for so many looks; 0: counted already */
    unsigned calls;
    unsigned unlooked; /* of EACH since then, none of which waited */
    double   look;     /* what one takes, on the average; 0: not known */
} me __attribute__((tls_model("initial-exec")));

uint64_t emu_ticks(void)
{
#if defined(__x86_64__)
    uint32_t lo, hi;
    __asm__ __volatile__("rdtsc" : "=a"(lo), "=d"(hi));
    return ((uint64_t)hi << 32) | lo;
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ __volatile__("isb; mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
#endif
}

uint64_t emu_ticks_of_ns(uint64_t n)
{
    return (uint64_t)((double)n * emu_ticks_per_ns);
}

/* One moment by both clocks: of some pairs the one between which least happened */
static double moment(uint64_t *ticks_p)
{
    uint64_t        best = UINT64_MAX;
    struct timespec ts;
    double          ns = 0;

    for (unsigned n = 0; n < PAIRS; n++) {
        uint64_t x = emu_ticks(), y;

        clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
        y = emu_ticks();
        if (y - x < best) {
            best     = y - x;
            *ticks_p = x + best / 2;
            ns       = (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
        }
    }
    return ns;
}

void emu_ticks_calibrate(void)
{
    uint64_t x = 0, y = 0;
    double   a = moment(&x), b;

    do {
        b = moment(&y);
    } while (b - a < CALIBRATE_NS);
    emu_ticks_per_ns = (double)(y - x) / (b - a);
    tk_sleep         = emu_ticks_of_ns(SLEEP_NS);
    tk_spin          = emu_ticks_of_ns(SPIN_NS);
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Nothing but looks at the clock until then, and so many at least.  The first one is not counted: it
 * comes after something else. */
static inline void spin(uint64_t now, uint64_t until, unsigned least)
{
    uint64_t first = now;
    unsigned looks = 0;

    while (((int64_t)(until - now) > 0) || (looks < least)) {
        now = emu_ticks();
        if (looks++ == 0) {
            first = now;
        }
    }
    if (looks > LOOKS) {
        me.took  = now - first;
        me.looks = looks - 1;
    }
}

void emu_ticks_wait(uint64_t until)
{
    uint64_t now = emu_ticks();

    while ((int64_t)(until - now) > (int64_t)tk_spin) {
        uint64_t left = until - now;

        if (left > tk_sleep) {
            emu_sleep((uint64_t)((double)left / emu_ticks_per_ns) - SLEEP_END_NS);
        } else {
            relax();
        }
        now = emu_ticks();
    }
    spin(now, until, 0);
}

double emu_look_takes(void)
{
    double best = 0;

    for (unsigned n = 0; n < PARTS; n++) { /* an interrupt disturbs one */
        uint64_t now = emu_ticks();
        double   took;

        spin(now, now, PART_LOOKS + 1);
        took = (double)(me.took ? me.took : 1) / PART_LOOKS; /* 1: the counter is coarse */
        best = ((n == 0) || (took < best)) ? took : best;
    }
    return best;
}

double emu_look_learn(void)
{
    double took, least = me.look / 2, most = me.look * 2;

    if ((me.look > 0) && (++me.calls % EACH != 0)) {
        return 0;
    }
    if ((me.look > 0) && (me.looks > 0)) {
        took    = (double)me.took / me.looks;
        took    = (took < least) ? least : (took > most) ? most : took;
        me.look = me.look + (took - me.look) / LOOK_SHARE;
    } else if ((me.look > 0) && (++me.unlooked < UNLOOKED / EACH)) {
        return 0;
    } else {
        me.look = took = emu_look_takes(); /* what was known may be why nothing has waited */
    }
    me.looks = me.unlooked = 0;
    return (took < me.look) ? took : me.look; /* who takes off too much is early */
}

void emu_look_forget(void)
{
    me.looks = me.unlooked = 0;
    me.look  = 0;
}
