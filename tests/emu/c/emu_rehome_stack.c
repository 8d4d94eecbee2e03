/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_stack.c - variables and arrays on stacks are moved as other private memory is
 * (docs/emulator.md, Private memory): the first stack grows, all are jumped over and forked with
 * as before.
 *
 * Rank 0 puts into the stack of rank 1.
 */
#include "freeze.h"
#include "harness.h"
#include "home.h"

#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096u
#define KIB  ((size_t)1 << 10)

struct pair {
    struct conf_vcq vcq;
    struct conf_mem own; /* what rank 0 puts */
    utofu_stadd_t   mine;
};

static void pair_open(struct pair *p)
{
    conf_timeout(60);
    conf_vcq_open(&p->vcq, 0, 0);
    conf_mem_alloc(&p->own, CONF_MEM_MEMFD, 64 * KIB);
    p->mine = conf_reg(&p->vcq, p->own.addr, p->own.size, 0);
}

static void pair_close(struct pair *p)
{
    conf_vcq_close(&p->vcq);
    conf_mem_free(&p->own);
}

/* Rank 1 has the memory at addr registered as stadd: bytes by seed get there from rank 0. */
static void receive(struct pair *p, void *addr, size_t n, utofu_stadd_t stadd, unsigned seed)
{
    utofu_stadd_t all[2];

    conf_exchange(&stadd, sizeof(stadd), all);
    if (conf_rank == 0) {
        conf_fill(p->own.addr, n, seed);
        CONF_OK(utofu_put(p->vcq.hdl, p->vcq.peer[1], p->mine, all[1], n, 3, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&p->vcq, UTOFU_MRQ_TYPE_LCL_PUT, p->vcq.peer[1], 3, NULL);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK_FILL(addr, n, seed, "what was put");
    }
}

static void child_must_end_well(pid_t pid, const char *what)
{
    int status;

    CONF_CHECK(pid > 0, "%s: fork: %s", what, strerror(errno));
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "%s: the child ended with 0x%x", what,
               (unsigned)status);
}

/* Uses `left` bytes of stack, and finds there what it wrote. */
static __attribute__((noinline)) unsigned deep(size_t left, unsigned seed)
{
    volatile unsigned char frame[8 * 1024];
    unsigned               sum = 0;

    for (size_t i = 0; i < sizeof(frame); i += 64) {
        frame[i] = (unsigned char)(seed + i / 64);
    }
    if (left > sizeof(frame)) {
        sum = deep(left - sizeof(frame), seed * 7 + 1);
    }
    for (size_t i = 0; i < sizeof(frame); i += 64) {
        sum += (frame[i] != (unsigned char)(seed + i / 64));
    }
    return sum;
}

/* -------------------------------------------------------------------- there and back */

static __attribute__((noinline)) void in_a_frame(struct pair *p, size_t below, unsigned seed)
{
    volatile uint64_t beside = 0x1234567890abcdef;
    struct {
        char     small[8];
        uint64_t between;
        char     large[64 * 1024];
    } v;
    utofu_stadd_t stadd[2] = {0};

    v.between = seed;
    if (below != 0) {
        char *skipped = alloca(below);
        skipped[0]    = 1;
        __asm__ volatile("" : : "r"(skipped) : "memory");
    }
    for (unsigned round = 0; round < 3; round++) {
        if (conf_rank == 1) {
            conf_fill(v.large, sizeof(v.large), seed);
            stadd[0] = conf_reg(&p->vcq, v.small, sizeof(v.small), 0);
            stadd[1] = conf_reg(&p->vcq, v.large + 100, sizeof(v.large) - 100, 0);
            CONF_CHECK(is_home(v.small) && is_home(v.large + 100) && is_home(v.large + sizeof(v.large) - 1), "not moved");
            CONF_CHECK_FILL(v.large, sizeof(v.large), seed, "after registration");
            CONF_CHECK(deep(4096 * KIB, seed) == 0, "the stack below is not as it was written");
        }
        receive(p, v.small, sizeof(v.small), stadd[0], seed + 1);
        receive(p, v.large + 100, sizeof(v.large) - 100, stadd[1], seed + 2);
        if (conf_rank == 1) {
            conf_dereg(&p->vcq, stadd[1]);
            conf_dereg(&p->vcq, stadd[0]);
            CONF_CHECK(!is_home(v.small) && !is_home(v.large + 100), "still there");
            CONF_CHECK_FILL(v.large + 100, sizeof(v.large) - 100, seed + 2, "after deregistration");
            CONF_CHECK(deep(5120 * KIB, seed) == 0, "the stack below is not as it was written");
        }
        CONF_CHECK((v.between == seed) && (beside == 0x1234567890abcdef), "the frame has changed");
    }
}

