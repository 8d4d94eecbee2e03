/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_vcq.c - creating and freeing VCQs and what their IDs say (3.3), and how
 * many there are (6.1.2).
 */
#include "harness.h"

#include <inttypes.h>

#define CQS      9 /* per TNI (table 6.2) */
#define CQ_VCQS  8 /* per CQ (table 6.3) */
#define TNI_VCQS (CQS * CQ_VCQS)

struct info {
    uint8_t        coords[6];
    utofu_tni_id_t tni;
    utofu_cq_id_t  cq;
    uint16_t       extra;
};

static struct info query_info(utofu_vcq_id_t id)
{
    struct info info;

    memset(&info, 0, sizeof(info));
    CONF_OK(utofu_query_vcq_info(id, info.coords, &info.tni, &info.cq,
                                 &info.extra));
    return info;
}

static utofu_vcq_id_t query_id(utofu_vcq_hdl_t hdl)
{
    utofu_vcq_id_t id;

    CONF_OK(utofu_query_vcq_id(hdl, &id));
    return id;
}

CONF_TEST("3.3.1.1", create_on_every_tni, 1,
          "a VCQ can be created and freed on every TNI, with no flag, "
          "THREAD_SAFE, and again after it was freed")
{
    utofu_vcq_hdl_t hdl;
    size_t          i;
    int             round;

    for (round = 0; round < 50; round++) {
        for (i = 0; i < conf_num_tnis(); i++) {
            CONF_OK(utofu_create_vcq(conf_tni(i),
                                     (round % 2) ? UTOFU_VCQ_FLAG_THREAD_SAFE :
                                                   0, &hdl));
            CONF_CHECK(query_info(query_id(hdl)).tni == conf_tni(i),
                       "the VCQ is not on TNI %d", conf_tni(i));
            CONF_OK(utofu_free_vcq(hdl));
        }
    }
}

CONF_TEST("2.2.1", ids_are_unique, 4,
          "handles are unique in the process and VCQ IDs in the network")
{
    enum { PER_TNI = 5, MAX = PER_TNI * 6 };
    utofu_vcq_hdl_t hdls[MAX];
    utofu_vcq_id_t  ids[MAX], all[4 * MAX];
    size_t          n = 0, i, j;

    memset(ids, 0, sizeof(ids));
    for (i = 0; i < conf_num_tnis() * PER_TNI; i++, n++) {
        CONF_OK(utofu_create_vcq(conf_tni(i), 0, &hdls[n]));
        ids[n] = query_id(hdls[n]);
        for (j = 0; j < n; j++) {
            CONF_CHECK(hdls[j] != hdls[n], "one handle for two VCQs");
        }
    }
    conf_exchange(ids, sizeof(ids), all);
    for (i = 0; i < CONF_LEN(all); i++) {
        for (j = 0; j < i; j++) {
            CONF_CHECK((i % MAX >= n) || (all[i] != all[j]),
                       "ranks %zu and %zu have VCQ ID 0x%" PRIx64, i / MAX,
                       j / MAX, all[i]);
        }
    }
    for (i = 0; i < n; i++) {
        CONF_OK(utofu_free_vcq(hdls[i]));
    }
}

