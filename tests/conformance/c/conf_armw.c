/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_armw.c - atomic read-modify-write: results, old values, and that it is
 * atomic with everything else (2.2.5, 3.7.1.11 - 3.7.1.14).
 */
#include "harness.h"

#include <inttypes.h>
#include <stdatomic.h>

/* Operands whose carries and bit patterns tell the operations apart. */
static const uint64_t values[] = {
    0, 1, UINT64_C(0xffffffff), UINT64_C(0x100000000),
    UINT64_C(0x8000000080000000), UINT64_C(0x0123456789abcdef), UINT64_MAX,
};

static uint64_t apply(enum utofu_armw_op op, uint64_t old, uint64_t operand)
{
    switch (op) {
    case UTOFU_ARMW_OP_SWAP:
        return operand;
    case UTOFU_ARMW_OP_ADD:
        return old + operand;
    case UTOFU_ARMW_OP_XOR:
        return old ^ operand;
    case UTOFU_ARMW_OP_AND:
        return old & operand;
    case UTOFU_ARMW_OP_OR:
        return old | operand;
    }
    return 0;
}

static int post(const struct conf_vcq *vcq, size_t width, bool cswap,
                enum utofu_armw_op op, uint64_t compare, uint64_t operand,
                utofu_stadd_t word)
{
    if (cswap) {
        return (width == 4) ?
                       utofu_cswap4(vcq->hdl, vcq->peer[1], (uint32_t)compare,
                                    (uint32_t)operand, word, 7, CONF_LMRQ,
                                    NULL) :
                       utofu_cswap8(vcq->hdl, vcq->peer[1], compare, operand,
                                    word, 7, CONF_LMRQ, NULL);
    }
    return (width == 4) ? utofu_armw4(vcq->hdl, vcq->peer[1], op,
                                      (uint32_t)operand, word, 7, CONF_LMRQ,
                                      NULL) :
                          utofu_armw8(vcq->hdl, vcq->peer[1], op, operand, word,
                                      7, CONF_LMRQ, NULL);
}

/* Rank 0 operates on the words of rank 1; a get looks at the result, and at
 * the neighbours. */
static void all_ops(size_t width, bool cswap)
{
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC,
                                           CONF_MEM_STATIC};
    const uint64_t guard = UINT64_C(0xabababababababab);
    struct conf_vcq vcq;
    struct conf_mem mem;
    struct utofu_mrq_notice notice;
    utofu_stadd_t   stadds[2], lcl, word;
    uint64_t        words[4], mask, old, operand, expected;
    size_t          k, i, j, compare;
    int             op, last_op;

    mask    = (width == 4) ? UINT32_MAX : UINT64_MAX;
    last_op = cswap ? 1 : UTOFU_ARMW_OP_OR;
    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, words, sizeof(words), 0);
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mem, kinds[k], 4096);
        conf_reg_all(&vcq, mem.addr, mem.size, stadds);
        for (op = 1; (op <= last_op) && (conf_rank == 0); op++) {
            for (i = 0; i < CONF_LEN(values); i++) {
                for (j = 0; j < CONF_LEN(values); j++) {
                    /* Every word of a line is used once in a while. */
                    word    = stadds[1] + 64 +
                              (i * CONF_LEN(values) + j) % 8 * width;
                    old     = values[i] & mask;
                    operand = values[j] & mask;
                    compare = (i + j) % 2; /* cswap: equal or not */
                    words[0] = words[1] = words[2] = guard;
                    memcpy((char *)words + 8, &old, width);
                    CONF_POST(vcq.hdl,
                              utofu_put(vcq.hdl, vcq.peer[1], lcl, word - 8, 24,
                                        0, CONF_LMRQ, NULL));
                    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1],
                                    0, NULL);
                    CONF_POST(vcq.hdl,
                              post(&vcq, width, cswap, op, old + compare,
                                   operand, word));
                    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1],
                                    7, &notice);
                    CONF_CHECK(notice.rmt_value == old, "op %d: old value 0x%"
                               PRIx64 ", expected 0x%" PRIx64, op,
                               notice.rmt_value, old);
                    CONF_POST(vcq.hdl,
                              utofu_get(vcq.hdl, vcq.peer[1], lcl, word - 8, 24,
                                        1, CONF_LMRQ, NULL));
                    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1],
                                    1, NULL);
                    expected = cswap ? (compare ? old : operand) :
                                       apply(op, old, operand) & mask;
                    CONF_CHECK(memcmp(words + 1, &expected, width) == 0,
                               "op %d of %zu bytes, 0x%" PRIx64 " with 0x%"
                               PRIx64 ": result 0x%" PRIx64 ", expected 0x%"
                               PRIx64, op, width, old, operand,
                               words[1] & mask, expected);
                    CONF_CHECK((words[0] == guard) &&
                                       (memcmp((char *)words + 8 + width,
                                               &guard, 8) == 0),
                               "op %d changed a neighbour", op);
                }
            }
        }
        conf_barrier();
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
    }
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7.1.11", armw4_results, 2,
          "utofu_armw4 does SWAP, ADD, XOR, AND, OR on 4 bytes and reports the "
          "old value with the upper half 0")
{
    all_ops(4, false);
}

