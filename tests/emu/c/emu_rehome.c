/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome.c - private memory that is registered becomes a mapping of a memfd
 * (docs/emulator.md, Private memory): when, when not, and that the program can't tell.
 *
 * Rank 0 puts into and gets from the memory of rank 1, and adds to a word of it.
 */
#include "freeze.h"
#include "harness.h"
#include "own.h"

#include <tofu_vcq.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  4096u
#define BYTES 8192u /* what is exchanged most */
#define HOME  "utofu-emu-home"

/* The mapping at addr is one of the memfd; *ino_p: its file */
static bool is_home(const void *addr, uint64_t *ino_p)
{
    FILE    *f = fopen("/proc/self/maps", "r");
    char     line[512];
    uint64_t begin, end, ino = 0;
    bool     found = false;

    CONF_CHECK(f != NULL, "/proc/self/maps: %s", strerror(errno));
    while (!found && (fgets(line, sizeof(line), f) != NULL)) {
        CONF_CHECK(sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64, &begin, &end, &ino) == 3, "%s", line);
        if (((uintptr_t)addr >= begin) && ((uintptr_t)addr < end)) {
            found = strstr(line, HOME) != NULL;
            break;
        }
    }
    fclose(f);
    if (ino_p != NULL) {
        *ino_p = ino;
    }
    return found;
}

static void *page_that_says(const char *name)
{
    int   fd = memfd_create(name, MFD_CLOEXEC);
    void *page;

    CONF_CHECK((fd >= 0) && (ftruncate(fd, PAGE) == 0), "memfd");
    page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CONF_CHECK(page != MAP_FAILED, "mmap");
    close(fd);
    return page;
}

struct pair {
    struct conf_vcq vcq;
    struct conf_mem own;    /* rank 0: source and destination; mapped by peers */
    utofu_stadd_t   mine, stadds[2];
};

static void pair_open(struct pair *p)
{
    conf_timeout(60);
    conf_vcq_open(&p->vcq, 0, 0);
    conf_mem_alloc(&p->own, CONF_MEM_MEMFD, 2 * BYTES);
    p->mine = conf_reg(&p->vcq, p->own.addr, p->own.size, 0);
}

static void pair_close(struct pair *p)
{
    conf_vcq_close(&p->vcq);
    conf_mem_free(&p->own);
}

static void wait_local(struct pair *p, int type)
{
    CONF_EXPECT_MRQ(&p->vcq, type, p->vcq.peer[1], 3, NULL);
}

/* Rank 1 has [addr, addr + n) registered as stadd.  What it filled by seed goes to rank 0,
 * something else comes back, then a word of it is added to. */
static void exchange(struct pair *p, void *addr, size_t n, utofu_stadd_t stadd, unsigned seed)
{
    size_t k = (n < BYTES) ? n : BYTES, word = ((uintptr_t)addr % 8) ? 8 - (uintptr_t)addr % 8 : 0;

    if (conf_rank == 1) {
        conf_fill(addr, k, seed);
    }
    struct {
        utofu_stadd_t stadd;
        uint64_t      word, k;
    } mine = {stadd, word, k}, all[2];

    conf_exchange(&mine, sizeof(mine), all);
    stadd = all[1].stadd;
    word  = all[1].word;
    k     = all[1].k;
    if (conf_rank == 0) {
        CONF_OK(utofu_get(p->vcq.hdl, p->vcq.peer[1], p->mine, stadd, k, 3, CONF_LMRQ, NULL));
        wait_local(p, UTOFU_MRQ_TYPE_LCL_GET);
        CONF_CHECK_FILL(p->own.addr, k, seed, "what the get brought");
        conf_fill(p->own.addr, k, seed + 1);
        CONF_OK(utofu_put(p->vcq.hdl, p->vcq.peer[1], p->mine, stadd, k, 3, CONF_LMRQ, NULL));
        wait_local(p, UTOFU_MRQ_TYPE_LCL_PUT);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK_FILL(addr, k, seed + 1, "what was put");
    }
    uint64_t before = 0, after;

    if ((conf_rank == 1) && (k >= word + 8)) {
        memcpy(&before, (char *)addr + word, 8);
    }
    conf_barrier();
    if ((conf_rank == 0) && (k >= word + 8)) {
        CONF_OK(utofu_armw8(p->vcq.hdl, p->vcq.peer[1], UTOFU_ARMW_OP_ADD, 5, stadd + word, 3, CONF_LMRQ, NULL));
        wait_local(p, UTOFU_MRQ_TYPE_LCL_ARMW);
    }
    conf_barrier();
    if ((conf_rank == 1) && (k >= word + 8)) {
        memcpy(&after, (char *)addr + word, 8);
        CONF_CHECK(after == before + 5, "the word is %" PRIu64 ", not %" PRIu64, after, before + 5);
    }
}

/* ------------------------------------------------------------------- where it is */

static char initialised[3 * PAGE] = {1};

