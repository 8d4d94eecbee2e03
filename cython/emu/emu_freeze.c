/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_freeze.c - pages that nobody writes for a moment, though the process has other threads.
 *
 * By userfaultfd: the pages are write-protected, and who writes one waits in the page fault
 * until it is woken, and then writes what is mapped there by then.  Nobody reads the
 * descriptor; what it would tell is known.
 *
 * It has to be one that stops the kernel, too (a read() of another thread into these
 * pages), which needs CAP_SYS_PTRACE or vm.unprivileged_userfaultfd: the one that everybody
 * gets makes such calls fail with EFAULT.  mprotect would do the same.
 */
#include "emu_internal.h"
#include "emu_rehome.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Features that headers may not have yet: shared memory (Linux 5.19), and pages that are not
 * there yet (6.4) */
#define WP_SHMEM       ((uint64_t)1 << 12)
#define WP_UNPOPULATED ((uint64_t)1 << 13)

static int uffd = -1; /* -2: there is none */

bool emu_freeze_possible(void)
{
    struct uffdio_api api = {.api      = UFFD_API,
                             .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | WP_SHMEM | WP_UNPOPULATED};

    if (uffd == -1) {
        uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
        if ((uffd >= 0) && ioctl(uffd, UFFDIO_API, &api)) {
            close(uffd);
            uffd = -1;
        }
        uffd = (uffd >= 0) ? uffd : -2;
    }
    return uffd >= 0;
}

bool emu_freeze(uintptr_t at, size_t n)
{
    struct uffdio_register     reg = {.range = {at, n}, .mode = UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect wp  = {.range = {at, n}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

    if (!emu_freeze_possible() || ioctl(uffd, UFFDIO_REGISTER, &reg)) {
        return false;
    }
    if (ioctl(uffd, UFFDIO_WRITEPROTECT, &wp)) {
        emu_thaw(at, n);
        return false;
    }
    return true;
}

void emu_thaw(uintptr_t at, size_t n)
{
    struct uffdio_range range = {at, n};

    /* of no effect on what was mapped there meanwhile; those who wait are woken in any case */
    ioctl(uffd, UFFDIO_UNREGISTER, &range);
    ioctl(uffd, UFFDIO_WAKE, &range);
}

void emu_freeze_fork_child(void)
{
    if (uffd >= 0) {
        close(uffd); /* it is about the parent's memory */
    }
    uffd = -1;
}
