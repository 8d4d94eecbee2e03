/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_bounds.c - UTOFU_EMU_BOUNDS=page: a registration reaches as far as on the machine.
 *
 * The guide speaks of the region that was registered, and an operation beyond it is an error
 * (3.6, UTOFU_ERR_TCQ_STADD and others).  But the machine's driver, by its port to McKernel, knows
 * a region by its first page and the number of its pages, 64 KiB or 2 MiB each, and gives a second
 * region within them the STag of the first.  Programs that register less than they use work
 * there.  By default they fail here, at the byte where the guide says so.
 */
#include "emu_internal.h"
#include "emu_rehome.h"

#include <unistd.h>

#define MACHINE_PAGE ((uintptr_t)65536) /* the smaller one */

enum sort {
    SORT_OTHER,  /* alone it is what it is: constants, device memory, two files */
    SORT_OWN,    /* of the process alone, or was before it was moved (emu_rehome.c) */
    SORT_SHARED, /* one file, mapped by the program */
};

static enum sort sort_of(const struct emu_vma *vma)
{
    if (vma->plain || (vma->shared && (emu_rehome_of(vma->dev, vma->ino, 0) >= 0))) {
        return SORT_OWN;
    }
    return vma->shared ? SORT_SHARED : SORT_OTHER;
}

/* Is all of [lo, hi) one of that sort, and may be written to if that is asked? */
static bool all_of(enum sort sort, uintptr_t lo, uintptr_t hi, bool writable)
{
    struct emu_vma vma;

    return emu_vma_query(lo, hi - lo, &vma) && vma.readable && (vma.writable || !writable) && (sort_of(&vma) == sort);
}

/* May the page, next to [lo, hi), be added to it?  Of a file the whole is asked, as it is to be one
 * part of it.  Memory of the process may be moved then, and a page where the C library has its own
 * is not for that. */
static bool may_add(enum sort sort, uintptr_t page, uintptr_t lo, uintptr_t hi, size_t size, bool writable)
{
    if (sort == SORT_SHARED) {
        return all_of(sort, (page < lo) ? page : lo, (page < lo) ? hi : page + size, writable);
    }
    return all_of(sort, page, page + size, writable) && (emu_rehome_against_edge(page) == NULL);
}

void emu_bounds_widen(uintptr_t *addr, size_t *size, bool writable, bool down)
{
    uintptr_t      page = (uintptr_t)sysconf(_SC_PAGESIZE), lo, hi, from, to;
    struct emu_vma vma;
    enum sort      sort;

    if ((*addr + *size < *addr) || (*addr + *size > UINTPTR_MAX - MACHINE_PAGE) || !emu_vma_query(*addr, *size, &vma)) {
        return; /* who registers it says what is wrong */
    }
    sort = sort_of(&vma);
    lo   = *addr & ~(page - 1);
    hi   = (*addr + *size + page - 1) & ~(page - 1);
    from = *addr & ~(MACHINE_PAGE - 1);
    to   = (*addr + *size + MACHINE_PAGE - 1) & ~(MACHINE_PAGE - 1);
    while ((sort != SORT_OTHER) && (hi < to) && may_add(sort, hi, lo, hi, page, writable)) {
        hi += page;
    }
    while ((sort != SORT_OTHER) && down && (lo > from) && may_add(sort, lo - page, lo, hi, page, writable)) {
        lo -= page;
    }
    *addr = down ? lo : *addr;
    *size = hi - *addr;
}
