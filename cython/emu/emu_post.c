/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_post.c - operations posted as descriptors: utofu_post_toq, calls with stride,
 * and every operation of a VCQ that is special (EMU_SPECIAL_*).
 *
 * A call posts all of its descriptors or none: BUSY says that the TOQ has no room
 * for all of them.
 */
#include "emu_modes.h"
#include "emu_path.h"

static uint32_t room(const struct emu_vcq *vcq)
{
    return (vcq->special & EMU_SPECIAL_SESSION) ? emu_session_room(vcq) :
           (vcq->special & EMU_SPECIAL_WIRE)    ? emu_wire_room(vcq) :
                                                  vcq->toq_left;
}

uint32_t emu_toq_unread(const struct emu_vcq *vcq)
{
    return (vcq->special & EMU_SPECIAL_SESSION) ? EMU_SESSION_TOQ - emu_session_room(vcq) :
           (vcq->special & EMU_SPECIAL_WIRE)    ? emu_wire_unread(vcq) :
                                                  EMU_TOQ_ENTRIES - __atomic_load_n(&vcq->toq_left, __ATOMIC_RELAXED);
}

/* What the other VCQs of its CQ have in the queue that is theirs as well: the strict mode counts it. */
static size_t others_unread(const struct emu_vcq *vcq)
{
    size_t n = 0;

    if (!emu_g.env.strict || !emu_shares_cq(vcq)) {
        return 0;
    }
    emu_lock(&emu_g.lock);
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        if ((emu_g.vcqs[i].vcq != vcq) && emu_on_same_cq(emu_g.vcqs[i].vcq, vcq)) {
            n += (emu_g.vcqs[i].vcq->special & EMU_SPECIAL_WIRE) ? emu_wire_unread_of_cq(emu_g.vcqs[i].vcq) :
                                                                    emu_toq_unread(emu_g.vcqs[i].vcq);
        }
    }
    emu_unlock(&emu_g.lock);
    return n;
}

/* A full TOQ has nothing left to wait for: what was held back starts (3.7.9.1). */
static int busy(struct emu_vcq *vcq)
{
    if (vcq->special & EMU_SPECIAL_WIRE) {
        emu_wire_start(vcq);
        emu_wire_idle(vcq);
    }
    return UTOFU_ERR_BUSY;
}

/* Room for n descriptors; the VCQ is locked already. */
static int reserve(struct emu_vcq *vcq, size_t n)
{
    uint32_t most = emu_inject_toq();

    if (n > most) {
        return UTOFU_ERR_INVALID_NUMBER;
    }
    return (room(vcq) < n + (EMU_TOQ_ENTRIES - most) + others_unread(vcq)) ? busy(vcq) : UTOFU_SUCCESS;
}

/* Is there a rule that says BUSY to this descriptor? */
static int let_in(struct emu_vcq *vcq, const struct emu_desc *d)
{
    return ((vcq->special & EMU_SPECIAL_INJECT) && emu_inject_busy(d)) ? busy(vcq) : UTOFU_SUCCESS;
}

