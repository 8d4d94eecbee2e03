# SPDX-License-Identifier: BSD-3-Clause
"""What _ucp.pyx uses of ucp.h and of glue_events.h."""

from libc.stdint cimport uint32_t, uint64_t


cdef extern from "ucp/api/ucp.h" nogil:
    ctypedef int ucs_status_t
    ctypedef void *ucs_status_ptr_t
    ctypedef uint64_t ucp_tag_t
    ctypedef struct ucp_context
    ctypedef ucp_context *ucp_context_h
    ctypedef struct ucp_worker
    ctypedef ucp_worker *ucp_worker_h
    ctypedef struct ucp_ep
    ctypedef ucp_ep *ucp_ep_h
    ctypedef struct ucp_mem
    ctypedef ucp_mem *ucp_mem_h
    ctypedef struct ucp_rkey
    ctypedef ucp_rkey *ucp_rkey_h
    ctypedef struct ucp_listener
    ctypedef ucp_listener *ucp_listener_h
    ctypedef struct ucp_conn_request
    ctypedef ucp_conn_request *ucp_conn_request_h
    ctypedef struct ucp_config_t
    ctypedef struct ucp_address_t
    ctypedef struct ucp_recv_desc
    ctypedef ucp_recv_desc *ucp_tag_message_h

    enum:
        UCS_OK
        UCS_INPROGRESS
        UCS_ERR_INVALID_PARAM
        UCS_ERR_BUSY
        UCS_ERR_CANCELED
        UCS_ERR_NO_ELEM
        UCS_ERR_UNREACHABLE
        UCS_ERR_UNSUPPORTED
        UCS_ERR_MESSAGE_TRUNCATED

    bint UCS_PTR_IS_PTR(ucs_status_ptr_t ptr)
    ucs_status_t UCS_PTR_STATUS(ucs_status_ptr_t ptr)

    ctypedef enum ucs_thread_mode_t:
        UCS_THREAD_MODE_SINGLE
        UCS_THREAD_MODE_MULTI

    enum:
        UCP_FEATURE_TAG
        UCP_FEATURE_RMA
        UCP_FEATURE_AMO32
        UCP_FEATURE_AMO64
        UCP_FEATURE_WAKEUP
        UCP_FEATURE_STREAM
        UCP_FEATURE_AM
        UCP_PARAM_FIELD_FEATURES
        UCP_PARAM_FIELD_MT_WORKERS_SHARED
        UCP_PARAM_FIELD_NAME
        UCP_WORKER_PARAM_FIELD_THREAD_MODE
        UCP_WORKER_PARAM_FIELD_FLAGS
        UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK
        UCP_WORKER_ATTR_FIELD_THREAD_MODE
        UCP_WORKER_ATTR_FIELD_ADDRESS
        UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
        UCP_EP_PARAM_FIELD_SOCK_ADDR
        UCP_EP_PARAM_FIELD_FLAGS
        UCP_EP_PARAM_FIELD_CONN_REQUEST
        UCP_EP_PARAMS_FLAGS_CLIENT_SERVER
        UCP_EP_CLOSE_FLAG_FORCE
        UCP_EP_ATTR_FIELD_TRANSPORTS
        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR
        UCP_LISTENER_PARAM_FIELD_CONN_HANDLER
        UCP_LISTENER_ATTR_FIELD_SOCKADDR
        UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR
        UCP_MEM_MAP_PARAM_FIELD_ADDRESS
        UCP_MEM_MAP_PARAM_FIELD_LENGTH
        UCP_MEM_MAP_PARAM_FIELD_FLAGS
        UCP_MEM_MAP_PARAM_FIELD_PROT
        UCP_MEM_MAP_ALLOCATE
        UCP_MEM_MAP_PROT_LOCAL_READ
        UCP_MEM_MAP_PROT_REMOTE_READ
        UCP_MEM_ATTR_FIELD_ADDRESS
        UCP_AM_SEND_FLAG_REPLY
        UCP_AM_SEND_FLAG_EAGER
        UCP_AM_SEND_FLAG_RNDV

    ctypedef enum ucp_atomic_op_t:
        UCP_ATOMIC_OP_ADD
        UCP_ATOMIC_OP_SWAP
        UCP_ATOMIC_OP_CSWAP
        UCP_ATOMIC_OP_AND
        UCP_ATOMIC_OP_OR
        UCP_ATOMIC_OP_XOR

    ctypedef struct ucp_params_t:
        uint64_t field_mask
        uint64_t features
        int mt_workers_shared
        const char *name

    ctypedef struct ucp_worker_params_t:
        uint64_t field_mask
        ucs_thread_mode_t thread_mode
        uint64_t flags

    ctypedef struct ucp_worker_attr_t:
        uint64_t field_mask
        ucs_thread_mode_t thread_mode
        ucp_address_t *address
        size_t address_length
        size_t max_am_header

    ctypedef struct sockaddr_t "struct sockaddr":
        pass

    ctypedef struct sockaddr_storage_t "struct sockaddr_storage":
        unsigned short ss_family

    ctypedef struct ucs_sock_addr_t:
        const sockaddr_t *addr
        unsigned addrlen

    ctypedef struct ucp_ep_params_t:
        uint64_t field_mask
        const ucp_address_t *address
        unsigned flags
        ucs_sock_addr_t sockaddr
        ucp_conn_request_h conn_request

    ctypedef void (*conn_cb_t)(ucp_conn_request_h request, void *arg) noexcept

    ctypedef struct ucp_listener_conn_handler_t:
        conn_cb_t cb
        void *arg

    ctypedef struct ucp_listener_params_t:
        uint64_t field_mask
        ucs_sock_addr_t sockaddr
        ucp_listener_conn_handler_t conn_handler

    ctypedef struct ucp_listener_attr_t:
        uint64_t field_mask
        sockaddr_storage_t sockaddr

    ctypedef struct ucp_conn_request_attr_t:
        uint64_t field_mask
        sockaddr_storage_t client_address

    ctypedef struct ucp_transport_entry_t:
        const char *transport_name
        const char *device_name

    ctypedef struct ucp_transports_t:
        ucp_transport_entry_t *entries
        unsigned num_entries
        size_t entry_size

    ctypedef struct ucp_ep_attr_t:
        uint64_t field_mask
        ucp_transports_t transports

    ctypedef struct ucp_mem_map_params_t:
        uint64_t field_mask
        void *address
        size_t length
        unsigned flags
        unsigned prot

    ctypedef struct ucp_mem_attr_t:
        uint64_t field_mask
        void *address

    ctypedef struct ucp_tag_recv_info_t:
        ucp_tag_t sender_tag
        size_t length

    ctypedef struct ucp_request_param_t:
        uint32_t op_attr_mask

    const char *ucs_status_string(ucs_status_t status)
    void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
    const char *ucp_get_version_string()
    ucs_status_t ucp_config_read(const char *prefix, const char *filename,
                                 ucp_config_t **config_p)
    void ucp_config_release(ucp_config_t *config)
    ucs_status_t ucp_config_modify(ucp_config_t *config, const char *name,
                                   const char *value)
    ucs_status_t ucp_init(const ucp_params_t *params, const ucp_config_t *config,
                          ucp_context_h *context_p)
    void ucp_cleanup(ucp_context_h context)
    ucs_status_t ucp_worker_create(ucp_context_h context,
                                   const ucp_worker_params_t *params,
                                   ucp_worker_h *worker_p)
    void ucp_worker_destroy(ucp_worker_h worker)
    ucs_status_t ucp_worker_query(ucp_worker_h worker, ucp_worker_attr_t *attr)
    void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address)
    unsigned ucp_worker_progress(ucp_worker_h worker)
    ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int *fd)
    ucs_status_t ucp_worker_arm(ucp_worker_h worker)
    ucs_status_t ucp_worker_signal(ucp_worker_h worker)
    ucs_status_t ucp_worker_fence(ucp_worker_h worker)
    ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker,
                                          const ucp_request_param_t *param)
    ucs_status_t ucp_listener_create(ucp_worker_h worker,
                                     const ucp_listener_params_t *params,
                                     ucp_listener_h *listener_p)
    void ucp_listener_destroy(ucp_listener_h listener)
    ucs_status_t ucp_listener_query(ucp_listener_h listener,
                                    ucp_listener_attr_t *attr)
    ucs_status_t ucp_listener_reject(ucp_listener_h listener,
                                     ucp_conn_request_h request)
    ucs_status_t ucp_conn_request_query(ucp_conn_request_h request,
                                        ucp_conn_request_attr_t *attr)
    ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params,
                               ucp_ep_h *ep_p)
    ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
    ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
    ucs_status_t ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t *attr)
    ucs_status_t ucp_mem_map(ucp_context_h context,
                             const ucp_mem_map_params_t *params, ucp_mem_h *memh_p)
    ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh)
    ucs_status_t ucp_mem_query(const ucp_mem_h memh, ucp_mem_attr_t *attr)
    ucs_status_t ucp_rkey_pack(ucp_context_h context, ucp_mem_h memh,
                               void **buffer_p, size_t *size_p)
    void ucp_rkey_buffer_release(void *buffer)
    ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void *buffer,
                                    ucp_rkey_h *rkey_p)
    void ucp_rkey_destroy(ucp_rkey_h rkey)
    ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
                                     size_t header_length, const void *buffer,
                                     size_t count, const ucp_request_param_t *param)
    ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *data_desc,
                                          void *buffer, size_t count,
                                          const ucp_request_param_t *param)
    void ucp_am_data_release(ucp_worker_h worker, void *data)
    ucs_status_ptr_t ucp_stream_send_nbx(ucp_ep_h ep, const void *buffer,
                                         size_t count,
                                         const ucp_request_param_t *param)
    ucs_status_ptr_t ucp_stream_recv_nbx(ucp_ep_h ep, void *buffer, size_t count,
                                         size_t *length,
                                         const ucp_request_param_t *param)
    ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count,
                                      ucp_tag_t tag,
                                      const ucp_request_param_t *param)
    ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void *buffer,
                                           size_t count, ucp_tag_t tag,
                                           const ucp_request_param_t *param)
    ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer,
                                      size_t count, ucp_tag_t tag, ucp_tag_t mask,
                                      const ucp_request_param_t *param)
    ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h worker, ucp_tag_t tag,
                                       ucp_tag_t mask, int remove,
                                       ucp_tag_recv_info_t *info)
    ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void *buffer, size_t count,
                                 uint64_t address, ucp_rkey_h rkey,
                                 const ucp_request_param_t *param)
    ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void *buffer, size_t count,
                                 uint64_t address, ucp_rkey_h rkey,
                                 const ucp_request_param_t *param)
    ucs_status_ptr_t ucp_atomic_op_nbx(ucp_ep_h ep, ucp_atomic_op_t op,
                                       const void *buffer, size_t count,
                                       uint64_t address, ucp_rkey_h rkey,
                                       const ucp_request_param_t *param)
    void ucp_request_cancel(ucp_worker_h worker, void *request)
    void ucp_request_free(void *request)


