/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rx.h - MRQ lanes, the consumer's side: what polls (emu_queue.c) ask of emu_rx.c and
 * emu_unread.c.
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
EMU_INLINE bool emu_lane_has(const struct emu_rx_lane *rx)
{
    return emu_entry_seq(rx->cur) == rx->expect;
}

/* Step over the entry at hand; returns its word. */
EMU_INLINE uint64_t emu_lane_step(struct emu_rx_lane *rx)
{
    struct emu_lane_entry *a = (struct emu_lane_entry *)((char *)rx->lane + EMU_LANE_HEAD);
    struct emu_lane_entry *b = a + EMU_LANE_A;
    uint64_t               word = rx->cur->word;

    if (emu_likely(rx->cur < b)) {
        rx->rd_a++;
    } else {
        rx->rd_b++;
    }
    rx->cur    = emu_unlikely(word & EMU_ENTRY_NEXT_B) ? &b[rx->rd_b & (EMU_LANE_B(emu_g.env.lane_entries) - 1)] :
                                                         &a[rx->rd_a & (EMU_LANE_A - 1)];
    rx->expect = (rx->expect + 1) & EMU_ENTRY_SEQ_MASK;
    return word;
}

/* When the notice at hand may be seen, in ticks (timed mode); 0: at once */
EMU_INLINE uint64_t emu_lane_due(const struct emu_rx_lane *rx)
{
    struct emu_rx_lane look = *rx; /* goes ahead, takes nothing */

    return (emu_lane_step(&look) & EMU_ENTRY_PAIR) ? emu_second_due(look.cur->word) : 0;
}

/* We look at a lane of this process no more; it may be used again when its producer, too, is
 * done with it. */
void emu_lane_release(struct emu_lane *lane);
/* Peers have announced lanes, or that one of them found the MRQ full. */
EMU_COLD void emu_lanes_refresh(struct emu_vcq *vcq, uint64_t epoch);
bool emu_lanes_hear(struct emu_vcq *vcq); /* only those that were announced; false: one could not be mapped */
/* The lane with the earliest notice, of which there is one; NULL: there is none any more, as its sender likes */
EMU_NOINLINE struct emu_rx_lane *emu_lanes_earliest(struct emu_vcq *vcq);
/* Let producers know how far we are. */
__attribute__((noinline)) void emu_lanes_publish(struct emu_vcq *vcq);
/* Stop looking at lanes that were silent for long. */
EMU_COLD void emu_lanes_sweep(struct emu_vcq *vcq);

/* emu_unread.c: end the process when all senders together put in more than the MRQ holds; the next time after
 * vcq->count_after entries. */
EMU_COLD void emu_mrq_count(struct emu_vcq *vcq);
/* Remote notices that are there */
size_t emu_lanes_unread(const struct emu_vcq *vcq);
/* Does the queue hold more than `limit`, for a special VCQ that asks at each poll? */
bool emu_mrq_overflown(struct emu_vcq *vcq, size_t limit);

#endif /* EMU_RX_H */
