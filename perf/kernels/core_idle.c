/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core_idle.c - ping-pong of active messages while other peers are connected and
 * idle.
 *
 * Each idle peer is an iface that has sent rank 0 one message and has got one.  They
 * live in processes that then sleep, each on an emulated node of its own: a
 * node has VCQs for some hundred of them only.
 *
 * Usage: core_idle <cpu0> <cpu1> <memory> <size> <iterations> lat <peers>
 * (memory is not used; size, with the header, is 8 .. 32)
 */
#define _GNU_SOURCE
#include "core_common.h"

#define KEPT_MAX    84 /* idle peers of one process */
#define KEEPERS_MAX 16
#define TNIS        6  /* ifaces get 15 VCQs of each: most are alone on a CQ */
#define CONNECT_LIMIT 85 /* seconds for all: a thousand peers take their time */
#define AFTER_S     0.2 /* from the last message to sleep */

static volatile unsigned long arrived;
static int                    num_idle;
static unsigned               size;
static long                   iterations;

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    (void)data;
    (void)length;
    (void)flags;
    ++*(volatile unsigned long*)arg;
    return TOFU_OK;
}

/* An address, or as many as there are, through a pair's socket. */
static void give(const struct perf_pair *pair, const void *data, size_t length)
{
    size_t  done;
    ssize_t ret;

    for (done = 0; done < length; done += ret) {
        ret = write(pair->fd, (const char*)data + done, length - done);
        PERF_CHECK(ret > 0, "the other process is gone");
    }
}

static void take(const struct perf_pair *pair, void *data, size_t length)
{
    size_t  done;
    ssize_t ret;

    for (done = 0; done < length; done += ret) {
        ret = read(pair->fd, (char*)data + done, length - done);
        PERF_CHECK(ret > 0, "the other process is gone");
    }
}

/* A process with some idle peers; number is at least 1. */
static void keep(const struct perf_pair *pair, int number, int count)
{
    static struct core_address addresses[KEPT_MAX];
    static volatile unsigned long got[KEPT_MAX];
    static tofu_iface_t        *ifaces[KEPT_MAX];
    static tofu_ep_t           *eps[KEPT_MAX];
    static char                sent[KEPT_MAX];
    tofu_status_t              status;
    tofu_iface_config_t        config;
    struct core_address        rank0;
    tofu_md_t                  *mds[TNIS];
    char                       coords[32], byte;
    int                        i, left;

    snprintf(coords, sizeof(coords), "%d,1,1,0,0,0", number % 8);
    if (number >= 8) {
        snprintf(coords, sizeof(coords), "%d,2,1,0,0,0", number % 8);
    }
    setenv("UTOFU_EMU_COORDS", coords, 1);
    tofu_iface_config_default(&config);
    config.rx_slots       = 8; /* many ifaces: little memory each */
    config.rx_short_slots = 32;
    config.tx_bounce      = 4;
    for (i = 0; i < TNIS; ++i) {
        mds[i] = core_md(i);
    }
    for (i = 0; i < count; ++i) {
        ifaces[i] = core_iface(mds[i % TNIS], &config, on_message, (void*)&got[i]);
        core_address(ifaces[i], &addresses[i]);
    }
    give(pair, addresses, count * sizeof(addresses[0]));
    take(pair, &rank0, sizeof(rank0));
    for (i = 0; i < count; ++i) {
        eps[i] = core_connect(ifaces[i], &rank0);
    }
    /* never wait for one of them alone: another may hold what it waits for */
    do {
        for (i = left = 0; i < count; ++i) {
            tofu_iface_progress(ifaces[i]);
            if (!sent[i]) {
                status = tofu_ep_am_short(eps[i], CORE_AM_ID, i, "payload", 8);
                PERF_CHECK((status == TOFU_OK) ||
                           (status == TOFU_ERR_NO_RESOURCE),
                           "tofu_ep_am_short: %s", tofu_status_string(status));
                sent[i] = (status == TOFU_OK);
            }
            left += (got[i] == 0) || !sent[i];
        }
    } while (left > 0);
    give(pair, "i", 1);
    /* they hold slots that others need: look after them until all are done */
    while (recv(pair->fd, &byte, 1, MSG_DONTWAIT) != 1) {
        PERF_CHECK((errno == EAGAIN) || (errno == EINTR),
                   "the other process is gone");
        for (i = 0; i < count; ++i) {
            tofu_iface_progress(ifaces[i]);
        }
        usleep(500);
    }
    take(pair, &byte, 1); /* asleep until the measurement is over */
    for (i = 0; i < count; ++i) {
        tofu_ep_destroy(eps[i]);
        tofu_iface_close(ifaces[i]);
    }
    for (i = 0; i < TNIS; ++i) {
        tofu_md_close(mds[i]);
    }
    give(pair, "e", 1);
    exit(0);
}

