/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put, get and atomics between two interfaces: "local" - both in this process,
 * "pair" - the target in another one that does not progress.  Sizes 0, 1, the
 * advertised maximum and beyond; misaligned; guard zones; memory from the md and
 * from malloc.
 */
#include "uct_support.h"

static struct node origin, target_node;
static struct region local, remote; /* remote.rkey, and data when local */
static uct_ep_h ep;
static int peer_fd = -1; /* to the target's process, or -1 */
static uint64_t remote_base;

enum request {
    REQ_RESET,
    REQ_CHECK,
    REQ_FILL,
    REQ_END
};

struct message {
    enum request request;
    size_t       from, length;
    unsigned     seed;
};

/* ---------------------------------------------------------- the target's side */

static void target_do(struct region *region, const struct message *msg)
{
    switch (msg->request) {
    case REQ_RESET:
        region_reset(region);
        break;
    case REQ_CHECK:
        region_check(region, msg->from, msg->length, msg->seed);
        break;
    case REQ_FILL:
        region_fill(region, msg->seed);
        break;
    case REQ_END:
        break;
    }
}

static void ask(enum request request, size_t from, size_t length, unsigned seed)
{
    struct message msg = {request, from, length, seed};
    char done;

    if (peer_fd < 0) {
        target_do(&remote, &msg);
        return;
    }
    send_all(peer_fd, &msg, sizeof(msg));
    recv_all(peer_fd, &done, 1);
}

struct hello {
    struct address address;
    uint64_t       base;
    uint8_t        rkey[256];
};

static void target_main(int fd, size_t length, int from_md)
{
    struct region region;
    struct message msg;
    struct hello hello;
    char done = 1;

    node_open(&target_node, NULL, NULL);
    region_open(&target_node, &region, length, from_md);
    node_address(&target_node, &hello.address);
    hello.base = (uintptr_t)region.data;
    CHECK_OK(uct_md_mkey_pack(target_node.md, region.memh, hello.rkey));
    send_all(fd, &hello, sizeof(hello));
    do {
        recv_all(fd, &msg, sizeof(msg));
        target_do(&region, &msg);
        send_all(fd, &done, 1);
    } while (msg.request != REQ_END);
    region_close(&target_node, &region);
    node_close(&target_node);
}

static struct node *other(void)
{
    return (peer_fd < 0) ? &target_node : NULL;
}

/* -------------------------------------------------------------------- put, get */

static size_t pack_cb(void *dest, void *arg)
{
    size_t length = *(size_t*)arg;

    memcpy(dest, local.data, length);
    return length;
}

static void unpack_cb(void *arg, const void *data, size_t length)
{
    memcpy(arg, data, length);
}

static uct_iov_t local_iov(void *buffer, size_t length)
{
    uct_iov_t iov = {.buffer = buffer, .length = length, .memh = local.memh,
                     .stride = 0, .count = 1};

    return iov;
}

static ucs_status_t put(char kind, size_t length, uint64_t addr)
{
    uct_iov_t iov = local_iov(local.data, length);
    struct comp comp;
    ucs_status_t status;
    ssize_t packed;

    comp_init(&comp);
    switch (kind) {
    case 's':
        RETRY(&origin, other(), status,
              uct_ep_put_short(ep, local.data, length, addr, remote.rkey.rkey));
        return status;
    case 'b':
        WAIT(&origin, other(),
             (packed = uct_ep_put_bcopy(ep, pack_cb, &length, addr,
                                        remote.rkey.rkey)) !=
             UCS_ERR_NO_RESOURCE);
        if (packed < 0) {
            return packed;
        }
        CHECK(packed == (ssize_t)length);
        return UCS_OK;
    default:
        RETRY(&origin, other(), status,
              uct_ep_put_zcopy(ep, &iov, 1, addr, remote.rkey.rkey,
                               &comp.super));
        return finish(&origin, other(), status, &comp);
    }
}

