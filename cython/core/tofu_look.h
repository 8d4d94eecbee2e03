/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_look.h - looking at a word that another CPU is about to write, as processors like
 * it.  Which one this is, is found out once (tofu_processor.c).
 */
#ifndef TOFU_LOOK_H
#define TOFU_LOOK_H

#include "tofu_bet.h"
#include "tofu_util.h"

#include <stdatomic.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Some ns, in which what is before is completed. */
static inline void tofu_take_time(void)
{
#if defined(__x86_64__)
    unsigned low, high;

    /* an instruction with a locked prefix does it, too */
    __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high) : : "memory");
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" : : : "memory");
#endif
}

/*
 * A CPU that looks as fast as it can makes the store take longer.  On Intel's 1.4 to 2
 * times as long (presumably it asks for the line again as soon as it is taken away,
 * before the other has stored): a pause or an lfence help little there; what helps is to
 * complete a look before the next one, and some ns between them.
 *
 * There is something better: to bet on the word at each look (tofu_bet.h), so that what
 * follows (the handler, the answer: 300 instructions) is done while the line is on its way.
 * Who loses the bet has nothing better to do, and his next look comes 6 ns later, which is
 * a pause as well.  Measured, one way: on an AMD with a line that takes 50 ns 85 ns
 * without, 78 with two lfences between looks, 70 so; on an Intel (Emerald Rapids) with a
 * line that takes 75 ns 187 with looks apart, 177 so, and over UCP, with tags, 220 and 199.
 */
extern bool tofu_looks_bet; /* tofu_processor.c */

/* One of several looks: is *place & mask the value?  is_wide: what belongs to it is in other
 * lines, too.  Who bets on such a word reads those lines while they are being written, and
 * takes them from the writer: 64 bytes 380 ns one way with a bet, 340 without. */
static TOFU_ALWAYS_INLINE bool tofu_look(const _Atomic uint64_t *place, uint64_t mask,
                                         uint64_t value, bool is_wide)
{
#if TOFU_CAN_BET
    if (tofu_looks_bet && !is_wide) {
        return tofu_bet((const void *)place, mask, value, 0);
    }
#else
    (void)is_wide;
#endif
    tofu_take_time();
    return (atomic_load_explicit(place, memory_order_acquire) & mask) == value;
}

#pragma GCC visibility pop

#endif /* TOFU_LOOK_H */
