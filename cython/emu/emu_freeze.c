/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_freeze.c - pages that nobody writes for a moment, though the process has other threads.
 *
 * By userfaultfd: the pages are write-protected, and who writes one waits in the page fault
 * until it is woken, and then writes what is mapped there by then.  What the descriptor tells, of
 * who waits, is read only while the process forks (emu_rehome_watch.c).
 *
 * It has to be one that stops the kernel, too (a read() of another thread into these
 * pages), which needs CAP_SYS_PTRACE, vm.unprivileged_userfaultfd, or that one may open
 * /dev/userfaultfd: the one that everybody gets makes such calls fail with EFAULT.  mprotect would do
 * the same.  Without it all other threads stand still meanwhile (emu_stop.c).
 */
#include "emu_internal.h"
#include "emu_rehome.h"
#include "emu_job.h"
#include "emu_stop.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Features that headers may not have yet: shared memory (Linux 5.19), and pages that are not
 * there yet (6.4) */
#define WP_SHMEM       ((uint64_t)1 << 12)
#define WP_UNPOPULATED ((uint64_t)1 << 13)
#ifndef USERFAULTFD_IOC_NEW /* 6.1 */
#define USERFAULTFD_IOC_NEW _IO(0xaa, 0x00)
#endif

static int uffd = -1; /* -2: there is none */

static int open_uffd(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), device;

    if (fd >= 0) {
        return emu_fd_keep(fd);
    }
    device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
        fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
        close(device);
    }
    return emu_fd_keep(fd);
}

bool emu_freeze_by_page(void)
{
    struct uffdio_api api = {.api      = UFFD_API,
                             .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_THREAD_ID | WP_SHMEM |
                                         WP_UNPOPULATED};

    if ((uffd >= 0) && !emu_fds_ours()) {
        uffd = -2; /* the program has closed all that it has */
    }
    if (uffd == -1) {
        uffd = open_uffd();
        if ((uffd >= 0) && ioctl(uffd, UFFDIO_API, &api)) {
            close(uffd);
            uffd = -1;
        }
        uffd = (uffd >= 0) ? uffd : -2;
    }
    return uffd >= 0;
}

bool emu_freeze_possible(void)
{
    return emu_freeze_by_page() || emu_stop_possible();
}

void emu_freeze_page(uintptr_t at, bool frozen)
{
    struct uffdio_writeprotect wp = {.range = {at, (uint64_t)sysconf(_SC_PAGESIZE)},
                                     .mode  = frozen ? UFFDIO_WRITEPROTECT_MODE_WP : 0};

    /* fails where another thread has unmapped it meanwhile; who waits there is woken by that */
    ioctl(uffd, UFFDIO_WRITEPROTECT, &wp);
}

bool emu_freeze(uintptr_t at, size_t n)
{
    struct uffdio_register     reg = {.range = {at, n}, .mode = UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect wp  = {.range = {at, n}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

    if (!emu_freeze_by_page()) {
        return emu_stop_others();
    }
    if (ioctl(uffd, UFFDIO_REGISTER, &reg)) {
        return false;
    }
    if (ioctl(uffd, UFFDIO_WRITEPROTECT, &wp)) {
        emu_thaw(at, n);
        return false;
    }
    return true;
}

bool emu_freeze_holds(void)
{
    return emu_freeze_by_page() || emu_stop_holds();
}

void emu_thaw(uintptr_t at, size_t n)
{
    struct uffdio_range range = {at, n};

    if (!emu_freeze_by_page()) {
        emu_stop_go_on();
        return;
    }
    /* of no effect on what was mapped there meanwhile; those who wait are woken in any case */
    if (ioctl(uffd, UFFDIO_UNREGISTER, &range)) { /* some of it is of a kind that can't be frozen by now */
        for (size_t done = 0; done < n; done += (size_t)sysconf(_SC_PAGESIZE)) {
            emu_freeze_page(at + done, false);
        }
    }
    ioctl(uffd, UFFDIO_WAKE, &range);
}

int emu_freeze_fd(void)
{
    return uffd;
}

bool emu_freeze_told(uintptr_t *at_p, pid_t *tid_p)
{
    struct uffd_msg msg;

    while (emu_freeze_by_page() && read(uffd, &msg, sizeof(msg)) == (ssize_t)sizeof(msg)) {
        if (msg.event == UFFD_EVENT_PAGEFAULT) {
            *at_p  = (uintptr_t)msg.arg.pagefault.address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
            *tid_p = (pid_t)msg.arg.pagefault.feat.ptid;
            return true;
        }
    }
    return false;
}

void emu_freeze_fork_child(void)
{
    if ((uffd >= 0) && emu_fds_ours()) {
        close(uffd); /* it is about the parent's memory */
    }
    uffd = -1;
    emu_stop_fork_child();
}
