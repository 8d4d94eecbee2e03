/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_shm.h - what processes of one job share.
 *
 * Two kinds of segment, both memfds, so nothing outlives its users:
 *
 *   control segment, one per job          process segment, one per process
 *   +---------------------------+         +------------------------------+
 *   | header, a lock            |         | header, ARMW mailbox         |
 *   | process slots             |         | VCQ blocks                   |
 *   | nodes: CQs, VCQ -> owner  |         | shared memfds ("segments")   |
 *   | VCQ generations           |         | STag table of each VCQ       |
 *   +---------------------------+         | MRQ lanes                    |
 *                                         +------------------------------+
 *
 * They hold indices and offsets, never pointers.  What a peer writes (lanes,
 * mailbox) is never used as an index or address without a check.  Memory
 * ordering: data is written with plain or release stores, published by a
 * release store, and read after an acquire load of what published it.
 */
#ifndef EMU_SHM_H
#define EMU_SHM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <utofu.h>

#define EMU_MAGIC        0x75746f6675656d75ull /* "utofuemu" */
#define EMU_SHM_VERSION  20u
#define EMU_LINE         256u /* A64FX cache line; also keeps x86 prefetch pairs apart */

/* Tofu-D, chapter 6 of the guide */
#define EMU_NUM_TNIS       6u
#define EMU_NUM_CQS        9u
#define EMU_NUM_CMPS       8u
#define EMU_NODE_CQS       (EMU_NUM_TNIS * EMU_NUM_CQS)
#define EMU_NODE_VCQS      (EMU_NODE_CQS * EMU_NUM_CMPS) /* 432 */
#define EMU_NUM_STAGS_USER 256u
#define EMU_START_GATES    16u /* barrier gates of a TNI that start and end: BG IDs 0 .. 15, ... */
#define EMU_RELAY_GATES    32u /* ... and that relay: BG IDs 16 .. 47 */
#define EMU_NUM_GATES      (EMU_START_GATES + EMU_RELAY_GATES)
#define EMU_NODE_GATES     (EMU_NUM_TNIS * EMU_NUM_GATES)

/* Ours */
#define EMU_MAX_PROCS      1024u
#define EMU_MAX_NODES      1024u
#define EMU_MAX_VCQS       EMU_NODE_VCQS /* of one process */
#define EMU_NUM_STAGS      65536u        /* per VCQ */
#define EMU_MAX_SEGS       4096u         /* memfds with registered memory, per process */
#define EMU_MAX_LANES      16384u        /* per process */
#define EMU_LANE_A         512u          /* entries of the ring that is normally used */
#define EMU_MRQ_MAX        2097152u      /* most entries of an MRQ (4.3.2.3) */
#define EMU_MAILBOXES      64u
#define EMU_MAX_CPUS       1024u         /* that are told apart */

/* ------------------------------------------------------ control segment */

enum emu_slot_state { EMU_SLOT_FREE, EMU_SLOT_LIVE };

struct emu_proc_slot {
    _Atomic uint32_t state;
    uint32_t         gen;        /* counts the owners of this slot */
    int32_t          pid;
    uint32_t         node;       /* index into nodes */
    uint64_t         start_time; /* of the process, clock ticks since boot */
    int32_t          seg_fd;     /* process segment, as a descriptor of pid */
    uint32_t         joined;     /* counts the processes of the job */
    uint64_t         seg_dev, seg_ino;
    _Atomic uint32_t pollers;    /* threads that have polled in vain (emu_idle.c) */
    int8_t           exclusive_cqs, session_cqs; /* that it asked for (emu_cq.c); -1: it did not */
    uint16_t         reserved;
};

enum emu_cq_kind { EMU_CQ_FREE, EMU_CQ_SHARED, EMU_CQ_EXCLUSIVE, EMU_CQ_SESSION };

struct emu_cq_slot {
    uint32_t         kind;  /* enum emu_cq_kind */
    uint32_t         owner; /* process slot */
    _Atomic uint32_t users; /* VCQs on it; looked at without the lock, too */
};

/* owner of a VCQ in one word: read without the lock by peers */
#define EMU_VCQ_OWNER(slot, index) (((uint64_t)1 << 63) | ((uint64_t)(slot) << 32) | (index))
#define EMU_VCQ_OWNER_SLOT(w)      ((uint32_t)((w) >> 32) & 0x7fffffffu)
#define EMU_VCQ_OWNER_INDEX(w)     ((uint32_t)(w))

