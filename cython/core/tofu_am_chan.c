/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_chan.c - how a sender gets slots, keeps count of them, and gives them
 * back.  A channel lives as long as its peer record; what it holds does not.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#include <stdlib.h>

#define TOFU_CREDIT_MASK 0xffffffu

static tofu_am_t *tofu_chan_am(const tofu_chan_t *chan)
{
    return chan->peer->iface->am;
}

static void tofu_chan_wait(tofu_chan_t *chan)
{
    tofu_am_t *am = tofu_chan_am(chan);

    if (tofu_list_empty(&chan->link)) {
        tofu_list_add(&am->waiting, &chan->link);
        am->iface->work |= TOFU_WORK_AM;
    }
}

tofu_status_t tofu_chan_get(tofu_peer_t *peer, tofu_chan_t **chan_p)
{
    tofu_iface_t *iface = peer->iface;
    tofu_chan_t  *chan  = peer->chan;
    int          ret;

    if (chan == NULL) {
        chan = calloc(1, sizeof(*chan));
        if (chan == NULL) {
            return TOFU_ERR_NO_MEMORY;
        }
        chan->peer   = peer;
        chan->vcq_id = peer->vcq_id;
        ret = tofu_peer_stadd(iface, peer->vcq_id, peer->port, TOFU_STAG_REQUEST,
                              &chan->table);
        if (ret != UTOFU_SUCCESS) {
            tofu_error("utofu_query_stadd(VCQ %#llx): %s",
                       (unsigned long long)peer->vcq_id, tofu_code_name(ret));
            free(chan);
            return tofu_status_from_code(ret);
        }
        tofu_list_init(&chan->link);
        tofu_list_init(&chan->all);
        peer->chan = chan;
    }
    ++chan->refs;
    *chan_p = chan;
    return TOFU_OK;
}

/* Forget the slots. */
static void tofu_chan_close(tofu_chan_t *chan)
{
    memset(chan->cls, 0, sizeof(chan->cls));
    chan->skip = 0;
    chan->turn = 0;
}

static void tofu_chan_idle(tofu_chan_t *chan)
{
    if (chan->mailbox != NULL) {
        tofu_mailbox_put(tofu_chan_am(chan), chan->mailbox_index);
        chan->mailbox = NULL;
    }
    tofu_chan_close(chan);
    chan->state = TOFU_CHAN_IDLE;
    tofu_list_del(&chan->link);
    tofu_list_del(&chan->all);
}

void tofu_chan_reset(tofu_chan_t *chan)
{
    tofu_in_place_drop(chan);
    if (chan->state == TOFU_CHAN_IDLE) {
        return;
    }
    tofu_chan_idle(chan);
    chan->nonce = 0; /* a compare-and-swap in flight is of no interest */
    chan->want  = 0;
}

/* Of the request table: where requests of a kind may stand. */
static uint32_t tofu_chan_first_entry(unsigned request)
{
    return (request == TOFU_REQUEST_RELEASE) ? TOFU_GRANT_ENTRIES : 0;
}

static uint32_t tofu_chan_entries(unsigned request)
{
    return (request == TOFU_REQUEST_RELEASE) ? TOFU_RELEASE_ENTRIES :
                                               TOFU_GRANT_ENTRIES;
}

/* Ask the peer for something, which begins with an entry of its table. */
static void tofu_chan_ask(tofu_chan_t *chan, unsigned request)
{
    tofu_iface_t *iface = chan->peer->iface;
    uint64_t     hash   = (iface->vcq_id + iface->port) * TOFU_CLAIM_KEY;

    chan->request  = (uint8_t)request;
    chan->state    = TOFU_CHAN_CLAIM;
    chan->entry    = (uint32_t)(hash >> 40) % tofu_chan_entries(request);
    chan->entry   += tofu_chan_first_entry(request);
    chan->tries    = 0;
    chan->retry_us = 0;
    chan->since_ms = iface->now_ms;
    tofu_chan_wait(chan);
}

