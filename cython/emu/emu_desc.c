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

size_t emu_desc_check(const struct emu_vcq *vcq, const void *p, size_t left)
{
    struct emu_desc     d = {0};
    struct emu_vcq_name name;
    uint64_t            high;

    if (left < EMU_DESC_NOP_SIZE) {
        return 0;
    }
    memcpy(&d, p, EMU_DESC_NOP_SIZE);
    if ((d.check != emu_desc_mark(vcq->hdl)) || (d.kind < EMU_OP_NOP) || (d.kind >= EMU_OP_KINDS) ||
        (EMU_DESC_FLAGS(&d) & ~EMU_POST_FLAGS) ||
        ((EMU_DESC_FLAGS(&d) & EMU_PATH_FLAGS) && !emu_path_id_valid((EMU_DESC_FLAGS(&d) & EMU_PATH_FLAGS) >> 28))) {
        return 0;
    }
    high = d.flags >> 36;
    if (d.kind == EMU_OP_NOP) {
        return ((high == 0) && (d.length == 0) && (d.rmt_id == 0) && (d.rmt_stadd == 0)) ? EMU_DESC_NOP_SIZE : 0;
    }
    if ((left < sizeof(d)) || !emu_vcq_id_decode(d.rmt_id, &name)) {
        return 0;
    }
    switch (d.kind) {
    case EMU_OP_PUT:
    case EMU_OP_GET:
        if ((d.length > EMU_MAX_PUTGET) || (EMU_DESC_MTU(&d) == 0) || (EMU_DESC_MTU(&d) > EMU_MAX_MTU) ||
            (high & 0xf) || EMU_DESC_ARMW_OP(&d)) {
            return 0;
        }
        break;
    case EMU_OP_PIGGYBACK:
        if ((d.length > EMU_MAX_PIGGYBACK) || (high != 0)) {
            return 0;
        }
        break;
    default:
        if (((d.length != 4) && (d.length != 8)) || (d.rmt_stadd % d.length) || (high & 0xffffff) ||
            (EMU_DESC_ARMW_OP(&d) < UTOFU_ARMW_OP_SWAP) || (EMU_DESC_ARMW_OP(&d) > EMU_ARMW_CSWAP)) {
            return 0;
        }
    }
    return sizeof(d);
}