/* Who has a barrier gate.  Changed under the lock; id is read without it. */
struct emu_gate_slot {
    _Atomic uint64_t id;    /* VBG ID, 0: free */
    uint32_t         owner; /* process slot */
    _Atomic uint32_t gen;   /* counts the owners, part of the ID */
};

struct emu_node {
    _Atomic uint64_t   key; /* coordinates | EMU_NODE_USED, or 0 */
    struct emu_cq_slot cq[EMU_NODE_CQS];
    _Atomic uint64_t   vcq[EMU_NODE_VCQS];
    uint8_t            turn[EMU_NODE_VCQS]; /* counts the VCQs that had the ID (control lock) */
    struct emu_gate_slot gate[EMU_NODE_GATES]; /* by TNI, then BG ID */
};
#define EMU_NODE_USED ((uint64_t)1 << 63)

/*
 * A barrier gate at work (emu_barrier.c).  Whoever brings the last missing input
 * fires the gate, in whatever process.  Messages from its two sources wait in a
 * ring each; a ring has one producer at a time (the holder of the source's claim)
 * and one consumer (the holder of this gate's claim; for a start gate its owner).
 */
#define EMU_SUM_LIMBS    34u /* of an exact sum of doubles (emu_bfpsum.h) */
#define EMU_MAX_REDUCE_U 6u
#define EMU_MAX_REDUCE_D 3u

struct emu_bfpsum {
    uint64_t limb[EMU_SUM_LIMBS]; /* two's complement, in units of 2^-1074 */
    uint64_t flags;
};

struct emu_gate_msg {
    uint8_t  kind; /* enum emu_gate_kind */
    uint8_t  op;   /* enum utofu_reduce_op */
    uint8_t  num;  /* of elements */
    uint8_t  mismatch;
    uint32_t pad;
    uint64_t due; /* timed mode: when it is there */
    union {
        uint64_t          u[EMU_MAX_REDUCE_U];
        struct emu_bfpsum d[EMU_MAX_REDUCE_D];
    };
};

#define EMU_GATE_RING 2u /* one in use and one that came early; a source waits for room */

struct emu_gate_ring {
    _Atomic uint64_t    source; /* VBG ID, UTOFU_VBG_ID_NULL: not waited for */
    _Atomic uint32_t    head, tail;
    struct emu_gate_msg msg[EMU_GATE_RING];
};

enum { EMU_GATE_SIGNAL, EMU_GATE_PACKET, EMU_GATE_WAYS };

struct emu_gate {
    _Atomic uint64_t     state; /* EMU_GATE_* */
    _Atomic uint64_t     target[EMU_GATE_WAYS]; /* VBG IDs or UTOFU_VBG_ID_NULL */
    _Atomic uint32_t     target_node[EMU_GATE_WAYS], source_node[EMU_GATE_WAYS]; /* where they are, a hint */
    struct emu_gate_ring in[EMU_GATE_WAYS];
    struct emu_gate_ring own; /* start gate: what its owner started */
};
#define EMU_GATE_CLAIMED    ((uint64_t)1) /* somebody fires it */
#define EMU_GATE_CONFIGURED ((uint64_t)2)
#define EMU_GATE_EPOCH      ((uint64_t)4) /* counts settings: an old holder's claim is void */

/* Timed mode: when resources of a node are free, in ticks (emu_timing.c) */
#define EMU_NUM_LINKS 10u
struct emu_clock {
    _Atomic uint64_t tni[EMU_NUM_TNIS], receive[EMU_NUM_TNIS], link[EMU_NUM_LINKS];
    _Atomic uint64_t armw; /* the last one that came arrives */
    _Atomic uint64_t came; /* the last of anything, by the real clock: not before it can have */
    char             pad[EMU_LINE - 8 * (2 * EMU_NUM_TNIS + EMU_NUM_LINKS + 2)];
};

/* emu_shared_lock.c.  All zero: nobody has it. */
struct emu_shared_lock {
    _Atomic uint64_t word; /* the thread that has it */
};

#define EMU_NAMESPACES 3u /* emu_procfs.c */

