/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_cqs.c - CQs that are kept for exclusive and session-mode VCQs, when the processes of one
 * node share them (4.3.2.1, 4.3.2.2): as many as there are, and none is left for nobody.
 */
#include "harness.h"

#include <unistd.h>

#define EXCLUSIVE UTOFU_VCQ_FLAG_EXCLUSIVE
#define SESSION   UTOFU_VCQ_FLAG_SESSION_MODE

enum { CQS = 9 };

static utofu_vcq_hdl_t plain;

/* All ranks are on one node, and each makes a plain VCQ first, one after the other. */
static void one_node(const char *exclusive, const char *session)
{
    setenv("UTOFU_EMU_COORDS", "0,0,0,0,0,0", 1);
    setenv("UTOFU_NUM_EXCLUSIVE_CQS", exclusive, 1);
    setenv("UTOFU_NUM_SESSION_MODE_CQS", session, 1);
    for (int turn = 0; turn < conf_procs; turn++) {
        if (turn == conf_rank) {
            CONF_OK(utofu_create_vcq(0, 0, &plain));
        }
        conf_barrier();
    }
}

static int make_all(unsigned long flags)
{
    utofu_vcq_hdl_t hdl;
    int             n = 0;

    while (CONF_CODE(utofu_create_vcq(0, flags, &hdl), UTOFU_SUCCESS, UTOFU_ERR_NOT_AVAILABLE) == UTOFU_SUCCESS) {
        n++;
    }
    return n;
}

/* Rank after rank takes all exclusive and session-mode ones that it can get: what is left of nine
 * CQs goes to who comes first, the exclusive ones before the others. */
static void take_all(int exclusive, int session)
{
    int mine[2] = {0, 0}, all[CONF_MAX_PROCS][2], left = CQS - conf_procs;

    for (int turn = 0; turn < conf_procs; turn++) {
        if (turn == conf_rank) {
            mine[1] = make_all(SESSION);
            mine[0] = make_all(EXCLUSIVE);
        }
        conf_barrier();
    }
    conf_exchange(mine, sizeof(mine), all);
    for (int r = 0; r < conf_procs; r++) {
        int e = (exclusive < left) ? exclusive : left, s = (session < left - e) ? session : left - e;

        CONF_CHECK((all[r][1] == s) && (all[r][0] >= e), "rank %d has %d exclusive and %d session-mode VCQs, not %d and %d",
                   r, all[r][0], all[r][1], e, s);
        left -= all[r][0] + all[r][1];
    }
    CONF_CHECK(left == 0, "%d CQs are left for nobody", left);
}

CONF_TEST("cqs", cqs_four_processes, 4, "four processes that ask for 4 and 3 CQs each can make a plain VCQ each")
{
    one_node("4", "3");
    take_all(4, 3);
}

CONF_TEST("cqs", cqs_all_for_session, 2, "a process that asks for 8 session-mode CQs leaves the next one's to it")
{
    one_node("0", "8");
    take_all(0, 8);
}

CONF_TEST("cqs", cqs_all_for_exclusive, 2, "the same of exclusive ones")
{
    one_node("8", "0");
    take_all(8, 0);
}

CONF_TEST("cqs", cqs_few_are_left, 2, "who finds three free CQs, and asks for more, gets a shared one and two others")
{
    utofu_vcq_hdl_t hdl;

    setenv("UTOFU_EMU_COORDS", "0,0,0,0,0,0", 1);
    if (conf_rank == 0) {
        for (int i = 0; i < CQS - 3; i++) {
            CONF_OK(utofu_create_vcq(0, EXCLUSIVE, &hdl));
        }
    }
    conf_barrier();
    if (conf_rank == 1) {
        setenv("UTOFU_NUM_EXCLUSIVE_CQS", "1", 1);
        setenv("UTOFU_NUM_SESSION_MODE_CQS", "8", 1);
        CONF_OK(utofu_create_vcq(0, SESSION, &hdl));
        CONF_CODE(utofu_create_vcq(0, SESSION, &hdl), UTOFU_ERR_NOT_AVAILABLE);
        CONF_OK(utofu_create_vcq(0, EXCLUSIVE, &hdl));
        CONF_CODE(utofu_create_vcq(0, EXCLUSIVE, &hdl), UTOFU_ERR_NOT_AVAILABLE);
        CONF_OK(utofu_create_vcq(0, 0, &hdl));
    }
    conf_barrier();
}

