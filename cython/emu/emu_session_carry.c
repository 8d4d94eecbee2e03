/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_session_carry.c - session mode (2.2.8), the carrier's side: whoever brings a Put with an
 * SPS carries out what it starts, and what that starts in turn, for VCQs of other processes,
 * which may be stopped.
 */
#include "emu_copy.h"
#include "emu_job.h"
#include "emu_session.h"
#include "emu_vma.h"

#include <stdlib.h>
#include <sys/mman.h>

#define BOUNCE 65536u /* bytes at a time from memory that is not mapped here */
#define LINE   256u   /* cache line of the machine (table 6.4) */

static enum emu_step step_of(struct emu_session *s)
{
    return (enum emu_step)(atomic_load(&s->step) & 15);
}

static void reach(struct emu_session *s, enum emu_step step)
{
    atomic_store(&s->step, (atomic_load(&s->step) & ~(uint64_t)15) | step);
}

/* The session of a peer's VCQ; NULL: it has none, or it can't be mapped */
static struct emu_session *session_of(struct emu_peer *peer)
{
    uint64_t size;
    void    *p;

    if (peer->session != NULL) {
        return peer->session;
    }
    if (!peer->block->session) {
        return NULL;
    }
    size = EMU_SESSION_SIZE(peer->proc->session_entries);
    p    = emu_segment_map(peer->proc->seg_fd, EMU_SESSIONS_OFF + peer->vcq * size, size, PROT_READ | PROT_WRITE);
    if (p == MAP_FAILED) {
        return NULL;
    }
    peer->session = p;
    emu_relay_owner(peer);
    return peer->session;
}

/* The lane of the owner's VCQ towards a target, as far as it got */
static struct emu_session_lane *lane_find(struct emu_peer *owner, struct emu_session *s, struct emu_peer *target,
                                          struct emu_lane_tx *tx)
{
    struct emu_session_lane *l = NULL;
    struct emu_carried_lane *c;
    uint32_t                 entries = target->proc->lane_entries, at;

    for (unsigned i = 0; (i < EMU_SESSION_LANES) && (l == NULL); i++) {
        if ((s->lane[i].target == target->id) || (s->lane[i].target == 0)) {
            l = &s->lane[i];
        }
    }
    if (l == NULL) {
        return NULL;
    }
    if ((l->target == 0) || !emu_session_leads_to(l, target)) {
        uint64_t name  = EMU_LANE_OWNER(owner->proc->slot, owner->proc->gen, owner->vcq);
        uint32_t index = 0;

        if (emu_lane_open(target, name, owner->id, tx, &index) != UTOFU_SUCCESS) {
            return NULL;
        }
        munmap(tx->lane, EMU_LANE_SIZE(entries)); /* it is mapped again below, as for later carriers */
        *l            = (struct emu_session_lane){.target_slot    = target->proc->slot,
                                                  .target_process = target->proc->gen,
                                                  .target_vcq     = target->vcq,
                                                  .target_gen     = target->gen,
                                                  .index          = index};
        l->target     = target->id;
    }
    for (c = target->carried; (c != NULL) && (c->index != l->index); c = c->next) {
    }
    if (c == NULL) {
        c = malloc(sizeof(*c));
        if (c == NULL) {
            return NULL;
        }
        c->index = l->index;
        c->lane  = (l->index < EMU_MAX_LANES) ? emu_lane_map(target->proc->seg_fd, l->index, entries,
                                                             target->proc->session_entries) :
                                                NULL;
        if (c->lane == NULL) {
            free(c);
            return NULL;
        }
        c->next         = target->carried;
        target->carried = c;
    }
    at  = atomic_load(&l->current) & 1;
    *tx = (struct emu_lane_tx){.lane    = c->lane,
                               .entries = EMU_LANE_B(entries),
                               .limit   = target->block->mrq_entries,
                               .wr_a    = l->at[at].wr_a,
                               .wr_b    = l->at[at].wr_b,
                               .wr_x    = l->at[at].wr_x,
                               .known_a = l->at[at].known_a,
                               .known_b = l->at[at].known_b,
                               .known_x = l->at[at].known_x};
    struct emu_lane_entry *a = (struct emu_lane_entry *)((char *)c->lane + EMU_LANE_HEAD);
    struct emu_lane_entry *b = a + EMU_LANE_A;

