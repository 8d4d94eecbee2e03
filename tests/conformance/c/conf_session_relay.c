/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_session_relay.c - data that travels through session-mode VCQs of several
 * processes: in series, to branches, joined, in a pipeline (2.2.8).
 */
#include "harness.h"

#include <inttypes.h>
#include <unistd.h>

#define SESSION UTOFU_VCQ_FLAG_SESSION_MODE
#define SPS(_n) UTOFU_ONESIDED_FLAG_SPS(_n)
#define ALL     (CONF_TCQ | CONF_LMRQ | CONF_RMRQ)

struct node {
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
};

/* Ranks first .. last have session-mode VCQs. */
static void node_open(struct node *node, int first, int last,
                      enum conf_kind kind, size_t size)
{
    if (!conf_is_emulator() &&
        !(conf_caps()->flags & UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE)) {
        conf_skip("no session mode here");
    }
    conf_vcq_open(&node->vcq, 0, ((conf_rank >= first) && (conf_rank <= last)) ?
                                         SESSION : 0);
    conf_mem_alloc(&node->mem, kind, size);
    memset(node->mem.addr, 0xcc, size);
    conf_reg_all(&node->vcq, node->mem.addr, size, node->stadds);
}

static void node_close(struct node *node)
{
    conf_barrier();
    conf_dereg(&node->vcq, node->stadds[conf_rank]);
    conf_vcq_close(&node->vcq);
    conf_mem_free(&node->mem);
}

/* The same piece of the buffer of this rank goes to the buffer of another. */
static void pass(struct node *node, int to, size_t at, size_t length,
                 uint64_t edata, unsigned long flags, void *cbdata)
{
    CONF_POST(node->vcq.hdl,
              utofu_put(node->vcq.hdl, node->vcq.peer[to],
                        node->stadds[conf_rank] + at, node->stadds[to] + at,
                        length, edata, flags, cbdata));
}

/* Notices of several peers come in any order. */
struct want {
    int type, peer, edata;
};

static void expect_all(struct node *node, struct want *wants, size_t num)
{
    struct utofu_mrq_notice n;
    size_t                  i, left;

    for (left = num; left > 0; left--) {
        CONF_OK(CONF_WAIT_MRQ(&node->vcq, &n));
        for (i = 0; i < num; i++) {
            if ((wants[i].type == n.notice_type) &&
                (node->vcq.peer[wants[i].peer] == n.vcq_id) &&
                ((uint64_t)wants[i].edata == n.edata)) {
                wants[i].type = -1;
                break;
            }
        }
        CONF_CHECK(i < num, "a notice of type %d, EDATA %" PRIu64 ", VCQ ID 0x%"
                   PRIx64 " was not expected", n.notice_type, n.edata, n.vcq_id);
    }
}

static void expect_data(struct node *node, int from, size_t at, size_t length,
                        unsigned seed, uint64_t edata)
{
    struct utofu_mrq_notice notice;

    CONF_EXPECT_MRQ(&node->vcq, UTOFU_MRQ_TYPE_RMT_PUT, node->vcq.peer[from],
                    edata, &notice);
    CONF_CHECK(notice.rmt_stadd == node->stadds[conf_rank] + at + length,
               "rmt_stadd");
    CONF_CHECK_FILL(node->mem.addr + at, length, seed, "what was relayed");
}

/* Figure 2.11: rank 0 to 3 through 1 and 2, which do not run meanwhile if
 * asked for. */
static void series(enum conf_kind kind, size_t size, bool stopped)
{
    struct node node;
    int         round, next = conf_rank + 1;

    node_open(&node, 1, 2, kind, size);
    for (round = 0; round < 4; round++) {
        if ((conf_rank == 1) || (conf_rank == 2)) {
            pass(&node, next, 0, size, conf_rank, (conf_rank == 1) ?
                 ALL | SPS(1) : ALL, CONF_PTR(round));
        }
        if (conf_rank == 0) {
            conf_fill(node.mem.addr, size, round + 1);
        }
        conf_barrier();
        if (conf_rank == 0) {
            if (stopped) {
                conf_stop(1);
                conf_stop(2);
            }
            pass(&node, 1, 0, size, 0, ALL | SPS(1), CONF_PTR(round));
            CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(round));
            CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_LCL_PUT, node.vcq.peer[1],
                            0, NULL);
        }
        if (conf_rank == 3) {
            expect_data(&node, 2, 0, size, round + 1, 2);
        }
        if ((conf_rank == 1) || (conf_rank == 2)) {
            if (stopped) {
                conf_barrier();
            }
            struct want wants[] = {
                {UTOFU_MRQ_TYPE_RMT_PUT, conf_rank - 1, conf_rank - 1},
                {UTOFU_MRQ_TYPE_LCL_PUT, next, conf_rank},
            };
            CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(round));
            expect_all(&node, wants, 2);
            CONF_CHECK_FILL(node.mem.addr, size, round + 1, "at a relay");
        } else if (stopped) {
            /* rank 3 has its data before rank 0 lets the others go on */
            if (conf_rank == 3) {
                CONF_OK(utofu_put_piggyback8(node.vcq.hdl, node.vcq.peer[0], 1,
                                             node.stadds[0], 8, 33, CONF_RMRQ,
                                             NULL));
            } else {
                CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_RMT_PUT,
                                node.vcq.peer[3], 33, NULL);
                conf_continue(1);
                conf_continue(2);
            }
            conf_barrier();
        }
        conf_barrier();
        CONF_EXPECT_QUIET(&node.vcq);
        conf_barrier();
    }
    node_close(&node);
}

