/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_cpu.h - which of AMD's processors this is: what is fast differs between them.
 */
#ifndef TOFU_CPU_H
#define TOFU_CPU_H

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
