/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_session.c - session-mode VCQs: which puts start how many descriptors
 * (2.2.8, 2.2.8.1, 3.3.4.1, 3.7.9.3), and what they may post.  Chains of processes: conf_session_relay.c.
 */
#include "harness.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define SESSION UTOFU_VCQ_FLAG_SESSION_MODE
#define SPS(_n) UTOFU_ONESIDED_FLAG_SPS(_n)
#define RELAY   1 /* the rank whose VCQ is a session-mode one */

struct side {
    struct conf_vcq vcq;
    uint64_t        words[512];
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
};

static void session_needed(void)
{
    if (!conf_is_emulator() &&
        !(conf_caps()->flags & UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE)) {
        conf_skip("no session mode here");
    }
}

static void side_open(struct side *side, unsigned long relay_flags)
{
    session_needed();
    memset(side->words, 0, sizeof(side->words));
    conf_vcq_open(&side->vcq, 0, (conf_rank == RELAY) ? relay_flags : 0);
    conf_reg_all(&side->vcq, side->words, sizeof(side->words), side->stadds);
    conf_barrier();
}

static void side_close(struct side *side)
{
    conf_barrier();
    conf_dereg(&side->vcq, side->stadds[conf_rank]);
    conf_vcq_close(&side->vcq);
}

/* From rank 0: a put of one word to the relay, done there when this returns. */
static void trigger(struct side *side, unsigned long flags)
{
    CONF_POST(side->vcq.hdl,
              utofu_put(side->vcq.hdl, side->vcq.peer[RELAY], side->stadds[0],
                        side->stadds[RELAY], 8, 200, CONF_LMRQ | flags, NULL));
    CONF_EXPECT_MRQ(&side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, side->vcq.peer[RELAY],
                    200, NULL);
}

/* At the relay: NOPs numbered from first on */
static void post_nops(struct side *side, unsigned first, unsigned num)
{
    for (; num > 0; num--, first++) {
        CONF_OK(utofu_nop(side->vcq.hdl, CONF_TCQ, CONF_PTR(first + 1)));
    }
}

/* Those were started, and no others; msec 0 is for the middle of a loop. */
static void expect_started(struct side *side, unsigned first, unsigned num,
                           unsigned msec)
{
    for (; num > 0; num--, first++) {
        CONF_EXPECT_TCQ(&side->vcq, CONF_PTR(first + 1));
    }
    conf_expect_quiet(__FILE__, __LINE__, &side->vcq, msec);
}

CONF_TEST("3.3.4.1", session_vcqs, 1,
          "session-mode VCQs can be made on every TNI whose features name them, "
          "also THREAD_SAFE, but not together with EXCLUSIVE; they have a VCQ "
          "ID as others do")
{
    struct utofu_onesided_caps *caps;
    struct conf_vcq             vcq;
    utofu_vcq_hdl_t             hdl, free_mode[20];
    utofu_vcq_id_t              id;
    utofu_tni_id_t              tni;
    utofu_cq_id_t               cq;
    uint16_t                    extra;
    uint8_t                     coords[6], mine[6];
    size_t                      i;
    int                         rc, round;

    session_needed();
    for (i = 0; i < conf_num_tnis(); i++) {
        CONF_OK(utofu_query_onesided_caps(conf_tni(i), &caps));
        CONF_CHECK(caps->flags & UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE,
                   "table 6.4 has SESSION_MODE, the caps of TNI %zu have not", i);
        for (round = 0; round < 10; round++) {
            conf_vcq_create(&vcq, i, SESSION |
                            ((round % 2) ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0));
            CONF_OK(utofu_query_vcq_info(vcq.id, coords, &tni, &cq, &extra));
            CONF_OK(utofu_query_my_coords(mine));
            CONF_CHECK((tni == conf_tni(i)) && !memcmp(mine, coords, 6),
                       "TNI or coordinates in the VCQ ID");
            conf_vcq_close(&vcq);
        }
        rc = utofu_create_vcq(conf_tni(i), SESSION | UTOFU_VCQ_FLAG_EXCLUSIVE,
                              &hdl);
        CONF_CHECK((rc == UTOFU_ERR_INVALID_FLAGS) ||
                           (rc == UTOFU_ERR_NOT_SUPPORTED) ||
                           (rc == UTOFU_ERR_INVALID_ARG) ||
                           (rc == UTOFU_ERR_NOT_AVAILABLE),
                   "SESSION_MODE with EXCLUSIVE: %s", conf_code_name(rc));
        CONF_CODE(utofu_create_vcq_with_cmp_id(conf_tni(i), 0, SESSION, &hdl),
                  UTOFU_ERR_INVALID_FLAGS, UTOFU_ERR_NOT_SUPPORTED,
                  UTOFU_ERR_INVALID_ARG, UTOFU_ERR_NOT_AVAILABLE);
        /* a free-mode VCQ is never on the CQ of a session-mode one */
        conf_vcq_create(&vcq, i, SESSION);
        CONF_OK(utofu_query_vcq_info(vcq.id, coords, &tni, &cq, &extra));
        for (round = 0; round < 20; round++) {
            utofu_cq_id_t other;

            if (utofu_create_vcq(conf_tni(i), 0, &free_mode[round]) !=
                UTOFU_SUCCESS) {
                break;
            }
            CONF_OK(utofu_query_vcq_id(free_mode[round], &id));
            CONF_OK(utofu_query_vcq_info(id, coords, &tni, &other, &extra));
            CONF_CHECK(cq != other, "a free-mode and a session-mode VCQ share "
                       "CQ %d", cq);
        }
        CONF_CHECK(round > 0, "no free-mode VCQ on TNI %zu", i);
        while (round > 0) {
            CONF_OK(utofu_free_vcq(free_mode[--round]));
        }
        conf_vcq_close(&vcq);
    }
}

