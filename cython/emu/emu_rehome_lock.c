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
#define ON_FAULT 1L /* of mlock2: what is there is locked, and what will be; what is not stays so */

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
    void  *try  = emu_map_unlocked(page, PROT_READ | PROT_WRITE, -1, 0);
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
    struct emu_rehome_locks *l  = arg;
    uintptr_t                lo = (m->begin > l->lo) ? m->begin : l->lo, hi = (m->end < l->hi) ? m->end : l->hi;

    if (!is_locked(lo)) {
        return true;
    }
    if ((l->num != 0) && (l->piece[l->num - 1].hi == lo)) {
        l->piece[l->num - 1].hi = hi;
        return true;
    }
    l->all = l->num < EMU_REHOME_LOCKS_MAX;
    if (l->all) {
        l->piece[l->num].lo   = lo;
        l->piece[l->num++].hi = hi;
    }
    return l->all;
}

bool emu_rehome_locks(uintptr_t lo, uintptr_t hi, struct emu_rehome_locks *l)
{
    l->lo  = lo;
    l->hi  = hi;
    l->num = 0;
    l->all = true;
    return emu_vma_each(lo, hi, see, l) && l->all;
}

void emu_rehome_lock_again(const struct emu_rehome_locks *l)
{
    for (unsigned i = 0; i < l->num; i++) {
        if (!lock(l->piece[i].lo, l->piece[i].hi)) {
            emu_message("memory at %#" PRIxPTR " (%zu bytes), which the program had locked, was moved and can't be "
                        "locked again: %s", l->piece[i].lo, (size_t)(l->piece[i].hi - l->piece[i].lo), strerror(errno));
        }
    }
}
