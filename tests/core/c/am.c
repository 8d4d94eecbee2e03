/* SPDX-License-Identifier: BSD-3-Clause */
/* Active messages: integrity, order, flow control, many senders, replies. */
#include "core_test.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* A message of a stream: its number, then bytes that follow from it. */
struct stream {
    uint64_t next; /* number expected or to be sent */
    uint64_t seed;
};

#define MAX_SHORT 248 /* of am_short, where the segments are as long */

struct message {
    uint64_t from : 16, number : 48;
};

static struct stream received[MAX_RANKS];
static uint64_t      total_received;

static int8_t on_stream(void *arg, void *data, size_t length, unsigned flags)
{
    struct message m;
    struct stream  *s;

    (void)arg;
    CHECK_EQ(flags, 0);
    CHECK(length >= sizeof(m));
    memcpy(&m, data, sizeof(m));
    CHECK(m.from < MAX_RANKS);
    s = &received[m.from];
    if (m.number != s->next) {
        FAIL("message %llu from %u, expected %llu", (unsigned long long)m.number,
             (unsigned)m.from, (unsigned long long)s->next);
    }
    if (!matches((char *)data + 8, length - 8, m.from * 7919 + m.number)) {
        FAIL("message %llu from %u of %zu bytes is damaged",
             (unsigned long long)m.number, (unsigned)m.from, length);
    }
    ++s->next;
    ++total_received;
    return TOFU_OK;
}

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

/* One try to send message `number`; the way follows from the random value. */
static tofu_status_t send_message(struct ctx *ctx, tofu_ep_t *ep, uint8_t id,
                                  uint64_t number, uint64_t random, char *buffer,
                                  tofu_mem_t *memh, size_t max_size,
                                  struct done *done)
{
    struct message  m   = {.from = (uint64_t)ctx->rank, .number = number};
    struct outgoing out = {buffer, 0};
    size_t          max_short = (max_size < MAX_SHORT) ? max_size : MAX_SHORT;
    uint64_t        header;
    intptr_t        n;

    memcpy(&header, &m, sizeof(header));
    memcpy(buffer, &header, 8);
    switch (random % 4) {
    case 0:
        out.length = 8 + (random >> 8) % (max_short - 7);
        fill(buffer + 8, out.length - 8, m.from * 7919 + number);
        return tofu_ep_am_short(ep, id, header, buffer + 8,
                                (unsigned)out.length - 8);
    case 1: {
        size_t a = (random >> 20) % 9;
        out.length = 8 + (random >> 8) % (max_short - 7);
        fill(buffer + 8, out.length - 8, m.from * 7919 + number);
        tofu_iov_t iov[3] = {{buffer, a, NULL, 0, 1},
                             {NULL, 0, NULL, 0, 1},
                             {buffer + a, out.length - a, NULL, 0, 1}};
        return tofu_ep_am_short_iov(ep, id, iov, 3);
    }
    case 2:
        out.length = 8 + (random >> 8) % (max_size - 7);
        fill(buffer + 8, out.length - 8, m.from * 7919 + number);
        n = tofu_ep_am_bcopy(ep, id, pack_message, &out);
        if (n >= 0) {
            CHECK_EQ(n, out.length);
            memset(buffer, 0xdd, out.length);
            return TOFU_OK;
        }
        return (tofu_status_t)n;
    default: {
        size_t h   = (random >> 40) % 65, part, i;
        out.length = 8 + (random >> 8) % (max_size - 7);
        h          = h > out.length ? out.length : h;
        fill(buffer + 8, out.length - 8, m.from * 7919 + number);
        part = (out.length - h) / 3;
        tofu_iov_t iov[3];
        for (i = 0; i < 3; ++i) {
            iov[i] = (tofu_iov_t){buffer + h + i * part, part, memh, 0, 1};
        }
        iov[2].length = out.length - h - 2 * part;
        done_init(done);
        return tofu_ep_am_zcopy(ep, id, buffer, (unsigned)h, iov, 3,
                                &done->comp);
    }
    }
}

