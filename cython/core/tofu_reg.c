/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_reg.c - registration of memory.
 *
 * A memory handle is one registration with the md's VCQ, by which peers reach it.
 * Handles are kept by address, so that a range inside a live registration with
 * the same flags shares it.  The last dereg of a handle removes the registration
 * at once: nothing is kept for later, so no registration can outlive the memory
 * that its owner frees after dereg (a cache that did would pin stale pages).
 *
 * A key that shall be invalidated must not live on because somebody else has the
 * same registration: TOFU_MEM_EXCLUSIVE handles share theirs with nobody.  uTofu
 * itself gives one STADD for the same range registered twice (3.6), so a range that
 * is registered already is widened within its first and last page.
 */
#include "tofu_hub.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Index of the first registration that starts after address. */
static size_t tofu_reg_upper(const tofu_md_t *md, uintptr_t address)
{
    size_t low = 0, high = md->num_regs, mid;

    while (low < high) {
        mid = low + (high - low) / 2;
        if ((uintptr_t)md->regs[mid]->address <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* The STADD that the registration began with. */
static utofu_stadd_t tofu_reg_stadd(const tofu_mem_t *memh)
{
    return memh->stadd - (size_t)(memh->address - memh->reg_address);
}

static void tofu_reg_update_ends(tofu_md_t *md, size_t first)
{
    uintptr_t end = (first > 0) ? md->regs[first - 1]->max_end : 0;
    size_t    i;

    for (i = first; i < md->num_regs; ++i) {
        tofu_mem_t *memh = md->regs[i];
        uintptr_t  mine  = (uintptr_t)memh->address + memh->length;

        end           = (mine > end) ? mine : end;
        memh->max_end = end;
    }
}

static tofu_mem_t *tofu_reg_find(tofu_md_t *md, uintptr_t address,
                                 size_t length, unsigned flags)
{
    size_t i = tofu_reg_upper(md, address);

    /* max_end: nothing at or before i reaches further, so the walk stops where
     * no earlier one can contain the range */
    while ((i > 0) && (md->regs[i - 1]->max_end >= address + length)) {
        tofu_mem_t *memh = md->regs[--i];
        if (((uintptr_t)memh->address + memh->length >= address + length) &&
            (memh->flags == flags) && !(flags & TOFU_MEM_EXCLUSIVE)) {
            return memh;
        }
    }
    return NULL;
}

static tofu_status_t tofu_reg_insert(tofu_md_t *md, tofu_mem_t *memh)
{
    size_t     i, max;
    tofu_mem_t **regs;

    if (md->num_regs == md->max_regs) {
        max  = (md->max_regs > 0) ? md->max_regs * 2 : 64;
        regs = realloc(md->regs, max * sizeof(*regs));
        if (regs == NULL) {
            return TOFU_ERR_NO_MEMORY;
        }
        md->regs     = regs;
        md->max_regs = max;
    }
    i = tofu_reg_upper(md, (uintptr_t)memh->address);
    memmove(&md->regs[i + 1], &md->regs[i],
            (md->num_regs - i) * sizeof(*md->regs));
    md->regs[i] = memh;
    ++md->num_regs;
    tofu_reg_update_ends(md, i);
    return TOFU_OK;
}

static void tofu_reg_remove(tofu_md_t *md, tofu_mem_t *memh)
{
    size_t i = tofu_reg_upper(md, (uintptr_t)memh->address);

    while (md->regs[i - 1] != memh) { /* several may start here */
        --i;
    }
    --md->num_regs;
    memmove(&md->regs[i - 1], &md->regs[i],
            (md->num_regs + 1 - i) * sizeof(*md->regs));
    tofu_reg_update_ends(md, i - 1);
}

/* Large memory is reached by further TNIs too; under md->lock.  A rail that is not
 * to be had is one way less. */
static void tofu_reg_rails(tofu_mem_t *memh)
{
    tofu_md_t *md = memh->md;
    unsigned  i, n;
    int       ret;

    if ((memh->length < md->stripe_thresh) || (memh->flags & TOFU_MEM_OWN)) {
        return;
    }
    tofu_rails_open(md, memh->length);
    for (i = 1; i < md->num_tnis; ++i) {
        if (!md->rail[i].open) {
            continue;
        }
        n   = memh->num_rails;
        ret = tofu_reg_told(md, md->rail[i].vcq, memh, &memh->rail[n].stadd);
        if (ret != UTOFU_SUCCESS) {
            tofu_debug("utofu_reg_mem(%p, %zu bytes) on VCQ %#llx: %s",
                       (void *)memh->address, memh->length,
                       (unsigned long long)md->rail[i].vcq_id,
                       tofu_code_name(ret));
            continue;
        }
        memh->rail[n].stadd += (size_t)(memh->address - memh->reg_address);
        memh->rail[n].rail   = (uint8_t)i;
        ++memh->num_rails;
    }
}

static void tofu_dereg_rails(tofu_mem_t *memh, int invalidate)
{
    size_t    lead = (size_t)(memh->address - memh->reg_address);
    tofu_md_t *md  = memh->md;
    unsigned  i;
    int       ret;

    for (i = 0; i < memh->num_rails; ++i) {
        tofu_rail_t   *rail = &md->rail[memh->rail[i].rail];
        utofu_stadd_t stadd = memh->rail[i].stadd - lead;

        ret = md->fn.dereg_mem(rail->vcq, stadd, 0);
        if (ret != UTOFU_SUCCESS) {
            tofu_error("utofu_dereg_mem(STADD %#llx) on VCQ %#llx: %s",
                       (unsigned long long)stadd,
                       (unsigned long long)rail->vcq_id, tofu_code_name(ret));
        } else if (invalidate) {
            tofu_quarantine_add(md, rail->vcq, stadd);
        }
    }
    memh->num_rails = 0;
}

/* Another handle whose registration is this range, so that it has the STADD that
 * uTofu gives for it; under md->lock. */
static tofu_mem_t *tofu_reg_twin(tofu_md_t *md, const char *address,
                                 size_t length, unsigned flags,
                                 const tofu_mem_t *except)
{
    uintptr_t start = (uintptr_t)address;
    size_t    i;

    for (i = tofu_reg_upper(md, start - 1);
         (i < md->num_regs) &&
         ((uintptr_t)md->regs[i]->address - start < md->page_size);
         ++i) {
        tofu_mem_t *memh = md->regs[i];
        if ((memh != except) && (memh->reg_address == address) &&
            (memh->reg_length == length) && !((memh->flags ^ flags) & TOFU_MEM_READ_ONLY)) {
            return memh;
        }
    }
    return NULL;
}

/* What to register for a handle's range: itself, or a little more that is in the
 * same pages and that nobody has registered.  Where there is no such thing (whole
 * pages) the STADD is shared, and can't be invalidated meanwhile. */
static void tofu_reg_choose(tofu_md_t *md, tofu_mem_t *memh)
{
    uintptr_t start = (uintptr_t)memh->address, end = start + memh->length;
    size_t    before = start % md->page_size;
    size_t    after  = (md->page_size - end % md->page_size) % md->page_size;
    size_t    i;

    memh->reg_address = memh->address;
    memh->reg_length  = memh->length;
    for (i = 1; (i <= before + after) &&
                (tofu_reg_twin(md, memh->reg_address, memh->reg_length,
                               memh->flags, memh) != NULL); ++i) {
        if (i <= after) {
            memh->reg_length = memh->length + i;
        } else {
            memh->reg_address = memh->address - (i - after);
            memh->reg_length  = memh->length + (i - after);
        }
    }
}

/* Register and list one handle; under md->lock. */
static tofu_status_t tofu_reg_create(tofu_md_t *md, void *address,
                                     size_t length, unsigned flags,
                                     tofu_arena_t *arena, tofu_mem_t **memh_p)
{
    tofu_mem_t    *memh;
    tofu_status_t status;
    int           ret;

    memh = calloc(1, sizeof(*memh));
    if (memh == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    memh->md      = md;
    memh->address = address;
    memh->length  = length;
    memh->flags   = flags & ~(unsigned)TOFU_MEM_AS_IT_IS;
    memh->arena   = arena;
    memh->refs    = 1;
    tofu_reg_choose(md, memh);
    ret = tofu_reg_told(md, md->vcq, memh, &memh->stadd);
    if ((ret == UTOFU_ERR_INVALID_ADDRESS) && (flags & TOFU_MEM_AS_IT_IS)) {
        flags |= TOFU_MEM_READ_ONLY;
        memh->flags |= TOFU_MEM_READ_ONLY;
        tofu_reg_choose(md, memh);
        ret = tofu_reg_told(md, md->vcq, memh, &memh->stadd);
    }
    if (ret != UTOFU_SUCCESS) {
        status = tofu_status_from_code(ret);
        tofu_error("utofu_reg_mem(%p, %zu bytes%s) on VCQ %#llx: %s", address,
                   length,
                   (flags & TOFU_MEM_READ_ONLY) ?
                           ", read-only" :
                           "; memory that can't be written needs READ_ONLY",
                   (unsigned long long)md->vcq_id, tofu_code_name(ret));
        goto err_free;
    }
    memh->stadd += (size_t)(memh->address - memh->reg_address);
    tofu_reg_rails(memh);
    status = tofu_reg_insert(md, memh);
    if (status != TOFU_OK) {
        goto err_dereg;
    }
    *memh_p = memh;
    return TOFU_OK;

err_dereg:
    tofu_dereg_rails(memh, 0);
    md->fn.dereg_mem(md->vcq, tofu_reg_stadd(memh), 0);
err_free:
    free(memh);
    return status;
}

tofu_status_t tofu_mem_reg(tofu_md_t *md, void *address, size_t length,
                           unsigned flags, tofu_mem_t **memh_p)
{
    tofu_status_t status = TOFU_OK;
    tofu_mem_t    *memh;

    if ((length == 0) || (length > TOFU_MAX_ZCOPY) || (address == NULL) ||
        ((uintptr_t)address + length < (uintptr_t)address) ||
        (flags & ~(unsigned)(TOFU_MEM_READ_ONLY | TOFU_MEM_EXCLUSIVE |
                             TOFU_MEM_MOVABLE | TOFU_MEM_AS_IT_IS))) {
        tofu_error("can't register %zu bytes at %p with flags %#x", length,
                   address, flags);
        return TOFU_ERR_INVALID_PARAM;
    }
    pthread_mutex_lock(&md->lock);
    memh = tofu_reg_find(md, (uintptr_t)address, length, flags);
    if (memh != NULL) {
        ++memh->refs;
    } else {
        status = tofu_reg_create(md, address, length, flags, NULL, &memh);
    }
    pthread_mutex_unlock(&md->lock);
    if (status == TOFU_OK) {
        *memh_p = memh;
    }
    return status;
}

/* Is there a handle besides this one that lives by its registration?  Under
 * md->lock. */
static int tofu_reg_is_shared(tofu_md_t *md, const tofu_mem_t *memh)
{
    return (memh->refs > 1) ||
           (tofu_reg_twin(md, memh->reg_address, memh->reg_length, memh->flags,
                          memh) != NULL);
}

static tofu_status_t tofu_mem_put(tofu_mem_t *memh, int invalidate)
{
    tofu_md_t     *md    = memh->md;
    tofu_status_t status = TOFU_OK;
    int           ret;

    pthread_mutex_lock(&md->lock);
    if (invalidate && tofu_reg_is_shared(md, memh)) {
        pthread_mutex_unlock(&md->lock);
        tofu_error("can't invalidate the keys of %zu bytes at %p: other handles "
                   "share the registration", memh->length,
                   (void *)memh->address);
        return TOFU_ERR_BUSY;
    }
    if (--memh->refs > 0) {
        pthread_mutex_unlock(&md->lock);
        return TOFU_OK;
    }
    tofu_reg_remove(md, memh);
    tofu_reg_release_local(memh);
    tofu_dereg_rails(memh, invalidate);
    ret = md->fn.dereg_mem(md->vcq, tofu_reg_stadd(memh), 0);
    if (invalidate && (ret == UTOFU_SUCCESS)) {
        tofu_quarantine_add(md, md->vcq, tofu_reg_stadd(memh));
    }
    pthread_mutex_unlock(&md->lock);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_dereg_mem(STADD %#llx) on VCQ %#llx: %s",
                   (unsigned long long)tofu_reg_stadd(memh),
                   (unsigned long long)md->vcq_id, tofu_code_name(ret));
        status = tofu_status_from_code(ret);
    }
    if (memh->arena != NULL) {
        tofu_arena_put(md, memh->arena, memh->address, memh->length);
    }
    free(memh);
    return status;
}

tofu_status_t tofu_mem_dereg(tofu_mem_t *memh)
{
    return tofu_mem_put(memh, 0);
}

tofu_status_t tofu_mem_invalidate(tofu_mem_t *memh)
{
    return tofu_mem_put(memh, 1);
}

tofu_mem_t *tofu_reg_of_key(tofu_md_t *md, const tofu_rkey_t *rkey)
{
    size_t i = tofu_reg_upper(md, rkey->base);

    while ((i > 0) && ((uintptr_t)md->regs[i - 1]->address == rkey->base)) {
        tofu_mem_t *memh = md->regs[--i];
        if ((memh->stadd == rkey->stadd) && (memh->length == rkey->length)) {
            return memh;
        }
    }
    return NULL;
}

tofu_status_t tofu_mem_alloc(tofu_md_t *md, size_t *length_p, unsigned flags,
                             void **address_p, tofu_mem_t **memh_p)
{
    if ((*length_p == 0) || (flags & ~(unsigned)TOFU_MEM_READ_ONLY)) {
        tofu_error("can't allocate %zu bytes with flags %#x", *length_p, flags);
        return TOFU_ERR_INVALID_PARAM;
    }
    return tofu_mem_alloc_flags(md, length_p, flags, address_p, memh_p);
}

tofu_status_t tofu_mem_alloc_flags(tofu_md_t *md, size_t *length_p, unsigned flags,
                                   void **address_p, tofu_mem_t **memh_p)
{
    size_t        length = *length_p;
    tofu_arena_t  *arena;
    tofu_status_t status;
    tofu_mem_t    *memh;
    void          *address;

    if (length > TOFU_MAX_ZCOPY) {
        return TOFU_ERR_NO_MEMORY;
    }
    length = (length + md->page_size - 1) / md->page_size * md->page_size;
    status = tofu_arena_get(md, length, &address, &arena);
    if (status != TOFU_OK) {
        return status;
    }
    pthread_mutex_lock(&md->lock);
    status = tofu_reg_create(md, address, length, flags, arena, &memh);
    pthread_mutex_unlock(&md->lock);
    if (status != TOFU_OK) {
        tofu_arena_put(md, arena, address, length);
        return status;
    }
    *length_p  = length;
    *address_p = address;
    *memh_p    = memh;
    return TOFU_OK;
}

tofu_status_t tofu_mem_free(tofu_mem_t *memh)
{
    if (memh->arena == NULL) {
        tofu_error("tofu_mem_free of %p, which tofu_mem_alloc did not make",
                   (void *)memh->address);
        return TOFU_ERR_INVALID_PARAM;
    }
    /* The pages stay mapped, for the next allocation.  UCP's registration cache has to
     * forget them all the same, or it finds the next allocation in the cache, and takes
     * the handle there for the one to be freed.  UCX sees this call (UCM) as one that
     * releases pages, which it is; the lock is not held, as the cache deregisters. */
    madvise(memh->address, memh->length, MADV_REMOVE);
    /* an address that a tofu_mem_reg still shares is not given again before its dereg */
    return tofu_mem_put(memh, 0);
}

void tofu_mem_query(const tofu_mem_t *memh, void **address_p, size_t *length_p)
{
    *address_p = memh->address;
    *length_p  = memh->length;
}

void tofu_reg_cleanup(tofu_md_t *md)
{
    if (md->num_regs > 0) {
        tofu_warn("md of VCQ %#llx is closed with %zu registrations",
                  (unsigned long long)md->vcq_id, md->num_regs);
    }
    while (md->num_regs > 0) {
        tofu_mem_t *memh = md->regs[md->num_regs - 1];
        memh->refs       = 1;
        tofu_mem_put(memh, 0);
    }
    free(md->regs);
}
