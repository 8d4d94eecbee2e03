/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_stats_work.c - work whose counts are known; test_stats.py reads what
 * UTOFU_EMU_STATS says of it.
 */
#include "harness.h"

#include <sys/mman.h>

CONF_TEST("stats", stats_known_work, 1, "known work for test_stats.py; the result does not depend on being counted")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    utofu_stadd_t           s;
    uint64_t                desc[16], *words;
    size_t                  size;
    void                   *cbdata;

    conf_vcq_create(&vcq, 2, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 65536);
    s     = conf_reg(&vcq, mem.addr, 65536, 0);
    words = (uint64_t *)(void *)mem.addr;
    for (int i = 0; i < 3; i++) {
        CONF_OK(utofu_put(vcq.hdl, vcq.id, s, s + 4096, 1000, 0, CONF_TCQ, NULL));
    }
    CONF_OK(utofu_put_stride(vcq.hdl, vcq.id, s, s + 8192, 16, 32, 4, 0, CONF_LMRQ, NULL));
    CONF_OK(utofu_put_piggyback(vcq.hdl, vcq.id, words, s + 512, 20, 0, CONF_RMRQ, NULL));
    CONF_OK(utofu_get(vcq.hdl, vcq.id, s, s + 4096, 500, 0, UTOFU_ONESIDED_FLAG_DELAY_START, NULL));
    CONF_OK(utofu_prepare_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 3, s + 1024, 0, 0, desc, &size));
    CONF_OK(utofu_post_toq(vcq.hdl, desc, size, NULL));
    CONF_OK(utofu_post_toq(vcq.hdl, desc, size, NULL));
    CONF_OK(utofu_nop(vcq.hdl, 0, NULL));
    CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.id, 1, s + 65536, 8, 0, 0, NULL)); /* beyond the end */
    CONF_CHECK(words[128] == 6, "%d", (int)words[128]);
    for (int i = 0; i < 3; i++) {
        CONF_OK(utofu_poll_tcq(vcq.hdl, 0, &cbdata));
    }
    CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    for (int i = 0; i < 6; i++) { /* 4 local, the error, 1 remote */
        CONF_CODE(utofu_poll_mrq(vcq.hdl, 0, &notice), UTOFU_SUCCESS, UTOFU_ERR_MRQ_RMT_STADD);
    }
    CONF_CODE(utofu_poll_mrq(vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    conf_vcq_close(&vcq);
}
