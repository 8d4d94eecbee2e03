/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that die, memory that is gone, bytes that nobody of ours sends. */
#include "core_test.h"

#include <tofu_internal.h> /* the VCQ of an iface, to forge with */
#include <tofu_am.h>       /* the size of slots */

#include <signal.h>
#include <unistd.h>

static unsigned am_seen;

static int8_t on_am(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)data;
    (void)length;
    (void)flags;
    ++am_seen;
    return TOFU_OK;
}

/* core_close without the barrier, for which some ranks are missing. */
static void leave(struct ctx *ctx)
{
    ctx->size = 0;
    for (int r = 0; r < MAX_RANKS; ++r) {
        if (ctx->ep[r] != NULL) {
            tofu_ep_destroy(ctx->ep[r]);
        }
        if (ctx->rkey[r] != NULL) {
            tofu_rkey_release(ctx->rkey[r]);
        }
    }
    if (ctx->window_memh != NULL) {
        CHECK_OK(tofu_mem_free(ctx->window_memh));
    }
    tofu_iface_close(ctx->iface);
    tofu_md_close(ctx->md);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

/* Rank 0 has an answer of rank 1, which lives until then. */
static void meet(struct ctx *ctx)
{
    uint64_t value = 0;

    if (ctx->rank == 0) {
        CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[1], &value, 8,
                                              ctx->shared->rank[1].base,
                                              ctx->rkey[1])));
        core_flush(ctx, ctx->ep[1]);
    }
    core_barrier_asleep(ctx);
}

/* Ranks 0 and 2 go on without rank 1 (the barriers of core_close need all). */
static void check_rank_2_works(struct ctx *ctx)
{
    uint64_t value = 77;
    char     back[8];
    size_t   length = 4096;
    void     *address;
    tofu_mem_t *memh;
    struct done done;

    (void)back;
    CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[2], &value, 8,
                                          ctx->shared->rank[2].base,
                                          ctx->rkey[2])));
    core_flush(ctx, ctx->ep[2]);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    tofu_iov_t iov = {address, 8, memh, 0, 1};
    done_init(&done);
    CHECK_EQ(RETRY(ctx, tofu_ep_get_zcopy(ctx->ep[2], &iov, 1,
                                          ctx->shared->rank[2].base,
                                          ctx->rkey[2], &done.comp)),
             TOFU_INPROGRESS);
    CHECK_OK(done_wait(ctx, &done));
    CHECK_EQ(*(uint64_t *)address, 77);
    CHECK_OK(tofu_mem_free(memh));
    CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[2], 1, 0, NULL, 0)));
    core_flush(ctx, ctx->ep[2]);
    atomic_store(&ctx->shared->word[2], 1); /* rank 2 may go */
}

static void serve_until_released(struct ctx *ctx)
{
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    PROGRESS_UNTIL(ctx, 40, atomic_load(&ctx->shared->word[2]) && (am_seen > 0));
}

static void check_failed(struct ctx *ctx)
{
    uint64_t   value = 1;
    tofu_iov_t iov   = {ctx->window, 8, ctx->window_memh, 0, 1};
    uint64_t   base  = ctx->shared->rank[1].base;

    CHECK_EQ(ctx->ep_errors, 1);
    CHECK(ctx->failed_ep == ctx->ep[1]);
    CHECK_EQ(ctx->failed_status, TOFU_ERR_ENDPOINT_TIMEOUT);
    /* every operation says so, and nothing hangs */
    CHECK_EQ(tofu_ep_put_short(ctx->ep[1], &value, 8, base, ctx->rkey[1]),
             TOFU_ERR_ENDPOINT_TIMEOUT);
    CHECK_EQ(tofu_ep_put_zcopy(ctx->ep[1], &iov, 1, base, ctx->rkey[1], NULL),
             TOFU_ERR_ENDPOINT_TIMEOUT);
    CHECK_EQ(tofu_ep_get_zcopy(ctx->ep[1], &iov, 1, base, ctx->rkey[1], NULL),
             TOFU_ERR_ENDPOINT_TIMEOUT);
    CHECK_EQ(tofu_ep_atomic_post(ctx->ep[1], TOFU_ATOMIC_ADD, 8, 1, base,
                                 ctx->rkey[1]),
             TOFU_ERR_ENDPOINT_TIMEOUT);
    CHECK_EQ(tofu_ep_am_short(ctx->ep[1], 1, 0, NULL, 0),
             TOFU_ERR_ENDPOINT_TIMEOUT);
    CHECK_EQ(tofu_ep_flush(ctx->ep[1], 0, NULL), TOFU_ERR_ENDPOINT_TIMEOUT);
    PROGRESS_UNTIL(ctx, 5, tofu_ep_flush(ctx->ep[1], TOFU_FLUSH_CANCEL, NULL) ==
                             TOFU_OK);
    CHECK_OK(tofu_ep_fence(ctx->ep[1]));
    CHECK_EQ(ctx->ep_errors, 1);
}

