/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_internal.h - what the files of the transport core share: the functions of each, and
 * those that are inline.
 */
#ifndef TOFU_INTERNAL_H
#define TOFU_INTERNAL_H

#include "tofu_objects.h"

#include <string.h>

#pragma GCC visibility push(hidden)

/* ------------------------------------------------------------ tofu_wire.c */

uint32_t tofu_wire_checksum(const void *data, size_t size);
size_t tofu_rkey_packed_size(const tofu_md_t *md);

typedef struct tofu_address { /* a packed iface address, in words */
    utofu_vcq_id_t  vcq_id;
    tofu_geometry_t geometry;
    uint32_t        incarnation; /* tells ifaces that had the VCQ ID one after
                                   the other apart */
    uint8_t         port;        /* ... and those that have it together */
} tofu_address_t;

#define TOFU_ADDRESS_SIZE 40u
#define TOFU_DEVICE_SIZE  16u
#define TOFU_RKEY_SIZE    48u
#define TOFU_RKEY_RAIL_SIZE 16u

void tofu_wire_pack_address(void *buffer, const tofu_address_t *address);
/* OK, or INVALID_PARAM and the reason in words. */
tofu_status_t tofu_wire_unpack_address(const void *buffer, size_t size,
                                       tofu_address_t *address_p,
                                       char *reason, size_t reason_size);

/* ------------------------------------------------------------- tofu_reg.c */

/* Slow part of tofu_mem_stadd: registers memh with the iface's VCQ, or as much of it as
 * is needed.  *stadd_p: of memh->address, good for that part. */
tofu_status_t tofu_mem_register_local(tofu_mem_t *memh, tofu_iface_t *iface,
                                      const void *address, size_t length,
                                      utofu_stadd_t *stadd_p);
/* Hand the STADDs of memh on ifaces' VCQs to their ifaces; under md->lock. */
void tofu_reg_release_local(tofu_mem_t *memh);
/* Deregister what other threads gave up. */
void tofu_iface_drain_dereg(tofu_iface_t *iface);

/* STADD of address, which is inside memh, on the iface's VCQ.  No lock: only the
 * iface's own thread makes or reads the entry of the iface. */
static inline tofu_status_t tofu_mem_stadd(tofu_mem_t *memh,
                                           tofu_iface_t *iface,
                                           const void *address, size_t length,
                                           utofu_stadd_t *stadd_p)
{
    tofu_lcl_table_t *table;
    utofu_stadd_t    stadd;
    tofu_status_t    status;
    size_t           offset;

    if (TOFU_UNLIKELY(memh == NULL)) {
        return TOFU_ERR_INVALID_PARAM;
    }
    offset = (size_t)((const char *)address - memh->address);
    if (TOFU_UNLIKELY((length > memh->length) ||
                      (offset > memh->length - length))) {
        return TOFU_ERR_INVALID_PARAM;
    }
    table = atomic_load_explicit(&memh->lcl, memory_order_acquire);
    if (TOFU_LIKELY((table != NULL) && (iface->index < table->size) &&
                    (atomic_load_explicit(
                             &table->entry[iface->index].generation,
                             memory_order_relaxed) == iface->generation))) {
        stadd = table->entry[iface->index].stadd;
    } else {
        status = tofu_mem_register_local(memh, iface, address, length,
                                         &stadd);
        if (status != TOFU_OK) {
            return status;
        }
    }
    *stadd_p = stadd + offset;
    return TOFU_OK;
}

/* ------------------------------------------------------------ tofu_peer.c */

/* NULL: none yet. */
tofu_peer_t *tofu_peer_find(tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                            unsigned port);
/* Find or make. */
tofu_status_t tofu_peer_get(tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                            unsigned port, tofu_peer_t **peer_p);
/* The word that tells which iface it is: no other bytes look like one. */
static inline uint64_t tofu_identity(uint32_t incarnation)
{
    return ((uint64_t)~incarnation << 32) | incarnation;
}

/* Ask the peer for a sign of life, for op, which is posted with one notice when this
 * succeeds: a small ordered operation, which lands after all before it.  Of an iface it reads
 * the identity, so that one that took the VCQ over is not taken for it (tofu_peer_is_other). */
