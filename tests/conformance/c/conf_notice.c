/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_notice.c - which notices an operation gives, what they say, and in
 * which order they come (2.2.10, 3.7, 3.7.4, 3.7.6).
 */
#include "harness.h"

#include <inttypes.h>

enum op { OP_PUT, OP_PIGGYBACK, OP_PIGGYBACK8, OP_GET, OP_ARMW4, OP_ARMW8,
          OP_CSWAP4, OP_CSWAP8, OP_NOP, OP_NUM };

static const char *const op_names[OP_NUM] = {
    "put", "put_piggyback", "put_piggyback8", "get", "armw4", "armw8", "cswap4",
    "cswap8", "nop",
};

struct pair {
    struct conf_vcq vcq;
    uint64_t        words[64];
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
};

static void pair_open(struct pair *pair, unsigned long flags)
{
    memset(pair->words, 0, sizeof(pair->words));
    conf_vcq_open(&pair->vcq, 0, flags);
    conf_reg_all(&pair->vcq, pair->words, sizeof(pair->words), pair->stadds);
}

static void pair_close(struct pair *pair)
{
    conf_barrier();
    conf_dereg(&pair->vcq, pair->stadds[conf_rank]);
    conf_vcq_close(&pair->vcq);
}

/* 24 bytes (piggyback8: 8) from word 0 here to word 8 there; ARMW on word 8;
 * get: from word 8 there to word 0 here. */
static int post(struct pair *pair, enum op op, utofu_vcq_id_t to,
                utofu_stadd_t rmt_words, uint64_t edata, unsigned long flags,
                void *cbdata)
{
    utofu_vcq_hdl_t hdl = pair->vcq.hdl;
    utofu_stadd_t   lcl = pair->stadds[conf_rank], rmt = rmt_words + 64;

    switch (op) {
    case OP_PUT:
        return utofu_put(hdl, to, lcl, rmt, 24, edata, flags, cbdata);
    case OP_PIGGYBACK:
        return utofu_put_piggyback(hdl, to, pair->words, rmt, 24, edata, flags,
                                   cbdata);
    case OP_PIGGYBACK8:
        return utofu_put_piggyback8(hdl, to, 5, rmt, 8, edata, flags, cbdata);
    case OP_GET:
        return utofu_get(hdl, to, lcl, rmt, 24, edata, flags, cbdata);
    case OP_ARMW4:
        return utofu_armw4(hdl, to, UTOFU_ARMW_OP_ADD, 1, rmt, edata, flags,
                           cbdata);
    case OP_ARMW8:
        return utofu_armw8(hdl, to, UTOFU_ARMW_OP_ADD, 1, rmt, edata, flags,
                           cbdata);
    case OP_CSWAP4:
        return utofu_cswap4(hdl, to, 0, 1, rmt, edata, flags, cbdata);
    case OP_CSWAP8:
        return utofu_cswap8(hdl, to, 0, 1, rmt, edata, flags, cbdata);
    case OP_NOP:
        return utofu_nop(hdl, flags, cbdata);
    case OP_NUM:
        break;
    }
    return UTOFU_ERR_FATAL;
}

static int local_type(enum op op)
{
    return (op <= OP_PIGGYBACK8) ? UTOFU_MRQ_TYPE_LCL_PUT :
           (op == OP_GET)        ? UTOFU_MRQ_TYPE_LCL_GET :
                                   UTOFU_MRQ_TYPE_LCL_ARMW;
}

static int remote_type(enum op op)
{
    return local_type(op) + 1;
}

