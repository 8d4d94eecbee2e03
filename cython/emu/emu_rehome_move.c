/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_move.c - how the pages of private memory get into a memfd and back
 * (emu_rehome.c): what is at an address stays the same, and nobody sees the change.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_rehome.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHUNK       ((size_t)1 << 20)   /* copied before the old pages are given back */
#define CHUNK_EMPTY ((size_t)32 << 20)  /* the same of what has nothing to be copied */
#define GRAIN       ((uint64_t)64 << 10) /* of what is looked for in the file */
#define SPARSE_FROM ((size_t)64 << 20)  /* of larger blocks only what is there is copied */
#define PAGES_MAX   (CHUNK_EMPTY / 4096)
#define PRESENT     ((uint64_t)1 << 63) /* in /proc/self/pagemap */
#define SWAPPED     ((uint64_t)1 << 62)
#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

static pthread_mutex_t moving = PTHREAD_MUTEX_INITIALIZER; /* the innermost of all locks */

void emu_rehome_hold(void)
{
    pthread_mutex_lock(&moving);
}

void emu_rehome_release(void)
{
    pthread_mutex_unlock(&moving);
}

static bool beside; /* under `moving` */

void emu_rehome_beside(bool runs)
{
    beside = runs;
}

bool emu_rehome_not_alone(bool threads)
{
    return !threads && beside;
}

/* n bytes of the process at `at` go to the file. */
static bool copy_in(int fd, uintptr_t at, size_t n, uint64_t off)
{
    struct emu_file_size f;
    size_t               done = 0;
    long                 k    = 1;

    emu_file_size_begin(&f);
    while ((done < n) && (k > 0)) {
        k = syscall(SYS_pwrite64, fd, at + done, n - done, (long)(off + done));
        done += (k > 0) ? (size_t)k : 0;
    }
    emu_file_size_end(&f);
    return done == n;
}

/* ------------------------------------------------- what of a large block is there */

/* What the kernel says of the pages of a chunk before and while it is frozen.  Under `moving`. */
static uint64_t before[PAGES_MAX], after[PAGES_MAX];

/* false: it does not */
static bool read_pagemap(int pagemap, uintptr_t at, size_t n, uint64_t entry[PAGES_MAX])
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = n / page * sizeof(*entry);

    return (pagemap >= 0) && (n / page <= PAGES_MAX) &&
           (syscall(SYS_pread64, pagemap, entry, size, at / page * sizeof(*entry)) == (long)size);
}

/* A page that nobody has written ever needs no memory in the file either: before it was frozen it was
 * neither there nor swapped out, and after that it is still not there (but may look as if it were swapped
 * out). */
static bool is_hole(size_t i)
{
    return !(before[i] & (PRESENT | SWAPPED)) && !(after[i] & PRESENT);
}

/* Where the next begins that is not alike */
static size_t run_of_pages(size_t from, size_t pages)
{
    size_t to = from + 1;

    while ((to < pages) && (is_hole(to) == is_hole(from))) {
        to++;
    }
    return to;
}

/* Copied and mapped as below, but for such */
static bool move_in_part(int fd, uintptr_t at, size_t n, uint64_t off, bool threads)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), from, to;
    bool   ok   = true;

    for (from = 0; ok && (from < n / page); from = to) {
        to = run_of_pages(from, n / page);
        ok = is_hole(from) ? emu_rehome_punch(fd, off + from * page, (to - from) * page) :
                    copy_in(fd, at + from * page, (to - from) * page, off + from * page);
    }
    ok = ok && (!threads || emu_freeze_holds()) &&
         (syscall(SYS_mmap, at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (long)off) != -1);
    for (from = 0; ok && (from < n / page); from = to) { /* without it they are there when they are used */
        to = run_of_pages(from, n / page);
        if (!is_hole(from)) {
            madvise((void *)(at + from * page), (to - from) * page, MADV_POPULATE_WRITE);
        }
    }
    return ok;
}

/* How much of [at, hi) is moved at once: more, where nothing was written.  *sparse_p: `before` has it */
static size_t chunk_of(int pagemap, uintptr_t at, uintptr_t hi, bool *sparse_p)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (hi - at < CHUNK) ? hi - at : CHUNK, i = 0;
    size_t most = (hi - at < CHUNK_EMPTY) ? hi - at : CHUNK_EMPTY;

    *sparse_p = read_pagemap(pagemap, at, n, before);
    while (*sparse_p && (i < n / page) && !(before[i] & (PRESENT | SWAPPED))) {
        i++;
        if ((i == n / page) && (n < most) && read_pagemap(pagemap, at, most, before)) {
            n = most;
        }
    }
    return (i * page > CHUNK) ? i * page : (n < CHUNK) ? n : CHUNK;
}

