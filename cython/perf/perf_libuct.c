/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_libuct.c - the layer of stock libuct: our plugin, or any transport of UCX
 * (--transport, --device) that connects iface to iface or endpoint to endpoint.
 *
 * Each thread has a worker, md and iface of its own; memory is what the md allocates,
 * as in ucx_perftest, else pages that are registered.
 */
#include "perf.h"

#include <uct/api/uct.h>

#define AM_ID 3
#define PART  1024 /* most bytes of one part of an address */

_Static_assert(sizeof(struct perf_completion) == sizeof(uct_completion_t),
               "perf_completion is laid out like uct_completion_t");

#define UCT_CHECK(_call) \
    do { \
        ucs_status_t _status = (_call); \
        PERF_CHECK(_status == UCS_OK, "%s over %s: %s", #_call, \
                   options_transport(), ucs_status_string(_status)); \
    } while (0)

enum layout { SHORT, BCOPY, ZCOPY };

/* What the others have to know; ep: by rank, where endpoints are connected. */
struct uct_blob {
    uint64_t memory;
    char     device[PART], iface[PART], mkey[PART];
    char     ep[4][PART];
};
_Static_assert(sizeof(struct uct_blob) <= PERF_BLOB, "a blob holds it");

struct uct_peer {
    uct_ep_h          ep;
    uct_rkey_bundle_t rkey;
    uint64_t          memory, sent, came;
    struct uct_blob   blob;
};

struct uct_side {
    ucs_async_context_t    *async;
    uct_worker_h           worker;
    uct_component_h        component;
    uct_md_h               md;
    uct_md_attr_t          md_attr;
    uct_iface_h            iface;
    uct_iface_attr_t       attr;
    uct_allocated_memory_t allocated;
    uct_mem_h              memh;
    bool                   is_allocated, is_to_iface;
    enum layout            layout;
    struct uct_peer        peer[PERF_MAX_PROCS];
    const void             *source;
    void                   *target;
    size_t                 size;
    uint64_t               header;
};

static const char *transport = "";

static const char *options_transport(void)
{
    return transport;
}

/* ------------------------------------------------------------- opening */

static bool open_iface(struct uct_side *s, const struct perf_options *o)
{
    uct_iface_params_t params = {
        .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                      UCT_IFACE_PARAM_FIELD_DEVICE |
                      UCT_IFACE_PARAM_FIELD_STATS_ROOT |
                      UCT_IFACE_PARAM_FIELD_RX_HEADROOM,
        .open_mode  = UCT_IFACE_OPEN_MODE_DEVICE
    };
    uct_tl_resource_desc_t *resources;
    uct_iface_config_t     *config;
    unsigned               i, count;
    bool                   found = false;

    UCT_CHECK(uct_md_query_tl_resources(s->md, &resources, &count));
    for (i = 0; (i < count) && !found; ++i) {
        if (strcmp(resources[i].tl_name, o->transport) ||
            ((o->device != NULL) && strcmp(resources[i].dev_name, o->device))) {
            continue;
        }
        UCT_CHECK(uct_md_iface_config_read(s->md, o->transport, NULL, NULL,
                                           &config));
        params.mode.device.tl_name  = resources[i].tl_name;
        params.mode.device.dev_name = resources[i].dev_name;
        UCT_CHECK(uct_iface_open(s->md, s->worker, &params, config, &s->iface));
        uct_config_release(config);
        found = true;
    }
    uct_release_tl_resource_list(resources);
    return found;
}

