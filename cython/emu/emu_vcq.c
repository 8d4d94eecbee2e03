/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_vcq.c - VCQs and where on their CQs they are (3.3, chapter 6).
 *
 * Which CQ a process takes is decided in emu_cq.c.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_modes.h"
#include "emu_stamp.h"

#include <stdlib.h>
#include <string.h>

#define VCQ_FLAGS (UTOFU_VCQ_FLAG_THREAD_SAFE | UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE)

#define CMP_ANY UINT32_MAX

static _Atomic uint64_t *node_vcqs(unsigned cq_index)
{
    return &emu_g.control->node[emu_g.node].vcq[cq_index * EMU_NUM_CMPS];
}

/* Choose CQ and component (control locked). */
static int place(unsigned tni, uint32_t want_cmp, unsigned long flags, uint16_t *cq_p, uint16_t *cmp_p)
{
    struct emu_cq_slot *cq = &emu_g.control->node[emu_g.node].cq[tni * EMU_NUM_CQS];
    int                 q;

    if (flags & (UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE)) {
        /* VCQs of a CQ share its TOQ, so session mode, too, takes one of its own */
        q = emu_cq_take(tni, (flags & UTOFU_VCQ_FLAG_EXCLUSIVE) ? EMU_CQ_EXCLUSIVE : EMU_CQ_SESSION);
        if (q < 0) {
            return UTOFU_ERR_NOT_AVAILABLE;
        }
        *cq_p  = (uint16_t)q;
        *cmp_p = 0;
        return UTOFU_SUCCESS;
    }
    if ((want_cmp != CMP_ANY) &&
        ((cq[emu_g.first_cq[tni]].kind != EMU_CQ_SHARED) || (cq[emu_g.first_cq[tni]].owner != emu_g.slot))) {
        q = emu_cq_take_first(tni); /* its VCQs were freed: peers predict it yet */
        if (q >= 0) {
            *cq_p  = (uint16_t)q;
            *cmp_p = (uint16_t)want_cmp;
            return UTOFU_SUCCESS;
        }
    }
    for (int i = -1; i < (int)EMU_NUM_CQS; i++) {
        q = (i < 0) ? emu_g.first_cq[tni] : i;
        if ((cq[q].kind != EMU_CQ_SHARED) || (cq[q].owner != emu_g.slot)) {
            continue;
        }
        _Atomic uint64_t *vcqs = node_vcqs(tni * EMU_NUM_CQS + (unsigned)q);
        if (want_cmp != CMP_ANY) {
            /* component IDs count on the process' first shared CQ, which peers predict */
            if (atomic_load(&vcqs[want_cmp]) != 0) {
                return UTOFU_ERR_USED;
            }
            *cq_p  = (uint16_t)q;
            *cmp_p = (uint16_t)want_cmp;
            return UTOFU_SUCCESS;
        }
        /* keep away from the low IDs, which components like to choose */
        for (int m = EMU_NUM_CMPS - 1; m >= 0; m--) {
            if (atomic_load(&vcqs[m]) == 0) {
                *cq_p  = (uint16_t)q;
                *cmp_p = (uint16_t)m;
                return UTOFU_SUCCESS;
            }
        }
    }
    q = emu_cq_take(tni, EMU_CQ_SHARED);
    if (q < 0) {
        return UTOFU_ERR_FULL;
    }
    *cq_p  = (uint16_t)q;
    *cmp_p = (uint16_t)((want_cmp == CMP_ANY) ? EMU_NUM_CMPS - 1 : want_cmp);
    return UTOFU_SUCCESS;
}

bool emu_on_same_cq(const struct emu_vcq *a, const struct emu_vcq *b)
{
    return (a != NULL) && (a->tni == b->tni) && (a->cq == b->cq);
}

bool emu_shares_cq(const struct emu_vcq *vcq)
{
    return emu_g.control->node[emu_g.node].cq[vcq->tni * EMU_NUM_CQS + vcq->cq].users > 1;
}

/* The index stays taken until all is gone: STag table, session and block in the process
 * segment are those of whatever VCQ has it.  emu_g.lock is not held, since emu_mem_fini
 * takes mem_lock. */
static void vcq_free_memory(struct emu_vcq *vcq)
{
    struct emu_vcq_block *block = vcq->block;

    emu_wire_fini(vcq);
    emu_stats_close(vcq);
    emu_session_fini(vcq);
    emu_mem_fini(vcq);
    emu_queue_fini(vcq);
    pthread_mutex_destroy(&vcq->lock);
    free(vcq);
    if (block != NULL) {
        emu_lock(&emu_g.lock);
        atomic_store(&block->taken, 0);
        emu_unlock(&emu_g.lock);
    }
}

