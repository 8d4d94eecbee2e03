/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale.c - 64 senders, one receiver that sleeps; and how many network operations
 * a message costs.
 */
#include "am_test.h"

#include <pthread.h>

#define SENDERS 64

/* ------------------------------------------------------------- 64 senders */

static uint64_t expected[SENDERS + 1]; /* number of the next message */
static uint64_t received;

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    struct am_head head = am_check(data, length);

    (void)arg;
    CHECK_EQ(flags, 0);
    CHECK((head.from >= 1) && (head.from <= SENDERS));
    if (head.number != expected[head.from]) {
        FAIL("message %llu from %u, expected %llu",
             (unsigned long long)head.number, (unsigned)head.from,
             (unsigned long long)expected[head.from]);
    }
    ++expected[head.from];
    ++received;
    return TOFU_OK;
}

/* Works, dozes, sleeps: MRQ and slots are full when it wakes. */
static void sleepy_receiver(struct ctx *ctx, uint64_t total)
{
    uint64_t random = 1, calls = 0, sleeps = 0;

    while (received < total) {
        core_idle(ctx->iface);
        if (++calls % 16 == 0) {
            uint64_t x = next_random(&random) % 64;
            if (x == 0) {
                core_usleep(20000);
            } else if (x < 8) {
                core_usleep(300);
            }
            sleeps += x < 8;
        }
    }
    printf("the receiver slept %llu times\n", (unsigned long long)sleeps);
}

struct sender {
    tofu_iface_t *iface;
    tofu_ep_t    *ep;
    unsigned     from;
    char         *buffer; /* registered */
    tofu_mem_t   *memh;
};

static void send_one(struct sender *s, uint64_t number, uint64_t random)
{
    uint64_t        word   = am_head(s->from, number);
    size_t          length = 8 + (random >> 8) % 25;
    struct am_bytes bytes  = {s->buffer, 0};
    struct done     done;
    intptr_t        ret;
    unsigned        way = random % 8;

    if (way >= 4) { /* most are small; some of the large ones as large as can be */
        length = 8 + (random >> 8) % (((way == 7) ? AM_MAX_BYTES : 1024) - 7);
    }
    am_make(s->buffer, length, word);
    bytes.length = length;
    for (;;) {
        if (way < 4) {
            ret = tofu_ep_am_short(s->ep, 3, word, s->buffer + 8,
                                   (unsigned)length - 8);
        } else if (way < 6) {
            ret = tofu_ep_am_bcopy(s->ep, 4, am_pack, &bytes);
            ret = (ret == (intptr_t)length) ? TOFU_OK : ret;
        } else {
            unsigned   head = (random >> 40) % 9;
            size_t     half = (length - head) / 2;
            tofu_iov_t iov[2] = {
                {s->buffer + head, half, s->memh, 0, 1},
                {s->buffer + head + half, length - head - half, s->memh, 0, 1}
            };
            done_init(&done);
            ret = tofu_ep_am_zcopy(s->ep, 5, s->buffer, head, iov, 2,
                                   &done.comp);
        }
        if (ret != TOFU_ERR_NO_RESOURCE) {
            break;
        }
        core_idle(s->iface);
    }
    if (ret == TOFU_INPROGRESS) {
        while (done.called == 0) {
            core_idle(s->iface);
        }
        ret = done.comp.status;
    }
    CHECK_OK(ret);
}

static void send_all(struct sender *s, tofu_md_t *md, unsigned messages)
{
    size_t        length = AM_MAX_BYTES;
    uint64_t      random = s->from;
    tofu_status_t status;
    void          *address;
    unsigned      i;

    CHECK_OK(tofu_mem_alloc(md, &length, 0, &address, &s->memh));
    s->buffer = address;
    for (i = 0; i < messages; ++i) {
        send_one(s, i, next_random(&random));
    }
    while (((status = tofu_ep_flush(s->ep, 0, NULL)) == TOFU_INPROGRESS) ||
           (status == TOFU_ERR_NO_RESOURCE)) {
        core_idle(s->iface);
    }
    CHECK_OK(status);
}

