/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_circuit.c - barrier and reduction of all processes on VBGs: one start gate
 * each, and relay gates that exchange packets at distances 1, 2, 4, ...
 *
 * Ranks beyond the largest power of two give their data to a helper below it first
 * (its gate 1), and get the result from it last.
 */
#include "perf_utofu.h"

#define GATES 8

struct plan {
    int gates;
    int signal[GATES]; /* gate of the same rank; -1: none */
    int packet[GATES]; /* rank * GATES + gate; -1: none */
};

struct circuit {
    struct plan    plan[PERF_MAX_PROCS];
    utofu_vbg_id_t id[PERF_MAX_PROCS][GATES];
};

static void make_plan(struct plan *plan, int size)
{
    int dims = 0, pairs, r, g, d;

    while ((2 << dims) <= size) {
        ++dims;
    }
    pairs = 1 << dims;
    for (r = 0; r < size; ++r) {
        struct plan *p     = &plan[r];
        bool        helps  = (r < size - pairs);
        int         base   = helps ? 1 : 0;

        memset(p, 0xff, sizeof(*p)); /* -1 */
        if (r >= pairs) {
            p->gates     = 1;
            p->packet[0] = (r - pairs) * GATES + 1;
            continue;
        }
        /* what a start gate sends is not in its own result: with one exchange a
         * relay gate joins the two */
        p->gates = helps ? dims + 2 : (dims == 1) ? 2 : dims;
        for (g = 0; g < p->gates; ++g) {
            p->signal[g] = (g + 1) % p->gates;
        }
        for (d = 0; d < dims; ++d) {
            int  other  = r ^ (1 << d);
            bool helped = (other < size - pairs);

            p->packet[base + d] = other * GATES +
                                  (helped ? d + 2 :
                                   ((d + 1 < dims) || (dims == 1)) ? d + 1 : 0);
        }
        if (helps) {
            p->packet[dims + 1] = (r + pairs) * GATES;
        }
    }
}

static utofu_vbg_id_t id_of(const struct circuit *c, int where)
{
    return (where < 0) ? UTOFU_VBG_ID_NULL : c->id[where / GATES][where % GATES];
}

static void set_gates(struct utofu_side *s, const struct circuit *c, int rank,
                      int size)
{
    struct utofu_vbg_setting settings[GATES];
    int                      r, g, n;

    for (n = 0; n < c->plan[rank].gates; ++n) {
        settings[n] = (struct utofu_vbg_setting){
            .vbg_id          = c->id[rank][n],
            .src_lcl_vbg_id  = UTOFU_VBG_ID_NULL,
            .src_rmt_vbg_id  = UTOFU_VBG_ID_NULL,
            .dst_lcl_vbg_id  = UTOFU_VBG_ID_NULL,
            .dst_rmt_vbg_id  = id_of(c, c->plan[rank].packet[n]),
            .dst_path_coords = {UTOFU_PATH_COORD_NULL}
        };
        if (c->plan[rank].signal[n] >= 0) {
            settings[n].dst_lcl_vbg_id = c->id[rank][c->plan[rank].signal[n]];
        }
        for (r = 0; r < size; ++r) {
            for (g = 0; g < c->plan[r].gates; ++g) {
                if ((r == rank) && (c->plan[r].signal[g] == n)) {
                    settings[n].src_lcl_vbg_id = c->id[r][g];
                }
                if (c->plan[r].packet[g] == rank * GATES + n) {
                    settings[n].src_rmt_vbg_id = c->id[r][g];
                }
            }
        }
    }
    UTOFU_CHECK(s->fn->set_vbg(settings, (size_t)c->plan[rank].gates));
}

void perf_circuit_open(struct perf_ctx *ctx)
{
    struct utofu_side *s = ctx->layer;
    struct circuit    *c;
    utofu_vbg_id_t    mine[GATES] = {0};
    utofu_tni_id_t    *tnis;
    size_t            count;

    if (s->circuit != NULL) {
        return; /* it serves all phases */
    }
    PERF_CHECK(ctx->opt->threads == 1, "barriers are of one thread a process");
    c = calloc(1, sizeof(*c));
    PERF_CHECK(c != NULL, "no memory");
    UTOFU_CHECK(s->fn->get_barrier_tnis(&tnis, &count));
    if (count == 0) {
        PERF_ABSENT("no TNI does barriers");
    }
    make_plan(c->plan, ctx->proc->size);
    UTOFU_CHECK(s->fn->alloc_vbg(tnis[0], (size_t)c->plan[ctx->rank].gates, 0, mine));
    free(tnis);
    perf_boot.allgather(ctx->proc, mine, c->id, sizeof(mine));
    set_gates(s, c, ctx->rank, ctx->proc->size);
    s->circuit = c;
    perf_meet(ctx, 0);
}

void perf_circuit_barrier(struct perf_ctx *ctx)
{
    struct utofu_side *s = ctx->layer;
    struct circuit    *c = s->circuit;
    utofu_vbg_id_t    id = c->id[ctx->rank][0];
    int               ret;

    UTOFU_CHECK(s->fn->barrier(id, 0));
    while ((ret = s->fn->poll_barrier(id, 0)) == UTOFU_ERR_NOT_COMPLETED) {
        perf_spin(ctx);
    }
    PERF_CHECK(ret == UTOFU_SUCCESS, "utofu_poll_barrier: %s", tofu_code_name(ret));
}

uint64_t perf_circuit_reduce(struct perf_ctx *ctx, uint64_t value)
{
    struct utofu_side *s = ctx->layer;
    struct circuit    *c = s->circuit;
    utofu_vbg_id_t    id = c->id[ctx->rank][0];
    int               ret;

    UTOFU_CHECK(s->fn->reduce_uint64(id, UTOFU_REDUCE_OP_SUM, &value, 1, 0));
    while ((ret = s->fn->poll_reduce_uint64(id, 0, &value)) ==
           UTOFU_ERR_NOT_COMPLETED) {
        perf_spin(ctx);
    }
    PERF_CHECK(ret == UTOFU_SUCCESS, "utofu_poll_reduce_uint64: %s",
               tofu_code_name(ret));
    return value;
}

/* The gates are kept for the next phase, and end with the process. */
void perf_circuit_close(struct perf_ctx *ctx)
{
    (void)ctx;
}