CONF_TEST("rehome", there_and_back, 2,
          "memory of every private kind is a mapping of the memfd while it is registered, with what is around it, and "
          "private again when it is not")
{
    static char zeroed[5 * PAGE + 100];
    struct pair p;
    void       *aligned;
    char       *heap[40], *page = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    pair_open(&p);
    for (unsigned i = 0; i < CONF_LEN(heap); i++) { /* neighbours of each other */
        heap[i] = malloc(100 + 97 * i);
        CONF_CHECK(heap[i] != NULL, "malloc");
        memset(heap[i], (int)i + 1, 100 + 97 * i);
    }
    CONF_CHECK(posix_memalign(&aligned, PAGE, 3 * PAGE) == 0, "posix_memalign");
    struct {
        const char *what;
        char       *addr;
        size_t      size;
    } blocks[] = {
            {"8 bytes of the heap", heap[7], 8},      {"heap, across pages", heap[39] + 3, 3800},
            {"a large block", malloc(1 << 20), 1 << 20}, {"its middle", malloc(1 << 20), 700001},
            {"zeroed data", zeroed + 50, 5 * PAGE},   {"initialised data", initialised + 11, 2 * PAGE},
            {"aligned pages", aligned, 3 * PAGE},     {"a mapping", page, 4 * PAGE},
            {"part of a page", page + 100, 60},
    };
    blocks[3].addr += 150000;
    for (unsigned b = 0; b < CONF_LEN(blocks); b++) {
        char         *addr = blocks[b].addr;
        size_t        size = blocks[b].size;
        utofu_stadd_t stadd = 0;

        conf_at(__FILE__, __LINE__, blocks[b].what);
        if (conf_rank == 1) {
            conf_fill(addr, size, 100 + b);
            stadd = conf_reg(&p.vcq, addr, size, 0);
            CONF_CHECK(is_home(addr, NULL) && is_home(addr + size - 1, NULL), "%s: not in the memfd", blocks[b].what);
            CONF_CHECK_FILL(addr, size, 100 + b, "after registration");
            CONF_CHECK(own_home_bytes() != 0, "nothing is in the memfd");
        }
        exchange(&p, addr, size, stadd, b);
        if (conf_rank == 1) {
            conf_fill(addr, size, 200 + b);
            conf_dereg(&p.vcq, stadd);
            CONF_CHECK(!is_home(addr, NULL) && !is_home(addr + size - 1, NULL), "%s: still there", blocks[b].what);
            CONF_CHECK_FILL(addr, size, 200 + b, "after deregistration");
            CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left in the memfd", own_home_bytes());
        }
    }
    for (unsigned i = 0; i < CONF_LEN(heap); i++) {
        if ((i != 7) && (i != 39)) {
            CONF_CHECK_BYTES(heap[i], 100 + 97 * i, (unsigned char)(i + 1), "a neighbour");
        }
        free(heap[i]);
    }
    pair_close(&p);
}

CONF_TEST("rehome", grows_with_registrations, 2,
          "registrations that overlap or touch share pages of the memfd, in whatever order they come and go")
{
    static const struct {
        size_t at, size;
    } parts[] = {{5 * PAGE + 10, 20}, {5 * PAGE, 3 * PAGE}, {0, 16 * PAGE}, {15 * PAGE + 8, 5 * PAGE}, {2 * PAGE, 64}};
    struct pair   p;
    char         *block = NULL;
    utofu_stadd_t stadds[CONF_LEN(parts)] = {0};

    pair_open(&p);
    CONF_CHECK(posix_memalign((void **)&block, PAGE, 24 * PAGE) == 0, "posix_memalign");
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < CONF_LEN(parts); i++) {
            unsigned n = (i + round) % CONF_LEN(parts);

            if (conf_rank == 1) {
                stadds[n] = conf_reg(&p.vcq, block + parts[n].at, parts[n].size, 0);
                /* later rounds begin with parts that are apart, and stay so */
                CONF_CHECK((round > 0) || (is_home(block + parts[n].at, NULL) &&
                                           is_home(block + parts[n].at + parts[n].size - 1, NULL)),
                           "part %u is not in the memfd", n);
            }
            exchange(&p, block + parts[n].at, parts[n].size, stadds[n], n);
        }
        for (unsigned i = 0; i < CONF_LEN(parts); i++) {
            exchange(&p, block + parts[i].at, parts[i].size, stadds[i], 50 + i);
            if (conf_rank == 1) {
                conf_dereg(&p.vcq, stadds[i]);
            }
        }
        CONF_CHECK(own_home_bytes() == 0, "round %u: %" PRIu64 " bytes are left", round, own_home_bytes());
    }
    free(block);
    pair_close(&p);
}

/* ------------------------------------------------------------------ when it is not */

static void *sleeper(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg)) {
        usleep(1000);
    }
    return NULL;
}

/* Registered now, it stays as it is; and all operations work. */
static void stays(struct pair *p, void *addr, size_t n, const char *why)
{
    utofu_stadd_t stadd = 0;

    if (conf_rank == 1) {
        stadd = conf_reg(&p->vcq, addr, n, 0);
        CONF_CHECK(!is_home(addr, NULL), "%s: moved all the same", why);
    }
    exchange(p, addr, n, stadd, 9);
    if (conf_rank == 1) {
        conf_dereg(&p->vcq, stadd);
    }
}

static void moves(struct pair *p, void *addr, size_t n, const char *why)
{
    if (conf_rank == 1) {
        utofu_stadd_t stadd = conf_reg(&p->vcq, addr, n, 0);

        CONF_CHECK(is_home(addr, NULL), "%s: not moved", why);
        conf_dereg(&p->vcq, stadd);
    }
}

