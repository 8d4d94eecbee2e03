/* SPDX-License-Identifier: BSD-3-Clause */
/* Active messages that a handler keeps where they are. */
#include "core_test.h"

#include <tofu_internal.h>
#include <tofu_am.h> /* to look at the pool */

#include <signal.h>
#include <unistd.h>

#define HEADROOM 88u
#define MAX_HELD 1024

struct held {
    char     *data;
    size_t   length;
    uint64_t from, number;
};

static struct held held[MAX_HELD];
static unsigned    num_held, peak_held, offered, depth;
static uint64_t    next_from[MAX_RANKS], arrived, random_state = 1;
static int         keep_of[MAX_RANKS]; /* how many of 8; 9: nothing is checked */
static int         nest;
static char        mark; /* &mark is config.rx_desc */

static size_t pack_stream(void *dest, void *arg)
{
    uint64_t *m     = arg; /* from, number, length */
    char     *bytes = dest;

    memcpy(bytes, m, 16);
    fill(bytes + 16, m[2] - 16, m[0] * 7919 + m[1]);
    return m[2];
}

static size_t length_of(uint64_t number)
{
    return 40 + (number * 2654435761u) % 3000;
}

static tofu_status_t send_large(struct ctx *ctx, int to, uint64_t number)
{
    uint64_t m[3] = {(uint64_t)ctx->rank, number, length_of(number)};
    intptr_t n    = tofu_ep_am_bcopy(ctx->ep[to], 1, pack_stream, m);

    CHECK((n < 0) || ((size_t)n == m[2]));
    return (n < 0) ? (tofu_status_t)n : TOFU_OK;
}

static void check_data(const struct held *h)
{
    uint64_t m[2];

    memcpy(m, h->data, 16);
    CHECK_EQ(m[0], h->from);
    CHECK_EQ(m[1], h->number);
    if (!matches(h->data + 16, h->length - 16, h->from * 7919 + h->number)) {
        FAIL("message %llu from %llu is damaged", (unsigned long long)h->number,
             (unsigned long long)h->from);
    }
}

static void release(struct ctx *ctx, unsigned i)
{
    void   *desc = held[i].data - HEADROOM, *word;
    size_t k;

    check_data(&held[i]);
    memcpy(&word, (char *)desc - 8, 8);
    CHECK(word == &mark);
    for (k = 0; k < HEADROOM; ++k) {
        CHECK_EQ(((unsigned char *)desc)[k], (held[i].number + k) & 0xff);
    }
    CHECK_OK(tofu_iface_release_desc(ctx->iface, desc));
    held[i] = held[--num_held];
}

static int8_t on_large(void *arg, void *data, size_t length, unsigned flags)
{
    struct ctx  *ctx = arg;
    struct held h    = {data, length, 0, 0};
    int         keep;
    size_t      k;

    memcpy(&h.from, data, 8);
    memcpy(&h.number, (char *)data + 8, 8);
    CHECK(h.from < MAX_RANKS);
    CHECK_EQ(h.number, next_from[h.from]); /* in order, each once */
    ++next_from[h.from];
    ++arrived;
    CHECK_EQ(length, length_of(h.number));
    check_data(&h);
    CHECK((flags & ~(unsigned)TOFU_CB_DESC) == 0);
    if (nest && (depth < 3) && (next_random(&random_state) % 4 == 0)) {
        ++depth;
        tofu_iface_progress(ctx->iface);
        --depth;
        check_data(&h);
    }
    if (flags == 0) {
        return TOFU_OK;
    }
    ++offered;
    for (k = 0; k < HEADROOM; ++k) { /* the user's, kept or not */
        ((unsigned char *)data)[-(ptrdiff_t)HEADROOM + (ptrdiff_t)k] =
                (unsigned char)(h.number + k);
    }
    keep = (next_random(&random_state) % 8) < (unsigned)keep_of[h.from];
    if (!keep) {
        return TOFU_OK;
    }
    CHECK(num_held < MAX_HELD);
    held[num_held++] = h;
    peak_held        = (num_held > peak_held) ? num_held : peak_held;
    if (nest && (next_random(&random_state) % 2 == 0)) {
        release(ctx, next_random(&random_state) % num_held); /* maybe this one */
    }
    return TOFU_INPROGRESS;
}

static void open_keeping(struct ctx *ctx, unsigned rx_slots)
{
    tofu_iface_config_t config;

    tofu_iface_config_default(&config);
    config.rx_slots    = rx_slots;
    config.rx_desc     = &mark;
    config.rx_headroom = HEADROOM;
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_large, ctx));
}

