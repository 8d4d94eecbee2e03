/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_objects.h - the objects of the transport core.
 *
 *   tofu_md      one VCQ (the target VCQ) with which all memory is registered;
 *                an rkey names it.  It posts nothing.
 *   tofu_iface   one VCQ from which everything is posted, and to which active
 *                messages come.
 *   tofu_peer    a remote VCQ as seen from one iface: another iface's (AM) or
 *                an md's (RMA).  Lives as long as the iface, so that a pointer to
 *                it may travel as callback data of an operation.
 *   tofu_ep      what a user sends by: an AM peer, and the peers whose memory it
 *                used since its last flush.
 *   tofu_op      an operation with a local notice in flight.
 */
#ifndef TOFU_OBJECTS_H
#define TOFU_OBJECTS_H

#include "tofu.h"
#include "tofu_md.h"
#include "tofu_queue.h"
#include "tofu_util.h"

#include <tofu_dl.h>

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

/* Reserved STags of a VCQ of ours (utofu_reg_mem_with_stag) */
enum {
    TOFU_STAG_SCRATCH = 0, /* a page that flush puts and probes may scribble on */
    TOFU_STAG_SLOTS   = 1, /* iface that shares a VCQ: AM receive slots (tofu_slots_stag) */
    TOFU_STAG_REQUEST = 2, /* iface: request table */
    TOFU_STAG_MAILBOX = 3  /* iface: 3, 4, ... segments of mailboxes */
};

/* Ifaces that share a VCQ (tofu_hub.c) are told apart by ports, 1 and up: the STags
 * of one are these, its port times so many further on.  Port 0 is who has a VCQ of
 * its own, and as many segments of mailboxes as there are STags.  Whose address names a
 * port that there is not any more must not come to slots of that one (tofu_slots_stag). */
#define TOFU_PORT_STAGS 4u
#define TOFU_MAX_PORTS  48u

#define TOFU_MAX_IOV          16u
#define TOFU_MAX_SHORT        32u /* of a piggyback put */
#define TOFU_SHORT_ORDER      UTOFU_ONESIDED_FLAG_STRONG_ORDER /* of all but zcopy */
#define TOFU_MAX_ZCOPY        ((size_t)1 << 46)
#define TOFU_INTERNAL_NOTICES 16u /* of the core's own operations, see tofu_am.h */

/* --------------------------------------------------- peers and operations */

typedef struct tofu_peer   tofu_peer_t;
typedef struct tofu_op     tofu_op_t;
typedef struct tofu_bounce tofu_bounce_t;
typedef struct tofu_chan   tofu_chan_t;
typedef struct tofu_lender tofu_lender_t;
typedef struct tofu_cursor tofu_cursor_t;
typedef struct tofu_stripe tofu_stripe_t;

/* The receive slots of an iface, as its address tells them.  Peers that have the
 * same share one record. */
typedef struct tofu_geometry {
    uint32_t small_count, small_size;
    uint32_t large_count, large_size; /* large_size: slot, header included */
    uint32_t large_lead; /* in front of a slot header, besides headroom */
    uint32_t seg_size;
} tofu_geometry_t;

/*
 * EDATA, one byte:
 *   1sssssss  an operation with a local notice; s counts them per peer
 *   0kkiiiii  an operation without: k is the kind, i the AM id
 * Remote notices are told from local ones by their type, so the receiver of an
 * AM sees kind and id, and a local *error* notice with bit 7 clear is known to
 * belong to no tofu_op_t.
 */
#define TOFU_EDATA_OP   0x80u
#define TOFU_EDATA(kind, id) (((unsigned)(kind) << 5) | (id))
enum {
    TOFU_KIND_AM_SMALL = 0,
    TOFU_KIND_AM_LARGE = 1,
    TOFU_KIND_REQUEST  = 2, /* an entry of the request table was written */
    TOFU_KIND_SILENT   = 3  /* no message; the id is one of: */
};
enum {
    TOFU_SILENT_USER    = 0, /* put or atomic of a user */
    TOFU_SILENT_CONTROL = 1, /* what the receiver of AMs tells senders */
    TOFU_SILENT_ANSWER  = 2  /* that a permit is back: the target gets a notice */
};
#define TOFU_EDATA_USER    TOFU_EDATA(TOFU_KIND_SILENT, TOFU_SILENT_USER)
#define TOFU_EDATA_CONTROL TOFU_EDATA(TOFU_KIND_SILENT, TOFU_SILENT_CONTROL)
#define TOFU_EDATA_ANSWER  TOFU_EDATA(TOFU_KIND_SILENT, TOFU_SILENT_ANSWER)