/* A target of RMA is killed while operations are on their way to it. */
static void killed_target(struct ctx *ctx)
{
    static struct done done[100000];
    tofu_iov_t         iov;
    unsigned           n = 0, i;

    core_open(ctx, NULL, 65536);
    meet(ctx);
    if (ctx->rank == 1) {
        core_usleep(100000);
        die();
    }
    if (ctx->rank == 2) {
        serve_until_released(ctx);
        leave(ctx);
        return;
    }
    iov = (tofu_iov_t){ctx->window, 4096, ctx->window_memh, 0, 1};
    double end = core_now() + 20;
    while ((ctx->ep_errors == 0) && (core_now() < end) && (n < 100000)) {
        uint64_t      value = n;
        tofu_status_t status;

        done_init(&done[n]);
        status = tofu_ep_put_zcopy(ctx->ep[1], &iov, 1,
                                   ctx->shared->rank[1].base, ctx->rkey[1],
                                   &done[n].comp);
        if (status == TOFU_INPROGRESS) {
            ++n;
            core_usleep(20);
        }
        status = tofu_ep_put_short(ctx->ep[1], &value, 8,
                                   ctx->shared->rank[1].base, ctx->rkey[1]);
        CHECK((status == TOFU_OK) || (status == TOFU_ERR_NO_RESOURCE) ||
              (status == TOFU_ERR_ENDPOINT_TIMEOUT));
        tofu_iface_progress(ctx->iface);
    }
    CHECK_EQ(ctx->ep_errors, 1);
    for (i = 0; i < n; ++i) {
        PROGRESS_UNTIL(ctx, 5, done[i].called == 1);
        CHECK((done[i].comp.status == TOFU_OK) ||
              (done[i].comp.status == TOFU_ERR_ENDPOINT_TIMEOUT));
    }
    check_failed(ctx);
    check_rank_2_works(ctx);
    leave(ctx);
}

/* Only operations without a notice, and a flush. */
static void killed_silent(struct ctx *ctx)
{
    struct done done;

    core_open(ctx, NULL, 65536);
    meet(ctx);
    if (ctx->rank == 1) {
        core_barrier_asleep(ctx);
        die();
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 2) {
        serve_until_released(ctx);
        leave(ctx);
        return;
    }
    core_usleep(200000);
    uint64_t      value = 1;
    tofu_status_t status;
    status = (tofu_status_t)RETRY(ctx, tofu_ep_put_short(
                                               ctx->ep[1], &value, 8,
                                               ctx->shared->rank[1].base,
                                               ctx->rkey[1]));
    CHECK((status == TOFU_OK) || (status == TOFU_ERR_ENDPOINT_TIMEOUT));
    done_init(&done);
    status = tofu_ep_flush(ctx->ep[1], 0, &done.comp);
    if (status == TOFU_INPROGRESS) {
        PROGRESS_UNTIL(ctx, 5, done.called == 1);
        status = done.comp.status;
    }
    CHECK_EQ(status, TOFU_ERR_ENDPOINT_TIMEOUT);
    PROGRESS_UNTIL(ctx, 5, ctx->ep_errors == 1);
    check_failed(ctx);
    check_rank_2_works(ctx);
    leave(ctx);
}

/* A peer that nothing is sent to is killed: tofu_ep_check finds out, also while a
 * flush to somebody else is in flight on the ep. */
