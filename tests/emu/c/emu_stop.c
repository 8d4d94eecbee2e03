/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_stop.c - what the rest of a program notices of registrations beside threads: nothing but time.
 * Where there is no userfaultfd its threads stand still meanwhile (docs/emulator.md, Private memory).
 */
#include "freeze.h"
#include "harness.h"
#include "home.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Atomic bool stop;

static pthread_t begin(void *(*run)(void *), void *arg)
{
    pthread_t thread;

    CONF_CHECK(pthread_create(&thread, NULL, run, arg) == 0, "pthread_create");
    return thread;
}

static void end(pthread_t thread)
{
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    atomic_store(&stop, false);
}

/* Registered and deregistered; returns how many were moved: not all, where to stop threads takes long. */
static unsigned registers(const struct conf_vcq *vcq, unsigned times)
{
    unsigned moved = 0;

    for (unsigned i = 0; i < times; i++) {
        char         *block = malloc(3000);
        utofu_stadd_t stadd;

        memset(block, (int)i, 3000);
        stadd = conf_reg(vcq, block + 500, 1000, 0);
        moved += is_home(block + 500);
        CONF_OK(utofu_dereg_mem(vcq->hdl, stadd, 0));
        for (unsigned k = 0; k < 3000; k++) {
            CONF_CHECK(block[k] == (char)i, "byte %u of block %u", k, i);
        }
        free(block);
    }
    return moved;
}

static void *counts(void *arg)
{
    while (!atomic_load(&stop)) {
        ++*(volatile uint64_t *)arg;
    }
    return NULL;
}

static void wait_ms(long ms)
{
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

    while (nanosleep(&ts, &ts) && (errno == EINTR)) {
    }
}

/* ------------------------------------------------------------------------- waits in the kernel */

static int      to_read[2], to_recv[2], semaphores, epoll;
static struct sockaddr_un busy; /* who listens there has not accepted, and has no room for another */
static socklen_t          busy_length;
static sem_t    posted;
static uint32_t word;

static long by_epoll(void)
{
    struct epoll_event event;

    return epoll_wait(epoll, &event, 1, -1);
}

static long by_epoll_for_long(void)
{
    struct epoll_event event;

    return epoll_pwait(epoll, &event, 1, 60000, NULL);
}

static long by_poll(void)
{
    struct pollfd fd = {to_read[0], POLLIN, 0};

    return poll(&fd, 1, 60000);
}

static long by_select(void)
{
    fd_set         set;
    struct timeval most = {60, 0};

    FD_ZERO(&set);
    FD_SET(to_read[0], &set);
    return select(to_read[0] + 1, &set, NULL, NULL, &most);
}

static long by_sem_timedwait(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    return sem_timedwait(&posted, &until) + 1;
}

static long by_semop(void)
{
    struct sembuf one = {0, -1, 0};

    return semop(semaphores, &one, 1) + 1;
}

static long by_recv_with_a_limit(void)
{
    struct timeval most = {60, 0};
    char           c;

    CONF_CHECK(!setsockopt(to_recv[0], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)), "SO_RCVTIMEO");
    return recv(to_recv[0], &c, 1, 0);
}

static long by_connect_with_a_limit(void)
{
    struct timeval most = {60, 0};
    int            fd   = socket(AF_UNIX, SOCK_STREAM, 0);

    CONF_CHECK(!setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)), "SO_SNDTIMEO");
    return connect(fd, (struct sockaddr *)&busy, busy_length) + 1;
}

static long by_sigtimedwait(void)
{
    struct timespec most = {60, 0};
    sigset_t        set;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5);
    return (sigtimedwait(&set, NULL, &most) == SIGRTMIN + 5) ? 1 : -1;
}

static long by_futex(void)
{
    return syscall(SYS_futex, &word, 128 /* FUTEX_WAIT, private */, 0, NULL, NULL, 0) + 1;
}

static long by_nanosleep(void)
{
    struct timespec ts = {1, 0};
    double          start = conf_now();

    return (nanosleep(&ts, NULL) == 0) && (conf_now() - start >= 1);
}