static void wait_arrived(struct ctx *ctx, uint64_t count)
{
    while (arrived < count) {
        tofu_iface_progress(ctx->iface);
    }
}

static void check_nothing_held(struct ctx *ctx)
{
    tofu_iface_stats_t stats;

    tofu_iface_get_stats(ctx->iface, &stats);
    CHECK_EQ(stats.am_held, 0);
    CHECK_EQ(stats.dropped, 0);
    CHECK_EQ(ctx->iface->am->num_kept, 0);
}

/* One sender's messages are kept as far as may be, and stay; he and the others go
 * on.  Then they are released, and are kept anew. */
static void forever(struct ctx *ctx)
{
    const unsigned     count = 2000;
    tofu_iface_stats_t stats;
    unsigned           i, round, window;

    open_keeping(ctx, 512);
    for (round = 0; round < 2; ++round) {
        if (ctx->rank == 0) {
            keep_of[1] = 8;
            /* while he sends: who is idle for a second gives his slots back */
            wait_arrived(ctx, 2ull * count * round + 1);
            CHECK(ctx->iface->am->pool[TOFU_AM_LARGE].owner[0] != NULL);
            window = ctx->iface->am->pool[TOFU_AM_LARGE]
                             .owner[0]->loan[TOFU_AM_LARGE].count;
            CHECK(window >= 4);
            wait_arrived(ctx, 2ull * count * (round + 1));
            CHECK_EQ(num_held, window / 2);
            tofu_iface_get_stats(ctx->iface, &stats);
            CHECK_EQ(stats.am_held, num_held);
            CHECK_EQ(stats.dropped, 0);
            while (num_held > 0) {
                release(ctx, next_random(&random_state) % num_held);
            }
            check_nothing_held(ctx);
            core_barrier(ctx);
        } else {
            for (i = 0; i < count; ++i) {
                CHECK_OK(RETRY(ctx, send_large(ctx, 0, round * count + i)));
            }
            core_barrier(ctx);
        }
    }
    core_close(ctx);
}

