/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_main.c - runs of the fuzzer.
 *
 *   fuzz_api SEED CALLS               one process, towards itself
 *   fuzz_api SEED CALLS PROCESSES     several, towards each other: while process 1
 *                                     is stopped now and then and the last one
 *                                     killed and started again
 *
 * At the end, every object is given back and a correct program must work: data
 * arrives, notices come, nothing else was touched.
 */
#include "fuzz.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

static void free_all(void)
{
    for (int k = 0; k < LIVE; k++) {
        atomic_store(&w.board->p[w.me].id[k], 0);
        atomic_store(&w.board->p[w.me].stadd[k], 0);
        if ((w.hdl[k] != 0) && (utofu_free_vcq(w.hdl[k]) != UTOFU_SUCCESS)) {
            die("a live VCQ can't be freed");
        }
        w.hdl[k] = 0;
        w.nvbg[k] = 0;
    }
}

/* ------------------------------------------------- a correct program at the end */

struct pair {
    utofu_vcq_hdl_t hdl;
    utofu_vcq_id_t  id;
    utofu_stadd_t   stadd;
    uint64_t       *mem;
};

static struct pair pair_make(void)
{
    struct pair p = {0};
    int         b = w.me % 4, code;

    p.mem = (uint64_t *)(void *)(w.buf[b].base + GUARD);
    memset(p.mem, 0, 512);
    code = utofu_create_vcq((utofu_tni_id_t)(w.me % 6), UTOFU_VCQ_FLAG_THREAD_SAFE * (unsigned)(w.me & 1), &p.hdl);
    if ((code != UTOFU_SUCCESS) || utofu_query_vcq_id(p.hdl, &p.id) || utofu_reg_mem(p.hdl, p.mem, 512, 0, &p.stadd)) {
        die("after the run, no VCQ with memory can be made (%d)", code);
    }
    return p;
}

static void wait_tcq(const struct pair *p, void *want)
{
    double until = now() + 60;
    void  *cb    = NULL;
    int    code;

    while ((code = utofu_poll_tcq(p->hdl, 0, &cb)) == UTOFU_ERR_NOT_FOUND) {
        if (now() > until) {
            die("a correct operation never completed");
        }
        sched_yield();
    }
    if ((code != UTOFU_SUCCESS) || (cb != want)) {
        die("a correct operation ended with %d", code);
    }
}

static struct utofu_mrq_notice wait_mrq(const struct pair *p)
{
    struct utofu_mrq_notice n     = {0};
    double                  until = now() + 60;
    int                     code;

    while ((code = utofu_poll_mrq(p->hdl, 0, &n)) == UTOFU_ERR_NOT_FOUND) {
        if (now() > until) {
            die("a correct notice never came");
        }
        sched_yield();
    }
    if (code != UTOFU_SUCCESS) {
        die("a correct operation's notice says %d", code);
    }
    return n;
}

/* put to slot 1 + me of a peer, with a notice there; get it back; add to it */
static void exchange(const struct pair *p, uint64_t id, uint64_t stadd)
{
    struct utofu_mrq_notice n;
    uint64_t                off = 8 * (1 + (uint64_t)w.me);
    int                     code;

    p->mem[0] = 1000 + (uint64_t)w.me;
    atomic_thread_fence(memory_order_seq_cst);
    code = utofu_put(p->hdl, id, p->stadd, stadd + off, 8, (uint64_t)w.me,
                     UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, p->mem);
    if (code != UTOFU_SUCCESS) {
        die("a correct put returned %d", code);
    }
    wait_tcq(p, p->mem);
    n = wait_mrq(p);
    if ((n.notice_type != UTOFU_MRQ_TYPE_LCL_PUT) || (n.vcq_id != id) || (n.edata != (uint64_t)w.me)) {
        die("a notice that is not ours: type %u", n.notice_type);
    }
    code = utofu_get(p->hdl, id, p->stadd + 256, stadd + off, 8, 7, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL);
    if (code != UTOFU_SUCCESS) {
        die("a correct get returned %d", code);
    }
    n = wait_mrq(p);
    if ((n.notice_type != UTOFU_MRQ_TYPE_LCL_GET) || (p->mem[32] != 1000 + (uint64_t)w.me)) {
        die("a get brought %llu", (unsigned long long)p->mem[32]);
    }
    code = utofu_armw8(p->hdl, id, UTOFU_ARMW_OP_ADD, 5, stadd + off, 9, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL);
    if (code != UTOFU_SUCCESS) {
        die("a correct armw8 returned %d", code);
    }
    n = wait_mrq(p);
    if ((n.notice_type != UTOFU_MRQ_TYPE_LCL_ARMW) || (n.rmt_value != 1000 + (uint64_t)w.me)) {
        die("an ARMW found %llu", (unsigned long long)n.rmt_value);
    }
}

void check_alone(void)
{
    struct pair p;

    world_check_guards();
    free_all();
    p = pair_make();
    exchange(&p, p.id, p.stadd);
    if (utofu_dereg_mem(p.hdl, p.stadd, 0) || utofu_free_vcq(p.hdl)) {
        die("what was made for the check can't be given back");
    }
}

static void stage(int s)
{
    double until = now() + 90;

    atomic_store(&w.board->p[w.me].stage, s);
    for (int i = 0; i < w.fuzzers; i++) {
        while (atomic_load(&w.board->p[i].stage) < s) {
            if (now() > until) {
                die("process %d does not reach stage %d of the check", i, s);
            }
            nap(0.001);
        }
    }
}

