/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared.c - ifaces that share VCQs, because none is left: what each sends and
 * receives is its own, whoever polls.
 */
#include "core_test.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

enum {
    GUESTS  = 6,    /* ifaces of a rank that has several */
    NUMBERS = 1500, /* messages from each to each */
    AREA    = 8192, /* of each, in the window of rank 0 */
    ID      = 5
};

/* One iface.  Its number is the place of its address in shared->rank. */
struct peer {
    struct ctx   *ctx;
    tofu_iface_t *iface;
    unsigned     id, peers;
    tofu_ep_t    *ep[MAX_RANKS];
    unsigned     sent[MAX_RANKS], seen[MAX_RANKS];
    unsigned     total, failures;
    tofu_ep_t    *failed;
    tofu_status_t status;
    char         *buffer; /* two areas */
    tofu_mem_t   *memh;
    pthread_t    thread;
};

static uint64_t head_of(unsigned from, unsigned to, unsigned number)
{
    return ((uint64_t)from << 48) | ((uint64_t)to << 32) | number;
}

static size_t length_of(uint64_t head)
{
    static const size_t lengths[] = {8, 24, 0, 100, 1500, 300};

    return lengths[head % 6];
}

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    struct peer *peer = arg;
    uint64_t    head;
    unsigned    from, number;

    (void)flags;
    CHECK(length >= 8);
    memcpy(&head, data, 8);
    from   = (unsigned)(head >> 48);
    number = (unsigned)head;
    CHECK_EQ((head >> 32) & 0xffff, peer->id);
    CHECK(from < peer->peers);
    CHECK_EQ(number, peer->seen[from]);
    CHECK_EQ(length, 8 + length_of(head));
    CHECK(matches((char *)data + 8, length - 8, head));
    ++peer->seen[from];
    ++peer->total;
    return TOFU_OK;
}

static void on_failure(void *arg, tofu_ep_t *ep, tofu_status_t status)
{
    struct peer *peer = arg;

    ++peer->failures;
    peer->failed = ep;
    peer->status = status;
}

static size_t pack_message(void *dest, void *arg)
{
    uint64_t head = *(uint64_t *)arg;

    memcpy(dest, &head, 8);
    fill((char *)dest + 8, length_of(head), head);
    return 8 + length_of(head);
}

static void step(struct peer *peer)
{
    if (tofu_iface_progress(peer->iface) == 0) {
        sched_yield();
    }
}

static void wait_done(struct peer *peer, struct done *done, tofu_status_t status)
{
    if (status == TOFU_OK) {
        return;
    }
    CHECK_EQ(status, TOFU_INPROGRESS);
    while (done->called == 0) {
        step(peer);
    }
    CHECK_OK(done->comp.status);
}

/* The next message to `to`, short, by bcopy or by zcopy. */
static tofu_status_t send_next(struct peer *peer, unsigned to)
{
    uint64_t      head   = head_of(peer->id, to, peer->sent[to]);
    size_t        length = length_of(head);
    tofu_status_t status;
    char          data[32];
    struct done   done;
    tofu_iov_t    iov;

    if (length <= 24) {
        fill(data, length, head);
        status = tofu_ep_am_short(peer->ep[to], ID, head, data, (unsigned)length);
    } else if (length == 300) {
        fill(peer->buffer, length, head);
        iov = (tofu_iov_t){.buffer = peer->buffer, .length = length,
                           .memh = peer->memh, .count = 1};
        done_init(&done);
        status = tofu_ep_am_zcopy(peer->ep[to], ID, &head, 8, &iov, 1, &done.comp);
        if (status == TOFU_INPROGRESS) {
            wait_done(peer, &done, status);
            status = TOFU_OK;
        }
    } else {
        intptr_t packed = tofu_ep_am_bcopy(peer->ep[to], ID, pack_message, &head);
        status          = (packed >= 0) ? TOFU_OK : (tofu_status_t)packed;
    }
    peer->sent[to] += (status == TOFU_OK);
    return status;
}

#define AGAIN(peer, call) \
    ({ \
        tofu_status_t _s; \
        while ((_s = (call)) == TOFU_ERR_NO_RESOURCE) { \
            step(peer); \
        } \
        _s; \
    })

