/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_timing.c - the timed mode: operations take the time that Tofu-D takes, by a
 * small model with published figures (docs/timing.md).
 *
 * There is no network interface that could work beside the caller, so the call that
 * posts an operation waits until the operation's effect is due, and stores then.  A
 * program that posts several would see the waiting times add up.  They must not:
 * while a thread calls the library again and again its clock lags behind the real
 * one by what it waited (`skew`), the next operation starts at the time of that
 * clock, and is then due at once or soon.  The lag ends when the thread does
 * something else for a while, or gets an entry from a queue that was due later.
 *
 * Times are ticks of the CPU's counter, which all processes share.  When resources
 * of the network are free again is kept per node in the job's control segment.
 */
#include "emu_path.h"
#include "emu_ticks.h"
#include "emu_timing.h"

#include <stdlib.h>
#include <string.h>

#define BURST_NS     400u /* calls closer than this belong together */
#define BURST_SHARE  16u  /* ... or closer than this part of what the thread lags behind */
#define ALONE_NS     2000u /* ... or than this, if nothing has come that the thread could have waited for */
#define LATE_NS      200u /* what a thread is late by itself; more is somebody else's work */
#define COPY_BYTES_PER_NS 2u /* slower than that is somebody else's work, too */
#define NEAR_NS      200u /* a poll waits for an entry that is due so soon */
/* What the calls themselves take, seen from outside (perf/timing_table.py), as a share of what
 * a call takes that posts nothing for anybody (call_looks): the end of the poll that finds a notice;
 * and emu_entry_share. */
#define POLL_SHARE   0.5
#define REACTION_NS  8u  /* from the store's call to the store, and who looks at the word: its loop */
#define LIE_NS       10000000u /* no notice is there so much before it is due */
#define FULL_NS      10000000000u /* no resource has so much to do: 100 puts of 16 MB with the longest gap */
#define JITTER_NS    150u /* a notice is there so much before it is due, in 99 of 100 cases */
#define ANSWER_NS    2000u /* who posts so long after something came may answer it */
#define ANSWER_SHARE 16   /* of what a time differs from those before, the part that counts */
#define STRAYS       2u   /* so many times in a row may be unlike those before */
#define EMPTY_POLLS  64u  /* after them a thread has waited for something else */
#define FOUND_NS     120 /* who looks for a word posts its answer within this after it came */
#define ANSWERS      16u /* so many posts that seem to be answers are */
#define STREAMS      4u  /* one that does not takes so many of them back */
#define FEW          2u  /* puts that one exchanges with a peer: the data, and the word that they are there */
#define DIM_B        3

static double   ns[PARAMETERS];
static uint64_t tk[PARAMETERS]; /* the same in ticks */
static double   byte_ticks;
static uint64_t tk_late, tk_near, tk_lie, tk_full, tk_entry, tk_burst, tk_alone, tk_reaction, tk_poll, tk_jitter, tk_answer;
static uint64_t tk_found, tk_early;
static double   entry_looks, poll_looks; /* emu_entry_share, POLL_SHARE: in looks at the clock */
static bool     timed;

static __thread struct {
    uint64_t skew; /* how far this thread's clock is behind */
    uint64_t last; /* end of its last call */
    uint64_t now;  /* its clock, within a call that posts */
    uint64_t wait; /* until when that call waits */
    uint64_t sent; /* when the last of what it sent to its own node arrives */
    uint64_t sent_came; /* the same as emu_clock.came has it */
    unsigned empty; /* polls that found nothing, since a post or an entry */
    uint64_t late; /* what the call may be late by itself */
    uint64_t began; /* when the call that posts began */
    bool     in_call;
    uint64_t answered; /* the last arrival at its node that it has posted after */
    int64_t  takes;    /* from an arrival to the post that answers it: what this thread's program takes */
    unsigned strays;   /* times in a row that were not like that */
    unsigned answers;  /* posts that seemed to answer what came, less STREAMS for each that did not */
    uint64_t came;     /* emu_clock.came at the last post */
    uint64_t entry, poll; /* tk_entry, tk_poll at this thread's speed */
} me __attribute__((tls_model("initial-exec")));

/* ------------------------------------------------------------------ the clock */

void emu_timing_wait(uint64_t until)
{
    me.wait = (until > me.wait) ? until : me.wait;
    emu_ticks_wait(until);
}

