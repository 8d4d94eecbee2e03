/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_lend.c - lending receive slots: grants, credit and returns.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#include <stdlib.h>

/* ------------------------------------------------------------------- pool */

/* The longest free run, at most `want`; 0 when it is shorter than the minimum. */
static uint32_t tofu_pool_find(const tofu_pool_t *pool, uint32_t want,
                               uint32_t *begin_p)
{
    uint32_t best = 0, run = 0, i;

    for (i = 0; (i < pool->count) && (best < want); ++i) {
        run = (pool->owner[i] == NULL) ? run + 1 : 0;
        if (run > best) {
            best     = run;
            *begin_p = i + 1 - run;
        }
    }
    return (best >= TOFU_AM_MIN_WINDOW) ? best : 0;
}

/* The more is lent already, the less a newcomer gets. */
static int tofu_pool_lend(tofu_pool_t *pool, tofu_lender_t *lender,
                          tofu_loan_t *loan)
{
    uint32_t want  = pool->free / TOFU_AM_POOL_SHARE;
    uint32_t begin = 0, i;

    want = (want > pool->max_window) ? pool->max_window : want;
    want = (want < TOFU_AM_MIN_WINDOW) ? TOFU_AM_MIN_WINDOW : want;
    want = tofu_pool_find(pool, want, &begin);
    if (want == 0) {
        return 0;
    }
    for (i = 0; i < want; ++i) {
        pool->owner[begin + i] = lender;
    }
    pool->free -= want;
    loan->begin = begin;
    loan->count = want;
    loan->next  = begin;
    return 1;
}

/* All but the slots that handlers keep: those are `orphan`'s from now on. */
static void tofu_pool_take_back(tofu_pool_t *pool, const tofu_loan_t *loan,
                                tofu_lender_t *orphan)
{
    uint32_t i;

    for (i = 0; i < loan->count; ++i) {
        pool->owner[loan->begin + i] = (((uint64_t)loan->kept >> i) & 1) ?
                                               orphan :
                                               NULL;
    }
    pool->free += loan->count - loan->num_kept;
}

void tofu_lender_reclaim(tofu_lender_t *lender)
{
    tofu_am_t *am = lender->peer->iface->am;
    unsigned  i;

    lender->dead = 1;
    tofu_lender_unpermit(lender);
    if (lender->peer->lender == lender) {
        lender->peer->lender = NULL;
    }
    tofu_list_del(&lender->due);
    if (lender->depth > 0) {
        return; /* a handler still reads a slot; called again after it */
    }
    for (i = 0; i < TOFU_AM_CLASSES; ++i) {
        tofu_pool_take_back(&am->pool[i], &lender->loan[i], &am->orphan);
    }
    am->num_recalled -= (lender->recalled == TOFU_RECALL_ASKED);
    tofu_list_del(&lender->link);
    free(lender);
    am->short_of_slots = 0; /* those that wait may try again */
    tofu_am_update_work(am);
}

void tofu_lender_gone(tofu_lender_t *lender)
{
    tofu_am_t *am = lender->peer->iface->am;

    if (!lender->gone) {
        lender->gone      = 1;
        lender->gone_call = (uint32_t)am->iface->calls;
        tofu_list_del(&lender->due);
        tofu_list_add(&am->gone, &lender->due);
        am->iface->work |= TOFU_WORK_AM;
    }
}

/* ------------------------------------------------------------- operations */

int tofu_am_internal_room(tofu_am_t *am)
{
    const tofu_iface_t *iface = am->iface;
    /* the others are for answers of senders that had a permit */
    const uint32_t     most   = TOFU_INTERNAL_NOTICES - iface->config.am_polled;

    /* the second: of operations that were given up notices may come yet */
    return (am->internal < most) &&
           (iface->notices < iface->config.tx_notified + most);
}

tofu_status_t tofu_am_post_silent(tofu_peer_t *peer, const void *data,
                                  unsigned length, utofu_stadd_t where,
                                  unsigned edata, unsigned long flags)
{
    tofu_iface_t  *iface = peer->iface;
    tofu_status_t status;

    if (tofu_iface_post_limited(iface)) {
        return TOFU_ERR_NO_RESOURCE; /* were it to fail: see tofu_attr_bound */
    }
    status = tofu_post(iface, "utofu_put_piggyback", peer->vcq_id, length,
                       iface->fn.put_piggyback(
                               iface->vcq, peer->vcq_id, (void *)data, where,
                               length, edata,
                               flags | UTOFU_ONESIDED_FLAG_STRONG_ORDER,
                               tofu_cbdata(peer, TOFU_CB_PEER)));
    if (status == TOFU_OK) {
        ++iface->stats.credit_tx;
    }
    return status;
}

