/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_polled.c - permits to send small messages without a notice.
 *
 * A small message with its notice is two cache lines.  A few senders that are busy
 * are permitted to leave the notice out: then the receiver looks at the tail in the
 * next small slot of each of their loans (tofu_am_recv.c).  The messages take the same
 * slots and the same credit as before.
 *
 *   receiver                              sender
 *     clears the tails of the loan
 *     mailbox  <----  permit, key           takes note with its next small message
 *     tail     <----                        message of 1 .. 24, 33 .. 248 bytes
 *     notice   <----                        any other message
 *     mailbox  <----  revoke                at its next small message, or its tick
 *     notice   <----                        answer: from here on all have notices
 *
 * Until the answer was read, or the loan ended, the receiver goes on looking.  A tail
 * says how many messages, of any kind, the sender sent on the loan before; the receiver
 * delivers it when it has delivered as many.  So the order is kept, and a tail of an
 * earlier round is none.  A notice is handled when all tails before it were.
 *
 * Who sleeps gives no permits, for these messages do not wake.  To have an event
 * descriptor is not to sleep, nor is to have armed it once: UCP does so while it connects,
 * and then polls for hours.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

/* ---------------------------------------------------------------- receiver */

/* splitmix64: what others can't guess, to tell a tail from any other bytes */
static uint64_t tofu_am_new_key(tofu_am_t *am, uint64_t last)
{
    uint64_t x, key;

    do {
        x   = (am->random += 0x9e3779b97f4a7c15ull);
        x   = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x   = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        key = (x >> 32) & TOFU_PERMIT_KEY;
    } while ((key == 0) || (key == last));
    return key;
}

/* Is its user one that sleeps?  Not when it has not armed for a while, or makes progress
 * so often that it has stopped to. */
static int tofu_am_is_sleepy(const tofu_am_t *am)
{
    return (am->iface->now_ms < am->sleepy_ms) &&
           (am->iface->calls < am->sleepy_calls);
}

static tofu_status_t tofu_lender_tell(tofu_lender_t *lender, uint64_t word)
{
    word |= (uint64_t)lender->nonce << 32;
    return tofu_am_post_silent(lender->peer, &word, sizeof(word),
                               lender->mailbox +
                                       offsetof(tofu_mailbox_t, permit),
                               TOFU_EDATA_CONTROL, 0);
}

void TOFU_NOINLINE tofu_lender_permit(tofu_lender_t *lender)
{
    tofu_iface_t  *iface = lender->peer->iface;
    tofu_am_t     *am    = iface->am;
    tofu_loan_t   *loan  = &lender->loan[TOFU_AM_SMALL];
    int           busy;
    tofu_status_t status;
    uint64_t      key;
    uint32_t      i;

    /* its permit would be asked back as silent, were it given at an old time */
    tofu_iface_read_clock(iface);
    busy = (iface->now_ms - lender->report_ms < TOFU_PERMIT_BUSY_MS);
    lender->report_ms = iface->now_ms;
    if (!busy || (iface->now_ms < lender->barred_ms) || lender->gone ||
        lender->dead || tofu_am_is_sleepy(am)) {
        return;
    }
    /* nobody writes tails now: what stands there is of permits before */
    for (i = 0; i < loan->count; ++i) {
        atomic_store_explicit(tofu_am_tail(am, loan->begin + i), 0,
                              memory_order_relaxed);
    }
    key    = tofu_am_new_key(am, lender->key);
    status = tofu_lender_tell(lender, key);
    if (status != TOFU_OK) {
        if (status != TOFU_ERR_NO_RESOURCE) {
            tofu_am_borrower_gone(lender->peer);
        }
        return; /* with the next report */
    }
    lender->key      = (uint32_t)key;
    lender->turn    |= key << TOFU_TAIL_KEY_SHIFT;
    lender->permit   = TOFU_PERMIT_GIVEN;
    lender->used     = 0;
    lender->spoke_ms = iface->now_ms;
    lender->polled_turn = lender->tick_turn = lender->turn;
    am->polled[iface->num_polled++] = lender;
}

void tofu_lender_unpermit(tofu_lender_t *lender)
{
    tofu_iface_t *iface = lender->peer->iface;
    tofu_am_t    *am    = iface->am;
    uint32_t     i;

    if (lender->permit == TOFU_PERMIT_NONE) {
        return;
    }
    for (i = 0; am->polled[i] != lender; ++i) {
    }
    am->polled[i]   = am->polled[--iface->num_polled];
    lender->permit  = TOFU_PERMIT_NONE;
    lender->turn   &= ~TOFU_TAIL_KEY;
    if (!lender->used && (lender->polled_turn == lender->tick_turn)) {
        lender->barred_ms = iface->now_ms + TOFU_PERMIT_USELESS_MS;
    }
}

void tofu_lender_revoke(tofu_lender_t *lender)
{
    tofu_status_t status;

    if (lender->gone) {
        return;
    }
    status = tofu_lender_tell(lender, TOFU_PERMIT_REVOKE | lender->key);
    if (status == TOFU_OK) {
        lender->permit = TOFU_PERMIT_ASKED_BACK;
    } else if (status != TOFU_ERR_NO_RESOURCE) {
        tofu_am_borrower_gone(lender->peer);
    }
}

