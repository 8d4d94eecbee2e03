/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_leave.c - the end of a process that is not as usual: it frees in handlers that run after
 * ours, or it has closed all descriptors.  Others keep what they have.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST 500 /* of the descriptors of a child that closes those below */

static int talk[2]; /* both ways: a child says where it is, and is told to go on */

static void say(void)
{
    char c = 0;

    if ((write(talk[1], &c, 1) != 1) || (read(talk[1], &c, 1) != 1)) {
        _exit(10);
    }
}

static pid_t start(void (*run)(void))
{
    pid_t pid;
    char  c;

    CONF_CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, talk), "socketpair: %s", strerror(errno));
    pid = fork();
    CONF_CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the test fails */
        run();
        exit(0);
    }
    CONF_CHECK(read(talk[0], &c, 1) == 1, "the child failed");
    return pid;
}

static void finish(pid_t pid)
{
    double end = conf_now() + CONF_WAIT;
    int    status;
    pid_t  got;

    CONF_CHECK(write(talk[0], "", 1) == 1, "write");
    while (((got = waitpid(pid, &status, WNOHANG)) == 0) && (conf_now() < end)) {
        usleep(1000);
    }
    CONF_CHECK(got == pid, "the child does not end");
    CONF_CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0), "it ended with %#x", status);
    close(talk[0]);
    close(talk[1]);
}

/* ----------------------------------------------------------------- children */

static utofu_vcq_hdl_t child_vcq;
static bool            child_frees;

static void child_free(void)
{
    say();
    if (child_frees && utofu_free_vcq(child_vcq)) {
        _exit(2);
    }
}

static void child_create(void)
{
    if (utofu_create_vcq(conf_tni(0), 0, &child_vcq)) {
        _exit(1);
    }
}

static bool child_leaves;

/* A handler that destructors of the program register runs after those of libraries. */
static void __attribute__((destructor)) at_the_end(void)
{
    if (child_leaves) {
        atexit(child_free);
    }
}

static void leaves(void)
{
    child_create();
    child_leaves = true;
}

static struct {
    utofu_vcq_id_t id;
    utofu_stadd_t  stadd;
} *child_is; /* known to both */
static uint64_t child_words[2];

/* Puts to itself; then the parent puts to it. */
static void child_uses(void)
{
    struct utofu_mrq_notice notice;
    double                  end = conf_now() + CONF_WAIT;
    int                     ret;

    if (utofu_put_piggyback8(child_vcq, child_is->id, 3, child_is->stadd, 8, 1, CONF_LMRQ, NULL)) {
        _exit(11);
    }
    while (((ret = utofu_poll_mrq(child_vcq, 0, &notice)) == UTOFU_ERR_NOT_FOUND) && (conf_now() < end)) {
    }
    if ((ret != UTOFU_SUCCESS) || (child_words[0] != 3)) {
        _exit(12);
    }
    say();
    if ((utofu_poll_mrq(child_vcq, 0, &notice) != UTOFU_SUCCESS) || (notice.edata != 2) || (child_words[1] != 4)) {
        _exit(13);
    }
    if (utofu_dereg_mem(child_vcq, child_is->stadd, 0) || utofu_free_vcq(child_vcq)) {
        _exit(14);
    }
}

static void uses_at_exit(void)
{
    atexit(child_uses); /* as the constructor of a C++ object does with its destructor */
    child_create();
    if (utofu_query_vcq_id(child_vcq, &child_is->id) ||
        utofu_reg_mem(child_vcq, child_words, sizeof(child_words), 0, &child_is->stadd)) {
        _exit(15);
    }
}

static void closes_all(void)
{
    child_create();
    if (dup2(talk[1], FIRST) != FIRST) {
        _exit(3);
    }
    talk[1] = FIRST;
    for (int fd = 3; fd < FIRST; fd++) {
        close(fd);
    }
    child_free();
}

static void has_files(int from, int to, int code)
{
    for (int fd = from; fd < to; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            _exit(code);
        }
    }
}