CONF_TEST("rehome", stack_there_and_back, 2,
          "variables on the stack are in the memfd while they are registered, wherever in a page the caller is, and "
          "the stack grows as before")
{
    struct pair p;

    pair_open(&p);
    for (unsigned i = 0; i < 16; i++) {
        in_a_frame(&p, i * 272 + i / 8 * 40 * KIB, i);
    }
    pair_close(&p);
}

static __attribute__((noinline)) utofu_stadd_t leaves_it_registered(struct pair *p, jmp_buf out)
{
    char          frame[3 * PAGE];
    utofu_stadd_t stadd = conf_reg(&p->vcq, frame, sizeof(frame), 0);

    CONF_CHECK(is_home(frame), "not moved");
    if (out != NULL) {
        longjmp(out, 1);
    }
    return stadd;
}

CONF_TEST("rehome", stack_that_was_left, 2,
          "functions that return, or are jumped out of, with their variables registered leave the stack fit for use, "
          "also when its registration ends later")
{
    struct pair            p;
    volatile utofu_stadd_t stadd = 0;
    jmp_buf                out;
    uint64_t               word[16] = {0};
    utofu_stadd_t          own      = 0;

    pair_open(&p);
    if (conf_rank == 1) {
        stadd = leaves_it_registered(&p, NULL);
        CONF_CHECK(deep(2048 * KIB, 5) == 0, "what is on the pages now");
        if (setjmp(out) == 0) {
            leaves_it_registered(&p, out);
        }
        CONF_CHECK(deep(2048 * KIB, 6) == 0, "what is on the pages after a jump");
        own = conf_reg(&p.vcq, word, sizeof(word), 0);
    }
    receive(&p, word, sizeof(word), own, 3);
    if (conf_rank == 1) {
        conf_dereg(&p.vcq, stadd);
        CONF_CHECK(deep(2048 * KIB, 7) == 0, "what is on the pages after it is deregistered");
        CONF_CHECK_FILL(word, sizeof(word), 3, "the caller's variable");
    }
    pair_close(&p);
}

/* ------------------------------------------------------------------------------ fork */

volatile uint64_t *in_between;

static void between_prepare_and_fork(void)
{
    if (in_between != NULL) {
        (*in_between)++;
    }
}

static void between_fork_and_parent(void)
{
    if (in_between != NULL) {
        *in_between += 100;
    }
}

