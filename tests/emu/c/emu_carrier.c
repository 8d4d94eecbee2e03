/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_carrier.c - session mode when something happens to who brings a Put, in the middle of
 * its call (docs/emulator.md, Session mode).  A system call that it makes there stops it.
 */
#include "harness.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define SESSION UTOFU_VCQ_FLAG_SESSION_MODE
#define ALL     (CONF_TCQ | CONF_LMRQ | CONF_RMRQ)

enum { SIZE = 64 * 1024 };

static void need_filters(void)
{
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) {
        conf_skip("no seccomp filters here");
    }
}

/* From now on this happens to who makes that system call. */
static void filter(int number, unsigned action)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {CONF_LEN(code), code};

    CONF_CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog),
               "the filter: %s", strerror(errno));
}

/* What the relay does while its operations are to be carried on */
enum relay { POLLS_TCQ, POLLS_MRQ, SLEEPS, IS_STOPPED };

/* A child of rank 0 brings rank 1 a Put that starts all num operations, and dies by a system call
 * that it needs for the first of them. */
static void die_in_the_middle(int num, enum relay relay, enum conf_kind kind, int deadly)
{
    static unsigned char expected[SIZE];
    struct conf_vcq      vcq;
    struct conf_mem      mem;
    utofu_stadd_t        stadds[3];
    volatile uint64_t   *last;
    uint64_t             before;
    bool                 polls = relay < SLEEPS;
    pid_t                child = 0;
    int                  status;

    need_filters();
    setenv("UTOFU_EMU_REHOME", "0", 1); /* by system calls, then */
    if (conf_rank == 0) {
        child = fork();
        CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
    }
    if (child > 0) {
        CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
        CONF_CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS), "status 0x%x", status);
        conf_barrier();
        conf_barrier();
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    conf_vcq_open(&vcq, 0, (conf_rank == 1) ? SESSION : 0);
    conf_mem_alloc(&mem, (conf_rank == 1) ? kind : CONF_MEM_MEMFD, SIZE);
    conf_fill(mem.addr, SIZE, (unsigned)conf_rank);
    last = (volatile uint64_t *)(void *)(mem.addr + SIZE - 8);
    conf_reg_all(&vcq, mem.addr, SIZE, stadds);
    for (int i = 0; (i < num) && (conf_rank == 1); i++) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[2], stadds[1], stadds[2], SIZE, i, ALL, CONF_PTR(i + 1)));
    }
    before = *last;
    conf_barrier();
    if (conf_rank == 0) {
        while (*last == before) { /* what is told by rank 2 */
        }
        filter(deadly, SECCOMP_RET_KILL_PROCESS);
        utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], 8, 99, UTOFU_ONESIDED_FLAG_SPS((unsigned)num), NULL);
        _exit(3);
    }
    if (conf_rank == 2) {
        if (relay == IS_STOPPED) {
            conf_stop(1);
        }
        conf_put_word(&vcq, vcq.peer[0], stadds[2] + SIZE - 8, stadds[0] + SIZE - 8);
    }
    if (polls) {
        conf_barrier(); /* it is dead */
    }
    if ((conf_rank == 1) && (relay == POLLS_TCQ)) {
        for (int i = 0; i < num; i++) {
            CONF_EXPECT_TCQ(&vcq, CONF_PTR(i + 1));
        }
    }
    for (int i = 0; (i < num) && ((conf_rank == 2) || polls); i++) {
        CONF_EXPECT_MRQ(&vcq, (conf_rank == 1) ? UTOFU_MRQ_TYPE_LCL_PUT : UTOFU_MRQ_TYPE_RMT_PUT,
                        vcq.peer[3 - conf_rank], i, NULL);
    }
    if (conf_rank == 2) {
        CONF_EXPECT_QUIET(&vcq);
    }
    if (!polls) {
        if ((conf_rank == 2) && (relay == IS_STOPPED)) {
            conf_continue(1);
        }
        conf_barrier();
    }
    conf_barrier();
    if (conf_rank == 2) { /* but for what the Put brought */
        conf_fill(expected, SIZE, 1);
        CONF_CHECK(!memcmp(mem.addr + 8, expected + 8, SIZE - 8), "what was relayed");
    }
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("carrier", carrier_dies_tcq, 3,
          "when who brought a Put dies in its call, the relay finds all that it was to start carried out, by polling "
          "the TCQ")
{
    die_in_the_middle(3, POLLS_TCQ, CONF_MEM_ANON, SYS_process_vm_readv);
}

CONF_TEST("carrier", carrier_dies_mrq, 3, "it also does by polling an empty MRQ, and nothing else")
{
    die_in_the_middle(3, POLLS_MRQ, CONF_MEM_ANON, SYS_process_vm_readv);
}

CONF_TEST("carrier", carrier_dies_last, 3, "also when nothing but the operation under way is left")
{
    die_in_the_middle(1, POLLS_TCQ, CONF_MEM_ANON, SYS_process_vm_readv);
}

CONF_TEST("carrier", carrier_dies_relay_asleep, 3, "also when the relay sleeps meanwhile")
{
    die_in_the_middle(3, SLEEPS, CONF_MEM_ANON, SYS_process_vm_readv);
}

