/* SPDX-License-Identifier: BSD-3-Clause */
/* Active messages: queued requests, replies, nesting, endpoints that come and go. */
#include "core_test.h"

#include <sched.h>

static uint64_t total_received;

struct outgoing {
    char   *bytes;
    size_t length;
};

static size_t pack_message(void *dest, void *arg)
{
    struct outgoing *out = arg;

    memcpy(dest, out->bytes, out->length);
    return out->length;
}

/* --------------------------------------------------------- order, fairness */

static unsigned order_log[4000], order_count;

struct ordered {
    tofu_pending_req_t req;
    struct ctx         *ctx;
    unsigned           ep, number;
    int                tries; /* says NO_RESOURCE so often first */
};

static unsigned ordered_next[8];

static int8_t run_ordered(tofu_pending_req_t *req)
{
    struct ordered *o = (struct ordered *)req;
    tofu_status_t  status;

    CHECK_EQ(o->number, ordered_next[o->ep]);
    if (o->tries-- > 0) {
        return TOFU_ERR_NO_RESOURCE;
    }
    /* from inside a queued request the queue is no obstacle */
    status = (tofu_status_t)tofu_ep_am_short(o->ctx->ep[0], 2, 0, NULL, 0);
    CHECK((status == TOFU_OK) || (status == TOFU_ERR_NO_RESOURCE));
    ++ordered_next[o->ep];
    order_log[order_count++] = o->ep;
    return TOFU_OK;
}

static void count_purged(tofu_pending_req_t *req, void *arg)
{
    CHECK_EQ(((struct ordered *)req)->number, *(unsigned *)arg);
    ++*(unsigned *)arg;
}

static int8_t on_nothing(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)data;
    (void)length;
    (void)flags;
    ++total_received;
    return TOFU_OK;
}

/* Requests of four eps run in turn, those of one in order; BUSY, NO_RESOURCE and
 * purge as UCT has them. */
static void pending(struct ctx *ctx)
{
    static struct ordered req[4][50];
    tofu_ep_t             *ep[4];
    unsigned              i, k, purged = 0;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_nothing, NULL));
    for (k = 0; k < 4; ++k) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0,
                                &ep[k]));
        /* nothing stands in the way: just send */
        CHECK_EQ(tofu_ep_pending_add(ep[k], &req[k][0].req), TOFU_ERR_BUSY);
        /* the first send asks for credit, and is taken; one is enough */
        CHECK_OK(tofu_ep_am_short(ep[k], 2, 0, NULL, 0));
        CHECK_EQ(tofu_ep_am_short(ep[k], 2, 0, NULL, 0), TOFU_ERR_NO_RESOURCE);
        for (i = 0; i < 50; ++i) {
            req[k][i] = (struct ordered){.req.func = run_ordered, .ctx = ctx,
                                         .ep = k, .number = i,
                                         .tries = (i % 7 == 0) ? 2 : 0};
            CHECK_OK(tofu_ep_pending_add(ep[k], &req[k][i].req));
        }
        CHECK_EQ(tofu_ep_am_short(ep[k], 2, 0, NULL, 0), TOFU_ERR_NO_RESOURCE);
        CHECK_EQ(tofu_ep_flush(ep[k], 0, NULL), TOFU_ERR_NO_RESOURCE);
    }
    CHECK_EQ(order_count, 0);
    while (order_count < 200) {
        tofu_iface_progress(ctx->iface);
    }
    for (i = 0; i < 180; i += 4) { /* nobody is ahead by more than a few */
        unsigned seen[4] = {0};
        unsigned j, max = 0, min = 200;
        for (j = 0; j < i; ++j) {
            ++seen[order_log[j]];
        }
        for (k = 0; k < 4; ++k) {
            max = seen[k] > max ? seen[k] : max;
            min = seen[k] < min ? seen[k] : min;
        }
        CHECK(max - min <= 4);
    }
    for (k = 0; k < 4; ++k) {
        CHECK_EQ(ordered_next[k], 50);
        tofu_status_t status = tofu_ep_am_short(ep[k], 2, 0, NULL, 0);
        CHECK((status == TOFU_OK) || (status == TOFU_ERR_NO_RESOURCE));
    }

    /* exhaust the credit, queue, purge */
    while (tofu_ep_am_short(ep[0], 2, 0, NULL, 0) == TOFU_OK) {
    }
    for (i = 0; i < 10; ++i) {
        req[0][i] = (struct ordered){.req.func = run_ordered, .ctx = ctx,
                                     .ep = 0, .number = i};
        CHECK_OK(tofu_ep_pending_add(ep[0], &req[0][i].req));
    }
    tofu_ep_pending_purge(ep[0], count_purged, &purged);
    CHECK_EQ(purged, 10);
    for (i = 0; i < 100; ++i) {
        tofu_iface_progress(ctx->iface); /* would run them, were they there */
    }
    CHECK_EQ(order_count, 200);
    CHECK_OK(RETRY(ctx, tofu_ep_am_short(ep[0], 2, 0, NULL, 0)));
    for (k = 0; k < 4; ++k) {
        tofu_ep_destroy(ep[k]);
    }
    core_close(ctx);
}

