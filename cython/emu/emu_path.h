/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_path.h - the pieces of the data path: arguments that every operation has,
 * completions, and addresses as pointers.  Inline, because the fast way is made of
 * them; the ways of the special modes use the same.
 */
#ifndef EMU_PATH_H
#define EMU_PATH_H

#include "emu_internal.h"
#include "emu_stamp.h"

#include <string.h>
#include <tofu_cpu.h>

#define EMU_POST_FLAGS \
    (UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_PACKET_RESPONSE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE | \
     UTOFU_ONESIDED_FLAG_PADDING | UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_DELAY_START | \
     UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_SPS(15ul) | EMU_PATH_FLAGS)
#define EMU_PATH_FLAGS UTOFU_ONESIDED_FLAG_PATH(255ul)

/* ------------------------------------------------------------- completions */

EMU_INLINE void emu_tcq_push(struct emu_vcq *vcq, void *cbdata, int code)
{
    struct emu_tcq_entry *t = &vcq->tcq[vcq->tcq_tail++ % EMU_TOQ_ENTRIES];

    t->cbdata = cbdata;
    t->code   = code;
    emu_toq_take(vcq);
    t->number = emu_toq_number(vcq);
    emu_doorbell_check(vcq->block);
}

EMU_INLINE void emu_mrq_push(struct emu_vcq *vcq, int type, uint64_t peer_id, uint64_t edata, uint64_t value,
                            uint64_t lcl_stadd, uint64_t rmt_stadd, int code)
{
    struct emu_mrq_entry *m;

    if (emu_unlikely(vcq->mrq_tail - vcq->mrq_head == vcq->mrq_size)) {
        emu_mrq_grow(vcq);
    }
    m = &vcq->mrq[vcq->mrq_tail++ & (vcq->mrq_size - 1)];
    /* padding and reserved words are zero since the entry was allocated */
    m->notice.notice_type = (uint8_t)type;
    m->notice.vcq_id      = peer_id;
    m->notice.edata       = edata;
    m->notice.rmt_value   = value;
    m->notice.lcl_stadd   = lcl_stadd;
    m->notice.rmt_stadd   = rmt_stadd;
    m->code               = code;
    emu_doorbell_check(vcq->block);
}

/* emu_queue.c: an operation with a local notice is posted; the remote ones that are there come before it. */
EMU_NOINLINE void emu_mrq_gather(struct emu_vcq *vcq);
/* emu_carry.c: the notice for the target of an operation whose target is the VCQ itself: in our own queue, behind what
 * is there */
EMU_COLD void emu_mrq_push_own(struct emu_vcq *vcq, int type, uint64_t edata, uint64_t lcl_stadd, uint64_t rmt_stadd,
                               uint64_t due);

/* The next entry of a lane, and its word but for type and EDATA.  False: the target's
 * MRQ overflows.  vcq: whose lane it is; NULL: somebody else's (emu_session_carry.c). */
EMU_INLINE bool emu_lane_entry(struct emu_vcq *vcq, struct emu_lane_tx *tx, struct emu_lane_entry **entry_p,
                               uint64_t *word_p)
{
    struct emu_lane_entry *e = tx->next, *a, *b;

    a = (struct emu_lane_entry *)((char *)tx->lane + EMU_LANE_HEAD);
    b = a + EMU_LANE_A;
    if (emu_likely(e < b)) {
        tx->wr_a++;
    } else {
        tx->wr_b++;
    }
    /* where the next one goes is fixed now, because this entry says it */
    tx->next = emu_likely(tx->wr_a - tx->known_a < EMU_LANE_A) ? &a[tx->wr_a & (EMU_LANE_A - 1)] : emu_lane_next(tx);
    if (emu_unlikely(tx->next == NULL)) {
        tx->next = e;
        if (e < b) {
            tx->wr_a--;
        } else {
            tx->wr_b--;
        }
        return false;
    }
    /* Who sends one after the other, and takes none meanwhile, has the line of the next four fetched
     * with the first of these: the target has read it the last time round.  (On an Intel, in turns:
     * puts of 8 B with a notice 14.5 ns each, so 12.4; 64 B 21.5 and 16.9.)  Not who answers
     * notices: at that line the target will be looking soon. */
    if ((vcq != NULL) && ((uintptr_t)e % TOFU_LINE == 0)) {
        if (!vcq->took) {
            tofu_fetch_line((uintptr_t)e + TOFU_LINE);
        }
        vcq->took = false;
    }
    *entry_p = e;
    *word_p  = (((tx->wr_a + tx->wr_b) & EMU_ENTRY_SEQ_MASK) << EMU_ENTRY_SEQ_SHIFT) |
              ((tx->next >= b) ? EMU_ENTRY_NEXT_B : 0);
    return true;
}

void emu_overflow_tell(struct emu_peer *peer); /* emu_overflow.c */
/* emu_lane.c: the two entries of a notice, of which the second one is written, and of the first one the caller has
 * to write what emu_lane_entry says.  False: the target's MRQ overflows. */
