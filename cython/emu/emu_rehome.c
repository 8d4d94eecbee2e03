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
 *  - Nobody holds the old pages: nothing is pinned, there is no io_uring, no aio context, no device
 *    that could have them (emu_rehome_may.c).  What is locked is locked again (emu_rehome_lock.c).
 *  - A child has its own copy (fork): it makes it before the program goes on in it, and the
 *    parent waits for it; its other threads too, where they write there (emu_rehome_fork.c).  Of what
 *    the caller runs on, the parent makes it (emu_rehome_stack.c).
 *
 * Programs that register and deregister all the time stay without: see
 * emu_rehome_past.c.
 *
 * Whole pages are moved, with what else is on them (but see emu_rehome_against_edge).  Where in the
 * memfd: emu_home.c.
 */
#include "emu_internal.h"
#include "emu_home.h"
#include "emu_job.h"
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
#include <unistd.h>

#define WAITING_SHARE 8u                     /* slots are left when one in so many could be */
#define STAGS_MAX     65536u                 /* entries of STag tables looked through */
#define FORK_WAIT_MS  10000
#define CLOSED        "/proc is closed to the process"

static struct {
    int child[2]; /* pipe: a child closes it when its memory is its own */
} g = {.child = {-1, -1}};

static uintptr_t page_size(void)
{
    static uintptr_t size;

    size = size ? size : (uintptr_t)sysconf(_SC_PAGESIZE);
    return size;
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
        const struct emu_vcq *vcq = emu_g.vcqs[v].vcq;

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

bool emu_rehome_registered(uintptr_t lo, uintptr_t hi)
{
    uintptr_t from, to;

    next_registered(lo, hi, &from, &to);
    return from < hi;
}

/* --------------------------------------------------------------- there and back */

/* What of [lo, hi) is there, and not registered, becomes private; returns how many bytes of it are */
static uintptr_t go_back(uintptr_t lo, uintptr_t hi, struct emu_rehome_how how)
{
    struct emu_mapping m;
    uintptr_t          from, to, at, n = 0;
    sigset_t           all, old;
    bool               more;

    sigfillset(&all);
    for (at = lo; at < hi; at = to) {
        next_registered(at, hi, &from, &to);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        emu_rehome_hold();
        for (; (at < from) && !emu_rehome_not_alone(how.threads) && (emu_home_mapping(at, from, &m) == 1); at = m.end) {
            if (m.begin < at) {
                m.off += at - m.begin;
                m.begin = at;
            }
            more  = m.end > hi;
            m.end = (m.end < from) ? m.end : from;
            if (!emu_rehome_note_locks(&how, m.begin, m.end)) {
                continue; /* as what can't be held still */
            }
            if ((emu_rehome_is_stack(m.begin, m.end) || emu_rehome_runs_on(m.begin, m.end)) ?
                        emu_rehome_stack_out(emu_home_fd(), &m, how.threads) :
                        emu_rehome_move_out(emu_home_fd(), m, how.threads, true)) {
                n += m.end - m.begin;
                emu_home_went(&m, more);
            }
            emu_rehome_lock_again();
        }
        emu_rehome_release();
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    return n;
}

/* What could not go back with its registration */
static void go_back_late(struct emu_rehome_how how)
{
    struct emu_home_mappings b;
    uintptr_t                after = 0;

    while (emu_home_mappings(after, &b) && (b.num != 0)) {
        for (unsigned k = 0; k < b.num; k++) {
            after = b.m[k].end;
            if (emu_home_is_left_over(&b.m[k])) {
                go_back(b.m[k].begin, b.m[k].end, how);
            }
        }
    }
}

/* ------------------------------------------------------------------ registration */

/* The slot that has some of [lo, hi) already; -1: none, -2: nobody can say */
static int slot_find(uintptr_t lo, uintptr_t hi)
{
    struct emu_mapping m   = {.end = lo};
    int                ret = 0;

    while ((emu_home.used != 0) && ((ret = emu_home_mapping(m.end, hi, &m)) == 1)) {
        unsigned i = emu_home_slot_at(m.off);

        if (emu_home_slot_has(i, &m)) {
            return (int)i;
        }
    }
    return (ret < 0) ? -2 : -1;
}

/* What is to be registered, and whether it can be moved, which is asked once */
struct wish {
    uintptr_t   addr, end, lo, hi; /* lo, hi: whole pages that may be moved */
    bool        plain; /* it is known to be of a kind that can be moved, all of it */
    bool        asked, trimmed;
    const char *against;
    struct emu_rehome_how how;
};

static const char *against(struct wish *wish)
{
    uintptr_t page = page_size();

    if (!wish->asked) {
        wish->asked   = true;
        wish->against = !emu_rehome_affordable() ? "moving has taken too much time" :
                        emu_rehome_is_vain(wish->lo, wish->hi) ?
                                        "it was deregistered at once the last times" :
                        ((emu_home.fd >= 0) && (emu_home_fd() < 0)) ?
                                        "the program has closed the memfd" :
                                        emu_rehome_against(emu_g.env.rehome == EMU_REHOME_AUTO, &wish->how);
    }
    if ((wish->against == NULL) && wish->how.threads && !wish->trimmed) {
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
    uintptr_t   done;
    const char *why = against(wish);

    if (why != NULL) {
        return why;
    }
    lo = (lo > wish->lo) ? lo : wish->lo;
    hi = (hi < wish->hi) ? hi : wish->hi;
    if (lo >= hi) {
        return NULL;
    }
    if (!emu_home_slot_reaches(i, lo, hi)) {
        return "it is too large";
    }
    emu_rehome_stack_purge(emu_home.dev, emu_home.ino);
    why = emu_rehome_against_pages(lo, hi, wish->how.threads, wish->plain);
    if (why != NULL) {
        return why;
    }
    if (emu_rehome_registered(lo, hi)) {
        return "some of its pages is registered, and was not moved";
    }
    if (!emu_rehome_note_locks(&wish->how, lo, hi)) {
        return "it is locked in many pieces";
    }
    done = emu_rehome_callers_stack(lo, hi) ?
                   emu_rehome_stack_in(emu_home.fd, lo, hi, emu_home_offset(i, lo), wish->how.threads) :
                   emu_rehome_move_in(emu_home.fd, lo, hi, emu_home_offset(i, lo), wish->how.threads);
    emu_rehome_lock_again();
    emu_home_came(i, lo, done);
    if (done < hi) {
        emu_rehome_punch(emu_home_fd(), emu_home_offset(i, done), hi - done);
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
        ret = emu_home_mapping(at, hi, &m);
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
    uintptr_t          last = emu_home_slot_end(i);

    *w   = (struct emu_window){.begin = addr, .end = addr, .dev = emu_home.dev, .ino = emu_home.ino};
    last = (addr + size < last) ? addr + size : last;
    while (emu_home_mapping(m.end, addr + size, &m) == 1) {
        if (emu_home_slot_has(i, &m)) {
            run = ((m.begin == end) && (run != 0)) ? run : (m.begin > addr) ? m.begin : addr;
            end = m.end;
            to  = (end < last) ? end : last;
            if ((to > run) && (to - run > w->end - w->begin)) {
                w->begin = run;
                w->end   = to;
            }
        }
    }
    w->off = emu_home_offset(i, w->begin);
    return w->end > w->begin;
}

static int slot_new(struct wish *wish, const char **why_p)
{
    *why_p = (wish->hi - wish->lo > EMU_HOME_MAX) ? "it is too large" :
             (against(wish) != NULL)          ? wish->against :
             !emu_home_open()                     ? "there is no memfd" :
                                                NULL;
    if (*why_p != NULL) {
        return -1;
    }
    emu_rehome_begin();
    return emu_home_slot_new(wish->lo, wish->hi, why_p);
}

/* The same of a slot that was filled just now, from what is known of it: to look at all mappings
 * takes long where there are many */
static void slot_window_new(unsigned i, const struct wish *wish, struct emu_window *w)
{
    *w       = (struct emu_window){.dev = emu_home.dev, .ino = emu_home.ino};
    w->begin = (wish->addr > wish->lo) ? wish->addr : wish->lo;
    w->end   = (wish->end < wish->hi) ? wish->end : wish->hi;
    w->off   = emu_home_offset(i, w->begin);
}

static int get(struct wish *wish, struct emu_window *w, const char **why_p)
{
    int  i     = slot_find(wish->lo, wish->hi);
    bool fresh = i == -1;

    if (i == -2) {
        *why_p = CLOSED;
        return -1;
    }
    if (fresh) {
        i = slot_new(wish, why_p);
    }
    if (i < 0) {
        return -1;
    }
    if (fresh) { /* nothing of it is there */
        *why_p = move_gap((unsigned)i, wish->lo, wish->hi, wish);
    } else {
        slot_fill((unsigned)i, wish, why_p);
    }
    if (fresh && (*why_p == NULL)) {
        slot_window_new((unsigned)i, wish, w);
    } else if (!slot_window((unsigned)i, wish->addr, wish->end - wish->addr, w)) {
        if (emu_home.slot[i].refs == 0) {
            emu_home_unused((unsigned)i);
        }
        return -1;
    }
    emu_home.waiting -= emu_home.slot[i].refs++ == 0;
    return i;
}

int emu_rehome_get(const struct emu_vcq *vcq, uintptr_t addr, size_t size, bool plain, struct emu_window *w,
                   const char **why_p)
{
    uintptr_t   page = page_size();
    uint64_t    start;
    struct wish wish = {.addr = addr, .end = addr + size, .lo = addr & ~(page - 1),
                        .hi = (addr + size + page - 1) & ~(page - 1), .plain = plain};
    int         i;

    if (!vcq->rehome || (wish.hi <= wish.lo)) {
        *why_p = emu_g.env.strict                         ? "the strict mode leaves memory where it is"
                 : (emu_g.env.rehome == EMU_REHOME_OFF) ? "it is not to be"
                                                        : "its VCQ leaves memory where it is";
        return -1;
    }
    start = emu_now();
    i     = get(&wish, w, why_p);
    if (i >= 0) { /* to be refused is not what programs are to be kept from */
        emu_home.slot[i].since = emu_now();
        emu_home.slot[i].took += emu_home.slot[i].since - start;
    }
    return i;
}

static bool many_wait(void)
{
    return (emu_home.waiting != 0) && (emu_home.waiting * WAITING_SHARE >= emu_home.used);
}

void emu_rehome_put(int i, uintptr_t addr, size_t size)
{
    uintptr_t          page = page_size(), lo = addr & ~(page - 1), hi = (addr + size + page - 1) & ~(page - 1);
    uint64_t           start, undone = 0, served = 0;
    struct emu_mapping m;
    uintptr_t          back = 0;
    bool               may = false, vain;
    struct emu_rehome_how how = {.threads = true};

    if (emu_home.used == 0) {
        return;
    }
    start = emu_now();
    if ((i >= 0) || many_wait() || (emu_home_mapping(lo, hi, &m) != 0)) {
        may = emu_rehome_against(emu_g.env.rehome == EMU_REHOME_AUTO, &how) == NULL;
    }
    if (may) {
        back = go_back(lo, hi, how);
    }
    if (i >= 0) {
        struct emu_home_slot *slot = &emu_home.slot[i];

        undone = slot->took / slot->refs; /* its part of what is there */
        served = start - slot->since;
        slot->took -= undone;
        slot->since = start;
        if (--slot->refs == 0) {
            emu_home.waiting++;
            emu_home_unused((unsigned)i);
        }
    }
    /* what is not back may be memory of the file that nothing shows: the program has unmapped it */
    if (many_wait() || ((i >= 0) && (back < hi - lo))) {
        if (may && !how.threads) { /* or one of them may be unmapping it just now */
            go_back_late(how);
        }
        emu_home_leave();
    }
    vain = emu_rehome_spend(emu_now() - start + undone, served);
    if (i >= 0) {
        emu_rehome_note(lo, hi, vain);
    }
}

int emu_rehome_of(uint64_t dev, uint64_t ino, uint64_t off)
{
    unsigned i;

    if ((emu_home.fd < 0) || (dev != emu_home.dev) || (ino != emu_home.ino)) {
        return -1;
    }
    i = emu_home_slot_at(off);
    return (i < EMU_HOME_SLOTS) ? (int)i : -1;
}

/* -------------------------------------------------------------------------- fork */

void emu_rehome_fork_prepare(void)
{
    emu_rehome_hold();
    if (emu_home.used == 0) {
        return;
    }
    emu_rehome_stack_fork_prepare(emu_home.dev, emu_home.ino);
    if (pipe2(g.child, O_CLOEXEC)) {
        emu_vma_let_go(); /* for that there were two */
        if (pipe2(g.child, O_CLOEXEC)) {
            emu_message("fork: no pipe (%s): registered memory is not the child's own at once", strerror(errno));
            g.child[0] = g.child[1] = -1;
            return;
        }
    }
    emu_rehome_fork_hold(emu_home_fd(), emu_home.dev, emu_home.ino);
}

void emu_rehome_fork_parent(void)
{
    emu_rehome_fork_made();
    emu_rehome_stack_fork_parent();
    emu_rehome_release();
    if (g.child[0] >= 0) {
        struct pollfd closed = {g.child[0], POLLIN, 0};

        close(g.child[1]);
        /* the end of the pipe: the child has it all, or has ended, or there is none */
        while ((poll(&closed, 1, FORK_WAIT_MS) < 0) && (errno == EINTR)) {
        }
        close(g.child[0]);
        g.child[0] = g.child[1] = -1;
        emu_rehome_fork_let_go();
        emu_vma_keep();
    }
    if (emu_home.used != 0) {
        emu_rehome_stack_fork_done(emu_home.dev, emu_home.ino);
    }
}

/* All that is moved becomes private; false: nobody can say what there is */
static bool all_private(int fd)
{
    struct emu_home_mappings b;
    uintptr_t                after = 0;

    do {
        if (!emu_home_mappings(after, &b)) {
            return false;
        }
        for (unsigned i = 0; i < b.num; i++) {
            after = b.m[i].end;
            if (!emu_rehome_move_out(fd, b.m[i], false, false)) {
                /* what it wrote would be its parent's, too */
                emu_message("fork: no memory for %zu bytes of the child's own", (size_t)(b.m[i].end - b.m[i].begin));
                abort();
            }
        }
    } while (b.num != 0);
    return true;
}

void emu_rehome_fork_child(void)
{
    int fd;

    emu_rehome_fork_copy();
    emu_rehome_release(); /* the one thread that there is took it */
    emu_rehome_stack_fork_child();
    emu_freeze_fork_child();
    emu_procfs_fork_child();
    emu_vma_fork_child();
    emu_rehome_past_fork_child();
    emu_rehome_shared_fork_child();
    if (emu_home.fd < 0) {
        return;
    }
    if (g.child[0] >= 0) {
        close(g.child[0]); /* there may be no other descriptor to look with */
    }
    fd = emu_home_fd();
    if (!all_private(fd) && (emu_home.used != 0)) {
        emu_message("fork: /proc/self/maps can't be read, so registered memory can't be the child's own");
        abort();
    }
    if (fd >= 0) {
        close(fd);
    }
    if (g.child[1] >= 0) {
        close(g.child[1]);
    }
    emu_home_forget();
    g.child[0] = g.child[1] = -1;
}