/* Send one for certain. */
static void send_one(struct ctx *ctx, tofu_ep_t *ep, uint8_t id, uint64_t number,
                     uint64_t random, char *buffer, tofu_mem_t *memh,
                     size_t max_size)
{
    struct done   done;
    tofu_status_t status;

    while ((status = send_message(ctx, ep, id, number, random, buffer, memh,
                                  max_size, &done)) == TOFU_ERR_NO_RESOURCE) {
        tofu_iface_progress(ctx->iface);
    }
    if (status == TOFU_INPROGRESS) {
        CHECK_OK(done_wait(ctx, &done));
        memset(buffer, 0xdd, max_size);
    } else {
        CHECK_OK(status);
    }
}

static tofu_mem_t *open_buffer(struct ctx *ctx, char **buffer_p)
{
    size_t     length = 65536;
    tofu_mem_t *memh;
    void       *address;

    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    *buffer_p = address;
    return memh;
}

/* Every length, by every way, between all pairs, to oneself too. */
static void lengths(struct ctx *ctx)
{
    tofu_iface_config_t config;
    uint64_t            number[MAX_RANKS] = {0};
    tofu_mem_t          *memh;
    char                *buffer;
    size_t              length;
    uint64_t            way;
    int                 r;
    tofu_iface_attr_t   attr;

    tofu_iface_config_default(&config);
    config.am_seg_size = 4096;
    core_open(ctx, &config, 0);
    tofu_iface_query(ctx->iface, &attr);
    CHECK_EQ(attr.max_am_short, MAX_SHORT);
    memh = open_buffer(ctx, &buffer);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 31, on_stream, NULL));
    core_barrier(ctx);
    for (way = 0; way < 4; ++way) {
        for (length = 8; length <= 4096;
             length += (length < 260) ? 1 : (length < 4090) ? 123 : 1) {
            if ((way < 2) && (length > attr.max_am_short)) {
                break;
            }
            for (r = 0; r < ctx->size; ++r) {
                send_one(ctx, ctx->ep[r], 31, number[r]++,
                         way | ((length - 8) << 8) | ((length * 31 % 65) << 40),
                         buffer, memh, 4096);
            }
        }
    }
    for (r = 0; r < ctx->size; ++r) {
        core_flush(ctx, ctx->ep[r]);
    }
    core_barrier(ctx);
    while (total_received < number[0] * (unsigned)ctx->size) {
        tofu_iface_progress(ctx->iface);
    }
    core_barrier(ctx);
    /* all is quiet soon: nothing is done for ever */
    double end = core_now() + 2;
    for (r = 0; r < 1000; ++r) {
        if (tofu_iface_progress(ctx->iface) > 0) {
            CHECK(core_now() < end);
            r = 0;
        }
    }
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* A message of no bytes, and the header that am_short carries. */
static unsigned empty_seen;

static int8_t on_empty(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)data;
    (void)flags;
    CHECK_EQ(length, 0);
    ++empty_seen;
    return TOFU_OK;
}

/* From a Zen 5 on */
static int is_late_amd(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;

    __builtin_cpu_init();
    return __builtin_cpu_is("amd") && __get_cpuid(1, &a, &b, &c, &d) &&
           (((a >> 8) & 0xf) + ((a >> 20) & 0xff) >= 0x1a);
#else
    return 0;
#endif
}

/* Half a page away from where pages, and what malloc gives, start, as copies from there are
 * slow on some processors; on others little behind, as it is the other way round. */
static size_t pack_and_look(void *dest, void *arg)
{
    size_t behind = is_late_amd() ? 16 : 2048;

    (void)arg;
    CHECK((uintptr_t)dest % 4096 > behind);
    CHECK((uintptr_t)dest % 4096 < behind + (is_late_amd() ? 48 : 256));
    memset(dest, 1, 100);
    return 100;
}

static void places(struct ctx *ctx)
{
    tofu_rkey_t *rkey;
    int         i;

    core_open(ctx, NULL, 65536);
    rkey = ctx->rkey[0];
    for (i = 0; i < 300; ++i) {
        CHECK_EQ(RETRY(ctx, tofu_ep_am_bcopy(ctx->ep[0], 0, pack_and_look, NULL)), 100);
        CHECK_EQ(RETRY(ctx, tofu_ep_put_bcopy(ctx->ep[0], pack_and_look, NULL,
                                              (uintptr_t)ctx->window, rkey)), 100);
    }
    core_flush(ctx, ctx->ep[0]);
    core_close(ctx);
}

static size_t pack_nothing(void *dest, void *arg)
{
    (void)dest;
    (void)arg;
    return 0;
}

static unsigned late_seen;

