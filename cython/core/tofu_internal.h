/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_internal.h - the objects of the transport core and what its files share.
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
#ifndef TOFU_INTERNAL_H
#define TOFU_INTERNAL_H

#include "tofu.h"
#include "tofu_md.h"
#include "tofu_queue.h"
#include "tofu_util.h"

#include <tofu_dl.h>

#include <stdatomic.h>
#include <string.h>

#pragma GCC visibility push(hidden)

/* Reserved STags of a VCQ of ours (utofu_reg_mem_with_stag) */
enum {
    TOFU_STAG_SCRATCH = 0, /* a page that flush puts and probes may scribble on */
    TOFU_STAG_SLOTS   = 1, /* iface: AM receive slots */
    TOFU_STAG_REQUEST = 2, /* iface: request table */
    TOFU_STAG_MAILBOX = 3  /* iface: 3, 4, ... segments of mailboxes */
};

/* Ifaces that share a VCQ (tofu_hub.c) are told apart by ports, 1 and up: the STags
 * of one are these, its port times so many further on.  Port 0 is who has a VCQ of
 * its own, and as many segments of mailboxes as there are STags. */
#define TOFU_PORT_STAGS 4u
#define TOFU_MAX_PORTS  64u


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
    TOFU_OP_EARLY   = 0x40, /* AM: waits for the first slots; see tofu_am_send.c */
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
    TOFU_WORK_LOST   = 16 /* peers of it or of a lane have iface->lost */
};

enum {
    TOFU_LOGGED_FORGED   = 1,
    TOFU_LOGGED_MISMATCH = 2,
    TOFU_LOGGED_NOTICE   = 4,
    TOFU_LOGGED_REQUEST  = 8,
    TOFU_LOGGED_REMOTE   = 16
};

/* ------------------------------------------------------------ tofu_wire.c */

uint32_t tofu_wire_checksum(const void *data, size_t size);
size_t tofu_rkey_packed_size(const tofu_md_t *md);

typedef struct tofu_address { /* a packed iface address, in words */
    utofu_vcq_id_t  vcq_id;
    tofu_geometry_t geometry;
    uint32_t        incarnation; /* tells ifaces that had the VCQ ID one after
                                   the other apart */
    uint8_t         port;        /* ... and those that have it together */
} tofu_address_t;

#define TOFU_ADDRESS_SIZE 40u
#define TOFU_DEVICE_SIZE  16u
#define TOFU_RKEY_SIZE    48u
#define TOFU_RKEY_RAIL_SIZE 16u

void tofu_wire_pack_address(void *buffer, const tofu_address_t *address);
/* OK, or INVALID_PARAM and the reason in words. */
tofu_status_t tofu_wire_unpack_address(const void *buffer, size_t size,
                                       tofu_address_t *address_p,
                                       char *reason, size_t reason_size);

/* ------------------------------------------------------------- tofu_reg.c */

/* Slow part of tofu_mem_stadd: registers memh with the iface's VCQ, or as much of it as
 * is needed.  *stadd_p: of memh->address, good for that part. */
tofu_status_t tofu_mem_register_local(tofu_mem_t *memh, tofu_iface_t *iface,
                                      const void *address, size_t length,
                                      utofu_stadd_t *stadd_p);
/* Hand the STADDs of memh on ifaces' VCQs to their ifaces; under md->lock. */
void tofu_reg_release_local(tofu_mem_t *memh);
/* Deregister what other threads gave up. */
void tofu_iface_drain_dereg(tofu_iface_t *iface);

/* STADD of address, which is inside memh, on the iface's VCQ.  No lock: only the
 * iface's own thread makes or reads the entry of the iface. */
