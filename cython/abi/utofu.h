/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * utofu.h - the uTofu API 1.0 (C99, usable from C++).
 *
 * This header is written from the published facts of the API: the constant
 * values, structure layouts and function names are those of Fujitsu's library,
 * so that a program compiled against it runs on either library unchanged.
 * Section numbers in comments are those of the uTofu user's guide.  Where the
 * system provides its own <utofu.h>, that one is used instead.
 *
 * Conventions that hold for every function unless its comment says otherwise:
 *  - It returns UTOFU_SUCCESS (0) or a negative enum utofu_return_code.
 *  - Sizes, lengths, strides and offsets are in bytes.
 *  - No function blocks for the completion of a communication; completions are
 *    found by polling.  Functions that may enter the kernel say so.
 *  - Thread rules (2.5): any function may be called from several threads,
 *    except that one-sided communication and STADD management on VCQs that
 *    share a CQ, and barrier communication on one VBG, must be serialised by
 *    the caller unless the VCQ / VBG was created thread-safe, or (for VCQs)
 *    the CQ is exclusive to the VCQ.
 */
#ifndef UTOFU_H
#define UTOFU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* API version this header describes (3.9.3) */
#define UTOFU_VERSION_MAJOR                            1
#define UTOFU_VERSION_MINOR                            0

/* utofu_onesided_caps::flags (3.2.3.1) */
#define UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE           0x1UL
#define UTOFU_ONESIDED_CAP_FLAG_ARMW                   0x2UL

/* utofu_onesided_caps::armw_ops (3.2.3.3) */
#define UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP               0x1UL
#define UTOFU_ONESIDED_CAP_ARMW_OP_SWAP                0x2UL
#define UTOFU_ONESIDED_CAP_ARMW_OP_ADD                 0x4UL
#define UTOFU_ONESIDED_CAP_ARMW_OP_XOR                 0x8UL
#define UTOFU_ONESIDED_CAP_ARMW_OP_AND                 0x10UL
#define UTOFU_ONESIDED_CAP_ARMW_OP_OR                  0x20UL

/* utofu_barrier_caps::reduce_ops (3.2.3.4) */
#define UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER            0x2UL
#define UTOFU_BARRIER_CAP_REDUCE_OP_BAND               0x4UL
#define UTOFU_BARRIER_CAP_REDUCE_OP_BOR                0x8UL
#define UTOFU_BARRIER_CAP_REDUCE_OP_BXOR               0x10UL
#define UTOFU_BARRIER_CAP_REDUCE_OP_MAX                0x20UL
#define UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC             0x40UL
#define UTOFU_BARRIER_CAP_REDUCE_OP_SUM                0x80UL
#define UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM             0x100UL

/* flags of utofu_create_vcq (3.3.4.1) */
#define UTOFU_VCQ_FLAG_THREAD_SAFE                     0x1UL
#define UTOFU_VCQ_FLAG_EXCLUSIVE                       0x2UL
#define UTOFU_VCQ_FLAG_SESSION_MODE                    0x4UL

/* flags of utofu_alloc_vbg (3.4.5.1) */
#define UTOFU_VBG_FLAG_THREAD_SAFE                     0x1UL

/* flags of utofu_reg_mem (3.6.2.1) */
#define UTOFU_REG_MEM_FLAG_READ_ONLY                   0x1UL

/* flags of posted and prepared one-sided operations (3.7.9.1) */
#define UTOFU_ONESIDED_FLAG_STRONG_ORDER               0x1UL
#define UTOFU_ONESIDED_FLAG_PACKET_RESPONSE            0x2UL
#define UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE          0x4UL
#define UTOFU_ONESIDED_FLAG_PADDING                    0x8UL
#define UTOFU_ONESIDED_FLAG_CACHE_INJECTION            0x20UL
#define UTOFU_ONESIDED_FLAG_DELAY_START                0x100UL
#define UTOFU_ONESIDED_FLAG_TCQ_NOTICE                 0x4000UL
#define UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE           0x8000UL

