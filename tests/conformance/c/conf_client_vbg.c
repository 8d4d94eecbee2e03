/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_client_vbg.c - VBG IDs that programs take apart and make, as RIKEN's utf does for MPI's
 * collectives: TNI in the highest 3 bits, coordinates C (1 bit) B (2) A (1) Z Y X (8 each)
 * below bit 60, BG in the lowest 6 bits.
 */
#include "circuit.h"

#include <inttypes.h>

/* The ID of a gate by its place alone */
static utofu_vbg_id_t made(const uint8_t coords[6], utofu_tni_id_t tni,
                           utofu_bg_id_t bg)
{
    static const int at[6] = {32, 40, 48, 56, 57, 59};
    utofu_vbg_id_t   id    = (uint64_t)tni << 61 | bg;
    int              i;

    for (i = 0; i < 6; i++) {
        id |= (uint64_t)coords[i] << at[i];
    }
    return id;
}

static utofu_vbg_id_t made_of(utofu_vbg_id_t id)
{
    uint8_t        coords[6];
    utofu_tni_id_t tni;
    utofu_bg_id_t  bg;
    uint16_t       extra;

    if (id == UTOFU_VBG_ID_NULL) {
        return id;
    }
    CONF_OK(utofu_query_vbg_info(id, coords, &tni, &bg, &extra));
    CONF_CHECK((made(coords, tni, bg) ^ id) << 4 >> 36 == 0,
               "VBG ID %" PRIx64 " of node %u,%u,%u,%u,%u,%u", id, coords[0],
               coords[1], coords[2], coords[3], coords[4], coords[5]);
    CONF_CHECK((id >> 61 == tni) && ((id & 63) == bg),
               "VBG ID %" PRIx64 " of TNI %u BG %u", id, tni, bg);
    return made(coords, tni, bg);
}

static void set_by_made_ids(const struct circuit *c)
{
    struct utofu_vbg_setting s[CIRCUIT_GATES];
    int                      i;

    circuit_settings(c, conf_rank, s);
    for (i = 0; i < c->plan.gates[conf_rank]; i++) {
        s[i].src_rmt_vbg_id = made_of(s[i].src_rmt_vbg_id);
        s[i].dst_rmt_vbg_id = made_of(s[i].dst_rmt_vbg_id);
    }
    CONF_OK(utofu_set_vbg(s, c->plan.gates[conf_rank]));
}

CONF_TEST("9.3", client_constructs_vbg_ids, 4,
          "a VBG ID has coordinates, TNI and BG in the bits where programs "
          "read them, and a packet's other end can be given by these alone")
{
    static struct circuit c;
    uint64_t              data;
    int                   round, i;

    for (round = 0; round < 5; round++) {
        plan_butterfly(&c.plan, conf_procs);
        circuit_open(&c, round, 0);
        set_by_made_ids(&c);
        conf_barrier();
        for (i = 0; i < 20; i++) {
            circuit_barrier(&c);
            data = 1u << conf_rank;
            CONF_OK(utofu_reduce_uint64(c.id[conf_rank][0],
                                        UTOFU_REDUCE_OP_SUM, &data, 1, 0));
            CONF_OK(circuit_wait_uint64(c.id[conf_rank][0], &data));
            CONF_CHECK(data == 15, "sum %" PRIu64, data);
        }
        circuit_close(&c);
    }
}

/* As LAMMPS has them for its Fourier transforms: of a ring, the relay gate of its root starts
 * with the root's own data, each further one adds its place's, and the last one sends to the
 * root's start gate.  Who is on the way has the sum so far. */
static void open_ring(int root, utofu_vbg_id_t id[2])
{
    utofu_vbg_id_t           all[16][2];
    struct utofu_vbg_setting s[2];
    int                      before = (conf_rank + conf_procs - 1) % conf_procs;
    int                      next   = (conf_rank + 1) % conf_procs;

    CONF_OK(utofu_alloc_vbg(circuit_tni(0), 2, 0, id));
    conf_exchange(id, 2 * sizeof(id[0]), all);
    s[0].vbg_id         = id[0];
    s[0].src_lcl_vbg_id = (conf_rank == root) ? UTOFU_VBG_ID_NULL : id[1];
    s[0].src_rmt_vbg_id = (conf_rank == root) ? all[before][1] : UTOFU_VBG_ID_NULL;
    s[0].dst_lcl_vbg_id = id[1];
    s[0].dst_rmt_vbg_id = UTOFU_VBG_ID_NULL;
    s[1].vbg_id         = id[1];
    s[1].src_lcl_vbg_id = id[0];
    s[1].src_rmt_vbg_id = (conf_rank == root) ? UTOFU_VBG_ID_NULL : all[before][1];
    s[1].dst_lcl_vbg_id = (conf_rank == root) ? UTOFU_VBG_ID_NULL : id[0];
    s[1].dst_rmt_vbg_id = all[next][(next == root) ? 0 : 1];

    s[0].dst_path_coords[0] = s[1].dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
    CONF_OK(utofu_set_vbg(s, 2));
}

CONF_TEST("9.5", client_rings_that_end_at_one, 4,
          "as many rings as processes, of gates of one TNI, each of which ends "
          "at another: reductions on all of them at once, again and again "
          "without a barrier, end with the sum there and on the way with what "
          "was added so far")
{
    enum { ROUNDS = 300 };
    utofu_vbg_id_t id[4][2];
    double         data[2], expected[2];
    int            round, root, at, rank;

    for (root = 0; root < conf_procs; root++) {
        open_ring(root, id[root]);
    }
    conf_barrier();
    for (round = 0; round < ROUNDS; round++) {
        for (root = 0; root < conf_procs; root++) {
            data[0] = 100. * conf_rank + round;
            data[1] = .5 * root;
            CONF_OK(utofu_reduce_double(id[root][0], UTOFU_REDUCE_OP_BFPSUM,
                                        data, 1 + round % 2, 0));
        }
        for (root = 0; root < conf_procs; root++) {
            CONF_OK(circuit_wait_double(id[root][0], data));
            expected[0] = expected[1] = 0;
            at          = (conf_rank == root) ? conf_procs - 1 :
                                                (conf_rank - root + conf_procs) % conf_procs;
            for (; at >= 0; at--) {
                rank = (root + at) % conf_procs;
                expected[0] += 100. * rank + round;
                expected[1] += .5 * root;
            }
            CONF_CHECK((data[0] == expected[0]) &&
                       ((round % 2 == 0) || (data[1] == expected[1])),
                       "round %d: %g, %g instead of %g, %g in the ring of %d",
                       round, data[0], data[1], expected[0], expected[1], root);
        }
    }
    conf_barrier();
    for (root = 0; root < conf_procs; root++) {
        CONF_OK(utofu_free_vbg(id[root], 2));
    }
}
