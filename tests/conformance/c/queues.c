/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queues.c - VCQs, registrations, and waiting for what the TCQ and MRQ report.
 */
#include "harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static utofu_tni_id_t *tni_ids  = NULL;
static size_t          num_tnis = 0;

static void load_tnis(void)
{
    if (tni_ids == NULL) {
        CONF_OK(utofu_get_onesided_tnis(&tni_ids, &num_tnis));
        CONF_CHECK((num_tnis > 0) && (tni_ids != NULL),
                   "utofu_get_onesided_tnis: no TNI can be used");
    }
}

size_t conf_num_tnis(void)
{
    load_tnis();
    return num_tnis;
}

utofu_tni_id_t conf_tni(size_t index)
{
    load_tnis();
    return tni_ids[index % num_tnis];
}

const struct utofu_onesided_caps *conf_caps(void)
{
    struct utofu_onesided_caps *caps = NULL;

    CONF_OK(utofu_query_onesided_caps(conf_tni(0), &caps));
    return caps;
}

void conf_vcq_create(struct conf_vcq *vcq, size_t tni_index,
                     unsigned long flags)
{
    memset(vcq, 0, sizeof(*vcq));
    vcq->tni = conf_tni(tni_index);
    CONF_OK(utofu_create_vcq(vcq->tni, flags, &vcq->hdl));
    CONF_OK(utofu_query_vcq_id(vcq->hdl, &vcq->id));
}

void conf_vcq_open(struct conf_vcq *vcq, size_t tni_index, unsigned long flags)
{
    conf_vcq_create(vcq, tni_index, flags);
    conf_exchange(&vcq->id, sizeof(vcq->id), vcq->peer);
}

void conf_vcq_close(struct conf_vcq *vcq)
{
    CONF_OK(utofu_free_vcq(vcq->hdl));
    vcq->hdl = 0;
}

void conf_need_exact_bounds(void)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    utofu_stadd_t           stadd;
    int                     rc;

    conf_vcq_create(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_ANON, 4096);
    stadd = conf_reg(&vcq, mem.addr, 64, 0);
    CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.id, 1, stadd + 64, 8, 1, CONF_LMRQ, NULL));
    rc = CONF_WAIT_MRQ(&vcq, &notice);
    conf_dereg(&vcq, stadd);
    conf_mem_free(&mem);
    conf_vcq_close(&vcq);
    if (rc == UTOFU_SUCCESS) {
        conf_skip("the library takes a region for all of its pages");
    }
}

utofu_stadd_t conf_reg(const struct conf_vcq *vcq, void *addr, size_t size,
                       unsigned long flags)
{
    utofu_stadd_t stadd = 0;

    CONF_OK(utofu_reg_mem(vcq->hdl, addr, size, flags, &stadd));
    return stadd;
}

void conf_dereg(const struct conf_vcq *vcq, utofu_stadd_t stadd)
{
    CONF_OK(utofu_dereg_mem(vcq->hdl, stadd, 0));
}

utofu_stadd_t conf_reg_all(const struct conf_vcq *vcq, void *addr, size_t size,
                           utofu_stadd_t *stadds)
{
    utofu_stadd_t stadd = conf_reg(vcq, addr, size, 0);

    conf_exchange(&stadd, sizeof(stadd), stadds);
    return stadd;
}

int conf_wait_tcq(const char *file, int line, const struct conf_vcq *vcq,
                  void **cbdata)
{
    double   end   = conf_now() + CONF_WAIT;
    unsigned spins = 0;
    int      rc;

    conf_at(file, line, "waiting for a TCQ entry");
    while ((rc = utofu_poll_tcq(vcq->hdl, 0, cbdata)) == UTOFU_ERR_NOT_FOUND) {
        if (((spins % 256) == 0) && (conf_now() > end)) {
            conf_fail_at(file, line, "utofu_poll_tcq: no entry in %.0f s",
                         CONF_WAIT);
        }
        conf_relax(&spins);
    }
    return rc;
}

int conf_wait_mrq(const char *file, int line, const struct conf_vcq *vcq,
                  struct utofu_mrq_notice *notice)
{
    double   end   = conf_now() + CONF_WAIT;
    unsigned spins = 0;
    int      rc;

