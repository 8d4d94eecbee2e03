/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_ticks.h - the CPU's counter, by which the timed mode goes: waiting for a time, and what a
 * look at the counter takes, which tells how fast this thread's CPU is at the moment.
 */
#ifndef EMU_TICKS_H
#define EMU_TICKS_H

#include <stdint.h>

extern double emu_ticks_per_ns; /* 1 until emu_ticks_calibrate, which takes 4 ms */
void          emu_ticks_calibrate(void);

/* Longer waits sleep for a part of the time. */
void emu_ticks_wait(uint64_t until);

/* Ticks that a look takes now; never 0.  Looks 28 times. */
double emu_look_takes(void);

/* Ticks that a look takes, on the average of this thread's last waits or in the very last, whichever is
 * less, if there is something new; else 0.  The first time, and after many calls without a wait, it looks. */
double emu_look_learn(void);
void   emu_look_forget(void);

#endif
