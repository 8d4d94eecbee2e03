/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_mpi.c - the layer of MPI: one-sided operations on a window from
 * MPI_Win_allocate within MPI_Win_lock_all, MPI_Isend and MPI_Irecv as tag_*.
 *
 * It is compiled by the mpicc that is there, without perf_boot.c; mpiexec starts the
 * processes.  MPI has no completion of a single put: those of a window are completed
 * together by a flush, in ping-pongs each one by itself.
 */
#include "perf.h"

#include <mpi.h>

#define QUEUE 4096 /* requests in flight, a power of two */

#define MPI_CHECK(_call) \
    do { \
        int _ret = (_call); \
        PERF_CHECK(_ret == MPI_SUCCESS, "%s: error %d", #_call, _ret); \
    } while (0)

/* Requests of one direction, in order. */
struct queue {
    MPI_Request request[QUEUE];
    unsigned    head, tail;
};

struct mpi_side {
    MPI_Win      win;
    struct queue sends, receives;
    bool         is_fresh; /* something was posted since the last progress */
    uint64_t     one;
};

/* ------------------------------------------------------------- processes */

static MPI_Request meeting;
static uint64_t    told, heard;

static void mpi_boot_start(struct perf_proc *proc)
{
    int is_ready;

    /* before MPI_Init: a process that ends between that and MPI_Finalize leaves a file
     * of MPICH in /dev/shm */
    PERF_CHECK(proc->opt->threads == 1, "the layer of MPI has one thread");
    PERF_CHECK(!strcmp(proc->opt->layout, "contig"),
               "the layout of MPI is contig, not %s", proc->opt->layout);
    MPI_CHECK(MPI_Initialized(&is_ready));
    if (!is_ready) {
        MPI_CHECK(MPI_Init(NULL, NULL));
    }
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &proc->rank));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &proc->size));
    PERF_CHECK(proc->size == proc->opt->procs,
               "mpiexec started %d processes, the test has %d", proc->size,
               proc->opt->procs);
}

static void mpi_allgather(struct perf_proc *proc, const void *mine, void *all,
                          size_t length)
{
    (void)proc;
    MPI_CHECK(MPI_Allgather(mine, (int)length, MPI_BYTE, all, (int)length, MPI_BYTE,
                            MPI_COMM_WORLD));
}

/* Only rank 0 adds something, so the sum is its number. */
static bool mpi_step(struct perf_proc *proc, uint64_t *value, bool is_new, bool wait)
{
    int is_done;

    (void)wait;
    if (is_new) {
        told = (proc->rank == 0) ? *value : 0;
        MPI_CHECK(MPI_Iallreduce(&told, &heard, 1, MPI_UINT64_T, MPI_SUM,
                                 MPI_COMM_WORLD, &meeting));
    }
    MPI_CHECK(MPI_Test(&meeting, &is_done, MPI_STATUS_IGNORE));
    *value = is_done ? heard : *value;
    return is_done;
}

static int mpi_boot_stop(struct perf_proc *proc)
{
    (void)proc;
    MPI_CHECK(MPI_Finalize());
    return 0;
}

const struct perf_boot perf_boot = {
    .start     = mpi_boot_start,
    .allgather = mpi_allgather,
    .step      = mpi_step,
    .stop      = mpi_boot_stop
};

/* ----------------------------------------------------------------- layer */

static void mpi_facts(struct perf_proc *proc, FILE *out)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int  length;

    (void)proc;
    MPI_CHECK(MPI_Get_library_version(text, &length));
    text[strcspn(text, ",\n\"\\")] = '\0';
    for (char *at = text; *at != '\0'; ++at) {
        *at = ((unsigned char)*at < ' ') ? ' ' : *at;
    }
    fprintf(out, ",\"mpi\":\"%.200s\"", text);
}

static void mpi_open(struct perf_ctx *ctx)
{
    struct mpi_side *s = calloc(1, sizeof(*s));

    PERF_CHECK(s != NULL, "no memory");
    ctx->layer = s;
    s->one     = 1;
    MPI_CHECK(MPI_Win_allocate((MPI_Aint)ctx->length, 1, MPI_INFO_NULL,
                               MPI_COMM_WORLD, &ctx->memory, &s->win));
    MPI_CHECK(MPI_Win_lock_all(MPI_MODE_NOCHECK, s->win));
}

static size_t mpi_address(struct perf_ctx *ctx, void *blob)
{
    (void)ctx;
    (void)blob;
    return 0;
}

static void mpi_connect(struct perf_ctx *ctx, int rank, const void *blob)
{
    (void)ctx;
    (void)rank;
    (void)blob;
}

static void mpi_close(struct perf_ctx *ctx)
{
    struct mpi_side *s = ctx->layer;

    MPI_CHECK(MPI_Win_unlock_all(s->win));
    MPI_CHECK(MPI_Win_free(&s->win));
    free(s);
}

/* Requests complete in order, as all are of one peer and tag. */
static unsigned take(struct queue *q)
{
    unsigned count = 0;
    int      is_done;

    while (q->head != q->tail) {
        MPI_CHECK(MPI_Test(&q->request[q->head % QUEUE], &is_done,
                           MPI_STATUS_IGNORE));
        if (!is_done) {
            break;
        }
        ++q->head;
        ++count;
    }
    return count;
}

static MPI_Request *next(struct queue *q)
{
    PERF_CHECK(q->tail - q->head < QUEUE, "a window of more than %d", QUEUE);
    return &q->request[q->tail++ % QUEUE];
}