/* Path ID of one operation; overrides the path in the VCQ ID (3.7.9.2). */
#define UTOFU_ONESIDED_FLAG_PATH(path_id)              (((unsigned long int)(path_id)) << 28)
/* Session progress step of one Put to a session-mode VCQ (3.7.9.3). */
#define UTOFU_ONESIDED_FLAG_SPS(sps)                   (((unsigned long int)(sps)) << 24)

/* "no gate" in struct utofu_vbg_setting (3.4.6.1) */
#define UTOFU_VBG_ID_NULL                              ((utofu_vbg_id_t)-1)
/* "choose a path for me" in struct utofu_vbg_setting (3.5.2.1) */
#define UTOFU_PATH_COORD_NULL                          ((uint8_t)255)

/* Types (3.1.1.1) */
typedef uint16_t  utofu_tni_id_t;   /* TNI within a node, 0 .. TNIs - 1 */
typedef uint16_t  utofu_cq_id_t;    /* CQ within a TNI */
typedef uint16_t  utofu_bg_id_t;    /* barrier gate within a TNI */
typedef uint16_t  utofu_cmp_id_t;   /* component sharing a CQ */
typedef uintptr_t utofu_vcq_hdl_t;  /* VCQ, valid in the creating process */
typedef uint64_t  utofu_vcq_id_t;   /* VCQ, valid in the whole network */
typedef uint64_t  utofu_vbg_id_t;   /* VBG, valid in the whole network */
typedef uint8_t   utofu_path_id_t;  /* path towards one remote VCQ ID */
typedef uint64_t  utofu_stadd_t;    /* memory address as a TNI knows it */

/* Return values (3.1.2.1) */
enum utofu_return_code {
    UTOFU_SUCCESS                = 0,
    UTOFU_ERR_NOT_FOUND          = -1,
    UTOFU_ERR_NOT_COMPLETED      = -2,
    UTOFU_ERR_NOT_PROCESSED      = -3,
    UTOFU_ERR_BUSY               = -4,
    UTOFU_ERR_USED               = -5,
    UTOFU_ERR_FULL               = -6,
    UTOFU_ERR_NOT_AVAILABLE      = -7,
    UTOFU_ERR_NOT_SUPPORTED      = -8,
    UTOFU_ERR_TCQ_OTHER          = -128,
    UTOFU_ERR_TCQ_DESC           = -129,
    UTOFU_ERR_TCQ_MEMORY         = -130,
    UTOFU_ERR_TCQ_STADD          = -131,
    UTOFU_ERR_TCQ_LENGTH         = -132,
    UTOFU_ERR_MRQ_OTHER          = -192,
    UTOFU_ERR_MRQ_PEER           = -193,
    UTOFU_ERR_MRQ_LCL_MEMORY     = -194,
    UTOFU_ERR_MRQ_RMT_MEMORY     = -195,
    UTOFU_ERR_MRQ_LCL_STADD      = -196,
    UTOFU_ERR_MRQ_RMT_STADD      = -197,
    UTOFU_ERR_MRQ_LCL_LENGTH     = -198,
    UTOFU_ERR_MRQ_RMT_LENGTH     = -199,
    UTOFU_ERR_BARRIER_OTHER      = -256,
    UTOFU_ERR_BARRIER_MISMATCH   = -257,
    UTOFU_ERR_INVALID_ARG        = -512,
    UTOFU_ERR_INVALID_POINTER    = -513,
    UTOFU_ERR_INVALID_FLAGS      = -514,
    UTOFU_ERR_INVALID_COORDS     = -515,
    UTOFU_ERR_INVALID_PATH       = -516,
    UTOFU_ERR_INVALID_TNI_ID     = -517,
    UTOFU_ERR_INVALID_CQ_ID      = -518,
    UTOFU_ERR_INVALID_BG_ID      = -519,
    UTOFU_ERR_INVALID_CMP_ID     = -520,
    UTOFU_ERR_INVALID_VCQ_HDL    = -521,
    UTOFU_ERR_INVALID_VCQ_ID     = -522,
    UTOFU_ERR_INVALID_VBG_ID     = -523,
    UTOFU_ERR_INVALID_PATH_ID    = -524,
    UTOFU_ERR_INVALID_STADD      = -525,
    UTOFU_ERR_INVALID_ADDRESS    = -526,
    UTOFU_ERR_INVALID_SIZE       = -527,
    UTOFU_ERR_INVALID_STAG       = -528,
    UTOFU_ERR_INVALID_EDATA      = -529,
    UTOFU_ERR_INVALID_NUMBER     = -530,
    UTOFU_ERR_INVALID_OP         = -531,
    UTOFU_ERR_INVALID_DESC       = -532,
    UTOFU_ERR_INVALID_DATA       = -533,
    UTOFU_ERR_OUT_OF_RESOURCE    = -640,
    UTOFU_ERR_OUT_OF_MEMORY      = -641,
    UTOFU_ERR_FATAL              = -768
};

