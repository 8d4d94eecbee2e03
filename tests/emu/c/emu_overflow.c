/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_overflow.c - an MRQ that overflows ends its process with the message of chapter 7, whoever sees it
 * first: also one that does not poll, and in every mode.
 */
#include "harness.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t word;

/* What a child writes on stderr, until it ends; its status */
static int run_child(void (*child)(int), int arg, char *text, size_t size)
{
    size_t  used = 0;
    ssize_t got;
    int     fds[2], status;
    pid_t   pid;

    CONF_CHECK(pipe(fds) == 0, "pipe: %s", strerror(errno));
    pid = fork();
    CONF_CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(20);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        child(arg);
        _exit(0);
    }
    close(fds[1]);
    while ((used < size - 1) && ((got = read(fds[0], text + used, size - 1 - used)) > 0)) {
        used += (size_t)got;
    }
    text[used] = '\0';
    close(fds[0]);
    CONF_CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}

static void check_end(int status, const char *text, const char *where)
{
    CONF_CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGABRT), "it ended with 0x%x: %s", (unsigned)status, text);
    CONF_CHECK(strstr(text, where) != NULL, "not \"%s\": %s", where, text);
}

/* ------------------------------------------------------------- one that does not poll */

static utofu_vcq_id_t target_id;
static utofu_stadd_t  target_stadd;

static void does_not_poll(int out)
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;

    conf_vcq_create(&vcq, 3, 0);
    stadd = conf_reg(&vcq, &word, sizeof(word), 0);
    CONF_CHECK((write(out, &vcq.id, sizeof(vcq.id)) > 0) && (write(out, &stadd, sizeof(stadd)) > 0), "write");
    close(out);
    for (;;) {
        pause();
    }
}

CONF_TEST("overflow", overflow_without_a_poll, 1, "a process that never polls ends, too")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct pollfd           ended;
    char                    text[1024] = "";
    int                     ids[2], err[2], status, failed = 0;
    pid_t                   pid;
    ssize_t                 got;

    CONF_CHECK(setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1) == 0, "setenv");
    CONF_CHECK((pipe(ids) == 0) && (pipe(err) == 0), "pipe");
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(err[1], STDERR_FILENO);
        does_not_poll(ids[1]);
    }
    close(err[1]);
    CONF_CHECK((read(ids[0], &target_id, 8) == 8) && (read(ids[0], &target_stadd, 8) == 8), "read");
    conf_vcq_create(&vcq, 0, 0);
    for (int i = 0; i < 6000; i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, target_id, 1, target_stadd, 8, 0, CONF_RMRQ, NULL));
        failed += utofu_poll_mrq(vcq.hdl, 0, &notice) == UTOFU_ERR_MRQ_PEER;
    }
    ended = (struct pollfd){err[0], POLLIN, 0};
    CONF_CHECK(poll(&ended, 1, 10000) == 1, "it goes on after 10 s, %d puts failed", failed);
    got = read(err[0], text, sizeof(text) - 1);
    CONF_CHECK((got > 0) && (waitpid(pid, &status, 0) == pid), "waitpid");
    check_end(status, text, "utofu: asynchronous error: MRQ Overflow on TNI 3 CQ ");
    conf_vcq_close(&vcq);
}

/* ----------------------------------------------------------- of a VCQ of the sender's process */

static void fills_another(int arg)
{
    struct conf_vcq a, b;
    utofu_stadd_t   stadd;

    (void)arg;
    conf_vcq_create(&a, 1, 0);
    conf_vcq_create(&b, 2, 0);
    stadd = conf_reg(&b, &word, sizeof(word), 0);
    for (int i = 0; i < 8000; i++) {
        CONF_POST(a.hdl, utofu_put_piggyback8(a.hdl, b.id, 1, stadd, 8, 0, CONF_RMRQ, NULL));
    }
}

CONF_TEST("overflow", overflow_names_the_full_one, 1, "of two VCQs of a process the message names the CQ whose MRQ it was")
{
    char text[1024];
    int  status;

    CONF_CHECK(setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1) == 0, "setenv");
    status = run_child(fills_another, 0, text, sizeof(text));
    check_end(status, text, "MRQ Overflow on TNI 2 CQ ");
}

