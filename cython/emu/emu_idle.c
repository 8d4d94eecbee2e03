/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_idle.c - see emu_idle.h.
 *
 * Only where a job has more threads that poll than CPUs: a CPU that is offered goes to whoever
 * is there, and somebody else's program that computes keeps it for its whole share.  (Two
 * processes beside such a program took 2 us a hop instead of 0.6.)  Even then others need not wait
 * for this CPU.  The kernel does not say; but when it is offered to them, it is away for longer
 * than the call takes.  So it is offered often as long as somebody takes it, and less and less
 * often while nobody does.
 *
 * Threads that take turns at a queue mostly do so under a lock of their own (a worker of UCP's
 * for several threads).  Who offers its CPU with that in its hand gives it to one that spins
 * for the lock until its share is over, and whom it waits for gets nothing.  Of a lock the
 * library sees that its threads change, and that none ever polls while another offers its CPU.
 */
#include "emu_idle.h"
#include "emu_internal.h"
#include "emu_now.h"

#include <sched.h>

/* Polls of a plain VCQ, some 6 ns each */
#define FIRST   4096u
#define OFTEN    128u      /* somebody takes it */
#define SELDOM (1u << 19)  /* nobody does */
#define AGAIN  (1u << 20)  /* there are CPUs enough */
#define TRIAL  (1u << 22)  /* those who poll seem to have a lock: whether it is still so */
#define TAKEN_NS 3000      /* away for so long: somebody took it */

/* Threads change at a queue that is handed over, too (set up by one, polled by another). */
#define TURNS     4u
#define TURNS_MAX 8u

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t  leaving;
static bool           have_key;

/* The process as which this thread was counted: its slot, and which owner of that it was */
static __thread uint64_t counted __attribute__((tls_model("initial-exec")));

static uint64_t this_process(void)
{
    return ((uint64_t)emu_g.gen << 32) | (emu_g.slot + 1);
}

static void thread_leaves(void *as)
{
    struct emu_proc_slot *slot;

    if (!atomic_load(&emu_g.ready) || ((uint64_t)(uintptr_t)as != this_process())) {
        return; /* that process is not there any more */
    }
    slot = &emu_g.control->slot[emu_g.slot];
    if (slot->gen == emu_g.gen) {
        atomic_fetch_sub_explicit(&slot->pollers, 1, memory_order_relaxed);
    }
}

static void make_key(void)
{
    have_key = pthread_key_create(&leaving, thread_leaves) == 0;
}

static void count_thread(void)
{
    uint64_t as = this_process();

    if (counted == as) {
        return;
    }
    counted = as;
    pthread_once(&once, make_key);
    if (have_key && (pthread_setspecific(leaving, (void *)(uintptr_t)as) == 0)) {
        atomic_fetch_add_explicit(&emu_g.control->slot[emu_g.slot].pollers, 1, memory_order_relaxed);
    }
}

void emu_idle_join(struct emu_control *control, uint32_t slot)
{
    uint32_t  high = atomic_load(&control->slots_high);
    cpu_set_t cpus;

    atomic_store(&control->slot[slot].pollers, 0);
    while ((high <= slot) && !atomic_compare_exchange_weak(&control->slots_high, &high, slot + 1)) {
    }
    if (sched_getaffinity(0, sizeof(cpus), &cpus)) {
        return; /* more CPUs than are told apart */
    }
    for (unsigned cpu = 0; (cpu < EMU_MAX_CPUS) && (cpu < CPU_SETSIZE); cpu++) {
        if (CPU_ISSET(cpu, &cpus)) {
            atomic_fetch_or(&control->cpus[cpu / 64], (uint64_t)1 << (cpu % 64));
        }
    }
}

/* A process counts even if it never polls: it may look at its memory instead. */
static bool crowded(void)
{
    struct emu_control *c     = emu_g.control;
    uint32_t            slots = atomic_load_explicit(&c->slots_high, memory_order_relaxed);
    unsigned            cpus = 0, threads = 0;

    for (unsigned i = 0; i < EMU_MAX_CPUS / 64; i++) {
        cpus += (unsigned)__builtin_popcountll(atomic_load_explicit(&c->cpus[i], memory_order_relaxed));
    }
    for (uint32_t i = 0; (i < slots) && (i < EMU_MAX_PROCS) && (threads <= cpus); i++) {
        if (atomic_load_explicit(&c->slot[i].state, memory_order_relaxed) == EMU_SLOT_LIVE) {
            uint32_t pollers = atomic_load_explicit(&c->slot[i].pollers, memory_order_relaxed);
            threads += (pollers > 1) ? pollers : 1;
        }
    }
    return (cpus != 0) && (threads > cpus);
}

/* Whether somebody took the CPU */
static bool offer(struct emu_idle *idle)
{
    const uintptr_t me      = (uintptr_t)&counted;
    bool            another = atomic_exchange_explicit(&idle->who, me, memory_order_relaxed) != me;
    uint32_t        turns;
    uint64_t        away;

    atomic_store_explicit(&idle->spent, 0, memory_order_relaxed);
    away = emu_now();
    sched_yield();
    away = emu_now() - away;
    if ((atomic_load_explicit(&idle->spent, memory_order_relaxed) != 0) ||
        (atomic_load_explicit(&idle->who, memory_order_relaxed) != me)) {
        atomic_store_explicit(&idle->met, 1, memory_order_relaxed);
    }
    if (away < TAKEN_NS) {
        return false;
    }
    turns = atomic_load_explicit(&idle->turns, memory_order_relaxed);
    if (another) {
        turns += (turns < TURNS_MAX) ? 1 : 0;
    } else {
        turns -= (turns >= TURNS) ? 1 : 0; /* it has polled alone for some time */
    }
    atomic_store_explicit(&idle->turns, turns, memory_order_relaxed);
    return true;
}

/* Whether those who poll seem to do so under a lock of theirs */
static bool under_a_lock(const struct emu_idle *idle)
{
    return (atomic_load_explicit(&idle->turns, memory_order_relaxed) >= TURNS) &&
           !atomic_load_explicit(&idle->met, memory_order_relaxed);
}

EMU_COLD void emu_idle(struct emu_idle *idle, uint32_t polls)
{
    uint32_t spent = atomic_load_explicit(&idle->spent, memory_order_relaxed) + polls;
    uint32_t after = atomic_load_explicit(&idle->after, memory_order_relaxed);

    if (spent < ((after == 0) ? FIRST : after)) {
        atomic_store_explicit(&idle->spent, spent, memory_order_relaxed);
        return;
    }
    count_thread();
    if (!crowded()) {
        after = AGAIN;
    } else if (offer(idle)) {
        after = under_a_lock(idle) ? TRIAL : OFTEN;
    } else {
        after = (after < FIRST) ? FIRST : (after < SELDOM) ? 2 * after : SELDOM;
    }
    atomic_store_explicit(&idle->after, after, memory_order_relaxed);
    atomic_store_explicit(&idle->spent, 0, memory_order_relaxed);
}
