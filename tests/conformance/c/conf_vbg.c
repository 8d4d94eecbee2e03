/* SPDX-License-Identifier: BSD-3-Clause */
/* conf_vbg.c - virtual barrier gates (3.2.1.2, 3.2.1.4, 3.4, tables 6.3 and 6.5). */
#include "circuit.h"

#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>

#define STARTS 16
#define RELAYS 32

/* All ranks on one node; before the first call of the library. */
static void share_node(void)
{
    if (!conf_is_emulator()) {
        conf_skip("places processes on nodes of the emulator");
    }
    CONF_CHECK(setenv("UTOFU_EMU_NODE", "3", 1) == 0, "setenv");
}

static void alone_on_node(void)
{
    if (!conf_is_emulator()) {
        conf_skip("needs all gates of a node");
    }
}

CONF_TEST("3.2.1.2", barrier_tnis, 1,
          "utofu_get_barrier_tnis lists each TNI once, in memory to be freed")
{
    utofu_tni_id_t *ids = NULL;
    size_t          num = 0, i, k;

    CONF_OK(utofu_get_barrier_tnis(&ids, &num));
    CONF_CHECK((num > 0) && (num <= 6), "%zu TNIs", num);
    CONF_CHECK(!conf_is_emulator() || (num == 6), "%zu TNIs", num);
    for (i = 0; i < num; i++) {
        CONF_CHECK(ids[i] < 6, "TNI %u", ids[i]);
        for (k = 0; k < i; k++) {
            CONF_CHECK(ids[i] != ids[k], "TNI %u twice", ids[i]);
        }
    }
    free(ids);
    CONF_CODE(utofu_get_barrier_tnis(NULL, &num), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_get_barrier_tnis(&ids, NULL), UTOFU_ERR_INVALID_POINTER);
}

CONF_TEST("6.1.2", barrier_caps, 1,
          "barrier capabilities are those of table 6.5 on every barrier TNI")
{
    struct utofu_barrier_caps *caps;
    size_t                     i;

    for (i = 0; i < 6; i++) {
        CONF_OK(utofu_query_barrier_caps(circuit_tni(i), &caps));
        CONF_CHECK(caps->flags == 0, "flags 0x%lx", caps->flags);
        CONF_CHECK(caps->reduce_ops == 0x1fe, "reduce_ops 0x%lx",
                   caps->reduce_ops);
        CONF_CHECK(caps->max_uint64_reduction == 6, "%zu",
                   caps->max_uint64_reduction);
        CONF_CHECK(caps->max_double_reduction == 3, "%zu",
                   caps->max_double_reduction);
    }
}

CONF_TEST("3.4.3.1", vbg_info, 2,
          "a VBG ID tells coordinates, TNI and BG, also of a gate of another "
          "node; IDs are unique, and so are BGs of a TNI")
{
    utofu_vbg_id_t ids[12], all[2][12];
    uint8_t        mine[6], coords[6], all_coords[2][6];
    utofu_tni_id_t tni;
    utofu_bg_id_t  bg, bgs[2][12];
    uint16_t       extra;
    int            i, k, r;

    CONF_OK(utofu_query_my_coords(mine));
    conf_exchange(mine, sizeof(mine), all_coords);
    for (i = 0; i < 6; i++) {
        CONF_OK(utofu_alloc_vbg(circuit_tni(i), 2, 0, ids + 2 * i));
    }
    conf_exchange(ids, sizeof(ids), all);
    for (r = 0; r < 2; r++) {
        for (i = 0; i < 12; i++) {
            CONF_CHECK(all[r][i] != UTOFU_VBG_ID_NULL, "a VBG ID is NULL");
            for (k = 0; k < 12 * r + i; k++) {
                CONF_CHECK(all[r][i] != all[k / 12][k % 12], "an ID twice");
            }
            memset(coords, 0xee, sizeof(coords));
            CONF_OK(utofu_query_vbg_info(all[r][i], coords, &tni, &bg,
                                         &extra));
            CONF_CHECK(memcmp(coords, all_coords[r], 6) == 0, "coordinates");
            CONF_CHECK(tni == circuit_tni(i / 2), "TNI %u", tni);
            CONF_CHECK(bg < STARTS + RELAYS, "BG %u", bg);
            bgs[r][i] = bg;
            for (k = 0; k < 12 * r + i; k++) {
                CONF_CHECK((bgs[k / 12][k % 12] != bg) || (circuit_tni(k % 12 / 2) != tni) ||
                                   (memcmp(all_coords[k / 12], coords, 6) != 0),
                           "BG %u of TNI %u twice", bg, tni);
            }
        }
    }
    CONF_CODE(utofu_query_vbg_info(UTOFU_VBG_ID_NULL, coords, &tni, &bg,
                                   &extra),
              UTOFU_ERR_INVALID_VBG_ID);
    CONF_CODE(utofu_query_vbg_info(0, coords, &tni, &bg, &extra),
              UTOFU_ERR_INVALID_VBG_ID);
    CONF_CODE(utofu_query_vbg_info(ids[0], NULL, &tni, &bg, &extra),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_vbg_info(ids[0], coords, &tni, NULL, &extra),
              UTOFU_ERR_INVALID_POINTER);
    for (i = 0; i < 6; i++) {
        CONF_OK(utofu_free_vbg(ids + 2 * i, 2));
    }
}

