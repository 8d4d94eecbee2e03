/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_op.c - operations in flight, and how their completions find them.
 *
 * An operation with a local notice waits in the FIFO of its peer: notices of one
 * (local VCQ, remote VCQ, path) come in post order (2.2.10), so the head is the
 * one that a notice belongs to, and the EDATA checks it.  An error that the TCQ
 * reports takes the place of the notice.  Users are called from progress only:
 * what is found elsewhere waits in iface->done.
 */
#include "tofu_internal.h"
#include "tofu_notice.h"
#include "tofu_am.h"

#include <stdlib.h>

#define TOFU_OP_CHUNK       64u
#define TOFU_TCQ_DRAIN_MAX  256u

int tofu_op_grow(tofu_iface_t *iface)
{
    tofu_op_chunk_t *chunk = calloc(1, sizeof(*chunk) +
                                               TOFU_OP_CHUNK *
                                                       sizeof(chunk->op[0]));
    unsigned        i;

    if (chunk == NULL) {
        return 0;
    }
    chunk->count     = TOFU_OP_CHUNK;
    chunk->next      = iface->op_chunks;
    iface->op_chunks = chunk;
    for (i = 0; i < TOFU_OP_CHUNK; ++i) {
        chunk->op[i].lane = iface;
        chunk->op[i].root = iface->free_ops; /* link of the free ones */
        iface->free_ops   = &chunk->op[i];
    }
    return 1;
}

void tofu_op_free(tofu_op_t *op)
{
    tofu_iface_t *lane = op->lane;

    op->in_use     = 0;
    op->ep         = NULL;
    op->root       = lane->free_ops;
    lane->free_ops = op;
}

void tofu_op_posted(tofu_op_t *op, tofu_peer_t *peer, uint32_t left)
{
    tofu_op_t   *root = (op->root != NULL) ? op->root : op;
    tofu_peer_t *line = tofu_peer_line(peer);

    op->peer               = peer;
    op->left               = left;
    op->edata              = TOFU_EDATA_OP | (line->seq++ & 0x7f);
    op->epoch              = peer->epoch;
    peer->iface->notices  += left;
    ++root->rounds;
    tofu_list_add(&line->fifo, &op->link);
}

void tofu_op_count(tofu_iface_t *iface, tofu_ep_t *ep, tofu_op_t *op)
{
    op->ep     = ep;
    op->sn     = ++iface->sn;
    op->flags |= TOFU_OP_COUNTED;
    ++ep->inflight;
    ++iface->inflight;
}

void tofu_op_defer(tofu_op_t *op)
{
    tofu_iface_t *iface = op->lane->owner;

    tofu_list_add(&iface->done, &op->done);
    iface->work |= TOFU_WORK_DONE;
}

/* Finished; its memory is needed as long as notices are to come. */
static void tofu_op_retire(tofu_op_t *op)
{
    if (op->left > 0) {
        op->flags |= TOFU_OP_RETIRED;
        op->ep     = NULL;
        op->root   = NULL;
    } else {
        tofu_op_free(op);
    }
}

static void tofu_op_wake(tofu_link_t *waiters, uint64_t sn, int8_t *flush_status)
{
    tofu_link_t *link, *next;

    for (link = waiters->next; link != waiters; link = next) {
        tofu_op_t *waiter = tofu_container(link, tofu_op_t, link);
        next              = link->next;
        if ((sn <= waiter->sn) && (--waiter->waiter.count == 0)) {
            waiter->status = (waiter->flags & TOFU_OP_QUIET) ? TOFU_OK : *flush_status;
            *flush_status  = TOFU_OK;
            tofu_list_del(&waiter->link);
            tofu_op_defer(waiter);
        }
    }
}

