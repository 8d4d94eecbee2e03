# SPDX-License-Identifier: BSD-3-Clause
"""What the extensions use of tofu_dl.h: the loader and its function table."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from uct_tofu.utofu cimport (
    utofu_armw_op, utofu_barrier_caps, utofu_bg_id_t, utofu_cmp_id_t,
    utofu_cq_id_t, utofu_mrq_notice, utofu_onesided_caps, utofu_path_id_t,
    utofu_reduce_op, utofu_stadd_t, utofu_tni_id_t, utofu_vbg_id_t,
    utofu_vbg_setting, utofu_vcq_hdl_t, utofu_vcq_id_t)


cdef extern from "tofu_dl.h" nogil:
    enum tofu_backend_kind:
        TOFU_BACKEND_TOFU
        TOFU_BACKEND_EMULATOR

    struct tofu_functions:
        int (*get_onesided_tnis)(utofu_tni_id_t **, size_t *) noexcept nogil
        int (*get_barrier_tnis)(utofu_tni_id_t **, size_t *) noexcept nogil
        int (*query_onesided_caps)(
            utofu_tni_id_t, utofu_onesided_caps **) noexcept nogil
        int (*query_barrier_caps)(
            utofu_tni_id_t, utofu_barrier_caps **) noexcept nogil
        int (*create_vcq)(
            utofu_tni_id_t, unsigned long, utofu_vcq_hdl_t *) noexcept nogil
        int (*create_vcq_with_cmp_id)(
            utofu_tni_id_t, utofu_cmp_id_t, unsigned long,
            utofu_vcq_hdl_t *) noexcept nogil
        int (*free_vcq)(utofu_vcq_hdl_t) noexcept nogil
        int (*query_vcq_id)(utofu_vcq_hdl_t, utofu_vcq_id_t *) noexcept nogil
        int (*construct_vcq_id)(
            uint8_t *, utofu_tni_id_t, utofu_cq_id_t, utofu_cmp_id_t,
            utofu_vcq_id_t *) noexcept nogil
        int (*set_vcq_id_path)(utofu_vcq_id_t *, uint8_t *) noexcept nogil
        int (*query_vcq_info)(
            utofu_vcq_id_t, uint8_t *, utofu_tni_id_t *, utofu_cq_id_t *,
            uint16_t *) noexcept nogil
        int (*alloc_vbg)(
            utofu_tni_id_t, size_t, unsigned long,
            utofu_vbg_id_t *) noexcept nogil
        int (*free_vbg)(utofu_vbg_id_t *, size_t) noexcept nogil
        int (*set_vbg)(utofu_vbg_setting *, size_t) noexcept nogil
        int (*query_vbg_info)(
            utofu_vbg_id_t, uint8_t *, utofu_tni_id_t *, utofu_bg_id_t *,
            uint16_t *) noexcept nogil
        int (*get_path_id)(
            utofu_vcq_id_t, uint8_t *, utofu_path_id_t *) noexcept nogil
        int (*get_path_coords)(
            utofu_vcq_id_t, utofu_path_id_t, uint8_t *) noexcept nogil
        int (*reg_mem)(
            utofu_vcq_hdl_t, void *, size_t, unsigned long,
            utofu_stadd_t *) noexcept nogil
        int (*reg_mem_with_stag)(
            utofu_vcq_hdl_t, void *, size_t, unsigned int, unsigned long,
            utofu_stadd_t *) noexcept nogil
        int (*query_stadd)(
            utofu_vcq_id_t, unsigned int, utofu_stadd_t *) noexcept nogil
        int (*dereg_mem)(
            utofu_vcq_hdl_t, utofu_stadd_t, unsigned long) noexcept nogil
        int (*put)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, uint64_t, unsigned long, void *) noexcept nogil
        int (*put_gap)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t,
            utofu_stadd_t, size_t, uint64_t, unsigned long,
            size_t, size_t, void *) noexcept nogil
        int (*put_stride)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t,
            utofu_stadd_t, size_t, size_t, size_t, uint64_t,
            unsigned long, void *) noexcept nogil
        int (*put_stride_gap)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, size_t, size_t, uint64_t, unsigned long, size_t, size_t,
            void *) noexcept nogil
        int (*put_piggyback)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, void *, utofu_stadd_t, size_t,
            uint64_t, unsigned long, void *) noexcept nogil
        int (*put_piggyback8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, utofu_stadd_t, size_t,
            uint64_t, unsigned long, void *) noexcept nogil
        int (*get)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, uint64_t, unsigned long, void *) noexcept nogil
        int (*get_gap)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t,
            utofu_stadd_t, size_t, uint64_t, unsigned long,
            size_t, size_t, void *) noexcept nogil
        int (*get_stride)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t,
            utofu_stadd_t, size_t, size_t, size_t, uint64_t,
            unsigned long, void *) noexcept nogil
        int (*get_stride_gap)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, size_t, size_t, uint64_t, unsigned long, size_t, size_t,
            void *) noexcept nogil
        int (*armw4)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op, uint32_t,
            utofu_stadd_t, uint64_t, unsigned long, void *) noexcept nogil
        int (*armw8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op, uint64_t,
            utofu_stadd_t, uint64_t, unsigned long, void *) noexcept nogil
        int (*cswap4)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint32_t, uint32_t,
            utofu_stadd_t, uint64_t, unsigned long, void *) noexcept nogil
        int (*cswap8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, uint64_t,
            utofu_stadd_t, uint64_t, unsigned long, void *) noexcept nogil
        int (*nop)(utofu_vcq_hdl_t, unsigned long, void *) noexcept nogil
        int (*prepare_put)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, uint64_t, unsigned long, void *, size_t *) noexcept nogil
        int (*prepare_put_gap)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t,
            utofu_stadd_t, size_t, uint64_t, unsigned long,
            size_t, size_t, void *, size_t *) noexcept nogil
        int (*prepare_put_stride)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t,
            utofu_stadd_t, size_t, size_t, size_t, uint64_t,
            unsigned long, void *, size_t *) noexcept nogil
        int (*prepare_put_stride_gap)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, size_t, size_t, uint64_t, unsigned long, size_t, size_t,
            void *, size_t *) noexcept nogil
        int (*prepare_put_piggyback)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, void *, utofu_stadd_t, size_t,
            uint64_t, unsigned long, void *, size_t *) noexcept nogil
        int (*prepare_put_piggyback8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, utofu_stadd_t, size_t,
            uint64_t, unsigned long, void *, size_t *) noexcept nogil
        int (*prepare_get)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, uint64_t, unsigned long, void *, size_t *) noexcept nogil
        int (*prepare_get_gap)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t,
            utofu_stadd_t, size_t, uint64_t, unsigned long,
            size_t, size_t, void *, size_t *) noexcept nogil
        int (*prepare_get_stride)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t,
            utofu_stadd_t, size_t, size_t, size_t, uint64_t,
            unsigned long, void *, size_t *) noexcept nogil
        int (*prepare_get_stride_gap)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, size_t, size_t, uint64_t, unsigned long, size_t, size_t,
            void *, size_t *) noexcept nogil
        int (*prepare_armw4)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op,
            uint32_t, utofu_stadd_t, uint64_t, unsigned long,
            void *, size_t *) noexcept nogil
        int (*prepare_armw8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op,
            uint64_t, utofu_stadd_t, uint64_t, unsigned long,
            void *, size_t *) noexcept nogil
        int (*prepare_cswap4)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint32_t, uint32_t,
            utofu_stadd_t, uint64_t, unsigned long, void *,
            size_t *) noexcept nogil
        int (*prepare_cswap8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, uint64_t,
            utofu_stadd_t, uint64_t, unsigned long, void *,
            size_t *) noexcept nogil
        int (*prepare_nop)(
            utofu_vcq_hdl_t, unsigned long, void *, size_t *) noexcept nogil
        int (*post_toq)(utofu_vcq_hdl_t, void *, size_t, void *) noexcept nogil
        int (*poll_tcq)(utofu_vcq_hdl_t, unsigned long, void **) noexcept nogil
        int (*poll_mrq)(
            utofu_vcq_hdl_t, unsigned long, utofu_mrq_notice *) noexcept nogil
        int (*query_num_unread_tcq)(utofu_vcq_hdl_t, size_t *) noexcept nogil
        int (*query_num_unread_mrq)(utofu_vcq_hdl_t, size_t *) noexcept nogil
        int (*barrier)(utofu_vbg_id_t, unsigned long) noexcept nogil
        int (*reduce_uint64)(
            utofu_vbg_id_t, utofu_reduce_op, uint64_t *, size_t,
            unsigned long) noexcept nogil
        int (*reduce_double)(
            utofu_vbg_id_t, utofu_reduce_op, double *, size_t,
            unsigned long) noexcept nogil
        int (*poll_barrier)(utofu_vbg_id_t, unsigned long) noexcept nogil
        int (*poll_reduce_uint64)(
            utofu_vbg_id_t, unsigned long, uint64_t *) noexcept nogil
        int (*poll_reduce_double)(
            utofu_vbg_id_t, unsigned long, double *) noexcept nogil
        void (*query_tofu_version)(int *, int *) noexcept nogil
        void (*query_utofu_version)(int *, int *) noexcept nogil
        int (*query_my_coords)(uint8_t *) noexcept nogil

    struct tofu_backend:
        tofu_backend_kind kind
        char *path
        char *reason
        uint64_t network_id
        size_t num_tnis
        tofu_functions fn

    int tofu_backend_load(const char *choice, const tofu_backend **backend_p,
                          char *err, size_t err_size) noexcept
    const char *tofu_code_name(int code) noexcept
