/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_gates_again.c - gates that are set anew, or freed, as soon as their owner has completed a barrier,
 * while the other one may not have looked yet (2.3.1, 3.4.1.2, 3.4.2.1).
 *
 *   rank 0: a start gate and a relay gate, which exchanges with
 *   rank 1: a start gate
 */
#include "circuit.h"

#define LAST ((uint64_t)1 << 63)

struct word {
    uint64_t id;    /* of the gate that the other one is to set */
    uint64_t count; /* how far this one is: polled, so it is the last */
};

static struct conf_vcq      vcq;
static volatile struct word told[2] __attribute__((aligned(256))); /* by the other rank */
static utofu_stadd_t        stadds[2];

static void tell(unsigned which, uint64_t id, uint64_t count)
{
    struct word w = {id, count};
    void       *cbdata;

    CONF_POST(vcq.hdl, utofu_put_piggyback(vcq.hdl, vcq.peer[1 - conf_rank], &w, stadds[1 - conf_rank] + which * sizeof(w),
                                           sizeof(w), 0, CONF_STRONG | CONF_TCQ, NULL));
    while (utofu_poll_tcq(vcq.hdl, 0, &cbdata) == UTOFU_SUCCESS) {
    }
}

static struct word hear(unsigned which, uint64_t count)
{
    double   end   = conf_now() + CONF_WAIT;
    unsigned spins = 0;

    while ((told[which].count & ~LAST) != count) {
        CONF_CHECK(conf_now() < end, "the other one did not get to step %d of round %d", (int)which, (int)count);
        conf_relax(&spins);
    }
    return (struct word){told[which].id, told[which].count};
}

static struct utofu_vbg_setting unset(utofu_vbg_id_t id)
{
    struct utofu_vbg_setting s = {.vbg_id         = id,
                                  .src_lcl_vbg_id = UTOFU_VBG_ID_NULL,
                                  .src_rmt_vbg_id = UTOFU_VBG_ID_NULL,
                                  .dst_lcl_vbg_id = UTOFU_VBG_ID_NULL,
                                  .dst_rmt_vbg_id = UTOFU_VBG_ID_NULL};

    s.dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
    return s;
}

static void wait_barrier(utofu_vbg_id_t id, uint64_t round)
{
    double   end   = conf_now() + CONF_WAIT;
    unsigned spins = 0;
    int      code;

    CONF_OK(utofu_barrier(id, 0));
    do {
        code = CONF_CODE(utofu_poll_barrier(id, 0), UTOFU_SUCCESS, UTOFU_ERR_NOT_COMPLETED);
        if (conf_rank == 1) {
            CONF_CHECK((code == UTOFU_SUCCESS) || (conf_now() < end), "barrier %d does not complete", (int)round);
            conf_relax(&spins);
        }
    } while (code != UTOFU_SUCCESS);
}

static void again(bool freed)
{
    utofu_vbg_id_t           ids[2] = {0, 0};
    struct utofu_vbg_setting s[2];
    struct word              other;
    size_t                   gates = (conf_rank == 0) ? 2 : 1;
    double                   end;
    bool                     last;

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, (void *)(uintptr_t)told, sizeof(told), stadds);
    conf_barrier();
    end = conf_now() + 3;
    for (uint64_t round = 1;; round++) {
        if (freed || (round == 1)) {
            CONF_OK(utofu_alloc_vbg(circuit_tni((size_t)conf_rank), gates, 0, ids));
        }
        last = (conf_rank == 0) && (conf_now() > end);
        tell(0, ids[gates - 1], round | (last ? LAST : 0));
        other = hear(0, round);
        last  = last || (other.count & LAST);
        s[0]  = unset(ids[0]);
        s[1]  = unset(ids[1]);
        if (conf_rank == 0) {
            s[0].dst_lcl_vbg_id = s[0].src_lcl_vbg_id = ids[1];
            s[1].src_lcl_vbg_id = s[1].dst_lcl_vbg_id = ids[0];
        }
        s[gates - 1].src_rmt_vbg_id = s[gates - 1].dst_rmt_vbg_id = other.id;
        CONF_OK(utofu_set_vbg(s, gates));
        tell(1, 0, round);
        hear(1, round);
        wait_barrier(ids[0], round);
        if (conf_rank == 0) {
            s[1] = unset(ids[1]);
            CONF_OK(utofu_set_vbg(s, gates));
        }
        if (freed || last) {
            CONF_OK(utofu_free_vbg(ids, gates));
        }
        if (last) {
            break;
        }
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.4.2.1", gates_set_again_at_once, 2,
          "gates are set anew as soon as a barrier is complete for their owner, and it completes for the others")
{
    again(false);
}

CONF_TEST("3.4.1.2", gates_freed_at_once, 2,
          "and they are freed, and allocated again, as soon")
{
    again(true);
}
