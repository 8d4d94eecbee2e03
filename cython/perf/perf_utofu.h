/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_utofu.h - what perf_utofu.c and perf_circuit.c share. */
#ifndef PERF_UTOFU_H
#define PERF_UTOFU_H

#include "perf.h"

#include <tofu_dl.h>

#define PERF_LANES 6

#define UTOFU_CHECK(_call) \
    do { \
        int _ret = (_call); \
        PERF_CHECK(_ret == UTOFU_SUCCESS, "%s: %s", #_call, tofu_code_name(_ret)); \
    } while (0)

/* What the others have to know. */
struct utofu_peer {
    utofu_vcq_id_t vcq_id;
    utofu_stadd_t  stadd;
};

/* A VCQ, and how many notices it is owed. */
struct utofu_lane {
    utofu_vcq_hdl_t vcq;
    utofu_stadd_t   stadd;
    int             tcq, mrq;
    int             unnoticed; /* rank of the last put, if it asked for no local
                                  MRQ notice; else -1 */
};

struct utofu_side {
    const struct tofu_functions *fn;
    struct utofu_peer           mine, peer[PERF_MAX_PROCS];
    struct utofu_lane           lane[PERF_LANES];
    int                         num_lanes, next;
    bool                        is_short, fenced;
    int                         notices; /* remote ones that were found early */
    void                        *circuit;
};

/* The member "backend" of the JSON output. */
void perf_utofu_facts(const struct tofu_backend *of, FILE *out);

/* perf_circuit.c */
void     perf_circuit_open(struct perf_ctx *ctx);
void     perf_circuit_barrier(struct perf_ctx *ctx);
uint64_t perf_circuit_reduce(struct perf_ctx *ctx, uint64_t value);
void     perf_circuit_close(struct perf_ctx *ctx);

#endif /* PERF_UTOFU_H */
