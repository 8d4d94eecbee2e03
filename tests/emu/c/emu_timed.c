/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_timed.c - UTOFU_EMU_TIMING: nothing is earlier than the model of docs/timing.md
 * says, by more than what is measured and taken off.  How much later things are
 * depends on the host and is measured by perf/timing_table.py, not here.
 */
#include "harness.h"

#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLACK 500.0 /* ns: `floor` is at most that */

static uint64_t words[1024] __attribute__((aligned(256)));

static double now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1e9 + ts.tv_nsec;
}

/* The timed mode with these parameters.  The library reads them, and what else the environment
 * says, at its first call, which is here. */
static void use_profile(const char *text)
{
    char            path[] = "profile-XXXXXX";
    int             fd     = mkstemp(path);
    utofu_tni_id_t *tnis;
    size_t          n;

    CONF_CHECK((fd >= 0) && (write(fd, text, strlen(text)) == (ssize_t)strlen(text)), "profile");
    close(fd);
    setenv("UTOFU_EMU_TIMING", path, 1);
    CONF_OK(utofu_get_onesided_tnis(&tnis, &n));
    free(tnis);
    unlink(path);
}

static void spin_ns(double ns)
{
    for (double start = now_ns(); now_ns() - start < ns;) {
    }
}

static void open_timed(struct conf_vcq *vcq, utofu_stadd_t *stadd)
{
    conf_vcq_create(vcq, 0, 0);
    *stadd = conf_reg(vcq, words, sizeof(words), 0);
    usleep(1000); /* the clock of this thread is the real one */
}

CONF_TEST("timed", timed_get_and_armw, 1, "the notices of a get and an ARMW are not there before their time")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    double                  start, took;

    setenv("UTOFU_EMU_TIMING", "tofud", 1);
    open_timed(&vcq, &s);
    for (int i = 0; i < 20; i++) {
        usleep(100);
        start = now_ns();
        CONF_OK(utofu_get(vcq.hdl, vcq.id, s, s + 256, 8, 1, CONF_LMRQ, NULL));
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "get");
        took = now_ns() - start;
        CONF_CHECK(took >= 1345, "a get took %g ns", took);
        usleep(100);
        start = now_ns();
        CONF_OK(utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 1, s + 512, 1, CONF_LMRQ, NULL));
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "ARMW");
        took = now_ns() - start;
        CONF_CHECK(took >= 1185, "an ARMW took %g ns", took);
    }
    CONF_CHECK(words[64] == 20, "%d additions", (int)words[64]);
}

/* A process that takes this CPU away now and then */
static pid_t burn_beside(void)
{
    cpu_set_t here;
    pid_t     pid;

    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    sched_setaffinity(0, sizeof(here), &here);
    pid = fork();
    CONF_CHECK(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
        }
    }
    return pid;
}

CONF_TEST("timed", timed_no_catching_up, 1, "a thread that loses its CPU while it polls does not have the time back")
{
    enum { ROUNDS = 60000, MOST = 20 };
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    unsigned                run = 0, longest = 0;
    void                   *cbdata;
    pid_t                   pid;

    setenv("UTOFU_EMU_TIMING", "tofud", 1);
    conf_timeout(60);
    open_timed(&vcq, &s);
    pid = burn_beside();
    for (unsigned i = 0; i < ROUNDS; i++) {
        double start = now_ns();

        CONF_OK(utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 1, s, 1, CONF_LMRQ, NULL));
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "ARMW");
        run     = (now_ns() - start < 1185. / 2) ? run + 1 : 0;
        longest = (run > longest) ? run : longest;
        utofu_poll_tcq(vcq.hdl, 0, &cbdata);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CONF_CHECK(longest < MOST, "%u ARMWs in a row took less than half of their time", longest);
    conf_dereg(&vcq, s);
    conf_vcq_close(&vcq);
}