/* Operations of utofu_armw4/8 (3.7.7.1) */
enum utofu_armw_op {
    UTOFU_ARMW_OP_SWAP           = 1,
    UTOFU_ARMW_OP_ADD            = 2,
    UTOFU_ARMW_OP_XOR            = 3,
    UTOFU_ARMW_OP_AND            = 4,
    UTOFU_ARMW_OP_OR             = 5
};

/* Operations of utofu_reduce_* (3.8.3.1) */
enum utofu_reduce_op {
    UTOFU_REDUCE_OP_BARRIER      = 1,
    UTOFU_REDUCE_OP_BAND         = 2,
    UTOFU_REDUCE_OP_BOR          = 3,
    UTOFU_REDUCE_OP_BXOR         = 4,
    UTOFU_REDUCE_OP_MAX          = 5,
    UTOFU_REDUCE_OP_MAXLOC       = 6,
    UTOFU_REDUCE_OP_SUM          = 7,
    UTOFU_REDUCE_OP_BFPSUM       = 8
};

/* utofu_mrq_notice::notice_type (3.7.8.1) */
enum utofu_mrq_notice_type {
    UTOFU_MRQ_TYPE_LCL_PUT       = 0,
    UTOFU_MRQ_TYPE_RMT_PUT       = 1,
    UTOFU_MRQ_TYPE_LCL_GET       = 2,
    UTOFU_MRQ_TYPE_RMT_GET       = 3,
    UTOFU_MRQ_TYPE_LCL_ARMW      = 4,
    UTOFU_MRQ_TYPE_RMT_ARMW      = 5
};

/* Limits of one-sided communication on a TNI (3.2.2.1) */
struct utofu_onesided_caps {
    unsigned long int flags;                    /* UTOFU_ONESIDED_CAP_FLAG_* */
    unsigned long int armw_ops;                 /* UTOFU_ONESIDED_CAP_ARMW_OP_* */
    unsigned int      num_cmp_ids;              /* component IDs usable on a CQ */
    unsigned int      num_reserved_stags;       /* STags a user may choose, per VCQ */
    size_t            cache_line_size;          /* last-level cache line */
    size_t            stag_address_alignment;   /* of utofu_reg_mem_with_stag */
    size_t            max_toq_desc_size;        /* of one prepared descriptor */
    size_t            max_putget_size;          /* one put or get */
    size_t            max_piggyback_size;       /* one piggyback put */
    size_t            max_edata_size;           /* EDATA */
    size_t            max_mtu;                  /* largest packet */
    size_t            max_gap;                  /* largest gap */
};