tofu_status_t tofu_peer_ask(tofu_peer_t *peer, utofu_vcq_id_t to, tofu_op_t *op);
/* The answer to op, which asked for it (TOFU_OP_ASKS), names another iface. */
int tofu_peer_is_other(const tofu_op_t *op, uint64_t answer);
/* STADD of a reserved STag of the iface at that port. */
int tofu_peer_stadd(const tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                    unsigned port, unsigned stag, utofu_stadd_t *stadd_p);
/* The iface at the peer is the one of this address from now on. */
tofu_status_t tofu_peer_set_address(tofu_peer_t *peer,
                                    const tofu_address_t *address);
/* An operation of which nobody keeps a record failed, or the peer is gone
 * (status of MRQ_PEER): the eps that may have posted it fail.  TOFU_SUCCEEDED: it is
 * gone, and another iface has its VCQ, which may hold slots of ours. */
#define TOFU_SUCCEEDED 2
void tofu_peer_failed(tofu_peer_t *peer, tofu_status_t status, int gone);
/* The VCQ that the line is about is gone, and so are all its ports. */
void tofu_line_failed(tofu_peer_t *line, tofu_status_t status);
/* The same, for what was lent to them. */
void tofu_line_borrowers_gone(tofu_peer_t *line);
/* Something to an iface that has or had the VCQ failed; to which, and who has it now, probes will tell. */
void tofu_line_suspect(tofu_peer_t *line);
void tofu_suspects_probe(tofu_iface_t *iface);

/* What was posted to it without a notice was not sent, as the TCQ said.  That is found
 * in the middle of posts, too, so it is kept until progress acts on it. */
void tofu_peer_lost(tofu_peer_t *peer, tofu_status_t status);
void tofu_lost_fail(tofu_iface_t *iface);
void tofu_peers_free(tofu_iface_t *iface);

/* -------------------------------------------------------------- tofu_op.c */

/* Slow part of tofu_op_alloc: more memory for operations. */
int tofu_op_grow(tofu_iface_t *iface);
static inline tofu_op_t *tofu_op_alloc(tofu_iface_t *iface, tofu_op_kind_t kind);
void tofu_op_free(tofu_op_t *op);
/* It posted `left` uTofu operations with notice to peer: one round. */
void tofu_op_posted(tofu_op_t *op, tofu_peer_t *peer, uint32_t left);
/* One of its notices came, or will not come.  in_progress: users may be called. */
void tofu_op_notice(tofu_iface_t *iface, tofu_op_t *op, tofu_status_t status,
                    int in_progress);
/* Count op as in flight for its ep and iface; once per operation of a user. */
void tofu_op_count(tofu_iface_t *iface, tofu_ep_t *ep, tofu_op_t *op);
/* Finish it from the next progress. */
void tofu_op_defer(tofu_op_t *op);
/* The op is over: callback, counters, waiters.  In progress only. */
void tofu_op_finish(tofu_op_t *op);
/* No more of it will be posted. */
void tofu_op_cut(tofu_iface_t *iface, tofu_op_t *op, tofu_status_t status);
/* A local notice of the MRQ.  in_progress: users may be called now. */
void tofu_op_mrq(tofu_iface_t *iface, const struct utofu_mrq_notice *notice,
                 int code, int in_progress);
/* Take from the TCQ what is there (bounded); returns how many.  Calls no user. */
unsigned tofu_tcq_drain(tofu_iface_t *iface);
/* The same, until nothing is awaited: errors of what asked for no entry may be left. */
unsigned tofu_tcq_reap(tofu_iface_t *iface);
/* Give up, as failed, all that is in flight to the peer. */
void tofu_peer_abort(tofu_peer_t *peer, tofu_status_t status);
/* Operations of the ep end with status, each when it would have ended anyway. */
void tofu_ops_spoil_ep(tofu_iface_t *iface, const tofu_ep_t *ep,
                       tofu_status_t status);