CONF_TEST("carrier", carrier_dies_relay_stopped, 3, "also when the relay is stopped before it can notice")
{
    die_in_the_middle(3, IS_STOPPED, CONF_MEM_ANON, SYS_process_vm_readv);
}

CONF_TEST("carrier", carrier_dies_before_the_notice, 3,
          "also when the data was there already, but not the notice of it (its lane is mapped then)")
{
    die_in_the_middle(3, SLEEPS, CONF_MEM_MEMFD, SYS_munmap);
}

/* ------------------------------------------------------- freed meanwhile */

/* The kernel refuses the call, after rank 1 had time for what it does. */
static void on_sigsys(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;

    (void)sig;
    (void)info;
    conf_barrier();
    conf_barrier();
#if defined(__x86_64__)
    uc->uc_mcontext.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
    uc->uc_mcontext.regs[0] = (unsigned long long)-EPERM;
#else
    (void)uc;
#endif
}

CONF_TEST("carrier", credit_of_a_freed_vcq, 2,
          "a Put to a session-mode VCQ that is freed meanwhile starts nothing of the VCQ that is made in its place")
{
    struct sigaction sa = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};
    struct conf_vcq  vcq;
    struct conf_mem  mem;
    utofu_stadd_t    stadds[2], lcl;
    utofu_vcq_id_t   old;

#if !defined(__x86_64__) && !defined(__aarch64__)
    conf_skip("how a system call returns is not known here");
#endif
    need_filters();
    setenv("UTOFU_EMU_REHOME", "0", 1);
    setenv("UTOFU_EMU_LINES", "unordered", 1); /* by one system call */
    conf_vcq_open(&vcq, 0, (conf_rank == 1) ? SESSION : 0);
    conf_mem_alloc(&mem, CONF_MEM_ANON, SIZE);
    memset(mem.addr, 0, SIZE);
    conf_reg_all(&vcq, mem.addr, SIZE, stadds);
    if (conf_rank == 0) {
        CONF_CHECK(!sigaction(SIGSYS, &sa, NULL), "sigaction");
        filter(SYS_process_vm_writev, SECCOMP_RET_TRAP);
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], SIZE, 1, UTOFU_ONESIDED_FLAG_SPS(2), NULL));
        conf_barrier();
    } else {
        old = vcq.id;
        conf_barrier(); /* rank 0 is in its call */
        conf_vcq_close(&vcq);
        conf_vcq_create(&vcq, 0, SESSION);
        CONF_CHECK(vcq.id == old, "the new VCQ has another ID");
        lcl = conf_reg(&vcq, mem.addr, SIZE, 0);
        CONF_OK(utofu_put(vcq.hdl, vcq.id, lcl, lcl + 8, 8, 1, ALL, CONF_PTR(1)));
        conf_barrier();
        conf_barrier(); /* its call has returned */
        CONF_OK(utofu_put(vcq.hdl, vcq.id, lcl, lcl + 8, 8, 2, ALL, CONF_PTR(2)));
        CONF_EXPECT_QUIET(&vcq);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

/* ------------------------------------------------------------ notice and start */

CONF_TEST("carrier", notice_and_start_of_one_killed, 2,
          "who brings a Put with a notice and an SPS dies in its call: if the notice came, the operation starts")
{
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[2];
    unsigned                notices = 0, starts = 0;
    void                   *cbdata;
    pid_t                   child = 0;
    int                     status, code;

    need_filters();
    if (conf_rank == 0) {
        child = fork();
        CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
    }
    if (child > 0) {
        CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
        CONF_CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS), "status 0x%x", status);
        conf_barrier();
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    conf_vcq_open(&vcq, 0, (conf_rank == 1) ? SESSION : 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    if (conf_rank == 0) {
        /* its lane, then its first Put with an SPS: the session is mapped */
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 1, stadds[1], 8, 1, CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 1, NULL);
        filter(SYS_mmap, SECCOMP_RET_KILL_PROCESS);
        utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], 8, 2, CONF_RMRQ | UTOFU_ONESIDED_FLAG_SPS(1), NULL);
        _exit(3);
    }
    CONF_OK(utofu_put(vcq.hdl, vcq.id, stadds[1], stadds[1] + 8, 8, 1, CONF_TCQ, CONF_PTR(1)));
    conf_barrier(); /* it is dead */
    for (unsigned i = 0; i < 1000; i++) {
        code = utofu_poll_mrq(vcq.hdl, 0, &notice);
        CONF_CHECK((code == UTOFU_SUCCESS) || (code == UTOFU_ERR_NOT_FOUND), "utofu_poll_mrq: %d", code);
        notices += (code == UTOFU_SUCCESS) && (notice.edata == 2);
        starts  += utofu_poll_tcq(vcq.hdl, 0, &cbdata) != UTOFU_ERR_NOT_FOUND;
    }
    CONF_CHECK(starts >= notices, "%u notices, %u starts", notices, starts);
    conf_dereg(&vcq, stadds[1]);
    CONF_OK(utofu_free_vcq(vcq.hdl));
    conf_mem_free(&mem);
}
