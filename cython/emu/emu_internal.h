/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_internal.h - the emulator inside one process.
 *
 * Locks: emu_g.lock (a mutex) guards creation paths: initialisation, VCQ tables,
 * segments, peer processes.  A thread-safe VCQ has a lock of its own around
 * posting, polling and registration; emu_g.mem_lock keeps registrations still
 * while the service thread uses one.  Lock order: VCQ, mem_lock, emu_g.lock, the
 * job's lock in shared memory, that of emu_rehome_hold.  Nothing on the data path takes a lock otherwise
 * (but for ARMW on private memory, emu_armw_private.c: those two locks are only tried, or waited for
 * a second, and no other is taken with them).
 */
#ifndef EMU_INTERNAL_H
#define EMU_INTERNAL_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "emu_idle.h"
#include "emu_shm.h"

/* none of what follows is visible outside: no detours through GOT and PLT */
#pragma GCC visibility push(hidden)

#define EMU_EXPORT   __attribute__((visibility("default")))
#define emu_likely(x)   __builtin_expect(!!(x), 1)
#define emu_unlikely(x) __builtin_expect(!!(x), 0)
/* Out of the way of what comes before.  What is rare besides, or ends in an error, is made short, not
 * fast: there gcc clears 64 bytes by "rep stos", say, which takes an AMD Zen 3 10 to 20 ns. */
#define EMU_NOINLINE __attribute__((noinline))
#define EMU_COLD     __attribute__((noinline, cold))
#define EMU_INLINE   static inline __attribute__((always_inline))

#define EMU_TOQ_ENTRIES    2048u /* descriptors of a TOQ; the guide gives no number, hardware holds more than 2000 (2.2.8.1) */
#define EMU_MAX_PUTGET     16777215u
#define EMU_MAX_PIGGYBACK  32u
#define EMU_MAX_EDATA      255u
#define EMU_CMA_THRESHOLD  8192u /* above it process_vm_* beats /proc/PID/mem */

/* ARMW operations: enum utofu_armw_op, and: */
#define EMU_ARMW_CSWAP 6

/* ------------------------------------------------------------- STADD, IDs */

/* STADD: tttt ccc1 | STag (16 bits) | offset (40 bits).  ccc is the component ID of
 * the VCQ, so that STADDs are unique in a CQ (2.2.2); tttt counts the VCQs that had its
 * ID, so that a STADD of one that is gone is none of its successor's memory.  Both are 0
 * where the user chose the STag: those STADDs depend on the STag only.  The offset of a registration starts
 * at addr % 256, so a STADD is aligned as its memory is; with a chosen STag (addr is
 * a multiple of 256) it starts at 0. */
#define EMU_STADD_OFF_BITS 40
#define EMU_STADD_OFF_MASK (((uint64_t)1 << EMU_STADD_OFF_BITS) - 1)
#define EMU_STADD_STAG(s)  ((uint32_t)((s) >> EMU_STADD_OFF_BITS) & (EMU_NUM_STAGS - 1))
#define EMU_STADD_OFF(s)   ((s) & EMU_STADD_OFF_MASK)
#define EMU_STADD_HIGH(s)  ((uint32_t)((s) >> EMU_STADD_OFF_BITS)) /* all but the offset; never 0 */
#define EMU_STADD_TOP(turn, cmp) ((uint8_t)((turn) << 4 | (cmp) << 1 | 1))
EMU_INLINE uint64_t emu_stadd(uint8_t top, uint32_t stag, uint64_t off)
{
    top = (stag < EMU_NUM_STAGS_USER) ? EMU_STADD_TOP(0, 0) : top;

    return ((uint64_t)top << 56) | ((uint64_t)stag << EMU_STADD_OFF_BITS) | off;
}

