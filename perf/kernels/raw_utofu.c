/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * raw_utofu.c - speed of utofu.h alone, in the patterns of ucx_perftest.
 *
 * lat:         ping-pong, the target polls the last byte of the payload.
 * notice:      ping-pong, the target polls its MRQ, then looks at the last byte.
 * rate:        puts one after the other, the last one waited for.
 * notice_rate: the same with a remote notice each, which the target polls; a
 *              window bounds how many it has not polled, so that no MRQ overflows.
 * poll_tcq, poll_mrq: a poll that finds nothing, after <senders> VCQs sent one
 *              notice each (0: none ever did).
 * Puts ask for no completion: the answer of a ping-pong tells that the buffer is
 * free, and 'rate' ends with a local notice.  "strong" adds STRONG_ORDER, without
 * which only mapped memory is sure to show the last byte last; cma promises no
 * order either, so puts into malloc memory are compared without.
 *
 * Usage: raw_utofu <cpu0> <cpu1> <memory> <size> <iterations>
 *                  <lat|notice|rate|notice_rate> <put|piggyback|piggyback8>
 *                  [strong]
 *        raw_utofu <cpu0> <cpu1> <memory> <size> <iterations>
 *                  <poll_tcq|poll_mrq> <senders>
 */
#define _GNU_SOURCE
#include "utofu_common.h"

#define WINDOW      1024 /* notices on their way, in notice_rate */
#define ACK_EVERY   (WINDOW / 4)
#define MAX_SENDERS 8

static struct perf_pair pair;
static struct perf_peer mine, peer;
static utofu_vcq_hdl_t  vcq;
static size_t           size;
static long             iterations;
static enum perf_how    how;
static unsigned long    flags;
static uint8_t          *memory, *out; /* what comes in, what goes out */
static utofu_stadd_t    out_stadd;
static volatile uint64_t *acked; /* by the target, in notice_rate */
static size_t           ack_offset;
static double           times[PERF_CHUNKS];

static void send_out(uint8_t value, unsigned long more_flags)
{
    /* Written as the word that is read: a load of 8 bytes after a store of one waits
     * until all stores before it have left the CPU. */
    uint64_t word = (uint64_t)value << 56;

    if (size >= sizeof(word)) {
        memcpy(&out[size - sizeof(word)], &word, sizeof(word));
    } else {
        out[size - 1] = value;
    }
    perf_put(vcq, peer.vcq_id, how, out, out_stadd, peer.stadd, size,
             flags | more_flags);
}

/* Between two looks: a CPU that looks as fast as it can takes the line from the one that
 * is about to store (62 instead of 34 ns one way, on a Zen 5).  ucx_perftest has a call
 * of progress there. */
static void rest(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" : : : "memory");
#endif
}

static void wait_for(uint8_t value, int by_notice)
{
    volatile const uint8_t  *last = &memory[size - 1];
    struct utofu_mrq_notice notice;

    if (by_notice) {
        perf_wait_mrq(vcq, UTOFU_MRQ_TYPE_RMT_PUT, &notice);
        PERF_CHECK(*last == value, "a notice came before its data");
    } else {
        while (*last != value) {
            rest();
        }
    }
}

