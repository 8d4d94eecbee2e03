/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_send.c - sending active messages.
 */
#include "tofu_internal.h"
#include "tofu_am.h"
#include "tofu_am_bounce.h"

#include <stdlib.h>

/* The slot was used: on to the next in ring order. */
static inline void tofu_chan_advance(tofu_chan_t *chan,
                                     tofu_chan_class_t *cls)
{
    chan->turn += TOFU_TURN;
    --cls->left;
    cls->next += cls->size;
    if (cls->next == cls->end) {
        cls->next = cls->begin;
    }
}

static inline void tofu_am_sent(tofu_ep_t *ep, tofu_chan_class_t *cls)
{
    tofu_chan_advance(ep->chan, cls);
    ++ep->iface->stats.am_tx;
}

/* The same for large slots, of which some may be passed over. */
static inline void tofu_chan_advance_large(tofu_chan_t *chan)
{
    tofu_chan_advance(chan, &chan->cls[TOFU_AM_LARGE]);
    if (TOFU_UNLIKELY(chan->skip != 0)) {
        tofu_chan_pass(chan);
    }
}

static inline void tofu_am_sent_large(tofu_ep_t *ep)
{
    tofu_chan_advance_large(ep->chan);
    ++ep->iface->stats.am_tx;
}

/* What stands between the caller and a slot, other than nothing. */
static TOFU_NOINLINE tofu_status_t tofu_am_enter_slow(tofu_ep_t *ep,
                                                      unsigned cls)
{
    tofu_status_t status;

    status = tofu_ep_enter(ep, ep->peer);
    if (status != TOFU_OK) {
        return status;
    }
    if (ep->chan == &ep->iface->am->no_chan) {
        status = tofu_chan_get(ep->peer, &ep->chan);
        if (status != TOFU_OK) {
            return status;
        }
    }
    if (!tofu_chan_has_credit(ep->chan, cls)) {
        tofu_chan_want(ep->chan);
        return tofu_ep_starve(ep, (cls == TOFU_AM_SMALL) ?
                                          TOFU_STARVED_SMALL :
                                          TOFU_STARVED_LARGE);
    }
    ep->flags &= (uint8_t)~TOFU_EP_AM_FIRST;
    return TOFU_OK;
}

static inline tofu_status_t tofu_am_enter(tofu_ep_t *ep, unsigned cls)
{
    if (TOFU_LIKELY(!(ep->flags & TOFU_EP_AM_STOP) &&
                    (ep->chan->cls[cls].left > 0) &&
                    !tofu_iface_post_limited(ep->iface))) {
        return TOFU_OK;
    }
    return tofu_am_enter_slow(ep, cls);
}

static tofu_status_t tofu_am_id_error(uint8_t id)
{
    tofu_error("active message id %u: it must be less than %u", id,
               TOFU_AM_ID_MAX);
    return TOFU_ERR_INVALID_PARAM;
}

static inline unsigned tofu_am_words(size_t length)
{
    return ((unsigned)length + 7) & ~7u;
}

/* Write the tail of a message without a notice behind it, at the next word.  Returns where
 * that is. */
static TOFU_ALWAYS_INLINE unsigned tofu_am_add_tail(const tofu_chan_t *chan,
                                                    uint8_t id, char *data,
                                                    unsigned length)
{
    unsigned words = tofu_am_words(length);
    uint64_t tail  = chan->turn | ((unsigned)id << TOFU_TAIL_ID_SHIFT) | length;

    if (TOFU_UNLIKELY(words != length)) {
        memset(data + length, 0, words - length);
    }
    memcpy(data + words, &tail, sizeof(tail));
    return words;
}

/* A message of 1 .. 24 bytes, without a notice: its tail goes behind it, which
 * STRONG_ORDER makes visible last. */
