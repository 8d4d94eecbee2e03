/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_bounce.h - sending, and messages that are copied into a bounce buffer: between
 * tofu_am_send.c, tofu_am_zcopy.c, tofu_in_place.c and tofu_am_early.c.
 */
#ifndef TOFU_AM_BOUNCE_H
#define TOFU_AM_BOUNCE_H

#include "tofu_am.h"

#pragma GCC visibility push(hidden)

/* What stands between the caller and a slot, other than nothing. */
TOFU_NOINLINE tofu_status_t tofu_am_enter_slow(tofu_ep_t *ep, unsigned cls);

/* Is there a slot of that class, and room to post? */
static inline tofu_status_t tofu_am_enter(tofu_ep_t *ep, unsigned cls)
{
    if (TOFU_LIKELY(!(ep->flags & TOFU_EP_AM_STOP) &&
                    (ep->chan->cls[cls].left > 0) &&
                    !tofu_iface_post_limited(ep->iface))) {
        return TOFU_OK;
    }
    return tofu_am_enter_slow(ep, cls);
}

tofu_status_t tofu_am_id_error(uint8_t id);
tofu_status_t tofu_am_packed_too_much(const tofu_ep_t *ep, size_t length);

/* Take a bounce buffer and write nothing yet. */
static inline tofu_bounce_t *tofu_am_bounce(tofu_ep_t *ep)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_bounce_t *bounce;

    /* Those that are free again are used again while the cache has them: the list is
     * a stack, and this keeps what is in flight short. */
    tofu_tcq_reap(iface);
    if (TOFU_UNLIKELY(iface->bounces == NULL)) {
        tofu_ep_starve(ep, TOFU_STARVED_BOUNCE);
        return NULL;
    }
    bounce         = iface->bounces;
    iface->bounces = bounce->next;
    return bounce;
}

static inline void tofu_am_bounce_put(tofu_iface_t *iface, tofu_bounce_t *bounce)
{
    bounce->next   = iface->bounces;
    iface->bounces = bounce;
}

/* May a message go without a notice?  Asked for each, so that the receiver may sleep soon
 * after it has revoked the permit. */
static inline int tofu_am_may_poll(const tofu_chan_t *chan)
{
    return (chan->turn & TOFU_TAIL_KEY) && !tofu_chan_permit_changed(chan);
}

/* The same for one that can take a large slot as well: is there a small one?  New credit is
 * looked for before a large one is taken; it is not for those that jump the queue. */
static inline int tofu_am_may_poll_small(tofu_chan_t *chan)
{
    if (!tofu_am_may_poll(chan)) {
        return 0;
    }
    if (TOFU_UNLIKELY((chan->cls[TOFU_AM_SMALL].left == 0) && (chan->waiters == 0) &&
                      (chan->state == TOFU_CHAN_OPEN))) {
        tofu_chan_take_credit(chan);
    }
    return chan->cls[TOFU_AM_SMALL].left > 0;
}

/* A message without a notice takes whole words, and its tail the next one. */
static inline unsigned tofu_am_words(size_t length)
{
    return ((unsigned)length + 7) & ~7u;
}

static inline uint64_t tofu_am_tail_word(const tofu_chan_t *chan, uint8_t id,
                                         unsigned length)
{
    return chan->turn | ((unsigned)id << TOFU_TAIL_ID_SHIFT) | length;
}

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

/* Enter for a large slot and take a bounce buffer. */
tofu_status_t tofu_am_large_begin(tofu_ep_t *ep, uint8_t id,
                                  tofu_bounce_t **bounce_p);
/* Post a message of `length` bytes that is in the bounce buffer; there is a large
 * slot.  cbdata: what becomes of the buffer when it is sent.  One of no bytes is some of
 * those that nobody reads, as a notice needs a put that ends somewhere. */
tofu_status_t tofu_am_post_large(tofu_iface_t *iface, tofu_chan_t *chan, uint8_t id,
                                 tofu_bounce_t *bounce, size_t length, void *cbdata);
/* Send what is in a bounce buffer, as a small message if it is one. */
tofu_status_t tofu_am_send_bounce(tofu_ep_t *ep, uint8_t id, tofu_bounce_t *bounce,
                                  size_t length);
/* Total of an iov without memory handles, or -1. */
intptr_t tofu_am_iov_total(const tofu_iov_t *iov, size_t iovcnt, size_t max);
/* Copy an iov behind dest; returns the end. */
char *tofu_am_iov_copy(char *dest, const tofu_iov_t *iov, size_t iovcnt);

/* Leave a message that is in a bounce buffer to the ep's continuation. */
void tofu_am_queue(tofu_ep_t *ep, uint8_t id, tofu_op_t *op,
                   tofu_bounce_t *bounce, size_t length);

/* A send was refused with `status`: leave the message for later, if that may be. */
tofu_status_t tofu_am_early_short(tofu_ep_t *ep, tofu_status_t status, uint8_t id,
                                  uint64_t header, const void *payload,
                                  unsigned length);
tofu_status_t tofu_am_early_iov(tofu_ep_t *ep, tofu_status_t status, uint8_t id,
                                const void *header, unsigned header_length,
                                const tofu_iov_t *iov, size_t iovcnt,
                                tofu_completion_t *comp);
intptr_t tofu_am_early_bcopy(tofu_ep_t *ep, tofu_status_t status, uint8_t id,
                             tofu_pack_cb_t pack, void *arg);

/* tofu_in_place.c: the same as tofu_ep_am_bcopy and tofu_ep_am_zcopy, for a channel whose
 * slots are mapped.  Lengths were looked at; what is sent is complete. */
intptr_t tofu_in_place_bcopy(tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack, void *arg);
tofu_status_t tofu_in_place_zcopy(tofu_ep_t *ep, uint8_t id, const void *header,
                                  unsigned header_length, const tofu_iov_t *iov,
                                  size_t iovcnt);

/* Small messages, likewise: is there a slot for one, that may go without a notice? */
static inline int tofu_in_place_has_small(tofu_chan_t *chan)
{
    return (chan->mapped != NULL) && chan->peer->iface->am->small_in_place &&
           tofu_am_may_poll_small(chan);
}

tofu_status_t tofu_in_place_short(tofu_ep_t *ep, uint8_t id, uint64_t header,
                                  const void *payload, unsigned length);
tofu_status_t tofu_in_place_short_iov(tofu_ep_t *ep, uint8_t id, const tofu_iov_t *iov,
                                      size_t iovcnt, unsigned total);

#pragma GCC visibility pop

#endif /* TOFU_AM_BOUNCE_H */
