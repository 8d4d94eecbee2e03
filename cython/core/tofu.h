/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu.h - the transport core: UCT's md, iface and ep over uTofu.
 *
 * Plain C, no UCX, no Python.  Verbs, statuses and structures that a UCT user
 * fills (iov, completion, pending request) have UCT's names, numeric values and
 * layouts, so that the UCX plugin passes them through without conversion.
 *
 * Thread rules: a tofu_md_t and its memory handles may be used from several
 * threads at once.  A tofu_iface_t and its endpoints belong to one thread at a
 * time.  Two ifaces share no lock on their data paths.
 *
 * Blocking rules: nothing here waits for a peer.  Functions that may enter the
 * kernel say so.  User callbacks (completions, AM handlers, pending requests,
 * error handlers) run only inside tofu_iface_progress, the *_purge functions
 * and tofu_ep_destroy; they may post operations and may call progress again.
 */
#ifndef TOFU_H
#define TOFU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tofu_backend;

typedef struct tofu_md    tofu_md_t;
typedef struct tofu_mem   tofu_mem_t;   /* memory handle */
typedef struct tofu_rkey  tofu_rkey_t;
typedef struct tofu_iface tofu_iface_t;
typedef struct tofu_ep    tofu_ep_t;

/* Values are those of ucs_status_t. */
typedef enum {
    TOFU_OK                    = 0,
    TOFU_INPROGRESS            = 1,
    TOFU_ERR_NO_MESSAGE        = -1,
    TOFU_ERR_NO_RESOURCE       = -2,  /* try again later, or use pending_add */
    TOFU_ERR_IO_ERROR          = -3,
    TOFU_ERR_NO_MEMORY         = -4,
    TOFU_ERR_INVALID_PARAM     = -5,
    TOFU_ERR_UNREACHABLE       = -6,
    TOFU_ERR_INVALID_ADDR      = -7,
    TOFU_ERR_NO_ELEM           = -12,
    TOFU_ERR_NO_DEVICE         = -14,
    TOFU_ERR_BUSY              = -15,
    TOFU_ERR_CANCELED          = -16,
    TOFU_ERR_ALREADY_EXISTS    = -18,
    TOFU_ERR_OUT_OF_RANGE      = -19,
    TOFU_ERR_TIMED_OUT         = -20,
    TOFU_ERR_EXCEEDS_LIMIT     = -21,
    TOFU_ERR_UNSUPPORTED       = -22,
    TOFU_ERR_ENDPOINT_TIMEOUT  = -80
} tofu_status_t;

/* Text of a status, for messages. */
const char *tofu_status_string(tofu_status_t status);

/* The one table from codes of utofu.h to statuses. */
tofu_status_t tofu_status_from_code(int utofu_code);

/* ------------------------------------------------------------- user types */

/* Same layout as uct_completion_t.  func is called once, when count reaches
 * zero; status holds the first failure. */
typedef struct tofu_completion {
    void   (*func)(struct tofu_completion *self);
    int    count;
    int8_t status;
} tofu_completion_t;

/* Same layout as uct_iov_t; the total is count * length, stride is unused when
 * count is 1.  memh may be NULL only where a function says so. */
typedef struct tofu_iov {
    void       *buffer;
    size_t     length;
    tofu_mem_t *memh;
    size_t     stride;
    unsigned   count;
} tofu_iov_t;

/* Same layout as uct_pending_req_t.  func tries to send and returns TOFU_OK
 * when it is done (the request leaves the queue), TOFU_INPROGRESS when it sent
 * a part, TOFU_ERR_NO_RESOURCE when it must be called again. */
typedef struct tofu_pending_req {
    int8_t (*func)(struct tofu_pending_req *self);
    char   priv[40]; /* the core's, while queued */
} tofu_pending_req_t;