CONF_TEST("6.1.2", shared_vcqs_per_tni, 1,
          "a TNI has 9 CQs with 8 VCQs each; one more is refused with FULL or "
          "NOT_AVAILABLE; freed ones can be had again; other TNIs are not "
          "concerned")
{
    utofu_vcq_hdl_t hdls[TNI_VCQS + 1], other;
    unsigned        per_cq[CQS] = {0};
    struct info     info;
    size_t          n, i;
    int             rc, round;

    CONF_CHECK(setenv("UTOFU_NUM_SESSION_MODE_CQS", "0", 1) == 0, "setenv");
    for (round = 0; round < 2; round++) {
        memset(per_cq, 0, sizeof(per_cq));
        for (n = 0; n <= TNI_VCQS; n++) {
            rc = CONF_CODE(utofu_create_vcq(conf_tni(0), 0, &hdls[n]),
                           UTOFU_SUCCESS, UTOFU_ERR_FULL,
                           UTOFU_ERR_NOT_AVAILABLE);
            if (rc != UTOFU_SUCCESS) {
                break;
            }
            info = query_info(query_id(hdls[n]));
            CONF_CHECK(info.cq < 12, "CQ ID %d", info.cq);
            if (info.cq < CQS) {
                per_cq[info.cq]++;
            }
        }
        CONF_CHECK((n == TNI_VCQS) || !conf_is_emulator(),
                   "%zu VCQs on one TNI, expected %d", n, TNI_VCQS);
        CONF_CHECK((n > 0) && (n <= TNI_VCQS), "%zu VCQs on one TNI", n);
        for (i = 0; i < CQS; i++) {
            CONF_CHECK(per_cq[i] <= CQ_VCQS, "%u VCQs on CQ %zu", per_cq[i], i);
        }
        if (conf_num_tnis() > 1) {
            CONF_OK(utofu_create_vcq(conf_tni(1), 0, &other));
            CONF_OK(utofu_free_vcq(other));
        }
        CONF_OK(utofu_free_vcq(hdls[n / 2]));
        CONF_OK(utofu_create_vcq(conf_tni(0), 0, &hdls[n / 2]));
        for (i = 0; i < n; i++) {
            CONF_OK(utofu_free_vcq(hdls[i]));
        }
    }
}

CONF_TEST("3.3.4.1", exclusive_vcqs, 1,
          "an EXCLUSIVE VCQ shares its CQ with no other VCQ; when no CQ is "
          "left it is refused with NOT_AVAILABLE or FULL")
{
    utofu_vcq_hdl_t hdls[CQS + 1], shared[4];
    struct info     info, other;
    size_t          n, i, j, num_shared;
    int             rc;

    CONF_CHECK(setenv("UTOFU_NUM_EXCLUSIVE_CQS", "9", 1) == 0, "setenv");
    CONF_CHECK(setenv("UTOFU_NUM_SESSION_MODE_CQS", "0", 1) == 0, "setenv");
    /* Some shared ones first: their CQ is taken. */
    for (num_shared = 0; num_shared < CONF_LEN(shared); num_shared++) {
        rc = CONF_CODE(utofu_create_vcq(conf_tni(0), 0, &shared[num_shared]),
                       UTOFU_SUCCESS, UTOFU_ERR_NOT_AVAILABLE, UTOFU_ERR_FULL);
        if (rc != UTOFU_SUCCESS) {
            break;
        }
    }
    for (n = 0; n <= CQS; n++) {
        rc = CONF_CODE(utofu_create_vcq(conf_tni(0), UTOFU_VCQ_FLAG_EXCLUSIVE,
                                        &hdls[n]),
                       UTOFU_SUCCESS, UTOFU_ERR_NOT_AVAILABLE, UTOFU_ERR_FULL);
        if (rc != UTOFU_SUCCESS) {
            break;
        }
    }
    CONF_CHECK(n > 0, "no exclusive VCQ although %d CQs were asked for", CQS);
    CONF_CHECK(n + (num_shared > 0) <= CQS, "%zu exclusive VCQs and %zu shared "
               "ones on %d CQs", n, num_shared, CQS);
    CONF_CHECK(!conf_is_emulator() || (n + (num_shared > 0) == CQS),
               "%zu exclusive VCQs and %zu shared ones on %d CQs", n,
               num_shared, CQS);
    for (i = 0; i < n; i++) {
        info = query_info(query_id(hdls[i]));
        for (j = 0; j < i; j++) {
            other = query_info(query_id(hdls[j]));
            CONF_CHECK(info.cq != other.cq,
                       "two exclusive VCQs are on CQ %d", info.cq);
        }
        for (j = 0; j < num_shared; j++) {
            other = query_info(query_id(shared[j]));
            CONF_CHECK(info.cq != other.cq,
                       "an exclusive and a shared VCQ are on CQ %d", info.cq);
        }
    }
    /* What is freed can be had again. */
    CONF_OK(utofu_free_vcq(hdls[0]));
    CONF_OK(utofu_create_vcq(conf_tni(0), UTOFU_VCQ_FLAG_EXCLUSIVE |
                             UTOFU_VCQ_FLAG_THREAD_SAFE, &hdls[0]));
    for (i = 0; i < n; i++) {
        CONF_OK(utofu_free_vcq(hdls[i]));
    }
    for (i = 0; i < num_shared; i++) {
        CONF_OK(utofu_free_vcq(shared[i]));
    }
}

