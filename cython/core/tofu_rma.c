/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_rma.c - put and get.
 */
#include "tofu_internal.h"

#include <stdlib.h>

/* ------------------------------------------------------------------ short */

static tofu_status_t tofu_rma_range_error(const char *what, uint64_t length,
                                          uint64_t remote_addr,
                                          const tofu_rkey_t *rkey)
{
    tofu_error("%s of %llu bytes at %#llx: the rkey covers %llu bytes at "
               "%#llx%s", what, (unsigned long long)length,
               (unsigned long long)remote_addr,
               (unsigned long long)rkey->length, (unsigned long long)rkey->base,
               (rkey->wr_length == 0) ? ", read-only" : "");
    return TOFU_ERR_OUT_OF_RANGE;
}

/* An operation of no bytes needs no key, not even a valid one; like any other it
 * fails on a failed ep and waits behind what is queued. */
static tofu_status_t tofu_rma_nothing(const tofu_ep_t *ep)
{
    if (ep->flags & TOFU_EP_FAILED) {
        return (tofu_status_t)ep->status;
    }
    return (ep->flags & (TOFU_EP_PENDING | TOFU_EP_MORE)) ?
                   TOFU_ERR_NO_RESOURCE :
                   TOFU_OK;
}

/* NULL and all ones, by which users say that there is no key */
static inline int tofu_rkey_none(const tofu_rkey_t *rkey)
{
    return TOFU_UNLIKELY((uintptr_t)rkey + 1 <= 1);
}

/* length is 1 .. 32 and the range was checked */
static inline __attribute__((always_inline)) tofu_status_t
tofu_put_piggyback(tofu_iface_t *iface, tofu_ep_t *ep, const void *buffer,
                   unsigned length, utofu_stadd_t remote)
{
    void     *cbdata = tofu_cbdata(ep->rma_peer, TOFU_CB_PEER);
    uint64_t value;

    if (TOFU_LIKELY(length == sizeof(value))) {
        memcpy(&value, buffer, sizeof(value));
        return tofu_post(iface, "utofu_put_piggyback8", ep->rma_vcq, length,
                         iface->fn.put_piggyback8(
                                 iface->vcq, ep->rma_vcq, value, remote,
                                 sizeof(value), TOFU_EDATA_USER,
                                 TOFU_SHORT_ORDER, cbdata));
    }
    return tofu_post(iface, "utofu_put_piggyback", ep->rma_vcq, length,
                     iface->fn.put_piggyback(iface->vcq, ep->rma_vcq,
                                             (void *)buffer, remote, length,
                                             TOFU_EDATA_USER,
                                             TOFU_SHORT_ORDER, cbdata));
}

static TOFU_NOINLINE tofu_status_t
tofu_put_short_slow(tofu_ep_t *ep, const void *buffer, unsigned length,
                    uint64_t remote_addr, const tofu_rkey_t *rkey)
{
    uint64_t      offset;
    tofu_status_t status;

    if (length > TOFU_MAX_SHORT) {
        tofu_error("put_short: length of %u bytes, at most %u", length, TOFU_MAX_SHORT);
        return TOFU_ERR_INVALID_PARAM;
    }
    if (length == 0) {
        return tofu_rma_nothing(ep);
    }
    offset = remote_addr - rkey->base;
    if (!tofu_range_ok(offset, length, rkey->wr_length)) {
        return tofu_rma_range_error("put_short", length, remote_addr, rkey);
    }
    status = tofu_ep_enter_rma(ep, rkey);
    if (status != TOFU_OK) {
        return status;
    }
    status = tofu_put_piggyback(ep->iface, ep, buffer, length,
                                rkey->stadd + offset);
    return (status == TOFU_ERR_NO_RESOURCE) ?
                   tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                   status;
}

/* The post of an 8-byte put was refused. */
static TOFU_NOINLINE tofu_status_t tofu_put_short_refused(tofu_ep_t *ep,
                                                          int code)
{
    if (code != UTOFU_ERR_BUSY) {
        return tofu_post_error(ep->iface, "utofu_put_piggyback8", code,
                               ep->rma_vcq, sizeof(uint64_t));
    }
    tofu_tcq_drain(ep->iface); /* so that the caller's next try finds room */
    return tofu_ep_starve(ep, TOFU_STARVED_TOQ);
}

