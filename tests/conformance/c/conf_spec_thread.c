/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_spec_thread.c - what threads may do at once without THREAD_SAFE, and next
 * to a VCQ that has it (2.5, 3.3.4.1).
 */
#include "harness.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

static _Atomic bool     stop_churn;
static atomic_uintptr_t churned;

static void *churn(void *arg)
{
    utofu_tni_id_t  tni = *(utofu_tni_id_t *)arg;
    utofu_vcq_hdl_t hdl;

    while (!atomic_load(&stop_churn)) {
        CONF_OK(utofu_create_vcq(tni, 0, &hdl));
        CONF_OK(utofu_free_vcq(hdl));
        atomic_fetch_add(&churned, 1);
    }
    return NULL;
}

CONF_TEST("2.5", create_while_another_communicates, 1,
          "one thread may create and free VCQs while another communicates and "
          "registers memory over a VCQ of the same CQ, without locks")
{
    enum { ROUNDS = 1500 };
    struct conf_vcq vcq;
    uint64_t        words[4] = {0, 0, 0, 0}, i;
    utofu_stadd_t   stadd, again;
    pthread_t       thread;
    double          end = conf_now() + CONF_WAIT;

    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    CONF_CHECK(pthread_create(&thread, NULL, churn, &vcq.tni) == 0,
               "pthread_create");
    /* on a busy machine the other thread may have to wait for a CPU */
    for (i = 1; (i <= ROUNDS) || ((atomic_load(&churned) == 0) && (conf_now() < end)); i++) {
        words[0] = i;
        again    = conf_reg(&vcq, words + 1, 8, 0);
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.id, stadd, again, 8, i % 256,
                                     CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, i % 256, NULL);
        CONF_CHECK(words[1] == i, "put %" PRIu64 " brought %" PRIu64, i,
                   words[1]);
        conf_dereg(&vcq, again);
    }
    atomic_store(&stop_churn, true);
    pthread_join(thread, NULL);
    CONF_CHECK(atomic_load(&churned) > 0, "no VCQ was created meanwhile");
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
}

struct answers {
    struct utofu_onesided_caps caps;
    utofu_vcq_id_t             id;
    utofu_vcq_id_t             path_id_of;
    utofu_path_id_t            path_id;
    uint8_t                    coords[6];
    uint8_t                    path[3];
    utofu_tni_id_t             tni;
    utofu_cq_id_t              cq;
    utofu_stadd_t              stadd;
    int                        versions[4];
};

static struct answers ask(utofu_vcq_hdl_t hdl)
{
    static uint8_t              path[3] = {1, 2, 1};
    struct utofu_onesided_caps *caps;
    struct answers              a;
    uint16_t                    extra;

    memset(&a, 0, sizeof(a));
    CONF_OK(utofu_query_onesided_caps(conf_tni(0), &caps));
    a.caps = *caps;
    CONF_OK(utofu_query_vcq_id(hdl, &a.id));
    a.path_id_of = a.id;
    CONF_OK(utofu_set_vcq_id_path(&a.path_id_of, path));
    CONF_OK(utofu_get_path_id(a.id, path, &a.path_id));
    CONF_OK(utofu_get_path_coords(a.id, a.path_id, a.path));
    CONF_OK(utofu_query_vcq_info(a.id, a.coords, &a.tni, &a.cq, &extra));
    CONF_OK(utofu_query_my_coords(a.coords));
    CONF_OK(utofu_query_stadd(a.id, 7, &a.stadd));
    utofu_query_tofu_version(&a.versions[0], &a.versions[1]);
    utofu_query_utofu_version(&a.versions[2], &a.versions[3]);
    return a;
}

static struct answers expected_answers;

static void *ask_often(void *arg)
{
    struct answers a;
    int            i;

    for (i = 0; i < 2000; i++) {
        a = ask(*(utofu_vcq_hdl_t *)arg);
        CONF_CHECK(memcmp(&a, &expected_answers, sizeof(a)) == 0,
                   "query %d gave something else than in one thread", i);
    }
    return NULL;
}

CONF_TEST("2.5", queries_in_threads, 1,
          "threads may call the queries of TNIs, VCQ IDs, paths, STADDs of "
          "STags, versions and coordinates at once")
{
    struct conf_vcq vcq;
    pthread_t       threads[4];
    size_t          i;

    conf_vcq_create(&vcq, 0, 0);
    expected_answers = ask(vcq.hdl);
    for (i = 0; i < CONF_LEN(threads); i++) {
        CONF_CHECK(pthread_create(&threads[i], NULL, ask_often, &vcq.hdl) == 0,
                   "pthread_create");
    }
    for (i = 0; i < CONF_LEN(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    conf_vcq_close(&vcq);
}

struct side_by_side {
    struct conf_vcq vcq;
    uint64_t        words[2];
    utofu_stadd_t   stadd;
};

static void *put_to_self(void *arg)
{
    struct side_by_side *s = arg;
    utofu_stadd_t        again;
    uint64_t             i;

    for (i = 1; i <= 3000; i++) {
        s->words[0] = i;
        again       = conf_reg(&s->vcq, &s->words[1], 8, 0);
        CONF_POST(s->vcq.hdl, utofu_put(s->vcq.hdl, s->vcq.id, s->stadd, again,
                                        8, i % 256, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&s->vcq, UTOFU_MRQ_TYPE_LCL_PUT, s->vcq.id, i % 256,
                        NULL);
        CONF_CHECK(s->words[1] == i, "put %" PRIu64 " brought %" PRIu64, i,
                   s->words[1]);
        conf_dereg(&s->vcq, again);
    }
    return NULL;
}

CONF_TEST("3.3.4.1", thread_safe_beside_plain, 1,
          "a THREAD_SAFE VCQ and another VCQ of the same CQ, made without the "
          "flag, can be used by two threads at once")
{
    struct side_by_side s[2];
    utofu_cq_id_t       cqs[2];
    utofu_tni_id_t      tni;
    uint8_t             coords[6];
    uint16_t            extra;
    pthread_t           threads[2];
    int                 i;

    memset(s, 0, sizeof(s));
    for (i = 0; i < 2; i++) {
        s[i].vcq.tni = conf_tni(0);
        CONF_OK(utofu_create_vcq_with_cmp_id(s[i].vcq.tni, i, (i == 0) ?
                                             UTOFU_VCQ_FLAG_THREAD_SAFE : 0,
                                             &s[i].vcq.hdl));
        CONF_OK(utofu_query_vcq_id(s[i].vcq.hdl, &s[i].vcq.id));
        CONF_OK(utofu_query_vcq_info(s[i].vcq.id, coords, &tni, &cqs[i],
                                     &extra));
        s[i].stadd = conf_reg(&s[i].vcq, &s[i].words[0], 8, 0);
    }
    CONF_CHECK(cqs[0] == cqs[1], "they are on CQs %d and %d", cqs[0], cqs[1]);
    for (i = 0; i < 2; i++) {
        CONF_CHECK(pthread_create(&threads[i], NULL, put_to_self, &s[i]) == 0,
                   "pthread_create");
    }
    for (i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    for (i = 0; i < 2; i++) {
        CONF_EXPECT_QUIET(&s[i].vcq);
        conf_dereg(&s[i].vcq, s[i].stadd);
        conf_vcq_close(&s[i].vcq);
    }
}
