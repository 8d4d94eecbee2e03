/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_prepare.c - each prepare function writes descriptors that do, when they
 * are posted, what the posting function of the same name does (3.7.2).
 */
#include "harness.h"

#include <inttypes.h>

enum op { PUT, PUT_GAP, PUT_STRIDE, PUT_STRIDE_GAP, PIGGYBACK, PIGGYBACK8, GET,
          GET_GAP, GET_STRIDE, GET_STRIDE_GAP, ARMW4, ARMW8, CSWAP4, CSWAP8,
          NOP, NUM_OPS };

static const char *const names[NUM_OPS] = {
    "put",     "put_gap",    "put_stride",     "put_stride_gap", "put_piggyback",
    "put_piggyback8", "get", "get_gap",        "get_stride",     "get_stride_gap",
    "armw4",   "armw8",      "cswap4",         "cswap8",         "nop",
};

#define BLOCKS 3  /* of the operations with stride */
#define STRIDE 40
#define LENGTH 24 /* piggyback8: 8 */
#define ROOM   (64 * BLOCKS) /* max_toq_desc_size is 64 here; it is checked */

/* Arguments of any of them */
struct args {
    utofu_vcq_hdl_t   hdl;
    utofu_vcq_id_t    id;
    utofu_stadd_t     lcl, rmt;
    void             *data; /* of PIGGYBACK */
    size_t            length, num;
    enum utofu_armw_op armw;
    uint64_t          edata;
    unsigned long     flags;
};

struct pair {
    struct conf_vcq vcq;
    uint64_t        words[128]; /* lower half: local; upper half: remote */
    uint64_t        desc[ROOM / 8 + 2];
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
};

static bool is_stride(enum op op)
{
    return (op == PUT_STRIDE) || (op == PUT_STRIDE_GAP) || (op == GET_STRIDE) ||
           (op == GET_STRIDE_GAP);
}

static int prepare(enum op op, const struct args *a, void *desc, size_t *size)
{
#define HEAD a->hdl, a->id
#define RMA  HEAD, a->lcl, a->rmt, a->length
#define TAIL a->edata, a->flags
    switch (op) {
    case PUT:
        return utofu_prepare_put(RMA, TAIL, desc, size);
    case PUT_GAP:
        return utofu_prepare_put_gap(RMA, TAIL, 1024, 8, desc, size);
    case PUT_STRIDE:
        return utofu_prepare_put_stride(RMA, STRIDE, a->num, TAIL, desc, size);
    case PUT_STRIDE_GAP:
        return utofu_prepare_put_stride_gap(RMA, STRIDE, a->num, TAIL, 1024, 8,
                                            desc, size);
    case PIGGYBACK:
        return utofu_prepare_put_piggyback(HEAD, a->data, a->rmt, a->length,
                                           TAIL, desc, size);
    case PIGGYBACK8:
        return utofu_prepare_put_piggyback8(
                HEAD, UINT64_C(0x1122334455667788), a->rmt,
                (a->length == LENGTH) ? 8 : a->length, TAIL, desc, size);
    case GET:
        return utofu_prepare_get(RMA, TAIL, desc, size);
    case GET_GAP:
        return utofu_prepare_get_gap(RMA, TAIL, 1024, 8, desc, size);
    case GET_STRIDE:
        return utofu_prepare_get_stride(RMA, STRIDE, a->num, TAIL, desc, size);
    case GET_STRIDE_GAP:
        return utofu_prepare_get_stride_gap(RMA, STRIDE, a->num, TAIL, 1024, 8,
                                            desc, size);
    case ARMW4:
        return utofu_prepare_armw4(HEAD, a->armw, 5, a->rmt, TAIL, desc, size);
    case ARMW8:
        return utofu_prepare_armw8(HEAD, a->armw, 5, a->rmt, TAIL, desc, size);
    case CSWAP4:
        return utofu_prepare_cswap4(HEAD, 100, 105, a->rmt, TAIL, desc, size);
    case CSWAP8:
        return utofu_prepare_cswap8(HEAD, 100, 105, a->rmt, TAIL, desc, size);
    default:
        return utofu_prepare_nop(a->hdl, a->flags, desc, size);
    }
}

