/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An iface is gone, and another has its VCQ ID, before a sender to the old one has noticed.  What it
 * sends does not hurt what others send to the new one, and what it hears of the old one
 * does not hurt its own ep to the new one.
 */
#include "core_test.h"

#include <tofu_internal.h>
#include <tofu_am.h> /* what is lent to whom */

#define SENT      40u /* messages while all is well */
#define OF_STALE  0x5555u
#define OF_OTHERS 0x3333u
#define OTHERS    6u

enum { WORD_SEEN, WORD_ASKS, WORD_LENT, WORD_THERE, WORD_STALE, WORD_ENDS };

static uint64_t seen[256];
static unsigned am_seen;

static int8_t on_am(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg, (void)flags;
    CHECK(length == 8);
    memcpy(&seen[am_seen++ % 256], data, 8);
    return TOFU_OK;
}

static uint64_t get(struct ctx *ctx, unsigned word)
{
    return atomic_load(&ctx->shared->word[word]);
}

static void set(struct ctx *ctx, unsigned word, uint64_t value)
{
    atomic_store(&ctx->shared->word[word], value);
}

/* Without progress: nothing is noticed meanwhile. */
static void await(struct ctx *ctx, unsigned word, uint64_t value)
{
    double end = core_now() + 20;

    while (get(ctx, word) != value) {
        core_usleep(100);
        CHECK(core_now() < end);
    }
}

/* All messages have notices, and are at one place of their slots. */
static tofu_iface_config_t config_of_all(void)
{
    tofu_iface_config_t config;

    tofu_iface_config_default(&config);
    config.am_polled = 0;
    return config;
}

/* Rank 0: no iface */
static void close_first(struct ctx *ctx)
{
    int i;

    for (i = 0; i < ctx->size; ++i) {
        tofu_ep_destroy(ctx->ep[i]);
        ctx->ep[i] = NULL;
    }
    tofu_iface_close(ctx->iface);
}

/* Rank 0: an iface on the VCQ that the one before it had, and the address that is to be known from now on */
static void open_second(struct ctx *ctx)
{
    const tofu_iface_config_t config = config_of_all();
    tofu_iface_t              *others[64];
    utofu_vcq_id_t            before;
    unsigned                  n = 0;

    memcpy(&before, ctx->shared->rank[0].address + 8, 8);
    for (;;) {
        CHECK_OK(tofu_iface_open(ctx->md, &config, &ctx->iface));
        if (ctx->iface->vcq_id == before) {
            break;
        }
        CHECK(n < 64);
        others[n++] = ctx->iface;
    }
    while (n > 0) {
        tofu_iface_close(others[--n]);
    }
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    tofu_iface_get_address(ctx->iface, ctx->shared->rank[0].address);
    am_seen = 0;
}

static void leave(struct ctx *ctx)
{
    int i;

    core_barrier_asleep(ctx);
    for (i = 0; i < ctx->size; ++i) {
        if (ctx->ep[i] != NULL) {
            tofu_ep_destroy(ctx->ep[i]);
        }
    }
    tofu_iface_close(ctx->iface);
    core_barrier_asleep(ctx);
    tofu_md_close(ctx->md);
}

static void well(struct ctx *ctx)
{
    const tofu_iface_config_t config = config_of_all();
    unsigned                  i;

    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    core_barrier(ctx);
    if (ctx->rank == 1) {
        for (i = 0; i < SENT; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, OF_STALE, NULL, 0)));
        }
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_SEEN) == 1);
        core_flush(ctx, ctx->ep[0]);
    } else if (ctx->rank == 0) {
        PROGRESS_UNTIL(ctx, 20, am_seen == SENT);
        set(ctx, WORD_SEEN, 1);
    }
    core_barrier(ctx);
    core_barrier_asleep(ctx);
}

