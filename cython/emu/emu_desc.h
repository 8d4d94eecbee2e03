/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_desc.h - TOQ descriptors: the form in which operations travel wherever they are
 * not carried out at once, and the one that utofu_prepare_* writes and utofu_post_toq reads.
 *
 * The latter is opaque by the guide.  Where programs are known to write into it (the public
 * libfabric provider for Tofu does), sizes and words are those of the machine.  By 64-bit words:
 *
 *                     0       1                2        3         4    5       6        7
 *   NOP, 32 bytes     head    who              0        0
 *   ARMW, 32          head    who              r_stadd  operand
 *   CSWAP, 64         head    compare          r_stadd  0         who  0       0        operand
 *   put, get, 64      head    length           r_stadd  l_stadd   who  mtu, gap 0       0
 *   piggyback, 64     head    data             data     data      who  length  r_stadd  first data
 *
 * head: byte 0 is kind << 4 and 2 for a TCQ notice; EDATA << 8; other flags << 16; ARMW operation << 52;
 * ARMW size << 56.  who: the remote VCQ ID, with a mark of the VCQ that it was prepared for above it.
 * length: bits 32 to 63.
 */
#ifndef EMU_DESC_H
#define EMU_DESC_H

#include "emu_internal.h"

enum emu_op_kind {
    EMU_OP_NOP = 1,
    EMU_OP_PUT,
    EMU_OP_PIGGYBACK,
    EMU_OP_GET,
    EMU_OP_ARMW,
    EMU_OP_KINDS
};

struct emu_desc {
    uint16_t check;  /* of the VCQ it was prepared for */
    uint8_t  kind;   /* enum emu_op_kind */
    uint8_t  edata;
    uint32_t length; /* ARMW: 4 or 8 */
    uint64_t flags;  /* UTOFU_ONESIDED_FLAG_*, and above them EMU_DESC_* */
    uint64_t rmt_id;
    uint64_t rmt_stadd;
    union {
        uint64_t lcl_stadd; /* PUT, GET */
        struct {
            uint64_t operand, compare; /* ARMW */
        };
        uint8_t data[EMU_MAX_PIGGYBACK];
    };
};
_Static_assert(sizeof(struct emu_desc) == 64, "max_toq_desc_size");
#define EMU_DESC_SHORT 32u /* bytes of those that need no more */

/* flags | mtu << 40 | gap << 52 | ARMW operation << 60 */
#define EMU_DESC_FLAGS(d)   ((unsigned long)((d)->flags & 0xfffffffffull))
#define EMU_DESC_MTU(d)     ((unsigned)((d)->flags >> 40) & 0xfffu)
#define EMU_DESC_GAP(d)     ((unsigned)((d)->flags >> 52) & 0xffu)
#define EMU_DESC_ARMW_OP(d) ((int)((d)->flags >> 60))
#define EMU_DESC_SPS(d)     ((unsigned)((d)->flags >> 24) & 0xfu)

#define EMU_MAX_MTU 1920u
#define EMU_MAX_GAP 255u

/* Arguments of an operation as a descriptor.  Returns a code of the posting
 * functions; the descriptor is complete after SUCCESS only. */
int emu_desc_putget(struct emu_desc *d, utofu_vcq_hdl_t hdl, int kind, uint64_t rmt_id, uint64_t lcl_stadd,
                    uint64_t rmt_stadd, size_t length, uint64_t edata, unsigned long flags, size_t mtu, size_t gap);
int emu_desc_piggyback(struct emu_desc *d, utofu_vcq_hdl_t hdl, uint64_t rmt_id, const void *data, uint64_t rmt_stadd,
                       size_t length, size_t max_length, uint64_t edata, unsigned long flags);
int emu_desc_armw(struct emu_desc *d, utofu_vcq_hdl_t hdl, uint64_t rmt_id, int op, unsigned size, uint64_t operand,
                  uint64_t compare, uint64_t rmt_stadd, uint64_t edata, unsigned long flags);
int emu_desc_nop(struct emu_desc *d, utofu_vcq_hdl_t hdl, unsigned long flags);

/* Write it as a program gets it, to memory aligned to 8 bytes; its size in bytes. */
size_t emu_desc_pack(const struct emu_desc *d, void *out);
/* The descriptor at p, of which `left` bytes exist; its size in bytes, or 0: it is not a valid one of
 * this VCQ.  Each word is read once. */
size_t emu_desc_unpack(const struct emu_vcq *vcq, const void *p, size_t left, struct emu_desc *d);
uint16_t emu_desc_mark(utofu_vcq_hdl_t hdl);

/* emu_post.c: post one operation / num_blocks of them, stride bytes apart. */
int emu_post_desc(const struct emu_desc *d, utofu_vcq_hdl_t hdl, void *cbdata);
int emu_post_stride(const struct emu_desc *d, utofu_vcq_hdl_t hdl, size_t stride, size_t num_blocks, void *cbdata);

#endif /* EMU_DESC_H */
