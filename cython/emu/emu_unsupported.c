/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_unsupported.c - functions of the ABI that this emulator does not carry out:
 * present, so that every uTofu program links, and they say so.
 */
#include "emu_internal.h"

#define UNSUPPORTED(name, args) \
    EMU_EXPORT int name args \
    { \
        return UTOFU_ERR_NOT_SUPPORTED; \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"

UNSUPPORTED(utofu_query_barrier_caps, (utofu_tni_id_t tni_id, struct utofu_barrier_caps **tni_caps))
UNSUPPORTED(utofu_alloc_vbg, (utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int flags, utofu_vbg_id_t
            vbg_ids[]))
UNSUPPORTED(utofu_free_vbg, (utofu_vbg_id_t vbg_ids[], size_t num_vbgs))
UNSUPPORTED(utofu_set_vbg, (struct utofu_vbg_setting vbg_settings[], size_t num_vbg_settings))
UNSUPPORTED(utofu_query_vbg_info, (utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t *tni_id, utofu_bg_id_t
            *bg_id, uint16_t *extra_val))
UNSUPPORTED(utofu_put_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t
            rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void *cbdata))
UNSUPPORTED(utofu_put_stride, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata, unsigned long
            int flags, void *cbdata))
UNSUPPORTED(utofu_put_stride_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata, unsigned long
            int flags, size_t mtu, size_t gap, void *cbdata))
UNSUPPORTED(utofu_get_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t
            rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void *cbdata))
UNSUPPORTED(utofu_get_stride, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata, unsigned long
            int flags, void *cbdata))
UNSUPPORTED(utofu_get_stride_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata, unsigned long
            int flags, size_t mtu, size_t gap, void *cbdata))
UNSUPPORTED(utofu_prepare_put, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void *desc, size_t
            *desc_size))
UNSUPPORTED(utofu_prepare_put_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap,
            void *desc, size_t *desc_size))
UNSUPPORTED(utofu_prepare_put_stride, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata, unsigned long
            int flags, void *desc, size_t *desc_size))
UNSUPPORTED(utofu_prepare_put_stride_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t
            lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
            unsigned long int flags, size_t mtu, size_t gap, void *desc, size_t *desc_size))
UNSUPPORTED(utofu_prepare_put_piggyback, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void *lcl_data,
            utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void *desc, size_t
            *desc_size))
UNSUPPORTED(utofu_prepare_put_piggyback8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
            utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void *desc, size_t
            *desc_size))
UNSUPPORTED(utofu_prepare_get, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void *desc, size_t
            *desc_size))
UNSUPPORTED(utofu_prepare_get_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap,
            void *desc, size_t *desc_size))
UNSUPPORTED(utofu_prepare_get_stride, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
            utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata, unsigned long
            int flags, void *desc, size_t *desc_size))
UNSUPPORTED(utofu_prepare_get_stride_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t
            lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
            unsigned long int flags, size_t mtu, size_t gap, void *desc, size_t *desc_size))
UNSUPPORTED(utofu_prepare_armw4, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
            uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *desc, size_t
            *desc_size))
UNSUPPORTED(utofu_prepare_armw8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
            uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *desc, size_t
            *desc_size))
UNSUPPORTED(utofu_prepare_cswap4, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t
            new_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *desc, size_t
            *desc_size))
UNSUPPORTED(utofu_prepare_cswap8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t
            new_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *desc, size_t
            *desc_size))
UNSUPPORTED(utofu_prepare_nop, (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void *desc, size_t *desc_size))
UNSUPPORTED(utofu_post_toq, (utofu_vcq_hdl_t vcq_hdl, void *desc, size_t desc_size, void *cbdata))
UNSUPPORTED(utofu_barrier, (utofu_vbg_id_t vbg_id, unsigned long int flags))
UNSUPPORTED(utofu_reduce_uint64, (utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, uint64_t data[], size_t num_data,
            unsigned long int flags))
UNSUPPORTED(utofu_reduce_double, (utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double data[], size_t num_data,
            unsigned long int flags))
UNSUPPORTED(utofu_poll_barrier, (utofu_vbg_id_t vbg_id, unsigned long int flags))
UNSUPPORTED(utofu_poll_reduce_uint64, (utofu_vbg_id_t vbg_id, unsigned long int flags, uint64_t data[]))
UNSUPPORTED(utofu_poll_reduce_double, (utofu_vbg_id_t vbg_id, unsigned long int flags, double data[]))
