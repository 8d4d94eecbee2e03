/* SPDX-License-Identifier: BSD-3-Clause */
/* conf_barrier.c - barriers and their circuits (2.3, 2.5, 3.8). */
#include "circuit.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/* While one place has not started, no other completes. */
static void nobody_is_early(void (*make)(struct plan *, int), int places)
{
    static struct circuit c;
    int                   late, i;

    make(&c.plan, places);
    circuit_open(&c, 1, 0);
    for (late = 0; late < places; late++) {
        CIRCUIT_MINE(&c, p) {
            if (p != late) {
                CONF_OK(utofu_barrier(c.id[p][0], 0));
            }
        }
        conf_barrier(); /* now all but one have started */
        for (i = 0; i < 50; i++) {
            CIRCUIT_MINE(&c, p) {
                CONF_CODE(utofu_poll_barrier(c.id[p][0], 0),
                          (p == late) ? UTOFU_ERR_BUSY :
                                        UTOFU_ERR_NOT_COMPLETED);
            }
        }
        conf_barrier();
        CIRCUIT_MINE(&c, p) {
            if (p == late) {
                CONF_OK(utofu_barrier(c.id[p][0], 0));
            }
        }
        CIRCUIT_MINE(&c, p) {
            CONF_OK(circuit_wait(c.id[p][0]));
        }
        conf_barrier();
    }
    circuit_close(&c);
}

CONF_TEST("2.3.3", barrier_of_two, 2,
          "a barrier of 2 processes completes when both have started, not before")
{
    nobody_is_early(plan_butterfly, 2);
}

CONF_TEST("2.3.2", barrier_of_four, 4,
          "the same for 4 processes in a butterfly")
{
    nobody_is_early(plan_butterfly, 4);
}

CONF_TEST("5.2.1", barrier_of_eight, 8,
          "the same for 8 processes in a butterfly")
{
    nobody_is_early(plan_butterfly, 8);
}

CONF_TEST("2.3.2", barrier_of_ten, 10,
          "the same for 10 processes, 2 of them beside the butterfly")
{
    conf_timeout(60);
    nobody_is_early(plan_butterfly, 10);
}

CONF_TEST("2.3.2", barrier_ring, 5, "the same for 5 processes in a ring")
{
    nobody_is_early(plan_ring, 5);
}

CONF_TEST("2.3.2", barrier_tree, 7, "the same for 7 processes in a tree")
{
    nobody_is_early(plan_tree, 7);
}

CONF_TEST("2.3.1", barrier_in_one_process, 1,
          "all places of a circuit may be in one process, on several TNIs")
{
    nobody_is_early(plan_butterfly, 2);
    nobody_is_early(plan_butterfly, 16);
    nobody_is_early(plan_butterfly, 13);
    nobody_is_early(plan_ring, 9);
    nobody_is_early(plan_tree, 12);
}

CONF_TEST("2.3.1", barrier_places_of_processes, 3,
          "a process may have several places of a circuit")
{
    nobody_is_early(plan_butterfly, 11);
    nobody_is_early(plan_ring, 7);
    nobody_is_early(plan_tree, 8);
}

/* Rounds without any other synchronisation; the sum tells if one is mixed. */
static void rounds(struct circuit *c, int num)
{
    uint64_t data[2], want;
    int      round, n = c->plan.places;

    for (round = 0; round < num; round++) {
        CIRCUIT_MINE(c, p) {
            data[0] = (uint64_t)round << 8 | p;
            data[1] = (uint64_t)round;
            CONF_OK(utofu_reduce_uint64(c->id[p][0], UTOFU_REDUCE_OP_SUM, data,
                                        2, 0));
        }
        if ((round + conf_rank) % 7 == 0) {
            sched_yield();
        }
        want = ((uint64_t)round << 8) * n + (uint64_t)n * (n - 1) / 2;
        CIRCUIT_MINE(c, p) {
            CONF_OK(circuit_wait_uint64(c->id[p][0], data));
            CONF_CHECK((data[0] == want) && (data[1] == (uint64_t)round * n),
                       "round %d: %" PRIu64 " and %" PRIu64, round, data[0],
                       data[1]);
        }
    }
}

