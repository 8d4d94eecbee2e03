/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_post_toq.c - utofu_post_toq posts all descriptors that it is given, or
 * none (3.7.3.1).
 */
#include "harness.h"

#include <inttypes.h>

#define MOST      (1 << 17) /* descriptors that no TOQ has room for */
#define DESC_SIZE 64

struct side {
    struct conf_vcq vcq;
    uint64_t        words[256];
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

/* A put of value to word i of a rank, as a descriptor at *at, which is moved. */
static void add_put(struct side *side, int to, unsigned i, uint64_t value,
                    uint64_t edata, unsigned long flags, char **at)
{
    size_t size;

    CONF_OK(utofu_prepare_put_piggyback8(side->vcq.hdl, side->vcq.peer[to],
                                         value, side->stadds[to] + 8 * i, 8,
                                         edata, flags, *at, &size));
    *at += size;
}

static size_t unread(const struct side *side)
{
    size_t count;

    CONF_OK(utofu_query_num_unread_tcq(side->vcq.hdl, &count));
    return count;
}

static void mixed(unsigned long vcq_flags)
{
    enum { ROUNDS = 50 };
    static uint64_t         descs[10 * DESC_SIZE / 8];
    struct side             side;
    struct utofu_mrq_notice notice;
    utofu_vcq_hdl_t         hdl;
    utofu_vcq_id_t          id;
    utofu_stadd_t           lcl, rmt;
    char                   *at = (char *)descs;
    size_t                  size;
    int                     round, i;

    static const int types[] = {
        UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_MRQ_TYPE_LCL_PUT,
        UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_MRQ_TYPE_LCL_PUT,  UTOFU_MRQ_TYPE_LCL_GET,
        UTOFU_MRQ_TYPE_LCL_ARMW,
    };

    side_open(&side, vcq_flags);
    hdl = side.vcq.hdl;
    id  = side.vcq.peer[1];
    lcl = side.stadds[0];
    rmt = side.stadds[1];
    if (conf_rank == 0) {
        const unsigned long all = CONF_TCQ | CONF_LMRQ | CONF_RMRQ |
                                  CONF_STRONG;

#define STEP(_call) \
        CONF_OK(_call); \
        at += size
        STEP(utofu_prepare_put(hdl, id, lcl, rmt, 64, 1, all, at, &size));
        STEP(utofu_prepare_armw8(hdl, id, UTOFU_ARMW_OP_ADD, 3, rmt + 800, 2,
                                 all, at, &size));
        STEP(utofu_prepare_nop(hdl, CONF_TCQ, at, &size));
        STEP(utofu_prepare_put_stride(hdl, id, lcl, rmt + 128, 8, 32, 2, 3, all,
                                      at, &size));
        STEP(utofu_prepare_put_piggyback8(hdl, id, 99, rmt + 504, 8, 4, all, at,
                                          &size));
        /* of what the ARMW made: what a put before it writes it may read too soon (2.2.10) */
        STEP(utofu_prepare_get(hdl, id, lcl + 1024, rmt + 800, 8, 5, all, at,
                               &size));
        /* nothing that anyone is told of */
        STEP(utofu_prepare_put_piggyback8(hdl, id, 7, rmt + 512, 8, 9, 0, at,
                                          &size));
        STEP(utofu_prepare_cswap4(hdl, id, 0, 1, rmt + 808, 6, all, at, &size));
        size = at - (char *)descs;
        CONF_CHECK(size <= sizeof(descs), "%zu bytes of descriptors", size);
    }
    for (round = 1; round <= ROUNDS; round++) {
        side.words[0] = (conf_rank == 0) ? (uint64_t)round : side.words[0];
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_post_toq(hdl, descs, size, CONF_PTR(round)));
            for (i = 0; i < 8; i++) {
                CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(round));
            }
            side.words[0] = 0;
        }
        for (i = 0; i < 7; i++) {
            CONF_EXPECT_MRQ(&side.vcq, types[i] + conf_rank,
                            side.vcq.peer[1 - conf_rank],
                            (i < 3) ? i + 1 : i, &notice);
            if ((conf_rank == 0) && (i == 1)) {
                CONF_CHECK(notice.rmt_value == 3 * (uint64_t)(round - 1),
                           "old value %" PRIu64, notice.rmt_value);
            }
        }
        CONF_CHECK((conf_rank == 1) || (side.words[128] == 3 * (uint64_t)round), "the get");
        if (conf_rank == 1) {
            CONF_CHECK((side.words[0] == (uint64_t)round) &&
                               (side.words[16] == (uint64_t)round) &&
                               (side.words[20] == side.words[4]) &&
                               (side.words[63] == 99) && (side.words[64] == 7) &&
                               (side.words[100] == 3 * (uint64_t)round) &&
                               (side.words[101] == 1),
                       "round %d: something did not arrive", round);
            side.words[63] = side.words[64] = 0;
        }
        CONF_CHECK(unread(&side) <= 1, "%zu TOQ entries are in use",
                   unread(&side));
        conf_barrier();
    }
    CONF_EXPECT_QUIET(&side.vcq);
    side_close(&side);
}

