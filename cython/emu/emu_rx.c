/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rx.c - MRQ lanes, the consumer's side: which ones a VCQ has, and which of them
 * a poll looks at (emu_queue.c).
 */
#include "emu_rx.h"
#include "emu_stamp.h"

#include <stdlib.h>
#include <sys/mman.h>

static bool owner_is_gone(uint64_t owner)
{
    const struct emu_proc_slot *s = &emu_g.control->slot[EMU_LANE_OWNER_SLOT(owner) % EMU_MAX_PROCS];

    return (atomic_load(&s->state) != EMU_SLOT_LIVE) || ((s->gen & 0xffffffu) != EMU_LANE_OWNER_GEN(owner));
}

/* A producer that is still there does not know yet that we go, and would write, and close, what
 * is somebody else's by then: it gives the lane back when it closes it. */
void emu_lane_release(struct emu_lane *lane)
{
    uint32_t open = EMU_LANE_OPEN;

    lane->vcq_gen = 0;
    if (owner_is_gone(atomic_load(&lane->owner)) ||
        !atomic_compare_exchange_strong(&lane->state, &open, EMU_LANE_LEFT)) {
        emu_lane_give_back(lane, emu_g.env.lane_entries);
    }
    munmap(lane, EMU_LANE_SIZE(emu_g.env.lane_entries));
}

static struct emu_lane_entry *lane_entries(struct emu_lane *lane)
{
    return (struct emu_lane_entry *)((char *)lane + EMU_LANE_HEAD);
}

/* Exchange two places of vcq->lanes. */
static void lanes_swap(struct emu_vcq *vcq, uint32_t i, uint32_t j)
{
    struct emu_rx_lane rx = vcq->lanes[i];

    vcq->lanes[i]                        = vcq->lanes[j];
    vcq->lanes[j]                        = rx;
    vcq->lane_pos[vcq->lanes[i].index]   = i + 1;
    vcq->lane_pos[vcq->lanes[j].index]   = j + 1;
}

/* A lane that was never seen before; *next_p: that which was announced before it.
 * False: it could not be mapped. */
static bool lane_add(struct emu_vcq *vcq, uint32_t index, uint32_t *next_p)
{
    struct emu_rx_lane *rx;
    struct emu_lane    *lane;

    if (vcq->lane_pos == NULL) {
        vcq->lane_pos = calloc(EMU_MAX_LANES, sizeof(*vcq->lane_pos));
        if (vcq->lane_pos == NULL) {
            return false;
        }
    }
    if (vcq->num_lanes == vcq->cap_lanes) {
        uint32_t            cap   = vcq->cap_lanes ? vcq->cap_lanes * 2 : 8;
        struct emu_rx_lane *lanes = realloc(vcq->lanes, cap * sizeof(*lanes));
        if (lanes == NULL) {
            return false;
        }
        vcq->lanes     = lanes;
        vcq->cap_lanes = cap;
    }
    lane = emu_lane_map(emu_g.seg_fd, index, emu_g.env.lane_entries, emu_g.env.mrq_entries_session);
    if (lane == NULL) {
        return false;
    }
    *next_p = __atomic_load_n(&lane->next, __ATOMIC_RELAXED);
    if ((atomic_load_explicit(&lane->owner, memory_order_acquire) == 0) || (lane->vcq != vcq->index) ||
        (lane->vcq_gen != vcq->gen)) {
        munmap(lane, EMU_LANE_SIZE(emu_g.env.lane_entries)); /* not ours */
        return true;
    }
    rx         = &vcq->lanes[vcq->num_lanes];
    *rx        = (struct emu_rx_lane){.lane = lane, .index = index, .origin = lane->origin};
    rx->rd_a   = atomic_load(&lane->read_a);
    rx->rd_b   = atomic_load(&lane->read_b);
    rx->rd_x   = atomic_load(&lane->read_x);
    rx->expect = (rx->rd_a + rx->rd_b + 1) & EMU_ENTRY_SEQ_MASK;
    rx->cur    = lane_entries(lane) + (rx->rd_a & (EMU_LANE_A - 1));
    atomic_store_explicit(&lane->heat, EMU_LANE_HOT, memory_order_relaxed);
    vcq->lane_pos[index] = ++vcq->num_lanes;
    lanes_swap(vcq, vcq->num_lanes - 1, vcq->num_hot++);
    return true;
}

