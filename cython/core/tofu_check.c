/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_check.c - asking whether a peer is there, when there is no room to ask.
 *
 * UCP's keepalive sends a message (UCT_SEND_FLAG_PEER_CHECK), or calls ep_check.
 * Told that there is no room it keeps a pointer to its endpoint until it tries again,
 * and that pointer is not looked after when it has moved to an endpoint that is still
 * being connected: UCX 1.22 reads freed memory then (ucp_worker_keepalive_remove_ep).
 * So what finds no room is taken and kept here.
 *
 * Each goes by an ep of its own to the same peer, which the user does not see: what
 * waits for the peer's program to give slots must not stand before puts and gets, which
 * need nobody's help there.  Hence it may be overtaken, and no flush waits for it.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#include <stdlib.h>

/* Of an ep.  They come every 20 s, so that is a peer that has not moved for 21 minutes;
 * from then on one that says the same as another that waits is that one. */
#define TOFU_CHECKS_MAX 64u

typedef struct tofu_check {
    tofu_pending_req_t req;
    tofu_link_t        link;   /* in iface->checks */
    tofu_ep_t          *owner; /* the user's */
    tofu_ep_t          *via;   /* ours; its user is this */
    uint8_t            id;     /* TOFU_AM_ID_MAX: no message, tofu_ep_check */
    size_t             length;
    char               data[];
} tofu_check_t;

/* The ep goes as well; a message that it has taken stays and is sent. */
static void tofu_check_free(tofu_check_t *check)
{
    tofu_ep_pending_purge(check->via, NULL, NULL);
    tofu_ep_destroy(check->via);
    tofu_list_del(&check->link);
    --check->owner->checks;
    free(check);
}

static size_t tofu_check_pack(void *dest, void *arg)
{
    const tofu_check_t *check = arg;

    memcpy(dest, check->data, check->length);
    return check->length;
}

static int8_t tofu_check_send(tofu_pending_req_t *self)
{
    tofu_check_t *check = tofu_container(self, tofu_check_t, req);
    tofu_ep_t    *owner = check->owner;
    intptr_t     result;

    result = (check->id == TOFU_AM_ID_MAX) ?
                     (intptr_t)tofu_order_check(check->via) :
                     tofu_ep_am_bcopy(check->via, check->id, tofu_check_pack, check);
    if (result == TOFU_ERR_NO_RESOURCE) {
        return TOFU_ERR_NO_RESOURCE;
    }
    tofu_check_free(check);
    if (result < 0) {
        tofu_ep_fail(owner, (tofu_status_t)result);
    }
    return TOFU_OK;
}

void tofu_check_failed(tofu_ep_t *via)
{
    tofu_check_t  *check = via->user;
    tofu_ep_t     *owner = check->owner;
    tofu_status_t status = (tofu_status_t)via->status;

    tofu_check_free(check);
    tofu_ep_fail(owner, status);
}

void tofu_checks_drop(tofu_ep_t *owner)
{
    tofu_link_t *link, *next;

    for (link = owner->iface->checks.next; link != &owner->iface->checks; link = next) {
        tofu_check_t *check = tofu_container(link, tofu_check_t, link);
        next                = link->next;
        if (check->owner == owner) {
            tofu_check_free(check);
        }
    }
}

/* Does the same message of the owner wait already? */
static int tofu_check_waits(const tofu_check_t *check)
{
    const tofu_link_t *head = &check->owner->iface->checks;
    const tofu_link_t *link;

    for (link = head->next; link != head; link = link->next) {
        const tofu_check_t *other = tofu_container(link, const tofu_check_t, link);
        if ((other->owner == check->owner) && (other->id == check->id) &&
            (other->length == check->length) &&
            (memcmp(other->data, check->data, check->length) == 0)) {
            return 1;
        }
    }
    return 0;
}

/* `via` was refused room for it, and is destroyed if it is not needed.  The user's memory
 * is not needed any more. */
static intptr_t tofu_check_keep(tofu_ep_t *ep, tofu_ep_t *via, uint8_t id,
                                tofu_pack_cb_t pack, void *arg)
{
    const size_t max    = (pack != NULL) ? ep->iface->config.am_seg_size : 0;
    intptr_t     result = TOFU_ERR_NO_RESOURCE;
    tofu_check_t *check, *smaller;

    check = malloc(sizeof(*check) + max);
    if (check == NULL) {
        tofu_ep_destroy(via);
        return TOFU_ERR_NO_MEMORY;
    }
    check->req.func = tofu_check_send;
    check->owner    = ep;
    check->via      = via;
    check->id       = id;
    check->length   = (pack != NULL) ? pack(check->data, arg) : 0;
    if (check->length > max) {
        tofu_error("am_bcopy: packed length of %zu bytes, at most %zu",
                   check->length, max);
        result = TOFU_ERR_INVALID_PARAM;
        goto err_free;
    }
    if (ep->checks == TOFU_CHECKS_MAX) {
        if (tofu_check_waits(check)) {
            result = (intptr_t)check->length;
        }
        goto err_free;
    }
    smaller   = realloc(check, sizeof(*check) + check->length);
    check     = (smaller != NULL) ? smaller : check;
    via->user = check;
    tofu_list_add(&ep->iface->checks, &check->link);
    ++ep->checks;
    tofu_ep_pending_queue(via, &check->req);
    return (intptr_t)check->length;

err_free:
    free(check);
    tofu_ep_destroy(via);
    return result;
}

/* By an ep of its own: at once if that has room, which it may have where the user's has
 * requests before it. */
static intptr_t tofu_check_begin(tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack,
                                 void *arg)
{
    tofu_ep_t     *via;
    intptr_t      result;
    tofu_status_t status = tofu_ep_open(ep->iface, ep->peer, &via);

    if (status != TOFU_OK) {
        return status;
    }
    via->hidden = 1;
    result      = (pack != NULL) ? tofu_ep_am_bcopy(via, id, pack, arg) :
                                   (intptr_t)tofu_order_check(via);
    if (result == TOFU_ERR_NO_RESOURCE) {
        return tofu_check_keep(ep, via, id, pack, arg);
    }
    tofu_ep_destroy(via);
    return result;
}

tofu_status_t tofu_check_later(tofu_ep_t *ep)
{
    return (tofu_status_t)tofu_check_begin(ep, TOFU_AM_ID_MAX, NULL, NULL);
}

intptr_t tofu_ep_am_check(tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack, void *arg)
{
    intptr_t result;

    if ((ep->flags & TOFU_EP_FAILED) || (id >= TOFU_AM_ID_MAX) ||
        (ep->chan->state == TOFU_CHAN_OPEN)) {
        result = tofu_ep_am_bcopy(ep, id, pack, arg);
        if (result != TOFU_ERR_NO_RESOURCE) {
            return result;
        }
    } /* else it would be the first message of the ep, and stand before puts */
    return tofu_check_begin(ep, id, pack, arg);
}