static void pingpong(int by_notice)
{
    unsigned long more = by_notice ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0;
    uint8_t       value = 0;
    double        start;

    for (int chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        for (long i = 0; i < iterations; ++i) {
            value = value % 251 + 1;
            if (pair.rank == 0) {
                send_out(value, more);
                wait_for(value, by_notice);
            } else {
                wait_for(value, by_notice);
                send_out(value, more);
            }
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    if (pair.rank == 0) {
        perf_report(times, 2 * iterations);
    }
}

/* The calls alone, as a program has them in its inner loop */
static void stream_piggyback8(long n, unsigned long more)
{
    utofu_vcq_hdl_t hdl = vcq;
    utofu_vcq_id_t  to = peer.vcq_id;
    utofu_stadd_t   stadd = peer.stadd;
    unsigned long   with = flags | more;
    int             ret;

    for (long i = 0; i < n;) {
        ret = utofu_put_piggyback8(hdl, to, i, stadd, 8, 0, with, NULL);
        if (ret == UTOFU_SUCCESS) {
            ++i;
        } else {
            PERF_CHECK(ret == UTOFU_ERR_BUSY, "put: %d", ret);
            perf_drain_tcq(hdl);
        }
    }
}

static void stream_put(long n, unsigned long more)
{
    utofu_vcq_hdl_t hdl = vcq;
    utofu_vcq_id_t  to = peer.vcq_id;
    utofu_stadd_t   from = out_stadd, stadd = peer.stadd;
    size_t          bytes = size;
    unsigned long   with = flags | more;
    int             ret;

    for (long i = 0; i < n;) {
        ret = utofu_put(hdl, to, from, stadd, bytes, 0, with, NULL);
        if (ret == UTOFU_SUCCESS) {
            ++i;
        } else {
            PERF_CHECK(ret == UTOFU_ERR_BUSY, "put: %d", ret);
            perf_drain_tcq(hdl);
        }
    }
}

static void rate(void)
{
    struct utofu_mrq_notice notice;
    uint8_t                 value = 0;
    double                  start;

    if (pair.rank == 1) {
        return; /* the data land without it */
    }
    for (int chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        if (how == PERF_PIGGYBACK8) {
            stream_piggyback8(iterations - 1, 0);
        } else if (how == PERF_PUT) {
            stream_put(iterations - 1, 0);
        } else {
            for (long i = 0; i < iterations - 1; ++i) {
                value = value % 251 + 1;
                send_out(value, 0);
            }
        }
        send_out(value, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE |
                            UTOFU_ONESIDED_FLAG_STRONG_ORDER);
        perf_wait_mrq(vcq, UTOFU_MRQ_TYPE_LCL_PUT, &notice);
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    perf_report(times, iterations);
}

/* So many with a notice each; no more than WINDOW are on their way. */
static void notice_stream(long total)
{
    unsigned long more = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
    long          n;

    for (long i = 0; i < total; i += n) {
        n = (total - i < ACK_EVERY) ? total - i : ACK_EVERY;
        while ((uint64_t)(i + n) - *acked > WINDOW) {
        }
        if (how == PERF_PIGGYBACK8) {
            stream_piggyback8(n, more);
        } else if (how == PERF_PUT) {
            stream_put(n, more);
        } else {
            for (long k = 0; k < n; ++k) {
                send_out(1, more);
            }
        }
    }
}

/* The receiver measures: its chunks are what really arrived. */
static void notice_rate(void)
{
    const uint8_t           last = 77;
    long                    total = iterations * (PERF_WARMUP + PERF_CHUNKS), left = iterations;
    struct utofu_mrq_notice notice;
    uint64_t                count;
    double                  start = perf_now();
    int                     chunk = -PERF_WARMUP;

    if (pair.rank == 0) {
        notice_stream(total - 1);
        send_out(last, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER);
        return;
    }
    for (long i = 1; i <= total; ++i) {
        perf_wait_mrq(vcq, UTOFU_MRQ_TYPE_RMT_PUT, &notice);
        if (i % ACK_EVERY == 0) {
            count = i;
            perf_put(vcq, peer.vcq_id, PERF_PIGGYBACK8, &count, 0,
                     peer.stadd + ack_offset, sizeof(count), 0);
        }
        if (--left == 0) {
            if (chunk >= 0) {
                times[chunk] = perf_now() - start;
            }
            ++chunk;
            left  = iterations;
            start = perf_now();
        }
    }
    PERF_CHECK(((volatile uint8_t*)memory)[size - 1] == last, "the last data are not there");
    perf_report(times, iterations);
}

static void empty_polls(int is_mrq, int senders)
{
    struct utofu_mrq_notice notice;
    utofu_vcq_hdl_t         vcqs[MAX_SENDERS];
    uint64_t                value = 1;
    void                    *cbdata;
    double                  start;
    int                     i, chunk, ret;

    PERF_CHECK((senders >= 0) && (senders <= MAX_SENDERS), "senders: 0 to %d",
               MAX_SENDERS);
    if (pair.rank == 1) {
        /* each VCQ is a sender of its own for the MRQ, spread over the TNIs */
        for (i = 0; i < senders; ++i) {
            vcqs[i] = perf_vcq(i % 6);
            perf_put(vcqs[i], peer.vcq_id, PERF_PIGGYBACK8, &value, 0,
                     peer.stadd, sizeof(value),
                     UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE |
                         UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
            perf_wait_mrq(vcqs[i], UTOFU_MRQ_TYPE_LCL_PUT, &notice);
        }
        perf_barrier(&pair);
        perf_barrier(&pair); /* they stay until all is measured */
        for (i = 0; i < senders; ++i) {
            UTOFU_CHECK(utofu_free_vcq(vcqs[i]));
        }
        return;
    }
    perf_barrier(&pair);
    for (i = 0; i < senders; ++i) {
        perf_wait_mrq(vcq, UTOFU_MRQ_TYPE_RMT_PUT, &notice);
    }
    for (chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        for (long n = 0; n < iterations; ++n) {
            ret = is_mrq ? utofu_poll_mrq(vcq, 0, &notice) :
                           utofu_poll_tcq(vcq, 0, &cbdata);
            PERF_CHECK(ret == UTOFU_ERR_NOT_FOUND, "poll: %d", ret);
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    perf_report(times, iterations);
    perf_barrier(&pair);
}

int main(int argc, char **argv)
{
    size_t     length, offset;
    const char *test;

    PERF_CHECK((argc == 8) || ((argc == 9) && !strcmp(argv[8], "strong")),
               "usage: %s cpu0 cpu1 memory size iterations test how|senders "
               "[strong]", argv[0]);
    size       = strtoull(argv[4], NULL, 0);
    iterations = (atol(argv[5]) + PERF_CHUNKS - 1) / PERF_CHUNKS;
    test       = argv[6];
    flags      = (argc == 9) ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0;
    PERF_CHECK((size > 0) && (iterations > 0), "size and iterations");
    perf_pair_start(&pair, atoi(argv[1]), atoi(argv[2]));

    vcq = perf_vcq(0);
    /* page-aligned: what comes in, what goes out, what the target acknowledges */
    offset     = (size + 4095) & ~(size_t)4095;
    ack_offset = 2 * offset;
    length     = ack_offset + 4096;
    memory     = PERF_MEMORY(argv[3], length);
    out        = memory + offset;
    acked      = (volatile uint64_t*)(memory + ack_offset);
    UTOFU_CHECK(utofu_query_vcq_id(vcq, &mine.vcq_id));
    UTOFU_CHECK(utofu_reg_mem(vcq, memory, length, 0, &mine.stadd));
    out_stadd = mine.stadd + offset;
    perf_exchange(&pair, &mine, &peer, sizeof(mine));

    if (!strncmp(test, "poll_", 5)) {
        PERF_CHECK(!strcmp(test, "poll_tcq") || !strcmp(test, "poll_mrq"),
                   "unknown test: %s", test);
        empty_polls(!strcmp(test, "poll_mrq"), atoi(argv[7]));
    } else {
        how = perf_how(argv[7]);
        if (!strcmp(test, "lat") || !strcmp(test, "notice")) {
            pingpong(!strcmp(test, "notice"));
        } else if (!strcmp(test, "rate")) {
            rate();
        } else {
            PERF_CHECK(!strcmp(test, "notice_rate"), "unknown test: %s", test);
            notice_rate();
        }
    }
    perf_barrier(&pair);
    UTOFU_CHECK(utofu_dereg_mem(vcq, mine.stadd, 0));
    UTOFU_CHECK(utofu_free_vcq(vcq));
    fflush(stdout);
    perf_barrier(&pair);
    return perf_pair_end(&pair);
}
