/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_recv.c - arrivals of active messages.
 *
 * A notice is believed only as far as it fits: the slot must be lent to the VCQ
 * that the notice names and be the one whose turn it is, and the length must fit
 * the slot.  Anything else is dropped and counted.
 */
#include "tofu_internal.h"
#include "tofu_ahead.h"
#include "tofu_am.h"
#include "tofu_look.h"
#include "tofu_take.h"

static TOFU_NOINLINE void tofu_am_forged(tofu_iface_t *iface,
                                         const struct utofu_mrq_notice *notice)
{
    tofu_iface_drop(iface, TOFU_LOGGED_FORGED,
                    "a message came to a slot that is not its sender's",
                    notice->vcq_id);
}

static TOFU_NOINLINE void tofu_am_no_handler(tofu_iface_t *iface, unsigned id,
                                             utofu_vcq_id_t vcq_id)
{
    ++iface->stats.dropped;
    if (!iface->handler[id].logged) {
        iface->handler[id].logged = 1;
        tofu_warn("messages with AM id %u, which has no handler, are dropped "
                  "(the first from VCQ %#llx)", id,
                  (unsigned long long)vcq_id);
    }
}

/* Whose slot, and is it his turn?  NULL: no. */
static inline tofu_lender_t *
tofu_am_take_slot(tofu_pool_t *pool, uint64_t offset,
                  const struct utofu_mrq_notice *notice, unsigned cls,
                  uint32_t *slot_p)
{
    tofu_lender_t *lender;
    tofu_loan_t   *loan;
    uint32_t      slot;

    if (TOFU_UNLIKELY(offset >= pool->bytes)) {
        return NULL;
    }
    /* 32 bits: a pool is smaller, and dividing is faster */
    slot   = (uint32_t)offset / ((cls == TOFU_AM_SMALL) ? TOFU_AM_SMALL_SIZE :
                                                         pool->size);
    lender = pool->owner[slot];
    if (TOFU_UNLIKELY((lender == NULL) ||
                      (lender->vcq_id != notice->vcq_id) || lender->dead)) {
        return NULL;
    }
    loan = &lender->loan[cls];
    if (TOFU_UNLIKELY(loan->next != slot)) {
        return NULL;
    }
    if ((cls == TOFU_AM_LARGE) && TOFU_UNLIKELY(loan->kept != 0) &&
        ((loan->kept >> (slot - loan->begin)) & 1)) {
        return NULL; /* he was told to pass it over */
    }
    ++slot;
    loan->next = (slot == loan->begin + loan->count) ? loan->begin : slot;
    ++loan->arrived;
    lender->turn += TOFU_TURN;
    *slot_p = slot - 1;
    if ((cls == TOFU_AM_LARGE) && TOFU_UNLIKELY(loan->skip != 0)) {
        tofu_loan_pass(loan);
    }
    return lender;
}

static inline int tofu_loan_is_due(const tofu_loan_t *loan)
{
    return (loan->consumed - loan->reported) * 2 >= loan->count;
}

static inline void tofu_loan_consume(tofu_loan_t *loan, unsigned cls)
{
    if ((cls == TOFU_AM_LARGE) &&
        TOFU_UNLIKELY((loan->kept | loan->skip) != 0)) {
        tofu_loan_settle(loan);
    } else {
        loan->consumed = loan->arrived;
    }
}

/* The handler is done with a large message: see tofu_take.h. */
static inline void tofu_am_take_lines(tofu_loan_t *loan, void *data, size_t length)
{
    if (TOFU_UNLIKELY(loan->unlooked == 0)) {
        loan->unlooked = TOFU_TAKE_LOOKS;
        loan->read     = tofu_line_was_here((char *)data + length / 2);
    }
    --loan->unlooked;
    if (loan->read) {
        tofu_take_lines(data, length);
    }
}

/* The same for a small slot; by its tail, so that of those in one line, which are many,
 * nothing has to be remembered while the handler runs. */
