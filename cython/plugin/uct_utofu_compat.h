/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uct_utofu_compat.h - the internal structures of libuct 1.22.
 *
 * A transport has to fill structures that UCX does not install headers for.
 * They are written down here from their layout; every size and every offset
 * that we use is asserted below, and uct_utofu_guard.c refuses a libuct in
 * which they may differ.  Nothing else in this folder knows these layouts.
 *
 * The layouts are those of a build without statistics (ENABLE_STATS), which is
 * what binary packages of UCX are; the guard tells the two apart by the sizes
 * in the class descriptors.
 */
#ifndef UCT_UTOFU_COMPAT_H
#define UCT_UTOFU_COMPAT_H

#include <uct/api/uct.h>
#include <uct/api/version.h>
#include <ucs/config/parser.h>
#include <ucs/datastruct/list.h>
#include <ucs/datastruct/linear_func.h>
#include <ucs/sys/topo/base/topo.h>
#include <ucs/type/class.h>

#include <stddef.h>
#include <stdint.h>

#if (UCT_VERNO_MAJOR != 1) || (UCT_VERNO_MINOR != 22)
#error "the UCX plugin is written against the headers of UCX 1.22"
#endif

#ifndef UCT_MD_GLOBAL_ID_MAX
#define UCT_MD_GLOBAL_ID_MAX 256
#endif

/* ------------------------------------------------------------ component, tl */

typedef struct uct_component             uct_component_t;
typedef struct uct_rkey_unpack_params    uct_rkey_unpack_params_t;
typedef struct uct_rkey_compare_params   uct_rkey_compare_params_t;

struct uct_rkey_unpack_params {
    uint64_t         field_mask;
    ucs_sys_device_t sys_device;
};

struct uct_rkey_compare_params {
    uint64_t field_mask; /* no field is defined: must be 0 */
};

struct uct_component {
    char                           name[UCT_COMPONENT_NAME_MAX];
    ucs_status_t                   (*query_md_resources)(
            uct_component_t *component, uct_md_resource_desc_t **resources_p,
            unsigned *num_resources_p);
    ucs_status_t                   (*md_open)(uct_component_t *component,
                                              const char *md_name,
                                              const uct_md_config_t *config,
                                              uct_md_h *md_p);
    void                           (*cm_open)(void);
    ucs_status_t                   (*rkey_unpack)(
            uct_component_t *component, const void *rkey_buffer,
            const uct_rkey_unpack_params_t *params, uct_rkey_t *rkey_p,
            void **handle_p);
    ucs_status_t                   (*rkey_ptr)(uct_component_t *component,
                                               uct_rkey_t rkey, void *handle,
                                               uint64_t remote_addr,
                                               void **local_addr_p);
    ucs_status_t                   (*rkey_release)(uct_component_t *component,
                                                   uct_rkey_t rkey,
                                                   void *handle);
    ucs_status_t                   (*rkey_compare)(
            uct_component_t *component, uct_rkey_t rkey1, uct_rkey_t rkey2,
            const uct_rkey_compare_params_t *params, int *result);
    ucs_config_global_list_entry_t md_config;
    ucs_config_global_list_entry_t cm_config;
    ucs_list_link_t                tl_list;
    ucs_list_link_t                list;
    uint64_t                       flags;
    void                           (*md_vfs_init)(uct_md_h md);
};

typedef struct uct_tl_device_resource {
    char              name[UCT_DEVICE_NAME_MAX];
    uct_device_type_t type;
    ucs_sys_device_t  sys_device;
} uct_tl_device_resource_t;

typedef struct uct_tl {
    char                           name[UCT_TL_NAME_MAX];
    ucs_status_t                   (*query_devices)(
            uct_md_h md, uct_tl_device_resource_t **tl_devices_p,
            unsigned *num_tl_devices_p);
    ucs_status_t                   (*iface_open)(
            uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
            const uct_iface_config_t *config, uct_iface_h *iface_p);
    ucs_config_global_list_entry_t config;
    ucs_list_link_t                list;
} uct_tl_t;

/* ------------------------------------------------------------ memory domain */

struct uct_md_config {
    char dummy;
};

struct uct_md {
    uct_md_ops_t    *ops;
    uct_component_t *component;
};