CONF_TEST("2.2.8.1", session_waits, 2,
          "descriptors posted to a session-mode VCQ take TOQ entries and start "
          "nothing, until a put with SPS comes")
{
    struct side side;
    uint64_t    desc[8];
    size_t      size, count;

    side_open(&side, SESSION);
    side.words[1] = 11;
    conf_barrier();
    if (conf_rank == RELAY) {
        CONF_OK(utofu_nop(side.vcq.hdl, CONF_TCQ, CONF_PTR(1)));
        CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[0], side.stadds[1] + 8,
                          side.stadds[0] + 80, 8, 7,
                          CONF_TCQ | CONF_LMRQ | CONF_RMRQ, CONF_PTR(2)));
        CONF_OK(utofu_prepare_put(side.vcq.hdl, side.vcq.peer[0],
                                  side.stadds[1] + 8, side.stadds[0] + 88, 8, 8,
                                  CONF_TCQ | CONF_LMRQ | CONF_RMRQ, desc,
                                  &size));
        CONF_OK(utofu_post_toq(side.vcq.hdl, desc, size, CONF_PTR(3)));
        CONF_OK(utofu_post_toq(side.vcq.hdl, NULL, 0, NULL));
        CONF_OK(utofu_query_num_unread_tcq(side.vcq.hdl, &count));
        CONF_CHECK(count == 3, "%zu TOQ entries are in use, not 3", count);
    }
    conf_expect_quiet(__FILE__, __LINE__, &side.vcq, 100);
    conf_barrier();
    CONF_CHECK(side.words[10] == 0, "a put has started");
    if (conf_rank == 0) {
        /* not trigger(): what it starts comes to the same MRQ */
        CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[RELAY], side.stadds[0],
                          side.stadds[RELAY], 8, 0, SPS(3), NULL));
    } else {
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(2));
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(3));
    }
    CONF_EXPECT_MRQ(&side.vcq, conf_rank ? UTOFU_MRQ_TYPE_LCL_PUT :
                    UTOFU_MRQ_TYPE_RMT_PUT, side.vcq.peer[1 - conf_rank], 7,
                    NULL);
    CONF_EXPECT_MRQ(&side.vcq, conf_rank ? UTOFU_MRQ_TYPE_LCL_PUT :
                    UTOFU_MRQ_TYPE_RMT_PUT, side.vcq.peer[1 - conf_rank], 8,
                    NULL);
    CONF_CHECK((conf_rank == RELAY) || ((side.words[10] == 11) &&
                                        (side.words[11] == 11)), "data");
    CONF_EXPECT_QUIET(&side.vcq);
    side_close(&side);
}

