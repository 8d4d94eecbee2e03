/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_timed.c - UTOFU_EMU_TIMING: nothing is earlier than the model of docs/timing.md
 * says, by more than what is measured and taken off.  How much later things are
 * depends on the host and is measured by perf/timing_table.py, not here.
 */
#include "harness.h"

#include <stdio.h>
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

static void open_timed(struct conf_vcq *vcq, utofu_stadd_t *stadd, const char *profile)
{
    CONF_CHECK(setenv("UTOFU_EMU_TIMING", profile, 1) == 0, "setenv");
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

    open_timed(&vcq, &s, "tofud");
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
    char                    path[] = "profile-XXXXXX";
    double                  best = 1e18;
    int                     fd = mkstemp(path);

    CONF_CHECK((fd >= 0) && (write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1), "profile");
    close(fd);
    open_timed(&vcq, &s, path);
    unlink(path);
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
    char                    path[] = "profile-XXXXXX";
    double                  took[3];
    int                     fd = mkstemp(path);

    CONF_CHECK((fd >= 0) && (write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1), "profile");
    close(fd);
    setenv("UTOFU_EMU_TIMING", path, 1);
    /* two hops along X, none in A, B, C */
    setenv("UTOFU_EMU_COORDS", (conf_rank == 0) ? "0,0,0,0,0,0" : "2,0,0,0,0,0", 1);
    conf_vcq_open(&vcq, 0, 0);
    unlink(path);
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

CONF_TEST("timed", timed_bad_setting_is_off, 1, "a setting that is no profile is reported and times nothing")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    double                  best = 1e18;

    open_timed(&vcq, &s, "tofuz");
    for (int i = 0; i < 1000; i++) {
        double start = now_ns();
        CONF_OK(utofu_get(vcq.hdl, vcq.id, s, s + 256, 8, 1, CONF_LMRQ, NULL));
        CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "get");
        double took = now_ns() - start;
        best        = (took < best) ? took : best;
    }
    CONF_CHECK(best < 1345, "gets take %g ns", best);
}