static void open_transport(struct uct_side *s, const struct perf_options *o)
{
    uct_component_h      *components;
    uct_component_attr_t attr;
    uct_md_config_t      *config;
    ucs_status_t         status;
    unsigned             i, j, count;

    UCT_CHECK(uct_query_components(&components, &count));
    for (i = 0; (i < count) && (s->iface == NULL); ++i) {
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        UCT_CHECK(uct_component_query(components[i], &attr));
        attr.field_mask   = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        attr.md_resources = calloc(attr.md_resource_count + 1,
                                   sizeof(*attr.md_resources));
        PERF_CHECK(attr.md_resources != NULL, "no memory");
        UCT_CHECK(uct_component_query(components[i], &attr));
        for (j = 0; (j < attr.md_resource_count) && (s->iface == NULL); ++j) {
            UCT_CHECK(uct_md_config_read(components[i], NULL, NULL, &config));
            status = uct_md_open(components[i], attr.md_resources[j].md_name, config,
                                 &s->md);
            uct_config_release(config);
            if (status != UCS_OK) {
                continue; /* the one that is looked for is missed below */
            }
            s->component = components[i];
            if (!open_iface(s, o)) {
                uct_md_close(s->md);
            }
        }
        free(attr.md_resources);
    }
    uct_release_component_list(components);
    if (s->iface == NULL) {
        PERF_ABSENT("UCX has no transport %s%s%s here", o->transport,
                    o->device ? " on device " : "", o->device ? o->device : "");
    }
}

/* A size that the operation takes, and that the transport has it at all. */
static void check_limits(struct uct_side *s, const struct perf_options *o)
{
    static const char *const names[] = {"short", "bcopy", "zcopy"};
    const uct_iface_attr_t   *a = &s->attr;
    const struct {
        uint64_t flag;
        size_t   most;
    } limits[][3] = {
        [PERF_VERB_PUT] = {{UCT_IFACE_FLAG_PUT_SHORT, a->cap.put.max_short},
                           {UCT_IFACE_FLAG_PUT_BCOPY, a->cap.put.max_bcopy},
                           {UCT_IFACE_FLAG_PUT_ZCOPY, a->cap.put.max_zcopy}},
        [PERF_VERB_GET] = {{UCT_IFACE_FLAG_GET_SHORT, a->cap.get.max_short},
                           {UCT_IFACE_FLAG_GET_BCOPY, a->cap.get.max_bcopy},
                           {UCT_IFACE_FLAG_GET_ZCOPY, a->cap.get.max_zcopy}},
        [PERF_VERB_AM]  = {{UCT_IFACE_FLAG_AM_SHORT, a->cap.am.max_short},
                           {UCT_IFACE_FLAG_AM_BCOPY, a->cap.am.max_bcopy},
                           {UCT_IFACE_FLAG_AM_ZCOPY, a->cap.am.max_zcopy}}
    };
    enum perf_verb verb = perf_verb(o->test);
    int            i;

    for (i = 0; (i < 3) && strcmp(names[i], o->layout); ++i) {
    }
    PERF_CHECK(i < 3, "the layouts are short, bcopy and zcopy, not %s", o->layout);
    s->layout = (enum layout)i;
    if (verb != PERF_VERB_OTHER) {
        if (!(a->cap.flags & limits[verb][i].flag)) {
            PERF_ABSENT("%s has no such operation of layout %s", o->transport,
                        o->layout);
        }
        PERF_CHECK(o->size <= limits[verb][i].most,
                   "%s: an operation of layout %s takes %zu bytes", o->transport,
                   o->layout, limits[verb][i].most);
        if ((verb == PERF_VERB_AM) && !(a->cap.flags & UCT_IFACE_FLAG_AM_SHORT)) {
            PERF_ABSENT("%s has no am_short for acknowledgements", o->transport);
        }
    } else if (!strncmp(o->test, "add", 3) || !strcmp(o->test, "gups")) {
        if (!(a->cap.atomic64.op_flags & UCS_BIT(UCT_ATOMIC_OP_ADD))) {
            PERF_ABSENT("%s has no atomic add of 8 bytes", o->transport);
        }
    } else if (!strcmp(o->test, "fadd") || !strcmp(o->test, "swap") ||
               !strcmp(o->test, "cswap")) {
        if (~a->cap.atomic64.fop_flags & (UCS_BIT(UCT_ATOMIC_OP_ADD) |
                                          UCS_BIT(UCT_ATOMIC_OP_SWAP) |
                                          UCS_BIT(UCT_ATOMIC_OP_CSWAP))) {
            PERF_ABSENT("%s has no fetching atomics of 8 bytes", o->transport);
        }
    }
}

