/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_ep.c - endpoints: making, failing and destroying them, and what stands
 * between a user and a post.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#include <stdlib.h>

tofu_status_t tofu_ep_open(tofu_iface_t *iface, tofu_peer_t *peer, tofu_ep_t **ep_p)
{
    tofu_ep_t *ep = calloc(1, sizeof(*ep));

    if (ep == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    ep->peer        = peer;
    ep->chan        = &iface->am->no_chan;
    ep->flags       = TOFU_EP_AM_FIRST;
    ep->iface       = iface;
    ep->rma_vcq     = TOFU_NO_VCQ;
    ep->targets     = ep->inline_targets;
    ep->max_targets = TOFU_EP_TARGETS;
    tofu_list_init(&ep->pending);
    tofu_list_init(&ep->waiters);
    tofu_list_init(&ep->used);
    tofu_list_init(&ep->turn);
    tofu_list_init(&ep->failed);
    tofu_list_add(&iface->eps, &ep->eps);
    tofu_lane_choose(ep);
    *ep_p = ep;
    return TOFU_OK;
}

tofu_status_t tofu_ep_create(tofu_iface_t *iface, const void *iface_addr,
                             size_t iface_addr_len, tofu_ep_t **ep_p)
{
    tofu_address_t address;
    tofu_status_t  status;
    tofu_peer_t    *peer;
    char           reason[160];

    status = tofu_iface_check_address(iface, iface_addr, iface_addr_len,
                                      &address, reason, sizeof(reason));
    if (status != TOFU_OK) {
        tofu_error("can't connect: %s", reason);
        return status;
    }
    status = tofu_peer_get(iface, address.vcq_id, address.port, &peer);
    if (status == TOFU_OK) {
        status = tofu_peer_set_address(peer, &address);
    }
    return (status == TOFU_OK) ? tofu_ep_open(iface, peer, ep_p) : status;
}

/* The user's part of a destroyed ep goes; what was taken from him as sent stays
 * and is sent, then the rest goes. */
static void tofu_ep_orphan(tofu_ep_t *ep)
{
    ep->flags |= TOFU_EP_ORPHAN;
    ep->flags &= (uint8_t)~TOFU_EP_PENDING;
    tofu_list_init(&ep->pending);
    tofu_ops_forget_ep(ep->iface, ep);
    ep->inflight = 0;
    if (ep->iface->serving == ep) {
        ep->iface->serving = NULL;
    }
}

void tofu_ep_destroy(tofu_ep_t *ep)
{
    tofu_iface_t *iface = ep->iface;

    if (ep->checks > 0) {
        tofu_checks_drop(ep);
    }
    if (!tofu_list_empty(&ep->pending)) {
        tofu_warn("ep %p is destroyed with requests queued: they are lost",
                  (void *)ep);
    }
    if ((ep->more != NULL) && (ep->more->flags & TOFU_OP_EARLY) &&
        !(ep->flags & TOFU_EP_ORPHAN)) {
        tofu_ep_orphan(ep);
        return;
    }
    if (ep->more != NULL) {
        tofu_op_cut(iface, ep->more, TOFU_ERR_CANCELED);
    }
    if ((ep->inflight > 0) || !tofu_list_empty(&ep->waiters)) {
        tofu_ops_forget_ep(iface, ep);
    }
    if (iface->serving == ep) {
        iface->serving = NULL;
    }
    tofu_lane_release(ep);
    tofu_ep_unschedule(ep);
    tofu_list_del(&ep->used);
    tofu_list_del(&ep->failed);
    tofu_list_del(&ep->eps);
    if (ep->targets != ep->inline_targets) {
        free(ep->targets);
    }
    if (ep->chan != &iface->am->no_chan) {
        tofu_chan_put(ep->chan);
    }
    free(ep);
}

int tofu_ep_is_connected(const tofu_ep_t *ep, const void *iface_addr,
                         size_t iface_addr_len)
{
    tofu_address_t address;
    char           reason[160];

    return (tofu_wire_unpack_address(iface_addr, iface_addr_len, &address,
                                     reason, sizeof(reason)) == TOFU_OK) &&
           (address.vcq_id == ep->peer->vcq_id) &&
           (address.port == ep->peer->port) &&
           (address.incarnation == ep->peer->incarnation);
}

tofu_status_t tofu_ep_status(const tofu_ep_t *ep)
{
    return (ep->flags & TOFU_EP_FAILED) ? (tofu_status_t)ep->status : TOFU_OK;
}

int tofu_ep_has_unsent(const tofu_ep_t *ep)
{
    return (ep->flags & TOFU_EP_MORE) != 0;
}

tofu_iface_t *tofu_ep_iface(const tofu_ep_t *ep)
{
    return ep->iface;
}

void tofu_ep_set_user(tofu_ep_t *ep, void *user)
{
    ep->user = user;
}

void *tofu_ep_user(const tofu_ep_t *ep)
{
    return ep->user;
}

int tofu_ep_uses(const tofu_ep_t *ep, const tofu_peer_t *peer)
{
    uint32_t i;

    for (i = 0; i < ep->num_targets; ++i) {
        if (ep->targets[i] == peer) {
            return 1;
        }
    }
    return 0;
}

void tofu_ep_fail(tofu_ep_t *ep, tofu_status_t status)
{
    tofu_iface_t *iface = ep->iface;

    if (ep->flags & TOFU_EP_FAILED) {
        return;
    }
    if (ep->flags & TOFU_EP_DOOMED) { /* this comes first */
        ep->flags &= (uint8_t)~TOFU_EP_DOOMED;
        tofu_list_del(&ep->failed);
    }
    tofu_debug("ep %p to VCQ %#llx failed: %s", (void *)ep,
               (unsigned long long)ep->peer->vcq_id,
               tofu_status_string(status));
    ep->flags |= TOFU_EP_FAILED;
    ep->status = (int8_t)status;
    if (ep->flush_status == TOFU_OK) {
        ep->flush_status = (int8_t)status;
    }
    if (iface->flush_status == TOFU_OK) {
        iface->flush_status = (int8_t)status;
    }
    if (ep->more != NULL) {
        tofu_op_t *op = ep->more;
        ep->more      = NULL;
        ep->flags    &= (uint8_t)~TOFU_EP_MORE;
        tofu_op_cut(iface, op, status);
    }
    /* queued requests stay until they are purged */
    tofu_ep_unschedule(ep);
    tofu_list_add(&iface->failed, &ep->failed);
    iface->work |= TOFU_WORK_DONE;
}

void tofu_ep_close(tofu_ep_t *ep, tofu_status_t status)
{
    ep->flags |= TOFU_EP_FAILED;
    ep->status = (int8_t)status;
    tofu_ep_unschedule(ep);
}

tofu_status_t tofu_ep_invalidate(tofu_ep_t *ep)
{
    if (!(ep->flags & (TOFU_EP_FAILED | TOFU_EP_DOOMED))) {
        tofu_ops_spoil_ep(ep->iface, ep, TOFU_ERR_CANCELED);
        ep->flags |= TOFU_EP_DOOMED;
        tofu_list_add(&ep->iface->failed, &ep->failed);
        ep->iface->work |= TOFU_WORK_DONE;
    }
    return TOFU_OK;
}

tofu_status_t tofu_ep_add_target(tofu_ep_t *ep, tofu_peer_t *peer)
{
    tofu_peer_t **targets;

    if (tofu_ep_uses(ep, peer)) {
        return TOFU_OK;
    }
    if (ep->num_targets == ep->max_targets) {
        targets = malloc(ep->max_targets * 2 * sizeof(*targets));
        if (targets == NULL) {
            return TOFU_ERR_NO_MEMORY;
        }
        memcpy(targets, ep->targets, ep->num_targets * sizeof(*targets));
        if (ep->targets != ep->inline_targets) {
            free(ep->targets);
        }
        ep->targets      = targets;
        ep->max_targets *= 2;
    }
    if (ep->num_targets == 0) {
        tofu_list_add(&ep->iface->used, &ep->used);
    }
    ep->targets[ep->num_targets++] = peer;
    return TOFU_OK;
}

tofu_status_t TOFU_NOINLINE tofu_ep_enter(tofu_ep_t *ep, tofu_peer_t *peer)
{
    tofu_status_t status;

    if (ep->flags & TOFU_EP_FAILED) {
        return (tofu_status_t)ep->status;
    }
    if (ep->flags & (TOFU_EP_PENDING | TOFU_EP_MORE)) {
        return TOFU_ERR_NO_RESOURCE;
    }
    if (tofu_iface_post_limited(ep->iface)) {
        return tofu_ep_starve(ep, TOFU_STARVED_TOQ);
    }
    if (ep->flags & (TOFU_EP_FENCE | TOFU_EP_ARMED)) {
        status = tofu_ep_pass_fence(ep, peer);
        if (status != TOFU_OK) {
            return status;
        }
    }
    return tofu_ep_add_target(ep, peer);
}

tofu_status_t TOFU_NOINLINE tofu_ep_enter_rma(tofu_ep_t *ep,
                                              const tofu_rkey_t *rkey)
{
    tofu_peer_t   *peer;
    tofu_status_t status;

    if (ep->flags & TOFU_EP_FAILED) {
        return (tofu_status_t)ep->status;
    }
    status = tofu_peer_get(ep->iface, rkey->vcq_id, 0, &peer);
    if (status != TOFU_OK) {
        return status;
    }
    status = tofu_ep_enter(ep, peer);
    if (status == TOFU_OK) {
        ep->rma_vcq  = peer->vcq_id;
        ep->rma_peer = peer;
    }
    return status;
}