/*
 * Callback data of utofu_poll_tcq.  Low bits: what it points to.
 */
enum {
    TOFU_CB_OP     = 0, /* tofu_op_t */
    TOFU_CB_BOUNCE = 1, /* tofu_bounce_t: free it */
    TOFU_CB_PEER   = 2, /* tofu_peer_t: of use when it failed */
    TOFU_CB_MASK   = 3
};
#define tofu_cbdata(ptr, tag) ((void *)((uintptr_t)(ptr) + (tag)))

/*
 * Where in a page of 4 KiB a bounce buffer starts (tofu_processor.c).  Large buffers of users
 * start with a page, or little behind (malloc's 16 bytes, headers).
 * Loads that follow stores at the same offset in another page wait for them: on AMD's up to
 * Zen 4 memcpy (by `rep movsb`) then takes 4 to 60 times as long.  So half a page away, at a
 * multiple of 64: copies between addresses that are not aligned alike take up to twice as long.
 * On a Zen 5 it is the other way round: less than 64 bytes behind the user's offset memcpy
 * alone takes longer (8 KiB: 67 for 50 ns), but elsewhere what it wrote is slow to be read
 * again, and it waits for the stores before it (a message: 340 to 265 ns, where a line
 * takes 185, 171 to 160, where it takes 40).
 */
#define TOFU_BOUNCE_PAGE 4096u
extern size_t tofu_bounce_offset;

struct tofu_bounce {
    tofu_bounce_t *next;
    char          *buffer;
    utofu_stadd_t stadd;  /* of buffer on the iface's VCQ */
    tofu_peer_t   *peer;  /* of the put in flight */
};

/* Notices of a VCQ do not tell its ports apart.  So what goes to any of them waits in
 * one FIFO, which is that of the record of port 0: the line (tofu_peer_line). */
struct tofu_peer {
    tofu_iface_t   *iface;
    utofu_vcq_id_t vcq_id;
    union {
        tofu_link_t fifo;     /* line: tofu_op_t::link, in post order */
        tofu_peer_t *line;    /* of a port: where its operations wait */
    };
    utofu_stadd_t  scratch;   /* TOFU_STAG_SCRATCH there */
    utofu_stadd_t  identity;  /* word that holds its incarnation; 0: no iface, or not known */
    uint8_t        port;      /* of the iface there that it is about */
    uint8_t        seq;       /* line: of the next operation */
    uint8_t        ported;    /* line: there are records of ports */
    uint8_t        suspect;   /* something to one of the ports failed: ask */
    uint8_t        probing;   /* a probe is in flight */
    int8_t         lost;      /* a post to it was lost: the status; progress acts on it */
    uint8_t        epoch;     /* counts the ifaces that had the VCQ ID */
    utofu_vcq_id_t post_id;   /* vcq_id, with the path that the lane takes */
    uint32_t       incarnation; /* of the iface there, from its address */
    const tofu_geometry_t *geometry; /* of its slots; NULL: an md's VCQ */
    tofu_chan_t    *chan;     /* AM, as sender; NULL before the first message */
    tofu_lender_t  *lender;   /* AM, as receiver: what it was lent */
};

typedef enum {
    TOFU_OP_RMA,       /* put or get by the user's iov */
    TOFU_OP_GET_BCOPY,
    TOFU_OP_ATOMIC,
    TOFU_OP_AM_ZCOPY,  /* completes by its TCQ entry, not in a FIFO */
    TOFU_OP_FLUSH,
    TOFU_OP_FENCE,
    TOFU_OP_PART,      /* further uTofu operations of `root` */
    TOFU_OP_WAITER,    /* a user's flush completion; posts nothing */
    TOFU_OP_CLAIM,     /* compare-and-swap on a peer's request table */
    TOFU_OP_PROBE      /* is the peer alive? */
} tofu_op_kind_t;

