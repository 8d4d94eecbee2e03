/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_thread.c - how the library's own threads begin, and how many there are.
 *
 * The C library, and more so a sanitizer, has work of its own in a thread before that thread's
 * function runs, some of it with the lock of its allocator.  A child that is forked just then has
 * that lock taken for ever (AddressSanitizer's, whose fork does not wait for it).  From where the
 * function runs a thread of ours says when it must not be forked beside (emu_rehome_hold).
 */
#include "emu_internal.h"

#include <errno.h>
#include <semaphore.h>

struct start {
    void *(*run)(void *);
    void *arg;
    sem_t runs;
};

static _Atomic long running;

long emu_threads_running(void)
{
    return atomic_load(&running);
}

void emu_threads_forget(void)
{
    atomic_store(&running, 0);
}

static void *begin(void *p)
{
    struct start *start       = p;
    void *(*const run)(void *) = start->run;
    void *const   arg          = start->arg;
    void         *ret;

    atomic_fetch_add(&running, 1);
    sem_post(&start->runs); /* `start` is not there any more */
    ret = run(arg);
    atomic_fetch_sub(&running, 1);
    return ret;
}

int emu_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    struct start start = {.run = run, .arg = arg};
    int          ret, cancel;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* the new thread uses what is on this stack */
    sem_init(&start.runs, 0, 0);
    ret = pthread_create(thread, NULL, begin, &start);
    while ((ret == 0) && sem_wait(&start.runs) && (errno == EINTR)) {
    }
    sem_destroy(&start.runs);
    pthread_setcancelstate(cancel, NULL);
    return ret;
}
