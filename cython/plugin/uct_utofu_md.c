/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory domain and remote keys.  A memory handle of UCT is the core's
 * tofu_mem_t, a remote key its tofu_rkey_t: neither is wrapped, so that the
 * data path passes them on as they are.
 */
#include "uct_utofu.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define UCT_UTOFU_HOST_MEMORY UCS_BIT(UCS_MEMORY_TYPE_HOST)

static struct {
    uct_md_ops_t ops;
    void         *spare[UCT_UTOFU_OPS_SPARE];
} uct_utofu_md_ops;


/* An empty choice leaves the decision to the loader. */
static int uct_utofu_backend_load(const char *choice,
                                  const struct tofu_backend **backend_p,
                                  char *err, size_t err_size)
{
    if ((choice != NULL) && (choice[0] == '\0')) {
        choice = NULL;
    }
    return tofu_backend_load(choice, backend_p, err, err_size);
}

ucs_status_t uct_utofu_query_md_resources(uct_component_t *component,
                                          uct_md_resource_desc_t **resources_p,
                                          unsigned *num_resources_p)
{
    static char reported;
    const struct tofu_backend *backend;
    uct_utofu_md_config_t config;
    char err[1024] = "";
    ucs_status_t status;
    int ret;

    /* The query has no configuration as an argument, but the choice of the
     * library decides whether there is a domain at all. */
    memset(&config, 0, sizeof(config));
    status = uct_utofu_api.ucs_config_parser_fill_opts(&config,
                                                       &component->md_config,
                                                       UCS_DEFAULT_ENV_PREFIX,
                                                       0);
    if (status != UCS_OK) {
        goto out_empty; /* the parser has logged which value is wrong */
    }

    ret = uct_utofu_backend_load(config.backend, &backend, err, sizeof(err));
    uct_utofu_api.ucs_config_parser_release_opts(&config,
                                                 component->md_config.table);
    if (ret != 0) {
        if (!__atomic_test_and_set(&reported, __ATOMIC_RELAXED)) {
            uct_utofu_diag("no uTofu library, the utofu transport is not "
                           "available: %s", err);
        }
        goto out_empty;
    }

    return uct_utofu_api.uct_md_query_single_md_resource(component, resources_p,
                                                         num_resources_p);

out_empty:
    *resources_p     = NULL;
    *num_resources_p = 0;
    return UCS_OK;
}

static void uct_utofu_md_close(uct_md_h tl_md)
{
    uct_utofu_md_t *md = (uct_utofu_md_t*)tl_md;

    tofu_md_close(md->md);
    free(md);
}

static ucs_status_t uct_utofu_md_query(uct_md_h tl_md,
                                       uct_md_attr_v2_t *md_attr)
{
    uct_utofu_md_t *md = (uct_utofu_md_t*)tl_md;

    uct_utofu_api.uct_md_base_md_query(md_attr);
    md_attr->flags            = UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_REG |
                                UCT_MD_FLAG_NEED_MEMH | UCT_MD_FLAG_NEED_RKEY |
                                UCT_MD_FLAG_INVALIDATE |
                                UCT_MD_FLAG_INVALIDATE_RMA |
                                UCT_MD_FLAG_INVALIDATE_AMO;
    md_attr->max_alloc        = md->attr.max_alloc;
    md_attr->max_reg          = md->attr.max_reg;
    md_attr->reg_mem_types    = UCT_UTOFU_HOST_MEMORY;
    md_attr->alloc_mem_types  = UCT_UTOFU_HOST_MEMORY;
    md_attr->access_mem_types = UCT_UTOFU_HOST_MEMORY;
    /* Registration enters the kernel and pins pages: keep it. */
    md_attr->cache_mem_types  = UCT_UTOFU_HOST_MEMORY;
    md_attr->reg_cost.c       = md->attr.reg_overhead;
    md_attr->reg_cost.m       = md->attr.reg_growth;
    md_attr->rkey_packed_size = md->attr.rkey_packed_size;

    /* A node of a network; what follows the text is zero. */
    memset(md_attr->global_id, 0, sizeof(md_attr->global_id));
    snprintf(md_attr->global_id, sizeof(md_attr->global_id),
             "utofu-%016llx-%u.%u.%u.%u.%u.%u",
             (unsigned long long)md->attr.backend->network_id, md->coords[0],
             md->coords[1], md->coords[2], md->coords[3], md->coords[4],
             md->coords[5]);
    return UCS_OK;
}

