/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_tests_more.c - many processes, collectives, and what setting up costs.
 *
 * gups:        every thread of every process adds 1 to random words of the others.
 * many_to_one: all but rank 0 send messages to it; rank 0 measures arrivals.
 * barrier, reduce: of all processes, from start to end.
 * reg_mem:     memory that was never registered, the same again, and its end.
 * ep_create:   an endpoint to a peer that is known, and its end.
 */
#include "perf.h"

#include <errno.h>
#include <sys/mman.h>

#define BATCH 16

/* ------------------------------------------------------------------- gups */

static uint64_t gups_total; /* adds of this process, in all phases */

static void gups(struct perf_ctx *ctx, long n)
{
    uint64_t random = 0x9e3779b97f4a7c15ull * (uint64_t)(ctx->rank * 64 +
                      ctx->thread + 1) + ctx->phase;
    int      to;

    perf_begin(ctx, BATCH);
    for (long i = 0; i < n; ++i) {
        random ^= random << 13; /* xorshift */
        random ^= random >> 7;
        random ^= random << 17;
        to      = (int)((random >> 40) % (uint64_t)(ctx->proc->size - 1));
        to     += (to >= ctx->rank);
        perf_window(ctx, ctx->opt->window);
        perf_layer.amo(ctx, to, PERF_ADD, 1, 0,
                       ctx->table + random % PERF_TABLE * sizeof(uint64_t));
        perf_tick(ctx);
    }
    perf_layer.flush(ctx);
    perf_end(ctx, n * ctx->proc->size); /* all processes do as many */
    __atomic_add_fetch(&gups_total, (uint64_t)n, __ATOMIC_RELAXED);
}

/* All words of all tables together are all adds. */
static void check_gups(struct perf_ctx *ctx)
{
    struct {
        uint64_t sum, adds;
    } mine = {0}, all[PERF_MAX_PROCS];
    uint64_t sum = 0, adds = 0;

    if (ctx->thread == 0) {
        for (int t = 0; t < ctx->opt->threads; ++t) {
            struct perf_ctx *other = &ctx->proc->threads[t];
            uint64_t        *table = (uint64_t*)(other->memory + other->table);

            for (int i = 0; i < PERF_TABLE; ++i) {
                mine.sum += __atomic_load_n(&table[i], __ATOMIC_RELAXED);
            }
        }
        mine.adds = __atomic_load_n(&gups_total, __ATOMIC_RELAXED);
        perf_boot.allgather(ctx->proc, &mine, all, sizeof(mine));
        for (int r = 0; r < ctx->proc->size; ++r) {
            sum  += all[r].sum;
            adds += all[r].adds;
        }
        PERF_CHECK(sum == adds, "the tables have %lu after %lu adds",
                   (unsigned long)sum, (unsigned long)adds);
    }
    perf_meet(ctx, 0); /* nobody adds while another one sums up */
}

static bool can_amo(void)
{
    return perf_layer.amo != NULL;
}

/* ------------------------------------------------------------ many to one */

static void to_one_send(struct perf_ctx *ctx, long n)
{
    uint64_t acks = ((uint64_t)n + PERF_ACK - 1) / PERF_ACK, base = ctx->taken;

    ctx->taken += acks;
    for (uint64_t i = 0; i < (uint64_t)n; ++i) {
        while (i >= (ctx->arrived - base) * PERF_ACK + PERF_FC) {
            perf_layer.progress(ctx);
            perf_spin(ctx);
        }
        perf_window(ctx, ctx->opt->window);
        perf_layer.send(ctx, 0, PERF_AM, ctx->opt->size);
    }
    while (ctx->arrived - base < acks) {
        perf_layer.progress(ctx);
        perf_spin(ctx);
    }
    perf_window(ctx, 1);
}

static void many_to_one(struct perf_ctx *ctx, long n)
{
    uint64_t *base = ctx->taken_from, seen[PERF_MAX_PROCS] = {0}, came;
    uint64_t left = (uint64_t)n * (uint64_t)(ctx->proc->size - 1), total = left;

    if (ctx->rank > 0) {
        to_one_send(ctx, n);
        return;
    }
    perf_begin(ctx, BATCH);
    while (left > 0) {
        perf_layer.progress(ctx);
        perf_spin(ctx);
        for (int r = 1; r < ctx->proc->size; ++r) {
            came = ctx->from[r] - base[r];
            while (seen[r] < came) {
                ++seen[r];
                --left;
                perf_tick(ctx);
                if ((seen[r] % PERF_ACK == 0) || (seen[r] == (uint64_t)n)) {
                    perf_layer.send(ctx, r, PERF_AM, 8);
                }
            }
        }
    }
    perf_end(ctx, (long)total);
    for (int r = 1; r < ctx->proc->size; ++r) {
        base[r] += (uint64_t)n;
    }
    perf_window(ctx, 1);
}

