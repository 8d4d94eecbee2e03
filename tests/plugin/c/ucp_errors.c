/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCP's error handling with several peers.  One process talks with three others,
 * which send back what they get.  One of them is stopped, gets requests of all
 * kinds, and is killed: its endpoint's handler is called once, all its requests
 * complete, those of the others go on, and no other handler is called.  A new
 * process takes its place.  Then endpoints are closed with requests in flight, by
 * flush and by force.
 */
#include "ucp_support.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PEERS     3
#define MAX       300001
#define REQUESTS  40
#define TAG_ECHO  100   /* + peer: to the peer; the answer has + 100 */
#define TAG_SINK  300   /* nobody receives these */
#define TAG_GIFT  400   /* the peer sends it on its own */

static const size_t sizes[] = {0, 8, 33, 1000, 8192, 8193, 100000, MAX};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static ucp_context_h context;
static ucp_worker_h worker;
static uint8_t in[MAX], out[MAX];

struct peer {
    int          fd;
    pid_t        pid;
    ucp_ep_h     ep;
    int          errors;  /* calls of its handler */
    ucs_status_t status;  /* of the last one */
};

static struct peer peers[PEERS];

static void error_cb(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct peer *peer = arg;

    CHECK(ep == peer->ep);
    ++peer->errors;
    peer->status = status;
}

/* ---------------------------------------------------------------- the others */

static void peer_error_cb(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status; /* the first process has closed its side, or has ended */
}

/* Send back what comes, until the socket says 'q'; 'g' asks for a gift. */
static void peer_main(struct peer *peer, unsigned number)
{
    ucp_tag_recv_info_t info;
    void *gift = NULL;
    char command;
    ssize_t got;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    context = context_open(0);
    worker  = worker_open(context, UCS_THREAD_MODE_SINGLE);
    address_send(peer->fd, worker);
    peer->ep = ep_recv(peer->fd, worker, peer_error_cb, NULL);
    for (;;) {
        ucp_tag_message_h message;

        ucp_worker_progress(worker);
        message = ucp_tag_probe_nb(worker, TAG_ECHO + number, UINT64_MAX, 1,
                                   &info);
        if (message != NULL) {
            ucp_request_param_t param = {0};

            CHECK_STATUS(wait_status(worker, ucp_tag_msg_recv_nbx(
                    worker, in, info.length, message, &param)));
            CHECK_STATUS(wait_status(worker, tag_send(peer->ep, in, info.length,
                                                      TAG_ECHO + 100 + number)));
        }
        got = recv(peer->fd, &command, 1, MSG_DONTWAIT);
        if ((got == 1) && (command == 'g')) {
            fill(out, MAX, 77);
            gift = tag_send(peer->ep, out, MAX, TAG_GIFT);
            CHECK(UCS_PTR_IS_PTR(gift)); /* not without a receive over there */
            send_all(peer->fd, "g", 1);
        } else if ((got == 1) && (command == 'q')) {
            break;
        } else if (got == 0) {
            exit(1);
        }
    }
    ep_close(worker, peer->ep, UCP_EP_CLOSE_FLAG_FORCE);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    exit(0);
}

/* --------------------------------------------------------------- the first one */

static void peer_start(unsigned number)
{
    struct peer *peer = &peers[number];
    int fds[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK((peer->pid = fork()) >= 0);
    peer->fd = fds[peer->pid == 0];
    close(fds[peer->pid != 0]);
    if (peer->pid == 0) {
        peer_main(peer, number);
    }
}

static void peer_connect(unsigned number)
{
    struct peer *peer = &peers[number];

    peer->errors = 0;
    peer->ep     = ep_recv(peer->fd, worker, error_cb, peer);
    address_send(peer->fd, worker);
}

static void echo(unsigned number)
{
    struct peer *peer = &peers[number];
    void *request;
    size_t i;

    for (i = 0; i < NUM_SIZES; ++i) {
        memset(in, 0xee, sizes[i]);
        fill(out, sizes[i], i + number);
        request = tag_recv(worker, in, sizes[i], TAG_ECHO + 100 + number);
        CHECK_STATUS(wait_status(worker, tag_send(peer->ep, out, sizes[i],
                                                  TAG_ECHO + number)));
        CHECK_STATUS(wait_status(worker, request));
        verify(in, sizes[i], i + number);
    }
    CHECK(peer->errors == 0);
}

/* Requests of all sizes, some of which can't be complete; a flush at the end. */
static void post(struct peer *peer, void **requests, const uint8_t *data)
{
    ucp_request_param_t param = {0};
    unsigned i;

    for (i = 0; i < (REQUESTS - 1); ++i) {
        requests[i] = tag_send(peer->ep, data, sizes[i % NUM_SIZES], TAG_SINK);
        CHECK(!UCS_PTR_IS_ERR(requests[i]));
    }
    requests[i] = ucp_ep_flush_nbx(peer->ep, &param);
    CHECK(UCS_PTR_IS_PTR(requests[i]));
}

/* All complete; the long ones, which need the peer's answer, with an error. */
static void all_failed(void **requests)
{
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < REQUESTS; ++i) {
        status = wait_status(worker, requests[i]);
        CHECK(status != UCS_INPROGRESS);
        if ((i < (REQUESTS - 1)) && (sizes[i % NUM_SIZES] == MAX)) {
            CHECK(status < 0);
        }
    }
}

