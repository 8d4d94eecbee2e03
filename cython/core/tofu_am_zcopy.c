/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_zcopy.c - active messages from memory of the user: a put for each part.  Where the
 * receiver's slots are mapped (tofu_in_place.c) they are copied there instead, which is one
 * copy as well.
 */
#include "tofu_internal.h"
#include "tofu_am.h"
#include "tofu_am_bounce.h"

#include <stdlib.h>

/* Put the parts of an am_zcopy but the last to their places; no notice. */
static tofu_status_t tofu_am_post_part(tofu_ep_t *ep, utofu_stadd_t local,
                                       utofu_stadd_t remote, size_t length)
{
    tofu_iface_t *iface = ep->iface;
    tofu_chan_t  *chan  = ep->chan;

    if (tofu_iface_post_limited(iface)) { /* an iov has parts without end */
        return TOFU_ERR_NO_RESOURCE;
    }
    return tofu_post(iface, "utofu_put", chan->vcq_id, length,
                     iface->fn.put(iface->vcq, chan->vcq_id, local, remote,
                                   length, TOFU_EDATA(TOFU_KIND_AM_LARGE, 0),
                                   UTOFU_ONESIDED_FLAG_STRONG_ORDER,
                                   tofu_cbdata(chan->peer, TOFU_CB_PEER)));
}

/* The last part that has any bytes; iovcnt when there is none. */
static size_t tofu_am_last_part(const tofu_iov_t *iov, size_t iovcnt)
{
    size_t i = iovcnt;

    while ((i > 0) && ((iov[i - 1].length == 0) || (iov[i - 1].count == 0))) {
        --i;
    }
    return (i > 0) ? i - 1 : iovcnt;
}

/*
 * Header (in the bounce buffer), if any, and parts, each by a put of its own; the last one
 * with the notice, which STRONG_ORDER makes imply the others.  *begun_p: the
 * user's memory may be read by what was posted.
 */
static tofu_status_t tofu_am_post_parts(tofu_ep_t *ep, uint8_t id,
                                        tofu_op_t *op, tofu_bounce_t *bounce,
                                        size_t header_length,
                                        const tofu_iov_t *iov, size_t iovcnt,
                                        int *begun_p)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_chan_t   *chan  = ep->chan;
    utofu_stadd_t remote = chan->cls[TOFU_AM_LARGE].next + TOFU_AM_FRONT;
    size_t        last   = tofu_am_last_part(iov, iovcnt);
    tofu_status_t status;
    utofu_stadd_t local;
    size_t        i;
    unsigned      block;

    *begun_p = 0;
    if (header_length > 0) {
        status = tofu_am_post_part(ep, bounce->stadd, remote, header_length);
        if (status != TOFU_OK) {
            return status;
        }
        remote += header_length;
    }
    for (i = 0; i <= last; ++i) {
        for (block = 0; block < iov[i].count; ++block) {
            if (iov[i].length == 0) {
                continue;
            }
            status = tofu_mem_stadd(iov[i].memh, iface,
                                    (const char *)iov[i].buffer +
                                            ((iov[i].count > 1) ?
                                                     block * iov[i].stride :
                                                     0),
                                    iov[i].length, &local);
            if (status != TOFU_OK) {
                tofu_error("am_zcopy: entry %zu is not inside its memory "
                           "handle, that is NULL, or the memory is not there", i);
                return status;
            }
            if ((i == last) && (block == iov[i].count - 1)) {
                status = tofu_post(iface, "utofu_put", chan->vcq_id,
                                   iov[i].length,
                                   iface->fn.put(
                                       iface->vcq, chan->vcq_id, local, remote,
                                       iov[i].length,
                                       TOFU_EDATA(TOFU_KIND_AM_LARGE, id),
                                       UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                         UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE |
                                         UTOFU_ONESIDED_FLAG_TCQ_NOTICE,
                                       tofu_cbdata(op, TOFU_CB_OP)));
                if (status == TOFU_OK) {
                    ++iface->tcq_wait;
                    ++iface->tcq_due;
                }
                return status;
            }
            status = tofu_am_post_part(ep, local, remote, iov[i].length);
            if (status != TOFU_OK) {
                return status;
            }
            *begun_p = 1;
            remote  += iov[i].length;
        }
    }
    return TOFU_ERR_INVALID_PARAM; /* not reached: the caller has a last part */
}

/* All of the message is in the bounce buffer of op: one put is left to do. */
tofu_status_t tofu_am_continue(tofu_op_t *op)
{
    tofu_peer_t   *peer  = op->peer;
    tofu_iface_t  *iface = peer->iface;
    tofu_chan_t   *chan  = peer->chan;
    tofu_status_t status;

    if (!tofu_chan_has_credit(chan, TOFU_AM_LARGE)) {
        tofu_chan_want(chan);
        return TOFU_ERR_NO_RESOURCE;
    }
    status = tofu_am_post_large(iface, chan, op->am.id, op->am.bounce,
                                op->am.length, tofu_cbdata(op, TOFU_CB_OP));
    if (status == TOFU_ERR_NO_RESOURCE) {
        return status;
    }
    if (status == TOFU_OK) {
        ++iface->tcq_due;
        tofu_am_early_done(iface, op);
        op->flags &= (uint8_t)~TOFU_OP_MORE;
        op->rounds = 1;
        tofu_chan_advance_large(chan);
        ++iface->stats.am_tx;
    } else {
        tofu_op_cut(iface, op, status);
    }
    return TOFU_OK;
}

