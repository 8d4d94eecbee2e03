/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_recall.c - asking holders of receive slots: to give them back, because others
 * wait for slots and there are none; and whether they live, when they are silent.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#define TOFU_RECALLS_PER_TICK 8u

/* While others wait for slots, a holder is asked for its own when its messages have
 * gone round them so often: taking turns costs five operations and a round trip. */
#define TOFU_RECALL_ROUNDS 4u

/* Ask for the slots back, by a put with notice, so that a holder that died is
 * found; every second time ask whether it is still who was lent them.  The peer may
 * fail in this call, and the lender be freed. */
static tofu_status_t tofu_lender_recall(tofu_lender_t *lender)
{
    tofu_am_t     *am     = lender->peer->iface->am;
    tofu_peer_t   *peer   = lender->peer;
    tofu_status_t status;

    if (peer->probing) {
        return TOFU_OK; /* another time */
    }
    if ((lender->recalled == TOFU_RECALL_ASKED) || (lender->recalled == TOFU_RECALL_AGAIN)) {
        /* it may never answer: it stands for nobody else */
        am->num_recalled -= (lender->recalled == TOFU_RECALL_ASKED);
        lender->recalled  = TOFU_RECALL_LATE;
        return tofu_am_ask_holder(lender);
    }
    status = tofu_am_probe(peer,
                           lender->mailbox + offsetof(tofu_mailbox_t, recall),
                           lender->nonce, ~0u, 1);
    if ((status == TOFU_OK) && (peer->lender == lender)) {
        am->num_recalled += (lender->recalled == TOFU_RECALL_NONE);
        lender->recalled  = (lender->recalled == TOFU_RECALL_NONE) ? TOFU_RECALL_ASKED :
                                                                    TOFU_RECALL_AGAIN;
    }
    return status;
}

/* It used its slots for a while, and others wait: ask now, not in the next tick,
 * but not more holders than there are who wait. */
void TOFU_NOINLINE tofu_lender_take_turns(tofu_lender_t *lender)
{
    tofu_am_t   *am   = lender->peer->iface->am;
    uint32_t    waits = 0, i;
    tofu_link_t *link;

    for (i = 0; (i < TOFU_AM_CLASSES) &&
                (lender->loan[i].arrived <
                 TOFU_RECALL_ROUNDS * lender->loan[i].count); ++i) {
    }
    if ((i == TOFU_AM_CLASSES) || (lender->recalled != TOFU_RECALL_NONE) ||
        lender->dead || lender->gone) {
        return;
    }
    for (link = am->jobs.next; link != &am->jobs; link = link->next) {
        ++waits;
    }
    if (am->num_recalled < waits) {
        tofu_lender_recall(lender); /* no room for it: with the next report */
    }
}

static uint32_t tofu_lender_arrived(const tofu_lender_t *lender)
{
    return lender->loan[TOFU_AM_SMALL].arrived +
           lender->loan[TOFU_AM_LARGE].arrived;
}

static void tofu_am_recall_any(tofu_am_t *am)
{
    unsigned    asked;
    tofu_link_t *link = am->lenders.next;

    for (asked = 0; (asked < TOFU_RECALLS_PER_TICK) && (link != &am->lenders);
         ++asked) {
        tofu_lender_t *lender = tofu_container(link, tofu_lender_t, link);

        link = link->next;
        if (!lender->dead && !lender->gone &&
            (tofu_lender_recall(lender) == TOFU_ERR_NO_RESOURCE)) {
            return;
        }
        /* to the end, so that all get their turn */
        tofu_list_del(&lender->link);
        tofu_list_add(&am->lenders, &lender->link);
    }
}

/* Goes on where it left off when there was no room for one more notice. */
void tofu_am_recall_idle(tofu_am_t *am)
{
    while ((am->recall_left > 0) && (am->recall_scan > 0) &&
           !tofu_list_empty(&am->lenders)) {
        tofu_lender_t *lender  = tofu_container(am->lenders.next, tofu_lender_t,
                                                link);
        uint32_t      arrived  = tofu_lender_arrived(lender);

        if ((arrived == lender->last_seen) && !lender->dead && !lender->gone) {
            int again = (lender->recalled != TOFU_RECALL_NONE);

            if (tofu_lender_recall(lender) == TOFU_ERR_NO_RESOURCE) {
                return;
            }
            if (!again) {
                --am->recall_left;
                am->recall_asked = 1;
            }
        }
        tofu_list_del(&lender->link);
        tofu_list_add(&am->lenders, &lender->link);
        lender->last_seen = arrived;
        --am->recall_scan;
    }
    am->recall_left = 0;
    if (!am->recall_asked) {
        tofu_am_recall_any(am);
    }
}

/*
 * Somebody waits for slots and there are none: ask as many holders as requests
 * wait to give theirs back, of those that sent nothing since the last tick; when
 * there is no such holder, some of the others.
 */
void tofu_am_recall(tofu_am_t *am)
{
    tofu_link_t *link;

    am->recall_left = am->recall_scan = 0;
    for (link = am->jobs.next; link != &am->jobs; link = link->next) {
        ++am->recall_left;
    }
    for (link = am->lenders.next; link != &am->lenders; link = link->next) {
        ++am->recall_scan;
    }
    am->recall_asked = 0;
    tofu_am_recall_idle(am);
    tofu_am_update_work(am);
}

/*
 * A holder that is silent for long, with nothing to say, or doing something else, may be gone,
 * which it is asked.  Looks at one holder in each tick, in turn.
 */
void tofu_am_probe_silent(tofu_am_t *am)
{
    uint32_t      now_ms = (uint32_t)am->iface->now_ms, arrived;
    tofu_lender_t *lender;

    if (tofu_list_empty(&am->lenders)) {
        return;
    }
    lender = tofu_container(am->lenders.next, tofu_lender_t, link);
    tofu_list_del(&lender->link);
    tofu_list_add(&am->lenders, &lender->link);
    arrived = tofu_lender_arrived(lender);
    if (arrived != lender->heard) {
        lender->heard    = arrived;
        lender->retold   = 0;
        lender->heard_ms = now_ms;
    } else if ((now_ms - lender->heard_ms >= TOFU_AM_SILENT_MS) &&
               !lender->dead && !lender->gone) {
        lender->heard_ms = now_ms;
        /* The word that it was told last can have been written over, by one that was for an
         * iface that had its VCQ, or its mailbox, before: then it waits for that. */
        tofu_lender_report(lender);
        if (!lender->gone) {
            tofu_am_ask_holder(lender);
        }
    }
}