/* --------------------------------------------------------------- answers */

/* The 32 bytes that end with the answer. */
static tofu_status_t tofu_am_answer(tofu_peer_t *peer, utofu_stadd_t mailbox, uint32_t nonce,
                                    const tofu_lender_t *lender, unsigned answer)
{
    uint64_t body[4] = {0, 0, 0, 0};
    unsigned i;

    for (i = 0; (lender != NULL) && (i < TOFU_AM_CLASSES); ++i) {
        body[i] = lender->loan[i].begin |
                  ((uint64_t)lender->loan[i].count << 32);
    }
    if (lender != NULL) {
        body[2] = tofu_in_place_where(peer->iface->am);
    }
    body[3] = ((uint64_t)nonce << 32) | answer;
    return tofu_am_post_silent(peer, body, sizeof(body),
                               mailbox + offsetof(tofu_mailbox_t, grant),
                               TOFU_EDATA_CONTROL, 0);
}

/* Nothing ever came: it may not know of its slots.  (It looks at this only while it waits for it.) */
static tofu_status_t tofu_lender_grant_again(tofu_lender_t *lender)
{
    return tofu_am_answer(lender->peer, lender->mailbox, lender->nonce, lender,
                          TOFU_ANSWER_GRANTED);
}

/* ----------------------------------------------------------------- credit */

/* How many messages were consumed, and which slots to pass over. */
static inline tofu_status_t tofu_lender_post_credit(const tofu_lender_t *lender, uint32_t s,
                                                    uint32_t l)
{
    tofu_peer_t   *peer  = lender->peer;
    tofu_iface_t  *iface = peer->iface;
    tofu_status_t status;
    uint64_t      word;

    if (tofu_iface_post_limited(iface)) {
        return TOFU_ERR_NO_RESOURCE;
    }
    word   = (s & 0xffffffull) | ((l & 0xffull) << 24) |
           ((uint64_t)lender->loan[TOFU_AM_LARGE].skip << 32) |
           ((uint64_t)(lender->nonce & 0xffff) << 48);
    /* ordered, or an older count might land after a newer one */
    status = tofu_post(iface, "utofu_put_piggyback8", peer->vcq_id, 8,
                       iface->fn.put_piggyback8(
                               iface->vcq, peer->vcq_id, word,
                               lender->mailbox + offsetof(tofu_mailbox_t, credit), 8,
                               TOFU_EDATA_CONTROL, UTOFU_ONESIDED_FLAG_STRONG_ORDER,
                               tofu_cbdata(peer, TOFU_CB_PEER)));
    iface->stats.credit_tx += (status == TOFU_OK);
    return status;
}

void tofu_lender_report(tofu_lender_t *lender)
{
    tofu_iface_t  *iface = lender->peer->iface;
    tofu_peer_t   *peer  = lender->peer;
    tofu_loan_t   *small = &lender->loan[TOFU_AM_SMALL];
    tofu_loan_t   *large = &lender->loan[TOFU_AM_LARGE];
    uint32_t      s      = small->consumed, l = large->consumed;
    uint32_t      news   = s - small->reported;
    uint32_t      larges = l - large->reported;
    tofu_status_t status;

    if (lender->gone) {
        return;
    }
    status = TOFU_UNLIKELY((small->arrived | large->arrived) == 0) ?
                     tofu_lender_grant_again(lender) :
                     tofu_lender_post_credit(lender, s, l);
    if (TOFU_LIKELY(status == TOFU_OK)) {
        small->reported = s;
        large->reported = l;
        if (!lender->gone) {
            tofu_list_del(&lender->due);
        }
        if (lender->permit != TOFU_PERMIT_NONE) {
            if ((lender->permit == TOFU_PERMIT_GIVEN) &&
                (((lender->turn - lender->polled_turn) >>
                  TOFU_TAIL_TURN_SHIFT) >= TOFU_PERMIT_ROUND)) {
                tofu_lender_revoke(lender);
            }
        } else if ((iface->num_polled < iface->config.am_polled) &&
                   (peer->port == 0) && /* notices must tell whose they are */
                   !iface->am->short_of_slots &&
                   ((news * 2 >= small->count) ||
                    (larges * 2 >= large->count)) &&
                   (lender->fits * 2 >= news + larges)) {
            tofu_lender_permit(lender);
        }
        lender->fits = 0;
        if (TOFU_UNLIKELY(iface->am->short_of_slots)) {
            tofu_lender_take_turns(lender);
        }
    } else if (status == TOFU_ERR_NO_RESOURCE) {
        if (!lender->gone && tofu_list_empty(&lender->due)) {
            tofu_list_add(&iface->am->due, &lender->due);
            iface->work |= TOFU_WORK_AM;
        }
    } else {
        tofu_am_borrower_gone(peer);
    }
}

