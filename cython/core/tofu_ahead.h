/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_ahead.h - the line that an answer will be stored to is taken before there is one.
 *
 * When small messages go to and fro, the line of the next slot is here and with the peer, which
 * looks at it; the store of an answer waits until the peer has given it up.  To fetch it
 * ahead is no help, as it is here.  A store to a word of it that nobody reads is: made when the
 * handler has returned, it has brought the line by the time that UCP's answer comes, some
 * 20 ns later.  Zen 4, UCP, 8 bytes one way: 110 ns without and 95 with it where CPUs are near,
 * 315 and 292 where they are far.
 *
 * Who answers at once (uct_perftest) is better off without: the processor runs ahead to that
 * store and asks for the line while the message is on its way; a store before it only has the
 * peer look once too often (74 and 85 ns near, 195 and 280 far).  To find out by trying which
 * of the two the user is does not work: both peers would have to change at the same time.  So it
 * is told (tofu_iface_config_t::am_ahead).
 *
 * Only in slots that are mapped here (tofu_in_place.c).
 */
#ifndef TOFU_AHEAD_H
#define TOFU_AHEAD_H

#include "tofu_am.h"

#include <tofu_cpu.h>

#pragma GCC visibility push(hidden)

/* In the last line of a slot.  Messages with a notice end before it, others are written over
 * it. */
#define TOFU_AHEAD_WORD (TOFU_AM_SMALL_SIZE - TOFU_LINE)

_Static_assert((TOFU_AHEAD_WORD >= TOFU_MAX_SHORT) &&
                       (TOFU_AHEAD_WORD + sizeof(uint64_t) <= TOFU_POLLED_TAIL),
               "a word of no message with a notice, and of no tail");

/* The handler of a message has returned: an answer may come. */
static inline void tofu_ahead_take(const tofu_lender_t *lender)
{
    const tofu_chan_t *chan = lender->peer->chan;
    _Atomic uint64_t  *word;

    if ((chan != NULL) && (chan->mapped != NULL) && (chan->cls[TOFU_AM_SMALL].left > 0)) {
        word = (_Atomic uint64_t *)(void *)(chan->mapped->base +
                                            (chan->cls[TOFU_AM_SMALL].next - chan->slots) +
                                            TOFU_AHEAD_WORD);
        atomic_store_explicit(word, 0, memory_order_relaxed);
    }
}

#pragma GCC visibility pop

#endif /* TOFU_AHEAD_H */