enum {
    TOFU_OP_MORE    = 0x01, /* not all of it is posted: the ep's continuation */
    TOFU_OP_ZOMBIE  = 0x02, /* given up because the peer failed ... */
    TOFU_OP_RETIRED = 0x04, /* ... and finished; freed by its last notice */
    TOFU_OP_GET     = 0x08,
    TOFU_OP_COUNTED = 0x10, /* in iface->inflight and ep->inflight */
    TOFU_OP_STRONG  = 0x20, /* RMA: posted after a fence */
    TOFU_OP_EARLY   = 0x40, /* AM: waits for the first slots; see tofu_am_early.c */
    TOFU_OP_QUIET   = 0x40, /* WAITER: of a TOFU_FLUSH_QUIET */
    TOFU_OP_ASKS    = 0x80  /* its notice has the peer's identity (tofu_peer_ask) */
};

/* Where a user's iov has got to. */
struct tofu_cursor {
    const tofu_iov_t *iov;
    unsigned         iovcnt;
    unsigned         index;  /* entry of iov */
    unsigned         block;  /* of entry.count */
    size_t           offset; /* in the block */
    utofu_stadd_t    remote;
    tofu_iov_t       copy[]; /* of what is left, in a continuation */
};

struct tofu_op {
    tofu_iface_t      *lane;   /* whose VCQ it is posted from; for good */
    tofu_link_t       link;    /* in a peer's FIFO or a list of waiters */
    tofu_link_t       done;    /* in iface->done */
    tofu_peer_t       *peer;
    tofu_ep_t         *ep;     /* NULL: destroyed, or the core's own */
    tofu_completion_t *comp;
    tofu_op_t         *root;   /* PART: the operation it belongs to */
    uint64_t          sn;      /* order of issue, for flush */
    uint32_t          left;    /* notices to come for what this op posted */
    uint32_t          rounds;  /* of itself and its PARTs that are not done */
    uint8_t           kind;    /* tofu_op_kind_t */
    uint8_t           flags;
    uint8_t           edata;
    int8_t            status;
    uint8_t           in_use;
    uint8_t           epoch;   /* of the peer when it was posted */
    union {
        struct {
            void    *result;
            uint8_t size;
        } atomic;
        struct {
            tofu_unpack_cb_t unpack;
            void             *arg;
            tofu_bounce_t    *bounce;
            size_t           length;
        } get;
        struct {
            tofu_cursor_t *cursor; /* with TOFU_OP_MORE, one of both */
            tofu_stripe_t *stripe;
        } rma;
        struct {
            tofu_bounce_t *bounce; /* header, or all of it with TOFU_OP_MORE */
            size_t        length;
            uint8_t       id;
        } am;
        struct {
            uint64_t old_value;
            uint32_t nonce; /* of the channel when it was posted */
        } claim;
        struct {
            uint32_t entry;   /* of the own request table, or ~0 */
            uint32_t nonce;   /* of the loan whose holder is asked who it is, or 0 */
            uint8_t  borrower; /* asked because of what we lent to the peer */
        } probe;
        struct {
            uint32_t count; /* operations to wait for */
        } waiter;
    };
};

/* --------------------------------------------------------------------- ep */

enum {
    TOFU_EP_FAILED   = 0x01,
    TOFU_EP_PENDING  = 0x02, /* requests are queued */
    TOFU_EP_MORE     = 0x04, /* an operation is posted in part */
    TOFU_EP_FENCE    = 0x08, /* something used before a fence may be in flight */
    TOFU_EP_AM_FIRST = 0x10, /* the next AM is the first since a flush */
    TOFU_EP_ARMED    = 0x20, /* a fence that matters to other targets only */
    TOFU_EP_ORPHAN   = 0x40, /* destroyed, but for an early message to be sent */
    TOFU_EP_DOOMED   = 0x80, /* invalidated: fails in the next progress */
    /* what RMA and AM must look at: */
    TOFU_EP_STOP     = TOFU_EP_FAILED | TOFU_EP_PENDING | TOFU_EP_MORE |
                       TOFU_EP_FENCE,
    TOFU_EP_AM_STOP  = TOFU_EP_STOP | TOFU_EP_AM_FIRST
};

#define TOFU_NO_VCQ ((utofu_vcq_id_t)-1) /* the ID of none */

/* What an operation was refused for; pending_add looks whether it is back. */
enum {
    TOFU_STARVED_OP     = 0x01,
    TOFU_STARVED_BOUNCE = 0x02,
    TOFU_STARVED_TOQ    = 0x04,
    TOFU_STARVED_SMALL  = 0x08,
    TOFU_STARVED_LARGE  = 0x10,
    TOFU_STARVED_FENCE  = 0x20,
    TOFU_STARVED_LANE   = 0x40
};

#define TOFU_EP_TARGETS 2 /* kept in the ep; more are allocated */