bool emu_lane_pair(struct emu_vcq *vcq, struct emu_lane_tx *tx, uint64_t lcl_stadd, uint64_t due,
                   struct emu_lane_entry **entry_p, uint64_t *word_p);

/* Put a notice into a lane (of vcq or, NULL, of somebody else) towards the peer; MRQ_PEER: its MRQ overflows, it
 * ends.  lcl_stadd: of a get.  due: when the target may see it, in ticks (timed mode); 0: at once.
 * stamp: the one that it has got; 0: none yet. */
EMU_INLINE int emu_lane_push(struct emu_vcq *vcq, struct emu_lane_tx *tx, struct emu_peer *peer, int type,
                             uint64_t edata, uint64_t lcl_stadd, uint64_t rmt_stadd, uint64_t due, uint64_t stamp)
{
    struct emu_vcq_block  *target = peer->block;
    struct emu_lane_entry *e;
    uint64_t               word;
    bool                   room;

    if (emu_likely((type != UTOFU_MRQ_TYPE_RMT_GET) && (due == 0))) {
        room = emu_lane_entry(vcq, tx, &e, &word);
    } else {
        room = emu_lane_pair(vcq, tx, lcl_stadd, due, &e, &word);
    }
    if (emu_unlikely(!room)) {
        emu_overflow_tell(peer);
        return UTOFU_ERR_MRQ_PEER;
    }
    if (emu_unlikely(atomic_load_explicit(&target->stamped, memory_order_relaxed) != 0)) {
        word |= (stamp != 0) ? stamp : emu_stamp(target);
    }
    e->stadd = rmt_stadd;
    __atomic_store_n(&e->word, word | ((uint64_t)type << 8) | edata, __ATOMIC_RELEASE);
    /* the consumer has the fence between the two executed: see lanes_sweep */
    atomic_signal_fence(memory_order_seq_cst);
    if (emu_unlikely(atomic_load_explicit(&tx->lane->heat, memory_order_relaxed) != EMU_LANE_HOT)) {
        emu_lane_heat(target, tx->lane);
    }
    emu_doorbell_check(target);
    return UTOFU_SUCCESS;
}

/* A remote notice of an operation of this VCQ */
EMU_INLINE int emu_notify(struct emu_vcq *vcq, struct emu_peer *peer, int type, uint64_t edata, uint64_t lcl_stadd,
                          uint64_t rmt_stadd, uint64_t due, uint64_t stamp)
{
    if (emu_unlikely(peer->tx.lane == NULL)) {
        uint32_t index;
        int      code;

        if ((peer->id == vcq->id) && (vcq->session == NULL)) { /* of a session others carry out the operations */
            emu_mrq_push_own(vcq, type, edata, lcl_stadd, rmt_stadd, due);
            return UTOFU_SUCCESS;
        }
        code = emu_lane_open(peer, EMU_LANE_OWNER(emu_g.slot, emu_g.gen, vcq->index), vcq->id, &peer->tx,
                                      &index);
        if (code != UTOFU_SUCCESS) {
            return code;
        }
    }
    return emu_lane_push(vcq, &peer->tx, peer, type, edata, lcl_stadd, rmt_stadd, due, stamp);
}

/* ------------------------------------------------------------- translation */

/* A get whose data could not be written: the target has been told by then (2.2.4) */
EMU_INLINE bool emu_failed_here(int code)
{
    return (code == UTOFU_ERR_MRQ_LCL_STADD) || (code == UTOFU_ERR_MRQ_LCL_LENGTH) || (code == UTOFU_ERR_MRQ_LCL_MEMORY);
}

/* A STADD of our own VCQ as a pointer. */
EMU_INLINE int emu_local_address(struct emu_vcq *vcq, uint64_t stadd, size_t length, bool write, char **addr_p)
{
    const struct emu_stag *e   = &vcq->stags[EMU_STADD_STAG(stadd)];
    uint64_t               off = EMU_STADD_OFF(stadd);

    if (emu_unlikely((e->high != EMU_STADD_HIGH(stadd)) || (off < e->begin) || (off > e->end) ||
                     ((off == e->end) && ((length != 0) || !(e->flags & EMU_STAG_VALID))))) { /* one never used has STADD 0 */
        return UTOFU_ERR_TCQ_STADD;
    }
    if (emu_unlikely(length > e->end - off)) {
        return UTOFU_ERR_TCQ_LENGTH;
    }
    if (emu_unlikely(write && (e->flags & UTOFU_REG_MEM_FLAG_READ_ONLY))) {
        return UTOFU_ERR_TCQ_MEMORY;
    }
    *addr_p = (char *)(uintptr_t)(e->addr + (off - e->begin));
    return UTOFU_SUCCESS;
}

