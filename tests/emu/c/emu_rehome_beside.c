/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_beside.c - memory that is moved, beside what else a program does: its mappings, its locked memory, its
 * descriptors, its threads that write, overflow their stacks, end and are waited for.
 */
#include "freeze.h"
#include "harness.h"
#include "home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define MIB  ((size_t)1 << 20)

static _Atomic bool stop;

static void *anonymous(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CONF_CHECK(p != MAP_FAILED, "mmap");
    return p;
}

static void start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    CONF_CHECK(pthread_create(thread, NULL, run, arg) == 0, "pthread_create");
}

/* --------------------------------------------------------------------- mappings */

static int mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    int   n = 0, c;

    CONF_CHECK(f != NULL, "/proc/self/maps");
    while ((c = fgetc(f)) != EOF) {
        n += c == '\n';
    }
    fclose(f);
    return n;
}

CONF_TEST("rehome", mappings_become_one_again, 1,
          "what goes back is one mapping with its neighbours: a large block, and pages here and there")
{
    enum { SPOTS = 100, LARGE = 24 };
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;
    char           *block = anonymous(LARGE * MIB);
    int             before, after;

    memset(block, 1, LARGE * MIB);
    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, block, 2 * PAGE, 0); /* what it opens and maps for good */
    conf_dereg(&vcq, stadd);
    before = mappings();
    for (int i = 0; i < SPOTS; i++) {
        stadd = conf_reg(&vcq, block + (size_t)i * 16 * PAGE + 100, PAGE, 0);
        CONF_CHECK(is_home(block + (size_t)i * 16 * PAGE + 100), "spot %d is not moved", i);
        conf_dereg(&vcq, stadd);
    }
    after = mappings();
    CONF_CHECK(after <= before + SPOTS / 10, "%d mappings after %d spots, %d before", after, SPOTS, before); /* two each */
    stadd = conf_reg(&vcq, block, LARGE * MIB, 0);
    conf_dereg(&vcq, stadd);
    after = mappings();
    CONF_CHECK(after <= before + SPOTS / 10, "%d mappings after a large block, %d before", after, before);
    CONF_CHECK_BYTES(block, LARGE * MIB, 1, "the block");
    CONF_CHECK(mremap(block, LARGE * MIB, 2 * LARGE * MIB, MREMAP_MAYMOVE) != MAP_FAILED, "mremap: %s", strerror(errno));
    conf_vcq_close(&vcq);
}

/* ----------------------------------------------------------------- locked memory */

static unsigned long locked_kib(void)
{
    FILE         *f = fopen("/proc/self/status", "r");
    char          line[256];
    unsigned long n = 0;

    while ((f != NULL) && (fgets(line, sizeof(line), f) != NULL)) {
        sscanf(line, "VmLck: %lu", &n);
    }
    if (f != NULL) {
        fclose(f);
    }
    return n;
}

CONF_TEST("rehome", locked_for_the_future, 2, "with mlockall(MCL_FUTURE) a process does not fill what it maps of its peers")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[2];
    char           *block = anonymous(MIB);
    uint64_t        word;
    int             fd = open("/proc/self/oom_score_adj", O_WRONLY);
    bool            first = (fd >= 0) && (write(fd, "1000", 4) == 4); /* if it did: no other than this process ends */

    memset(block, 0, MIB);
    conf_barrier();
    if (first && (conf_rank == 0) && (mlockall(MCL_FUTURE) != 0)) {
        conf_skip("mlockall is refused");
    }
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, block, MIB, stadds);
    if (conf_rank == 0) {
        word = 5;
        CONF_OK(utofu_put_piggyback(vcq.hdl, vcq.peer[1], &word, stadds[1] + 8, 8, 1, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 1, NULL);
        CONF_CHECK(locked_kib() < 256u << 10, "%lu KiB are locked", locked_kib());
    }
    conf_barrier();
    memcpy(&word, block + 8, 8);
    CONF_CHECK((conf_rank == 0) || (word == 5), "the word is %d", (int)word);
    conf_vcq_close(&vcq);
}

/* Of which pages of [addr, addr + n) the kernel says that they are locked: one character each */
static void locked_pages(const char *addr, size_t n, char *text)
{
    FILE     *f = fopen("/proc/self/smaps", "r");
    char      line[512];
    uintptr_t begin = 0, end = 0, lo = (uintptr_t)addr, b, e;

    CONF_CHECK(f != NULL, "/proc/self/smaps");
    memset(text, '?', n / PAGE);
    text[n / PAGE] = '\0';
    while (fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "%lx-%lx ", &b, &e) == 2) {
            begin = b;
            end   = e;
        }
        for (uintptr_t at = lo; !strncmp(line, "VmFlags:", 8) && (at < lo + n); at += PAGE) {
            if ((at >= begin) && (at < end)) {
                text[(at - lo) / PAGE] = (strstr(line, " lo") != NULL) ? 'L' : '-';
            }
        }
    }
    fclose(f);
}