CONF_TEST("3.4.1.1", vbg_alloc_arguments, 1,
          "utofu_alloc_vbg checks TNI, number, flags and the array")
{
    utofu_vbg_id_t ids[4];

    CONF_CODE(utofu_alloc_vbg(6, 1, 0, ids), UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_alloc_vbg(circuit_tni(0), 0, 0, ids),
              UTOFU_ERR_INVALID_NUMBER);
    CONF_CODE(utofu_alloc_vbg(circuit_tni(0), 1, 2, ids),
              UTOFU_ERR_INVALID_FLAGS);
    CONF_CODE(utofu_alloc_vbg(circuit_tni(0), 1, 0, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_alloc_vbg(circuit_tni(0), SIZE_MAX, 0, ids),
              UTOFU_ERR_FULL);
    CONF_OK(utofu_alloc_vbg(circuit_tni(0), 4, UTOFU_VBG_FLAG_THREAD_SAFE,
                            ids));
    CONF_OK(utofu_free_vbg(ids, 4));
}

/* How many start and relay gates are there to be had on a TNI? */
static void count_gates(utofu_tni_id_t tni, int starts, int relays)
{
    utofu_vbg_id_t one[STARTS + 1], big[1 + RELAYS + 1];
    int            n = 0;

    /* all relays at once, and not one more */
    if (starts > 0) {
        memset(big, 0xee, sizeof(big));
        CONF_CODE(utofu_alloc_vbg(tni, 2 + relays, 0, big), UTOFU_ERR_FULL);
        CONF_OK(utofu_alloc_vbg(tni, 1 + relays, 0, big));
        CONF_OK(utofu_free_vbg(big, 1 + relays));
    }
    while ((n <= STARTS) &&
           (CONF_CODE(utofu_alloc_vbg(tni, 1, 0, &one[n]), UTOFU_SUCCESS,
                      UTOFU_ERR_FULL) == UTOFU_SUCCESS)) {
        n++;
    }
    CONF_CHECK(n == starts, "%d start gates, expected %d", n, starts);
    while (n > 0) {
        n--;
        CONF_OK(utofu_free_vbg(&one[n], 1));
    }
}

CONF_TEST("6.1.2", vbg_limits, 1,
          "each TNI has 16 gates to start and 32 to relay; FULL keeps none, "
          "and freed ones can be had again")
{
    utofu_vbg_id_t a[20], b[20];
    int            i, round;

    alone_on_node();
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 6; i++) {
            count_gates(circuit_tni(i), STARTS, RELAYS);
        }
    }
    CONF_OK(utofu_alloc_vbg(circuit_tni(2), 20, 0, a)); /* 19 relays */
    count_gates(circuit_tni(2), STARTS - 1, RELAYS - 19);
    CONF_CODE(utofu_alloc_vbg(circuit_tni(2), 15, 0, b), UTOFU_ERR_FULL);
    CONF_OK(utofu_alloc_vbg(circuit_tni(2), 14, 0, b));
    count_gates(circuit_tni(2), STARTS - 2, 0);
    CONF_OK(utofu_alloc_vbg(circuit_tni(3), 20, 0, b + 0)); /* another TNI */
    CONF_OK(utofu_free_vbg(b, 20));
    CONF_OK(utofu_free_vbg(a, 20));
    count_gates(circuit_tni(2), STARTS - 1, RELAYS - 13);
}