/* A decoded VCQ ID (emu_topology.c) */
struct emu_vcq_name {
    uint8_t  coords[6];
    uint8_t  path[3];
    uint16_t tni, cq, cmp;
};
#define EMU_VCQ_ID_PATH_MASK 0xfull   /* path bits of a VCQ ID */
#define EMU_VCQ_ID_TAG       0x7554ull /* its upper 16 bits */

uint64_t emu_vcq_id_encode(const struct emu_vcq_name *name);
bool emu_vcq_id_decode(uint64_t id, struct emu_vcq_name *name);
uint64_t emu_coords_key(const uint8_t coords[6]);
bool emu_path_valid(const uint8_t path[3]);
bool emu_path_id_valid(unsigned path_id);
void emu_path_of_id(unsigned path_id, uint8_t path[3]); /* of a valid one */
void emu_shape_get(unsigned size[3]);                     /* X, Y, Z */
bool emu_coords_valid(const uint8_t coords[6]);
/* emu_g.coords, node_rank and node_size, from the environment or emu_g.slot. */
int emu_topology_init(void);

/* ---------------------------------------------------------------- process */

struct emu_peer_seg { /* a peer's memfd, mapped here */
    uint32_t gen;
    bool     cut_off; /* it became shorter than what is registered */
    bool     writable;
    void     *base;
    uint64_t size;
};

struct emu_peer_mapping { /* all that was ever made of them */
    void                    *base;
    uint64_t                size; /* of the file; 0: it was let go */
    uint64_t                room; /* addresses that it takes */
    bool                    moved;
    uint64_t                dev, ino; /* of the file; 0, 0: nobody else is to use it */
    uint32_t                index, gen; /* of the emu_peer_seg that has it, and nobody else while that is registered */
    bool                    writable;
    struct emu_peer_mapping *next;
};

/* Another process of the job (or this one), as seen from here. */
struct emu_peer_process {
    uint32_t            slot, gen;
    pid_t               pid;
    bool                self;
    _Atomic bool        dead;
    _Atomic uint32_t    users;   /* peers that refer to it: it is not given back before */
    int                 pidfd;   /* -1: not available */
    int                 seg_fd;  /* its process segment */
    _Atomic int         mem_fd;  /* its memory, -1: not opened yet, -2: refused */
    _Atomic int         conn_fd; /* to its service thread, -1 */
    _Atomic bool        cma_refused;
    _Atomic unsigned    calls;   /* of emu_peer_is_there */
    struct emu_process  *shm;
    uint32_t            lane_entries, session_entries; /* of its segment, checked once */
    struct emu_peer_seg *segs;   /* EMU_MAX_SEGS, made on first use */
    struct emu_peer_mapping *mappings;
    struct emu_peer_process *next;
};

/* A registration of a peer, translated.  Valid while *seq_p == seq. */
struct emu_region {
    uint32_t         tag;    /* EMU_STADD_HIGH of its STADDs, or EMU_NO_TAG */
    uint32_t         seq;
    _Atomic uint32_t *seq_p;
    uintptr_t        base;   /* of offset 0, as a pointer: for what is mapped here */
    /* what may be stored to directly begins at wbegin and has wspan bytes; 8 bytes may
     * be stored up to span8 from there */
    uint64_t         wbegin, wspan, span8;
    uint64_t         begin, end;
    uint64_t         dbegin, dspan; /* what is mapped here: see emu_region_direct */
    uint64_t         addr;   /* of offset 0, in the peer: for what is not */
    uint32_t         flags;
    uint32_t         seg;    /* of the peer, which is mapped; EMU_MAX_SEGS: none */
};
#define EMU_NO_TAG      UINT32_MAX /* more bits than any STADD's */
#define EMU_REGION_PAGE 256u /* translations are kept in pages of so many STags */

/* The producer's side of a lane. */
struct emu_lane_tx {
    struct emu_lane       *lane;   /* NULL: not opened yet */
    struct emu_lane_entry *next;   /* where the next entry goes */
    uint32_t              entries; /* of ring B, a power of 2 */
    uint32_t              limit;   /* notices that may be in it: the size of the target's MRQ */
    uint64_t              wr_a, wr_b, wr_x; /* entries written, per ring; of them second ones */
    uint64_t              known_a, known_b, known_x; /* of them read, as last seen */
};