static void receive_flood(struct ctx *ctx, unsigned messages)
{
    tofu_iface_stats_t stats;
    tofu_iface_attr_t  attr;
    unsigned           id, i;

    tofu_iface_query(ctx->iface, &attr);
    CHECK_EQ(attr.mrq_entries, 2048);
    for (id = 3; id <= 5; ++id) {
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, (uint8_t)id, on_message,
                                           NULL));
    }
    core_barrier(ctx);
    sleepy_receiver(ctx, (uint64_t)SENDERS * messages);
    for (i = 0; i < 1000; ++i) { /* nothing comes twice */
        core_idle(ctx->iface);
    }
    for (i = 1; i <= SENDERS; ++i) {
        CHECK_EQ(expected[i], messages);
    }
    tofu_iface_get_stats(ctx->iface, &stats);
    CHECK_EQ(stats.dropped, 0);
    CHECK_EQ(stats.am_rx, (uint64_t)SENDERS * messages);
    am_print_stats("receiver", ctx->iface);
}

/* Every sender a process on a node of its own. */
static void flood(struct ctx *ctx)
{
    unsigned      messages = am_setting("AM_MESSAGES", 1000);
    struct sender s        = {0};

    core_open(ctx, NULL, 0);
    if (ctx->rank == 0) {
        receive_flood(ctx, messages);
    } else {
        core_barrier(ctx);
        s.iface = ctx->iface;
        s.ep    = ctx->ep[0];
        s.from  = (unsigned)ctx->rank;
        send_all(&s, ctx->md, messages);
        CHECK_OK(tofu_mem_free(s.memh));
        if (ctx->rank == 1) {
            am_print_stats("sender 1", ctx->iface);
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Threads of one process, which has not enough CQs for an iface each: some have
 * a CQ of their own, the others share. */
static struct ctx       *threads_ctx;
static pthread_barrier_t threads_ready;

static void *sender_thread(void *arg)
{
    struct sender       s = {0};
    tofu_md_config_t    md_config;
    tofu_iface_config_t config;
    tofu_md_t           *md;

    s.from = (unsigned)(uintptr_t)arg;
    tofu_md_config_default(&md_config);
    md_config.tni = s.from % 6;
    tofu_iface_config_default(&config);
    config.rx_slots       = 2; /* they receive nothing */
    config.rx_short_slots = 2;
    config.tx_bounce      = 4;
    CHECK_OK(tofu_md_open(core_backend(), &md_config, &md));
    CHECK_OK(tofu_iface_open(md, &config, &s.iface));
    CHECK_OK(tofu_ep_create(s.iface, threads_ctx->shared->rank[0].address, 0,
                            &s.ep));
    pthread_barrier_wait(&threads_ready);
    send_all(&s, md, am_setting("AM_MESSAGES", 1000));
    CHECK_OK(tofu_mem_free(s.memh));
    tofu_ep_destroy(s.ep);
    tofu_iface_close(s.iface);
    tofu_md_close(md);
    return NULL;
}

static void flood_threads(struct ctx *ctx)
{
    pthread_t thread[SENDERS + 1];
    unsigned  i;

    core_open(ctx, NULL, 0);
    if (ctx->rank == 0) {
        receive_flood(ctx, am_setting("AM_MESSAGES", 1000));
    } else {
        threads_ctx = ctx;
        pthread_barrier_init(&threads_ready, NULL, SENDERS);
        core_barrier(ctx);
        for (i = 1; i <= SENDERS; ++i) {
            CHECK_EQ(pthread_create(&thread[i], NULL, sender_thread,
                                    (void *)(uintptr_t)i), 0);
        }
        for (i = 1; i <= SENDERS; ++i) {
            CHECK_EQ(pthread_join(thread[i], NULL), 0);
        }
        pthread_barrier_destroy(&threads_ready);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* ----------------------------------------------- operations of a message */

static uint64_t small_seen;

static int8_t on_small(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)data;
    (void)flags;
    CHECK_EQ(length, 16);
    ++small_seen;
    return TOFU_OK;
}

static uint64_t posts_of(tofu_iface_t *iface)
{
    tofu_iface_stats_t stats;

    tofu_iface_get_stats(iface, &stats);
    return stats.posts;
}

/* Posts of both sides since `before`, in thousandths of one for each message. */
static void check_ops(struct ctx *ctx, const char *what, uint64_t before,
                      uint64_t messages)
{
    uint64_t mine = posts_of(ctx->iface) - before, all;

    atomic_store(&ctx->shared->word[ctx->rank], mine);
    core_barrier(ctx);
    all = atomic_load(&ctx->shared->word[0]) + atomic_load(&ctx->shared->word[1]);
    if (ctx->rank == 0) {
        printf("%s: %llu messages, %llu + %llu operations: %.4f each\n", what,
               (unsigned long long)messages,
               (unsigned long long)atomic_load(&ctx->shared->word[0]),
               (unsigned long long)atomic_load(&ctx->shared->word[1]),
               (double)all / (double)messages);
    }
    CHECK(all >= messages);
    CHECK(all * 100 <= messages * 105);
    core_barrier(ctx);
}

static void send_small(struct ctx *ctx, int to, uint64_t n)
{
    uint64_t payload = n;

    while (n-- > 0) {
        tofu_status_t status;

        while ((status = tofu_ep_am_short(ctx->ep[to], 1, n, &payload, 8)) ==
               TOFU_ERR_NO_RESOURCE) {
            core_idle(ctx->iface);
        }
        CHECK_OK(status);
    }
}

/* A stream one way, and one message each way in turns. */
static void ops(struct ctx *ctx)
{
    const uint64_t messages = 64000;
    uint64_t       before, i;
    int            other = 1 - ctx->rank;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_small, NULL));
    core_barrier(ctx);
    send_small(ctx, other, 100); /* both have credit from now on */
    WAIT_FOR(ctx, 20, small_seen == 100);
    core_flush(ctx, ctx->ep[other]);
    core_barrier(ctx);

    before     = posts_of(ctx->iface);
    small_seen = 0;
    core_barrier(ctx);
    if (ctx->rank == 0) {
        send_small(ctx, other, messages);
    } else {
        WAIT_FOR(ctx, 40, small_seen == messages);
    }
    check_ops(ctx, "one way", before, messages);

    before     = posts_of(ctx->iface);
    small_seen = 0;
    core_barrier(ctx);
    for (i = 1; i <= messages / 8; ++i) {
        if (ctx->rank == 0) {
            send_small(ctx, other, 1);
            WAIT_FOR(ctx, 40, small_seen == i);
        } else {
            WAIT_FOR(ctx, 40, small_seen == i);
            send_small(ctx, other, 1);
        }
    }
    check_ops(ctx, "ping-pong", before, messages / 4);
    core_close(ctx);
}

/* A window of messages leaves while neither side calls progress: there is no round
 * trip in front of any of them.  What is more than the window is refused, not lost
 * and not waited for. */
static void window(struct ctx *ctx)
{
    uint64_t      payload = 1, before;
    tofu_status_t status;
    unsigned      sent = 0;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_small, NULL));
    core_barrier(ctx);
    if (ctx->rank == 0) {
        send_small(ctx, 1, 1);
        core_flush(ctx, ctx->ep[1]);
    } else {
        WAIT_FOR(ctx, 20, small_seen == 1);
    }
    core_barrier(ctx);
    if (ctx->rank == 0) {
        send_small(ctx, 1, 1); /* the first after a flush is noted; see ep */
        before = posts_of(ctx->iface);
        while ((status = tofu_ep_am_short(ctx->ep[1], 1, 0, &payload, 8)) ==
               TOFU_OK) {
            ++sent;
            CHECK(sent < 100000);
        }
        CHECK_EQ(status, TOFU_ERR_NO_RESOURCE);
        CHECK_EQ(posts_of(ctx->iface) - before, sent);
        printf("%u messages without progress of either side\n", sent);
        CHECK(sent >= 32);
        atomic_store(&ctx->shared->word[0], sent + 2);
    }
    core_barrier_asleep(ctx);
    if (ctx->rank == 1) {
        CHECK_EQ(small_seen, 1);
        WAIT_FOR(ctx, 20, small_seen == atomic_load(&ctx->shared->word[0]));
    }
    core_barrier(ctx);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"flood", SENDERS + 1, 500, flood, 0},
        {"flood_threads", 2, 500, flood_threads, 0},
        {"ops", 2, 90, ops, 0},
        {"window", 2, 60, window, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