CONF_TEST("3.3.1.2", component_ids, 1,
          "every component ID below num_cmp_ids can be used once on a TNI, on "
          "one CQ; in use it is refused with USED; freed it can be used again")
{
    utofu_vcq_hdl_t hdls[16], again;
    utofu_vcq_id_t  ids[16];
    utofu_cmp_id_t  n = conf_caps()->num_cmp_ids, i, j;
    utofu_cq_id_t   cq = 0;
    size_t          t;

    CONF_CHECK(n <= CONF_LEN(hdls), "num_cmp_ids is %d", n);
    for (t = 0; t < conf_num_tnis(); t++) {
        for (i = 0; i < n; i++) {
            CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(t), i, 0, &hdls[i]));
            ids[i] = query_id(hdls[i]);
            for (j = 0; j < i; j++) {
                CONF_CHECK(ids[i] != ids[j],
                           "component IDs %d and %d share a VCQ ID", i, j);
            }
            cq = (i == 0) ? query_info(ids[i]).cq : cq;
            CONF_CHECK(query_info(ids[i]).cq == cq,
                       "component ID %d is on CQ %d, ID 0 on CQ %d", i,
                       query_info(ids[i]).cq, cq);
        }
        for (i = 0; i < n; i++) {
            CONF_CODE(utofu_create_vcq_with_cmp_id(conf_tni(t), i, 0, &again),
                      UTOFU_ERR_USED);
        }
        CONF_OK(utofu_free_vcq(hdls[3]));
        CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(t), 3,
                                             UTOFU_VCQ_FLAG_THREAD_SAFE,
                                             &hdls[3]));
        CONF_CHECK(query_id(hdls[3]) == ids[3],
                   "component ID 3 got another VCQ ID than before");
        for (i = 0; i < n; i++) {
            CONF_OK(utofu_free_vcq(hdls[i]));
        }
    }
}

CONF_TEST("3.3.1.2", component_id_with_plain_vcqs, 1,
          "utofu_create_vcq chooses component IDs that no other VCQ of the CQ "
          "has")
{
    utofu_vcq_hdl_t fixed, plain[20];
    size_t          i, j;

    CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(0), 0, 0, &fixed));
    for (i = 0; i < CONF_LEN(plain); i++) {
        CONF_OK(utofu_create_vcq(conf_tni(0), 0, &plain[i]));
        CONF_CHECK(query_id(plain[i]) != query_id(fixed),
                   "a plain VCQ has the ID of one with a component ID");
        for (j = 0; j < i; j++) {
            CONF_CHECK(query_id(plain[i]) != query_id(plain[j]),
                       "two plain VCQs have one ID");
        }
    }
    for (i = 0; i < CONF_LEN(plain); i++) {
        CONF_OK(utofu_free_vcq(plain[i]));
    }
    CONF_OK(utofu_free_vcq(fixed));
}

CONF_TEST("3.3.1.2", component_id_flags, 1,
          "EXCLUSIVE and SESSION_MODE cannot be combined with a component ID")
{
    utofu_vcq_hdl_t hdl;

    CONF_CODE(utofu_create_vcq_with_cmp_id(conf_tni(0), 0,
                                           UTOFU_VCQ_FLAG_EXCLUSIVE, &hdl),
              UTOFU_ERR_INVALID_FLAGS, UTOFU_ERR_NOT_SUPPORTED);
    CONF_CODE(utofu_create_vcq_with_cmp_id(conf_tni(0), 0,
                                           UTOFU_VCQ_FLAG_SESSION_MODE, &hdl),
              UTOFU_ERR_INVALID_FLAGS, UTOFU_ERR_NOT_SUPPORTED);
    CONF_CODE(utofu_create_vcq(conf_tni(0), UTOFU_VCQ_FLAG_SESSION_MODE |
                               UTOFU_VCQ_FLAG_EXCLUSIVE, &hdl),
              UTOFU_ERR_INVALID_FLAGS, UTOFU_ERR_NOT_SUPPORTED);
}

