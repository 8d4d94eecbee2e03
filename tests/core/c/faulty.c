/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One of the words by which a receiver tells its senders something fails (an answer, credit, a recall, ...),
 * though they are there: no sender fails, or waits for ever, and all that was sent comes once and in order.
 */
#include "core_test.h"

#define MESSAGES 30u
#define SLOTS    4u /* for two of three senders at a time */

enum { WORD_DONE };

static unsigned seen[4];

static int8_t on_am(void *arg, void *data, size_t length, unsigned flags)
{
    uint64_t word;

    (void)arg, (void)flags;
    CHECK(length >= 8);
    memcpy(&word, data, 8);
    CHECK_EQ(word & 0xffffffff, seen[word >> 32]);
    ++seen[word >> 32];
    return TOFU_OK;
}

static void send_all(struct ctx *ctx)
{
    char     bytes[200] = {0};
    unsigned i;

    for (i = 0; i < MESSAGES; ++i) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 1, ((uint64_t)ctx->rank << 32) | i, bytes,
                                             (i % 3 == 0) ? sizeof(bytes) : 1)));
        if (i % 10 == 9) {
            double end = core_now() + 0.15; /* others have their turn */
            while (core_now() < end) {
                core_idle(ctx->iface);
            }
        }
    }
    core_flush(ctx, ctx->ep[0]);
    CHECK_EQ(ctx->ep_errors, 0);
    atomic_fetch_add(&ctx->shared->word[WORD_DONE], 1);
}

static void fails(struct ctx *ctx, unsigned which)
{
    tofu_iface_config_t config;
    char                rule[80];
    int                 i;

    snprintf(rule, sizeof(rule), "any:after=%u:count=1:error=MRQ_OTHER", which);
    if (ctx->rank == 0) {
        setenv("UTOFU_EMU_FAULT", rule, 1);
    }
    tofu_iface_config_default(&config);
    config.rx_slots       = SLOTS;
    config.rx_short_slots = SLOTS;
    core_open(ctx, &config, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_am, NULL));
    core_barrier_asleep(ctx);
    if (ctx->rank > 0) {
        send_all(ctx);
    }
    PROGRESS_UNTIL(ctx, 50, atomic_load(&ctx->shared->word[WORD_DONE]) == (uint64_t)ctx->size - 1);
    if (ctx->rank == 0) {
        for (i = 1; i < ctx->size; ++i) {
            CHECK_EQ(seen[i], MESSAGES);
        }
        CHECK_EQ(ctx->ep_errors, 0);
    }
    core_close(ctx);
}

#define FAILS(n) \
    static void word_##n(struct ctx *ctx) \
    { \
        fails(ctx, n); \
    }
FAILS(0)
FAILS(1)
FAILS(2)
FAILS(6)
FAILS(22)
FAILS(24)
FAILS(26)
FAILS(30)

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"word_0", 4, 60, word_0, 0},   {"word_1", 4, 60, word_1, 0},
        {"word_2", 4, 60, word_2, 0},   {"word_6", 4, 60, word_6, 0},
        {"word_22", 4, 60, word_22, 0}, {"word_24", 4, 60, word_24, 0},
        {"word_26", 4, 60, word_26, 0}, {"word_30", 4, 60, word_30, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
