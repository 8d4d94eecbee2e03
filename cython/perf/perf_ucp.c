/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_ucp.c - the layer of stock libucp; UCX_TLS in the environment chooses the
 * transports.  One worker per thread, on a context that threads share; memory is what
 * UCP allocates, operations are the *_nbx functions without memory handles, as in
 * ucx_perftest.
 */
#include "perf.h"

#include <ucp/api/ucp.h>

#define AM_ID 3
#define PART  (PERF_BLOB / 2 - 16)

#define UCP_CHECK(_call) \
    do { \
        ucs_status_t _status = (_call); \
        PERF_CHECK(_status == UCS_OK, "%s: %s", #_call, \
                   ucs_status_string(_status)); \
    } while (0)

struct ucp_blob {
    uint64_t memory;
    char     key[PART], address[PART];
};
_Static_assert(sizeof(struct ucp_blob) <= PERF_BLOB, "a blob holds it");

struct ucp_peer {
    ucp_ep_h        ep;
    ucp_rkey_h      rkey;
    uint64_t        memory;
    struct ucp_blob blob;
};

struct ucp_side {
    ucp_worker_h    worker;
    ucp_mem_h       memh;
    struct ucp_peer peer[PERF_MAX_PROCS];
    uint64_t        header;         /* of messages of many_to_one: who sends */
    uint64_t        value, compare; /* of the atomic under way */
};

static ucp_context_h context;

static void ucp_start(struct perf_proc *proc)
{
    ucp_params_t params = {
        .field_mask        = UCP_PARAM_FIELD_FEATURES |
                             UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features          = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_TAG |
                             UCP_FEATURE_STREAM | UCP_FEATURE_AM,
        .mt_workers_shared = (proc->opt->threads > 1)
    };
    ucp_config_t *config;

    UCP_CHECK(ucp_config_read(NULL, NULL, &config));
    UCP_CHECK(ucp_init(&params, config, &context));
    ucp_config_release(config);
}

static void ucp_facts(struct perf_proc *proc, FILE *out)
{
    (void)proc;
    fprintf(out, ",\"ucx\":\"%s\"", ucp_get_version_string());
}

static void ucp_stop(struct perf_proc *proc)
{
    (void)proc;
    ucp_cleanup(context);
}

/* ------------------------------------------------------------- callbacks */

static void on_done(void *request, ucs_status_t status, void *user)
{
    PERF_CHECK(status == UCS_OK, "an operation: %s", ucs_status_string(status));
    --((struct perf_ctx*)user)->comp.count;
    ucp_request_free(request);
}

static void on_received(void *request, ucs_status_t status, void *user)
{
    PERF_CHECK(status == UCS_OK, "a receive: %s", ucs_status_string(status));
    ++((struct perf_ctx*)user)->arrived;
    if (request != NULL) {
        ucp_request_free(request);
    }
}

static void check_length(struct perf_ctx *ctx, size_t length)
{
    PERF_CHECK((length == 8) || (length == ctx->opt->size),
               "a message of %zu bytes", length);
}

static void on_tag(void *request, ucs_status_t status,
                   const ucp_tag_recv_info_t *info, void *user)
{
    check_length(user, info->length);
    on_received(request, status, user);
}

static void on_stream(void *request, ucs_status_t status, size_t length, void *user)
{
    check_length(user, length);
    on_received(request, status, user);
}

