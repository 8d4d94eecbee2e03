/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_carry.c - an operation given as a descriptor, carried out: the data, then the
 * notices.  The fast path (emu_put.c, emu_fetch.c) does the same from arguments.
 */
#include "emu_armw.h"
#include "emu_copy.h"
#include "emu_modes.h"
#include "emu_path.h"
#include "emu_service.h"
#include "emu_vma.h"

int emu_desc_lcl_type(const struct emu_desc *d)
{
    switch (d->kind) {
    case EMU_OP_PUT:
    case EMU_OP_PIGGYBACK:
        return UTOFU_MRQ_TYPE_LCL_PUT;
    case EMU_OP_GET:
        return UTOFU_MRQ_TYPE_LCL_GET;
    case EMU_OP_ARMW:
        return UTOFU_MRQ_TYPE_LCL_ARMW;
    default:
        return -1;
    }
}

static void wait_until(uint64_t ticks)
{
    if (ticks != 0) {
        emu_timing_wait(ticks);
    }
}

/* emu_copy with the times of its two steps; looked_at: somebody may be looking for the last word */
static void copy_timed(char *dst, const char *src, size_t n, bool looked_at, const struct emu_times *t)
{
    char     last[8];
    size_t   tail;
    uint64_t visible;

    if (t == NULL) {
        emu_copy(dst, src, n);
        return;
    }
    wait_until(t->read);
    if (n == 0) {
        wait_until(t->visible);
        return;
    }
    tail    = emu_tail_size((uintptr_t)dst, n);
    visible = t->visible;
    if (looked_at && (visible != 0)) {
        visible -= (uint64_t)emu_timing_way(dst + (n - tail), visible);
    }
    EMU_IN_ORDER();
    emu_copy_body(dst, src, n - tail);
    EMU_READ_IN_ORDER();
    memcpy(last, src + (n - tail), tail);
    wait_until(visible);
    emu_store_tail(dst + (n - tail), last, tail);
}

/* By the kernel.  In the timed mode only the last word waits for its time: what the copy
 * takes passes while the data travels. */
static int write_private(struct emu_peer *peer, struct emu_region *r, uint64_t off, const char *src, size_t n,
                         enum emu_order order, const struct emu_times *t)
{
    size_t body;
    int    code;

    if (t == NULL) {
        return emu_private_write(peer, r, off, src, n, order);
    }
    body = n - emu_tail_size((uintptr_t)(r->addr + off), n);
    code = emu_private_write(peer, r, off, src, body, order);
    wait_until(t->visible);
    return (code == UTOFU_SUCCESS) ? emu_private_write(peer, r, off + body, src + body, n - body, order) : code;
}

static int read_private(struct emu_peer *peer, struct emu_region *r, uint64_t off, char *dst, size_t n,
                        bool strong, enum emu_order order, const struct emu_times *t)
{
    char   last[8];
    size_t body;
    int    code;

    if (t == NULL) {
        return emu_private_read(peer, r, off, dst, n, strong, order);
    }
    wait_until(t->read);
    body = n - emu_tail_size((uintptr_t)dst, n);
    code = emu_private_read(peer, r, off, dst, body, strong, order);
    if (code == UTOFU_SUCCESS) {
        code = emu_private_read(peer, r, off + body, last, n - body, strong, order);
    }
    wait_until(t->visible);
    if ((code == UTOFU_SUCCESS) && (n > 0)) {
        emu_store_tail(dst + body, last, n - body);
    }
    return code;
}

static int carry_put(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_times *t, struct emu_carried *c)
{
    struct emu_region *r;
    char              *src = (char *)(uintptr_t)d->data;
    int                code;

    if (d->kind == EMU_OP_PUT) {
        code = emu_local_address(vcq, d->lcl_stadd, d->length, false, &src);
        if (code != UTOFU_SUCCESS) {
            return code;
        }
    }
    code = emu_post_peer(vcq, d->rmt_id, &c->peer);
    if (code == UTOFU_SUCCESS) {
        code = emu_remote_region(c->peer, d->rmt_stadd, d->length, true, &r);
    }
    if (code != UTOFU_SUCCESS) {
        return code;
    }
    c->mapped = emu_region_direct(r, EMU_STADD_OFF(d->rmt_stadd), d->length);
    if (c->mapped) {
        copy_timed((char *)r->base + EMU_STADD_OFF(d->rmt_stadd), src, d->length,
                   !(d->flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE), t);
        return emu_fault_seen ? emu_region_cut_off(r) : UTOFU_SUCCESS;
    }
    code = write_private(c->peer, r, EMU_STADD_OFF(d->rmt_stadd), src, d->length, emu_put_order(vcq, d->flags), t);
    atomic_thread_fence(memory_order_seq_cst); /* the kernel's copy, then what we store next */
    return emu_local_blame(code, UTOFU_ERR_TCQ_MEMORY, src, d->length, false);
}

