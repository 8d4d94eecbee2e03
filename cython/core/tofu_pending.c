/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_pending.c - what waits for resources: continuations of operations that
 * were posted in part, and users' requests.
 *
 * Eps that have any stand in iface->turns, those that waited longest first.  Progress
 * gives each a turn: its continuation, else one request.  Who did something goes to
 * the end; who could not keeps its place, so that what comes now and then, like
 * credit, does not find the same few in front each time.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#define TOFU_TURNS_MAX 64u /* of one progress */

_Static_assert(sizeof(tofu_link_t) <= sizeof(((tofu_pending_req_t *)0)->priv),
               "a link fits into a request");

static tofu_link_t *tofu_pending_link(tofu_pending_req_t *req)
{
    return (tofu_link_t *)req->priv;
}

static tofu_pending_req_t *tofu_pending_req(tofu_link_t *link)
{
    return tofu_container(link, tofu_pending_req_t, priv);
}

void tofu_ep_schedule(tofu_ep_t *ep)
{
    tofu_iface_t *iface = ep->iface;

    if (tofu_list_empty(&ep->turn)) {
        tofu_list_add(&iface->turns, &ep->turn);
        ++iface->num_turns;
        ++ep->chan->waiters;
        iface->work |= TOFU_WORK_TURNS;
    }
}

void tofu_ep_unschedule(tofu_ep_t *ep)
{
    tofu_iface_t *iface = ep->iface;

    if (tofu_list_empty(&ep->turn)) {
        return;
    }
    if (iface->turn_next == &ep->turn) {
        iface->turn_next = ep->turn.next;
    }
    tofu_list_del(&ep->turn);
    --ep->chan->waiters;
    if (--iface->num_turns == 0) {
        iface->work &= ~(uint32_t)TOFU_WORK_TURNS;
    }
}

/* Is what the ep was refused for there again?  toq: assume that the TOQ has room,
 * for nothing but a post can tell. */
static int tofu_ep_has_room(tofu_ep_t *ep, int toq)
{
    const tofu_iface_t *iface = ep->iface;
    unsigned           missing = ep->starved;

    if (missing == 0) {
        return 1;
    }
    if (toq || !(missing & TOFU_STARVED_TOQ)) {
        if (tofu_iface_post_limited(iface)) {
            return 0;
        }
        missing &= ~(unsigned)TOFU_STARVED_TOQ;
    }
    if ((missing & TOFU_STARVED_OP) && tofu_op_room(iface, 1)) {
        missing &= ~(unsigned)TOFU_STARVED_OP;
    }
    if ((missing & TOFU_STARVED_LANE) && tofu_lanes_room(iface)) {
        missing &= ~(unsigned)TOFU_STARVED_LANE;
    }
    if ((missing & TOFU_STARVED_BOUNCE) && (iface->bounces != NULL)) {
        missing &= ~(unsigned)TOFU_STARVED_BOUNCE;
    }
    if ((missing & TOFU_STARVED_FENCE) && (ep->fences == 0)) {
        missing &= ~(unsigned)TOFU_STARVED_FENCE;
    }
    if ((missing & TOFU_STARVED_SMALL) &&
        tofu_chan_has_credit(ep->chan, TOFU_AM_SMALL)) {
        missing &= ~(unsigned)TOFU_STARVED_SMALL;
    }
    if ((missing & TOFU_STARVED_LARGE) &&
        tofu_chan_has_credit(ep->chan, TOFU_AM_LARGE)) {
        missing &= ~(unsigned)TOFU_STARVED_LARGE;
    }
    if (missing & (TOFU_STARVED_SMALL | TOFU_STARVED_LARGE)) {
        /* said before, but what came since another ep or class has used up */
        tofu_chan_want(ep->chan);
    }
    ep->starved = (uint8_t)missing;
    return missing == 0;
}

void tofu_ep_pending_queue(tofu_ep_t *ep, tofu_pending_req_t *req)
{
    tofu_list_add(&ep->pending, tofu_pending_link(req));
    ep->flags |= TOFU_EP_PENDING;
    if (!(ep->flags & TOFU_EP_FAILED)) {
        tofu_ep_schedule(ep);
    }
}

tofu_status_t tofu_ep_pending_add(tofu_ep_t *ep, tofu_pending_req_t *req)
{
    if (!(ep->flags & (TOFU_EP_PENDING | TOFU_EP_MORE)) &&
        ((ep->flags & TOFU_EP_FAILED) || tofu_ep_has_room(ep, 0))) {
        return TOFU_ERR_BUSY; /* sending now works, or says why not */
    }
    tofu_ep_pending_queue(ep, req);
    return TOFU_OK;
}

void tofu_ep_pending_purge(tofu_ep_t *ep,
                           void (*cb)(tofu_pending_req_t *req, void *arg),
                           void *arg)
{
    tofu_link_t queue;

    ep->flags &= (uint8_t)~TOFU_EP_PENDING;
    if (!(ep->flags & TOFU_EP_MORE)) {
        tofu_ep_unschedule(ep);
    }
    if (tofu_list_empty(&ep->pending)) {
        return;
    }
    /* a callback may queue again, or destroy the ep */
    queue            = ep->pending;
    queue.next->prev = &queue;
    queue.prev->next = &queue;
    tofu_list_init(&ep->pending);
    while (!tofu_list_empty(&queue)) {
        tofu_link_t *link = queue.next;
        tofu_list_del(link);
        if (cb != NULL) {
            cb(tofu_pending_req(link), arg);
        }
    }
}

