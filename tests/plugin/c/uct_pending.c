/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of requests that wait for room when they are purged, with a callback and without.
 */
#include "uct_support.h"

#define REQUESTS 5

static uct_pending_req_t requests[REQUESTS];
static int               purged;

static ucs_status_t no_room(uct_pending_req_t *self)
{
    (void)self;
    return UCS_ERR_NO_RESOURCE;
}

static ucs_status_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)data;
    (void)length;
    (void)flags;
    return UCS_OK;
}

static void on_purge(uct_pending_req_t *self, void *arg)
{
    CHECK(arg == &purged);
    CHECK(self == &requests[purged]); /* in the order in which they were added */
    ++purged;
}

int main(void)
{
    struct node    node;
    struct address address;
    uct_ep_h       ep;

    node_open(&node, NULL, NULL);
    node_address(&node, &address);
    CHECK_OK(uct_iface_set_am_handler(node.iface, 1, on_message, NULL, 0));
    ep = node_connect(&node, &address);
    while (uct_ep_am_short(ep, 1, 0, NULL, 0) == UCS_OK) {
    }
    for (int with_callback = 1; with_callback >= 0; --with_callback) {
        for (int i = 0; i < REQUESTS; ++i) {
            requests[i].func = no_room;
            CHECK_OK(uct_ep_pending_add(ep, &requests[i], 0));
        }
        uct_ep_pending_purge(ep, with_callback ? on_purge : NULL, &purged);
        CHECK(purged == REQUESTS);
    }
    uct_ep_pending_purge(ep, NULL, NULL); /* there is none */
    uct_ep_destroy(ep);
    node_close(&node);
    puts("ok");
    return 0;
}
