/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_delay.c - DELAY_START may hold operations back; the next operation
 * without it, or utofu_post_toq, on the same VCQ starts them (3.7.9.1).
 */
#include "harness.h"

#include <inttypes.h>

#define DELAY UTOFU_ONESIDED_FLAG_DELAY_START

enum op { PUT, PIGGYBACK, PIGGYBACK8, GET, ARMW4, ARMW8, CSWAP4, CSWAP8, PUT_GAP,
          GET_GAP, PUT_STRIDE, GET_STRIDE, PUT_STRIDE_GAP, GET_STRIDE_GAP, NOP,
          NUM_OPS };

static const char *const names[NUM_OPS] = {
    "put",     "put_piggyback", "put_piggyback8", "get",        "armw4",
    "armw8",   "cswap4",        "cswap8",         "put_gap",    "get_gap",
    "put_stride", "get_stride", "put_stride_gap", "get_stride_gap", "nop",
};

struct side {
    struct conf_vcq vcq;
    uint64_t        words[256]; /* lower half: local; upper half: remote */
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
};

static void side_open(struct side *side, unsigned long flags)
{
    memset(side->words, 0, sizeof(side->words));
    conf_vcq_open(&side->vcq, 0, flags);
    conf_reg_all(&side->vcq, side->words, sizeof(side->words), side->stadds);
}

static void side_close(struct side *side)
{
    conf_barrier();
    conf_dereg(&side->vcq, side->stadds[conf_rank]);
    conf_vcq_close(&side->vcq);
}

/* Word i here to word 128 + i there, or back; ARMW on the latter: 0 becomes 9. */
static int post(struct side *side, enum op op, int to, unsigned i,
                unsigned long flags, void *cbdata)
{
    utofu_vcq_hdl_t hdl = side->vcq.hdl;
    utofu_vcq_id_t  id  = side->vcq.peer[to];
    utofu_stadd_t   lcl = side->stadds[conf_rank] + 8 * i;
    utofu_stadd_t   rmt = side->stadds[to] + 1024 + 8 * i;

    switch (op) {
    case PUT:
        return utofu_put(hdl, id, lcl, rmt, 8, i, flags, cbdata);
    case PIGGYBACK:
        return utofu_put_piggyback(hdl, id, &side->words[i], rmt, 8, i, flags,
                                   cbdata);
    case PIGGYBACK8:
        return utofu_put_piggyback8(hdl, id, side->words[i], rmt, 8, i, flags,
                                    cbdata);
    case GET:
        return utofu_get(hdl, id, lcl, rmt, 8, i, flags, cbdata);
    case ARMW4:
        return utofu_armw4(hdl, id, UTOFU_ARMW_OP_ADD, 9, rmt, i, flags, cbdata);
    case ARMW8:
        return utofu_armw8(hdl, id, UTOFU_ARMW_OP_OR, 9, rmt, i, flags, cbdata);
    case CSWAP4:
        return utofu_cswap4(hdl, id, 0, 9, rmt, i, flags, cbdata);
    case CSWAP8:
        return utofu_cswap8(hdl, id, 0, 9, rmt, i, flags, cbdata);
    case PUT_GAP:
        return utofu_put_gap(hdl, id, lcl, rmt, 8, i, flags, 1920, 8, cbdata);
    case GET_GAP:
        return utofu_get_gap(hdl, id, lcl, rmt, 8, i, flags, 1920, 8, cbdata);
    case PUT_STRIDE:
        return utofu_put_stride(hdl, id, lcl, rmt, 8, 8, 1, i, flags, cbdata);
    case GET_STRIDE:
        return utofu_get_stride(hdl, id, lcl, rmt, 8, 8, 1, i, flags, cbdata);
    case PUT_STRIDE_GAP:
        return utofu_put_stride_gap(hdl, id, lcl, rmt, 8, 8, 1, i, flags, 1920,
                                    8, cbdata);
    case GET_STRIDE_GAP:
        return utofu_get_stride_gap(hdl, id, lcl, rmt, 8, 8, 1, i, flags, 1920,
                                    8, cbdata);
    default:
        return utofu_nop(hdl, flags, cbdata);
    }
}

static bool is_armw(enum op op)
{
    return (op >= ARMW4) && (op <= CSWAP8);
}

