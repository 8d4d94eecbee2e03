/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_rma.c - put, piggyback put and get move the right bytes, all of them
 * and no others (3.7.1).
 */
#include "harness.h"

#define GUARD  512
#define WINDOW (65537 + 16)
#define MAX    16777215

struct side {
    struct conf_vcq vcq;
    unsigned char  *block; /* guard, window, guard */
    unsigned char  *window;
    size_t          size;  /* of the window */
    utofu_stadd_t   stadds[CONF_MAX_PROCS]; /* of the windows */
};

static const size_t lengths[] = {
    1,   2,   3,    4,    5,    7,    8,    9,    15,   16,    17,    24,
    31,  32,  33,   63,   64,   65,   127,  128,  129,  255,   256,   257,
    511, 513, 1919, 1920, 1921, 4095, 4096, 4097, 8191, 65535, 65536, 65537,
};

static void side_open(struct side *side, size_t size)
{
    conf_vcq_open(&side->vcq, 0, 0);
    side->size   = size;
    side->block  = malloc(size + 2 * GUARD);
    side->window = side->block + GUARD;
    CONF_CHECK(side->block != NULL, "malloc of %zu bytes", size);
    /* The guards are registered too: only the length protects them. */
    conf_reg_all(&side->vcq, side->block, size + 2 * GUARD, side->stadds);
    side->stadds[0] += GUARD;
    side->stadds[1] += GUARD;
}

static void side_close(struct side *side)
{
    conf_barrier();
    conf_dereg(&side->vcq, side->stadds[conf_rank] - GUARD);
    conf_vcq_close(&side->vcq);
    free(side->block);
}

static void side_clear(struct side *side, size_t offset, size_t length)
{
    memset(side->window + offset - GUARD, 0xcc, length + 2 * GUARD);
}

/* Exactly length bytes at offset were written. */
static void side_check(struct side *side, size_t offset, size_t length,
                       unsigned seed, const char *what)
{
    unsigned char *at = side->window + offset;

    CONF_CHECK_FILL(at, length, seed, what);
    CONF_CHECK_BYTES(at - GUARD, GUARD, 0xcc, "bytes before the target");
    CONF_CHECK_BYTES(at + length, GUARD, 0xcc, "bytes after the target");
}

/* Rank 0 puts, rank 1 looks. */
static void one_put(struct side *side, size_t from, size_t to, size_t length,
                    unsigned long flags, unsigned seed)
{
    if (conf_rank == 1) {
        side_clear(side, to, length);
    } else {
        conf_fill(side->window + from, length, seed);
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_put(side->vcq.hdl, side->vcq.peer[1],
                          side->stadds[0] + from, side->stadds[1] + to, length,
                          seed % 256, flags | CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, side->vcq.peer[1],
                        seed % 256, NULL);
    }
    conf_barrier();
    if (conf_rank == 1) {
        side_check(side, to, length, seed, "put");
    }
}

/* Rank 0 gets and looks. */
static void one_get(struct side *side, size_t to, size_t from, size_t length,
                    unsigned long flags, unsigned seed)
{
    if (conf_rank == 1) {
        conf_fill(side->window + from, length, seed);
    } else {
        side_clear(side, to, length);
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_get(side->vcq.hdl, side->vcq.peer[1],
                          side->stadds[0] + to, side->stadds[1] + from, length,
                          seed % 256, flags | CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&side->vcq, UTOFU_MRQ_TYPE_LCL_GET, side->vcq.peer[1],
                        seed % 256, NULL);
        side_check(side, to, length, seed, "get");
    }
    conf_barrier();
}

static void sweep(void (*one)(struct side *, size_t, size_t, size_t,
                              unsigned long, unsigned))
{
    static const size_t shifts[][2] = {{0, 0}, {1, 0}, {0, 3}, {5, 7}, {8, 13}};
    struct side         side;
    size_t              i, j;

    side_open(&side, WINDOW);
    for (i = 0; i < CONF_LEN(lengths); i++) {
        for (j = 0; j < CONF_LEN(shifts); j++) {
            one(&side, shifts[j][0], shifts[j][1], lengths[i], 0, i * 7 + j);
            one(&side, shifts[j][0], shifts[j][1], lengths[i], CONF_STRONG,
                i * 7 + j + 1);
        }
    }
    side_close(&side);
}

