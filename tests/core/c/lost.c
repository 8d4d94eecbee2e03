/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lost.c - what is refused or found lost in the middle of something else: in a post that
 * makes room in a full queue, in a request of the pending queue, while a flush is tried
 * again, after its ep is gone.
 */
#include "core_test.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tofu_internal.h>
#include <tofu_am.h>

static unsigned seen;

static int8_t on_am(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)data;
    (void)length;
    (void)flags;
    ++seen;
    return TOFU_OK;
}

static size_t pack_200(void *dest, void *arg)
{
    (void)arg;
    memset(dest, 1, 200);
    return 200;
}

static void start(struct ctx *ctx, const char *fault)
{
    if ((ctx->rank == 0) && (fault != NULL)) {
        CHECK(setenv("UTOFU_EMU_FAULT", fault, 1) == 0);
    }
    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_am, NULL));
}

/* The failed ep is replaced, and 100 messages by the new one arrive. */
static void check_new_ep(struct ctx *ctx)
{
    unsigned errors, i;

    PROGRESS_UNTIL(ctx, 10, ctx->ep_errors > 0);
    errors = ctx->ep_errors;
    tofu_ep_destroy(ctx->ep[1]);
    CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                            &ctx->ep[1]));
    for (i = 0; i < 50; ++i) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 2, i, NULL, 0)));
        CHECK_EQ(RETRY(ctx, tofu_ep_am_bcopy(ctx->ep[1], 2, pack_200, NULL)), 200);
    }
    core_flush(ctx, ctx->ep[1]);
    CHECK_EQ(ctx->ep_errors, errors);
    atomic_store(&ctx->shared->word[1], 1);
}

static void serve(struct ctx *ctx, unsigned least)
{
    PROGRESS_UNTIL(ctx, 30, atomic_load(&ctx->shared->word[1]) && (seen >= least));
}

/* A message by am_bcopy was not sent, which the next one finds when it looks for a
 * bounce buffer, behind its look at the credit. */
static void bcopy_lost(struct ctx *ctx)
{
    unsigned sent = 0, i;
    intptr_t more;

    start(ctx, "put:after=5:count=1:error=TCQ_OTHER");
    if (ctx->rank == 0) {
        while (sent < 5) {
            sent += tofu_ep_am_bcopy(ctx->ep[1], 1, pack_200, NULL) > 0;
            tofu_iface_progress(ctx->iface);
        }
        for (i = 0; i < 1000; ++i) {
            tofu_iface_progress(ctx->iface);
        }
        /* this one is lost; who shares a VCQ may have no slot for another one */
        CHECK_EQ(RETRY(ctx, tofu_ep_am_bcopy(ctx->ep[1], 1, pack_200, NULL)), 200);
        more = tofu_ep_am_bcopy(ctx->ep[1], 1, pack_200, NULL);
        CHECK((more == 200) || (more == TOFU_ERR_NO_RESOURCE));
        CHECK(ctx->ep[1]->chan->cls[1].left < 1000);
        check_new_ep(ctx);
    } else {
        serve(ctx, 105);
    }
    core_close(ctx);
}

static size_t pack_4000(void *dest, void *arg)
{
    (void)arg;
    memset(dest, 1, 4000);
    return 4000;
}

/* One that was packed into the receiver's slot is lost: the TCQ tells that, though nobody
 * waits for its entry. */
static void in_place_lost(struct ctx *ctx)
{
    intptr_t ret;
    double   end = core_now() + 40;

    start(ctx, "put:after=50000:count=1:error=TCQ_OTHER");
    if (ctx->rank == 0) {
        do {
            ret = tofu_ep_am_bcopy(ctx->ep[1], 1, pack_4000, NULL);
            tofu_iface_progress(ctx->iface);
            CHECK(core_now() < end);
        } while ((ret == 4000) || (ret == TOFU_ERR_NO_RESOURCE));
        CHECK(stats_of(ctx).am_in_place > 1000);
        check_new_ep(ctx);
    } else {
        serve(ctx, 100);
    }
    core_close(ctx);
}

