/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A line for each operation and message, in a process that has UCX_LOG_LEVEL=data.  It
 * has another table of operations, so that others do not ask at each operation.  UCT's
 * tracer of active messages says what is in them.  The lines have the level "debug": a
 * UCX that was built without logging, as packages are, prints none above it.
 */
#include "uct_utofu.h"

#include <stdio.h>

#define TRACE_TEXT 200 /* of what the tracer says of a message */

static uct_iface_ops_t plain;

int uct_utofu_is_traced(void)
{
    return uct_utofu_log_config.log_level >= UCS_LOG_LEVEL_TRACE_DATA;
}

/* Not an error, so it took place or will. */
static int uct_utofu_is_posted(ssize_t status)
{
    return (status >= 0) || (status == UCS_INPROGRESS);
}

static void uct_utofu_trace_am(uct_iface_h tl_iface, uct_am_trace_type_t type,
                               uint8_t id, const void *data, size_t length,
                               const char *what)
{
    uct_base_iface_t *iface = (uct_base_iface_t*)tl_iface;
    char text[TRACE_TEXT]   = "";

    if (iface->am_tracer != NULL) {
        iface->am_tracer(iface->am_tracer_arg, type, id, data, length, text,
                         sizeof(text) - 1);
    }
    uct_utofu_debug("%s [am_id %u length %zu] %s", what, id, length, text);
}

/* An operation on remote memory, if it was posted. */
static void uct_utofu_trace_rma(uct_ep_h ep, const char *what, ssize_t status,
                                size_t length, uint64_t remote_addr)
{
    if (uct_utofu_is_posted(status)) {
        uct_utofu_debug("%s [ep %p length %zu raddr 0x%llx]", what, (void*)ep,
                        length, (unsigned long long)remote_addr);
    }
}

static size_t uct_utofu_iov_length(const uct_iov_t *iov, size_t iovcnt)
{
    size_t length = 0, i;

    for (i = 0; i < iovcnt; ++i) {
        length += iov[i].length * iov[i].count;
    }
    return length;
}

static ucs_status_t uct_utofu_traced_put_short(uct_ep_h ep, const void *buffer,
                                               unsigned length,
                                               uint64_t remote_addr,
                                               uct_rkey_t rkey)
{
    ucs_status_t status = plain.ep_put_short(ep, buffer, length, remote_addr,
                                             rkey);

    uct_utofu_trace_rma(ep, "PUT_SHORT", status, length, remote_addr);
    return status;
}

static ssize_t uct_utofu_traced_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb,
                                          void *arg, uint64_t remote_addr,
                                          uct_rkey_t rkey)
{
    ssize_t length = plain.ep_put_bcopy(ep, pack_cb, arg, remote_addr, rkey);

    uct_utofu_trace_rma(ep, "PUT_BCOPY", length, length, remote_addr);
    return length;
}

static ucs_status_t uct_utofu_traced_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                               size_t iovcnt, uint64_t remote_addr,
                                               uct_rkey_t rkey,
                                               uct_completion_t *comp)
{
    ucs_status_t status = plain.ep_put_zcopy(ep, iov, iovcnt, remote_addr, rkey,
                                             comp);

    uct_utofu_trace_rma(ep, "PUT_ZCOPY", status,
                        uct_utofu_iov_length(iov, iovcnt), remote_addr);
    return status;
}

static ucs_status_t uct_utofu_traced_get_bcopy(uct_ep_h ep,
                                               uct_unpack_callback_t unpack_cb,
                                               void *arg, size_t length,
                                               uint64_t remote_addr,
                                               uct_rkey_t rkey,
                                               uct_completion_t *comp)
{
    ucs_status_t status = plain.ep_get_bcopy(ep, unpack_cb, arg, length,
                                             remote_addr, rkey, comp);

    uct_utofu_trace_rma(ep, "GET_BCOPY", status, length, remote_addr);
    return status;
}