static bool is_get(enum op op)
{
    return (op == GET) || (op == GET_GAP) || (op == GET_STRIDE) ||
           (op == GET_STRIDE_GAP);
}

static int type_of(enum op op)
{
    return is_armw(op) ? UTOFU_MRQ_TYPE_LCL_ARMW :
           is_get(op)  ? UTOFU_MRQ_TYPE_LCL_GET :
                         UTOFU_MRQ_TYPE_LCL_PUT;
}

/* What starts the operations that were held back */
enum starter { BY_POST, BY_NOP, BY_POST_TOQ, BY_EMPTY_POST_TOQ, NUM_STARTERS };

/* Posts one more operation, word 100, where the starter is one. */
static void start(struct side *side, enum starter by, void *cbdata)
{
    const unsigned long flags = CONF_TCQ | CONF_LMRQ;
    uint64_t            desc[8];
    size_t              size;

    switch (by) {
    case BY_POST:
        CONF_OK(post(side, PIGGYBACK8, 1, 100, flags, cbdata));
        break;
    case BY_NOP:
        CONF_OK(utofu_nop(side->vcq.hdl, CONF_TCQ, cbdata));
        break;
    case BY_POST_TOQ: /* where DELAY_START has no effect */
        CONF_OK(utofu_prepare_put_piggyback8(
                side->vcq.hdl, side->vcq.peer[1], side->words[100],
                side->stadds[1] + 1024 + 800, 8, 100, flags | DELAY, desc,
                &size));
        CONF_OK(utofu_post_toq(side->vcq.hdl, desc, size, cbdata));
        break;
    default:
        CONF_OK(utofu_post_toq(side->vcq.hdl, NULL, 0, cbdata));
        break;
    }
}

static void all_starters(unsigned long vcq_flags)
{
    struct side side;
    int         by, op, i;

    side_open(&side, vcq_flags);
    for (by = 0; by < NUM_STARTERS; by++) {
        for (i = 0; i < 128; i++) {
            side.words[i]       = 1000 + i;
            side.words[128 + i] = is_get(i) ? 2000 + i : 0;
        }
        conf_barrier();
        if (conf_rank == 0) {
            for (op = 0; op < NUM_OPS; op++) {
                CONF_OK(post(&side, op, 1, op, CONF_TCQ | CONF_LMRQ | DELAY,
                             CONF_PTR(op + 1)));
            }
            start(&side, by, CONF_PTR(100));
            for (op = 0; op < NUM_OPS; op++) {
                CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(op + 1));
            }
            if (by != BY_EMPTY_POST_TOQ) {
                CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(100));
            }
            for (op = 0; op < NOP; op++) {
                CONF_EXPECT_MRQ(&side.vcq, type_of(op), side.vcq.peer[1], op,
                                NULL);
                CONF_CHECK(side.words[op] == (is_get(op) ? 2000u : 1000u) + op,
                           "%s: word %" PRIu64, names[op], side.words[op]);
            }
            if ((by == BY_POST) || (by == BY_POST_TOQ)) {
                CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT,
                                side.vcq.peer[1], 100, NULL);
            }
        }
        conf_barrier();
        for (op = 0; (op < NOP) && (conf_rank == 1); op++) {
            CONF_CHECK(side.words[128 + op] == (is_armw(op) ? 9u :
                       (is_get(op) ? 2000u : 1000u) + op), "%s: word %" PRIu64,
                       names[op], side.words[128 + op]);
        }
        CONF_EXPECT_QUIET(&side.vcq);
        conf_barrier();
    }
    side_close(&side);
}

CONF_TEST("3.7.9.1", delay_start_every_operation, 2,
          "operations of every kind that DELAY_START held back are started, in "
          "order, by an operation without it, by a NOP, by utofu_post_toq with "
          "a descriptor, whatever its flags, or with none")
{
    all_starters(0);
}

CONF_TEST("3.7.9.1", delay_start_thread_safe, 2,
          "DELAY_START works so on a THREAD_SAFE VCQ too")
{
    all_starters(UTOFU_VCQ_FLAG_THREAD_SAFE);
}

