/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_may.c - may private memory be moved (emu_rehome.c)?  Not when somebody holds its
 * pages, nor what the caller and the kernel write meanwhile.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_modes.h"
#include "emu_rehome.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SELF_SIZE  2304u                 /* what the C library has for a thread begins at its pthread_t */
#define WORD_BEFORE 64u /* glibc's "tid", before its list of robust mutexes */
#define HEAP_ALIGN ((uintptr_t)64 << 20) /* heaps of threads begin at such addresses (glibc) */
#define STACK_MORE ((uintptr_t)64 << 10) /* of the caller's stack, below where it is now */

/* ---------------------------------------------------------------- the process */

static char text[8192]; /* of a file: too much for the stack of a thread (mem_lock is held) */

static long status_field(const char *name)
{
    const char *at = strstr(text, name);

    return (at == NULL) ? -1 : strtol(at + strlen(name), NULL, 10);
}

/* A file that has, or may have, pages of ours besides our mapping of them.  (Plain files are in /dev, too:
 * in /dev/shm, and huge pages.  What RDMA devices have is counted as pinned.) */
static bool holds_pages(const char *fd, const char *target)
{
    static const char *const harmless[] = {"/dev/null",    "/dev/zero", "/dev/full", "/dev/random",
                                           "/dev/urandom", "/dev/tty",  "/dev/pts/", "/dev/console",
                                           "/dev/ptmx",    "/dev/cpu_dma_latency",   "/dev/infiniband/"};
    struct stat              st;

    if (strstr(target, "io_uring") != NULL) {
        return true;
    }
    if (strncmp(target, "/dev/", 5) ||
        (!fstat((int)strtol(fd, NULL, 10), &st) && !S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode))) {
        return false;
    }
    for (unsigned i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
        if (!strncmp(target, harmless[i], strlen(harmless[i]))) {
            return false;
        }
    }
    return true;
}

static bool reads_directly(const char *fd)
{
    int flags = fcntl((int)strtol(fd, NULL, 10), F_GETFL);

    return (flags >= 0) && (flags & O_DIRECT);
}

/* Also those by which another thread may be reading into pages without copying (direct: they
 * matter) */
static bool descriptors_hold_pages(bool direct)
{
    char           path[EMU_OWN_PATH];
    DIR           *d     = opendir(emu_own_path("fd", path));
    bool           holds = d == NULL;
    struct dirent *ent;
    char           target[64];

    while (!holds && ((ent = readdir(d)) != NULL)) {
        ssize_t n = readlinkat(dirfd(d), ent->d_name, target, sizeof(target) - 1);

        target[(n > 0) ? n : 0] = '\0';
        holds                   = holds_pages(ent->d_name, target) ||
                (direct && (target[0] == '/') && reads_directly(ent->d_name));
    }
    if (d != NULL) {
        closedir(d);
    }
    return holds;
}

static ssize_t read_file(const char *path, char *buf, size_t size)
{
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n  = (fd < 0) ? -1 : read(fd, buf, size - 1);

    if (fd >= 0) {
        close(fd);
    }
    buf[(n > 0) ? n : 0] = '\0';
    return n;
}

/* /proc/self/status; threads other than the caller and ours? */
static bool read_status(bool *threads_p)
{
    char path[EMU_OWN_PATH];

    if (read_file(emu_own_path("status", path), text, sizeof(text)) <= 0) {
        return false;
    }
    *threads_p = status_field("\nThreads:") != 1 + emu_g.service_running;
    return true;
}

bool emu_rehome_other_threads(void)
{
    bool threads = true; /* for all we know */

    return !read_status(&threads) || threads;
}

const char *emu_rehome_against(bool threads_ok, struct emu_rehome_how *how)
{
    if (!read_status(&how->threads)) {
        return "/proc is closed to the process";
    }
    if (how->threads && !threads_ok) {
        return "there is another thread";
    }
    if (how->threads && !emu_freeze_possible()) {
        return "there is another thread, and neither userfaultfd nor ptrace for the process";
    }
    if (status_field("\nVmPin:") != 0) {
        return "a driver has pinned memory";
    }
    /* (what is locked for a registration is locked after the move, and unlocked before it goes back) */
    how->locks = (unsigned long)status_field("\nVmLck:") > emu_swap_locked() / 1024; /* -1: not known */
    if (how->locks && !emu_rehome_can_lock_again()) {
        return "memory is locked, and can't be locked again";
    }
    /* contexts of aio on the whole machine: mostly none, and then there is none of ours */
    if (((read_file("/proc/sys/fs/aio-nr", text, sizeof(text)) <= 0) || (strtol(text, NULL, 10) != 0)) &&
        emu_vma_named("/[aio]")) {
        return "there is an aio context";
    }
    return descriptors_hold_pages(how->threads) ? "an io_uring, a device or a file with O_DIRECT is open" : NULL;
}