/* The ep goes away: its operations have none from now on. */
void tofu_ops_forget_ep(tofu_iface_t *iface, tofu_ep_t *ep);
void tofu_ops_cancel(tofu_iface_t *iface);
void tofu_ops_free(tofu_iface_t *iface);
/* A user's completion of a flush, called when all that is in flight now has
 * completed.  ep NULL: of the whole iface. */
tofu_status_t tofu_op_wait(tofu_iface_t *iface, tofu_ep_t *ep, int quiet,
                           tofu_completion_t *comp);
/* A post returned neither SUCCESS nor BUSY: log, status. */
tofu_status_t tofu_post_error(tofu_iface_t *iface, const char *call, int code,
                              utofu_vcq_id_t vcq_id, size_t length);

/* The record in whose FIFO operations to the peer wait. */
static inline tofu_peer_t *tofu_peer_line(tofu_peer_t *peer)
{
    return TOFU_LIKELY(peer->port == 0) ? peer : peer->line;
}

/* EDATA of the next operation to the peer. */
static inline unsigned tofu_peer_edata(tofu_peer_t *peer)
{
    return TOFU_EDATA_OP | (tofu_peer_line(peer)->seq & 0x7f);
}

static inline tofu_op_t *tofu_op_alloc(tofu_iface_t *iface, tofu_op_kind_t kind)
{
    tofu_op_t *op = iface->free_ops;

    if (TOFU_UNLIKELY(op == NULL)) {
        if (!tofu_op_grow(iface)) {
            return NULL;
        }
        op = iface->free_ops;
    }
    iface->free_ops = op->root;
    op->root        = NULL;
    op->peer        = NULL;
    op->ep          = NULL;
    op->comp        = NULL;
    op->left        = 0;
    op->rounds      = 0;
    op->kind        = (uint8_t)kind;
    op->flags       = 0;
    op->status      = TOFU_OK;
    op->in_use      = 1;
    return op;
}

/* Give the user of a fetching atomic the old value. */
static inline void tofu_amo_result(const tofu_op_t *op, uint64_t old_value)
{
    if (op->atomic.size == sizeof(uint64_t)) {
        memcpy(op->atomic.result, &old_value, sizeof(uint64_t));
    } else {
        uint32_t value = (uint32_t)old_value;
        memcpy(op->atomic.result, &value, sizeof(value));
    }
}

static inline void tofu_completion_update(tofu_completion_t *comp,
                                          tofu_status_t status)
{
    if (comp == NULL) {
        return;
    }
    if ((status != TOFU_OK) && (comp->status == TOFU_OK)) {
        comp->status = (int8_t)status;
    }
    if (--comp->count == 0) {
        comp->func(comp);
    }
}

/* Post `call`; when the TOQ is full, make room once.  TOFU_OK, NO_RESOURCE, or
 * the status of a failure that was logged. */
#define tofu_post(iface, name, rmt_vcq, len, call) \
    ({ \
        int           _code = (call); \
        tofu_status_t _status; \
        if (TOFU_UNLIKELY(_code != UTOFU_SUCCESS) && (_code == UTOFU_ERR_BUSY)) { \
            tofu_tcq_drain(iface); \
            _code = (call); \
        } \
        if (TOFU_LIKELY(_code == UTOFU_SUCCESS)) { \
            ++(iface)->posts; \
            _status = TOFU_OK; \
        } else if (_code == UTOFU_ERR_BUSY) { \
            _status = TOFU_ERR_NO_RESOURCE; \
        } else { \
            _status = tofu_post_error(iface, name, _code, rmt_vcq, len); \
        } \
        _status; \
    })

/* An operation with n notices may be started. */
static inline int tofu_op_room(const tofu_iface_t *iface, unsigned n)
{
    return iface->notices + n <= iface->config.tx_notified;
}

#define TOFU_EARLY_SKIP 64u /* posts without a try after one that was in vain */

/*
 * An operation with a local notice was posted to peer: is it complete already?
 * Then the caller returns OK with no record of it; else it goes into the FIFO.
 * One poll of the MRQ, which pays where completion is quick (memory in reach), and
 * is not tried for a while where it did not.  Only when nothing else is in flight
 * to the peer, so that the notice can't be another operation's.  What else is
 * found is left to progress.
 */
