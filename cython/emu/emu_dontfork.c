/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_dontfork.c - strict mode: a child does not get the pages with registered
 * memory (6.1.4.1).
 *
 * The driver of the machine takes such pages out of a child; a child that touches
 * them ends.  Registrations are kept in a list, because a page is given back to
 * children when the last registration on it goes.  mem_lock is held.
 */
#include "emu_internal.h"
#include "emu_modes.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct range {
    uintptr_t    begin, end; /* whole pages */
    struct range *next;
};
static struct range *ranges;

static struct range pages(uint64_t addr, uint64_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    return (struct range){(uintptr_t)addr & ~(page - 1), ((uintptr_t)(addr + size) + page - 1) & ~(page - 1), NULL};
}

void emu_dontfork_add(uint64_t addr, uint64_t size)
{
    struct range *r = emu_g.env.strict ? malloc(sizeof(*r)) : NULL;

    if (r == NULL) {
        return;
    }
    *r      = pages(addr, size);
    r->next = ranges;
    ranges  = r;
    madvise((void *)r->begin, r->end - r->begin, MADV_DONTFORK);
}

/* Is there a registration on the page?  All pages up to *end_p have the same answer, which this makes less where
 * they have not. */
static bool is_held(uintptr_t at, uintptr_t *end_p)
{
    for (const struct range *r = ranges; r != NULL; r = r->next) {
        uintptr_t next = (at < r->begin) ? r->begin : r->end;

        if ((at < next) && (next < *end_p)) {
            *end_p = next;
        }
        if ((r->begin <= at) && (at < r->end)) {
            return true;
        }
    }
    return false;
}

void emu_dontfork_remove(uint64_t addr, uint64_t size)
{
    struct range gone = pages(addr, size), **link = &ranges;

    if (!emu_g.env.strict) {
        return;
    }
    while ((*link != NULL) && (((*link)->begin != gone.begin) || ((*link)->end != gone.end))) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        return;
    }
    struct range *r = *link;
    *link           = r->next;
    free(r);
    for (uintptr_t at = gone.begin, end; at < gone.end; at = end) {
        end = gone.end;
        if (!is_held(at, &end)) {
            madvise((void *)at, end - at, MADV_DOFORK);
        }
    }
}

void emu_dontfork_forget(void)
{
    ranges = NULL; /* the list may be on a page that the child does not have */
}
