/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_order.c - STRONG_ORDER: within one operation the end of the data
 * becomes visible last (6.1.3.1), and operations follow each other (2.2.10,
 * 3.7.9.1).
 */
#include "harness.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

static uint64_t load(const volatile void *address)
{
    return atomic_load_explicit((const volatile _Atomic uint64_t *)address,
                                memory_order_acquire);
}

static unsigned char load_byte(const volatile void *address)
{
    return atomic_load_explicit((const volatile _Atomic unsigned char *)address,
                                memory_order_acquire);
}

struct line {
    struct conf_vcq vcq;
    struct conf_mem mem;
    struct conf_mem ack;
    utofu_stadd_t   stadds[2];
    utofu_stadd_t   acks[2];
};

static void line_open(struct line *l, enum conf_kind kind, size_t size)
{
    conf_pin();
    conf_vcq_open(&l->vcq, 0, 0);
    conf_mem_alloc(&l->mem, kind, size);
    conf_mem_alloc(&l->ack, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&l->vcq, l->mem.addr, size, l->stadds);
    conf_reg_all(&l->vcq, l->ack.addr, 4096, l->acks);
}

static void line_close(struct line *l)
{
    conf_barrier();
    conf_dereg(&l->vcq, l->stadds[conf_rank]);
    conf_dereg(&l->vcq, l->acks[conf_rank]);
    conf_vcq_close(&l->vcq);
    conf_mem_free(&l->mem);
    conf_mem_free(&l->ack);
}

/* Rank 1 tells rank 0 that it has looked. */
static void line_ack(struct line *l, uint64_t round)
{
    unsigned spins = 0;
    double   end   = conf_now() + CONF_WAIT;

    if (conf_rank == 1) {
        CONF_POST(l->vcq.hdl,
                  utofu_put_piggyback8(l->vcq.hdl, l->vcq.peer[0], round,
                                       l->acks[0], 8, 0, CONF_STRONG, NULL));
        return;
    }
    while (load(l->ack.addr) != round) {
        if (spins % 65536 == 0) {
            CONF_CHECK(conf_now() < end, "no answer in round %" PRIu64, round);
        }
        conf_relax(&spins);
    }
}

/* Spin on 8 bytes until they are value; hard, because a window between the end
 * and the body of the data is narrow. */
static void spin_until(const void *address, uint64_t value)
{
    unsigned spins = 0;
    double   end   = conf_now() + CONF_WAIT;

    while (load(address) != value) {
        if (++spins % 16384 == 0) {
            CONF_CHECK(conf_now() < end, "value %" PRIu64 " does not arrive",
                       value);
            sched_yield();
        }
    }
}

/* Rank 0 puts data made of one word again and again; rank 1 sees the last word
 * and then must see all others. */
static void last_word(enum conf_kind kind)
{
    static const size_t sizes[] = {64, 256, 1024, 4096, 16384, 65536};
    enum { ROUNDS = 4000 };
    struct line l;
    uint64_t   *data, round, value, i;
    size_t      s, words;

    conf_timeout(60);
    line_open(&l, kind, 65536);
    data = (uint64_t *)l.mem.addr;
    for (s = 0; s < CONF_LEN(sizes); s++) {
        words = sizes[s] / 8;
        memset(data, 0, sizes[s]);
        conf_barrier();
        for (round = s * ROUNDS + 1; round <= (s + 1) * ROUNDS; round++) {
            /* Every byte of the words changes from round to round. */
            value = round * UINT64_C(0x9e3779b97f4a7c15);
            if (conf_rank == 0) {
                for (i = 0; i < words; i++) {
                    data[i] = value;
                }
                CONF_POST(l.vcq.hdl,
                          utofu_put(l.vcq.hdl, l.vcq.peer[1], l.stadds[0],
                                    l.stadds[1], sizes[s], 0, CONF_STRONG,
                                    NULL));
            } else {
                spin_until(&data[words - 1], value);
                /* From the end: the bytes that come last are checked first. */
                for (i = words - 1; i-- > 0;) {
                    CONF_CHECK(load(&data[i]) == value, "%zu bytes of %s, "
                               "round %" PRIu64 ": the last word is there, "
                               "word %" PRIu64 " is not", sizes[s],
                               conf_kind_name(kind), round, i);
                }
            }
            line_ack(&l, round);
        }
    }
    line_close(&l);
}

