/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_send.c - sending active messages.
 */
#include "tofu_internal.h"
#include "tofu_am.h"
#include "tofu_am_bounce.h"

#include <stdlib.h>

tofu_status_t tofu_am_enter_slow(tofu_ep_t *ep, unsigned cls)
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

tofu_status_t tofu_am_id_error(uint8_t id)
{
    tofu_error("active message id %u: it must be less than %u", id,
               TOFU_AM_ID_MAX);
    return TOFU_ERR_INVALID_PARAM;
}

/* Write the tail of a message without a notice behind it, at the next word.  Returns where
 * that is. */
static TOFU_ALWAYS_INLINE unsigned tofu_am_add_tail(const tofu_chan_t *chan,
                                                    uint8_t id, char *data,
                                                    unsigned length)
{
    unsigned words = tofu_am_words(length);
    uint64_t tail  = tofu_am_tail_word(chan, id, length);

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

tofu_status_t tofu_am_post_large(tofu_iface_t *iface, tofu_chan_t *chan, uint8_t id,
                                 tofu_bounce_t *bounce, size_t length, void *cbdata)
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
    return (length <= TOFU_POLLED_BYTES) && (length > 0) &&
           (tofu_am_words(length) + sizeof(uint64_t) <=
            ep->iface->config.am_seg_size) &&
           tofu_am_may_poll_small(ep->chan);
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

tofu_status_t tofu_am_send_bounce(tofu_ep_t *ep, uint8_t id, tofu_bounce_t *bounce,
                                  size_t length)
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

tofu_status_t tofu_am_large_begin(tofu_ep_t *ep, uint8_t id,
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
    if (tofu_in_place_has_small(ep->chan)) {
        return tofu_in_place_short(ep, id, header, payload, length);
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
    if (TOFU_LIKELY(length <= TOFU_POLLED_SHORT)) {
        return tofu_am_may_poll(ep->chan) ?
                       tofu_am_post_polled(ep, id, message, length) :
                       tofu_am_post_small(ep, id, message, length);
    }
    return tofu_in_place_has_small(ep->chan) ?
                   tofu_in_place_short(ep, id, header, payload,
                                       length - (unsigned)sizeof(header)) :
                   tofu_am_post_small(ep, id, message, length);
}

tofu_status_t tofu_am_packed_too_much(const tofu_ep_t *ep, size_t length)
{
    /* it was written behind the buffer: the caller is broken */
    tofu_error("am_bcopy: packed length of %zu bytes, at most %zu", length,
               ep->iface->config.am_seg_size);
    return TOFU_ERR_INVALID_PARAM;
}

intptr_t tofu_ep_am_bcopy(tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack,
                          void *arg)
{
    tofu_bounce_t *bounce;
    tofu_status_t status;
    size_t        length;

    if (ep->chan->is_long && (ep->chan->mapped != NULL)) {
        return tofu_in_place_bcopy(ep, id, pack, arg);
    }
    status = tofu_am_large_begin(ep, id, &bounce);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_bcopy(ep, status, id, pack, arg);
    }
    length = pack(bounce->buffer, arg);
    if (TOFU_UNLIKELY(length > ep->iface->config.am_seg_size)) {
        tofu_am_bounce_put(ep->iface, bounce);
        return tofu_am_packed_too_much(ep, length);
    }
    ep->chan->is_long = (length >= TOFU_IN_PLACE_MIN);
    ep->chan->longs  += ep->chan->is_long;
    status = tofu_am_send_bounce(ep, id, bounce, length);
    return TOFU_LIKELY(status == TOFU_OK) ? (intptr_t)length :
                                            (intptr_t)status;
}

intptr_t tofu_am_iov_total(const tofu_iov_t *iov, size_t iovcnt, size_t max)
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
    if ((total > (intptr_t)TOFU_POLLED_SHORT) && tofu_in_place_has_small(ep->chan)) {
        return tofu_in_place_short_iov(ep, id, iov, iovcnt, (unsigned)total);
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
