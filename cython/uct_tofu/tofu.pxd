# SPDX-License-Identifier: BSD-3-Clause
"""What _core.pyx uses of tofu.h, the transport core."""

from libc.stdint cimport int8_t, intptr_t, uint8_t, uint64_t
from uct_tofu.tofu_dl cimport tofu_backend


cdef extern from "tofu.h" nogil:
    ctypedef struct tofu_md_t
    ctypedef struct tofu_mem_t
    ctypedef struct tofu_rkey_t
    ctypedef struct tofu_iface_t
    ctypedef struct tofu_ep_t

    ctypedef enum tofu_status_t:
        TOFU_OK
        TOFU_INPROGRESS
        TOFU_ERR_NO_MESSAGE
        TOFU_ERR_NO_RESOURCE
        TOFU_ERR_IO_ERROR
        TOFU_ERR_NO_MEMORY
        TOFU_ERR_INVALID_PARAM
        TOFU_ERR_UNREACHABLE
        TOFU_ERR_INVALID_ADDR
        TOFU_ERR_NO_ELEM
        TOFU_ERR_NO_DEVICE
        TOFU_ERR_BUSY
        TOFU_ERR_CANCELED
        TOFU_ERR_ALREADY_EXISTS
        TOFU_ERR_OUT_OF_RANGE
        TOFU_ERR_TIMED_OUT
        TOFU_ERR_EXCEEDS_LIMIT
        TOFU_ERR_UNSUPPORTED
        TOFU_ERR_ENDPOINT_TIMEOUT

    const char *tofu_status_string(tofu_status_t status) noexcept

    ctypedef struct tofu_pending_req_t:
        int8_t (*func)(tofu_pending_req_t *self) noexcept

    ctypedef struct tofu_completion_t:
        void (*func)(tofu_completion_t *self) noexcept
        int count
        int8_t status

    ctypedef struct tofu_iov_t:
        void *buffer
        size_t length
        tofu_mem_t *memh
        size_t stride
        unsigned count

    ctypedef size_t (*tofu_pack_cb_t)(void *dest, void *arg) noexcept
    ctypedef void (*tofu_unpack_cb_t)(
        void *arg, const void *data, size_t length) noexcept
    ctypedef int8_t (*tofu_am_cb_t)(
        void *arg, void *data, size_t length, unsigned flags) noexcept
    ctypedef void (*tofu_err_cb_t)(
        void *arg, tofu_ep_t *ep, tofu_status_t status) noexcept

    ctypedef struct tofu_md_config_t:
        unsigned tni, tni_mask, max_cqs, max_vcqs
        size_t stripe_thresh
        size_t arena_chunk

    ctypedef struct tofu_md_attr_t:
        const tofu_backend *backend
        size_t rkey_packed_size
        size_t max_alloc
        size_t max_reg
        double reg_overhead
        double reg_growth
        size_t num_registrations

    void tofu_md_config_default(tofu_md_config_t *config) noexcept
    tofu_status_t tofu_md_open(
        const tofu_backend *backend, const tofu_md_config_t *config,
        tofu_md_t **md_p) noexcept
    void tofu_md_close(tofu_md_t *md) noexcept
    void tofu_md_query(tofu_md_t *md, tofu_md_attr_t *attr) noexcept

    unsigned TOFU_MEM_READ_ONLY

    tofu_status_t tofu_mem_alloc(
        tofu_md_t *md, size_t *length_p, unsigned flags, void **address_p,
        tofu_mem_t **memh_p) noexcept
    tofu_status_t tofu_mem_free(tofu_mem_t *memh) noexcept
    tofu_status_t tofu_mem_reg(
        tofu_md_t *md, void *address, size_t length, unsigned flags,
        tofu_mem_t **memh_p) noexcept
    tofu_status_t tofu_mem_dereg(tofu_mem_t *memh) noexcept
    void tofu_mkey_pack(const tofu_mem_t *memh, void *buffer) noexcept
    tofu_status_t tofu_rkey_unpack(
        const void *buffer, size_t size, tofu_rkey_t **rkey_p) noexcept
    void tofu_rkey_release(tofu_rkey_t *rkey) noexcept

    unsigned TOFU_AM_ID_MAX

    ctypedef struct tofu_iface_config_t:
        size_t am_seg_size
        unsigned rx_slots
        unsigned rx_short_slots
        unsigned tx_bounce
        unsigned tx_notified
        unsigned am_polled
        int am_in_place
        int am_ahead
        size_t rndv_split
        int strong_order
        int early_complete
        void *rx_desc
        tofu_err_cb_t err_cb
        void *err_arg

    ctypedef struct tofu_iface_attr_t:
        size_t max_put_short
        size_t max_put_bcopy
        size_t max_put_zcopy
        size_t put_max_iov
        size_t max_get_bcopy
        size_t max_get_zcopy
        size_t get_max_iov
        size_t max_am_short
        size_t max_am_bcopy
        size_t max_am_zcopy
        size_t max_am_hdr
        size_t am_max_iov
        size_t iface_addr_len
        size_t device_addr_len
        double latency
        double latency_per_ep
        double bandwidth
        double overhead
        double recv_overhead
        unsigned mrq_entries
        unsigned max_notices

    ctypedef struct tofu_iface_stats_t:
        uint64_t am_rx
        uint64_t am_tx
        uint64_t credit_rx
        uint64_t credit_tx
        uint64_t notices
        uint64_t tcq_entries
        uint64_t posts
        uint64_t dropped
        uint64_t mrq_peak, vcqs, am_kept, am_held
        uint64_t polls
        uint64_t am_polled
        uint64_t am_in_place

    void tofu_iface_config_default(tofu_iface_config_t *config) noexcept
    tofu_status_t tofu_iface_open(
        tofu_md_t *md, const tofu_iface_config_t *config,
        tofu_iface_t **iface_p) noexcept
    void tofu_iface_close(tofu_iface_t *iface) noexcept
    void tofu_iface_query(
        tofu_iface_t *iface, tofu_iface_attr_t *attr) noexcept
    void tofu_iface_get_stats(
        tofu_iface_t *iface, tofu_iface_stats_t *stats) noexcept
    void tofu_iface_get_device_address(
        tofu_iface_t *iface, void *buffer) noexcept
    void tofu_iface_get_address(tofu_iface_t *iface, void *buffer) noexcept
    int tofu_iface_is_reachable(
        tofu_iface_t *iface, const void *device_addr, size_t device_addr_len,
        const void *iface_addr, size_t iface_addr_len, char *reason,
        size_t reason_size) noexcept
    tofu_status_t tofu_iface_set_am_handler(
        tofu_iface_t *iface, uint8_t id, tofu_am_cb_t cb, void *arg) noexcept
    unsigned TOFU_CB_DESC
    tofu_status_t tofu_iface_release_desc(
        tofu_iface_t *iface, void *desc) noexcept
    unsigned tofu_iface_progress(tofu_iface_t *iface) noexcept
    tofu_status_t tofu_iface_event_fd(
        tofu_iface_t *iface, int *fd_p) noexcept
    tofu_status_t tofu_iface_event_arm(
        tofu_iface_t *iface, unsigned events) noexcept
    tofu_status_t tofu_iface_flush(
        tofu_iface_t *iface, unsigned flags, tofu_completion_t *comp) noexcept
    tofu_status_t tofu_iface_fence(tofu_iface_t *iface) noexcept

    unsigned TOFU_FLUSH_CANCEL

    tofu_status_t tofu_ep_create(
        tofu_iface_t *iface, const void *iface_addr, size_t iface_addr_len,
        tofu_ep_t **ep_p) noexcept
    void tofu_ep_destroy(tofu_ep_t *ep) noexcept
    int tofu_ep_has_unsent(const tofu_ep_t *ep) noexcept
    tofu_status_t tofu_ep_status(const tofu_ep_t *ep) noexcept
    int tofu_ep_is_connected(
        const tofu_ep_t *ep, const void *iface_addr,
        size_t iface_addr_len) noexcept
    void tofu_ep_set_user(tofu_ep_t *ep, void *user) noexcept
    void *tofu_ep_user(const tofu_ep_t *ep) noexcept

    tofu_status_t tofu_ep_put_short(
        tofu_ep_t *ep, const void *buffer, unsigned length,
        uint64_t remote_addr, const tofu_rkey_t *rkey) noexcept
    intptr_t tofu_ep_put_bcopy(
        tofu_ep_t *ep, tofu_pack_cb_t pack, void *arg, uint64_t remote_addr,
        const tofu_rkey_t *rkey) noexcept
    tofu_status_t tofu_ep_put_zcopy(
        tofu_ep_t *ep, const tofu_iov_t *iov, size_t iovcnt,
        uint64_t remote_addr, const tofu_rkey_t *rkey,
        tofu_completion_t *comp) noexcept
    tofu_status_t tofu_ep_get_bcopy(
        tofu_ep_t *ep, tofu_unpack_cb_t unpack, void *arg, size_t length,
        uint64_t remote_addr, const tofu_rkey_t *rkey,
        tofu_completion_t *comp) noexcept
    tofu_status_t tofu_ep_get_zcopy(
        tofu_ep_t *ep, const tofu_iov_t *iov, size_t iovcnt,
        uint64_t remote_addr, const tofu_rkey_t *rkey,
        tofu_completion_t *comp) noexcept

    ctypedef enum tofu_atomic_op_t:
        TOFU_ATOMIC_ADD
        TOFU_ATOMIC_AND
        TOFU_ATOMIC_OR
        TOFU_ATOMIC_XOR
        TOFU_ATOMIC_SWAP

    tofu_status_t tofu_ep_atomic_post(
        tofu_ep_t *ep, tofu_atomic_op_t op, unsigned size, uint64_t value,
        uint64_t remote_addr, const tofu_rkey_t *rkey) noexcept
    tofu_status_t tofu_ep_atomic_fetch(
        tofu_ep_t *ep, tofu_atomic_op_t op, unsigned size, uint64_t value,
        void *result, uint64_t remote_addr, const tofu_rkey_t *rkey,
        tofu_completion_t *comp) noexcept
    tofu_status_t tofu_ep_atomic_cswap(
        tofu_ep_t *ep, unsigned size, uint64_t compare, uint64_t swap,
        void *result, uint64_t remote_addr, const tofu_rkey_t *rkey,
        tofu_completion_t *comp) noexcept

    tofu_status_t tofu_ep_am_short(
        tofu_ep_t *ep, uint8_t id, uint64_t header, const void *payload,
        unsigned length) noexcept
    intptr_t tofu_ep_am_bcopy(
        tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack, void *arg) noexcept
    tofu_status_t tofu_ep_am_zcopy(
        tofu_ep_t *ep, uint8_t id, const void *header, unsigned header_length,
        const tofu_iov_t *iov, size_t iovcnt,
        tofu_completion_t *comp) noexcept

    tofu_status_t tofu_ep_flush(
        tofu_ep_t *ep, unsigned flags, tofu_completion_t *comp) noexcept
    tofu_status_t tofu_ep_fence(tofu_ep_t *ep) noexcept

    tofu_status_t tofu_ep_pending_add(
        tofu_ep_t *ep, tofu_pending_req_t *req) noexcept
    void tofu_ep_pending_purge(
        tofu_ep_t *ep, void (*cb)(tofu_pending_req_t *req, void *arg) noexcept,
        void *arg) noexcept
