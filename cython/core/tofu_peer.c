/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_peer.c - remote VCQs of an iface, and what happens when one fails.
 *
 * VCQ IDs are compared as utofu_query_vcq_id gives them, which is also how
 * notices give them (3.7.6.1).  Peers are found by an open-addressing hash table,
 * off the fast paths: eps, operations and callback data hold pointers.  A peer
 * lives as long as its iface: there are only as many as VCQs, and a VCQ ID that
 * is used again finds its record here.  Ifaces that share a VCQ have a record each,
 * and one more is about the VCQ itself.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#include <stdlib.h>

#define TOFU_PEERS_MIN 64u

/* Where the search for any port of the VCQ begins. */
static size_t tofu_peer_first(const tofu_iface_t *iface, utofu_vcq_id_t vcq_id)
{
    return (size_t)((vcq_id * 0x9e3779b97f4a7c15ull) >> 32) &
           (iface->max_peers - 1);
}

static size_t tofu_peer_slot(const tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                             unsigned port)
{
    size_t i = tofu_peer_first(iface, vcq_id);

    while ((iface->peers[i] != NULL) && ((iface->peers[i]->vcq_id != vcq_id) ||
                                         (iface->peers[i]->port != port))) {
        i = (i + 1) & (iface->max_peers - 1);
    }
    return i;
}

tofu_peer_t *tofu_peer_find(tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                            unsigned port)
{
    return (iface->max_peers == 0) ?
                   NULL :
                   iface->peers[tofu_peer_slot(iface, vcq_id, port)];
}

