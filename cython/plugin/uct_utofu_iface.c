/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface: opening, attributes, addresses, performance estimates.
 *
 * The advertised limits are those of tofu_iface_query, unchanged.  A capability
 * flag is set for an operation exactly when its limit is not zero.
 */
#include "uct_utofu.h"

#include <stdio.h>
#include <stdlib.h>

static struct {
    uct_iface_ops_t ops;
    void            *spare[UCT_UTOFU_OPS_SPARE];
} uct_utofu_iface_ops;

static struct {
    uct_iface_internal_ops_t ops;
    void                     *spare[UCT_UTOFU_OPS_SPARE];
} uct_utofu_iface_internal_ops;


ucs_status_t uct_utofu_query_devices(uct_md_h md,
                                     uct_tl_device_resource_t **tl_devices_p,
                                     unsigned *num_tl_devices_p)
{
    return uct_utofu_api.uct_single_device_resource(md, UCT_UTOFU_DEVICE_NAME,
                                                    UCT_DEVICE_TYPE_NET,
                                                    UCS_SYS_DEVICE_ID_UNKNOWN,
                                                    tl_devices_p,
                                                    num_tl_devices_p);
}

/* --------------------------------------------------------------- attributes */

static uint64_t uct_utofu_iface_flags(const tofu_iface_attr_t *attr)
{
    const struct {
        size_t   limit;
        uint64_t flag;
    } caps[] = {
        {attr->max_put_short, UCT_IFACE_FLAG_PUT_SHORT},
        {attr->max_put_bcopy, UCT_IFACE_FLAG_PUT_BCOPY},
        {attr->max_put_zcopy, UCT_IFACE_FLAG_PUT_ZCOPY},
        {attr->max_get_bcopy, UCT_IFACE_FLAG_GET_BCOPY},
        {attr->max_get_zcopy, UCT_IFACE_FLAG_GET_ZCOPY},
        {attr->max_am_short, UCT_IFACE_FLAG_AM_SHORT},
        {attr->max_am_bcopy, UCT_IFACE_FLAG_AM_BCOPY},
        {attr->max_am_zcopy, UCT_IFACE_FLAG_AM_ZCOPY}
    };
    uint64_t flags = UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_CB_SYNC |
                     UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                     UCT_IFACE_FLAG_INTER_NODE |
                     UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE |
                     UCT_IFACE_FLAG_ERRHANDLE_ZCOPY_BUF |
                     UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN |
                     UCT_IFACE_FLAG_ERRHANDLE_AM_ID |
                     UCT_IFACE_FLAG_ERRHANDLE_REMOTE_MEM |
                     UCT_IFACE_FLAG_EP_CHECK |
                     /* ARMW is atomic also against atomic instructions of the
                      * target's processor (2.2.5). */
                     UCT_IFACE_FLAG_ATOMIC_CPU;
    size_t i;

    for (i = 0; i < (sizeof(caps) / sizeof(caps[0])); ++i) {
        if (caps[i].limit != 0) {
            flags |= caps[i].flag;
        }
    }
    return flags;
}