CONF_TEST("3.7.3.1", post_toq_mixed, 2,
          "descriptors of several kinds one after the other in memory are "
          "posted by one call, in order: each TCQ entry has the cbdata of the "
          "call, each notice the EDATA of its descriptor; again and again")
{
    mixed(0);
}

CONF_TEST("3.7.3.1", post_toq_mixed_thread_safe, 2,
          "the same through a THREAD_SAFE VCQ")
{
    mixed(UTOFU_VCQ_FLAG_THREAD_SAFE);
}

CONF_TEST("3.7.3.1", post_toq_takes_a_copy, 2,
          "the memory of descriptors may be used for others as soon as "
          "utofu_post_toq has returned")
{
    enum { NUM = 200 };
    struct side side;
    uint64_t    desc[DESC_SIZE / 8];
    char       *at;
    int         i;

    side_open(&side, 0);
    for (i = 0; (i < NUM) && (conf_rank == 0); i++) {
        at = (char *)desc;
        add_put(&side, 1, i, i + 1, 0, CONF_TCQ | ((i == NUM - 1) ?
                CONF_LMRQ | CONF_STRONG : 0), &at);
        CONF_OK(utofu_post_toq(side.vcq.hdl, desc, at - (char *)desc,
                               CONF_PTR(i)));
        memset(desc, 0xff, sizeof(desc));
    }
    for (i = 0; (i < NUM) && (conf_rank == 0); i++) {
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(i));
    }
    if (conf_rank == 0) {
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.peer[1], 0,
                        NULL);
    }
    conf_barrier();
    for (i = 0; (i < NUM) && (conf_rank == 1); i++) {
        CONF_CHECK(side.words[i] == (uint64_t)i + 1, "word %d", i);
    }
    side_close(&side);
}

CONF_TEST("3.7.3.1", post_toq_of_nothing, 1,
          "with desc_size 0 the descriptor and cbdata are ignored, and nothing "
          "is posted")
{
    struct side side;
    uint64_t    garbage[8];
    int         i;

    side_open(&side, 0);
    memset(garbage, 0xee, sizeof(garbage));
    for (i = 0; i < 5000; i++) {
        CONF_OK(utofu_post_toq(side.vcq.hdl, NULL, 0, CONF_PTR(1)));
        CONF_OK(utofu_post_toq(side.vcq.hdl, garbage, 0, CONF_PTR(2)));
        CONF_OK(utofu_post_toq(side.vcq.hdl, (char *)garbage + 1, 0, NULL));
    }
    CONF_EXPECT_QUIET(&side.vcq);
    CONF_CHECK(unread(&side) == 0, "%zu TOQ entries are in use", unread(&side));
    CONF_CODE(utofu_post_toq(side.vcq.hdl + 1, NULL, 0, NULL),
              UTOFU_ERR_INVALID_VCQ_HDL);
    side_close(&side);
}