static void open_memory(struct perf_ctx *ctx, struct uct_side *s)
{
    uct_alloc_method_t     method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params = {
        .field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                      UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                      UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE,
        .flags      = UCT_MD_MEM_ACCESS_ALL,
        .mds        = {.mds = &s->md, .count = 1},
        .mem_type   = UCS_MEMORY_TYPE_HOST
    };
    void *memory;

    s->memh = UCT_MEM_HANDLE_NULL;
    if (s->md_attr.cap.flags & UCT_MD_FLAG_ALLOC) {
        UCT_CHECK(uct_mem_alloc(ctx->length, &method, 1, &params, &s->allocated));
        s->is_allocated = true;
        ctx->memory     = s->allocated.address;
        s->memh         = s->allocated.memh;
        return;
    }
    PERF_CHECK(posix_memalign(&memory, PERF_PAGE, ctx->length) == 0, "no memory");
    ctx->memory = memory;
    if (s->md_attr.cap.flags & UCT_MD_FLAG_REG) {
        UCT_CHECK(uct_md_mem_reg(s->md, memory, ctx->length, UCT_MD_MEM_ACCESS_ALL,
                                 &s->memh));
    }
}

/* As in perf_uct.c. */
static ucs_status_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    struct perf_ctx *ctx = arg;
    struct uct_side *s   = ctx->layer;
    uint64_t        header, number;
    unsigned        rank;

    (void)flags;
    memcpy(&header, data, sizeof(header));
    rank   = (unsigned)(header >> 48);
    number = header & 0xffffffffffffull;
    PERF_CHECK(rank < (unsigned)ctx->proc->size, "a message of rank %u", rank);
    PERF_CHECK(number == s->peer[rank].came,
               "message %lu of rank %u came as number %lu", (unsigned long)number,
               rank, (unsigned long)s->peer[rank].came);
    PERF_CHECK((length == 8) ||
               ((length == ctx->opt->size) &&
                (((uint8_t*)data)[length - 1] ==
                 perf_pattern(ctx->phase, length - 1))),
               "a message of %zu bytes is wrong", length);
    ++s->peer[rank].came;
    ++ctx->from[rank];
    ++ctx->arrived;
    return UCS_OK;
}

static void uct_open(struct perf_ctx *ctx)
{
    struct uct_side *s = calloc(1, sizeof(*s));

    PERF_CHECK(s != NULL, "no memory");
    ctx->layer = s;
    transport  = ctx->opt->transport;
    UCT_CHECK(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &s->async));
    UCT_CHECK(uct_worker_create(s->async, UCS_THREAD_MODE_SINGLE, &s->worker));
    open_transport(s, ctx->opt);
    UCT_CHECK(uct_md_query(s->md, &s->md_attr));
    UCT_CHECK(uct_iface_query(s->iface, &s->attr));
    s->is_to_iface = (s->attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE) != 0;
    PERF_CHECK(s->is_to_iface || (ctx->proc->size == 2),
               "%s connects endpoints to endpoints: two processes only",
               ctx->opt->transport);
    PERF_CHECK((s->attr.iface_addr_len <= PART) && (s->attr.ep_addr_len <= PART) &&
               (s->attr.device_addr_len <= PART) &&
               (s->md_attr.rkey_packed_size <= PART), "addresses of %s are long",
               ctx->opt->transport);
    check_limits(s, ctx->opt);
    if (s->attr.cap.flags & (UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY |
                             UCT_IFACE_FLAG_AM_ZCOPY)) {
        UCT_CHECK(uct_iface_set_am_handler(s->iface, AM_ID, on_message, ctx, 0));
    }
    uct_iface_progress_enable(s->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    open_memory(ctx, s);
}

