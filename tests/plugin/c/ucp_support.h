/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucp_support.h - what the UCP programs share: checks that end the program, bytes
 * with a pattern, one tag message with its completion, opening and closing.
 * A check that fails in any process or thread ends that process; its parent sees it.
 */
#ifndef UCP_SUPPORT_H
#define UCP_SUPPORT_H

#include <ucp/api/ucp.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHECK(_cond) \
    do { \
        if (!(_cond)) { \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, \
                    #_cond); \
            exit(1); \
        } \
    } while (0)

#define CHECK_STATUS(_status) \
    do { \
        ucs_status_t _s = (_status); \
        if (_s != UCS_OK) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #_status, \
                    ucs_status_string(_s)); \
            exit(1); \
        } \
    } while (0)

/* A failure, not a measure: long enough for a busy machine. */
#define PATIENCE 60.0

static inline double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

static inline void fill(uint8_t *data, size_t length, unsigned seed)
{
    size_t i;

    for (i = 0; i < length; ++i) {
        data[i] = (uint8_t)((i * 13) + (i >> 9) + (seed * 31));
    }
}

static inline void verify(const uint8_t *data, size_t length, unsigned seed)
{
    size_t i;

    for (i = 0; i < length; ++i) {
        if (data[i] != (uint8_t)((i * 13) + (i >> 9) + (seed * 31))) {
            fprintf(stderr, "byte %zu of %zu is wrong (seed %u)\n", i, length,
                    seed);
            exit(1);
        }
    }
}

static inline void recv_all(int fd, void *data, size_t length)
{
    CHECK(recv(fd, data, length, MSG_WAITALL) == (ssize_t)length);
}

static inline void send_all(int fd, const void *data, size_t length)
{
    CHECK(send(fd, data, length, MSG_NOSIGNAL) == (ssize_t)length);
}

/* Progress until the request is complete; frees it and returns its status. */
static inline ucs_status_t wait_status(ucp_worker_h worker, void *request)
{
    double end = now() + PATIENCE;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    ucp_request_free(request);
    return status;
}

static inline void *tag_send(ucp_ep_h ep, const void *data, size_t length,
                             ucp_tag_t tag)
{
    ucp_request_param_t param = {0};

    return ucp_tag_send_nbx(ep, data, length, tag, &param);
}

static inline void *tag_recv(ucp_worker_h worker, void *data, size_t length,
                             ucp_tag_t tag)
{
    ucp_request_param_t param = {0};

    return ucp_tag_recv_nbx(worker, data, length, tag, UINT64_MAX, &param);
}

static inline ucs_status_t ep_flush(ucp_worker_h worker, ucp_ep_h ep)
{
    ucp_request_param_t param = {0};

    return wait_status(worker, ucp_ep_flush_nbx(ep, &param));
}

static inline ucs_status_t ep_close(ucp_worker_h worker, ucp_ep_h ep,
                                    unsigned flags)
{
    ucp_request_param_t param = {0};

    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags        = flags;
    return wait_status(worker, ucp_ep_close_nbx(ep, &param));
}

static inline ucp_context_h context_open(int shared)
{
    ucp_params_t params = {0};
    ucp_context_h context;

    params.field_mask        = UCP_PARAM_FIELD_FEATURES |
                               UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features          = UCP_FEATURE_TAG | UCP_FEATURE_RMA |
                               UCP_FEATURE_AMO64;
    params.mt_workers_shared = shared;
    CHECK_STATUS(ucp_init(&params, NULL, &context));
    return context;
}

static inline ucp_worker_h worker_open(ucp_context_h context,
                                       ucs_thread_mode_t mode)
{
    ucp_worker_params_t params = {0};
    ucp_worker_attr_t attr     = {0};
    ucp_worker_h worker;

    params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = mode;
    CHECK_STATUS(ucp_worker_create(context, &params, &worker));
    attr.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE;
    CHECK_STATUS(ucp_worker_query(worker, &attr));
    CHECK(attr.thread_mode == mode);
    return worker;
}

static inline void address_send(int fd, ucp_worker_h worker)
{
    ucp_address_t *address;
    size_t length;

    CHECK_STATUS(ucp_worker_get_address(worker, &address, &length));
    send_all(fd, &length, sizeof(length));
    send_all(fd, address, length);
    ucp_worker_release_address(worker, address);
}

/* An endpoint to the address that comes next; with error handling when there is
 * a handler. */
static inline ucp_ep_h ep_recv(int fd, ucp_worker_h worker,
                               ucp_err_handler_cb_t handler, void *arg)
{
    ucp_ep_params_t params = {0};
    size_t length;
    void *address;
    ucp_ep_h ep;

    recv_all(fd, &length, sizeof(length));
    CHECK((address = malloc(length)) != NULL);
    recv_all(fd, address, length);
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address    = address;
    if (handler != NULL) {
        params.field_mask     |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                 UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb  = handler;
        params.err_handler.arg = arg;
    }
    CHECK_STATUS(ucp_ep_create(worker, &params, &ep));
    free(address);
    return ep;
}

#endif /* UCP_SUPPORT_H */
