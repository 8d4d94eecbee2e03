/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_mem.c - registration of memory (3.6).
 *
 * A registration is a line in the VCQ's STag table, which peers read.  Memory
 * that is a shared mapping of a memfd or file is recognised here and described
 * by that file, so that peers map it and use plain loads and stores; private memory
 * becomes such a mapping where that can be done (emu_rehome.c); any other memory is
 * described by its address, and peers use system calls.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_modes.h"
#include "emu_vma.h"

#include <tofu_vcq.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNORDERED_NAME "/memfd:" TOFU_UNORDERED_MEMFD
#define MOVABLE_NAME   "/memfd:" TOFU_MOVABLE_MEMFD
#define STAG_NONE      UINT32_MAX
#define STAG_HASH_SIZE 1024u

int emu_mem_init(struct emu_vcq *vcq)
{
    uint64_t off = EMU_STAGS_OFF + vcq->index * EMU_STAGS_SIZE;

    vcq->stags       = emu_map_unlocked(NULL, EMU_STAGS_SIZE, PROT_READ | PROT_WRITE, -1, 0);
    vcq->stags_shown = emu_segment_map(emu_g.seg_fd, off, EMU_STAGS_SIZE, PROT_READ | PROT_WRITE);
    vcq->stags       = (vcq->stags == MAP_FAILED) ? NULL : vcq->stags;
    vcq->stags_shown = (vcq->stags_shown == MAP_FAILED) ? NULL : vcq->stags_shown;
    if ((vcq->stags == NULL) || (vcq->stags_shown == NULL)) {
        return UTOFU_ERR_OUT_OF_MEMORY; /* the caller ends with emu_mem_fini */
    }
    vcq->stag_next = malloc(EMU_NUM_STAGS * sizeof(*vcq->stag_next));
    vcq->stag_hash = malloc(STAG_HASH_SIZE * sizeof(*vcq->stag_hash));
    if ((vcq->stag_next == NULL) || (vcq->stag_hash == NULL)) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    memset(vcq->stag_hash, 0xff, STAG_HASH_SIZE * sizeof(*vcq->stag_hash));
    vcq->stag_free  = vcq->rehome_stag = STAG_NONE;
    vcq->stag_fresh = EMU_NUM_STAGS_USER; /* below it: chosen by users */
    return UTOFU_SUCCESS;
}

/* ----------------------------------------------------------- registrations */

static unsigned stag_hash(uint64_t addr, uint64_t size, unsigned long flags)
{
    uint64_t h = (addr ^ (size << 7) ^ flags) * 0x9e3779b97f4a7c15ull;

    return (unsigned)(h >> 54) % STAG_HASH_SIZE;
}