static inline int tofu_op_early(tofu_iface_t *iface, tofu_peer_t *peer,
                                unsigned edata, uint64_t *old_value_p)
{
    struct utofu_mrq_notice *notice = &iface->stash.notice;
    tofu_peer_t             *line   = tofu_peer_line(peer);
    int                     code;

    if (iface->early_skip > 0) {
        --iface->early_skip;
        return 0;
    }
    if (TOFU_UNLIKELY(iface->stashed || !tofu_list_empty(&line->fifo))) {
        return 0;
    }
    code = iface->fn.poll_mrq(iface->vcq, 0, notice);
    if (code == UTOFU_ERR_NOT_FOUND) {
        iface->early_skip = TOFU_EARLY_SKIP;
        return 0;
    }
    if (TOFU_LIKELY((code == UTOFU_SUCCESS) && (notice->edata == edata) &&
                    (notice->vcq_id == peer->vcq_id) &&
                    !(notice->notice_type & 1))) { /* local types are even */
        *old_value_p = notice->rmt_value;
        ++line->seq;
        ++iface->stats.notices;
        return 1;
    }
    iface->stash.code = code;
    iface->stashed    = TOFU_STASHED;
    return 0;
}

/* The oldest notice that was taken from the MRQ and left to progress; there is one. */
static inline int tofu_stash_take(tofu_iface_t *iface, struct utofu_mrq_notice *notice)
{
    tofu_mrq_entry_t entry = iface->stash;

    if (TOFU_LIKELY(iface->stashed & ~TOFU_STASH_MORE)) {
        iface->stashed &= TOFU_STASH_MORE;
    } else {
        tofu_queue_pop(&iface->kept, &entry);
        iface->stashed = (tofu_queue_length(&iface->kept) > 0) ? TOFU_STASH_MORE : 0;
    }
    *notice = entry.notice;
    return entry.code;
}

/* -------------------------------------------------------------- tofu_ep.c */

/* An ep to the peer. */
tofu_status_t tofu_ep_open(tofu_iface_t *iface, tofu_peer_t *peer, tofu_ep_t **ep_p);
/* May an operation to peer be posted on the ep now?  OK, NO_RESOURCE or the
 * failure of the ep.  Notes that the ep uses the peer.  For what the flags stop,
 * and for the first use since a flush. */
tofu_status_t tofu_ep_enter(tofu_ep_t *ep, tofu_peer_t *peer);
tofu_status_t tofu_ep_enter_rma(tofu_ep_t *ep, const tofu_rkey_t *rkey);
void tofu_ep_fail(tofu_ep_t *ep, tofu_status_t status);
/* Nothing is sent on the ep any more, and nobody is told: its user asked for it. */
void tofu_ep_close(tofu_ep_t *ep, tofu_status_t status);
int tofu_ep_uses(const tofu_ep_t *ep, const tofu_peer_t *peer);
/* Something is posted to the peer: a flush has to go there. */
tofu_status_t tofu_ep_add_target(tofu_ep_t *ep, tofu_peer_t *peer);

/* ----------------------------------------------------------- tofu_order.c */

/* Post a flush put to every target of the ep, and forget the targets.  OK, or
 * NO_RESOURCE when some are left. */
tofu_status_t tofu_ep_flush_targets(tofu_ep_t *ep);
/* Ask whether the peer is there.  OK: asked; NO_RESOURCE; else the ep has failed. */
tofu_status_t tofu_order_check(tofu_ep_t *ep);
/* Does a fence allow an operation to peer now? */
tofu_status_t tofu_ep_pass_fence(tofu_ep_t *ep, const tofu_peer_t *peer);
/* A get of an ep that is TOFU_EP_ARMED: NO_RESOURCE until it may be posted */
tofu_status_t tofu_order_get(tofu_ep_t *ep);

/* ----------------------------------------------------------- tofu_check.c */

/* Do tofu_order_check(ep) as soon as there is room.  OK; NO_RESOURCE: too many others
 * wait; NO_MEMORY, or the peer's failure. */
tofu_status_t tofu_check_later(tofu_ep_t *ep);
/* The hidden ep of a check has failed: so has its owner. */
void tofu_check_failed(tofu_ep_t *via);
/* The owner is destroyed or closed; what waits is not sent. */
void tofu_checks_drop(tofu_ep_t *owner);

