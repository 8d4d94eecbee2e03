/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_idle.c - who polls in vain offers its CPU when there are too few of them (emu_idle.h),
 * and only then.
 */
#include "harness.h"

#include "circuit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MANY   (1u << 23) /* polls in which the library thinks of others several times, if it ever does */
#define ROUNDS 300

static _Atomic unsigned offered; /* by calls of this process */

/* The library's calls come here, as programs' symbols go first. */
int sched_yield(void)
{
    atomic_fetch_add(&offered, 1);
    return (int)syscall(SYS_sched_yield);
}

/* This process, and threads that it starts: on the first `cpus` of those that it has */
static void keep_to(int cpus)
{
    cpu_set_t have, want;

    CONF_CHECK(sched_getaffinity(0, sizeof(have), &have) == 0, "sched_getaffinity");
    CPU_ZERO(&want);
    for (int cpu = 0; (cpu < CPU_SETSIZE) && (cpus > 0); cpu++) {
        if (CPU_ISSET(cpu, &have)) {
            CPU_SET(cpu, &want);
            cpus--;
        }
    }
    CONF_CHECK(sched_setaffinity(0, sizeof(want), &want) == 0, "sched_setaffinity");
}

/* Polls until the CPU was offered, or many times; how often it was offered */
static unsigned poll_in_vain(utofu_vcq_hdl_t hdl)
{
    struct utofu_mrq_notice notice;
    unsigned                before = atomic_load(&offered);

    for (unsigned i = 0; (i < MANY) && (atomic_load(&offered) == before); i++) {
        CONF_CHECK(utofu_poll_mrq(hdl, 0, &notice) == UTOFU_ERR_NOT_FOUND, "a notice from nowhere");
    }
    return atomic_load(&offered) - before;
}

CONF_TEST("idle", a_cpu_of_its_own, 1, "a process that is alone keeps its CPU, however long it polls")
{
    struct conf_vcq vcq;

    keep_to(1);
    conf_vcq_open(&vcq, 0, 0);
    for (int i = 0; i < 4; i++) {
        CONF_CHECK(poll_in_vain(vcq.hdl) == 0, "its CPU was offered to nobody");
    }
    conf_vcq_close(&vcq);
}

/* Two processes on one CPU.  Nothing of what they wait for is lost; that each round would take
 * the kernel's shares of a CPU otherwise, so seconds, is not looked at. */
static void two_on_one(unsigned long flags)
{
    static uint64_t         word __attribute__((aligned(256)));
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    struct conf_vcq         vcq;
    unsigned                times;

    conf_timeout(100);
    keep_to(1);
    conf_vcq_open(&vcq, 0, flags);
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    times = poll_in_vain(vcq.hdl);
    CONF_CHECK(times > 0, "the CPU was never offered to the other one");
    conf_barrier();
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (conf_rank == 0) {
            CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[1], i, stadds[1], 8, i % 256, CONF_RMRQ, NULL));
        }
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[1 - conf_rank], i % 256, &notice);
        if (conf_rank == 1) {
            CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[0], i, stadds[0], 8, i % 256, CONF_RMRQ, NULL));
        }
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("idle", two_on_one_cpu, 2, "of two on one CPU, who polls in vain offers it")
{
    two_on_one(0);
}

CONF_TEST("idle", two_on_one_cpu_thread_safe, 2, "the same with a thread-safe VCQ")
{
    two_on_one(UTOFU_VCQ_FLAG_THREAD_SAFE);
}

CONF_TEST("idle", two_on_one_cpu_timed, 2, "the same in the timed mode")
{
    CONF_CHECK(setenv("UTOFU_EMU_TIMING", "tofud", 1) == 0, "setenv");
    two_on_one(0);
}

CONF_TEST("idle", two_on_one_cpu_strict, 2, "the same in the strict mode")
{
    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    two_on_one(0);
}

CONF_TEST("idle", two_on_two_cpus, 2, "two that have two CPUs keep them")
{
    struct conf_vcq vcq;
    cpu_set_t       have;

    CONF_CHECK(sched_getaffinity(0, sizeof(have), &have) == 0, "sched_getaffinity");
    if (CPU_COUNT(&have) < 2) {
        conf_skip("there is one CPU only");
    }
    keep_to(2);
    conf_vcq_open(&vcq, 0, 0);
    CONF_CHECK(poll_in_vain(vcq.hdl) == 0, "a CPU was offered to nobody");
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("idle", pinned_each_to_its_own, 2, "two that are bound to a CPU each have two")
{
    struct conf_vcq vcq;
    cpu_set_t       have, mine;
    int             nth = 0;

    CONF_CHECK(sched_getaffinity(0, sizeof(have), &have) == 0, "sched_getaffinity");
    if (CPU_COUNT(&have) < 2) {
        conf_skip("there is one CPU only");
    }
    CPU_ZERO(&mine);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &have) && (nth++ == conf_rank)) {
            CPU_SET(cpu, &mine);
        }
    }
    CONF_CHECK(sched_setaffinity(0, sizeof(mine), &mine) == 0, "sched_setaffinity");
    conf_vcq_open(&vcq, 0, 0);
    CONF_CHECK(poll_in_vain(vcq.hdl) == 0, "a CPU was offered to nobody");
    conf_barrier();
    conf_vcq_close(&vcq);
}

static _Atomic int polls_on, done;