/* Writes at most the advertised maximum to dest, returns how many bytes. */
typedef size_t (*tofu_pack_cb_t)(void *dest, void *arg);
/* Receives length bytes of a get_bcopy. */
typedef void (*tofu_unpack_cb_t)(void *arg, const void *data, size_t length);
/* Of tofu_am_cb_t; the value of UCT_CB_PARAM_FLAG_DESC. */
enum { TOFU_CB_DESC = 1 };
/* Receives one AM: length bytes at data (for am_short the 8-byte header comes
 * first), valid until return.  Returns TOFU_OK.  When flags has TOFU_CB_DESC it
 * may return TOFU_INPROGRESS: then the message stays where it is, until
 * tofu_iface_release_desc; the config.rx_headroom bytes in front of data are the
 * user's.  The flag is offered only if config.rx_desc is set, never for messages
 * in small slots, and not while as many are kept as the senders can spare. */
typedef int8_t (*tofu_am_cb_t)(void *arg, void *data, size_t length,
                               unsigned flags);
/* An endpoint failed; called once per endpoint, from progress.  After it, every
 * operation on the endpoint returns `status`. */
typedef void (*tofu_err_cb_t)(void *arg, tofu_ep_t *ep, tofu_status_t status);
/* level: 0 error, 1 warning, 2 info, 3 debug. */
typedef void (*tofu_log_cb_t)(int level, const char *message);

/* Where log lines go; NULL: errors and warnings to stderr.  Process-wide. */
void tofu_set_log(tofu_log_cb_t cb);

/* ------------------------------------------------------------------- md */

#define TOFU_TNI_AUTO (~0u)
#define TOFU_VCQS_ALL (~0u)

typedef struct tofu_md_config {
    unsigned tni;          /* index into the usable TNIs of the one that is used
                              first; TOFU_TNI_AUTO: by the process's rank on its
                              node, where the environment tells it */
    unsigned tni_mask;     /* bits of the indices that may be used; 0: all */
    unsigned max_cqs;      /* that this process may take of the node's; 0: an equal
                              share, where the environment tells how many
                              processes there are, else all */
    unsigned max_vcqs;     /* that ifaces may have of their own; further ifaces
                              share VCQs.  TOFU_VCQS_ALL: while there are any */
    size_t   stripe_thresh; /* bytes from which on a put or get may use another TNI
                              than that of its iface, or several */
    size_t   arena_chunk;  /* bytes of address space taken at a time for
                              tofu_mem_alloc; 0: 32 MiB, and each time twice as
                              much as before, up to 16 GiB */
} tofu_md_config_t;

typedef struct tofu_md_attr {
    const struct tofu_backend *backend;
    size_t   rkey_packed_size;    /* bytes; at most 255 */
    size_t   max_alloc, max_reg;  /* bytes */
    double   reg_overhead;        /* seconds per registration */
    double   reg_growth;          /* seconds per byte */
    size_t   num_registrations;   /* live, for statistics and tests */
} tofu_md_attr_t;

void tofu_md_config_default(tofu_md_config_t *config);

/* Open a memory domain on a loaded backend; enters the kernel.  Creates the
 * VCQ that remote peers address to reach this md's memory. */
tofu_status_t tofu_md_open(const struct tofu_backend *backend,
                           const tofu_md_config_t *config, tofu_md_t **md_p);
/* Close; every iface on it must be closed.  Memory still registered is
 * released with a warning. */
void tofu_md_close(tofu_md_t *md);
void tofu_md_query(tofu_md_t *md, tofu_md_attr_t *attr);

enum {
    TOFU_MEM_READ_ONLY = 1, /* remote and local peers only read it */
    TOFU_MEM_EXCLUSIVE = 2, /* tofu_mem_reg: shared with no other handle, so that
                               its keys can be invalidated at any time */
    TOFU_MEM_AS_IT_IS  = 8, /* tofu_mem_reg, with EXCLUSIVE: READ_ONLY where the pages
                               can't be written, for callers who don't know */
    TOFU_MEM_MOVABLE   = 4  /* tofu_mem_reg: peers reach it often, and for long.  The
                               emulator may spend some 0.5 ms/MiB here, and as much
                               at dereg, to move the pages to where peers can map
                               them (docs/emulator.md, Private memory) */
};

