/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_wire.c - operations that are carried out after they were posted, by a thread
 * of this process (emu_wire_thread.c): in the strict mode, and where faults delay operations.
 *
 * The strict mode does what the guide allows and a kind network seldom does:
 *  - the source of a put is read late, at any time before its TCQ notice, and the
 *    TCQ notice comes before the data arrives;
 *  - operations overtake each other, unless STRONG_ORDER (and the same VCQs and
 *    path) forbids it;
 *  - the cache lines of one put or get are written in any order, with STRONG_ORDER
 *    the last one last (6.1.3.1);
 *  - notices say what they must and no more: a notice of an operation does not mean
 *    that earlier operations without notice have arrived;
 *  - padded bytes around a piggyback are poisoned; DELAY_START does hold back.
 * It keeps what the guide promises: TCQ notices in the order of posting, remote and
 * local notices in that order per remote VCQ and path (2.2.10), errors among them; and
 * one thing more, that programs rely on: a local notice comes before an answer of the
 * target.
 *
 * Without the strict mode operations arrive in order per remote VCQ and path and only
 * wait for their time; a put reads its source when it leaves.
 */
#include "emu_armw.h"
#include "emu_copy.h"
#include "emu_now.h"
#include "emu_path.h"
#include "emu_vma.h"
#include "emu_wire.h"

#include <sched.h>
#include <stdlib.h>

#define LINE       256u /* cache line of the machine (table 6.4) */
#define WINDOW     64u /* operations under way: sent and not done */
#define PICKS      8u  /* tries to find one of them whose turn it may be */
#define POISON     0xa5

static uint64_t draw(struct emu_wire *w)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return w->rng;
}

/* ------------------------------------------------------- steps of an operation */

static bool is_put(const struct emu_desc *d)
{
    return (d->kind == EMU_OP_PUT) || (d->kind == EMU_OP_PIGGYBACK);
}

/* Where the writing side of the operation begins within a cache line */
static uint64_t line_offset(const struct emu_desc *d)
{
    return EMU_STADD_OFF(is_put(d) ? d->rmt_stadd : d->lcl_stadd) % LINE;
}

static void piece_range(const struct wire_op *op, unsigned k, uint64_t *from_p, uint64_t *to_p)
{
    uint64_t start = line_offset(&op->desc), end = start + op->desc.length, lines = (end + LINE - 1) / LINE;
    uint64_t each  = (lines + EMU_WIRE_PIECES - 1) / EMU_WIRE_PIECES, from, to;

    each = (op->pieces == 1) ? end : each * LINE;
    from = k * each;
    to   = from + each;

    *from_p = ((from > start) ? ((from < end) ? from : end) : start) - start;
    *to_p   = ((to < end) ? to : end) - start;
}

/* Cut into cache lines (groups of them, of a long one) and shuffle them. */
static void cut(struct emu_wire *w, struct wire_op *op)
{
    uint64_t lines = (line_offset(&op->desc) + op->desc.length + LINE - 1) / LINE;
    unsigned n     = (unsigned)((lines < 1) ? 1 : (lines < EMU_WIRE_PIECES) ? lines : EMU_WIRE_PIECES);
    unsigned free_;

    if (!w->strict || (op->desc.kind == EMU_OP_ARMW) || (op->desc.kind == EMU_OP_NOP)) {
        n = 1;
    } else if (lines > n) {
        uint64_t each = (lines + n - 1) / n; /* as piece_range has it: none is empty */
        n             = (unsigned)((lines + each - 1) / each);
    }
    free_ = n;
    op->pieces = (uint8_t)n;
    for (unsigned i = 0; i < n; i++) {
        op->order[i] = (uint8_t)i;
    }
    if (op->desc.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) {
        free_--; /* the last cache line stays last */
    }
    for (unsigned i = free_; i > 1; i--) {
        unsigned j = (unsigned)(draw(w) % i);
        uint8_t  t = op->order[i - 1];

        op->order[i - 1] = op->order[j];
        op->order[j]     = t;
    }
}

/* Read what will travel.  With STRONG_ORDER the last cache line is read last
 * (6.1.3.1); without, the strict mode reads it first. */
static void snapshot(const struct emu_wire *w, const struct emu_desc *d, char *dst, const char *src)
{
    size_t start = (size_t)((is_put(d) ? d->lcl_stadd : d->rmt_stadd) % LINE), n = d->length;
    size_t last  = (start + n) % LINE;

    last = (last == 0) ? LINE : last;
    last = (last < n) ? last : n;
    if (w->strict && !(d->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER)) {
        memcpy(dst + (n - last), src + (n - last), last);
        atomic_thread_fence(memory_order_acquire);
        memcpy(dst, src, n - last);
    } else {
        memcpy(dst, src, n - last);
        atomic_thread_fence(memory_order_acquire);
        memcpy(dst + (n - last), src + (n - last), last);
    }
}