static ucs_status_t
uct_utofu_mem_alloc(uct_md_h tl_md, size_t *length_p, void **address_p,
                    ucs_memory_type_t mem_type, ucs_sys_device_t sys_dev,
                    unsigned flags, const char *alloc_name, uct_mem_h *memh_p)
{
    uct_utofu_md_t *md = (uct_utofu_md_t*)tl_md;
    size_t length      = *length_p;
    tofu_status_t status;
    tofu_mem_t *memh;
    void *address;

    (void)sys_dev;
    if ((mem_type != UCS_MEMORY_TYPE_HOST) || (flags & UCT_MD_MEM_FLAG_FIXED)) {
        return UCS_ERR_UNSUPPORTED;
    }

    uct_utofu_log_hide_errors = flags & UCT_MD_MEM_FLAG_HIDE_ERRORS;
    status = tofu_mem_alloc(md->md, &length, 0, &address, &memh);
    uct_utofu_log_hide_errors = 0;
    if (status != TOFU_OK) {
        uct_utofu_debug("tofu_mem_alloc(%s, %zu bytes) failed: %s",
                        (alloc_name == NULL) ? "" : alloc_name, length,
                        tofu_status_string(status));
        return uct_utofu_status(status);
    }

    *length_p  = length;
    *address_p = address;
    *memh_p    = memh;
    return UCS_OK;
}

static ucs_status_t uct_utofu_mem_free(uct_md_h tl_md, uct_mem_h memh)
{
    (void)tl_md;
    return uct_utofu_status(tofu_mem_free(memh));
}

/* No access flag at all is how older programs ask for every access. */
static unsigned uct_utofu_mem_flags(uint64_t uct_flags)
{
    const uint64_t write = UCT_MD_MEM_ACCESS_REMOTE_PUT |
                           UCT_MD_MEM_ACCESS_REMOTE_ATOMIC |
                           UCT_MD_MEM_ACCESS_LOCAL_WRITE;
    const uint64_t read  = UCT_MD_MEM_ACCESS_REMOTE_GET |
                           UCT_MD_MEM_ACCESS_LOCAL_READ;

    return ((uct_flags & read) && !(uct_flags & write)) ? TOFU_MEM_READ_ONLY :
                                                          0;
}

/* Is it registered because the program says so (ucp_mem_map: a window, a heap), for
 * peers to reach it?  That is for puts and gets, or for atomics.  What UCP registers for a
 * single transfer, it is no failure when that can't be had; unless its cache puts it
 * together with what was registered before, which may have been for puts only (the
 * receiver's side of a rendezvous).  And who asks for it not to block has no time. */
static int uct_utofu_mem_is_lasting(uint64_t uct_flags)
{
    const uint64_t both = UCT_MD_MEM_ACCESS_REMOTE_PUT |
                          UCT_MD_MEM_ACCESS_REMOTE_GET;

    return ((uct_flags & UCT_MD_MEM_ACCESS_REMOTE_ATOMIC) ||
            ((uct_flags & both) == both)) &&
           !(uct_flags & (UCT_MD_MEM_FLAG_HIDE_ERRORS |
                          UCT_MD_MEM_FLAG_NONBLOCK));
}

static ucs_status_t uct_utofu_mem_reg(uct_md_h tl_md, void *address,
                                      size_t length,
                                      const uct_md_mem_reg_params_t *params,
                                      uct_mem_h *memh_p)
{
    uct_utofu_md_t *md = (uct_utofu_md_t*)tl_md;
    uint64_t flags     = (params->field_mask & UCT_MD_MEM_REG_FIELD_FLAGS) ?
                         params->flags : 0;
    tofu_status_t status;
    tofu_mem_t *memh;

    if (((params->field_mask & UCT_MD_MEM_REG_FIELD_MEM_TYPE) &&
         (params->mem_type != UCS_MEMORY_TYPE_HOST)) ||
        ((params->field_mask & UCT_MD_MEM_REG_FIELD_DMABUF_FD) &&
         (params->dmabuf_fd != UCT_DMABUF_FD_INVALID)) ||
        (flags & UCT_MD_MEM_GVA)) {
        return UCS_ERR_UNSUPPORTED;
    }

    /* Whether a key of it will have to be invalidated is not told now, and UCX
     * keeps registrations itself: nothing is lost by sharing none.  UCP asks for every
     * access, also to memory that is only sent from and can't be written. */
    uct_utofu_log_hide_errors = !!(flags & UCT_MD_MEM_FLAG_HIDE_ERRORS);
    status = tofu_mem_reg(md->md, address, length,
                          uct_utofu_mem_flags(flags) | TOFU_MEM_EXCLUSIVE |
                          TOFU_MEM_AS_IT_IS |
                          (uct_utofu_mem_is_lasting(flags) ? TOFU_MEM_MOVABLE :
                                                             0),
                          &memh);
    uct_utofu_log_hide_errors = 0;
    if (status != TOFU_OK) {
        return uct_utofu_status(status);
    }

    *memh_p = memh;
    return UCS_OK;
}

