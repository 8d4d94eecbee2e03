/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_wire.c - operations that are carried out after they were posted, by a thread
 * of this process (emu_wire_thread.c): in the strict mode, and where faults delay operations.
 *
 * The strict mode does what the guide allows and a kind network seldom does:
 *  - the source of a put is read late, at any time before its TCQ notice, and the
 *    TCQ notice comes before the data arrives; a get reads at its target before it writes,
 *    and whoever is told that has the source to himself;
 *  - operations overtake each other, unless STRONG_ORDER (and the same VCQs and
 *    path) forbids it;
 *  - the cache lines of one put or get are written in any order, with STRONG_ORDER
 *    the last one last (6.1.3.1), and so are the parts of a line from two pages;
 *  - notices say what they must and no more: a notice of an operation does not mean
 *    that earlier operations without notice have arrived;
 *  - padded bytes around a piggyback are poisoned; DELAY_START mostly does hold back;
 *  - operations that were not sent when their VCQ is freed are not carried out.
 * It keeps what the guide promises: TCQ notices in the order of posting, remote and
 * local notices in that order per remote VCQ and path (2.2.10), errors among them; and
 * one thing more, that programs rely on: a local notice comes before an answer of the
 * target.  Where one waits for that of an earlier operation that is still on its way, remote notices
 * therefore wait as well, but for those that were there when it arrived.  That is not for long: soon
 * operations arrive in order until no notice waits.
 *
 * Without the strict mode operations arrive in order per remote VCQ and path and only
 * wait for their time; a put reads its source when it leaves.
 */
#include "emu_path.h"
#include "emu_vma.h"
#include "emu_wire.h"

#define WINDOW 64u /* operations under way: sent and not done */
#define PICKS  8u  /* tries to find one of them whose turn it may be */
#define OWE_NS 200000u /* remote notices wait for local ones that wait no longer than about that */

/* --------------------------------------------------------------- what is allowed */

static bool wants(const struct wire_op *op, uint64_t flag)
{
    return (op->desc.flags & flag) != 0;
}

/* Memory that is registered may have been unmapped, or cut off, by mistake: one byte of it */
static int probe(struct emu_peer *peer, struct emu_region *r, uint64_t off)
{
    char byte;

    if (!emu_target_is_there(peer, r, off, 1)) {
        return UTOFU_ERR_MRQ_RMT_MEMORY;
    }
    return emu_private_read(peer, r, off, &byte, 1, false, EMU_ORDER_NONE);
}

/* Nothing speaks against an operation that is under way: there will be no error of it.  The
 * packets were looked at by the target, so to say, and their data is what comes later. */
static bool is_good(struct emu_wire *w, struct wire_op *op)
{
    const struct emu_desc *d    = &op->desc;
    uint64_t               off  = EMU_STADD_OFF(d->rmt_stadd);
    int                    code = op->fail;
    struct emu_region     *r;
    struct emu_peer       *peer;
    char                  *lcl;

    if (op->good) {
        return true;
    }
    if (code == UTOFU_SUCCESS) {
        code = emu_post_peer(w->vcq, d->rmt_id, &peer);
    }
    if (code == UTOFU_SUCCESS) {
        code = emu_remote_region(peer, d->rmt_stadd, d->length, d->kind != EMU_OP_GET, &r);
    }
    if ((code == UTOFU_SUCCESS) && (d->kind == EMU_OP_GET)) {
        code = emu_local_address(w->vcq, d->lcl_stadd, d->length, true, &lcl);
    }
    if ((code == UTOFU_SUCCESS) && (d->length > 0)) {
        code = probe(peer, r, off);
        code = (code == UTOFU_SUCCESS) ? probe(peer, r, off + d->length - 1) : code;
    }
    op->good = code == UTOFU_SUCCESS;
    return op->good;
}

/* Operation i comes before one of its flow that wants a local notice, or has failed: may that
 * notice be given?  Errors are reported in order as well, whatever notices were asked for. */
static bool lets_tell(struct emu_wire *w, uint64_t i)
{
    struct wire_op *before = emu_wire_op(w, i);

    if (before->local_told) {
        return true;
    }
    if (wants(before, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)) {
        return false;
    }
    return before->landed ? before->code == UTOFU_SUCCESS : is_good(w, before);
}

/* Was there a later local notice, which said that operation n was good?  If the target, or what
 * it had registered, went since then, it did so after the operation.  (Of memory that can't be
 * written it is better told late than not at all.) */
static bool passed(struct emu_wire *w, uint64_t n)
{
    if (emu_wire_op(w, n)->code == UTOFU_ERR_MRQ_RMT_MEMORY) {
        return false;
    }
    for (uint64_t i = n + 1; i < w->sent; i++) {
        const struct wire_op *after = emu_wire_op(w, i);

        if ((after->flow == emu_wire_op(w, n)->flow) && after->notified) {
            return true;
        }
    }
    return false;
}

/* May the packets of the next operation leave?  With STRONG_ORDER it reads after those before
 * it have read (2.2.10), and reading the source of a put is what leaving is. */
