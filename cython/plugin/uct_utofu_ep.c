/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoint operations.  Each is a cast and a call into the core: statuses, iov,
 * completions and pending requests are the same structures on both sides (see
 * the assertions in uct_utofu.h).
 */
#include "uct_utofu.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- put and get */

static ucs_status_t uct_utofu_ep_put_short(uct_ep_h tl_ep, const void *buffer,
                                           unsigned length,
                                           uint64_t remote_addr,
                                           uct_rkey_t rkey)
{
    return uct_utofu_status(tofu_ep_put_short(uct_utofu_ep_core(tl_ep), buffer,
                                              length, remote_addr,
                                              (const tofu_rkey_t*)rkey));
}

static ssize_t uct_utofu_ep_put_bcopy(uct_ep_h tl_ep,
                                      uct_pack_callback_t pack_cb, void *arg,
                                      uint64_t remote_addr, uct_rkey_t rkey)
{
    return tofu_ep_put_bcopy(uct_utofu_ep_core(tl_ep), pack_cb, arg,
                             remote_addr, (const tofu_rkey_t*)rkey);
}

static ucs_status_t uct_utofu_ep_put_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov,
                                           size_t iovcnt, uint64_t remote_addr,
                                           uct_rkey_t rkey,
                                           uct_completion_t *comp)
{
    return uct_utofu_status(tofu_ep_put_zcopy(uct_utofu_ep_core(tl_ep),
                                              (const tofu_iov_t*)iov, iovcnt,
                                              remote_addr,
                                              (const tofu_rkey_t*)rkey,
                                              (tofu_completion_t*)comp));
}

static ucs_status_t uct_utofu_ep_get_bcopy(uct_ep_h tl_ep,
                                           uct_unpack_callback_t unpack_cb,
                                           void *arg, size_t length,
                                           uint64_t remote_addr,
                                           uct_rkey_t rkey,
                                           uct_completion_t *comp)
{
    return uct_utofu_status(tofu_ep_get_bcopy(uct_utofu_ep_core(tl_ep),
                                              unpack_cb, arg, length,
                                              remote_addr,
                                              (const tofu_rkey_t*)rkey,
                                              (tofu_completion_t*)comp));
}

static ucs_status_t uct_utofu_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov,
                                           size_t iovcnt, uint64_t remote_addr,
                                           uct_rkey_t rkey,
                                           uct_completion_t *comp)
{
    return uct_utofu_status(tofu_ep_get_zcopy(uct_utofu_ep_core(tl_ep),
                                              (const tofu_iov_t*)iov, iovcnt,
                                              remote_addr,
                                              (const tofu_rkey_t*)rkey,
                                              (tofu_completion_t*)comp));
}

/* ------------------------------------------------------------ active messages */

static ucs_status_t uct_utofu_ep_am_short(uct_ep_h tl_ep, uint8_t id,
                                          uint64_t header, const void *payload,
                                          unsigned length)
{
    return uct_utofu_status(tofu_ep_am_short(uct_utofu_ep_core(tl_ep), id,
                                             header, payload, length));
}

static ucs_status_t uct_utofu_ep_am_short_iov(uct_ep_h tl_ep, uint8_t id,
                                              const uct_iov_t *iov,
                                              size_t iovcnt)
{
    return uct_utofu_status(tofu_ep_am_short_iov(uct_utofu_ep_core(tl_ep), id,
                                                 (const tofu_iov_t*)iov,
                                                 iovcnt));
}

static ssize_t uct_utofu_ep_am_bcopy(uct_ep_h tl_ep, uint8_t id,
                                     uct_pack_callback_t pack_cb, void *arg,
                                     unsigned flags)
{
    tofu_ep_t *ep = uct_utofu_ep_core(tl_ep);

    /* the other flag is a hint about events */
    return (flags & UCT_SEND_FLAG_PEER_CHECK) ?
                   tofu_ep_am_check(ep, id, pack_cb, arg) :
                   tofu_ep_am_bcopy(ep, id, pack_cb, arg);
}

static ucs_status_t uct_utofu_ep_am_zcopy(uct_ep_h tl_ep, uint8_t id,
                                          const void *header,
                                          unsigned header_length,
                                          const uct_iov_t *iov, size_t iovcnt,
                                          unsigned flags,
                                          uct_completion_t *comp)
{
    (void)flags;
    return uct_utofu_status(tofu_ep_am_zcopy(uct_utofu_ep_core(tl_ep), id,
                                             header, header_length,
                                             (const tofu_iov_t*)iov, iovcnt,
                                             (tofu_completion_t*)comp));
}