CONF_TEST("3.7.3.1", post_toq_busy, 1,
          "when the TOQ has room for some of the descriptors only, "
          "utofu_post_toq is BUSY and posts none; with just enough room it "
          "posts all; more than a TOQ can hold is an error that is not BUSY")
{
    struct side side;
    char       *descs, *at;
    size_t      most = 0, i, one, size;
    int         rc, k;

    side_open(&side, 0);
    while (CONF_CODE(utofu_nop(side.vcq.hdl, CONF_TCQ, NULL), UTOFU_SUCCESS,
                     UTOFU_ERR_BUSY) == UTOFU_SUCCESS) {
        CONF_CHECK(++most < MOST, "the TOQ is never full");
    }
    for (i = 0; i < most; i++) {
        CONF_EXPECT_TCQ(&side.vcq, NULL);
    }
    descs = at = aligned_alloc(8, (most + 1) * DESC_SIZE);
    for (i = 0; i <= most; i++) {
        add_put(&side, 0, i % 256, i + 1, 0, CONF_TCQ | CONF_LMRQ, &at);
    }
    one = (at - descs) / (most + 1);
    for (i = 0; i < most - 3; i++) {
        CONF_OK(utofu_nop(side.vcq.hdl, CONF_TCQ, CONF_PTR(i + 1)));
    }
    for (k = 0; k < 3; k++) {
        CONF_CODE(utofu_post_toq(side.vcq.hdl, descs, 4 * one, CONF_PTR(5)),
                  UTOFU_ERR_BUSY);
        CONF_CODE(utofu_post_toq(side.vcq.hdl, descs, most * one, CONF_PTR(5)),
                  UTOFU_ERR_BUSY);
    }
    CONF_CHECK(unread(&side) == most - 3, "%zu descriptors, expected %zu",
               unread(&side), most - 3);
    CONF_CHECK(side.words[0] == 0, "a put of a BUSY call was done");
    CONF_OK(utofu_post_toq(side.vcq.hdl, descs, 3 * one, CONF_PTR(6)));
    CONF_CODE(utofu_post_toq(side.vcq.hdl, descs, one, CONF_PTR(5)),
              UTOFU_ERR_BUSY);
    CONF_OK(utofu_post_toq(side.vcq.hdl, NULL, 0, CONF_PTR(5)));
    for (i = 0; i < most; i++) {
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR((i < most - 3) ? i + 1 : 6));
    }
    for (i = 0; i < 3; i++) {
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.id, 0, NULL);
    }
    CONF_EXPECT_QUIET(&side.vcq);
    CONF_CHECK((side.words[2] == 3) && (side.words[3] == 0), "three puts");

    /* One more than fits, with the TOQ empty; then what just fits. */
    size = (most + 1) * one;
    rc   = utofu_post_toq(side.vcq.hdl, descs, size, CONF_PTR(7));
    /* the guide does not say which; a machine's may be BUSY for ever */
    CONF_CHECK(((rc <= UTOFU_ERR_INVALID_ARG) && (rc >= UTOFU_ERR_INVALID_DATA)) ||
                       (!conf_is_emulator() && (rc == UTOFU_ERR_BUSY)),
               "%zu descriptors: %s", most + 1, conf_code_name(rc));
    CONF_CHECK((unread(&side) == 0) && (side.words[3] == 0),
               "some of too many descriptors were posted");
    CONF_OK(utofu_post_toq(side.vcq.hdl, descs, most * one, CONF_PTR(8)));
    for (i = 0; i < most; i++) {
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(8));
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.id, 0, NULL);
    }
    CONF_EXPECT_QUIET(&side.vcq);
    free(descs);
    side_close(&side);
}