CONF_TEST("3.7.1.1", put_all_lengths, 2,
          "a put of 1 to 65537 bytes at any alignment of source and target "
          "writes exactly its bytes")
{
    sweep(one_put);
}

CONF_TEST("3.7.1.7", get_all_lengths, 2,
          "a get of 1 to 65537 bytes at any alignment of source and target "
          "writes exactly its bytes")
{
    sweep(one_get);
}

static void large(void (*one)(struct side *, size_t, size_t, size_t,
                              unsigned long, unsigned))
{
    struct side side;

    conf_timeout(60);
    side_open(&side, MAX + 16);
    one(&side, 0, 0, 1 << 20, 0, 1);
    one(&side, 3, 8, (1 << 20) + 5, CONF_STRONG, 2);
    one(&side, 0, 0, MAX, 0, 3);
    one(&side, 7, 2, MAX, CONF_STRONG, 4);
    side_close(&side);
}

CONF_TEST("3.7.1.1", put_large, 2,
          "puts of 1 MiB and of max_putget_size bytes arrive whole")
{
    large(one_put);
}

CONF_TEST("3.7.1.7", get_large, 2,
          "gets of 1 MiB and of max_putget_size bytes arrive whole")
{
    large(one_get);
}

CONF_TEST("3.7.1.1", put_get_too_long, 2,
          "more than max_putget_size bytes are INVALID_SIZE and move nothing")
{
    struct side side;
    size_t      i;

    const size_t sizes[] = {MAX + (size_t)1, MAX + (size_t)2, (size_t)1 << 32,
                            SIZE_MAX};

    side_open(&side, MAX + 16);
    side_clear(&side, 0, 4096);
    for (i = 0; i < CONF_LEN(sizes); i++) {
        CONF_CODE(utofu_put(side.vcq.hdl, side.vcq.peer[1 - conf_rank],
                            side.stadds[conf_rank], side.stadds[1 - conf_rank],
                            sizes[i], 0, 0, NULL), UTOFU_ERR_INVALID_SIZE);
        CONF_CODE(utofu_get(side.vcq.hdl, side.vcq.peer[1 - conf_rank],
                            side.stadds[conf_rank], side.stadds[1 - conf_rank],
                            sizes[i], 0, 0, NULL), UTOFU_ERR_INVALID_SIZE);
    }
    CONF_EXPECT_QUIET(&side.vcq);
    conf_barrier();
    CONF_CHECK_BYTES(side.window, 4096, 0xcc, "memory of refused operations");
    side_close(&side);
}

CONF_TEST("3.7.1.1", put_length_zero, 2,
          "a put of no bytes completes with the notices it asks for and "
          "writes nothing")
{
    struct side             side;
    struct utofu_mrq_notice notice;

    side_open(&side, 64);
    side_clear(&side, 0, 64);
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[1], side.stadds[0],
                          side.stadds[1] + 8, 0, 17,
                          CONF_TCQ | CONF_LMRQ | CONF_RMRQ, CONF_PTR(5)));
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(5));
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.peer[1], 17,
                        &notice);
        CONF_CHECK(notice.rmt_stadd == side.stadds[1] + 8, "rmt_stadd");
    } else {
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_RMT_PUT, side.vcq.peer[0], 17,
                        &notice);
        CONF_CHECK(notice.rmt_stadd == side.stadds[1] + 8, "rmt_stadd");
        CONF_CHECK_BYTES(side.block, 64 + 2 * GUARD, 0xcc, "memory");
    }
    side_close(&side);
}