static TOFU_ALWAYS_INLINE tofu_status_t tofu_am_post_polled(tofu_ep_t *ep, uint8_t id,
                                                char *data, unsigned length)
{
    tofu_iface_t      *iface = ep->iface;
    tofu_chan_t       *chan  = ep->chan;
    tofu_chan_class_t *cls   = &chan->cls[TOFU_AM_SMALL];
    unsigned          words  = tofu_am_add_tail(chan, id, data, length);
    tofu_status_t     status;

    status = tofu_post(iface, "utofu_put_piggyback", chan->vcq_id, length,
                       iface->fn.put_piggyback(
                               iface->vcq, chan->vcq_id, data,
                               cls->next + TOFU_POLLED_TAIL - words,
                               words + sizeof(uint64_t),
                               TOFU_EDATA(TOFU_KIND_AM_SMALL, id),
                               UTOFU_ONESIDED_FLAG_STRONG_ORDER,
                               tofu_cbdata(chan->peer, TOFU_CB_PEER)));
    if (TOFU_LIKELY(status == TOFU_OK)) {
        tofu_am_sent(ep, cls);
        return TOFU_OK;
    }
    return (status == TOFU_ERR_NO_RESOURCE) ?
                   tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                   status;
}

/* Can it go without a notice?  Asked for each message, so that the receiver may sleep
 * soon after it has revoked the permit. */
static inline int tofu_am_may_poll(const tofu_chan_t *chan, unsigned length)
{
    return (chan->turn & TOFU_TAIL_KEY) && (length <= TOFU_POLLED_SHORT) &&
           !tofu_chan_permit_changed(chan);
}

/* A message of 1 .. 32 bytes; there is a small slot.  data has room for 32. */
static TOFU_NOINLINE tofu_status_t tofu_am_post_small(tofu_ep_t *ep, uint8_t id,
                                                      char *data,
                                                      unsigned length)
{
    tofu_iface_t      *iface = ep->iface;
    tofu_chan_t       *chan  = ep->chan;
    tofu_chan_class_t   *cls  = &chan->cls[TOFU_AM_SMALL];
    const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
    tofu_status_t       status;
    uint64_t            value;

    if (TOFU_UNLIKELY(tofu_chan_permit_changed(chan))) {
        status = tofu_chan_permit(chan);
        if (status != TOFU_OK) {
            return (status == TOFU_ERR_NO_RESOURCE) ?
                           tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                           status;
        }
    }
    if ((chan->turn & TOFU_TAIL_KEY) && (length <= TOFU_POLLED_SHORT)) {
        return tofu_am_post_polled(ep, id, data, length);
    }
    if (TOFU_LIKELY(length == sizeof(value))) { /* a header and nothing else */
        memcpy(&value, data, sizeof(value));
        status = tofu_post(iface, "utofu_put_piggyback8", chan->vcq_id, length,
                           iface->fn.put_piggyback8(
                                   iface->vcq, chan->vcq_id, value, cls->next,
                                   sizeof(value),
                                   TOFU_EDATA(TOFU_KIND_AM_SMALL, id), flags,
                                   tofu_cbdata(chan->peer, TOFU_CB_PEER)));
    } else {
        status = tofu_post(iface, "utofu_put_piggyback", chan->vcq_id, length,
                           iface->fn.put_piggyback(
                                   iface->vcq, chan->vcq_id, (void *)data,
                                   cls->next, length,
                                   TOFU_EDATA(TOFU_KIND_AM_SMALL, id), flags,
                                   tofu_cbdata(chan->peer, TOFU_CB_PEER)));
    }
    if (TOFU_LIKELY(status == TOFU_OK)) {
        tofu_am_sent(ep, cls);
        return TOFU_OK;
    }
    return (status == TOFU_ERR_NO_RESOURCE) ?
                   tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                   status;
}

/* Post a message of `length` bytes that is in the bounce buffer; there is a large
 * slot.  cbdata: what becomes of the buffer when it is sent.  One of no bytes is some of
 * those that nobody reads, as a notice needs a put that ends somewhere. */