static uint64_t entry_takes(void)
{
    return (me.entry != 0) ? me.entry : tk_entry;
}

static uint64_t poll_takes(void)
{
    return (me.entry != 0) ? me.poll : tk_poll;
}

/* ------------------------------------------- what this machine adds by itself */

#define CHUNKS 64
#define ROUNDS 24

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* What a call takes in which time plays a part, but nobody waits: in looks at the clock, of which
 * *look_p is what one takes, in ticks.  CPUs differ by 2. */
static double call_looks(double *look_p)
{
    struct emu_vcq  *vcq;
    struct emu_desc  nop = {.kind = EMU_OP_NOP};
    struct emu_times times;
    double           calls[CHUNKS], looks[CHUNKS];

    *look_p = 0;
    if (posix_memalign((void **)&vcq, EMU_LINE, sizeof(*vcq))) {
        return 0;
    }
    memset(vcq, 0, sizeof(*vcq));
    for (unsigned n = 0; n < CHUNKS; n++) {
        uint64_t t = emu_ticks(), end;
        for (int i = 0; i < ROUNDS; i++) {
            vcq->timed_free = 0;
            me.skew         = t; /* so far behind that nothing is waited for */
            me.last         = emu_ticks();
            emu_timing_begin();
            emu_timing_plan(vcq, &nop, &times);
            emu_timing_posted();
        }
        end      = emu_ticks();
        looks[n] = emu_look_takes();
        calls[n] = (double)(end - t) / ROUNDS / looks[n];
    }
    memset(&me, 0, sizeof(me));
    emu_look_forget();
    free(vcq);
    qsort(calls, CHUNKS, sizeof(calls[0]), by_double);
    qsort(looks, CHUNKS, sizeof(looks[0]), by_double);
    *look_p = looks[CHUNKS / 4];
    return calls[CHUNKS / 4];
}

bool emu_timing_init(void)
{
    timed = emu_profile_read(ns);
    return timed;
}

/* Once the control segment is there: the first process of a job measures. */
void emu_timing_join(void)
{
    struct emu_floor found;
    uint64_t         floor_;
    double           call, look;

    if (!timed) {
        return;
    }
    emu_ticks_calibrate();
    floor_ = atomic_load(&emu_g.control->timing_floor);
    if ((ns[P_FLOOR] == 0) && (floor_ == 0)) {
        found  = emu_floor_measure();
        floor_ = (uint64_t)(found.way * 1000) + 1;
        atomic_store(&emu_g.control->timing_probe, (uint64_t)(found.probe * 1000));
        atomic_store(&emu_g.control->timing_floor, floor_);
    }
    if (ns[P_FLOOR] == 0) {
        ns[P_FLOOR] = (double)floor_ / 1000;
        found.way   = ns[P_FLOOR];
        found.probe = (double)atomic_load(&emu_g.control->timing_probe) / 1000;
        emu_way_init(found);
    }
    for (unsigned i = 0; i < PARAMETERS; i++) {
        tk[i] = (uint64_t)(ns[i] * emu_ticks_per_ns);
    }
    byte_ticks = ns[P_BYTE] * emu_ticks_per_ns;
    tk_late    = emu_ticks_of_ns(LATE_NS);
    tk_near    = emu_ticks_of_ns(NEAR_NS);
    tk_lie     = emu_ticks_of_ns(LIE_NS);
    tk_full    = emu_ticks_of_ns(FULL_NS);
    tk_burst   = emu_ticks_of_ns(BURST_NS);
    tk_alone   = emu_ticks_of_ns(ALONE_NS);
    tk_answer  = emu_ticks_of_ns(ANSWER_NS);
    tk_reaction = emu_ticks_of_ns(REACTION_NS);
    tk_jitter   = emu_ticks_of_ns(JITTER_NS);
    tk_found    = emu_ticks_of_ns(FOUND_NS);
    tk_early    = tk_late + tk[P_FLOOR]; /* a word can be there so much before it should */
    call        = call_looks(&look);
    entry_looks = emu_entry_share * call;
    poll_looks  = POLL_SHARE * call;
    tk_entry    = (uint64_t)(entry_looks * look);
    tk_poll     = (uint64_t)(poll_looks * look);
}

/* --------------------------------------------------------------------- routes */

