/* SPDX-License-Identifier: BSD-3-Clause */
/* Several TNIs behind one iface: large operations between nodes. */
#include "core_test.h"

#include <signal.h>
#include <unistd.h>

#define GUARD 64
#define MIB   ((size_t)1 << 20)

/* Each rank is on a node of its own, before uTofu is loaded. */
static void be_at(const char *coords)
{
    CHECK_EQ(setenv("UTOFU_EMU_COORDS", coords, 1), 0);
}

static void open_with(struct ctx *ctx, unsigned tx_notified, size_t rndv_split,
                      size_t window)
{
    tofu_iface_config_t config;

    tofu_iface_config_default(&config);
    if (tx_notified > 0) {
        config.tx_notified = tx_notified;
    }
    config.rndv_split = rndv_split;
    core_open(ctx, &config, window);
}

static uint64_t vcqs(struct ctx *ctx)
{
    tofu_iface_stats_t stats;

    tofu_iface_get_stats(ctx->iface, &stats);
    return stats.vcqs;
}

static void transfer(struct ctx *ctx, int peer, int is_get, char *buffer,
                     size_t length, tofu_mem_t *memh, uint64_t remote)
{
    tofu_iov_t    iov = {buffer, length, memh, 0, 1};
    tofu_status_t status;
    struct done   done;

    done_init(&done);
    status = (tofu_status_t)(
            is_get ? RETRY(ctx, tofu_ep_get_zcopy(ctx->ep[peer], &iov, 1,
                                                  remote, ctx->rkey[peer],
                                                  &done.comp)) :
                     RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[peer], &iov, 1,
                                                  remote, ctx->rkey[peer],
                                                  &done.comp)));
    CHECK_EQ(status, TOFU_INPROGRESS);
    CHECK_OK(done_wait(ctx, &done));
}

