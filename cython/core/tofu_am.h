/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am.h - active messages: slots, credits, and who holds what.
 *
 * An iface has one block of receive slots, small and large, under a reserved STag.
 * It lends runs of them to senders.  A sender puts a message into its next slot, in
 * ring order, with a remote notice; the notice names the sender's VCQ, the AM id
 * (EDATA) and the slot (end STADD), so an arrival costs one utofu_poll_mrq however
 * many senders there are.
 *
 *   sender (tofu_chan_t)                    receiver (tofu_lender_t)
 *     claim an entry:  CSWAP 0 -> me   ---->  request table, 64 entries
 *     write request, with notice       ---->  entry; queued until slots are free
 *     mailbox  <----  grant: two runs of slots
 *     message, with notice             ---->  slot        (steady state: only this,
 *     mailbox  <----  how many were consumed               and this per half window)
 *     request "release"                ---->  entry
 *     mailbox  <----  released
 *
 * Nothing can overflow: a message needs a slot that was lent, a request an entry
 * that was claimed, and a slot or entry is free again only after its notice was
 * read (tofu_attr_bound adds these up).  Who waits for credit waits in memory of
 * its own.  When nothing is left to lend, the receiver asks for slots back by a
 * word in a sender's mailbox (a put with local notice, so that a dead sender is
 * found and what it held is taken back); senders look at these words every tick, at
 * 32 channels a time, and whenever they are out of credit.
 *
 * A handler may keep a message in its large slot.  That slot is passed over in
 * the ring: see tofu_am_keep.c.
 *
 * A few busy senders may leave out the notice of their smallest messages; the
 * receiver looks at their next slots instead: see tofu_am_polled.c.
 */
#ifndef TOFU_AM_H
#define TOFU_AM_H

#include "tofu_internal.h"

#include <time.h>

#pragma GCC visibility push(hidden)

enum { TOFU_AM_SMALL = 0, TOFU_AM_LARGE = 1, TOFU_AM_CLASSES = 2 };

/* Of a slot: 256 bytes, the largest cache line there is, and 64.  What most messages touch
 * is the last 64 bytes; were the slots 256 bytes apart, those would share a quarter of
 * the sets of a small cache (on an AMD, 8 bytes: 90 ns one way so, 79 with 64 more). */
#define TOFU_AM_SMALL_SIZE     320u
#define TOFU_AM_SLOT_ALIGN     256u  /* of large slots */
#define TOFU_AM_MIN_WINDOW     2u
#define TOFU_AM_MAX_SMALL      64u   /* slots lent to one sender */
#define TOFU_AM_MAX_LARGE      16u
#define TOFU_AM_POOL_SHARE     16u   /* of what is free, to one newcomer */
#define TOFU_AM_MAX_HEADER(seg) (((seg) < 512u) ? (seg) : 512u)
/* A large message begins so many bytes behind the place of its slot.  Nobody sends them:
 * a notice tells where a message ends, and one of no bytes has to end in its slot, too. */
#define TOFU_AM_FRONT          16u
/* Of a large slot, what a message can take: the end of the slot, where so many bytes
 * come before its place that the message is aligned (tofu_am_lead).  What the slot
 * has more is headroom, in front of it. */
#define TOFU_AM_MESSAGE_SIZE(lead, seg) \
    (((uint64_t)(lead) + TOFU_AM_FRONT + (seg) + \
      TOFU_AM_SLOT_ALIGN - 1) / TOFU_AM_SLOT_ALIGN * TOFU_AM_SLOT_ALIGN)
#define TOFU_AM_PAYLOAD_ALIGN  64u /* of large messages, where nobody asks for another */
#define TOFU_AM_MAX_HEADROOM   4096u
#define TOFU_AM_COPY_MAX       1024u /* am_zcopy copies as much: one put, not two */
#define TOFU_AM_PROBE_MS       100u  /* without credit for so long: is it alive? */
#define TOFU_AM_IDLE_MS        100u  /* without an ep for so long: give back */
#define TOFU_AM_KEEP_MS        1000u /* without a message for so long: give back, ... */
#define TOFU_AM_KEEP_WINDOW    8u    /* ... but not so many small slots: when they were lent, an
                                        eighth of all were free */
#define TOFU_AM_SILENT_MS      3000u /* a holder of slots, for so long: is it alive? */
#define TOFU_AM_CHANS_PER_TICK 32u   /* channels looked at in a tick */
/* Between rounds of a request table of which all entries are taken: the first rest,
 * and how often it is doubled.  Thousands may be trying; so that they do not come all
 * at once, each rests for 0.5 to 1.5 times that. */
#define TOFU_CLAIM_REST_MS     1u
#define TOFU_CLAIM_DOUBLINGS   3u

