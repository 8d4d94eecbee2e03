/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_swap.c - UTOFU_SWAP_PROTECT: registered memory is locked (4.3.2.5).
 *
 * Locks of the kernel don't count: munlock undoes them all, the program's as well.  So
 * each registration has a mark for each of its pages: did we lock it?  When it goes, its
 * marks go over to other registrations on the same pages; pages with a mark that are on
 * no other are unlocked.  What the program had locked before has none.  (What it locks
 * while the memory is registered can't be told from ours.)  mem_lock is held.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_modes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct range {
    uintptr_t    begin, end; /* whole pages */
    struct range *next;
    bool         ours[];     /* of each page */
};
static struct range *ranges;
static size_t        ours_bytes;

static uintptr_t page_size(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static void pages(uint64_t addr, uint64_t size, uintptr_t *begin_p, uintptr_t *end_p)
{
    uintptr_t page = page_size();

    *begin_p = (uintptr_t)addr & ~(page - 1);
    *end_p   = ((uintptr_t)(addr + size) + page - 1) & ~(page - 1);
}

/* The mark of a page in another registration that it is on: the one that is set, if any is;
 * NULL: it is on no other */
static bool *other_mark(const struct range *but, uintptr_t at, uintptr_t page)
{
    bool *mark = NULL;

    for (struct range *r = ranges; (r != NULL) && ((mark == NULL) || !*mark); r = r->next) {
        if ((r != but) && (at >= r->begin) && (at < r->end)) {
            mark = &r->ours[(at - r->begin) / page];
        }
    }
    return mark;
}

/* Pages that are locked already are not ours. */
static void leave_locked(struct range *r, uintptr_t page)
{
    char     path[EMU_OWN_PATH];
    FILE    *f     = fopen(emu_own_path("smaps", path), "re");
    char    *line  = NULL;
    size_t   size  = 0;
    uint64_t begin = 0, end = 0, b, e;

    while ((f != NULL) && (getline(&line, &size, f) > 0)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &b, &e) == 2) {
            begin = (b > r->begin) ? b : r->begin;
            end   = (e < r->end) ? e : r->end;
        } else if ((begin < end) && !strncmp(line, "VmFlags:", 8) && (strstr(line, " lo") != NULL)) {
            memset(&r->ours[(begin - r->begin) / page], 0, (end - begin) / page);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    free(line);
}

void emu_swap_add(uint64_t addr, uint64_t size)
{
    uintptr_t     page = page_size(), begin, end;
    struct range *r;

    if (!emu_g.env.mlock_memory) {
        return;
    }
    pages(addr, size, &begin, &end);
    r = malloc(sizeof(*r) + (end - begin) / page);
    if (r == NULL) {
        return;
    }
    r->begin = begin;
    r->end   = end;
    memset(r->ours, 1, (end - begin) / page);
    leave_locked(r, page);
    if (mlock((void *)begin, end - begin)) { /* as far as RLIMIT_MEMLOCK allows */
        memset(r->ours, 0, (end - begin) / page);
    }
    for (uintptr_t at = begin; at < end; at += page) {
        const bool *other = other_mark(r, at, page);
        bool       *mark  = &r->ours[(at - begin) / page];

        if ((other != NULL) && *other) {
            *mark = true;
        } else if (*mark) {
            ours_bytes += page;
        }
    }
    r->next = ranges;
    ranges  = r;
}

void emu_swap_remove(uint64_t addr, uint64_t size)
{
    uintptr_t      page = page_size(), begin, end, from;
    struct range **link = &ranges, *r;

    pages(addr, size, &begin, &end);
    while ((*link != NULL) && (((*link)->begin != begin) || ((*link)->end != end))) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        return;
    }
    r     = *link;
    *link = r->next;
    from  = begin; /* what is to be unlocked begins here */
    for (uintptr_t at = begin; at <= end; at += page) {
        bool *other = (at < end) ? other_mark(r, at, page) : NULL;
        bool  ours  = (at < end) && r->ours[(at - begin) / page];

        if (ours && (other == NULL)) {
            ours_bytes -= page;
            continue;
        }
        if (ours) {
            *other = true;
        }
        if (from < at) {
            munlock((void *)from, at - from);
        }
        from = at + page;
    }
    free(r);
}

size_t emu_swap_locked(void)
{
    return ours_bytes;
}

void emu_swap_forget(void)
{
    emu_left(ranges);
    ranges     = NULL; /* a child inherits no locks; what the list is in may be its parent's only */
    ours_bytes = 0;
}