static void pair_open(struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    conf_vcq_open(&pair->vcq, 0, 0);
    conf_reg_all(&pair->vcq, pair->words, sizeof(pair->words), pair->stadds);
}

static void pair_close(struct pair *pair)
{
    conf_barrier();
    conf_dereg(&pair->vcq, pair->stadds[conf_rank]);
    conf_vcq_close(&pair->vcq);
}

/* From the lower half of this rank's words to the upper half of the peer's. */
static struct args pair_args(struct pair *pair, int peer)
{
    struct args a = {
        .hdl = pair->vcq.hdl, .id = pair->vcq.peer[peer],
        .lcl = pair->stadds[conf_rank], .rmt = pair->stadds[peer] + 512,
        .data = pair->words, .length = LENGTH, .num = BLOCKS,
        .armw = UTOFU_ARMW_OP_ADD,
    };
    return a;
}

static void fill(struct pair *pair, unsigned seed)
{
    conf_fill(pair->words, 512, seed);
    conf_fill(pair->words + 64, 512, seed + 100);
    pair->words[64] = 100; /* for ARMW */
    pair->words[63] = 7;   /* for flush() */
    pair->words[127] = 7;
}

/* All that rank 0 posted towards rank 1 has been done. */
static void flush(struct pair *pair)
{
    if (conf_rank == 0) {
        CONF_POST(pair->vcq.hdl,
                  utofu_put(pair->vcq.hdl, pair->vcq.peer[1],
                            pair->stadds[0] + 504, pair->stadds[1] + 1016, 8,
                            255, CONF_LMRQ | CONF_STRONG, NULL));
        CONF_EXPECT_MRQ(&pair->vcq, UTOFU_MRQ_TYPE_LCL_PUT, pair->vcq.peer[1],
                        255, NULL);
    }
}

/* After the operation was carried out once, on words that fill() made. */
static void check_moved(const struct pair *pair, enum op op, unsigned seed)
{
    static struct pair before;
    unsigned char     *to   = (unsigned char *)before.words;
    unsigned char     *from = to + 512;
    size_t             i;

    fill(&before, seed);
    if (op <= PIGGYBACK8) { /* rank 1 was written */
        if (conf_rank == 1) {
            for (i = 0; i < (is_stride(op) ? BLOCKS : 1); i++) {
                memcpy(from + i * STRIDE, to + i * STRIDE, LENGTH);
            }
        }
        if ((conf_rank == 1) && (op == PIGGYBACK8)) {
            fill(&before, seed);
            before.words[64] = UINT64_C(0x1122334455667788);
        }
    } else if (op <= GET_STRIDE_GAP) { /* rank 0 was written */
        if (conf_rank == 0) {
            for (i = 0; i < (is_stride(op) ? BLOCKS : 1); i++) {
                memcpy(to + i * STRIDE, from + i * STRIDE, LENGTH);
            }
        }
    } else if ((op < NOP) && (conf_rank == 1)) {
        before.words[64] = 105;
    }
    for (i = 0; i < CONF_LEN(before.words); i++) {
        CONF_CHECK(pair->words[i] == before.words[i], "%s: word %zu is 0x%"
                   PRIx64 ", expected 0x%" PRIx64, names[op], i, pair->words[i],
                   before.words[i]);
    }
}

static int type_of(enum op op)
{
    return ((op <= PIGGYBACK8)     ? UTOFU_MRQ_TYPE_LCL_PUT :
            (op <= GET_STRIDE_GAP) ? UTOFU_MRQ_TYPE_LCL_GET :
                                     UTOFU_MRQ_TYPE_LCL_ARMW) + conf_rank;
}

