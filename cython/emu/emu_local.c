/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_local.c - memory of this process that was unmapped, or protected, though it is registered.
 *
 * A network interface reports it (TCQ_MEMORY, MRQ_LCL_MEMORY; MRQ_RMT_MEMORY, when the
 * process is the target as well).  A copy by the kernel fails,
 * and which side it was is asked then.  Before a copy of our own the strict mode asks,
 * for the price of a system call, whether it is mapped; elsewhere such a copy ends as any use of that memory would.
 */
#include "emu_internal.h"
#include "emu_vma.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

bool emu_local_is_there(const void *addr, size_t n)
{
    enum { PAGES = 512 };
    unsigned char in_core[PAGES];
    uintptr_t     page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)addr & ~(page - 1);
    uintptr_t     end = (uintptr_t)addr + n;

    while (at < end) {
        size_t k = (end - at < PAGES * page) ? end - at : PAGES * page;

        if (mincore((void *)at, k, in_core) && (errno == ENOMEM)) {
            return false;
        }
        at += k;
    }
    return true;
}

/* Could the kernel read it, or (written) write to it? */
static bool was_open(const void *addr, size_t n, bool written)
{
    struct emu_vma vma;
    bool           there = emu_vma_query((uintptr_t)addr, n, &vma);

    if (vma.unknown) {
        return emu_local_is_there(addr, n);
    }
    return there && (written ? vma.writable : vma.readable);
}

int emu_local_blame(int code, int local_code, const void *addr, size_t n, bool written)
{
    return ((code == UTOFU_ERR_MRQ_RMT_MEMORY) && !was_open(addr, n, written)) ? local_code : code;
}

bool emu_target_is_there(const struct emu_peer *peer, const struct emu_region *r, uint64_t off, size_t n)
{
    return !emu_g.env.strict || !peer->proc->self || emu_local_is_there((const void *)(r->base + off), n);
}