CONF_TEST("3.7.1.7", get_length_zero, 2,
          "a get of no bytes completes with the notices it asks for and "
          "writes nothing")
{
    struct side             side;
    struct utofu_mrq_notice notice;

    side_open(&side, 64);
    side_clear(&side, 0, 64);
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_get(side.vcq.hdl, side.vcq.peer[1], side.stadds[0] + 8,
                          side.stadds[1], 0, 18,
                          CONF_TCQ | CONF_LMRQ | CONF_RMRQ, CONF_PTR(6)));
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(6));
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_GET, side.vcq.peer[1], 18,
                        &notice);
        CONF_CHECK(notice.lcl_stadd == side.stadds[0] + 8, "lcl_stadd");
        CONF_CHECK_BYTES(side.block, 64 + 2 * GUARD, 0xcc, "memory");
    } else {
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_RMT_GET, side.vcq.peer[0], 18,
                        NULL);
    }
    side_close(&side);
}

CONF_TEST("3.7.1.5", piggyback_all_lengths, 2,
          "a piggyback put carries 0 to 32 bytes of memory that is not "
          "registered and may be overwritten as soon as the call returned")
{
    struct side   side;
    unsigned char data[40];
    size_t        length, shift;

    side_open(&side, 256);
    for (length = 0; length <= 32; length++) {
        for (shift = 0; shift < 8; shift += 3) {
            if (conf_rank == 1) {
                side_clear(&side, shift, length);
            }
            conf_barrier();
            if (conf_rank == 0) {
                conf_fill(data + shift, length, length + shift);
                CONF_OK(utofu_put_piggyback(side.vcq.hdl, side.vcq.peer[1],
                                            data + shift,
                                            side.stadds[1] + shift, length,
                                            length, CONF_LMRQ, NULL));
                memset(data, 0xff, sizeof(data));
                CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT,
                                side.vcq.peer[1], length, NULL);
            }
            conf_barrier();
            if (conf_rank == 1) {
                side_check(&side, shift, length, length + shift,
                           "piggyback put");
            }
        }
    }
    CONF_CODE(utofu_put_piggyback(side.vcq.hdl, side.vcq.peer[1], data,
                                  side.stadds[1], 33, 0, 0, NULL),
              UTOFU_ERR_INVALID_SIZE);
    CONF_CODE(utofu_put_piggyback(side.vcq.hdl, side.vcq.peer[1], data,
                                  side.stadds[1], SIZE_MAX, 0, 0, NULL),
              UTOFU_ERR_INVALID_SIZE);
    CONF_CODE(utofu_put_piggyback(side.vcq.hdl, side.vcq.peer[1], NULL,
                                  side.stadds[1], 8, 0, 0, NULL),
              UTOFU_ERR_INVALID_POINTER);
    side_close(&side);
}

CONF_TEST("3.7.1.6", piggyback8_low_bytes, 2,
          "utofu_put_piggyback8 carries the low 0 to 8 bytes of a value")
{
    const uint64_t value = UINT64_C(0x8877665544332211);
    struct side    side;
    size_t         length, i;

    side_open(&side, 256);
    for (length = 0; length <= 8; length++) {
        if (conf_rank == 1) {
            side_clear(&side, length, length);
        }
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_put_piggyback8(side.vcq.hdl, side.vcq.peer[1], value,
                                         side.stadds[1] + length, length,
                                         length, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.peer[1],
                            length, NULL);
        }
        conf_barrier();
        for (i = 0; (i < length) && (conf_rank == 1); i++) {
            CONF_CHECK(side.window[length + i] == 0x11 * (i + 1),
                       "byte %zu of %zu is 0x%02x", i, length,
                       side.window[length + i]);
        }
        if (conf_rank == 1) {
            CONF_CHECK_BYTES(side.window + length - GUARD, GUARD, 0xcc,
                             "bytes before the target");
            CONF_CHECK_BYTES(side.window + 2 * length, GUARD, 0xcc,
                             "bytes after the target");
        }
    }
    CONF_CODE(utofu_put_piggyback8(side.vcq.hdl, side.vcq.peer[1], value,
                                   side.stadds[1], 9, 0, 0, NULL),
              UTOFU_ERR_INVALID_SIZE);
    side_close(&side);
}

