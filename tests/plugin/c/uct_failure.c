/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer is killed in the middle of traffic.  The error handler is called once
 * for its endpoint, everything in flight completes, flush returns, and the
 * endpoint to another peer goes on.  Argument: what is sent - put, am, get or check
 * (the question alone whether the peer is there, on an idle endpoint).
 */
#include "uct_support.h"

struct hello {
    struct address address;
    uint64_t       base;
    uint8_t        rkey[256];
};

struct link {
    int               fd;
    pid_t             pid;
    uct_ep_h          ep;
    uct_rkey_bundle_t rkey;
    uint64_t          base;
};

static struct node node;
static struct link links[2];
static struct region buffer;
static int failures[2];
static int in_flight;

static ucs_status_t ignore_cb(void *arg, void *data, size_t length,
                              unsigned flags)
{
    (void)arg;
    (void)data;
    (void)length;
    (void)flags;
    return UCS_OK;
}

static void peer_main(int fd)
{
    struct region region;
    struct hello hello;
    char byte;

    node_open(&node, NULL, NULL);
    CHECK_OK(uct_iface_set_am_handler(node.iface, 1, ignore_cb, NULL, 0));
    region_open(&node, &region, 65536, 1);
    node_address(&node, &hello.address);
    hello.base = (uintptr_t)region.data;
    CHECK_OK(uct_md_mkey_pack(node.md, region.memh, hello.rkey));
    send_all(fd, &hello, sizeof(hello));
    while (recv(fd, &byte, 1, MSG_DONTWAIT) != 1) {
        uct_worker_progress(node.worker);
    }
    region_close(&node, &region);
    node_close(&node);
}

static ucs_status_t error_cb(void *arg, uct_ep_h ep, ucs_status_t status)
{
    int i = (ep == links[0].ep) ? 0 : 1;

    (void)arg;
    CHECK(ep == links[i].ep);
    CHECK(status < 0);
    ++failures[i];
    return UCS_OK;
}

static void done_cb(uct_completion_t *self)
{
    --in_flight;
    free(self);
}

static ucs_status_t send_one(struct link *link, const char *what)
{
    uct_iov_t iov = {.buffer = buffer.data, .length = 4096,
                     .memh = buffer.memh, .count = 1};
    uct_completion_t *comp;
    ucs_status_t status;

    if (!strcmp(what, "am")) {
        return uct_ep_am_short(link->ep, 1, 0, buffer.data, 8);
    }

    if (!strcmp(what, "check")) {
        return uct_ep_check(link->ep, 0, NULL);
    }

    comp         = malloc(sizeof(*comp));
    comp->func   = done_cb;
    comp->count  = 1;
    comp->status = UCS_OK;
    if (!strcmp(what, "put")) {
        status = uct_ep_put_zcopy(link->ep, &iov, 1, link->base,
                                  link->rkey.rkey, comp);
    } else {
        status = uct_ep_get_zcopy(link->ep, &iov, 1, link->base,
                                  link->rkey.rkey, comp);
    }
    if (status == UCS_INPROGRESS) {
        ++in_flight;
    } else {
        free(comp);
    }
    return status;
}

static void send_for(struct link *link, const char *what, int count)
{
    ucs_status_t status;

    while (count-- > 0) {
        RETRY(&node, NULL, status, send_one(link, what));
        CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
    }
}

int main(int argc, char **argv)
{
    struct hello hello;
    ucs_status_t status;
    struct comp comp;
    char byte = 1;
    double end;
    int i;

    CHECK(argc == 2);
    for (i = 0; i < 2; ++i) {
        links[i].pid = fork_peer(&links[i].fd);
        if (links[i].pid == 0) {
            peer_main(links[i].fd);
            return 0;
        }
    }

    node_open(&node, error_cb, NULL);
    CHECK(node.attr.cap.flags & UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE);
    CHECK(node.attr.cap.flags & UCT_IFACE_FLAG_EP_CHECK);
    region_open(&node, &buffer, 65536, 1);
    for (i = 0; i < 2; ++i) {
        recv_all(links[i].fd, &hello, sizeof(hello));
        links[i].base = hello.base;
        links[i].ep   = node_connect(&node, &hello.address);
        CHECK_OK(uct_rkey_unpack(node.component, hello.rkey, &links[i].rkey));
        send_for(&links[i], argv[1], 100);
        flush_ep(&node, NULL, links[i].ep);
    }

    for (i = 0; i < 2; ++i) { /* both are there, and the answer says so */
        comp_init(&comp);
        RETRY(&node, NULL, status, uct_ep_check(links[i].ep, 0, &comp.super));
        CHECK_OK(finish(&node, NULL, status, &comp));
        CHECK(failures[i] == 0);
    }

    CHECK(kill(links[0].pid, SIGKILL) == 0);
    CHECK(waitpid(links[0].pid, NULL, 0) == links[0].pid);

    /* Keep sending until the failure is noticed: by an operation's own status
     * and by the handler. */
    end = now() + DEADLINE;
    do {
        status = send_one(&links[0], argv[1]);
        uct_worker_progress(node.worker);
        if (now() > end) {
            DIE("the death of the peer was not noticed");
        }
    } while ((status >= 0) || (status == UCS_ERR_NO_RESOURCE));
    WAIT(&node, NULL, failures[0] == 1);

    /* All that was in flight has completed, and a flush does not hang. */
    comp_init(&comp);
    RETRY(&node, NULL, status,
          uct_ep_flush(links[0].ep, UCT_FLUSH_FLAG_CANCEL, &comp.super));
    finish(&node, NULL, status, &comp);
    WAIT(&node, NULL, in_flight == 0);
    CHECK(send_one(&links[0], argv[1]) < 0);

    /* The other peer is as before. */
    send_for(&links[1], argv[1], 1000);
    flush_ep(&node, NULL, links[1].ep);
    CHECK((failures[0] == 1) && (failures[1] == 0));

    for (i = 0; i < 2; ++i) {
        uct_ep_destroy(links[i].ep);
        CHECK_OK(uct_rkey_release(node.component, &links[i].rkey));
    }
    send_all(links[1].fd, &byte, 1);
    join_peer(links[1].pid);
    region_close(&node, &buffer);
    node_close(&node);
    printf("ok\n");
    return 0;
}
