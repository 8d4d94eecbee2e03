/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_stride.c - put and get with stride: num_blocks descriptors by one call,
 * with and without gap (3.7, 3.7.1.3, 3.7.1.4, 3.7.1.9, 3.7.1.10).
 */
#include "harness.h"

#include <inttypes.h>

#define SIZE  (64 * 1024)
#define MOST  (1 << 17) /* descriptors that no TOQ has room for */

struct side {
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
};

/* The four functions; with a gap: 256-byte packets at half the bandwidth. */
enum how { PUT, PUT_GAP, GET, GET_GAP, NUM_HOWS };

static const char *const names[NUM_HOWS] = {"put_stride", "put_stride_gap",
                                            "get_stride", "get_stride_gap"};

static void side_open(struct side *side, enum conf_kind kind, size_t size)
{
    conf_vcq_open(&side->vcq, 0, 0);
    conf_mem_alloc(&side->mem, kind, size);
    memset(side->mem.addr, 0xcc, size);
    conf_reg_all(&side->vcq, side->mem.addr, size, side->stadds);
}

static void side_close(struct side *side)
{
    conf_barrier();
    conf_dereg(&side->vcq, side->stadds[conf_rank]);
    conf_vcq_close(&side->vcq);
    conf_mem_free(&side->mem);
}

static int post(utofu_vcq_hdl_t hdl, enum how how, utofu_vcq_id_t to,
                utofu_stadd_t lcl, utofu_stadd_t rmt, size_t length,
                size_t stride, size_t num, uint64_t edata, unsigned long flags,
                void *cbdata)
{
    switch (how) {
    case PUT:
        return utofu_put_stride(hdl, to, lcl, rmt, length, stride, num, edata,
                                flags, cbdata);
    case PUT_GAP:
        return utofu_put_stride_gap(hdl, to, lcl, rmt, length, stride, num,
                                    edata, flags, 256, 8, cbdata);
    case GET:
        return utofu_get_stride(hdl, to, lcl, rmt, length, stride, num, edata,
                                flags, cbdata);
    default:
        return utofu_get_stride_gap(hdl, to, lcl, rmt, length, stride, num,
                                    edata, flags, 256, 8, cbdata);
    }
}

static int local_type(enum how how)
{
    return (how < GET) ? UTOFU_MRQ_TYPE_LCL_PUT : UTOFU_MRQ_TYPE_LCL_GET;
}

/* Bytes of target that blocks cover are those of the source, the others stay. */
static void check_blocks(const unsigned char *target, size_t size,
                         const unsigned char *source, size_t length,
                         size_t stride, size_t num, const char *name)
{
    unsigned char *expected = malloc(size);
    size_t         i;

    memset(expected, 0xcc, size);
    for (i = 0; i < num; i++) {
        memcpy(expected + 256 + i * stride, source + i * stride, length);
    }
    for (i = 0; (i < size) && (target[i] == expected[i]); i++) {
    }
    CONF_CHECK(i == size, "%s of %zu blocks of %zu bytes, %zu apart: byte %zu "
               "is 0x%02x, expected 0x%02x", name, num, length, stride, i - 256,
               target[i], expected[i]);
    free(expected);
}

/* Rank 0 puts or gets; source and target have other alignments. */
static void one_call(struct side *side, enum how how, size_t length,
                     size_t stride, size_t num)
{
    static unsigned seed = 1;
    unsigned char  *mem  = side->mem.addr;
    int             target = (how < GET) ? 1 : 0;
    unsigned char  *source = malloc(SIZE);
    size_t          i, span = (num - 1) * stride + length;

    CONF_CHECK(span + 512 < side->mem.size, "this test is wrong");
    seed++;
    conf_fill(source, SIZE, seed);
    if (conf_rank == target) {
        memset(mem, 0xcc, span + 512);
    } else {
        memcpy(mem + 3, source, span);
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(post(side->vcq.hdl, how, side->vcq.peer[1],
                     side->stadds[0] + ((how < GET) ? 3 : 256),
                     side->stadds[1] + ((how < GET) ? 256 : 3), length, stride,
                     num, 9, CONF_LMRQ, NULL));
        for (i = 0; i < num; i++) {
            CONF_EXPECT_MRQ(&side->vcq, local_type(how), side->vcq.peer[1], 9,
                            NULL);
        }
    }
    conf_barrier();
    if (conf_rank == target) {
        check_blocks(mem, span + 512, source, length, stride, num, names[how]);
    }
    CONF_EXPECT_QUIET(&side->vcq);
    free(source);
    conf_barrier();
}