static bool can_am(void)
{
    return (perf_layer.has != NULL) && perf_layer.has(PERF_AM);
}

/* ------------------------------------------------------------ collectives */

static void barrier(struct perf_ctx *ctx, long n)
{
    volatile uint64_t *entered = (ctx->phase == 1) ? ctx->proc->shared : NULL;

    perf_layer.coll_open(ctx);
    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        if (entered != NULL) { /* in the first phase, as it costs time */
            entered[ctx->rank] = (uint64_t)i + 1;
        }
        perf_layer.barrier(ctx);
        for (int r = 0; (entered != NULL) && (r < ctx->proc->size); ++r) {
            PERF_CHECK(entered[r] > (uint64_t)i, "rank %d was not there yet", r);
        }
        perf_tick(ctx);
    }
    perf_end(ctx, n);
    perf_layer.coll_close(ctx);
}

static void reduce(struct perf_ctx *ctx, long n)
{
    uint64_t size = (uint64_t)ctx->proc->size, sum, wanted;

    perf_layer.coll_open(ctx);
    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        sum    = perf_layer.reduce(ctx, (uint64_t)(ctx->rank + 1 + i));
        wanted = size * (size + 1) / 2 + size * (uint64_t)i;
        PERF_CHECK(sum == wanted, "the sum is %lu, not %lu", (unsigned long)sum,
                   (unsigned long)wanted);
        perf_tick(ctx);
    }
    perf_end(ctx, n);
    perf_layer.coll_close(ctx);
}

static bool can_barrier(void)
{
    return perf_layer.barrier != NULL;
}

static bool can_reduce(void)
{
    return perf_layer.reduce != NULL;
}

/* ------------------------------------------------------------------ costs */

static void reg_mem(struct perf_ctx *ctx, long n)
{
    size_t   length = (ctx->opt->size + PERF_PAGE - 1) & ~(size_t)(PERF_PAGE - 1);
    void     *memory, *first, *again;
    uint64_t times[4];

    if (ctx->rank != 0) {
        return;
    }
    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        PERF_CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
        memset(memory, 1, length);
        times[0] = perf_ticks();
        first    = perf_layer.reg(ctx, memory, ctx->opt->size);
        times[1] = perf_ticks();
        again    = perf_layer.reg(ctx, memory, ctx->opt->size);
        times[2] = perf_ticks();
        perf_layer.dereg(ctx, again);
        times[3] = perf_ticks();
        perf_layer.dereg(ctx, first);
        perf_log_add(&ctx->logs[2], perf_ticks() - times[3]);
        for (int s = 0; s < 2; ++s) {
            perf_log_add(&ctx->logs[s], times[s + 1] - times[s]);
        }
        munmap(memory, length);
    }
    perf_end(ctx, n);
}

static bool can_reg(void)
{
    return perf_layer.reg != NULL;
}

static void ep_create(struct perf_ctx *ctx, long n)
{
    uint64_t start, made;
    void     *ep;

    if (ctx->rank != 0) {
        return;
    }
    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        start = perf_ticks();
        ep    = perf_layer.ep_create(ctx, 1);
        made  = perf_ticks();
        perf_layer.ep_destroy(ctx, ep);
        perf_log_add(&ctx->logs[0], made - start);
        perf_log_add(&ctx->logs[1], perf_ticks() - made);
    }
    perf_end(ctx, n);
}

static bool can_ep(void)
{
    return perf_layer.ep_create != NULL;
}

/* name, run, check, is_there, procs, is_one_way, any_window, min_size, steps */
const struct perf_test perf_tests_more[] = {
    {"gups", gups, check_gups, can_amo, 0, false, true, 8, {0}},
    {"many_to_one", many_to_one, NULL, can_am, 0, false, true, 8, {0}},
    {"barrier", barrier, NULL, can_barrier, 0, false, false, 1, {0}},
    {"reduce", reduce, NULL, can_reduce, 0, false, false, 8, {0}},
    {"reg_mem", reg_mem, NULL, can_reg, 2, false, false, 1,
     {"first", "again", "dereg"}},
    {"ep_create", ep_create, NULL, can_ep, 2, false, false, 1,
     {"create", "destroy"}},
    {NULL, NULL, NULL, NULL, 0, false, false, 0, {0}}
};