/* What completing means to the user, or to the core itself. */
static void tofu_op_deliver(tofu_iface_t *iface, tofu_op_t *op)
{
    tofu_completion_t *comp  = op->comp;
    tofu_status_t     status = (tofu_status_t)op->status;

    op->comp = NULL; /* the callback may abandon the ep */
    switch ((tofu_op_kind_t)op->kind) {
    case TOFU_OP_GET_BCOPY:
        if (status == TOFU_OK) {
            op->get.unpack(op->get.arg, op->get.bounce->buffer, op->get.length);
        }
        if (op->left == 0) {
            op->get.bounce->next = iface->bounces;
            iface->bounces       = op->get.bounce;
        } /* else its data may still come: the last notice frees it */
        tofu_completion_update(comp, status);
        break;
    case TOFU_OP_RMA:
    case TOFU_OP_ATOMIC:
    case TOFU_OP_AM_ZCOPY:
    case TOFU_OP_WAITER:
        tofu_completion_update(comp, status);
        break;
    case TOFU_OP_FLUSH:
    case TOFU_OP_FENCE:
        if (op->ep != NULL) {
            --op->ep->fences;
        }
        break;
    case TOFU_OP_CLAIM:
        tofu_chan_claimed(op->peer->chan, op);
        break;
    case TOFU_OP_PROBE:
        tofu_am_probed(op);
        break;
    case TOFU_OP_PART:
        break;
    }
}

void tofu_op_finish(tofu_op_t *op)
{
    tofu_iface_t *iface = op->lane->owner;
    tofu_ep_t    *ep;

    if ((op->status != TOFU_OK) && (op->flags & TOFU_OP_COUNTED) &&
        ((op->ep != NULL) || (op->status != TOFU_ERR_CANCELED))) {
        /* what went with its ep is nobody's failure */
        if (iface->flush_status == TOFU_OK) {
            iface->flush_status = op->status;
        }
        if ((op->ep != NULL) && (op->ep->flush_status == TOFU_OK)) {
            op->ep->flush_status = op->status;
        }
    }
    /* The user's callback may destroy the ep (then op->ep is NULL after it) and
     * may call progress; the op itself is in no list meanwhile. */
    tofu_op_deliver(iface, op);
    ep = op->ep;
    if (op->flags & TOFU_OP_COUNTED) {
        --iface->inflight;
        if (ep != NULL) {
            --ep->inflight;
            if (!tofu_list_empty(&ep->waiters)) {
                tofu_op_wake(&ep->waiters, op->sn, &ep->flush_status);
            }
        }
        if (!tofu_list_empty(&iface->waiters)) {
            tofu_op_wake(&iface->waiters, op->sn, &iface->flush_status);
        }
    }
    tofu_op_retire(op);
}

/* One round of it is over.  in_progress: users may be called now. */
static void tofu_op_round_done(tofu_op_t *op, int in_progress)
{
    tofu_op_t *root = (op->root != NULL) ? op->root : op;

    if ((op != root) && (op->status != TOFU_OK) && (root->status == TOFU_OK)) {
        root->status = op->status;
    }
    if (op != root) {
        tofu_op_retire(op);
    }
    if ((--root->rounds > 0) || (root->flags & TOFU_OP_MORE)) {
        return;
    }
    if (in_progress) {
        tofu_op_finish(root);
    } else {
        tofu_op_defer(root);
    }
}

void tofu_op_notice(tofu_iface_t *iface, tofu_op_t *op, tofu_status_t status,
                    int in_progress)
{
    if (TOFU_UNLIKELY((status != TOFU_OK) && (op->status == TOFU_OK))) {
        op->status = (int8_t)status;
    }
    --iface->notices;
    if (--op->left > 0) {
        return;
    }
    tofu_list_del(&op->link);
    if (TOFU_LIKELY(!(op->flags & TOFU_OP_ZOMBIE))) {
        tofu_op_round_done(op, in_progress);
    } else if (op->flags & TOFU_OP_RETIRED) {
        if (op->kind == TOFU_OP_GET_BCOPY) {
            op->get.bounce->next = iface->bounces;
            iface->bounces       = op->get.bounce;
        }
        tofu_op_free(op);
    } /* else it is in iface->done, which frees it */
}

