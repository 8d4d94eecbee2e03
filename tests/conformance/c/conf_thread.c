/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_thread.c - which functions several threads may call at once (2.5,
 * 3.3.4.1).
 */
#include "harness.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define PER     2000 /* operations of one thread */

struct worker {
    pthread_t       thread;
    int             index;
    struct conf_vcq vcq;
    utofu_stadd_t   lcl;
    utofu_stadd_t   rmt;
    uint64_t       *words; /* source, one per thread */
    uint64_t        sum;
};

static void run_workers(struct worker *workers, void *(*run)(void *))
{
    int i;

    for (i = 0; i < THREADS; i++) {
        workers[i].index = i;
        CONF_CHECK(pthread_create(&workers[i].thread, NULL, run,
                                  &workers[i]) == 0, "pthread_create");
    }
    for (i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
    }
}

/* ---------------------------------------------------- one thread-safe VCQ */

static _Atomic uint32_t tcq_seen[THREADS][PER];
static _Atomic uint32_t mrq_seen[256];
static _Atomic uint32_t num_tcq, num_mrq;

/* Takes whatever the TCQ and MRQ have, of any thread. */
static void reap(struct worker *w)
{
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    uintptr_t               n;

    if (CONF_CODE(utofu_poll_tcq(w->vcq.hdl, 0, &cbdata), UTOFU_SUCCESS,
                  UTOFU_ERR_NOT_FOUND) == UTOFU_SUCCESS) {
        n = (uintptr_t)cbdata - 1;
        CONF_CHECK(n < THREADS * PER, "cbdata %p was never given", cbdata);
        atomic_fetch_add(&tcq_seen[n / PER][n % PER], 1);
        atomic_fetch_add(&num_tcq, 1);
    }
    if (CONF_CODE(utofu_poll_mrq(w->vcq.hdl, 0, &notice), UTOFU_SUCCESS,
                  UTOFU_ERR_NOT_FOUND) == UTOFU_SUCCESS) {
        CONF_CHECK(notice.vcq_id == w->vcq.peer[1], "peer of a notice");
        CONF_CHECK(notice.notice_type == UTOFU_MRQ_TYPE_LCL_PUT,
                   "type %d of a notice", notice.notice_type);
        CONF_CHECK(notice.rmt_stadd % 8 == w->rmt % 8, "rmt_stadd");
        atomic_fetch_add(&mrq_seen[notice.edata & 255], 1);
        atomic_fetch_add(&num_mrq, 1);
    }
}

static void *shared_vcq_worker(void *arg)
{
    struct worker *w = arg;
    double         end = conf_now() + 20;
    uint64_t       value;
    int            i, rc;

    for (i = 0; i < PER; i++) {
        value = (uint64_t)w->index << 32 | (i + 1);
        do {
            rc = utofu_put_piggyback8(w->vcq.hdl, w->vcq.peer[1], value,
                                      w->rmt + (w->index * PER + i) * 8, 8,
                                      w->index * 50 + i % 50,
                                      CONF_TCQ | CONF_LMRQ | CONF_RMRQ,
                                      CONF_PTR(w->index * PER + i + 1));
            CONF_CODE(rc, UTOFU_SUCCESS, UTOFU_ERR_BUSY);
            reap(w);
        } while (rc != UTOFU_SUCCESS);
        if (i % 100 == 0) {
            /* Registration on the same VCQ meanwhile. */
            utofu_stadd_t stadd = conf_reg(&w->vcq, &value, sizeof(value), 0);
            conf_dereg(&w->vcq, stadd);
        }
    }
    while (((atomic_load(&num_tcq) < THREADS * PER) ||
            (atomic_load(&num_mrq) < THREADS * PER)) && (conf_now() < end)) {
        reap(w);
    }
    return NULL;
}