CONF_TEST("rehome", conditions, 2,
          "memory stays where it is while there is another thread, an io_uring, an aio context or a device, or when it is "
          "too much; not for memory that is locked elsewhere, or a file below /dev")
{
    struct pair  p;
    char        *block = malloc(BYTES);
    size_t       n     = ((size_t)64 << 30) + PAGE;
    char        *large = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    _Atomic bool stop  = false;
    pthread_t    thread;
    char         params[256] = {0};
    int          fd;

    setenv("UTOFU_EMU_REHOME", "alone", 1);
    pair_open(&p);
    CONF_CHECK(pthread_create(&thread, NULL, sleeper, (void *)&stop) == 0, "pthread_create");
    stays(&p, block, BYTES, "a thread");
    atomic_store(&stop, true);
    pthread_join(thread, NULL);

    CONF_CHECK(syscall(SYS_mlock, params, 1) == 0, "mlock"); /* sanitizers replace the function */
    moves(&p, block, BYTES, "locked memory");
    syscall(SYS_munlock, params, 1);
    fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0) {
        moves(&p, block, BYTES, "a file below /dev");
        close(fd);
    }

    fd = (int)syscall(SYS_io_uring_setup, 4, params);
    if (fd >= 0) {
        stays(&p, block, BYTES, "an io_uring");
        close(fd);
    }
    unsigned long context = 0;
    if (syscall(SYS_io_setup, 1, &context) == 0) {
        stays(&p, block, BYTES, "an aio context");
        syscall(SYS_io_destroy, context);
    }
    fd = open("/dev/fuse", O_RDWR);
    if (fd >= 0) {
        stays(&p, block, BYTES, "a device");
        close(fd);
    }
    CONF_CHECK(large != MAP_FAILED, "no room for more than 64 GiB of addresses");
    stays(&p, large, n, "more than 64 GiB");
    munmap(large, n);

    if (conf_rank == 1) { /* and nothing of this lasts */
        utofu_stadd_t stadd = conf_reg(&p.vcq, block, BYTES, 0);
        CONF_CHECK(is_home(block, NULL), "nothing speaks against it any more");
        conf_dereg(&p.vcq, stadd);
    }
    free(block);
    pair_close(&p);
}

/* Registers what was moved, and back, a moment ago.  Where that took long, for the machine is busy, the library
 * moves nothing until it is a small part of the time again: at most 20 times the second of it that is remembered. */
static utofu_stadd_t reg_again(struct pair *p, void *addr, size_t n)
{
    utofu_stadd_t stadd = conf_reg(&p->vcq, addr, n, 0);
    double        end   = conf_now() + 30;

    while (!is_home(addr, NULL) && (conf_now() < end)) {
        conf_dereg(&p->vcq, stadd);
        usleep(500000);
        stadd = conf_reg(&p->vcq, addr, n, 0);
    }
    return stadd;
}

CONF_TEST("rehome", much_at_once, 2, "a block of 200 MiB is moved, and goes back, as a small one")
{
    struct pair   p;
    size_t        n     = (size_t)200 << 20;
    char         *block = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    utofu_stadd_t stadd = 0;

    pair_open(&p);
    conf_timeout(100);
    CONF_CHECK(block != MAP_FAILED, "mmap");
    for (unsigned round = 0; round < 2; round++) {
        if (conf_rank == 1) {
            for (size_t at = 0; at < n; at += PAGE) {
                memcpy(block + at + 8, &at, sizeof(at));
            }
            stadd = (round == 0) ? conf_reg(&p.vcq, block, n, 0) : reg_again(&p, block, n);
            CONF_CHECK(is_home(block, NULL) && is_home(block + n - 1, NULL), "not moved");
        }
        exchange(&p, block, BYTES, stadd, 1);
        exchange(&p, block + n - BYTES, BYTES, stadd + n - BYTES, 2);
        if (conf_rank == 1) {
            conf_dereg(&p.vcq, stadd);
            CONF_CHECK(!is_home(block, NULL) && !is_home(block + n - 1, NULL) && (own_home_bytes() == 0), "still there");
            for (size_t at = BYTES; at < n - BYTES; at += PAGE) {
                CONF_CHECK(!memcmp(block + at + 8, &at, sizeof(at)), "page %zu", at / PAGE);
            }
        }
    }
    pair_close(&p);
}

CONF_TEST("rehome", not_under_a_registration, 2,
          "memory of which some is registered, and private, stays: a peer may be writing it")
{
    struct pair   p;
    char         *block = malloc(BYTES);
    _Atomic bool  stop  = false;
    pthread_t     thread;
    utofu_stadd_t first = 0;

    setenv("UTOFU_EMU_REHOME", "alone", 1);
    pair_open(&p);
    if (conf_rank == 1) {
        CONF_CHECK(pthread_create(&thread, NULL, sleeper, (void *)&stop) == 0, "pthread_create");
        first = conf_reg(&p.vcq, block + 100, 8, 0);
        atomic_store(&stop, true);
        pthread_join(thread, NULL);
    }
    stays(&p, block, BYTES, "a registration");
    if (conf_rank == 1) {
        conf_dereg(&p.vcq, first);
    }
    free(block);
    pair_close(&p);
}

