/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_cpu.h - of the processor: how a line is fetched, and which of AMD's it is, between which
 * what is fast differs.
 */
#ifndef TOFU_CPU_H
#define TOFU_CPU_H

#include <stdint.h>

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
