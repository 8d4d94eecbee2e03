/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome.h - what the files of emu_rehome.c share: may memory be moved, and how it is
 * held still meanwhile.
 */
#ifndef EMU_REHOME_H
#define EMU_REHOME_H

#include "emu_internal.h"
#include "emu_vma.h"

#include <signal.h>

/* emu_rehome_may.c: what speaks against moving memory of this process; NULL: nothing.  threads_ok:
 * UTOFU_EMU_REHOME allows to do it beside threads. */
struct emu_rehome_how {
    bool threads; /* there are other threads, so memory has to be frozen */
    bool locks;   /* the program has locked memory, so what of it is moved has to be locked again */
};
const char *emu_rehome_against(bool threads_ok, struct emu_rehome_how *how);
/* The same of the pages [lo, hi); plain: they are known to be of a kind that can be moved */
const char *emu_rehome_against_pages(uintptr_t lo, uintptr_t hi, bool threads, bool plain);
bool        emu_rehome_other_threads(void);

/* One page of which not all is registered, beside other threads: what else may be on it? */
const char *emu_rehome_against_edge(uintptr_t page);
/* What the C library, and the kernel, have of the caller is on these pages. */
bool emu_rehome_is_control_block(uintptr_t lo, uintptr_t hi);

/* The caller's stack is on these pages, or will be. */
bool emu_rehome_runs_on(uintptr_t lo, uintptr_t hi);

/* emu_rehome_lock.c: before [lo, hi) moves, what of it is locked is noted; false: nobody can say, or it is
 * too many pieces.  After it, that is locked again.  mem_lock is held.  (Nothing is allocated, and little is on
 * the caller's stack, which may be what moves.) */
bool emu_rehome_can_lock_again(void); /* and tell what is locked */
bool emu_rehome_note_locks(const struct emu_rehome_how *how, uintptr_t lo, uintptr_t hi);
void emu_rehome_lock_again(void);

/* emu_rehome_move.c: no thread was counted, but one of ours has begun since. */
bool emu_rehome_not_alone(bool threads);
/* Copied to off of the file, which is mapped over it; between emu_rehome_hold and emu_rehome_release. */
bool emu_rehome_move_chunk(int fd, uintptr_t at, size_t n, uint64_t off, bool threads);
/* Pages [lo, hi) go to off of the file, so much at a time, and only what is there of large ones.  Returns
 * where it ended. */
uintptr_t emu_rehome_move_in(int fd, uintptr_t lo, uintptr_t hi, uint64_t off, bool threads);
/* A mapping of the file is replaced by a private copy, from its begin on; fd -1: there is no
 * descriptor of the file any more.  ours: the file gives the memory back.  No signal handler may
 * run, and emu_rehome_hold is needed, or there is no other thread. */
bool emu_rehome_move_out(int fd, struct emu_mapping m, bool threads, bool ours);
bool emu_rehome_punch(int fd, uint64_t off, uint64_t n); /* the memory is given back, and it is zero */
/* The next part of [off, end) of the file that has memory, if not all of it; what lies between is
 * zero.  false: there is no more.  System calls only. */
bool emu_rehome_data(int fd, uint64_t off, uint64_t end, uint64_t *from_p, uint64_t *to_p);

/* emu_rehome.c: something on pages [lo, hi) is registered, so that a peer may be writing there.  mem_lock is held. */
bool emu_rehome_registered(uintptr_t lo, uintptr_t hi);

/* emu_rehome_past.c: the first of all moves; may there be one more, for what those took that were for nothing?; one
 * that took so long served for so long, all ns: was it for nothing?  mem_lock is held. */
void emu_rehome_begin(void);
bool emu_rehome_affordable(void);
bool emu_rehome_spend(uint64_t took, uint64_t served);
void emu_rehome_past_fork_child(void);
/* Pages [lo, hi) are not to be moved now, since that was for nothing the last
 * times; they were moved, and are private again: was that for nothing?  mem_lock is held. */
bool emu_rehome_is_vain(uintptr_t lo, uintptr_t hi);
void emu_rehome_note(uintptr_t lo, uintptr_t hi, bool wasted);

