/* SPDX-License-Identifier: BSD-3-Clause */
/* tofu_processor.c - what depends on the processor that this runs on. */
#include "tofu_internal.h"
#include "tofu_cpu.h"
#include "tofu_look.h"
#include "tofu_take.h"

bool   tofu_looks_bet;
bool   tofu_takes_lines;
size_t tofu_bounce_offset = TOFU_BOUNCE_PAGE / 2 + 64;

__attribute__((constructor)) static void tofu_look_at_processor(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    tofu_looks_bet = __builtin_cpu_is("amd") || __builtin_cpu_is("intel");
    tofu_takes_lines = __builtin_cpu_is("amd"); /* of others it was not measured */
    if (tofu_amd_family() >= TOFU_ZEN5) {
        tofu_bounce_offset = 32;
    }
#endif
}