static ucs_status_t get(char kind, size_t length, uint64_t addr)
{
    uct_iov_t iov = local_iov(local.data, length);
    struct comp comp;
    ucs_status_t status;

    comp_init(&comp);
    if (kind == 'b') {
        RETRY(&origin, other(), status,
              uct_ep_get_bcopy(ep, unpack_cb, local.data, length, addr,
                               remote.rkey.rkey, &comp.super));
    } else {
        RETRY(&origin, other(), status,
              uct_ep_get_zcopy(ep, &iov, 1, addr, remote.rkey.rkey,
                               &comp.super));
    }
    return finish(&origin, other(), status, &comp);
}

static void test_sizes(char kind, int is_get, size_t max)
{
    size_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 9, 16, 31, 32, 33, 63, 64, 100, 255,
                      256, 257, 1000, 4095, 4096, 4097, 8191, 8192, 8193, 65536,
                      100001, 1 << 20, (1 << 20) + 3, 0};
    size_t offsets[] = {0, 1, 3, 8};
    unsigned seed    = 1;
    size_t i, j, length;

    sizes[(sizeof(sizes) / sizeof(sizes[0])) - 1] = max;
    for (i = 0; i < (sizeof(sizes) / sizeof(sizes[0])); ++i) {
        for (j = 0; j < (sizeof(offsets) / sizeof(offsets[0])); ++j) {
            length = sizes[i];
            if ((length > max) || (length > (remote.length - offsets[j]))) {
                continue;
            }
            ++seed;
            if (is_get) {
                region_reset(&local);
                ask(REQ_FILL, 0, 0, seed);
                CHECK_OK(get(kind, length, remote_base));
                region_check(&local, 0, length, seed);
            } else {
                region_fill(&local, seed);
                ask(REQ_RESET, 0, 0, 0);
                CHECK_OK(put(kind, length, remote_base + offsets[j]));
                flush_ep(&origin, other(), ep);
                ask(REQ_CHECK, offsets[j], length, seed);
            }
        }
    }
}

/* Nothing happens and nothing breaks; the endpoint stays usable. */
static void test_refused(void)
{
    const uint64_t end      = remote_base + remote.length + GUARD;
    const uint64_t wrong[]  = {end - 7, end, end + (1 << 20), 0, UINT64_MAX - 3,
                               remote_base - GUARD - 1};
    const char *const kinds = "sbz";
    size_t i, k;

    ask(REQ_RESET, 0, 0, 0);
    region_fill(&local, 1);
    for (k = 0; k < 3; ++k) {
        for (i = 0; i < (sizeof(wrong) / sizeof(wrong[0])); ++i) {
            CHECK(put(kinds[k], 8, wrong[i]) < 0);
            if (k > 0) {
                CHECK(get(kinds[k], 8, wrong[i]) < 0);
            }
        }
    }
    CHECK(put('s', origin.attr.cap.put.max_short + 1, remote_base) < 0);
    flush_ep(&origin, other(), ep);
    ask(REQ_CHECK, 0, 0, 0);
    CHECK_OK(put('s', 8, remote_base));
    flush_ep(&origin, other(), ep);
    ask(REQ_CHECK, 0, 8, 1);
}

/* Parts from several places, with strides and empty entries in between. */
static void test_iov(void)
{
    size_t max = origin.attr.cap.put.max_iov, lengths[64], total = 0, i, pos;
    uct_iov_t iov[64];
    struct comp comp;
    ucs_status_t status;

    CHECK(max >= 1);
    max = (max > 64) ? 64 : max;
    region_fill(&local, 5);
    for (i = 0, pos = 0; i < max; ++i) {
        lengths[i] = (i % 3) ? (i * 37) % 300 : 0;
        iov[i]     = local_iov(local.data + pos, lengths[i]);
        pos       += lengths[i];
    }
    total = pos;
    ask(REQ_RESET, 0, 0, 0);
    comp_init(&comp);
    RETRY(&origin, other(), status,
          uct_ep_put_zcopy(ep, iov, max, remote_base + 1, remote.rkey.rkey,
                           &comp.super));
    CHECK_OK(finish(&origin, other(), status, &comp));
    flush_ep(&origin, other(), ep);
    ask(REQ_CHECK, 1, total, 5);

    ask(REQ_FILL, 0, 0, 6);
    region_reset(&local);
    comp_init(&comp);
    RETRY(&origin, other(), status,
          uct_ep_get_zcopy(ep, iov, (max < origin.attr.cap.get.max_iov) ?
                           max : origin.attr.cap.get.max_iov, remote_base,
                           remote.rkey.rkey, &comp.super));
    CHECK_OK(finish(&origin, other(), status, &comp));
    region_check(&local, 0, total, 6);
}