/* Drop the lanes of senders that are gone and whose notices were all read: of the
 * next `most` lanes. */
static void lanes_drop_closed(struct emu_vcq *vcq, uint32_t most)
{
    for (; (most > 0) && (vcq->num_lanes > 0); most--) {
        uint32_t            i  = (vcq->drop_at < vcq->num_lanes) ? vcq->drop_at : 0;
        struct emu_rx_lane *rx = &vcq->lanes[i];

        vcq->drop_at = i + 1;
        if ((atomic_load_explicit(&rx->lane->state, memory_order_acquire) != EMU_LANE_CLOSED) &&
            !owner_is_gone(atomic_load(&rx->lane->owner))) {
            continue;
        }
        if (emu_lane_has(rx)) { /* it may have died before it said so */
            if (i >= vcq->num_hot) {
                lanes_swap(vcq, i, vcq->num_hot++);
            }
            continue;
        }
        if (i < vcq->num_hot) {
            lanes_swap(vcq, i, --vcq->num_hot);
            i = vcq->num_hot;
        }
        lanes_swap(vcq, i, --vcq->num_lanes);
        rx                         = &vcq->lanes[vcq->num_lanes];
        vcq->lane_pos[rx->index]   = 0;
        emu_lane_release(rx->lane);
    }
}

#define DROP_LOOKS    32u  /* lanes examined by one refresh, and two for each new one, to keep up */
#define RECLAIM_LOOKS 128u /* the same when lanes are scarce */

/* Does nobody look at the lane, nor will?  Its producer is done with it, and did not come to
 * announce it, or its consumer went before it heard of it.  Who walks the stack of a VCQ
 * finds the lanes through each other, so none is given back that may be in one. */
static bool lane_is_lost(const struct emu_vcq *vcq, struct emu_lane *lane)
{
    uint64_t owner  = atomic_load_explicit(&lane->owner, memory_order_acquire);
    bool     closed = atomic_load_explicit(&lane->state, memory_order_acquire) == EMU_LANE_CLOSED;
    bool     gone   = (owner != 0) && owner_is_gone(owner), lost;
    uint32_t target;

    if ((owner == 0) || (!gone && !closed)) {
        return false;
    }
    target = __atomic_load_n(&lane->vcq, __ATOMIC_RELAXED);
    if (target != vcq->index) {
        /* of a VCQ that is there: that one's to judge */
        lost = (target >= EMU_MAX_VCQS) || !atomic_load(&emu_g.shm->vcq[target].taken);
    } else {
        /* Ours, or of one that had our place before.  What was closed was announced, so if it
         * is ours we have it, or shall.  After that: nothing is announced now, and by this
         * producer nothing will be. */
        lost = (gone || (lane->vcq_gen != vcq->gen)) && (atomic_load(&vcq->block->announced) == 0);
    }
    /* another VCQ may have given it back meanwhile, and then it is somebody else's */
    atomic_thread_fence(memory_order_acquire);
    return lost && (atomic_load(&lane->owner) == owner);
}

/* Senders find hardly a lane of this process that is free: give back those of ours that are done with, and
 * the lost ones.  Some at a time, since a poll waits for it; false: that was not all. */
