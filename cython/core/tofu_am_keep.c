/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_keep.c - messages that a handler keeps in their slots.
 *
 * The slots of a loan are used in turn, round after round; count every turn,
 * whether a message came in it or its slot was passed over.  The first `count`
 * turns are the sender's with the grant.  When a turn of a slot is over, the
 * receiver decides about the next turn of the same slot, once and for all: it is
 * passed over if the slot is kept at that moment.  The credit word tells how many
 * turns are over, c, and the decisions about the turns c .. c + count - 1, one bit
 * per slot.  So the sender knows which of these turns are his.
 *
 * A turn that is passed over is over as soon as all before it are.  Therefore the
 * first turn of the window, c, is never one that is passed over: of the slots at
 * least half are not kept, so counting on comes to one of those within two rounds.
 * And therefore a sender who used all turns that he knows of gets more of them when
 * his messages were handled, however long any are kept: then c is at or behind the
 * end of what he knew, a whole window further, so a word is due.  When c is behind
 * that end, the turns in between were passed over: they are over, and not used.
 *
 * At most half of a loan of 4 or more is kept, and a quarter of all large slots;
 * beyond that the handler must copy.  When a loan ends, its kept slots stay out of
 * the pool until they are released.  A quarter can't break the others up so much
 * that nothing can be lent: there are two neighbours that are not kept.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#define TOFU_KEEP_MIN_WINDOW 4u

/* --------------------------------------------------------------- receiver */

unsigned TOFU_NOINLINE tofu_am_offer(tofu_iface_t *iface, tofu_loan_t *loan,
                                     uint32_t slot, void *data)
{
    const tofu_iface_config_t *config = &iface->config;
    tofu_am_t                 *am     = iface->am;
    uint32_t                  bit     = 1u << (slot - loan->begin);

    if ((loan->count < TOFU_KEEP_MIN_WINDOW) ||
        (loan->num_kept + 1u > loan->count / 2) ||
        (am->num_kept + 1u > am->pool[TOFU_AM_LARGE].count / 4) ||
        ((((uintptr_t)data + config->am_align_offset) &
          (config->am_alignment - 1)) != 0)) {
        return 0;
    }
    /* memcpy: a headroom of any size */
    memcpy((char *)data - config->rx_headroom - sizeof(config->rx_desc),
           &config->rx_desc, sizeof(config->rx_desc));
    /* counted now, so that handlers inside this one see it */
    loan->kept |= (uint16_t)bit;
    ++loan->num_kept;
    ++am->num_kept;
    return TOFU_CB_DESC;
}

static void tofu_loan_unkeep(tofu_am_t *am, tofu_loan_t *loan, uint32_t slot)
{
    loan->kept &= (uint16_t)~(1u << (slot - loan->begin));
    --loan->num_kept;
    --am->num_kept;
}

void tofu_am_unoffer(tofu_iface_t *iface, tofu_loan_t *loan, uint32_t slot)
{
    tofu_loan_unkeep(iface->am, loan, slot);
}

tofu_status_t tofu_iface_release_desc(tofu_iface_t *iface, void *desc)
{
    tofu_am_t     *am    = iface->am;
    tofu_pool_t   *pool  = &am->pool[TOFU_AM_LARGE];
    uintptr_t     offset = (uintptr_t)desc + iface->config.rx_headroom -
                       TOFU_AM_FRONT - (uintptr_t)pool->base;
    uint32_t      slot   = (uint32_t)(offset / pool->size);
    tofu_lender_t *lender;
    tofu_loan_t   *loan;

    lender = ((offset < pool->bytes) && (offset % pool->size == 0)) ?
                     pool->owner[slot] :
                     NULL;
    if (lender == &am->orphan) {
        pool->owner[slot] = NULL;
        ++pool->free;
        --am->num_kept;
        am->short_of_slots = 0; /* those that wait may try again */
        tofu_am_update_work(am);
        return TOFU_OK;
    }
    loan = (lender != NULL) ? &lender->loan[TOFU_AM_LARGE] : NULL;
    if ((loan == NULL) || !((loan->kept >> (slot - loan->begin)) & 1)) {
        tofu_error("release of %p on the iface of VCQ %#llx: it is not a "
                   "message that is kept", desc,
                   (unsigned long long)iface->vcq_id);
        return TOFU_ERR_INVALID_PARAM;
    }
    /* the sender learns of it when the slot's next turn is decided */
    tofu_loan_unkeep(am, loan, slot);
    return TOFU_OK;
}