static inline tofu_status_t tofu_mem_stadd(tofu_mem_t *memh,
                                           tofu_iface_t *iface,
                                           const void *address, size_t length,
                                           utofu_stadd_t *stadd_p)
{
    tofu_lcl_table_t *table;
    utofu_stadd_t    stadd;
    tofu_status_t    status;
    size_t           offset;

    if (TOFU_UNLIKELY(memh == NULL)) {
        return TOFU_ERR_INVALID_PARAM;
    }
    offset = (size_t)((const char *)address - memh->address);
    if (TOFU_UNLIKELY((length > memh->length) ||
                      (offset > memh->length - length))) {
        return TOFU_ERR_INVALID_PARAM;
    }
    table = atomic_load_explicit(&memh->lcl, memory_order_acquire);
    if (TOFU_LIKELY((table != NULL) && (iface->index < table->size) &&
                    (atomic_load_explicit(
                             &table->entry[iface->index].generation,
                             memory_order_relaxed) == iface->generation))) {
        stadd = table->entry[iface->index].stadd;
    } else {
        status = tofu_mem_register_local(memh, iface, address, length,
                                         &stadd);
        if (status != TOFU_OK) {
            return status;
        }
    }
    *stadd_p = stadd + offset;
    return TOFU_OK;
}

/* ------------------------------------------------------------ tofu_peer.c */

/* NULL: none yet. */
tofu_peer_t *tofu_peer_find(tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                            unsigned port);
/* Find or make. */
tofu_status_t tofu_peer_get(tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                            unsigned port, tofu_peer_t **peer_p);
/* The word that tells which iface it is: no other bytes look like one. */
static inline uint64_t tofu_identity(uint32_t incarnation)
{
    return ((uint64_t)~incarnation << 32) | incarnation;
}

/* Ask the peer for a sign of life, for op, which is posted with one notice when this
 * succeeds: a small ordered operation, which lands after all before it.  Of an iface it reads
 * the identity, so that one that took the VCQ over is not taken for it (tofu_peer_is_other). */
tofu_status_t tofu_peer_ask(tofu_peer_t *peer, utofu_vcq_id_t to, tofu_op_t *op);
/* The answer to op, which asked for it (TOFU_OP_ASKS), names another iface. */
int tofu_peer_is_other(const tofu_op_t *op, uint64_t answer);
/* STADD of a reserved STag of the iface at that port. */
int tofu_peer_stadd(const tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                    unsigned port, unsigned stag, utofu_stadd_t *stadd_p);
/* The iface at the peer is the one of this address from now on. */
tofu_status_t tofu_peer_set_address(tofu_peer_t *peer,
                                    const tofu_address_t *address);
/* An operation of which nobody keeps a record failed, or the peer is gone
 * (status of MRQ_PEER): the eps that may have posted it fail.  TOFU_SUCCEEDED: it is
 * gone, and another iface has its VCQ, which may hold slots of ours. */
#define TOFU_SUCCEEDED 2
void tofu_peer_failed(tofu_peer_t *peer, tofu_status_t status, int gone);
/* The VCQ that the line is about is gone, and so are all its ports. */
void tofu_line_failed(tofu_peer_t *line, tofu_status_t status);
/* The same, for what was lent to them. */
void tofu_line_borrowers_gone(tofu_peer_t *line);
/* Something to one of the ports of the line failed; which, probes will tell. */
void tofu_line_suspect(tofu_peer_t *line);
void tofu_suspects_probe(tofu_iface_t *iface);

/* What was posted to it without a notice was not sent, as the TCQ said.  That is found
 * in the middle of posts, too, so it is kept until progress acts on it. */
void tofu_peer_lost(tofu_peer_t *peer, tofu_status_t status);
void tofu_lost_fail(tofu_iface_t *iface);
void tofu_peers_free(tofu_iface_t *iface);

/* -------------------------------------------------------------- tofu_op.c */

/* Slow part of tofu_op_alloc: more memory for operations. */
int tofu_op_grow(tofu_iface_t *iface);
static inline tofu_op_t *tofu_op_alloc(tofu_iface_t *iface, tofu_op_kind_t kind);
void tofu_op_free(tofu_op_t *op);
/* It posted `left` uTofu operations with notice to peer: one round. */
void tofu_op_posted(tofu_op_t *op, tofu_peer_t *peer, uint32_t left);
/* One of its notices came, or will not come.  in_progress: users may be called. */
void tofu_op_notice(tofu_iface_t *iface, tofu_op_t *op, tofu_status_t status,
                    int in_progress);
