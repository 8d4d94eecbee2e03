/* SPDX-License-Identifier: BSD-3-Clause */
/* circuit.c - plans of barrier circuits, and circuits made of them. */
#include "circuit.h"

static void plan_clear(struct plan *plan, int places)
{
    CONF_CHECK((places > 0) && (places <= CIRCUIT_PLACES), "%d places", places);
    memset(plan, 0xff, sizeof(*plan)); /* -1 */
    plan->places = places;
}

static int at(int place, int gate)
{
    return place * CIRCUIT_GATES + gate;
}

/*
 * Places beyond the largest power of two give their data to a place below it
 * first (its gate 1) and get the result from it last.
 */
void plan_butterfly(struct plan *plan, int places)
{
    int dims = 0, pairs, p, g, d;

    plan_clear(plan, places);
    while ((2 << dims) <= places) {
        dims++;
    }
    pairs = 1 << dims;
    for (p = 0; p < places; p++) {
        bool helps = p < places - pairs;
        int  base  = helps ? 1 : 0;

        if (p >= pairs) {
            plan->gates[p]     = 1;
            plan->packet[p][0] = at(p - pairs, 1);
            continue;
        }
        /* what a start gate sends is not in its own result: with one exchange
         * a relay gate joins the two */
        plan->gates[p] = helps ? dims + 2 : (dims == 1) ? 2 : dims;
        for (g = 0; g < plan->gates[p]; g++) {
            plan->signal[p][g] = (g + 1) % plan->gates[p];
        }
        for (d = 0; d < dims; d++) {
            int  other      = p ^ (1 << d);
            bool other_help = other < places - pairs;

            plan->packet[p][base + d] =
                    at(other, other_help ? d + 2 :
                              (d + 1 < dims || dims == 1) ? d + 1 : 0);
        }
        if (helps) {
            plan->packet[p][dims + 1] = at(p + pairs, 0);
        }
    }
}

/* Gate 1 passes the partial result on, gate 2 (place 0: gate 1) the result. */
void plan_ring(struct plan *plan, int places)
{
    int p, last = places - 1;

    plan_clear(plan, places);
    for (p = 0; p < places; p++) {
        plan->gates[p] = (p == 0) ? 2 : 3;
        if (p == 0) {
            plan->packet[0][0] = at(1, 1);
            plan->packet[0][1] = at(1, 2);
            plan->signal[0][1] = 0;
            continue;
        }
        plan->signal[p][0] = 1;
        plan->packet[p][1] = (p == last) ? at(0, 1) : at(p + 1, 1);
        plan->packet[p][2] = (p == last) ? -1 : at(p + 1, 2);
        plan->signal[p][2] = 0;
    }
}

/* Gates 1 .. children collect from below, as many again give the result down. */
void plan_tree(struct plan *plan, int places)
{
    int p, i;

    plan_clear(plan, places);
    for (p = 0; p < places; p++) {
        int first = 2 * p + 1, parent = (p - 1) / 2;
        int children = (first + 1 < places) ? 2 : (first < places) ? 1 : 0;

        plan->gates[p] = 1 + 2 * children;
        for (i = 0; i < plan->gates[p]; i++) {
            if (children > 0) {
                plan->signal[p][i] = (i + 1) % plan->gates[p];
            }
        }
        if (p > 0) {
            plan->packet[p][children] = at(parent, (p - 1) % 2 + 1);
            if (children > 0) { /* the packet from above starts the way down */
                plan->signal[p][children] = -1;
            }
        }
        for (i = 0; i < children; i++) {
            int child = first + i, grand = 2 * child + 1;
            int below = (grand + 1 < places) ? 2 : (grand < places) ? 1 : 0;

            plan->packet[p][children + 1 + i] =
                    at(child, (below == 0) ? 0 : below + 1);
        }
    }
}

utofu_tni_id_t circuit_tni(size_t index)
{
    utofu_tni_id_t *ids = NULL, tni;
    size_t          num = 0;

    CONF_OK(utofu_get_barrier_tnis(&ids, &num));
    CONF_CHECK((num > 0) && (ids != NULL), "no TNI does barriers");
    tni = ids[index % num];
    free(ids);
    return tni;
}

