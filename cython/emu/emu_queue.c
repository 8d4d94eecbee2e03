/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_queue.c - completion: TCQ, local MRQ notices, MRQ lanes (3.7.4, 3.7.5).
 *
 * An operation is carried out while it is posted, so its TCQ entry and its local
 * notice are in queues that only this VCQ touches.  Remote notices arrive through
 * one lane per remote VCQ, found by the lane's announcement in the VCQ block.
 * Local notices are returned first: a process that put and whose peer answers by
 * a put sees its own local notice before the peer's remote one.
 */
#include "emu_internal.h"
#include "emu_modes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MRQ_FIRST_SIZE 1024u
#define PATIENCE       8u  /* empty polls after which a program waits for an answer */
#define SWEEP_AFTER  65536u /* looks in vain after which silent lanes are looked for */
#define PUBLISH_PAUSE 256u /* empty polls after which they are stored, too */
#define PUBLISH_EVERY  64u /* entries read between stores of the read counters */

int emu_queue_init(struct emu_vcq *vcq)
{
    vcq->mrq_size = MRQ_FIRST_SIZE;
    vcq->mrq      = calloc(vcq->mrq_size, sizeof(*vcq->mrq));
    return (vcq->mrq == NULL) ? UTOFU_ERR_OUT_OF_MEMORY : UTOFU_SUCCESS;
}

/* Give a lane of this process back; it may be used again. */
static void lane_release(struct emu_lane *lane)
{
    lane->vcq_gen = 0;
    atomic_store_explicit(&lane->owner, 0, memory_order_release);
    munmap(lane, EMU_LANE_SIZE(emu_g.env.lane_entries));
}

void emu_queue_fini(struct emu_vcq *vcq)
{
    for (uint32_t i = 0; i < vcq->num_lanes; i++) {
        lane_release(vcq->lanes[i].lane); /* its producer sees that the VCQ is gone */
    }
    free(vcq->lanes);
    free(vcq->lane_pos);
    free(vcq->mrq);
    vcq->lanes     = NULL;
    vcq->mrq       = NULL;
    vcq->lane_pos  = NULL;
    vcq->num_lanes = 0;
    vcq->num_hot   = 0;
}

void emu_mrq_grow(struct emu_vcq *vcq)
{
    uint32_t              n = vcq->mrq_tail - vcq->mrq_head;
    struct emu_mrq_entry *mrq;

    if (n >= vcq->mrq_entries) {
        emu_async_error("MRQ Overflow", vcq);
    }
    mrq = calloc((size_t)vcq->mrq_size * 2, sizeof(*mrq));
    if (mrq == NULL) {
        emu_async_error("out of memory for the MRQ", vcq);
    }
    for (uint32_t i = 0; i < n; i++) {
        mrq[i] = vcq->mrq[(vcq->mrq_head + i) & (vcq->mrq_size - 1)];
    }
    free(vcq->mrq);
    vcq->mrq       = mrq;
    vcq->mrq_head  = 0;
    vcq->mrq_tail  = n;
    vcq->mrq_size *= 2;
}

/* ------------------------------------------------------ lanes, consumer side */