CONF_TEST("rehome", more_than_there_are_places, 2, "with more blocks than the memfd has places, the others stay")
{
    enum { BLOCKS = 4300 };
    struct pair          p;
    char                *block = mmap(NULL, BLOCKS * 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static utofu_stadd_t stadds[BLOCKS];

    conf_timeout(100);
    pair_open(&p);
    for (unsigned i = 0; (conf_rank == 1) && (i < BLOCKS); i++) {
        stadds[i] = conf_reg(&p.vcq, block + i * 2 * PAGE, PAGE, 0);
    }
    CONF_CHECK((conf_rank == 0) || (own_home_mappings() == own_home_places()), "%u of %u were moved", own_home_mappings(), BLOCKS);
    for (unsigned i = 0; i < BLOCKS; i += 137) {
        exchange(&p, block + i * 2 * PAGE, PAGE, stadds[i], i);
    }
    for (unsigned i = 0; (conf_rank == 1) && (i < BLOCKS); i++) {
        conf_dereg(&p.vcq, stadds[i]);
    }
    CONF_CHECK((conf_rank == 0) || (own_home_mappings() == 0), "%u are still moved", own_home_mappings());
    CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
    pair_close(&p);
}

/* ------------------------------------------------------------------------- fork */

static char       *forked;       /* a registered block */
static atomic_uint before_hooks; /* what the hook of this program saw */

static void child_hook(void)
{
    memset(forked, 0x11, 16); /* not the parent's any more */
    atomic_store(&before_hooks, 1);
}

CONF_TEST("rehome", fork_gives_a_copy, 2,
          "a child has what was there at fork, neither sees what the other writes then, and peers write the parent's")
{
    struct pair   p;
    size_t        n     = 1 << 20;
    char         *small = malloc(24), *neighbour = malloc(24);
    utofu_stadd_t stadd[2] = {0};
    int           to_child[2], status;

    forked = malloc(n);
    pair_open(&p);
    CONF_CHECK(pthread_atfork(NULL, NULL, child_hook) == 0, "pthread_atfork");
    if (conf_rank == 1) {
        strcpy(neighbour, "as it was");
        conf_fill(forked, n, 1);
        conf_fill(small, 24, 2);
        stadd[0] = conf_reg(&p.vcq, forked, n, 0);
        stadd[1] = conf_reg(&p.vcq, small, 24, 0);
        CONF_CHECK(is_home(forked, NULL), "the large block was not moved");
        CONF_CHECK(is_home(small, NULL), "the small block was not moved");
        CONF_CHECK(pipe(to_child) == 0, "pipe");
        pid_t pid = fork();
        CONF_CHECK(pid >= 0, "fork");
        if (pid == 0) {
            char go;
            bool ok = !is_home(forked, NULL) && !is_home(small, NULL) && (atomic_load(&before_hooks) == 1);

            ok = ok && (read(to_child[0], &go, 1) == 1); /* the parent has written since */
            CONF_CHECK_BYTES(forked, 16, 0x11, "what the hook wrote");
            for (size_t i = 16; i < n; i++) { /* the rest as at fork */
                unsigned char c;
                static char   like[1 << 20];

                if (i == 16) {
                    conf_fill(like, n, 1);
                }
                c  = (unsigned char)like[i];
                ok = ok && ((unsigned char)forked[i] == c);
            }
            ok = ok && !strcmp(neighbour, "as it was");
            memset(forked, 0x77, n);
            memset(small, 0x77, 24);
            strcpy(neighbour, "the child's");
            free(malloc(2000));
            _exit(ok ? 0 : 1);
        }
        CONF_CHECK_FILL(forked, n, 1, "right after fork");
        strcpy(neighbour, "changed");
        memset(forked, 0x22, n);
        CONF_CHECK(write(to_child[1], "x", 1) == 1, "write");
        CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0),
                   "the child ended with 0x%x", (unsigned)status);
        CONF_CHECK_BYTES(forked, n, 0x22, "the parent's block");
        CONF_CHECK(!strcmp(neighbour, "changed"), "the neighbour says %s", neighbour);
        CONF_CHECK_FILL(small, 24, 2, "the small block");
        CONF_CHECK(is_home(forked, NULL), "the parent's has moved");
    }
    exchange(&p, forked, n, stadd[0], 3);
    exchange(&p, small, 24, stadd[1], 4);
    if (conf_rank == 1) {
        conf_dereg(&p.vcq, stadd[0]);
        conf_dereg(&p.vcq, stadd[1]);
        CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
    }
    pair_close(&p);
}

