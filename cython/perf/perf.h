/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf.h - the benchmark kernels: what tests and layers know of each other.
 *
 * A kernel is one program per layer (utofu, uct, libuct, ucp, mpi): perf_main.c
 * (phases, output), perf_options.c, perf_boot.c (processes), perf_stat.c (times),
 * perf_tests.c and perf_tests_more.c (the tests, written once) and the layer's own
 * file, which fills the table of operations `perf_layer`.
 *
 * All processes and threads run the test's function in the same phases: warm-up,
 * trials that find the number of iterations, and the measured phases.  Data are
 * verified after each phase.  A failed check prints what failed and ends the kernel
 * with code 1; what a layer or transport does not have ends it with PERF_NOT_THERE.
 */
#ifndef PERF_H
#define PERF_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERF_NOT_THERE 77    /* exit code: not supported, said in words */
#define PERF_BLOB      8192  /* most bytes of the address of one thread */
#define PERF_MAX_PROCS 64
#define PERF_MAX_CPUS  256
#define PERF_STEPS     3     /* most results of one test */
#define PERF_PAGE      4096
#define PERF_TABLE     8192  /* words of a thread's table in gups */
#define PERF_FC        128   /* messages that are sent and not acknowledged */
#define PERF_ACK       (PERF_FC / 2)

#define PERF_FAIL(...) perf_fail(1, __VA_ARGS__)
#define PERF_ABSENT(...) perf_fail(PERF_NOT_THERE, __VA_ARGS__)
#define PERF_CHECK(_ok, ...) \
    do { \
        if (__builtin_expect(!(_ok), 0)) { \
            perf_fail(1, __VA_ARGS__); \
        } \
    } while (0)

/* Print to stderr and end the process; thread-safe. */
void perf_fail(int code, const char *format, ...)
        __attribute__((noreturn, format(printf, 2, 3)));

/* ---------------------------------------------------------------- times */

/* A counter of constant frequency; perf_tick_seconds says how long a tick is. */
static inline uint64_t perf_ticks(void)
{
#if defined(__x86_64__)
    uint32_t low, high;

    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return ((uint64_t)high << 32) | low;
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks) : : "memory");
    return ticks;
#else
    uint64_t perf_clock_ns(void);

    return perf_clock_ns();
#endif
}

uint64_t perf_clock_ns(void);    /* CLOCK_MONOTONIC */
void     perf_tick_start(void);  /* begin to compare the counter with the clock */
double   perf_tick_seconds(void);

/* Times by logarithmic buckets: 128 for each doubling, so a value is known within
 * 0.4 %; count, sum, minimum and maximum are exact. */
#define PERF_BUCKETS (256 + 57 * 128)

struct perf_log {
    uint64_t count, sum, min, max; /* ticks */
    uint64_t bucket[PERF_BUCKETS];
};

static inline void perf_log_add(struct perf_log *log, uint64_t ticks)
{
    unsigned shift;

    ticks += (ticks == 0); /* what is too short to be seen is not nothing */
    shift  = (ticks < 256) ? 0 : 56 - (unsigned)__builtin_clzll(ticks);
    ++log->bucket[(ticks < 256) ? ticks : shift * 128 + (ticks >> shift)];
    ++log->count;
    log->sum += ticks;
    log->min  = (ticks < log->min) ? ticks : log->min;
    log->max  = (ticks > log->max) ? ticks : log->max;
}

void   perf_log_clear(struct perf_log *log);
void   perf_log_merge(struct perf_log *log, const struct perf_log *other);
double perf_log_quantile(const struct perf_log *log, double q); /* ticks */

/* -------------------------------------------------------------- options */

struct perf_options {
    const char *test, *layout, *transport, *device, *coords, *rendezvous;
    size_t     size;    /* bytes of a message */
    long       iterations, warmup, repeats;
    double     seconds; /* of a measured phase, when iterations is 0 */
    double     limit;   /* seconds until the run is given up */
    int        window, threads, procs;
    int        tnis;    /* utofu: VCQs of rank 0, each of a TNI of its own */
    int        inject;  /* utofu: CACHE_INJECTION */
    int        cpus[PERF_MAX_CPUS], num_cpus;
};

extern struct perf_options perf_options;
void perf_parse_option(const char *word); /* fails with what is wrong */

/* ---------------------------------------------------------- processes */

struct perf_ctx;

struct perf_proc {
    const struct perf_options *opt;
    int                       rank, size;
    struct perf_ctx           *threads;
    uint64_t                  value;    /* what the last perf_meet told */
    unsigned                  arrived, generation; /* of the threads, in perf_meet */
    bool                      yields;   /* more spinning threads than CPUs */
    volatile uint64_t         *shared;  /* by forked processes, a page; or NULL */
    void                      *layer;   /* the layer's, of the process */
};