/* A lane of a session-mode VCQ, mapped here because we carry for that VCQ */
struct emu_carried_lane {
    uint32_t                index;
    struct emu_lane         *lane;
    struct emu_carried_lane *next;
};

/* A remote VCQ as seen from one local VCQ, whatever path it is reached by. */
struct emu_peer {
    uint64_t                id;    /* with the default path */
    _Atomic uint32_t        *gen_p;
    uint32_t                gen;
    uint32_t                vcq;   /* its index there */
    struct emu_peer_process *proc;
    struct emu_stag         *stags;
    struct emu_vcq_block    *block;
    struct emu_lane_tx      tx;    /* lane towards it: made on the first remote notice */
    uintptr_t               noticed; /* where the last put with such a notice went: see emu_fetch_next */
    struct emu_peer         *next; /* all peers of the VCQ */
    /* session mode (emu_session.c) */
    struct emu_session      *session; /* of that VCQ, mapped on first use */
    struct emu_carried_lane *carried; /* lanes of session-mode VCQs towards it */
    struct emu_carried_told *told;    /* who knows that we carry for it (emu_relay.c) */
    uint64_t                timed_local; /* timed mode: due time of the last local notice */
    uint32_t                timed_batch, timed_ops; /* ... so many operations in the VCQ's batch */
    struct emu_peer         *next_work;
    bool                    in_work;
    bool                    overflow_told; /* to its process (emu_overflow.c) */
    char                    *bounce; /* made on the first get of memory that is not mapped (emu_private.c) */
    struct emu_region       *regions[EMU_NUM_STAGS / EMU_REGION_PAGE]; /* by STag; never NULL */
};
#define EMU_PEER_HASH 256u

/* VCQ ID as the user gives it, path included -> peer */
struct emu_peer_alias {
    uint64_t              id;
    struct emu_peer       *peer;
    struct emu_peer_alias *next;
};

struct emu_rx_lane {
    struct emu_lane_entry *cur;    /* next entry to come */
    uint64_t              expect;  /* its sequence number */
    struct emu_lane       *lane;
    uint64_t              origin;  /* whose notices they are */
    uint64_t              rd_a, rd_b, rd_x;
    uint32_t              unpublished, index; /* index: in the process segment */
    uint8_t               served;  /* since the last sweep */
    uint8_t               marked;  /* by this sweep */
    uint8_t               stamped; /* the notice that was taken last */
};

struct emu_tcq_entry {
    void     *cbdata;
    int      code;
    uint32_t number; /* of its descriptor */
    uint64_t due; /* timed mode: not to be seen before */
};

struct emu_mrq_entry {
    struct utofu_mrq_notice notice;
    int                     code;
    uint64_t                due, posted; /* timed mode: not to be seen before; its call began */
};

/* Why a VCQ does not take the shortest way.  With any but LOCKED, operations go
 * through descriptors (emu_post.c). */
#define EMU_SPECIAL_LOCKED  1u  /* thread-safe */
#define EMU_SPECIAL_SESSION 2u  /* session mode */
#define EMU_SPECIAL_WIRE    4u  /* operations are carried out later (emu_wire.c) */
#define EMU_SPECIAL_TIMED   8u  /* at Tofu-D's speed (emu_timing.c) */
#define EMU_SPECIAL_INJECT  16u /* faults are injected (emu_inject.c) */
#define EMU_SPECIAL_STATS   32u /* operations are counted (emu_stats.c) */

