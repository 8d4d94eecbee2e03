/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_hard.c - private memory that was moved (docs/emulator.md, Private memory) in programs
 * that have no descriptor left, or closed all, that leave /proc, grow what is registered, cancel
 * threads, and fork in handlers of signals: nothing is lost, and parent and child share nothing.
 */
#include "harness.h"
#include "home.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u
#define MIB  ((size_t)1 << 20)

/* Descriptors that are open on the memfd */
static unsigned home_fds(int *fds, unsigned max)
{
    unsigned n = 0;

    for (int fd = 0; (fd < 4096) && (n < max); fd++) {
        char link[64], target[64] = "";

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if ((readlink(link, target, sizeof(target) - 1) > 0) && (strstr(target, HOME) != NULL)) {
            fds[n++] = fd;
        }
    }
    return n;
}

static char *pages(size_t n)
{
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CONF_CHECK(p != MAP_FAILED, "mmap: %s", strerror(errno));
    return p;
}

/* A registered block, moved, with something known in it */
static char *moved(const struct conf_vcq *vcq, size_t n, utofu_stadd_t *stadd_p)
{
    char *block = pages(n);

    memset(block, 0x5a, n);
    *stadd_p = conf_reg(vcq, block, n, 0);
    if (!is_home(block)) {
        conf_skip("memory is not moved here");
    }
    return block;
}

/* A child writes all over it: that is its own affair. */
static void fork_and_write(char *block, size_t n)
{
    int   status;
    pid_t pid = fork();

    CONF_CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        for (size_t i = 0; i < n; i++) {
            if (block[i] != 0x5a) {
                _exit(3);
            }
        }
        memset(block, 0x11, n);
        _exit(0);
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0),
               "the child ended with 0x%x", (unsigned)status);
    CONF_CHECK_BYTES(block, n, 0x5a, "after a child wrote there");
}

CONF_TEST("rehome", no_descriptor_is_left, 1,
          "moved memory is the program's, and a child has its own copy, when no descriptor can be opened")
{
    enum { FEW = 200 };
    struct conf_vcq vcq;
    struct rlimit   limit = {FEW, FEW};
    utofu_stadd_t   stadd, other;
    int             fds[FEW];
    unsigned        n = 0;

    conf_vcq_open(&vcq, 0, 0);
    moved(&vcq, 8 * PAGE, &other); /* so that the process has more than one */
    char *block = moved(&vcq, 16 * PAGE, &stadd), *third = pages(8 * PAGE);

    CONF_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    while ((n < FEW) && ((fds[n] = dup(0)) >= 0)) {
        n++;
    }
    fork_and_write(block, 16 * PAGE);
    conf_dereg(&vcq, stadd);
    CONF_CHECK_BYTES(block, 16 * PAGE, 0x5a, "after deregistration");
    fork_and_write(block, 16 * PAGE);
    for (unsigned left = 1; left <= 6; left++) {
        utofu_stadd_t again;

        close(fds[--n]);
        memset(third, 0x5a, 8 * PAGE);
        bool ok = utofu_reg_mem(vcq.hdl, third, 8 * PAGE, 0, &again) == UTOFU_SUCCESS;

        fork_and_write(third, 8 * PAGE);
        if (ok) {
            conf_dereg(&vcq, again);
        }
        CONF_CHECK_BYTES(third, 8 * PAGE, 0x5a, "registered with few descriptors");
    }
    while (n > 0) {
        close(fds[--n]);
    }
    conf_dereg(&vcq, conf_reg(&vcq, block, 16 * PAGE, 0));
    CONF_CHECK(!is_home(block), "it does not go back later");
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", out_of_reach_of_proc, 1, "the same after chroot to where no /proc is")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd, other;
    char            dir[] = "emu-rehome-XXXXXX";

    conf_vcq_open(&vcq, 0, 0);
    moved(&vcq, 8 * PAGE, &other);
    char *block = moved(&vcq, 16 * PAGE, &stadd);

    CONF_CHECK(mkdtemp(dir) != NULL, "mkdtemp");
    int outside = open(".", O_RDONLY | O_DIRECTORY), failed = chroot(dir);
    CONF_CHECK(unlinkat(outside, dir, AT_REMOVEDIR) == 0, "unlinkat: %s", strerror(errno));
    if (failed) {
        conf_skip("no chroot for this process");
    }
    fork_and_write(block, 16 * PAGE);
    conf_dereg(&vcq, stadd);
    CONF_CHECK_BYTES(block, 16 * PAGE, 0x5a, "after deregistration");
    conf_vcq_close(&vcq);
    CONF_CHECK_BYTES(block, 16 * PAGE, 0x5a, "after the VCQ went");
}