/* The notices of a posted descriptor with that EDATA, at both ranks */
static void expect_notices(struct pair *pair, enum op op, unsigned mask,
                           uint64_t edata, void *cbdata)
{
    struct utofu_mrq_notice n;
    utofu_stadd_t           rmt = pair->stadds[1] + 512, lcl = pair->stadds[0];
    size_t                  i, length = (op == PIGGYBACK8) ? 8 : LENGTH;

    for (i = 0; i < (is_stride(op) ? BLOCKS : 1); i++) {
        if ((conf_rank == 0) && (mask & 1)) {
            CONF_EXPECT_TCQ(&pair->vcq, cbdata);
        }
        if (!(mask & ((conf_rank == 0) ? 2 : 4)) || (op == NOP)) {
            continue;
        }
        CONF_EXPECT_MRQ(&pair->vcq, type_of(op), pair->vcq.peer[1 - conf_rank],
                        edata, &n);
        if ((op < GET) || (op >= ARMW4) || (conf_rank == 1)) {
            CONF_CHECK(n.rmt_stadd == rmt + ((op >= ARMW4) ? 0 :
                                             length + i * STRIDE),
                       "%s: rmt_stadd of block %zu", names[op], i);
        }
        if ((op >= GET) && (op <= GET_STRIDE_GAP)) {
            CONF_CHECK(n.lcl_stadd == lcl + length + i * STRIDE,
                       "%s: lcl_stadd of block %zu", names[op], i);
        }
        if ((op >= ARMW4) && (conf_rank == 0)) {
            CONF_CHECK(n.rmt_value == 100, "%s: old value %" PRIu64, names[op],
                       n.rmt_value);
        }
    }
}

CONF_TEST("3.7.2", prepared_every_combination, 2,
          "a descriptor of every prepare function, with each combination of "
          "notices and with DELAY_START or without, does when posted what the posting function does, and "
          "nothing before; it fits in max_toq_desc_size bytes a block, and the "
          "next one can follow it")
{
    struct pair   pair;
    struct args   a;
    size_t        size, count, room;
    uint64_t      edata;
    unsigned      mask;
    int           op;

    pair_open(&pair);
    for (op = 0; op < NUM_OPS; op++) {
        for (mask = 0; mask < 16; mask++) {
            edata = op * 16 + mask;
            fill(&pair, edata + 1);
            conf_barrier();
            if (conf_rank == 0) {
                a       = pair_args(&pair, 1);
                a.edata = edata;
                a.flags = ((mask & 1) ? CONF_TCQ : 0) |
                          ((mask & 2) ? CONF_LMRQ : 0) |
                          ((mask & 4) ? CONF_RMRQ : 0) |
                          ((mask & 8) ? UTOFU_ONESIDED_FLAG_DELAY_START : 0); /* nobody starts it */
                memset(pair.desc, 0x5a, sizeof(pair.desc));
                size = 12345;
                CONF_OK(prepare(op, &a, pair.desc, &size));
                room = conf_caps()->max_toq_desc_size *
                       (is_stride(op) ? BLOCKS : 1);
                CONF_CHECK(room <= ROOM, "max_toq_desc_size is above 64");
                CONF_CHECK((size > 0) && (size <= room) && (size % 8 == 0),
                           "%s: a descriptor of %zu bytes", names[op], size);
                CONF_CHECK_BYTES((char *)pair.desc + room,
                                 sizeof(pair.desc) - room, 0x5a,
                                 "memory behind the descriptor");
                CONF_OK(utofu_query_num_unread_tcq(a.hdl, &count));
                CONF_CHECK(count == 0, "prepare_%s took %zu TOQ entries",
                           names[op], count);
            }
            conf_barrier();
            conf_expect_quiet(__FILE__, __LINE__, &pair.vcq, 1);
            check_moved(&pair, NOP, edata + 1);
            conf_barrier();
            if (conf_rank == 0) {
                CONF_OK(utofu_post_toq(a.hdl, pair.desc, size,
                                       CONF_PTR(edata + 1000)));
            }
            expect_notices(&pair, op, mask, edata, CONF_PTR(edata + 1000));
            if ((mask & 8) && (mask & 2)) { /* it has been, without another post */
                conf_barrier();
                check_moved(&pair, op, edata + 1);
                conf_barrier();
            }
            flush(&pair);
            conf_barrier();
            check_moved(&pair, op, edata + 1);
            conf_expect_quiet(__FILE__, __LINE__, &pair.vcq, 1);
            conf_barrier();
        }
    }
    pair_close(&pair);
}

