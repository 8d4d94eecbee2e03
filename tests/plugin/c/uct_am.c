/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Active messages between two interfaces: "local" - both in this process,
 * "loopback" - an interface and itself, "pair" - two processes.  Every message
 * carries its number and a pattern; the receiver checks that it gets each one
 * once, in order, with its content.
 */
#include "uct_support.h"

enum {
    AM_DATA  = 3,  /* number, pattern */
    AM_PING  = 31, /* answered from inside the handler */
    AM_PONG  = 0,
    AM_READ  = 17, /* the receiver looks at the counter that was put before */
    MAX_SIZE = 65536
};

struct receiver {
    struct node node;
    uct_ep_h    ep;        /* back to the sender */
    uint64_t    expected;  /* number of the next data message */
    uint64_t    pings, pongs, reads;
    uint64_t    counter_mem[8];
    uint64_t    *counter;
    size_t      queued;    /* pongs waiting for room */
};

/* As UCT has it, an 8-byte header comes first. */
static size_t message_fill(uint8_t *buffer, uint64_t number, size_t length)
{
    size_t i;

    memcpy(buffer, &number, sizeof(number));
    for (i = 8; i < length; ++i) {
        buffer[i] = pattern(i, number);
    }
    return length;
}

static ucs_status_t data_cb(void *arg, void *data, size_t length, unsigned flags)
{
    struct receiver *receiver = arg;
    const uint8_t *bytes      = data;
    uint64_t number;
    size_t i;

    (void)flags; /* may say that the message can be kept */
    CHECK(length >= 8);
    memcpy(&number, data, sizeof(number));
    if ((number & 0xffffffff) != receiver->expected) {
        DIE("message %llu came, %llu was next",
            (unsigned long long)(number & 0xffffffff),
            (unsigned long long)receiver->expected);
    }
    CHECK(length == (number >> 32));
    for (i = 8; i < length; ++i) {
        CHECK(bytes[i] == pattern(i, number));
    }
    ++receiver->expected;
    return UCS_OK;
}

struct pong {
    uct_pending_req_t super;
    struct receiver   *receiver;
    uint64_t          number;
};

static ucs_status_t pong_progress(uct_pending_req_t *self)
{
    struct pong *pong = (struct pong*)self;
    ucs_status_t status;

    status = uct_ep_am_short(pong->receiver->ep, AM_PONG, pong->number, NULL, 0);
    if (status == UCS_ERR_NO_RESOURCE) {
        return status;
    }
    CHECK(status == UCS_OK);
    --pong->receiver->queued;
    free(pong);
    return UCS_OK;
}

static ucs_status_t ping_cb(void *arg, void *data, size_t length, unsigned flags)
{
    struct receiver *receiver = arg;
    ucs_status_t status;
    struct pong *pong;
    uint64_t number;

    (void)flags;
    CHECK(length == 8);
    memcpy(&number, data, sizeof(number));
    CHECK(number == receiver->pings);
    ++receiver->pings;

    pong             = malloc(sizeof(*pong));
    pong->super.func = pong_progress;
    pong->receiver   = receiver;
    pong->number     = number;
    ++receiver->queued;
    for (;;) {
        if (receiver->queued == 1) { /* else it would overtake */
            status = pong_progress(&pong->super);
            if (status == UCS_OK) {
                break;
            }
        }
        status = uct_ep_pending_add(receiver->ep, &pong->super, 0);
        if (status == UCS_OK) {
            break;
        }
        CHECK(status == UCS_ERR_BUSY);
        CHECK(receiver->queued == 1);
    }
    return UCS_OK;
}

static ucs_status_t pong_cb(void *arg, void *data, size_t length, unsigned flags)
{
    struct receiver *sender = arg;
    uint64_t number;

    (void)flags;
    CHECK(length == 8);
    memcpy(&number, data, sizeof(number));
    CHECK(number == sender->pongs);
    ++sender->pongs;
    return UCS_OK;
}

/* A put, a fence, an AM: the AM must find the data of the put. */
static ucs_status_t read_cb(void *arg, void *data, size_t length, unsigned flags)
{
    struct receiver *receiver = arg;
    uint64_t number;

    (void)flags;
    CHECK(length == 8);
    memcpy(&number, data, sizeof(number));
    if (__atomic_load_n(receiver->counter, __ATOMIC_ACQUIRE) < number) {
        DIE("message %llu overtook the put before it",
            (unsigned long long)number);
    }
    ++receiver->reads;
    return UCS_OK;
}

static void receiver_open(struct receiver *receiver)
{
    uct_iface_h iface;

    node_open(&receiver->node, NULL, NULL);
    receiver->counter = receiver->counter_mem;
    iface             = receiver->node.iface;
    CHECK_OK(uct_iface_set_am_handler(iface, AM_DATA, data_cb, receiver, 0));
    CHECK_OK(uct_iface_set_am_handler(iface, AM_PING, ping_cb, receiver, 0));
    CHECK_OK(uct_iface_set_am_handler(iface, AM_PONG, pong_cb, receiver, 0));
    CHECK_OK(uct_iface_set_am_handler(iface, AM_READ, read_cb, receiver, 0));
}

