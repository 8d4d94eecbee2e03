/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_queue.c - completion: TCQ, local MRQ notices, MRQ lanes (3.7.4, 3.7.5).
 *
 * An operation is carried out while it is posted, so its TCQ entry and its local
 * notice are in queues that only this VCQ touches.  Remote notices arrive through
 * one lane per remote VCQ, found by the lane's announcement in the VCQ block.
 * Local notices are returned first: a process that put and whose peer answers by
 * a put sees its own local notice before the peer's remote one.  Remote ones that
 * were there before it put are in the same queue as the local one, before it, and so
 * are those of puts to the VCQ itself.
 */
#include "emu_copy.h"
#include "emu_modes.h"
#include "emu_rx.h"
#include "emu_stamp.h"
#include "tofu_bet.h"

#include <stdlib.h>

#define MRQ_FIRST_SIZE 1024u
#define PATIENCE       8u  /* empty polls after which a program waits for an answer */
#define APART         64u  /* empty polls after a notice that are kept apart */
#define FAR            6u  /* looks in vain that the way to the other CPU and back takes, at least */
#define FAR_BETTING    3u  /* the same in bets, of which each takes longer */
#define BET_DELAY     30   /* instructions, of tofu_bet */
#define BET_LOOKS      4u  /* bets in one poll */
#define SWEEP_AFTER  65536u /* looks in vain after which silent lanes are looked for */
#define PUBLISH_PAUSE 256u /* empty polls after which they are stored, too */
#define PUBLISH_EVERY  64u /* entries read between stores of the read counters */

int emu_queue_init(struct emu_vcq *vcq)
{
    vcq->mrq_size = MRQ_FIRST_SIZE;
    vcq->mrq      = calloc(vcq->mrq_size, sizeof(*vcq->mrq));
    return (vcq->mrq == NULL) ? UTOFU_ERR_OUT_OF_MEMORY : UTOFU_SUCCESS;
}