static const struct way {
    const char *name;
    long (*wait)(void);
    bool restarted; /* by Linux itself */
} ways[] = {
    {"epoll_wait", by_epoll, false},
    {"epoll_pwait", by_epoll_for_long, false},
    {"poll", by_poll, true},
    {"select", by_select, true},
    {"sem_timedwait", by_sem_timedwait, true},
    {"semop", by_semop, false},
    {"recv with SO_RCVTIMEO", by_recv_with_a_limit, false},
    {"connect with SO_SNDTIMEO", by_connect_with_a_limit, false},
    {"sigtimedwait", by_sigtimedwait, false},
    {"futex", by_futex, true},
    {"nanosleep", by_nanosleep, true},
};
static struct {
    long ret;
    int  error;
} waited[CONF_LEN(ways)];

static void *waits(void *arg)
{
    size_t i = (size_t)((const struct way *)arg - ways);

    waited[i].ret   = ways[i].wait();
    waited[i].error = errno;
    return NULL;
}

/* A socket that listens, with one that it has not accepted */
static int listens(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), first = socket(AF_UNIX, SOCK_STREAM, 0);

    busy.sun_family = AF_UNIX;
    snprintf(busy.sun_path + 1, sizeof(busy.sun_path) - 1, "utofu-test-%d", (int)getpid());
    busy_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(busy.sun_path + 1));
    CONF_CHECK(!bind(fd, (struct sockaddr *)&busy, busy_length) && !listen(fd, 0) &&
                       !connect(first, (struct sockaddr *)&busy, busy_length),
               "a socket: %s", strerror(errno));
    return fd;
}

static void waits_begin(pthread_t *thread)
{
    struct epoll_event in = {.events = EPOLLIN};
    sigset_t           set;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    CONF_CHECK(!pipe(to_read) && !socketpair(AF_UNIX, SOCK_STREAM, 0, to_recv), "pipe");
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    CONF_CHECK(semaphores >= 0, "semget: %s", strerror(errno));
    sem_init(&posted, 0, 0);
    epoll = epoll_create1(0);
    CONF_CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, to_read[0], &in), "epoll_ctl");
    for (unsigned i = 0; i < CONF_LEN(ways); i++) {
        thread[i] = begin(waits, (void *)&ways[i]);
    }
}

/* What they waited for happens. */
static void waits_end(pthread_t *thread, int listening)
{
    CONF_CHECK(write(to_read[1], "x", 1) == 1, "write");
    CONF_CHECK(write(to_recv[1], "x", 1) == 1, "write");
    CONF_CHECK(accept(listening, NULL, NULL) >= 0, "accept");
    sem_post(&posted);
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, 129 /* FUTEX_WAKE, private */, 1, NULL, NULL, 0);
    CONF_CHECK(!semctl(semaphores, 0, SETVAL, 1), "semctl");
    for (unsigned i = 0; i < CONF_LEN(ways); i++) {
        if (!strcmp(ways[i].name, "sigtimedwait")) {
            pthread_kill(thread[i], SIGRTMIN + 5);
        }
        pthread_join(thread[i], NULL);
    }
    semctl(semaphores, 0, IPC_RMID);
    for (unsigned i = 0; i < CONF_LEN(ways); i++) {
#if !defined(__x86_64__)
        if (!ways[i].restarted && (waited[i].ret != 1) && (waited[i].error == EINTR)) {
            continue; /* docs/emulator.md says so */
        }
#endif
        CONF_CHECK(waited[i].ret == 1, "%s: %ld, %s", ways[i].name, waited[i].ret, strerror(waited[i].error));
    }
}

CONF_TEST("stop", waits_go_on, 1,
          "what other threads wait for in the kernel they wait for on, while memory is registered")
{
    struct conf_vcq vcq;
    pthread_t       thread[CONF_LEN(ways)];
    unsigned        moved     = 0;
    int             listening = listens();

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    waits_begin(thread);
    for (double until = conf_now() + 1.5; conf_now() < until;) {
        moved += registers(&vcq, 1);
        wait_ms(3);
    }
    waits_end(thread, listening);
    CONF_CHECK((moved > 0) == can_freeze(), "%u blocks", moved);
    conf_vcq_close(&vcq);
}