struct emu_vcq {
    /* what every post looks at */
    utofu_vcq_hdl_t      hdl;
    uint32_t             special;  /* EMU_SPECIAL_*: 0 for the plain, fast VCQ */
    uint32_t             toq_left; /* free entries of the TOQ; other threads may look at it */
    uint64_t             last_id;  /* how the user named ... */
    struct emu_peer      *last;    /* ... the peer of the last operation; never NULL */
    struct emu_stag      *stags;
    uint64_t             id;
    uint32_t             toq_end;  /* number of the last descriptor + toq_left */
    uint32_t             tcq_head, tcq_tail;
    /* local notices */
    struct emu_mrq_entry *mrq;
    uint32_t             mrq_head, mrq_tail, mrq_size;

    /* lanes from remote VCQs */
    uint32_t             looked;   /* lanes looked at in vain since the last sweep */
    struct emu_vcq_block *block;
    struct emu_rx_lane   *lanes;
    uint32_t             num_lanes, cap_lanes, next_lane;
    uint32_t             num_hot;  /* those before are looked at by every poll */
    uint32_t             retry, steps; /* of what was announced: index + 1 of where to go on; lanes before it */
    uint32_t             drop_at;  /* where to go on looking for closed ones */
    uint64_t             epoch;    /* of block, when it was looked at last */
    uint32_t             *lane_pos; /* by index in the segment: place in lanes + 1 */
    uint32_t             unpublished; /* entries read since read_a/b were stored */
    struct emu_doorbell  *bell; /* how its owner wants to be woken; NULL: not */
    uint64_t             stamp; /* word of the last notice that was taken by its stamp */
    const char           *warm; /* where the data of the next notice may be */
    uint64_t             warm_stadd; /* of the last notice */
    uint32_t             empty_polls; /* since then */
    uint32_t             sent;   /* number of the last descriptor at the last notice: */
    bool                 stream; /* nothing was posted between the last two */
    bool                 bets;   /* on the next notice: see utofu_poll_mrq */
    bool                 took;    /* a notice, since the last time that this was asked (emu_lane_entry) */
    bool                 answers; /* the next put with a notice: the first after one that was bet on */

    struct emu_peer_alias *hash[EMU_PEER_HASH];
    struct emu_peer      *peers;
    struct emu_peer      *graveyard; /* forgotten while a session is carried on */
    bool                 carrying;
    bool                 lines_unordered; /* abi/tofu_vcq.h */
    bool                 rehome;          /* memory may be moved (emu_rehome.c) ... */
    uint32_t             rehome_stag;     /* ... as long as this is registered (abi/tofu_vcq.h) */

    struct emu_session   *session; /* session mode: our own */
    struct emu_session_own *session_own; /* ... and what we go by, as others can write there */
    struct emu_wire      *wire;
    struct emu_stats     *stats;
    uint64_t             timed_free; /* timed mode: when the CQ can start the next operation */
    uint32_t             timed_head; /* ... tcq_head at the last post */
    uint32_t             timed_batch, timed_most; /* ... operations posted until all are complete; the most to one peer */
    uint32_t             mrq_entries;
    uint32_t             uncounted;     /* notices taken since the MRQ was counted ... */
    uint32_t             count_after;   /* ... which happens after so many */
    uint32_t             counted_polls; /* since the MRQ was counted */
    uint64_t             counted_at;    /* us */
    uint64_t             count_took;    /* us of CPU time */
    size_t               counted;       /* notices that there were */

    /* lanes that nobody has any more (emu_rx.c) */
    uint32_t             reclaim_at;  /* where to go on looking for them, by index in the segment */
    uint32_t             reclaim_for; /* on behalf of so many of shm->lanes_wanted */
    uint32_t             lanes_given; /* as many of them were answered */

    /* STags: free list and lookup by (addr, size, flags) */
    uint32_t             *stag_next; /* free list / hash chain */
    uint32_t             stag_free, stag_fresh;
    uint32_t             *stag_hash;
    uint8_t              stadd_top; /* EMU_STADD_TOP */