/* How processes find and tell each other; sockets, or MPI. */
struct perf_boot {
    void (*start)(struct perf_proc *proc);
    /* length bytes of each rank, in order of rank */
    void (*allgather)(struct perf_proc *proc, const void *mine, void *all,
                      size_t length);
    /* One step towards a barrier that hands on a number of rank 0; true when all
     * are there.  wait: may block. */
    bool (*step)(struct perf_proc *proc, uint64_t *value, bool is_new, bool wait);
    int (*stop)(struct perf_proc *proc); /* the exit code of all */
};

extern const struct perf_boot perf_boot;

/* ---------------------------------------------------------------- layers */

/* The layout of uct_completion_t and tofu_completion_t: count - 1 operations are in
 * flight, so func is never called. */
struct perf_completion {
    void   (*func)(struct perf_completion *self);
    int    count;
    int8_t status;
};

enum perf_kind { PERF_AM, PERF_TAG, PERF_STREAM };
enum perf_amo { PERF_ADD, PERF_FADD, PERF_SWAP, PERF_CSWAP };

/* One thread of one process: an iface, worker or VCQ of its own. */
struct perf_ctx {
    struct perf_completion    comp;
    struct perf_proc          *proc;
    const struct perf_options *opt;
    int                       rank, thread;
    void                      *layer;   /* the layer's, of the thread */
    /* Registered: what comes in, what goes out, a page of words (PERF_WORD_*), the
     * table of gups. */
    uint8_t                   *memory;
    size_t                    out, words, table, length; /* offsets, and the end */
    bool                      want_completion; /* of puts: counted in comp */
    bool                      is_last;  /* the next put is the last before a flush */
    bool                      polls_memory; /* the target polls the last byte */
    volatile uint64_t         arrived;  /* messages */
    volatile uint64_t         from[PERF_MAX_PROCS]; /* of each rank, where told */
    /* Those of earlier phases: the first of a phase may be here before the test's
     * function is called, so it can't look what was there. */
    uint64_t                  taken, taken_from[PERF_MAX_PROCS];
    uint64_t                  result;   /* of a fetching atomic */
    unsigned                  phase;
    uint64_t                  sequence; /* of the test */
    uint64_t                  streams;  /* that were watched */
    long                      spins;
    uint64_t                  start, last; /* ticks */
    uint64_t                  elapsed;  /* ticks of the phase */
    long                      operations; /* of the phase */
    long                      batched, batch; /* operations since last, per time */
    long                      least_batch; /* as the tick counter is coarse */
    long                      planned;  /* operations of the phase */
    double                    scale;    /* of a logged time to that of an operation */
    struct perf_log           logs[PERF_STEPS];
};

struct perf_layer {
    const char *name;
    bool       serves;  /* a target has to call progress for one-sided tests */
    bool       acknowledges; /* a stream of messages has a window, as UCT's in
                              * ucx_perftest; UCP and MPI hold a sender back themselves */
    /* of the process, before threads start; write facts of the JSON output, ",..." */
    void (*start)(struct perf_proc *proc);
    void (*facts)(struct perf_proc *proc, FILE *out);
    void (*stop)(struct perf_proc *proc);
    /* of the thread: ctx->length bytes of memory, and what is opened */
    void (*open)(struct perf_ctx *ctx);
    size_t (*address)(struct perf_ctx *ctx, void *blob);
    void (*connect)(struct perf_ctx *ctx, int rank, const void *blob);
    void (*counters)(struct perf_ctx *ctx, FILE *out); /* "name": n, ... */
    void (*close)(struct perf_ctx *ctx);

    void (*progress)(struct perf_ctx *ctx);
    void (*flush)(struct perf_ctx *ctx); /* remote completion of everything */
    void (*fence)(struct perf_ctx *ctx);
    /* from ctx->memory + local to remote of that rank's memory (put), or back */
    void (*put)(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                size_t size);
    void (*get)(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                size_t size);
    /* a put with a notice to the target, and whether one came */
    void (*put_notice)(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                       size_t size);
    bool (*poll_notice)(struct perf_ctx *ctx);
    /* on 8 bytes; a fetching one is complete when comp says so */
    void (*amo)(struct perf_ctx *ctx, int rank, enum perf_amo op, uint64_t value,
                uint64_t compare, size_t remote);
    bool (*has)(enum perf_kind kind);
    void (*send)(struct perf_ctx *ctx, int rank, enum perf_kind kind, size_t size);
    /* not for PERF_AM, which arrive by themselves */
    void (*receive)(struct perf_ctx *ctx, int rank, enum perf_kind kind, size_t size);
    void *(*reg)(struct perf_ctx *ctx, void *memory, size_t size);
    void (*dereg)(struct perf_ctx *ctx, void *handle);
    void *(*ep_create)(struct perf_ctx *ctx, int rank);
    void (*ep_destroy)(struct perf_ctx *ctx, void *ep);
    void (*coll_open)(struct perf_ctx *ctx);
    void (*barrier)(struct perf_ctx *ctx);
    uint64_t (*reduce)(struct perf_ctx *ctx, uint64_t value);
    void (*coll_close)(struct perf_ctx *ctx);
};