void tofu_op_cut(tofu_iface_t *iface, tofu_op_t *op, tofu_status_t status)
{
    op->flags &= (uint8_t)~TOFU_OP_MORE;
    if (op->status == TOFU_OK) {
        op->status = (int8_t)status;
    }
    if (op->kind == TOFU_OP_RMA) {
        free(op->rma.cursor);
        free(op->rma.stripe);
        op->rma.cursor = NULL;
        op->rma.stripe = NULL;
    } else if (op->kind == TOFU_OP_AM_ZCOPY) {
        tofu_am_early_done(iface, op);
        op->am.bounce->next = iface->bounces;
        iface->bounces      = op->am.bounce;
    }
    if (op->rounds == 0) {
        tofu_op_defer(op);
    }
}

void tofu_peer_abort(tofu_peer_t *peer, tofu_status_t status)
{
    tofu_link_t *head = &tofu_peer_line(peer)->fifo;
    tofu_link_t *link;

    for (link = head->next; link != head; link = link->next) {
        tofu_op_t *op = tofu_container(link, tofu_op_t, link);
        if ((op->peer != peer) || (op->flags & TOFU_OP_ZOMBIE)) {
            continue;
        }
        op->flags |= TOFU_OP_ZOMBIE;
        if (op->status == TOFU_OK) {
            op->status = (int8_t)status;
        }
        tofu_op_round_done(op, 0);
    }
}

/* The head is not what the notice says.  What is left of operations that were
 * given up is passed over: their notices may never come. */
static tofu_op_t *tofu_op_resync(tofu_peer_t *line, uint64_t edata)
{
    tofu_iface_t *iface = line->iface;

    while (!tofu_list_empty(&line->fifo)) {
        tofu_op_t *op = tofu_container(line->fifo.next, tofu_op_t, link);
        if (op->edata == edata) {
            return op;
        }
        if (!(op->flags & TOFU_OP_ZOMBIE)) {
            break;
        }
        while (op->left > 1) {
            tofu_op_notice(iface, op, TOFU_OK, 0);
        }
        tofu_op_notice(iface, op, TOFU_OK, 0);
    }
    return NULL;
}

/* The VCQ is there, and what was to be reached is not. */
static int tofu_op_not_there(int code)
{
    return (code == UTOFU_ERR_MRQ_RMT_STADD) || (code == UTOFU_ERR_MRQ_RMT_LENGTH) ||
           (code == UTOFU_ERR_MRQ_RMT_MEMORY);
}

/* What was posted without a local notice, and failed. */
static void tofu_op_unnoticed(tofu_peer_t *line, uint64_t edata,
                              tofu_status_t status, int code)
{
    int gone    = (code == UTOFU_ERR_MRQ_PEER);
    int message = (edata != TOFU_EDATA_USER) && (edata != TOFU_EDATA_CONTROL);
    /* they have another STag than those of an iface that is not there any more */
    int slots = message && (code == UTOFU_ERR_MRQ_RMT_STADD);

    if (message && (gone || slots) && (line->ported || (line->epoch > 1))) {
        /* This may have been for the iface that had the VCQ before the one that has it now:
         * a probe asks that one. */
        tofu_line_suspect(line);
        return;
    }
    if (edata == TOFU_EDATA_USER) {
        if (gone) {
            tofu_line_failed(line, status);
        } else {
            tofu_peer_failed(line, status, 0); /* no port: it was to an md's memory */
        }
    } else if (line->ported && !gone) {
        tofu_line_suspect(line);
    } else if (slots) {
        /* Another iface has the VCQ: what that one was lent of ours stays its own. */
        tofu_peer_failed(line, TOFU_ERR_ENDPOINT_TIMEOUT, TOFU_SUCCEEDED);
    } else if (message) {
        tofu_line_failed(line, status);
    } else if (gone || tofu_op_not_there(code)) {
        /* It was for a sender that is not there any more, perhaps after an orderly
         * end.  No ep of ours had a part in it. */
        tofu_line_borrowers_gone(line);
    } else {
        /* The sender may be there and write to the slots that it has. */
        tofu_am_borrower_retell(line);
    }
}