CONF_TEST("3.1.2.1", post_toq_refuses, 1,
          "memory that does not hold whole descriptors of this VCQ is refused "
          "with INVALID_DESC, no or misaligned memory with INVALID_POINTER or "
          "INVALID_DESC; good descriptors before a bad one are not posted")
{
    struct side    side;
    struct conf_vcq other, freed;
    uint64_t       descs[8 * DESC_SIZE / 8], bad[DESC_SIZE / 8];
    char          *at = (char *)descs;
    unsigned char  random[DESC_SIZE];
    size_t         one, i, size;
    unsigned       seed;

    if (!conf_is_emulator()) {
        conf_skip("what a machine does with such memory is not specified");
    }
    side_open(&side, 0);
    conf_vcq_create(&other, 0, 0);
    conf_vcq_create(&freed, 0, 0);
    add_put(&side, 0, 0, 1, 0, CONF_LMRQ, &at);
    add_put(&side, 0, 1, 1, 0, CONF_LMRQ, &at);
    one = (at - (char *)descs) / 2;
#define POST(_desc, _size) \
    utofu_post_toq(side.vcq.hdl, _desc, _size, CONF_PTR(1))
    CONF_CODE(POST(NULL, one), UTOFU_ERR_INVALID_POINTER,
              UTOFU_ERR_INVALID_DESC);
    for (i = 1; i < 8; i++) {
        memmove((char *)descs + i, descs, one);
        CONF_CODE(POST((char *)descs + i, one), UTOFU_ERR_INVALID_POINTER,
                  UTOFU_ERR_INVALID_DESC);
        memmove(descs, (char *)descs + i, one);
    }
    at = (char *)descs + one;
    add_put(&side, 0, 1, 1, 0, CONF_LMRQ, &at);
    for (i = 1; i < 2 * one; i++) {
        if (i != one) {
            CONF_CODE(POST(descs, i), UTOFU_ERR_INVALID_DESC,
                      UTOFU_ERR_INVALID_SIZE);
        }
    }
    CONF_CODE(POST(descs, SIZE_MAX), UTOFU_ERR_INVALID_DESC,
              UTOFU_ERR_INVALID_SIZE, UTOFU_ERR_INVALID_NUMBER);
    /* the third is of a VCQ that is not this one, or is no more */
    for (i = 0; i < 2; i++) {
        CONF_OK(utofu_prepare_put(i ? freed.hdl : other.hdl, side.vcq.id,
                                  side.stadds[0] + 512, side.stadds[0] + 16, 8,
                                  0, CONF_TCQ, at, &size));
        if (i == 1) {
            CONF_OK(utofu_free_vcq(freed.hdl));
            conf_vcq_create(&freed, 0, 0); /* perhaps in its place */
        }
        CONF_CODE(POST(descs, 2 * one + size), UTOFU_ERR_INVALID_DESC);
        CONF_CODE(POST(at, size), UTOFU_ERR_INVALID_DESC);
        if (i == 1) {
            CONF_CODE(utofu_post_toq(freed.hdl, at, size, NULL),
                      UTOFU_ERR_INVALID_DESC);
        }
    }
    for (seed = 0; seed < 500; seed++) {
        if (seed < 2) {
            memset(random, seed ? 0xff : 0, sizeof(random));
        } else {
            conf_fill(random, sizeof(random), seed);
        }
        memcpy(bad, random, sizeof(bad));
        CONF_CODE(POST(bad, sizeof(bad)), UTOFU_ERR_INVALID_DESC);
        memcpy(at, random, sizeof(bad));
        CONF_CODE(POST(descs, 2 * one + sizeof(bad)), UTOFU_ERR_INVALID_DESC);
    }
    CONF_EXPECT_QUIET(&side.vcq);
    CONF_EXPECT_QUIET(&other);
    CONF_CHECK(unread(&side) == 0, "%zu TOQ entries are in use", unread(&side));
    CONF_CHECK_BYTES(side.words, sizeof(side.words), 0, "memory");
    /* they were good */
    CONF_OK(POST(descs, 2 * one));
    CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.id, 0, NULL);
    CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.id, 0, NULL);
    CONF_CHECK((side.words[0] == 1) && (side.words[1] == 1), "two puts");
    conf_vcq_close(&freed);
    conf_vcq_close(&other);
    side_close(&side);
}

CONF_TEST("3.7.3.1", post_toq_errors_of_some, 2,
          "an operation of a batch that fails is reported as one that was "
          "posted alone; those before and after it are done")
{
    uint64_t                descs[6 * DESC_SIZE / 8];
    struct side             side;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           gone;
    char                   *at = (char *)descs;
    size_t                  size;
    int                     i, rc;

    conf_need_exact_bounds();
    side_open(&side, 0);
    gone = conf_reg(&side.vcq, descs, sizeof(descs), 0);
    conf_dereg(&side.vcq, gone);
    if (conf_rank == 0) {
        for (i = 0; i < 5; i++) {
            /* 1: behind the end there; 3: no such memory here */
            CONF_OK(utofu_prepare_put(side.vcq.hdl, side.vcq.peer[1],
                                      (i == 3) ? gone : side.stadds[0],
                                      side.stadds[1] + ((i == 1) ? 2044 : 8 * i),
                                      8, i, CONF_LMRQ | CONF_TCQ, at, &size));
            at += size;
        }
        side.words[0] = 5;
        CONF_OK(utofu_post_toq(side.vcq.hdl, descs, at - (char *)descs,
                               CONF_PTR(4)));
        for (i = 0; i < 5; i++) {
            void *cbdata = NULL;

            rc = CONF_CODE(CONF_WAIT_TCQ(&side.vcq, &cbdata),
                           (i == 3) ? UTOFU_ERR_TCQ_STADD : UTOFU_SUCCESS,
                           (i == 3) ? UTOFU_ERR_TCQ_MEMORY : UTOFU_SUCCESS);
            CONF_CHECK(cbdata == CONF_PTR(4), "cbdata (%s)", conf_code_name(rc));
        }
        for (i = 0; i < 5; i++) {
            if (i != 3) {
                CONF_CODE(CONF_WAIT_MRQ(&side.vcq, &notice),
                          (i == 1) ? UTOFU_ERR_MRQ_RMT_LENGTH : UTOFU_SUCCESS);
                CONF_CHECK(notice.edata == (uint64_t)i, "EDATA %" PRIu64,
                           notice.edata);
            }
        }
        CONF_EXPECT_QUIET(&side.vcq);
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || ((side.words[0] == 5) &&
                                    (side.words[2] == 5) && (side.words[4] == 5)),
               "the good puts");
    side_close(&side);
}

