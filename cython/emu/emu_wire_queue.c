/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_wire_queue.c - a VCQ of the wire (emu_wire.c) as its program sees it: room, posts, the TCQ.  (The VCQ is
 * locked.)
 */
#include "emu_now.h"
#include "emu_path.h"
#include "emu_wire.h"

#include <sched.h>

/* A program that polls in a loop would keep the lock from the thread for long. */
void emu_wire_yield(struct emu_vcq *vcq)
{
    struct emu_wire *w = vcq->wire;

    for (unsigned i = 0; (w != NULL) && (i < 100) && atomic_load(&w->wanted); i++) {
        sched_yield();
    }
}

/* The program waits for what the thread has to do. */
void emu_wire_idle(struct emu_vcq *vcq)
{
    struct emu_wire *w = vcq->wire;

    if ((w != NULL) && (w->done < w->posted)) {
        emu_vcq_unlock(vcq);
        sched_yield();
        pthread_mutex_lock(&vcq->lock);
    }
}

uint32_t emu_wire_unread(const struct emu_vcq *vcq)
{
    /* by others, too (3.7.5.1) */
    return (uint32_t)(atomic_load_explicit(&vcq->wire->posted, memory_order_relaxed) -
                      atomic_load_explicit(&vcq->wire->tcq_read, memory_order_relaxed));
}

/* What of it takes up room in the CQ's queue, for the other VCQs on it: a poll of any of them reads all entries that
 * are there, and keeps those of others for them. */
uint32_t emu_wire_unread_of_cq(const struct emu_vcq *vcq)
{
    uint64_t read = atomic_load_explicit(&vcq->wire->tcq_read, memory_order_relaxed), seen = atomic_load(&vcq->wire->seen);

    return (uint32_t)(atomic_load_explicit(&vcq->wire->posted, memory_order_relaxed) - ((seen > read) ? seen : read));
}

static void read_of_others(const struct emu_vcq *vcq)
{
    emu_lock(&emu_g.lock);
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        struct emu_vcq *v = emu_g.vcqs[i].vcq;

        if ((v != vcq) && emu_on_same_cq(v, vcq) && (v->wire != NULL)) {
            atomic_store(&v->wire->seen, atomic_load(&v->wire->sent));
        }
    }
    emu_unlock(&emu_g.lock);
}

uint32_t emu_wire_room(const struct emu_vcq *vcq)
{
    const struct emu_wire *w   = vcq->wire;
    uint32_t               toq = EMU_TOQ_ENTRIES - (uint32_t)(w->posted - w->tcq_read), ops = EMU_WIRE_OPS - (uint32_t)(w->posted - w->done);

    return (toq < ops) ? toq : ops;
}

int emu_wire_post(struct emu_vcq *vcq, const struct emu_desc *d, void *cbdata, int fail, uint64_t delay_ns)
{
    struct emu_wire *w    = vcq->wire;
    struct wire_op  *op   = emu_wire_op(w, w->posted);
    uint64_t         path = d->flags & EMU_PATH_FLAGS, bits;

    *op        = (struct wire_op){.desc = *d, .cbdata = cbdata, .fail = fail};
    /* a path in the flags counts more than the one in the VCQ ID (3.5) */
    bits       = (path != 0) ? ((path >> 28) & 0xf) : (d->rmt_id & EMU_VCQ_ID_PATH_MASK);
    op->flow   = (d->rmt_id & ~EMU_VCQ_ID_PATH_MASK) | bits;
    op->held   = true;
    op->ready  = 0;
    if (delay_ns != 0) {
        op->ready = emu_now() + delay_ns;
    } else if (w->strict && (emu_wire_draw(w) % 4 == 0)) {
        op->ready = emu_now() + emu_wire_draw(w) % 100000; /* others overtake it; with STRONG_ORDER those of other flows */
    }
    if (w->strict && (d->kind == EMU_OP_PUT) && (emu_wire_draw(w) % 4 == 0)) {
        op->leaves = emu_now() + emu_wire_draw(w) % 20000; /* what the program writes to the source until then is sent */
    }
    atomic_store_explicit(&w->posted, w->posted + 1, memory_order_relaxed);
    if (w->strict && (d->flags & UTOFU_ONESIDED_FLAG_DELAY_START) && (emu_wire_draw(w) % 4 == 0)) {
        emu_wire_start(vcq); /* the flag may be ignored (3.7.9.1) */
    }
    return UTOFU_SUCCESS;
}

void emu_wire_start(struct emu_vcq *vcq)
{
    struct emu_wire *w = vcq->wire;

    for (uint64_t n = w->posted; (n-- > w->sent) && emu_wire_op(w, n)->held;) {
        emu_wire_op(w, n)->held = false;
    }
    emu_wire_kick();
}

bool emu_wire_tcq_ready(const struct emu_vcq *vcq)
{
    return vcq->wire->tcq_read < vcq->wire->sent;
}

int emu_wire_poll_tcq(struct emu_vcq *vcq, void **cbdata)
{
    struct emu_wire *w = vcq->wire;

    if (w->strict && emu_shares_cq(vcq)) {
        read_of_others(vcq);
    }
    while (w->tcq_read < w->sent) {
        const struct wire_op *op = emu_wire_op(w, w->tcq_read);

        atomic_store_explicit(&w->tcq_read, w->tcq_read + 1, memory_order_relaxed);
        if ((op->tcq_code != UTOFU_SUCCESS) || (op->desc.flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE)) {
            *cbdata = op->cbdata;
            return op->tcq_code;
        }
    }
    emu_wire_idle(vcq);
    return UTOFU_ERR_NOT_FOUND;
}