static void opens_others(void)
{
    char  bytes[64];
    int   status = -1, fd[2];
    pid_t pid;

    child_frees = false;
    closes_all();
    for (int i = 3; i < 43; i++) {
        if (open("/dev/null", O_RDWR) != i) {
            _exit(4);
        }
    }
    pid = fork();
    if (pid == 0) {
        has_files(3, 43, 5);
        _exit(0);
    }
    if ((waitpid(pid, &status, 0) != pid) || (status != 0)) {
        _exit(6);
    }
    has_files(3, 43, 7);
    for (int i = 3; i < 43; i++) {
        close(i);
    }
    for (int i = 0; i < 20; i++) {
        if (pipe(fd) || (write(fd[1], bytes, 16) != 16)) {
            _exit(8);
        }
    }
    say(); /* time for the service thread */
    for (int i = 3; i < 43; i += 2) {
        if (read(i, bytes, sizeof(bytes)) != 16) {
            _exit(9);
        }
    }
}

/* -------------------------------------------------------------------- tests */

/* The service thread of the child, which is the second process of the job, sleeps with the socket
 * that it has closed, and so keeps its slot: wake it. */
static void slot_is_lost(void)
{
    struct sockaddr_un sa  = {.sun_family = AF_UNIX};
    double             end = conf_now() + CONF_WAIT;
    int                fd, ret;
    int                n   = snprintf(sa.sun_path + 1, sizeof(sa.sun_path) - 1, "utofu-emu/%u/%s/1", (unsigned)geteuid(),
                                      getenv("UTOFU_EMU_JOB"));

    do {
        fd  = socket(AF_UNIX, SOCK_STREAM, 0);
        ret = connect(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
        close(fd);
        usleep(1000);
    } while ((ret == 0) && (conf_now() < end));
    CONF_CHECK(ret != 0, "the child kept its socket");
}

/* A process that comes when the child has left, or closed all, has its CQ, and keeps it.  The
 * parent is there so that they are of one job. */
static void successor_is_kept(void (*run)(void), bool frees)
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    static struct {
        utofu_vcq_id_t id;
        utofu_stadd_t  stadd;
    } next;
    int   to_parent[2], status;
    pid_t pid, heir;

    setenv("UTOFU_EMU_NODE", "0", 1);
    setenv("UTOFU_EMU_JOB", "leave", 0);
    conf_vcq_create(&vcq, 1, 0);
    child_frees = frees;
    pid         = start(run);
    if (run == closes_all) {
        slot_is_lost();
    }
    CONF_CHECK(!pipe(to_parent), "pipe: %s", strerror(errno));
    heir = fork();
    CONF_CHECK(heir >= 0, "fork: %s", strerror(errno));
    if (heir == 0) {
        static uint64_t word;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_create();
        if (utofu_query_vcq_id(child_vcq, &next.id) || utofu_reg_mem(child_vcq, &word, 8, 0, &next.stadd) ||
            (write(to_parent[1], &next, sizeof(next)) != (ssize_t)sizeof(next))) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    CONF_CHECK(read(to_parent[0], &next, sizeof(next)) == (ssize_t)sizeof(next), "the child failed");
    finish(pid);
    CONF_OK(utofu_put_piggyback8(vcq.hdl, next.id, 7, next.stadd, 8, 1, CONF_LMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(&vcq, &notice)); /* and not MRQ_PEER, nor what another says that has the CQ */
    kill(heir, SIGKILL);
    waitpid(heir, &status, 0);
    conf_vcq_close(&vcq);
}

CONF_TEST("leave", frees_after_it_left, 1,
          "a process that frees its VCQ when it has left the job takes nothing from who has the CQ by then")
{
    successor_is_kept(leaves, true);
}

/* A process of the job that forks as soon as it may; its child comes and leaves, too */
static void forks_at_once(void)
{
    int   status = -1;
    pid_t pid;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm((unsigned)CONF_WAIT);
    child_create();
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_create();
        exit(0);
    }
    exit((waitpid(pid, &status, 0) == pid) && (status == 0) ? 0 : 16); /* of a status exit keeps only 8 bits */
}

CONF_TEST("leave", fork_after_the_first_call, 1,
          "a process may fork right after its first call: what the library's thread begins with is done by then")
{
    enum { AT_ONCE = 6, ROUNDS = 40 }; /* several: so a thread may be off its CPU anywhere */
    pid_t pid[AT_ONCE];
    int   status;

    conf_timeout(60);
    setenv("UTOFU_EMU_JOB", "leave", 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < AT_ONCE; i++) {
            pid[i] = fork();
            CONF_CHECK(pid[i] >= 0, "fork: %s", strerror(errno));
            if (pid[i] == 0) {
                char job[64];

                snprintf(job, sizeof(job), "%.48s-%u", getenv("UTOFU_EMU_JOB"), i); /* each has all CQs */
                setenv("UTOFU_EMU_JOB", job, 1);
                forks_at_once();
            }
        }
        for (unsigned i = 0; i < AT_ONCE; i++) {
            CONF_CHECK(waitpid(pid[i], &status, 0) == pid[i], "waitpid: %s", strerror(errno));
            CONF_CHECK(status == 0, "round %u: a child ended with %#x", round, (unsigned)status);
        }
    }
}