CONF_TEST("6.1.2", vbg_limits_of_node, 3,
          "processes of a node share its gates, those of another have their own")
{
    utofu_vbg_id_t ids[11];

    if (conf_rank < 2) {
        share_node();
    } else {
        alone_on_node();
    }
    if (conf_rank == 0) {
        CONF_OK(utofu_alloc_vbg(circuit_tni(1), 11, 0, ids));
    }
    conf_barrier();
    if (conf_rank == 1) {
        count_gates(circuit_tni(1), STARTS - 1, RELAYS - 10);
        count_gates(circuit_tni(0), STARTS, RELAYS);
    } else if (conf_rank == 2) {
        count_gates(circuit_tni(1), STARTS, RELAYS);
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_free_vbg(ids, 11));
    }
    conf_barrier();
    if (conf_rank == 1) {
        count_gates(circuit_tni(1), STARTS, RELAYS);
    }
}

CONF_TEST("3.1.1.1", bgs_of_node, 2,
          "the gates of a TNI, all that two processes of a node can have, have different BGs, below their number")
{
    enum { NUM = (STARTS + RELAYS) / 2, FIRST = 1 + RELAYS / 2 }; /* of each; in one allocation */
    utofu_vbg_id_t ids[NUM], all[2][NUM];
    uint8_t        coords[6];
    utofu_tni_id_t tni;
    utofu_bg_id_t  bg;
    uint16_t       extra;
    bool           seen[STARTS + RELAYS] = {false};
    int            i;

    share_node();
    CONF_OK(utofu_alloc_vbg(circuit_tni(4), FIRST, 0, ids));
    for (i = FIRST; i < NUM; i++) {
        CONF_OK(utofu_alloc_vbg(circuit_tni(4), 1, 0, ids + i));
    }
    conf_exchange(ids, sizeof(ids), all);
    for (i = 0; i < 2 * NUM; i++) {
        CONF_OK(utofu_query_vbg_info(all[i / NUM][i % NUM], coords, &tni, &bg, &extra));
        CONF_CHECK(tni == circuit_tni(4), "TNI %u", tni);
        CONF_CHECK(bg < STARTS + RELAYS, "BG %u", bg);
        CONF_CHECK(!seen[bg], "BG %u twice", bg);
        seen[bg] = true;
    }
    conf_barrier();
    CONF_OK(utofu_free_vbg(ids, FIRST));
    for (i = FIRST; i < NUM; i++) {
        CONF_OK(utofu_free_vbg(ids + i, 1));
    }
}

CONF_TEST("3.4.1.2", vbg_of_killed_process, 2,
          "gates of a process that was killed are free again for the node")
{
    utofu_vbg_id_t ids[33];

    share_node();
    if (conf_rank == 1) {
        CONF_OK(utofu_alloc_vbg(circuit_tni(0), 33, 0, ids));
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_CODE(utofu_alloc_vbg(circuit_tni(0), 2, 0, ids), UTOFU_ERR_FULL);
        conf_kill(1);
        CONF_OK(utofu_alloc_vbg(circuit_tni(0), 33, 0, ids));
        CONF_OK(utofu_free_vbg(ids, 33));
        count_gates(circuit_tni(0), STARTS, RELAYS);
    } else {
        conf_barrier();
    }
}

