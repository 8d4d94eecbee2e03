/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_order.c - flush and fence.
 *
 * put_short, put_bcopy, atomic_post and AM ask for no local notice: the ep only
 * notes which VCQs it used ("targets").  A flush posts one small operation with
 * notice to each of them (tofu_peer_ask): STRONG_ORDER makes it land after all before it from this VCQ, so
 * when its notice comes they are done, and notices of one target come in post
 * order, so operations that have notices of their own are done too.
 *
 * STRONG_ORDER also orders operations to one target: all but zcopy ask for it
 * always, because for them it costs nothing, and zcopy after a fence (TOFU_EP_ARMED).
 * But it orders writes after writes and reads after reads (2.2.10 of the guide): a get
 * after a fence waits until what was written before has come back.
 * Beyond that, a fence matters when an ep changes its target (RMA goes to an md's VCQ, AM to an
 * iface's): the first operation to another target waits until flush puts to those
 * used before have come back.
 */
#include "tofu_internal.h"

/* Post what a flush waits for. */
static tofu_status_t tofu_order_post(tofu_ep_t *ep, tofu_peer_t *peer)
{
    tofu_iface_t  *iface = peer->iface; /* the ep's, or a lane of it */
    tofu_status_t status;
    tofu_op_t     *op;

    if (!tofu_op_room(iface, 1)) {
        return tofu_ep_starve(ep, tofu_starved_room(iface));
    }
    op = tofu_op_alloc(iface, TOFU_OP_FLUSH);
    if (op == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    /* always ordered, whatever the configuration: it stands for all before it */
    status = tofu_peer_ask(peer, peer->post_id, op);
    if (status != TOFU_OK) {
        tofu_op_free(op);
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                       status;
    }
    tofu_op_posted(op, peer, 1);
    tofu_op_count(ep->iface, ep, op);
    tofu_lane_posted(iface);
    ++ep->fences;
    return TOFU_OK;
}

tofu_status_t tofu_ep_flush_targets(tofu_ep_t *ep)
{
    tofu_status_t status;

    if (ep->num_targets == 0) {
        return TOFU_OK;
    }
    ep->rma_vcq = TOFU_NO_VCQ;
    ep->flags  |= TOFU_EP_AM_FIRST;
    while (ep->num_targets > 0) {
        status = tofu_order_post(ep, ep->targets[ep->num_targets - 1]);
        if (status == TOFU_ERR_NO_RESOURCE) {
            return status;
        }
        if (status != TOFU_OK) {
            tofu_ep_fail(ep, status);
            return status;
        }
        --ep->num_targets;
    }
    tofu_list_del(&ep->used);
    return TOFU_OK;
}

/* All in flight goes to peer, and is ordered by the flag. */
static int tofu_order_same_target(const tofu_ep_t *ep, const tofu_peer_t *peer)
{
    return (ep->fences == 0) && ((ep->num_targets == 0) ||
                                 ((ep->num_targets == 1) &&
                                  (ep->targets[0] == peer)));
}

tofu_status_t tofu_ep_pass_fence(tofu_ep_t *ep, const tofu_peer_t *peer)
{
    tofu_status_t status;

    if (tofu_order_same_target(ep, peer)) {
        ep->flags &= (uint8_t)~(TOFU_EP_FENCE | TOFU_EP_ARMED);
        if (ep->num_targets > 0) {
            ep->flags |= TOFU_EP_ARMED; /* others still have to wait for it */
        }
        return TOFU_OK;
    }
    ep->flags |= TOFU_EP_FENCE;
    status     = tofu_ep_flush_targets(ep);
    return (status != TOFU_OK) ? status :
                                 tofu_ep_starve(ep, TOFU_STARVED_FENCE);
}

tofu_status_t tofu_order_get(tofu_ep_t *ep)
{
    tofu_status_t status;

    ep->flags |= TOFU_EP_FENCE;
    status     = tofu_ep_flush_targets(ep);
    return (status != TOFU_OK) ? status :
                                 tofu_ep_starve(ep, TOFU_STARVED_FENCE);
}

tofu_status_t tofu_ep_fence(tofu_ep_t *ep)
{
    if (ep->flags & TOFU_EP_FAILED) {
        return TOFU_OK; /* nothing is sent any more */
    }
    if ((ep->fences == 0) && (ep->num_targets <= 1)) {
        ep->flags |= (ep->num_targets == 0) ? 0 : TOFU_EP_ARMED;
    } else if ((ep->fences > 0) || (ep->num_targets > 0)) {
        ep->flags |= TOFU_EP_FENCE;
    }
    return TOFU_OK;
}

tofu_status_t tofu_iface_fence(tofu_iface_t *iface)
{
    tofu_link_t *link;

    for (link = iface->eps.next; link != &iface->eps; link = link->next) {
        tofu_ep_fence(tofu_container(link, tofu_ep_t, eps));
    }
    return TOFU_OK;
}

/* Is a flush put of the ep on its way to its AM peer?  One to another target (an
 * md, perhaps of another process) says nothing about that peer. */
static int tofu_order_asked(const tofu_ep_t *ep)
{
    const tofu_link_t *head = &tofu_peer_line(ep->peer)->fifo;
    const tofu_link_t *link;

    for (link = head->next; (ep->fences > 0) && (link != head);
         link = link->next) {
        const tofu_op_t *op = tofu_container(link, const tofu_op_t, link);
        if ((op->ep == ep) && (op->peer == ep->peer) &&
            ((op->kind == TOFU_OP_FLUSH) || (op->kind == TOFU_OP_FENCE))) {
            return 1;
        }
    }
    return 0;
}

tofu_status_t tofu_order_check(tofu_ep_t *ep)
{
    tofu_status_t status;

    if (ep->flags & TOFU_EP_FAILED) {
        return (tofu_status_t)ep->status;
    }
    if (tofu_order_asked(ep)) {
        return TOFU_OK;
    }
    status = tofu_order_post(ep, ep->peer);
    if ((status != TOFU_OK) && (status != TOFU_ERR_NO_RESOURCE)) {
        tofu_ep_fail(ep, status);
    }
    return status;
}

tofu_status_t tofu_ep_check(tofu_ep_t *ep)
{
    tofu_status_t status = tofu_order_check(ep);

    return (status == TOFU_ERR_NO_RESOURCE) ? tofu_check_later(ep) : status;
}

static tofu_status_t tofu_order_take_status(int8_t *flush_status)
{
    tofu_status_t status = (tofu_status_t)*flush_status;

    *flush_status = TOFU_OK;
    return status;
}

/* To the targets, as the one that a flush posts last: it is added again each time that
 * a flush is tried, and must not take the room of the others. */
static tofu_status_t tofu_order_add_peer(tofu_ep_t *ep)
{
    tofu_status_t status = tofu_ep_add_target(ep, ep->peer);
    tofu_peer_t   **last;

    if (status == TOFU_OK) {
        last = &ep->targets[ep->num_targets - 1];
        if (*last == ep->peer) {
            *last          = ep->targets[0];
            ep->targets[0] = ep->peer;
        }
    }
    return status;
}

static tofu_status_t tofu_ep_flush_now(tofu_ep_t *ep, unsigned flags,
                                       tofu_completion_t *comp)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_status_t status;

    if (flags & TOFU_FLUSH_CANCEL) {
        if (ep->checks > 0) {
            tofu_checks_drop(ep);
        }
        if (ep->more != NULL) {
            tofu_op_t *op = ep->more;
            ep->more      = NULL;
            ep->flags    &= (uint8_t)~TOFU_EP_MORE;
            tofu_op_cut(iface, op, TOFU_ERR_CANCELED);
        }
    } else if (ep->flags & TOFU_EP_FAILED) {
        return (tofu_status_t)ep->status;
    } else if (ep->flags & (TOFU_EP_PENDING | TOFU_EP_MORE)) {
        return TOFU_ERR_NO_RESOURCE;
    }

    if (!(ep->flags & TOFU_EP_FAILED)) {
        /* Memory is the md's, and may be there when the iface that the ep leads to
         * is not: a flush also finds that out. */
        status = (ep->num_targets > 0) ? tofu_order_add_peer(ep) : TOFU_OK;
        if (status == TOFU_OK) {
            status = tofu_ep_flush_targets(ep);
        }
        if (status == TOFU_ERR_NO_RESOURCE) {
            return status;
        }
        if ((status != TOFU_OK) && !(flags & TOFU_FLUSH_CANCEL)) {
            return status;
        }
    }
    if ((flags & TOFU_FLUSH_CANCEL) && !(ep->flags & TOFU_EP_FAILED)) {
        tofu_ep_close(ep, TOFU_ERR_CANCELED);
    }
    if (ep->inflight > 0) {
        return tofu_op_wait(iface, ep, 0, comp);
    }
    if (flags & TOFU_FLUSH_CANCEL) {
        ep->flush_status = TOFU_OK; /* failing is what the caller expects */
        return TOFU_OK;
    }
    return tofu_order_take_status(&ep->flush_status);
}

/* The TOQ gets room on its own.  But who was refused in a request of the pending queue
 * stays refused until it returns: UCP's tries again before that, and would have started
 * a flush that it starts once more when it is called again. */
tofu_status_t tofu_ep_flush(tofu_ep_t *ep, unsigned flags,
                            tofu_completion_t *comp)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_status_t status;

    if ((iface->serving == ep) && iface->flush_refused &&
        !(flags & TOFU_FLUSH_CANCEL)) {
        return TOFU_ERR_NO_RESOURCE;
    }
    status = tofu_ep_flush_now(ep, flags, comp);
    if ((status == TOFU_ERR_NO_RESOURCE) && (iface->serving == ep)) {
        iface->flush_refused = 1;
    }
    return status;
}

tofu_status_t tofu_iface_flush(tofu_iface_t *iface, unsigned flags,
                               tofu_completion_t *comp)
{
    int           quiet = (flags & TOFU_FLUSH_QUIET) != 0;
    tofu_link_t   *link, *next;
    tofu_status_t status;

    if (iface->num_turns > 0) {
        return TOFU_ERR_NO_RESOURCE; /* posted in part, or queued before this */
    }
    for (link = iface->used.next; link != &iface->used; link = next) {
        tofu_ep_t *ep = tofu_container(link, tofu_ep_t, used);
        next          = link->next;
        if (ep->flags & TOFU_EP_FAILED) {
            continue;
        }
        status = tofu_ep_flush_targets(ep);
        if (status == TOFU_ERR_NO_RESOURCE) {
            return status;
        }
    }
    if (iface->inflight > 0) {
        return tofu_op_wait(iface, NULL, quiet, comp);
    }
    status = tofu_order_take_status(&iface->flush_status);
    return quiet ? TOFU_OK : status;
}
