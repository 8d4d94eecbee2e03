/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rx.h - MRQ lanes, the consumer's side: what polls (emu_queue.c) ask of emu_rx.c.
 * The VCQ is locked, where it has a lock.
 */
#ifndef EMU_RX_H
#define EMU_RX_H

#include "emu_internal.h"

/* The number in the word of an entry: the next one has come when it is as expected. */
EMU_INLINE uint64_t emu_entry_seq(const struct emu_lane_entry *e)
{
    return __atomic_load_n(&e->word, __ATOMIC_ACQUIRE) >> EMU_ENTRY_SEQ_SHIFT;
}

/* We look at a lane of this process no more; it may be used again when its producer, too, is
 * done with it. */
void emu_lane_release(struct emu_lane *lane);
/* Peers have announced lanes, or that one of them found the MRQ full. */
EMU_COLD void emu_lanes_refresh(struct emu_vcq *vcq, uint64_t epoch);
bool emu_lanes_hear(struct emu_vcq *vcq); /* only those that were announced; false: one could not be mapped */
/* Let producers know how far we are. */
__attribute__((noinline)) void emu_lanes_publish(struct emu_vcq *vcq);
/* Stop looking at lanes that were silent for long. */
EMU_COLD void emu_lanes_sweep(struct emu_vcq *vcq);

#endif /* EMU_RX_H */