static void data(enum conf_kind kind)
{
    static const struct {
        size_t length, stride, num;
    } cases[] = {
        {8, 8, 1},       {8, 16, 2},     {1, 3, 100},    {8, 800, 70},
        {24, 24, 50},    {100, 77, 20},  {64, 0, 5},     {300, 1, 30},
        {4097, 9000, 6}, {1920, 2000, 9}, {0, 64, 3},    {10000, 10001, 6},
    };
    struct side side;
    size_t      i;
    int         how;

    side_open(&side, kind, SIZE);
    for (how = 0; how < NUM_HOWS; how++) {
        for (i = 0; i < CONF_LEN(cases); i++) {
            one_call(&side, how, cases[i].length, cases[i].stride,
                     cases[i].num);
        }
    }
    side_close(&side);
}

CONF_TEST("3.7.1.3", stride_data_private, 2,
          "put and get with stride move exactly their blocks, each from and to "
          "the same multiple of the stride; strides of 0 and below the length "
          "as well (private memory)")
{
    data(CONF_MEM_MALLOC);
}

CONF_TEST("3.7.1.3", stride_data_shared, 2,
          "put and get with stride move exactly their blocks, each from and to "
          "the same multiple of the stride; strides of 0 and below the length "
          "as well (shared memory)")
{
    data(CONF_MEM_MEMFD);
}

CONF_TEST("3.7.1.3", stride_every_combination, 2,
          "a call with stride gives one TCQ entry, local notice and remote "
          "notice per block where they are asked for, in order of the blocks, "
          "all with the same cbdata and EDATA, each with its own end address")
{
    enum { NUM = 5, LENGTH = 24, STRIDE = 40 };
    struct utofu_mrq_notice notice;
    struct side             side;
    unsigned long           flags;
    utofu_stadd_t           rmt;
    unsigned                i, mask;
    uint64_t                edata;
    int                     how;

    side_open(&side, CONF_MEM_MALLOC, SIZE);
    for (how = 0; how < NUM_HOWS; how++) {
        for (mask = 0; mask < 8; mask++) {
            flags = ((mask & 1) ? CONF_TCQ : 0) |
                    ((mask & 2) ? CONF_LMRQ : 0) |
                    ((mask & 4) ? CONF_RMRQ : 0);
            edata = 100 + how * 8 + mask;
            rmt   = side.stadds[1] + 512 + LENGTH;
            conf_barrier();
            if (conf_rank == 0) {
                CONF_OK(post(side.vcq.hdl, how, side.vcq.peer[1],
                             side.stadds[0], side.stadds[1] + 512, LENGTH,
                             STRIDE, NUM, edata, flags, CONF_PTR(edata * 3)));
            }
            for (i = 0; i < NUM; i++) {
                if ((conf_rank == 0) && (mask & 1)) {
                    CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(edata * 3));
                }
                if (!(mask & ((conf_rank == 0) ? 2 : 4))) {
                    continue;
                }
                CONF_EXPECT_MRQ(&side.vcq, local_type(how) + conf_rank,
                                side.vcq.peer[1 - conf_rank], edata, &notice);
                CONF_CHECK((how < GET) || (notice.lcl_stadd == side.stadds[0] +
                                           LENGTH + i * STRIDE),
                           "%s: lcl_stadd of block %u", names[how], i);
                CONF_CHECK(((how >= GET) && (conf_rank == 0)) ||
                                   (notice.rmt_stadd == rmt + i * STRIDE),
                           "%s: rmt_stadd of block %u", names[how], i);
            }
            conf_expect_quiet(__FILE__, __LINE__, &side.vcq, 2);
            conf_barrier();
            conf_expect_quiet(__FILE__, __LINE__, &side.vcq, 0);
        }
    }
    side_close(&side);
}

