/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One of two peers is killed while it takes part in what the argument names: rndv
 * (large tag messages), put, get or am (large active messages).  The error handler
 * is called once, for its endpoint; every request ends; what the requests used may
 * be freed then; the other peer's endpoint goes on.
 */
#include <ucp/api/ucp.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
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

#define LENGTH   (4ul << 20)
#define REQUESTS 8
#define AM_ID    3

struct peer {
    int        fd, errors, pending, failed;
    pid_t      pid;
    ucp_ep_h   ep;
    ucp_rkey_h rkey;
    uint64_t   base;
};

static struct peer peers[2];
static ucp_context_h context;
static ucp_worker_h worker;

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

#define WAIT(_cond) \
    do { \
        double _end = now() + 60; \
        while (!(_cond)) { \
            ucp_worker_progress(worker); \
            CHECK(now() < _end); \
        } \
    } while (0)

static void write_all(int fd, const void *data, size_t length)
{
    CHECK(send(fd, data, length, MSG_NOSIGNAL) == (ssize_t)length);
}

static void read_all(int fd, void *data, size_t length)
{
    CHECK(recv(fd, data, length, MSG_WAITALL) == (ssize_t)length);
}

static void open_worker(void)
{
    ucp_worker_params_t worker_params = {0};
    ucp_params_t params               = {0};

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA;
    CHECK(ucp_init(&params, NULL, &context) == UCS_OK);
    CHECK(ucp_worker_create(context, &worker_params, &worker) == UCS_OK);
}

static void error_cb(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct peer *peer = arg;

    CHECK((ep == peer->ep) && (status < 0));
    ++peer->errors;
}

static ucp_ep_h connect_to(int fd, struct peer *peer)
{
    ucp_ep_params_t params = {0};
    ucp_address_t *address;
    size_t length;
    ucp_ep_h ep;

    CHECK(ucp_worker_get_address(worker, &address, &length) == UCS_OK);
    write_all(fd, &length, sizeof(length));
    write_all(fd, address, length);
    ucp_worker_release_address(worker, address);
    read_all(fd, &length, sizeof(length));
    address = malloc(length);
    read_all(fd, address, length);
    params.field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                             UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                             UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address         = address;
    params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb  = error_cb;
    params.err_handler.arg = peer;
    CHECK(ucp_ep_create(worker, &params, &ep) == UCS_OK);
    free(address);
    return ep;
}

static ucs_status_t am_cb(void *arg, const void *header, size_t header_length,
                          void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    static uint8_t sink[LENGTH];
    ucp_request_param_t none = {0};
    void *request;

    (void)arg;
    (void)header;
    (void)header_length;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        request = ucp_am_recv_data_nbx(worker, data, sink, length, &none);
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
        return UCS_INPROGRESS;
    }
    return UCS_OK;
}

/* A peer receives all that comes, until it is told to end or killed. */
static void peer_main(int fd)
{
    ucp_mem_map_params_t map    = {0};
    ucp_am_handler_param_t am   = {0};
    ucp_request_param_t none    = {0};
    static uint8_t sink[REQUESTS][LENGTH];
    void *requests[REQUESTS]    = {NULL};
    struct peer unused          = {0};
    uint8_t *window             = calloc(1, LENGTH);
    uint64_t base               = (uintptr_t)window;
    ucp_mem_h memh;
    size_t length;
    void *rkey;
    char byte;
    int i;

    open_worker();
    am.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                    UCP_AM_HANDLER_PARAM_FIELD_CB;
    am.id         = AM_ID;
    am.cb         = am_cb;
    CHECK(ucp_worker_set_am_recv_handler(worker, &am) == UCS_OK);
    unused.ep      = connect_to(fd, &unused);
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                     UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address    = window;
    map.length     = LENGTH;
    CHECK(ucp_mem_map(context, &map, &memh) == UCS_OK);
    CHECK(ucp_rkey_pack(context, memh, &rkey, &length) == UCS_OK);
    write_all(fd, &base, sizeof(base));
    write_all(fd, &length, sizeof(length));
    write_all(fd, rkey, length);
    while (recv(fd, &byte, 1, MSG_DONTWAIT) != 1) {
        for (i = 0; i < REQUESTS; ++i) {
            if ((requests[i] != NULL) && UCS_PTR_IS_PTR(requests[i])) {
                if (ucp_request_check_status(requests[i]) == UCS_INPROGRESS) {
                    continue;
                }
                ucp_request_free(requests[i]);
            }
            requests[i] = ucp_tag_recv_nbx(worker, sink[i], LENGTH, 0, 0, &none);
        }
        ucp_worker_progress(worker);
    }
    exit(0);
}

static void done_cb(void *request, ucs_status_t status, void *arg)
{
    struct peer *peer = arg;

    --peer->pending;
    peer->failed += (status != UCS_OK);
    ucp_request_free(request);
}