/* The addresses and the value in a notice of post() towards rank 1. */
static void check_fields(const struct utofu_mrq_notice *notice, enum op op,
                         const utofu_stadd_t *stadds, uint64_t old)
{
    bool          local = (notice->notice_type % 2) == 0;
    utofu_stadd_t rmt   = stadds[1] + 64 + ((op == OP_PIGGYBACK8) ? 8 :
                                            (op <= OP_GET)        ? 24 : 0);

    if (op == OP_GET) {
        CONF_CHECK(notice->lcl_stadd == stadds[0] + 24, "%s: lcl_stadd 0x%"
                   PRIx64 ", expected 0x%" PRIx64, op_names[op],
                   notice->lcl_stadd, stadds[0] + 24);
    }
    if ((op != OP_GET) || !local) {
        CONF_CHECK(notice->rmt_stadd == rmt, "%s: rmt_stadd 0x%" PRIx64
                   ", expected 0x%" PRIx64, op_names[op], notice->rmt_stadd,
                   rmt);
    }
    if (local && (op >= OP_ARMW4)) {
        CONF_CHECK(notice->rmt_value == old, "%s: rmt_value %" PRIu64
                   ", expected %" PRIu64, op_names[op], notice->rmt_value, old);
    }
}

CONF_TEST("3.7.6.1", every_combination, 2,
          "each of the TCQ, local MRQ and remote MRQ notices comes exactly when "
          "it was asked for, for every operation, with every field as "
          "specified; NOP gives none in an MRQ")
{
    struct pair             pair;
    struct utofu_mrq_notice notice;
    unsigned long           flags;
    uint64_t                old;
    unsigned                op, mask, edata;

    pair_open(&pair, 0);
    for (op = 0; op < OP_NUM; op++) {
        for (mask = 0; mask < 8; mask++) {
            flags = ((mask & 1) ? CONF_TCQ : 0) |
                    ((mask & 2) ? CONF_LMRQ : 0) |
                    ((mask & 4) ? CONF_RMRQ : 0);
            edata = op * 8 + mask;
            /* Compare-and-swap finds 0 or not, in turn. */
            old           = UINT64_C(0x7fffffff00000000) * (mask % 2) + mask / 2;
            pair.words[8] = old;
            old           = (op == OP_ARMW4 || op == OP_CSWAP4) ?
                                    (uint32_t)old : old;
            conf_barrier();
            if (conf_rank == 0) {
                CONF_OK(post(&pair, op, pair.vcq.peer[1], pair.stadds[1], edata,
                             flags, CONF_PTR(edata + 1000)));
                if (mask & 1) {
                    CONF_EXPECT_TCQ(&pair.vcq, CONF_PTR(edata + 1000));
                }
                if ((mask & 2) && (op != OP_NOP)) {
                    CONF_EXPECT_MRQ(&pair.vcq, local_type(op),
                                    pair.vcq.peer[1], edata, &notice);
                    check_fields(&notice, op, pair.stadds, old);
                }
            } else if ((mask & 4) && (op != OP_NOP)) {
                CONF_EXPECT_MRQ(&pair.vcq, remote_type(op), pair.vcq.peer[0],
                                edata, &notice);
                check_fields(&notice, op, pair.stadds, old);
            }
            conf_expect_quiet(__FILE__, __LINE__, &pair.vcq, 2);
            conf_barrier();
            conf_expect_quiet(__FILE__, __LINE__, &pair.vcq, 0);
        }
    }
    pair_close(&pair);
}

CONF_TEST("3.7.6.1", peer_without_path, 2,
          "the VCQ ID in a notice is the one of utofu_query_vcq_id, whatever "
          "path the operation took and whatever the VCQ ID given to it held")
{
    struct pair    pair;
    utofu_vcq_id_t id;
    uint8_t        path[3];
    unsigned       n, op;

    pair_open(&pair, 0);
    for (n = 0; n < 12; n++) {
        path[0] = n / 6;
        path[1] = n / 2 % 3;
        path[2] = n % 2;
        id      = pair.vcq.peer[1];
        CONF_OK(utofu_set_vcq_id_path(&id, path));
        for (op = 0; op < OP_NOP; op++) {
            if (conf_rank == 0) {
                CONF_OK(post(&pair, op, id, pair.stadds[1], n,
                             CONF_LMRQ | CONF_RMRQ, NULL));
                CONF_EXPECT_MRQ(&pair.vcq, local_type(op), pair.vcq.peer[1], n,
                                NULL);
            } else {
                CONF_EXPECT_MRQ(&pair.vcq, remote_type(op), pair.vcq.peer[0], n,
                                NULL);
            }
        }
    }
    pair_close(&pair);
}