static int carry_get(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_times *t, struct emu_carried *c)
{
    struct emu_region *r;
    char              *dst;
    int                code = emu_post_peer(vcq, d->rmt_id, &c->peer);

    if (code == UTOFU_SUCCESS) {
        code = emu_remote_region(c->peer, d->rmt_stadd, d->length, false, &r);
    }
    if (code != UTOFU_SUCCESS) {
        return code;
    }
    /* the data is written here after it travelled: local errors are in the MRQ */
    code = emu_local_address(vcq, d->lcl_stadd, d->length, true, &dst);
    if (code != UTOFU_SUCCESS) {
        return (code == UTOFU_ERR_TCQ_STADD)  ? UTOFU_ERR_MRQ_LCL_STADD :
               (code == UTOFU_ERR_TCQ_LENGTH) ? UTOFU_ERR_MRQ_LCL_LENGTH :
                                                UTOFU_ERR_MRQ_LCL_MEMORY;
    }
    c->mapped = emu_region_direct(r, EMU_STADD_OFF(d->rmt_stadd), d->length);
    if (c->mapped) {
        atomic_thread_fence(memory_order_acquire);
        copy_timed(dst, (const char *)r->base + EMU_STADD_OFF(d->rmt_stadd), d->length, false, t);
        return emu_fault_seen ? emu_region_cut_off(r) : emu_region_still(r);
    }
    code = read_private(c->peer, r, EMU_STADD_OFF(d->rmt_stadd), dst, d->length,
                        (d->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0, emu_get_order(vcq), t);
    return (code == UTOFU_SUCCESS) ? emu_region_still(r) :
                                     emu_local_blame(code, UTOFU_ERR_MRQ_LCL_MEMORY, dst, d->length, true);
}

static int carry_armw(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_times *t, struct emu_carried *c)
{
    struct emu_region *r;
    uint64_t           off  = EMU_STADD_OFF(d->rmt_stadd);
    int                code = emu_post_peer(vcq, d->rmt_id, &c->peer);

    if (code == UTOFU_SUCCESS) {
        code = emu_remote_region(c->peer, d->rmt_stadd, d->length, true, &r);
    }
    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (t != NULL) {
        wait_until(t->read);
    }
    c->mapped = emu_region_direct(r, off, d->length);
    if (c->mapped) {
        if (!emu_target_is_there(c->peer, r, off, d->length)) {
            return UTOFU_ERR_MRQ_RMT_MEMORY;
        }
        c->value = emu_armw_direct(EMU_DESC_ARMW_OP(d), d->length, (void *)(r->base + off), d->operand, d->compare);
        return emu_fault_seen ? emu_region_cut_off(r) : UTOFU_SUCCESS;
    }
    return emu_service_armw(c->peer, EMU_DESC_ARMW_OP(d), d->length, d->operand, d->compare, d->rmt_stadd,
                            r->addr + off, &c->value);
}

int emu_carry(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_times *t, struct emu_carried *c)
{
    int code;

    *c = (struct emu_carried){0};
    switch (d->kind) {
    case EMU_OP_PUT:
    case EMU_OP_PIGGYBACK:
        code = carry_put(vcq, d, t, c);
        break;
    case EMU_OP_GET:
        code = carry_get(vcq, d, t, c);
        break;
    case EMU_OP_ARMW:
        code = carry_armw(vcq, d, t, c);
        break;
    default:
        return UTOFU_SUCCESS;
    }
    /* It was accepted, so a failure of ours has no other way out than the TCQ. */
    if ((code != UTOFU_SUCCESS) && ((code > UTOFU_ERR_TCQ_OTHER) || (code < UTOFU_ERR_MRQ_RMT_LENGTH))) {
        code = UTOFU_ERR_TCQ_OTHER;
    }
    return code;
}

void emu_complete_tcq(struct emu_vcq *vcq, const struct emu_desc *d, int code, void *cbdata, uint64_t due)
{
    bool tcq_error = (code <= UTOFU_ERR_TCQ_OTHER) && (code > UTOFU_ERR_MRQ_OTHER);

    if (!tcq_error && !(d->flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE)) {
        emu_toq_take(vcq);
        return;
    }
    vcq->tcq[vcq->tcq_tail % EMU_TOQ_ENTRIES].due = due;
    emu_tcq_push(vcq, cbdata, tcq_error ? code : UTOFU_SUCCESS);
}

int emu_remote_notice(struct emu_vcq *vcq, const struct emu_desc *d, struct emu_peer *peer, uint64_t due,
                      uint64_t stamp)
{
    bool get  = d->kind == EMU_OP_GET;
    int  code = emu_notify(vcq, peer, emu_desc_lcl_type(d) + 1, d->edata, get ? d->lcl_stadd + d->length : 0,
                           (d->kind == EMU_OP_ARMW) ? d->rmt_stadd : d->rmt_stadd + d->length, due, stamp);

    return (code == UTOFU_SUCCESS) || (code == UTOFU_ERR_MRQ_PEER) ? code : UTOFU_ERR_MRQ_OTHER;
}

void emu_mrq_by_time(struct emu_vcq *vcq, uint64_t due, uint64_t posted)
{
    vcq->mrq[(vcq->mrq_tail - 1) & (vcq->mrq_size - 1)].due    = due;
    vcq->mrq[(vcq->mrq_tail - 1) & (vcq->mrq_size - 1)].posted = posted;
    /* In the order of time, but never before an earlier one of the same kind and remote VCQ
     * (2.2.10): an error is known as soon as the remote VCQ is not there any more, while
     * what was posted before it went is still under way. */
    for (uint32_t i = vcq->mrq_tail - 1; i != vcq->mrq_head; i--) {
        struct emu_mrq_entry *last   = &vcq->mrq[i & (vcq->mrq_size - 1)];
        struct emu_mrq_entry *before = &vcq->mrq[(i - 1) & (vcq->mrq_size - 1)], m;

        if (before->due <= last->due) {
            break;
        }
        if ((before->notice.vcq_id == last->notice.vcq_id) &&
            (emu_is_local(before->notice.notice_type) == emu_is_local(last->notice.notice_type))) {
            last->due = before->due;
            break;
        }
        m       = *last;
        *last   = *before;
        *before = m;
    }
}

/* So it comes before the local notice of the operation (2.2.3 to 2.2.5), and before an answer of anybody's to it. */
void emu_mrq_push_own(struct emu_vcq *vcq, int type, uint64_t edata, uint64_t lcl_stadd, uint64_t rmt_stadd,
                      uint64_t due)
{
    if (!(vcq->special & EMU_SPECIAL_TIMED) && !emu_wire_owes(vcq)) {
        emu_mrq_gather(vcq);
    }
    emu_mrq_push(vcq, type, vcq->id, edata, rmt_stadd, lcl_stadd, rmt_stadd, UTOFU_SUCCESS);
    emu_mrq_by_time(vcq, due, 0);
}

void emu_local_notice(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_carried *c, int code,
                      uint64_t due, uint64_t posted)
{
    bool     get = d->kind == EMU_OP_GET;
    uint64_t end = (d->kind == EMU_OP_ARMW) ? d->rmt_stadd : d->rmt_stadd + d->length;

    if (!(d->flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) && !(vcq->special & EMU_SPECIAL_TIMED)) {
        emu_mrq_gather(vcq); /* else it was done when the operation was posted */
    }
    emu_mrq_push(vcq, emu_desc_lcl_type(d), emu_canonical_id(d->rmt_id), d->edata,
                 (code == UTOFU_SUCCESS) ? c->value : 0, get ? d->lcl_stadd + d->length : 0, get ? 0 : end, code);
    emu_mrq_by_time(vcq, due, posted);
}