/* Before the library sets up its own: so they run between those and the fork. */
static void first_of_all(void)
{
    pthread_atfork(between_prepare_and_fork, between_fork_and_parent, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = first_of_all;

/* What rank 0 does for so long: 1, 2, ... go to the words in turn, and each time one is added to
 * the sum; the last of all goes to `last`. */
#define WORDS 32u
struct numbers {
    volatile uint64_t word[WORDS], sum, last;
};

static void count_for(struct pair *p, utofu_stadd_t stadd, double seconds)
{
    utofu_vcq_id_t to  = p->vcq.peer[1];
    double         end = conf_now() + seconds;
    uint64_t       n   = 0;

    while ((conf_now() < end) || (n % WORDS != 0)) {
        utofu_stadd_t word = stadd + offsetof(struct numbers, word) + n % WORDS * 8;

        n++;
        CONF_POST(p->vcq.hdl, utofu_put_piggyback8(p->vcq.hdl, to, n, word, 8, 3, 0, NULL));
        CONF_POST(p->vcq.hdl, utofu_armw8(p->vcq.hdl, to, UTOFU_ARMW_OP_ADD, 1, stadd + offsetof(struct numbers, sum), 3,
                                          0, NULL));
    }
    CONF_POST(p->vcq.hdl, utofu_put_piggyback8(p->vcq.hdl, to, n, stadd + offsetof(struct numbers, last), 8, 3,
                                               CONF_LMRQ | CONF_STRONG, NULL));
    CONF_EXPECT_MRQ(&p->vcq, UTOFU_MRQ_TYPE_LCL_PUT, to, 3, NULL);
}

/* In a child: the frame of its parent is there, its own, and it can use it. */
static bool writes_its_own(struct numbers *numbers, char *large, size_t n)
{
    bool ok = deep(200 * KIB, 3) == 0;

    numbers->sum = numbers->word[0] = 1;
    for (size_t i = 0; i < n; i++) {
        ok       = ok && (large[i] == 0x5a);
        large[i] = 0x11;
    }
    return ok && !is_home(numbers) && !is_home(large);
}

CONF_TEST("rehome", stack_at_fork, 2,
          "parent and child of a fork go on with a stack of their own each; no put that arrives meanwhile is lost, and "
          "nothing that the program writes")
{
    struct pair       p;
    volatile uint64_t before = 11, counted = 0, after = 13;
    struct numbers    numbers = {{0}, 0, 0};
    char              large[40 * KIB];
    utofu_stadd_t     stadd = 0, all[2];
    unsigned          forks = 0;

    pair_open(&p);
    if (conf_rank == 1) {
        memset(large, 0x5a, sizeof(large));
        stadd = conf_reg(&p.vcq, &numbers, sizeof(numbers), 0);
        conf_reg(&p.vcq, large, sizeof(large), 0);
        conf_reg(&p.vcq, (void *)&counted, sizeof(counted), 0);
        CONF_CHECK(is_home(&numbers) && is_home(large) && is_home(&counted), "not moved");
    }
    conf_exchange(&stadd, sizeof(stadd), all);
    if (conf_rank == 0) {
        count_for(&p, all[1], 2);
    } else {
        in_between = &counted;
        for (double end = conf_now() + 20; (numbers.last == 0) && (conf_now() < end); forks++) {
            pid_t pid = fork();

            if (pid == 0) {
                bool ok = (before == 11) && (after == 13 + forks);

                after = before = 99;
                _exit((writes_its_own(&numbers, large, sizeof(large)) && ok) ? 0 : 1);
            }
            after++;
            child_must_end_well(pid, "stack_at_fork");
            CONF_CHECK((before == 11) && (after == 14 + forks), "the child wrote the parent's frame");
            CONF_CHECK(counted == (forks + 1) * 101, "of %u forks, %" PRIu64 " was counted", forks + 1, counted);
            CONF_CHECK_BYTES(large, sizeof(large), 0x5a, "the child wrote the parent's array");
        }
        in_between = NULL;
        CONF_CHECK(forks > 3, "%u forks", forks);
        CONF_CHECK(numbers.sum == numbers.last, "of %" PRIu64 " %" PRIu64 " arrived", numbers.last, numbers.sum);
        for (unsigned i = 0; i < WORDS; i++) {
            CONF_CHECK(numbers.word[i] == numbers.last - WORDS + 1 + i, "word %u is %" PRIu64 " when %" PRIu64 " was last", i,
                       numbers.word[i], numbers.last);
        }
        CONF_CHECK(is_home(&numbers), "it did not stay");
    }
    pair_close(&p);
}

CONF_TEST("rehome", stack_at_fork_by_the_system_call, 2,
          "a child that is made by the system call itself has no part of the stack that was moved, and does its parent "
          "no harm")
{
    struct pair       p;
    volatile uint64_t before = 11, word = 7;
    utofu_stadd_t     stadd  = 0;
    int               status;

    pair_open(&p);
    if (conf_rank == 1) {
        stadd = conf_reg(&p.vcq, (void *)&word, sizeof(word), 0);
        CONF_CHECK(is_home(&word), "not moved");
        for (unsigned i = 0; i < 20; i++) {
            pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);

            if (pid == 0) {
                bool saw = word == 7;

                before = word = 99;
                _exit((saw || (deep(100 * KIB, 1) != 0)) ? 1 : 0);
            }
            CONF_CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
            /* the kernel lets its stack grow into the gap, which is zero then: it goes on if it does not return there */
            CONF_CHECK((WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV)) || (status == 0), "the child ended with 0x%x",
                       (unsigned)status);
            CONF_CHECK((before == 11) && (word == 7) && (deep(100 * KIB, i) == 0), "the parent's frame");
            child_must_end_well(fork() ?: (_exit(0), 0), "the next");
        }
        CONF_CHECK(system("exit 0") == 0, "system");
    }
    receive(&p, (void *)&word, sizeof(word), stadd, 8);
    pair_close(&p);
}