struct emu_control {
    uint64_t             magic;
    uint32_t             version;
    uint32_t             uid;
    uint64_t             size;
    char                 job[72];
    /* in which the numbers of its processes, and when they began, hold, and they may reach each other */
    uint64_t             ns[EMU_NAMESPACES];
    struct emu_shared_lock lock; /* creation paths only */
    struct emu_proc_slot slot[EMU_MAX_PROCS];
    struct emu_node      node[EMU_MAX_NODES];
    struct emu_clock     clock[EMU_MAX_NODES];
    _Atomic uint64_t     timing_floor; /* ps, 0: not measured (struct emu_floor) */
    _Atomic uint64_t     timing_probe; /* the same */
    _Atomic uint32_t     joined;   /* processes so far */
    _Atomic uint32_t     unfenced; /* there were processes that membarrier does not reach */
    _Atomic uint32_t     slots_high; /* slots from this one on were never used */
    _Atomic uint64_t     cpus[EMU_MAX_CPUS / 64]; /* on which processes of the job may run */
    /* Of each process' VCQs, odd: it exists.  What peers compare on every operation; it is
     * here, so that who gives a dead process' slot away makes all of them stale before
     * the next one can have the same VCQ IDs.  Counted on from owner to owner. */
    _Atomic uint32_t     vcq_gen[EMU_MAX_PROCS][EMU_MAX_VCQS];
    struct emu_gate      gate[EMU_MAX_NODES][EMU_NODE_GATES]; /* touched only when used */
};

/* ------------------------------------------------------ process segment */

/* An entry of an MRQ lane: what a remote notice says and the lane does not.  Four of
 * them share a line, so that a stream of notices moves a line for every four.  The
 * word is stored last: 0 | sequence number (25 bits) | stamp (24) | flags (3) | type (3) |
 * EDATA (8).  Numbers of so many bits differ in a ring, see emu_lane_next.  A notice of a
 * Get has two STADDs and takes two entries, of which the second is written first; in the
 * timed mode each does, and the second one's word is 1 | when it may be seen (62), around
 * the flag that says where the next entry is. */
struct emu_lane_entry {
    uint64_t stadd; /* remote STADD of the notice; of a second entry: local STADD */
    uint64_t word;
};
#define EMU_ENTRY_SEQ_SHIFT   38
#define EMU_ENTRY_SEQ_MASK    (((uint64_t)1 << 25) - 1)
#define EMU_ENTRY_STAMP_SHIFT 14
#define EMU_ENTRY_STAMP_MASK  (((uint64_t)1 << 24) - 1)
#define EMU_ENTRY_STAMPED     ((uint64_t)1 << 13) /* it has a stamp (emu_stamp.h) */
#define EMU_ENTRY_PAIR        ((uint64_t)1 << 12) /* the next entry belongs to this notice */
#define EMU_ENTRY_NEXT_B      ((uint64_t)1 << 11) /* the next entry is in ring B */
#define EMU_ENTRY_TYPE(w)     ((uint8_t)((w) >> 8 & 7))
#define EMU_ENTRY_EDATA(w)    ((uint8_t)(w))
#define EMU_SECOND            ((uint64_t)1 << 63) /* so that it is never taken for a first one */
static inline uint64_t emu_second_word(uint64_t due)
{
    return EMU_SECOND | ((due << 1) & ~EMU_SECOND & ~(uint64_t)0xfff) | (due & 0x7ff);
}
static inline uint64_t emu_second_due(uint64_t word)
{
    return ((word & ~EMU_SECOND) >> 12 << 11) | (word & 0x7ff);
}

/*
 * MRQ lane: single producer (one remote VCQ), single consumer (one local VCQ).
 * Two rings: A is small, so that it stays in cache; B holds a whole MRQ and is
 * used only while A is full.  Each entry says in which ring its successor will
 * be, so the order is one sequence over both.
 */
struct emu_lane {
    _Atomic uint64_t owner;    /* EMU_LANE_OWNER, 0: free */
    uint32_t         vcq;      /* consumer: VCQ index in this process */
    uint32_t         vcq_gen;  /* ... and its generation; 0: nobody's */
    _Atomic uint32_t state;    /* enum emu_lane_state */
    _Atomic uint32_t heat;     /* enum emu_lane_heat */
    uint64_t         origin;   /* ID of the producer's VCQ, with default path */
    uint32_t         index;    /* of this lane in the segment */
    uint32_t         next;     /* announced before it: index + 1 */
    uint32_t         used;     /* somebody had it before: its rings are not empty */
    char             pad0[EMU_LINE - 44];
    _Atomic uint64_t read_a;   /* entries that the consumer has read, per ring */
    _Atomic uint64_t read_b;
    _Atomic uint64_t read_x;   /* of them second ones */
    char             pad1[EMU_LINE - 24];
};
/* A lane is free when both sides are done with it, or the producer's process has ended: who
 * is the second to say so gives it back. */
