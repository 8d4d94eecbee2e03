/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_tests.c - latency, bandwidth and rate between two processes.
 *
 * Names and meanings are ucx_perftest's.  Rank 0 measures; in ping-pongs a time is
 * that of a round trip, of which half is printed.  With several threads each has a
 * partner of the same number at the other side.
 */
#include "perf.h"

#define BATCH          16 /* operations per time in *_bw and add_mr */
#define PROGRESS_EVERY 16 /* posts after which a stream calls progress */

/* ------------------------------------------------------------- ping-pongs */

static uint8_t next_value(struct perf_ctx *ctx)
{
    return (uint8_t)(ctx->sequence++ % 251 + 1);
}

/* The last byte is what the target waits for.  It is written as the word that is
 * read later: a load of 8 bytes after a store of one waits until all stores before
 * it have left the CPU. */
static void write_last(struct perf_ctx *ctx, uint8_t value)
{
    uint8_t  *end = ctx->memory + ctx->out + ctx->opt->size;
    uint64_t word = (uint64_t)value << 56;

    if (ctx->opt->size >= sizeof(word)) {
        memcpy(end - sizeof(word), &word, sizeof(word));
    } else {
        end[-1] = value;
    }
}

static void wait_last(struct perf_ctx *ctx, uint8_t value)
{
    volatile const uint8_t *last = &ctx->memory[ctx->opt->size - 1];

    while (*last != value) {
        if (perf_layer.serves || (perf_in_flight(ctx) > 0)) {
            perf_layer.progress(ctx);
        }
        perf_spin(ctx);
    }
}

static void wait_arrived(struct perf_ctx *ctx, uint64_t count)
{
    while (ctx->arrived < count) {
        perf_layer.progress(ctx);
        perf_spin(ctx);
    }
}

static void put_pingpong(struct perf_ctx *ctx, long n)
{
    size_t  size = ctx->opt->size;
    int     peer = 1 - ctx->rank;
    uint8_t value;

    ctx->polls_memory    = true;
    ctx->want_completion = true;
    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        value = next_value(ctx);
        if (ctx->rank == 1) {
            wait_last(ctx, value);
        }
        perf_window(ctx, 1); /* the buffer is not ours before */
        write_last(ctx, value);
        perf_layer.put(ctx, peer, ctx->out, 0, size);
        if (ctx->rank == 0) {
            wait_last(ctx, value);
            perf_update(ctx);
        }
    }
    perf_end(ctx, n);
    perf_window(ctx, 1);
    ctx->polls_memory = false;
}

static void check_put_pingpong(struct perf_ctx *ctx)
{
    size_t size = ctx->opt->size, tail = (size < 8) ? 1 : 8;

    perf_verify(ctx->memory, size - tail, ctx->phase, "what was put");
}

static bool can_put(void)
{
    return perf_layer.put != NULL;
}

/* The paper's: data, then a flag by a put of its own, and the flag is polled. */
static void flag_pingpong(struct perf_ctx *ctx, long n)
{
    volatile uint64_t *flag = perf_word(ctx, PERF_WORD_FLAG);
    volatile uint64_t *out  = perf_word(ctx, PERF_WORD_FLAG_OUT);
    size_t            size  = ctx->opt->size;
    int               peer  = 1 - ctx->rank, is_turn = (ctx->rank == 0);
    uint64_t          value;

    ctx->polls_memory    = true;
    ctx->want_completion = true;
    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        value = ++ctx->sequence;
        for (int half = 0; half < 2; ++half, is_turn = !is_turn) {
            if (is_turn) {
                perf_window(ctx, 1);
                write_last(ctx, (uint8_t)value);
                *out = value;
                perf_layer.put(ctx, peer, ctx->out, 0, size);
                perf_layer.fence(ctx);
                perf_layer.put(ctx, peer, ctx->words + PERF_WORD_FLAG_OUT,
                               ctx->words + PERF_WORD_FLAG, sizeof(value));
                continue;
            }
            while (*flag != value) {
                if (perf_layer.serves || (perf_in_flight(ctx) > 0)) {
                    perf_layer.progress(ctx);
                }
                perf_spin(ctx);
            }
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            PERF_CHECK(*(volatile uint8_t*)&ctx->memory[size - 1] == (uint8_t)value,
                       "the flag came before the data");
        }
        perf_tick(ctx);
    }
    perf_end(ctx, n);
    perf_window(ctx, 1);
    ctx->polls_memory = false;
}

