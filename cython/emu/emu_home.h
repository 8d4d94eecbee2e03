/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_home.h - the memfd that moved memory is in (emu_rehome.c), and the slots that blocks have of it.
 *
 * All of it under mem_lock, or in a child that has only one thread yet.
 */
#ifndef EMU_HOME_H
#define EMU_HOME_H

#include "emu_internal.h"
#include "emu_vma.h"

#define EMU_HOME_SLOTS 4096u
#define EMU_HOME_PART  ((uint64_t)256 << 30) /* of the file: with few blocks the rest is not used, and peers do not map it */
#define EMU_HOME_MAX   ((uint64_t)64 << 30) /* of one block: twice the memory of a node of Fugaku */

struct emu_home_slot {
    uintptr_t first; /* page; the mappings say what else is there */
    uint32_t  refs;  /* registrations; 0: not all of it could be made private again */
    uint32_t  span;  /* it and those behind it that are its own, of a large block; 0: it is not used */
    bool      longer; /* something was there behind what went back */
    uintptr_t end;    /* of all that was put there */
    uint64_t  bytes;  /* that were put there, and were not seen to go back */
    uint64_t  took;  /* ns, to move what is there ... */
    uint64_t  since; /* ... when a registration came or went last (emu_now) */
};

extern struct emu_home {
    int              fd; /* -1: none yet, -2: it can't be made */
    uint64_t         dev, ino;
    unsigned         next, used; /* slots: where to look for a free one; how many are not */
    unsigned         waiting;    /* of them without a reference */
    unsigned         limit;      /* those from here on are not used yet */
    struct emu_home_slot slot[EMU_HOME_SLOTS];
} emu_home;

bool emu_home_open(void); /* false: there can be none */
int  emu_home_fd(void);   /* -1: the program has closed it, and its number may be another's */
void emu_home_forget(void);

/* The first of our mappings that ends after `after` and begins before `before`.  1: there is
 * one, 0: there is none, -1: nobody can say. */
int emu_home_mapping(uintptr_t after, uintptr_t before, struct emu_mapping *m);

/* So many at a time: where the kernel tells of them as text, each look takes all of it. */
struct emu_home_mappings {
    unsigned           num; /* 0: there is no more */
    struct emu_mapping m[64];
};

/* The first that end after `after`; false: nobody can say */
bool emu_home_mappings(uintptr_t after, struct emu_home_mappings *b);

uint64_t  emu_home_offset(unsigned i, uintptr_t at); /* where in the file a page of slot i is */
unsigned  emu_home_slot_at(uint64_t off);            /* that has this part of the file, or the first that nobody has */
bool      emu_home_slot_has(unsigned i, const struct emu_mapping *m); /* and the program has not moved it elsewhere */
uintptr_t emu_home_slot_end(unsigned i); /* no mapping of it is looked for from there on */

/* A new one for a block [lo, hi), without a reference; -1: there is none, *why_p says why */
int emu_home_slot_new(uintptr_t lo, uintptr_t hi, const char **why_p);
/* Pages [lo, hi) may be put there, too; it may become wider by that. */
bool emu_home_slot_reaches(unsigned i, uintptr_t lo, uintptr_t hi);

void emu_home_came(unsigned i, uintptr_t lo, uintptr_t hi); /* pages [lo, hi) were put there */
/* What is mapped is private again; more: the mapping goes on behind it. */
void emu_home_went(const struct emu_mapping *m, bool more);
/* The last reference has gone, or there never was one: it is free if nothing can be there, else it waits. */
void emu_home_unused(unsigned i);

/* The mapping is of a slot without a reference, or has grown out of one. */
bool emu_home_is_left_over(const struct emu_mapping *m);
/* Slots that wait and that nothing shows any more are free.  That takes a look at all mappings, whose number
 * may be that of the slots. */
void emu_home_leave(void);

#endif /* EMU_HOME_H */