CONF_TEST("2.2.8.1", session_every_sps, 2,
          "a put starts as many descriptors as its SPS says, 0 to 15, in the "
          "order in which they were posted; without SPS it starts none")
{
    struct side side;
    unsigned    sps, round, next = 0;

    side_open(&side, SESSION);
    if (conf_rank == RELAY) {
        post_nops(&side, 0, 300);
    }
    for (round = 0; round < 2; round++) {
        for (sps = 0; sps <= 16; sps++) {
            conf_barrier();
            if (conf_rank == 0) {
                trigger(&side, (sps == 16) ? 0 : SPS(sps));
            }
            conf_barrier();
            if (conf_rank == RELAY) {
                expect_started(&side, next, sps % 16, 5);
            }
            next += sps % 16;
        }
    }
    side_close(&side);
}

CONF_TEST("2.2.8.1", session_steps_of_two, 3,
          "of five descriptors a put with SPS 3 of one process starts the "
          "first three, a put with SPS 2 of another the other two")
{
    struct side side;
    int         i, from;

    side_open(&side, SESSION);
    for (i = 0; (i < 5) && (conf_rank == RELAY); i++) {
        CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[(i % 2) ? 2 : 0],
                          side.stadds[1], side.stadds[(i % 2) ? 2 : 0] + 8 * i,
                          8, i, CONF_TCQ | CONF_RMRQ, CONF_PTR(i + 1)));
    }
    for (from = 0; from <= 2; from += 2) {
        conf_barrier();
        if (conf_rank == from) {
            side.words[0] = 40 + from;
            CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[RELAY],
                              side.stadds[from], side.stadds[RELAY], 8, 9,
                              from ? SPS(2) : SPS(3), NULL));
        }
        if (conf_rank == RELAY) {
            expect_started(&side, from ? 3 : 0, from ? 2 : 3, 20);
        }
        for (i = from ? 3 : 0; (i < (from ? 5 : 3)) && (conf_rank != RELAY); i++) {
            if (conf_rank == ((i % 2) ? 2 : 0)) {
                CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_RMT_PUT,
                                side.vcq.peer[RELAY], i, NULL);
                CONF_CHECK(side.words[i] == 40u + from, "what was received is "
                           "what is sent on: %" PRIu64, side.words[i]);
            }
        }
        conf_barrier();
        CONF_EXPECT_QUIET(&side.vcq);
    }
    side_close(&side);
}

CONF_TEST("2.2.8.1", session_missing, 2,
          "what a put finds missing is started when it is posted, one by one "
          "or by utofu_post_toq, so many and no more; that holds over several "
          "puts")
{
    struct side side;
    uint64_t    descs[8 * 4];
    size_t      size, used = 0;
    int         i;

    side_open(&side, SESSION);
    if (conf_rank == RELAY) {
        post_nops(&side, 0, 2);
    }
    conf_barrier();
    if (conf_rank == 0) {
        trigger(&side, SPS(5)); /* 3 are missing */
        trigger(&side, SPS(0));
        trigger(&side, SPS(2)); /* 5 */
        trigger(&side, SPS(1)); /* 6 */
    }
    conf_barrier();
    if (conf_rank == RELAY) {
        expect_started(&side, 0, 2, 20);
        post_nops(&side, 2, 1); /* 5 */
        expect_started(&side, 2, 1, 5);
        for (i = 0; i < 3; i++) { /* 2 */
            CONF_OK(utofu_prepare_nop(side.vcq.hdl, CONF_TCQ,
                                      (char *)descs + used, &size));
            used += size;
        }
        CONF_OK(utofu_post_toq(side.vcq.hdl, descs, used, CONF_PTR(77)));
        for (i = 0; i < 3; i++) {
            CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(77));
        }
        CONF_EXPECT_QUIET(&side.vcq);
        post_nops(&side, 6, 5); /* two of them at once */
        expect_started(&side, 6, 2, 30);
    }
    conf_barrier();
    if (conf_rank == 0) {
        trigger(&side, SPS(1));
    }
    conf_barrier();
    if (conf_rank == RELAY) {
        expect_started(&side, 8, 1, 20);
    }
    side_close(&side);
}