/* The packets leave: the source is read, the TCQ notice is due. */
static void send_op(struct emu_wire *w, struct wire_op *op)
{
    char *src;

    op->sent     = true;
    op->tcq_code = ((op->fail <= UTOFU_ERR_TCQ_OTHER) && (op->fail > UTOFU_ERR_MRQ_OTHER)) ? op->fail : UTOFU_SUCCESS;
    if ((op->desc.kind == EMU_OP_PUT) && (op->tcq_code == UTOFU_SUCCESS)) {
        op->tcq_code = emu_local_address(w->vcq, op->desc.lcl_stadd, op->desc.length, false, &src);
        if ((op->tcq_code == UTOFU_SUCCESS) && w->strict && !emu_local_is_there(src, op->desc.length)) {
            op->tcq_code = UTOFU_ERR_TCQ_MEMORY;
        }
        if ((op->tcq_code == UTOFU_SUCCESS) && (op->desc.length > 0)) {
            op->buf = malloc(op->desc.length);
            if (op->buf == NULL) {
                op->tcq_code = UTOFU_ERR_TCQ_OTHER;
            } else {
                snapshot(w, &op->desc, op->buf, src);
            }
        }
    }
    w->sent++;
    if ((op->tcq_code != UTOFU_SUCCESS) || (op->desc.kind == EMU_OP_NOP)) {
        op->code   = op->tcq_code;
        op->landed = op->remote_told = op->local_told = true;
        if (w->vcq->special & EMU_SPECIAL_STATS) {
            emu_stats_done(w->vcq, &op->desc, &op->carried, op->code);
        }
    }
}

/* A get's data leaves the target. */
static int read_op(struct emu_wire *w, struct wire_op *op)
{
    struct emu_region *r;
    struct emu_peer   *peer;
    int                code = emu_post_peer(w->vcq, op->desc.rmt_id, &peer);

    op->read = true;
    if (code == UTOFU_SUCCESS) {
        code = emu_remote_region(peer, op->desc.rmt_stadd, op->desc.length, false, &r);
    }
    op->carried.mapped = op->desc.length == 0; /* no system call is needed for that */
    if ((code != UTOFU_SUCCESS) || (op->desc.length == 0)) {
        return code;
    }
    op->buf = malloc(op->desc.length);
    if (op->buf == NULL) {
        return UTOFU_ERR_MRQ_OTHER;
    }
    op->carried.mapped = emu_region_direct(r, EMU_STADD_OFF(op->desc.rmt_stadd), op->desc.length);
    if (op->carried.mapped) {
        if (!emu_target_is_there(peer, r, EMU_STADD_OFF(op->desc.rmt_stadd), op->desc.length)) {
            return UTOFU_ERR_MRQ_RMT_MEMORY;
        }
        atomic_thread_fence(memory_order_acquire);
        snapshot(w, &op->desc, op->buf, (const char *)r->base + EMU_STADD_OFF(op->desc.rmt_stadd));
        return emu_fault_seen ? emu_region_cut_off(peer, r) : emu_region_still(r);
    }
    code = emu_private_read(peer, r, EMU_STADD_OFF(op->desc.rmt_stadd), op->buf, op->desc.length, true, EMU_ORDER_NONE);
    return (code == UTOFU_SUCCESS) ? emu_region_still(r) : code;
}

/* Bytes of the cache lines around a padded piggyback become undefined (2.2.11), also those that are not
 * registered: lines are on the pages of the data. */
static void pad(const struct emu_desc *d, struct emu_peer *peer, const struct emu_region *r, bool mapped)
{
    uint64_t from = EMU_STADD_OFF(d->rmt_stadd), to = from + d->length, begin = from / LINE * LINE;
    uint64_t end = (to + LINE - 1) / LINE * LINE;
    char     poison[LINE];

    memset(poison, POISON, sizeof(poison));
    if (!mapped) {
        (void)emu_private_write(peer, r, begin, poison, from - begin, EMU_ORDER_NONE);
        (void)emu_private_write(peer, r, to, poison, end - to, EMU_ORDER_NONE);
    } else if (emu_target_is_there(peer, r, begin, end - begin)) {
        memcpy((char *)r->base + begin, poison, from - begin);
        memcpy((char *)r->base + to, poison, end - to);
    }
}