static int8_t on_late(void *arg, void *data, size_t length, unsigned flags)
{
    const char *bytes = data;
    size_t     i;

    (void)arg;
    (void)flags;
    CHECK_EQ(length, (late_seen % 2) ? 16u : 64u);
    for (i = 0; i < length; ++i) {
        CHECK_EQ(bytes[i], (char)late_seen);
    }
    ++late_seen;
    return 0;
}

static void empty(struct ctx *ctx)
{
    struct done done;
    int         i;

    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 0, on_empty, NULL));
    core_barrier(ctx);
    for (i = 0; i < 50; ++i) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short_iov(ctx->ep[1], 0, NULL, 0)));
        CHECK_EQ(RETRY(ctx, tofu_ep_am_bcopy(ctx->ep[1], 0, pack_nothing, NULL)),
                 0);
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_am_zcopy(ctx->ep[1], 0, NULL, 0, NULL, 0,
                                             &done.comp)), TOFU_INPROGRESS);
        CHECK_EQ(done.called, 0); /* in progress, as that of any other */
        CHECK_OK(done_wait(ctx, &done));
        CHECK_OK(RETRY(ctx, tofu_ep_am_zcopy(ctx->ep[1], 0, NULL, 0, NULL, 0, NULL)));
    }
    if (ctx->rank == 1) {
        while (empty_seen < 200u * (unsigned)ctx->size) {
            tofu_iface_progress(ctx->iface);
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Short messages are complete at once, or, where that is not wanted, in progress: the first,
 * which waits for its slot, and others.  The data is taken before the call returns. */
static void taken(struct ctx *ctx, int early)
{
    struct done         done[8];
    tofu_mem_t          *memh;
    tofu_iov_t          iov;
    char                *buffer;
    unsigned            i;

    core_early = early;
    core_open(ctx, NULL, 0);
    memh = open_buffer(ctx, &buffer);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 0, on_late, NULL));
    core_barrier(ctx);
    for (i = 0; (i < 8) && (ctx->rank == 0); ++i) {
        memset(buffer, (int)i, 64);
        iov = (tofu_iov_t){buffer, (i % 2) ? 16 : 64, memh, 0, 1};
        done_init(&done[i]);
        CHECK_EQ(RETRY(ctx, tofu_ep_am_zcopy(ctx->ep[1], 0, NULL, 0, &iov, 1,
                                             &done[i].comp)),
                 early ? TOFU_OK : TOFU_INPROGRESS);
        memset(buffer, 0xee, 64);
    }
    for (i = 0; (i < 8) && (ctx->rank == 0); ++i) {
        CHECK_OK(early ? TOFU_OK : done_wait(ctx, &done[i]));
    }
    if (ctx->rank == 0) {
        core_flush(ctx, ctx->ep[1]);
    }
    for (i = 0; (i < 8) && (ctx->rank == 0); ++i) {
        CHECK_EQ(done[i].called, !early);
    }
    PROGRESS_UNTIL(ctx, 10, (ctx->rank == 0) || (late_seen == 8));
    core_barrier(ctx);
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

static void early(struct ctx *ctx)
{
    taken(ctx, 1);
}

static void late(struct ctx *ctx)
{
    taken(ctx, 0);
}

/* Random messages between all pairs at once. */
static void storm(struct ctx *ctx)
{
    const uint64_t messages = 30000 / (uint64_t)ctx->size;
    uint64_t       random   = 1000 + (uint64_t)ctx->rank, i;
    tofu_mem_t     *memh;
    char           *buffer;
    int            r;

    core_open(ctx, NULL, 0);
    memh = open_buffer(ctx, &buffer);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 5, on_stream, NULL));
    core_barrier(ctx);
    for (i = 0; i < messages; ++i) {
        for (r = 0; r < ctx->size; ++r) {
            send_one(ctx, ctx->ep[r], 5, i, next_random(&random), buffer, memh,
                     8192);
        }
    }
    while (total_received < messages * (unsigned)ctx->size) {
        tofu_iface_progress(ctx->iface);
    }
    core_barrier(ctx);
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* --------------------------------------------------------- queued requests */

struct queued {
    tofu_pending_req_t req;
    struct ctx         *ctx;
    tofu_ep_t          *ep;
    uint64_t           number;
    uint64_t           random;
    char               *buffer;
    unsigned           *left;
};