/* ------------------------------------------------------------------ local and remote ones */

static void fills_both_ways(int polls)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         a, b;
    utofu_stadd_t           at_a, at_b;

    conf_vcq_create(&a, 1, 0);
    conf_vcq_create(&b, 2, 0);
    at_a = conf_reg(&a, &word, sizeof(word), 0);
    at_b = conf_reg(&b, &word, sizeof(word), 0);
    for (int i = 0; i < 1500; i++) { /* none of the two kinds fills it alone */
        CONF_POST(a.hdl, utofu_put_piggyback8(a.hdl, b.id, 1, at_b, 8, 0, CONF_LMRQ, NULL));
        CONF_POST(b.hdl, utofu_put_piggyback8(b.hdl, a.id, 1, at_a, 8, 0, CONF_RMRQ, NULL));
    }
    usleep(100000);
    for (int i = 0; i < polls; i++) {
        (void)utofu_poll_mrq(a.hdl, 0, &notice);
    }
}

CONF_TEST("overflow", overflow_local_and_remote, 1, "local notices and those of one sender overflow an MRQ together")
{
    char text[1024];
    int  status;

    CONF_CHECK(setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1) == 0, "setenv");
    status = run_child(fills_both_ways, 3000, text, sizeof(text));
    check_end(status, text, "MRQ Overflow on TNI 1 CQ ");
    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    status = run_child(fills_both_ways, 1, text, sizeof(text)); /* at its next poll */
    check_end(status, text, "MRQ Overflow on TNI 1 CQ ");
}

/* ------------------------------------------------------------------------- short ones */

static void polls_before(int polls)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           stadd;
    size_t                  unread = 0;
    bool                    strict_mode = *getenv("UTOFU_EMU_STRICT") == '1';

    conf_vcq_create(&vcq, 1, 0);
    stadd = conf_reg(&vcq, &word, sizeof(word), 0);
    for (int i = 0; i < polls; i++) {
        (void)utofu_poll_mrq(vcq.hdl, 0, &notice);
    }
    for (int i = 0; i < 20; i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 1, stadd, 8, 0, CONF_LMRQ, NULL));
    }
    while (strict_mode && (CONF_CODE(utofu_query_num_unread_mrq(vcq.hdl, &unread), UTOFU_SUCCESS), unread < 20)) {
        usleep(1000);
    }
    (void)utofu_poll_mrq(vcq.hdl, 0, &notice);
}

CONF_TEST("overflow", overflow_at_the_next_poll, 1, "with mrq=10 the next poll ends it, whatever was polled before")
{
    char text[1024];

    CONF_CHECK(setenv("UTOFU_EMU_FAULT", "mrq=10", 1) == 0, "setenv");
    for (int strict = 0; strict < 2; strict++) {
        CONF_CHECK(setenv("UTOFU_EMU_STRICT", strict ? "1" : "0", 1) == 0, "setenv");
        for (int polls = 0; polls < 3; polls++) {
            int status = run_child(polls_before, polls, text, sizeof(text));

            check_end(status, text, "MRQ Overflow on TNI 1 CQ ");
        }
    }
}

static void leaves(int sig)
{
    (void)sig;
    exit(77);
}

static void handles_abort(int arg)
{
    signal(SIGABRT, leaves);
    polls_before(arg);
}

CONF_TEST("overflow", overflow_and_a_handler, 1, "a handler of SIGABRT that calls exit ends the process, also in the strict mode")
{
    char text[1024];

    CONF_CHECK(setenv("UTOFU_EMU_FAULT", "mrq=10", 1) == 0, "setenv");
    for (int strict = 0; strict < 2; strict++) {
        int status;

        CONF_CHECK(setenv("UTOFU_EMU_STRICT", strict ? "1" : "0", 1) == 0, "setenv");
        status = run_child(handles_abort, 0, text, sizeof(text));
        CONF_CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 77), "it ended with 0x%x: %s", (unsigned)status, text);
    }
}

/* ------------------------------------------------------------- queues of a CQ, strict mode */