CONF_TEST("3.7.2", prepared_many_times, 2,
          "a descriptor can be posted again and again: put and get move what "
          "is in memory then, a piggyback put the data of the time it was "
          "prepared, an ARMW operates each time")
{
    enum { TIMES = 200 };
    static uint64_t descs[NUM_OPS][ROOM / 8];
    size_t          sizes[NUM_OPS];
    struct pair     pair;
    struct args     a;
    unsigned char   data[LENGTH];
    unsigned        i;
    int             op;

    pair_open(&pair);
    a       = pair_args(&pair, 1);
    a.flags = CONF_TCQ | CONF_LMRQ;
    conf_fill(data, LENGTH, 999);
    for (op = 0; op < NUM_OPS; op++) {
        a.data  = data;
        a.edata = op;
        CONF_OK(prepare(op, &a, descs[op], &sizes[op]));
    }
    memset(data, 0xff, LENGTH);
    conf_barrier();
    for (i = 0; i < TIMES; i++) {
        op = (i * 7 + i / 15) % NUM_OPS;
        fill(&pair, i);
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_post_toq(a.hdl, descs[op], sizes[op], CONF_PTR(i)));
            expect_notices(&pair, op, 3, op, CONF_PTR(i));
        }
        conf_barrier();
        if (op != PIGGYBACK) {
            check_moved(&pair, op, i);
        } else if (conf_rank == 1) {
            CONF_CHECK_FILL(pair.words + 64, LENGTH, 999, "prepared data");
        }
        conf_barrier();
    }
    CONF_EXPECT_QUIET(&pair.vcq);
    pair_close(&pair);
}

CONF_TEST("3.7.2", prepared_many_armw, 2,
          "prepared ARMWs that are posted without a pause add up")
{
    enum { TIMES = 1000 };
    struct pair  pair;
    struct args  a;
    size_t       size;
    int          i;

    pair_open(&pair);
    if (conf_rank == 0) {
        a = pair_args(&pair, 1);
        CONF_OK(prepare(ARMW8, &a, pair.desc, &size));
        for (i = 0; i < TIMES; i++) {
            CONF_POST(a.hdl, utofu_post_toq(a.hdl, pair.desc, size, NULL));
        }
    }
    pair.words[63] = 7;
    flush(&pair);
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (pair.words[64] == 5 * TIMES), "the sum is %"
               PRIu64, pair.words[64]);
    pair_close(&pair);
}

CONF_TEST("3.7.9.2", prepared_paths_and_order, 2,
          "a prepared operation takes every path and STRONG_ORDER as a posted "
          "one does; its notices name the peer with its default path")
{
    struct pair     pair;
    struct args     a;
    utofu_path_id_t path;
    uint8_t         coords[3];
    size_t          size;
    unsigned        n;
    int             op;

    pair_open(&pair);
    for (n = 0; n < 12; n++) {
        coords[0] = n / 6;
        coords[1] = n / 2 % 3;
        coords[2] = n % 2;
        for (op = 0; op < NOP; op++) {
            fill(&pair, n + 1);
            conf_barrier();
            if (conf_rank == 0) {
                a = pair_args(&pair, 1);
                CONF_OK(utofu_get_path_id(a.id, coords, &path));
                a.edata = n;
                a.flags = CONF_LMRQ | CONF_RMRQ | CONF_STRONG |
                          UTOFU_ONESIDED_FLAG_CACHE_INJECTION |
                          UTOFU_ONESIDED_FLAG_PACKET_RESPONSE;
                if (n % 2) { /* the path in the VCQ ID */
                    CONF_OK(utofu_set_vcq_id_path(&a.id, coords));
                } else {
                    a.flags |= UTOFU_ONESIDED_FLAG_PATH(path);
                }
                CONF_OK(prepare(op, &a, pair.desc, &size));
                CONF_OK(utofu_post_toq(a.hdl, pair.desc, size, NULL));
            }
            expect_notices(&pair, op, 6, n, NULL);
            conf_barrier();
            check_moved(&pair, op, n + 1);
            conf_barrier();
        }
    }
    pair_close(&pair);
}