CONF_TEST("2.2.8", relay_series_private, 4,
          "a put goes through two relays to a fourth process, each sending on "
          "what it received, with all notices of each put (private memory)")
{
    series(CONF_MEM_MALLOC, 5000, false);
}

CONF_TEST("2.2.8", relay_series_shared, 4,
          "a put goes through two relays to a fourth process, each sending on "
          "what it received, with all notices of each put (shared memory)")
{
    series(CONF_MEM_MEMFD, 5000, false);
}

CONF_TEST("2.2.8", relay_series_large, 4,
          "a megabyte and a bit goes through two relays to a fourth process")
{
    series(CONF_MEM_ANON, 1048583, false);
}

CONF_TEST("2.2.8", relay_series_word, 4,
          "eight bytes go through two relays to a fourth process")
{
    series(CONF_MEM_MALLOC, 8, false);
}

CONF_TEST("2.2.8", relay_stopped_private, 4,
          "the relays take no part: they may be stopped (private memory)")
{
    series(CONF_MEM_MALLOC, 5000, true);
}

CONF_TEST("2.2.8", relay_stopped_shared, 4,
          "the relays take no part: they may be stopped (shared memory)")
{
    series(CONF_MEM_MEMFD, 100000, true);
}

CONF_TEST("2.2.8.2", relay_branches, 7,
          "one put with SPS 2 to a relay goes to two relays and from there to "
          "four processes, by a tree")
{
    enum { SIZE = 3000 };
    struct node node;
    int         round, k, left = 2 * conf_rank + 1, parent = (conf_rank > 0) ? (conf_rank - 1) / 2 : 0;

    node_open(&node, 0, 2, CONF_MEM_MALLOC, SIZE);
    for (round = 0; round < 3; round++) {
        for (k = 0; (k < 2) && (conf_rank <= 2); k++) {
            pass(&node, left + k, 0, SIZE, conf_rank, ALL |
                 ((conf_rank == 0) ? SPS(2) : 0), CONF_PTR(k));
        }
        conf_barrier();
        struct want wants[3] = {
            {UTOFU_MRQ_TYPE_RMT_PUT, parent, parent},
            {UTOFU_MRQ_TYPE_LCL_PUT, left, conf_rank},
            {UTOFU_MRQ_TYPE_LCL_PUT, left + 1, conf_rank},
        };
        if (conf_rank == 0) {
            wants[0].peer  = 6;
            wants[0].edata = 66;
        } else if (conf_rank == 6) { /* a leaf begins, and ends */
            wants[1].peer  = 0;
            wants[1].edata = 66;
            conf_fill(node.mem.addr, SIZE, round + 50);
            pass(&node, 0, 0, SIZE, 66, ALL | SPS(2), CONF_PTR(0));
        }
        for (k = 0; k < ((conf_rank <= 2) ? 2 : (conf_rank == 6) ? 1 : 0); k++) {
            CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(k));
        }
        expect_all(&node, wants, (conf_rank <= 2) ? 3 : (conf_rank == 6) ? 2 : 1);
        CONF_CHECK_FILL(node.mem.addr, SIZE, round + 50, "what was relayed");
        conf_barrier();
        CONF_EXPECT_QUIET(&node.vcq);
        conf_barrier();
    }
    node_close(&node);
}