/* ------------------------------------------------------------------- sender */

static struct receiver self, peer;
static struct node *second; /* the receiver's node when it is in this process */
static struct region buffer;
static struct region counter;
static uint64_t counter_addr;

struct bcopy {
    uint64_t number;
    size_t   length;
};

static size_t pack_cb(void *dest, void *arg)
{
    struct bcopy *bcopy = arg;

    return message_fill(dest, bcopy->number, bcopy->length);
}

static ucs_status_t send_message(unsigned kind, uint64_t index, size_t length)
{
    struct bcopy bcopy = {index | ((uint64_t)length << 32), length};
    size_t header      = 8;
    uct_iov_t iov[2];
    struct comp comp;
    ucs_status_t status;
    ssize_t packed;

    memset(iov, 0, sizeof(iov));
    message_fill(buffer.data, bcopy.number, length);
    iov[0].buffer = buffer.data;
    iov[0].memh   = buffer.memh;
    iov[0].count  = iov[1].count = 1;
    switch (kind) {
    case 0:
        RETRY(&self.node, second, status,
              uct_ep_am_short(self.ep, AM_DATA, bcopy.number, buffer.data + 8,
                              length - 8));
        return status;
    case 1:
        iov[0].length = 5; /* the header itself is split */
        iov[1]        = iov[0];
        iov[1].buffer = buffer.data + 5;
        iov[1].length = length - 5;
        RETRY(&self.node, second, status,
              uct_ep_am_short_iov(self.ep, AM_DATA, iov, 2));
        return status;
    case 2:
        WAIT(&self.node, second,
             (packed = uct_ep_am_bcopy(self.ep, AM_DATA, pack_cb, &bcopy, 0)) !=
             UCS_ERR_NO_RESOURCE);
        CHECK((packed < 0) || (packed == (ssize_t)length));
        return (packed < 0) ? (ucs_status_t)packed : UCS_OK;
    default:
        if (header > self.node.attr.cap.am.max_hdr) {
            header = 0;
        }
        iov[0].buffer = buffer.data + header;
        iov[0].length = (length - header) / 2;
        iov[1]        = iov[0];
        iov[1].buffer = (uint8_t*)iov[0].buffer + iov[0].length;
        iov[1].length = length - header - iov[0].length;
        comp_init(&comp);
        RETRY(&self.node, second, status,
              uct_ep_am_zcopy(self.ep, AM_DATA, buffer.data, header, iov,
                              (self.node.attr.cap.am.max_iov > 1) ? 2 : 1, 0,
                              &comp.super));
        return finish(&self.node, second, status, &comp);
    }
}

static uint64_t sent;

static void send_data(unsigned kind, size_t length)
{
    CHECK_OK(send_message(kind, sent, length));
    ++sent;
}

static size_t limit(unsigned kind)
{
    const uct_iface_attr_t *attr = &self.node.attr;
    size_t max = (kind <= 1) ? attr->cap.am.max_short :
                 (kind == 2) ? attr->cap.am.max_bcopy : attr->cap.am.max_zcopy;

    return (max > MAX_SIZE) ? MAX_SIZE : max;
}

/* Every size class of every kind, then a mix in which kinds follow each other. */
static void test_sizes(void)
{
    const size_t sizes[] = {8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65,
                            255, 256, 1000, 4096, 8000, SIZE_MAX};
    unsigned kind;
    size_t i, length;

    for (kind = 0; kind <= 3; ++kind) {
        CHECK(limit(kind) >= ((kind <= 1) ? 16 : 64));
        for (i = 0; i < (sizeof(sizes) / sizeof(sizes[0])); ++i) {
            length = (sizes[i] == SIZE_MAX) ? limit(kind) : sizes[i];
            if (length <= limit(kind)) {
                send_data(kind, length);
            }
        }
    }
}

static void test_mix(size_t count)
{
    unsigned state = 12345;
    size_t i, length;
    unsigned kind;

    for (i = 0; i < count; ++i) {
        state  = (state * 1103515245u) + 12345u;
        kind   = (state >> 16) % 4;
        length = 8 + ((state >> 8) % 1500);
        send_data(kind, (length > limit(kind)) ? limit(kind) : length);
    }
}

static void test_ping(uint64_t count)
{
    ucs_status_t status;
    uint64_t i;

    for (i = 0; i < count; ++i) {
        RETRY(&self.node, second, status,
              uct_ep_am_short(self.ep, AM_PING, i, NULL, 0));
        CHECK_OK(status);
    }
    WAIT(&self.node, second, self.pongs == count);
}