void tofu_chan_want(tofu_chan_t *chan)
{
    tofu_am_t *am = tofu_chan_am(chan);

    if (!chan->want) {
        chan->want     = 1;
        am->wanted     = 1;
        chan->since_ms = am->iface->now_ms;
    }
    if (chan->state != TOFU_CHAN_IDLE) {
        if (chan->state == TOFU_CHAN_ASKED) {
            tofu_chan_wait(chan); /* the answer is awaited now */
        }
        return;
    }
    if (tofu_mailbox_get(am, &chan->mailbox_index, &chan->mailbox) != TOFU_OK) {
        return; /* asked for again by the next send */
    }
    am->nonce  += 1u + ((am->nonce & 0xffff) == 0xffff); /* low half not 0 */
    chan->nonce = am->nonce;
    atomic_store_explicit(&chan->mailbox->credit, 0, memory_order_relaxed);
    atomic_store_explicit(&chan->mailbox->recall, 0, memory_order_relaxed);
    atomic_store_explicit(&chan->mailbox->permit, 0, memory_order_relaxed);
    chan->permit = 0;
    atomic_store_explicit(&chan->mailbox->answer, 0, memory_order_release);
    tofu_list_add(&am->chans, &chan->all);
    tofu_chan_ask(chan, TOFU_REQUEST_GRANT);
}

/* Give the slots back. */
static void tofu_chan_release(tofu_chan_t *chan)
{
    tofu_chan_close(chan);
    tofu_chan_ask(chan, TOFU_REQUEST_RELEASE);
}

void tofu_chan_put(tofu_chan_t *chan)
{
    if (--chan->refs > 0) {
        return;
    }
    /* Slots are kept for a while: eps come and go.  See tofu_chans_tick. */
    chan->want    = 0;
    chan->idle_ms = chan->peer->iface->now_ms;
}

/* ----------------------------------------------------------------- credit */

/* Take a new count of consumed messages. */
static void tofu_chan_ack(tofu_chan_class_t *cls, uint32_t acked)
{
    uint32_t delta = (acked - cls->acked) & TOFU_CREDIT_MASK;

    /* more than was sent: not a count of ours; the next one will do */
    if (delta <= cls->count - cls->left) {
        cls->acked = acked;
        cls->left += delta;
    }
}

static int tofu_chan_recalled(const tofu_chan_t *chan)
{
    return atomic_load_explicit(&chan->mailbox->recall,
                                memory_order_relaxed) == chan->nonce;
}

void TOFU_NOINLINE tofu_chan_take_credit(tofu_chan_t *chan)
{
    /* acquire: slots are written after their last message was read */
    uint64_t word = atomic_load_explicit(&chan->mailbox->credit, memory_order_acquire);

    if ((word >> 48) == (chan->nonce & 0xffff)) {
        tofu_chan_ack(&chan->cls[TOFU_AM_SMALL],
                      (uint32_t)word & TOFU_CREDIT_MASK);
        tofu_chan_ack_large(chan, (uint32_t)(word >> 24) & 0xff,
                            (uint32_t)(word >> 32) & 0xffff);
    }
}

int TOFU_NOINLINE tofu_chan_has_credit(tofu_chan_t *chan, unsigned cls)
{
    if (chan->cls[cls].left > 0) {
        return 1;
    }
    if (chan->state != TOFU_CHAN_OPEN) {
        return 0;
    }
    if ((chan->waiters > 0) && !chan->peer->iface->in_turns) {
        return 0; /* new credit is for those that wait in progress's queue */
    }
    if (tofu_chan_recalled(chan)) {
        tofu_chan_release(chan);
        return 0;
    }
    if (tofu_chan_permit_changed(chan) &&
        (tofu_chan_permit(chan) != TOFU_OK) &&
        (chan->state != TOFU_CHAN_OPEN)) {
        return 0; /* the peer has failed */
    }
    tofu_chan_take_credit(chan);
    if (chan->cls[cls].left == 0) {
        return 0;
    }
    chan->want = 0;
    return 1;
}

/* --------------------------------------------------------------- requests */

static int tofu_chan_post_claim(tofu_chan_t *chan)
{
    tofu_peer_t   *peer  = chan->peer;
    tofu_iface_t  *iface = peer->iface;
    tofu_am_t     *am    = iface->am;
    tofu_status_t status;
    tofu_op_t     *op;

    if ((chan->retry_us > iface->now_us) || !tofu_am_internal_room(am)) {
        return 0;
    }
    op = tofu_op_alloc(iface, TOFU_OP_CLAIM);
    if (op == NULL) {
        return 0;
    }
    op->claim.nonce     = chan->nonce;
    op->claim.old_value = ~0ull;
    status = tofu_post(iface, "utofu_cswap8", peer->vcq_id, 8,
                       iface->fn.cswap8(
                               iface->vcq, peer->vcq_id, 0,
                               tofu_claim(iface->vcq_id, iface->port),
                               chan->table +
                                       chan->entry * sizeof(tofu_entry_t),
                               tofu_peer_edata(peer),
                               UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                       UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                               tofu_cbdata(op, TOFU_CB_OP)));
    if (status != TOFU_OK) {
        tofu_op_free(op);
        if (status != TOFU_ERR_NO_RESOURCE) {
            tofu_peer_failed(peer, status, 1);
        }
        return 0;
    }
    tofu_op_posted(op, peer, 1);
    ++am->internal;
    ++iface->stats.credit_tx;
    chan->state = TOFU_CHAN_CLAIMING;
    tofu_list_del(&chan->link); /* its notice brings it back */
    return 1;
}

