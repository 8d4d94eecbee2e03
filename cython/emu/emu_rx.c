/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rx.c - MRQ lanes, the consumer's side: which ones a VCQ has, and which of them
 * a poll looks at (emu_queue.c).
 */
#include "emu_rx.h"

#include <stdlib.h>
#include <sys/mman.h>

void emu_lane_release(struct emu_lane *lane)
{
    lane->vcq_gen = 0;
    atomic_store_explicit(&lane->owner, 0, memory_order_release);
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

static bool owner_is_gone(uint64_t owner)
{
    const struct emu_proc_slot *s = &emu_g.control->slot[EMU_LANE_OWNER_SLOT(owner) % EMU_MAX_PROCS];

    return (atomic_load(&s->state) != EMU_SLOT_LIVE) || ((s->gen & 0xffffffu) != EMU_LANE_OWNER_GEN(owner));
}

/* Drop the lanes of senders that are gone and whose notices were all read: of the
 * next `most` lanes. */
static void lanes_drop_closed(struct emu_vcq *vcq, uint32_t most)
{
    for (; (most > 0) && (vcq->num_lanes > 0); most--) {
        uint32_t            i  = (vcq->drop_at < vcq->num_lanes) ? vcq->drop_at : 0;
        struct emu_rx_lane *rx = &vcq->lanes[i];

        vcq->drop_at = i + 1;
        if (!atomic_load_explicit(&rx->lane->closed, memory_order_acquire) &&
            !owner_is_gone(atomic_load(&rx->lane->owner))) {
            continue;
        }
        if (emu_entry_seq(rx->cur) == rx->expect) { /* it may have died before it said so */
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

/* All lanes of this process were used at one time: give back those towards us whose
 * producers died before they announced them. */
static void lanes_reclaim(struct emu_vcq *vcq)
{
    lanes_drop_closed(vcq, vcq->num_lanes);
    for (uint32_t i = 0; i < EMU_MAX_LANES; i++) {
        struct emu_lane *lane;
        uint64_t         owner;

        if ((vcq->lane_pos != NULL) && (vcq->lane_pos[i] != 0)) {
            continue;
        }
        lane = emu_lane_map(emu_g.seg_fd, i, emu_g.env.lane_entries, emu_g.env.mrq_entries_session);
        if (lane == NULL) {
            return;
        }
        owner = atomic_load_explicit(&lane->owner, memory_order_acquire);
        /* nothing is announced: then this was not, and will not be */
        if ((owner != 0) && (lane->vcq == vcq->index) && (lane->vcq_gen == vcq->gen) && owner_is_gone(owner) &&
            (atomic_load(&vcq->block->announced) == 0)) {
            emu_lane_release(lane);
        } else {
            munmap(lane, EMU_LANE_SIZE(emu_g.env.lane_entries));
        }
    }
}

#define DROP_LOOKS 32u /* lanes examined by one refresh */

/* Look at the lanes that were announced, from index `next` - 1 back; returns where to
 * go on when one could not be mapped, else 0. */
static uint32_t lanes_take(struct emu_vcq *vcq, uint32_t next)
{
    uint32_t pos, steps;

    /* steps: whatever a peer wrote, it ends */
    for (steps = 0; (next != 0) && (next <= EMU_MAX_LANES) && (steps < EMU_MAX_LANES); steps++) {
        pos = (vcq->lane_pos != NULL) ? vcq->lane_pos[next - 1] : 0;
        if (pos != 0) {
            next = __atomic_load_n(&vcq->lanes[pos - 1].lane->next, __ATOMIC_RELAXED);
            atomic_store_explicit(&vcq->lanes[pos - 1].lane->heat, EMU_LANE_HOT, memory_order_relaxed);
            if (pos - 1 >= vcq->num_hot) {
                lanes_swap(vcq, pos - 1, vcq->num_hot++);
            }
        } else if (!lane_add(vcq, next - 1, &next)) {
            return next;
        }
    }
    return 0;
}

void emu_lanes_refresh(struct emu_vcq *vcq, uint32_t epoch)
{
    if (epoch & EMU_EPOCH_OVERFLOW) {
        emu_async_error("MRQ Overflow", vcq);
    }
    vcq->retry = lanes_take(vcq, vcq->retry);
    if (vcq->retry == 0) {
        vcq->retry = lanes_take(vcq, atomic_exchange_explicit(&vcq->block->announced, 0, memory_order_acquire));
    }
    if (vcq->retry != 0) {
        return; /* the next poll tries again */
    }
    if (atomic_load_explicit(&emu_g.shm->lanes, memory_order_relaxed) >= EMU_MAX_LANES) {
        lanes_reclaim(vcq);
    } else {
        lanes_drop_closed(vcq, DROP_LOOKS);
    }
    vcq->epoch = epoch;
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
        if (!fenced || (emu_entry_seq(rx->cur) == rx->expect)) {
            /* unless its producer has announced it already */
            uint32_t cold = EMU_LANE_COLD;
            atomic_compare_exchange_strong(&rx->lane->heat, &cold, EMU_LANE_HOT);
        } else {
            lanes_swap(vcq, i, --vcq->num_hot);
        }
    }
    vcq->next_lane = 0;
}