CONF_TEST("2.2.8.1", session_missing_2000, 2,
          "as many as 2000 descriptors may be missing")
{
    enum { MOST = 2000 };
    struct side side;
    unsigned    i;

    side_open(&side, SESSION);
    if (conf_rank == 0) {
        for (i = 0; i < MOST; i += 15) {
            trigger(&side, SPS((MOST - i < 15) ? MOST - i : 15));
        }
    }
    conf_barrier();
    for (i = 0; (i < MOST) && (conf_rank == RELAY); i += 50) {
        post_nops(&side, i, 50);
        expect_started(&side, i, 50, 0);
    }
    if (conf_rank == RELAY) {
        post_nops(&side, MOST, 1);
        expect_started(&side, 0, 0, 50);
    }
    side_close(&side);
}

CONF_TEST("2.2.8.1", session_toq_of_2000, 2,
          "2000 descriptors can wait in the TOQ of a session-mode VCQ; it is "
          "BUSY when it is full, until some were started and the TCQ was read")
{
    enum { MOST = 2000 };
    struct side side;
    unsigned    i, n = MOST;

    side_open(&side, SESSION);
    if (conf_rank == RELAY) {
        post_nops(&side, 0, MOST);
        while (CONF_CODE(utofu_nop(side.vcq.hdl, CONF_TCQ, CONF_PTR(n + 1)),
                         UTOFU_SUCCESS, UTOFU_ERR_BUSY) == UTOFU_SUCCESS) {
            CONF_CHECK(++n < (1 << 20), "the TOQ is never full");
        }
        CONF_EXPECT_QUIET(&side.vcq);
    }
    conf_barrier();
    if (conf_rank == 0) {
        trigger(&side, SPS(3));
    }
    conf_barrier();
    if (conf_rank == RELAY) {
        expect_started(&side, 0, 3, 10);
        post_nops(&side, n, 3);
        CONF_CODE(utofu_nop(side.vcq.hdl, 0, NULL), UTOFU_ERR_BUSY);
    }
    conf_barrier();
    if (conf_rank == 0) {
        for (i = 3; i < MOST; i += 15) {
            trigger(&side, SPS(15));
        }
    }
    conf_barrier();
    if (conf_rank == RELAY) {
        expect_started(&side, 3, 15 * ((MOST - 3 + 14) / 15), 0);
    }
    side_close(&side);
}

CONF_TEST("3.7.9.3", session_sps_to_free_mode, 2,
          "a free-mode VCQ ignores the SPS of puts that it gets, and starts "
          "what is posted to it at once")
{
    struct side side;
    int         i;

    side_open(&side, 0);
    if (conf_rank == 0) {
        for (i = 0; i < 20; i++) {
            side.words[0] = i + 1;
            trigger(&side, SPS(i % 16));
        }
    }
    conf_barrier();
    if (conf_rank == RELAY) {
        CONF_CHECK(side.words[0] == 20, "the puts did not arrive");
        CONF_EXPECT_QUIET(&side.vcq);
        post_nops(&side, 0, 5);
        expect_started(&side, 0, 5, 5);
    }
    side_close(&side);
}