/* Messages without a notice.  In the slot the last 8 bytes are the tail, and the
 * message ends where it begins: notified messages, of at most 32 bytes from the start
 * of the slot, never touch it.  Up to TOFU_POLLED_SHORT bytes are a piggyback with their
 * tail, more are put from a bounce buffer.
 *   tail: 30 bits turn, 21 bits key, 5 bits AM id, 8 bits length
 * turn: messages of all kinds that were sent on this loan before, so that the receiver
 * knows which notices come first.  key: of the permit, never 0. */
#define TOFU_POLLED_SHORT     (TOFU_MAX_SHORT - 8u)
#define TOFU_POLLED_BYTES     248u
#define TOFU_POLLED_NARROW    56u /* are in a cache line with their tail */
#define TOFU_POLLED_TAIL      (TOFU_AM_SMALL_SIZE - 8u)
#define TOFU_TAIL_ID_SHIFT    8
#define TOFU_TAIL_KEY_SHIFT   13
#define TOFU_TAIL_TURN_SHIFT  34
#define TOFU_TAIL_LENGTH      0xffull
#define TOFU_TAIL_KEY         (TOFU_PERMIT_KEY << TOFU_TAIL_KEY_SHIFT)
#define TOFU_TAIL_TURN_KEY    (~0ull << TOFU_TAIL_KEY_SHIFT) /* both */
#define TOFU_TURN             (1ull << TOFU_TAIL_TURN_SHIFT)
#define TOFU_TURNS            128u /* more than can be unread on a loan, for sure */
/* The slots that may be polled are few, because an empty call of progress looks at
 * each: 6 instructions, and a cache line that stays in reach. */
#define TOFU_AM_POLLED        4u
#define TOFU_AM_MAX_POLLED    8u
#define TOFU_POLLED_BATCH     16u  /* delivered from one loan by one progress */
/* Of so many calls one looks at the MRQ, of those that found one message one of so many;
 * powers of two. */
#define TOFU_POLLED_SKIP      8u
#define TOFU_POLLED_SKIP_ONE  32u
/* An exchange of single messages goes on soon or not at all: a call of progress looks
 * so often (0.15 us) in so many calls after a message, if 1 to so many operations were
 * posted since: else there is nothing that could be answered, or a stream of messages
 * goes out. */
#define TOFU_POLLED_LOOKS     24u
#define TOFU_POLLED_EAGER     32u
#define TOFU_POLLED_SENT      4u
#define TOFU_PERMIT_BUSY_MS   100u /* half a window in so little time is busy */
#define TOFU_PERMIT_SILENT_MS 100u /* without a message for so long: revoke */
#define TOFU_PERMIT_USELESS_MS 1000u /* none at all: not again for so long */
/* Who armed its event descriptor is taken for one that sleeps, for so long, or for so
 * many calls of progress (about 1 ms of nothing else). */
#define TOFU_PERMIT_AWAKE_MS  50u
#define TOFU_PERMIT_AWAKE_CALLS 16384u
/* Each look at the MRQ makes the sender's store of a notice, and all its stores behind
 * it, take longer.  So when large messages come within so many calls of each other, and
 * none is sent, up to so many looks in vain are kept so many times further apart (about
 * 1 us): more than one message is found then.  Messages without a notice are smaller, and
 * so is the time (about 0.1 us). */
#define TOFU_STREAM_CALLS     32u
#define TOFU_STREAM_LOOKS     2u
#define TOFU_STREAM_APART     48u
#define TOFU_STREAM_POLLED    10u
/* A permit is asked back, with the next credit, when so many other messages in a row
 * came; the sender looks at that with the credit.  So a turn can't come round while an
 * old tail stands in a slot: the slot's next message rewrites or clears it, after less
 * than 64 messages without notice, each with at most so many others, and some more in
 * flight, before it: 64 * (2^20 + 200) < 2^30. */
#define TOFU_PERMIT_ROUND     (1u << 20)

/* Written by a receiver into memory of the sender.  grant .. answer is one put of
 * 32 bytes inside a cache line; answer is the last word of it. */
typedef struct tofu_mailbox {
    _Atomic uint64_t credit; /* consumed: 24 bits small, 8 bits large; 16 bits:
                                large slots to pass over; 16 of nonce */
    uint64_t         grant[TOFU_AM_CLASSES]; /* first slot, count << 32 */
    uint64_t         where;  /* process << 32 | descriptor: of the slots' file, or 0 */
    _Atomic uint64_t answer; /* nonce << 32 | TOFU_ANSWER_* */
    _Atomic uint64_t recall; /* nonce: give back */
    _Atomic uint64_t permit; /* nonce << 32 | TOFU_PERMIT_REVOKE or 0 | key */
    uint64_t         pad;
} tofu_mailbox_t;

