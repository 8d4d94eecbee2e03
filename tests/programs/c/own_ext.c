/* SPDX-License-Identifier: BSD-3-Clause */
/* Includes mpi-ext.h where the MPI has a header of that name, too. */
#include <mpi-ext.h>

#ifndef OF_THE_MPI
#  error "the MPI's own header was not found"
#endif

int main(void)
{
    return FJMPI_SUCCESS;
}
