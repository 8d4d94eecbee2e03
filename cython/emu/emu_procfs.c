/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_procfs.c - is a process alive, stopped, and still the one that was met?  And what /proc has
 * of this one.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_now.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the kernel says of a process.  Asked of its first thread, because emulators
 * of other processors answer for /proc/PID/stat of their own process themselves. */
#define EXITING 4u    /* PF_EXITING: it runs no instruction of its program any more */
#define FORKED  0x40u /* PF_FORKNOEXEC: its memory began as a copy of its parent's */
struct process_stat {
    char     state;
    pid_t    parent;
    unsigned flags; /* the kernel's: EXITING, FORKED */
    long     threads;
    uint64_t start; /* clock ticks since boot */
};

/* false: errno says why */
static bool process_stat(pid_t pid, struct process_stat *stat_p)
{
    char    path[64], buf[1024], *p, *fields[23];
    ssize_t n;
    int     fd, field;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)pid);
    /* no functions that are cancellation points: a VCQ may be locked */
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    n = syscall(SYS_read, fd, buf, sizeof(buf) - 1);
    syscall(SYS_close, fd);
    if (n <= 0) {
        errno = ESRCH;
        return false;
    }
    buf[n] = '\0';
    p      = strrchr(buf, ')'); /* the name before it may hold anything */
    for (field = 3; (field <= 22) && (p != NULL); field++) {
        p = strchr(p, ' ');
        p = (p == NULL) ? NULL : p + 1;
        fields[field] = p;
    }
    if (p == NULL) {
        errno = ESRCH;
        return false;
    }
    stat_p->state   = *fields[3];
    stat_p->parent  = (pid_t)strtol(fields[4], NULL, 10);
    stat_p->flags   = (unsigned)strtoul(fields[9], NULL, 10);
    stat_p->threads = strtol(fields[20], NULL, 10);
    stat_p->start   = strtoull(fields[22], NULL, 10);
    return true;
}

uint64_t emu_start_time(pid_t pid)
{
    struct process_stat stat;

    return process_stat(pid, &stat) ? stat.start : 0;
}

bool emu_thread_ended(pid_t tid, uint32_t began)
{
    struct process_stat stat;

    if (process_stat(tid, &stat)) {
        /* before others see that its descriptors are closed it is EXITING, and 'Z' only after that */
        return (stat.state == 'Z') || (stat.state == 'X') || (stat.flags & EXITING) || ((began != 0) && ((uint32_t)stat.start != began));
    }
    return (tid <= 0) || (kill(tid, 0) && (errno == ESRCH));
}

bool emu_process_stopped(pid_t pid)
{
    struct process_stat stat;

    return process_stat(pid, &stat) && ((stat.state == 'T') || (stat.state == 't'));
}

bool emu_first_thread_ended(pid_t pid)
{
    struct process_stat stat;

    return process_stat(pid, &stat) && ((stat.state == 'Z') || (stat.state == 'X')) && (stat.threads > 1);
}

bool emu_own_threads_ended(long ours)
{
    struct process_stat stat;

    return process_stat(getpid(), &stat) && ((stat.state == 'Z') || (stat.state == 'X')) && (stat.threads == 1 + ours);
}

#define ANCESTORS_MAX 1000u

struct emu_family emu_family(void)
{
    struct emu_family   family = {getpid(), 0};
    struct process_stat stat;

    for (unsigned i = 0; (i < ANCESTORS_MAX) && process_stat(family.first, &stat); i++) {
        if (!(stat.flags & FORKED)) {
            family.began = stat.start;
            break;
        }
        family.first = stat.parent;
    }
    return family;
}

bool emu_is_of_family(struct emu_family family, pid_t pid)
{
    struct process_stat stat;

    if (!process_stat(pid, &stat)) {
        return (errno != ENOENT) && (errno != ESRCH);
    }
    return (stat.start >= family.began) && ((stat.flags & FORKED) || (pid == family.first));
}

static _Atomic bool own_first_ended;

bool emu_own_first_thread_ended(void)
{
    if (!atomic_load(&own_first_ended) && (getpid() != (pid_t)syscall(SYS_gettid)) &&
        emu_first_thread_ended(getpid())) {
        atomic_store(&own_first_ended, true);
    }
    return atomic_load(&own_first_ended);
}