CONF_TEST("5.1.4", post_toq_halo, 3,
          "columns of a matrix go to both neighbours by descriptors that are "
          "made once: all blocks of a column but the last without notices")
{
    enum { NX = 20, NY = 50, ITERATIONS = 60 };
    struct {
        struct conf_vcq vcq;
        utofu_stadd_t   stadds[CONF_MAX_PROCS];
        char           *descs;
        size_t          size;
    } way[2]; /* to the rank before, after */
    static double matrix[NY][NX];
    size_t        size;
    int           i, y, iteration, peer;

    for (i = 0; i < 2; i++) {
        conf_vcq_open(&way[i].vcq, i, 0);
        conf_reg_all(&way[i].vcq, matrix, sizeof(matrix), way[i].stadds);
        way[i].descs = aligned_alloc(8, NY * DESC_SIZE);
    }
    for (i = 0; i < 2; i++) {
        /* The peer's VCQ of the same TNI faces this one's other side. */
        size_t from = (i == 0) ? 8 : (NX - 2) * 8, to = (i == 0) ? (NX - 1) * 8 : 0;

        peer = (conf_rank + 2 + 2 * i) % 3;
        CONF_OK(utofu_prepare_put_stride(
                way[i].vcq.hdl, way[i].vcq.peer[peer],
                way[i].stadds[conf_rank] + from, way[i].stadds[peer] + to, 8,
                NX * 8, NY - 1, i, 0, way[i].descs, &way[i].size));
        CONF_OK(utofu_prepare_put(
                way[i].vcq.hdl, way[i].vcq.peer[peer],
                way[i].stadds[conf_rank] + from + (NY - 1) * NX * 8,
                way[i].stadds[peer] + to + (NY - 1) * NX * 8, 8, i,
                CONF_TCQ | CONF_RMRQ | CONF_STRONG,
                way[i].descs + way[i].size, &size));
        way[i].size += size;
    }
    conf_barrier();
    for (iteration = 0; iteration < ITERATIONS; iteration++) {
        for (y = 0; y < NY; y++) {
            matrix[y][1]      = conf_rank * 1000 + iteration + y;
            matrix[y][NX - 2] = -matrix[y][1] - 1;
        }
        for (i = 0; i < 2; i++) {
            CONF_OK(utofu_post_toq(way[i].vcq.hdl, way[i].descs, way[i].size,
                                   CONF_PTR(iteration)));
        }
        for (i = 0; i < 2; i++) {
            CONF_EXPECT_TCQ(&way[i].vcq, CONF_PTR(iteration));
            CONF_EXPECT_MRQ(&way[i].vcq, UTOFU_MRQ_TYPE_RMT_PUT,
                            way[i].vcq.peer[(conf_rank + 1 + i) % 3], i, NULL);
        }
        for (y = 0; y < NY; y++) {
            double before = -((conf_rank + 2) % 3 * 1000 + iteration + y) - 1;
            double after  = (conf_rank + 1) % 3 * 1000 + iteration + y;

            CONF_CHECK((matrix[y][0] == before) && (matrix[y][NX - 1] == after),
                       "iteration %d, row %d: %g and %g, expected %g and %g",
                       iteration, y, matrix[y][0], matrix[y][NX - 1], before,
                       after);
        }
        conf_barrier();
    }
    for (i = 0; i < 2; i++) {
        conf_dereg(&way[i].vcq, way[i].stadds[conf_rank]);
        conf_vcq_close(&way[i].vcq);
        free(way[i].descs);
    }
}