/* The region of a remote STADD, checked for [stadd, stadd + length). */
EMU_INLINE int emu_remote_region(struct emu_peer *peer, uint64_t stadd, size_t length, bool write, struct emu_region **r_p)
{
    uint32_t           high = EMU_STADD_HIGH(stadd), stag = high % EMU_NUM_STAGS;
    uint64_t           off  = EMU_STADD_OFF(stadd);
    struct emu_region *r    = &peer->regions[stag / EMU_REGION_PAGE][stag % EMU_REGION_PAGE];

    if (emu_unlikely((r->tag != high) || (atomic_load_explicit(r->seq_p, memory_order_acquire) != r->seq))) {
        int code = emu_region_fill(peer, stag, &r);
        if (code != UTOFU_SUCCESS) {
            return code;
        }
        if (r->tag != high) {
            return UTOFU_ERR_MRQ_RMT_STADD; /* of another VCQ of the CQ, or no STADD */
        }
    }
    if (emu_unlikely((off < r->begin) || (off > r->end) || ((off == r->end) && (length != 0)))) {
        return UTOFU_ERR_MRQ_RMT_STADD;
    }
    if (emu_unlikely(length > r->end - off)) {
        return UTOFU_ERR_MRQ_RMT_LENGTH;
    }
    if (emu_unlikely(write && (r->flags & UTOFU_REG_MEM_FLAG_READ_ONLY))) {
        return UTOFU_ERR_MRQ_RMT_MEMORY;
    }
    *r_p = r;
    return UTOFU_SUCCESS;
}

/* Is [off, off + n) of the region mapped here?  The others are for emu_private.c. */
EMU_INLINE bool emu_region_direct(const struct emu_region *r, uint64_t off, size_t n)
{
    return emu_likely((off - r->dbegin <= r->dspan) && (n <= r->dspan - (off - r->dbegin)));
}

/* Was the registration there until now?  Asked after memory was read: what its owner
 * has deregistered meanwhile may be anything by now, so that get fails. */
EMU_INLINE int emu_region_still(const struct emu_region *r)
{
    atomic_thread_fence(memory_order_acquire);
    return emu_likely(atomic_load_explicit(r->seq_p, memory_order_relaxed) == r->seq) ? UTOFU_SUCCESS :
                                                                                        UTOFU_ERR_MRQ_RMT_STADD;
}

/* ------------------------------------------------------------------ posting */

/* Arguments that every operation has, and a TOQ entry: the VCQ is locked after
 * success.  The order of the checks is that of the arguments.  EMU_BY_DESC: the VCQ
 * is special, the operation goes by a descriptor (emu_post.c). */
#define EMU_BY_DESC 1
EMU_INLINE int emu_post_begin(utofu_vcq_hdl_t hdl, uint64_t edata, unsigned long flags, struct emu_vcq **vcq_p)
{
    struct emu_vcq *vcq = emu_vcq_of(hdl);

    if (emu_unlikely(vcq == NULL)) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (emu_unlikely((edata > EMU_MAX_EDATA) || (flags & (~EMU_POST_FLAGS | EMU_PATH_FLAGS)))) {
        if (edata > EMU_MAX_EDATA) {
            return UTOFU_ERR_INVALID_EDATA;
        }
        if (flags & ~EMU_POST_FLAGS) {
            return UTOFU_ERR_INVALID_FLAGS;
        }
        if (!emu_path_id_valid((flags & EMU_PATH_FLAGS) >> 28)) {
            return UTOFU_ERR_INVALID_PATH_ID;
        }
    }
    if (emu_unlikely(vcq->special != 0)) {
        if (vcq->special != EMU_SPECIAL_LOCKED) {
            *vcq_p = vcq;
            return EMU_BY_DESC;
        }
        emu_vcq_lock(vcq);
    }
    if (emu_unlikely(vcq->toq_left == 0)) {
        emu_vcq_unlock(vcq);
        return UTOFU_ERR_BUSY;
    }
    if (flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) {
        emu_mrq_gather(vcq);
    }
    *vcq_p = vcq;
    return UTOFU_SUCCESS;
}

/* The peer; an error of the network (no such VCQ) is told from a bad argument. */
EMU_INLINE int emu_post_peer(struct emu_vcq *vcq, uint64_t id, struct emu_peer **peer_p)
{
    struct emu_peer *peer = vcq->last;

    if (emu_likely((vcq->last_id == id) && (atomic_load_explicit(peer->gen_p, memory_order_acquire) == peer->gen))) {
        *peer_p = peer;
        return UTOFU_SUCCESS;
    }
    return emu_peer_find(vcq, id, peer_p);
}

/* The ID with the default path, as notices have it */
static inline uint64_t emu_canonical_id(uint64_t id)
{
    struct emu_vcq_name name;

    if (emu_vcq_id_decode(id, &name)) {
        memcpy(name.path, name.coords + 3, 3);
        id = emu_vcq_id_encode(&name);
    }
    return id;
}

#endif /* EMU_PATH_H */