CONF_TEST("2.2.8.3", relay_joins, 5,
          "with two NOPs before its put a relay sends when three puts with SPS 1 "
          "have come, in whatever order, and not before; it sends the data of "
          "all three")
{
    enum { PIECE = 100 };
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct node node;
    int         round, k;

    node_open(&node, 3, 3, CONF_MEM_MALLOC, 3 * PIECE);
    for (round = 0; round < 6; round++) {
        if (conf_rank == 3) {
            CONF_OK(utofu_nop(node.vcq.hdl, CONF_TCQ, CONF_PTR(1)));
            CONF_OK(utofu_nop(node.vcq.hdl, CONF_TCQ, CONF_PTR(2)));
            pass(&node, 4, 0, 3 * PIECE, round, ALL, CONF_PTR(3));
        } else if (conf_rank < 3) {
            conf_fill(node.mem.addr + PIECE * conf_rank, PIECE,
                      10 * round + conf_rank);
        }
        for (k = 0; k < 3; k++) {
            conf_barrier();
            if (conf_rank == 4) {
                CONF_EXPECT_QUIET(&node.vcq);
            }
            conf_barrier();
            if (conf_rank == orders[round][k]) {
                pass(&node, 3, PIECE * conf_rank, PIECE, k, CONF_LMRQ | SPS(1),
                     NULL);
                CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_LCL_PUT,
                                node.vcq.peer[3], k, NULL);
            }
            if (conf_rank == 3) {
                CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(k + 1));
            }
        }
        if (conf_rank == 3) {
            CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_LCL_PUT, node.vcq.peer[4],
                            round, NULL);
        } else if (conf_rank == 4) {
            CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_RMT_PUT, node.vcq.peer[3],
                            round, NULL);
            for (k = 0; k < 3; k++) {
                CONF_CHECK_FILL(node.mem.addr + PIECE * k, PIECE, 10 * round + k,
                                "a joined piece");
            }
        }
        conf_barrier();
        CONF_EXPECT_QUIET(&node.vcq);
    }
    node_close(&node);
}

static void pipeline(enum conf_kind kind, size_t piece, unsigned pieces)
{
    struct node node;
    unsigned    i;

    node_open(&node, 1, 2, kind, piece * pieces);
    for (i = 0; (i < pieces) && ((conf_rank == 1) || (conf_rank == 2)); i++) {
        pass(&node, conf_rank + 1, i * piece, piece, i % 256,
             CONF_TCQ | CONF_RMRQ | ((conf_rank == 1) ? SPS(1) : 0),
             CONF_PTR(i + 1));
    }
    conf_barrier();
    for (i = 0; i < pieces; i++) {
        if (conf_rank == 0) {
            conf_fill(node.mem.addr + i * piece, piece, i + 1);
            pass(&node, 1, i * piece, piece, i % 256, CONF_RMRQ | SPS(1), NULL);
        } else {
            expect_data(&node, conf_rank - 1, i * piece, piece, i + 1, i % 256);
        }
        if ((conf_rank == 1) || (conf_rank == 2)) {
            CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(i + 1));
        }
    }
    CONF_EXPECT_QUIET(&node.vcq);
    node_close(&node);
}

CONF_TEST("2.2.8.4", relay_pipeline_private, 4,
          "a buffer in pieces, each with SPS 1, arrives piece by piece, in "
          "order and whole, through two relays (private memory)")
{
    pipeline(CONF_MEM_MALLOC, 10, 3);
    pipeline(CONF_MEM_MALLOC, 1000, 300);
    pipeline(CONF_MEM_MALLOC, 30000, 40);
}

CONF_TEST("2.2.8.4", relay_pipeline_shared, 4,
          "a buffer in pieces, each with SPS 1, arrives piece by piece, in "
          "order and whole, through two relays (shared memory)")
{
    pipeline(CONF_MEM_MEMFD, 10, 3);
    pipeline(CONF_MEM_MEMFD, 1000, 300);
    pipeline(CONF_MEM_MEMFD, 30000, 40);
}

/* A chain of hops between session-mode VCQs of ranks 1 and, if two, 2, started
 * by one put of rank 0 and ended by a put to rank 0. */