/* ---------------------------------------------------------------- requests */

typedef enum { TOFU_JOB_DONE, TOFU_JOB_LATER, TOFU_JOB_NO_SLOTS } tofu_job_end_t;

static tofu_job_end_t tofu_job_grant(tofu_am_t *am, tofu_job_t *job)
{
    tofu_peer_t   *peer = job->peer;
    tofu_lender_t *lender;
    tofu_status_t status;

    if (peer->lender != NULL) {
        /* who had this VCQ before died without a word */
        tofu_lender_gone(peer->lender);
        return TOFU_JOB_NO_SLOTS;
    }
    lender = calloc(1, sizeof(*lender));
    if (lender == NULL) {
        return TOFU_JOB_LATER;
    }
    if (!tofu_pool_lend(&am->pool[TOFU_AM_SMALL], lender,
                        &lender->loan[TOFU_AM_SMALL])) {
        free(lender);
        return TOFU_JOB_NO_SLOTS;
    }
    if (!tofu_pool_lend(&am->pool[TOFU_AM_LARGE], lender,
                        &lender->loan[TOFU_AM_LARGE])) {
        tofu_pool_take_back(&am->pool[TOFU_AM_SMALL],
                            &lender->loan[TOFU_AM_SMALL], &am->orphan);
        free(lender);
        return TOFU_JOB_NO_SLOTS;
    }
    status = tofu_am_answer(peer, job->mailbox, job->nonce, lender,
                            TOFU_ANSWER_GRANTED);
    if (status != TOFU_OK) {
        tofu_pool_take_back(&am->pool[TOFU_AM_SMALL],
                            &lender->loan[TOFU_AM_SMALL], &am->orphan);
        tofu_pool_take_back(&am->pool[TOFU_AM_LARGE],
                            &lender->loan[TOFU_AM_LARGE], &am->orphan);
        free(lender);
        return (status == TOFU_ERR_NO_RESOURCE) ? TOFU_JOB_LATER :
                                                  TOFU_JOB_DONE;
    }
    lender->vcq_id  = peer->vcq_id;
    lender->peer    = peer;
    lender->nonce   = job->nonce;
    lender->incarnation = job->incarnation;
    lender->mailbox = job->mailbox;
    tofu_iface_read_clock(am->iface);
    lender->report_ms = am->iface->now_ms;
    lender->heard_ms  = (uint32_t)am->iface->now_ms;
    tofu_list_init(&lender->due);
    tofu_list_add(&am->lenders, &lender->link);
    peer->lender = lender;
    return TOFU_JOB_DONE;
}

static tofu_job_end_t tofu_job_release(tofu_job_t *job)
{
    tofu_peer_t   *peer = job->peer;
    tofu_status_t status;

    /* Its messages came before this request, in order: all were delivered. */
    if ((peer->lender != NULL) && (peer->lender->nonce == job->nonce)) {
        tofu_lender_reclaim(peer->lender);
    }
    status = tofu_am_answer(peer, job->mailbox, job->nonce, NULL, TOFU_ANSWER_RELEASED);
    return (status == TOFU_ERR_NO_RESOURCE) ? TOFU_JOB_LATER : TOFU_JOB_DONE;
}

static tofu_job_end_t tofu_job_stale(tofu_job_t *job)
{
    tofu_status_t status = tofu_am_answer(job->peer, job->mailbox, job->nonce, NULL,
                                          TOFU_ANSWER_GONE);

    return (status == TOFU_ERR_NO_RESOURCE) ? TOFU_JOB_LATER : TOFU_JOB_DONE;
}

static unsigned tofu_jobs_progress(tofu_am_t *am)
{
    unsigned       count = 0;
    int            no_slots;
    tofu_link_t    *link;
    tofu_job_end_t end;

restart: /* after every answer: it may have failed a peer, and freed its jobs */
    no_slots = 0;
    for (link = am->jobs.next; link != &am->jobs; link = link->next) {
        tofu_job_t *job = tofu_container(link, tofu_job_t, link);

        /* releases pass grants that wait: they bring what those wait for */
        if (job->type == TOFU_REQUEST_RELEASE) {
            end = tofu_job_release(job);
        } else if (job->type == TOFU_REQUEST_STALE) {
            end = tofu_job_stale(job);
        } else {
            /* Also behind others that wait: who had its VCQ before may hold what they
             * wait for. */
            end = (no_slots && (job->peer->lender == NULL)) ? TOFU_JOB_NO_SLOTS :
                                                              tofu_job_grant(am, job);
        }
        if (end == TOFU_JOB_LATER) {
            return count; /* the TOQ is full */
        }
        if (end == TOFU_JOB_NO_SLOTS) {
            no_slots = 1;
            continue;
        }
        if (job->type != 0) {
            tofu_am_entry_free(am, (uint32_t)(job - am->job));
        }
        ++count;
        goto restart;
    }
    am->short_of_slots = no_slots;
    return count;
}