/* next is passed over. */
static void tofu_loan_next(tofu_loan_t *loan)
{
    ++loan->arrived;
    if (++loan->next == loan->begin + loan->count) {
        loan->next = loan->begin;
    }
}

void TOFU_NOINLINE tofu_loan_pass(tofu_loan_t *loan)
{
    while ((loan->arrived - loan->consumed < loan->count) &&
           ((loan->skip >> (loan->next - loan->begin)) & 1)) {
        tofu_loan_next(loan);
    }
}

/* The turn of a slot is over: what about its next one? */
static void tofu_loan_decide(tofu_loan_t *loan, uint32_t index)
{
    uint32_t bit = 1u << index;

    loan->skip = (uint16_t)((loan->skip & ~bit) | (loan->kept & bit));
    ++loan->consumed;
}

void TOFU_NOINLINE tofu_loan_settle(tofu_loan_t *loan)
{
    uint32_t behind = (loan->arrived - loan->consumed) % loan->count;
    uint32_t index  = (loan->next - loan->begin + loan->count - behind) %
                     loan->count;

    while (loan->consumed != loan->arrived) {
        tofu_loan_decide(loan, index);
        index = (index + 1) % loan->count;
    }
    while ((loan->skip >> (loan->next - loan->begin)) & 1) {
        index = loan->next - loan->begin;
        tofu_loan_next(loan);
        tofu_loan_decide(loan, index);
    }
}

/* ----------------------------------------------------------------- sender */

static uint32_t tofu_chan_index(const tofu_chan_class_t *cls)
{
    return (uint32_t)((cls->next - cls->begin) / cls->size);
}

static void tofu_chan_step(tofu_chan_class_t *cls, uint32_t turns)
{
    uint32_t index = (tofu_chan_index(cls) + turns) % cls->count;

    cls->next = cls->begin + (utofu_stadd_t)index * cls->size;
}

void TOFU_NOINLINE tofu_chan_pass(tofu_chan_t *chan)
{
    tofu_chan_class_t *cls = &chan->cls[TOFU_AM_LARGE];
    uint32_t          bit;

    while ((bit = chan->skip & (1u << tofu_chan_index(cls))) != 0) {
        chan->skip &= (uint16_t)~bit;
        tofu_chan_step(cls, 1);
    }
}

void tofu_chan_ack_large(tofu_chan_t *chan, uint32_t acked, uint32_t mask)
{
    tofu_chan_class_t *cls  = &chan->cls[TOFU_AM_LARGE];
    uint32_t          delta = (acked - cls->acked) & 0xff;
    uint32_t          ahead, used, turn, index, i;

    if (delta == 0) {
        return;
    }
    /* turns that he knew of are `count` from acked on: used, and ahead */
    ahead = cls->left + (uint32_t)__builtin_popcount(chan->skip);
    used  = cls->count - ahead;
    if (TOFU_LIKELY((mask | chan->skip) == 0) && (delta <= used)) {
        cls->acked = acked;
        cls->left += delta;
        return;
    }
    if ((delta > used) && ((ahead > 0) || (delta > 3 * cls->count))) {
        return; /* more than was sent: not a count of ours; the next will do */
    }
    turn = cls->count;
    if (delta > turn) { /* passed over, and the turn after it too */
        tofu_chan_step(cls, delta - turn);
        turn = delta;
    }
    index = tofu_chan_index(cls) + ((delta > cls->count) ? 0 : ahead);
    for (i = turn; i < delta + cls->count; ++i, ++index) {
        uint32_t bit = 1u << (index % cls->count);

        if (mask & bit) {
            chan->skip |= (uint16_t)bit;
        } else {
            ++cls->left;
        }
    }
    cls->acked = acked;
    tofu_chan_pass(chan);
}
