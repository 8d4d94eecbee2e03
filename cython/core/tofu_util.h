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
