/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_gap.c - packet size and gap of put and get (2.2.9, 3.7, 3.7.1.2,
 * 3.7.1.8): they shape the traffic and change no result.
 */
#include "harness.h"

#define WINDOW (70000 + 1024)

struct side {
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
};

static void side_open(struct side *side, enum conf_kind kind)
{
    conf_vcq_open(&side->vcq, 0, 0);
    conf_mem_alloc(&side->mem, kind, WINDOW);
    conf_reg_all(&side->vcq, side->mem.addr, WINDOW, side->stadds);
}

static void side_close(struct side *side)
{
    conf_barrier();
    conf_dereg(&side->vcq, side->stadds[conf_rank]);
    conf_vcq_close(&side->vcq);
    conf_mem_free(&side->mem);
}

/* Rank 0 moves length bytes with all notices, rank 1 gets its own. */
static void one_call(struct side *side, bool get, size_t length, size_t mtu,
                     size_t gap, unsigned long flags)
{
    static unsigned         seed = 0;
    struct utofu_mrq_notice notice;
    unsigned char          *mem    = side->mem.addr;
    int                     target = get ? 0 : 1, type;
    int (*post)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
                size_t, uint64_t, unsigned long, size_t, size_t, void *) =
            get ? utofu_get_gap : utofu_put_gap;

    seed++;
    memset(mem, 0xcc, length + 1024);
    if (conf_rank != target) {
        conf_fill(mem + 7, length, seed);
    }
    conf_barrier();
    type = (get ? UTOFU_MRQ_TYPE_LCL_GET : UTOFU_MRQ_TYPE_LCL_PUT) + conf_rank;
    if (conf_rank == 0) {
        CONF_OK(post(side->vcq.hdl, side->vcq.peer[1],
                     side->stadds[0] + (get ? 512 : 7),
                     side->stadds[1] + (get ? 7 : 512), length, seed % 256,
                     CONF_TCQ | CONF_LMRQ | CONF_RMRQ | flags, mtu, gap,
                     CONF_PTR(seed)));
        CONF_EXPECT_TCQ(&side->vcq, CONF_PTR(seed));
    }
    CONF_EXPECT_MRQ(&side->vcq, type, side->vcq.peer[1 - conf_rank], seed % 256,
                    &notice);
    CONF_CHECK((get && (conf_rank == 0)) ||
                       (notice.rmt_stadd == side->stadds[1] + length +
                                                    (get ? 7 : 512)),
               "rmt_stadd");
    CONF_CHECK(!get || (notice.lcl_stadd == side->stadds[0] + 512 + length),
               "lcl_stadd");
    conf_barrier();
    if (conf_rank == target) {
        CONF_CHECK_BYTES(mem, 512, 0xcc, "before the target");
        CONF_CHECK_FILL(mem + 512, length, seed, get ? "get" : "put");
        CONF_CHECK_BYTES(mem + 512 + length, 512, 0xcc, "after the target");
    }
    conf_barrier();
}

static void data(enum conf_kind kind)
{
    static const size_t lengths[] = {0, 1, 256, 1919, 1920, 1921, 70000};
    static const size_t mtus[]    = {256, 1024, 1920};
    static const size_t gaps[]    = {0, 1, 8, 24, 255};
    struct side         side;
    size_t              l, m, g;
    int                 get;

    side_open(&side, kind);
    for (get = 0; get < 2; get++) {
        for (l = 0; l < CONF_LEN(lengths); l++) {
            for (m = 0; m < CONF_LEN(mtus); m++) {
                g = (l + m) % CONF_LEN(gaps);
                one_call(&side, get, lengths[l], mtus[m], gaps[g],
                         (l % 2) ? CONF_STRONG : 0);
            }
        }
        for (g = 0; g < CONF_LEN(gaps); g++) {
            one_call(&side, get, 5000, 1920, gaps[g], 0);
        }
    }
    CONF_EXPECT_QUIET(&side.vcq);
    side_close(&side);
}

CONF_TEST("3.7.1.2", gap_data_private, 2,
          "put and get with any packet size and gap move exactly their bytes "
          "and give one notice of each kind, as without (private memory)")
{
    data(CONF_MEM_MALLOC);
}

CONF_TEST("3.7.1.2", gap_data_shared, 2,
          "put and get with any packet size and gap move exactly their bytes "
          "and give one notice of each kind, as without (shared memory)")
{
    data(CONF_MEM_MEMFD);
}