static int vcq_create(unsigned tni, uint32_t cmp, unsigned long flags, utofu_vcq_hdl_t *hdl_p)
{
    struct emu_vcq_name name;
    struct emu_vcq     *vcq;
    uint32_t            index;
    int                 code = emu_inject_vcq();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (posix_memalign((void **)&vcq, EMU_LINE, sizeof(*vcq))) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    memset(vcq, 0, sizeof(*vcq));
    pthread_mutex_init(&vcq->lock, NULL);
    vcq->special  = emu_g.env.special | ((flags & UTOFU_VCQ_FLAG_THREAD_SAFE) ? EMU_SPECIAL_LOCKED : 0) |
                    ((flags & UTOFU_VCQ_FLAG_SESSION_MODE) ? EMU_SPECIAL_SESSION : 0);
    vcq->lines_unordered = emu_g.env.lines_unordered;
    vcq->rehome          = emu_g.env.rehome != EMU_REHOME_OFF;
    vcq->mrq_entries = (flags & UTOFU_VCQ_FLAG_SESSION_MODE) ? emu_g.env.mrq_entries_session : emu_g.env.mrq_entries;
    if (vcq->special & EMU_SPECIAL_SESSION) { /* its operations are carried out by others */
        vcq->special &= ~(EMU_SPECIAL_WIRE | EMU_SPECIAL_TIMED | EMU_SPECIAL_INJECT);
    }
    emu_toq_set(vcq, EMU_TOQ_ENTRIES);
    vcq->toq_end  = EMU_TOQ_ENTRIES;
    vcq->last     = &emu_no_peer;
    vcq->tni      = (uint16_t)tni;
    /* without emu_g.lock: the thread that carries operations out takes it */
    if ((vcq->special & EMU_SPECIAL_WIRE) && !(vcq->special & EMU_SPECIAL_SESSION)) {
        code = emu_wire_init(vcq);
    }
    if ((code == UTOFU_SUCCESS) && (vcq->special & EMU_SPECIAL_STATS)) {
        code = emu_stats_open(vcq);
    }
    if (code != UTOFU_SUCCESS) {
        vcq_free_memory(vcq);
        return code;
    }

    emu_lock(&emu_g.lock);
    for (index = 0; (index < EMU_MAX_VCQS) && ((emu_g.vcqs[index].vcq != NULL) || atomic_load(&emu_g.shm->vcq[index].taken));
         index++) {
    }
    if (index == EMU_MAX_VCQS) {
        emu_unlock(&emu_g.lock);
        emu_stats_forget(vcq);
        vcq_free_memory(vcq);
        return UTOFU_ERR_FULL;
    }
    vcq->index = index;
    vcq->block = &emu_g.shm->vcq[index];
    atomic_store(&vcq->block->taken, 1);
    vcq->lanes_given = atomic_load(&emu_g.shm->lanes_wanted); /* it has none to give yet */
    code             = emu_mem_init(vcq);
    if (code == UTOFU_SUCCESS) {
        code = emu_queue_init(vcq);
    }
    if ((code == UTOFU_SUCCESS) && (vcq->special & EMU_SPECIAL_SESSION)) {
        code = emu_session_init(vcq);
    }
    if (code != UTOFU_SUCCESS) {
        goto err_free;
    }
    if (!emu_control_lock()) {
        code = UTOFU_ERR_OUT_OF_RESOURCE;
        goto err_free;
    }
    code = place(tni, cmp, flags, &vcq->cq, &vcq->cmp);
    if (code != UTOFU_SUCCESS) {
        emu_control_unlock();
        goto err_free;
    }
    memcpy(name.coords, emu_g.coords, 6);
    memcpy(name.path, emu_g.coords + 3, 3);
    name.tni = vcq->tni;
    name.cq  = vcq->cq;
    name.cmp = vcq->cmp;
    vcq->id  = emu_vcq_id_encode(&name);

    vcq->slot     = emu_g.slot;
    vcq->slot_gen = emu_g.gen;

    vcq->block->vcq_id      = vcq->id;
    vcq->block->mrq_entries = vcq->mrq_entries;
    vcq->block->session     = (flags & UTOFU_VCQ_FLAG_SESSION_MODE) != 0;
    atomic_store(&vcq->block->epoch, 0);
    atomic_store(&vcq->block->announced, 0);
    emu_stamps_reset(vcq->block, (vcq->special & EMU_SPECIAL_SESSION) != 0);
    vcq->gen = atomic_fetch_add(&emu_g.control->vcq_gen[emu_g.slot][index], 1) + 1; /* odd: it exists */
    emu_g.control->node[emu_g.node].cq[tni * EMU_NUM_CQS + vcq->cq].users++;
    vcq->stadd_top = EMU_STADD_TOP(
        emu_g.control->node[emu_g.node].turn[(tni * EMU_NUM_CQS + vcq->cq) * EMU_NUM_CMPS + vcq->cmp]++, vcq->cmp);
    atomic_store(&node_vcqs(tni * EMU_NUM_CQS + vcq->cq)[vcq->cmp], EMU_VCQ_OWNER(emu_g.slot, index));
    emu_control_unlock();

    vcq->hdl          = ((utofu_vcq_hdl_t)(++emu_g.vcq_serial[index]) << 16) | (index + 1);
    atomic_store(&emu_g.vcqs[index].vcq, vcq);
    atomic_store(&emu_g.vcqs[index].hdl, vcq->hdl);
    *hdl_p            = vcq->hdl;
    emu_unlock(&emu_g.lock);
    return UTOFU_SUCCESS;

err_free:
    emu_unlock(&emu_g.lock);
    emu_stats_forget(vcq);
    vcq_free_memory(vcq);
    return code;
}

