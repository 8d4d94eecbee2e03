/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that are packed into the receiver's slots (tofu_in_place.c): that they are what
 * was sent, in order; who maps what, and for how long.
 */
#include "core_test.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tofu_internal.h>
#include <tofu_am.h>
#include <tofu_take.h>

#define ID    9
#define OTHER 10

static uint64_t received; /* messages; the content of each follows from its number */

static size_t length_of(uint64_t number)
{
    static const size_t ends[] = {8256, 0, 1, 255, 256, 8191, 249, 24, 8192, 1025};
    uint64_t            state  = number * 31 + 7;

    return (number % 3 == 0) ? ends[number / 3 % (sizeof(ends) / sizeof(ends[0]))] :
           (number % 3 == 1) ? 4096 + next_random(&state) % 4096 :
                               next_random(&state) % 8193;
}

static size_t short_length_of(uint64_t number)
{
    uint64_t state = number * 17 + 3;

    return 8 + next_random(&state) % (TOFU_POLLED_BYTES - 7);
}

static size_t (*length_that_comes)(uint64_t number) = length_of;

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)flags;
    if (length != length_that_comes(received)) {
        FAIL("message %llu of %zu bytes, expected %zu", (unsigned long long)received, length,
             length_that_comes(received));
    }
    CHECK(matches(data, length, received));
    ++received;
    return TOFU_OK;
}

static int8_t on_other(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)flags;
    (void)data;
    CHECK_EQ(length, 8192);
    ++received;
    return TOFU_OK;
}

static size_t pack(void *dest, void *arg)
{
    uint64_t number = *(const uint64_t *)arg;

    fill(dest, length_of(number), number);
    return length_of(number);
}

static size_t pack_full(void *dest, void *arg)
{
    memset(dest, *(const int *)arg, 8192);
    return 8192;
}

static size_t pack_too_much(void *dest, void *arg)
{
    (void)dest;
    (void)arg;
    return 8257;
}

static void open_all(struct ctx *ctx, const tofu_iface_config_t *config)
{
    core_open(ctx, config, 4096);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, ID, on_message, NULL));
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, OTHER, on_other, NULL));
    core_barrier(ctx);
}

static intptr_t send_full(struct ctx *ctx, int to)
{
    int      value = 7;
    intptr_t ret;

    while ((ret = tofu_ep_am_bcopy(ctx->ep[to], OTHER, pack_full, &value)) ==
           TOFU_ERR_NO_RESOURCE) {
        if (tofu_iface_progress(ctx->iface) == 0) {
            sched_yield();
        }
    }
    return ret;
}

/* Rank 1 sends to rank 0 until its slots are mapped; the messages so far. */
static uint64_t warm_up(struct ctx *ctx)
{
    _Atomic uint64_t *sent = &ctx->shared->word[1];
    uint64_t         n     = 0;
    double           end   = core_now() + 40;

    if (ctx->rank == 1) {
        while (ctx->iface->am->num_mapped == 0) {
            CHECK_EQ(send_full(ctx, 0), 8192);
            ++n;
            tofu_iface_progress(ctx->iface);
            CHECK(core_now() < end);
        }
        core_flush(ctx, ctx->ep[0]);
        atomic_store(sent, n);
    }
    core_barrier(ctx);
    n = atomic_load(sent);
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, received == n);
        received = 0;
    }
    core_barrier(ctx);
    return n;
}

