/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_put.c - put, of memory and of data in the call (3.7.1): carried out while it is posted.
 *
 * The data path is: handle -> VCQ, ID -> peer (one compare when it is the peer of
 * the last operation), STADD -> region (one compare when cached), bounds, store.
 * What a network interface would report later, in TCQ and MRQ, is queued here.
 *
 * Order: a copy to memory in reach is body first, then the last word by a release
 * store, then the notice by a release store of its sequence number.  So the last
 * byte of a put is visible last, and whoever sees the notice sees the data.
 */
#include "emu_copy.h"
#include "emu_modes.h"
#include "emu_onesided.h"
#include "emu_vma.h"

/*
 * An answer to a notice where bets are on (utofu_poll_mrq): the next thing that happens to its
 * lines is that the other CPU reads them.  It gets them sooner from the cache that both share
 * than out of this CPU's own.  (Measured on an Intel that has the instruction, one way, medians
 * of 9 to 13 runs in turns: 8 B 175 ns to 155, 32 B 172 to 155, 256 B 178 to 170; more data
 * gains nothing.)  Only the first put after a notice: what is stored behind it into a line that
 * was given up waits for it to come back, so that a stream of notices would take ten times as
 * long.  Nor without a notice: there the target is looking at the line already (125 ns to 140).
 */
#define DEMOTE_MAX 256u /* bytes */

EMU_INLINE void demote_data(const char *dst, size_t length)
{
    uintptr_t end = (uintptr_t)dst + length;

    for (uintptr_t line = (uintptr_t)dst; (length <= DEMOTE_MAX) && (line < end);
         line = (line | (TOFU_LINE - 1)) + 1) {
        tofu_demote_line(line);
    }
}

/* Store n bytes at a remote STADD. */
EMU_INLINE int put_data(struct emu_vcq *vcq, uint64_t rmt_id, const char *src, uint64_t rmt_stadd, size_t n,
                           uint64_t edata, unsigned long flags, void *cbdata)
{
    struct emu_region *r;
    struct emu_peer   *peer;
    uintptr_t          entry;
    struct emu_start   start = {0, NULL};
    bool               starts = false, answer = false;
    int                code;

    code = emu_post_peer(vcq, rmt_id, &peer);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        goto failed;
    }
    code = emu_remote_region(peer, rmt_stadd, n, true, &r);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        goto failed;
    }
    if (emu_region_direct(r, EMU_STADD_OFF(rmt_stadd), n)) {
        emu_copy((char *)r->base + EMU_STADD_OFF(rmt_stadd), src, n);
        if (emu_unlikely(emu_fault_seen)) {
            code = emu_region_cut_off(r);
            goto failed;
        }
        answer = vcq->answers && (flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
        if (emu_unlikely(answer)) {
            demote_data((char *)r->base + EMU_STADD_OFF(rmt_stadd), n);
        }
    } else {
        code = emu_private_write(peer, r, EMU_STADD_OFF(rmt_stadd), src, n, emu_put_order(vcq, flags));
        if (emu_unlikely(code != UTOFU_SUCCESS)) {
            code = emu_local_blame(code, UTOFU_ERR_TCQ_MEMORY, src, n, false);
            goto failed;
        }
        /* the kernel's copy, then whatever we store next */
        atomic_thread_fence(memory_order_seq_cst);
    }
    if (emu_unlikely(flags & UTOFU_ONESIDED_FLAG_SPS(15ul))) {
        starts = emu_session_credit(peer, (unsigned)(flags >> 24) & 15,
                                    (flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) != 0, &start);
    }
    entry = (uintptr_t)peer->tx.next;
    code  = emu_post_done(vcq, peer, UTOFU_MRQ_TYPE_LCL_PUT, 0, rmt_stadd + n, edata, flags, cbdata, 0, start.stamp);
    emu_session_told(&start);
    if (emu_unlikely(answer)) {
        vcq->answers = false;
        tofu_demote_line(entry); /* 0, where there was no lane: nothing happens */
    }
    if (emu_unlikely(starts)) {
        emu_session_carry(vcq, peer);
    }
    emu_vcq_unlock(vcq);
    return code;

failed:
    code = emu_post_failed(vcq, &(struct emu_post){rmt_id, 0, rmt_stadd + n, edata, flags, cbdata, UTOFU_MRQ_TYPE_LCL_PUT},
                       code);
    emu_vcq_unlock(vcq);
    return code;
}

