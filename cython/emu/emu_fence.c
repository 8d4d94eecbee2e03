/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_fence.c - a memory fence in every thread of every process of the job.
 *
 * Where two sides each store something and then look at what the other stored, both
 * need a full fence between the two, or neither may see the other.  When one of them
 * does that seldom (a process that goes to sleep, an MRQ that stops looking at a
 * lane) and the other for every notice, the seldom one has the fence executed for
 * all, by membarrier: what ran before it is seen by the caller's next look, what
 * runs after it sees what the caller had stored.
 */
#include "emu_internal.h"

#include <sys/syscall.h>
#include <unistd.h>

/* linux/membarrier.h, which old systems lack */
#define GLOBAL_EXPEDITED          2
#define REGISTER_GLOBAL_EXPEDITED 4

static bool membarrier_ok(int command)
{
#ifdef SYS_membarrier
    return syscall(SYS_membarrier, command, 0, 0) == 0;
#else
    (void)command;
    return false;
#endif
}

static bool registered;

void emu_fence_register(void)
{
    registered = membarrier_ok(REGISTER_GLOBAL_EXPEDITED);
}

void emu_fence_join(void)
{
    if (!registered) {
        /* before any notice of ours: who relies on a fence looks at it after it */
        atomic_store(&emu_g.control->unfenced, 1);
    }
}

bool emu_fence_reaches_all(void)
{
    return !atomic_load(&emu_g.control->unfenced);
}

bool emu_fence_all(void)
{
    return membarrier_ok(GLOBAL_EXPEDITED) && emu_fence_reaches_all();
}