/* As bcopy_lost by am_short, which meets a full TOQ and empties the TCQ. */
static void short_lost(struct ctx *ctx)
{
    unsigned sent = 0;

    start(ctx, "piggyback:after=30:count=1:error=TCQ_OTHER;"
               "piggyback:after=31:count=1:busy");
    if (ctx->rank == 0) {
        double end = core_now() + 20;

        while (!(ctx->ep[1]->flags & TOFU_EP_FAILED)) {
            tofu_status_t status = tofu_ep_am_short(ctx->ep[1], 1, 1, NULL, 0);

            sent += status == TOFU_OK;
            /* else what follows is posted at once */
            if ((sent < 25) || (sent > 40) || (status != TOFU_OK)) {
                tofu_iface_progress(ctx->iface);
            }
            CHECK(core_now() < end);
        }
        check_new_ep(ctx);
    } else {
        serve(ctx, 100);
    }
    core_close(ctx);
}

/* An am_zcopy of an ep that is invalidated does not end well. */
static void spoiled(struct ctx *ctx)
{
    size_t      length = 8192;
    struct done done;
    tofu_mem_t  *memh;
    char        *memory;

    start(ctx, NULL);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, (void **)&memory, &memh));
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 1, 1, NULL, 0)));
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 1, 1, NULL, 0)));
        tofu_iov_t iov = {memory, 4096, memh, 0, 1};
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_am_zcopy(ctx->ep[1], 1, NULL, 0, &iov, 1,
                                             &done.comp)), TOFU_INPROGRESS);
        CHECK_OK(tofu_ep_invalidate(ctx->ep[1]));
        CHECK_EQ(done_wait(ctx, &done), TOFU_ERR_CANCELED);
        atomic_store(&ctx->shared->word[1], 1);
        tofu_mem_free(memh);
    } else {
        serve(ctx, 2);
    }
    core_close(ctx);
}

/* 8000 parts to a peer that is dead are 8000 error notices, more than the MRQ has. */
static void parts(struct ctx *ctx)
{
    size_t        length = 65536;
    tofu_status_t status;
    tofu_mem_t    *memh;
    char          *memory;
    unsigned      i, tries = 0;

    start(ctx, NULL);
    if (ctx->rank == 1) {
        PROGRESS_UNTIL(ctx, 20, seen >= 3);
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, (void **)&memory, &memh));
    for (i = 0; i < 3; ++i) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 1, 1, NULL, 0)));
    }
    while (kill(ctx->shared->rank[1].pid, 0) == 0) {
        tofu_iface_progress(ctx->iface);
        if (++tries > 1000000) {
            break; /* dead, and its parent has not waited for it */
        }
    }
    tofu_iov_t iov = {memory, 1, memh, 1, 8000};
    status         = tofu_ep_am_zcopy(ctx->ep[1], 1, NULL, 0, &iov, 1, NULL);
    CHECK((status == TOFU_INPROGRESS) || (status == TOFU_ERR_NO_RESOURCE) ||
          (status == TOFU_ERR_ENDPOINT_TIMEOUT));
    CHECK(ctx->iface->posts <= ctx->iface->posts_limit + 1);
    PROGRESS_UNTIL(ctx, 20, ctx->ep_errors == 1);
    tofu_mem_free(memh);
    tofu_ep_destroy(ctx->ep[1]);
    tofu_ep_destroy(ctx->ep[0]);
    tofu_iface_close(ctx->iface);
    tofu_md_close(ctx->md);
}

/* A request queues another one on its ep, which puts the ep to the end of the turns,
 * and destroys the ep that was to come next. */
static struct {
    tofu_pending_req_t req[3];
    tofu_ep_t          *ep[2];
    int                first;
} turn;

static int8_t send_it(tofu_pending_req_t *req)
{
    (void)req;
    return (int8_t)tofu_ep_am_short(turn.ep[0], 1, 0, NULL, 0);
}

static int8_t refuse(tofu_pending_req_t *req)
{
    (void)req;
    return TOFU_ERR_NO_RESOURCE;
}

static int8_t queue_and_destroy(tofu_pending_req_t *req)
{
    if (!turn.first) {
        return send_it(req);
    }
    turn.first           = 0;
    turn.ep[0]->starved |= TOFU_STARVED_TOQ; /* as a refused post leaves it */
    CHECK_OK(tofu_ep_pending_add(turn.ep[0], &turn.req[1]));
    tofu_ep_pending_purge(turn.ep[1], NULL, NULL);
    tofu_ep_destroy(turn.ep[1]);
    return TOFU_ERR_NO_RESOURCE;
}