static void *writes_to_a_full_pipe(void *arg)
{
    static char block[200000];

    (void)!write(*(int *)arg, block, sizeof(block));
    return NULL;
}

CONF_TEST("stop", waits_go_on_beside_one_that_writes, 1,
          "the same while a thread that came after them is in a call that would do less, so that nothing is moved")
{
    struct conf_vcq vcq;
    pthread_t       thread[CONF_LEN(ways)], writer;
    int             full[2], listening = listens();

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    waits_begin(thread);
    CONF_CHECK(!pipe(full), "pipe");
    wait_ms(100); /* all of them wait by now, mostly */
    signal(SIGPIPE, SIG_IGN);
    writer = begin(writes_to_a_full_pipe, &full[1]);
    wait_ms(100);
    for (int i = 0; i < 3; i++) { /* in vain, for a second each */
        registers(&vcq, 1);
        wait_ms(1050);
    }
    close(full[0]);
    pthread_join(writer, NULL);
    waits_end(thread, listening);
    conf_vcq_close(&vcq);
}

/* ----------------------------------------------------------------------------------- signals */

static _Atomic uint64_t got, ticks;

static void on_value(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    atomic_fetch_add(&got, (uint64_t)info->si_value.sival_int);
}

static void on_tick(int sig)
{
    (void)sig;
    atomic_fetch_add(&ticks, 1);
}

static void *takes_signals(void *arg)
{
    struct epoll_event event;
    sigset_t           none;

    sigemptyset(&none);
    while (!atomic_load(&stop)) {
        epoll_pwait(epoll, &event, 1, 5, &none); /* whose return with EINTR programs rely on */
    }
    return arg;
}

CONF_TEST("stop", signals_arrive, 1,
          "signals with values that arrive while memory is registered are handled, each once")
{
    enum { SIGNALS = 3000 };
    struct conf_vcq  vcq;
    struct sigaction sa = {.sa_sigaction = on_value, .sa_flags = SA_SIGINFO}, tick = {.sa_handler = on_tick};
    pthread_t        thread[2];
    uint64_t         sum = 0;
    pid_t            parent = getpid(), pid;
    int              status;

    conf_timeout(100);
    sigaction(SIGRTMIN + 3, &sa, NULL);
    sigaction(SIGUSR1, &tick, NULL);
    epoll = epoll_create1(0);
    conf_vcq_open(&vcq, 0, 0);
    thread[0] = begin(takes_signals, NULL);
    thread[1] = begin(takes_signals, NULL);
    pid = fork();
    if (pid == 0) {
        for (int i = 1; i <= SIGNALS; i++) {
            while (sigqueue(parent, SIGRTMIN + 3, (union sigval){.sival_int = i})) {
                wait_ms(1); /* the queue is full */
            }
            if (i % 8 == 0) {
                wait_ms(1);
            }
        }
        _exit(0);
    }
    for (int i = 1; i <= SIGNALS; i++) {
        sum += (uint64_t)i;
    }
    for (double until = conf_now() + 60; (atomic_load(&got) < sum) && (conf_now() < until);) {
        registers(&vcq, 1);
        pthread_kill(thread[0], SIGUSR1);
        pthread_kill(thread[1], SIGUSR1);
    }
    CONF_CHECK(atomic_load(&got) == sum, "%" PRIu64 " of %" PRIu64, atomic_load(&got), sum);
    CONF_CHECK(atomic_load(&ticks) > 0, "no SIGUSR1");
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "the child: 0x%x", (unsigned)status);
    end(thread[0]);
    end(thread[1]);
    conf_vcq_close(&vcq);
}

/* In memory that a child has, too */
struct waker {
    _Atomic uint64_t returns;
    _Atomic long     tid;
};

