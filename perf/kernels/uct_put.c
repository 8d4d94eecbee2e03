/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uct_put.c - put_zcopy on libuct with any transport and kind of memory.
 *
 * lat: ping-pong, the target polls the last byte, one operation in flight.
 * bw:  WINDOW operations in flight, flushed at the end.
 * ucx_perftest takes its memory from the md; this one registers memory that
 * the program has already.
 *
 * Usage: uct_put <cpu0> <cpu1> <memory> <size> <iterations> <lat|bw> <transport>
 *                <device>
 */
#define _GNU_SOURCE
#include "common.h"

#include <uct/api/uct.h>

#define WINDOW   16
#define ADDR_MAX 256

#define UCT_CHECK(_call) \
    do { \
        ucs_status_t _status = (_call); \
        PERF_CHECK(_status == UCS_OK, "%s: %s", #_call, \
                   ucs_status_string(_status)); \
    } while (0)

struct peer {
    char     device[ADDR_MAX], iface[ADDR_MAX], mkey[ADDR_MAX];
    uint64_t address;
};

static uct_component_h component;
static uct_md_h        md;
static uct_md_attr_t   md_attr;
static uct_iface_h     iface;
static uct_worker_h    worker;
static uct_ep_h        ep;
static int             in_flight;

static void on_done(uct_completion_t *comp)
{
    PERF_CHECK(comp->status == UCS_OK, "put_zcopy: %s",
               ucs_status_string(comp->status));
    comp->count = 1;
    --in_flight;
}

static int open_iface(uct_md_h candidate, const char *tl, const char *dev)
{
    uct_iface_params_t params = {
        .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                      UCT_IFACE_PARAM_FIELD_DEVICE,
        .open_mode  = UCT_IFACE_OPEN_MODE_DEVICE
    };
    uct_tl_resource_desc_t *resources;
    uct_iface_config_t     *config;
    unsigned               i, count;
    int                    found = 0;

    UCT_CHECK(uct_md_query_tl_resources(candidate, &resources, &count));
    for (i = 0; (i < count) && !found; ++i) {
        if (strcmp(resources[i].tl_name, tl) ||
            strcmp(resources[i].dev_name, dev)) {
            continue;
        }
        UCT_CHECK(uct_md_iface_config_read(candidate, tl, NULL, NULL, &config));
        params.mode.device.tl_name  = tl;
        params.mode.device.dev_name = dev;
        UCT_CHECK(uct_iface_open(candidate, worker, &params, config, &iface));
        uct_config_release(config);
        found = 1;
    }
    uct_release_tl_resource_list(resources);
    return found;
}

/* Open the md and iface of a transport on a device. */
static void open_transport(const char *tl, const char *dev)
{
    uct_component_h      *components;
    uct_component_attr_t attr;
    uct_md_config_t      *config;
    unsigned             i, j, count;

    UCT_CHECK(uct_query_components(&components, &count));
    for (i = 0; (i < count) && (iface == NULL); ++i) {
        component       = components[i];
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        UCT_CHECK(uct_component_query(component, &attr));
        attr.field_mask   = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        attr.md_resources = alloca(sizeof(*attr.md_resources) *
                                   (attr.md_resource_count + 1));
        UCT_CHECK(uct_component_query(component, &attr));
        for (j = 0; (j < attr.md_resource_count) && (iface == NULL); ++j) {
            UCT_CHECK(uct_md_config_read(component, NULL, NULL, &config));
            UCT_CHECK(uct_md_open(component, attr.md_resources[j].md_name,
                                  config, &md));
            uct_config_release(config);
            if (!open_iface(md, tl, dev)) {
                uct_md_close(md);
            }
        }
    }
    uct_release_component_list(components);
    PERF_CHECK(iface != NULL, "UCX has no transport %s on device %s", tl, dev);
    UCT_CHECK(uct_md_query(md, &md_attr));
}

static void put(uct_iov_t *iov, uint64_t address, uct_rkey_t rkey,
                uct_completion_t *comp, int window)
{
    ucs_status_t status;

    for (;;) {
        if (in_flight < window) {
            status = uct_ep_put_zcopy(ep, iov, 1, address, rkey, comp);
            if (status == UCS_INPROGRESS) {
                ++in_flight;
                return;
            } else if (status == UCS_OK) {
                return;
            }
            PERF_CHECK(status == UCS_ERR_NO_RESOURCE, "uct_ep_put_zcopy: %s",
                       ucs_status_string(status));
        }
        uct_worker_progress(worker);
    }
}

static void wait_for(const volatile uint8_t *last, uint8_t value)
{
    while (*last != value) {
        if (in_flight) {
            uct_worker_progress(worker);
        }
    }
}

static void flush(void)
{
    ucs_status_t status;

    do {
        uct_worker_progress(worker);
        status = uct_iface_flush(iface, 0, NULL);
    } while ((status == UCS_INPROGRESS) || (status == UCS_ERR_NO_RESOURCE));
    PERF_CHECK(status == UCS_OK, "uct_iface_flush: %s",
               ucs_status_string(status));
}

