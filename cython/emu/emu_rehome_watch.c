/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_watch.c - a thread that sees who waits at frozen pages while the process forks
 * (emu_rehome_fork.c).
 *
 * They are to wait until the child has its copy.  But one that waits may have a lock that fork
 * needs first, as malloc's, and then neither would go on.  So when the thread that forks sleeps, and
 * there is no child yet, it is brought into a handler; while it is there, and can't make a child, the
 * pages are open for a moment.  Then they are frozen again, and it goes on with what it waits for.
 *
 * What it writes there itself it can write at once, as long as there is no child; the page is frozen
 * again as soon as this thread gets to it.  Is there a child?  A page of our own says so: it is mapped
 * twice from then on.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_now.h"
#include "emu_rehome.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGES        64u
#define LOOK_NS      20000u       /* between two looks */
#define OPEN_MOST    7u           /* pages are open for LOOK_NS, twice as long, ... so many times; and again */
#define GIVE_UP      100000000u   /* ns that others wait while there is no child: it may spin on a lock of theirs */
#define GIVE_UP_COPY 10000000000u /* and for the copy: the child may have been stopped */
#define EXCLUSIVE    ((uint64_t)1 << 56) /* in /proc/self/pagemap: of a page that is mapped once */

/* Pages, each once */
struct pages {
    uintptr_t at[PAGES];
    unsigned  num;
};

/* In memory that the child has, too */
struct shared {
    _Atomic bool copied; /* by the child */
};

static struct {
    pthread_t      thread;
    int            stop;    /* eventfd */
    int            state;   /* of the thread that forks: /proc/self/task/ID/stat */
    int            pagemap;
    pid_t          tid;     /* its ID */
    char          *probe;   /* a page that a child has, too */
    struct shared *shared;
    _Atomic bool   forked;  /* there is a child, or there will be none */
    _Atomic bool   paused, go_on; /* it is in the handler; it may leave that */
    _Atomic bool   ended;         /* nobody tells it any more */
    bool           interrupted;   /* it was told to get there */
    bool           given_up;
    uint64_t       since;         /* when the first of those who wait came */
    uint64_t       until;         /* it writes to a page itself until then */
    unsigned       pauses, writes;
    struct pages   waits, open;
} watch = {.stop = -1, .state = -1, .pagemap = -1};

static void pause_for(uint64_t ns)
{
    struct timespec ts = {0, (long)ns};

    syscall(SYS_nanosleep, &ts, NULL); /* no cancellation point */
}

/* false: there is no room */
static bool add(struct pages *p, uintptr_t at)
{
    for (unsigned i = 0; i < p->num; i++) {
        if (p->at[i] == at) {
            return true;
        }
    }
    if (p->num == PAGES) {
        return false;
    }
    p->at[p->num++] = at;
    return true;
}

static void open_page(uintptr_t at)
{
    if (!watch.given_up) {
        add(&watch.open, at); /* without room it stays open */
    }
    emu_freeze_page(at, false);
}

static void open_waits(void)
{
    for (unsigned i = 0; i < watch.waits.num; i++) {
        open_page(watch.waits.at[i]);
    }
    watch.waits.num = 0;
}

static void freeze_open(void)
{
    for (unsigned i = 0; i < watch.open.num; i++) {
        emu_freeze_page(watch.open.at[i], true);
    }
    watch.open.num = 0;
}

/* The thread that forks waits for somebody. */
static bool sleeps(void)
{
    char        text[256];
    ssize_t     n = syscall(SYS_pread64, watch.state, text, sizeof(text) - 1, 0L);
    const char *name_end;

    text[(n > 0) ? n : 0] = '\0';
    name_end              = strrchr(text, ')');
    return (name_end == NULL) || (name_end[1] == '\0') || (name_end[2] == 'S');
}

static bool mapped_once(void)
{
    uint64_t entry = 0;
    off_t    at;

    (void)*(volatile char *)watch.probe; /* it may have been swapped out */
    at = (off_t)((uintptr_t)watch.probe / (uintptr_t)sysconf(_SC_PAGESIZE) * sizeof(entry));
    return (syscall(SYS_pread64, watch.pagemap, &entry, sizeof(entry), at) == (long)sizeof(entry)) && (entry & EXCLUSIVE);
}

/* Or there was one that needs nothing any more */
static bool is_child_made(void)
{
    return atomic_load(&watch.forked) || !mapped_once();
}

/* It needs some time to get there; more, when that was not enough. */
static void let_it_write(uintptr_t at)
{
    watch.until = emu_now() + ((uint64_t)LOOK_NS << watch.writes++ % (OPEN_MOST + 1));
    open_page(at);
}

static void see_who_waits(void)
{
    uintptr_t at;
    pid_t     tid;

    while (emu_freeze_told(&at, &tid)) {
        if (!emu_rehome_fork_holds(at)) {
            continue; /* it was frozen for another reason, and is not ours to open */
        }
        if ((tid == watch.tid) && !is_child_made()) {
            let_it_write(at);
            continue;
        }
        watch.since = (watch.waits.num == 0) ? emu_now() : watch.since;
        if (watch.given_up || !add(&watch.waits, at)) {
            open_page(at);
        }
    }
}

