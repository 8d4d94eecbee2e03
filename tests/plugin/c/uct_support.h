/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the test programs on libuct share: bring-up of one interface, waiting
 * with a deadline, memory with guard zones, processes.
 */
#ifndef UCT_SUPPORT_H
#define UCT_SUPPORT_H

#include "uct_utofu_compat.h"

#include <uct/api/uct.h>
#include <ucs/async/async_fwd.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int uct_iface_is_reachable_v2(const uct_iface_h iface,
                              const uct_iface_is_reachable_params_t *params);
int uct_ep_is_connected(uct_ep_h ep,
                        const uct_ep_is_connected_params_t *params);
ucs_status_t uct_iface_query_v2(uct_iface_h iface, uct_iface_attr_v2_t *attr);
ucs_status_t uct_iface_estimate_perf(uct_iface_h iface, uct_perf_attr_t *attr);
ucs_status_t uct_ep_query(uct_ep_h ep, uct_ep_attr_t *attr);
ucs_status_t uct_md_query_v2(uct_md_h md, uct_md_attr_v2_t *attr);
ucs_status_t uct_rkey_compare(uct_component_h component, uct_rkey_t rkey1,
                              uct_rkey_t rkey2,
                              const uct_rkey_compare_params_t *params,
                              int *result);
ucs_status_t uct_md_mem_reg_v2(uct_md_h md, void *address, size_t length,
                               const uct_md_mem_reg_params_t *params,
                               uct_mem_h *memh_p);
ucs_status_t uct_md_mem_dereg_v2(uct_md_h md,
                                 const uct_md_mem_dereg_params_t *params);