/* ------------------------------------------------------- the first message */

#define FIRST_BYTES 3000

static int8_t on_first(void *arg, void *data, size_t length, unsigned flags)
{
    const unsigned char *bytes = data;
    size_t              i;

    (void)flags;
    CHECK_EQ(length, *(size_t *)arg);
    for (i = 0; i < length; ++i) {
        CHECK_EQ(bytes[i], (i * 7 + 1) & 0xff);
    }
    ++total_received;
    return TOFU_OK;
}

/* The first message to a peer is taken before any slot is granted, by each of the
 * calls, and comes once; with the room for a second one it is as always. */
static void first(struct ctx *ctx)
{
    static const size_t sizes[] = {0, 16, FIRST_BYTES, 300, 2000, 0};
    tofu_iface_config_t config;
    size_t              length = sizes[ctx->rank], area = FIRST_BYTES, i;
    struct outgoing     out;
    tofu_mem_t          *memh;
    unsigned char       *bytes;
    void                *address;
    uint64_t            header;
    tofu_iov_t          iov;
    struct done         done;
    int                 rank;

    tofu_iface_config_default(&config);
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_first, &length));
    core_barrier(ctx);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_mem_alloc(ctx->md, &area, 0, &address, &memh));
        bytes = address;
        for (i = 0; i < FIRST_BYTES; ++i) {
            bytes[i] = (unsigned char)(i * 7 + 1);
        }
        memcpy(&header, bytes, sizeof(header));
        out = (struct outgoing){(char *)bytes, sizes[2]};
        iov = (tofu_iov_t){bytes + 4, sizes[4] - 4, memh, 0, 1};
        CHECK_OK(tofu_ep_am_short(ctx->ep[1], 2, header, bytes + 8, 8));
        CHECK_EQ(tofu_ep_am_bcopy(ctx->ep[2], 2, pack_message, &out), sizes[2]);
        out.length = sizes[3];
        CHECK_EQ(tofu_ep_am_bcopy(ctx->ep[3], 2, pack_message, &out), sizes[3]);
        done_init(&done);
        CHECK_EQ(tofu_ep_am_zcopy(ctx->ep[4], 2, bytes, 4, &iov, 1,
                                  &done.comp), TOFU_INPROGRESS);
        memset(bytes, 0xee, FIRST_BYTES); /* they have been copied */
        CHECK_OK(tofu_ep_am_short_iov(ctx->ep[5], 2, NULL, 0));
        for (rank = 1; rank < ctx->size; ++rank) {
            tofu_ep_t *ep = ctx->ep[rank];
            CHECK_EQ(tofu_ep_am_short(ep, 2, 0, NULL, 0),
                     TOFU_ERR_NO_RESOURCE);
            CHECK_EQ(tofu_ep_flush(ep, 0, NULL), TOFU_ERR_NO_RESOURCE);
        }
        /* an ep that is destroyed has sent it all the same */
        tofu_ep_destroy(ctx->ep[1]);
        ctx->ep[1] = NULL;
        for (rank = 2; rank < ctx->size; ++rank) {
            core_flush(ctx, ctx->ep[rank]);
        }
        CHECK_EQ(done.called, 1);
        CHECK_OK(tofu_mem_free(memh));
    } else {
        while (total_received == 0) {
            tofu_iface_progress(ctx->iface);
        }
    }
    core_barrier(ctx);
    CHECK_EQ(total_received, ctx->rank != 0);
    core_close(ctx);
}