static void test_fence(uint64_t count)
{
    ucs_status_t status;
    uint64_t i;

    for (i = 1; i <= count; ++i) {
        RETRY(&self.node, second, status,
              uct_ep_put_short(self.ep, &i, sizeof(i), counter_addr,
                               counter.rkey.rkey));
        CHECK_OK(status);
        CHECK_OK((i & 1) ? uct_ep_fence(self.ep, 0) :
                 uct_iface_fence(self.node.iface, 0));
        RETRY(&self.node, second, status,
              uct_ep_am_short(self.ep, AM_READ, i, NULL, 0));
        CHECK_OK(status);
    }
}

/* Too long, or no such id: refused, and nothing arrives. */
static void test_refused(void)
{
    const uct_iface_attr_t *attr = &self.node.attr;

    CHECK(uct_ep_am_short(self.ep, AM_DATA, 0, buffer.data,
                          attr->cap.am.max_short - 7) < 0);
    CHECK_STATUS(uct_iface_set_am_handler(self.node.iface, 32, data_cb, NULL, 0),
                 UCS_ERR_INVALID_PARAM);
}

struct hello {
    struct address address;
    uint64_t       counter;
    uint8_t        rkey[256];
};

struct result {
    uint64_t expected, reads;
};

static void hello_make(struct receiver *receiver, struct region *region,
                       struct hello *hello)
{
    memset(hello, 0, sizeof(*hello));
    region_open(&receiver->node, region, 64, 1);
    memset(region->data, 0, region->length);
    receiver->counter = (uint64_t*)region->data;
    node_address(&receiver->node, &hello->address);
    hello->counter = (uintptr_t)region->data;
    CHECK_OK(uct_md_mkey_pack(receiver->node.md, region->memh, hello->rkey));
}

static void peer_main(int fd)
{
    struct region region;
    struct address address;
    struct result want;
    struct hello hello;

    receiver_open(&peer);
    hello_make(&peer, &region, &hello);
    send_all(fd, &hello, sizeof(hello));
    recv_all(fd, &address, sizeof(address));
    peer.ep = node_connect(&peer.node, &address);
    while (recv(fd, &want, sizeof(want), MSG_DONTWAIT) != sizeof(want)) {
        uct_worker_progress(peer.node.worker);
    }
    WAIT(&peer.node, NULL,
         (peer.expected == want.expected) && (peer.reads == want.reads));
    flush_ep(&peer.node, NULL, peer.ep);
    send_all(fd, &want, 1);
    recv_all(fd, &want, 1);
    uct_ep_destroy(peer.ep);
    region_close(&peer.node, &region);
    node_close(&peer.node);
}

int main(int argc, char **argv)
{
    const uint64_t reads = 500;
    struct region region;
    struct address address;
    struct result want;
    struct hello hello;
    int fd    = -1;
    pid_t pid = -1;
    int pair, loopback;

    CHECK(argc == 2);
    pair     = !strcmp(argv[1], "pair");
    loopback = !strcmp(argv[1], "loopback");
    if (pair) {
        pid = fork_peer(&fd);
        if (pid == 0) {
            peer_main(fd);
            return 0;
        }
    }

    receiver_open(&self);
    region_open(&self.node, &buffer, MAX_SIZE, 1);
    node_address(&self.node, &address);
    if (pair) {
        recv_all(fd, &hello, sizeof(hello));
        send_all(fd, &address, sizeof(address));
    } else if (loopback) {
        hello_make(&self, &region, &hello);
        self.ep = node_connect(&self.node, &hello.address);
    } else {
        receiver_open(&peer);
        second = &peer.node;
        hello_make(&peer, &region, &hello);
        peer.ep = node_connect(&peer.node, &address);
    }
    if (!loopback) {
        self.ep = node_connect(&self.node, &hello.address);
    }
    counter_addr = hello.counter;
    CHECK_OK(uct_rkey_unpack(self.node.component, hello.rkey, &counter.rkey));

    test_refused();
    test_sizes();
    test_mix(5000);
    test_ping(2000);
    test_fence(reads);
    test_mix(1000);
    flush_ep(&self.node, second, self.ep);

    want.expected = sent;
    want.reads    = reads;
    if (pair) {
        char done;

        send_all(fd, &want, sizeof(want));
        WAIT(&self.node, NULL, recv(fd, &done, 1, MSG_DONTWAIT) == 1);
        send_all(fd, &done, 1);
    } else if (loopback) {
        WAIT(&self.node, NULL,
             (self.expected == sent) && (self.reads == reads));
    } else {
        WAIT(&self.node, second,
             (peer.expected == sent) && (peer.reads == reads));
    }

    CHECK_OK(uct_rkey_release(self.node.component, &counter.rkey));
    uct_ep_destroy(self.ep);
    if (loopback) {
        region_close(&self.node, &region);
    } else if (!pair) {
        uct_ep_destroy(peer.ep);
        region_close(&peer.node, &region);
        node_close(&peer.node);
    }
    region_close(&self.node, &buffer);
    node_close(&self.node);
    if (pair) {
        join_peer(pid);
    }
    printf("ok\n");
    return 0;
}