CONF_TEST("3.4.1.2", vbg_free_arguments, 2,
          "only what one allocation of this process returned can be freed; "
          "otherwise nothing is")
{
    utofu_vbg_id_t a[4], b[4], mixed[5], theirs[2][4];

    share_node();
    CONF_OK(utofu_alloc_vbg(circuit_tni(0), 4, 0, a));
    CONF_OK(utofu_alloc_vbg(circuit_tni(0), 4, 0, b));
    conf_exchange(a, sizeof(a), theirs);
    CONF_CODE(utofu_free_vbg(NULL, 4), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_free_vbg(a, 0), UTOFU_ERR_INVALID_NUMBER);
#define REFUSED UTOFU_ERR_INVALID_VBG_ID, UTOFU_ERR_INVALID_NUMBER
    CONF_CODE(utofu_free_vbg(a, 3), REFUSED);
    CONF_CODE(utofu_free_vbg(theirs[1 - conf_rank], 4), REFUSED);
    memcpy(mixed, a, sizeof(a));
    mixed[4] = b[1];
    CONF_CODE(utofu_free_vbg(mixed, 5), REFUSED);
    mixed[3] = b[1];
    CONF_CODE(utofu_free_vbg(mixed, 4), REFUSED);
    mixed[3] = a[1];
    CONF_CODE(utofu_free_vbg(mixed, 4), REFUSED);
    CONF_CODE(utofu_free_vbg(a + 1, 3), REFUSED);
    mixed[0] = UTOFU_VBG_ID_NULL;
    CONF_CODE(utofu_free_vbg(mixed, 1), REFUSED);
    conf_barrier();
    CONF_OK(utofu_free_vbg(a, 4));
    CONF_CODE(utofu_barrier(a[0], 0), UTOFU_ERR_INVALID_VBG_ID);
    CONF_CODE(utofu_free_vbg(a, 4), UTOFU_ERR_INVALID_VBG_ID);
    CONF_OK(utofu_alloc_vbg(circuit_tni(0), 4, 0, mixed));
    CONF_CODE(utofu_free_vbg(a, 4), UTOFU_ERR_INVALID_VBG_ID); /* old IDs */
    CONF_OK(utofu_free_vbg(mixed, 4));
    CONF_OK(utofu_free_vbg(b, 4));
}