cdef extern from "glue_events.h" nogil:
    enum:
        GLUE_OP
        GLUE_AM
        GLUE_CONNECTION
        GLUE_FAILURE

    ctypedef struct glue_event_t:
        glue_event_t *next
        int kind
        int status
        void *owner

    ctypedef struct glue_list_t:
        glue_event_t *head

    ctypedef struct glue_op_t:
        glue_event_t event
        glue_list_t *list
        void *request
        size_t length
        ucp_tag_recv_info_t info

    ctypedef struct glue_am_source_t:
        glue_list_t *list
        unsigned id

    ctypedef struct glue_am_t:
        glue_event_t event
        unsigned id
        int is_rndv
        void *held
        ucp_ep_h reply_ep
        size_t header_length
        size_t length
        char *bytes

    ctypedef struct glue_connection_t:
        glue_event_t event
        ucp_conn_request_h request

    ctypedef struct glue_source_t:
        glue_list_t *list
        void *owner

    ctypedef struct glue_failure_t:
        glue_event_t event
        glue_list_t *list
        int is_queued

    bint glue_any(glue_list_t *list)
    glue_event_t *glue_take(glue_list_t *list)
    void glue_param(ucp_request_param_t *param, glue_op_t *op)
    void glue_param_tag_recv(ucp_request_param_t *param, glue_op_t *op)
    void glue_param_am_recv(ucp_request_param_t *param, glue_op_t *op)
    void glue_param_stream_recv(ucp_request_param_t *param, glue_op_t *op)
    void glue_param_flags(ucp_request_param_t *param, uint32_t flags)
    void glue_param_atomic(ucp_request_param_t *param, size_t size, void *reply)
    ucs_status_t glue_am_handler(ucp_worker_h worker, glue_am_source_t *source,
                                 int on)
    void glue_connection_cb(ucp_conn_request_h request, void *arg) noexcept
    void glue_refuse_connections(glue_source_t *source, ucp_listener_h listener)
    void glue_ep_failure(ucp_ep_params_t *params, glue_failure_t *failure)
    int glue_spin(ucp_worker_h worker, glue_list_t *list, unsigned rounds)
    char *glue_context_info(ucp_context_h context)


cdef extern from "glue_listener.h" nogil:
    unsigned glue_shut_half_open(ucp_worker_h worker,
                                 const sockaddr_storage_t *listener,
                                 const sockaddr_storage_t *known, size_t count)
