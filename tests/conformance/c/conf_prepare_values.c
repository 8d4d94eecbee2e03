/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_prepare_values.c - what prepared operations (3.7.2) leave behind: every operation of ARMW, every length of
 * a piggyback, long puts and gets; and the notices of those that fail.
 */
#include "harness.h"

#include <inttypes.h>

#define LARGE 1000000 /* of no power of two, and of more than 16 bits */
#define GUARD 0x55

/* Two VCQs of one process: all is done when the notice is there. */
struct two {
    struct conf_vcq vcq, to;
    utofu_stadd_t   lcl, rmt;
};

static void two_open(struct two *two, void *lcl, void *rmt, size_t size)
{
    conf_vcq_create(&two->vcq, 0, 0);
    conf_vcq_create(&two->to, 1, 0);
    two->lcl = conf_reg(&two->vcq, lcl, size, 0);
    two->rmt = conf_reg(&two->to, rmt, size, 0);
}

static void two_close(struct two *two)
{
    CONF_EXPECT_QUIET(&two->vcq);
    conf_vcq_close(&two->vcq);
    conf_vcq_close(&two->to);
}

/* Posts what was prepared, and waits for its local notice. */
static struct utofu_mrq_notice post(struct two *two, const uint64_t *desc, size_t size, int type)
{
    struct utofu_mrq_notice notice;

    CONF_OK(utofu_post_toq(two->vcq.hdl, (void *)(uintptr_t)desc, size, NULL));
    CONF_EXPECT_MRQ(&two->vcq, type, two->to.id, 9, &notice);
    return notice;
}

CONF_TEST("3.7.2", prepared_armw_operations, 1,
          "a prepared ARMW does its operation, of 4 and of 8 bytes, and tells the old value; a prepared "
          "compare-and-swap swaps only what is equal")
{
    static const struct {
        enum utofu_armw_op op;
        uint64_t           want;
    } ops[] = {
        {UTOFU_ARMW_OP_SWAP, 7},      {UTOFU_ARMW_OP_ADD, 107},     {UTOFU_ARMW_OP_XOR, 100 ^ 7},
        {UTOFU_ARMW_OP_AND, 100 & 7}, {UTOFU_ARMW_OP_OR, 100 | 7},
    };
    struct utofu_mrq_notice notice;
    uint64_t                word[2] = {0, 0}, desc[8];
    uint32_t               *half    = (uint32_t *)(void *)word;
    struct two              two;
    size_t                  size;

    two_open(&two, word, word, sizeof(word));
    for (size_t i = 0; i < CONF_LEN(ops); i++) {
        word[0] = 100;
        CONF_OK(utofu_prepare_armw8(two.vcq.hdl, two.to.id, ops[i].op, 7, two.rmt, 9, CONF_LMRQ, desc, &size));
        notice = post(&two, desc, size, UTOFU_MRQ_TYPE_LCL_ARMW);
        CONF_CHECK((word[0] == ops[i].want) && (notice.rmt_value == 100),
                   "operation %d of 8 bytes: %" PRIu64 ", %" PRIu64 " before", (int)ops[i].op, word[0], notice.rmt_value);
        half[0] = 100;
        half[1] = UINT32_MAX;
        CONF_OK(utofu_prepare_armw4(two.vcq.hdl, two.to.id, ops[i].op, 7, two.rmt, 9, CONF_LMRQ, desc, &size));
        notice = post(&two, desc, size, UTOFU_MRQ_TYPE_LCL_ARMW);
        CONF_CHECK((half[0] == ops[i].want) && (half[1] == UINT32_MAX) && (notice.rmt_value == 100),
                   "operation %d of 4 bytes: %" PRIx64 ", %" PRIu64 " before", (int)ops[i].op, word[0], notice.rmt_value);
    }
    for (uint64_t expected = 99; expected <= 100; expected++) { /* what is there is 100 */
        uint64_t want = (expected == 100) ? 7 : 100;

        word[0] = 100;
        CONF_OK(utofu_prepare_cswap8(two.vcq.hdl, two.to.id, expected, 7, two.rmt, 9, CONF_LMRQ, desc, &size));
        notice = post(&two, desc, size, UTOFU_MRQ_TYPE_LCL_ARMW);
        CONF_CHECK((word[0] == want) && (notice.rmt_value == 100), "cswap8 of %" PRIu64 ": %" PRIu64, expected, word[0]);
        half[0] = 100;
        half[1] = UINT32_MAX;
        CONF_OK(utofu_prepare_cswap4(two.vcq.hdl, two.to.id, expected, 7, two.rmt, 9, CONF_LMRQ, desc, &size));
        notice = post(&two, desc, size, UTOFU_MRQ_TYPE_LCL_ARMW);
        CONF_CHECK((half[0] == want) && (half[1] == UINT32_MAX) && (notice.rmt_value == 100),
                   "cswap4 of %" PRIu64 ": %" PRIx64, expected, word[0]);
    }
    two_close(&two);
}