/* Allocate *length_p bytes (rounded up, updated) of zeroed, registered memory
 * that peers reach fastest; page-aligned.  NO_MEMORY when there is none. */
tofu_status_t tofu_mem_alloc(tofu_md_t *md, size_t *length_p, unsigned flags,
                             void **address_p, tofu_mem_t **memh_p);
/* What is in the memory is lost at once, also where another handle covers it.
 * INVALID_PARAM: the handle is not of tofu_mem_alloc. */
tofu_status_t tofu_mem_free(tofu_mem_t *memh);

/* Register any memory of the process.  A range that lies inside a live
 * registration with the same flags shares it (counted); otherwise enters the
 * kernel.  length 0: INVALID_PARAM. */
tofu_status_t tofu_mem_reg(tofu_md_t *md, void *address, size_t length,
                           unsigned flags, tofu_mem_t **memh_p);
tofu_status_t tofu_mem_dereg(tofu_mem_t *memh);
/*
 * Deregister, and make the keys that were given out for it worthless: operations
 * that peers post with them from now on fail at their side and reach no memory of
 * this process, also when it registers other memory.  Takes the place of
 * tofu_mem_dereg (or tofu_mem_free); enters the kernel; may be called by any
 * thread.  BUSY: other handles share the registration, nothing was done.
 * docs/uct.md says what is in flight at that moment, and for how long a key that
 * is dead stays dead.
 */
tofu_status_t tofu_mem_invalidate(tofu_mem_t *memh);

/* Start and length of what the handle covers, at least what was asked for. */
void tofu_mem_query(const tofu_mem_t *memh, void **address_p,
                    size_t *length_p);

/* Write rkey_packed_size bytes with which a peer reaches this memory. */
void tofu_mkey_pack(const tofu_mem_t *memh, void *buffer);
/* Read such bytes.  INVALID_PARAM when they are not ours, of another version
 * or damaged (a checksum covers them); size is what the caller knows to be
 * readable, or 0 when the caller can't tell. */
tofu_status_t tofu_rkey_unpack(const void *buffer, size_t size,
                               tofu_rkey_t **rkey_p);
void tofu_rkey_release(tofu_rkey_t *rkey);
/* Pointer to the memory at remote_addr when it is memory of this very process,
 * registered now with an open md; valid as long as that registration.
 * INVALID_ADDR: the key does not cover the address; UNREACHABLE: memory of
 * another process, or not registered any more.  Any thread. */
tofu_status_t tofu_rkey_ptr(const tofu_rkey_t *rkey, uint64_t remote_addr,
                            void **address_p);

/* ---------------------------------------------------------------- iface */

#define TOFU_AM_ID_MAX       32 /* AM ids are 0 .. 31, as in UCT */
#define TOFU_AM_MAX_SEG_SIZE (1u << 20)