typedef struct uct_md_attr_v2 {
    uint64_t          field_mask;
    uint64_t          max_alloc;
    size_t            max_reg;
    uint64_t          flags;
    uint64_t          reg_mem_types;
    uint64_t          reg_nonblock_mem_types;
    uint64_t          cache_mem_types;
    uint64_t          gva_mem_types;
    uint64_t          detect_mem_types;
    uint64_t          alloc_mem_types;
    uint64_t          access_mem_types;
    uint64_t          dmabuf_mem_types;
    ucs_linear_func_t reg_cost;
    char              component_name[UCT_COMPONENT_NAME_MAX];
    size_t            rkey_packed_size;
    ucs_cpu_set_t     local_cpus;
    size_t            exported_mkey_packed_size;
    char              global_id[UCT_MD_GLOBAL_ID_MAX];
    size_t            reg_alignment;
    uint8_t           required_mem_flags;
} uct_md_attr_v2_t;

enum {
    UCT_MD_MEM_REG_FIELD_FLAGS         = UCS_BIT(0),
    UCT_MD_MEM_REG_FIELD_DMABUF_FD     = UCS_BIT(1),
    UCT_MD_MEM_REG_FIELD_DMABUF_OFFSET = UCS_BIT(2),
    UCT_MD_MEM_REG_FIELD_MEM_TYPE      = UCS_BIT(3)
};

typedef struct uct_md_mem_reg_params {
    uint64_t          field_mask;
    uint64_t          flags;
    int               dmabuf_fd;
    size_t            dmabuf_offset;
    ucs_memory_type_t mem_type;
} uct_md_mem_reg_params_t;

enum {
    UCT_MD_MEM_DEREG_FIELD_MEMH       = UCS_BIT(0),
    UCT_MD_MEM_DEREG_FIELD_FLAGS      = UCS_BIT(1),
    UCT_MD_MEM_DEREG_FIELD_COMPLETION = UCS_BIT(2)
};

enum {
    UCT_MD_MEM_DEREG_FLAG_INVALIDATE = UCS_BIT(0)
};

typedef struct uct_md_mem_dereg_params {
    uint64_t         field_mask;
    unsigned         flags;
    uct_mem_h        memh;
    uct_completion_t *comp;
} uct_md_mem_dereg_params_t;

enum {
    UCT_MD_MKEY_PACK_FIELD_FLAGS = UCS_BIT(0)
};

enum {
    UCT_MD_MKEY_PACK_FLAG_INVALIDATE_RMA = UCS_BIT(0),
    UCT_MD_MKEY_PACK_FLAG_INVALIDATE_AMO = UCS_BIT(1),
    UCT_MD_MKEY_PACK_FLAG_EXPORT         = UCS_BIT(2)
};

/* Flags of a memory domain that the public headers stop short of. */
enum {
    UCT_MD_FLAG_INVALIDATE_RMA = UCS_BIT(11),
    UCT_MD_FLAG_INVALIDATE_AMO = UCS_BIT(12)
};
_Static_assert((int)UCT_MD_FLAG_INVALIDATE_RMA == (int)UCT_MD_FLAG_LAST,
               "they follow the public ones");

typedef struct uct_md_mkey_pack_params {
    uint64_t field_mask;
    unsigned flags;
} uct_md_mkey_pack_params_t;

struct uct_md_ops {
    void         (*close)(uct_md_h md);
    ucs_status_t (*query)(uct_md_h md, uct_md_attr_v2_t *md_attr);
    ucs_status_t (*mem_alloc)(uct_md_h md, size_t *length_p, void **address_p,
                              ucs_memory_type_t mem_type,
                              ucs_sys_device_t sys_dev, unsigned flags,
                              const char *alloc_name, uct_mem_h *memh_p);
    ucs_status_t (*mem_free)(uct_md_h md, uct_mem_h memh);
    void         (*mem_advise)(void);
    ucs_status_t (*mem_reg)(uct_md_h md, void *address, size_t length,
                            const uct_md_mem_reg_params_t *params,
                            uct_mem_h *memh_p);
    ucs_status_t (*mem_dereg)(uct_md_h md,
                              const uct_md_mem_dereg_params_t *params);
    void         (*mem_query)(void);
    ucs_status_t (*mkey_pack)(uct_md_h md, uct_mem_h memh, void *address,
                              size_t length,
                              const uct_md_mkey_pack_params_t *params,
                              void *buffer);
    void         (*mem_attach)(void);
    void         (*detect_memory_type)(void);
    void         (*mem_elem_pack)(void);
};

/* -------------------------------------------------------------------- iface */

struct uct_iface_config {
    struct {
        uct_alloc_method_t *methods;
        unsigned           count;
    } alloc_methods;
    int    failure;
    size_t max_num_eps;
};