static void killed_idle(struct ctx *ctx)
{
    uint64_t value = 1;

    core_open(ctx, NULL, 65536);
    if (ctx->rank == 1) {
        core_barrier_asleep(ctx);
        die();
    }
    CHECK_OK(tofu_ep_check(ctx->ep[1])); /* it lives: no error comes of it */
    core_flush(ctx, ctx->ep[1]);
    CHECK_EQ(ctx->ep_errors, 0);
    core_barrier_asleep(ctx);
    if (ctx->rank == 2) {
        serve_until_released(ctx);
        leave(ctx);
        return;
    }
    core_usleep(200000);
    CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[1], &value, 8,
                                          ctx->shared->rank[0].base,
                                          ctx->rkey[0])));
    CHECK_EQ(tofu_ep_flush(ctx->ep[1], 0, NULL), TOFU_INPROGRESS);
    CHECK_OK(tofu_ep_check(ctx->ep[1]));
    PROGRESS_UNTIL(ctx, 5, ctx->ep_errors == 1);
    CHECK_EQ(tofu_ep_check(ctx->ep[1]), TOFU_ERR_ENDPOINT_TIMEOUT);
    check_failed(ctx);
    check_rank_2_works(ctx);
    leave(ctx);
}

/* One operation to rank r; what it returns. */
static tofu_status_t use(struct ctx *ctx, int r, const char *what,
                         struct done *done)
{
    tofu_iov_t iov   = {ctx->window, 8192, ctx->window_memh, 0, 1};
    uint64_t   value = 1, base = ctx->shared->rank[r].base;

    if (!strcmp(what, "put")) {
        return tofu_ep_put_short(ctx->ep[r], &value, 8, base, ctx->rkey[r]);
    }
    if (!strcmp(what, "get")) {
        return tofu_ep_get_zcopy(ctx->ep[r], &iov, 1, base, ctx->rkey[r],
                                 &done->comp);
    }
    if (!strcmp(what, "am")) {
        return tofu_ep_am_short(ctx->ep[r], 1, 0, NULL, 0);
    }
    return tofu_ep_check(ctx->ep[r]);
}

/* It fails with the status, and so does all that follows on the ep. */
static void use_failed(struct ctx *ctx, int r, const char *what,
                       tofu_status_t expected)
{
    unsigned      errors = ctx->ep_errors;
    struct done   done;
    tofu_status_t status;

    CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[r].address, 0,
                            &ctx->ep[r]));
    done_init(&done);
    /* messages wait for slots, which nobody lends any more */
    PROGRESS_UNTIL(ctx, 10, ((status = use(ctx, r, what, &done)) !=
                       TOFU_ERR_NO_RESOURCE));
    if (status == TOFU_INPROGRESS) {
        CHECK_EQ(done_wait(ctx, &done), expected);
    }
    PROGRESS_UNTIL(ctx, 10, ctx->ep_errors == errors + 1);
    CHECK_EQ(ctx->failed_status, expected);
    CHECK_EQ(tofu_ep_check(ctx->ep[r]), expected);
    CHECK_EQ(tofu_ep_flush(ctx->ep[r], 0, NULL), expected);
    tofu_ep_destroy(ctx->ep[r]);
    ctx->ep[r] = NULL;
}

/* The address of somebody who had gone before anything was sent to him, and of one
 * who had sent us a message before. */
static void never_there(struct ctx *ctx)
{
    static const char *const what[] = {"put", "get", "am", "check"};
    unsigned                 i;

    core_open(ctx, NULL, 65536);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    if (ctx->rank == 2) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0)));
        core_flush(ctx, ctx->ep[0]);
    } else if (ctx->rank == 0) {
        PROGRESS_UNTIL(ctx, 10, am_seen == 1);
    }
    core_barrier_asleep(ctx);
    if (ctx->rank != 0) {
        leave(ctx);
        atomic_fetch_add(&ctx->shared->word[1], 1);
        return;
    }
    while (atomic_load(&ctx->shared->word[1]) < 2) {
        core_usleep(1000);
    }
    for (i = 1; i < 3; ++i) {
        tofu_ep_destroy(ctx->ep[i]);
    }
    for (i = 0; i < 4; ++i) {
        use_failed(ctx, 1, what[i], TOFU_ERR_ENDPOINT_TIMEOUT); /* never heard */
        use_failed(ctx, 2, what[i], TOFU_ERR_ENDPOINT_TIMEOUT); /* heard before */
    }
    leave(ctx);
}

