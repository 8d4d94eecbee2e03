/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_small_stack.c - the guide asks for no more of a thread's stack than the system does: all that programs call
 * works with the least that there is.
 */
#include "circuit.h"
#include "harness.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FACTOR 16 /* what sanitizers take for each variable */
#else
#define FACTOR 1
#endif

static _Alignas(8) char        block_static[10000];
static char                   *block_heap;
static struct utofu_mrq_notice notice;
static struct circuit          circuit;
static struct conf_vcq         shared; /* of both ranks, on block_static */
static utofu_stadd_t           all[2];

static void operations(struct conf_vcq *vcq, char *at)
{
    utofu_stadd_t stadd = conf_reg(vcq, at, 64, 0);

    CONF_POST(vcq->hdl, utofu_put(vcq->hdl, vcq->id, stadd, stadd + 32, 8, 3, CONF_LMRQ | CONF_RMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(vcq, &notice));
    CONF_OK(CONF_WAIT_MRQ(vcq, &notice));
    CONF_POST(vcq->hdl, utofu_get(vcq->hdl, vcq->id, stadd, stadd + 32, 8, 3, CONF_LMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(vcq, &notice));
    CONF_POST(vcq->hdl, utofu_armw8(vcq->hdl, vcq->id, UTOFU_ARMW_OP_ADD, 1, stadd, 3, CONF_LMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(vcq, &notice));
    conf_dereg(vcq, stadd);
}

static void to_the_peer(void)
{
    utofu_vcq_id_t peer = shared.peer[1 - conf_rank];
    utofu_stadd_t  own = all[conf_rank], to = all[1 - conf_rank];

    for (size_t size = 8; size <= 4096; size *= 8) {
        CONF_POST(shared.hdl, utofu_put(shared.hdl, peer, own, to, size, 3, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&shared, &notice));
        CONF_POST(shared.hdl, utofu_get(shared.hdl, peer, own, to, size, 3, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&shared, &notice));
    }
    CONF_POST(shared.hdl, utofu_armw8(shared.hdl, peer, UTOFU_ARMW_OP_ADD, 1, to, 3, CONF_LMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(&shared, &notice));
}

static void *calls(void *arg)
{
    static double   data[3] = {1, 2, 3};
    _Alignas(8) char own[64];
    struct conf_vcq vcq;

    conf_vcq_create(&vcq, 0, UTOFU_VCQ_FLAG_SESSION_MODE);
    conf_vcq_close(&vcq);
    conf_vcq_create(&vcq, 0, 0);
    operations(&vcq, block_heap + 104);
    operations(&vcq, block_static + 104);
    operations(&vcq, own);
    conf_vcq_close(&vcq);
    to_the_peer();
    CONF_OK(utofu_reduce_double(circuit.id[conf_rank][0], UTOFU_REDUCE_OP_BFPSUM, data, 3, 0));
    CONF_OK(circuit_wait_double(circuit.id[conf_rank][0], data));
    CONF_CHECK(data[2] == 6, "the sum is %g", data[2]);
    return arg;
}

CONF_TEST("limits", least_stack, 2, "a thread with the least stack that the system gives may call everything")
{
    pthread_attr_t attr;
    pthread_t      thread;

    CONF_CHECK((block_heap = malloc(10000)) != NULL, "malloc");
    plan_butterfly(&circuit.plan, 2);
    circuit_open(&circuit, 0, 0);
    conf_vcq_open(&shared, 1, 0);
    conf_reg_all(&shared, block_static + 4096, 4096, all);
    pthread_attr_init(&attr);
    CONF_CHECK(!pthread_attr_setstacksize(&attr, FACTOR * (size_t)PTHREAD_STACK_MIN), "pthread_attr_setstacksize");
    CONF_CHECK(!pthread_create(&thread, &attr, calls, NULL), "pthread_create");
    pthread_join(thread, NULL);
    conf_barrier();
    conf_dereg(&shared, all[conf_rank]);
    conf_vcq_close(&shared);
    circuit_close(&circuit);
    free(block_heap);
}
