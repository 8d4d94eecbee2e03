/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_session.c - session mode (2.2.8): operations that start when a Put arrives.
 *
 * A network interface would start them while the relaying process sleeps.  Here
 * whoever brings the Put does (the carrier): it finds the TOQ of the VCQ in the
 * owner's process segment, reads the owner's memory and writes on to the next
 * target, with notices in the owner's name.  The owner carries as well, when it
 * posts descriptors that Puts have been waiting for.
 *
 * `credits` is the sum of the SPSs that arrived; as long as fewer descriptors were
 * started and there are any, they start.  One carrier at a time: the lock is only
 * ever tried, since its holder looks again after giving it back, so nobody waits
 * for a process that is stopped.  A carrier that died leaves the operation it was
 * at with an error in the TCQ; the owner goes on with the rest when it polls.
 */
#include "emu_copy.h"
#include "emu_modes.h"
#include "emu_path.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define LOCK_TRIES 10000  /* of 0.1 ms */
#define BOUNCE     65536u /* bytes at a time from memory that is not mapped here */

/* The upper bits of `credits` are the VCQ's generation: what arrives for the VCQ that had this
 * index before is not for the one that has it now. */
#define CREDIT_GEN_SHIFT 48
#define CREDIT_MASK      (((uint64_t)1 << CREDIT_GEN_SHIFT) - 1)
#define CREDIT_GEN(gen)  ((uint64_t)(gen) << CREDIT_GEN_SHIFT)

/* -------------------------------------------------------------- the lock */

/* An operation whose carrier died in the middle is over: whether its data arrived
 * is not known. */
static void repair(struct emu_session *s)
{
    uint64_t started = atomic_load(&s->started), claimed = atomic_load(&s->claimed);

    for (; started < claimed; started++) {
        s->toq[started % EMU_SESSION_TOQ].code = UTOFU_ERR_TCQ_OTHER;
    }
    atomic_store(&s->started, started);
}

static bool try_lock(struct emu_session *s)
{
    int ret = pthread_mutex_trylock(&s->lock);

    if (ret == EOWNERDEAD) {
        pthread_mutex_consistent(&s->lock);
        repair(s);
        ret = 0;
    }
    return ret == 0;
}

/* The owner waits for a carrier, but not for ever for one that is stopped. */
static bool lock_for_good(struct emu_session *s)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (try_lock(s)) {
            return true;
        }
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    return false;
}

/* ------------------------------------------------------------- the owner */

int emu_session_init(struct emu_vcq *vcq)
{
    uint64_t            size = EMU_SESSION_SIZE(emu_g.env.mrq_entries_session);
    pthread_mutexattr_t attr;
    struct emu_session *s;

    s = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, emu_g.seg_fd,
             (off_t)(EMU_SESSIONS_OFF + vcq->index * size));
    if (s == MAP_FAILED) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    /* The lock is made once: a carrier for the VCQ that had this index before may
     * still try it. */
    if (!s->made) {
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&s->lock, &attr);
        pthread_mutexattr_destroy(&attr);
        s->made = 1;
    }
    if (!lock_for_good(s)) {
        munmap(s, size);
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    atomic_store(&s->credits, CREDIT_GEN(atomic_load(&emu_g.control->vcq_gen[emu_g.slot][vcq->index]) + 1));
    atomic_store(&s->posted, 0);
    atomic_store(&s->claimed, 0);
    atomic_store(&s->started, 0);
    atomic_store(&s->tcq_read, 0);
    atomic_store(&s->mrq_written, 0);
    atomic_store(&s->mrq_read, 0);
    memset(s->lane, 0, sizeof(s->lane));
    pthread_mutex_unlock(&s->lock);
    vcq->session = s;
    return UTOFU_SUCCESS;
}

/* The lane is one towards this target, not towards a process that had its VCQ ID before. */
static bool leads_to(const struct emu_session_lane *l, const struct emu_peer *target)
{
    return (l->target_slot == target->proc->slot) && (l->target_process == target->proc->gen) &&
           (l->target_gen == target->gen);
}