/* The receiver of messages is killed: when it had lent slots, or before. */
static void killed_receiver_at(struct ctx *ctx, int before_grant)
{
    core_open(ctx, NULL, 65536);
    meet(ctx);
    if (ctx->rank == 1) {
        if (!before_grant) {
            CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
            PROGRESS_UNTIL(ctx, 10, am_seen > 1000);
        } else {
            core_usleep(200000); /* the request is there; not read */
        }
        die();
    }
    if (ctx->rank == 2) {
        serve_until_released(ctx);
        leave(ctx);
        return;
    }
    double end = core_now() + 10;
    while ((ctx->ep_errors == 0) && (core_now() < end)) {
        tofu_status_t status = tofu_ep_am_short(ctx->ep[1], 1, 0, NULL, 0);
        CHECK((status == TOFU_OK) || (status == TOFU_ERR_NO_RESOURCE) ||
              (status == TOFU_ERR_ENDPOINT_TIMEOUT));
        tofu_iface_progress(ctx->iface);
    }
    check_failed(ctx);
    check_rank_2_works(ctx);
    leave(ctx);
}

static void killed_receiver(struct ctx *ctx)
{
    killed_receiver_at(ctx, 0);
}

static void killed_before_grant(struct ctx *ctx)
{
    killed_receiver_at(ctx, 1);
}

/* Senders die holding all the slots there are; others get them. */
static void killed_senders(struct ctx *ctx)
{
    tofu_iface_config_t config;
    int                 r, dead = ctx->size / 2;

    tofu_iface_config_default(&config);
    config.rx_slots       = 4; /* two senders at a time */
    config.rx_short_slots = 4;
    core_open(ctx, &config, 0);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
        PROGRESS_UNTIL(ctx, 40, atomic_load(&ctx->shared->word[1]) ==
                                  (uint64_t)(ctx->size - 1 - dead));
        leave(ctx);
        return;
    }
    if (ctx->rank <= dead) {
        /* one message, if it gets that far, then gone without a word */
        double end = core_now() + 0.2;
        while ((core_now() < end) &&
               (tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0) ==
                TOFU_ERR_NO_RESOURCE)) {
            tofu_iface_progress(ctx->iface);
        }
        die();
    }
    core_usleep(100000);
    for (r = 0; r < 50; ++r) {
        PROGRESS_UNTIL(ctx, 40, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0) ==
                                  TOFU_OK);
    }
    core_flush(ctx, ctx->ep[0]);
    atomic_fetch_add(&ctx->shared->word[1], 1);
    PROGRESS_UNTIL(ctx, 40, atomic_load(&ctx->shared->word[1]) ==
                              (uint64_t)(ctx->size - 1 - dead));
    leave(ctx);
}

/* A sender ends in order, with messages and credit on their way: no ep of the
 * receiver fails for what it tells a sender that is not there any more. */
static void orderly_end(struct ctx *ctx)
{
    unsigned i;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    if (ctx->rank == 1) {
        for (i = 0; i < 100; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, i, NULL, 0)));
            if (i == 60) { /* rank 0 has slots of ours, too */
                PROGRESS_UNTIL(ctx, 10, am_seen == 1);
                core_barrier(ctx);
                core_barrier_asleep(ctx);
                i = 90;
            }
        }
        core_flush(ctx, ctx->ep[0]);
        leave(ctx);
        atomic_store(&ctx->shared->word[5], 1);
        return;
    }
    CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 1, 0, NULL, 0)));
    PROGRESS_UNTIL(ctx, 10, am_seen >= 61);
    core_barrier(ctx);
    core_barrier_asleep(ctx);
    while (atomic_load(&ctx->shared->word[5]) == 0) {
        core_usleep(1000);
    }
    core_usleep(100000);
    PROGRESS_UNTIL(ctx, 10, am_seen == 61 + 9);
    for (i = 0; i < 100000; ++i) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK_EQ(ctx->ep_errors, 0);
    leave(ctx);
}

