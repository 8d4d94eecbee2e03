/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_bfpsum.h - sums of doubles that do not depend on any order.
 *
 * A sum is a fixed-point number that holds every finite double exactly, with room
 * for 2^77 of the largest ones.  It is rounded once, to nearest even, at the end,
 * so that all processes get the same bits whatever the circuit looks like.
 *
 * Special values: NaN, or infinities of both signs, give the quiet NaN
 * 0x7ff8000000000000; infinities of one sign give that infinity.  A sum that is
 * exactly zero is +0, unless every input is -0.  A sum beyond the largest double
 * is an infinity, but partial sums beyond it do no harm.
 */
#ifndef EMU_BFPSUM_H
#define EMU_BFPSUM_H

#include <stdbool.h>
#include <string.h>

#include "emu_shm.h"

#define EMU_SUM_NAN      1u
#define EMU_SUM_INF      2u /* + infinity */
#define EMU_SUM_NEG_INF  4u
#define EMU_SUM_NOT_NEG0 8u /* some input is not -0 */

#define EMU_DOUBLE_INF   0x7ff0000000000000ull
#define EMU_DOUBLE_NAN   0x7ff8000000000000ull
#define EMU_DOUBLE_SIGN  0x8000000000000000ull
#define EMU_DOUBLE_ONE   0x0010000000000000ull /* of the mantissa */

/* a += b */
static inline void emu_bfpsum_add(struct emu_bfpsum *a, const struct emu_bfpsum *b)
{
    uint64_t carry = 0;

    for (unsigned i = 0; i < EMU_SUM_LIMBS; i++) {
        unsigned __int128 sum = (unsigned __int128)a->limb[i] + b->limb[i] + carry;

        a->limb[i] = (uint64_t)sum;
        carry      = (uint64_t)(sum >> 64);
    }
    a->flags |= b->flags;
}

static inline void emu_bfpsum_negate(struct emu_bfpsum *a)
{
    uint64_t carry = 1;

    for (unsigned i = 0; i < EMU_SUM_LIMBS; i++) {
        a->limb[i] = ~a->limb[i] + carry;
        carry      = carry && (a->limb[i] == 0);
    }
}

static inline void emu_bfpsum_set(struct emu_bfpsum *a, double value)
{
    uint64_t bits, mantissa, exponent;

    memset(a, 0, sizeof(*a));
    memcpy(&bits, &value, sizeof(bits));
    if (bits == EMU_DOUBLE_SIGN) {
        return;
    }
    a->flags = EMU_SUM_NOT_NEG0;
    mantissa = bits & (EMU_DOUBLE_ONE - 1);
    exponent = (bits >> 52) & 0x7ff;
    if (exponent == 0x7ff) {
        a->flags |= (mantissa != 0) ? EMU_SUM_NAN : (bits & EMU_DOUBLE_SIGN) ? EMU_SUM_NEG_INF : EMU_SUM_INF;
        return;
    }
    if (exponent != 0) {
        mantissa |= EMU_DOUBLE_ONE;
        exponent--;
    }
    a->limb[exponent / 64] = mantissa << (exponent % 64);
    if (exponent % 64 > 11) {
        a->limb[exponent / 64 + 1] = mantissa >> (64 - exponent % 64);
    }
    if (bits & EMU_DOUBLE_SIGN) {
        emu_bfpsum_negate(a);
    }
}

/* 64 bits of the magnitude from bit `first` up */
static inline uint64_t emu_bfpsum_bits(const struct emu_bfpsum *a, unsigned first)
{
    uint64_t low  = a->limb[first / 64] >> (first % 64);
    uint64_t high = (first / 64 + 1 < EMU_SUM_LIMBS) ? a->limb[first / 64 + 1] : 0;

    return (first % 64 == 0) ? low : low | (high << (64 - first % 64));
}

static inline double emu_bfpsum_get(const struct emu_bfpsum *sum)
{
    struct emu_bfpsum a    = *sum;
    uint64_t          sign = 0, bits;
    int               top  = EMU_SUM_LIMBS - 1;
    double            value;

    if ((a.flags & EMU_SUM_NAN) || ((a.flags & EMU_SUM_INF) && (a.flags & EMU_SUM_NEG_INF))) {
        bits = EMU_DOUBLE_NAN;
    } else if (a.flags & (EMU_SUM_INF | EMU_SUM_NEG_INF)) {
        bits = EMU_DOUBLE_INF | ((a.flags & EMU_SUM_NEG_INF) ? EMU_DOUBLE_SIGN : 0);
    } else {
        if (a.limb[EMU_SUM_LIMBS - 1] >> 63) {
            sign = EMU_DOUBLE_SIGN;
            emu_bfpsum_negate(&a);
        }
        while ((top > 0) && (a.limb[top] == 0)) {
            top--;
        }
        if (a.limb[top] == 0) {
            bits = (a.flags & EMU_SUM_NOT_NEG0) ? 0 : EMU_DOUBLE_SIGN;
        } else {
            unsigned high = (unsigned)top * 64 + 63 - (unsigned)__builtin_clzll(a.limb[top]);

            if (high <= 52) {
                bits = a.limb[0]; /* subnormal, or of the smallest exponent: exact */
            } else {
                unsigned shift = high - 52;
                bool     half  = emu_bfpsum_bits(&a, shift - 1) & 1;
                bool     below = false;

                bits = emu_bfpsum_bits(&a, shift) & (2 * EMU_DOUBLE_ONE - 1);
                for (unsigned i = 0; half && (i < (shift - 1) / 64); i++) {
                    below = below || (a.limb[i] != 0);
                }
                if ((shift - 1) % 64 != 0) {
                    below = below || ((a.limb[(shift - 1) / 64] << (64 - (shift - 1) % 64)) != 0);
                }
                /* a carry out of the mantissa makes the next exponent, as it should */
                bits = bits - EMU_DOUBLE_ONE + ((uint64_t)(shift + 1) << 52) + (half && (below || (bits & 1)));
                if ((shift + 1 >= 0x7ff) || (bits >= EMU_DOUBLE_INF)) {
                    bits = EMU_DOUBLE_INF;
                }
            }
            bits |= sign;
        }
    }
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#endif /* EMU_BFPSUM_H */
