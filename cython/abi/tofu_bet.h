/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_bet.h - a look at a word that another CPU is about to write, which the processor
 * believes to be there already.
 *
 * A loop of looks teaches the processor that there is nothing, so that when there is
 * something it finds out late, and begins with what follows only then.  If it believes
 * that there is something, it does all that while the line is on its way.  Who uses it
 * says for which processors (tofu_look.h, emu_processor.c), and is compiled without
 * shadow stacks (CMakeLists.txt).
 */
#ifndef TOFU_BET_H
#define TOFU_BET_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define TOFU_CAN_BET 1

/*
 * Is *place & mask the value?  Processors predict that a return goes to where the call
 * was, and compare with what stands on the stack when that is known.  So this calls
 * itself, and changes the place to return to when the value is another one.  128 bytes of
 * the stack are left alone, as the compiler may use them below the stack pointer.
 *
 * delay: instructions that do nothing (a constant), before what follows; not 0: behind four
 * jumps to where they go on anyway.  Presumably a bet that is lost at once, because the line is
 * here and says no, is taken back before the processor is through with them, so that what
 * follows touches no other line; only while the line is on its way it gets further, and that is
 * when it should.  (That it helps is measured: emu_queue.c.  Why is not: a virtual machine has
 * no counters for it.)  The jumps make it wait without filling the window in which it works
 * ahead; presumably that is smaller when somebody else uses the same core.  60 instructions
 * without jumps and 30 with them, in turns: the medians of a notice differ little (191 and 175,
 * 182 and 178, 178 and 184 ns), the upper quartiles more (225 and 189, 219 and 192, 210 and 193).
 */
static inline __attribute__((always_inline)) bool tofu_bet(const void *place, uint64_t mask,
                                                           uint64_t value, const int delay)
{
    __asm__ goto("lea   -128(%%rsp), %%rsp\n\t"
                 "call  1f\n\t"
                 "lea   128(%%rsp), %%rsp\n\t"
                 ".if   %c3\n\t"
                 ".rept 4\n\t"
                 "jmp   9f\n"
                 "9:\n\t"
                 ".endr\n\t"
                 ".endif\n\t"
                 ".rept %c3\n\t"
                 "nop\n\t"
                 ".endr\n\t"
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
                 : "r"(place), "r"(value), "r"(mask), "i"(delay)
                 : "rax", "rcx", "memory", "cc"
                 : nothing);
    return true;

nothing:
    return false;
}

#else
#define TOFU_CAN_BET 0
#endif

#endif /* TOFU_BET_H */