/* Ifaces follow each other on one VCQ ID: none gets what another held. */
static void successors(struct ctx *ctx)
{
    tofu_iface_config_t config;
    tofu_iface_stats_t  stats;
    unsigned            round, i;
    int                 peer = 1 - ctx->rank;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    for (round = 1; round <= 40; ++round) {
        tofu_ep_destroy(ctx->ep[peer]);
        if (ctx->rank == 1) {
            tofu_ep_destroy(ctx->ep[1]);
            tofu_iface_close(ctx->iface);
            tofu_iface_config_default(&config);
            CHECK_OK(tofu_iface_open(ctx->md, &config, &ctx->iface));
            CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
            tofu_iface_get_address(ctx->iface, ctx->shared->rank[1].address);
            CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                                    &ctx->ep[1]));
        }
        core_barrier(ctx);
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[peer].address, 0,
                                &ctx->ep[peer]));
        am_seen = 0;
        core_barrier(ctx);
        for (i = 0; i < 30 + round; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[peer], 1, i, NULL, 0)));
        }
        PROGRESS_UNTIL(ctx, 10, am_seen == 30 + round);
        core_barrier(ctx);
        CHECK_EQ(ctx->ep_errors, 0);
    }
    tofu_iface_get_stats(ctx->iface, &stats);
    CHECK_EQ(stats.dropped, 0);
    core_close(ctx);
}

static int8_t on_nothing(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg, (void)data, (void)length, (void)flags;
    return TOFU_OK;
}

/* A message was not sent: nobody goes on behind the gap that it leaves in the slots, also
 * not by another ep to that peer; by new ones all is well. */
static void not_sent(struct ctx *ctx)
{
    tofu_status_t status;
    tofu_ep_t     *other;
    unsigned      sent = 0, i;

    if (ctx->rank == 0) { /* of messages, and a request for slots */
        CHECK(setenv("UTOFU_EMU_FAULT", "piggyback:after=30:count=1:error=TCQ_OTHER",
                     1) == 0);
    }
    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_nothing, NULL));
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_am, NULL));
    if (ctx->rank == 0) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0, &other));
        while (ctx->ep_errors == 0) {
            status = tofu_ep_am_short(ctx->ep[1], 1, sent, NULL, 0);
            sent  += (status == TOFU_OK);
            CHECK(sent < 100);
            tofu_iface_progress(ctx->iface);
        }
        PROGRESS_UNTIL(ctx, 10, ctx->ep_errors == 2);
        CHECK_EQ(tofu_ep_am_short(other, 1, 0, NULL, 0), TOFU_ERR_IO_ERROR);
        tofu_ep_destroy(other);
        tofu_ep_destroy(ctx->ep[1]);
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0,
                                &ctx->ep[1]));
        for (i = 0; i < 100; ++i) {
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 2, i, NULL, 0)));
        }
        core_flush(ctx, ctx->ep[1]);
        CHECK_EQ(ctx->ep_errors, 2);
    } else {
        PROGRESS_UNTIL(ctx, 20, am_seen == 100);
    }
    core_close(ctx);
}

/* Memory that its owner deregistered: the operation fails, with a notice as the
 * operation's status, without as a failure of the ep; other eps go on. */
static void gone_memory(struct ctx *ctx)
{
    tofu_rkey_t *rkey;
    tofu_mem_t  *memh;
    struct done done;
    size_t      length = 4096;
    void        *address;
    uint64_t    value = 1;
    tofu_iov_t  iov;

    core_open(ctx, NULL, 4096);
    if (ctx->rank == 1) {
        char *memory = calloc(1, 4096);
        CHECK_OK(tofu_mem_reg(ctx->md, memory, 4096, 0, &memh));
        tofu_mkey_pack(memh, ctx->shared->rank[1].rkey);
        ctx->shared->rank[1].base = (uintptr_t)memory;
        core_barrier(ctx);
        CHECK_OK(tofu_mem_dereg(memh));
        core_barrier(ctx);
        core_barrier(ctx);
        for (size_t i = 0; i < 4096; ++i) {
            CHECK_EQ(memory[i], 0); /* nothing came */
        }
        free(memory);
    } else {
        core_barrier(ctx);
        CHECK_OK(tofu_rkey_unpack(ctx->shared->rank[1].rkey, 0, &rkey));
        core_barrier(ctx);
        CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
        memset(address, 1, length);
        iov = (tofu_iov_t){address, 64, memh, 0, 1};
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[1], &iov, 1,
                                              ctx->shared->rank[1].base, rkey,
                                              &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_EQ(done_wait(ctx, &done), TOFU_ERR_IO_ERROR);
        CHECK_EQ(ctx->ep_errors, 0);
        /* the flush tells it once */
        tofu_status_t status;
        while ((status = tofu_ep_flush(ctx->ep[1], 0, NULL)) ==
               TOFU_INPROGRESS) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK_EQ(status, TOFU_ERR_IO_ERROR);
        CHECK_OK(tofu_ep_flush(ctx->ep[1], 0, NULL));
        CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[0], &value, 8,
                                              ctx->shared->rank[0].base,
                                              ctx->rkey[0])));
        core_flush(ctx, ctx->ep[0]);
        /* without a notice there is only the ep to tell */
        CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[1], &value, 8,
                                              ctx->shared->rank[1].base, rkey)));
        PROGRESS_UNTIL(ctx, 5, ctx->ep_errors == 1);
        CHECK(ctx->failed_ep == ctx->ep[1]);
        CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[0], &value, 8,
                                              ctx->shared->rank[0].base,
                                              ctx->rkey[0])));
        core_flush(ctx, ctx->ep[0]);
        tofu_rkey_release(rkey);
        CHECK_OK(tofu_mem_free(memh));
        core_barrier(ctx);
    }
    core_close(ctx);
}