EMU_INLINE uint64_t entry_seq(const struct emu_lane_entry *e)
{
    return __atomic_load_n(&e->word, __ATOMIC_ACQUIRE) >> EMU_ENTRY_SEQ_SHIFT;
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
        if (entry_seq(rx->cur) == rx->expect) { /* it may have died before it said so */
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
        lane_release(rx->lane);
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
            lane_release(lane);
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

/* Peers have announced lanes, or that one of them found the MRQ full. */
static EMU_NOINLINE void lanes_refresh(struct emu_vcq *vcq, uint32_t epoch)
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

/* Let producers know how far we are */
static __attribute__((noinline)) void lanes_publish(struct emu_vcq *vcq)
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
static EMU_NOINLINE void lanes_sweep(struct emu_vcq *vcq)
{
    uint32_t last = (vcq->next_lane > 0) ? vcq->next_lane - 1 : vcq->num_hot - 1;
    uint32_t marked = 0, i;
    bool     fenced;

    vcq->looked = 0;
    if ((vcq->num_hot <= 1) || !emu_fence_reaches_all()) {
        return;
    }
    lanes_publish(vcq);
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
        if (!fenced || (entry_seq(rx->cur) == rx->expect)) {
            /* unless its producer has announced it already */
            uint32_t cold = EMU_LANE_COLD;
            atomic_compare_exchange_strong(&rx->lane->heat, &cold, EMU_LANE_HOT);
        } else {
            lanes_swap(vcq, i, --vcq->num_hot);
        }
    }
    vcq->next_lane = 0;
}

/* Step over the entry at hand; returns its word. */
EMU_INLINE uint64_t lane_step(struct emu_rx_lane *rx)
{
    struct emu_lane_entry *a = (struct emu_lane_entry *)((char *)rx->lane + EMU_LANE_HEAD);
    struct emu_lane_entry *b = a + EMU_LANE_A;
    uint64_t               word = rx->cur->word;

    if (emu_likely(rx->cur < b)) {
        rx->rd_a++;
    } else {
        rx->rd_b++;
    }
    rx->cur    = emu_unlikely(word & EMU_ENTRY_NEXT_B) ? &b[rx->rd_b & (EMU_LANE_B(emu_g.env.lane_entries) - 1)] :
                                                         &a[rx->rd_a & (EMU_LANE_A - 1)];
    rx->expect = (rx->expect + 1) & EMU_ENTRY_SEQ_MASK;
    return word;
}

/* Where the data of a put ends, which its notice names; only for prefetching */
EMU_INLINE uint64_t last_byte(const struct emu_vcq *vcq, uint64_t stadd)
{
    const struct emu_stag *s = &vcq->stags[EMU_STADD_STAG(stadd)];

    return s->addr + (EMU_STADD_OFF(stadd) - s->begin) - 1;
}

EMU_INLINE void lane_take(struct emu_vcq *vcq, struct emu_rx_lane *rx, struct utofu_mrq_notice *notice)
{
    uint64_t stadd = rx->cur->stadd, lcl_stadd = 0, word = lane_step(rx);

    if (emu_unlikely(word & EMU_ENTRY_PAIR)) {
        if (EMU_ENTRY_TYPE(word) == UTOFU_MRQ_TYPE_RMT_GET) {
            lcl_stadd = rx->cur->stadd;
        }
        lane_step(rx);
        rx->rd_x++;
    }
    *notice = (struct utofu_mrq_notice){.notice_type = EMU_ENTRY_TYPE(word),
                                        .vcq_id      = rx->origin,
                                        .edata       = EMU_ENTRY_EDATA(word),
                                        .lcl_stadd   = lcl_stadd,
                                        .rmt_stadd   = stadd};
    vcq->empty_polls = 0;
    /* the next one may come to the same place, or as far on as this one from the last */
    vcq->warm = (const char *)(uintptr_t)(last_byte(vcq, stadd) + (stadd - vcq->warm_stadd));
    vcq->warm_stadd = stadd;
    rx->served = 1;
    rx->unpublished++;
    if (++vcq->unpublished >= PUBLISH_EVERY) {
        lanes_publish(vcq);
    }
}

/* When the notice at hand may be seen, in ticks (timed mode); 0: at once */
static uint64_t lane_due(const struct emu_rx_lane *rx)
{
    struct emu_rx_lane look = *rx; /* goes ahead, takes nothing */
    uint64_t           word = lane_step(&look);

    return ((word & EMU_ENTRY_PAIR) && (EMU_ENTRY_TYPE(word) != UTOFU_MRQ_TYPE_RMT_GET)) ? look.cur->stadd : 0;
}

/* Notices in the queue: local ones, and of each lane what is next */
static size_t mrq_unread(struct emu_vcq *vcq)
{
    uint32_t epoch = atomic_load_explicit(&vcq->block->epoch, memory_order_acquire);
    size_t   n     = vcq->mrq_tail - vcq->mrq_head;

    if (vcq->session != NULL) {
        n += emu_session_unread_local(vcq);
    }
    if (epoch != vcq->epoch) {
        lanes_refresh(vcq, epoch);
    }
    for (uint32_t k = 0; k < vcq->num_hot; k++) {
        struct emu_rx_lane look = vcq->lanes[k]; /* goes ahead, takes nothing */

        while (entry_seq(look.cur) == look.expect) {
            if (lane_step(&look) & EMU_ENTRY_PAIR) {
                lane_step(&look);
            }
            n++;
        }
    }
    return n;
}

/* The next lane with something to take, from the one after the lane served last, so
 * that no sender starves another; NULL: none */
EMU_INLINE struct emu_rx_lane *lane_ready(struct emu_vcq *vcq)
{
    uint32_t epoch = atomic_load_explicit(&vcq->block->epoch, memory_order_acquire);
    uint32_t n, i;

    if (emu_unlikely(epoch != vcq->epoch)) {
        lanes_refresh(vcq, epoch);
    }
    if (emu_unlikely(vcq->looked >= SWEEP_AFTER)) {
        lanes_sweep(vcq);
    }
    n = vcq->num_hot;
    i = vcq->next_lane;
    for (uint32_t k = 0; k < n; k++) {
        if (i >= n) {
            i = 0;
        }
        struct emu_rx_lane *rx = &vcq->lanes[i];
        i++;
        if (entry_seq(rx->cur) == rx->expect) {
            vcq->next_lane = i;
            vcq->looked += k;
            return rx;
        }
    }
    vcq->looked += n;
    return NULL;
}

bool emu_queue_quiet(struct emu_vcq *vcq)
{
    uint32_t next  = vcq->next_lane;
    bool     quiet = (vcq->mrq_head == vcq->mrq_tail) && (lane_ready(vcq) == NULL);

    vcq->next_lane = next; /* nothing was taken */
    /* a lane was announced that could not be mapped, or that came just now */
    quiet = quiet && (atomic_load(&vcq->block->epoch) == vcq->epoch);
    return quiet && ((vcq->wire != NULL) ? !emu_wire_tcq_ready(vcq) : (vcq->tcq_head == vcq->tcq_tail));
}

/* Counting takes long when there is much: now and then, and after every pause */
static bool check_is_due(struct emu_vcq *vcq)
{
    struct timespec ts;
    uint64_t        now;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    now = (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
    if ((now - vcq->counted_at < 1000) && (++vcq->counted_polls < 256)) {
        return false;
    }
    vcq->counted_at    = now;
    vcq->counted_polls = 0;
    return true;
}

/* The same for a special VCQ (locked) */
static EMU_NOINLINE int poll_mrq_special(struct emu_vcq *vcq, struct utofu_mrq_notice *notice)
{
    uint32_t            limit = emu_inject_mrq();
    bool                timed = (vcq->special & EMU_SPECIAL_TIMED) != 0;
    struct emu_rx_lane *rx;
    int                 code = UTOFU_ERR_NOT_FOUND;

    /* the strict mode counts the notices of all senders together, as an MRQ does */
    if (((vcq->special & EMU_SPECIAL_WIRE) || (limit != 0)) && check_is_due(vcq) &&
        (mrq_unread(vcq) > ((limit != 0) ? limit : vcq->mrq_entries))) {
        emu_async_error("MRQ Overflow", vcq);
    }
    if (vcq->mrq_head != vcq->mrq_tail) {
        struct emu_mrq_entry *m = &vcq->mrq[vcq->mrq_head & (vcq->mrq_size - 1)];
        if (!timed || emu_timing_polled(m->due)) {
            vcq->mrq_head++;
            *notice = m->notice;
            code    = m->code;
            goto out;
        }
    }
    if ((vcq->session != NULL) && emu_session_poll_local(vcq, notice, &code)) {
        goto out;
    }
    rx = lane_ready(vcq);
    if (rx == NULL) {
        if (vcq->unpublished) {
            lanes_publish(vcq);
        }
        if (vcq->special & EMU_SPECIAL_WIRE) {
            emu_wire_idle(vcq);
        }
        goto out;
    }
    if (vcq->session != NULL) {
        /* It may be the answer to a Put whose local notice is just being written by
         * its carrier; that notice comes first. */
        if (!emu_session_idle(vcq) || emu_session_poll_local(vcq, notice, &code)) {
            goto out;
        }
    }
    if (timed) {
        /* the way of the data to this CPU is no part of what comes after the notice */
        __builtin_prefetch((const void *)(uintptr_t)last_byte(vcq, rx->cur->stadd));
        if (!emu_timing_remote(lane_due(rx))) {
            goto out;
        }
        /* The target's clock may be ahead of ours: still, our own notice comes before
         * its answer. */
        for (uint32_t i = vcq->mrq_head; i != vcq->mrq_tail; i++) {
            if (vcq->mrq[i & (vcq->mrq_size - 1)].notice.vcq_id == rx->origin) {
                struct emu_mrq_entry *m = &vcq->mrq[vcq->mrq_head++ & (vcq->mrq_size - 1)];
                *notice                 = m->notice;
                code                    = m->code;
                goto out;
            }
        }
    }
    lane_take(vcq, rx, notice);
    code = UTOFU_SUCCESS;
out:
    if (timed && (code == UTOFU_ERR_NOT_FOUND)) {
        emu_timing_poll_empty();
    }
    if (emu_unlikely(vcq->bell != NULL) && (code == UTOFU_ERR_NOT_FOUND)) {
        emu_doorbell_polled(vcq);
    }
    if (vcq->special & EMU_SPECIAL_STATS) {
        emu_stats_poll(vcq, true, code);
    }
    return code;
}

static EMU_NOINLINE int poll_tcq_special(struct emu_vcq *vcq, void **cbdata)
{
    int code = UTOFU_ERR_NOT_FOUND;

    if (vcq->session != NULL) {
        code = emu_session_poll_tcq(vcq, cbdata);
    } else if (vcq->special & EMU_SPECIAL_WIRE) {
        code = emu_wire_poll_tcq(vcq, cbdata);
    } else {
        if (vcq->tcq_head != vcq->tcq_tail) {
            struct emu_tcq_entry *t = &vcq->tcq[vcq->tcq_head % EMU_TOQ_ENTRIES];
            if (!(vcq->special & EMU_SPECIAL_TIMED) || emu_timing_polled(t->due)) {
                vcq->tcq_head++;
                *cbdata = t->cbdata;
                code    = t->code;
            }
        }
        emu_toq_set(vcq, EMU_TOQ_ENTRIES - (vcq->tcq_tail - vcq->tcq_head));
    }
    if ((vcq->special & EMU_SPECIAL_TIMED) && (code == UTOFU_ERR_NOT_FOUND)) {
        emu_timing_poll_empty();
    }
    if (vcq->special & EMU_SPECIAL_STATS) {
        emu_stats_poll(vcq, false, code);
    }
    return code;
}

static __attribute__((noinline)) int poll_mrq(struct emu_vcq *vcq, struct utofu_mrq_notice *notice)
{
    struct emu_rx_lane *rx;
    int                 code = UTOFU_ERR_NOT_FOUND;

    emu_vcq_lock(vcq);
    if (emu_unlikely((vcq->special & ~EMU_SPECIAL_LOCKED) != 0)) {
        code = poll_mrq_special(vcq, notice);
        goto out;
    }
    if (vcq->mrq_head != vcq->mrq_tail) {
        struct emu_mrq_entry *m = &vcq->mrq[vcq->mrq_head++ & (vcq->mrq_size - 1)];
        *notice                 = m->notice;
        code                    = m->code;
        goto out;
    }
    rx = lane_ready(vcq);
    if (rx != NULL) {
        lane_take(vcq, rx, notice);
        code = UTOFU_SUCCESS;
    } else {
        /* The next notice is often about the same place (a slot, a flag): its data
         * comes along with it, not after it. */
        if (++vcq->empty_polls > PATIENCE) {
            __builtin_prefetch(vcq->warm);
        }
        /* Not at once: in an exchange of single messages that would take the line
         * from the producer for each of them. */
        if (emu_unlikely(vcq->empty_polls > PUBLISH_PAUSE)) {
            vcq->empty_polls = PATIENCE;
            if (vcq->unpublished != 0) {
                lanes_publish(vcq);
            }
        }
        if (emu_unlikely(vcq->bell != NULL)) {
            emu_doorbell_polled(vcq);
        }
    }
out:
    emu_vcq_unlock(vcq);
    return code;
}

/* The wait for one sender's next notice is written out: what a round takes is how much
 * later it may be seen. */
EMU_EXPORT int utofu_poll_mrq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct utofu_mrq_notice *notice)
{
    struct emu_vcq *vcq = emu_vcq_of(vcq_hdl);

    if (emu_unlikely(vcq == NULL)) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (emu_unlikely((flags != 0) || (notice == NULL))) {
        return (flags != 0) ? UTOFU_ERR_INVALID_FLAGS : UTOFU_ERR_INVALID_POINTER;
    }
    if (emu_likely((vcq->special == 0) && (vcq->num_hot <= 1) && (vcq->mrq_head == vcq->mrq_tail) &&
                   (atomic_load_explicit(&vcq->block->epoch, memory_order_acquire) == vcq->epoch))) {
        const struct emu_rx_lane *rx = vcq->lanes;

        if (((vcq->num_hot == 0) || (entry_seq(rx->cur) != rx->expect)) &&
            emu_likely((vcq->bell == NULL) && (vcq->empty_polls < PUBLISH_PAUSE))) {
            if (++vcq->empty_polls > PATIENCE) {
                __builtin_prefetch(vcq->warm);
            }
            return UTOFU_ERR_NOT_FOUND;
        }
    }
    return poll_mrq(vcq, notice);
}

EMU_EXPORT int utofu_poll_tcq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void **cbdata)
{
    struct emu_vcq *vcq  = emu_vcq_of(vcq_hdl);
    int             code = UTOFU_ERR_NOT_FOUND;

    if (emu_unlikely(vcq == NULL)) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (emu_unlikely(flags != 0)) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    if (emu_unlikely(cbdata == NULL)) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    emu_vcq_lock(vcq);
    if (emu_unlikely((vcq->special & ~EMU_SPECIAL_LOCKED) != 0)) {
        code = poll_tcq_special(vcq, cbdata);
        emu_vcq_unlock(vcq);
        return code;
    }
    if (vcq->tcq_head != vcq->tcq_tail) {
        struct emu_tcq_entry *t = &vcq->tcq[vcq->tcq_head++ % EMU_TOQ_ENTRIES];
        *cbdata                 = t->cbdata;
        code                    = t->code;
    }
    /* entries that asked for no notice are read and skipped on the way */
    emu_toq_set(vcq, EMU_TOQ_ENTRIES - (vcq->tcq_tail - vcq->tcq_head));
    emu_vcq_unlock(vcq);
    return code;
}

/* The count is that of the CQ: of all VCQs of this process on it (3.7.5.1). */
EMU_EXPORT int utofu_query_num_unread_tcq(utofu_vcq_hdl_t vcq_hdl, size_t *count)
{
    struct emu_vcq *vcq = emu_vcq_of(vcq_hdl);
    size_t          n   = 0;

    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (count == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    pthread_mutex_lock(&emu_g.lock);
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        struct emu_vcq *v = emu_g.vcq[i];
        if ((v != NULL) && (v->tni == vcq->tni) && (v->cq == vcq->cq)) {
            n += emu_toq_unread(v);
        }
    }
    pthread_mutex_unlock(&emu_g.lock);
    *count = n;
    return UTOFU_SUCCESS;
}

/* Notices that utofu_poll_mrq would return, at least */
EMU_EXPORT int utofu_query_num_unread_mrq(utofu_vcq_hdl_t vcq_hdl, size_t *count)
{
    struct emu_vcq *vcq = emu_vcq_of(vcq_hdl);
    size_t          n;

    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (count == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    emu_vcq_lock(vcq);
    n = mrq_unread(vcq);
    emu_vcq_unlock(vcq);
    *count = n;
    return UTOFU_SUCCESS;
}