extern const struct perf_layer perf_layer;

/* ----------------------------------------------------------------- tests */

struct perf_test {
    const char *name;
    void       (*run)(struct perf_ctx *ctx, long n);
    void       (*check)(struct perf_ctx *ctx); /* after each phase; may be NULL */
    bool       (*is_there)(void);
    int        procs;      /* 0: any number */
    bool       is_one_way; /* half the logged time */
    bool       any_window; /* the option counts */
    size_t     min_size;
    const char *steps[PERF_STEPS]; /* names of the results, when there are several */
};

extern const struct perf_test perf_tests[], perf_tests_more[];

/* Which operation a test of this name measures, for limits of layouts. */
enum perf_verb { PERF_VERB_PUT, PERF_VERB_GET, PERF_VERB_AM, PERF_VERB_OTHER };
enum perf_verb perf_verb(const char *name);

/* Offsets into the page of words. */
#define PERF_WORD_FLAG     0    /* comes in */
#define PERF_WORD_FLAG_OUT 256
#define PERF_WORD_AMO      512
#define PERF_WORD_SCRATCH  768  /* of layers */

static inline volatile uint64_t *perf_word(struct perf_ctx *ctx, size_t offset)
{
    return (volatile uint64_t*)(ctx->memory + ctx->words + offset);
}

static inline uint8_t perf_pattern(unsigned phase, size_t at)
{
    return (uint8_t)(phase * 37 + at * 5 + 1);
}

void perf_fill(uint8_t *data, size_t size, unsigned phase);
void perf_verify(const uint8_t *data, size_t size, unsigned phase, const char *what);

/* All threads of all processes; what waits calls progress where the layer needs it.
 * Returns the value that thread 0 of rank 0 gave. */
uint64_t perf_meet(struct perf_ctx *ctx, uint64_t value);

/* The same by the main thread alone, for what is closed at the end. */
void perf_part(struct perf_ctx *ctx);

static inline int perf_in_flight(const struct perf_ctx *ctx)
{
    return *(volatile const int*)&ctx->comp.count - 1;
}

/* In every loop that waits. */
static inline void perf_spin(struct perf_ctx *ctx)
{
    if (ctx->proc->yields && ((++ctx->spins & 63) == 0)) {
        sched_yield();
    }
}

static inline void perf_window(struct perf_ctx *ctx, int window)
{
    while (perf_in_flight(ctx) >= window) {
        perf_layer.progress(ctx);
        perf_spin(ctx);
    }
}

/* Times are taken from here ... */
static inline void perf_begin(struct perf_ctx *ctx, long batch)
{
    batch        = (batch < ctx->least_batch) ? ctx->least_batch : batch;
    /* few and long operations: some times at least */
    ctx->batch   = (ctx->planned >= 16 * batch) ? batch :
                   (ctx->planned >= 16) ? ctx->planned / 16 : 1;
    ctx->batched = 0;
    ctx->start   = ctx->last = perf_ticks();
}

static inline void perf_tick_at(struct perf_ctx *ctx, uint64_t now)
{
    perf_log_add(&ctx->logs[0], now - ctx->last);
    ctx->last    = now;
    ctx->batched = 0;
}

/* ... per batch of operations ... */
static inline void perf_tick(struct perf_ctx *ctx)
{
    if (++ctx->batched == ctx->batch) {
        perf_tick_at(ctx, perf_ticks());
    }
}

/* ... in the tests that ucx_perftest has, too: it reads the clock after each
 * operation, about 10 ns, which is part of all that it shows ... */
static inline void perf_update(struct perf_ctx *ctx)
{
    uint64_t now = perf_ticks();

    if (++ctx->batched == ctx->batch) {
        perf_tick_at(ctx, now);
    }
}

/* ... to here, when all n are complete. */
static inline void perf_end(struct perf_ctx *ctx, long n)
{
    ctx->elapsed    = perf_ticks() - ctx->start;
    ctx->operations = n;
    ctx->scale      = 1.0 / ctx->batch;
}

#endif /* PERF_H */
