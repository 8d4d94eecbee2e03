/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome.h - what the files of emu_rehome.c share: may memory be moved, and how it is
 * held still meanwhile.
 */
#ifndef EMU_REHOME_H
#define EMU_REHOME_H

#include "emu_internal.h"

/* emu_rehome_may.c: what speaks against moving memory of this process; NULL: nothing.
 * *threads_p: there are other threads, so it has to be frozen.  threads_ok: UTOFU_EMU_REHOME
 * allows that. */
const char *emu_rehome_against(bool threads_ok, bool *threads_p);
/* The same of the pages [lo, hi) */
const char *emu_rehome_against_pages(uintptr_t lo, uintptr_t hi, bool threads);
bool        emu_rehome_other_threads(void);

/* The caller's stack is on these pages, or will be. */
bool emu_rehome_runs_on(uintptr_t lo, uintptr_t hi);

/* emu_rehome_move.c: no thread was counted, but one of ours has begun since. */
bool emu_rehome_not_alone(bool threads);
/* Pages [lo, hi) go to off of the file, which is mapped over them.  Returns
 * where it ended. */
uintptr_t emu_rehome_move_in(int fd, uintptr_t lo, uintptr_t hi, uint64_t off, bool threads);
/* A mapping of the file is replaced by a private copy, from its begin on; fd -1: there is no
 * descriptor of the file any more.  ours: the file gives the memory back.  No signal handler may
 * run, and emu_rehome_hold is needed, or there is no other thread. */
bool emu_rehome_move_out(int fd, struct emu_mapping m, bool threads, bool ours);
void emu_rehome_punch(int fd, uint64_t off, uint64_t n);

/* emu_rehome_stack.c: does it speak against moving [lo, hi) that it is a stack?  NULL: no */
const char *emu_rehome_against_stack(uintptr_t lo, uintptr_t hi, bool threads);
/* Some of it is the stack of the first thread. */
bool emu_rehome_first_stack(uintptr_t lo, uintptr_t hi);
/* emu_rehome_move_in and emu_rehome_move_out of what the caller may run on.  mem_lock is held. */
uintptr_t emu_rehome_stack_in(int fd, uintptr_t lo, uintptr_t hi, uint64_t off);
void      emu_rehome_stack_out(int fd, const struct emu_mapping *m, bool threads);
/* What the caller runs on of the file (dev, ino) is private from the first to one of the others. */
void emu_rehome_stack_fork_prepare(uint64_t dev, uint64_t ino);
void emu_rehome_stack_fork_parent(uint64_t dev, uint64_t ino);
void emu_rehome_stack_fork_child(void);

/* emu_freeze.c: from the one to the other whoever writes to the pages [at, at + n) waits,
 * other threads as well as the kernel for them.  The caller, who must not write there,
 * may map something else over them meanwhile.  No other thread's lock may be waited for
 * between them.  Not for two callers at a time. */
bool emu_freeze_possible(void);
bool emu_freeze(uintptr_t at, size_t n);
void emu_thaw(uintptr_t at, size_t n);
void emu_freeze_fork_child(void);

#endif /* EMU_REHOME_H */