    uint16_t             tni, cq, cmp;
    uint32_t             index, gen;
    uint32_t             slot, slot_gen; /* of this process when it was created */
    pthread_mutex_t      lock;
    struct emu_idle      idle;

    /* TCQ entries that are to be returned, in post order */
    struct emu_tcq_entry tcq[EMU_TOQ_ENTRIES];
    struct emu_stag      *stags_shown; /* what peers see of `stags`, and can write */
};

/* What the environment asks for (emu_env.c), read when the process joins its job. */
enum emu_rehome {
    EMU_REHOME_OFF,
    EMU_REHOME_ALONE, /* in processes of one thread */
    EMU_REHOME_AUTO
};

struct emu_env {
    uint32_t mrq_entries, mrq_entries_session; /* UTOFU_NUM_MRQ_ENTRIES(_SESSION) */
    uint32_t lane_entries;                     /* the larger of them */
    int      exclusive_cqs, session_cqs;       /* UTOFU_NUM_*_CQS; -1: not set */
    bool     mlock_memory;                     /* UTOFU_SWAP_PROTECT */
    bool     strict;                           /* UTOFU_EMU_STRICT */
    bool     lines_unordered;                  /* UTOFU_EMU_LINES */
    bool     bounds_page;                      /* UTOFU_EMU_BOUNDS */
    bool     first_cq_lowest;                  /* UTOFU_EMU_FIRST_CQ */
    enum emu_rehome rehome;                    /* UTOFU_EMU_REHOME */
    uint64_t seed;                             /* UTOFU_EMU_SEED */
    uint32_t special;                          /* EMU_SPECIAL_* that every VCQ gets */
};
void emu_env_read(struct emu_env *env);

struct emu_global {
    pthread_mutex_t         lock;
    _Atomic bool            ready;
    pid_t                   pid;
    char                    job[72];
    uint32_t                slot, gen;
    uint32_t                node;
    uint32_t                node_rank, node_size; /* of the processes that a launcher put there; 0, 0: none did */
    uint8_t                 coords[6];
    struct emu_env          env;
    int                     control_fd, seg_fd, listen_fd, wake_fd, self_mem_fd;
    uint64_t                listen_dev, listen_ino; /* emu_fds_ours */
    struct emu_control      *control;
    struct emu_process      *shm;
    struct emu_peer_process *procs;
    struct emu_peer_process *self;
    /* Who has a handle looks at `hdl` first: what was behind a stale one may be freed at any time. */
    struct {
        _Atomic uint64_t        hdl; /* 0: none */
        struct emu_vcq *_Atomic vcq;
    } vcqs[EMU_MAX_VCQS];
    uint32_t                vcq_serial[EMU_MAX_VCQS];
    uint8_t                 first_cq[EMU_NUM_TNIS]; /* of those that VCQs share, the one that was taken first */
    pthread_t               service;
    _Atomic bool            service_running;
    pthread_mutex_t         mem_lock; /* registrations against the service thread */
    struct emu_seg          seg[EMU_MAX_SEGS]; /* ours; what peers read of them, they can write */
    uint32_t                seg_high;          /* lock */
};
extern struct emu_global emu_g;

/* emu_lock.c: emu_g.lock or emu_g.mem_lock, for a thread of the program; the one that was taken
 * last is given back first */
void emu_lock(pthread_mutex_t *lock);
void emu_unlock(pthread_mutex_t *lock);

/* emu_thread.c: a thread of ours, with the caller's mask of signals; returns, as pthread_create does, once `run`
 * is being called. */
int emu_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
long emu_threads_running(void); /* of those */
void emu_threads_forget(void);  /* in a child: none */