/* Rank 1 differs in X, A, B and C: four ways begin with different links. */
static void stripe_with(struct ctx *ctx, unsigned tx_notified, size_t rndv_split)
{
    static const size_t sizes[] = {8, 256 << 10, (256 << 10) + 1, 1000003,
                                   3 * 1000 * 1000 + 7, 20 << 20};
    size_t              length = 22 << 20, i, n;
    tofu_mem_t          *memh;
    void                *address;
    char                *buffer;

    be_at((ctx->rank == 0) ? "0,0,0,0,0,0" : "1,0,0,1,1,1");
    open_with(ctx, tx_notified, rndv_split, 22 << 20);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    buffer = address;
    for (i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        n = sizes[i];
        if (ctx->rank == 0) {
            uint64_t remote = ctx->shared->rank[1].base + GUARD + i;

            fill(buffer, n, i);
            transfer(ctx, 1, 0, buffer, n, memh, remote);
            core_flush(ctx, ctx->ep[1]);
        }
        core_barrier(ctx);
        if (ctx->rank == 1) {
            char *mine = ctx->window + GUARD + i;
            CHECK(matches(mine, n, i));
            CHECK((mine[-1] == 0) && (mine[n] == 0));
            fill(mine, n, i + 100);
        }
        core_barrier(ctx);
        if (ctx->rank == 0) {
            memset(buffer, 0, n + 1);
            transfer(ctx, 1, 1, buffer, n, memh,
                     ctx->shared->rank[1].base + GUARD + i);
            CHECK(matches(buffer, n, i + 100));
            CHECK_EQ(buffer[n], 0);
        }
        core_barrier(ctx);
        if (ctx->rank == 1) {
            memset(ctx->window, 0, n + 2 * GUARD + i);
        }
        core_barrier(ctx);
    }
    if (ctx->rank == 0) {
        /* four lanes; the iface's own VCQ may be one of them */
        CHECK((vcqs(ctx) == 4) || (vcqs(ctx) == 5));
    }
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

static void stripe(struct ctx *ctx)
{
    stripe_with(ctx, 0, 0);
}

/* So few operations at a time that all are posted in parts. */
static void stripe_parts(struct ctx *ctx)
{
    stripe_with(ctx, 2, 100000);
}

/* A neighbour: one way, one VCQ, as large as it may be. */
static void neighbour(struct ctx *ctx)
{
    size_t     length = 2 * MIB;
    tofu_mem_t *memh;
    void       *address;

    be_at((ctx->rank == 0) ? "0,0,0,0,0,0" : "0,0,0,1,0,0");
    open_with(ctx, 0, 0, 2 * MIB);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    if (ctx->rank == 0) {
        uint64_t before = vcqs(ctx);
        transfer(ctx, 1, 0, address, 2 * MIB, memh, ctx->shared->rank[1].base);
        CHECK(vcqs(ctx) <= before + 1);
    }
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* Large gets are never complete when they return, by one way or by several. */
static void late_from(struct ctx *ctx, const char *coords)
{
    enum { ROUNDS = 100 };
    size_t      length = 256 << 10;
    tofu_mem_t  *memh;
    void        *address;
    struct done done;
    int         round;

    be_at((ctx->rank == 0) ? "0,0,0,0,0,0" : coords);
    core_early = 1;
    open_with(ctx, 0, 0, length);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    length = 256 << 10;
    for (round = 0; (ctx->rank == 0) && (round < ROUNDS); ++round) {
        tofu_iov_t iov = {address, length, memh, 0, 1};

        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_get_zcopy(ctx->ep[1], &iov, 1,
                                              ctx->shared->rank[1].base,
                                              ctx->rkey[1], &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_EQ(done.called, 0);
        CHECK_OK(done_wait(ctx, &done));
    }
    core_barrier(ctx);
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

static void late_single(struct ctx *ctx)
{
    late_from(ctx, "0,0,0,1,0,0");
}

static void late_stripe(struct ctx *ctx)
{
    late_from(ctx, "1,0,0,1,1,1");
}

/* What comes after a fence comes after all parts of what was before it. */
static void fence_stripe(struct ctx *ctx)
{
    const size_t      n      = 1200001;
    size_t            length = 2 * MIB;
    volatile uint64_t *flag;
    tofu_mem_t        *memh;
    void              *address;
    uint64_t          round, value;

    be_at((ctx->rank == 0) ? "0,0,0,0,0,0" : "1,1,0,1,2,1");
    open_with(ctx, 0, 0, 2 * MIB);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    flag = (volatile uint64_t *)(ctx->window + 2 * MIB - 8);
    for (round = 1; round <= 40; ++round) {
        if (ctx->rank == 0) {
            uint64_t    base = ctx->shared->rank[1].base;
            tofu_iov_t  iov  = {address, n, memh, 0, 1};
            struct done done;

            fill(address, n, round);
            done_init(&done);
            CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[1], &iov, 1, base,
                                                  ctx->rkey[1], &done.comp)),
                     TOFU_INPROGRESS);
            CHECK_OK(tofu_ep_fence(ctx->ep[1]));
            value = round;
            CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[1], &value, 8,
                                                  base + 2 * MIB - 8,
                                                  ctx->rkey[1])));
            if (round % 2) { /* and a large one after a small one */
                CHECK_OK(tofu_ep_fence(ctx->ep[1]));
            }
            CHECK_OK(done_wait(ctx, &done));
        } else {
            while (*flag != round) {
            }
            atomic_thread_fence(memory_order_acquire);
            CHECK(matches(ctx->window, n, round));
        }
        core_barrier(ctx);
    }
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* Six neighbours, six TNIs. */
static void spread(struct ctx *ctx)
{
    static const char *const at[] = {
        "2,2,2,0,1,0", "2,2,2,1,1,0", "2,2,2,0,0,0", "2,2,2,0,2,0",
        "2,2,2,0,1,1", "3,2,2,0,1,0", "1,2,2,0,1,0"
    };
    size_t     length = MIB;
    tofu_mem_t *memh;
    void       *address;
    int        r;

    be_at(at[ctx->rank]);
    core_open(ctx, NULL, MIB);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    if (ctx->rank == 0) {
        struct done done[7];

        fill(address, MIB, 77);
        for (r = 1; r < 7; ++r) {
            tofu_iov_t iov = {address, MIB, memh, 0, 1};
            done_init(&done[r]);
            CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[r], &iov, 1,
                                                  ctx->shared->rank[r].base,
                                                  ctx->rkey[r],
                                                  &done[r].comp)),
                     TOFU_INPROGRESS);
        }
        for (r = 1; r < 7; ++r) {
            CHECK_OK(done_wait(ctx, &done[r]));
            core_flush(ctx, ctx->ep[r]);
        }
        /* seven eps, that to itself among them */
        CHECK(vcqs(ctx) >= 5);
    }
    core_barrier(ctx);
    if (ctx->rank > 0) {
        CHECK(matches(ctx->window, MIB, 77));
    }
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* The target dies while parts are on their way: each operation ends, once, and the
 * ep to it fails, no other. */
