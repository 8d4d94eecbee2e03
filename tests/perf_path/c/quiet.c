/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * quiet.c - the post path makes no system call and allocates nothing.
 *
 * After warming up, malloc and its like are counted, and a seccomp filter reports
 * every system call by SIGSYS.  Then 10,000 operations with progress run.  Exit
 * code 0: none of either; 1: one, named on stderr; 77: no seccomp here.
 *
 * Usage: quiet put_short|am_short [syscall|malloc]   (the last: do one on purpose)
 */
#define _GNU_SOURCE
#include "path.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPERATIONS 10000

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);

/* of this thread: the emulator may have threads of its own */
static __thread volatile int  counting;
static volatile unsigned long allocations;

void *malloc(size_t size)
{
    allocations += counting;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    allocations += counting;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    allocations += counting;
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    allocations += counting;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
    allocations += counting;
    *p = __libc_memalign(alignment, size);
    return (*p == NULL) ? ENOMEM : 0;
}

void free(void *p)
{
    allocations += counting;
    __libc_free(p);
}

/* write and exit_group are let through by the filter: for the report. */
static void on_call(int signal_number, siginfo_t *info, void *context)
{
    char text[] = "system call 0000 on the post path\n";
    int  number = info->si_syscall, i;

    (void)signal_number;
    (void)context;
    for (i = 15; i >= 12; --i, number /= 10) {
        text[i] = (char)('0' + number % 10);
    }
    if (write(2, text, sizeof(text) - 1) < 0) {
        _exit(4);
    }
    _exit(1);
}

static int forbid_calls(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    };
    struct sock_fprog filter = {
        .len = sizeof(program) / sizeof(program[0]), .filter = program
    };
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};

    sigaction(SIGSYS, &action, NULL);
    return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) &&
           (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void run(struct path *path, path_op_t op, unsigned long count)
{
    while (count > 0) {
        if (op(path)) {
            --count;
        }
        /* room comes back, and messages are received */
        tofu_iface_progress(path->rx);
        tofu_iface_progress(path->tx);
    }
}

int main(int argc, char **argv)
{
    const char  *fault = (argc > 2) ? argv[2] : "";
    struct path path;
    path_op_t   op;
    void        *volatile block;

    PATH_CHECK(argc >= 2, "usage: %s operation [syscall|malloc]", argv[0]);
    op = path_find(argv[1]);
    path_open(&path);
    run(&path, op, 2 * OPERATIONS); /* what is made on first use is made */
    if (!forbid_calls()) {
        perror("seccomp");
        _exit(77);
    }
    counting = 1;
    run(&path, op, OPERATIONS / 2);
    if (!strcmp(fault, "syscall")) {
        syscall(__NR_getppid);
    } else if (!strcmp(fault, "malloc")) {
        block = malloc(10);
        free(block);
    }
    run(&path, op, OPERATIONS / 2);
    counting = 0;
    if (allocations > 0) {
        fprintf(stderr, "%lu calls of malloc or free on the post path\n",
                allocations);
        _exit(1);
    }
    if (!strcmp(argv[1], "am_short") && (path.arrived < 2 * OPERATIONS)) {
        fprintf(stderr, "%lu messages arrived\n", (unsigned long)path.arrived);
        _exit(2);
    }
    fputs("quiet\n", stderr);
    _exit(0); /* closing needs the kernel */
}