/* -------------------------------------------------------------------- atomics */

static ucs_status_t uct_utofu_ep_atomic32_post(uct_ep_h tl_ep, unsigned opcode,
                                               uint32_t value,
                                               uint64_t remote_addr,
                                               uct_rkey_t rkey)
{
    return uct_utofu_status(tofu_ep_atomic_post(uct_utofu_ep_core(tl_ep),
                                                (tofu_atomic_op_t)opcode, 4,
                                                value, remote_addr,
                                                (const tofu_rkey_t*)rkey));
}

static ucs_status_t uct_utofu_ep_atomic64_post(uct_ep_h tl_ep, unsigned opcode,
                                               uint64_t value,
                                               uint64_t remote_addr,
                                               uct_rkey_t rkey)
{
    return uct_utofu_status(tofu_ep_atomic_post(uct_utofu_ep_core(tl_ep),
                                                (tofu_atomic_op_t)opcode, 8,
                                                value, remote_addr,
                                                (const tofu_rkey_t*)rkey));
}

static ucs_status_t
uct_utofu_ep_atomic32_fetch(uct_ep_h tl_ep, unsigned opcode, uint32_t value,
                            uint32_t *result, uint64_t remote_addr,
                            uct_rkey_t rkey, uct_completion_t *comp)
{
    return uct_utofu_status(tofu_ep_atomic_fetch(uct_utofu_ep_core(tl_ep),
                                                 (tofu_atomic_op_t)opcode, 4,
                                                 value, result, remote_addr,
                                                 (const tofu_rkey_t*)rkey,
                                                 (tofu_completion_t*)comp));
}

static ucs_status_t
uct_utofu_ep_atomic64_fetch(uct_ep_h tl_ep, unsigned opcode, uint64_t value,
                            uint64_t *result, uint64_t remote_addr,
                            uct_rkey_t rkey, uct_completion_t *comp)
{
    return uct_utofu_status(tofu_ep_atomic_fetch(uct_utofu_ep_core(tl_ep),
                                                 (tofu_atomic_op_t)opcode, 8,
                                                 value, result, remote_addr,
                                                 (const tofu_rkey_t*)rkey,
                                                 (tofu_completion_t*)comp));
}

static ucs_status_t
uct_utofu_ep_atomic_cswap32(uct_ep_h tl_ep, uint32_t compare, uint32_t swap,
                            uint64_t remote_addr, uct_rkey_t rkey,
                            uint32_t *result, uct_completion_t *comp)
{
    return uct_utofu_status(tofu_ep_atomic_cswap(uct_utofu_ep_core(tl_ep), 4,
                                                 compare, swap, result,
                                                 remote_addr,
                                                 (const tofu_rkey_t*)rkey,
                                                 (tofu_completion_t*)comp));
}

static ucs_status_t
uct_utofu_ep_atomic_cswap64(uct_ep_h tl_ep, uint64_t compare, uint64_t swap,
                            uint64_t remote_addr, uct_rkey_t rkey,
                            uint64_t *result, uct_completion_t *comp)
{
    return uct_utofu_status(tofu_ep_atomic_cswap(uct_utofu_ep_core(tl_ep), 8,
                                                 compare, swap, result,
                                                 remote_addr,
                                                 (const tofu_rkey_t*)rkey,
                                                 (tofu_completion_t*)comp));
}

/* ---------------------------------------------- flush, fence, pending requests */

static ucs_status_t uct_utofu_ep_flush(uct_ep_h tl_ep, unsigned flags,
                                       uct_completion_t *comp)
{
    /* The core's flush is always one of remote completion. */
    return uct_utofu_status(tofu_ep_flush(uct_utofu_ep_core(tl_ep),
                                          flags & UCT_FLUSH_FLAG_CANCEL,
                                          (tofu_completion_t*)comp));
}

static ucs_status_t uct_utofu_ep_fence(uct_ep_h tl_ep, unsigned flags)
{
    (void)flags;
    return uct_utofu_status(tofu_ep_fence(uct_utofu_ep_core(tl_ep)));
}

