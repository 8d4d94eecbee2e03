/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_onesided.h - what the one-sided operations share: their notices, when they were carried
 * out and when they failed, and their way where the VCQ is special.
 */
#ifndef EMU_ONESIDED_H
#define EMU_ONESIDED_H

#include "emu_path.h"

#pragma GCC visibility push(hidden)

/* What the notices of an operation say.  Built on the failure path; elsewhere the
 * same values travel in registers. */
struct emu_post {
    uint64_t      rmt_id;
    uint64_t      lcl_end, rmt_end;
    uint64_t      edata;
    unsigned long flags;
    void          *cbdata;
    int           lcl_type; /* UTOFU_MRQ_TYPE_LCL_*; the remote type follows it */
};

/* An operation failed (the code).  Returns what its call does. */
EMU_COLD int emu_post_failed(struct emu_vcq *vcq, const struct emu_post *p, int code);

/* Notices of an operation that was carried out. */
EMU_INLINE int emu_post_done(struct emu_vcq *vcq, struct emu_peer *peer, int lcl_type, uint64_t lcl_end,
                            uint64_t rmt_end, uint64_t edata, unsigned long flags, void *cbdata, uint64_t value,
                            uint64_t stamp)
{
    bool get = lcl_type == UTOFU_MRQ_TYPE_LCL_GET;

    if (flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) {
        int code = emu_notify(vcq, peer, lcl_type + 1, edata, get ? lcl_end : 0, rmt_end, 0, stamp);
        if (emu_unlikely(code != UTOFU_SUCCESS)) {
            return emu_post_failed(vcq, &(struct emu_post){peer->id, lcl_end, rmt_end, edata, flags, cbdata, lcl_type},
                               (code == UTOFU_ERR_MRQ_PEER) ? code : UTOFU_ERR_MRQ_OTHER);
        }
    }
    if (flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) {
        emu_tcq_push(vcq, cbdata, UTOFU_SUCCESS);
    } else {
        emu_toq_take(vcq);
    }
    if (flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) {
        emu_mrq_push(vcq, lcl_type, peer->id, edata, value, get ? lcl_end : 0, get ? 0 : rmt_end, UTOFU_SUCCESS);
    }
    return UTOFU_SUCCESS;
}

/* The same operations on a VCQ that is special (emu_post.c) */
int emu_putget_by_desc(int kind, utofu_vcq_hdl_t hdl, uint64_t rmt_id, uint64_t lcl_stadd, uint64_t rmt_stadd,
                       size_t length, uint64_t edata, unsigned long flags, void *cbdata);
int emu_piggyback_by_desc(utofu_vcq_hdl_t hdl, uint64_t rmt_id, const void *data, uint64_t rmt_stadd, size_t length,
                          uint64_t edata, unsigned long flags, void *cbdata);
int emu_armw_by_desc(utofu_vcq_hdl_t hdl, uint64_t rmt_id, int op, unsigned size, uint64_t operand, uint64_t compare,
                     uint64_t rmt_stadd, uint64_t edata, unsigned long flags, void *cbdata);

#pragma GCC visibility pop

#endif /* EMU_ONESIDED_H */
