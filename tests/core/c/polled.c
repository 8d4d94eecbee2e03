/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages without a notice: their order among all others, who may send them and for
 * how long, and what strangers and deaths do to them.
 */
#include "core_test.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <tofu_internal.h>
#include <tofu_am.h>
#include <tofu_look.h>

#define ID   6
#define ROOM 1500u

static uint64_t next_of[MAX_RANKS], received;
static int      depth, max_depth; /* handlers in which progress may be called */
static unsigned nested;

struct head {
    uint64_t from : 8, number : 56;
};

static struct ctx *of_handler;
static uint64_t   held_at = ~0ull; /* the handler of this message calls progress */

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    struct head head;
    uint64_t    word;
    unsigned    i;

    (void)arg;
    (void)flags;
    CHECK(length >= sizeof(word));
    memcpy(&word, data, sizeof(word));
    memcpy(&head, data, sizeof(head));
    CHECK(head.from < MAX_RANKS);
    if (head.number != next_of[head.from]) {
        FAIL("message %llu from %u, expected %llu",
             (unsigned long long)head.number, (unsigned)head.from,
             (unsigned long long)next_of[head.from]);
    }
    ++next_of[head.from];
    ++received;
    if (depth < max_depth) {
        ++depth;
        nested += depth > 1;
        for (i = 0; i < 3; ++i) {
            tofu_iface_progress(of_handler->iface);
        }
        --depth;
    }
    for (i = 0; (head.number == held_at) && (i < 2 * TOFU_POLLED_SKIP); ++i) {
        tofu_iface_progress(of_handler->iface);
    }
    /* after what came meanwhile: it is not written over */
    CHECK(matches((char *)data + 8, length - 8, word * 7919));
    return TOFU_OK;
}

struct bytes {
    const void *data;
    size_t     length;
};

static size_t pack(void *dest, void *arg)
{
    const struct bytes *bytes = arg;

    memcpy(dest, bytes->data, bytes->length);
    return bytes->length;
}

/* Send message `number` of this rank; NO_RESOURCE: not now. */
static tofu_status_t try_send(struct ctx *ctx, int to, uint64_t number,
                              size_t length)
{
    struct head  head = {.from = (uint64_t)ctx->rank, .number = number};
    char         buffer[ROOM];
    struct bytes bytes = {buffer, length};
    uint64_t     word;
    intptr_t     ret;

    memcpy(&word, &head, sizeof(word));
    memcpy(buffer, &word, sizeof(word));
    fill(buffer + 8, length - 8, word * 7919);
    ret = ((length <= 32) || ((length <= TOFU_POLLED_BYTES) && (number % 2))) ?
                  tofu_ep_am_short(ctx->ep[to], ID, word, buffer + 8,
                                   (unsigned)length - 8) :
                  tofu_ep_am_bcopy(ctx->ep[to], ID, pack, &bytes);
    return (ret >= 0) ? TOFU_OK : (tofu_status_t)ret;
}

static void send_message(struct ctx *ctx, int to, uint64_t number, size_t length)
{
    tofu_status_t status;

    while ((status = try_send(ctx, to, number, length)) == TOFU_ERR_NO_RESOURCE) {
        if (tofu_iface_progress(ctx->iface) == 0) {
            sched_yield();
        }
    }
    CHECK_OK(status);
}

static void open_all(struct ctx *ctx, const tofu_iface_config_t *config)
{
    of_handler = ctx;
    core_open(ctx, config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, ID, on_message, NULL));
    core_barrier(ctx);
}

/* Who may not map the slots sends messages of 25 to 32 bytes with a notice. */
static const tofu_iface_config_t *with_notices(void)
{
    static tofu_iface_config_t config;

    tofu_iface_config_default(&config);
    config.am_in_place = 0;
    return &config;
}

/* Small messages from rank 1 to rank 0 until they come without notices; how many. */
static uint64_t warm_up(struct ctx *ctx, uint64_t number)
{
    _Atomic uint64_t *polled = &ctx->shared->word[60];

    if (ctx->rank == 1) {
        while (!atomic_load(polled)) {
            send_message(ctx, 0, number++, 8);
        }
        atomic_store(&ctx->shared->word[61], number);
        core_flush(ctx, ctx->ep[0]);
    } else {
        WAIT_FOR(ctx, 40, stats_of(ctx).am_polled > 0);
        atomic_store(polled, 1);
    }
    core_barrier(ctx);
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, next_of[1] == atomic_load(&ctx->shared->word[61]));
    }
    core_barrier(ctx);
    return atomic_load(&ctx->shared->word[61]);
}

/* On from there, until rank 1 may send so many more without waiting for credit. */
static uint64_t make_room(struct ctx *ctx, uint64_t n, uint32_t messages)
{
    tofu_chan_t *chan;

    if (ctx->rank == 1) {
        chan = ctx->ep[0]->chan;
        do {
            send_message(ctx, 0, n++, 8);
        } while ((chan->cls[TOFU_AM_SMALL].left < messages) ||
                 !(chan->turn & TOFU_TAIL_KEY));
        atomic_store(&ctx->shared->word[61], n);
    }
    core_barrier(ctx);
    n = atomic_load(&ctx->shared->word[61]);
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, next_of[1] == n);
    }
    core_barrier(ctx);
    return n;
}