CONF_TEST("3.7.6.1", every_edata, 2,
          "EDATA of 0 to 255 arrives in local and remote notices of every "
          "operation; 256 and more are INVALID_EDATA")
{
    struct pair pair;
    uint64_t    edata;
    unsigned    op;

    pair_open(&pair, 0);
    for (op = 0; op < OP_NOP; op++) {
        for (edata = 0; edata < 256; edata++) {
            if (conf_rank == 0) {
                CONF_POST(pair.vcq.hdl,
                          post(&pair, op, pair.vcq.peer[1], pair.stadds[1],
                               edata, CONF_LMRQ | CONF_RMRQ, NULL));
                CONF_EXPECT_MRQ(&pair.vcq, local_type(op), pair.vcq.peer[1],
                                edata, NULL);
            } else {
                CONF_EXPECT_MRQ(&pair.vcq, remote_type(op), pair.vcq.peer[0],
                                edata, NULL);
            }
        }
        CONF_CODE(post(&pair, op, pair.vcq.peer[0], pair.stadds[0], 256, 0,
                       NULL), UTOFU_ERR_INVALID_EDATA);
        CONF_CODE(post(&pair, op, pair.vcq.peer[0], pair.stadds[0], UINT64_MAX,
                       CONF_TCQ, NULL), UTOFU_ERR_INVALID_EDATA);
    }
    CONF_EXPECT_QUIET(&pair.vcq);
    pair_close(&pair);
}

CONF_TEST("2.2.10", tcq_order, 2,
          "TCQ entries come in the order of the posts, whatever the mixture of "
          "operations, sizes and peers, with the cbdata of each")
{
    enum { NUM = 2000 };
    struct pair           pair;
    static unsigned char  big[100000];
    utofu_stadd_t         stadds[2];
    int                   i, done = 0, op;

    pair_open(&pair, 0);
    conf_reg_all(&pair.vcq, big, sizeof(big), stadds);
    for (i = 0; (i < NUM) && (conf_rank == 0); i++) {
        op = (i * 7 + i / 5) % (OP_NUM + 1);
        if (op == OP_NUM) {
            CONF_OK(utofu_put(pair.vcq.hdl, pair.vcq.peer[1], stadds[0],
                              stadds[1], sizeof(big), 0, CONF_TCQ,
                              CONF_PTR(i + 1)));
        } else {
            CONF_OK(post(&pair, op, pair.vcq.peer[i % 2], pair.stadds[i % 2], 0,
                         CONF_TCQ, CONF_PTR(i + 1)));
        }
        for (; (i - done >= 40) || ((i == NUM - 1) && (done < NUM)); done++) {
            CONF_EXPECT_TCQ(&pair.vcq, CONF_PTR(done + 1));
        }
    }
    CONF_EXPECT_QUIET(&pair.vcq);
    conf_barrier();
    conf_dereg(&pair.vcq, stadds[conf_rank]);
    pair_close(&pair);
}

CONF_TEST("3.7.4.1", cbdata_of_noticed_only, 1,
          "operations without TCQ_NOTICE give no TCQ entry and do not disturb "
          "the cbdata of the others")
{
    struct pair pair;
    int         i, next = 0;

    pair_open(&pair, 0);
    for (i = 0; i < 999; i++) {
        CONF_OK(post(&pair, i % OP_NUM, pair.vcq.id, pair.stadds[0], 0,
                     (i % 3 == 0) ? CONF_TCQ : 0, CONF_PTR(i + 1)));
        if (i % 30 == 29) {
            for (; next <= i; next += 3) {
                CONF_EXPECT_TCQ(&pair.vcq, CONF_PTR(next + 1));
            }
        }
    }
    for (; next < 999; next += 3) {
        CONF_EXPECT_TCQ(&pair.vcq, CONF_PTR(next + 1));
    }
    CONF_EXPECT_QUIET(&pair.vcq);
    pair_close(&pair);
}

