/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_armw.h - the read-modify-write operations of 2.2.5 on memory in reach. */
#ifndef EMU_ARMW_H
#define EMU_ARMW_H

#include "emu_internal.h"

/* The value that the operation leaves. */
static inline uint64_t emu_armw_value(int op, uint64_t old, uint64_t operand, uint64_t compare)
{
    switch (op) {
    case UTOFU_ARMW_OP_SWAP:
        return operand;
    case UTOFU_ARMW_OP_ADD:
        return old + operand;
    case UTOFU_ARMW_OP_XOR:
        return old ^ operand;
    case UTOFU_ARMW_OP_AND:
        return old & operand;
    case UTOFU_ARMW_OP_OR:
        return old | operand;
    default: /* EMU_ARMW_CSWAP */
        return (old == compare) ? operand : old;
    }
}

#define EMU_ARMW_DEFINE(type, suffix) \
    static inline uint64_t emu_armw_##suffix(int op, void *addr, type operand, type compare) \
    { \
        type *p = (type *)addr; \
        switch (op) { \
        case UTOFU_ARMW_OP_SWAP: \
            return __atomic_exchange_n(p, operand, __ATOMIC_SEQ_CST); \
        case UTOFU_ARMW_OP_ADD: \
            return __atomic_fetch_add(p, operand, __ATOMIC_SEQ_CST); \
        case UTOFU_ARMW_OP_XOR: \
            return __atomic_fetch_xor(p, operand, __ATOMIC_SEQ_CST); \
        case UTOFU_ARMW_OP_AND: \
            return __atomic_fetch_and(p, operand, __ATOMIC_SEQ_CST); \
        case UTOFU_ARMW_OP_OR: \
            return __atomic_fetch_or(p, operand, __ATOMIC_SEQ_CST); \
        default: \
            __atomic_compare_exchange_n(p, &compare, operand, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
            return compare; /* the old value, either way */ \
        } \
    }
EMU_ARMW_DEFINE(uint32_t, 4)
EMU_ARMW_DEFINE(uint64_t, 8)

/* Atomic also against the CPU's own atomic instructions; returns the old value. */
static inline uint64_t emu_armw_direct(int op, unsigned size, void *addr, uint64_t operand, uint64_t compare)
{
    return (size == 4) ? emu_armw_4(op, addr, (uint32_t)operand, (uint32_t)compare) :
                         emu_armw_8(op, addr, operand, compare);
}

#endif /* EMU_ARMW_H */
