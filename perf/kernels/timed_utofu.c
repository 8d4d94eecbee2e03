/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * timed_utofu.c - single times of operations between nodes, for the timed mode.
 *
 * Rank 0 is on the node <coords0>; the targets are processes of their own, one on
 * each of the nodes named after it.  A time is taken per iteration, so that the
 * tail of the distribution is seen; the line "ns <time> ..." has them all.  The line
 * "bare <time> ..." of a ping-pong or an exchange has times of "bare" with 1000 ns, taken before and
 * after each BLOCK of its own.
 *
 * put, piggyback8:   half a round trip, the target polls the last byte.
 * notice:            half a round trip, the target polls its MRQ.
 * exchange:          both put and then poll for the other's last byte.
 * get, armw8:        a round trip, until the initiator has the local notice.
 * stream:            per put, <window> in flight on each of <tnis> VCQs, which are
 *                    of one TNI each and go to the targets in turn.
 * barrier:           of two, half of what two in a row take: who starts a bit later than the
 *                    other ends the first so much sooner, and the second so much later.
 * bare:              half a round trip without the library, as its peer: each side
 *                    waits for <size> ns after it has seen the other's word, and
 *                    stores.
 * An operation that the library does not support ends the kernel with code 77.
 *
 * Usage: timed_utofu <cpu0> <cpu1> <size> <iterations> <test> <tnis> <window>
 *                    <gap> <coords0> <coords1> ...
 */
#define _GNU_SOURCE
#include "utofu_common.h"

#include <stdatomic.h>

#define MAX_TARGETS 6
#define MAX_TNIS    6
#define BLOCK       500 /* round trips that are one behind the other */
#define BLOCK_WARMUP 8
#define BARE_BLOCK  300
#define BARE_NS     1000
#define BATCH       64 /* operations of a stream per time */
#define NOT_THERE   77
#define MTU         1920 /* largest packet; hw.caps.max_mtu */

static struct perf_pair pairs[MAX_TARGETS]; /* rank 0: to each; a target: [0] */
static struct perf_peer peers[MAX_TARGETS], mine;
static int              num_targets, rank, num_tnis, window;
static utofu_vcq_hdl_t  vcqs[MAX_TNIS];
static utofu_stadd_t    stadds[MAX_TNIS];
static size_t           size, offset, gap;
static long             iterations, warmup;
static uint8_t          *memory, *out;
static double           *times;
static _Atomic uint64_t *bare_words; /* of both processes */

static void check_supported(int ret)
{
    if (ret == UTOFU_ERR_NOT_SUPPORTED) {
        exit(NOT_THERE);
    }
    PERF_CHECK(ret == UTOFU_SUCCESS, "utofu: %d", ret);
}

static void print_values(const char *name, const double *values, long count,
                         double scale)
{
    printf("%s", name);
    for (long i = 0; i < count; ++i) {
        printf(" %.1f", values[i] * scale * 1e9);
    }
    printf("\n");
    fflush(stdout);
}

static void print_times(double scale)
{
    print_values("ns", times, iterations, scale);
}

/* What the host does to any loop that waits for a time and stores: so many round trips,
 * of which rank 0 has the times. */
static void bare_block(double *took, long count, double ns)
{
    _Atomic uint64_t *mine_out = bare_words + (8 * 32 * rank); /* lines of their own */
    _Atomic uint64_t *mine_in  = bare_words + (8 * 32 * !rank);
    static uint64_t   word = 0;
    double            now, last = perf_now();

    for (long i = 0; i < count; ++i) {
        ++word;
        if (rank == 1) {
            while (atomic_load_explicit(mine_in, memory_order_acquire) != word) {
            }
        }
        for (now = perf_now(); perf_now() < now + (ns * 1e-9);) {
        }
        atomic_store_explicit(mine_out, word, memory_order_release);
        if (rank == 0) {
            while (atomic_load_explicit(mine_in, memory_order_acquire) != word) {
            }
            now     = perf_now();
            took[i] = now - last;
            last    = now;
        }
    }
}

enum way { PINGPONG, BY_NOTICE, EXCHANGE };