CONF_TEST("2.2.11", prepared_padding, 2,
          "a prepared piggyback put with CACHE_INJECTION and PADDING writes its "
          "bytes, and nothing outside of the cache lines of its target")
{
    enum { LINE = 256 };
    struct conf_vcq vcq;
    unsigned char  *lines = aligned_alloc(LINE, 3 * LINE), value[16];
    utofu_stadd_t   stadds[2];
    uint64_t        desc[8];
    size_t          size;

    conf_vcq_open(&vcq, 0, 0);
    memset(lines, 0xcc, 3 * LINE);
    conf_reg_all(&vcq, lines, 3 * LINE, stadds);
    if (conf_rank == 0) {
        conf_fill(value, sizeof(value), 1);
        CONF_OK(utofu_prepare_put_piggyback(
                vcq.hdl, vcq.peer[1], value, stadds[1] + LINE + 40,
                sizeof(value), 1,
                CONF_LMRQ | UTOFU_ONESIDED_FLAG_CACHE_INJECTION |
                        UTOFU_ONESIDED_FLAG_PADDING, desc, &size));
        CONF_OK(utofu_post_toq(vcq.hdl, desc, size, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 1, NULL);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK_FILL(lines + LINE + 40, sizeof(value), 1, "padded put");
        CONF_CHECK_BYTES(lines, LINE, 0xcc, "the line before");
        CONF_CHECK_BYTES(lines + 2 * LINE, LINE, 0xcc, "the line after");
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    free(lines);
}

CONF_TEST("3.7.2", prepared_for_later, 2,
          "whether an operation can be done is seen when it is posted, not when "
          "it is prepared: memory may be registered in between, or no more "
          "be registered")
{
    enum { STAG = 3 };
    struct pair     pair;
    struct args     a;
    utofu_stadd_t   stadd;
    uint64_t       *block = aligned_alloc(256, 256);
    uint64_t        desc[8];
    size_t          size;

    pair_open(&pair);
    block[0] = 0;
    CONF_OK(utofu_query_stadd(pair.vcq.peer[1], STAG, &stadd));
    a       = pair_args(&pair, 1);
    a.rmt   = stadd;
    a.flags = CONF_LMRQ;
    if (conf_rank == 0) {
        pair.words[0] = 77;
        CONF_OK(prepare(PUT, &a, desc, &size));
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_OK(utofu_reg_mem_with_stag(pair.vcq.hdl, block, 256, STAG, 0,
                                        &stadd));
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_post_toq(a.hdl, desc, size, NULL));
        CONF_EXPECT_MRQ(&pair.vcq, UTOFU_MRQ_TYPE_LCL_PUT, a.id, 0, NULL);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK(block[0] == 77, "the word is %" PRIu64, block[0]);
        conf_dereg(&pair.vcq, stadd);
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_post_toq(a.hdl, desc, size, NULL));
        CONF_EXPECT_MRQ_ERROR(&pair.vcq, UTOFU_MRQ_TYPE_LCL_PUT, a.id, 0,
                              UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_MEMORY);
    }
    pair_close(&pair);
    free(block);
}