tofu_status_t tofu_ep_put_short(tofu_ep_t *ep, const void *buffer,
                                unsigned length, uint64_t remote_addr,
                                const tofu_rkey_t *rkey)
{
    uint64_t      offset, value;
    tofu_status_t status;
    int           code;

    if (TOFU_UNLIKELY(length - 1 >= TOFU_MAX_SHORT)) {
        return tofu_put_short_slow(ep, buffer, length, remote_addr, rkey);
    }
    offset = remote_addr - rkey->base;
    if (TOFU_UNLIKELY(!tofu_ep_rma_ready(ep, rkey) ||
                      !tofu_range_ok(offset, length, rkey->wr_length))) {
        return tofu_put_short_slow(ep, buffer, length, remote_addr, rkey);
    }
    /* the commonest length keeps nothing but the ep across the call */
    if (TOFU_LIKELY(length == sizeof(value))) {
        memcpy(&value, buffer, sizeof(value));
        code = ep->iface->fn.put_piggyback8(
                ep->iface->vcq, ep->rma_vcq, value, rkey->stadd + offset,
                sizeof(value), TOFU_EDATA_USER, TOFU_SHORT_ORDER,
                tofu_cbdata(ep->rma_peer, TOFU_CB_PEER));
        if (TOFU_LIKELY(code == UTOFU_SUCCESS)) {
            ++ep->iface->posts;
            return TOFU_OK;
        }
        return tofu_put_short_refused(ep, code);
    }
    status = tofu_put_piggyback(ep->iface, ep, buffer, length,
                                rkey->stadd + offset);
    if (TOFU_UNLIKELY(status == TOFU_ERR_NO_RESOURCE)) {
        return tofu_ep_starve(ep, TOFU_STARVED_TOQ);
    }
    return status;
}

/* ------------------------------------------------------------------ bcopy */

static tofu_bounce_t *tofu_bounce_get(tofu_iface_t *iface)
{
    tofu_bounce_t *bounce = iface->bounces;

    if (TOFU_UNLIKELY(bounce == NULL)) {
        tofu_tcq_drain(iface);
        bounce = iface->bounces;
        if (bounce == NULL) {
            return NULL;
        }
    }
    iface->bounces = bounce->next;
    return bounce;
}

static void tofu_bounce_put(tofu_iface_t *iface, tofu_bounce_t *bounce)
{
    bounce->next   = iface->bounces;
    iface->bounces = bounce;
}

/* put_bcopy without a key: pack must say that there is nothing to put. */
static TOFU_NOINLINE intptr_t tofu_put_bcopy_nothing(tofu_ep_t *ep,
                                                     tofu_pack_cb_t pack,
                                                     void *arg)
{
    tofu_status_t status = tofu_rma_nothing(ep);
    tofu_bounce_t *bounce;
    size_t        length;

    if (status != TOFU_OK) {
        return status;
    }
    bounce = tofu_bounce_get(ep->iface);
    if (bounce == NULL) {
        return tofu_ep_starve(ep, TOFU_STARVED_BOUNCE);
    }
    length = pack(bounce->buffer, arg);
    tofu_bounce_put(ep->iface, bounce);
    if (length != 0) {
        tofu_error("put_bcopy of %zu bytes without an rkey", length);
        return TOFU_ERR_INVALID_PARAM;
    }
    return 0;
}

