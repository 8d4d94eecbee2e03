/* SPDX-License-Identifier: BSD-3-Clause */
/* Asking whether a peer is there, where there is no room to ask. */
#include "core_test.h"

#include <signal.h>
#include <unistd.h>

#define BYTES 100
#define MAX   64 /* that wait, of an endpoint */

static unsigned seen[256];
static unsigned am_seen;

static int8_t on_am(void *arg, void *data, size_t length, unsigned flags)
{
    unsigned char seed = *(unsigned char *)data;

    (void)arg;
    (void)flags;
    CHECK_EQ(length, 1 + BYTES);
    CHECK(matches((char *)data + 1, BYTES, seed));
    ++seen[seed];
    ++am_seen;
    return TOFU_OK;
}

static size_t pack(void *dest, void *arg)
{
    unsigned char seed = *(unsigned char *)arg;

    *(unsigned char *)dest = seed;
    fill((char *)dest + 1, BYTES, seed);
    return 1 + BYTES;
}

static intptr_t check(tofu_ep_t *ep, unsigned char seed)
{
    return tofu_ep_am_check(ep, 1, pack, &seed);
}

static void open_all(struct ctx *ctx, int wakeup)
{
    int fd;

    core_open(ctx, NULL, 4096);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    if (wakeup) {
        CHECK_OK(tofu_iface_event_fd(ctx->iface, &fd));
    }
    core_barrier(ctx);
}

/* Rank 1 is busy with other things: it takes what rank 0 asks only later. */
static void beside_puts(struct ctx *ctx, int wakeup)
{
    uint64_t value = 0;
    unsigned i;

    open_all(ctx, wakeup);
    if (ctx->rank == 0) {
        for (i = 0; i < 6; ++i) {
            CHECK_EQ(check(ctx->ep[1], (unsigned char)i), 1 + BYTES);
            ++value; /* nothing that waits stands before a put, or its flush */
            CHECK_OK(tofu_ep_put_short(ctx->ep[1], &value, 8,
                                       ctx->shared->rank[1].base, ctx->rkey[1]));
            core_flush(ctx, ctx->ep[1]);
        }
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 1) {
        CHECK_EQ(*(uint64_t *)ctx->window, 6);
        WAIT_FOR(ctx, 20, am_seen == 6);
        for (i = 0; i < 6; ++i) {
            CHECK_EQ(seen[i], 1);
        }
    }
    core_barrier(ctx);
    CHECK_EQ(ctx->ep_errors, 0);
    core_close(ctx);
}

static void beside(struct ctx *ctx)
{
    beside_puts(ctx, 0);
}

static void beside_wakeup(struct ctx *ctx)
{
    beside_puts(ctx, 1);
}

/* So many wait, and no more; when they have gone there is room again. */
static void limit(struct ctx *ctx)
{
    unsigned turn, i;

    open_all(ctx, 1);
    for (turn = 0; turn < 2; ++turn) {
        if (ctx->rank == 0) {
            /* in the second turn some go at once: the peer has lent slots */
            for (i = 0; (i < MAX) || (turn > 0); ++i) {
                intptr_t result = check(ctx->ep[1], (unsigned char)i);
                if (result == TOFU_ERR_NO_RESOURCE) {
                    break;
                }
                CHECK_EQ(result, 1 + BYTES);
                CHECK(i < 200);
            }
            CHECK(i >= MAX);
            CHECK_EQ(check(ctx->ep[1], 250), TOFU_ERR_NO_RESOURCE);
            /* what asks the same as one that waits is no further one */
            CHECK_EQ(check(ctx->ep[1], (unsigned char)(i - 1)), 1 + BYTES);
            CHECK_EQ(check(ctx->ep[1], (unsigned char)(i - MAX)), 1 + BYTES);
            atomic_store(&ctx->shared->word[turn], i);
        }
        core_barrier_asleep(ctx);
        if (ctx->rank == 1) {
            uint64_t sent = atomic_load(&ctx->shared->word[turn]);
            WAIT_FOR(ctx, 20, am_seen == sent);
            for (i = 0; i < sent; ++i) {
                CHECK_EQ(seen[i], 1);
            }
            am_seen = 0;
            memset(seen, 0, sizeof(seen));
        }
        core_barrier(ctx);
    }
    core_close(ctx);
}

/* Behind requests that wait for room. */
static int8_t later(tofu_pending_req_t *self)
{
    (void)self;
    return TOFU_OK;
}

static void queued(struct ctx *ctx)
{
    tofu_pending_req_t req = {.func = later};
    unsigned char      seed = 0;

    open_all(ctx, 1);
    if (ctx->rank == 0) {
        CHECK_EQ(tofu_ep_am_bcopy(ctx->ep[1], 1, pack, &seed), TOFU_ERR_NO_RESOURCE);
        CHECK_OK(tofu_ep_pending_add(ctx->ep[1], &req));
        CHECK_EQ(check(ctx->ep[1], 7), 1 + BYTES);
        CHECK_OK(tofu_ep_check(ctx->ep[1]));
        /* the user's requests are his; others he does not see */
        tofu_ep_pending_purge(ctx->ep[1], NULL, NULL);
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 1) {
        WAIT_FOR(ctx, 20, am_seen == 1);
        CHECK_EQ(seen[7], 1);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* What waits goes with its endpoint. */
static void unsent(struct ctx *ctx)
{
    tofu_ep_t *other;
    unsigned  i;

    open_all(ctx, 1);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0, &other));
        for (i = 0; i < 10; ++i) {
            CHECK_EQ(check(ctx->ep[1], (unsigned char)i), 1 + BYTES);
            CHECK_EQ(check(other, (unsigned char)(100 + i)), 1 + BYTES);
        }
        tofu_ep_destroy(other);
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 1) {
        WAIT_FOR(ctx, 20, am_seen == 10);
    }
    core_barrier(ctx);
    CHECK_EQ(am_seen, (ctx->rank == 1) ? 10 : 0);
    for (i = 0; i < 10; ++i) {
        CHECK_EQ(seen[i], ctx->rank == 1);
    }
    if (ctx->rank == 0) {
        for (i = 0; i < 200; ++i) {
            check(ctx->ep[1], (unsigned char)i); /* and with its interface */
        }
    }
    core_close(ctx);
}

