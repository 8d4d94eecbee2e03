/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_vma.c - what is mapped at an address of this process: may it be read and
 * written, and is it a shared mapping of a file that peers can map too.
 *
 * Asked once per registration.  The PROCMAP_QUERY ioctl (Linux 6.11) answers in
 * under a microsecond; /proc/self/maps is the way elsewhere.  Nothing here allocates:
 * a child asks right after fork.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_vma.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
#define VMA_EXEC     4u
#define VMA_SHARED   8u
/* Of query_flags, with those above as what it must be (the text has all of them) */
#define OR_NEXT      16u /* the next mapping, when none is there */

struct vma_piece {
    uint64_t start, end, offset, dev, ino;
    bool     readable, writable, exec, shared, huge;
    char     path[256];
};

/* Descriptors that are kept for when none can be opened any more, or /proc not be reached */
struct kept {
    int   fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};
static struct kept kept_maps = {.fd = -1}, kept_proc = {.fd = -1};

/* It has not been closed by the program, with something else open in its place. */
static bool kept_is_there(const struct kept *k)
{
    struct stat st;

    return (k->fd >= 0) && !fstat(k->fd, &st) && (st.st_dev == k->dev) && (st.st_ino == k->ino);
}

static void keep(struct kept *k, const char *path, int flags)
{
    struct stat st;

    if (!kept_is_there(k)) {
        k->fd = emu_fd_reserve(open(path, flags | O_CLOEXEC));
        if ((k->fd >= 0) && !fstat(k->fd, &st)) {
            k->dev = st.st_dev;
            k->ino = st.st_ino;
        }
    }
}

static void let_go(struct kept *k)
{
    if (kept_is_there(k)) {
        close(k->fd);
    }
    k->fd = -1;
}

void emu_vma_keep(void)
{
    char path[EMU_OWN_PATH];

    keep(&kept_maps, emu_own_path("maps", path), O_RDONLY);
    keep(&kept_proc, "/proc", O_PATH | O_DIRECTORY);
}

void emu_vma_let_go(void)
{
    let_go(&kept_maps);
    let_go(&kept_proc);
}

void emu_vma_fork_child(void)
{
    let_go(&kept_maps); /* it tells of the parent's memory */
}

/* /proc/self/maps, line by line */
struct maps {
    int    fd;
    off_t  pos;
    size_t at, have;
    bool   as_text, kept;
    bool   again; /* opened twice: the first thread has ended */
    bool   unnamed; /* what is mapped needs no name, which takes the kernel a third of the time */
    char   buf[4096];
};

static int open_maps(void)
{
    int  fd = emu_open_own("maps", O_RDONLY);
    char path[EMU_OWN_PATH];

    if ((fd < 0) && kept_is_there(&kept_proc)) {
        snprintf(path, sizeof(path), "%s/maps", emu_own_folder());
        fd = openat(kept_proc.fd, path, O_RDONLY | O_CLOEXEC);
    }
    return fd;
}

static bool maps_open(struct maps *m)
{
    m->fd      = open_maps();
    m->pos     = 0;
    m->at      = m->have = 0;
    m->as_text = m->unnamed = m->again = false;
    if ((m->fd < 0) && emu_own_first_thread_ended()) {
        m->fd = open_maps();
    }
    m->kept = (m->fd < 0) && kept_is_there(&kept_maps);
    m->fd   = m->kept ? kept_maps.fd : m->fd;
    return m->fd >= 0;
}

static void maps_close(struct maps *m)
{
    if (!m->kept) {
        close(m->fd);
    }
}

/* The next line without its end, cut to size.  0: it is there, 1: there is none, -1: can't read */
static int maps_line(struct maps *m, char *line, size_t size)
{
    size_t n = 0;

    for (;;) {
        if (m->at == m->have) {
            ssize_t k = pread(m->fd, m->buf, sizeof(m->buf), m->pos);
            if (k <= 0) {
                return (k == 0) ? 1 : -1;
            }
            m->pos += k;
            m->at   = 0;
            m->have = (size_t)k;
        }
        char c = m->buf[m->at++];
        if (c == '\n') {
            line[n] = '\0';
            return 0;
        }
        if (n + 1 < size) {
            line[n++] = c;
        }
    }
}

/* The mapping that holds addr, or, with OR_NEXT, that ends first after it, by ioctl.
 * 0: found, 1: none, -1: can't ask */
