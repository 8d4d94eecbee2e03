/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_wire_thread.c - the thread that carries out operations of the wire
 * (emu_wire.c), and the list of VCQs that it serves.
 *
 * Locks: `engine.lock` (list of VCQs; before a VCQ's lock), `engine.kick` (leaf).
 */
#include "emu_job.h"
#include "emu_now.h"
#include "emu_wire.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define STEPS 8u /* between two looks at other VCQs */

static struct {
    pthread_mutex_t lock, kick;
    pthread_cond_t  kicked;
    bool            running, stop, kicks;
    pthread_t       thread;
    struct emu_wire *wires;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER, .kick = PTHREAD_MUTEX_INITIALIZER};

void emu_wire_kick(void)
{
    pthread_mutex_lock(&engine.kick);
    engine.kicks = true;
    pthread_cond_signal(&engine.kicked);
    pthread_mutex_unlock(&engine.kick);
}

static void *engine_main(void *arg)
{
    uint64_t turns = 0;

    (void)arg;
    for (;;) {
        uint64_t next = UINT64_MAX, now = emu_now();
        bool     busy = false;

        pthread_mutex_lock(&engine.lock);
        for (struct emu_wire *w = engine.wires; w != NULL; w = w->next) {
            atomic_store(&w->wanted, true);
            pthread_mutex_lock(&w->vcq->lock);
            atomic_store(&w->wanted, false);
            for (unsigned i = 0; (i < STEPS) && emu_wire_step(w, now, &next); i++) {
                busy = true;
            }
            pthread_mutex_unlock(&w->vcq->lock);
        }
        pthread_mutex_unlock(&engine.lock);
        if (busy) {
            /* Now and then the program gets far ahead.  Not often: where it spins on
             * the same CPU, each time costs what the scheduler gives it. */
            if (++turns % 256 == 0) {
                emu_sleep(20000);
            }
            continue;
        }
        pthread_mutex_lock(&engine.kick);
        if (engine.stop) {
            pthread_mutex_unlock(&engine.kick);
            return NULL;
        }
        if (!engine.kicks && (next == UINT64_MAX)) {
            pthread_cond_wait(&engine.kicked, &engine.kick);
        } else if (!engine.kicks) {
            uint64_t        wait = (next > now) ? next - now : 0;
            struct timespec ts;

            clock_gettime(CLOCK_MONOTONIC, &ts); /* the day's time may be set meanwhile */
            wait += (uint64_t)ts.tv_nsec;
            ts.tv_sec += (time_t)(wait / 1000000000u);
            ts.tv_nsec = (long)(wait % 1000000000u);
            pthread_cond_timedwait(&engine.kicked, &engine.kick, &ts);
        }
        engine.kicks = false;
        pthread_mutex_unlock(&engine.kick);
    }
}

/* (while nobody waits) */
static void kicked_init(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&engine.kicked, &attr);
    pthread_condattr_destroy(&attr);
}

static bool engine_start(void)
{
    sigset_t all, old;

    if (engine.running) {
        return true;
    }
    kicked_init();
    sigfillset(&all); /* the program's signals are for its threads; ours we need (emu_fault.c) */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    engine.stop    = false;
    engine.running = emu_thread_start(&engine.thread, engine_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return engine.running;
}

int emu_wire_init(struct emu_vcq *vcq)
{
    struct emu_wire *w = calloc(1, sizeof(*w));
    bool             ok;

    if (w == NULL) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    w->vcq    = vcq;
    w->strict = emu_g.env.strict;
    w->rng    = ((emu_g.env.seed ^ emu_coords_key(emu_g.coords)) + vcq->tni + 1) * 0x9e3779b97f4a7c15ull | 1;
    vcq->wire = w;
    pthread_mutex_lock(&engine.lock);
    ok = engine_start();
    if (ok) {
        w->next      = engine.wires;
        engine.wires = w;
    }
    pthread_mutex_unlock(&engine.lock);
    if (!ok) {
        vcq->wire = NULL;
        free(w);
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    return UTOFU_SUCCESS;
}

/* Carry out all that is left, at once (VCQ locked).  In the strict mode not what has not left: its program did not
 * wait for that, and the queue that it is in goes. */
static void drain(struct emu_wire *w)
{
    uint64_t next = UINT64_MAX;

    w->posted = w->strict ? w->sent : w->posted;
    for (uint64_t n = w->sent; n < w->posted; n++) {
        emu_wire_op(w, n)->held = false;
    }
    while (emu_wire_step(w, UINT64_MAX, &next)) {
    }
}

void emu_wire_fini(struct emu_vcq *vcq)
{
    struct emu_wire *w = vcq->wire;

    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&engine.lock);
    for (struct emu_wire **link = &engine.wires; *link != NULL; link = &(*link)->next) {
        if (*link == w) {
            *link = w->next;
            break;
        }
    }
    pthread_mutex_unlock(&engine.lock);
    pthread_mutex_lock(&vcq->lock);
    drain(w);
    vcq->wire = NULL;
    pthread_mutex_unlock(&vcq->lock);
    for (unsigned i = 0; i < EMU_WIRE_OPS; i++) {
        free(w->op[i].buf);
    }
    free(w);
}

void emu_wire_stop(void)
{
    bool ends = true;

    if (!engine.running) {
        return;
    }
    if (!emu_lock_soon(&engine.kick)) {
        return;
    }
    engine.stop  = true;
    engine.kicks = true;
    pthread_cond_signal(&engine.kicked);
    pthread_mutex_unlock(&engine.kick);
    if (!emu_lock_soon(&engine.lock)) {
        return; /* the engine waits for a VCQ that this very thread has locked */
    }
    for (struct emu_wire *w = engine.wires; w != NULL; w = w->next) {
        if (emu_lock_soon(&w->vcq->lock)) {
            drain(w);
            pthread_mutex_unlock(&w->vcq->lock);
        } else {
            ends = false;
        }
    }
    pthread_mutex_unlock(&engine.lock);
    if (ends) {
        pthread_join(engine.thread, NULL);
        engine.running = false;
    }
}

void emu_wire_forget(void)
{
    pthread_mutex_init(&engine.lock, NULL);
    pthread_mutex_init(&engine.kick, NULL);
    engine.running = engine.stop = engine.kicks = false;
    engine.wires                                = NULL;
}