static TOFU_NOINLINE void tofu_am_take_small(const tofu_am_t *am, uint32_t slot)
{
    char     *tail  = (char *)tofu_am_tail(am, slot);
    uint64_t length = atomic_load_explicit(tofu_am_tail(am, slot),
                                           memory_order_relaxed) & TOFU_TAIL_LENGTH;

    if (tofu_takes_lines && (length <= TOFU_POLLED_BYTES)) {
        length = (length + 7) & ~7u;
        tofu_take_lines(tail - length, length);
    }
}

/* Call the handler, then give the slot back.  awaited: the user is about to answer, and the
 * sender has half a window to go on: what was consumed is told after that. */
static TOFU_ALWAYS_INLINE void
tofu_am_deliver(tofu_iface_t *iface, tofu_lender_t *lender, unsigned cls,
                unsigned id, uint32_t slot, void *data, size_t length,
                bool awaited)
{
    tofu_loan_t *loan = lender->loan;
    unsigned    flags = 0;
    int8_t      ret;
    int         due;

    if (TOFU_LIKELY(iface->handler[id].cb != NULL)) {
        ++lender->depth;
        ++iface->stats.am_rx;
        if ((cls == TOFU_AM_LARGE) && (iface->config.rx_desc != NULL)) {
            flags = tofu_am_offer(iface, &loan[cls], slot, data);
        }
        ret = iface->handler[id].cb(iface->handler[id].arg, data, length,
                                    flags);
        --lender->depth;
        if (flags != 0) {
            if (TOFU_LIKELY(ret != TOFU_INPROGRESS)) {
                tofu_am_unoffer(iface, &loan[cls], slot);
            } else {
                ++iface->stats.am_kept;
            }
        }
        if (cls == TOFU_AM_SMALL) {
            if (TOFU_UNLIKELY(lender->is_wide)) {
                tofu_am_take_small(iface->am, slot);
            } else if (awaited && iface->am->takes_ahead) {
                tofu_ahead_take(lender);
            }
        } else if ((length >= TOFU_TAKE_MIN) && tofu_takes_lines &&
                   TOFU_LIKELY(ret != TOFU_INPROGRESS)) {
            tofu_am_take_lines(&loan[cls], data, length);
        }
    } else {
        tofu_am_no_handler(iface, id, lender->vcq_id);
    }
    /* Slots are returned in ring order.  When a handler called progress, and that
     * another handler, the inner slot must not be returned before the outer. */
    if (TOFU_UNLIKELY(lender->depth > 0)) {
        lender->nested = 1;
        return;
    }
    if (TOFU_UNLIKELY(lender->dead)) {
        tofu_lender_reclaim(lender);
        return;
    }
    tofu_loan_consume(&loan[cls], cls);
    due = tofu_loan_is_due(&loan[cls]);
    if (TOFU_UNLIKELY(lender->nested)) {
        lender->nested = 0;
        tofu_loan_consume(&loan[!cls], !cls);
        due |= tofu_loan_is_due(&loan[!cls]);
    }
    if (TOFU_UNLIKELY(due)) {
        if (awaited && !lender->gone && tofu_list_empty(&lender->due)) {
            tofu_list_add(&iface->am->due, &lender->due);
            /* progress in the handler may have taken note of the message already */
            iface->came_apart = TOFU_STREAM_POLLED;
        } else {
            tofu_lender_report(lender);
        }
    }
}

void TOFU_NOINLINE tofu_am_skip(tofu_lender_t *lender, unsigned cls)
{
    tofu_loan_t *loan = &lender->loan[cls];

    if (lender->depth > 0) {
        lender->nested = 1;
        return;
    }
    tofu_loan_consume(loan, cls);
    if (tofu_loan_is_due(loan)) {
        tofu_lender_report(lender);
    }
}