/* --------------------------------------------------------------- forgeries */

/* Rank 1 has slots of rank 0.  Writes into them that are not its next message must
 * be dropped: by another VCQ to the very slot whose turn it is, and by its own to
 * another slot or of a length that does not fit. */
static void forge_lent(struct ctx *ctx, const struct tofu_functions *fn,
                       utofu_vcq_hdl_t foreign, utofu_vcq_id_t target, unsigned stag)
{
    const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
    char                data[32] = {0};
    utofu_stadd_t       slots;

    /* the first waits for slots, and takes a large one */
    CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0)));
    CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0)));
    PROGRESS_UNTIL(ctx, 10, atomic_load(&ctx->shared->word[6]) == 1);
    CHECK_EQ(fn->query_stadd(target, stag, &slots), 0);
    /* nothing else was lent: the loan begins with slot 0, and 1 is next */
    CHECK_EQ(fn->put_piggyback(foreign, target, data, slots + TOFU_AM_SMALL_SIZE,
                               16, 1, flags, NULL), 0);
    CHECK_EQ(fn->put_piggyback(ctx->iface->vcq, target, data,
                               slots + 5 * TOFU_AM_SMALL_SIZE, 16, 1, flags, NULL), 0);
    CHECK_EQ(fn->put_piggyback(ctx->iface->vcq, target, data,
                               slots + TOFU_AM_SMALL_SIZE - 1 - 16, 16, 1, flags, NULL), 0);
    PROGRESS_UNTIL(ctx, 10, atomic_load(&ctx->shared->word[6]) == 2);
}

/* The other side of it. */
static void check_forge_lent(struct ctx *ctx)
{
    tofu_iface_stats_t stats;

    PROGRESS_UNTIL(ctx, 10, am_seen == 2);
    atomic_store(&ctx->shared->word[6], 1);
    do {
        tofu_iface_progress(ctx->iface);
        tofu_iface_get_stats(ctx->iface, &stats);
        CHECK_EQ(am_seen, 2);
    } while (stats.dropped < 3);
    CHECK_EQ(stats.dropped, 3);
    atomic_store(&ctx->shared->word[6], 2);
}

