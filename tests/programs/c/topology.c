/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topology.c - every process asks mpi-ext.h where it is, and the answers are held
 * against uTofu's own.  Only rank 0 asks for others, which must not need their help.
 * Prints its logical coordinates.  It is C and C++.
 */
#include "prog_common.h"

#include <string.h>

#include <mpi-ext.h>

static void ask_for_all(int size, const uint8_t (*tofu)[6])
{
    int all[6], c[6], shape[3] = {0, 0, 0}, dimension = 0, ranks[64], count = 0, low[6];

    CHECK(FJMPI_Topology_get_dimension(&dimension) == FJMPI_SUCCESS);
    CHECK((dimension >= 1) && (dimension <= 3));
    CHECK(FJMPI_Topology_get_shape(&shape[0], &shape[1], &shape[2]) == FJMPI_SUCCESS);
    for (int i = 0; i < 3; i++) {
        CHECK((shape[i] > 0) == (i < dimension));
    }
    for (int i = 0; i < 6; i++) {
        low[i] = 255;
        for (int r = 0; r < size; r++) {
            low[i] = (tofu[r][i] < low[i]) ? tofu[r][i] : low[i];
        }
    }
    for (int r = 0; r < size; r++) {
        int same = 0, here = 0;
        CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, r, FJMPI_TOFU_SYS, 6, all) == FJMPI_SUCCESS);
        CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, r, FJMPI_TOFU_REL, 6, c) == FJMPI_SUCCESS);
        for (int i = 0; i < 6; i++) {
            CHECK(all[i] == tofu[r][i]);
            CHECK(c[i] == tofu[r][i] - low[i]);
        }
        CHECK(FJMPI_Topology_get_ranks(MPI_COMM_WORLD, FJMPI_TOFU_SYS, all, 64, &count, ranks) == FJMPI_SUCCESS);
        for (int q = 0; q < size; q++) {
            same += (memcmp(tofu[q], tofu[r], 6) == 0);
        }
        CHECK(count == same);
        for (int i = 0; i < count; i++) {
            CHECK(memcmp(tofu[ranks[i]], tofu[r], 6) == 0);
            here += (ranks[i] == r);
        }
        CHECK(here == 1);
        CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, r, FJMPI_LOGICAL, dimension, c) == FJMPI_SUCCESS);
        for (int i = 0; i < dimension; i++) {
            CHECK((c[i] >= 0) && (c[i] < shape[i]));
        }
        CHECK(FJMPI_Topology_get_ranks(MPI_COMM_WORLD, FJMPI_LOGICAL, c, 64, &count, ranks) == FJMPI_SUCCESS);
        CHECK(count == same);
    }
    for (int i = 0; i < 6; i++) {
        all[i] = 99; /* no such node */
    }
    CHECK(FJMPI_Topology_get_ranks(MPI_COMM_WORLD, FJMPI_TOFU_SYS, all, 64, &count, ranks) != FJMPI_SUCCESS);
    CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, size, FJMPI_LOGICAL, 3, c) == FJMPI_ERR_TOPOLOGY_INVALID_RANK);
    CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, -1, FJMPI_LOGICAL, 3, c) == FJMPI_ERR_TOPOLOGY_INVALID_RANK);
    CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, 0, 77, 3, c) == FJMPI_ERR_TOPOLOGY_INVALID_VIEW);
    CHECK(FJMPI_Topology_get_coords(MPI_COMM_NULL, 0, FJMPI_LOGICAL, 3, c) == FJMPI_ERR_TOPOLOGY_INVALID_COMM);
}

int main(int argc, char **argv)
{
    uint8_t  mine[6], (*tofu)[6];
    int      rank, size, c[3] = {-1, -1, -1}, turned[3] = {-1, -1, -1};
    MPI_Comm reverse;

    start(&argc, &argv, 0, 1, &rank, &size);
    CHECK(size <= 64);
    tofu = (uint8_t (*)[6])malloc((size_t)size * 6);
    CALL(utofu_query_my_coords(mine));
    MPI_Gather(mine, 6, MPI_BYTE, tofu, 6, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        ask_for_all(size, tofu);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* ranks of another communicator are that communicator's */
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &reverse);
    CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, rank, FJMPI_LOGICAL, 3, c) == FJMPI_SUCCESS);
    CHECK(FJMPI_Topology_get_coords(reverse, size - 1 - rank, FJMPI_LOGICAL, 3, turned) == FJMPI_SUCCESS);
    CHECK(memcmp(c, turned, sizeof(c)) == 0);
    MPI_Comm_free(&reverse);
    printf("rank %d logical %d,%d,%d\n", rank, c[0], c[1], c[2]);
    free(tofu);
    MPI_Finalize();
    return 0;
}