CONF_TEST("3.3.1.2", invalid_component_id, 1,
          "component IDs from num_cmp_ids on are INVALID_CMP_ID")
{
    utofu_vcq_hdl_t hdl;

    CONF_CODE(utofu_create_vcq_with_cmp_id(conf_tni(0),
                                           conf_caps()->num_cmp_ids, 0, &hdl),
              UTOFU_ERR_INVALID_CMP_ID);
    CONF_CODE(utofu_create_vcq_with_cmp_id(conf_tni(0), UINT16_MAX, 0, &hdl),
              UTOFU_ERR_INVALID_CMP_ID);
}

CONF_TEST("3.3.2.2", first_component_cq_is_predictable, 2,
          "the first VCQ with a component ID of a process is on the same CQ of "
          "every TNI, and of every node whose processes do the same, so that "
          "its ID can be constructed from coordinates alone")
{
    struct mine {
        uint8_t        coords[6];
        utofu_cq_id_t  cq;
        utofu_vcq_id_t ids[6];
    } mine, all[2];
    utofu_vcq_hdl_t hdls[6];
    utofu_vcq_id_t  id;
    struct info     info;
    size_t          t;
    int             r;

    memset(&mine, 0, sizeof(mine));
    CONF_OK(utofu_query_my_coords(mine.coords));
    for (t = 0; t < conf_num_tnis(); t++) {
        CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(t), 5, 0, &hdls[t]));
        mine.ids[t] = query_id(hdls[t]);
        info        = query_info(mine.ids[t]);
        mine.cq     = (t == 0) ? info.cq : mine.cq;
        CONF_CHECK(info.cq == mine.cq, "CQ %d on TNI %d, CQ %d on TNI %d",
                   mine.cq, conf_tni(0), info.cq, conf_tni(t));
    }
    conf_exchange(&mine, sizeof(mine), all);
    for (r = 0; r < 2; r++) {
        if (memcmp(all[0].coords, all[1].coords, 6) != 0) {
            CONF_CHECK(all[r].cq == mine.cq, "CQ %d on one node, %d on another",
                       mine.cq, all[r].cq);
        } else {
            CONF_CHECK((r == conf_rank) || (all[r].cq != mine.cq),
                       "two processes of one node are on CQ %d", mine.cq);
        }
        for (t = 0; t < conf_num_tnis(); t++) {
            CONF_OK(utofu_construct_vcq_id(all[r].coords, conf_tni(t),
                                           all[r].cq, 5, &id));
            CONF_CHECK(id == all[r].ids[t], "constructed ID 0x%" PRIx64
                       ", but rank %d has 0x%" PRIx64, id, r, all[r].ids[t]);
        }
    }
    for (t = 0; t < conf_num_tnis(); t++) {
        CONF_OK(utofu_free_vcq(hdls[t]));
    }
}

