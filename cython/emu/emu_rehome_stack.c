/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_stack.c - pages that a thread runs on, and that are moved all the same
 * (emu_rehome.c): arrays and variables on its stack, the first thread's or another.
 *
 *  - While its pages are exchanged, that thread runs elsewhere, on a stack of the library's.
 *  - What is moved does not grow.  So some of the first stack below it stays what it is, for the
 *    kernel to let that grow.
 *  - Around fork parent and child would run on the same pages, until the child has its own.  So
 *    those that the caller runs on are private from before fork until the parent goes on, which
 *    then has in the file what it has written meanwhile, and what peers have put there.
 *  - A child that is made by the system call itself, so that nothing of this is done, does not
 *    get these pages, so that it can't write over its parent's stack.  Its own grows into the gap,
 *    with zeros, and it ends when it returns by one of them.
 */
#include "emu_internal.h"
#include "emu_rehome.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ROOM       ((size_t)128 << 10) /* of the stack below the caller, that stays */
#define ENOUGH     ((size_t)1 << 20)   /* of addresses below it: with less, nothing is moved */
#define STACK_MAX  ((size_t)128 << 20) /* nothing else is so near to it, when it has no limit */
#define AROUND     ((uintptr_t)64 << 10) /* what fork and its handlers use, on either side of the caller */
#define PIECES_MAX 40u                   /* pages of that, and the ends */

#define LITTLE     "little is left of the stack"
#define STACKS_MAX 256u                  /* pieces of stacks that are not the first */

/* What is done elsewhere: all in here, as what is written to the stack meanwhile is lost */
static struct {
    ucontext_t back, there;
    void (*run)(void);
    int                fd;
    uintptr_t          lo, hi, done;
    uint64_t           off;
    struct emu_mapping mapping;
    bool               ok, threads;
    _Alignas(64) char stack[(size_t)64 << 10];
} away;

/* A mapping of the file that is private for as long as a fork takes */
struct piece {
    struct emu_mapping m;
    char              *shown; /* the same of the file, elsewhere; NULL: it could not be made private */
    char              *before; /* what was there */
};
static struct piece piece[PIECES_MAX];
static unsigned     pieces;
static bool         moved; /* some of the first stack is, or was */

/* Pages of stacks that were moved, not of the first one */
static struct {
    uintptr_t lo, hi;
} other[STACKS_MAX];
static unsigned others;