/* -1: it is not only anonymous memory, or nobody can say */
static int open_pagemap(uintptr_t lo, uintptr_t hi)
{
    struct emu_vma vma;

    return (emu_vma_query(lo, hi - lo, &vma) && vma.anonymous) ? emu_open_own("pagemap", O_RDONLY) : -1;
}

/* Copy, then map over it; frozen, when there are threads.  By system calls themselves: sanitizers would find fault
 * with what is between blocks, and who watches mappings (registration caches) is not concerned, as nothing is
 * pinned.  pagemap: only what is there, by what `before` has; -1: all of it */
static bool move_chunk(int fd, uintptr_t at, size_t n, uint64_t off, bool threads, int pagemap)
{
    bool ok;

    if (threads && !emu_freeze(at, n)) {
        return false;
    }
    if (read_pagemap(pagemap, at, n, after)) {
        ok = move_in_part(fd, at, n, off, threads);
    } else {
        ok = copy_in(fd, at, n, off) && (!threads || emu_freeze_holds()) &&
             (syscall(SYS_mmap, at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, (long)off) != -1);
    }
    if (threads) {
        emu_thaw(at, n);
    }
    return ok;
}

bool emu_rehome_move_chunk(int fd, uintptr_t at, size_t n, uint64_t off, bool threads)
{
    return move_chunk(fd, at, n, off, threads, -1);
}

uintptr_t emu_rehome_move_in(int fd, uintptr_t lo, uintptr_t hi, uint64_t off, bool threads)
{
    sigset_t  all, old;
    uintptr_t at = lo;
    bool      sparse;
    int       pagemap = (hi - lo > SPARSE_FROM) ? open_pagemap(lo, hi) : -1;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    emu_rehome_hold();
    while ((at < hi) && !emu_rehome_not_alone(threads)) {
        size_t n = chunk_of(pagemap, at, hi, &sparse);

        if (!move_chunk(fd, at, n, off + (at - lo), threads, sparse ? pagemap : -1)) {
            break;
        }
        at += n;
    }
    emu_rehome_release();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pagemap >= 0) {
        close(pagemap);
    }
    return at;
}

bool emu_rehome_punch(int fd, uint64_t off, uint64_t n)
{
    return (fd >= 0) && !syscall(SYS_fallocate, fd, (long)(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE), off, n);
}

bool emu_rehome_data(int fd, uint64_t off, uint64_t end, uint64_t *from_p, uint64_t *to_p)
{
    off_t from = syscall(SYS_lseek, fd, off, (long)SEEK_DATA);

    if ((from < 0) && (errno == ENXIO)) {
        return false;
    }
    *from_p = (from < 0) ? off : (uint64_t)from;
    *to_p   = (*from_p | (GRAIN - 1)) + 1; /* SEEK_HOLE would look through all that is there, up to a hole */
    *to_p   = (*to_p < end) ? *to_p : end;
    return *from_p < end;
}

/* n bytes of the mapping at most, from *at_p on, or from where there is something again; without a
 * descriptor only what may be read there.  0: there is no more */
static ssize_t read_mapping(int fd, const struct emu_mapping *m, size_t *at_p, char *copy, size_t n)
{
    struct iovec lcl = {copy + *at_p, n - *at_p}, own = {(char *)m->begin + *at_p, n - *at_p};
    uint64_t     from, to;

    if (fd < 0) {
        return process_vm_readv((pid_t)syscall(SYS_gettid), &lcl, 1, &own, 1, 0);
    }
    if (!emu_rehome_data(fd, m->off + *at_p, m->off + n, &from, &to)) {
        *at_p = n;
        return 0;
    }
    *at_p = (size_t)(from - m->off);
    return syscall(SYS_pread64, fd, copy + *at_p, to - from, from);
}

/* So much is copied once more, to where it was: a child, whose parent waits, does it for little */
#define IN_PLACE(_ours) ((_ours) ? CHUNK : (size_t)64 << 10)

