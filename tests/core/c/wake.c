/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping: arm, poll the descriptor, progress.  A sleep that ends by the long timer
 * with a message there is a wake-up that was lost.  On a busy machine a message may
 * come just when the timer ends, so such sleeps are counted against a limit that
 * lost wake-ups are far beyond.
 */
#include "core_test.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ROUNDS  5000
#define LONG_MS 90 /* the long timer is 100 ms */

struct sleeper {
    struct ctx *ctx;
    int        fd;
    unsigned   sleeps, late;
};

static uint64_t received, sum;

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    uint64_t header;

    (void)arg;
    (void)flags;
    CHECK(length >= sizeof(header));
    memcpy(&header, data, sizeof(header));
    sum += header;
    ++received;
    return TOFU_OK;
}

static void open_sleeper(struct ctx *ctx, struct sleeper *s,
                         const tofu_iface_config_t *config, size_t window)
{
    memset(s, 0, sizeof(*s));
    s->ctx = ctx;
    core_open(ctx, config, window);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 3, on_message, NULL));
    CHECK_OK(tofu_iface_event_fd(ctx->iface, &s->fd));
    core_barrier(ctx);
}

/* One step of a loop that waits. */
static void wait_step(struct sleeper *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    tofu_status_t status;
    double        begin;

    if (tofu_iface_progress(s->ctx->iface) > 0) {
        return;
    }
    status = tofu_iface_event_arm(s->ctx->iface, 3);
    if (status == TOFU_ERR_BUSY) {
        return;
    }
    CHECK_OK(status);
    ++s->sleeps;
    begin = core_now();
    CHECK_EQ(poll(&p, 1, 20000), 1);
    if (((core_now() - begin) * 1e3 > LONG_MS) &&
        (tofu_iface_progress(s->ctx->iface) > 0)) {
        ++s->late;
    }
}

static void send_message(struct sleeper *s, int to, uint64_t number)
{
    tofu_status_t status;

    while ((status = tofu_ep_am_short(s->ctx->ep[to], 3, number, NULL, 0)) ==
           TOFU_ERR_NO_RESOURCE) {
        wait_step(s);
    }
    CHECK_OK(status);
}

static void check_late(const struct sleeper *s, unsigned limit)
{
    CHECK(s->sleeps > 0);
    if (s->late > limit) {
        FAIL("%u of %u sleeps ended by the timer with something there", s->late,
             s->sleeps);
    }
}

/* Two that wake each other by messages. */
static void ping_pong(struct ctx *ctx)
{
    struct sleeper s;
    uint64_t       i;

    open_sleeper(ctx, &s, NULL, 0);
    for (i = 1; i <= ROUNDS; ++i) {
        if (ctx->rank == 0) {
            send_message(&s, 1, i);
        }
        while (received < i) {
            wait_step(&s);
        }
        if (ctx->rank == 1) {
            send_message(&s, 0, i);
        }
    }
    CHECK_EQ(sum, (uint64_t)ROUNDS * (ROUNDS + 1) / 2);
    check_late(&s, 20);
    core_barrier(ctx);
    core_close(ctx);
}

/* Several senders and a receiver, all asleep when they can do nothing: credit and
 * grants come without a notice. */
