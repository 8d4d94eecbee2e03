/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * armw_race.c - all but rank 0 add 1 to a number of rank 0 at the same time; who
 * finds the chosen value there wins.  Each value is handed out once, so there is
 * one winner, and the number ends at a value that is known.
 */
#include "prog_common.h"

#define CHOSEN 4000u

int main(int argc, char **argv)
{
    struct utofu_mrq_notice notice;
    static uint64_t         number = 1;
    utofu_vcq_hdl_t         vcq;
    utofu_vcq_id_t          id;
    utofu_stadd_t           stadd = 0;
    uint64_t                pair[2], before = 0;
    void                   *cbdata;
    int                     rank, size, code, won = 0, winners = 0;

    start(&argc, &argv, 0, 2, &rank, &size);
    CALL(utofu_create_vcq(onesided_tni(0), 0, &vcq));
    CALL(utofu_query_vcq_id(vcq, &id));
    if (rank == 0) {
        CALL(utofu_reg_mem(vcq, &number, sizeof(number), 0, &stadd));
    }
    pair[0] = id;
    pair[1] = stadd;
    MPI_Bcast(pair, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        id = pair[0];
        CALL(utofu_set_vcq_id_path(&id, NULL));
        do {
            while ((code = utofu_armw8(vcq, id, UTOFU_ARMW_OP_ADD, 1, pair[1], 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                       NULL)) == UTOFU_ERR_BUSY) {
                utofu_poll_tcq(vcq, 0, &cbdata);
            }
            CALL(code);
            wait_mrq(vcq, &notice);
            CHECK(notice.notice_type == UTOFU_MRQ_TYPE_LCL_ARMW);
            CHECK(notice.rmt_value > before);
            before = notice.rmt_value;
            won += (before == CHOSEN);
        } while (before < CHOSEN);
    }
    MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(winners == 1);
    if (rank == 0) {
        /* one of size - 1 got CHOSEN, each of the others one value after it */
        CHECK(number == CHOSEN + (uint64_t)(size - 1));
        CALL(utofu_dereg_mem(vcq, stadd, 0));
        printf("armw_race ok: the number is %" PRIu64 "\n", number);
    }
    CALL(utofu_free_vcq(vcq));
    MPI_Finalize();
    return 0;
}