CONF_TEST("timed", timed_bytes_and_gap, 1, "bytes take their time on the TNI, with a gap more of it")
{
    enum { SIZE = 1 << 20 };
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    utofu_stadd_t           s;
    double                  start, took;

    CONF_CHECK(setenv("UTOFU_EMU_TIMING", "tofud", 1) == 0, "setenv");
    conf_vcq_create(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 2 * SIZE);
    s = conf_reg(&vcq, mem.addr, 2 * SIZE, 0);
    for (size_t gap = 0; gap <= 24; gap += 8) {
        usleep(1000);
        start = now_ns();
        CONF_OK(utofu_put_gap(vcq.hdl, vcq.id, s, s + SIZE, SIZE, 1, CONF_LMRQ, 1920, gap, NULL));
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "put");
        took = now_ns() - start;
        CONF_CHECK(took >= SIZE * 0.1575 * (gap + 8) / 8 - SLACK, "gap %d: %g ns", (int)gap, took);
    }
}

/* Each of them would be for 16 MB, with a gap of 255: 86 ms on the TNI, 100 of them 8 s. */
CONF_TEST("timed", timed_refused_carries_nothing, 1, "an operation that is refused for its STADDs takes no network")
{
    enum { REFUSED = 100, LONG = 16777215 };
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    void                   *cbdata;
    double                  start, took;

    setenv("UTOFU_EMU_TIMING", "tofud", 1);
    open_timed(&vcq, &s);
    start = now_ns();
    for (int i = 0; i < REFUSED; i++) {
        CONF_OK(utofu_put_gap(vcq.hdl, vcq.id, s, s, LONG, 1, 0, 1920, 255, NULL));
        CONF_CODE(CONF_WAIT_TCQ(&vcq, &cbdata), UTOFU_ERR_TCQ_LENGTH);
        CONF_OK(utofu_get_gap(vcq.hdl, vcq.id, s, s, LONG, 1, 0, 1920, 255, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_RMT_LENGTH);
    }
    CONF_OK(utofu_put(vcq.hdl, vcq.id, s, s + 512, 8, 1, CONF_LMRQ, NULL));
    CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_SUCCESS);
    took = now_ns() - start;
    CONF_CHECK(took < 4e9, "%d refused operations of each kind: %g s", REFUSED, took / 1e9);
}

CONF_TEST("timed", timed_burst_overlaps, 1, "operations posted one after the other do not add up their latencies")
{
    /* so long that a slow host, or a sanitizer, does not count: one after the other
     * the puts would take half a second */
    static const char       text[] = "put = 1200000\n";
    enum { PUTS = 400 };
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    void                   *cbdata;
    double                  best = 1e18;

    use_profile(text);
    open_timed(&vcq, &s);
    for (int tries = 0; tries < 30; tries++) { /* the scheduler may be in the way of some */
        usleep(1000);
        double start = now_ns();
        for (int i = 0; i < PUTS; i++) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.id, i, s, 8, 1, CONF_LMRQ, NULL));
        }
        double took = now_ns() - start;
        CONF_CHECK(took >= (PUTS - 1) * 290.0 - SLACK, "%d puts took %g ns: less than the gaps between them", PUTS, took);
        best = (took < best) ? took : best;
        for (int i = 0; i < PUTS; i++) {
            CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "put");
        }
        CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND); /* frees the TOQ */
    }
    CONF_CHECK(best <= PUTS * 1200000.0 / 50, "%d puts of 1.2 ms took at least %g ns", PUTS, best);
}

CONF_TEST("timed", timed_hops_and_profile, 2, "a profile from a file holds, and hops count along the path")
{
    static const char       text[] = "# slow hops\nhop = 200000\nput = 300000  # far\nfloor=1\n";
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           stadds[2];
    double                  took[3];

    /* two hops along X, none in A, B, C */
    setenv("UTOFU_EMU_COORDS", (conf_rank == 0) ? "0,0,0,0,0,0" : "2,0,0,0,0,0", 1);
    use_profile(text);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    for (int k = 0; (k < 3) && (conf_rank == 0); k++) {
        /* straight; by A = 1 (there and back); by A = 1 and B = 1 */
        uint8_t         by[3] = {k > 0, k > 1, 0};
        utofu_path_id_t path_id;
        double          start;

        CONF_OK(utofu_get_path_id(vcq.peer[1], by, &path_id));
        usleep(1000);
        start = now_ns();
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 1, stadds[1], 8, 1,
                                     CONF_LMRQ | UTOFU_ONESIDED_FLAG_PATH(path_id), NULL));
        took[k] = now_ns() - start;
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "put");
        /* 300 us, 200 us for each hop after the first; a piggyback saves 260 ns */
        CONF_CHECK(took[k] >= 300000.0 + 200000.0 * (1 + 2 * k) - 260 - SLACK, "path %d: %g ns", k, took[k]);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("timed", timed_slow_put, 1, "a put to itself that takes longer than its answer has arrived when it is told")
{
    static const char text[] = "put = 50000\n";
    struct conf_vcq   vcq;
    utofu_stadd_t     s;

    use_profile(text);
    conf_vcq_open(&vcq, 0, 0);
    s = conf_reg(&vcq, words, sizeof(words), 0);
    for (int i = 0; i < 20; i++) {
        CONF_OK(utofu_put(vcq.hdl, vcq.id, s, s + 256, 8, i, CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.id, i, NULL);
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, i, NULL);
    }
    conf_dereg(&vcq, s);
    conf_vcq_close(&vcq);
}

