/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_stamp.h - an MRQ with several senders is still one queue.
 *
 * Each sender has a lane of its own, in which its notices are in order.  Across lanes a notice must not
 * be seen before one that was there when it was sent: who has the local notice of a put, and then tells
 * another process to send, relies on that.  So from the second sender on each notice has a stamp, a
 * number of its target's, and a poll takes the one with the smallest (emu_lanes_earliest).
 * Where there is one sender nothing is paid.
 *
 * The first sender may not have seen yet that there is a second one.  Its notice without a stamp was
 * begun before anything of that one's was sent, so it comes before all that have one.
 *
 * Local notices of a VCQ in session mode have stamps, too, from before the data of their Put moved: so
 * they come after that which started it, and before an answer.
 */
#ifndef EMU_STAMP_H
#define EMU_STAMP_H

#include "emu_internal.h"

/* Values of `stamped`; but for the first one, all who send take a stamp. */
enum { EMU_STAMPED_NOT, EMU_STAMPED_BEGINS, EMU_STAMPED_SEEN /* by every process */ };

/* A new VCQ's: nobody has sent anything. */
static inline void emu_stamps_reset(struct emu_vcq_block *block, bool session)
{
#if !defined(__x86_64__)
    session = session || !emu_fence_reaches_all();
#endif
    atomic_store(&block->stamped, session ? EMU_STAMPED_SEEN : EMU_STAMPED_NOT);
    atomic_store(&block->senders, 0);
    atomic_store(&block->stamps, 0);
}

/* There is one more sender, who has not sent anything. */
static inline void emu_stamps_begin(struct emu_vcq_block *target)
{
    if ((atomic_fetch_add(&target->senders, 1) > 0) && (atomic_load(&target->stamped) != EMU_STAMPED_SEEN)) {
        atomic_store(&target->stamped, EMU_STAMPED_BEGINS);
#if !defined(__x86_64__)
        emu_fence_all(); /* whoever looks at this before he has seen why he sends looks again */
#endif
        atomic_store(&target->stamped, EMU_STAMPED_SEEN);
    }
}

/* The next stamp, as it is in the word of an entry; after all that the sender has seen */
static inline uint64_t emu_stamp(struct emu_vcq_block *target)
{
    atomic_thread_fence(memory_order_acquire);
    return EMU_ENTRY_STAMPED |
           (atomic_fetch_add_explicit(&target->stamps, 1, memory_order_relaxed) & EMU_ENTRY_STAMP_MASK)
                   << EMU_ENTRY_STAMP_SHIFT;
}

/* The one that is given next, in the same way */
static inline uint64_t emu_stamps_end(struct emu_vcq_block *block)
{
    return (atomic_load(&block->stamps) & EMU_ENTRY_STAMP_MASK) << EMU_ENTRY_STAMP_SHIFT;
}

#define EMU_STAMP_SAME (EMU_ENTRY_STAMP_MASK >> 1)

/* By how much the stamp in a word is larger than in another one, and EMU_STAMP_SAME more: it may be smaller. */
static inline uint64_t emu_stamp_after(uint64_t word, uint64_t other)
{
    return ((word >> EMU_ENTRY_STAMP_SHIFT) - (other >> EMU_ENTRY_STAMP_SHIFT) + EMU_STAMP_SAME) & EMU_ENTRY_STAMP_MASK;
}

/* The VCQ compares others with the latest one that it has taken.  (One that was stored late does not set it back, as
 * those that wait would be too far from it then.) */
static inline void emu_stamp_taken(struct emu_vcq *vcq, uint64_t word)
{
    vcq->stamp = (emu_stamp_after(word, vcq->stamp) > EMU_STAMP_SAME) ? word : vcq->stamp;
}

#endif /* EMU_STAMP_H */
