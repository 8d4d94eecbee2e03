/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * utofu_pingpong.c - put ping-pong written directly on utofu_put.
 *
 * The counterpart of uct_put.c lat: same memory, same polling of the last byte,
 * one operation in flight, its remote completion awaited by the local notice.
 *
 * Usage: utofu_pingpong <cpu0> <cpu1> <memory> <size> <iterations>
 */
#define _GNU_SOURCE
#include "common.h"

#include <utofu.h>

#define FLAGS \
    (UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)
#define UTOFU_CHECK(_call) \
    do { \
        int _ret = (_call); \
        PERF_CHECK(_ret == UTOFU_SUCCESS, "%s: %d", #_call, _ret); \
    } while (0)

struct peer {
    utofu_vcq_id_t vcq_id;
    utofu_stadd_t  stadd;
};

static utofu_vcq_hdl_t vcq;
static int             in_flight;

static void poll_notice(void)
{
    struct utofu_mrq_notice notice;
    int                     ret;

    ret = utofu_poll_mrq(vcq, 0, &notice);
    if (ret != UTOFU_ERR_NOT_FOUND) {
        PERF_CHECK(ret == UTOFU_SUCCESS, "utofu_poll_mrq: %d", ret);
        in_flight = 0;
    }
}

static void put(const struct peer *peer, utofu_stadd_t lcl_stadd,
                utofu_stadd_t rmt_stadd, size_t size)
{
    void *cbdata;
    int  ret;

    for (;;) {
        ret = utofu_put(vcq, peer->vcq_id, lcl_stadd, rmt_stadd, size, 0, FLAGS,
                        NULL);
        if (ret != UTOFU_ERR_BUSY) {
            break;
        }
        /* no TCQ notice is asked for: polling only frees the entries */
        while ((ret = utofu_poll_tcq(vcq, 0, &cbdata)) == UTOFU_SUCCESS) {
        }
        PERF_CHECK(ret == UTOFU_ERR_NOT_FOUND, "utofu_poll_tcq: %d", ret);
    }
    PERF_CHECK(ret == UTOFU_SUCCESS, "utofu_put: %d", ret);
    in_flight = 1;
}

static void wait_for(const volatile uint8_t *last, uint8_t value)
{
    while (*last != value) {
        if (in_flight) {
            poll_notice();
        }
    }
}

int main(int argc, char **argv)
{
    struct perf_pair pair;
    struct peer      mine, peer;
    utofu_tni_id_t   *tnis;
    size_t           num_tnis, size;
    long             iterations, i;
    uint8_t          *memory, *out;
    utofu_stadd_t    out_offset;
    double           times[PERF_CHUNKS], start;
    uint8_t          value = 0;
    int              chunk;

    PERF_CHECK(argc == 6, "usage: %s cpu0 cpu1 memory size iterations", argv[0]);
    size       = strtoull(argv[4], NULL, 0);
    iterations = (atol(argv[5]) + PERF_CHUNKS - 1) / PERF_CHUNKS;
    PERF_CHECK((size > 0) && (iterations > 0), "size and iterations");
    perf_pair_start(&pair, atoi(argv[1]), atoi(argv[2]));

    UTOFU_CHECK(utofu_get_onesided_tnis(&tnis, &num_tnis));
    PERF_CHECK(num_tnis > 0, "no TNI");
    UTOFU_CHECK(utofu_create_vcq(tnis[0], 0, &vcq));
    free(tnis);
    /* what comes in, and page-aligned behind it what goes out */
    out_offset = (size + 4095) & ~(utofu_stadd_t)4095;
    memory     = perf_memory(argv[3], out_offset + size);
    out        = memory + out_offset;
    UTOFU_CHECK(utofu_query_vcq_id(vcq, &mine.vcq_id));
    UTOFU_CHECK(utofu_reg_mem(vcq, memory, out_offset + size, 0, &mine.stadd));
    perf_exchange(&pair, &mine, &peer, sizeof(mine));

    for (chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        for (i = 0; i < iterations; ++i) {
            while (in_flight) { /* the buffer is not ours before */
                poll_notice();
            }
            value         = value % 251 + 1;
            out[size - 1] = value;
            if (pair.rank == 0) {
                put(&peer, mine.stadd + out_offset, peer.stadd, size);
                wait_for(&memory[size - 1], value);
            } else {
                wait_for(&memory[size - 1], value);
                put(&peer, mine.stadd + out_offset, peer.stadd, size);
            }
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    if (pair.rank == 0) {
        perf_report(times, 2 * iterations);
    }
    while (in_flight) {
        poll_notice();
    }
    perf_barrier(&pair);
    UTOFU_CHECK(utofu_dereg_mem(vcq, mine.stadd, 0));
    UTOFU_CHECK(utofu_free_vcq(vcq));
    perf_barrier(&pair);
    return perf_pair_end(&pair);
}
