/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_senders_late.c - an MRQ with several senders, of which some store their notices late, or lie about them, or
 * about their lanes.  The test stores them in their names.
 */
#include "harness.h"

#include "own.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { SLOT = 8, LATE = 3 };

static uint64_t words[64] __attribute__((aligned(256)));

static struct emu_vcq_block *block_of(struct emu_process *shm, utofu_vcq_id_t id)
{
    for (unsigned v = 0; v < EMU_MAX_VCQS; v++) {
        if (shm->vcq[v].vcq_id == id) {
            return &shm->vcq[v];
        }
    }
    CONF_FAIL("no block");
}

static struct emu_lane *lane_of(struct emu_process *shm, utofu_vcq_id_t origin, uint32_t *index_p)
{
    for (unsigned i = 0; i < shm->lanes; i++) {
        struct emu_lane *lane = (struct emu_lane *)(void *)((char *)shm + EMU_LANES_OFF(shm->session_entries) +
                                                            i * EMU_LANE_SIZE(shm->lane_entries));
        if (lane->origin == origin) {
            *index_p = i;
            return lane;
        }
    }
    CONF_FAIL("no lane");
}

static struct emu_lane_entry *entry_of(struct emu_lane *lane, unsigned n)
{
    return (struct emu_lane_entry *)(void *)((char *)lane + EMU_LANE_HEAD) + n;
}

/* As senders do: a lane that its reader may not look at is put before those that were announced. */
static void announce(struct emu_vcq_block *block, struct emu_lane *lane, uint32_t index)
{
    uint32_t head = atomic_load(&block->announced);

    do {
        lane->next = head;
    } while (!atomic_compare_exchange_weak(&block->announced, &head, index + 1));
    atomic_fetch_add(&block->epoch, 1);
}

static struct {
    struct emu_lane      *lane[LATE];
    uint32_t              index[LATE];
    uint64_t              word[LATE];
    struct emu_vcq_block *block;
    _Atomic int           go;
} held;

static void *store_late(void *arg)
{
    (void)arg;
    while (!held.go) {
    }
    for (double end = conf_now() + 300e-6; conf_now() < end;) {
    }
    for (unsigned i = 0; i < LATE; i++) {
        uint32_t cold = EMU_LANE_COLD;

        __atomic_store_n(&entry_of(held.lane[i], 1)->word, held.word[i], __ATOMIC_RELEASE);
        if (atomic_compare_exchange_strong(&held.lane[i]->heat, &cold, EMU_LANE_ANNOUNCED)) {
            announce(held.block, held.lane[i], held.index[i]);
        }
    }
    return NULL;
}