/* One request.  Returns 1 when it did something. */
static int tofu_ep_serve_request(tofu_ep_t *ep)
{
    tofu_iface_t       *iface = ep->iface;
    tofu_link_t        *link  = ep->pending.next;
    tofu_pending_req_t *req   = tofu_pending_req(link);
    tofu_status_t      status;

    /* It may be freed or queued again by its own function, so take it out; and
     * its sends must not find the queue in their way. */
    tofu_list_del(link);
    ep->flags     &= (uint8_t)~TOFU_EP_PENDING;
    iface->serving       = ep;
    iface->flush_refused = 0;
    status               = (tofu_status_t)req->func(req);
    if (iface->serving != ep) {
        return 1; /* the ep was destroyed */
    }
    iface->serving = NULL;
    if (status != TOFU_OK) {
        link->next             = ep->pending.next; /* back to the head */
        link->prev             = &ep->pending;
        ep->pending.next->prev = link;
        ep->pending.next       = link;
    }
    if (!tofu_list_empty(&ep->pending)) {
        ep->flags |= TOFU_EP_PENDING;
        if (!(ep->flags & TOFU_EP_FAILED)) {
            tofu_ep_schedule(ep);
        }
    }
    return (status == TOFU_OK) || (status == TOFU_INPROGRESS);
}

/* Post more of what was posted in part. */
static int tofu_ep_serve_more(tofu_ep_t *ep)
{
    tofu_op_t     *op   = ep->more;
    uint64_t      posts = ep->iface->posts;
    tofu_status_t status;

    ep->more = NULL; /* should the ep fail meanwhile, op is still needed here */
    if (op->kind != TOFU_OP_RMA) {
        status = tofu_am_continue(op);
    } else if (op->rma.stripe != NULL) {
        status = tofu_stripe_continue(op);
    } else {
        status = tofu_rma_continue(op);
    }
    if (status == TOFU_ERR_NO_RESOURCE) {
        if (!(ep->flags & TOFU_EP_FAILED)) {
            ep->more = op;
            tofu_ep_schedule(ep);
            return ep->iface->posts != posts;
        }
        tofu_op_cut(ep->iface, op, (tofu_status_t)ep->status);
    }
    ep->flags &= (uint8_t)~TOFU_EP_MORE;
    if (ep->flags & TOFU_EP_ORPHAN) {
        tofu_ep_destroy(ep);
        return 1;
    }
    if ((ep->flags & (TOFU_EP_PENDING | TOFU_EP_FAILED)) == TOFU_EP_PENDING) {
        tofu_ep_schedule(ep);
    }
    return 1;
}

/* One turn of an ep, which is not in iface->turns meanwhile. */
static int tofu_ep_serve(tofu_ep_t *ep)
{
    if (ep->more != NULL) {
        return tofu_ep_serve_more(ep);
    }
    if (tofu_list_empty(&ep->pending)) {
        return 0;
    }
    if (!tofu_ep_has_room(ep, 1)) {
        tofu_ep_schedule(ep);
        return 0;
    }
    return tofu_ep_serve_request(ep);
}

/* The last call gave all its turns in vain and would go on behind them.  What they lack
 * may have come since, and is theirs. */
static tofu_link_t *tofu_turns_resume(tofu_iface_t *iface)
{
    tofu_link_t *link = iface->turns.next;
    unsigned    i;

    for (i = 0; (i < TOFU_TURNS_MAX) && (link != iface->turn_next); ++i) {
        tofu_ep_t *ep = tofu_container(link, tofu_ep_t, turn);
        if ((ep->starved != 0) && tofu_ep_has_room(ep, 0)) {
            return link;
        }
        link = link->next;
    }
    return iface->turn_next;
}

unsigned tofu_iface_serve_turns(tofu_iface_t *iface)
{
    unsigned  count = 0, turns = 0, idle = 0;
    tofu_ep_t *ep;

    if (iface->in_turns) {
        return 0; /* progress called from a request: it is its turn */
    }
    iface->in_turns = 1;
    if (iface->turn_next != &iface->turns) {
        iface->turn_next = tofu_turns_resume(iface);
    }
    while ((iface->num_turns > 0) && (turns < TOFU_TURNS_MAX) &&
           (idle < iface->num_turns)) {
        if (iface->turn_next == &iface->turns) {
            iface->turn_next = iface->turns.next;
        }
        ep = tofu_container(iface->turn_next, tofu_ep_t, turn);
        tofu_ep_unschedule(ep);
        if (tofu_ep_serve(ep)) {
            ++count;
            idle = 0;
        } else {
            ++idle;
            /* it keeps its place; who comes next may have gone meanwhile */
            if (!tofu_list_empty(&ep->turn) && (iface->turn_next != &ep->turn)) {
                tofu_list_del(&ep->turn);
                tofu_list_add(iface->turn_next, &ep->turn);
            }
        }
        ++turns;
    }
    if ((count > 0) || (turns < TOFU_TURNS_MAX)) {
        iface->turn_next = &iface->turns; /* who waits longest comes first again */
    } /* else: who can do nothing must not hide those behind */
    iface->in_turns = 0;
    return count;
}