/* GONE: who was asked is not there any more, somebody else has its VCQ */
enum { TOFU_ANSWER_GRANTED = 1, TOFU_ANSWER_RELEASED = 2, TOFU_ANSWER_GONE = 3 };

#define TOFU_PERMIT_REVOKE (1ull << 24)
#define TOFU_PERMIT_KEY    0x1fffffull

/* An entry of the request table.  claim: 0, or who may write the request. */
typedef struct tofu_entry {
    _Atomic uint64_t claim; /* tofu_claim of VCQ ID and port */
    uint64_t         magic; /* incarnation of who asks << 32 | TOFU_REQUEST_MAGIC << 16 |
                               TOFU_REQUEST_* */
    uint64_t         who;   /* port << 56 | mailbox << 32 | nonce */
    uint64_t         vcq_id;
    uint64_t         check; /* magic ^ who ^ vcq_id ^ incarnation of who is asked */
    _Atomic uint64_t identity; /* of the first entry: tofu_identity of the iface */
    uint64_t         pad[2];
} tofu_entry_t;

/* STALE is never sent: what a request is that is meant for who had the VCQ before */
enum {
    TOFU_REQUEST_GRANT   = 1,
    TOFU_REQUEST_RELEASE = 2,
    TOFU_REQUEST_STALE   = 3
};

#define TOFU_REQUEST_MAGIC 0x7571ull
#define TOFU_CLAIM_KEY     0x9e3779b97f4a7c15ull
#define TOFU_WHO_PORT_SHIFT 56
#define TOFU_REQUEST_BYTES 32u /* magic .. check */

/* The last entries of the table are for releases only.  Requests for slots keep
 * their entries until there are slots; were all entries theirs, nobody could give
 * slots back.  Releases are answered at once, so these entries always come free. */
#define TOFU_RELEASE_ENTRIES 8u
#define TOFU_GRANT_ENTRIES   (TOFU_REQUEST_ENTRIES - TOFU_RELEASE_ENTRIES)

#define TOFU_WHO_MAILBOX 0xffffffu
#define TOFU_PORT_KEY    0xd6e8feb86659fd93ull

/* What an iface writes to claim an entry: differs for any two, and tells who it is. */
static inline uint64_t tofu_claim(utofu_vcq_id_t vcq_id, unsigned port)
{
    return vcq_id ^ TOFU_CLAIM_KEY ^ (port * TOFU_PORT_KEY);
}

static inline utofu_vcq_id_t tofu_claim_vcq(uint64_t claim, unsigned port)
{
    return claim ^ TOFU_CLAIM_KEY ^ (port * TOFU_PORT_KEY);
}

_Static_assert(TOFU_AM_MAX_LARGE <= 16, "the credit word has 16 bits for them");
_Static_assert(TOFU_AM_MAX_SMALL + TOFU_AM_MAX_LARGE < TOFU_TURNS, "unread messages");
_Static_assert(TOFU_POLLED_TAIL >= TOFU_MAX_SHORT,
               "notified messages leave tails alone");
_Static_assert(TOFU_POLLED_BYTES <= TOFU_TAIL_LENGTH, "lengths in a tail");
_Static_assert(TOFU_POLLED_BYTES <= TOFU_POLLED_TAIL, "they end where the tail begins");
_Static_assert(TOFU_AM_MAX_POLLED < TOFU_INTERNAL_NOTICES, "answers have notices");
_Static_assert(sizeof(tofu_mailbox_t) == 64, "mailbox");
_Static_assert(sizeof(tofu_entry_t) == 64, "request entry");
_Static_assert(offsetof(tofu_entry_t, identity) == TOFU_IDENTITY_OFFSET, "identity");
_Static_assert(offsetof(tofu_mailbox_t, answer) ==
                       offsetof(tofu_mailbox_t, grant) + 24,
               "a grant is one put that ends with the answer");

/* The STag of the slots of an iface that has a VCQ of its own is one of many, which its incarnation
 * tells: a sender that has not noticed that its receiver is gone must not write to slots of another
 * iface that has the VCQ by now, over a message of somebody else, but get an error.  Incarnations
 * change it with the time, and for each iface of a process, so that an iface has another than the one
 * just before it.  Ifaces that share a VCQ have no STags for that. */
#define TOFU_SLOTS_STAGS 64u
#define TOFU_SLOTS_STEP  125000000 /* ns for which it is the same */

_Static_assert(TOFU_MAX_PORTS * TOFU_PORT_STAGS <= 3 * TOFU_SLOTS_STAGS,
               "STags of ports are below those of slots");