/* Count op as in flight for its ep and iface; once per operation of a user. */
void tofu_op_count(tofu_iface_t *iface, tofu_ep_t *ep, tofu_op_t *op);
/* Finish it from the next progress. */
void tofu_op_defer(tofu_op_t *op);
/* The op is over: callback, counters, waiters.  In progress only. */
void tofu_op_finish(tofu_op_t *op);
/* No more of it will be posted. */
void tofu_op_cut(tofu_iface_t *iface, tofu_op_t *op, tofu_status_t status);
/* A local notice of the MRQ.  in_progress: users may be called now. */
void tofu_op_mrq(tofu_iface_t *iface, const struct utofu_mrq_notice *notice,
                 int code, int in_progress);
/* Take from the TCQ what is there (bounded); returns how many.  Calls no user. */
unsigned tofu_tcq_drain(tofu_iface_t *iface);
/* The same, until nothing is awaited: errors of what asked for no entry may be left. */
unsigned tofu_tcq_reap(tofu_iface_t *iface);
/* Give up, as failed, all that is in flight to the peer. */
void tofu_peer_abort(tofu_peer_t *peer, tofu_status_t status);
/* Operations of the ep end with status, each when it would have ended anyway. */
void tofu_ops_spoil_ep(tofu_iface_t *iface, const tofu_ep_t *ep,
                       tofu_status_t status);
/* The ep goes away: its operations have none from now on. */
void tofu_ops_forget_ep(tofu_iface_t *iface, tofu_ep_t *ep);
void tofu_ops_cancel(tofu_iface_t *iface);
void tofu_ops_free(tofu_iface_t *iface);
/* A user's completion of a flush, called when all that is in flight now has
 * completed.  ep NULL: of the whole iface. */
tofu_status_t tofu_op_wait(tofu_iface_t *iface, tofu_ep_t *ep,
                           tofu_completion_t *comp);
/* A post returned neither SUCCESS nor BUSY: log, status. */
tofu_status_t tofu_post_error(tofu_iface_t *iface, const char *call, int code,
                              utofu_vcq_id_t vcq_id, size_t length);

/* The record in whose FIFO operations to the peer wait. */
static inline tofu_peer_t *tofu_peer_line(tofu_peer_t *peer)
{
    return TOFU_LIKELY(peer->port == 0) ? peer : peer->line;
}

/* EDATA of the next operation to the peer. */
static inline unsigned tofu_peer_edata(tofu_peer_t *peer)
{
    return TOFU_EDATA_OP | (tofu_peer_line(peer)->seq & 0x7f);
}

static inline tofu_op_t *tofu_op_alloc(tofu_iface_t *iface, tofu_op_kind_t kind)
{
    tofu_op_t *op = iface->free_ops;

    if (TOFU_UNLIKELY(op == NULL)) {
        if (!tofu_op_grow(iface)) {
            return NULL;
        }
        op = iface->free_ops;
    }
    iface->free_ops = op->root;
    op->root        = NULL;
    op->peer        = NULL;
    op->ep          = NULL;
    op->comp        = NULL;
    op->left        = 0;
    op->rounds      = 0;
    op->kind        = (uint8_t)kind;
    op->flags       = 0;
    op->status      = TOFU_OK;
    op->in_use      = 1;
    return op;
}

/* Give the user of a fetching atomic the old value. */
static inline void tofu_amo_result(const tofu_op_t *op, uint64_t old_value)
{
    if (op->atomic.size == sizeof(uint64_t)) {
        memcpy(op->atomic.result, &old_value, sizeof(uint64_t));
    } else {
        uint32_t value = (uint32_t)old_value;
        memcpy(op->atomic.result, &value, sizeof(value));
    }
}

static inline void tofu_completion_update(tofu_completion_t *comp,
                                          tofu_status_t status)
{
    if (comp == NULL) {
        return;
    }
    if ((status != TOFU_OK) && (comp->status == TOFU_OK)) {
        comp->status = (int8_t)status;
    }
    if (--comp->count == 0) {
        comp->func(comp);
    }
}