static uint8_t next_value(uint8_t value)
{
    return value % 251 + 1;
}

/* Wait for the byte or the notice as a program does that also has a TCQ to empty. */
static void wait_for(uint8_t value, enum way way, int *in_flight)
{
    volatile const uint8_t  *last = &memory[size - 1];
    struct utofu_mrq_notice notice;
    int                     ret;

    for (;;) {
        if (way == BY_NOTICE) {
            ret = utofu_poll_mrq(vcqs[0], 0, &notice);
            PERF_CHECK((ret == UTOFU_ERR_NOT_FOUND) || (ret == UTOFU_SUCCESS),
                       "utofu_poll_mrq: %d", ret);
            if (ret == UTOFU_SUCCESS) {
                PERF_CHECK(*last == value, "a notice came before its data");
                return;
            }
        } else if ((*last == value) || ((way == EXCHANGE) && (*last == next_value(value)))) {
            return; /* the other one may be one ahead */
        }
        if (*in_flight) {
            *in_flight -= perf_drain_tcq(vcqs[0]);
        }
    }
}

/* So many round trips, or exchanges; rank 0 has the times. */
static void put_block(double *took, long count, enum perf_how how, enum way way)
{
    static uint8_t value = 0;
    static int     in_flight = 0;
    unsigned long  flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                           UTOFU_ONESIDED_FLAG_TCQ_NOTICE |
                           ((way == BY_NOTICE) ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0);
    double         now, last = perf_now();

    for (long i = 0; i < count; ++i) {
        value = next_value(value);
        if ((rank == 1) && (way != EXCHANGE)) {
            wait_for(value, way, &in_flight);
        }
        while (in_flight) { /* the buffer is not ours before */
            in_flight -= perf_drain_tcq(vcqs[0]);
        }
        out[size - 1] = value;
        perf_put(vcqs[0], peers[0].vcq_id, how, out, stadds[0] + offset,
                 peers[0].stadd, size, flags);
        ++in_flight;
        if ((rank == 0) || (way == EXCHANGE)) {
            wait_for(value, way, &in_flight);
            now     = perf_now();
            took[i] = now - last;
            last    = now;
        }
    }
    while (in_flight) {
        in_flight -= perf_drain_tcq(vcqs[0]);
    }
}

static void put_blocks(enum perf_how how, enum way way)
{
    long   blocks = (iterations + BLOCK - 1) / BLOCK, n;
    double *bare = malloc((blocks + 1) * BARE_BLOCK * sizeof(*bare));
    double cold[BLOCK_WARMUP];

    PERF_CHECK(bare != NULL, "no memory");
    memset(bare, 0xff, (blocks + 1) * BARE_BLOCK * sizeof(*bare)); /* as times */
    for (n = 0; n < warmup; n += BLOCK_WARMUP) {
        put_block(cold, BLOCK_WARMUP, how, way);
    }
    bare_block(bare, BARE_BLOCK, BARE_NS);
    for (long b = 0; b < blocks; ++b) {
        n = iterations - b * BLOCK;
        put_block(cold, BLOCK_WARMUP, how, way);
        put_block(times + b * BLOCK, (n < BLOCK) ? n : BLOCK, how, way);
        bare_block(bare + (b + 1) * BARE_BLOCK, BARE_BLOCK, BARE_NS);
    }
    if (rank == 0) {
        print_times((way == EXCHANGE) ? 1 : 0.5);
        print_values("bare", bare, (blocks + 1) * BARE_BLOCK, 0.5);
    }
    free(bare);
}

/* That alone */
static void bare(void)
{
    double cold[BARE_BLOCK];

    for (long n = 0; n < warmup; n += BARE_BLOCK) {
        bare_block(cold, BARE_BLOCK, size);
    }
    bare_block(times, iterations, size);
    if (rank == 0) {
        print_times(0.5);
    }
}

