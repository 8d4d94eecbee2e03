/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_lock.c - memory that the program has locked (mlock, mlockall) is locked as before when it
 * has been moved, and when it is back (emu_rehome.c).
 *
 * The kernel tells which mappings are locked in /proc/self/smaps only, for which it looks at all pages
 * of the process.  But it refuses to age pages of such a mapping (MADV_COLD), which does nothing else:
 * so one page of each is tried.  That this is so is tried as well, and whether the process may still lock
 * memory, which it may have been allowed before it gave up a privilege.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_rehome.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLD /* Linux 5.4 */
#define MADV_COLD 20
#endif
#define PIECES_MAX 64u
#define ON_FAULT   1L /* of mlock2: what is there is locked, and what will be; what is not stays so */

/* What was locked of what moves now */
static struct {
    uintptr_t lo, hi;
    bool      all; /* there was room for all of it */
    unsigned  num;
    struct {
        uintptr_t lo, hi;
    } piece[PIECES_MAX];
} noted;

static bool is_locked(uintptr_t page)
{
    return (madvise((void *)page, (size_t)sysconf(_SC_PAGESIZE), MADV_COLD) != 0) && (errno == EINVAL);
}

/* By system calls themselves: sanitizers replace the function */
static bool lock(uintptr_t lo, uintptr_t hi)
{
    return syscall(SYS_mlock2, lo, hi - lo, ON_FAULT) == 0;
}

bool emu_rehome_can_lock_again(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void  *try  = emu_map_unlocked(NULL, page, PROT_READ | PROT_WRITE, -1, 0);
    bool   can;

    if (try == MAP_FAILED) {
        return false;
    }
    can = !is_locked((uintptr_t)try) && lock((uintptr_t)try, (uintptr_t)try + page) && is_locked((uintptr_t)try);
    munmap(try, page);
    return can;
}

static bool see(const struct emu_mapping *m, void *arg)
{
    uintptr_t lo = (m->begin > noted.lo) ? m->begin : noted.lo, hi = (m->end < noted.hi) ? m->end : noted.hi;

    (void)arg;
    if (!is_locked(lo)) {
        return true;
    }
    if ((noted.num != 0) && (noted.piece[noted.num - 1].hi == lo)) {
        noted.piece[noted.num - 1].hi = hi;
        return true;
    }
    noted.all = noted.num < PIECES_MAX;
    if (noted.all) {
        noted.piece[noted.num].lo   = lo;
        noted.piece[noted.num++].hi = hi;
    }
    return noted.all;
}

bool emu_rehome_note_locks(const struct emu_rehome_how *how, uintptr_t lo, uintptr_t hi)
{
    noted.lo  = lo;
    noted.hi  = hi;
    noted.num = 0;
    noted.all = true;
    return !how->locks || (emu_vma_each(lo, hi, see, NULL) && noted.all);
}

void emu_rehome_lock_again(void)
{
    for (unsigned i = 0; i < noted.num; i++) {
        if (!lock(noted.piece[i].lo, noted.piece[i].hi)) {
            emu_message("memory at %#" PRIxPTR " (%zu bytes), which the program had locked, was moved and can't be "
                        "locked again: %s", noted.piece[i].lo, (size_t)(noted.piece[i].hi - noted.piece[i].lo),
                        strerror(errno));
        }
    }
}
