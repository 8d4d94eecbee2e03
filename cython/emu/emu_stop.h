/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_stop.h - the other threads of this process stand still for a while (emu_stop.c).
 */
#ifndef EMU_STOP_H
#define EMU_STOP_H

#include <stdbool.h>

/* All of them with mem_lock.  After a failure they are refused for a second. */
bool emu_stop_possible(void); /* it has worked, if only for this call */

/* From the one to the other no other thread runs, nor the kernel for one; they may be nested.  No
 * other thread's lock may be waited for between them, so no malloc.  Blocks until all stand still;
 * false: they run on. */
bool emu_stop_others(void);
void emu_stop_go_on(void);

/* Between them: they still do, or somebody has ended the helper that sees to it. */
bool emu_stop_holds(void);

/* Around fork: the others run until the caller makes a child, and from there to the last of these
 * they stand still.  The second when there is a child, or there will be none: then, or when the others
 * could not be stopped, they run from there on. */
bool emu_stop_fork_begin(void);
void emu_stop_fork_made(void);
void emu_stop_fork_end(void);
void emu_stop_fork_child(void); /* in the child */

#endif /* EMU_STOP_H */