static ucs_status_t uct_utofu_iface_query(uct_iface_h tl_iface,
                                          uct_iface_attr_t *attr)
{
    uct_utofu_iface_t *iface      = (uct_utofu_iface_t*)tl_iface;
    const tofu_iface_attr_t *core = &iface->attr;

    uct_utofu_api.uct_base_iface_query(&iface->super, attr);

    attr->cap.flags               = uct_utofu_iface_flags(core);

    attr->cap.event_flags         = UCT_IFACE_FLAG_EVENT_SEND_COMP |
                                    UCT_IFACE_FLAG_EVENT_RECV |
                                    UCT_IFACE_FLAG_EVENT_FD;

    attr->cap.put.max_short       = core->max_put_short;
    attr->cap.put.max_bcopy       = core->max_put_bcopy;
    attr->cap.put.min_zcopy       = 0;
    attr->cap.put.max_zcopy       = core->max_put_zcopy;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;
    attr->cap.put.max_iov         = core->put_max_iov;

    attr->cap.get.max_bcopy       = core->max_get_bcopy;
    attr->cap.get.min_zcopy       = 0;
    attr->cap.get.max_zcopy       = core->max_get_zcopy;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
    attr->cap.get.max_iov         = core->get_max_iov;

    attr->cap.am.max_short        = core->max_am_short;
    attr->cap.am.max_bcopy        = core->max_am_bcopy;
    attr->cap.am.min_zcopy        = 0;
    attr->cap.am.max_zcopy        = core->max_am_zcopy;
    attr->cap.am.opt_zcopy_align  = 1;
    attr->cap.am.align_mtu        = 1;
    attr->cap.am.max_hdr          = core->max_am_hdr;
    attr->cap.am.max_iov          = core->am_max_iov;

    attr->cap.atomic32.op_flags   = UCS_BIT(UCT_ATOMIC_OP_ADD) |
                                    UCS_BIT(UCT_ATOMIC_OP_AND) |
                                    UCS_BIT(UCT_ATOMIC_OP_OR) |
                                    UCS_BIT(UCT_ATOMIC_OP_XOR);
    attr->cap.atomic32.fop_flags  = attr->cap.atomic32.op_flags |
                                    UCS_BIT(UCT_ATOMIC_OP_SWAP) |
                                    UCS_BIT(UCT_ATOMIC_OP_CSWAP);
    attr->cap.atomic64            = attr->cap.atomic32;

    attr->device_addr_len         = core->device_addr_len +
                                    UCT_UTOFU_NODE_ADDR_LEN;
    attr->iface_addr_len          = core->iface_addr_len;
    attr->latency.c               = core->latency;
    attr->latency.m               = core->latency_per_ep;
    attr->overhead                = core->overhead;
    if (iface->shared_bandwidth) {
        attr->bandwidth.shared    = core->bandwidth;
    } else {
        attr->bandwidth.dedicated = core->bandwidth;
    }
    return UCS_OK;
}

/* None of the capabilities of this query is there. */
static ucs_status_t uct_utofu_iface_query_v2(uct_iface_h tl_iface,
                                             uct_iface_attr_v2_t *attr)
{
    (void)tl_iface;
    if (attr->field_mask & UCT_IFACE_ATTR_FIELD_MAX_PUT_SGL_ZCOPY_COUNT) {
        attr->max_put_sgl_zcopy_count = 0;
    }
    if (attr->field_mask & UCT_IFACE_ATTR_FIELD_CAP_FLAGS) {
        attr->cap.flags = 0;
    }
    if (attr->field_mask & UCT_IFACE_ATTR_FIELD_TX_TOKEN_LENGTH) {
        attr->tx_token_length = 0;
    }
    if (attr->field_mask & UCT_IFACE_ATTR_FIELD_RX_TOKEN_LENGTH) {
        attr->rx_token_length = 0;
    }
    return UCS_OK;
}

