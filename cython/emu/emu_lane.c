/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_lane.c - MRQ lanes, the producer's side: opened in the target's segment on
 * the first remote notice towards it.
 */
#include "emu_internal.h"

#include <fcntl.h>
#include <sys/mman.h>

struct emu_lane *emu_lane_map(int seg_fd, uint32_t index, uint32_t lane_entries, uint32_t session_entries)
{
    uint64_t size = EMU_LANE_SIZE(lane_entries);
    void    *lane = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, seg_fd,
                         (off_t)(EMU_LANES_OFF(session_entries) + index * size));

    return (lane == MAP_FAILED) ? NULL : lane;
}

void emu_lane_close(struct emu_lane *lane, uint32_t lane_entries)
{
    atomic_store_explicit(&lane->closed, 1, memory_order_release);
    munmap(lane, EMU_LANE_SIZE(lane_entries));
}

/* Fresh lanes first; one that was used before is emptied. */
int emu_lane_open(struct emu_peer *peer, uint64_t owner, uint64_t origin, struct emu_lane_tx *tx, uint32_t *index_p)
{
    struct emu_process *shm     = peer->proc->shm;
    uint32_t            entries = peer->proc->lane_entries, session = peer->proc->session_entries;
    uint32_t            limit = __atomic_load_n(&peer->block->mrq_entries, __ATOMIC_RELAXED);
    uint64_t            size;
    struct emu_lane    *lane;
    uint32_t            index;

    if ((limit < 2048) || (limit > entries)) {
        return UTOFU_ERR_MRQ_PEER;
    }
    size  = EMU_LANE_SIZE(entries);
    index = atomic_load(&shm->lanes);
    while ((index < EMU_MAX_LANES) && !atomic_compare_exchange_weak(&shm->lanes, &index, index + 1)) {
    }
    if (index < EMU_MAX_LANES) {
        lane = emu_lane_map(peer->proc->seg_fd, index, entries, session);
        if (lane == NULL) {
            return UTOFU_ERR_OUT_OF_MEMORY;
        }
    } else {
        for (index = 0; index < EMU_MAX_LANES; index++) {
            uint64_t none = 0;
            lane          = emu_lane_map(peer->proc->seg_fd, index, entries, session);
            if (lane == NULL) {
                return UTOFU_ERR_OUT_OF_MEMORY;
            }
            if ((atomic_load(&lane->owner) == 0) && atomic_compare_exchange_strong(&lane->owner, &none, owner)) {
                break;
            }
            munmap(lane, size);
        }
        if (index == EMU_MAX_LANES) {
            /* the target drops those of senders that are gone */
            atomic_fetch_add_explicit(&peer->block->epoch, 1, memory_order_acq_rel);
            return UTOFU_ERR_FULL;
        }
        fallocate(peer->proc->seg_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(EMU_LANES_OFF(session) + index * size), (off_t)size);
    }
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
    atomic_store_explicit(&lane->owner, owner, memory_order_release);
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
    /* the overflow bit is kept; 2^31 announcements are out of reach */
    atomic_fetch_add_explicit(&target->epoch, 1, memory_order_acq_rel);
}

void emu_lane_heat(struct emu_vcq_block *target, struct emu_lane *lane)
{
    uint32_t cold = EMU_LANE_COLD;

    if (atomic_compare_exchange_strong(&lane->heat, &cold, EMU_LANE_ANNOUNCED)) {
        emu_lane_announce(target, lane, lane->index);
    }
}

struct emu_lane_entry *emu_lane_next(struct emu_lane_tx *tx)
{
    struct emu_lane_entry *a = (struct emu_lane_entry *)((char *)tx->lane + EMU_LANE_HEAD);
    struct emu_lane_entry *b = a + EMU_LANE_A;

    tx->known_a = atomic_load_explicit(&tx->lane->read_a, memory_order_acquire);
    if (tx->wr_a - tx->known_a < EMU_LANE_A) {
        return &a[tx->wr_a & (EMU_LANE_A - 1)];
    }
    tx->known_b = atomic_load_explicit(&tx->lane->read_b, memory_order_acquire);
    tx->known_x = atomic_load_explicit(&tx->lane->read_x, memory_order_acquire);
    /* the MRQ is full when it holds `limit` notices, however many entries they take */
    if ((tx->wr_b - tx->known_b >= tx->entries - 1) ||
        (tx->wr_b - tx->known_b >= tx->limit + (tx->wr_x - tx->known_x))) {
        return NULL;
    }
    return &b[tx->wr_b & (tx->entries - 1)];
}