/* Kept and released at random, in handlers that are nested too. */
static void churn(struct ctx *ctx)
{
    const unsigned count = 4000;
    unsigned       i;

    open_keeping(ctx, 512);
    nest = (ctx->rank == 0);
    for (i = 0; i < (unsigned)ctx->size; ++i) {
        keep_of[i] = 1 + (int)(i * 3) % 8;
    }
    if (ctx->rank == 0) {
        while (arrived < count * (unsigned)(ctx->size - 1)) {
            tofu_iface_progress(ctx->iface);
            if ((num_held > 0) && (next_random(&random_state) % 4 == 0)) {
                release(ctx, next_random(&random_state) % num_held);
            }
        }
        CHECK(offered > count / 8);
        CHECK(peak_held > 4);
        while (num_held > 0) {
            release(ctx, 0);
        }
        check_nothing_held(ctx);
    } else {
        for (i = 0; i < count; ++i) {
            CHECK_OK(RETRY(ctx, send_large(ctx, 0, i)));
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Many lenders: not more than a quarter of all slots is ever kept. */
static void quarter(struct ctx *ctx)
{
    const unsigned count = 300;
    unsigned       i;

    open_keeping(ctx, 64); /* loans of 4: two of each are kept */
    for (i = 0; i < (unsigned)ctx->size; ++i) {
        keep_of[i] = 8;
    }
    if (ctx->rank == 0) {
        ctx->iface->am->num_kept = 15; /* as if others were kept */
        wait_arrived(ctx, count * (uint64_t)(ctx->size - 1));
        CHECK_EQ(num_held, 1);
        release(ctx, 0);
        ctx->iface->am->num_kept -= 15;
        check_nothing_held(ctx);
    } else {
        for (i = 0; i < count; ++i) {
            CHECK_OK(RETRY(ctx, send_large(ctx, 0, i)));
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Of a sender that ends with messages kept, the slots come back when they are
 * released and not before, and the messages stay as they are. */
static void orphans(struct ctx *ctx, int kill_it)
{
    const tofu_pool_t *pool;
    unsigned          i, kept;
    double            end;

    open_keeping(ctx, 128);
    if (ctx->rank == 1) {
        for (i = 0; i < 100; ++i) {
            CHECK_OK(RETRY(ctx, send_large(ctx, 0, i)));
        }
        core_flush(ctx, ctx->ep[0]);
        if (kill_it) {
            kill(getpid(), SIGKILL);
        }
        tofu_ep_destroy(ctx->ep[0]); /* its slots are given back after a while */
        ctx->ep[0] = NULL;
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    keep_of[1] = 8;
    wait_arrived(ctx, 100);
    pool = &ctx->iface->am->pool[TOFU_AM_LARGE];
    kept = num_held;
    CHECK(kept >= 2);
    end = core_now() + 20;
    while (kill_it && (ctx->ep_errors == 0)) { /* found when it is sent to */
        tofu_ep_am_short(ctx->ep[1], 2, 0, NULL, 0);
        tofu_iface_progress(ctx->iface);
        CHECK(core_now() < end);
    }
    while (pool->free != pool->count - kept) {
        tofu_iface_progress(ctx->iface);
        if (core_now() > end) {
            FAIL("%u of %u slots free, %u kept", pool->free, pool->count, kept);
        }
    }
    for (i = 0; i < kept; ++i) {
        check_data(&held[i]);
    }
    /* a release of what is not kept is refused, and changes nothing */
    CHECK_EQ(tofu_iface_release_desc(ctx->iface, &mark),
             TOFU_ERR_INVALID_PARAM);
    CHECK_EQ(tofu_iface_release_desc(ctx->iface,
                                     held[0].data - HEADROOM + 1),
             TOFU_ERR_INVALID_PARAM);
    while (num_held > 0) {
        char *desc = held[0].data - HEADROOM;
        release(ctx, 0);
        CHECK_EQ(tofu_iface_release_desc(ctx->iface, desc),
                 TOFU_ERR_INVALID_PARAM); /* twice */
    }
    CHECK_EQ(pool->free, pool->count);
    check_nothing_held(ctx);
    if (kill_it) {
        ctx->size = 0;
        for (i = 0; i < 2; ++i) {
            tofu_ep_destroy(ctx->ep[i]);
            ctx->ep[i] = NULL;
        }
    } else {
        core_barrier(ctx);
    }
    core_close(ctx);
}

static void given_back(struct ctx *ctx)
{
    orphans(ctx, 0);
}

static void killed(struct ctx *ctx)
{
    orphans(ctx, 1);
}

/* Offered only where the alignment that was asked for holds. */
static unsigned aligned_offers;
static size_t   align, align_offset;

static int8_t on_aligned(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)length;
    ++arrived;
    if (flags & TOFU_CB_DESC) {
        ++aligned_offers;
        CHECK_EQ(((uintptr_t)data + align_offset) % align, 0);
    }
    return TOFU_OK;
}

static void alignment(struct ctx *ctx)
{
    static const struct {
        size_t   align, offset, headroom;
        unsigned offers;
    } cases[] = {{16, 0, 0, 50},  {64, 48, 500, 50}, {64, 0, 100, 50},
                 {8, 3, 17, 0},  {1, 0, 4096, 50},  {256, 240, 8, 50},
                 {256, 8, 500, 50}, {256, 40, 0, 50}, {512, 8, 0, 0},  {4096, 3, 100, 0}};
    tofu_iface_config_t config;
    unsigned            c, i;

    for (c = 0; c < sizeof(cases) / sizeof(*cases); ++c) {
        tofu_iface_config_default(&config);
        align = config.am_alignment = cases[c].align;
        align_offset = config.am_align_offset = cases[c].offset;
        config.rx_headroom = cases[c].headroom;
        config.rx_desc     = &mark;
        arrived            = 0;
        aligned_offers     = 0;
        memset(ctx->ep, 0, sizeof(ctx->ep));
        core_open(ctx, &config, 0);
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_aligned, NULL));
        for (i = 0; i < 50; ++i) {
            CHECK_OK(RETRY(ctx, send_large(ctx, 0, i)));
        }
        wait_arrived(ctx, 50);
        CHECK_EQ(aligned_offers, cases[c].offers);
        core_close(ctx);
        ctx->iface = NULL;
    }
    tofu_iface_config_default(&config);
    CHECK_OK(tofu_md_open(core_backend(), NULL, &ctx->md));
    config.am_alignment = 24;
    CHECK_EQ(tofu_iface_open(ctx->md, &config, &ctx->iface),
             TOFU_ERR_INVALID_PARAM);
    config.am_alignment = 8;
    config.rx_headroom  = 4097;
    CHECK_EQ(tofu_iface_open(ctx->md, &config, &ctx->iface),
             TOFU_ERR_INVALID_PARAM);
    tofu_md_close(ctx->md);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"forever", 3, 60, forever, 0},
        {"keep_churn", 4, 90, churn, 0},
        {"quarter", 2, 60, quarter, 0},
        {"given_back", 2, 60, given_back, 0},
        {"keep_killed", 2, 60, killed, 2},
        {"alignment", 1, 60, alignment, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
