/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_room.c - an entry of a failure that was read makes room as any other does (3.7).
 */
#include "harness.h"

#define ENOUGH (1 << 20) /* operations that no TOQ has room for */

CONF_TEST("3.7", tcq_errors_make_room, 1,
          "reading the TCQ entries of operations that failed makes room for as many as before, again and again")
{
    struct conf_vcq vcq;
    utofu_stadd_t   gone;
    uint64_t        word = 0;
    uintptr_t       n, first = 0;

    conf_vcq_create(&vcq, 0, 0);
    gone = conf_reg(&vcq, &word, sizeof(word), 0);
    conf_dereg(&vcq, gone);
    for (int round = 0; round < 4; round++) {
        for (n = 0; n < ENOUGH; n++) {
            if (CONF_CODE(utofu_put(vcq.hdl, vcq.id, gone, gone, 8, 0, 0, CONF_PTR(n)), UTOFU_SUCCESS, UTOFU_ERR_BUSY) ==
                UTOFU_ERR_BUSY) {
                break;
            }
        }
        CONF_CHECK((n > 0) && (n < ENOUGH), "%zu operations were posted", (size_t)n);
        first = (round == 0) ? n : first;
        CONF_CHECK(n == first, "%zu operations were posted, at first %zu", (size_t)n, (size_t)first);
        for (uintptr_t i = 0; i < n; i++) {
            CONF_EXPECT_TCQ_ERROR(&vcq, CONF_PTR(i), UTOFU_ERR_TCQ_STADD, UTOFU_ERR_TCQ_MEMORY);
        }
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7", mrq_errors_make_room, 1, "reading the MRQ notices of operations that failed makes room, too")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           gone;
    uint64_t                word = 0;

    CONF_CHECK(setenv("UTOFU_NUM_MRQ_ENTRIES", "2048", 1) == 0, "setenv");
    conf_vcq_create(&vcq, 0, 0);
    gone = conf_reg(&vcq, &word, sizeof(word), 0);
    conf_dereg(&vcq, gone);
    for (int round = 0; round < 8; round++) {
        for (unsigned i = 0; i < 1000; i++) {
            CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 1, gone, 8, i % 256, 0, NULL));
        }
        for (unsigned i = 0; i < 1000; i++) {
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_MEMORY);
            CONF_CHECK(notice.edata == i % 256, "EDATA of error %u", i);
        }
    }
    conf_vcq_close(&vcq);
}
