/* SPDX-License-Identifier: BSD-3-Clause */
/* conf_reduce.c - reductions (2.3.4, 3.8.1.2, 3.8.1.3, 3.8.2.2, 3.8.2.3, table 6.5). */
#include "circuit.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>

#define OPS 6
static const enum utofu_reduce_op ops[OPS] = {
    UTOFU_REDUCE_OP_BAND, UTOFU_REDUCE_OP_BOR,    UTOFU_REDUCE_OP_BXOR,
    UTOFU_REDUCE_OP_MAX,  UTOFU_REDUCE_OP_MAXLOC, UTOFU_REDUCE_OP_SUM};

/* The same numbers in every rank that starts from the same seed */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void reference(enum utofu_reduce_op op, uint64_t *a, const uint64_t *b,
                      int num)
{
    int i;

    for (i = 0; i < num; i++) {
        if (op == UTOFU_REDUCE_OP_BAND) {
            a[i] &= b[i];
        } else if (op == UTOFU_REDUCE_OP_BOR) {
            a[i] |= b[i];
        } else if (op == UTOFU_REDUCE_OP_BXOR) {
            a[i] ^= b[i];
        } else if (op == UTOFU_REDUCE_OP_SUM) {
            a[i] += b[i];
        } else if (op == UTOFU_REDUCE_OP_MAX) {
            a[i] = (a[i] > b[i]) ? a[i] : b[i];
        } else if (i % 2 == 0) {
            if ((b[i] > a[i]) || ((b[i] == a[i]) && (b[i + 1] < a[i + 1]))) {
                a[i]     = b[i];
                a[i + 1] = b[i + 1];
            }
        }
    }
}

/* Values of a place; few different ones in some rounds, so that there are ties */
static void values_of(int round, int place, uint64_t *values)
{
    uint64_t seed = (uint64_t)round * 1000 + place;
    int      i, kind = (round + round / OPS) % 3; /* each operation has them all */

    for (i = 0; i < 6; i++) {
        values[i] = next_random(&seed);
        if (kind == 0) {
            values[i] %= 3;
        } else if ((kind == 1) && (values[i] & 1)) {
            values[i] |= values[i] << 1;
        }
    }
}

static void uint64_rounds(struct circuit *c, int rounds)
{
    int round, place, i;

    for (round = 0; round < rounds; round++) {
        enum utofu_reduce_op op  = ops[round % OPS];
        int                  num = round / OPS % 6 + 1;
        uint64_t             want[6], mine[6], got[7];

        if ((op == UTOFU_REDUCE_OP_MAXLOC) && (num % 2 != 0)) {
            num++;
        }
        values_of(round, 0, want);
        for (place = 1; place < c->plan.places; place++) {
            values_of(round, place, mine);
            reference(op, want, mine, num);
        }
        CIRCUIT_MINE(c, p) {
            values_of(round, p, mine);
            CONF_OK(utofu_reduce_uint64(c->id[p][0], op, mine, num, 0));
            memset(mine, 0xee, sizeof(mine)); /* ours again at once */
        }
        CIRCUIT_MINE(c, p) {
            memset(got, 0x77, sizeof(got));
            CONF_OK(circuit_wait_uint64(c->id[p][0], got));
            for (i = 0; i < 7; i++) {
                uint64_t w = (i < num) ? want[i] : 0x7777777777777777u;

                CONF_CHECK(got[i] == w,
                           "round %d, op %d, element %d of %d: 0x%" PRIx64
                           ", expected 0x%" PRIx64,
                           round, op, i, num, got[i], w);
            }
        }
    }
}

CONF_TEST("2.3.4", reduce_uint64_butterfly, 4,
          "each operation on 1 to 6 uint64_t gives every process what the "
          "definition says, and touches no element beyond")
{
    static struct circuit c;

    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    uint64_rounds(&c, 360);
    circuit_close(&c);
}

CONF_TEST("2.3.4", reduce_uint64_ten, 10,
          "the same with ten processes, two of which are outside the butterfly")
{
    static struct circuit c;

    conf_timeout(60);
    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    uint64_rounds(&c, 72);
    circuit_close(&c);
}

