/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_uct.c - the layer of the transport core: UCT's verbs without UCX.
 *
 * --layout=short|bcopy|zcopy chooses the verbs; a get of "short" is one of bcopy, as
 * there is no get_short.  Atomics have one way only.
 */
#include "perf_utofu.h"

#include <tofu.h>

#define AM_ID   3
#define KEY_MAX 256

_Static_assert(sizeof(struct perf_completion) == sizeof(tofu_completion_t),
               "perf_completion is laid out like tofu_completion_t");

#define CORE_CHECK(_call) \
    do { \
        tofu_status_t _status = (_call); \
        PERF_CHECK(_status == TOFU_OK, "%s: %s", #_call, \
                   tofu_status_string(_status)); \
    } while (0)

enum layout { SHORT, BCOPY, ZCOPY };

/* What the others have to know. */
struct core_address {
    uint64_t memory;
    size_t   length; /* of the iface's address */
    char     key[KEY_MAX], iface[KEY_MAX];
};

struct core_peer {
    tofu_ep_t   *ep;
    tofu_rkey_t *rkey;
    uint64_t    memory;
    uint64_t    sent, came; /* messages */
    struct core_address address;
};

struct core_side {
    tofu_iface_t     *iface;
    tofu_mem_t       *memh;
    enum layout      layout;
    struct core_peer peer[PERF_MAX_PROCS];
    struct perf_ctx  *ctx;
    /* of the operation that is being packed or unpacked */
    const void       *source;
    void             *target;
    size_t           size;
    uint64_t         header;
};

static const struct tofu_backend *backend;
static tofu_md_t                 *md;

static void core_start(struct perf_proc *proc)
{
    tofu_md_config_t config;
    char             error[2048];

    (void)proc;
    PERF_CHECK(tofu_backend_load(NULL, &backend, error, sizeof(error)) == 0,
               "no uTofu library: %s", error);
    tofu_md_config_default(&config);
    config.tni = 0;
    CORE_CHECK(tofu_md_open(backend, &config, &md));
}

static void core_facts(struct perf_proc *proc, FILE *out)
{
    (void)proc;
    perf_utofu_facts(backend, out);
}

static void core_stop(struct perf_proc *proc)
{
    (void)proc;
    tofu_md_close(md);
}

/* A message begins with its sender's rank and its number: each comes once, in
 * order, and its last byte is that of the phase's pattern. */
static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    struct perf_ctx  *ctx = arg;
    struct core_side *s   = ctx->layer;
    uint64_t         header;
    unsigned         rank;

    (void)flags;
    memcpy(&header, data, sizeof(header));
    rank = (unsigned)(header >> 48);
    PERF_CHECK(rank < (unsigned)ctx->proc->size, "a message of rank %u", rank);
    PERF_CHECK((header & 0xffffffffffffull) == s->peer[rank].came,
               "message %lu of rank %u came as number %lu",
               (unsigned long)(header & 0xffffffffffffull), rank,
               (unsigned long)s->peer[rank].came);
    PERF_CHECK((length == 8) || (length == ctx->opt->size),
               "a message of %zu bytes", length);
    PERF_CHECK((length == 8) || (((uint8_t*)data)[length - 1] ==
                                 perf_pattern(ctx->phase, length - 1)),
               "the last byte of a message is wrong");
    ++s->peer[rank].came;
    ++ctx->from[rank];
    ++ctx->arrived;
    return TOFU_OK;
}