/* Rank 1 is the one that has not noticed, rank 2 the other.  Both have slots 0, 1, ... */
static void stale(struct ctx *ctx, unsigned pause_us)
{
    unsigned i;

    well(ctx);
    if (ctx->rank == 0) {
        close_first(ctx);
        core_usleep(pause_us);
        open_second(ctx);
        set(ctx, WORD_THERE, 1);
        PROGRESS_UNTIL(ctx, 20, !tofu_list_empty(&ctx->iface->am->lenders) &&
                                        tofu_list_empty(&ctx->iface->am->jobs));
        PROGRESS_UNTIL(ctx, 20, (get(ctx, WORD_LENT) == 1));
        await(ctx, WORD_ASKS, OTHERS);
        await(ctx, WORD_STALE, 1);
        PROGRESS_UNTIL(ctx, 20, am_seen >= OTHERS);
        for (i = 0; i < 100000; ++i) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK_EQ(am_seen, OTHERS);
        for (i = 0; i < OTHERS; ++i) {
            CHECK_EQ(seen[i], OF_OTHERS + i);
        }
        CHECK_EQ(ctx->ep_errors, 0);
        set(ctx, WORD_ENDS, 1);
    } else if (ctx->rank == 2) {
        await(ctx, WORD_THERE, 1);
        tofu_ep_destroy(ctx->ep[0]);
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0, &ctx->ep[0]));
        for (i = 0; i < OTHERS; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, OF_OTHERS + i, NULL, 0)));
            set(ctx, WORD_LENT, 1); /* there was credit: nobody needs to move for what follows */
            set(ctx, WORD_ASKS, i + 1);
        }
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_ENDS) == 1);
        CHECK_EQ(ctx->ep_errors, 0);
    } else {
        await(ctx, WORD_ASKS, OTHERS);
        for (i = 0; (i < 200) &&
                    (tofu_ep_am_short(ctx->ep[0], 1, OF_STALE, NULL, 0) == TOFU_OK); ++i) {
        }
        CHECK(i > SENT); /* over all slots that it has */
        set(ctx, WORD_STALE, 1);
        PROGRESS_UNTIL(ctx, 20, ctx->ep_errors == 1);
        CHECK(ctx->failed_ep == ctx->ep[0]);
        CHECK_EQ(ctx->failed_status, TOFU_ERR_ENDPOINT_TIMEOUT);
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_ENDS) == 1);
    }
    leave(ctx);
}

static void stale_sender(struct ctx *ctx)
{
    stale(ctx, 300000); /* no process is replaced faster, see TOFU_SLOTS_STEP */
}

/* The process is the same: its ifaces may follow each other at once. */
static void stale_at_once(struct ctx *ctx)
{
    stale(ctx, 0);
}

/* The error of what was sent to the old iface is read when there is an ep to the new one. */
static void late_error(struct ctx *ctx)
{
    tofu_ep_t *before;
    unsigned  i;

    well(ctx);
    if (ctx->rank == 0) {
        close_first(ctx);
        set(ctx, WORD_THERE, 1);
        await(ctx, WORD_STALE, 1);
        open_second(ctx);
        set(ctx, WORD_THERE, 2);
        PROGRESS_UNTIL(ctx, 20, am_seen == OTHERS);
        for (i = 0; i < OTHERS; ++i) {
            CHECK_EQ(seen[i], OF_OTHERS + i);
        }
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_ENDS) == 1);
    } else {
        before = ctx->ep[0];
        await(ctx, WORD_THERE, 1);
        CHECK_OK(tofu_ep_am_short(before, 1, OF_STALE, NULL, 0));
        set(ctx, WORD_STALE, 1);
        await(ctx, WORD_THERE, 2);
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0, &ctx->ep[0]));
        for (i = 0; i < OTHERS; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, OF_OTHERS + i, NULL, 0)));
        }
        core_flush(ctx, ctx->ep[0]);
        for (i = 0; i < 100000; ++i) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK_EQ(ctx->ep_errors, 1);
        CHECK(ctx->failed_ep == before);
        tofu_ep_destroy(before);
        set(ctx, WORD_ENDS, 1);
    }
    leave(ctx);
}