CONF_TEST("3.7.2", prepared_piggyback_lengths, 1,
          "a prepared piggyback put stores the bytes that it was given, however many, and none beside them")
{
    unsigned char target[48], want[48], data[32];
    uint64_t      value = UINT64_C(0x1122334455667788), desc[8];
    struct two    two;
    size_t        size, most = conf_caps()->max_piggyback_size;

    CONF_CHECK(most <= sizeof(data), "max_piggyback_size %zu", most);
    two_open(&two, target, target, sizeof(target));
    conf_fill(data, sizeof(data), 3);
    for (size_t n = 0; n <= most; n++) {
        memset(target, GUARD, sizeof(target));
        memset(want, GUARD, sizeof(want));
        memcpy(want, data, n);
        CONF_OK(utofu_prepare_put_piggyback(two.vcq.hdl, two.to.id, data, two.rmt, n, 9, CONF_LMRQ, desc, &size));
        post(&two, desc, size, UTOFU_MRQ_TYPE_LCL_PUT);
        CONF_CHECK(memcmp(target, want, sizeof(want)) == 0, "a piggyback of %zu bytes", n);
        if (n <= 8) {
            memset(target, GUARD, sizeof(target));
            memcpy(want, &value, n);
            CONF_OK(utofu_prepare_put_piggyback8(two.vcq.hdl, two.to.id, value, two.rmt, n, 9, CONF_LMRQ, desc, &size));
            post(&two, desc, size, UTOFU_MRQ_TYPE_LCL_PUT);
            CONF_CHECK(memcmp(target, want, sizeof(want)) == 0, "a piggyback8 of %zu bytes", n);
        }
    }
    two_close(&two);
}

CONF_TEST("3.7.2", prepared_lengths, 1,
          "a prepared put or get, also with a gap, moves all of its bytes, of lengths of 1 to 20 bits, and tells its end")
{
    static unsigned char         lcl[LARGE + 1], rmt[LARGE + 1];
    static const size_t          lengths[] = {1, 255, 256, 4095, 65535, 65536, 65537, LARGE};
    static unsigned char *const  from[2]   = {lcl, rmt}, *const to[2] = {rmt, lcl};
    struct utofu_mrq_notice      notice;
    uint64_t                     desc[8];
    struct two                   two;
    size_t                       size;
    utofu_vcq_hdl_t              hdl;
    utofu_vcq_id_t               id;

    two_open(&two, lcl, rmt, sizeof(lcl));
    hdl = two.vcq.hdl;
    id  = two.to.id;
    for (size_t i = 0; i < CONF_LEN(lengths); i++) {
        for (int way = 0; way < 4; way++) {
            size_t n    = lengths[i];
            int    get  = way & 1;
            int    type = get ? UTOFU_MRQ_TYPE_LCL_GET : UTOFU_MRQ_TYPE_LCL_PUT;

            conf_fill(from[get], n, (unsigned)(i * 4) + (unsigned)way);
            memset(to[get], GUARD, n + 1);
            switch (way) {
            case 0:
                CONF_OK(utofu_prepare_put(hdl, id, two.lcl, two.rmt, n, 9, CONF_LMRQ, desc, &size));
                break;
            case 1:
                CONF_OK(utofu_prepare_get(hdl, id, two.lcl, two.rmt, n, 9, CONF_LMRQ, desc, &size));
                break;
            case 2:
                CONF_OK(utofu_prepare_put_gap(hdl, id, two.lcl, two.rmt, n, 9, CONF_LMRQ, 1920, 1, desc, &size));
                break;
            default:
                CONF_OK(utofu_prepare_get_gap(hdl, id, two.lcl, two.rmt, n, 9, CONF_LMRQ, 1920, 1, desc, &size));
            }
            notice = post(&two, desc, size, type);
            CONF_CHECK_FILL(to[get], n, (unsigned)(i * 4) + (unsigned)way, "prepared");
            CONF_CHECK(to[get][n] == GUARD, "a byte behind %zu", n);
            CONF_CHECK(get ? (notice.lcl_stadd == two.lcl + n) : (notice.rmt_stadd == two.rmt + n),
                       "the end of %zu bytes", n);
        }
    }
    two_close(&two);
}

