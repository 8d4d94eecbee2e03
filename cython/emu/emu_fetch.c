/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_fetch.c - get and ARMW, which bring something back, and NOP (3.7.1): carried out while
 * they are posted, as puts are (emu_put.c).
 */
#include "emu_armw.h"
#include "emu_copy.h"
#include "emu_modes.h"
#include "emu_onesided.h"
#include "emu_service.h"
#include "emu_vma.h"

EMU_EXPORT int utofu_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                         utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void *cbdata)
{
    struct emu_region *r;
    struct emu_peer   *peer;
    struct emu_vcq    *vcq;
    char              *dst = NULL;
    int                code;

    if (emu_unlikely(length > EMU_MAX_PUTGET)) {
        return (emu_vcq_of(vcq_hdl) == NULL) ? UTOFU_ERR_INVALID_VCQ_HDL : UTOFU_ERR_INVALID_SIZE;
    }
    code = emu_post_begin(vcq_hdl, edata, flags, &vcq);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        return (code == EMU_BY_DESC) ? emu_putget_by_desc(EMU_OP_GET, vcq_hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata,
                                                       flags, cbdata) : code;
    }
    code = emu_post_peer(vcq, rmt_vcq_id, &peer);
    if (code == UTOFU_SUCCESS) {
        code = emu_remote_region(peer, rmt_stadd, length, false, &r);
    }
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        goto failed;
    }
    /* the data is written here after it travelled: local errors are in the MRQ */
    code = emu_local_address(vcq, lcl_stadd, length, true, &dst);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        code = (code == UTOFU_ERR_TCQ_STADD)  ? UTOFU_ERR_MRQ_LCL_STADD :
               (code == UTOFU_ERR_TCQ_LENGTH) ? UTOFU_ERR_MRQ_LCL_LENGTH :
                                                UTOFU_ERR_MRQ_LCL_MEMORY;
        goto failed_here;
    }
    if (emu_region_direct(r, EMU_STADD_OFF(rmt_stadd), length)) {
        atomic_thread_fence(memory_order_acquire);
        emu_copy(dst, (const char *)r->base + EMU_STADD_OFF(rmt_stadd), length);
        if (emu_unlikely(emu_fault_seen)) {
            code = emu_region_cut_off(r);
            goto failed;
        }
    } else {
        code = emu_private_read(peer, r, EMU_STADD_OFF(rmt_stadd), dst, length,
                                (flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0, emu_get_order(vcq));
        if (code != UTOFU_SUCCESS) {
            code = emu_local_blame(code, UTOFU_ERR_MRQ_LCL_MEMORY, dst, length, true);
            goto failed_here;
        }
    }
    code = emu_region_still(r);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        goto failed;
    }
    code = emu_post_done(vcq, peer, UTOFU_MRQ_TYPE_LCL_GET, lcl_stadd + length, rmt_stadd + length, edata, flags, cbdata,
                         0, 0);
    emu_vcq_unlock(vcq);
    return code;

failed_here:
    if (emu_failed_here(code) && (flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) {
        (void)emu_notify(vcq, peer, UTOFU_MRQ_TYPE_RMT_GET, edata, lcl_stadd + length, rmt_stadd + length, 0, 0);
    }
failed:
    code = emu_post_failed(vcq, &(struct emu_post){rmt_vcq_id, lcl_stadd + length, rmt_stadd + length, edata, flags, cbdata,
                                           UTOFU_MRQ_TYPE_LCL_GET},
                       code);
    emu_vcq_unlock(vcq);
    return code;
}

