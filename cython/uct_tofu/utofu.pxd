# SPDX-License-Identifier: BSD-3-Clause
"""What _utofu.pyx uses of utofu.h; values come from the header."""

from libc.stdint cimport uint8_t, uint16_t, uint64_t, uintptr_t


cdef extern from "utofu.h" nogil:
    ctypedef uint16_t utofu_tni_id_t
    ctypedef uint16_t utofu_cq_id_t
    ctypedef uint16_t utofu_cmp_id_t
    ctypedef uint16_t utofu_bg_id_t
    ctypedef uint8_t utofu_path_id_t
    ctypedef uintptr_t utofu_vcq_hdl_t
    ctypedef uint64_t utofu_vcq_id_t
    ctypedef uint64_t utofu_vbg_id_t
    ctypedef uint64_t utofu_stadd_t

    enum utofu_return_code:
        UTOFU_SUCCESS
        UTOFU_ERR_NOT_FOUND
        UTOFU_ERR_NOT_COMPLETED
        UTOFU_ERR_BUSY
        UTOFU_ERR_TCQ_OTHER
        UTOFU_ERR_TCQ_LENGTH
        UTOFU_ERR_MRQ_OTHER
        UTOFU_ERR_MRQ_RMT_LENGTH

    enum utofu_armw_op:
        UTOFU_ARMW_OP_SWAP
        UTOFU_ARMW_OP_ADD
        UTOFU_ARMW_OP_XOR
        UTOFU_ARMW_OP_AND
        UTOFU_ARMW_OP_OR

    enum utofu_reduce_op:
        UTOFU_REDUCE_OP_BARRIER
        UTOFU_REDUCE_OP_BAND
        UTOFU_REDUCE_OP_BOR
        UTOFU_REDUCE_OP_BXOR
        UTOFU_REDUCE_OP_MAX
        UTOFU_REDUCE_OP_MAXLOC
        UTOFU_REDUCE_OP_SUM
        UTOFU_REDUCE_OP_BFPSUM

    enum utofu_mrq_notice_type:
        UTOFU_MRQ_TYPE_LCL_PUT
        UTOFU_MRQ_TYPE_RMT_PUT
        UTOFU_MRQ_TYPE_LCL_GET
        UTOFU_MRQ_TYPE_RMT_GET
        UTOFU_MRQ_TYPE_LCL_ARMW
        UTOFU_MRQ_TYPE_RMT_ARMW

    unsigned long UTOFU_VCQ_FLAG_THREAD_SAFE
    unsigned long UTOFU_VCQ_FLAG_EXCLUSIVE
    unsigned long UTOFU_VCQ_FLAG_SESSION_MODE
    unsigned long UTOFU_VBG_FLAG_THREAD_SAFE
    unsigned long UTOFU_REG_MEM_FLAG_READ_ONLY
    unsigned long UTOFU_ONESIDED_FLAG_STRONG_ORDER
    unsigned long UTOFU_ONESIDED_FLAG_PACKET_RESPONSE
    unsigned long UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE
    unsigned long UTOFU_ONESIDED_FLAG_PADDING
    unsigned long UTOFU_ONESIDED_FLAG_CACHE_INJECTION
    unsigned long UTOFU_ONESIDED_FLAG_DELAY_START
    unsigned long UTOFU_ONESIDED_FLAG_TCQ_NOTICE
    unsigned long UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE

    unsigned long UTOFU_ONESIDED_FLAG_PATH(int)
    unsigned long UTOFU_ONESIDED_FLAG_SPS(int)
    utofu_vbg_id_t UTOFU_VBG_ID_NULL
    uint8_t UTOFU_PATH_COORD_NULL

    struct utofu_onesided_caps:
        unsigned long flags
        unsigned long armw_ops
        unsigned int num_cmp_ids
        unsigned int num_reserved_stags
        size_t cache_line_size
        size_t stag_address_alignment
        size_t max_toq_desc_size
        size_t max_putget_size
        size_t max_piggyback_size
        size_t max_edata_size
        size_t max_mtu
        size_t max_gap

    struct utofu_barrier_caps:
        unsigned long flags
        unsigned long reduce_ops
        size_t max_uint64_reduction
        size_t max_double_reduction

    struct utofu_vbg_setting:
        utofu_vbg_id_t vbg_id
        utofu_vbg_id_t src_lcl_vbg_id
        utofu_vbg_id_t src_rmt_vbg_id
        utofu_vbg_id_t dst_lcl_vbg_id
        utofu_vbg_id_t dst_rmt_vbg_id
        uint8_t dst_path_coords[3]

    struct utofu_mrq_notice:
        uint8_t notice_type
        utofu_vcq_id_t vcq_id
        uint64_t edata
        uint64_t rmt_value
        utofu_stadd_t lcl_stadd
        utofu_stadd_t rmt_stadd
