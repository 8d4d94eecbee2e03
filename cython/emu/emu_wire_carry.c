/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_wire_carry.c - what an operation of the wire (emu_wire.c) does to memory: it leaves, it reads at the
 * target, and piece by piece it arrives.
 */
#include "emu_armw.h"
#include "emu_copy.h"
#include "emu_now.h"
#include "emu_path.h"
#include "emu_vma.h"
#include "emu_wire.h"

#include <stdlib.h>

#define LINE   256u   /* cache line of the machine (table 6.4) */
#define PAGE   65536u /* its smaller page (6.1.3.2) */
#define POISON 0xa5

/* ------------------------------------------------------------------------ pieces */

/* Where the writing side of the operation begins within a cache line */
static uint64_t line_offset(const struct emu_desc *d)
{
    return EMU_STADD_OFF(emu_wire_is_put(d) ? d->rmt_stadd : d->lcl_stadd) % LINE;
}

/* Piece k of so many that are cache lines, or groups of them */
static void lines_range(const struct wire_op *op, unsigned k, unsigned num, uint64_t *from_p, uint64_t *to_p)
{
    uint64_t start = line_offset(&op->desc), end = start + op->desc.length, lines = (end + LINE - 1) / LINE;
    uint64_t each  = (lines + EMU_WIRE_PIECES - 1) / EMU_WIRE_PIECES, from, to;

    each = (num == 1) ? end : each * LINE;
    from = k * each;
    to   = from + each;

    *from_p = ((from > start) ? ((from < end) ? from : end) : start) - start;
    *to_p   = ((to < end) ? to : end) - start;
}

/* The same, and one of those is in two where the source goes on on another page: what is behind that is the last
 * in number. */
static void piece_range(const struct wire_op *op, unsigned k, uint64_t *from_p, uint64_t *to_p)
{
    unsigned num = op->pieces - (op->split != 0u);

    if (k < num) {
        lines_range(op, k, num, from_p, to_p);
        *to_p = ((op->split > *from_p) && (op->split < *to_p)) ? op->split : *to_p;
        return;
    }
    for (k = 0; k < num; k++) {
        lines_range(op, k, num, from_p, to_p);
        if ((op->split > *from_p) && (op->split < *to_p)) {
            *from_p = op->split;
            return;
        }
    }
}

/* Where, within a line of the target, the source goes on on another page: the two parts are written one after the
 * other, in any order (2.2.10).  0: nowhere */
static uint64_t page_crossing(struct emu_wire *w, const struct emu_desc *d, uint64_t src)
{
    uint64_t first = PAGE - src % PAGE;

    if ((src == 0) || (first >= d->length) || ((line_offset(d) + first) % LINE == 0)) {
        return 0;
    }
    return first + emu_wire_draw(w) % ((d->length - first - 1) / PAGE + 1) * PAGE;
}

/* Cut into cache lines (groups of them, of a long one) and shuffle them.  src: where it is read, 0: that does not
 * matter */
static void cut(struct emu_wire *w, struct wire_op *op, uint64_t src)
{
    uint64_t lines = (line_offset(&op->desc) + op->desc.length + LINE - 1) / LINE;
    unsigned n     = (unsigned)((lines < 1) ? 1 : (lines < EMU_WIRE_PIECES) ? lines : EMU_WIRE_PIECES), last, free_;
    uint64_t from, to;

    op->split = 0;
    if (!w->strict || (op->desc.kind == EMU_OP_ARMW) || (op->desc.kind == EMU_OP_NOP)) {
        n = 1;
    } else if (lines > n) {
        uint64_t each = (lines + n - 1) / n; /* as lines_range has it: none is empty */
        n             = (unsigned)(1 + (lines - 1) / each);
    }
    last = n - 1;
    if (w->strict && (op->desc.kind != EMU_OP_ARMW) && (op->desc.kind != EMU_OP_NOP)) {
        lines_range(op, last, n, &from, &to);
        op->split = page_crossing(w, &op->desc, src);
        n += op->split != 0;
        last = (op->split > from) ? n - 1 : last; /* of the last line what is behind the page's end is last */
    }
    op->pieces = (uint8_t)n;
    for (unsigned i = 0; i < n; i++) {
        op->order[i] = (uint8_t)i;
    }
    free_ = n;
    if (op->desc.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) {
        free_           = n - 1; /* the last cache line stays last */
        op->order[last] = op->order[free_];
        op->order[free_] = (uint8_t)last;
    }
    for (unsigned i = free_; i > 1; i--) {
        unsigned j = (unsigned)(emu_wire_draw(w) % i);
        uint8_t  t = op->order[i - 1];

        op->order[i - 1] = op->order[j];
        op->order[j]     = t;
    }
}

/* Where reading begins; what is before that is read after the rest.  With STRONG_ORDER the last cache line is read
 * last (6.1.3.1); without, the strict mode reads it first, or begins with any line. */