/* Post `call`; when the TOQ is full, make room once.  TOFU_OK, NO_RESOURCE, or
 * the status of a failure that was logged. */
#define tofu_post(iface, name, rmt_vcq, len, call) \
    ({ \
        int           _code = (call); \
        tofu_status_t _status; \
        if (TOFU_UNLIKELY(_code == UTOFU_ERR_BUSY)) { \
            tofu_tcq_drain(iface); \
            _code = (call); \
        } \
        if (TOFU_LIKELY(_code == UTOFU_SUCCESS)) { \
            ++(iface)->posts; \
            _status = TOFU_OK; \
        } else if (_code == UTOFU_ERR_BUSY) { \
            _status = TOFU_ERR_NO_RESOURCE; \
        } else { \
            _status = tofu_post_error(iface, name, _code, rmt_vcq, len); \
        } \
        _status; \
    })

/* An operation with n notices may be started. */
static inline int tofu_op_room(const tofu_iface_t *iface, unsigned n)
{
    return iface->notices + n <= iface->config.tx_notified;
}

#define TOFU_EARLY_SKIP 64u /* posts without a try after one that was in vain */

/*
 * An operation with a local notice was posted to peer: is it complete already?
 * Then the caller returns OK with no record of it; else it goes into the FIFO.
 * One poll of the MRQ, which pays where completion is quick (memory in reach), and
 * is not tried for a while where it did not.  Only when nothing else is in flight
 * to the peer, so that the notice can't be another operation's.  What else is
 * found is left to progress.
 */
static inline int tofu_op_early(tofu_iface_t *iface, tofu_peer_t *peer,
                                unsigned edata, uint64_t *old_value_p)
{
    struct utofu_mrq_notice *notice = &iface->stash.notice;
    tofu_peer_t             *line   = tofu_peer_line(peer);
    int                     code;

    if (iface->early_skip > 0) {
        --iface->early_skip;
        return 0;
    }
    if (TOFU_UNLIKELY(iface->stashed || !tofu_list_empty(&line->fifo))) {
        return 0;
    }
    code = iface->fn.poll_mrq(iface->vcq, 0, notice);
    if (code == UTOFU_ERR_NOT_FOUND) {
        iface->early_skip = TOFU_EARLY_SKIP;
        return 0;
    }
    if (TOFU_LIKELY((code == UTOFU_SUCCESS) && (notice->edata == edata) &&
                    (notice->vcq_id == peer->vcq_id) &&
                    !(notice->notice_type & 1))) { /* local types are even */
        *old_value_p = notice->rmt_value;
        ++line->seq;
        ++iface->stats.notices;
        return 1;
    }
    iface->stash.code = code;
    iface->stashed    = TOFU_STASHED;
    return 0;
}

/* The oldest notice that was taken from the MRQ and left to progress; there is one. */
static inline int tofu_stash_take(tofu_iface_t *iface, struct utofu_mrq_notice *notice)
{
    tofu_mrq_entry_t entry = iface->stash;

    if (TOFU_LIKELY(iface->stashed & ~TOFU_STASH_MORE)) {
        iface->stashed &= TOFU_STASH_MORE;
    } else {
        tofu_queue_pop(&iface->kept, &entry);
        iface->stashed = (tofu_queue_length(&iface->kept) > 0) ? TOFU_STASH_MORE : 0;
    }
    *notice = entry.notice;
    return entry.code;
}

/* -------------------------------------------------------------- tofu_ep.c */

/* May an operation to peer be posted on the ep now?  OK, NO_RESOURCE or the
 * failure of the ep.  Notes that the ep uses the peer.  For what the flags stop,
 * and for the first use since a flush. */
tofu_status_t tofu_ep_enter(tofu_ep_t *ep, tofu_peer_t *peer);
tofu_status_t tofu_ep_enter_rma(tofu_ep_t *ep, const tofu_rkey_t *rkey);
void tofu_ep_fail(tofu_ep_t *ep, tofu_status_t status);
/* Nothing is sent on the ep any more, and nobody is told: its user asked for it. */
void tofu_ep_close(tofu_ep_t *ep, tofu_status_t status);
int tofu_ep_uses(const tofu_ep_t *ep, const tofu_peer_t *peer);
/* Something is posted to the peer: a flush has to go there. */
tofu_status_t tofu_ep_add_target(tofu_ep_t *ep, tofu_peer_t *peer);