EMU_EXPORT int utofu_create_vcq(utofu_tni_id_t tni_id, unsigned long int flags, utofu_vcq_hdl_t *vcq_hdl)
{
    int code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (tni_id >= EMU_NUM_TNIS) {
        return UTOFU_ERR_INVALID_TNI_ID;
    }
    if ((flags & ~VCQ_FLAGS) ||
        ((flags & UTOFU_VCQ_FLAG_EXCLUSIVE) && (flags & UTOFU_VCQ_FLAG_SESSION_MODE))) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    if (vcq_hdl == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    return vcq_create(tni_id, CMP_ANY, flags, vcq_hdl);
}

EMU_EXPORT int utofu_create_vcq_with_cmp_id(utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id, unsigned long int flags,
                                            utofu_vcq_hdl_t *vcq_hdl)
{
    int code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (tni_id >= EMU_NUM_TNIS) {
        return UTOFU_ERR_INVALID_TNI_ID;
    }
    if (cmp_id >= EMU_NUM_CMPS) {
        return UTOFU_ERR_INVALID_CMP_ID;
    }
    if (flags & ~UTOFU_VCQ_FLAG_THREAD_SAFE) {
        return UTOFU_ERR_INVALID_FLAGS; /* exclusive and session mode can't be combined with it (3.3.4.1) */
    }
    if (vcq_hdl == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    return vcq_create(tni_id, cmp_id, flags, vcq_hdl);
}

EMU_EXPORT int utofu_free_vcq(utofu_vcq_hdl_t vcq_hdl)
{
    struct emu_vcq *vcq;

    emu_lock(&emu_g.lock);
    vcq = emu_vcq_of(vcq_hdl);
    if (vcq != NULL) {
        atomic_store(&emu_g.vcqs[vcq->index].hdl, 0);
        atomic_store(&emu_g.vcqs[vcq->index].vcq, NULL); /* the handle is invalid now; its index is free at the end */
    }
    emu_unlock(&emu_g.lock);
    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    emu_wire_fini(vcq); /* what was posted is carried out */
    /* peers see it go first: operations towards it fail from here on */
    emu_vcq_gone(vcq);
    if (vcq->session != NULL) {
        emu_session_close(vcq);
    }
    emu_lock(&emu_g.lock);
    if (emu_control_lock()) {
        bool                ours = !emu_vcq_reclaimed(vcq);
        struct emu_cq_slot *cq = &emu_g.control->node[emu_g.node].cq[vcq->tni * EMU_NUM_CQS + vcq->cq];
        if (ours) {
            atomic_store(&node_vcqs(vcq->tni * EMU_NUM_CQS + vcq->cq)[vcq->cmp], 0);
        }
        if (ours && (--cq->users == 0)) {
            cq->kind = EMU_CQ_FREE;
        }
        emu_control_unlock();
    }
    emu_peers_release(vcq);
    emu_unlock(&emu_g.lock);
    vcq_free_memory(vcq);
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_query_vcq_id(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t *vcq_id)
{
    struct emu_vcq *vcq = emu_vcq_of(vcq_hdl);

    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (vcq_id == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    *vcq_id = vcq->id;
    return UTOFU_SUCCESS;
}