/* Limits of barrier communication on a TNI (3.2.2.2) */
struct utofu_barrier_caps {
    unsigned long int flags;                    /* none are defined */
    unsigned long int reduce_ops;               /* UTOFU_BARRIER_CAP_REDUCE_OP_* */
    size_t            max_uint64_reduction;     /* values reduced at once */
    size_t            max_double_reduction;     /* values reduced at once */
};

/* Wiring of one VBG (3.4.4.1) */
struct utofu_vbg_setting {
    utofu_vbg_id_t    vbg_id;                   /* the gate to set */
    utofu_vbg_id_t    src_lcl_vbg_id;           /* signal comes from */
    utofu_vbg_id_t    src_rmt_vbg_id;           /* packet comes from */
    utofu_vbg_id_t    dst_lcl_vbg_id;           /* signal goes to */
    utofu_vbg_id_t    dst_rmt_vbg_id;           /* packet goes to */
    uint8_t           dst_path_coords[3];       /* A, B, C of the path */
};

/* One MRQ notice (3.7.6.1) */
struct utofu_mrq_notice {
    uint8_t           notice_type;              /* enum utofu_mrq_notice_type */
    uint8_t           padding1[7];
    utofu_vcq_id_t    vcq_id;                   /* the peer VCQ, default path */
    uint64_t          edata;                    /* as given to the operation */
    uint64_t          rmt_value;                /* LCL_ARMW: old value; RMT_*: as rmt_stadd */
    utofu_stadd_t     lcl_stadd;                /* end address; GET only */
    utofu_stadd_t     rmt_stadd;                /* end address (ARMW: start); all but LCL_GET */
    uint64_t          reserved[2];
};

/* ------------------------------------------------------------ TNIs (3.2) */

/* TNIs this process may use for one-sided / barrier communication.  *tni_ids
 * is allocated by malloc and freed by the caller; NULL when there is none. */
int utofu_get_onesided_tnis(utofu_tni_id_t **tni_ids, size_t *num_tnis);
int utofu_get_barrier_tnis(utofu_tni_id_t **tni_ids, size_t *num_tnis);

/* Features and limits of a TNI.  *tni_caps belongs to the library: the caller
 * neither frees nor writes it. */
int utofu_query_onesided_caps(utofu_tni_id_t tni_id,
                              struct utofu_onesided_caps **tni_caps);
int utofu_query_barrier_caps(utofu_tni_id_t tni_id,
                             struct utofu_barrier_caps **tni_caps);

/* ------------------------------------------------------------ VCQs (3.3) */

/* Create a VCQ; may enter the kernel.  FULL: no room on this TNI;
 * NOT_AVAILABLE: no CQ of the kind in flags (UTOFU_VCQ_FLAG_*) is left;
 * NOT_SUPPORTED: the kind does not exist here. */
int utofu_create_vcq(utofu_tni_id_t tni_id, unsigned long int flags,
                     utofu_vcq_hdl_t *vcq_hdl);

/* The same with a component ID (0 .. num_cmp_ids - 1) chosen by the caller, so
 * that peers can construct the VCQ ID.  USED: the ID is taken.  EXCLUSIVE and
 * SESSION_MODE cannot be combined with it. */
int utofu_create_vcq_with_cmp_id(utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id,
                                 unsigned long int flags,
                                 utofu_vcq_hdl_t *vcq_hdl);

/* Free a VCQ and what is registered with it; may enter the kernel. */
int utofu_free_vcq(utofu_vcq_hdl_t vcq_hdl);

/* The network-wide ID of a local VCQ; its default path is this node's A, B, C. */
int utofu_query_vcq_id(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t *vcq_id);

/* The ID of a VCQ anywhere, from coords[6] = X, Y, Z, A, B, C. */
int utofu_construct_vcq_id(uint8_t coords[], utofu_tni_id_t tni_id,
                           utofu_cq_id_t cq_id, utofu_cmp_id_t cmp_id,
                           utofu_vcq_id_t *vcq_id);

