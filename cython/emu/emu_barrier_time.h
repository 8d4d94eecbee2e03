/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_barrier_time.h - where time matters in barrier communication.
 *
 * Times are in ticks of the timed mode; 0 means "there at once", the only one
 * there is outside that mode.  A gate fires at the latest time of its inputs.
 */
#ifndef EMU_BARRIER_TIME_H
#define EMU_BARRIER_TIME_H

#include "emu_modes.h"

/* When a barrier that is started now starts */
static inline uint64_t emu_timing_barrier_start(void)
{
    return emu_timing_barrier_now();
}

/* When a packet arrives that a gate sends at fired_at */
static inline uint64_t emu_timing_packet_due(uint64_t fired_at)
{
    return emu_timing_packet(fired_at);
}

/* A result whose inputs were there at due may be seen now */
static inline bool emu_timing_barrier_visible(uint64_t due)
{
    return emu_timing_completed(due);
}

#endif /* EMU_BARRIER_TIME_H */