intptr_t tofu_ep_put_bcopy(tofu_ep_t *ep, tofu_pack_cb_t pack, void *arg,
                           uint64_t remote_addr, const tofu_rkey_t *rkey)
{
    tofu_iface_t  *iface = ep->iface;
    uint64_t      offset;
    tofu_bounce_t *bounce;
    tofu_status_t status;
    size_t        length;

    if (tofu_rkey_none(rkey)) {
        return tofu_put_bcopy_nothing(ep, pack, arg);
    }
    offset = remote_addr - rkey->base;
    if (TOFU_UNLIKELY(!tofu_ep_rma_ready(ep, rkey))) {
        status = tofu_ep_enter_rma(ep, rkey);
        if (status != TOFU_OK) {
            return status;
        }
    }
    bounce = tofu_bounce_get(iface);
    if (TOFU_UNLIKELY(bounce == NULL)) {
        return tofu_ep_starve(ep, TOFU_STARVED_BOUNCE);
    }
    length = pack(bounce->buffer, arg);
    if (TOFU_UNLIKELY(!tofu_range_ok(offset, length, rkey->wr_length))) {
        status = tofu_rma_range_error("put_bcopy", length, remote_addr, rkey);
        goto err_put;
    }
    if (length <= TOFU_MAX_SHORT) {
        status = (length == 0) ? TOFU_OK :
                                 tofu_put_piggyback(iface, ep,
                                                    bounce->buffer,
                                                    (unsigned)length,
                                                    rkey->stadd + offset);
        tofu_bounce_put(iface, bounce);
    } else if (TOFU_UNLIKELY(length > iface->config.am_seg_size)) {
        /* it was written behind the buffer: the caller is broken */
        tofu_error("put_bcopy: packed length of %zu bytes, at most %zu", length,
                   iface->config.am_seg_size);
        status = TOFU_ERR_INVALID_PARAM;
        goto err_put;
    } else {
        bounce->peer = ep->rma_peer;
        status       = tofu_post(iface, "utofu_put", ep->rma_vcq, length,
                                 iface->fn.put(iface->vcq, ep->rma_vcq,
                                               bounce->stadd,
                                               rkey->stadd + offset, length,
                                               TOFU_EDATA_USER,
                                               TOFU_SHORT_ORDER |
                                                 UTOFU_ONESIDED_FLAG_TCQ_NOTICE,
                                               tofu_cbdata(bounce,
                                                           TOFU_CB_BOUNCE)));
        if (TOFU_UNLIKELY(status != TOFU_OK)) {
            goto err_put;
        }
        ++iface->tcq_wait;
    }
    if (TOFU_LIKELY(status == TOFU_OK)) {
        return (intptr_t)length;
    }
    goto err;

err_put:
    tofu_bounce_put(iface, bounce);
err:
    return (status == TOFU_ERR_NO_RESOURCE) ?
                   tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                   status;
}

