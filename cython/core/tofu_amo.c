/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_amo.c - atomic operations.  utofu_armw* are atomic also against atomic
 * instructions of the target's CPUs (2.2.5).
 */
#include "tofu_internal.h"

/* -1: no such operation in utofu.h */
static int tofu_amo_armw_op(tofu_atomic_op_t op)
{
    switch (op) {
    case TOFU_ATOMIC_ADD:
        return UTOFU_ARMW_OP_ADD;
    case TOFU_ATOMIC_AND:
        return UTOFU_ARMW_OP_AND;
    case TOFU_ATOMIC_OR:
        return UTOFU_ARMW_OP_OR;
    case TOFU_ATOMIC_XOR:
        return UTOFU_ARMW_OP_XOR;
    case TOFU_ATOMIC_SWAP:
        return UTOFU_ARMW_OP_SWAP;
    case TOFU_ATOMIC_CSWAP:
        break;
    }
    return -1;
}

/* Checks of every atomic operation; after it the target is ep->rma_peer. */
static tofu_status_t tofu_amo_enter(tofu_ep_t *ep, unsigned size,
                                    uint64_t remote_addr,
                                    const tofu_rkey_t *rkey)
{
    if (TOFU_UNLIKELY(((size != 4) && (size != 8)) ||
                      (remote_addr & (size - 1)))) {
        tofu_error("an atomic of %u bytes at %#llx: size must be 4 or 8, the "
                   "address a multiple of it", size,
                   (unsigned long long)remote_addr);
        return TOFU_ERR_INVALID_PARAM;
    }
    if (TOFU_UNLIKELY(!tofu_range_ok(remote_addr - rkey->base, size,
                                     rkey->wr_length))) {
        tofu_error("an atomic of %u bytes at %#llx: the rkey covers %llu bytes "
                   "at %#llx%s", size, (unsigned long long)remote_addr,
                   (unsigned long long)rkey->length,
                   (unsigned long long)rkey->base,
                   (rkey->wr_length == 0) ? ", read-only" : "");
        return TOFU_ERR_OUT_OF_RANGE;
    }
    return TOFU_LIKELY(tofu_ep_rma_ready(ep, rkey)) ?
                   TOFU_OK :
                   tofu_ep_enter_rma(ep, rkey);
}

static inline tofu_status_t tofu_amo_armw(tofu_ep_t *ep, int armw_op,
                                          unsigned size, uint64_t value,
                                          utofu_stadd_t remote, unsigned edata,
                                          unsigned long flags, void *cbdata)
{
    tofu_iface_t *iface = ep->iface;

    flags |= TOFU_SHORT_ORDER;
    if (size == 8) {
        return tofu_post(iface, "utofu_armw8", ep->rma_vcq, size,
                         iface->fn.armw8(iface->vcq, ep->rma_vcq,
                                         (enum utofu_armw_op)armw_op, value,
                                         remote, edata, flags, cbdata));
    }
    return tofu_post(iface, "utofu_armw4", ep->rma_vcq, size,
                     iface->fn.armw4(iface->vcq, ep->rma_vcq,
                                     (enum utofu_armw_op)armw_op,
                                     (uint32_t)value, remote, edata, flags,
                                     cbdata));
}

tofu_status_t tofu_ep_atomic_post(tofu_ep_t *ep, tofu_atomic_op_t op,
                                  unsigned size, uint64_t value,
                                  uint64_t remote_addr,
                                  const tofu_rkey_t *rkey)
{
    int           armw_op = tofu_amo_armw_op(op);
    tofu_status_t status;

    if (TOFU_UNLIKELY((armw_op < 0) || (op == TOFU_ATOMIC_SWAP))) {
        tofu_error("atomic_post of operation %d", (int)op);
        return TOFU_ERR_UNSUPPORTED;
    }
    status = tofu_amo_enter(ep, size, remote_addr, rkey);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return status;
    }
    status = tofu_amo_armw(ep, armw_op, size, value,
                           rkey->stadd + (remote_addr - rkey->base),
                           TOFU_EDATA_USER, 0,
                           tofu_cbdata(ep->rma_peer, TOFU_CB_PEER));
    return TOFU_UNLIKELY(status == TOFU_ERR_NO_RESOURCE) ?
                   tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                   status;
}