static void lock_pages(char *addr, size_t n)
{
    if (syscall(SYS_mlock, addr, n) != 0) { /* sanitizers replace the function */
        conf_skip("mlock is refused");
    }
}

static void keeps_locks(struct conf_vcq *vcq, char *block, size_t n, size_t from, size_t to)
{
    char          before[65], during[65], after[65];
    utofu_stadd_t stadd;

    locked_pages(block, n, before);
    stadd = conf_reg(vcq, block + from, to - from, 0);
    CONF_CHECK(is_home(block + from), "it is not moved");
    locked_pages(block, n, during);
    conf_dereg(vcq, stadd);
    CONF_CHECK(!is_home(block + from), "it is not back");
    locked_pages(block, n, after);
    CONF_CHECK(strchr(before, '?') == NULL, "not mapped: %s", before);
    CONF_CHECK(strcmp(before, during) == 0, "locked before: %s, when it is moved: %s", before, during);
    CONF_CHECK(strcmp(before, after) == 0, "locked before: %s, when it is back: %s", before, after);
    CONF_CHECK_BYTES(block, n, 7, "the block");
}

static void *writes_there(void *arg)
{
    char *page = arg;

    while (!atomic_load(&stop)) {
        page[1] = 7;
    }
    return arg;
}

CONF_TEST("rehome", locked_pages_stay_locked, 1,
          "pages that the program has locked are locked, and no others, while they are registered and after that; beside "
          "a thread that writes there as well")
{
    struct conf_vcq vcq;
    size_t          n     = 64 * PAGE;
    char           *block = anonymous(n), text[65];
    pthread_t       thread;

    memset(block, 7, n);
    lock_pages(block + 8 * PAGE, 16 * PAGE);
    lock_pages(block + 40 * PAGE, PAGE);
    locked_pages(block, n, text);
    CONF_CHECK(strspn(text + 8, "L") == 16, "locked: %s", text);
    conf_vcq_create(&vcq, 0, 0);
    keeps_locks(&vcq, block, n, 4 * PAGE + 8, 50 * PAGE);
    keeps_locks(&vcq, block, n, 10 * PAGE, 20 * PAGE);
    keeps_locks(&vcq, block, n, 20 * PAGE, 30 * PAGE);
    keeps_locks(&vcq, block, n, 50 * PAGE, 60 * PAGE);
    if (can_freeze()) {
        start(&thread, writes_there, block + 12 * PAGE);
        keeps_locks(&vcq, block, n, 4 * PAGE + 8, 50 * PAGE);
        atomic_store(&stop, true);
        pthread_join(thread, NULL);
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0) { /* sanitizers, whose own would be locked, leave it */
        keeps_locks(&vcq, block, n, 0, n);
    }
    conf_vcq_close(&vcq);
}

/* The process may not lock more than it has from now on. */
static void no_more_locks(void)
{
    struct rlimit                  none   = {0, 0};
    struct __user_cap_header_struct h     = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct  caps[2];

    CONF_CHECK(setrlimit(RLIMIT_MEMLOCK, &none) == 0, "setrlimit");
    CONF_CHECK(syscall(SYS_capget, &h, caps) == 0, "capget");
    caps[CAP_IPC_LOCK / 32].effective &= ~(1u << (CAP_IPC_LOCK % 32));
    CONF_CHECK(syscall(SYS_capset, &h, caps) == 0, "capset");
}

CONF_TEST("rehome", locked_for_good, 1, "memory that is locked, and could not be locked again, stays where it is")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;
    char           *block = anonymous(16 * PAGE);
    char            text[17];

    memset(block, 7, 16 * PAGE);
    lock_pages(block, 16 * PAGE);
    no_more_locks();
    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, block, 16 * PAGE, 0);
    CONF_CHECK(!is_home(block), "it is moved");
    locked_pages(block, 16 * PAGE, text);
    CONF_CHECK(strcmp(text, "LLLLLLLLLLLLLLLL") == 0, "locked: %s", text);
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------------- descriptors */