static void killed(void)
{
    static uint8_t data[MAX], gift[MAX];
    struct peer *peer = &peers[1];
    void *requests[REQUESTS], *receive;
    double end = now() + PATIENCE;
    char byte;

    send_all(peer->fd, "g", 1);
    while (recv(peer->fd, &byte, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    echo(1); /* what was sent before has arrived, the gift's announcement too */
    CHECK(kill(peer->pid, SIGSTOP) == 0);
    post(peer, requests, data);
    echo(0); /* a peer that doesn't move holds up nobody else */
    receive = tag_recv(worker, gift, MAX, TAG_GIFT);
    CHECK(UCS_PTR_IS_PTR(receive)); /* its data has yet to be moved */
    CHECK(kill(peer->pid, SIGKILL) == 0);
    CHECK(waitpid(peer->pid, NULL, 0) == peer->pid);
    echo(0);
    echo(2);
    all_failed(requests);
    if (wait_status(worker, receive) == UCS_OK) {
        verify(gift, MAX, 77); /* it had come whole before the end */
    }
    while (!peer->errors) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    echo(2);
    CHECK((peer->errors == 1) && (peer->status < 0));
    CHECK(UCS_PTR_IS_ERR(tag_send(peer->ep, data, 8, TAG_SINK)));
    /* at once, or when the memory whose key was packed for it is invalidated */
    CHECK(wait_status(worker, tag_send(peer->ep, data, MAX, TAG_SINK)) < 0);
    ep_close(worker, peer->ep, UCP_EP_CLOSE_FLAG_FORCE);
    CHECK(peer->errors == 1);
    close(peer->fd);
}

static void peer_end(struct peer *peer)
{
    double end = now() + PATIENCE;
    int wstatus;

    send_all(peer->fd, "q", 1);
    while (waitpid(peer->pid, &wstatus, WNOHANG) != peer->pid) {
        ucp_worker_progress(worker);
        CHECK(now() < end);
    }
    CHECK(WIFEXITED(wstatus) && (WEXITSTATUS(wstatus) == 0));
    close(peer->fd);
}

int main(void)
{
    static uint8_t data[MAX];
    void *requests[REQUESTS];
    unsigned i;

    /* Long messages are to need an answer of the other side. */
    setenv("UCX_RNDV_THRESH", "16k", 0);
    for (i = 0; i < PEERS; ++i) {
        peer_start(i);
    }
    context = context_open(0);
    worker  = worker_open(context, UCS_THREAD_MODE_SINGLE);
    for (i = 0; i < PEERS; ++i) {
        peer_connect(i);
    }
    for (i = 0; i < PEERS; ++i) {
        echo(i);
    }

    killed();
    peer_start(1);
    peer_connect(1);
    echo(1);

    /* By flush: what was sent has been received. */
    echo(0);
    CHECK_STATUS(ep_close(worker, peers[0].ep, 0));
    CHECK(peers[0].errors == 0);

    /* By force: requests that nobody will answer end. */
    CHECK(kill(peers[2].pid, SIGSTOP) == 0);
    post(&peers[2], requests, data);
    ep_close(worker, peers[2].ep, UCP_EP_CLOSE_FLAG_FORCE);
    all_failed(requests);
    CHECK(kill(peers[2].pid, SIGCONT) == 0);
    echo(1);

    for (i = 0; i < PEERS; ++i) {
        peer_end(&peers[i]);
    }
    CHECK((peers[0].errors == 0) && (peers[2].errors == 0));
    ep_close(worker, peers[1].ep, UCP_EP_CLOSE_FLAG_FORCE);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    printf("ok\n");
    return 0;
}
