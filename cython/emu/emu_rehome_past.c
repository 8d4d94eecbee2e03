/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_past.c - memory that was moved for nothing again and again.
 *
 * To move pays when it is used for long.  A program that registers for each transfer is not to spend its time
 * with that: what a move took counts when it is undone soon, for the program as a whole.
 *
 * A program that registers the same memory for each transfer, and deregisters it, is told from one
 * that does so now and then by its blocks' past: other blocks of the same program, which stay
 * registered, are moved as ever.
 */
#include "emu_now.h"
#include "emu_rehome.h"

#include <string.h>

#define SPENT_FREE  500000000u  /* ns that moves may take that were for nothing, ... */
#define SPENT_SHARE 20u         /* ... and this part of the time since the first */
#define SPENT_DEBT  1000000000u /* ns beyond that that are remembered */
#define SPENT_PAUSE 1000000000u /* ns for which nothing is moved once it took more */

static struct {
    uint64_t begun, spent; /* ns: when the first was moved, and what has been for nothing since */
    uint64_t pause;        /* ns: nothing is moved until then */
} all;

void emu_rehome_begin(void)
{
    all.begun = all.begun ? all.begun : emu_now();
}

/* The pause: without it such a program would have one block in so many moved, as the time passes. */
bool emu_rehome_affordable(void)
{
    uint64_t t = emu_now();

    if (all.spent > SPENT_FREE + (t - all.begun) / SPENT_SHARE) {
        all.pause = t + SPENT_PAUSE;
    }
    return t >= all.pause;
}

bool emu_rehome_spend(uint64_t took, uint64_t served)
{
    uint64_t most = SPENT_FREE + (emu_now() - all.begun) / SPENT_SHARE + SPENT_DEBT;

    all.spent += (took > served / SPENT_SHARE) ? took - served / SPENT_SHARE : 0;
    all.spent = (all.spent < most) ? all.spent : most;
    return took > served / SPENT_SHARE;
}

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

void emu_rehome_past_fork_child(void)
{
    memset(&all, 0, sizeof(all));
}