enum {
    UCT_IFACE_ATTR_FIELD_MAX_PUT_SGL_ZCOPY_COUNT = UCS_BIT(0),
    UCT_IFACE_ATTR_FIELD_CAP_FLAGS               = UCS_BIT(1),
    UCT_IFACE_ATTR_FIELD_TX_TOKEN_LENGTH         = UCS_BIT(2),
    UCT_IFACE_ATTR_FIELD_RX_TOKEN_LENGTH         = UCS_BIT(3),
    UCT_IFACE_ATTR_FIELD_TX_TOKEN                = UCS_BIT(4),
    UCT_IFACE_ATTR_FIELD_RX_TOKEN                = UCS_BIT(5)
};

typedef struct uct_iface_attr_v2 {
    uint64_t field_mask;
    size_t   max_put_sgl_zcopy_count;
    struct {
        uint64_t flags;
    } cap;
    size_t   tx_token_length;
    size_t   rx_token_length;
    void     *tx_token;
    void     *rx_token;
} uct_iface_attr_v2_t;

typedef enum uct_ep_operation {
    UCT_EP_OP_AM_SHORT,
    UCT_EP_OP_AM_BCOPY,
    UCT_EP_OP_AM_ZCOPY,
    UCT_EP_OP_PUT_SHORT,
    UCT_EP_OP_PUT_BCOPY,
    UCT_EP_OP_PUT_ZCOPY,
    UCT_EP_OP_GET_SHORT,
    UCT_EP_OP_GET_BCOPY,
    UCT_EP_OP_GET_ZCOPY,
    UCT_EP_OP_EAGER_SHORT,
    UCT_EP_OP_EAGER_BCOPY,
    UCT_EP_OP_EAGER_ZCOPY,
    UCT_EP_OP_RNDV_ZCOPY,
    UCT_EP_OP_ATOMIC_POST,
    UCT_EP_OP_ATOMIC_FETCH,
    UCT_EP_OP_LAST
} uct_ep_operation_t;

enum {
    UCT_PERF_ATTR_FIELD_OPERATION          = UCS_BIT(0),
    UCT_PERF_ATTR_FIELD_LOCAL_MEMORY_TYPE  = UCS_BIT(1),
    UCT_PERF_ATTR_FIELD_REMOTE_MEMORY_TYPE = UCS_BIT(2),
    UCT_PERF_ATTR_FIELD_LOCAL_SYS_DEVICE   = UCS_BIT(3),
    UCT_PERF_ATTR_FIELD_REMOTE_SYS_DEVICE  = UCS_BIT(4),
    UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD  = UCS_BIT(5),
    UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD = UCS_BIT(6),
    UCT_PERF_ATTR_FIELD_RECV_OVERHEAD      = UCS_BIT(7),
    UCT_PERF_ATTR_FIELD_BANDWIDTH          = UCS_BIT(8),
    UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH     = UCS_BIT(9),
    UCT_PERF_ATTR_FIELD_LATENCY            = UCS_BIT(10),
    UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS   = UCS_BIT(11),
    UCT_PERF_ATTR_FIELD_FLAGS              = UCS_BIT(12)
};

typedef struct uct_perf_attr {
    uint64_t            field_mask;
    uct_ep_operation_t  operation;
    ucs_memory_type_t   local_memory_type;
    ucs_memory_type_t   remote_memory_type;
    ucs_sys_device_t    local_sys_device;
    ucs_sys_device_t    remote_sys_device;
    double              send_pre_overhead;  /* seconds, as all times here */
    double              send_post_overhead;
    double              recv_overhead;
    uct_ppn_bandwidth_t bandwidth;
    uct_ppn_bandwidth_t path_bandwidth;
    ucs_linear_func_t   latency;
    size_t              max_inflight_eps;
    uint64_t            flags;
} uct_perf_attr_t;

typedef enum uct_iface_reachability_scope {
    UCT_IFACE_REACHABILITY_SCOPE_DEVICE,
    UCT_IFACE_REACHABILITY_SCOPE_NETWORK
} uct_iface_reachability_scope_t;

enum {
    UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR        = UCS_BIT(0),
    UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR         = UCS_BIT(1),
    UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING        = UCS_BIT(2),
    UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH = UCS_BIT(3),
    UCT_IFACE_IS_REACHABLE_FIELD_SCOPE              = UCS_BIT(4),
    UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR_LENGTH = UCS_BIT(5),
    UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR_LENGTH  = UCS_BIT(6)
};

