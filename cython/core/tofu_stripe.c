/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_stripe.c - large puts and gets, by one lane or over several (tofu_lane.c).
 *
 * Each way is a target of the ep like any other (tofu_order.c), so flush and fence
 * hold for it: what comes after a fence waits until the puts of all ways are done.
 */
#include "tofu_internal.h"

#include <stdlib.h>

#define TOFU_STRIPE_ALIGN 4096u /* pieces begin on pages of the sender's side */

typedef struct tofu_way {
    tofu_peer_t   *peer;   /* of a lane: a VCQ of the target md */
    utofu_stadd_t remote;  /* of the first byte */
} tofu_way_t;

struct tofu_stripe { /* what is left of an operation */
    tofu_way_t way[TOFU_MAX_TNIS];
    unsigned   ways;
    unsigned   piece;  /* number of the next */
    tofu_mem_t *memh;
    char       *address;
    size_t     total, done, step; /* step: bytes of a piece */
};

/* The ways that an operation may take.  OK: stripe->ways of them, at least one;
 * all have passed fences. */
static tofu_status_t tofu_stripe_ways(tofu_ep_t *ep, uint64_t offset,
                                      const tofu_rkey_t *rkey,
                                      tofu_stripe_t *stripe)
{
    tofu_iface_t  *iface = ep->iface;
    unsigned      n      = iface->md->num_tnis;
    unsigned      links  = tofu_lane_links(iface->md, rkey->vcq_id);
    unsigned      used   = 0, i, index, rail;
    tofu_status_t status;
    tofu_iface_t  *lane;
    tofu_way_t    *way;

    stripe->ways = 0;
    for (i = 0; (i < n) && (stripe->ways < links); ++i) {
        index = (ep->lane + i) % n;
        if (used & (1u << (index % links))) {
            continue; /* begins with the same link as another */
        }
        lane = tofu_lane_get(iface, index);
        if (lane == NULL) {
            continue;
        }
        way         = &stripe->way[stripe->ways];
        rail        = index % (rkey->num_rails + 1);
        way->remote = ((rail == 0) ? rkey->stadd : rkey->rail[rail - 1].stadd) +
                      offset;
        status      = tofu_peer_get(lane,
                                    (rail == 0) ? rkey->vcq_id :
                                                  rkey->rail[rail - 1].vcq_id,
                                    0, &way->peer);
        if (status == TOFU_OK) {
            status = tofu_ep_enter(ep, way->peer);
        }
        if (status != TOFU_OK) {
            return status;
        }
        used |= 1u << (index % links);
        ++stripe->ways;
    }
    return TOFU_OK;
}

