/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stride_halo.c - processes in a ring keep a block of a grid each and exchange
 * edge columns, which are not contiguous, with both neighbours.  The puts are
 * prepared once and posted in every step; only the last put of an exchange asks
 * for notices.  Values say where and when they were made, so all are checked.
 */
#include <string.h>

#include "prog_common.h"

#define NX    40
#define NY    33
#define STEPS 30

static double grid[NY][NX];

static double made(int rank, int step, int row, int column)
{
    return rank * 1e6 + step * 1e4 + row * 100.0 + column;
}

/* Columns 1 .. NX - 2 are this process' own; 0 and NX - 1 are the neighbours' */
static void compute(int rank, int step)
{
    for (int y = 0; y < NY; y++) {
        for (int x = 1; x < NX - 1; x++) {
            grid[y][x] = made(rank, step, y, x);
        }
    }
}

static void check_halo(const int rank[2], int step)
{
    for (int y = 0; y < NY; y++) {
        CHECK(grid[y][0] == made(rank[0], step, y, NX - 2));
        CHECK(grid[y][NX - 1] == made(rank[1], step, y, 1));
    }
}

int main(int argc, char **argv)
{
    const unsigned long         last = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
    const size_t                length = sizeof(double), stride = NX * sizeof(double);
    struct utofu_onesided_caps *caps;
    struct utofu_mrq_notice     notice;
    utofu_vcq_hdl_t             vcq[2];
    utofu_stadd_t               stadd[2], from, to;
    uint64_t                    mine[2][2], theirs[2][2];
    size_t                      bytes[2], more;
    char                       *descs[2];
    void                       *cbdata;
    int                         neighbour[2], rank, size;

    start(&argc, &argv, 0, 3, &rank, &size);
    neighbour[0] = (rank + size - 1) % size;
    neighbour[1] = (rank + 1) % size;
    for (int i = 0; i < 2; i++) {
        CALL(utofu_create_vcq(onesided_tni((size_t)i), 0, &vcq[i]));
        CALL(utofu_query_vcq_id(vcq[i], &mine[i][0]));
        CALL(utofu_reg_mem(vcq[i], grid, sizeof(grid), 0, &stadd[i]));
        mine[i][1] = stadd[i];
    }
    /* what faces a neighbour goes to it: my side 0 meets its side 1 */
    for (int i = 0; i < 2; i++) {
        MPI_Sendrecv(mine[i], 2, MPI_UINT64_T, neighbour[i], 0, theirs[!i], 2, MPI_UINT64_T, neighbour[!i], 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 2; i++) {
        CALL(utofu_set_vcq_id_path(&theirs[i][0], NULL));
        CALL(utofu_query_onesided_caps(onesided_tni((size_t)i), &caps));
        descs[i] = malloc(caps->max_toq_desc_size * NY);
        CHECK(descs[i] != NULL);
        from = stadd[i] + length * (i ? NX - 2 : 1);
        to   = theirs[i][1] + length * (i ? 0 : NX - 1);
        CALL(utofu_prepare_put_stride(vcq[i], theirs[i][0], from, to, length, stride, NY - 1, 0, 0, descs[i],
                                      &bytes[i]));
        CALL(utofu_prepare_put(vcq[i], theirs[i][0], from + stride * (NY - 1), to + stride * (NY - 1), length, 0, last,
                               descs[i] + bytes[i], &more));
        bytes[i] += more;
        CHECK(bytes[i] <= caps->max_toq_desc_size * NY);
    }
    for (int step = 0; step < STEPS; step++) {
        compute(rank, step);
        MPI_Barrier(MPI_COMM_WORLD); /* nobody still reads the halo of the step before */
        for (int i = 0; i < 2; i++) {
            CALL(utofu_post_toq(vcq[i], descs[i], bytes[i], (void *)(uintptr_t)(step * 2 + i)));
        }
        for (int i = 0; i < 2; i++) {
            wait_tcq(vcq[i], &cbdata);
            CHECK((uintptr_t)cbdata == (uintptr_t)(step * 2 + i));
        }
        for (int i = 0; i < 2; i++) {
            wait_mrq(vcq[i], &notice);
            CHECK(notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT);
        }
        check_halo(neighbour, step);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        CHECK(utofu_poll_mrq(vcq[i], 0, &notice) == UTOFU_ERR_NOT_FOUND);
        CALL(utofu_dereg_mem(vcq[i], stadd[i], 0));
        CALL(utofu_free_vcq(vcq[i]));
        free(descs[i]);
    }
    if (rank == 0) {
        printf("stride_halo ok: %d steps of %d processes\n", STEPS, size);
    }
    MPI_Finalize();
    return 0;
}