static unsigned ring_distance(unsigned a, unsigned b, unsigned n)
{
    unsigned d = (a > b) ? a - b : b - a;

    return (n - d < d) ? n - d : d;
}

/* Hops from here to the node over the path's A, B, C (2.4); *link_p is the first */
static unsigned route(const struct emu_vcq_name *to, const uint8_t path[3], unsigned *link_p)
{
    const uint8_t *from = emu_g.coords;
    unsigned       size[3], hops = 0;

    *link_p = EMU_NUM_LINKS; /* none: the same node */
    emu_shape_get(size);
    for (unsigned leg = 0; leg < 9; leg++) {
        /* to the path's A, B, C; then X, Y, Z; then the node's A, B, C */
        unsigned axis = (leg < 3) ? 3 + leg : (leg < 6) ? leg - 3 : leg - 3;
        unsigned n    = (axis < 3) ? size[axis] : (axis == 4) ? DIM_B : 2;
        unsigned a    = (leg < 3) ? from[axis] : (leg < 6) ? from[axis] : path[axis - 3];
        unsigned b    = (leg < 3) ? path[axis - 3] : to->coords[axis];
        unsigned d    = ring_distance(a, b, n);

        if ((d > 0) && (*link_p == EMU_NUM_LINKS)) {
            bool up = (b + n - a) % n == d;
            /* ten links: X, Y, Z and B both ways, A and C one each */
            *link_p = (axis == 3) ? 8 : (axis == 5) ? 9 : ((axis == 4) ? 3 : axis) * 2 + up;
        }
        hops += d;
    }
    return hops;
}

/* Take a resource that is free from *word on, not before `start`, for `hold` ticks. */
static uint64_t take(_Atomic uint64_t *word, uint64_t start, uint64_t hold)
{
    uint64_t free_ = atomic_load_explicit(word, memory_order_relaxed), s;

    do {
        /* so far off is no clock: somebody wrote into it, or the counter was set back */
        s = ((free_ > start) && (free_ - start < tk_full)) ? free_ : start;
    } while (!atomic_compare_exchange_weak(word, &free_, s + hold));
    return s;
}

/* ------------------------------------------------------------------ operations */

/* Has anything come to this node, or will, since the thread's last call, but its own? */
static bool something_came(const struct emu_clock *here)
{
    uint64_t since = (me.last > me.sent_came) ? me.last : me.sent_came;

    return atomic_load_explicit(&here->came, memory_order_relaxed) > since;
}

/* A batch of a VCQ ends.  Were its operations few, of each peer: such as one exchanges with it, not a stream? */
static bool batch_was_of_few(struct emu_vcq *vcq)
{
    bool few = (vcq->timed_most <= FEW);

    vcq->timed_head = vcq->tcq_head;
    vcq->timed_most = 0;
    vcq->timed_batch++;
    return few;
}

static void count_in_batch(struct emu_vcq *vcq, struct emu_peer *peer)
{
    if (peer->timed_batch != vcq->timed_batch) {
        peer->timed_batch = vcq->timed_batch;
        peer->timed_ops   = 0;
    }
    peer->timed_ops++;
    vcq->timed_most = (peer->timed_ops > vcq->timed_most) ? peer->timed_ops : vcq->timed_most;
}

/* Two that exchange words wait for the other's with loads, which nobody sees, and for less than BURST_NS
 * if both lag.  Each would take the other's for a stream that comes beside its own, and go on as fast as the
 * host can.  So the clock of who answers what came is not before that.  It answers if it has seen a few of
 * its own operations complete before it posts the next, or if it again and again posts just after something
 * came, having waited.  Two streams of so few at a time are taken for answers, too. */