CONF_TEST("2.3.4", reduce_uint64_ring, 3,
          "the same when the circuit is a ring")
{
    static struct circuit c;

    plan_ring(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    uint64_rounds(&c, 144);
    circuit_close(&c);
}

CONF_TEST("2.3.4", reduce_uint64_tree, 6,
          "the same when the circuit is a tree")
{
    static struct circuit c;

    plan_tree(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    uint64_rounds(&c, 72);
    circuit_close(&c);
}

CONF_TEST("2.3.4", reduce_maxloc_ties, 2,
          "MAXLOC takes the smaller second element where the first are equal, "
          "pair by pair, and compares unsigned")
{
    static const uint64_t in[2][6] = {{5, 9, 7, 0, UINT64_MAX, 3},
                                      {5, 4, 6, 1, 1, 2}};
    static const uint64_t want[6]  = {5, 4, 7, 0, UINT64_MAX, 3};
    static struct circuit c;
    uint64_t              data[6];
    int                   turn, i;

    plan_butterfly(&c.plan, 2);
    circuit_open(&c, 0, 0);
    for (turn = 0; turn < 2; turn++) {
        memcpy(data, in[(conf_rank + turn) % 2], sizeof(data));
        CONF_OK(utofu_reduce_uint64(c.id[conf_rank][0],
                                    UTOFU_REDUCE_OP_MAXLOC, data, 6, 0));
        CONF_OK(circuit_wait_uint64(c.id[conf_rank][0], data));
        for (i = 0; i < 6; i++) {
            CONF_CHECK(data[i] == want[i], "element %d is %" PRIu64, i,
                       data[i]);
        }
    }
    circuit_close(&c);
}

CONF_TEST("2.3.4", reduce_maxloc_unsigned, 2, "both elements of a pair of MAXLOC are compared unsigned")
{
    static const uint64_t top      = UINT64_C(1) << 63;
    const uint64_t        in[2][6] = {{5, top, top, 8, top + 1, 2}, {5, 1, 7, 9, 5, 1}};
    const uint64_t        want[6]  = {5, 1, top, 8, top + 1, 2};
    static struct circuit c;
    uint64_t              data[6];

    plan_butterfly(&c.plan, 2);
    circuit_open(&c, 0, 0);
    for (int turn = 0; turn < 2; turn++) {
        memcpy(data, in[(conf_rank + turn) % 2], sizeof(data));
        CONF_OK(utofu_reduce_uint64(c.id[conf_rank][0], UTOFU_REDUCE_OP_MAXLOC, data, 6, 0));
        CONF_OK(circuit_wait_uint64(c.id[conf_rank][0], data));
        for (int i = 0; i < 6; i++) {
            CONF_CHECK(data[i] == want[i], "element %d is %" PRIu64, i, data[i]);
        }
    }
    circuit_close(&c);
}

/* ---------------------------------------------------------------- doubles */

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double double_of(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* One reduction of one double per place; the result must have these bits. */
static void sum_is(struct circuit *c, const double *in, double want,
                   const char *what)
{
    double got;

    CIRCUIT_MINE(c, p) {
        double value = in[p];
        CONF_OK(utofu_reduce_double(c->id[p][0], UTOFU_REDUCE_OP_BFPSUM,
                                    &value, 1, 0));
    }
    CIRCUIT_MINE(c, p) {
        CONF_OK(circuit_wait_double(c->id[p][0], &got));
        CONF_CHECK((bits_of(got) == bits_of(want)) ||
                           (isnan(got) && isnan(want)),
                   "%s: %a (0x%" PRIx64 "), expected %a", what, got,
                   bits_of(got), want);
    }
}

/* A multiple of 2^-40 below 2^24 or so: sums are exact in 128 bits */
static __int128 fixed_of(int round, int place, int element)
{
    uint64_t seed  = (uint64_t)round * 7919 + place * 31 + element;
    int64_t  value = (int64_t)(next_random(&seed) >> 1);

    /* 53 bits at most, of different sizes */
    value >>= 11 + round % 40;
    return (next_random(&seed) & 1) ? -(__int128)value : value;
}

static void double_rounds(struct circuit *c, int rounds)
{
    int round, place, i;

    for (round = 0; round < rounds; round++) {
        int    num = round % 3 + 1;
        double data[4];

        CIRCUIT_MINE(c, p) {
            for (i = 0; i < num; i++) {
                data[i] = ldexp((double)fixed_of(round, p, i), -40);
            }
            CONF_OK(utofu_reduce_double(c->id[p][0], UTOFU_REDUCE_OP_BFPSUM,
                                        data, num, 0));
        }
        CIRCUIT_MINE(c, p) {
            for (i = 0; i < 4; i++) {
                data[i] = -77;
            }
            CONF_OK(circuit_wait_double(c->id[p][0], data));
            for (i = 0; i < 4; i++) {
                __int128 sum  = 0;
                double   want = -77;

                for (place = 0; place < c->plan.places; place++) {
                    sum += fixed_of(round, place, i);
                }
                if (i < num) {
                    want = ldexp((double)sum, -40); /* rounded once */
                }
                CONF_CHECK(bits_of(data[i]) == bits_of(want),
                           "round %d, element %d of %d: %a, expected %a",
                           round, i, num, data[i], want);
            }
        }
    }
}

CONF_TEST("2.3.4", reduce_double_butterfly, 8,
          "sums of 1 to 3 doubles, in a butterfly, are the same bits in every "
          "process: the exact sum, rounded once (emulator)")
{
    static struct circuit c;

    if (!conf_is_emulator()) {
        conf_skip("how a machine rounds is not said");
    }
    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    double_rounds(&c, 150);
    circuit_close(&c);
}

CONF_TEST("2.3.4", reduce_double_ring, 5,
          "sums of doubles are the same bits in a ring (emulator)")
{
    static struct circuit c;

    if (!conf_is_emulator()) {
        conf_skip("how a machine rounds is not said");
    }
    plan_ring(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    double_rounds(&c, 90);
    circuit_close(&c);
}

CONF_TEST("5.2.1", reduce_double_same_everywhere, 8,
          "all processes get the same bits, whoever starts first, and the same "
          "again in the next reduction of the same values")
{
    static struct circuit c;
    uint64_t              seed, mine[2], all[CONF_MAX_PROCS][2];
    double                value, got;
    int                   round, again, i;

    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    for (round = 0; round < 25; round++) {
        for (again = 0; again < 2; again++) {
            seed = round * 100 + conf_rank;
            /* magnitudes from 2^-30 to 2^33: any order of adding differs */
            value = ldexp((double)(next_random(&seed) >> 11),
                          (int)(next_random(&seed) % 64) - 83);
            value = (next_random(&seed) & 1) ? -value : value;
            if ((conf_rank + again) % 3 == 0) {
                sched_yield();
            }
            CONF_OK(utofu_reduce_double(c.id[conf_rank][0],
                                        UTOFU_REDUCE_OP_BFPSUM, &value, 1, 0));
            CONF_OK(circuit_wait_double(c.id[conf_rank][0], &got));
            mine[again] = bits_of(got);
        }
        conf_exchange(mine, sizeof(mine), all);
        for (i = 0; i < conf_procs; i++) {
            CONF_CHECK((all[i][0] == mine[0]) && (all[i][1] == mine[0]),
                       "round %d: rank %d has 0x%" PRIx64 " and 0x%" PRIx64
                       ", this one 0x%" PRIx64,
                       round, i, all[i][0], all[i][1], mine[0]);
        }
    }
    circuit_close(&c);
}

CONF_TEST("2.3.4", reduce_double_cancels, 4,
          "a sum that cancels, overflows in between or rounds at the edge is "
          "exact, whatever place has what (emulator)")
{
    static struct circuit c;
    static const double   max = 0x1.fffffffffffffp1023;
    const struct {
        double in[4], want;
        const char *what;
    } cases[] = {
        {{1e308, 1, -1e308, 0}, 1, "1e308 + 1 - 1e308"},
        {{max, max, -max, -1}, max, "beyond the largest double and back"},
        {{max, 0x1p969, 0, 0}, max, "less than half of the last place"},
        {{max, 0x1p970, 0, 0}, INFINITY, "half of the last place: to even"},
        {{max, 0x1p970, -0x1p-1074, 0}, max, "just below half"},
        {{max, max, 0, 0}, INFINITY, "overflow"},
        {{-max, -max, 0, 1}, -INFINITY, "overflow of a negative sum"},
        {{0x1p-1074, 0x1p-1074, 0, 0}, 0x1p-1073, "subnormals"},
        {{0x1p-1022, -0x1p-1074, 0, 0}, 0x1p-1022 - 0x1p-1074, "to subnormal"},
        {{0x1p-1023, 0x1p-1023, 0, 0}, 0x1p-1022, "to normal"},
        {{1, 0x1p-53, 0, 0}, 1, "a tie goes to even, down"},
        {{1 + 0x1p-52, 0x1p-53, 0, 0}, 1 + 0x1p-51, "a tie goes to even, up"},
        {{1, 0x1p-53, 0x1p-1074, 0}, 1 + 0x1p-52, "a tie and a bit"},
        {{-1, -0x1p-53, -0x1p-1074, 0}, -1 - 0x1p-52, "the same, negative"},
        {{0x1.fffffffffffffp0, 0x1p-53, 0, 0}, 2, "rounding carries"},
        {{0.1, 0.2, 0.3, -0.6}, 0x1p-55, "decimal fractions"},
        {{3, -3, 0, 0}, 0.0, "exactly zero is +0"},
        {{-0.0, -0.0, -0.0, -0.0}, -0.0, "all of them -0"},
        {{-0.0, 0.0, -0.0, -0.0}, 0.0, "one of them +0"},
        {{INFINITY, -max, 1, 2}, INFINITY, "infinity"},
        {{-INFINITY, max, max, 2}, -INFINITY, "minus infinity"},
        {{INFINITY, 1, -INFINITY, 2}, NAN, "both infinities"},
        {{NAN, 1, INFINITY, 2}, NAN, "a NaN"},
    };
    double in[4], want;
    size_t i;
    int    turn, k;

    if (!conf_is_emulator()) {
        conf_skip("how a machine rounds is not said");
    }
    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    for (i = 0; i < CONF_LEN(cases); i++) {
        want = cases[i].want;
        for (turn = 0; turn < 4; turn++) {
            for (k = 0; k < 4; k++) {
                in[(k + turn) % 4] = cases[i].in[k];
            }
            sum_is(&c, in, want, cases[i].what);
        }
    }
    /* bits beside a NaN's sign and payload are the same everywhere, too */
    in[0] = double_of(0xfff8000000001234u);
    in[1] = NAN;
    CONF_OK(utofu_reduce_double(c.id[conf_rank][0], UTOFU_REDUCE_OP_BFPSUM,
                                &in[conf_rank % 2], 1, 0));
    CONF_OK(circuit_wait_double(c.id[conf_rank][0], &want));
    CONF_CHECK(bits_of(want) == 0x7ff8000000000000u, "NaN is 0x%" PRIx64,
               bits_of(want));
    circuit_close(&c);
}

CONF_TEST("2.3.4", reduce_double_every_exponent, 1,
          "a sum of one value is that value, whatever its exponent and sign")
{
    static struct circuit c;
    uint64_t              exponent;
    double                value;

    plan_tree(&c.plan, 1);
    c.plan.packet[0][0] = 0; /* to itself */
    circuit_open(&c, 0, 0);
    for (exponent = 0; exponent < 2047; exponent++) {
        value = double_of(exponent << 52 | 0x8000000000001u);
        sum_is(&c, &value, value, "one value");
        value = -value;
        sum_is(&c, &value, value, "one negative value");
        value = double_of(exponent << 52 | 0xfffffffffffffu);
        sum_is(&c, &value, value, "all bits of the mantissa");
    }
    circuit_close(&c);
}

CONF_TEST("3.8.1.2", reduce_arguments, 1,
          "a reduction refuses operations of the other type, wrong numbers and "
          "NULL, and nothing is then started")
{
    static struct circuit c;
    uint64_t              u[8] = {0};
    double                d[4] = {0};
    utofu_vbg_id_t        id;
    int                   op;

    /* a circuit of one: a packet to itself */
    plan_tree(&c.plan, 1);
    c.plan.packet[0][0] = 0;
    circuit_open(&c, 0, 0);
    id = c.id[0][0];
#define UINT64(_op, _data, _num, _flags) \
    utofu_reduce_uint64(id, _op, _data, _num, _flags)
#define DOUBLE(_op, _data, _num, _flags) \
    utofu_reduce_double(id, _op, _data, _num, _flags)
    CONF_CODE(UINT64(UTOFU_REDUCE_OP_SUM, u, 0, 0), UTOFU_ERR_INVALID_NUMBER);
    CONF_CODE(UINT64(UTOFU_REDUCE_OP_SUM, u, 7, 0), UTOFU_ERR_INVALID_NUMBER);
    CONF_CODE(UINT64(UTOFU_REDUCE_OP_SUM, u, SIZE_MAX, 0),
              UTOFU_ERR_INVALID_NUMBER);
    CONF_CODE(UINT64(UTOFU_REDUCE_OP_MAXLOC, u, 3, 0),
              UTOFU_ERR_INVALID_NUMBER);
    CONF_CODE(UINT64(UTOFU_REDUCE_OP_BFPSUM, u, 1, 0), UTOFU_ERR_INVALID_OP);
    CONF_CODE(UINT64(UTOFU_REDUCE_OP_BARRIER, u, 1, 0), UTOFU_ERR_INVALID_OP);
    CONF_CODE(UINT64(0, u, 1, 0), UTOFU_ERR_INVALID_OP);
    CONF_CODE(UINT64(9, u, 1, 0), UTOFU_ERR_INVALID_OP);
    CONF_CODE(UINT64(UTOFU_REDUCE_OP_SUM, NULL, 1, 0),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(UINT64(UTOFU_REDUCE_OP_SUM, u, 1, 1), UTOFU_ERR_INVALID_FLAGS);
    CONF_CODE(DOUBLE(UTOFU_REDUCE_OP_BFPSUM, d, 0, 0),
              UTOFU_ERR_INVALID_NUMBER);
    CONF_CODE(DOUBLE(UTOFU_REDUCE_OP_BFPSUM, d, 4, 0),
              UTOFU_ERR_INVALID_NUMBER);
    for (op = UTOFU_REDUCE_OP_BARRIER; op < UTOFU_REDUCE_OP_BFPSUM; op++) {
        CONF_CODE(DOUBLE(op, d, 1, 0), UTOFU_ERR_INVALID_OP);
    }
    CONF_CODE(DOUBLE(UTOFU_REDUCE_OP_BFPSUM, NULL, 1, 0),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(DOUBLE(UTOFU_REDUCE_OP_BFPSUM, d, 1, 1UL << 40),
              UTOFU_ERR_INVALID_FLAGS);
    CONF_CODE(utofu_poll_reduce_uint64(id, 0, u), UTOFU_ERR_BUSY);
    CONF_CODE(utofu_poll_reduce_double(id, 0, d), UTOFU_ERR_BUSY);
    u[0] = 42;
    CONF_OK(UINT64(UTOFU_REDUCE_OP_SUM, u, 1, 0));
    CONF_CODE(utofu_poll_reduce_uint64(id, 0, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_poll_reduce_uint64(id, 1, u), UTOFU_ERR_INVALID_FLAGS);
    u[0] = 0;
    CONF_OK(circuit_wait_uint64(id, u));
    CONF_CHECK(u[0] == 42, "a sum of one is %" PRIu64, u[0]);
    circuit_close(&c);
}

CONF_TEST("3.8.3.1", reduce_every_bit, 2,
          "every integer operation works on all 64 bits; MAX compares unsigned")
{
    static const uint64_t in[2][6] = {
        {UINT64_C(0xf0f0f0f0f0f0f0f0), UINT64_MAX, UINT64_C(1) << 63, 5, UINT64_C(0x8000000000000001), 0},
        {UINT64_C(0xff00ff00ff00ff00), UINT64_C(0x7fffffff00000000), 7, UINT64_C(1) << 63, UINT64_C(0x7fffffffffffffff), 1}};
    static struct circuit c;
    uint64_t              data[6], want[6];
    size_t                k;
    int                   i;

    plan_butterfly(&c.plan, 2);
    circuit_open(&c, 0, 0);
    for (k = 0; k < OPS; k++) {
        memcpy(data, in[conf_rank], sizeof(data));
        memcpy(want, in[0], sizeof(want));
        reference(ops[k], want, in[1], 6);
        CONF_OK(utofu_reduce_uint64(c.id[conf_rank][0], ops[k], data, 6, 0));
        CONF_OK(circuit_wait_uint64(c.id[conf_rank][0], data));
        for (i = 0; i < 6; i++) {
            CONF_CHECK(data[i] == want[i], "operation %d, element %d: 0x%" PRIx64 ", expected 0x%" PRIx64, ops[k], i,
                       data[i], want[i]);
        }
    }
    circuit_close(&c);
}

CONF_TEST("3.8.2.3", poll_double_arguments, 1, "utofu_poll_reduce_double refuses flags and NULL, too")
{
    static struct circuit c;
    double                d = 42;

    plan_tree(&c.plan, 1);
    c.plan.packet[0][0] = 0;
    circuit_open(&c, 0, 0);
    CONF_OK(utofu_reduce_double(c.id[0][0], UTOFU_REDUCE_OP_BFPSUM, &d, 1, 0));
    CONF_CODE(utofu_poll_reduce_double(c.id[0][0], 1, &d), UTOFU_ERR_INVALID_FLAGS);
    CONF_CODE(utofu_poll_reduce_double(c.id[0][0], 0, NULL), UTOFU_ERR_INVALID_POINTER);
    d = 0;
    CONF_OK(circuit_wait_double(c.id[0][0], &d));
    CONF_CHECK(d == 42, "%g", d);
    circuit_close(&c);
}
