/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_util.h - small things that every file of the core uses: lists, log lines.
 */
#ifndef TOFU_UTIL_H
#define TOFU_UTIL_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

#define TOFU_LIKELY(cond)    __builtin_expect(!!(cond), 1)
#define TOFU_UNLIKELY(cond)  __builtin_expect(!!(cond), 0)
#define TOFU_NOINLINE        __attribute__((noinline))
#define TOFU_ALWAYS_INLINE   inline __attribute__((always_inline))
#define TOFU_PRINTF(f, a)    __attribute__((format(printf, f, a)))
#define tofu_container(ptr, type, member) \
    ((type *)((char *)(ptr) - offsetof(type, member)))

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
 * Between two looks at a word that another CPU is about to write.  A CPU that looks as
 * fast as it can makes that take 1.4 to 2 times as long (measured on Intel's; presumably
 * it asks for the line again as soon as it is taken away, before the other has stored).
 * A pause or an lfence help little; what helps is to complete a look before the next
 * one, and some ns between them.  AMD's do not mind, and there the ns count.
 */
extern bool tofu_looks_apart; /* tofu_progress.c */
static inline void tofu_look_apart(void)
{
    if (tofu_looks_apart) {
        tofu_take_time();
    }
}

/* ------------------------------------------------------------------ lists */

typedef struct tofu_link {
    struct tofu_link *next, *prev;
} tofu_link_t;

static inline void tofu_list_init(tofu_link_t *head)
{
    head->next = head->prev = head;
}

static inline int tofu_list_empty(const tofu_link_t *head)
{
    return head->next == head;
}

static inline void tofu_list_add(tofu_link_t *head, tofu_link_t *link)
{
    link->prev       = head->prev;
    link->next       = head;
    head->prev->next = link;
    head->prev       = link;
}

/* Also makes link a list of its own, so that deleting twice does no harm. */
static inline void tofu_list_del(tofu_link_t *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    tofu_list_init(link);
}

/* ------------------------------------------------------------- tofu_log.c */

void tofu_log(int level, const char *fmt, ...) TOFU_PRINTF(2, 3);
#define tofu_error(...) tofu_log(0, __VA_ARGS__)
#define tofu_warn(...)  tofu_log(1, __VA_ARGS__)
#define tofu_debug(...) tofu_log(3, __VA_ARGS__)

#pragma GCC visibility pop

#endif /* TOFU_UTIL_H */
