/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_cq.c - which CQ of a TNI a process takes (chapter 6, 4.3.2).
 *
 * The CQs of a node are in the job's control segment, shared by the processes on that node;
 * each CQ belongs to one process.  Programs predict the first one on which another process
 * has VCQs with component IDs, and make VCQ IDs of its number: so the n processes that a
 * launcher puts on a node have theirs where they have it on Fugaku, whoever comes first.
 * Else CQs that VCQs share are taken from the lowest number up and exclusive ones from the
 * highest down, and the first ones of processes only when there are no others.
 */
#include "emu_internal.h"
#include "emu_job.h"

#define MAX_PLACED 24 /* processes of a node; Fugaku's numbers for more are beyond 8 */

/* The first CQ of the k-th of n processes of a node on a TNI; -1: nobody predicts it.  Up to
 * 4 have it on each TNI; more are divided among every third, second or each TNI, and have it
 * on theirs.  (As RIKEN's utf has them, whose authors had Fugaku.  Other programs predict number 0 for
 * each process, on a TNI of its own: UTOFU_EMU_FIRST_CQ.) */
static int first_cq(unsigned tni, unsigned k, unsigned n)
{
    static const uint8_t of_2[] = {0, 6}, of_3[] = {0, 4, 8}, of_4[] = {0, 2, 5, 8};
    unsigned             share  = (n <= 4) ? 1 : (n <= 8) ? 2 : (n <= 12) ? 3 : EMU_NUM_TNIS;

    if (emu_g.env.first_cq_lowest || (n == 0) || (n > MAX_PLACED) ||
        ((share > 1) && (tni != k % share * (EMU_NUM_TNIS / share)))) {
        return -1;
    }
    k /= share;
    return (n == 1) ? 0 : (n == 2) ? of_2[k] : (n == 3) ? of_3[k] : of_4[k];
}

static bool is_first(unsigned tni, unsigned q)
{
    bool found = false;

    for (unsigned k = 0; (k < emu_g.node_size) && (k < MAX_PLACED); k++) {
        found = found || (first_cq(tni, k, emu_g.node_size) == (int)q);
    }
    return found;
}

/* CQs of a process on a TNI, by kind; FREE: of any */
static int cqs_held(const struct emu_cq_slot *cq, uint32_t slot, enum emu_cq_kind kind)
{
    int n = 0;

    for (unsigned q = 0; q < EMU_NUM_CQS; q++) {
        n += (cq[q].kind != EMU_CQ_FREE) && ((cq[q].kind == kind) || (kind == EMU_CQ_FREE)) && (cq[q].owner == slot);
    }
    return n;
}

#define SESSION_CQS_DEFAULT 3 /* 4.3.2.2 */

/* Keeps up to `most` of the CQs that are left; returns how many. */
static int keep(int *left, int most)
{
    int n = (most < 0) ? 0 : (most < *left) ? most : *left;

    *left -= n;
    return n;
}

enum others { EARLIER, LATER, WITHOUT }; /* joined the job before this one, after it; has no CQ yet */

/* Keeps of those that are left what the other processes of this node asked for and do not have yet; for those
 * that have none, and for those that a launcher is about to start and that will ask for the same, one. */
static void keep_for_others(const struct emu_cq_slot *cq, enum others which, int *left)
{
    struct emu_control  *c    = emu_g.control;
    struct emu_proc_slot *own = &c->slot[emu_g.slot];
    uint32_t             high = atomic_load(&c->slots_high), others = 0;
    bool                 asked = (emu_g.env.exclusive_cqs > 0) || (emu_g.env.session_cqs > 0);

    for (uint32_t s = 0; (s < high) && (s < EMU_MAX_PROCS) && (*left > 0); s++) {
        struct emu_proc_slot *p       = &c->slot[s];
        int                   without = cqs_held(cq, s, EMU_CQ_FREE) == 0;

        if ((s == emu_g.slot) || (atomic_load(&p->state) != EMU_SLOT_LIVE) || (p->node != emu_g.node)) {
            continue;
        }
        if (without && !emu_slot_alive(p)) {
            continue; /* it was killed; of what it had nothing shows that, so nobody has looked yet */
        }
        others++;
        if ((p->exclusive_cqs <= 0) && (p->session_cqs <= 0)) {
            continue;
        }
        if (which == WITHOUT) {
            keep(left, without);
        } else if (((int32_t)(p->joined - own->joined) < 0) == (which == EARLIER)) {
            keep(left, 1 - without - cqs_held(cq, s, EMU_CQ_SHARED));
            keep(left, p->exclusive_cqs - cqs_held(cq, s, EMU_CQ_EXCLUSIVE));
            keep(left, p->session_cqs - cqs_held(cq, s, EMU_CQ_SESSION));
        }
    }
    if ((which == WITHOUT) && asked && (emu_g.node_size > others + 1)) {
        keep(left, (int)(emu_g.node_size - others - 1));
    }
}