CONF_TEST("2.2.8.1", session_failed_put, 2,
          "a put that fails at the session-mode VCQ, for its remote STADD or "
          "length, or on its way there, starts nothing; the next good one does")
{
    struct side   side;
    utofu_stadd_t gone, lcl, rmt;
    void         *cbdata;
    int           i, n;

    struct utofu_mrq_notice notice;

    conf_need_exact_bounds();
    side_open(&side, SESSION);
    gone = conf_reg(&side.vcq, &side.words[1], 64, 0);
    conf_dereg(&side.vcq, gone);
    conf_exchange(&gone, sizeof(gone), &side.words[100]);
    if (conf_rank == RELAY) {
        post_nops(&side, 0, 3);
    }
    conf_barrier();
    for (n = 0; (n < 8) && (conf_rank == 0); n++) { /* each without and with gap */
        i = n % 4;
        rmt = (i == 0) ? side.words[101] : /* not registered */
              (i == 1) ? side.stadds[1] + sizeof(side.words) - 4 :
                         side.stadds[1];
        lcl = (i == 2) ? gone : /* not registered either */
              (i == 3) ? side.stadds[0] + sizeof(side.words) - 4 :
                         side.stadds[0];
        if (n < 4) {
            CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[RELAY], lcl, rmt, 8, i,
                              SPS(3) | CONF_LMRQ, CONF_PTR(i)));
        } else {
            CONF_OK(utofu_put_gap(side.vcq.hdl, side.vcq.peer[RELAY], lcl, rmt,
                                  8, i, SPS(3) | CONF_LMRQ, 1920, 8,
                                  CONF_PTR(i)));
        }
        if (i < 2) {
            CONF_CODE(CONF_WAIT_MRQ(&side.vcq, &notice),
                      UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_LENGTH,
                      UTOFU_ERR_MRQ_RMT_MEMORY);
        } else {
            CONF_CODE(CONF_WAIT_TCQ(&side.vcq, &cbdata), UTOFU_ERR_TCQ_STADD,
                      UTOFU_ERR_TCQ_LENGTH, UTOFU_ERR_TCQ_MEMORY);
        }
    }
    conf_barrier();
    CONF_EXPECT_QUIET(&side.vcq);
    conf_barrier();
    if (conf_rank == 0) {
        trigger(&side, SPS(2));
    }
    conf_barrier();
    if (conf_rank == RELAY) {
        expect_started(&side, 0, 2, 20);
    }
    side_close(&side);
}

CONF_TEST("2.2.8.1", session_other_operations, 2,
          "piggyback puts, gets and ARMWs without SPS reach a session-mode VCQ "
          "as any other, with their notices, and start nothing")
{
    struct side side;
    int         i;

    side_open(&side, SESSION);
    side.words[0] = 5;
    if (conf_rank == RELAY) {
        post_nops(&side, 0, 20);
    }
    conf_barrier();
    for (i = 0; (i < 4) && (conf_rank == 0); i++) {
        utofu_vcq_hdl_t     hdl   = side.vcq.hdl;
        utofu_vcq_id_t      id    = side.vcq.peer[1];
        const unsigned long flags = CONF_LMRQ | CONF_RMRQ;

        CONF_OK((i == 0) ? utofu_put_piggyback8(hdl, id, 6, side.stadds[1] + 8,
                                                8, i, flags, NULL) :
                (i == 1) ? utofu_get(hdl, id, side.stadds[0] + 16,
                                     side.stadds[1], 8, i, flags, NULL) :
                (i == 2) ? utofu_armw8(hdl, id, UTOFU_ARMW_OP_ADD, 3,
                                       side.stadds[1] + 24, i, flags, NULL) :
                           utofu_put(hdl, id, side.stadds[0],
                                     side.stadds[1] + 32, 8, i, flags, NULL));
        CONF_EXPECT_MRQ(&side.vcq, (i == 1) ? UTOFU_MRQ_TYPE_LCL_GET :
                        (i == 2) ? UTOFU_MRQ_TYPE_LCL_ARMW :
                                   UTOFU_MRQ_TYPE_LCL_PUT, id, i, NULL);
    }
    for (i = 0; (i < 4) && (conf_rank == RELAY); i++) {
        CONF_EXPECT_MRQ(&side.vcq, (i == 1) ? UTOFU_MRQ_TYPE_RMT_GET :
                        (i == 2) ? UTOFU_MRQ_TYPE_RMT_ARMW :
                                   UTOFU_MRQ_TYPE_RMT_PUT, side.vcq.peer[0], i,
                        NULL);
    }
    CONF_CHECK((conf_rank == 0) ? (side.words[2] == 5) :
               ((side.words[1] == 6) && (side.words[3] == 3) &&
                (side.words[4] == 5)), "data");
    CONF_EXPECT_QUIET(&side.vcq);
    side_close(&side);
}