CONF_TEST("3.7.9.1", delay_start_peers, 3,
          "operations held back towards several peers are all started by one "
          "operation towards any of them")
{
    struct side side;
    int         i;

    side_open(&side, 0);
    for (i = 0; i < 12; i++) {
        side.words[i] = 50 + i;
    }
    conf_barrier();
    if (conf_rank == 0) {
        for (i = 0; i < 11; i++) {
            CONF_OK(post(&side, PUT, i % 3, i, CONF_LMRQ | CONF_RMRQ | DELAY,
                         NULL));
        }
        CONF_OK(post(&side, PUT, 2, 11, CONF_RMRQ, NULL));
    }
    for (i = 0; i < 12; i++) {
        if ((i % 3 == conf_rank) && (conf_rank != 0)) {
            CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_RMT_PUT, side.vcq.peer[0],
                            i, NULL);
            CONF_CHECK(side.words[128 + i] == 50u + i, "word %d", i);
        }
    }
    side_close(&side);
}

CONF_TEST("3.7.9.1", delay_start_other_vcq, 2,
          "operations held back on one VCQ do not hinder those of another, and "
          "are done after utofu_post_toq on their own")
{
    struct side a, b;
    int         i;

    side_open(&a, 0);
    side_open(&b, 0);
    for (i = 0; i < 5; i++) {
        a.words[i] = b.words[i] = 70 + i;
    }
    if (conf_rank == 0) {
        for (i = 0; i < 5; i++) {
            CONF_OK(post(&a, PUT, 1, i, CONF_TCQ | CONF_LMRQ | DELAY,
                         CONF_PTR(i)));
        }
        for (i = 0; i < 5; i++) {
            CONF_OK(post(&b, PUT, 1, i, CONF_TCQ | CONF_LMRQ, CONF_PTR(i)));
            CONF_EXPECT_TCQ(&b.vcq, CONF_PTR(i));
            CONF_EXPECT_MRQ(&b.vcq, UTOFU_MRQ_TYPE_LCL_PUT, b.vcq.peer[1], i,
                            NULL);
        }
        CONF_OK(utofu_post_toq(a.vcq.hdl, NULL, 0, NULL));
        for (i = 0; i < 5; i++) {
            CONF_EXPECT_TCQ(&a.vcq, CONF_PTR(i));
            CONF_EXPECT_MRQ(&a.vcq, UTOFU_MRQ_TYPE_LCL_PUT, a.vcq.peer[1], i,
                            NULL);
        }
    }
    conf_barrier();
    for (i = 0; (i < 5) && (conf_rank == 1); i++) {
        CONF_CHECK((a.words[128 + i] == 70u + i) && (b.words[128 + i] == 70u + i),
                   "word %d", i);
    }
    side_close(&a);
    side_close(&b);
}

CONF_TEST("3.7.9.1", delay_start_full_queue, 2,
          "a queue full of operations that are held back is no dead end: after "
          "BUSY reading the TCQ makes room, without any other call")
{
    enum { NUM = 20000 };
    struct side side;
    int         i;

    side_open(&side, 0);
    if (conf_rank == 0) {
        for (i = 0; i < NUM; i++) {
            CONF_POST(side.vcq.hdl,
                      utofu_armw8(side.vcq.hdl, side.vcq.peer[1],
                                  UTOFU_ARMW_OP_ADD, 1, side.stadds[1], 0,
                                  DELAY | ((i % 3) ? CONF_TCQ : 0), NULL));
        }
        CONF_POST(side.vcq.hdl,
                  utofu_get(side.vcq.hdl, side.vcq.peer[1], side.stadds[0],
                            side.stadds[1], 8, 1, CONF_LMRQ | CONF_STRONG,
                            NULL));
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_GET, side.vcq.peer[1], 1,
                        NULL);
        CONF_CHECK(side.words[0] == NUM, "%" PRIu64 " of %d additions",
                   side.words[0], NUM);
    }
    side_close(&side);
}