CONF_TEST("rehome", grows_far, 1, "a registered block that mremap makes larger does not reach what another has")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd, others[3];
    char           *other[3];
    size_t          n = 700 * MIB;

    conf_vcq_open(&vcq, 0, 0);
    char *block = moved(&vcq, MIB, &stadd);

    for (unsigned i = 0; i < CONF_LEN(other); i++) {
        other[i] = moved(&vcq, MIB, &others[i]);
    }
    char *later = pages(MIB); /* not where the block was: that is registered */

    memset(later, 0x5a, MIB);
    block = mremap(block, MIB, n, MREMAP_MAYMOVE);
    if (block == MAP_FAILED) {
        conf_skip("no room for %zu bytes", n);
    }
    for (size_t i = MIB; i < n; i += MIB) {
        memset(block + i, 0x33, 16);
    }
    for (unsigned i = 0; i < CONF_LEN(other); i++) {
        CONF_CHECK_BYTES(other[i], MIB, 0x5a, "another block");
        conf_dereg(&vcq, others[i]);
        CONF_CHECK_BYTES(other[i], MIB, 0x5a, "another block, deregistered");
    }
    /* the place of one that went is not what the large one has grown into */
    conf_reg(&vcq, later, MIB, 0);
    CONF_CHECK(is_home(later), "a later block is not moved");
    for (size_t i = MIB; i < n; i += MIB) {
        CONF_CHECK_BYTES(block + i, 16, 0x33, "what was added");
    }
    CONF_CHECK_BYTES(later, MIB, 0x5a, "a later block");
    munmap(block + MIB, n - MIB);
    conf_dereg(&vcq, stadd);
    CONF_CHECK_BYTES(block, MIB, 0x5a, "its beginning");
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------------------ signals */

static volatile sig_atomic_t hook_raises;
static char                 *counted;

static void count(int sig)
{
    (void)sig;
    counted[0]++;
}

/* Before what the library does in a child */
static void first_in_child(void)
{
    if (hook_raises) {
        raise(SIGUSR1);
    }
}

static void first_of_all(void)
{
    pthread_atfork(NULL, NULL, first_in_child);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = first_of_all;

CONF_TEST("rehome", signal_in_a_child, 1, "a handler that runs in a child writes the child's memory, however early")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;
    int             status;

    conf_vcq_open(&vcq, 0, 0);
    counted    = moved(&vcq, 4 * PAGE, &stadd);
    counted[0] = 0;
    CONF_CHECK(signal(SIGUSR1, count) != SIG_ERR, "signal");
    hook_raises = 1;
    pid_t pid   = fork();

    if (pid == 0) {
        _exit((counted[0] == 1) ? 0 : 1); /* it was not lost */
    }
    hook_raises = 0;
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "the child ended with 0x%x", (unsigned)status);
    CONF_CHECK(counted[0] == 0, "the child's handler wrote the parent's memory");
    raise(SIGUSR1);
    CONF_CHECK(counted[0] == 1, "the parent does not get signals any more");
    conf_vcq_close(&vcq);
}

static atomic_int forks;

static void forks_now(int sig)
{
    pid_t pid = fork();

    (void)sig;
    if (pid == 0) {
        _exit(0);
    }
    if (pid > 0) {
        waitpid(pid, NULL, 0);
        atomic_fetch_add(&forks, 1);
    }
}

