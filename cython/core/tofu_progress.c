/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_progress.c - the one place from which users are called.
 *
 * With nothing to do, progress is one utofu_poll_mrq.  The TCQ is looked at when
 * something that only it can tell is awaited (a bounce buffer, an error in place of
 * a local notice), and now and then, to make room in the TOQ.
 */
#include "tofu_internal.h"
#include "tofu_am.h"
#include "tofu_look.h"
#include "tofu_notice.h"

#include <time.h>

#define TOFU_NOTICES_MAX   32u /* read by one progress */
#define TOFU_POSTS_UNSEEN  64u /* posts between looks at the TCQ */

void TOFU_NOINLINE tofu_iface_drop(tofu_iface_t *iface, unsigned kind,
                                   const char *what, utofu_vcq_id_t vcq_id)
{
    iface = iface->owner;
    ++iface->stats.dropped;
    if (!(iface->logged & kind)) {
        iface->logged |= (uint8_t)kind;
        tofu_warn("%s: dropped (VCQ %#llx; more of the kind are only counted)",
                  what, (unsigned long long)vcq_id);
    }
}

void TOFU_NOINLINE tofu_iface_fatal(tofu_iface_t *iface, const char *call,
                                    int code)
{
    tofu_link_t *link;

    iface = iface->owner;
    if (iface->fatal) {
        return;
    }
    iface->fatal = 1;
    tofu_error("%s on VCQ %#llx: %s; its endpoints fail", call,
               (unsigned long long)iface->vcq_id, tofu_code_name(code));
    for (link = iface->eps.next; link != &iface->eps; link = link->next) {
        tofu_ep_fail(tofu_container(link, tofu_ep_t, eps),
                     TOFU_ERR_IO_ERROR);
    }
}

/* What is not a message that came.  Returns 0 when polling is of no use. */
static TOFU_NOINLINE int
tofu_iface_notice(tofu_iface_t *iface, const struct utofu_mrq_notice *notice,
                  int code)
{
    if (!tofu_is_mrq_result(code)) {
        tofu_iface_fatal(iface, "utofu_poll_mrq", code);
        return 0;
    }
    if (tofu_is_local_notice(notice)) {
        tofu_op_mrq(iface, notice, code, 1);
    } else {
        /* an error at the remote side of an operation, or a kind of operation
         * that nobody of ours asks a remote notice for */
        tofu_iface_drop(iface, TOFU_LOGGED_REMOTE,
                        "a remote notice that is an error or no message",
                        notice->vcq_id);
    }
    return 1;
}

static unsigned tofu_iface_serve_done(tofu_iface_t *iface)
{
    unsigned count = 0;

    while (!tofu_list_empty(&iface->done)) {
        tofu_op_t *op = tofu_container(iface->done.next, tofu_op_t, done);
        tofu_list_del(&op->done);
        tofu_op_finish(op);
        ++count;
    }
    while (!tofu_list_empty(&iface->failed)) {
        tofu_ep_t *ep = tofu_container(iface->failed.next, tofu_ep_t, failed);
        tofu_list_del(&ep->failed);
        if (ep->flags & TOFU_EP_DOOMED) {
            tofu_ep_fail(ep, TOFU_ERR_CANCELED); /* comes again */
        } else if (ep->flags & TOFU_EP_ORPHAN) {
            tofu_ep_destroy(ep);
        } else if (ep->hidden) {
            tofu_check_failed(ep); /* its owner comes */
        } else if (iface->config.err_cb != NULL) {
            iface->config.err_cb(iface->config.err_arg, ep,
                                 (tofu_status_t)ep->status);
        } else {
            tofu_warn("endpoint to VCQ %#llx failed: %s",
                      (unsigned long long)ep->peer->vcq_id,
                      tofu_status_string((tofu_status_t)ep->status));
        }
        ++count;
    }
    if (tofu_list_empty(&iface->done) && tofu_list_empty(&iface->failed)) {
        iface->work &= ~(uint32_t)TOFU_WORK_DONE;
    }
    return count;
}

void tofu_iface_read_clock(tofu_iface_t *iface)
{
    struct timespec now;

    /* the coarse clock goes by steps of 4 or 10 ms: longer than a tick */
    clock_gettime(CLOCK_MONOTONIC, &now);
    iface->now_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    iface->now_ms = iface->now_us / 1000;
}