/* emu_message.c: one line on stderr: "utofu: ..." */
void emu_message(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Chapter 7: message, then the process ends. */
void emu_async_error(const char *what, const struct emu_vcq *vcq) __attribute__((noreturn));
bool emu_ending(void); /* by such an error */

/* emu_job.c: join the job on first use.  Returns a code of utofu.h. */
int emu_join(void);
static inline int emu_ready(void)
{
    return emu_likely(atomic_load_explicit(&emu_g.ready, memory_order_acquire)) ? UTOFU_SUCCESS : emu_join();
}
/* emu_peer.c */
extern struct emu_peer emu_no_peer;
struct emu_peer_process *emu_peer_process_get(uint32_t slot); /* lock held */
bool emu_peer_process_alive(const struct emu_peer_process *proc); /* reads /proc */
void emu_peer_process_lost(struct emu_peer_process *proc);
/* Give back what is kept of dead processes that no peer refers to (lock held).  The service
 * thread only, which has them at hand while it polls. */
void emu_peer_processes_clean(void);
void emu_peers_release(struct emu_vcq *vcq); /* lock held */
/* The peer of an ID; creates it.  MRQ_PEER: no such VCQ; INVALID_VCQ_ID. */
int emu_peer_find(struct emu_vcq *vcq, uint64_t id, struct emu_peer **peer_p);
/* Frees peers that were forgotten while a session was carried on. */
void emu_peers_bury(struct emu_vcq *vcq);

/* emu_peer_mem.c */
/* Stands for all pages of translations that a peer has not needed yet */
extern struct emu_region emu_no_regions[EMU_REGION_PAGE];
/* Translate a STag; MRQ_RMT_STADD: not registered. */
int emu_region_fill(struct emu_peer *peer, uint32_t stag, struct emu_region **region_p);
/* The file of a region was cut off under an operation: no more direct access. */
int emu_region_cut_off(struct emu_region *region);
/* Its memory file, for what is not mapped; below 0: out of reach. */
int emu_peer_mem_fd(struct emu_peer_process *proc);
/* All that is mapped of it, what another mapping took the place of, too (lock held) */
void emu_peer_unmap(struct emu_peer_process *proc);

/* emu_lane.c: lane `index` of a process segment; lane_entries and session_entries
 * are those of that segment. */
struct emu_lane *emu_lane_map(int seg_fd, uint32_t index, uint32_t lane_entries, uint32_t session_entries);
/* The head of a lane as it was just now, without mapping it; false: it can't be read */
bool emu_lane_peek(int seg_fd, uint32_t index, uint32_t lane_entries, uint32_t session_entries, struct emu_lane *head);
/* Claim a lane towards the peer for the VCQ that owner (EMU_LANE_OWNER) names, which
 * has the ID origin, and announce it. */
int emu_lane_open(struct emu_peer *peer, uint64_t owner, uint64_t origin, struct emu_lane_tx *tx, uint32_t *index_p);
/* Where the entry after the one just written goes, when ring A looks full. */
EMU_COLD struct emu_lane_entry *emu_lane_next(struct emu_lane_tx *tx);
/* Tell the lane's reader of it: a new one, or one that it does not look at. */
void emu_lane_announce(struct emu_vcq_block *target, struct emu_lane *lane, uint32_t index);
/* Something was put into a lane that its reader had stopped looking at. */
EMU_COLD void emu_lane_heat(struct emu_vcq_block *target, struct emu_lane *lane);
/* The producer is done with the lane: its reader drops it when it has read all. */
void emu_lane_close(struct emu_lane *lane, uint32_t lane_entries);
/* Neither side uses it any more: somebody else may claim it. */
void emu_lane_give_back(struct emu_lane *lane, uint32_t lane_entries);

/* What must not be seen before what: nothing; the last word of all; the last word of
 * each cache line (which is that of all, too). */
enum emu_order { EMU_ORDER_NONE, EMU_ORDER_LAST, EMU_ORDER_LINES };

/* emu_private.c: copy n bytes to / from an offset of a region, not all of which is mapped
 * here, so that they become visible in that order; strong: the last cache line is
 * to be read last.  SUCCESS or an MRQ error. */
int emu_private_write(struct emu_peer *peer, struct emu_region *r, uint64_t off, const char *src, size_t n,
                      enum emu_order order);
int emu_private_read(struct emu_peer *peer, struct emu_region *r, uint64_t off, char *dst, size_t n, bool strong,
                     enum emu_order order);

/* Of a put with these flags: each line is to be complete when its last word has changed
 * (2.2.10), whatever the flags, unless the VCQ's owner needs less. */
EMU_INLINE enum emu_order emu_put_order(const struct emu_vcq *vcq, unsigned long flags)
{
    if (emu_likely(!vcq->lines_unordered)) {
        return EMU_ORDER_LINES;
    }
    return (flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) ? EMU_ORDER_LAST : EMU_ORDER_NONE;
}

/* What a get brings */
EMU_INLINE enum emu_order emu_get_order(const struct emu_vcq *vcq)
{
    return vcq->lines_unordered ? EMU_ORDER_NONE : EMU_ORDER_LINES;
}

/* emu_local.c: is all of that memory of ours mapped still? */
bool emu_local_is_there(const void *addr, size_t n);
/* What a copy by the kernel failed with (an MRQ error), or that code if it was our side, which was read or written */
int emu_local_blame(int code, int local_code, const void *addr, size_t n, bool written);
/* Strict mode: is what is mapped here of a peer there, that is to say when it is this process?
 * (Of others it is a file, and emu_fault.c looks after that.) */
bool emu_target_is_there(const struct emu_peer *peer, const struct emu_region *r, uint64_t off, size_t n);

/* emu_fence.c: a fence in all threads of the job's processes */
void emu_fence_register(void); /* before emu_fence_join; beside threads it takes ms, and seconds on busy CPUs */
void emu_fence_join(void); /* the control segment is there */
bool emu_fence_reaches_all(void);
bool emu_fence_all(void);  /* false: there are some that it does not reach */

/* emu_doorbell.c: waking a process that sleeps (abi/tofu_doorbell.h) */
void emu_doorbell_open(void); /* the process joins its job */
struct emu_vma;
/* Memory was registered under the STag: is it a doorbell?  fd: of its file. */
void emu_doorbell_bind(struct emu_vcq *vcq, uint32_t stag, const struct emu_vma *vma, int fd, size_t size);
void emu_doorbell_unbind(struct emu_vcq *vcq, uint32_t stag);
/* A poll of the MRQ found nothing, and there is a doorbell (VCQ locked). */
void emu_doorbell_polled(struct emu_vcq *vcq);
/* The block's owner is armed: wake it. */
EMU_COLD void emu_doorbell_ring(struct emu_vcq_block *block);
/* After anything was put where the VCQ's owner finds it: a notice in a lane, an entry
 * in a queue.  One load of a line that is read for every operation anyway.  What
 * orders it after the store of the notice is done by the one who arms. */
EMU_INLINE void emu_doorbell_check(struct emu_vcq_block *block)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (emu_unlikely(atomic_load_explicit(&block->armed, memory_order_relaxed) != 0)) {
        emu_doorbell_ring(block);
    }
}