void tofu_op_mrq(tofu_iface_t *iface, const struct utofu_mrq_notice *notice,
                 int code, int in_progress)
{
    tofu_status_t status = TOFU_OK;
    tofu_peer_t   *line  = iface->last_line;
    tofu_peer_t   *peer;
    tofu_op_t     *op;
    int           gone, port_gone, other = 0;

    if (TOFU_UNLIKELY((line == NULL) || (line->vcq_id != notice->vcq_id))) {
        line = tofu_peer_find(iface, notice->vcq_id, 0);
        if (line == NULL) {
            tofu_iface_drop(iface, TOFU_LOGGED_NOTICE,
                            "a local notice names a VCQ that was never used",
                            notice->vcq_id);
            return;
        }
        iface->last_line = line;
    }
    if (TOFU_UNLIKELY(code != UTOFU_SUCCESS)) {
        status = tofu_status_from_code(code);
        tofu_debug("operation from VCQ %#llx to VCQ %#llx: %s",
                   (unsigned long long)iface->vcq_id,
                   (unsigned long long)line->vcq_id, tofu_code_name(code));
        if (!(notice->edata & TOFU_EDATA_OP)) {
            tofu_op_unnoticed(line, notice->edata, status, code);
            return;
        }
    }

    op = tofu_container(line->fifo.next, tofu_op_t, link);
    if (TOFU_UNLIKELY(tofu_list_empty(&line->fifo) ||
                      (op->edata != notice->edata))) {
        /* those before it may have ended in the TCQ */
        while (tofu_tcq_drain(iface) > 0) {
        }
        op = tofu_op_resync(line, notice->edata);
        if (op == NULL) {
            tofu_iface_drop(iface, TOFU_LOGGED_MISMATCH,
                            "a local notice fits no operation in flight",
                            notice->vcq_id);
            tofu_line_failed(line, TOFU_ERR_IO_ERROR);
            return;
        }
    }
    peer = op->peer;
    /* What goes to a port goes to memory of the core's own: if it is not there, the
     * iface isn't, though its VCQ is. */
    port_gone = (peer->port != 0) && tofu_op_not_there(code);
    if (TOFU_UNLIKELY(port_gone)) {
        status = TOFU_ERR_ENDPOINT_TIMEOUT;
    }
    if (code == UTOFU_SUCCESS) {
        if ((op->kind == TOFU_OP_ATOMIC) && !(op->flags & TOFU_OP_ZOMBIE) &&
            (op->status == TOFU_OK)) { /* else nobody waits for it any more */
            tofu_amo_result(op, notice->rmt_value);
        } else if (op->kind == TOFU_OP_CLAIM) {
            op->claim.old_value = notice->rmt_value;
        } else if (TOFU_UNLIKELY((op->kind == TOFU_OP_PROBE) && (op->probe.nonce != 0))) {
            tofu_am_holder_is(op, notice->rmt_value);
        } else if (TOFU_UNLIKELY(op->flags & TOFU_OP_ASKS) &&
                   tofu_peer_is_other(op, notice->rmt_value)) {
            /* What was sent before went to who has the VCQ now, and is lost.  A probe has
             * no more to say than that. */
            other  = 1;
            status = (op->kind == TOFU_OP_PROBE) ? TOFU_OK :
                                                   TOFU_ERR_ENDPOINT_TIMEOUT;
        }
    }
    /* A callback may close nothing but eps, so peer stays.  That an earlier iface
     * with the VCQ ID was gone says nothing about the one that is there now. */
    gone = (port_gone || (code == UTOFU_ERR_MRQ_PEER)) &&
           (op->epoch == peer->epoch) &&
           !((op->kind == TOFU_OP_PROBE) && op->probe.borrower);
    if (TOFU_UNLIKELY(gone || other) && (op->ep != NULL)) {
        /* a flush forgot the targets of its ep when it was posted, so the peer
         * does not lead to the ep any more */
        tofu_ep_fail(op->ep, status);
    }
    tofu_op_notice(iface, op, status, in_progress);
    if (TOFU_UNLIKELY(gone)) {
        if (port_gone) {
            tofu_peer_failed(peer, status, 1);
        } else {
            tofu_line_failed(line, status);
        }
    } else if (TOFU_UNLIKELY(other)) {
        tofu_peer_failed(peer, TOFU_ERR_ENDPOINT_TIMEOUT, TOFU_SUCCEEDED);
    }
}