/* The VCQ goes away (peers see it already): no carrier after this, and the lanes
 * towards others are given back when they have been read. */
void emu_session_close(struct emu_vcq *vcq)
{
    struct emu_session *s = vcq->session;

    /* who takes the lock after us sees that the VCQ is gone */
    if (lock_for_good(s)) {
        pthread_mutex_unlock(&s->lock);
    }
    for (unsigned i = 0; (i < EMU_SESSION_LANES) && (s->lane[i].target != 0); i++) {
        struct emu_peer *target;
        struct emu_lane *lane;

        if ((emu_post_peer(vcq, s->lane[i].target, &target) != UTOFU_SUCCESS) ||
            !leads_to(&s->lane[i], target) || (s->lane[i].index >= EMU_MAX_LANES)) {
            continue;
        }
        lane = emu_lane_map(target->proc->seg_fd, s->lane[i].index, target->proc->lane_entries,
                            target->proc->session_entries);
        if (lane != NULL) {
            emu_lane_close(lane, target->proc->lane_entries);
        }
    }
}

void emu_session_fini(struct emu_vcq *vcq)
{
    if (vcq->session != NULL) {
        munmap(vcq->session, EMU_SESSION_SIZE(emu_g.env.mrq_entries_session));
        vcq->session = NULL;
    }
}

uint32_t emu_session_room(const struct emu_vcq *vcq)
{
    const struct emu_session *s = vcq->session;

    return EMU_SESSION_TOQ - (uint32_t)(atomic_load(&s->posted) - atomic_load(&s->tcq_read));
}

int emu_session_post(struct emu_vcq *vcq, const struct emu_desc *d, void *cbdata)
{
    struct emu_session      *s    = vcq->session;
    uint64_t                 n    = atomic_load_explicit(&s->posted, memory_order_relaxed);
    struct emu_session_slot *slot = &s->toq[n % EMU_SESSION_TOQ];

    memcpy(slot->desc, d, sizeof(*d));
    slot->cbdata = (uintptr_t)cbdata;
    slot->code   = UTOFU_SUCCESS;
    atomic_store_explicit(&s->posted, n + 1, memory_order_seq_cst);
    return UTOFU_SUCCESS;
}

static bool startable(struct emu_session *s)
{
    uint64_t started = atomic_load(&s->claimed);

    return (started < (atomic_load(&s->credits) & CREDIT_MASK)) && (started < atomic_load(&s->posted));
}

/* The owner found nothing.  Who carries may have died, between two operations or in one,
 * and perhaps nobody else ever comes: then it is for the owner to go on. */
static void look_after(struct emu_vcq *vcq)
{
    struct emu_session *s = vcq->session;

    if (startable(s) || (atomic_load(&s->started) != atomic_load(&s->claimed))) {
        emu_session_idle(vcq);
    }
}

/* The next entry of the TCQ */
static int take_tcq(struct emu_vcq *vcq, void **cbdata)
{
    struct emu_session *s       = vcq->session;
    uint64_t            started = atomic_load_explicit(&s->started, memory_order_acquire);
    uint64_t            n       = atomic_load_explicit(&s->tcq_read, memory_order_relaxed);
    int                 code    = UTOFU_ERR_NOT_FOUND;

    while ((n < started) && (code == UTOFU_ERR_NOT_FOUND)) {
        struct emu_session_slot *slot = &s->toq[n % EMU_SESSION_TOQ];
        struct emu_desc          d;

        memcpy(&d, slot->desc, sizeof(d));
        if ((slot->code != UTOFU_SUCCESS) || (d.flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE)) {
            *cbdata = (void *)(uintptr_t)slot->cbdata;
            code    = slot->code;
        }
        n++;
    }
    atomic_store_explicit(&s->tcq_read, n, memory_order_release);
    return code;
}