void tofu_am_sleepy(tofu_am_t *am)
{
    uint32_t i;

    tofu_iface_read_clock(am->iface);
    am->sleepy_ms    = am->iface->now_ms + TOFU_PERMIT_AWAKE_MS;
    am->sleepy_calls = am->iface->calls + TOFU_PERMIT_AWAKE_CALLS;
    for (i = 0; i < am->iface->num_polled; ++i) {
        if (am->polled[i]->permit == TOFU_PERMIT_GIVEN) {
            tofu_lender_revoke(am->polled[i]);
        }
    }
}

void tofu_am_polled_tick(tofu_am_t *am)
{
    tofu_iface_t  *iface = am->iface;
    tofu_lender_t *lender;
    uint64_t      silent_ms;
    uint32_t      i;

    for (i = 0; i < iface->num_polled; ++i) {
        lender = am->polled[i];
        if (lender->polled_turn != lender->tick_turn) {
            lender->tick_turn = lender->polled_turn;
            lender->used      = 1;
            lender->spoke_ms  = iface->now_ms;
        }
        silent_ms = iface->now_ms - lender->spoke_ms;
        if (lender->permit == TOFU_PERMIT_GIVEN) {
            /* silent: of no use to it, or a tail was written over and it waits for
             * credit; its answer sets that right */
            if (tofu_am_is_sleepy(am) ||
                (silent_ms >= TOFU_PERMIT_SILENT_MS)) {
                tofu_lender_revoke(lender);
            }
        } else if (silent_ms >= TOFU_PERMIT_USELESS_MS) {
            /* again: the put fails if it died before it could answer */
            lender->spoke_ms = iface->now_ms;
            tofu_lender_revoke(lender);
        }
    }
}

/* How many messages were sent before an answer, modulo TOFU_TURNS, which its place in
 * the scratch page says; TOFU_TURNS: it is in no such place. */
static uint32_t tofu_am_answer_turn(const tofu_iface_t *iface,
                                    const struct utofu_mrq_notice *notice)
{
    utofu_stadd_t scratch;
    uint64_t      end;

    if (tofu_peer_stadd(iface, iface->vcq_id, iface->port, TOFU_STAG_SCRATCH,
                        &scratch) != UTOFU_SUCCESS) {
        return TOFU_TURNS;
    }
    end = notice->rmt_stadd - scratch; /* of 8 bytes, at 8 times the turn */
    return ((end % 8 != 0) || (end / 8 - 1 >= TOFU_TURNS)) ?
                   TOFU_TURNS :
                   (uint32_t)(end / 8 - 1);
}

uint32_t tofu_am_answer_behind(const tofu_iface_t *iface,
                               const tofu_lender_t *lender,
                               const struct utofu_mrq_notice *notice)
{
    uint32_t turn = (lender->permit == TOFU_PERMIT_ASKED_BACK) ?
                            tofu_am_answer_turn(iface, notice) :
                            TOFU_TURNS;

    return (turn == TOFU_TURNS) ?
                   TOFU_TURNS :
                   (turn - (uint32_t)(lender->turn >> TOFU_TAIL_TURN_SHIFT)) %
                           TOFU_TURNS;
}

void tofu_am_answered(tofu_iface_t *iface, const struct utofu_mrq_notice *notice)
{
    tofu_am_t     *am     = iface->am;
    tofu_lender_t *lender = NULL;
    uint32_t      i;

    for (i = 0; (i < iface->num_polled) && (lender == NULL); ++i) {
        if (am->polled[i]->vcq_id == notice->vcq_id) {
            lender = am->polled[i];
        }
    }
    if ((lender != NULL) &&
        (tofu_am_answer_behind(iface, lender, notice) != TOFU_TURNS)) {
        tofu_lender_unpermit(lender); /* tofu_am_before has delivered all before it */
    } else if (tofu_am_answer_turn(iface, notice) != TOFU_TURNS) {
        /* Well-formed: who had this VCQ before asked, and was closed.  That there is an
         * ep to that VCQ says nothing: it, too, may be another one's by now.  Counted,
         * but nothing to warn of. */
        ++iface->stats.dropped;
        tofu_debug("an answer came from VCQ %#llx to who had this VCQ before",
                   (unsigned long long)notice->vcq_id);
    } else {
        tofu_iface_drop(iface, TOFU_LOGGED_FORGED,
                        "an answer came from who was not asked", notice->vcq_id);
    }
}

/* ------------------------------------------------------------------ sender */

tofu_status_t TOFU_NOINLINE tofu_chan_permit(tofu_chan_t *chan)
{
    static const uint64_t nothing;
    tofu_peer_t           *peer = chan->peer;
    tofu_status_t         status;
    uint64_t              word;

    /* acquire: slots are written after their tails were cleared */
    word = atomic_load_explicit(&chan->mailbox->permit, memory_order_acquire);
    if ((word >> 32) != chan->nonce) {
        chan->permit = word; /* of another loan */
        return TOFU_OK;
    }
    chan->turn &= ~TOFU_TAIL_KEY;
    if (word & TOFU_PERMIT_REVOKE) {
        /* the place says how many messages were sent */
        status = tofu_am_post_silent(
                peer, &nothing, sizeof(nothing),
                peer->scratch +
                        (chan->turn >> TOFU_TAIL_TURN_SHIFT) % TOFU_TURNS * 8,
                TOFU_EDATA_ANSWER, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
        if (status != TOFU_OK) {
            if (status != TOFU_ERR_NO_RESOURCE) {
                tofu_peer_failed(peer, status, 1);
            }
            return status;
        }
    } else {
        chan->turn |= (word & TOFU_PERMIT_KEY) << TOFU_TAIL_KEY_SHIFT;
    }
    chan->permit = word;
    return TOFU_OK;
}
