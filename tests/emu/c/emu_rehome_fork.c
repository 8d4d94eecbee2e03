/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_fork.c - small blocks that are registered beside other threads, and moved with what
 * else is on their pages (docs/emulator.md, Private memory): what programs have there, and forks.
 */
#include "freeze.h"
#include "harness.h"
#include "home.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u

static _Atomic bool stop;

/* Are small blocks moved beside threads? */
static void need_freeze(void)
{
    if (!can_freeze()) {
        conf_skip("neither userfaultfd nor ptrace: nothing is moved beside threads");
    }
}

/* What is of the C library's own: sanitizers have another malloc, which in a child may wait for a
 * thread of the parent for ever (tried with memory left where it is). */
static void need_malloc(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    conf_skip("it is about the C library's malloc");
#endif
    need_freeze();
}

static pthread_t begin(void *(*run)(void *), void *arg)
{
    pthread_t thread;

    CONF_CHECK(pthread_create(&thread, NULL, run, arg) == 0, "pthread_create");
    return thread;
}

static void end(const pthread_t *thread, unsigned n)
{
    atomic_store(&stop, true);
    for (unsigned i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
    }
    atomic_store(&stop, false);
}

static char *pages(size_t n)
{
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CONF_CHECK(p != MAP_FAILED, "mmap: %s", strerror(errno));
    return p;
}

/* `in_child` runs there; what it returns is how it ends. */
static void fork_and(int (*in_child)(void *), void *arg, unsigned which)
{
    int   status;
    pid_t pid = fork();

    CONF_CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        alarm(30 * conf_patience);
        _exit(in_child(arg));
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0),
               "child %u ended with 0x%x", which, (unsigned)status);
}

/* ---------------------------------------------------------------------- a snapshot */

/* Words that one thread counts up, one after the other; on moved pages, but the last */
struct chain {
    volatile uint64_t *word[4];
    uint64_t           count;
};

static void *counts_up(void *arg)
{
    struct chain *c = arg;

    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        c->count++;
        for (unsigned i = 0; i < CONF_LEN(c->word); i++) {
            atomic_signal_fence(memory_order_seq_cst);
            *c->word[i] = c->count;
        }
    }
    return NULL;
}

/* None is ahead of the one before it, none far behind: as it was at one moment.  And it stays so, and
 * can be written. */
static int is_a_snapshot(void *arg)
{
    struct chain *c = arg;
    uint64_t      seen[4];

    for (unsigned i = 0; i < CONF_LEN(seen); i++) {
        seen[i] = *c->word[i];
        if ((i > 0) && ((seen[i] > seen[i - 1]) || (seen[i] + 1 < seen[i - 1]))) {
            return 2;
        }
    }
    if (seen[3] + 1 < seen[0]) {
        return 3;
    }
    usleep(200);
    for (unsigned i = 0; i < CONF_LEN(seen); i++) {
        if (*c->word[i] != seen[i]) {
            return 4;
        }
        *c->word[i] = 0;
    }
    return 0;
}

