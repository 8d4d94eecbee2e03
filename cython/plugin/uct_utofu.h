/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uct_utofu.h - the UCX plugin: adapts the transport core to UCT 1.22.
 *
 * uct_utofu_abi.c           finds the UCX that loaded us and its functions, logging
 * uct_utofu_guard.c         decides whether that UCX is one we know
 * uct_utofu_component.c     configuration variables, component, registration
 * uct_utofu_md.c            memory domain and remote keys
 * uct_utofu_iface.c         interface
 * uct_utofu_iface_config.c  what is asked of an interface that is opened
 * uct_utofu_ep.c            endpoint operations
 * uct_utofu_trace.c         operations as lines of UCX's log
 * uct_utofu_stats.c         counters
 *
 * The plugin has no undefined UCX symbol.  One file therefore works in every
 * way in which UCX is loaded: by an executable's dependencies, by Python with
 * RTLD_LOCAL, or as a renamed copy inside another package.
 */
#ifndef UCT_UTOFU_H
#define UCT_UTOFU_H

#include "uct_utofu_compat.h"

#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>
#include <ucs/sys/string.h>

#include <stdarg.h>
#include <string.h>

#include <tofu.h>
#include <tofu_dl.h>

#define UCT_UTOFU_NAME          "utofu" /* component, memory domain, transport */
#define UCT_UTOFU_DEVICE_NAME   "tofu0"
#define UCT_UTOFU_CONFIG_PREFIX "UTOFU_"
/* UCP's rendezvous puts a packed key, of 128 bytes with all TNIs, into one message. */
#define UCT_UTOFU_AM_SEG_SIZE_MIN 256u

/* Unused slots that we add to every table of functions, so that a libuct with
 * a few more operations at the end finds stubs and not foreign memory. */
#define UCT_UTOFU_OPS_SPARE 8

/* ------------------------------------------------- the UCX that we belong to */

/* Functions by library; each becomes a member of struct uct_utofu_api. */
#define UCT_UTOFU_FOREACH_UCS_FUNC(_func) \
    _func(ucs_log_dispatch) \
    _func(ucs_global_opts_get_value) \
    _func(ucs_class_call_cleanup_chain) \
    _func(ucs_config_parser_fill_opts) \
    _func(ucs_config_parser_release_opts) \
    _func(ucs_config_sscanf_string) \
    _func(ucs_config_sprintf_string) \
    _func(ucs_config_clone_string) \
    _func(ucs_config_release_string) \
    _func(ucs_config_sscanf_uint) \
    _func(ucs_config_sprintf_uint) \
    _func(ucs_config_clone_uint) \
    _func(ucs_config_sscanf_ulunits) \
    _func(ucs_config_sprintf_ulunits) \
    _func(ucs_config_sscanf_memunits) \
    _func(ucs_config_sprintf_memunits) \
    _func(ucs_config_clone_ulong) \
    _func(ucs_config_sscanf_bool) \
    _func(ucs_config_sprintf_bool) \
    _func(ucs_config_sscanf_ternary_auto) \
    _func(ucs_config_sprintf_ternary_auto) \
    _func(ucs_config_clone_int) \
    _func(ucs_config_sscanf_time) \
    _func(ucs_config_sprintf_time) \
    _func(ucs_config_sscanf_bw) \
    _func(ucs_config_sprintf_bw) \
    _func(ucs_config_clone_double) \
    _func(ucs_config_sscanf_table) \
    _func(ucs_config_clone_table) \
    _func(ucs_config_release_table) \
    _func(ucs_config_help_table) \
    _func(ucs_config_help_generic) \
    _func(ucs_config_release_nop) \
    _func(ucs_config_doc_nop)

#define UCT_UTOFU_FOREACH_UCT_FUNC(_func) \
    _func(uct_component_register) \
    _func(uct_tl_register) \
    _func(uct_base_iface_t_init) \
    _func(uct_base_ep_t_init) \
    _func(uct_base_iface_query) \
    _func(uct_base_iface_progress_enable) \
    _func(uct_base_iface_progress_disable) \
    _func(uct_base_iface_is_reachable) \
    _func(uct_md_base_md_query) \
    _func(uct_md_query_single_md_resource) \
    _func(uct_single_device_resource)

struct uct_utofu_api {
#define UCT_UTOFU_API_MEMBER(_name) __typeof__(_name) *_name;
    UCT_UTOFU_FOREACH_UCS_FUNC(UCT_UTOFU_API_MEMBER)
    UCT_UTOFU_FOREACH_UCT_FUNC(UCT_UTOFU_API_MEMBER)
#undef UCT_UTOFU_API_MEMBER
    ucs_class_t        *uct_base_iface_t_class;
    ucs_class_t        *uct_base_ep_t_class;
    ucs_config_field_t *uct_md_config_table;
    ucs_config_field_t *uct_iface_config_table;
    ucs_list_link_t    *uct_components_list;
};