/* The call must return one of the codes. */
#define REFUSED(_op, _a, ...) \
    do { \
        size_t _size; \
        int    _rc = prepare(_op, _a, pair.desc, &_size); \
        conf_check_code(__FILE__, __LINE__, names[_op], _rc, \
                        (const int[]){__VA_ARGS__}, \
                        sizeof((const int[]){__VA_ARGS__}) / sizeof(int)); \
    } while (0)

CONF_TEST("3.1.2.1", prepare_arguments, 1,
          "the prepare functions refuse what the posting functions refuse, with "
          "the same codes")
{
    struct pair pair;
    struct args good, a;
    int         op;

    pair_open(&pair);
    good = pair_args(&pair, 0);
    for (op = 0; op < NUM_OPS; op++) {
        a     = good;
        a.hdl = good.hdl + 1;
        REFUSED(op, &a, UTOFU_ERR_INVALID_VCQ_HDL);
        a       = good;
        a.flags = 1UL << 40;
        REFUSED(op, &a, UTOFU_ERR_INVALID_FLAGS);
        if (op == NOP) {
            continue;
        }
        a    = good;
        a.id = UINT64_MAX;
        REFUSED(op, &a, UTOFU_ERR_INVALID_VCQ_ID);
        a       = good;
        a.edata = 256;
        REFUSED(op, &a, UTOFU_ERR_INVALID_EDATA);
        a     = good;
        a.rmt = good.rmt + 2;
        if (op >= ARMW4) {
            REFUSED(op, &a, UTOFU_ERR_INVALID_STADD);
            if ((op == ARMW8) || (op == CSWAP8)) {
                a.rmt = good.rmt + 4;
                REFUSED(op, &a, UTOFU_ERR_INVALID_STADD);
            }
            continue;
        }
        a        = good;
        a.length = (op == PIGGYBACK) ? 33 : (op == PIGGYBACK8) ? 9 : 16777216;
        REFUSED(op, &a, UTOFU_ERR_INVALID_SIZE);
        a.length = SIZE_MAX;
        REFUSED(op, &a, UTOFU_ERR_INVALID_SIZE);
        a     = good;
        a.num = 0;
        if (is_stride(op)) {
            REFUSED(op, &a, UTOFU_ERR_INVALID_NUMBER);
        }
        a      = good;
        a.data = NULL;
        if (op == PIGGYBACK) {
            REFUSED(op, &a, UTOFU_ERR_INVALID_POINTER);
        }
    }
    for (op = ARMW4; op <= ARMW8; op++) {
        static const int ops[] = {0, 6, 100, -1};
        size_t           i;

        for (i = 0; i < CONF_LEN(ops); i++) {
            a      = good;
            a.armw = (enum utofu_armw_op)ops[i];
            REFUSED(op, &a, UTOFU_ERR_INVALID_OP);
        }
    }
    CONF_EXPECT_QUIET(&pair.vcq);
    pair_close(&pair);
}

CONF_TEST("3.7.2", prepare_pointers, 1,
          "the prepare functions need a place for the descriptor, aligned to 8 "
          "bytes, and one for its size")
{
    struct pair pair;
    struct args a;
    size_t      size, i;
    int         op;

    pair_open(&pair);
    a = pair_args(&pair, 0);
    for (op = 0; op < NUM_OPS; op++) {
        CONF_CODE(prepare(op, &a, NULL, &size), UTOFU_ERR_INVALID_POINTER);
        CONF_CODE(prepare(op, &a, pair.desc, NULL), UTOFU_ERR_INVALID_POINTER);
        for (i = 1; i < 8; i++) {
            CONF_CODE(prepare(op, &a, (char *)pair.desc + i, &size),
                      UTOFU_ERR_INVALID_POINTER, UTOFU_ERR_INVALID_DESC);
        }
        CONF_OK(prepare(op, &a, pair.desc + 1, &size));
    }
    pair_close(&pair);
}
