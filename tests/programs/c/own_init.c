/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * own_init.c - a program that defines MPI_Init itself, as profilers do, and includes
 * mpi-ext.h in the same file.  Its own definition is the one that is called, and rank 0
 * alone may still ask for all the others.  It is C and C++.
 */
#include <mpi-ext.h>

#include "prog_common.h"

static int own_inits;

#ifdef __cplusplus
extern "C"
#endif
int MPI_Init(int *argc, char ***argv)
{
    ++own_inits;
    return PMPI_Init(argc, argv);
}

int main(int argc, char **argv)
{
    int rank, size, c[6];

    start(&argc, &argv, 0, 1, &rank, &size);
    CHECK(own_inits == 1);
    for (int r = 0; (rank == 0) && (r < size); r++) {
        CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, r, FJMPI_LOGICAL, 3, c) == FJMPI_SUCCESS);
        printf("rank %d is on node %d", r, c[0]);
        CHECK(FJMPI_Topology_get_coords(MPI_COMM_WORLD, r, FJMPI_TOFU_SYS, 6, c) == FJMPI_SUCCESS);
        printf(" at %d,%d,%d,%d,%d,%d\n", c[0], c[1], c[2], c[3], c[4], c[5]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
