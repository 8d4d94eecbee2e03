/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * get_progress.c - one process computes and counts its steps in memory, without
 * any call of the library; the other one looks at the count by get now and then.
 */
#define _GNU_SOURCE
#include <time.h>

#include "prog_common.h"

#define LOOKS    12
#define PAUSE_MS 30

static volatile uint64_t step;

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Count until the other side has told by MPI that it saw enough */
static uint64_t compute(void)
{
    double      end  = now() + 60;
    int         done = 0;
    MPI_Request request;

    MPI_Irecv(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
    while (!done) {
        for (volatile int i = 0; i < 2000; i++) {
        }
        step++;
        if ((step % 64) == 0) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
        CHECK(now() < end);
    }
    return step;
}

static void look(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_stadd_t mine, utofu_stadd_t theirs)
{
    struct timespec         pause = {0, PAUSE_MS * 1000000L};
    struct utofu_mrq_notice notice;
    uint64_t                seen = 0, changes = 0;
    void                   *cbdata;
    int                     code;

    for (int i = 0; (i < LOOKS) || (changes < 2); i++) {
        nanosleep(&pause, NULL);
        while ((code = utofu_get(vcq, peer, mine, theirs, sizeof(step), 5, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                 NULL)) == UTOFU_ERR_BUSY) {
            utofu_poll_tcq(vcq, 0, &cbdata);
        }
        CALL(code);
        wait_mrq(vcq, &notice);
        CHECK(notice.notice_type == UTOFU_MRQ_TYPE_LCL_GET);
        CHECK(notice.edata == 5);
        CHECK(step >= seen);
        changes += (step > seen);
        seen = step;
    }
}

int main(int argc, char **argv)
{
    struct utofu_mrq_notice notice;
    utofu_vcq_hdl_t         vcq;
    utofu_vcq_id_t          id;
    utofu_stadd_t           mine;
    uint64_t                pair[2], last;
    int                     rank, size;

    start(&argc, &argv, 2, 2, &rank, &size);
    CALL(utofu_create_vcq(onesided_tni(0), 0, &vcq));
    CALL(utofu_query_vcq_id(vcq, &id));
    CALL(utofu_reg_mem(vcq, (void *)&step, sizeof(step), 0, &mine));
    pair[0] = id;
    pair[1] = mine;
    MPI_Bcast(pair, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        last = compute();
        MPI_Send(&last, 1, MPI_UINT64_T, 1, 2, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD); /* the last look is over */
    } else {
        id = pair[0];
        CALL(utofu_set_vcq_id_path(&id, NULL));
        look(vcq, id, mine, pair[1]);
        MPI_Send(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(&last, 1, MPI_UINT64_T, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CALL(utofu_get(vcq, id, mine, pair[1], sizeof(step), 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
        wait_mrq(vcq, &notice);
        CHECK(step == last);
        printf("get_progress ok: last step %" PRIu64 "\n", last);
        fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CALL(utofu_dereg_mem(vcq, mine, 0));
    CALL(utofu_free_vcq(vcq));
    MPI_Finalize();
    return 0;
}