static void *is_woken(void *arg)
{
    struct waker      *w = arg;
    struct epoll_event event;
    sigset_t           none;

    sigemptyset(&none);
    atomic_store(&w->tid, syscall(SYS_gettid));
    while (!atomic_load(&stop)) {
        epoll_pwait(epoll, &event, 1, -1, &none);
        atomic_fetch_add(&w->returns, 1);
    }
    return NULL;
}

static int wakes(const struct waker *w, pid_t parent)
{
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t before = atomic_load(&w->returns);
        double   start  = conf_now();

        syscall(SYS_tgkill, (long)parent, atomic_load(&w->tid), (long)SIGUSR1);
        while (atomic_load(&w->returns) == before) {
            if (conf_now() - start > 10) {
                return 1;
            }
            syscall(SYS_nanosleep, &(struct timespec){0, 10000}, NULL);
        }
    }
    return 0;
}

CONF_TEST("stop", signals_end_waits, 1,
          "a signal that is handled while memory is registered ends what its thread waited for")
{
    struct conf_vcq  vcq;
    struct sigaction tick = {.sa_handler = on_tick};
    struct waker    *w    = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_t        thread;
    pid_t            parent = getpid(), pid;
    sigset_t         usr1;
    int              status;

    conf_timeout(100);
    CONF_CHECK(w != MAP_FAILED, "mmap");
    sigaction(SIGUSR1, &tick, NULL);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL); /* so it is handled in that call only */
    epoll = epoll_create1(0);
    conf_vcq_open(&vcq, 0, 0);
    thread = begin(is_woken, w);
    while (atomic_load(&w->tid) == 0) {
        sched_yield();
    }
    pid = fork();
    if (pid == 0) {
        _exit(wakes(w, parent));
    }
    do {
        registers(&vcq, 1);
    } while (waitpid(pid, &status, WNOHANG) == 0);
    CONF_CHECK(status == 0, "the thread did not wake up");
    atomic_store(&stop, true);
    pthread_kill(thread, SIGUSR1);
    end(thread);
    conf_vcq_close(&vcq);
}

static void *looks_for_children(void *arg)
{
    while (!atomic_load(&stop)) {
        int   status;
        pid_t pid = waitpid(-1, &status, WNOHANG);

        CONF_CHECK((pid < 0) && (errno == ECHILD), "waitpid: %d", (int)pid);
        ++*(uint64_t *)arg;
    }
    return NULL;
}

CONF_TEST("stop", no_child_is_seen, 1, "a program that waits for any child sees none, nor SIGCHLD, of registrations")
{
    struct conf_vcq  vcq;
    struct sigaction tick = {.sa_handler = on_tick};
    uint64_t         looks = 0;
    pthread_t        thread;

    conf_timeout(60);
    sigaction(SIGCHLD, &tick, NULL);
    conf_vcq_open(&vcq, 0, 0);
    thread = begin(looks_for_children, &looks);
    CONF_CHECK((registers(&vcq, 200) > 0) == can_freeze(), "the blocks");
    end(thread);
    CONF_CHECK((looks > 0) && (atomic_load(&ticks) == 0), "%" PRIu64 " looks, %" PRIu64 " signals", looks,
               atomic_load(&ticks));
    conf_vcq_close(&vcq);
}

/* ----------------------------------------------------------------- threads that come and go */

static void *adds(void *arg)
{
    for (unsigned i = 0; i < 100; i++) {
        atomic_fetch_add((_Atomic uint64_t *)arg, 1);
    }
    return NULL;
}

struct starter {
    _Atomic uint64_t *sum;
    uint64_t          begun;
};

static void *starts_threads(void *arg)
{
    struct starter *s = arg;

    while (!atomic_load(&stop)) {
        pthread_t thread[3];

        for (unsigned i = 0; i < CONF_LEN(thread); i++) {
            thread[i] = begin(adds, s->sum);
        }
        for (unsigned i = 0; i < CONF_LEN(thread); i++) {
            pthread_join(thread[i], NULL);
        }
        s->begun += CONF_LEN(thread);
    }
    return NULL;
}

