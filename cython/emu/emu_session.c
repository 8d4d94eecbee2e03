/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_session.c - session mode (2.2.8), the owner's side: operations that start when a Put
 * arrives.
 *
 * A network interface would start them while the relaying process sleeps.  Here
 * whoever brings the Put does (the carrier, emu_session_carry.c): it finds the TOQ of the
 * VCQ in the owner's process segment, reads the owner's memory and writes on to the next
 * target, with notices in the owner's name.  The owner carries as well, when it
 * posts descriptors that Puts have been waiting for, and when it polls and finds nothing.
 */
#include "emu_job.h"
#include "emu_now.h"
#include "emu_session.h"

#include <stdlib.h>
#include <sys/mman.h>

#define LOCK_TRIES 10000 /* of 0.1 ms */

/* -------------------------------------------------------------- the lock */

/* A carrier died: the next one goes on with the operation that it was at. */
static void repair(struct emu_session *s)
{
    uint64_t n = atomic_load(&s->started), step = atomic_load(&s->step);
    unsigned deaths;

    if (atomic_load(&s->claimed) == n) {
        return;
    }
    if ((step >> EMU_STEP_NUMBER_SHIFT) != n) {
        step = n << EMU_STEP_NUMBER_SHIFT;
    }
    step += 1u << EMU_STEP_DEATHS_SHIFT;
    deaths = (unsigned)(step >> EMU_STEP_DEATHS_SHIFT) & 15;
    if (deaths >= EMU_STEP_DEATHS_MAX) {
        s->toq[n % EMU_SESSION_TOQ].code = UTOFU_ERR_TCQ_OTHER;
        atomic_store(&s->started, n + 1);
    } else {
        atomic_store(&s->step, step);
        atomic_store(&s->claimed, n);
    }
}

bool emu_session_try_lock(struct emu_session *s)
{
    enum emu_shared_got got = emu_shared_try(&s->lock);

    if (got == EMU_SHARED_GOT_OF_DEAD) {
        repair(s);
    }
    return got != EMU_SHARED_NOT;
}

/* The owner waits for a carrier, but not for ever for one that is stopped. */
static bool lock_for_good(struct emu_session *s)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (emu_session_try_lock(s)) {
            return true;
        }
        emu_sleep(100000);
    }
    return false;
}

/* ------------------------------------------------------------- the owner */

#define UNTOLD_NS 100000000u /* for so long local notices wait for somebody who is stopped */

/* What the owner goes by.  Carriers see the two numbers in the session, where others can write as well. */
struct emu_session_own {
    _Atomic uint64_t posted, tcq_read; /* other threads may ask for the room */
    void             *cbdata[EMU_SESSION_TOQ];
    /* Who was still to tell what he had started, when the next local notice was first seen, and since when */
    uint64_t         untold_of; /* the number of that notice, and 1 */
    uint64_t         untold_since;
    uint64_t         untold[EMU_SESSION_STARTERS]; /* 0: he has told it */
    uint64_t         stuck[EMU_SESSION_STARTERS];  /* who was waited for in vain, until he lets go */
};