static void end_lag_of_answer(struct emu_vcq *vcq, uint64_t now, const struct emu_clock *here)
{
    bool     silent = (vcq->tcq_head == 0) && (vcq->tcq_tail == 0); /* asks for no notices: something came instead */
    bool     seen   = (vcq->tcq_head != vcq->timed_head) && (vcq->tcq_head == vcq->tcq_tail);
    bool     few    = seen && batch_was_of_few(vcq), waited = (int64_t)(now - me.last) > (int64_t)tk[P_FLOOR];
    uint64_t came;
    int64_t  after;

    if (!few && !silent && !waited && (me.answers < ANSWERS)) {
        return; /* `came` has to be fetched from another CPU */
    }
    came  = atomic_load_explicit(&here->came, memory_order_relaxed);
    after = (int64_t)(now - came);
    if ((came == me.came) || (came == me.sent_came) || (after < -(int64_t)tk_early)) {
        return;
    }
    me.came = came;
    few     = few || (silent && batch_was_of_few(vcq));
    if (waited && ((int64_t)(came - me.last) > 0)) {
        if (after <= (int64_t)tk_found) {
            me.answers += (me.answers < 2 * ANSWERS);
        } else {
            me.answers -= (me.answers < STREAMS) ? me.answers : STREAMS;
        }
    }
    if ((few || (me.answers >= ANSWERS)) && ((int64_t)me.skew > after)) {
        me.skew = (after > 0) ? (uint64_t)after : 0;
    }
}

/* Who was away for so long does something else, and has perhaps seen an answer, which came by
 * the real clock; or only packed the next message. */
static bool goes_on(uint64_t now, const struct emu_clock *here)
{
    /* after a long wait the caller's own steps take longer, too: cold caches */
    uint64_t burst = (me.skew / BURST_SHARE > tk_burst) ? me.skew / BURST_SHARE : tk_burst;
    int64_t  away  = (int64_t)(now - me.last);

    return (me.empty <= EMPTY_POLLS) &&
           ((away <= (int64_t)burst) || ((away <= (int64_t)tk_alone) && !something_came(here)));
}

/* How much later than its program makes it is a post at `start`, if it answers what arrived last
 * at this node?  The way from one CPU to another, and from the word that a loop looks for to the
 * end of that loop, take here a bit more or less each time; what they and the program take on
 * the average stays, and so does a time that differs by more than LATE_NS.  But nobody answers what has
 * not come: who has only now returned from a call of its own finds a word that was stored early, for the
 * sake of the way, as it is. */
static int64_t jitter(const struct emu_clock *here, uint64_t start)
{
    uint64_t last = atomic_load_explicit(&here->armw, memory_order_relaxed);
    int64_t  took, differs;

    for (unsigned i = 0; i < EMU_NUM_TNIS; i++) {
        uint64_t arrival = atomic_load_explicit(&here->receive[i], memory_order_relaxed);
        last             = (arrival > last) ? arrival : last;
    }
    took = (int64_t)(start - last);
    if ((last == me.answered) || (last == me.sent) || (took < -(int64_t)tk_early) || (took > (int64_t)tk_answer)) {
        return 0;
    }
    me.answered = last;
    differs     = took - me.takes;
    if ((differs > (int64_t)tk_late) || (differs < -(int64_t)tk_late)) {
        if (++me.strays > STRAYS) { /* not a host that did something else: the program does */
            me.takes  = took;
            me.strays = 0;
        }
        return 0;
    }
    me.strays = 0;
    me.takes += differs / ANSWER_SHARE;
    return took - ((me.takes > 0) ? me.takes : 0);
}

void emu_timing_begin(void)
{
    uint64_t now  = emu_ticks();
    double   look = emu_look_learn();

    if (look > 0) {
        me.entry = (uint64_t)(entry_looks * look);
        me.poll  = (uint64_t)(poll_looks * look);
    }
    me.began = now - entry_takes();
}

/* What goes over the network.  Nothing, if the NIC here or there refuses the operation for its STADDs
 * (emu_carry.c does then): it may be for 16 MB, with a gap, so that the network would be taken for 90 ms. */
static size_t bytes_to_carry(struct emu_vcq *vcq, const struct emu_desc *d, struct emu_peer *peer)
{
    struct emu_region *r;
    char              *lcl;
    bool               get = d->kind == EMU_OP_GET, has_lcl = get || (d->kind == EMU_OP_PUT);

    if ((peer == NULL) || (emu_remote_region(peer, d->rmt_stadd, d->length, !get, &r) != UTOFU_SUCCESS) ||
        (has_lcl && (emu_local_address(vcq, d->lcl_stadd, d->length, get, &lcl) != UTOFU_SUCCESS))) {
        return 0;
    }
    return d->length;
}

