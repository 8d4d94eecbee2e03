/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCP connections by socket address: UCX's tcp connection manager meets, the data
 * goes over what UCX_TLS allows besides tcp.  One process listens, its child
 * connects; tag messages both ways, a put and a get, all with error handling.
 * Prints the transports of the endpoint, one a line.  Argument "killed": then the
 * child is killed, and the listener's endpoint must learn of it; else the child
 * closes its endpoint, and the listener goes on to serve a second one.
 */
#include "ucp_support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MAX 1000001

static const size_t sizes[] = {0, 8, 33, 1000, 8192, 8193, 100000, MAX};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static ucp_conn_request_h conn_request;
static int errors, fd;
static uint8_t in[MAX], out[MAX];

static void error_cb(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)arg;
    CHECK((failed == ep) && (status < 0));
    ++errors;
}

static void conn_cb(ucp_conn_request_h request, void *arg)
{
    (void)arg;
    conn_request = request;
}

static void exchange(int turn)
{
    size_t i;

    for (i = 0; i < (2 * NUM_SIZES); ++i) {
        size_t length = sizes[i / 2];

        if ((int)(i & 1) == turn) {
            fill(out, length, i);
            CHECK_STATUS(wait_status(worker, tag_send(ep, out, length, i)));
        } else {
            memset(in, 0xee, length);
            CHECK_STATUS(wait_status(worker, tag_recv(worker, in, length, i)));
            verify(in, length, i);
        }
    }
}

static void put_get(void)
{
    ucp_request_param_t param = {0};
    uint64_t remote;
    ucp_rkey_h rkey;
    void *packed;
    size_t size;

    recv_all(fd, &remote, sizeof(remote));
    recv_all(fd, &size, sizeof(size));
    CHECK((packed = malloc(size)) != NULL);
    recv_all(fd, packed, size);
    CHECK_STATUS(ucp_ep_rkey_unpack(ep, packed, &rkey));
    free(packed);
    fill(out, MAX, 5);
    CHECK_STATUS(wait_status(worker, ucp_put_nbx(ep, out, MAX, remote, rkey,
                                                 &param)));
    CHECK_STATUS(ep_flush(worker, ep));
    CHECK_STATUS(wait_status(worker, ucp_get_nbx(ep, in, MAX, remote, rkey,
                                                 &param)));
    verify(in, MAX, 5);
    ucp_rkey_destroy(rkey);
}

static void target(void)
{
    ucp_mem_map_params_t params = {0};
    static uint8_t region[MAX];
    uint64_t remote = (uintptr_t)region;
    double end      = now() + PATIENCE;
    ucp_mem_h memh;
    void *packed;
    size_t size;
    char byte;

    memset(region, 0, MAX);
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                        UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = region;
    params.length     = MAX;
    CHECK_STATUS(ucp_mem_map(context, &params, &memh));
    CHECK_STATUS(ucp_rkey_pack(context, memh, &packed, &size));
    send_all(fd, &remote, sizeof(remote));
    send_all(fd, &size, sizeof(size));
    send_all(fd, packed, size);
    ucp_rkey_buffer_release(packed);
    while (recv(fd, &byte, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    verify(region, MAX, 5);
    CHECK_STATUS(ucp_mem_unmap(context, memh));
}

static void ep_open(ucp_ep_params_t *params)
{
    params->field_mask    |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                             UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode       = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb = error_cb;
    CHECK_STATUS(ucp_ep_create(worker, params, &ep));
}

static void print_transports(void)
{
    ucp_transport_entry_t entries[16];
    ucp_ep_attr_t attr = {0};
    unsigned i;

    attr.field_mask             = UCP_EP_ATTR_FIELD_TRANSPORTS;
    attr.transports.entries     = entries;
    attr.transports.num_entries = 16;
    attr.transports.entry_size  = sizeof(entries[0]);
    CHECK_STATUS(ucp_ep_query(ep, &attr));
    for (i = 0; i < attr.transports.num_entries; ++i) {
        printf("lane %s/%s\n", entries[i].transport_name, entries[i].device_name);
    }
    fflush(stdout);
}

static void client(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    ucp_ep_params_t params     = {0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    recv_all(fd, &address.sin_port, sizeof(address.sin_port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    context                 = context_open(0);
    worker                  = worker_open(context, UCS_THREAD_MODE_SINGLE);
    params.field_mask       = UCP_EP_PARAM_FIELD_SOCK_ADDR |
                              UCP_EP_PARAM_FIELD_FLAGS;
    params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr    = (struct sockaddr*)&address;
    params.sockaddr.addrlen = sizeof(address);
    ep_open(&params);
    exchange(0);
    put_get();
    send_all(fd, "d", 1);
    print_transports();
    for (;;) { /* to be killed, or told to end */
        char byte;

        ucp_worker_progress(worker);
        if (recv(fd, &byte, 1, MSG_DONTWAIT) == 1) {
            break;
        }
    }
    CHECK(errors == 0);
    CHECK_STATUS(ep_close(worker, ep, 0));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    exit(0);
}

/* Before UCX is opened here: its threads do not go along with a fork. */
static pid_t client_start(int *fd_p)
{
    int fds[2];
    pid_t pid;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK((pid = fork()) >= 0);
    fd = fds[pid == 0];
    close(fds[pid != 0]);
    if (pid == 0) {
        client();
    }
    *fd_p = fd;
    return pid;
}

static void serve(pid_t pid, in_port_t port, int kill_it)
{
    ucp_ep_params_t params = {0};
    double end             = now() + PATIENCE;
    int wstatus;

    send_all(fd, &port, sizeof(port));
    errors = 0;
    while (conn_request == NULL) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = conn_request;
    ep_open(&params);
    conn_request = NULL;
    exchange(1);
    target();
    print_transports();
    CHECK(errors == 0);
    if (kill_it) {
        CHECK(kill(pid, SIGKILL) == 0);
    } else {
        send_all(fd, "q", 1);
    }
    while (waitpid(pid, &wstatus, WNOHANG) != pid) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    CHECK(kill_it || (WIFEXITED(wstatus) && (WEXITSTATUS(wstatus) == 0)));
    while (errors == 0) { /* either way the connection has ended */
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    ep_close(worker, ep, UCP_EP_CLOSE_FLAG_FORCE);
    CHECK(errors == 1);
    close(fd);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address    = {.sin_family = AF_INET};
    ucp_listener_params_t params  = {0};
    ucp_listener_attr_t attr      = {0};
    ucp_listener_h listener;
    in_port_t port;
    pid_t pids[2];
    int fds[2];

    CHECK(argc == 2);
    pids[0]                 = client_start(&fds[0]);
    pids[1]                 = client_start(&fds[1]);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    context                 = context_open(0);
    worker                  = worker_open(context, UCS_THREAD_MODE_SINGLE);
    params.field_mask       = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                              UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr.addr    = (struct sockaddr*)&address;
    params.sockaddr.addrlen = sizeof(address);
    params.conn_handler.cb  = conn_cb;
    CHECK_STATUS(ucp_listener_create(worker, &params, &listener));
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    CHECK_STATUS(ucp_listener_query(listener, &attr));
    port = ((struct sockaddr_in*)&attr.sockaddr)->sin_port;

    fd = fds[0];
    serve(pids[0], port, !strcmp(argv[1], "killed"));
    fd = fds[1];
    serve(pids[1], port, 0);

    ucp_listener_destroy(listener);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    printf("ok\n");
    return 0;
}
