/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * put_pingpong.c - two processes put a counter into each other's memory in turn.
 * First half: the receiver waits for the remote notice; second half: it watches
 * the memory, and no remote notice may come.
 */
#include "prog_common.h"

#define ROUNDS 600 /* more than EDATA has values */

struct side {
    utofu_vcq_hdl_t   vcq;
    utofu_vcq_id_t    peer;
    utofu_stadd_t     source, target;
    uint64_t          out;
    volatile uint64_t in;
};

static void ping(struct side *s, uint64_t round, unsigned long flags)
{
    struct utofu_mrq_notice notice;
    uint64_t                edata = round & 0xff;
    void                   *cbdata = NULL;

    s->out = round;
    CALL(utofu_put(s->vcq, s->peer, s->source, s->target, sizeof(s->out), edata, flags, (void *)(uintptr_t)(round + 7)));
    wait_tcq(s->vcq, &cbdata);
    CHECK((uintptr_t)cbdata == round + 7);
    wait_mrq(s->vcq, &notice);
    CHECK(notice.notice_type == UTOFU_MRQ_TYPE_LCL_PUT);
    CHECK(notice.edata == edata);
}

static void pong(struct side *s, uint64_t round, unsigned long flags)
{
    struct utofu_mrq_notice notice;

    if (flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) {
        wait_mrq(s->vcq, &notice);
        CHECK(notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT);
        CHECK(notice.edata == (round & 0xff));
        CHECK(s->in == round);
    } else {
        while (s->in != round) {
            sched_yield();
        }
    }
    s->in = UINT64_MAX;
}

int main(int argc, char **argv)
{
    static const unsigned long kinds[] = {
        UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE,
        UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE};
    static struct side          s;
    struct utofu_onesided_caps *caps;
    struct utofu_mrq_notice     notice;
    utofu_stadd_t               mine;
    utofu_vcq_id_t              id;
    utofu_tni_id_t              tni;
    uint64_t                    send[2], got[2];
    int                         rank, size;

    start(&argc, &argv, 2, 2, &rank, &size);
    tni = onesided_tni(0);
    CALL(utofu_query_onesided_caps(tni, &caps));
    CHECK(caps->max_edata_size == 1);
    CALL(utofu_create_vcq(tni, 0, &s.vcq));
    CALL(utofu_query_vcq_id(s.vcq, &id));
    CALL(utofu_reg_mem(s.vcq, &s.out, sizeof(s.out), 0, &s.source));
    CALL(utofu_reg_mem(s.vcq, (void *)&s.in, sizeof(s.in), 0, &mine));
    send[0] = id;
    send[1] = mine;
    MPI_Sendrecv(send, 2, MPI_UINT64_T, !rank, 0, got, 2, MPI_UINT64_T, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    s.peer   = got[0];
    s.target = got[1];
    CALL(utofu_set_vcq_id_path(&s.peer, NULL));

    for (unsigned kind = 0; kind < 2; kind++) {
        s.in = UINT64_MAX;
        MPI_Barrier(MPI_COMM_WORLD);
        for (uint64_t round = 0; round < ROUNDS; round++) {
            if (rank == 0) {
                ping(&s, round, kinds[kind]);
                pong(&s, round, kinds[kind]);
            } else {
                pong(&s, round, kinds[kind]);
                ping(&s, round, kinds[kind]);
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(utofu_poll_mrq(s.vcq, 0, &notice) == UTOFU_ERR_NOT_FOUND);
    }

    CALL(utofu_dereg_mem(s.vcq, s.source, 0));
    CALL(utofu_dereg_mem(s.vcq, mine, 0));
    CALL(utofu_free_vcq(s.vcq));
    if (rank == 0) {
        printf("put_pingpong ok: %d rounds of each kind\n", ROUNDS);
    }
    MPI_Finalize();
    return 0;
}
