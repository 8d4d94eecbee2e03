/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_path.c - communication paths: in VCQ IDs (3.3.2.3), as path IDs (3.5),
 * and in the flags of an operation (3.7.9.2).
 */
#include "harness.h"

#include <inttypes.h>

#define PATHS 12

static void path_of(unsigned n, uint8_t path[3])
{
    path[0] = n / 6;
    path[1] = n / 2 % 3;
    path[2] = n % 2;
}

CONF_TEST("3.5.1.1", path_id_round_trip, 2,
          "all 12 path coordinates have distinct path IDs for a VCQ ID, and "
          "come back from utofu_get_path_coords")
{
    struct conf_vcq vcq;
    utofu_path_id_t ids[PATHS];
    uint8_t         path[3], back[4];
    unsigned        n, m, r;

    conf_vcq_open(&vcq, 0, 0);
    for (r = 0; r < 2; r++) {
        for (n = 0; n < PATHS; n++) {
            path_of(n, path);
            CONF_OK(utofu_get_path_id(vcq.peer[r], path, &ids[n]));
            for (m = 0; m < n; m++) {
                CONF_CHECK(ids[m] != ids[n], "paths %u and %u have ID %d", m, n,
                           ids[n]);
            }
            memset(back, 0xee, sizeof(back));
            CONF_OK(utofu_get_path_coords(vcq.peer[r], ids[n], back));
            CONF_CHECK((memcmp(back, path, 3) == 0) && (back[3] == 0xee),
                       "path %u came back as %d %d %d", n, back[0], back[1],
                       back[2]);
        }
        /* NULL lets the library choose; what it chose is a path. */
        CONF_OK(utofu_get_path_id(vcq.peer[r], NULL, &ids[0]));
        CONF_OK(utofu_get_path_coords(vcq.peer[r], ids[0], back));
        CONF_CHECK((back[0] < 2) && (back[1] < 3) && (back[2] < 2),
                   "chosen path %d %d %d", back[0], back[1], back[2]);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.5.1.1", path_id_of_id_with_path, 1,
          "a VCQ ID with another default path has path IDs as well")
{
    struct conf_vcq vcq;
    utofu_vcq_id_t  id;
    utofu_path_id_t path_id;
    uint8_t         path[3], other[3], back[3];
    unsigned        n;

    conf_vcq_create(&vcq, 0, 0);
    for (n = 0; n < PATHS; n++) {
        id = vcq.id;
        path_of(n, path);
        CONF_OK(utofu_set_vcq_id_path(&id, path));
        path_of(PATHS - 1 - n, other);
        CONF_OK(utofu_get_path_id(id, other, &path_id));
        CONF_OK(utofu_get_path_coords(id, path_id, back));
        CONF_CHECK(memcmp(back, other, 3) == 0, "path %u came back wrong", n);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.3.2.3", set_path_changes_only_the_path, 2,
          "an ID with another default path names the same VCQ; the last path "
          "set counts; the node's own A, B, C gives the ID of the query back")
{
    struct conf_vcq vcq;
    utofu_vcq_id_t  id;
    uint8_t         coords[6], own[6], path[3];
    utofu_tni_id_t  tni;
    utofu_cq_id_t   cq, own_cq;
    uint16_t        extra;
    unsigned        n, r;

    conf_vcq_open(&vcq, 0, 0);
    for (r = 0; r < 2; r++) {
        CONF_OK(utofu_query_vcq_info(vcq.peer[r], own, &tni, &own_cq, &extra));
        id = vcq.peer[r];
        for (n = 0; n < PATHS; n++) {
            path_of(n, path);
            CONF_OK(utofu_set_vcq_id_path(&id, path));
            CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
            CONF_CHECK((memcmp(coords, own, 6) == 0) && (tni == vcq.tni) &&
                               (cq == own_cq),
                       "path %u changed which VCQ the ID names", n);
            CONF_CHECK((id == vcq.peer[r]) == (memcmp(path, own + 3, 3) == 0),
                       "path %u: ID 0x%" PRIx64 ", default 0x%" PRIx64, n, id,
                       vcq.peer[r]);
        }
        CONF_OK(utofu_set_vcq_id_path(&id, own + 3));
        CONF_CHECK(id == vcq.peer[r], "the default path was not restored");
        CONF_OK(utofu_set_vcq_id_path(&id, NULL));
        CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
        CONF_CHECK(memcmp(coords, own, 6) == 0, "a chosen path moved the VCQ");
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.5.1.1", path_errors, 1,
          "path coordinates that do not exist are INVALID_PATH, VCQ IDs that "
          "cannot be INVALID_VCQ_ID, null pointers INVALID_POINTER")
{
    struct conf_vcq vcq;
    utofu_vcq_id_t  id;
    utofu_path_id_t path_id;
    uint8_t         path[3] = {0, 0, 0};
    size_t          i;

    static const uint8_t limits[3] = {2, 3, 2};

    conf_vcq_create(&vcq, 0, 0);
    id = vcq.id;
    for (i = 0; i < 3; i++) {
        path[i] = limits[i];
        CONF_CODE(utofu_get_path_id(vcq.id, path, &path_id),
                  UTOFU_ERR_INVALID_PATH, UTOFU_ERR_INVALID_COORDS);
        CONF_CODE(utofu_set_vcq_id_path(&id, path), UTOFU_ERR_INVALID_PATH,
                  UTOFU_ERR_INVALID_COORDS);
        CONF_CHECK(id == vcq.id, "a refused path was set");
        path[i] = 0;
    }
    CONF_CODE(utofu_get_path_id(UINT64_MAX, path, &path_id),
              UTOFU_ERR_INVALID_VCQ_ID);
    CONF_CODE(utofu_get_path_id(vcq.id, path, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_OK(utofu_get_path_id(vcq.id, path, &path_id));
    CONF_CODE(utofu_get_path_coords(UINT64_MAX, path_id, path),
              UTOFU_ERR_INVALID_VCQ_ID);
    CONF_CODE(utofu_get_path_coords(vcq.id, path_id, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_get_path_coords(vcq.id, 255, path),
              UTOFU_ERR_INVALID_PATH_ID);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7.9.2", puts_on_every_path, 2,
          "an operation works on every path, whether the VCQ ID or the flags "
          "give it; notices name the peer with its default path all the same")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_vcq_id_t          id;
    utofu_path_id_t         path_id;
    utofu_stadd_t           stadds[2];
    uint64_t                words[2 * PATHS];
    unsigned long           flags;
    uint8_t                 path[3];
    unsigned                n;

    memset(words, 0, sizeof(words));
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    conf_barrier();
    for (n = 0; n < 2 * PATHS; n++) {
        if (conf_rank == 1) {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[0], n,
                            &notice);
            CONF_CHECK(words[n] == n + 1, "put %u brought %" PRIu64, n,
                       words[n]);
            continue;
        }
        path_of(n % PATHS, path);
        id    = vcq.peer[1];
        flags = CONF_LMRQ | CONF_RMRQ;
        if (n < PATHS) {
            CONF_OK(utofu_set_vcq_id_path(&id, path));
        } else {
            CONF_OK(utofu_get_path_id(id, path, &path_id));
            flags |= UTOFU_ONESIDED_FLAG_PATH(path_id);
        }
        words[n] = n + 1;
        CONF_OK(utofu_put(vcq.hdl, id, stadds[0] + n * 8, stadds[1] + n * 8, 8,
                          n, flags, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], n, &notice);
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.9.2.1", coords_of_a_far_node, 1,
          "X, Y, Z, A, B, C of the node are those that its VCQ IDs and VBG IDs have (emulator: that node's)")
{
    static const uint8_t want[6] = {3, 5, 7, 1, 2, 0};
    struct conf_vcq      vcq;
    utofu_vbg_id_t       gate;
    utofu_bg_id_t        bg;
    utofu_tni_id_t       tni;
    utofu_cq_id_t        cq;
    uint16_t             extra;
    uint8_t              mine[6], coords[6];

    CONF_CHECK(setenv("UTOFU_EMU_COORDS", "3,5,7,1,2,0", 1) == 0, "setenv");
    CONF_OK(utofu_query_my_coords(mine));
    CONF_CHECK(!conf_is_emulator() || !memcmp(mine, want, 6), "coordinates of this node");
    conf_vcq_create(&vcq, 0, 0);
    CONF_OK(utofu_query_vcq_info(vcq.id, coords, &tni, &cq, &extra));
    CONF_CHECK(!memcmp(mine, coords, 6), "coordinates in the VCQ ID");
    CONF_OK(utofu_alloc_vbg(conf_tni(0), 1, 0, &gate));
    CONF_OK(utofu_query_vbg_info(gate, coords, &tni, &bg, &extra));
    CONF_CHECK(!memcmp(mine, coords, 6), "coordinates in the VBG ID");
    CONF_OK(utofu_free_vbg(&gate, 1));
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7.9.2", path_id_everywhere, 1,
          "a path ID that utofu_get_path_id does not make is INVALID_PATH_ID for every function with flags")
{
    struct conf_vcq vcq;
    utofu_stadd_t   at;
    uint64_t        words[8], desc[16];
    unsigned long   flags = UTOFU_ONESIDED_FLAG_PATH(0x86); /* the emulator's tag, and B is 3 */
    size_t          size;

    if (!conf_is_emulator()) {
        conf_skip("which IDs are none is not said");
    }
    conf_vcq_create(&vcq, 0, 0);
    at = conf_reg(&vcq, words, sizeof(words), 0);
    CONF_CODE(utofu_put(vcq.hdl, vcq.id, at, at + 8, 8, 0, flags, NULL), UTOFU_ERR_INVALID_PATH_ID);
    CONF_CODE(utofu_put_gap(vcq.hdl, vcq.id, at, at + 8, 8, 0, flags, 1, 1, NULL), UTOFU_ERR_INVALID_PATH_ID);
    CONF_CODE(utofu_get_stride(vcq.hdl, vcq.id, at, at + 8, 8, 8, 1, 0, flags, NULL), UTOFU_ERR_INVALID_PATH_ID);
    CONF_CODE(utofu_prepare_put(vcq.hdl, vcq.id, at, at + 8, 8, 0, flags, desc, &size), UTOFU_ERR_INVALID_PATH_ID);
    CONF_CODE(utofu_prepare_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 1, at, 0, flags, desc, &size),
              UTOFU_ERR_INVALID_PATH_ID);
    conf_dereg(&vcq, at);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.7", path_in_flags_is_the_path, 2,
          "operations with one path in their flags are on one path, whatever the paths in their VCQ IDs: their notices "
          "come in the order of the posts")
{
    enum { NUM = 1200 };
    struct conf_vcq         vcq;
    struct utofu_mrq_notice n;
    static unsigned char    area[8192];
    utofu_stadd_t           stadds[2];
    utofu_vcq_id_t          to;
    utofu_path_id_t         path;
    uint8_t                 p[3] = {1, 1, 1}, q[3];
    unsigned                i;

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, area, sizeof(area), stadds);
    for (i = 0; i < NUM; i++) {
        if (conf_rank == 0) {
            to   = vcq.peer[1];
            q[0] = i % 2;
            q[1] = i / 2 % 3;
            q[2] = i / 6 % 2;
            CONF_OK(utofu_set_vcq_id_path(&to, q));
            CONF_OK(utofu_get_path_id(to, p, &path));
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, to, stadds[0], stadds[1], (i % 5) ? 8 : sizeof(area), i % 256,
                                         CONF_LMRQ | CONF_RMRQ | UTOFU_ONESIDED_FLAG_PATH(path), NULL));
        }
        if (i % 12 == 11) {
            for (unsigned k = i - 11; k <= i; k++) {
                CONF_OK(CONF_WAIT_MRQ(&vcq, &n));
                CONF_CHECK(n.edata == k % 256, "notice %u has EDATA %" PRIu64, k, n.edata);
            }
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
