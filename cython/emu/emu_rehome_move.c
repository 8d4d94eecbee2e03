/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_move.c - how the pages of private memory get into a memfd and back
 * (emu_rehome.c): what is at an address stays the same, and nobody sees the change.
 */
#include "emu_internal.h"
#include "emu_rehome.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20) /* copied before the old pages are given back */

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

/* Copy, then map over it, so much at a time; frozen, when there are threads.  Returns where it
 * ended.  By system calls themselves: sanitizers would find fault with what is between blocks,
 * and who watches mappings (registration caches) is not concerned, as nothing is pinned. */
uintptr_t emu_rehome_move_in(int fd, uintptr_t lo, uintptr_t hi, uint64_t off, bool threads)
{
    sigset_t  all, old;
    uintptr_t at = lo;
    bool      ok = true;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    emu_rehome_hold();
    while ((at < hi) && !emu_rehome_not_alone(threads)) {
        size_t n = (hi - at < CHUNK) ? hi - at : CHUNK;

        if (threads && !emu_freeze(at, n)) {
            break;
        }
        ok = copy_in(fd, at, n, off + (at - lo)) &&
             (syscall(SYS_mmap, at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
                      (long)(off + (at - lo))) != -1);
        if (threads) {
            emu_thaw(at, n);
        }
        if (!ok) {
            break;
        }
        at += n;
    }
    emu_rehome_release();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return at;
}

void emu_rehome_punch(int fd, uint64_t off, uint64_t n)
{
    if (fd >= 0) {
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)n);
    }
}

/* n bytes of the mapping, from at on; without a descriptor only what may be read there */
static ssize_t read_mapping(int fd, const struct emu_mapping *m, size_t at, char *copy, size_t n)
{
    struct iovec lcl = {copy, n}, own = {(char *)m->begin + at, n};

    return (fd >= 0) ? pread(fd, copy, n, (off_t)(m->off + at)) : process_vm_readv(getpid(), &lcl, 1, &own, 1, 0);
}

/* A private copy takes the place of a mapping: [m->begin, m->begin + n) of it. */
static bool move_out_part(int fd, const struct emu_mapping *m, size_t n, char *copy)
{
    size_t done = 0;

    while (done < n) {
        ssize_t k = read_mapping(fd, m, done, copy + done, n - done);
        if (k <= 0) {
            return false;
        }
        done += (size_t)k;
    }
    return !mprotect(copy, n, m->prot) &&
           (syscall(SYS_mremap, copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, m->begin) != -1);
}

/* So much at a time, so that nobody waits for long, and no more is needed than that */
bool emu_rehome_move_out(int fd, struct emu_mapping m, bool threads, bool ours)
{
    while (m.begin < m.end) {
        size_t n    = (m.end - m.begin < CHUNK) ? m.end - m.begin : CHUNK;
        char  *copy = (char *)syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
        bool   ok;

        if (copy == MAP_FAILED) {
            return false;
        }
        if (threads && !emu_freeze(m.begin, n)) {
            syscall(SYS_munmap, copy, n);
            return false;
        }
        ok = move_out_part(fd, &m, n, copy);
        if (threads) {
            emu_thaw(m.begin, n);
        }
        if (!ok) {
            syscall(SYS_munmap, copy, n);
            return false;
        }
        if (ours) {
            emu_rehome_punch(fd, m.off, n);
        }
        m.begin += n;
        m.off += n;
    }
    return true;
}
