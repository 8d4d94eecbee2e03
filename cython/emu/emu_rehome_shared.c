/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_shared.c - shared anonymous memory (mmap MAP_SHARED | MAP_ANONYMOUS) of a process that may not open
 * the file that the kernel has for it: when it is registered it is copied into a memfd, which is mapped over it.
 *
 * For the program that is the same kind of memory: a child that is made from then on shares it, too.  So it stays
 * so, and nothing is done at fork, unlike with private memory (emu_rehome.c).  But what another process has of it
 * already would be something else from then on: nobody may have it.  /proc tells.  Whose memory it does not show
 * is none of those if he is another user, was there before, or has executed a program since he was made.
 *
 * The descriptor is kept for as long as the memory is registered, as otherwise the memory would stay when the program
 * has unmapped it.  What is registered anew is copied into a new file.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_now.h"
#include "emu_rehome.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHUNK     ((size_t)1 << 20)  /* others are held still for so much at a time */
#define SMALL     ((size_t)64 << 20) /* of more, half is to be registered, as all of it is copied */
#define LARGE     ((size_t)1 << 30)  /* both copies are there for a moment */

/* -------------------------------------------------------------------- who else has it */

/* Of the same user, by what everybody may read; or nobody can say */
static bool is_same_user(pid_t pid)
{
    char    path[32], text[1024];
    char   *at;
    ssize_t n;
    int     fd;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return (errno != ENOENT) && (errno != ESRCH);
    }
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[(n > 0) ? n : 0] = '\0';
    at                    = strstr(text, "\nUid:");
    return (at == NULL) ? (n > 0) : (strtoul(at + strlen("\nUid:"), NULL, 10) == getuid());
}

static bool may_have(pid_t pid, struct emu_family family, uint64_t dev, uint64_t ino)
{
    int has = emu_vma_has_file(pid, dev, ino);

    if (has == 0) {
        return emu_first_thread_ended(pid); /* of such a process it tells nothing */
    }
    return (has > 0) || (((errno == EACCES) || (errno == EPERM)) ? is_same_user(pid) && emu_is_of_family(family, pid) :
                                                                   ((errno != ENOENT) && (errno != ESRCH)));
}

/* Some other process has memory of the file, or may have.  Nothing is allocated: who forks may wait with the lock of
 * malloc held. */