enum emu_lane_state {
    EMU_LANE_OPEN,    /* also what a free one is left in: so is one that somebody is opening */
    EMU_LANE_CLOSED,  /* producer is gone, what is in it may be read */
    EMU_LANE_LEFT,    /* consumer is gone, the producer gives it back */
    EMU_LANE_CARRIED  /* open, of a session-mode VCQ, which does not hear of consumers that go */
};
/* A lane is in the stack of announced ones at most once: only who changes COLD to
 * ANNOUNCED puts it there, and only the consumer, when it takes it out, changes that. */
enum emu_lane_heat {
    EMU_LANE_HOT,       /* the consumer looks here */
    EMU_LANE_COLD,      /* it does not; who puts something in announces the lane */
    EMU_LANE_ANNOUNCED  /* it will, when it next looks at what was announced */
};
#define EMU_LANE_OWNER(slot, gen, vcq) \
    (((uint64_t)1 << 63) | ((uint64_t)(slot) << 48) | ((uint64_t)((gen) & 0xffffffu) << 16) | (vcq))
#define EMU_LANE_OWNER_SLOT(w) ((uint32_t)((w) >> 48) & 0x7fffu)
#define EMU_LANE_OWNER_GEN(w)  ((uint32_t)((w) >> 16) & 0xffffffu)

/* What peers read with every notice: one line per VCQ, seldom written, and one that they write
 * where there are several of them. */
struct emu_vcq_block {
    _Atomic uint32_t taken;      /* by a VCQ, from before it exists until all of it is gone (owner's use) */
    uint32_t         mrq_entries;
    _Atomic uint64_t epoch;      /* counts announcements, and EMU_EPOCH_OVERFLOW */
    uint64_t         vcq_id;     /* with default path */
    uint32_t         session;    /* session mode: it has a struct emu_session */
    _Atomic uint32_t armed;      /* its owner sleeps: who brings a notice takes this and rings */
    _Atomic uint32_t senders;    /* so many there have been */
    _Atomic uint32_t stamped;    /* more than one: notices are to have stamps (emu_stamp.h) */
    uint32_t         bell_length; /* of bell: where to ring, an abstract name */
    char             bell[32];
    _Atomic uint32_t announced;  /* lanes to look at: index + 1 of the last, a stack */
    char             pad1[EMU_LINE - 80];
    _Atomic uint64_t stamps;     /* given so far */
    char             pad2[EMU_LINE - 8];
};
#define EMU_EPOCH_OVERFLOW ((uint64_t)1 << 63) /* no count gets there */

enum emu_mem_kind {
    EMU_MEM_PRIVATE, /* reached by system calls ("kind M") */
    EMU_MEM_SHARED,  /* in a shared mapping that peers map ("kind H") */
    EMU_MEM_MOVED    /* private, but for its being in a memfd (emu_rehome.c, "kind R") */
};

/* One registration.  Written by its owner only, under a sequence lock. */
struct emu_stag {
    _Atomic uint32_t seq;     /* even: stable */
    uint32_t         flags;   /* UTOFU_REG_MEM_FLAG_* | EMU_STAG_VALID */
    uint64_t         addr;    /* in the owner */
    uint64_t         begin;   /* first valid offset in the STADD */
    uint64_t         end;     /* one past the last */
    uint32_t         kind;    /* enum emu_mem_kind */
    uint32_t         seg;     /* SHARED: index of the memfd, ... */
    uint32_t         seg_gen; /* ... its generation ... */
    uint32_t         refs;    /* utofu_reg_mem calls (owner's use) */
    uint64_t         seg_off; /* ... and where addr is in it */
    uint32_t         high;    /* EMU_STADD_HIGH of its STADDs; 0: not registered */
    uint16_t         head, tail; /* ... but for so many bytes at its ends, which are private */
};
#define EMU_STAG_VALID 0x80000000u