/* Count in rank 0's window, write an area of one's own there and read it back. */
static void remote_memory(struct peer *peer, unsigned round)
{
    struct ctx  *ctx = peer->ctx;
    uint64_t    base = ctx->shared->rank[0].base;
    uint64_t    area = base + 64 + (uint64_t)peer->id * AREA, old = 0;
    tofu_iov_t  out  = {.buffer = peer->buffer, .length = AREA,
                        .memh = peer->memh, .count = 1};
    tofu_iov_t  in   = {.buffer = peer->buffer + AREA, .length = AREA,
                        .memh = peer->memh, .count = 1};
    struct done done;

    done_init(&done);
    wait_done(peer, &done,
              AGAIN(peer, tofu_ep_atomic_fetch(peer->ep[0], TOFU_ATOMIC_ADD, 8, 1,
                                               &old, base, ctx->rkey[0],
                                               &done.comp)));
    fill(out.buffer, AREA, head_of(peer->id, 0, round));
    done_init(&done);
    wait_done(peer, &done,
              AGAIN(peer, tofu_ep_put_zcopy(peer->ep[0], &out, 1, area,
                                            ctx->rkey[0], &done.comp)));
    AGAIN(peer, ({
        tofu_status_t _f = tofu_ep_flush(peer->ep[0], 0, NULL);
        (_f == TOFU_INPROGRESS) ? TOFU_ERR_NO_RESOURCE : _f;
    }));
    memset(in.buffer, 0, AREA);
    done_init(&done);
    wait_done(peer, &done,
              AGAIN(peer, tofu_ep_get_zcopy(peer->ep[0], &in, 1, area,
                                            ctx->rkey[0], &done.comp)));
    CHECK(matches(in.buffer, AREA, head_of(peer->id, 0, round)));
}

static void peer_open(struct peer *peer, struct ctx *ctx, tofu_md_t *md,
                      unsigned id)
{
    size_t              length = 2 * AREA;
    tofu_iface_config_t config;
    void                *address;

    memset(peer, 0, sizeof(*peer));
    tofu_iface_config_default(&config);
    config.early_complete = 0;
    config.err_cb         = on_failure;
    config.err_arg        = peer;
    peer->ctx             = ctx;
    peer->id              = id;
    CHECK_OK(tofu_iface_open(md, &config, &peer->iface));
    CHECK_OK(tofu_mem_alloc(md, &length, 0, &address, &peer->memh));
    peer->buffer = address;
    CHECK_OK(tofu_iface_set_am_handler(peer->iface, ID, on_message, peer));
    tofu_iface_get_address(peer->iface, ctx->shared->rank[id].address);
}

static void peer_connect(struct peer *peer, unsigned peers)
{
    unsigned i;

    peer->peers = peers;
    for (i = 0; i < peers; ++i) {
        CHECK_OK(tofu_ep_create(peer->iface, peer->ctx->shared->rank[i].address, 0,
                                &peer->ep[i]));
        CHECK(tofu_ep_is_connected(peer->ep[i],
                                   peer->ctx->shared->rank[i].address, 0));
    }
}

static void peer_close(struct peer *peer)
{
    unsigned i;

    for (i = 0; i < MAX_RANKS; ++i) {
        if (peer->ep[i] != NULL) {
            tofu_ep_destroy(peer->ep[i]);
        }
    }
    tofu_iface_close(peer->iface);
    CHECK_OK(tofu_mem_free(peer->memh));
}

/* md of a rank whose ifaces may have `own` VCQs. */
static tofu_md_t *md_open(unsigned own)
{
    tofu_md_config_t config;
    tofu_md_t        *md;

    tofu_md_config_default(&config);
    config.max_vcqs = own;
    CHECK_OK(tofu_md_open(core_backend(), &config, &md));
    return md;
}

/* The window of rank 0, which all know after the next barrier. */
static void window_open(struct ctx *ctx, size_t length)
{
    void *address;

    ctx->window_size = length;
    CHECK_OK(tofu_mem_alloc(ctx->md, &ctx->window_size, 0, &address,
                            &ctx->window_memh));
    ctx->window = address;
    tofu_mkey_pack(ctx->window_memh, ctx->shared->rank[0].rkey);
    ctx->shared->rank[0].base = (uintptr_t)address;
}