static bool may_send(struct emu_wire *w, uint64_t now, uint64_t *next_p)
{
    const struct wire_op *op;

    if ((w->sent >= w->posted) || (w->sent >= w->done + WINDOW) || emu_wire_op(w, w->sent)->held) {
        return false;
    }
    op = emu_wire_op(w, w->sent);
    if (op->leaves > now) {
        *next_p = (op->leaves < *next_p) ? op->leaves : *next_p;
        return false;
    }
    if ((op->desc.kind != EMU_OP_PUT) || !wants(op, UTOFU_ONESIDED_FLAG_STRONG_ORDER)) {
        return true;
    }
    for (uint64_t i = w->done; i < w->sent; i++) {
        const struct wire_op *before = emu_wire_op(w, i);

        if ((before->flow == op->flow) && !before->landed && !emu_wire_is_put(&before->desc) && !before->read) {
            return false; /* a get, or an ARMW, which reads when it lands */
        }
    }
    return true;
}

/* Operation n is to have a local notice: when its last piece has arrived, does that wait for those of earlier ones?
 * *until_p: the last of these does not arrive before */
static bool is_to_wait(struct emu_wire *w, uint64_t n, uint64_t *until_p)
{
    const struct wire_op *op    = emu_wire_op(w, n);
    bool                  waits = false;
    uint64_t              latest = 0; /* of those before it in its flow, for which one with STRONG_ORDER waits */

    *until_p = 0;
    if (!wants(op, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) || (op->next_piece + 1 != op->pieces)) {
        return false;
    }
    for (uint64_t i = w->done; i < n; i++) {
        const struct wire_op *before = emu_wire_op(w, i);

        if ((before->flow != op->flow) || before->landed) {
            continue;
        }
        latest = (before->ready > latest) ? before->ready : latest;
        if (!lets_tell(w, i)) {
            uint64_t ready = wants(before, UTOFU_ONESIDED_FLAG_STRONG_ORDER) ? latest : before->ready;

            waits    = true;
            *until_p = (ready > *until_p) ? ready : *until_p;
        }
    }
    return waits;
}

/* Does any wait? */
static bool one_waits(struct emu_wire *w)
{
    for (uint64_t n = w->done; n < w->sent; n++) {
        const struct wire_op *op = emu_wire_op(w, n);

        if (op->landed && !op->local_told && wants(op, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)) {
            return true;
        }
    }
    return false;
}

bool emu_wire_owes(struct emu_vcq *vcq)
{
    struct emu_wire *w = vcq->wire;

    return (w != NULL) && (w->owes != 0);
}

bool emu_wire_settles(struct emu_vcq *vcq)
{
    bool owes = emu_wire_owes(vcq);

    if (owes) {
        vcq->wire->settles = true;
    }
    return owes;
}

/* May the next piece of operation n arrive?  *next_p is lowered to when it may. */
static bool may_land(struct emu_wire *w, uint64_t n, uint64_t now, uint64_t *next_p)
{
    const struct wire_op *op    = emu_wire_op(w, n);
    bool                  order = !w->strict || wants(op, UTOFU_ONESIDED_FLAG_STRONG_ORDER);
    uint64_t              until;

    if (op->landed || (w->strict && emu_wire_reads(op))) {
        return false;
    }
    if (op->ready > now) {
        *next_p = (op->ready < *next_p) ? op->ready : *next_p;
        return false;
    }
    for (uint64_t i = w->done; order && (i < n); i++) {
        const struct wire_op *before = emu_wire_op(w, i);

        if ((before->flow == op->flow) && !before->landed) {
            return false;
        }
    }
    return order || !is_to_wait(w, n, &until) ||
           (!w->settles && ((w->owes == 0) || (now - w->owes < OWE_NS)) && (until < now + OWE_NS));
}

/* May a get read at its target?  With STRONG_ORDER after those before it have read; what they write may still be on
 * its way (2.2.10).  Without the strict mode that is a part of its arrival. */
static bool may_read(struct emu_wire *w, uint64_t n, uint64_t now, uint64_t *next_p)
{
    const struct wire_op *op = emu_wire_op(w, n);

    if (!w->strict || !emu_wire_reads(op)) {
        return false;
    }
    if (op->ready > now) {
        *next_p = (op->ready < *next_p) ? op->ready : *next_p;
        return false;
    }
    for (uint64_t i = w->done; wants(op, UTOFU_ONESIDED_FLAG_STRONG_ORDER) && (i < n); i++) {
        const struct wire_op *before = emu_wire_op(w, i);

        if ((before->flow == op->flow) && !before->landed && !emu_wire_is_put(&before->desc) && !before->read) {
            return false; /* a get, or an ARMW, which reads when it lands */
        }
    }
    return true;
}

/* The target learns of it: by a notice, or by starting operations of its own, which
 * come in order as well (2.2.8.4). */
static bool told_remotely(const struct wire_op *op)
{
    return wants(op, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) || ((op->desc.kind == EMU_OP_PUT) && EMU_DESC_SPS(&op->desc));
}