CONF_TEST("stop", threads_come_and_go, 1,
          "threads that begin and end while memory is registered, and write there with what they have, lose nothing")
{
    struct conf_vcq   vcq;
    char             *room  = calloc(1, 16384);
    uint64_t         *block = (uint64_t *)(room + 8192); /* not where a heap begins */
    struct starter    s[2] = {{(_Atomic uint64_t *)&block[0], 0}, {(_Atomic uint64_t *)&block[1], 0}};
    pthread_t         thread[2];
    unsigned          moved = 0, i = 0;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    for (unsigned k = 0; k < 2; k++) {
        thread[k] = begin(starts_threads, &s[k]);
    }
    for (double until = conf_now() + 20; (i < 300) || (can_freeze() && (moved < 20) && (conf_now() < until)); i++) {
        utofu_stadd_t stadd = conf_reg(&vcq, block, 64, 0);

        moved += is_home(block);
        CONF_OK(utofu_dereg_mem(vcq.hdl, stadd, 0));
    }
    end(thread[0]);
    end(thread[1]);
    for (unsigned k = 0; k < 2; k++) {
        CONF_CHECK((s[k].begun > 0) && (block[k] == 100 * s[k].begun), "%" PRIu64 " of %" PRIu64, block[k],
                   100 * s[k].begun);
    }
    CONF_CHECK((moved >= 20) == can_freeze(), "%u times moved", moved);
    conf_vcq_close(&vcq);
    free(room);
}

static pid_t sleeps_as_vfork_does(void)
{
    pid_t pid = vfork();

    if (pid == 0) {
        syscall(SYS_nanosleep, &(struct timespec){0, 600000000}, NULL);
        _exit(0);
    }
    return pid;
}

static _Atomic bool is_there;

static void *makes_a_child(void *arg)
{
    int   status;
    pid_t pid;

    atomic_store(&is_there, true);
    pid = sleeps_as_vfork_does();
    CONF_CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return arg;
}

CONF_TEST("stop", beside_vfork, 1,
          "while a thread can't be interrupted, as it waits for the child of vfork, registrations do not wait for it; "
          "and later ones move memory again")
{
    struct conf_vcq vcq;
    uint64_t        n = 0;
    pthread_t       thread[2];
    double          start;

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    thread[0] = begin(counts, &n);
    thread[1] = begin(makes_a_child, NULL);
    while (!atomic_load(&is_there)) {
        sched_yield();
    }
    wait_ms(100);
    start = conf_now();
    registers(&vcq, 20);
    CONF_CHECK(conf_now() - start < 0.4, "20 registrations took %.3f s", conf_now() - start);
    pthread_join(thread[1], NULL);
    start = conf_now();
    while ((registers(&vcq, 1) == 0) && can_freeze()) {
        CONF_CHECK(conf_now() - start < 10, "nothing is moved any more");
        wait_ms(10);
    }
    end(thread[0]);
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------------------- a process that stops or ends */

CONF_TEST("stop", stopped_and_continued, 1,
          "a process that is stopped and continued all the time registers and forks beside threads as ever")
{
    struct conf_vcq vcq;
    uint64_t        n = 0;
    char           *block = malloc(100);
    pthread_t       thread;
    pid_t           parent = getpid(), pid;
    int             status;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    thread = begin(counts, &n);
    pid    = fork();
    if (pid == 0) {
        for (unsigned i = 0; i < 400; i++) {
            kill(parent, SIGSTOP);
            wait_ms(1);
            kill(parent, SIGCONT);
            wait_ms(i % 5);
        }
        _exit(0);
    }
    strcpy(block, "as before");
    while (waitpid(pid, &status, WNOHANG) == 0) {
        utofu_stadd_t stadd = conf_reg(&vcq, block, 100, 0);
        pid_t         child = fork();

        if (child == 0) {
            _exit(strcmp(block, "as before") != 0);
        }
        CONF_CHECK((waitpid(child, &status, 0) == child) && (status == 0), "a child: 0x%x", (unsigned)status);
        CONF_OK(utofu_dereg_mem(vcq.hdl, stadd, 0));
    }
    end(thread);
    conf_vcq_close(&vcq);
    free(block);
}

static void dies_while_it_registers(int alive, unsigned seed)
{
    struct conf_vcq vcq;
    uint64_t        n[2] = {0, 0};

    conf_vcq_open(&vcq, 0, 0);
    begin(counts, &n[0]);
    begin(counts, &n[1]);
    CONF_CHECK(write(alive, "x", 1) == 1, "write");
    for (;; seed++) {
        registers(&vcq, 1);
        if (seed % 4 == 0) {
            char         *block = malloc(64);
            utofu_stadd_t stadd = conf_reg(&vcq, block, 64, 0);
            pid_t         child = fork();

            if (child == 0) {
                _exit(0);
            }
            waitpid(child, NULL, 0);
            CONF_OK(utofu_dereg_mem(vcq.hdl, stadd, 0));
            free(block);
        }
    }
}

CONF_TEST("stop", nobody_is_left, 1,
          "of a process that is killed while it registers, or forks, nothing is left running")
{
    enum { KILLS = 150 };

    conf_timeout(140);
    for (unsigned i = 0; i < KILLS; i++) {
        int           alive[2], status;
        char          c;
        pid_t         pid;
        struct pollfd closed;

        CONF_CHECK(!pipe(alive), "pipe");
        pid = fork();
        CONF_CHECK(pid >= 0, "fork");
        if (pid == 0) {
            close(alive[0]);
            dies_while_it_registers(alive[1], i);
        }
        close(alive[1]);
        CONF_CHECK(read(alive[0], &c, 1) == 1, "child %u did not begin", i);
        syscall(SYS_nanosleep, &(struct timespec){0, (long)(i * 7919 % 5000) * 1000}, NULL);
        kill(pid, SIGKILL);
        CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFSIGNALED(status), "child %u: 0x%x", i, (unsigned)status);
        /* who is left has it open */
        closed = (struct pollfd){alive[0], POLLIN, 0};
        CONF_CHECK((poll(&closed, 1, 10000) == 1) && (read(alive[0], &c, 1) == 0), "somebody is left of child %u", i);
        close(alive[0]);
    }
}