static void core_open(struct perf_ctx *ctx)
{
    static const char *const names[] = {"short", "bcopy", "zcopy"};
    tofu_iface_config_t config;
    struct core_side    *s = calloc(1, sizeof(*s));
    tofu_iface_attr_t   attr;
    size_t              length = ctx->length, most;
    void                *memory;
    int                 i;

    PERF_CHECK(s != NULL, "no memory");
    ctx->layer = s;
    s->ctx     = ctx;
    for (i = 0; (i < 3) && strcmp(names[i], ctx->opt->layout); ++i) {
    }
    PERF_CHECK(i < 3, "the layouts are short, bcopy and zcopy, not %s",
               ctx->opt->layout);
    s->layout = (enum layout)i;
    tofu_iface_config_default(&config);
    CORE_CHECK(tofu_iface_open(md, &config, &s->iface));
    CORE_CHECK(tofu_iface_set_am_handler(s->iface, AM_ID, on_message, ctx));
    tofu_iface_query(s->iface, &attr);
    switch (perf_verb(ctx->opt->test)) {
    case PERF_VERB_AM:
        most = (i == SHORT) ? attr.max_am_short :
               (i == BCOPY) ? attr.max_am_bcopy : attr.max_am_zcopy;
        break;
    case PERF_VERB_PUT:
        most = (i == SHORT) ? attr.max_put_short :
               (i == BCOPY) ? attr.max_put_bcopy : attr.max_put_zcopy;
        break;
    case PERF_VERB_GET:
        most = (i == ZCOPY) ? attr.max_get_zcopy : attr.max_get_bcopy;
        break;
    default:
        most = SIZE_MAX;
    }
    PERF_CHECK(ctx->opt->size <= most, "an operation of layout %s takes %zu bytes",
               names[i], most);
    CORE_CHECK(tofu_mem_alloc(md, &length, 0, &memory, &s->memh));
    ctx->memory = memory;
}

static size_t core_address(struct perf_ctx *ctx, void *blob)
{
    struct core_side    *s       = ctx->layer;
    struct core_address *address = blob;
    tofu_iface_attr_t   attr;
    tofu_md_attr_t      md_attr;

    tofu_iface_query(s->iface, &attr);
    tofu_md_query(md, &md_attr);
    PERF_CHECK((attr.iface_addr_len <= KEY_MAX) &&
               (md_attr.rkey_packed_size <= KEY_MAX), "a long address");
    address->memory = (uintptr_t)ctx->memory;
    address->length = attr.iface_addr_len;
    tofu_iface_get_address(s->iface, address->iface);
    tofu_mkey_pack(s->memh, address->key);
    return sizeof(*address);
}

static void core_connect(struct perf_ctx *ctx, int rank, const void *blob)
{
    struct core_side *s    = ctx->layer;
    struct core_peer *peer = &s->peer[rank];

    memcpy(&peer->address, blob, sizeof(peer->address));
    peer->memory = peer->address.memory;
    CORE_CHECK(tofu_ep_create(s->iface, peer->address.iface, peer->address.length,
                              &peer->ep));
    CORE_CHECK(tofu_rkey_unpack(peer->address.key, 0, &peer->rkey));
}

static void core_close(struct perf_ctx *ctx)
{
    struct core_side *s = ctx->layer;

    for (int r = 0; r < ctx->proc->size; ++r) {
        tofu_rkey_release(s->peer[r].rkey);
        tofu_ep_destroy(s->peer[r].ep);
    }
    tofu_iface_close(s->iface);
    CORE_CHECK(tofu_mem_free(s->memh));
    free(s);
}

static void core_counters(struct perf_ctx *ctx, FILE *out)
{
    struct core_side   *s = ctx->layer;
    tofu_iface_stats_t stats;

    tofu_iface_get_stats(s->iface, &stats);
    fprintf(out, "\"posts\":%lu,\"notices\":%lu,\"tcq_entries\":%lu,"
            "\"am_tx\":%lu,\"am_rx\":%lu,\"polls\":%lu",
            (unsigned long)stats.posts, (unsigned long)stats.notices,
            (unsigned long)stats.tcq_entries, (unsigned long)stats.am_tx,
            (unsigned long)stats.am_rx, (unsigned long)stats.polls);
}

static void core_progress(struct perf_ctx *ctx)
{
    tofu_iface_progress(((struct core_side*)ctx->layer)->iface);
}

static void core_flush(struct perf_ctx *ctx)
{
    struct core_side *s = ctx->layer;
    tofu_status_t    status;

    do {
        tofu_iface_progress(s->iface);
        perf_spin(ctx);
        status = tofu_iface_flush(s->iface, 0, NULL);
    } while ((status == TOFU_INPROGRESS) || (status == TOFU_ERR_NO_RESOURCE));
    PERF_CHECK(status == TOFU_OK, "tofu_iface_flush: %s",
               tofu_status_string(status));
    perf_window(ctx, 1);
    PERF_CHECK(ctx->comp.status == 0, "an operation: %s",
               tofu_status_string(ctx->comp.status));
}