typedef struct tofu_iface_config {
    size_t        am_seg_size;    /* largest am_bcopy / am_zcopy total, bytes; 64 to
                                     TOFU_AM_MAX_SEG_SIZE */
    unsigned      rx_slots;       /* large receive slots of the iface */
    unsigned      rx_short_slots; /* small receive slots */
    unsigned      tx_bounce;      /* bounce buffers for bcopy */
    unsigned      tx_notified;    /* operations with a local notice in flight */
    unsigned      am_polled;      /* senders, at most 8, that may send small messages
                                     without a notice, for which progress looks at
                                     memory (default 4; 0: none) */
    int           am_in_place;    /* am_bcopy and am_zcopy of 256 bytes and more to a process
                                     of this host are packed into the receive slot itself,
                                     which is mapped for it, and put from there to there;
                                     am_short that goes without a notice is written there,
                                     and its tail put.  Both sides must want it.  1: yes,
                                     0: no, -1: where the library copies nothing then
                                     (default) */
    int           am_ahead;       /* small messages are answered, but not at once: there is a
                                     layer between handlers and who answers, as in UCP.
                                     The line of the answer is taken when a handler has
                                     returned.  1: yes, 0: no (default), -1: on processors
                                     where that is known to be faster */
    size_t        rndv_split;     /* bytes of one uTofu operation; 0: maximum */
    int           strong_order;   /* STRONG_ORDER on zcopy without a fence too
                                     (default 0); all else has it always */
    int           early_complete; /* look once, after posting put_zcopy, get_zcopy
                                     or a fetching atomic, whether it is done:
                                     then it returns TOFU_OK, as an am_zcopy does
                                     whose data was copied (default 1).  A get of
                                     4096 bytes and more is not looked at: UCP's
                                     users rely on it to complete in progress */
    unsigned      wakeup_timer_us; /* how long an armed event descriptor sleeps
                                     when nobody would wake it: 1 to 100000
                                     (default 1000) */
    void          *rx_desc;       /* not NULL: AM handlers may keep messages; it is
                                     written in the 8 bytes in front of the
                                     headroom of each that is offered */
    size_t        rx_headroom;    /* bytes in front of a message that is offered */
    size_t        am_alignment;   /* a power of two; 0 is 1.  Messages are offered
                                     only if data + am_align_offset is so */
    size_t        am_align_offset;
    tofu_err_cb_t err_cb;
    void          *err_arg;
} tofu_iface_config_t;

/* What the iface can do; the plugin advertises exactly this. */
typedef struct tofu_iface_attr {
    size_t   max_put_short, max_put_bcopy, max_put_zcopy, put_max_iov;
    size_t   max_get_bcopy, max_get_zcopy, get_max_iov;
    size_t   max_am_short;        /* 8-byte header included */
    size_t   max_am_bcopy, max_am_zcopy, max_am_hdr, am_max_iov;
    size_t   iface_addr_len, device_addr_len;
    double   latency;             /* seconds, one way */
    double   latency_per_ep;      /* seconds */
    double   bandwidth;           /* bytes per second of one iface */
    double   overhead;            /* seconds of CPU per post */
    double   recv_overhead;       /* seconds of CPU per arrival */
    double   rma_overhead;        /* put and get of memory that the program */
    double   rma_bandwidth;       /* brought, neither alloc nor a memfd of it */
    double   put_bcopy_overhead;  /* the same, of a put_bcopy */
    double   get_bcopy_overhead;  /* and of a get_bcopy */
    double   am_bandwidth;        /* active messages larger than short ones */
    double   am_zcopy_overhead;   /* seconds of CPU per am_zcopy */
    double   post_overhead;       /* seconds of CPU after the post: of messages */
    double   rma_post_overhead;   /* ... and of puts and gets of all kinds */
    unsigned mrq_entries;         /* of the VCQ, and the bound that ... */
    unsigned max_notices;         /* ... can be in flight towards it */
} tofu_iface_attr_t;

typedef struct tofu_iface_stats {
    uint64_t am_rx, am_tx;              /* messages */
    uint64_t credit_rx, credit_tx;      /* credit and request operations */
    uint64_t notices, tcq_entries;      /* read from the queues */
    uint64_t posts;                     /* uTofu operations */
    uint64_t dropped;                   /* bad arrivals, each logged once */
    uint64_t mrq_peak;                  /* most notices read in one progress */
    uint64_t vcqs;                      /* that it posts from now: itself and lanes */
    uint64_t am_kept;                   /* messages that handlers kept, in all */
    uint64_t am_held;                   /* of them not yet released */
    uint64_t polls;                     /* calls of progress */
    uint64_t am_polled;                 /* of am_rx, those without a notice */
    uint64_t am_in_place;               /* of am_tx, those packed into the slot itself */
} tofu_iface_stats_t;