CONF_TEST("cqs", cqs_kept_from_others, 2, "what a process asked for stays for it when another one of its node takes all, until it dies")
{
    int n = 0;

    setenv("UTOFU_EMU_COORDS", "0,0,0,0,0,0", 1);
    if (conf_rank == 1) {
        setenv("UTOFU_NUM_EXCLUSIVE_CQS", "2", 1);
        setenv("UTOFU_NUM_SESSION_MODE_CQS", "1", 1);
        CONF_OK(utofu_create_vcq(1, 0, &plain)); /* with its first VCQ, of any TNI, it is known */
    }
    conf_barrier();
    if (conf_rank == 0) {
        utofu_vcq_hdl_t hdl;

        while (CONF_CODE(utofu_create_vcq(0, 0, &hdl), UTOFU_SUCCESS, UTOFU_ERR_FULL) == UTOFU_SUCCESS) {
            n++;
        }
        CONF_CHECK(n == (CQS - 4) * 8, "%d VCQs", n); /* one CQ of the four is for VCQs that share it */
        CONF_CHECK(make_all(EXCLUSIVE) == 0, "an exclusive CQ");
        CONF_CHECK(make_all(SESSION) == 0, "a session-mode CQ");
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK((n = make_all(SESSION)) == 1, "%d session-mode VCQs", n);
        CONF_CHECK((n = make_all(EXCLUSIVE)) == 2, "%d exclusive VCQs", n);
        CONF_OK(utofu_create_vcq(0, 0, &plain));
        conf_barrier();
        conf_barrier(); /* killed here */
        CONF_FAIL("rank 1 is alive");
    }
    conf_barrier();
    conf_kill(1);
    CONF_CHECK((n = make_all(EXCLUSIVE)) == 4, "%d exclusive VCQs of the one that was killed", n);
}

CONF_TEST("cqs", cqs_kept_in_order, 3, "who joined first is served first, and a plain VCQ is had by each")
{
    static const int gets[3] = {3, 3, 0}; /* of the six that are left by a plain one of each */
    int              n;

    setenv("UTOFU_EMU_COORDS", "0,0,0,0,0,0", 1);
    setenv("UTOFU_NUM_EXCLUSIVE_CQS", (conf_rank == 0) ? "3" : "4", 1);
    for (int turn = 0; turn < 3; turn++) {
        if (turn == conf_rank) {
            CONF_OK(utofu_create_vcq(1, 0, &plain));
        }
        conf_barrier();
    }
    for (int turn = 2; turn >= 0; turn--) { /* the last one comes first, and has what the others did not ask for */
        if (turn == conf_rank) {
            CONF_OK(utofu_create_vcq(0, 0, &plain));
            n = make_all(EXCLUSIVE);
            CONF_CHECK(n == gets[turn], "%d exclusive VCQs, not %d", n, gets[turn]);
        }
        conf_barrier();
    }
}

CONF_TEST("cqs", component_after_the_first_ones_went, 1,
          "when all VCQs of the first CQ were freed, a component ID is on that CQ again, not on another one that has VCQs")
{
    utofu_vcq_hdl_t hdl[9], chosen;
    utofu_vcq_id_t  id;
    utofu_tni_id_t  tni;
    utofu_cq_id_t   cq;
    uint16_t        extra;
    uint8_t         coords[6];

    for (int i = 0; i < 9; i++) { /* eight on CQ 0, one on CQ 1 */
        CONF_OK(utofu_create_vcq(0, 0, &hdl[i]));
    }
    for (int i = 0; i < 8; i++) {
        CONF_OK(utofu_free_vcq(hdl[i]));
    }
    CONF_OK(utofu_create_vcq_with_cmp_id(0, 3, 0, &chosen));
    CONF_OK(utofu_query_vcq_id(chosen, &id));
    CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
    CONF_CHECK((cq == 0) && (extra == 3), "CQ %d, component %d", cq, extra);
}

CONF_TEST("cqs", zero_is_the_default, 1, "UTOFU_NUM_EXCLUSIVE_CQS=0 is as if it were not set (4.3.2.1)")
{
    int n;

    setenv("UTOFU_NUM_EXCLUSIVE_CQS", "0", 1);
    n = make_all(EXCLUSIVE);
    CONF_CHECK(n == CQS, "%d exclusive VCQs", n);
}