/* Rank 1 writes by uTofu itself what no core would; rank 0 lives on. */
static void forged(struct ctx *ctx)
{
    const struct tofu_functions *fn = &core_backend()->fn;
    tofu_iface_stats_t          stats;
    utofu_vcq_hdl_t             vcq;
    uint64_t                    random = 99, data[4];
    utofu_vcq_id_t              target;
    uint32_t                    incarnation;
    unsigned                    i, stag_of[4] = {0, 1, 2, 3};

    core_open(ctx, NULL, 4096);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    core_barrier(ctx);
    if (ctx->rank == 1) {
        utofu_tni_id_t *tnis;
        size_t         n;

        CHECK_EQ(fn->get_onesided_tnis(&tnis, &n), 0);
        CHECK_EQ(fn->create_vcq(tnis[0], 0, &vcq), 0);
        free(tnis);
        memcpy(&target, ctx->shared->rank[0].address + 8, 8);
        memcpy(&incarnation, ctx->shared->rank[0].address + 32, 4);
        stag_of[TOFU_STAG_SLOTS] = tofu_slots_stag(ctx->iface, 0, incarnation);
        forge_lent(ctx, fn, vcq, target, stag_of[TOFU_STAG_SLOTS]);
        for (i = 0; i < 20000; ++i) {
            utofu_stadd_t stadd;
            unsigned      stag = next_random(&random) % 4;
            uint64_t      span = (stag == TOFU_STAG_SLOTS) ? 4000000 : 4096;
            size_t        len  = 1 + next_random(&random) % 32;
            unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER;
            unsigned k;

            for (k = 0; k < 4; ++k) {
                data[k] = next_random(&random) % 2 ? next_random(&random) :
                                                     i % 2;
            }
            if ((stag == 2) && (i % 3 == 0)) {
                /* a request for slots that looks almost right */
                utofu_vcq_id_t me;
                fn->query_vcq_id(vcq, &me);
                data[0] = next_random(&random) << 32 | 0x75710000ull | (i % 4);
                data[1] = (next_random(&random) << 32) | (i + 1);
                data[2] = (i % 5) ? me : target;
                data[3] = data[0] ^ data[1] ^ data[2] ^ incarnation ^
                          ((uint64_t)(i % 7 == 0) << 40) ^ (i % 11 == 0);
                len     = 32;
                CHECK_EQ(fn->query_stadd(target, 2, &stadd), 0);
                stadd += (next_random(&random) % 64) * 64;
                if (i % 2) {
                    uint64_t claim = me ^ 0x9e3779b97f4a7c15ull;
                    fn->put_piggyback8(vcq, target, claim, stadd, 8, 0, flags,
                                       NULL);
                }
                stadd += 8;
            } else {
                CHECK_EQ(fn->query_stadd(target, stag_of[stag], &stadd), 0);
                stadd += next_random(&random) % (span - 32);
            }
            if (i % 4) {
                flags |= UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
            }
            while (fn->put_piggyback(vcq, target, data, stadd, len,
                                     next_random(&random) & 0xff, flags,
                                     NULL) == UTOFU_ERR_BUSY) {
                void *cbdata;
                fn->poll_tcq(vcq, 0, &cbdata);
            }
            if (i % 64 == 0) {
                struct utofu_mrq_notice notice;
                void                    *cbdata;
                while (fn->poll_tcq(vcq, 0, &cbdata) != UTOFU_ERR_NOT_FOUND) {
                }
                while (fn->poll_mrq(vcq, 0, &notice) != UTOFU_ERR_NOT_FOUND) {
                }
                atomic_store(&ctx->shared->word[3], i);
                while (atomic_load(&ctx->shared->word[4]) < i) {
                }
            }
        }
        atomic_store(&ctx->shared->word[3], ~0ull);
    } else {
        uint64_t at;
        check_forge_lent(ctx);
        while ((at = atomic_load(&ctx->shared->word[3])) != ~0ull) {
            unsigned k;
            for (k = 0; k < 100; ++k) {
                tofu_iface_progress(ctx->iface);
            }
            atomic_store(&ctx->shared->word[4], at);
        }
        for (i = 0; i < 100; ++i) {
            tofu_iface_progress(ctx->iface);
        }
        tofu_iface_get_stats(ctx->iface, &stats);
        CHECK(stats.dropped > 1000);
        CHECK_EQ(am_seen, 2);
    }
    /* real messages still come: the forger wrote into slots, not into accounts.
     * (Entries that it claimed are its own, and alive, as long as it is.) */
    core_barrier(ctx);
    if (ctx->rank == 1) {
        CHECK_EQ(fn->free_vcq(vcq), 0);
        for (i = 0; i < 100; ++i) {
            PROGRESS_UNTIL(ctx, 20, tofu_ep_am_short(ctx->ep[0], 1, 0, NULL, 0) ==
                                      TOFU_OK);
        }
    } else {
        PROGRESS_UNTIL(ctx, 20, am_seen == 102);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Packed rkeys and addresses: cut, bits flipped, random. */
static void fuzz(struct ctx *ctx)
{
    uint64_t          random = 5;
    tofu_md_attr_t    md_attr;
    tofu_iface_attr_t attr;
    uint8_t           good_rkey[BLOB], good_address[BLOB], device[BLOB];
    char              reason[128];
    tofu_rkey_t       *rkey;
    tofu_ep_t         *ep;
    unsigned          i, k, bad = 0;
    size_t            n;

    core_open(ctx, NULL, 1 << 20); /* so large that its rkey names all TNIs */
    tofu_md_query(ctx->md, &md_attr);
    tofu_iface_query(ctx->iface, &attr);
    memcpy(good_rkey, ctx->shared->rank[0].rkey, BLOB);
    memcpy(good_address, ctx->shared->rank[0].address, BLOB);
    memcpy(device, ctx->shared->rank[0].device, BLOB);
    for (n = 1; n < md_attr.rkey_packed_size; ++n) {
        CHECK_EQ(tofu_rkey_unpack(good_rkey, n, &rkey), TOFU_ERR_INVALID_PARAM);
    }
    for (n = 1; n < BLOB; ++n) {
        if (n == attr.iface_addr_len) {
            continue;
        }
        CHECK(tofu_ep_create(ctx->iface, good_address, n, &ep) < 0);
        CHECK(!tofu_iface_is_reachable(ctx->iface, device, 0, good_address, n,
                                       reason, sizeof(reason)));
        CHECK(reason[0] != '\0');
    }
    CHECK(!tofu_iface_is_reachable(ctx->iface, device, 5, good_address, 0,
                                   reason, sizeof(reason)));
    for (i = 0; i < 8 * md_attr.rkey_packed_size; ++i) { /* each single bit */
        uint8_t bytes[BLOB];
        memcpy(bytes, good_rkey, BLOB);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        CHECK_EQ(tofu_rkey_unpack(bytes, 0, &rkey), TOFU_ERR_INVALID_PARAM);
    }
    for (i = 0; i < 8 * attr.iface_addr_len; ++i) {
        uint8_t bytes[BLOB];
        memcpy(bytes, good_address, BLOB);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        CHECK(tofu_ep_create(ctx->iface, bytes, 0, &ep) < 0);
        CHECK(!tofu_iface_is_reachable(ctx->iface, device, 0, bytes, 0, NULL,
                                       0));
    }
    for (i = 0; i < 8 * attr.device_addr_len; ++i) {
        uint8_t bytes[BLOB];
        memcpy(bytes, device, BLOB);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        CHECK(!tofu_iface_is_reachable(ctx->iface, bytes, 0, good_address, 0,
                                       reason, sizeof(reason)));
    }
    for (i = 0; i < 5000; ++i) {
        uint8_t bytes[BLOB];
        for (k = 0; k < BLOB; ++k) {
            bytes[k] = (uint8_t)next_random(&random);
        }
        if (i % 2) {
            memcpy(bytes, (i % 4 == 1) ? good_rkey : good_address, 6);
        }
        bad += tofu_rkey_unpack(bytes, 0, &rkey) != TOFU_OK;
        bad += tofu_ep_create(ctx->iface, bytes, 0, &ep) != TOFU_OK;
        bad += !tofu_iface_is_reachable(ctx->iface, bytes, 0, bytes, 0, reason,
                                        sizeof(reason));
    }
    CHECK_EQ(bad, 15000);
    CHECK_OK(tofu_rkey_unpack(good_rkey, 0, &rkey));
    tofu_rkey_release(rkey);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"killed_target", 3, 60, killed_target, 2},
        {"killed_silent", 3, 60, killed_silent, 2},
        {"killed_idle", 3, 60, killed_idle, 2},
        {"never_there", 3, 60, never_there, 0},
        {"killed_receiver", 3, 60, killed_receiver, 2},
        {"killed_before_grant", 3, 60, killed_before_grant, 2},
        {"killed_senders", 9, 60, killed_senders, 0x1e},
        {"orderly_end", 2, 30, orderly_end, 0},
        {"successors", 2, 60, successors, 0},
        {"not_sent", 2, 40, not_sent, 0},
        {"gone_memory", 2, 30, gone_memory, 0},
        {"forged", 2, 60, forged, 0},
        {"fuzz", 1, 30, fuzz, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