CONF_TEST("rehome", a_child_has_a_snapshot, 1,
          "beside a thread that writes on moved pages and on others, a child has all as it was at one moment, and the "
          "parent nothing of what the child writes")
{
    enum { FORKS = 150 };
    struct conf_vcq vcq;
    char           *block = pages(8 * PAGE), *other = pages(PAGE);
    struct chain    chain = {.word = {(volatile uint64_t *)(block + 8), (volatile uint64_t *)(block + 2 * PAGE + 64),
                                      (volatile uint64_t *)(block + 5 * PAGE - 8), (volatile uint64_t *)other}};
    pthread_t       thread;

    need_freeze();
    conf_timeout(90);
    conf_vcq_open(&vcq, 0, 0);
    thread = begin(counts_up, &chain);
    for (unsigned i = 0; i < 8; i++) {
        conf_reg(&vcq, block + i * PAGE + 100, 64, 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        CONF_CHECK(is_home(chain.word[i]), "word %u is not moved", i);
    }
    for (unsigned i = 0; i < FORKS; i++) {
        uint64_t before = *chain.word[3];

        fork_and(is_a_snapshot, &chain, i);
        while (*chain.word[3] == before) { /* it goes on */
        }
    }
    end(&thread, 1);
    for (unsigned i = 0; i < CONF_LEN(chain.word); i++) {
        CONF_CHECK(*chain.word[i] == chain.count, "word %u: %" PRIu64 " of %" PRIu64, i, *chain.word[i], chain.count);
    }
    conf_vcq_close(&vcq);
}

static int pipe_ends[2];

static void *writes_to_a_full_pipe(void *arg)
{
    static char much[1 << 20];

    (void)!write(pipe_ends[1], much, sizeof(much));
    return arg;
}

CONF_TEST("rehome", a_snapshot_after_a_failed_hold, 1,
          "also right after a thread could not be held, for which nothing is moved for a second")
{
    enum { FORKS = 20 };
    struct conf_vcq vcq;
    char           *block = pages(8 * PAGE), *more = pages(16 * PAGE), *other = pages(PAGE), junk[4096];
    struct chain    chain = {.word = {(volatile uint64_t *)(block + 8), (volatile uint64_t *)(block + 2 * PAGE + 64),
                                      (volatile uint64_t *)(block + 5 * PAGE - 8), (volatile uint64_t *)other}};
    pthread_t       thread, log;

    need_freeze();
    conf_timeout(90);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg(&vcq, block, 8 * PAGE, 0); /* nobody has to be held for it */
    CONF_CHECK(pipe(pipe_ends) == 0, "pipe");
    thread = begin(counts_up, &chain);
    CONF_CHECK(pthread_create(&log, NULL, writes_to_a_full_pipe, NULL) == 0, "pthread_create");
    usleep(100000);
    for (unsigned i = 0; i < FORKS; i++) {
        conf_dereg(&vcq, conf_reg(&vcq, more, 16 * PAGE, 0));
        fork_and(is_a_snapshot, &chain, i);
    }
    end(&thread, 1);
    close(pipe_ends[1]); /* the thread's write goes on until nobody reads */
    for (size_t n = 0; n < (1 << 20); n += sizeof(junk)) {
        struct pollfd fd = {.fd = pipe_ends[0], .events = POLLIN};

        if ((poll(&fd, 1, 100) <= 0) || (read(pipe_ends[0], junk, sizeof(junk)) <= 0)) {
            break;
        }
    }
    pthread_join(log, NULL);
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------------- malloc and stdio */

#define BLOCKS 64u

struct user {
    unsigned seed;
    char    *have[BLOCKS];
    char    *registered[4]; /* small blocks among them */
    sem_t   *ready;
    uint64_t count;
};

static void churn(struct user *u, unsigned n)
{
    while (n-- > 0) {
        unsigned r = (u->seed = u->seed * 1103515245u + 12345u) >> 8, i = r % BLOCKS;
        size_t   size = 16 + (r / BLOCKS) % 3000;

        if ((u->have[i] != NULL) && strcmp(u->have[i], "kept")) {
            abort();
        }
        free(u->have[i]);
        u->have[i] = malloc(size);
        strcpy(u->have[i], "kept");
        u->count++;
    }
}

static void *uses_malloc(void *arg)
{
    struct user *u = arg;

    churn(u, 500);
    for (unsigned i = 0; i < CONF_LEN(u->registered); i++) {
        u->registered[i] = malloc(40 + 700 * i);
        strcpy(u->registered[i], "registered");
        churn(u, 20);
    }
    sem_post(u->ready);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        churn(u, 100);
    }
    return NULL;
}

static struct user users[2];

/* The heaps are whole: what malloc keeps on moved pages fits to what it keeps elsewhere. */
static int uses_all_heaps(void *arg)
{
    struct user mine = {.seed = 77};

    (void)arg;
    for (unsigned i = 0; i < CONF_LEN(users); i++) {
        for (unsigned k = 0; k < CONF_LEN(users[i].registered); k++) {
            if (strcmp(users[i].registered[k], "registered")) {
                return 2;
            }
            free(users[i].registered[k]); /* to the heap of a thread that is no more */
        }
    }
    churn(&mine, 3000);
    return 0;
}

static void forks_beside_malloc(unsigned arenas, unsigned forks)
{
    struct conf_vcq vcq;
    pthread_t       thread[CONF_LEN(users)];
    sem_t           ready;
    unsigned        moved = 0;

    need_malloc();
    conf_timeout(120);
    mallopt(M_ARENA_MAX, (int)arenas);
    conf_vcq_open(&vcq, 0, 0);
    sem_init(&ready, 0, 0);
    for (unsigned i = 0; i < CONF_LEN(users); i++) {
        users[i]  = (struct user){.seed = i + 1, .ready = &ready};
        thread[i] = begin(uses_malloc, &users[i]);
        sem_wait(&ready);
        for (unsigned k = 0; k < CONF_LEN(users[i].registered); k++) {
            conf_reg(&vcq, users[i].registered[k], 40 + 700 * k, 0);
            moved += is_home(users[i].registered[k]);
        }
    }
    CONF_CHECK(moved >= 4, "%u blocks are moved", moved);
    for (unsigned i = 0; i < forks; i++) {
        uint64_t before = users[0].count + users[1].count;

        fork_and(uses_all_heaps, NULL, i);
        while (*(volatile uint64_t *)&users[0].count + *(volatile uint64_t *)&users[1].count == before) {
        }
    }
    end(thread, CONF_LEN(users));
    for (unsigned i = 0; i < CONF_LEN(users); i++) {
        for (unsigned k = 0; k < CONF_LEN(users[i].registered); k++) {
            CONF_CHECK(!strcmp(users[i].registered[k], "registered"), "a block says %s", users[i].registered[k]);
        }
    }
    sem_destroy(&ready);
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", fork_beside_malloc, 1,
          "threads use malloc on moved pages, each its own heap, while one forks: heaps are whole in child and parent")
{
    forks_beside_malloc(8, 100);
}

CONF_TEST("rehome", fork_beside_one_heap, 1,
          "the same with one heap, whose lock fork needs while who has it writes to moved pages: nobody waits for ever")
{
    forks_beside_malloc(1, 100);
}

struct writer {
    FILE    *file;
    uint64_t in, count; /* in: under the lock of the file */
};

static void *has_the_lock(void *arg)
{
    struct writer *w = arg;

    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        flockfile(w->file);
        w->in++;
        for (unsigned i = 0; i < 50; i++) {
            fputc_unlocked('x', w->file);
        }
        w->count++;
        if (w->in != 1) {
            abort(); /* another one has it, too */
        }
        w->in--;
        funlockfile(w->file);
    }
    return NULL;
}

