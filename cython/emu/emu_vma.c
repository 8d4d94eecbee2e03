/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_vma.c - what is mapped at an address of this process: may it be read and
 * written, and is it a shared mapping of a file that peers can map too.
 *
 * Asked once per registration.  The PROCMAP_QUERY ioctl (Linux 6.11) answers in
 * under a microsecond; /proc/self/maps is the way elsewhere.
 */
#include "emu_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The kernel's interface (its uapi header is newer than many systems') */
struct procmap_query {
    uint64_t size, query_flags, query_addr;
    uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
    uint32_t dev_major, dev_minor;
    uint32_t vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY_IOCTL _IOWR('f', 17, struct procmap_query)
#define VMA_READABLE 1u
#define VMA_WRITABLE 2u
#define VMA_SHARED   8u

struct vma_piece {
    uint64_t start, end, offset, dev, ino;
    bool     readable, writable, shared;
    char     path[256];
};

/* The mapping that holds addr, by ioctl.  0: found, 1: none, -1: can't ask */
static int piece_by_ioctl(int fd, uint64_t addr, struct vma_piece *p)
{
    struct procmap_query q;

    memset(&q, 0, sizeof(q));
    q.size          = sizeof(q);
    q.query_addr    = addr;
    q.vma_name_size = sizeof(p->path);
    q.vma_name_addr = (uint64_t)(uintptr_t)p->path;
    p->path[0]      = '\0';
    if (ioctl(fd, PROCMAP_QUERY_IOCTL, &q)) {
        return (errno == ENOENT) ? 1 : -1;
    }
    p->start    = q.vma_start;
    p->end      = q.vma_end;
    p->offset   = q.vma_offset;
    p->dev      = makedev(q.dev_major, q.dev_minor);
    p->ino      = q.inode;
    p->readable = (q.vma_flags & VMA_READABLE) != 0;
    p->writable = (q.vma_flags & VMA_WRITABLE) != 0;
    p->shared   = (q.vma_flags & VMA_SHARED) != 0;
    return 0;
}

/* The same from the text; reads on from where the last call stopped */
static int piece_by_text(FILE *f, uint64_t addr, struct vma_piece *p)
{
    char line[512], perms[8];

    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned maj, min;
        int      used = 0;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &p->start, &p->end, perms,
                   &p->offset, &maj, &min, &p->ino, &used) < 7) {
            continue;
        }
        if (p->end <= addr) {
            continue;
        }
        if (p->start > addr) {
            return 1;
        }
        p->dev      = makedev(maj, min);
        p->readable = perms[0] == 'r';
        p->writable = perms[1] == 'w';
        p->shared   = perms[3] == 's';
        line[strcspn(line, "\n")] = '\0';
        snprintf(p->path, sizeof(p->path), "%.255s", line + used);
        return 0;
    }
    return 1;
}

bool emu_vma_query(uintptr_t addr, size_t size, struct emu_vma *vma)
{
    uint64_t         pos = addr, end = (uint64_t)addr + size;
    struct vma_piece p;
    FILE            *text = NULL;
    bool             first = true;
    int              fd, ret;

    memset(vma, 0, sizeof(*vma));
    if (end < pos) {
        return false;
    }
    fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    while (pos < end) {
        ret = (text == NULL) ? piece_by_ioctl(fd, pos, &p) : piece_by_text(text, pos, &p);
        if (ret < 0) {
            text = fdopen(fd, "r");
            if (text == NULL) {
                break;
            }
            continue;
        }
        if (ret > 0) {
            break; /* a hole */
        }
        if (first) {
            vma->readable = p.readable;
            vma->writable = p.writable;
            vma->shared   = p.shared && (p.ino != 0);
            vma->dev      = p.dev;
            vma->ino      = p.ino;
            vma->file_off = p.offset + (pos - p.start);
            snprintf(vma->path, sizeof(vma->path), "%s", p.path);
            first = false;
        } else {
            vma->readable = vma->readable && p.readable;
            vma->writable = vma->writable && p.writable;
            vma->shared   = vma->shared && p.shared && (p.dev == vma->dev) && (p.ino == vma->ino) &&
                            (p.offset + (pos - p.start) == vma->file_off + (pos - addr));
        }
        pos = p.end;
    }
    if (text != NULL) {
        fclose(text);
    } else {
        close(fd);
    }
    return pos >= end;
}
