/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_reg_local.c - memory handles on the VCQs of ifaces.
 *
 * Memory that an iface reads or writes locally is registered with the iface's VCQ
 * too, on first use.  A VCQ that is not thread-safe belongs to the iface's thread,
 * but dereg may be called by any: it leaves the STADD in iface->dereg, and the
 * iface removes it before it registers anything else (so a new registration of
 * the same addresses never meets the old one), now and then in progress, and
 * when it is closed.  Nobody can use such a STADD: the handle is gone.
 */
#include "tofu_hub.h"

#include <stdlib.h>

#define TOFU_LCL_INLINE 4u

/* A STADD on the VCQ of an iface, which deregisters it; under md->lock. */
static void tofu_reg_give_up(tofu_md_t *md, unsigned index, uint64_t generation,
                             utofu_stadd_t stadd)
{
    tofu_iface_t  *iface;
    utofu_stadd_t *array;
    size_t        n, max;

    if ((generation == 0) || (index >= md->num_ifaces)) {
        return;
    }
    iface = md->ifaces[index];
    if ((iface == NULL) || (iface->generation != generation)) {
        return; /* that iface was closed; its VCQ went with all on it */
    }
    n = atomic_load_explicit(&iface->num_dereg, memory_order_relaxed);
    if (n == iface->max_dereg) {
        max   = (n > 0) ? n * 2 : 64;
        array = realloc(iface->dereg, max * sizeof(*array));
        if (array == NULL) {
            tofu_warn("out of memory: a local registration is lost");
            return;
        }
        iface->dereg     = array;
        iface->max_dereg = max;
    }
    iface->dereg[n] = stadd;
    atomic_store_explicit(&iface->num_dereg, n + 1, memory_order_release);
}

void tofu_reg_release_local(tofu_mem_t *memh)
{
    tofu_lcl_table_t *table = atomic_load_explicit(&memh->lcl,
                                                   memory_order_relaxed);
    tofu_lcl_table_t *older;
    tofu_piece_t     *piece;
    unsigned         i;

    for (i = 0; (table != NULL) && (i < table->size); ++i) {
        tofu_reg_give_up(memh->md, i,
                         atomic_load_explicit(&table->entry[i].generation,
                                              memory_order_relaxed),
                         table->entry[i].stadd);
    }
    for (; table != NULL; table = older) {
        older = table->older;
        free(table);
    }
    while ((piece = memh->pieces) != NULL) {
        memh->pieces = piece->next;
        tofu_reg_give_up(memh->md, piece->index, piece->generation, piece->stadd);
        free(piece);
    }
}

void tofu_iface_drain_dereg(tofu_iface_t *iface)
{
    tofu_md_t *md = iface->md;
    size_t    i, n;

    if (atomic_load_explicit(&iface->num_dereg, memory_order_acquire) == 0) {
        return;
    }
    pthread_mutex_lock(&md->lock);
    n = atomic_load_explicit(&iface->num_dereg, memory_order_relaxed);
    for (i = 0; i < n; ++i) {
        int ret = iface->fn.dereg_mem(iface->vcq, iface->dereg[i], 0);
        if (ret != UTOFU_SUCCESS) {
            tofu_error("utofu_dereg_mem(STADD %#llx) on VCQ %#llx: %s",
                       (unsigned long long)iface->dereg[i],
                       (unsigned long long)iface->vcq_id, tofu_code_name(ret));
        }
    }
    atomic_store_explicit(&iface->num_dereg, 0, memory_order_relaxed);
    pthread_mutex_unlock(&md->lock);
}

/* Make room for the entry of an iface; under md->lock. */
static tofu_lcl_table_t *tofu_reg_grow(tofu_mem_t *memh, unsigned index)
{
    tofu_lcl_table_t *old = atomic_load_explicit(&memh->lcl,
                                                 memory_order_relaxed);
    tofu_lcl_table_t *table;
    unsigned         size, i;

    if ((old != NULL) && (index < old->size)) {
        return old;
    }
    size = (old != NULL) ? old->size : TOFU_LCL_INLINE;
    while (size <= index) {
        size *= 2;
    }
    table = calloc(1, sizeof(*table) + size * sizeof(table->entry[0]));
    if (table == NULL) {
        return NULL;
    }
    table->size  = size;
    table->older = old;
    for (i = 0; (old != NULL) && (i < old->size); ++i) {
        table->entry[i].stadd = old->entry[i].stadd;
        atomic_store_explicit(&table->entry[i].generation,
                              atomic_load_explicit(&old->entry[i].generation,
                                                   memory_order_relaxed),
                              memory_order_relaxed);
    }
    atomic_store_explicit(&memh->lcl, table, memory_order_release);
    return table;
}