/* Few buffers: not all of them may wait for peers that have not answered. */
static void first_few(struct ctx *ctx)
{
    tofu_iface_config_t config;
    int                 rank, taken = 0;

    tofu_iface_config_default(&config);
    config.tx_bounce = 8;
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_nothing, NULL));
    core_barrier(ctx);
    if (ctx->rank == 0) {
        for (rank = 1; rank < ctx->size; ++rank) {
            tofu_status_t status = tofu_ep_am_short(ctx->ep[rank], 2, 0, NULL,
                                                    0);
            taken += status == TOFU_OK;
            CHECK((status == TOFU_OK) || (status == TOFU_ERR_NO_RESOURCE));
        }
        CHECK_EQ(taken, 2);
        for (rank = 1; rank < ctx->size; ++rank) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[rank], 2, 0, NULL,
                                                 0)));
            core_flush(ctx, ctx->ep[rank]);
        }
    } else {
        while (total_received == 0) {
            tofu_iface_progress(ctx->iface);
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* ------------------------------------------------ many eps share few slots */

#define FAIR_EPS 128

struct sender {
    tofu_pending_req_t req;
    tofu_ep_t          *ep;
    unsigned           sent;
    int                queued;
};

static unsigned fair_queued;

static int8_t run_sender(tofu_pending_req_t *req)
{
    struct sender *sender = (struct sender *)req;
    tofu_status_t status;

    status = tofu_ep_am_short(sender->ep, 2, 0, NULL, 0);
    if (status == TOFU_OK) {
        sender->queued = 0;
        ++sender->sent;
        --fair_queued;
    }
    return (int8_t)status;
}

/* More eps to one peer than it has slots for this sender, each with a message to
 * send whenever it may: none is forgotten. */
static void fair(struct ctx *ctx)
{
    static struct sender sender[FAIR_EPS];
    unsigned             round, k, min = ~0u, max = 0;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_nothing, NULL));
    core_barrier(ctx);
    for (k = 0; (ctx->rank == 0) && (k < FAIR_EPS); ++k) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                                &sender[k].ep));
        sender[k].req.func = run_sender;
    }
    for (round = 0; (ctx->rank == 0) && (round < 2000); ++round) {
        while (fair_queued < FAIR_EPS) {
            for (k = 0; k < FAIR_EPS; ++k) {
                struct sender *s = &sender[k];
                if (s->queued) {
                    continue;
                }
                if (tofu_ep_am_short(s->ep, 2, 0, NULL, 0) == TOFU_OK) {
                    ++s->sent;
                } else if (tofu_ep_pending_add(s->ep, &s->req) == TOFU_OK) {
                    s->queued = 1;
                    ++fair_queued;
                }
            }
        }
        while (fair_queued == FAIR_EPS) {
            tofu_iface_progress(ctx->iface); /* in step with the answers */
            atomic_store(&ctx->shared->word[0], round * 2 + 1);
            while (atomic_load(&ctx->shared->word[0]) & 1) {
                sched_yield();
            }
        }
    }
    if (ctx->rank == 0) {
        atomic_store(&ctx->shared->word[1], 1);
        while (fair_queued > 0) {
            tofu_iface_progress(ctx->iface);
        }
        for (k = 0; k < FAIR_EPS; ++k) {
            min = sender[k].sent < min ? sender[k].sent : min;
            max = sender[k].sent > max ? sender[k].sent : max;
            core_flush(ctx, sender[k].ep);
            tofu_ep_destroy(sender[k].ep);
        }
        printf("each ep sent %u to %u messages\n", min, max);
        CHECK(min * 4 >= max);
    }
    while ((ctx->rank == 1) && !atomic_load(&ctx->shared->word[1])) {
        if (atomic_load(&ctx->shared->word[0]) & 1) { /* all that has come */
            while (tofu_iface_progress(ctx->iface) > 0) {
            }
            atomic_fetch_add(&ctx->shared->word[0], 1);
        } else {
            sched_yield();
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* --------------------------------------------------------- replies, nesting */

struct reply {
    tofu_pending_req_t req;
    struct ctx         *ctx;
    uint64_t           number;
};

static uint64_t replies_seen, requests_seen;

static int8_t send_reply(tofu_pending_req_t *req)
{
    struct reply  *reply = (struct reply *)req;
    int           peer   = 1 - reply->ctx->rank;
    tofu_status_t status;

    status = tofu_ep_am_short(reply->ctx->ep[peer], 4, reply->number, NULL, 0);
    if (status == TOFU_ERR_NO_RESOURCE) {
        return TOFU_ERR_NO_RESOURCE;
    }
    CHECK_OK(status);
    free(reply);
    return TOFU_OK;
}

static int8_t on_request(void *arg, void *data, size_t length, unsigned flags)
{
    struct reply  *reply = calloc(1, sizeof(*reply));
    tofu_status_t status;

    (void)flags;
    CHECK_EQ(length, 8);
    reply->req.func = send_reply;
    reply->ctx      = arg;
    memcpy(&reply->number, data, 8);
    CHECK_EQ(reply->number, requests_seen);
    ++requests_seen;
    do {
        status = (tofu_status_t)send_reply(&reply->req);
        if (status == TOFU_OK) {
            return TOFU_OK;
        }
        status = tofu_ep_pending_add(
                ((struct ctx *)arg)->ep[1 - ((struct ctx *)arg)->rank],
                &reply->req);
    } while (status == TOFU_ERR_BUSY);
    CHECK_OK(status);
    return TOFU_OK;
}

static int8_t on_reply(void *arg, void *data, size_t length, unsigned flags)
{
    uint64_t number;

    (void)arg;
    (void)flags;
    CHECK_EQ(length, 8);
    memcpy(&number, data, 8);
    CHECK_EQ(number, replies_seen);
    ++replies_seen;
    return TOFU_OK;
}

/* Both sides flood each other with requests whose handlers reply. */
static void replies(struct ctx *ctx)
{
    const uint64_t messages = 20000;
    uint64_t       i;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 3, on_request, ctx));
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 4, on_reply, ctx));
    core_barrier(ctx);
    for (i = 0; i < messages; ++i) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1 - ctx->rank], 3, i, NULL,
                                             0)));
    }
    while ((replies_seen < messages) || (requests_seen < messages)) {
        tofu_iface_progress(ctx->iface);
    }
    core_barrier(ctx);
    core_close(ctx);
}

