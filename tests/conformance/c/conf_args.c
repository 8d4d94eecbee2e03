/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_args.c - one-sided functions refuse arguments that cannot be, each with
 * the code that names the argument (3.1.2.1), and then do nothing.
 */
#include "harness.h"

struct call {
    utofu_vcq_hdl_t hdl;
    utofu_vcq_id_t  id;
    utofu_stadd_t   stadd;
    uint64_t        edata;
    unsigned long   flags;
};

static uint64_t words[32];

#define POST(_name, ...) \
    static int _name(const struct call *c) \
    { \
        return utofu_##_name(c->hdl, c->id, __VA_ARGS__, c->edata, c->flags, \
                             NULL); \
    }

POST(put, c->stadd, c->stadd + 64, 8)
POST(put_piggyback, words, c->stadd + 64, 8)
POST(put_piggyback8, 1, c->stadd + 64, 8)
POST(get, c->stadd, c->stadd + 64, 8)
POST(armw4, UTOFU_ARMW_OP_ADD, 1, c->stadd + 64)
POST(armw8, UTOFU_ARMW_OP_ADD, 1, c->stadd + 64)
POST(cswap4, 0, 1, c->stadd + 64)
POST(cswap8, 0, 1, c->stadd + 64)

static int nop(const struct call *c)
{
    return utofu_nop(c->hdl, c->flags, NULL);
}

static const struct {
    const char *name;
    int         (*post)(const struct call *c);
} posts[] = {
    {"utofu_put", put},           {"utofu_put_piggyback", put_piggyback},
    {"utofu_get", get},           {"utofu_put_piggyback8", put_piggyback8},
    {"utofu_armw4", armw4},       {"utofu_armw8", armw8},
    {"utofu_cswap4", cswap4},     {"utofu_cswap8", cswap8},
    {"utofu_nop", nop},
};

#define NUM_POSTS      CONF_LEN(posts)
#define NUM_COMM_POSTS (NUM_POSTS - 1) /* all but NOP */

static struct call good_call(const struct conf_vcq *vcq)
{
    struct call c;

    memset(words, 0x5a, sizeof(words));
    c.hdl   = vcq->hdl;
    c.id    = vcq->id;
    c.stadd = conf_reg(vcq, words, sizeof(words), 0);
    c.edata = 0;
    c.flags = 0;
    return c;
}

static void finish(struct conf_vcq *vcq, const struct call *c)
{
    size_t count;

    CONF_EXPECT_QUIET(vcq);
    CONF_OK(utofu_query_num_unread_tcq(vcq->hdl, &count));
    CONF_CHECK(count == 0, "refused calls took %zu TOQ entries", count);
    CONF_CHECK_BYTES(words, sizeof(words), 0x5a, "memory of refused calls");
    conf_dereg(vcq, c->stadd);
    conf_vcq_close(vcq);
}

