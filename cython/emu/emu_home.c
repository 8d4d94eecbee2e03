/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_home.c - the memfd that moved memory is in, and the slots that blocks have of it.
 *
 * The memfd is sparse.  Pages that hang together have a slot of it, far longer than what may be in
 * it, and as far as can be from the others, so that a mapping that grows (mremap) does not reach
 * another's.
 *
 * Nothing of the file is given back, and no slot is used again, but where /proc/self/maps says
 * that nothing shows it.
 */
#include "emu_home.h"
#include "emu_job.h"

#include "emu_rehome.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS      EMU_HOME_SLOTS
#define SLOT_SIZE  ((uint64_t)256 << 20) /* of addresses: peers map all of the file */
#define SLOT_FIRST ((uint64_t)64 << 20)  /* where in it the first page is; others come before and behind */
#define SLOT_ROOM  ((uint64_t)128 << 20) /* of its last, that stays for what is to come */

struct emu_home emu_home = {.fd = -1};

/* -------------------------------------------------------------------------- the file */

bool emu_home_open(void)
{
    struct stat st;

    if (emu_home.fd == -1) {
        emu_home.fd = emu_memfd("utofu-emu-home", SLOTS * SLOT_SIZE);
        if ((emu_home.fd >= 0) && fstat(emu_home.fd, &st)) {
            close(emu_home.fd);
            emu_home.fd = -1;
        }
        if (emu_home.fd >= 0) {
            emu_home.dev = st.st_dev;
            emu_home.ino = st.st_ino;
            emu_vma_keep();
        } else {
            emu_home.fd = -2;
        }
    }
    return emu_home.fd >= 0;
}

int emu_home_fd(void)
{
    struct stat st;

    return ((emu_home.fd >= 0) && !fstat(emu_home.fd, &st) && (st.st_dev == emu_home.dev) && (st.st_ino == emu_home.ino)) ? emu_home.fd :
                                                                                                            -1;
}

void emu_home_forget(void)
{
    memset(&emu_home, 0, sizeof(emu_home));
    emu_home.fd = -1;
}

/* ---------------------------------------------------------------------- its mappings */

int emu_home_mapping(uintptr_t after, uintptr_t before, struct emu_mapping *m)
{
    return emu_vma_of_file(emu_home.dev, emu_home.ino, after, before, m);
}

static bool add(const struct emu_mapping *m, void *arg)
{
    struct emu_home_mappings *b = arg;

    b->m[b->num++] = *m;
    return b->num < sizeof(b->m) / sizeof(*b->m);
}

bool emu_home_mappings(uintptr_t after, struct emu_home_mappings *b)
{
    b->num = 0;
    return emu_vma_each_of_file(emu_home.dev, emu_home.ino, after, UINTPTR_MAX, add, b);
}

static bool see_slots(const struct emu_mapping *m, void *arg)
{
    uint64_t last = (m->off + (m->end - m->begin) - 1) / SLOT_SIZE;

    for (uint64_t i = m->off / SLOT_SIZE; (i <= last) && (i < SLOTS); i++) {
        ((bool *)arg)[i] = true;
    }
    return true;
}

/* The slots that mappings reach into, wherever they are; false: nobody can say */
static bool slots_shown(bool shown[SLOTS])
{
    memset(shown, 0, SLOTS * sizeof(*shown));
    return emu_vma_each_of_file(emu_home.dev, emu_home.ino, 0, UINTPTR_MAX, see_slots, shown);
}

/* ------------------------------------------------------------------------ what is where */

uint64_t emu_home_offset(unsigned i, uintptr_t at)
{
    return i * SLOT_SIZE + SLOT_FIRST + at - emu_home.slot[i].first;
}

/* The last that is used of the first `at` + 1; SLOTS: none is.  What the last one has may have grown beyond all. */
static unsigned last_used(unsigned at)
{
    for (unsigned i = (at < SLOTS) ? at + 1 : SLOTS; i-- > 0;) {
        if (emu_home.slot[i].span != 0) {
            return i;
        }
    }
    return SLOTS;
}

unsigned emu_home_slot_at(uint64_t off)
{
    unsigned at = (unsigned)(off / SLOT_SIZE), i = last_used(at);

    return ((i < SLOTS) && (i + emu_home.slot[i].span > at)) ? i : at;
}

bool emu_home_slot_has(unsigned i, const struct emu_mapping *m)
{
    return (i < SLOTS) && (emu_home.slot[i].span != 0) && (emu_home_slot_at(m->off) == i) &&
           (m->off == emu_home_offset(i, m->begin));
}

uintptr_t emu_home_slot_end(unsigned i)
{
    return emu_home.slot[i].first + (emu_home.slot[i].span * SLOT_SIZE - SLOT_FIRST);
}