static TOFU_NOINLINE void
tofu_am_arrived_large(tofu_iface_t *iface,
                      const struct utofu_mrq_notice *notice)
{
    tofu_pool_t              *pool  = &iface->am->pool[TOFU_AM_LARGE];
    uint64_t                 offset = notice->rmt_stadd - pool->stadd - 1;
    unsigned                 id     = (unsigned)notice->edata & 0x1f;
    tofu_lender_t            *lender;
    uint32_t                 slot;
    uint64_t                 length;

    lender = tofu_am_take_slot(pool, offset, notice, TOFU_AM_LARGE, &slot);
    if (TOFU_UNLIKELY(lender == NULL)) {
        tofu_am_forged(iface, notice);
        return;
    }
    /* wraps round when it ends in front of where it should have begun */
    length = offset + 1 - (uint64_t)slot * pool->size - TOFU_AM_FRONT;
    if (TOFU_UNLIKELY(length > iface->config.am_seg_size)) {
        /* It was the sender's turn, so he gets the slot back: one bad message,
         * not a ring out of step. */
        tofu_am_forged(iface, notice);
        tofu_am_skip(lender, TOFU_AM_LARGE);
        return;
    }
    lender->fits += (length <= TOFU_POLLED_BYTES);
    iface->came_apart = TOFU_STREAM_APART;
    iface->came_posts = iface->posts;
    tofu_am_deliver(iface, lender, TOFU_AM_LARGE, id, slot,
                    pool->base + (size_t)slot * pool->size + TOFU_AM_FRONT,
                    length, false);
}

/* -------------------------------------------------- messages without a notice */

static TOFU_ALWAYS_INLINE void
tofu_am_take_polled(tofu_iface_t *iface, tofu_lender_t *lender, uint64_t tail,
                    bool awaited)
{
    tofu_loan_t *loan  = &lender->loan[TOFU_AM_SMALL];
    unsigned    id     = (unsigned)(tail >> TOFU_TAIL_ID_SHIFT) & 0x1f;
    unsigned    length = (unsigned)(tail & TOFU_TAIL_LENGTH);
    uint32_t    slot   = loan->next;

    loan->next = (slot + 1 == loan->begin + loan->count) ? loan->begin : slot + 1;
    ++loan->arrived;
    lender->turn += TOFU_TURN;
    lender->polled_turn = lender->turn;
    ++iface->stats.am_polled;
    lender->is_wide = length > TOFU_POLLED_NARROW;
    if (TOFU_UNLIKELY((length == 0) || (length > TOFU_POLLED_BYTES))) {
        tofu_iface_drop(iface, TOFU_LOGGED_FORGED, "a message of no length",
                        lender->vcq_id);
        tofu_am_skip(lender, TOFU_AM_SMALL);
        return;
    }
    tofu_am_deliver(iface, lender, TOFU_AM_SMALL, id, slot,
                    (char *)tofu_am_tail(iface->am, slot) -
                            ((length + 7) & ~7u),
                    length, awaited);
}

static int tofu_lender_is_polled(const tofu_iface_t *iface,
                                 const tofu_lender_t *lender)
{
    unsigned i;

    for (i = 0; i < iface->num_polled; ++i) {
        if (iface->am->polled[i] == lender) {
            return 1;
        }
    }
    return 0;
}

unsigned tofu_am_drain(tofu_iface_t *iface, tofu_lender_t *lender)
{
    unsigned count = 0;
    uint64_t tail;

    /* a handler may end the loan; then another may have its place, which is as well */
    while ((count < TOFU_TURNS) && tofu_lender_is_polled(iface, lender) &&
           tofu_lender_ready(iface->am, lender, &tail)) {
        tofu_am_take_polled(iface, lender, tail, false);
        ++count;
    }
    return count;
}

static inline void tofu_am_polled_came(tofu_iface_t *iface)
{
    iface->came_apart = TOFU_STREAM_POLLED;
    iface->came_posts = iface->posts;
}

