/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A flush of an interface does not tell the failure of an endpoint, which its error handler has told.
 */
#include "uct_support.h"

static int failures;

static ucs_status_t on_error(void *arg, uct_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status;
    ++failures;
    return UCS_OK;
}

int main(void)
{
    struct node    node, failing, healthy;
    struct address address[2];
    struct region  region;
    struct comp    comp;
    uct_ep_h       failed, ep;
    ucs_status_t   status;
    uint64_t       word = 0;

    node_open(&node, on_error, NULL);
    node_open(&failing, NULL, NULL);
    node_open(&healthy, NULL, NULL);
    node_address(&failing, &address[0]);
    node_address(&healthy, &address[1]);
    region_open(&healthy, &region, 4096, 1);
    failed = node_connect(&node, &address[0]);
    ep     = node_connect(&node, &address[1]);
    flush_ep(&node, &healthy, ep);
    for (int with_completion = 1; with_completion >= 0; --with_completion) {
        if (with_completion) {
            CHECK_OK(uct_ep_invalidate(failed, NULL));
            WAIT(&node, &healthy, failures == 1);
            uct_ep_destroy(failed);
        }
        RETRY(&node, &healthy, status,
              uct_ep_put_short(ep, &word, sizeof(word), (uint64_t)(uintptr_t)region.data, region.rkey.rkey));
        CHECK_OK(status);
        comp_init(&comp);
        if (with_completion) {
            status = uct_iface_flush(node.iface, 0, &comp.super);
            CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
            if (status == UCS_INPROGRESS) {
                WAIT(&node, &healthy, comp.calls > 0);
                CHECK_OK(comp.super.status);
            }
        } else {
            WAIT(&node, &healthy, (status = uct_iface_flush(node.iface, 0, NULL)) != UCS_INPROGRESS);
            CHECK_OK(status);
        }
    }
    puts("ok");
    return 0;
}