void emu_timing_plan(struct emu_vcq *vcq, const struct emu_desc *d, struct emu_times *t)
{
    uint64_t            start = me.began, data, way, round, back, arrival = 0;
    size_t              bytes;
    struct emu_clock   *here  = &emu_g.control->clock[emu_g.node];
    struct emu_vcq_name to;
    uint8_t             path[3];
    unsigned            link, hops;
    struct emu_peer    *peer;
    struct emu_clock   *there = NULL;

    if (!me.in_call) {
        if (!goes_on(start, here)) {
            me.skew = 0;
        }
        end_lag_of_answer(vcq, start, here);
        me.now     = start - me.skew;
        if (me.skew == 0) {
            me.now -= (uint64_t)jitter(here, start);
        }
        me.wait    = start; /* a thread that lags is not late because of that */
        me.late    = tk_late;
        me.in_call = true;
    }
    start = (me.now > vcq->timed_free) ? me.now : vcq->timed_free;
    *t    = (struct emu_times){.posted = me.began};
    if (d->kind == EMU_OP_NOP) {
        vcq->timed_free = start + tk[P_MESSAGE];
        t->tcq          = start + tk[P_TCQ];
        return;
    }
    emu_vcq_id_decode(d->rmt_id, &to);
    memcpy(path, to.path, 3);
    if (d->flags & EMU_PATH_FLAGS) {
        emu_path_of_id((unsigned)((d->flags & EMU_PATH_FLAGS) >> 28), path);
    }
    hops = route(&to, path, &link);
    if (emu_post_peer(vcq, d->rmt_id, &peer) != UTOFU_SUCCESS) {
        peer = NULL; /* it will fail */
    } else if (emu_g.control->slot[peer->proc->slot].node < EMU_MAX_NODES) {
        there = &emu_g.control->clock[emu_g.control->slot[peer->proc->slot].node];
    }

    bytes = (d->kind == EMU_OP_ARMW) ? 0 : bytes_to_carry(vcq, d, peer);
    data  = (uint64_t)((double)bytes * byte_ticks * (EMU_DESC_GAP(d) + 8) / 8);
    me.late += emu_ticks_of_ns(bytes / COPY_BYTES_PER_NS); /* it copies here */
    start = take(&here->tni[vcq->tni], start, data);
    if (link < EMU_NUM_LINKS) {
        start = take(&here->link[link], start, data);
    }
    vcq->timed_free = start + ((data > tk[P_MESSAGE]) ? data : tk[P_MESSAGE]);
    t->tcq          = start + tk[P_TCQ] + data;
    round           = 2 * hops * tk[P_HOP];
    switch (d->kind) {
    case EMU_OP_GET:
        t->read    = start + (tk[P_GET] + round) / 2;
        t->remote  = t->read;
        t->visible = start + tk[P_GET] + round + data;
        t->local   = t->visible;
        t->tcq     = start + tk[P_TCQ]; /* what it asks for has left; the data has not come (2.2.4) */
        break;
    case EMU_OP_ARMW:
        t->read   = start + (tk[P_ARMW] + round) / 2;
        t->remote = t->read;
        t->local  = start + tk[P_ARMW] + round;
        if (there != NULL) {
            arrival = t->read;
            take(&there->armw, arrival, 0);
        }
        break;
    default:
        way = tk[P_PUT] + hops * tk[P_HOP] - tk[P_HOP];
        if (d->kind == EMU_OP_PIGGYBACK) {
            way -= tk[P_PIGGYBACK];
        }
        if (d->flags & UTOFU_ONESIDED_FLAG_CACHE_INJECTION) {
            way -= tk[P_INJECTION];
        }
        if (bytes >= ns[P_LARGE_FROM]) {
            way += tk[P_LARGE];
        }
        /* the TNI over there takes one message after the other */
        t->visible = start + way + data;
        if (there != NULL) {
            t->visible = take(&there->receive[to.tni], t->visible - data, data) + data;
            arrival    = t->visible;
        }
        /* the acknowledgement takes what an ARMW's answer takes */
        back     = tk[P_ARMW] + (hops + 1) * tk[P_HOP];
        t->local = t->visible + ((back > tk[P_PUT]) ? back - tk[P_PUT] : 0); /* not before, whatever a profile says */
        if (d->flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) {
            /* The target does not show it before it is due.  It is there earlier, so
             * that what the way to another CPU takes is not seen: that of the notice
             * and, after it, that of the data. */
            t->remote  = t->visible - poll_takes();
            t->visible = t->remote - 2 * tk[P_FLOOR] - tk_jitter;
        } else {
            t->visible -= tk[P_FLOOR] + tk_reaction;
        }
    }
    if (arrival != 0) {
        /* who lags plans for a time that has passed: it comes when the call has stored it */
        uint64_t soonest = me.began + entry_takes() + tk[P_FLOOR], came = (arrival > soonest) ? arrival : soonest;

        if (came > atomic_load_explicit(&there->came, memory_order_relaxed)) { /* of two at once one may be lost */
            atomic_store_explicit(&there->came, came, memory_order_relaxed);
        }
        if (there == here) {
            me.sent      = (arrival > me.sent) ? arrival : me.sent;
            me.sent_came = (came > me.sent_came) ? came : me.sent_came;
        }
    }
    /* All was planned as early as a store for another CPU has to be.  With that an ARMW's notice came up to
     * 30 ns before its time on an AMD Zen 3. */
    t->local += (uint64_t)((double)entry_takes() * (1 - EMU_ENTRY_SHARE_LOCAL / emu_entry_share));
    t->remote = (t->remote > me.began) ? t->remote : me.began; /* who lags has not sent it earlier (emu_stamp.h) */
    if (peer != NULL) { /* local notices of one target stay in order (2.2.10) */
        count_in_batch(vcq, peer);
        t->local          = (t->local > peer->timed_local) ? t->local : peer->timed_local;
        peer->timed_local = t->local;
    }
}

