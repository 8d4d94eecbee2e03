/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * freeze.c - EMU_TEST_WITHOUT: what an ordinary user may not have, this program is refused, too:
 * "userfaultfd", or "userfaultfd,ptrace".
 */
#include "freeze.h"

#include "harness.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LOAD(field)      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_NOT(x, skip)  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (x), 0, (skip))
#define REFUSE           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define ALLOW            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void refuse(void)
{
    const char        *without = getenv("EMU_TEST_WITHOUT");
    bool               ptrace  = (without != NULL) && (strstr(without, "ptrace") != NULL);
    struct sock_filter calls[] = {
        LOAD(nr),
        IF_NOT(SYS_userfaultfd, 1), REFUSE,
        IF_NOT(ptrace ? SYS_ptrace : SYS_userfaultfd, 1), REFUSE,
        IF_NOT(SYS_ioctl, 3),
        LOAD(args[1]),
        IF_NOT((uint32_t)USERFAULTFD_IOC_NEW, 1), REFUSE,
        ALLOW,
    };
    struct sock_fprog filter = {sizeof(calls) / sizeof(*calls), calls};

    if ((without != NULL) && (*without != '\0')) {
        CONF_CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
        CONF_CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), "PR_SET_SECCOMP");
    }
}

/* A child is what the library's helper is, as far as the kernel is concerned. */
static bool child_can_stop(void)
{
    int   status;
    pid_t parent = getpid(), pid;

    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid = fork();
    CONF_CHECK(pid >= 0, "fork");
    if (pid == 0) {
        _exit(syscall(SYS_ptrace, PTRACE_SEIZE, (long)parent, 0L, 0L) != 0);
    }
    while ((waitpid(pid, &status, 0) < 0) && (errno == EINTR)) {
    }
    return status == 0;
}

static bool stops;

bool can_stop(void)
{
    return stops;
}

/* Before the library is set up, and any test has registered something */
__attribute__((constructor(101))) static void look(void)
{
    refuse();
    stops = can_freeze_by_call() || can_freeze_by_device() || child_can_stop();
}