CONF_TEST("rehome", fork_in_a_handler, 1, "a handler that interrupts registrations may fork")
{
    struct conf_vcq  vcq;
    struct itimerval often = {{0, 1500}, {0, 1500}}, never = {{0, 0}, {0, 0}};
    struct sigaction sa    = {.sa_handler = forks_now, .sa_flags = SA_RESTART};
    char            *block = pages(64 * PAGE);

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    CONF_CHECK(sigaction(SIGVTALRM, &sa, NULL) == 0, "sigaction");
    CONF_CHECK(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0, "setitimer");
    while (atomic_load(&forks) < 60) {
        conf_dereg(&vcq, conf_reg(&vcq, block, 64 * PAGE, 0));
    }
    setitimer(ITIMER_VIRTUAL, &never, NULL);
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------------------ threads */

struct registrar {
    const struct conf_vcq *vcq;
    char                  *block;
    bool                   cancelled;
};

static void *registers(void *arg)
{
    struct registrar *r = arg;
    utofu_stadd_t     stadd;

    if (r->cancelled) {
        pthread_cancel(pthread_self());
    }
    if ((utofu_reg_mem(r->vcq->hdl, r->block, 64 * PAGE, 0, &stadd) != UTOFU_SUCCESS) ||
        (utofu_dereg_mem(r->vcq->hdl, stadd, 0) != UTOFU_SUCCESS)) {
        return NULL;
    }
    pthread_testcancel();
    return r;
}

CONF_TEST("rehome", cancelled_threads, 1, "a thread that is cancelled in a registration completes it, and others go on")
{
    struct conf_vcq vcq;

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, UTOFU_VCQ_FLAG_THREAD_SAFE);
    for (int i = 0; i < 20; i++) {
        struct registrar r = {&vcq, pages(64 * PAGE), i % 2 == 0};
        pthread_t        thread;
        struct timespec  end;
        void            *result;

        CONF_CHECK(pthread_create(&thread, NULL, registers, &r) == 0, "pthread_create");
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 20;
        CONF_CHECK(pthread_timedjoin_np(thread, &result, &end) == 0, "thread %d waits for one that was cancelled", i);
        CONF_CHECK(result == (r.cancelled ? PTHREAD_CANCELED : (void *)&r), "thread %d", i);
        munmap(r.block, 64 * PAGE);
    }
    conf_vcq_close(&vcq);
}

static void *waits(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg)) {
        usleep(1000);
    }
    return NULL;
}

CONF_TEST("rehome", a_window_where_its_place_begins, 1,
          "registrations that begin as far before the first page of a place as can be give it back, and no other")
{
    enum { BLOCKS = 4200 };
    struct conf_vcq      vcq;
    size_t               n     = 64 * MIB;
    char                *block = pages(n + 64 * PAGE), *first = block + n + 16 * PAGE, *small = pages(2 * BLOCKS * PAGE);
    utofu_stadd_t        stadd[2];
    static utofu_stadd_t had[BLOCKS];
    _Atomic bool         stop = false;
    pthread_t            thread;
    unsigned             before = own_home_mappings();

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    stadd[0] = conf_reg(&vcq, first, PAGE, 0);
    CONF_CHECK(pthread_create(&thread, NULL, waits, (void *)&stop) == 0, "pthread_create");
    stadd[1] = conf_reg(&vcq, first - n, n + PAGE, 0);
    if (!is_home(first - n)) {
        conf_skip("such a block is not moved beside threads here");
    }
    double end = conf_now() + 20;

    conf_dereg(&vcq, stadd[1]);
    conf_dereg(&vcq, stadd[0]);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    CONF_CHECK(!is_home(first) && !is_home(first - n), "it does not go back");
    for (had[0] = conf_reg(&vcq, small, PAGE, 0); !is_home(small); had[0] = conf_reg(&vcq, small, PAGE, 0)) {
        if (conf_now() > end) {
            conf_skip("moving has taken too much time");
        }
        conf_dereg(&vcq, had[0]); /* moving has taken much time: a smaller part later on */
        usleep(20000);
    }
    for (unsigned i = 1; i < BLOCKS; i++) {
        had[i] = conf_reg(&vcq, small + i * 2 * PAGE, PAGE, 0);
    }
    CONF_CHECK(own_home_mappings() == before + own_home_places(), "%u places are left of %u", own_home_mappings() - before, own_home_places());
    for (unsigned i = 0; i < BLOCKS; i++) {
        conf_dereg(&vcq, had[i]);
    }
    conf_vcq_close(&vcq);
}