/* ----------------------------------------------------------- tofu_order.c */

/* Post a flush put to every target of the ep, and forget the targets.  OK, or
 * NO_RESOURCE when some are left. */
tofu_status_t tofu_ep_flush_targets(tofu_ep_t *ep);
/* Does a fence allow an operation to peer now? */
tofu_status_t tofu_ep_pass_fence(tofu_ep_t *ep, const tofu_peer_t *peer);

/* --------------------------------------------------------- tofu_pending.c */

/* Let progress serve the ep: its continuation, then its requests. */
void tofu_ep_schedule(tofu_ep_t *ep);
void tofu_ep_unschedule(tofu_ep_t *ep);
/* Serve what is queued; returns how many did something. */
unsigned tofu_iface_serve_turns(tofu_iface_t *iface);

static inline tofu_status_t tofu_ep_starve(tofu_ep_t *ep, unsigned reason)
{
    ep->starved |= (uint8_t)reason;
    return TOFU_ERR_NO_RESOURCE;
}

/* What an ep waits for that found no room for a notice. */
static inline unsigned tofu_starved_room(const tofu_iface_t *lane)
{
    return (lane->lane_index == 0) ? TOFU_STARVED_OP : TOFU_STARVED_LANE;
}

/* Something was posted from the lane: progress has to look there. */
static inline void tofu_lane_posted(tofu_iface_t *lane)
{
    if (lane->lane_index != 0) {
        lane->owner->work |= TOFU_WORK_LANES;
    }
}

/* Too many operations without a notice since the MRQ was seen empty: were they
 * all to fail, their error notices could overflow it. */
static inline int tofu_iface_post_limited(const tofu_iface_t *iface)
{
    return iface->posts >= iface->posts_limit;
}

/* uTofu operations of users posted: not the credit that is told between them */
static inline uint64_t tofu_iface_sent(const tofu_iface_t *iface)
{
    return iface->posts - iface->stats.credit_tx;
}

/* What every RMA operation does first; writable: wr_length, else length. */
static inline int tofu_ep_rma_ready(const tofu_ep_t *ep,
                                    const tofu_rkey_t *rkey)
{
    return TOFU_LIKELY(!(ep->flags & TOFU_EP_STOP) &&
                       (ep->rma_vcq == rkey->vcq_id) &&
                       !tofu_iface_post_limited(ep->iface));
}

static inline int tofu_range_ok(uint64_t offset, uint64_t length,
                                uint64_t available)
{
    return TOFU_LIKELY((length <= available) && (offset <= available - length));
}

/* ------------------------------------------------------------- tofu_rma.c */

/* Post one put or get of op to peer, with a local notice. */
static inline tofu_status_t tofu_rma_post(tofu_op_t *op, tofu_peer_t *peer,
                                          utofu_stadd_t local,
                                          utofu_stadd_t remote, size_t length,
                                          unsigned edata, int is_get)
{
    tofu_iface_t  *iface = peer->iface;
    unsigned long flags  = iface->zcopy_flags |
                          UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

    if (TOFU_UNLIKELY(op->flags & TOFU_OP_STRONG)) {
        flags |= UTOFU_ONESIDED_FLAG_STRONG_ORDER;
    }
    if (is_get) {
        return tofu_post(iface, "utofu_get", peer->vcq_id, length,
                         iface->fn.get(iface->vcq, peer->post_id, local, remote,
                                       length, edata, flags,
                                       tofu_cbdata(op, TOFU_CB_OP)));
    }
    return tofu_post(iface, "utofu_put", peer->vcq_id, length,
                     iface->fn.put(iface->vcq, peer->post_id, local, remote,
                                   length, edata, flags,
                                   tofu_cbdata(op, TOFU_CB_OP)));
}

/* Post more of op, a continuation.  OK: nothing is left; else NO_RESOURCE. */
tofu_status_t tofu_rma_continue(tofu_op_t *op);