CONF_TEST("6.1.3.1", last_word_last_shared, 2,
          "under STRONG_ORDER the last word of a put of 64 B to 64 KiB becomes "
          "visible last (shared memory, polling target)")
{
    last_word(CONF_MEM_MEMFD);
}

CONF_TEST("6.1.3.1", last_word_last_private, 2,
          "under STRONG_ORDER the last word of a put of 64 B to 64 KiB becomes "
          "visible last (private memory, polling target)")
{
    last_word(CONF_MEM_MALLOC);
}

/* Rank 0 puts without pause words that all hold the number of the round; rank 1
 * reads the last one, then others: none of them may be older.  Rank 0 waits only for
 * the source to be free, so rank 1 looks millions of times while data arrives. */
static void last_word_stream(enum conf_kind kind)
{
    static const size_t sizes[] = {64, 128, 512, 2048, 8192, 65536};
    struct line l;
    uint64_t   *data, round = 0, last, word, looks = 0, stop = 0;
    size_t      s, words, i, k;
    double      end;

    conf_timeout(60);
    line_open(&l, kind, 65536);
    data = (uint64_t *)l.mem.addr;
    for (s = 0; s < CONF_LEN(sizes); s++) {
        words = sizes[s] / 8;
        for (i = 0; i < 65536 / 8; i++) {
            data[i] = round;
        }
        conf_barrier();
        end = conf_now() + 0.4;
        if (conf_rank == 0) {
            while ((round % 64 != 0) || (conf_now() < end)) {
                round++;
                for (i = 0; i < words; i++) {
                    data[i] = round;
                }
                CONF_POST(l.vcq.hdl,
                          utofu_put(l.vcq.hdl, l.vcq.peer[1], l.stadds[0],
                                    l.stadds[1], sizes[s], 0,
                                    CONF_STRONG | CONF_TCQ, CONF_PTR(round)));
                CONF_EXPECT_TCQ(&l.vcq, CONF_PTR(round)); /* data may change */
            }
            CONF_POST(l.vcq.hdl,
                      utofu_put_piggyback8(l.vcq.hdl, l.vcq.peer[1], s + 1,
                                           l.acks[1] + 128, 8, 0, CONF_STRONG,
                                           NULL));
        }
        while ((conf_rank == 1) && (stop != s + 1)) {
            stop = load(l.ack.addr + 128);
            last = load(&data[words - 1]);
            /* The neighbours of the last word, the start, places between. */
            for (k = 0; k < 10; k++) {
                i = (k < 4) ? words - 2 - k :
                    (k < 7) ? k - 4 :
                              (looks * 31 + k * words / 10) % words;
                word = load(&data[i]);
                CONF_CHECK(word >= last, "%zu bytes of %s: the last word is of "
                           "round %" PRIu64 ", word %zu of round %" PRIu64,
                           sizes[s], conf_kind_name(kind), last, i, word);
            }
            looks++;
            CONF_CHECK((looks % 65536 != 0) ||
                               (conf_now() < end + CONF_WAIT),
                       "rank 0 does not end");
        }
        conf_barrier();
        CONF_CHECK((conf_rank == 1) || (round > 100), "%" PRIu64 " rounds",
                   round);
        CONF_CHECK((conf_rank == 0) || (data[words - 1] > 100), "no puts seen");
        round = data[0];
    }
    line_close(&l);
}

CONF_TEST("6.1.3.1", last_word_stream_shared, 2,
          "a reader that sees the last word of a STRONG_ORDER put sees no "
          "older data in it, while puts follow each other (shared memory)")
{
    last_word_stream(CONF_MEM_MEMFD);
}

CONF_TEST("6.1.3.1", last_word_stream_private, 2,
          "a reader that sees the last word of a STRONG_ORDER put sees no "
          "older data in it, while puts follow each other (private memory)")
{
    last_word_stream(CONF_MEM_ANON);
}