static void bounce(bool two, unsigned hops)
{
    struct node node;
    unsigned    i;
    int         to;

    node_open(&node, 1, 2, CONF_MEM_MALLOC, 64);
    /* rank 1 posts the hops 0, 2, 4..., rank 2 the hops 1, 3, 5... */
    for (i = 0; i <= hops; i++) {
        if (conf_rank == ((two && (i % 2)) ? 2 : 1)) {
            to = (i == hops) ? 0 : (two && (i % 2 == 0)) ? 2 : 1;
            CONF_OK(utofu_put(node.vcq.hdl, node.vcq.peer[to],
                              node.stadds[conf_rank], node.stadds[to], 64,
                              i % 256, (i == hops) ? CONF_RMRQ : SPS(1), NULL));
        }
    }
    conf_barrier();
    if (conf_rank == 0) {
        conf_fill(node.mem.addr, 64, 5);
        pass(&node, 1, 0, 64, 1, SPS(1) | CONF_TCQ, CONF_PTR(1));
        CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(1));
        CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_RMT_PUT,
                        node.vcq.peer[(two && (hops % 2)) ? 2 : 1], hops % 256,
                        NULL);
        CONF_CHECK_FILL(node.mem.addr, 64, 5, "what comes back");
    }
    conf_barrier();
    CONF_EXPECT_QUIET(&node.vcq);
    node_close(&node);
}

CONF_TEST("2.2.8.1", relay_to_itself, 3,
          "a session-mode VCQ may put to itself: a chain of 2000 such puts runs "
          "to its end by one put")
{
    bounce(false, 1);
    bounce(false, 2000);
}

CONF_TEST("2.2.8.1", relay_to_and_fro, 3,
          "two session-mode VCQs put to each other 3001 times by one put, "
          "although their processes do nothing")
{
    bounce(true, 2);
    bounce(true, 3001);
}

CONF_TEST("2.2.8.3", relay_of_many_senders, 6,
          "puts of four processes at once with SPS 1 start exactly as many "
          "descriptors of one relay, each once, in order")
{
    enum { PER = 400, MOST = 4 * PER };
    struct utofu_mrq_notice notice;
    struct node             node;
    unsigned                i;

    node_open(&node, 4, 4, CONF_MEM_MALLOC, 8 * 8);
    for (i = 0; (i < MOST) && (conf_rank == 4); i++) {
        CONF_OK(utofu_put(node.vcq.hdl, node.vcq.peer[5], node.stadds[4],
                          node.stadds[5], 8, i % 256, CONF_RMRQ | CONF_TCQ,
                          CONF_PTR(i + 1)));
    }
    conf_barrier();
    for (i = 0; (i < PER) && (conf_rank < 4); i++) {
        pass(&node, 4, 8 * conf_rank, 8, 0, SPS(1), NULL);
    }
    for (i = 0; (i < MOST) && (conf_rank >= 4); i++) {
        if (conf_rank == 4) {
            CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(i + 1));
        } else {
            CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_RMT_PUT, node.vcq.peer[4],
                            i % 256, &notice);
        }
    }
    conf_barrier();
    CONF_EXPECT_QUIET(&node.vcq);
    node_close(&node);
}

CONF_TEST("2.2.8.1", relay_posts_late, 4,
          "relays that post while puts come, before and after them, send on "
          "every put once and in order")
{
    enum { NUM = 1500 };
    struct node node;
    unsigned    i, done = 0;

    node_open(&node, 1, 2, CONF_MEM_MALLOC, 8);
    for (i = 0; i < NUM; i++) {
        if (conf_rank == 3) {
            CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_RMT_PUT, node.vcq.peer[2],
                            i % 256, NULL);
            continue;
        }
        if ((conf_rank == 0) && (i == NUM / 2)) {
            usleep(20000); /* the relays get ahead, too */
        }
        pass(&node, conf_rank + 1, 0, 8, i % 256, CONF_TCQ | CONF_RMRQ |
             ((conf_rank < 2) ? SPS(1) : 0), CONF_PTR(i + 1));
        if ((conf_rank > 0) && (i % 100 > 90)) {
            usleep(100);
        }
        /* never more than 300 unread: CONF_POST would lose entries */
        for (; done + ((i == NUM - 1) ? 0 : 300) <= i; done++) {
            CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(done + 1));
        }
    }
    for (i = 0; (i < NUM) && ((conf_rank == 1) || (conf_rank == 2)); i++) {
        CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_RMT_PUT,
                        node.vcq.peer[conf_rank - 1], i % 256, NULL);
    }
    conf_barrier();
    CONF_EXPECT_QUIET(&node.vcq);
    node_close(&node);
}