/* ------------------------------------------------------------------- the pages */

static bool within(uintptr_t at, uintptr_t lo, uintptr_t hi)
{
    return (at >= lo) && (at < hi);
}

bool emu_rehome_runs_on(uintptr_t lo, uintptr_t hi)
{
    char stack;

    return within((uintptr_t)&stack, lo, hi + STACK_MORE);
}

bool emu_rehome_is_control_block(uintptr_t lo, uintptr_t hi)
{
    uintptr_t self = (uintptr_t)pthread_self();

    return within((uintptr_t)&errno, lo, hi) || ((self + SELF_SIZE > lo) && (self < hi));
}

/* The same of any thread: its list of robust mutexes begins in it, and the kernel knows where; what is looked at
 * is so much before and after that. */
static bool any_control_block(uintptr_t lo, uintptr_t hi, size_t before, size_t after)
{
    DIR           *d   = opendir("/proc/self/task");
    bool           any = d == NULL;
    struct dirent *ent;

    while (!any && ((ent = readdir(d)) != NULL)) {
        void  *head = NULL;
        size_t n    = 0;
        long   tid  = strtol(ent->d_name, NULL, 10);

        any = (tid > 0) && !syscall(SYS_get_robust_list, tid, &head, &n) && (head != NULL) &&
              ((uintptr_t)head + after > lo) && ((uintptr_t)head < hi + before);
    }
    if (d != NULL) {
        closedir(d);
    }
    return any;
}

struct pages {
    uintptr_t lo, hi;
};

/* A variable that each thread has, of any library */
static int has_own_of(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct pages *p  = arg;
    uintptr_t           at = (uintptr_t)info->dlpi_tls_data;

    for (unsigned i = 0; (at != 0) && (i < info->dlpi_phnum); i++) {
        if ((info->dlpi_phdr[i].p_type == PT_TLS) && (at < p->hi) && (at + info->dlpi_phdr[i].p_memsz > p->lo)) {
            return 1;
        }
    }
    (void)size;
    return 0;
}

/* The caller writes there while it holds the pages still, or runs elsewhere. */
static bool has_own(uintptr_t lo, uintptr_t hi)
{
    struct pages p = {lo, hi};

    return dl_iterate_phdr(has_own_of, &p) != 0;
}

const char *emu_rehome_against_edge(uintptr_t page)
{
    uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);

    if (emu_freeze_by_page() && !emu_rehome_watch_possible()) {
        return "there is another thread, and no /proc/self/pagemap for a fork";
    }
    /* What malloc has of the heap of a thread: fork itself writes there when there is a child, which
     * nobody else is to do (emu_rehome_fork.c) */
    if (page % HEAP_ALIGN == 0) {
        return "malloc's own is on the same page";
    }
    if (any_control_block(page, page + size, SELF_SIZE, SELF_SIZE) || has_own(page, page + size)) {
        return "a thread's own is on the same page";
    }
    return NULL;
}

const char *emu_rehome_against_pages(uintptr_t lo, uintptr_t hi, bool threads, bool plain)
{
    struct emu_vma vma = {.huge = false};

    /* nor what the kernel writes for a thread by itself */
    if ((!plain && (!emu_vma_query(lo, hi - lo, &vma) || !vma.plain)) || emu_rehome_is_control_block(lo, hi)) {
        return "it is of no kind that can be moved";
    }
    if (vma.huge) { /* no part of one can be exchanged */
        return "it is on huge pages";
    }
    /* who waits for a thread to end waits in the kernel, for the page of a word just before that list */
    if (threads && emu_freeze_by_page() && any_control_block(lo, hi, WORD_BEFORE, 0)) {
        return "a thread's own is there";
    }
    if ((threads || emu_rehome_runs_on(lo, hi)) && has_own(lo, hi)) {
        return "variables that each thread has are on the same page";
    }
    return emu_rehome_against_stack(lo, hi);
}