CONF_TEST("timed", timed_bad_setting_is_off, 1, "a setting that is no profile is reported and times nothing")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    double                  best = 1e18;

    setenv("UTOFU_EMU_TIMING", "tofuz", 1);
    open_timed(&vcq, &s);
    for (int i = 0; i < 1000; i++) {
        double start = now_ns();
        CONF_OK(utofu_get(vcq.hdl, vcq.id, s, s + 256, 8, 1, CONF_LMRQ, NULL));
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "get");
        double took = now_ns() - start;
        best        = (took < best) ? took : best;
    }
    CONF_CHECK(best < 1345, "gets take %g ns", best);
}

/* tests/emu/test_profiles.py says which profile and locale, and reads this */
CONF_TEST("timed", timed_by_variable, 1, "what a get takes at least, with the settings of the environment")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    double                  best = 1e18;

    if (getenv("EMU_LOCALE") && !setlocale(LC_ALL, getenv("EMU_LOCALE"))) {
        conf_skip("no such locale");
    }
    conf_vcq_create(&vcq, 0, 0);
    s = conf_reg(&vcq, words, sizeof(words), 0);
    for (int i = 0; i < 100; i++) {
        usleep(10);
        double start = now_ns();
        CONF_OK(utofu_get(vcq.hdl, vcq.id, s, s + 256, 8, 1, CONF_LMRQ, NULL));
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "get");
        double took = now_ns() - start;
        best        = (took < best) ? took : best;
    }
    fprintf(stderr, "a get takes %.0f ns\n", best);
}

CONF_TEST("timed", timed_packing_overlaps, 1, "a thread that packs between two puts pays their latency once")
{
    enum { PUTS = 400 };
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    void                   *cbdata;
    double                  best = 1e18;

    use_profile("put = 20000\n");
    open_timed(&vcq, &s);
    for (int tries = 0; tries < 50; tries++) {
        usleep(1000);
        double start = now_ns();
        for (int i = 0; i < PUTS; i++) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.id, i, s, 8, 1, CONF_LMRQ, NULL));
            spin_ns(1400); /* more than a 16th of 20 us */
        }
        double took = now_ns() - start;
        best = (took < best) ? took : best;
        for (int i = 0; i < PUTS; i++) {
            CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "put");
        }
        CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND); /* frees the TOQ */
    }
    CONF_CHECK(best <= PUTS * 20000.0 / 2, "%d puts of 20 us took at least %g ns", PUTS, best);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Who waits for an answer in memory pays for both ways, even if the way is so short that it
 * could have packed a message meanwhile. */
enum { BY_PIGGYBACK, BY_PUT, BY_ARMW };

/* What the other waits for */
static void answer(struct conf_vcq *vcq, const utofu_stadd_t *stadds, uint64_t i, int how)
{
    utofu_stadd_t there = stadds[1 - conf_rank];
    void         *cbdata;

    if (how == BY_ARMW) {
        CONF_OK(utofu_armw8(vcq->hdl, vcq->peer[1 - conf_rank], UTOFU_ARMW_OP_ADD, 1, there, 1, 0, NULL));
    } else if (how == BY_PIGGYBACK) {
        CONF_OK(utofu_put_piggyback8(vcq->hdl, vcq->peer[1 - conf_rank], i, there, 8, 1, 0, NULL));
    } else {
        /* the notice of the last one is found when the next is posted, as libraries do it */
        CONF_CHECK((i == 1) || (CONF_WAIT_TCQ(vcq, &cbdata) == UTOFU_SUCCESS), "TCQ");
        words[128] = i;
        CONF_OK(utofu_put(vcq->hdl, vcq->peer[1 - conf_rank], stadds[conf_rank] + 1024, there, 8, 1,
                          UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL));
    }
}

