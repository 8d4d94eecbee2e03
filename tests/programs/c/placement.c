/* SPDX-License-Identifier: BSD-3-Clause */
/* placement.c - every process prints its rank, its coordinates and its first CQ. */
#include "prog_common.h"

int main(int argc, char **argv)
{
    utofu_vcq_hdl_t vcq;
    utofu_vcq_id_t  id;
    utofu_tni_id_t  tni;
    utofu_cq_id_t   cq;
    uint16_t        extra;
    uint8_t         c[6], at[6];
    int             rank, size;

    start(&argc, &argv, 0, 1, &rank, &size);
    CALL(utofu_query_my_coords(c));
    CALL(utofu_create_vcq(onesided_tni(0), 0, &vcq));
    CALL(utofu_query_vcq_id(vcq, &id));
    CALL(utofu_query_vcq_info(id, at, &tni, &cq, &extra));
    MPI_Barrier(MPI_COMM_WORLD); /* all have theirs at the same time */
    for (int i = 0; i < 6; i++) {
        CHECK(c[i] == at[i]);
    }
    printf("rank %d coords %u,%u,%u,%u,%u,%u cq %u\n", rank, c[0], c[1], c[2], c[3], c[4], c[5], (unsigned)cq);
    CALL(utofu_free_vcq(vcq));
    MPI_Finalize();
    return 0;
}