    tx->next = l->at[at].next_in_b ? &b[l->at[at].next & (tx->entries - 1)] : &a[l->at[at].next & (EMU_LANE_A - 1)];
    /* a carrier that died may have gone on without saying so */
    while ((__atomic_load_n(&tx->next->word, __ATOMIC_ACQUIRE) >> EMU_ENTRY_SEQ_SHIFT) ==
           ((tx->wr_a + tx->wr_b + 1) & EMU_ENTRY_SEQ_MASK)) {
        bool pair = (tx->next->word & EMU_ENTRY_PAIR) != 0;

        for (unsigned n = 0; n < 1u + pair; n++) {
            bool to_b = (tx->next->word & EMU_ENTRY_NEXT_B) != 0;

            if (tx->next >= b) {
                tx->wr_b++;
            } else {
                tx->wr_a++;
            }
            tx->next = to_b ? &b[tx->wr_b & (tx->entries - 1)] : &a[tx->wr_a & (EMU_LANE_A - 1)];
        }
        tx->wr_x += pair;
    }
    return l;
}

/* A remote notice in the owner's name */
static int notify(struct emu_peer *owner, struct emu_session *s, struct emu_peer *target, const struct emu_desc *d,
                  uint64_t stamp)
{
    struct emu_lane_tx       tx;
    struct emu_session_lane *l = lane_find(owner, s, target, &tx);
    struct emu_lane_entry   *b;
    uint32_t                 at;
    int                      code;

    if (l == NULL) {
        return UTOFU_ERR_MRQ_OTHER;
    }
    if ((step_of(s) == EMU_STEP_NOTIFYING) && (tx.wr_a + tx.wr_b != s->lane_before)) {
        return UTOFU_SUCCESS; /* who died there had written it */
    }
    s->lane_before = tx.wr_a + tx.wr_b;
    reach(s, EMU_STEP_NOTIFYING);
    code = emu_lane_push(NULL, &tx, target, UTOFU_MRQ_TYPE_RMT_PUT, d->edata, 0, d->rmt_stadd + d->length, 0, stamp);
    b  = (struct emu_lane_entry *)((char *)tx.lane + EMU_LANE_HEAD) + EMU_LANE_A;
    at = (atomic_load(&l->current) & 1) ^ 1;
    l->at[at].wr_a      = tx.wr_a;
    l->at[at].wr_b      = tx.wr_b;
    l->at[at].wr_x      = tx.wr_x;
    l->at[at].known_a   = tx.known_a;
    l->at[at].known_b   = tx.known_b;
    l->at[at].known_x   = tx.known_x;
    l->at[at].next_in_b = tx.next >= b;
    l->at[at].next      = (uint32_t)((tx.next >= b) ? tx.next - b : tx.next - (b - EMU_LANE_A));
    atomic_store(&l->current, at);
    return code;
}

static void local_notice(struct emu_peer *owner, struct emu_session *s, const struct emu_desc *d, int code)
{
    uint32_t                   size = owner->proc->session_entries;
    uint64_t                   n    = atomic_load_explicit(&s->mrq_written, memory_order_relaxed);
    struct emu_session_notice *e    = &s->mrq[n & (size - 1)];

    if ((step_of(s) == EMU_STEP_LOCAL) && (n != s->local_before)) {
        return; /* who died there had written it */
    }
    s->local_before = n;
    s->outcome      = code;
    reach(s, EMU_STEP_LOCAL);
    if (n - atomic_load_explicit(&s->mrq_read, memory_order_acquire) >= size) {
        emu_overflow_tell(owner);
        return;
    }
    memset(&e->notice, 0, sizeof(e->notice));
    e->notice.notice_type = UTOFU_MRQ_TYPE_LCL_PUT;
    e->notice.vcq_id      = emu_canonical_id(d->rmt_id);
    e->notice.edata       = d->edata;
    e->notice.rmt_stadd   = d->rmt_stadd + d->length;
    e->code               = code;
    e->stamp              = (s->stamp != 0) ? s->stamp : emu_stamp(owner->block); /* of an error it is later */
    atomic_store_explicit(&s->mrq_written, n + 1, memory_order_release);
}

