/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_seg.c - the files with registered memory in them, which peers open and map: a descriptor of each, or how
 * peers come to it without one, and how many registrations it is kept for.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_vma.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A copy, kept by us, of a descriptor that is open on the file and can be mapped
 * as needed; -1: not such a descriptor */
static int dup_if_file(int n, const struct emu_vma *vma, bool writable)
{
    struct stat st;
    int         mode, fd;

    if (fstat(n, &st) || (st.st_dev != vma->dev) || (st.st_ino != vma->ino) || !S_ISREG(st.st_mode)) {
        return -1;
    }
    mode = fcntl(n, F_GETFL);
    if ((mode < 0) || ((mode & O_ACCMODE) == O_WRONLY) || (writable && ((mode & O_ACCMODE) != O_RDWR))) {
        return -1;
    }
    fd = emu_fd_dup(n);
    /* another thread may have closed it and opened something else meanwhile */
    if ((fd >= 0) && (fstat(fd, &st) || (st.st_dev != vma->dev) || (st.st_ino != vma->ino))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

#define FD_SCAN 4096 /* descriptors tried one by one where /proc/self/fd is closed to us */

/* Dups what was opened for that, if it is the file, and closes it. */
static int dup_opened(int opened, const struct emu_vma *vma, bool writable)
{
    int fd = (opened < 0) ? -1 : dup_if_file(opened, vma, writable);

    if (opened >= 0) {
        close(opened);
    }
    return fd;
}

/* A descriptor of ours for the file: one that the program has open, else one
 * opened by the name in the mapping, else by the mapping itself (for root, or CAP_CHECKPOINT_RESTORE): of shared
 * memory that has no file, and of files that nobody has a name or descriptor of.  Else another way (EMU_SEG_),
 * or -1: there is none. */
static int find_file(const struct emu_vma *vma, bool writable)
{
    struct dirent *ent;
    char           path[EMU_OWN_PATH], name[48];
    int            mode = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, fd = -1;
    DIR           *d    = opendir(emu_own_path("fd", path));

    if (d != NULL) {
        while ((fd < 0) && ((ent = readdir(d)) != NULL)) {
            char *end;
            long  n = strtol(ent->d_name, &end, 10);

            if ((end != ent->d_name) && (*end == '\0') && (n != dirfd(d))) {
                fd = dup_if_file((int)n, vma, writable);
            }
        }
        closedir(d);
    } else {
        for (int n = 0; (fd < 0) && (n < FD_SCAN); n++) {
            fd = dup_if_file(n, vma, writable);
        }
    }
    if ((fd < 0) && (vma->path[0] == '/')) {
        fd = dup_opened(open(vma->path, mode), vma, writable);
    }
    if (fd < 0) {
        snprintf(name, sizeof(name), "map_files/%" PRIx64 "-%" PRIx64, vma->begin, vma->end);
        fd = dup_opened(emu_open_own(name, mode & ~O_NOFOLLOW), vma, writable);
    }
    return (fd < 0) ? emu_attach_how(vma) : fd;
}

/* To peers.  An odd generation tells them that the rest is there. */
static void seg_show(unsigned index)
{
    const struct emu_seg *seg   = &emu_g.seg[index];
    struct emu_seg       *shown = &emu_g.shm->seg[index];
    uint32_t              gen   = atomic_load(&seg->gen);

    if (gen & 1) {
        atomic_thread_fence(memory_order_release); /* the even one of before is seen before what follows */
        shown->fd       = seg->fd;
        shown->dev      = seg->dev;
        shown->ino      = seg->ino;
        shown->ipc_ns   = seg->ipc_ns;
        shown->writable = seg->writable;
    }
    atomic_store(&shown->gen, gen);
}

/* The index of the segment for a shared mapping, one reference taken; -1: peers
 * can't map it */
int emu_seg_get(const struct emu_vma *vma, bool writable)
{
    struct emu_seg *seg = emu_g.seg;
    int             index = -1, fd;

    emu_lock(&emu_g.lock);
    for (unsigned i = 0; i < emu_g.seg_high; i++) {
        bool used = atomic_load(&seg[i].gen) & 1;

        if (used && (seg[i].dev == vma->dev) && (seg[i].ino == vma->ino) && (seg[i].writable || !writable)) {
            seg[i].refs++;
            emu_unlock(&emu_g.lock);
            return (int)i;
        }
        if (!used && (index < 0)) {
            index = (int)i;
        }
    }
    if ((index < 0) && (emu_g.seg_high < EMU_MAX_SEGS)) {
        index = (int)emu_g.seg_high++;
    }
    fd = (index < 0) ? -1 : find_file(vma, writable);
    if (fd == -1) {
        index = -1;
    } else {
        seg[index].fd       = fd;
        seg[index].dev      = vma->dev;
        seg[index].ino      = vma->ino;
        seg[index].ipc_ns   = (fd == EMU_SEG_BY_NUMBER) ? emu_ipc_namespace() : 0;
        seg[index].refs     = 1;
        seg[index].writable = writable;
        atomic_fetch_add(&seg[index].gen, 1); /* odd: peers may open it */
        seg_show((unsigned)index);
    }
    emu_unlock(&emu_g.lock);
    return index;
}

bool emu_seg_put(uint32_t index)
{
    struct emu_seg *seg = &emu_g.seg[index];
    bool            last;

    emu_lock(&emu_g.lock);
    last = --seg->refs == 0;
    if (last) {
        struct stat st;

        atomic_fetch_add(&seg->gen, 1);
        seg_show(index);
        /* the program may have closed it, and opened something else */
        if (!fstat(seg->fd, &st) && (st.st_dev == seg->dev) && (st.st_ino == seg->ino)) {
            close(seg->fd);
        }
        seg->fd = -1;
    }
    emu_unlock(&emu_g.lock);
    return last;
}