/* One uTofu operation does all of it. */
static tofu_status_t tofu_stripe_single(tofu_ep_t *ep, const tofu_way_t *way,
                                        const tofu_stripe_t *stripe,
                                        unsigned flags, tofu_completion_t *comp)
{
    tofu_peer_t   *peer = way->peer;
    tofu_iface_t  *lane = peer->iface;
    unsigned      edata = tofu_peer_edata(peer);
    tofu_status_t status;
    utofu_stadd_t local;
    uint64_t      unused;
    tofu_op_t     *op;

    if (!tofu_op_room(lane, 1)) {
        return tofu_ep_starve(ep, tofu_starved_room(lane));
    }
    status = tofu_mem_stadd(stripe->memh, lane, stripe->address, stripe->total,
                            &local);
    if (status != TOFU_OK) {
        return status;
    }
    op = tofu_op_alloc(lane, TOFU_OP_RMA);
    if (op == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    op->peer       = peer;
    op->comp       = comp;
    op->rma.cursor = NULL;
    op->rma.stripe = NULL;
    op->flags      = (uint8_t)flags;
    status         = tofu_rma_post(op, peer, local, way->remote, stripe->total,
                                   edata, flags & TOFU_OP_GET);
    if (status != TOFU_OK) {
        tofu_op_free(op);
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                       status;
    }
    /* a get is never complete at once, see TOFU_LATE_GET in tofu_rma.c */
    if (!(flags & TOFU_OP_GET) && tofu_op_early(lane, peer, edata, &unused)) {
        tofu_op_free(op);
        return TOFU_OK;
    }
    tofu_op_posted(op, peer, 1);
    tofu_op_count(ep->iface, ep, op);
    tofu_lane_posted(lane);
    return TOFU_INPROGRESS;
}

/* Post pieces until all are posted (OK) or something stands in the way. */
static tofu_status_t tofu_stripe_post(tofu_op_t *root)
{
    tofu_stripe_t *stripe = root->rma.stripe;
    tofu_status_t status;
    utofu_stadd_t local;
    tofu_iface_t  *lane;
    tofu_peer_t   *peer;
    tofu_way_t    *way;
    tofu_op_t     *part;
    size_t        length;

    while (stripe->done < stripe->total) {
        way    = &stripe->way[stripe->piece % stripe->ways];
        peer   = way->peer;
        lane   = peer->iface;
        length = stripe->total - stripe->done;
        length = (length < stripe->step) ? length : stripe->step;
        if (!tofu_op_room(lane, 1)) {
            return TOFU_ERR_NO_RESOURCE;
        }
        status = tofu_mem_stadd(stripe->memh, lane,
                                stripe->address + stripe->done, length, &local);
        if (status != TOFU_OK) {
            return status;
        }
        part = tofu_op_alloc(lane, TOFU_OP_PART);
        if (part == NULL) {
            return TOFU_ERR_NO_MEMORY;
        }
        part->root  = root;
        part->ep    = root->ep;
        part->flags = root->flags & TOFU_OP_STRONG;
        status      = tofu_rma_post(part, peer, local,
                                    way->remote + stripe->done, length,
                                    tofu_peer_edata(peer),
                                    root->flags & TOFU_OP_GET);
        if (status != TOFU_OK) {
            tofu_op_free(part);
            return status;
        }
        tofu_op_posted(part, peer, 1);
        tofu_lane_posted(lane);
        stripe->done += length;
        ++stripe->piece;
    }
    return TOFU_OK;
}

/* Nothing more of it is to be posted.  status: what it failed with, or OK. */
static void tofu_stripe_end(tofu_op_t *root, tofu_status_t status)
{
    free(root->rma.stripe);
    root->rma.stripe = NULL;
    root->flags     &= (uint8_t)~TOFU_OP_MORE;
    if ((status != TOFU_OK) && (root->status == TOFU_OK)) {
        root->status = (int8_t)status;
    }
}

/* Post, while one round more than there are pieces keeps root alive: an error may
 * come by the TCQ meanwhile. */
static tofu_status_t tofu_stripe_step(tofu_op_t *root)
{
    tofu_status_t status;

    ++root->rounds;
    status = tofu_stripe_post(root);
    --root->rounds;
    return status;
}

tofu_status_t tofu_stripe_continue(tofu_op_t *root)
{
    tofu_status_t status = tofu_stripe_step(root);

    if (status == TOFU_ERR_NO_RESOURCE) {
        return status;
    }
    tofu_stripe_end(root, status);
    if (root->rounds == 0) {
        tofu_op_defer(root);
    }
    return TOFU_OK;
}

static tofu_status_t tofu_stripe_many(tofu_ep_t *ep,
                                      const tofu_stripe_t *stripe,
                                      unsigned flags, tofu_completion_t *comp)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_op_t     *root  = tofu_op_alloc(iface, TOFU_OP_RMA);
    tofu_status_t status;

    if (root == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    root->comp       = comp;
    root->peer       = stripe->way[0].peer;
    root->flags      = (uint8_t)flags;
    root->rma.cursor = NULL;
    root->rma.stripe = malloc(sizeof(*stripe));
    if (root->rma.stripe == NULL) {
        tofu_op_free(root);
        return TOFU_ERR_NO_MEMORY;
    }
    *root->rma.stripe = *stripe;
    tofu_op_count(iface, ep, root);
    status = tofu_stripe_step(root);
    if ((root->rma.stripe->done == 0) && (status != TOFU_OK)) {
        --ep->inflight; /* it has not begun */
        --iface->inflight;
        free(root->rma.stripe);
        tofu_op_free(root);
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ |
                                                  TOFU_STARVED_LANE) :
                       status;
    }
    if ((status == TOFU_ERR_NO_RESOURCE) && !(ep->flags & TOFU_EP_FAILED)) {
        root->flags |= TOFU_OP_MORE;
        ep->more     = root;
        ep->flags   |= TOFU_EP_MORE;
        tofu_ep_schedule(ep);
        return TOFU_INPROGRESS;
    }
    tofu_stripe_end(root, (status == TOFU_ERR_NO_RESOURCE) ?
                                  (tofu_status_t)ep->status :
                                  status);
    if (root->rounds == 0) {
        tofu_op_defer(root);
    }
    return TOFU_INPROGRESS;
}

tofu_status_t tofu_rma_stripe(tofu_ep_t *ep, const tofu_iov_t *iov,
                              uint64_t offset, const tofu_rkey_t *rkey,
                              tofu_completion_t *comp, int is_get)
{
    size_t        max    = ep->iface->max_put;
    unsigned      flags  = is_get ? TOFU_OP_GET : 0;
    tofu_stripe_t stripe = {.memh = iov->memh, .address = iov->buffer,
                            .total = iov->length};
    tofu_status_t status;
    utofu_stadd_t local;

    status = tofu_stripe_ways(ep, offset, rkey, &stripe);
    if (status != TOFU_OK) {
        return status;
    }
    if (is_get && (ep->flags & TOFU_EP_ARMED)) {
        return tofu_order_get(ep);
    }
    status = tofu_mem_stadd(iov->memh, stripe.way[0].peer->iface, iov->buffer,
                            iov->length, &local);
    if (status != TOFU_OK) {
        tofu_error("%zu bytes at %p are not inside the memory handle, or it is "
                   "NULL or of another md", iov->length, iov->buffer);
        return status;
    }
    if (ep->flags & TOFU_EP_ARMED) {
        flags |= TOFU_OP_STRONG; /* after what was posted before a fence */
    }
    if ((stripe.ways == 1) && (stripe.total <= max)) {
        return tofu_stripe_single(ep, &stripe.way[0], &stripe, flags, comp);
    }
    stripe.step = (stripe.total / stripe.ways + TOFU_STRIPE_ALIGN) /
                  TOFU_STRIPE_ALIGN * TOFU_STRIPE_ALIGN;
    stripe.step = (stripe.step < max) ? stripe.step : max;
    return tofu_stripe_many(ep, &stripe, flags, comp);
}