static __attribute__((noinline)) int put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                         utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long flags,
                                         void *cbdata)
{
    struct emu_vcq *vcq;
    char           *src;
    int             code;

    if (emu_unlikely(length > EMU_MAX_PUTGET)) {
        return (emu_vcq_of(vcq_hdl) == NULL) ? UTOFU_ERR_INVALID_VCQ_HDL : UTOFU_ERR_INVALID_SIZE;
    }
    code = emu_post_begin(vcq_hdl, edata, flags, &vcq);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        return (code == EMU_BY_DESC) ? emu_putget_by_desc(EMU_OP_PUT, vcq_hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata,
                                                       flags, cbdata) : code;
    }
    code = emu_local_address(vcq, lcl_stadd, length, false, &src);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        struct emu_peer *peer;
        int              bad = emu_post_peer(vcq, rmt_vcq_id, &peer);
        code = emu_post_failed(vcq, &(struct emu_post){rmt_vcq_id, 0, 0, edata, flags, cbdata, UTOFU_MRQ_TYPE_LCL_PUT},
                           (bad == UTOFU_ERR_INVALID_VCQ_ID) ? bad : code);
        emu_vcq_unlock(vcq);
        return code;
    }
    return put_data(vcq, rmt_vcq_id, src, rmt_stadd, length, edata, flags, cbdata);
}

/* The target's file was cut off under the store of a fast path: the general way
 * reports it.  The same arguments as its caller's, which then has nothing to keep. */
static EMU_COLD void cut_off(utofu_vcq_hdl_t hdl, uint64_t rmt_stadd)
{
    struct emu_peer *peer = emu_vcq_of(hdl)->last;
    uint32_t         stag = EMU_STADD_STAG(rmt_stadd);

    emu_region_cut_off(&peer->regions[stag / EMU_REGION_PAGE][stag % EMU_REGION_PAGE]);
}

static EMU_COLD int put_cut_off(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long flags,
                                void *cbdata)
{
    cut_off(vcq_hdl, rmt_stadd);
    return put(vcq_hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata);
}

/* A put so long, with a notice: the line of the notice, which the target has looked at, comes
 * while the data is copied (8 KiB, over a line that takes 160 ns: 331 ns each, so 317).  A
 * shorter one is through before that; but where answers are bet on (utofu_poll_mrq) all of them
 * do so, as this may be begun before it is known that there is something to answer. */
#define NOTICE_FETCH_MIN 1024u

/* Is the source of a put its target?  It is when the program has mapped the target's memory,
 * and registered it: there is nothing to copy, and to see that costs less than to copy so
 * many bytes. */
#define IN_PLACE_MIN 256u

EMU_INLINE bool put_is_in_place(const struct emu_stag *l, uint64_t from, const struct emu_peer *peer,
                                const struct emu_region *r, uint64_t to)
{
    const struct emu_peer_seg *mapped;
    const struct emu_seg      *ours, *theirs;
    uint64_t                   off;

    if ((l->kind != EMU_MEM_SHARED) || (r->seg >= EMU_MAX_SEGS)) {
        return false;
    }
    ours   = &emu_g.seg[l->seg];
    theirs = &peer->proc->shm->seg[r->seg]; /* what was mapped, as long as the registration is */
    mapped = &peer->proc->segs[r->seg];
    /* in the file, which is mapped whole; not within it: another mapping of it came later */
    off = r->base + to - (uintptr_t)mapped->base;
    return (ours->ino == theirs->ino) && (ours->dev == theirs->dev) && (off < mapped->size) &&
           (l->seg_off + (from - l->begin) == off);
}

/* Of a put in place: it may be beyond the end of a file that became shorter. */
static EMU_COLD void touch_last(const char *dst, size_t length)
{
    (void)*(volatile const char *)(dst + length - 1);
}

/* The bytes of a put; returns whether they were in place. */
EMU_INLINE bool put_bytes(const struct emu_vcq *vcq, const struct emu_stag *l, uint64_t from,
                          const struct emu_peer *peer, const struct emu_region *r, uint64_t to, size_t length,
                          unsigned long flags)
{
    if ((flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) && ((length >= NOTICE_FETCH_MIN) || vcq->bets)) {
        tofu_fetch_line((uintptr_t)peer->tx.next);
    }
    if ((length >= IN_PLACE_MIN) && put_is_in_place(l, from, peer, r, to)) {
        touch_last((const char *)r->base + to, length);
        atomic_thread_fence(memory_order_release); /* the program's own stores, then the notice */
        return true;
    }
    emu_copy((char *)r->base + to, (const char *)(uintptr_t)(l->addr + (from - l->begin)), length);
    return false;
}

