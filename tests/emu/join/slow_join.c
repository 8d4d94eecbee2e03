/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slow_join.c - many processes make their first uTofu call at the same time, on a host on which the kernel
 * takes its time for two things that it does slowly beside threads on busy CPUs: registering for
 * membarrier, and a table of descriptors that grows.  Nobody is to wait for another's.
 */
#include <utofu.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 24
#define SLOW_NS   600000000L /* of both, in all processes: more than the library waits for a lock */
#define REGISTER  4          /* MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED */
#define TABLE     64         /* descriptors that a new process has room for */

static int slow_calls, top = TABLE;

static void slow(void)
{
    struct timespec t = {0, SLOW_NS};

    ++slow_calls;
    nanosleep(&t, NULL);
}

/* The library's calls come here. */
long syscall(long number, ...)
{
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long    a[6];
    va_list ap;

    va_start(ap, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(ap, long);
    }
    va_end(ap);
    if ((number == SYS_membarrier) && ((int)a[0] == REGISTER)) {
        slow();
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int fcntl(int fd, int command, ...)
{
    int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl");
    long    arg;
    va_list ap;

    va_start(ap, command);
    arg = va_arg(ap, long);
    va_end(ap);
    fd = real(fd, command, arg);
    if ((command == F_DUPFD_CLOEXEC) && (fd >= top)) {
        while (top <= fd) {
            top *= 2;
        }
        slow();
    }
    return fd;
}

int main(void)
{
    int failed = 0, status;

    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return 2;
        }
        if (pid == 0) {
            utofu_tni_id_t *tnis;
            size_t         n;
            int            code = utofu_get_onesided_tnis(&tnis, &n);

            if (code != UTOFU_SUCCESS) {
                fprintf(stderr, "process %d: utofu_get_onesided_tnis: %d\n", i, code);
            } else if (slow_calls != 2) { /* or this program tests nothing */
                fprintf(stderr, "process %d: %d slow calls\n", i, slow_calls);
            }
            _exit((code != UTOFU_SUCCESS) || (slow_calls != 2));
        }
    }
    while (wait(&status) > 0) {
        failed += (status != 0);
    }
    return failed != 0;
}
