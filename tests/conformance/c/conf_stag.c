/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_stag.c - memory registered under a chosen STag, whose STADD peers know
 * without asking (3.6.1.2, 3.6.1.3).
 */
#include "harness.h"

#include <inttypes.h>

CONF_TEST("3.6.1.2", stag_is_predictable, 2,
          "the STADD of a reserved STag is known from utofu_query_stadd before "
          "and after it was registered, here and at a peer, and does not "
          "depend on the memory")
{
    enum { SIZE = 8192 };
    unsigned        num_stags = conf_caps()->num_reserved_stags, stag;
    struct conf_vcq vcq, other;
    unsigned char  *a = aligned_alloc(4096, SIZE), *b = aligned_alloc(4096,
                                                                      SIZE);
    utofu_stadd_t   before, got, later, stadds[2];
    uint64_t        source = 99;
    utofu_stadd_t   lcl;

    memset(a, 0, SIZE);
    memset(b, 0, SIZE);
    conf_vcq_open(&vcq, 0, 0);
    conf_vcq_open(&other, 1, 0);
    lcl = conf_reg(&vcq, &source, sizeof(source), 0);
    for (stag = 0; stag < num_stags; stag += 5) {
        CONF_OK(utofu_query_stadd(vcq.id, stag, &before));
        CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, a, SIZE, stag, 0, &got));
        CONF_CHECK(got == before, "STag %u: 0x%" PRIx64 ", predicted 0x%" PRIx64,
                   stag, got, before);
        conf_exchange(&got, sizeof(got), stadds);
        CONF_OK(utofu_query_stadd(vcq.peer[1 - conf_rank], stag, &later));
        CONF_CHECK(later == stadds[1 - conf_rank],
                   "STag %u of the peer: 0x%" PRIx64 ", it has 0x%" PRIx64,
                   stag, later, stadds[1 - conf_rank]);
        CONF_CHECK(stadds[0] == stadds[1], "STag %u depends on the process",
                   stag);
        if (conf_rank == 0) {
            conf_put_word(&vcq, vcq.peer[1], lcl, later + stag * 8);
        }
        conf_barrier();
        CONF_CHECK((conf_rank == 0) || (*(uint64_t *)(a + stag * 8) == 99),
                   "a put to STag %u did not arrive", stag);
        conf_dereg(&vcq, got);
        CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, b, 256, stag,
                                        UTOFU_REG_MEM_FLAG_READ_ONLY, &later));
        CONF_CHECK(later == got, "STag %u depends on the memory", stag);
        CONF_OK(utofu_reg_mem_with_stag(other.hdl, b, 512, stag, 0, &later));
        CONF_CHECK(later == got, "STag %u depends on the VCQ", stag);
        conf_dereg(&vcq, got);
        conf_dereg(&other, later);
    }
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
    conf_vcq_close(&other);
    free(a);
    free(b);
}

CONF_TEST("3.6.1.2", all_stags_at_once, 2,
          "all reserved STags of a VCQ can be in use at once, each with its "
          "own memory; one in use is USED; ordinary registrations go on")
{
    unsigned        n = conf_caps()->num_reserved_stags, stag;
    struct conf_vcq vcq;
    unsigned char  *bytes = aligned_alloc(4096, n * 256);
    utofu_stadd_t   stadd, lcl, extra;
    uint64_t        source;

    memset(bytes, 0, n * 256);
    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, &source, sizeof(source), 0);
    for (stag = 0; stag < n; stag++) {
        CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, bytes + stag * 256, 256, stag,
                                        0, &stadd));
    }
    for (stag = 0; stag < n; stag++) {
        CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes, 256, stag, 0, &stadd),
                  UTOFU_ERR_USED);
    }
    extra = conf_reg(&vcq, bytes, 100, 0);
    conf_barrier();
    for (stag = 0; (stag < n) && (conf_rank == 0); stag++) {
        source = stag + 1;
        CONF_OK(utofu_query_stadd(vcq.peer[1], stag, &stadd));
        conf_put_word(&vcq, vcq.peer[1], lcl, stadd + 248);
    }
    conf_barrier();
    for (stag = 0; (stag < n) && (conf_rank == 1); stag++) {
        CONF_CHECK(*(uint64_t *)(bytes + stag * 256 + 248) == stag + 1,
                   "STag %u has another memory", stag);
    }
    for (stag = 0; stag < n; stag++) {
        CONF_OK(utofu_query_stadd(vcq.id, stag, &stadd));
        conf_dereg(&vcq, stadd);
    }
    conf_dereg(&vcq, extra);
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
    free(bytes);
}

CONF_TEST("3.6.1.2", stag_arguments, 1,
          "address and size must be multiples of stag_address_alignment, the "
          "STag below num_reserved_stags")
{
    size_t          alignment = conf_caps()->stag_address_alignment;
    unsigned        n         = conf_caps()->num_reserved_stags;
    struct conf_vcq vcq;
    unsigned char  *bytes = aligned_alloc(4096, 8192);
    utofu_stadd_t   stadd;

    conf_vcq_create(&vcq, 0, 0);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes + 1, alignment, 0, 0,
                                      &stadd), UTOFU_ERR_INVALID_ADDRESS);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes + alignment / 2, alignment,
                                      0, 0, &stadd), UTOFU_ERR_INVALID_ADDRESS);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes, alignment + 1, 0, 0,
                                      &stadd), UTOFU_ERR_INVALID_SIZE);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes, alignment + alignment / 2, 0, 0, &stadd),
              UTOFU_ERR_INVALID_SIZE);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes, 0, 0, 0, &stadd),
              UTOFU_ERR_INVALID_SIZE);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes, alignment, n, 0, &stadd),
              UTOFU_ERR_INVALID_STAG);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes, alignment, UINT32_MAX, 0,
                                      &stadd), UTOFU_ERR_INVALID_STAG);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes, alignment, 0, 2, &stadd),
              UTOFU_ERR_INVALID_FLAGS);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, bytes, alignment, 0, 0, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_reg_mem_with_stag(vcq.hdl, NULL, alignment, 0, 0, &stadd),
              UTOFU_ERR_INVALID_POINTER, UTOFU_ERR_INVALID_ADDRESS);
    CONF_CODE(utofu_query_stadd(vcq.id, n, &stadd), UTOFU_ERR_INVALID_STAG);
    CONF_CODE(utofu_query_stadd(vcq.id, 0, NULL), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_stadd(UINT64_MAX, 0, &stadd),
              UTOFU_ERR_INVALID_VCQ_ID);
    /* Nothing of this took the STag. */
    CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, bytes, alignment, 0, 0, &stadd));
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
    free(bytes);
}