CONF_TEST("3.7.9.1", cache_injection_and_padding, 2,
          "CACHE_INJECTION changes no result; PADDING with it may change only "
          "the rest of the cache lines of a piggyback put")
{
    enum { LINE = 256 };
    struct conf_vcq vcq;
    unsigned char  *lines = aligned_alloc(LINE, 4 * LINE), value[16];
    utofu_stadd_t   stadds[2];

    conf_vcq_open(&vcq, 0, 0);
    memset(lines, 0xcc, 4 * LINE);
    conf_reg_all(&vcq, lines, 4 * LINE, stadds);
    if (conf_rank == 0) {
        conf_fill(value, sizeof(value), 1);
        CONF_OK(utofu_put_piggyback(vcq.hdl, vcq.peer[1], value,
                                    stadds[1] + LINE + 40, sizeof(value), 1,
                                    CONF_LMRQ |
                                            UTOFU_ONESIDED_FLAG_CACHE_INJECTION |
                                            UTOFU_ONESIDED_FLAG_PADDING, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 1, NULL);
        conf_fill(lines, 100, 2);
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0],
                          stadds[1] + 3 * LINE, 100, 2,
                          CONF_LMRQ | UTOFU_ONESIDED_FLAG_CACHE_INJECTION,
                          NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 2, NULL);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK_FILL(lines + LINE + 40, sizeof(value), 1, "padded put");
        CONF_CHECK_BYTES(lines, LINE, 0xcc, "the line before");
        CONF_CHECK_BYTES(lines + 2 * LINE, LINE, 0xcc, "the line after");
        CONF_CHECK_FILL(lines + 3 * LINE, 100, 2, "injected put");
        CONF_CHECK_BYTES(lines + 3 * LINE + 100, LINE - 100, 0xcc,
                         "the rest of the line");
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    free(lines);
}

CONF_TEST("2.2.3", source_is_free_after_tcq, 2,
          "after the TCQ entry of a put its source may be overwritten")
{
    enum { ROUNDS = 300, SIZE = 4000 };
    struct side side;
    int         i;

    side_open(&side, SIZE * 2);
    for (i = 0; i < ROUNDS; i++) {
        if (conf_rank == 0) {
            conf_fill(side.window, SIZE, i);
            CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[1], side.stadds[0],
                              side.stadds[1] + SIZE, SIZE, i % 256,
                              CONF_TCQ | CONF_LMRQ, CONF_PTR(i)));
            CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(i));
            memset(side.window, 0xff, SIZE);
            CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.peer[1],
                            i % 256, NULL);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK_FILL(side.window + SIZE, SIZE, i, "put");
        }
        conf_barrier();
    }
    side_close(&side);
}

CONF_TEST("3.7.1.1", delay_start, 2,
          "operations held back by DELAY_START start at the latest with the "
          "next operation without the flag, in order")
{
    enum { NUM = 8 };
    struct side side;
    uint64_t   *words;
    int         i;

    side_open(&side, 4096);
    words = (uint64_t *)side.window;
    memset(words, 0, 4096);
    conf_barrier();
    if (conf_rank == 0) {
        for (i = 0; i < NUM; i++) {
            words[i] = i + 1;
            CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[1],
                              side.stadds[0] + i * 8, side.stadds[1] + i * 8, 8,
                              i, CONF_TCQ | CONF_LMRQ |
                              ((i < NUM - 1) ?
                                       UTOFU_ONESIDED_FLAG_DELAY_START : 0),
                              CONF_PTR(i)));
        }
        for (i = 0; i < NUM; i++) {
            CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(i));
            CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.peer[1],
                            i, NULL);
        }
    }
    conf_barrier();
    for (i = 0; i < NUM; i++) {
        CONF_CHECK(words[i] == (uint64_t)i + 1, "word %d did not arrive", i);
    }
    side_close(&side);
}