CONF_TEST("3.7", gap_limits, 1,
          "packet sizes above max_mtu, and of 0, and gaps above max_gap are "
          "refused by every function that takes them, and nothing is posted")
{
    struct side side;
    uint64_t    desc[64];
    size_t      i, size, count;
    int         rc[8], k;

    side_open(&side, CONF_MEM_MALLOC);
    memset(side.mem.addr, 0xcc, WINDOW);

    const size_t max_mtu = conf_caps()->max_mtu, max_gap = conf_caps()->max_gap;
    const struct {
        size_t mtu, gap;
    } bad[] = {
        {max_mtu + 1, 0}, {SIZE_MAX, 0},          {max_mtu, max_gap + 1},
        {256, SIZE_MAX},  {max_mtu + 1, max_gap + 1}, {max_mtu + 65536, 0},
        {256, 256 + 256}, {0, 0}, /* the manual names no least packet size */
    };

    for (i = 0; i < CONF_LEN(bad) - !conf_is_emulator(); i++) {
#define COMMON  side.vcq.hdl, side.vcq.id, side.stadds[0], side.stadds[0] + 512, 8
#define SHAPE   bad[i].mtu, bad[i].gap
        rc[0] = utofu_put_gap(COMMON, 0, CONF_TCQ, SHAPE, NULL);
        rc[1] = utofu_get_gap(COMMON, 0, CONF_TCQ, SHAPE, NULL);
        rc[2] = utofu_put_stride_gap(COMMON, 8, 2, 0, CONF_TCQ, SHAPE, NULL);
        rc[3] = utofu_get_stride_gap(COMMON, 8, 2, 0, CONF_TCQ, SHAPE, NULL);
        rc[4] = utofu_prepare_put_gap(COMMON, 0, 0, SHAPE, desc, &size);
        rc[5] = utofu_prepare_get_gap(COMMON, 0, 0, SHAPE, desc, &size);
        rc[6] = utofu_prepare_put_stride_gap(COMMON, 8, 2, 0, 0, SHAPE, desc,
                                             &size);
        rc[7] = utofu_prepare_get_stride_gap(COMMON, 8, 2, 0, 0, SHAPE, desc,
                                             &size);
        for (k = 0; k < 8; k++) {
            if (!conf_is_emulator() && (rc[k] == UTOFU_SUCCESS)) {
                conf_skip("the library does not look at packet sizes and gaps");
            }
            CONF_CHECK((rc[k] <= UTOFU_ERR_INVALID_ARG) &&
                               (rc[k] >= UTOFU_ERR_INVALID_DATA),
                       "function %d of 8, packet size %zu, gap %zu: %s", k,
                       SHAPE, conf_code_name(rc[k]));
        }
    }
    CONF_EXPECT_QUIET(&side.vcq);
    CONF_OK(utofu_query_num_unread_tcq(side.vcq.hdl, &count));
    CONF_CHECK(count == 0, "refused calls took %zu TOQ entries", count);
    CONF_CHECK_BYTES(side.mem.addr, WINDOW, 0xcc, "memory of refused calls");
    side_close(&side);
}

CONF_TEST("3.1.2.1", gap_arguments, 1,
          "the functions with gap refuse what utofu_put and utofu_get refuse")
{
    struct side side;
    int         get;

    side_open(&side, CONF_MEM_MALLOC);
    for (get = 0; get < 2; get++) {
#define CALL(_hdl, _id, _length, _edata, _flags) \
        (get ? utofu_get_gap : utofu_put_gap)( \
                _hdl, _id, side.stadds[0], side.stadds[0] + 512, _length, \
                _edata, _flags, 1920, 8, NULL)
        CONF_CODE(CALL(side.vcq.hdl + 1, side.vcq.id, 8, 0, 0),
                  UTOFU_ERR_INVALID_VCQ_HDL);
        CONF_CODE(CALL(side.vcq.hdl, UINT64_MAX, 8, 0, 0),
                  UTOFU_ERR_INVALID_VCQ_ID);
        CONF_CODE(CALL(side.vcq.hdl, side.vcq.id, 16777216, 0, 0),
                  UTOFU_ERR_INVALID_SIZE);
        CONF_CODE(CALL(side.vcq.hdl, side.vcq.id, 8, 256, 0),
                  UTOFU_ERR_INVALID_EDATA);
        CONF_CODE(CALL(side.vcq.hdl, side.vcq.id, 8, 0, 1UL << 40),
                  UTOFU_ERR_INVALID_FLAGS);
    }
    CONF_EXPECT_QUIET(&side.vcq);
    side_close(&side);
}

CONF_TEST("3.7.1.2", gap_errors, 2,
          "puts and gets with gap report failures as those without do, at the "
          "place in the order that they have")
{
    struct side             side;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           gone;
    uint64_t                word = 0;
    int                     i;

    conf_need_exact_bounds();
    side_open(&side, CONF_MEM_MALLOC);
    gone = conf_reg(&side.vcq, &word, sizeof(word), 0);
    conf_dereg(&side.vcq, gone);
    if (conf_rank == 0) {
        /* a good one on either side of each bad one */
        for (i = 0; i < 3; i++) {
            CONF_OK(utofu_put_gap(side.vcq.hdl, side.vcq.peer[1], side.stadds[0],
                                  side.stadds[1] + ((i == 1) ? WINDOW - 10 : 0),
                                  20, i, CONF_LMRQ, 1920, 8, CONF_PTR(i)));
            CONF_OK(utofu_get_gap(side.vcq.hdl, side.vcq.peer[1], side.stadds[0],
                                  side.stadds[1] + ((i == 1) ? WINDOW - 10 : 0),
                                  20, 10 + i, CONF_LMRQ, 1920, 8, CONF_PTR(i)));
        }
        for (i = 0; i < 6; i++) {
            CONF_CODE(CONF_WAIT_MRQ(&side.vcq, &notice),
                      (i / 2 == 1) ? UTOFU_ERR_MRQ_RMT_LENGTH : UTOFU_SUCCESS);
            conf_check_notice(__FILE__, __LINE__, &notice,
                              (i % 2) ? UTOFU_MRQ_TYPE_LCL_GET :
                                        UTOFU_MRQ_TYPE_LCL_PUT,
                              side.vcq.peer[1], i / 2 + ((i % 2) ? 10 : 0));
        }
        CONF_OK(utofu_put_gap(side.vcq.hdl, side.vcq.peer[1], gone,
                              side.stadds[1], 8, 0, 0, 1920, 8, CONF_PTR(77)));
        CONF_EXPECT_TCQ_ERROR(&side.vcq, CONF_PTR(77), UTOFU_ERR_TCQ_STADD,
                              UTOFU_ERR_TCQ_MEMORY);
        CONF_EXPECT_QUIET(&side.vcq);
    }
    side_close(&side);
}