static bool can_fence(void)
{
    return (perf_layer.put != NULL) && (perf_layer.fence != NULL);
}

static void notice_pingpong(struct perf_ctx *ctx, long n)
{
    size_t  size = ctx->opt->size;
    int     peer = 1 - ctx->rank, is_turn = (ctx->rank == 0);
    uint8_t value;

    ctx->want_completion = true;
    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        value = next_value(ctx);
        for (int half = 0; half < 2; ++half, is_turn = !is_turn) {
            if (is_turn) {
                perf_window(ctx, 1);
                write_last(ctx, value);
                perf_layer.put_notice(ctx, peer, ctx->out, 0, size);
                continue;
            }
            while (!perf_layer.poll_notice(ctx)) {
                if (perf_in_flight(ctx) > 0) {
                    perf_layer.progress(ctx);
                }
                perf_spin(ctx);
            }
            PERF_CHECK(*(volatile uint8_t*)&ctx->memory[size - 1] == value,
                       "a notice came before its data");
        }
        perf_tick(ctx);
    }
    perf_end(ctx, n);
    perf_window(ctx, 1);
}

static bool can_notice(void)
{
    return perf_layer.put_notice != NULL;
}

static void send_pingpong(struct perf_ctx *ctx, long n, enum perf_kind kind)
{
    uint64_t count = ctx->taken;
    size_t   size  = ctx->opt->size;
    int      peer  = 1 - ctx->rank;

    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        if (kind != PERF_AM) {
            perf_layer.receive(ctx, peer, kind, size);
        }
        ++count;
        if (ctx->rank == 1) {
            wait_arrived(ctx, count);
        }
        perf_window(ctx, 1);
        perf_layer.send(ctx, peer, kind, size);
        if (ctx->rank == 0) {
            wait_arrived(ctx, count);
            perf_update(ctx);
        }
    }
    perf_end(ctx, n);
    perf_window(ctx, 1);
    PERF_CHECK(ctx->arrived == count, "%lu messages came, %lu were sent",
               (unsigned long)ctx->arrived, (unsigned long)count);
    ctx->taken = count;
}

static void add_pingpong(struct perf_ctx *ctx, long n)
{
    volatile uint64_t *word = perf_word(ctx, PERF_WORD_AMO);
    int               peer = 1 - ctx->rank, is_turn = (ctx->rank == 0);

    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i) {
        ++ctx->sequence;
        for (int half = 0; half < 2; ++half, is_turn = !is_turn) {
            if (is_turn) {
                perf_layer.amo(ctx, peer, PERF_ADD, 1, 0,
                               ctx->words + PERF_WORD_AMO);
                continue;
            }
            while (*word < ctx->sequence) {
                perf_layer.progress(ctx);
                perf_spin(ctx);
            }
            PERF_CHECK(*word == ctx->sequence, "an add came twice");
        }
        perf_update(ctx);
    }
    perf_end(ctx, n);
    perf_window(ctx, 1);
}

/* ---------------------------------------------------------------- streams */

/* The target of a stream of puts or atomics reads what is written all the while, as
 * ucx_perftest's does: the cache line then is not the sender's alone.  It looks at a
 * flag to know that the stream is over, which is put when no time is taken. */
static void watch_stream(struct perf_ctx *ctx, size_t at)
{
    volatile const uint64_t *flag = perf_word(ctx, PERF_WORD_FLAG);
    volatile const uint8_t  *data = &ctx->memory[at];
    uint64_t                over  = ++ctx->streams;

    while (*flag != over) {
        (void)*data;
        perf_layer.progress(ctx);
        perf_spin(ctx);
    }
}

