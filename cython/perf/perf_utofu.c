/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_utofu.c - the layer of raw uTofu calls, on whichever libtofucom the loader
 * finds.
 *
 * --layout=zcopy is utofu_put, --layout=short a piggyback (of 8 bytes: piggyback8).
 * A put asks for a TCQ notice when the test counts completions; the last one before
 * a flush asks for the local MRQ notice, which comes when it is at the target.
 * With --tnis=N rank 0 has a VCQ on each of N TNIs, with a window each, and the puts
 * go to the other processes in turn.
 */
#include "perf_utofu.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct tofu_backend *backend;

static void utofu_start(struct perf_proc *proc)
{
    char error[2048];

    (void)proc;
    PERF_CHECK(tofu_backend_load(NULL, &backend, error, sizeof(error)) == 0,
               "no uTofu library: %s", error);
}

static void utofu_facts(struct perf_proc *proc, FILE *out)
{
    (void)proc;
    perf_utofu_facts(backend, out);
}

/* Memory that the emulator maps into peers: a shared mapping of a memfd. */
static uint8_t *shared_memory(size_t length)
{
    int   fd = memfd_create("perf", MFD_CLOEXEC);
    void *memory;

    PERF_CHECK((fd >= 0) && (ftruncate(fd, (off_t)length) == 0), "memfd: %s",
               strerror(errno));
    memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    PERF_CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    return memory;
}

static void utofu_open(struct perf_ctx *ctx)
{
    const struct perf_options *o = ctx->opt;
    struct utofu_onesided_caps *caps;
    unsigned long              flags = 0;
    struct utofu_side          *s;
    utofu_tni_id_t             *tnis;
    size_t                     count;
    int                        i;

    ctx->layer = s = calloc(1, sizeof(*s));
    PERF_CHECK(s != NULL, "no memory");
    s->fn = &backend->fn;
    UTOFU_CHECK(s->fn->get_onesided_tnis(&tnis, &count));
    PERF_CHECK(count > 0, "no TNI does one-sided communication");
    if (((size_t)o->tnis > count) && (ctx->rank == 0)) {
        PERF_ABSENT("%d TNIs are asked for, there are %zu", o->tnis, count);
    }
    UTOFU_CHECK(s->fn->query_onesided_caps(tnis[0], &caps));
    s->num_lanes = (ctx->rank == 0) ? o->tnis : 1;
    s->is_short  = !strcmp(o->layout, "short");
    PERF_CHECK(s->is_short || !strcmp(o->layout, "zcopy"),
               "the layouts of uTofu are short (piggyback) and zcopy (put), not %s",
               o->layout);
    PERF_CHECK(o->size <= (s->is_short ? caps->max_piggyback_size :
                                         caps->max_putget_size),
               "one %s takes %zu bytes", s->is_short ? "piggyback" : "put or get",
               s->is_short ? caps->max_piggyback_size : caps->max_putget_size);
    /* VCQs of threads that have to share a TNI may share a CQ too */
    if ((size_t)o->threads > count) {
        flags = UTOFU_VCQ_FLAG_THREAD_SAFE;
    }
    ctx->memory = shared_memory(ctx->length);
    for (i = 0; i < s->num_lanes; ++i) {
        UTOFU_CHECK(s->fn->create_vcq(tnis[(size_t)(ctx->thread + i) % count], flags,
                                      &s->lane[i].vcq));
        UTOFU_CHECK(s->fn->reg_mem(s->lane[i].vcq, ctx->memory, ctx->length, 0,
                                   &s->lane[i].stadd));
        s->lane[i].unnoticed = -1;
    }
    UTOFU_CHECK(s->fn->query_vcq_id(s->lane[0].vcq, &s->mine.vcq_id));
    s->mine.stadd = s->lane[0].stadd;
    free(tnis);
}

static size_t utofu_address(struct perf_ctx *ctx, void *blob)
{
    struct utofu_side *s = ctx->layer;

    memcpy(blob, &s->mine, sizeof(s->mine));
    return sizeof(s->mine);
}

static void utofu_connect(struct perf_ctx *ctx, int rank, const void *blob)
{
    struct utofu_side *s = ctx->layer;

    memcpy(&s->peer[rank], blob, sizeof(s->peer[rank]));
}

static void utofu_close(struct perf_ctx *ctx)
{
    struct utofu_side *s = ctx->layer;

    for (int i = 0; i < s->num_lanes; ++i) {
        UTOFU_CHECK(s->fn->dereg_mem(s->lane[i].vcq, s->lane[i].stadd, 0));
        UTOFU_CHECK(s->fn->free_vcq(s->lane[i].vcq));
    }
    munmap(ctx->memory, ctx->length);
    free(s);
}

/* ------------------------------------------------------------- completion */

