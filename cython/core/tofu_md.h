/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_md.h - memory domains: their registrations, arenas and rkeys.
 */
#ifndef TOFU_MD_H
#define TOFU_MD_H

#include "tofu.h"
#include "tofu_util.h"

#include <tofu_dl.h>

#include <pthread.h>
#include <stdatomic.h>

#pragma GCC visibility push(hidden)

typedef struct tofu_arena tofu_arena_t;
typedef struct tofu_hub   tofu_hub_t;

#define TOFU_MAX_TNIS 6u
#define TOFU_CQ_VCQS  8u /* of a CQ: 6.1.2 */

/* A further VCQ by which peers reach the md's large memory: on another TNI, so
 * that what comes in does not wait for one TNI. */
typedef struct tofu_rail {
    utofu_vcq_hdl_t vcq;
    utofu_vcq_id_t  vcq_id;
    uint8_t         open, failed; /* failed: there is no VCQ for it */
} tofu_rail_t;

/* STADDs of a memory handle on the VCQs of ifaces, by iface index.  An entry is
 * valid for the iface whose (process-wide unique) generation it holds. */
typedef struct tofu_lcl_table {
    struct tofu_lcl_table *older; /* readers may still look at it */
    unsigned              size;
    struct {
        _Atomic uint64_t generation;
        utofu_stadd_t    stadd;
    } entry[];
} tofu_lcl_table_t;

/* A part of a handle that is registered with an iface's VCQ, where the whole could not
 * be: the user has unmapped another part of it since, as he may while he does not use it. */
typedef struct tofu_piece {
    struct tofu_piece *next;
    unsigned          index;      /* of the iface in md->ifaces */
    uint64_t          generation; /* of that iface */
    char              *begin, *end;
    utofu_stadd_t     stadd;      /* of begin */
} tofu_piece_t;

struct tofu_mem {
    tofu_md_t                 *md;
    char                      *address;
    size_t                    length;
    unsigned                  flags;   /* TOFU_MEM_* */
    unsigned                  refs;    /* under md->lock */
    utofu_stadd_t             stadd;   /* of address on the md's VCQ */
    char                      *reg_address; /* what is registered there: a bit */
    size_t                    reg_length;   /* more when that makes it unique */
    uint8_t                   num_rails;
    struct {
        uint8_t               rail;    /* index in md->rail */
        utofu_stadd_t         stadd;   /* of address there */
    } rail[TOFU_MAX_TNIS - 1];         /* of large memory */
    tofu_arena_t              *arena;  /* of tofu_mem_alloc; NULL: the user's */
    uintptr_t                 max_end; /* of this and all earlier ones in md->regs */
    _Atomic(tofu_lcl_table_t*) lcl;
    tofu_piece_t              *pieces; /* under md->lock */
};

struct tofu_md {
    const struct tofu_backend  *backend;
    struct tofu_functions      fn;
    utofu_tni_id_t             tni;      /* of vcq */
    utofu_tni_id_t             tnis[TOFU_MAX_TNIS]; /* that may be used; from the
                                                       preferred one on */
    unsigned                   all_tnis;
    unsigned                   num_tnis; /* of them, on which the process shares a CQ
                                            of its own: for rails and lanes */
    unsigned                   exclusive_cqs; /* that its ifaces may take */
    int                        has_share; /* a launcher says that the node has more processes */
    unsigned                   max_vcqs;      /* that they may have of their own */
    size_t                     stripe_thresh;
    uint8_t                    coords[6]; /* of this node */
    struct utofu_onesided_caps caps;
    utofu_vcq_hdl_t            vcq;
    utofu_vcq_id_t             vcq_id;
    size_t                     page_size;
    size_t                     arena_chunk;   /* 0: the default */
    size_t                     arena_last;    /* length of the one made last */
    void                       *unordered; /* pages that say so (tofu_vcq.h), or NULL */
    void                       *movable;
    void                       *scratch;

