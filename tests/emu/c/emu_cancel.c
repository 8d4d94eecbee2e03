/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_cancel.c - a thread that is cancelled is not cancelled within a call, where it would have a lock for ever; and a
 * thread with little of a stack has enough.
 */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static struct conf_vcq vcq;
static utofu_stadd_t   stadd;
static bool            returned;

static struct {
    void (*call)(void);
    _Atomic bool go;
} called;

/* It has been cancelled before it calls, which disabling holds back until then. */
static void *calls(void *arg)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    while (!atomic_load(&called.go)) {
    }
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    called.call();
    returned = true;
    return arg;
}

static void call_cancelled(void (*call)(void))
{
    pthread_t thread;

    called.call = call;
    CONF_CHECK(!pthread_create(&thread, NULL, calls, NULL), "pthread_create");
    usleep(50000); /* it waits by now: else it may end before it calls */
    CONF_CHECK(!pthread_cancel(thread), "pthread_cancel");
    atomic_store(&called.go, true);
    pthread_join(thread, NULL);
    CONF_CHECK(returned, "it was cancelled in the call");
}

static void create(void)
{
    utofu_vcq_hdl_t hdl;

    CONF_OK(utofu_create_vcq(conf_tni(0), 0, &hdl));
}

CONF_TEST("cancel", cancelled_in_create, 1, "utofu_create_vcq, also as the first call and in the strict mode, is no cancellation point")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    call_cancelled(create);
    create();
}

/* 16 MB with the longest gap: some 90 ms, in which the timed mode sleeps */
static void put_long(void)
{
    CONF_OK(utofu_put_gap(vcq.hdl, vcq.id, stadd, stadd, 15u << 20, 0, CONF_TCQ, 1920, 255, NULL));
}

CONF_TEST("cancel", cancelled_in_put, 1, "nor is a put in the timed mode, with a thread-safe VCQ, which others can go on with")
{
    void *memory;

    CONF_CHECK(!setenv("UTOFU_EMU_TIMING", "tofud", 1), "setenv");
    conf_vcq_create(&vcq, 0, UTOFU_VCQ_FLAG_THREAD_SAFE);
    memory = aligned_alloc(4096, 15u << 20);
    CONF_CHECK(memory != NULL, "aligned_alloc");
    stadd  = conf_reg(&vcq, memory, 15u << 20, 0);
    call_cancelled(put_long);
    CONF_EXPECT_TCQ(&vcq, NULL);
}

#define BYTES 8192u

static utofu_stadd_t all[2];

static void *puts_and_gets(void *arg)
{
    for (unsigned n = 1; n <= BYTES; n *= 2) {
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], stadd, all[1], n, 0, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 0, NULL);
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadd, all[1], n, 0, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 0, NULL);
    }
    return arg;
}

CONF_TEST("stack", smallest_stack, 2, "puts and gets of memory that is reached by the kernel have enough of the smallest stack of a thread")
{
    static char    memory[BYTES];
    pthread_attr_t attr;
    pthread_t      thread;

#ifdef __SANITIZE_ADDRESS__
    conf_skip("the sanitizer takes more of the stack");
#endif
    CONF_CHECK(!setenv("UTOFU_EMU_REHOME", "0", 1), "setenv");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, memory, BYTES, all);
    stadd = all[conf_rank];
    if (conf_rank == 0) {
        pthread_attr_init(&attr);
        CONF_CHECK(!pthread_attr_setstacksize(&attr, 16384), "pthread_attr_setstacksize");
        CONF_CHECK(!pthread_create(&thread, &attr, puts_and_gets, NULL), "pthread_create");
        pthread_join(thread, NULL);
    }
    conf_barrier();
}