static void core_fence(struct perf_ctx *ctx)
{
    CORE_CHECK(tofu_iface_fence(((struct core_side*)ctx->layer)->iface));
}

/* ------------------------------------------------------------- operations */

static size_t pack(void *dest, void *arg)
{
    struct core_side *s = arg;

    memcpy(dest, s->source, s->size);
    return s->size;
}

static size_t pack_message(void *dest, void *arg)
{
    struct core_side *s = arg;

    memcpy(dest, &s->header, sizeof(s->header));
    memcpy((char*)dest + 8, (const char*)s->source + 8, s->size - 8);
    return s->size;
}

static void unpack(void *arg, const void *data, size_t length)
{
    struct core_side *s = arg;

    memcpy(s->target, data, length);
}

/* What to do with a status: true when the operation is posted. */
static inline bool is_posted(struct perf_ctx *ctx, struct core_side *s,
                             tofu_status_t status, bool counts, const char *call)
{
    if (__builtin_expect(status == TOFU_OK, 1)) {
        return true;
    }
    if (status == TOFU_INPROGRESS) {
        ctx->comp.count += counts;
        return true;
    }
    PERF_CHECK(status == TOFU_ERR_NO_RESOURCE, "%s: %s", call,
               tofu_status_string(status));
    tofu_iface_progress(s->iface);
    perf_spin(ctx);
    return false;
}

static void core_put(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                     size_t size)
{
    struct core_side  *s    = ctx->layer;
    struct core_peer  *peer = &s->peer[rank];
    bool              counts = ctx->want_completion && !ctx->polls_memory;
    tofu_completion_t *comp = counts ? (tofu_completion_t*)&ctx->comp : NULL;
    tofu_status_t     status;
    tofu_iov_t        iov;
    intptr_t          ret;

    s->source = ctx->memory + local;
    s->size   = size;
    iov       = (tofu_iov_t){.buffer = ctx->memory + local, .length = size,
                             .memh = s->memh, .count = 1};
    do {
        switch (s->layout) {
        case SHORT:
            status = tofu_ep_put_short(peer->ep, s->source, (unsigned)size,
                                       peer->memory + remote, peer->rkey);
            break;
        case BCOPY:
            ret    = tofu_ep_put_bcopy(peer->ep, pack, s, peer->memory + remote,
                                       peer->rkey);
            status = (ret >= 0) ? TOFU_OK : (tofu_status_t)ret;
            break;
        default:
            status = tofu_ep_put_zcopy(peer->ep, &iov, 1, peer->memory + remote,
                                       peer->rkey, comp);
        }
    } while (!is_posted(ctx, s, status, counts, "put"));
}

static void core_get(struct perf_ctx *ctx, int rank, size_t local, size_t remote,
                     size_t size)
{
    struct core_side  *s    = ctx->layer;
    struct core_peer  *peer = &s->peer[rank];
    tofu_completion_t *comp = (tofu_completion_t*)&ctx->comp;
    tofu_iov_t        iov   = {.buffer = ctx->memory + local, .length = size,
                               .memh = s->memh, .count = 1};
    tofu_status_t     status;

    s->target = ctx->memory + local;
    do {
        if (s->layout == ZCOPY) {
            status = tofu_ep_get_zcopy(peer->ep, &iov, 1, peer->memory + remote,
                                       peer->rkey, comp);
        } else {
            status = tofu_ep_get_bcopy(peer->ep, unpack, s, size,
                                       peer->memory + remote, peer->rkey, comp);
        }
    } while (!is_posted(ctx, s, status, true, "get"));
}