    conf_at(file, line, "waiting for an MRQ notice");
    while ((rc = utofu_poll_mrq(vcq->hdl, 0, notice)) == UTOFU_ERR_NOT_FOUND) {
        if (((spins % 256) == 0) && (conf_now() > end)) {
            conf_fail_at(file, line, "utofu_poll_mrq: no notice in %.0f s",
                         CONF_WAIT);
        }
        conf_relax(&spins);
    }
    return rc;
}

void conf_expect_tcq(const char *file, int line, const struct conf_vcq *vcq,
                     void *cbdata)
{
    void *got = NULL;
    int   rc  = conf_wait_tcq(file, line, vcq, &got);

    conf_check_code(file, line, "utofu_poll_tcq", rc,
                    (const int[]){UTOFU_SUCCESS}, 1);
    if (got != cbdata) {
        conf_fail_at(file, line, "utofu_poll_tcq: cbdata is %p, expected %p",
                     got, cbdata);
    }
}

void conf_check_notice(const char *file, int line,
                       const struct utofu_mrq_notice *notice, int type,
                       utofu_vcq_id_t peer, uint64_t edata)
{
    if (notice->notice_type != type) {
        conf_fail_at(file, line,
                     "utofu_poll_mrq: notice_type is %d, expected %d (EDATA "
                     "%" PRIu64 ")", notice->notice_type, type, notice->edata);
    }
    if (notice->vcq_id != peer) {
        conf_fail_at(file, line,
                     "utofu_poll_mrq: vcq_id is 0x%" PRIx64
                     ", expected 0x%" PRIx64, notice->vcq_id, peer);
    }
    if (notice->edata != edata) {
        conf_fail_at(file, line,
                     "utofu_poll_mrq: edata is %" PRIu64 ", expected %" PRIu64,
                     notice->edata, edata);
    }
}

void conf_expect_mrq(const char *file, int line, const struct conf_vcq *vcq,
                     int type, utofu_vcq_id_t peer, uint64_t edata,
                     struct utofu_mrq_notice *notice)
{
    struct utofu_mrq_notice got;
    int                     rc;

    memset(&got, 0xa5, sizeof(got));
    rc = conf_wait_mrq(file, line, vcq, &got);
    conf_check_code(file, line, "utofu_poll_mrq", rc,
                    (const int[]){UTOFU_SUCCESS}, 1);
    conf_check_notice(file, line, &got, type, peer, edata);
    if (notice != NULL) {
        *notice = got;
    }
}

void conf_expect_both(const char *file, int line, const struct conf_vcq *vcq,
                      utofu_vcq_id_t peer, uint64_t edata)
{
    static const int        types[] = {UTOFU_MRQ_TYPE_LCL_PUT,
                                       UTOFU_MRQ_TYPE_RMT_PUT};
    struct utofu_mrq_notice got;
    int                     rc, first, i;

    for (i = 0, first = 0; i < 2; i++) {
        memset(&got, 0xa5, sizeof(got));
        rc = conf_wait_mrq(file, line, vcq, &got);
        conf_check_code(file, line, "utofu_poll_mrq", rc,
                        (const int[]){UTOFU_SUCCESS}, 1);
        if ((i == 0) && (got.notice_type == types[1])) {
            first = 1;
        }
        conf_check_notice(file, line, &got, types[first ^ i], peer, edata);
    }
}

void conf_expect_quiet(const char *file, int line, const struct conf_vcq *vcq,
                       unsigned msec)
{
    double                  end = conf_now() + msec * 1e-3;
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    int                     rc;

    do {
        rc = utofu_poll_tcq(vcq->hdl, 0, &cbdata);
        conf_check_code(file, line, "utofu_poll_tcq (nothing is expected)", rc,
                        (const int[]){UTOFU_ERR_NOT_FOUND}, 1);
        rc = utofu_poll_mrq(vcq->hdl, 0, &notice);
        conf_check_code(file, line, "utofu_poll_mrq (nothing is expected)", rc,
                        (const int[]){UTOFU_ERR_NOT_FOUND}, 1);
        usleep(200);
    } while (conf_now() < end);
}

void conf_put_word(const struct conf_vcq *vcq, utofu_vcq_id_t id,
                   utofu_stadd_t lcl, utofu_stadd_t rmt)
{
    CONF_POST(vcq->hdl,
              utofu_put(vcq->hdl, id, lcl, rmt, 8, 1, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_PUT, id, 1, NULL);
}