static tofu_lender_t *lender_of(struct ctx *ctx, int rank)
{
    utofu_vcq_id_t vcq_id;
    tofu_peer_t    *peer;
    size_t         i;

    memcpy(&vcq_id, ctx->shared->rank[rank].address + 8, 8);
    for (i = 0; i < ctx->iface->max_peers; ++i) {
        peer = ctx->iface->peers[i];
        if ((peer != NULL) && (peer->vcq_id == vcq_id)) {
            return peer->lender;
        }
    }
    return NULL;
}

/* -------------------------------------------------------------------- cases */

static size_t random_length(uint64_t *random)
{
    uint64_t r = next_random(random);

    switch (r % 16) {
    case 0:
        return TOFU_POLLED_BYTES + 1 + (r >> 8) % (ROOM - TOFU_POLLED_BYTES - 1);
    case 1:
    case 2:
        return 25 + (r >> 8) % 8; /* with a notice, but where the slot is mapped */
    case 3:
    case 4:
    case 5:
        return 33 + (r >> 8) % (TOFU_POLLED_BYTES - 32); /* from a bounce buffer, or there */
    default:
        return 8 + (r >> 8) % 17;
    }
}

/* A permit is for who can use it: messages of all lengths up to TOFU_POLLED_BYTES but
 * those that are a piggyback without room for a tail; these as well from when the slots are
 * mapped, where they are (in_place.c). */
static void useful(struct ctx *ctx)
{
    static const size_t lengths[] = {8, 24, 32, 33, 100, TOFU_POLLED_BYTES,
                                     TOFU_POLLED_BYTES + 1};
    const uint64_t      messages = 1000;
    uint64_t            before = 0, polled;
    unsigned            i;
    uint64_t            n = 0, end;
    int                 is_of_use, may_be;

    open_all(ctx, NULL);
    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        is_of_use = (lengths[i] <= 24) ||
                    ((lengths[i] > 32) && (lengths[i] <= TOFU_POLLED_BYTES));
        may_be    = is_of_use || ((lengths[i] == 32) && ctx->iface->am->small_in_place);
        for (end = n + messages; n < end; ++n) {
            if (ctx->rank == 1) {
                send_message(ctx, 0, n, lengths[i]);
            }
        }
        if (ctx->rank == 0) {
            WAIT_FOR(ctx, 40, next_of[1] == n);
            polled = stats_of(ctx).am_polled - before;
            if (is_of_use && (polled < messages / 2)) {
                FAIL("of %llu messages of %zu bytes only %llu came without a notice",
                     (unsigned long long)messages, lengths[i],
                     (unsigned long long)polled);
            }
            before += polled;
            CHECK(may_be || (polled == 0));
            /* the next ones begin without */
            WAIT_FOR(ctx, 40, ctx->iface->num_polled == 0);
        }
        core_barrier(ctx);
    }
    CHECK_EQ(stats_of(ctx).dropped, 0);
    core_barrier(ctx);
    core_close(ctx);
}

/* All kinds mixed between two that send and receive, with small and large rings. */
static void mixed(struct ctx *ctx)
{
    const uint64_t      messages = 40000;
    tofu_iface_config_t config;
    tofu_iface_stats_t  stats;
    uint64_t            random = (uint64_t)ctx->rank, i;
    int                 peer   = !ctx->rank;

    tofu_iface_config_default(&config);
    if (getenv("POLLED_SLOTS") != NULL) {
        config.rx_short_slots = (unsigned)atoi(getenv("POLLED_SLOTS"));
        config.rx_slots       = config.rx_short_slots;
    }
    open_all(ctx, &config);
    for (i = 0; i < messages; ++i) {
        send_message(ctx, peer, i, random_length(&random));
        if (next_random(&random) % 64 == 0) {
            WAIT_FOR(ctx, 40, received > i / 2); /* now and then in step */
        }
    }
    WAIT_FOR(ctx, 40, received == messages);
    stats = stats_of(ctx);
    CHECK_EQ(stats.am_rx, messages);
    CHECK_EQ(stats.dropped, 0);
    if (stats.am_polled < messages / 4) {
        FAIL("%llu messages came without a notice, of %llu",
             (unsigned long long)stats.am_polled, (unsigned long long)messages);
    }
    CHECK(stats.am_polled < messages);
    core_barrier(ctx);
    core_close(ctx);
}

/* The count of messages goes round its 30 bits. */
static void wrap(struct ctx *ctx)
{
    const uint64_t after = ((1ull << 30) - 300) << TOFU_TAIL_TURN_SHIFT;
    uint64_t       random = 5, i, n, polled;

    open_all(ctx, NULL);
    n      = warm_up(ctx, 0);
    polled = stats_of(ctx).am_polled;
    if (ctx->rank == 0) {
        lender_of(ctx, 1)->turn        += after;
        lender_of(ctx, 1)->polled_turn += after;
    } else {
        ctx->ep[0]->chan->turn += after;
    }
    core_barrier(ctx);
    for (i = 0; (ctx->rank == 1) && (i < 2000); ++i) {
        send_message(ctx, 0, n + i, random_length(&random));
    }
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, next_of[1] == n + 2000);
        CHECK_EQ(stats_of(ctx).dropped, 0);
        CHECK(stats_of(ctx).am_polled - polled > 1000);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Off: all have notices. */
static void off(struct ctx *ctx)
{
    tofu_iface_config_t config;
    tofu_iface_t        *iface;
    uint64_t            i;

    tofu_iface_config_default(&config);
    config.am_polled = 0;
    open_all(ctx, &config);
    for (i = 0; (ctx->rank == 1) && (i < 3000); ++i) {
        send_message(ctx, 0, i, 8);
    }
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, received == 3000);
        CHECK_EQ(stats_of(ctx).am_polled, 0);
        CHECK_EQ(ctx->iface->num_polled, 0);
    }
    config.am_polled = TOFU_AM_MAX_POLLED + 1;
    CHECK_EQ(tofu_iface_open(ctx->md, &config, &iface), TOFU_ERR_INVALID_PARAM);
    core_barrier(ctx);
    core_close(ctx);
}