int emu_session_init(struct emu_vcq *vcq)
{
    uint64_t            size = EMU_SESSION_SIZE(emu_g.env.mrq_entries_session);
    struct emu_session *s;

    vcq->session_own = calloc(1, sizeof(*vcq->session_own));
    if (vcq->session_own == NULL) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    s = emu_segment_map(emu_g.seg_fd, EMU_SESSIONS_OFF + vcq->index * size, size, PROT_READ | PROT_WRITE);
    if (s == MAP_FAILED) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    /* a carrier for the VCQ that had this index before may still have it */
    if (!lock_for_good(s)) {
        munmap(s, size);
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    atomic_store(&s->credits, EMU_CREDIT_GEN(atomic_load(&emu_g.control->vcq_gen[emu_g.slot][vcq->index]) + 1));
    atomic_store(&s->posted, 0);
    atomic_store(&s->claimed, 0);
    atomic_store(&s->started, 0);
    atomic_store(&s->step, 0);
    atomic_store(&s->tcq_read, 0);
    atomic_store(&s->mrq_written, 0);
    atomic_store(&s->mrq_read, 0);
    memset(s->untold, 0, sizeof(s->untold));
    s->stamp = 0;
    memset(s->lane, 0, sizeof(s->lane));
    emu_shared_unlock(&s->lock);
    vcq->session = s;
    return UTOFU_SUCCESS;
}

/* The VCQ goes away (peers see it already): no carrier after this, and the lanes
 * towards others are given back when they have been read. */
void emu_session_close(struct emu_vcq *vcq)
{
    struct emu_session *s = vcq->session;

    /* who takes the lock after us sees that the VCQ is gone */
    if (lock_for_good(s)) {
        emu_shared_unlock(&s->lock);
    }
    for (unsigned i = 0; (i < EMU_SESSION_LANES) && (s->lane[i].target != 0); i++) {
        struct emu_peer *target;
        struct emu_lane *lane;

        if ((emu_post_peer(vcq, s->lane[i].target, &target) != UTOFU_SUCCESS) ||
            !emu_session_leads_to(&s->lane[i], target) || (s->lane[i].index >= EMU_MAX_LANES)) {
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
    free(vcq->session_own);
    vcq->session_own = NULL;
}

uint32_t emu_session_room(const struct emu_vcq *vcq)
{
    return EMU_SESSION_TOQ - (uint32_t)(atomic_load(&vcq->session_own->posted) - atomic_load(&vcq->session_own->tcq_read));
}

int emu_session_post(struct emu_vcq *vcq, const struct emu_desc *d, void *cbdata)
{
    struct emu_session      *s    = vcq->session;
    uint64_t                 n    = atomic_load_explicit(&vcq->session_own->posted, memory_order_relaxed);
    struct emu_session_slot *slot = &s->toq[n % EMU_SESSION_TOQ];

    memcpy(slot->desc, d, sizeof(*d));
    slot->code                                    = UTOFU_SUCCESS;
    vcq->session_own->cbdata[n % EMU_SESSION_TOQ] = cbdata;
    atomic_store_explicit(&vcq->session_own->posted, n + 1, memory_order_relaxed);
    atomic_store_explicit(&s->posted, n + 1, memory_order_seq_cst);
    return UTOFU_SUCCESS;
}

/* The owner found nothing.  Who carries may have died, between two operations or in one,
 * and perhaps nobody else ever comes: then it is for the owner to go on. */
static void look_after(struct emu_vcq *vcq)
{
    if (emu_session_pending(vcq->session)) {
        emu_session_idle(vcq);
    }
}

/* The next entry of the TCQ */
static int take_tcq(struct emu_vcq *vcq, void **cbdata)
{
    struct emu_session     *s       = vcq->session;
    struct emu_session_own *own     = vcq->session_own;
    uint64_t                started = atomic_load_explicit(&s->started, memory_order_acquire);
    uint64_t                posted  = atomic_load_explicit(&own->posted, memory_order_relaxed);
    uint64_t                n       = atomic_load_explicit(&own->tcq_read, memory_order_relaxed);
    int                     code    = UTOFU_ERR_NOT_FOUND;

    started = (started < posted) ? started : posted;
    while ((n < started) && (code == UTOFU_ERR_NOT_FOUND)) {
        struct emu_session_slot *slot = &s->toq[n % EMU_SESSION_TOQ];
        struct emu_desc          d;

        memcpy(&d, slot->desc, sizeof(d));
        if (vcq->stats != NULL) {
            emu_stats_taken(vcq, slot->code);
        }
        if ((slot->code != UTOFU_SUCCESS) || (d.flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE)) {
            *cbdata = own->cbdata[n % EMU_SESSION_TOQ];
            code    = slot->code;
        }
        n++;
    }
    atomic_store_explicit(&own->tcq_read, n, memory_order_relaxed);
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

static bool has_local(const struct emu_session *s)
{
    return atomic_load_explicit(&s->mrq_written, memory_order_acquire) !=
           atomic_load_explicit(&s->mrq_read, memory_order_relaxed);
}

bool emu_session_has_local(struct emu_vcq *vcq, uint64_t *stamp_p)
{
    struct emu_session *s = vcq->session;
    uint64_t            n = atomic_load_explicit(&s->mrq_read, memory_order_relaxed);

    if (!has_local(s)) {
        look_after(vcq);
    }
    if (!has_local(s)) {
        return false;
    }
    *stamp_p = s->mrq[n % emu_g.env.mrq_entries_session].stamp;
    return true;
}

bool emu_session_poll_local(struct emu_vcq *vcq, struct utofu_mrq_notice *notice, int *code_p)
{
    struct emu_session              *s = vcq->session;
    uint64_t                         n = atomic_load_explicit(&s->mrq_read, memory_order_relaxed);
    const struct emu_session_notice *e = &s->mrq[n % emu_g.env.mrq_entries_session];

    if (!has_local(s)) {
        return false;
    }
    *notice = e->notice;
    *code_p = (int)e->code;
    if (vcq->stats != NULL) {
        emu_stats_taken(vcq, *code_p);
    }
    atomic_store_explicit(&s->mrq_read, n + 1, memory_order_release);
    return true;
}

/* Who has begun since has not started what that notice is of. */
bool emu_session_untold(struct emu_vcq *vcq)
{
    struct emu_session_own *own  = vcq->session_own;
    uint64_t                of   = atomic_load_explicit(&vcq->session->mrq_read, memory_order_relaxed) + 1;
    bool                    held = false, first = own->untold_of != of;

    own->untold_of = of;
    for (unsigned i = 0; i < EMU_SESSION_STARTERS; i++) {
        struct emu_shared_lock *l    = &vcq->session->untold[i];
        uint64_t                word = atomic_load(&l->word);

        own->stuck[i] = (word == own->stuck[i]) ? word : 0;
        if (first) {
            own->untold[i] = (word == own->stuck[i]) ? 0 : word;
        }
        if (own->untold[i] == 0) {
            continue;
        }
        if ((word == own->untold[i]) && (emu_shared_try(l) != EMU_SHARED_NOT)) { /* he has ended, or just told */
            emu_shared_unlock(l);
            word = 0;
        }
        own->untold[i] = (word == own->untold[i]) ? word : 0;
        held           = held || (own->untold[i] != 0);
    }
    if (held && first) {
        own->untold_since = emu_now();
    }
    if (!held || (emu_now() - own->untold_since < UNTOLD_NS)) {
        return held;
    }
    for (unsigned i = 0; i < EMU_SESSION_STARTERS; i++) {
        own->stuck[i] = (own->untold[i] != 0) ? own->untold[i] : own->stuck[i];
    }
    return false;
}

size_t emu_session_unread_local(const struct emu_vcq *vcq)
{
    uint64_t unread = atomic_load(&vcq->session->mrq_written) - atomic_load(&vcq->session->mrq_read);

    return (size_t)((unread < emu_g.env.mrq_entries_session) ? unread : emu_g.env.mrq_entries_session);
}

bool emu_session_idle(struct emu_vcq *vcq)
{
    if (!emu_session_try_lock(vcq->session)) {
        return false;
    }
    emu_shared_unlock(&vcq->session->lock);
    emu_session_start(vcq); /* somebody may have found the lock taken by us */
    return true;
}

void emu_session_start(struct emu_vcq *vcq)
{
    if (emu_session_startable(vcq->session)) {
        emu_session_go_on(vcq, vcq->id);
    }
}
