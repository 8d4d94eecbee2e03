/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * am_test.h - what the programs of tests/am share on top of core_test.h: messages
 * that say who sent them, which one they are, and whether they are whole.
 */
#ifndef AM_TEST_H
#define AM_TEST_H

#include "core_test.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define AM_MAX_BYTES 8192u

/* The first 8 bytes of every message; bytes that follow from them come next. */
struct am_head {
    uint64_t from : 16, number : 48;
};

static inline uint64_t am_head(unsigned from, uint64_t number)
{
    struct am_head head = {.from = from, .number = number};
    uint64_t       word;

    memcpy(&word, &head, sizeof(word));
    return word;
}

static inline uint64_t am_seed(uint64_t word)
{
    return word * 0x9e3779b97f4a7c15ull + 1;
}

/* Checks a message and returns its head. */
static inline struct am_head am_check(const void *data, size_t length)
{
    struct am_head head;
    uint64_t       word;

    CHECK(length >= sizeof(word));
    memcpy(&word, data, sizeof(word));
    memcpy(&head, data, sizeof(word));
    if (!matches((const char *)data + 8, length - 8, am_seed(word))) {
        FAIL("message %llu from %u of %zu bytes is damaged",
             (unsigned long long)head.number, (unsigned)head.from, length);
    }
    return head;
}

static inline void am_make(void *data, size_t length, uint64_t word)
{
    memcpy(data, &word, sizeof(word));
    fill((char *)data + 8, length - 8, am_seed(word));
}

struct am_bytes {
    const void *data;
    size_t     length;
};

static inline size_t am_pack(void *dest, void *arg)
{
    const struct am_bytes *bytes = arg;

    memcpy(dest, bytes->data, bytes->length);
    return bytes->length;
}

/* core_close without the barrier, for which some ranks are missing. */
static inline void am_leave(struct ctx *ctx)
{
    int r;

    for (r = 0; r < MAX_RANKS; ++r) {
        if (ctx->ep[r] != NULL) {
            tofu_ep_destroy(ctx->ep[r]);
        }
    }
    tofu_iface_close(ctx->iface);
    tofu_md_close(ctx->md);
}

static inline void am_print_stats(const char *who, tofu_iface_t *iface)
{
    tofu_iface_stats_t s;
    tofu_iface_attr_t  attr;

    tofu_iface_get_stats(iface, &s);
    tofu_iface_query(iface, &attr);
    printf("%s: am_rx %llu am_tx %llu credit_rx %llu credit_tx %llu notices %llu "
           "posts %llu tcq %llu dropped %llu; MRQ %u, bound %u\n", who,
           (unsigned long long)s.am_rx, (unsigned long long)s.am_tx,
           (unsigned long long)s.credit_rx, (unsigned long long)s.credit_tx,
           (unsigned long long)s.notices, (unsigned long long)s.posts,
           (unsigned long long)s.tcq_entries, (unsigned long long)s.dropped,
           attr.mrq_entries, attr.max_notices);
}

/* A number from the environment. */
static inline unsigned am_setting(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);

    return (text != NULL) ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

#endif