CONF_TEST("3.7.5.1", stride_counts_descriptors, 2,
          "a call with stride puts num_blocks descriptors in the TOQ, noticed "
          "or not; reading the TCQ frees them")
{
    struct side side;
    size_t      count;
    void       *cbdata;
    int         how;

    side_open(&side, CONF_MEM_MALLOC, SIZE);
    for (how = 0; (how < NUM_HOWS) && (conf_rank == 0); how++) {
        CONF_OK(post(side.vcq.hdl, how, side.vcq.peer[1], side.stadds[0],
                     side.stadds[1], 8, 16, 7, 0, 0, NULL));
        CONF_OK(post(side.vcq.hdl, how, side.vcq.peer[1], side.stadds[0],
                     side.stadds[1], 8, 16, 4, 0, CONF_TCQ, CONF_PTR(1)));
        CONF_OK(utofu_query_num_unread_tcq(side.vcq.hdl, &count));
        CONF_CHECK(count == 11, "%s: %zu descriptors, expected 11", names[how],
                   count);
        for (count = 0; count < 4; count++) {
            CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
        }
        CONF_CODE(utofu_poll_tcq(side.vcq.hdl, 0, &cbdata),
                  UTOFU_ERR_NOT_FOUND);
        CONF_OK(utofu_query_num_unread_tcq(side.vcq.hdl, &count));
        CONF_CHECK(count == 0, "%s: %zu left", names[how], count);
    }
    side_close(&side);
}

/* Post NOPs until BUSY, then read the TCQ: so many descriptors fit. */
static size_t toq_size(const struct conf_vcq *vcq)
{
    size_t n = 0, i;

    while (CONF_CODE(utofu_nop(vcq->hdl, CONF_TCQ, NULL), UTOFU_SUCCESS,
                     UTOFU_ERR_BUSY) == UTOFU_SUCCESS) {
        CONF_CHECK(++n < MOST, "the TOQ is never full");
    }
    for (i = 0; i < n; i++) {
        CONF_EXPECT_TCQ(vcq, NULL);
    }
    return n;
}