/* --------------------------------------------------------------- progress */

void tofu_am_update_work(tofu_am_t *am)
{
    if (!tofu_list_empty(&am->waiting) || !tofu_list_empty(&am->due) ||
        !tofu_list_empty(&am->gone) ||
        ((am->recall_left > 0) && am->short_of_slots) ||
        (!tofu_list_empty(&am->jobs) && !am->short_of_slots)) {
        am->iface->work |= TOFU_WORK_AM;
    } else {
        am->iface->work &= ~(uint32_t)TOFU_WORK_AM;
    }
}

unsigned tofu_am_report_due(tofu_am_t *am)
{
    unsigned    count = 0;
    tofu_link_t *link;

    while (!tofu_list_empty(&am->due)) {
        link = am->due.next;
        tofu_lender_report(tofu_container(link, tofu_lender_t, due));
        if (am->due.next == link) {
            break; /* the TOQ is full */
        }
        ++count;
    }
    return count;
}

unsigned tofu_am_progress(tofu_iface_t *iface, int mrq_empty)
{
    tofu_am_t *am    = iface->am;
    unsigned  count  = tofu_am_report_due(am);

    while (mrq_empty && !tofu_list_empty(&am->gone)) {
        tofu_lender_t *lender = tofu_container(am->gone.next, tofu_lender_t,
                                               due);
        if (lender->gone_call == (uint32_t)iface->calls) {
            break; /* found after the MRQ was read: more may have come since */
        }
        if ((lender->permit != TOFU_PERMIT_NONE) &&
            (tofu_am_drain(iface, lender) > 0)) {
            ++count;
            break; /* users were called: all may be different now */
        }
        tofu_lender_reclaim(lender);
        ++count;
    }
    if (!tofu_list_empty(&am->jobs) && !am->short_of_slots) {
        count += tofu_jobs_progress(am);
    }
    if ((am->recall_left > 0) && am->short_of_slots) {
        tofu_am_recall_idle(am);
    }
    count += tofu_chans_progress(iface);
    tofu_am_update_work(am);
    return count;
}

void tofu_am_tick(tofu_iface_t *iface, int mrq_empty)
{
    tofu_am_t *am = iface->am;

    tofu_am_keep_identity(am);
    tofu_am_check_claims(am, mrq_empty);
    tofu_suspects_probe(iface);
    tofu_am_polled_tick(am);
    if (am->short_of_slots && !tofu_list_empty(&am->jobs)) {
        tofu_am_recall(am);
    }
    tofu_am_probe_silent(am);
    tofu_chans_tick(iface);
}

void tofu_am_borrower_gone(tofu_peer_t *peer)
{
    tofu_am_t *am = peer->iface->am;
    uint32_t  i;

    if (peer->lender != NULL) {
        tofu_lender_gone(peer->lender);
    }
    for (i = 0; i < TOFU_REQUEST_ENTRIES; ++i) {
        if ((am->job[i].type != 0) && (am->job[i].peer == peer)) {
            tofu_am_entry_free(am, i);
        }
    }
}

#define TOFU_RETELL_MAX 8u

void tofu_am_borrower_retell(tofu_peer_t *peer)
{
    tofu_am_t     *am     = peer->iface->am;
    tofu_lender_t *lender = peer->lender;

    if ((am == NULL) || (lender == NULL) || lender->gone || lender->dead) {
        return;
    }
    if (++lender->retold > TOFU_RETELL_MAX) {
        tofu_am_borrower_gone(peer); /* nothing reaches it */
    } else if (tofu_list_empty(&lender->due)) {
        tofu_list_add(&am->due, &lender->due);
        am->iface->work |= TOFU_WORK_AM;
    }
}

void tofu_am_peer_gone(tofu_peer_t *peer, tofu_status_t status, int borrower)
{
    /* A failure of our own says nothing about what the peer still writes: its slots can
     * be lent again when it is known to be gone, as probes tell. */
    if (borrower && (status == TOFU_ERR_ENDPOINT_TIMEOUT)) {
        tofu_am_borrower_gone(peer);
    }
    if (peer->chan != NULL) {
        tofu_chan_reset(peer->chan);
    }
}