int emu_session_poll_tcq(struct emu_vcq *vcq, void **cbdata)
{
    int code = take_tcq(vcq, cbdata);

    if (code == UTOFU_ERR_NOT_FOUND) {
        look_after(vcq);
        code = take_tcq(vcq, cbdata);
    }
    return code;
}

/* The next local notice, if there is one */
static bool take_local(struct emu_vcq *vcq, struct utofu_mrq_notice *notice, int *code_p)
{
    struct emu_session              *s = vcq->session;
    uint64_t                         n = atomic_load_explicit(&s->mrq_read, memory_order_relaxed);
    const struct emu_session_notice *e = &s->mrq[n % emu_g.env.mrq_entries_session];

    if (atomic_load_explicit(&s->mrq_written, memory_order_acquire) == n) {
        return false;
    }
    *notice = e->notice;
    *code_p = (int)e->code;
    atomic_store_explicit(&s->mrq_read, n + 1, memory_order_release);
    return true;
}

bool emu_session_poll_local(struct emu_vcq *vcq, struct utofu_mrq_notice *notice, int *code_p)
{
    if (take_local(vcq, notice, code_p)) {
        return true;
    }
    look_after(vcq);
    return take_local(vcq, notice, code_p);
}

size_t emu_session_unread_local(const struct emu_vcq *vcq)
{
    return (size_t)(atomic_load(&vcq->session->mrq_written) - atomic_load(&vcq->session->mrq_read));
}

/* --------------------------------------------------------------- carrying */

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
    p    = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, peer->proc->seg_fd,
                (off_t)(EMU_SESSIONS_OFF + peer->vcq * size));
    if (p == MAP_FAILED) {
        return NULL;
    }
    peer->session = p;
    return peer->session;
}

/* The lane of the owner's VCQ towards a target, as far as it got */
static struct emu_session_lane *lane_find(struct emu_peer *owner, struct emu_session *s, struct emu_peer *target,
                                          struct emu_lane_tx *tx)
{
    struct emu_session_lane *l = NULL;
    struct emu_carried_lane *c;
    uint32_t                 entries = target->proc->lane_entries;