static uintptr_t page_size(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* ------------------------------------------------------------------ may it be moved */

/* The addresses that the stack of the first thread has, or may grow to */
static bool first_stack(uintptr_t *lo_p, uintptr_t *hi_p)
{
    static uintptr_t end; /* the same for good; a moved page has no such name */
    struct rlimit    limit;
    size_t           size;

    if ((end == 0) && !emu_vma_end_of("[stack]", &end)) {
        return false;
    }
    size  = !getrlimit(RLIMIT_STACK, &limit) && (limit.rlim_cur < STACK_MAX) ? (size_t)limit.rlim_cur : STACK_MAX;
    *hi_p = end;
    *lo_p = (end > size) ? end - size : 0;
    return true;
}

/* The kernel makes it larger down to here, as it does not know what is moved.  By a frame: before
 * Linux 5.0 the stack grows to near where it is in use only. */
static void __attribute__((noinline)) make_room(void)
{
    volatile char room[ROOM];

    for (size_t i = sizeof(room); i > 0; i = (i > 1024) ? i - 1024 : 0) {
        room[i - 1] = 0;
    }
    room[0] = 0;
}

/* The same below `at`, for a caller that does not run on it; others may.  The kernel reads there, for a
 * call that then fails, as there is no such way to change a mask: so it is an error, and no signal, where
 * the stack can't grow. */
static bool make_room_below(uintptr_t at)
{
    uintptr_t page = page_size();

    for (uintptr_t below = page; below <= ROOM; below += page) {
        if ((syscall(SYS_rt_sigprocmask, ~0L, at - below, NULL, 8L) != -1) || (errno != EINVAL)) {
            return false;
        }
    }
    return true;
}

bool emu_rehome_first_stack(uintptr_t lo, uintptr_t hi)
{
    uintptr_t begin, end;

    return first_stack(&begin, &end) && (lo < end) && (hi > begin);
}

/* Of the stack that the C library has made for the caller, which may run on another.  The first thread has none. */
static bool own_stack(uintptr_t lo, uintptr_t hi)
{
    static __thread struct {
        uintptr_t lo, hi;
        bool      asked;
    } own;
    pthread_attr_t attr;
    void          *at;
    size_t         n;

    if (!own.asked && !emu_rehome_on_first_stack() && !pthread_getattr_np(pthread_self(), &attr)) {
        if (!pthread_attr_getstack(&attr, &at, &n)) {
            own.lo = (uintptr_t)at;
            own.hi = (uintptr_t)at + n;
        }
        pthread_attr_destroy(&attr);
        own.asked = true;
    }
    return (lo < own.hi) && (hi > own.lo);
}

bool emu_rehome_callers_stack(uintptr_t lo, uintptr_t hi)
{
    return emu_rehome_first_stack(lo, hi) || emu_rehome_runs_on(lo, hi) || own_stack(lo, hi);
}

bool emu_rehome_is_stack(uintptr_t lo, uintptr_t hi)
{
    bool is = emu_rehome_first_stack(lo, hi);

    for (unsigned i = 0; i < others; i++) {
        is = is || ((lo < other[i].hi) && (hi > other[i].lo));
    }
    return is;
}

bool emu_rehome_on_first_stack(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    return emu_rehome_first_stack(here, here + 1);
}

const char *emu_rehome_against_stack(uintptr_t lo, uintptr_t hi)
{
    uintptr_t begin = 0, end = 0, here = (uintptr_t)__builtin_frame_address(0);
    bool      first = first_stack(&begin, &end) && (lo < end) && (hi > begin);

    if (first && ((here < begin) || (here >= end))) { /* somebody else runs on it, or will again */
        return (lo >= begin) && (lo - begin >= ENOUGH) && make_room_below(lo) ? NULL : LITTLE;
    }
    if ((first || emu_rehome_runs_on(lo, hi)) && (lo < (here & ~(page_size() - 1)))) {
        return "it is below what is in use of the stack";
    }
    if (!first) {
        return (others < STACKS_MAX) || !emu_rehome_callers_stack(lo, hi) ? NULL : "it is on a stack, and there are too many";
    }
    if (here - begin < ENOUGH) {
        return LITTLE;
    }
    make_room();
    return NULL;
}

/* -------------------------------------------------------------------- there and back */

static void run_away(void)
{
    away.run();
}

/* `run` runs while nobody runs on the caller's stack, nor handles a signal.  mem_lock is held. */
static void run_elsewhere(void (*run)(void))
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (getcontext(&away.there)) {
        abort(); /* it can't fail */
    }
    away.run                    = run;
    away.there.uc_stack.ss_sp   = away.stack;
    away.there.uc_stack.ss_size = sizeof(away.stack);
    away.there.uc_link          = &away.back;
    makecontext(&away.there, run_away, 0);
    swapcontext(&away.back, &away.there);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void move_in(void)
{
    away.done = emu_rehome_move_in(away.fd, away.lo, away.hi, away.off, away.threads);
    madvise((void *)away.lo, away.done - away.lo, MADV_DONTFORK);
}

uintptr_t emu_rehome_stack_in(int fd, uintptr_t lo, uintptr_t hi, uint64_t off, bool threads)
{
    away.fd      = fd;
    away.lo      = lo;
    away.hi      = hi;
    away.off     = off;
    away.threads = threads;
    run_elsewhere(move_in);
    if (emu_rehome_first_stack(lo, hi)) {
        moved = true;
    } else if ((away.done > lo) && (others < STACKS_MAX)) { /* asked for a deeper frame, it may not have been on it */
        other[others].lo   = lo;
        other[others++].hi = away.done;
    }
    return away.done;
}

static void move_out(void)
{
    away.ok = emu_rehome_move_out(away.fd, away.mapping, away.threads, true);
}

bool emu_rehome_stack_out(int fd, const struct emu_mapping *m, bool threads)
{
    away.fd      = fd;
    away.mapping = *m;
    away.threads = threads;
    run_elsewhere(move_out);
    return away.ok;
}

void emu_rehome_stack_purge(uint64_t dev, uint64_t ino)
{
    struct emu_mapping m;

    for (unsigned i = 0; i < others;) {
        if (emu_vma_of_file(dev, ino, other[i].lo, other[i].hi, &m) == 0) {
            other[i] = other[--others];
        } else {
            i++;
        }
    }
}

/* ------------------------------------------------------------------------------ fork */

static char *anonymous(size_t n)
{
    void *p = (void *)syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

    return (p == MAP_FAILED) ? NULL : p;
}

static void drop(char *p, size_t n)
{
    if (p != NULL) {
        syscall(SYS_munmap, p, n);
    }
}

/* A private copy takes its place.  The file stays mapped elsewhere, where a child does not get it;
 * by mremap, as there may be no descriptor of it any more. */
static bool lend(struct piece *p)
{
    size_t n    = p->m.end - p->m.begin;
    void  *dup  = (void *)syscall(SYS_mremap, p->m.begin, 0, n, MREMAP_MAYMOVE);
    char  *copy = anonymous(n);
    bool   held = false, ok = false;

    p->shown  = (dup == MAP_FAILED) ? NULL : dup;
    p->before = anonymous(n);
    if ((p->shown != NULL) && (copy != NULL) && (p->before != NULL) && !madvise(p->shown, n, MADV_DONTFORK) &&
        !syscall(SYS_mprotect, p->shown, n, (long)(PROT_READ | PROT_WRITE))) {
        held = away.threads && emu_freeze(p->m.begin, n);
        memcpy(p->before, p->shown, n);
        memcpy(copy, p->before, n);
        ok = !syscall(SYS_mprotect, copy, n, (long)p->m.prot) &&
             (syscall(SYS_mremap, copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, p->m.begin) != -1);
        if (held) {
            emu_thaw(p->m.begin, n);
        }
    }
    if (!ok) {
        drop(copy, n);
        drop(p->before, n);
        drop(p->shown, n);
        p->shown = p->before = NULL;
    }
    return ok;
}

/* What has changed goes to the file, byte by byte: what is beside it may be what a peer has put
 * there since.  Sanitizers find fault with whole stacks. */
__attribute__((noinline, no_sanitize("address", "thread"))) static void
put_changes(char *shown, const char *now, const char *before, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (now[i] != before[i]) {
            *(volatile char *)&shown[i] = now[i];
        }
    }
}