static size_t read_from(struct emu_wire *w, const struct emu_desc *d)
{
    size_t   start = (size_t)((emu_wire_is_put(d) ? d->lcl_stadd : d->rmt_stadd) % LINE);
    uint64_t lines = (start + d->length + LINE - 1) / LINE, line = emu_wire_draw(w) % (2 * lines);

    line = (line < lines) ? line : lines - 1;
    return (line == 0) ? 0 : (size_t)(line * LINE - start);
}

static void snapshot(struct emu_wire *w, const struct emu_desc *d, char *dst, const char *src)
{
    size_t start = (size_t)((emu_wire_is_put(d) ? d->lcl_stadd : d->rmt_stadd) % LINE), n = d->length;
    size_t last  = (start + n) % LINE, from;

    last = (last == 0) ? LINE : last;
    from = (last < n) ? n - last : 0;
    if (w->strict && !(d->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER)) {
        from = read_from(w, d);
        memcpy(dst + from, src + from, n - from);
        atomic_thread_fence(memory_order_acquire);
        memcpy(dst, src, from);
    } else {
        memcpy(dst, src, from);
        atomic_thread_fence(memory_order_acquire);
        memcpy(dst + from, src + from, n - from);
    }
}

/* ------------------------------------------------------- steps of an operation */

/* The packets leave: the source is read, the TCQ notice is due. */
void emu_wire_send(struct emu_wire *w, struct wire_op *op)
{
    char *src = NULL;

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
    cut(w, op, (op->tcq_code == UTOFU_SUCCESS) ? (uintptr_t)src : 0);
    w->sent++;
    if ((op->tcq_code != UTOFU_SUCCESS) || (op->desc.kind == EMU_OP_NOP)) {
        op->code   = op->tcq_code;
        op->landed = op->remote_told = op->local_told = true;
        if (w->vcq->special & EMU_SPECIAL_STATS) {
            emu_stats_done(w->vcq, &op->desc, &op->carried, op->code);
        }
    }
}

static int read_op(struct emu_wire *w, struct wire_op *op)
{
    struct emu_region *r;
    size_t             from;
    struct emu_peer   *peer;
    int                code = emu_post_peer(w->vcq, op->desc.rmt_id, &peer);

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
    cut(w, op, r->addr + EMU_STADD_OFF(op->desc.rmt_stadd));
    op->carried.mapped = emu_region_direct(r, EMU_STADD_OFF(op->desc.rmt_stadd), op->desc.length);
    if (op->carried.mapped) {
        if (!emu_target_is_there(peer, r, EMU_STADD_OFF(op->desc.rmt_stadd), op->desc.length)) {
            return UTOFU_ERR_MRQ_RMT_MEMORY;
        }
        atomic_thread_fence(memory_order_acquire);
        snapshot(w, &op->desc, op->buf, (const char *)r->base + EMU_STADD_OFF(op->desc.rmt_stadd));
        return emu_fault_seen ? emu_region_cut_off(r) : emu_region_still(r);
    }
    from = op->desc.length;
    if (w->strict && !(op->desc.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER)) {
        from = read_from(w, &op->desc);
        code = emu_private_read(peer, r, EMU_STADD_OFF(op->desc.rmt_stadd) + from, op->buf + from, op->desc.length - from,
                                false, EMU_ORDER_NONE);
    }
    if (code == UTOFU_SUCCESS) {
        code = emu_private_read(peer, r, EMU_STADD_OFF(op->desc.rmt_stadd), op->buf, from, true, EMU_ORDER_NONE);
    }
    return (code == UTOFU_SUCCESS) ? emu_region_still(r) : code;
}

void emu_wire_read(struct emu_wire *w, struct wire_op *op)
{
    op->read      = true;
    op->read_code = read_op(w, op);
    if (w->strict && (emu_wire_draw(w) % 4 == 0)) {
        op->ready = emu_now() + emu_wire_draw(w) % 50000; /* the way back */
    }
}

/* Bytes of the cache lines around a padded piggyback become undefined (2.2.11), also those that are not
 * registered: lines are on the pages of the data. */
static void pad(const struct emu_desc *d, struct emu_peer *peer, struct emu_region *r, bool mapped)
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
        return emu_fault_seen ? emu_region_cut_off(r) : UTOFU_SUCCESS;
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
    int   code = op->read_code;

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
void emu_wire_land(struct emu_wire *w, struct wire_op *op)
{
    uint64_t from, to;
    int      code;

    piece_range(op, op->order[op->next_piece], &from, &to);
    if (op->fail != UTOFU_SUCCESS) {
        code = op->fail;
    } else if (emu_wire_is_put(&op->desc)) {
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
    } else if (emu_wire_draw(w) % 8 == 0) {
        op->ready = emu_now() + emu_wire_draw(w) % 20000; /* there is time to look at the target as it is now */
    }
}