/* Without a completion the answer is told by the error handler alone. */
static ucs_status_t uct_utofu_ep_check(uct_ep_h tl_ep, unsigned flags,
                                       uct_completion_t *comp)
{
    tofu_ep_t *ep = uct_utofu_ep_core(tl_ep);
    tofu_status_t status;

    if (flags != 0) {
        return UCS_ERR_UNSUPPORTED;
    }

    status = tofu_ep_check(ep);
    if ((status == TOFU_OK) && (comp != NULL)) {
        status = tofu_ep_flush(ep, 0, (tofu_completion_t*)comp);
    }
    return uct_utofu_status(status);
}

static ucs_status_t uct_utofu_ep_pending_add(uct_ep_h tl_ep,
                                             uct_pending_req_t *req,
                                             unsigned flags)
{
    (void)flags;
    return uct_utofu_status(
            tofu_ep_pending_add(uct_utofu_ep_core(tl_ep),
                                (tofu_pending_req_t*)req));
}

struct uct_utofu_purge {
    uct_pending_purge_callback_t cb;
    void                         *arg;
};

static void uct_utofu_ep_purge_cb(tofu_pending_req_t *req, void *arg)
{
    struct uct_utofu_purge *purge = arg;

    purge->cb((uct_pending_req_t*)req, purge->arg);
}

static void uct_utofu_ep_pending_purge(uct_ep_h tl_ep,
                                       uct_pending_purge_callback_t cb,
                                       void *arg)
{
    struct uct_utofu_purge purge = {.cb = cb, .arg = arg};

    /* without a callback they are dropped, as by UCX's shared memory */
    tofu_ep_pending_purge(uct_utofu_ep_core(tl_ep),
                          (cb == NULL) ? NULL : uct_utofu_ep_purge_cb, &purge);
}

/* ----------------------------------------------------------------- connection */

ucs_status_t uct_utofu_ep_create(const uct_ep_params_t *params, uct_ep_h *ep_p)
{
    int init_count         = 1;
    size_t iface_addr_len  = 0;
    size_t device_addr_len = 0;
    char reason[256]       = "";
    uct_utofu_iface_t *iface;
    tofu_status_t tofu_status;
    ucs_status_t status;
    uct_utofu_ep_t *ep;

    iface = (uct_utofu_iface_t*)params->iface;

    if (!(params->field_mask & UCT_EP_PARAM_FIELD_DEV_ADDR) ||
        !(params->field_mask & UCT_EP_PARAM_FIELD_IFACE_ADDR) ||
        (params->dev_addr == NULL) || (params->iface_addr == NULL)) {
        uct_utofu_error("an endpoint of transport utofu needs the device "
                        "address and the interface address of the peer");
        status = UCS_ERR_INVALID_PARAM;
        goto err;
    }
    if (params->field_mask & UCT_EP_PARAM_FIELD_DEV_ADDR_LENGTH) {
        device_addr_len = params->dev_addr_length;
    }
    if (params->field_mask & UCT_EP_PARAM_FIELD_IFACE_ADDR_LENGTH) {
        iface_addr_len = params->iface_addr_length;
    }

    if (!uct_utofu_iface_addr_is_reachable(iface, params->dev_addr,
                                           device_addr_len, params->iface_addr,
                                           iface_addr_len, reason,
                                           sizeof(reason))) {
        uct_utofu_error("endpoint to an address that is not reachable: %s",
                        reason);
        status = UCS_ERR_UNREACHABLE;
        goto err;
    }

    ep = calloc(1, sizeof(*ep));
    if (ep == NULL) {
        uct_utofu_error("endpoint: out of memory");
        status = UCS_ERR_NO_MEMORY;
        goto err;
    }

    status = uct_utofu_api.uct_base_ep_t_init(&ep->super,
                                              uct_utofu_api.uct_base_ep_t_class,
                                              &init_count, &iface->super);
    if (status != UCS_OK) {
        goto err_cleanup;
    }

    tofu_status = tofu_ep_create(iface->iface, params->iface_addr,
                                 iface_addr_len, &ep->ep);
    if (tofu_status != TOFU_OK) {
        status = uct_utofu_status(tofu_status);
        goto err_cleanup;
    }

    tofu_ep_set_user(ep->ep, ep);
    *ep_p = &ep->super.super;
    return UCS_OK;

err_cleanup:
    uct_utofu_api.ucs_class_call_cleanup_chain(
            uct_utofu_api.uct_base_ep_t_class, &ep->super, init_count);
    free(ep);
err:
    return status;
}