/* May another CQ become one of this kind?  Of the CQs that are free, those are kept for each kind
 * that were asked for in the environment and that the process does not have yet: one for VCQs that
 * share it, then exclusive ones, then those for session mode (4.3.2.2).  Processes of a node are
 * served in the order in which they joined the job: not all can be met, who comes last gets
 * less, and nothing stays for nobody.  But each process gets a shared CQ first of all, if it has no
 * other: without it it can do nothing.  The default keeps nothing back. */
static bool cq_allowed(const struct emu_cq_slot *cq, enum emu_cq_kind kind)
{
    int  session = emu_g.env.session_cqs, exclusive = emu_g.env.exclusive_cqs, left = 0, kept[EMU_CQ_SESSION + 1] = {0};
    bool asked = (session > 0) || (exclusive > 0);

    for (unsigned q = 0; q < EMU_NUM_CQS; q++) {
        left += cq[q].kind == EMU_CQ_FREE;
    }
    if ((kind == EMU_CQ_SHARED) && (cqs_held(cq, emu_g.slot, EMU_CQ_FREE) == 0)) {
        return left > 0;
    }
    if ((kind == EMU_CQ_SESSION) &&
        (cqs_held(cq, emu_g.slot, kind) >= ((session < 0) ? SESSION_CQS_DEFAULT : session))) {
        return false; /* the mode of a CQ is assigned beforehand (2.2.7) */
    }
    keep_for_others(cq, WITHOUT, &left);
    keep_for_others(cq, EARLIER, &left);
    kept[EMU_CQ_SHARED]    = keep(&left, (asked ? 1 : 0) - cqs_held(cq, emu_g.slot, EMU_CQ_SHARED));
    kept[EMU_CQ_EXCLUSIVE] = keep(&left, exclusive - cqs_held(cq, emu_g.slot, EMU_CQ_EXCLUSIVE));
    kept[EMU_CQ_SESSION]   = keep(&left, session - cqs_held(cq, emu_g.slot, EMU_CQ_SESSION));
    keep_for_others(cq, LATER, &left);
    return kept[kind] + left > 0;
}

/* A free CQ of the TNI, with or without those that are the first of a process; -1: none */
static int cq_free(const struct emu_cq_slot *cq, unsigned tni, enum emu_cq_kind kind, bool firsts)
{
    for (unsigned i = 0; i < EMU_NUM_CQS; i++) {
        unsigned q = (kind == EMU_CQ_SHARED) ? i : EMU_NUM_CQS - 1 - i;

        if ((cq[q].kind == EMU_CQ_FREE) && (firsts || !is_first(tni, q))) {
            return (int)q;
        }
    }
    return -1;
}

/* q: the one to take if it is free; -1: any */
static int take(unsigned tni, enum emu_cq_kind kind, int q, bool first)
{
    struct emu_cq_slot *cq = &emu_g.control->node[emu_g.node].cq[tni * EMU_NUM_CQS];

    q = ((q >= 0) && (cq[q].kind == EMU_CQ_FREE)) ? q : -1;
    for (int pass = 0; pass < 2; pass++) {
        if (cq_allowed(cq, kind)) {
            q = (q >= 0) ? q : cq_free(cq, tni, kind, false);
            q = ((q >= 0) || (pass == 0)) ? q : cq_free(cq, tni, kind, true);
            if (q >= 0) {
                cq[q].owner = emu_g.slot; /* before it is anybody's: who dies here has taken nothing */
                cq[q].users = 0;
                cq[q].kind  = kind;
                if (first) {
                    emu_g.first_cq[tni] = (uint8_t)q;
                }
                return q;
            }
        }
        /* none: perhaps a process died with some */
        emu_node_reclaim(emu_g.node);
    }
    return -1;
}

int emu_cq_take_first(unsigned tni)
{
    const struct emu_cq_slot *cq = &emu_g.control->node[emu_g.node].cq[tni * EMU_NUM_CQS];
    int                       q  = first_cq(tni, emu_g.node_rank, emu_g.node_size);

    q = (q >= 0) ? q : emu_g.first_cq[tni]; /* nobody predicts more than that it is the same */
    return (cq[q].kind == EMU_CQ_FREE) ? take(tni, EMU_CQ_SHARED, q, true) : -1;
}

int emu_cq_take(unsigned tni, enum emu_cq_kind kind)
{
    const struct emu_cq_slot *cq = &emu_g.control->node[emu_g.node].cq[tni * EMU_NUM_CQS];
    bool                      first = (kind == EMU_CQ_SHARED) && (cqs_held(cq, emu_g.slot, kind) == 0);

    if (first) {
        emu_node_reclaim(emu_g.node); /* what died with the place that peers predict */
    }
    return take(tni, kind, first ? first_cq(tni, emu_g.node_rank, emu_g.node_size) : -1, first);
}