/* Lengths of all kinds, by all ways to send them. */
static void lengths(struct ctx *ctx)
{
    const uint64_t     messages = 4000;
    tofu_iface_stats_t before;
    char               buffer[8256];
    struct done        done;
    intptr_t           ret;
    uint64_t           i;

    open_all(ctx, NULL);
    warm_up(ctx);
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, received == messages);
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    before = stats_of(ctx);
    for (i = 0; i < messages; ++i) {
        size_t   length = length_of(i);
        uint64_t header;

        done_init(&done);
        fill(buffer, length, i);
        do {
            if ((i % 5 == 1) && (length >= 8) && (length <= TOFU_POLLED_BYTES)) {
                memcpy(&header, buffer, 8);
                ret = tofu_ep_am_short(ctx->ep[0], ID, header, buffer + 8,
                                       (unsigned)length - 8);
            } else if ((i % 5 == 2) && (length > 64) && (length <= 4096)) {
                tofu_iov_t iov = {.buffer = ctx->window, .length = length - 64,
                                  .memh = ctx->window_memh, .count = 1};
                memcpy(ctx->window, buffer + 64, length - 64);
                ret = tofu_ep_am_zcopy(ctx->ep[0], ID, buffer, 64, &iov, 1, &done.comp);
                if (ret == TOFU_INPROGRESS) {
                    CHECK_OK(done_wait(ctx, &done));
                    ret = TOFU_OK;
                }
            } else {
                ret = tofu_ep_am_bcopy(ctx->ep[0], ID, pack, &i);
                CHECK((ret < 0) || (ret == (intptr_t)length));
            }
            if ((ret == TOFU_ERR_NO_RESOURCE) &&
                (tofu_iface_progress(ctx->iface) == 0)) {
                sched_yield();
            }
        } while (ret == TOFU_ERR_NO_RESOURCE);
        CHECK(ret >= 0);
        if (i % 97 == 0) { /* the caller is broken, and told so; nothing is sent */
            do {
                ret = tofu_ep_am_bcopy(ctx->ep[0], ID, pack_too_much, NULL);
                tofu_iface_progress(ctx->iface);
            } while (ret == TOFU_ERR_NO_RESOURCE);
            CHECK_EQ(ret, TOFU_ERR_INVALID_PARAM);
        }
    }
    core_flush(ctx, ctx->ep[0]);
    CHECK(stats_of(ctx).am_in_place - before.am_in_place > messages / 4);
    CHECK_EQ(stats_of(ctx).am_tx - before.am_tx, messages);
    core_barrier(ctx);
    core_close(ctx);
}

static tofu_status_t send_short(struct ctx *ctx, int to, uint64_t number)
{
    size_t        length = short_length_of(number), header = 8 + number % 9;
    char          buffer[TOFU_POLLED_BYTES];
    uint64_t      word;
    tofu_status_t status;

    fill(buffer, length, number);
    memcpy(&word, buffer, sizeof(word));
    header = (header < length) ? header : length;
    tofu_iov_t iov[] = {
        {.buffer = buffer, .length = header, .count = 1},
        {.buffer = buffer + header, .length = length - header, .count = 1},
    };
    do {
        status = (number % 4 == 0) ?
                         tofu_ep_am_short_iov(ctx->ep[to], ID, iov, 2) :
                         tofu_ep_am_short(ctx->ep[to], ID, word, buffer + sizeof(word),
                                          (unsigned)(length - sizeof(word)));
        memset(buffer, 0, (status == TOFU_OK) ? sizeof(buffer) : 0); /* it is ours again */
        if (status == TOFU_ERR_NO_RESOURCE) {
            core_idle(ctx->iface);
        }
    } while (status == TOFU_ERR_NO_RESOURCE);
    return status;
}

/* Small messages, once they go without a notice: no long one has to come first, those of
 * more than 24 bytes are there before their tail, and none where time is the machine's. */
static void shorts(struct ctx *ctx)
{
    const uint64_t     messages = 20000;
    int                modelled;
    tofu_iface_stats_t before = {0};
    double             end    = core_now() + 40;
    uint64_t           i      = 0, mapped = 0;

    length_that_comes = short_length_of;
    open_all(ctx, NULL);
    modelled = ctx->md->backend->timed;
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, received >= messages);
        WAIT_FOR(ctx, 40, received == atomic_load(&ctx->shared->word[1]));
        CHECK_EQ(stats_of(ctx).dropped, 0);
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    for (; (mapped == 0) || (i < mapped + messages); ++i) {
        CHECK_OK(send_short(ctx, 0, i));
        if ((mapped == 0) && ((ctx->iface->am->num_mapped > 0) || modelled)) {
            mapped = i + 1;
            before = stats_of(ctx);
        }
        tofu_iface_progress(ctx->iface);
        CHECK(core_now() < end);
    }
    core_flush(ctx, ctx->ep[0]);
    if (modelled) {
        CHECK_EQ(stats_of(ctx).am_in_place, 0);
    } else {
        CHECK(stats_of(ctx).am_in_place - before.am_in_place > messages / 2);
    }
    CHECK_EQ(stats_of(ctx).am_tx, i);
    CHECK_EQ(send_short(ctx, 0, i), TOFU_OK);
    CHECK_EQ(tofu_ep_am_short(ctx->ep[0], TOFU_AM_ID_MAX, 0, ctx->window, 100),
             TOFU_ERR_INVALID_PARAM);
    CHECK_EQ(tofu_ep_am_short(ctx->ep[0], ID, 0, ctx->window, TOFU_POLLED_BYTES),
             TOFU_ERR_INVALID_PARAM);
    atomic_store(&ctx->shared->word[1], i + 1);
    core_barrier(ctx);
    core_close(ctx);
}