CONF_TEST("3.4.2.1", vbg_set_arguments, 2,
          "utofu_set_vbg takes gates of one allocation, the start gate first, "
          "signals within the TNI, and valid paths; a refused call sets nothing")
{
    utofu_vbg_id_t           a[4], b[4], other[2], far[2][4];
    struct utofu_vbg_setting s[5], good[4];
    int                      i;

    CONF_OK(utofu_alloc_vbg(circuit_tni(0), 4, 0, a));
    CONF_OK(utofu_alloc_vbg(circuit_tni(0), 4, 0, b));
    CONF_OK(utofu_alloc_vbg(circuit_tni(1), 2, 0, other));
    conf_exchange(a, sizeof(a), far);
    for (i = 0; i < 4; i++) {
        good[i].vbg_id         = a[i];
        good[i].src_lcl_vbg_id = good[i].src_rmt_vbg_id = UTOFU_VBG_ID_NULL;
        good[i].dst_lcl_vbg_id = good[i].dst_rmt_vbg_id = UTOFU_VBG_ID_NULL;
        memset(good[i].dst_path_coords, 0xee, 3); /* sent nowhere: ignored */
    }
    /* a circuit of one, by signals through the relay gates 1 and 2 */
    good[0].dst_lcl_vbg_id = a[1], good[1].src_lcl_vbg_id = a[0];
    good[1].dst_lcl_vbg_id = a[2], good[2].src_lcl_vbg_id = a[1];
    good[2].dst_lcl_vbg_id = a[0], good[0].src_lcl_vbg_id = a[2];
#define TRY(_change, ...) \
    do { \
        memcpy(s, good, sizeof(good)); \
        _change; \
        CONF_CODE(utofu_set_vbg(s, 4), __VA_ARGS__); \
        CONF_CODE(utofu_barrier(a[0], 0), UTOFU_ERR_NOT_AVAILABLE); \
    } while (0)
    TRY(s[0].vbg_id = a[3]; s[3].vbg_id = a[0], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[2].vbg_id = b[2], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[2].vbg_id = a[1], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[0].vbg_id = far[1 - conf_rank][0], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[2].vbg_id = UTOFU_VBG_ID_NULL, UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[1].src_lcl_vbg_id = other[1], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[1].dst_lcl_vbg_id = other[1], UTOFU_ERR_INVALID_VBG_ID);
    /* nor is it the number of the gate alone that it must not have */
    TRY(s[2].src_lcl_vbg_id = other[1], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[2].dst_lcl_vbg_id = other[1], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[1].dst_lcl_vbg_id = far[1 - conf_rank][2], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[1].dst_lcl_vbg_id = a[1], UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[3].src_rmt_vbg_id = 12345, UTOFU_ERR_INVALID_VBG_ID);
    TRY(s[3].dst_rmt_vbg_id = 12345, UTOFU_ERR_INVALID_VBG_ID);
    for (i = 0; i < 3; i++) {
        TRY(s[3].dst_rmt_vbg_id = far[1 - conf_rank][1];
            memset(s[3].dst_path_coords, 0, 3);
            s[3].dst_path_coords[i] = (i == 1) ? 3 : 2,
            UTOFU_ERR_INVALID_PATH);
    }
    memcpy(s, good, sizeof(good));
    s[4] = s[3];
    CONF_CODE(utofu_set_vbg(s, 5), UTOFU_ERR_INVALID_NUMBER);
    CONF_CODE(utofu_set_vbg(s, 0), UTOFU_ERR_INVALID_NUMBER);
    CONF_CODE(utofu_set_vbg(NULL, 1), UTOFU_ERR_INVALID_POINTER);
    /* a part of them, the relays in another order, every path, any remote */
    s[1] = good[2];
    s[2] = good[1];
    CONF_OK(utofu_set_vbg(s, 3));
    CONF_OK(utofu_barrier(a[0], 0));
    CONF_OK(circuit_wait(a[0]));
    for (i = 0; i < 12; i++) {
        memcpy(s, good, sizeof(good));
        s[3].dst_rmt_vbg_id     = far[1 - conf_rank][1];
        s[3].dst_path_coords[0] = i / 6;
        s[3].dst_path_coords[1] = i / 2 % 3;
        s[3].dst_path_coords[2] = i % 2;
        CONF_OK(utofu_set_vbg(s, 4));
        CONF_OK(utofu_barrier(a[0], 0));
        CONF_OK(circuit_wait(a[0]));
    }
    conf_barrier();
    CONF_OK(utofu_free_vbg(a, 4));
    CONF_OK(utofu_free_vbg(b, 4));
    CONF_OK(utofu_free_vbg(other, 2));
}

CONF_TEST("3.4.4.1", vbg_every_path, 2,
          "packets go by each of the 12 paths, and by one that the library chooses where A is UTOFU_PATH_COORD_NULL, "
          "whatever B and C are")
{
    static const uint8_t     chosen[][2] = {{0, 0}, {3, 2}, {9, 77}, {UTOFU_PATH_COORD_NULL, UTOFU_PATH_COORD_NULL}};
    static struct circuit    c;
    struct utofu_vbg_setting s[CIRCUIT_GATES];
    uint64_t                 sum;
    unsigned                 n;
    int                      g;

    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    circuit_settings(&c, conf_rank, s);
    for (n = 0; n < 12 + CONF_LEN(chosen); n++) {
        for (g = 0; g < c.plan.gates[conf_rank]; g++) {
            s[g].dst_path_coords[0] = (n < 12) ? n / 6 : UTOFU_PATH_COORD_NULL;
            s[g].dst_path_coords[1] = (n < 12) ? n / 2 % 3 : chosen[n - 12][0];
            s[g].dst_path_coords[2] = (n < 12) ? n % 2 : chosen[n - 12][1];
        }
        CONF_OK(utofu_set_vbg(s, c.plan.gates[conf_rank]));
        conf_barrier();
        sum = (uint64_t)conf_rank + 5;
        CONF_OK(utofu_reduce_uint64(s[0].vbg_id, UTOFU_REDUCE_OP_SUM, &sum, 1, 0));
        CONF_OK(circuit_wait_uint64(s[0].vbg_id, &sum));
        CONF_CHECK(sum == 11, "path %u: the sum is %" PRIu64, n, sum);
        conf_barrier();
    }
    circuit_close(&c);
}