static atomic_int handled;

static void forks_now(int sig)
{
    volatile uint64_t mine = 5;
    pid_t             pid  = fork();

    (void)sig;
    if (pid == 0) {
        mine = 6;
        _exit((int)deep(50 * KIB, 2));
    }
    child_must_end_well(pid, "in a handler");
    CONF_CHECK(mine == 5, "the child wrote the handler's frame");
    atomic_fetch_add(&handled, 1);
}

CONF_TEST("rehome", stack_forks_in_handlers, 1,
          "handlers, on the stack or on one of their own that is registered itself, may interrupt registrations of the "
          "stack, and fork")
{
    struct conf_vcq  vcq;
    struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    volatile char    frame[6 * PAGE];
    stack_t          own = {.ss_size = 64 * KIB};

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    own.ss_sp = mmap(NULL, own.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    conf_reg(&vcq, own.ss_sp, own.ss_size, 0);
    CONF_CHECK(is_home(own.ss_sp) && (sigaltstack(&own, NULL) == 0), "sigaltstack");
    for (unsigned k = 0; k < 2; k++) {
        struct sigaction sa = {.sa_handler = forks_now, .sa_flags = SA_RESTART | (k ? SA_ONSTACK : 0)};
        unsigned         n  = 0;

        atomic_store(&handled, 0);
        CONF_CHECK(sigaction(SIGVTALRM, &sa, NULL) == 0, "sigaction");
        CONF_CHECK(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0, "setitimer");
        for (; atomic_load(&handled) < 40; n++) {
            utofu_stadd_t stadd;

            frame[100] = (char)n;
            frame[5 * PAGE] = (char)(n + 1);
            stadd = conf_reg(&vcq, (void *)(frame + 100), 5 * PAGE, 0);
            CONF_CHECK((frame[100] == (char)n) && (frame[5 * PAGE] == (char)(n + 1)), "the frame after it is registered");
            frame[101] = (char)~n;
            conf_dereg(&vcq, stadd);
            CONF_CHECK((frame[100] == (char)n) && (frame[101] == (char)~n), "the frame after it is deregistered");
        }
        setitimer(ITIMER_VIRTUAL, &never, NULL);
    }
    conf_vcq_close(&vcq);
}

/* ---------------------------------------------------------------------------- threads */

struct worker {
    volatile uint64_t *word; /* on the first thread's stack */
    uint64_t           count;
    _Atomic bool      *stop;
    bool               forks;
};

static void *counts(void *arg)
{
    struct worker *w = arg;

    while (!atomic_load(w->stop)) {
        (*w->word)++;
        w->count++;
        if (w->forks) {
            pid_t pid = fork();

            if (pid == 0) {
                *w->word = 0;
                _exit((int)deep(50 * KIB, 2));
            }
            child_must_end_well(pid, "in a thread");
        }
    }
    return NULL;
}

CONF_TEST("rehome", stack_and_threads, 2,
          "threads that were started since write variables of the first one's stack, and any of them forks: nothing is "
          "lost")
{
    struct pair       p;
    volatile uint64_t mine = 5, words[2] = {0}, word = 0;
    _Atomic bool      stop = false;
    struct worker     worker[2] = {{&words[0], 0, &stop, false}, {&words[1], 0, &stop, true}};
    pthread_t         thread[2];
    utofu_stadd_t     stadd = 0;
    bool              freezes = can_freeze();

    pair_open(&p);
    if (conf_rank == 1) {
        stadd = conf_reg(&p.vcq, (void *)&word, sizeof(word), 0);
        CONF_CHECK(is_home(&word), "not moved");
        for (unsigned i = 0; i < 2; i++) {
            CONF_CHECK(pthread_create(&thread[i], NULL, counts, &worker[i]) == 0, "pthread_create");
        }
        for (unsigned i = 0; freezes && (i < 100); i++) {
            pid_t pid = fork();

            if (pid == 0) {
                bool ok = mine == 5;

                mine = 6;
                _exit((ok && (deep(50 * KIB, 2) == 0)) ? 0 : 1);
            }
            child_must_end_well(pid, "in the first thread");
            CONF_CHECK(mine == 5, "the child wrote the parent's frame");
        }
        usleep(200000);
    }
    receive(&p, (void *)&word, sizeof(word), stadd, 8);
    if (conf_rank == 1) {
        atomic_store(&stop, true);
        for (unsigned i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
            CONF_CHECK(words[i] == worker[i].count, "thread %u counted %" PRIu64 ", not %" PRIu64, i, words[i],
                       worker[i].count);
        }
        conf_dereg(&p.vcq, stadd);
        CONF_CHECK(!is_home(&word), "it does not go back");
    }
    pair_close(&p);
}

static void *counts_only(void *arg)
{
    struct worker *w = arg;

    while (!atomic_load_explicit(w->stop, memory_order_relaxed)) {
        (*w->word)++;
        w->count++;
    }
    return NULL;
}

CONF_TEST("rehome", stack_beside_threads, 2,
          "variables on the first stack go to the memfd and back while a thread writes to others on the same page: no "
          "write is lost")
{
    enum { ROUNDS = 300 };
    struct pair       p;
    struct {
        volatile uint64_t counted, word;
    } __attribute__((aligned(16))) here = {0, 0}; /* on one page, wherever the stack begins */
    char              large[3 * PAGE];
    _Atomic bool      stop   = false;
    struct worker     worker = {&here.counted, 0, &stop, false};
    pthread_t         thread;
    utofu_stadd_t     stadd[2] = {0};
    unsigned          moved = 0, rounds = 0;

    pair_open(&p);
    if (conf_rank == 1) {
        CONF_CHECK(pthread_create(&thread, NULL, counts_only, &worker) == 0, "pthread_create");
        memset(large, 0x5a, sizeof(large));
        for (double end = conf_now() + 20; (rounds < ROUNDS) || ((moved < 20) && can_freeze() && (conf_now() < end)); rounds++) {
            stadd[0] = conf_reg(&p.vcq, (void *)&here.word, sizeof(here.word), 0);
            stadd[1] = conf_reg(&p.vcq, large, sizeof(large), 0);
            moved += is_home(&here.word) && is_home(&here.counted) && is_home(large + PAGE);
            conf_dereg(&p.vcq, stadd[0]);
            conf_dereg(&p.vcq, stadd[1]);
            CONF_CHECK(!is_home(&here.word) && !is_home(large) && !is_home(large + sizeof(large) - 1),
                       "it does not go back");
        }
        CONF_CHECK((moved >= 20) == can_freeze(), "%u times moved", moved);
        CONF_CHECK_BYTES(large, sizeof(large), 0x5a, "the array");
        stadd[0] = conf_reg(&p.vcq, (void *)&here.word, sizeof(here.word), 0);
    }
    receive(&p, (void *)&here.word, sizeof(here.word), stadd[0], 8);
    if (conf_rank == 1) {
        atomic_store(&stop, true);
        pthread_join(thread, NULL);
        CONF_CHECK(here.counted == worker.count, "counted %" PRIu64 ", not %" PRIu64, worker.count, here.counted);
    }
    pair_close(&p);
}

struct on_a_stack {
    struct pair *p;
    uint64_t     forks, seen;
};

/* On one page: what a thread registers of its stack, and what it has beside that */
struct of_a_thread {
    _Alignas(2048) volatile uint64_t before;
    struct numbers    numbers;
    volatile uint64_t after;
};

static void *has_a_stack(void *arg)
{
    struct on_a_stack *a      = arg;
    struct of_a_thread v      = {11, {{0}, 0, 0}, 13};
    char               large[5 * PAGE];
    utofu_stadd_t      stadd[2], all[2];
    int                status;

    memset(large, 0x5a, sizeof(large));
    stadd[0] = conf_reg(&a->p->vcq, &v.numbers, sizeof(v.numbers), 0);
    stadd[1] = conf_reg(&a->p->vcq, large, sizeof(large), 0);
    if (can_freeze()) {
        CONF_CHECK(is_home(&v.numbers) && is_home(large) && is_home(large + 2 * PAGE), "not moved");
    }
    CONF_CHECK(deep(200 * KIB, 1) == 0, "the rest of the stack");
    conf_exchange(&stadd[0], sizeof(stadd[0]), all);
    for (double end = conf_now() + 20; (v.numbers.last == 0) && (conf_now() < end); a->forks++) {
        pid_t pid = fork();

        if (pid == 0) {
            bool ok = (v.before == 11) && (v.after == 13 + a->forks);

            v.after = v.before = 99;
            _exit((writes_its_own(&v.numbers, large, sizeof(large)) && ok) ? 0 : 1);
        }
        v.after++;
        child_must_end_well(pid, "on a thread's stack");
        CONF_CHECK((v.before == 11) && (v.after == 14 + a->forks), "the child wrote the parent's frame");
        CONF_CHECK_BYTES(large, sizeof(large), 0x5a, "the child wrote the parent's array");
        if (can_freeze() && (a->forks % 8 == 0)) {
            pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
            if (pid == 0) {
                v.before = v.after = 99; /* it is missing there */
                _exit(0);
            }
            CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV),
                       "a child by the system call ended with 0x%x", (unsigned)status);
            CONF_CHECK((v.before == 11) && (v.after == 14 + a->forks), "that child wrote the parent's frame");
        }
    }
    CONF_CHECK(v.numbers.sum == v.numbers.last, "of %" PRIu64 " %" PRIu64 " arrived", v.numbers.last, v.numbers.sum);
    a->seen = v.numbers.last;
    conf_dereg(&a->p->vcq, stadd[0]);
    conf_dereg(&a->p->vcq, stadd[1]);
    CONF_CHECK(!is_home(&v.numbers) && !is_home(large) && !is_home(large + 2 * PAGE), "it does not go back");
    CONF_CHECK(deep(200 * KIB, 2) == 0, "the rest of the stack, later");
    return arg;
}

