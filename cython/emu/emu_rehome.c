/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome.c - private memory that peers can map after all: when it is registered, its
 * pages are copied into a memfd, which is then mapped over them, at the same addresses.
 * Each is made private again when the last registration on it goes.
 *
 * The kernel is the only way into memory that can't be mapped, and what it copies becomes
 * visible in any order (emu_private.c).  Here a put is a store, as with memory that the
 * program maps from a memfd itself.
 *
 * That the program can't tell is a matter of conditions; where one does not hold the
 * memory stays as it is:
 *  - Nobody writes while the pages are copied: the process has no thread but the caller and
 *    our service thread, which takes mem_lock before it touches the program's memory, and
 *    emu_rehome_hold before its own, which may be on the same pages; or the pages are frozen
 *    (emu_freeze.c).  Signals are held back; nothing on the pages is registered already, so
 *    no peer writes there.
 *  - Nobody holds the old pages: nothing is pinned or locked, there is no io_uring, no aio
 *    context, no device that could have them (emu_rehome_may.c).
 *  - A child has its own copy (fork): it makes it before the program goes on in it, and the
 *    parent waits for it; its other threads too, where they write there (emu_rehome_fork.c).  Of what
 *    the caller runs on, the parent makes it (emu_rehome_stack.c).
 *
 * Programs that register and deregister all the time stay without: see affordable().
 *
 * Whole pages are moved, with what else is on them (but see emu_rehome_against_edge).  The memfd is
 * sparse.  Pages that hang together have a slot of it, far longer than what may be in it, and as far
 * as can be from the others, so that a mapping that grows (mremap) does not reach another's.
 *
 * Nothing of the file is given back, and no slot is used again, but where /proc/self/maps says
 * that nothing shows it.
 */
#include "emu_internal.h"
#include "emu_now.h"
#include "emu_rehome.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLOTS         256u
#define SLOT_SIZE     ((uint64_t)1 << 30) /* of addresses: peers map all of the file */
#define SLOT_FIRST    ((uint64_t)64 << 20)   /* where in it the first page is; others come before and behind */
#define SLOT_ROOM     ((uint64_t)512 << 20)  /* of its last GiB, that stays for what is to come */
#define HOME_MAX      ((uint64_t)8 << 30)    /* of one block: to copy takes 0.5 ms/MiB */
#define SPENT_FREE    500000000u             /* ns that moving may take, ... */
#define SPENT_SHARE   20u                    /* ... and this part of the time since the first */
#define SPENT_PAUSE   1000000000u            /* ns for which nothing is moved once it took more */
#define STAGS_MAX     65536u                 /* entries of STag tables looked through */
#define FORK_WAIT_MS  10000
#define CLOSED        "/proc is closed to the process"

struct slot {
    uintptr_t first; /* page, at SLOT_FIRST; the mappings say what else is there */
    uint32_t  refs;  /* registrations; 0: not all of it could be made private again */
    uint32_t  span;  /* it and those behind it that are its own, of a large block; 0: it is not used */
};

static struct {
    int         fd; /* -1: none yet, -2: it can't be made */
    uint64_t    dev, ino;
    uint64_t    begun, spent; /* ns: when the first was moved, and what moving has taken since */
    uint64_t    pause;        /* ns: nothing is moved until then */
    unsigned    next, used;    /* slots: where to look for a free one; how many are not */
    unsigned    waiting, left; /* of them without a reference; where to look for one */
    int         child[2]; /* pipe: a child closes it when its memory is its own */
    struct slot slot[SLOTS];
} home = {.fd = -1, .child = {-1, -1}};

/* To move pays when they are used for long.  A program that registers for each transfer
 * is not to spend its time here.  The pause: without it such a program would have one block
 * in so many moved, as the time passes. */
static bool affordable(void)
{
    uint64_t t = emu_now();

    if (home.spent > SPENT_FREE + (t - home.begun) / SPENT_SHARE) {
        home.pause = t + SPENT_PAUSE;
    }
    return t >= home.pause;
}

static uintptr_t page_size(void)
{
    static uintptr_t size;

    size = size ? size : (uintptr_t)sysconf(_SC_PAGESIZE);
    return size;
}

/* Where in the file a page of a slot is */
static uint64_t slot_offset(unsigned i, uintptr_t at)
{
    return i * SLOT_SIZE + SLOT_FIRST + at - home.slot[i].first;
}

/* ------------------------------------------------------------------ registrations */

/* The pages of [lo, hi) from which on some VCQ has registered memory, to where that
 * registration ends: a peer may be writing there.  [hi, hi): none.  What a VCQ has registered
 * changes under mem_lock, which is ours; the lock here is for VCQs that come and go. */