static size_t uct_address(struct perf_ctx *ctx, void *at)
{
    struct uct_side *s    = ctx->layer;
    struct uct_blob *blob = at;
    uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE,
                              .iface      = s->iface};

    blob->memory = (uintptr_t)ctx->memory;
    UCT_CHECK(uct_iface_get_device_address(s->iface, (void*)blob->device));
    if (s->md_attr.cap.flags & UCT_MD_FLAG_NEED_RKEY) {
        UCT_CHECK(uct_md_mkey_pack(s->md, s->memh, blob->mkey));
    }
    if (s->is_to_iface) {
        UCT_CHECK(uct_iface_get_address(s->iface, (void*)blob->iface));
        return sizeof(*blob);
    }
    for (int r = 0; r < ctx->proc->size; ++r) {
        if (r != ctx->rank) {
            UCT_CHECK(uct_ep_create(&params, &s->peer[r].ep));
            UCT_CHECK(uct_ep_get_address(s->peer[r].ep, (void*)blob->ep[r]));
        }
    }
    return sizeof(*blob);
}

static uct_ep_h make_ep(struct uct_side *s, struct uct_peer *peer)
{
    uct_ep_params_t params = {
        .field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                      UCT_EP_PARAM_FIELD_IFACE_ADDR,
        .iface      = s->iface,
        .dev_addr   = (void*)peer->blob.device,
        .iface_addr = (void*)peer->blob.iface
    };
    uct_ep_h ep;

    UCT_CHECK(uct_ep_create(&params, &ep));
    return ep;
}

static void uct_connect(struct perf_ctx *ctx, int rank, const void *blob)
{
    struct uct_side *s    = ctx->layer;
    struct uct_peer *peer = &s->peer[rank];

    if (rank == ctx->rank) {
        return;
    }
    memcpy(&peer->blob, blob, sizeof(peer->blob));
    peer->memory = peer->blob.memory;
    if (s->is_to_iface) {
        peer->ep = make_ep(s, peer);
    } else {
        UCT_CHECK(uct_ep_connect_to_ep(peer->ep, (void*)peer->blob.device,
                                       (void*)peer->blob.ep[ctx->rank]));
    }
    peer->rkey.rkey = UCT_INVALID_RKEY;
    if (s->md_attr.cap.flags & UCT_MD_FLAG_NEED_RKEY) {
        UCT_CHECK(uct_rkey_unpack(s->component, peer->blob.mkey, &peer->rkey));
    }
}

static void uct_close(struct perf_ctx *ctx)
{
    struct uct_side *s = ctx->layer;

    for (int r = 0; r < ctx->proc->size; ++r) {
        if (r != ctx->rank) {
            if (s->peer[r].rkey.rkey != UCT_INVALID_RKEY) {
                uct_rkey_release(s->component, &s->peer[r].rkey);
            }
            uct_ep_destroy(s->peer[r].ep);
        }
    }
    if (s->is_allocated) {
        UCT_CHECK(uct_mem_free(&s->allocated));
    } else {
        if (s->memh != UCT_MEM_HANDLE_NULL) {
            UCT_CHECK(uct_md_mem_dereg(s->md, s->memh));
        }
        free(ctx->memory);
    }
    uct_iface_close(s->iface);
    uct_md_close(s->md);
    uct_worker_destroy(s->worker);
    ucs_async_context_destroy(s->async);
    free(s);
}

/* ------------------------------------------------------------- operations */

static void uct_progress_op(struct perf_ctx *ctx)
{
    uct_worker_progress(((struct uct_side*)ctx->layer)->worker);
}

static void uct_flush(struct perf_ctx *ctx)
{
    struct uct_side *s = ctx->layer;
    ucs_status_t    status;

    do {
        uct_worker_progress(s->worker);
        perf_spin(ctx);
        status = uct_iface_flush(s->iface, 0, NULL);
    } while ((status == UCS_INPROGRESS) || (status == UCS_ERR_NO_RESOURCE));
    PERF_CHECK(status == UCS_OK, "uct_iface_flush: %s", ucs_status_string(status));
    perf_window(ctx, 1);
    PERF_CHECK(ctx->comp.status == UCS_OK, "an operation: %s",
               ucs_status_string(ctx->comp.status));
}