void tofu_iface_config_default(tofu_iface_config_t *config);

/* Open; enters the kernel.  When no VCQ is left on the node the iface shares one with
 * others of its md; NO_DEVICE when there is no place on any.  Any thread. */
tofu_status_t tofu_iface_open(tofu_md_t *md, const tofu_iface_config_t *config,
                              tofu_iface_t **iface_p);
/* Close; endpoints must be destroyed before.  Operations still in flight are
 * completed with CANCELED. */
void tofu_iface_close(tofu_iface_t *iface);
void tofu_iface_query(tofu_iface_t *iface, tofu_iface_attr_t *attr);
void tofu_iface_get_stats(tofu_iface_t *iface, tofu_iface_stats_t *stats);

/* Addresses: device_addr_len / iface_addr_len bytes. */
void tofu_iface_get_device_address(tofu_iface_t *iface, void *buffer);
void tofu_iface_get_address(tofu_iface_t *iface, void *buffer);

/* 1 when an endpoint can be made to this address; otherwise 0 and the reason in
 * words.  iface_addr may be NULL.  A length of 0 means "not told"; otherwise a
 * wrong length, magic, version or network is refused. */
int tofu_iface_is_reachable(tofu_iface_t *iface, const void *device_addr,
                            size_t device_addr_len, const void *iface_addr,
                            size_t iface_addr_len, char *reason,
                            size_t reason_size);

/* cb NULL removes it: messages with that id are then dropped, counted and
 * logged once. */
tofu_status_t tofu_iface_set_am_handler(tofu_iface_t *iface, uint8_t id,
                                        tofu_am_cb_t cb, void *arg);

/* Give back a message that a handler kept; desc is its data - rx_headroom.  From
 * the thread of the iface, also inside a handler.  Does not block.  INVALID_PARAM
 * when it is not a message that is kept.  Messages that are still kept when the
 * iface is closed go with it, with a warning. */
tofu_status_t tofu_iface_release_desc(tofu_iface_t *iface, void *desc);

/* Drive everything: completions, arrivals, credits, pending requests.  Returns
 * how many events were handled; 0 when there was nothing to do. */
unsigned tofu_iface_progress(tofu_iface_t *iface);

/*
 * Sleeping.  The descriptor becomes readable when there may be something for
 * progress to do, after it was armed; it is the iface's and is closed with it.
 * Made by the first call, which enters the kernel; IO_ERROR or NO_MEMORY when
 * the system has no descriptor or memory left.
 */
tofu_status_t tofu_iface_event_fd(tofu_iface_t *iface, int *fd_p);
/* To be called before each sleep; enters the kernel.  OK: whatever comes or
 * completes from now on makes the descriptor readable.  BUSY: there is work, call
 * progress first.  IO_ERROR: the VCQ or a descriptor does not work any more.
 * events: UCT's bits (UCT_EVENT_*); all kinds wake.  Wakes without a reason are
 * normal, ten a second at least: the core's own duties go on by them. */
tofu_status_t tofu_iface_event_arm(tofu_iface_t *iface, unsigned events);

enum {
    TOFU_FLUSH_CANCEL = 1, /* ep only: drop what has not been sent; the ep can
                              send no more (CANCELED), err_cb is not called */
    TOFU_FLUSH_QUIET  = 2  /* iface only: it does not tell failures, which eps and
                              operations have told */
};

/* TOFU_OK: everything posted before is complete at the remote side (or failed);
 * TOFU_INPROGRESS: comp (may be NULL) will be called when it is;
 * NO_RESOURCE: call again later.  A failure of an operation since the last
 * flush is its result, but with TOFU_FLUSH_QUIET. */
tofu_status_t tofu_iface_flush(tofu_iface_t *iface, unsigned flags,
                               tofu_completion_t *comp);
/* Operations posted later take effect after those posted earlier, per ep. */
tofu_status_t tofu_iface_fence(tofu_iface_t *iface);

