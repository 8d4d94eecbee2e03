/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_piggyback.c - what is refused of a put to a peer that was written to before (3.1.2.1, 3.7.1): a library
 * may have a shorter way for these.
 */
#include "harness.h"

#include <inttypes.h>

CONF_TEST("3.1.2.1", piggyback_over_the_end, 2,
          "piggyback puts of whole words that cross the end of a region, or begin there, are MRQ_RMT_LENGTH or "
          "MRQ_RMT_STADD errors, also on a way that was used before, and write nothing")
{
    enum { SIZE = 256 };
    struct conf_mem         mem;
    struct conf_vcq         vcq;
    struct utofu_mrq_notice n;
    utofu_stadd_t           stadds[2];
    uint64_t                data[4] = {1, 2, 3, 4};
    int                     i, kind;

    conf_need_exact_bounds();
    for (kind = 0; kind < 2; kind++) {
        conf_mem_alloc(&mem, kind ? CONF_MEM_MEMFD : CONF_MEM_MALLOC, 2 * SIZE);
        memset(mem.addr, 0x3c, 2 * SIZE);
        conf_vcq_open(&vcq, 0, 0);
        conf_reg_all(&vcq, mem.addr, SIZE, stadds);
        for (i = 0; (i < 6) && (conf_rank == 0); i++) {
            unsigned long flags = (i % 2) ? CONF_RMRQ : 0;
            utofu_stadd_t end   = stadds[1] + SIZE;

            /* a good one before, so that nothing is new to the library */
            CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[1], UINT64_C(0x3c3c3c3c3c3c3c3c), stadds[1], 8, 7,
                                                    CONF_LMRQ | flags, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 7, NULL);
            CONF_OK((i / 2 == 0) ? utofu_put_piggyback(vcq.hdl, vcq.peer[1], data, end - 8, 16, 9, flags, NULL) :
                    (i / 2 == 1) ? utofu_put_piggyback(vcq.hdl, vcq.peer[1], data, end - 24, 32, 9, flags, NULL) :
                                   utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 5, end, 8, 9, flags, NULL));
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &n), UTOFU_ERR_MRQ_RMT_LENGTH, UTOFU_ERR_MRQ_RMT_STADD);
            CONF_CHECK(n.rmt_stadd == end + 8, "rmt_stadd of the failed one: 0x%" PRIx64, n.rmt_stadd);
        }
        conf_barrier();
        CONF_CHECK_BYTES(mem.addr, 2 * SIZE, 0x3c, "memory of failed operations");
        conf_barrier();
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_vcq_close(&vcq);
        conf_mem_free(&mem);
    }
}

CONF_TEST("3.1.2.1", edata_known_way, 2, "too much EDATA is INVALID_EDATA on a way that was used before, too")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[2];
    uint64_t        word = 0, data[2] = {0};

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &word, 8, stadds);
    if (conf_rank == 0) {
        for (int i = 0; i < 2; i++) {
            unsigned long flags = i ? CONF_RMRQ : 0;

            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 1, stadds[1], 8, 255, flags, NULL));
            CONF_CODE(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 2, stadds[1], 8, 256, flags, NULL),
                      UTOFU_ERR_INVALID_EDATA);
            CONF_CODE(utofu_put_piggyback(vcq.hdl, vcq.peer[1], data, stadds[1], 8, 256, flags, NULL),
                      UTOFU_ERR_INVALID_EDATA);
            CONF_CODE(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], 8, 256, flags, NULL),
                      UTOFU_ERR_INVALID_EDATA);
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7.1.1", busy_without_tcq_notice, 2,
          "BUSY as well for a put that asks for a remote notice only, or for none, to a peer that is known")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[2];
    uint64_t        words[2] = {0, 0}, nine = 9;
    int             i;

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, 16, stadds);
    if (conf_rank == 0) {
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 0, stadds[1], 8, 0, CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 0, NULL);
        while (CONF_CODE(utofu_nop(vcq.hdl, 0, NULL), UTOFU_SUCCESS, UTOFU_ERR_BUSY) == UTOFU_SUCCESS) {
        }
        words[1] = 9;
        for (i = 0; i < 2; i++) {
            unsigned long flags = i ? CONF_RMRQ : 0;

            CONF_CODE(utofu_put(vcq.hdl, vcq.peer[1], stadds[0] + 8, stadds[1], 8, 0, flags, NULL), UTOFU_ERR_BUSY);
            CONF_CODE(utofu_put_piggyback(vcq.hdl, vcq.peer[1], &nine, stadds[1], 8, 0, flags, NULL), UTOFU_ERR_BUSY);
            CONF_CODE(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 9, stadds[1], 8, 0, flags, NULL), UTOFU_ERR_BUSY);
        }
    }
    conf_barrier();
    CONF_CHECK(conf_rank == 0 || words[0] == 0, "a refused put was done");
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