static void core_amo(struct perf_ctx *ctx, int rank, enum perf_amo op,
                     uint64_t value, uint64_t compare, size_t remote)
{
    struct core_side  *s    = ctx->layer;
    struct core_peer  *peer = &s->peer[rank];
    tofu_completion_t *comp = (tofu_completion_t*)&ctx->comp;
    uint64_t          at    = peer->memory + remote;
    tofu_status_t     status;

    do {
        switch (op) {
        case PERF_ADD:
            status = tofu_ep_atomic_post(peer->ep, TOFU_ATOMIC_ADD, 8, value, at,
                                         peer->rkey);
            break;
        case PERF_CSWAP:
            status = tofu_ep_atomic_cswap(peer->ep, 8, compare, value, &ctx->result,
                                          at, peer->rkey, comp);
            break;
        default:
            status = tofu_ep_atomic_fetch(peer->ep, (op == PERF_FADD) ?
                                          TOFU_ATOMIC_ADD : TOFU_ATOMIC_SWAP, 8,
                                          value, &ctx->result, at, peer->rkey, comp);
        }
    } while (!is_posted(ctx, s, status, op != PERF_ADD, "atomic"));
}

static bool core_has(enum perf_kind kind)
{
    return kind == PERF_AM;
}

static void core_send(struct perf_ctx *ctx, int rank, enum perf_kind kind,
                      size_t size)
{
    struct core_side  *s    = ctx->layer;
    struct core_peer  *peer = &s->peer[rank];
    tofu_completion_t *comp = (tofu_completion_t*)&ctx->comp;
    enum layout       layout = (size == 8) ? SHORT : s->layout;
    tofu_status_t     status;
    tofu_iov_t        iov;
    intptr_t          ret;

    (void)kind;
    s->header = ((uint64_t)ctx->rank << 48) | peer->sent;
    s->source = ctx->memory + ctx->out;
    s->size   = size;
    iov       = (tofu_iov_t){.buffer = ctx->memory + ctx->out + 8,
                             .length = size - 8, .memh = s->memh, .count = 1};
    do {
        switch (layout) {
        case SHORT:
            status = tofu_ep_am_short(peer->ep, AM_ID, s->header, iov.buffer,
                                      (unsigned)(size - 8));
            break;
        case BCOPY:
            ret    = tofu_ep_am_bcopy(peer->ep, AM_ID, pack_message, s);
            status = (ret >= 0) ? TOFU_OK : (tofu_status_t)ret;
            break;
        default:
            status = tofu_ep_am_zcopy(peer->ep, AM_ID, &s->header, 8, &iov, 1, comp);
        }
    } while (!is_posted(ctx, s, status, true, "am"));
    ++peer->sent;
}

static void *core_reg(struct perf_ctx *ctx, void *memory, size_t size)
{
    tofu_mem_t *memh;

    (void)ctx;
    CORE_CHECK(tofu_mem_reg(md, memory, size, 0, &memh));
    return memh;
}

static void core_dereg(struct perf_ctx *ctx, void *handle)
{
    (void)ctx;
    CORE_CHECK(tofu_mem_dereg(handle));
}

static void *core_ep_create(struct perf_ctx *ctx, int rank)
{
    struct core_side *s = ctx->layer;
    tofu_ep_t        *ep;

    CORE_CHECK(tofu_ep_create(s->iface, s->peer[rank].address.iface,
                              s->peer[rank].address.length, &ep));
    return ep;
}

static void core_ep_destroy(struct perf_ctx *ctx, void *ep)
{
    (void)ctx;
    tofu_ep_destroy(ep);
}

const struct perf_layer perf_layer = {
    .name       = "uct",
    .serves     = true, /* messages and credits */
    .acknowledges = true,
    .start      = core_start,
    .facts      = core_facts,
    .stop       = core_stop,
    .open       = core_open,
    .address    = core_address,
    .connect    = core_connect,
    .counters   = core_counters,
    .close      = core_close,
    .progress   = core_progress,
    .flush      = core_flush,
    .fence      = core_fence,
    .put        = core_put,
    .get        = core_get,
    .amo        = core_amo,
    .has        = core_has,
    .send       = core_send,
    .reg        = core_reg,
    .dereg      = core_dereg,
    .ep_create  = core_ep_create,
    .ep_destroy = core_ep_destroy
};