static tofu_status_t tofu_am_post_large(tofu_iface_t *iface, tofu_chan_t *chan,
                                        uint8_t id, tofu_bounce_t *bounce,
                                        size_t length, void *cbdata)
{
    tofu_chan_class_t *cls  = &chan->cls[TOFU_AM_LARGE];
    size_t            front = TOFU_LIKELY(length > 0) ? 0 : TOFU_AM_FRONT;
    tofu_status_t     status;

    bounce->peer = chan->peer;
    status = tofu_post(iface, "utofu_put", chan->vcq_id, length,
                       iface->fn.put(iface->vcq, chan->vcq_id, bounce->stadd,
                                     cls->next + TOFU_AM_FRONT - front,
                                     front + length,
                                     TOFU_EDATA(TOFU_KIND_AM_LARGE, id),
                                     UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                       UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE |
                                       UTOFU_ONESIDED_FLAG_TCQ_NOTICE,
                                     cbdata));
    if (TOFU_LIKELY(status == TOFU_OK)) {
        ++iface->tcq_wait;
    }
    return status;
}

/* Can what is in a bounce buffer go without a notice, as a message of more than one
 * piggyback?  Its tail has to fit into the buffer as well. */
static inline int tofu_am_may_poll_bounce(const tofu_ep_t *ep, size_t length)
{
    const tofu_chan_t *chan = ep->chan;

    return (length <= TOFU_POLLED_BYTES) && (chan->turn & TOFU_TAIL_KEY) &&
           (length > 0) && (chan->cls[TOFU_AM_SMALL].left > 0) &&
           (tofu_am_words(length) + sizeof(uint64_t) <=
            ep->iface->config.am_seg_size) &&
           !tofu_chan_permit_changed(chan);
}

/* The same as tofu_am_post_polled, by a put from the bounce buffer. */
static tofu_status_t tofu_am_post_polled_bounce(tofu_ep_t *ep, uint8_t id,
                                                tofu_bounce_t *bounce,
                                                unsigned length)
{
    tofu_iface_t      *iface = ep->iface;
    tofu_chan_t       *chan  = ep->chan;
    tofu_chan_class_t *cls   = &chan->cls[TOFU_AM_SMALL];
    unsigned          words  = tofu_am_add_tail(chan, id, bounce->buffer, length);
    tofu_status_t     status;

    bounce->peer = chan->peer;
    status = tofu_post(iface, "utofu_put", chan->vcq_id, length,
                       iface->fn.put(iface->vcq, chan->vcq_id, bounce->stadd,
                                     cls->next + TOFU_POLLED_TAIL - words,
                                     words + sizeof(uint64_t),
                                     TOFU_EDATA(TOFU_KIND_AM_SMALL, id),
                                     UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                       UTOFU_ONESIDED_FLAG_TCQ_NOTICE,
                                     tofu_cbdata(bounce, TOFU_CB_BOUNCE)));
    if (TOFU_LIKELY(status == TOFU_OK)) {
        ++iface->tcq_wait;
        tofu_am_sent(ep, cls);
    }
    return status;
}

/* Send what is in a bounce buffer, as a small message if it is one. */
static tofu_status_t tofu_am_send_bounce(tofu_ep_t *ep, uint8_t id,
                                         tofu_bounce_t *bounce, size_t length)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_chan_t   *chan  = ep->chan;
    tofu_status_t status;

    if ((length > 0) && (length <= TOFU_MAX_SHORT) &&
        (chan->cls[TOFU_AM_SMALL].left > 0)) {
        status = tofu_am_post_small(ep, id, bounce->buffer, (unsigned)length);
        tofu_am_bounce_put(iface, bounce);
        return status;
    }
    if (tofu_am_may_poll_bounce(ep, length)) {
        status = tofu_am_post_polled_bounce(ep, id, bounce, (unsigned)length);
    } else {
        status = tofu_am_post_large(iface, chan, id, bounce, length,
                                    tofu_cbdata(bounce, TOFU_CB_BOUNCE));
        if (TOFU_LIKELY(status == TOFU_OK)) {
            tofu_am_sent_large(ep);
        }
    }
    if (TOFU_LIKELY(status == TOFU_OK)) {
        return TOFU_OK;
    }
    tofu_am_bounce_put(iface, bounce);
    return (status == TOFU_ERR_NO_RESOURCE) ?
                   tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                   status;
}