/* ---------------------------------------------------------------------- a debugger is there */

struct traced {
    uint64_t     n;
    _Atomic long tid;
};

static void *is_traced(void *arg)
{
    struct traced *t = arg;

    atomic_store(&t->tid, syscall(SYS_gettid));
    return counts(&t->n);
}

CONF_TEST("stop", traced_already, 1,
          "while a debugger has a thread, registrations beside it work; without userfaultfd what they are of stays where "
          "it is until that has gone")
{
    struct conf_vcq vcq;
    struct traced   t = {0, 0};
    int             ready[2], done[2], status;
    char            c;
    pid_t           pid;
    pthread_t       thread;
    double          start;

    conf_timeout(60);
    if (!can_freeze() || !can_stop()) {
        conf_skip("neither userfaultfd nor ptrace");
    }
    conf_vcq_open(&vcq, 0, 0);
    CONF_CHECK(!pipe(ready) && !pipe(done), "pipe");
    thread = begin(is_traced, &t);
    while (atomic_load(&t.tid) == 0) {
        sched_yield();
    }
    pid = fork();
    if (pid == 0) {
        close(done[1]);
        _exit(syscall(SYS_ptrace, PTRACE_SEIZE, atomic_load(&t.tid), 0L, 0L) || (write(ready[1], "x", 1) != 1) ||
              (read(done[0], &c, 1) != 0));
    }
    close(ready[1]);
    close(done[0]);
    CONF_CHECK(read(ready[0], &c, 1) == 1, "the thread can't be traced");
    CONF_CHECK((registers(&vcq, 20) > 0) == !may_take_long(), "the blocks");
    close(done[1]);
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "the tracer: 0x%x", (unsigned)status);
    start = conf_now();
    while (registers(&vcq, 1) == 0) {
        CONF_CHECK(conf_now() - start < 10, "nothing is moved any more");
        wait_ms(10);
    }
    end(thread);
    conf_vcq_close(&vcq);
}