static EMU_NOINLINE bool notify_answer(struct emu_vcq *vcq, struct emu_peer *peer, const struct emu_region *r,
                                       const char *dst, size_t length, uint64_t edata, uint64_t rmt_stadd)
{
    uintptr_t entry = (uintptr_t)peer->tx.next;

    vcq->answers = false;
    if (dst != NULL) {
        demote_data(dst, length);
        emu_fetch_next(peer, r, dst, length);
    }
    if (emu_lane_push(vcq, &peer->tx, peer, UTOFU_MRQ_TYPE_RMT_PUT, edata, 0, rmt_stadd + length, 0, 0) !=
        UTOFU_SUCCESS) {
        return false;
    }
    tofu_demote_line(entry);
    return true;
}

/* The notice of a put whose bytes are stored, at dst, or were there (NULL: the program stores, by
 * addresses of its own).  False: the target's MRQ overflowed, which is its end. */
EMU_INLINE bool notify(struct emu_vcq *vcq, struct emu_peer *peer, const struct emu_region *r, const char *dst,
                       size_t length, uint64_t edata, uint64_t rmt_stadd)
{
    if (emu_unlikely(vcq->answers)) {
        return notify_answer(vcq, peer, r, dst, length, edata, rmt_stadd);
    }
    if (dst != NULL) {
        emu_fetch_next(peer, r, dst, length);
    }
    return emu_likely(emu_lane_push(vcq, &peer->tx, peer, UTOFU_MRQ_TYPE_RMT_PUT, edata, 0, rmt_stadd + length, 0, 0) ==
                      UTOFU_SUCCESS);
}

/* No notice for anybody, no path, no session: nothing but the data */
#define PLAIN_FLAGS \
    (UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_PACKET_RESPONSE | UTOFU_ONESIDED_FLAG_PADDING | \
     UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_DELAY_START)

/* A put between memory in reach, with or without notices in the TCQ and for the target,
 * is written out: all that could stand in its way is looked at, and the general function
 * is called, from the start, when anything does. */