/* get or armw8; the target does nothing */
static void round_trips(int is_get)
{
    struct utofu_mrq_notice notice;
    double                  start;
    int                     ret;

    for (long i = -warmup; (rank == 0) && (i < iterations); ++i) {
        start = perf_now();
        do {
            ret = is_get ? utofu_get(vcqs[0], peers[0].vcq_id, stadds[0] + offset,
                                     peers[0].stadd, size, 0,
                                     UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL) :
                           utofu_armw8(vcqs[0], peers[0].vcq_id,
                                       UTOFU_ARMW_OP_ADD, 1, peers[0].stadd, 0,
                                       UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL);
        } while ((ret == UTOFU_ERR_BUSY) && (perf_drain_tcq(vcqs[0]) >= 0));
        check_supported(ret);
        perf_wait_mrq(vcqs[0], is_get ? UTOFU_MRQ_TYPE_LCL_GET :
                                        UTOFU_MRQ_TYPE_LCL_ARMW, &notice);
        if (i >= 0) {
            times[i] = perf_now() - start;
        }
    }
    if (rank == 0) {
        PERF_CHECK(is_get || (notice.rmt_value == (uint64_t)(iterations + warmup - 1)),
                   "the old value is wrong");
        print_times(1);
    }
}

static int post_put(int tni)
{
    const struct perf_peer *to = &peers[tni % num_targets];

    if (gap) {
        return utofu_put_gap(vcqs[tni], to->vcq_id, stadds[tni] + offset, to->stadd,
                             size, 0, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, MTU, gap, NULL);
    }
    return utofu_put(vcqs[tni], to->vcq_id, stadds[tni] + offset, to->stadd, size, 0,
                     UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL);
}

/* A time is that of BATCH completions, with the window kept full all along. */
static void stream(void)
{
    int    in_flight[MAX_TNIS] = {0}, t, ret, any;
    long   done = 0, batches = -warmup;
    double now, last = perf_now();

    while (batches < iterations) {
        for (t = 0; t < num_tnis; ++t) {
            while (in_flight[t] < window) {
                ret = post_put(t);
                if (ret == UTOFU_ERR_BUSY) {
                    break;
                }
                check_supported(ret);
                ++in_flight[t];
            }
            ret           = perf_drain_tcq(vcqs[t]);
            in_flight[t] -= ret;
            done         += ret;
        }
        if (done >= BATCH) {
            now = perf_now();
            if (batches >= 0) {
                times[batches] = (now - last) / done;
            }
            last = now;
            done = 0;
            ++batches;
        }
    }
    do {
        for (t = 0, any = 0; t < num_tnis; ++t) {
            in_flight[t] -= perf_drain_tcq(vcqs[t]);
            any          |= in_flight[t];
        }
    } while (any);
    print_times(1);
}

/* The smallest circuit: each start gate sends to the other one. */
static void barriers(void)
{
    struct utofu_vbg_setting setting;
    utofu_vbg_id_t           gate, other;
    utofu_tni_id_t           *tnis;
    size_t                   count;
    double                   start;
    int                      ret;

    check_supported(utofu_get_barrier_tnis(&tnis, &count));
    if (count == 0) {
        exit(NOT_THERE);
    }
    check_supported(utofu_alloc_vbg(tnis[0], 1, 0, &gate));
    free(tnis);
    perf_exchange(&pairs[0], &gate, &other, sizeof(gate));
    setting = (struct utofu_vbg_setting){
        .vbg_id = gate, .src_lcl_vbg_id = UTOFU_VBG_ID_NULL,
        .src_rmt_vbg_id = other, .dst_lcl_vbg_id = UTOFU_VBG_ID_NULL,
        .dst_rmt_vbg_id = other, .dst_path_coords = {UTOFU_PATH_COORD_NULL}};
    check_supported(utofu_set_vbg(&setting, 1));
    perf_barrier(&pairs[0]);
    for (long i = -warmup; i < iterations; ++i) {
        start = perf_now();
        for (int turn = 0; turn < 2; ++turn) {
            check_supported(utofu_barrier(gate, 0));
            while ((ret = utofu_poll_barrier(gate, 0)) == UTOFU_ERR_NOT_COMPLETED) {
            }
            check_supported(ret);
        }
        if (i >= 0) {
            times[i] = (perf_now() - start) / 2;
        }
    }
    if (rank == 0) {
        print_times(1);
    }
    perf_barrier(&pairs[0]);
    check_supported(utofu_free_vbg(&gate, 1));
}