int main(int argc, char **argv)
{
    uct_completion_t     comps[WINDOW];
    uct_ep_params_t      ep_params = {0};
    struct peer          mine, peer;
    ucs_async_context_t  *async;
    struct perf_pair     pair;
    uct_iface_attr_t     iface_attr;
    uct_rkey_bundle_t    rkey;
    uct_mem_h            memh;
    uct_iov_t            iov;
    uint8_t              *memory, *out, value = 0;
    size_t               size, out_offset;
    long                 iterations, i;
    unsigned             count = 0;
    int                  is_bw, chunk;
    double               times[PERF_CHUNKS], start;

    PERF_CHECK(argc == 9,
               "usage: %s cpu0 cpu1 memory size iterations lat|bw transport "
               "device",
               argv[0]);
    size       = strtoull(argv[4], NULL, 0);
    iterations = (atol(argv[5]) + PERF_CHUNKS - 1) / PERF_CHUNKS;
    is_bw      = !strcmp(argv[6], "bw");
    PERF_CHECK((size > 0) && (iterations > 0), "size and iterations");
    perf_pair_start(&pair, atoi(argv[1]), atoi(argv[2]));

    UCT_CHECK(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async));
    UCT_CHECK(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker));
    open_transport(argv[7], argv[8]);
    UCT_CHECK(uct_iface_query(iface, &iface_attr));
    PERF_CHECK((iface_attr.cap.flags & UCT_IFACE_FLAG_PUT_ZCOPY) &&
               (iface_attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE),
               "%s has no put_zcopy", argv[7]);
    PERF_CHECK(size <= iface_attr.cap.put.max_zcopy, "max_zcopy of %s is %zu",
               argv[7], iface_attr.cap.put.max_zcopy);
    PERF_CHECK((iface_attr.iface_addr_len <= ADDR_MAX) &&
               (iface_attr.device_addr_len <= ADDR_MAX) &&
               (md_attr.rkey_packed_size <= ADDR_MAX),
               "addresses of %s are too long", argv[7]);
    uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);

    /* what comes in, and page-aligned behind it what goes out */
    out_offset = (size + 4095) & ~(size_t)4095;
    memory     = PERF_MEMORY(argv[3], out_offset + size);
    out        = memory + out_offset;
    memset(&mine, 0, sizeof(mine));
    mine.address = (uintptr_t)memory;
    memh         = UCT_MEM_HANDLE_NULL;
    if (md_attr.cap.flags & UCT_MD_FLAG_REG) {
        UCT_CHECK(uct_md_mem_reg(md, memory, out_offset + size,
                                 UCT_MD_MEM_ACCESS_ALL, &memh));
    }
    if (md_attr.cap.flags & UCT_MD_FLAG_NEED_RKEY) {
        UCT_CHECK(uct_md_mkey_pack(md, memh, mine.mkey));
    }
    UCT_CHECK(uct_iface_get_device_address(iface, (void*)mine.device));
    UCT_CHECK(uct_iface_get_address(iface, (void*)mine.iface));
    perf_exchange(&pair, &mine, &peer, sizeof(mine));

    ep_params.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                           UCT_EP_PARAM_FIELD_DEV_ADDR |
                           UCT_EP_PARAM_FIELD_IFACE_ADDR;
    ep_params.iface      = iface;
    ep_params.dev_addr   = (void*)peer.device;
    ep_params.iface_addr = (void*)peer.iface;
    UCT_CHECK(uct_ep_create(&ep_params, &ep));
    rkey.rkey = UCT_INVALID_RKEY;
    if (md_attr.cap.flags & UCT_MD_FLAG_NEED_RKEY) {
        UCT_CHECK(uct_rkey_unpack(component, peer.mkey, &rkey));
    }

    iov.buffer = out;
    iov.length = size;
    iov.memh   = memh;
    iov.stride = 0;
    iov.count  = 1;
    for (i = 0; i < WINDOW; ++i) {
        comps[i] = (uct_completion_t){.func   = on_done,
                                      .count  = 1,
                                      .status = UCS_OK};
    }
    for (chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        for (i = 0; i < iterations; ++i) {
            if (is_bw) {
                if (pair.rank == 0) {
                    /* completions come in order, so this one is free again */
                    put(&iov, peer.address, rkey.rkey,
                        &comps[count++ % WINDOW], WINDOW);
                }
                continue;
            }
            while (in_flight) { /* the buffer is not ours before */
                uct_worker_progress(worker);
            }
            value         = value % 251 + 1;
            out[size - 1] = value;
            if (pair.rank == 0) {
                put(&iov, peer.address, rkey.rkey, &comps[0], 1);
                wait_for(&memory[size - 1], value);
            } else {
                wait_for(&memory[size - 1], value);
                put(&iov, peer.address, rkey.rkey, &comps[0], 1);
            }
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    flush();
    if (pair.rank == 0) {
        perf_report(times, is_bw ? iterations : 2 * iterations);
    }
    while (in_flight) {
        uct_worker_progress(worker);
    }
    perf_barrier(&pair);
    if (rkey.rkey != UCT_INVALID_RKEY) {
        uct_rkey_release(component, &rkey);
    }
    uct_ep_destroy(ep);
    if (memh != UCT_MEM_HANDLE_NULL) {
        UCT_CHECK(uct_md_mem_dereg(md, memh));
    }
    uct_iface_close(iface);
    uct_md_close(md);
    uct_worker_destroy(worker);
    ucs_async_context_destroy(async);
    perf_barrier(&pair);
    return perf_pair_end(&pair);
}