/* Carried out here and now, at the clock's time in the timed mode */
static void post_now(struct emu_vcq *vcq, const struct emu_desc *d, void *cbdata, int fail)
{
    struct emu_times   times = {0};
    struct emu_carried c     = {0};
    bool               timed = (vcq->special & EMU_SPECIAL_TIMED) != 0, starts = false;
    int                code  = fail, type;
    struct emu_start   start = {0, NULL};

    if (timed) {
        emu_timing_plan(vcq, d, &times);
    }
    if (code == UTOFU_SUCCESS) {
        code = emu_carry(vcq, d, timed ? &times : NULL, &c);
    }
    if ((code == UTOFU_SUCCESS) && (d->kind == EMU_OP_PUT) && EMU_DESC_SPS(d)) {
        starts = emu_session_credit(c.peer, EMU_DESC_SPS(d),
                                    (d->flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) != 0, &start);
    }
    type = emu_desc_lcl_type(d);
    if ((code == UTOFU_SUCCESS) && (type >= 0) && (d->flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) {
        code = emu_remote_notice(vcq, d, c.peer, times.remote, start.stamp);
        emu_session_told(&start);
    } else if ((d->kind == EMU_OP_GET) && emu_failed_here(code) && (fail == UTOFU_SUCCESS) &&
               (d->flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) {
        (void)emu_remote_notice(vcq, d, c.peer, times.remote, 0);
    }
    emu_complete_tcq(vcq, d, code, cbdata, times.tcq);
    if ((type >= 0) && (((code == UTOFU_SUCCESS) && (d->flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)) ||
                        ((code <= UTOFU_ERR_MRQ_OTHER) && (code >= UTOFU_ERR_MRQ_RMT_LENGTH)))) {
        emu_local_notice(vcq, d, &c, code, times.local, times.posted);
    }
    if (vcq->special & EMU_SPECIAL_STATS) {
        emu_stats_done(vcq, d, &c, code);
    }
    if (starts) {
        emu_session_carry(vcq, c.peer);
    }
}

static int post_one(struct emu_vcq *vcq, const struct emu_desc *d, void *cbdata)
{
    struct emu_fault fault = {UTOFU_SUCCESS, 0};

    if (vcq->special & EMU_SPECIAL_STATS) {
        emu_stats_post(vcq, d);
    }
    if (vcq->special & EMU_SPECIAL_INJECT) {
        emu_inject(d, &fault);
    }
    if (vcq->special & EMU_SPECIAL_SESSION) {
        return emu_session_post(vcq, d, cbdata);
    }
    if ((d->flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) && !(vcq->special & EMU_SPECIAL_TIMED)) {
        emu_mrq_gather(vcq);
    }
    if (vcq->special & EMU_SPECIAL_WIRE) {
        return emu_wire_post(vcq, d, cbdata, fault.code, fault.delay_ns);
    }
    post_now(vcq, d, cbdata, fault.code);
    return UTOFU_SUCCESS;
}

/* The doorbell: what was posted starts, and what had been held back. */
static void ring(struct emu_vcq *vcq)
{
    if (vcq->special & EMU_SPECIAL_STATS) {
        emu_stats_doorbell(vcq);
    }
    if (vcq->special & EMU_SPECIAL_SESSION) {
        emu_session_start(vcq);
    } else if (vcq->special & EMU_SPECIAL_WIRE) {
        emu_wire_start(vcq);
    }
}

/* An operation that a session-mode VCQ can't have (2.2.8.1: Put and NOP only) */
static bool refused(const struct emu_vcq *vcq, const struct emu_desc *d)
{
    return (vcq->special & EMU_SPECIAL_SESSION) && (d->kind != EMU_OP_PUT) && (d->kind != EMU_OP_NOP);
}

int emu_post_stride(const struct emu_desc *first, utofu_vcq_hdl_t hdl, size_t stride, size_t num_blocks, void *cbdata)
{
    struct emu_vcq *vcq = emu_vcq_of(hdl);
    struct emu_desc d;
    int             code;

    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (vcq->special & EMU_SPECIAL_TIMED) {
        emu_timing_begin();
    }
    d = *first;
    if (num_blocks == 0) {
        return UTOFU_ERR_INVALID_NUMBER;
    }
    if (refused(vcq, &d)) {
        return UTOFU_ERR_NOT_SUPPORTED;
    }
    emu_vcq_lock(vcq);
    code = reserve(vcq, num_blocks);
    for (size_t i = 0; (code == UTOFU_SUCCESS) && (i < num_blocks); i++) {
        code = let_in(vcq, &d);
    }
    for (size_t i = 0; (code == UTOFU_SUCCESS) && (i < num_blocks); i++) {
        code = post_one(vcq, &d, cbdata);
        d.lcl_stadd += stride;
        d.rmt_stadd += stride;
    }
    if ((code == UTOFU_SUCCESS) && !(d.flags & UTOFU_ONESIDED_FLAG_DELAY_START)) {
        ring(vcq);
    }
    if (vcq->special & EMU_SPECIAL_TIMED) {
        emu_timing_posted();
    }
    emu_vcq_unlock(vcq);
    return code;
}

int emu_post_desc(const struct emu_desc *d, utofu_vcq_hdl_t hdl, void *cbdata)
{
    return emu_post_stride(d, hdl, 0, 1, cbdata);
}

EMU_EXPORT int utofu_post_toq(utofu_vcq_hdl_t vcq_hdl, void *desc, size_t desc_size, void *cbdata)
{
    struct emu_vcq *vcq = emu_vcq_of(vcq_hdl);
    const char     *p   = desc;
    size_t          n   = 0, left, k;
    int             code = UTOFU_SUCCESS;

    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if ((desc_size != 0) && ((desc == NULL) || ((uintptr_t)desc % 8))) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (vcq->special & EMU_SPECIAL_TIMED) {
        emu_timing_begin();
    }
    emu_vcq_lock(vcq);
    /* all are looked at before the first is posted */
    for (left = desc_size; left > 0; left -= k, p += k, n++) {
        struct emu_desc d;

        k = emu_desc_unpack(vcq, p, left, &d);
        if (k == 0) {
            code = UTOFU_ERR_INVALID_DESC;
            goto out;
        }
        if (refused(vcq, &d)) {
            code = UTOFU_ERR_NOT_SUPPORTED;
            goto out;
        }
    }
    code = (n > 0) ? reserve(vcq, n) : UTOFU_SUCCESS;
    for (p = desc, left = desc_size; (code == UTOFU_SUCCESS) && (left > 0); left -= k, p += k) {
        struct emu_desc d;

        k    = emu_desc_unpack(vcq, p, left, &d);
        code = (k == 0) ? UTOFU_ERR_INVALID_DESC : let_in(vcq, &d); /* another thread may write there */
    }
    for (p = desc, left = desc_size; (code == UTOFU_SUCCESS) && (left > 0); left -= k, p += k) {
        struct emu_desc d;

        k = (n > 0) ? emu_desc_unpack(vcq, p, left, &d) : 0; /* it may have become more than there is room for */
        if ((k == 0) || refused(vcq, &d)) {
            code = UTOFU_ERR_INVALID_DESC;
            break;
        }
        n--;
        d.flags &= ~(uint64_t)UTOFU_ONESIDED_FLAG_DELAY_START; /* no effect on prepared ones (3.7.9.1) */
        code = post_one(vcq, &d, cbdata);
    }
    if (code == UTOFU_SUCCESS) {
        ring(vcq);
    }
    if (vcq->special & EMU_SPECIAL_TIMED) {
        emu_timing_posted();
    }
out:
    emu_vcq_unlock(vcq);
    return code;
}