void emu_timing_posted(void)
{
    uint64_t now;

    if (!me.in_call) { /* nothing was posted */
        me.last = emu_ticks();
        return;
    }
    me.now += tk[P_POST];
    emu_timing_wait(me.now); /* the CPU is busy so long */
    now     = emu_ticks();
    me.wait = (me.wait > me.now) ? me.wait : me.now;
    /* A thread that lost its CPU meanwhile does not catch up. */
    me.skew    = (((now - me.wait) < me.late) ? now : me.wait) - me.now;
    me.last    = now;
    me.empty   = 0;
    me.in_call = false;
}

/* May the thread see an entry that is due then?  By its own clock it may be too early:
 * the first poll after a post or an entry finds nothing then, so that a thread that
 * only looks in goes on and may post more; one that looks again waits, and its clock
 * goes on to the entry's time. */
bool emu_timing_polled(uint64_t due)
{
    uint64_t now = emu_ticks();

    /* Asked here as well: to find an old entry is not to go on, and hides who waited. */
    if (!goes_on(now, &emu_g.control->clock[emu_g.node])) {
        me.skew = 0;
    }
    if (now - me.skew < due) {
        if (me.empty == 0) {
            return false;
        }
        if (now < due) {
            if (due - now > tk_near) {
                return false;
            }
            while ((now = emu_ticks()) < due) {
            }
            due = (now - due < tk_late) ? due : now; /* it lost its CPU here, and does not catch up */
        }
        me.skew = now - due;
    }
    me.last  = now;
    me.empty = 0;
    return true;
}

/* A remote notice comes at the real time, whatever the thread's clock says.  Who wrote
 * it stored it shortly before; a time that is far off is not his, and those behind it
 * do not wait for it. */
bool emu_timing_remote(uint64_t due)
{
    uint64_t now = emu_ticks();

    if ((due != 0) && (now < due) && (due - now < tk_lie)) {
        if (due - now > tk_near) {
            return false;
        }
        while (emu_ticks() < due) {
        }
    }
    me.skew  = 0;
    me.empty = 0;
    return true;
}

void emu_timing_poll_empty(void)
{
    me.empty++;
}

/* ------------------------------------------------------------------- barriers */

uint64_t emu_timing_barrier_now(void)
{
    return timed ? emu_ticks() - entry_takes() : 0;
}

uint64_t emu_timing_packet(uint64_t fired_at)
{
    return timed ? fired_at + tk[P_STEP] : 0;
}

bool emu_timing_completed(uint64_t due)
{
    uint64_t end;

    if (!timed) {
        return true;
    }
    end = due + tk[P_BARRIER] - poll_takes();
    if ((int64_t)(end - emu_ticks()) > (int64_t)tk_near) {
        return false;
    }
    emu_ticks_wait(end); /* not to the end of one more poll */
    return true;
}