static ucs_status_t uct_utofu_iface_estimate_perf(uct_iface_h tl_iface,
                                                  uct_perf_attr_t *perf_attr)
{
    uct_utofu_iface_t *iface      = (uct_utofu_iface_t*)tl_iface;
    uct_ppn_bandwidth_t bandwidth = {0};
    uint64_t mask                 = perf_attr->field_mask;
    double bytes; /* per second */
    double overhead, post_overhead, recv_overhead; /* seconds */
    uct_ep_operation_t op;

    op = (mask & UCT_PERF_ATTR_FIELD_OPERATION) ? perf_attr->operation :
                                                  UCT_EP_OP_LAST;

    /* UCP's users bring memory of their own to puts and gets, while messages
     * land in memory of ours. */
    switch (op) {
    case UCT_EP_OP_PUT_SHORT:
    case UCT_EP_OP_PUT_BCOPY:
    case UCT_EP_OP_PUT_ZCOPY:
    case UCT_EP_OP_GET_SHORT:
    case UCT_EP_OP_GET_BCOPY:
    case UCT_EP_OP_GET_ZCOPY:
    case UCT_EP_OP_ATOMIC_POST:
    case UCT_EP_OP_ATOMIC_FETCH:
        bytes         = iface->attr.rma_bandwidth;
        overhead      = (op == UCT_EP_OP_PUT_BCOPY) ?
                                iface->attr.put_bcopy_overhead :
                        (op == UCT_EP_OP_GET_BCOPY) ?
                                iface->attr.get_bcopy_overhead :
                                iface->attr.rma_overhead;
        post_overhead = iface->attr.rma_post_overhead;
        recv_overhead = 0; /* the target does nothing */
        break;
    case UCT_EP_OP_AM_BCOPY:
    case UCT_EP_OP_AM_ZCOPY:
        bytes         = iface->attr.am_bandwidth;
        overhead      = (op == UCT_EP_OP_AM_ZCOPY) ?
                                iface->attr.am_zcopy_overhead :
                                iface->attr.overhead;
        post_overhead = iface->attr.post_overhead;
        recv_overhead = iface->attr.recv_overhead;
        break;
    default:
        bytes         = iface->attr.bandwidth;
        overhead      = iface->attr.overhead;
        post_overhead = iface->attr.post_overhead;
        recv_overhead = iface->attr.recv_overhead;
        break;
    }
    if (iface->shared_bandwidth) {
        bandwidth.shared    = bytes;
    } else {
        bandwidth.dedicated = bytes;
    }

    if (mask & UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD) {
        perf_attr->send_pre_overhead = overhead;
    }
    if (mask & UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD) {
        perf_attr->send_post_overhead = post_overhead;
    }
    if (mask & UCT_PERF_ATTR_FIELD_RECV_OVERHEAD) {
        perf_attr->recv_overhead = recv_overhead;
    }
    if (mask & UCT_PERF_ATTR_FIELD_BANDWIDTH) {
        perf_attr->bandwidth = bandwidth;
    }
    if (mask & UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH) {
        perf_attr->path_bandwidth = bandwidth;
    }
    if (mask & UCT_PERF_ATTR_FIELD_LATENCY) {
        perf_attr->latency.c = iface->attr.latency;
        perf_attr->latency.m = iface->attr.latency_per_ep;
    }
    if (mask & UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS) {
        perf_attr->max_inflight_eps = SIZE_MAX;
    }
    if (mask & UCT_PERF_ATTR_FIELD_FLAGS) {
        perf_attr->flags = 0;
    }
    return UCS_OK;
}

/* ---------------------------------------------------------------- addresses */

static ucs_status_t uct_utofu_iface_get_device_address(uct_iface_h tl_iface,
                                                       uct_device_addr_t *addr)
{
    uct_utofu_iface_t *iface = (uct_utofu_iface_t*)tl_iface;
    uct_utofu_md_t *md       = (uct_utofu_md_t*)iface->super.md;

    tofu_iface_get_device_address(iface->iface, addr);
    memcpy((uint8_t*)addr + iface->attr.device_addr_len, md->coords,
           UCT_UTOFU_NODE_ADDR_LEN);
    return UCS_OK;
}

static ucs_status_t uct_utofu_iface_get_address(uct_iface_h tl_iface,
                                                uct_iface_addr_t *addr)
{
    uct_utofu_iface_t *iface = (uct_utofu_iface_t*)tl_iface;

    tofu_iface_get_address(iface->iface, addr);
    return UCS_OK;
}

int uct_utofu_iface_addr_is_reachable(uct_utofu_iface_t *iface,
                                      const void *device_addr,
                                      size_t device_addr_len,
                                      const void *iface_addr,
                                      size_t iface_addr_len, char *reason,
                                      size_t reason_size)
{
    size_t core_len = iface->attr.device_addr_len;

    /* A length of 0 means that it is not known. */
    if ((device_addr_len != 0) &&
        (device_addr_len != (core_len + UCT_UTOFU_NODE_ADDR_LEN))) {
        snprintf(reason, reason_size,
                 "device address has %zu bytes, expected %zu", device_addr_len,
                 core_len + UCT_UTOFU_NODE_ADDR_LEN);
        return 0;
    }

    return tofu_iface_is_reachable(iface->iface, device_addr,
                                   (device_addr_len == 0) ? 0 : core_len,
                                   iface_addr, iface_addr_len, reason,
                                   reason_size);
}