CONF_TEST("3.7.9.1", delay_start_strides, 2,
          "a call with stride and DELAY_START has all its blocks started by the "
          "next operation; its blocks count as TOQ entries before")
{
    struct side side;
    size_t      count;
    int         i;

    side_open(&side, 0);
    for (i = 0; i < 128; i++) {
        side.words[i] = 5;
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_put_stride(side.vcq.hdl, side.vcq.peer[1], side.stadds[0],
                                 side.stadds[1] + 1024, 8, 16, 60, 3,
                                 CONF_LMRQ | DELAY, NULL));
        CONF_OK(utofu_query_num_unread_tcq(side.vcq.hdl, &count));
        CONF_CHECK(count == 60, "%zu TOQ entries are in use, not 60", count);
        CONF_OK(utofu_nop(side.vcq.hdl, CONF_TCQ, CONF_PTR(1)));
        for (i = 0; i < 60; i++) {
            CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.peer[1],
                            3, NULL);
        }
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
    }
    conf_barrier();
    for (i = 0; (i < 128) && (conf_rank == 1); i++) {
        CONF_CHECK(side.words[128 + i] == (((i % 2) || (i >= 120)) ? 0 : 5),
                   "word %d", i);
    }
    side_close(&side);
}

CONF_TEST("3.7.9.1", delay_start_and_free, 1,
          "a VCQ on which operations are held back can be freed; the next VCQ "
          "works")
{
    struct side side;
    int         i;

    for (i = 0; i < 20; i++) {
        side_open(&side, (i % 2) ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0);
        CONF_OK(post(&side, PUT, 0, 1, CONF_TCQ | CONF_LMRQ, CONF_PTR(1)));
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.id, 1, NULL);
        CONF_OK(post(&side, PUT, 0, 2, CONF_TCQ | CONF_LMRQ | DELAY,
                     CONF_PTR(2)));
        CONF_OK(utofu_nop(side.vcq.hdl, DELAY, NULL));
        side_close(&side);
    }
}

CONF_TEST("3.7.9.1", delay_start_errors, 2,
          "operations that were held back and fail are reported as others are")
{
    struct side   side;
    utofu_stadd_t gone;

    conf_need_exact_bounds();
    side_open(&side, 0);
    gone = conf_reg(&side.vcq, &side.words[128], 64, 0);
    conf_dereg(&side.vcq, gone);
    if (conf_rank == 0) {
        CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[1], gone, side.stadds[1],
                          8, 1, DELAY, CONF_PTR(1)));
        CONF_OK(utofu_get(side.vcq.hdl, side.vcq.peer[1], side.stadds[0],
                          side.stadds[1] + 2044, 8, 2, DELAY, CONF_PTR(2)));
        CONF_OK(utofu_nop(side.vcq.hdl, CONF_TCQ, CONF_PTR(3)));
        CONF_EXPECT_TCQ_ERROR(&side.vcq, CONF_PTR(1), UTOFU_ERR_TCQ_STADD,
                              UTOFU_ERR_TCQ_MEMORY);
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(3));
        CONF_EXPECT_MRQ_ERROR(&side.vcq, UTOFU_MRQ_TYPE_LCL_GET,
                              side.vcq.peer[1], 2, UTOFU_ERR_MRQ_RMT_LENGTH);
        CONF_EXPECT_QUIET(&side.vcq);
    }
    side_close(&side);
}

CONF_TEST("3.7.9.1", cache_injection_everywhere, 2,
          "CACHE_INJECTION and PACKET_RESPONSE are accepted with every "
          "operation and change no result")
{
    struct side side;
    int         op;

    side_open(&side, 0);
    for (op = 0; op < NUM_OPS; op++) {
        side.words[op]       = 3000 + op;
        side.words[128 + op] = is_get(op) ? 4000 + op : 0;
    }
    conf_barrier();
    for (op = 0; (op < NUM_OPS) && (conf_rank == 0); op++) {
        CONF_OK(post(&side, op, 1, op, CONF_TCQ | CONF_LMRQ |
                     UTOFU_ONESIDED_FLAG_CACHE_INJECTION |
                     UTOFU_ONESIDED_FLAG_PACKET_RESPONSE, CONF_PTR(op)));
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(op));
        if (op < NOP) {
            CONF_EXPECT_MRQ(&side.vcq, type_of(op), side.vcq.peer[1], op, NULL);
            CONF_CHECK(side.words[op] == (is_get(op) ? 4000u : 3000u) + op,
                       "%s: word %" PRIu64, names[op], side.words[op]);
        }
    }
    conf_barrier();
    for (op = 0; (op < NOP) && (conf_rank == 1); op++) {
        CONF_CHECK(side.words[128 + op] == (is_armw(op) ? 9u :
                   (is_get(op) ? 4000u : 3000u) + op), "%s: word %" PRIu64,
                   names[op], side.words[128 + op]);
    }
    side_close(&side);
}