static int      depth, max_depth;
static uint64_t nested_seen;

/* A handler that calls progress keeps its own bytes. */
static int8_t on_nested(void *arg, void *data, size_t length, unsigned flags)
{
    struct ctx *ctx = arg;
    uint64_t   header, after;
    int        i;

    (void)flags;
    memcpy(&header, data, 8);
    CHECK(matches((char *)data + 8, length - 8, header));
    ++nested_seen;
    if (depth < 5) {
        ++depth;
        max_depth = depth > max_depth ? depth : max_depth;
        for (i = 0; i < 20; ++i) {
            tofu_iface_progress(ctx->iface);
        }
        --depth;
    }
    memcpy(&after, data, 8);
    CHECK_EQ(header, after);
    CHECK(matches((char *)data + 8, length - 8, header));
    return TOFU_OK;
}

static void nested(struct ctx *ctx)
{
    const uint64_t  messages = 5000;
    char            buffer[4096];
    struct outgoing out = {buffer, 0};
    uint64_t        i;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 6, on_nested, ctx));
    core_barrier(ctx);
    if (ctx->rank == 0) {
        for (i = 0; i < messages; ++i) {
            out.length = (i % 3) ? 8 + i % 25 : 8 + i % 4000;
            memcpy(buffer, &i, 8);
            fill(buffer + 8, out.length - 8, i);
            CHECK_EQ(RETRY(ctx, tofu_ep_am_bcopy(ctx->ep[1], 6, pack_message,
                                                 &out)),
                     out.length);
        }
    } else {
        while (nested_seen < messages) {
            tofu_iface_progress(ctx->iface);
            if (nested_seen % 64 == 0) {
                core_usleep(50); /* let some pile up */
            }
        }
        CHECK(max_depth > 1);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* ----------------------------------------------------- no handler, lifetimes */

static void no_handler(struct ctx *ctx)
{
    tofu_iface_stats_t stats;
    int                i;

    core_open(ctx, NULL, 0);
    if (ctx->rank == 1) {
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 9, on_nothing, NULL));
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 10, on_nothing, NULL));
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 10, NULL, NULL));
    }
    core_barrier(ctx);
    if (ctx->rank == 0) {
        for (i = 0; i < 500; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 8 + i % 3, 0, NULL,
                                                 0)));
        }
        /* all slots came back */
        for (i = 0; i < 500; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 9, 0, NULL, 0)));
        }
    } else {
        while (total_received < 167 + 500) {
            tofu_iface_progress(ctx->iface);
        }
        tofu_iface_get_stats(ctx->iface, &stats);
        CHECK_EQ(stats.dropped, 333);
        CHECK_EQ(stats.am_rx, 167 + 500);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Eps come and go; what they held goes back, and messages in flight arrive. */
static void churn(struct ctx *ctx)
{
    const unsigned      rounds = 400;
    tofu_iface_config_t config;
    tofu_iface_stats_t  stats;
    tofu_ep_t           *ep;
    unsigned            i, k;

    tofu_iface_config_default(&config);
    config.rx_slots       = 16;
    config.rx_short_slots = 64;
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_nothing, NULL));
    for (i = 0; i < (unsigned)ctx->size; ++i) {
        tofu_ep_destroy(ctx->ep[i]);
        ctx->ep[i] = NULL;
    }
    core_barrier(ctx);
    for (i = 0; i < rounds; ++i) {
        int peer = (ctx->rank + 1 + (int)(i % (unsigned)(ctx->size - 1))) %
                   ctx->size;
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[peer].address, 0,
                                &ep));
        for (k = 0; k < 10; ++k) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ep, 2, k, NULL, 0)));
        }
        tofu_ep_destroy(ep);
    }
    while (total_received < rounds * 10) {
        tofu_iface_progress(ctx->iface);
    }
    core_barrier(ctx);
    tofu_iface_get_stats(ctx->iface, &stats);
    CHECK_EQ(stats.dropped, 0);
    CHECK_EQ(total_received, rounds * 10);
    core_close(ctx);
}