static ucs_status_t uct_utofu_traced_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                               size_t iovcnt, uint64_t remote_addr,
                                               uct_rkey_t rkey,
                                               uct_completion_t *comp)
{
    ucs_status_t status = plain.ep_get_zcopy(ep, iov, iovcnt, remote_addr, rkey,
                                             comp);

    uct_utofu_trace_rma(ep, "GET_ZCOPY", status,
                        uct_utofu_iov_length(iov, iovcnt), remote_addr);
    return status;
}

static ucs_status_t uct_utofu_traced_am_short(uct_ep_h ep, uint8_t id,
                                              uint64_t header, const void *payload,
                                              unsigned length)
{
    uct_iface_h iface   = ep->iface;
    ucs_status_t status = plain.ep_am_short(ep, id, header, payload, length);
    char message[sizeof(header) + UINT8_MAX];

    if (uct_utofu_is_posted(status)) { /* so it is no longer than a message may be */
        memcpy(message, &header, sizeof(header));
        memcpy(message + sizeof(header), payload, length);
        uct_utofu_trace_am(iface, UCT_AM_TRACE_TYPE_SEND, id, message,
                           sizeof(header) + length, "TX: AM_SHORT");
    }
    return status;
}

static ucs_status_t uct_utofu_traced_am_short_iov(uct_ep_h ep, uint8_t id,
                                                  const uct_iov_t *iov,
                                                  size_t iovcnt)
{
    uct_iface_h iface   = ep->iface;
    ucs_status_t status = plain.ep_am_short_iov(ep, id, iov, iovcnt);
    char message[UINT8_MAX];
    size_t length = 0, i;

    if (uct_utofu_is_posted(status)) {
        for (i = 0; i < iovcnt; ++i) {
            memcpy(message + length, iov[i].buffer, iov[i].length);
            length += iov[i].length;
        }
        uct_utofu_trace_am(iface, UCT_AM_TRACE_TYPE_SEND, id, message, length,
                           "TX: AM_SHORT");
    }
    return status;
}

/* What is packed is told while it is at hand; it may not be sent then. */
struct uct_utofu_traced_pack {
    uct_pack_callback_t pack_cb;
    void                *arg;
    uct_iface_h         iface;
    uint8_t             id;
};

static size_t uct_utofu_traced_pack(void *dest, void *arg)
{
    const struct uct_utofu_traced_pack *pack = arg;
    size_t length                            = pack->pack_cb(dest, pack->arg);

    uct_utofu_trace_am(pack->iface, UCT_AM_TRACE_TYPE_SEND, pack->id, dest, length,
                       "TX: AM_BCOPY");
    return length;
}

static ssize_t uct_utofu_traced_am_bcopy(uct_ep_h ep, uint8_t id,
                                         uct_pack_callback_t pack_cb, void *arg,
                                         unsigned flags)
{
    struct uct_utofu_traced_pack pack = {.pack_cb = pack_cb,
                                         .arg     = arg,
                                         .iface   = ep->iface,
                                         .id      = id};

    return plain.ep_am_bcopy(ep, id, uct_utofu_traced_pack, &pack, flags);
}

/* As elsewhere in UCX, of what is copied by nobody only the header is shown. */
static ucs_status_t uct_utofu_traced_am_zcopy(uct_ep_h ep, uint8_t id,
                                              const void *header,
                                              unsigned header_length,
                                              const uct_iov_t *iov, size_t iovcnt,
                                              unsigned flags,
                                              uct_completion_t *comp)
{
    uct_iface_h iface   = ep->iface;
    ucs_status_t status = plain.ep_am_zcopy(ep, id, header, header_length, iov,
                                            iovcnt, flags, comp);

    if (uct_utofu_is_posted(status)) {
        uct_utofu_trace_am(iface, UCT_AM_TRACE_TYPE_SEND, id, header,
                           header_length, "TX: AM_ZCOPY");
    }
    return status;
}