static int piece_by_ioctl(const struct maps *m, uint64_t addr, unsigned which, struct vma_piece *p)
{
    struct procmap_query q;

    memset(&q, 0, sizeof(q));
    q.size          = sizeof(q);
    q.query_flags   = which;
    q.query_addr    = addr;
    p->path[0]      = '\0';
    if (!m->unnamed) {
        q.vma_name_size = sizeof(p->path);
        q.vma_name_addr = (uint64_t)(uintptr_t)p->path;
        memset(p->path, 0, sizeof(p->path)); /* not only its end: valgrind does not see what the ioctl writes there */
    }
    if (ioctl(m->fd, PROCMAP_QUERY_IOCTL, &q)) {
        return (errno == ENOENT) ? 1 : -1;
    }
    p->start    = q.vma_start;
    p->end      = q.vma_end;
    p->offset   = q.vma_offset;
    p->dev      = makedev(q.dev_major, q.dev_minor);
    p->ino      = q.inode;
    p->readable = (q.vma_flags & VMA_READABLE) != 0;
    p->writable = (q.vma_flags & VMA_WRITABLE) != 0;
    p->exec     = (q.vma_flags & VMA_EXEC) != 0;
    p->shared   = (q.vma_flags & VMA_SHARED) != 0;
    p->huge     = q.vma_page_size > (uint64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

/* A number of the line, and what ends it, are taken off its front */
static uint64_t number(char **line_p, int base)
{
    uint64_t v = strtoull(*line_p, line_p, base);

    *line_p += (**line_p != '\0');
    return v;
}

/* The same from the text; reads on from where the last call stopped */
static int piece_by_text(struct maps *m, uint64_t addr, bool or_next, struct vma_piece *p)
{
    char line[512], *at;
    int  ret;

    while ((ret = maps_line(m, line, sizeof(line))) == 0) {
        unsigned maj, min;

        at       = line; /* begin-end perms offset maj:min inode path */
        p->start = number(&at, 16);
        p->end   = number(&at, 16);
        if (p->end <= addr) {
            continue;
        }
        if ((p->start > addr) && !or_next) {
            return 1;
        }
        if (strlen(at) < 5) {
            return -1;
        }
        p->readable = at[0] == 'r';
        p->writable = at[1] == 'w';
        p->exec     = at[2] == 'x';
        p->shared   = at[3] == 's';
        at += 5;
        p->offset = number(&at, 16);
        maj       = (unsigned)number(&at, 16);
        min       = (unsigned)number(&at, 16);
        p->dev    = makedev(maj, min);
        p->ino    = number(&at, 10);
        at += strspn(at, " ");
        memcpy(p->path, at, strnlen(at, sizeof(p->path) - 1) + 1);
        p->path[sizeof(p->path) - 1] = '\0';
        p->huge = !strncmp(p->path, "/anon_hugepage", 14);
        return 0;
    }
    return ret;
}

static int next_piece(struct maps *m, uint64_t addr, unsigned which, struct vma_piece *p)
{
    int ret = m->as_text ? -1 : piece_by_ioctl(m, addr, which, p);

    if (ret < 0) {
        m->as_text = true;
        ret        = piece_by_text(m, addr, (which & OR_NEXT) != 0, p);
    }
    if ((ret > 0) && m->as_text && (m->pos == 0) && !m->kept && !m->again && emu_own_first_thread_ended()) {
        /* kernels that let it be opened have it empty */
        close(m->fd);
        m->fd      = open_maps();
        m->as_text = false;
        m->again   = true;
        ret        = (m->fd < 0) ? -1 : next_piece(m, addr, which, p);
    }
    return ret;
}

/* Memory of the process alone: heap, stack, anonymous, data of a program; not a device */
static bool is_plain(const struct vma_piece *p)
{
    return p->readable && p->writable && !p->exec && !p->shared && strncmp(p->path, "/dev/", 5) &&
           ((p->path[0] != '[') || !strcmp(p->path, "[heap]") || !strcmp(p->path, "[stack]") ||
            !strncmp(p->path, "[anon:", 6));
}

bool emu_vma_query(uintptr_t addr, size_t size, struct emu_vma *vma)
{
    uint64_t         pos = addr, end = (uint64_t)addr + size;
    struct vma_piece p;
    struct maps      m;
    bool             first = true;
    int              ret   = 0;

    memset(vma, 0, sizeof(*vma));
    if (end < pos) {
        return false;
    }
    if (!maps_open(&m)) {
        vma->unknown = true;
        return false;
    }
    while ((pos < end) && ((ret = next_piece(&m, pos, 0, &p)) == 0)) {
        if (first) {
            vma->readable = p.readable;
            vma->writable = p.writable;
            vma->plain    = is_plain(&p);
            vma->anonymous = p.ino == 0;
            vma->huge     = p.huge;
            vma->shared   = p.shared && (p.ino != 0);
            vma->dev      = p.dev;
            vma->ino      = p.ino;
            vma->file_off = p.offset + (pos - p.start);
            vma->begin    = p.start;
            vma->end      = p.end;
            memcpy(vma->path, p.path, sizeof(vma->path));
            first = false;
        } else {
            vma->readable = vma->readable && p.readable;
            vma->writable = vma->writable && p.writable;
            vma->plain    = vma->plain && is_plain(&p);
            vma->anonymous = vma->anonymous && (p.ino == 0);
            vma->huge     = vma->huge || p.huge;
            vma->shared   = vma->shared && p.shared && (p.dev == vma->dev) && (p.ino == vma->ino) &&
                            (p.offset + (pos - p.start) == vma->file_off + (pos - addr));
        }
        pos = p.end;
    }
    maps_close(&m);
    vma->unknown = ret < 0;
    return pos >= end;
}

bool emu_vma_end_of(const char *path, uintptr_t *end_p)
{
    uint64_t         pos = 0;
    struct vma_piece p;
    struct maps      m;
    bool             found = false;

    if (!maps_open(&m)) {
        return false;
    }
    while (!found && (next_piece(&m, pos, OR_NEXT, &p) == 0)) {
        found = strcmp(p.path, path) == 0;
        pos   = p.end;
    }
    maps_close(&m);
    *end_p = (uintptr_t)pos;
    return found;
}

bool emu_vma_named(const char *path)
{
    uint64_t         pos = 0;
    struct vma_piece p;
    struct maps      m;
    bool             found = false;
    int              ret   = 0;

    if (!maps_open(&m)) {
        return true; /* for all we know */
    }
    while (!found && ((ret = next_piece(&m, pos, OR_NEXT, &p)) == 0)) {
        found = strncmp(p.path, path, strlen(path)) == 0;
        pos   = p.end;
    }
    maps_close(&m);
    return found || (ret < 0);
}

/* Shows what is mapped of [after, before), in part or all of it, until see returns false.  which: as for next_piece */
static bool each(unsigned which, bool (*of_it)(const struct vma_piece *p, void *what), void *what, uintptr_t after,
                 uintptr_t before, bool (*see)(const struct emu_mapping *m, void *arg), void *arg)
{
    uint64_t         pos = after;
    struct vma_piece p;
    struct maps      m;
    bool             more = true;
    int              ret  = 0;

    if (!maps_open(&m)) {
        return false;
    }
    m.unnamed = true;
    while (more && ((ret = next_piece(&m, pos, which, &p)) == 0) && (p.start < before)) {
        pos = p.end;
        if (of_it(&p, what)) {
            struct emu_mapping found = {(uintptr_t)p.start, (uintptr_t)p.end, p.offset,
                                        (p.readable ? PROT_READ : 0) | (p.writable ? PROT_WRITE : 0) |
                                                (p.exec ? PROT_EXEC : 0)};
            more                     = see(&found, arg);
        }
    }
    maps_close(&m);
    return ret >= 0;
}

struct file {
    uint64_t dev, ino;
};

static bool is_of_file(const struct vma_piece *p, void *what)
{
    const struct file *file = what;

    return (p->ino == file->ino) && (p->dev == file->dev);
}

bool emu_vma_each_of_file(uint64_t dev, uint64_t ino, uintptr_t after, uintptr_t before,
                          bool (*see)(const struct emu_mapping *m, void *arg), void *arg)
{
    struct file file = {dev, ino};

    return each(OR_NEXT | VMA_SHARED, is_of_file, &file, after, before, see, arg);
}

static bool is_any(const struct vma_piece *p, void *what)
{
    (void)p;
    (void)what;
    return true;
}

bool emu_vma_each(uintptr_t after, uintptr_t before, bool (*see)(const struct emu_mapping *m, void *arg), void *arg)
{
    return each(OR_NEXT, is_any, NULL, after, before, see, arg);
}

bool emu_vma_is_quick(void)
{
    struct vma_piece p;
    struct maps      m;
    bool             quick = maps_open(&m) && (next_piece(&m, 0, OR_NEXT, &p) == 0) && !m.as_text;

    if (m.fd >= 0) {
        maps_close(&m);
    }
    return quick;
}

/* 1: process pid has a shared mapping of the file, 0: it has none, -1: nobody can say (errno) */
int emu_vma_has_file(pid_t pid, uint64_t dev, uint64_t ino)
{
    struct maps      m = {.unnamed = true, .again = true}; /* it is not our own */
    struct file      file = {dev, ino};
    uint64_t         pos = 0;
    struct vma_piece p;
    char             path[32];
    bool             has = false;
    int              ret = 0, error;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    m.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (m.fd < 0) {
        return -1;
    }
    while (!has && ((ret = next_piece(&m, pos, OR_NEXT | VMA_SHARED, &p)) == 0)) {
        has = p.shared && is_of_file(&p, &file);
        pos = p.end;
    }
    error = errno;
    maps_close(&m);
    errno = error;
    return has ? 1 : (ret < 0) ? -1 : 0;
}

static bool the_first(const struct emu_mapping *m, void *arg)
{
    *(struct emu_mapping *)arg = *m;
    return false;
}

int emu_vma_of_file(uint64_t dev, uint64_t ino, uintptr_t after, uintptr_t before, struct emu_mapping *found_p)
{
    struct emu_mapping m = {0};

    if (!emu_vma_each_of_file(dev, ino, after, before, the_first, &m)) {
        return -1;
    }
    if (m.end == 0) {
        return 0;
    }
    *found_p = m;
    return 1;
}
