/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lending slots: schedules that the model in uct_tofu/model found, made certain here.
 * One case needs more senders than the request table has entries; the others run
 * two or three ifaces in one process, so that the test says whose turn it is.
 */
#include "core_test.h"

#include <tofu_internal.h>

static unsigned received[3];

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    uint64_t sender;

    (void)arg;
    (void)flags;
    CHECK(length >= sizeof(sender));
    memcpy(&sender, data, sizeof(sender));
    CHECK(sender < 3);
    ++received[sender];
    return TOFU_OK;
}

static void fewest_slots(tofu_iface_config_t *config)
{
    tofu_iface_config_default(config);
    config->rx_slots       = 2; /* one sender at a time */
    config->rx_short_slots = 2;
}

static tofu_ep_t *connect_to(tofu_iface_t *iface, tofu_iface_t *to)
{
    uint8_t   address[BLOB];
    tofu_ep_t *ep;

    tofu_iface_get_address(to, address);
    CHECK_OK(tofu_ep_create(iface, address, 0, &ep));
    return ep;
}

/* ------------------------------------------------------------- a full table */

/* 69 senders, slots for one: those that wait fill the request table, and who has
 * slots must be able to give them back all the same. */
static void table_full(struct ctx *ctx)
{
    const unsigned      messages = 5;
    tofu_iface_config_t config;
    tofu_iface_stats_t  stats;
    unsigned            sent = 0, i;

    fewest_slots(&config);
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    core_barrier(ctx);
    if (ctx->rank == 0) {
        while (received[0] < messages * (unsigned)(ctx->size - 1)) {
            tofu_iface_progress(ctx->iface);
        }
        tofu_iface_get_stats(ctx->iface, &stats);
        CHECK_EQ(stats.dropped, 0);
        atomic_store(&ctx->shared->word[0], 1);
    } else {
        while (!atomic_load(&ctx->shared->word[0])) {
            if ((sent < messages) &&
                (tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0) == TOFU_OK)) {
                ++sent;
            }
            for (i = 0; i < 64; ++i) {
                tofu_iface_progress(ctx->iface);
            }
            core_usleep(2000);
        }
        CHECK_EQ(sent, messages);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* ------------------------------------------------- an answer before its entry */

static __typeof__(((struct tofu_functions *)0)->put_piggyback) real_piggyback;
static tofu_iface_t *quick;

/* A sender that sees an answer, and asks for the next thing, before the receiver's
 * next instruction. */
static int piggyback_then_progress(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt_vcq,
                                   void *data, utofu_stadd_t where,
                                   size_t length, uint64_t edata,
                                   unsigned long int flags, void *cbdata)
{
    tofu_iface_t *iface = quick;
    int          code   = real_piggyback(vcq, rmt_vcq, data, where, length,
                                         edata, flags, cbdata);
    int          i;

    quick = NULL;
    for (i = 0; (iface != NULL) && (i < 5); ++i) {
        tofu_iface_progress(iface);
    }
    quick = iface;
    return code;
}

static void quick_sender(struct ctx *ctx)
{
    const unsigned      messages = 100;
    tofu_iface_config_t config;
    tofu_iface_t        *sender[2];
    tofu_ep_t           *ep[2];
    tofu_iface_stats_t  stats;
    unsigned            sent[2] = {0, 0}, i;

    fewest_slots(&config);
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    for (i = 0; i < 2; ++i) {
        CHECK_OK(tofu_iface_open(ctx->md, NULL, &sender[i]));
        ep[i] = connect_to(sender[i], ctx->iface);
    }
    real_piggyback             = ctx->iface->fn.put_piggyback;
    ctx->iface->fn.put_piggyback = piggyback_then_progress;
    quick                      = sender[0];
    while (received[0] + received[1] < 2 * messages) {
        for (i = 0; i < 2; ++i) {
            if ((sent[i] < messages) &&
                (tofu_ep_am_short(ep[i], 1, i, NULL, 0) == TOFU_OK)) {
                ++sent[i];
            }
            tofu_iface_progress(sender[i]);
        }
        tofu_iface_progress(ctx->iface);
    }
    tofu_iface_get_stats(ctx->iface, &stats);
    CHECK_EQ(stats.dropped, 0);
    CHECK_EQ(received[0], messages);
    CHECK_EQ(received[1], messages);
    quick = NULL;
    for (i = 0; i < 2; ++i) {
        tofu_ep_destroy(ep[i]);
        tofu_iface_close(sender[i]);
    }
    core_close(ctx);
}

/* -------------------------------------------------------- two eps, one channel */

struct waiting {
    tofu_pending_req_t req;
    tofu_ep_t          *ep;
    unsigned           messages;
};

static int8_t run_waiting(tofu_pending_req_t *req)
{
    struct waiting *w = (struct waiting *)req;

    while (w->messages > 0) {
        if (tofu_ep_am_short(w->ep, 1, 0, NULL, 0) != TOFU_OK) {
            return TOFU_ERR_NO_RESOURCE;
        }
        --w->messages;
    }
    return TOFU_OK;
}

/* Credit comes, the first ep uses all of it, then the slots are asked back: the
 * second ep still waits, and nothing but its own turn can say so. */
static void second_waiter(struct ctx *ctx)
{
    tofu_iface_config_t config;
    tofu_iface_t        *sender[2];
    tofu_ep_t           *ep[3]; /* two of sender 0, one of sender 1 */
    struct waiting      waiting[2];
    tofu_iface_stats_t  stats;
    double              end;
    unsigned            i;
    int                 asked = 0;

    fewest_slots(&config);
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    CHECK_OK(tofu_iface_open(ctx->md, NULL, &sender[0]));
    CHECK_OK(tofu_iface_open(ctx->md, NULL, &sender[1]));
    for (i = 0; i < 3; ++i) {
        ep[i] = connect_to(sender[i / 2], ctx->iface);
    }
    /* one before there is any credit, which takes a large slot, and all small ones */
    for (i = 0; i < 3;) {
        i += tofu_ep_am_short(ep[0], 1, 0, NULL, 0) == TOFU_OK;
        tofu_iface_progress(sender[0]);
        tofu_iface_get_stats(sender[0], &stats);
        if (stats.am_tx == 0) { /* the grant, but no message is received */
            tofu_iface_progress(ctx->iface);
        }
    }
    for (i = 0; i < 2; ++i) {
        waiting[i].req.func = run_waiting;
        waiting[i].ep       = ep[i];
        waiting[i].messages = 2 - i;
        CHECK_EQ(tofu_ep_am_short(ep[i], 1, 0, NULL, 0), TOFU_ERR_NO_RESOURCE);
        CHECK_OK(tofu_ep_pending_add(ep[i], &waiting[i].req));
    }
    /* what is queued was sent before this, too */
    CHECK_EQ(tofu_iface_flush(sender[0], 0, NULL), TOFU_ERR_NO_RESOURCE);
    while (received[0] < 3) {
        tofu_iface_progress(ctx->iface);
    }
    tofu_iface_progress(sender[0]);
    CHECK_EQ(waiting[0].messages, 0);
    CHECK_EQ(waiting[1].messages, 1);
    /* another sender asks; time for the receiver to ask sender 0 back */
    for (end = core_now() + 0.3; core_now() < end;) {
        asked = asked || (tofu_ep_am_short(ep[2], 1, 1, NULL, 0) == TOFU_OK);
        CHECK_EQ(received[1], 0);
        tofu_iface_progress(sender[1]);
        tofu_iface_progress(ctx->iface);
    }
    while ((received[0] < 6) || (received[1] < 1)) {
        asked = asked || (tofu_ep_am_short(ep[2], 1, 1, NULL, 0) == TOFU_OK);
        tofu_iface_progress(sender[0]);
        tofu_iface_progress(sender[1]);
        tofu_iface_progress(ctx->iface);
    }
    for (i = 0; i < 3; ++i) {
        tofu_ep_destroy(ep[i]);
    }
    tofu_iface_close(sender[0]);
    tofu_iface_close(sender[1]);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"table_full", 70, 90, table_full, 0},
        {"quick_sender", 1, 20, quick_sender, 0},
        {"second_waiter", 1, 20, second_waiter, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