/* How others come to shared memory that has no descriptor (emu_attach.c) */
#define EMU_SEG_BY_NUMBER (-2) /* System V: by its number, which its inode has, too */
#define EMU_SEG_INHERITED (-3) /* only who has it of the same parent */

/* A memfd or shm file of this process with registered memory in it, or other shared memory. */
struct emu_seg {
    _Atomic uint32_t gen;  /* odd: in use */
    int32_t          fd;   /* descriptor of the owner, or EMU_SEG_ */
    uint64_t         dev, ino;
    uint64_t         ipc_ns; /* BY_NUMBER: where that number holds */
    uint32_t         refs; /* registrations in it (owner's use) */
    uint32_t         writable;
};

/* A request for an ARMW on private memory, done by the target's service thread */
/* ABANDONED: the owner had taken it, and its initiator does not wait any more: the owner gives it back. */
enum emu_mailbox_state { EMU_MBOX_FREE, EMU_MBOX_CLAIMED, EMU_MBOX_POSTED, EMU_MBOX_TAKEN, EMU_MBOX_DONE, EMU_MBOX_ABANDONED };

struct emu_mailbox {
    _Atomic uint32_t state;
    int32_t          pid;    /* of the initiator, to reclaim it */
    uint32_t         vcq;    /* index in this process */
    uint8_t          op;     /* enum emu_armw */
    uint8_t          size;
    uint16_t         pad;
    int32_t          code;   /* result: UTOFU_SUCCESS or UTOFU_ERR_MRQ_* */
    uint32_t         pad1;
    uint64_t         stadd;
    uint64_t         operand, compare, result;
    uint64_t         pad2;
};

struct emu_process {
    uint64_t             magic;
    uint32_t             version;
    int32_t              pid;
    uint64_t             size;
    _Atomic uint32_t     lanes; /* lanes ever used: 0 .. lanes - 1 are worth a look */
    uint32_t             lane_entries;    /* of ring B of every lane: the larger MRQ's */
    uint32_t             session_entries; /* of the MRQ of a session-mode VCQ */
    _Atomic uint32_t     lane_turn;    /* where senders look for one that is free again: goes round */
    _Atomic uint32_t     lanes_wanted; /* times that a sender found hardly any, or none */
    /* ARMW on private memory (emu_armw_private.c): */
    struct emu_shared_lock armw_lock; /* this process at it, or who stands in while it is stopped */
    struct emu_shared_lock stand_in;  /* one of these at a time; before armw_lock */
    _Atomic uint32_t     held;      /* its threads stand still for a moment, by its own doing (emu_stop.c) */
    char                 pad[EMU_LINE - 52 - 2 * sizeof(struct emu_shared_lock)];
    struct emu_mailbox   mailbox[EMU_MAILBOXES];
    struct emu_vcq_block vcq[EMU_MAX_VCQS];
    struct emu_seg       seg[EMU_MAX_SEGS];
};

/*
 * Session mode (2.2.8).  The TOQ of such a VCQ is carried out by whoever brings
 * a Put with an SPS to it, while its owner may be stopped: so the TOQ, the TCQ
 * and the local notices of the VCQ are here.  The owner appends descriptors and
 * reads results; one carrier at a time, holder of the lock, carries them out.
 */
struct emu_session_slot { /* a TOQ entry and, when it was carried out, its TCQ entry */
    uint64_t desc[8]; /* struct emu_desc */
    int32_t  code;
    uint32_t pad;
    uint64_t pad1[3];
};

struct emu_session_notice {
    struct utofu_mrq_notice notice;
    int64_t                 code;
    uint64_t                stamp; /* as in the word of an entry */
};

/* The producer's side of a lane from this VCQ to another: any carrier goes on with it */
struct emu_session_lane {
    uint64_t target; /* VCQ ID with default path; 0: free */
    uint32_t target_slot, target_process; /* whose it is: generations of VCQs are counted ... */
    uint32_t target_gen;                  /* ... by each process anew, for each place of a VCQ, and the ID can be the same */
    uint32_t index;  /* lane, in the target's process segment */
    _Atomic uint32_t current; /* which of these holds: who is killed writing the other one has not begun */
    uint32_t target_vcq;      /* its place in the process */
    struct {
        uint64_t wr_a, wr_b, wr_x, known_a, known_b, known_x;
        uint32_t next;   /* index of the next entry in its ring */
        uint32_t next_in_b;
    } at[2];
};