CONF_TEST("3.7.9.3", session_prepared_sps, 2,
          "SPS in prepared puts, in puts with gap and in every block of puts "
          "with stride counts as in utofu_put")
{
    struct side side;
    uint64_t    desc[8 * 3];
    size_t      size;
    unsigned    i, next = 0, num;

    static const unsigned counts[] = {4, 7, 2, 3, 6, 5, 8};

    side_open(&side, SESSION);
    if (conf_rank == RELAY) {
        post_nops(&side, 0, 100);
    }
    for (i = 0; i < CONF_LEN(counts); i++) {
        utofu_vcq_hdl_t hdl = side.vcq.hdl;
        utofu_vcq_id_t  id  = side.vcq.peer[RELAY];

#define PUT hdl, id, side.stadds[0], side.stadds[1], 8
        conf_barrier();
        if (conf_rank == 0) {
            switch (i) {
            case 0:
                CONF_OK(utofu_prepare_put(PUT, 0, SPS(4), desc, &size));
                CONF_OK(utofu_post_toq(hdl, desc, size, NULL));
                break;
            case 1:
                CONF_OK(utofu_put_gap(PUT, 0, SPS(7), 1920, 8, NULL));
                break;
            case 2: /* two blocks with SPS 1 */
                CONF_OK(utofu_put_stride(PUT, 64, 2, 0, SPS(1), NULL));
                break;
            case 3:
                CONF_OK(utofu_put_stride_gap(PUT, 64, 3, 0, SPS(1), 1920, 0,
                                             NULL));
                break;
            case 4:
                CONF_OK(utofu_prepare_put_stride(PUT, 64, 3, 0, SPS(2), desc,
                                                 &size));
                CONF_OK(utofu_post_toq(hdl, desc, size, NULL));
                break;
            case 5:
                CONF_OK(utofu_prepare_put_gap(PUT, 0, SPS(5), 1920, 8, desc, &size));
                CONF_OK(utofu_post_toq(hdl, desc, size, NULL));
                break;
            default:
                CONF_OK(utofu_prepare_put_stride_gap(PUT, 64, 2, 0, SPS(4), 1920, 0, desc, &size));
                CONF_OK(utofu_post_toq(hdl, desc, size, NULL));
                break;
            }
        }
        num = counts[i];
        if (conf_rank == RELAY) {
            expect_started(&side, next, num, 10);
        }
        next += num;
    }
    side_close(&side);
}

CONF_TEST("3.3.1.3", session_vcq_freed, 2,
          "a session-mode VCQ can be freed with descriptors that never started, "
          "and with some missing; puts to it then end in MRQ_PEER")
{
    struct side side;
    int         round;

    for (round = 0; round < 6; round++) {
        side_open(&side, SESSION | ((round % 3 == 2) ? UTOFU_VCQ_FLAG_THREAD_SAFE :
                                                       0));
        if (conf_rank == RELAY) {
            post_nops(&side, 0, (round % 2) ? 5 : 1);
        }
        conf_barrier();
        if (conf_rank == 0) {
            trigger(&side, SPS(3));
        }
        conf_barrier();
        if (conf_rank == RELAY) {
            conf_dereg(&side.vcq, side.stadds[1]);
            conf_vcq_close(&side.vcq);
        }
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[1], side.stadds[0],
                              side.stadds[1], 8, 1, SPS(2), NULL));
            CONF_EXPECT_MRQ_ERROR(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT,
                                  side.vcq.peer[1], 1, UTOFU_ERR_MRQ_PEER);
            conf_dereg(&side.vcq, side.stadds[0]);
            conf_vcq_close(&side.vcq);
        }
        conf_barrier();
    }
}

/* --------------------------------------------- what a session-mode VCQ may post */

#define WAYS   8u
#define BLOCKS 3u
#define STRIDE 24u /* bytes: three words */

