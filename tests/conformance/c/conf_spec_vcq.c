/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_spec_vcq.c - types and codes (3.1), who owns the memory of queries (3.2),
 * VCQ IDs and their paths (3.3, 3.5), and what every posting function does when
 * the TOQ is full (3.7).
 */
#include "harness.h"

#include <inttypes.h>

CONF_TEST("3.1.1.1", widths_of_types, 1,
          "IDs of TNIs, CQs, gates and components have 16 bits, path IDs 8, "
          "VCQ IDs, VBG IDs and STADDs 64, handles as many as pointers; all "
          "are unsigned")
{
#define CHECK_TYPE(_type, _size) \
    CONF_CHECK((sizeof(_type) == (_size)) && ((_type)-1 > (_type)0), \
               #_type " has %zu bytes, or a sign", sizeof(_type))
    CHECK_TYPE(utofu_tni_id_t, 2);
    CHECK_TYPE(utofu_cq_id_t, 2);
    CHECK_TYPE(utofu_bg_id_t, 2);
    CHECK_TYPE(utofu_cmp_id_t, 2);
    CHECK_TYPE(utofu_vcq_hdl_t, sizeof(void *));
    CHECK_TYPE(utofu_vcq_id_t, 8);
    CHECK_TYPE(utofu_vbg_id_t, 8);
    CHECK_TYPE(utofu_path_id_t, 1);
    CHECK_TYPE(utofu_stadd_t, 8);
}

CONF_TEST("3.1.2.1", codes_are_negative, 1,
          "SUCCESS is 0; all other codes are negative and different from each "
          "other")
{
    static const int codes[] = {
        UTOFU_ERR_NOT_FOUND, UTOFU_ERR_NOT_COMPLETED, UTOFU_ERR_NOT_PROCESSED,
        UTOFU_ERR_BUSY, UTOFU_ERR_USED, UTOFU_ERR_FULL,
        UTOFU_ERR_NOT_AVAILABLE, UTOFU_ERR_NOT_SUPPORTED, UTOFU_ERR_TCQ_OTHER,
        UTOFU_ERR_TCQ_DESC, UTOFU_ERR_TCQ_MEMORY, UTOFU_ERR_TCQ_STADD,
        UTOFU_ERR_TCQ_LENGTH, UTOFU_ERR_MRQ_OTHER, UTOFU_ERR_MRQ_PEER,
        UTOFU_ERR_MRQ_LCL_MEMORY, UTOFU_ERR_MRQ_RMT_MEMORY,
        UTOFU_ERR_MRQ_LCL_STADD, UTOFU_ERR_MRQ_RMT_STADD,
        UTOFU_ERR_MRQ_LCL_LENGTH, UTOFU_ERR_MRQ_RMT_LENGTH,
        UTOFU_ERR_BARRIER_OTHER, UTOFU_ERR_BARRIER_MISMATCH,
        UTOFU_ERR_INVALID_ARG, UTOFU_ERR_INVALID_POINTER,
        UTOFU_ERR_INVALID_FLAGS, UTOFU_ERR_INVALID_COORDS,
        UTOFU_ERR_INVALID_PATH, UTOFU_ERR_INVALID_TNI_ID,
        UTOFU_ERR_INVALID_CQ_ID, UTOFU_ERR_INVALID_BG_ID,
        UTOFU_ERR_INVALID_CMP_ID, UTOFU_ERR_INVALID_VCQ_HDL,
        UTOFU_ERR_INVALID_VCQ_ID, UTOFU_ERR_INVALID_VBG_ID,
        UTOFU_ERR_INVALID_PATH_ID, UTOFU_ERR_INVALID_STADD,
        UTOFU_ERR_INVALID_ADDRESS, UTOFU_ERR_INVALID_SIZE,
        UTOFU_ERR_INVALID_STAG, UTOFU_ERR_INVALID_EDATA,
        UTOFU_ERR_INVALID_NUMBER, UTOFU_ERR_INVALID_OP, UTOFU_ERR_INVALID_DESC,
        UTOFU_ERR_INVALID_DATA, UTOFU_ERR_OUT_OF_RESOURCE,
        UTOFU_ERR_OUT_OF_MEMORY, UTOFU_ERR_FATAL,
    };
    size_t i, j;

    CONF_CHECK(UTOFU_SUCCESS == 0, "SUCCESS is %d", UTOFU_SUCCESS);
    for (i = 0; i < CONF_LEN(codes); i++) {
        CONF_CHECK(codes[i] < 0, "code %zu is %d", i, codes[i]);
        for (j = 0; j < i; j++) {
            CONF_CHECK(codes[i] != codes[j], "codes %zu and %zu are %d", i, j,
                       codes[i]);
        }
    }
}

/* ---------------------------------------------------------------- 3.2: TNIs */

CONF_TEST("3.2.1.1", tni_array_is_the_callers, 1,
          "the arrays of utofu_get_onesided_tnis and utofu_get_barrier_tnis "
          "belong to the caller: what is written to one shows in no other")
{
    int (*const functions[])(utofu_tni_id_t **, size_t *) = {
        utofu_get_onesided_tnis, utofu_get_barrier_tnis,
    };
    utofu_tni_id_t *a, *b;
    size_t          num_a, num_b, f, i;

    for (f = 0; f < CONF_LEN(functions); f++) {
        a = b = NULL;
        CONF_OK(functions[f](&a, &num_a));
        CONF_OK(functions[f](&b, &num_b));
        CONF_CHECK(num_a == num_b, "%zu TNIs, then %zu", num_a, num_b);
        CONF_CHECK((num_a == 0) || (a != b), "the same array twice");
        for (i = 0; i < num_a; i++) {
            CONF_CHECK(a[i] == b[i], "TNI %d, then %d", a[i], b[i]);
            a[i] = UINT16_MAX;
        }
        for (i = 0; i < num_b; i++) {
            CONF_CHECK(b[i] != UINT16_MAX, "the second array changed");
        }
        free(a);
        free(b);
        CONF_OK(functions[f](&b, &num_b));
        for (i = 0; i < num_b; i++) {
            CONF_CHECK(b[i] < 6, "TNI %d after the array was overwritten",
                       b[i]);
        }
        free(b);
    }
}

CONF_TEST("3.2.1.3", caps_stay, 1,
          "what utofu_query_onesided_caps gave is still there, unchanged, after "
          "VCQs were made and freed on the TNI")
{
    const struct utofu_onesided_caps *caps = conf_caps();
    struct utofu_onesided_caps        before = *caps, *again;
    struct conf_vcq                   vcq;
    int                               i;

    for (i = 0; i < 20; i++) {
        conf_vcq_create(&vcq, 0, 0);
        conf_vcq_close(&vcq);
    }
    CONF_OK(utofu_query_onesided_caps(conf_tni(0), &again));
    CONF_CHECK(memcmp(caps, &before, sizeof(before)) == 0, "they changed");
    CONF_CHECK(memcmp(again, &before, sizeof(before)) == 0,
               "a new query gives something else");
}

CONF_TEST("3.2.1.4", barrier_caps_arguments, 1,
          "utofu_query_barrier_caps answers for the TNIs of "
          "utofu_get_barrier_tnis only, and needs a place for the answer")
{
    utofu_tni_id_t            *ids = NULL;
    struct utofu_barrier_caps *caps, *again;
    size_t                     num, i;

    CONF_OK(utofu_get_barrier_tnis(&ids, &num));
    if (num == 0) {
        conf_skip("no TNI can do barriers");
    }
    for (i = 0; i < num; i++) {
        CONF_OK(utofu_query_barrier_caps(ids[i], &caps));
        CONF_OK(utofu_query_barrier_caps(ids[i], &again));
        CONF_CHECK(memcmp(caps, again, sizeof(*caps)) == 0, "TNI %d: two "
                   "queries differ", ids[i]);
    }
    CONF_CODE(utofu_query_barrier_caps(6, &caps), UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_query_barrier_caps(UINT16_MAX, &caps),
              UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_query_barrier_caps(ids[0], NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_get_barrier_tnis(NULL, &num), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_get_barrier_tnis(&ids, NULL), UTOFU_ERR_INVALID_POINTER);
    free(ids);
}

/* ------------------------------------------------- 3.3, 3.5: IDs and paths */

CONF_TEST("3.3.2.1", queried_id_has_own_path, 1,
          "utofu_query_vcq_id gives the same ID each time; its default path is "
          "the node's own A, B, C, on every TNI")
{
    struct conf_vcq vcq;
    utofu_vcq_id_t  id, again;
    uint8_t         coords[6];
    size_t          t;

    CONF_OK(utofu_query_my_coords(coords));
    for (t = 0; t < conf_num_tnis(); t++) {
        conf_vcq_create(&vcq, t, 0);
        id = vcq.id;
        CONF_OK(utofu_set_vcq_id_path(&id, coords + 3));
        CONF_CHECK(id == vcq.id, "TNI %d: the ID 0x%" PRIx64 " has another "
                   "path than A, B, C", vcq.tni, vcq.id);
        coords[3] ^= 1;
        CONF_OK(utofu_set_vcq_id_path(&id, coords + 3));
        CONF_CHECK(id != vcq.id, "another A gives the same ID");
        coords[3] ^= 1;
        CONF_OK(utofu_query_vcq_id(vcq.hdl, &again));
        CONF_CHECK(again == vcq.id, "the ID changed");
        conf_vcq_close(&vcq);
    }
}

CONF_TEST("3.3.2.3", set_path_is_local, 2,
          "a path that is set in one variable shows in no copy of the ID, in "
          "no later query and at no peer")
{
    struct conf_vcq vcq;
    utofu_vcq_id_t  id, copy, again, ids[2];
    uint8_t         coords[6];

    conf_vcq_open(&vcq, 0, 0);
    CONF_OK(utofu_query_my_coords(coords));
    coords[4] = (coords[4] + 1) % 3;
    id = copy = vcq.id;
    CONF_OK(utofu_set_vcq_id_path(&id, coords + 3));
    CONF_CHECK((id != copy) && (copy == vcq.id), "a copy changed, or nothing");
    CONF_OK(utofu_query_vcq_id(vcq.hdl, &again));
    CONF_CHECK(again == vcq.id, "the VCQ has another ID now");
    conf_exchange(&again, sizeof(again), ids);
    CONF_CHECK(ids[1 - conf_rank] == vcq.peer[1 - conf_rank],
               "the peer's VCQ has another ID now");
    conf_vcq_close(&vcq);
}

CONF_TEST("3.5.1.1", chosen_path_works, 2,
          "NULL for the path chooses one that exists, in utofu_set_vcq_id_path "
          "and utofu_get_path_id, and puts arrive on it")
{
    struct conf_vcq vcq;
    utofu_path_id_t path_id;
    utofu_vcq_id_t  id;
    utofu_stadd_t   stadds[2];
    uint64_t        words[4] = {0, 0, 0, 0};
    uint8_t         path[3];
    int             r;

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    for (r = 0; r < 2; r++) {
        CONF_OK(utofu_get_path_id(vcq.peer[r], NULL, &path_id));
        CONF_OK(utofu_get_path_coords(vcq.peer[r], path_id, path));
        CONF_CHECK((path[0] < 2) && (path[1] < 3) && (path[2] < 2),
                   "the chosen path is %d, %d, %d", path[0], path[1], path[2]);
    }
    if (conf_rank == 0) {
        words[0] = 11;
        CONF_OK(utofu_get_path_id(vcq.peer[1], NULL, &path_id));
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1] + 8, 8, 1,
                          CONF_LMRQ | UTOFU_ONESIDED_FLAG_PATH(path_id), NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 1, NULL);
        id = vcq.peer[1];
        CONF_OK(utofu_set_vcq_id_path(&id, NULL));
        CONF_OK(utofu_put(vcq.hdl, id, stadds[0], stadds[1] + 16, 8, 2,
                          CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 2, NULL);
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || ((words[1] == 11) && (words[2] == 11)),
               "the puts brought %" PRIu64 " and %" PRIu64, words[1], words[2]);
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7", path_in_flags_and_id, 2,
          "a path ID made for an ID with an embedded path goes with that ID; a "
          "put with both arrives once")
{
    struct conf_vcq vcq;
    utofu_path_id_t path_id;
    utofu_vcq_id_t  id;
    utofu_stadd_t   stadds[2];
    uint64_t        word = 0;
    uint8_t         embedded[3] = {1, 0, 1}, given[3] = {0, 2, 0};

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    if (conf_rank == 0) {
        id = vcq.peer[1];
        CONF_OK(utofu_set_vcq_id_path(&id, embedded));
        CONF_OK(utofu_get_path_id(id, given, &path_id));
        CONF_OK(utofu_armw8(vcq.hdl, id, UTOFU_ARMW_OP_ADD, 5, stadds[1], 3,
                            CONF_LMRQ | UTOFU_ONESIDED_FLAG_PATH(path_id),
                            NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 3, NULL);
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (word == 5), "the word is %" PRIu64, word);
    CONF_EXPECT_QUIET(&vcq);
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------- 3.7: a full TOQ */

CONF_TEST("3.7.1.1", busy_of_every_function, 1,
          "every posting function answers BUSY while the TOQ is full, does "
          "nothing then, and is taken after utofu_poll_tcq")
{
    enum { MOST = 1 << 20, FUNCTIONS = 11 };
    struct conf_vcq vcq;
    uint64_t        words[10] = {0};
    utofu_stadd_t   at;
    void           *cbdata;
    long            n, f;
    int             rc = UTOFU_SUCCESS, round;

    conf_vcq_create(&vcq, 0, 0);
    at = conf_reg(&vcq, words, sizeof(words), 0);
    for (n = 0; (n < MOST) && (rc == UTOFU_SUCCESS); n++) {
        rc = CONF_CODE(utofu_nop(vcq.hdl, CONF_TCQ, CONF_PTR(1)), UTOFU_SUCCESS,
                       UTOFU_ERR_BUSY);
    }
    CONF_CHECK(rc == UTOFU_ERR_BUSY, "never BUSY");
    n--;
    words[0] = 9;
    for (round = 0; round < 2; round++) {
        for (f = 0; f < FUNCTIONS; f++) {
            const int codes[FUNCTIONS] = {
#define WHEN(_f, _call) (f == (_f)) ? (_call) : 0
                WHEN(0, utofu_put(vcq.hdl, vcq.id, at, at + 8, 8, 0, CONF_TCQ,
                                  CONF_PTR(f + 10))),
                WHEN(1, utofu_put_piggyback(vcq.hdl, vcq.id, words, at + 16, 8,
                                            0, CONF_TCQ, CONF_PTR(f + 10))),
                WHEN(2, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, at + 24, 8, 0,
                                             CONF_TCQ, CONF_PTR(f + 10))),
                WHEN(3, utofu_get(vcq.hdl, vcq.id, at + 32, at, 8, 0, CONF_TCQ,
                                  CONF_PTR(f + 10))),
                WHEN(4, utofu_armw4(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 9,
                                    at + 40, 0, CONF_TCQ, CONF_PTR(f + 10))),
                WHEN(5, utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 9,
                                    at + 48, 0, CONF_TCQ, CONF_PTR(f + 10))),
                WHEN(6, utofu_cswap4(vcq.hdl, vcq.id, 0, 9, at + 56, 0,
                                     CONF_TCQ, CONF_PTR(f + 10))),
                WHEN(7, utofu_cswap8(vcq.hdl, vcq.id, 9, 19, at + 56, 0,
                                     CONF_TCQ, CONF_PTR(f + 10))),
                WHEN(8, utofu_nop(vcq.hdl, CONF_TCQ, CONF_PTR(f + 10))),
                WHEN(9, utofu_put_gap(vcq.hdl, vcq.id, at, at + 64, 8, 0, CONF_TCQ,
                                      conf_caps()->max_mtu, 1, CONF_PTR(f + 10))),
                WHEN(10, utofu_get_gap(vcq.hdl, vcq.id, at + 72, at, 8, 0, CONF_TCQ,
                                       conf_caps()->max_mtu, 1, CONF_PTR(f + 10))),
            };
            CONF_CHECK(codes[f] == ((round == 0) ? UTOFU_ERR_BUSY : 0),
                       "function %ld: %s", f, conf_code_name(codes[f]));
        }
        for (; (n > 0) && (round == 0); n--) {
            CONF_EXPECT_TCQ(&vcq, CONF_PTR(1));
        }
        CONF_CHECK((round == 1) ||
                           (utofu_poll_tcq(vcq.hdl, 0, &cbdata) ==
                            UTOFU_ERR_NOT_FOUND), "a refused post completed");
        for (f = 1; (f < 10) && (round == 0); f++) {
            CONF_CHECK(words[f] == 0, "a refused post changed word %ld", f);
        }
    }
    for (f = 0; f < FUNCTIONS; f++) {
        CONF_EXPECT_TCQ(&vcq, CONF_PTR(f + 10));
    }
    conf_dereg(&vcq, at);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.3.4.1", shared_after_exclusive, 1,
          "VCQs that are made after an EXCLUSIVE one are not on its CQ either")
{
    utofu_vcq_hdl_t exclusive, shared[20];
    utofu_vcq_id_t  id;
    utofu_tni_id_t  tni;
    utofu_cq_id_t   cq, other;
    uint16_t        extra;
    uint8_t         coords[6];
    int             n;

    CONF_CHECK(setenv("UTOFU_NUM_EXCLUSIVE_CQS", "1", 1) == 0, "setenv");
    CONF_OK(utofu_create_vcq(conf_tni(0), UTOFU_VCQ_FLAG_EXCLUSIVE, &exclusive));
    CONF_OK(utofu_query_vcq_id(exclusive, &id));
    CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
    for (n = 0; n < 20; n++) {
        if (utofu_create_vcq(conf_tni(0), 0, &shared[n]) != UTOFU_SUCCESS) {
            break;
        }
        CONF_OK(utofu_query_vcq_id(shared[n], &id));
        CONF_OK(utofu_query_vcq_info(id, coords, &tni, &other, &extra));
        CONF_CHECK(other != cq, "VCQ %d is on the CQ of an exclusive one", n);
    }
    while (n > 0) {
        CONF_OK(utofu_free_vcq(shared[--n]));
    }
    CONF_OK(utofu_free_vcq(exclusive));
}

CONF_TEST("6.1.2", full_and_cq_limit, 1, "no more plain VCQs is FULL; CQ IDs are 0 to 8 (emulator)")
{
    static utofu_vcq_hdl_t hdl[100];
    uint8_t                coords[6] = {0};
    utofu_vcq_id_t         id;
    int                    n, rc = UTOFU_SUCCESS;

    if (!conf_is_emulator()) {
        conf_skip("a machine may have more CQs than programs get");
    }
    CONF_CODE(utofu_construct_vcq_id(coords, 0, 9, 0, &id), UTOFU_ERR_INVALID_CQ_ID);
    for (n = 0; (n < 100) && (rc == UTOFU_SUCCESS); n++) {
        rc = CONF_CODE(utofu_create_vcq(conf_tni(0), 0, &hdl[n]), UTOFU_SUCCESS, UTOFU_ERR_FULL);
    }
    for (n -= 1; n > 0; n--) {
        CONF_OK(utofu_free_vcq(hdl[n - 1]));
    }
}
