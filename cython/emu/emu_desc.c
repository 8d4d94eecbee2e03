/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_desc.c - descriptors made from arguments, and checked before they are used. */
#include "emu_desc.h"
#include "emu_path.h"

#define NO_EDATA 0

/* Handles are serial << 16 | index + 1 (emu_internal.h): VCQs that exist at the
 * same time have different marks. */
uint16_t emu_desc_mark(utofu_vcq_hdl_t hdl)
{
    return (uint16_t)(((hdl >> 16) & 0x7f) << 9 | (hdl & 0x1ff));
}

/* What all operations have, checked in the order of the arguments */
static int common(struct emu_desc *d, utofu_vcq_hdl_t hdl, int kind, uint64_t rmt_id, uint64_t rmt_stadd, size_t length,
                  uint64_t edata, unsigned long flags)
{
    struct emu_vcq_name name;

    if (emu_vcq_of(hdl) == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if ((kind != EMU_OP_NOP) && !emu_vcq_id_decode(rmt_id, &name)) {
        return UTOFU_ERR_INVALID_VCQ_ID;
    }
    if (edata > EMU_MAX_EDATA) {
        return UTOFU_ERR_INVALID_EDATA;
    }
    if (flags & ~EMU_POST_FLAGS) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    if ((flags & EMU_PATH_FLAGS) && !emu_path_id_valid((flags & EMU_PATH_FLAGS) >> 28)) {
        return UTOFU_ERR_INVALID_PATH_ID;
    }
    memset(d, 0, sizeof(*d));
    d->check     = emu_desc_mark(hdl);
    d->kind      = (uint8_t)kind;
    d->edata     = (uint8_t)edata;
    d->length    = (uint32_t)length;
    d->flags     = flags;
    d->rmt_id    = rmt_id;
    d->rmt_stadd = rmt_stadd;
    return UTOFU_SUCCESS;
}

int emu_desc_putget(struct emu_desc *d, utofu_vcq_hdl_t hdl, int kind, uint64_t rmt_id, uint64_t lcl_stadd,
                    uint64_t rmt_stadd, size_t length, uint64_t edata, unsigned long flags, size_t mtu, size_t gap)
{
    int code = common(d, hdl, kind, rmt_id, rmt_stadd, length, edata, flags);

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if ((length > EMU_MAX_PUTGET) || (mtu == 0) || (mtu > EMU_MAX_MTU) || (gap > EMU_MAX_GAP)) {
        return UTOFU_ERR_INVALID_SIZE;
    }
    d->flags |= ((uint64_t)mtu << 40) | ((uint64_t)gap << 52);
    d->lcl_stadd = lcl_stadd;
    return UTOFU_SUCCESS;
}

int emu_desc_piggyback(struct emu_desc *d, utofu_vcq_hdl_t hdl, uint64_t rmt_id, const void *data, uint64_t rmt_stadd,
                       size_t length, size_t max_length, uint64_t edata, unsigned long flags)
{
    int code = common(d, hdl, EMU_OP_PIGGYBACK, rmt_id, rmt_stadd, length, edata, flags);

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (length > max_length) {
        return UTOFU_ERR_INVALID_SIZE;
    }
    if ((data == NULL) && (length > 0)) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (length > 0) {
        memcpy(d->data, data, length);
    }
    return UTOFU_SUCCESS;
}

int emu_desc_armw(struct emu_desc *d, utofu_vcq_hdl_t hdl, uint64_t rmt_id, int op, unsigned size, uint64_t operand,
                  uint64_t compare, uint64_t rmt_stadd, uint64_t edata, unsigned long flags)
{
    int code = common(d, hdl, EMU_OP_ARMW, rmt_id, rmt_stadd, size, edata, flags);

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if ((op < UTOFU_ARMW_OP_SWAP) || (op > EMU_ARMW_CSWAP)) {
        return UTOFU_ERR_INVALID_OP;
    }
    if (rmt_stadd % size) {
        return UTOFU_ERR_INVALID_STADD; /* STADDs are aligned as their memory is */
    }
    d->flags |= (uint64_t)op << 60;
    d->operand = operand;
    d->compare = compare;
    return UTOFU_SUCCESS;
}

int emu_desc_nop(struct emu_desc *d, utofu_vcq_hdl_t hdl, unsigned long flags)
{
    return common(d, hdl, EMU_OP_NOP, 0, 0, 0, NO_EDATA, flags);
}

/* ------------------------------------------------------- as programs have it */

#define ID_BITS  48 /* of a VCQ ID below its tag */
#define TCQ_BIT  2u
#define FLAGS    (0xfffffffffull & ~(uint64_t)UTOFU_ONESIDED_FLAG_TCQ_NOTICE)

static uint64_t head_of(const struct emu_desc *d)
{
    uint64_t notice = (d->flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) ? TCQ_BIT : 0;

    return notice | ((uint64_t)(d->kind - EMU_OP_NOP) << 4) | ((uint64_t)d->edata << 8) | ((d->flags & FLAGS) << 16) |
           ((uint64_t)EMU_DESC_ARMW_OP(d) << 52) | ((uint64_t)((d->kind == EMU_OP_ARMW) ? d->length : 0) << 56);
}

static uint64_t who_of(const struct emu_desc *d)
{
    return ((uint64_t)d->check << ID_BITS) | (d->rmt_id & (((uint64_t)1 << ID_BITS) - 1));
}

size_t emu_desc_pack(const struct emu_desc *d, void *out)
{
    uint64_t w[8] = {head_of(d)};
    size_t   size = sizeof(w);

    switch (d->kind) {
    case EMU_OP_NOP:
        w[1] = who_of(d);
        size = EMU_DESC_SHORT;
        break;
    case EMU_OP_PUT:
    case EMU_OP_GET:
        w[1] = (uint64_t)d->length << 32;
        w[2] = d->rmt_stadd;
        w[3] = d->lcl_stadd;
        w[4] = who_of(d);
        w[5] = EMU_DESC_MTU(d) | ((uint64_t)EMU_DESC_GAP(d) << 12);
        break;
    case EMU_OP_PIGGYBACK:
        memcpy(&w[7], d->data, 8);
        memcpy(&w[1], d->data + 8, EMU_MAX_PIGGYBACK - 8);
        w[4] = who_of(d);
        w[5] = d->length;
        w[6] = d->rmt_stadd;
        break;
    default:
        w[2] = d->rmt_stadd;
        if (EMU_DESC_ARMW_OP(d) == EMU_ARMW_CSWAP) {
            w[1] = d->compare;
            w[4] = who_of(d);
            w[7] = d->operand;
        } else {
            w[1] = who_of(d);
            w[3] = d->operand;
            size = EMU_DESC_SHORT;
        }
    }
    memcpy(out, w, size);
    return size;
}

/* A NOP that a program has made by itself, with a notice in the TCQ: one without would be what memory is
 * that nobody has written. */
static bool nop_of_program(const uint64_t w[8])
{
    return (w[0] == TCQ_BIT) && (w[1] == 0) && (w[2] == 0) && (w[3] == 0);
}

static bool is_short(uint64_t head)
{
    unsigned kind = (unsigned)((head >> 4) & 0xf) + EMU_OP_NOP;

    return (kind == EMU_OP_NOP) || ((kind == EMU_OP_ARMW) && (((head >> 52) & 0xf) != EMU_ARMW_CSWAP));
}

/* From its words; which of them tells whom it is for, -1: it can't be one */
static int words_of(struct emu_desc *d, const uint64_t w[8])
{
    int op = (int)(w[0] >> 52) & 0xf;

    d->kind  = (uint8_t)(((w[0] >> 4) & 0xf) + EMU_OP_NOP);
    d->edata = (uint8_t)(w[0] >> 8);
    d->flags = ((w[0] >> 16) & FLAGS) | ((w[0] & TCQ_BIT) ? UTOFU_ONESIDED_FLAG_TCQ_NOTICE : 0);
    if ((w[0] & 0xd) || ((w[0] >> 16) & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) ||
        ((d->kind != EMU_OP_ARMW) && ((op != 0) || (w[0] >> 56)))) {
        return -1;
    }
    switch (d->kind) {
    case EMU_OP_NOP:
        return ((w[2] == 0) && (w[3] == 0)) ? 1 : -1;
    case EMU_OP_PUT:
    case EMU_OP_GET:
        /* that provider adds it to the lower half in one place, and to the upper one in the others */
        d->length    = (uint32_t)((w[1] >> 32) ? w[1] >> 32 : w[1]);
        d->flags |= ((w[5] & 0xfff) << 40) | (((w[5] >> 12) & 0xff) << 52);
        d->rmt_stadd = w[2];
        d->lcl_stadd = w[3];
        return ((d->length > EMU_MAX_PUTGET) || (EMU_DESC_MTU(d) == 0) || (EMU_DESC_MTU(d) > EMU_MAX_MTU) ||
                ((w[1] >> 32) && (uint32_t)w[1]) || (w[5] >> 20) || w[6] || w[7]) ? -1 : 4;
    case EMU_OP_PIGGYBACK:
        memcpy(d->data, &w[7], 8);
        memcpy(d->data + 8, &w[1], EMU_MAX_PIGGYBACK - 8);
        d->length    = (uint32_t)w[5];
        d->rmt_stadd = w[6];
        return (w[5] > EMU_MAX_PIGGYBACK) ? -1 : 4;
    case EMU_OP_ARMW:
        d->length    = (uint32_t)(w[0] >> 56);
        d->flags |= (uint64_t)op << 60;
        d->rmt_stadd = w[2];
        if (((d->length != 4) && (d->length != 8)) || (d->rmt_stadd % d->length) || (op < UTOFU_ARMW_OP_SWAP) ||
            (op > EMU_ARMW_CSWAP)) {
            return -1;
        }
        if (op != EMU_ARMW_CSWAP) {
            d->operand = w[3];
            return 1;
        }
        d->compare = w[1];
        d->operand = w[7];
        return (w[3] || w[5] || w[6]) ? -1 : 4;
    default:
        return -1;
    }
}

size_t emu_desc_unpack(const struct emu_vcq *vcq, const void *p, size_t left, struct emu_desc *d)
{
    uint64_t            w[8] = {0};
    struct emu_vcq_name name;
    size_t              size = EMU_DESC_SHORT;
    int                 who;

    if (left < size) {
        return 0;
    }
    memcpy(w, p, size);
    memset(d, 0, sizeof(*d));
    if (nop_of_program(w)) {
        d->kind  = EMU_OP_NOP;
        d->check = emu_desc_mark(vcq->hdl);
        d->flags = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
        return size;
    }
    if (!is_short(w[0])) {
        if (left < sizeof(w)) {
            return 0;
        }
        memcpy((char *)w + size, (const char *)p + size, sizeof(w) - size);
        size = sizeof(w);
    }
    who = words_of(d, w);
    if (who < 0) {
        return 0;
    }
    d->check  = (uint16_t)(w[who] >> ID_BITS);
    d->rmt_id = w[who] & (((uint64_t)1 << ID_BITS) - 1);
    if ((d->check != emu_desc_mark(vcq->hdl)) || (EMU_DESC_FLAGS(d) & ~EMU_POST_FLAGS) ||
        ((EMU_DESC_FLAGS(d) & EMU_PATH_FLAGS) && !emu_path_id_valid((EMU_DESC_FLAGS(d) & EMU_PATH_FLAGS) >> 28))) {
        return 0;
    }
    if (d->kind == EMU_OP_NOP) {
        return (d->rmt_id == 0) ? size : 0;
    }
    d->rmt_id |= EMU_VCQ_ID_TAG << ID_BITS;
    return emu_vcq_id_decode(d->rmt_id, &name) ? size : 0;
}