static void end_stream(struct perf_ctx *ctx)
{
    *perf_word(ctx, PERF_WORD_FLAG_OUT) = ++ctx->streams;
    perf_layer.put(ctx, 1, ctx->words + PERF_WORD_FLAG_OUT,
                   ctx->words + PERF_WORD_FLAG, sizeof(uint64_t));
    perf_layer.flush(ctx);
}

static void put_stream(struct perf_ctx *ctx, long n)
{
    size_t size = ctx->opt->size;

    if (ctx->rank != 0) {
        if (ctx->opt->tnis == 1) {
            watch_stream(ctx, size - 1);
        }
        return;
    }
    if (n < ctx->opt->tnis) { /* every target looks whether something came */
        n = ctx->opt->tnis;
    }
    ctx->want_completion = true;
    perf_begin(ctx, BATCH);
    for (long i = 0; i < n; ++i) {
        if (ctx->opt->tnis == 1) { /* else each TNI has a window of its own */
            perf_window(ctx, ctx->opt->window);
        }
        ctx->is_last = (i == n - 1);
        perf_layer.put(ctx, 1, ctx->out, 0, size);
        if (i % PROGRESS_EVERY == 0) {
            perf_layer.progress(ctx);
        }
        perf_update(ctx);
    }
    perf_layer.flush(ctx);
    perf_end(ctx, n);
    if (ctx->opt->tnis == 1) { /* else it would have to be one flag for each */
        end_stream(ctx);
    }
    ctx->is_last = false;
}

static void check_target(struct perf_ctx *ctx)
{
    if (ctx->rank > 0) {
        perf_verify(ctx->memory, ctx->opt->size, ctx->phase, "what was put");
    }
}

/* Message rate: a window of puts, then the wait for all of it at the other side. */
static void put_rate(struct perf_ctx *ctx, long n)
{
    long window = (n < ctx->opt->window) ? n : ctx->opt->window, i, done = 0;

    if (ctx->rank != 0) {
        return;
    }
    ctx->want_completion = false;
    perf_begin(ctx, window);
    ctx->batch = window;
    do {
        for (i = 0; i < window; ++i) {
            ctx->is_last = (i == window - 1);
            perf_layer.put(ctx, 1, ctx->out, 0, ctx->opt->size);
        }
        perf_layer.flush(ctx);
        for (i = 0; i < window; ++i) {
            perf_tick(ctx);
        }
        done += window;
    } while (done + window <= n);
    perf_end(ctx, done);
    ctx->is_last = false;
}

static void get_stream(struct perf_ctx *ctx, long n)
{
    bool is_latency = (ctx->opt->window == 1);

    if (ctx->rank != 0) {
        return;
    }
    perf_begin(ctx, is_latency ? 1 : BATCH);
    for (long i = 0; i < n; ++i) {
        perf_window(ctx, ctx->opt->window);
        perf_layer.get(ctx, 1, 0, ctx->out, ctx->opt->size);
        if (is_latency) {
            perf_window(ctx, 1);
        }
        perf_update(ctx);
    }
    perf_window(ctx, 1);
    perf_end(ctx, n);
}

static void check_get(struct perf_ctx *ctx)
{
    if (ctx->rank == 0) {
        perf_verify(ctx->memory, ctx->opt->size, ctx->phase, "what was got");
    }
}

static bool can_get(void)
{
    return perf_layer.get != NULL;
}

static bool can_amo(void)
{
    return perf_layer.amo != NULL;
}

/* As watch_stream; the word itself tells the end. */
static void watch_word(struct perf_ctx *ctx)
{
    volatile const uint64_t *word = perf_word(ctx, PERF_WORD_AMO);

    while (*word != ctx->sequence) {
        perf_layer.progress(ctx);
        perf_spin(ctx);
    }
}