static void uct_utofu_ep_destroy(uct_ep_h tl_ep)
{
    uct_utofu_ep_t *ep = (uct_utofu_ep_t*)tl_ep;

    /* UCP frees soon what the completions belong to. */
    tofu_ep_abandon(ep->ep);
    uct_utofu_api.ucs_class_call_cleanup_chain(
            uct_utofu_api.uct_base_ep_t_class, &ep->super, -1);
    free(ep);
}

int uct_utofu_ep_is_connected(uct_ep_h tl_ep,
                              const uct_ep_is_connected_params_t *params)
{
    uct_utofu_iface_t *iface = (uct_utofu_iface_t*)tl_ep->iface;
    char reason[256];

    if (!(params->field_mask & UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR) ||
        (params->iface_addr == NULL)) {
        return 0;
    }

    if ((params->field_mask & UCT_EP_IS_CONNECTED_FIELD_DEVICE_ADDR) &&
        (params->device_addr != NULL) &&
        !uct_utofu_iface_addr_is_reachable(iface, params->device_addr, 0,
                                           params->iface_addr, 0, reason,
                                           sizeof(reason))) {
        return 0;
    }

    return tofu_ep_is_connected(uct_utofu_ep_core(tl_ep), params->iface_addr,
                                iface->attr.iface_addr_len);
}

ucs_status_t uct_utofu_ep_invalidate(uct_ep_h tl_ep,
                                     const uct_ep_invalidate_params_t *params)
{
    (void)params; /* may be NULL */
    return uct_utofu_status(tofu_ep_invalidate(uct_utofu_ep_core(tl_ep)));
}

/* Socket addresses and tokens are what can be asked for; there are none. */
ucs_status_t uct_utofu_ep_query(uct_ep_h tl_ep, uct_ep_attr_t *ep_attr)
{
    (void)tl_ep;
    return (ep_attr->field_mask == 0) ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

void uct_utofu_ep_failed(void *arg, tofu_ep_t *core_ep, tofu_status_t status)
{
    uct_utofu_iface_t *iface    = arg;
    uct_base_iface_t *base      = &iface->super;
    uct_utofu_ep_t *ep          = tofu_ep_user(core_ep);
    ucs_status_t handler_status = uct_utofu_status(status);
    ucs_log_level_t level;

    if (base->err_handler != NULL) {
        /* The handler may destroy the endpoint. */
        handler_status = base->err_handler(base->err_handler_arg,
                                           &ep->super.super,
                                           uct_utofu_status(status));
    }

    /* The loss of a peer is for the level that the user has chosen, unless
     * nobody has dealt with it. */
    level = (handler_status != UCS_OK) ? UCS_LOG_LEVEL_ERROR :
            base->config.failure_level;
    uct_utofu_log(level, "endpoint %p: peer failed: %s", (void*)ep,
                  tofu_status_string(status));
}

void uct_utofu_ep_ops_init(uct_iface_ops_t *ops)
{
    ops->ep_put_short      = uct_utofu_ep_put_short;
    ops->ep_put_bcopy      = uct_utofu_ep_put_bcopy;
    ops->ep_put_zcopy      = uct_utofu_ep_put_zcopy;
    ops->ep_get_bcopy      = uct_utofu_ep_get_bcopy;
    ops->ep_get_zcopy      = uct_utofu_ep_get_zcopy;
    ops->ep_am_short       = uct_utofu_ep_am_short;
    ops->ep_am_short_iov   = uct_utofu_ep_am_short_iov;
    ops->ep_am_bcopy       = uct_utofu_ep_am_bcopy;
    ops->ep_am_zcopy       = uct_utofu_ep_am_zcopy;
    ops->ep_atomic_cswap64 = uct_utofu_ep_atomic_cswap64;
    ops->ep_atomic_cswap32 = uct_utofu_ep_atomic_cswap32;
    ops->ep_atomic32_post  = uct_utofu_ep_atomic32_post;
    ops->ep_atomic64_post  = uct_utofu_ep_atomic64_post;
    ops->ep_atomic32_fetch = uct_utofu_ep_atomic32_fetch;
    ops->ep_atomic64_fetch = uct_utofu_ep_atomic64_fetch;
    ops->ep_flush          = uct_utofu_ep_flush;
    ops->ep_fence          = uct_utofu_ep_fence;
    ops->ep_check          = uct_utofu_ep_check;
    ops->ep_pending_add    = uct_utofu_ep_pending_add;
    ops->ep_pending_purge  = uct_utofu_ep_pending_purge;
    ops->ep_create         = uct_utofu_ep_create;
    ops->ep_destroy        = uct_utofu_ep_destroy;
}