/* -------------------------------------------------------------------- what is short */

CONF_TEST("rehome", descriptors_of_others, 1,
          "a program that closes the memfd, and opens something else, has nothing written there, nor closed, and keeps "
          "its memory")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;
    char           *other = pages(16 * PAGE);
    int             fds[16], file = memfd_create("the program's", 0);
    unsigned        n;
    struct stat     st;

    conf_vcq_open(&vcq, 0, 0);
    char *block = moved(&vcq, 16 * PAGE, &stadd);

    memset(other, 0x5a, 16 * PAGE);
    n = home_fds(fds, CONF_LEN(fds));
    CONF_CHECK((n > 0) && (file >= 0), "%u descriptors", n);
    for (unsigned i = 0; i < n; i++) {
        CONF_CHECK(dup2(file, fds[i]) == fds[i], "dup2");
    }
    fork_and_write(block, 16 * PAGE);
    conf_dereg(&vcq, conf_reg(&vcq, other, 16 * PAGE, 0));
    CONF_CHECK_BYTES(other, 16 * PAGE, 0x5a, "registered since");
    conf_dereg(&vcq, stadd);
    CONF_CHECK_BYTES(block, 16 * PAGE, 0x5a, "deregistered since");
    conf_vcq_close(&vcq);
    CONF_CHECK(fstat(file, &st) == 0 && (st.st_size == 0), "%jd bytes were written to the program's file",
               (intmax_t)st.st_size);
    for (unsigned i = 0; i < n; i++) {
        CONF_CHECK(fcntl(fds[i], F_GETFD) >= 0, "descriptor %d of the program was closed", fds[i]);
    }
}

static uint64_t data_bytes(void)
{
    FILE    *f = fopen("/proc/self/status", "r");
    char     line[256];
    uint64_t kib = 0;

    CONF_CHECK(f != NULL, "/proc/self/status");
    while ((kib == 0) && (fgets(line, sizeof(line), f) != NULL)) {
        (void)!sscanf(line, "VmData: %" SCNu64, &kib);
    }
    fclose(f);
    return kib << 10;
}

CONF_TEST("rehome", there_is_little_memory, 1,
          "what goes back is given back piece by piece: it takes no more memory than before, also when it stops half-way")
{
    struct conf_vcq vcq;
    struct rlimit   old, tight;
    struct stat     before, after;
    utofu_stadd_t   stadd;
    size_t          n = 16 * MIB;
    int             fd;

    conf_vcq_open(&vcq, 0, 0);
    char *block = moved(&vcq, n, &stadd);

    CONF_CHECK(home_fds(&fd, 1) == 1, "no memfd");
    fd = dup(fd);
    CONF_CHECK((fstat(fd, &before) == 0) && (getrlimit(RLIMIT_DATA, &old) == 0), "fstat, getrlimit");
    tight          = old;
    tight.rlim_cur = data_bytes() + 6 * MIB; /* private memory of the process, from now on */
    CONF_CHECK(setrlimit(RLIMIT_DATA, &tight) == 0, "setrlimit");
    conf_dereg(&vcq, stadd);
    CONF_CHECK(setrlimit(RLIMIT_DATA, &old) == 0, "setrlimit");
    CONF_CHECK(fstat(fd, &after) == 0, "fstat");
    CONF_CHECK(!is_home(block) && is_home(block + n - 1), "it did not stop half-way");
    CONF_CHECK(after.st_blocks <= before.st_blocks - (blkcnt_t)(3 * MIB / 512),
               "of %jd bytes in the memfd %jd are left", (intmax_t)before.st_blocks * 512, (intmax_t)after.st_blocks * 512);
    CONF_CHECK_BYTES(block, n, 0x5a, "half of it is back");
    conf_dereg(&vcq, conf_reg(&vcq, block + n - PAGE, PAGE, 0));
    CONF_CHECK(!is_home(block + n - 1), "the rest does not go back");
    CONF_CHECK_BYTES(block, n, 0x5a, "all of it is back");
    CONF_CHECK((fstat(fd, &after) == 0) && (after.st_blocks == 0), "%jd bytes are left", (intmax_t)after.st_blocks * 512);
    close(fd);
    conf_vcq_close(&vcq);
}