/* All entries were taken: others queue there already, no hurry. */
static void tofu_chan_rest(tofu_chan_t *chan, uint32_t rounds)
{
    tofu_iface_t *iface = chan->peer->iface;
    uint64_t     share  = 128 + ((iface->vcq_id * TOFU_CLAIM_KEY) >> 56);
    unsigned     shift  = (rounds < TOFU_CLAIM_DOUBLINGS) ? rounds :
                                                           TOFU_CLAIM_DOUBLINGS;

    chan->retry_us = iface->now_us +
                     (TOFU_CLAIM_REST_MS * 1000u * share / 256u << shift);
}

void tofu_chan_claimed(tofu_chan_t *chan, const tofu_op_t *op)
{
    tofu_am_t *am = tofu_chan_am(chan);

    --am->internal;
    if ((chan->nonce != op->claim.nonce) ||
        (chan->state != TOFU_CHAN_CLAIMING)) {
        return; /* reset meanwhile */
    }
    if (op->status != TOFU_OK) {
        /* a request table that can't be reached is no peer of ours */
        tofu_peer_failed(chan->peer, (tofu_status_t)op->status, 1);
        return;
    }
    /* Own claims are taken too: left by who had this VCQ before and died, whose
     * request may be read yet, or of an answer that came before its entry was
     * freed.  The receiver frees them, see tofu_am_free_older. */
    if (op->claim.old_value == 0) {
        chan->state = TOFU_CHAN_CLAIMED;
    } else {
        uint32_t first   = tofu_chan_first_entry(chan->request);
        uint32_t entries = tofu_chan_entries(chan->request);

        chan->state = TOFU_CHAN_CLAIM;
        chan->entry = first + (chan->entry + 1 - first) % entries;
        if (++chan->tries % entries == 0) {
            tofu_chan_rest(chan, chan->tries / entries - 1);
        }
    }
    tofu_chan_wait(chan);
}