CONF_TEST("rehome", stack_of_a_thread, 2,
          "variables and arrays on a thread's own stack are moved as well; it forks, uses its stack and ends as before, "
          "and no put or atomic that arrives meanwhile is lost")
{
    struct pair       p;
    struct on_a_stack a = {&p, 0, 0};
    pthread_t         thread;
    utofu_stadd_t     none = 0, all[2];

    pair_open(&p);
    for (unsigned round = 0; round < 2; round++) { /* the second has the stack that the first had */
        if (conf_rank == 1) {
            a.forks = 0;
            CONF_CHECK(pthread_create(&thread, NULL, has_a_stack, &a) == 0, "pthread_create");
            CONF_CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
            CONF_CHECK((a.forks > 3) && (a.seen > 0), "%" PRIu64 " forks", a.forks);
        } else {
            conf_exchange(&none, sizeof(none), all);
            count_for(&p, all[1], 1);
        }
    }
    pair_close(&p);
}

struct lent {
    struct pair       *p;
    volatile uint64_t *word; /* on the first stack */
    _Atomic bool       done;
};

static void *registers_for_another(void *arg)
{
    struct lent *l     = arg;
    unsigned     moved = 0;

    for (unsigned i = 0; i < 100; i++) {
        utofu_stadd_t stadd = conf_reg(&l->p->vcq, (void *)l->word, sizeof(*l->word), 0);

        moved += is_home(l->word);
        CONF_CHECK((is_home(l->word) == can_freeze()) || may_take_long(), "round %u", i);
        if (i % 10 == 0) {
            pid_t pid = fork();

            if (pid == 0) {
                *l->word = 99;
                _exit(is_home(l->word));
            }
            child_must_end_well(pid, "beside the first thread");
        }
        conf_dereg(&l->p->vcq, stadd);
    }
    CONF_CHECK((moved > 0) == can_freeze(), "%u times moved", moved);
    atomic_store(&l->done, true);
    return NULL;
}