CONF_TEST("3.8", barrier_rounds_butterfly, 4,
          "a circuit is used again and again without a pause, no round is lost "
          "or mixed with the next")
{
    static struct circuit c;

    conf_timeout(60);
    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    rounds(&c, 1500);
    circuit_close(&c);
}

CONF_TEST("3.8", barrier_rounds_ring, 3, "the same in a ring")
{
    static struct circuit c;

    conf_timeout(60);
    plan_ring(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    rounds(&c, 1000);
    circuit_close(&c);
}

CONF_TEST("3.8", barrier_rounds_tree, 5, "the same in a tree")
{
    static struct circuit c;

    conf_timeout(60);
    plan_tree(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    rounds(&c, 500);
    circuit_close(&c);
}

CONF_TEST("2.3.3", barrier_circuits_at_once, 4,
          "several circuits work at the same time, on one TNI and on others, "
          "in any order, with different operations")
{
    static struct circuit c[4];
    uint64_t              u;
    double                d;
    int                   round, i;

    plan_butterfly(&c[0].plan, 4);
    plan_ring(&c[1].plan, 4);
    plan_tree(&c[2].plan, 4);
    plan_butterfly(&c[3].plan, 4);
    circuit_open(&c[0], 0, 0);
    circuit_open(&c[1], 0, 0);
    circuit_open(&c[2], 3, 0);
    circuit_open(&c[3], 0, 0);
#define ID(_i) c[_i].id[conf_rank][0]
    for (round = 0; round < 60; round++) {
        for (i = 0; i < 4; i++) {
            switch ((i + conf_rank + round) % 4) {
            case 0:
                CONF_OK(utofu_barrier(ID(0), 0));
                break;
            case 1:
                u = round + conf_rank;
                CONF_OK(utofu_reduce_uint64(ID(1), UTOFU_REDUCE_OP_MAX, &u, 1,
                                            0));
                break;
            case 2:
                d = round + 0.5 * conf_rank;
                CONF_OK(utofu_reduce_double(ID(2), UTOFU_REDUCE_OP_BFPSUM, &d,
                                            1, 0));
                break;
            case 3:
                CONF_OK(utofu_barrier(ID(3), 0));
                break;
            }
        }
        CONF_OK(circuit_wait(ID(3)));
        CONF_OK(circuit_wait_double(ID(2), &d));
        CONF_CHECK(d == 4 * round + 3, "round %d: sum %g", round, d);
        CONF_OK(circuit_wait_uint64(ID(1), &u));
        CONF_CHECK(u == (uint64_t)round + 3, "round %d: max %" PRIu64, round,
                   u);
        CONF_OK(circuit_wait(ID(0)));
    }
    for (i = 0; i < 4; i++) {
        circuit_close(&c[i]);
    }
}

/* ------------------------------------------------------------ BUSY and others */

CONF_TEST("3.8.1.1", barrier_busy, 2,
          "one barrier at a time: BUSY for a start until the one before was "
          "found complete, BUSY for a poll when none was started")
{
    static struct circuit c;
    utofu_vbg_id_t        id;
    uint64_t              u[2] = {1, 2};
    double                d    = 1;

    plan_butterfly(&c.plan, 2);
    circuit_open(&c, 0, 0);
    id = c.id[conf_rank][0];
    CONF_CODE(utofu_poll_barrier(id, 0), UTOFU_ERR_BUSY);
    CONF_CODE(utofu_poll_reduce_uint64(id, 0, u), UTOFU_ERR_BUSY);
    CONF_CODE(utofu_poll_reduce_double(id, 0, &d), UTOFU_ERR_BUSY);
#define ALL_BUSY() \
    do { \
        CONF_CODE(utofu_barrier(id, 0), UTOFU_ERR_BUSY); \
        CONF_CODE(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, u, 1, 0), \
                  UTOFU_ERR_BUSY); \
        CONF_CODE(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, &d, 1, 0), \
                  UTOFU_ERR_BUSY); \
    } while (0)
    conf_barrier();
    if (conf_rank == 0) {
        u[0] = 5;
        CONF_OK(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, u, 1, 0));
        ALL_BUSY();
        CONF_CODE(utofu_poll_reduce_uint64(id, 0, u), UTOFU_ERR_NOT_COMPLETED);
        CONF_CHECK((u[0] == 5) && (u[1] == 2), "data changed");
    }
    conf_barrier();
    if (conf_rank == 1) {
        u[0] = 6;
        CONF_OK(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, u, 1, 0));
    }
    conf_barrier();
    ALL_BUSY(); /* complete, but nobody asked */
    /* polls of another kind: nothing of theirs was started, nothing is lost */
    CONF_CODE(utofu_poll_barrier(id, 0), UTOFU_ERR_BUSY);
    CONF_CODE(utofu_poll_reduce_double(id, 0, &d), UTOFU_ERR_BUSY);
    CONF_CHECK(d == 1, "data changed");
    CONF_OK(circuit_wait_uint64(id, u));
    CONF_CHECK((u[0] == 11) && (u[1] == 2), "%" PRIu64 ", %" PRIu64, u[0],
               u[1]);
    CONF_CODE(utofu_poll_reduce_uint64(id, 0, u), UTOFU_ERR_BUSY);
    circuit_barrier(&c);
    circuit_close(&c);
}