#define EMU_SESSION_TOQ   2048u
#define EMU_SESSION_LANES 1024u
#define EMU_SESSION_STARTERS 8u /* at the same moment; local notices do not wait for more */

struct emu_session {
    struct emu_shared_lock lock; /* only ever tried */
    _Atomic uint64_t credits;  /* sum of the SPSs that arrived */
    _Atomic uint64_t posted;   /* descriptors that the owner appended */
    _Atomic uint64_t claimed;  /* a carrier began with so many of them ... */
    _Atomic uint64_t started;  /* ... and ended with so many */
    _Atomic uint64_t tcq_read; /* TCQ entries that the owner read or skipped */
    _Atomic uint64_t mrq_written, mrq_read;
    _Atomic uint64_t step;     /* how far the operation under way got: emu_session.h */
    uint64_t         lane_before, local_before, credit_before;
    int64_t          outcome; /* of which the local notice is */
    uint64_t         stamp;   /* that of the local notice, whoever comes to write it */
    struct emu_shared_lock untold[EMU_SESSION_STARTERS]; /* held by who has started something, until its notice is there */
    char             pad[2 * EMU_LINE - (1 + EMU_SESSION_STARTERS) * sizeof(struct emu_shared_lock) - 104];
    struct emu_session_lane   lane[EMU_SESSION_LANES];
    struct emu_session_slot   toq[EMU_SESSION_TOQ];
    struct emu_session_notice mrq[]; /* session_entries */
};

/* Offsets in the process segment: the header is mapped whole, STag tables and
 * lanes one by one when they are used. */
#define EMU_ALIGN(x, a)      (((x) + (a) - 1) / (a) * (a))
#define EMU_SHM_PAGE         65536ull /* largest base page we meet */
#define EMU_STAGS_OFF        EMU_ALIGN((uint64_t)sizeof(struct emu_process), EMU_SHM_PAGE)
#define EMU_STAGS_SIZE       ((uint64_t)EMU_NUM_STAGS * sizeof(struct emu_stag))
#define EMU_SESSIONS_OFF     (EMU_STAGS_OFF + EMU_MAX_VCQS * EMU_STAGS_SIZE)
#define EMU_SESSION_SIZE(e)  EMU_ALIGN(sizeof(struct emu_session) + (uint64_t)(e) * sizeof(struct emu_session_notice), EMU_SHM_PAGE)
#define EMU_LANES_OFF(e)     (EMU_SESSIONS_OFF + EMU_MAX_VCQS * EMU_SESSION_SIZE(e))
#define EMU_LANE_HEAD        4096ull
#define EMU_LANE_A_SIZE      ((uint64_t)EMU_LANE_A * sizeof(struct emu_lane_entry))
#define EMU_LANE_B(b)        (2u * (b)) /* entries of ring B: two for each notice */
#define EMU_LANE_SIZE(b)     EMU_ALIGN(EMU_LANE_HEAD + EMU_LANE_A_SIZE + (uint64_t)EMU_LANE_B(b) * sizeof(struct emu_lane_entry), EMU_SHM_PAGE)
#define EMU_PROCESS_SIZE(b, e) (EMU_LANES_OFF(e) + EMU_MAX_LANES * EMU_LANE_SIZE(b))

_Static_assert(sizeof(struct utofu_mrq_notice) == 64, "an MRQ notice is a cache line");
_Static_assert(sizeof(struct emu_lane_entry) == 16, "lane entries do not straddle lines");
_Static_assert(sizeof(struct emu_stag) == 64, "a registration is a cache line");
_Static_assert(sizeof(struct emu_vcq_block) == 2 * EMU_LINE, "VCQ blocks do not share lines");
_Static_assert(sizeof(struct emu_mailbox) == 64, "mailboxes do not straddle lines");
_Static_assert(sizeof(struct emu_session_slot) == 96, "slots need no padding");
_Static_assert(sizeof(struct emu_session_notice) == 80, "nor do notices");
_Static_assert(sizeof(struct emu_lane) <= EMU_LANE_HEAD, "lane header fits");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "shared words need lock-free atomics");

#endif /* EMU_SHM_H */
