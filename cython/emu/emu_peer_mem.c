/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_peer_mem.c - the memory of other processes as seen from here: their files mapped, their
 * registrations translated to pointers.
 *
 * The slow path of the first operation towards a registration; what it finds is kept until
 * the registration, or the peer, goes away.
 */
#include "emu_home.h"
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_modes.h"
#include "emu_service.h"
#include "emu_vma.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int emu_peer_mem_fd(struct emu_peer_process *proc)
{
    if (proc->mem_fd == -1) {
        emu_lock(&emu_g.lock);
        if (proc->mem_fd == -1) { /* no other thread was faster */
            int fd = emu_fd_keep(emu_peer_fd(proc, EMU_FD_MEMORY, O_RDWR));

            if ((fd < 0) && ((errno == EACCES) || (errno == EPERM))) {
                emu_message("can't reach the memory of process %d: %s", (int)proc->pid, strerror(errno));
                fd = -2;
            }
            proc->mem_fd = fd; /* -1: not now, for want of descriptors, say */
        }
        emu_unlock(&emu_g.lock);
    }
    return proc->mem_fd;
}

/* Files are mapped whole, or those of moved memory, which are large, and sparse, by parts from the beginning: these
 * are not to take more than a quarter of the addresses, which end not far above the stack, nor those of the program
 * another quarter, as they may be sparse, too; those that were let go included (lock held). */
static uint64_t room_taken[2]; /* moved */

static bool room_for(uint64_t size, bool moved)
{
    char here;

    return (size <= UINT64_MAX / 8) && (room_taken[moved] + size <= (uintptr_t)&here / 4);
}

void emu_peer_unmap(struct emu_peer_process *p)
{
    while (p->mappings != NULL) {
        struct emu_peer_mapping *m = p->mappings;

        p->mappings = m->next;
        room_taken[m->moved] -= m->room;
        emu_fault_unguard(m->base);
        munmap(m->base, m->room);
        free(m);
    }
}

/* What was mapped of that file before: memory that is registered for each transfer is in the same one again,
 * under another generation, and perhaps another index. */
static struct emu_peer_mapping *mapping_of(struct emu_peer_process *p, const struct emu_stag *e, uint64_t dev, uint64_t ino,
                                           bool writable, uint64_t need)
{
    struct emu_peer_mapping *m = p->mappings;

    /* not of another index that is still registered (the file is, read-only, and writable): it would go with either */
    while ((m != NULL) && ((m->dev != dev) || (m->ino != ino) || (m->size < need) || (writable && !m->writable) ||
                           ((m->index != e->seg) && (atomic_load(&p->shm->seg[m->index].gen) == m->gen)))) {
        m = m->next;
    }
    return m;
}

static struct emu_peer_mapping *mapping_at(struct emu_peer_process *p, const void *base)
{
    struct emu_peer_mapping *m = p->mappings;

    while ((m != NULL) && (m->base != base)) {
        m = m->next;
    }
    return m;
}

/* The file goes, the addresses stay valid: a thread may be in the middle of a copy. */
static void mapping_let_go(struct emu_peer_mapping *m)
{
    emu_fault_unguard(m->base);
    if (mmap(m->base, m->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) != MAP_FAILED) {
        m->size = m->dev = m->ino = 0;
    }
}

void emu_peer_let_go(struct emu_peer_process *p)
{
    for (struct emu_peer_mapping *m = p->mappings; m != NULL; m = m->next) {
        mapping_let_go(m);
    }
}

/* Addresses for a file of this size, of one that was let go, the least: a peer that registers a new file for each
 * transfer takes no more of them.  (Who is still in the middle of a copy to the old file writes to the new one:
 * it is the same peer's, which has deregistered the memory too early.) */
static struct emu_peer_mapping *mapping_again(struct emu_peer_process *p, uint64_t size, bool moved)
{
    struct emu_peer_mapping *best = NULL;