/* emu_mem.c */
int emu_mem_init(struct emu_vcq *vcq);
void emu_mem_fini(struct emu_vcq *vcq);

/* emu_queue.c */
int emu_queue_init(struct emu_vcq *vcq);
void emu_queue_fini(struct emu_vcq *vcq);
/* Nothing is in the queues, and nothing is to appear there without a ring (locked). */
bool emu_queue_quiet(struct emu_vcq *vcq);
/* Make room for one more local notice. */
EMU_COLD void emu_mrq_grow(struct emu_vcq *vcq);

/* The VCQ of a handle, or NULL.  A handle is (serial << 16 | index + 1), so that
 * a stale or random one is told from a live one. */
EMU_INLINE struct emu_vcq *emu_vcq_of(utofu_vcq_hdl_t hdl)
{
    uint32_t index = (uint32_t)(hdl & 0xffffu) - 1u;

    if (emu_unlikely((index >= EMU_MAX_VCQS) ||
                     (atomic_load_explicit(&emu_g.vcqs[index].hdl, memory_order_acquire) != hdl))) {
        return NULL;
    }
    return atomic_load_explicit(&emu_g.vcqs[index].vcq, memory_order_relaxed);
}

void emu_wire_yield(struct emu_vcq *vcq); /* emu_wire.c */