/* Many operations in flight, one completion counting all of them. */
static void test_window(void)
{
    const size_t count = 2000, length = 96;
    uct_iov_t iov;
    struct comp comp;
    ucs_status_t status;
    size_t i;

    comp_init(&comp);
    comp.super.count = count + 1;
    region_fill(&local, 9);
    ask(REQ_RESET, 0, 0, 0);
    for (i = 0; i < count; ++i) {
        iov = local_iov(local.data + (i * length), length);
        RETRY(&origin, other(), status,
              uct_ep_put_zcopy(ep, &iov, 1, remote_base + (i * length),
                               remote.rkey.rkey, &comp.super));
        CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
        if (status == UCS_OK) {
            --comp.super.count;
        }
    }
    CHECK(comp.calls == 0);
    WAIT(&origin, other(), comp.super.count == 1);
    CHECK((comp.calls == 0) && (comp.super.status == UCS_OK));
    flush_ep(&origin, other(), ep);
    ask(REQ_CHECK, 0, count * length, 9);
}

/* -------------------------------------------------------------------- atomics */

static uint64_t apply(unsigned op, uint64_t old, uint64_t value)
{
    switch (op) {
    case UCT_ATOMIC_OP_ADD:
        return old + value;
    case UCT_ATOMIC_OP_AND:
        return old & value;
    case UCT_ATOMIC_OP_OR:
        return old | value;
    case UCT_ATOMIC_OP_XOR:
        return old ^ value;
    default:
        return value;
    }
}

static uint64_t read_remote(uint64_t addr, unsigned size)
{
    uint64_t value = 0;

    region_reset(&local);
    CHECK_OK(get('z', size, addr));
    memcpy(&value, local.data, size);
    return value;
}