static void uct_fence(struct perf_ctx *ctx)
{
    UCT_CHECK(uct_iface_fence(((struct uct_side*)ctx->layer)->iface, 0));
}

static size_t pack(void *dest, void *arg)
{
    struct uct_side *s = arg;

    memcpy(dest, s->source, s->size);
    return s->size;
}

static size_t pack_message(void *dest, void *arg)
{
    struct uct_side *s = arg;

    memcpy(dest, &s->header, sizeof(s->header));
    memcpy((char*)dest + 8, (const char*)s->source + 8, s->size - 8);
    return s->size;
}

static void unpack(void *arg, const void *data, size_t length)
{
    struct uct_side *s = arg;

    memcpy(s->target, data, length);
}

/* What to do with a status: true when the operation is posted. */
static inline bool is_posted(struct perf_ctx *ctx, struct uct_side *s,
                             ucs_status_t status, bool counts, const char *call)
{
    if (__builtin_expect(status == UCS_OK, 1)) {
        return true;
    }
    if (status == UCS_INPROGRESS) {
        ctx->comp.count += counts;
        return true;
    }
    PERF_CHECK(status == UCS_ERR_NO_RESOURCE, "%s over %s: %s", call, transport,
               ucs_status_string(status));
    uct_worker_progress(s->worker);
    perf_spin(ctx);
    return false;
}

static inline ucs_status_t packed(ssize_t ret)
{
    return (ret >= 0) ? UCS_OK : (ucs_status_t)ret;
}

static void uct_put(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                    size_t size)
{
    struct uct_side  *s     = ctx->layer;
    struct uct_peer  *peer  = &s->peer[rank];
    bool             counts = ctx->want_completion && !ctx->polls_memory;
    uct_completion_t *comp  = counts ? (uct_completion_t*)&ctx->comp : NULL;
    uct_iov_t        iov    = {.buffer = ctx->memory + local, .length = size,
                               .memh = s->memh, .count = 1};
    uint64_t         to     = peer->memory + remote;
    ucs_status_t     status;

    s->source = ctx->memory + local;
    s->size   = size;
    do {
        switch (s->layout) {
        case SHORT:
            status = uct_ep_put_short(peer->ep, s->source, (unsigned)size, to,
                                      peer->rkey.rkey);
            break;
        case BCOPY:
            status = packed(uct_ep_put_bcopy(peer->ep, pack, s, to,
                                             peer->rkey.rkey));
            break;
        default:
            status = uct_ep_put_zcopy(peer->ep, &iov, 1, to, peer->rkey.rkey, comp);
        }
    } while (!is_posted(ctx, s, status, counts, "put"));
}

static void uct_get(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                    size_t size)
{
    struct uct_side  *s    = ctx->layer;
    struct uct_peer  *peer = &s->peer[rank];
    uct_completion_t *comp = (uct_completion_t*)&ctx->comp;
    uct_iov_t        iov   = {.buffer = ctx->memory + local, .length = size,
                              .memh = s->memh, .count = 1};
    uint64_t         from  = peer->memory + remote;
    ucs_status_t     status;

    s->target = ctx->memory + local;
    do {
        switch (s->layout) {
        case SHORT:
            status = uct_ep_get_short(peer->ep, s->target, (unsigned)size, from,
                                      peer->rkey.rkey);
            break;
        case BCOPY:
            status = uct_ep_get_bcopy(peer->ep, unpack, s, size, from,
                                      peer->rkey.rkey, comp);
            break;
        default:
            status = uct_ep_get_zcopy(peer->ep, &iov, 1, from, peer->rkey.rkey,
                                      comp);
        }
    } while (!is_posted(ctx, s, status, true, "get"));
}