CONF_TEST("2.2.10", mrq_order, 3,
          "local and remote notices come in the order of the posts for each "
          "remote VCQ, whatever the operations and sizes")
{
    enum { NUM = 1500, BURST = 20 };
    struct pair             pair;
    static unsigned char    big[70000];
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[3];
    unsigned                next[3] = {0, 0, 0}, received = 0;
    int                     i, to, op, done = 0;

    pair_open(&pair, 0);
    conf_reg_all(&pair.vcq, big, sizeof(big), stadds);
    if (conf_rank == 0) {
        for (i = 0; i < NUM; i++) {
            to = 1 + (i * 5 / 3) % 2;
            op = (i * 11 + i / 7) % (OP_NOP + 1);
            if (op == OP_NOP) {
                CONF_POST(pair.vcq.hdl,
                          utofu_put(pair.vcq.hdl, pair.vcq.peer[to], stadds[0],
                                    stadds[to], sizeof(big),
                                    next[to]++ % 256, CONF_LMRQ | CONF_RMRQ,
                                    NULL));
            } else {
                CONF_POST(pair.vcq.hdl,
                          post(&pair, op, pair.vcq.peer[to], pair.stadds[to],
                               next[to]++ % 256, CONF_LMRQ | CONF_RMRQ, NULL));
            }
            if ((i % BURST == BURST - 1) || (i == NUM - 1)) {
                static unsigned seen[3] = {0, 0, 0};
                for (; done <= i; done++) {
                    CONF_OK(CONF_WAIT_MRQ(&pair.vcq, &notice));
                    to = (notice.vcq_id == pair.vcq.peer[1]) ? 1 : 2;
                    CONF_CHECK(notice.vcq_id == pair.vcq.peer[to], "peer");
                    CONF_CHECK(notice.edata == seen[to] % 256, "local notice "
                               "%u of rank %d has EDATA %" PRIu64, seen[to], to,
                               notice.edata);
                    seen[to]++;
                }
            }
        }
    }
    conf_barrier();
    if (conf_rank != 0) {
        while (utofu_poll_mrq(pair.vcq.hdl, 0, &notice) == UTOFU_SUCCESS) {
            CONF_CHECK((notice.vcq_id == pair.vcq.peer[0]) &&
                               (notice.notice_type % 2 == 1), "peer or type");
            CONF_CHECK(notice.edata == received % 256, "remote notice %u has "
                       "EDATA %" PRIu64, received, notice.edata);
            received++;
        }
        CONF_CHECK(received > NUM / 4, "%u notices", received);
    }
    CONF_EXPECT_QUIET(&pair.vcq);
    conf_barrier();
    conf_dereg(&pair.vcq, stadds[conf_rank]);
    pair_close(&pair);
}

CONF_TEST("2.2.10", local_notice_before_answer, 2,
          "a process that put finds its own local notice before the remote "
          "notice of a put that its peer made in answer")
{
    enum { ROUNDS = 3000 };
    struct pair        pair;
    volatile uint64_t *word = &pair.words[20];
    unsigned           spins = 0, round;

    pair_open(&pair, 0);
    for (round = 1; round <= ROUNDS; round++) {
        if (conf_rank == 0) {
            CONF_POST(pair.vcq.hdl,
                      utofu_put_piggyback8(pair.vcq.hdl, pair.vcq.peer[1],
                                           round, pair.stadds[1] + 160, 8,
                                           round % 256,
                                           CONF_LMRQ | CONF_STRONG, NULL));
            CONF_EXPECT_MRQ(&pair.vcq, UTOFU_MRQ_TYPE_LCL_PUT, pair.vcq.peer[1],
                            round % 256, NULL);
            CONF_EXPECT_MRQ(&pair.vcq, UTOFU_MRQ_TYPE_RMT_PUT, pair.vcq.peer[1],
                            (round + 1) % 256, NULL);
            continue;
        }
        /* The answer comes as soon as the memory changes. */
        while (*word != round) {
            conf_relax(&spins);
        }
        CONF_POST(pair.vcq.hdl,
                  utofu_put_piggyback8(pair.vcq.hdl, pair.vcq.peer[0], round,
                                       pair.stadds[0] + 168, 8,
                                       (round + 1) % 256, CONF_RMRQ, NULL));
    }
    pair_close(&pair);
}