#define REFUSED(_i, _call, ...) \
    (conf_at(__FILE__, __LINE__, posts[_i].name), \
     conf_expects((const int[]){__VA_ARGS__}, \
                  sizeof((const int[]){__VA_ARGS__}) / sizeof(int)), \
     conf_check_code(__FILE__, __LINE__, posts[_i].name, posts[_i].post(_call), \
                     (const int[]){__VA_ARGS__}, \
                     sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

CONF_TEST("3.1.2.1", post_invalid_handle, 1,
          "every one-sided function refuses a handle that is none, or was "
          "freed, with INVALID_VCQ_HDL")
{
    struct conf_vcq         vcq, gone;
    struct call             good, c;
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    size_t                  i, h, count;

    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&gone, 0, 0);
    CONF_OK(utofu_free_vcq(gone.hdl));
    good = good_call(&vcq);

    const utofu_vcq_hdl_t bad[] = {0, 1, 16, UINTPTR_MAX, (uintptr_t)words,
                                   vcq.hdl + 1, gone.hdl};

    for (h = 0; h < CONF_LEN(bad); h++) {
        c     = good;
        c.hdl = bad[h];
        for (i = 0; i < NUM_POSTS; i++) {
            REFUSED(i, &c, UTOFU_ERR_INVALID_VCQ_HDL);
        }
        CONF_CODE(utofu_poll_tcq(bad[h], 0, &cbdata),
                  UTOFU_ERR_INVALID_VCQ_HDL);
        CONF_CODE(utofu_poll_mrq(bad[h], 0, &notice),
                  UTOFU_ERR_INVALID_VCQ_HDL);
        CONF_CODE(utofu_query_num_unread_tcq(bad[h], &count),
                  UTOFU_ERR_INVALID_VCQ_HDL);
        CONF_CODE(utofu_query_num_unread_mrq(bad[h], &count),
                  UTOFU_ERR_INVALID_VCQ_HDL);
    }
    finish(&vcq, &good);
}

CONF_TEST("3.1.2.1", post_invalid_vcq_id, 1,
          "every one-sided function refuses a remote VCQ ID that no VCQ can "
          "have with INVALID_VCQ_ID")
{
    struct conf_vcq vcq;
    struct call     good, c;
    size_t          i;

    conf_vcq_create(&vcq, 0, 0);
    good = good_call(&vcq);
    c    = good;
    c.id = UINT64_MAX;
    for (i = 0; i < NUM_COMM_POSTS; i++) {
        REFUSED(i, &c, UTOFU_ERR_INVALID_VCQ_ID);
    }
    finish(&vcq, &good);
}

CONF_TEST("3.7.9.1", post_unknown_flags, 1,
          "every one-sided function refuses flags that are not defined with "
          "INVALID_FLAGS")
{
    static const unsigned bits[] = {4, 6, 7, 9, 10, 11, 12, 13, 16, 17, 18, 19,
                                    20, 21, 22, 23, 36, 40, 50, 62, 63};
    struct conf_vcq vcq;
    struct call     good, c;
    size_t          i, b;

    conf_vcq_create(&vcq, 0, 0);
    good = good_call(&vcq);
    for (b = 0; b < CONF_LEN(bits); b++) {
        c       = good;
        c.flags = 1UL << bits[b];
        for (i = 0; i < NUM_POSTS; i++) {
            REFUSED(i, &c, UTOFU_ERR_INVALID_FLAGS);
        }
    }
    finish(&vcq, &good);
}

CONF_TEST("3.7.6.1", post_too_much_edata, 1,
          "every one-sided function refuses EDATA of more than max_edata_size "
          "bytes with INVALID_EDATA")
{
    struct conf_vcq vcq;
    struct call     good, c;
    size_t          i;
    unsigned        bit;

    conf_vcq_create(&vcq, 0, 0);
    good = good_call(&vcq);
    for (bit = 8 * conf_caps()->max_edata_size; bit < 64; bit++) {
        c       = good;
        c.edata = UINT64_C(1) << bit;
        for (i = 0; i < NUM_COMM_POSTS; i++) {
            REFUSED(i, &c, UTOFU_ERR_INVALID_EDATA);
        }
    }
    finish(&vcq, &good);
}

CONF_TEST("3.7.7.1", unknown_operation, 1,
          "utofu_armw4 and utofu_armw8 refuse operations that are not defined "
          "with INVALID_OP")
{
    static const int ops[] = {0, 6, 7, 100, -1, 0x7fffffff};
    struct conf_vcq  vcq;
    struct call      good;
    size_t           i;

    conf_vcq_create(&vcq, 0, 0);
    good = good_call(&vcq);
    for (i = 0; i < CONF_LEN(ops); i++) {
        CONF_CODE(utofu_armw4(vcq.hdl, vcq.id, (enum utofu_armw_op)ops[i], 1,
                              good.stadd, 0, 0, NULL), UTOFU_ERR_INVALID_OP);
        CONF_CODE(utofu_armw8(vcq.hdl, vcq.id, (enum utofu_armw_op)ops[i], 1,
                              good.stadd, 0, 0, NULL), UTOFU_ERR_INVALID_OP);
    }
    finish(&vcq, &good);
}

CONF_TEST("3.7.10.1", poll_arguments, 1,
          "the polling functions have no flags, and need a place for the "
          "result")
{
    struct conf_vcq         vcq;
    struct call             good;
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    unsigned                bit;

    conf_vcq_create(&vcq, 0, 0);
    good = good_call(&vcq);
    for (bit = 0; bit < 64; bit++) {
        CONF_CODE(utofu_poll_tcq(vcq.hdl, 1UL << bit, &cbdata),
                  UTOFU_ERR_INVALID_FLAGS);
        CONF_CODE(utofu_poll_mrq(vcq.hdl, 1UL << bit, &notice),
                  UTOFU_ERR_INVALID_FLAGS);
    }
    CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, NULL), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_poll_mrq(vcq.hdl, 0, NULL), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_num_unread_tcq(vcq.hdl, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_num_unread_mrq(vcq.hdl, NULL),
              UTOFU_ERR_INVALID_POINTER);
    finish(&vcq, &good);
}
