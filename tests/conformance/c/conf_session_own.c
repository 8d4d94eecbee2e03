/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_session_own.c - what a session-mode VCQ's own puts report, once they are started: the same as in free mode
 * (2.2.8.1, 3.1.2.1, 3.7.6.1).
 */
#include "harness.h"

#include <inttypes.h>

#define SESSION UTOFU_VCQ_FLAG_SESSION_MODE
#define SPS(_n) UTOFU_ONESIDED_FLAG_SPS(_n)
#define SIZE    256

struct session {
    struct conf_vcq vcq, to, starter; /* of one process; `to` is a free-mode VCQ */
    unsigned char  *lcl, *rmt;
    struct conf_mem mem[2];
    utofu_stadd_t   from, from_ro, at, at_ro, start, word;
};

static void session_open(struct session *s)
{
    if (!conf_is_emulator() && !(conf_caps()->flags & UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE)) {
        conf_skip("no session mode here");
    }
    conf_vcq_create(&s->vcq, 0, SESSION);
    conf_vcq_create(&s->to, 1, 0);
    conf_vcq_create(&s->starter, 2, 0);
    conf_mem_alloc(&s->mem[0], CONF_MEM_ANON, SIZE);
    conf_mem_alloc(&s->mem[1], CONF_MEM_ANON, SIZE);
    s->lcl = s->mem[0].addr;
    s->rmt = s->mem[1].addr;
    conf_fill(s->lcl, SIZE, 1);
    memset(s->rmt, 0x55, SIZE);
    s->from    = conf_reg(&s->vcq, s->lcl, SIZE, 0);
    s->from_ro = conf_reg(&s->vcq, s->lcl, SIZE, UTOFU_REG_MEM_FLAG_READ_ONLY);
    s->at      = conf_reg(&s->to, s->rmt, SIZE, 0);
    s->at_ro   = conf_reg(&s->to, s->rmt, SIZE, UTOFU_REG_MEM_FLAG_READ_ONLY);
    s->start   = conf_reg(&s->starter, s->lcl, 8, 0);
    s->word    = s->from + SIZE - 8;
}

/* A put from another VCQ starts so many. */
static void start(struct session *s, unsigned n)
{
    CONF_OK(utofu_put(s->starter.hdl, s->vcq.id, s->start, s->word, 8, 77, CONF_LMRQ | SPS(n), NULL));
    CONF_EXPECT_MRQ(&s->starter, UTOFU_MRQ_TYPE_LCL_PUT, s->vcq.id, 77, NULL);
}

static void session_close(struct session *s)
{
    CONF_EXPECT_QUIET(&s->vcq);
    CONF_EXPECT_QUIET(&s->to);
    conf_vcq_close(&s->starter);
    conf_vcq_close(&s->vcq);
    conf_vcq_close(&s->to);
    conf_mem_free(&s->mem[0]);
    conf_mem_free(&s->mem[1]);
}

CONF_TEST("2.2.8.1", session_own_notices, 1,
          "the notices of a session-mode VCQ's own put, from READ_ONLY memory and by a path of its own, are those "
          "of a put: the target's and the local one with the default path, the TCQ's with its cbdata")
{
    const uint8_t           path[3] = {1, 1, 0};
    struct utofu_mrq_notice notice;
    struct session          s;
    utofu_vcq_id_t          to;

    session_open(&s);
    for (int way = 0; way < 2; way++) {
        to = s.to.id;
        if (way == 1) {
            CONF_OK(utofu_set_vcq_id_path(&to, (uint8_t *)(uintptr_t)path));
        }
        memset(s.rmt, 0x55, SIZE);
        CONF_OK(utofu_put(s.vcq.hdl, to, s.from_ro + 16, s.at + 8, 24, 5, CONF_TCQ | CONF_LMRQ | CONF_RMRQ, CONF_PTR(6)));
        start(&s, 1);
        CONF_EXPECT_TCQ(&s.vcq, CONF_PTR(6));
        CONF_EXPECT_MRQ(&s.vcq, UTOFU_MRQ_TYPE_LCL_PUT, s.to.id, 5, &notice);
        CONF_CHECK(notice.vcq_id == s.to.id, "the VCQ ID %" PRIx64 " has another path", (uint64_t)notice.vcq_id);
        CONF_CHECK(notice.rmt_stadd == s.at + 32, "the end of the data: %" PRIx64, (uint64_t)notice.rmt_stadd);
        CONF_EXPECT_MRQ(&s.to, UTOFU_MRQ_TYPE_RMT_PUT, s.vcq.id, 5, &notice);
        CONF_CHECK(notice.rmt_stadd == s.at + 32, "the end of the data at the target: %" PRIx64,
                   (uint64_t)notice.rmt_stadd);
        CONF_CHECK(memcmp(s.rmt + 8, s.lcl + 16, 24) == 0, "the data");
        CONF_CHECK_BYTES(s.rmt + 32, SIZE - 32, 0x55, "behind the data");
    }
    session_close(&s);
}

