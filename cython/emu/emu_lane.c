/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_lane.c - MRQ lanes, the producer's side: opened in the target's segment on
 * the first remote notice towards it.
 */
#include "emu_job.h"
#include "emu_path.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct emu_lane *emu_lane_map(int seg_fd, uint32_t index, uint32_t lane_entries, uint32_t session_entries)
{
    uint64_t size = EMU_LANE_SIZE(lane_entries);
    void    *lane = emu_segment_map(seg_fd, EMU_LANES_OFF(session_entries) + index * size, size, PROT_READ | PROT_WRITE);

    return (lane == MAP_FAILED) ? NULL : lane;
}

bool emu_lane_peek(int seg_fd, uint32_t index, uint32_t lane_entries, uint32_t session_entries, struct emu_lane *head)
{
    size_t n = offsetof(struct emu_lane, pad0);

    return pread(seg_fd, head, n, (off_t)(EMU_LANES_OFF(session_entries) + index * EMU_LANE_SIZE(lane_entries))) ==
           (ssize_t)n;
}

void emu_lane_give_back(struct emu_lane *lane, uint32_t lane_entries)
{
    /* what is in its rings nobody reads any more; who has the lane next may not come for long */
    madvise((char *)lane + EMU_LANE_HEAD, EMU_LANE_SIZE(lane_entries) - EMU_LANE_HEAD, MADV_REMOVE);
    lane->vcq_gen = 0;
    /* before it is free: who claims it is not to be taken for one that has closed it */
    atomic_store_explicit(&lane->state, EMU_LANE_OPEN, memory_order_relaxed);
    atomic_store_explicit(&lane->owner, 0, memory_order_release);
}

void emu_lane_close(struct emu_lane *lane, uint32_t lane_entries)
{
    uint32_t state = atomic_load(&lane->state);

    while ((state != EMU_LANE_LEFT) && !atomic_compare_exchange_weak(&lane->state, &state, EMU_LANE_CLOSED)) {
    }
    if (state == EMU_LANE_LEFT) {
        emu_lane_give_back(lane, lane_entries);
    }
    munmap(lane, EMU_LANE_SIZE(lane_entries));
}

/* Where to look for a lane: at those that nobody ever had, then all round */
static uint32_t next_index(struct emu_process *shm)
{
    uint32_t index = atomic_load(&shm->lanes);

    while ((index < EMU_MAX_LANES) && !atomic_compare_exchange_weak(&shm->lanes, &index, index + 1)) {
    }
    return (index < EMU_MAX_LANES) ? index : atomic_fetch_add(&shm->lane_turn, 1) % EMU_MAX_LANES;
}

#define SCARCE 256u /* lanes that were looked at in vain */

/* Hardly one is free, or none: whatever VCQ of the process polls gives back those whose
 * senders are gone. */
static void want_lanes(struct emu_peer_process *proc)
{
    atomic_fetch_add(&proc->shm->lanes_wanted, 1);
    for (unsigned v = 0; v < EMU_MAX_VCQS; v++) {
        if (atomic_load(&emu_g.control->vcq_gen[proc->slot][v]) & 1) {
            atomic_fetch_add_explicit(&proc->shm->vcq[v].epoch, 1, memory_order_acq_rel);
        }
    }
}

/* Empty the rings of a lane that is ours and was another's.  The head stays: without an owner
 * it would be anybody's. */
static void lane_empty(int seg_fd, struct emu_lane *lane, off_t offset, uint64_t size)
{
    if (fallocate(seg_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset + (off_t)EMU_LANE_HEAD,
                  (off_t)(size - EMU_LANE_HEAD))) {
        memset((char *)lane + EMU_LANE_HEAD, 0, size - EMU_LANE_HEAD);
    }
    atomic_store_explicit(&lane->read_a, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->read_b, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->read_x, 0, memory_order_relaxed);
}