static void on_am_data(void *request, ucs_status_t status, size_t length, void *user)
{
    check_length(user, length);
    on_received(request, status, user);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length,
                               void *data, size_t length,
                               const ucp_am_recv_param_t *recv)
{
    struct perf_ctx     *ctx = arg;
    struct ucp_side     *s   = ctx->layer;
    ucp_request_param_t param;
    ucs_status_ptr_t    request;
    uint64_t            rank = (uint64_t)(1 - ctx->rank);

    check_length(ctx, length);
    if (header_length == sizeof(rank)) {
        memcpy(&rank, header, sizeof(rank));
        PERF_CHECK(rank < (uint64_t)ctx->proc->size, "a message of rank %lu",
                   (unsigned long)rank);
        ++ctx->from[rank];
    }
    if (!(recv->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        PERF_CHECK((length == 8) || (((uint8_t*)data)[length - 1] ==
                                     perf_pattern(ctx->phase, length - 1)),
                   "the last byte of a message is wrong");
        ++ctx->arrived;
        return UCS_OK;
    }
    param = (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb           = {.recv_am = on_am_data},
        .user_data    = ctx
    };
    request = ucp_am_recv_data_nbx(s->worker, data, ctx->memory, length, &param);
    PERF_CHECK(!UCS_PTR_IS_ERR(request), "ucp_am_recv_data_nbx: %s",
               ucs_status_string(UCS_PTR_STATUS(request)));
    return UCS_INPROGRESS;
}

/* --------------------------------------------------------------- opening */

static void ucp_open(struct perf_ctx *ctx)
{
    struct ucp_side            *s = calloc(1, sizeof(*s));
    ucp_worker_params_t        worker = {
        .field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE
    };
    ucp_mem_map_params_t       map = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length     = ctx->length,
        .flags      = UCP_MEM_MAP_ALLOCATE
    };
    ucp_am_handler_param_t     am = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                      UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = AM_ID,
        .cb         = on_message,
        .arg        = ctx
    };
    ucp_mem_attr_t             attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};

    PERF_CHECK(s != NULL, "no memory");
    PERF_CHECK(!strcmp(ctx->opt->layout, "contig"),
               "the layout of UCP is contig, not %s", ctx->opt->layout);
    ctx->layer = s;
    if (ctx->opt->threads > 1) {
        /* opened by the main thread, used by another one */
        worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    }
    UCP_CHECK(ucp_worker_create(context, &worker, &s->worker));
    UCP_CHECK(ucp_worker_set_am_recv_handler(s->worker, &am));
    UCP_CHECK(ucp_mem_map(context, &map, &s->memh));
    UCP_CHECK(ucp_mem_query(s->memh, &attr));
    ctx->memory = attr.address;
    s->header   = (uint64_t)ctx->rank;
}

static size_t ucp_address(struct perf_ctx *ctx, void *at)
{
    struct ucp_side *s    = ctx->layer;
    struct ucp_blob *blob = at;
    ucp_address_t   *address;
    void            *key;
    size_t          length;

    blob->memory = (uintptr_t)ctx->memory;
    UCP_CHECK(ucp_rkey_pack(context, s->memh, &key, &length));
    PERF_CHECK(length <= PART, "a long rkey");
    memcpy(blob->key, key, length);
    ucp_rkey_buffer_release(key);
    UCP_CHECK(ucp_worker_get_address(s->worker, &address, &length));
    PERF_CHECK(length <= PART, "a worker address of %zu bytes", length);
    memcpy(blob->address, address, length);
    ucp_worker_release_address(s->worker, address);
    return sizeof(*blob);
}

static void *ucp_make_ep(struct perf_ctx *ctx, int rank)
{
    struct ucp_side *s     = ctx->layer;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_ep_h        ep;

    params.address = (ucp_address_t*)s->peer[rank].blob.address;
    UCP_CHECK(ucp_ep_create(s->worker, &params, &ep));
    return ep;
}

static void ucp_connect(struct perf_ctx *ctx, int rank, const void *blob)
{
    struct ucp_side *s    = ctx->layer;
    struct ucp_peer *peer = &s->peer[rank];

    if (rank == ctx->rank) {
        return;
    }
    memcpy(&peer->blob, blob, sizeof(peer->blob));
    peer->memory = peer->blob.memory;
    peer->ep     = ucp_make_ep(ctx, rank);
    UCP_CHECK(ucp_ep_rkey_unpack(peer->ep, peer->blob.key, &peer->rkey));
}