static int
uct_utofu_iface_is_reachable_v2(const uct_iface_h tl_iface,
                                const uct_iface_is_reachable_params_t *params)
{
    uct_utofu_iface_t *iface = (uct_utofu_iface_t*)tl_iface;
    uct_utofu_md_t *md       = (uct_utofu_md_t*)iface->super.md;
    const void *device_addr  = NULL;
    const void *iface_addr   = NULL;
    size_t device_addr_len   = 0;
    size_t iface_addr_len    = 0;
    char reason[256]         = "";
    int reachable            = 0;
    const uint8_t *coords;

    if (params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR) {
        device_addr = params->device_addr;
    }
    if (params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR) {
        iface_addr = params->iface_addr;
    }
    if (params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR_LENGTH) {
        device_addr_len = params->device_addr_length;
        if (device_addr_len == 0) {
            device_addr = NULL;
        }
    }
    if (params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR_LENGTH) {
        iface_addr_len = params->iface_addr_length;
        if (iface_addr_len == 0) {
            iface_addr = NULL;
        }
    }

    if (device_addr == NULL) {
        snprintf(reason, sizeof(reason), "no device address");
        goto out;
    }

    if (!uct_utofu_iface_addr_is_reachable(iface, device_addr, device_addr_len,
                                           iface_addr, iface_addr_len, reason,
                                           sizeof(reason))) {
        goto out;
    }

    if ((params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_SCOPE) &&
        (params->scope == UCT_IFACE_REACHABILITY_SCOPE_DEVICE)) {
        coords = (const uint8_t*)device_addr + iface->attr.device_addr_len;
        if (memcmp(coords, md->coords, UCT_UTOFU_NODE_ADDR_LEN)) {
            snprintf(reason, sizeof(reason),
                     "on another node: %u.%u.%u.%u.%u.%u, here is "
                     "%u.%u.%u.%u.%u.%u", coords[0], coords[1], coords[2],
                     coords[3], coords[4], coords[5], md->coords[0],
                     md->coords[1], md->coords[2], md->coords[3],
                     md->coords[4], md->coords[5]);
            goto out;
        }
    }

    reachable = 1;

out:
    if (!reachable &&
        (params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING) &&
        (params->field_mask &
         UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH) &&
        (params->info_string != NULL) && (params->info_string_length > 0)) {
        snprintf(params->info_string, params->info_string_length, "%s", reason);
    }
    return reachable;
}

/* --------------------------------------------------------- progress and flush */

static unsigned uct_utofu_iface_progress(uct_iface_h tl_iface)
{
    return tofu_iface_progress(((uct_utofu_iface_t*)tl_iface)->iface);
}

static ucs_status_t uct_utofu_iface_flush(uct_iface_h tl_iface, unsigned flags,
                                          uct_completion_t *comp)
{
    tofu_status_t status;

    if (flags & UCT_FLUSH_FLAG_CANCEL) {
        return UCS_ERR_UNSUPPORTED;
    }
    /* The failure of an endpoint is told by its error handler, its completions and
     * its own flush.  The interface is flushed all the same. */
    status = tofu_iface_flush(((uct_utofu_iface_t*)tl_iface)->iface,
                              TOFU_FLUSH_QUIET, (tofu_completion_t*)comp);
    /* Callers without a completion ask again until it is done, and know no other
     * answer than "not yet". */
    if ((status == TOFU_ERR_NO_RESOURCE) && (comp == NULL)) {
        return UCS_INPROGRESS;
    }
    return uct_utofu_status(status);
}

static ucs_status_t uct_utofu_iface_fence(uct_iface_h tl_iface, unsigned flags)
{
    (void)flags;
    return uct_utofu_status(
            tofu_iface_fence(((uct_utofu_iface_t*)tl_iface)->iface));
}

static ucs_status_t uct_utofu_iface_event_fd_get(uct_iface_h tl_iface,
                                                 int *fd_p)
{
    return uct_utofu_status(
            tofu_iface_event_fd(((uct_utofu_iface_t*)tl_iface)->iface, fd_p));
}

