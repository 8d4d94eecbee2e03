/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_look.h - looking at a word that another CPU is about to write, as processors like
 * it.  Which one this is, is found out once (tofu_processor.c).
 */
#ifndef TOFU_LOOK_H
#define TOFU_LOOK_H

#include "tofu_util.h"

#include <stdatomic.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Some ns, in which what is before is completed. */
static inline void tofu_take_time(void)
{
#if defined(__x86_64__)
    unsigned low, high;

    /* an instruction with a locked prefix does it, too */
    __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high) : : "memory");
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" : : : "memory");
#endif
}

/*
 * A CPU that looks as fast as it can makes the store take longer.  On Intel's 1.4 to 2
 * times as long (presumably it asks for the line again as soon as it is taken away,
 * before the other has stored): a pause or an lfence help little there; what helps is to
 * complete a look before the next one, and some ns between them.
 *
 * There is something better: to bet on the word at each look.  A loop of looks teaches
 * the processor that there is nothing, so that when there is something it finds out late,
 * and begins with what follows (the handler, the answer: 300 instructions) only then.  If
 * it believes that there is something, it does all that while the line is on its way.
 * Who loses the bet has nothing better to do, and his next look comes 6 ns later, which is
 * a pause as well.  Measured, one way: on an AMD with a line that takes 50 ns 85 ns
 * without, 78 with two lfences between looks, 70 so; on an Intel (Emerald Rapids) with a
 * line that takes 75 ns 187 with looks apart, 177 so, and over UCP, with tags, 220 and 199.
 */
extern bool tofu_looks_bet; /* tofu_processor.c */

#if defined(__x86_64__) && defined(__GNUC__)
/*
 * Is *place & mask the value?  Processors predict that a return goes to where the call
 * was, and compare with what stands on the stack when that is known.  So this calls
 * itself, and changes the place to return to when the value is another one.  128 bytes of
 * the stack are left alone, as the compiler may use them below the stack pointer.  (A
 * shadow stack would take it for an attack: CMakeLists.txt says that there can be none.)
 */
static TOFU_ALWAYS_INLINE bool tofu_look_bet(const _Atomic uint64_t *place,
                                             uint64_t mask, uint64_t value)
{
    __asm__ goto("lea   -128(%%rsp), %%rsp\n\t"
                 "call  1f\n\t"
                 "lea   128(%%rsp), %%rsp\n\t"
                 "jmp   3f\n"
                 "1:\tmov (%0), %%rax\n\t"
                 "lea   2f(%%rip), %%rcx\n\t"
                 "and   %2, %%rax\n\t"
                 "cmp   %%rax, %1\n\t"
                 "cmove (%%rsp), %%rcx\n\t"
                 "mov   %%rcx, (%%rsp)\n\t"
                 "ret\n"
                 "2:\tlea 128(%%rsp), %%rsp\n\t"
                 "jmp   %l[nothing]\n"
                 "3:"
                 :
                 : "r"(place), "r"(value), "r"(mask)
                 : "rax", "rcx", "memory", "cc"
                 : nothing);
    return true;

nothing:
    return false;
}
#endif

/* One of several looks: is *place & mask the value? */
static TOFU_ALWAYS_INLINE bool tofu_look(const _Atomic uint64_t *place, uint64_t mask,
                                         uint64_t value)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (tofu_looks_bet) {
        return tofu_look_bet(place, mask, value);
    }
#endif
    tofu_take_time();
    return (atomic_load_explicit(place, memory_order_acquire) & mask) == value;
}

#pragma GCC visibility pop

#endif /* TOFU_LOOK_H */