static void add_stream(struct perf_ctx *ctx, long n)
{
    ctx->sequence += (uint64_t)n; /* what the word is afterwards */
    if (ctx->rank != 0) {
        watch_word(ctx);
        return;
    }
    perf_begin(ctx, BATCH);
    for (long i = 0; i < n; ++i) {
        perf_window(ctx, ctx->opt->window);
        perf_layer.amo(ctx, 1, PERF_ADD, 1, 0, ctx->words + PERF_WORD_AMO);
        if (i % PROGRESS_EVERY == 0) {
            perf_layer.progress(ctx);
        }
        perf_update(ctx);
    }
    perf_layer.flush(ctx);
    perf_end(ctx, n);
}

static void check_word(struct perf_ctx *ctx)
{
    uint64_t word = *perf_word(ctx, PERF_WORD_AMO);

    PERF_CHECK((ctx->rank == 0) || (word == ctx->sequence),
               "the word is %lu after %lu atomics", (unsigned long)word,
               (unsigned long)ctx->sequence);
}

static void fetch_stream(struct perf_ctx *ctx, long n, enum perf_amo op)
{
    uint64_t before = ctx->sequence;

    ctx->sequence += (uint64_t)n;
    if (ctx->rank != 0) {
        watch_word(ctx);
        return;
    }
    perf_begin(ctx, 1);
    for (long i = 0; i < n; ++i, ++before) {
        perf_layer.amo(ctx, 1, op, (op == PERF_FADD) ? 1 : before + 1, before,
                       ctx->words + PERF_WORD_AMO);
        perf_window(ctx, 1);
        PERF_CHECK(ctx->result == before, "an atomic gave %lu, not %lu",
                   (unsigned long)ctx->result, (unsigned long)before);
        perf_update(ctx);
    }
    perf_end(ctx, n);
}

static void fadd(struct perf_ctx *ctx, long n)
{
    fetch_stream(ctx, n, PERF_FADD);
}

static void swap(struct perf_ctx *ctx, long n)
{
    fetch_stream(ctx, n, PERF_SWAP);
}

static void cswap(struct perf_ctx *ctx, long n)
{
    fetch_stream(ctx, n, PERF_CSWAP);
}

/* The receiver's messages of 8 bytes back: one at the end, so the time is that of what
 * arrived; and where the layer has no flow control of its own that a stream may lean
 * on, one for every PERF_ACK messages, so no more than PERF_FC are on their way. */
static void ask_for_acks(struct perf_ctx *ctx, enum perf_kind kind, uint64_t *asked,
                         uint64_t got, uint64_t acks)
{
    while ((kind != PERF_AM) && (*asked < acks) && (*asked < got + 2)) {
        perf_layer.receive(ctx, 1, kind, 8);
        ++*asked;
    }
}

static void send_all(struct perf_ctx *ctx, uint64_t n, enum perf_kind kind,
                     uint64_t every, uint64_t most)
{
    uint64_t base = ctx->taken, acks = (n + every - 1) / every, asked = 0, i;

    ctx->taken += acks;
    ask_for_acks(ctx, kind, &asked, 0, acks);
    perf_begin(ctx, BATCH);
    for (i = 0; i < n; ++i) {
        while (i >= (ctx->arrived - base) * every + most) {
            perf_layer.progress(ctx);
            perf_spin(ctx);
        }
        ask_for_acks(ctx, kind, &asked, ctx->arrived - base, acks);
        perf_window(ctx, ctx->opt->window);
        perf_layer.send(ctx, 1, kind, ctx->opt->size);
        perf_update(ctx);
    }
    while (ctx->arrived - base < acks) {
        ask_for_acks(ctx, kind, &asked, ctx->arrived - base, acks);
        perf_layer.progress(ctx);
        perf_spin(ctx);
    }
    perf_end(ctx, (long)n);
}