static ucs_status_t start(struct peer *peer, const char *what, void *data)
{
    ucp_request_param_t param = {0};
    void *request;

    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                         UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send      = done_cb;
    param.user_data    = peer;
    if (!strcmp(what, "rndv")) {
        request = ucp_tag_send_nbx(peer->ep, data, LENGTH, 1, &param);
    } else if (!strcmp(what, "am")) {
        request = ucp_am_send_nbx(peer->ep, AM_ID, NULL, 0, data, LENGTH, &param);
    } else if (!strcmp(what, "put")) {
        request = ucp_put_nbx(peer->ep, data, LENGTH, peer->base, peer->rkey,
                              &param);
    } else {
        request = ucp_get_nbx(peer->ep, data, LENGTH, peer->base, peer->rkey,
                              &param);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ++peer->pending;
        return UCS_INPROGRESS;
    }
    return UCS_PTR_STATUS(request);
}

int main(int argc, char **argv)
{
    ucp_request_param_t force = {0};
    void *data[2][REQUESTS];
    ucs_status_t status;
    void *request, *packed;
    size_t length;
    char byte = 1;
    int i, j, fds[2], wstatus;

    CHECK(argc == 2);
    for (i = 0; i < 2; ++i) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
        peers[i].fd  = fds[0];
        peers[i].pid = fork();
        CHECK(peers[i].pid >= 0);
        if (peers[i].pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            peer_main(fds[1]);
        }
        close(fds[1]);
    }
    open_worker();
    for (i = 0; i < 2; ++i) {
        peers[i].ep = connect_to(peers[i].fd, &peers[i]);
        read_all(peers[i].fd, &peers[i].base, sizeof(peers[i].base));
        read_all(peers[i].fd, &length, sizeof(length));
        packed = malloc(length);
        read_all(peers[i].fd, packed, length);
        CHECK(ucp_ep_rkey_unpack(peers[i].ep, packed, &peers[i].rkey) == UCS_OK);
        free(packed);
        for (j = 0; j < REQUESTS; ++j) {
            data[i][j] = malloc(LENGTH);
            memset(data[i][j], 1, LENGTH);
        }
        CHECK(start(&peers[i], argv[1], data[i][0]) >= 0);
        WAIT(peers[i].pending == 0);
        CHECK(peers[i].failed == 0);
    }

    for (j = 0; j < REQUESTS; ++j) { /* in the middle of it */
        CHECK(start(&peers[0], argv[1], data[0][j]) >= 0);
        CHECK(start(&peers[1], argv[1], data[1][j]) >= 0);
        ucp_worker_progress(worker);
        if (j == (REQUESTS / 2)) {
            CHECK(kill(peers[0].pid, SIGKILL) == 0);
            CHECK(waitpid(peers[0].pid, NULL, 0) == peers[0].pid);
        }
        if (peers[0].errors > 0) {
            break;
        }
    }
    WAIT((peers[0].errors == 1) && (peers[0].pending == 0));
    i      = peers[0].failed;
    status = start(&peers[0], argv[1], data[0][0]);
    if (status < 0) {
        CHECK(status != UCS_ERR_NO_RESOURCE);
    } else { /* its memory, whose key was packed, is invalidated first */
        WAIT(peers[0].pending == 0);
        CHECK(peers[0].failed == i + 1);
    }

    /* its memory has no more to do with it */
    for (j = 0; j < REQUESTS; ++j) {
        free(data[0][j]);
    }
    ucp_rkey_destroy(peers[0].rkey);
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags        = UCP_EP_CLOSE_FLAG_FORCE;
    request            = ucp_ep_close_nbx(peers[0].ep, &force);
    CHECK(!UCS_PTR_IS_ERR(request));
    if (request != NULL) {
        WAIT(ucp_request_check_status(request) != UCS_INPROGRESS);
        ucp_request_free(request);
    }

    /* the other one goes on */
    for (i = 0; i < 20; ++i) {
        CHECK(start(&peers[1], argv[1], data[1][0]) >= 0);
        WAIT(peers[1].pending == 0);
    }
    CHECK((peers[0].errors == 1) && (peers[1].errors == 0) &&
          (peers[1].failed == 0));
    ucp_rkey_destroy(peers[1].rkey);
    /* by force, and the worker goes away before that is over */
    request = ucp_ep_close_nbx(peers[1].ep, &force);
    if (UCS_PTR_IS_PTR(request)) {
        WAIT(ucp_request_check_status(request) != UCS_INPROGRESS);
        ucp_request_free(request);
    }
    write_all(peers[1].fd, &byte, 1);
    CHECK(waitpid(peers[1].pid, &wstatus, 0) == peers[1].pid);
    CHECK(WIFEXITED(wstatus) && (WEXITSTATUS(wstatus) == 0));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    printf("ok\n");
    return 0;
}