typedef struct uct_iface_is_reachable_params {
    uint64_t                       field_mask;
    const uct_device_addr_t        *device_addr;
    const uct_iface_addr_t         *iface_addr;
    char                           *info_string;
    size_t                         info_string_length;
    uct_iface_reachability_scope_t scope;
    size_t                         device_addr_length;
    size_t                         iface_addr_length;
} uct_iface_is_reachable_params_t;

enum {
    UCT_EP_IS_CONNECTED_FIELD_DEVICE_ADDR = UCS_BIT(0),
    UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR  = UCS_BIT(1),
    UCT_EP_IS_CONNECTED_FIELD_EP_ADDR     = UCS_BIT(2)
};

typedef struct uct_ep_is_connected_params {
    uint64_t                field_mask;
    const uct_device_addr_t *device_addr;
    const uct_iface_addr_t  *iface_addr;
    const uct_ep_addr_t     *ep_addr;
} uct_ep_is_connected_params_t;

typedef struct uct_ep_attr {
    uint64_t                field_mask;
    struct sockaddr_storage local_address;
    struct sockaddr_storage remote_address;
    void                    *tx_token;
    void                    *rx_token;
} uct_ep_attr_t;

typedef struct uct_ep_invalidate_params {
    uint64_t field_mask; /* no field is defined */
} uct_ep_invalidate_params_t;

typedef struct uct_iface_internal_ops {
    ucs_status_t (*iface_query_v2)(uct_iface_h iface,
                                   uct_iface_attr_v2_t *iface_attr);
    ucs_status_t (*iface_estimate_perf)(uct_iface_h iface,
                                        uct_perf_attr_t *perf_attr);
    void         (*iface_vfs_refresh)(uct_iface_h iface);
    ucs_status_t (*ep_query)(uct_ep_h ep, uct_ep_attr_t *ep_attr);
    ucs_status_t (*ep_invalidate)(uct_ep_h ep,
                                  const uct_ep_invalidate_params_t *params);
    void         (*ep_connect_to_ep_v2)(void);
    int          (*iface_is_reachable_v2)(
            const uct_iface_h iface,
            const uct_iface_is_reachable_params_t *params);
    int          (*ep_is_connected)(uct_ep_h ep,
                                    const uct_ep_is_connected_params_t *params);
    void         (*ep_get_device_ep)(void);
    void         (*ep_put_sgl_zcopy)(void);
} uct_iface_internal_ops_t;

typedef struct uct_am_handler {
    uct_am_callback_t cb;
    void              *arg;
    uint32_t          flags;
} uct_am_handler_t;

typedef struct uct_worker_progress {
    uct_worker_cb_id_t id;
    uint32_t           refcount;
} uct_worker_progress_t;

typedef struct uct_priv_worker {
    uct_worker_t        super;
    ucs_async_context_t *async;
    ucs_thread_mode_t   thread_mode;
    ucs_list_link_t     tl_data;
} uct_priv_worker_t;

typedef struct uct_base_iface {
    uct_iface_t              super;
    uct_iface_internal_ops_t *internal_ops;
    uct_md_h                 md;
    uct_priv_worker_t        *worker;
    uct_am_handler_t         am[UCT_AM_ID_MAX];
    uct_am_tracer_t          am_tracer;
    void                     *am_tracer_arg;
    uct_error_handler_t      err_handler;
    void                     *err_handler_arg;
    uint32_t                 err_handler_flags;
    uct_worker_progress_t    prog;
    unsigned                 progress_flags;
    struct {
        unsigned           num_alloc_methods;
        uct_alloc_method_t alloc_methods[UCT_ALLOC_METHOD_LAST];
        ucs_log_level_t    failure_level;
        size_t             max_num_eps;
    } config;
} uct_base_iface_t;

typedef struct uct_base_ep {
    uct_ep_t super;
} uct_base_ep_t;

/* Internal functions of libuct that we call, found at run time. */
ucs_status_t
uct_base_iface_t_init(uct_base_iface_t *self, ucs_class_t *cls, int *count,
                      uct_iface_ops_t *ops,
                      uct_iface_internal_ops_t *internal_ops, uct_md_h md,
                      uct_worker_h worker, const uct_iface_params_t *params,
                      const uct_iface_config_t *config);
ucs_status_t uct_base_ep_t_init(uct_base_ep_t *self, ucs_class_t *cls,
                                int *count, uct_base_iface_t *iface);