static void turns(struct ctx *ctx)
{
    unsigned i;

    start(ctx, NULL);
    for (i = 0; i < 2; ++i) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0,
                                &turn.ep[i]));
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(turn.ep[i], 1, 0, NULL, 0)));
        turn.ep[i]->starved |= TOFU_STARVED_TOQ;
    }
    turn.req[0].func = queue_and_destroy;
    turn.req[1].func = send_it;
    turn.req[2].func = refuse;
    turn.first       = 1;
    CHECK_OK(tofu_ep_pending_add(turn.ep[0], &turn.req[0]));
    CHECK_OK(tofu_ep_pending_add(turn.ep[1], &turn.req[2]));
    PROGRESS_UNTIL(ctx, 10, seen == 4);
    CHECK_EQ(ctx->iface->num_turns, 0);
    tofu_ep_destroy(turn.ep[0]);
    core_close(ctx);
}

/* More eps wait than one progress gives turns, and credit comes by calls of progress of
 * the same thread, in a rhythm: each has its share. */
#define MANY 96

static struct waiter {
    tofu_pending_req_t req;
    tofu_ep_t          *ep;
    unsigned           sent;
    int                queued;
} waiter[MANY];
static unsigned num_queued;

static int8_t send_waiter(tofu_pending_req_t *req)
{
    struct waiter *w     = (struct waiter *)req;
    tofu_status_t status = tofu_ep_am_short(w->ep, 1, 5, NULL, 0);

    if (status == TOFU_OK) {
        ++w->sent;
        w->queued = 0;
        --num_queued;
    }
    return (int8_t)status;
}

static void many_wait(struct ctx *ctx)
{
    unsigned     i, round, min = ~0u, max = 0;
    char         address[BLOB];
    tofu_iface_t *second;
    double       end = core_now() + 30;

    start(ctx, NULL);
    CHECK_OK(tofu_iface_open(ctx->md, NULL, &second));
    CHECK_OK(tofu_iface_set_am_handler(second, 1, on_am, NULL));
    tofu_iface_get_address(second, address);
    for (i = 0; i < MANY; ++i) {
        waiter[i].req.func = send_waiter;
        CHECK_OK(tofu_ep_create(ctx->iface, address, 0, &waiter[i].ep));
    }
    for (round = 0; round < 3000; ++round) {
        while (num_queued < MANY) {
            for (i = 0; i < MANY; ++i) {
                struct waiter *w = &waiter[i];

                if (w->queued) {
                    continue;
                }
                if (tofu_ep_am_short(w->ep, 1, 5, NULL, 0) == TOFU_OK) {
                    ++w->sent;
                } else if (tofu_ep_pending_add(w->ep, &w->req) == TOFU_OK) {
                    w->queued = 1;
                    ++num_queued;
                }
            }
        }
        while (num_queued == MANY) {
            tofu_iface_progress(ctx->iface);
            tofu_iface_progress(second);
            CHECK(core_now() < end);
        }
    }
    while (num_queued > 0) {
        tofu_iface_progress(ctx->iface);
        tofu_iface_progress(second);
        CHECK(core_now() < end);
    }
    for (i = 0; i < MANY; ++i) {
        min = (waiter[i].sent < min) ? waiter[i].sent : min;
        max = (waiter[i].sent > max) ? waiter[i].sent : max;
        tofu_ep_destroy(waiter[i].ep);
    }
    printf("each ep sent %u to %u messages\n", min, max);
    CHECK(min * 2 >= max);
    tofu_iface_close(second);
    core_close(ctx);
}

/* One operation with a notice at a time is enough for a flush of two targets. */
static void one_notice(struct ctx *ctx)
{
    tofu_iface_config_t config;
    uint64_t            value = 5;

    tofu_iface_config_default(&config);
    config.tx_notified = 1;
    core_open(ctx, &config, 4096);
    CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[1], &value, 8,
                                          ctx->shared->rank[1].base, ctx->rkey[1])));
    core_flush(ctx, ctx->ep[1]);
    core_barrier(ctx);
    CHECK((ctx->rank == 0) || !memcmp(ctx->window, &value, 8));
    core_close(ctx);
}

/* The iface that an ep leads to has ended, and another one has its VCQ: an ep to that one
 * ends the earlier, whose messages would come to it. */
