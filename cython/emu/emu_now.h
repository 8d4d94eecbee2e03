/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_now.h - the kernel's clock, for limits and for what things take, and rests.
 */
#ifndef EMU_NOW_H
#define EMU_NOW_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ns, monotonic */
static inline uint64_t emu_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Not a cancellation point: the caller may have a lock.  A signal ends it. */
static inline void emu_sleep(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    syscall(SYS_nanosleep, &ts, NULL);
}

#endif /* EMU_NOW_H */