static void ucp_progress_op(struct perf_ctx *ctx)
{
    ucp_worker_progress(((struct ucp_side*)ctx->layer)->worker);
}

static void wait_for(struct perf_ctx *ctx, void *request, const char *call)
{
    ucs_status_t status;

    PERF_CHECK(!UCS_PTR_IS_ERR(request), "%s: %s", call,
               ucs_status_string(UCS_PTR_STATUS(request)));
    if (request == NULL) {
        return;
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_progress_op(ctx);
        perf_spin(ctx);
    }
    PERF_CHECK(status == UCS_OK, "%s: %s", call, ucs_status_string(status));
    ucp_request_free(request);
}

static void ucp_end_ep(struct perf_ctx *ctx, void *ep)
{
    ucp_request_param_t param = {0};

    wait_for(ctx, ucp_ep_close_nbx(ep, &param), "ucp_ep_close_nbx");
}

static void ucp_close(struct perf_ctx *ctx)
{
    struct ucp_side *s = ctx->layer;
    int             r;

    for (r = 0; r < ctx->proc->size; ++r) {
        if (r != ctx->rank) {
            ucp_rkey_destroy(s->peer[r].rkey);
            ucp_end_ep(ctx, s->peer[r].ep);
        }
    }
    perf_part(ctx); /* workers go on until all endpoints are closed */
    UCP_CHECK(ucp_mem_unmap(context, s->memh));
    ucp_worker_destroy(s->worker);
    free(s);
}

/* ------------------------------------------------------------- operations */

static inline ucp_request_param_t param_of(struct perf_ctx *ctx)
{
    return (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb           = {.send = on_done},
        .user_data    = ctx
    };
}

static inline void posted(struct perf_ctx *ctx, void *request, const char *call)
{
    if (request != NULL) {
        PERF_CHECK(!UCS_PTR_IS_ERR(request), "%s: %s", call,
                   ucs_status_string(UCS_PTR_STATUS(request)));
        ++ctx->comp.count;
    }
}

static void ucp_flush(struct perf_ctx *ctx)
{
    ucp_request_param_t param = {0};

    wait_for(ctx, ucp_worker_flush_nbx(((struct ucp_side*)ctx->layer)->worker,
                                       &param), "ucp_worker_flush_nbx");
    perf_window(ctx, 1);
}

static void ucp_fence(struct perf_ctx *ctx)
{
    UCP_CHECK(ucp_worker_fence(((struct ucp_side*)ctx->layer)->worker));
}

static void ucp_put_op(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                       size_t size)
{
    struct ucp_peer     *peer = &((struct ucp_side*)ctx->layer)->peer[rank];
    ucp_request_param_t param = param_of(ctx);

    posted(ctx, ucp_put_nbx(peer->ep, ctx->memory + local, size,
                            peer->memory + remote, peer->rkey, &param),
           "ucp_put_nbx");
}

static void ucp_get_op(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                       size_t size)
{
    struct ucp_peer     *peer = &((struct ucp_side*)ctx->layer)->peer[rank];
    ucp_request_param_t param = param_of(ctx);

    posted(ctx, ucp_get_nbx(peer->ep, ctx->memory + local, size,
                            peer->memory + remote, peer->rkey, &param),
           "ucp_get_nbx");
}

static void ucp_amo(struct perf_ctx *ctx, int rank, enum perf_amo op, uint64_t value,
                    uint64_t compare, size_t remote)
{
    static const ucp_atomic_op_t ops[] = {
        [PERF_ADD]  = UCP_ATOMIC_OP_ADD,
        [PERF_FADD] = UCP_ATOMIC_OP_ADD,
        [PERF_SWAP] = UCP_ATOMIC_OP_SWAP,
        [PERF_CSWAP] = UCP_ATOMIC_OP_CSWAP
    };
    struct ucp_side     *s    = ctx->layer;
    struct ucp_peer     *peer = &s->peer[rank];
    ucp_request_param_t param = param_of(ctx);
    const uint64_t      *buffer = &s->value;

    s->value             = value;
    param.op_attr_mask  |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype       = ucp_dt_make_contig(8);
    if (op != PERF_ADD) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer  = &ctx->result;
    }
    if (op == PERF_CSWAP) { /* what is swapped in stands where the answer comes */
        s->compare  = compare;
        ctx->result = value;
        buffer      = &s->compare;
    }
    posted(ctx, ucp_atomic_op_nbx(peer->ep, ops[op], buffer, 1,
                                  peer->memory + remote, peer->rkey, &param),
           "ucp_atomic_op_nbx");
}