static inline void poll_lane(struct perf_ctx *ctx, struct utofu_side *s,
                             struct utofu_lane *lane)
{
    struct utofu_mrq_notice notice;
    void                    *cbdata;
    int                     ret;

    if (lane->tcq > 0) {
        while ((ret = s->fn->poll_tcq(lane->vcq, 0, &cbdata)) == UTOFU_SUCCESS) {
            --lane->tcq;
            --ctx->comp.count;
        }
        PERF_CHECK(ret == UTOFU_ERR_NOT_FOUND, "utofu_poll_tcq: %s",
                   tofu_code_name(ret));
    }
    while (lane->mrq > 0) {
        ret = s->fn->poll_mrq(lane->vcq, 0, &notice);
        if (ret == UTOFU_ERR_NOT_FOUND) {
            return;
        }
        PERF_CHECK(ret == UTOFU_SUCCESS, "utofu_poll_mrq: %s", tofu_code_name(ret));
        if (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT) {
            ++s->notices; /* of pingpong_mrq, early */
            continue;
        }
        ctx->result = notice.rmt_value;
        --lane->mrq;
        --ctx->comp.count;
    }
}

static void utofu_progress(struct perf_ctx *ctx)
{
    struct utofu_side *s = ctx->layer;

    for (int i = 0; i < s->num_lanes; ++i) {
        poll_lane(ctx, s, &s->lane[i]);
    }
}

/* Frees entries of a full TOQ whose operations asked for no notice. */
static void make_room(struct perf_ctx *ctx, struct utofu_side *s,
                      struct utofu_lane *lane, int ret, const char *call)
{
    void *cbdata;

    PERF_CHECK(ret == UTOFU_ERR_BUSY, "%s: %s", call, tofu_code_name(ret));
    if (lane->tcq > 0) {
        poll_lane(ctx, s, lane);
        return;
    }
    ret = s->fn->poll_tcq(lane->vcq, 0, &cbdata);
    PERF_CHECK(ret == UTOFU_ERR_NOT_FOUND, "utofu_poll_tcq: %s",
               tofu_code_name(ret));
}

static void put_on(struct perf_ctx *ctx, struct utofu_side *s,
                   struct utofu_lane *lane, int rank, size_t local, size_t remote,
                   size_t size, unsigned long flags)
{
    const struct utofu_peer *to = &s->peer[rank];
    uint64_t                value = 0;
    int                     ret;

    if (ctx->opt->inject) {
        flags |= UTOFU_ONESIDED_FLAG_CACHE_INJECTION;
    }
    if (flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) {
        ++lane->tcq;
        ++ctx->comp.count;
    }
    if (flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) {
        ++lane->mrq;
        ++ctx->comp.count;
        lane->unnoticed = -1;
    } else {
        lane->unnoticed = rank;
    }
    for (;;) {
        if (!s->is_short) {
            ret = s->fn->put(lane->vcq, to->vcq_id, lane->stadd + local,
                             to->stadd + remote, size, 0, flags, NULL);
        } else if (size <= sizeof(value)) {
            memcpy(&value, ctx->memory + local, size);
            ret = s->fn->put_piggyback8(lane->vcq, to->vcq_id, value,
                                        to->stadd + remote, size, 0, flags, NULL);
        } else {
            ret = s->fn->put_piggyback(lane->vcq, to->vcq_id, ctx->memory + local,
                                       to->stadd + remote, size, 0, flags, NULL);
        }
        if (__builtin_expect(ret == UTOFU_SUCCESS, 1)) {
            return;
        }
        make_room(ctx, s, lane, ret, "utofu_put");
    }
}

static void utofu_put_op(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                         size_t size)
{
    struct utofu_side *s    = ctx->layer;
    struct utofu_lane *lane = &s->lane[0];
    unsigned long     flags = 0;

    if (s->num_lanes > 1) {
        lane    = &s->lane[s->next % s->num_lanes];
        rank    = 1 + (s->next % s->num_lanes) % (ctx->proc->size - 1);
        s->next = (s->next + 1) % s->num_lanes;
        while (lane->tcq + lane->mrq >= ctx->opt->window) {
            utofu_progress(ctx);
        }
    }
    if (ctx->polls_memory || s->fenced) {
        flags    |= UTOFU_ONESIDED_FLAG_STRONG_ORDER;
        s->fenced = false;
    }
    if (ctx->is_last) {
        flags |= UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                 UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    } else if (ctx->want_completion && !s->is_short) {
        flags |= UTOFU_ONESIDED_FLAG_TCQ_NOTICE; /* a piggyback has its data */
    }
    put_on(ctx, s, lane, rank, local, remote, size, flags);
}

static void utofu_fence(struct perf_ctx *ctx)
{
    ((struct utofu_side*)ctx->layer)->fenced = true;
}