static bool lanes_reclaim(struct emu_vcq *vcq)
{
    uint32_t entries = emu_g.env.lane_entries, session = emu_g.env.mrq_entries_session;

    lanes_drop_closed(vcq, RECLAIM_LOOKS);
    for (uint32_t n = 0; (n < RECLAIM_LOOKS) && (vcq->reclaim_at < EMU_MAX_LANES); n++) {
        uint32_t        i = vcq->reclaim_at++;
        struct emu_lane head, *lane;

        if (((vcq->lane_pos != NULL) && (vcq->lane_pos[i] != 0)) ||
            !emu_lane_peek(emu_g.seg_fd, i, entries, session, &head) || !lane_is_lost(vcq, &head)) {
            continue;
        }
        lane = emu_lane_map(emu_g.seg_fd, i, entries, session);
        if (lane == NULL) {
            continue;
        }
        emu_lock(&emu_g.lock); /* no VCQ comes now, and one of us gives it back */
        if (lane_is_lost(vcq, lane)) {
            emu_lane_release(lane);
        } else {
            munmap(lane, EMU_LANE_SIZE(entries));
        }
        emu_unlock(&emu_g.lock);
    }
    if (vcq->reclaim_at < EMU_MAX_LANES) {
        return false;
    }
    vcq->reclaim_at = 0;
    return true;
}

#define FOREIGN_MOST 64u /* lanes of other VCQs that one look maps */

/* Look at the lanes that were announced, from index `next` - 1 back; returns where to
 * go on when one could not be mapped, or too many were not ours, else 0. */
static uint32_t lanes_take(struct emu_vcq *vcq, uint32_t next)
{
    uint32_t pos, had, foreign = 0;

    /* steps: whatever a peer wrote, it ends */
    for (; (next != 0) && (next <= EMU_MAX_LANES) && (vcq->steps < EMU_MAX_LANES); vcq->steps++) {
        pos = (vcq->lane_pos != NULL) ? vcq->lane_pos[next - 1] : 0;
        if (pos != 0) {
            next = __atomic_load_n(&vcq->lanes[pos - 1].lane->next, __ATOMIC_RELAXED);
            atomic_store_explicit(&vcq->lanes[pos - 1].lane->heat, EMU_LANE_HOT, memory_order_relaxed);
            if (pos - 1 >= vcq->num_hot) {
                lanes_swap(vcq, pos - 1, vcq->num_hot++);
            }
            continue;
        }
        had = vcq->num_lanes;
        if ((foreign == FOREIGN_MOST) || !lane_add(vcq, next - 1, &next)) {
            return next;
        }
        foreign += (vcq->num_lanes == had);
    }
    vcq->steps = 0;
    return 0;
}

bool emu_lanes_hear(struct emu_vcq *vcq)
{
    vcq->retry = lanes_take(vcq, vcq->retry);
    if (vcq->retry == 0) {
        vcq->retry = lanes_take(vcq, atomic_exchange_explicit(&vcq->block->announced, 0, memory_order_acquire));
    }
    return vcq->retry == 0;
}

void emu_lanes_refresh(struct emu_vcq *vcq, uint64_t epoch)
{
    uint32_t wanted, had = vcq->num_lanes;

    if (epoch & EMU_EPOCH_OVERFLOW) {
        emu_async_error("MRQ Overflow", vcq);
    }
    if (!emu_lanes_hear(vcq)) {
        return; /* the next poll tries again */
    }
    wanted = atomic_load_explicit(&emu_g.shm->lanes_wanted, memory_order_relaxed);
    if (emu_likely(wanted == vcq->lanes_given)) {
        lanes_drop_closed(vcq, DROP_LOOKS + 2 * (vcq->num_lanes - had));
    } else {
        if (vcq->reclaim_at == 0) {
            vcq->reclaim_for = wanted;
        }
        if (!lanes_reclaim(vcq)) {
            return; /* the next poll goes on */
        }
        vcq->lanes_given = vcq->reclaim_for;
    }
    vcq->epoch = epoch;
}

#define HEAR_MOST 64u /* announcements, in one look for the earliest */

/* Where it is in the order of all senders'.  Those that wait are far fewer than there are stamps, so it is before or
 * after the latest one that was taken. */
static uint64_t lane_place(const struct emu_vcq *vcq, const struct emu_rx_lane *rx)
{
    uint64_t word = rx->cur->word;

    if (vcq->special & EMU_SPECIAL_TIMED) {
        return emu_lane_due(rx); /* as they arrive, not as they were sent */
    }
    if (!(word & EMU_ENTRY_STAMPED)) {
        return rx->stamped ? UINT64_MAX - 1 : 0; /* no honest sender's, after one that had */
    }
    return emu_stamp_after(word, vcq->stamp) + 1;
}