/* The piece that has the range, as memh->address would have its STADD; under md->lock. */
static int tofu_piece_find(const tofu_mem_t *memh, const tofu_iface_t *iface,
                           const char *begin, const char *end,
                           utofu_stadd_t *stadd_p)
{
    const tofu_piece_t *piece;

    for (piece = memh->pieces; piece != NULL; piece = piece->next) {
        if ((piece->index == iface->index) &&
            (piece->generation == iface->generation) && (begin >= piece->begin) &&
            (end <= piece->end)) {
            *stadd_p = piece->stadd - (size_t)(piece->begin - memh->address);
            return 1;
        }
    }
    return 0;
}

/* Register the pages of the handle that the range needs; under md->lock. */
static tofu_status_t tofu_piece_register(tofu_mem_t *memh, tofu_iface_t *iface,
                                         char *begin, char *end,
                                         unsigned long flags,
                                         utofu_stadd_t *stadd_p)
{
    size_t       page = memh->md->page_size;
    char         *top = memh->address + memh->length;
    tofu_piece_t *piece;
    int          ret;

    begin -= (uintptr_t)begin % page;
    end   += (page - (uintptr_t)end % page) % page;
    begin  = (begin < memh->address) ? memh->address : begin;
    end    = (end > top) ? top : end;
    piece  = malloc(sizeof(*piece));
    if (piece == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    ret = iface->fn.reg_mem(iface->vcq, begin, (size_t)(end - begin), flags,
                            &piece->stadd);
    if (ret != UTOFU_SUCCESS) {
        free(piece);
        tofu_error("utofu_reg_mem(%p, %zu bytes) on VCQ %#llx: %s", (void *)begin,
                   (size_t)(end - begin), (unsigned long long)iface->vcq_id,
                   tofu_code_name(ret));
        return tofu_status_from_code(ret);
    }
    piece->index      = iface->index;
    piece->generation = iface->generation;
    piece->begin      = begin;
    piece->end        = end;
    piece->next       = memh->pieces;
    memh->pieces      = piece;
    *stadd_p          = piece->stadd - (size_t)(begin - memh->address);
    return TOFU_OK;
}

tofu_status_t TOFU_NOINLINE tofu_mem_register_local(tofu_mem_t *memh,
                                                    tofu_iface_t *iface,
                                                    const void *address,
                                                    size_t length,
                                                    utofu_stadd_t *stadd_p)
{
    tofu_md_t        *md    = memh->md;
    char             *begin = (char *)(uintptr_t)address; /* the handle's, which may be written */
    unsigned long    flags  = (memh->flags & TOFU_MEM_READ_ONLY) ?
                                      UTOFU_REG_MEM_FLAG_READ_ONLY :
                                      0;
    tofu_status_t    status;
    tofu_lcl_table_t *table;
    utofu_stadd_t    stadd;
    int              ret, found;

    if (md != iface->md) {
        tofu_error("a memory handle of one md is used on an iface of another");
        return TOFU_ERR_INVALID_PARAM;
    }
    if ((iface->shared != NULL) && tofu_port_of_md(iface->shared)) {
        /* it is registered with that VCQ already; a second time would be the same
         * STADD, and keep it when the first is invalidated */
        *stadd_p = memh->stadd;
        return TOFU_OK;
    }
    tofu_iface_drain_dereg(iface);
    pthread_mutex_lock(&md->lock);
    found = tofu_piece_find(memh, iface, begin, begin + length, stadd_p);
    pthread_mutex_unlock(&md->lock);
    if (found) {
        return TOFU_OK;
    }
    ret = iface->fn.reg_mem(iface->vcq, memh->address, memh->length, flags, &stadd);
    if (ret == UTOFU_ERR_INVALID_ADDRESS) {
        /* The user may have unmapped another part, as he does to memory in a cache of
         * registrations, which goes with it when nobody uses this one any more. */
        pthread_mutex_lock(&md->lock);
        status = tofu_piece_register(memh, iface, begin, begin + length, flags,
                                     stadd_p);
        pthread_mutex_unlock(&md->lock);
        return status;
    }
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_reg_mem(%p, %zu bytes) on VCQ %#llx: %s",
                   (void *)memh->address, memh->length,
                   (unsigned long long)iface->vcq_id, tofu_code_name(ret));
        return tofu_status_from_code(ret);
    }
    pthread_mutex_lock(&md->lock);
    table = tofu_reg_grow(memh, iface->index);
    if (table != NULL) {
        table->entry[iface->index].stadd = stadd;
        atomic_store_explicit(&table->entry[iface->index].generation,
                              iface->generation, memory_order_release);
    }
    pthread_mutex_unlock(&md->lock);
    if (table == NULL) {
        iface->fn.dereg_mem(iface->vcq, stadd, 0);
        return TOFU_ERR_NO_MEMORY;
    }
    *stadd_p = stadd;
    return TOFU_OK;
}