static void meet(void)
{
    size_t length;
    int    i;

    /* page-aligned: what comes in, behind it what goes out */
    offset = (size + 4095) & ~(size_t)4095;
    length = offset + size;
    memory = perf_memory("memfd", length);
    out    = memory + offset;
    for (i = 0; i < num_tnis; ++i) {
        vcqs[i] = perf_vcq(i);
        UTOFU_CHECK(utofu_reg_mem(vcqs[i], memory, length, 0, &stadds[i]));
    }
    UTOFU_CHECK(utofu_query_vcq_id(vcqs[0], &mine.vcq_id));
    mine.stadd = stadds[0];
    for (i = 0; i < (rank ? 1 : num_targets); ++i) {
        perf_exchange(&pairs[i], &mine, &peers[i], sizeof(mine));
    }
}

static int part(void)
{
    int i;

    for (i = 0; i < num_tnis; ++i) {
        UTOFU_CHECK(utofu_dereg_mem(vcqs[i], stadds[i], 0));
        UTOFU_CHECK(utofu_free_vcq(vcqs[i]));
    }
    if (rank) {
        exit(0);
    }
    for (i = 0, rank = 0; i < num_targets; ++i) {
        rank |= perf_pair_end(&pairs[i]);
    }
    return rank;
}

int main(int argc, char **argv)
{
    const char *test, *coords = (argc > 9) ? argv[9] : "";
    int        i;

    PERF_CHECK((argc >= 11) && (argc <= 10 + MAX_TARGETS),
               "usage: %s cpu0 cpu1 size iterations test tnis window gap coords0 "
               "coords1 ...", argv[0]);
    size        = strtoull(argv[3], NULL, 0);
    iterations  = atol(argv[4]);
    test        = argv[5];
    num_tnis    = atoi(argv[6]);
    window      = atoi(argv[7]);
    gap         = atoi(argv[8]);
    num_targets = argc - 10;
    warmup      = iterations / 10 + 2;
    PERF_CHECK((size >= 8) && (iterations > 0) && (num_tnis >= 1) &&
               (num_tnis <= MAX_TNIS) && (window >= 1), "arguments out of range");
    times = malloc(iterations * sizeof(*times));
    PERF_CHECK(times != NULL, "no memory");
    bare_words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0);
    PERF_CHECK(bare_words != MAP_FAILED, "no memory");
    for (i = 0; (i < num_targets) && !rank; ++i) {
        perf_pair_start(&pairs[i], atoi(argv[1]), atoi(argv[2]));
        if (pairs[i].rank == 1) {
            rank     = 1;
            pairs[0] = pairs[i];
            coords   = argv[10 + i];
            num_tnis = 1;
        }
    }
    for (long n = 0; n < iterations; ++n) {
        times[n] = -1; /* a page that came while times are taken would take 2 us */
    }
    setenv("UTOFU_EMU_COORDS", coords, 1); /* the library is called from here on */
    meet();

    if (!strcmp(test, "put") || !strcmp(test, "piggyback8")) {
        put_blocks(perf_how(test), PINGPONG);
    } else if (!strcmp(test, "notice")) {
        put_blocks(PERF_PUT, BY_NOTICE);
    } else if (!strcmp(test, "exchange")) {
        put_blocks(PERF_PUT, EXCHANGE);
    } else if (!strcmp(test, "get") || !strcmp(test, "armw8")) {
        round_trips(!strcmp(test, "get"));
    } else if (!strcmp(test, "barrier")) {
        barriers();
    } else if (!strcmp(test, "bare")) {
        bare();
    } else {
        PERF_CHECK(!strcmp(test, "stream"), "unknown test: %s", test);
        if (rank == 0) {
            stream();
        }
    }
    for (i = 0; i < (rank ? 1 : num_targets); ++i) {
        perf_barrier(&pairs[i]);
    }
    return part();
}
