/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_vma.h - memory of this process: what is mapped where, and what becomes of it when it is registered. */
#ifndef EMU_VMA_H
#define EMU_VMA_H

#include "emu_internal.h"

#pragma GCC visibility push(hidden)

/* emu_vma.c: what is mapped at [addr, addr + size) of this process */
struct emu_vma {
    bool     readable, writable; /* throughout */
    bool     shared;             /* one shared file mapping covers all of it */
    bool     plain;              /* private mappings do: heap, anonymous memory, data of a program */
    bool     huge;               /* some of it has pages of hugetlbfs (so far as the kernel tells) */
    bool     anonymous;          /* no file does */
    bool     unknown;            /* /proc/self/maps can't be read, so nobody can say */
    uint64_t dev, ino, file_off; /* of addr, when shared */
    uint64_t begin, end;         /* of the mapping that addr is in */
    char     path[256];
};
bool emu_vma_query(uintptr_t addr, size_t size, struct emu_vma *vma);
/* Where the first mapping of that name ends; false: there is none, or nobody can say */
bool emu_vma_end_of(const char *path, uintptr_t *end_p);
/* Is anything mapped whose name begins so?  (Or nobody can say.) */
bool emu_vma_named(const char *path);
struct emu_mapping {
    uintptr_t begin, end;
    uint64_t  off; /* of begin, in the file */
    int       prot;
};
/* The first mapping of that file that ends after one address and begins before the other.
 * 1: found, 0: there is none, -1: nobody can say.  None of the three allocates. */
int emu_vma_of_file(uint64_t dev, uint64_t ino, uintptr_t after, uintptr_t before, struct emu_mapping *found);
/* Shows all of them, until see returns false.  false: nobody can say which there are.  (Shared
 * ones; a private mapping of the file is the program's own.) */
bool emu_vma_each_of_file(uint64_t dev, uint64_t ino, uintptr_t after, uintptr_t before,
                          bool (*see)(const struct emu_mapping *m, void *arg), void *arg);
/* The same question about another process.  1: it maps some of that file, 0: it does not, -1: nobody can say (errno) */
int emu_vma_has_file(pid_t pid, uint64_t dev, uint64_t ino);
/* The same as emu_vma_each_of_file of whatever is mapped there */
bool emu_vma_each(uintptr_t after, uintptr_t before, bool (*see)(const struct emu_mapping *m, void *arg), void *arg);
/* The kernel answers questions about single mappings: to ask takes no longer where there are many. */
bool emu_vma_is_quick(void);
/* From now on they can be seen though no descriptor can be had (EMFILE), or /proc is out of
 * reach (chroot); and no more: two descriptors are free */
void emu_vma_keep(void);
void emu_vma_let_go(void);
void emu_vma_fork_child(void); /* what is kept is not about the child */

/* emu_bounds.c: a region that is about to be registered reaches to the ends of the machine's pages, as
 * far as there is such memory; down: before its beginning, too */
void emu_bounds_widen(uintptr_t *addr, size_t *size, bool writable, bool down);

/* emu_rehome.c: private memory that becomes a mapping of a memfd when it is registered
 * (mem_lock held) */
struct emu_window {
    uint64_t begin, end; /* addresses: what peers can map of the registration */
    uint64_t dev, ino, off;
};
/* The window of [addr, addr + size), and a reference to it; -1: there is none, *why_p says why.
 * plain: emu_vma_query has said so of it */
int emu_rehome_get(const struct emu_vcq *vcq, uintptr_t addr, size_t size, bool plain, struct emu_window *w,
                   const char **why_p);
/* The registration of [addr, addr + size) went, and this reference; -1: it had none */
void emu_rehome_put(int home, uintptr_t addr, size_t size);
/* What is at off of such a file: what emu_rehome_get returned; -1: it is another file */
int emu_rehome_of(uint64_t dev, uint64_t ino, uint64_t off);
/* emu_rehome_shared.c: as emu_seg_get and emu_seg_put, for [addr, addr + size), which vma is of; shared anonymous memory
 * gets a file that peers can open where that can be done, and *vma is what is there then (mem_lock held) */
int  emu_rehome_shared_get(const struct emu_vcq *vcq, struct emu_vma *vma, uintptr_t addr, size_t size, bool writable);
void emu_rehome_shared_put(uint32_t seg);
/* For a thread of ours: from the one to the other what it has on the heap is not moved.  No
 * other lock may be waited for between them. */
void emu_rehome_hold(void);
void emu_rehome_release(void);
/* Another thread of ours begins, or has ended; between emu_rehome_hold and emu_rehome_release,
 * or in a process that has no service thread. */
void emu_rehome_beside(bool runs);
void emu_rehome_fork_prepare(void);
void emu_rehome_fork_parent(void);
void emu_rehome_fork_child(void);

/* emu_seg.c: the index of the segment for a shared mapping, one reference taken; -1: no peer can map it.  And
 * given back: was it the last?  (Both take emu_g.lock.) */
int  emu_seg_get(const struct emu_vma *vma, bool writable);
bool emu_seg_put(uint32_t index);

#define EMU_SHARED_NAME "utofu-emu-shared" /* of the file that shared anonymous memory was moved to */

/* emu_attach.c: shared memory without a descriptor, as EMU_SEG_ of emu_shm.h says how others come to it.  -1: not at all */
int emu_attach_how(const struct emu_vma *vma);
struct emu_attached {
    int       how;
    uint64_t  dev, ino, ipc_ns; /* as its owner has shown them */
    uint64_t  size;             /* found: all of it, from its beginning, ... */
    uintptr_t own;              /* ... and where this process has inherited it */
};
bool emu_attach_find(struct emu_attached *a); /* false: this process can't have it */
/* Maps all of it, and nothing else: at `at`, in the place of what is there, or (NULL) anywhere.  MAP_FAILED: what was
 * there may be gone */
void *emu_attach_map(const struct emu_attached *a, void *at, bool writable);

/* emu_fault.c: mappings of files that a peer may cut off (lock held) */
bool emu_fault_guard(int fd, void *base, uint64_t size); /* false: it can't be, and must not be mapped */
void emu_fault_unguard(void *base);
extern __thread volatile int emu_fault_seen __attribute__((tls_model("initial-exec"))); /* in an access of this thread */
void *emu_fault_take(void); /* the next mapping in which it was: from there on it is one of nothing; NULL: all are taken */

#pragma GCC visibility pop

#endif