tofu_status_t tofu_ep_get_bcopy(tofu_ep_t *ep, tofu_unpack_cb_t unpack,
                                void *arg, size_t length, uint64_t remote_addr,
                                const tofu_rkey_t *rkey,
                                tofu_completion_t *comp)
{
    tofu_iface_t  *iface = ep->iface;
    uint64_t      offset, unused;
    tofu_peer_t   *peer;
    tofu_status_t status;
    tofu_op_t     *op;

    if (length == 0) {
        status = tofu_rma_nothing(ep);
        if (status == TOFU_OK) {
            unpack(arg, NULL, 0);
        }
        return status;
    }
    offset = remote_addr - rkey->base;
    if (length > iface->config.am_seg_size) {
        tofu_error("get_bcopy: length of %zu bytes, at most %zu", length,
                   iface->config.am_seg_size);
        return TOFU_ERR_INVALID_PARAM;
    }
    if (!tofu_range_ok(offset, length, rkey->length)) {
        return tofu_rma_range_error("get_bcopy", length, remote_addr, rkey);
    }
    if (TOFU_UNLIKELY(!tofu_ep_rma_ready(ep, rkey))) {
        status = tofu_ep_enter_rma(ep, rkey);
        if (status != TOFU_OK) {
            return status;
        }
    }
    if (TOFU_UNLIKELY(ep->flags & TOFU_EP_ARMED)) {
        return tofu_order_get(ep);
    }
    if (!tofu_op_room(iface, 1)) {
        return tofu_ep_starve(ep, TOFU_STARVED_OP);
    }
    op = tofu_op_alloc(iface, TOFU_OP_GET_BCOPY);
    if (op == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    op->get.bounce = tofu_bounce_get(iface);
    if (op->get.bounce == NULL) {
        tofu_op_free(op);
        return tofu_ep_starve(ep, TOFU_STARVED_BOUNCE);
    }
    op->comp       = comp;
    op->get.unpack = unpack;
    op->get.arg    = arg;
    op->get.length = length;
    peer           = ep->rma_peer;
    status = tofu_post(iface, "utofu_get", peer->vcq_id, length,
                       iface->fn.get(iface->vcq, peer->vcq_id,
                                     op->get.bounce->stadd,
                                     rkey->stadd + offset, length,
                                     tofu_peer_edata(peer),
                                     TOFU_SHORT_ORDER |
                                       UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                     tofu_cbdata(op, TOFU_CB_OP)));
    if (status != TOFU_OK) {
        tofu_bounce_put(iface, op->get.bounce);
        tofu_op_free(op);
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                       status;
    }
    if (tofu_op_early(iface, peer, tofu_peer_edata(peer), &unused)) {
        unpack(arg, op->get.bounce->buffer, length);
        tofu_bounce_put(iface, op->get.bounce);
        tofu_op_free(op);
        return TOFU_OK;
    }
    tofu_op_posted(op, peer, 1);
    tofu_op_count(iface, ep, op);
    return TOFU_INPROGRESS;
}

/* ------------------------------------------------------------------ zcopy */

/* Check all of an iov before anything is posted; also its total length. */
static tofu_status_t tofu_iov_check(tofu_iface_t *iface, const tofu_iov_t *iov,
                                    size_t iovcnt, size_t *total_p)
{
    size_t        total = 0, i, blocks, bytes, span;
    utofu_stadd_t stadd;
    tofu_status_t status;

    for (i = 0; i < iovcnt; ++i) {
        if ((iov[i].length == 0) || (iov[i].count == 0)) {
            continue;
        }
        if (__builtin_mul_overflow(iov[i].length, (size_t)iov[i].count,
                                   &bytes) ||
            __builtin_add_overflow(total, bytes, &total) ||
            (total > TOFU_MAX_ZCOPY)) {
            tofu_error("an iov of more than %zu bytes", TOFU_MAX_ZCOPY);
            return TOFU_ERR_INVALID_PARAM;
        }
        blocks = iov[i].count - 1;
        if (__builtin_mul_overflow(blocks, (blocks > 0) ? iov[i].stride : 0,
                                   &span) ||
            __builtin_add_overflow(span, iov[i].length, &span)) {
            tofu_error("entry %zu of an iov: its stride is too large", i);
            return TOFU_ERR_INVALID_PARAM;
        }
        status = tofu_mem_stadd(iov[i].memh, iface, iov[i].buffer, span,
                                &stadd);
        if (status != TOFU_OK) {
            tofu_error("entry %zu of an iov: %zu bytes at %p are not inside its"
                       " memory handle, or it is NULL or of another md", i,
                       span, iov[i].buffer);
            return status;
        }
    }
    *total_p = total;
    return TOFU_OK;
}

/* The next piece: 0 when there is none. */
static size_t tofu_cursor_peek(tofu_cursor_t *cursor, size_t max,
                               const char **address_p, tofu_mem_t **memh_p)
{
    const tofu_iov_t *entry;
    size_t           length;

    for (;;) {
        if (cursor->index == cursor->iovcnt) {
            return 0;
        }
        entry = &cursor->iov[cursor->index];
        if ((entry->length > 0) && (cursor->block < entry->count)) {
            break;
        }
        ++cursor->index;
        cursor->block  = 0;
        cursor->offset = 0;
    }
    length     = entry->length - cursor->offset;
    *address_p = (const char *)entry->buffer +
                 ((entry->count > 1) ? cursor->block * entry->stride : 0) +
                 cursor->offset;
    *memh_p    = entry->memh;
    return (length < max) ? length : max;
}

static void tofu_cursor_advance(tofu_cursor_t *cursor, size_t length)
{
    const tofu_iov_t *entry = &cursor->iov[cursor->index];

    cursor->remote += length;
    cursor->offset += length;
    if (cursor->offset == entry->length) {
        cursor->offset = 0;
        ++cursor->block;
    }
}

/*
 * Post pieces of root as one round: one FIFO entry `op`, as many notices as
 * pieces.  OK: all of the cursor; otherwise why it stopped.  *posted_p tells
 * whether op is in the FIFO, held there by one notice more than there are pieces
 * (a TCQ error may come while we post), which the caller must give back.
 */
static tofu_status_t tofu_rma_post_round(tofu_op_t *op, tofu_peer_t *peer,
                                         tofu_cursor_t *cursor, int is_get,
                                         int *posted_p)
{
    tofu_iface_t  *iface = peer->iface;
    unsigned      edata  = tofu_peer_edata(peer);
    tofu_status_t status;
    utofu_stadd_t local;
    const char    *address;
    tofu_mem_t    *memh;
    size_t        length;

    *posted_p = 0;
    while ((length = tofu_cursor_peek(cursor, iface->max_put, &address,
                                      &memh)) > 0) {
        if (!tofu_op_room(iface, 1)) {
            return TOFU_ERR_NO_RESOURCE;
        }
        status = tofu_mem_stadd(memh, iface, address, length, &local);
        if (status != TOFU_OK) {
            return status;
        }
        status = tofu_rma_post(op, peer, local, cursor->remote, length, edata,
                               is_get);
        if (status != TOFU_OK) {
            return status;
        }
        if (!*posted_p) {
            tofu_op_posted(op, peer, 2);
            *posted_p = 1;
        } else {
            ++op->left;
            ++iface->notices;
        }
        tofu_cursor_advance(cursor, length);
    }
    return TOFU_OK;
}

tofu_status_t tofu_rma_continue(tofu_op_t *root)
{
    tofu_peer_t   *peer  = root->peer;
    tofu_iface_t  *iface = peer->iface;
    tofu_status_t status;
    tofu_op_t     *part;
    int           posted;

    part = tofu_op_alloc(iface, TOFU_OP_PART);
    if (part == NULL) {
        return TOFU_ERR_NO_RESOURCE;
    }
    part->root  = root;
    part->ep    = root->ep;
    part->flags = root->flags & TOFU_OP_STRONG;
    status = tofu_rma_post_round(part, peer, root->rma.cursor,
                                 root->flags & TOFU_OP_GET, &posted);
    if (status != TOFU_ERR_NO_RESOURCE) {
        /* all is posted, or no more can be */
        free(root->rma.cursor);
        root->rma.cursor = NULL;
        root->flags     &= (uint8_t)~TOFU_OP_MORE;
        if (root->status == TOFU_OK) {
            root->status = (int8_t)status;
        }
    }
    if (posted) {
        tofu_op_notice(iface, part, TOFU_OK, 0);
    } else {
        tofu_op_free(part);
        if ((status != TOFU_ERR_NO_RESOURCE) && (root->rounds == 0)) {
            tofu_op_defer(root);
        }
    }
    return (status == TOFU_ERR_NO_RESOURCE) ? status : TOFU_OK;
}

/* Keep where the operation has got to; the user's iov is not ours to keep. */
static tofu_status_t tofu_rma_keep(tofu_ep_t *ep, tofu_op_t *op,
                                   const tofu_cursor_t *cursor)
{
    unsigned      left = cursor->iovcnt - cursor->index;
    tofu_cursor_t *copy;

    if (ep->flags & TOFU_EP_FAILED) {
        return (tofu_status_t)ep->status;
    }
    copy = malloc(sizeof(*copy) + left * sizeof(copy->copy[0]));
    if (copy == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    *copy        = *cursor;
    copy->index  = 0;
    copy->iovcnt = left;
    copy->iov    = copy->copy;
    memcpy(copy->copy, &cursor->iov[cursor->index],
           left * sizeof(copy->copy[0]));
    op->rma.cursor = copy;
    op->flags     |= TOFU_OP_MORE;
    ep->more       = op;
    ep->flags     |= TOFU_EP_MORE;
    tofu_ep_schedule(ep);
    return TOFU_OK;
}

static TOFU_NOINLINE tofu_status_t
tofu_rma_many(tofu_ep_t *ep, tofu_op_t *op, const tofu_iov_t *iov,
              size_t iovcnt, utofu_stadd_t remote, int is_get)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_cursor_t cursor = {.iov = iov, .iovcnt = (unsigned)iovcnt,
                            .remote = remote};
    tofu_status_t status;
    int           posted;

    status = tofu_rma_post_round(op, ep->rma_peer, &cursor, is_get, &posted);
    if (!posted) {
        tofu_op_free(op);
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ |
                                                  TOFU_STARVED_OP) :
                       status;
    }
    tofu_op_count(iface, ep, op);
    if (status == TOFU_ERR_NO_RESOURCE) {
        status = tofu_rma_keep(ep, op, &cursor);
    }
    if ((status != TOFU_OK) && (op->status == TOFU_OK)) {
        op->status = (int8_t)status; /* of an operation that has begun */
    }
    tofu_op_notice(iface, op, TOFU_OK, 0);
    return TOFU_INPROGRESS;
}