CONF_TEST("rehome", stack_registered_by_another, 2,
          "a thread registers variables of the first thread's stack, and forks, while that uses and grows it: nothing is "
          "lost")
{
    struct pair       p;
    volatile uint64_t word = 0, counted = 0;
    struct lent       lent = {&p, &word, false};
    uint64_t          n    = 0;
    pthread_t         thread;
    utofu_stadd_t     stadd = 0;

    pair_open(&p);
    if (conf_rank == 1) {
        CONF_CHECK(pthread_create(&thread, NULL, registers_for_another, &lent) == 0, "pthread_create");
        while (!atomic_load(&lent.done)) {
            counted++;
            n++;
            CONF_CHECK(deep((n % 300) * 10 * KIB, (unsigned)n) == 0, "the stack");
        }
        pthread_join(thread, NULL);
        CONF_CHECK((counted == n) && (word == 0), "counted %" PRIu64 ", not %" PRIu64, counted, n);
        stadd = conf_reg(&p.vcq, (void *)&word, sizeof(word), 0);
    }
    receive(&p, (void *)&word, sizeof(word), stadd, 8);
    pair_close(&p);
}

/* -------------------------------------------------------------- stacks of the program's */

static ucontext_t           first, second;
static struct pair         *second_pair;
static volatile uint64_t   *of_first;
static utofu_stadd_t        second_stadd[2];
static volatile uint64_t   *of_second;