CONF_TEST("3.7.4", not_found_leaves_outputs, 1,
          "NOT_FOUND leaves cbdata and notice as they were")
{
    struct pair             pair;
    struct utofu_mrq_notice notice, before;
    void                   *cbdata = CONF_PTR(0x1234);

    memset(&notice, 0x77, sizeof(notice));
    before = notice;
    pair_open(&pair, 0);
    CONF_CODE(utofu_poll_tcq(pair.vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    CONF_CODE(utofu_poll_mrq(pair.vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    CONF_CHECK(cbdata == CONF_PTR(0x1234), "cbdata was changed");
    CONF_CHECK(memcmp(&notice, &before, sizeof(notice)) == 0,
               "the notice was changed");
    pair_close(&pair);
}

CONF_TEST("3.7", busy_until_tcq_is_read, 1,
          "posts without reading the TCQ end in BUSY after a bounded number, "
          "with or without notices; what was posted is reported in order; "
          "after utofu_poll_tcq posts go on")
{
    enum { MOST = 1 << 20 };
    struct pair pair;
    void       *cbdata;
    size_t      count;
    long        i, n;
    int         rc, noticed;

    for (noticed = 0; noticed < 2; noticed++) {
        pair_open(&pair, 0);
        rc = UTOFU_SUCCESS;
        for (n = 0; n < MOST; n++) {
            rc = CONF_CODE(post(&pair, (n % 2) ? OP_NOP : OP_PUT, pair.vcq.id,
                                pair.stadds[0], 0, noticed ? CONF_TCQ : 0,
                                CONF_PTR(n + 1)),
                           UTOFU_SUCCESS, UTOFU_ERR_BUSY);
            if (rc == UTOFU_ERR_BUSY) {
                break;
            }
        }
        CONF_CHECK(rc == UTOFU_ERR_BUSY, "%ld posts and never BUSY", n);
        CONF_CHECK(n >= 16, "BUSY after %ld posts", n);
        /* It stays so, and no refused post is reported later. */
        for (i = 0; i < 10; i++) {
            CONF_CODE(post(&pair, OP_NOP, pair.vcq.id, pair.stadds[0], 0,
                           CONF_TCQ, CONF_PTR(-1)), UTOFU_ERR_BUSY);
            CONF_CODE(post(&pair, OP_ARMW8, pair.vcq.id, pair.stadds[0], 0,
                           CONF_TCQ | CONF_LMRQ, CONF_PTR(-1)), UTOFU_ERR_BUSY);
        }
        CONF_OK(utofu_query_num_unread_tcq(pair.vcq.hdl, &count));
        CONF_CHECK(count == (size_t)n, "%zu unread after %ld posts", count, n);
        for (i = 0; (i < n) && noticed; i++) {
            CONF_EXPECT_TCQ(&pair.vcq, CONF_PTR(i + 1));
        }
        CONF_CODE(utofu_poll_tcq(pair.vcq.hdl, 0, &cbdata),
                  UTOFU_ERR_NOT_FOUND);
        CONF_CHECK(pair.words[8] == 0, "a refused ARMW was done");
        while (count != 0) { /* some may still be under way */
            CONF_CODE(utofu_poll_tcq(pair.vcq.hdl, 0, &cbdata),
                      UTOFU_ERR_NOT_FOUND);
            CONF_OK(utofu_query_num_unread_tcq(pair.vcq.hdl, &count));
        }
        for (i = 0; i < n / 2; i++) {
            CONF_OK(post(&pair, OP_NOP, pair.vcq.id, pair.stadds[0], 0, 0,
                         NULL));
        }
        CONF_EXPECT_QUIET(&pair.vcq);
        pair_close(&pair);
    }
}

CONF_TEST("3.7", tcq_frees_what_was_read, 1,
          "reading a TCQ entry makes room for its operation and those before "
          "it; those without a notice that come after it keep theirs until "
          "polling has passed them")
{
    struct conf_vcq vcq;
    void           *cbdata;
    size_t          n = 0, more = 0, count;
    int             i;

    conf_vcq_create(&vcq, 0, 0);
    for (i = 0; i < 3; i++) {
        CONF_OK(utofu_nop(vcq.hdl, (i == 1) ? CONF_TCQ : 0, CONF_PTR(7)));
        n++;
    }
    while (CONF_CODE(utofu_nop(vcq.hdl, 0, NULL), UTOFU_SUCCESS,
                     UTOFU_ERR_BUSY) == UTOFU_SUCCESS) {
        n++;
    }
    CONF_EXPECT_TCQ(&vcq, CONF_PTR(7));
    CONF_OK(utofu_query_num_unread_tcq(vcq.hdl, &count));
    CONF_CHECK(count == n - 2, "%zu unread of %zu when two were read", count, n);
    while (CONF_CODE(utofu_nop(vcq.hdl, 0, NULL), UTOFU_SUCCESS,
                     UTOFU_ERR_BUSY) == UTOFU_SUCCESS) {
        more++;
    }
    CONF_CHECK(more == 2, "%zu more when two were read", more);
    do {
        CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        CONF_OK(utofu_query_num_unread_tcq(vcq.hdl, &count));
    } while (count != 0); /* some may still be under way */
    for (i = 0; i < (int)n; i++) {
        CONF_OK(utofu_nop(vcq.hdl, 0, NULL));
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7.5.1", unread_tcq_per_cq, 1,
          "utofu_query_num_unread_tcq counts posted operations whose TCQ entry "
          "was not read, for all VCQs of the CQ together")
{
    struct conf_vcq a, b;
    size_t          count;
    void           *cbdata;
    int             i;

    a.tni = conf_tni(0);
    CONF_OK(utofu_create_vcq_with_cmp_id(a.tni, 0, 0, &a.hdl));
    CONF_OK(utofu_create_vcq_with_cmp_id(a.tni, 1, 0, &b.hdl));
    CONF_OK(utofu_query_num_unread_tcq(a.hdl, &count));
    CONF_CHECK(count == 0, "%zu unread in a new VCQ", count);
    for (i = 0; i < 3; i++) {
        CONF_OK(utofu_nop(a.hdl, CONF_TCQ, NULL));
    }
    CONF_OK(utofu_nop(b.hdl, 0, NULL));
    CONF_OK(utofu_nop(b.hdl, CONF_TCQ, NULL));
    CONF_OK(utofu_query_num_unread_tcq(a.hdl, &count));
    CONF_CHECK(count == 5, "%zu unread of the CQ, expected 5", count);
    CONF_OK(utofu_query_num_unread_tcq(b.hdl, &count));
    CONF_CHECK(count == 5, "%zu unread of the CQ, expected 5", count);
    for (i = 0; i < 3; i++) {
        CONF_EXPECT_TCQ(&a, NULL);
    }
    CONF_EXPECT_TCQ(&b, NULL);
    CONF_CODE(utofu_poll_tcq(a.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    CONF_CODE(utofu_poll_tcq(b.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    CONF_OK(utofu_query_num_unread_tcq(a.hdl, &count));
    CONF_CHECK(count == 0, "%zu unread after all were read", count);
    conf_vcq_close(&a);
    conf_vcq_close(&b);
}

CONF_TEST("3.7", unread_mrq, 2,
          "utofu_query_num_unread_mrq (in the library, not in the guide) "
          "counts notices that wait in the MRQ")
{
    struct pair pair;
    size_t      count;
    int         i;

    pair_open(&pair, 0);
    for (i = 0; (i < 10) && (conf_rank == 0); i++) {
        CONF_OK(post(&pair, OP_PUT, pair.vcq.peer[1], pair.stadds[1], i,
                     CONF_RMRQ | ((i == 9) ? CONF_LMRQ : 0), NULL));
    }
    if (conf_rank == 0) {
        CONF_EXPECT_MRQ(&pair.vcq, UTOFU_MRQ_TYPE_LCL_PUT, pair.vcq.peer[1], 9,
                        NULL);
    }
    conf_barrier();
    CONF_OK(utofu_query_num_unread_mrq(pair.vcq.hdl, &count));
    CONF_CHECK(count == (conf_rank ? 10 : 0), "%zu unread notices", count);
    for (i = 0; (i < 10) && (conf_rank == 1); i++) {
        CONF_EXPECT_MRQ(&pair.vcq, UTOFU_MRQ_TYPE_RMT_PUT, pair.vcq.peer[0], i,
                        NULL);
        CONF_OK(utofu_query_num_unread_mrq(pair.vcq.hdl, &count));
        CONF_CHECK(count == (size_t)(9 - i), "%zu unread notices", count);
    }
    pair_close(&pair);
}

CONF_TEST("3.7", unread_mrq_local, 2,
          "utofu_query_num_unread_mrq counts local and remote notices that wait, and each once")
{
    enum { LOCAL = 3, REMOTE = 2 };
    struct utofu_mrq_notice notice;
    struct pair             pair;
    size_t                  count = 0;
    double                  until;
    int                     i;

    pair_open(&pair, 0);
    for (i = 0; i < (conf_rank ? REMOTE : LOCAL); i++) {
        CONF_OK(post(&pair, OP_PUT, pair.vcq.peer[1 - conf_rank], pair.stadds[1 - conf_rank], i,
                     conf_rank ? CONF_RMRQ : CONF_LMRQ | CONF_TCQ, &pair));
    }
    if (conf_rank == 0) {
        until = conf_now() + CONF_WAIT;
        do {
            CONF_OK(utofu_query_num_unread_mrq(pair.vcq.hdl, &count));
            CONF_CHECK(count <= LOCAL + REMOTE, "%zu unread notices of %d", count, LOCAL + REMOTE);
        } while ((count < LOCAL + REMOTE) && (conf_now() < until));
        for (i = LOCAL + REMOTE; i > 0; i--) {
            CONF_OK(utofu_query_num_unread_mrq(pair.vcq.hdl, &count));
            CONF_CHECK(count == (size_t)i, "%zu unread notices, expected %d", count, i);
            CONF_OK(utofu_poll_mrq(pair.vcq.hdl, 0, &notice));
        }
        CONF_OK(utofu_query_num_unread_mrq(pair.vcq.hdl, &count));
        CONF_CHECK(count == 0, "%zu unread notices after all were read", count);
        for (i = 0; i < LOCAL; i++) {
            CONF_EXPECT_TCQ(&pair.vcq, &pair);
        }
    }
    pair_close(&pair);
}

CONF_TEST("3.7", mrq_room_again, 2,
          "an MRQ of UTOFU_NUM_MRQ_ENTRIES = 2Ki takes any number of local and remote notices, as long as it is polled "
          "until NOT_FOUND before there are more than that")
{
    enum { ROUNDS = 8, NUM = 1800 };
    struct pair             pair;
    struct utofu_mrq_notice notice;
    unsigned                round, i;

    CONF_CHECK(setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1) == 0, "setenv");
    pair_open(&pair, 0);
    for (round = 0; round < ROUNDS; round++) {
        conf_barrier();
        for (i = 0; (i < NUM) && (conf_rank == 0); i++) {
            CONF_POST(pair.vcq.hdl, post(&pair, OP_PIGGYBACK8, pair.vcq.peer[1], pair.stadds[1], (round + i) % 256,
                                         CONF_LMRQ | CONF_RMRQ, NULL));
        }
        conf_barrier(); /* nobody polls before all is posted */
        for (i = 0; i < NUM; i++) {
            CONF_EXPECT_MRQ(&pair.vcq, conf_rank ? UTOFU_MRQ_TYPE_RMT_PUT : UTOFU_MRQ_TYPE_LCL_PUT,
                            pair.vcq.peer[1 - conf_rank], (round + i) % 256, NULL);
        }
        CONF_CODE(utofu_poll_mrq(pair.vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    }
    pair_close(&pair);
}

CONF_TEST("3.7.6.1", data_before_remote_notice, 2,
          "when the remote notice of a put is found its data is there")
{
    enum { ROUNDS = 4000, SIZE = 20000 };
    static const size_t         sizes[] = {8, 64, 1000, 4096, SIZE};
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC};
    struct pair   pair;
    struct conf_mem mem;
    utofu_stadd_t stadds[2];
    size_t        size, k;
    int           i, peer = 1 - conf_rank;

    pair_open(&pair, 0);
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mem, kinds[k], SIZE);
        conf_reg_all(&pair.vcq, mem.addr, SIZE, stadds);
        for (i = 1; i <= ROUNDS; i++) {
            size = sizes[i % CONF_LEN(sizes)];
            if (conf_rank == (i & 1)) {
                memset(mem.addr, i, size);
                CONF_POST(pair.vcq.hdl,
                          utofu_put(pair.vcq.hdl, pair.vcq.peer[peer],
                                    stadds[conf_rank], stadds[peer], size,
                                    i % 256, CONF_RMRQ, NULL));
            } else {
                CONF_EXPECT_MRQ(&pair.vcq, UTOFU_MRQ_TYPE_RMT_PUT,
                                pair.vcq.peer[peer], i % 256, NULL);
                CONF_CHECK_BYTES(mem.addr, size, i, conf_kind_name(kinds[k]));
            }
        }
        conf_barrier();
        conf_dereg(&pair.vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
    }
    pair_close(&pair);
}

CONF_TEST("3.7.6.1", remote_notice_of_get, 2,
          "after the remote notice of a get its source may be overwritten")
{
    enum { ROUNDS = 2000, SIZE = 12000 };
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC};
    struct pair     pair;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];
    size_t          k;
    int             i, got;

    pair_open(&pair, 0);
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mem, kinds[k], SIZE);
        memset(mem.addr, 1, SIZE);
        conf_reg_all(&pair.vcq, mem.addr, SIZE, stadds);
        for (i = 1; i <= ROUNDS; i++) {
            if (conf_rank == 0) {
                CONF_POST(pair.vcq.hdl,
                          utofu_get(pair.vcq.hdl, pair.vcq.peer[1], stadds[0],
                                    stadds[1], SIZE, i % 256,
                                    CONF_RMRQ | CONF_LMRQ, NULL));
                /* The target was told when it was read (2.2.4): its answer may be here before the data. */
                for (got = 0; got != 3;) {
                    struct utofu_mrq_notice n;

                    CONF_CODE(CONF_WAIT_MRQ(&pair.vcq, &n), UTOFU_SUCCESS);
                    CONF_CHECK((n.notice_type == UTOFU_MRQ_TYPE_LCL_GET) || (n.notice_type == UTOFU_MRQ_TYPE_RMT_PUT),
                               "notice_type is %d", (int)n.notice_type);
                    CONF_CHECK((n.vcq_id == pair.vcq.peer[1]) && (n.edata == (uint64_t)i % 256), "of another operation");
                    got |= (n.notice_type == UTOFU_MRQ_TYPE_LCL_GET) ? 1 : 2; /* the next get when the source has changed */
                    if (n.notice_type == UTOFU_MRQ_TYPE_LCL_GET) {
                        CONF_CHECK_BYTES(mem.addr, SIZE, i, conf_kind_name(kinds[k]));
                    }
                }
            } else {
                CONF_EXPECT_MRQ(&pair.vcq, UTOFU_MRQ_TYPE_RMT_GET,
                                pair.vcq.peer[0], i % 256, NULL);
                memset(mem.addr, i + 1, SIZE);
                CONF_POST(pair.vcq.hdl,
                          utofu_put_piggyback8(pair.vcq.hdl, pair.vcq.peer[0],
                                               0, pair.stadds[0], 8, i % 256,
                                               CONF_RMRQ, NULL));
            }
        }
        conf_barrier();
        conf_dereg(&pair.vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
    }
    pair_close(&pair);
}
