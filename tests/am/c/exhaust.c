/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exhaust.c - requests and replies when credit is out: every handler of a request
 * replies, by a pending request when there is no credit, and all have the fewest
 * slots there can be.  AM_RUNS runs, each with ifaces that hold nothing yet.
 */
#include "am_test.h"

#define REQUEST 1
#define REPLY   2

struct reply { /* that waits for credit */
    tofu_pending_req_t req;
    tofu_ep_t          *ep;
    uint64_t           word;
    uint8_t            id;
    unsigned           length;
};

static unsigned replies_seen, requests_seen, replies_sent, waited;
static uint64_t next_request[MAX_RANKS], next_reply[MAX_RANKS];

static tofu_status_t send(tofu_ep_t *ep, uint8_t id, uint64_t word,
                          unsigned length)
{
    char            buffer[256];
    struct am_bytes bytes = {buffer, length};
    intptr_t        ret;

    am_make(buffer, length, word);
    if (length <= 32) {
        return tofu_ep_am_short(ep, id, word, buffer + 8, length - 8);
    }
    ret = tofu_ep_am_bcopy(ep, id, am_pack, &bytes);
    return (ret >= 0) ? TOFU_OK : (tofu_status_t)ret;
}

static int8_t on_turn(tofu_pending_req_t *req)
{
    struct reply  *reply = (struct reply *)req;
    tofu_status_t status = send(reply->ep, reply->id, reply->word,
                                reply->length);

    if (status == TOFU_ERR_NO_RESOURCE) {
        return TOFU_ERR_NO_RESOURCE;
    }
    CHECK_OK(status);
    ++replies_sent;
    free(reply);
    return TOFU_OK;
}

/* Send now, or queue; counts in replies_sent when it left. */
static void submit(tofu_ep_t *ep, uint8_t id, uint64_t word, unsigned length)
{
    tofu_status_t status;
    struct reply  *reply = NULL;

    for (;;) {
        status = send(ep, id, word, length);
        if (status == TOFU_OK) {
            ++replies_sent;
            free(reply);
            return;
        }
        CHECK_EQ(status, TOFU_ERR_NO_RESOURCE);
        if (reply == NULL) {
            reply = calloc(1, sizeof(*reply));
            CHECK(reply != NULL);
            reply->req.func = on_turn;
            reply->ep       = ep;
            reply->word     = word;
            reply->id       = id;
            reply->length   = length;
        }
        status = tofu_ep_pending_add(ep, &reply->req);
        if (status == TOFU_OK) {
            ++waited;
            return;
        }
        CHECK_EQ(status, TOFU_ERR_BUSY);
    }
}

static int8_t on_request(void *arg, void *data, size_t length, unsigned flags)
{
    struct ctx     *ctx = arg;
    struct am_head head = am_check(data, length);

    (void)flags;
    CHECK(head.from < (unsigned)ctx->size);
    CHECK_EQ(head.number, next_request[head.from]);
    ++next_request[head.from];
    ++requests_seen;
    submit(ctx->ep[head.from], REPLY, am_head((unsigned)ctx->rank, head.number),
           (unsigned)length);
    return TOFU_OK;
}

static int8_t on_reply(void *arg, void *data, size_t length, unsigned flags)
{
    struct am_head head = am_check(data, length);

    (void)arg;
    (void)flags;
    CHECK_EQ(head.number, next_reply[head.from]);
    ++next_reply[head.from];
    ++replies_seen;
    return TOFU_OK;
}

/* Every rank asks every other `n` times, without waiting for replies. */
static void one_run(struct ctx *ctx, unsigned n)
{
    tofu_iface_config_t config;
    tofu_iface_stats_t  stats;
    unsigned            others = (unsigned)ctx->size - 1, i;
    double              end;
    int                 r;

    memset(next_request, 0, sizeof(next_request));
    memset(next_reply, 0, sizeof(next_reply));
    replies_seen = requests_seen = replies_sent = 0;
    tofu_iface_config_default(&config);
    config.rx_slots       = 2;
    config.rx_short_slots = 2;
    config.am_seg_size    = 256;
    config.tx_bounce      = 1;
    CHECK_OK(tofu_iface_open(ctx->md, &config, &ctx->iface));
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, REQUEST, on_request, ctx));
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, REPLY, on_reply, ctx));
    tofu_iface_get_address(ctx->iface, ctx->shared->rank[ctx->rank].address);
    core_barrier(ctx);
    for (r = 0; r < ctx->size; ++r) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[r].address, 0,
                                &ctx->ep[r]));
    }
    core_barrier(ctx);
    for (i = 0; i < n; ++i) {
        for (r = 0; r < ctx->size; ++r) {
            if (r != ctx->rank) {
                submit(ctx->ep[r], REQUEST, am_head((unsigned)ctx->rank, i),
                       (i % 4 == 3) ? 200 : 8 + i % 24);
            }
        }
    }
    end = core_now() + 60;
    while ((replies_seen < n * others) || (requests_seen < n * others) ||
           (replies_sent < 2 * n * others)) {
        core_idle(ctx->iface);
        if (core_now() > end) {
            FAIL("stuck: %u of %u requests, %u replies came; %u of %u left",
                 requests_seen, n * others, replies_seen, replies_sent,
                 2 * n * others);
        }
    }
    core_barrier(ctx);
    tofu_iface_get_stats(ctx->iface, &stats);
    CHECK_EQ(stats.dropped, 0);
    CHECK_EQ(stats.am_rx, 2 * n * others);
    for (r = 0; r < ctx->size; ++r) {
        tofu_ep_destroy(ctx->ep[r]);
        ctx->ep[r] = NULL;
    }
    core_barrier(ctx);
    tofu_iface_close(ctx->iface);
    ctx->iface = NULL;
    core_barrier(ctx);
}

static void exhaust(struct ctx *ctx)
{
    unsigned runs = am_setting("AM_RUNS", 1000), i;

    CHECK_OK(tofu_md_open(core_backend(), NULL, &ctx->md));
    for (i = 0; i < runs; ++i) {
        ctx->barriers = 0;
        if (i % 2) { /* the counters of a run are zeroed in the one after it */
            ctx->barriers = 8;
        }
        core_barrier(ctx);
        if (ctx->rank == 0) {
            unsigned k, from = (i % 2) ? 0 : 8;
            for (k = from; k < from + 8; ++k) {
                atomic_store(&ctx->shared->arrived[k], 0);
            }
        }
        one_run(ctx, 2 + i % 7);
    }
    if (ctx->rank == 0) {
        printf("%u runs of %d ranks, %u sends waited for credit\n", runs,
               ctx->size, waited);
    }
    CHECK(waited > runs); /* or it was not about exhaustion */
    tofu_md_close(ctx->md);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"exhaust2", 2, 300, exhaust, 0},
        {"exhaust4", 4, 300, exhaust, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