/* A flush that cancels drops what waits, as all that is not sent. */
static void canceled(struct ctx *ctx)
{
    tofu_ep_t *other;
    unsigned  i;

    open_all(ctx, 1);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0, &other));
        for (i = 0; i < 10; ++i) {
            CHECK_EQ(check(other, (unsigned char)(100 + i)), 1 + BYTES);
            CHECK_EQ(check(ctx->ep[1], (unsigned char)i), 1 + BYTES);
        }
        PROGRESS_UNTIL(ctx, 20, tofu_ep_flush(other, TOFU_FLUSH_CANCEL, NULL) == TOFU_OK);
        CHECK_EQ(check(other, 200), TOFU_ERR_CANCELED);
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 1) {
        WAIT_FOR(ctx, 20, am_seen == 10);
    }
    core_barrier(ctx); /* rank 0 has had its turns */
    for (i = 0; i < 10; ++i) {
        CHECK_EQ(seen[i], ctx->rank == 1);
        CHECK_EQ(seen[100 + i], 0);
    }
    CHECK_EQ(ctx->ep_errors, 0);
    if (ctx->rank == 0) {
        tofu_ep_destroy(other);
    }
    core_close(ctx);
}

/* The peer dies while they wait: its endpoint fails, once, and nothing else does. */
static void killed_asked(struct ctx *ctx, int wakeup)
{
    unsigned i;

    open_all(ctx, wakeup);
    if (ctx->rank == 0) {
        for (i = 0; i < 10; ++i) {
            CHECK_EQ(check(ctx->ep[1], (unsigned char)i), 1 + BYTES);
        }
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 1) {
        kill(getpid(), SIGKILL);
        for (;;) {
            pause();
        }
    }
    PROGRESS_UNTIL(ctx, 20, ctx->ep_errors > 0);
    CHECK(ctx->failed_ep == ctx->ep[1]);
    CHECK_EQ(ctx->failed_status, TOFU_ERR_ENDPOINT_TIMEOUT);
    CHECK_EQ(check(ctx->ep[1], 1), TOFU_ERR_ENDPOINT_TIMEOUT);
    for (i = 0; i < 20; ++i) {
        tofu_iface_progress(ctx->iface);
        core_usleep(1000);
    }
    CHECK_EQ(ctx->ep_errors, 1);
    CHECK_EQ(check(ctx->ep[0], 3), 1 + BYTES); /* to itself */
    PROGRESS_UNTIL(ctx, 20, am_seen == 1);
    tofu_ep_destroy(ctx->ep[0]);
    tofu_ep_destroy(ctx->ep[1]);
    tofu_rkey_release(ctx->rkey[0]);
    tofu_rkey_release(ctx->rkey[1]);
    CHECK_OK(tofu_mem_free(ctx->window_memh));
    tofu_iface_close(ctx->iface);
    tofu_md_close(ctx->md);
}

static void killed(struct ctx *ctx)
{
    killed_asked(ctx, 0);
}

static void killed_wakeup(struct ctx *ctx)
{
    killed_asked(ctx, 1);
}

/* A TOQ that has often no room (UTOFU_EMU_FAULT). */
static void no_room(struct ctx *ctx)
{
    uint64_t value = 1;
    unsigned i, refused = 0;

    open_all(ctx, 0);
    for (i = 0; i < 2000; ++i) {
        while (tofu_ep_put_short(ctx->ep[0], &value, 8, ctx->shared->rank[0].base,
                                 ctx->rkey[0]) == TOFU_OK) {
        }
        ++refused;
        CHECK_OK(tofu_ep_check(ctx->ep[0]));
        CHECK_EQ(check(ctx->ep[0], 5), 1 + BYTES);
        tofu_iface_progress(ctx->iface);
    }
    CHECK(refused > 0);
    PROGRESS_UNTIL(ctx, 20, am_seen == 2000);
    core_flush(ctx, ctx->ep[0]);
    CHECK_EQ(ctx->ep_errors, 0);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"beside", 2, 60, beside, 0},
        {"beside_wakeup", 2, 60, beside_wakeup, 0},
        {"limit", 2, 60, limit, 0},
        {"queued", 2, 60, queued, 0},
        {"unsent", 2, 60, unsent, 0},
        {"canceled", 2, 60, canceled, 0},
        {"killed", 2, 60, killed, 2},
        {"killed_wakeup", 2, 60, killed_wakeup, 2},
        {"no_room", 1, 60, no_room, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