static void tofu_tcq_entry(tofu_iface_t *iface, void *cbdata, int code)
{
    tofu_status_t status = (code == UTOFU_SUCCESS) ?
                                   TOFU_OK :
                                   tofu_status_from_code(code);
    uintptr_t     value  = (uintptr_t)cbdata & ~(uintptr_t)TOFU_CB_MASK;
    tofu_bounce_t *bounce;
    tofu_op_t     *op;

    if (status != TOFU_OK) {
        tofu_error("operation from VCQ %#llx was not sent: %s",
                   (unsigned long long)iface->vcq_id, tofu_code_name(code));
    }
    switch ((uintptr_t)cbdata & TOFU_CB_MASK) {
    case TOFU_CB_BOUNCE:
        bounce         = (tofu_bounce_t *)value;
        bounce->next   = iface->bounces;
        iface->bounces = bounce;
        --iface->tcq_wait;
        if (status != TOFU_OK) {
            tofu_peer_lost(bounce->peer, status);
        }
        break;
    case TOFU_CB_PEER:
        if (status != TOFU_OK) {
            tofu_peer_lost((tofu_peer_t *)value, status);
        }
        break;
    default:
        op = (tofu_op_t *)value;
        if (op->kind == TOFU_OP_AM_ZCOPY) {
            op->am.bounce->next = iface->bounces;
            iface->bounces      = op->am.bounce;
            --iface->tcq_wait;
            --iface->tcq_due;
            if (op->status == TOFU_OK) { /* else it is its user's, who took it back */
                op->status = (int8_t)status;
            }
            if (status != TOFU_OK) {
                tofu_peer_lost(op->peer, status); /* a message is */
            }
            tofu_op_round_done(op, 0);
        } else if (status != TOFU_OK) {
            tofu_op_notice(iface, op, status, 0);
        }
    }
}

/* The next entry of the TCQ; 0: there is none, or none can be read. */
static int tofu_tcq_next(tofu_iface_t *iface)
{
    void *cbdata;
    int  code = iface->fn.poll_tcq(iface->vcq, 0, &cbdata);

    if (code == UTOFU_ERR_NOT_FOUND) {
        iface->posts_seen = iface->posts;
        return 0;
    }
    if (!tofu_is_tcq_result(code)) {
        tofu_iface_fatal(iface, "utofu_poll_tcq", code);
        return 0;
    }
    ++iface->stats.tcq_entries;
    tofu_tcq_entry(iface, cbdata, code);
    return 1;
}

unsigned tofu_tcq_drain(tofu_iface_t *iface)
{
    unsigned count = 0;

    while ((count < TOFU_TCQ_DRAIN_MAX) && tofu_tcq_next(iface)) {
        ++count;
    }
    return count;
}

unsigned tofu_tcq_reap(tofu_iface_t *iface)
{
    unsigned count = 0;

    while ((iface->tcq_wait > 0) && (count < TOFU_TCQ_DRAIN_MAX) &&
           tofu_tcq_next(iface)) {
        ++count;
    }
    return count;
}