/* Handlers call progress, in which handlers call progress. */
static void inside(struct ctx *ctx)
{
    const uint64_t messages = 30000;
    uint64_t       random   = 77, i;

    max_depth = 4;
    open_all(ctx, NULL);
    for (i = 0; (ctx->rank == 1) && (i < messages); ++i) {
        send_message(ctx, 0, i, random_length(&random));
    }
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, received == messages);
        CHECK_EQ(stats_of(ctx).dropped, 0);
        CHECK(stats_of(ctx).am_polled > messages / 8);
        CHECK(nested > 0);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* A notice waits for messages before it, in whose handlers later notices are read. */
static void held(struct ctx *ctx)
{
    uint64_t n, i;

    open_all(ctx, with_notices());
    n = make_room(ctx, warm_up(ctx, 0), 30);
    if (ctx->rank == 1) {
        for (i = 0; i < 26; ++i) { /* without, but 21, 23, 24 */
            CHECK_OK(try_send(ctx, 0, n + i,
                              (i == 21) || (i == 23) || (i == 24) ? 32 : 8));
        }
        core_flush(ctx, ctx->ep[0]);
        atomic_store(&ctx->shared->word[1], 1);
    } else {
        while (atomic_load(&ctx->shared->word[1]) == 0) {
            sched_yield();
        }
        held_at            = n + 17; /* behind what one call delivers */
        ctx->iface->calls |= TOFU_POLLED_SKIP - 1;
        tofu_iface_progress(ctx->iface); /* so it reads the MRQ, too */
        CHECK_EQ(next_of[1], n + 26);
        CHECK_EQ(stats_of(ctx).dropped, 0);
    }
    core_barrier(ctx);
    core_close(ctx);
}

static uint64_t     fetched[2];
static struct done  fetch_done[2];
static unsigned     fetches;

/* A fetching atomic on rank r's window. */
static void fetch(int r)
{
    struct ctx    *ctx = of_handler;
    tofu_status_t status;

    done_init(&fetch_done[fetches]);
    status = tofu_ep_atomic_fetch(ctx->ep[r], TOFU_ATOMIC_ADD, 8, 1,
                                  &fetched[fetches], ctx->shared->rank[r].base,
                                  ctx->rkey[r], &fetch_done[fetches].comp);
    if (status == TOFU_OK) {
        fetch_done[fetches].called = 1;
    } else {
        CHECK_EQ(status, TOFU_INPROGRESS);
    }
    ++fetches;
}

/* Calls progress, which handles the notice that waits for this message, and posts: by
 * that another notice is taken from the MRQ, and waits in the same place. */
static int8_t on_fetch(void *arg, void *data, size_t length, unsigned flags)
{
    int8_t   ret = on_message(arg, data, length, flags);
    unsigned i;

    if ((held_at == 0) || (next_of[1] != held_at)) {
        return ret;
    }
    for (i = 0; i < 2 * TOFU_POLLED_SKIP; ++i) {
        tofu_iface_progress(of_handler->iface);
    }
    CHECK(next_of[1] > held_at);
    of_handler->iface->early_skip = 1;
    fetch(1);
    core_usleep(5000); /* where notices come late */
    of_handler->iface->early_skip = 0;
    fetch(0); /* finds the notice of the other one, ... */
    if ((getenv("UTOFU_EMU_STRICT") == NULL) && (getenv("UTOFU_EMU_TIMING") == NULL)) {
        CHECK(of_handler->iface->stashed); /* ... which may be later still there */
    }
    return ret;
}