/* A get of so many bytes is complete in a later progress, never at once.  UCP
 * fetches messages of rendezvous by get, and would call the receiver back within
 * the receiver's own call; ucxx takes such a message for one in progress and
 * waits for ever.  A progress more is nothing beside the copy. */
#define TOFU_LATE_GET 4096

static inline tofu_status_t
tofu_rma_zcopy(tofu_ep_t *ep, const tofu_iov_t *iov, size_t iovcnt,
               uint64_t remote_addr, const tofu_rkey_t *rkey,
               tofu_completion_t *comp, int is_get)
{
    tofu_iface_t  *iface  = ep->iface;
    int           single  = (iovcnt == 1) && (iov[0].count == 1);
    tofu_status_t status;
    utofu_stadd_t local = 0; /* of a single block */
    uint64_t      unused, offset, available;
    tofu_peer_t   *peer;
    tofu_op_t     *op;
    size_t        total;

    if (TOFU_LIKELY(single)) {
        total = iov[0].length;
    } else if (iovcnt > TOFU_MAX_IOV) {
        tofu_error("an iov of %zu entries, at most %u", iovcnt, TOFU_MAX_IOV);
        return TOFU_ERR_INVALID_PARAM;
    } else {
        status = tofu_iov_check(iface, iov, iovcnt, &total);
        if (status != TOFU_OK) {
            return status;
        }
    }
    if (TOFU_UNLIKELY(total == 0)) {
        return tofu_rma_nothing(ep);
    }
    offset    = remote_addr - rkey->base;
    available = is_get ? rkey->length : rkey->wr_length;
    if (TOFU_UNLIKELY(!tofu_range_ok(offset, total, available))) {
        return tofu_rma_range_error(is_get ? "get_zcopy" : "put_zcopy", total,
                                    remote_addr, rkey);
    }
    if (TOFU_UNLIKELY(total >= iface->stripe_thresh) && single) {
        return tofu_rma_stripe(ep, iov, offset, rkey, comp, is_get);
    }
    if (TOFU_UNLIKELY(!tofu_ep_rma_ready(ep, rkey))) {
        status = tofu_ep_enter_rma(ep, rkey);
        if (status != TOFU_OK) {
            return status;
        }
    }
    if (TOFU_UNLIKELY(is_get && (ep->flags & TOFU_EP_ARMED))) {
        return tofu_order_get(ep);
    }
    if (TOFU_UNLIKELY(!tofu_op_room(iface, 1))) {
        return tofu_ep_starve(ep, TOFU_STARVED_OP);
    }
    if (single) {
        status = tofu_mem_stadd(iov[0].memh, iface, iov[0].buffer, total,
                                &local);
        if (TOFU_UNLIKELY(status != TOFU_OK)) {
            tofu_error("%zu bytes at %p are not inside the memory handle, or it"
                       " is NULL or of another md", total, iov[0].buffer);
            return status;
        }
    }
    op = tofu_op_alloc(iface, TOFU_OP_RMA);
    if (TOFU_UNLIKELY(op == NULL)) {
        return TOFU_ERR_NO_MEMORY;
    }
    peer           = ep->rma_peer;
    op->peer       = peer;
    op->comp       = comp;
    op->rma.cursor = NULL;
    op->rma.stripe = NULL;
    op->flags      = is_get ? TOFU_OP_GET : 0;
    if (TOFU_UNLIKELY(ep->flags & TOFU_EP_ARMED)) {
        op->flags |= TOFU_OP_STRONG; /* after what was posted before a fence */
    }
    if (TOFU_UNLIKELY(!single || (total > iface->max_put))) {
        return tofu_rma_many(ep, op, iov, iovcnt, rkey->stadd + offset, is_get);
    }
    status = tofu_rma_post(op, peer, local, rkey->stadd + offset, total,
                           tofu_peer_edata(peer), is_get);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        tofu_op_free(op);
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                       status;
    }
    if (!(is_get && (total >= TOFU_LATE_GET)) &&
        tofu_op_early(iface, peer, tofu_peer_edata(peer),
                      &unused)) {
        tofu_op_free(op);
        return TOFU_OK;
    }
    tofu_op_posted(op, peer, 1);
    tofu_op_count(iface, ep, op);
    return TOFU_INPROGRESS;
}

tofu_status_t tofu_ep_put_zcopy(tofu_ep_t *ep, const tofu_iov_t *iov,
                                size_t iovcnt, uint64_t remote_addr,
                                const tofu_rkey_t *rkey,
                                tofu_completion_t *comp)
{
    return tofu_rma_zcopy(ep, iov, iovcnt, remote_addr, rkey, comp, 0);
}

tofu_status_t tofu_ep_get_zcopy(tofu_ep_t *ep, const tofu_iov_t *iov,
                                size_t iovcnt, uint64_t remote_addr,
                                const tofu_rkey_t *rkey,
                                tofu_completion_t *comp)
{
    return tofu_rma_zcopy(ep, iov, iovcnt, remote_addr, rkey, comp, 1);
}
