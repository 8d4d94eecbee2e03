/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_last_thread.c - the program's first thread ends by pthread_exit, and its last one ends some day.
 *
 * With the last thread of a process the C library calls exit(0).  It counts the threads of this library
 * as well, which end at exit only: so the helper thread looks, once the first thread has ended, which
 * a destructor of its own data tells, and calls exit(0) when none but ours is left.
 */
#include "emu_job.h"
#include "emu_service.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_key_t key;
static bool          have_key;
static _Atomic bool  ended;

static void first_ends(void *arg)
{
    (void)arg;
    atomic_store(&ended, true);
    emu_service_wake();
}

/* In the first thread, where the program is linked with the library, or loads it from there; of one that
 * another thread loads it from nothing is known, and it goes on for ever. */
static void __attribute__((constructor)) watch_first(void)
{
    have_key = (syscall(SYS_gettid) == getpid()) && (pthread_key_create(&key, first_ends) == 0);
    if (have_key) {
        pthread_setspecific(key, &key);
    }
}

void emu_last_thread_forked(void)
{
    atomic_store(&ended, false);
    if (have_key) {
        pthread_setspecific(key, &key); /* the one that forked is the first one here */
    }
}

bool emu_last_thread_watched(void)
{
    return atomic_load(&ended);
}

void emu_last_thread_look(void)
{
    if (atomic_load(&ended) && emu_own_threads_ended(emu_threads_running())) {
        exit(0);
    }
}