/* Odd lengths and alignments, polling the last byte only. */
static void last_byte(enum conf_kind kind)
{
    enum { ROUNDS = 20000, SIZE = 20000 };
    struct line    l;
    unsigned char *at;
    uint64_t       round;
    size_t         length, shift, i;
    unsigned       spins;
    double         end;

    conf_timeout(60);
    line_open(&l, kind, SIZE + 64);
    conf_barrier();
    for (round = 1; round <= ROUNDS; round++) {
        length = 2 + (round * 7919) % ((round % 4 == 0) ? SIZE : 700);
        shift  = round % 61;
        at     = l.mem.addr + shift;
        if (conf_rank == 0) {
            memset(l.mem.addr, (int)round, length);
            CONF_POST(l.vcq.hdl,
                      utofu_put(l.vcq.hdl, l.vcq.peer[1], l.stadds[0],
                                l.stadds[1] + shift, length, 0, CONF_STRONG,
                                NULL));
        } else {
            end = conf_now() + CONF_WAIT;
            for (spins = 0; load_byte(at + length - 1) !=
                            (unsigned char)round;) {
                if (++spins % 16384 == 0) {
                    CONF_CHECK(conf_now() < end, "round %" PRIu64, round);
                    sched_yield();
                }
            }
            for (i = length - 1; i-- > 0;) {
                CONF_CHECK(load_byte(at + i) == (unsigned char)round,
                           "%zu bytes at offset %zu of %s: the last byte is "
                           "there, byte %zu is not", length, shift,
                           conf_kind_name(kind), i);
            }
            /* The next round must change every byte it waits for. */
            memset(l.mem.addr, (int)round + 128, SIZE + 64);
        }
        line_ack(&l, round);
    }
    line_close(&l);
}

CONF_TEST("6.1.3.1", last_byte_last_shared, 2,
          "under STRONG_ORDER the last byte of a put of any length and "
          "alignment becomes visible last (shared memory)")
{
    last_byte(CONF_MEM_MEMFD);
}

CONF_TEST("6.1.3.1", last_byte_last_private, 2,
          "under STRONG_ORDER the last byte of a put of any length and "
          "alignment becomes visible last (private memory)")
{
    last_byte(CONF_MEM_STATIC);
}

/* A put of data without the flag, then a flag word with it, posted at once. */
static void put_then_flag(enum conf_kind data_kind)
{
    static const size_t sizes[] = {8, 64, 300, 4096, 30000};
    enum { ROUNDS = 20000 };
    struct line l;
    uint64_t    round;
    size_t      size;

    conf_timeout(60);
    line_open(&l, data_kind, 30000);
    conf_barrier();
    for (round = 1; round <= ROUNDS; round++) {
        size = sizes[round % CONF_LEN(sizes)];
        if (conf_rank == 0) {
            memset(l.mem.addr, (int)round, size);
            CONF_POST(l.vcq.hdl,
                      utofu_put(l.vcq.hdl, l.vcq.peer[1], l.stadds[0],
                                l.stadds[1], size, 0, 0, NULL));
            CONF_POST(l.vcq.hdl,
                      utofu_put_piggyback8(l.vcq.hdl, l.vcq.peer[1], round,
                                           l.acks[1] + 64, 8, 0, CONF_STRONG,
                                           NULL));
        } else {
            spin_until(l.ack.addr + 64, round);
            CONF_CHECK_BYTES(l.mem.addr, size, (unsigned char)round,
                             "data of the put before the flag");
        }
        line_ack(&l, round);
    }
    line_close(&l);
}

CONF_TEST("2.2.10", data_then_flag_shared, 2,
          "a STRONG_ORDER put writes after earlier puts to the same VCQ have "
          "written (data in shared memory)")
{
    put_then_flag(CONF_MEM_MEMFD);
}

CONF_TEST("2.2.10", data_then_flag_private, 2,
          "a STRONG_ORDER put writes after earlier puts to the same VCQ have "
          "written (data in private memory, flag in shared memory)")
{
    put_then_flag(CONF_MEM_MALLOC);
}