/* From the owner's memory to the target's: [at, at + n) of a Put.  SUCCESS, a TCQ or an MRQ error. */
static int move_part(struct emu_peer *owner, struct emu_peer *target, const struct emu_desc *d, struct emu_region *from,
                     struct emu_region *to, uint64_t at, size_t n)
{
    bool     strong = (d->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0;
    uint64_t src = EMU_STADD_OFF(d->lcl_stadd) + at, dst = EMU_STADD_OFF(d->rmt_stadd) + at;
    bool     read = emu_region_direct(from, src, n), write = emu_region_direct(to, dst, n);
    int      code;

    if (read && write) {
        atomic_thread_fence(memory_order_acquire);
        emu_copy((char *)to->base + dst, (const char *)from->base + src, n);
        return emu_fault_seen ? emu_region_cut_off(to) : UTOFU_SUCCESS;
    }
    if (read) {
        code = emu_private_write(target, to, dst, (const char *)from->base + src, n, EMU_ORDER_LINES);
    } else {
        char *bounce = malloc(BOUNCE);

        code = (bounce == NULL) ? UTOFU_ERR_TCQ_OTHER : UTOFU_SUCCESS;
        for (size_t done = 0; (code == UTOFU_SUCCESS) && (done < n);) {
            size_t k = (n - done < BOUNCE) ? n - done : BOUNCE;

            if (emu_private_read(owner, from, src + done, bounce, k, strong, EMU_ORDER_NONE) != UTOFU_SUCCESS) {
                code = UTOFU_ERR_TCQ_MEMORY;
            } else if (write) {
                emu_copy((char *)to->base + dst + done, bounce, k);
                code = emu_fault_seen ? emu_region_cut_off(to) : UTOFU_SUCCESS;
            } else {
                code = emu_private_write(target, to, dst + done, bounce, k, EMU_ORDER_LINES);
            }
            done += k;
        }
        free(bounce);
    }
    atomic_thread_fence(memory_order_seq_cst);
    return code;
}

/* The strict mode's order of a Put's lines, where none is promised: the last one first.  0: it has one line */
static size_t last_first(const struct emu_desc *d)
{
    size_t last = (size_t)(d->rmt_stadd + d->length) % LINE;

    last = last ? last : LINE;
    return (emu_g.env.strict && !(d->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) && (last < d->length)) ? last : 0;
}

static int move(struct emu_peer *owner, struct emu_peer *target, const struct emu_desc *d)
{
    struct emu_region *from, *to;
    size_t             n = d->length, last = last_first(d);
    int                code;

    code = emu_remote_region(owner, d->lcl_stadd, n, false, &from);
    if (code != UTOFU_SUCCESS) {
        return (code == UTOFU_ERR_MRQ_RMT_STADD)  ? UTOFU_ERR_TCQ_STADD :
               (code == UTOFU_ERR_MRQ_RMT_LENGTH) ? UTOFU_ERR_TCQ_LENGTH :
                                                    UTOFU_ERR_TCQ_MEMORY;
    }
    code = emu_remote_region(target, d->rmt_stadd, n, true, &to);
    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (last != 0) {
        code = move_part(owner, target, d, from, to, n - last, last);
    }
    return (code == UTOFU_SUCCESS) ? move_part(owner, target, d, from, to, 0, n - last) : code;
}

static void add_work(struct emu_peer **work, struct emu_peer *peer)
{
    if (!peer->in_work) {
        peer->in_work   = true;
        peer->next_work = *work;
        *work           = peer;
    }
}

/* Credit the SPS of a Put to its target.  by: the session that the Put is of, NULL: none */
static void credit(struct emu_peer **work, struct emu_peer *target, unsigned sps, bool tells, struct emu_session *by,
                   struct emu_start *start)
{
    struct emu_session *s = session_of(target);
    uint64_t            had;