CONF_TEST("3.7.1.12", armw8_results, 2,
          "utofu_armw8 does SWAP, ADD, XOR, AND, OR on 8 bytes and reports the "
          "old value")
{
    all_ops(8, false);
}

CONF_TEST("3.7.1.13", cswap4_results, 2,
          "utofu_cswap4 writes the new value exactly when the old one is "
          "there, and reports what was there")
{
    all_ops(4, true);
}

CONF_TEST("3.7.1.14", cswap8_results, 2,
          "utofu_cswap8 writes the new value exactly when the old one is "
          "there, and reports what was there")
{
    all_ops(8, true);
}

CONF_TEST("3.7.1.12", misaligned, 2,
          "an ARMW whose target address is not a multiple of its size is an "
          "error and changes nothing")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    _Alignas(16) uint64_t   words[8];
    utofu_stadd_t           stadds[2];
    void                   *cbdata;
    size_t                  at, width;
    int                     rc, cswap;

    memset(words, 0x11, sizeof(words));
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    for (width = 4; (width <= 8) && (conf_rank == 0); width += 4) {
        for (at = 1, cswap = 0; at < width; at += cswap, cswap = 1 - cswap) {
            if ((width == 4) && cswap) {
                rc = utofu_cswap4(vcq.hdl, vcq.peer[1], 0x11111111, 1,
                                  stadds[1] + 16 + at, 0, 0, NULL);
            } else if (width == 4) {
                rc = utofu_armw4(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1,
                                 stadds[1] + 16 + at, 0, 0, NULL);
            } else if (cswap) {
                rc = utofu_cswap8(vcq.hdl, vcq.peer[1],
                                  UINT64_C(0x1111111111111111), 1,
                                  stadds[1] + 16 + at, 0, 0, NULL);
            } else {
                rc = utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1,
                                 stadds[1] + 16 + at, 0, 0, NULL);
            }
            CONF_CODE(rc, UTOFU_SUCCESS, UTOFU_ERR_INVALID_STADD,
                      UTOFU_ERR_INVALID_ADDRESS, UTOFU_ERR_INVALID_ARG);
            if (rc == UTOFU_SUCCESS) {
                do {
                    rc = utofu_poll_tcq(vcq.hdl, 0, &cbdata);
                    if (rc == UTOFU_ERR_NOT_FOUND) {
                        rc = utofu_poll_mrq(vcq.hdl, 0, &notice);
                    }
                } while (rc == UTOFU_ERR_NOT_FOUND);
                CONF_CODE(rc, UTOFU_ERR_TCQ_DESC, UTOFU_ERR_TCQ_STADD,
                          UTOFU_ERR_TCQ_OTHER, UTOFU_ERR_MRQ_RMT_STADD,
                          UTOFU_ERR_MRQ_RMT_MEMORY, UTOFU_ERR_MRQ_OTHER);
            }
        }
    }
    conf_barrier();
    CONF_CHECK_BYTES(words, sizeof(words), 0x11, "words");
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------- atomicity */

#define PER_RANK 4000

/* Every rank adds 1 to one word of rank 0, as often as the others; rank 0 by
 * CPU instructions.  Each old value is seen once. */
