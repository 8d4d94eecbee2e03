/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_queue.c - MRQ lanes and the helper's ARMW, where the emulator could differ. */
#include "harness.h"

#include "own.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

CONF_TEST("queue", test_emu_lane_burst, 2,
          "100,000 notices that nobody reads for a while are kept, in order, and traffic goes on as before")
{
    static uint64_t words[512];
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
    unsigned        next = 0;

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    /* unread first 100000, then small bursts across the border of the rings */
    const unsigned bursts[] = {100000, 1, 511, 512, 513, 3, 2000, 511, 1025};
    for (unsigned b = 0; b < CONF_LEN(bursts); b++) {
        if (conf_rank == 0) {
            for (unsigned i = 0; i < bursts[b]; i++, next++) {
                CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[1], next, stadds[1] + 8 * (next % 512), 8,
                                                        next & 255, CONF_RMRQ, NULL));
            }
        }
        conf_barrier();
        if (conf_rank == 1) {
            size_t count;
            CONF_OK(utofu_query_num_unread_mrq(vcq.hdl, &count));
            CONF_CHECK(count == bursts[b], "%zu notices waiting, %u sent", count, bursts[b]);
            for (unsigned i = 0; i < bursts[b]; i++, next++) {
                struct utofu_mrq_notice notice;
                CONF_OK(utofu_poll_mrq(vcq.hdl, 0, &notice));
                CONF_CHECK((notice.edata == (next & 255)) && (notice.rmt_stadd == stadds[1] + 8 * (next % 512) + 8),
                           "notice %u is out of order", next);
            }
            CONF_EXPECT_QUIET(&vcq);
        }
        conf_barrier();
    }
    conf_vcq_close(&vcq);
}

/* A process that never reads its MRQ until told to; its stderr goes to err */
static pid_t sleeper(int *up, int *down, int *err)
{
    int   u[2], d[2], e[2];
    pid_t pid;

    if (pipe(u) || pipe(d) || pipe(e)) {
        CONF_FAIL("pipe: %s", strerror(errno));
    }
    pid = fork();
    if (pid == 0) {
        static uint64_t         word;
        struct utofu_mrq_notice notice;
        utofu_vcq_hdl_t         hdl;
        struct {
            utofu_vcq_id_t id;
            utofu_stadd_t  stadd;
        } me;
        char c;

        dup2(e[1], STDERR_FILENO);
        if (utofu_create_vcq(0, 0, &hdl) || utofu_query_vcq_id(hdl, &me.id) ||
            utofu_reg_mem(hdl, &word, sizeof(word), 0, &me.stadd) || (write(u[1], &me, sizeof(me)) < 0) ||
            (read(d[0], &c, 1) != 1)) {
            _exit(1);
        }
        utofu_poll_mrq(hdl, 0, &notice);
        _exit(0);
    }
    *up   = u[0];
    *down = d[1];
    *err  = e[0];
    return pid;
}

CONF_TEST("queue", test_emu_mrq_overflow_ends_the_target, 1,
          "more unread notices than the MRQ has entries end the process with the message of chapter 7")
{
    struct conf_vcq vcq;
    struct {
        utofu_vcq_id_t id;
        utofu_stadd_t  stadd;
    } peer;
    char  text[256] = "", c = 0;
    int   up, down, err, status;
    pid_t pid;

    setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1);
    pid = sleeper(&up, &down, &err);
    CONF_CHECK(read(up, &peer, sizeof(peer)) == (ssize_t)sizeof(peer), "the target failed");
    conf_vcq_create(&vcq, 0, 0);
    for (unsigned i = 0; i < 2048 + 512 + 2; i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, peer.id, i, peer.stadd, 8, 0, CONF_RMRQ, NULL));
    }
    CONF_CHECK(write(down, &c, 1) == 1, "write");
    CONF_CHECK(read(err, text, sizeof(text) - 1) > 0, "no message");
    waitpid(pid, &status, 0);
    CONF_CHECK(strstr(text, "utofu: asynchronous error: MRQ Overflow on TNI 0 CQ ") == text, "message: %s", text);
    CONF_CHECK(!WIFEXITED(status) || (WEXITSTATUS(status) != 0), "the target went on");
    conf_vcq_close(&vcq);
}

CONF_TEST("queue", test_emu_armw_on_stopped_private_memory, 2,
          "ARMW on private memory of a stopped process is carried out too")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    uint64_t               *word = malloc(64);

    word[0] = 100;
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, word, 64, stadds);
    if (conf_rank == 0) {
        conf_stop(1);
        for (unsigned i = 0; i < 5; i++) {
            CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 3, stadds[1], 1, CONF_LMRQ, NULL));
            CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
            CONF_CHECK(notice.rmt_value == 100 + 3 * i, "old value %llu", (unsigned long long)notice.rmt_value);
        }
        conf_continue(1);
        CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 3, stadds[1], 1, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (word[0] == 118), "the sum is %llu", (unsigned long long)word[0]);
    conf_vcq_close(&vcq);
    free(word);
}