CONF_TEST("3.7.6.1", prepared_error_fields, 1,
          "the notice of an operation with stride or gap, or of a prepared one, that failed remotely has the "
          "fields of its kind")
{
    static unsigned char    lcl[4096], rmt[4096], other[4096];
    struct utofu_mrq_notice notice;
    uint64_t                desc[8 * 4];
    struct two              two;
    utofu_stadd_t           bad;
    size_t                  size;
    utofu_vcq_hdl_t         hdl;
    utofu_vcq_id_t          id;

    two_open(&two, lcl, rmt, sizeof(lcl));
    hdl = two.vcq.hdl;
    id  = two.to.id;
    bad = conf_reg(&two.to, other, sizeof(other), 0);
    conf_dereg(&two.to, bad);
    for (int way = 0; way < 8; way++) {
        int get = way & 1, armw = way >= 6;
        int type = armw ? UTOFU_MRQ_TYPE_LCL_ARMW : get ? UTOFU_MRQ_TYPE_LCL_GET : UTOFU_MRQ_TYPE_LCL_PUT;

        size = 0;
        switch (way) {
        case 0:
            CONF_OK(utofu_put_gap(hdl, id, two.lcl, bad, 24, 9, CONF_LMRQ, 1920, 1, NULL));
            break;
        case 1:
            CONF_OK(utofu_get_gap(hdl, id, two.lcl, bad, 24, 9, CONF_LMRQ, 1920, 1, NULL));
            break;
        case 2:
            CONF_OK(utofu_put_stride(hdl, id, two.lcl, bad, 24, 24, 1, 9, CONF_LMRQ, NULL));
            break;
        case 3:
            CONF_OK(utofu_get_stride(hdl, id, two.lcl, bad, 24, 24, 1, 9, CONF_LMRQ, NULL));
            break;
        case 4:
            CONF_OK(utofu_prepare_put(hdl, id, two.lcl, bad, 24, 9, CONF_LMRQ, desc, &size));
            break;
        case 5:
            CONF_OK(utofu_prepare_get(hdl, id, two.lcl, bad, 24, 9, CONF_LMRQ, desc, &size));
            break;
        case 6:
            CONF_OK(utofu_prepare_armw8(hdl, id, UTOFU_ARMW_OP_ADD, 1, bad, 9, CONF_LMRQ, desc, &size));
            break;
        default:
            CONF_OK(utofu_prepare_cswap4(hdl, id, 1, 2, bad, 9, CONF_LMRQ, desc, &size));
        }
        if (size > 0) {
            CONF_OK(utofu_post_toq(hdl, desc, size, NULL));
        }
        memset(&notice, 0, sizeof(notice));
        CONF_CODE(CONF_WAIT_MRQ(&two.vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_MEMORY);
        conf_check_notice(__FILE__, __LINE__, &notice, type, id, 9);
        if (get && !armw) {
            CONF_CHECK(notice.lcl_stadd == two.lcl + 24, "way %d: local STADD %" PRIx64, way, (uint64_t)notice.lcl_stadd);
        } else {
            CONF_CHECK(notice.rmt_stadd == bad + (armw ? 0 : 24), "way %d: remote STADD %" PRIx64, way,
                       (uint64_t)notice.rmt_stadd);
        }
    }
    two_close(&two);
}