CONF_TEST("3.7.1.3", stride_busy, 1,
          "when the TOQ has room for fewer than num_blocks descriptors a call "
          "with stride is BUSY and posts none; with just enough room it posts "
          "all; more than the TOQ has at all is an error that is not BUSY")
{
    struct side side;
    size_t      most, i, count;
    uint64_t   *words;
    int         how, rc;

    side_open(&side, CONF_MEM_MALLOC, SIZE);
    words = (uint64_t *)side.mem.addr;
    most  = toq_size(&side.vcq);
    for (how = 0; how < NUM_HOWS; how++) {
        memset(words, 0, 4096);
        for (i = 0; i < 4; i++) {
            words[i + ((how < GET) ? 0 : 256)] = 0x77;
        }
#define TRY(_n, _cbdata) \
        post(side.vcq.hdl, how, side.vcq.id, side.stadds[0], \
             side.stadds[0] + 2048, 8, 8, _n, 0, CONF_TCQ | CONF_LMRQ, _cbdata)
        for (i = 0; i < most - 3; i++) {
            CONF_OK(utofu_nop(side.vcq.hdl, CONF_TCQ, CONF_PTR(i + 1)));
        }
        CONF_CODE(TRY(4, CONF_PTR(7)), UTOFU_ERR_BUSY);
        CONF_CODE(TRY(most, CONF_PTR(7)), UTOFU_ERR_BUSY);
        CONF_OK(utofu_query_num_unread_tcq(side.vcq.hdl, &count));
        CONF_CHECK(count == most - 3, "%s: %zu descriptors, expected %zu",
                   names[how], count, most - 3);
        CONF_CHECK(words[(how < GET) ? 256 : 0] == 0, "%s: BUSY moved data",
                   names[how]);
        CONF_OK(TRY(3, CONF_PTR(8)));
        CONF_CODE(TRY(1, CONF_PTR(7)), UTOFU_ERR_BUSY);
        CONF_CODE(utofu_nop(side.vcq.hdl, 0, NULL), UTOFU_ERR_BUSY);
        for (i = 0; i < most - 3; i++) {
            CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(i + 1));
        }
        for (i = 0; i < 3; i++) {
            CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(8));
            CONF_EXPECT_MRQ(&side.vcq, local_type(how), side.vcq.id, 0, NULL);
        }
        CONF_EXPECT_QUIET(&side.vcq);
        CONF_CHECK((words[(how < GET) ? 258 : 2] == 0x77) &&
                           (words[(how < GET) ? 259 : 3] == 0),
                   "%s: not three blocks", names[how]);

        const size_t too_many[] = {most + 1, MOST, (size_t)1 << 32, SIZE_MAX};

        for (i = 0; i < CONF_LEN(too_many); i++) {
            rc = TRY(too_many[i], CONF_PTR(9));
            CONF_CHECK(((rc <= UTOFU_ERR_INVALID_ARG) &&
                        (rc >= UTOFU_ERR_INVALID_DATA)) ||
                               (!conf_is_emulator() && (rc == UTOFU_ERR_BUSY)),
                       "%s of %zu blocks: %s", names[how], too_many[i],
                       conf_code_name(rc));
        }
        CONF_OK(TRY(most, CONF_PTR(10)));
        for (i = 0; i < most; i++) {
            CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(10));
            CONF_EXPECT_MRQ(&side.vcq, local_type(how), side.vcq.id, 0, NULL);
        }
        CONF_EXPECT_QUIET(&side.vcq);
    }
    side_close(&side);
}

CONF_TEST("3.1.2.1", stride_arguments, 1,
          "the functions with stride refuse what utofu_put and utofu_get "
          "refuse, and no blocks with INVALID_NUMBER; nothing is posted")
{
    utofu_vcq_hdl_t hdl;
    struct side     side;
    size_t          count;
    int             how;

    side_open(&side, CONF_MEM_MALLOC, SIZE);
    hdl = side.vcq.hdl;
    for (how = 0; how < NUM_HOWS; how++) {
#define CALL(_hdl, _id, _length, _num, _edata, _flags) \
        post(_hdl, how, _id, side.stadds[0], side.stadds[0] + 4096, _length, \
             16, _num, _edata, _flags, NULL)
        CONF_CODE(CALL(hdl + 1, side.vcq.id, 8, 2, 0, 0),
                  UTOFU_ERR_INVALID_VCQ_HDL);
        CONF_CODE(CALL(hdl, UINT64_MAX, 8, 2, 0, 0), UTOFU_ERR_INVALID_VCQ_ID);
        CONF_CODE(CALL(hdl, side.vcq.id, 16777216, 2, 0, 0),
                  UTOFU_ERR_INVALID_SIZE);
        CONF_CODE(CALL(hdl, side.vcq.id, SIZE_MAX, 2, 0, 0),
                  UTOFU_ERR_INVALID_SIZE);
        CONF_CODE(CALL(hdl, side.vcq.id, 8, 2, 256, 0),
                  UTOFU_ERR_INVALID_EDATA);
        CONF_CODE(CALL(hdl, side.vcq.id, 8, 2, 0, 1UL << 40),
                  UTOFU_ERR_INVALID_FLAGS);
        CONF_CODE(CALL(hdl, side.vcq.id, 8, 0, 0, 0),
                  UTOFU_ERR_INVALID_NUMBER);
    }
    CONF_EXPECT_QUIET(&side.vcq);
    CONF_OK(utofu_query_num_unread_tcq(hdl, &count));
    CONF_CHECK(count == 0, "refused calls took %zu TOQ entries", count);
    CONF_CHECK_BYTES(side.mem.addr, SIZE, 0xcc, "memory of refused calls");
    side_close(&side);
}

