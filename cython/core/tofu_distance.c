/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_distance.c - how far from each other the CPUs of this host are: what a cache line takes
 * from one to another.  Measured once in a process, by a thread that answers, in 0.1 ms.
 */
#include "tofu_internal.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define CHUNKS   16u
#define TRIPS    16u      /* there and back, in a chunk */
#define DEADLINE 2e-3     /* seconds: the other CPU is busy */
#define STOP     UINT32_MAX

static _Alignas(256) _Atomic uint32_t word; /* even: our turn; odd: the thread's */
static double distance;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *answer(void *arg)
{
    uint32_t seen;

    /* Peers are bound to CPUs that this process may not be allowed to use. */
    if (sched_setaffinity(0, sizeof(cpu_set_t), arg) != 0) {
        return NULL;
    }
    while ((seen = atomic_load_explicit(&word, memory_order_acquire)) != STOP) {
        if (seen & 1) {
            /* not over STOP, which comes in our turn when we are late */
            atomic_compare_exchange_strong_explicit(&word, &seen, seen + 1,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed);
        }
    }
    return NULL;
}

/* A chunk of round trips; false: nobody answered in time. */
static bool go_and_back(uint32_t *turn, unsigned trips, double deadline)
{
    unsigned i, looks = 0;

    for (i = 0; i < trips; ++i) {
        atomic_store_explicit(&word, *turn + 1, memory_order_release);
        *turn += 2;
        while (atomic_load_explicit(&word, memory_order_acquire) != *turn) {
            if ((++looks % 256 == 0) && (now() > deadline)) {
                return false;
            }
        }
    }
    return true;
}

static void measure(void)
{
    double    deadline = now() + DEADLINE, begin, least = 0, took;
    uint32_t  turn = 0;
    sigset_t  all, before;
    cpu_set_t others;
    pthread_t thread;
    unsigned  i;
    int       here = sched_getcpu();

    if ((sysconf(_SC_NPROCESSORS_ONLN) < 2) || (here < 0) || (here >= CPU_SETSIZE)) {
        return;
    }
    CPU_ZERO(&others);
    for (i = 0; i < CPU_SETSIZE; ++i) {
        CPU_SET(i, &others);
    }
    CPU_CLR(here, &others);
    atomic_store_explicit(&word, 0, memory_order_relaxed); /* a fork may have stopped another */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    i = (unsigned)pthread_create(&thread, NULL, answer, &others);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (i != 0) {
        return;
    }
    if (go_and_back(&turn, 1, deadline)) { /* it runs */
        for (i = 0; i < CHUNKS; ++i) {
            begin = now();
            if (!go_and_back(&turn, TRIPS, deadline)) {
                break;
            }
            took  = (now() - begin) / (2 * TRIPS);
            least = ((least == 0) || (took < least)) ? took : least;
        }
    }
    atomic_store_explicit(&word, STOP, memory_order_release);
    pthread_join(thread, NULL);
    distance = least;
}

double tofu_distance(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, measure);
    return distance;
}