/* both: of the two VCQs on the CQ both are polled, else one of them never */
static void fills_one_cq(int both)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         a, b, c;
    utofu_stadd_t           at_a, at_b;

    conf_vcq_create(&a, 1, 0);
    conf_vcq_create(&b, 1, 0);
    conf_vcq_create(&c, 2, 0);
    at_a = conf_reg(&a, &word, sizeof(word), 0);
    at_b = conf_reg(&b, &word, sizeof(word), 0);
    for (int i = 0; i < 2400; i++) {
        CONF_POST(c.hdl, utofu_put_piggyback8(c.hdl, (i % 2) ? a.id : b.id, 1, (i % 2) ? at_a : at_b, 8, 0, CONF_RMRQ, NULL));
    }
    usleep(200000);
    (void)utofu_poll_mrq(b.hdl, 0, &notice);
    if (both) {
        (void)utofu_poll_mrq(a.hdl, 0, &notice);
    }
    (void)utofu_poll_mrq(b.hdl, 0, &notice);
}

CONF_TEST("overflow", queue_of_a_cq_unseen, 1, "in the strict mode notices count as well of a VCQ that is never polled")
{
    char text[1024];
    int  status;

    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    CONF_CHECK(setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1) == 0, "setenv");
    status = run_child(fills_one_cq, 0, text, sizeof(text));
    check_end(status, text, "MRQ Overflow on TNI 1 CQ ");
}

CONF_TEST("overflow", busy_ends_by_own_polls, 1,
          "in the strict mode a VCQ whose CQ is full of another one's entries has room again when it is polled itself")
{
    struct conf_vcq a, b;
    void           *cbdata;
    double          end;

    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    conf_vcq_create(&a, 0, 0);
    conf_vcq_create(&b, 0, 0);
    while (CONF_CODE(utofu_nop(a.hdl, CONF_TCQ, &a), UTOFU_SUCCESS, UTOFU_ERR_BUSY) == UTOFU_SUCCESS) {
    }
    CONF_CODE(utofu_nop(b.hdl, CONF_TCQ, &b), UTOFU_ERR_BUSY);
    for (end = conf_now() + 5; (utofu_nop(b.hdl, CONF_TCQ, &b) == UTOFU_ERR_BUSY) && (conf_now() < end);) {
        CONF_CODE(utofu_poll_tcq(b.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    }
    CONF_EXPECT_TCQ(&b, &b);
    CONF_CODE(utofu_nop(a.hdl, 0, NULL), UTOFU_ERR_BUSY); /* its own have to be read */
    for (int i = 0; i < 2048; i++) {
        CONF_EXPECT_TCQ(&a, &a); /* they were kept for it */
    }
    CONF_OK(utofu_nop(a.hdl, 0, NULL));
    conf_vcq_close(&a);
    conf_vcq_close(&b);
}

CONF_TEST("overflow", queues_of_a_cq, 1, "in the strict mode VCQs of a CQ have its TOQ and its MRQ together")
{
    struct conf_vcq a, b;
    char            text[1024];
    void           *cbdata;
    int             n = 0, status, code;

    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    CONF_CHECK(setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1) == 0, "setenv");
    status = run_child(fills_one_cq, 1, text, sizeof(text));
    check_end(status, text, "MRQ Overflow on TNI 1 CQ ");
    conf_vcq_create(&a, 0, 0);
    conf_vcq_create(&b, 0, 0);
    while ((code = CONF_CODE(utofu_nop((n % 2) ? a.hdl : b.hdl, 0, NULL), UTOFU_SUCCESS, UTOFU_ERR_BUSY)) == UTOFU_SUCCESS) {
        n++;
    }
    CONF_CHECK(n == 2048, "BUSY after %d operations", n);
    CONF_CODE(utofu_nop(a.hdl, 0, NULL), UTOFU_ERR_BUSY);
    for (double end = conf_now() + 5; (utofu_nop(a.hdl, 0, NULL) == UTOFU_ERR_BUSY) && (conf_now() < end);) {
        CONF_CODE(utofu_poll_tcq(b.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND); /* the other one's are read */
    }
    CONF_OK(utofu_nop(a.hdl, 0, NULL));
    conf_vcq_close(&a);
    conf_vcq_close(&b);
}