static bool ucp_has(enum perf_kind kind)
{
    (void)kind;
    return true;
}

static void ucp_send(struct perf_ctx *ctx, int rank, enum perf_kind kind,
                     size_t size)
{
    struct ucp_side     *s    = ctx->layer;
    ucp_ep_h            ep    = s->peer[rank].ep;
    void                *data = ctx->memory + ctx->out;
    ucp_request_param_t param = param_of(ctx);

    switch (kind) {
    case PERF_AM:
        posted(ctx, ucp_am_send_nbx(ep, AM_ID, &s->header,
                                    (ctx->proc->size > 2) ? sizeof(s->header) : 0,
                                    data, size, &param), "ucp_am_send_nbx");
        break;
    case PERF_TAG:
        posted(ctx, ucp_tag_send_nbx(ep, data, size, (ucp_tag_t)ctx->rank, &param),
               "ucp_tag_send_nbx");
        break;
    default:
        posted(ctx, ucp_stream_send_nbx(ep, data, size, &param),
               "ucp_stream_send_nbx");
    }
}

static void ucp_receive(struct perf_ctx *ctx, int rank, enum perf_kind kind,
                        size_t size)
{
    struct ucp_side     *s    = ctx->layer;
    ucp_request_param_t param = param_of(ctx);
    void                *request;
    size_t              length;

    if (kind == PERF_TAG) {
        param.cb.recv = on_tag;
        request = ucp_tag_recv_nbx(s->worker, ctx->memory, size, (ucp_tag_t)rank,
                                   ~(ucp_tag_t)0, &param);
    } else {
        param.op_attr_mask  |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags          = UCP_STREAM_RECV_FLAG_WAITALL;
        param.cb.recv_stream = on_stream;
        request = ucp_stream_recv_nbx(s->peer[rank].ep, ctx->memory, size, &length,
                                      &param);
    }
    PERF_CHECK(!UCS_PTR_IS_ERR(request), "a receive: %s",
               ucs_status_string(UCS_PTR_STATUS(request)));
    if (request == NULL) {
        ++ctx->arrived;
    }
}

static void *ucp_reg(struct perf_ctx *ctx, void *memory, size_t size)
{
    ucp_mem_map_params_t map = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = memory,
        .length     = size
    };
    ucp_mem_h memh;

    (void)ctx;
    UCP_CHECK(ucp_mem_map(context, &map, &memh));
    return memh;
}

static void ucp_dereg(struct perf_ctx *ctx, void *handle)
{
    (void)ctx;
    UCP_CHECK(ucp_mem_unmap(context, handle));
}

const struct perf_layer perf_layer = {
    .name       = "ucp",
    .serves     = true,
    .start      = ucp_start,
    .facts      = ucp_facts,
    .stop       = ucp_stop,
    .open       = ucp_open,
    .address    = ucp_address,
    .connect    = ucp_connect,
    .close      = ucp_close,
    .progress   = ucp_progress_op,
    .flush      = ucp_flush,
    .fence      = ucp_fence,
    .put        = ucp_put_op,
    .get        = ucp_get_op,
    .amo        = ucp_amo,
    .has        = ucp_has,
    .send       = ucp_send,
    .receive    = ucp_receive,
    .reg        = ucp_reg,
    .dereg      = ucp_dereg,
    .ep_create  = ucp_make_ep,
    .ep_destroy = ucp_end_ep
};