struct tofu_ep {
    /* the fast paths read these */
    uint8_t        flags;   /* TOFU_EP_* */
    uint8_t        starved; /* TOFU_STARVED_* */
    int8_t         status;  /* with TOFU_EP_FAILED */
    int8_t         flush_status; /* first failure since the last flush */
    uint32_t       inflight;
    tofu_iface_t   *iface;
    utofu_vcq_id_t rma_vcq;  /* the RMA target used last, if it is in targets */
    tofu_peer_t    *rma_peer;
    tofu_chan_t    *chan;    /* of the peer; am->no_chan before its first AM */
    tofu_peer_t    *peer;    /* of AM */

    uint32_t       num_targets, max_targets;
    uint32_t       fences;   /* flush puts in flight */
    uint8_t        lane;     /* of its large puts and gets, the first */
    uint8_t        checks;   /* that wait, of a user's ep */
    uint8_t        hidden;   /* one of tofu_check.c: no user knows it */
    tofu_peer_t    **targets; /* used since the last flush */
    tofu_peer_t    *inline_targets[TOFU_EP_TARGETS];
    tofu_op_t      *more;    /* with TOFU_EP_MORE */
    tofu_link_t    pending;  /* of tofu_pending_req_t::priv */
    tofu_link_t    waiters;  /* of tofu_op_t::link */
    tofu_link_t    eps;      /* in iface->eps */
    tofu_link_t    used;     /* in iface->used, with num_targets > 0 */
    tofu_link_t    turn;     /* in iface->turns, with requests or TOFU_EP_MORE */
    tofu_link_t    failed;   /* in iface->failed, until err_cb is called */
    void           *user;
};
_Static_assert(sizeof(struct tofu_ep) <= 256, "an ep is at most 256 bytes");

/* ------------------------------------------------------------------ iface */

typedef struct tofu_am     tofu_am_t;     /* tofu_am.h */
typedef struct tofu_port   tofu_port_t;   /* tofu_port.h */
typedef struct tofu_wakeup tofu_wakeup_t; /* tofu_wakeup.c */

typedef struct tofu_geometry_node {
    struct tofu_geometry_node *next;
    tofu_geometry_t           geometry;
} tofu_geometry_node_t;

typedef struct tofu_op_chunk {
    struct tofu_op_chunk *next;
    unsigned             count;
    tofu_op_t            op[];
} tofu_op_chunk_t;

/* HELD: by tofu_am_before, for messages that come first */
enum { TOFU_STASHED = 1, TOFU_STASH_HELD = 2, TOFU_STASH_MORE = 4 /* in `kept` */ };

typedef struct tofu_mrq_entry {
    struct utofu_mrq_notice notice;
    int                     code;
} tofu_mrq_entry_t;

struct tofu_iface {
    /* posting */
    utofu_vcq_hdl_t       vcq;
    unsigned long         zcopy_flags; /* STRONG_ORDER or 0 */
    uint64_t              posts;       /* uTofu operations posted */
    uint64_t              posts_limit; /* no more before progress saw an empty MRQ */
    tofu_bounce_t         *bounces;    /* free ones */
    tofu_op_t             *free_ops;
    uint32_t              notices;     /* local notices to come */
    uint32_t              tcq_wait;    /* TCQ entries to come */
    uint32_t              tcq_due;     /* of them those that end an operation; the others
                                          give back bounce buffers, which who needs one
                                          looks for */
    uint64_t              posts_seen;  /* posts when the TCQ was drained last */
    uint64_t              sn;
    uint32_t              inflight;
    uint32_t              work;        /* TOFU_WORK_* */
    uint64_t              calls;       /* of progress: the clock, stats.polls */
    uint32_t              post_budget;
    uint32_t              early_skip;  /* posts until tofu_op_early tries again */
    int                   stashed;     /* stash is to be handled by progress: TOFU_STASH* */
    uint32_t              num_polled;  /* loans in am->polled */
    uint32_t              polled_empty; /* calls since they had a message */
    uint32_t              came_apart;  /* messages came, which nobody has taken note of: how
                                          far looks are kept apart in such a stream */
    uint64_t              came_posts;  /* posts before the last of them */
    uint32_t              stream_looks; /* that are to be kept apart further */
    uint32_t              stream_apart; /* how much */
    uint64_t              stream_sent; /* posts that were no credit, and ... */
    uint64_t              stream_call; /* ... calls, when note was taken last */
    struct tofu_functions fn;
    tofu_peer_t           *last_line;  /* of the last local notice */
    tofu_mrq_entry_t      stash; /* taken from the MRQ where users can't be called */
    tofu_am_t             *am;