static void next_registered(uintptr_t lo, uintptr_t hi, uintptr_t *from_p, uintptr_t *to_p)
{
    unsigned  seen = 0;
    uintptr_t page = page_size();

    *from_p = *to_p = hi;
    emu_lock(&emu_g.lock);
    for (unsigned v = 0; v < EMU_MAX_VCQS; v++) {
        const struct emu_vcq *vcq = emu_g.vcq[v];

        for (uint32_t s = 0; (vcq != NULL) && (s < vcq->stag_fresh) && (seen <= STAGS_MAX); s++, seen++) {
            const struct emu_stag *e  = &vcq->stags[s];
            uintptr_t              at = e->addr & ~(page - 1), end = e->addr + (e->end - e->begin);

            if ((e->flags & EMU_STAG_VALID) && (at < *from_p) && (end > lo)) {
                *from_p = (at > lo) ? at : lo;
                *to_p   = (end + page - 1) & ~(page - 1);
            }
        }
    }
    emu_unlock(&emu_g.lock);
    if (seen > STAGS_MAX) { /* all of it, for all we know */
        *from_p = lo;
        *to_p   = hi;
    }
}

static bool registered(uintptr_t lo, uintptr_t hi)
{
    uintptr_t from, to;

    next_registered(lo, hi, &from, &to);
    return from < hi;
}

/* --------------------------------------------------------------- there and back */

static bool home_open(void)
{
    struct stat st;

    if (home.fd == -1) {
        home.fd = emu_memfd("utofu-emu-home", SLOTS * SLOT_SIZE);
        if ((home.fd >= 0) && fstat(home.fd, &st)) {
            close(home.fd);
            home.fd = -1;
        }
        if (home.fd >= 0) {
            home.dev = st.st_dev;
            home.ino = st.st_ino;
            emu_vma_keep();
        } else {
            home.fd = -2;
        }
    }
    return home.fd >= 0;
}

/* The descriptor of the file; -1: the program has closed it, and its number may be another's */
static int home_fd(void)
{
    struct stat st;

    return ((home.fd >= 0) && !fstat(home.fd, &st) && (st.st_dev == home.dev) && (st.st_ino == home.ino)) ? home.fd :
                                                                                                            -1;
}

/* The first of our mappings that ends after `after` and begins before `before`.  1: there is
 * one, 0: there is none, -1: nobody can say. */
static int next_mapping(uintptr_t after, uintptr_t before, struct emu_mapping *m)
{
    return emu_vma_of_file(home.dev, home.ino, after, before, m);
}

/* That has this part of the file, or the first that nobody has, if so */
static unsigned slot_at(uint64_t off)
{
    unsigned at = (unsigned)(off / SLOT_SIZE);

    for (unsigned i = at + 1; i-- > 0;) {
        if (home.slot[i].span != 0) {
            return (i + home.slot[i].span > at) ? i : at;
        }
    }
    return at;
}

static unsigned slot_of(const struct emu_mapping *m)
{
    return slot_at(m->off);
}

/* Where what is put there ends at most: behind is room for blocks beside it, and to grow */
static uintptr_t slot_last(unsigned i)
{
    return home.slot[i].first + (home.slot[i].span * SLOT_SIZE - SLOT_ROOM);
}

/* The program has not moved it elsewhere. */
static bool in_place(const struct emu_mapping *m)
{
    return (home.slot[slot_of(m)].span != 0) && (m->off == slot_offset(slot_of(m), m->begin));
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
    return emu_vma_each_of_file(home.dev, home.ino, 0, UINTPTR_MAX, see_slots, shown);
}

/* Where the slot after slot i begins that is used: what it has may have grown up to there. */
static unsigned slot_end(unsigned i)
{
    do {
        i++;
    } while ((i < SLOTS) && (home.slot[i].span == 0));
    return i;
}