/* Embed path_coords[3] = A, B, C (NULL: a suitable path) in *vcq_id. */
int utofu_set_vcq_id_path(utofu_vcq_id_t *vcq_id, uint8_t path_coords[]);

/* The parts of a VCQ ID; coords has room for 6. */
int utofu_query_vcq_info(utofu_vcq_id_t vcq_id, uint8_t coords[],
                         utofu_tni_id_t *tni_id, utofu_cq_id_t *cq_id,
                         uint16_t *extra_val);

/* ------------------------------------------------------------ VBGs (3.4) */

/* Allocate num_vbgs gates: vbg_ids[0] starts and ends, the others relay. */
int utofu_alloc_vbg(utofu_tni_id_t tni_id, size_t num_vbgs,
                    unsigned long int flags, utofu_vbg_id_t vbg_ids[]);
int utofu_free_vbg(utofu_vbg_id_t vbg_ids[], size_t num_vbgs);
int utofu_set_vbg(struct utofu_vbg_setting vbg_settings[],
                  size_t num_vbg_settings);
int utofu_query_vbg_info(utofu_vbg_id_t vbg_id, uint8_t coords[],
                         utofu_tni_id_t *tni_id, utofu_bg_id_t *bg_id,
                         uint16_t *extra_val);

/* ----------------------------------------------------------- paths (3.5) */

/* path_coords[3] (NULL: choose) <-> path ID; an ID is meant for one vcq_id. */
int utofu_get_path_id(utofu_vcq_id_t vcq_id, uint8_t path_coords[],
                      utofu_path_id_t *path_id);
int utofu_get_path_coords(utofu_vcq_id_t vcq_id, utofu_path_id_t path_id,
                          uint8_t path_coords[]);

/* ---------------------------------------------------------- STADDs (3.6) */

/* Register memory with a VCQ; may enter the kernel.  The same region gives
 * the same STADD and needs as many utofu_dereg_mem calls.  FULL: no STag left. */
int utofu_reg_mem(utofu_vcq_hdl_t vcq_hdl, void *addr, size_t size,
                  unsigned long int flags, utofu_stadd_t *stadd);

/* The same under a chosen STag (0 .. num_reserved_stags - 1); addr and size are
 * multiples of stag_address_alignment.  USED: the STag is taken. */
int utofu_reg_mem_with_stag(utofu_vcq_hdl_t vcq_hdl, void *addr, size_t size,
                            unsigned int stag, unsigned long int flags,
                            utofu_stadd_t *stadd);

/* The STADD that a chosen STag of a VCQ, local or remote, has or will have. */
int utofu_query_stadd(utofu_vcq_id_t vcq_id, unsigned int stag,
                      utofu_stadd_t *stadd);

/* Undo one registration; stadd is its start.  May enter the kernel. */
int utofu_dereg_mem(utofu_vcq_hdl_t vcq_hdl, utofu_stadd_t stadd,
                    unsigned long int flags);

/* --------------------------------------------------- one-sided (3.7.1) */
/* Every function here posts TOQ descriptors and returns.  BUSY: no TOQ entry is
 * free; call utofu_poll_tcq and post again.  Failures of the communication
 * itself are found by polling, whatever notices were asked for.
 * flags: UTOFU_ONESIDED_FLAG_*.  cbdata comes back from utofu_poll_tcq, edata
 * (at most max_edata_size bytes) in MRQ notices. */
/* Local memory -> remote memory. */
int utofu_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t
              lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t
              edata, unsigned long int flags, void *cbdata);
/* ... in packets of mtu bytes, the bandwidth lowered to 8 / (gap + 8). */
int utofu_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t
                  length, uint64_t edata, unsigned long int flags, size_t mtu,
                  size_t gap, void *cbdata);
/* ... num_blocks blocks, stride bytes apart on both sides: so many descriptors. */
int utofu_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                     utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t
                     length, size_t stride, size_t num_blocks, uint64_t edata,
                     unsigned long int flags, void *cbdata);