/* What each took; how: rank 1 answers */
static void round_trips(struct conf_vcq *vcq, const utofu_stadd_t *stadds, int how, double *took, uint64_t rounds)
{
    volatile uint64_t *word = words;

    for (uint64_t i = 1; i <= rounds; i++) {
        double start = now_ns();

        if (conf_rank == 0) {
            answer(vcq, stadds, i, (how == BY_PUT) ? BY_PUT : BY_PIGGYBACK);
        }
        while (*word != i) {
        }
        if (conf_rank == 1) {
            answer(vcq, stadds, i, how);
        }
        took[i - 1] = now_ns() - start;
    }
}

static void answered(int how, const char *coords)
{
    enum { ROUNDS = 200 };
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[2];
    double          took[ROUNDS];

    setenv("UTOFU_EMU_COORDS", (conf_rank == 0) ? "0,0,0,0,0,0" : coords, 1);
    use_profile("put = 1900\npiggyback_saves = 0\narmw = 3800\nhop = 0\n");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    round_trips(&vcq, stadds, how, took, ROUNDS);
    /* Not each: where the scheduler stops a thread in its call until the answer is there, the
     * next put seems to follow at once. */
    qsort(took, ROUNDS, sizeof(took[0]), by_size);
    if (conf_rank == 0) {
        CONF_CHECK(took[ROUNDS / 4] >= 2 * 1900 - 2 * SLACK, "a round trip took %g ns", took[ROUNDS / 4]);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("timed", timed_answer_by_put, 2, "an answer in memory takes both ways, on one node")
{
    answered(BY_PIGGYBACK, "0,0,0,0,0,0");
}

CONF_TEST("timed", timed_answer_from_afar, 2, "the same from another node")
{
    answered(BY_PIGGYBACK, "0,0,0,1,0,0");
}

CONF_TEST("timed", timed_answer_by_armw, 2, "the same by an ARMW")
{
    answered(BY_ARMW, "0,0,0,1,0,0");
}

CONF_TEST("timed", timed_answer_after_tcq, 2, "the same when the notice of the last put is read first")
{
    answered(BY_PUT, "0,0,0,1,0,0");
}

CONF_TEST("timed", timed_answer_not_before, 2, "what came too early is not answered before it should have come")
{
    enum { ROUNDS = 2000, WAY = 1900 };
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[2];
    double          took[ROUNDS];

    setenv("UTOFU_EMU_COORDS", (conf_rank == 0) ? "0,0,0,0,0,0" : "0,0,0,1,0,0", 1);
    use_profile("put = 1900\npiggyback_saves = 0\nhop = 0\nfloor = 300\n"); /* of any two CPUs more than half as much */
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    round_trips(&vcq, stadds, BY_PIGGYBACK, took, ROUNDS);
    qsort(took, ROUNDS, sizeof(took[0]), by_size);
    if (conf_rank == 0) {
        CONF_CHECK(took[ROUNDS / 2] >= 2 * (WAY - 40), "a round trip took %g ns", took[ROUNDS / 2]);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

/* Both post, then wait for the other's word: the next post cannot follow before it came, although
 * both could lag behind by what they waited in the call. */
static void exchanged(int how, unsigned words_each)
{
    enum { ROUNDS = 400, WAY = 1900, LEARNS = 50 };
    struct conf_vcq    vcq;
    utofu_stadd_t      stadds[2];
    volatile uint64_t *word = words;
    double             start = 0, took;

    setenv("UTOFU_EMU_COORDS", (conf_rank == 0) ? "0,0,0,0,0,0" : "0,0,0,1,0,0", 1);
    use_profile("put = 1900\npiggyback_saves = 0\nhop = 0\n");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        start = (i == LEARNS) ? now_ns() : start;
        for (unsigned n = 0; n < words_each; n++) {
            answer(&vcq, stadds, i, how);
        }
        while ((*word != i) && (*word != i + 1)) {
        }
    }
    took = (now_ns() - start) / (ROUNDS - LEARNS);
    CONF_CHECK(took >= 0.9 * WAY, "an exchange took %g ns", took);
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("timed", timed_exchange, 2, "an exchange of words takes one way, as each side waits for the other's")
{
    exchanged(BY_PUT, 1);
}

CONF_TEST("timed", timed_exchange_silent, 2, "the same without notices")
{
    exchanged(BY_PIGGYBACK, 1);
}

CONF_TEST("timed", timed_exchange_data, 2, "the same of data and the word that they are there")
{
    exchanged(BY_PIGGYBACK, 2);
}

/* What a thread takes to answer: a bit more or less is the host's and does not count one by one,
 * what it takes on the average does. */
static double round_trip(struct conf_vcq *vcq, const utofu_stadd_t *stadds, uint64_t i, double thinks)
{
    volatile uint64_t *word  = words;
    double             start = now_ns(), took;
    void              *cbdata;

    if (conf_rank == 0) {
        answer(vcq, stadds, i, BY_PIGGYBACK);
    }
    while (*word != i) {
    }
    if (conf_rank == 1) {
        spin_ns(thinks);
        answer(vcq, stadds, i, BY_PIGGYBACK);
    }
    took = now_ns() - start;
    CONF_CODE(utofu_poll_tcq(vcq->hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND); /* frees the TOQ */
    return took;
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_size);
    return values[n / 2];
}

/* How much later the median of late answers is than that of the others: by LITTLE, in turns with
 * them at random, and by MUCH, all of a series. */
enum { LITTLE = 150, MUCH = 1000 };

static void later(struct conf_vcq *vcq, const utofu_stadd_t *stadds, uint64_t *i, double *little, double *much)
{
    enum { ROUNDS = 2000 };
    static uint64_t draw = 1; /* both draw the same */
    static double   took[2][ROUNDS];
    double          of[2];
    size_t          n[2] = {0, 0};

    for (int k = 0; k < ROUNDS; k++) {
        draw        = draw * 6364136223846793005u + 1442695040888963407u;
        int is_late = draw >> 63;
        took[is_late][n[is_late]++] = round_trip(vcq, stadds, ++*i, is_late * LITTLE);
    }
    *little = median(took[1], n[1]) - median(took[0], n[0]);
    for (int more = 0; more < 2; more++) {
        for (int k = 0; k < ROUNDS; k++) {
            took[more][k] = round_trip(vcq, stadds, ++*i, more * MUCH);
        }
        of[more] = median(took[more], ROUNDS);
    }
    *much = of[1] - of[0];
}

CONF_TEST("timed", timed_jitter, 2, "an answer that is early or late by a bit is placed where those before were")
{
#ifdef __SANITIZE_ADDRESS__
    enum { TIMES = 15, TRIES = 3 }; /* what comes of it is not looked at */
#else
    enum { TIMES = 15, TRIES = 100 };
#endif
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[2];
    uint64_t        i    = 0;
    int             good = 0, goods[2] = {0, 0};
    double          little[TIMES], much[TIMES], l = 0, m = 0;

    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        conf_skip("two processes that look for words need two CPUs");
    }
    setenv("UTOFU_EMU_COORDS", (conf_rank == 0) ? "0,0,0,0,0,0" : "0,0,0,1,0,0", 1);
    /* a way so long that who posts is in time where each line takes 0.2 us from CPU to CPU */
    use_profile("put = 1900\npiggyback_saves = 0\n");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    conf_timeout(60);
    for (int tries = 0; (tries < TRIES) && !goods[0]; tries++) { /* other work may be in the way of some, */
        usleep((tries < 10) ? 0 : 100000);                       /* also for seconds */
        for (int k = 0; k < TIMES; k++) {
            later(&vcq, stadds, &i, &little[k], &much[k]);
        }
        l    = median(little, TIMES);
        m    = median(much, TIMES);
        good = (l < LITTLE / 2) && (m > MUCH / 2);
        conf_exchange(&good, sizeof(good), goods);
    }
#ifdef __SANITIZE_ADDRESS__
    goods[0] = 1; /* here the steps of a call differ by as much */
#endif
    CONF_CHECK(goods[0], "answers %d and %d ns later are %g and %g ns later", LITTLE, MUCH, l, m);
    conf_barrier();
    conf_vcq_close(&vcq);
}

/* ----------------------------------------- what the copy itself takes is not added */

enum { LONG = 1 << 20 };

struct watch {
    volatile unsigned char *bytes;
    double                  first, last; /* when they were seen */
};

static void *watch(void *arg)
{
    struct watch *w = arg;

    while (w->bytes[0] == 0) {
        usleep(100);
    }
    w->first = now_ns();
    while (w->bytes[LONG - 1] == 0) {
        usleep(100);
    }
    w->last = now_ns();
    return NULL;
}

/* Data is copied while it travels, 0.3 s here; its last word is there in time. */
static void travels(bool gets, const char *rehome)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    struct watch            w;
    utofu_stadd_t           stadds[2];
    pthread_t               thread;

    setenv("UTOFU_EMU_REHOME", rehome, 1);
    use_profile("put = 300000000\nget = 600000000\n");
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_ANON, 2 * LONG);
    conf_reg_all(&vcq, mem.addr, 2 * LONG, stadds);
    memset(mem.addr, 1, LONG);
    w.bytes = (unsigned char *)mem.addr + LONG;
    memset((char *)mem.addr + LONG, 0, LONG);
    conf_barrier();
    if (conf_rank == (gets ? 0 : 1)) {
        CONF_CHECK(pthread_create(&thread, NULL, watch, &w) == 0, "pthread_create");
    }
    if ((conf_rank == 0) && gets) {
        CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], stadds[0] + LONG, stadds[1], LONG, 1, CONF_LMRQ, NULL));
    } else if (conf_rank == 0) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1] + LONG, LONG, 1, CONF_LMRQ, NULL));
    }
    if (conf_rank == 0) {
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "notice");
    }
    if (conf_rank == (gets ? 0 : 1)) {
        CONF_CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
        CONF_CHECK(w.last - w.first > 50e6, "the last byte came %g ns after the first", w.last - w.first);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("timed", timed_put_travels, 2, "a long put to memory that was moved is copied while it travels")
{
    travels(false, "auto");
}

CONF_TEST("timed", timed_put_travels_private, 2, "the same to memory that the kernel writes")
{
    travels(false, "0");
}

CONF_TEST("timed", timed_get_travels, 2, "a long get is copied while it travels")
{
    travels(true, "auto");
}

CONF_TEST("timed", timed_get_travels_private, 2, "the same from memory that the kernel reads")
{
    travels(true, "0");
}

CONF_TEST("timed", timed_neighbours, 2,
          "what a program writes beside the bytes of a put, in the same word, stays: also where the way to a line is "
          "measured on it")
{
    enum { APART = 16384, PUTS = 20000 }; /* lines so far apart push each other out of what is remembered */
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];

    use_profile("put = 1500\n"); /* with time to measure */
    conf_pin();
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 2 * APART);
    memset(mem.addr, 0, mem.size);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    volatile unsigned char *bytes = mem.addr;

    if (conf_rank == 0) {
        bytes[1] = 1;
        for (unsigned i = 1; i <= PUTS; i++) {
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadds[0] + 1, stadds[1] + i % 2 * APART + 1, 1, 1,
                                         CONF_STRONG, NULL));
            spin_ns(3000); /* the next one waits for its time, too */
        }
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadds[0] + 1, stadds[1] + 64, 1, 1, CONF_LMRQ | CONF_STRONG,
                                     NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 1, NULL);
    } else {
        for (unsigned round = 1; bytes[64] == 0; round++) {
            for (unsigned i = 0; i < 2; i++) {
                volatile unsigned char *word = bytes + i * APART;
                unsigned char           had  = (unsigned char)(round - 1);

                CONF_CHECK((word[0] == had) && (word[2] == had), "word %u, round %u: %u and %u", i, round, word[0], word[2]);
                word[0] = word[2] = (unsigned char)round;
            }
        }
        CONF_CHECK((bytes[1] == 1) && (bytes[APART + 1] == 1), "%u and %u came", bytes[1], bytes[APART + 1]);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}