CONF_TEST("3.8", barrier_arguments, 2,
          "barrier functions take the first gate of an allocation of this "
          "process, and no flags")
{
    static struct circuit c;
    utofu_vbg_id_t        bad[4];
    uint64_t              u = 0;
    double                d = 0;
    size_t                i;

    plan_butterfly(&c.plan, 2);
    circuit_open(&c, 0, 0);
    bad[0] = c.id[conf_rank][1];
    bad[1] = c.id[1 - conf_rank][0];
    bad[2] = UTOFU_VBG_ID_NULL;
    bad[3] = 0;
    for (i = 0; i < CONF_LEN(bad); i++) {
        utofu_vbg_id_t id = bad[i];
        CONF_CODE(utofu_barrier(id, 0), UTOFU_ERR_INVALID_VBG_ID);
        CONF_CODE(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, &u, 1, 0),
                  UTOFU_ERR_INVALID_VBG_ID);
        CONF_CODE(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, &d, 1, 0),
                  UTOFU_ERR_INVALID_VBG_ID);
        CONF_CODE(utofu_poll_barrier(id, 0), UTOFU_ERR_INVALID_VBG_ID);
        CONF_CODE(utofu_poll_reduce_uint64(id, 0, &u),
                  UTOFU_ERR_INVALID_VBG_ID);
        CONF_CODE(utofu_poll_reduce_double(id, 0, &d),
                  UTOFU_ERR_INVALID_VBG_ID);
    }
    CONF_CODE(utofu_barrier(c.id[conf_rank][0], 1), UTOFU_ERR_INVALID_FLAGS);
    CONF_CODE(utofu_poll_barrier(c.id[conf_rank][0], 1),
              UTOFU_ERR_INVALID_FLAGS);
    circuit_barrier(&c);
    circuit_close(&c);
}

/* -------------------------------------------------------------- mismatch */

/* What a place starts in a case of mismatch */
static void start_as(utofu_vbg_id_t id, int what)
{
    uint64_t u[6] = {1, 2, 3, 4, 5, 6};
    double   d[3] = {1, 2, 3};

    switch (what) {
    case 0:
        CONF_OK(utofu_barrier(id, 0));
        break;
    case 1:
        CONF_OK(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, u, 6, 0));
        break;
    case 2:
        CONF_OK(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_BOR, u, 6, 0));
        break;
    case 3:
        CONF_OK(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, u, 2, 0));
        break;
    case 4:
        CONF_OK(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, d, 3, 0));
        break;
    default:
        CONF_OK(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, d, 1, 0));
        break;
    }
}

