/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * circuit.h - barrier circuits for tests of chapters 2.3, 3.4 and 3.8.
 *
 * A plan says how the gates of all participants ("places") are wired; a circuit
 * is a plan with gates.  Place p belongs to rank p % conf_procs, so one rank may
 * take part several times.
 */
#ifndef CONF_CIRCUIT_H
#define CONF_CIRCUIT_H

#include "harness.h"

#define CIRCUIT_PLACES 16
#define CIRCUIT_GATES  8 /* most gates of a place; gate 0 starts and ends */

struct plan {
    int places;
    int gates[CIRCUIT_PLACES];
    int signal[CIRCUIT_PLACES][CIRCUIT_GATES]; /* gate of the same place, -1: none */
    int packet[CIRCUIT_PLACES][CIRCUIT_GATES]; /* place * CIRCUIT_GATES + gate, -1 */
};

void plan_butterfly(struct plan *plan, int places); /* any number from 2 up */
void plan_ring(struct plan *plan, int places);      /* two laps */
void plan_tree(struct plan *plan, int places);      /* up and down again */

struct circuit {
    struct plan    plan;
    utofu_vbg_id_t id[CIRCUIT_PLACES][CIRCUIT_GATES];
};

/* First place of this rank; the next one is conf_procs further. */
#define CIRCUIT_MINE(_c, _place) \
    for (int _place = conf_rank; _place < (_c)->plan.places; \
         _place += conf_procs)

utofu_tni_id_t circuit_tni(size_t index); /* modulo their number */

/* Every rank: allocate on TNI tni_index + place, exchange, set, wait for all. */
void circuit_open(struct circuit *c, size_t tni_index, unsigned long flags);
/* The settings of a place, for tests that set again. */
void circuit_settings(const struct circuit *c, int place,
                      struct utofu_vbg_setting *settings);
void circuit_set(const struct circuit *c);   /* this rank's places */
void circuit_close(struct circuit *c);       /* every rank: wait, free */
void circuit_free(const struct circuit *c);  /* this rank's places */

/* Poll until it is complete; the code, never NOT_COMPLETED. */
int circuit_wait(utofu_vbg_id_t id);
int circuit_wait_uint64(utofu_vbg_id_t id, uint64_t *data);
int circuit_wait_double(utofu_vbg_id_t id, double *data);

/* All places of this rank: a barrier, which must succeed. */
void circuit_barrier(const struct circuit *c);

#endif /* CONF_CIRCUIT_H */