CONF_TEST("6.1.3.1", last_word_source_on_two_pages, 2,
          "with STRONG_ORDER the last byte is written last also where the source of a line goes on on another page")
{
    enum { ROUNDS = 3000, MACHINE_PAGE = 65536, BYTES = 640 };
    static const size_t     before[] = {8, 128, 248, 300, 520, 632}; /* bytes that are on the first page */
    static _Alignas(MACHINE_PAGE) unsigned char source[2 * MACHINE_PAGE];
    struct line             l;
    utofu_stadd_t           from = 0;
    uint64_t               *data, round, value, i;

    line_open(&l, CONF_MEM_MEMFD, 4096);
    if (conf_rank == 0) {
        from = conf_reg(&l.vcq, source, sizeof(source), 0);
    }
    data = (uint64_t *)l.mem.addr;
    for (round = 1; round <= ROUNDS; round++) {
        size_t first = MACHINE_PAGE - before[round % CONF_LEN(before)];

        value = round * UINT64_C(0x9e3779b97f4a7c15);
        for (i = 0; (i < BYTES / 8) && (conf_rank == 0); i++) {
            memcpy(source + first + 8 * i, &value, 8);
        }
        if (conf_rank == 0) {
            CONF_POST(l.vcq.hdl, utofu_put(l.vcq.hdl, l.vcq.peer[1], from + first, l.stadds[1], BYTES, 0, CONF_STRONG, NULL));
        } else {
            spin_until(&data[BYTES / 8 - 1], value);
            for (i = BYTES / 8 - 1; i-- > 0;) {
                CONF_CHECK(load(&data[i]) == value, "round %" PRIu64 ": the last word is there, word %" PRIu64 " is not",
                           round, i);
            }
        }
        line_ack(&l, round);
    }
    conf_barrier();
    if (conf_rank == 0) {
        conf_dereg(&l.vcq, from);
    }
    line_close(&l);
}

CONF_TEST("3.7.9.1", operations_in_order, 2,
          "STRONG_ORDER operations of different kinds on one word take effect "
          "in the order of the posts")
{
    enum { ROUNDS = 500 };
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC};
    struct line             l;
    struct utofu_mrq_notice notice;
    uint64_t               *data;
    size_t                  k;
    uint64_t                round;

    for (k = 0; k < CONF_LEN(kinds); k++) {
        line_open(&l, kinds[k], 4096);
        data = (uint64_t *)l.mem.addr;
        for (round = 1; (round <= ROUNDS) && (conf_rank == 0); round++) {
            data[0] = 10 * round;
            data[1] = 0;
            /* put 10r; add 5; get; put 7 by piggyback; swap with 1 */
            CONF_POST(l.vcq.hdl,
                      utofu_put(l.vcq.hdl, l.vcq.peer[1], l.stadds[0],
                                l.stadds[1] + 64, 8, 1,
                                CONF_STRONG | CONF_LMRQ, NULL));
            CONF_POST(l.vcq.hdl,
                      utofu_armw8(l.vcq.hdl, l.vcq.peer[1], UTOFU_ARMW_OP_ADD,
                                  5, l.stadds[1] + 64, 2,
                                  CONF_STRONG | CONF_LMRQ, NULL));
            CONF_POST(l.vcq.hdl,
                      utofu_get(l.vcq.hdl, l.vcq.peer[1], l.stadds[0] + 8,
                                l.stadds[1] + 64, 8, 3,
                                CONF_STRONG | CONF_LMRQ, NULL));
            CONF_POST(l.vcq.hdl,
                      utofu_put_piggyback8(l.vcq.hdl, l.vcq.peer[1], 7,
                                           l.stadds[1] + 64, 8, 4,
                                           CONF_STRONG | CONF_LMRQ, NULL));
            CONF_POST(l.vcq.hdl,
                      utofu_armw8(l.vcq.hdl, l.vcq.peer[1], UTOFU_ARMW_OP_SWAP,
                                  1, l.stadds[1] + 64, 5,
                                  CONF_STRONG | CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&l.vcq, UTOFU_MRQ_TYPE_LCL_PUT, l.vcq.peer[1], 1,
                            NULL);
            CONF_EXPECT_MRQ(&l.vcq, UTOFU_MRQ_TYPE_LCL_ARMW, l.vcq.peer[1], 2,
                            &notice);
            CONF_CHECK(notice.rmt_value == 10 * round, "add saw %" PRIu64
                       ", expected %" PRIu64, notice.rmt_value, 10 * round);
            CONF_EXPECT_MRQ(&l.vcq, UTOFU_MRQ_TYPE_LCL_GET, l.vcq.peer[1], 3,
                            NULL);
            CONF_CHECK(data[1] == 10 * round + 5, "get saw %" PRIu64
                       ", expected %" PRIu64, data[1], 10 * round + 5);
            CONF_EXPECT_MRQ(&l.vcq, UTOFU_MRQ_TYPE_LCL_PUT, l.vcq.peer[1], 4,
                            NULL);
            CONF_EXPECT_MRQ(&l.vcq, UTOFU_MRQ_TYPE_LCL_ARMW, l.vcq.peer[1], 5,
                            &notice);
            CONF_CHECK(notice.rmt_value == 7, "swap saw %" PRIu64,
                       notice.rmt_value);
        }
        line_close(&l);
    }
}

