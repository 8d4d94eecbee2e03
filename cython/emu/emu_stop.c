/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_stop.c - the other threads of this process stand still for a while.
 *
 * For pages that nobody may write for a moment (emu_freeze.c), where there is no userfaultfd: by
 * ptrace, which an ordinary user may apply to a process of his own.  A thread can't trace its own
 * process, so a helper does it: a process that has all of this one's memory and descriptors, and
 * lives for as long as the others stand still.  Each thread stands where it would handle a signal: no
 * system call is under way for it.  What it waited for in the kernel it waits for again then, as after
 * a signal without a handler.
 *
 * The helper ends with the process, whatever ends that; and when the helper ends, the kernel lets
 * everybody run.  It has the caller's thread-local variables, so it makes its system calls by itself.
 */
#include "emu_stop.h"

#include "emu_internal.h"
#include "emu_now.h"
#include "emu_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/ptrace.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX    4096u
#define WAIT_NS        100000000u   /* for all of them to stand still: one may not be interruptible */
#define LOOK_NS        10000u       /* between two looks whether they do */
#define LOOKS_AT_ONCE  20u          /* before the first such pause */
#define PAUSE_NS       1000000000u  /* nothing is tried again for so long after a failure */
#define FORK_NS        10000000000u /* that they stand still for a child, which may have been stopped */
#define SIG_SYSCALL    (SIGTRAP | 0x80)
#define EVENT_STOP     128 /* PTRACE_EVENT_STOP */
#define ERESTARTNOHAND 514 /* the kernel's: again, if no handler runs before */

/* PTRACE_GET_SYSCALL_INFO (Linux 5.3), which headers may not have */
#define GET_SYSCALL_INFO 0x420e
struct syscall_info {
    uint8_t  op; /* 1: entry */
    uint8_t  pad[3];
    uint32_t arch;
    uint64_t ip, sp, nr, args[6];
};

enum state {
    STARTING,
    FOLLOWING, /* the caller, who is about to fork */
    STOPPED,
    FAILED, /* they run, as they could not be stopped, or it is not allowed */
};

struct thread {
    int  tid, sig; /* sig: what it is to get when it goes on */
    bool stands;
};

static struct {
    _Atomic int   state; /* the helper's word */
    _Atomic int   go_on; /* the caller's */
    int           tasks; /* /proc/self/task */
    int           pid, caller, helper;
    bool          forks;
    unsigned      num;
    struct thread thread[THREADS_MAX];
} stop;

static unsigned depth; /* of emu_stop_others that succeeded */
static bool     fork_stops; /* there is a helper for a fork */
static uint64_t not_before; /* ns */
static bool     proven;     /* it has worked once */

#if defined(EMU_RAW)

/* ------------------------------------------------------------------------- the helper */

/* None of it may touch what the caller's thread has (sanitizers, errno). */
#define HELPER static __attribute__((noinline, no_sanitize("address", "thread", "undefined")))

HELPER long trace(long what, long tid, long addr, void *data)
{
    return emu_raw(SYS_ptrace, what, tid, addr, (long)data, 0, 0);
}