/* Two ifaces and a second md in one process reach each other, by RMA and AM. */
static void two_ifaces(struct ctx *ctx)
{
    tofu_iface_t *second;
    tofu_md_t    *md;
    tofu_ep_t    *to_second, *to_first;
    char         address[BLOB];
    uint64_t     value = 0x1122334455667788ull;
    int          i;

    core_open(ctx, NULL, 4096);
    CHECK_OK(tofu_md_open(core_backend(), NULL, &md));
    CHECK_OK(tofu_iface_open(md, NULL, &second));
    tofu_iface_get_address(second, address);
    CHECK_OK(tofu_ep_create(ctx->iface, address, 0, &to_second));
    CHECK_OK(tofu_ep_create(second, ctx->shared->rank[0].address, 0, &to_first));
    CHECK(tofu_ep_is_connected(to_second, address, 0));
    CHECK(!tofu_ep_is_connected(to_first, address, 0));
    CHECK(tofu_ep_iface(to_first) == second);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_nothing, NULL));
    CHECK_OK(tofu_iface_set_am_handler(second, 2, on_nothing, NULL));
    for (i = 0; i < 300; ++i) {
        while (tofu_ep_am_short(to_second, 2, 0, NULL, 0) ==
               TOFU_ERR_NO_RESOURCE) {
            tofu_iface_progress(second);
            tofu_iface_progress(ctx->iface);
        }
        while (tofu_ep_am_short(to_first, 2, 0, NULL, 0) ==
               TOFU_ERR_NO_RESOURCE) {
            tofu_iface_progress(second);
            tofu_iface_progress(ctx->iface);
        }
    }
    while (total_received < 600) {
        tofu_iface_progress(second);
        tofu_iface_progress(ctx->iface);
    }
    CHECK_OK(tofu_ep_put_short(to_first, &value, 8, ctx->shared->rank[0].base,
                               ctx->rkey[0]));
    while (tofu_ep_flush(to_first, 0, NULL) == TOFU_INPROGRESS) {
        tofu_iface_progress(second);
    }
    CHECK(!memcmp(ctx->window, &value, 8));
    tofu_ep_destroy(to_second);
    tofu_ep_destroy(to_first);
    tofu_iface_close(second);
    tofu_md_close(md);
    core_close(ctx);
}

/* After NO_RESOURCE for lack of room in the TOQ (four entries here) progress counts
 * something before long, as there are users that wait for that before they try again. */
static void refused(struct ctx *ctx)
{
    unsigned char data[32];
    unsigned      refusals = 0, calls, i;
    tofu_status_t status;

    core_open(ctx, NULL, 4096);
    for (i = 0; i < 5000; ++i) {
        unsigned length = (i % 3 == 0) ? 24 : 8;

        memset(data, (int)i, sizeof(data));
        while ((status = tofu_ep_put_short(ctx->ep[0], data, length,
                                           ctx->shared->rank[0].base, ctx->rkey[0])) ==
               TOFU_ERR_NO_RESOURCE) {
            ++refusals;
            for (calls = 0; tofu_iface_progress(ctx->iface) == 0; ++calls) {
                CHECK(calls < 100000);
            }
        }
        CHECK_OK(status);
    }
    CHECK(refusals > 0);
    while (tofu_iface_progress(ctx->iface) > 0) { /* it ends */
    }
    core_flush(ctx, ctx->ep[0]);
    CHECK(!memcmp(ctx->window, data, (4999 % 3 == 0) ? 24 : 8));
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"pending", 1, 30, pending, 0},
        {"first", 6, 60, first, 0},
        {"first_few", 6, 60, first_few, 0},
        {"fair", 2, 60, fair, 0},
        {"replies", 2, 60, replies, 0},
        {"nested", 2, 60, nested, 0},
        {"no_handler", 2, 30, no_handler, 0},
        {"churn", 3, 60, churn, 0},
        {"two_ifaces", 1, 30, two_ifaces, 0},
        {"refused", 1, 30, refused, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