EMU_EXPORT int utofu_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                         utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void *cbdata)
{
    struct emu_vcq        *vcq  = emu_vcq_of(vcq_hdl);
    uint32_t               high = EMU_STADD_HIGH(rmt_stadd), stag = high % EMU_NUM_STAGS;
    uint64_t               to = EMU_STADD_OFF(rmt_stadd), from = EMU_STADD_OFF(lcl_stadd);
    const struct emu_stag *l;
    struct emu_region     *r;
    struct emu_peer       *peer;
    char                  *dst;
    bool                   in_place;

    if (emu_unlikely((vcq == NULL) || ((flags & ~(PLAIN_FLAGS | UTOFU_ONESIDED_FLAG_TCQ_NOTICE |
                                                  UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) != 0) ||
                     (length == 0) || (length > EMU_MAX_PUTGET) || (edata > EMU_MAX_EDATA) || (vcq->special != 0) ||
                     (vcq->last_id != rmt_vcq_id))) {
        goto general;
    }
    peer = vcq->last;
    l    = &vcq->stags[EMU_STADD_STAG(lcl_stadd)];
    if (emu_unlikely((atomic_load_explicit(peer->gen_p, memory_order_acquire) != peer->gen) ||
                     (l->high != EMU_STADD_HIGH(lcl_stadd)) || (from < l->begin) || (from >= l->end) ||
                     (length > l->end - from))) {
        goto general;
    }
    r = &peer->regions[stag / EMU_REGION_PAGE][stag % EMU_REGION_PAGE];
    if (emu_unlikely((r->tag != high) || (atomic_load_explicit(r->seq_p, memory_order_acquire) != r->seq) ||
                     (to - r->wbegin >= r->wspan) || (length > r->wspan - (to - r->wbegin)) || (vcq->toq_left == 0) ||
                     ((flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) && (peer->tx.lane == NULL)))) {
        goto general; /* before anything is stored: who polls the memory would see it twice */
    }
    dst = (char *)r->base + to;
    in_place = put_bytes(vcq, l, from, peer, r, to, length, flags);
    if (emu_unlikely(emu_fault_seen)) {
        return put_cut_off(vcq_hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata);
    }
    if (flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) {
        if (!notify(vcq, peer, r, in_place ? NULL : dst, length, edata, rmt_stadd)) {
            goto general;
        }
    }
    if (flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) {
        emu_tcq_push(vcq, cbdata, UTOFU_SUCCESS);
    } else {
        emu_toq_take(vcq);
    }
    return UTOFU_SUCCESS;

general:
    return put(vcq_hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata);
}

/* A small message is written out as well: one to four aligned words into mapped memory,
 * with a notice for the target.  False: the general way has to do it. */
EMU_INLINE bool put_message(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, const char *data,
                            utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long flags)
{
    struct emu_vcq    *vcq  = emu_vcq_of(vcq_hdl);
    uint32_t           high = EMU_STADD_HIGH(rmt_stadd), stag = high % EMU_NUM_STAGS;
    uint64_t           to   = EMU_STADD_OFF(rmt_stadd);
    struct emu_region *r;
    struct emu_peer   *peer;
    char              *dst;

    if (emu_unlikely((vcq == NULL) || ((flags & ~PLAIN_FLAGS) != UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) ||
                     (length - 8 > EMU_MAX_PIGGYBACK - 8) || (edata > EMU_MAX_EDATA) || (vcq->special != 0) ||
                     (vcq->last_id != rmt_vcq_id))) {
        return false;
    }
    peer = vcq->last;
    if (emu_unlikely(atomic_load_explicit(peer->gen_p, memory_order_acquire) != peer->gen)) {
        return false; /* or there is none yet, and so no regions */
    }
    r   = &peer->regions[stag / EMU_REGION_PAGE][stag % EMU_REGION_PAGE];
    dst = (char *)r->base + to;
    if (emu_unlikely((r->tag != high) ||
                     (atomic_load_explicit(r->seq_p, memory_order_acquire) != r->seq) || (to - r->wbegin >= r->wspan) ||
                     (length > r->wspan - (to - r->wbegin)) || (((uintptr_t)dst | length) & 7) ||
                     (vcq->toq_left == 0) || (peer->tx.lane == NULL))) {
        return false;
    }
    if (vcq->bets) {
        tofu_fetch_line((uintptr_t)peer->tx.next);
    }
    emu_store_words(dst, data, length);
    if (emu_unlikely(emu_fault_seen)) {
        cut_off(vcq_hdl, rmt_stadd);
        return false;
    }
    if (!notify(vcq, peer, r, dst, length, edata, rmt_stadd)) {
        return false;
    }
    emu_toq_take(vcq);
    return true;
}

static EMU_NOINLINE int put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void *lcl_data,
                                      utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                      void *cbdata)
{
    struct emu_vcq *vcq;
    int             code;

    if (emu_unlikely((length > EMU_MAX_PIGGYBACK) || ((lcl_data == NULL) && (length > 0)))) {
        return (emu_vcq_of(vcq_hdl) == NULL) ? UTOFU_ERR_INVALID_VCQ_HDL :
               (length > EMU_MAX_PIGGYBACK)  ? UTOFU_ERR_INVALID_SIZE :
                                               UTOFU_ERR_INVALID_POINTER;
    }
    code = emu_post_begin(vcq_hdl, edata, flags, &vcq);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        return (code == EMU_BY_DESC) ? emu_piggyback_by_desc(vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags, cbdata) : code;
    }
    return put_data(vcq, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags & ~UTOFU_ONESIDED_FLAG_SPS(15ul), cbdata);
}

static EMU_COLD int put_piggyback_cut_off(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void *lcl_data,
                                          utofu_stadd_t rmt_stadd, size_t length, uint64_t edata,
                                          unsigned long int flags, void *cbdata)
{
    cut_off(vcq_hdl, rmt_stadd);
    return put_piggyback(vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags, cbdata);
}

/* Without a notice it is written out once more, so that next to nothing is left: one to
 * four aligned words into mapped memory, the last one last. */
EMU_EXPORT int utofu_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void *lcl_data,
                                   utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                   void *cbdata)
{
    struct emu_vcq    *vcq  = emu_vcq_of(vcq_hdl);
    uint32_t           high = EMU_STADD_HIGH(rmt_stadd), stag = high % EMU_NUM_STAGS;
    uint64_t           to   = EMU_STADD_OFF(rmt_stadd);
    struct emu_region *r;
    struct emu_peer   *peer;
    char              *dst;

    if (emu_unlikely((vcq == NULL) || ((flags & ~PLAIN_FLAGS) != 0) || (lcl_data == NULL) ||
                     (length - 8 > EMU_MAX_PIGGYBACK - 8) || (edata > EMU_MAX_EDATA) || (vcq->special != 0) ||
                     (vcq->last_id != rmt_vcq_id))) {
        goto general;
    }
    peer = vcq->last;
    if (emu_unlikely(atomic_load_explicit(peer->gen_p, memory_order_acquire) != peer->gen)) {
        goto general;
    }
    r   = &peer->regions[stag / EMU_REGION_PAGE][stag % EMU_REGION_PAGE];
    dst = (char *)r->base + to;
    if (emu_unlikely((r->tag != high) || (atomic_load_explicit(r->seq_p, memory_order_acquire) != r->seq) ||
                     (to - r->wbegin >= r->wspan) || (length > r->wspan - (to - r->wbegin)) ||
                     (((uintptr_t)dst | length) & 7) || (vcq->toq_left == 0))) {
        goto general;
    }
    emu_store_words(dst, lcl_data, length);
    if (emu_unlikely(emu_fault_seen)) {
        return put_piggyback_cut_off(vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags, cbdata);
    }
    emu_toq_take(vcq);
    return UTOFU_SUCCESS;

general:
    if ((flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) && (lcl_data != NULL) &&
        emu_likely(put_message(vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags))) {
        return UTOFU_SUCCESS;
    }
    return put_piggyback(vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags, cbdata);
}

