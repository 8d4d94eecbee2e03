/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_past.c - blocks that were moved for nothing again and again.
 *
 * A program that registers the same memory for each transfer, and deregisters it, is told from one
 * that does so now and then by its blocks' past: other blocks of the same program, which stay
 * registered, are moved as ever.  (affordable() in emu_rehome.c is about the program as a whole.)
 */
#include "emu_now.h"
#include "emu_rehome.h"

#define PLACES   256u        /* a power of two */
#define PATIENCE 128u        /* moves for nothing, one after the other */
#define PAUSE    1000000000u /* ns for which it is not moved then; twice that after the next one */
#define DOUBLED  6u          /* at most so often */

static struct past {
    uintptr_t lo, hi;
    uint64_t  until; /* ns (emu_now) */
    uint32_t  wasted;
} past[PLACES];

/* Where [lo, hi) is, or will be instead of another */
static struct past *place(uintptr_t lo, uintptr_t hi)
{
    return &past[((lo ^ (hi << 13)) * 0x9e3779b97f4a7c15ull) >> 56];
}

bool emu_rehome_is_vain(uintptr_t lo, uintptr_t hi)
{
    const struct past *p = place(lo, hi);

    return (p->wasted >= PATIENCE) && (p->lo == lo) && (p->hi == hi) && (emu_now() < p->until);
}

void emu_rehome_note(uintptr_t lo, uintptr_t hi, bool wasted)
{
    struct past *p = place(lo, hi);
    uint32_t     more;

    if ((p->lo != lo) || (p->hi != hi)) {
        if (!wasted) {
            return;
        }
        *p = (struct past){.lo = lo, .hi = hi};
    }
    p->wasted = wasted ? p->wasted + 1 : 0;
    if (p->wasted >= PATIENCE) {
        more     = p->wasted - PATIENCE;
        p->until = emu_now() + ((uint64_t)PAUSE << ((more < DOUBLED) ? more : DOUBLED));
    }
}
