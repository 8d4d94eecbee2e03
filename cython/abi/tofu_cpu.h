/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_cpu.h - of the processor: how a line is fetched and given up, its clock, and which of
 * AMD's it is, between which what is fast differs.
 */
#ifndef TOFU_CPU_H
#define TOFU_CPU_H

#include <stdint.h>

#define TOFU_LINE 64u /* bytes; an A64FX has 256 in one */

/* The cache line is to be ours, for a store to come. */
static inline void tofu_fetch_line(uintptr_t addr)
{
#if defined(__x86_64__)
    /* the builtin means one that only reads, but where the compiler is told of this one */
    __asm__ __volatile__("prefetchw (%0)" : : "r"(addr));
#else
    __builtin_prefetch((const void *)addr, 1, 3);
#endif
}

/* The cache line is for another CPU to read next: it may leave ours for the cache that all share.
 * A processor that does not know of this does nothing. */
static inline void tofu_demote_line(uintptr_t addr)
{
#if defined(__x86_64__)
    __asm__ __volatile__("cldemote (%0)" : : "r"(addr) : "memory");
#else
    (void)addr; /* an Arm has no such hint */
#endif
}

/* The processor's own clock, after what is before and before what follows; no unit. */
static inline uint64_t tofu_ticks(void)
{
#if defined(__x86_64__)
    unsigned low, high;

    __asm__ __volatile__("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return ((uint64_t)high << 32) | low;
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ __volatile__("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
    return ticks;
#else
    return 0;
#endif
}

#define TOFU_ZEN5 0x1a /* family */

#if defined(__x86_64__)
#include <cpuid.h>

/* The family, 0: another vendor's. */
static inline unsigned tofu_amd_family(void)
{
    unsigned a, b, c, d;

    __builtin_cpu_init();
    if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &a, &b, &c, &d)) {
        return 0;
    }
    return ((a >> 8) & 0xf) + ((a >> 20) & 0xff);
}
#endif

#endif /* TOFU_CPU_H */