/* emu_rehome_shared.c: what was moved is not the child's registration */
void emu_rehome_shared_fork_child(void);

/* emu_rehome_stack.c: does it speak against moving [lo, hi) that it is a stack?  NULL: no */
const char *emu_rehome_against_stack(uintptr_t lo, uintptr_t hi);
/* Some of it is the stack of the first thread; or of the caller, which may run on another; or of whoever moved it. */
bool emu_rehome_first_stack(uintptr_t lo, uintptr_t hi);
bool emu_rehome_callers_stack(uintptr_t lo, uintptr_t hi);
bool emu_rehome_is_stack(uintptr_t lo, uintptr_t hi);
bool emu_rehome_on_first_stack(void); /* the caller is */
/* emu_rehome_move_in and emu_rehome_move_out of what the caller may run on.  mem_lock is held. */
uintptr_t emu_rehome_stack_in(int fd, uintptr_t lo, uintptr_t hi, uint64_t off, bool threads);
bool      emu_rehome_stack_out(int fd, const struct emu_mapping *m, bool threads);
/* Of the file (dev, ino): what is not moved any more is a stack no more. */
void emu_rehome_stack_purge(uint64_t dev, uint64_t ino);
/* What the caller runs on of the file is private from the first to the next, or to the last, in the
 * child; after `done` a child by the system call gets nothing of moved stacks, as before the first. */
void emu_rehome_stack_fork_prepare(uint64_t dev, uint64_t ino);
bool emu_rehome_is_lent(uintptr_t lo, uintptr_t hi); /* where the file is shown meanwhile */
void emu_rehome_stack_fork_parent(void);
void emu_rehome_stack_fork_done(uint64_t dev, uint64_t ino);
void emu_rehome_stack_fork_child(void);

/* emu_freeze.c: from the one to the other whoever writes to the pages [at, at + n) waits,
 * other threads as well as the kernel for them; or all of them, whatever they do.  The
 * caller, who must not write there, may map something else over them meanwhile.  No other
 * thread's lock may be waited for between them.  Not for two callers at a time. */
bool emu_freeze_possible(void);
bool emu_freeze_by_page(void); /* no: the other threads are stopped instead, whatever they do */
bool emu_freeze(uintptr_t at, size_t n);
void emu_thaw(uintptr_t at, size_t n);
/* Between the two: it is still so; else what was copied may have been written to since. */
bool emu_freeze_holds(void);
void emu_freeze_fork_child(void);
/* Who waits is told by this descriptor; the next of them; one page, which was frozen, is not for a
 * while, or again. */
int  emu_freeze_fd(void);
bool emu_freeze_told(uintptr_t *at_p, pid_t *tid_p);
void emu_freeze_page(uintptr_t at, bool frozen);

/* emu_rehome_fork.c: before fork: moved memory is held still, beside threads, and a child does not
 * get it; there is a child, or fork has failed; the child has its own.  And in the child: it is
 * copied.  The first three are for the thread that forks, with mem_lock. */
void emu_rehome_fork_hold(int fd, uint64_t dev, uint64_t ino);
void emu_rehome_fork_made(void);
void emu_rehome_fork_let_go(void);
void emu_rehome_fork_copy(void);
bool emu_rehome_fork_holds(uintptr_t at); /* between the first and the third: this page is among it */

/* emu_rehome_watch.c: from the first to the last nobody waits at a frozen page for the caller, who
 * waits for it itself; there is a child now, or there will be none. */
bool emu_rehome_watch_possible(void); /* as far as can be known; with mem_lock */
bool emu_rehome_watch_begin(void);
void emu_rehome_watch_forked(void);
void emu_rehome_watch_stop(void); /* all pages are to be thawed after it, and before the last */
void emu_rehome_watch_end(void);
/* In the child, instead of the last: it has its copy. */
void emu_rehome_watch_copied(void);
/* In a handler of SIGSEGV: it was for this. */
bool emu_rehome_watch_pause(const siginfo_t *info);

#endif /* EMU_REHOME_H */