CONF_TEST("cqs", component_on_the_first_cq, 1,
          "component IDs count on the CQ that was taken first, which peers predict, and not on the lowest number")
{
    utofu_vcq_hdl_t hdl[9], chosen;
    utofu_vcq_id_t  id;
    utofu_tni_id_t  tni;
    utofu_cq_id_t   cq, first = 0;
    uint16_t        extra, component;
    uint8_t         coords[6];

    setenv("UTOFU_EMU_PPN", "3", 1);
    setenv("PMIX_RANK", "1", 1); /* has CQ 4 first, and CQ 1 next */
    for (int i = 0; i < 9; i++) {
        CONF_OK(utofu_create_vcq(0, 0, &hdl[i]));
    }
    CONF_OK(utofu_query_vcq_id(hdl[4], &id));
    CONF_OK(utofu_query_vcq_info(id, coords, &tni, &first, &component));
    CONF_CHECK(first == 4, "CQ %d", first);
    CONF_OK(utofu_free_vcq(hdl[4]));
    CONF_OK(utofu_create_vcq_with_cmp_id(0, component, 0, &chosen));
    CONF_OK(utofu_query_vcq_id(chosen, &id));
    CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
    CONF_CHECK((cq == first) && (extra == component), "CQ %d, component %d", cq, extra);
    CONF_CODE(utofu_create_vcq_with_cmp_id(0, component, 0, &chosen), UTOFU_ERR_USED);
}

CONF_TEST("cqs", lowest_first_cq, 2,
          "UTOFU_EMU_FIRST_CQ=lowest: of two processes of a node, each on a TNI of its own, both have CQ 0 first")
{
    utofu_vcq_hdl_t hdl;
    utofu_vcq_id_t  ids[2], id, peer;
    utofu_tni_id_t  tni, other = (utofu_tni_id_t)!conf_rank;
    utofu_cq_id_t   cq;
    uint16_t        extra;
    uint8_t         coords[6];

    setenv("UTOFU_EMU_FIRST_CQ", "lowest", 1);
    setenv("UTOFU_EMU_PPN", "2", 1);
    setenv("PMIX_RANK", conf_rank ? "1" : "0", 1);
    CONF_OK(utofu_create_vcq_with_cmp_id((utofu_tni_id_t)conf_rank, 0, 0, &hdl));
    CONF_OK(utofu_query_vcq_id(hdl, &id));
    CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
    CONF_CHECK((tni == conf_rank) && (cq == 0), "TNI %d, CQ %d", tni, cq);
    conf_exchange(&id, sizeof(id), ids);
    CONF_OK(utofu_construct_vcq_id(coords, other, 0, 0, &peer));
    CONF_CHECK(peer == ids[other], "%#lx was made of the peer's numbers, its VCQ is %#lx", (unsigned long)peer,
               (unsigned long)ids[other]);
    conf_barrier();
}

CONF_TEST("cqs", each_has_one, 4, "a process that takes all CQs that it gets leaves one for each other of its node (4.3.2.1)")
{
    utofu_vcq_hdl_t hdl;
    uint8_t         coords[6];

    setenv("UTOFU_EMU_COORDS", "0,0,0,0,0,0", 1);
    setenv("UTOFU_NUM_EXCLUSIVE_CQS", "9", 1);
    setenv("UTOFU_NUM_SESSION_MODE_CQS", "3", 1);
    CONF_OK(utofu_query_my_coords(coords));
    conf_barrier();
    for (int turn = 0; turn < conf_procs; turn++) {
        if (turn == conf_rank) {
            make_all(SESSION);
            make_all(EXCLUSIVE);
            CONF_OK(utofu_create_vcq(0, 0, &hdl));
        }
        conf_barrier();
    }
}

CONF_TEST("cqs", none_for_the_dead, 2, "nothing is kept for a process that was killed before it had a CQ")
{
    uint8_t coords[6];

    setenv("UTOFU_EMU_COORDS", "0,0,0,0,0,0", 1);
    setenv("UTOFU_NUM_EXCLUSIVE_CQS", "5", 1);
    setenv("UTOFU_NUM_SESSION_MODE_CQS", "0", 1);
    CONF_OK(utofu_query_my_coords(coords));
    conf_barrier();
    if (conf_rank == 0) {
        conf_kill(1);
        CONF_CHECK(make_all(EXCLUSIVE) == CQS - 1, "all but its own shared one");
    } else {
        pause();
    }
}
