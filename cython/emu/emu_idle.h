/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_idle.h - who polls in vain lets others run, where there are more of them than CPUs.
 *
 * On the machine a process has its cores to itself, and its programs poll without end.  On
 * fewer CPUs than that, who polls keeps from running whom it waits for, until the kernel takes
 * the CPU away, some ms later: a notice that 4 processes on 2 CPUs passed on took 2 ms a hop, and
 * takes 3 to 12 us.
 */
#ifndef EMU_IDLE_H
#define EMU_IDLE_H

#include <stdatomic.h>
#include <stdint.h>

struct emu_control;

/* Of a queue, or of a barrier.  Threads that poll the same one may lose counts to each other. */
struct emu_idle {
    _Atomic uint32_t  spent; /* polls in vain since others were thought of last ... */
    _Atomic uint32_t  after; /* ... which happens after so many; 0: the first time */
    _Atomic uintptr_t who;   /* thread that offered its CPU last */
    _Atomic uint32_t  turns; /* how often that was another one than before, up to a few */
    _Atomic uint32_t  met;   /* one polled while another offered its CPU: no lock is around polls */
};

/* A process has this slot (not LIVE yet). */
void emu_idle_join(struct emu_control *control, uint32_t slot);

/* After `polls` polls of a plain VCQ in vain, with no lock of the library's held; a poll of
 * anything else takes as long as several of these. */
#define EMU_IDLE_SLOW 4u
void emu_idle(struct emu_idle *idle, uint32_t polls);

#endif /* EMU_IDLE_H */