/* --------------------------------------------------------- tofu_pending.c */

/* tofu_ep_pending_add, whatever room there is. */
void tofu_ep_pending_queue(tofu_ep_t *ep, tofu_pending_req_t *req);

/* Let progress serve the ep: its continuation, then its requests. */
void tofu_ep_schedule(tofu_ep_t *ep);
void tofu_ep_unschedule(tofu_ep_t *ep);
/* Serve what is queued; returns how many did something. */
unsigned tofu_iface_serve_turns(tofu_iface_t *iface);

static inline tofu_status_t tofu_ep_starve(tofu_ep_t *ep, unsigned reason)
{
    ep->starved |= (uint8_t)reason;
    if ((reason & TOFU_STARVED_TOQ) && !ep->iface->in_turns) {
        ep->iface->work |= TOFU_WORK_REFUSED;
    }
    return TOFU_ERR_NO_RESOURCE;
}

/* What an ep waits for that found no room for a notice. */
static inline unsigned tofu_starved_room(const tofu_iface_t *lane)
{
    return (lane->lane_index == 0) ? TOFU_STARVED_OP : TOFU_STARVED_LANE;
}

/* Something was posted from the lane: progress has to look there. */
static inline void tofu_lane_posted(tofu_iface_t *lane)
{
    if (lane->lane_index != 0) {
        lane->owner->work |= TOFU_WORK_LANES;
    }
}

/* Too many operations without a notice since the MRQ was seen empty: were they
 * all to fail, their error notices could overflow it. */
static inline int tofu_iface_post_limited(const tofu_iface_t *iface)
{
    return iface->posts >= iface->posts_limit;
}

/* uTofu operations of users posted: not the credit that is told between them */
static inline uint64_t tofu_iface_sent(const tofu_iface_t *iface)
{
    return iface->posts - iface->stats.credit_tx;
}

/* What every RMA operation does first; writable: wr_length, else length. */
static inline int tofu_ep_rma_ready(const tofu_ep_t *ep,
                                    const tofu_rkey_t *rkey)
{
    return TOFU_LIKELY(!(ep->flags & TOFU_EP_STOP) &&
                       (ep->rma_vcq == rkey->vcq_id) &&
                       !tofu_iface_post_limited(ep->iface));
}

static inline int tofu_range_ok(uint64_t offset, uint64_t length,
                                uint64_t available)
{
    return TOFU_LIKELY((length <= available) && (offset <= available - length));
}

/* ------------------------------------------------------------- tofu_rma.c */

/* Post one put or get of op to peer, with a local notice. */
static inline tofu_status_t tofu_rma_post(tofu_op_t *op, tofu_peer_t *peer,
                                          utofu_stadd_t local,
                                          utofu_stadd_t remote, size_t length,
                                          unsigned edata, int is_get)
{
    tofu_iface_t  *iface = peer->iface;
    unsigned long flags  = iface->zcopy_flags |
                          UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

    if (TOFU_UNLIKELY(op->flags & TOFU_OP_STRONG)) {
        flags |= UTOFU_ONESIDED_FLAG_STRONG_ORDER;
    }
    if (is_get) {
        return tofu_post(iface, "utofu_get", peer->vcq_id, length,
                         iface->fn.get(iface->vcq, peer->post_id, local, remote,
                                       length, edata, flags,
                                       tofu_cbdata(op, TOFU_CB_OP)));
    }
    return tofu_post(iface, "utofu_put", peer->vcq_id, length,
                     iface->fn.put(iface->vcq, peer->post_id, local, remote,
                                   length, edata, flags,
                                   tofu_cbdata(op, TOFU_CB_OP)));
}

/* Post more of op, a continuation.  OK: nothing is left; else NO_RESOURCE. */
tofu_status_t tofu_rma_continue(tofu_op_t *op);

/* ------------------------------------------------------------ tofu_lane.c */

/* The lane of an iface, opened on first use; 0 is the iface itself.  NULL: there
 * is no VCQ for it; the caller does with fewer. */