static void test_atomics(unsigned size)
{
    const uint64_t mask  = (size == 4) ? UINT32_MAX : UINT64_MAX;
    const uint64_t addr  = (remote_base + 15) & ~15ul;
    const uint64_t value = 0xf0c3a50196335aa5ul & mask;
    uint64_t old, expected, result;
    struct comp comp;
    ucs_status_t status;
    unsigned op;

    ask(REQ_FILL, 0, 0, 3);
    for (op = UCT_ATOMIC_OP_ADD; op <= UCT_ATOMIC_OP_XOR; ++op) {
        old      = read_remote(addr, size);
        expected = apply(op, old, value) & mask;
        RETRY(&origin, other(), status,
              (size == 4) ?
              uct_ep_atomic32_post(ep, op, value, addr, remote.rkey.rkey) :
              uct_ep_atomic64_post(ep, op, value, addr, remote.rkey.rkey));
        CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
        flush_ep(&origin, other(), ep);
        CHECK(read_remote(addr, size) == expected);
    }

    for (op = UCT_ATOMIC_OP_ADD; op <= UCT_ATOMIC_OP_SWAP; ++op) {
        old      = read_remote(addr, size);
        expected = apply(op, old, value + op) & mask;
        result   = 0xeeeeeeeeeeeeeeeeul;
        comp_init(&comp);
        RETRY(&origin, other(), status,
              (size == 4) ?
              uct_ep_atomic32_fetch(ep, op, value + op, (uint32_t*)&result,
                                    addr, remote.rkey.rkey, &comp.super) :
              uct_ep_atomic64_fetch(ep, op, value + op, &result, addr,
                                    remote.rkey.rkey, &comp.super));
        CHECK_OK(finish(&origin, other(), status, &comp));
        if (size == 4) { /* the upper half of the result is not ours */
            CHECK((result >> 32) == 0xeeeeeeeeul);
            result &= mask;
        }
        CHECK(result == old);
        CHECK(read_remote(addr, size) == expected);
    }

    /* One swap that fits, and one that doesn't. */
    for (op = 0; op < 2; ++op) {
        old    = read_remote(addr, size);
        result = 0;
        comp_init(&comp);
        RETRY(&origin, other(), status,
              (size == 4) ?
              uct_ep_atomic_cswap32(ep, old + op, 0x1234567, addr,
                                    remote.rkey.rkey, (uint32_t*)&result,
                                    &comp.super) :
              uct_ep_atomic_cswap64(ep, old + op, 0x123456789abul, addr,
                                    remote.rkey.rkey, &result, &comp.super));
        CHECK_OK(finish(&origin, other(), status, &comp));
        CHECK(result == old);
        expected = (op == 1) ? old : (size == 4) ? 0x1234567 : 0x123456789abul;
        CHECK(read_remote(addr, size) == expected);
    }

    /* Misaligned: refused, not done. */
    old = read_remote(addr, size);
    CHECK(((size == 4) ?
           uct_ep_atomic32_post(ep, UCT_ATOMIC_OP_ADD, 1, addr + 2,
                                remote.rkey.rkey) :
           uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 1, addr + 4,
                                remote.rkey.rkey)) < 0);
    flush_ep(&origin, other(), ep);
    CHECK(read_remote(addr, size) == old);
}

/* ----------------------------------------------------------------------- main */

static void test_all(void)
{
    const uct_iface_attr_t *attr = &origin.attr;

    CHECK(attr->cap.put.max_short >= 8);
    test_sizes('s', 0, attr->cap.put.max_short);
    test_sizes('b', 0, attr->cap.put.max_bcopy);
    test_sizes('z', 0, attr->cap.put.max_zcopy);
    test_sizes('b', 1, attr->cap.get.max_bcopy);
    test_sizes('z', 1, attr->cap.get.max_zcopy);
    test_iov();
    test_window();
    test_atomics(4);
    test_atomics(8);
    test_refused();
}

int main(int argc, char **argv)
{
    /* With the guards whole pages: an allocation is not larger than asked for. */
    const size_t length = (1 << 20) + 4096 - (2 * GUARD);
    struct address address;
    struct hello hello;
    pid_t pid = -1;
    int from_md, pair;

    CHECK(argc == 3);
    pair    = !strcmp(argv[1], "pair");
    from_md = !strcmp(argv[2], "md");

    if (pair) {
        pid = fork_peer(&peer_fd);
        if (pid == 0) {
            target_main(peer_fd, length, from_md);
            return 0;
        }
    }

    node_open(&origin, NULL, NULL);
    region_open(&origin, &local, length, from_md);
    if (pair) {
        recv_all(peer_fd, &hello, sizeof(hello));
        address       = hello.address;
        remote_base   = hello.base;
        remote.length = length;
        CHECK_OK(uct_rkey_unpack(origin.component, hello.rkey, &remote.rkey));
    } else {
        node_open(&target_node, NULL, NULL);
        region_open(&target_node, &remote, length, from_md);
        node_address(&target_node, &address);
        remote_base = (uintptr_t)remote.data;
    }
    ep = node_connect(&origin, &address);

    test_all();

    uct_ep_destroy(ep);
    if (pair) {
        CHECK_OK(uct_rkey_release(origin.component, &remote.rkey));
        ask(REQ_END, 0, 0, 0);
        join_peer(pid);
    } else {
        region_close(&target_node, &remote);
        node_close(&target_node);
    }
    region_close(&origin, &local);
    node_close(&origin);
    printf("ok\n");
    return 0;
}
