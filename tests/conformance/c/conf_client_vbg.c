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