static int8_t send_queued(tofu_pending_req_t *req)
{
    struct queued *q = (struct queued *)req;
    struct done   done;
    tofu_status_t status;

    status = send_message(q->ctx, q->ep, 1, q->number, q->random, q->buffer, NULL,
                          1500, &done);
    if (status == TOFU_ERR_NO_RESOURCE) {
        return TOFU_ERR_NO_RESOURCE;
    }
    CHECK_OK(status);
    --*q->left;
    free(q);
    return TOFU_OK;
}

/* Send or queue. */
static void submit(struct ctx *ctx, tofu_ep_t *ep, uint64_t number,
                   uint64_t random, char *buffer, unsigned *left)
{
    struct queued *q = calloc(1, sizeof(*q));
    tofu_status_t status;

    *q = (struct queued){.req.func = send_queued, .ctx = ctx, .ep = ep,
                         .number = number, .random = random % 1000 * 4 +
                         random % 3, .buffer = buffer, .left = left};
    ++*left;
    for (;;) {
        status = (tofu_status_t)send_queued(&q->req);
        if (status == TOFU_OK) {
            return;
        }
        status = tofu_ep_pending_add(ep, &q->req);
        if (status == TOFU_OK) {
            return;
        }
        CHECK_EQ(status, TOFU_ERR_BUSY); /* then sending must work, or say
                                            NO_RESOURCE for another reason */
    }
}

/* All but rank 0 flood rank 0, which sleeps; nothing is lost or overflows.  (The
 * least MRQ, by the environment that the test sets.) */
static void sleeper(struct ctx *ctx)
{
    const unsigned      messages = 1500;
    uint64_t            random   = (uint64_t)ctx->rank;
    tofu_iface_stats_t  stats;
    tofu_iface_attr_t   attr;
    char                buffer[8192];
    unsigned            i, left = 0;

    core_open(ctx, NULL, 0);
    tofu_iface_query(ctx->iface, &attr);
    CHECK(attr.max_notices <= attr.mrq_entries);
    if (getenv("UTOFU_NUM_MRQ_ENTRIES") != NULL) {
        CHECK_EQ(attr.mrq_entries, 2048);
    }
    if (ctx->rank == 0) {
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_stream, NULL));
        /* grant, then sleep */
        double until = core_now() + 0.3;
        while (core_now() < until) {
            tofu_iface_progress(ctx->iface);
        }
        core_usleep(1000000);
        while (total_received < messages * (unsigned)(ctx->size - 1)) {
            tofu_iface_progress(ctx->iface);
        }
        tofu_iface_get_stats(ctx->iface, &stats);
        CHECK_EQ(stats.am_rx, messages * (unsigned)(ctx->size - 1));
        CHECK_EQ(stats.dropped, 0);
    } else {
        for (i = 0; i < messages; ++i) {
            submit(ctx, ctx->ep[0], i, next_random(&random), buffer, &left);
        }
        while (left > 0) {
            tofu_iface_progress(ctx->iface);
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* More senders than the receiver has slots for: they take turns. */
static void crowd(struct ctx *ctx)
{
    const unsigned      messages = 60;
    tofu_iface_config_t config;
    uint64_t            random = (uint64_t)ctx->rank;
    tofu_iface_stats_t  stats;
    char                buffer[8192];
    unsigned            i, left = 0;

    tofu_iface_config_default(&config);
    config.rx_slots       = 8;
    config.rx_short_slots = 8;
    core_open(ctx, &config, 0);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_stream, NULL));
        while (total_received < messages * (unsigned)(ctx->size - 1)) {
            tofu_iface_progress(ctx->iface);
        }
        tofu_iface_get_stats(ctx->iface, &stats);
        CHECK_EQ(stats.dropped, 0);
    } else {
        for (i = 0; i < messages; ++i) {
            submit(ctx, ctx->ep[0], i, next_random(&random), buffer, &left);
        }
        while (left > 0) {
            tofu_iface_progress(ctx->iface);
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"lengths", 2, 60, lengths, 0},
        {"empty", 2, 30, empty, 0},
        {"early", 2, 30, early, 0},
        {"late", 2, 30, late, 0},
        {"places", 1, 30, places, 0},
        {"storm2", 2, 60, storm, 0},
        {"storm4", 4, 90, storm, 0},
        {"sleeper", 9, 60, sleeper, 0},
        {"crowd", 12, 60, crowd, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