CONF_TEST("rehome", fork_of_a_child_that_dies, 1, "a parent does not wait for ever for a child that ends at once")
{
    struct conf_vcq vcq;
    char           *block = malloc(BYTES);

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg(&vcq, block, BYTES, 0);
    for (int i = 0; i < 200; i++) {
        double start = conf_now();
        pid_t  pid   = fork();

        if (pid == 0) {
            kill(getpid(), SIGKILL);
        }
        CONF_CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
        CONF_CHECK(conf_now() - start < 5, "fork took %.1f s", conf_now() - start);
    }
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------- what else a program does with it */

CONF_TEST("rehome", while_threads_run, 2,
          "memory that can't go back while there is another thread stays as it is, is used again, and goes later")
{
    struct pair   p;
    char         *block = malloc(BYTES), *other = malloc(300000);
    _Atomic bool  stop  = false;
    pthread_t     thread;
    utofu_stadd_t stadd = 0;

    setenv("UTOFU_EMU_REHOME", "alone", 1);
    pair_open(&p);
    if (conf_rank == 1) {
        stadd = conf_reg(&p.vcq, block, BYTES, 0);
        conf_fill(block, BYTES, 5);
        CONF_CHECK(pthread_create(&thread, NULL, sleeper, (void *)&stop) == 0, "pthread_create");
        conf_dereg(&p.vcq, stadd);
        CONF_CHECK(is_home(block, NULL), "copied while there was a thread");
        CONF_CHECK_FILL(block, BYTES, 5, "the block");
        stadd = conf_reg(&p.vcq, block, BYTES, 0);
    }
    exchange(&p, block, BYTES, stadd, 6);
    if (conf_rank == 1) {
        conf_dereg(&p.vcq, stadd);
        atomic_store(&stop, true);
        pthread_join(thread, NULL);
        conf_fill(block, BYTES, 7);
        /* the kernel counts a thread for a little while after it was joined */
        for (double end = conf_now() + 5; is_home(block, NULL) && (conf_now() < end);) {
            conf_dereg(&p.vcq, conf_reg(&p.vcq, other, 300000, 0));
        }
        CONF_CHECK(!is_home(block, NULL) && (own_home_bytes() == 0), "it does not go back");
        CONF_CHECK_FILL(block, BYTES, 7, "the block");
    }
    free(block);
    free(other);
    pair_close(&p);
}

CONF_TEST("rehome", registered_otherwise_as_well, 2,
          "memory does not go back while a VCQ has it registered that leaves memory where it is: a peer may be writing")
{
    struct pair     p;
    struct conf_vcq other;
    char           *block = malloc(BYTES);
    utofu_stadd_t   stadd = 0, kept = 0;

    pair_open(&p);
    conf_vcq_create(&other, 0, 0);
    if (conf_rank == 1) {
        conf_reg(&other, page_that_says(TOFU_UNORDERED_MEMFD), PAGE, UTOFU_REG_MEM_FLAG_READ_ONLY);
        stadd = conf_reg(&p.vcq, block, BYTES, 0);
        kept  = conf_reg(&other, block, BYTES, 0);
        conf_fill(block, BYTES, 4);
        conf_dereg(&p.vcq, stadd);
        CONF_CHECK(is_home(block, NULL), "copied under a registration");
        CONF_CHECK_FILL(block, BYTES, 4, "the block");
        conf_dereg(&other, kept);
        CONF_CHECK(!is_home(block, NULL) && (own_home_bytes() == 0), "it does not go back");
        CONF_CHECK_FILL(block, BYTES, 4, "the block");
    }
    conf_barrier();
    free(block);
    conf_vcq_close(&other);
    pair_close(&p);
}

CONF_TEST("rehome", movable_by_page, 2,
          "with a VCQ that leaves memory where it is, memory is moved while the page that allows it is registered, "
          "however often that was, and no longer")
{
    struct pair   p;
    char         *block = malloc(BYTES);
    void         *page  = page_that_says(TOFU_MOVABLE_MEMFD);
    utofu_stadd_t pages[2], stadd;

    pair_open(&p);
    if (conf_rank == 1) {
        conf_reg(&p.vcq, page_that_says(TOFU_UNORDERED_MEMFD), PAGE, UTOFU_REG_MEM_FLAG_READ_ONLY);
        for (int round = 0; round < 3; round++) {
            stadd = conf_reg(&p.vcq, block, BYTES, 0);
            CONF_CHECK(!is_home(block, NULL), "moved, and nobody allowed it");
            conf_dereg(&p.vcq, stadd);

            for (int i = 0; i < 2; i++) {
                pages[i] = conf_reg(&p.vcq, page, PAGE, UTOFU_REG_MEM_FLAG_READ_ONLY);
            }
            conf_dereg(&p.vcq, pages[0]);
            conf_fill(block, BYTES, round);
            stadd = conf_reg(&p.vcq, block, BYTES, 0);
            conf_dereg(&p.vcq, pages[1]);
            CONF_CHECK(is_home(block, NULL), "not moved");
            CONF_CHECK_FILL(block, BYTES, round, "the block");
            conf_dereg(&p.vcq, stadd);
            CONF_CHECK(!is_home(block, NULL) && (own_home_bytes() == 0), "it does not go back");
            CONF_CHECK_FILL(block, BYTES, round, "the block");
        }
    }
    conf_barrier();
    free(block);
    pair_close(&p);
}

CONF_TEST("rehome", realloc_and_free_while_registered, 2,
          "a block that is grown, or freed, before it is deregistered keeps what is in it, and gives the memory back")
{
    struct pair   p;
    size_t        n     = 1 << 20;
    char         *block = malloc(n), *small = malloc(3000), *gone = malloc(n);
    utofu_stadd_t stadds[3] = {0};

    pair_open(&p);
    if (conf_rank == 1) {
        conf_fill(block, n, 1);
        conf_fill(small, 3000, 2);
        stadds[0] = conf_reg(&p.vcq, block, n, 0);
        stadds[1] = conf_reg(&p.vcq, small, 3000, 0);
        stadds[2] = conf_reg(&p.vcq, gone, n, 0);
        block     = realloc(block, 60 * n); /* by mremap */
        small     = realloc(small, 100000);
        free(gone);
        CONF_CHECK_FILL(block, n, 1, "the grown block");
        memset(block + n, 0x33, 59 * n); /* no SIGBUS */
        CONF_CHECK_FILL(small, 3000, 2, "the grown small block");
        for (int i = 0; i < 3; i++) {
            conf_dereg(&p.vcq, stadds[i]);
        }
        CONF_CHECK_FILL(block, n, 1, "the grown block, deregistered");
        CONF_CHECK_BYTES(block + n, 59 * n, 0x33, "what was added");
        CONF_CHECK_FILL(small, 3000, 2, "the grown small block, deregistered");
        CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
    }
    free(block);
    free(small);
    pair_close(&p);
}

CONF_TEST("rehome", heap_in_use, 2,
          "blocks of the heap come, are registered, written by a peer, and go, among others that nobody registers")
{
    enum { SLOTS = 60, ROUNDS = 1500 };
    struct pair p;
    struct {
        unsigned char *addr;
        size_t         size;
        unsigned       seed;
        utofu_stadd_t  stadd; /* 0: not registered */
    } have[SLOTS];
    unsigned rng = (getenv("EMU_SEED") != NULL) ? (unsigned)atoi(getenv("EMU_SEED")) : 12345;

    memset(have, 0, sizeof(have));
    pair_open(&p);
    for (unsigned r = 0; r < ROUNDS; r++) {
        rng           = rng * 1103515245u + 12345u;
        unsigned i    = (rng >> 8) % SLOTS;
        size_t   size = 1 + (rng >> 16) % ((rng & 64) ? 200000 : 5000);

        if (conf_rank == 1) {
            if (have[i].addr != NULL) {
                CONF_CHECK_FILL(have[i].addr, have[i].size, have[i].seed, "a block of the heap");
                if (have[i].stadd != 0) {
                    conf_dereg(&p.vcq, have[i].stadd);
                    CONF_CHECK_FILL(have[i].addr, have[i].size, have[i].seed, "a block that was registered");
                }
                free(have[i].addr);
            }
            have[i].addr  = (rng & 128) ? malloc(size) : calloc(1, size);
            have[i].size  = size;
            have[i].seed  = r;
            have[i].stadd = 0;
            if (!(rng & 128)) {
                CONF_CHECK_BYTES(have[i].addr, size, 0, "a block from calloc");
            }
            conf_fill(have[i].addr, size, r);
            if (rng & 256) {
                have[i].stadd = conf_reg(&p.vcq, have[i].addr, size, 0);
            }
        }
        if (r % 16 == 0) {
            exchange(&p, have[i].addr, (conf_rank == 1) ? have[i].size : 0,
                     ((conf_rank == 1) && (have[i].stadd == 0)) ?
                             (have[i].stadd = conf_reg(&p.vcq, have[i].addr, have[i].size, 0)) :
                             have[i].stadd, r);
            if (conf_rank == 1) {
                conf_fill(have[i].addr, have[i].size, r);
            }
        }
    }
    for (unsigned i = 0; (conf_rank == 1) && (i < SLOTS); i++) {
        if (have[i].addr != NULL) {
            CONF_CHECK_FILL(have[i].addr, have[i].size, have[i].seed, "a block at the end");
            if (have[i].stadd != 0) {
                conf_dereg(&p.vcq, have[i].stadd);
            }
            CONF_CHECK_FILL(have[i].addr, have[i].size, have[i].seed, "a block, deregistered at the end");
            free(have[i].addr);
        }
    }
    CONF_CHECK((conf_rank == 0) || (own_home_bytes() == 0), "%" PRIu64 " bytes are left", own_home_bytes());
    pair_close(&p);
}

/* ------------------------------------------------------------- beside other threads */

struct worker {
    pthread_t          thread;
    _Atomic bool      *stop;
    volatile uint64_t *word; /* of the thread alone, among what is registered */
    uint64_t           count, failed;
    char              *into;
    int                fd;
};

static void *counts(void *arg)
{
    struct worker *w = arg;

    while (!atomic_load_explicit(w->stop, memory_order_relaxed)) {
        for (int i = 0; i < 1000; i++) {
            *w->word = *w->word + 1;
        }
        w->count += 1000;
    }
    return NULL;
}

static void *reads(void *arg)
{
    struct worker *w = arg;

    while (!atomic_load_explicit(w->stop, memory_order_relaxed)) {
        w->failed += pread(w->fd, w->into, 3000, 0) != 3000;
        w->count++;
        w->failed += memcmp(w->into + 1000, "from a file", 11) != 0;
    }
    return NULL;
}

/* Blocks of many sizes come and go: the heap of a thread, and what malloc keeps of it */
static void *mallocs(void *arg)
{
    struct worker *w   = arg;
    unsigned       rng = 99;
    char          *have[32] = {NULL};

    while (!atomic_load_explicit(w->stop, memory_order_relaxed)) {
        unsigned i = (rng = rng * 1103515245u + 12345u) >> 8, n = 16 + (i >> 5) % 9000;

        i %= 32;
        if (have[i] != NULL) {
            w->failed += strcmp(have[i], "kept") != 0;
            free(have[i]);
        }
        have[i] = malloc(n);
        strcpy(have[i], "kept");
        w->count++;
    }
    for (unsigned i = 0; i < 32; i++) {
        free(have[i]);
    }
    return NULL;
}

static void workers_start(struct worker *w, unsigned n, void *(*run)(void *), _Atomic bool *stop)
{
    for (unsigned i = 0; i < n; i++) {
        w[i].stop = stop;
        CONF_CHECK(pthread_create(&w[i].thread, NULL, run, &w[i]) == 0, "pthread_create");
    }
}

static void workers_join(struct worker *w, unsigned n, const char *what)
{
    for (unsigned i = 0; i < n; i++) {
        pthread_join(w[i].thread, NULL);
        CONF_CHECK((w[i].failed == 0) && (w[i].count > 0), "%s: %" PRIu64 " failed of %" PRIu64, what, w[i].failed,
                   w[i].count);
    }
}

CONF_TEST("rehome", nothing_is_lost_beside_threads, 2,
          "memory goes to the memfd and back while other threads, and the kernel for them, write there: no write is lost, "
          "no call fails")
{
    enum { ROUNDS = 300, SPAN = 2560 << 10 }; /* more than is copied at a time */
    struct pair   p;
    char         *block = NULL;
    struct worker counter[2] = {0}, reader[1] = {0};
    _Atomic bool  stop = false;
    unsigned      moved = 0, back = 0, rounds = ROUNDS;

    pair_open(&p);
    CONF_CHECK(posix_memalign((void **)&block, PAGE, SPAN) == 0, "posix_memalign");
    memset(block, 0, SPAN);
    if (!can_freeze()) {
        CONF_CHECK(pthread_create(&reader[0].thread, NULL, sleeper, (void *)&stop) == 0, "pthread_create");
        stays(&p, block, BYTES, "a thread, and no way to freeze it");
        atomic_store(&stop, true);
        pthread_join(reader[0].thread, NULL);
        free(block);
        pair_close(&p);
        return;
    }
    if (conf_rank == 1) {
        counter[0].word = (volatile uint64_t *)(block + 64);
        counter[1].word = (volatile uint64_t *)(block + SPAN - 5000);
        reader[0].into  = block + 1500000;
        reader[0].fd    = memfd_create("source", MFD_CLOEXEC);
        CONF_CHECK(pwrite(reader[0].fd, "from a file", 11, 1000) == 11, "pwrite");
        CONF_CHECK(ftruncate(reader[0].fd, 3000) == 0, "ftruncate");
        workers_start(counter, 2, counts, &stop);
        workers_start(reader, 1, reads, &stop);
    }
    for (unsigned r = 0; r < ROUNDS; r++) {
        utofu_stadd_t stadd = 0, all[2];

        if (conf_rank == 1) {
            stadd = conf_reg(&p.vcq, block, SPAN, 0);
            moved += is_home(block, NULL) && is_home(block + SPAN - 1, NULL);
        }
        if (r % 50 == 0) { /* peers reach it, too */
            conf_exchange(&stadd, sizeof(stadd), all);
            if (conf_rank == 0) {
                conf_fill(p.own.addr, BYTES, r);
                CONF_OK(utofu_put(p.vcq.hdl, p.vcq.peer[1], p.mine, all[1] + 400000, BYTES, 3, CONF_LMRQ, NULL));
                wait_local(&p, UTOFU_MRQ_TYPE_LCL_PUT);
            }
            conf_barrier();
        }
        if (conf_rank == 1) {
            conf_dereg(&p.vcq, stadd);
            back += !is_home(block, NULL) && !is_home(block + SPAN - 1, NULL);
            CONF_CHECK_FILL(block + 400000, BYTES, r - r % 50, "what was put");
        }
    }
    if (conf_rank == 1) {
        /* on a busy machine the threads often don't stop in time, and the memory stays */
        for (double end = conf_now() + 60; (moved <= 20) && (conf_now() < end); rounds++) {
            utofu_stadd_t stadd = conf_reg(&p.vcq, block, SPAN, 0);

            moved += is_home(block, NULL) && is_home(block + SPAN - 1, NULL);
            conf_dereg(&p.vcq, stadd);
            back += !is_home(block, NULL) && !is_home(block + SPAN - 1, NULL);
        }
        atomic_store(&stop, true);
        workers_join(counter, 2, "counting");
        workers_join(reader, 1, "read()");
        for (int i = 0; i < 2; i++) {
            CONF_CHECK(*counter[i].word == counter[i].count, "%" PRIu64 " of %" PRIu64 " are left", *counter[i].word,
                       counter[i].count);
        }
        CONF_CHECK((moved > 20) && (back == rounds), "%u moved, %u back of %u", moved, back, rounds);
        CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
    }
    free(block);
    pair_close(&p);
}

CONF_TEST("rehome", each_goes_back_by_itself, 2,
          "pages that are registered no more are private again, also beside threads, while their neighbours are there yet")
{
    struct pair   p;
    char         *block = NULL;
    struct worker idle  = {0};
    _Atomic bool  stop  = false;
    bool          threads = can_freeze();
    utofu_stadd_t s[3] = {0};

    pair_open(&p);
    CONF_CHECK(posix_memalign((void **)&block, PAGE, 9 * PAGE) == 0, "posix_memalign");
    if (conf_rank == 1) {
        if (threads) {
            CONF_CHECK(pthread_create(&idle.thread, NULL, sleeper, (void *)&stop) == 0, "pthread_create");
        }
        conf_fill(block, 9 * PAGE, 8);
        s[0] = conf_reg(&p.vcq, block, 9 * PAGE, 0);
        s[1] = conf_reg(&p.vcq, block + 2 * PAGE - 8, 16, 0);
        s[2] = conf_reg(&p.vcq, block + 6 * PAGE + 50, 100, 0);
        conf_dereg(&p.vcq, s[0]);
        for (unsigned i = 0; i < 9; i++) {
            CONF_CHECK(is_home(block + i * PAGE, NULL) == ((i == 1) || (i == 2) || (i == 6)), "page %u", i);
        }
        CONF_CHECK(own_home_bytes() == 3 * PAGE, "%" PRIu64 " bytes", own_home_bytes());
        CONF_CHECK_FILL(block, 9 * PAGE, 8, "the block");
        s[0] = conf_reg(&p.vcq, block, 9 * PAGE, 0); /* and there again */
        for (unsigned i = 0; i < 9; i++) {
            CONF_CHECK(is_home(block + i * PAGE, NULL), "page %u is not there again", i);
        }
        CONF_CHECK_FILL(block, 9 * PAGE, 8, "the block, registered again");
    }
    exchange(&p, block, 2 * PAGE, s[0], 4);
    exchange(&p, block + 2 * PAGE - 8, 16, s[1], 5);
    exchange(&p, block + 6 * PAGE + 50, 100, s[2], 6);
    if (conf_rank == 1) {
        for (unsigned i = 0; i < 3; i++) {
            conf_dereg(&p.vcq, s[i]);
        }
        CONF_CHECK(!is_home(block, NULL) && (own_home_bytes() == 0), "something is left");
        atomic_store(&stop, true);
        if (threads) {
            pthread_join(idle.thread, NULL);
        }
    }
    free(block);
    pair_close(&p);
}

/* Pages are moved with what else is on them, and go back, if they can be held still. */
static void moved_with_neighbours(void)
{
    static const struct {
        size_t at, size, from, to; /* pages that are moved: [from, to) */
    } parts[] = {
            {100, 64, 0, 1}, {PAGE - 8, 16, 0, 2}, {0, PAGE, 0, 1}, {8, 2 * PAGE, 0, 3}, {2 * PAGE, 3 * PAGE + 1, 2, 6},
    };
    struct pair  p;
    char        *block = NULL;
    struct worker idle = {0};
    _Atomic bool stop  = false, threads = can_freeze();

    pair_open(&p);
    CONF_CHECK(posix_memalign((void **)&block, PAGE, 8 * PAGE) == 0, "posix_memalign");
    CONF_CHECK(pthread_create(&idle.thread, NULL, sleeper, (void *)&stop) == 0, "pthread_create");
    for (unsigned k = 0; k < CONF_LEN(parts); k++) {
        utofu_stadd_t stadd = 0;

        if (conf_rank == 1) {
            stadd = conf_reg(&p.vcq, block + parts[k].at, parts[k].size, 0);
            for (unsigned i = 0; i < 8; i++) {
                CONF_CHECK(is_home(block + i * PAGE, NULL) == (threads && (i >= parts[k].from) && (i < parts[k].to)),
                           "part %u, page %u", k, i);
            }
        }
        exchange(&p, block + parts[k].at, parts[k].size, stadd, k);
        if (conf_rank == 1) {
            conf_dereg(&p.vcq, stadd);
            CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
        }
    }
    atomic_store(&stop, true);
    pthread_join(idle.thread, NULL);
    free(block);
    pair_close(&p);
}

CONF_TEST("rehome", neighbours_beside_threads, 2,
          "beside threads, too, pages are moved with what else is on them, and go back; all of it works")
{
    moved_with_neighbours();
}

CONF_TEST("rehome", neighbours_by_device, 2, "the same of a process that may only open /dev/userfaultfd")
{
    drop_capability(CAP_SYS_PTRACE);
    if (can_freeze_by_call() || !can_freeze_by_device()) {
        conf_skip("no /dev/userfaultfd for this process, or it does not need that");
    }
    moved_with_neighbours();
}

CONF_TEST("rehome", fork_beside_threads, 2,
          "a thread forks while others count in registered memory and use malloc: the child has a copy, and all go on")
{
    enum { FORKS = 60, SPAN = 80 * PAGE };
    struct pair   p;
    char         *block = NULL, *small = malloc(24);
    struct worker counter[1] = {0}, heap[2] = {0};
    _Atomic bool  stop = false;
    utofu_stadd_t stadd[2] = {0};

    pair_open(&p);
    CONF_CHECK(posix_memalign((void **)&block, PAGE, SPAN) == 0, "posix_memalign");
    if (conf_rank == 1) {
        memset(block, 0, SPAN);
        strcpy(small, "the parent's");
        counter[0].word = (volatile uint64_t *)(block + 4096);
        workers_start(counter, 1, counts, &stop);
        workers_start(heap, 2, mallocs, &stop);
        stadd[0] = conf_reg(&p.vcq, block, SPAN, 0);
        stadd[1] = conf_reg(&p.vcq, small, 24, 0);
        CONF_CHECK(is_home(block, NULL) == can_freeze(), "the block");
        for (int i = 0; i < FORKS; i++) {
            int   status;
            pid_t pid = fork();

            CONF_CHECK(pid >= 0, "fork");
            if (pid == 0) {
                bool  ok   = !is_home(block, NULL) && !strcmp(small, "the parent's");
                char *mine = malloc(100000);

                memset(mine, 1, 100000);
                memset(block, 0xee, SPAN);
                strcpy(small, "the child's");
                free(mine);
                _exit(ok ? 0 : 1);
            }
            CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0),
                       "child %d ended with 0x%x", i, (unsigned)status);
        }
        CONF_CHECK(!strcmp(small, "the parent's"), "the small block says %s", small);
        atomic_store(&stop, true);
        workers_join(counter, 1, "counting");
        workers_join(heap, 2, "malloc");
        CONF_CHECK(*counter[0].word == counter[0].count, "%" PRIu64 " of %" PRIu64 " are left", *counter[0].word,
                   counter[0].count);
        CONF_CHECK_BYTES(block + 8192, SPAN - 8192, 0, "the parent's block");
    }
    exchange(&p, block, SPAN, stadd[0], 3);
    exchange(&p, small, 24, stadd[1], 4);
    if (conf_rank == 1) {
        conf_dereg(&p.vcq, stadd[0]);
        conf_dereg(&p.vcq, stadd[1]);
    }
    free(block);
    free(small);
    pair_close(&p);
}