/* put 10 * round; add 5; get; put 7 by piggyback; swap with 1: all on one word of rank 1 */
static void post_kinds(struct line *l, uint64_t round, unsigned long last)
{
    utofu_vcq_hdl_t hdl = l->vcq.hdl;
    utofu_vcq_id_t  id  = l->vcq.peer[1];
    utofu_stadd_t   lcl = l->stadds[0], rmt = l->stadds[1] + 64;

    CONF_POST(hdl, utofu_put(hdl, id, lcl, rmt, 8, 1, CONF_STRONG, NULL));
    CONF_POST(hdl, utofu_armw8(hdl, id, UTOFU_ARMW_OP_ADD, 5, rmt, 2, CONF_STRONG, NULL));
    CONF_POST(hdl, utofu_get(hdl, id, lcl + 8, rmt, 8, 3, CONF_STRONG, NULL));
    CONF_POST(hdl, utofu_put_piggyback8(hdl, id, 7, rmt, 8, 4, CONF_STRONG, NULL));
    CONF_POST(hdl, utofu_armw8(hdl, id, UTOFU_ARMW_OP_SWAP, 1, rmt, round, CONF_STRONG | last, NULL));
}

/* The same by descriptors that one call posts */
static void post_prepared_kinds(struct line *l, uint64_t round, unsigned long last)
{
    utofu_vcq_hdl_t hdl = l->vcq.hdl;
    utofu_vcq_id_t  id  = l->vcq.peer[1];
    utofu_stadd_t   lcl = l->stadds[0], rmt = l->stadds[1] + 64;
    uint64_t        desc[5 * 64 / 8]; /* 64 is checked by other tests */
    char           *at = (char *)desc;
    size_t          size;

#define NEXT(_call) \
    do { \
        CONF_OK(_call); \
        at += size; \
    } while (0)
    NEXT(utofu_prepare_put(hdl, id, lcl, rmt, 8, 1, CONF_STRONG, at, &size));
    NEXT(utofu_prepare_armw8(hdl, id, UTOFU_ARMW_OP_ADD, 5, rmt, 2, CONF_STRONG, at, &size));
    NEXT(utofu_prepare_get(hdl, id, lcl + 8, rmt, 8, 3, CONF_STRONG, at, &size));
    NEXT(utofu_prepare_put_piggyback8(hdl, id, 7, rmt, 8, 4, CONF_STRONG, at, &size));
    NEXT(utofu_prepare_armw8(hdl, id, UTOFU_ARMW_OP_SWAP, 1, rmt, round, CONF_STRONG | last, at, &size));
#undef NEXT
    CONF_POST(hdl, utofu_post_toq(hdl, desc, (size_t)(at - (char *)desc), NULL));
}

static void all_kinds(void (*post)(struct line *l, uint64_t round, unsigned long last))
{
    enum { ROUNDS = 300 };
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC};
    struct line             l;
    struct utofu_mrq_notice notice;
    volatile uint64_t      *data;
    unsigned                spins = 0;
    double                  end;
    size_t                  k;
    uint64_t                round;

    for (k = 0; k < CONF_LEN(kinds); k++) {
        line_open(&l, kinds[k], 4096);
        data = (uint64_t *)l.mem.addr;
        for (round = 1; (round <= ROUNDS) && (conf_rank == 0); round++) {
            data[0] = 10 * round;
            data[1] = 0;
            post(&l, round % 128, CONF_LMRQ);
            CONF_EXPECT_MRQ(&l.vcq, UTOFU_MRQ_TYPE_LCL_ARMW, l.vcq.peer[1], round % 128, &notice);
            CONF_CHECK(notice.rmt_value == 7, "the swap saw %" PRIu64 ", not what the piggyback put wrote",
                       notice.rmt_value);
            /* what the get read may still be on its way: nobody asked for its completion */
            for (end = conf_now() + CONF_WAIT; (data[1] == 0) && (conf_now() < end);) {
                conf_relax(&spins);
            }
            CONF_CHECK(data[1] == 10 * round + 5, "the get brought %" PRIu64 ", expected %" PRIu64, data[1],
                       10 * round + 5);
        }
        conf_barrier();
        line_close(&l);
    }
}