/* The file is in its place again. */
static bool take_back(struct piece *p)
{
    size_t n    = p->m.end - p->m.begin;
    bool   held = away.threads && emu_freeze(p->m.begin, n), ok;

    put_changes(p->shown, (const char *)p->m.begin, p->before, n);
    ok = !syscall(SYS_mprotect, p->shown, n, (long)p->m.prot) &&
         (syscall(SYS_mremap, p->shown, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, p->m.begin) != -1);
    if (held) {
        emu_thaw(p->m.begin, n);
    }
    if (ok && !emu_rehome_is_stack(p->m.begin, p->m.end)) {
        madvise((void *)p->m.begin, n, MADV_DOFORK);
    }
    drop(p->before, n);
    return ok;
}

static void lend_all(void)
{
    away.ok = true;
    for (unsigned i = 0; i < pieces; i++) {
        away.ok = lend(&piece[i]) && away.ok;
    }
}

static void take_all_back(void)
{
    away.ok = true;
    for (unsigned i = 0; i < pieces; i++) {
        if (piece[i].shown == NULL) {
            madvise((void *)piece[i].m.begin, piece[i].m.end - piece[i].m.begin, MADV_DOFORK);
        } else {
            away.ok = take_back(&piece[i]) && away.ok;
        }
    }
}

static void advise(uint64_t dev, uint64_t ino, uintptr_t lo, uintptr_t hi, int advice)
{
    struct emu_mapping m = {.end = lo};

    while (emu_vma_of_file(dev, ino, m.end, hi, &m) == 1) {
        madvise((void *)m.begin, m.end - m.begin, advice);
    }
}

/* Does a child get the rest of the stacks? */
static void rest_of_stacks(uint64_t dev, uint64_t ino, int advice)
{
    uintptr_t lo, hi;

    if (moved && first_stack(&lo, &hi)) {
        advise(dev, ino, lo, hi, advice);
    }
    for (unsigned i = 0; i < others; i++) {
        advise(dev, ino, other[i].lo, other[i].hi, advice);
    }
}

void emu_rehome_stack_fork_prepare(uint64_t dev, uint64_t ino)
{
    uintptr_t          here = (uintptr_t)__builtin_frame_address(0) & ~(page_size() - 1);
    uintptr_t          lo = here - AROUND, hi = here + page_size() + AROUND;
    struct emu_mapping m = {.end = lo};

    pieces = 0;
    while ((pieces < PIECES_MAX) && (emu_vma_of_file(dev, ino, m.end, hi, &m) == 1)) {
        uintptr_t begin = (m.begin > lo) ? m.begin : lo;

        if ((m.prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE)) {
            continue; /* nobody runs on it */
        }
        piece[pieces].m       = m;
        piece[pieces].m.begin = begin;
        piece[pieces].m.end   = (m.end < hi) ? m.end : hi;
        pieces++;
    }
    emu_rehome_stack_purge(dev, ino);
    rest_of_stacks(dev, ino, MADV_DOFORK);
    if (pieces == 0) {
        return;
    }
    away.threads = emu_rehome_other_threads() && emu_freeze_possible();
    run_elsewhere(lend_all);
    if (!away.ok) { /* better no such page than its parent's */
        emu_message("fork: no memory for what the caller runs on: the child ends");
        for (unsigned i = 0; i < pieces; i++) {
            if (piece[i].shown == NULL) {
                madvise((void *)piece[i].m.begin, piece[i].m.end - piece[i].m.begin, MADV_DONTFORK);
            }
        }
    }
}

bool emu_rehome_is_lent(uintptr_t lo, uintptr_t hi)
{
    bool is = false;

    for (unsigned i = 0; i < pieces; i++) {
        uintptr_t at = (uintptr_t)piece[i].shown;

        is = is || ((at != 0) && (lo < at + (piece[i].m.end - piece[i].m.begin)) && (hi > at));
    }
    return is;
}

void emu_rehome_stack_fork_parent(void)
{
    if (pieces != 0) {
        run_elsewhere(take_all_back);
        if (!away.ok) { /* peers would write what the program does not see */
            emu_message("fork: registered memory on the stack can't be mapped again: %s", strerror(errno));
            abort();
        }
        pieces = 0;
    }
}

void emu_rehome_stack_fork_done(uint64_t dev, uint64_t ino)
{
    rest_of_stacks(dev, ino, MADV_DONTFORK);
}

void emu_rehome_stack_fork_child(void)
{
    for (unsigned i = 0; i < pieces; i++) {
        drop(piece[i].before, piece[i].m.end - piece[i].m.begin);
    }
    pieces = others = 0;
    moved  = false;
}