/* Small messages to and fro, with lines taken ahead: nothing of it is in a message.  In the
 * second half, where they go one at a time, there is a small slot for each. */
static void ahead(struct ctx *ctx)
{
    const uint64_t      messages = 30000;
    tofu_iface_config_t config;
    uint64_t            i, polled = 0;

    tofu_iface_config_default(&config);
    config.am_ahead   = 1;
    length_that_comes = short_length_of;
    open_all(ctx, &config);
    CHECK_EQ(ctx->iface->am->takes_ahead, 1);
    for (i = 0; i < messages; ++i) {
        if (i == messages / 2) {
            polled = stats_of(ctx).am_polled;
        }
        if ((i % 1000 < 900) || (i >= messages / 2)) { /* one at a time */
            if (ctx->rank == 1) {
                CHECK_OK(send_short(ctx, 0, i));
                WAIT_FOR(ctx, 40, received > i);
            } else {
                WAIT_FOR(ctx, 40, received > i);
                CHECK_OK(send_short(ctx, 1, i));
            }
        } else { /* across each other */
            CHECK_OK(send_short(ctx, !ctx->rank, i));
            tofu_iface_progress(ctx->iface);
            if (i % 1000 == 999) {
                WAIT_FOR(ctx, 40, received > i);
            }
        }
    }
    CHECK_EQ(received, messages);
    CHECK_EQ(stats_of(ctx).dropped, 0);
    if (ctx->iface->am->small_in_place && (ctx->iface->port == 0)) {
        CHECK(stats_of(ctx).am_in_place > messages / 4);
        CHECK(stats_of(ctx).am_polled - polled > messages / 2 * 9 / 10);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* To oneself, which is another mapping of the same memory */
static void oneself(struct ctx *ctx)
{
    uint64_t sent = 0;

    open_all(ctx, NULL);
    while ((ctx->iface->am->num_mapped == 0) || (sent % 64 != 0)) {
        CHECK_EQ(send_full(ctx, 0), 8192);
        ++sent;
        tofu_iface_progress(ctx->iface);
        CHECK(sent < 100000000);
    }
    WAIT_FOR(ctx, 40, received == sent);
    received = 0;
    for (sent = 0; sent < 500; ++sent) {
        intptr_t ret;

        while ((ret = tofu_ep_am_bcopy(ctx->ep[0], ID, pack, &sent)) ==
               TOFU_ERR_NO_RESOURCE) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK_EQ(ret, length_of(sent));
    }
    WAIT_FOR(ctx, 40, received == sent);
    CHECK(stats_of(ctx).am_in_place > 100);
    core_close(ctx);
}

/* Either side may say no. */
static void refused(struct ctx *ctx, int who)
{
    tofu_iface_config_t config;
    double              end;
    int                 i;

    tofu_iface_config_default(&config);
    config.am_in_place = (ctx->rank != who);
    open_all(ctx, &config);
    if (ctx->rank == 1) {
        for (i = 0; i < 200; ++i) {
            CHECK_EQ(send_full(ctx, 0), 8192);
        }
        for (end = core_now() + 0.05; core_now() < end;) { /* some ticks */
            tofu_iface_progress(ctx->iface);
        }
        for (i = 0; i < 200; ++i) {
            CHECK_EQ(send_full(ctx, 0), 8192);
        }
        CHECK_EQ(ctx->iface->am->num_mapped, 0);
        CHECK_EQ(stats_of(ctx).am_in_place, 0);
    } else {
        WAIT_FOR(ctx, 40, received == 400);
    }
    core_barrier(ctx);
    core_close(ctx);
}

static void receiver_refuses(struct ctx *ctx)
{
    refused(ctx, 0);
}

static void sender_refuses(struct ctx *ctx)
{
    refused(ctx, 1);
}

static int memfd(size_t size, int seals)
{
    int fd = memfd_create("not-slots", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK((fd >= 0) && (ftruncate(fd, (off_t)size) == 0));
    CHECK((seals == 0) || (fcntl(fd, F_ADD_SEALS, seals) == 0));
    return fd;
}

/* Let the next tick try what the peer says. */
static void try_where(struct ctx *ctx, tofu_chan_t *chan, uint64_t where)
{
    chan->where = where;
    chan->longs = TOFU_IN_PLACE_AFTER;
    WAIT_FOR(ctx, 40, chan->where == 0);
}

/* What a peer says of its file is looked at before anything is written there. */
static void fakes(struct ctx *ctx)
{
    int          pipes[2], fd[6], status;
    size_t       size, page = (size_t)sysconf(_SC_PAGESIZE), j;
    tofu_chan_t  *chan;
    uint64_t     where, me = (uint64_t)getpid() << 32, i;
    char         *base, byte;
    pid_t        dead;

    open_all(ctx, NULL);
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, received == 22);
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    CHECK_EQ(send_full(ctx, 0), 8192);
    chan = ctx->ep[0]->chan;
    WAIT_FOR(ctx, 40, chan->state == TOFU_CHAN_OPEN);
    where = chan->where;
    CHECK_EQ(where >> 32, ctx->shared->rank[0].pid);
    size = tofu_am_slots_bytes(chan->peer->geometry, page) + tofu_am_table_bytes(page);

    CHECK_EQ(pipe(pipes), 0);
    fd[0] = pipes[0];
    fd[1] = open("/", O_RDONLY | O_DIRECTORY);
    fd[2] = memfd(size, 0);             /* may be cut off later */
    fd[3] = memfd(size, F_SEAL_SHRINK); /* no identity in it */
    fd[4] = memfd(size - page, F_SEAL_SHRINK);
    fd[5] = memfd(size, F_SEAL_SHRINK | F_SEAL_WRITE); /* can't be written */
    for (i = 0; i < 6; ++i) {
        CHECK(fd[i] >= 0);
        try_where(ctx, chan, me | (uint64_t)fd[i]);
        CHECK(chan->mapped == NULL);
        CHECK_EQ(send_full(ctx, 0), 8192);
        CHECK_EQ(send_full(ctx, 0), 8192);
    }
    base = mmap(NULL, size, PROT_READ, MAP_SHARED, fd[3], 0);
    CHECK(base != MAP_FAILED);
    for (byte = 0, j = 0; j < size; ++j) {
        byte |= base[j];
    }
    CHECK_EQ(byte, 0);

    dead = fork();
    if (dead == 0) {
        _exit(0);
    }
    CHECK_EQ(waitpid(dead, &status, 0), dead);
    try_where(ctx, chan, ((uint64_t)dead << 32) | (uint32_t)where);
    CHECK(chan->mapped == NULL);
    try_where(ctx, chan, where | 0xffffffff);
    CHECK(chan->mapped == NULL);
    for (i = 0; i < 6; ++i) {
        CHECK_EQ(send_full(ctx, 0), 8192);
    }
    CHECK_EQ(stats_of(ctx).am_in_place, 0);
    try_where(ctx, chan, where); /* and the true one */
    CHECK(chan->mapped != NULL);
    for (i = 0; i < 3; ++i) {
        CHECK_EQ(send_full(ctx, 0), 8192);
    }
    CHECK_EQ(stats_of(ctx).am_in_place, 3);
    core_barrier(ctx);
    core_close(ctx);
}

/* core_close, for who is left */
static void close_alone(struct ctx *ctx)
{
    int i;

    for (i = 0; i < ctx->size; ++i) {
        tofu_rkey_release(ctx->rkey[i]);
        if (ctx->iface != NULL) {
            tofu_ep_destroy(ctx->ep[i]);
        }
    }
    if (ctx->iface != NULL) {
        tofu_iface_close(ctx->iface);
    }
    CHECK_OK(tofu_mem_free(ctx->window_memh));
    tofu_md_close(ctx->md);
}

/* A receiver is killed while it is sent to: the endpoint fails, the mapping goes. */
static void killed(struct ctx *ctx)
{
    int      value = 3;
    intptr_t ret;

    open_all(ctx, NULL);
    warm_up(ctx);
    if (ctx->rank == 0) {
        while (received < 2000) {
            tofu_iface_progress(ctx->iface);
        }
        raise(SIGKILL);
    }
    do {
        ret = tofu_ep_am_bcopy(ctx->ep[0], OTHER, pack_full, &value);
        if (ret == TOFU_ERR_NO_RESOURCE) {
            tofu_iface_progress(ctx->iface);
        }
    } while ((ret > 0) || (ret == TOFU_ERR_NO_RESOURCE));
    CHECK_EQ(ret, TOFU_ERR_ENDPOINT_TIMEOUT);
    WAIT_FOR(ctx, 40, ctx->iface->am->num_mapped == 0);
    close_alone(ctx);
}

/* Without an endpoint for a while the slots go back, and the mapping with them; the next
 * loan has one again. */
static void idle(struct ctx *ctx)
{
    unsigned round;

    open_all(ctx, NULL);
    for (round = 0; round < 2; ++round) {
        warm_up(ctx);
        if (ctx->rank == 1) {
            tofu_ep_destroy(ctx->ep[0]);
            WAIT_FOR(ctx, 40, ctx->iface->am->num_mapped == 0);
            CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0,
                                    &ctx->ep[0]));
        }
        core_barrier(ctx);
    }
    core_close(ctx);
}

