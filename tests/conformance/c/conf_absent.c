/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_absent.c - functions of the API that a library may not support yet:
 * where it says so by UTOFU_ERR_NOT_SUPPORTED it says so for every valid call,
 * and has then done nothing.
 */
#include "harness.h"

static uint64_t words[64];
static uint64_t desc[64]; /* room for 8 descriptors of 64 bytes */

/* A library that supports a function has tests of its own for it. */
#define ABSENT(_call) CONF_CODE(_call, UTOFU_ERR_NOT_SUPPORTED)

CONF_TEST("3.7.1.2", gap_and_stride_absent, 1,
          "the put and get functions with gap and stride are all there and "
          "answer NOT_SUPPORTED to valid calls")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;
    size_t          count;

    memset(words, 0x5a, sizeof(words));
    conf_vcq_create(&vcq, 0, 0);
    s = conf_reg(&vcq, words, sizeof(words), 0);
#define COMMON vcq.hdl, vcq.id, s, s + 256, 8
    ABSENT(utofu_put_gap(COMMON, 0, CONF_TCQ, 1920, 0, NULL));
    ABSENT(utofu_get_gap(COMMON, 0, CONF_TCQ, 1920, 8, NULL));
    ABSENT(utofu_put_stride(COMMON, 16, 4, 0, CONF_TCQ, NULL));
    ABSENT(utofu_get_stride(COMMON, 16, 4, 0, CONF_TCQ, NULL));
    ABSENT(utofu_put_stride_gap(COMMON, 16, 4, 0, CONF_TCQ, 1920, 0, NULL));
    ABSENT(utofu_get_stride_gap(COMMON, 16, 4, 0, CONF_TCQ, 1920, 0, NULL));
    CONF_EXPECT_QUIET(&vcq);
    CONF_OK(utofu_query_num_unread_tcq(vcq.hdl, &count));
    CONF_CHECK(count == 0, "%zu TOQ entries are in use", count);
    CONF_CHECK_BYTES(words, sizeof(words), 0x5a, "memory");
    conf_dereg(&vcq, s);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7.2", prepare_and_post_toq_absent, 1,
          "the prepare functions and utofu_post_toq are all there and answer "
          "NOT_SUPPORTED to valid calls")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;
    size_t          size;

    memset(words, 0x5a, sizeof(words));
    memset(desc, 0x5a, sizeof(desc));
    conf_vcq_create(&vcq, 0, 0);
    s = conf_reg(&vcq, words, sizeof(words), 0);
#define ARMW  vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 1, s, 0, CONF_TCQ
#define CSWAP vcq.hdl, vcq.id, 0, 1, s, 0, CONF_TCQ
#define DESC  desc, &size
    ABSENT(utofu_prepare_put(COMMON, 0, CONF_TCQ, DESC));
    ABSENT(utofu_prepare_put_gap(COMMON, 0, CONF_TCQ, 1920, 0, DESC));
    ABSENT(utofu_prepare_put_stride(COMMON, 16, 4, 0, CONF_TCQ, DESC));
    ABSENT(utofu_prepare_put_stride_gap(COMMON, 16, 4, 0, CONF_TCQ, 1920, 0,
                                        DESC));
    ABSENT(utofu_prepare_put_piggyback(vcq.hdl, vcq.id, words, s + 256, 8, 0,
                                       CONF_TCQ, DESC));
    ABSENT(utofu_prepare_put_piggyback8(vcq.hdl, vcq.id, 1, s + 256, 8, 0,
                                        CONF_TCQ, DESC));
    ABSENT(utofu_prepare_get(COMMON, 0, CONF_TCQ, DESC));
    ABSENT(utofu_prepare_get_gap(COMMON, 0, CONF_TCQ, 1920, 0, DESC));
    ABSENT(utofu_prepare_get_stride(COMMON, 16, 4, 0, CONF_TCQ, DESC));
    ABSENT(utofu_prepare_get_stride_gap(COMMON, 16, 4, 0, CONF_TCQ, 1920, 0,
                                        DESC));
    ABSENT(utofu_prepare_armw4(ARMW, DESC));
    ABSENT(utofu_prepare_armw8(ARMW, DESC));
    ABSENT(utofu_prepare_cswap4(CSWAP, DESC));
    ABSENT(utofu_prepare_cswap8(CSWAP, DESC));
    ABSENT(utofu_prepare_nop(vcq.hdl, CONF_TCQ, DESC));
    ABSENT(utofu_post_toq(vcq.hdl, desc, 64, NULL));
    CONF_CHECK_BYTES(desc, sizeof(desc), 0x5a, "descriptors");
    CONF_EXPECT_QUIET(&vcq);
    conf_dereg(&vcq, s);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.3.4.1", session_mode_absent, 1,
          "SESSION_MODE VCQs answer NOT_SUPPORTED on every TNI")
{
    utofu_vcq_hdl_t hdl;
    size_t          i;

    for (i = 0; i < conf_num_tnis(); i++) {
        ABSENT(utofu_create_vcq(conf_tni(i), UTOFU_VCQ_FLAG_SESSION_MODE,
                                &hdl));
        ABSENT(utofu_create_vcq(conf_tni(i), UTOFU_VCQ_FLAG_SESSION_MODE |
                                UTOFU_VCQ_FLAG_THREAD_SAFE, &hdl));
    }
}

CONF_TEST("3.8", barrier_absent, 1,
          "the functions of VBGs, barriers and reductions are all there and "
          "answer NOT_SUPPORTED")
{
    struct utofu_vbg_setting setting;
    utofu_vbg_id_t           ids[2] = {0, 1};
    utofu_tni_id_t           tni;
    utofu_bg_id_t            bg;
    uint16_t                 extra;
    uint8_t                  coords[6];
    uint64_t                 values[6] = {0};
    double                   reals[3]  = {0};

    memset(&setting, 0, sizeof(setting));
    setting.vbg_id = ids[0];
    ABSENT(utofu_alloc_vbg(conf_tni(0), 2, 0, ids));
    ABSENT(utofu_set_vbg(&setting, 1));
    ABSENT(utofu_query_vbg_info(ids[0], coords, &tni, &bg, &extra));
    ABSENT(utofu_free_vbg(ids, 2));
    ABSENT(utofu_barrier(ids[0], 0));
    ABSENT(utofu_reduce_uint64(ids[0], UTOFU_REDUCE_OP_SUM, values, 6, 0));
    ABSENT(utofu_reduce_double(ids[0], UTOFU_REDUCE_OP_BFPSUM, reals, 3, 0));
    ABSENT(utofu_poll_barrier(ids[0], 0));
    ABSENT(utofu_poll_reduce_uint64(ids[0], 0, values));
    ABSENT(utofu_poll_reduce_double(ids[0], 0, reals));
}
