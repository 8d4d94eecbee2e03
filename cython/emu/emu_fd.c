/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_fd.c - where the descriptors are that the library keeps: away from those of the program.
 *
 * A program may have closed its standard streams, and what it prints would go to whatever took
 * their numbers; and one that closes all it has not opened itself, as daemons do, gets the lowest
 * ones again, and not soon ours.
 */
#include "emu_job.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define HIGH   256 /* where there may be so many ... */
#define SHARE  4u  /* ... else behind this part of what there may be */
#define STREAM (STDERR_FILENO + 1)

static int high(void)
{
    struct rlimit limit;

    if ((getrlimit(RLIMIT_NOFILE, &limit) != 0) || (limit.rlim_cur / SHARE >= HIGH)) {
        return HIGH;
    }
    return (limit.rlim_cur / SHARE > STREAM) ? (int)(limit.rlim_cur / SHARE) : STREAM;
}

int emu_fd_dup(int fd)
{
    int to = fcntl(fd, F_DUPFD_CLOEXEC, high());

    return (to >= 0) ? to : fcntl(fd, F_DUPFD_CLOEXEC, STREAM);
}

/* The copy takes its place; without one it stays where it is, unless it must not. */
static int replace(int fd, int to)
{
    int error = errno;

    if ((to < 0) && (fd >= STREAM)) {
        return fd;
    }
    close(fd);
    errno = error;
    return to;
}

int emu_fd_keep(int fd)
{
    return ((fd < 0) || (fd >= high())) ? fd : replace(fd, emu_fd_dup(fd));
}

int emu_fd_reserve(int fd)
{
    return ((fd < 0) || (fd >= STREAM)) ? fd : replace(fd, fcntl(fd, F_DUPFD_CLOEXEC, STREAM));
}
