/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_wire.h - operations on their way: what emu_wire.c (which operation may go on),
 * emu_wire_carry.c (what it does), emu_wire_queue.c (the program's side) and
 * emu_wire_thread.c (when, and for which VCQ) share.
 */
#ifndef EMU_WIRE_H
#define EMU_WIRE_H

#include "emu_modes.h"

#define EMU_WIRE_PIECES 32u
#define EMU_WIRE_OPS    (4 * EMU_TOQ_ENTRIES) /* posted and not done; the TOQ counts to the TCQ notice only */

struct wire_op {
    struct emu_desc    desc;
    void               *cbdata;
    uint64_t           flow;  /* remote VCQ and path: order holds within it */
    uint64_t           leaves; /* ns: its source is not read before */
    uint64_t           ready; /* ns: does not arrive before */
    char               *buf;  /* what travels, of put and get */
    struct emu_carried carried;
    int                fail;  /* injected result */
    int                tcq_code, read_code, code;
    bool               held, sent, read, landed, remote_told, local_told;
    bool               good;     /* under way, and no error is to be expected */
    bool               notified; /* there was a local notice */
    uint8_t            pieces, next_piece;
    uint8_t            order[EMU_WIRE_PIECES + 1];
    uint64_t           split; /* one of those pieces is in two there; 0: none is */
};

struct emu_wire {
    struct emu_vcq  *vcq;
    struct emu_wire *next;
    bool            strict;
    bool            settles; /* no operation arrives before an earlier one, with local notices of both, until none has */
    uint64_t        owes;    /* since when one has, so that its own waits (emu_wire.c); 0: none */
    _Atomic bool    wanted; /* the thread waits for the lock of the VCQ */
    uint64_t        rng;
    /* operation number n is op[n % EMU_WIRE_OPS]; done and tcq_read <= sent <= posted */
    _Atomic uint64_t posted, sent, tcq_read, done; /* written with the VCQ locked */
    _Atomic uint64_t seen; /* strict: entries that polls of other VCQs of the CQ have come across; no more than sent */
    struct wire_op  op[EMU_WIRE_OPS];
};

EMU_INLINE struct wire_op *emu_wire_op(struct emu_wire *w, uint64_t n)
{
    return &w->op[n % EMU_WIRE_OPS];
}

EMU_INLINE bool emu_wire_is_put(const struct emu_desc *d)
{
    return (d->kind == EMU_OP_PUT) || (d->kind == EMU_OP_PIGGYBACK);
}

/* The next thing that it does is to read at the target. */
EMU_INLINE bool emu_wire_reads(const struct wire_op *op)
{
    return (op->desc.kind == EMU_OP_GET) && op->sent && !op->landed && !op->read && (op->fail == UTOFU_SUCCESS);
}

EMU_INLINE uint64_t emu_wire_draw(struct emu_wire *w)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return w->rng;
}

/* emu_wire_carry.c: the packets leave (the source is read, the TCQ notice is due); a get's data leaves the target;
 * the next piece arrives. */
void emu_wire_send(struct emu_wire *w, struct wire_op *op);
void emu_wire_read(struct emu_wire *w, struct wire_op *op);
void emu_wire_land(struct emu_wire *w, struct wire_op *op);

/* emu_wire.c: one step of the VCQ (locked).  Returns false when nothing can be done
 * now; *next_p is then lowered to when something can. */
bool emu_wire_step(struct emu_wire *w, uint64_t now, uint64_t *next_p);
/* emu_wire_thread.c: there is something to do. */
void emu_wire_kick(void);

#endif /* EMU_WIRE_H */
