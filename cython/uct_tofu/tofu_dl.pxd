# SPDX-License-Identifier: BSD-3-Clause
"""What the extensions use of tofu_dl.h: the loader and its function table."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from uct_tofu.utofu cimport (
    utofu_armw_op, utofu_barrier_caps, utofu_cmp_id_t, utofu_cq_id_t,
    utofu_mrq_notice, utofu_onesided_caps, utofu_stadd_t, utofu_tni_id_t,
    utofu_vcq_hdl_t, utofu_vcq_id_t)


cdef extern from "tofu_dl.h" nogil:
    enum tofu_backend_kind:
        TOFU_BACKEND_TOFU
        TOFU_BACKEND_EMULATOR

    struct tofu_functions:
        int (*get_onesided_tnis)(utofu_tni_id_t **, size_t *) noexcept
        int (*get_barrier_tnis)(utofu_tni_id_t **, size_t *) noexcept
        int (*query_onesided_caps)(
            utofu_tni_id_t, utofu_onesided_caps **) noexcept
        int (*query_barrier_caps)(
            utofu_tni_id_t, utofu_barrier_caps **) noexcept
        int (*create_vcq)(
            utofu_tni_id_t, unsigned long, utofu_vcq_hdl_t *) noexcept
        int (*create_vcq_with_cmp_id)(
            utofu_tni_id_t, utofu_cmp_id_t, unsigned long,
            utofu_vcq_hdl_t *) noexcept
        int (*free_vcq)(utofu_vcq_hdl_t) noexcept
        int (*query_vcq_id)(utofu_vcq_hdl_t, utofu_vcq_id_t *) noexcept
        int (*construct_vcq_id)(
            uint8_t *, utofu_tni_id_t, utofu_cq_id_t, utofu_cmp_id_t,
            utofu_vcq_id_t *) noexcept
        int (*query_vcq_info)(
            utofu_vcq_id_t, uint8_t *, utofu_tni_id_t *, utofu_cq_id_t *,
            uint16_t *) noexcept
        int (*reg_mem)(
            utofu_vcq_hdl_t, void *, size_t, unsigned long,
            utofu_stadd_t *) noexcept
        int (*reg_mem_with_stag)(
            utofu_vcq_hdl_t, void *, size_t, unsigned int, unsigned long,
            utofu_stadd_t *) noexcept
        int (*query_stadd)(
            utofu_vcq_id_t, unsigned int, utofu_stadd_t *) noexcept
        int (*dereg_mem)(
            utofu_vcq_hdl_t, utofu_stadd_t, unsigned long) noexcept
        int (*put)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, uint64_t, unsigned long, void *) noexcept
        int (*put_piggyback)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, void *, utofu_stadd_t, size_t,
            uint64_t, unsigned long, void *) noexcept
        int (*put_piggyback8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, utofu_stadd_t, size_t,
            uint64_t, unsigned long, void *) noexcept
        int (*get)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t,
            size_t, uint64_t, unsigned long, void *) noexcept
        int (*armw4)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op, uint32_t,
            utofu_stadd_t, uint64_t, unsigned long, void *) noexcept
        int (*armw8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op, uint64_t,
            utofu_stadd_t, uint64_t, unsigned long, void *) noexcept
        int (*cswap4)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint32_t, uint32_t,
            utofu_stadd_t, uint64_t, unsigned long, void *) noexcept
        int (*cswap8)(
            utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, uint64_t,
            utofu_stadd_t, uint64_t, unsigned long, void *) noexcept
        int (*nop)(utofu_vcq_hdl_t, unsigned long, void *) noexcept
        int (*poll_tcq)(utofu_vcq_hdl_t, unsigned long, void **) noexcept
        int (*poll_mrq)(
            utofu_vcq_hdl_t, unsigned long, utofu_mrq_notice *) noexcept
        int (*query_num_unread_tcq)(utofu_vcq_hdl_t, size_t *) noexcept
        int (*query_num_unread_mrq)(utofu_vcq_hdl_t, size_t *) noexcept
        void (*query_tofu_version)(int *, int *) noexcept
        void (*query_utofu_version)(int *, int *) noexcept
        int (*query_my_coords)(uint8_t *) noexcept

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
