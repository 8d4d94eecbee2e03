/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_home.c - the memfd that moved memory is in, and the slots that blocks have of it.
 *
 * The memfd is sparse.  Pages that hang together have a slot of it, far longer than what may be in
 * it, and as far as can be from the others, so that a mapping that grows (mremap) does not reach
 * another's.
 *
 * Nothing of the file is given back, and no slot is used again, but where all that was put there has been
 * seen to go back, or where /proc/self/maps says that nothing shows it.  To look at all mappings takes long
 * with thousands of blocks, so it is for where that is not known.
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
            emu_home.dev   = st.st_dev;
            emu_home.ino   = st.st_ino;
            emu_home.limit = EMU_HOME_PART / SLOT_SIZE;
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

static bool shown[SLOTS]; /* too much for the caller's stack, as `taken` and `room` below */

static bool see_slots(const struct emu_mapping *m, void *arg)
{
    (void)arg;
    uint64_t last = (m->off + (m->end - m->begin) - 1) / SLOT_SIZE;

    for (uint64_t i = m->off / SLOT_SIZE; (i <= last) && (i < SLOTS); i++) {
        shown[i] = true;
    }
    return true;
}

/* The slots that mappings reach into, wherever they are; false: nobody can say */
static bool slots_shown(void)
{
    memset(shown, 0, sizeof(shown));
    return emu_vma_each_of_file(emu_home.dev, emu_home.ino, 0, UINTPTR_MAX, see_slots, NULL);
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

static void slot_free(unsigned i)
{
    emu_home.slot[i].span = 0;
    emu_home.used--;
    emu_home.waiting--;
}

void emu_home_leave(void)
{
    bool     left;
    unsigned end;

    if ((emu_home.waiting == 0) || !slots_shown()) {
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
            slot_free(i);
        }
    }
}

void emu_home_came(unsigned i, uintptr_t lo, uintptr_t hi)
{
    struct emu_home_slot *slot = &emu_home.slot[i];

    slot->bytes += hi - lo;
    slot->end = (hi > slot->end) ? hi : slot->end;
}

void emu_home_went(const struct emu_mapping *m, bool more)
{
    unsigned i = emu_home_slot_at(m->off);

    if (emu_home_slot_has(i, m)) {
        struct emu_home_slot *slot = &emu_home.slot[i];
        uint64_t              n    = m->end - m->begin;

        slot->longer = slot->longer || more || (n > slot->bytes); /* the program may have made it so */
        slot->bytes -= (n < slot->bytes) ? n : slot->bytes;
    }
}

void emu_home_unused(unsigned i)
{
    if ((emu_home.slot[i].bytes == 0) && !emu_home.slot[i].longer) {
        slot_free(i);
    }
}

/* The end of what was put there is where it was put, and does not reach out of the slot. */
static bool stays_within(unsigned i)
{
    uintptr_t          end = emu_home.slot[i].end;
    struct emu_mapping m;

    return (end != 0) && (emu_home_mapping(end - 1, end, &m) == 1) && emu_home_slot_has(i, &m) &&
           (m.end <= emu_home_slot_end(i));
}

/* Slot i, of those that are not used, is not shown either, as what is before it has not grown that far. */
static bool not_reached(unsigned i)
{
    unsigned before = (i > 0) ? last_used(i - 1) : SLOTS;

    return (emu_home.waiting == 0) && ((before == SLOTS) || stays_within(before));
}

static bool     taken[SLOTS];
static uint16_t room[SLOTS]; /* slots between what it has and the next one that is taken */

/* A slot that is not taken, and so many in a row, and far from those that are; among equals, the one
 * that was left longest ago: somebody may be late with a put to it.  -1: there is none */
static int choose_of_those(unsigned span)
{
    unsigned n = emu_home.limit, run = SLOTS, most = 0;

    for (unsigned i = 0; i < n; i++) { /* what the one before it may grow by */
        room[i] = (uint16_t)(taken[i] ? 0 : run);
        run     = taken[i] ? 1 : run + 1;
    }
    run = 1;
    for (unsigned i = n; i-- > 0;) { /* and it itself */
        unsigned own = (run < span) ? 0 : run - span + 1;

        room[i] = (uint16_t)((room[i] < own) ? room[i] : own);
        run     = taken[i] ? 1 : run + 1;
        most    = (room[i] > most) ? room[i] : most;
    }
    for (unsigned k = 0; (most != 0) && (k < n); k++) {
        unsigned i = (emu_home.next + k) % n;

        if (!taken[i] && (room[i] >= most / 2)) {
            return (int)i;
        }
    }
    return -1;
}

static void take_used(void)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        for (unsigned k = 0; k < emu_home.slot[i].span; k++) {
            taken[i + k] = true;
        }
    }
}

static int choose(unsigned span)
{
    int i;

    memset(taken, 0, sizeof(taken));
    take_used();
    i = choose_of_those(span);
    if ((i < 0) || not_reached((unsigned)i)) {
        return i;
    }
    if (!slots_shown()) {
        return -1;
    }
    memcpy(taken, shown, sizeof(taken));
    take_used();
    return choose_of_those(span);
}

/* Where the kernel tells of mappings as text each of thousands more would make all that follows slower. */
static bool raise_limit(void)
{
    bool may = (emu_home.limit < SLOTS) && emu_vma_is_quick();

    emu_home.limit *= may ? 2 : 1;
    return may;
}

static unsigned span_of(uint64_t n)
{
    return (unsigned)((n + SLOT_ROOM + SLOT_SIZE - 1) / SLOT_SIZE);
}

int emu_home_slot_new(uintptr_t lo, uintptr_t hi, const char **why_p)
{
    unsigned span = span_of(hi - lo);
    bool     full = (emu_home.used >= emu_home.limit) && (emu_home.waiting == 0); /* no look at all mappings finds a place */
    int      i    = full ? -1 : choose(span);

    if ((i < 0) && (emu_home.waiting != 0)) {
        emu_home_leave();
        i = choose(span);
    }
    while ((i < 0) && raise_limit()) {
        i = choose(span);
    }
    if (i < 0) {
        *why_p = (emu_home.used >= emu_home.limit) ? "there are too many" : "there is no place that is known to be free";
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

    if ((hi - slot->first > EMU_HOME_MAX) || (i + span > next_used(i)) || !slots_shown()) {
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