/* A notice that waited is handled inside, and another one waits afterwards. */
static void posted(struct ctx *ctx)
{
    uint64_t n, i;

    of_handler = ctx;
    core_early = 1;
    held_at    = 0;
    core_open(ctx, with_notices(), 65536);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, ID, on_fetch, NULL));
    core_barrier(ctx);
    n = make_room(ctx, warm_up(ctx, 0), 30);
    if (ctx->rank == 1) {
        for (i = 0; i < 21; ++i) {
            CHECK_OK(try_send(ctx, 0, n + i, (i == 20) ? 32 : 8));
        }
        core_flush(ctx, ctx->ep[0]);
        atomic_store(&ctx->shared->word[1], 1);
    } else {
        while (atomic_load(&ctx->shared->word[1]) == 0) {
            sched_yield();
        }
        held_at            = n + 18; /* behind what one call delivers */
        ctx->iface->calls |= TOFU_POLLED_SKIP - 1;
        tofu_iface_progress(ctx->iface); /* so it reads the MRQ, too */
        CHECK_EQ(next_of[1], n + 21);
        CHECK_EQ(fetches, 2);
        for (i = 0; i < 2; ++i) {
            WAIT_FOR(ctx, 40, fetch_done[i].called == 1);
            CHECK_OK(fetch_done[i].comp.status);
        }
        CHECK_EQ(stats_of(ctx).dropped, 0);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* A permit that is not used comes back, and is given again. */
static void silent(struct ctx *ctx)
{
    uint64_t n, polled;
    int      round, lived = 0;

    open_all(ctx, NULL);
    n = warm_up(ctx, 0);
    for (round = 0; round < 3; ++round) {
        if (ctx->rank == 0) {
            CHECK(ctx->iface->num_polled <= 1);
            WAIT_FOR(ctx, 40, ctx->iface->num_polled == 0); /* its tick answers */
            lived += lender_of(ctx, 1) != NULL;
            CHECK_EQ(stats_of(ctx).dropped, 0);
        }
        core_barrier(ctx);
        polled = stats_of(ctx).am_polled;
        atomic_store(&ctx->shared->word[60], 0);
        core_barrier(ctx);
        if (ctx->rank == 1) {
            CHECK_EQ(ctx->ep[0]->chan->turn & TOFU_TAIL_KEY, 0);
            while (!atomic_load(&ctx->shared->word[60])) {
                send_message(ctx, 0, n++, 8);
            }
            atomic_store(&ctx->shared->word[61], n);
        } else {
            WAIT_FOR(ctx, 40, stats_of(ctx).am_polled > polled);
            atomic_store(&ctx->shared->word[60], 1);
        }
        core_barrier(ctx);
        n = atomic_load(&ctx->shared->word[61]);
        if (ctx->rank == 0) {
            WAIT_FOR(ctx, 40, next_of[1] == n);
        }
    }
    /* not because the loan ended, as it does after a second */
    CHECK((ctx->rank == 1) || (lived > 0));
    core_barrier(ctx);
    core_close(ctx);
}

/* More that are busy than may leave out notices. */
static void crowded(struct ctx *ctx)
{
    const uint64_t messages = 6000;
    uint64_t       random   = (uint64_t)ctx->rank, i;
    uint32_t       most     = 0;
    double         end      = core_now() + 60;

    open_all(ctx, NULL);
    for (i = 0; (ctx->rank > 0) && (i < messages); ++i) {
        send_message(ctx, 0, i, random_length(&random));
    }
    while ((ctx->rank == 0) &&
           (received < messages * (unsigned)(ctx->size - 1))) {
        if (tofu_iface_progress(ctx->iface) == 0) {
            sched_yield();
        }
        if (ctx->iface->num_polled > most) {
            most = ctx->iface->num_polled;
        }
        CHECK(core_now() < end);
    }
    if (ctx->rank == 0) {
        CHECK_EQ(most, TOFU_AM_POLLED);
        CHECK(stats_of(ctx).am_polled > messages / 8);
        CHECK(stats_of(ctx).am_polled < received);
        CHECK_EQ(stats_of(ctx).dropped, 0);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Slots of few go from one to the other, with permits. */
static void turns(struct ctx *ctx)
{
    const uint64_t      messages = 3000;
    tofu_iface_config_t config;
    uint64_t            random = (uint64_t)ctx->rank, i;

    tofu_iface_config_default(&config);
    config.rx_short_slots = 6;
    config.rx_slots       = 6;
    open_all(ctx, &config);
    for (i = 0; (ctx->rank > 0) && (i < messages); ++i) {
        send_message(ctx, 0, i, random_length(&random));
    }
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, received == messages * (unsigned)(ctx->size - 1));
        CHECK_EQ(stats_of(ctx).dropped, 0);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Arm, wait until the permit is back, and from there until it is given again.  rest: us
 * between two calls of progress. */
static void arm_and_wait(struct ctx *ctx, unsigned rest, double *seconds, uint64_t *calls)
{
    tofu_status_t status;
    uint64_t      polled;

    *seconds = core_now();
    while ((status = tofu_iface_event_arm(ctx->iface, 3)) == TOFU_ERR_BUSY) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK_OK(status);
    *calls = ctx->iface->calls;
    WAIT_FOR(ctx, 40, ctx->iface->num_polled == 0);
    polled = stats_of(ctx).am_polled;
    WAIT_FOR(ctx, 40, ((rest == 0) || (core_usleep(rest), 1)) &&
                          (stats_of(ctx).am_polled > polled));
    *seconds = core_now() - *seconds;
    *calls   = ctx->iface->calls - *calls;
}

/* To have a descriptor is not to sleep; to arm it is, for a while, or until its user has
 * made progress so often that it evidently polls. */
static void awake(struct ctx *ctx)
{
    _Atomic uint64_t *stop = &ctx->shared->word[1];
    uint64_t         n, calls;
    double           seconds;
    int              fd;

    open_all(ctx, NULL);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_iface_event_fd(ctx->iface, &fd));
    }
    n = warm_up(ctx, 0); /* with a permit all the same */
    if (ctx->rank == 1) {
        while (atomic_load(stop) == 0) {
            send_message(ctx, 0, n++, 8);
        }
        core_flush(ctx, ctx->ep[0]);
    } else {
        CHECK_EQ(ctx->iface->num_polled, 1);
        arm_and_wait(ctx, 100, &seconds, &calls); /* some hundred calls in 50 ms */
        CHECK(calls < TOFU_PERMIT_AWAKE_CALLS);
        CHECK(seconds > 0.04);
        arm_and_wait(ctx, 0, &seconds, &calls);
        CHECK((calls >= TOFU_PERMIT_AWAKE_CALLS) || (seconds > 0.04));
        atomic_store(stop, 1);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* What was consumed is told after the answer: but it is told, and half a window is left
 * to who is not told. */
static void owed(struct ctx *ctx)
{
    _Atomic uint64_t    *word = ctx->shared->word;
    const tofu_lender_t *lender;
    const tofu_loan_t   *loan;
    uint64_t            n, i, more;
    uint64_t            owing = 0;

    open_all(ctx, NULL);
    n = warm_up(ctx, 0);
    /* messages and answers, until the credit of some was told after the answer */
    for (i = 0; (i % 64 != 0) || (i < 20 * TOFU_AM_MAX_SMALL) || !atomic_load(&word[3]);
         ++i) {
        if (ctx->rank == 1) {
            send_message(ctx, 0, n + i, 8 + i % 17);
            WAIT_FOR(ctx, 40, next_of[0] == i + 1);
        } else {
            WAIT_FOR(ctx, 40, next_of[1] == n + i + 1);
            owing |= !tofu_list_empty(&ctx->iface->am->due);
            if (i % 64 == 63) {
                atomic_store(&word[3], owing);
            }
            send_message(ctx, 1, i, 8);
        }
    }
    n += i;
    if (ctx->rank == 0) {
        lender = ctx->ep[1]->peer->lender;
        loan   = &lender->loan[TOFU_AM_SMALL];
        WAIT_FOR(ctx, 40, tofu_list_empty(&ctx->iface->am->due));
        CHECK_EQ(loan->consumed, loan->arrived);
        CHECK((loan->consumed - loan->reported) * 2 < loan->count);
        atomic_store(&word[1], 1);
        while (atomic_load(&word[1]) == 1) {
            core_usleep(100); /* no progress */
        }
        WAIT_FOR(ctx, 40, next_of[1] >= atomic_load(&word[2]));
    } else {
        WAIT_FOR(ctx, 40, atomic_load(&word[1]) == 1);
        for (more = 0; try_send(ctx, 0, n + more, 8) == TOFU_OK; ++more) {
        }
        CHECK(more * 2 >= TOFU_AM_MAX_SMALL);
        atomic_store(&word[2], n + more);
        atomic_store(&word[1], 2);
        WAIT_FOR(ctx, 40, try_send(ctx, 0, n + more, 8) == TOFU_OK);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* The receiver begins to sleep: permits are asked back, and nobody is late. */
static void asleep(struct ctx *ctx)
{
    unsigned sleeps = 0, late = 0;
    uint64_t n, i, polled = ~0ull;
    double   begin;
    int      fd;

    open_all(ctx, NULL);
    n = warm_up(ctx, 0);
    if (ctx->rank == 1) {
        for (i = 0; i < 1500; ++i) {
            if (i % 50 == 49) {
                core_usleep(300); /* time to fall asleep */
            }
            send_message(ctx, 0, n + i, 8);
            while (atomic_load(&ctx->shared->word[1]) <= i) {
                tofu_iface_progress(ctx->iface);
            }
        }
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    CHECK_OK(tofu_iface_event_fd(ctx->iface, &fd));
    while (next_of[1] < n + 1500) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        tofu_status_t status;

        if ((ctx->iface->num_polled == 0) && (polled == ~0ull)) {
            polled = stats_of(ctx).am_polled; /* from here on none */
        }
        if (tofu_iface_progress(ctx->iface) > 0) {
            atomic_store(&ctx->shared->word[1], next_of[1] - n);
            continue;
        }
        status = tofu_iface_event_arm(ctx->iface, 3);
        if (status == TOFU_ERR_BUSY) {
            continue;
        }
        CHECK_OK(status);
        ++sleeps;
        begin = core_now();
        CHECK_EQ(poll(&p, 1, 20000), 1);
        late += (core_now() - begin > 0.09) &&
                (tofu_iface_progress(ctx->iface) > 0);
        atomic_store(&ctx->shared->word[1], next_of[1] - n);
    }
    CHECK_EQ(ctx->iface->num_polled, 0); /* it was answered, and none is given */
    CHECK_EQ(stats_of(ctx).am_polled, polled);
    CHECK(sleeps > 0);
    CHECK(late < 20);
    core_barrier(ctx);
    core_close(ctx);
}

/* A sender that was permitted neither sends nor makes progress: who waits for it may
 * sleep all the same, and its next message is not lost. */
static void mute(struct ctx *ctx)
{
    struct pollfd p = {.events = POLLIN};
    unsigned      i, late = 0;
    tofu_status_t status;
    tofu_chan_t   *chan;
    uint64_t      n, word;
    double        begin;

    open_all(ctx, NULL);
    n = make_room(ctx, warm_up(ctx, 0), 8);
    if (ctx->rank == 1) {
        chan = ctx->ep[0]->chan;
        word = chan->permit;
        CHECK((chan->turn & TOFU_TAIL_KEY) && (chan->cls[0].left > 7));
        for (i = 0; i < 5; ++i) {
            while (atomic_load(&ctx->shared->word[1]) <= i) {
                sched_yield();
            }
            /* as if it had been held up after it looked; what it looks at may be on its way */
            while ((chan->permit = atomic_load(&chan->mailbox->permit)) == word) {
                sched_yield();
            }
            CHECK(chan->permit != word);
            CHECK_OK(try_send(ctx, 0, n + i, 8));
        }
        chan->permit = word;
        while (atomic_load(&ctx->shared->word[1]) <= 5) {
            sched_yield();
        }
        /* no progress: the message itself answers */
        n += 5;
        CHECK_OK(try_send(ctx, 0, n, 8));
        CHECK_OK(try_send(ctx, 0, n + 1, 8));
        CHECK_EQ(ctx->ep[0]->chan->turn & TOFU_TAIL_KEY, 0);
    } else {
        CHECK_OK(tofu_iface_event_fd(ctx->iface, &p.fd));
        for (i = 0; i < 5; ++i) {
            while ((status = tofu_iface_event_arm(ctx->iface, 3)) ==
                   TOFU_ERR_BUSY) {
                tofu_iface_progress(ctx->iface);
            }
            CHECK_OK(status);
            begin = core_now();
            atomic_store(&ctx->shared->word[1], i + 1);
            CHECK_EQ(poll(&p, 1, 20000), 1);
            late += core_now() - begin > 0.09;
            WAIT_FOR(ctx, 40, next_of[1] == n + i + 1);
        }
        CHECK(late < 5); /* the long timer is 0.1 s */
        CHECK_EQ(ctx->iface->num_polled, 1);
        n += 5;
        atomic_store(&ctx->shared->word[1], 6);
        WAIT_FOR(ctx, 40, next_of[1] == n + 2);
        WAIT_FOR(ctx, 40, ctx->iface->num_polled == 0);
        CHECK_EQ(stats_of(ctx).dropped, 0);
    }
    core_barrier(ctx);
    core_close(ctx);
}

static void leave(struct ctx *ctx)
{
    int r;

    for (r = 0; r < ctx->size; ++r) {
        tofu_ep_destroy(ctx->ep[r]);
    }
    tofu_iface_close(ctx->iface);
    tofu_md_close(ctx->md);
}

/* It dies with messages that nobody has looked at. */
static void killed(struct ctx *ctx)
{
    uint64_t n;
    uint32_t held;
    unsigned i;
    double   end;
    int      fd;

    open_all(ctx, NULL);
    n = make_room(ctx, warm_up(ctx, 0), 3 * TOFU_POLLED_BATCH);
    if (ctx->rank == 1) {
        for (i = 0; try_send(ctx, 0, n + i, 8 + i % 17) == TOFU_OK; ++i) {
        }
        CHECK(i > 2 * TOFU_POLLED_BATCH); /* more than two calls deliver */
        atomic_store(&ctx->shared->word[2], i);
        core_flush(ctx, ctx->ep[0]);
        atomic_store(&ctx->shared->word[1], 1);
        for (;;) {
            pause();
        }
    }
    while (atomic_load(&ctx->shared->word[1]) == 0) {
        sched_yield();
    }
    CHECK_EQ(kill(ctx->shared->rank[1].pid, SIGKILL), 0);
    core_usleep(100000);
    end  = core_now() + 20;
    n   += atomic_load(&ctx->shared->word[2]);
    held = ctx->iface->num_polled; /* not on a machine that is that slow */
    CHECK_OK(tofu_iface_event_fd(ctx->iface, &fd));
    ctx->iface->calls |= TOFU_POLLED_SKIP - 1; /* the first call reads the MRQ */
    /* found dead as the permit is asked back at once: the put fails */
    while (((ctx->iface->num_polled > 0) || (next_of[1] < n)) &&
           (core_now() < end)) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK_EQ(next_of[1], n);
    CHECK_EQ(ctx->iface->num_polled, 0);
    CHECK((held == 0) || (lender_of(ctx, 1) == NULL));
    CHECK_EQ(stats_of(ctx).dropped, 0);
    leave(ctx);
}

static void wait_stopped(pid_t pid)
{
    while (!core_stopped(pid)) {
        sched_yield();
    }
}

/* Rank 1 is stopped, wherever it is, while it has a permit: rank 2 goes on, rank 0 can
 * sleep, and when rank 1 goes on nothing is lost. */
static void stopped(struct ctx *ctx)
{
    _Atomic uint64_t *word = ctx->shared->word;
    struct pollfd    p     = {.events = POLLIN};
    uint64_t         n = 0, before;
    tofu_status_t    status;
    int              round, r;

    open_all(ctx, NULL);
    if (ctx->rank != 0) {
        while (atomic_load(&word[1]) == 0) {
            send_message(ctx, 0, n, 8 + n % 9);
            ++n;
            if (n % 64 == 0) { /* the receiver gets the CPU, too */
                tofu_iface_progress(ctx->iface);
            }
        }
        atomic_store(&word[10 + ctx->rank], n);
        core_flush(ctx, ctx->ep[0]);
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    CHECK_OK(tofu_iface_event_fd(ctx->iface, &p.fd));
    for (round = 0; round < 12; ++round) {
        WAIT_FOR(ctx, 40, (lender_of(ctx, 1) != NULL) &&
                              (lender_of(ctx, 1)->permit == TOFU_PERMIT_GIVEN));
        before = next_of[1];
        WAIT_FOR(ctx, 40, next_of[1] >= before + (unsigned)round * 7);
        CHECK_EQ(kill(ctx->shared->rank[1].pid, SIGSTOP), 0);
        wait_stopped(ctx->shared->rank[1].pid);
        before = next_of[2];
        WAIT_FOR(ctx, 40, next_of[2] >= before + 2000);
        if (round % 3 == 0) { /* long enough to be asked for it */
            WAIT_FOR(ctx, 40, (lender_of(ctx, 1) == NULL) ||
                                  (lender_of(ctx, 1)->permit != TOFU_PERMIT_GIVEN));
        }
        before = next_of[2];
        while (next_of[2] < before + 10) { /* asleep in between */
            status = tofu_iface_event_arm(ctx->iface, 3);
            if (status == TOFU_OK) {
                CHECK(poll(&p, 1, 20000) >= 0);
            } else {
                CHECK_EQ(status, TOFU_ERR_BUSY);
            }
            tofu_iface_progress(ctx->iface);
        }
        before = next_of[1];
        CHECK_EQ(kill(ctx->shared->rank[1].pid, SIGCONT), 0);
        WAIT_FOR(ctx, 40, next_of[1] >= before + 200);
    }
    atomic_store(&word[1], 1);
    for (r = 1; r < 3; ++r) {
        WAIT_FOR(ctx, 40, atomic_load(&word[10 + r]) != 0);
        WAIT_FOR(ctx, 40, next_of[r] == atomic_load(&word[10 + r]));
    }
    CHECK_EQ(stats_of(ctx).dropped, 0);
    CHECK_EQ(ctx->ep_errors, 0);
    core_barrier(ctx);
    core_close(ctx);
}

/* It dies when it was asked for the permit, and had not answered. */
static void killed_asked(struct ctx *ctx)
{
    open_all(ctx, NULL);
    warm_up(ctx, 0);
    if (ctx->rank == 1) {
        for (;;) {
            pause();
        }
    }
    WAIT_FOR(ctx, 40, (ctx->iface->num_polled == 0) ||
                          (ctx->iface->am->polled[0]->permit ==
                           TOFU_PERMIT_ASKED_BACK));
    CHECK_EQ(kill(ctx->shared->rank[1].pid, SIGKILL), 0);
    WAIT_FOR(ctx, 40, ctx->iface->num_polled == 0);
    leave(ctx);
}

static unsigned warnings;

static void on_log(int level, const char *message)
{
    warnings += (level < 2);
    fprintf(stderr, "%d: %s\n", level, message);
}

/* Who asked for the permit back is closed before the answer comes: that is no fault of
 * who has the VCQ next, nor, when there is an ep to it (known), of whom it comes from. */
static void closed_when(struct ctx *ctx, int known)
{
    _Atomic uint64_t  *word = ctx->shared->word;
    tofu_iface_attr_t attr;
    utofu_vcq_id_t    vcq_id;
    uint64_t          i;
    int               fd;

    open_all(ctx, NULL);
    warm_up(ctx, 0);
    if (ctx->rank == 1) {
        CHECK(ctx->ep[0]->chan->turn & TOFU_TAIL_KEY);
        while (atomic_load(&word[1]) == 0) {
            sched_yield(); /* no progress */
        }
        while (ctx->ep[0]->chan->turn & TOFU_TAIL_KEY) {
            tofu_iface_progress(ctx->iface); /* a tick answers */
        }
        atomic_store(&word[1], 2);
        core_barrier_asleep(ctx);
    } else {
        CHECK_OK(tofu_iface_event_fd(ctx->iface, &fd));
        tofu_iface_event_arm(ctx->iface, 3); /* who sleeps asks permits back */
        CHECK_EQ(lender_of(ctx, 1)->permit, TOFU_PERMIT_ASKED_BACK);
        vcq_id = ctx->iface->vcq_id;
        for (i = 0; i < 2; ++i) {
            tofu_ep_destroy(ctx->ep[i]);
            ctx->ep[i] = NULL;
        }
        for (i = 0; (i == 0) || (ctx->iface->vcq_id != vcq_id); ++i) {
            CHECK(i < 1000); /* the node gives all the others before */
            tofu_iface_close(ctx->iface);
            CHECK_OK(tofu_iface_open(ctx->md, NULL, &ctx->iface));
        }
        if (known) {
            tofu_iface_query(ctx->iface, &attr);
            CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address,
                                    attr.iface_addr_len, &ctx->ep[1]));
        }
        tofu_set_log(on_log);
        atomic_store(&word[1], 1);
        while (atomic_load(&word[1]) != 2) {
            sched_yield();
        }
        WAIT_FOR(ctx, 40, stats_of(ctx).notices == 1);
        CHECK_EQ(stats_of(ctx).dropped, 1);
        CHECK_EQ(warnings, 0);
        tofu_set_log(NULL);
        core_barrier_asleep(ctx);
    }
    core_close(ctx);
}

static void closed(struct ctx *ctx)
{
    closed_when(ctx, 0);
}

static void closed_known(struct ctx *ctx)
{
    closed_when(ctx, 1);
}

/* Bytes of others in the slots.  What is written over is lost, and only that. */
static void strangers(struct ctx *ctx)
{
    tofu_lender_t    *lender;
    tofu_loan_t      *loan;
    _Atomic uint64_t *word = ctx->shared->word;
    uint64_t         random = 9, n, i, tail, before;
    int              round;

    open_all(ctx, with_notices());
    n = warm_up(ctx, 0);
    for (round = 0; round < 3; ++round) {
        if (ctx->rank == 1) {
            while (atomic_load(&word[1]) != (uint64_t)round * 3 + 1) {
                tofu_iface_progress(ctx->iface);
            }
            CHECK(ctx->ep[0]->chan->turn & TOFU_TAIL_KEY);
            for (i = 0; i < 5; ++i) {
                send_message(ctx, 0, n + i, 16);
            }
            core_flush(ctx, ctx->ep[0]);
            atomic_store(&word[1], (uint64_t)round * 3 + 2);
            while (atomic_load(&word[1]) != (uint64_t)round * 3 + 3) {
                if (round == 2) {
                    core_usleep(1000); /* nothing: the answer must do */
                }
                tofu_iface_progress(ctx->iface);
            }
            n = atomic_load(&word[2]);
            for (i = 0; i < 300; ++i) {
                send_message(ctx, 0, n + i, (round == 0) ? 32 : 8);
            }
        } else {
            before = stats_of(ctx).dropped;
            lender = lender_of(ctx, 1);
            loan   = &lender->loan[TOFU_AM_SMALL];
            CHECK(lender->permit != TOFU_PERMIT_NONE);
            /* tails of nobody: bits of every kind differ, none is delivered */
            for (i = 0; i < 3000; ++i) {
                tail  = lender->turn | 1 << TOFU_TAIL_ID_SHIFT | 8;
                tail ^= 1ull << (TOFU_TAIL_KEY_SHIFT +
                                 next_random(&random) % (64 - TOFU_TAIL_KEY_SHIFT));
                atomic_store(tofu_am_tail(ctx->iface->am, loan->next), tail);
                tofu_iface_progress(ctx->iface);
                CHECK_EQ(next_of[1], n);
                atomic_store(tofu_am_tail(ctx->iface->am, loan->next), 0);
            }
            atomic_store(&word[1], (uint64_t)round * 3 + 1);
            while (atomic_load(&word[1]) != (uint64_t)round * 3 + 2) {
                sched_yield(); /* no progress: they stand there */
            }
            /* the second of five is spoilt; those behind it come late */
            tail = loan->next + 1 == loan->begin + loan->count ? loan->begin :
                                                                 loan->next + 1;
            atomic_store(tofu_am_tail(ctx->iface->am, (uint32_t)tail),
                         0x1234567ull * (unsigned)round);
            tofu_iface_progress(ctx->iface);
            CHECK_EQ(next_of[1], n + 1);
            next_of[1] = n + 2;
            n += 5;
            atomic_store(&word[2], n);
            if (round == 2) {
                /* it is silent, so the permit is asked back */
                WAIT_FOR(ctx, 40, ctx->iface->num_polled == 0);
                CHECK_EQ(stats_of(ctx).dropped - before, 1);
            }
            atomic_store(&word[1], (uint64_t)round * 3 + 3);
            WAIT_FOR(ctx, 40, next_of[1] == n + 300);
            CHECK_EQ(stats_of(ctx).dropped - before, 1);
        }
        n += (ctx->rank == 1) ? 300 : 0;
        core_barrier(ctx);
        if (ctx->rank == 0) {
            n = next_of[1];
        }
        /* the permit is there again for the next round */
        atomic_store(&word[60], 0);
        core_barrier(ctx);
        if (ctx->rank == 1) {
            do {
                send_message(ctx, 0, n++, 8);
            } while (!(ctx->ep[0]->chan->turn & TOFU_TAIL_KEY));
            send_message(ctx, 0, n++, 8);
            atomic_store(&word[61], n);
        }
        core_barrier(ctx);
        n = atomic_load(&word[61]);
        if (ctx->rank == 0) {
            WAIT_FOR(ctx, 40, next_of[1] == n);
        }
        core_barrier(ctx);
    }
    core_close(ctx);
}

/* A bet is a look and nothing else, on whatever processor this is: it tells what is there,
 * and leaves alone what its caller has on the stack, where the compiler keeps it below
 * the stack pointer, too, and signals come at any time. */
static volatile sig_atomic_t signals;

static void on_alarm(int number)
{
    (void)number;
    ++signals;
}

static TOFU_NOINLINE uint64_t leaf(const _Atomic uint64_t *word, uint64_t mask,
                                   uint64_t value, uint64_t x)
{
    volatile uint64_t kept[16];
    uint64_t          sum = 0;
    unsigned          i;
    bool              hit;

    for (i = 0; i < 16; ++i) {
        kept[i] = x += 0x9e3779b97f4a7c15ull;
    }
#if TOFU_CAN_BET
    hit = (x & 1) ? tofu_bet((const void *)word, mask, value, 0) :
                    tofu_bet((const void *)word, mask, value, 60);
#else
    hit = tofu_look(word, mask, value);
#endif
    for (i = 0; i < 16; ++i) {
        sum ^= kept[i];
    }
    return sum * 2 + hit;
}

static void bets(struct ctx *ctx)
{
    const struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    struct sigaction       action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    _Atomic uint64_t       word;
    uint64_t               random = 7, value, mask, sum, x, i, k;
    double                 end    = core_now() + 20;

    (void)ctx;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (i = 0; ((i < 300000) || (signals < 20)) && (core_now() < end); ++i) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        mask   = ~0ull << (random >> 58);
        value  = random & mask;
        atomic_store(&word, (i % 3 == 0) ? random ^ (1ull << (random >> 58)) : random);
        for (x = random, sum = 0, k = 0; k < 16; ++k) {
            sum ^= x += 0x9e3779b97f4a7c15ull;
        }
        CHECK_EQ(leaf(&word, mask, value, random), sum * 2 + (i % 3 != 0));
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(i >= 300000);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"useful", 2, 60, useful, 0},
        {"mixed", 2, 60, mixed, 0},
        {"narrow", 2, 60, mixed, 0}, /* with 4 slots of each kind */
        {"wrap", 2, 60, wrap, 0},
        {"off", 2, 30, off, 0},
        {"inside", 2, 60, inside, 0},
        {"held", 2, 60, held, 0},
        {"posted", 2, 60, posted, 0},
        {"silent", 2, 60, silent, 0},
        {"crowded", 8, 90, crowded, 0},
        {"turns", 5, 90, turns, 0},
        {"awake", 2, 60, awake, 0},
        {"owed", 2, 60, owed, 0},
        {"asleep", 2, 60, asleep, 0},
        {"mute", 2, 60, mute, 0},
        {"stopped", 3, 60, stopped, 0},
        {"killed", 2, 60, killed, 2},
        {"killed_asked", 2, 60, killed_asked, 2},
        {"closed", 2, 60, closed, 0},
        {"closed_known", 2, 60, closed_known, 0},
        {"strangers", 2, 60, strangers, 0},
        {"bets", 1, 40, bets, 0},
    };

    return core_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
