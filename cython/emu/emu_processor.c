/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_processor.c - what depends on the processor that this runs on. */
#include "emu_copy.h"
#include "emu_timing.h"

#include "tofu_bet.h"
#include "tofu_cpu.h"

bool emu_has_avx, emu_has_avx512, emu_fetches_far;
bool emu_looks_apart = true;
bool emu_looks_complete, emu_looks_bet;
/* As measured on an Intel (Emerald Rapids), when emu_floor.c had a wait of its own there, too.  With it puts
 * came 29 to 50 ns late on an AMD Zen 3, whose counter goes in steps of 10 ns; 0.9, 1.4 and 1.65 were tried
 * there, no other AMD's since. */
double emu_entry_share = EMU_ENTRY_SHARE_LOCAL;
/* Seen on one Intel (amx_fp16).  Not on AMD's, whose share was chosen without it */
bool emu_floor_waits = true;

__attribute__((constructor)) static void look_at_processor(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    emu_looks_apart    = !__builtin_cpu_is("amd");
    emu_looks_complete = !emu_looks_apart && __builtin_cpu_supports("avx512f"); /* a Zen 4 or later */
    emu_entry_share    = __builtin_cpu_is("amd") ? 1.4 : emu_entry_share;
    emu_floor_waits    = !__builtin_cpu_is("amd");
    /* On a Zen 4, and on a Zen 3, where those of the core gain (tofu_look.h); not tried on a Zen 5 */
    emu_looks_bet = TOFU_CAN_BET && (__builtin_cpu_is("intel") ||
                                     (__builtin_cpu_is("amd") && (tofu_amd_family() < TOFU_ZEN5)));
#endif
#ifdef EMU_COPY_ASM
    emu_has_avx    = __builtin_cpu_supports("avx");
    /* a Zen 4 takes a line in two halves anyway: 8 KiB 5 % longer by lines */
    emu_has_avx512 = __builtin_cpu_supports("avx512f") && (tofu_amd_family() >= TOFU_ZEN5);
    /* measured on no other */
    emu_fetches_far = emu_has_avx && __builtin_cpu_is("intel");
#endif
}