/* Exchange a message with every idle peer of a process. */
static void greet(const struct perf_pair *pair, tofu_iface_t *iface,
                  const struct core_address *mine, tofu_ep_t **eps, int count)
{
    static struct core_address addresses[KEPT_MAX];
    unsigned long              before = arrived;
    char                       byte;
    int                        i;

    take(pair, addresses, count * sizeof(addresses[0]));
    give(pair, mine, sizeof(*mine));
    for (i = 0; i < count; ++i) {
        eps[i] = core_connect(iface, &addresses[i]);
        core_am(iface, eps[i], i, "payload", 8);
    }
    while (arrived < before + (unsigned)count) {
        tofu_iface_progress(iface);
    }
    take(pair, &byte, 1);
}

static void pingpong(const struct perf_pair *pair, tofu_iface_t *iface,
                     tofu_ep_t *ep)
{
    static const char payload[32];
    double            times[PERF_CHUNKS], start;
    unsigned long     expected = arrived;
    int               chunk;
    long              i;

    for (chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        for (i = 0; i < iterations; ++i) {
            if (pair->rank == 0) {
                core_am(iface, ep, i, payload, size - 8);
            }
            for (++expected; arrived < expected;) {
                tofu_iface_progress(iface);
            }
            if (pair->rank == 1) {
                core_am(iface, ep, i, payload, size - 8);
            }
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    if (pair->rank == 0) {
        perf_report(times, 2 * iterations);
    }
}

int main(int argc, char **argv)
{
    struct perf_pair    pair, keepers[KEEPERS_MAX];
    struct core_address mine, theirs;
    tofu_ep_t           *ep, **eps;
    tofu_iface_t        *iface;
    tofu_md_t           *md;
    char                byte;
    double              end;
    int                 i, count, num_keepers, failed = 0;

    PERF_CHECK((argc == 8) && !strcmp(argv[6], "lat"),
               "usage: %s cpu0 cpu1 memory size iterations lat peers", argv[0]);
    size       = (unsigned)atoi(argv[4]);
    iterations = (atol(argv[5]) + PERF_CHUNKS - 1) / PERF_CHUNKS;
    num_idle   = atoi(argv[7]);
    PERF_CHECK((size >= 8) && (size <= 32) && (iterations > 0) &&
               (num_idle >= 0) && (num_idle <= KEPT_MAX * KEEPERS_MAX),
               "arguments out of range");
    num_keepers = (num_idle + KEPT_MAX - 1) / KEPT_MAX;
    for (i = 0; i < num_keepers; ++i) {
        perf_pair_start(&keepers[i], atoi(argv[1]), atoi(argv[2]));
        if (keepers[i].rank == 1) {
            count = num_idle - i * KEPT_MAX;
            keep(&keepers[i], i + 1, (count < KEPT_MAX) ? count : KEPT_MAX);
        }
    }
    perf_pair_start(&pair, atoi(argv[1]), atoi(argv[2]));
    alarm(CONNECT_LIMIT);
    setenv("UTOFU_EMU_COORDS", "0,0,0,0,0,0", 1);

    md    = core_md(0);
    iface = core_iface(md, NULL, on_message, (void*)&arrived);
    core_address(iface, &mine);
    perf_exchange(&pair, &mine, &theirs, sizeof(mine));
    ep  = core_connect(iface, &theirs);
    eps = calloc(num_idle + 1, sizeof(*eps));
    PERF_CHECK(eps != NULL, "no memory");
    if (pair.rank == 0) {
        for (i = 0; i < num_keepers; ++i) {
            count = num_idle - i * KEPT_MAX;
            greet(&keepers[i], iface, &mine, eps + i * KEPT_MAX,
                  (count < KEPT_MAX) ? count : KEPT_MAX);
        }
        for (end = perf_now() + AFTER_S; perf_now() < end;) {
            tofu_iface_progress(iface);
        }
        for (i = 0; i < num_keepers; ++i) {
            give(&keepers[i], "s", 1);
        }
    }
    arrived = 0;
    perf_barrier(&pair);
    pingpong(&pair, iface, ep);
    core_flush(iface);
    perf_barrier(&pair);
    if (pair.rank == 0) {
        for (i = 0; i < num_keepers; ++i) {
            give(&keepers[i], "e", 1);
            take(&keepers[i], &byte, 1);
            failed |= perf_pair_end(&keepers[i]);
        }
    }
    for (i = 0; i < num_idle; ++i) {
        if (eps[i] != NULL) {
            tofu_ep_destroy(eps[i]);
        }
    }
    tofu_ep_destroy(ep);
    tofu_iface_close(iface);
    tofu_md_close(md);
    perf_barrier(&pair);
    return perf_pair_end(&pair) | failed;
}