CONF_TEST("3.7.1.3", stride_leaves_the_region, 2,
          "blocks that leave the registered memory fail one by one, as puts and "
          "gets of their own do; the others arrive")
{
    enum { NUM = 6, GOOD = 4, REGION = 1024, LENGTH = 128 };
    struct utofu_mrq_notice notice;
    struct side             side;
    utofu_stadd_t           lcl, mine;
    unsigned char           source[4096];
    int                     how, i, rc;

    conf_need_exact_bounds();
    side_open(&side, CONF_MEM_MALLOC, REGION);
    conf_fill(source, sizeof(source), 3);
    mine = conf_reg(&side.vcq, source, sizeof(source), 0);
    lcl  = (conf_rank == 0) ? mine : 0;
    for (how = 0; how < NUM_HOWS; how++) {
        conf_barrier();
        if (conf_rank != 0) {
            continue;
        }
        /* The fifth block starts inside and ends outside, the sixth is outside. */
        CONF_OK(post(side.vcq.hdl, how, side.vcq.peer[1], lcl, side.stadds[1],
                     LENGTH, 230, NUM, how, CONF_LMRQ, NULL));
        for (i = 0; i < NUM; i++) {
            memset(&notice, 0, sizeof(notice));
            rc = CONF_CODE(CONF_WAIT_MRQ(&side.vcq, &notice), UTOFU_SUCCESS,
                           UTOFU_ERR_MRQ_RMT_LENGTH, UTOFU_ERR_MRQ_RMT_STADD);
            CONF_CHECK((i < GOOD)  ? (rc == UTOFU_SUCCESS) :
                       (i == GOOD) ? (rc == UTOFU_ERR_MRQ_RMT_LENGTH) :
                                     (rc != UTOFU_SUCCESS),
                       "%s, block %d: %s", names[how], i, conf_code_name(rc));
            conf_check_notice(__FILE__, __LINE__, &notice, local_type(how),
                              side.vcq.peer[1], how);
        }
        CONF_EXPECT_QUIET(&side.vcq);
    }
    conf_barrier();
    if (conf_rank == 1) {
        for (i = 0; i < GOOD; i++) {
            CONF_CHECK(memcmp(side.mem.addr + i * 230, source + i * 230,
                              LENGTH) == 0, "block %d did not arrive", i);
        }
    }
    conf_dereg(&side.vcq, mine);
    side_close(&side);
}

CONF_TEST("3.7.1.3", stride_far_away, 2,
          "strides beyond all memory, up to the largest number, are errors of "
          "the second block or of the call, nothing worse")
{
    static const size_t strides[] = {(size_t)1 << 31, (size_t)1 << 40,
                                     (size_t)1 << 56, SIZE_MAX / 2};
    struct side side;
    unsigned    spins;
    size_t      i;
    void       *cbdata;
    int         how, rc;

    struct utofu_mrq_notice notice;

    side_open(&side, CONF_MEM_MALLOC, SIZE);
    for (how = 0; (how < NUM_HOWS) && (conf_rank == 0); how++) {
        for (i = 0; i < CONF_LEN(strides); i++) {
            int failed = 0, done = 0;

            rc = post(side.vcq.hdl, how, side.vcq.peer[1], side.stadds[0],
                      side.stadds[1], 64, strides[i], 2, 0, CONF_LMRQ, NULL);
            if (rc != UTOFU_SUCCESS) {
                CONF_CHECK((rc <= UTOFU_ERR_INVALID_ARG) &&
                                   (rc >= UTOFU_ERR_INVALID_DATA),
                           "%s: %s", names[how], conf_code_name(rc));
                continue;
            }
            for (spins = 0; done + failed < 2;) {
                rc = utofu_poll_tcq(side.vcq.hdl, 0, &cbdata);
                failed += rc != UTOFU_ERR_NOT_FOUND;
                rc = utofu_poll_mrq(side.vcq.hdl, 0, &notice);
                failed += (rc != UTOFU_ERR_NOT_FOUND) && (rc != UTOFU_SUCCESS);
                done += rc == UTOFU_SUCCESS;
                conf_relax(&spins);
            }
            CONF_CHECK(failed == 1, "%s, stride 0x%zx: %d blocks failed",
                       names[how], strides[i], failed);
        }
        CONF_EXPECT_QUIET(&side.vcq);
    }
    side_close(&side);
}