void uct_base_iface_query(uct_base_iface_t *iface, uct_iface_attr_t *attr);
void uct_base_iface_progress_enable(uct_iface_h iface, unsigned flags);
void uct_base_iface_progress_disable(uct_iface_h iface, unsigned flags);
int uct_base_iface_is_reachable(const uct_iface_h iface,
                                const uct_device_addr_t *dev_addr,
                                const uct_iface_addr_t *iface_addr);
void uct_md_base_md_query(uct_md_attr_v2_t *md_attr);
ucs_status_t
uct_md_query_single_md_resource(uct_component_t *component,
                                uct_md_resource_desc_t **resources_p,
                                unsigned *num_resources_p);
ucs_status_t
uct_single_device_resource(uct_md_h md, const char *dev_name,
                           uct_device_type_t dev_type,
                           ucs_sys_device_t sys_device,
                           uct_tl_device_resource_t **tl_devices_p,
                           unsigned *num_tl_devices_p);
void uct_component_register(uct_component_t *component);
void uct_tl_register(uct_component_t *component, uct_tl_t *tl);

/* ------------------------------------------------------------------ layouts */

#define UCT_UTOFU_ASSERT_SIZE(_type, _size) \
    _Static_assert(sizeof(_type) == (_size), "size of " #_type)
#define UCT_UTOFU_ASSERT_OFFSET(_type, _field, _offset) \
    _Static_assert(offsetof(_type, _field) == (_offset), \
                   "offset of " #_type "." #_field)

_Static_assert(sizeof(ucs_status_t) == 1, "ucs_status_t is a packed enum");
_Static_assert(UCT_AM_ID_MAX == 32, "number of AM ids");
_Static_assert(UCT_ALLOC_METHOD_LAST == 5, "number of allocation methods");

/* Public ones whose size the library itself was built with. */
UCT_UTOFU_ASSERT_SIZE(uct_iface_ops_t, 400);
UCT_UTOFU_ASSERT_SIZE(uct_iface_t, 400);
UCT_UTOFU_ASSERT_SIZE(uct_ep_t, 8);
UCT_UTOFU_ASSERT_SIZE(uct_worker_t, 136);
UCT_UTOFU_ASSERT_SIZE(uct_iface_attr_t, 536);
UCT_UTOFU_ASSERT_SIZE(uct_iface_params_t, 304);
UCT_UTOFU_ASSERT_SIZE(uct_ep_params_t, 160);
UCT_UTOFU_ASSERT_SIZE(uct_pending_req_t, 48);
UCT_UTOFU_ASSERT_SIZE(uct_completion_t, 16);
UCT_UTOFU_ASSERT_SIZE(uct_iov_t, 40);
UCT_UTOFU_ASSERT_SIZE(ucs_config_field_t, 88);
UCT_UTOFU_ASSERT_SIZE(ucs_config_global_list_entry_t, 56);
UCT_UTOFU_ASSERT_SIZE(ucs_class_t, 40);

UCT_UTOFU_ASSERT_SIZE(uct_component_t, 232);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, query_md_resources, 16);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, md_open, 24);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, cm_open, 32);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, rkey_unpack, 40);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, rkey_ptr, 48);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, rkey_release, 56);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, rkey_compare, 64);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, md_config, 72);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, cm_config, 128);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, tl_list, 184);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, list, 200);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, flags, 216);
UCT_UTOFU_ASSERT_OFFSET(uct_component_t, md_vfs_init, 224);

UCT_UTOFU_ASSERT_SIZE(uct_tl_t, 104);
UCT_UTOFU_ASSERT_OFFSET(uct_tl_t, query_devices, 16);
UCT_UTOFU_ASSERT_OFFSET(uct_tl_t, iface_open, 24);
UCT_UTOFU_ASSERT_OFFSET(uct_tl_t, config, 32);
UCT_UTOFU_ASSERT_OFFSET(uct_tl_t, list, 88);
UCT_UTOFU_ASSERT_SIZE(uct_tl_device_resource_t, 40);

