/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common.h - two pinned processes, a socket between them, a clock.
 *
 * A kernel is run as: <program> <cpu0> <cpu1> ... ; rank 0 is the parent.  It
 * prints one line "seconds <s>": one-way time, or time per operation, the median
 * over chunks of the iterations, so that a preemption spoils one chunk only.
 */
#ifndef PERF_COMMON_H
#define PERF_COMMON_H

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PERF_TIME_LIMIT 60 /* seconds until a run is given up */
#define PERF_CHUNKS     25 /* measured */
#define PERF_WARMUP     3  /* chunks before them */

struct perf_pair {
    int   rank; /* 0 or 1 */
    int   fd;   /* to the other process */
    pid_t child;
};

#define PERF_CHECK(_ok, ...) \
    do { \
        if (!(_ok)) { \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            exit(1); \
        } \
    } while (0)

static inline double perf_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

static inline int perf_compare(const void *a, const void *b)
{
    double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

/* Print the median of the chunks' times, per operation. */
static inline void perf_report(double *times, long operations)
{
    qsort(times, PERF_CHUNKS, sizeof(*times), perf_compare);
    printf("seconds %.12f\n", times[PERF_CHUNKS / 2] / operations);
}

/* Fork before any communication library is touched, and pin both sides. */
static inline void perf_pair_start(struct perf_pair *pair, int cpu0, int cpu1)
{
    int       fds[2];
    cpu_set_t set;

    PERF_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair: %s",
               strerror(errno));
    pair->child = fork();
    PERF_CHECK(pair->child >= 0, "fork: %s", strerror(errno));
    pair->rank = (pair->child == 0);
    pair->fd   = fds[pair->rank];
    close(fds[!pair->rank]);
    if (pair->rank == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    alarm(PERF_TIME_LIMIT);
    CPU_ZERO(&set);
    CPU_SET(pair->rank ? cpu1 : cpu0, &set);
    PERF_CHECK(sched_setaffinity(0, sizeof(set), &set) == 0,
               "sched_setaffinity: %s", strerror(errno));
}

/* Send length bytes and receive as many from the other side. */
static inline void perf_exchange(const struct perf_pair *pair, const void *mine,
                                 void *theirs, size_t length)
{
    size_t  done;
    ssize_t ret;

    for (done = 0; done < length; done += ret) {
        ret = write(pair->fd, (const char*)mine + done, length - done);
        PERF_CHECK(ret > 0, "the other process is gone");
    }
    for (done = 0; done < length; done += ret) {
        ret = read(pair->fd, (char*)theirs + done, length - done);
        PERF_CHECK(ret > 0, "the other process is gone");
    }
}

static inline void perf_barrier(const struct perf_pair *pair)
{
    char mine = 'b', theirs;

    perf_exchange(pair, &mine, &theirs, 1);
}

/* Rank 0 returns the exit code of both, rank 1 ends here. */
static inline int perf_pair_end(const struct perf_pair *pair)
{
    int status = 0;

    if (pair->rank == 1) {
        exit(0);
    }
    waitpid(pair->child, &status, 0);
    return !(WIFEXITED(status) && (WEXITSTATUS(status) == 0));
}

static inline void *perf_sleeper(void *arg)
{
    for (;;) {
        pause();
    }
    return arg;
}

/* Of a kind that ends so: the process has another thread.  Returns the kind. */
static inline const char *perf_beside(const char *kind)
{
    size_t    length = strlen(kind), end = strlen("-thread");
    pthread_t other;

    if ((length > end) && !strcmp(kind + length - end, "-thread")) {
        PERF_CHECK(pthread_create(&other, NULL, perf_sleeper, NULL) == 0, "no thread");
    }
    return kind;
}

/* As an ordinary user the process may not open the file of a mapping by /proc/self/map_files. */
static inline void perf_ordinary_user(void)
{
    struct __user_cap_header_struct head    = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct   data[2] = {{0, 0, 0}, {0, 0, 0}};

    PERF_CHECK(!syscall(SYS_capget, &head, data), "capget: %s", strerror(errno));
    data[0].effective &= ~(1u << CAP_SYS_ADMIN);
    data[1].effective &= ~(1u << (40 - 32)); /* CAP_CHECKPOINT_RESTORE */
    PERF_CHECK(!syscall(SYS_capset, &head, data), "capset: %s", strerror(errno));
}

/* Memory of a shared memfd mapping, shared anonymous memory of an ordinary user ("shared"), or of malloc (as it
 * comes, or from the start of a page), filled and writable. */
static inline void *perf_memory(const char *kind, size_t length)
{
    void *memory;
    int  fd;

    if (!strncmp(kind, "malloc", 6)) {
        PERF_CHECK(posix_memalign(&memory, strcmp(kind, "malloc-page") ? 64 : 4096,
                                  length) == 0, "no memory");
    } else if (!strcmp(kind, "shared")) {
        perf_ordinary_user();
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        PERF_CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    } else {
        PERF_CHECK(!strcmp(kind, "memfd"), "unknown kind of memory: %s", kind);
        fd = memfd_create("perf", MFD_CLOEXEC);
        PERF_CHECK((fd >= 0) && (ftruncate(fd, length) == 0), "memfd: %s",
                   strerror(errno));
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        PERF_CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    }
    memset(memory, 0, length);
    return memory;
}

/* The same, or "stack": of the function that asks, from the start of a page; with
 * "-thread" behind it in a process that has another thread */
#define PERF_MEMORY(_kind, _length) \
    (strncmp(perf_beside(_kind), "stack", 5) ? \
             perf_memory(_kind, _length) : \
             memset(__builtin_alloca_with_align(_length, 8 * 4096), 0, _length))

#endif /* PERF_COMMON_H */