tofu_iface_t *tofu_lane_get(tofu_iface_t *iface, unsigned index);
void tofu_lanes_close(tofu_iface_t *iface);
/* Choose the lane of a new ep; give it back. */
void tofu_lane_choose(tofu_ep_t *ep);
void tofu_lane_release(tofu_ep_t *ep);
/* How many ways that share no first link lead to the node of a VCQ without a
 * detour: at least 1, at most 4. */
unsigned tofu_lane_links(tofu_md_t *md, utofu_vcq_id_t vcq_id);
/* The VCQ ID with the path that this lane takes to it. */
utofu_vcq_id_t tofu_lane_path(tofu_iface_t *lane, utofu_vcq_id_t vcq_id);
/* Could one more operation be started on every lane? */
int tofu_lanes_room(const tofu_iface_t *iface);
unsigned tofu_lanes_progress(tofu_iface_t *iface);
/* now_us and now_ms are those of the last look, which may be long ago for who does
 * not call progress. */
void tofu_iface_read_clock(tofu_iface_t *iface);

/* ---------------------------------------------------------- tofu_stripe.c */

/* A put or get of one block of at least iface->stripe_thresh bytes; the range was
 * checked. */
tofu_status_t tofu_rma_stripe(tofu_ep_t *ep, const tofu_iov_t *iov,
                              uint64_t offset, const tofu_rkey_t *rkey,
                              tofu_completion_t *comp, int is_get);
tofu_status_t tofu_stripe_continue(tofu_op_t *op);

/* ----------------------------------------------------------- tofu_iface.c */

/* Something came that nobody of ours sends: count it, log the first of a kind. */
void tofu_iface_drop(tofu_iface_t *iface, unsigned kind, const char *what,
                     utofu_vcq_id_t vcq_id);
/* Pieces of opening an iface or a lane: from VCQs of `tnis` TNIs, iface->first_tni
 * first. */
tofu_iface_t *tofu_iface_new(tofu_md_t *md, const tofu_iface_config_t *config);
tofu_status_t tofu_iface_open_vcq(tofu_iface_t *iface, unsigned tnis);
tofu_status_t tofu_iface_set_limits(tofu_iface_t *iface);
void tofu_iface_delist(tofu_iface_t *iface);
void tofu_iface_free_vcq(tofu_iface_t *iface);
/* The VCQ itself does not work any more. */
void tofu_iface_fatal(tofu_iface_t *iface, const char *call, int code);
/* Can an ep of the iface be made to these bytes?  If not, why. */
tofu_status_t tofu_iface_check_address(tofu_iface_t *iface, const void *buffer,
                                       size_t size, tofu_address_t *address_p,
                                       char *reason, size_t reason_size);

/* ------------------------------------------------------- tofu_progress.c */

#define TOFU_CLOCK_PERIOD 64u /* progress calls between looks at the clock */
#define TOFU_TICK_MS      1u

/* --------------------------------------------------------- tofu_wakeup.c */

/* The VCQs are freed. */
void tofu_wakeup_close(tofu_iface_t *iface);

/* ------------------------------------------------------------ tofu_attr.c */

void tofu_attr_md(const tofu_md_t *md, tofu_md_attr_t *attr);
void tofu_attr_iface(const tofu_iface_t *iface, tofu_iface_attr_t *attr);
/* Entries of the MRQ of a VCQ: UTOFU_NUM_MRQ_ENTRIES by the rules of 4.3.2.3. */
unsigned tofu_attr_mrq_entries(void);

/* tofu_distance.c: seconds that a cache line takes to another CPU of this host, 0: nobody knows.
 * The first call in a process takes 0.1 ms, 2 ms where the other CPUs are busy.  Any thread. */
double tofu_distance(void);
/* Set the numbers of slots and notices so that the MRQ can't overflow. */
void tofu_attr_bound(tofu_iface_t *iface);

/* Slots of the request table of an iface. */
#define TOFU_REQUEST_ENTRIES 64u
#define TOFU_IDENTITY_OFFSET 40u /* in it, of the word that tells which iface it is */

#pragma GCC visibility pop

#endif /* TOFU_INTERNAL_H */