static tofu_status_t tofu_am_large_begin(tofu_ep_t *ep, uint8_t id,
                                         tofu_bounce_t **bounce_p)
{
    tofu_status_t status;
    tofu_bounce_t *bounce;

    if (TOFU_UNLIKELY(id >= TOFU_AM_ID_MAX)) {
        return tofu_am_id_error(id);
    }
    status = tofu_am_enter(ep, TOFU_AM_LARGE);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return status;
    }
    bounce = tofu_am_bounce(ep);
    if (TOFU_UNLIKELY(bounce == NULL)) {
        return TOFU_ERR_NO_RESOURCE;
    }
    *bounce_p = bounce;
    return TOFU_OK;
}

/* One that is no piggyback, or an error. */
static TOFU_NOINLINE tofu_status_t
tofu_am_short_copied(tofu_ep_t *ep, uint8_t id, uint64_t header,
                     const void *payload, unsigned length)
{
    size_t        max = tofu_am_max_short(ep->iface);
    tofu_bounce_t *bounce;
    tofu_status_t status;

    if (TOFU_UNLIKELY((id < TOFU_AM_ID_MAX) && (length > max - sizeof(header)))) {
        tofu_error("am_short: length of 8 + %u bytes, at most %zu", length, max);
        return TOFU_ERR_INVALID_PARAM;
    }
    status = tofu_am_large_begin(ep, id, &bounce);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_short(ep, status, id, header, payload, length);
    }
    memcpy(bounce->buffer, &header, sizeof(header));
    memcpy(bounce->buffer + sizeof(header), payload, length);
    return tofu_am_send_bounce(ep, id, bounce, sizeof(header) + length);
}

tofu_status_t tofu_ep_am_short(tofu_ep_t *ep, uint8_t id, uint64_t header,
                               const void *payload, unsigned length)
{
    char          message[TOFU_MAX_SHORT];
    tofu_status_t status;

    if (TOFU_UNLIKELY((length > TOFU_MAX_SHORT - sizeof(header)) ||
                      (id >= TOFU_AM_ID_MAX))) {
        return tofu_am_short_copied(ep, id, header, payload, length);
    }
    status = tofu_am_enter(ep, TOFU_AM_SMALL);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_short(ep, status, id, header, payload, length);
    }
    memcpy(message, &header, sizeof(header));
    if (TOFU_LIKELY(length == 8)) { /* so that it is one load and store */
        memcpy(message + sizeof(header), payload, 8);
    } else if (length > 0) {
        memcpy(message + sizeof(header), payload, length);
    }
    length += (unsigned)sizeof(header);
    return tofu_am_may_poll(ep->chan, length) ?
                   tofu_am_post_polled(ep, id, message, length) :
                   tofu_am_post_small(ep, id, message, length);
}

intptr_t tofu_ep_am_bcopy(tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack,
                          void *arg)
{
    tofu_bounce_t *bounce;
    tofu_status_t status;
    size_t        length;

    status = tofu_am_large_begin(ep, id, &bounce);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_bcopy(ep, status, id, pack, arg);
    }
    length = pack(bounce->buffer, arg);
    if (TOFU_UNLIKELY(length > ep->iface->config.am_seg_size)) {
        /* it was written behind the buffer: the caller is broken */
        tofu_error("am_bcopy: packed length of %zu bytes, at most %zu", length,
                   ep->iface->config.am_seg_size);
        tofu_am_bounce_put(ep->iface, bounce);
        return TOFU_ERR_INVALID_PARAM;
    }
    status = tofu_am_send_bounce(ep, id, bounce, length);
    return TOFU_LIKELY(status == TOFU_OK) ? (intptr_t)length :
                                            (intptr_t)status;
}