void tofu_am_queue(tofu_ep_t *ep, uint8_t id, tofu_op_t *op,
                   tofu_bounce_t *bounce, size_t length)
{
    op->am.bounce = bounce;
    op->am.length = length;
    op->am.id     = id;
    op->flags    |= TOFU_OP_MORE;
    tofu_op_count(ep->iface, ep, op);
    if (ep->flags & TOFU_EP_FAILED) {
        tofu_op_cut(ep->iface, op, (tofu_status_t)ep->status);
    } else {
        ep->more   = op;
        ep->flags |= TOFU_EP_MORE;
        tofu_ep_schedule(ep);
    }
}

/* Some parts were posted, the rest can't be now.  The user's memory is in use
 * until a later entry of the TCQ, so the operation goes on: with a copy, which
 * one put will send over what was put already. */
static tofu_status_t tofu_am_keep(tofu_ep_t *ep, uint8_t id, tofu_op_t *op,
                                  tofu_bounce_t *bounce, size_t header_length,
                                  const tofu_iov_t *iov, size_t iovcnt)
{
    char *end = tofu_am_iov_copy(bounce->buffer + header_length, iov, iovcnt);

    tofu_am_queue(ep, id, op, bounce, (size_t)(end - bounce->buffer));
    return TOFU_INPROGRESS;
}

/* With an operation, which is complete in progress.  iov NULL: all of the message is in the
 * bounce buffer. */
static tofu_status_t tofu_am_zcopy_parts(tofu_ep_t *ep, uint8_t id,
                                         tofu_bounce_t *bounce,
                                         size_t header_length,
                                         const tofu_iov_t *iov, size_t iovcnt,
                                         tofu_completion_t *comp)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_status_t status;
    tofu_op_t     *op;
    int           begun;

    op = tofu_op_alloc(iface, TOFU_OP_AM_ZCOPY);
    if (op == NULL) {
        tofu_am_bounce_put(iface, bounce);
        return TOFU_ERR_NO_MEMORY;
    }
    op->peer      = ep->peer;
    op->comp      = comp;
    op->am.bounce = bounce;
    if (iov == NULL) {
        begun  = 0;
        status = tofu_am_post_large(iface, ep->chan, id, bounce, header_length,
                                    tofu_cbdata(op, TOFU_CB_OP));
        if (status == TOFU_OK) {
            ++iface->tcq_due;
        }
    } else {
        status = tofu_am_post_parts(ep, id, op, bounce, header_length, iov,
                                    iovcnt, &begun);
    }
    if (status == TOFU_OK) {
        op->rounds = 1;
        tofu_op_count(iface, ep, op);
        tofu_am_sent_large(ep);
        return TOFU_INPROGRESS;
    }
    if ((status == TOFU_ERR_NO_RESOURCE) && begun) {
        return tofu_am_keep(ep, id, op, bounce, header_length, iov, iovcnt);
    }
    /* The header may be on its way from the bounce buffer into a slot that holds
     * no message yet: whoever uses the two next writes them in order. */
    tofu_op_free(op);
    tofu_am_bounce_put(iface, bounce);
    return (status == TOFU_ERR_NO_RESOURCE) ?
                   tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                   status;
}

/* Nothing is to be complete at once: there are users (Open MPI's btl/uct) that send again what
 * did not return INPROGRESS. */
static inline int tofu_am_is_late(const tofu_ep_t *ep, const tofu_completion_t *comp)
{
    return (comp != NULL) && !ep->iface->config.early_complete;
}

tofu_status_t tofu_ep_am_zcopy(tofu_ep_t *ep, uint8_t id, const void *header,
                               unsigned header_length, const tofu_iov_t *iov,
                               size_t iovcnt, tofu_completion_t *comp)
{
    size_t        seg = ep->iface->config.am_seg_size;
    tofu_bounce_t *bounce;
    tofu_status_t status;
    intptr_t      total;
    int           is_long;

    if (header_length > TOFU_AM_MAX_HEADER(seg)) {
        tofu_error("am_zcopy: header length of %u bytes, at most %zu",
                   header_length, (size_t)TOFU_AM_MAX_HEADER(seg));
        return TOFU_ERR_INVALID_PARAM;
    }
    total = tofu_am_iov_total(iov, iovcnt, seg - header_length);
    if (total < 0) {
        return TOFU_ERR_INVALID_PARAM;
    }
    is_long = (header_length + (size_t)total >= TOFU_IN_PLACE_MIN);
    if (is_long && (ep->chan->mapped != NULL) && !tofu_am_is_late(ep, comp)) {
        return tofu_in_place_zcopy(ep, id, header, header_length, iov, iovcnt);
    }
    status = tofu_am_large_begin(ep, id, &bounce);
    if (status != TOFU_OK) {
        return tofu_am_early_iov(ep, status, id, header, header_length, iov,
                                 iovcnt, tofu_am_is_late(ep, comp) ? comp : NULL);
    }
    ep->chan->longs += is_long;
    if (header_length > 0) {
        memcpy(bounce->buffer, header, header_length);
    }
    if ((size_t)total <= TOFU_AM_COPY_MAX) {
        tofu_am_iov_copy(bounce->buffer + header_length, iov, iovcnt);
        return tofu_am_is_late(ep, comp) ?
                       tofu_am_zcopy_parts(ep, id, bounce,
                                           header_length + (size_t)total, NULL,
                                           0, comp) :
                       tofu_am_send_bounce(ep, id, bounce,
                                           header_length + (size_t)total);
    }
    return tofu_am_zcopy_parts(ep, id, bounce, header_length, iov, iovcnt,
                               comp);
}