static int low_descriptors(void)
{
    DIR           *d = opendir("/proc/self/fd");
    struct dirent *e;
    int            n = 0;

    CONF_CHECK(d != NULL, "/proc/self/fd");
    while ((e = readdir(d)) != NULL) {
        n += (e->d_name[0] != '.') && (atoi(e->d_name) < 256) && (atoi(e->d_name) != dirfd(d));
    }
    closedir(d);
    return n;
}

static void *waits(void *arg)
{
    while (!atomic_load(&stop)) {
        usleep(1000);
    }
    return arg;
}

/* In a child, which closes what the harness has, too.  0, or what is wrong */
static int as_a_daemon(void)
{
    pthread_t       thread;
    utofu_vcq_hdl_t hdl;
    utofu_stadd_t   stadd;
    char           *block = anonymous(MIB), byte;
    int             before, pair[2], status;
    pid_t           pid;

    memset(block, 1, MIB);
    if (pthread_create(&thread, NULL, waits, NULL)) {
        return 1;
    }
    before = low_descriptors();
    if ((utofu_create_vcq(0, 0, &hdl) != UTOFU_SUCCESS) || (utofu_reg_mem(hdl, block, MIB, 0, &stadd) != UTOFU_SUCCESS)) {
        return 2;
    }
    if (low_descriptors() > before + 2) { /* two of /proc */
        return 3;
    }
    for (int fd = 3; fd < 64; fd++) {
        close(fd);
    }
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) || (write(pair[1], "x", 1) != 1)) {
        return 4;
    }
    pid = fork();
    if (pid == 0) {
        _exit((recv(pair[0], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1) ? 0 : 1);
    }
    if ((waitpid(pid, &status, 0) != pid) || (status != 0)) {
        return 5; /* it does not have what its parent has */
    }
    return (recv(pair[0], &byte, 1, MSG_DONTWAIT) == 1) ? 0 : 6; /* somebody took what waited there */
}

CONF_TEST("rehome", no_low_descriptor_is_taken, 1,
          "who registers beside a thread, and forks, has the descriptors below 256 for itself")
{
    int   status;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(as_a_daemon());
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0), "it ended with 0x%x",
               (unsigned)status);
}

/* ----------------------------------------------------------------------- threads */

static __thread sigjmp_buf out;
static _Atomic long        overflows;

static void leave(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

static int __attribute__((noinline)) deeper(volatile char *from)
{
    volatile char room[4000];

    room[0] = (from != NULL) ? from[0] : 1; /* for ever, which a compiler need not know */
    return (room[0] != 0) ? deeper(room) + room[1] : 0;
}

static void *overflows_again(void *arg)
{
    stack_t s = {.ss_size = 65536, .ss_sp = malloc(65536)};

    sigaltstack(&s, NULL);
    while (!atomic_load(&stop)) {
        if (!sigsetjmp(out, 1)) {
            deeper(NULL);
        }
        atomic_fetch_add(&overflows, 1);
    }
    return arg;
}

CONF_TEST("rehome", overflow_of_a_stack_beside_forks, 1,
          "a program that catches the overflow of a stack, on an alternate one, goes on to while another thread forks")
{
    struct sigaction sa = {.sa_handler = leave, .sa_flags = SA_ONSTACK};
    struct conf_vcq  vcq;
    pthread_attr_t   attr;
    pthread_t        thread;
    char            *block = anonymous(4 * MIB);
    double           end;
    int              forks = 0, status;

#ifdef __SANITIZE_ADDRESS__
    conf_skip("a sanitizer has that handler itself");
#endif
    memset(block, 1, 4 * MIB);
    sigaction(SIGSEGV, &sa, NULL);
    conf_vcq_create(&vcq, 0, 0);
    conf_reg(&vcq, block, 4 * MIB, 0);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 131072);
    CONF_CHECK(pthread_create(&thread, &attr, overflows_again, NULL) == 0, "pthread_create");
    for (end = conf_now() + 1; (conf_now() < end) || (forks < 10); forks++) {
        pid_t pid = fork();

        if (pid == 0) {
            _exit(0);
        }
        CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "a child ended with 0x%x", (unsigned)status);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    CONF_CHECK(atomic_load(&overflows) > 0, "none was caught");
}

static char           *stack;
static struct conf_vcq own;
static _Atomic bool    waited_for;

static void *registers_a_stack(void *arg)
{
    while (!atomic_load(&waited_for)) {
        usleep(1000);
    }
    usleep(50000);
    conf_reg(&own, stack, 64 * PAGE, 0);
    usleep(50000);
    atomic_store(&stop, true);
    return arg;
}