HELPER uint64_t helper_now(void)
{
    struct timespec ts;

    emu_raw(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&ts, 0, 0, 0, 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

HELPER void tell(int state)
{
    atomic_store(&stop.state, state);
    emu_raw(SYS_futex, (long)&stop.state, FUTEX_WAKE, 1, 0, 0, 0);
}

/* A system call that Linux lets end with EINTR after a stop begins anew, too: of those that have done
 * nothing yet, by what the kernel itself would have left in the register. */
HELPER void restart(int tid)
{
#if defined(__x86_64__)
    static const int calls[] = {SYS_epoll_wait, SYS_epoll_pwait, SYS_semop, SYS_semtimedop, SYS_rt_sigtimedwait,
                                SYS_read, SYS_readv, SYS_recvfrom, SYS_recvmsg, SYS_connect, SYS_accept, SYS_accept4,
                                SYS_write, SYS_writev, SYS_sendto, SYS_sendmsg, SYS_recvmmsg, SYS_sendmmsg,
#ifdef SYS_epoll_pwait2
                                SYS_epoll_pwait2,
#endif
                                SYS_splice, SYS_sendfile};
    struct user_regs_struct regs;

    if ((trace(PTRACE_GETREGS, tid, 0, &regs) != 0) || ((long)regs.rax != -EINTR)) {
        return;
    }
    for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        if ((long)regs.orig_rax == calls[i]) {
            regs.rax = (unsigned long)-ERESTARTNOHAND;
            trace(PTRACE_SETREGS, tid, 0, &regs);
            return;
        }
    }
#else
    (void)tid; /* the first argument is lost by then, on aarch64 */
#endif
}

/* What wait4 says of a thread.  Returns whether it is there still. */
HELPER bool see(struct thread *t, int status)
{
    if (!WIFSTOPPED(status)) {
        return false;
    }
    t->stands = true;
    t->sig    = 0;
    if ((status >> 16) == 0) {
        t->sig = WSTOPSIG(status); /* it was about to get this signal */
    } else if (((status >> 16) == EVENT_STOP) && (WSTOPSIG(status) == SIGTRAP)) {
        restart(t->tid);
    }
    return true;
}

HELPER bool known(int tid)
{
    for (unsigned i = 0; i < stop.num; i++) {
        if (stop.thread[i].tid == tid) {
            return true;
        }
    }
    return false;
}

/* What is in a file of a thread; < 0: there is none */
HELPER long read_of(const char *name, const char *file, char *text, size_t size)
{
    char     path[32];
    unsigned n = 0;
    long     fd, k;

    for (; (name[n] != '\0') && (n < sizeof(path) - 10); n++) {
        path[n] = name[n];
    }
    for (; *file != '\0'; file++) {
        path[n++] = *file;
    }
    path[n] = '\0';
    fd      = emu_raw(SYS_openat, stop.tasks, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (fd < 0) {
        return -1;
    }
    k = emu_raw(SYS_read, fd, (long)text, (long)size, 0, 0, 0);
    emu_raw(SYS_close, fd, 0, 0, 0, 0, 0);
    return k;
}

/* Has it ended, or is a first thread that has, and stays until the others have? */
HELPER bool has_ended(const char *name)
{
    char text[256];
    long k = read_of(name, "/stat", text, sizeof(text));

    if (k < 0) {
        return true;
    }
    while ((k > 2) && (text[k - 3] != ')')) { /* of the name, which may have such, too; then " Z" */
        k--;
    }
    return (k <= 2) || (text[k - 1] == 'Z') || (text[k - 1] == 'X');
}

/* Does it wait in a call that has perhaps done a part of its work?  To stop it would end that call with less than
 * was asked for, and there are programs that do not look. */
HELPER bool may_do_less(const char *name)
{
    static const int calls[] = {SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev, SYS_sendto, SYS_sendmsg,
                                SYS_sendmmsg, SYS_sendfile, SYS_splice, SYS_vmsplice, SYS_tee, SYS_copy_file_range};
    char             text[256];
    long             k  = read_of(name, "/syscall", text, sizeof(text)), at = 0, nr = 0, arg = 0;

    while ((at < k) && (text[at] >= '0') && (text[at] <= '9')) { /* its number, then its arguments; or "running" */
        nr = 10 * nr + (text[at++] - '0');
    }
    if (at <= 0) {
        return false;
    }
    for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        if (nr == calls[i]) {
            return true;
        }
    }
    if ((nr != SYS_recvfrom) && (nr != SYS_recvmsg)) {
        return false;
    }
    /* flags: the fourth argument, the third */
    for (int space = (nr == SYS_recvfrom) ? 4 : 3; (at < k) && (space > 0); at++) {
        space -= text[at] == ' ';
    }
    for (at += 2; at < k; at++) { /* 0x */
        long digit = (text[at] <= '9') ? text[at] - '0' : (text[at] | 0x20) - 'a' + 10;

        if ((digit < 0) || (digit > 15)) {
            break;
        }
        arg = 16 * arg + digit;
    }
    return (arg & MSG_WAITALL) != 0;
}

/* One thread of /proc/self/task.  0, or what speaks against it */
HELPER int take(const char *name)
{
    struct thread *t   = &stop.thread[stop.num];
    int            tid = 0;

    for (const char *at = name; *at != '\0'; at++) {
        if ((*at < '0') || (*at > '9')) {
            return 0; /* . and .. */
        }
        tid = 10 * tid + (*at - '0');
    }
    if ((tid == stop.caller) || known(tid)) {
        return 0;
    }
    if (stop.num == THREADS_MAX) {
        return FAILED;
    }
    if (trace(PTRACE_SEIZE, tid, 0, NULL) != 0) {
        return has_ended(name) ? 0 : FAILED; /* a debugger may have it */
    }
    if (!stop.forks && may_do_less(name)) { /* a fork can't wait, and a child needs its snapshot */
        return FAILED; /* it goes on as if nothing had been, when the helper ends */
    }
    *t = (struct thread){.tid = tid};
    stop.num++;
    trace(PTRACE_INTERRUPT, tid, 0, NULL); /* fails when it has just ended */
    return 0;
}

/* Those that are not known yet; 0, or what speaks against it */
HELPER int take_new(void)
{
    static _Alignas(8) char buf[4096];
    long                    n, at;
    int                     ret = 0;

    emu_raw(SYS_lseek, stop.tasks, 0, SEEK_SET, 0, 0, 0);
    while ((ret == 0) && ((n = emu_raw(SYS_getdents64, stop.tasks, (long)buf, sizeof(buf), 0, 0, 0)) > 0)) {
        for (at = 0; (at < n) && (ret == 0);) { /* d_ino, d_off: 8 each; d_reclen: 2; d_type: 1; d_name */
            ret = take(&buf[at + 19]);
            at += *(uint16_t *)&buf[at + 16];
        }
    }
    return ret;
}

HELPER void pause_a_bit(void)
{
    struct timespec ts = {0, LOOK_NS};

    emu_raw(SYS_nanosleep, (long)&ts, 0, 0, 0, 0, 0);
}

/* Until all that are known stand still */
HELPER bool wait_for_all(uint64_t until)
{
    unsigned i = 0, looks = 0;
    int      status;
    long     ret;

    while (i < stop.num) {
        struct thread *t = &stop.thread[i];

        ret = t->stands ? 0 : emu_raw(SYS_wait4, t->tid, (long)&status, WNOHANG | __WALL, 0, 0, 0);
        if ((ret < 0) || ((ret > 0) && !see(t, status))) {
            *t = stop.thread[--stop.num]; /* it has ended */
        } else if (t->stands) {
            i++;
        } else if (++looks <= LOOKS_AT_ONCE) {
            emu_raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
        } else if (helper_now() < until) {
            pause_a_bit();
        } else {
            return false;
        }
    }
    return true;
}

/* A thread that is not stopped yet may begin another one: so until there was none that was not known
 * when all the others stood still. */
HELPER int stop_all(void)
{
    uint64_t until = helper_now() + WAIT_NS;
    unsigned before;
    int      ret;

    stop.num = 0;
    do {
        before = stop.num;
        ret    = take_new();
        if (ret != 0) {
            wait_for_all(until); /* who is being stopped already has to begin its wait anew (restart) */
            return ret;
        }
        if (stop.num == before) {
            return STOPPED;
        }
    } while (wait_for_all(until));
    return FAILED;
}

/* Those that do not stand still are let go when the helper ends. */
HELPER void let_all_go(void)
{
    for (unsigned i = 0; i < stop.num; i++) {
        struct thread *t = &stop.thread[i];
        int            status;

        /* one that stands, and is behind one that was waited for in vain */
        if (!t->stands && (emu_raw(SYS_wait4, t->tid, (long)&status, WNOHANG | __WALL, 0, 0, 0) > 0)) {
            see(t, status);
        }
        if (t->stands) {
            trace(PTRACE_DETACH, t->tid, 0, (void *)(long)t->sig);
        }
    }
    stop.num = 0;
}

/* Until the caller says so */
HELPER void wait_to_go_on(const struct timespec *most)
{
    long ret = 0;

    while (!atomic_load(&stop.go_on) && (ret != -ETIMEDOUT)) {
        ret = emu_raw(SYS_futex, (long)&stop.go_on, FUTEX_WAIT, 0, (long)most, 0, 0);
    }
}

/* The caller enters a system call: is it to make a child with memory of its own? */
HELPER bool makes_child(void)
{
    struct syscall_info info  = {0};
    uint64_t            flags = 0;

    if ((trace(GET_SYSCALL_INFO, stop.caller, sizeof(info), &info) <= 0) || (info.op != 1)) {
        return false;
    }
    switch (info.nr) {
    case SYS_clone:
        return !(info.args[0] & CLONE_VM);
#ifdef SYS_clone3
    case SYS_clone3: /* the flags come first */
        return (trace(PTRACE_PEEKDATA, stop.caller, (long)info.args[0], &flags) == 0) && !(flags & CLONE_VM);
#endif
#ifdef SYS_fork
    case SYS_fork:
        return true;
#endif
    default:
        return false;
    }
}

/* From one system call of the caller's to the next, until it forks, or has done so by now.  Then all
 * the others are stopped: it needs nothing of them any more, as malloc's lock, which it has. */
HELPER void follow(void)
{
    struct timespec most = {(time_t)(FORK_NS / 1000000000u), 0};
    int             status, sig;

    if (trace(PTRACE_SEIZE, stop.caller, 0, (void *)PTRACE_O_TRACESYSGOOD) != 0) {
        tell(FAILED);
        return;
    }
    trace(PTRACE_INTERRUPT, stop.caller, 0, NULL);
    for (;;) {
        long ret = emu_raw(SYS_wait4, stop.caller, (long)&status, __WALL, 0, 0, 0);

        if (ret == -EINTR) {
            continue;
        }
        if ((ret < 0) || !WIFSTOPPED(status)) {
            return; /* it has ended */
        }
        sig = WSTOPSIG(status);
        if (sig == SIG_SYSCALL) {
            if (atomic_load(&stop.go_on)) {
                break;
            }
            if (makes_child()) {
                ret = stop_all();
                tell((int)ret);
                trace(PTRACE_DETACH, stop.caller, 0, NULL);
                if (ret == STOPPED) {
                    wait_to_go_on(&most);
                }
                let_all_go();
                return;
            }
            sig = 0;
        } else if ((status >> 16) == EVENT_STOP) {
            if (sig != SIGTRAP) { /* the whole process is stopped: it stays so */
                trace(PTRACE_LISTEN, stop.caller, 0, NULL);
                continue;
            }
            if (atomic_load(&stop.state) == STARTING) {
                struct syscall_info info;

                if (trace(GET_SYSCALL_INFO, stop.caller, sizeof(info), &info) <= 0) {
                    tell(FAILED); /* a child could not be seen */
                    break;
                }
                tell(FOLLOWING);
            }
            sig = 0;
        }
        trace(PTRACE_SYSCALL, stop.caller, 0, (void *)(long)sig);
    }
    trace(PTRACE_DETACH, stop.caller, 0, NULL);
}

HELPER int helper_main(void *arg)
{
    (void)arg;
    emu_raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
    emu_raw(SYS_prctl, PR_SET_TIMERSLACK, 1, 0, 0, 0, 0);
    emu_raw(SYS_prctl, PR_SET_NAME, (long)"utofu-stop", 0, 0, 0, 0);
    if (emu_raw(SYS_getppid, 0, 0, 0, 0, 0, 0) != stop.pid) {
        return 1; /* the process has ended before the first of these */
    }
    if (stop.forks) {
        follow();
    } else {
        int ret = stop_all();

        if (ret == STOPPED) {
            tell(ret);
            wait_to_go_on(NULL);
        }
        let_all_go();
        if (ret != STOPPED) {
            tell(ret);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------- the caller */

/* wait: until it has ended.  Returns whether it has; no cancellation point, as nothing here is. */
static bool helper_ended(bool wait)
{
    long ret;

    do {
        ret = syscall(SYS_wait4, (long)stop.helper, NULL, (long)(__WCLONE | (wait ? 0 : WNOHANG)), NULL);
    } while ((ret < 0) && (errno == EINTR));
    return ret != 0;
}

/* The C library's; thread sanitizers replace clone by one that takes it for fork. */
extern int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);

/* Peers are not to take it for stopped. */
static void hold(bool held)
{
    if (emu_g.shm != NULL) {
        atomic_store(&emu_g.shm->held, held);
    }
}

static bool begin(bool forks)
{
    static _Alignas(64) char stack[(size_t)64 << 10];
    static const struct timespec soon = {0, 10000000};
    sigset_t                     all, old;
    int                          state;

    if (!forks && (emu_now() < not_before)) { /* a child needs its snapshot */
        return false;
    }
    stop.tasks  = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    stop.pid    = getpid();
    stop.caller = (int)syscall(SYS_gettid);
    stop.forks  = forks;
    hold(true);
    atomic_store(&stop.state, STARTING);
    atomic_store(&stop.go_on, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    stop.helper = (stop.tasks < 0) ? -1 :
                                     __clone(helper_main, stack + sizeof(stack),
                                           CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, NULL);
    while ((stop.helper > 0) && (atomic_load(&stop.state) == STARTING)) {
        syscall(SYS_futex, &stop.state, FUTEX_WAIT, STARTING, &soon, NULL, 0);
        if ((atomic_load(&stop.state) == STARTING) && helper_ended(false)) {
            stop.helper = -1; /* somebody has ended it */
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    state = (stop.helper > 0) ? atomic_load(&stop.state) : FAILED;
    if ((state == STOPPED) || (state == FOLLOWING)) {
        proven = true;
        return true;
    }
    if (stop.helper > 0) {
        helper_ended(true);
    }
    hold(false);
    close(stop.tasks);
    not_before = emu_now() + PAUSE_NS;
    return false;
}

static void end(void)
{
    atomic_store(&stop.go_on, 1);
    syscall(SYS_futex, &stop.go_on, FUTEX_WAKE, 1, NULL, NULL, 0);
    helper_ended(true);
    hold(false);
    close(stop.tasks);
}

#else

static bool begin(bool forks)
{
    (void)forks;
    return false; /* the helper's system calls are not written for this processor */
}

static void end(void)
{
}

#endif

bool emu_stop_possible(void)
{
    if (!proven && emu_stop_others()) {
        emu_stop_go_on();
    }
    return proven;
}

bool emu_stop_others(void)
{
    if ((depth == 0) && !begin(false)) {
        return false;
    }
    depth++;
    return true;
}

void emu_stop_go_on(void)
{
    /* 0: held by userfaultfd, whose descriptor the program has closed meanwhile; closing lets all go */
    if ((depth > 0) && (--depth == 0)) {
        end();
    }
}

bool emu_stop_holds(void)
{
#if defined(EMU_RAW)
    return (depth == 0) || !helper_ended(false);
#else
    return true;
#endif
}

bool emu_stop_fork_begin(void)
{
    fork_stops = begin(true);
    return fork_stops;
}

void emu_stop_fork_made(void)
{
    if (!fork_stops) {
        return;
    }
    if (atomic_load(&stop.state) == STOPPED) {
        depth++;
    } else {
        end();
        fork_stops = false;
    }
}

void emu_stop_fork_end(void)
{
    if (fork_stops) {
        emu_stop_go_on();
        fork_stops = false;
    }
}

void emu_stop_fork_child(void)
{
    if (fork_stops) {
        close(stop.tasks);
    }
    depth      = 0;
    fork_stops = false;
}