static utofu_vbg_id_t id_at(const struct circuit *c, int where)
{
    return (where < 0) ? UTOFU_VBG_ID_NULL :
                         c->id[where / CIRCUIT_GATES][where % CIRCUIT_GATES];
}

void circuit_settings(const struct circuit *c, int place,
                      struct utofu_vbg_setting *settings)
{
    int p, g, n;

    for (n = 0; n < c->plan.gates[place]; n++) {
        struct utofu_vbg_setting *s = &settings[n];

        s->vbg_id         = c->id[place][n];
        s->src_lcl_vbg_id = UTOFU_VBG_ID_NULL;
        s->src_rmt_vbg_id = UTOFU_VBG_ID_NULL;
        s->dst_lcl_vbg_id = (c->plan.signal[place][n] < 0) ?
                                    UTOFU_VBG_ID_NULL :
                                    c->id[place][c->plan.signal[place][n]];
        s->dst_rmt_vbg_id = id_at(c, c->plan.packet[place][n]);
        memset(s->dst_path_coords, 0, sizeof(s->dst_path_coords));
        s->dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
        for (p = 0; p < c->plan.places; p++) {
            for (g = 0; g < c->plan.gates[p]; g++) {
                if ((p == place) && (c->plan.signal[p][g] == n)) {
                    s->src_lcl_vbg_id = c->id[p][g];
                }
                if (c->plan.packet[p][g] == at(place, n)) {
                    s->src_rmt_vbg_id = c->id[p][g];
                }
            }
        }
    }
}

void circuit_set(const struct circuit *c)
{
    struct utofu_vbg_setting settings[CIRCUIT_GATES];

    CIRCUIT_MINE(c, place) {
        circuit_settings(c, place, settings);
        CONF_OK(utofu_set_vbg(settings, c->plan.gates[place]));
    }
}

void circuit_open(struct circuit *c, size_t tni_index, unsigned long flags)
{
    static utofu_vbg_id_t all[CONF_MAX_PROCS][CIRCUIT_PLACES][CIRCUIT_GATES];
    int                   p;

    memset(c->id, 0, sizeof(c->id));
    CIRCUIT_MINE(c, place) {
        CONF_OK(utofu_alloc_vbg(circuit_tni(tni_index + place),
                                c->plan.gates[place], flags, c->id[place]));
    }
    conf_exchange(c->id, sizeof(c->id), all);
    for (p = 0; p < c->plan.places; p++) {
        memcpy(c->id[p], all[p % conf_procs][p], sizeof(c->id[p]));
    }
    circuit_set(c);
    conf_barrier();
}

void circuit_free(const struct circuit *c)
{
    utofu_vbg_id_t ids[CIRCUIT_GATES];

    CIRCUIT_MINE(c, place) {
        memcpy(ids, c->id[place], sizeof(ids));
        CONF_OK(utofu_free_vbg(ids, c->plan.gates[place]));
    }
}

void circuit_close(struct circuit *c)
{
    conf_barrier();
    circuit_free(c);
}

#define WAIT(_poll) \
    double   end   = conf_now() + CONF_WAIT; \
    unsigned spins = 0; \
    int      rc; \
    conf_at(__FILE__, __LINE__, #_poll); \
    while ((rc = (_poll)) == UTOFU_ERR_NOT_COMPLETED) { \
        CONF_CHECK(conf_now() < end, #_poll ": not completed after %g s", \
                   CONF_WAIT); \
        conf_relax(&spins); \
    } \
    return rc

int circuit_wait(utofu_vbg_id_t id)
{
    WAIT(utofu_poll_barrier(id, 0));
}

int circuit_wait_uint64(utofu_vbg_id_t id, uint64_t *data)
{
    WAIT(utofu_poll_reduce_uint64(id, 0, data));
}

int circuit_wait_double(utofu_vbg_id_t id, double *data)
{
    WAIT(utofu_poll_reduce_double(id, 0, data));
}

void circuit_barrier(const struct circuit *c)
{
    CIRCUIT_MINE(c, place) {
        CONF_OK(utofu_barrier(c->id[place][0], 0));
    }
    CIRCUIT_MINE(c, place) {
        CONF_OK(circuit_wait(c->id[place][0]));
    }
}