static tofu_status_t tofu_peers_grow(tofu_iface_t *iface)
{
    size_t      i, old_max = iface->max_peers;
    tofu_peer_t **old      = iface->peers;
    tofu_peer_t **peers;

    if (iface->num_peers * 2 < old_max) {
        return TOFU_OK;
    }
    peers = calloc((old_max > 0) ? old_max * 2 : TOFU_PEERS_MIN,
                   sizeof(*peers));
    if (peers == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    iface->peers     = peers;
    iface->max_peers = (old_max > 0) ? old_max * 2 : TOFU_PEERS_MIN;
    for (i = 0; i < old_max; ++i) {
        if (old[i] != NULL) {
            peers[tofu_peer_slot(iface, old[i]->vcq_id, old[i]->port)] = old[i];
        }
    }
    free(old);
    return TOFU_OK;
}

int tofu_peer_stadd(const tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                    unsigned port, unsigned stag, utofu_stadd_t *stadd_p)
{
    return iface->fn.query_stadd(vcq_id, port * TOFU_PORT_STAGS + stag, stadd_p);
}

tofu_status_t tofu_peer_ask(tofu_peer_t *peer, utofu_vcq_id_t to, tofu_op_t *op)
{
    tofu_iface_t        *iface = peer->iface;
    const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

    if (peer->identity == 0) {
        return tofu_post(iface, "utofu_put_piggyback8", peer->vcq_id, 8,
                         iface->fn.put_piggyback8(
                                 iface->vcq, to, 0, peer->scratch, 8,
                                 tofu_peer_edata(peer), flags,
                                 tofu_cbdata(op, TOFU_CB_OP)));
    }
    /* 0 for 0: it changes nothing, and the word comes back in the notice */
    op->flags |= TOFU_OP_ASKS;
    return tofu_post(iface, "utofu_cswap8", peer->vcq_id, 8,
                     iface->fn.cswap8(iface->vcq, to, 0, 0, peer->identity,
                                      tofu_peer_edata(peer), flags,
                                      tofu_cbdata(op, TOFU_CB_OP)));
}

int tofu_peer_is_other(const tofu_op_t *op, uint64_t answer)
{
    const tofu_peer_t *peer = op->peer;

    /* What is no identity was written by somebody who should not, and tells nothing. */
    return (op->epoch == peer->epoch) &&
           (answer != tofu_identity(peer->incarnation)) &&
           (answer == tofu_identity((uint32_t)answer));
}

tofu_status_t tofu_peer_get(tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                            unsigned port, tofu_peer_t **peer_p)
{
    tofu_peer_t   *peer = tofu_peer_find(iface, vcq_id, port);
    tofu_peer_t   *line = NULL;
    utofu_stadd_t scratch;
    tofu_status_t status;
    int           ret;

    if (peer != NULL) {
        *peer_p = peer;
        return TOFU_OK;
    }
    /* this also tells whether the ID can be one */
    ret = tofu_peer_stadd(iface, vcq_id, port, TOFU_STAG_SCRATCH, &scratch);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_query_stadd(VCQ %#llx, STag %d): %s",
                   (unsigned long long)vcq_id, TOFU_STAG_SCRATCH,
                   tofu_code_name(ret));
        return tofu_status_from_code(ret);
    }
    if (port != 0) {
        status = tofu_peer_get(iface, vcq_id, 0, &line);
        if (status != TOFU_OK) {
            return status;
        }
    }
    status = tofu_peers_grow(iface);
    if (status != TOFU_OK) {
        return status;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    peer->iface   = iface;
    peer->vcq_id  = vcq_id;
    peer->post_id = (iface->lane_index == 0) ? vcq_id :
                                               tofu_lane_path(iface, vcq_id);
    peer->scratch = scratch;
    peer->port    = (uint8_t)port;
    if (port == 0) {
        tofu_list_init(&peer->fifo);
    } else {
        peer->line   = line;
        line->ported = 1;
    }
    iface->peers[tofu_peer_slot(iface, vcq_id, port)] = peer;
    ++iface->num_peers;
    *peer_p = peer;
    return TOFU_OK;
}

/* The iface's one record of a geometry. */
static const tofu_geometry_t *tofu_geometry_get(tofu_iface_t *iface,
                                                const tofu_geometry_t *geometry)
{
    tofu_geometry_node_t *node;

    for (node = iface->geometries; node != NULL; node = node->next) {
        if (!memcmp(&node->geometry, geometry, sizeof(*geometry))) {
            return &node->geometry;
        }
    }
    node = malloc(sizeof(*node));
    if (node == NULL) {
        return NULL;
    }
    node->geometry    = *geometry;
    node->next        = iface->geometries;
    iface->geometries = node;
    return &node->geometry;
}

tofu_status_t tofu_peer_set_address(tofu_peer_t *peer,
                                    const tofu_address_t *address)
{
    const tofu_geometry_t *geometry = tofu_geometry_get(peer->iface,
                                                        &address->geometry);
    utofu_stadd_t         table;

    if (geometry == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    if (tofu_peer_stadd(peer->iface, peer->vcq_id, peer->port, TOFU_STAG_REQUEST,
                        &table) == UTOFU_SUCCESS) {
        peer->identity = table + TOFU_IDENTITY_OFFSET;
    }
    if (peer->incarnation != address->incarnation) {
        /* Another process has the VCQ by now; what the one before it lent went
         * with it, and so did whom the eps that there are lead to.  There are none when
         * this is the first address: 158,975 peers are not to cost as many walks. */
        tofu_link_t *link = (peer->geometry == NULL) ? &peer->iface->eps :
                                                       peer->iface->eps.next;

        for (; link != &peer->iface->eps; link = link->next) {
            tofu_ep_t *ep = tofu_container(link, tofu_ep_t, eps);
            if (ep->peer == peer) {
                tofu_ep_fail(ep, TOFU_ERR_ENDPOINT_TIMEOUT);
            }
        }
        peer->epoch = (peer->epoch == UINT8_MAX) ? 2 : peer->epoch + 1; /* more than one for good */
        if (peer->chan != NULL) {
            tofu_chan_reset(peer->chan);
        }
    }
    peer->geometry    = geometry;
    peer->incarnation = address->incarnation;
    return TOFU_OK;
}

void tofu_peer_failed(tofu_peer_t *peer, tofu_status_t status, int gone)
{
    tofu_iface_t *iface = peer->iface->owner;
    tofu_link_t  *head  = &tofu_peer_line(peer)->fifo;
    tofu_link_t  *link;

    /* Flushes in flight cover operations of which no other record is left: the
     * targets that their eps used were forgotten when they were posted. */
    for (link = head->next; link != head; link = link->next) {
        tofu_op_t *op = tofu_container(link, tofu_op_t, link);
        if ((op->peer == peer) && (op->ep != NULL) &&
            (gone || (op->kind == TOFU_OP_FLUSH) || (op->kind == TOFU_OP_FENCE))) {
            tofu_ep_fail(op->ep, status);
        }
    }
    for (link = iface->eps.next; link != &iface->eps; link = link->next) {
        tofu_ep_t *ep = tofu_container(link, tofu_ep_t, eps);
        if ((gone && (ep->peer == peer)) || tofu_ep_uses(ep, peer)) {
            tofu_ep_fail(ep, status);
        }
    }
    if (gone) {
        tofu_am_peer_gone(peer, status, gone != TOFU_SUCCEEDED);
        tofu_peer_abort(peer, status);
    }
}

/* The next record of a port of the line, from *i_p on; NULL: there is none. */
static tofu_peer_t *tofu_line_next(const tofu_peer_t *line, size_t *i_p)
{
    tofu_iface_t *iface = line->iface;
    tofu_peer_t  *peer;

    while ((peer = iface->peers[*i_p]) != NULL) {
        *i_p = (*i_p + 1) & (iface->max_peers - 1);
        if ((peer->vcq_id == line->vcq_id) && (peer->port != 0)) {
            return peer;
        }
    }
    return NULL;
}

void tofu_line_failed(tofu_peer_t *line, tofu_status_t status)
{
    size_t      i = tofu_peer_first(line->iface, line->vcq_id);
    tofu_peer_t *peer;

    while (line->ported && ((peer = tofu_line_next(line, &i)) != NULL)) {
        tofu_peer_failed(peer, status, 1);
    }
    tofu_peer_failed(line, status, 1);
}

void tofu_line_borrowers_gone(tofu_peer_t *line)
{
    size_t      i = tofu_peer_first(line->iface, line->vcq_id);
    tofu_peer_t *peer;

    while (line->ported && ((peer = tofu_line_next(line, &i)) != NULL)) {
        tofu_am_borrower_gone(peer);
    }
    tofu_am_borrower_gone(line);
}

static void tofu_peer_suspect(tofu_peer_t *peer)
{
    peer->iface->suspects += !peer->suspect;
    peer->suspect          = 1;
}

void tofu_line_suspect(tofu_peer_t *line)
{
    size_t      i = tofu_peer_first(line->iface, line->vcq_id);
    tofu_peer_t *peer;

    while (line->ported && ((peer = tofu_line_next(line, &i)) != NULL)) {
        tofu_peer_suspect(peer);
    }
    if (line->geometry != NULL) {
        tofu_peer_suspect(line); /* an iface has, or had, the VCQ for itself */
    }
}

void tofu_suspects_probe(tofu_iface_t *iface)
{
    size_t i;

    for (i = 0; (iface->suspects > 0) && (i < iface->max_peers); ++i) {
        tofu_peer_t *peer = iface->peers[i];
        if ((peer == NULL) || !peer->suspect || peer->probing) {
            continue; /* a probe in flight may have been there before the fault */
        }
        if (tofu_am_probe(peer, peer->scratch, 0, ~0u, 0) ==
            TOFU_ERR_NO_RESOURCE) {
            return; /* the next tick goes on */
        }
        peer->suspect = 0;
        --iface->suspects;
    }
}

void tofu_peer_lost(tofu_peer_t *peer, tofu_status_t status)
{
    if (peer->lost == 0) {
        peer->lost = (int8_t)status;
        ++peer->iface->lost;
        peer->iface->owner->work |= TOFU_WORK_LOST;
    }
}

/* To an iface it was a message, or what keeps account of messages: what comes behind it
 * there would not be understood. */
static void tofu_lane_lost_fail(tofu_iface_t *lane)
{
    size_t i;

    for (i = 0; (lane->lost > 0) && (i < lane->max_peers); ++i) {
        tofu_peer_t *peer = lane->peers[i];
        if ((peer != NULL) && (peer->lost != 0)) {
            tofu_status_t status = (tofu_status_t)peer->lost;
            peer->lost           = 0;
            --lane->lost;
            tofu_am_borrower_retell(peer);
            tofu_peer_failed(peer, status, peer->geometry != NULL);
        }
    }
}

void tofu_lost_fail(tofu_iface_t *iface)
{
    unsigned i;

    iface->work &= ~(uint32_t)TOFU_WORK_LOST;
    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if (iface->lane[i] != NULL) {
            tofu_lane_lost_fail(iface->lane[i]);
        }
    }
}

void tofu_peers_free(tofu_iface_t *iface)
{
    tofu_geometry_node_t *node;
    size_t               i;

    for (i = 0; i < iface->max_peers; ++i) {
        if (iface->peers[i] != NULL) {
            free(iface->peers[i]->chan);
            free(iface->peers[i]);
        }
    }
    free(iface->peers);
    while ((node = iface->geometries) != NULL) {
        iface->geometries = node->next;
        free(node);
    }
}