/* Everybody sends to everybody, each from its own thread. */
static void *exchange(void *arg)
{
    struct peer      *peer    = arg;
    _Atomic uint64_t *done    = &peer->ctx->shared->word[1];
    unsigned         expected = peer->peers * NUMBERS, left = expected, round = 0;
    int              told     = 0;
    unsigned         to;

    while (atomic_load(done) < peer->peers) {
        for (to = 0; (left > 0) && (to < peer->peers); ++to) {
            if (peer->sent[to] < NUMBERS) {
                tofu_status_t status = send_next(peer, to);
                CHECK((status == TOFU_OK) || (status == TOFU_ERR_NO_RESOURCE));
                left -= (status == TOFU_OK);
                if ((status == TOFU_OK) && (left % 100 == 0)) {
                    remote_memory(peer, round++);
                }
            }
        }
        step(peer);
        if (!told && (left == 0) && (peer->total == expected)) {
            told = 1;
            atomic_fetch_add(&peer->ctx->shared->word[2], round);
            atomic_fetch_add(done, 1);
        }
    }
    CHECK_EQ(peer->failures, 0);
    return NULL;
}

static _Atomic unsigned warnings;

static void on_log(int level, const char *message)
{
    if (level <= 1) {
        fprintf(stderr, "%s\n", message);
    }
    warnings += (level <= 1) && (strstr(message, "shares VCQ") != NULL);
}

/* own: VCQs that the ifaces of the ranks but the first may have. */
static void everybody(struct ctx *ctx, unsigned own)
{
    unsigned     peers = 1 + (unsigned)(ctx->size - 1) * GUESTS;
    unsigned     mine  = (ctx->rank == 0) ? 1 : GUESTS;
    unsigned     first = (ctx->rank == 0) ? 0 : 1 + (unsigned)(ctx->rank - 1) * GUESTS;
    tofu_iface_stats_t stats;
    struct peer  *peer = calloc(mine, sizeof(*peer));
    unsigned     i;

    tofu_set_log(on_log);
    ctx->md = md_open((ctx->rank == 0) ? 1 : own);
    if (ctx->rank == 0) {
        window_open(ctx, 64 + peers * AREA);
    }
    for (i = 0; i < mine; ++i) {
        peer_open(&peer[i], ctx, ctx->md, first + i);
    }
    CHECK_EQ(warnings, (ctx->rank > 0) && (mine > own)); /* once is enough */
    core_barrier_asleep(ctx);
    CHECK_OK(tofu_rkey_unpack(ctx->shared->rank[0].rkey, 0, &ctx->rkey[0]));
    for (i = 0; i < mine; ++i) {
        peer_connect(&peer[i], peers);
        CHECK_EQ(pthread_create(&peer[i].thread, NULL, exchange, &peer[i]), 0);
    }
    for (i = 0; i < mine; ++i) {
        CHECK_EQ(pthread_join(peer[i].thread, NULL), 0);
        tofu_iface_get_stats(peer[i].iface, &stats);
        CHECK_EQ(stats.dropped, 0);
    }
    if (ctx->rank == 0) {
        CHECK_EQ(*(uint64_t *)ctx->window, atomic_load(&ctx->shared->word[2]));
        CHECK(atomic_load(&ctx->shared->word[2]) >= peers * peers);
    }
    core_barrier_asleep(ctx);
    for (i = 0; i < mine; ++i) {
        peer_close(&peer[i]);
    }
    tofu_rkey_release(ctx->rkey[0]);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_mem_free(ctx->window_memh));
    }
    tofu_md_close(ctx->md);
    free(peer);
}

static void threads(struct ctx *ctx)
{
    everybody(ctx, 0);
}

/* Some have VCQs of their own. */
static void mixed(struct ctx *ctx)
{
    everybody(ctx, 2);
}

/* Progress of all, in this thread. */
static void step_all(struct peer *peer, unsigned count)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        if (peer[i].iface != NULL) {
            tofu_iface_progress(peer[i].iface);
        }
    }
    sched_yield();
}

/* One iface of a VCQ is closed, and another is opened in its place.  Who sends to
 * it finds out; to the others all goes on.  own: VCQs of the senders. */
