/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core_common.h - what kernels on the transport core share: backend, md, iface,
 * endpoints by address, operations that are repeated while there is no room.
 */
#ifndef PERF_CORE_COMMON_H
#define PERF_CORE_COMMON_H

#include "common.h"

#include <tofu.h>
#include <tofu_dl.h>

#define CORE_ADDRESS_MAX 256
#define CORE_AM_ID       3

#define CORE_CHECK(_call) \
    do { \
        tofu_status_t _status = (_call); \
        PERF_CHECK(_status == TOFU_OK, "%s: %s", #_call, \
                   tofu_status_string(_status)); \
    } while (0)

struct core_address {
    char bytes[CORE_ADDRESS_MAX];
};

static inline tofu_md_t *core_md_config(const tofu_md_config_t *config)
{
    const struct tofu_backend *backend;
    char                      error[2048];
    tofu_md_t                 *md;

    PERF_CHECK(tofu_backend_load(NULL, &backend, error, sizeof(error)) == 0,
               "no backend: %s", error);
    CORE_CHECK(tofu_md_open(backend, config, &md));
    return md;
}

/* An md that uses one TNI first. */
static inline tofu_md_t *core_md(unsigned tni)
{
    tofu_md_config_t config;

    tofu_md_config_default(&config);
    config.tni = tni;
    return core_md_config(&config);
}

/* Open an iface whose messages go to cb(arg, ...); config NULL: the default. */
static inline tofu_iface_t *core_iface(tofu_md_t *md,
                                       const tofu_iface_config_t *config,
                                       tofu_am_cb_t cb, void *arg)
{
    tofu_iface_config_t defaults;
    tofu_iface_t        *iface;

    if (config == NULL) {
        tofu_iface_config_default(&defaults);
        config = &defaults;
    }
    CORE_CHECK(tofu_iface_open(md, config, &iface));
    if (cb != NULL) {
        CORE_CHECK(tofu_iface_set_am_handler(iface, CORE_AM_ID, cb, arg));
    }
    return iface;
}

static inline size_t core_address(tofu_iface_t *iface,
                                  struct core_address *address)
{
    tofu_iface_attr_t attr;

    memset(address, 0, sizeof(*address));
    tofu_iface_query(iface, &attr);
    PERF_CHECK(attr.iface_addr_len <= CORE_ADDRESS_MAX, "a long address");
    tofu_iface_get_address(iface, address->bytes);
    return attr.iface_addr_len;
}

static inline tofu_ep_t *core_connect(tofu_iface_t *iface,
                                      const struct core_address *address)
{
    tofu_iface_attr_t attr;
    tofu_ep_t         *ep;

    tofu_iface_query(iface, &attr);
    CORE_CHECK(tofu_ep_create(iface, address->bytes, attr.iface_addr_len, &ep));
    return ep;
}

/* Send size bytes, of which the first eight are the header. */
static inline void core_am(tofu_iface_t *iface, tofu_ep_t *ep, uint64_t header,
                           const void *payload, unsigned length)
{
    tofu_status_t status;

    while ((status = tofu_ep_am_short(ep, CORE_AM_ID, header, payload,
                                      length)) == TOFU_ERR_NO_RESOURCE) {
        tofu_iface_progress(iface);
    }
    PERF_CHECK(status == TOFU_OK, "tofu_ep_am_short: %s",
               tofu_status_string(status));
}

static inline void core_flush(tofu_iface_t *iface)
{
    tofu_status_t status;

    do {
        tofu_iface_progress(iface);
        status = tofu_iface_flush(iface, 0, NULL);
    } while ((status == TOFU_INPROGRESS) || (status == TOFU_ERR_NO_RESOURCE));
    PERF_CHECK(status == TOFU_OK, "tofu_iface_flush: %s",
               tofu_status_string(status));
}

#endif /* PERF_CORE_COMMON_H */
