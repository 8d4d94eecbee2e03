/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core_threads.c - streams of small operations from one thread or from two, each
 * with ifaces of its own on a core of its own.
 *
 * Two cores have no room for threads that receive, so a thread sends to a
 * second iface of its own.  put_rate: short puts into memory of the process;
 * am_rate: short messages, received by the same thread, BURST at a time.  Printed
 * is the time per operation of all threads together.
 *
 * Usage: core_threads <cpu0> <cpu1> <memory> <size> <iterations> put_rate|am_rate
 *                     <threads>
 * (memory is not used)
 */
#define _GNU_SOURCE
#include "core_common.h"

#include <pthread.h>

#define BURST       64 /* messages that are sent before some are received */
#define THREADS_MAX 2

struct worker {
    pthread_t              thread;
    int                    cpu, is_am;
    tofu_md_t              *md;
    pthread_barrier_t      *barrier;
    volatile unsigned long arrived;
    double                 time; /* of one operation */
} __attribute__((aligned(256)));

static unsigned size;
static long     iterations;

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    (void)data;
    (void)length;
    (void)flags;
    ++((struct worker*)arg)->arrived;
    return TOFU_OK;
}

static void put_one(tofu_iface_t *iface, tofu_ep_t *ep, const void *data,
                    uint64_t address, const tofu_rkey_t *rkey)
{
    tofu_status_t status;

    while ((status = tofu_ep_put_short(ep, data, size, address, rkey)) ==
           TOFU_ERR_NO_RESOURCE) {
        tofu_iface_progress(iface);
    }
    PERF_CHECK(status == TOFU_OK, "tofu_ep_put_short: %s",
               tofu_status_string(status));
}

static void *work(void *arg)
{
    struct worker       *w = arg;
    static const char   data[32];
    unsigned long       sent = 0;
    double              times[PERF_CHUNKS], start;
    tofu_iface_t        *tx, *rx;
    struct core_address address;
    tofu_md_attr_t      md_attr;
    tofu_rkey_t         *rkey;
    tofu_mem_t          *memh;
    size_t              length = 4096;
    void                *target;
    char                key[256];
    tofu_ep_t           *ep;
    cpu_set_t           set;
    int                 chunk;
    long                i;

    CPU_ZERO(&set);
    CPU_SET(w->cpu, &set);
    PERF_CHECK(pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0,
               "pthread_setaffinity_np");
    rx = core_iface(w->md, NULL, on_message, w);
    tx = core_iface(w->md, NULL, NULL, NULL);
    core_address(rx, &address);
    ep = core_connect(tx, &address);
    CORE_CHECK(tofu_mem_alloc(w->md, &length, 0, &target, &memh));
    tofu_md_query(w->md, &md_attr);
    PERF_CHECK(md_attr.rkey_packed_size <= sizeof(key), "a long rkey");
    tofu_mkey_pack(memh, key);
    CORE_CHECK(tofu_rkey_unpack(key, md_attr.rkey_packed_size, &rkey));

    for (chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        if (chunk == 0) {
            pthread_barrier_wait(w->barrier);
        }
        start = perf_now();
        for (i = 0; i < iterations; ++i) {
            if (!w->is_am) {
                put_one(tx, ep, data, (uintptr_t)target, rkey);
                continue;
            }
            /* credits come by progress of both sides */
            while (tofu_ep_am_short(ep, CORE_AM_ID, i, data, size - 8) ==
                   TOFU_ERR_NO_RESOURCE) {
                tofu_iface_progress(tx);
                tofu_iface_progress(rx);
            }
            if (++sent % BURST == 0) {
                while (w->arrived < sent) {
                    tofu_iface_progress(rx);
                }
                tofu_iface_progress(tx);
            }
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    while (w->is_am && (w->arrived < sent)) {
        tofu_iface_progress(rx);
        tofu_iface_progress(tx);
    }
    core_flush(tx);
    pthread_barrier_wait(w->barrier); /* nobody closes while others measure */
    qsort(times, PERF_CHUNKS, sizeof(*times), perf_compare);
    w->time = times[PERF_CHUNKS / 2] / iterations;

    tofu_rkey_release(rkey);
    CORE_CHECK(tofu_mem_free(memh));
    tofu_ep_destroy(ep);
    tofu_iface_close(tx);
    tofu_iface_close(rx);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    pthread_barrier_t    barrier;
    double               rate = 0;
    tofu_md_t            *md;
    int                  i, num_threads, is_am;

    PERF_CHECK(argc == 8, "usage: %s cpu0 cpu1 memory size iterations "
               "put_rate|am_rate threads", argv[0]);
    size        = (unsigned)atoi(argv[4]);
    iterations  = (atol(argv[5]) + PERF_CHUNKS - 1) / PERF_CHUNKS;
    is_am       = !strcmp(argv[6], "am_rate");
    num_threads = atoi(argv[7]);
    PERF_CHECK((size >= 8) && (size <= 32) && (iterations > 0) &&
               (is_am || !strcmp(argv[6], "put_rate")) && (num_threads >= 1) &&
               (num_threads <= THREADS_MAX), "arguments out of range");
    alarm(PERF_TIME_LIMIT);
    md = core_md(0);
    pthread_barrier_init(&barrier, NULL, (unsigned)num_threads);
    for (i = 0; i < num_threads; ++i) {
        workers[i].cpu     = atoi(argv[1 + i]);
        workers[i].is_am   = is_am;
        workers[i].md      = md;
        workers[i].barrier = &barrier;
        PERF_CHECK(pthread_create(&workers[i].thread, NULL, work,
                                  &workers[i]) == 0, "pthread_create");
    }
    for (i = 0; i < num_threads; ++i) {
        pthread_join(workers[i].thread, NULL);
        rate += 1 / workers[i].time;
    }
    printf("seconds %.12f\n", 1 / rate);
    tofu_md_close(md);
    return 0;
}