    for (struct emu_peer_mapping *m = p->mappings; m != NULL; m = m->next) {
        if ((m->size == 0) && (m->moved == moved) && (m->room >= size) && ((best == NULL) || (m->room < best->room))) {
            best = m;
        }
    }
    return best;
}

/* What is mapped: a file, by a descriptor, or (fd: -1) what has none */
struct source {
    int                 fd;
    struct emu_attached what; /* of a file: dev, ino and size */
};

static void *source_map(const struct source *s, void *at, uint64_t size, bool writable)
{
    void *base;

    if (s->fd < 0) {
        return emu_attach_map(&s->what, at, writable);
    }
    base = emu_map_unlocked(at, (size_t)size, writable ? PROT_READ | PROT_WRITE : PROT_READ, s->fd, 0);
    if ((base != MAP_FAILED) && !emu_fault_guard(s->fd, base, size)) {
        if (at == NULL) {
            munmap(base, (size_t)size);
        }
        base = MAP_FAILED;
    }
    return base;
}

/* Map memory of the peer, at least `need` of it; NULL: no room, no memory */
static struct emu_peer_mapping *mapping_make(struct emu_peer_process *p, const struct source *s, bool writable,
                                             bool moved, uint64_t need)
{
    uint64_t                 size = s->what.size, part = (need + EMU_HOME_PART - 1) / EMU_HOME_PART * EMU_HOME_PART;
    struct emu_peer_mapping *m, *again;
    void                    *base;

    size  = (moved && (part < size)) ? part : size;
    again = mapping_again(p, size, moved);
    m     = (again != NULL) ? again : room_for(size, moved) ? calloc(1, sizeof(*m)) : NULL;
    if (m == NULL) {
        return NULL;
    }
    base = source_map(s, m->base, size, writable);
    if (base == MAP_FAILED) {
        if (again != NULL) {
            mapping_let_go(m); /* as it was: not unmapped, others may map something there then */
        } else {
            free(m);
        }
        return NULL;
    }
    if (again == NULL) {
        *m          = (struct emu_peer_mapping){.base = base, .room = size, .moved = moved, .next = p->mappings};
        p->mappings = m;
        room_taken[moved] += size;
    }
    m->size     = size;
    m->dev      = s->what.dev;
    m->ino      = s->what.ino;
    m->writable = writable;
    madvise(base, (size_t)size, MADV_DONTDUMP); /* the owner's to dump; and some files are sparse */
    return m;
}

static bool source_open(struct source *s, struct emu_peer_process *proc, int fd, bool writable)
{
    struct stat st;

    s->fd = -1;
    if (fd < 0) {
        s->what.how = fd;
        return emu_attach_find(&s->what);
    }
    s->fd = emu_peer_fd(proc, fd, writable ? O_RDWR : O_RDONLY);
    if ((s->fd < 0) || fstat(s->fd, &st) || (st.st_dev != s->what.dev) || (st.st_ino != s->what.ino)) {
        return false;
    }
    s->what.size = (uint64_t)st.st_size;
    return true;
}

static void source_close(struct source *s)
{
    if (s->fd >= 0) {
        close(s->fd);
    }
}