static int land_put(struct emu_wire *w, struct wire_op *op, uint64_t from, uint64_t to)
{
    const struct emu_desc *d = &op->desc;
    const char            *src = (d->kind == EMU_OP_PUT) ? op->buf : (const char *)d->data;
    struct emu_region     *r = NULL;
    struct emu_peer       *peer;
    bool                   padded;
    int                    code = emu_post_peer(w->vcq, d->rmt_id, &peer);

    if (code == UTOFU_SUCCESS) {
        code = emu_remote_region(peer, d->rmt_stadd, d->length, true, &r);
    }
    op->carried.mapped = op->carried.mapped || (d->length == 0);
    if ((code != UTOFU_SUCCESS) || (from == to)) {
        return code;
    }
    op->carried.mapped = emu_region_direct(r, EMU_STADD_OFF(d->rmt_stadd), d->length);
    padded             = w->strict && (d->kind == EMU_OP_PIGGYBACK) && (d->flags & UTOFU_ONESIDED_FLAG_PADDING) && (from == 0);
    if (op->carried.mapped) {
        if (!emu_target_is_there(peer, r, EMU_STADD_OFF(d->rmt_stadd) + from, to - from)) {
            return UTOFU_ERR_MRQ_RMT_MEMORY;
        }
        if (padded) {
            pad(d, peer, r, true);
        }
        emu_copy((char *)r->base + EMU_STADD_OFF(d->rmt_stadd) + from, src + from, to - from);
        return emu_fault_seen ? emu_region_cut_off(peer, r) : UTOFU_SUCCESS;
    }
    if (padded) {
        pad(d, peer, r, false);
    }
    code = emu_private_write(peer, r, EMU_STADD_OFF(d->rmt_stadd) + from, src + from, to - from, EMU_ORDER_LINES);
    atomic_thread_fence(memory_order_seq_cst);
    return code;
}

static int land_get(struct emu_wire *w, struct wire_op *op, uint64_t from, uint64_t to)
{
    char *dst;
    int   code = UTOFU_SUCCESS;

    if (!op->read) {
        code = read_op(w, op);
    }
    if (code == UTOFU_SUCCESS) {
        code = emu_local_address(w->vcq, op->desc.lcl_stadd, op->desc.length, true, &dst);
        code = (code == UTOFU_SUCCESS)        ? code :
               (code == UTOFU_ERR_TCQ_STADD)  ? UTOFU_ERR_MRQ_LCL_STADD :
               (code == UTOFU_ERR_TCQ_LENGTH) ? UTOFU_ERR_MRQ_LCL_LENGTH :
                                                UTOFU_ERR_MRQ_LCL_MEMORY;
    }
    if ((code == UTOFU_SUCCESS) && w->strict && !emu_local_is_there(dst, op->desc.length)) {
        code = UTOFU_ERR_MRQ_LCL_MEMORY;
    }
    if ((code == UTOFU_SUCCESS) && (from != to)) {
        emu_copy(dst + from, op->buf + from, to - from);
    }
    return code;
}

/* The next piece arrives. */
static void land_op(struct emu_wire *w, struct wire_op *op)
{
    uint64_t from, to;
    int      code;

    piece_range(op, op->order[op->next_piece], &from, &to);
    if (op->fail != UTOFU_SUCCESS) {
        code = op->fail;
    } else if (is_put(&op->desc)) {
        code = land_put(w, op, from, to);
    } else if (op->desc.kind == EMU_OP_GET) {
        code = land_get(w, op, from, to);
    } else {
        code = emu_carry(w->vcq, &op->desc, NULL, &op->carried);
    }
    op->next_piece++;
    if ((code != UTOFU_SUCCESS) && ((code > UTOFU_ERR_MRQ_OTHER) || (code < UTOFU_ERR_MRQ_RMT_LENGTH))) {
        code = UTOFU_ERR_MRQ_OTHER;
    }
    if ((code != UTOFU_SUCCESS) || (op->next_piece == op->pieces)) {
        op->code   = code;
        op->landed = true;
        free(op->buf);
        op->buf = NULL;
    }
}

/* --------------------------------------------------------------- what is allowed */

static bool wants(const struct wire_op *op, uint64_t flag)
{
    return (op->desc.flags & flag) != 0;
}

/* Memory that is registered may have been unmapped, or cut off, by mistake: one byte of it */
static int probe(struct emu_peer *peer, const struct emu_region *r, uint64_t off)
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
static bool may_send(struct emu_wire *w)
{
    const struct wire_op *op;

    if ((w->sent >= w->posted) || (w->sent >= w->done + WINDOW) || emu_wire_op(w, w->sent)->held) {
        return false;
    }
    op = emu_wire_op(w, w->sent);
    if ((op->desc.kind != EMU_OP_PUT) || !wants(op, UTOFU_ONESIDED_FLAG_STRONG_ORDER)) {
        return true;
    }
    for (uint64_t i = w->done; i < w->sent; i++) {
        const struct wire_op *before = emu_wire_op(w, i);

        if ((before->flow == op->flow) && !before->landed && !is_put(&before->desc) && !before->read) {
            return false; /* a get, or an ARMW, which reads when it lands */
        }
    }
    return true;
}