static void tofu_iface_look_at_clock(tofu_iface_t *iface, int mrq_empty)
{
    unsigned i;

    tofu_iface_read_clock(iface);
    if (iface->now_ms - iface->tick_ms >= TOFU_TICK_MS) {
        iface->tick_ms = iface->now_ms;
        for (i = 0; i < TOFU_MAX_TNIS; ++i) {
            if (iface->lane[i] != NULL) {
                tofu_iface_drain_dereg(iface->lane[i]);
            }
        }
        tofu_am_tick(iface, mrq_empty);
    }
}

/* Notices and errors of what a lane posted.  Nobody sends it messages. */
static unsigned tofu_lane_progress(tofu_iface_t *lane)
{
    unsigned                count = 0;
    struct utofu_mrq_notice notice;
    int                     code;

    do {
        if (lane->stashed) {
            code = tofu_stash_take(lane, &notice);
        } else {
            code = lane->fn.poll_mrq(lane->vcq, 0, &notice);
        }
        if ((code == UTOFU_ERR_NOT_FOUND) ||
            !tofu_iface_notice(lane, &notice, code)) {
            break;
        }
    } while (++count < TOFU_NOTICES_MAX);
    lane->owner->stats.notices += count;
    if (((lane->notices > 0) && (count == 0)) ||
        (lane->posts - lane->posts_seen >= TOFU_POSTS_UNSEEN)) {
        count += tofu_tcq_drain(lane);
    }
    return count;
}

unsigned tofu_lanes_progress(tofu_iface_t *iface)
{
    unsigned count = 0, busy = 0, i;

    for (i = 1; i < TOFU_MAX_TNIS; ++i) {
        if (iface->lane[i] != NULL) {
            count += tofu_lane_progress(iface->lane[i]);
            busy  |= iface->lane[i]->notices;
        }
    }
    if (busy == 0) {
        iface->work &= ~(uint32_t)TOFU_WORK_LANES;
    }
    return count;
}

static TOFU_NOINLINE unsigned tofu_iface_progress_more(tofu_iface_t *iface,
                                                       unsigned count,
                                                       int mrq_empty)
{
    if (iface->calls % TOFU_CLOCK_PERIOD == 0) {
        tofu_iface_look_at_clock(iface, mrq_empty && !iface->stashed);
    }
    if (((iface->notices > 0) && (count == 0)) ||
        (iface->posts - iface->posts_seen >= TOFU_POSTS_UNSEEN)) {
        count += tofu_tcq_drain(iface);
    } else {
        count += tofu_tcq_reap(iface);
    }
    if (iface->work & TOFU_WORK_REFUSED) {
        iface->work &= ~(uint32_t)TOFU_WORK_REFUSED;
        ++count;
    }
    if (iface->work & TOFU_WORK_LANES) {
        count += tofu_lanes_progress(iface);
    }
    if (iface->work & TOFU_WORK_LOST) {
        tofu_lost_fail(iface);
    }
    if (iface->work & TOFU_WORK_DONE) {
        count += tofu_iface_serve_done(iface);
    }
    if (iface->work & TOFU_WORK_AM) {
        /* a user called just now may have posted, and that have read a notice */
        count += tofu_am_progress(iface, mrq_empty && !iface->stashed);
    }
    if (iface->work & TOFU_WORK_TURNS) {
        count += tofu_iface_serve_turns(iface);
    }
    return count;
}

/* Handle the notice at hand, and what is behind it. */
static TOFU_NOINLINE unsigned
tofu_iface_progress_notices(tofu_iface_t *iface,
                            struct utofu_mrq_notice *notice, int code,
                            unsigned polled)
{
    unsigned count = 0;

    for (;;) {
        if (TOFU_LIKELY((code == UTOFU_SUCCESS) &&
                        (notice->notice_type == UTOFU_MRQ_TYPE_RMT_PUT))) {
            if ((iface->num_polled == 0) || tofu_am_before(iface, notice)) {
                tofu_am_arrived(iface, notice);
            }
        } else if (!tofu_iface_notice(iface, notice, code)) {
            break;
        }
        if (++count >= TOFU_NOTICES_MAX) {
            break;
        }
        if (TOFU_UNLIKELY(iface->stashed)) {
            code = tofu_stash_take(iface, notice);
        } else {
            code = iface->fn.poll_mrq(iface->vcq, 0, notice);
        }
        if (code == UTOFU_ERR_NOT_FOUND) {
            iface->posts_limit = iface->posts + iface->post_budget;
            break;
        }
    }
    iface->stats.notices += count;
    if (TOFU_UNLIKELY(count > iface->stats.mrq_peak)) {
        iface->stats.mrq_peak = count;
    }
    return tofu_iface_progress_more(iface, count + polled,
                                    code == UTOFU_ERR_NOT_FOUND);
}

