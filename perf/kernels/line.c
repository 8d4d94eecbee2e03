/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * line.c - how long a cache line takes from one CPU to another: two threads, pinned, that
 * answer each other for 10 ms.
 *   line CPU0 CPU1
 * Prints the time of one way in ns: "line 62.4".
 */
#define _GNU_SOURCE

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SECONDS 0.01
#define CHUNK   200u

static _Alignas(256) _Atomic uint64_t word;
static int cpu[2];

static void pin(int number)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(number, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        perror("sched_setaffinity");
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Even: the first one's turn.  ~0: the end. */
static void *answer(void *arg)
{
    uint64_t seen;

    (void)arg;
    pin(cpu[1]);
    while ((seen = atomic_load_explicit(&word, memory_order_acquire)) != UINT64_MAX) {
        if (seen & 1) {
            atomic_store_explicit(&word, seen + 1, memory_order_release);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    uint64_t  n = 0, i;
    double    begin, end;

    if (argc != 3) {
        fprintf(stderr, "usage: line CPU0 CPU1\n");
        return 2;
    }
    cpu[0] = atoi(argv[1]);
    cpu[1] = atoi(argv[2]);
    pin(cpu[0]);
    if (pthread_create(&thread, NULL, answer, NULL) != 0) {
        return 1;
    }
    for (begin = end = now(); end - begin < SECONDS; end = now()) {
        for (i = 0; i < CHUNK; ++i) {
            atomic_store_explicit(&word, ++n, memory_order_release);
            ++n;
            while (atomic_load_explicit(&word, memory_order_acquire) != n) {
            }
        }
        if (n == 2 * CHUNK) { /* the first ones waited for the thread */
            begin = now();
        }
    }
    atomic_store(&word, UINT64_MAX);
    pthread_join(thread, NULL);
    printf("line %.1f\n", (end - begin) * 1e9 / (double)(n - 2 * CHUNK));
    return 0;
}