/* May the next piece of operation n arrive?  *next_p is lowered to when it may. */
static bool may_land(struct emu_wire *w, uint64_t n, uint64_t now, uint64_t *next_p)
{
    const struct wire_op *op   = emu_wire_op(w, n);
    bool                  last = op->next_piece + 1 == op->pieces;
    bool                  order = !w->strict || wants(op, UTOFU_ONESIDED_FLAG_STRONG_ORDER);

    if (op->landed) {
        return false;
    }
    if (op->ready > now) {
        *next_p = (op->ready < *next_p) ? op->ready : *next_p;
        return false;
    }
    for (uint64_t i = w->done; i < n; i++) {
        const struct wire_op *before = emu_wire_op(w, i);

        if ((before->flow != op->flow) || before->landed) {
            continue;
        }
        if (order || (last && wants(op, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) && !lets_tell(w, i))) {
            return false;
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

/* The notices of an operation that has landed, when it is their turn in the flow */
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

        if ((op->code == UTOFU_SUCCESS) && told_remotely(op)) {
            op->code = emu_post_peer(w->vcq, op->desc.rmt_id, &peer);
            if ((op->code == UTOFU_SUCCESS) && (op->desc.kind == EMU_OP_PUT) && EMU_DESC_SPS(&op->desc)) {
                starts = emu_session_credit(peer, EMU_DESC_SPS(&op->desc));
            }
            if ((op->code == UTOFU_SUCCESS) && wants(op, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) {
                op->code = emu_remote_notice(w->vcq, &op->desc, peer, 0);
            }
            if (starts) {
                emu_session_carry(w->vcq, peer);
            }
        } else if ((op->desc.kind == EMU_OP_GET) && op->read && emu_failed_here(op->code) &&
                   wants(op, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) &&
                   (emu_post_peer(w->vcq, op->desc.rmt_id, &peer) == UTOFU_SUCCESS)) {
            (void)emu_remote_notice(w->vcq, &op->desc, peer, 0);
        }
        op->remote_told = true;
    }
    /* an error is known when the remote side has had its turn */
    if (!op->local_told && local && op->remote_told) {
        op->notified = wants(op, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) || ((op->code != UTOFU_SUCCESS) && !passed(w, n));
        if (op->notified) {
            emu_local_notice(w->vcq, &op->desc, &op->carried, op->code, 0);
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
        if (emu_wire_op(w, n)->landed && !(emu_wire_op(w, n)->remote_told && emu_wire_op(w, n)->local_told)) {
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
    bool     can_send = may_send(w);
    uint64_t n = w->done;

    if (can_send && (!w->strict || (draw(w) % 2 == 0))) {
        n = w->sent;
    } else {
        /* the strict mode tries any, then, as always, the oldest that may go on */
        bool found = false;
        for (unsigned i = 0; !found && w->strict && (w->done < w->sent) && (i < PICKS); i++) {
            n     = w->done + draw(w) % (w->sent - w->done);
            found = may_land(w, n, now, next_p);
        }
        for (uint64_t i = w->done; !found && (i < w->sent); i++) {
            n     = i;
            found = may_land(w, n, now, next_p);
        }
        if (!found && !can_send) {
            return false;
        }
        n = found ? n : w->sent;
    }

    struct wire_op *op = emu_wire_op(w, n);
    if (!op->sent) {
        send_op(w, op);
        emu_doorbell_check(w->vcq->block); /* its TCQ entry */
    } else {
        land_op(w, op);
    }
    if (op->landed) {
        tell_all(w);
    }
    return true;
}

/* -------------------------------------------------------- the VCQ's side (locked) */

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
    return (uint32_t)(__atomic_load_n(&vcq->wire->posted, __ATOMIC_RELAXED) -
                      __atomic_load_n(&vcq->wire->tcq_read, __ATOMIC_RELAXED));
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
    } else if (w->strict && !(d->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) && (draw(w) % 4 == 0)) {
        op->ready = emu_now() + draw(w) % 100000; /* others overtake it */
    }
    cut(w, op);
    __atomic_store_n(&w->posted, w->posted + 1, __ATOMIC_RELAXED);
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

    while (w->tcq_read < w->sent) {
        const struct wire_op *op = emu_wire_op(w, w->tcq_read);

        __atomic_store_n(&w->tcq_read, w->tcq_read + 1, __ATOMIC_RELAXED);
        if ((op->tcq_code != UTOFU_SUCCESS) || wants(op, UTOFU_ONESIDED_FLAG_TCQ_NOTICE)) {
            *cbdata = op->cbdata;
            return op->tcq_code;
        }
    }
    emu_wire_idle(vcq);
    return UTOFU_ERR_NOT_FOUND;
}