#define UCT_UTOFU_TRACED_ATOMIC(_bits) \
    static ucs_status_t uct_utofu_traced_atomic##_bits##_post( \
            uct_ep_h ep, unsigned opcode, uint##_bits##_t value, \
            uint64_t remote_addr, uct_rkey_t rkey) \
    { \
        ucs_status_t status = plain.ep_atomic##_bits##_post( \
                ep, opcode, value, remote_addr, rkey); \
        \
        uct_utofu_trace_rma(ep, "ATOMIC_POST", status, sizeof(value), \
                            remote_addr); \
        return status; \
    } \
    \
    static ucs_status_t uct_utofu_traced_atomic##_bits##_fetch( \
            uct_ep_h ep, unsigned opcode, uint##_bits##_t value, \
            uint##_bits##_t *result, uint64_t remote_addr, uct_rkey_t rkey, \
            uct_completion_t *comp) \
    { \
        ucs_status_t status = plain.ep_atomic##_bits##_fetch( \
                ep, opcode, value, result, remote_addr, rkey, comp); \
        \
        uct_utofu_trace_rma(ep, "ATOMIC_FETCH", status, sizeof(value), \
                            remote_addr); \
        return status; \
    } \
    \
    static ucs_status_t uct_utofu_traced_cswap##_bits( \
            uct_ep_h ep, uint##_bits##_t compare, uint##_bits##_t swap, \
            uint64_t remote_addr, uct_rkey_t rkey, uint##_bits##_t *result, \
            uct_completion_t *comp) \
    { \
        ucs_status_t status = plain.ep_atomic_cswap##_bits( \
                ep, compare, swap, remote_addr, rkey, result, comp); \
        \
        uct_utofu_trace_rma(ep, "ATOMIC_CSWAP", status, sizeof(swap), \
                            remote_addr); \
        return status; \
    }

UCT_UTOFU_TRACED_ATOMIC(32)
UCT_UTOFU_TRACED_ATOMIC(64)

int8_t uct_utofu_traced_am(void *arg, void *data, size_t length, unsigned flags)
{
    const struct uct_utofu_traced_id *traced = arg;
    uct_base_iface_t *iface                  = &traced->iface->super;
    const uct_am_handler_t *handler          = &iface->am[traced->id];

    uct_utofu_trace_am(&iface->super, UCT_AM_TRACE_TYPE_RECV, traced->id, data,
                       length, "RX: AM");
    return handler->cb(handler->arg, data, length, flags);
}

void uct_utofu_trace_ops(uct_iface_ops_t *ops)
{
    plain                  = *ops;
    ops->ep_put_short      = uct_utofu_traced_put_short;
    ops->ep_put_bcopy      = uct_utofu_traced_put_bcopy;
    ops->ep_put_zcopy      = uct_utofu_traced_put_zcopy;
    ops->ep_get_bcopy      = uct_utofu_traced_get_bcopy;
    ops->ep_get_zcopy      = uct_utofu_traced_get_zcopy;
    ops->ep_am_short       = uct_utofu_traced_am_short;
    ops->ep_am_short_iov   = uct_utofu_traced_am_short_iov;
    ops->ep_am_bcopy       = uct_utofu_traced_am_bcopy;
    ops->ep_am_zcopy       = uct_utofu_traced_am_zcopy;
    ops->ep_atomic32_post  = uct_utofu_traced_atomic32_post;
    ops->ep_atomic64_post  = uct_utofu_traced_atomic64_post;
    ops->ep_atomic32_fetch = uct_utofu_traced_atomic32_fetch;
    ops->ep_atomic64_fetch = uct_utofu_traced_atomic64_fetch;
    ops->ep_atomic_cswap32 = uct_utofu_traced_cswap32;
    ops->ep_atomic_cswap64 = uct_utofu_traced_cswap64;
}
