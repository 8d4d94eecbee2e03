/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_caps.c - TNIs, their features and limits, versions (3.2, 3.9, chapter 6). */
#include "emu_internal.h"

#include <stdlib.h>

static struct utofu_onesided_caps onesided_caps = {
    .flags    = UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE | UTOFU_ONESIDED_CAP_FLAG_ARMW,
    .armw_ops = UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP | UTOFU_ONESIDED_CAP_ARMW_OP_SWAP | UTOFU_ONESIDED_CAP_ARMW_OP_ADD |
                UTOFU_ONESIDED_CAP_ARMW_OP_XOR | UTOFU_ONESIDED_CAP_ARMW_OP_AND | UTOFU_ONESIDED_CAP_ARMW_OP_OR,
    .num_cmp_ids            = EMU_NUM_CMPS,
    .num_reserved_stags     = EMU_NUM_STAGS_USER,
    .cache_line_size        = 256,
    .stag_address_alignment = 256,
    .max_toq_desc_size      = 64,
    .max_putget_size        = EMU_MAX_PUTGET,
    .max_piggyback_size     = EMU_MAX_PIGGYBACK,
    .max_edata_size         = 1,
    .max_mtu                = 1920,
    .max_gap                = 255,
};

static struct utofu_barrier_caps barrier_caps = { /* table 6.5 */
    .flags      = 0,
    .reduce_ops = UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER | UTOFU_BARRIER_CAP_REDUCE_OP_BAND |
                  UTOFU_BARRIER_CAP_REDUCE_OP_BOR | UTOFU_BARRIER_CAP_REDUCE_OP_BXOR | UTOFU_BARRIER_CAP_REDUCE_OP_MAX |
                  UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC | UTOFU_BARRIER_CAP_REDUCE_OP_SUM |
                  UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM,
    .max_uint64_reduction = EMU_MAX_REDUCE_U,
    .max_double_reduction = EMU_MAX_REDUCE_D,
};

/* Every TNI does both kinds of communication */
static int get_tnis(utofu_tni_id_t **tni_ids, size_t *num_tnis)
{
    utofu_tni_id_t *ids;
    int             code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if ((tni_ids == NULL) || (num_tnis == NULL)) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    ids = malloc(EMU_NUM_TNIS * sizeof(*ids)); /* the caller frees it */
    if (ids == NULL) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < EMU_NUM_TNIS; i++) {
        ids[i] = (utofu_tni_id_t)i;
    }
    *tni_ids  = ids;
    *num_tnis = EMU_NUM_TNIS;
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_get_onesided_tnis(utofu_tni_id_t **tni_ids, size_t *num_tnis)
{
    return get_tnis(tni_ids, num_tnis);
}

EMU_EXPORT int utofu_get_barrier_tnis(utofu_tni_id_t **tni_ids, size_t *num_tnis)
{
    return get_tnis(tni_ids, num_tnis);
}

EMU_EXPORT int utofu_query_barrier_caps(utofu_tni_id_t tni_id, struct utofu_barrier_caps **tni_caps)
{
    if (tni_id >= EMU_NUM_TNIS) {
        return UTOFU_ERR_INVALID_TNI_ID;
    }
    if (tni_caps == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    *tni_caps = &barrier_caps;
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_query_onesided_caps(utofu_tni_id_t tni_id, struct utofu_onesided_caps **tni_caps)
{
    if (tni_id >= EMU_NUM_TNIS) {
        return UTOFU_ERR_INVALID_TNI_ID;
    }
    if (tni_caps == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    *tni_caps = &onesided_caps;
    return UTOFU_SUCCESS;
}

EMU_EXPORT void utofu_query_tofu_version(int *major_ver, int *minor_ver)
{
    if (major_ver != NULL) {
        *major_ver = 3; /* table 6.1 */
    }
    if (minor_ver != NULL) {
        *minor_ver = 0;
    }
}

EMU_EXPORT void utofu_query_utofu_version(int *major_ver, int *minor_ver)
{
    if (major_ver != NULL) {
        *major_ver = UTOFU_VERSION_MAJOR;
    }
    if (minor_ver != NULL) {
        *minor_ver = UTOFU_VERSION_MINOR;
    }
}