/* While the lanes are looked at, a notice may come into one that was found empty, and then one that was sent later into
 * one that was not looked at yet.  So the earliest that was found counts when, after that, no lane has an earlier one. */
struct emu_rx_lane *emu_lanes_earliest(struct emu_vcq *vcq)
{
    struct emu_rx_lane *first = NULL;
    uint64_t            least = UINT64_MAX, epoch, place;
    bool                found = true;
    unsigned            heard = 0;

    /* each time round it is another lane's, whatever peers write */
    for (uint32_t rounds = 0; found && (rounds <= vcq->num_hot + 1); rounds++) {
        found = false;
        epoch = atomic_load_explicit(&vcq->block->epoch, memory_order_acquire);
        if ((epoch != vcq->epoch) && (heard++ < HEAR_MOST)) {
            emu_lanes_refresh(vcq, epoch);
            first  = NULL; /* places have changed */
            least  = UINT64_MAX;
            found  = true;
            rounds = 0;
        }
        for (uint32_t i = 0; i < vcq->num_hot; i++) {
            if (!emu_lane_has(&vcq->lanes[i])) {
                vcq->looked++;
                continue;
            }
            place = lane_place(vcq, &vcq->lanes[i]);
            if (place < least) {
                least = place;
                first = &vcq->lanes[i];
                found = true;
            }
        }
    }
    if (first != NULL) {
        vcq->next_lane = (uint32_t)(first - vcq->lanes) + 1;
        if (first->cur->word & EMU_ENTRY_STAMPED) {
            emu_stamp_taken(vcq, first->cur->word);
        }
    }
    return first;
}

void emu_lanes_publish(struct emu_vcq *vcq)
{
    for (uint32_t i = 0; i < vcq->num_hot; i++) {
        struct emu_rx_lane *rx = &vcq->lanes[i];
        if (rx->unpublished) {
            atomic_store_explicit(&rx->lane->read_a, rx->rd_a, memory_order_release);
            atomic_store_explicit(&rx->lane->read_b, rx->rd_b, memory_order_release);
            atomic_store_explicit(&rx->lane->read_x, rx->rd_x, memory_order_release);
            rx->unpublished = 0;
        }
    }
    vcq->unpublished = 0;
}

/*
 * Stop looking at lanes that were silent for long, so that a poll costs the same
 * however many VCQs ever sent something.  A lane is marked cold, all processes
 * execute a fence, and it is looked at once more: who put something in before is
 * seen now, who does so after it sees the mark, and announces the lane.  The lane
 * that spoke last stays.
 */
void emu_lanes_sweep(struct emu_vcq *vcq)
{
    uint32_t last = (vcq->next_lane > 0) ? vcq->next_lane - 1 : vcq->num_hot - 1;
    uint32_t marked = 0, i;
    bool     fenced;

    vcq->looked = 0;
    if ((vcq->num_hot <= 1) || !emu_fence_reaches_all()) {
        return;
    }
    emu_lanes_publish(vcq);
    for (i = 0; i < vcq->num_hot; i++) {
        struct emu_rx_lane *rx = &vcq->lanes[i];
        uint32_t            hot = EMU_LANE_HOT;
        rx->marked = !rx->served && (i != last) &&
                     atomic_compare_exchange_strong(&rx->lane->heat, &hot, EMU_LANE_COLD);
        rx->served = 0;
        marked += rx->marked;
    }
    if (marked == 0) {
        return;
    }
    fenced = emu_fence_all();
    for (i = vcq->num_hot; i-- > 0;) { /* from the end: the last one moves here */
        struct emu_rx_lane *rx = &vcq->lanes[i];
        if (!rx->marked) {
            continue;
        }
        rx->marked = 0;
        if (!fenced || emu_lane_has(rx)) {
            /* unless its producer has announced it already */
            uint32_t cold = EMU_LANE_COLD;
            atomic_compare_exchange_strong(&rx->lane->heat, &cold, EMU_LANE_HOT);
        } else {
            lanes_swap(vcq, i, --vcq->num_hot);
        }
    }
    vcq->next_lane = 0;
}