static void heirs(struct ctx *ctx)
{
    tofu_iface_config_t config;
    tofu_ep_t           *ep[102] = {NULL}, *old = NULL;
    unsigned            round, i;

    start(ctx, NULL);
    tofu_iface_config_default(&config);
    ep[0] = ctx->ep[1];
    for (round = 1; !atomic_load(&ctx->shared->word[1]); ++round) {
        CHECK(round <= 100);
        core_barrier(ctx);
        if (ctx->rank == 1) {
            tofu_ep_destroy(ctx->ep[0]);
            tofu_ep_destroy(ctx->ep[1]);
            tofu_iface_close(ctx->iface);
            CHECK_OK(tofu_iface_open(ctx->md, &config, &ctx->iface));
            CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
            tofu_iface_get_address(ctx->iface, ctx->shared->rank[1].address);
            CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0,
                                    &ctx->ep[0]));
            CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                                    &ctx->ep[1]));
        }
        core_barrier(ctx);
        if (ctx->rank == 0) {
            CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                                    &ep[round]));
            for (i = 0; i < round; ++i) { /* the VCQs take turns */
                old = (ep[i]->peer == ep[round]->peer) ? ep[i] : old;
            }
            if (old != NULL) {
                PROGRESS_UNTIL(ctx, 10, ctx->ep_errors == 1);
                CHECK_EQ(tofu_ep_am_short(old, 1, 0, NULL, 0),
                         TOFU_ERR_ENDPOINT_TIMEOUT);
                CHECK_OK(RETRY(ctx, tofu_ep_am_short(ep[round], 1, 0, NULL, 0)));
                core_flush(ctx, ep[round]);
                CHECK_EQ(ctx->ep_errors, 1);
                atomic_store(&ctx->shared->word[1], 1);
            }
        }
        core_barrier(ctx);
    }
    for (i = 1; (ctx->rank == 0) && (ep[i] != NULL); ++i) {
        tofu_ep_destroy(ep[i]);
    }
    if (ctx->rank == 1) {
        PROGRESS_UNTIL(ctx, 10, seen == 1);
    }
    core_close(ctx);
}

/* Rank 1 says its last word after it had nothing to say for a while, and ends at once; nobody makes
 * progress meanwhile.  (UCP's last answer to a peer before the user destroys his worker.) */
static void last_word(struct ctx *ctx)
{
    double end;

    start(ctx, NULL);
    if (ctx->rank == 1) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0)));
        core_flush(ctx, ctx->ep[0]);
    }
    for (end = core_now() + 1.5; core_now() < end;) {
        core_idle(ctx->iface);
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 1) {
        CHECK_OK(tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0));
        tofu_ep_destroy(ctx->ep[0]);
        tofu_ep_destroy(ctx->ep[1]);
        tofu_iface_close(ctx->iface);
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 0) {
        PROGRESS_UNTIL(ctx, 10, seen == 2);
        tofu_ep_destroy(ctx->ep[0]);
        tofu_ep_destroy(ctx->ep[1]);
        tofu_iface_close(ctx->iface);
    }
    tofu_md_close(ctx->md);
}

/* Rank 0 has an idle channel to an iface that ends, and does not come to give its slots
 * back for a while.  Another iface has the VCQ meanwhile, and sends: that it is not the one
 * of the channel takes nothing away from it. */
static void idle_channel(struct ctx *ctx)
{
    tofu_iface_config_t config;
    tofu_iface_stats_t  stats;
    utofu_vcq_id_t      first;
    unsigned            sent = 0, round;
    double              end;

    start(ctx, NULL);
    if (ctx->rank == 0) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 1, 0, NULL, 0)));
        core_flush(ctx, ctx->ep[1]);
        tofu_ep_destroy(ctx->ep[1]);
        ctx->ep[1] = NULL;
        atomic_store(&ctx->shared->word[3], 1);
        while (atomic_load(&ctx->shared->word[1]) == 0) {
            core_usleep(1000); /* no progress */
        }
        core_usleep(1200000);
        PROGRESS_UNTIL(ctx, 20, atomic_load(&ctx->shared->word[2]) != 0);
        PROGRESS_UNTIL(ctx, 20, seen == atomic_load(&ctx->shared->word[2]));
        tofu_iface_get_stats(ctx->iface, &stats);
        CHECK_EQ(stats.dropped, 0);
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                                &ctx->ep[1]));
    } else {
        PROGRESS_UNTIL(ctx, 20, (seen == 1) && atomic_load(&ctx->shared->word[3]));
        first = ctx->iface->vcq_id;
        tofu_ep_destroy(ctx->ep[0]);
        tofu_ep_destroy(ctx->ep[1]);
        tofu_iface_config_default(&config);
        for (round = 0; (round == 0) || (ctx->iface->vcq_id != first); ++round) {
            CHECK(round < 100); /* the VCQs take turns */
            tofu_iface_close(ctx->iface);
            CHECK_OK(tofu_iface_open(ctx->md, &config, &ctx->iface));
        }
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
        tofu_iface_get_address(ctx->iface, ctx->shared->rank[1].address);
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0,
                                &ctx->ep[0]));
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                                &ctx->ep[1]));
        sent += tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0) == TOFU_OK;
        atomic_store(&ctx->shared->word[1], 1);
        for (end = core_now() + 3; core_now() < end; core_usleep(300)) {
            sent += tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0) == TOFU_OK;
            tofu_iface_progress(ctx->iface);
        }
        CHECK(sent > 500); /* to the end */
        atomic_store(&ctx->shared->word[2], sent);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* After an ep was abandoned nothing of it comes to its user, also of operations without
 * a completion. */