CONF_TEST("3.7.9.1", kinds_in_order, 2,
          "STRONG_ORDER operations of different kinds on one word take effect in the order of the posts, though only the "
          "last of them has a notice")
{
    all_kinds(post_kinds);
}

CONF_TEST("3.7.2", prepared_kinds_in_order, 2,
          "so do prepared ones that one call posts")
{
    all_kinds(post_prepared_kinds);
}

/* ------------------------------------------------- the flag in every function */

enum flagged { F_PUT, F_PUT_GAP, F_PUT_STRIDE, F_PUT_STRIDE_GAP, F_PIGGYBACK, F_PIGGYBACK8, F_GET, F_GET_GAP, F_GET_STRIDE,
               F_GET_STRIDE_GAP, F_ARMW4, F_ARMW8, F_CSWAP4, F_CSWAP8, F_NUM };

static const char *const flagged_names[F_NUM] = {
    "put", "put_gap", "put_stride", "put_stride_gap", "put_piggyback", "put_piggyback8", "get", "get_gap", "get_stride",
    "get_stride_gap", "armw4", "armw8", "cswap4", "cswap8",
};

/* Four words that earlier operations write, then four of the one with the flag */
#define EARLIER 4
#define FLAGGED(_at) ((_at) + 256)

static bool is_get(enum flagged f)
{
    return (f >= F_GET) && (f <= F_GET_STRIDE_GAP);
}

