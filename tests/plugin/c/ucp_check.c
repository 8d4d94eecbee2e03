/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data through UCP, checked byte by byte: tag messages (expected and
 * unexpected), active messages (eager and rendezvous), put, get and atomics,
 * between two processes.  Which transport is below is decided by UCX_TLS.
 * Argument: "none" or "peer", the error handling mode of the endpoints.  UCP 1.22
 * has no protocol for atomics by the network on endpoints with error handling, so
 * these are for "none" only.  "killed": the peer is killed after the first message,
 * and the endpoint's error handler must be called, once, though nothing is sent.
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

#define MAX_LENGTH (64ul << 20)
#define AM_ID      5

static int peer_errors;
static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static int fd;
static uint8_t *buffer;

static const size_t sizes[] = {0, 1, 7, 8, 32, 33, 100, 1000, 4096, 8192, 8193,
                               20000, 65536, 262145, 1 << 20, 5000001,
                               MAX_LENGTH};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

static void fill(uint8_t *data, size_t length, unsigned seed)
{
    size_t i;

    for (i = 0; i < length; ++i) {
        data[i] = (uint8_t)((i * 13) + (i >> 9) + seed);
    }
}

static void verify(const uint8_t *data, size_t length, unsigned seed)
{
    size_t i;

    for (i = 0; i < length; ++i) {
        if (data[i] != (uint8_t)((i * 13) + (i >> 9) + seed)) {
            fprintf(stderr, "byte %zu of %zu is wrong\n", i, length);
            exit(1);
        }
    }
}

static void progress_until(const int *done)
{
    double end = now() + 60;

    while (!*done) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
}

static void send_cb(void *request, ucs_status_t status, void *user_data)
{
    (void)request;
    CHECK(status == UCS_OK);
    *(int*)user_data = 1;
}

static void wait_request(void *request, int *done)
{
    CHECK(!UCS_PTR_IS_ERR(request));
    if (request == NULL) {
        return;
    }
    progress_until(done);
    ucp_request_free(request);
}

/* Both sides meet: a byte each way, with progress for the other's sake. */
static void barrier(void)
{
    double end = now() + 60;
    char byte  = 0;

    CHECK(send(fd, &byte, 1, MSG_NOSIGNAL) == 1);
    while (recv(fd, &byte, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
}

static void recv_all(void *data, size_t length)
{
    CHECK(recv(fd, data, length, MSG_WAITALL) == (ssize_t)length);
}

static void flush(void)
{
    ucp_request_param_t param;
    int done = 0;

    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send      = send_cb;
    param.user_data    = &done;
    wait_request(ucp_ep_flush_nbx(ep, &param), &done);
}

static ucp_request_param_t request_param(int *done)
{
    ucp_request_param_t param;

    memset(&param, 0, sizeof(param));
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send      = send_cb;
    param.user_data    = done;
    *done              = 0;
    return param;
}

/* ------------------------------------------------------------------ messages */

static void recv_cb(void *request, ucs_status_t status,
                    const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)request;
    (void)info;
    CHECK(status == UCS_OK);
    *(int*)user_data = 1;
}

static void tag_send(size_t length, unsigned seed)
{
    ucp_request_param_t param;
    int done;

    param = request_param(&done);
    fill(buffer, length, seed);
    wait_request(ucp_tag_send_nbx(ep, buffer, length, seed, &param), &done);
}

static void *tag_recv_start(size_t length, unsigned seed, int *done)
{
    ucp_request_param_t param = request_param(done);
    void *request;

    param.cb.recv       = recv_cb;
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    memset(buffer, 0xee, length);
    request = ucp_tag_recv_nbx(worker, buffer, length, seed, UINT64_MAX, &param);
    CHECK(request != NULL);
    return request;
}

static void test_tag(int sender)
{
    unsigned expected;
    size_t i;
    int done;

    for (expected = 0; expected < 2; ++expected) {
        for (i = 0; i < NUM_SIZES; ++i) {
            void *request = NULL;

            if (!sender && expected) {
                request = tag_recv_start(sizes[i], i + 1, &done);
            }
            barrier();
            if (sender) {
                tag_send(sizes[i], i + 1);
            } else {
                if (!expected) {
                    double end = now() + 0.002; /* let it come unexpected */
                    while (now() < end) {
                        ucp_worker_progress(worker);
                    }
                    request = tag_recv_start(sizes[i], i + 1, &done);
                }
                wait_request(request, &done);
                verify(buffer, sizes[i], i + 1);
            }
        }
    }
    barrier();
}

static size_t am_count;
static int am_done;

/* Many messages that come before anybody asks for them; more go on coming while
 * these wait, and they are asked for from the last to the first. */
static void test_unexpected(int sender)
{
    static const size_t lengths[] = {8, 33, 1000, 7000, 200, 4096};
    enum { COUNT = 400 };
    static void *sent[COUNT];
    static int dones[COUNT];
    ucp_request_param_t param;
    double end;
    int done, i;

    barrier();
    if (sender) {
        /* none is waited for before all are sent: some may be by rendezvous */
        for (i = 0; i < COUNT; ++i) {
            fill(buffer + (i * 8192ul), lengths[i % 6], 1000 + i);
            dones[i] = 0;
            param    = request_param(&dones[i]);
            sent[i]  = ucp_tag_send_nbx(ep, buffer + (i * 8192ul),
                                        lengths[i % 6], 1000 + i, &param);
        }
        for (i = 0; i < COUNT; ++i) {
            wait_request(sent[i], &dones[i]);
        }
    } else {
        end = now() + 0.2;
        while (now() < end) {
            ucp_worker_progress(worker);
        }
        for (i = COUNT - 1; i >= 0; --i) {
            void *request;

            done    = 0;
            request = tag_recv_start(lengths[i % 6], 1000 + i, &done);
            wait_request(request, &done);
            verify(buffer, lengths[i % 6], 1000 + i);
        }
    }
    barrier();
}

static void am_data_cb(void *request, ucs_status_t status, size_t length,
                       void *user_data)
{
    CHECK(status == UCS_OK);
    verify(buffer, length, (unsigned)(uintptr_t)user_data);
    ucp_request_free(request);
    am_done = 1;
}

static ucs_status_t am_cb(void *arg, const void *header, size_t header_length,
                          void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    ucp_request_param_t request = {0};
    uint32_t number;
    void *result;

    (void)arg;
    CHECK(header_length == sizeof(number));
    memcpy(&number, header, sizeof(number));
    CHECK((number < NUM_SIZES) && (length == sizes[number]));
    ++am_count;
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        verify(data, length, number + 7);
        am_done = 1;
        return UCS_OK;
    }

    memset(buffer, 0xee, length);
    request.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                           UCP_OP_ATTR_FIELD_USER_DATA |
                           UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    request.cb.recv_am   = am_data_cb;
    request.user_data    = (void*)(uintptr_t)(number + 7);
    result = ucp_am_recv_data_nbx(worker, data, buffer, length, &request);
    CHECK(UCS_PTR_IS_PTR(result)); /* freed when it is complete */
    return UCS_INPROGRESS;
}