    struct {
        tofu_am_cb_t cb;
        void         *arg;
        int          logged;
    } handler[TOFU_AM_ID_MAX];

    /* A lane is an iface without eps and AM: a VCQ on another TNI, from which its
     * owner posts large puts and gets. */
    tofu_iface_t          *owner;      /* itself, or whose lane it is */
    tofu_iface_t          *lane[TOFU_MAX_TNIS]; /* the first is itself */
    unsigned              lane_eps[TOFU_MAX_TNIS]; /* eps that prefer it */
    unsigned              first_tni;   /* in md->tnis */
    uint8_t               lane_index;
    uint8_t               no_lane;     /* bits of lanes that could not be opened */

    tofu_md_t             *md;
    utofu_vcq_id_t        vcq_id;
    unsigned              index;       /* in md->ifaces */
    uint64_t              generation;
    int                   shared_vcq;  /* of its CQ, and so thread-safe */
    int                   exclusive;   /* counted in tofu_exclusive_cqs */
    tofu_port_t           *shared;     /* the VCQ is others', too: vcq is a port's
                                          handle then, and fn the hub's */
    unsigned              port;        /* of the iface on the VCQ; 0: has its own */
    unsigned              suspects;    /* peers that are */
    unsigned              lost;        /* peers with posts that were lost */
    tofu_iface_config_t   config;
    unsigned              mrq_entries;
    unsigned              max_notices;
    size_t                max_put;     /* bytes of one uTofu operation */
    size_t                stripe_thresh; /* bytes of a large operation */

    tofu_link_t           eps;         /* all */
    tofu_link_t           used;        /* with targets */
    tofu_link_t           checks;      /* tofu_check.c */
    tofu_link_t           turns;       /* to be served by progress, the oldest first */
    tofu_link_t           failed;      /* err_cb to be called */
    tofu_link_t           done;        /* ops to complete in progress */
    tofu_link_t           waiters;     /* of tofu_iface_flush */
    unsigned              num_turns;
    int                   in_turns;
    tofu_link_t           *turn_next;  /* in turns: to be asked next */
    tofu_ep_t             *serving;    /* its request is being called */
    uint8_t               flush_refused; /* ... which was told that a flush has no room */
    int8_t                flush_status;
    int8_t                fatal;       /* the VCQ does not work any more */

    tofu_peer_t           **peers;     /* hash table */
    size_t                num_peers, max_peers;
    tofu_geometry_node_t  *geometries;
    tofu_op_chunk_t       *op_chunks;
    tofu_bounce_t         *bounce_array;
    tofu_mem_t            *bounce_mem;
    void                  *scratch;
    tofu_arena_t          *scratch_arena;

    /* STADDs that other threads gave up (under md->lock); see tofu_reg.c */
    utofu_stadd_t         *dereg;
    size_t                max_dereg;
    _Atomic size_t        num_dereg;

    tofu_wakeup_t         *wakeup;     /* NULL: nobody asked for it */
    uint64_t              now_us, now_ms, tick_ms;
    uint8_t               logged;      /* TOFU_LOGGED_*, one line each */
    tofu_iface_stats_t    stats;
    tofu_queue_t          kept; /* tofu_mrq_entry_t, behind what is in the stash */
    uint64_t              unsettled_ms; /* see tofu_ep_settle */
};

enum {
    TOFU_WORK_DONE   = 1, /* iface->done is not empty, or an err_cb waits */
    TOFU_WORK_TURNS  = 2,
    TOFU_WORK_AM     = 4, /* tofu_am_progress has something to do */
    TOFU_WORK_LANES  = 8, /* something is in flight on a lane */
    TOFU_WORK_LOST   = 16, /* peers of it or of a lane have iface->lost */
    TOFU_WORK_REFUSED = 32 /* there was no room to post.  That there is some is no event, so
                              progress counts as one that it is worth another try: there are
                              users that wait for it to count something */
};

enum {
    TOFU_LOGGED_FORGED   = 1,
    TOFU_LOGGED_MISMATCH = 2,
    TOFU_LOGGED_NOTICE   = 4,
    TOFU_LOGGED_REQUEST  = 8,
    TOFU_LOGGED_REMOTE   = 16
};

#pragma GCC visibility pop

#endif /* TOFU_OBJECTS_H */