void emu_queue_fini(struct emu_vcq *vcq)
{
    for (uint32_t i = 0; i < vcq->num_lanes; i++) {
        emu_lane_release(vcq->lanes[i].lane); /* its producer sees that the VCQ is gone */
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

/* ------------------------------------------------------------ taking notices */

/* Where the data of a put ends, which its notice names; only for prefetching */
EMU_INLINE uint64_t last_byte(const struct emu_vcq *vcq, uint64_t stadd)
{
    const struct emu_stag *s = &vcq->stags[EMU_STADD_STAG(stadd)];

    return s->addr + (EMU_STADD_OFF(stadd) - s->begin) - 1;
}

/* Producers are told how far we are. */
static EMU_COLD void lanes_publish(struct emu_vcq *vcq)
{
    vcq->uncounted += vcq->unpublished;
    emu_lanes_publish(vcq);
    if (((vcq->num_hot > 1) || (vcq->mrq_head != vcq->mrq_tail)) && (vcq->uncounted >= vcq->count_after)) {
        emu_mrq_count(vcq);
    }
}

/* A local notice of a put or an ARMW says that the target's memory is written (2.2.3), so that who reads anything
 * afterwards reads it later than everybody could see that: what was stored may not have left this CPU yet. */
EMU_INLINE void is_written(const struct utofu_mrq_notice *notice)
{
    if (emu_is_local(notice->notice_type) && (notice->notice_type != UTOFU_MRQ_TYPE_LCL_GET)) {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

/* The oldest of our own queue, of which there is one */
EMU_INLINE int take_local(struct emu_vcq *vcq, struct utofu_mrq_notice *notice)
{
    struct emu_mrq_entry *m = &vcq->mrq[vcq->mrq_head & (vcq->mrq_size - 1)];

    if (emu_unlikely(++vcq->uncounted >= vcq->count_after)) {
        emu_mrq_count(vcq);
    }
    vcq->mrq_head++;
    *notice = m->notice;
    is_written(notice);
    return m->code;
}

/* Out of the way of polls that find nothing, and once: inlined where gcc thinks it rare, it was made
 * short (EMU_COLD). */
static EMU_NOINLINE int take(struct emu_vcq *vcq, struct emu_rx_lane *rx, struct utofu_mrq_notice *notice)
{
    uint64_t stadd = rx->cur->stadd, lcl_stadd = 0, word = emu_lane_step(rx);
    uint32_t sent = emu_toq_number(vcq);

    if (emu_unlikely(word & EMU_ENTRY_PAIR)) {
        if (EMU_ENTRY_TYPE(word) == UTOFU_MRQ_TYPE_RMT_GET) {
            lcl_stadd = rx->cur->stadd;
        }
        emu_lane_step(rx);
        rx->rd_x++;
    }
    /* the guide leaves rmt_value open here; on Fugaku it is the remote STADD, where utf looks for it */
    *notice = (struct utofu_mrq_notice){.notice_type = EMU_ENTRY_TYPE(word),
                                        .vcq_id      = rx->origin,
                                        .edata       = EMU_ENTRY_EDATA(word),
                                        .rmt_value   = stadd,
                                        .lcl_stadd   = lcl_stadd,
                                        .rmt_stadd   = stadd};
    vcq->stream      = sent == vcq->sent;
    vcq->bets        = emu_looks_bet && !vcq->stream && (vcq->empty_polls > (vcq->bets ? FAR_BETTING : FAR));
    vcq->answers     = vcq->bets;
    vcq->took        = true;
    vcq->empty_polls = 0;
    vcq->sent        = sent;
    /* the next one may come to the same place, or as far on as this one from the last */
    vcq->warm = (const char *)(uintptr_t)(last_byte(vcq, stadd) + (stadd - vcq->warm_stadd));
    vcq->warm_stadd = stadd;
    rx->served  = 1;
    rx->stamped = (word & EMU_ENTRY_STAMPED) != 0;
    rx->unpublished++;
    if (++vcq->unpublished >= PUBLISH_EVERY) {
        lanes_publish(vcq); /* nothing more of rx: lanes may have come */
    }
    return UTOFU_SUCCESS;
}

/* Of a lane that has one: may there be an earlier one in another lane?  (Who opened that had said so before.) */
EMU_INLINE bool order_matters(const struct emu_vcq *vcq, const struct emu_rx_lane *rx)
{
    return emu_unlikely(rx->cur->word & EMU_ENTRY_STAMPED) &&
           (atomic_load_explicit(&vcq->block->stamped, memory_order_relaxed) != 0);
}

/* The lane whose notice is next: where they have no stamps the next one with something to take, from the one after
 * the lane served last, so that no sender starves another; NULL: none */
EMU_INLINE struct emu_rx_lane *lane_ready(struct emu_vcq *vcq)
{
    uint64_t epoch = atomic_load_explicit(&vcq->block->epoch, memory_order_acquire);
    uint32_t n, i;

    if (emu_unlikely(epoch != vcq->epoch)) {
        emu_lanes_refresh(vcq, epoch);
    }
    if (emu_unlikely(vcq->looked >= SWEEP_AFTER)) {
        emu_lanes_sweep(vcq);
    }
    n = vcq->num_hot;
    i = vcq->next_lane;
    for (uint32_t k = 0; k < n; k++) {
        if (i >= n) {
            i = 0;
        }
        struct emu_rx_lane *rx = &vcq->lanes[i];
        i++;
        if (emu_lane_has(rx)) {
            if (order_matters(vcq, rx)) {
                return emu_lanes_earliest(vcq);
            }
            vcq->next_lane = i;
            vcq->looked += k;
            return rx;
        }
    }
    vcq->looked += n;
    return NULL;
}

/* No more of them than there are now, as senders may be as fast as we are: so many; where they have stamps, up to the
 * last that was given, of which some may be stored only now (and whatever the stamps are, no more than one of each
 * lane).  Not, in the strict mode, if one of them may be the answer to an operation whose local notice waits. */
void emu_mrq_gather(struct emu_vcq *vcq)
{
    bool                waits = (vcq->wire != NULL) && emu_wire_settles(vcq);
    struct emu_rx_lane *rx;
    uint64_t            end;
    size_t              n;

    atomic_thread_fence(memory_order_acquire); /* of a notice that was there the program knows otherwise */
    rx  = waits ? NULL : lane_ready(vcq);
    end = (rx != NULL) ? emu_stamps_end(vcq->block) : 0;
    n   = (rx != NULL) ? emu_lanes_unread(vcq) : 0;
    for (size_t taken = 0; rx != NULL; rx = lane_ready(vcq), taken++) {
        struct emu_mrq_entry *m;

        if (rx->cur->word & EMU_ENTRY_STAMPED) {
            if ((emu_stamp_after(rx->cur->word, end) >= EMU_STAMP_SAME) || (taken >= n + EMU_MAX_LANES)) {
                break;
            }
        } else if (taken >= n) {
            break;
        }
        if (vcq->mrq_tail - vcq->mrq_head == vcq->mrq_size) {
            emu_mrq_grow(vcq);
        }
        m       = &vcq->mrq[vcq->mrq_tail++ & (vcq->mrq_size - 1)];
        m->code = take(vcq, rx, &m->notice);
        m->due  = 0;
    }
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

/* Timed mode: was the remote notice there when that operation of ours was posted, or, where it can be no answer to
 * it, when our notice was due? */
static bool came_before(const struct emu_mrq_entry *ours, const struct emu_rx_lane *rx)
{
    uint64_t due = emu_lane_due(rx);

    return (due <= ours->posted) || ((due < ours->due) && (rx->origin != ours->notice.vcq_id));
}

/* The same for a special VCQ (locked) */
static EMU_NOINLINE int poll_mrq_special(struct emu_vcq *vcq, struct utofu_mrq_notice *notice)
{
    uint32_t            limit = emu_inject_mrq();
    bool                timed = (vcq->special & EMU_SPECIAL_TIMED) != 0;
    struct emu_rx_lane *rx;
    int                 code = UTOFU_ERR_NOT_FOUND;
    uint64_t            stamp = 0;
    bool                local, untold, owes = emu_wire_owes(vcq);

    /* the strict mode counts the notices of all senders together, as an MRQ does */
    if (((vcq->special & EMU_SPECIAL_WIRE) || (limit != 0)) &&
        emu_mrq_overflown(vcq, (limit != 0) ? limit : vcq->mrq_entries)) {
        emu_async_error("MRQ Overflow", vcq);
    }
    if (vcq->mrq_head != vcq->mrq_tail) {
        struct emu_mrq_entry *m = &vcq->mrq[vcq->mrq_head & (vcq->mrq_size - 1)];

        rx = (timed && !owes) ? lane_ready(vcq) : NULL;
        if ((rx != NULL) && came_before(m, rx) && emu_timing_remote(emu_lane_due(rx))) {
            code = take(vcq, rx, notice);
            goto out;
        }
        if (!timed || (emu_is_local(m->notice.notice_type) ? emu_timing_polled(m->due) : emu_timing_remote(m->due))) {
            code = take_local(vcq, notice);
            goto out;
        }
    }
    for (bool again = false;; again = true) {
        /* in this order: what is told, and what was there before a local notice, is in a lane then */
        local  = (vcq->session != NULL) && emu_session_has_local(vcq, &stamp);
        untold = local && emu_session_untold(vcq);
        rx     = owes ? NULL : lane_ready(vcq);
        if ((vcq->session == NULL) || local || (rx == NULL) || again) {
            break;
        }
        /* It may be the answer to a Put whose local notice is just being written by
         * its carrier; that notice comes first. */
        if (!emu_session_idle(vcq)) {
            goto out;
        }
    }
    if (local && ((rx == NULL) || (emu_stamp_after(rx->cur->word, stamp) > EMU_STAMP_SAME))) {
        if (!untold && emu_session_poll_local(vcq, notice, &code)) {
            emu_stamp_taken(vcq, stamp);
        }
        goto out;
    }
    if (rx == NULL) {
        if (vcq->unpublished) {
            emu_lanes_publish(vcq);
        }
        if (vcq->special & EMU_SPECIAL_WIRE) {
            emu_wire_idle(vcq);
        }
        goto out;
    }
    if (timed) {
        /* the way of the data to this CPU is no part of what comes after the notice */
        __builtin_prefetch((const void *)(uintptr_t)last_byte(vcq, rx->cur->stadd));
        if (!emu_timing_remote(emu_lane_due(rx))) {
            goto out;
        }
        /* The target's clock may be ahead of ours: still, our own notice comes before
         * its answer. */
        for (uint32_t i = vcq->mrq_head; i != vcq->mrq_tail; i++) {
            const struct emu_mrq_entry *m = &vcq->mrq[i & (vcq->mrq_size - 1)];

            if ((m->notice.vcq_id == rx->origin) && !came_before(m, rx)) {
                code = take_local(vcq, notice);
                goto out;
            }
        }
    }
    code = take(vcq, rx, notice);
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
        if (vcq->tcq_head == vcq->tcq_tail) {
            emu_toq_read(vcq, emu_toq_number(vcq));
        } else {
            struct emu_tcq_entry *t = &vcq->tcq[vcq->tcq_head % EMU_TOQ_ENTRIES];
            if (!(vcq->special & EMU_SPECIAL_TIMED) || emu_timing_polled(t->due)) {
                vcq->tcq_head++;
                *cbdata = t->cbdata;
                code    = t->code;
                emu_toq_read(vcq, t->number);
            } else {
                emu_toq_read(vcq, t->number - 1);
            }
        }
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
    uint32_t            idle = 0;
    int                 code = UTOFU_ERR_NOT_FOUND;

    emu_vcq_lock(vcq);
    if (emu_unlikely((vcq->special & ~EMU_SPECIAL_LOCKED) != 0)) {
        code = poll_mrq_special(vcq, notice);
        idle = (code == UTOFU_ERR_NOT_FOUND) ? EMU_IDLE_SLOW : 0;
        goto out;
    }
    if (vcq->mrq_head != vcq->mrq_tail) {
        code = take_local(vcq, notice);
        goto out;
    }
    rx = lane_ready(vcq);
    if (rx != NULL) {
        code = take(vcq, rx, notice);
    } else {
        /* The next notice is often about the same place (a slot, a flag): its data
         * comes along with it, not after it. */
        if (++vcq->empty_polls > PATIENCE) {
            __builtin_prefetch(vcq->warm);
        }
        /* Not at once: in an exchange of single messages that would take the line
         * from the producer for each of them. */
        if (emu_unlikely(vcq->empty_polls > PUBLISH_PAUSE)) {
            vcq->empty_polls = APART;
            idle             = PUBLISH_PAUSE - APART;
            if (vcq->unpublished != 0) {
                emu_lanes_publish(vcq);
            }
        }
        if (emu_unlikely(vcq->bell != NULL)) {
            emu_doorbell_polled(vcq);
        }
    }
out:
    emu_vcq_unlock(vcq);
    if (idle != 0) {
        emu_idle(&vcq->idle, idle);
    }
    return code;
}

/* A CPU that looks at a word as fast as it can makes the other one's store take longer,
 * by a fifth of the whole way of a message on Intel's.  So it waits some ns between looks
 * while an answer may be near; not for ever, as who polls has other things to do.  On
 * AMD's that is so only for a stream of notices; who answers each would lose a quarter of
 * the way by waiting.  There it is enough that a look is complete before the next one, on
 * a Zen 4 (72 to 67 ns of an exchange); a Zen 3 is better off without that, too (94 to 90). */
EMU_INLINE void look_apart(const struct emu_vcq *vcq)
{
#if defined(__x86_64__)
    if (!emu_looks_apart && !vcq->stream) {
        if (emu_looks_complete) {
            __asm__ __volatile__("lfence" : : : "memory");
        }
        return;
    }
#else
    (void)vcq;
#endif
#if defined(__x86_64__)
    __asm__ __volatile__("pause" : : : "memory");
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" : : : "memory");
#endif
}

/*
 * Who answers each notice bets on the next one, on Intel's and AMD's: a notice and its data are
 * two lines, which would come one after the other, and a bet lets what reads the data begin
 * while the notice is on its way.  That alone gains nothing; together with this it does: the
 * line where our answer goes, which the other side has read, is fetched when the notice comes,
 * not when the answer is stored.  Not where the CPUs are so near that the answer is there after
 * a few looks: there the bets cost more than the way.  (Measured on an Emerald Rapids, one way:
 * 215 ns to 167, sysv's message 181; two near CPUs 45, 60 with bets.  On a Zen 4, 15 runs in
 * turns: CPUs that share a cache 95 ns to 82, sysv's message 87; others 310 to 283, and 303.)
 *
 * Four looks in one call, as a bet that is lost presumably leaves the processor with wrong
 * addresses to return to: the return to the caller is mispredicted, too.  That, the line of our
 * own notice fetched when a put begins (emu_put.c), a lower threshold for going on to bet, and
 * a shorter way to a notice that is there (take): 272 ns to 210, 12 runs in turns where a line
 * takes about 100 ns.  Eight looks in a call are not better; nor are bets late by 12, 60 or 90
 * instructions instead of 30, but those that are not late at all are worse by half.
 */
EMU_INLINE bool bet_lost(struct emu_vcq *vcq, const struct emu_rx_lane *rx)
{
#if TOFU_CAN_BET
    if (vcq->bets && (vcq->empty_polls <= APART) && (vcq->num_hot == 1) && (vcq->bell == NULL)) {
        for (uint32_t look = 1; !tofu_bet(&rx->cur->word, ~(uint64_t)0 << EMU_ENTRY_SEQ_SHIFT,
                                          rx->expect << EMU_ENTRY_SEQ_SHIFT, BET_DELAY);
             look++) {
            vcq->empty_polls++;
            if (look == BET_LOOKS) {
                return true;
            }
        }
        if (vcq->last->id == rx->origin) {
            tofu_fetch_line(vcq->last->noticed);
        }
    }
#else
    (void)vcq;
    (void)rx;
#endif
    return false;
}

/* The wait for one sender's next notice, and taking it, are written out: what a round takes is
 * how much later it may be seen. */
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
        struct emu_rx_lane *rx = vcq->lanes;

        if (bet_lost(vcq, rx)) {
            return UTOFU_ERR_NOT_FOUND;
        }
        if ((vcq->num_hot != 0) && emu_lane_has(rx)) {
            if (emu_likely(!(rx->cur->word & EMU_ENTRY_STAMPED))) {
                return take(vcq, rx, notice);
            }
        } else if (emu_likely((vcq->bell == NULL) && (vcq->empty_polls < PUBLISH_PAUSE))) {
            if (++vcq->empty_polls > PATIENCE) {
                __builtin_prefetch(vcq->warm);
            }
            if (vcq->empty_polls <= APART) {
                look_apart(vcq);
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
        if (code == UTOFU_ERR_NOT_FOUND) {
            emu_idle(&vcq->idle, EMU_IDLE_SLOW);
        }
        return code;
    }
    if (vcq->tcq_head != vcq->tcq_tail) {
        struct emu_tcq_entry *t = &vcq->tcq[vcq->tcq_head++ % EMU_TOQ_ENTRIES];
        *cbdata                 = t->cbdata;
        code                    = t->code;
        emu_toq_read(vcq, t->number);
    } else {
        emu_toq_read(vcq, emu_toq_number(vcq)); /* those that asked for no notice */
    }
    emu_vcq_unlock(vcq);
    return code;
}