static void one_ends(struct ctx *ctx, unsigned own)
{
    enum { SENDERS = 3, ENDS = SENDERS + 1 };
    unsigned    mine  = (ctx->rank == 0) ? SENDERS : GUESTS;
    unsigned    first = (ctx->rank == 0) ? 0 : SENDERS;
    struct peer *peer = calloc(GUESTS, sizeof(*peer));
    unsigned    i, to, number;
    double      end = core_now() + 20;

    ctx->md = md_open((ctx->rank == 0) ? own : 0);
    for (i = 0; i < mine; ++i) {
        peer_open(&peer[i], ctx, ctx->md, first + i);
    }
    core_barrier_asleep(ctx);
    for (i = 0; i < mine; ++i) {
        peer_connect(&peer[i], SENDERS + GUESTS);
    }
    if (ctx->rank == 1) {
        while (atomic_load(&ctx->shared->word[3]) == 0) {
            step_all(peer, mine);
        }
        peer_close(&peer[ENDS - SENDERS]);
        peer[ENDS - SENDERS].iface = NULL;
        atomic_store(&ctx->shared->word[4], 1);
        while (atomic_load(&ctx->shared->word[3]) == 1) {
            step_all(peer, mine);
        }
        peer_open(&peer[ENDS - SENDERS], ctx, ctx->md, ENDS);
        peer_connect(&peer[ENDS - SENDERS], SENDERS + GUESTS);
        atomic_store(&ctx->shared->word[4], 2);
        while (atomic_load(&ctx->shared->word[3]) == 2) {
            step_all(peer, mine);
        }
        for (i = 0; i < mine; ++i) {
            CHECK_EQ(peer[i].failures, 0);
            CHECK_EQ(peer[i].total,
                     SENDERS * ((i == ENDS - SENDERS) ? 50 : 150));
        }
    } else {
        for (number = 0; number < 150; ++number) {
            if (number == 50) {
                core_usleep(20000); /* credit is on its way back */
                atomic_store(&ctx->shared->word[3], 1);
                while (atomic_load(&ctx->shared->word[4]) == 0) {
                    step_all(peer, mine);
                }
            }
            for (i = 0; i < mine; ++i) {
                for (to = SENDERS; to < SENDERS + GUESTS; ++to) {
                    tofu_status_t status;
                    if ((to == ENDS) && (i > 0) && (number >= 50)) {
                        continue; /* these find out by asking */
                    }
                    do {
                        status = send_next(&peer[i], to);
                        step_all(peer, mine);
                        CHECK(core_now() < end);
                    } while (status == TOFU_ERR_NO_RESOURCE);
                    if (status != TOFU_OK) {
                        CHECK_EQ(to, ENDS);
                        CHECK(number >= 50);
                    }
                }
            }
        }
        for (i = 0; i < mine; ++i) {
            while (peer[i].failures == 0) {
                tofu_ep_check(peer[i].ep[ENDS]);
                step_all(peer, mine);
                CHECK(core_now() < end);
            }
            CHECK_EQ(peer[i].failures, 1);
            CHECK(peer[i].failed == peer[i].ep[ENDS]);
            CHECK_EQ(peer[i].status, TOFU_ERR_ENDPOINT_TIMEOUT);
        }
        atomic_store(&ctx->shared->word[3], 2);
        while (atomic_load(&ctx->shared->word[4]) == 1) {
            step_all(peer, mine);
        }
        for (i = 0; i < mine; ++i) {
            tofu_ep_destroy(peer[i].ep[ENDS]);
            CHECK_OK(tofu_ep_create(peer[i].iface,
                                    ctx->shared->rank[ENDS].address, 0,
                                    &peer[i].ep[ENDS]));
            peer[i].sent[ENDS] = 0;
            for (number = 0; number < 50; ++number) {
                tofu_status_t status;
                do {
                    status = send_next(&peer[i], ENDS);
                    step_all(peer, mine);
                    CHECK(core_now() < end);
                } while (status == TOFU_ERR_NO_RESOURCE);
                CHECK_OK(status);
            }
            CHECK_EQ(peer[i].failures, 1);
        }
        for (i = 0; i < mine; ++i) {
            tofu_status_t status;
            while (((status = tofu_iface_flush(peer[i].iface, 0, NULL)) ==
                    TOFU_INPROGRESS) || (status == TOFU_ERR_NO_RESOURCE)) {
                step_all(peer, mine);
            }
        }
        core_usleep(100000);
        atomic_store(&ctx->shared->word[3], 3);
    }
    for (i = 0; i < mine; ++i) {
        peer_close(&peer[i]);
    }
    tofu_md_close(ctx->md);
    free(peer);
}

static void closed(struct ctx *ctx)
{
    one_ends(ctx, 100);
}

static void closed_shared(struct ctx *ctx)
{
    one_ends(ctx, 0);
}

