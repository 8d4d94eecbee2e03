/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_onesided.c - one-sided operations off the fast way: those that fail, and those of special VCQs. */
#include "emu_onesided.h"

#include "emu_desc.h"
#include "emu_modes.h"

/* An operation failed: TCQ errors end there, others go to the MRQ, whatever
 * notices were asked for (2.2.12, 3.7). */
int emu_post_failed(struct emu_vcq *vcq, const struct emu_post *p, int code)
{
    bool get = p->lcl_type == UTOFU_MRQ_TYPE_LCL_GET;

    if ((code <= UTOFU_ERR_INVALID_ARG) || ((code > UTOFU_ERR_TCQ_OTHER) && (code < 0))) {
        return code; /* not posted */
    }
    if (code > UTOFU_ERR_MRQ_OTHER) {
        emu_tcq_push(vcq, p->cbdata, code);
    } else {
        if (p->flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) {
            emu_tcq_push(vcq, p->cbdata, UTOFU_SUCCESS);
        } else {
            emu_toq_take(vcq);
        }
        if (!(p->flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)) {
            emu_mrq_gather(vcq); /* else it was done when the operation began */
        }
        emu_mrq_push(vcq, p->lcl_type, emu_canonical_id(p->rmt_id), p->edata, 0, get ? p->lcl_end : 0, get ? 0 : p->rmt_end,
                 code);
    }
    return UTOFU_SUCCESS;
}

int emu_putget_by_desc(int kind, utofu_vcq_hdl_t hdl, uint64_t rmt_id, uint64_t lcl_stadd, uint64_t rmt_stadd,
                       size_t length, uint64_t edata, unsigned long flags, void *cbdata)
{
    struct emu_desc d;
    int code = emu_desc_putget(&d, hdl, kind, rmt_id, lcl_stadd, rmt_stadd, length, edata, flags, EMU_MAX_MTU, 0);

    return (code == UTOFU_SUCCESS) ? emu_post_desc(&d, hdl, cbdata) : code;
}

int emu_piggyback_by_desc(utofu_vcq_hdl_t hdl, uint64_t rmt_id, const void *data, uint64_t rmt_stadd, size_t length,
                          uint64_t edata, unsigned long flags, void *cbdata)
{
    struct emu_desc d;
    int code = emu_desc_piggyback(&d, hdl, rmt_id, data, rmt_stadd, length, EMU_MAX_PIGGYBACK, edata, flags);

    return (code == UTOFU_SUCCESS) ? emu_post_desc(&d, hdl, cbdata) : code;
}

int emu_armw_by_desc(utofu_vcq_hdl_t hdl, uint64_t rmt_id, int op, unsigned size, uint64_t operand, uint64_t compare,
                     uint64_t rmt_stadd, uint64_t edata, unsigned long flags, void *cbdata)
{
    struct emu_desc d;
    int code = emu_desc_armw(&d, hdl, rmt_id, op, size, operand, compare, rmt_stadd, edata, flags);

    return (code == UTOFU_SUCCESS) ? emu_post_desc(&d, hdl, cbdata) : code;
}