static inline uint32_t tofu_incarnation(uint32_t random, uint32_t step)
{
    return (random & ~(2 * TOFU_SLOTS_STAGS - 2)) | (step % TOFU_SLOTS_STAGS) << 1 | 1;
}

/* How many there are for that; 0: this library has too few */
static inline unsigned tofu_slots_stags(const tofu_iface_t *iface, unsigned port)
{
    return ((port == 0) && (iface->md->caps.num_reserved_stags >= 4 * TOFU_SLOTS_STAGS)) ?
                   TOFU_SLOTS_STAGS : 0;
}

static inline unsigned tofu_slots_stag(const tofu_iface_t *iface, unsigned port,
                                       uint32_t incarnation)
{
    unsigned n = tofu_slots_stags(iface, port);

    return (n == 0) ? (unsigned)TOFU_STAG_SLOTS :
                      (unsigned)iface->md->caps.num_reserved_stags - 1 -
                              (incarnation >> 1) % n;
}

/* Of the block: the slots, and the request table behind them. */
static inline size_t tofu_am_round(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static inline size_t tofu_am_small_bytes(const tofu_geometry_t *geometry)
{
    return tofu_am_round((size_t)geometry->small_count * geometry->small_size,
                         TOFU_AM_SLOT_ALIGN);
}

static inline size_t tofu_am_slots_bytes(const tofu_geometry_t *geometry, size_t page)
{
    return tofu_am_round(tofu_am_small_bytes(geometry) +
                                 (size_t)geometry->large_count * geometry->large_size,
                         page);
}

static inline size_t tofu_am_table_bytes(size_t page)
{
    return tofu_am_round(TOFU_REQUEST_ENTRIES * sizeof(tofu_entry_t), page);
}

/* ----------------------------------------------------------------- sender */

typedef enum {
    TOFU_CHAN_IDLE,     /* holds nothing */
    TOFU_CHAN_CLAIM,    /* needs an entry of the request table */
    TOFU_CHAN_CLAIMING, /* compare-and-swap in flight */
    TOFU_CHAN_CLAIMED,  /* has the entry, must write the request */
    TOFU_CHAN_ASKED,    /* waits for the answer in its mailbox */
    TOFU_CHAN_OPEN      /* has slots */
} tofu_chan_state_t;

typedef struct tofu_chan_class { /* the slots of one size that it was lent */
    uint32_t      left;  /* that can be written now */
    uint32_t      count;
    utofu_stadd_t next, begin, end;
    uint32_t      size;  /* of a slot */
    uint32_t      acked; /* consumed, as last heard: small 24 bits, large 8 */
} tofu_chan_class_t;

typedef struct tofu_mapped { /* slots of a peer on this host: see tofu_in_place.c */
    char          *base;   /* of the first slot there */
    utofu_stadd_t stadd;   /* of base, here */
    size_t        length;
    uint64_t      where;   /* tofu_mailbox_t */
} tofu_mapped_t;

struct tofu_chan {
    tofu_chan_class_t cls[TOFU_AM_CLASSES];
    tofu_mapped_t     *mapped; /* NULL: bounce buffers */
    utofu_vcq_id_t    vcq_id;  /* of the peer */
    tofu_peer_t       *peer;
    tofu_mailbox_t    *mailbox;
    uint64_t          turn;    /* the next tail; key 0: no permit, or not used */
    uint64_t          permit;  /* the mailbox's word, as it was seen last */
    uint32_t          mailbox_index;
    uint32_t          nonce;   /* of this loan */
    uint8_t           state;   /* tofu_chan_state_t */
    uint8_t           request; /* TOFU_REQUEST_* that it is about */
    uint8_t           want;    /* somebody was refused for want of credit */
    uint8_t           is_long; /* so was the last am_bcopy: TOFU_IN_PLACE_MIN */
    uint16_t          skip;    /* large slots that are not its, of those from
                                  next on; next is never one of them */
    uint32_t          entry;   /* of the request table */
    uint32_t          tries;
    uint32_t          refs;    /* eps */
    uint32_t          waiters; /* of them, in iface->turns */
    uint32_t          longs;   /* long messages by bounce buffers, in this loan */
    uint64_t          where;   /* the slots can be mapped, and were not tried */
    uint64_t          retry_us; /* no claim before */
    uint64_t          since_ms; /* it waits */
    uint64_t          idle_ms;  /* it was used last, or lost its last ep */
    uint64_t          tick_ms;  /* it was looked at last */
    uint64_t          seen;     /* what tofu_chan_moved saw */
    utofu_stadd_t     slots;   /* of the peer */
    utofu_stadd_t     table;
    tofu_link_t       link;    /* in am->waiting; empty: not */
    tofu_link_t       all;     /* in am->chans, while it holds or wants slots */
};

/* The channel of a peer, made on the first call; counts the caller.  Eps have none
 * before their first message: most eps of a large job never send one. */
tofu_status_t tofu_chan_get(tofu_peer_t *peer, tofu_chan_t **chan_p);
void tofu_chan_put(tofu_chan_t *chan);
/* Is there credit?  Looks into the mailbox when the cached count is 0. */
int tofu_chan_has_credit(tofu_chan_t *chan, unsigned cls);
/* Look into the mailbox of one that is OPEN. */
void tofu_chan_take_credit(tofu_chan_t *chan);
/* Somebody has no credit: see to it that it comes. */
void tofu_chan_want(tofu_chan_t *chan);
/* Large slots: take a new count, and which to pass over. */
void tofu_chan_ack_large(tofu_chan_t *chan, uint32_t acked, uint32_t mask);
/* next is a slot to pass over: go on to one that is not. */
void tofu_chan_pass(tofu_chan_t *chan);
/* The compare-and-swap came back. */
void tofu_chan_claimed(tofu_chan_t *chan, const tofu_op_t *op);
/* The permit word in the mailbox is another one than chan->permit: take note, and
 * answer a revocation.  OK; NO_RESOURCE: again later; else the peer has failed. */
tofu_status_t tofu_chan_permit(tofu_chan_t *chan);
static inline int tofu_chan_permit_changed(const tofu_chan_t *chan)
{
    return atomic_load_explicit(&chan->mailbox->permit, memory_order_acquire) !=
           chan->permit;
}
/* ---- tofu_in_place.c: messages that are packed where the receiver reads them */

#define TOFU_IN_PLACE_MIN   256u /* bytes; shorter ones may go without a notice */
#define TOFU_IN_PLACE_FETCH 8u    /* lines */
#define TOFU_IN_PLACE_AFTER 16u   /* such messages in a loan its slots are mapped */
#define TOFU_AM_MAX_MAPPED  32u   /* peers whose slots an iface has mapped at a time */
/* Is it to be done, on either side? */
int tofu_in_place_wanted(const tofu_iface_t *iface);
/* Small messages, too?  What is put of those is their tail alone. */
int tofu_in_place_small_wanted(const tofu_iface_t *iface);
/* For tofu_mailbox_t::where. */
uint64_t tofu_in_place_where(const tofu_am_t *am);
/* A grant came, with that word. */
void tofu_in_place_granted(tofu_chan_t *chan, uint64_t where);
/* Map the peer's slots; enters the kernel. */
void tofu_in_place_try(tofu_chan_t *chan);
void tofu_in_place_drop(tofu_chan_t *chan);
/* For another, as it is not used: it may be mapped again. */
void tofu_in_place_yield(tofu_chan_t *chan);
/* All of an iface, while its VCQ is there. */
void tofu_in_place_close(tofu_iface_t *iface);

/* The peer is gone, and with it what it lent. */
void tofu_chan_reset(tofu_chan_t *chan);
/* Do what can be done for those that wait; returns how many moved on. */
unsigned tofu_chans_progress(tofu_iface_t *iface);
void tofu_chans_tick(tofu_iface_t *iface);
tofu_status_t tofu_am_continue(tofu_op_t *op);

/* --------------------------------------------------------------- receiver */

typedef struct tofu_loan { /* slots of one size, lent to one sender */
    uint32_t begin, count;
    uint32_t next;     /* slot that its next message comes to */
    uint32_t arrived;  /* messages */
    uint32_t consumed; /* of them whose slots are free */
    uint32_t reported; /* of them the sender was told */
    uint16_t skip;     /* slots that are passed over, next time round */
    uint16_t kept;     /* slots that handlers keep, or are offered */
    uint16_t num_kept;
    uint8_t  read;     /* handlers read all of a message, ... */
    uint8_t  unlooked; /* ... which is looked at again after so many */
} tofu_loan_t;

/* May a sender leave out notices?  ASKED_BACK: until it answers, its messages may
 * come without. */
enum { TOFU_PERMIT_NONE, TOFU_PERMIT_GIVEN, TOFU_PERMIT_ASKED_BACK };

/* Was it asked to give its slots back?  LATE: it had not when its turn came again, and was asked
 * who it is; AGAIN: and then for the slots once more. */
enum { TOFU_RECALL_NONE, TOFU_RECALL_ASKED, TOFU_RECALL_LATE, TOFU_RECALL_AGAIN };

struct tofu_lender {
    tofu_loan_t    loan[TOFU_AM_CLASSES];
    utofu_vcq_id_t vcq_id;
    tofu_peer_t    *peer;
    uint64_t       turn;       /* of its next message, and the key of its permit */
    uint32_t       nonce;
    uint32_t       incarnation; /* of the iface that asked for the slots */
    uint32_t       gone_call;  /* iface->calls (low bits) when `gone` was found */
    uint32_t       depth;      /* handlers of its messages running (nested) */
    uint32_t       last_seen;  /* arrived, at the last tick */
    uint32_t       heard;      /* arrived, when tofu_am_probe_silent looked last */
    uint32_t       heard_ms;   /* granted, or seen to have sent, or probed: low bits */
    uint8_t        dead;       /* take the slots back when depth is 0 */
    uint8_t        gone;       /* the sender ended; its messages may be here yet */
    uint8_t        nested;     /* slots wait for an outer handler */
    uint8_t        recalled : 2; /* TOFU_RECALL_* */
    uint8_t        used : 1;   /* a message without a notice came with this permit */
    uint8_t        permit;     /* TOFU_PERMIT_*; not NONE: it is in am->polled */
    uint8_t        fits;       /* messages with a notice, since the last report, that could
                                  go without if there was a permit; it has no more slots */
    uint8_t        is_wide;    /* so is its last message without a notice */
    uint8_t        retold;     /* posts to it that were lost, since it was heard */
    uint32_t       key;        /* of its last permit */
    uint64_t       polled_turn; /* after the last message without a notice, ... */
    uint64_t       tick_turn;  /* ... as the last tick saw it */
    uint64_t       spoke_ms;   /* the last tick that saw a new one */
    uint64_t       report_ms;  /* it was told what was consumed */
    uint64_t       barred_ms;  /* no permit before */
    utofu_stadd_t  mailbox;
    tofu_link_t    link;       /* in am->lenders */
    tofu_link_t    due;        /* in am->due: must be told what was consumed, when
                                  there is time or room; or in am->gone */
};

typedef struct tofu_job { /* a request that was not yet answered */
    uint8_t       type; /* TOFU_REQUEST_*; 0: none */
    uint32_t      nonce;
    uint32_t      incarnation; /* of who asks */
    tofu_peer_t   *peer;
    utofu_stadd_t mailbox;
    tofu_link_t   link; /* in am->jobs */
} tofu_job_t;

typedef struct tofu_pool { /* slots of one size */
    char           *base;
    utofu_stadd_t  stadd;
    uint64_t       bytes;
    uint32_t       size, count, free;
    uint32_t       max_window;
    tofu_lender_t  **owner;
} tofu_pool_t;

#define TOFU_MAILBOX_SEGMENT 1024u /* mailboxes of one STag */

struct tofu_am {
    tofu_pool_t    pool[TOFU_AM_CLASSES];
    tofu_iface_t   *iface;
    tofu_lender_t  orphan;    /* owns kept slots whose loan has ended */
    uint32_t       num_kept;  /* large slots */
    tofu_entry_t   *table;
    utofu_stadd_t  table_stadd;
    uint32_t       internal;  /* notices of the core's own operations to come */
    uint32_t       early;       /* messages that wait for the first slots */
    uint32_t       num_mapped;  /* channels with tofu_chan_t::mapped */
    uint8_t        small_in_place; /* small messages are written there, too */
    uint8_t        takes_ahead; /* tofu_ahead.h */
    uint32_t       nonce;       /* of the last loan asked for */
    uint32_t       incarnation; /* of the iface */
    tofu_link_t    jobs;
    tofu_link_t    lenders;
    tofu_link_t    due;
    tofu_link_t    gone;
    tofu_link_t    waiting;   /* tofu_chan_t::link */
    tofu_link_t    chans;     /* tofu_chan_t::all */
    tofu_chan_t    no_chan;   /* of eps that have none: never any credit */
    int            short_of_slots;
    uint32_t       num_recalled; /* lenders that are ASKED */
    uint32_t       recall_left;  /* idle ones to ask in this tick, ... */
    uint32_t       recall_scan;  /* ... of so many that were not looked at */
    int            recall_asked;
    int            wanted;    /* a channel has `want`, or had */
    tofu_lender_t  *polled[TOFU_AM_MAX_POLLED]; /* iface->num_polled of them */
    uint64_t       sleepy_ms; /* its user is one that sleeps, until then, ... */
    uint64_t       sleepy_calls; /* ... or so many calls of progress */
    uint64_t       random;    /* state of the generator of keys */
    tofu_job_t     job[TOFU_REQUEST_ENTRIES];
    uint64_t       claim_seen[TOFU_REQUEST_ENTRIES];    /* at the last tick */
    uint64_t       claim_since_ms[TOFU_REQUEST_ENTRIES];
    uint8_t        claim_probed[TOFU_REQUEST_ENTRIES];  /* by a probe in flight */
    uint8_t        claim_settled[TOFU_REQUEST_ENTRIES]; /* the MRQ was read to the
                                                           end since it was seen */

    tofu_mailbox_t **segments;
    unsigned       num_segments;
    uint32_t       *free_mailboxes; /* a stack */
    size_t         num_free_mailboxes;

    char           *block;    /* slots, and the table after them */
    size_t         block_size;
    tofu_arena_t   *arena;
    tofu_arena_t   **segment_arenas;
};

/* An early message is posted, or given up. */
static inline void tofu_am_early_done(tofu_iface_t *iface, tofu_op_t *op)
{
    if (op->flags & TOFU_OP_EARLY) {
        op->flags &= (uint8_t)~TOFU_OP_EARLY;
        --iface->am->early;
    }
}

tofu_status_t tofu_am_open(tofu_iface_t *iface);
void tofu_am_close(tofu_iface_t *iface);
void tofu_am_geometry(const tofu_iface_t *iface, tofu_address_t *address);
/* A remote notice of a put. */
void tofu_am_arrived(tofu_iface_t *iface,
                     const struct utofu_mrq_notice *notice);
void tofu_am_request(tofu_iface_t *iface,
                     const struct utofu_mrq_notice *notice);
/* Free an entry of the request table, and its job. */
void tofu_am_entry_free(tofu_am_t *am, uint32_t entry);
/* Entries that were claimed long ago, and nothing was written: is the claimant alive? */
void tofu_am_check_claims(tofu_am_t *am, int mrq_empty);
/* Answer requests, tell senders what was consumed, move channels on.  mrq_empty:
 * all that came before was read. */
unsigned tofu_am_progress(tofu_iface_t *iface, int mrq_empty);
/* mrq_empty: as above, in the same call of progress. */
void tofu_am_tick(tofu_iface_t *iface, int mrq_empty);
/* No message can go to the peer any more, and, when it is known to be gone
 * (ENDPOINT_TIMEOUT), it sends none; borrower: it is who holds slots of ours. */
void tofu_am_peer_gone(tofu_peer_t *peer, tofu_status_t status, int borrower);
/* Only the latter: it posts nothing any more.  What it posted before is still
 * delivered: its slots are taken back when the MRQ was read to the end. */
void tofu_am_borrower_gone(tofu_peer_t *peer);
/* A post to it was lost, and it may live: it must be told its credit again. */
void tofu_am_borrower_retell(tofu_peer_t *peer);
/* Take back what a sender was lent. */
void tofu_lender_reclaim(tofu_lender_t *lender);
/* Who holds them is gone: they are taken back when all that it sent is delivered. */
void tofu_lender_gone(tofu_lender_t *lender);
/* While others wait for slots: after a credit report, in the tick, and in the calls
 * of progress after it. */
void tofu_lender_take_turns(tofu_lender_t *lender);
void tofu_am_recall(tofu_am_t *am);
void tofu_am_recall_idle(tofu_am_t *am);
void tofu_am_probe_silent(tofu_am_t *am);
/* Tell it what was consumed; what can't be sent now waits in am->due. */
void tofu_lender_report(tofu_lender_t *lender);
/* The same for all that wait; returns how many. */
unsigned tofu_am_report_due(tofu_am_t *am);
/* Of am_short, header included: what fits into a small slot without a notice.  Above
 * TOFU_MAX_SHORT it goes by a bounce buffer. */
static inline size_t tofu_am_max_short(const tofu_iface_t *iface)
{
    size_t seg = iface->config.am_seg_size;

    return (seg < TOFU_POLLED_BYTES) ? seg : TOFU_POLLED_BYTES;
}

/* ---- tofu_am_polled.c and tofu_am_recv.c: messages without a notice */

/* After a report of half a window: let it leave out notices, if it may. */
void tofu_lender_permit(tofu_lender_t *lender);
/* The permit has ended: its answer came, or the loan ends. */
void tofu_lender_unpermit(tofu_lender_t *lender);
/* Ask for the permit back; no room for it now: with the next report, or tick. */
void tofu_lender_revoke(tofu_lender_t *lender);
/* Its user is about to sleep: ask for all permits back, and give none for a while.
 * Those that can't be asked now are by the tick. */
void tofu_am_sleepy(tofu_am_t *am);
void tofu_am_polled_tick(tofu_am_t *am);
/* The notice that answers a revocation. */
void tofu_am_answered(tofu_iface_t *iface, const struct utofu_mrq_notice *notice);
/* A message came on am->polled[i], its tail was read: deliver it, and what else has
 * come on this loan and those behind it.  Returns how many.  Calls users. */
unsigned tofu_am_polled(tofu_iface_t *iface, uint32_t i, uint64_t tail);
/* Look a few times more, with nothing there at first.  Returns how many; calls users. */
unsigned tofu_am_polled_again(tofu_iface_t *iface);
/* The same for one loan, all that is there.  The lender may be gone after it. */
unsigned tofu_am_drain(tofu_iface_t *iface, tofu_lender_t *lender);
/*
 * Deliver what its sender sent before this notice without notices; it has come, by
 * STRONG_ORDER.  Users are called meanwhile, so the notice waits in the stash: progress
 * in a handler must not read later ones before it.  0: it was handled there.
 */
int tofu_am_before(tofu_iface_t *iface, struct utofu_mrq_notice *notice);
/* Messages sent on the loan before an answer that are not there; TOFU_TURNS: not an
 * answer. */
uint32_t tofu_am_answer_behind(const tofu_iface_t *iface,
                               const tofu_lender_t *lender,
                               const struct utofu_mrq_notice *notice);
/* Give back slots of messages that are not delivered. */
void tofu_am_skip(tofu_lender_t *lender, unsigned cls);

static inline _Atomic uint64_t *tofu_am_tail(const tofu_am_t *am, uint32_t slot)
{
    return (_Atomic uint64_t *)(void *)(am->pool[TOFU_AM_SMALL].base +
                                        (size_t)slot * TOFU_AM_SMALL_SIZE +
                                        TOFU_POLLED_TAIL);
}

/* Has its next message come, without a notice?  acquire: then all of it has. */
static inline int tofu_lender_ready(const tofu_am_t *am,
                                    const tofu_lender_t *lender,
                                    uint64_t *tail_p)
{
    *tail_p = atomic_load_explicit(
            tofu_am_tail(am, lender->loan[TOFU_AM_SMALL].next),
            memory_order_acquire);
    return ((*tail_p ^ lender->turn) >> TOFU_TAIL_KEY_SHIFT) == 0;
}

/* Is there a message without a notice to be delivered?  num_polled is not 0. */
static inline int tofu_am_polled_ready(const tofu_iface_t *iface, uint32_t *i_p,
                                       uint64_t *tail_p)
{
    const tofu_am_t *am = iface->am;
    uint32_t        i   = 0;

    do {
        if (TOFU_UNLIKELY(tofu_lender_ready(am, am->polled[i], tail_p))) {
            *i_p = i;
            return 1;
        }
    } while (TOFU_UNLIKELY(++i < iface->num_polled));
    return 0;
}

/* ---- tofu_am_keep.c: large slots that are kept */

/* May the handler keep the message in this slot?  Then it counts as kept. */
unsigned tofu_am_offer(tofu_iface_t *iface, tofu_loan_t *loan, uint32_t slot,
                       void *data);
/* The handler that was offered it did not keep it. */
void tofu_am_unoffer(tofu_iface_t *iface, tofu_loan_t *loan, uint32_t slot);
/* All that arrived is consumed: tofu_loan_t::consumed, with slots passed over. */
void tofu_loan_settle(tofu_loan_t *loan);
/* After an arrival: pass over slots. */
void tofu_loan_pass(tofu_loan_t *loan);
/* The word that tells peers which iface this is: put it right, should somebody have written
 * over it. */
void tofu_am_keep_identity(tofu_am_t *am);
/* Post something with notice, to know whether the peer lives.  entry: of the request
 * table whose claim is in question, or ~0; borrower: it is about what we lent, and puts
 * `word`; else it is tofu_peer_ask. */
tofu_status_t tofu_am_probe(tofu_peer_t *peer, utofu_stadd_t where,
                            uint64_t word, uint32_t entry, int borrower);
void tofu_am_probed(tofu_op_t *op);
/* Ask the iface that has the VCQ of a holder of slots who it is: the holder may be gone without a
 * word, and that one need not want anything of ours, which would tell (tofu_am_holder_is). */
tofu_status_t tofu_am_ask_holder(tofu_lender_t *lender);
/* It answered. */
void tofu_am_holder_is(const tofu_op_t *op, uint64_t identity);
/* An operation of the core itself may be started. */
int tofu_am_internal_room(tofu_am_t *am);
/* A put of the core itself of up to 32 bytes, without local notice. */
tofu_status_t tofu_am_post_silent(tofu_peer_t *peer, const void *data,
                                  unsigned length, utofu_stadd_t where,
                                  unsigned edata, unsigned long flags);
tofu_status_t tofu_mailbox_get(tofu_am_t *am, uint32_t *index_p,
                               tofu_mailbox_t **mailbox_p);
void tofu_mailbox_put(tofu_am_t *am, uint32_t index);
/* STADD of a mailbox of another iface. */
tofu_status_t tofu_mailbox_stadd(tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                                 unsigned port,
                                 uint32_t index, utofu_stadd_t *stadd_p);
void tofu_am_update_work(tofu_am_t *am);

#pragma GCC visibility pop

#endif /* TOFU_AM_H */