/* The old iface is sent to when the new one, on its VCQ, holds slots of the sender: those stay its own. */
static void old_ep(struct ctx *ctx)
{
    unsigned i;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    core_barrier(ctx);
    if (ctx->rank == 1) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0)));
        core_flush(ctx, ctx->ep[0]);
    }
    core_barrier(ctx);
    if (ctx->rank == 0) {
        close_first(ctx);
        core_usleep(300000); /* no process is replaced faster, see TOFU_SLOTS_STEP */
        open_second(ctx);
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0, &ctx->ep[1]));
        for (i = 0; i < 200; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 1, i, NULL, 0)));
            if (i == 5) {
                core_flush(ctx, ctx->ep[1]);
                set(ctx, WORD_LENT, 1);
                PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_STALE) == 1);
            }
        }
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_ENDS) == 1);
        CHECK_EQ(ctx->ep_errors, 0);
    } else {
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_LENT) == 1);
        CHECK_OK(tofu_ep_am_short(ctx->ep[0], 1, OF_STALE, NULL, 0));
        PROGRESS_UNTIL(ctx, 20, ctx->ep_errors == 1);
        CHECK_EQ(ctx->failed_status, TOFU_ERR_ENDPOINT_TIMEOUT);
        set(ctx, WORD_STALE, 1);
        PROGRESS_UNTIL(ctx, 20, am_seen == 200);
        for (i = 0; i < 200; ++i) {
            CHECK_EQ(seen[i], i);
        }
        set(ctx, WORD_ENDS, 1);
    }
    leave(ctx);
}

/* What a sender was told is written over, as by a word for who had its mailbox before: it is told again. */
static void lost_credit(struct ctx *ctx)
{
    const tofu_iface_config_t config = config_of_all();
    const tofu_lender_t       *lender;
    unsigned                  sent = 0;

    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    core_barrier(ctx);
    if (ctx->rank == 1) { /* it has slots, and nothing is on its way */
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0)));
        core_flush(ctx, ctx->ep[0]);
    }
    core_barrier(ctx);
    core_barrier_asleep(ctx);
    if (ctx->rank == 1) {
        for (; tofu_ep_am_short(ctx->ep[0], 1, sent, NULL, 0) == TOFU_OK; ++sent) {
            CHECK(sent < 200);
        }
        CHECK(sent > 0);
        set(ctx, WORD_ASKS, sent);
        await(ctx, WORD_SEEN, 1);
        atomic_store(&ctx->ep[0]->peer->chan->mailbox->credit, 0x1234000000000000ull);
        PROGRESS_UNTIL(ctx, 20, tofu_ep_am_short(ctx->ep[0], 1, sent, NULL, 0) == TOFU_OK);
        set(ctx, WORD_ENDS, 1);
    } else {
        while ((sent = (unsigned)get(ctx, WORD_ASKS)) == 0) {
            core_usleep(100);
        }
        PROGRESS_UNTIL(ctx, 20, am_seen == sent + 1);
        lender = tofu_container(ctx->iface->am->lenders.next, tofu_lender_t, link);
        PROGRESS_UNTIL(ctx, 20, (lender->loan[TOFU_AM_SMALL].reported == lender->loan[TOFU_AM_SMALL].arrived) &&
                                        (lender->loan[TOFU_AM_LARGE].reported == lender->loan[TOFU_AM_LARGE].arrived));
        set(ctx, WORD_SEEN, 1);
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_ENDS) == 1);
    }
    core_barrier(ctx);
    leave(ctx);
}

/* The same of the word that asks for slots back, of a sender that uses them all the time. */
static void lost_recall(struct ctx *ctx)
{
    tofu_iface_config_t config = config_of_all();
    _Atomic uint64_t    *recall;

    config.rx_slots = 2;
    config.rx_short_slots = 2;
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    core_barrier(ctx);
    if (ctx->rank == 1) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0)));
        core_flush(ctx, ctx->ep[0]);
        recall = &ctx->ep[0]->peer->chan->mailbox->recall;
        set(ctx, WORD_LENT, 1);
        while (atomic_load(recall) == 0) { /* no progress: it is not seen */
            core_usleep(100);
        }
        atomic_store(recall, 0);
        set(ctx, WORD_STALE, 1);
        PROGRESS_UNTIL(ctx, 20, (tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0), get(ctx, WORD_ENDS) == 1));
    } else if (ctx->rank == 2) {
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_LENT) == 1);
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, OF_OTHERS, NULL, 0)));
        core_flush(ctx, ctx->ep[0]);
        set(ctx, WORD_ENDS, 1);
    } else {
        PROGRESS_UNTIL(ctx, 20, get(ctx, WORD_ENDS) == 1);
    }
    core_barrier(ctx);
    leave(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"stale_sender", 3, 60, stale_sender, 0},
        {"stale_at_once", 3, 60, stale_at_once, 0},
        {"late_error", 2, 60, late_error, 0},
        {"old_ep", 2, 60, old_ep, 0},
        {"lost_credit", 2, 60, lost_credit, 0},
        {"lost_recall", 3, 60, lost_recall, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