static ucs_status_t
uct_utofu_mem_dereg(uct_md_h tl_md, const uct_md_mem_dereg_params_t *params)
{
    uct_completion_t *comp = NULL;
    tofu_status_t status;

    (void)tl_md;
    if (!(params->field_mask & UCT_MD_MEM_DEREG_FIELD_MEMH) ||
        (params->memh == NULL)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (!(params->field_mask & UCT_MD_MEM_DEREG_FIELD_FLAGS) ||
        !(params->flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE)) {
        return uct_utofu_status(tofu_mem_dereg(params->memh));
    }

    if (params->field_mask & UCT_MD_MEM_DEREG_FIELD_COMPLETION) {
        comp = params->comp;
    }
    if (comp == NULL) {
        uct_utofu_debug("mem_dereg with invalidation needs a completion");
        return UCS_ERR_INVALID_PARAM;
    }
    status = tofu_mem_invalidate(params->memh);
    if (status == TOFU_OK) {
        /* Before the return: the caller's completion may be on its stack. */
        if (--comp->count == 0) {
            comp->func(comp);
        }
    }
    return uct_utofu_status(status);
}

static ucs_status_t uct_utofu_mkey_pack(uct_md_h tl_md, uct_mem_h memh,
                                        void *address, size_t length,
                                        const uct_md_mkey_pack_params_t *params,
                                        void *buffer)
{
    (void)tl_md;
    (void)address; /* the key is that of the whole registration */
    (void)length;
    if ((params->field_mask & UCT_MD_MKEY_PACK_FIELD_FLAGS) &&
        (params->flags & ~(UCT_MD_MKEY_PACK_FLAG_INVALIDATE_RMA |
                           UCT_MD_MKEY_PACK_FLAG_INVALIDATE_AMO))) {
        return UCS_ERR_UNSUPPORTED; /* export: docs/uct.md */
    }
    /* Every key can be invalidated. */
    tofu_mkey_pack(memh, buffer);
    return UCS_OK;
}

ucs_status_t uct_utofu_rkey_unpack(uct_component_t *component,
                                   const void *rkey_buffer,
                                   const uct_rkey_unpack_params_t *params,
                                   uct_rkey_t *rkey_p, void **handle_p)
{
    tofu_status_t status;
    tofu_rkey_t *rkey;

    (void)component;
    (void)params; /* a system device has no meaning for host memory */
    status = tofu_rkey_unpack(rkey_buffer, 0, &rkey);
    if (status != TOFU_OK) {
        return uct_utofu_status(status);
    }

    *rkey_p   = (uct_rkey_t)rkey;
    *handle_p = NULL;
    return UCS_OK;
}

/* Only memory of this process has a pointer, so the component does not set
 * UCT_COMPONENT_FLAG_RKEY_PTR, which is for all keys. */
ucs_status_t uct_utofu_rkey_ptr(uct_component_t *component, uct_rkey_t rkey,
                                void *handle, uint64_t remote_addr,
                                void **local_addr_p)
{
    (void)component;
    (void)handle;
    return uct_utofu_status(tofu_rkey_ptr((const tofu_rkey_t*)rkey, remote_addr,
                                          local_addr_p));
}

ucs_status_t uct_utofu_rkey_release(uct_component_t *component, uct_rkey_t rkey,
                                    void *handle)
{
    (void)component;
    (void)handle;
    tofu_rkey_release((tofu_rkey_t*)rkey);
    return UCS_OK;
}

ucs_status_t uct_utofu_rkey_compare(uct_component_t *component,
                                    uct_rkey_t rkey1, uct_rkey_t rkey2,
                                    const uct_rkey_compare_params_t *params,
                                    int *result_p)
{
    (void)component;
    if ((params->field_mask != 0) || (result_p == NULL)) {
        return UCS_ERR_INVALID_PARAM;
    }
    *result_p = (rkey1 > rkey2) - (rkey1 < rkey2);
    return UCS_OK;
}

/* "all", or indices: 0,2-4 */
static int uct_utofu_parse_tnis(const char *text, unsigned *mask_p)
{
    unsigned long first, last;
    char *end;

    *mask_p = 0;
    if (!strcasecmp(text, "all")) {
        return 1;
    }
    for (;;) {
        if ((*text < '0') || (*text > '9')) {
            return 0;
        }
        first = last = strtoul(text, &end, 10);
        if ((end[0] == '-') && (end[1] >= '0') && (end[1] <= '9')) {
            last = strtoul(end + 1, &end, 10);
        }
        if ((first > last) || (last > 31)) {
            return 0;
        }
        for (; first <= last; ++first) {
            *mask_p |= 1u << first;
        }
        if (*end == '\0') {
            return 1;
        }
        if (*end != ',') {
            return 0;
        }
        text = end + 1;
    }
}

static ucs_status_t uct_utofu_md_core_config(const uct_utofu_md_config_t *config,
                                             tofu_md_config_t *core_config)
{
    tofu_md_config_default(core_config);
    if (config->tni != UCT_UTOFU_COUNT_AUTO) {
        if (config->tni > 31) {
            uct_utofu_error("UCX_UTOFU_TNI: TNI %lu, there are not that many",
                            config->tni);
            return UCS_ERR_INVALID_PARAM;
        }
        core_config->tni = config->tni;
    }
    if (config->max_cqs != UCT_UTOFU_COUNT_AUTO) {
        if ((config->max_cqs == 0) || ((config->max_cqs > UINT_MAX) &&
                                       (config->max_cqs != UCS_ULUNITS_INF))) {
            uct_utofu_error("UCX_UTOFU_MAX_CQS: %lu is not possible",
                            config->max_cqs);
            return UCS_ERR_INVALID_PARAM;
        }
        core_config->max_cqs = (unsigned)ucs_min(config->max_cqs, UINT_MAX);
    }
    if (config->max_vcqs < TOFU_VCQS_ALL) { /* auto and inf are more */
        core_config->max_vcqs = (unsigned)config->max_vcqs;
    }
    if (!uct_utofu_parse_tnis(config->tnis, &core_config->tni_mask)) {
        uct_utofu_error("UCX_UTOFU_TNIS: \"%s\" is neither \"all\" nor "
                        "indices as in 0,2-4", config->tnis);
        return UCS_ERR_INVALID_PARAM;
    }
    if (config->stripe_thresh != UCS_MEMUNITS_AUTO) {
        if (config->stripe_thresh == 0) {
            uct_utofu_error("UCX_UTOFU_STRIPE_THRESH: 0 is not possible");
            return UCS_ERR_INVALID_PARAM;
        }
        core_config->stripe_thresh = config->stripe_thresh;
    }
    return UCS_OK;
}

ucs_status_t uct_utofu_md_open(uct_component_t *component, const char *md_name,
                               const uct_md_config_t *tl_config, uct_md_h *md_p)
{
    const uct_utofu_md_config_t *config = (const void*)tl_config;
    const struct tofu_backend *backend;
    tofu_md_config_t core_config;
    tofu_status_t tofu_status;
    char err[1024] = "";
    ucs_status_t status;
    uct_utofu_md_t *md;
    int ret;

    uct_utofu_log_init(); /* the log level may have been set since the load */

    if (uct_utofu_backend_load(config->backend, &backend, err, sizeof(err))) {
        uct_utofu_error("memory domain %s: no uTofu library: %s", md_name, err);
        return UCS_ERR_NO_DEVICE;
    }

    md = calloc(1, sizeof(*md));
    if (md == NULL) {
        uct_utofu_error("memory domain %s: out of memory", md_name);
        return UCS_ERR_NO_MEMORY;
    }

    ret = backend->fn.query_my_coords(md->coords);
    if (ret != UTOFU_SUCCESS) {
        uct_utofu_error("utofu_query_my_coords returned %s",
                        tofu_code_name(ret));
        status = uct_utofu_status(tofu_status_from_code(ret));
        goto err_free;
    }

    status = uct_utofu_md_core_config(config, &core_config);
    if (status != UCS_OK) {
        goto err_free;
    }
    tofu_status = tofu_md_open(backend, &core_config, &md->md);
    if (tofu_status != TOFU_OK) {
        uct_utofu_error("memory domain %s on %s: %s", md_name, backend->path,
                        tofu_status_string(tofu_status));
        status = uct_utofu_status(tofu_status);
        goto err_free;
    }

    tofu_md_query(md->md, &md->attr);
    md->super.ops       = &uct_utofu_md_ops.ops;
    md->super.component = component;
    *md_p               = &md->super;
    uct_utofu_debug("memory domain %s on %s (%s)", md_name, backend->path,
                    backend->reason);
    return UCS_OK;

err_free:
    free(md);
    return status;
}

void uct_utofu_md_ops_init(void)
{
    uct_md_ops_t *ops = &uct_utofu_md_ops.ops;

    uct_utofu_ops_fill(&uct_utofu_md_ops, sizeof(uct_utofu_md_ops));
    ops->close     = uct_utofu_md_close;
    ops->query     = uct_utofu_md_query;
    ops->mem_alloc = uct_utofu_mem_alloc;
    ops->mem_free  = uct_utofu_mem_free;
    ops->mem_reg   = uct_utofu_mem_reg;
    ops->mem_dereg = uct_utofu_mem_dereg;
    ops->mkey_pack = uct_utofu_mkey_pack;
}