int emu_lane_open(struct emu_peer *peer, uint64_t owner, uint64_t origin, struct emu_lane_tx *tx, uint32_t *index_p)
{
    struct emu_process *shm     = peer->proc->shm;
    uint32_t            entries = peer->proc->lane_entries, session = peer->proc->session_entries;
    uint32_t            limit = __atomic_load_n(&peer->block->mrq_entries, __ATOMIC_RELAXED);
    uint64_t            size  = EMU_LANE_SIZE(entries);
    struct emu_lane    *lane  = NULL, head;
    uint32_t            index = 0;

    if ((limit < 2048) || (limit > entries)) {
        return UTOFU_ERR_MRQ_PEER;
    }
    for (unsigned tries = 0; (lane == NULL) && (tries < EMU_MAX_LANES); tries++) {
        uint64_t none = 0;

        if (tries == SCARCE) {
            want_lanes(peer->proc);
        }
        index = next_index(shm);
        if (!emu_lane_peek(peer->proc->seg_fd, index, entries, session, &head) || (atomic_load(&head.owner) != 0)) {
            continue;
        }
        lane = emu_lane_map(peer->proc->seg_fd, index, entries, session);
        if (lane == NULL) {
            return UTOFU_ERR_OUT_OF_MEMORY;
        }
        /* from here on it is ours, until both sides are done with it */
        if (!atomic_compare_exchange_strong(&lane->owner, &none, owner)) {
            munmap(lane, size);
            lane = NULL;
        }
    }
    if (lane == NULL) {
        return UTOFU_ERR_FULL;
    }
    if (lane->used) {
        lane_empty(peer->proc->seg_fd, lane, (off_t)(EMU_LANES_OFF(session) + index * size), size);
    }
    lane->used    = 1;
    lane->index   = index;
    atomic_store_explicit(&lane->heat, EMU_LANE_ANNOUNCED, memory_order_relaxed);
    lane->vcq     = peer->vcq;
    lane->vcq_gen = peer->gen;
    lane->origin  = origin;
    *tx           = (struct emu_lane_tx){.lane    = lane,
                                         .next    = (struct emu_lane_entry *)((char *)lane + EMU_LANE_HEAD),
                                         .entries = EMU_LANE_B(entries),
                                         .limit   = limit};
    *index_p      = index;
    emu_stamps_begin(peer->block); /* before it is announced */
    if (tx != &peer->tx) { /* carriers have theirs elsewhere, and nobody closes it after its reader left */
        atomic_store_explicit(&lane->state, EMU_LANE_CARRIED, memory_order_relaxed);
    }
    emu_lane_announce(peer->block, lane, index);
    return UTOFU_SUCCESS;
}

void emu_lane_announce(struct emu_vcq_block *target, struct emu_lane *lane, uint32_t index)
{
    uint32_t head = atomic_load_explicit(&target->announced, memory_order_relaxed);

    do {
        __atomic_store_n(&lane->next, head, __ATOMIC_RELAXED);
    } while (!atomic_compare_exchange_weak_explicit(&target->announced, &head, index + 1, memory_order_release,
                                                    memory_order_relaxed));
    /* the overflow bit is kept */
    atomic_fetch_add_explicit(&target->epoch, 1, memory_order_acq_rel);
}

void emu_lane_heat(struct emu_vcq_block *target, struct emu_lane *lane)
{
    uint32_t cold = EMU_LANE_COLD;

    if (atomic_compare_exchange_strong(&lane->heat, &cold, EMU_LANE_ANNOUNCED)) {
        emu_lane_announce(target, lane, lane->index);
    }
}

/* What a place has had before must not have the number of what comes next.  A place of ring A is used again when it
 * was read, and then all entries since are unread or those of A: fewer than there are numbers.  A place of ring B may
 * have been left alone for any time, or never used, which looks like number 0; so that is looked at. */
_Static_assert(EMU_LANE_A + 2 * EMU_LANE_B(EMU_MRQ_MAX) < EMU_ENTRY_SEQ_MASK, "numbers of entries differ");

struct emu_lane_entry *emu_lane_next(struct emu_lane_tx *tx)
{
    struct emu_lane_entry *a = (struct emu_lane_entry *)((char *)tx->lane + EMU_LANE_HEAD);
    struct emu_lane_entry *b = a + EMU_LANE_A;

    tx->known_a = atomic_load_explicit(&tx->lane->read_a, memory_order_acquire);
    if (tx->wr_a - tx->known_a < EMU_LANE_A) {
        return &a[tx->wr_a & (EMU_LANE_A - 1)];
    }
    /* x first, which is written last: an old one lets in more than a new one, and never less than is right */
    tx->known_x = atomic_load_explicit(&tx->lane->read_x, memory_order_acquire);
    tx->known_b = atomic_load_explicit(&tx->lane->read_b, memory_order_acquire);
    /* the MRQ is full when it holds `limit` notices, however many entries they take */
    if ((tx->wr_b - tx->known_b >= tx->entries - 1) ||
        (tx->wr_b - tx->known_b >= tx->limit + (tx->wr_x - tx->known_x))) {
        return NULL;
    }
    b += tx->wr_b & (tx->entries - 1);
    if (b->word >> EMU_ENTRY_SEQ_SHIFT == ((tx->wr_a + tx->wr_b + 1) & EMU_ENTRY_SEQ_MASK)) {
        /* no number is that; the entry that says that this place is next is stored later */
        __atomic_store_n(&b->word, EMU_SECOND, __ATOMIC_RELAXED);
    }
    return b;
}

bool emu_lane_pair(struct emu_vcq *vcq, struct emu_lane_tx *tx, uint64_t lcl_stadd, uint64_t due,
                   struct emu_lane_entry **entry_p, uint64_t *word_p)
{
    struct emu_lane_tx     before = *tx;
    struct emu_lane_entry *second;
    uint64_t               word;

    if (!emu_lane_entry(vcq, tx, entry_p, word_p) || !emu_lane_entry(vcq, tx, &second, &word)) {
        *tx = before;
        return false;
    }
    tx->wr_x++;
    second->stadd = lcl_stadd;
    second->word  = emu_second_word(due) | (word & EMU_ENTRY_NEXT_B);
    *word_p |= EMU_ENTRY_PAIR;
    return true;
}
