/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_copy.h - copies whose last bytes become visible last.
 */
#ifndef EMU_COPY_H
#define EMU_COPY_H

#include "emu_internal.h"

#include <string.h>

/* The last bytes, up to an aligned 8-byte word, ascending, each a release store */
EMU_INLINE void emu_store_tail(char *dst, const char *src, size_t n)
{
    if (n == 8) {
        uint64_t v;
        memcpy(&v, src, 8);
        __atomic_store_n((uint64_t *)(void *)dst, v, __ATOMIC_RELEASE);
        return;
    }
    if (n & 4) {
        uint32_t v;
        if (((uintptr_t)dst & 3) == 0) {
            memcpy(&v, src, 4);
            __atomic_store_n((uint32_t *)(void *)dst, v, __ATOMIC_RELEASE);
            dst += 4;
            src += 4;
            n -= 4;
        }
    }
    if ((n & 2) && (((uintptr_t)dst & 1) == 0) && (n < 4)) {
        uint16_t v;
        memcpy(&v, src, 2);
        __atomic_store_n((uint16_t *)(void *)dst, v, __ATOMIC_RELEASE);
        dst += 2;
        src += 2;
        n -= 2;
    }
    for (; n > 0; n--) {
        __atomic_store_n(dst++, *src++, __ATOMIC_RELEASE);
    }
}

/* How many bytes of a copy are its tail: those in the last aligned word */
EMU_INLINE size_t emu_tail_size(uintptr_t dst, size_t n)
{
    size_t tail = (dst + n) & 7;

    tail = tail ? tail : 8;
    return (tail < n) ? tail : n;
}

/* Copy to memory in reach: body first, then the last word by a release store. */
EMU_INLINE void emu_copy(char *dst, const char *src, size_t n)
{
    if (emu_likely((n == 8) && !((uintptr_t)dst & 7))) {
        emu_store_tail(dst, src, 8);
        return;
    }
    if (emu_likely(n != 0)) {
        size_t tail = emu_tail_size((uintptr_t)dst, n);
        memcpy(dst, src, n - tail);
        emu_store_tail(dst + (n - tail), src + (n - tail), tail);
    }
}

#endif /* EMU_COPY_H */