static void killed_stripe(struct ctx *ctx)
{
    static const char *const at[] = {"0,0,0,0,0,0", "1,0,0,1,1,1", "1,0,0,1,2,1"};
    size_t        length = MIB;
    tofu_status_t status = TOFU_OK;
    tofu_mem_t    *memh;
    void          *address;
    struct done   done;
    unsigned      i;

    be_at(at[ctx->rank]);
    core_open(ctx, NULL, MIB);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    if (ctx->rank == 1) {
        while (atomic_load(&ctx->shared->word[0]) < 3) {
        }
        kill(getpid(), SIGKILL);
    }
    if (ctx->rank == 0) {
        for (i = 0; (i < 1000000) && (ctx->ep_errors == 0); ++i) {
            tofu_iov_t iov = {address, MIB, memh, 0, 1};

            done_init(&done);
            status = (tofu_status_t)RETRY(
                    ctx, tofu_ep_put_zcopy(ctx->ep[1], &iov, 1,
                                           ctx->shared->rank[1].base,
                                           ctx->rkey[1], &done.comp));
            if (status != TOFU_INPROGRESS) {
                break;
            }
            atomic_fetch_add(&ctx->shared->word[0], 1);
            status = done_wait(ctx, &done);
        }
        CHECK(status != TOFU_OK);
        while (ctx->ep_errors == 0) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK_EQ(ctx->ep_errors, 1);
        CHECK(ctx->failed_ep == ctx->ep[1]);
        fill(address, MIB, 5);
        transfer(ctx, 2, 0, address, MIB, memh, ctx->shared->rank[2].base);
        core_flush(ctx, ctx->ep[2]);
        CHECK_EQ(ctx->ep_errors, 1);
        atomic_store(&ctx->shared->word[1], 1);
    }
    if (ctx->rank == 2) {
        while (atomic_load(&ctx->shared->word[1]) == 0) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK(matches(ctx->window, MIB, 5));
    }
    for (i = 0; i < 3; ++i) { /* no barrier: there is one less */
        tofu_ep_destroy(ctx->ep[i]);
        tofu_rkey_release(ctx->rkey[i]);
    }
    CHECK_OK(tofu_mem_free(memh));
    CHECK_OK(tofu_mem_free(ctx->window_memh));
    tofu_iface_close(ctx->iface);
    tofu_md_close(ctx->md);
}

/* All CQs of the node taken, then all VCQs: ifaces share, then opening says why. */
static void exhausted(struct ctx *ctx)
{
    enum { MANY = 2000 };
    static tofu_iface_t *iface[MANY];
    tofu_iface_config_t config;
    tofu_status_t       status = TOFU_OK;
    int                 n, m;

    be_at("0,0,0,0,0,0");
    core_open(ctx, NULL, MIB);
    tofu_iface_config_default(&config);
    config.am_seg_size    = 256;
    config.rx_slots       = 4;
    config.rx_short_slots = 4;
    config.tx_bounce      = 2;
    for (n = 0; n < MANY; ++n) {
        status = tofu_iface_open(ctx->md, &config, &iface[n]);
        if (status != TOFU_OK) {
            break;
        }
    }
    CHECK_EQ(status, TOFU_ERR_NO_DEVICE);
    CHECK(n > 6 * 9 * 8); /* more than there are VCQs */
    printf("%d ifaces on a node\n", n + 1);
    for (m = 0; m < n; ++m) {
        tofu_iface_progress(iface[m]);
        tofu_iface_close(iface[m]);
    }
    CHECK_OK(tofu_iface_open(ctx->md, &config, &iface[0]));
    tofu_iface_close(iface[0]);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"stripe", 2, 40, stripe, 0},
        {"stripe_parts", 2, 40, stripe_parts, 0},
        {"neighbour", 2, 20, neighbour, 0},
        {"late_single", 2, 40, late_single, 0},
        {"late_stripe", 2, 40, late_stripe, 0},
        {"fence_stripe", 2, 40, fence_stripe, 0},
        {"spread", 7, 40, spread, 0},
        {"killed_stripe", 3, 40, killed_stripe, 1 << 1},
        {"exhausted", 1, 60, exhausted, 0},
    };

    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