static ucs_status_t uct_utofu_iface_event_arm(uct_iface_h tl_iface,
                                              unsigned events)
{
    return uct_utofu_status(
            tofu_iface_event_arm(((uct_utofu_iface_t*)tl_iface)->iface,
                                 events));
}

static void uct_utofu_iface_vfs_refresh(uct_iface_h tl_iface)
{
    (void)tl_iface;
}

/* ------------------------------------------------------------ open and close */

_Static_assert((int)TOFU_CB_DESC == (int)UCT_CB_PARAM_FLAG_DESC, "flag of a callback");

/* UCT's table entry is the argument: it holds the user's handler, or UCX's own
 * one that reports a message without handler. */
static int8_t uct_utofu_iface_am(void *arg, void *data, size_t length,
                                 unsigned flags)
{
    const uct_am_handler_t *handler = arg;

    return handler->cb(handler->arg, data, length, flags);
}

/* What uct_iface_release_desc calls. */
static void uct_utofu_iface_release_desc(uct_recv_desc_t *self, void *desc)
{
    uct_utofu_iface_t *iface = ucs_container_of(self, uct_utofu_iface_t,
                                                release);

    tofu_iface_release_desc(iface->iface, desc); /* reports what is wrong */
}

ucs_status_t uct_utofu_iface_open(uct_md_h tl_md, uct_worker_h worker,
                                  const uct_iface_params_t *params,
                                  const uct_iface_config_t *tl_config,
                                  uct_iface_h *iface_p)
{
    const uct_utofu_iface_config_t *config = (const void*)tl_config;
    uct_utofu_md_t *md                     = (uct_utofu_md_t*)tl_md;
    int init_count                         = 1;
    tofu_iface_config_t core_config;
    tofu_status_t tofu_status;
    uct_utofu_iface_t *iface;
    ucs_status_t status;
    void *memory;
    uint8_t id;

    status = uct_utofu_iface_check_params(worker, params);
    if (status != UCS_OK) {
        goto err;
    }

    if (posix_memalign(&memory, 256, sizeof(*iface)) != 0) {
        uct_utofu_error("interface %s: out of memory", UCT_UTOFU_DEVICE_NAME);
        status = UCS_ERR_NO_MEMORY;
        goto err;
    }
    iface = memset(memory, 0, sizeof(*iface));

    status = uct_utofu_api.uct_base_iface_t_init(
            &iface->super, uct_utofu_api.uct_base_iface_t_class, &init_count,
            &uct_utofu_iface_ops.ops, &uct_utofu_iface_internal_ops.ops, tl_md,
            worker, params, tl_config);
    if (status != UCS_OK) {
        goto err_cleanup;
    }

    tofu_iface_config_default(&core_config);
    core_config.err_cb  = uct_utofu_ep_failed;
    core_config.err_arg = iface;
    core_config.rx_desc = &iface->release; /* of messages that are kept */
    iface->release.cb   = uct_utofu_iface_release_desc;
    status = uct_utofu_iface_config_core(config, params, &core_config);
    if (status != UCS_OK) {
        goto err_cleanup;
    }

    tofu_status = tofu_iface_open(md->md, &core_config, &iface->iface);
    if (tofu_status != TOFU_OK) {
        uct_utofu_error("interface %s: %s", UCT_UTOFU_DEVICE_NAME,
                        tofu_status_string(tofu_status));
        status = uct_utofu_status(tofu_status);
        goto err_cleanup;
    }

    if (uct_utofu_is_traced()) {
        iface->traced = calloc(UCT_AM_ID_MAX, sizeof(*iface->traced));
        if (iface->traced == NULL) {
            status = UCS_ERR_NO_MEMORY;
            goto err_close;
        }
    }
    for (id = 0; id < UCT_AM_ID_MAX; ++id) {
        if (iface->traced != NULL) {
            iface->traced[id] = (struct uct_utofu_traced_id){iface, id};
            tofu_status = tofu_iface_set_am_handler(iface->iface, id,
                                                    uct_utofu_traced_am,
                                                    &iface->traced[id]);
        } else {
            tofu_status = tofu_iface_set_am_handler(iface->iface, id,
                                                    uct_utofu_iface_am,
                                                    &iface->super.am[id]);
        }
        if (tofu_status != TOFU_OK) {
            uct_utofu_error("interface %s: AM handler %u: %s",
                            UCT_UTOFU_DEVICE_NAME, id,
                            tofu_status_string(tofu_status));
            status = uct_utofu_status(tofu_status);
            goto err_close;
        }
    }

    tofu_iface_query(iface->iface, &iface->attr);
    uct_utofu_iface_config_attr(config, &iface->attr);
    /* A network interface is shared by the processes of a node; the emulator's
     * limit is the copying of each process. */
    iface->shared_bandwidth = (md->attr.backend->kind == TOFU_BACKEND_TOFU);

    iface->stats = config->stats;

    *iface_p = &iface->super.super;
    return UCS_OK;

err_close:
    tofu_iface_close(iface->iface);
    free(iface->traced);
err_cleanup:
    uct_utofu_api.ucs_class_call_cleanup_chain(
            uct_utofu_api.uct_base_iface_t_class, &iface->super, init_count);
    free(iface);
err:
    return status;
}

