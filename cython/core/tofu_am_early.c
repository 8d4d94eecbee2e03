/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_early.c - the first message of a channel, before there are slots.
 *
 * While the slots of a channel are being asked for, each ep may leave one message
 * in a bounce buffer, which goes as soon as they are granted: programs send the
 * first message of a new ep without being ready to hear that there is no room.
 * A quarter of the bounce buffers may be in such use, so that peers which do not
 * answer can't take those that others need.  Who uses the event descriptor is told
 * that there is no room: it may not call progress until something comes to it.
 */
#include "tofu_internal.h"
#include "tofu_am_bounce.h"

/* A bounce buffer, if a send that was refused with `status` may be left in it. */
static tofu_bounce_t *tofu_am_early_begin(tofu_ep_t *ep, tofu_status_t status,
                                          uint8_t id)
{
    const unsigned    credit = TOFU_STARVED_SMALL | TOFU_STARVED_LARGE;
    const tofu_chan_t *chan  = ep->chan;
    tofu_iface_t      *iface = ep->iface;

    if ((status != TOFU_ERR_NO_RESOURCE) || (id >= TOFU_AM_ID_MAX) ||
        (iface->wakeup != NULL) ||
        (ep->flags & (TOFU_EP_FAILED | TOFU_EP_PENDING | TOFU_EP_MORE)) ||
        (ep->starved == 0) || (ep->starved & ~credit) ||
        (chan == &iface->am->no_chan) || (chan->state == TOFU_CHAN_IDLE) ||
        (chan->state == TOFU_CHAN_OPEN) ||
        (iface->am->early >= (iface->config.tx_bounce + 3) / 4)) {
        return NULL;
    }
    return tofu_am_bounce(ep);
}

/* comp: called when it was sent; the user's memory is free already */
static tofu_status_t tofu_am_early_end(tofu_ep_t *ep, uint8_t id,
                                       tofu_bounce_t *bounce, size_t length,
                                       tofu_completion_t *comp)
{
    tofu_iface_t *iface = ep->iface;
    tofu_op_t    *op    = tofu_op_alloc(iface, TOFU_OP_AM_ZCOPY);

    if (op == NULL) {
        tofu_am_bounce_put(iface, bounce);
        return TOFU_ERR_NO_MEMORY;
    }
    op->peer   = ep->peer;
    op->comp   = comp;
    op->flags |= TOFU_OP_EARLY;
    ++iface->am->early;
    tofu_am_queue(ep, id, op, bounce, length);
    return (comp != NULL) ? TOFU_INPROGRESS : TOFU_OK;
}

tofu_status_t
tofu_am_early_short(tofu_ep_t *ep, tofu_status_t status, uint8_t id,
                    uint64_t header, const void *payload, unsigned length)
{
    tofu_bounce_t *bounce = tofu_am_early_begin(ep, status, id);
    char          *message;

    if (bounce == NULL) {
        return status;
    }
    message = bounce->buffer;
    memcpy(message, &header, sizeof(header));
    if (length > 0) {
        memcpy(message + sizeof(header), payload, length);
    }
    return tofu_am_early_end(ep, id, bounce, sizeof(header) + length, NULL);
}

tofu_status_t
tofu_am_early_iov(tofu_ep_t *ep, tofu_status_t status, uint8_t id,
                  const void *header, unsigned header_length,
                  const tofu_iov_t *iov, size_t iovcnt, tofu_completion_t *comp)
{
    tofu_bounce_t *bounce = tofu_am_early_begin(ep, status, id);
    char          *payload, *end;

    if (bounce == NULL) {
        return status;
    }
    payload = bounce->buffer;
    if (header_length > 0) {
        memcpy(payload, header, header_length);
    }
    end = tofu_am_iov_copy(payload + header_length, iov, iovcnt);
    return tofu_am_early_end(ep, id, bounce, (size_t)(end - payload), comp);
}

intptr_t
tofu_am_early_bcopy(tofu_ep_t *ep, tofu_status_t status, uint8_t id,
                    tofu_pack_cb_t pack, void *arg)
{
    tofu_bounce_t *bounce = tofu_am_early_begin(ep, status, id);
    size_t        length;

    if (bounce == NULL) {
        return status;
    }
    length = pack(bounce->buffer, arg);
    if (length > ep->iface->config.am_seg_size) {
        tofu_error("am_bcopy: packed length of %zu bytes, at most %zu", length,
                   ep->iface->config.am_seg_size);
        tofu_am_bounce_put(ep->iface, bounce);
        return TOFU_ERR_INVALID_PARAM;
    }
    status = tofu_am_early_end(ep, id, bounce, length, NULL);
    return (status == TOFU_OK) ? (intptr_t)length : (intptr_t)status;
}