CONF_TEST("3.7.1.9", stride_large_blocks, 2,
          "blocks of more than a megabyte, and of an odd size")
{
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_ANON};
    enum { LENGTH = 1100001, STRIDE = 1200003, NUM = 3 };
    struct side side;
    size_t      k;
    int         how, i;

    for (k = 0; k < CONF_LEN(kinds); k++) {
        side_open(&side, kinds[k], NUM * STRIDE);
        for (how = 0; how < NUM_HOWS; how += 2) {
            int from = (how < GET) ? 0 : 1;

            if (conf_rank == from) {
                conf_fill(side.mem.addr, NUM * STRIDE, how + 1);
            } else {
                memset(side.mem.addr, 0xcc, NUM * STRIDE);
            }
            conf_barrier();
            for (i = 0; (i < NUM) && (conf_rank == 0); i++) {
                if (i == 0) {
                    CONF_OK(post(side.vcq.hdl, how, side.vcq.peer[1],
                                 side.stadds[0], side.stadds[1], LENGTH, STRIDE,
                                 NUM, 1, CONF_LMRQ | CONF_STRONG, NULL));
                }
                CONF_EXPECT_MRQ(&side.vcq, local_type(how), side.vcq.peer[1], 1,
                                NULL);
            }
            conf_barrier();
            if (conf_rank != from) {
                unsigned char *expected = malloc(NUM * STRIDE);

                conf_fill(expected, NUM * STRIDE, how + 1);
                for (i = 0; i < NUM; i++) {
                    CONF_CHECK(memcmp(side.mem.addr + i * STRIDE,
                                      expected + i * STRIDE, LENGTH) == 0,
                               "%s: block %d", names[how], i);
                    CONF_CHECK_BYTES(side.mem.addr + i * STRIDE + LENGTH,
                                     STRIDE - LENGTH, 0xcc, "between blocks");
                }
                free(expected);
            }
            conf_barrier();
        }
        side_close(&side);
    }
}

CONF_TEST("3.7.1.3", stride_source_leaves, 2,
          "blocks of a stride post whose source is outside of its region are TCQ errors one by one, with the callback "
          "data; those after them are carried out")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[2], two;
    unsigned char   area[1024];
    uint64_t        words[16];
    int             i;

    conf_need_exact_bounds();
    conf_vcq_open(&vcq, 0, 0);
    memset(area, 0, sizeof(area));
    conf_reg_all(&vcq, area, sizeof(area), stadds);
    two = conf_reg(&vcq, words, 64, 0);
    if (conf_rank == 0) { /* the third block is the first outside */
        CONF_OK(utofu_put_stride(vcq.hdl, vcq.peer[1], two, stadds[1], 16, 32, 4, 3, CONF_LMRQ, CONF_PTR(4)));
        for (i = 0; i < 2; i++) {
            CONF_EXPECT_TCQ_ERROR(&vcq, CONF_PTR(4), UTOFU_ERR_TCQ_STADD, UTOFU_ERR_TCQ_MEMORY, UTOFU_ERR_TCQ_LENGTH);
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 3, NULL);
        }
        CONF_EXPECT_QUIET(&vcq);
    }
    conf_barrier();
    conf_dereg(&vcq, two);
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
