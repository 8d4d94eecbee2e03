/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome.c - private memory that peers can map after all: when it is registered, its
 * pages are copied into a memfd, which is then mapped over them, at the same addresses.
 * When the last registration goes, they are made private again.
 *
 * The kernel is the only way into memory that can't be mapped, and what it copies becomes
 * visible in any order (emu_private.c).  Here a put is a store, as with memory that the
 * program maps from a memfd itself.
 *
 * That the program can't tell is a matter of conditions; where one does not hold the
 * memory stays as it is:
 *  - Nobody writes while the pages are copied: the process has no thread but the caller and
 *    our service thread, which takes mem_lock before it touches the program's memory, and
 *    emu_rehome_hold before its own, which may be on the same pages; signals are held back;
 *    nothing on the pages is registered already, so no peer writes there.
 *  - Nobody holds the old pages: nothing is pinned or locked, there is no io_uring, no aio
 *    context, no device that could have them.
 *  - A child has its own copy (fork): it makes it before it does anything else, and the parent
 *    waits for it.
 *
 * Programs that register and deregister all the time stay without: see affordable().
 *
 * Whole pages are moved, with what else is on them.  The memfd is sparse.  Pages that hang
 * together have a slot of it, far longer than what may be in it, so that a mapping that grows
 * (mremap) does not reach another's.
 */
#include "emu_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLOTS         256u
#define SLOT_SIZE     ((uint64_t)256 << 20)
#define SLOT_FIRST    ((uint64_t)64 << 20)   /* where in it the first page is; others come before and behind */
#define HOME_MAX      ((size_t)64 << 20)     /* in one slot: to copy takes 0.5 ms/MiB */
#define SPENT_FREE    500000000u             /* ns that moving may take, ... */
#define SPENT_SHARE   20u                    /* ... and this part of the time since the first */
#define SELF_SIZE     2304u                  /* what the C library has for a thread begins at its pthread_t */
#define CHUNK         ((size_t)1 << 20)      /* copied before the old pages are given back */
#define STAGS_MAX     65536u                 /* entries of STag tables looked through */
#define FORK_WAIT_MS  10000

struct slot {
    uintptr_t first, lo, hi; /* pages; the first one that was moved */
    uint32_t  refs; /* 0: could not be made private again */
    bool      used;
};

static struct {
    int         fd; /* -1: none yet, -2: it can't be made */
    uint64_t    dev, ino;
    uint64_t    begun, spent; /* ns: when the first was moved, and what moving has taken since */
    unsigned    next, used;    /* slots: where to look for a free one; how many are not */
    unsigned    waiting, left; /* of them without a reference; where to look for one */
    int         child[2]; /* pipe: a child closes it when its memory is its own */
    struct slot slot[SLOTS];
} home = {.fd = -1, .child = {-1, -1}};

static pthread_mutex_t moving = PTHREAD_MUTEX_INITIALIZER; /* the innermost of all locks */

void emu_rehome_hold(void)
{
    pthread_mutex_lock(&moving);
}

void emu_rehome_release(void)
{
    pthread_mutex_unlock(&moving);
}

static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* To move pays when they are used for long.  A program that registers for each transfer
 * is not to spend its time here. */
static bool affordable(void)
{
    return home.spent <= SPENT_FREE + (now() - home.begun) / SPENT_SHARE;
}

static uintptr_t page_size(void)
{
    static uintptr_t size;

    size = size ? size : (uintptr_t)sysconf(_SC_PAGESIZE);
    return size;
}

/* Where in the file a page of a slot is */
static uint64_t slot_offset(unsigned i, uintptr_t at)
{
    return i * SLOT_SIZE + SLOT_FIRST + at - home.slot[i].first;
}

/* ------------------------------------------------------- may it be done at all */

static long status_field(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return (at == NULL) ? -1 : strtol(at + strlen(name), NULL, 10);
}

/* A file that has, or may have, pages of ours besides our mapping of them */
static bool holds_pages(const char *target)
{
    static const char *const harmless[] = {"/dev/null", "/dev/zero", "/dev/full",    "/dev/random", "/dev/urandom",
                                           "/dev/tty",  "/dev/pts/", "/dev/console", "/dev/ptmx",   "/dev/shm/"};

    if (strstr(target, "io_uring") != NULL) {
        return true;
    }
    if (strncmp(target, "/dev/", 5)) {
        return false;
    }
    for (unsigned i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
        if (!strncmp(target, harmless[i], strlen(harmless[i]))) {
            return false;
        }
    }
    return true;
}