static int writes_to_the_file(void *arg)
{
    struct writer *w = arg;

    flockfile(w->file); /* that a child can */
    funlockfile(w->file);
    return fputs("the child's", w->file) < 0;
}

CONF_TEST("rehome", fork_beside_stdio, 1,
          "a FILE on a moved page, whose lock two threads take in turns, while a third forks: the C library sets the lock "
          "free in the child, and in the child only")
{
    enum { FORKS = 150 };
    struct conf_vcq vcq;
    struct writer   w = {0};
    pthread_t       thread[2];

    need_malloc();
    conf_timeout(90);
    conf_vcq_open(&vcq, 0, 0);
    w.file    = fopen("/dev/null", "w");
    thread[0] = begin(has_the_lock, &w);
    thread[1] = begin(has_the_lock, &w);
    for (unsigned i = 0; i < 12; i++) { /* around it; one may be beside its lock */
        conf_reg(&vcq, (char *)w.file - 256 + 64 * i, 8, 0);
    }
    CONF_CHECK(is_home(w.file), "the FILE is not moved");
    for (unsigned i = 0; i < FORKS; i++) {
        uint64_t before = *(volatile uint64_t *)&w.count;

        fork_and(writes_to_the_file, &w, i);
        while (*(volatile uint64_t *)&w.count == before) {
        }
    }
    end(thread, 2);
    fclose(w.file);
    conf_vcq_close(&vcq);
}

/* --------------------------------------------------------------------------- signals */

static volatile sig_atomic_t handled;
static __thread sigjmp_buf   resume;

static void on_segv(int sig)
{
    (void)sig;
    handled++;
    siglongjmp(resume, 1);
}

static void *faults(void *arg)
{
    volatile char *nothing = arg;

    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (!sigsetjmp(resume, 1)) {
            *nothing = 1;
        }
    }
    return NULL;
}

static int has_its_handler(void *arg)
{
    struct sigaction sa;
    sigset_t         mask;

    (void)arg;
    sigaction(SIGSEGV, NULL, &sa);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return (sa.sa_handler != on_segv) || !sigismember(&mask, SIGSEGV) || sigismember(&mask, SIGTERM);
}

