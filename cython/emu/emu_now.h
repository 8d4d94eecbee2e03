/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_now.h - the kernel's clock, for limits and for what things take.
 */
#ifndef EMU_NOW_H
#define EMU_NOW_H

#include <stdint.h>
#include <time.h>

/* ns, monotonic */
static inline uint64_t emu_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif /* EMU_NOW_H */