    if (s == NULL) {
        return; /* ignored by a VCQ in free mode (3.7.9.3) */
    }
    if (tells) {
        unsigned i = 0;

        while ((i < EMU_SESSION_STARTERS) && (emu_shared_try(&s->untold[i]) == EMU_SHARED_NOT)) {
            i++;
        }
        *start = (struct emu_start){emu_stamp(target->block), (i < EMU_SESSION_STARTERS) ? &s->untold[i] : NULL};
    }
    do {
        had = atomic_load(&s->credits);
        if ((had & ~EMU_CREDIT_MASK) != EMU_CREDIT_GEN(target->gen)) {
            return; /* freed since the Put was posted, and there is another VCQ by now */
        }
        if (by != NULL) {
            by->credit_before = had;
            reach(by, EMU_STEP_CREDITING);
        }
    } while (!atomic_compare_exchange_strong(&s->credits, &had, had + sps));
    add_work(work, target);
}

/* The same for a Put of a session, from the step that was reached */
static int credit_once(struct emu_peer **work, struct emu_peer *target, unsigned sps, bool tells,
                       struct emu_session *by, struct emu_start *start)
{
    struct emu_session *s = session_of(target);

    if ((step_of(by) >= EMU_STEP_CREDITED) && (s != NULL)) {
        add_work(work, target); /* who gave it did not get that far */
    }
    if ((step_of(by) == EMU_STEP_CREDITING) && (s != NULL) && (atomic_load(&s->credits) != by->credit_before)) {
        return UTOFU_ERR_TCQ_OTHER; /* by who died there, or by somebody else */
    }
    if (step_of(by) < EMU_STEP_CREDITED) {
        credit(work, target, sps, tells, by, start);
        reach(by, EMU_STEP_CREDITED);
    }
    return UTOFU_SUCCESS;
}

/* What the Put had failed with when a carrier died telling its owner; SUCCESS: it had not */
static int failed_with(struct emu_session *s)
{
    int64_t code = s->outcome;

    return ((step_of(s) != EMU_STEP_LOCAL) || (code == UTOFU_SUCCESS)) ? UTOFU_SUCCESS :
           ((code >= UTOFU_ERR_MRQ_RMT_LENGTH) && (code <= UTOFU_ERR_MRQ_OTHER)) ? (int)code : UTOFU_ERR_MRQ_OTHER;
}

/* A Put of the owner's, from the step that an earlier carrier reached.  Credit is given before
 * anybody is told: who dies in here leaves no notice, and no success, after which nothing
 * starts. */
static int carry_put(struct emu_vcq *via, struct emu_peer *owner, struct emu_session *s, const struct emu_desc *d,
                     struct emu_peer **work)
{
    bool             tells  = (d->flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) != 0;
    struct emu_start start  = {0, NULL};
    struct emu_peer *target = NULL;
    int              code   = failed_with(s);