static void uct_amo(struct perf_ctx *ctx, int rank, enum perf_amo op, uint64_t value,
                    uint64_t compare, size_t remote)
{
    struct uct_side  *s    = ctx->layer;
    struct uct_peer  *peer = &s->peer[rank];
    uct_completion_t *comp = (uct_completion_t*)&ctx->comp;
    uint64_t         at    = peer->memory + remote;
    ucs_status_t     status;

    do {
        switch (op) {
        case PERF_ADD:
            status = uct_ep_atomic64_post(peer->ep, UCT_ATOMIC_OP_ADD, value, at,
                                          peer->rkey.rkey);
            break;
        case PERF_CSWAP:
            status = uct_ep_atomic_cswap64(peer->ep, compare, value, at,
                                           peer->rkey.rkey, &ctx->result, comp);
            break;
        default:
            status = uct_ep_atomic64_fetch(peer->ep, (op == PERF_FADD) ?
                                           UCT_ATOMIC_OP_ADD : UCT_ATOMIC_OP_SWAP,
                                           value, &ctx->result, at,
                                           peer->rkey.rkey, comp);
        }
    } while (!is_posted(ctx, s, status, op != PERF_ADD, "atomic"));
}

static bool uct_has(enum perf_kind kind)
{
    return kind == PERF_AM;
}

static void uct_send(struct perf_ctx *ctx, int rank, enum perf_kind kind,
                     size_t size)
{
    struct uct_side  *s     = ctx->layer;
    struct uct_peer  *peer  = &s->peer[rank];
    enum layout      layout = (size == 8) ? SHORT : s->layout;
    uct_iov_t        iov    = {.buffer = ctx->memory + ctx->out + 8,
                               .length = size - 8, .memh = s->memh, .count = 1};
    ucs_status_t     status;

    (void)kind;
    s->header = ((uint64_t)ctx->rank << 48) | peer->sent;
    s->source = ctx->memory + ctx->out;
    s->size   = size;
    do {
        switch (layout) {
        case SHORT:
            status = uct_ep_am_short(peer->ep, AM_ID, s->header, iov.buffer,
                                     (unsigned)(size - 8));
            break;
        case BCOPY:
            status = packed(uct_ep_am_bcopy(peer->ep, AM_ID, pack_message, s, 0));
            break;
        default:
            status = uct_ep_am_zcopy(peer->ep, AM_ID, &s->header, 8, &iov, 1, 0,
                                     (uct_completion_t*)&ctx->comp);
        }
    } while (!is_posted(ctx, s, status, true, "am"));
    ++peer->sent;
}

static void *uct_reg(struct perf_ctx *ctx, void *memory, size_t size)
{
    struct uct_side *s = ctx->layer;
    uct_mem_h       memh;

    if (!(s->md_attr.cap.flags & UCT_MD_FLAG_REG)) {
        PERF_ABSENT("%s registers no memory", transport);
    }
    UCT_CHECK(uct_md_mem_reg(s->md, memory, size, UCT_MD_MEM_ACCESS_ALL, &memh));
    return memh;
}

static void uct_dereg(struct perf_ctx *ctx, void *handle)
{
    UCT_CHECK(uct_md_mem_dereg(((struct uct_side*)ctx->layer)->md, handle));
}

static void *uct_make_ep(struct perf_ctx *ctx, int rank)
{
    struct uct_side *s = ctx->layer;

    if (!s->is_to_iface) {
        PERF_ABSENT("%s connects endpoints to endpoints", transport);
    }
    return make_ep(s, &s->peer[rank]);
}

static void uct_end_ep(struct perf_ctx *ctx, void *ep)
{
    (void)ctx;
    uct_ep_destroy(ep);
}

const struct perf_layer perf_layer = {
    .name       = "libuct",
    .serves     = true,
    .acknowledges = true,
    .open       = uct_open,
    .address    = uct_address,
    .connect    = uct_connect,
    .close      = uct_close,
    .progress   = uct_progress_op,
    .flush      = uct_flush,
    .fence      = uct_fence,
    .put        = uct_put,
    .get        = uct_get,
    .amo        = uct_amo,
    .has        = uct_has,
    .send       = uct_send,
    .reg        = uct_reg,
    .dereg      = uct_dereg,
    .ep_create  = uct_make_ep,
    .ep_destroy = uct_end_ep
};