static void contend(size_t width, enum conf_kind kind, bool cswap)
{
    static uint32_t         mine[PER_RANK], all[3 * PER_RANK];
    static unsigned char    seen[3 * PER_RANK];
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[3];
    _Atomic uint32_t       *word4;
    _Atomic uint64_t       *word8;
    uint64_t                guess = 0;
    unsigned                spins = 0;
    size_t                  n;
    int                     rc;

    conf_timeout(60);
    conf_vcq_open(&vcq, conf_rank, 0);
    conf_mem_alloc(&mem, kind, 4096);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    word4 = (_Atomic uint32_t *)(mem.addr + 64);
    word8 = (_Atomic uint64_t *)(mem.addr + 64);
    conf_barrier();
    for (n = 0; n < PER_RANK;) {
        if (conf_rank == 0) {
            mine[n++] = (width == 4) ? atomic_fetch_add(word4, 1) :
                                       atomic_fetch_add(word8, 1);
            /* In step with the others, so that they really compete. */
            while (((width == 4) ? atomic_load(word4) : atomic_load(word8)) <
                   2 * n) {
                conf_relax(&spins);
            }
            continue;
        }
        if (cswap) {
            rc = (width == 4) ?
                         utofu_cswap4(vcq.hdl, vcq.peer[0], guess, guess + 1,
                                      stadds[0] + 64, 0, CONF_LMRQ, NULL) :
                         utofu_cswap8(vcq.hdl, vcq.peer[0], guess, guess + 1,
                                      stadds[0] + 64, 0, CONF_LMRQ, NULL);
        } else {
            rc = (width == 4) ?
                         utofu_armw4(vcq.hdl, vcq.peer[0], UTOFU_ARMW_OP_ADD, 1,
                                     stadds[0] + 64, 0, CONF_LMRQ, NULL) :
                         utofu_armw8(vcq.hdl, vcq.peer[0], UTOFU_ARMW_OP_ADD, 1,
                                     stadds[0] + 64, 0, CONF_LMRQ, NULL);
        }
        if (rc == UTOFU_ERR_BUSY) {
            void *cbdata;
            CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
            continue;
        }
        CONF_OK(rc);
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[0], 0, &notice);
        if (!cswap || (notice.rmt_value == guess)) {
            mine[n++] = (uint32_t)notice.rmt_value;
            guess     = notice.rmt_value + 1;
        } else {
            guess = notice.rmt_value;
        }
    }
    conf_exchange(mine, sizeof(mine), all);
    if (conf_rank == 0) {
        guess = (width == 4) ? atomic_load(word4) : atomic_load(word8);
        CONF_CHECK(guess == 3 * PER_RANK, "%s: the sum is %" PRIu64
                   ", expected %d", conf_kind_name(kind), guess, 3 * PER_RANK);
        for (n = 0; n < 3 * PER_RANK; n++) {
            CONF_CHECK(all[n] < 3 * PER_RANK, "old value %" PRIu32, all[n]);
            CONF_CHECK(seen[all[n]]++ == 0, "%s: old value %" PRIu32
                       " was seen twice", conf_kind_name(kind), all[n]);
        }
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("2.2.5", atomic_with_cpu_shared_8, 3,
          "8-byte ARMW of two processes and CPU atomics of the target on "
          "shared memory: the sum is exact and all old values differ")
{
    contend(8, CONF_MEM_MEMFD, false);
}

CONF_TEST("2.2.5", atomic_with_cpu_private_8, 3,
          "8-byte ARMW of two processes and CPU atomics of the target on "
          "private memory: the sum is exact and all old values differ")
{
    contend(8, CONF_MEM_MALLOC, false);
}

CONF_TEST("2.2.5", atomic_with_cpu_shared_4, 3,
          "4-byte ARMW of two processes and CPU atomics of the target on "
          "shared memory: the sum is exact and all old values differ")
{
    contend(4, CONF_MEM_MEMFD, false);
}

CONF_TEST("2.2.5", atomic_with_cpu_private_4, 3,
          "4-byte ARMW of two processes and CPU atomics of the target on "
          "private memory: the sum is exact and all old values differ")
{
    contend(4, CONF_MEM_ANON, false);
}

CONF_TEST("2.2.5", atomic_cswap_shared, 3,
          "compare-and-swap of two processes and CPU atomics of the target on "
          "shared memory: every value is swapped once")
{
    contend(8, CONF_MEM_MEMFD, true);
}

CONF_TEST("2.2.5", atomic_cswap_private, 3,
          "compare-and-swap of two processes and CPU atomics of the target on "
          "private memory: every value is swapped once")
{
    contend(4, CONF_MEM_MALLOC, true);
}

CONF_TEST("2.2.5", atomic_over_many_vcqs, 4,
          "ARMW over different TNIs and VCQs, and of the target to itself, on "
          "one word are atomic with each other")
{
    enum { ROUNDS = 200, VCQS = 3 };
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_STATIC};
    struct conf_vcq vcqs[VCQS];
    struct conf_mem mem;
    utofu_stadd_t   stadds[VCQS][4];
    size_t          k, v;
    int             round;

    for (v = 0; v < VCQS; v++) {
        conf_vcq_open(&vcqs[v], v + conf_rank, 0);
    }
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mem, kinds[k], 4096);
        for (v = 0; v < VCQS; v++) {
            conf_reg_all(&vcqs[v], mem.addr, mem.size, stadds[v]);
        }
        for (round = 0; round < ROUNDS; round++) {
            for (v = 0; v < VCQS; v++) {
                CONF_OK(utofu_armw8(vcqs[v].hdl, vcqs[v].peer[0],
                                    UTOFU_ARMW_OP_ADD, 1, stadds[v][0] + 8, 0,
                                    CONF_LMRQ | CONF_TCQ, NULL));
            }
            for (v = 0; v < VCQS; v++) {
                CONF_EXPECT_TCQ(&vcqs[v], NULL);
                CONF_EXPECT_MRQ(&vcqs[v], UTOFU_MRQ_TYPE_LCL_ARMW,
                                vcqs[v].peer[0], 0, NULL);
            }
        }
        conf_barrier();
        CONF_CHECK((conf_rank != 0) ||
                           (*(uint64_t *)(mem.addr + 8) == 4 * VCQS * ROUNDS),
                   "%s: the sum is %" PRIu64, conf_kind_name(kinds[k]),
                   *(uint64_t *)(mem.addr + 8));
        for (v = 0; v < VCQS; v++) {
            conf_dereg(&vcqs[v], stadds[v][conf_rank]);
        }
        conf_mem_free(&mem);
    }
    for (v = 0; v < VCQS; v++) {
        conf_vcq_close(&vcqs[v]);
    }
}