CONF_TEST("3.3.3.1", info_of_local_and_remote, 3,
          "utofu_query_vcq_info gives coordinates, TNI and CQ of any VCQ")
{
    struct conf_vcq vcq;
    struct info     info, all[3];
    uint8_t         coords[6];
    int             r;

    conf_vcq_open(&vcq, conf_rank, 0);
    CONF_OK(utofu_query_my_coords(coords));
    info = query_info(vcq.id);
    CONF_CHECK(memcmp(info.coords, coords, 6) == 0,
               "the coordinates are not those of this node");
    CONF_CHECK(info.tni == vcq.tni, "TNI %d, expected %d", info.tni, vcq.tni);
    conf_exchange(&info, sizeof(info), all);
    for (r = 0; r < conf_procs; r++) {
        info = query_info(vcq.peer[r]);
        CONF_CHECK((memcmp(info.coords, all[r].coords, 6) == 0) &&
                           (info.tni == all[r].tni) && (info.cq == all[r].cq),
                   "rank %d sees its VCQ differently", r);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.3.2.2", construct_round_trip, 1,
          "every part of a constructed VCQ ID comes back from "
          "utofu_query_vcq_info; different parts give different IDs; only X, "
          "Y, Z outside the network may be refused")
{
    static const uint8_t far[] = {0, 1, 2, 7, 15, 23, 31};
    uint8_t              own[6], coords[6];
    utofu_vcq_id_t       id, ids[6 * CQS * 8];
    struct info          info;
    size_t               f, n, i;
    unsigned             abc, tni, cq, cmp;
    int                  rc;

    CONF_OK(utofu_query_my_coords(own));
    for (f = 0; f <= CONF_LEN(far) * 3; f++) {
        memcpy(coords, own, 3);
        if (f > 0) {
            coords[(f - 1) % 3] = far[(f - 1) / 3];
        }
        for (abc = 0; abc < 12; abc++) {
            coords[3] = abc / 6;
            coords[4] = abc / 2 % 3;
            coords[5] = abc % 2;
            for (n = 0; n < CONF_LEN(ids); n++) {
                tni = n / (CQS * 8);
                cq  = n / 8 % CQS;
                cmp = n % 8;
                rc  = CONF_CODE(utofu_construct_vcq_id(coords, tni, cq, cmp,
                                                       &id),
                                UTOFU_SUCCESS, UTOFU_ERR_INVALID_COORDS);
                if (rc != UTOFU_SUCCESS) {
                    CONF_CHECK(memcmp(coords, own, 3) != 0,
                               "A, B, C %d, %d, %d are refused", coords[3],
                               coords[4], coords[5]);
                    break;
                }
                ids[n] = id;
                info   = query_info(id);
                CONF_CHECK((memcmp(info.coords, coords, 6) == 0) &&
                                   (info.tni == tni) && (info.cq == cq),
                           "ID 0x%" PRIx64 " of %d %d %d %u, TNI %u, CQ %u "
                           "comes back as %d %d %d, TNI %d, CQ %d", id,
                           coords[0], coords[1], coords[2], abc, tni, cq,
                           info.coords[0], info.coords[1], info.coords[2],
                           info.tni, info.cq);
                for (i = 0; (i < n) && (f == 0); i++) {
                    CONF_CHECK(ids[i] != id, "two VCQs have ID 0x%" PRIx64, id);
                }
            }
        }
    }
}

CONF_TEST("3.3.2.2", construct_invalid, 1,
          "utofu_construct_vcq_id names the argument that cannot be")
{
    uint8_t        coords[6] = {0, 0, 0, 0, 0, 0};
    utofu_vcq_id_t id;
    size_t         i;

    static const uint8_t limits[6] = {0, 0, 0, 2, 3, 2};

    for (i = 3; i < 6; i++) {
        coords[i] = limits[i];
        CONF_CODE(utofu_construct_vcq_id(coords, 0, 0, 0, &id),
                  UTOFU_ERR_INVALID_COORDS);
        coords[i] = 255;
        CONF_CODE(utofu_construct_vcq_id(coords, 0, 0, 0, &id),
                  UTOFU_ERR_INVALID_COORDS);
        coords[i] = 0;
    }
    CONF_CODE(utofu_construct_vcq_id(coords, 6, 0, 0, &id),
              UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_construct_vcq_id(coords, UINT16_MAX, 0, 0, &id),
              UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_construct_vcq_id(coords, 0, 12, 0, &id),
              UTOFU_ERR_INVALID_CQ_ID);
    CONF_CODE(utofu_construct_vcq_id(coords, 0, UINT16_MAX, 0, &id),
              UTOFU_ERR_INVALID_CQ_ID);
    CONF_CODE(utofu_construct_vcq_id(coords, 0, 0, 8, &id),
              UTOFU_ERR_INVALID_CMP_ID);
    CONF_CODE(utofu_construct_vcq_id(coords, 0, 0, UINT16_MAX, &id),
              UTOFU_ERR_INVALID_CMP_ID);
    CONF_CODE(utofu_construct_vcq_id(NULL, 0, 0, 0, &id),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_construct_vcq_id(coords, 0, 0, 0, NULL),
              UTOFU_ERR_INVALID_POINTER);
}

CONF_TEST("3.3.4.1", unknown_flags, 1,
          "undefined flags of utofu_create_vcq are INVALID_FLAGS, an unknown "
          "TNI is INVALID_TNI_ID, no place for the handle INVALID_POINTER")
{
    utofu_vcq_hdl_t hdl;
    unsigned        bit;

    for (bit = 3; bit < 64; bit++) {
        CONF_CODE(utofu_create_vcq(conf_tni(0), 1UL << bit, &hdl),
                  UTOFU_ERR_INVALID_FLAGS);
        CONF_CODE(utofu_create_vcq_with_cmp_id(conf_tni(0), 0, 1UL << bit,
                                               &hdl),
                  UTOFU_ERR_INVALID_FLAGS);
    }
    CONF_CODE(utofu_create_vcq(6, 0, &hdl), UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_create_vcq(UINT16_MAX, 0, &hdl), UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_create_vcq_with_cmp_id(6, 0, 0, &hdl),
              UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_create_vcq(conf_tni(0), 0, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_create_vcq_with_cmp_id(conf_tni(0), 0, 0, NULL),
              UTOFU_ERR_INVALID_POINTER);
    /* None of these took a VCQ. */
    CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(0), 0, 0, &hdl));
    CONF_OK(utofu_free_vcq(hdl));
}

