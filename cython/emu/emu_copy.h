/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_copy.h - copies whose last bytes become visible last, of all and of each
 * cache line.
 */
#ifndef EMU_COPY_H
#define EMU_COPY_H

#include "emu_internal.h"

#include <tofu_cpu.h>

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

/* With STRONG_ORDER an operation reads after those before it have read, and writes after they have written
 * (2.2.10); and within one the last line is read, and written, after the others (6.1.3.1).  The CPU's own way
 * of it on x86, and a barrier elsewhere: a release store keeps what is before it from coming later, but not
 * what is after it from coming sooner. */
#if defined(__x86_64__)
#define EMU_IN_ORDER()      ((void)0)
#define EMU_READ_IN_ORDER() ((void)0)
#else
#define EMU_IN_ORDER()      atomic_thread_fence(memory_order_acq_rel)
#define EMU_READ_IN_ORDER() atomic_thread_fence(memory_order_acquire)
#endif

/* One to four words, the target aligned; the last one last. */
EMU_INLINE void emu_store_words(char *dst, const char *src, size_t n)
{
    uint64_t v;

    if (n > 8) {
        EMU_IN_ORDER();
        memcpy(&v, src, 8);
        __atomic_store_n((uint64_t *)(void *)dst, v, __ATOMIC_RELAXED);
        if (n > 16) {
            memcpy(&v, src + 8, 8);
            __atomic_store_n((uint64_t *)(void *)(dst + 8), v, __ATOMIC_RELAXED);
            if (n > 24) {
                memcpy(&v, src + 16, 8);
                __atomic_store_n((uint64_t *)(void *)(dst + 16), v, __ATOMIC_RELAXED);
            }
        }
    }
    memcpy(&v, src + n - 8, 8);
    __atomic_store_n((uint64_t *)(void *)(dst + n - 8), v, __ATOMIC_RELEASE);
}

/* How many bytes of a copy are its tail: those in the last aligned word */
EMU_INLINE size_t emu_tail_size(uintptr_t dst, size_t n)
{
    size_t tail = (dst + n) & 7;

    tail = tail ? tail : 8;
    return (tail < n) ? tail : n;
}

/*
 * The body, in ascending order, so that the last word of every cache line becomes
 * visible after the rest of the line: who polls line by line (2.2.10) polls that.
 * A memcpy stores in any order.  On x86 stores become visible in the order of the
 * program, so a loop that the compiler leaves alone is enough, and as fast; elsewhere
 * each line ends with a release store.
 */
#define EMU_AVX512_MAX ((size_t)16 << 10) /* beyond, half a line at a time is as fast or faster */
#define EMU_FAR_MIN    ((size_t)768 << 10)
extern bool emu_has_avx, emu_has_avx512; /* emu_processor.c: and are worth it */
extern bool emu_fetches_far;             /* from EMU_FAR_MIN on */
void emu_copy_far(char *dst, const char *src, size_t n);

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define EMU_COPY_ASM 1
#endif

#ifdef EMU_COPY_ASM
/* Less than 16 bytes, within a line.  A body ends with a word, so seldom more than one. */
EMU_INLINE void emu_copy_rest(char *dst, const char *src, size_t n)
{
    if (n & 8) {
        memcpy(dst, src, 8);
        dst += 8;
        src += 8;
    }
    if (emu_unlikely(n & 7)) {
        memcpy(dst, src, n & 7);
    }
}

