/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * killed.c - a sender is killed at a step of the protocol: before its AM_KILL_AT-th
 * uTofu operation, or right after it.  Two other senders go on, and the receiver
 * gets back what it had lent.
 *
 * The steps are counted in the functions that the sender's iface calls: the claim of
 * an entry, the request, small and large messages, the release of the slots.
 */
#include "am_test.h"

#include <tofu_internal.h>
#include <tofu_am.h>

#define VICTIM 1

static struct tofu_functions real;
static unsigned              step, kill_at, kill_after;

static struct shared *shared;

static void die(void)
{
    atomic_store(&shared->word[1], 1);
    kill(getpid(), SIGKILL);
}

static void before_post(void)
{
    if ((++step == kill_at) && !kill_after) {
        die();
    }
}

static int after_post(int ret)
{
    if ((step == kill_at) && kill_after) {
        die();
    }
    return ret;
}

static int my_cswap8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint64_t old_value,
                     uint64_t new_value, utofu_stadd_t where, uint64_t edata,
                     unsigned long flags, void *cbdata)
{
    before_post();
    return after_post(real.cswap8(vcq, to, old_value, new_value, where, edata,
                                  flags, cbdata));
}

static int my_piggyback(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, void *data,
                        utofu_stadd_t where, size_t length, uint64_t edata,
                        unsigned long flags, void *cbdata)
{
    before_post();
    return after_post(real.put_piggyback(vcq, to, data, where, length, edata,
                                         flags, cbdata));
}

static int my_piggyback8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint64_t data,
                         utofu_stadd_t where, size_t length, uint64_t edata,
                         unsigned long flags, void *cbdata)
{
    before_post();
    return after_post(real.put_piggyback8(vcq, to, data, where, length, edata,
                                          flags, cbdata));
}

static int my_put(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, utofu_stadd_t from,
                  utofu_stadd_t where, size_t length, uint64_t edata,
                  unsigned long flags, void *cbdata)
{
    before_post();
    return after_post(real.put(vcq, to, from, where, length, edata, flags,
                               cbdata));
}

static uint64_t next_of[MAX_RANKS];

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    struct am_head head = am_check(data, length);

    (void)arg;
    (void)flags;
    CHECK(head.from < MAX_RANKS);
    CHECK_EQ(head.number, next_of[head.from]);
    ++next_of[head.from];
    return TOFU_OK;
}

/* Message `number` by one of the three ways, in turn. */
static tofu_status_t try_send(struct ctx *ctx, unsigned number, char *buffer,
                              tofu_mem_t *memh, struct done *done)
{
    size_t          length = (number % 3 == 0) ? 24 : 700;
    uint64_t        word   = am_head((unsigned)ctx->rank, number);
    struct am_bytes bytes  = {buffer, length};
    tofu_iov_t      iov[2] = {{buffer + 8, 1500, memh, 0, 1},
                              {buffer + 1508, 500, memh, 0, 1}};
    intptr_t        ret;

    switch (number % 3) {
    case 0:
        am_make(buffer, length, word);
        return tofu_ep_am_short(ctx->ep[0], 1, word, buffer + 8,
                                (unsigned)length - 8);
    case 1:
        am_make(buffer, length, word);
        ret = tofu_ep_am_bcopy(ctx->ep[0], 1, am_pack, &bytes);
        return (ret >= 0) ? TOFU_OK : (tofu_status_t)ret;
    default:
        am_make(buffer, 2008, word);
        done_init(done);
        return tofu_ep_am_zcopy(ctx->ep[0], 1, buffer, 8, iov, 2, &done->comp);
    }
}

static void send_messages(struct ctx *ctx, unsigned first, unsigned n)
{
    size_t        length = 4096;
    void          *buffer;
    tofu_mem_t    *memh;
    struct done   done;
    tofu_status_t status;
    unsigned      i;

    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &buffer, &memh));
    for (i = first; i < first + n; ++i) {
        WAIT_FOR(ctx, 30, (status = try_send(ctx, i, buffer, memh, &done)) !=
                                  TOFU_ERR_NO_RESOURCE);
        if (status == TOFU_INPROGRESS) {
            WAIT_FOR(ctx, 30, done.called == 1);
            status = done.comp.status;
        }
        CHECK_OK(status);
    }
    core_flush(ctx, ctx->ep[0]);
    CHECK_OK(tofu_mem_free(memh));
}

/* Slots of the receiver that are not lent are all there are. */
static int pools_full(const tofu_iface_t *iface)
{
    const tofu_am_t *am = iface->am;

    return (am->pool[TOFU_AM_SMALL].free == am->pool[TOFU_AM_SMALL].count) &&
           (am->pool[TOFU_AM_LARGE].free == am->pool[TOFU_AM_LARGE].count);
}

/* What each side thinks that it lent and was lent, for a failure's message. */
static void tell(const struct ctx *ctx)
{
    const tofu_iface_t *iface = ctx->iface;
    size_t             i;

    fprintf(stderr, "rank %d, VCQ %#llx: free slots %u, %u; waiting requests %d, "
            "short %d\n",
            ctx->rank, (unsigned long long)iface->vcq_id, iface->am->pool[0].free,
            iface->am->pool[1].free,
            !tofu_list_empty(&iface->am->jobs), iface->am->short_of_slots);
    for (i = 0; i < iface->max_peers; ++i) {
        const tofu_peer_t *peer = iface->peers[i];

        if ((peer != NULL) && (peer->lender != NULL)) {
            fprintf(stderr, "  lent to %#llx: dead %d gone %d depth %u\n",
                    (unsigned long long)peer->vcq_id, peer->lender->dead,
                    peer->lender->gone, peer->lender->depth);
        }
        if ((peer != NULL) && (peer->chan != NULL)) {
            fprintf(stderr, "  to %#llx: state %d request %d want %d refs %u, "
                    "listed %d, since %lld ms\n",
                    (unsigned long long)peer->vcq_id, peer->chan->state,
                    peer->chan->request, peer->chan->want, peer->chan->refs,
                    !tofu_list_empty(&peer->chan->all),
                    (long long)(iface->now_ms - peer->chan->since_ms));
        }
    }
}