CONF_TEST("3.3.3.1", query_pointers, 1,
          "queries of a VCQ refuse null pointers and IDs that no VCQ can have")
{
    struct conf_vcq vcq;
    utofu_tni_id_t  tni;
    utofu_cq_id_t   cq;
    uint16_t        extra;
    uint8_t         coords[6];
    utofu_vcq_id_t  id = UINT64_MAX;

    conf_vcq_create(&vcq, 0, 0);
    CONF_CODE(utofu_query_vcq_id(vcq.hdl, NULL), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_vcq_info(vcq.id, NULL, &tni, &cq, &extra),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_vcq_info(vcq.id, coords, NULL, &cq, &extra),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_vcq_info(vcq.id, coords, &tni, NULL, &extra),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_vcq_info(vcq.id, coords, &tni, &cq, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_query_vcq_info(UINT64_MAX, coords, &tni, &cq, &extra),
              UTOFU_ERR_INVALID_VCQ_ID);
    CONF_CODE(utofu_set_vcq_id_path(NULL, NULL), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_set_vcq_id_path(&id, NULL), UTOFU_ERR_INVALID_VCQ_ID);
    CONF_CHECK(id == UINT64_MAX, "a refused VCQ ID was changed");
    conf_vcq_close(&vcq);
}

CONF_TEST("3.3.1.3", freed_handle_is_invalid, 1,
          "a handle that was freed, or never existed, is INVALID_VCQ_HDL")
{
    struct conf_vcq vcq, keep;
    utofu_vcq_id_t  id;
    uint64_t        zeros[64] = {0};
    size_t          i;

    const utofu_vcq_hdl_t bad[] = {0, 1, 8, 4096, UINTPTR_MAX,
                                   UINTPTR_MAX - 4095, (uintptr_t)zeros};

    conf_vcq_create(&keep, 0, 0);
    conf_vcq_create(&vcq, 0, 0);
    CONF_OK(utofu_free_vcq(vcq.hdl));
    CONF_CODE(utofu_query_vcq_id(vcq.hdl, &id), UTOFU_ERR_INVALID_VCQ_HDL);
    CONF_CODE(utofu_free_vcq(vcq.hdl), UTOFU_ERR_INVALID_VCQ_HDL);
    for (i = 0; i < CONF_LEN(bad); i++) {
        CONF_CODE(utofu_free_vcq(bad[i]), UTOFU_ERR_INVALID_VCQ_HDL);
        CONF_CODE(utofu_query_vcq_id(bad[i], &id), UTOFU_ERR_INVALID_VCQ_HDL);
    }
    CONF_OK(utofu_query_vcq_id(keep.hdl, &id));
    CONF_CHECK(id == keep.id, "the ID of another VCQ changed");
    conf_vcq_close(&keep);
}
