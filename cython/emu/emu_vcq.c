/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_vcq.c - VCQs and the CQs they are on (3.3, chapter 6).
 *
 * The CQs of a node are in the job's control segment, shared by the processes on
 * that node; each CQ belongs to one process.  CQs that VCQs share are taken from
 * the lowest number up and exclusive ones from the highest down, so that the
 * first VCQ made with a component ID is on a CQ that peers can predict.
 */
#include "emu_internal.h"
#include "emu_modes.h"

#include <stdlib.h>
#include <string.h>

#define VCQ_FLAGS (UTOFU_VCQ_FLAG_THREAD_SAFE | UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE)

#define CMP_ANY UINT32_MAX

static _Atomic uint64_t *node_vcqs(unsigned cq_index)
{
    return &emu_g.control->node[emu_g.node].vcq[cq_index * EMU_NUM_CMPS];
}

/* CQs of this process on a TNI, by kind */
static int cqs_held(const struct emu_cq_slot *cq, enum emu_cq_kind kind)
{
    int n = 0;

    for (unsigned q = 0; q < EMU_NUM_CQS; q++) {
        n += (cq[q].kind == kind) && (cq[q].owner == emu_g.slot);
    }
    return n;
}

#define SESSION_CQS_DEFAULT 3 /* 4.3.2.2 */

/* Keeps up to `most` of the CQs that are left; returns how many. */
static int keep(int *left, int most)
{
    int n = (most < 0) ? 0 : (most < *left) ? most : *left;

    *left -= n;
    return n;
}

/* May another CQ become one of this kind?  Of the CQs that are free, those are kept for
 * each kind that were asked for in the environment and that this process does not have
 * yet: one for VCQs that share it, then exclusive ones, then those for session mode
 * (4.3.2.2).  Other processes may have taken so many that not all can be met: who comes
 * last gets less, and nothing stays for nobody.  The default keeps nothing back. */
static bool cq_allowed(const struct emu_cq_slot *cq, enum emu_cq_kind kind)
{
    int  session = emu_g.env.session_cqs, exclusive = emu_g.env.exclusive_cqs, left = 0, kept[EMU_CQ_SESSION + 1] = {0};
    bool asked = (session >= 0) || (exclusive >= 0);

    for (unsigned q = 0; q < EMU_NUM_CQS; q++) {
        left += cq[q].kind == EMU_CQ_FREE;
    }
    if ((kind == EMU_CQ_SESSION) && (cqs_held(cq, kind) >= ((session < 0) ? SESSION_CQS_DEFAULT : session))) {
        return false; /* the mode of a CQ is assigned beforehand (2.2.7) */
    }
    kept[EMU_CQ_SHARED]    = keep(&left, (asked ? 1 : 0) - cqs_held(cq, EMU_CQ_SHARED));
    kept[EMU_CQ_EXCLUSIVE] = keep(&left, exclusive - cqs_held(cq, EMU_CQ_EXCLUSIVE));
    kept[EMU_CQ_SESSION]   = keep(&left, session - cqs_held(cq, EMU_CQ_SESSION));
    return kept[kind] + left > 0;
}

/* Take a free CQ of the TNI for this process (control locked); -1: none */
static int cq_take(unsigned tni, enum emu_cq_kind kind)
{
    struct emu_cq_slot *cq = &emu_g.control->node[emu_g.node].cq[tni * EMU_NUM_CQS];

    if ((kind == EMU_CQ_SHARED) && (cqs_held(cq, kind) == 0)) {
        emu_node_reclaim(emu_g.node); /* peers predict which is the first one */
    }
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; cq_allowed(cq, kind) && (i < EMU_NUM_CQS); i++) {
            unsigned q = (kind == EMU_CQ_SHARED) ? i : EMU_NUM_CQS - 1 - i;
            if (cq[q].kind == EMU_CQ_FREE) {
                cq[q].kind  = kind;
                cq[q].owner = emu_g.slot;
                cq[q].users = 0;
                return (int)q;
            }
        }
        /* none: perhaps a process died with some */
        emu_node_reclaim(emu_g.node);
    }
    return -1;
}

/* Choose CQ and component (control locked). */
static int place(unsigned tni, uint32_t want_cmp, unsigned long flags, uint16_t *cq_p, uint16_t *cmp_p)
{
    struct emu_cq_slot *cq = &emu_g.control->node[emu_g.node].cq[tni * EMU_NUM_CQS];
    int                 q;

    if (flags & (UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE)) {
        /* VCQs of a CQ share its TOQ, so session mode, too, takes one of its own */
        q = cq_take(tni, (flags & UTOFU_VCQ_FLAG_EXCLUSIVE) ? EMU_CQ_EXCLUSIVE : EMU_CQ_SESSION);
        if (q < 0) {
            return UTOFU_ERR_NOT_AVAILABLE;
        }
        *cq_p  = (uint16_t)q;
        *cmp_p = 0;
        return UTOFU_SUCCESS;
    }
    for (q = 0; q < (int)EMU_NUM_CQS; q++) {
        if ((cq[q].kind != EMU_CQ_SHARED) || (cq[q].owner != emu_g.slot)) {
            continue;
        }
        _Atomic uint64_t *vcqs = node_vcqs(tni * EMU_NUM_CQS + (unsigned)q);
        if (want_cmp != CMP_ANY) {
            /* component IDs count on the process' first shared CQ */
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
    q = cq_take(tni, EMU_CQ_SHARED);
    if (q < 0) {
        return UTOFU_ERR_FULL;
    }
    *cq_p  = (uint16_t)q;
    *cmp_p = (uint16_t)((want_cmp == CMP_ANY) ? EMU_NUM_CMPS - 1 : want_cmp);
    return UTOFU_SUCCESS;
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
    for (index = 0; (index < EMU_MAX_VCQS) && ((emu_g.vcq[index] != NULL) || atomic_load(&emu_g.shm->vcq[index].taken));
         index++) {
    }
    if (index == EMU_MAX_VCQS) {
        emu_unlock(&emu_g.lock);
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
    vcq->gen = atomic_fetch_add(&emu_g.control->vcq_gen[emu_g.slot][index], 1) + 1; /* odd: it exists */
    emu_g.control->node[emu_g.node].cq[tni * EMU_NUM_CQS + vcq->cq].users++;
    vcq->stadd_top = EMU_STADD_TOP(
        emu_g.control->node[emu_g.node].turn[(tni * EMU_NUM_CQS + vcq->cq) * EMU_NUM_CMPS + vcq->cmp]++, vcq->cmp);
    atomic_store(&node_vcqs(tni * EMU_NUM_CQS + vcq->cq)[vcq->cmp], EMU_VCQ_OWNER(emu_g.slot, index));
    emu_control_unlock();

    vcq->hdl          = ((utofu_vcq_hdl_t)(++emu_g.vcq_serial[index]) << 16) | (index + 1);
    emu_g.vcq[index]  = vcq;
    *hdl_p            = vcq->hdl;
    emu_unlock(&emu_g.lock);
    return UTOFU_SUCCESS;

err_free:
    emu_unlock(&emu_g.lock);
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
        emu_g.vcq[vcq->index] = NULL; /* the handle is invalid now; its index is free at the end */
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
