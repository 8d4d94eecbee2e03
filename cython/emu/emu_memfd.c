/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_memfd.c - files of memory, which are sparse and longer than a limit of file sizes allows. */
#include "emu_internal.h"
#include "emu_job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

void emu_file_size_begin(struct emu_file_size *f)
{
    sigset_t xfsz, pending;

    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &xfsz, &f->mask);
    f->pending = (sigpending(&pending) == 0) && sigismember(&pending, SIGXFSZ);
}

void emu_file_size_end(const struct emu_file_size *f)
{
    const struct timespec at_once = {0, 0};
    int                   error   = errno;
    sigset_t              xfsz;

    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    while (!f->pending && (sigtimedwait(&xfsz, NULL, &at_once) < 0) && (errno == EINTR)) {
    }
    pthread_sigmask(SIG_SETMASK, &f->mask, NULL);
    errno = error;
}

int emu_memfd(const char *name, uint64_t size)
{
    int                  fd = emu_fd_keep(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)), ret, error;
    struct emu_file_size f;

    if (fd < 0) {
        return -1;
    }
    emu_file_size_begin(&f);
    ret = ftruncate(fd, (off_t)size);
    emu_file_size_end(&f);
    if (ret || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

bool emu_memfd_stays(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return (seals >= 0) && (seals & F_SEAL_SHRINK);
}

size_t emu_memfd_huge(int fd)
{
    struct statfs fs;

    return (!fstatfs(fd, &fs) && (fs.f_type == HUGETLBFS_MAGIC)) ? (size_t)fs.f_bsize : 0;
}

/* With mlockall(MCL_FUTURE) the kernel would fill it: all of a sparse file, or of the other one's. */
void *emu_map_unlocked(void *at, size_t size, int prot, int fd, off_t off)
{
    int   flags = (fd < 0) ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *base;

    /* huge pages that nobody has yet are set aside: where none is left the call fails, not an access */
    flags |= ((fd < 0) || !emu_memfd_huge(fd)) ? MAP_NORESERVE : 0;
    flags |= (at != NULL) ? MAP_FIXED : 0;
    base = mmap(at, size, PROT_NONE, flags, fd, off);

    if (base != MAP_FAILED) {
        munlock(base, size);
    }
    if ((base != MAP_FAILED) && mprotect(base, size, prot)) {
        if (at == NULL) { /* else these addresses stay the caller's */
            munmap(base, size);
        }
        base = MAP_FAILED;
    }
    return base;
}