/* ------------------------------------------------------------------------ its end */

CONF_TEST("rehome", churn_ends_it, 2,
          "a program that registers for each transfer is left with its memory where it is, before long")
{
    enum { CYCLES = 1000000 };
    struct pair p;
    char       *block = malloc(BYTES);
    unsigned    n     = 0;

    pair_open(&p);
    if (conf_rank == 1) {
        bool moved = true;

        for (n = 0; (n < CYCLES) && moved; n++) {
            utofu_stadd_t stadd = conf_reg(&p.vcq, block, BYTES, 0);

            moved = (n % 100 != 0) || is_home(block, NULL);
            CONF_CHECK((n > 0) || moved, "not moved at first");
            conf_dereg(&p.vcq, stadd);
        }
        CONF_CHECK(!moved, "moved %u times", n);
    }
    stays(&p, block, BYTES, "churn");
    usleep(20000); /* for a while, not only until that time is a small enough part again */
    stays(&p, block, BYTES, "churn, a little later");
    free(block);
    pair_close(&p);
}

CONF_TEST("rehome", switched_off, 2, "UTOFU_EMU_REHOME=0 leaves all memory where it is")
{
    struct pair p;
    char       *block = malloc(BYTES);

    setenv("UTOFU_EMU_REHOME", "0", 1);
    pair_open(&p);
    stays(&p, block, BYTES, "switched off");
    free(block);
    pair_close(&p);
}