unsigned tofu_am_polled(tofu_iface_t *iface, uint32_t i, uint64_t tail)
{
    tofu_am_t *am   = iface->am;
    unsigned  count = 0, n = 0;

    tofu_am_polled_came(iface);
    for (;;) {
        tofu_am_take_polled(iface, am->polled[i], tail, false);
        ++count;
        /* a handler may have ended loans, and given others their places */
        if ((++n == TOFU_POLLED_BATCH) || (i >= iface->num_polled) ||
            !tofu_lender_ready(am, am->polled[i], &tail)) {
            n = 0;
            do {
                if (TOFU_LIKELY(++i >= iface->num_polled)) {
                    return count;
                }
            } while (!tofu_lender_ready(am, am->polled[i], &tail));
        }
    }
}

unsigned tofu_am_polled_again(tofu_iface_t *iface)
{
    const tofu_am_t        *am = iface->am;
    tofu_lender_t          *lender;
    const _Atomic uint64_t *place;
    uint64_t               tail;
    uint32_t               i;
    unsigned               n;

    for (n = 0; n < TOFU_POLLED_LOOKS; ++n) {
        i = 0;
        do {
            lender = am->polled[i];
            place  = tofu_am_tail(am, lender->loan[TOFU_AM_SMALL].next);
            if (TOFU_UNLIKELY(tofu_look(place, TOFU_TAIL_TURN_KEY,
                                        lender->turn, lender->is_wide))) {
                tail = atomic_load_explicit(place, memory_order_acquire);
                tofu_am_polled_came(iface);
                tofu_am_take_polled(iface, lender, tail, true);
                return 1; /* it was waited for, so there is hardly another */
            }
        } while (TOFU_UNLIKELY(++i < iface->num_polled));
    }
    return 0;
}

/* How many messages without a notice, sent before the one of this notice, are not
 * there?  Only what the place of a notice tells is known. */
static uint32_t tofu_lender_behind(const tofu_iface_t *iface,
                                   const tofu_lender_t *lender,
                                   const struct utofu_mrq_notice *notice)
{
    const tofu_loan_t *loan = &lender->loan[TOFU_AM_SMALL];
    const tofu_pool_t *pool = &iface->am->pool[TOFU_AM_SMALL];
    uint64_t          slot  = (notice->rmt_stadd - pool->stadd - 1) /
                    TOFU_AM_SMALL_SIZE - loan->begin;
    uint32_t          missing;

    if ((notice->edata >> 5) == TOFU_KIND_AM_SMALL) {
        if (slot >= loan->count) {
            return 0;
        }
        missing = (uint32_t)slot + loan->begin + loan->count - loan->next;
        missing = (missing >= loan->count) ? missing - loan->count : missing;
    } else if (notice->edata == TOFU_EDATA_ANSWER) {
        missing = tofu_am_answer_behind(iface, lender, notice);
    } else {
        return 0;
    }
    /* it has no slots for more */
    return (missing > loan->count - (loan->arrived - loan->reported)) ? 0 :
                                                                        missing;
}

/* Its next message does not come any more: give back the slot. */
static void tofu_lender_lost(tofu_iface_t *iface, tofu_lender_t *lender)
{
    tofu_loan_t *loan = &lender->loan[TOFU_AM_SMALL];

    atomic_store_explicit(tofu_am_tail(iface->am, loan->next), 0,
                          memory_order_relaxed);
    if (++loan->next == loan->begin + loan->count) {
        loan->next = loan->begin;
    }
    ++loan->arrived;
    lender->turn += TOFU_TURN;
    tofu_iface_drop(iface, TOFU_LOGGED_FORGED,
                    "a message was written over before it was read",
                    lender->vcq_id);
    tofu_am_skip(lender, TOFU_AM_SMALL);
}