/* cmp_id: -1, or what the VCQ is created with */
static void thread_safe(unsigned long flags, int cmp_id)
{
    struct worker           workers[THREADS];
    struct utofu_mrq_notice notice;
    static uint64_t         words[THREADS * PER];
    utofu_stadd_t           stadds[2];
    struct conf_vcq         vcq;
    int                     last[THREADS], i, t;

    conf_timeout(60);
    if (cmp_id < 0) {
        conf_vcq_create(&vcq, 0, flags | UTOFU_VCQ_FLAG_THREAD_SAFE);
    } else {
        CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(0), (utofu_cmp_id_t)cmp_id, flags | UTOFU_VCQ_FLAG_THREAD_SAFE,
                                             &vcq.hdl));
        CONF_OK(utofu_query_vcq_id(vcq.hdl, &vcq.id));
    }
    conf_exchange(&vcq.id, sizeof(vcq.id), vcq.peer);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    if (conf_rank == 0) {
        for (t = 0; t < THREADS; t++) {
            workers[t].vcq = vcq;
            workers[t].rmt = stadds[1];
        }
        run_workers(workers, shared_vcq_worker);
        CONF_CHECK((num_tcq == THREADS * PER) && (num_mrq == THREADS * PER),
                   "%u TCQ entries and %u notices of %d", num_tcq, num_mrq,
                   THREADS * PER);
        for (i = 0; i < THREADS * PER; i++) {
            CONF_CHECK(tcq_seen[i / PER][i % PER] == 1,
                       "cbdata of operation %d came %u times", i,
                       tcq_seen[i / PER][i % PER]);
        }
        for (i = 0; i < THREADS * 50; i++) {
            CONF_CHECK(mrq_seen[i] == PER / 50, "EDATA %d came %u times", i,
                       mrq_seen[i]);
        }
    }
    conf_barrier();
    if (conf_rank == 1) {
        memset(last, 0, sizeof(last));
        for (i = 0; i < THREADS * PER; i++) {
            CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
            t = notice.edata / 50;
            CONF_CHECK((t < THREADS) &&
                               (notice.edata % 50 == (uint64_t)last[t] % 50),
                       "puts of thread %d are out of order", t);
            CONF_CHECK(notice.rmt_stadd ==
                               stadds[1] + (t * PER + last[t] + 1) * 8,
                       "rmt_stadd of put %d of thread %d", last[t], t);
            last[t]++;
        }
        for (i = 0; i < THREADS * PER; i++) {
            CONF_CHECK(words[i] == ((uint64_t)(i / PER) << 32 | (i % PER + 1)),
                       "word %d is 0x%" PRIx64, i, words[i]);
        }
    }
    CONF_EXPECT_QUIET(&vcq);
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.3.4.1", thread_safe_vcq, 2,
          "several threads may post, poll and register on one THREAD_SAFE VCQ "
          "at once: nothing is lost, doubled or mixed up")
{
    thread_safe(0, -1);
}

CONF_TEST("3.3.4.1", thread_safe_cmp_id, 2, "the same of one that is created with a component ID")
{
    thread_safe(0, conf_rank);
}

CONF_TEST("3.3.4.1", thread_safe_exclusive, 2, "the same of an EXCLUSIVE one")
{
    CONF_CHECK(setenv("UTOFU_NUM_EXCLUSIVE_CQS", "1", 1) == 0, "setenv");
    thread_safe(UTOFU_VCQ_FLAG_EXCLUSIVE, -1);
}

/* ---------------------------------------------------- one VCQ per thread */