CONF_TEST("leave", used_at_exit, 1, "a handler of exit that is older than the first call communicates as ever")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    pid_t                   pid;

    child_is = mmap(NULL, sizeof(*child_is), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CONF_CHECK(child_is != MAP_FAILED, "mmap: %s", strerror(errno));
    pid = start(uses_at_exit);
    conf_vcq_create(&vcq, 1, 0);
    CONF_OK(utofu_put_piggyback8(vcq.hdl, child_is->id, 4, child_is->stadd + 8, 8, 2,
                                 CONF_LMRQ | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL));
    CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
    finish(pid);
    conf_vcq_close(&vcq);
    munmap(child_is, sizeof(*child_is));
}

CONF_TEST("leave", slot_of_another_at_exit, 1,
          "a process that has closed all descriptors ends, and takes nothing from who has its slot by then")
{
    successor_is_kept(closes_all, false);
}

CONF_TEST("leave", slot_of_another_freed, 1, "the same when it frees its VCQ")
{
    successor_is_kept(closes_all, true);
}

CONF_TEST("leave", numbers_of_others, 1,
          "of a program that has closed all descriptors, and opened others, none is read, written or closed")
{
    struct conf_vcq vcq;
    pid_t           pid;

    conf_vcq_create(&vcq, 1, 0);
    pid = start(opens_others);
    CONF_CHECK(write(talk[0], "", 1) == 1, "write"); /* closed */
    char c;
    CONF_CHECK(read(talk[0], &c, 1) == 1, "the child failed");
    finish(pid);
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------ exit in a handler */

static void leave_now(int sig)
{
    (void)sig;
    exit(0);
}

static _Noreturn void puts_until_it_leaves(unsigned us)
{
    static uint64_t  word;
    struct conf_vcq  vcq;
    utofu_stadd_t    stadd;
    struct itimerval timer = {{0, 0}, {0, us}};
    void            *cbdata;

    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, &word, sizeof(word), 0);
    signal(SIGALRM, leave_now);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (;;) {
        (void)utofu_put_piggyback8(vcq.hdl, vcq.id, 1, stadd, 8, 0, CONF_TCQ, NULL);
        (void)utofu_poll_tcq(vcq.hdl, 0, &cbdata);
    }
}

CONF_TEST("leave", exit_in_a_handler, 1, "a process that exits in a handler of a signal, in the middle of a call, ends, in the strict mode as well")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    for (unsigned i = 0; i < 12; i++) {
        pid_t  pid = fork(), got = 0;
        double end = conf_now() + 5 * conf_patience;
        int    status;

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            puts_until_it_leaves(30000 + 1700 * i);
        }
        while (((got = waitpid(pid, &status, WNOHANG)) == 0) && (conf_now() < end)) {
            usleep(1000);
        }
        if (got == 0) {
            kill(pid, SIGKILL);
        }
        CONF_CHECK((got == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0), "child %u does not end", i);
    }
}
