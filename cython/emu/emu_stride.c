/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_stride.c - put and get with gap and stride (3.7.1.2-4, 3.7.1.8-10).
 *
 * MTU and gap shape the traffic of a network: they matter to the clock of the timed
 * mode only.  A call with stride posts num_blocks descriptors or, when the TOQ has
 * no room for all of them, none.
 */
#include "emu_desc.h"

#define PUTGET(name, kind) \
    EMU_EXPORT int utofu_##name##_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, \
                                      utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, \
                                      unsigned long int flags, size_t mtu, size_t gap, void *cbdata) \
    { \
        struct emu_desc d; \
        int code = emu_desc_putget(&d, vcq_hdl, kind, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, \
                                   gap); \
        return (code != UTOFU_SUCCESS) ? code : emu_post_desc(&d, vcq_hdl, cbdata); \
    } \
    EMU_EXPORT int utofu_##name##_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, \
                                         utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, \
                                         uint64_t edata, unsigned long int flags, void *cbdata) \
    { \
        struct emu_desc d; \
        int code = emu_desc_putget(&d, vcq_hdl, kind, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, \
                                   EMU_MAX_MTU, 0); \
        return (code != UTOFU_SUCCESS) ? code : emu_post_stride(&d, vcq_hdl, stride, num_blocks, cbdata); \
    } \
    EMU_EXPORT int utofu_##name##_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, \
                                             utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, \
                                             size_t stride, size_t num_blocks, uint64_t edata, \
                                             unsigned long int flags, size_t mtu, size_t gap, void *cbdata) \
    { \
        struct emu_desc d; \
        int code = emu_desc_putget(&d, vcq_hdl, kind, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, \
                                   gap); \
        return (code != UTOFU_SUCCESS) ? code : emu_post_stride(&d, vcq_hdl, stride, num_blocks, cbdata); \
    }
PUTGET(put, EMU_OP_PUT)
PUTGET(get, EMU_OP_GET)