/* Lanes whose last put asked for no local notice: one more put, which does. */
static void utofu_flush(struct perf_ctx *ctx)
{
    struct utofu_side *s = ctx->layer;

    for (int i = 0; i < s->num_lanes; ++i) {
        struct utofu_lane *lane = &s->lane[i];

        if (lane->unnoticed >= 0) {
            put_on(ctx, s, lane, lane->unnoticed, ctx->words + PERF_WORD_SCRATCH,
                   ctx->words + PERF_WORD_SCRATCH, 8,
                   UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                           UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
        }
    }
    perf_window(ctx, 1);
}

/* ---------------------------------------------------- the other operations */

static void utofu_get_op(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                         size_t size)
{
    struct utofu_side *s    = ctx->layer;
    struct utofu_lane *lane = &s->lane[0];
    int               ret;

    ++lane->mrq;
    ++ctx->comp.count;
    while ((ret = s->fn->get(lane->vcq, s->peer[rank].vcq_id, lane->stadd + local,
                             s->peer[rank].stadd + remote, size, 0,
                             UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL)) !=
           UTOFU_SUCCESS) {
        make_room(ctx, s, lane, ret, "utofu_get");
    }
}

static void utofu_amo(struct perf_ctx *ctx, int rank, enum perf_amo op,
                      uint64_t value, uint64_t compare, size_t remote)
{
    struct utofu_side   *s    = ctx->layer;
    struct utofu_lane   *lane = &s->lane[0];
    const unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    utofu_stadd_t       at    = s->peer[rank].stadd + remote;
    int                 ret;

    ++lane->mrq;
    ++ctx->comp.count;
    for (;;) {
        if (op == PERF_CSWAP) {
            ret = s->fn->cswap8(lane->vcq, s->peer[rank].vcq_id, compare, value, at,
                                0, flags, NULL);
        } else {
            ret = s->fn->armw8(lane->vcq, s->peer[rank].vcq_id,
                               (op == PERF_SWAP) ? UTOFU_ARMW_OP_SWAP :
                                                   UTOFU_ARMW_OP_ADD,
                               value, at, 0, flags, NULL);
        }
        if (ret == UTOFU_SUCCESS) {
            return;
        }
        if (ret == UTOFU_ERR_NOT_SUPPORTED) {
            PERF_ABSENT("this TNI has no ARMW");
        }
        make_room(ctx, s, lane, ret, "utofu_armw8");
    }
}

static void utofu_put_notice(struct perf_ctx *ctx, int rank, size_t local,
                             size_t remote, size_t size)
{
    struct utofu_side *s    = ctx->layer;
    unsigned long     flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                              UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

    put_on(ctx, s, &s->lane[0], rank, local, remote, size,
           flags | (s->is_short ? 0 : UTOFU_ONESIDED_FLAG_TCQ_NOTICE));
}

static bool utofu_poll_notice(struct perf_ctx *ctx)
{
    struct utofu_side       *s = ctx->layer;
    struct utofu_mrq_notice notice;
    int                     ret;

    if (s->notices > 0) {
        --s->notices;
        return true;
    }
    ret = s->fn->poll_mrq(s->lane[0].vcq, 0, &notice);
    if (ret == UTOFU_ERR_NOT_FOUND) {
        return false;
    }
    PERF_CHECK((ret == UTOFU_SUCCESS) &&
               (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT),
               "utofu_poll_mrq: %s, type %d", tofu_code_name(ret),
               notice.notice_type);
    return true;
}

static void *utofu_reg(struct perf_ctx *ctx, void *memory, size_t size)
{
    struct utofu_side *s = ctx->layer;
    utofu_stadd_t     stadd;

    UTOFU_CHECK(s->fn->reg_mem(s->lane[0].vcq, memory, size, 0, &stadd));
    return (void*)(uintptr_t)stadd;
}

static void utofu_dereg(struct perf_ctx *ctx, void *handle)
{
    struct utofu_side *s = ctx->layer;

    UTOFU_CHECK(s->fn->dereg_mem(s->lane[0].vcq, (uintptr_t)handle, 0));
}

const struct perf_layer perf_layer = {
    .name        = "utofu",
    .serves      = false,
    .start       = utofu_start,
    .facts       = utofu_facts,
    .open        = utofu_open,
    .address     = utofu_address,
    .connect     = utofu_connect,
    .close       = utofu_close,
    .progress    = utofu_progress,
    .flush       = utofu_flush,
    .fence       = utofu_fence,
    .put         = utofu_put_op,
    .get         = utofu_get_op,
    .put_notice  = utofu_put_notice,
    .poll_notice = utofu_poll_notice,
    .amo         = utofu_amo,
    .reg         = utofu_reg,
    .dereg       = utofu_dereg,
    .coll_open   = perf_circuit_open,
    .barrier     = perf_circuit_barrier,
    .reduce      = perf_circuit_reduce,
    .coll_close  = perf_circuit_close
};