CONF_TEST("senders", local_notice_beside_late_ones_of_cold_lanes, 1,
          "remote notices that are stored late, by senders that were silent for long, keep no other one from coming "
          "before the local one")
{
    enum { NUM = 100000 };
    struct utofu_mrq_notice notice;
    struct emu_process     *shm;
    struct conf_vcq         from[LATE + 1], to;
    utofu_stadd_t           mine, rmt;
    pthread_t               thread;
    unsigned                before = 0, cold = 0;
    void                   *cbdata;

    conf_vcq_create(&to, 0, 0);
    mine = conf_reg(&to, words, sizeof(words), 0);
    for (unsigned s = 0; s <= LATE; s++) {
        conf_vcq_create(&from[s], s + 1, 0);
        CONF_OK(utofu_put_piggyback8(from[s].hdl, to.id, 1, mine, SLOT, s, CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&to, UTOFU_MRQ_TYPE_RMT_PUT, from[s].id, s, NULL);
    }
    rmt        = conf_reg(&from[LATE], words, sizeof(words), 0);
    shm        = own_segment();
    held.block = block_of(shm, to.id);
    for (unsigned i = 0; i < LATE; i++) {
        held.lane[i] = lane_of(shm, from[i].id, &held.index[i]);
    }
    for (unsigned i = 0; (i < 1000000) && (cold < LATE); i++) {
        cold = 0;
        for (unsigned k = 0; k < LATE; k++) {
            cold += held.lane[k]->heat == EMU_LANE_COLD;
        }
        CONF_CODE(utofu_poll_mrq(to.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    }
    for (unsigned i = 0; i < LATE; i++) { /* they have their stamps */
        held.word[i] = (uint64_t)2 << EMU_ENTRY_SEQ_SHIFT | EMU_ENTRY_STAMPED |
                       (uint64_t)held.block->stamps++ << EMU_ENTRY_STAMP_SHIFT | (uint64_t)UTOFU_MRQ_TYPE_RMT_PUT << 8 |
                       (40 + i);
        entry_of(held.lane[i], 1)->stadd = mine + SLOT;
    }
    CONF_CHECK(!pthread_create(&thread, NULL, store_late, NULL), "pthread_create");
    for (unsigned i = 0; i < NUM; i++) {
        CONF_OK(utofu_put_piggyback8(from[LATE].hdl, to.id, 1, mine, SLOT, i % 256, CONF_RMRQ, NULL));
        if (i % 1024 == 0) {
            CONF_CODE(utofu_poll_tcq(from[LATE].hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        }
    }
    held.go = 1;
    CONF_POST(to.hdl, utofu_put(to.hdl, from[LATE].id, mine, rmt, SLOT, 1, CONF_LMRQ, NULL));
    do {
        CONF_OK(CONF_WAIT_MRQ(&to, &notice));
        before += (notice.vcq_id == from[LATE].id) && (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT);
    } while (notice.notice_type != UTOFU_MRQ_TYPE_LCL_PUT);
    CONF_CHECK(before == NUM, "%u of %u", before, NUM);
    pthread_join(thread, NULL);
    munmap(shm, shm->size);
    for (unsigned s = 0; s <= LATE; s++) {
        conf_vcq_close(&from[s]);
    }
    conf_vcq_close(&to);
}

CONF_TEST("senders", senders_beside_a_false_stamp, 1, "one whose stamp is false does not change the order of others' notices")
{
    struct utofu_mrq_notice notice;
    struct emu_process     *shm;
    struct conf_vcq         from[3], to;
    struct emu_lane_entry  *e;
    utofu_stadd_t           rmt;
    uint32_t                index;
    unsigned                next = 10;

    conf_vcq_create(&to, 0, 0);
    rmt = conf_reg(&to, words, sizeof(words), 0);
    for (unsigned s = 0; s < 3; s++) {
        conf_vcq_create(&from[s], s + 1, 0);
        CONF_OK(utofu_put_piggyback8(from[s].hdl, to.id, 1, rmt, SLOT, s, CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&to, UTOFU_MRQ_TYPE_RMT_PUT, from[s].id, s, NULL);
    }
    shm = own_segment();
    e   = entry_of(lane_of(shm, from[2].id, &index), 1);
    for (unsigned i = 0; i < 6; i++) {
        CONF_OK(utofu_put_piggyback8(from[i % 2].hdl, to.id, 1, rmt, SLOT, 10 + i, CONF_RMRQ, NULL));
    }
    CONF_OK(utofu_put_piggyback8(from[2].hdl, to.id, 1, rmt, SLOT, 99, CONF_RMRQ, NULL));
    /* as far as can be from the first one that waits, so that the others seem to come before that */
    e->word = (e->word & ~(EMU_ENTRY_STAMP_MASK << EMU_ENTRY_STAMP_SHIFT)) |
              (((block_of(shm, to.id)->stamps - 7) ^ 0x800000) & EMU_ENTRY_STAMP_MASK) << EMU_ENTRY_STAMP_SHIFT;
    for (unsigned i = 0; i < 7; i++) {
        CONF_OK(CONF_WAIT_MRQ(&to, &notice));
        CONF_CHECK((notice.edata == 99) || (notice.edata == next), "notice %u has EDATA %d, expected %u", i,
                   (int)notice.edata, next);
        next += notice.edata != 99;
    }
    munmap(shm, shm->size);
    for (unsigned s = 0; s < 3; s++) {
        conf_vcq_close(&from[s]);
    }
    conf_vcq_close(&to);
}

CONF_TEST("senders", lanes_of_others_without_end, 1,
          "who announces a lane of another VCQ, that leads to itself, does not hold polls up, and hides nobody")
{
    struct utofu_mrq_notice notice;
    struct emu_process     *shm;
    struct conf_vcq         from[2], other, to;
    struct rusage           before, after;
    struct emu_lane        *lane;
    utofu_stadd_t           rmt, elsewhere;
    uint32_t                index;

    conf_vcq_create(&to, 0, 0);
    conf_vcq_create(&other, 1, 0);
    rmt       = conf_reg(&to, words, sizeof(words), 0);
    elsewhere = conf_reg(&other, words, sizeof(words), 0);
    for (unsigned s = 0; s < 2; s++) {
        conf_vcq_create(&from[s], s + 2, 0);
    }
    CONF_OK(utofu_put_piggyback8(from[0].hdl, other.id, 1, elsewhere, SLOT, 1, CONF_RMRQ, NULL));
    CONF_EXPECT_MRQ(&other, UTOFU_MRQ_TYPE_RMT_PUT, from[0].id, 1, NULL);
    shm  = own_segment();
    lane = lane_of(shm, from[0].id, &index);
    announce(block_of(shm, to.id), lane, index);
    lane->next = index + 1;
    getrusage(RUSAGE_SELF, &before);
    CONF_CODE(utofu_poll_mrq(to.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    getrusage(RUSAGE_SELF, &after);
    CONF_CHECK(after.ru_minflt - before.ru_minflt < 1000, "%ld faults in one poll", after.ru_minflt - before.ru_minflt);
    CONF_OK(utofu_put_piggyback8(from[1].hdl, to.id, 1, rmt, SLOT, 2, CONF_RMRQ, NULL));
    CONF_EXPECT_MRQ(&to, UTOFU_MRQ_TYPE_RMT_PUT, from[1].id, 2, NULL);
    munmap(shm, shm->size);
    for (unsigned s = 0; s < 2; s++) {
        conf_vcq_close(&from[s]);
    }
    conf_vcq_close(&other);
    conf_vcq_close(&to);
}