/* ------------------------------------------------------------------- ep */

/* Connect to an iface address; no communication.  INVALID_PARAM / UNREACHABLE
 * for bytes that are not an address of ours. */
tofu_status_t tofu_ep_create(tofu_iface_t *iface, const void *iface_addr,
                             size_t iface_addr_len, tofu_ep_t **ep_p);
/* Operations in flight complete into the iface; pending requests must have been
 * purged.  A flush that is waited for ends with CANCELED, here and now: its
 * completion is called before the return. */
void tofu_ep_destroy(tofu_ep_t *ep);
/* As tofu_ep_destroy, and before it returns every completion that operations and
 * flushes of the ep still owe has been told CANCELED: none comes afterwards.  What
 * is on the wire takes place; if buffers of users have a part in it, it is waited for
 * (1 s at most, then a warning), so that they are free.  May be called inside a
 * completion; calls no other one. */
void tofu_ep_abandon(tofu_ep_t *ep);
/* 1 when the ep leads to that iface address. */
int tofu_ep_is_connected(const tofu_ep_t *ep, const void *iface_addr,
                         size_t iface_addr_len);
tofu_iface_t *tofu_ep_iface(const tofu_ep_t *ep);
/* 1 while something that was accepted, with OK or with INPROGRESS, has not been
 * posted whole: it goes from progress.  A first message that was accepted before
 * the peer lent slots is such; a flush waits for it. */
int tofu_ep_has_unsent(const tofu_ep_t *ep);

/* TOFU_OK, or what the ep failed by: every later operation of it fails. */
tofu_status_t tofu_ep_status(const tofu_ep_t *ep);

/* One pointer per ep for the layer above. */
void tofu_ep_set_user(tofu_ep_t *ep, void *user);
void *tofu_ep_user(const tofu_ep_t *ep);

/*
 * Data operations.  Common results: TOFU_OK - done locally, buffers are free;
 * TOFU_INPROGRESS - comp is called later; NO_RESOURCE - nothing happened, try
 * again after progress; OUT_OF_RANGE - the remote range is not inside the rkey;
 * INVALID_PARAM - length or alignment; the endpoint's failure status after it
 * failed.  remote_addr is the address in the target process.  bcopy functions
 * return the number of bytes packed, or a negative status.
 */
tofu_status_t tofu_ep_put_short(tofu_ep_t *ep, const void *buffer,
                                unsigned length, uint64_t remote_addr,
                                const tofu_rkey_t *rkey);
intptr_t tofu_ep_put_bcopy(tofu_ep_t *ep, tofu_pack_cb_t pack, void *arg,
                           uint64_t remote_addr, const tofu_rkey_t *rkey);
tofu_status_t tofu_ep_put_zcopy(tofu_ep_t *ep, const tofu_iov_t *iov,
                                size_t iovcnt, uint64_t remote_addr,
                                const tofu_rkey_t *rkey,
                                tofu_completion_t *comp);
tofu_status_t tofu_ep_get_bcopy(tofu_ep_t *ep, tofu_unpack_cb_t unpack,
                                void *arg, size_t length, uint64_t remote_addr,
                                const tofu_rkey_t *rkey,
                                tofu_completion_t *comp);
tofu_status_t tofu_ep_get_zcopy(tofu_ep_t *ep, const tofu_iov_t *iov,
                                size_t iovcnt, uint64_t remote_addr,
                                const tofu_rkey_t *rkey,
                                tofu_completion_t *comp);

/* Values are those of uct_atomic_op_t. */
typedef enum {
    TOFU_ATOMIC_ADD   = 0,
    TOFU_ATOMIC_AND   = 1,
    TOFU_ATOMIC_OR    = 2,
    TOFU_ATOMIC_XOR   = 3,
    TOFU_ATOMIC_SWAP  = 4, /* fetch only */
    TOFU_ATOMIC_CSWAP = 5  /* by the cswap functions */
} tofu_atomic_op_t;

