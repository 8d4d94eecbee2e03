/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_abandon.c - the end of an ep whose user will not be there later.
 *
 * UCP frees what its completions belong to soon after it has destroyed an
 * endpoint, so UCT wants them called before that returns.  The records of the
 * operations stay, without a user, until their notices have come.
 *
 * A buffer of the user that a network interface still reads or writes must not be free
 * by then, and nothing can take an operation back.  So what is on the wire is waited for
 * first.  No user is called meanwhile: completions of others wait in iface->done, and
 * notices that are no completions stay for progress.
 */
#include "tofu_internal.h"
#include "tofu_notice.h"

#include <time.h>

#define TOFU_SETTLE_MS    1000u /* longer than any transfer takes; a peer that stopped has no part in it */
#define TOFU_UNSETTLED_MS (10 * TOFU_SETTLE_MS)
#define TOFU_SETTLE_POLLS 64u   /* between looks at the clock */

/* Is a buffer of the ep's user in use by something that the lane posted? */
static int tofu_lane_uses(const tofu_iface_t *lane, const tofu_ep_t *ep)
{
    const tofu_op_chunk_t *chunk;
    unsigned              i;

    for (chunk = lane->op_chunks; chunk != NULL; chunk = chunk->next) {
        for (i = 0; i < chunk->count; ++i) {
            const tofu_op_t *op = &chunk->op[i];

            if (op->in_use && (op->ep == ep) && (op->rounds > 0) &&
                ((op->kind == TOFU_OP_RMA) || (op->kind == TOFU_OP_AM_ZCOPY))) {
                return 1;
            }
        }
    }
    return 0;
}

static int tofu_ep_settled(const tofu_ep_t *ep)
{
    unsigned i;

    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if ((ep->iface->lane[i] != NULL) && tofu_lane_uses(ep->iface->lane[i], ep)) {
            return 0;
        }
    }
    return 1;
}

static int tofu_is_completion(const struct utofu_mrq_notice *notice, int code)
{
    return tofu_is_mrq_result(code) && tofu_is_local_notice(notice);
}

/* Completions that are there; 0: there is no memory to leave others to progress, or the
 * VCQ is of no use any more. */
static int tofu_lane_collect(tofu_iface_t *lane)
{
    struct utofu_mrq_notice notice;
    tofu_mrq_entry_t        entry;
    unsigned                i;

    tofu_tcq_drain(lane);
    if ((lane->stashed & TOFU_STASHED) &&
        tofu_is_completion(&lane->stash.notice, lane->stash.code)) {
        entry.code = tofu_stash_take(lane, &notice);
        tofu_op_mrq(lane, &notice, entry.code, 0);
    }
    for (i = 0; i < TOFU_SETTLE_POLLS; ++i) {
        if (!tofu_queue_room(&lane->kept) || lane->owner->fatal) {
            return 0;
        }
        entry.code = lane->fn.poll_mrq(lane->vcq, 0, &entry.notice);
        if (entry.code == UTOFU_ERR_NOT_FOUND) {
            break;
        }
        if (tofu_is_completion(&entry.notice, entry.code)) {
            tofu_op_mrq(lane, &entry.notice, entry.code, 0);
        } else {
            tofu_queue_push(&lane->kept, &entry);
            lane->stashed |= TOFU_STASH_MORE;
            tofu_lane_posted(lane); /* so that progress looks there */
        }
    }
    return 1;
}

/* Where one ep waited in vain (a node that is gone, before the library says so), those
 * after it would for as long, one by one: for a while they look, and don't wait. */
static void tofu_ep_settle(tofu_ep_t *ep)
{
    tofu_iface_t    *iface = ep->iface;
    struct timespec now;
    uint64_t        ms, end = 0;
    unsigned        i;

    while (!tofu_ep_settled(ep)) {
        for (i = 0; i < TOFU_MAX_TNIS; ++i) {
            if ((iface->lane[i] != NULL) && !tofu_lane_collect(iface->lane[i])) {
                return;
            }
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        ms  = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
        end = (end == 0) ? ms + TOFU_SETTLE_MS : end;
        if ((iface->unsettled_ms != 0) &&
            (ms - iface->unsettled_ms < TOFU_UNSETTLED_MS)) {
            return;
        }
        if (ms >= end) {
            tofu_warn("ep %p to VCQ %#llx is destroyed, and %u ms later buffers of its "
                      "operations are still in use", (void *)ep,
                      (unsigned long long)ep->peer->vcq_id, TOFU_SETTLE_MS);
            iface->unsettled_ms = ms;
            return;
        }
    }
}

static void tofu_lane_abandon(const tofu_iface_t *lane, const tofu_ep_t *ep)
{
    tofu_op_chunk_t *chunk;
    unsigned        i;

    for (chunk = lane->op_chunks; chunk != NULL; chunk = chunk->next) {
        for (i = 0; i < chunk->count; ++i) {
            tofu_op_t         *op   = &chunk->op[i];
            tofu_completion_t *comp = op->comp;

            if (!op->in_use || (op->ep != ep)) {
                continue;
            }
            if ((op->status == TOFU_OK) &&
                ((comp != NULL) || (op->kind == TOFU_OP_GET_BCOPY) ||
                 (op->kind == TOFU_OP_ATOMIC))) {
                op->status = TOFU_ERR_CANCELED; /* and no data for the user */
            }
            if (comp != NULL) {
                op->comp = NULL;
                tofu_completion_update(comp, (tofu_status_t)op->status);
            }
        }
    }
}

void tofu_ep_abandon(tofu_ep_t *ep)
{
    unsigned i;

    if ((ep->more != NULL) && !(ep->more->flags & TOFU_OP_EARLY)) {
        tofu_op_cut(ep->iface, ep->more, TOFU_ERR_CANCELED);
        ep->more   = NULL;
        ep->flags &= (uint8_t)~TOFU_EP_MORE;
    }
    if (ep->inflight > 0) {
        tofu_ep_settle(ep);
    }
    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if (ep->iface->lane[i] != NULL) {
            tofu_lane_abandon(ep->iface->lane[i], ep);
        }
    }
    tofu_ep_destroy(ep);
}