static int table_empty(const tofu_iface_t *iface)
{
    unsigned i;

    for (i = 0; i < TOFU_REQUEST_ENTRIES; ++i) {
        if (atomic_load(&iface->am->table[i].claim) != 0) {
            return 0;
        }
    }
    return 1;
}

static void victim(struct ctx *ctx)
{
    shared                        = ctx->shared;
    real                          = ctx->iface->fn;
    ctx->iface->fn.cswap8         = my_cswap8;
    ctx->iface->fn.put_piggyback  = my_piggyback;
    ctx->iface->fn.put_piggyback8 = my_piggyback8;
    ctx->iface->fn.put            = my_put;
    send_messages(ctx, 0, 9);
    /* give the slots back, which is steps too */
    tofu_ep_destroy(ctx->ep[0]);
    ctx->ep[0] = NULL;
    double end = core_now() + 1;
    while (core_now() < end) {
        core_idle(ctx->iface);
    }
    fprintf(stderr, "the victim did all of its %u steps\n", step);
    if (step >= kill_at) {
        FAIL("it should not live any more");
    }
    atomic_store(&ctx->shared->word[1], 1);
    kill(getpid(), SIGKILL);
}

static int holds(const struct ctx *ctx, int r)
{
    return ctx->ep[r]->peer->lender != NULL;
}

/* All slots there are fit two holders.  So both survivors have some at one time
 * only when what the dead one held, and the entry it had claimed, came back. */
static void receiver(struct ctx *ctx)
{
    tofu_iface_stats_t stats;
    double             begin, back;
    int                r;

    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    core_barrier(ctx);
    begin = core_now();
    WAIT_FOR(ctx, 40, atomic_load(&ctx->shared->word[1]) == 1);
    WAIT_FOR(ctx, 20, (next_of[2] > 200) && (next_of[3] > 200));
    WAIT_FOR(ctx, 5, !holds(ctx, VICTIM) && holds(ctx, 2) && holds(ctx, 3));
    WAIT_FOR(ctx, 5, table_empty(ctx->iface));
    back = core_now() - begin;
    atomic_store(&ctx->shared->word[2], 1);
    WAIT_FOR(ctx, 20, atomic_load(&ctx->shared->word[4]) == 2);
    for (begin = core_now(); !pools_full(ctx->iface);) {
        core_idle(ctx->iface);
        if (core_now() - begin > 10) {
            tell(ctx);
            atomic_store(&ctx->shared->word[5], 2);
            core_usleep(500000);
            FAIL("what was lent did not come back");
        }
    }
    atomic_store(&ctx->shared->word[5], 1);
    for (r = 2; r < ctx->size; ++r) {
        CHECK_EQ(next_of[r], atomic_load(&ctx->shared->word[10 + r]));
    }
    tofu_iface_get_stats(ctx->iface, &stats);
    CHECK_EQ(stats.dropped, 0);
    printf("step %u%s: %llu messages of the dead one, back after %.2f s\n",
           kill_at, kill_after ? "+" : "", (unsigned long long)next_of[VICTIM],
           back);
}

static void survivor(struct ctx *ctx)
{
    unsigned n = 0;

    while (atomic_load(&ctx->shared->word[2]) == 0) {
        send_messages(ctx, n, 3);
        n += 3;
    }
    atomic_store(&ctx->shared->word[10 + ctx->rank], n);
    tofu_ep_destroy(ctx->ep[0]); /* which gives its slots back */
    ctx->ep[0] = NULL;
    atomic_fetch_add(&ctx->shared->word[4], 1);
    WAIT_FOR(ctx, 40, atomic_load(&ctx->shared->word[5]) != 0);
    if (atomic_load(&ctx->shared->word[5]) == 2) {
        tell(ctx);
    }
}

static void killed(struct ctx *ctx)
{
    tofu_iface_config_t config;

    kill_at    = am_setting("AM_KILL_AT", 1);
    kill_after = am_setting("AM_KILL_AFTER", 0);
    tofu_iface_config_default(&config);
    config.rx_slots       = 4; /* two holders at a time */
    config.rx_short_slots = 4;
    core_open(ctx, &config, 0);
    if (ctx->rank == 0) {
        receiver(ctx);
    } else {
        core_barrier(ctx);
        if (ctx->rank == VICTIM) {
            victim(ctx);
        }
        survivor(ctx);
    }
    am_leave(ctx);
}

/* Nobody else wants its slots, and nothing is put to it: they come back all the same. */
static void silent(struct ctx *ctx)
{
    core_open(ctx, NULL, 0);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    }
    core_barrier(ctx);
    if (ctx->rank == 1) {
        send_messages(ctx, 0, 3);
        shared = ctx->shared;
        die();
    }
    WAIT_FOR(ctx, 20, atomic_load(&ctx->shared->word[1]) == 1);
    WAIT_FOR(ctx, 20, next_of[1] == 3);
    WAIT_FOR(ctx, 20, pools_full(ctx->iface));
    am_leave(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {{"killed", 4, 100, killed, 2},
                                             {"silent", 2, 60, silent, 2}};

    setvbuf(stdout, NULL, _IOLBF, 0);
    return core_main(argc, argv, cases, 2);
}
