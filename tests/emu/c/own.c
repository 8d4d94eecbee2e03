/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * own.c - what others see of this process.
 */
#include "own.h"

#include "harness.h"
#include "home.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAY_RESTORE 40 /* CAP_CHECKPOINT_RESTORE, which older headers lack */

struct emu_process *own_segment(void)
{
    char                path[300];
    struct emu_process  head, *map = NULL;
    struct dirent      *ent;
    struct stat         st;
    DIR                *d = opendir("/proc/self/fd");

    CONF_CHECK(d != NULL, "/proc/self/fd");
    while ((map == NULL) && ((ent = readdir(d)) != NULL)) {
        int fd;
        snprintf(path, sizeof(path), "/proc/self/fd/%s", ent->d_name);
        if (stat(path, &st) || !S_ISREG(st.st_mode) || ((fd = open(path, O_RDWR | O_CLOEXEC)) < 0)) {
            continue;
        }
        if ((pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head)) && (head.magic == EMU_MAGIC) &&
            (head.size == (uint64_t)st.st_size) && (head.pid == getpid())) {
            map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
            CONF_CHECK(map != MAP_FAILED, "mmap");
        }
        close(fd);
    }
    closedir(d);
    CONF_CHECK(map != NULL, "the segment is not among the descriptors");
    return map;
}

struct emu_control *own_control(void)
{
    char                path[300], link[300];
    struct emu_control *c = NULL;
    struct dirent      *ent;
    DIR                *d = opendir("/proc/self/fd");

    CONF_CHECK(d != NULL, "/proc/self/fd");
    while ((c == NULL) && ((ent = readdir(d)) != NULL)) {
        ssize_t n;
        int     fd;

        snprintf(path, sizeof(path), "/proc/self/fd/%s", ent->d_name);
        n = readlink(path, link, sizeof(link) - 1);
        link[(n > 0) ? n : 0] = '\0';
        if (!strncmp(link, "/memfd:utofu-emu:", 17) && ((fd = open(path, O_RDWR | O_CLOEXEC)) >= 0)) {
            c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
            CONF_CHECK(c != MAP_FAILED, "mmap");
            close(fd);
        }
    }
    closedir(d);
    CONF_CHECK(c != NULL, "the control segment is not among the descriptors");
    return c;
}

struct emu_proc_slot *own_slot(struct emu_control *c)
{
    for (unsigned i = 0; i < EMU_MAX_PROCS; i++) {
        if ((c->slot[i].pid == getpid()) && (atomic_load(&c->slot[i].state) != EMU_SLOT_FREE)) {
            return &c->slot[i];
        }
    }
    CONF_FAIL("this process has no slot");
}

int own_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int  n = 0;

    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n;
}

/* What a memfd of this process with that name has */
static uint64_t memfd_bytes(const char *name)
{
    uint64_t bytes = 0;

    for (int fd = 0; fd < 4096; fd++) {
        char        path[64], target[64] = "";
        struct stat st;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if ((readlink(path, target, sizeof(target) - 1) > 0) && (strstr(target, name) != NULL)) {
            CONF_CHECK(fstat(fd, &st) == 0, "fstat");
            bytes = (uint64_t)st.st_blocks * 512;
        }
    }
    return bytes;
}

uint64_t own_home_bytes(void)
{
    return memfd_bytes(HOME);
}

uint64_t own_segment_bytes(void)
{
    return memfd_bytes("utofu-emu-process");
}

unsigned own_mappings(const char *name)
{
    FILE    *f = fopen("/proc/self/maps", "r");
    char     line[512];
    unsigned n = 0;

    CONF_CHECK(f != NULL, "/proc/self/maps");
    while (fgets(line, sizeof(line), f) != NULL) {
        n += strstr(line, name) != NULL;
    }
    fclose(f);
    return n;
}

unsigned own_home_mappings(void)
{
    return own_mappings(HOME);
}

unsigned own_home_places(void)
{
    struct { /* of PROCMAP_QUERY, Linux 6.11 */
        uint64_t size, flags, addr, what[7], names[3];
    } query = {.size = sizeof(query), .flags = 16};
    int fd  = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int ret = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'f', 17, 104), &query);

    close(fd);
    return ret ? 1024 : 4096;
}

void own_may_not_open_mappings(void)
{
    struct __user_cap_header_struct head    = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct   data[2] = {{0, 0, 0}, {0, 0, 0}};

    CONF_CHECK(!syscall(SYS_capget, &head, data), "capget");
    data[CAP_SYS_ADMIN / 32].effective &= ~(1u << CAP_SYS_ADMIN % 32);
    data[MAY_RESTORE / 32].effective &= ~(1u << MAY_RESTORE % 32);
    CONF_CHECK(!syscall(SYS_capset, &head, data), "capset");
}