/* Not the thread's where it need not be: emulators of other processors answer for the other */
const char *emu_own_folder(void)
{
    return atomic_load(&own_first_ended) ? "thread-self" : "self";
}

const char *emu_own_path(const char *name, char path[EMU_OWN_PATH])
{
    snprintf(path, EMU_OWN_PATH, "/proc/%s/%s", emu_own_folder(), name);
    return path;
}

int emu_open_own(const char *name, int flags)
{
    char path[EMU_OWN_PATH];

    return open(emu_own_path(name, path), flags | O_CLOEXEC);
}

void emu_procfs_fork_child(void)
{
    atomic_store(&own_first_ended, false); /* who forked is the first */
}

static uint64_t namespace_of(const char *name)
{
    char        path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
    return stat(path, &st) ? 0 : st.st_ino;
}

void emu_namespaces(uint64_t ns[EMU_NAMESPACES])
{
    static const char *const name[EMU_NAMESPACES] = {"pid", "time", "user"};

    for (unsigned i = 0; i < EMU_NAMESPACES; i++) {
        ns[i] = namespace_of(name[i]);
    }
}

uint64_t emu_ipc_namespace(void)
{
    return namespace_of("ipc");
}

const char *emu_namespace_differs(const uint64_t theirs[EMU_NAMESPACES])
{
    static const char *const name[EMU_NAMESPACES] = {"PID", "time", "user"};
    uint64_t                 ours[EMU_NAMESPACES];

    emu_namespaces(ours);
    for (unsigned i = 0; i < EMU_NAMESPACES; i++) {
        if ((ours[i] != 0) && (theirs[i] != 0) && (ours[i] != theirs[i])) {
            return name[i];
        }
    }
    return NULL;
}

bool emu_proc_is_ours(void)
{
    char    link[32];
    ssize_t n = readlink("/proc/self", link, sizeof(link) - 1);

    if (n <= 0) {
        return true; /* there is none */
    }
    link[n] = '\0';
    return strtol(link, NULL, 10) == (long)getpid();
}

#define SEGMENT_PATH 64u
static void segment_path(const struct emu_proc_slot *slot, char path[SEGMENT_PATH])
{
    snprintf(path, SEGMENT_PATH, "/proc/%d/fd/%d", (int)slot->pid, slot->seg_fd);
}

/* Does the process have the segment of the slot?  exec closes it, and leaves pid and start. */
static bool has_segment(const struct emu_proc_slot *slot)
{
    struct stat st;
    char        path[SEGMENT_PATH];

    segment_path(slot, path);
    if (stat(path, &st)) {
        return errno != ENOENT; /* not for us to see */
    }
    return (st.st_dev == slot->seg_dev) && (st.st_ino == slot->seg_ino);
}

bool emu_slot_seen(const struct emu_proc_slot *slot)
{
    struct stat st;
    char        path[SEGMENT_PATH];

    segment_path(slot, path);
    return !stat(path, &st) && (st.st_dev == slot->seg_dev) && (st.st_ino == slot->seg_ino);
}

/* Its first thread has no descriptors for a moment before the kernel says that it has ended */
#define ENDING_MS 10

bool emu_slot_alive(const struct emu_proc_slot *slot)
{
    struct process_stat stat;

    for (unsigned ms = 0;; ms++) {
        if (!process_stat(slot->pid, &stat)) {
            /* What is out of descriptors, or memory, or reach of /proc, is this process: no reason to take
             * what a living one has. */
            return ((errno != ENOENT) && (errno != ESRCH)) ||
                   (access("/proc/self", F_OK) && (!kill(slot->pid, 0) || (errno == EPERM)));
        }
        if ((slot->start_time != 0) && (stat.start != slot->start_time)) { /* 0: it could not find out */
            return false;
        }
        /* the first thread may be gone while others go on: then nobody sees its descriptors */
        if ((stat.state == 'Z') || (stat.state == 'X')) {
            return stat.threads > 1;
        }
        if (has_segment(slot)) {
            return true;
        }
        if ((stat.threads == 1) || (ms == ENDING_MS)) {
            return false;
        }
        emu_sleep(1000000);
    }
}
