/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_common.h - what the example programs of tests/programs share: checks that
 * end the whole job, and waits that give the CPU away, because the processes
 * usually outnumber the cores here.
 */
#ifndef PROG_COMMON_H
#define PROG_COMMON_H

#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>
#include <utofu.h>

#define CHECK(cond) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
            MPI_Abort(MPI_COMM_WORLD, 3); \
        } \
    } while (0)

#define CALL(expr) \
    do { \
        int call_code = (expr); \
        if (call_code != UTOFU_SUCCESS) { \
            fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #expr, call_code); \
            MPI_Abort(MPI_COMM_WORLD, 4); \
        } \
    } while (0)

/* MPI_Init, then number and count of the processes; at least (exactly: want > 0) so many */
static inline void start(int *argc, char ***argv, int exactly, int at_least, int *rank, int *size)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    CHECK((exactly == 0) || (*size == exactly));
    CHECK(*size >= at_least);
}

/* The TNI of this index among those for one-sided communication; wraps around */
static inline utofu_tni_id_t onesided_tni(size_t index)
{
    utofu_tni_id_t *ids, id;
    size_t          count = 0;

    CALL(utofu_get_onesided_tnis(&ids, &count));
    CHECK(count > 0);
    id = ids[index % count];
    free(ids);
    return id;
}

static inline void wait_tcq(utofu_vcq_hdl_t vcq, void **cbdata)
{
    int code;

    while ((code = utofu_poll_tcq(vcq, 0, cbdata)) == UTOFU_ERR_NOT_FOUND) {
        sched_yield();
    }
    CALL(code);
}

static inline void wait_mrq(utofu_vcq_hdl_t vcq, struct utofu_mrq_notice *notice)
{
    int code;

    while ((code = utofu_poll_mrq(vcq, 0, notice)) == UTOFU_ERR_NOT_FOUND) {
        sched_yield();
    }
    CALL(code);
}

#endif /* PROG_COMMON_H */
