/* SPDX-License-Identifier: BSD-3-Clause */
/* freeze.h - what lets pages be held still though there are threads (docs/emulator.md, Private memory). */
#ifndef EMU_TEST_FREEZE_H
#define EMU_TEST_FREEZE_H

#include "harness.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xaa, 0x00)
#endif

static inline bool can_freeze_by_call(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static inline bool can_freeze_by_device(void)
{
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    int fd     = (device >= 0) ? ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC) : -1;

    if (device >= 0) {
        close(device);
    }
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

/* The other threads, by ptrace; asked only where neither of these is there */
bool can_stop(void);

static inline bool can_freeze(void)
{
    return can_freeze_by_call() || can_freeze_by_device() || can_stop();
}

/* To stop threads may take so long, on a busy machine, that for some time nothing is moved. */
static inline bool may_take_long(void)
{
    return can_freeze() && !can_freeze_by_call() && !can_freeze_by_device();
}

/* The process' capability, of this thread and those that it starts, is gone for good. */
static inline void drop_capability(unsigned capability)
{
    struct __user_cap_header_struct header  = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct   data[2] = {{0}, {0}};

    CONF_CHECK(syscall(SYS_capget, &header, data) == 0, "capget");
    data[capability / 32].effective &= ~(1u << (capability % 32));
    data[capability / 32].permitted &= ~(1u << (capability % 32));
    data[capability / 32].inheritable &= ~(1u << (capability % 32));
    CONF_CHECK(syscall(SYS_capset, &header, data) == 0, "capset");
}

#endif /* EMU_TEST_FREEZE_H */