CONF_TEST("rehome", a_thread_is_waited_for, 1,
          "whose end is waited for while all that it runs on is registered, that thread is seen to end")
{
    pthread_attr_t attr;
    pthread_t      thread, other;

    conf_timeout(20);
    conf_vcq_create(&own, 0, 0);
    stack = anonymous(64 * PAGE);
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, stack, 64 * PAGE);
    CONF_CHECK(pthread_create(&thread, &attr, waits, NULL) == 0, "pthread_create");
    start(&other, registers_a_stack, NULL);
    atomic_store(&waited_for, true);
    CONF_CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
    pthread_join(other, NULL);
    conf_vcq_close(&own);
}

/* ----------------------------------------------------- ARMW beside threads that are held */

static void *registers(void *arg)
{
    char           *block = anonymous(MIB);
    struct conf_vcq vcq;

    memset(block, 1, MIB);
    conf_vcq_create(&vcq, 1, 0);
    while (!atomic_load(&stop)) {
        utofu_stadd_t stadd = conf_reg(&vcq, block + 4000, MIB / 2, 0);

        conf_dereg(&vcq, stadd);
    }
    return arg;
}

static void *adds(void *arg)
{
    _Atomic uint64_t *word = arg;
    uint64_t          n    = 0;

    for (; !atomic_load(&stop); n++) {
        atomic_fetch_add(word, 1);
    }
    return (void *)(uintptr_t)n;
}

CONF_TEST("rehome", armw_beside_registrations, 4,
          "ARMW on memory that is not moved is atomic with the target's own while threads of the target are held (2.2.5)")
{
    struct conf_vcq   vcq;
    utofu_stadd_t     stadds[4];
    pthread_t         threads[3];
    void             *counted = NULL;
    uint64_t          mine = 0, all[4];
    _Atomic uint64_t *word = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, (void *)word, PAGE, stadds);
    if (conf_rank == 1) {
        start(&threads[0], registers, NULL);
        start(&threads[1], registers, NULL);
        start(&threads[2], adds, (void *)word);
    }
    conf_barrier();
    for (double end = conf_now() + 3; (conf_rank != 1) && (conf_now() < end); mine++) {
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1, stadds[1], 0, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 0, NULL);
    }
    conf_exchange(&mine, sizeof(mine), all);
    if (conf_rank == 1) {
        atomic_store(&stop, true);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        pthread_join(threads[2], &counted);
        all[0] += all[2] + all[3] + (uintptr_t)counted;
        CONF_CHECK(atomic_load(word) == all[0], "%llu of %llu additions", (unsigned long long)atomic_load(word),
                   (unsigned long long)all[0]);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------------------ calls */

static int          pipe_ends[2];
static _Atomic long writer_id;

static void *writes_all(void *arg)
{
    char *block = anonymous(MIB);

    memset(block, 7, MIB);
    atomic_store(&writer_id, syscall(SYS_gettid));
    for (int i = 0; i < 3; i++) {
        ssize_t n = write(pipe_ends[1], block, MIB);

        CONF_CHECK(n == (ssize_t)MIB, "write %d of a thread returned %zd", i, n);
    }
    close(pipe_ends[1]);
    return arg;
}

/* It sleeps: in write, as it does nothing else; or it has ended. */
static void wait_asleep(void)
{
    char  path[64], state = 0;
    FILE *f;

    do {
        usleep(100);
        snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", atomic_load(&writer_id));
        f = fopen(path, "r");
        if ((f == NULL) || (fscanf(f, "%*d %*s %c", &state) != 1)) {
            state = (atomic_load(&writer_id) == 0) ? 'R' : 'S';
        }
        if (f != NULL) {
            fclose(f);
        }
    } while (state != 'S');
}

CONF_TEST("rehome", a_call_does_all_that_it_was_to, 1,
          "a thread that waits in a long write is not made to return less by a registration of another")
{
    struct conf_vcq vcq;
    pthread_t       writer;
    char           *block = anonymous(MIB), byte[65536];
    ssize_t         k;

    memset(block, 1, MIB);
    conf_vcq_create(&vcq, 1, 0);
    CONF_CHECK(pipe(pipe_ends) == 0, "pipe");
    start(&writer, writes_all, NULL);
    do {
        utofu_stadd_t stadd;

        wait_asleep(); /* it waits for us to read */
        stadd = conf_reg(&vcq, block + 4000, 20000, 0);
        conf_dereg(&vcq, stadd);
        k = read(pipe_ends[0], byte, sizeof(byte));
    } while (k > 0);
    pthread_join(writer, NULL);
    conf_vcq_close(&vcq);
}