static void receive_all(struct perf_ctx *ctx, uint64_t n, enum perf_kind kind,
                        uint64_t every)
{
    uint64_t base = ctx->taken, window = (uint64_t)ctx->opt->window, asked = 0, i = 0;

    ctx->taken += n;
    while (i < n) {
        /* first all that came before it was asked for, or there would be ever more */
        while ((kind != PERF_AM) && (asked < n) &&
               (asked - (ctx->arrived - base) < window)) {
            perf_layer.receive(ctx, 0, kind, ctx->opt->size);
            ++asked;
        }
        perf_layer.progress(ctx);
        perf_spin(ctx);
        while (i < ctx->arrived - base) { /* one by one, for the acks */
            ++i;
            if ((i % every == 0) || (i == n)) {
                perf_layer.send(ctx, 0, kind, 8);
            }
        }
    }
}

static void send_stream(struct perf_ctx *ctx, long n, enum perf_kind kind)
{
    uint64_t every = perf_layer.acknowledges ? PERF_ACK : (uint64_t)n;
    uint64_t most  = perf_layer.acknowledges ? PERF_FC : (uint64_t)n;

    if (ctx->rank == 0) {
        send_all(ctx, (uint64_t)n, kind, every, most);
    } else {
        receive_all(ctx, (uint64_t)n, kind, every);
    }
    perf_window(ctx, 1);
}

static void check_received(struct perf_ctx *ctx)
{
    if (ctx->rank > 0) {
        perf_verify(ctx->memory, ctx->opt->size, ctx->phase, "what was received");
    }
}

#define SENDS(_name, _kind) \
    static bool can_##_name(void) \
    { \
        return (perf_layer.has != NULL) && perf_layer.has(_kind); \
    } \
    static void _name##_lat(struct perf_ctx *ctx, long n) \
    { \
        send_pingpong(ctx, n, _kind); \
    } \
    static void _name##_bw(struct perf_ctx *ctx, long n) \
    { \
        send_stream(ctx, n, _kind); \
    }
SENDS(am, PERF_AM)
SENDS(tag, PERF_TAG)
SENDS(stream, PERF_STREAM)

/* name, run, check, is_there, procs, is_one_way, any_window, min_size, steps */
const struct perf_test perf_tests[] = {
    {"put_lat", put_pingpong, check_put_pingpong, can_put, 2, true, false, 1, {0}},
    {"put_bw", put_stream, check_target, can_put, 2, false, true, 1, {0}},
    {"put_rate", put_rate, check_target, can_put, 2, false, true, 1, {0}},
    {"get_lat", get_stream, check_get, can_get, 2, false, false, 1, {0}},
    {"get_bw", get_stream, check_get, can_get, 2, false, true, 1, {0}},
    {"am_lat", am_lat, NULL, can_am, 2, true, false, 8, {0}},
    {"am_bw", am_bw, NULL, can_am, 2, false, true, 8, {0}},
    {"add_lat", add_pingpong, NULL, can_amo, 2, true, false, 8, {0}},
    {"add_mr", add_stream, check_word, can_amo, 2, false, true, 8, {0}},
    {"fadd", fadd, check_word, can_amo, 2, false, false, 8, {0}},
    {"swap", swap, check_word, can_amo, 2, false, false, 8, {0}},
    {"cswap", cswap, check_word, can_amo, 2, false, false, 8, {0}},
    {"tag_lat", tag_lat, check_received, can_tag, 2, true, false, 1, {0}},
    {"tag_bw", tag_bw, check_received, can_tag, 2, false, true, 8, {0}},
    {"stream_lat", stream_lat, check_received, can_stream, 2, true, false, 1, {0}},
    {"stream_bw", stream_bw, check_received, can_stream, 2, false, true, 8, {0}},
    {"pingpong_flag", flag_pingpong, check_put_pingpong, can_fence, 2, true, false,
     1, {0}},
    {"pingpong_mrq", notice_pingpong, check_put_pingpong, can_notice, 2, true, false,
     1, {0}},
    {"mt_pingpong", put_pingpong, check_put_pingpong, can_put, 2, true, false, 1,
     {0}},
    {NULL, NULL, NULL, NULL, 0, false, false, 0, {0}}
};
