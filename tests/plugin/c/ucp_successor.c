/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A server is killed, and another takes its place, with the same VCQ ID, before its client
 * does anything.  What the client goes on to send or to do by its old endpoint and key
 * reaches the new server neither as messages nor in memory, and the client hears of it: an
 * operation, the flush or the error handler.
 *
 *   ucp_successor tag|put|get SIZE
 */
#include "ucp_support.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define LENGTH 65536
#define BEFORE 20 /* messages while all is well */

struct end {
    int  fd[2];
    pid_t pid;
};

static ucp_context_h context;
static ucp_worker_h worker;
static int errors;

static void error_cb(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status;
    ++errors;
}

/* Takes what comes; 'q': says what it got, and how many bytes of its memory changed. */
static void serve(int fd, int first)
{
    ucp_mem_map_params_t map = {0};
    ucp_mem_attr_t attr      = {0};
    unsigned counts[2]       = {0, 0}, i;
    ucp_tag_recv_info_t info;
    uint8_t *memory;
    ucp_mem_h memh;
    size_t length;
    void *rkey;
    char command;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    recv_all(fd, &command, 1);
    context        = context_open(0);
    worker         = worker_open(context, UCS_THREAD_MODE_SINGLE);
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    map.length     = LENGTH;
    map.flags      = UCP_MEM_MAP_ALLOCATE;
    CHECK_STATUS(ucp_mem_map(context, &map, &memh));
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    CHECK_STATUS(ucp_mem_query(memh, &attr));
    memory = attr.address;
    memset(memory, 0x11, LENGTH);
    CHECK_STATUS(ucp_rkey_pack(context, memh, &rkey, &length));
    send_all(fd, &memory, sizeof(memory));
    send_all(fd, &length, sizeof(length));
    send_all(fd, rkey, length);
    ucp_rkey_buffer_release(rkey);
    address_send(fd, worker);
    if (first) {
        ep_recv(fd, worker, error_cb, NULL);
    }
    for (command = 0; command != 'q';) {
        ucp_tag_message_h message;
        ssize_t got;

        ucp_worker_progress(worker);
        message = ucp_tag_probe_nb(worker, 0, 0, 1, &info);
        if (message != NULL) {
            static uint8_t data[LENGTH];
            ucp_request_param_t param = {0};

            CHECK_STATUS(wait_status(worker, ucp_tag_msg_recv_nbx(worker, data, info.length,
                                                                  message, &param)));
            ++counts[0];
        }
        got = recv(fd, &command, 1, MSG_DONTWAIT);
        CHECK(got != 0);
    }
    for (i = 0; i < LENGTH; ++i) {
        counts[1] += memory[i] != 0x11;
    }
    send_all(fd, counts, sizeof(counts));
    for (;;) {
        pause();
    }
}

/* The servers are made before the client has UCX, which does not work in a child. */
static void server_fork(struct end *server, int first)
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, server->fd) == 0);
    server->pid = fork();
    CHECK(server->pid >= 0);
    if (server->pid == 0) {
        serve(server->fd[1], first);
    }
}

static void server_start(const struct end *server, void **memory, void *rkey)
{
    size_t length;

    send_all(server->fd[0], "g", 1);
    recv_all(server->fd[0], memory, sizeof(*memory));
    recv_all(server->fd[0], &length, sizeof(length));
    CHECK(length <= 4096);
    recv_all(server->fd[0], rkey, length);
}

int main(int argc, char **argv)
{
    static char rkey_buffer[4096], other[4096];
    static uint8_t data[LENGTH];
    struct end old, new;
    ucs_status_t status;
    ucp_request_param_t param = {0};
    ucp_rkey_h rkey;
    ucp_ep_h ep;
    void *memory, *unused;
    size_t size;
    unsigned counts[2], failed = 0, i;
    double end;

    CHECK(argc == 3);
    size = (size_t)atoi(argv[2]);
    CHECK(size <= LENGTH);
    server_fork(&old, 1);
    server_fork(&new, 0);
    context = context_open(0);
    worker  = worker_open(context, UCS_THREAD_MODE_SINGLE);
    server_start(&old, &memory, rkey_buffer);
    ep = ep_recv(old.fd[0], worker, error_cb, NULL);
    address_send(old.fd[0], worker);
    CHECK_STATUS(ucp_ep_rkey_unpack(ep, rkey_buffer, &rkey));
    memset(data, 0x77, sizeof(data));
    for (i = 0; i < BEFORE; ++i) {
        CHECK_STATUS(wait_status(worker, tag_send(ep, data, (i % 4) * 30, i)));
    }
    CHECK_STATUS(wait_status(worker, ucp_put_nbx(ep, data, 8, (uintptr_t)memory, rkey, &param)));
    CHECK_STATUS(ep_flush(worker, ep));

    CHECK(kill(old.pid, SIGKILL) == 0);
    CHECK(waitpid(old.pid, NULL, 0) == old.pid);
    server_start(&new, &unused, other);
    recv_all(new.fd[0], &size, sizeof(size)); /* its address, which the client never sees */
    CHECK(size <= sizeof(other));
    recv_all(new.fd[0], other, size);
    size = (size_t)atoi(argv[2]);
    for (i = 0; i < 3; ++i) {
        void *request = !strcmp(argv[1], "tag") ? tag_send(ep, data, size, 99) :
                        !strcmp(argv[1], "put") ?
                        ucp_put_nbx(ep, data, size, (uintptr_t)memory, rkey, &param) :
                        ucp_get_nbx(ep, data, size, (uintptr_t)memory, rkey, &param);
        status = wait_status(worker, request);
        failed += status != UCS_OK;
    }
    failed += (errors == 0) && (ep_flush(worker, ep) != UCS_OK);
    for (end = now() + PATIENCE; (errors == 0) && (now() < end);) {
        ucp_worker_progress(worker);
    }
    CHECK(errors == 1);
    CHECK(failed > 0);

    send_all(new.fd[0], "q", 1);
    recv_all(new.fd[0], counts, sizeof(counts));
    printf("%u messages, %u bytes changed\n", counts[0], counts[1]);
    CHECK((counts[0] == 0) && (counts[1] == 0));
    ucp_rkey_destroy(rkey);
    ep_close(worker, ep, UCP_EP_CLOSE_FLAG_FORCE);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    kill(new.pid, SIGKILL);
    CHECK(waitpid(new.pid, NULL, 0) == new.pid);
    printf("ok\n");
    return 0;
}