CONF_TEST("2.2.8.1", relay_to_bad_address, 3,
          "a relayed put that fails is reported to the relay, as one that it "
          "posted in free mode; the descriptors after it are still started")
{
    struct node node;
    int         i;

    conf_need_exact_bounds();
    node_open(&node, 1, 1, CONF_MEM_MALLOC, 256);
    for (i = 0; (i < 4) && (conf_rank == 1); i++) {
        CONF_OK(utofu_put(node.vcq.hdl, node.vcq.peer[2], node.stadds[1],
                          node.stadds[2] + ((i == 1) ? 252 : 0), 8, i,
                          CONF_LMRQ | CONF_TCQ, CONF_PTR(i)));
    }
    conf_barrier();
    if (conf_rank == 0) {
        pass(&node, 1, 0, 8, 0, SPS(4), NULL);
    }
    for (i = 0; (i < 4) && (conf_rank == 1); i++) {
        CONF_EXPECT_TCQ(&node.vcq, CONF_PTR(i));
        if (i == 1) {
            CONF_EXPECT_MRQ_ERROR(&node.vcq, UTOFU_MRQ_TYPE_LCL_PUT,
                                  node.vcq.peer[2], 1, UTOFU_ERR_MRQ_RMT_LENGTH);
        } else {
            CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_LCL_PUT, node.vcq.peer[2],
                            i, NULL);
        }
    }
    conf_barrier();
    CONF_EXPECT_QUIET(&node.vcq);
    node_close(&node);
}

CONF_TEST("2.2.8.1", relay_killed, 4,
          "when a relay is killed puts to it end in MRQ_PEER and nothing comes "
          "to the process behind it; when that one is killed the relay has the "
          "error")
{
    struct utofu_mrq_notice notice;
    struct node             node;
    double                  end;
    int                     rc;

    node_open(&node, 1, 2, CONF_MEM_MALLOC, 64);
    if (conf_rank == 1) { /* to a process that is going to die: rank 2 */
        pass(&node, 2, 0, 8, 21, CONF_LMRQ | SPS(1), NULL);
        pass(&node, 3, 0, 8, 22, CONF_LMRQ | CONF_RMRQ, NULL);
    } else if (conf_rank == 2) {
        pass(&node, 3, 0, 8, 23, CONF_RMRQ, NULL);
        conf_barrier();
        conf_barrier();
        CONF_FAIL("rank 2 is alive");
    }
    conf_barrier();
    if (conf_rank == 0) {
        conf_kill(2);
        end = conf_now() + 5;
        do { /* until its death is noticed */
            pass(&node, 2, 0, 8, 1, CONF_LMRQ | SPS(1), NULL);
            rc = CONF_CODE(CONF_WAIT_MRQ(&node.vcq, &notice), UTOFU_SUCCESS,
                           UTOFU_ERR_MRQ_PEER);
            CONF_CHECK(conf_now() < end, "no MRQ_PEER for 5 s");
        } while (rc == UTOFU_SUCCESS);
        pass(&node, 1, 0, 8, 2, CONF_LMRQ | SPS(2), NULL);
        CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_LCL_PUT, node.vcq.peer[1], 2,
                        NULL);
    } else if (conf_rank == 1) {
        for (rc = 0; rc < 2; rc++) { /* in any order */
            int code = CONF_CODE(CONF_WAIT_MRQ(&node.vcq, &notice),
                                 UTOFU_SUCCESS, UTOFU_ERR_MRQ_PEER);

            conf_check_notice(__FILE__, __LINE__, &notice, UTOFU_MRQ_TYPE_LCL_PUT,
                              node.vcq.peer[code ? 2 : 3], code ? 21 : 22);
        }
    } else {
        CONF_EXPECT_MRQ(&node.vcq, UTOFU_MRQ_TYPE_RMT_PUT, node.vcq.peer[1], 22,
                        NULL);
    }
    conf_barrier();
    CONF_EXPECT_QUIET(&node.vcq);
    node_close(&node);
}

CONF_TEST("2.2.8.1", failed_relayed_put_starts_nothing, 3,
          "a put of a session-mode VCQ that fails at the next session-mode VCQ starts nothing there, and is an error "
          "of its sender")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[3];
    uint64_t        words[32] = {0};
    void           *cbdata;

    conf_need_exact_bounds();
    conf_vcq_open(&vcq, 0, conf_rank ? UTOFU_VCQ_FLAG_SESSION_MODE : 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    if (conf_rank == 1) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[2], stadds[1], stadds[2] + sizeof(words) - 4, 8, 5,
                          UTOFU_ONESIDED_FLAG_SPS(1), NULL));
    } else if (conf_rank == 2) {
        CONF_OK(utofu_nop(vcq.hdl, CONF_TCQ, CONF_PTR(1)));
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], 8, 0, UTOFU_ONESIDED_FLAG_SPS(1), NULL));
    } else if (conf_rank == 1) {
        CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[2], 5, UTOFU_ERR_MRQ_RMT_LENGTH);
    }
    conf_barrier();
    if (conf_rank == 2) {
        usleep(20000);
        CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    }
    CONF_EXPECT_QUIET(&vcq);
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