/* size is 4 or 8; remote_addr is aligned to it.  *result (4 or 8 bytes) gets
 * the old value before comp is called. */
tofu_status_t tofu_ep_atomic_post(tofu_ep_t *ep, tofu_atomic_op_t op,
                                  unsigned size, uint64_t value,
                                  uint64_t remote_addr,
                                  const tofu_rkey_t *rkey);
tofu_status_t tofu_ep_atomic_fetch(tofu_ep_t *ep, tofu_atomic_op_t op,
                                   unsigned size, uint64_t value, void *result,
                                   uint64_t remote_addr,
                                   const tofu_rkey_t *rkey,
                                   tofu_completion_t *comp);
tofu_status_t tofu_ep_atomic_cswap(tofu_ep_t *ep, unsigned size,
                                   uint64_t compare, uint64_t swap,
                                   void *result, uint64_t remote_addr,
                                   const tofu_rkey_t *rkey,
                                   tofu_completion_t *comp);

/* 8 + length is at most max_am_short.  Up to 32 bytes are a piggyback, more go by a bounce
 * buffer, as with am_bcopy. */
tofu_status_t tofu_ep_am_short(tofu_ep_t *ep, uint8_t id, uint64_t header,
                               const void *payload, unsigned length);
/* The iov is concatenated; the total is at most max_am_short; memh unused. */
tofu_status_t tofu_ep_am_short_iov(tofu_ep_t *ep, uint8_t id,
                                   const tofu_iov_t *iov, size_t iovcnt);
intptr_t tofu_ep_am_bcopy(tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack,
                          void *arg);
/* tofu_ep_am_bcopy of a message that asks whether the peer is there.  Where there is no
 * room it is taken all the same, and sent as soon as there is some: later messages may
 * overtake it, no flush waits for it, and it goes with the ep or a flush that cancels.
 * While 64 of an ep wait, one with the same bytes as one of them counts as that one,
 * others get NO_RESOURCE. */
intptr_t tofu_ep_am_check(tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack,
                          void *arg);
/* A short message is copied and returns OK, the completion is not called; without
 * early_complete it is, in progress. */
tofu_status_t tofu_ep_am_zcopy(tofu_ep_t *ep, uint8_t id, const void *header,
                               unsigned header_length, const tofu_iov_t *iov,
                               size_t iovcnt, tofu_completion_t *comp);

/* As tofu_iface_flush, for one ep. */
tofu_status_t tofu_ep_flush(tofu_ep_t *ep, unsigned flags,
                            tofu_completion_t *comp);
tofu_status_t tofu_ep_fence(tofu_ep_t *ep);
/* Make the ep fail with CANCELED, as if its peer had been lost, in the next
 * progress: err_cb is called from there, operations in flight complete with an error, each when its
 * buffers are free.  OK also for an ep that failed before. */
tofu_status_t tofu_ep_invalidate(tofu_ep_t *ep);
/* Ask whether the peer is there, without waiting for the answer: OK - asked, or
 * it will be as soon as there is room, and a failure will be told by err_cb;
 * NO_RESOURCE - 64 messages of tofu_ep_am_check wait for room already, and no such
 * question; the endpoint's failure status after it failed. */
tofu_status_t tofu_ep_check(tofu_ep_t *ep);

/* Queue a request to be called when resources return.  BUSY: they are there
 * now, just send.  While requests are queued, sends on the ep from outside them
 * get NO_RESOURCE. */
tofu_status_t tofu_ep_pending_add(tofu_ep_t *ep, tofu_pending_req_t *req);
/* Remove all queued requests, calling cb on each. */
void tofu_ep_pending_purge(tofu_ep_t *ep,
                           void (*cb)(tofu_pending_req_t *req, void *arg),
                           void *arg);

#ifdef __cplusplus
}
#endif

#endif /* TOFU_H */