/* With STRONG_ORDER and local notices; returns how many of these there will be. */
static unsigned post_flagged(const struct conf_vcq *vcq, enum flagged f, bool prepared, unsigned char *memory,
                             utofu_stadd_t at)
{
    utofu_vcq_hdl_t     hdl   = vcq->hdl;
    const unsigned long flags = CONF_STRONG | CONF_LMRQ;
    size_t              mtu   = conf_caps()->max_mtu, size;
    uint64_t            desc[2 * 64 / 8];

#define EITHER(_name, ...) \
    do { \
        if (prepared) { \
            CONF_OK(utofu_prepare_##_name(hdl, vcq->id, __VA_ARGS__, desc, &size)); \
            CONF_POST(hdl, utofu_post_toq(hdl, desc, size, NULL)); \
        } else { \
            CONF_POST(hdl, utofu_##_name(hdl, vcq->id, __VA_ARGS__, NULL)); \
        } \
    } while (0)
    switch (f) {
    case F_PUT:
        EITHER(put, at + 512, FLAGGED(at), 32, 1, flags);
        return 1;
    case F_PUT_GAP:
        EITHER(put_gap, at + 512, FLAGGED(at), 32, 1, flags, mtu, 1);
        return 1;
    case F_PUT_STRIDE:
        EITHER(put_stride, at + 512, FLAGGED(at), 16, 16, 2, 1, flags);
        return 2;
    case F_PUT_STRIDE_GAP:
        EITHER(put_stride_gap, at + 512, FLAGGED(at), 16, 16, 2, 1, flags, mtu, 1);
        return 2;
    case F_PIGGYBACK:
        EITHER(put_piggyback, memory + 512, FLAGGED(at), 32, 1, flags);
        return 1;
    case F_PIGGYBACK8:
        EITHER(put_piggyback8, 7, FLAGGED(at), 8, 1, flags);
        return 1;
    case F_GET:
        EITHER(get, FLAGGED(at), at, 32, 1, flags);
        return 1;
    case F_GET_GAP:
        EITHER(get_gap, FLAGGED(at), at, 32, 1, flags, mtu, 1);
        return 1;
    case F_GET_STRIDE:
        EITHER(get_stride, FLAGGED(at), at, 16, 16, 2, 1, flags);
        return 2;
    case F_GET_STRIDE_GAP:
        EITHER(get_stride_gap, FLAGGED(at), at, 16, 16, 2, 1, flags, mtu, 1);
        return 2;
    case F_ARMW4:
        EITHER(armw4, UTOFU_ARMW_OP_ADD, 1, FLAGGED(at), 1, flags);
        return 1;
    case F_ARMW8:
        EITHER(armw8, UTOFU_ARMW_OP_ADD, 1, FLAGGED(at), 1, flags);
        return 1;
    case F_CSWAP4:
        EITHER(cswap4, 0, 1, FLAGGED(at), 1, flags);
        return 1;
    case F_CSWAP8:
        EITHER(cswap8, 0, 1, FLAGGED(at), 1, flags);
        return 1;
    case F_NUM:
        break;
    }
#undef EITHER
    CONF_FAIL("function %d", f);
}

/* Operations without the flag and without notices, puts or, before a get, ARMWs; then one that has both, with which they
 * are done, too. */
static void flag_of_functions(bool prepared)
{
    enum { ROUNDS = 100 };
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC};
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   at;
    const char     *seen;
    uint64_t        round;
    unsigned        notices, i;
    size_t          k;
    int             f;

    conf_timeout(60);
    conf_vcq_create(&vcq, 0, 0);
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mem, kinds[k], 1024);
        at = conf_reg(&vcq, mem.addr, mem.size, 0);
        for (f = 0; f < F_NUM; f++) {
            seen = (char *)(is_get(f) ? FLAGGED(mem.addr) : mem.addr);
            for (round = f * ROUNDS + 1; round <= (uint64_t)(f + 1) * ROUNDS; round++) {
                for (i = 0; i < EARLIER; i++) {
                    CONF_POST(vcq.hdl, is_get(f) ? utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_SWAP, round, at + 8 * i, 2, 0,
                                                               NULL) :
                                                   utofu_put_piggyback8(vcq.hdl, vcq.id, round, at + 8 * i, 8, 2, 0, NULL));
                }
                notices = post_flagged(&vcq, f, prepared, mem.addr, at);
                while (notices-- > 0) {
                    CONF_EXPECT_MRQ(&vcq, (f < F_GET)   ? UTOFU_MRQ_TYPE_LCL_PUT :
                                          (f < F_ARMW4) ? UTOFU_MRQ_TYPE_LCL_GET :
                                                          UTOFU_MRQ_TYPE_LCL_ARMW, vcq.id, 1, NULL);
                }
                for (i = 0; i < EARLIER; i++) {
                    CONF_CHECK(load(seen + 8 * i) == round, "%s%s, %s, round %" PRIu64 ": it came before operation %u, word "
                               "%" PRIu64, prepared ? "prepare_" : "", flagged_names[f], conf_kind_name(kinds[k]), round, i,
                               load(seen + 8 * i));
                }
            }
        }
        conf_dereg(&vcq, at);
        conf_mem_free(&mem);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7.9.1", flag_of_every_function, 1,
          "with STRONG_ORDER an operation of every function comes after earlier ones that have neither the flag nor a notice")
{
    flag_of_functions(false);
}

CONF_TEST("3.7.2", flag_of_every_prepare_function, 1,
          "so does a prepared one")
{
    flag_of_functions(true);
}

CONF_TEST("2.2.10", words_do_not_tear, 2,
          "an aligned word inside a cache line changes as a whole")
{
    enum { ROUNDS = 60000 };
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC};
    struct line l;
    uint64_t    value, round, seen;
    size_t      k;

    for (k = 0; k < CONF_LEN(kinds); k++) {
        line_open(&l, kinds[k], 4096);
        memset(l.mem.addr, 0, 4096);
        conf_barrier();
        if (conf_rank == 0) {
            for (round = 1; round <= ROUNDS; round++) {
                value = (round % 255 + 1) * UINT64_C(0x0101010101010101);
                CONF_POST(l.vcq.hdl,
                          utofu_put_piggyback8(l.vcq.hdl, l.vcq.peer[1],
                                               (round == ROUNDS) ? 1 : value,
                                               l.stadds[1] + 72, 8, 0,
                                               CONF_STRONG, NULL));
            }
        } else {
            for (seen = 0; seen != 1;) {
                seen = load(l.mem.addr + 72);
                CONF_CHECK((seen == 1) ||
                                   (seen == (seen & 0xff) *
                                            UINT64_C(0x0101010101010101)),
                           "a torn word: 0x%016" PRIx64, seen);
            }
        }
        line_close(&l);
    }
}