static int wait_as(utofu_vbg_id_t id, int what)
{
    uint64_t u[6] = {77, 77, 77, 77, 77, 77};
    double   d[3] = {77, 77, 77};
    int      rc;

    rc = (what == 0) ? circuit_wait(id) :
         (what <= 3) ? circuit_wait_uint64(id, u) :
                       circuit_wait_double(id, d);
    CONF_CHECK((rc == UTOFU_SUCCESS) || ((u[0] == 77) && (d[0] == 77)),
               "data of a failed reduction changed");
    return rc;
}

/* Do they differ in the number of elements only?  All are to give the same number (3.8.1.2, 3.8.1.3), and what
 * becomes of those that don't is not said: the emulator tells them, too. */
static bool differ_by_number(int one, int other)
{
    int low = (one < other) ? one : other, high = one + other - low;

    return ((low == 1) && (high == 3)) || ((low == 4) && (high == 5));
}

static void mismatches(void (*make)(struct plan *, int))
{
    static struct circuit c;
    int                   odd, most, other;

    make(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    for (most = 0; most < 6; most++) {
        for (other = 0; other < 6; other++) {
            if (differ_by_number(most, other) && !conf_is_emulator()) {
                continue;
            }
            for (odd = 0; odd < c.plan.places; odd++) {
                CIRCUIT_MINE(&c, p) {
                    start_as(c.id[p][0], (p == odd) ? other : most);
                }
                CIRCUIT_MINE(&c, p) {
                    CONF_CODE(wait_as(c.id[p][0], (p == odd) ? other : most),
                              (other == most) ? UTOFU_SUCCESS :
                                                UTOFU_ERR_BARRIER_MISMATCH);
                }
                /* the circuit is as good as before */
                if (odd % 2 == 0) {
                    circuit_barrier(&c);
                }
            }
        }
    }
    circuit_close(&c);
}

CONF_TEST("3.8", barrier_mismatch, 4,
          "when one process starts another function or operation (of the emulator, or number), "
          "every process gets BARRIER_MISMATCH and no data; then the circuit "
          "works again")
{
    conf_timeout(60);
    mismatches(plan_butterfly);
}

CONF_TEST("3.8", barrier_mismatch_tree, 3, "the same in a tree")
{
    conf_timeout(60);
    mismatches(plan_tree);
}

CONF_TEST("3.8", barrier_mismatch_ring, 3, "the same in a ring")
{
    conf_timeout(60);
    mismatches(plan_ring);
}

CONF_TEST("3.8", barrier_mismatch_exchange, 2,
          "it is also found where a gate gets only the other process' data")
{
    static struct circuit c;
    int                   mine, other;

    plan_butterfly(&c.plan, 2);
    for (mine = 0; mine < 2; mine++) {
        c.plan.gates[mine]     = 1;
        c.plan.signal[mine][0] = -1;
        c.plan.packet[mine][0] = (1 - mine) * CIRCUIT_GATES;
    }
    circuit_open(&c, 0, 0);
    for (mine = 0; mine < 6; mine++) {
        for (other = 0; other < 6; other++) {
            int what = (conf_rank == 0) ? mine : other;

            if (differ_by_number(mine, other) && !conf_is_emulator()) {
                continue;
            }
            start_as(c.id[conf_rank][0], what);
            CONF_CODE(wait_as(c.id[conf_rank][0], what),
                      (other == mine) ? UTOFU_SUCCESS :
                                        UTOFU_ERR_BARRIER_MISMATCH);
        }
    }
    circuit_close(&c);
}

CONF_TEST("3.8", barrier_mismatch_operations, 2, "any two operations on integers are told apart")
{
    static const enum utofu_reduce_op ops[] = {UTOFU_REDUCE_OP_BAND, UTOFU_REDUCE_OP_BOR,    UTOFU_REDUCE_OP_BXOR,
                                               UTOFU_REDUCE_OP_MAX,  UTOFU_REDUCE_OP_MAXLOC, UTOFU_REDUCE_OP_SUM};
    static struct circuit c;
    size_t                mine, other;

    plan_butterfly(&c.plan, 2);
    circuit_open(&c, 0, 0);
    for (mine = 0; mine < CONF_LEN(ops); mine++) {
        for (other = 0; other < CONF_LEN(ops); other++) {
            uint64_t data[2] = {1, 2};

            CONF_OK(utofu_reduce_uint64(c.id[conf_rank][0], ops[(conf_rank == 0) ? mine : other], data, 2, 0));
            CONF_CODE(circuit_wait_uint64(c.id[conf_rank][0], data),
                      (other == mine) ? UTOFU_SUCCESS : UTOFU_ERR_BARRIER_MISMATCH);
        }
    }
    circuit_close(&c);
}

/* ------------------------------------------------- processes that do nothing */

CONF_TEST("2.3.1", barrier_relays_of_stopped, 4,
          "a process that has started may be stopped: its gates work on, and "
          "it finds its result later")
{
    static struct circuit c;
    uint64_t              u;
    int                   who;

    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    for (who = 1; who < 4; who++) {
        u = 1u << conf_rank;
        if (conf_rank == who) {
            CONF_OK(utofu_reduce_uint64(c.id[who][0], UTOFU_REDUCE_OP_SUM, &u,
                                        1, 0));
        }
        conf_barrier();
        if (conf_rank == 0) {
            conf_stop(who);
        } else if (conf_rank != who) {
            usleep(20000);
        }
        if (conf_rank != who) {
            CONF_OK(utofu_reduce_uint64(c.id[conf_rank][0],
                                        UTOFU_REDUCE_OP_SUM, &u, 1, 0));
        }
        if (conf_rank == 0) { /* completes while the other cannot move */
            CONF_OK(circuit_wait_uint64(c.id[0][0], &u));
            conf_continue(who);
        } else {
            CONF_OK(circuit_wait_uint64(c.id[conf_rank][0], &u));
        }
        CONF_CHECK(u == 15, "sum %" PRIu64, u);
        conf_barrier();
    }
    circuit_close(&c);
}

CONF_TEST("2.3.3", barrier_member_killed, 4,
          "when a member dies the others get NOT_COMPLETED and BUSY, never "
          "wait in a call, and can make another circuit")
{
    static struct circuit c, next;
    int                   i;

    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    for (i = 0; i < 100; i++) {
        circuit_barrier(&c);
    }
    if (conf_rank < 3) {
        CONF_OK(utofu_barrier(c.id[conf_rank][0], 0));
    }
    conf_barrier();
    if (conf_rank == 3) {
        conf_barrier(); /* for ever */
        CONF_FAIL("rank 3 was to be killed");
    }
    if (conf_rank == 0) {
        conf_kill(3);
    }
    for (i = 0; i < 30; i++) {
        CONF_CODE(utofu_poll_barrier(c.id[conf_rank][0], 0),
                  UTOFU_ERR_NOT_COMPLETED);
        CONF_CODE(utofu_barrier(c.id[conf_rank][0], 0), UTOFU_ERR_BUSY);
        usleep(1000);
    }
    plan_tree(&next.plan, 3);
    circuit_open(&next, 0, 0);
    for (i = 0; i < 50; i++) {
        circuit_barrier(&next);
    }
    circuit_close(&next);
    circuit_close(&c); /* even while a barrier is under way */
}

CONF_TEST("3.4.2.1", barrier_set_gives_up, 2,
          "setting the gates of all again ends a barrier that could not "
          "complete (emulator)")
{
    static struct circuit c;
    int                   i;

    if (!conf_is_emulator()) {
        conf_skip("not said of a machine");
    }
    plan_butterfly(&c.plan, 2);
    circuit_open(&c, 0, 0);
    for (i = 0; i < 10; i++) {
        if (conf_rank == i % 2) {
            CONF_OK(utofu_barrier(c.id[conf_rank][0], 0));
        }
        conf_barrier();
        circuit_set(&c);
        CONF_CODE(utofu_poll_barrier(c.id[conf_rank][0], 0), UTOFU_ERR_BUSY);
        conf_barrier();
        circuit_barrier(&c);
        conf_barrier();
    }
    circuit_close(&c);
}

CONF_TEST("3.4.2.1", barrier_set_drops, 1,
          "setting gates again drops what waits in them and to be sent "
          "(emulator)")
{
    static struct circuit c;
    uint64_t              u, value = 0;
    int                   round;

    if (!conf_is_emulator()) {
        conf_skip("not said of a machine");
    }
    /* place 0 sends to the start gate of place 1 and waits for nobody */
    plan_tree(&c.plan, 1);
    c.plan.places       = 2;
    c.plan.gates[1]     = 1;
    c.plan.packet[0][0] = CIRCUIT_GATES;
    circuit_open(&c, 0, 0);
    for (round = 0; round < 5; round++) {
        while (CONF_CODE(utofu_reduce_uint64(c.id[0][0], UTOFU_REDUCE_OP_SUM,
                                             &value, 1, 0),
                         UTOFU_SUCCESS, UTOFU_ERR_BUSY) == UTOFU_SUCCESS) {
            value++;
            CONF_OK(utofu_poll_reduce_uint64(c.id[0][0], 0, &u));
            CONF_CHECK(value < 1000, "never BUSY");
        }
        circuit_set(&c);
        CONF_OK(utofu_reduce_uint64(c.id[0][0], UTOFU_REDUCE_OP_SUM, &value, 1,
                                    0));
        CONF_OK(utofu_poll_reduce_uint64(c.id[0][0], 0, &u));
        CONF_OK(utofu_reduce_uint64(c.id[1][0], UTOFU_REDUCE_OP_SUM, &u, 1, 0));
        CONF_OK(circuit_wait_uint64(c.id[1][0], &u));
        CONF_CHECK(u == value, "%" PRIu64 " arrived, expected %" PRIu64, u,
                   value);
        value++;
    }
    circuit_close(&c);
}

CONF_TEST("2.3.1", barrier_one_way, 2,
          "a start gate without inputs completes at once; what it sends arrives "
          "in order, and it is BUSY while its target has no room (emulator)")
{
    static struct circuit c;
    uint64_t              u, next = 0, sent = 0;
    unsigned              spins = 0;
    int                   rc;

    if (!conf_is_emulator()) {
        conf_skip("how many packets a machine's gate keeps is not said");
    }
    /* place 0 sends to relay 1 of place 1, whose start gate joins it there */
    plan_ring(&c.plan, 2);
    c.plan.gates[0]     = 1;
    c.plan.gates[1]     = 2;
    c.plan.signal[0][1] = c.plan.packet[0][1] = c.plan.packet[1][1] = -1;
    c.plan.signal[1][1] = 0;
    circuit_open(&c, 0, 0);
    if (conf_rank == 0) {
        for (;;) {
            u  = sent;
            rc = CONF_CODE(utofu_reduce_uint64(c.id[0][0], UTOFU_REDUCE_OP_SUM,
                                               &u, 1, 0),
                           UTOFU_SUCCESS, UTOFU_ERR_BUSY);
            if (rc == UTOFU_ERR_BUSY) {
                break;
            }
            CONF_CODE(utofu_poll_reduce_uint64(c.id[0][0], 0, &u),
                      UTOFU_SUCCESS);
            CONF_CHECK(u == sent, "result of a start gate alone: %" PRIu64, u);
            sent++;
            CONF_CHECK(sent < 100, "never BUSY");
        }
        CONF_CHECK(sent > 1, "BUSY after %" PRIu64, sent);
    }
    conf_barrier();
    if (conf_rank == 0) {
        while (sent < 300) { /* the other takes them now */
            u  = sent;
            rc = CONF_CODE(utofu_reduce_uint64(c.id[0][0], UTOFU_REDUCE_OP_SUM,
                                               &u, 1, 0),
                           UTOFU_SUCCESS, UTOFU_ERR_BUSY);
            if (rc == UTOFU_SUCCESS) {
                CONF_OK(utofu_poll_reduce_uint64(c.id[0][0], 0, &u));
                sent++;
            } else {
                conf_relax(&spins);
            }
        }
    } else {
        for (next = 0; next < 300; next++) {
            u = 1000;
            CONF_OK(utofu_reduce_uint64(c.id[1][0], UTOFU_REDUCE_OP_SUM, &u, 1,
                                        0));
            CONF_OK(circuit_wait_uint64(c.id[1][0], &u));
            CONF_CHECK(u == 1000 + next, "packet %" PRIu64 " gives %" PRIu64,
                       next, u);
        }
    }
    circuit_close(&c);
}

/* ---------------------------------------------------------------- threads */

#define THREADS  4

static int         barriers; /* in all */
static _Atomic int started, completed;

static void *shared_worker(void *arg)
{
    utofu_vbg_id_t id    = *(utofu_vbg_id_t *)arg;
    unsigned       spins = 0;
    int            n;

    while (completed < barriers) {
        n = started;
        /* the right to start one more; given back when it was BUSY */
        if ((n < barriers) &&
            __atomic_compare_exchange_n((int *)&started, &n, n + 1, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
            (CONF_CODE(utofu_barrier(id, 0), UTOFU_SUCCESS, UTOFU_ERR_BUSY) ==
             UTOFU_ERR_BUSY)) {
            started--;
        }
        if (CONF_CODE(utofu_poll_barrier(id, 0), UTOFU_SUCCESS,
                      UTOFU_ERR_BUSY, UTOFU_ERR_NOT_COMPLETED) ==
            UTOFU_SUCCESS) {
            completed++;
        } else {
            conf_relax(&spins);
        }
    }
    return NULL;
}

static void share_vbg(struct circuit *c, int num)
{
    pthread_t thread[THREADS];
    int       i;

    barriers = num;
    started = completed = 0;
    circuit_open(c, 0, UTOFU_VBG_FLAG_THREAD_SAFE);
    for (i = 0; i < THREADS; i++) {
        CONF_CHECK(pthread_create(&thread[i], NULL, shared_worker,
                                  &c->id[conf_rank][0]) == 0,
                   "pthread_create");
    }
    for (i = 0; i < THREADS; i++) {
        CONF_CHECK(pthread_join(thread[i], NULL) == 0, "pthread_join");
    }
    CONF_CHECK((started == barriers) && (completed == barriers),
               "%d started, %d completed", started, completed);
    CONF_CODE(utofu_poll_barrier(c->id[conf_rank][0], 0), UTOFU_ERR_BUSY);
    circuit_barrier(c);
    circuit_close(c);
}

CONF_TEST("3.4.5.1", barrier_thread_safe, 2,
          "threads may start and poll on one THREAD_SAFE VBG at once: each "
          "barrier is started once and found complete once")
{
    static struct circuit c;
    double                end = conf_now() + 0.7;
    bool                  more[2];

    conf_timeout(60);
    plan_butterfly(&c.plan, 2);
    do {
        share_vbg(&c, 2000);
        more[conf_rank] = conf_now() < end;
        conf_exchange(&more[conf_rank], sizeof(more[0]), more);
    } while (more[0]); /* as rank 0 says */
}

CONF_TEST("3.4.5.1", barrier_thread_safe_alone, 1,
          "the same where every barrier completes at once")
{
    static struct circuit c;

    conf_timeout(60);
    plan_tree(&c.plan, 1);
    c.plan.packet[0][0] = 0;
    share_vbg(&c, 100000);
}

static void *own_worker(void *arg)
{
    rounds(arg, 150);
    return NULL;
}

CONF_TEST("2.5", barrier_vbgs_in_threads, 2,
          "threads with VBGs of their own use them at once without locks")
{
    static struct circuit c[THREADS];
    pthread_t             thread[THREADS];
    int                   i;

    conf_timeout(60);
    for (i = 0; i < THREADS; i++) {
        plan_tree(&c[i].plan, 4); /* two places a process */
        circuit_open(&c[i], i % 2, 0);
    }
    for (i = 0; i < THREADS; i++) {
        CONF_CHECK(pthread_create(&thread[i], NULL, own_worker, &c[i]) == 0,
                   "pthread_create");
    }
    for (i = 0; i < THREADS; i++) {
        CONF_CHECK(pthread_join(thread[i], NULL) == 0, "pthread_join");
    }
    for (i = 0; i < THREADS; i++) {
        circuit_close(&c[i]);
    }
}