CONF_TEST("queue", test_emu_armw_target_killed, 2,
          "ARMW on private memory of a process that dies ends with an error, soon")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    uint64_t               *word = calloc(8, 8);
    double                  t;

    setenv("UTOFU_EMU_REHOME", "0", 1); /* by the thread of the target */
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, word, 64, stadds);
    if (conf_rank == 0) {
        CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 3, stadds[1], 1, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
        conf_kill(1);
        t = conf_now();
        CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 3, stadds[1], 1, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_PEER, UTOFU_ERR_MRQ_RMT_MEMORY);
        CONF_CHECK(conf_now() - t < 5, "it took %g s", conf_now() - t);
    } else {
        pause();
    }
}

static uint64_t words[8] __attribute__((aligned(256)));

CONF_TEST("queue", notices_beyond_all_numbers, 1, "a lane goes on when the numbers of its entries have gone round")
{
    enum { NUM = EMU_ENTRY_SEQ_MASK - EMU_LANE_A };
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq, from;
    utofu_stadd_t           stadd;

    conf_timeout(100 * conf_patience);
    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&from, 1, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    for (unsigned i = 0; i < NUM; i++) {
        int post = utofu_put_piggyback8(from.hdl, vcq.id, i, stadd, 8, i % 256, CONF_RMRQ, NULL);
        int poll = utofu_poll_mrq(vcq.hdl, 0, &notice);

        CONF_CHECK((post == UTOFU_SUCCESS) && (poll == UTOFU_SUCCESS) && (notice.edata == i % 256),
                   "notice %u: posted %d, polled %d, EDATA %u", i, post, poll, (unsigned)notice.edata);
        if (i % 1024 == 0) {
            void *cbdata;

            CONF_CODE(utofu_poll_tcq(from.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        }
    }
    CONF_EXPECT_QUIET(&vcq); /* and says so to the sender */
    /* the next number is the first again, in the second ring, at a place that was never used */
    for (unsigned round = 0; round < 3; round++) {
        unsigned burst = EMU_LANE_A + 400 * round;

        for (unsigned i = 0; i < burst; i++) {
            CONF_POST(from.hdl, utofu_put_piggyback8(from.hdl, vcq.id, i, stadd, 8, i % 256, CONF_RMRQ, NULL));
        }
        for (unsigned i = 0; i < burst; i++) {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, from.id, i % 256, NULL);
        }
        CONF_EXPECT_QUIET(&vcq);
    }
    conf_vcq_close(&from);
    conf_vcq_close(&vcq);
}

CONF_TEST("queue", entry_of_long_ago, 1, "what a place of the second ring was left with is no notice, whatever its number")
{
    struct emu_process    *shm;
    struct emu_lane_entry *b = NULL;
    struct conf_vcq        vcq, from;
    utofu_stadd_t          stadd;

    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&from, 1, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    CONF_OK(utofu_put_piggyback8(from.hdl, vcq.id, 1, stadd, 8, 0, CONF_RMRQ, NULL));
    shm = own_segment();
    for (unsigned i = 0; i < shm->lanes; i++) {
        struct emu_lane *lane = (struct emu_lane *)(void *)((char *)shm + EMU_LANES_OFF(shm->session_entries) +
                                                            i * EMU_LANE_SIZE(shm->lane_entries));
        if (lane->origin == from.id) {
            b = (struct emu_lane_entry *)((char *)lane + EMU_LANE_HEAD) + EMU_LANE_A;
        }
    }
    CONF_CHECK(b != NULL, "no lane");
    b->word = (uint64_t)(EMU_LANE_A + 1) << EMU_ENTRY_SEQ_SHIFT | UTOFU_MRQ_TYPE_RMT_PUT << 8 | 99;
    for (unsigned i = 1; i < EMU_LANE_A; i++) {
        CONF_OK(utofu_put_piggyback8(from.hdl, vcq.id, 1, stadd, 8, i % 256, CONF_RMRQ, NULL));
    }
    for (unsigned i = 0; i < EMU_LANE_A; i++) {
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, from.id, i % 256, NULL);
    }
    CONF_EXPECT_QUIET(&vcq);
    CONF_OK(utofu_put_piggyback8(from.hdl, vcq.id, 1, stadd, 8, 77, CONF_RMRQ, NULL));
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, from.id, 77, NULL);
    CONF_EXPECT_QUIET(&vcq);
    munmap(shm, shm->size);
    conf_vcq_close(&from);
    conf_vcq_close(&vcq);
}