static void test_am(int sender)
{
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                      UCP_AM_HANDLER_PARAM_FIELD_CB,
        .id         = AM_ID,
        .cb         = am_cb
    };
    ucp_request_param_t param;
    uint32_t i;
    int done;

    CHECK(ucp_worker_set_am_recv_handler(worker, &handler) == UCS_OK);
    for (i = 0; i < NUM_SIZES; ++i) {
        am_done = 0;
        barrier();
        if (sender) {
            param = request_param(&done);
            fill(buffer, sizes[i], i + 7);
            wait_request(ucp_am_send_nbx(ep, AM_ID, &i, sizeof(i), buffer,
                                         sizes[i], &param), &done);
        } else {
            progress_until(&am_done);
            CHECK(am_count == (i + 1));
        }
    }
    barrier();
}

/* ------------------------------------------------------------- remote memory */

static void test_rma(int origin, int allocate)
{
    ucp_mem_map_params_t params;
    ucp_request_param_t param;
    ucp_mem_attr_t attr;
    uint64_t remote, value, result, old;
    void *packed, *target = NULL;
    ucp_rkey_h rkey;
    ucp_mem_h memh;
    size_t i, size;
    int done;

    if (!origin) {
        memset(&params, 0, sizeof(params));
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                            UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.length     = MAX_LENGTH + 16;
        if (allocate) {
            params.flags   = UCP_MEM_MAP_ALLOCATE;
        } else {
            target         = malloc(params.length);
            params.address = target;
        }
        CHECK(ucp_mem_map(context, &params, &memh) == UCS_OK);
        attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        CHECK(ucp_mem_query(memh, &attr) == UCS_OK);
        CHECK(ucp_rkey_pack(context, memh, &packed, &size) == UCS_OK);
        CHECK(send(fd, &attr.address, 8, 0) == 8);
        CHECK(send(fd, &size, sizeof(size), 0) == sizeof(size));
        CHECK(send(fd, packed, size, 0) == (ssize_t)size);
        ucp_rkey_buffer_release(packed);
        memset(attr.address, 0, params.length);
        barrier();
        for (i = 0; i < NUM_SIZES; ++i) {
            barrier(); /* the put and its flush are done */
            verify((uint8_t*)attr.address + 1, sizes[i], i);
            fill((uint8_t*)attr.address + 1, sizes[i], i + 100);
            barrier();
            barrier(); /* the get is done */
        }
        *(uint64_t*)attr.address = 40;
        barrier();
        barrier();
        CHECK(*(uint64_t*)attr.address == (peer_errors ? 40 : 123));
        CHECK(ucp_mem_unmap(context, memh) == UCS_OK);
        free(target);
        return;
    }

    recv_all(&remote, 8);
    recv_all(&size, sizeof(size));
    packed = malloc(size);
    recv_all(packed, size);
    CHECK(ucp_ep_rkey_unpack(ep, packed, &rkey) == UCS_OK);
    free(packed);
    barrier();
    for (i = 0; i < NUM_SIZES; ++i) {
        fill(buffer, sizes[i], i);
        param = request_param(&done);
        wait_request(ucp_put_nbx(ep, buffer, sizes[i], remote + 1, rkey, &param),
                     &done);
        flush();
        barrier();
        barrier();
        memset(buffer, 0xee, sizes[i]);
        param = request_param(&done);
        wait_request(ucp_get_nbx(ep, buffer, sizes[i], remote + 1, rkey, &param),
                     &done);
        verify(buffer, sizes[i], i + 100);
        barrier();
    }
    barrier();
    if (peer_errors) {
        goto out;
    }

    value               = 2;
    param               = request_param(&done);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE |
                          UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype      = ucp_dt_make_contig(8);
    param.reply_buffer  = &result;
    wait_request(ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &value, 1, remote,
                                   rkey, &param), &done);
    CHECK(result == 40);
    done   = 0;
    old    = 42;
    result = 123;
    wait_request(ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_CSWAP, &old, 1, remote,
                                   rkey, &param), &done);
    CHECK(result == 42);
    flush();