/* As many peers are mapped as can be, and one of them is not sent to any more: another has its place. */
static void turns(struct ctx *ctx)
{
    const uint32_t others = TOFU_AM_MAX_MAPPED - 1; /* as if there were so many */
    tofu_am_t      *am;
    double         end;

    open_all(ctx, NULL);
    warm_up(ctx);
    if (ctx->rank == 1) {
        am = ctx->iface->am;
        CHECK_EQ(am->num_mapped, 1);
        am->num_mapped += others;
        for (end = core_now() + 20; ctx->ep[0]->chan->mapped != NULL;) {
            CHECK_EQ(send_full(ctx, 2), 8192);
            core_idle(ctx->iface);
            CHECK((ctx->ep[2]->chan->mapped == NULL) || (ctx->ep[0]->chan->mapped == NULL));
            CHECK(core_now() < end);
        }
        for (end = core_now() + 20; ctx->ep[2]->chan->mapped == NULL;) {
            CHECK_EQ(send_full(ctx, 2), 8192);
            core_idle(ctx->iface);
            CHECK(core_now() < end);
        }
        CHECK_EQ(send_full(ctx, 0), 8192);
        core_flush(ctx, ctx->ep[0]);
        am->num_mapped -= others;
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* The receiver's iface is closed under the sender, and its memory is another's: what the
 * sender still has mapped is nobody's. */
static void closed(struct ctx *ctx)
{
    tofu_iface_config_t config;
    tofu_iface_t        *again;
    tofu_mem_t          *memh;
    size_t              size = 16u << 20;
    char                *memory;
    void                *address;
    int                 value = 5, i;
    intptr_t            ret;

    open_all(ctx, NULL);
    warm_up(ctx);
    if (ctx->rank == 0) {
        tofu_ep_destroy(ctx->ep[0]);
        tofu_ep_destroy(ctx->ep[1]);
        tofu_iface_close(ctx->iface);
        ctx->iface = NULL;
        tofu_iface_config_default(&config);
        CHECK_OK(tofu_iface_open(ctx->md, &config, &again));
        CHECK_OK(tofu_mem_alloc(ctx->md, &size, 0, &address, &memh));
        memory = address;
        memset(memory, 1, 16u << 20);
        atomic_store(&ctx->shared->word[2], 1);
        while (atomic_load(&ctx->shared->word[2]) == 1) {
            tofu_iface_progress(again);
        }
        for (i = 0; i < 16 << 20; ++i) {
            CHECK_EQ(memory[i], 1);
        }
        CHECK_OK(tofu_mem_free(memh));
        tofu_iface_close(again);
        close_alone(ctx);
        return;
    }
    while (atomic_load(&ctx->shared->word[2]) == 0) {
        sched_yield();
    }
    do {
        ret = tofu_ep_am_bcopy(ctx->ep[0], OTHER, pack_full, &value);
        tofu_iface_progress(ctx->iface);
    } while ((ret > 0) || (ret == TOFU_ERR_NO_RESOURCE));
    CHECK(ret < 0);
    CHECK_EQ(ctx->iface->am->num_mapped, 0);
    atomic_store(&ctx->shared->word[2], 2);
    close_alone(ctx);
}

/* am_zcopy: a header and two parts, of which one is in blocks with gaps. */
static void zcopies(struct ctx *ctx, int early_complete)
{
    const uint64_t messages = 3000;
    struct done    done;
    char           buffer[8256];
    uint64_t       i, early = 0;
    intptr_t       ret;

    core_early = early_complete;
    core_open(ctx, NULL, 3 * sizeof(buffer));
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, ID, on_message, NULL));
    core_barrier(ctx);
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, received == messages);
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    for (i = 0; i < messages; ++i) {
        size_t   length = length_of(i), header = length % 49, blocks, block;
        unsigned count  = 1 + (unsigned)(i % 7);

        fill(buffer, length, i);
        blocks = (length - header) / 2 / count * count;
        for (block = 0; block < count; ++block) { /* a gap behind each */
            memcpy(ctx->window + block * (blocks / count + 3),
                   buffer + header + block * (blocks / count), blocks / count);
        }
        memcpy(ctx->window + 2 * sizeof(buffer), buffer + header + blocks,
               length - header - blocks);
        tofu_iov_t iov[] = {
            {.buffer = ctx->window, .length = blocks / count, .memh = ctx->window_memh,
             .count = count, .stride = blocks / count + 3},
            {.buffer = ctx->window + 2 * sizeof(buffer), .memh = ctx->window_memh,
             .length = length - header - blocks, .count = 1},
        };
        done_init(&done);
        while ((ret = tofu_ep_am_zcopy(ctx->ep[0], ID, buffer, (unsigned)header, iov, 2,
                                       &done.comp)) == TOFU_ERR_NO_RESOURCE) {
            core_idle(ctx->iface);
        }
        if (ret == TOFU_INPROGRESS) {
            CHECK_OK(done_wait(ctx, &done));
        } else {
            CHECK_OK(ret);
            ++early;
        }
        /* it is the caller's again */
        memset(ctx->window, 0, 3 * sizeof(buffer));
        if (i == messages / 2) { /* by now nobody else has to send to be mapped */
            double end = core_now() + 20;

            while (core_early && (ctx->iface->am->num_mapped == 0)) {
                core_idle(ctx->iface);
                CHECK(core_now() < end);
            }
        }
    }
    core_flush(ctx, ctx->ep[0]);
    CHECK_EQ(stats_of(ctx).am_tx, messages);
    if (core_early) {
        CHECK(stats_of(ctx).am_in_place > messages / 4);
        CHECK(early >= stats_of(ctx).am_in_place);
    } else {
        CHECK_EQ(stats_of(ctx).am_in_place, 0);
    }
    core_barrier(ctx);
    core_close(ctx);
}