/* At the relay: the ways with gap and stride, then the same prepared */
static unsigned post_blocks(const struct side *side, unsigned way, void *cbdata)
{
    utofu_vcq_hdl_t hdl = side->vcq.hdl;
    utofu_vcq_id_t  to  = side->vcq.peer[0];
    utofu_stadd_t   lcl = side->stadds[RELAY] + 64, rmt = side->stadds[0] + 64;
    unsigned long   all = CONF_TCQ | CONF_LMRQ | CONF_RMRQ;
    uint64_t        desc[8 * BLOCKS];
    size_t          size = 0;

#define BLOCK hdl, to, lcl, rmt, 8
    switch (way) {
    case 0:
        CONF_OK(utofu_put(BLOCK, way, all, cbdata));
        break;
    case 1:
        CONF_OK(utofu_put_gap(BLOCK, way, all, 100, 8, cbdata));
        break;
    case 2:
        CONF_OK(utofu_put_stride(BLOCK, STRIDE, BLOCKS, way, all, cbdata));
        break;
    case 3:
        CONF_OK(utofu_put_stride_gap(BLOCK, STRIDE, BLOCKS, way, all, 1920, 255,
                                     cbdata));
        break;
    case 4:
        CONF_OK(utofu_prepare_put(BLOCK, way, all, desc, &size));
        break;
    case 5:
        CONF_OK(utofu_prepare_put_gap(BLOCK, way, all, 1, 1, desc, &size));
        break;
    case 6:
        CONF_OK(utofu_prepare_put_stride(BLOCK, STRIDE, BLOCKS, way, all, desc,
                                         &size));
        break;
    default:
        CONF_OK(utofu_prepare_put_stride_gap(BLOCK, STRIDE, BLOCKS, way, all,
                                             1920, 8, desc, &size));
        break;
    }
    if (size != 0) {
        CONF_OK(utofu_post_toq(hdl, desc, size, cbdata));
    }
    return (way % 4 < 2) ? 1 : BLOCKS;
}

CONF_TEST("2.2.8.1", session_strides, 2,
          "puts with gap and stride, prepared ones too, that are posted on a "
          "session-mode VCQ start block by block, each with its own notices")
{
    struct utofu_mrq_notice notice;
    struct side             side;
    unsigned                way, i, b, num;

    side_open(&side, SESSION);
    for (way = 0; way < WAYS; way++) {
        for (i = 0; i < CONF_LEN(side.words); i++) {
            side.words[i] = (conf_rank == RELAY) ? way * 1000 + i : 0;
        }
        conf_barrier();
        num = (way % 4 < 2) ? 1 : BLOCKS;
        if (conf_rank == RELAY) {
            num = post_blocks(&side, way, CONF_PTR(way + 1));
            conf_expect_quiet(__FILE__, __LINE__, &side.vcq, 5);
        }
        for (b = 0; b < num; b++) {
            utofu_stadd_t end = side.stadds[0] + 64 + b * STRIDE + 8;

            conf_barrier();
            if (conf_rank == 0) {
                CONF_OK(utofu_put(side.vcq.hdl, side.vcq.peer[RELAY],
                                  side.stadds[0], side.stadds[RELAY], 8, 0,
                                  SPS(1), NULL));
                CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_RMT_PUT,
                                side.vcq.peer[RELAY], way, &notice);
                for (i = 0; i < BLOCKS; i++) {
                    uint64_t want = (i <= b) ? way * 1000 + 8 + 3 * i : 0;

                    CONF_CHECK(side.words[8 + 3 * i] == want,
                               "way %u: block %u is %" PRIu64 " after block %u",
                               way, i, side.words[8 + 3 * i], b);
                }
            } else {
                CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(way + 1));
                CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT,
                                side.vcq.peer[0], way, &notice);
            }
            CONF_CHECK(notice.rmt_stadd == end, "way %u, block %u: rmt_stadd 0x%"
                       PRIx64 ", expected 0x%" PRIx64, way, b, notice.rmt_stadd,
                       end);
            conf_expect_quiet(__FILE__, __LINE__, &side.vcq, 1);
        }
    }
    side_close(&side);
}

/* --------------------------------------------------------- several threads */

#define POSTERS 2
#define POSTS   1500u /* of each poster */

struct crowd {
    struct side      side;
    _Atomic unsigned tcq, local;
};