    if (code == UTOFU_SUCCESS) {
        code = emu_post_peer(via, d->rmt_id, &target);
    }
    if (code == UTOFU_SUCCESS) {
        emu_relay_target(owner, target);
    }
    if ((code == UTOFU_SUCCESS) && (step_of(s) < EMU_STEP_MOVED)) {
        code = move(owner, target, d);
        if (code == UTOFU_SUCCESS) {
            reach(s, EMU_STEP_MOVED);
        }
    }
    if ((code == UTOFU_SUCCESS) && EMU_DESC_SPS(d)) {
        code = credit_once(work, target, EMU_DESC_SPS(d), tells, s, &start);
    }
    if ((code == UTOFU_SUCCESS) && tells && (step_of(s) < EMU_STEP_NOTIFIED)) {
        code = notify(owner, s, target, d, start.stamp);
        if (target->id == owner->id) { /* to itself: the notice for the target comes first (2.2.3) */
            s->stamp = emu_stamp(owner->block);
        }
        if (code == UTOFU_SUCCESS) {
            reach(s, EMU_STEP_NOTIFIED); /* from here on who takes over keeps the stamp */
        }
    }
    emu_session_told(&start);
    if ((code != UTOFU_SUCCESS) && ((code > UTOFU_ERR_TCQ_OTHER) || (code < UTOFU_ERR_MRQ_RMT_LENGTH))) {
        code = UTOFU_ERR_TCQ_OTHER;
    }
    if ((code <= UTOFU_ERR_MRQ_OTHER) ||
        ((code == UTOFU_SUCCESS) && (d->flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE))) {
        local_notice(owner, s, d, code);
    }
    return (code > UTOFU_ERR_MRQ_OTHER) ? code : UTOFU_SUCCESS;
}

/* One descriptor of the owner's TOQ (session locked) */
static void carry_one(struct emu_vcq *via, struct emu_peer *owner, struct emu_session *s, struct emu_peer **work)
{
    uint64_t                 n    = atomic_load(&s->claimed);
    struct emu_session_slot *slot = &s->toq[n % EMU_SESSION_TOQ];
    struct emu_desc          d;

    if ((atomic_load(&s->step) >> EMU_STEP_NUMBER_SHIFT) != n) {
        s->stamp = 0;
        atomic_store(&s->step, n << EMU_STEP_NUMBER_SHIFT);
    }
    memcpy(&d, slot->desc, sizeof(d));
    if ((s->stamp == 0) && (d.flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)) { /* no stamp is for nothing */
        s->stamp = emu_stamp(owner->block);
    }
    atomic_store(&s->claimed, n + 1);
    if ((d.kind == EMU_OP_PUT) && (d.length <= EMU_MAX_PUTGET)) {
        slot->code = carry_put(via, owner, s, &d, work);
    }
    atomic_store(&s->started, n + 1);
}

static bool may_go_on(const struct emu_peer *owner)
{
    return (atomic_load(owner->gen_p) == owner->gen) && !emu_relay_ends(); /* freed meanwhile */
}

static void run(struct emu_vcq *via, struct emu_peer *work)
{
    while (work != NULL) {
        struct emu_peer    *owner = work;
        struct emu_session *s     = session_of(owner);

        work           = owner->next_work;
        owner->in_work = false;
        /* whoever holds the lock looks again after us, and we after ourselves */
        while ((s != NULL) && emu_session_pending(s) && emu_session_try_lock(s)) {
            while (emu_session_startable(s) && may_go_on(owner)) {
                carry_one(via, owner, s, &work);
            }
            /* nobody is at one while we have the lock, unless somebody else wrote that */
            bool sound = atomic_load(&s->started) == atomic_load(&s->claimed);

            emu_shared_unlock(&s->lock);
            if (!sound || !may_go_on(owner)) {
                break;
            }
        }
    }
}

/* Peers found to be gone while work lists point at them are freed at the end. */
static void begin(struct emu_vcq *via)
{
    via->carrying = true;
}

static void end(struct emu_vcq *via)
{
    via->carrying = false;
    emu_peers_bury(via);
}

EMU_NOINLINE void emu_session_told(const struct emu_start *start)
{
    if (start->held != NULL) {
        emu_shared_unlock(start->held);
    }
}

EMU_NOINLINE bool emu_session_credit(struct emu_peer *peer, unsigned sps, bool tells, struct emu_start *start)
{
    struct emu_peer *work = NULL;

    credit(&work, peer, sps, tells, NULL, start);
    if (work != NULL) {
        work->in_work = false;
    }
    return work != NULL;
}

EMU_NOINLINE void emu_session_carry(struct emu_vcq *via, struct emu_peer *peer)
{
    struct emu_peer *work = NULL;

    begin(via);
    add_work(&work, peer);
    run(via, work);
    end(via);
}

void emu_session_go_on(struct emu_vcq *via, uint64_t id)
{
    struct emu_peer *owner, *work = NULL;

    begin(via);
    if ((emu_post_peer(via, id, &owner) == UTOFU_SUCCESS) && (session_of(owner) != NULL)) {
        add_work(&work, owner);
        run(via, work);
    }
    end(via);
}