#define DIE(_fmt, ...) \
    do { \
        fprintf(stderr, "%s:%d: " _fmt "\n", __FILE__, __LINE__, \
                ##__VA_ARGS__); \
        exit(1); \
    } while (0)
#define CHECK(_cond) \
    do { \
        if (!(_cond)) { \
            DIE("not true: %s", #_cond); \
        } \
    } while (0)
#define CHECK_STATUS(_call, _expected) \
    do { \
        ucs_status_t _s = (_call); \
        if (_s != (_expected)) { \
            DIE("%s: %s, expected %s", #_call, ucs_status_string(_s), \
                ucs_status_string(_expected)); \
        } \
    } while (0)
#define CHECK_OK(_call) CHECK_STATUS(_call, UCS_OK)

#define DEADLINE 20.0 /* seconds that anything may take */

static inline double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

/* ------------------------------------------------------------------ bring-up */

struct node {
    ucs_async_context_t *async;
    uct_component_h     component;
    uct_worker_h        worker;
    uct_md_h            md;
    uct_md_attr_t       md_attr;
    uct_iface_h         iface;
    uct_iface_attr_t    attr;
};

struct address {
    uint8_t device[256];
    uint8_t iface[256];
};

static uct_component_h find_component(void)
{
    uct_component_attr_t attr;
    uct_component_h *components, found = NULL;
    unsigned i, count;

    CHECK_OK(uct_query_components(&components, &count));
    for (i = 0; i < count; ++i) {
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                          UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        CHECK_OK(uct_component_query(components[i], &attr));
        if (!strcmp(attr.name, "utofu")) {
            CHECK(attr.md_resource_count == 1);
            found = components[i];
        }
    }
    uct_release_component_list(components);
    CHECK(found != NULL);
    return found;
}

static inline void node_open_md(struct node *node)
{
    uct_md_config_t *config;

    CHECK_OK(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK,
                                      &node->async));
    CHECK_OK(uct_worker_create(node->async, UCS_THREAD_MODE_SINGLE,
                               &node->worker));
    node->component = find_component();
    CHECK_OK(uct_md_config_read(node->component, NULL, NULL, &config));
    CHECK_OK(uct_md_open(node->component, "utofu", config, &node->md));
    uct_config_release(config);
    CHECK_OK(uct_md_query(node->md, &node->md_attr));
}

/* params: what there is to say beside mode and device. */
static inline void node_open_iface_params(struct node *node,
                                          uct_iface_params_t *params)
{
    uct_iface_config_t *config;

    params->field_mask          |= UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                                   UCT_IFACE_PARAM_FIELD_DEVICE;
    params->open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    params->mode.device.tl_name  = "utofu";
    params->mode.device.dev_name = "tofu0";
    CHECK_OK(uct_md_iface_config_read(node->md, "utofu", NULL, NULL, &config));
    CHECK_OK(uct_iface_open(node->md, node->worker, params, config,
                            &node->iface));
    uct_config_release(config);
    uct_iface_progress_enable(node->iface,
                              UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    CHECK_OK(uct_iface_query(node->iface, &node->attr));
    CHECK(node->attr.device_addr_len <= sizeof(((struct address*)0)->device));
    CHECK(node->attr.iface_addr_len <= sizeof(((struct address*)0)->iface));
}

static inline void node_open_iface(struct node *node, uct_error_handler_t handler,
                                   void *arg)
{
    uct_iface_params_t params;

    memset(&params, 0, sizeof(params));
    params.field_mask      = UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                             UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG;
    params.err_handler     = handler;
    params.err_handler_arg = arg;
    node_open_iface_params(node, &params);
}

static inline void node_open(struct node *node, uct_error_handler_t handler,
                             void *arg)
{
    node_open_md(node);
    node_open_iface(node, handler, arg);
}

static inline void node_close(struct node *node)
{
    uct_iface_close(node->iface);
    uct_md_close(node->md);
    uct_worker_destroy(node->worker);
    ucs_async_context_destroy(node->async);
}

static inline void node_address(struct node *node, struct address *address)
{
    memset(address, 0, sizeof(*address));
    CHECK_OK(uct_iface_get_device_address(
            node->iface, (uct_device_addr_t*)address->device));
    CHECK_OK(uct_iface_get_address(node->iface,
                                   (uct_iface_addr_t*)address->iface));
}

static inline ucs_status_t try_connect(struct node *node,
                                       const struct address *address,
                                       size_t device_len, size_t iface_len,
                                       uct_ep_h *ep_p)
{
    uct_ep_params_t params;

    memset(&params, 0, sizeof(params));
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                        UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface      = node->iface;
    params.dev_addr   = (const uct_device_addr_t*)address->device;
    params.iface_addr = (const uct_iface_addr_t*)address->iface;
    if (device_len != 0) {
        params.field_mask     |= UCT_EP_PARAM_FIELD_DEV_ADDR_LENGTH;
        params.dev_addr_length = device_len;
    }
    if (iface_len != 0) {
        params.field_mask       |= UCT_EP_PARAM_FIELD_IFACE_ADDR_LENGTH;
        params.iface_addr_length = iface_len;
    }
    return uct_ep_create(&params, ep_p);
}

static inline uct_ep_h node_connect(struct node *node,
                                    const struct address *address)
{
    uct_ep_h ep;

    CHECK_OK(try_connect(node, address, 0, 0, &ep));
    return ep;
}

/* --------------------------------------------------------- waiting, completion */

struct comp {
    uct_completion_t super;
    int              calls;
};

static void comp_cb(uct_completion_t *self)
{
    ++((struct comp*)self)->calls;
}

static inline void comp_init(struct comp *comp)
{
    comp->super.func   = comp_cb;
    comp->super.count  = 1;
    comp->super.status = UCS_OK;
    comp->calls        = 0;
}

/* Progress of up to two nodes until the condition holds. */
#define WAIT(_node1, _node2, _cond) \
    do { \
        struct node *_n1 = (_node1), *_n2 = (_node2); \
        double _end      = now() + DEADLINE; \
        while (!(_cond)) { \
            uct_worker_progress(_n1->worker); \
            if (_n2 != NULL) { \
                uct_worker_progress(_n2->worker); \
            } \
            if (now() > _end) { \
                DIE("%g s are over: %s", DEADLINE, #_cond); \
            } \
        } \
    } while (0)

/* Repeat a call while it finds no resources. */
#define RETRY(_node1, _node2, _status, _call) \
    WAIT(_node1, _node2, ((_status) = (_call)) != UCS_ERR_NO_RESOURCE)

/* End of an operation that may complete at once or by its completion. */
static inline ucs_status_t finish(struct node *n1, struct node *n2,
                                  ucs_status_t status, struct comp *comp)
{
    if (status != UCS_INPROGRESS) {
        CHECK(comp->calls == 0);
        return status;
    }
    WAIT(n1, n2, comp->calls > 0);
    CHECK(comp->calls == 1);
    return comp->super.status;
}

static inline void flush_ep(struct node *n1, struct node *n2, uct_ep_h ep)
{
    struct comp comp;
    ucs_status_t status;

    comp_init(&comp);
    RETRY(n1, n2, status, uct_ep_flush(ep, 0, &comp.super));
    CHECK_OK(finish(n1, n2, status, &comp));
}

/* -------------------------------------------------------------------- memory */

#define GUARD 64 /* bytes before and after, which nothing may write */

struct region {
    uint8_t                *base; /* guard, data, guard */
    uint8_t                *data;
    size_t                 length;
    uct_mem_h              memh;
    uct_rkey_bundle_t      rkey;
    uct_allocated_memory_t mem;
    int                    from_md;
};

static inline uint8_t pattern(size_t i, unsigned seed)
{
    return (uint8_t)((i * 167) + (i >> 8) + (seed * 31) + 1);
}

static inline void region_fill(struct region *region, unsigned seed)
{
    size_t i;

    for (i = 0; i < region->length; ++i) {
        region->data[i] = pattern(i, seed);
    }
}

static inline void region_reset(struct region *region)
{
    memset(region->base, 0xee, region->length + (2 * GUARD));
}

/* [from, from + length) has the pattern's first bytes, all else is untouched. */
static inline void region_check(const struct region *region, size_t from,
                                size_t length, unsigned seed)
{
    size_t i, j;

    for (i = 0; i < (region->length + (2 * GUARD)); ++i) {
        j = i - GUARD - from;
        if ((i >= (GUARD + from)) && (j < length)) {
            if (region->base[i] != pattern(j, seed)) {
                DIE("byte %zu of %zu is 0x%x, expected 0x%x", j, length,
                    region->base[i], pattern(j, seed));
            }
        } else if (region->base[i] != 0xee) {
            DIE("byte at %zd of a transfer of %zu to offset %zu was written",
                (ssize_t)i - GUARD, length, from);
        }
    }
}

/* The guards belong to the registration, so only the transport's care, and not
 * a range check, keeps them intact. */
static inline void region_open(struct node *node, struct region *region,
                               size_t length, int from_md)
{
    uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params;
    size_t total = length + (2 * GUARD);
    uint8_t packed[256];

    region->length  = length;
    region->from_md = from_md;
    if (from_md) {
        memset(&params, 0, sizeof(params));
        params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                            UCT_MEM_ALLOC_PARAM_FIELD_MDS;
        params.flags      = UCT_MD_MEM_ACCESS_ALL;
        params.mds.mds    = &node->md;
        params.mds.count  = 1;
        CHECK_OK(uct_mem_alloc(total, &method, 1, &params, &region->mem));
        CHECK(region->mem.method == UCT_ALLOC_METHOD_MD);
        CHECK(region->mem.length >= total);
        region->base = region->mem.address;
        region->memh = region->mem.memh;
    } else {
        region->base = malloc(total);
        CHECK(region->base != NULL);
        CHECK_OK(uct_md_mem_reg(node->md, region->base, total,
                                UCT_MD_MEM_ACCESS_ALL, &region->memh));
    }
    region->data = region->base + GUARD;
    region_reset(region);
    CHECK(node->md_attr.rkey_packed_size <= sizeof(packed));
    CHECK_OK(uct_md_mkey_pack(node->md, region->memh, packed));
    CHECK_OK(uct_rkey_unpack(node->component, packed, &region->rkey));
}

static inline void region_close(struct node *node, struct region *region)
{
    CHECK_OK(uct_rkey_release(node->component, &region->rkey));
    if (region->from_md) {
        CHECK_OK(uct_mem_free(&region->mem));
    } else {
        CHECK_OK(uct_md_mem_dereg(node->md, region->memh));
        free(region->base);
    }
}

/* ----------------------------------------------------------------- processes */

static inline void send_all(int fd, const void *data, size_t length)
{
    CHECK(send(fd, data, length, MSG_NOSIGNAL) == (ssize_t)length);
}

static inline void recv_all(int fd, void *data, size_t length)
{
    ssize_t ret = recv(fd, data, length, MSG_WAITALL);

    if (ret != (ssize_t)length) {
        DIE("the peer is gone");
    }
}

/* Fork before UCX is touched; returns the pid in the parent and 0 in the child,
 * with one end of a socket pair in each. */
static inline pid_t fork_peer(int *fd_p)
{
    int fds[2];
    pid_t pid;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        *fd_p = fds[1];
    } else {
        close(fds[1]);
        *fd_p = fds[0];
    }
    return pid;
}

static inline void join_peer(pid_t pid)
{
    int wstatus;

    CHECK(waitpid(pid, &wstatus, 0) == pid);
    CHECK(WIFEXITED(wstatus) && (WEXITSTATUS(wstatus) == 0));
}

#endif /* UCT_SUPPORT_H */
