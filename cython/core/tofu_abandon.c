/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_abandon.c - the end of an ep whose user will not be there later.
 *
 * UCP frees what its completions belong to soon after it has destroyed an
 * endpoint, so UCT wants them called before that returns.  The records of the
 * operations stay, without a user, until their notices have come.
 */
#include "tofu_internal.h"

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

    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if (ep->iface->lane[i] != NULL) {
            tofu_lane_abandon(ep->iface->lane[i], ep);
        }
    }
    tofu_ep_destroy(ep);
}