/* A process with ifaces that share is killed: eps to each of them fail, others don't. */
static void killed(struct ctx *ctx)
{
    unsigned    mine  = (ctx->rank == 0) ? 1 : GUESTS;
    unsigned    first = (ctx->rank == 0) ? 0 : 1 + (unsigned)(ctx->rank - 1) * GUESTS;
    unsigned    all   = 1 + 2 * GUESTS, dead = 1 + GUESTS, i, to;
    struct peer *peer = calloc(GUESTS, sizeof(*peer));
    double      end   = core_now() + 20;

    ctx->shared->rank[ctx->rank].pid = getpid();
    ctx->md = md_open((ctx->rank == 0) ? 1 : 0);
    for (i = 0; i < mine; ++i) {
        peer_open(&peer[i], ctx, ctx->md, first + i);
    }
    core_barrier_asleep(ctx);
    for (i = 0; i < mine; ++i) {
        peer_connect(&peer[i], all);
    }
    while (atomic_load(&ctx->shared->word[5]) < (unsigned)ctx->size * 30) {
        for (i = 0; i < mine; ++i) {
            for (to = 0; to < all; ++to) {
                if (peer[i].sent[to] < 1000) {
                    send_next(&peer[i], to);
                }
            }
        }
        step_all(peer, mine);
        atomic_fetch_add(&ctx->shared->word[5], 1);
    }
    if (ctx->rank == 2) {
        kill(getpid(), SIGKILL);
    }
    for (i = 0; i < mine; ++i) {
        while (peer[i].failures < GUESTS) {
            for (to = 0; to < all; ++to) {
                tofu_ep_check(peer[i].ep[to]);
            }
            step_all(peer, mine);
            CHECK(core_now() < end);
        }
    }
    for (i = 0; i < mine; ++i) {
        for (to = 0; to < dead; ++to) {
            tofu_status_t status;
            do {
                status = send_next(&peer[i], to);
                step_all(peer, mine);
                CHECK(core_now() < end);
            } while (status == TOFU_ERR_NO_RESOURCE);
            CHECK_OK(status);
        }
        CHECK_EQ(peer[i].failures, GUESTS);
    }
    atomic_fetch_add(&ctx->shared->word[6], 1);
    while (atomic_load(&ctx->shared->word[6]) < 2) {
        step_all(peer, mine);
        CHECK(core_now() < end);
    }
    for (i = 0; i < mine; ++i) {
        peer_close(&peer[i]);
    }
    tofu_md_close(ctx->md);
    free(peer);
}

/* Two that sleep on one VCQ: each wakes for what is its own. */
static void asleep(struct ctx *ctx)
{
    struct peer   *peer = calloc(2, sizeof(*peer));
    struct pollfd p     = {.events = POLLIN};
    unsigned      round, sleeps = 0, i;
    double        begin;

    ctx->md = md_open(0);
    for (i = 0; i < 2; ++i) {
        peer_open(&peer[i], ctx, ctx->md, (unsigned)ctx->rank * 2 + i);
    }
    core_barrier_asleep(ctx);
    for (i = 0; i < 2; ++i) {
        peer_connect(&peer[i], 4);
    }
    for (round = 0; round < 40; ++round) {
        struct peer *to = &peer[round % 2];
        unsigned    want = round / 2 + 1;

        if (ctx->rank == 0) {
            CHECK_OK(AGAIN(&peer[0], send_next(&peer[0], 2 + round % 2)));
            while (atomic_load(&ctx->shared->word[7]) <= round) {
                step_all(peer, 2);
            }
            continue;
        }
        CHECK_OK(tofu_iface_event_fd(to->iface, &p.fd));
        begin = core_now();
        while (to->total < want) {
            if ((tofu_iface_progress(to->iface) == 0) &&
                (tofu_iface_event_arm(to->iface, 0) == TOFU_OK)) {
                CHECK(poll(&p, 1, 1000) == 1);
                ++sleeps;
            }
            tofu_iface_progress(peer[1 - round % 2].iface); /* takes it, perhaps */
            CHECK(core_now() < begin + 10);
        }
        atomic_store(&ctx->shared->word[7], round + 1);
    }
    CHECK((ctx->rank == 0) || (sleeps > 0));
    core_barrier_asleep(ctx);
    for (i = 0; i < 2; ++i) {
        peer_close(&peer[i]);
    }
    tofu_md_close(ctx->md);
    free(peer);
}

