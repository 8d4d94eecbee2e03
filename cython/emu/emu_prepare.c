/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_prepare.c - utofu_prepare_* (3.7.2): the descriptor of an operation, written
 * to memory of the caller.  The arguments are checked as the posting functions do.
 */
#include "emu_desc.h"

/* desc must be aligned to 8 bytes (3.7.2) */
static int target_check(const void *desc, const size_t *desc_size)
{
    return ((desc == NULL) || ((uintptr_t)desc % 8) || (desc_size == NULL)) ? UTOFU_ERR_INVALID_POINTER : UTOFU_SUCCESS;
}

static int put_out(int code, const struct emu_desc *d, void *desc, size_t *desc_size)
{
    if (code == UTOFU_SUCCESS) {
        code = target_check(desc, desc_size);
    }
    if (code == UTOFU_SUCCESS) {
        *desc_size = emu_desc_pack(d, desc);
    }
    return code;
}

static int put_out_stride(int code, struct emu_desc *d, size_t stride, size_t num_blocks, void *desc, size_t *desc_size)
{
    char *out = desc;

    if (code == UTOFU_SUCCESS) {
        code = target_check(desc, desc_size);
    }
    if ((code == UTOFU_SUCCESS) && ((num_blocks == 0) || (num_blocks > EMU_TOQ_ENTRIES))) {
        code = UTOFU_ERR_INVALID_NUMBER;
    }
    if (code != UTOFU_SUCCESS) {
        return code;
    }
    for (size_t i = 0; i < num_blocks; i++) {
        out += emu_desc_pack(d, out);
        d->lcl_stadd += stride;
        d->rmt_stadd += stride;
    }
    *desc_size = (size_t)(out - (char *)desc);
    return UTOFU_SUCCESS;
}

#define PUTGET(name, kind_) \
    EMU_EXPORT int utofu_prepare_##name(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, \
                                        utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, \
                                        unsigned long int flags, void *desc, size_t *desc_size) \
    { \
        struct emu_desc d; \
        int code = emu_desc_putget(&d, vcq_hdl, kind_, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, \
                                   EMU_MAX_MTU, 0); \
        return put_out(code, &d, desc, desc_size); \
    } \
    EMU_EXPORT int utofu_prepare_##name##_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, \
                                              utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, \
                                              uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, \
                                              void *desc, size_t *desc_size) \
    { \
        struct emu_desc d; \
        int code = emu_desc_putget(&d, vcq_hdl, kind_, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, \
                                   gap); \
        return put_out(code, &d, desc, desc_size); \
    } \
    EMU_EXPORT int utofu_prepare_##name##_stride( \
            utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, \
            size_t length, size_t stride, size_t num_blocks, uint64_t edata, unsigned long int flags, void *desc, \
            size_t *desc_size) \
    { \
        struct emu_desc d; \
        int code = emu_desc_putget(&d, vcq_hdl, kind_, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, \
                                   EMU_MAX_MTU, 0); \
        return put_out_stride(code, &d, stride, num_blocks, desc, desc_size); \
    } \
    EMU_EXPORT int utofu_prepare_##name##_stride_gap( \
            utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, \
            size_t length, size_t stride, size_t num_blocks, uint64_t edata, unsigned long int flags, size_t mtu, \
            size_t gap, void *desc, size_t *desc_size) \
    { \
        struct emu_desc d; \
        int code = emu_desc_putget(&d, vcq_hdl, kind_, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, \
                                   gap); \
        return put_out_stride(code, &d, stride, num_blocks, desc, desc_size); \
    }
PUTGET(put, EMU_OP_PUT)
PUTGET(get, EMU_OP_GET)

EMU_EXPORT int utofu_prepare_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void *lcl_data,
                                           utofu_stadd_t rmt_stadd, size_t length, uint64_t edata,
                                           unsigned long int flags, void *desc, size_t *desc_size)
{
    struct emu_desc d;
    int             code = emu_desc_piggyback(&d, vcq_hdl, rmt_vcq_id, lcl_data, rmt_stadd, length, EMU_MAX_PIGGYBACK,
                                              edata, flags);

    return put_out(code, &d, desc, desc_size);
}

EMU_EXPORT int utofu_prepare_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                                            utofu_stadd_t rmt_stadd, size_t length, uint64_t edata,
                                            unsigned long int flags, void *desc, size_t *desc_size)
{
    struct emu_desc d;
    int             code = emu_desc_piggyback(&d, vcq_hdl, rmt_vcq_id, &lcl_data, rmt_stadd, length, 8, edata, flags);

    return put_out(code, &d, desc, desc_size);
}

#define ARMW(bytes, type) \
    EMU_EXPORT int utofu_prepare_armw##bytes(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, \
                                             enum utofu_armw_op armw_op, type op_value, utofu_stadd_t rmt_stadd, \
                                             uint64_t edata, unsigned long int flags, void *desc, size_t *desc_size) \
    { \
        struct emu_desc d = {0}; \
        int code = ((int)armw_op > UTOFU_ARMW_OP_OR) ? \
                           ((emu_vcq_of(vcq_hdl) == NULL) ? UTOFU_ERR_INVALID_VCQ_HDL : UTOFU_ERR_INVALID_OP) : \
                           emu_desc_armw(&d, vcq_hdl, rmt_vcq_id, (int)armw_op, bytes, op_value, 0, rmt_stadd, edata, \
                                         flags); \
        return put_out(code, &d, desc, desc_size); \
    } \
    EMU_EXPORT int utofu_prepare_cswap##bytes(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, type old_value, \
                                              type new_value, utofu_stadd_t rmt_stadd, uint64_t edata, \
                                              unsigned long int flags, void *desc, size_t *desc_size) \
    { \
        struct emu_desc d; \
        int code = emu_desc_armw(&d, vcq_hdl, rmt_vcq_id, EMU_ARMW_CSWAP, bytes, new_value, old_value, rmt_stadd, \
                                 edata, flags); \
        return put_out(code, &d, desc, desc_size); \
    }
ARMW(4, uint32_t)
ARMW(8, uint64_t)

EMU_EXPORT int utofu_prepare_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void *desc, size_t *desc_size)
{
    struct emu_desc d;

    return put_out(emu_desc_nop(&d, vcq_hdl, flags), &d, desc, desc_size);
}