CONF_TEST("3.4.2.1", vbg_set_again, 4,
          "when gates are set several times the last setting counts")
{
    static struct circuit    c;
    struct utofu_vbg_setting s[CIRCUIT_GATES];
    int                      i;

    plan_butterfly(&c.plan, conf_procs);
    circuit_open(&c, 0, 0);
    circuit_barrier(&c);
    conf_barrier();
    /* first nonsense: the start gate waits for nobody */
    circuit_settings(&c, conf_rank, s);
    s[0].src_lcl_vbg_id = s[0].src_rmt_vbg_id = UTOFU_VBG_ID_NULL;
    CONF_OK(utofu_set_vbg(s, c.plan.gates[conf_rank]));
    conf_barrier();
    circuit_set(&c);
    conf_barrier();
    for (i = 0; i < 20; i++) {
        circuit_barrier(&c);
    }
    /* another circuit of the same gates: the ranks in reverse */
    conf_barrier();
    for (i = 0; i < 2; i++) {
        utofu_vbg_id_t swap[CIRCUIT_GATES];
        memcpy(swap, c.id[i], sizeof(swap));
        memcpy(c.id[i], c.id[3 - i], sizeof(swap));
        memcpy(c.id[3 - i], swap, sizeof(swap));
    }
    circuit_settings(&c, 3 - conf_rank, s);
    CONF_OK(utofu_set_vbg(s, c.plan.gates[3 - conf_rank]));
    conf_barrier();
    for (i = 0; i < 20; i++) {
        uint64_t data = 1u << conf_rank;
        CONF_OK(utofu_reduce_uint64(s[0].vbg_id, UTOFU_REDUCE_OP_SUM, &data, 1,
                                    0));
        CONF_OK(circuit_wait_uint64(s[0].vbg_id, &data));
        CONF_CHECK(data == 15, "sum %" PRIu64, data);
    }
    conf_barrier();
    for (i = 0; i < c.plan.gates[3 - conf_rank]; i++) {
        c.id[3 - conf_rank][i] = s[i].vbg_id;
    }
    CONF_OK(utofu_free_vbg(c.id[3 - conf_rank], c.plan.gates[3 - conf_rank]));
}

CONF_TEST("3.4.1.2", vbg_after_fork, 1,
          "a child has none of its parent's gates, and leaves them alone when "
          "it ends")
{
    utofu_vbg_id_t ids[3];
    static struct circuit c;
    pid_t          pid;
    int            status;

    plan_tree(&c.plan, 1);
    c.plan.packet[0][0] = 0;
    circuit_open(&c, 0, 0);
    circuit_barrier(&c);
    pid = fork();
    if (pid == 0) {
        CONF_CODE(utofu_barrier(c.id[0][0], 0), UTOFU_ERR_INVALID_VBG_ID);
        CONF_CODE(utofu_poll_barrier(c.id[0][0], 0), UTOFU_ERR_INVALID_VBG_ID);
        CONF_CODE(utofu_free_vbg(c.id[0], 1), UTOFU_ERR_INVALID_VBG_ID);
        CONF_OK(utofu_alloc_vbg(circuit_tni(0), 3, 0, ids));
        exit(0);
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0),
               "the child ended with 0x%x", status);
    circuit_barrier(&c);
    circuit_close(&c);
}