static void *poller(void *arg)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;

    (void)arg;
    conf_vcq_create(&vcq, 1, 0);
    while (!atomic_load(&done)) {
        CONF_CHECK(utofu_poll_mrq(vcq.hdl, 0, &notice) == UTOFU_ERR_NOT_FOUND, "a notice from nowhere");
        atomic_store(&polls_on, 1);
    }
    conf_vcq_close(&vcq);
    return NULL;
}

CONF_TEST("idle", threads_count, 1, "threads that poll count as processes do, until they end")
{
    struct conf_vcq vcq;
    pthread_t       thread;
    unsigned        before;

    conf_timeout(100);
    keep_to(1);
    conf_vcq_create(&vcq, 0, 0);
    CONF_CHECK(pthread_create(&thread, NULL, poller, NULL) == 0, "pthread_create");
    while (!atomic_load(&polls_on)) {
        usleep(1000);
    }
    /* whichever of the two thinks of others first does not know of the other yet */
    before = atomic_load(&offered);
    for (int i = 0; (i < 4) && (atomic_load(&offered) == before); i++) {
        poll_in_vain(vcq.hdl);
    }
    CONF_CHECK(atomic_load(&offered) > before, "the CPU was never offered to the other thread");
    atomic_store(&done, 1);
    CONF_CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
    poll_in_vain(vcq.hdl); /* once more before it is seen that there is none */
    CONF_CHECK(poll_in_vain(vcq.hdl) == 0, "the CPU is offered to a thread that has ended");
    conf_vcq_close(&vcq);
}

CONF_TEST("idle", barrier_on_one_cpu, 2, "who waits at a barrier offers its CPU, too")
{
    static struct circuit c;
    unsigned              before;

    conf_timeout(100);
    keep_to(1);
    plan_butterfly(&c.plan, 2);
    circuit_open(&c, 0, 0);
    if (conf_rank == 0) {
        CONF_OK(utofu_barrier(c.id[0][0], 0));
        before = atomic_load(&offered);
        for (unsigned i = 0; (i < MANY) && (atomic_load(&offered) == before); i++) {
            CONF_CODE(utofu_poll_barrier(c.id[0][0], 0), UTOFU_ERR_NOT_COMPLETED);
        }
        CONF_CHECK(atomic_load(&offered) > before, "the CPU was never offered");
        conf_barrier();
    } else {
        conf_barrier();
        CONF_OK(utofu_barrier(c.id[1][0], 0));
    }
    CONF_CHECK(circuit_wait(c.id[conf_rank][0]) == UTOFU_SUCCESS, "the barrier");
    circuit_close(&c);
}

/* Threads on one CPU that poll one VCQ */
#define POLLERS 3
#define TURNS   800  /* of all of them */
#define A_TURN  8192 /* polls */
#define ENOUGH  200  /* offers: it goes on for ever like that.  A lock is seen after some turns of up to 16 each. */

static struct conf_vcq common;
static _Atomic int     lock, turns;
static bool            with_lock;

static void *common_poller(void *arg)
{
    struct utofu_mrq_notice notice;

    (void)arg;
    while ((atomic_load(&turns) < TURNS) && (atomic_load(&offered) < ENOUGH)) {
        while (with_lock && atomic_exchange(&lock, 1)) {
            /* spins, as UCP's threads do for their worker's lock */
        }
        for (int i = 0; i < A_TURN; i++) {
            CONF_CHECK(utofu_poll_mrq(common.hdl, 0, &notice) == UTOFU_ERR_NOT_FOUND, "a notice from nowhere");
        }
        atomic_fetch_add(&turns, 1);
        if (with_lock) {
            atomic_store(&lock, 0);
            usleep(1); /* another one has it next */
        }
    }
    return NULL;
}

/* How often the CPU was offered */
static unsigned poll_in_common(bool lock_them, unsigned long flags)
{
    pthread_t thread[POLLERS];

    conf_timeout(100);
    keep_to(1);
    with_lock = lock_them;
    conf_vcq_create(&common, 0, flags);
    for (int i = 0; i < POLLERS; i++) {
        CONF_CHECK(pthread_create(&thread[i], NULL, common_poller, NULL) == 0, "pthread_create");
    }
    for (int i = 0; i < POLLERS; i++) {
        CONF_CHECK(pthread_join(thread[i], NULL) == 0, "pthread_join");
    }
    conf_vcq_close(&common);
    return atomic_load(&offered);
}

/* Each time takes one of the kernel's shares, as who spins for the lock has the CPU then. */
CONF_TEST("idle", under_a_lock, 1, "threads that poll by turns under a lock of theirs keep their CPU")
{
    unsigned times = poll_in_common(true, 0);

    CONF_CHECK(times < ENOUGH, "the CPU was offered %u times with the lock in the hand", times);
}

CONF_TEST("idle", under_a_lock_thread_safe, 1, "the same with a thread-safe VCQ")
{
    unsigned times = poll_in_common(true, UTOFU_VCQ_FLAG_THREAD_SAFE);

    CONF_CHECK(times < ENOUGH, "the CPU was offered %u times with the lock in the hand", times);
}

CONF_TEST("idle", without_a_lock, 1, "threads that poll one VCQ without one go on offering theirs")
{
    unsigned times = poll_in_common(false, UTOFU_VCQ_FLAG_THREAD_SAFE);

    CONF_CHECK(times >= ENOUGH, "the CPU was offered %u times only", times);
}
