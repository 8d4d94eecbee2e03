/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core_test.h - several processes, each with an md and an iface, that check the
 * transport core.  A case is a function that every rank runs; the parent only forks
 * (before anything of uTofu is opened), waits, and kills what outlives the limit.
 */
#ifndef CORE_TEST_H
#define CORE_TEST_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <tofu.h>
#include <tofu_dl.h>

#define MAX_RANKS 80
#define BLOB      256

/* Shared by all ranks of a case. */
struct shared {
    _Atomic unsigned arrived[4096]; /* ranks at the n-th barrier */
    struct {
        uint8_t address[BLOB], device[BLOB], rkey[BLOB];
        uint64_t base;
        size_t   length;
        pid_t    pid;
    } rank[MAX_RANKS];
    _Atomic uint64_t word[64];
};

struct ctx {
    int           rank, size;
    struct shared *shared;
    unsigned      barriers;
    tofu_md_t     *md;
    tofu_iface_t  *iface;
    tofu_ep_t     *ep[MAX_RANKS];
    /* the window of this rank, and those of all */
    char          *window;
    size_t        window_size;
    tofu_mem_t    *window_memh;
    tofu_rkey_t   *rkey[MAX_RANKS];
    /* counted by the error callback */
    unsigned      ep_errors;
    tofu_ep_t     *failed_ep;
    tofu_status_t failed_status;
};

struct test_case {
    const char *name;
    int        ranks;
    unsigned   limit_s;
    void       (*run)(struct ctx *ctx);
    int        may_die; /* bit r: rank r may end by a signal */
};

/* Runs the case that argv[1] names; "list" prints all.  The exit code. */
int core_main(int argc, char **argv, const struct test_case *cases, size_t n);

void core_fail(const char *file, int line, const char *fmt, ...)
        __attribute__((noreturn, format(printf, 3, 4)));
#define FAIL(...) core_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(cond) \
    do { \
        if (!(cond)) { \
            FAIL("not true: %s", #cond); \
        } \
    } while (0)
#define CHECK_EQ(a, b) \
    do { \
        long long _a = (long long)(a), _b = (long long)(b); \
        if (_a != _b) { \
            FAIL("%s is %lld, %s is %lld", #a, _a, #b, _b); \
        } \
    } while (0)
#define CHECK_OK(call) \
    do { \
        tofu_status_t _s = (tofu_status_t)(call); \
        if (_s != TOFU_OK) { \
            FAIL("%s: %s", #call, tofu_status_string(_s)); \
        } \
    } while (0)

const struct tofu_backend *core_backend(void);
/* Value of config.early_complete that core_open sets; 0, so that operations go
 * through the queues, unless a case is about it. */
extern int core_early;
/* Open md and iface (config NULL: default), a window of `window` bytes, tell the
 * others, connect to all. */
void core_open(struct ctx *ctx, const tofu_iface_config_t *config,
               size_t window);
void core_close(struct ctx *ctx);
/* All ranks; drives the iface meanwhile. */
void core_barrier(struct ctx *ctx);
/* The same without progress, for a receiver that sleeps. */
void core_barrier_asleep(struct ctx *ctx);
void core_flush(struct ctx *ctx, tofu_ep_t *ep);
tofu_iface_stats_t stats_of(struct ctx *ctx);
double core_now(void);
void core_usleep(unsigned us);
/* Is that process stopped (SIGSTOP)? */
int core_stopped(pid_t pid);

/* A completion that counts. */
struct done {
    tofu_completion_t comp;
    int               called;
};
void done_init(struct done *done);
/* Progress until it was called; its status. */
tofu_status_t done_wait(struct ctx *ctx, struct done *done);

/* Progress until the condition holds; a failure after so many seconds. */
#define PROGRESS_UNTIL(_ctx, _seconds, _cond) \
    do { \
        double _end = core_now() + (_seconds); \
        while (!(_cond)) { \
            tofu_iface_progress((_ctx)->iface); \
            if (core_now() > _end) { \
                FAIL("not within %d s: %s", (int)(_seconds), #_cond); \
            } \
        } \
    } while (0)

/* Progress, and let others have the CPU when there was nothing to do. */
static inline void core_idle(tofu_iface_t *iface)
{
    if (tofu_iface_progress(iface) == 0) {
        sched_yield();
    }
}

/* As PROGRESS_UNTIL, for what another process needs the CPU for. */
#define WAIT_FOR(_ctx, _seconds, _cond) \
    do { \
        double _end = core_now() + (_seconds); \
        while (!(_cond)) { \
            core_idle((_ctx)->iface); \
            if (core_now() > _end) { \
                FAIL("not within %d s: %s", (int)(_seconds), #_cond); \
            } \
        } \
    } while (0)

/* Call again while it says NO_RESOURCE. */
#define RETRY(ctx, call) \
    ({ \
        intptr_t _r; \
        while ((_r = (intptr_t)(call)) == TOFU_ERR_NO_RESOURCE) { \
            tofu_iface_progress((ctx)->iface); \
        } \
        _r; \
    })

/* Reproducible bytes. */
void fill(void *buffer, size_t length, uint64_t seed);
int matches(const void *buffer, size_t length, uint64_t seed);
uint64_t next_random(uint64_t *state);

#endif
