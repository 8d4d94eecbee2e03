/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_unread.c - how many entries of TCQ and MRQ were not read yet, and whether an MRQ holds so many. */
#include "emu_modes.h"
#include "emu_rx.h"

#include <time.h>

#define COUNT_EVERY  1024u /* entries read, and more, between countings of those that were not */
#define COUNT_SHARE     8u /* counting at a poll takes no more than one part in so many */
#define COUNT_ALWAYS 8192u /* is done in no time */

/* Of each lane what is next, but no more than it can hold, whatever its producer has written.  One more
 * than `most`, with `n` that there are, is enough. */
static size_t lanes_unread(const struct emu_vcq *vcq, size_t n, size_t most)
{
    for (uint32_t k = 0; k < vcq->num_hot; k++) {
        struct emu_rx_lane look = vcq->lanes[k]; /* goes ahead, takes nothing */
        uint32_t           room = EMU_LANE_A + EMU_LANE_B(emu_g.env.lane_entries);

        while ((room-- > 0) && (n <= most) && (emu_entry_seq(look.cur) == look.expect)) {
            if (emu_lane_step(&look) & EMU_ENTRY_PAIR) {
                emu_lane_step(&look);
            }
            n++;
        }
    }
    return n;
}

size_t emu_lanes_unread(const struct emu_vcq *vcq)
{
    return lanes_unread(vcq, 0, SIZE_MAX);
}

/* Notices in the queue that are known */
static size_t known_unread(const struct emu_vcq *vcq, size_t most)
{
    size_t n = vcq->mrq_tail - vcq->mrq_head;

    if (vcq->session != NULL) {
        n += emu_session_unread_local(vcq);
    }
    return lanes_unread(vcq, n, most);
}

/* The same, and of lanes that are new */
static size_t mrq_unread(struct emu_vcq *vcq, size_t most)
{
    uint64_t epoch = atomic_load_explicit(&vcq->block->epoch, memory_order_acquire);

    if (epoch != vcq->epoch) {
        emu_lanes_refresh(vcq, epoch);
    }
    return known_unread(vcq, most);
}

/* And of the VCQs that have the MRQ, too, as they are on this CQ: strict mode.  Those that another thread is
 * busy with are left out. */
static size_t cq_unread(struct emu_vcq *vcq, size_t most)
{
    size_t n = mrq_unread(vcq, most);

    if (!emu_g.env.strict || !emu_shares_cq(vcq)) {
        return n;
    }
    emu_lock(&emu_g.lock);
    for (unsigned i = 0; (i < EMU_MAX_VCQS) && (n <= most); i++) {
        struct emu_vcq *v = emu_g.vcqs[i].vcq;

        if ((v != vcq) && emu_on_same_cq(v, vcq) && (pthread_mutex_trylock(&v->lock) == 0)) {
            (void)emu_lanes_hear(v); /* perhaps it was never polled */
            n += known_unread(v, most - n);
            pthread_mutex_unlock(&v->lock);
        }
    }
    emu_unlock(&emu_g.lock);
    return n;
}

/* Each producer sees when its lane is full; whether what all of them, and we, have put in is more
 * than an MRQ holds, we see, by counting now and then: not so often that it would be noticed. */
void emu_mrq_count(struct emu_vcq *vcq)
{
    size_t n = mrq_unread(vcq, vcq->mrq_entries);

    if (n > vcq->mrq_entries) {
        emu_async_error("MRQ Overflow", vcq);
    }
    vcq->uncounted   = 0;
    vcq->count_after = COUNT_EVERY + (uint32_t)n + vcq->num_hot;
}

static uint64_t microseconds(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

/* Counting takes long when there is much: so where it may hold many now and then, and after every pause, but the
 * longer it took, and the more there was, the later again. */
bool emu_mrq_overflown(struct emu_vcq *vcq, size_t limit)
{
    uint64_t now, before;

    if (limit <= COUNT_ALWAYS) {
        return cq_unread(vcq, limit) > limit;
    }
    now = microseconds(CLOCK_MONOTONIC);
    if ((now - vcq->counted_at < 1000 + COUNT_SHARE * vcq->count_took) &&
        (++vcq->counted_polls < 256 + vcq->counted / COUNT_SHARE)) {
        return false;
    }
    before             = microseconds(CLOCK_THREAD_CPUTIME_ID); /* no part of it: waits for a CPU */
    vcq->counted       = cq_unread(vcq, limit);
    vcq->count_took    = microseconds(CLOCK_THREAD_CPUTIME_ID) - before;
    vcq->counted_at    = microseconds(CLOCK_MONOTONIC);
    vcq->counted_polls = 0;
    return vcq->counted > limit;
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
    emu_lock(&emu_g.lock);
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        if (emu_on_same_cq(emu_g.vcqs[i].vcq, vcq)) {
            n += emu_toq_unread(emu_g.vcqs[i].vcq);
        }
    }
    emu_unlock(&emu_g.lock);
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
    n = emu_wire_owes(vcq) ? vcq->mrq_tail - vcq->mrq_head : mrq_unread(vcq, SIZE_MAX); /* the others wait */
    emu_vcq_unlock(vcq);
    *count = n;
    return UTOFU_SUCCESS;
}