static void stag_write_begin(struct emu_stag *e)
{
    atomic_store_explicit(&e->seq, atomic_load_explicit(&e->seq, memory_order_relaxed) + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void stag_write_end(struct emu_stag *e)
{
    atomic_store_explicit(&e->seq, atomic_load_explicit(&e->seq, memory_order_relaxed) + 1, memory_order_release);
}

/* To peers, what has been written.  (What they make of the sequence is not taken over.) */
static void stag_show(const struct emu_vcq *vcq, uint32_t stag)
{
    const struct emu_stag *e     = &vcq->stags[stag];
    struct emu_stag       *shown = &vcq->stags_shown[stag];
    const size_t           rest  = offsetof(struct emu_stag, flags);

    atomic_store_explicit(&shown->seq, atomic_load_explicit(&e->seq, memory_order_relaxed) - 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memcpy((char *)shown + rest, (const char *)e + rest, sizeof(*e) - rest);
    atomic_store_explicit(&shown->seq, atomic_load_explicit(&e->seq, memory_order_relaxed), memory_order_release);
}

/* The segment of a window that is most of [addr, addr + size), as seg_get */
static int home_window(const struct emu_window *w, uintptr_t addr, size_t size)
{
    struct emu_vma file = {.dev = w->dev, .ino = w->ino};

    return ((w->begin - addr > UINT16_MAX) || (addr + size - w->end > UINT16_MAX)) ? -1 : emu_seg_get(&file, true);
}

static bool is_page(const struct emu_vma *vma, const char *name)
{
    return vma->shared && !strncmp(vma->path, name, strlen(name));
}

/* What the program says of the VCQ by a page that it registers (abi/tofu_vcq.h) */
static bool is_said(struct emu_vcq *vcq, uint32_t stag, const struct emu_vma *vma)
{
    if (is_page(vma, UNORDERED_NAME)) {
        vcq->lines_unordered = true;
        vcq->rehome          = false;
        return true;
    }
    if (is_page(vma, MOVABLE_NAME)) {
        vcq->rehome      = emu_g.env.rehome != EMU_REHOME_OFF;
        vcq->rehome_stag = stag;
        return true;
    }
    return false;
}

/* 3.6: the process can read it, and write it unless it says that it can't */
static int accessible(const void *addr, size_t size, bool writable, struct emu_vma *vma)
{
    return (emu_vma_query((uintptr_t)addr, size, vma) && vma->readable && (!writable || vma->writable)) ?
               UTOFU_SUCCESS :
               (vma->unknown ? UTOFU_ERR_OUT_OF_RESOURCE : UTOFU_ERR_INVALID_ADDRESS);
}

/* Once: it is so for the next registration, too */
static EMU_COLD void say_unknown(void)
{
    static _Atomic bool said;

    if (!atomic_exchange(&said, true)) {
        emu_message("no memory can be registered: /proc/self/maps, which says what is mapped, can't be read%s",
                    access("/proc/self", F_OK) ? " (there is no /proc)" : "");
    }
}

static int stag_fill(struct emu_vcq *vcq, uint32_t stag, void *addr, size_t size, unsigned long flags)
{
    bool             writable = !(flags & UTOFU_REG_MEM_FLAG_READ_ONLY);
    struct emu_stag *e        = &vcq->stags[stag];
    uint64_t         begin    = (stag < EMU_NUM_STAGS_USER) ? 0 : (uintptr_t)addr % 256;
    struct emu_window w       = {0};
    const char       *why     = "its file can't be mapped";
    struct emu_vma   vma;
    bool             said;
    int              seg = -1, home = -1, code;

    if (size > EMU_STADD_OFF_MASK - 256) {
        return UTOFU_ERR_INVALID_SIZE;
    }
    code = accessible(addr, size, writable, &vma);
    if (code == UTOFU_ERR_OUT_OF_RESOURCE) {
        say_unknown();
    }
    if (code != UTOFU_SUCCESS) {
        return code;
    }
    said = is_said(vcq, stag, &vma);
    if (said) {
        why = NULL; /* it says no more than that: nobody maps it */
    } else if (vma.shared && (emu_rehome_of(vma.dev, vma.ino, 0) < 0)) {
        seg = emu_rehome_shared_get(vcq, &vma, (uintptr_t)addr, size, writable);
        w   = (struct emu_window){(uintptr_t)addr, (uintptr_t)addr + size, vma.dev, vma.ino, vma.file_off};
    } else {
        home = emu_rehome_get(vcq, (uintptr_t)addr, size, vma.plain && !vma.huge, &w, &why);
        if (home >= 0) {
            seg = home_window(&w, (uintptr_t)addr, size);
        }
        if ((home >= 0) && (seg < 0)) {
            emu_rehome_put(home, (uintptr_t)addr, size);
            home = -1;
        }
    }
    emu_swap_add((uintptr_t)addr, size);
    emu_dontfork_add((uintptr_t)addr, size);

    stag_write_begin(e);
    e->addr  = (uintptr_t)addr;
    e->begin = begin;
    e->end   = begin + size;
    e->refs  = 1;
    e->flags = (uint32_t)flags | EMU_STAG_VALID;
    e->high  = EMU_STADD_HIGH(emu_stadd(vcq->stadd_top, stag, 0));
    e->kind  = (seg < 0) ? EMU_MEM_PRIVATE : (home < 0) ? EMU_MEM_SHARED : EMU_MEM_MOVED;
    if (seg >= 0) {
        e->seg     = (uint32_t)seg;
        e->seg_gen = atomic_load(&emu_g.seg[seg].gen);
        e->head    = (uint16_t)(w.begin - (uintptr_t)addr);
        e->tail    = (uint16_t)((uintptr_t)addr + size - w.end);
        e->seg_off = w.off - e->head;
    }
    stag_write_end(e);
    stag_show(vcq, stag);
    if ((vcq->stats != NULL) && !said) {
        emu_stats_registered(vcq, (enum emu_mem_kind)e->kind, why);
    }
    if ((seg >= 0) && (home < 0)) {
        emu_doorbell_bind(vcq, stag, &vma, emu_g.seg[seg].fd, size);
    }
    return UTOFU_SUCCESS;
}

static void stag_clear(struct emu_vcq *vcq, uint32_t stag)
{
    struct emu_stag *e      = &vcq->stags[stag];
    bool             shared = e->kind != EMU_MEM_PRIVATE;
    uint32_t         seg    = e->seg;
    uint64_t         shown   = e->seg_off + e->head; /* what is before it may be where another slot is */
    uintptr_t        addr    = e->addr;
    size_t           size    = e->end - e->begin;
    int              home    = -1;

    if (stag == vcq->rehome_stag) {
        vcq->rehome      = false;
        vcq->rehome_stag = STAG_NONE;
    }
    emu_doorbell_unbind(vcq, stag);
    emu_swap_remove(e->addr, e->end - e->begin);
    emu_dontfork_remove(e->addr, e->end - e->begin);
    stag_write_begin(e);
    e->flags = 0;
    e->high  = 0;
    e->begin = e->end = 0;
    stag_write_end(e);
    stag_show(vcq, stag);
    if (shared) {
        home = emu_rehome_of(emu_g.seg[seg].dev, emu_g.seg[seg].ino, shown);
        emu_rehome_shared_put(seg);
    }
    emu_rehome_put(home, addr, size);
}

void emu_mem_fini(struct emu_vcq *vcq)
{
    if (vcq->stags != NULL) {
        emu_lock(&emu_g.mem_lock);
        for (uint32_t s = 0; (vcq->stag_hash != NULL) && (s < vcq->stag_fresh); s++) {
            if (vcq->stags[s].flags & EMU_STAG_VALID) {
                stag_clear(vcq, s);
            }
        }
        emu_unlock(&emu_g.mem_lock);
        munmap(vcq->stags, EMU_STAGS_SIZE);
        vcq->stags = NULL;
    }
    if (vcq->stags_shown != NULL) {
        munmap(vcq->stags_shown, EMU_STAGS_SIZE);
        vcq->stags_shown = NULL;
    }
    free(vcq->stag_next);
    free(vcq->stag_hash);
    vcq->stag_next = vcq->stag_hash = NULL;
}

/* A STag that the library chose may be another region's. */
static void stag_release(struct emu_vcq *vcq, uint32_t stag, unsigned hash)
{
    uint32_t *link = &vcq->stag_hash[hash];

    while (*link != stag) {
        link = &vcq->stag_next[*link];
    }
    *link                = vcq->stag_next[stag];
    vcq->stag_next[stag] = vcq->stag_free;
    vcq->stag_free       = stag;
}

/* The STag of a region that all of [at, at + size) is in (UTOFU_EMU_BOUNDS=page) */
static uint32_t stag_around(const struct emu_vcq *vcq, uintptr_t at, size_t size, unsigned long flags)
{
    for (uint32_t stag = EMU_NUM_STAGS_USER; stag < vcq->stag_fresh; stag++) {
        const struct emu_stag *e    = &vcq->stags[stag];
        uint64_t               span = e->end - e->begin;

        if ((e->flags == (flags | EMU_STAG_VALID)) && (at - e->addr < span) && (size <= span - (at - e->addr))) {
            return stag;
        }
    }
    return STAG_NONE;
}

/* The STag of this very region */
static uint32_t stag_same(const struct emu_vcq *vcq, uintptr_t at, size_t size, unsigned long flags)
{
    uint32_t stag = vcq->stag_hash[stag_hash(at, size, flags)];

    while (stag != STAG_NONE) {
        const struct emu_stag *e = &vcq->stags[stag];

        if ((e->addr == at) && (e->end - e->begin == size) && (e->flags == (flags | EMU_STAG_VALID))) {
            break;
        }
        stag = vcq->stag_next[stag];
    }
    return stag;
}

/* Of a region that is registered: where that can't be asked just now, it is as it was.  *moved_p: peers would map
 * what is not there any more, as the program has released it, and has something else there.  (Not inline: what its
 * caller has on its stack is between the program's frame and where memory is moved.) */
static EMU_NOINLINE int still_accessible(const struct emu_stag *e, const void *addr, size_t size, unsigned long flags,
                                         bool *moved_p)
{
    struct emu_vma vma;
    int            code = accessible(addr, size, !(flags & UTOFU_REG_MEM_FLAG_READ_ONLY), &vma);

    *moved_p = false;
    if ((code == UTOFU_SUCCESS) && (e->kind != EMU_MEM_PRIVATE)) {
        const struct emu_seg *seg = &emu_g.seg[e->seg];
        size_t                n   = e->end - e->begin - e->head - e->tail;

        *moved_p = emu_vma_query(e->addr + e->head, n, &vma) &&
                   (!vma.shared || (vma.dev != seg->dev) || (vma.ino != seg->ino) ||
                    (vma.file_off != e->seg_off + e->head));
    }
    return (code == UTOFU_ERR_INVALID_ADDRESS) ? code : UTOFU_SUCCESS;
}

/* UTOFU_EMU_BOUNDS=page: the program has released some of what a region was widened by, so that all of it can't be
 * registered anew.  *moved_p: nor do peers map what is at addr by now. */
static EMU_NOINLINE bool is_torn(const struct emu_stag *e, uintptr_t at, size_t size, bool *moved_p)
{
    const struct emu_seg *seg = &emu_g.seg[e->seg];
    uintptr_t             lo = e->addr + e->head, hi = e->addr + (e->end - e->begin) - e->tail;
    struct emu_vma        vma;

    if ((e->kind == EMU_MEM_PRIVATE) ||
        (accessible((void *)(uintptr_t)e->addr, e->end - e->begin, !(e->flags & UTOFU_REG_MEM_FLAG_READ_ONLY), &vma) !=
         UTOFU_ERR_INVALID_ADDRESS)) {
        return false;
    }
    lo       = (at > lo) ? at : lo;
    hi       = (at + size < hi) ? at + size : hi;
    *moved_p = (lo < hi) && (!emu_vma_query(lo, hi - lo, &vma) || !vma.shared || (vma.dev != seg->dev) ||
                             (vma.ino != seg->ino) || (vma.file_off != e->seg_off + (lo - e->addr)));
    return true;
}

/* The registrations of a region are of what is there now. */
static int stag_renew(struct emu_vcq *vcq, uint32_t stag)
{
    struct emu_stag old = vcq->stags[stag];
    unsigned        flags = old.flags & ~EMU_STAG_VALID;
    int             code;

    stag_clear(vcq, stag);
    code = stag_fill(vcq, stag, (void *)(uintptr_t)old.addr, old.end - old.begin, flags);
    if (code == UTOFU_SUCCESS) {
        vcq->stags[stag].refs = old.refs; /* peers do not look at that */
    } else {
        stag_release(vcq, stag, stag_hash(old.addr, old.end - old.begin, flags));
    }
    return code;
}

EMU_EXPORT int utofu_reg_mem(utofu_vcq_hdl_t vcq_hdl, void *addr, size_t size, unsigned long int flags,
                             utofu_stadd_t *stadd)
{
    struct emu_vcq *vcq = emu_vcq_of(vcq_hdl);
    uintptr_t       at  = (uintptr_t)addr;
    uint32_t       *link, stag;
    bool            torn = false, torn_moved = false;
    int             code;

    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (flags & ~UTOFU_REG_MEM_FLAG_READ_ONLY) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    if (stadd == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (addr == NULL) {
        return UTOFU_ERR_INVALID_ADDRESS;
    }
    if (size == 0) {
        return UTOFU_ERR_INVALID_SIZE;
    }

    emu_vcq_lock(vcq);
    emu_lock(&emu_g.mem_lock);
    code = emu_inject_reg();
    if (code != UTOFU_SUCCESS) {
        goto out;
    }
    stag = emu_g.env.bounds_page ? stag_around(vcq, at, size, flags) : stag_same(vcq, at, size, flags);
    if ((stag != STAG_NONE) && emu_g.env.bounds_page && is_torn(&vcq->stags[stag], at, size, &torn_moved)) {
        torn = true;
        stag = torn_moved ? STAG_NONE : stag; /* it is a region of its own */
    }
    if (stag != STAG_NONE) { /* the same region: the same STADD (3.6) */
        bool moved;

        code  = still_accessible(&vcq->stags[stag], addr, size, flags, &moved);
        moved = moved && !torn;
        if ((code == UTOFU_SUCCESS) && moved) {
            code = stag_renew(vcq, stag);
        }
        if (code != UTOFU_SUCCESS) {
            goto out;
        }
        vcq->stags[stag].refs++;
        goto known;
    }
    if (emu_g.env.bounds_page) {
        emu_bounds_widen(&at, &size, !(flags & UTOFU_REG_MEM_FLAG_READ_ONLY), true);
    }
    stag = vcq->stag_free;
    if (stag == STAG_NONE) {
        if (vcq->stag_fresh == EMU_NUM_STAGS) {
            code = UTOFU_ERR_FULL;
            goto out;
        }
        stag = vcq->stag_fresh;
    }
    code = stag_fill(vcq, stag, (void *)at, size, flags);
    if (code != UTOFU_SUCCESS) {
        goto out;
    }
    if (stag == vcq->stag_fresh) {
        vcq->stag_fresh++;
    } else {
        vcq->stag_free = vcq->stag_next[stag];
    }
    link                 = &vcq->stag_hash[stag_hash(at, size, flags)];
    vcq->stag_next[stag] = *link;
    *link                = stag;
known:
    *stadd = emu_stadd(vcq->stadd_top, stag, vcq->stags[stag].begin + ((uintptr_t)addr - vcq->stags[stag].addr));
out:
    emu_unlock(&emu_g.mem_lock);
    emu_vcq_unlock(vcq);
    return code;
}

EMU_EXPORT int utofu_reg_mem_with_stag(utofu_vcq_hdl_t vcq_hdl, void *addr, size_t size, unsigned int stag,
                                       unsigned long int flags, utofu_stadd_t *stadd)
{
    struct emu_vcq *vcq = emu_vcq_of(vcq_hdl);
    int             code;

    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (flags & ~UTOFU_REG_MEM_FLAG_READ_ONLY) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    if (stadd == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (stag >= EMU_NUM_STAGS_USER) {
        return UTOFU_ERR_INVALID_STAG;
    }
    if ((addr == NULL) || ((uintptr_t)addr % 256)) {
        return UTOFU_ERR_INVALID_ADDRESS;
    }
    if ((size == 0) || (size % 256)) {
        return UTOFU_ERR_INVALID_SIZE;
    }

    emu_vcq_lock(vcq);
    emu_lock(&emu_g.mem_lock);
    code = emu_inject_reg();
    if ((code == UTOFU_SUCCESS) && (vcq->stags[stag].flags & EMU_STAG_VALID)) {
        code = UTOFU_ERR_USED;
    } else if (code == UTOFU_SUCCESS) {
        uintptr_t at = (uintptr_t)addr;

        if (emu_g.env.bounds_page) { /* behind it only: the STADD of its beginning is 0 */
            emu_bounds_widen(&at, &size, !(flags & UTOFU_REG_MEM_FLAG_READ_ONLY), false);
        }
        code = stag_fill(vcq, stag, addr, size, flags);
    }
    emu_unlock(&emu_g.mem_lock);
    emu_vcq_unlock(vcq);
    if (code == UTOFU_SUCCESS) {
        *stadd = emu_stadd(EMU_STADD_TOP(0, 0), stag, 0);
    }
    return code;
}

EMU_EXPORT int utofu_query_stadd(utofu_vcq_id_t vcq_id, unsigned int stag, utofu_stadd_t *stadd)
{
    struct emu_vcq_name name;
    int                 code = emu_ready(); /* what is a VCQ ID depends on the network's shape */

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (!emu_vcq_id_decode(vcq_id, &name)) {
        return UTOFU_ERR_INVALID_VCQ_ID;
    }
    if (stag >= EMU_NUM_STAGS_USER) {
        return UTOFU_ERR_INVALID_STAG;
    }
    if (stadd == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    *stadd = emu_stadd(EMU_STADD_TOP(0, 0), stag, 0);
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_dereg_mem(utofu_vcq_hdl_t vcq_hdl, utofu_stadd_t stadd, unsigned long int flags)
{
    struct emu_vcq *vcq  = emu_vcq_of(vcq_hdl);
    uint32_t        stag = EMU_STADD_STAG(stadd);
    uint64_t        within;
    int             code = UTOFU_SUCCESS;

    if (vcq == NULL) {
        return UTOFU_ERR_INVALID_VCQ_HDL;
    }
    if (flags != 0) {
        return UTOFU_ERR_INVALID_FLAGS;
    }

    emu_vcq_lock(vcq);
    emu_lock(&emu_g.mem_lock);
    struct emu_stag *e = &vcq->stags[stag];
    /* of the region that it is the first byte of, or of one of those within its pages */
    within = emu_g.env.bounds_page ? e->end - e->begin : 1;
    if (!(e->flags & EMU_STAG_VALID) || (e->high != EMU_STADD_HIGH(stadd)) ||
        (EMU_STADD_OFF(stadd) - e->begin >= within)) {
        code = UTOFU_ERR_INVALID_STADD;
    } else if (--e->refs == 0) {
        if (stag >= EMU_NUM_STAGS_USER) {
            stag_release(vcq, stag, stag_hash(e->addr, e->end - e->begin, e->flags & ~EMU_STAG_VALID));
        }
        stag_clear(vcq, stag);
    }
    emu_unlock(&emu_g.mem_lock);
    emu_vcq_unlock(vcq);
    return code;
}