CONF_TEST("2.2.8.1", session_own_errors, 1,
          "the errors of a session-mode VCQ's own puts, asked for or not, are those of a put: TCQ_STADD and "
          "TCQ_LENGTH with the cbdata, MRQ_RMT_STADD, MRQ_RMT_LENGTH, and a READ_ONLY target is not written; those behind "
          "them are done")
{
    static const unsigned long flags[] = {0, CONF_TCQ | CONF_LMRQ | CONF_RMRQ};
    struct utofu_mrq_notice    notice;
    struct session             s;
    utofu_stadd_t              gone_here, gone;
    utofu_vcq_hdl_t            hdl;
    utofu_vcq_id_t             to;

    conf_need_exact_bounds();
    session_open(&s);
    hdl       = s.vcq.hdl;
    to        = s.to.id;
    gone_here = conf_reg(&s.vcq, &s, 64, 0);
    gone      = conf_reg(&s.to, &s, 64, 0);
    conf_dereg(&s.vcq, gone_here);
    conf_dereg(&s.to, gone);
    for (size_t i = 0; i < CONF_LEN(flags); i++) {
        CONF_OK(utofu_put(hdl, to, gone_here, s.at, 8, 1, flags[i], CONF_PTR(1)));
        CONF_OK(utofu_put(hdl, to, s.from + SIZE - 4, s.at, 8, 2, flags[i], CONF_PTR(2)));
        start(&s, 2);
        CONF_EXPECT_TCQ_ERROR(&s.vcq, CONF_PTR(1), UTOFU_ERR_TCQ_STADD, UTOFU_ERR_TCQ_MEMORY);
        CONF_EXPECT_TCQ_ERROR(&s.vcq, CONF_PTR(2), UTOFU_ERR_TCQ_LENGTH);
        for (int way = 0; way < 3; way++) {
            utofu_stadd_t bad = (way == 0) ? gone : (way == 1) ? s.at + SIZE - 4 : s.at_ro;

            CONF_OK(utofu_put(hdl, to, s.from, bad, 8, 3, flags[i], CONF_PTR(3)));
            CONF_OK(utofu_put(hdl, to, s.from, s.at, 0, 4, CONF_LMRQ, NULL));
            start(&s, 2);
            memset(&notice, 0, sizeof(notice));
            if (way == 0) {
                CONF_CODE(CONF_WAIT_MRQ(&s.vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_MEMORY);
            } else if (way == 1) {
                CONF_CODE(CONF_WAIT_MRQ(&s.vcq, &notice), UTOFU_ERR_MRQ_RMT_LENGTH);
            } else {
                CONF_CODE(CONF_WAIT_MRQ(&s.vcq, &notice), UTOFU_ERR_MRQ_OTHER, UTOFU_ERR_MRQ_RMT_MEMORY,
                          UTOFU_ERR_MRQ_RMT_STADD);
            }
            conf_check_notice(__FILE__, __LINE__, &notice, UTOFU_MRQ_TYPE_LCL_PUT, to, 3);
            CONF_CHECK(notice.rmt_stadd == bad + 8, "the remote STADD of the error: %" PRIx64, (uint64_t)notice.rmt_stadd);
            CONF_EXPECT_MRQ(&s.vcq, UTOFU_MRQ_TYPE_LCL_PUT, to, 4, NULL);
            if (flags[i] != 0) {
                CONF_EXPECT_TCQ(&s.vcq, CONF_PTR(3));
            }
        }
        CONF_CHECK_BYTES(s.rmt, SIZE, 0x55, "what no put may write");
    }
    session_close(&s);
}
