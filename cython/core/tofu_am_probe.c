/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_probe.c - does a peer live, and is it still who it was?  Asked of those that hold
 * slots, or say nothing.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

/* The record of a probe, or why there can be none now. */
static tofu_status_t tofu_probe_alloc(tofu_peer_t *peer, tofu_op_t **op_p)
{
    tofu_op_t *op = tofu_am_internal_room(peer->iface->am) ?
                            tofu_op_alloc(peer->iface, TOFU_OP_PROBE) : NULL;

    if (op == NULL) {
        return TOFU_ERR_NO_RESOURCE;
    }
    op->probe.entry    = ~0u;
    op->probe.nonce    = 0;
    op->probe.borrower = 1;
    *op_p = op;
    return TOFU_OK;
}

/* It was posted, or not. */
static tofu_status_t tofu_probe_posted(tofu_peer_t *peer, tofu_op_t *op,
                                       tofu_status_t status)
{
    int borrower = op->probe.borrower;

    if (status != TOFU_OK) {
        tofu_op_free(op);
        if (status != TOFU_ERR_NO_RESOURCE) {
            if (borrower) {
                tofu_am_borrower_gone(peer);
            } else {
                tofu_peer_failed(peer, status, 1);
            }
        }
        return status;
    }
    tofu_op_posted(op, peer, 1);
    ++peer->iface->am->internal;
    ++peer->iface->stats.credit_tx;
    peer->probing = 1;
    return TOFU_OK;
}

tofu_status_t tofu_am_probe(tofu_peer_t *peer, utofu_stadd_t where,
                            uint64_t word, uint32_t entry, int borrower)
{
    tofu_iface_t  *iface = peer->iface;
    tofu_status_t status;
    tofu_op_t     *op;

    if (peer->probing) {
        return TOFU_OK;
    }
    status = tofu_probe_alloc(peer, &op);
    if (status != TOFU_OK) {
        return status;
    }
    op->probe.entry    = entry;
    op->probe.borrower = (uint8_t)borrower;
    if (borrower) {
        status = tofu_post(iface, "utofu_put_piggyback8", peer->vcq_id, 8,
                           iface->fn.put_piggyback8(
                                   iface->vcq, peer->vcq_id, word, where, 8,
                                   tofu_peer_edata(peer),
                                   UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                           UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                   tofu_cbdata(op, TOFU_CB_OP)));
    } else {
        status = tofu_peer_ask(peer, peer->vcq_id, op);
    }
    return tofu_probe_posted(peer, op, status);
}

tofu_status_t tofu_am_ask_holder(tofu_lender_t *lender)
{
    tofu_peer_t   *peer  = lender->peer;
    tofu_iface_t  *iface = peer->iface;
    utofu_stadd_t table;
    tofu_status_t status;
    tofu_op_t     *op;

    if (peer->probing) {
        return TOFU_OK;
    }
    status = tofu_probe_alloc(peer, &op);
    if (status != TOFU_OK) {
        return status;
    }
    op->probe.nonce = lender->nonce;
    status = tofu_status_from_code(tofu_peer_stadd(iface, peer->vcq_id, peer->port,
                                                   TOFU_STAG_REQUEST, &table));
    if (status == TOFU_OK) {
        /* 0 for 0, as in tofu_peer_ask */
        status = tofu_post(iface, "utofu_cswap8", peer->vcq_id, 8,
                           iface->fn.cswap8(
                                   iface->vcq, peer->vcq_id, 0, 0,
                                   table + TOFU_IDENTITY_OFFSET,
                                   tofu_peer_edata(peer),
                                   UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                           UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                   tofu_cbdata(op, TOFU_CB_OP)));
    }
    return tofu_probe_posted(peer, op, status);
}

void tofu_am_holder_is(const tofu_op_t *op, uint64_t identity)
{
    tofu_lender_t *lender = op->peer->lender;

    /* What is no identity was written by somebody who should not, and tells nothing. */
    if ((lender != NULL) && (lender->nonce == op->probe.nonce) &&
        (identity != tofu_identity(lender->incarnation)) &&
        (identity == tofu_identity((uint32_t)identity))) {
        tofu_lender_gone(lender); /* not who asks now in its place: see tofu_am_borrower_gone */
    }
}

void tofu_am_probed(tofu_op_t *op)
{
    tofu_peer_t *peer  = op->peer;
    tofu_am_t   *am    = peer->iface->am;
    uint32_t    entry  = op->probe.entry;
    uint64_t    mine   = tofu_claim(peer->vcq_id, peer->port);

    --am->internal;
    peer->probing = 0;
    if (op->status == TOFU_OK) {
        return;
    }
    if ((op->status == TOFU_ERR_CANCELED) || (op->epoch != peer->epoch)) {
        return;
    }
    /* dead, or no scratch page or mailbox there: not a VCQ of ours any more */
    if (!op->probe.borrower) {
        tofu_peer_failed(peer, (tofu_status_t)op->status, 1);
        return;
    }
    if ((op->status != TOFU_ERR_ENDPOINT_TIMEOUT) && (peer->lender != NULL)) {
        /* It may live, and write to the slots that it has.  If not, or if another has its VCQ, what
         * it is told now meets that. */
        tofu_am_borrower_retell(peer);
        return;
    }
    /* not if it was freed since: the claim may be a successor's by now */
    if ((entry < TOFU_REQUEST_ENTRIES) && am->claim_probed[entry] &&
        (atomic_load(&am->table[entry].claim) == mine)) {
        tofu_am_entry_free(am, entry);
    }
    tofu_am_borrower_gone(peer);
}