    pthread_mutex_t            lock;     /* all below */
    tofu_rail_t                rail[TOFU_MAX_TNIS]; /* by index in tnis; [0] unused */
    unsigned                   own_vcqs; /* of ifaces */
    unsigned                   opened;   /* ifaces, ever */
    unsigned                   sharing;  /* of own_vcqs, those on shared CQs */
    unsigned                   reserved; /* of hubs, those not of vcq */
    tofu_hub_t                 *hubs;    /* VCQs that ifaces share */
    tofu_mem_t                 **regs;   /* live registrations by address */
    size_t                     num_regs, max_regs;
    tofu_arena_t               *arenas;
    tofu_iface_t               **ifaces; /* by index; NULL: free */
    unsigned                   num_ifaces;
    struct tofu_quarantine     *quarantine; /* NULL: nothing was invalidated */

    tofu_md_t                  *next;    /* of this process; tofu_local.c */
    int                        pid;
};

struct tofu_rkey {
    uint64_t       base;       /* address in the target process */
    uint64_t       length;
    uint64_t       wr_length;  /* length, or 0 when it is read-only */
    utofu_vcq_id_t vcq_id;     /* of the target md */
    utofu_stadd_t  stadd;      /* of base */
    unsigned       num_rails;
    struct {
        utofu_vcq_id_t vcq_id;
        utofu_stadd_t  stadd;
    } rail[TOFU_MAX_TNIS - 1]; /* further ways to the same memory */
};

/* Of tofu_mem_t, besides those of callers: no peer reads or writes it, so it needs no rails */
#define TOFU_MEM_OWN 0x100u

/* The same as tofu_mem_alloc, with flags that are the core's own. */
tofu_status_t tofu_mem_alloc_flags(tofu_md_t *md, size_t *length_p, unsigned flags,
                                   void **address_p, tofu_mem_t **memh_p);

/* Raw pages for the core itself: from the arenas, registered by nobody. */
tofu_status_t tofu_arena_get(tofu_md_t *md, size_t length, void **address_p,
                             tofu_arena_t **arena_p);
/* The same from a file that has nothing else in it, and the descriptor of such a file, else
 * -1.  The length is one of whole pages. */
tofu_status_t tofu_arena_get_own(size_t length, void **address_p,
                                 tofu_arena_t **arena_p);
int tofu_arena_own_fd(const tofu_arena_t *arena);
void tofu_arena_put(tofu_md_t *md, tofu_arena_t *arena, void *address,
                    size_t length);
void tofu_arena_cleanup(tofu_md_t *md);
void tofu_reg_cleanup(tofu_md_t *md);

/* A STADD of a VCQ was just deregistered, under md->lock since then: keep the STag
 * from being given to other memory. */
void tofu_quarantine_add(tofu_md_t *md, utofu_vcq_hdl_t vcq,
                         utofu_stadd_t stadd);
void tofu_quarantine_cleanup(tofu_md_t *md);

/* The mds of this process. */
void tofu_local_add(tofu_md_t *md);
void tofu_local_remove(tofu_md_t *md);

/* The live registration with that address, length and STADD; under md->lock. */
tofu_mem_t *tofu_reg_of_key(tofu_md_t *md, const tofu_rkey_t *rkey);

/* Pages by which a library is told what we do (tofu_told.c): that nobody polls lines of
 * this VCQ's transfers; and a registration of what is in reg_address and reg_length, which
 * for TOFU_MEM_MOVABLE may be moved.  Returns what utofu_reg_mem does; under md->lock. */
void tofu_told_open(tofu_md_t *md);
void tofu_told_close(tofu_md_t *md);
void tofu_tell_unordered(tofu_md_t *md, utofu_vcq_hdl_t vcq);
int tofu_reg_told(tofu_md_t *md, utofu_vcq_hdl_t vcq, tofu_mem_t *memh,
                  utofu_stadd_t *stadd_p);

/* A VCQ. */
tofu_status_t tofu_vcq_open(tofu_md_t *md, utofu_tni_id_t tni,
                            unsigned long flags, utofu_vcq_hdl_t *vcq_p,
                            utofu_vcq_id_t *vcq_id_p);
/* Rails on which a registration of so many bytes goes, opened on first use; under
 * md->lock. */
void tofu_rails_open(tofu_md_t *md, size_t length);
/* A page under TOFU_STAG_SCRATCH of a VCQ, which is one of fn. */
tofu_status_t tofu_scratch_open(tofu_md_t *md, const struct tofu_functions *fn,
                                utofu_vcq_hdl_t vcq, void **page_p, tofu_arena_t **arena_p);

#pragma GCC visibility pop

#endif /* TOFU_MD_H */