    for (unsigned i = 0; (i < EMU_SESSION_LANES) && (l == NULL); i++) {
        if ((s->lane[i].target == target->id) || (s->lane[i].target == 0)) {
            l = &s->lane[i];
        }
    }
    if (l == NULL) {
        return NULL;
    }
    if ((l->target == 0) || !leads_to(l, target)) {
        uint64_t name  = EMU_LANE_OWNER(owner->proc->slot, owner->proc->gen, owner->vcq);
        uint32_t index = 0;

        if (emu_lane_open(target, name, owner->id, tx, &index) != UTOFU_SUCCESS) {
            return NULL;
        }
        munmap(tx->lane, EMU_LANE_SIZE(entries)); /* it is mapped again below, as for later carriers */
        *l            = (struct emu_session_lane){.target_slot    = target->proc->slot,
                                                  .target_process = target->proc->gen,
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
    *tx = (struct emu_lane_tx){.lane    = c->lane,
                               .entries = EMU_LANE_B(entries),
                               .limit   = target->block->mrq_entries,
                               .wr_a    = l->wr_a,
                               .wr_b    = l->wr_b,
                               .wr_x    = l->wr_x,
                               .known_a = l->known_a,
                               .known_b = l->known_b,
                               .known_x = l->known_x};
    struct emu_lane_entry *a = (struct emu_lane_entry *)((char *)c->lane + EMU_LANE_HEAD);
    struct emu_lane_entry *b = a + EMU_LANE_A;

    tx->next = l->next_in_b ? &b[l->next & (tx->entries - 1)] : &a[l->next & (EMU_LANE_A - 1)];
    /* a carrier that died may have gone on without saying so */
    while ((__atomic_load_n(&tx->next->word, __ATOMIC_ACQUIRE) >> EMU_ENTRY_SEQ_SHIFT) ==
           ((tx->wr_a + tx->wr_b + 1) & EMU_ENTRY_SEQ_MASK)) {
        bool to_b = (tx->next->word & EMU_ENTRY_NEXT_B) != 0;

        if (tx->next >= b) {
            tx->wr_b++;
        } else {
            tx->wr_a++;
        }
        tx->next = to_b ? &b[tx->wr_b & (tx->entries - 1)] : &a[tx->wr_a & (EMU_LANE_A - 1)];
    }
    return l;
}

/* A remote notice in the owner's name */
static int notify(struct emu_peer *owner, struct emu_session *s, struct emu_peer *target, const struct emu_desc *d)
{
    struct emu_lane_tx       tx;
    struct emu_session_lane *l = lane_find(owner, s, target, &tx);
    struct emu_lane_entry   *b;
    int                      code;

    if (l == NULL) {
        return UTOFU_ERR_MRQ_OTHER;
    }
    code = emu_lane_push(&tx, target->block, UTOFU_MRQ_TYPE_RMT_PUT, d->edata, 0, d->rmt_stadd + d->length);
    b            = (struct emu_lane_entry *)((char *)tx.lane + EMU_LANE_HEAD) + EMU_LANE_A;
    l->wr_a      = tx.wr_a;
    l->wr_b      = tx.wr_b;
    l->known_a   = tx.known_a;
    l->known_b   = tx.known_b;
    l->known_x   = tx.known_x;
    l->next_in_b = tx.next >= b;
    l->next      = (uint32_t)(l->next_in_b ? tx.next - b : tx.next - (b - EMU_LANE_A));
    return code;
}

static void local_notice(struct emu_peer *owner, struct emu_session *s, const struct emu_desc *d, int code)
{
    uint32_t                   size = owner->proc->session_entries;
    uint64_t                   n    = atomic_load_explicit(&s->mrq_written, memory_order_relaxed);
    struct emu_session_notice *e    = &s->mrq[n & (size - 1)];

    if (n - atomic_load_explicit(&s->mrq_read, memory_order_acquire) >= size) {
        atomic_fetch_or(&owner->block->epoch, EMU_EPOCH_OVERFLOW);
        return;
    }
    memset(&e->notice, 0, sizeof(e->notice));
    e->notice.notice_type = UTOFU_MRQ_TYPE_LCL_PUT;
    e->notice.vcq_id      = emu_canonical_id(d->rmt_id);
    e->notice.edata       = d->edata;
    e->notice.rmt_stadd   = d->rmt_stadd + d->length;
    e->code               = code;
    atomic_store_explicit(&s->mrq_written, n + 1, memory_order_release);
}

/* From the owner's memory to the target's.  SUCCESS, a TCQ or an MRQ error. */
static int move(struct emu_peer *owner, struct emu_peer *target, const struct emu_desc *d)
{
    bool               strong = (d->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0;
    struct emu_region *from, *to;
    size_t             n = d->length;
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
    uint64_t src = EMU_STADD_OFF(d->lcl_stadd), dst = EMU_STADD_OFF(d->rmt_stadd);
    bool     read = emu_region_direct(from, src, n), write = emu_region_direct(to, dst, n);

    if (read && write) {
        atomic_thread_fence(memory_order_acquire);
        emu_copy((char *)to->base + dst, (const char *)from->base + src, n);
        return emu_fault_seen ? emu_region_cut_off(target, to) : UTOFU_SUCCESS;
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
                code = emu_fault_seen ? emu_region_cut_off(target, to) : UTOFU_SUCCESS;
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

static void add_work(struct emu_peer **work, struct emu_peer *peer)
{
    if (!peer->in_work) {
        peer->in_work   = true;
        peer->next_work = *work;
        *work           = peer;
    }
}

/* Credit the SPS of a Put to its target */
static void credit(struct emu_peer **work, struct emu_peer *target, unsigned sps)
{
    struct emu_session *s = session_of(target);
    uint64_t            had;

    if (s == NULL) {
        return; /* ignored by a VCQ in free mode (3.7.9.3) */
    }
    had = atomic_load(&s->credits);
    do {
        if ((had & ~CREDIT_MASK) != CREDIT_GEN(target->gen)) {
            return; /* freed since the Put was posted, and there is another VCQ by now */
        }
    } while (!atomic_compare_exchange_weak(&s->credits, &had, had + sps));
    add_work(work, target);
}

/* One descriptor of the owner's TOQ (session locked).  Credit is given before anybody is
 * told: who dies in here leaves no notice, and no success, after which nothing starts. */
static void carry_one(struct emu_vcq *via, struct emu_peer *owner, struct emu_session *s, struct emu_peer **work)
{
    uint64_t                 n    = atomic_load(&s->claimed);
    struct emu_session_slot *slot = &s->toq[n % EMU_SESSION_TOQ];
    struct emu_desc          d;
    struct emu_peer         *target = NULL;
    int                      code   = UTOFU_SUCCESS;

    atomic_store(&s->claimed, n + 1);
    memcpy(&d, slot->desc, sizeof(d));
    if ((d.kind == EMU_OP_PUT) && (d.length <= EMU_MAX_PUTGET)) {
        code = emu_post_peer(via, d.rmt_id, &target);
        if (code == UTOFU_SUCCESS) {
            code = move(owner, target, &d);
        }
        if ((code == UTOFU_SUCCESS) && EMU_DESC_SPS(&d)) {
            credit(work, target, EMU_DESC_SPS(&d));
        }
        if ((code == UTOFU_SUCCESS) && (d.flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) {
            code = notify(owner, s, target, &d);
        }
        if ((code != UTOFU_SUCCESS) && ((code > UTOFU_ERR_TCQ_OTHER) || (code < UTOFU_ERR_MRQ_RMT_LENGTH))) {
            code = UTOFU_ERR_TCQ_OTHER;
        }
        if ((code <= UTOFU_ERR_MRQ_OTHER) ||
            ((code == UTOFU_SUCCESS) && (d.flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE))) {
            local_notice(owner, s, &d, code);
        }
        slot->code = (code > UTOFU_ERR_MRQ_OTHER) ? code : UTOFU_SUCCESS;
    }
    atomic_store(&s->started, n + 1);
}

static void run(struct emu_vcq *via, struct emu_peer *work)
{
    while (work != NULL) {
        struct emu_peer    *owner = work;
        struct emu_session *s     = session_of(owner);

        work           = owner->next_work;
        owner->in_work = false;
        /* whoever holds the lock looks again after us, and we after ourselves */
        while ((s != NULL) && startable(s) && try_lock(s)) {
            while (startable(s) && (atomic_load(owner->gen_p) == owner->gen)) {
                carry_one(via, owner, s, &work);
            }
            pthread_mutex_unlock(&s->lock);
            if (atomic_load(owner->gen_p) != owner->gen) {
                break; /* freed meanwhile */
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

EMU_NOINLINE bool emu_session_credit(struct emu_peer *peer, unsigned sps)
{
    struct emu_peer *work = NULL;

    credit(&work, peer, sps);
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

void emu_session_start(struct emu_vcq *vcq)
{
    struct emu_peer *self, *work = NULL;

    if (!startable(vcq->session)) {
        return;
    }
    begin(vcq);
    if (emu_post_peer(vcq, vcq->id, &self) == UTOFU_SUCCESS) {
        add_work(&work, self);
        run(vcq, work);
    }
    end(vcq);
}

bool emu_session_idle(struct emu_vcq *vcq)
{
    if (!try_lock(vcq->session)) {
        return false;
    }
    pthread_mutex_unlock(&vcq->session->lock);
    emu_session_start(vcq); /* somebody may have found the lock taken by us */
    return true;
}