out:
    barrier();
    ucp_rkey_destroy(rkey);
}

/* ----------------------------------------------------------------------- main */

static int error_expected, errors;

static void error_cb(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)arg;
    if (!error_expected) {
        fprintf(stderr, "endpoint error: %s\n", ucs_status_string(status));
        exit(1);
    }
    CHECK((failed == ep) && (status < 0));
    ++errors;
}

static int test_killed(int first, pid_t pid)
{
    ucp_request_param_t param;
    void *request;
    double end;
    int done;

    if (!first) {
        tag_send(1000, 1);
        flush();
        for (;;) {
            ucp_worker_progress(worker);
        }
    }

    wait_request(tag_recv_start(1000, 1, &done), &done);
    verify(buffer, 1000, 1);
    error_expected = 1;
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    progress_until(&errors);

    /* What is sent now fails, and the endpoint can be closed. */
    param   = request_param(&done);
    request = ucp_tag_send_nbx(ep, buffer, 1000, 1, &param);
    CHECK(UCS_PTR_IS_ERR(request));
    param              = request_param(&done);
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags        = UCP_EP_CLOSE_FLAG_FORCE;
    request            = ucp_ep_close_nbx(ep, &param);
    CHECK(!UCS_PTR_IS_ERR(request));
    end = now() + 60;
    while ((request != NULL) &&
           (ucp_request_check_status(request) == UCS_INPROGRESS)) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    if (request != NULL) {
        ucp_request_free(request);
    }
    CHECK(errors == 1);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    printf("ok\n");
    return 0;
}

static void open_all(void)
{
    ucp_worker_params_t worker_params = {0};
    ucp_ep_params_t ep_params         = {0};
    ucp_params_t params               = {0};
    ucp_address_t *address;
    size_t length, remote_length;
    void *remote;

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA |
                        UCP_FEATURE_AMO64;
    CHECK(ucp_init(&params, NULL, &context) == UCS_OK);
    CHECK(ucp_worker_create(context, &worker_params, &worker) == UCS_OK);
    CHECK(ucp_worker_get_address(worker, &address, &length) == UCS_OK);
    CHECK(send(fd, &length, sizeof(length), 0) == sizeof(length));
    CHECK(send(fd, address, length, 0) == (ssize_t)length);
    ucp_worker_release_address(worker, address);
    recv_all(&remote_length, sizeof(remote_length));
    remote = malloc(remote_length);
    recv_all(remote, remote_length);

    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address    = remote;
    if (peer_errors) {
        ep_params.field_mask     |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                    UCP_EP_PARAM_FIELD_ERR_HANDLER;
        ep_params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
        ep_params.err_handler.cb  = error_cb;
        ep_params.err_handler.arg = NULL;
    }
    CHECK(ucp_ep_create(worker, &ep_params, &ep) == UCS_OK);
    free(remote);
}

static void close_all(void)
{
    ucp_request_param_t param;
    int done;

    param = request_param(&done);
    wait_request(ucp_ep_close_nbx(ep, &param), &done);
    barrier();
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

int main(int argc, char **argv)
{
    int fds[2], wstatus, first;
    pid_t pid;

    CHECK(argc == 2);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    pid = fork();
    CHECK(pid >= 0);
    first = (pid != 0);
    if (!first) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    fd = fds[first];
    close(fds[!first]);
    buffer = malloc(MAX_LENGTH);
    CHECK(buffer != NULL);

    peer_errors = !!strcmp(argv[1], "none");
    open_all();
    if (!strcmp(argv[1], "killed")) {
        return test_killed(first, pid);
    }
    test_tag(first);
    test_tag(!first);
    test_unexpected(first);
    test_unexpected(!first);
    test_am(first);
    test_rma(first, 1);
    test_rma(!first, 0);
    close_all();

    free(buffer);
    if (first) {
        CHECK(waitpid(pid, &wstatus, 0) == pid);
        CHECK(WIFEXITED(wstatus) && (WEXITSTATUS(wstatus) == 0));
        printf("ok\n");
    }
    return 0;
}