static void on_the_second(void)
{
    volatile uint64_t mine = 3;
    pid_t             pid;

    of_second = &mine;
    if (conf_rank == 1) {
        second_stadd[0] = conf_reg(&second_pair->vcq, (void *)&mine, sizeof(mine), 0);
        second_stadd[1] = conf_reg(&second_pair->vcq, (void *)of_first, sizeof(*of_first), 0);
        CONF_CHECK(is_home(&mine), "the variable of the second stack is not moved");
        CONF_CHECK(is_home(of_first), "the variable of the first stack is not moved");
    }
    pid = fork();
    if (pid == 0) {
        mine = 4;
        _exit((int)deep(20 * KIB, 1));
    }
    child_must_end_well(pid, "on a second stack");
    CONF_CHECK(mine == 3, "the child wrote the parent's frame");
    receive(second_pair, (void *)&mine, sizeof(mine), second_stadd[0], 4);
    receive(second_pair, (void *)of_first, sizeof(*of_first), second_stadd[1], 5);
}

CONF_TEST("rehome", stacks_of_coroutines, 2,
          "a program that runs on a stack of its own may register variables there, and of the first stack, and fork, "
          "whether that stack is registered as a whole or not")
{
    struct pair       p;
    volatile uint64_t word = 1;
    size_t            n    = 128 * KIB;
    char             *stack = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    pair_open(&p);
    second_pair = &p;
    of_first    = &word;
    for (unsigned round = 0; round < 3; round++) {
        if (round == 1) {
            conf_reg(&p.vcq, stack, n, 0);
            CONF_CHECK(is_home(stack), "not moved");
        }
        CONF_CHECK(getcontext(&second) == 0, "getcontext");
        second.uc_stack.ss_sp   = stack;
        second.uc_stack.ss_size = n;
        second.uc_link          = &first;
        makecontext(&second, on_the_second, 0);
        CONF_CHECK(swapcontext(&first, &second) == 0, "swapcontext");
        CONF_CHECK(deep(1024 * KIB, 1) == 0, "the first stack");
        if (conf_rank == 1) {
            conf_dereg(&p.vcq, second_stadd[0]);
            conf_dereg(&p.vcq, second_stadd[1]);
            CONF_CHECK((round > 0) || !is_home(of_second), "it does not go back");
        }
    }
    pair_close(&p);
}

CONF_TEST("rehome", stack_that_is_nearly_full, 2, "with little left of the stack its variables stay where they are")
{
    struct pair       p;
    volatile uint64_t word = 1;
    utofu_stadd_t     stadd = 0;
    struct rlimit     old, limit;

    pair_open(&p);
    if (conf_rank == 1) {
        CONF_CHECK(getrlimit(RLIMIT_STACK, &old) == 0, "getrlimit");
        limit          = old;
        limit.rlim_cur = 512 * KIB;
        CONF_CHECK(setrlimit(RLIMIT_STACK, &limit) == 0, "setrlimit");
        stadd = conf_reg(&p.vcq, (void *)&word, sizeof(word), 0);
        CONF_CHECK(!is_home(&word), "moved");
        CONF_CHECK(setrlimit(RLIMIT_STACK, &old) == 0, "setrlimit");
    }
    receive(&p, (void *)&word, sizeof(word), stadd, 1);
    pair_close(&p);
}