static void *crowd_posts(void *arg)
{
    struct crowd   *c   = arg;
    utofu_vcq_hdl_t hdl = c->side.vcq.hdl;
    unsigned        i;
    int             rc;

    for (i = 0; i < POSTS; i++) {
        double end = conf_now() + CONF_WAIT;

        do {
            rc = (i % 3 == 0) ?
                         utofu_nop(hdl, CONF_TCQ, NULL) :
                         utofu_put(hdl, c->side.vcq.peer[2], c->side.stadds[RELAY],
                                   c->side.stadds[2], 8, 1,
                                   CONF_TCQ | CONF_LMRQ | CONF_RMRQ, NULL);
            if (rc == UTOFU_ERR_BUSY) {
                usleep(50);
            }
        } while ((rc == UTOFU_ERR_BUSY) && (conf_now() < end));
        CONF_CHECK(rc == UTOFU_SUCCESS, "post: %s", conf_code_name(rc));
    }
    return NULL;
}

static void *crowd_polls(void *arg)
{
    struct crowd           *c = arg;
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    double                  end = conf_now() + 20;

    while (((c->tcq < POSTERS * POSTS) || (c->local < POSTERS * POSTS / 3 * 2)) &&
           (conf_now() < end)) {
        c->tcq += CONF_CODE(utofu_poll_tcq(c->side.vcq.hdl, 0, &cbdata),
                            UTOFU_SUCCESS, UTOFU_ERR_NOT_FOUND) == UTOFU_SUCCESS;
        c->local += CONF_CODE(utofu_poll_mrq(c->side.vcq.hdl, 0, &notice),
                              UTOFU_SUCCESS, UTOFU_ERR_NOT_FOUND) == UTOFU_SUCCESS;
    }
    return NULL;
}

CONF_TEST("3.3.4.1", session_threads, 3,
          "several threads post and poll on one THREAD_SAFE session-mode VCQ "
          "while puts of two processes start what they post: all of it, once")
{
    static struct crowd     c;
    struct utofu_mrq_notice notice;
    pthread_t               threads[POSTERS + 1];
    unsigned                i, sent, got, half = POSTERS * POSTS / 2;
    void                   *cbdata;
    double                  end = conf_now() + 0.7;
    bool                    more[3];

    conf_timeout(60);
    side_open(&c.side, SESSION | UTOFU_VCQ_FLAG_THREAD_SAFE);
    do {
        c.tcq = c.local = 0;
        if (conf_rank == RELAY) {
            for (i = 0; i <= POSTERS; i++) {
                CONF_CHECK(pthread_create(&threads[i], NULL,
                                          (i < POSTERS) ? crowd_posts : crowd_polls,
                                          &c) == 0, "pthread_create");
            }
            for (i = 0; i <= POSTERS; i++) {
                pthread_join(threads[i], NULL);
            }
            CONF_CHECK((c.tcq == 2 * half) && (c.local == 2 * half / 3 * 2),
                       "%u entries of the TCQ and %u local notices", c.tcq, c.local);
        }
        for (sent = got = 0; (sent < half) && (conf_rank != RELAY); sent += i) {
            i = (half - sent < 7) ? half - sent : 7;
            CONF_POST(c.side.vcq.hdl,
                      utofu_put(c.side.vcq.hdl, c.side.vcq.peer[RELAY],
                                c.side.stadds[conf_rank], c.side.stadds[RELAY] + 64,
                                8, 0, SPS((unsigned long)i), NULL));
            CONF_CODE(utofu_poll_tcq(c.side.vcq.hdl, 0, &cbdata), UTOFU_SUCCESS,
                      UTOFU_ERR_NOT_FOUND);
            while (utofu_poll_mrq(c.side.vcq.hdl, 0, &notice) == UTOFU_SUCCESS) {
                got++;
            }
        }
        while ((conf_rank == 2) && (got < 2 * half / 3 * 2)) {
            CONF_EXPECT_MRQ(&c.side.vcq, UTOFU_MRQ_TYPE_RMT_PUT,
                            c.side.vcq.peer[RELAY], 1, NULL);
            got++;
        }
        CONF_CHECK((conf_rank != 2) || (got == 2 * half / 3 * 2), "%u remote notices", got);
        more[conf_rank] = conf_now() < end;
        conf_exchange(&more[conf_rank], sizeof(more[0]), more);
    } while (more[0]); /* as rank 0 says */
    CONF_EXPECT_QUIET(&c.side.vcq);
    side_close(&c.side);
}