/* ------------------------------------------------------------ tofu_lane.c */

/* The lane of an iface, opened on first use; 0 is the iface itself.  NULL: there
 * is no VCQ for it; the caller does with fewer. */
tofu_iface_t *tofu_lane_get(tofu_iface_t *iface, unsigned index);
void tofu_lanes_close(tofu_iface_t *iface);
/* Choose the lane of a new ep; give it back. */
void tofu_lane_choose(tofu_ep_t *ep);
void tofu_lane_release(tofu_ep_t *ep);
/* How many ways that share no first link lead to the node of a VCQ without a
 * detour: at least 1, at most 4. */
unsigned tofu_lane_links(tofu_md_t *md, utofu_vcq_id_t vcq_id);
/* The VCQ ID with the path that this lane takes to it. */
utofu_vcq_id_t tofu_lane_path(tofu_iface_t *lane, utofu_vcq_id_t vcq_id);
/* Could one more operation be started on every lane? */
int tofu_lanes_room(const tofu_iface_t *iface);
unsigned tofu_lanes_progress(tofu_iface_t *iface);
/* now_us and now_ms are those of the last look, which may be long ago for who does
 * not call progress. */
void tofu_iface_read_clock(tofu_iface_t *iface);

/* ---------------------------------------------------------- tofu_stripe.c */

/* A put or get of one block of at least iface->stripe_thresh bytes; the range was
 * checked. */
tofu_status_t tofu_rma_stripe(tofu_ep_t *ep, const tofu_iov_t *iov,
                              uint64_t offset, const tofu_rkey_t *rkey,
                              tofu_completion_t *comp, int is_get);
tofu_status_t tofu_stripe_continue(tofu_op_t *op);

/* ----------------------------------------------------------- tofu_iface.c */

/* Something came that nobody of ours sends: count it, log the first of a kind. */
void tofu_iface_drop(tofu_iface_t *iface, unsigned kind, const char *what,
                     utofu_vcq_id_t vcq_id);
/* Pieces of opening an iface or a lane: from VCQs of `tnis` TNIs, iface->first_tni
 * first. */
tofu_iface_t *tofu_iface_new(tofu_md_t *md, const tofu_iface_config_t *config);
tofu_status_t tofu_iface_open_vcq(tofu_iface_t *iface, unsigned tnis);
tofu_status_t tofu_iface_set_limits(tofu_iface_t *iface);
void tofu_iface_delist(tofu_iface_t *iface);
void tofu_iface_free_vcq(tofu_iface_t *iface);
/* The VCQ itself does not work any more. */
void tofu_iface_fatal(tofu_iface_t *iface, const char *call, int code);
/* Can an ep of the iface be made to these bytes?  If not, why. */
tofu_status_t tofu_iface_check_address(tofu_iface_t *iface, const void *buffer,
                                       size_t size, tofu_address_t *address_p,
                                       char *reason, size_t reason_size);

/* ------------------------------------------------------- tofu_progress.c */

#define TOFU_CLOCK_PERIOD 64u /* progress calls between looks at the clock */
#define TOFU_TICK_MS      1u

/* --------------------------------------------------------- tofu_wakeup.c */

/* The VCQs are freed. */
void tofu_wakeup_close(tofu_iface_t *iface);

/* ------------------------------------------------------------ tofu_attr.c */

void tofu_attr_md(const tofu_md_t *md, tofu_md_attr_t *attr);
void tofu_attr_iface(const tofu_iface_t *iface, tofu_iface_attr_t *attr);
/* Entries of the MRQ of a VCQ: UTOFU_NUM_MRQ_ENTRIES by the rules of 4.3.2.3. */
unsigned tofu_attr_mrq_entries(void);
/* Set the numbers of slots and notices so that the MRQ can't overflow. */
void tofu_attr_bound(tofu_iface_t *iface);

/* Slots of the request table of an iface. */
#define TOFU_REQUEST_ENTRIES 64u
#define TOFU_IDENTITY_OFFSET 40u /* in it, of the word that tells which iface it is */

#pragma GCC visibility pop

#endif /* TOFU_INTERNAL_H */