static void credit(struct ctx *ctx)
{
    const uint64_t messages = 3000;
    tofu_iface_config_t config;
    struct sleeper      s;
    uint64_t            i;

    tofu_iface_config_default(&config);
    config.rx_short_slots = 8; /* fewer than the senders want */
    config.rx_slots       = 8;
    open_sleeper(ctx, &s, &config, 0);
    if (ctx->rank == 0) {
        while (received < messages * (uint64_t)(ctx->size - 1)) {
            wait_step(&s);
        }
        CHECK_EQ(sum, (messages + 1) * messages / 2 * (uint64_t)(ctx->size - 1));
    } else {
        for (i = 1; i <= messages; ++i) {
            send_message(&s, 0, i);
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Completions of what was posted wake, too; also what is posted after arming. */
static void completions(struct ctx *ctx)
{
    size_t         length = 65536;
    struct sleeper s;
    tofu_mem_t     *memh;
    struct done    done;
    void           *buffer;
    unsigned       i;

    open_sleeper(ctx, &s, NULL, length);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &buffer, &memh));
    for (i = 0; (ctx->rank == 0) && (i < 300); ++i) {
        tofu_iov_t    iov = {buffer, 65536, memh, 0, 1};
        struct pollfd p   = {.fd = s.fd, .events = POLLIN};
        tofu_status_t status;

        done_init(&done);
        if (i % 2 == 0) {
            while (tofu_iface_event_arm(ctx->iface, 1) == TOFU_ERR_BUSY) {
                tofu_iface_progress(ctx->iface);
            }
        }
        while ((status = tofu_ep_put_zcopy(ctx->ep[1], &iov, 1,
                                           ctx->shared->rank[1].base,
                                           ctx->rkey[1], &done.comp)) ==
               TOFU_ERR_NO_RESOURCE) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK_EQ(status, TOFU_INPROGRESS);
        if (i % 2 == 0) {
            double begin = core_now();
            ++s.sleeps;
            CHECK_EQ(poll(&p, 1, 20000), 1);
            s.late += (core_now() - begin) * 1e3 > LONG_MS;
        }
        while (!done.called) {
            wait_step(&s);
        }
        CHECK_EQ(done.comp.status, TOFU_OK);
    }
    if (ctx->rank == 0) {
        check_late(&s, 10);
    }
    core_barrier(ctx);
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* Arming says BUSY while there is something, OK when there is not; sleeping for
 * nothing ends by the timer. */
static void busy(struct ctx *ctx)
{
    struct sleeper s;
    struct pollfd  p;
    tofu_status_t  status;
    int            fd;

    open_sleeper(ctx, &s, NULL, 0);
    CHECK_OK(tofu_iface_event_fd(ctx->iface, &fd));
    CHECK_EQ(fd, s.fd); /* the same one each time */
    p = (struct pollfd){.fd = fd, .events = POLLIN};
    if (ctx->rank == 0) {
        while (received < 1) {
            wait_step(&s);
        }
        core_barrier(ctx);
        core_barrier_asleep(ctx); /* the second one was sent */
        CHECK_EQ(tofu_iface_event_arm(ctx->iface, 2), TOFU_ERR_BUSY);
        CHECK_EQ(tofu_iface_event_arm(ctx->iface, 2), TOFU_ERR_BUSY);
        CHECK_EQ(received, 1); /* nobody is called from arm */
        tofu_iface_progress(ctx->iface);
        CHECK_EQ(received, 2);
        while ((status = tofu_iface_event_arm(ctx->iface, 2)) ==
               TOFU_ERR_BUSY) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK_OK(status);
        CHECK_EQ(poll(&p, 1, 20000), 1);
    } else {
        send_message(&s, 0, 1);
        core_barrier(ctx);
        send_message(&s, 0, 2);
        core_flush(ctx, ctx->ep[0]); /* it is there, in the strict mode too */
        core_barrier_asleep(ctx);
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Strangers ring, and the descriptor is closed by the user. */
static void hostile(struct ctx *ctx)
{
    struct sockaddr_un name;
    tofu_iface_config_t config;
    tofu_iface_t       *iface;
    struct sleeper     s;
    socklen_t          length = 0;
    int                fd, own = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    unsigned           i, sent = 0;

    open_sleeper(ctx, &s, NULL, 0);
    /* the socket is one of the descriptors next to the epoll set's */
    for (fd = s.fd; (fd < s.fd + 4) && (length <= sizeof(sa_family_t)); ++fd) {
        length = sizeof(name);
        if (getsockname(fd, (struct sockaddr *)&name, &length) != 0) {
            length = 0;
        }
    }
    CHECK(length > sizeof(sa_family_t));
    for (i = 0; i < 200; ++i) {
        while (sendto(own, "xxxx", 4, MSG_DONTWAIT, (struct sockaddr *)&name,
                      length) == 4) {
            ++sent;
        }
        while (tofu_iface_event_arm(ctx->iface, 3) == TOFU_ERR_BUSY) {
            tofu_iface_progress(ctx->iface); /* it reads them all */
        }
        send_message(&s, 0, i);
        while (received <= i) {
            wait_step(&s);
        }
    }
    CHECK(sent > 200);
    close(s.fd);
    while (tofu_iface_event_arm(ctx->iface, 3) == TOFU_ERR_BUSY) {
        tofu_iface_progress(ctx->iface);
    }
    close(own);

    tofu_iface_config_default(&config);
    config.wakeup_timer_us = 0;
    CHECK_EQ(tofu_iface_open(ctx->md, &config, &iface),
             TOFU_ERR_INVALID_PARAM);
    config.wakeup_timer_us = 100001;
    CHECK_EQ(tofu_iface_open(ctx->md, &config, &iface),
             TOFU_ERR_INVALID_PARAM);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"ping_pong", 2, 60, ping_pong, 0},
        {"credit", 4, 60, credit, 0},
        {"completions", 2, 60, completions, 0},
        {"busy", 2, 30, busy, 0},
        {"hostile", 1, 30, hostile, 0},
    };

    return core_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