CONF_TEST("rehome", fork_beside_handled_faults, 1,
          "a program's own handler of SIGSEGV is called in all threads while one forks, also one that has it blocked, and "
          "is there afterwards, as is the mask")
{
    enum { FORKS = 100 };
    struct conf_vcq  vcq;
    struct sigaction sa = {.sa_handler = on_segv}, now;
    sigset_t         segv, mask;
    FILE            *file = fopen("/dev/null", "w"); /* what the C library writes to in a child */
    pthread_t        thread;

    need_malloc();
    conf_vcq_open(&vcq, 0, 0);
    CONF_CHECK(sigaction(SIGSEGV, &sa, NULL) == 0, "sigaction");
    thread = begin(faults, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    conf_reg(&vcq, file, 8, 0);
    CONF_CHECK(is_home(file), "the FILE is not moved");
    sigemptyset(&segv);
    sigaddset(&segv, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &segv, NULL);
    for (unsigned i = 0; i < FORKS; i++) {
        sig_atomic_t before = handled;

        fork_and(has_its_handler, NULL, i);
        while (handled == before) {
        }
    }
    sigaction(SIGSEGV, NULL, &now);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CONF_CHECK((now.sa_handler == on_segv) && sigismember(&mask, SIGSEGV), "the handler or the mask is another");
    end(&thread, 1);
    conf_vcq_close(&vcq);
}

/* -------------------------------------------------------------------------- handlers */

CONF_TEST("rehome", fork_with_handlers_of_others, 1,
          "handlers that run within the library's write on moved pages before and after the child is made, beside a thread "
          "that writes there all the time: nothing is lost, and nobody waits for ever")
{
    enum { FORKS = 100 };
    struct conf_vcq vcq;
    uint64_t       *word = (uint64_t *)(pages(PAGE) + 64), *other = (uint64_t *)pages(PAGE);
    struct chain    chain = {{&word[1], &word[2], &word[3], other}, 0};
    pthread_t       thread;

    need_freeze();
    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    thread = begin(counts_up, &chain);
    conf_reg(&vcq, &word[4], 8, 0);
    CONF_CHECK(is_home(word), "the page is not moved");
    in_between = word;
    for (unsigned i = 0; i < FORKS; i++) {
        int   status;
        pid_t pid = fork();

        if (pid == 0) {
            in_between = NULL;
            /* what the handler in the parent writes it may see (docs/emulator.md) */
            _exit((word[0] == i * 101 + 1) || (word[0] == (i + 1) * 101) ? 0 : 1);
        }
        CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "child %u ended with 0x%x", i, (unsigned)status);
        CONF_CHECK(word[0] == (i + 1) * 101, "counted %" PRIu64, word[0]);
    }
    in_between = NULL;
    end(&thread, 1);
    CONF_CHECK((word[1] == chain.count) && (word[3] == chain.count), "%" PRIu64 " of %" PRIu64, word[3], chain.count);
    conf_vcq_close(&vcq);
}

/* ------------------------------------------------------------------------------- puts */

static int has_some(void *arg)
{
    volatile uint64_t *word = arg;
    uint64_t           seen = *word;

    usleep(100);
    return *word != seen; /* its own by now */
}

/* Not by conf_put_word, which polls the MRQ */
static void tell(const struct conf_vcq *vcq, utofu_stadd_t at, uint64_t value)
{
    CONF_OK(utofu_put_piggyback8(vcq->hdl, vcq->peer[0], value, at, 8, 3, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL));
    CONF_WAIT_TCQ(vcq, NULL);
}