/* Where shared memory of the peer is mapped here; NULL: it can't be */
static void *peer_segment(struct emu_peer_process *proc, const struct emu_stag *e, bool writable, uint64_t need)
{
    uint32_t                 index = e->seg, gen = e->seg_gen;
    struct emu_peer_mapping *m;
    struct emu_peer_seg     *seg;
    struct emu_seg          *shared;
    struct source            source;
    uint64_t                 dev, ino, ipc_ns;
    int                      fd;

    if (index >= EMU_MAX_SEGS) {
        return NULL;
    }
    if (proc->segs == NULL) {
        proc->segs = calloc(EMU_MAX_SEGS, sizeof(*proc->segs));
        if (proc->segs == NULL) {
            return NULL;
        }
    }
    seg = &proc->segs[index];
    if (seg->cut_off && (seg->gen == gen)) {
        return NULL;
    }
    if ((seg->base != NULL) && (seg->gen == gen) && (seg->size >= need) && (seg->writable || !writable)) {
        return seg->base;
    }
    shared = &proc->shm->seg[index];
    dev    = shared->dev;
    ino    = shared->ino;
    ipc_ns = shared->ipc_ns;
    fd     = shared->fd;
    atomic_thread_fence(memory_order_acquire); /* they were read before it is seen whether they are still right */
    m      = (atomic_load(&shared->gen) == gen) ? mapping_of(proc, e, dev, ino, writable, need) : NULL;
    if (m == NULL) {
        source.what = (struct emu_attached){.dev = dev, .ino = ino, .ipc_ns = ipc_ns};
        if (source_open(&source, proc, fd, writable) && (atomic_load(&shared->gen) == gen) && (source.what.size >= need)) {
            m = mapping_make(proc, &source, writable, e->kind == EMU_MEM_MOVED, need);
        }
        source_close(&source);
    }
    if (m == NULL) {
        return NULL;
    }
    /* An older mapping stays when it is of the same file: another VCQ may use pointers into it. */
    m->index = index;
    m->gen   = gen;
    for (struct emu_peer_mapping *old = proc->mappings; (seg->gen != gen) && (old != NULL); old = old->next) {
        if ((old->size != 0) && (old->index == index) && (old->gen != gen)) {
            mapping_let_go(old);
        }
    }
    seg->base     = m->base;
    seg->size     = m->size;
    seg->gen      = gen;
    seg->writable = m->writable;
    seg->cut_off  = false;
    return m->base;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#define POPULATE_MAX ((uint64_t)256 << 20) /* above it pages are mapped as they are touched */

static void populate(uintptr_t base, uint64_t begin, uint64_t end, bool writable)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (base + begin) & ~(page - 1), to = (base + end + page - 1) & ~(page - 1);

    if (to - from <= POPULATE_MAX) {
        /* the pages exist, since the target registered them: this only maps them */
        madvise((void *)from, to - from, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    }
}

struct emu_region emu_no_regions[EMU_REGION_PAGE] = {[0 ... EMU_REGION_PAGE - 1] = {.tag = EMU_NO_TAG}};

static struct emu_region *region_page(struct emu_peer *peer, uint32_t stag)
{
    struct emu_region **page = &peer->regions[stag / EMU_REGION_PAGE];

    if (*page == emu_no_regions) {
        struct emu_region *fresh = malloc(sizeof(emu_no_regions));
        if (fresh == NULL) {
            return NULL;
        }
        memcpy(fresh, emu_no_regions, sizeof(emu_no_regions));
        *page = fresh;
    }
    return *page;
}

/* Of a VCQ of this process: not what peers can write.  false: it is gone. */
static bool own_stag(const struct emu_peer *peer, uint32_t stag, struct emu_stag *copy)
{
    const struct emu_vcq *vcq;
    uint32_t              seq = 1;

    emu_lock(&emu_g.lock); /* it is not freed meanwhile */
    vcq = emu_g.vcqs[peer->vcq].vcq;
    while ((vcq != NULL) && (vcq->gen == peer->gen) && (seq & 1)) {
        const struct emu_stag *e = &vcq->stags[stag];

        seq = atomic_load_explicit(&e->seq, memory_order_acquire);
        memcpy(copy, e, sizeof(*copy));
        atomic_thread_fence(memory_order_acquire);
        seq = (atomic_load_explicit(&e->seq, memory_order_relaxed) == seq) ? seq : 1;
    }
    emu_unlock(&emu_g.lock);
    return !(seq & 1);
}

int emu_region_fill(struct emu_peer *peer, uint32_t stag, struct emu_region **r_p)
{
    struct emu_stag   *e    = &peer->stags[stag], copy;
    struct emu_region *page = region_page(peer, stag), *r;
    uint32_t           seq;

    if (page == NULL) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    r      = &page[stag % EMU_REGION_PAGE];
    r->tag = EMU_NO_TAG;

    for (int spin = 0;; spin++) {
        seq = atomic_load_explicit(&e->seq, memory_order_acquire);
        if (!peer->proc->self) {
            memcpy(&copy, e, sizeof(copy));
        } else if (!own_stag(peer, stag, &copy)) {
            return UTOFU_ERR_MRQ_PEER;
        }
        atomic_thread_fence(memory_order_acquire);
        if (!(seq & 1) && (atomic_load_explicit(&e->seq, memory_order_relaxed) == seq)) {
            break;
        }
        if (spin > 1000000) {
            return UTOFU_ERR_MRQ_RMT_STADD; /* its owner stopped or died in the middle */
        }
    }
    if (!(copy.flags & EMU_STAG_VALID) || (copy.high == 0) || (copy.end < copy.begin)) {
        return UTOFU_ERR_MRQ_RMT_STADD;
    }
    r->addr   = copy.addr - copy.begin;
    r->base   = (uintptr_t)r->addr;
    r->dbegin = copy.begin;
    r->dspan  = copy.end - copy.begin;
    r->seg    = EMU_MAX_SEGS;
    if (!peer->proc->self) {
        bool  writable = !(copy.flags & UTOFU_REG_MEM_FLAG_READ_ONLY);
        void *seg      = NULL;

        if (copy.kind == EMU_MEM_MOVED) {
            /* no system call tells that the process has another program by now */
            emu_peer_is_there(peer->proc);
        }
        if (((copy.kind == EMU_MEM_SHARED) || (copy.kind == EMU_MEM_MOVED)) && ((uint64_t)copy.head + copy.tail <= r->dspan)) {
            uint64_t need = copy.seg_off + (r->dspan - copy.tail);
            r->dbegin += copy.head;
            r->dspan -= (uint64_t)copy.head + copy.tail;
            if (need >= copy.seg_off) {
                emu_lock(&emu_g.lock);
                seg = peer_segment(peer->proc, &copy, writable, need);
                emu_unlock(&emu_g.lock);
            }
        }
        if ((seg != NULL) && ((copy.seg_off - copy.begin) % 8 == 0)) { /* else what is aligned there is not here */
            r->base = (uintptr_t)seg + (uintptr_t)copy.seg_off - (uintptr_t)copy.begin;
            r->seg  = copy.seg;
            populate(r->base, r->dbegin, r->dbegin + r->dspan, writable);
        } else {
            r->dbegin = UINT64_MAX; /* no offset is within 0 of it */
            r->dspan  = 0;
        }
    }
    r->begin = copy.begin;
    r->end   = copy.end;
    r->flags = copy.flags;
    if (!(copy.flags & UTOFU_REG_MEM_FLAG_READ_ONLY) && (r->dspan >= 8)) {
        r->wbegin = r->dbegin;
        r->wspan  = r->dspan;
        r->span8  = r->wspan - 8;
    } else {
        r->wbegin = UINT64_MAX;
        r->wspan  = 0;
        r->span8  = 0;
    }
    r->tag   = copy.high;
    r->seq   = seq;
    r->seq_p = &e->seq;
    *r_p     = r;
    return UTOFU_SUCCESS;
}

int emu_region_cut_off(struct emu_region *r)
{
    void *base;

    emu_lock(&emu_g.lock);
    while ((base = emu_fault_take()) != NULL) {
        for (struct emu_peer_process *p = emu_g.procs; p != NULL; p = p->next) {
            struct emu_peer_mapping *m = mapping_at(p, base);

            if (m != NULL) {
                m->dev = m->ino = 0; /* there are pages in it that are not the file's */
                if (p->segs[m->index].base == base) {
                    p->segs[m->index].cut_off = true;
                }
            }
        }
    }
    emu_unlock(&emu_g.lock);
    r->tag = EMU_NO_TAG; /* translated again, by system calls this time */
    return UTOFU_ERR_MRQ_RMT_MEMORY;
}
