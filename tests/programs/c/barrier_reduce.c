/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * barrier_reduce.c - eight processes, three VBGs each, wired as a butterfly;
 * barriers, then sums of floating-point numbers.  Nobody may leave a barrier
 * before the last one came, and all get the same sum.
 */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>
#include <time.h>

#include "prog_common.h"

#define SIZE   8
#define STAGES 3
#define ROUNDS 24

static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static utofu_tni_id_t barrier_tni(int index)
{
    utofu_tni_id_t *ids, id;
    size_t          count = 0;

    CALL(utofu_get_barrier_tnis(&ids, &count));
    CHECK(count > 0);
    id = ids[(size_t)index % count];
    free(ids);
    return id;
}

/* Stage s talks to the process whose number differs in bit s.  VBG 0 starts and
 * ends the circuit; VBG s receives from stage s - 1's partner. */
static void wire(int rank, const utofu_vbg_id_t mine[STAGES], utofu_vbg_id_t all[SIZE][STAGES])
{
    struct utofu_vbg_setting set[STAGES];

    for (int s = 0; s < STAGES; s++) {
        int after = (s + 1) % STAGES, before = (s + STAGES - 1) % STAGES;

        set[s].vbg_id             = mine[s];
        set[s].src_lcl_vbg_id     = mine[before];
        set[s].src_rmt_vbg_id     = all[rank ^ (1 << before)][before];
        set[s].dst_lcl_vbg_id     = mine[after];
        set[s].dst_rmt_vbg_id     = all[rank ^ (1 << s)][after];
        set[s].dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
    }
    CALL(utofu_set_vbg(set, STAGES));
}

static void barriers(utofu_vbg_id_t start_gate, int rank)
{
    static uint64_t entered[SIZE][ROUNDS], left[SIZE][ROUNDS], in[ROUNDS], out[ROUNDS];
    int             code;

    for (int i = 0; i < ROUNDS; i++) {
        struct timespec pause = {0, 3000000};
        if (rank == i % SIZE) {
            nanosleep(&pause, NULL); /* a late one, another in every round */
        }
        in[i] = now();
        CALL(utofu_barrier(start_gate, 0));
        while ((code = utofu_poll_barrier(start_gate, 0)) == UTOFU_ERR_NOT_COMPLETED) {
            sched_yield();
        }
        CALL(code);
        out[i] = now();
    }
    MPI_Allgather(in, ROUNDS, MPI_UINT64_T, entered, ROUNDS, MPI_UINT64_T, MPI_COMM_WORLD);
    MPI_Allgather(out, ROUNDS, MPI_UINT64_T, left, ROUNDS, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < ROUNDS; i++) {
        for (int a = 0; a < SIZE; a++) {
            for (int b = 0; b < SIZE; b++) {
                CHECK(left[a][i] >= entered[b][i]);
            }
        }
    }
}

static void sums(utofu_vbg_id_t start_gate, int rank)
{
    double in, out, all[SIZE], want;
    int    code;

    for (int i = 0; i < ROUNDS; i++) {
        in = i + 0.1 * rank;
        CALL(utofu_reduce_double(start_gate, UTOFU_REDUCE_OP_BFPSUM, &in, 1, 0));
        while ((code = utofu_poll_reduce_double(start_gate, 0, &out)) == UTOFU_ERR_NOT_COMPLETED) {
            sched_yield();
        }
        CALL(code);
        want = SIZE * i + 0.1 * (SIZE * (SIZE - 1) / 2);
        CHECK(fabs(out - want) < 1e-12 * (1 + want));
        MPI_Allgather(&out, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
        for (int r = 0; r < SIZE; r++) {
            CHECK(memcmp(&all[r], &out, sizeof(out)) == 0);
        }
    }
}

int main(int argc, char **argv)
{
    utofu_vbg_id_t mine[STAGES], all[SIZE][STAGES];
    int            rank, size;

    start(&argc, &argv, SIZE, SIZE, &rank, &size);
    CALL(utofu_alloc_vbg(barrier_tni(rank), STAGES, 0, mine));
    MPI_Allgather(mine, STAGES, MPI_UINT64_T, all, STAGES, MPI_UINT64_T, MPI_COMM_WORLD);
    wire(rank, mine, all);
    MPI_Barrier(MPI_COMM_WORLD);
    barriers(mine[0], rank);
    sums(mine[0], rank);
    MPI_Barrier(MPI_COMM_WORLD);
    CALL(utofu_free_vbg(mine, STAGES));
    if (rank == 0) {
        printf("barrier_reduce ok: %d rounds\n", ROUNDS);
    }
    MPI_Finalize();
    return 0;
}