int utofu_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                         utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                         size_t length, size_t stride, size_t num_blocks,
                         uint64_t edata, unsigned long int flags, size_t mtu,
                         size_t gap, void *cbdata);
/* The data travels in the descriptor: lcl_data may be reused at once. */
int utofu_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                        void *lcl_data, utofu_stadd_t rmt_stadd, size_t length,
                        uint64_t edata, unsigned long int flags, void *cbdata);
/* ... the low length bytes (<= 8) of a value. */
int utofu_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                         uint64_t lcl_data, utofu_stadd_t rmt_stadd, size_t
                         length, uint64_t edata, unsigned long int flags, void
                         *cbdata);
/* Remote memory -> local memory. */
int utofu_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t
              lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t
              edata, unsigned long int flags, void *cbdata);
int utofu_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t
                  length, uint64_t edata, unsigned long int flags, size_t mtu,
                  size_t gap, void *cbdata);
int utofu_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                     utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t
                     length, size_t stride, size_t num_blocks, uint64_t edata,
                     unsigned long int flags, void *cbdata);
int utofu_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                         utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                         size_t length, size_t stride, size_t num_blocks,
                         uint64_t edata, unsigned long int flags, size_t mtu,
                         size_t gap, void *cbdata);
/* Atomic read-modify-write of an aligned remote word; the old value is in the
 * local MRQ notice. */
int utofu_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum
                utofu_armw_op armw_op, uint32_t op_value, utofu_stadd_t
                rmt_stadd, uint64_t edata, unsigned long int flags, void
                *cbdata);
int utofu_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum
                utofu_armw_op armw_op, uint64_t op_value, utofu_stadd_t
                rmt_stadd, uint64_t edata, unsigned long int flags, void
                *cbdata);
/* Atomic compare (old_value) and swap (new_value). */
int utofu_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t
                 old_value, uint32_t new_value, utofu_stadd_t rmt_stadd,
                 uint64_t edata, unsigned long int flags, void *cbdata);
int utofu_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t
                 old_value, uint64_t new_value, utofu_stadd_t rmt_stadd,
                 uint64_t edata, unsigned long int flags, void *cbdata);
/* Takes a TOQ entry and does nothing. */
int utofu_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void *cbdata);

/* ------------------------------------------ prepared descriptors (3.7.2) */
/* As above, but the descriptor is written to desc (8-byte aligned, room for
 * max_toq_desc_size, times num_blocks for stride); *desc_size is what it took. */
int utofu_prepare_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                      utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t
                      length, uint64_t edata, unsigned long int flags, void
                      *desc, size_t *desc_size);
int utofu_prepare_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                          utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                          size_t length, uint64_t edata, unsigned long int
                          flags, size_t mtu, size_t gap, void *desc, size_t
                          *desc_size);
int utofu_prepare_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
                             rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t
                             rmt_stadd, size_t length, size_t stride, size_t
                             num_blocks, uint64_t edata, unsigned long int
                             flags, void *desc, size_t *desc_size);
int utofu_prepare_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
                                 rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                 utofu_stadd_t rmt_stadd, size_t length, size_t
                                 stride, size_t num_blocks, uint64_t edata,
                                 unsigned long int flags, size_t mtu, size_t
                                 gap, void *desc, size_t *desc_size);
int utofu_prepare_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
                                rmt_vcq_id, void *lcl_data, utofu_stadd_t
                                rmt_stadd, size_t length, uint64_t edata,
                                unsigned long int flags, void *desc, size_t
                                *desc_size);
int utofu_prepare_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
                                 rmt_vcq_id, uint64_t lcl_data, utofu_stadd_t
                                 rmt_stadd, size_t length, uint64_t edata,
                                 unsigned long int flags, void *desc, size_t
                                 *desc_size);