static bool descriptors_hold_pages(void)
{
    DIR           *d     = opendir("/proc/self/fd");
    bool           holds = d == NULL;
    struct dirent *ent;
    char           target[64];

    while (!holds && ((ent = readdir(d)) != NULL)) {
        ssize_t n = readlinkat(dirfd(d), ent->d_name, target, sizeof(target) - 1);

        target[(n > 0) ? n : 0] = '\0';
        holds                   = holds_pages(target);
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

/* Who, but the caller, has to do with this process' memory; NULL: nobody. */
static const char *other_user(void)
{
    char text[8192];

    if (read_file("/proc/self/status", text, sizeof(text)) <= 0) {
        return "/proc is closed to the process";
    }
    if (status_field(text, "\nThreads:") != 1 + emu_g.service_running) {
        return "there is another thread";
    }
    if (status_field(text, "\nVmPin:") != 0) {
        return "a driver has pinned memory";
    }
    if ((status_field(text, "\nVmLck:") != 0) && !emu_g.env.mlock_memory) {
        return "memory is locked";
    }
    /* contexts of aio on the whole machine: mostly none, and then there is none of ours */
    if (((read_file("/proc/sys/fs/aio-nr", text, sizeof(text)) <= 0) || (strtol(text, NULL, 10) != 0)) &&
        emu_vma_named("/[aio]")) {
        return "there is an aio context";
    }
    return descriptors_hold_pages() ? "an io_uring or a device is open" : NULL;
}

/* Some VCQ's registration has a byte there: a peer may be writing it.  Asked by the only
 * thread (other_user): VCQs come and go under other locks than ours. */
static bool registered(uintptr_t lo, uintptr_t hi)
{
    unsigned seen = 0;

    for (unsigned v = 0; v < EMU_MAX_VCQS; v++) {
        const struct emu_vcq *vcq = emu_g.vcq[v];

        for (uint32_t s = 0; (vcq != NULL) && (vcq->stags != NULL) && (s < vcq->stag_fresh); s++) {
            const struct emu_stag *e = &vcq->stags[s];

            if (++seen > STAGS_MAX) {
                return true;
            }
            if ((e->flags & EMU_STAG_VALID) && (e->addr < hi) && (e->addr + (e->end - e->begin) > lo)) {
                return true;
            }
        }
    }
    return false;
}

/* --------------------------------------------------------------- there and back */

static bool home_open(void)
{
    struct stat st;

    if (home.fd == -1) {
        home.fd = memfd_create("utofu-emu-home", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if ((home.fd >= 0) && (ftruncate(home.fd, (off_t)(SLOTS * SLOT_SIZE)) ||
                               fcntl(home.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
                               fstat(home.fd, &st))) {
            close(home.fd);
            home.fd = -1;
        }
        if (home.fd >= 0) {
            home.dev = st.st_dev;
            home.ino = st.st_ino;
        } else {
            home.fd = -2;
        }
    }
    return home.fd >= 0;
}

/* Copy, then map over it, so much at a time.  Returns where it ended.  By system calls
 * themselves: sanitizers would find fault with what is between blocks, and who watches
 * mappings (registration caches) is not concerned, as nothing is pinned. */
static uintptr_t move_in(uintptr_t lo, uintptr_t hi, uint64_t off)
{
    sigset_t  all, old;
    uintptr_t at = lo;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    emu_rehome_hold();
    while (at < hi) {
        size_t n = (hi - at < CHUNK) ? hi - at : CHUNK, done = 0;

        while (done < n) {
            long k = syscall(SYS_pwrite64, home.fd, at + done, n - done, (long)(off + (at - lo) + done));
            if (k <= 0) {
                goto out;
            }
            done += (size_t)k;
        }
        if (syscall(SYS_mmap, at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, home.fd,
                    (long)(off + (at - lo))) == -1) {
            goto out;
        }
        at += n;
    }
out:
    emu_rehome_release();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return at;
}

/* A private copy takes the place of a mapping. */
static bool move_out(const struct emu_mapping *m)
{
    size_t n    = m->end - m->begin, done = 0;
    char  *copy = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED) {
        return false;
    }
    while (done < n) {
        ssize_t k = pread(home.fd, copy + done, n - done, (off_t)(m->off + done));
        if (k <= 0) {
            break;
        }
        done += (size_t)k;
    }
    if ((done < n) || mprotect(copy, n, m->prot) ||
        (syscall(SYS_mremap, copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, m->begin) == -1)) {
        munmap(copy, n);
        return false;
    }
    return true;
}

/* Mappings of the file that show something of [from, to), wherever the program has moved
 * them: one after the other, begun with end = 0. */
static bool next_mapping(uint64_t from, uint64_t to, struct emu_mapping *m)
{
    while (emu_vma_of_file(home.dev, home.ino, m->end, m)) {
        uint64_t n = m->end - m->begin;

        if ((m->off < to) && (m->off + n > from)) { /* slots are too far apart for one to show two */
            return true;
        }
    }
    return false;
}

/* Is all of the slot where it was put? */
static bool in_place(unsigned i)
{
    const struct slot *s = &home.slot[i];
    struct emu_vma     vma;

    return emu_vma_query(s->lo, s->hi - s->lo, &vma) && vma.shared && (vma.dev == home.dev) && (vma.ino == home.ino) &&
           (vma.file_off == slot_offset(i, s->lo));
}

static void slot_empty(unsigned i)
{
    fallocate(home.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(i * SLOT_SIZE), (off_t)SLOT_SIZE);
}

/* No registration needs the slot: its pages become private again, where the program has
 * not unmapped them, and the slot is free.  If that can't be done now, it can be later:
 * peers may be writing there still, by a registration that does not use the slot, or the
 * caller may run on it. */
static void slot_leave(unsigned i, bool alone)
{
    struct slot       *s    = &home.slot[i];
    uintptr_t          here = (uintptr_t)&s;
    struct emu_mapping m    = {0};
    bool               may  = alone && !registered(s->lo, s->hi), done = true;
    sigset_t           all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    emu_rehome_hold();
    while (done && next_mapping(i * SLOT_SIZE, (i + 1) * SLOT_SIZE, &m)) {
        done = may && ((here < m.begin) || (here >= m.end)) && move_out(&m);
    }
    emu_rehome_release();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (done) {
        slot_empty(i);
        s->used = false;
        home.used--;
        home.waiting--;
    }
}

/* ------------------------------------------------------------------ registration */

/* The slot that has some of [lo, hi); -1: none */
static int slot_find(uintptr_t lo, uintptr_t hi)
{
    for (unsigned i = 0; (home.used != 0) && (i < SLOTS); i++) {
        if (home.slot[i].used && (home.slot[i].lo < hi) && (home.slot[i].hi > lo) && in_place(i)) {
            return (int)i;
        }
    }
    return -1;
}

/* Pages [lo, hi) are moved in where the slot has them, if nothing speaks against it: else
 * that is in *why_p.  Returns where it ended. */
static uintptr_t slot_fill(unsigned i, uintptr_t lo, uintptr_t hi, const char **why_p)
{
    char           stack;
    uintptr_t      here = (uintptr_t)&stack, tls = (uintptr_t)&errno, self = (uintptr_t)pthread_self();
    uint64_t       start = now();
    struct emu_vma vma;

    if (!affordable()) {
        *why_p = "moving has taken too much time";
        return lo;
    }
    *why_p = other_user();
    if (*why_p != NULL) {
        return lo;
    }
    /* not what the caller runs on, nor what the kernel writes for a thread by itself */
    if (!emu_vma_query(lo, hi - lo, &vma) || !vma.plain || ((here >= lo) && (here < hi)) ||
        ((tls >= lo) && (tls < hi)) || ((self + SELF_SIZE > lo) && (self < hi))) {
        *why_p = "it is the stack, or of no kind that can be moved";
        return lo;
    }
    if (registered(lo, hi)) {
        *why_p = "some of its pages is registered, and was not moved";
        return lo;
    }
    *why_p     = "there is no memory, or no memfd";
    home.begun = home.begun ? home.begun : start;
    hi         = home_open() ? move_in(lo, hi, slot_offset(i, lo)) : lo;
    home.spent += now() - start;
    return hi;
}

static int slot_make(uintptr_t lo, uintptr_t hi, const char **why_p)
{
    unsigned i;

    if ((hi - lo > HOME_MAX) || (home.used == SLOTS)) {
        *why_p = (home.used == SLOTS) ? "there are too many" : "it is too large";
        return -1;
    }
    do { /* the one that was left longest ago: somebody may be late with a put to it */
        i = home.next++ % SLOTS;
    } while (home.slot[i].used);
    home.slot[i] = (struct slot){lo, lo, lo, 0, false};
    hi           = slot_fill(i, lo, hi, why_p);
    if (lo == hi) {
        if (home.fd >= 0) {
            slot_empty(i); /* what was copied before it failed */
        }
        return -1;
    }
    home.slot[i].hi   = hi;
    home.slot[i].used = true;
    home.used++;
    home.waiting++; /* until it has a reference */
    return (int)i;
}

/* Some of [lo, hi) is there already: the rest comes before and behind it. */
static void slot_extend(unsigned i, uintptr_t lo, uintptr_t hi)
{
    struct slot *s = &home.slot[i];
    const char  *why;

    if ((hi > s->hi) && (hi - s->lo <= HOME_MAX) && (hi - s->first <= HOME_MAX)) {
        s->hi = slot_fill(i, s->hi, hi, &why);
    }
    if ((lo < s->lo) && (s->hi - lo <= HOME_MAX) && (s->first - lo <= HOME_MAX) &&
        (slot_fill(i, lo, s->lo, &why) == s->lo)) {
        s->lo = lo; /* or it is a piece that nobody knows of, which goes when the slot goes */
    }
}

int emu_rehome_get(const struct emu_vcq *vcq, uintptr_t addr, size_t size, struct emu_window *w, const char **why_p)
{
    uintptr_t    page = page_size(), lo = addr & ~(page - 1), hi = (addr + size + page - 1) & ~(page - 1);
    struct slot *s;
    int          i;

    if (!vcq->rehome || (hi <= lo)) {
        *why_p = "it is not to be";
        return -1;
    }
    i = slot_find(lo, hi);
    if (i < 0) {
        i = slot_make(lo, hi, why_p);
    } else {
        slot_extend((unsigned)i, lo, hi);
    }
    if (i < 0) {
        return -1;
    }
    s = &home.slot[i];
    home.waiting -= s->refs++ == 0;
    w->begin = (s->lo > addr) ? s->lo : addr;
    w->end   = (s->hi < addr + size) ? s->hi : addr + size;
    w->dev   = home.dev;
    w->ino   = home.ino;
    w->off   = slot_offset((unsigned)i, w->begin);
    return i;
}

/* What nobody needs any more goes; while there is another thread it can only be found to be
 * unmapped, so that one is looked at then, and another the next time. */
static void leave_unused(void)
{
    uint64_t start = now();
    bool     alone;

    if (home.waiting == 0) {
        return;
    }
    alone = other_user() == NULL;
    for (unsigned k = 0; (k < SLOTS) && (home.waiting != 0); k++) {
        unsigned i = ++home.left % SLOTS;

        if (home.slot[i].used && (home.slot[i].refs == 0)) {
            slot_leave(i, alone);
            if (!alone) {
                break;
            }
        }
    }
    home.spent += now() - start;
}

void emu_rehome_put(int i)
{
    if ((i >= 0) && (--home.slot[i].refs == 0)) {
        home.waiting++;
    }
    leave_unused();
}

int emu_rehome_of(uint64_t dev, uint64_t ino, uint64_t off)
{
    return ((home.fd >= 0) && (dev == home.dev) && (ino == home.ino)) ? (int)(off / SLOT_SIZE) : -1;
}

/* -------------------------------------------------------------------------- fork */

void emu_rehome_fork_prepare(void)
{
    emu_rehome_hold();
    if ((home.used != 0) && pipe2(home.child, O_CLOEXEC)) {
        emu_message("fork: no pipe (%s): registered memory is not the child's own at once", strerror(errno));
        home.child[0] = home.child[1] = -1;
    }
}

void emu_rehome_fork_parent(void)
{
    emu_rehome_release();
    if (home.child[0] >= 0) {
        struct pollfd closed = {home.child[0], POLLIN, 0};

        close(home.child[1]);
        /* the end of the pipe: the child has it all, or has ended, or there is none */
        while ((poll(&closed, 1, FORK_WAIT_MS) < 0) && (errno == EINTR)) {
        }
        close(home.child[0]);
        home.child[0] = home.child[1] = -1;
    }
}

void emu_rehome_fork_child(void)
{
    struct emu_mapping m = {0};

    emu_rehome_release(); /* the one thread that there is took it */
    if (home.fd < 0) {
        return;
    }
    while (next_mapping(0, SLOTS * SLOT_SIZE, &m)) {
        if (!move_out(&m)) {
            /* what it wrote would be its parent's, too */
            emu_message("fork: no memory for %zu bytes of the child's own", (size_t)(m.end - m.begin));
            abort();
        }
    }
    close(home.fd);
    if (home.child[0] >= 0) {
        close(home.child[0]);
        close(home.child[1]);
    }
    memset(&home, 0, sizeof(home));
    home.fd = home.child[0] = home.child[1] = -1;
}