static void *own_vcq_worker(void *arg)
{
    struct worker          *w = arg;
    struct utofu_mrq_notice notice;
    int                     i;

    for (i = 0; i < PER; i++) {
        *w->words = (uint64_t)w->index << 32 | (i + 1);
        CONF_OK(utofu_put(w->vcq.hdl, w->vcq.peer[1], w->lcl, w->rmt + i * 8, 8,
                          i % 256, CONF_TCQ | CONF_LMRQ, CONF_PTR(i)));
        CONF_EXPECT_TCQ(&w->vcq, CONF_PTR(i));
        CONF_EXPECT_MRQ(&w->vcq, UTOFU_MRQ_TYPE_LCL_PUT, w->vcq.peer[1],
                        i % 256, NULL);
        CONF_OK(utofu_armw8(w->vcq.hdl, w->vcq.peer[1], UTOFU_ARMW_OP_ADD, 1,
                            w->rmt + PER * 8, 0, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&w->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, w->vcq.peer[1], 0,
                        &notice);
        w->sum += notice.rmt_value;
        if (i % 200 == 0) {
            conf_dereg(&w->vcq, w->lcl);
            w->lcl = conf_reg(&w->vcq, w->words, 8, 0);
        }
        if (i % 16 == 0) {
            void *cbdata;
            CONF_CODE(utofu_poll_tcq(w->vcq.hdl, 0, &cbdata),
                      UTOFU_ERR_NOT_FOUND);
        }
    }
    return NULL;
}

static void own_vcqs(unsigned long flags, bool one_tni)
{
    static uint64_t targets[THREADS][PER + 1];
    struct worker   workers[THREADS];
    utofu_stadd_t   stadds[2];
    uint64_t        source[THREADS];
    int             t, i;

    conf_timeout(60);
    CONF_CHECK(setenv("UTOFU_NUM_EXCLUSIVE_CQS", "4", 1) == 0, "setenv");
    memset(workers, 0, sizeof(workers));
    for (t = 0; t < THREADS; t++) {
        conf_vcq_open(&workers[t].vcq, one_tni ? 0 : t, flags);
        workers[t].words = &source[t];
        workers[t].lcl   = conf_reg(&workers[t].vcq, &source[t], 8, 0);
        conf_reg_all(&workers[t].vcq, targets[t], sizeof(targets[t]), stadds);
        workers[t].rmt = stadds[1];
    }
    conf_barrier();
    if (conf_rank == 0) {
        run_workers(workers, own_vcq_worker);
        for (t = 0; t < THREADS; t++) {
            CONF_CHECK(workers[t].sum == (uint64_t)PER * (PER - 1) / 2,
                       "old values of thread %d sum up to %" PRIu64, t,
                       workers[t].sum);
        }
    }
    conf_barrier();
    for (t = 0; t < THREADS; t++) {
        for (i = 0; (i < PER) && (conf_rank == 1); i++) {
            CONF_CHECK(targets[t][i] == ((uint64_t)t << 32 | (i + 1)),
                       "word %d of thread %d is 0x%" PRIx64, i, t,
                       targets[t][i]);
        }
        conf_vcq_close(&workers[t].vcq);
    }
}

CONF_TEST("3.3.4.1", exclusive_vcqs_in_threads, 2,
          "threads with an EXCLUSIVE VCQ each, on one TNI, run in parallel "
          "without locks of their own")
{
    own_vcqs(UTOFU_VCQ_FLAG_EXCLUSIVE, true);
}

CONF_TEST("2.5", vcqs_of_tnis_in_threads, 2,
          "threads with a VCQ each on different TNIs, hence different CQs, run "
          "in parallel")
{
    own_vcqs(0, false);
}

CONF_TEST("3.3.4.1", thread_safe_vcqs_of_one_cq, 2,
          "threads with a THREAD_SAFE VCQ each on one TNI run in parallel, "
          "also when the VCQs share a CQ")
{
    own_vcqs(UTOFU_VCQ_FLAG_THREAD_SAFE, true);
}

/* --------------------------------------------------- managing in parallel */

static void *managing_worker(void *arg)
{
    struct worker              *w = arg;
    struct utofu_onesided_caps *caps;
    utofu_vcq_hdl_t             hdl;
    utofu_vcq_id_t              id, built;
    utofu_tni_id_t              tni, *ids;
    utofu_cq_id_t               cq;
    utofu_path_id_t             path_id;
    uint16_t                    extra;
    uint8_t                     coords[6];
    size_t                      num;
    int                         i;

    for (i = 0; i < 300; i++) {
        CONF_OK(utofu_get_onesided_tnis(&ids, &num));
        CONF_OK(utofu_query_onesided_caps(ids[i % num], &caps));
        CONF_OK(utofu_create_vcq(ids[(w->index + i) % num], 0, &hdl));
        CONF_OK(utofu_query_vcq_id(hdl, &id));
        CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
        CONF_CHECK(tni == ids[(w->index + i) % num], "TNI %d", tni);
        CONF_OK(utofu_construct_vcq_id(coords, tni, cq, i % 8, &built));
        CONF_OK(utofu_get_path_id(id, NULL, &path_id));
        CONF_OK(utofu_free_vcq(hdl));
        free(ids);
    }
    return NULL;
}

CONF_TEST("2.5", managing_in_threads, 1,
          "threads may create, query and free VCQs at once, from the first "
          "call of the process on")
{
    struct worker workers[THREADS];

    run_workers(workers, managing_worker);
}