/* The thread that forks is in the handler. */
static void open_for_a_moment(void)
{
    if (!is_child_made()) {
        uint64_t ns = (uint64_t)LOOK_NS << watch.pauses++ % (OPEN_MOST + 1);

        open_waits();
        pause_for(ns / 2);
        see_who_waits();
        open_waits();
        pause_for(ns / 2);
        freeze_open();
    }
    watch.interrupted = false;
    atomic_store(&watch.paused, false);
    atomic_store(&watch.go_on, true);
}

static void before_the_child(void)
{
    if (emu_now() >= watch.until) {
        freeze_open(); /* what was open for the thread that forks alone */
    }
    if (watch.waits.num == 0) {
        return;
    }
    if (emu_now() - watch.since > GIVE_UP) {
        watch.given_up = true;
        open_waits();
    } else if (!watch.interrupted && sleeps()) {
        watch.interrupted = !syscall(SYS_tgkill, (long)getpid(), (long)watch.tid, (long)SIGSEGV);
    }
}

static void *watch_main(void *arg)
{
    static const struct timespec soon = {0, LOOK_NS};
    struct pollfd fds[2] = {{emu_freeze_fd(), POLLIN, 0}, {watch.stop, POLLIN, 0}};

    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    for (;;) {
        bool look = (watch.waits.num != 0) || (watch.open.num != 0) || watch.interrupted;

        if ((ppoll(fds, 2, look ? &soon : NULL, NULL) < 0) && (errno != EINTR)) {
            break;
        }
        if (fds[1].revents != 0) {
            break;
        }
        see_who_waits();
        if (atomic_load(&watch.paused)) {
            open_for_a_moment();
        } else if (!is_child_made()) {
            before_the_child();
        } else if (atomic_load(&watch.shared->copied) ||
                   ((watch.waits.num != 0) && (emu_now() - watch.since > GIVE_UP_COPY))) {
            watch.given_up = true; /* nobody has to wait any more */
            open_waits();
        } else {
            freeze_open();
        }
    }
    atomic_store(&watch.ended, true);
    return arg;
}

bool emu_rehome_watch_pause(const siginfo_t *info)
{
    if ((info->si_code != SI_TKILL) || (info->si_pid != getpid()) || (watch.tid != (pid_t)syscall(SYS_gettid))) {
        return false;
    }
    atomic_store(&watch.go_on, false);
    atomic_store(&watch.paused, true);
    while (!atomic_load(&watch.go_on) && !atomic_load(&watch.ended)) {
        pause_for(LOOK_NS);
    }
    return true;
}

static void *own_page(int flags)
{
    void *p = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

    return (p == MAP_FAILED) ? NULL : p;
}

static void drop_page(void *p)
{
    if (p != NULL) {
        munmap(p, (size_t)sysconf(_SC_PAGESIZE));
    }
}

static void close_all(void)
{
    int *fds[] = {&watch.stop, &watch.state, &watch.pagemap};

    for (unsigned i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
        }
        *fds[i] = -1;
    }
    drop_page(watch.probe);
    drop_page(watch.shared);
    watch.probe  = NULL;
    watch.shared = NULL;
}

/* What it is told of, and by */
static bool open_all(void)
{
    char path[64];

    memset(&watch, 0, sizeof(watch));
    watch.tid = (pid_t)syscall(SYS_gettid);
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)watch.tid);
    watch.state   = open(path, O_RDONLY | O_CLOEXEC);
    watch.stop    = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch.pagemap = emu_open_own("pagemap", O_RDONLY);
    watch.probe   = own_page(MAP_PRIVATE);
    watch.shared  = own_page(MAP_SHARED);
    if (watch.probe != NULL) {
        *(volatile char *)watch.probe = 1;
    }
    return (watch.state >= 0) && (watch.stop >= 0) && (watch.pagemap >= 0) && (watch.probe != NULL) &&
           (watch.shared != NULL) && mapped_once();
}

bool emu_rehome_watch_possible(void)
{
    static bool possible;

    if (!possible) {
        possible = open_all();
        close_all();
    }
    return possible;
}

bool emu_rehome_watch_begin(void)
{
    sigset_t all, old;
    bool     ok = open_all();

    if (ok) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        ok = !emu_thread_start(&watch.thread, watch_main, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    if (!ok) {
        close_all();
    }
    return ok;
}

void emu_rehome_watch_forked(void)
{
    atomic_store(&watch.forked, true);
}

void emu_rehome_watch_stop(void)
{
    uint64_t one = 1;

    while ((write(watch.stop, &one, sizeof(one)) < 0) && (errno == EINTR)) {
    }
    while (!atomic_load(&watch.ended)) {
        pause_for(LOOK_NS);
    }
}

void emu_rehome_watch_end(void)
{
    pthread_join(watch.thread, NULL);
    close_all();
}

void emu_rehome_watch_copied(void)
{
    atomic_store(&watch.shared->copied, true);
    close_all();
}
