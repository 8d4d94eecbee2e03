/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A receiver has few slots, which a sender had that was closed.  Another asks for some, and behind it the
 * successor of the first, with its VCQ: then the receiver knows that the first is gone, and both get theirs.
 * "silent": the successor asks for none, and the receiver finds out by itself.
 */
#include "uct_support.h"

static int received[2]; /* by the receiver, by the other */

static ucs_status_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    (void)data;
    (void)length;
    (void)flags;
    ++*(int*)arg;
    return UCS_OK;
}

static void send_one(struct node *from, struct node *to, uct_ep_h ep)
{
    uint64_t     word = 0;
    ucs_status_t status;

    RETRY(from, to, status, uct_ep_am_short(ep, 1, 0, &word, sizeof(word)));
    CHECK_OK(status);
}

int main(int argc, char **argv)
{
    int            silent = (argc > 1) && (strcmp(argv[1], "silent") == 0);
    struct node    receiver, other, sender;
    struct address to_receiver, to_other;
    uct_ep_h       ep;
    double         end;

    setenv("UCX_UTOFU_RX_SLOTS", "3", 1);
    node_open(&receiver, NULL, NULL);
    CHECK_OK(uct_iface_set_am_handler(receiver.iface, 1, on_message, &received[0], 0));
    node_address(&receiver, &to_receiver);
    node_open(&other, NULL, NULL);
    CHECK_OK(uct_iface_set_am_handler(other.iface, 1, on_message, &received[1], 0));
    node_address(&other, &to_other);

    node_open(&sender, NULL, NULL);
    ep = node_connect(&sender, &to_receiver);
    send_one(&sender, &receiver, ep);
    WAIT(&sender, &receiver, received[0] == 1);
    uct_ep_destroy(ep);
    node_close(&sender);

    node_open(&sender, NULL, NULL); /* it has talked before it asks */
    send_one(&sender, &other, node_connect(&sender, &to_other));
    WAIT(&sender, &other, received[1] == 1);
    send_one(&other, &receiver, node_connect(&other, &to_receiver));
    for (int i = 0; !silent && (i < 20000) && (received[0] == 1); ++i) {
        uct_worker_progress(other.worker);
        uct_worker_progress(receiver.worker);
    }
    if (!silent) {
        send_one(&sender, &receiver, node_connect(&sender, &to_receiver));
    }
    end = now() + DEADLINE;
    while ((received[0] < 3 - silent) && (now() < end)) {
        uct_worker_progress(sender.worker);
        uct_worker_progress(other.worker);
        uct_worker_progress(receiver.worker);
    }
    CHECK(received[0] == 3 - silent);
    puts("ok");
    return 0;
}