/* Nothing more came, for the first time after messages did, so nobody waits for this:
 * were they of a stream, in which nothing is sent but credit?  And whom must be told what
 * was consumed? */
static void tofu_iface_take_note(tofu_iface_t *iface)
{
    uint64_t sent = tofu_iface_sent(iface);

    iface->stream_looks = ((sent == iface->stream_sent) &&
                           (iface->calls - iface->stream_call <=
                            TOFU_STREAM_CALLS)) ?
                                  TOFU_STREAM_LOOKS :
                                  0;
    iface->stream_apart = iface->came_apart;
    iface->stream_sent  = sent;
    iface->stream_call  = iface->calls;
    iface->came_apart   = 0;
    if (!tofu_list_empty(&iface->am->due)) {
        tofu_am_report_due(iface->am);
        tofu_am_update_work(iface->am); /* there may have been no room */
    }
}

/* Nothing came, maybe of a stream of messages: leave its sender alone for a while.
 * True: it was. */
static TOFU_NOINLINE bool tofu_iface_look_later(tofu_iface_t *iface)
{
    unsigned i;

    if (iface->came_apart != 0) {
        tofu_iface_take_note(iface);
        if (iface->stream_looks == 0) {
            return false;
        }
    }
    --iface->stream_looks;
    for (i = 0; i < iface->stream_apart; ++i) {
        tofu_take_time();
    }
    return true;
}

static inline bool tofu_iface_looked_in_vain(tofu_iface_t *iface)
{
    return TOFU_UNLIKELY((iface->came_apart | iface->stream_looks) != 0) &&
           tofu_iface_look_later(iface);
}

/* polled: events of this call already. */
static inline unsigned tofu_iface_progress_mrq(tofu_iface_t *iface,
                                               unsigned polled)
{
    struct utofu_mrq_notice notice;
    int                     code;

    if (TOFU_UNLIKELY(iface->stashed)) {
        code = tofu_stash_take(iface, &notice);
    } else {
        code = iface->fn.poll_mrq(iface->vcq, 0, &notice);
    }
    if (TOFU_UNLIKELY(code != UTOFU_ERR_NOT_FOUND)) {
        return tofu_iface_progress_notices(iface, &notice, code, polled);
    }
    iface->posts_limit = iface->posts + iface->post_budget;
    tofu_iface_looked_in_vain(iface);
    if (TOFU_UNLIKELY((iface->work | iface->notices | iface->tcq_due) ||
                      (iface->calls % TOFU_CLOCK_PERIOD == 0) ||
                      (iface->posts - iface->posts_seen >=
                       TOFU_POSTS_UNSEEN))) {
        return tofu_iface_progress_more(iface, polled, 1);
    }
    return polled;
}

/* Messages come without notices: look there in each call, at the MRQ in some. */
static TOFU_NOINLINE unsigned tofu_iface_progress_polled(tofu_iface_t *iface)
{
    unsigned polled = 0, mask;
    int      looked = 0;
    uint64_t tail;
    uint32_t i;

    if (tofu_am_polled_ready(iface, &i, &tail)) {
        polled = tofu_am_polled(iface, i, tail);
    } else if (!tofu_iface_looked_in_vain(iface) &&
               (iface->polled_empty < TOFU_POLLED_EAGER) &&
               (iface->posts - iface->came_posts - 1 < TOFU_POLLED_SENT)) {
        ++iface->polled_empty;
        polled = tofu_am_polled_again(iface);
        looked = (polled == 0);
    }
    if (polled > 0) {
        iface->polled_empty = 0;
    }
    mask = (polled == 1) ? TOFU_POLLED_SKIP_ONE - 1 : TOFU_POLLED_SKIP - 1;
    if (TOFU_LIKELY(((iface->calls & mask) != 0) && !looked &&
                    !(iface->work | iface->notices | iface->tcq_due))) {
        return polled;
    }
    return tofu_iface_progress_mrq(iface, polled);
}

unsigned tofu_iface_progress(tofu_iface_t *iface)
{
    ++iface->calls;
    return (iface->num_polled > 0) ? tofu_iface_progress_polled(iface) :
                                     tofu_iface_progress_mrq(iface, 0);
}
