/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_take.h - lines of a slot that was read are made the reader's own.
 *
 * Two CPUs have a line after one has written and the other read it.  On AMD's, the writer's
 * next store to it, when the slot comes round, then takes long: 7 ns a line where one goes
 * from CPU to CPU in 27, 28 where in 160; and to fetch it before is no help, as it is there.
 * A store to a line that the reader alone has, because he wrote it as well, takes a third of
 * that.  Measured on a Zen 4, 8 KiB one way, with the reader's stores in it: 1.16 us without
 * them and 0.65 with where CPUs are near, 4.4 and 2.0 where they are far.
 *
 * So the receiver writes a byte of each line, as it is, before it gives the slot back.  Of a
 * large message only if handlers read it: else its lines would have to come here for that.
 * Of a small one of several lines always: 200 bytes 73 to 66 ns a message near, 191 to 116 far,
 * and no more if they were not read.
 */
#ifndef TOFU_TAKE_H
#define TOFU_TAKE_H

#include "tofu_util.h"

#include <tofu_cpu.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define TOFU_TAKE_MIN   256u /* bytes of a large message */
#define TOFU_TAKE_LOOKS 16u  /* one message in so many tells whether lines are read */

extern bool tofu_takes_lines; /* tofu_processor.c */

/* Was that line in this CPU's cache?  It is there afterwards, and how long it takes then says
 * what is short. */
static inline bool tofu_line_was_here(const void *place)
{
    const _Atomic uint8_t *byte = place;
    uint64_t              start, first, second;

    start = tofu_ticks();
    (void)atomic_load_explicit(byte, memory_order_relaxed);
    first = tofu_ticks();
    (void)atomic_load_explicit(byte, memory_order_relaxed);
    second = tofu_ticks();
    return first - start <= 2 * (second - first);
}

/* Nobody else writes there now. */
static inline void tofu_take_lines(void *data, size_t length)
{
    _Atomic uint8_t *byte;
    uintptr_t       place = (uintptr_t)data, end = place + length;

    for (; place < end; place = (place | (TOFU_LINE - 1)) + 1) {
        byte = (_Atomic uint8_t *)place;
        atomic_store_explicit(byte, atomic_load_explicit(byte, memory_order_relaxed),
                              memory_order_relaxed);
    }
}

#pragma GCC visibility pop

#endif /* TOFU_TAKE_H */