/* Whole pages, with what a sanitizer watches in between; those of zeros take no memory */
static __attribute__((noinline, no_sanitize("address", "thread", "undefined"))) void copy_pages(uintptr_t to, const char *from,
                                                                                                size_t n)
{
    volatile uint64_t       *dst  = (volatile uint64_t *)to;
    const volatile uint64_t *src  = (const volatile uint64_t *)(const void *)from;
    size_t                   page = (size_t)sysconf(_SC_PAGESIZE) / sizeof(*dst), i;

    for (size_t at = 0; at < n / sizeof(*dst); at += page) {
        for (i = at; (i < at + page) && (src[i] == 0); i++) {
        }
        for (; i < at + page; i++) { /* what is before is 0 already */
            dst[i] = src[i];
        }
    }
}

/* What has been copied becomes memory that was always there, and so one mapping with its neighbours, which a copy
 * that is moved there never is: windows here and there would leave two mappings more each.  Nobody else looks.
 * empty: all of it is zeros. */
static bool put_in_place(const struct emu_mapping *m, size_t n, char *copy, bool empty)
{
    if (syscall(SYS_mmap, m->begin, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L) == -1) {
        return false;
    }
    copy_pages(m->begin, copy, empty ? 0 : n);
    syscall(SYS_munmap, copy, n);
    if (m->prot != (PROT_READ | PROT_WRITE)) {
        syscall(SYS_mprotect, m->begin, n, (long)m->prot);
    }
    return true;
}

/* A private copy takes the place of a mapping: [m->begin, m->begin + n) of it. */
static bool move_out_part(int fd, const struct emu_mapping *m, size_t n, char *copy, bool threads, bool ours)
{
    bool   alone = !threads || !emu_freeze_by_page(), empty = true;
    size_t done = 0;

    while (done < n) {
        ssize_t k = read_mapping(fd, m, &done, copy, n);

        if ((k < 0) || ((k == 0) && (done < n))) {
            return false;
        }
        done += (size_t)k;
        empty = empty && (k == 0);
    }
    if (alone && (!threads || emu_freeze_holds()) && (empty || (n <= IN_PLACE(ours))) &&
        !emu_rehome_runs_on(m->begin, m->begin + n) && put_in_place(m, n, copy, empty)) {
        return true;
    }
    return !syscall(SYS_mprotect, copy, n, (long)m->prot) && (!threads || emu_freeze_holds()) &&
           (syscall(SYS_mremap, copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, m->begin) != -1);
}

/* How much of it goes back at once: more, where the file has nothing */
static size_t chunk_out(int fd, const struct emu_mapping *m)
{
    size_t   n = m->end - m->begin, most = (n < CHUNK_EMPTY) ? n : CHUNK_EMPTY;
    uint64_t from, to;

    n = (n < CHUNK) ? n : CHUNK;
    if ((fd < 0) || (n == most)) {
        return n;
    }
    if (!emu_rehome_data(fd, m->off, m->off + most, &from, &to)) {
        return most;
    }
    return (from - m->off > n) ? (size_t)(from - m->off) : n;
}

static char *map_copy(size_t n)
{
    return (char *)syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
}

/* So much at a time, so that nobody waits for long.  The copies are parts of one mapping, so that they are one
 * again where they go; where there are not so many addresses each is one of its own. */
bool emu_rehome_move_out(int fd, struct emu_mapping m, bool threads, bool ours)
{
    char *all = map_copy(m.end - m.begin), *copy = all;

    while (m.begin < m.end) {
        size_t n = chunk_out(fd, &m), left = (all != MAP_FAILED) ? m.end - m.begin : n;
        bool   ok;

        copy = (all != MAP_FAILED) ? copy : map_copy(n);
        if (copy == MAP_FAILED) {
            return false;
        }
        if (threads && !emu_freeze(m.begin, n)) {
            syscall(SYS_munmap, copy, left);
            return false;
        }
        ok = move_out_part(fd, &m, n, copy, threads, ours);
        if (threads) {
            emu_thaw(m.begin, n);
        }
        if (!ok) {
            syscall(SYS_munmap, copy, left);
            return false;
        }
        if (ours) {
            emu_rehome_punch(fd, m.off, n);
        }
        m.begin += n;
        m.off += n;
        copy = (all != MAP_FAILED) ? copy + n : MAP_FAILED;
    }
    return true;
}