static int tofu_chan_post_request(tofu_chan_t *chan)
{
    tofu_peer_t   *peer  = chan->peer;
    tofu_iface_t  *iface = peer->iface;
    uint64_t      body[4];
    tofu_status_t status;

    body[0] = ((uint64_t)iface->am->incarnation << 32) | (TOFU_REQUEST_MAGIC << 16) |
              chan->request;
    body[1] = ((uint64_t)iface->port << TOFU_WHO_PORT_SHIFT) |
              ((uint64_t)chan->mailbox_index << 32) | chan->nonce;
    body[2] = iface->vcq_id;
    body[3] = body[0] ^ body[1] ^ body[2] ^ peer->incarnation;
    status  = tofu_am_post_silent(peer, body, sizeof(body),
                                  chan->table +
                                          chan->entry * sizeof(tofu_entry_t) +
                                          offsetof(tofu_entry_t, magic),
                                  TOFU_EDATA(TOFU_KIND_REQUEST, 0),
                                  UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
    if (status != TOFU_OK) {
        if (status != TOFU_ERR_NO_RESOURCE) {
            tofu_peer_failed(peer, status, 1);
        }
        return 0;
    }
    chan->state    = TOFU_CHAN_ASKED;
    chan->since_ms = iface->now_ms;
    chan->idle_ms  = iface->now_ms;
    return 1;
}

/* Where the slots of the iface are that has granted some */
static int tofu_chan_find_slots(tofu_chan_t *chan)
{
    tofu_peer_t *peer = chan->peer;
    unsigned    stag  = tofu_slots_stag(peer->iface, peer->port, peer->incarnation);

    return tofu_peer_stadd(peer->iface, peer->vcq_id, peer->port, stag,
                           &chan->slots) == UTOFU_SUCCESS;
}

/* Check and take what a grant says about slots of one size. */
static int tofu_chan_accept(tofu_chan_t *chan, unsigned i)
{
    tofu_chan_class_t *cls  = &chan->cls[i];
    uint64_t          grant = chan->mailbox->grant[i];
    uint64_t          first = grant & 0xffffffffu;
    uint64_t          count = grant >> 32;
    utofu_stadd_t     base  = chan->slots;
    const tofu_geometry_t *geometry = chan->peer->geometry;
    uint32_t          total = (i == TOFU_AM_SMALL) ? geometry->small_count :
                                                     geometry->large_count;

    if ((count == 0) || (first + count > total) ||
        ((i == TOFU_AM_LARGE) && (count > TOFU_AM_MAX_LARGE))) {
        return 0;
    }
    cls->size = geometry->small_size;
    if (i == TOFU_AM_LARGE) {
        uint64_t small = (uint64_t)geometry->small_count *
                         geometry->small_size;
        base     += (small + TOFU_AM_SLOT_ALIGN - 1) / TOFU_AM_SLOT_ALIGN *
                TOFU_AM_SLOT_ALIGN;
        base     += geometry->large_size + geometry->large_lead -
                TOFU_AM_MESSAGE_SIZE(geometry->large_lead, geometry->seg_size);
        cls->size = geometry->large_size;
    }
    cls->begin = base + first * cls->size;
    cls->end   = cls->begin + count * cls->size;
    cls->next  = cls->begin;
    cls->count = (uint32_t)count;
    cls->left  = (uint32_t)count;
    cls->acked = 0;
    return 1;
}

static int tofu_chan_poll_answer(tofu_chan_t *chan)
{
    tofu_iface_t *iface = chan->peer->iface;
    uint64_t     answer = atomic_load_explicit(&chan->mailbox->answer,
                                               memory_order_acquire);

    if ((answer >> 32) != chan->nonce) {
        return 0;
    }
    if ((answer & 0xffffffffu) == TOFU_ANSWER_GONE) {
        ++iface->stats.credit_rx;
        tofu_peer_failed(chan->peer, TOFU_ERR_ENDPOINT_TIMEOUT, TOFU_SUCCEEDED);
        return 1;
    }
    if ((chan->request == TOFU_REQUEST_GRANT) &&
        ((answer & 0xffffffffu) == TOFU_ANSWER_GRANTED)) {
        ++iface->stats.credit_rx;
        if (!tofu_chan_find_slots(chan) ||
            !tofu_chan_accept(chan, TOFU_AM_SMALL) ||
            !tofu_chan_accept(chan, TOFU_AM_LARGE)) {
            tofu_error("VCQ %#llx granted slots that it does not have",
                       (unsigned long long)chan->vcq_id);
            tofu_peer_failed(chan->peer, TOFU_ERR_IO_ERROR, 1);
            return 1;
        }
        tofu_in_place_granted(chan, chan->mailbox->where);
        chan->state    = TOFU_CHAN_OPEN;
        chan->want     = 0;
        chan->since_ms = iface->now_ms;
        chan->idle_ms  = iface->now_ms;
        tofu_list_del(&chan->link);
        return 1;
    }
    if ((chan->request == TOFU_REQUEST_RELEASE) &&
        ((answer & 0xffffffffu) == TOFU_ANSWER_RELEASED)) {
        int want = chan->want && (chan->refs > 0);
        ++iface->stats.credit_rx;
        tofu_chan_idle(chan);
        if (want) {
            chan->want = 0;
            tofu_chan_want(chan);
        } else {
            tofu_in_place_drop(chan);
        }
        return 1;
    }
    return 0;
}

unsigned tofu_chans_progress(tofu_iface_t *iface)
{
    tofu_am_t   *am   = iface->am;
    unsigned    count = 0;
    tofu_link_t todo, *link;

    if (tofu_list_empty(&am->waiting)) {
        return 0;
    }
    /* what is done for one may take others out of the list */
    todo            = am->waiting;
    todo.next->prev = &todo;
    todo.prev->next = &todo;
    tofu_list_init(&am->waiting);
    while (!tofu_list_empty(&todo)) {
        tofu_chan_t *chan = tofu_container(todo.next, tofu_chan_t, link);
        int         moved = 0;

        link = &chan->link;
        tofu_list_del(link);
        tofu_list_add(&am->waiting, link);
        if (chan->state == TOFU_CHAN_CLAIM) {
            moved = tofu_chan_post_claim(chan);
        } else if (chan->state == TOFU_CHAN_CLAIMED) {
            moved = tofu_chan_post_request(chan);
        } else if (chan->state == TOFU_CHAN_ASKED) {
            moved = tofu_chan_poll_answer(chan);
        }
        if ((chan->state == TOFU_CHAN_ASKED) && !chan->want) {
            /* It gives slots back, and the peer may sleep: there can be thousands
             * of such, so that only the tick looks at them. */
            tofu_list_del(link);
        }
        count += (unsigned)moved;
    }
    return count;
}

/* Has it sent anything since this was asked last? */
static int tofu_chan_moved(tofu_chan_t *chan)
{
    uint64_t state = 0;
    unsigned i;

    for (i = 0; i < TOFU_AM_CLASSES; ++i) {
        state = (state * TOFU_CLAIM_KEY) ^ chan->cls[i].next ^
                ((uint64_t)chan->cls[i].left << 32) ^ chan->cls[i].acked;
    }
    if (state == chan->seen) {
        return 0;
    }
    chan->seen = state;
    return 1;
}

/* Has it slots that it gives back when they are not used?  Without slots a message waits for the
 * peer's software, and its user may end meanwhile, as one that has sent his last word.  So only
 * where slots are short, and those of a port: nothing but a new request would tell that another
 * iface has the port by now. */
static int tofu_chan_gives_back(const tofu_chan_t *chan)
{
    return (chan->refs == 0) || (chan->peer->port != 0) ||
           (chan->cls[TOFU_AM_SMALL].count < TOFU_AM_KEEP_WINDOW);
}

/* Give back what is asked for, or of no use: without an ep for a moment, or
 * without a message for long. */
static void tofu_chan_tick_open(const tofu_am_t *am, tofu_chan_t *chan, uint64_t now_ms)
{
    if (chan->refs > 0) {
        if (chan->want || tofu_chan_moved(chan)) {
            chan->idle_ms = now_ms;
        }
    } else {
        chan->want = 0;
    }
    if (tofu_chan_recalled(chan) ||
        (tofu_chan_gives_back(chan) &&
         (now_ms - chan->idle_ms >= ((chan->refs > 0) ? TOFU_AM_KEEP_MS :
                                                        TOFU_AM_IDLE_MS)))) {
        tofu_chan_release(chan);
    } else if ((chan->mapped != NULL) && (am->num_mapped >= TOFU_AM_MAX_MAPPED) &&
               (now_ms - chan->idle_ms >= TOFU_AM_KEEP_MS)) {
        tofu_in_place_yield(chan);
    } else if ((chan->refs > 0) && (now_ms - chan->idle_ms >= TOFU_AM_KEEP_MS) &&
               (tofu_am_probe(chan->peer, chan->peer->scratch, 0, ~0u, 0) == TOFU_OK)) {
        /* Who waits for a peer that is not there any more learns of it.  (The peer may have failed
         * in this call, and the channel been reset.) */
        chan->idle_ms = now_ms;
    } else if ((chan->where != 0) &&
               ((chan->longs >= TOFU_IN_PLACE_AFTER) ||
                ((chan->turn & TOFU_TAIL_KEY) && am->small_in_place))) {
        tofu_in_place_try(chan);
    }
}

/* Looks at a bounded number of channels, in turn: a sender that talked to many
 * peers pays no more for one tick than one that talks to few. */
void tofu_chans_tick(tofu_iface_t *iface)
{
    tofu_am_t   *am = iface->am;
    tofu_chan_t *chan;
    unsigned    i;

    for (i = 0; (i < TOFU_AM_CHANS_PER_TICK) && !tofu_list_empty(&am->chans);
         ++i) {
        chan = tofu_container(am->chans.next, tofu_chan_t, all);
        if (chan->tick_ms == iface->now_ms) {
            return; /* all were seen in this tick */
        }
        chan->tick_ms = iface->now_ms;
        tofu_list_del(&chan->all);
        tofu_list_add(&am->chans, &chan->all);
        if ((chan->state == TOFU_CHAN_OPEN) && tofu_chan_permit_changed(chan)) {
            tofu_chan_permit(chan); /* the receiver may wait for the answer */
        }
        if (chan->state == TOFU_CHAN_OPEN) {
            tofu_chan_tick_open(am, chan, iface->now_ms);
        }
        if ((chan->state == TOFU_CHAN_ASKED) && !chan->want &&
            tofu_chan_poll_answer(chan)) {
            continue;
        }
        if ((chan->state == TOFU_CHAN_ASKED) && (chan->request == TOFU_REQUEST_RELEASE) &&
            (iface->now_ms - chan->idle_ms >= TOFU_AM_SILENT_MS)) {
            /* Releases are answered at once: this answer was lost, or the peer does something
             * else.  (A request for slots may wait for long, in its place of the queue.) */
            tofu_chan_ask(chan, TOFU_REQUEST_RELEASE);
        }
        if (chan->want &&
            (iface->now_ms - chan->since_ms >= TOFU_AM_PROBE_MS)) {
            /* a post may fail the peer, and take its channel out of the list */
            if (tofu_am_probe(chan->peer, chan->peer->scratch, 0, ~0u, 0) ==
                TOFU_ERR_NO_RESOURCE) {
                return; /* the next tick goes on */
            }
            chan->since_ms = iface->now_ms;
        }
    }
}
