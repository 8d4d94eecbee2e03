/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that the callback keeps: the headroom in front of them is the user's,
 * the alignment is what was asked for, and they stay as they are while more come,
 * also on the same endpoint.  The sender is a second process.
 * Arguments: headroom, alignment, its offset, 1 if messages must be offered (0 if
 * none may be).
 */
#include "uct_support.h"

#define COUNT  3000
#define MAX    8000
#define AM_ID  7

struct kept {
    uint8_t  *data;
    uint64_t number;
};

static struct kept kept[64];
static unsigned num_kept, offered, total_kept;
static uint64_t expected;
static size_t headroom, alignment, offset;

static size_t length_of(uint64_t number)
{
    return 9 + ((number * 7919) % (MAX - 9));
}

static void check_message(const uint8_t *data, uint64_t number)
{
    uint64_t found;
    size_t i;

    memcpy(&found, data, sizeof(found));
    CHECK(found == number);
    for (i = 8; i < length_of(number); ++i) {
        CHECK(data[i] == pattern(i, number));
    }
}

static void release(unsigned which)
{
    uint8_t *desc   = kept[which].data - headroom;
    uint64_t number = kept[which].number;
    size_t i;

    check_message(kept[which].data, number);
    for (i = 0; i < headroom; ++i) {
        CHECK(desc[i] == pattern(i, number + 1));
    }
    kept[which] = kept[--num_kept];
    uct_iface_release_desc(desc);
}

static ucs_status_t keep_cb(void *arg, void *data, size_t length, unsigned flags)
{
    uint64_t number = expected++;
    size_t i;

    (void)arg;
    CHECK(length == length_of(number));
    check_message(data, number);
    if (!(flags & UCT_CB_PARAM_FLAG_DESC)) {
        return UCS_OK;
    }
    ++offered;
    CHECK(((uintptr_t)data + offset) % alignment == 0);
    for (i = 0; i < headroom; ++i) {
        ((uint8_t*)data - headroom)[i] = pattern(i, number + 1);
    }
    check_message(data, number);
    if ((number % 3) || (num_kept == 64)) {
        return UCS_OK;
    }
    kept[num_kept].data   = data;
    kept[num_kept].number = number;
    ++num_kept;
    ++total_kept;
    return UCS_INPROGRESS;
}

static size_t pack_cb(void *dest, void *arg)
{
    uint64_t number = *(uint64_t*)arg;
    uint8_t *bytes  = dest;
    size_t i;

    memcpy(bytes, &number, 8);
    for (i = 8; i < length_of(number); ++i) {
        bytes[i] = pattern(i, number);
    }
    return length_of(number);
}

static void open_node(struct node *node)
{
    uct_iface_params_t params;

    memset(&params, 0, sizeof(params));
    params.field_mask      = UCT_IFACE_PARAM_FIELD_RX_HEADROOM |
                             UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT |
                             UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET;
    params.rx_headroom     = headroom;
    params.am_alignment    = alignment;
    params.am_align_offset = offset;
    node_open_md(node);
    node_open_iface_params(node, &params);
}

static int sender(int fd)
{
    struct address address;
    struct node node;
    uint64_t number;
    ssize_t packed;
    uct_ep_h ep;
    char byte;

    node_open_md(&node);
    node_open_iface(&node, NULL, NULL);
    recv_all(fd, &address, sizeof(address));
    ep = node_connect(&node, &address);
    for (number = 0; number < COUNT; ++number) {
        RETRY(&node, NULL, packed,
              uct_ep_am_bcopy(ep, AM_ID, pack_cb, &number, 0));
        CHECK(packed == (ssize_t)length_of(number));
    }
    flush_ep(&node, NULL, ep);
    WAIT(&node, NULL, recv(fd, &byte, 1, MSG_DONTWAIT) == 1);
    uct_ep_destroy(ep);
    node_close(&node);
    return 0;
}

int main(int argc, char **argv)
{
    struct address address;
    struct node node;
    pid_t pid;
    int fd;

    CHECK(argc == 5);
    headroom  = strtoul(argv[1], NULL, 0);
    alignment = strtoul(argv[2], NULL, 0);
    offset    = strtoul(argv[3], NULL, 0);
    pid       = fork_peer(&fd);
    if (pid == 0) {
        return sender(fd);
    }

    open_node(&node);
    CHECK_OK(uct_iface_set_am_handler(node.iface, AM_ID, keep_cb, NULL, 0));
    node_address(&node, &address);
    send_all(fd, &address, sizeof(address));
    while (expected < COUNT) {
        uint64_t seen = expected;

        WAIT(&node, NULL, expected > seen);
        /* after every five messages, however many come at a time */
        if ((num_kept > 0) && (expected / 5 > seen / 5)) {
            release(expected % num_kept);
        }
    }
    while (num_kept > 0) {
        release(0);
    }
    if (atoi(argv[4])) {
        CHECK(total_kept > COUNT / 50);
    } else {
        CHECK(offered == 0);
    }
    send_all(fd, "", 1);
    join_peer(pid);
    node_close(&node);
    printf("ok\n");
    return 0;
}
