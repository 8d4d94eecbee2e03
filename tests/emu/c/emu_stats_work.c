/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_stats_work.c - work whose counts are known; test_stats.py reads what
 * UTOFU_EMU_STATS says of it.
 */
#include "harness.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

static utofu_vcq_hdl_t in_use;
static volatile bool   begun;

static void *goes_on(void *arg)
{
    struct utofu_mrq_notice notice;
    void                   *cbdata;

    for (;;) {
        utofu_poll_mrq(in_use, 0, &notice);
        utofu_poll_tcq(in_use, 0, &cbdata);
        utofu_nop(in_use, 0, NULL);
        begun = true;
    }
    return arg;
}

CONF_TEST("stats", exit_beside_a_thread, 1, "a process that counts ends in peace while another thread of it goes on")
{
    pthread_t thread;
    int       status;

    for (int i = 0; i < 20; i++) {
        pid_t child = fork();

        CONF_CHECK(child >= 0, "fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            setenv("UTOFU_EMU_STATS", "json:/dev/null", 1);
            CONF_OK(utofu_create_vcq(0, UTOFU_VCQ_FLAG_THREAD_SAFE, &in_use));
            CONF_CHECK(!pthread_create(&thread, NULL, goes_on, NULL), "pthread_create");
            while (!begun) {
                usleep(100);
            }
            exit(0);
        }
        CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
        CONF_CHECK(status == 0, "it ended with status 0x%x", status);
    }
}

CONF_TEST("stats", stats_of_failures, 1, "operations that fail in the TCQ, for test_stats.py")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;
    uint64_t        word = 0;

    conf_vcq_create(&vcq, 0, 0);
    s = conf_reg(&vcq, &word, sizeof(word), 0);
    for (int i = 0; i < 5; i++) {
        CONF_OK(utofu_put(vcq.hdl, vcq.id, s + ((uint64_t)900 << 40), s, 8, 0, CONF_TCQ, CONF_PTR(i)));
        CONF_EXPECT_TCQ_ERROR(&vcq, CONF_PTR(i), UTOFU_ERR_TCQ_STADD);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("stats", stats_of_none, 1, "one VCQ, and three that are refused, for test_stats.py")
{
    utofu_vcq_hdl_t hdl;

    CONF_OK(utofu_create_vcq_with_cmp_id(2, 3, 0, &hdl));
    for (int i = 0; i < 3; i++) {
        CONF_CODE(utofu_create_vcq_with_cmp_id(2, 3, 0, &hdl), UTOFU_ERR_USED);
    }
}

CONF_TEST("stats", stats_from_elsewhere, 1, "a process that goes to another folder before it ends, for test_stats.py")
{
    struct conf_vcq vcq;
    pid_t           pid = fork();
    int             status;

    CONF_CHECK(pid >= 0, "fork");
    if (pid == 0) {
        conf_vcq_create(&vcq, 1, 0);
        exit((chdir("/") == 0) ? 0 : 1);
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "it ended with 0x%x", (unsigned)status);
}

CONF_TEST("stats", stats_of_a_session, 1, "three puts of a session-mode VCQ, two of which fail, for test_stats.py")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq, session;
    struct conf_mem         mem;
    utofu_stadd_t           s, own;

    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&session, 1, UTOFU_VCQ_FLAG_SESSION_MODE);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    s   = conf_reg(&vcq, mem.addr, 4096, 0);
    own = conf_reg(&session, mem.addr, 4096, 0);
    for (int i = 0; i < 3; i++) { /* the last two beyond the end of their target */
        CONF_OK(utofu_put(session.hdl, vcq.id, own, s + ((i == 0) ? 64 : 4090), 8, 0, CONF_TCQ | CONF_LMRQ, NULL));
    }
    CONF_OK(utofu_put(vcq.hdl, session.id, s, own + 128, 8, 0, UTOFU_ONESIDED_FLAG_SPS(3), NULL));
    for (int i = 0; i < 3; i++) {
        void *cbdata;

        CONF_CODE(CONF_WAIT_TCQ(&session, &cbdata), UTOFU_SUCCESS);
        CONF_CODE(CONF_WAIT_MRQ(&session, &notice), (i == 0) ? UTOFU_SUCCESS : UTOFU_ERR_MRQ_RMT_LENGTH);
    }
    conf_vcq_close(&session);
    conf_vcq_close(&vcq);
}