/* Filled once, before anything of ours is registered. */
extern struct uct_utofu_api uct_utofu_api;

/* Handles of the libraries of one UCX, from dlopen. */
struct uct_utofu_libs {
    void *ucs, *uct;
    void *ucp;            /* NULL when the process has no libucp */
    char ucs_path[4096];  /* for messages */
    char uct_path[4096];
};

/* Find the libraries; `caller` is an address inside the libucs that called us,
 * or anything else when a program calls us by hand.  -1: why says what is
 * missing. */
int uct_utofu_libs_open(const void *caller, struct uct_utofu_libs *libs,
                        char *why, size_t why_size);
void uct_utofu_libs_close(struct uct_utofu_libs *libs);

/* 0 when the libraries are of a version whose structures we know. */
int uct_utofu_guard_check(const struct uct_utofu_libs *libs, char *why,
                          size_t why_size);

/* Fill uct_utofu_api; -1 when a symbol is missing. */
int uct_utofu_api_bind(const struct uct_utofu_libs *libs, char *why,
                       size_t why_size);

/* ------------------------------------------------------------------- logging */

/* Filter and name of our lines in UCX's log; follows UCX_LOG_LEVEL. */
extern ucs_log_component_config_t uct_utofu_log_config;

void uct_utofu_log_init(void);