CONF_TEST("rehome", puts_during_forks, 2,
          "what peers put into a small block, and add to a word, while its process forks beside threads, is there: no put "
          "is lost, and the data of each before its notice")
{
    enum { FORKS = 100 };
    struct conf_vcq vcq;
    struct conf_mem own;
    utofu_stadd_t   stadd[2], mine = 0;
    uint64_t       *block = (uint64_t *)(pages(PAGE) + 96);
    struct chain    chain = {{&block[3], &block[3], &block[4], &block[5]}, 0}; /* neighbours, of a thread */
    pthread_t       thread = pthread_self();
    uint64_t        n = 0, done = 0;

    uint64_t without[2];

    n = !can_freeze();
    conf_exchange(&n, sizeof(n), without);
    if (without[1]) {
        conf_skip("neither userfaultfd nor ptrace for the process");
    }
    n = 0;
    conf_timeout(90);
    conf_vcq_open(&vcq, 0, 0);
    memset(block, 0, 48);
    conf_mem_alloc(&own, CONF_MEM_MEMFD, PAGE);
    if (conf_rank == 1) {
        thread = begin(counts_up, &chain);
        mine   = conf_reg(&vcq, block, 24, 0);
        CONF_CHECK(is_home(block), "the block is not moved");
    } else {
        mine = conf_reg(&vcq, own.addr, PAGE, 0);
    }
    conf_exchange(&mine, sizeof(mine), stadd);
    if (conf_rank == 0) {
        volatile uint64_t *told = (volatile uint64_t *)own.addr;

        for (n = 1; told[1] == 0; n++) { /* until rank 1 has had enough, but some */
            told[0] = n;
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadd[0], stadd[1], 8, 3, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL));
            CONF_WAIT_TCQ(&vcq, NULL);
            CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1, stadd[1] + 8, 4,
                                UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 4, NULL);
            while ((told[2] != n) && (told[1] == 0)) { /* rank 1 has seen it */
                sched_yield();
            }
        }
    } else {
        for (unsigned i = 0; (i < FORKS) || (n < 50); i++) {
            struct utofu_mrq_notice notice;

            if (i < 10 * FORKS) {
                fork_and(has_some, block, i);
            }
            if (utofu_poll_mrq(vcq.hdl, 0, &notice) == UTOFU_SUCCESS) {
                n++;
                CONF_CHECK(((volatile uint64_t *)block)[0] == n, "put %" PRIu64 ": %" PRIu64, n, block[0]);
                CONF_CHECK(((volatile uint64_t *)block)[1] == n, "sum %" PRIu64 ": %" PRIu64, n, block[1]);
                tell(&vcq, stadd[0] + 16, n);
            }
        }
        end(&thread, 1);
        CONF_CHECK((block[3] == chain.count) && (block[5] == chain.count), "the neighbours: %" PRIu64 " of %" PRIu64,
                   block[5], chain.count);
        tell(&vcq, stadd[0] + 8, 1);
        done = n;
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (done >= 50), "%" PRIu64 " puts", done);
    conf_vcq_close(&vcq);
    conf_mem_free(&own);
}

/* ------------------------------------------------------------------------ what stays */

struct lent {
    sem_t     ready, back;
    uint64_t *at;
    char     *heap;
};

static __thread uint64_t own_word[4];

static void *lends(void *arg)
{
    struct lent *l = arg;

    l->at   = own_word;
    l->heap = malloc(24); /* the first of its heap, beside what malloc has of that */
    sem_post(&l->ready);
    sem_wait(&l->back);
    CONF_CHECK(own_word[0] == 7, "the thread's own word is %" PRIu64, own_word[0]);
    free(l->heap);
    return NULL;
}

CONF_TEST("rehome", what_threads_are_made_of, 1,
          "what the C library and the kernel have of a thread stays where it is: who joins it is woken")
{
    struct conf_vcq vcq;
    struct lent     lent = {0};
    utofu_stadd_t   stadd[2];
    struct timespec end_of_wait;

    need_malloc();
    mallopt(M_ARENA_MAX, 8);
    conf_vcq_open(&vcq, 0, 0);
    for (int i = 0; i < 50; i++) {
        sem_init(&lent.ready, 0, 0);
        sem_init(&lent.back, 0, 0);
        pthread_t thread = begin(lends, &lent);

        sem_wait(&lent.ready);
        lent.at[0] = 7;
        stadd[0]   = conf_reg(&vcq, lent.at, 32, 0);
        stadd[1]   = conf_reg(&vcq, lent.heap, 24, 0);
        CONF_CHECK(!is_home(lent.at), "a thread's own is moved");
        CONF_CHECK(!is_home(lent.heap), "malloc's own is moved");
        conf_dereg(&vcq, stadd[0]);
        conf_dereg(&vcq, stadd[1]);
        sem_post(&lent.back);
        clock_gettime(CLOCK_REALTIME, &end_of_wait);
        end_of_wait.tv_sec += 10 * (long)conf_patience;
        CONF_CHECK(pthread_timedjoin_np(thread, NULL, &end_of_wait) == 0, "thread %d", i);
    }
    conf_vcq_close(&vcq);
}