static void mpi_progress(struct perf_ctx *ctx)
{
    struct mpi_side *s = ctx->layer;
    int             is_there;

    if ((s->sends.head != s->sends.tail) || (s->receives.head != s->receives.tail)) {
        ctx->comp.count -= (int)take(&s->sends);
        ctx->arrived    += take(&s->receives);
        return;
    }
    /* called again, or with a full window: somebody waits */
    if ((perf_in_flight(ctx) > 0) &&
        (!s->is_fresh || (perf_in_flight(ctx) >= ctx->opt->window))) {
        MPI_CHECK(MPI_Win_flush_local_all(s->win));
        ctx->comp.count = 1;
        return;
    }
    s->is_fresh = false;
    MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there,
                         MPI_STATUS_IGNORE));
    MPI_CHECK(MPI_Win_sync(s->win));
}

static void mpi_flush(struct perf_ctx *ctx)
{
    struct mpi_side *s = ctx->layer;

    MPI_CHECK(MPI_Win_flush_all(s->win));
    if (s->sends.head == s->sends.tail) {
        ctx->comp.count = 1;
    }
    perf_window(ctx, 1);
}

/* In ping-pongs each put is flushed already. */
static void mpi_fence(struct perf_ctx *ctx)
{
    (void)ctx;
}

static void mpi_put(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                    size_t size)
{
    struct mpi_side *s = ctx->layer;

    MPI_CHECK(MPI_Put(ctx->memory + local, (int)size, MPI_BYTE, rank,
                      (MPI_Aint)remote, (int)size, MPI_BYTE, s->win));
    if (ctx->polls_memory) {
        MPI_CHECK(MPI_Win_flush(rank, s->win));
    } else if (ctx->want_completion) {
        ++ctx->comp.count;
        s->is_fresh = true;
    }
}

static void mpi_get(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                    size_t size)
{
    struct mpi_side *s = ctx->layer;

    MPI_CHECK(MPI_Get(ctx->memory + local, (int)size, MPI_BYTE, rank,
                      (MPI_Aint)remote, (int)size, MPI_BYTE, s->win));
    ++ctx->comp.count;
    s->is_fresh = (ctx->opt->window > 1);
}

static void mpi_amo(struct perf_ctx *ctx, int rank, enum perf_amo op, uint64_t value,
                    uint64_t compare, size_t remote)
{
    struct mpi_side *s  = ctx->layer;
    MPI_Aint        at  = (MPI_Aint)remote;

    switch (op) {
    case PERF_ADD:
        PERF_CHECK(value == s->one, "an add of 1");
        MPI_CHECK(MPI_Accumulate(&s->one, 1, MPI_UINT64_T, rank, at, 1, MPI_UINT64_T,
                                 MPI_SUM, s->win));
        ++ctx->comp.count;
        s->is_fresh = true;
        return;
    case PERF_CSWAP:
        MPI_CHECK(MPI_Compare_and_swap(&value, &compare, &ctx->result, MPI_UINT64_T,
                                       rank, at, s->win));
        break;
    default:
        MPI_CHECK(MPI_Fetch_and_op(&value, &ctx->result, MPI_UINT64_T, rank, at,
                                   (op == PERF_FADD) ? MPI_SUM : MPI_REPLACE,
                                   s->win));
    }
    MPI_CHECK(MPI_Win_flush(rank, s->win));
}

static bool mpi_has(enum perf_kind kind)
{
    return kind == PERF_TAG;
}

static void mpi_send(struct perf_ctx *ctx, int rank, enum perf_kind kind,
                     size_t size)
{
    struct mpi_side *s = ctx->layer;

    (void)kind;
    ++ctx->comp.count;
    MPI_CHECK(MPI_Isend(ctx->memory + ctx->out, (int)size, MPI_BYTE, rank, 0,
                        MPI_COMM_WORLD, next(&s->sends)));
}

static void mpi_receive(struct perf_ctx *ctx, int rank, enum perf_kind kind,
                        size_t size)
{
    struct mpi_side *s = ctx->layer;

    (void)kind;
    MPI_CHECK(MPI_Irecv(ctx->memory, (int)size, MPI_BYTE, rank, 0, MPI_COMM_WORLD,
                        next(&s->receives)));
}

static void mpi_coll(struct perf_ctx *ctx)
{
    (void)ctx;
}

static void mpi_barrier(struct perf_ctx *ctx)
{
    (void)ctx;
    MPI_CHECK(MPI_Barrier(MPI_COMM_WORLD));
}

static uint64_t mpi_reduce(struct perf_ctx *ctx, uint64_t value)
{
    uint64_t sum;

    (void)ctx;
    MPI_CHECK(MPI_Allreduce(&value, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    return sum;
}

const struct perf_layer perf_layer = {
    .name       = "mpi",
    .serves     = true,
    .facts      = mpi_facts,
    .open       = mpi_open,
    .address    = mpi_address,
    .connect    = mpi_connect,
    .close      = mpi_close,
    .progress   = mpi_progress,
    .flush      = mpi_flush,
    .fence      = mpi_fence,
    .put        = mpi_put,
    .get        = mpi_get,
    .amo        = mpi_amo,
    .has        = mpi_has,
    .send       = mpi_send,
    .receive    = mpi_receive,
    .coll_open  = mpi_coll,
    .barrier    = mpi_barrier,
    .reduce     = mpi_reduce,
    .coll_close = mpi_coll
};