static inline __attribute__((always_inline)) tofu_status_t
tofu_amo_begin(tofu_ep_t *ep, unsigned size, void *result,
                                    uint64_t remote_addr,
                                    const tofu_rkey_t *rkey,
                                    tofu_completion_t *comp, tofu_op_t **op_p)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_status_t status;
    tofu_op_t     *op;

    status = tofu_amo_enter(ep, size, remote_addr, rkey);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return status;
    }
    if (TOFU_UNLIKELY(!tofu_op_room(iface, 1))) {
        return tofu_ep_starve(ep, TOFU_STARVED_OP);
    }
    op = tofu_op_alloc(iface, TOFU_OP_ATOMIC);
    if (TOFU_UNLIKELY(op == NULL)) {
        return TOFU_ERR_NO_MEMORY;
    }
    op->comp          = comp;
    op->atomic.result = result;
    op->atomic.size   = (uint8_t)size;
    *op_p             = op;
    return TOFU_OK;
}

static inline tofu_status_t tofu_amo_end(tofu_ep_t *ep, tofu_op_t *op,
                                  tofu_status_t status)
{
    tofu_iface_t *iface = ep->iface;
    uint64_t     old_value;

    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        tofu_op_free(op);
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                       status;
    }
    if (tofu_op_early(iface, ep->rma_peer,
                      tofu_peer_edata(ep->rma_peer), &old_value)) {
        tofu_amo_result(op, old_value);
        tofu_op_free(op);
        return TOFU_OK;
    }
    tofu_op_posted(op, ep->rma_peer, 1);
    tofu_op_count(iface, ep, op);
    return TOFU_INPROGRESS;
}

tofu_status_t tofu_ep_atomic_fetch(tofu_ep_t *ep, tofu_atomic_op_t op,
                                   unsigned size, uint64_t value, void *result,
                                   uint64_t remote_addr,
                                   const tofu_rkey_t *rkey,
                                   tofu_completion_t *comp)
{
    int           armw_op = tofu_amo_armw_op(op);
    tofu_status_t status;
    tofu_op_t     *record;

    if (TOFU_UNLIKELY(armw_op < 0)) {
        tofu_error("atomic_fetch of operation %d", (int)op);
        return TOFU_ERR_UNSUPPORTED;
    }
    status = tofu_amo_begin(ep, size, result, remote_addr, rkey, comp, &record);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return status;
    }
    status = tofu_amo_armw(ep, armw_op, size, value,
                           rkey->stadd + (remote_addr - rkey->base),
                           tofu_peer_edata(ep->rma_peer),
                           UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                           tofu_cbdata(record, TOFU_CB_OP));
    return tofu_amo_end(ep, record, status);
}

tofu_status_t tofu_ep_atomic_cswap(tofu_ep_t *ep, unsigned size,
                                   uint64_t compare, uint64_t swap,
                                   void *result, uint64_t remote_addr,
                                   const tofu_rkey_t *rkey,
                                   tofu_completion_t *comp)
{
    tofu_iface_t  *iface = ep->iface;
    utofu_stadd_t remote = rkey->stadd + (remote_addr - rkey->base);
    unsigned long flags  = TOFU_SHORT_ORDER |
                          UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    tofu_status_t status;
    tofu_op_t     *op;
    unsigned      edata;
    void          *cbdata;

    status = tofu_amo_begin(ep, size, result, remote_addr, rkey, comp, &op);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return status;
    }
    edata  = tofu_peer_edata(ep->rma_peer);
    cbdata = tofu_cbdata(op, TOFU_CB_OP);
    if (size == 8) {
        status = tofu_post(iface, "utofu_cswap8", ep->rma_vcq, size,
                           iface->fn.cswap8(iface->vcq, ep->rma_vcq, compare,
                                            swap, remote, edata, flags,
                                            cbdata));
    } else {
        status = tofu_post(iface, "utofu_cswap4", ep->rma_vcq, size,
                           iface->fn.cswap4(iface->vcq, ep->rma_vcq,
                                            (uint32_t)compare, (uint32_t)swap,
                                            remote, edata, flags, cbdata));
    }
    return tofu_amo_end(ep, op, status);
}