void check_group(void)
{
    struct pair p;

    check_alone();
    stage(1); /* nobody fuzzes any more */
    p = pair_make();
    atomic_store(&w.board->p[w.me].check_id, p.id);
    atomic_store(&w.board->p[w.me].check_stadd, p.stadd);
    stage(2);
    for (int i = 0; i < w.fuzzers; i++) {
        exchange(&p, atomic_load(&w.board->p[i].check_id), atomic_load(&w.board->p[i].check_stadd));
    }
    stage(3);
    for (int i = 0; i < w.fuzzers; i++) {
        if (((volatile uint64_t *)p.mem)[1 + i] != 1005 + (uint64_t)i) {
            die("process %d's data is not here: %llu", i, (unsigned long long)p.mem[1 + i]);
        }
    }
    stage(4);
    world_check_guards();
    if (utofu_free_vcq(p.hdl)) {
        die("what was made for the check can't be given back");
    }
}

/* ------------------------------------------------------------------------ runs */

static void fuzz_run(uint64_t calls)
{
    for (uint64_t i = 0; (i < calls) && (atomic_load(&w.board->phase) == 0); i++) {
        fuzz_one();
        if (i % 64 == 63) {
            fuzz_drain();
        }
        if (i % 512 == 511) {
            world_check_guards();
        }
        /* a process that is stopped does not poll: wait before its MRQ is full */
        if (i % 2048 == 2047) {
            for (int k = 0; k < w.fuzzers; k++) {
                uint64_t polls = atomic_load(&w.board->p[k].polls);
                while ((k != w.me) && (polls == w.seen[k]) && (atomic_load(&w.board->phase) == 0)) {
                    fuzz_drain();
                    nap(0.001);
                    polls = atomic_load(&w.board->p[k].polls);
                }
                w.seen[k] = polls;
            }
        }
    }
}

static void report(const char *who)
{
    const char *const *names;
    const uint64_t    *counts = fuzz_counts(&names);
    struct utofu_barrier_caps *caps;

    printf("%s: barrier %d calls %llu succeeded %llu\n", who, utofu_query_barrier_caps(0,
            &caps) != UTOFU_ERR_NOT_SUPPORTED, (unsigned long long)w.calls, (unsigned long long)w.succeeded);
    for (unsigned i = 0; i < fuzz_functions(); i++) {
        printf("  %s %llu\n", names[i], (unsigned long long)counts[i]);
    }
    fflush(stdout);
}

static pid_t start(uint64_t seed, int me, int n, struct board *board, uint64_t calls)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        world_init(seed + (uint64_t)me * 1000003, me, n, board);
        fuzz_run(calls);
        while (atomic_load(&board->phase) == 0) { /* until all are to stop */
            fuzz_drain();
            nap(0.0005);
        }
        check_group();
        if (me == 0) {
            report("process 0");
        }
        exit(0); /* not _exit: the library's and sanitizers' ends are part of it */
    }
    return pid;
}

static int run_group(uint64_t seed, uint64_t calls, int n, struct board *board)
{
    pid_t    pid[MAX_FUZZERS];
    unsigned kills = 0, stops = 0;
    int      left = n, status, failed = 0;
    double   began = now();

    for (int i = 0; i < n; i++) {
        pid[i] = start(seed, i, n, board, calls);
    }
    w.state = seed ^ 0x5bd1e995;
    while (atomic_load(&board->p[0].polls) < calls / 64) {
        nap(0.01 + 0.001 * (double)below(30));
        if (now() - began > 600) {
            fprintf(stderr, "fuzz: seed %llu: no end\n", (unsigned long long)seed);
            failed = 1;
            break;
        }
        for (int i = 0; i < n; i++) {
            if (waitpid(pid[i], &status, WNOHANG) == pid[i]) {
                fprintf(stderr, "fuzz: seed %llu: process %d ended with %x\n", (unsigned long long)seed, i, status);
                failed = 1;
            }
        }
        if (failed) {
            break;
        }
        if (n > 1) {
            kill(pid[1], SIGSTOP);
            nap(0.01);
            kill(pid[1], SIGCONT);
            stops++;
        }
        if ((n > 2) && one_in(3)) {
            kill(pid[n - 1], SIGKILL);
            waitpid(pid[n - 1], &status, 0);
            kills++;
            memset(&board->p[n - 1], 0, sizeof(board->p[n - 1]));
            pid[n - 1] = start(seed + 77 * kills, n - 1, n, board, calls);
        }
    }
    atomic_store(&board->phase, 1);
    for (int i = 0; i < n; i++) {
        if (failed) {
            kill(pid[i], SIGKILL);
        }
    }
    while (left-- > 0) {
        pid_t done = wait(&status);
        for (int i = 0; (status != 0) && !failed && (i < n); i++) {
            if (pid[i] == done) {
                fprintf(stderr, "fuzz: seed %llu: process %d ended with %x\n", (unsigned long long)seed, i, status);
                failed = 1;
            }
        }
    }
    printf("group: kills %u stops %u\n", kills, stops);
    return failed;
}

int main(int argc, char **argv)
{
    uint64_t      seed  = (argc > 1) ? strtoull(argv[1], NULL, 0) : 1;
    uint64_t      calls = (argc > 2) ? strtoull(argv[2], NULL, 0) : 100000;
    int           n     = (argc > 3) ? atoi(argv[3]) : 1;
    struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if ((board == MAP_FAILED) || (n < 1) || (n > MAX_FUZZERS)) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (n > 1) {
        return run_group(seed, calls, n, board);
    }
    world_init(seed, 0, 1, board);
    fuzz_run(calls);
    check_alone();
    report("alone");
    return 0;
}