/* emu_processor.c: is it better to wait a little between looks at one word; that one is complete before
 * the next; better still, to bet that it is there (tofu_bet.h)? */
extern bool emu_looks_apart, emu_looks_complete, emu_looks_bet;

EMU_INLINE void emu_vcq_lock(struct emu_vcq *vcq)
{
    if (vcq->special & EMU_SPECIAL_LOCKED) {
        if (emu_unlikely(vcq->special & EMU_SPECIAL_WIRE)) {
            emu_wire_yield(vcq);
        }
        pthread_mutex_lock(&vcq->lock);
    }
}

EMU_INLINE void emu_toq_set(struct emu_vcq *vcq, uint32_t left)
{
    __atomic_store_n(&vcq->toq_left, left, __ATOMIC_RELAXED);
}

EMU_INLINE void emu_toq_take(struct emu_vcq *vcq)
{
    emu_toq_set(vcq, vcq->toq_left - 1);
}

/* Descriptors are numbered as they are posted: the last one */
EMU_INLINE uint32_t emu_toq_number(const struct emu_vcq *vcq)
{
    return vcq->toq_end - vcq->toq_left;
}

/* The TCQ was read as far as the entry of that descriptor: those without a notice that come after it
 * keep theirs until polling gets there (3.7). */
EMU_INLINE void emu_toq_read(struct emu_vcq *vcq, uint32_t number)
{
    uint32_t last = emu_toq_number(vcq), left = EMU_TOQ_ENTRIES - (last - number);

    emu_toq_set(vcq, left);
    vcq->toq_end = last + left;
}

EMU_INLINE void emu_vcq_unlock(struct emu_vcq *vcq)
{
    if (vcq->special & EMU_SPECIAL_LOCKED) {
        pthread_mutex_unlock(&vcq->lock);
    }
}

/* emu_vbg.c: what one utofu_alloc_vbg returned, and what was started with it.  Its
 * owner's only: no other process sees it. */
struct emu_vbg_set {
    uint64_t        id[1 + EMU_RELAY_GATES];
    uint32_t        num_ids; /* 0: none */
    uint32_t        flags;   /* UTOFU_VBG_FLAG_* */
    uint32_t        slot, gen; /* of this process when it was allocated */
    uint8_t         kind, op, num; /* of the barrier that was started, kind 0: none */
    pthread_mutex_t lock;
    struct emu_idle idle;
};
struct emu_vbg_set *emu_vbg_set_of(uint64_t id); /* by its start gate; NULL: none of this process */
uint32_t emu_vbg_id_index(uint64_t id);          /* gate on its node, or EMU_NODE_GATES */
/* Free the gates that a process slot has on a node (control locked). */
void emu_gates_reclaim(uint32_t node, uint32_t slot);
bool emu_gates_used(const struct emu_node *node);

/* emu_barrier.c: a gate without and with sources and targets, each by signal and by packet: VBG IDs, and
 * the nodes where they are (EMU_MAX_NODES: none) */
struct emu_gate_ends {
    uint64_t source[EMU_GATE_WAYS], target[EMU_GATE_WAYS];
    uint32_t source_node[EMU_GATE_WAYS], target_node[EMU_GATE_WAYS];
};
void emu_gate_clear(uint32_t node, uint32_t index);
void emu_gate_set(uint32_t node, uint32_t index, const struct emu_gate_ends *ends);

#pragma GCC visibility pop

#endif /* EMU_INTERNAL_H */
