/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_lock.c - the two locks of the process, taken by threads of the program; and any, taken at the end.
 *
 * While a thread has one it is not cancelled, for what it calls (open, read, close, poll) are
 * cancellation points, and nobody would give the lock back, nor thaw what is frozen; and no
 * handler of a signal runs in it, for that may fork, which takes both.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_now.h"

#include <signal.h>

#define SOON_MS 100u

/* How the thread was before; of the one that has the lock */
static struct before {
    sigset_t mask;
    int      cancel;
} before_lock, before_mem_lock;

static struct before *before_of(const pthread_mutex_t *lock)
{
    return (lock == &emu_g.lock) ? &before_lock : &before_mem_lock;
}

void emu_lock(pthread_mutex_t *lock)
{
    /* those stay that an instruction raises: blocked, they would end the process */
    static const int raised[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    struct before    before;
    sigset_t         most;

    sigfillset(&most);
    for (unsigned i = 0; i < sizeof(raised) / sizeof(*raised); i++) {
        sigdelset(&most, raised[i]);
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before.cancel);
    pthread_sigmask(SIG_BLOCK, &most, &before.mask);
    pthread_mutex_lock(lock);
    *before_of(lock) = before;
}

bool emu_lock_soon(pthread_mutex_t *lock)
{
    for (unsigned n = 0; n < SOON_MS; n++) {
        if (pthread_mutex_trylock(lock) == 0) {
            return true;
        }
        emu_sleep(1000000);
    }
    return false;
}

void emu_unlock(pthread_mutex_t *lock)
{
    struct before before = *before_of(lock);

    pthread_mutex_unlock(lock);
    pthread_sigmask(SIG_SETMASK, &before.mask, NULL);
    pthread_setcancelstate(before.cancel, NULL);
}
