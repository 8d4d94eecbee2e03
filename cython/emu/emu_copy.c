/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_copy.c - which copy loop this processor has (emu_copy.h). */
#include "emu_copy.h"

bool emu_has_avx;

__attribute__((constructor)) static void look_at_processor(void)
{
#ifdef EMU_COPY_ASM
    __builtin_cpu_init();
    emu_has_avx = __builtin_cpu_supports("avx");
#endif
}
