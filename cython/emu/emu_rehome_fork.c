/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_fork.c - a fork beside other threads: the child has moved memory (emu_rehome.c) as
 * it was when it was made, and writes nothing into its parent's.
 *
 * What is on these pages may be anything: a block's neighbours, what malloc keeps between blocks, a
 * FILE.  The C library writes to such in the child before any handler runs in it, and in the parent
 * other threads go on as soon as there is a child.  So
 *  - nobody in the parent writes there from before fork until the child has its copy: the pages are
 *    frozen (emu_freeze.c, emu_rehome_watch.c), or no other thread runs from where the child is made
 *    (emu_stop.c); peers' puts go on;
 *  - the child does not get these mappings.  It makes its copy when it first misses one (SIGSEGV),
 *    or in our handler.
 *
 * Without either, or a second thread, the child has the mappings, until our handler in it runs.
 */
#include "emu_home.h"
#include "emu_internal.h"
#include "emu_rehome.h"
#include "emu_stop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAPPINGS_MAX 4096u

static struct {
    bool               on;
    bool               frozen; /* by page; no: the others are stopped */
    unsigned           num;
    struct emu_mapping m[MAPPINGS_MAX];
    int                fd;
    pid_t              parent;
    bool               copied; /* in the child */
    struct sigaction   previous;
} held;

/* --------------------------------------------------------------------------- the child */

static ssize_t copy_out(const struct emu_mapping *m)
{
    size_t   n = m->end - m->begin;
    uint64_t off = m->off, from, to;
    ssize_t  k = 1;
    long     at = syscall(SYS_mmap, m->begin, n, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0L);

    if (at == -1) {
        return (errno == EEXIST) ? 0 : -1; /* another thread has mapped something else there */
    }
    while ((k > 0) && emu_rehome_data(held.fd, off, m->off + n, &from, &to)) {
        k   = syscall(SYS_pread64, held.fd, m->begin + (from - m->off), to - from, (long)from);
        off = from + ((k > 0) ? (uint64_t)k : 0);
    }
    return ((k > 0) && !syscall(SYS_mprotect, m->begin, n, (long)m->prot)) ? 0 : -1;
}

/* All of it at once: the parent waits for that.  Only system calls: it may run anywhere. */
static void copy_all(void)
{
    int err = errno;

    if (held.copied) {
        return;
    }
    held.copied = true;
    for (unsigned i = 0; i < held.num; i++) {
        if (copy_out(&held.m[i])) {
            emu_message("fork: no memory for %zu bytes of the child's own", (size_t)(held.m[i].end - held.m[i].begin));
            abort();
        }
    }
    if (held.frozen) {
        emu_rehome_watch_copied();
    }
    errno = err;
}

bool emu_rehome_fork_holds(uintptr_t at)
{
    for (unsigned i = 0; i < held.num; i++) {
        if ((at >= held.m[i].begin) && (at < held.m[i].end)) {
            return true;
        }
    }
    return false;
}

static void on_sigsegv(int sig, siginfo_t *info, void *context)
{
    if (emu_rehome_watch_pause(info)) {
        return;
    }
    if ((getpid() != held.parent) && !held.copied && emu_rehome_fork_holds((uintptr_t)info->si_addr)) {
        copy_all();
    } else if (held.previous.sa_flags & SA_SIGINFO) {
        held.previous.sa_sigaction(sig, info, context);
    } else if ((held.previous.sa_handler != SIG_DFL) && (held.previous.sa_handler != SIG_IGN)) {
        held.previous.sa_handler(sig);
    } else {
        signal(sig, SIG_DFL); /* it happens again and ends the process, as ever */
    }
}

/* Until mem_lock is given back */
static void unblock(void)
{
    sigset_t segv;

    sigemptyset(&segv);
    sigaddset(&segv, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &segv, NULL);
}

/* Is the caller's alternate stack, if it has one, on such a page itself? */
static bool alternate_stack_held(void)
{
    stack_t s;

    return sigaltstack(NULL, &s) || (!(s.ss_flags & SS_DISABLE) &&
                                     (emu_rehome_fork_holds((uintptr_t)s.ss_sp) ||
                                      emu_rehome_fork_holds((uintptr_t)s.ss_sp + s.ss_size - 1)));
}