/* More ifaces in a process than a node has VCQs; one message round the ring. */
static void multitude(struct ctx *ctx)
{
    enum { MANY = 600, VCQS = 432 };
    static tofu_iface_t *iface[MANY];
    static struct peer  counts[MANY];
    static tofu_ep_t    *ep[MANY];
    tofu_iface_config_t config;
    uint8_t             address[BLOB];
    unsigned            i, round;

    tofu_set_log(on_log);
    ctx->md = md_open(TOFU_VCQS_ALL);
    tofu_iface_config_default(&config);
    config.am_seg_size    = 2048;
    config.rx_slots       = 8;
    config.rx_short_slots = 8;
    config.tx_bounce      = 2;
    for (i = 0; i < MANY; ++i) {
        CHECK_OK(tofu_iface_open(ctx->md, &config, &iface[i]));
        counts[i].id    = 0;
        counts[i].peers = 1;
        CHECK_OK(tofu_iface_set_am_handler(iface[i], ID, on_message, &counts[i]));
    }
    CHECK_EQ(warnings, 1);
    CHECK(MANY > VCQS);
    for (i = 0; i < MANY; ++i) {
        tofu_iface_get_address(iface[(i + 1) % MANY], address);
        CHECK_OK(tofu_ep_create(iface[i], address, 0, &ep[i]));
    }
    for (round = 0; round < 20; ++round) {
        for (i = 0; i < MANY; ++i) {
            unsigned      to   = (i + 1) % MANY;
            uint64_t      head = head_of(0, 0, round);
            char          data[24];
            tofu_status_t status;

            do {
                intptr_t packed = 0;
                if (length_of(head) <= 24) {
                    fill(data, length_of(head), head);
                    packed = tofu_ep_am_short(ep[i], ID, head, data,
                                              (unsigned)length_of(head));
                } else {
                    packed = tofu_ep_am_bcopy(ep[i], ID, pack_message, &head);
                }
                status = (packed > 0) ? TOFU_OK : (tofu_status_t)packed;
                tofu_iface_progress(iface[i]);
                tofu_iface_progress(iface[to]);
            } while (status == TOFU_ERR_NO_RESOURCE);
            CHECK_OK(status);
        }
    }
    for (i = 0; i < MANY; ++i) {
        while (counts[i].total < 20) {
            tofu_iface_progress(iface[(i + MANY - 1) % MANY]);
            tofu_iface_progress(iface[i]);
        }
    }
    for (i = 0; i < MANY; ++i) {
        tofu_ep_destroy(ep[i]);
        CHECK_EQ(counts[i].total, 20);
    }
    for (i = 0; i < MANY; ++i) {
        tofu_iface_close(iface[i]);
    }
    tofu_md_close(ctx->md);
}

/* Notices that nobody of ours sends: into slots and requests of a port, and to memory of
 * no port.  They are dropped and counted; messages go on. */