tofu_status_t tofu_op_wait(tofu_iface_t *iface, tofu_ep_t *ep, int quiet,
                           tofu_completion_t *comp)
{
    tofu_op_t *op;

    if (comp == NULL) {
        return TOFU_INPROGRESS;
    }
    op = tofu_op_alloc(iface, TOFU_OP_WAITER);
    if (op == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    op->comp         = comp;
    op->ep           = ep;
    op->flags        = quiet ? TOFU_OP_QUIET : 0;
    op->sn           = iface->sn;
    op->waiter.count = (ep != NULL) ? ep->inflight : iface->inflight;
    tofu_list_add((ep != NULL) ? &ep->waiters : &iface->waiters, &op->link);
    return TOFU_INPROGRESS;
}

static void tofu_lane_spoil_ep(tofu_iface_t *iface, const tofu_ep_t *ep,
                               tofu_status_t status)
{
    tofu_op_chunk_t *chunk;
    unsigned        i;

    for (chunk = iface->op_chunks; chunk != NULL; chunk = chunk->next) {
        for (i = 0; i < chunk->count; ++i) {
            tofu_op_t *op = &chunk->op[i];
            if (op->in_use && (op->ep == ep) && (op->status == TOFU_OK)) {
                op->status = (int8_t)status;
            }
        }
    }
}

void tofu_ops_spoil_ep(tofu_iface_t *iface, const tofu_ep_t *ep,
                       tofu_status_t status)
{
    unsigned i;

    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if (iface->lane[i] != NULL) {
            tofu_lane_spoil_ep(iface->lane[i], ep, status);
        }
    }
}

static void tofu_lane_forget_ep(tofu_iface_t *iface, tofu_ep_t *ep)
{
    tofu_op_chunk_t *chunk;
    unsigned        i;

    for (chunk = iface->op_chunks; chunk != NULL; chunk = chunk->next) {
        for (i = 0; i < chunk->count; ++i) {
            if (chunk->op[i].in_use && (chunk->op[i].ep == ep)) {
                chunk->op[i].ep = NULL;
            }
        }
    }
}

void tofu_ops_forget_ep(tofu_iface_t *iface, tofu_ep_t *ep)
{
    tofu_op_t *op;
    unsigned  i;

    while (!tofu_list_empty(&ep->waiters)) {
        op         = tofu_container(ep->waiters.next, tofu_op_t, link);
        op->status = TOFU_ERR_CANCELED;
        tofu_list_del(&op->link);
        tofu_op_finish(op); /* now: its user may be gone later */
    }
    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if (iface->lane[i] != NULL) {
            tofu_lane_forget_ep(iface->lane[i], ep);
        }
    }
}

/* The iface (or lane) is being closed: nothing comes any more. */
void tofu_ops_cancel(tofu_iface_t *iface)
{
    tofu_iface_t *owner = iface->owner;
    size_t       i;

    for (i = 0; i < iface->max_peers; ++i) {
        if (iface->peers[i] != NULL) {
            tofu_peer_abort(iface->peers[i], TOFU_ERR_CANCELED);
        }
    }
    for (;;) {
        tofu_op_chunk_t *chunk;
        tofu_op_t       *op;

        while (!tofu_list_empty(&owner->done)) {
            op = tofu_container(owner->done.next, tofu_op_t, done);
            tofu_list_del(&op->done);
            tofu_op_finish(op);
        }
        /* those that wait for the TCQ, and flushes that wait for nothing */
        op = NULL;
        for (chunk = iface->op_chunks; (chunk != NULL) && (op == NULL);
             chunk = chunk->next) {
            for (i = 0; i < chunk->count; ++i) {
                if (chunk->op[i].in_use &&
                    !(chunk->op[i].flags & TOFU_OP_RETIRED)) {
                    op = &chunk->op[i];
                    break;
                }
            }
        }
        if (op == NULL) {
            return;
        }
        if (op->kind == TOFU_OP_WAITER) {
            tofu_list_del(&op->link);
        }
        op->status = TOFU_ERR_CANCELED;
        tofu_op_finish(op);
    }
}

void tofu_ops_free(tofu_iface_t *iface)
{
    tofu_op_chunk_t *chunk;

    while ((chunk = iface->op_chunks) != NULL) {
        iface->op_chunks = chunk->next;
        free(chunk);
    }
}

tofu_status_t TOFU_NOINLINE tofu_post_error(tofu_iface_t *iface,
                                            const char *call, int code,
                                            utofu_vcq_id_t vcq_id,
                                            size_t length)
{
    tofu_error("%s(%zu bytes) from VCQ %#llx to VCQ %#llx: %s", call, length,
               (unsigned long long)iface->vcq_id, (unsigned long long)vcq_id,
               tofu_code_name(code));
    return tofu_status_from_code(code);
}