static __attribute__((noinline)) int put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                                                    uint64_t lcl_data, utofu_stadd_t rmt_stadd, size_t length,
                                                    uint64_t edata, unsigned long int flags, void *cbdata)
{
    struct emu_vcq *vcq;
    int             code;

    if (emu_unlikely(length > 8)) {
        return (emu_vcq_of(vcq_hdl) == NULL) ? UTOFU_ERR_INVALID_VCQ_HDL : UTOFU_ERR_INVALID_SIZE;
    }
    code = emu_post_begin(vcq_hdl, edata, flags, &vcq);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        return (code == EMU_BY_DESC) ? emu_piggyback_by_desc(vcq_hdl, rmt_vcq_id, &lcl_data, rmt_stadd, length, edata, flags, cbdata) : code;
    }
    /* the low bytes of the value: little-endian machines only, as Tofu's are */
    return put_data(vcq, rmt_vcq_id, (const char *)&lcl_data, rmt_stadd, length, edata,
                    flags & ~UTOFU_ONESIDED_FLAG_SPS(15ul), cbdata); /* only a plain Put has an SPS (2.2.8.1) */
}

static EMU_COLD int put_piggyback8_cut_off(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                                           utofu_stadd_t rmt_stadd, size_t length, uint64_t edata,
                                           unsigned long flags, void *cbdata)
{
    cut_off(vcq_hdl, rmt_stadd);
    return put_piggyback8(vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags, cbdata);
}

/* The commonest of small puts, 8 aligned bytes into mapped memory and no notice, is
 * written out: all that could stand in its way is looked at, and the general
 * function is called, from the start, when anything does. */
EMU_EXPORT int utofu_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                                    utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                    void *cbdata)
{
    struct emu_vcq     *vcq  = emu_vcq_of(vcq_hdl);
    uint32_t            high = EMU_STADD_HIGH(rmt_stadd), stag = high % EMU_NUM_STAGS;
    uint64_t            off  = EMU_STADD_OFF(rmt_stadd);
    struct emu_region  *r;
    struct emu_peer    *peer;
    uint64_t           *dst;

    if (emu_unlikely((vcq == NULL) || ((flags & ~PLAIN_FLAGS) != 0) || (length != 8) || (edata > EMU_MAX_EDATA) ||
                     (vcq->special != 0) || (vcq->last_id != rmt_vcq_id))) {
        goto general;
    }
    peer = vcq->last;
    if (emu_unlikely(atomic_load_explicit(peer->gen_p, memory_order_acquire) != peer->gen)) {
        goto general;
    }
    r   = &peer->regions[stag / EMU_REGION_PAGE][stag % EMU_REGION_PAGE];
    dst = (uint64_t *)(r->base + off);
    if (emu_unlikely((r->tag != high) || (atomic_load_explicit(r->seq_p, memory_order_acquire) != r->seq) ||
                     (off - r->wbegin > r->span8) || ((uintptr_t)dst & 7) || (vcq->toq_left == 0))) {
        goto general;
    }
    __atomic_store_n(dst, lcl_data, __ATOMIC_RELEASE);
    if (emu_unlikely(emu_fault_seen)) {
        return put_piggyback8_cut_off(vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags, cbdata);
    }
    emu_toq_take(vcq);
    return UTOFU_SUCCESS;

general:
    if ((flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) && (length == 8)) {
        uint64_t value = lcl_data;
        if (emu_likely(put_message(vcq_hdl, rmt_vcq_id, (const char *)&value, rmt_stadd, 8, edata, flags))) {
            return UTOFU_SUCCESS;
        }
    }
    return put_piggyback8(vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, edata, flags, cbdata);
}