/* Where the slot after slot i begins that is used: what it has may have grown up to there. */
static unsigned next_used(unsigned i)
{
    do {
        i++;
    } while ((i < SLOTS) && (emu_home.slot[i].span == 0));
    return i;
}

/* ----------------------------------------------------------------------- to take and leave */

static void punch(unsigned i, unsigned end)
{
    emu_rehome_punch(emu_home_fd(), i * SLOT_SIZE, (end - i) * SLOT_SIZE);
}

bool emu_home_is_left_over(const struct emu_mapping *m)
{
    unsigned i = last_used((unsigned)(m->off / SLOT_SIZE));

    return (i < SLOTS) && (emu_home.slot[i].refs == 0);
}

void emu_home_leave(void)
{
    bool     shown[SLOTS], left;
    unsigned end;

    if ((emu_home.waiting == 0) || !slots_shown(shown)) {
        return;
    }
    for (unsigned i = 0; i < SLOTS; i = end) {
        end  = next_used(i);
        left = (emu_home.slot[i].span == 0) || (emu_home.slot[i].refs != 0);
        for (unsigned k = i; k < end; k++) {
            left = left || shown[k];
        }
        if (!left) {
            punch(i, end);
            emu_home.slot[i].span = 0;
            emu_home.used--;
            emu_home.waiting--;
        }
    }
}

/* A slot that is free, and so many in a row, and far from those that are not; among equals, the one
 * that was left longest ago: somebody may be late with a put to it.  -1: there is none */
static int choose(unsigned span)
{
    bool     taken[SLOTS];
    unsigned room[SLOTS], run, most = 0; /* slots between what it has and the next one that is taken */

    if (!slots_shown(taken)) {
        return -1;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        for (unsigned k = 0; k < emu_home.slot[i].span; k++) {
            taken[i + k] = true;
        }
    }
    run = SLOTS;
    for (unsigned i = 0; i < SLOTS; i++) { /* what the one before it may grow by */
        room[i] = taken[i] ? 0 : run;
        run     = taken[i] ? 1 : run + 1;
    }
    run = 1;
    for (unsigned i = SLOTS; i-- > 0;) { /* and it itself */
        unsigned own = (run < span) ? 0 : run - span + 1;

        room[i] = (room[i] < own) ? room[i] : own;
        run     = taken[i] ? 1 : run + 1;
        most    = (room[i] > most) ? room[i] : most;
    }
    for (unsigned k = 0; (most != 0) && (k < SLOTS); k++) {
        unsigned i = (emu_home.next + k) % SLOTS;

        if (!taken[i] && (room[i] >= most / 2)) {
            return (int)i;
        }
    }
    return -1;
}

static unsigned span_of(uint64_t n)
{
    return (unsigned)((n + SLOT_ROOM + SLOT_SIZE - 1) / SLOT_SIZE);
}

int emu_home_slot_new(uintptr_t lo, uintptr_t hi, const char **why_p)
{
    unsigned span = span_of(hi - lo);
    bool     full = (emu_home.used == SLOTS) && (emu_home.waiting == 0); /* no look at all mappings finds a place */
    int      i    = full ? -1 : choose(span);

    if ((i < 0) && (emu_home.waiting != 0)) {
        emu_home_leave();
        i = choose(span);
    }
    if (i < 0) {
        *why_p = (emu_home.used == SLOTS) ? "there are too many" : "there is no place that is known to be free";
        return -1;
    }
    punch((unsigned)i, (unsigned)i + span); /* the end of one that grew, and went */
    emu_home.next    = (unsigned)i + span;
    emu_home.slot[i] = (struct emu_home_slot){.first = lo, .span = span};
    emu_home.used++;
    emu_home.waiting++; /* until it has a reference */
    return i;
}

/* It takes those behind it as well, where they are free, so that up to hi can be put there. */
static bool widen(unsigned i, uintptr_t hi)
{
    struct emu_home_slot *slot = &emu_home.slot[i];
    unsigned          span = span_of(hi - slot->first);
    bool              shown[SLOTS];

    if ((hi - slot->first > EMU_HOME_MAX) || (i + span > next_used(i)) || !slots_shown(shown)) {
        return false;
    }
    for (unsigned k = slot->span; k < span; k++) {
        if (shown[i + k]) {
            return false;
        }
    }
    punch(i + slot->span, i + span);
    slot->span = span;
    return true;
}

bool emu_home_slot_reaches(unsigned i, uintptr_t lo, uintptr_t hi)
{
    const struct emu_home_slot *slot = &emu_home.slot[i];

    return (lo + SLOT_FIRST >= slot->first) &&
           ((hi <= slot->first + (slot->span * SLOT_SIZE - SLOT_ROOM)) || widen(i, hi));
}