/* Total of an iov without memory handles, or -1. */
static intptr_t tofu_am_iov_total(const tofu_iov_t *iov, size_t iovcnt,
                                  size_t max)
{
    size_t total = 0, bytes, i;

    if (iovcnt > TOFU_MAX_IOV) {
        tofu_error("an iov of %zu entries, at most %u", iovcnt, TOFU_MAX_IOV);
        return -1;
    }
    for (i = 0; i < iovcnt; ++i) {
        if (__builtin_mul_overflow(iov[i].length, (size_t)iov[i].count,
                                   &bytes) ||
            __builtin_add_overflow(total, bytes, &total) || (total > max)) {
            tofu_error("length of an active message: more than %zu bytes", max);
            return -1;
        }
    }
    return (intptr_t)total;
}

char *tofu_am_iov_copy(char *dest, const tofu_iov_t *iov, size_t iovcnt)
{
    size_t   i;
    unsigned block;

    for (i = 0; i < iovcnt; ++i) {
        for (block = 0; block < iov[i].count; ++block) {
            if (iov[i].length > 0) {
                memcpy(dest,
                       (const char *)iov[i].buffer +
                               ((iov[i].count > 1) ? block * iov[i].stride : 0),
                       iov[i].length);
                dest += iov[i].length;
            }
        }
    }
    return dest;
}

tofu_status_t tofu_ep_am_short_iov(tofu_ep_t *ep, uint8_t id,
                                   const tofu_iov_t *iov, size_t iovcnt)
{
    char          message[TOFU_MAX_SHORT];
    tofu_bounce_t *bounce;
    tofu_status_t status;
    intptr_t      total;

    total = tofu_am_iov_total(iov, iovcnt, tofu_am_max_short(ep->iface));
    if (total < 0) {
        return TOFU_ERR_INVALID_PARAM;
    }
    if ((total == 0) || (total > (intptr_t)sizeof(message))) {
        /* the end of nothing tells no small slot */
        status = tofu_am_large_begin(ep, id, &bounce);
        if (status != TOFU_OK) {
            return tofu_am_early_iov(ep, status, id, NULL, 0, iov, iovcnt, NULL);
        }
        tofu_am_iov_copy(bounce->buffer, iov, iovcnt);
        return tofu_am_send_bounce(ep, id, bounce, (size_t)total);
    }
    if (id >= TOFU_AM_ID_MAX) {
        return tofu_am_id_error(id);
    }
    status = tofu_am_enter(ep, TOFU_AM_SMALL);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_iov(ep, status, id, NULL, 0, iov, iovcnt, NULL);
    }
    tofu_am_iov_copy(message, iov, iovcnt);
    return tofu_am_post_small(ep, id, message, (unsigned)total);
}

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

    if (header_length > TOFU_AM_MAX_HEADER(seg)) {
        tofu_error("am_zcopy: header length of %u bytes, at most %zu",
                   header_length, (size_t)TOFU_AM_MAX_HEADER(seg));
        return TOFU_ERR_INVALID_PARAM;
    }
    total = tofu_am_iov_total(iov, iovcnt, seg - header_length);
    if (total < 0) {
        return TOFU_ERR_INVALID_PARAM;
    }
    status = tofu_am_large_begin(ep, id, &bounce);
    if (status != TOFU_OK) {
        return tofu_am_early_iov(ep, status, id, header, header_length, iov,
                                 iovcnt, tofu_am_is_late(ep, comp) ? comp : NULL);
    }
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
