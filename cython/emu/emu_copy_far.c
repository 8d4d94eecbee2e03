/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_copy_far.c - copies that are larger than what a CPU's own cache has room for, in the order
 * of emu_copy.h.
 *
 * Stores become visible one after the other, so few lines are under way at a time.  They are
 * asked for ahead: on an Intel (Emerald Rapids) 1 MiB takes 44 and 49 us so, 51 and 51 without
 * (medians of two series).  From 64 to 512 KiB it is the same.
 */
#include "emu_copy.h"

#ifdef EMU_COPY_ASM
#define AHEAD 2048

void emu_copy_far(char *dst, const char *src, size_t n)
{
    size_t k = 32 - ((uintptr_t)dst & 31);

    __asm__ __volatile__("vmovdqu (%1), %%ymm0\n\tvmovdqu %%ymm0, (%0)" : : "r"(dst), "r"(src) : "xmm0", "memory");
    /* not beyond the end: that may be what somebody else is writing */
    for (dst += k, src += k, n -= k; n >= 128 + AHEAD; dst += 128, src += 128, n -= 128) {
        __asm__ __volatile__("prefetchw %c2(%0)\n\tprefetchw 64+%c2(%0)\n\t"
                             "vmovdqu (%1), %%ymm0\n\tvmovdqu 32(%1), %%ymm1\n\t"
                             "vmovdqu 64(%1), %%ymm2\n\tvmovdqu 96(%1), %%ymm3\n\t"
                             "vmovdqa %%ymm0, (%0)\n\tvmovdqa %%ymm1, 32(%0)\n\t"
                             "vmovdqa %%ymm2, 64(%0)\n\tvmovdqa %%ymm3, 96(%0)"
                             :
                             : "r"(dst), "r"(src), "i"(AHEAD)
                             : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
    }
    emu_copy_avx(dst, src, n);
}
#endif