static void uct_utofu_iface_close(uct_iface_h tl_iface)
{
    uct_utofu_iface_t *iface = (uct_utofu_iface_t*)tl_iface;

    uct_utofu_api.uct_base_iface_progress_disable(tl_iface,
                                                  UCT_PROGRESS_SEND |
                                                  UCT_PROGRESS_RECV);
    if (iface->stats) {
        uct_utofu_stats_print(iface->iface);
    }
    tofu_iface_close(iface->iface);
    free(iface->traced);
    uct_utofu_api.ucs_class_call_cleanup_chain(
            uct_utofu_api.uct_base_iface_t_class, &iface->super, -1);
    free(iface);
}

void uct_utofu_iface_ops_init(void)
{
    uct_iface_ops_t *ops          = &uct_utofu_iface_ops.ops;
    uct_iface_internal_ops_t *iop = &uct_utofu_iface_internal_ops.ops;

    uct_utofu_ops_fill(&uct_utofu_iface_ops, sizeof(uct_utofu_iface_ops));
    uct_utofu_ep_ops_init(ops);
    if (uct_utofu_is_traced()) {
        uct_utofu_trace_ops(ops);
    }
    ops->iface_flush              = uct_utofu_iface_flush;
    ops->iface_fence              = uct_utofu_iface_fence;
    ops->iface_progress_enable    = uct_utofu_api.uct_base_iface_progress_enable;
    ops->iface_progress_disable   = uct_utofu_api.uct_base_iface_progress_disable;
    ops->iface_progress           = uct_utofu_iface_progress;
    ops->iface_event_fd_get       = uct_utofu_iface_event_fd_get;
    ops->iface_event_arm          = uct_utofu_iface_event_arm;
    ops->iface_close              = uct_utofu_iface_close;
    ops->iface_query              = uct_utofu_iface_query;
    ops->iface_get_device_address = uct_utofu_iface_get_device_address;
    ops->iface_get_address        = uct_utofu_iface_get_address;
    ops->iface_is_reachable       = uct_utofu_api.uct_base_iface_is_reachable;

    uct_utofu_ops_fill(&uct_utofu_iface_internal_ops,
                       sizeof(uct_utofu_iface_internal_ops));
    iop->iface_query_v2           = uct_utofu_iface_query_v2;
    iop->iface_estimate_perf      = uct_utofu_iface_estimate_perf;
    iop->iface_vfs_refresh        = uct_utofu_iface_vfs_refresh;
    iop->ep_query                 = uct_utofu_ep_query;
    iop->ep_invalidate            = uct_utofu_ep_invalidate;
    iop->iface_is_reachable_v2    = uct_utofu_iface_is_reachable_v2;
    iop->ep_is_connected          = uct_utofu_ep_is_connected;
}