int utofu_prepare_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                      utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t
                      length, uint64_t edata, unsigned long int flags, void
                      *desc, size_t *desc_size);
int utofu_prepare_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                          utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                          size_t length, uint64_t edata, unsigned long int
                          flags, size_t mtu, size_t gap, void *desc, size_t
                          *desc_size);
int utofu_prepare_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
                             rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t
                             rmt_stadd, size_t length, size_t stride, size_t
                             num_blocks, uint64_t edata, unsigned long int
                             flags, void *desc, size_t *desc_size);
int utofu_prepare_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
                                 rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                 utofu_stadd_t rmt_stadd, size_t length, size_t
                                 stride, size_t num_blocks, uint64_t edata,
                                 unsigned long int flags, size_t mtu, size_t
                                 gap, void *desc, size_t *desc_size);
int utofu_prepare_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                        enum utofu_armw_op armw_op, uint32_t op_value,
                        utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long
                        int flags, void *desc, size_t *desc_size);
int utofu_prepare_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                        enum utofu_armw_op armw_op, uint64_t op_value,
                        utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long
                        int flags, void *desc, size_t *desc_size);
int utofu_prepare_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                         uint32_t old_value, uint32_t new_value, utofu_stadd_t
                         rmt_stadd, uint64_t edata, unsigned long int flags,
                         void *desc, size_t *desc_size);
int utofu_prepare_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
                         uint64_t old_value, uint64_t new_value, utofu_stadd_t
                         rmt_stadd, uint64_t edata, unsigned long int flags,
                         void *desc, size_t *desc_size);
int utofu_prepare_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void
                      *desc, size_t *desc_size);

/* Post prepared descriptors of this VCQ, and start what DELAY_START held back;
 * desc_size 0: only the latter (3.7.3.1). */
int utofu_post_toq(utofu_vcq_hdl_t vcq_hdl, void *desc, size_t desc_size, void
                   *cbdata);

/* ------------------------------------------------- completion (3.7.4) */
/* The next TCQ entry in post order.  NOT_FOUND: nothing new; TCQ_*: the
 * operation that *cbdata names failed. */
int utofu_poll_tcq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void
                   **cbdata);
/* The next MRQ notice.  NOT_FOUND: nothing new; MRQ_*: the operation that
 * *notice names failed. */
int utofu_poll_mrq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct
                   utofu_mrq_notice *notice);
/* TOQ descriptors of the CQ whose TCQ entry was not read yet (3.7.5.1), and
 * notices waiting in the MRQ (present in the library, not in the guide). */
int utofu_query_num_unread_tcq(utofu_vcq_hdl_t vcq_hdl, size_t *count);
int utofu_query_num_unread_mrq(utofu_vcq_hdl_t vcq_hdl, size_t *count);

/* ------------------------------------------- barrier communication (3.8) */
/* Start on vbg_id, the start/end gate of a circuit; BUSY: one is under way. */
int utofu_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags);
int utofu_reduce_uint64(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op,
                        uint64_t data[], size_t num_data, unsigned long int
                        flags);
int utofu_reduce_double(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double
                        data[], size_t num_data, unsigned long int flags);
/* NOT_COMPLETED: still under way; BARRIER_MISMATCH: participants disagree. */
int utofu_poll_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags);
int utofu_poll_reduce_uint64(utofu_vbg_id_t vbg_id, unsigned long int flags,
                             uint64_t data[]);
int utofu_poll_reduce_double(utofu_vbg_id_t vbg_id, unsigned long int flags,
                             double data[]);

/* ------------------------------------------------------ auxiliary (3.9) */
void utofu_query_tofu_version(int *major_ver, int *minor_ver);
void utofu_query_utofu_version(int *major_ver, int *minor_ver);
/* X, Y, Z, A, B, C of this node; coords has room for 6. */
int utofu_query_my_coords(uint8_t coords[]);

#ifdef __cplusplus
}
#endif

#endif /* UTOFU_H */