EMU_INLINE int post_armw(utofu_vcq_hdl_t vcq_hdl, uint64_t rmt_vcq_id, int op, unsigned size, uint64_t operand,
                            uint64_t compare, uint64_t rmt_stadd, uint64_t edata, unsigned long flags, void *cbdata)
{
    struct emu_region *r;
    struct emu_peer   *peer;
    struct emu_vcq    *vcq;
    uint64_t           old = 0, off = EMU_STADD_OFF(rmt_stadd);
    int                code;

    /* STADDs are aligned as their memory is (emu_internal.h) */
    if (emu_unlikely(rmt_stadd % size)) {
        return (emu_vcq_of(vcq_hdl) == NULL) ? UTOFU_ERR_INVALID_VCQ_HDL : UTOFU_ERR_INVALID_STADD;
    }
    code = emu_post_begin(vcq_hdl, edata, flags, &vcq);
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        return (code == EMU_BY_DESC) ? emu_armw_by_desc(vcq_hdl, rmt_vcq_id, op, size, operand, compare, rmt_stadd, edata, flags,
                                                     cbdata) : code;
    }
    code = emu_post_peer(vcq, rmt_vcq_id, &peer);
    if (code == UTOFU_SUCCESS) {
        code = emu_remote_region(peer, rmt_stadd, size, true, &r);
    }
    if (emu_unlikely(code != UTOFU_SUCCESS)) {
        goto failed;
    }
    if (emu_region_direct(r, off, size)) {
        old = emu_armw_direct(op, size, (void *)(r->base + off), operand, compare);
        if (emu_unlikely(emu_fault_seen)) {
            code = emu_region_cut_off(r);
            goto failed;
        }
    } else {
        code = emu_service_armw(peer, op, size, operand, compare, rmt_stadd, r->addr + off, &old);
        if (code != UTOFU_SUCCESS) {
            goto failed;
        }
    }
    code = emu_post_done(vcq, peer, UTOFU_MRQ_TYPE_LCL_ARMW, 0, rmt_stadd, edata, flags, cbdata, old, 0);
    emu_vcq_unlock(vcq);
    return code;

failed:
    code = emu_post_failed(vcq, &(struct emu_post){rmt_vcq_id, 0, rmt_stadd, edata, flags, cbdata, UTOFU_MRQ_TYPE_LCL_ARMW},
                       code);
    emu_vcq_unlock(vcq);
    return code;
}

EMU_INLINE bool armw_op_valid(enum utofu_armw_op op)
{
    return ((int)op >= UTOFU_ARMW_OP_SWAP) && ((int)op <= UTOFU_ARMW_OP_OR);
}

EMU_EXPORT int utofu_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                           uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags,
                           void *cbdata)
{
    if (emu_unlikely(!armw_op_valid(armw_op))) {
        return (emu_vcq_of(vcq_hdl) == NULL) ? UTOFU_ERR_INVALID_VCQ_HDL : UTOFU_ERR_INVALID_OP;
    }
    return post_armw(vcq_hdl, rmt_vcq_id, (int)armw_op, 4, op_value, 0, rmt_stadd, edata, flags, cbdata);
}

EMU_EXPORT int utofu_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                           uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags,
                           void *cbdata)
{
    if (emu_unlikely(!armw_op_valid(armw_op))) {
        return (emu_vcq_of(vcq_hdl) == NULL) ? UTOFU_ERR_INVALID_VCQ_HDL : UTOFU_ERR_INVALID_OP;
    }
    return post_armw(vcq_hdl, rmt_vcq_id, (int)armw_op, 8, op_value, 0, rmt_stadd, edata, flags, cbdata);
}

EMU_EXPORT int utofu_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                            utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *cbdata)
{
    return post_armw(vcq_hdl, rmt_vcq_id, EMU_ARMW_CSWAP, 4, new_value, old_value, rmt_stadd, edata, flags, cbdata);
}

EMU_EXPORT int utofu_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                            utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *cbdata)
{
    return post_armw(vcq_hdl, rmt_vcq_id, EMU_ARMW_CSWAP, 8, new_value, old_value, rmt_stadd, edata, flags, cbdata);
}

EMU_EXPORT int utofu_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void *cbdata)
{
    struct emu_vcq *vcq;
    int             code = emu_post_begin(vcq_hdl, 0, flags, &vcq);

    if (code != UTOFU_SUCCESS) {
        if (code == EMU_BY_DESC) {
            struct emu_desc d;
            code = emu_desc_nop(&d, vcq_hdl, flags);
            return (code == UTOFU_SUCCESS) ? emu_post_desc(&d, vcq_hdl, cbdata) : code;
        }
        return code;
    }
    if (flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) {
        emu_tcq_push(vcq, cbdata, UTOFU_SUCCESS);
    } else {
        emu_toq_take(vcq);
    }
    emu_vcq_unlock(vcq);
    return UTOFU_SUCCESS;
}