static void on_data(void *arg, const void *data, size_t length)
{
    (void)data;
    (void)length;
    ++*(unsigned *)arg;
}

static void abandoned_get(struct ctx *ctx)
{
    unsigned got = 0, i;

    core_open(ctx, NULL, 4096);
    core_flush(ctx, ctx->ep[1]);
    CHECK_EQ(tofu_ep_get_bcopy(ctx->ep[1], on_data, &got, 100,
                               ctx->shared->rank[1].base, ctx->rkey[1], NULL),
             TOFU_INPROGRESS);
    tofu_ep_abandon(ctx->ep[1]);
    CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                            &ctx->ep[1]));
    for (i = 0; i < 10000; ++i) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK_EQ(got, 0);
    core_barrier(ctx);
    core_close(ctx);
}

/* A part of a handle that nobody uses is unmapped, as a cache of registrations allows; the
 * rest goes on, also with an iface that has not seen the handle before. */
static void hole(struct ctx *ctx)
{
    const size_t length = 16 * 4096, part = 3 * 4096;
    tofu_status_t status;
    tofu_mem_t   *memh;
    struct done  done;
    tofu_iov_t   iov;
    char         *memory;
    int          i;

    core_open(ctx, NULL, 65536);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    fill(memory, length, 7);
    CHECK_OK(tofu_mem_reg(ctx->md, memory, length, 0, &memh));
    CHECK(munmap(memory + (length / 2), part) == 0);
    for (i = 0; i < 4; ++i) { /* before and behind the hole, each twice */
        char *from = memory + ((i & 1) ? length - 5000 : 100);

        iov = (tofu_iov_t){from, 3000, memh, 0, 1};
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[0], &iov, 1,
                                              ctx->shared->rank[0].base + 64,
                                              ctx->rkey[0], &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
        CHECK(!memcmp(ctx->window + 64, from, 3000));
        done_init(&done);
        status = (tofu_status_t)RETRY(ctx, tofu_ep_am_zcopy(ctx->ep[0], 1, NULL, 0,
                                                            &iov, 1, &done.comp));
        CHECK((status == TOFU_OK) || (status == TOFU_INPROGRESS));
        CHECK_OK((status == TOFU_OK) ? status : done_wait(ctx, &done));
    }
    PROGRESS_UNTIL(ctx, 10, seen == 4);
    iov = (tofu_iov_t){memory + (length / 2), 100, memh, 0, 1}; /* not there */
    /* (who shares a VCQ uses the md's registration, from before the hole) */
    CHECK((getenv("CORE_MAX_VCQS") != NULL) ||
          (tofu_ep_put_zcopy(ctx->ep[0], &iov, 1, ctx->shared->rank[0].base,
                             ctx->rkey[0], NULL) < 0));
    CHECK_OK(tofu_mem_dereg(memh));
    munmap(memory, length);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"bcopy_lost", 2, 60, bcopy_lost, 0},
        {"in_place_lost", 2, 60, in_place_lost, 0},
        {"short_lost", 2, 60, short_lost, 0},
        {"spoiled", 2, 60, spoiled, 0},
        {"parts", 2, 60, parts, 2},
        {"turns", 1, 30, turns, 0},
        {"many_wait", 1, 60, many_wait, 0},
        {"one_notice", 2, 60, one_notice, 0},
        {"heirs", 2, 60, heirs, 0},
        {"idle_channel", 2, 60, idle_channel, 0},
        {"last_word", 2, 60, last_word, 0},
        {"abandoned_get", 2, 60, abandoned_get, 0},
        {"hole", 1, 30, hole, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
