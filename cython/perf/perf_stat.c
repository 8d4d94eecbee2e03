/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_stat.c - the tick counter, and times in logarithmic buckets. */
#include "perf.h"

#include <time.h>

#define STEADY 0.01 /* the counter may differ so much from itself */

static uint64_t start_ticks, start_ns;
static double   first_seconds; /* of a tick, by a short look at the start */

uint64_t perf_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The clock and the counter at one time: who was interrupted between them looks again. */
static void read_both(uint64_t *ns, uint64_t *ticks)
{
    uint64_t before, after, best = UINT64_MAX;

    for (int i = 0; (i < 100) && (best > 2000); ++i) {
        before = perf_clock_ns();
        uint64_t now = perf_ticks();
        after  = perf_clock_ns();
        if (after - before < best) {
            best   = after - before;
            *ns    = before + best / 2;
            *ticks = now;
        }
    }
}

void perf_tick_start(void)
{
    read_both(&start_ns, &start_ticks);
    while (perf_clock_ns() < start_ns + 5000000) {
    }
    first_seconds = perf_tick_seconds();
}

double perf_tick_seconds(void)
{
    uint64_t ns = 0, ticks = 0;
    double   seconds;

    read_both(&ns, &ticks);
    PERF_CHECK(ticks > start_ticks, "the tick counter of this CPU stands still");
    seconds = (double)(ns - start_ns) * 1e-9 / (double)(ticks - start_ticks);
    PERF_CHECK((first_seconds == 0) || ((seconds < first_seconds * (1 + STEADY)) &&
                                        (seconds > first_seconds * (1 - STEADY))),
               "the tick counter is not steady: a tick took %g ns and takes %g ns",
               first_seconds * 1e9, seconds * 1e9);
    return seconds;
}

void perf_log_clear(struct perf_log *log)
{
    memset(log, 0, sizeof(*log));
    log->min = UINT64_MAX;
}

void perf_log_merge(struct perf_log *log, const struct perf_log *other)
{
    log->count += other->count;
    log->sum   += other->sum;
    log->min    = (other->min < log->min) ? other->min : log->min;
    log->max    = (other->max > log->max) ? other->max : log->max;
    for (int i = 0; i < PERF_BUCKETS; ++i) {
        log->bucket[i] += other->bucket[i];
    }
}

/* Middle of the values that a bucket holds; the inverse of perf_log_add. */
static double bucket_value(unsigned i)
{
    unsigned shift = (i < 256) ? 0 : i / 128 - 1;
    uint64_t low   = (i < 256) ? i : (uint64_t)(i - shift * 128) << shift;

    return (double)low + (double)((1ull << shift) - 1) / 2;
}

double perf_log_quantile(const struct perf_log *log, double q)
{
    uint64_t seen = 0, rank = (uint64_t)((double)log->count * q + 0.9999999);
    double   value;

    rank = (rank < 1) ? 1 : (rank > log->count) ? log->count : rank;
    for (unsigned i = 0; i < PERF_BUCKETS; ++i) {
        seen += log->bucket[i];
        if (seen >= rank) {
            value = bucket_value(i);
            /* the ends are known exactly */
            return (value < (double)log->min) ? (double)log->min :
                   (value > (double)log->max) ? (double)log->max : value;
        }
    }
    return (double)log->max;
}