int tofu_am_before(tofu_iface_t *iface, struct utofu_mrq_notice *notice)
{
    tofu_lender_t *lender = NULL;
    unsigned      i;
    uint64_t      tail;

    for (i = 0; (i < iface->num_polled) && (lender == NULL); ++i) {
        if (iface->am->polled[i]->vcq_id == notice->vcq_id) {
            lender = iface->am->polled[i];
        }
    }
    if ((lender == NULL) ||
        (!tofu_lender_ready(iface->am, lender, &tail) &&
         (tofu_lender_behind(iface, lender, notice) == 0))) {
        return 1;
    }
    iface->stash.notice = *notice;
    iface->stash.code   = UTOFU_SUCCESS;
    iface->stashed      = (iface->stashed & TOFU_STASH_MORE) | TOFU_STASH_HELD;
    for (i = 0; i < TOFU_TURNS; ++i) {
        tofu_am_drain(iface, lender);
        if (!(iface->stashed & TOFU_STASH_HELD)) {
            return 0; /* what is there now was stashed by a handler's post */
        }
        if (!tofu_lender_is_polled(iface, lender) ||
            (tofu_lender_behind(iface, lender, notice) == 0)) {
            break;
        }
        tofu_lender_lost(iface, lender); /* somebody wrote over it */
    }
    tofu_stash_take(iface, notice);
    return 1;
}

/* -------------------------------------------------------------------- notices */

void tofu_am_arrived(tofu_iface_t *iface, const struct utofu_mrq_notice *notice)
{
    tofu_pool_t   *pool  = &iface->am->pool[TOFU_AM_SMALL];
    uint64_t      offset = notice->rmt_stadd - pool->stadd - 1;
    unsigned      id     = (unsigned)notice->edata & 0x1f;
    tofu_lender_t *lender;
    uint32_t      slot, length;

    switch (notice->edata >> 5) {
    case TOFU_KIND_AM_SMALL:
        lender = tofu_am_take_slot(pool, offset, notice, TOFU_AM_SMALL, &slot);
        if (TOFU_UNLIKELY(lender == NULL)) {
            break;
        }
        if (TOFU_UNLIKELY(lender->permit != TOFU_PERMIT_NONE)) {
            /* of a round before: see TOFU_PERMIT_ROUND */
            atomic_store_explicit(tofu_am_tail(iface->am, slot), 0,
                                  memory_order_relaxed);
        }
        length = (uint32_t)(offset + 1) - slot * TOFU_AM_SMALL_SIZE;
        if (TOFU_UNLIKELY(length > TOFU_MAX_SHORT)) {
            tofu_am_skip(lender, TOFU_AM_SMALL);
            break;
        }
        lender->fits += (length <= TOFU_POLLED_SHORT) || iface->am->small_in_place;
        tofu_am_deliver(iface, lender, TOFU_AM_SMALL, id, slot,
                        pool->base + (size_t)slot * TOFU_AM_SMALL_SIZE, length,
                        false);
        return;
    case TOFU_KIND_AM_LARGE:
        tofu_am_arrived_large(iface, notice);
        return;
    case TOFU_KIND_REQUEST:
        tofu_am_request(iface, notice);
        return;
    case TOFU_KIND_SILENT:
        if (notice->edata == TOFU_EDATA_ANSWER) {
            tofu_am_answered(iface, notice);
            return;
        }
        break;
    default:
        break;
    }
    tofu_am_forged(iface, notice);
}

tofu_status_t tofu_iface_set_am_handler(tofu_iface_t *iface, uint8_t id,
                                        tofu_am_cb_t cb, void *arg)
{
    if (id >= TOFU_AM_ID_MAX) {
        tofu_error("active message id %u: it must be less than %u", id, TOFU_AM_ID_MAX);
        return TOFU_ERR_INVALID_PARAM;
    }
    iface->handler[id].cb     = cb;
    iface->handler[id].arg    = arg;
    iface->handler[id].logged = 0;
    return TOFU_OK;
}