#define uct_utofu_log(_level, _fmt, ...) \
    do { \
        if (ucs_unlikely((_level) <= uct_utofu_log_config.log_level)) { \
            uct_utofu_api.ucs_log_dispatch(__FILE__, __LINE__, __func__, \
                                           (_level), &uct_utofu_log_config, \
                                           _fmt, ##__VA_ARGS__); \
        } \
    } while (0)
#define uct_utofu_error(_fmt, ...) \
    uct_utofu_log(UCS_LOG_LEVEL_ERROR, _fmt, ##__VA_ARGS__)
#define uct_utofu_diag(_fmt, ...) \
    uct_utofu_log(UCS_LOG_LEVEL_DIAG, _fmt, ##__VA_ARGS__)
#define uct_utofu_debug(_fmt, ...) \
    uct_utofu_log(UCS_LOG_LEVEL_DEBUG, _fmt, ##__VA_ARGS__)

/* While set, errors that the core logs in this thread are only debug lines: the
 * caller asked to be told by the status alone. */
extern __thread int uct_utofu_log_hide_errors;

/* -------------------------------------------------------------- core and UCT */

static inline ucs_status_t uct_utofu_status(tofu_status_t status)
{
    return (ucs_status_t)status;
}

/* The stub for every operation that we don't have.  It returns an error both as
 * ucs_status_t and as ssize_t. */
intptr_t uct_utofu_unsupported(void);

/* Put the stub into every slot of a table of functions. */
void uct_utofu_ops_fill(void *ops, size_t size);

#define UCT_UTOFU_ASSERT_STATUS(_name) \
    _Static_assert((int)TOFU_##_name == (int)UCS_##_name, #_name)
UCT_UTOFU_ASSERT_STATUS(OK);
UCT_UTOFU_ASSERT_STATUS(INPROGRESS);
UCT_UTOFU_ASSERT_STATUS(ERR_NO_MESSAGE);
UCT_UTOFU_ASSERT_STATUS(ERR_NO_RESOURCE);
UCT_UTOFU_ASSERT_STATUS(ERR_IO_ERROR);
UCT_UTOFU_ASSERT_STATUS(ERR_NO_MEMORY);
UCT_UTOFU_ASSERT_STATUS(ERR_INVALID_PARAM);
UCT_UTOFU_ASSERT_STATUS(ERR_UNREACHABLE);
UCT_UTOFU_ASSERT_STATUS(ERR_INVALID_ADDR);
UCT_UTOFU_ASSERT_STATUS(ERR_NO_ELEM);
UCT_UTOFU_ASSERT_STATUS(ERR_NO_DEVICE);
UCT_UTOFU_ASSERT_STATUS(ERR_BUSY);
UCT_UTOFU_ASSERT_STATUS(ERR_CANCELED);
UCT_UTOFU_ASSERT_STATUS(ERR_ALREADY_EXISTS);
UCT_UTOFU_ASSERT_STATUS(ERR_OUT_OF_RANGE);
UCT_UTOFU_ASSERT_STATUS(ERR_TIMED_OUT);
UCT_UTOFU_ASSERT_STATUS(ERR_EXCEEDS_LIMIT);
UCT_UTOFU_ASSERT_STATUS(ERR_UNSUPPORTED);
UCT_UTOFU_ASSERT_STATUS(ERR_ENDPOINT_TIMEOUT);

#define UCT_UTOFU_ASSERT_SAME(_core, _uct, _field) \
    _Static_assert((offsetof(_core, _field) == offsetof(_uct, _field)) && \
                   (sizeof(((_core*)0)->_field) == \
                    sizeof(((_uct*)0)->_field)), \
                   #_core "." #_field)
_Static_assert(sizeof(tofu_completion_t) == sizeof(uct_completion_t),
               "completion");
UCT_UTOFU_ASSERT_SAME(tofu_completion_t, uct_completion_t, func);
UCT_UTOFU_ASSERT_SAME(tofu_completion_t, uct_completion_t, count);
UCT_UTOFU_ASSERT_SAME(tofu_completion_t, uct_completion_t, status);
_Static_assert(sizeof(tofu_iov_t) == sizeof(uct_iov_t), "iov");
UCT_UTOFU_ASSERT_SAME(tofu_iov_t, uct_iov_t, buffer);
UCT_UTOFU_ASSERT_SAME(tofu_iov_t, uct_iov_t, length);
UCT_UTOFU_ASSERT_SAME(tofu_iov_t, uct_iov_t, memh);
UCT_UTOFU_ASSERT_SAME(tofu_iov_t, uct_iov_t, stride);
UCT_UTOFU_ASSERT_SAME(tofu_iov_t, uct_iov_t, count);
_Static_assert(sizeof(tofu_pending_req_t) == sizeof(uct_pending_req_t),
               "pending request");
UCT_UTOFU_ASSERT_SAME(tofu_pending_req_t, uct_pending_req_t, func);
UCT_UTOFU_ASSERT_SAME(tofu_pending_req_t, uct_pending_req_t, priv);
_Static_assert(((int)TOFU_ATOMIC_ADD == (int)UCT_ATOMIC_OP_ADD) &&
               ((int)TOFU_ATOMIC_AND == (int)UCT_ATOMIC_OP_AND) &&
               ((int)TOFU_ATOMIC_OR == (int)UCT_ATOMIC_OP_OR) &&
               ((int)TOFU_ATOMIC_XOR == (int)UCT_ATOMIC_OP_XOR) &&
               ((int)TOFU_ATOMIC_SWAP == (int)UCT_ATOMIC_OP_SWAP) &&
               ((int)TOFU_ATOMIC_CSWAP == (int)UCT_ATOMIC_OP_CSWAP),
               "atomic operations");
_Static_assert((int)TOFU_FLUSH_CANCEL == (int)UCT_FLUSH_FLAG_CANCEL,
               "flush flags");
_Static_assert(TOFU_AM_ID_MAX == UCT_AM_ID_MAX, "AM ids");

/* ------------------------------------------------------------ configuration */

typedef struct uct_utofu_md_config {
    uct_md_config_t super;
    char            *backend;
    unsigned long   tni;
    char            *tnis;
    unsigned long   max_cqs;
    unsigned long   max_vcqs;
    size_t          stripe_thresh;  /* bytes */
} uct_utofu_md_config_t;

/* A number that the user left to the transport. */
#define UCT_UTOFU_COUNT_AUTO  UCS_ULUNITS_AUTO
#define UCT_UTOFU_DOUBLE_AUTO UCS_CONFIG_DBL_AUTO

typedef struct uct_utofu_iface_config {
    uct_iface_config_t super;
    size_t             am_seg_size;     /* bytes */
    unsigned long      rx_slots;
    unsigned long      rx_short_slots;
    unsigned long      tx_bounce;
    unsigned long      tx_notified;
    unsigned long      am_polled;
    int                am_in_place;     /* 0, 1, else "auto" */
    int                am_ahead;        /* the same */
    int                strong_order;
    int                early_complete;
    int                stats;
    double             bandwidth;       /* bytes per second */
    double             latency;         /* seconds */
    double             overhead;        /* seconds */
    double             wakeup_timer;    /* seconds */
} uct_utofu_iface_config_t;

/* ------------------------------------------------------------------- objects */

extern uct_component_t uct_utofu_component;

typedef struct uct_utofu_md {
    struct uct_md  super;
    tofu_md_t      *md;
    tofu_md_attr_t attr;
    uint8_t        coords[6]; /* of this node: X Y Z A B C */
} uct_utofu_md_t;

/* What the plugin adds to the core's device address: which node of the network
 * this is.  Then "the same device" can be told from "the same network". */
#define UCT_UTOFU_NODE_ADDR_LEN 6

struct uct_utofu_iface;
struct uct_utofu_traced_id { /* argument of the core's AM handler */
    struct uct_utofu_iface *iface;
    uint8_t                id;
};

typedef struct uct_utofu_iface {
    uct_base_iface_t  super;
    tofu_iface_t      *iface;
    uct_recv_desc_t   release; /* found in front of messages that may be kept */
    tofu_iface_attr_t attr;   /* with the user's overrides */
    int               shared_bandwidth; /* by the processes of the node */
    int               stats;            /* to be printed at the end */
    struct uct_utofu_traced_id *traced; /* of all AM ids, or NULL */
} uct_utofu_iface_t;

typedef struct uct_utofu_ep {
    uct_base_ep_t super;
    tofu_ep_t     *ep;
} uct_utofu_ep_t;

static inline tofu_ep_t *uct_utofu_ep_core(uct_ep_h tl_ep)
{
    return ((uct_utofu_ep_t*)tl_ep)->ep;
}

/* trace: is each operation to be logged?  The table that does it; the AM handler. */
int uct_utofu_is_traced(void);
void uct_utofu_trace_ops(uct_iface_ops_t *ops);
int8_t uct_utofu_traced_am(void *arg, void *data, size_t length, unsigned flags);

/* md */
void uct_utofu_md_ops_init(void);
ucs_status_t uct_utofu_query_md_resources(uct_component_t *component,
                                          uct_md_resource_desc_t **resources_p,
                                          unsigned *num_resources_p);
ucs_status_t uct_utofu_md_open(uct_component_t *component, const char *md_name,
                               const uct_md_config_t *tl_config,
                               uct_md_h *md_p);
ucs_status_t uct_utofu_rkey_unpack(uct_component_t *component,
                                   const void *rkey_buffer,
                                   const uct_rkey_unpack_params_t *params,
                                   uct_rkey_t *rkey_p, void **handle_p);
ucs_status_t uct_utofu_rkey_ptr(uct_component_t *component, uct_rkey_t rkey,
                                void *handle, uint64_t remote_addr,
                                void **local_addr_p);
ucs_status_t uct_utofu_rkey_release(uct_component_t *component, uct_rkey_t rkey,
                                    void *handle);
ucs_status_t uct_utofu_rkey_compare(uct_component_t *component,
                                    uct_rkey_t rkey1, uct_rkey_t rkey2,
                                    const uct_rkey_compare_params_t *params,
                                    int *result_p);

/* Counters, in one line on the standard error. */
void uct_utofu_stats_print(tofu_iface_t *iface);

/* iface */
void uct_utofu_iface_ops_init(void);
ucs_status_t uct_utofu_query_devices(uct_md_h md,
                                     uct_tl_device_resource_t **tl_devices_p,
                                     unsigned *num_tl_devices_p);
ucs_status_t uct_utofu_iface_open(uct_md_h tl_md, uct_worker_h worker,
                                  const uct_iface_params_t *params,
                                  const uct_iface_config_t *tl_config,
                                  uct_iface_h *iface_p);
/* What is asked of an interface: UCX's parameters, the user's variables into the
 * core's configuration, and those that go before what the core says of itself */
ucs_status_t uct_utofu_iface_check_params(uct_worker_h worker,
                                          const uct_iface_params_t *params);
ucs_status_t
uct_utofu_iface_config_core(const uct_utofu_iface_config_t *config,
                            const uct_iface_params_t *params,
                            tofu_iface_config_t *core_config);
void uct_utofu_iface_config_attr(const uct_utofu_iface_config_t *config,
                                 tofu_iface_attr_t *attr);
int uct_utofu_iface_addr_is_reachable(uct_utofu_iface_t *iface,
                                      const void *device_addr,
                                      size_t device_addr_len,
                                      const void *iface_addr,
                                      size_t iface_addr_len, char *reason,
                                      size_t reason_size);

/* ep */
void uct_utofu_ep_ops_init(uct_iface_ops_t *ops);
ucs_status_t uct_utofu_ep_create(const uct_ep_params_t *params,
                                 uct_ep_h *ep_p);
int uct_utofu_ep_is_connected(uct_ep_h tl_ep,
                              const uct_ep_is_connected_params_t *params);
ucs_status_t uct_utofu_ep_query(uct_ep_h tl_ep, uct_ep_attr_t *ep_attr);
ucs_status_t uct_utofu_ep_invalidate(uct_ep_h tl_ep,
                                     const uct_ep_invalidate_params_t *params);
/* The core's error handler of an iface. */
void uct_utofu_ep_failed(void *arg, tofu_ep_t *core_ep, tofu_status_t status);

#endif /* UCT_UTOFU_H */