/* What of [lo, hi) is there, and not registered, becomes private. */
static void go_back(uintptr_t lo, uintptr_t hi, bool threads)
{
    struct emu_mapping m;
    uintptr_t          from, to, at;
    sigset_t           all, old;

    sigfillset(&all);
    for (at = lo; at < hi; at = to) {
        next_registered(at, hi, &from, &to);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        emu_rehome_hold();
        for (; (at < from) && !emu_rehome_not_alone(threads) && (next_mapping(at, from, &m) == 1); at = m.end) {
            if (m.begin < at) {
                m.off += at - m.begin;
                m.begin = at;
            }
            m.end = (m.end < from) ? m.end : from;
            if (emu_rehome_is_stack(m.begin, m.end) || emu_rehome_runs_on(m.begin, m.end)) {
                emu_rehome_stack_out(home_fd(), &m, threads);
            } else {
                emu_rehome_move_out(home_fd(), m, threads, true);
            }
        }
        emu_rehome_release();
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
}

/* No registration needs the slot: it is free when nothing shows it any more.  What could not
 * go back with its registration does so here, unless there are threads: one of them may be
 * unmapping it just now. */
static void slot_leave(unsigned i, bool alone)
{
    struct emu_mapping m   = {0};
    unsigned           end = slot_end(i);
    bool               shown[SLOTS], left = false;

    while (alone && (next_mapping(m.end, UINTPTR_MAX, &m) == 1)) {
        if ((slot_of(&m) >= i) && (slot_of(&m) < end)) {
            go_back(m.begin, m.end, false);
        }
    }
    if (!slots_shown(shown)) {
        return;
    }
    for (unsigned k = i; k < end; k++) {
        left = left || shown[k];
    }
    if (!left) {
        emu_rehome_punch(home_fd(), i * SLOT_SIZE, (end - i) * SLOT_SIZE);
        home.slot[i].span = 0;
        home.used--;
        home.waiting--;
    }
}

/* ------------------------------------------------------------------ registration */

/* The slot that has some of [lo, hi) already; -1: none, -2: nobody can say */
static int slot_find(uintptr_t lo, uintptr_t hi)
{
    struct emu_mapping m   = {.end = lo};
    int                ret = 0;

    while ((home.used != 0) && ((ret = next_mapping(m.end, hi, &m)) == 1)) {
        if (in_place(&m)) {
            return (int)slot_of(&m);
        }
    }
    return (ret < 0) ? -2 : -1;
}

/* What is to be registered, and whether it can be moved, which is asked once */
struct wish {
    uintptr_t   addr, end, lo, hi; /* lo, hi: whole pages that may be moved */
    bool        asked, threads, trimmed;
    const char *against;
};

static const char *against(struct wish *wish)
{
    uintptr_t page = page_size();

    if (!wish->asked) {
        wish->asked   = true;
        wish->against = !affordable() ? "moving has taken too much time" :
                        ((home.fd >= 0) && (home_fd() < 0)) ?
                                        "the program has closed the memfd" :
                                        emu_rehome_against(emu_g.env.rehome == EMU_REHOME_AUTO, &wish->threads);
    }
    if ((wish->against == NULL) && wish->threads && !wish->trimmed) {
        const char *first = (wish->addr > wish->lo) ? emu_rehome_against_edge(wish->lo) : NULL;
        const char *last  = (wish->end < wish->hi) ? emu_rehome_against_edge(wish->hi - page) : NULL;

        wish->trimmed = true;
        wish->lo += (first != NULL) ? page : 0;
        wish->hi -= (last != NULL) ? page : 0;
        wish->against = (wish->lo < wish->hi) ? NULL : (first != NULL) ? first : last;
    }
    return wish->against;
}

/* Pages [lo, hi) of it are moved in where the slot has them.  Returns what speaks against it. */
static const char *move_gap(unsigned i, uintptr_t lo, uintptr_t hi, struct wish *wish)
{
    uintptr_t   first = home.slot[i].first, done;
    const char *why   = against(wish);

    if (why != NULL) {
        return why;
    }
    lo = (lo > wish->lo) ? lo : wish->lo;
    hi = (hi < wish->hi) ? hi : wish->hi;
    if (lo >= hi) {
        return NULL;
    }
    if ((hi > slot_last(i)) || (lo + SLOT_FIRST < first)) {
        return "it is too large";
    }
    emu_rehome_stack_purge(home.dev, home.ino);
    why = emu_rehome_against_pages(lo, hi, wish->threads);
    if (why != NULL) {
        return why;
    }
    if (registered(lo, hi)) {
        return "some of its pages is registered, and was not moved";
    }
    done = (emu_rehome_first_stack(lo, hi) || emu_rehome_runs_on(lo, hi)) ?
                   emu_rehome_stack_in(home.fd, lo, hi, slot_offset(i, lo), wish->threads) :
                   emu_rehome_move_in(home.fd, lo, hi, slot_offset(i, lo), wish->threads);
    if (done < hi) {
        emu_rehome_punch(home_fd(), slot_offset(i, done), hi - done);
        return "there is no memory, or it can't be held still";
    }
    return NULL;
}

/* What of it is not in the file yet */
static void slot_fill(unsigned i, struct wish *wish, const char **why_p)
{
    struct emu_mapping m;
    uintptr_t          at, gap, hi = wish->hi;
    int                ret;

    for (at = wish->lo; at < hi; at = m.end) {
        ret = next_mapping(at, hi, &m);
        if (ret < 0) {
            *why_p = CLOSED;
            return;
        }
        if (ret == 0) {
            m = (struct emu_mapping){.begin = hi, .end = hi};
        }
        gap = (m.begin > at) ? m.begin : at;
        if (at < gap) {
            *why_p = move_gap(i, at, gap, wish);
        }
    }
}

/* The longest piece of [addr, addr + size) that the slot has where it was put, not beyond it */
static bool slot_window(unsigned i, uintptr_t addr, size_t size, struct emu_window *w)
{
    struct emu_mapping m   = {.end = addr};
    uintptr_t          run = 0, end = 0, to; /* pieces that touch */
    uintptr_t          last = home.slot[i].first + (home.slot[i].span * SLOT_SIZE - SLOT_FIRST);

    *w   = (struct emu_window){.begin = addr, .end = addr, .dev = home.dev, .ino = home.ino};
    last = (addr + size < last) ? addr + size : last;
    while (next_mapping(m.end, addr + size, &m) == 1) {
        if (in_place(&m) && (slot_of(&m) == i)) {
            run = ((m.begin == end) && (run != 0)) ? run : (m.begin > addr) ? m.begin : addr;
            end = m.end;
            to  = (end < last) ? end : last;
            if ((to > run) && (to - run > w->end - w->begin)) {
                w->begin = run;
                w->end   = to;
            }
        }
    }
    w->off = slot_offset(i, w->begin);
    return w->end > w->begin;
}

/* A slot that is free, and so many in a row, and far from those that are not; among equals, the one
 * that was left longest ago: somebody may be late with a put to it.  -1: there is none */
static int slot_choose(unsigned span)
{
    bool     taken[SLOTS];
    unsigned room[SLOTS], run, most = 0; /* slots between what it has and the next one that is taken */

    if (!slots_shown(taken)) {
        return -1;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        for (unsigned k = 0; k < home.slot[i].span; k++) {
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
        unsigned i = (home.next + k) % SLOTS;

        if (!taken[i] && (room[i] >= most / 2)) {
            return (int)i;
        }
    }
    return -1;
}

static int slot_new(struct wish *wish, const char **why_p)
{
    unsigned span = (unsigned)((wish->hi - wish->lo + SLOT_ROOM + SLOT_SIZE - 1) / SLOT_SIZE);
    int      i;

    *why_p = (wish->hi - wish->lo > HOME_MAX) ? "it is too large" :
             (home.used == SLOTS)             ? "there are too many" :
             (against(wish) != NULL)          ? wish->against :
             !home_open()                     ? "there is no memfd" :
                                                NULL;
    if (*why_p != NULL) {
        return -1;
    }
    home.begun = home.begun ? home.begun : emu_now();
    i          = slot_choose(span);
    if (i < 0) {
        *why_p = "there is no place that is known to be free";
        return -1;
    }
    emu_rehome_punch(home.fd, (unsigned)i * SLOT_SIZE, span * SLOT_SIZE); /* the end of one that grew, and went */
    home.next    = (unsigned)i + span;
    home.slot[i] = (struct slot){wish->lo, 0, span};
    home.used++;
    home.waiting++; /* until it has a reference */
    return i;
}

static int get(struct wish *wish, struct emu_window *w, const char **why_p)
{
    int i = slot_find(wish->lo, wish->hi);

    if (i == -2) {
        *why_p = CLOSED;
        return -1;
    }
    if (i < 0) {
        i = slot_new(wish, why_p);
    }
    if (i < 0) {
        return -1;
    }
    slot_fill((unsigned)i, wish, why_p);
    if (!slot_window((unsigned)i, wish->addr, wish->end - wish->addr, w)) {
        if (home.slot[i].refs == 0) {
            slot_leave((unsigned)i, false);
        }
        return -1;
    }
    home.waiting -= home.slot[i].refs++ == 0;
    return i;
}

int emu_rehome_get(const struct emu_vcq *vcq, uintptr_t addr, size_t size, struct emu_window *w, const char **why_p)
{
    uintptr_t   page = page_size();
    uint64_t    start;
    struct wish wish = {.addr = addr, .end = addr + size, .lo = addr & ~(page - 1),
                        .hi = (addr + size + page - 1) & ~(page - 1)};
    int         i;

    if (!vcq->rehome || (wish.hi <= wish.lo)) {
        *why_p = "it is not to be";
        return -1;
    }
    start = emu_now();
    i     = get(&wish, w, why_p);
    if (i >= 0) { /* to be refused is not what programs are to be kept from */
        home.spent += emu_now() - start;
    }
    return i;
}

/* Slots that nobody needs any more, but that could not be left; while there are threads one
 * is looked at, and another the next time. */
static void leave_unused(bool alone)
{
    for (unsigned k = 0; (k < SLOTS) && (home.waiting != 0); k++) {
        unsigned i = ++home.left % SLOTS;

        if ((home.slot[i].span != 0) && (home.slot[i].refs == 0)) {
            slot_leave(i, alone);
            if (!alone) {
                break;
            }
        }
    }
}

void emu_rehome_put(int i, uintptr_t addr, size_t size)
{
    uintptr_t          page = page_size(), lo = addr & ~(page - 1), hi = (addr + size + page - 1) & ~(page - 1);
    uint64_t           start;
    struct emu_mapping m;
    bool               may = false, threads = true;

    if (home.used == 0) {
        return;
    }
    start = emu_now();
    if ((home.waiting != 0) || (i >= 0) || (next_mapping(lo, hi, &m) != 0)) {
        may = emu_rehome_against(emu_g.env.rehome == EMU_REHOME_AUTO, &threads) == NULL;
    }
    if (may) {
        go_back(lo, hi, threads);
    }
    if ((i >= 0) && (--home.slot[i].refs == 0)) {
        home.waiting++;
        slot_leave((unsigned)i, false);
    }
    leave_unused(may && !threads);
    home.spent += emu_now() - start;
}

int emu_rehome_of(uint64_t dev, uint64_t ino, uint64_t off)
{
    return ((home.fd >= 0) && (dev == home.dev) && (ino == home.ino)) ? (int)slot_at(off) : -1;
}

/* -------------------------------------------------------------------------- fork */

void emu_rehome_fork_prepare(void)
{
    emu_rehome_hold();
    if (home.used == 0) {
        return;
    }
    emu_rehome_stack_fork_prepare(home.dev, home.ino);
    if (pipe2(home.child, O_CLOEXEC)) {
        emu_vma_let_go(); /* for that there were two */
        if (pipe2(home.child, O_CLOEXEC)) {
            emu_message("fork: no pipe (%s): registered memory is not the child's own at once", strerror(errno));
            home.child[0] = home.child[1] = -1;
            return;
        }
    }
    emu_rehome_fork_hold(home_fd(), home.dev, home.ino);
}

void emu_rehome_fork_parent(void)
{
    emu_rehome_fork_made();
    emu_rehome_stack_fork_parent();
    emu_rehome_release();
    if (home.child[0] >= 0) {
        struct pollfd closed = {home.child[0], POLLIN, 0};

        close(home.child[1]);
        /* the end of the pipe: the child has it all, or has ended, or there is none */
        while ((poll(&closed, 1, FORK_WAIT_MS) < 0) && (errno == EINTR)) {
        }
        close(home.child[0]);
        home.child[0] = home.child[1] = -1;
        emu_rehome_fork_let_go();
        emu_vma_keep();
    }
    if (home.used != 0) {
        emu_rehome_stack_fork_done(home.dev, home.ino);
    }
}

void emu_rehome_fork_child(void)
{
    struct emu_mapping m = {0};
    int                fd, ret;

    emu_rehome_fork_copy();
    emu_rehome_release(); /* the one thread that there is took it */
    emu_rehome_stack_fork_child();
    emu_freeze_fork_child();
    emu_vma_fork_child();
    if (home.fd < 0) {
        return;
    }
    if (home.child[0] >= 0) {
        close(home.child[0]); /* there may be no other descriptor to look with */
    }
    fd = home_fd();
    while ((ret = next_mapping(m.end, UINTPTR_MAX, &m)) == 1) {
        if (!emu_rehome_move_out(fd, m, false, false)) {
            /* what it wrote would be its parent's, too */
            emu_message("fork: no memory for %zu bytes of the child's own", (size_t)(m.end - m.begin));
            abort();
        }
    }
    if ((ret < 0) && (home.used != 0)) {
        emu_message("fork: /proc/self/maps can't be read, so registered memory can't be the child's own");
        abort();
    }
    if (fd >= 0) {
        close(fd);
    }
    if (home.child[1] >= 0) {
        close(home.child[1]);
    }
    memset(&home, 0, sizeof(home));
    home.fd = home.child[0] = home.child[1] = -1;
}