static bool others_have(uint64_t dev, uint64_t ino)
{
    struct entry { /* the kernel's linux_dirent64 */
        uint64_t       ino;
        int64_t        off;
        unsigned short len;
        unsigned char  type;
        char           name[];
    };
    _Alignas(8) char  buf[2048];
    struct emu_family family = emu_family();
    int               fd     = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool              any    = fd < 0;
    long              n      = 0, at;

    while (!any && ((n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0)) {
        for (at = 0; !any && (at < n);) {
            const struct entry *e   = (const struct entry *)(void *)(buf + at);
            long                pid = strtol(e->name, NULL, 10); /* 0: what else is there */

            any = (pid > 0) && (pid != (long)getpid()) && may_have((pid_t)pid, family, dev, ino);
            at += e->len;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return any || (n < 0);
}

/* A process that has taken another user's rights looks as if it were of that one; and whose parent is out of sight
 * may share memory with it. */
static bool relatives_are_seen(void)
{
    return (prctl(PR_GET_DUMPABLE) == 1) && (getppid() != 0);
}

/* --------------------------------------------------------------------------- the move */

struct mapping {
    struct emu_mapping m;
    unsigned           num;
};

static bool count(const struct emu_mapping *m, void *arg)
{
    struct mapping *all = arg;

    all->m = *m;
    return ++all->num < 2;
}

/* It is one mapping, and of all of the file, as far as the process' own are concerned. */
static bool is_one(const struct emu_vma *vma)
{
    struct mapping all = {.num = 0};

    return emu_vma_each_of_file(vma->dev, vma->ino, 0, UINTPTR_MAX, count, &all) && (all.num == 1) &&
           (all.m.begin == vma->begin) && (all.m.end == vma->end) && (all.m.off == 0) &&
           (all.m.prot == (PROT_READ | PROT_WRITE));
}

/* The file goes on behind it: the program has unmapped that, and may have it back by mremap. */
static bool is_longer(const struct emu_vma *vma)
{
    size_t       n = vma->end - vma->begin, page = (size_t)sysconf(_SC_PAGESIZE);
    char         byte;
    long         all    = syscall(SYS_mremap, vma->begin, 0L, n + page, (long)MREMAP_MAYMOVE); /* one mapping more */
    struct iovec lcl    = {&byte, 1}, own = {(char *)all + n, 1};
    bool         longer = (all == -1) || (process_vm_readv((pid_t)syscall(SYS_gettid), &lcl, 1, &own, 1, 0) != -1);

    if (all != -1) {
        syscall(SYS_munmap, all, n + page);
    }
    return longer;
}

/* false: not all of it, but what was is the program's as before */
static bool move(const struct emu_vma *vma, int fd, bool threads)
{
    uintptr_t at = vma->begin;
    sigset_t  all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    emu_rehome_hold(); /* no child is made from now on */
    if (!is_longer(vma) && !others_have(vma->dev, vma->ino)) {
        while ((at < vma->end) && !emu_rehome_not_alone(threads)) {
            size_t n = (vma->end - at < CHUNK) ? vma->end - at : CHUNK;

            if (!emu_rehome_move_chunk(fd, at, n, at - vma->begin, threads)) {
                break;
            }
            at += n;
        }
    }
    emu_rehome_release();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return at == vma->end;
}

static bool may_move(const struct emu_vcq *vcq, const struct emu_vma *vma, uintptr_t addr, size_t size,
                     struct emu_rehome_how *how)
{
    uintptr_t lo = vma->begin, hi = vma->end;

    return vcq->rehome && (addr + size <= hi) && (hi - lo <= LARGE) && ((hi - lo <= SMALL) || (size >= (hi - lo) / 2)) &&
           relatives_are_seen() && is_one(vma) && emu_rehome_affordable() && !emu_rehome_is_vain(lo, hi) &&
           (emu_rehome_against(emu_g.env.rehome == EMU_REHOME_AUTO, how) == NULL) && !emu_rehome_registered(lo, hi) &&
           !emu_rehome_runs_on(lo, hi) && (emu_rehome_against_pages(lo, hi, how->threads, true) == NULL);
}

/* The descriptor of the file that it has now; -1: it is as it was */
static int give_file(const struct emu_vcq *vcq, const struct emu_vma *vma, uintptr_t addr, size_t size)
{
    struct emu_rehome_how how;
    bool                  moved;
    int                   fd;

    if (!may_move(vcq, vma, addr, size, &how)) {
        return -1;
    }
    fd = emu_memfd(EMU_SHARED_NAME, vma->end - vma->begin);
    if ((fd < 0) || !emu_rehome_note_locks(&how, vma->begin, vma->end)) {
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    emu_rehome_begin();
    moved = move(vma, fd, how.threads);
    emu_rehome_lock_again();
    if (!moved) {
        close(fd);
        emu_rehome_note(vma->begin, vma->end, true); /* it will mostly be so the next time */
        return -1;
    }
    return fd;
}

/* ----------------------------------------------------------------------- registration */

/* Of segments whose memory was moved: what it is, and since when.  since 0: it was not.  Under mem_lock. */
static struct {
    uintptr_t lo, hi;
    uint64_t  since, took; /* ns */
} moved[EMU_MAX_SEGS];

int emu_rehome_shared_get(const struct emu_vcq *vcq, struct emu_vma *vma, uintptr_t addr, size_t size, bool writable)
{
    int      seg   = emu_seg_get(vma, writable), fd;
    uint64_t start = emu_now();

    if ((seg < 0) || (emu_g.seg[seg].fd != EMU_SEG_INHERITED) || (emu_g.seg[seg].refs != 1)) {
        return seg;
    }
    fd = give_file(vcq, vma, addr, size);
    if (fd < 0) {
        return seg;
    }
    emu_seg_put((uint32_t)seg);
    seg = (emu_vma_query(addr, size, vma) && vma->shared) ? emu_seg_get(vma, writable) : -1;
    close(fd);
    if (seg >= 0) {
        moved[seg].lo    = vma->begin;
        moved[seg].hi    = vma->end;
        moved[seg].since = emu_now();
        moved[seg].took  = moved[seg].since - start;
    }
    return seg;
}

void emu_rehome_shared_put(uint32_t seg)
{
    if (emu_seg_put(seg) && (moved[seg].since != 0)) {
        bool vain = emu_rehome_spend(moved[seg].took, emu_now() - moved[seg].since);

        emu_rehome_note(moved[seg].lo, moved[seg].hi, vain);
        moved[seg].since = 0;
    }
}

void emu_rehome_shared_fork_child(void)
{
    memset(moved, 0, sizeof(moved));
}