EMU_INLINE void emu_copy_avx(char *dst, const char *src, size_t n)
{
    size_t k = 32 - ((uintptr_t)dst & 31);

    __asm__ __volatile__("vmovdqu (%1), %%ymm0\n\tvmovdqu %%ymm0, (%0)" : : "r"(dst), "r"(src) : "xmm0", "memory");
    for (dst += k, src += k, n -= k; n >= 128; dst += 128, src += 128, n -= 128) {
        __asm__ __volatile__("vmovdqu (%1), %%ymm0\n\tvmovdqu 32(%1), %%ymm1\n\t"
                             "vmovdqu 64(%1), %%ymm2\n\tvmovdqu 96(%1), %%ymm3\n\t"
                             "vmovdqa %%ymm0, (%0)\n\tvmovdqa %%ymm1, 32(%0)\n\t"
                             "vmovdqa %%ymm2, 64(%0)\n\tvmovdqa %%ymm3, 96(%0)"
                             :
                             : "r"(dst), "r"(src)
                             : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
    }
    for (; n >= 32; dst += 32, src += 32, n -= 32) {
        __asm__ __volatile__("vmovdqu (%1), %%ymm0\n\tvmovdqa %%ymm0, (%0)" : : "r"(dst), "r"(src) : "xmm0", "memory");
    }
    __asm__ __volatile__("vzeroupper" : : : "memory");
    if (n & 16) {
        __asm__ __volatile__("movdqu (%1), %%xmm0\n\tmovdqu %%xmm0, (%0)" : : "r"(dst), "r"(src) : "xmm0", "memory");
        dst += 16;
        src += 16;
    }
    emu_copy_rest(dst, src, n & 15);
}

/* A line at a time: what waits for a line on its way takes half the places in the store
 * queue, so that lines twice as far ahead are asked for.  These registers leave no state
 * behind that would have to be cleared. */
EMU_INLINE void emu_copy_avx512(char *dst, const char *src, size_t n)
{
    size_t k = 64 - ((uintptr_t)dst & 63);

    __asm__ __volatile__("vmovdqu64 (%1), %%zmm16\n\tvmovdqu64 %%zmm16, (%0)" : : "r"(dst), "r"(src) : "memory");
    for (dst += k, src += k, n -= k; n >= 256; dst += 256, src += 256, n -= 256) {
        __asm__ __volatile__("vmovdqu64 (%1), %%zmm16\n\tvmovdqu64 64(%1), %%zmm17\n\t"
                             "vmovdqu64 128(%1), %%zmm18\n\tvmovdqu64 192(%1), %%zmm19\n\t"
                             "vmovdqa64 %%zmm16, (%0)\n\tvmovdqa64 %%zmm17, 64(%0)\n\t"
                             "vmovdqa64 %%zmm18, 128(%0)\n\tvmovdqa64 %%zmm19, 192(%0)"
                             :
                             : "r"(dst), "r"(src)
                             : "memory");
    }
    for (; n >= 64; dst += 64, src += 64, n -= 64) {
        __asm__ __volatile__("vmovdqu64 (%1), %%zmm16\n\tvmovdqa64 %%zmm16, (%0)" : : "r"(dst), "r"(src) : "memory");
    }
    for (; n >= 16; dst += 16, src += 16, n -= 16) {
        __asm__ __volatile__("movdqu (%1), %%xmm0\n\tmovdqu %%xmm0, (%0)" : : "r"(dst), "r"(src) : "xmm0", "memory");
    }
    emu_copy_rest(dst, src, n);
}

EMU_INLINE void emu_copy_sse(char *dst, const char *src, size_t n)
{
    size_t k = 16 - ((uintptr_t)dst & 15);

    __asm__ __volatile__("movdqu (%1), %%xmm0\n\tmovdqu %%xmm0, (%0)" : : "r"(dst), "r"(src) : "xmm0", "memory");
    for (dst += k, src += k, n -= k; n >= 16; dst += 16, src += 16, n -= 16) {
        __asm__ __volatile__("movdqu (%1), %%xmm0\n\tmovdqa %%xmm0, (%0)" : : "r"(dst), "r"(src) : "xmm0", "memory");
    }
    emu_copy_rest(dst, src, n);
}
#endif

/* Less than two lines: the last line of the source is read last (6.1.3.1), which memmove need not do. */
EMU_INLINE void emu_copy_last_line(char *dst, const char *src, size_t n)
{
    size_t in_last = (uintptr_t)(src + n) & 255; /* 0: it ends with its line */

    in_last = in_last ? in_last : 256;
    if (emu_unlikely(in_last < n)) {
        memmove(dst, src, n - in_last);
        dst += n - in_last;
        src += n - in_last;
        n = in_last;
        atomic_signal_fence(memory_order_seq_cst); /* nor does the compiler make it one */
        EMU_READ_IN_ORDER();
    }
    memmove(dst, src, n);
}

EMU_INLINE void emu_copy_body(char *dst, const char *src, size_t n)
{
    const size_t line = 256;
    size_t       left = line - ((uintptr_t)dst & (line - 1)); /* in the first line */

#ifdef EMU_COPY_ASM
    if (emu_likely(n >= 64)) {
        if (emu_has_avx512 && (n <= EMU_AVX512_MAX)) {
            emu_copy_avx512(dst, src, n);
        } else if ((n >= EMU_FAR_MIN) && emu_fetches_far) {
            emu_copy_far(dst, src, n);
        } else if (emu_likely(emu_has_avx)) {
            emu_copy_avx(dst, src, n);
        } else {
            emu_copy_sse(dst, src, n);
        }
        return;
    }
#endif
    for (; n >= left; dst += left, src += left, n -= left, left = line) { /* also one with which the body ends */
        size_t tail = (left < 8) ? left : 8;
        memmove(dst, src, left - tail); /* a VCQ may put to itself */
        emu_store_tail(dst + left - tail, src + left - tail, tail);
        atomic_signal_fence(memory_order_seq_cst); /* the compiler keeps to it, too */
    }
    EMU_IN_ORDER();
    emu_copy_last_line(dst, src, n);
}

/* Copy to memory in reach: body first, then the last word by a release store. */
EMU_INLINE void emu_copy(char *dst, const char *src, size_t n)
{
    EMU_READ_IN_ORDER();
    if (emu_likely((n == 8) && !((uintptr_t)dst & 7))) {
        emu_store_tail(dst, src, 8);
        return;
    }
    EMU_IN_ORDER();
    if (emu_likely(n != 0)) {
        size_t tail = emu_tail_size((uintptr_t)dst, n);
        emu_copy_body(dst, src, n - tail);
        EMU_READ_IN_ORDER();
        emu_store_tail(dst + (n - tail), src + (n - tail), tail);
    }
}

/*
 * Who puts one message behind the other, with a notice each, goes on as he did: the next
 * will be as far behind this one as this one is behind the last.  The target has read the
 * first lines of what was there before, and stores wait for each other: until such a line
 * has come back, all that is copied behind it waits.  So it is fetched while the caller
 * does something else.  Not without a notice: there the target may be polling that line.
 */
EMU_INLINE void emu_fetch_next(struct emu_peer *peer, const struct emu_region *r, const char *dst, size_t n)
{
    uintptr_t next = (uintptr_t)dst + ((uintptr_t)dst - peer->noticed);

    peer->noticed = (uintptr_t)dst;
    if (emu_likely((next - (r->base + r->wbegin) < r->wspan) && (next != (uintptr_t)dst))) {
        tofu_fetch_line(next);
        if (n > 64) {
            tofu_fetch_line(next + 64);
        }
    }
}

#endif /* EMU_COPY_H */
