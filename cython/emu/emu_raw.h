/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_raw.h - system calls for code that may not touch thread-local variables, as errno: it returns what
 * the kernel does, so -EINTR and the like.  EMU_RAW is defined where it is written for the processor.
 */
#ifndef EMU_RAW_H
#define EMU_RAW_H

#if defined(__x86_64__)
#define EMU_RAW

static inline __attribute__((always_inline)) long emu_raw(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8")   = e;
    register long r9 __asm__("r9")   = f;
    long          ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

#elif defined(__aarch64__)
#define EMU_RAW

static inline __attribute__((always_inline)) long emu_raw(long nr, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;

    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

#endif

#endif /* EMU_RAW_H */