static void forged(struct ctx *ctx)
{
    const struct tofu_functions *fn   = &core_backend()->fn;
    struct peer                 *peer = calloc(2, sizeof(*peer));
    unsigned long               flags = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE |
                          UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
    tofu_iface_stats_t          stats[2];
    utofu_vcq_hdl_t             vcq;
    utofu_vcq_id_t              target;
    utofu_stadd_t               stadd;
    unsigned                    i, stag;
    void                        *cbdata;

    if (ctx->rank == 1) {
        core_barrier_asleep(ctx);
        memcpy(&target, ctx->shared->rank[0].address + 8, sizeof(target));
        CHECK_EQ(fn->create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        for (i = 0; i < 200; ++i) {
            stag = i % 12; /* the md's, then those of two ports */
            CHECK_EQ(fn->query_stadd(target, stag, &stadd), UTOFU_SUCCESS);
            CHECK_EQ(fn->put_piggyback8(vcq, target, i * 0x123456789ull,
                                        stadd + i % 7 * 8, 8, i * 5 % 256, flags,
                                        NULL),
                     UTOFU_SUCCESS);
            while (fn->poll_tcq(vcq, 0, &cbdata) == UTOFU_ERR_NOT_FOUND) {
            }
        }
        CHECK_EQ(fn->free_vcq(vcq), UTOFU_SUCCESS);
        core_barrier_asleep(ctx);
        core_barrier_asleep(ctx);
        free(peer);
        return;
    }
    ctx->md = md_open(0);
    for (i = 0; i < 2; ++i) {
        peer_open(&peer[i], ctx, ctx->md, i);
    }
    for (i = 0; i < 2; ++i) {
        peer_connect(&peer[i], 2);
    }
    core_barrier_asleep(ctx);
    core_barrier_asleep(ctx);
    while (peer[0].total + peer[1].total < 400) {
        for (i = 0; i < 4; ++i) {
            if (peer[i / 2].sent[i % 2] < 100) {
                send_next(&peer[i / 2], i % 2);
            }
        }
        step_all(peer, 2);
    }
    for (i = 0; i < 2; ++i) {
        tofu_iface_get_stats(peer[i].iface, &stats[i]);
        CHECK_EQ(peer[i].failures, 0);
        CHECK(stats[i].dropped > 0);
    }
    printf("dropped %llu and %llu\n", (unsigned long long)stats[0].dropped,
           (unsigned long long)stats[1].dropped);
    core_barrier_asleep(ctx);
    for (i = 0; i < 2; ++i) {
        peer_close(&peer[i]);
    }
    tofu_md_close(ctx->md);
    free(peer);
}

/* Of the gets of two ifaces, on one VCQ or their own, to one target some fail before they are sent,
 * others on the way: each ends once, as it should, and none for another. */
static void gets_fail(struct ctx *ctx, unsigned own)
{
    enum { ROUNDS = 300, DEPTH = 8 };
    struct peer *peer = calloc(2, sizeof(*peer));
    struct done done[2][DEPTH];
    unsigned    i, k, round, failed[2] = {0, 0}, good = 0;

    if (ctx->rank == 0) {
        ctx->md = md_open(1);
        window_open(ctx, AREA);
        for (i = 0; i < AREA / 8; ++i) {
            ((uint64_t *)ctx->window)[i] = i + 1;
        }
        peer_open(&peer[0], ctx, ctx->md, 0);
        core_barrier_asleep(ctx);
        core_barrier_asleep(ctx);
        peer_close(&peer[0]);
        CHECK_OK(tofu_mem_free(ctx->window_memh));
        tofu_md_close(ctx->md);
        free(peer);
        return;
    }
    CHECK(setenv("UTOFU_EMU_FAULT", "get:every=5:error=TCQ_STADD;"
                 "get:every=7:error=MRQ_RMT_LENGTH", 1) == 0);
    ctx->md = md_open(own);
    core_barrier_asleep(ctx);
    CHECK_OK(tofu_rkey_unpack(ctx->shared->rank[0].rkey, 0, &ctx->rkey[0]));
    for (i = 0; i < 2; ++i) {
        peer_open(&peer[i], ctx, ctx->md, 1 + i);
        peer_connect(&peer[i], 1);
    }
    for (round = 0; round < ROUNDS; ++round) {
        for (k = 0; k < 2 * DEPTH; ++k) {
            struct peer *p  = &peer[k % 2];
            uint64_t    *to = (uint64_t *)(void *)p->buffer + k / 2;
            tofu_iov_t  iov = {.buffer = to, .length = 8, .memh = p->memh,
                               .count = 1};
            *to = 0;
            done_init(&done[k % 2][k / 2]);
            CHECK_EQ(AGAIN(p, tofu_ep_get_zcopy(
                                      p->ep[0], &iov, 1,
                                      ctx->shared->rank[0].base + 8 * (k + 1),
                                      ctx->rkey[0], &done[k % 2][k / 2].comp)),
                     TOFU_INPROGRESS);
        }
        for (k = 0; k < 2 * DEPTH; ++k) {
            struct done *d = &done[k % 2][k / 2];
            uint64_t    *to = (uint64_t *)(void *)peer[k % 2].buffer + k / 2;
            while (d->called == 0) {
                step_all(peer, 2);
            }
            CHECK_EQ(d->called, 1);
            if (d->comp.status == TOFU_OK) {
                CHECK_EQ(*to, k + 2);
                ++good;
            } else {
                CHECK_EQ(*to, 0);
                ++failed[k % 2];
            }
        }
    }
    printf("%u gets, %u and %u failed\n", good, failed[0], failed[1]);
    for (i = 0; i < 2; ++i) {
        CHECK_EQ(peer[i].failures, 0);
        CHECK(failed[i] > ROUNDS * DEPTH / 10);
    }
    CHECK(good > ROUNDS * DEPTH);
    core_barrier_asleep(ctx);
    tofu_rkey_release(ctx->rkey[0]);
    for (i = 0; i < 2; ++i) {
        peer_close(&peer[i]);
    }
    tofu_md_close(ctx->md);
    free(peer);
}

static void faulty(struct ctx *ctx)
{
    gets_fail(ctx, 0);
}

static void faulty_own(struct ctx *ctx)
{
    gets_fail(ctx, 2);
}

/* Puts without notices of several ifaces on one VCQ, of which one has a key that is good no
 * more: its ep fails, and no other. */
static void bad_key(struct ctx *ctx)
{
    enum { PORTS = 3, BAD = 1 };
    struct peer   *peer = calloc(PORTS, sizeof(*peer));
    uint64_t      value;
    tofu_rkey_t   *rkey;
    tofu_mem_t    *memh;
    size_t        length = 4096;
    void          *address;
    tofu_status_t status;
    unsigned      i, round;

    if (ctx->rank == 0) {
        ctx->md = md_open(1);
        window_open(ctx, AREA);
        memset(ctx->window, 0, AREA);
        peer_open(&peer[0], ctx, ctx->md, 0);
        CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
        tofu_mkey_pack(memh, ctx->shared->rank[1].rkey);
        ctx->shared->rank[1].base = (uintptr_t)address;
        CHECK_OK(tofu_mem_free(memh));
        core_barrier_asleep(ctx);
        core_barrier_asleep(ctx);
        for (i = 0; i < PORTS; ++i) {
            CHECK_EQ(((uint64_t *)(void *)ctx->window)[i], (i == BAD) ? 1 : 100);
        }
        peer_close(&peer[0]);
        CHECK_OK(tofu_mem_free(ctx->window_memh));
        tofu_md_close(ctx->md);
        free(peer);
        return;
    }
    ctx->md = md_open(0);
    core_barrier_asleep(ctx);
    CHECK_OK(tofu_rkey_unpack(ctx->shared->rank[0].rkey, 0, &ctx->rkey[0]));
    CHECK_OK(tofu_rkey_unpack(ctx->shared->rank[1].rkey, 0, &rkey));
    for (i = 0; i < PORTS; ++i) {
        peer_open(&peer[i], ctx, ctx->md, 1 + i);
        peer_connect(&peer[i], 1);
    }
    for (round = 1; round <= 100; ++round) {
        for (i = 0; i < PORTS; ++i) {
            value = round;
            if ((i != BAD) || (round == 1)) {
                CHECK_OK(AGAIN(&peer[i], tofu_ep_put_short(
                                                 peer[i].ep[0], &value, 8,
                                                 ctx->shared->rank[0].base + 8 * i,
                                                 ctx->rkey[0])));
            }
        }
        if (round == 50) {
            CHECK_OK(AGAIN(&peer[BAD], tofu_ep_put_short(peer[BAD].ep[0], &value, 8,
                                                         ctx->shared->rank[1].base,
                                                         rkey)));
            while (peer[BAD].failures == 0) {
                step_all(peer, PORTS);
            }
            CHECK_EQ(peer[BAD].status, TOFU_ERR_IO_ERROR);
        }
        step_all(peer, PORTS);
    }
    for (i = 0; i < PORTS; ++i) {
        if (i != BAD) {
            while ((status = tofu_ep_flush(peer[i].ep[0], 0, NULL)) > TOFU_OK) {
                step_all(peer, PORTS);
            }
            CHECK_OK(status);
        }
        CHECK_EQ(peer[i].failures, i == BAD);
    }
    core_barrier_asleep(ctx);
    tofu_rkey_release(rkey);
    tofu_rkey_release(ctx->rkey[0]);
    for (i = 0; i < PORTS; ++i) {
        peer_close(&peer[i]);
    }
    tofu_md_close(ctx->md);
    free(peer);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"threads", 3, 60, threads, 0},
        {"mixed", 3, 60, mixed, 0},
        {"closed", 2, 40, closed, 0},
        {"closed_shared", 2, 40, closed_shared, 0},
        {"killed", 3, 40, killed, 1 << 2},
        {"asleep", 2, 40, asleep, 0},
        {"multitude", 1, 60, multitude, 0},
        {"forged", 2, 40, forged, 0},
        {"bad_key", 2, 40, bad_key, 0},
        {"faulty", 2, 40, faulty, 0},
        {"faulty_own", 2, 40, faulty_own, 0},
    };

    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