static void zcopy(struct ctx *ctx)
{
    zcopies(ctx, 1);
}

/* Who wants nothing to be complete at once has it sent in parts. */
static void zcopy_late(struct ctx *ctx)
{
    zcopies(ctx, 0);
}

/* A sender is stopped while it packs: others go on, and nothing of it is lost. */
static size_t pack_stopped(void *dest, void *arg)
{
    memset(dest, 1, 4000);
    raise(SIGSTOP);
    return pack_full(dest, arg);
}

static void stopped(struct ctx *ctx)
{
    _Atomic uint64_t *word = ctx->shared->word;
    int              value = 7;
    uint64_t         before;

    open_all(ctx, NULL);
    if (ctx->rank == 0) {
        WAIT_FOR(ctx, 40, atomic_load(&word[2]) == 1);
        while (core_stopped(ctx->shared->rank[1].pid) == 0) {
            core_idle(ctx->iface);
        }
        before = received;
        WAIT_FOR(ctx, 40, received > before + 3000);
        CHECK_EQ(kill(ctx->shared->rank[1].pid, SIGCONT), 0);
        WAIT_FOR(ctx, 40, atomic_load(&word[3]) != 0);
        WAIT_FOR(ctx, 40, received == atomic_load(&word[3]) + atomic_load(&word[4]));
        CHECK_EQ(ctx->ep_errors, 0);
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    before = 0;
    if (ctx->rank == 1) {
        while (ctx->iface->am->num_mapped == 0) {
            CHECK_EQ(send_full(ctx, 0), 8192);
            ++before;
            tofu_iface_progress(ctx->iface);
        }
        atomic_store(&word[2], 1);
        while (tofu_ep_am_bcopy(ctx->ep[0], OTHER, pack_stopped, &value) ==
               TOFU_ERR_NO_RESOURCE) {
            core_idle(ctx->iface);
        }
        ++before;
        core_flush(ctx, ctx->ep[0]);
        atomic_store(&word[4], before);
    } else {
        while (atomic_load(&word[4]) == 0) {
            CHECK_EQ(send_full(ctx, 0), 8192);
            ++before;
            core_idle(ctx->iface);
        }
        core_flush(ctx, ctx->ep[0]);
        atomic_store(&word[3], before);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* To take lines over changes nothing, and touches nothing behind the message. */
static void take(struct ctx *ctx)
{
    enum { SIZE = 1024 };
    _Alignas(64) char memory[SIZE], before[SIZE];
    uint64_t          random = 5;
    size_t            at, length, i;

    (void)ctx;
    for (i = 0; i < 20000; ++i) {
        at     = next_random(&random) % (SIZE / 2);
        length = next_random(&random) % (SIZE - at + 1);
        fill(memory, SIZE, i);
        memcpy(before, memory, SIZE);
        tofu_take_lines(memory + at, length);
        CHECK(memcmp(memory, before, SIZE) == 0);
        (void)tofu_line_was_here(memory + at);
    }
    /* the page behind it can't be touched */
    char *page = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    CHECK_EQ(mprotect(page + 4096, 4096, PROT_NONE), 0);
    for (length = 0; length <= 4096; ++length) {
        tofu_take_lines(page + 4096 - length, length);
    }
    /* each line is written, be it one byte of it: where it can't be, that is a fault */
    CHECK_EQ(mprotect(page + 4096, 4096, PROT_READ), 0);
    for (length = 1; length <= 65; length += 64) {
        int   status;
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0) {
            close(STDERR_FILENO); /* a sanitizer would report it */
            tofu_take_lines(page + 4096 - 100, 100 + length);
            _exit(0);
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(!WIFEXITED(status) || (WEXITSTATUS(status) != 0));
    }
    CHECK_EQ(munmap(page, 2 * 4096), 0);
}

static const struct test_case cases[] = {
    {"lengths", 2, 60, lengths, 0},
    {"shorts", 2, 60, shorts, 0},
    {"ahead", 2, 60, ahead, 0},
    {"zcopy", 2, 60, zcopy, 0},
    {"zcopy_late", 2, 60, zcopy_late, 0},
    {"stopped", 3, 60, stopped, 0},
    {"take", 1, 30, take, 0},
    {"oneself", 1, 60, oneself, 0},
    {"receiver_refuses", 2, 30, receiver_refuses, 0},
    {"sender_refuses", 2, 30, sender_refuses, 0},
    {"fakes", 2, 60, fakes, 0},
    {"killed", 2, 60, killed, 1},
    {"idle", 2, 60, idle, 0},
    {"turns", 3, 60, turns, 0},
    {"closed", 2, 60, closed, 0},
};

int main(int argc, char **argv)
{
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