/* It may be blocked, and another thread may have a handler of its own.  On an alternate stack where the program's
 * is, which may be about stacks that overflow. */
static bool handler_on(void)
{
    struct sigaction sa = {.sa_sigaction = on_sigsegv, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigemptyset(&sa.sa_mask);
    if (sigaction(SIGSEGV, NULL, &held.previous)) {
        return false;
    }
    sa.sa_flags |= alternate_stack_held() ? 0 : held.previous.sa_flags & SA_ONSTACK;
    if (sigaction(SIGSEGV, &sa, &held.previous)) {
        return false;
    }
    unblock();
    return true;
}

static void handler_off(void)
{
    struct sigaction sa;

    unblock(); /* one for us may wait, and nobody else is to have it */
    if (!sigaction(SIGSEGV, NULL, &sa) && (sa.sa_flags & SA_SIGINFO) && (sa.sa_sigaction == on_sigsegv)) {
        sigaction(SIGSEGV, &held.previous, NULL);
    }
}

/* ----------------------------------------------------------------------- around a fork */

/* The caller runs on it, or the kernel writes there for it: such pages it has in the child, too; or it
 * will write there when there is a child. */
static bool is_needed(const struct emu_mapping *m)
{
    return (emu_rehome_on_first_stack() && emu_rehome_first_stack(m->begin, m->end)) ||
           emu_rehome_runs_on(m->begin, m->end) || emu_rehome_is_control_block(m->begin, m->end) ||
           emu_rehome_is_lent(m->begin, m->end);
}

/* A child gets none of it from now on, or all of it again. */
static void advise(int advice)
{
    for (unsigned i = 0; i < held.num; i++) {
        madvise((void *)held.m[i].begin, held.m[i].end - held.m[i].begin, advice);
    }
}

static bool add(const struct emu_mapping *m, void *arg)
{
    (void)arg;
    /* No block is as long as a part of the file: another copy of the library, in this process, maps its peer's. */
    if (!is_needed(m) && (m->end - m->begin < EMU_HOME_PART)) {
        held.m[held.num++] = *m;
    }
    return held.num < MAPPINGS_MAX;
}

void emu_rehome_fork_hold(int fd, uint64_t dev, uint64_t ino)
{
    held.num    = 0;
    held.fd     = fd;
    held.parent = getpid();
    held.copied = false;
    if ((fd < 0) || !emu_rehome_other_threads()) {
        return;
    }
    emu_vma_each_of_file(dev, ino, 0, UINTPTR_MAX, add, NULL);
    if (held.num == 0) {
        return;
    }
    held.frozen = emu_freeze_by_page();
    held.on     = handler_on();
    if (held.on && !(held.frozen ? emu_rehome_watch_begin() : emu_stop_fork_begin())) {
        handler_off();
        held.on = false;
    }
    if (!held.on) {
        held.num = 0;
        return;
    }
    advise(MADV_DONTFORK);
    for (unsigned i = 0; held.frozen && (i < held.num); i++) { /* where another thread has unmapped it there is nothing to freeze */
        emu_freeze(held.m[i].begin, held.m[i].end - held.m[i].begin);
    }
}

void emu_rehome_fork_made(void)
{
    if (held.on && held.frozen) {
        emu_rehome_watch_forked();
    } else if (held.on) {
        emu_stop_fork_made();
    }
}

void emu_rehome_fork_let_go(void)
{
    if (!held.on) {
        return;
    }
    if (held.frozen) {
        emu_rehome_watch_stop();
    } else {
        emu_stop_fork_end();
    }
    advise(MADV_DOFORK);
    for (unsigned i = 0; held.frozen && (i < held.num); i++) {
        emu_thaw(held.m[i].begin, held.m[i].end - held.m[i].begin);
    }
    if (held.frozen) {
        /* Only now: a thread that ends calls madvise for its stack, which UCX has changed so that it
         * writes to UCX's own memory, on a page that was frozen perhaps. */
        emu_rehome_watch_end();
    }
    handler_off();
    held.num = 0;
    held.on  = false;
}

void emu_rehome_fork_copy(void)
{
    if (!held.on) {
        return;
    }
    copy_all();
    handler_off();
    held.num = 0;
    held.on  = false;
}