/* A get has read, so that its target may have the remote notice: it says no more (2.2.4). */
static bool has_read(const struct wire_op *op)
{
    return (op->desc.kind == EMU_OP_GET) && op->read && (op->read_code == UTOFU_SUCCESS);
}

/* The notices of an operation that has landed, or read, when it is their turn in the flow */
static void tell(struct emu_wire *w, uint64_t n)
{
    struct wire_op *op     = emu_wire_op(w, n);
    bool            remote = true, local = true;

    for (uint64_t i = w->done; i < n; i++) {
        const struct wire_op *before = emu_wire_op(w, i);

        if (before->flow == op->flow) {
            remote = remote && (before->remote_told || !told_remotely(before));
            local  = local && lets_tell(w, i);
        }
    }
    if (!op->remote_told && remote) {
        struct emu_peer *peer;
        bool             starts = false;
        struct emu_start start = {0, NULL};

        if ((op->code == UTOFU_SUCCESS) && told_remotely(op)) {
            op->code = emu_post_peer(w->vcq, op->desc.rmt_id, &peer);
            if ((op->code == UTOFU_SUCCESS) && (op->desc.kind == EMU_OP_PUT) && EMU_DESC_SPS(&op->desc)) {
                starts = emu_session_credit(peer, EMU_DESC_SPS(&op->desc),
                                            wants(op, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE), &start);
            }
            if ((op->code == UTOFU_SUCCESS) && wants(op, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) {
                op->code = emu_remote_notice(w->vcq, &op->desc, peer, 0, start.stamp);
                emu_session_told(&start);
            }
            if (starts) {
                emu_session_carry(w->vcq, peer);
            }
        } else if ((op->desc.kind == EMU_OP_GET) && op->read && emu_failed_here(op->code) &&
                   wants(op, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) &&
                   (emu_post_peer(w->vcq, op->desc.rmt_id, &peer) == UTOFU_SUCCESS)) {
            (void)emu_remote_notice(w->vcq, &op->desc, peer, 0, 0);
        }
        op->remote_told = true;
        op->fail        = op->landed ? op->fail : op->code; /* of a get that is still to arrive */
    }
    /* an error is known when the remote side has had its turn */
    if (op->landed && !op->local_told && local && op->remote_told) {
        op->notified = wants(op, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) || ((op->code != UTOFU_SUCCESS) && !passed(w, n));
        if (op->notified) {
            emu_local_notice(w->vcq, &op->desc, &op->carried, op->code, 0, 0);
        }
        op->local_told = true;
        if (w->vcq->special & EMU_SPECIAL_STATS) {
            emu_stats_done(w->vcq, &op->desc, &op->carried, op->code);
        }
    }
}

static void tell_all(struct emu_wire *w)
{
    for (uint64_t n = w->done; n < w->sent; n++) {
        const struct wire_op *op = emu_wire_op(w, n);

        if ((op->landed || has_read(op)) && !(op->remote_told && op->local_told)) {
            tell(w, n);
        }
    }
    while ((w->done < w->sent) && emu_wire_op(w, w->done)->landed && emu_wire_op(w, w->done)->remote_told &&
           emu_wire_op(w, w->done)->local_told) {
        w->done++;
    }
}

bool emu_wire_step(struct emu_wire *w, uint64_t now, uint64_t *next_p)
{
    bool     can_send = may_send(w, now, next_p);
    uint64_t n = w->done, until;

    if (can_send && (!w->strict || (emu_wire_draw(w) % 2 == 0))) {
        n = w->sent;
    } else {
        /* the strict mode tries any, then, as always, the oldest that may go on */
        bool found = false;
        for (unsigned i = 0; !found && w->strict && (w->done < w->sent) && (i < PICKS); i++) {
            n     = w->done + emu_wire_draw(w) % (w->sent - w->done);
            found = may_read(w, n, now, next_p) || may_land(w, n, now, next_p);
        }
        for (uint64_t i = w->done; !found && (i < w->sent); i++) {
            n     = i;
            found = may_read(w, n, now, next_p) || may_land(w, n, now, next_p);
        }
        if (!found && !can_send) {
            return false;
        }
        n = found ? n : w->sent;
    }

    struct wire_op *op = emu_wire_op(w, n);
    if (!op->sent) {
        emu_wire_send(w, op);
        emu_doorbell_check(w->vcq->block); /* its TCQ entry */
    } else if (emu_wire_reads(op)) {
        emu_wire_read(w, op);
        if (!w->strict) {
            emu_wire_land(w, op);
        }
    } else {
        if ((w->owes == 0) && is_to_wait(w, n, &until)) {
            emu_mrq_gather(w->vcq); /* what is there now is no answer to it */
            w->owes = now;
        }
        emu_wire_land(w, op);
    }
    if (op->landed || has_read(op)) {
        tell_all(w);
    }
    if ((w->owes != 0) && !one_waits(w)) {
        w->owes    = 0;
        w->settles = false;
        emu_mrq_gather(w->vcq); /* before what arrives next tells of itself */
    }
    return true;
}