UCT_UTOFU_ASSERT_SIZE(struct uct_md, 16);
UCT_UTOFU_ASSERT_SIZE(struct uct_md_ops, 96);
UCT_UTOFU_ASSERT_OFFSET(struct uct_md_ops, mem_alloc, 16);
UCT_UTOFU_ASSERT_OFFSET(struct uct_md_ops, mem_reg, 40);
UCT_UTOFU_ASSERT_OFFSET(struct uct_md_ops, mkey_pack, 64);
UCT_UTOFU_ASSERT_SIZE(uct_md_attr_v2_t, 544);
UCT_UTOFU_ASSERT_OFFSET(uct_md_attr_v2_t, gva_mem_types, 56);
UCT_UTOFU_ASSERT_OFFSET(uct_md_attr_v2_t, reg_cost, 96);
UCT_UTOFU_ASSERT_OFFSET(uct_md_attr_v2_t, rkey_packed_size, 128);
UCT_UTOFU_ASSERT_OFFSET(uct_md_attr_v2_t, local_cpus, 136);
UCT_UTOFU_ASSERT_OFFSET(uct_md_attr_v2_t, global_id, 272);
UCT_UTOFU_ASSERT_OFFSET(uct_md_attr_v2_t, reg_alignment, 528);
UCT_UTOFU_ASSERT_OFFSET(uct_md_attr_v2_t, required_mem_flags, 536);
UCT_UTOFU_ASSERT_SIZE(uct_md_mem_reg_params_t, 40);
UCT_UTOFU_ASSERT_OFFSET(uct_md_mem_reg_params_t, mem_type, 32);
UCT_UTOFU_ASSERT_SIZE(uct_md_mem_dereg_params_t, 32);
UCT_UTOFU_ASSERT_OFFSET(uct_md_mem_dereg_params_t, memh, 16);
UCT_UTOFU_ASSERT_OFFSET(uct_md_mem_dereg_params_t, comp, 24);
UCT_UTOFU_ASSERT_SIZE(uct_md_mkey_pack_params_t, 16);
UCT_UTOFU_ASSERT_SIZE(uct_rkey_unpack_params_t, 16);
UCT_UTOFU_ASSERT_SIZE(uct_rkey_compare_params_t, 8);

UCT_UTOFU_ASSERT_SIZE(struct uct_iface_config, 32);
UCT_UTOFU_ASSERT_SIZE(uct_iface_attr_v2_t, 56);
UCT_UTOFU_ASSERT_SIZE(uct_perf_attr_t, 112);
UCT_UTOFU_ASSERT_OFFSET(uct_perf_attr_t, send_pre_overhead, 24);
UCT_UTOFU_ASSERT_OFFSET(uct_perf_attr_t, bandwidth, 48);
UCT_UTOFU_ASSERT_OFFSET(uct_perf_attr_t, latency, 80);
UCT_UTOFU_ASSERT_OFFSET(uct_perf_attr_t, flags, 104);
UCT_UTOFU_ASSERT_SIZE(uct_iface_is_reachable_params_t, 64);
UCT_UTOFU_ASSERT_OFFSET(uct_iface_is_reachable_params_t, scope, 40);
UCT_UTOFU_ASSERT_OFFSET(uct_iface_is_reachable_params_t, iface_addr_length,
                        56);
UCT_UTOFU_ASSERT_SIZE(uct_ep_is_connected_params_t, 32);
UCT_UTOFU_ASSERT_SIZE(uct_ep_attr_t, 280);
UCT_UTOFU_ASSERT_SIZE(uct_iface_internal_ops_t, 80);
UCT_UTOFU_ASSERT_OFFSET(uct_iface_internal_ops_t, iface_estimate_perf, 8);
UCT_UTOFU_ASSERT_OFFSET(uct_iface_internal_ops_t, ep_invalidate, 32);
UCT_UTOFU_ASSERT_OFFSET(uct_iface_internal_ops_t, iface_is_reachable_v2, 48);
UCT_UTOFU_ASSERT_OFFSET(uct_iface_internal_ops_t, ep_is_connected, 56);

UCT_UTOFU_ASSERT_SIZE(uct_am_handler_t, 24);
UCT_UTOFU_ASSERT_SIZE(uct_worker_progress_t, 8);
UCT_UTOFU_ASSERT_SIZE(uct_priv_worker_t, 168);
UCT_UTOFU_ASSERT_OFFSET(uct_priv_worker_t, thread_mode, 144);
UCT_UTOFU_ASSERT_SIZE(uct_base_ep_t, 8);
UCT_UTOFU_ASSERT_SIZE(uct_base_iface_t, 1280);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, internal_ops, 400);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, md, 408);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, worker, 416);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, am, 424);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, am_tracer, 1192);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, err_handler, 1208);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, prog, 1228);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, progress_flags, 1236);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, config, 1240);
UCT_UTOFU_ASSERT_OFFSET(uct_base_iface_t, config.failure_level, 1264);

#endif /* UCT_UTOFU_COMPAT_H */
