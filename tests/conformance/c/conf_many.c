/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_many.c - many processes at once, and jobs that must not see each other
 * (4.1.3).
 */
#include "harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define PROCS  8
#define ROUNDS 150

static uint64_t word_of(int from, int round)
{
    return (uint64_t)(from + 1) << 32 | (round + 1);
}

static void all_to_all(enum conf_kind kind)
{
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[PROCS];
    uint64_t               *words;
    unsigned                lcl[PROCS] = {0}, rmt[PROCS] = {0}, spins = 0;
    unsigned                posted = 0, seen = 0, local;
    double                  end;
    int                     round, peer, rc;

    conf_timeout(60);
    end = conf_now() + 50;
    /* Memory: what is sent, then a part for each sender. */
    conf_mem_alloc(&mem, kind, (PROCS + 1) * ROUNDS * 8);
    words = (uint64_t *)mem.addr;
    conf_vcq_open(&vcq, conf_rank, 0);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    for (round = 0; round < ROUNDS; round++) {
        words[round] = word_of(conf_rank, round);
    }
    conf_barrier();
    while (seen < 2 * PROCS * ROUNDS) {
        if (posted < PROCS * ROUNDS) {
            round = posted / PROCS;
            peer  = (conf_rank + posted) % PROCS;
            rc    = utofu_put(vcq.hdl, vcq.peer[peer],
                              stadds[conf_rank] + round * 8,
                              stadds[peer] + ((conf_rank + 1) * ROUNDS + round) *
                                                     8,
                              8, round % 256, CONF_TCQ | CONF_LMRQ | CONF_RMRQ,
                              CONF_PTR(posted));
            CONF_CODE(rc, UTOFU_SUCCESS, UTOFU_ERR_BUSY);
            if (rc == UTOFU_SUCCESS) {
                posted++;
                CONF_EXPECT_TCQ(&vcq, CONF_PTR(posted - 1));
            }
        }
        rc = CONF_CODE(utofu_poll_mrq(vcq.hdl, 0, &notice), UTOFU_SUCCESS,
                       UTOFU_ERR_NOT_FOUND);
        if (rc == UTOFU_ERR_NOT_FOUND) {
            CONF_CHECK(conf_now() < end, "%u of %d notices", seen,
                       2 * PROCS * ROUNDS);
            conf_relax(&spins);
            continue;
        }
        for (peer = 0; (peer < PROCS) && (vcq.peer[peer] != notice.vcq_id);
             peer++) {
        }
        CONF_CHECK(peer < PROCS, "notice of unknown VCQ 0x%" PRIx64,
                   notice.vcq_id);
        local = notice.notice_type == UTOFU_MRQ_TYPE_LCL_PUT;
        CONF_CHECK(local || (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT),
                   "notice type %d", notice.notice_type);
        round = local ? lcl[peer]++ : rmt[peer]++;
        CONF_CHECK(notice.edata == (uint64_t)round % 256,
                   "notice %d (%s) of rank %d has EDATA %" PRIu64, round,
                   local ? "local" : "remote", peer, notice.edata);
        if (!local) {
            CONF_CHECK(words[(peer + 1) * ROUNDS + round] ==
                               word_of(peer, round),
                       "word %d of rank %d is not there", round, peer);
        }
        seen++;
    }
    CONF_EXPECT_QUIET(&vcq);
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("2.2.3", all_to_all_private, 8,
          "8 processes put to each other and to themselves at once, with all "
          "notices: each arrives once, in order per sender, after its data "
          "(private memory)")
{
    all_to_all(CONF_MEM_MALLOC);
}

CONF_TEST("2.2.3", all_to_all_shared, 8,
          "8 processes put to each other and to themselves at once, with all "
          "notices: each arrives once, in order per sender, after its data "
          "(shared memory)")
{
    all_to_all(CONF_MEM_SHM);
}

CONF_TEST("2.2.5", counter_of_many, 8,
          "8 processes draw numbers from one counter by fetch-and-add: each "
          "number is drawn once")
{
    enum { DRAWS = 300 };
    static uint32_t         mine[DRAWS], all[PROCS * DRAWS];
    static unsigned char    seen[PROCS * DRAWS];
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[PROCS];
    _Alignas(8) uint64_t    counter = 0;
    int                     i;

    conf_vcq_open(&vcq, conf_rank, 0);
    conf_reg_all(&vcq, &counter, sizeof(counter), stadds);
    for (i = 0; i < DRAWS; i++) {
        CONF_POST(vcq.hdl,
                  utofu_armw8(vcq.hdl, vcq.peer[0], UTOFU_ARMW_OP_ADD, 1,
                              stadds[0], i % 256, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[0], i % 256,
                        &notice);
        mine[i] = (uint32_t)notice.rmt_value;
    }
    conf_exchange(mine, sizeof(mine), all);
    for (i = 0; i < PROCS * DRAWS; i++) {
        CONF_CHECK((all[i] < PROCS * DRAWS) && (seen[all[i]]++ == 0),
                   "number %" PRIu32 " was drawn twice or never existed",
                   all[i]);
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.3", vcqs_of_many, 8,
          "processes use VCQs on all TNIs at once, each VCQ reaching those of "
          "all processes")
{
    enum { VCQS = 6 };
    struct conf_vcq vcqs[VCQS];
    utofu_stadd_t   stadds[VCQS][PROCS];
    uint64_t        words[VCQS * PROCS];
    int             v, peer;

    memset(words, 0, sizeof(words));
    for (v = 0; v < VCQS; v++) {
        conf_vcq_open(&vcqs[v], v, 0);
        conf_reg_all(&vcqs[v], words, sizeof(words), stadds[v]);
    }
    for (v = 0; v < VCQS; v++) {
        for (peer = 0; peer < PROCS; peer++) {
            CONF_OK(utofu_put_piggyback8(vcqs[v].hdl, vcqs[v].peer[peer],
                                         word_of(conf_rank, v),
                                         stadds[v][peer] +
                                                 (v * PROCS + conf_rank) * 8,
                                         8, v, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcqs[v], UTOFU_MRQ_TYPE_LCL_PUT,
                            vcqs[v].peer[peer], v, NULL);
        }
    }
    conf_barrier();
    for (v = 0; v < VCQS; v++) {
        for (peer = 0; peer < PROCS; peer++) {
            CONF_CHECK(words[v * PROCS + peer] == word_of(peer, v),
                       "word of rank %d over VCQ %d", peer, v);
        }
        conf_dereg(&vcqs[v], stadds[v][conf_rank]);
        conf_vcq_close(&vcqs[v]);
    }
}

CONF_TEST("2.2.1.3", notices_of_many_vcqs, 4,
          "one VCQ takes notices from all VCQs that three processes can have")
{
    enum { MOST = 432 };
    static utofu_vcq_hdl_t  hdls[MOST];
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[4];
    uint64_t                word = 0;
    unsigned                n = 0, counts[4], i, total = 0;
    uint32_t                next[4] = {0};

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    while ((conf_rank != 0) && (n < MOST - 1)) {
        if (CONF_CODE(utofu_create_vcq(conf_tni(n), 0, &hdls[n]), UTOFU_SUCCESS,
                      UTOFU_ERR_FULL,
                      UTOFU_ERR_NOT_AVAILABLE) != UTOFU_SUCCESS) {
            break;
        }
        n++;
    }
    conf_exchange(&n, sizeof(n), counts);
    for (i = 0; i < n; i++) {
        CONF_OK(utofu_put_piggyback8(hdls[i], vcq.peer[0], i, stadds[0], 8,
                                     conf_rank, CONF_RMRQ, NULL));
    }
    conf_barrier();
    for (i = 1; (i < 4) && (conf_rank == 0); i++) {
        CONF_CHECK(counts[i] > 1, "rank %u has %u VCQs", i, counts[i]);
        total += counts[i];
    }
    for (i = 0; i < total; i++) {
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
        CONF_CHECK((notice.edata > 0) && (notice.edata < 4), "EDATA");
        next[notice.edata]++;
    }
    for (i = 1; (i < 4) && (conf_rank == 0); i++) {
        CONF_CHECK(next[i] == counts[i], "%u notices of %u VCQs of rank %u",
                   next[i], counts[i], i);
    }
    CONF_EXPECT_QUIET(&vcq);
    conf_barrier();
    for (i = 0; i < n; i++) {
        CONF_OK(utofu_free_vcq(hdls[i]));
    }
    conf_vcq_close(&vcq);
}

/* Ranks 0 and 1 join the jobs named; rank 0 puts and gets. */
static void across_jobs(bool same)
{
    struct conf_vcq vcq;
    uint64_t        words[2][8], source = 0x99;
    utofu_stadd_t   stadds[2], lcl;
    char            job[2][64];
    int             op;

    if (!conf_is_emulator()) {
        conf_skip("a process of a machine cannot choose its job");
    }
    /* Names that no other run of this test uses. */
    snprintf(job[0], sizeof(job[0]), "conformance-%d-a", (int)getppid());
    snprintf(job[1], sizeof(job[1]), "conformance-%d-%c", (int)getppid(),
             same ? 'a' : 'b');
    CONF_CHECK(setenv("UTOFU_EMU_JOB", job[conf_rank], 1) == 0, "setenv");
    memset(words, 0x44, sizeof(words));
    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, &source, sizeof(source), UTOFU_REG_MEM_FLAG_READ_ONLY);
    stadds[conf_rank] = 0;
    if (conf_rank == 1) {
        stadds[1] = conf_reg(&vcq, words, sizeof(words), 0);
    }
    conf_exchange(&stadds[conf_rank], sizeof(stadds[0]), stadds);
    for (op = 0; (op < 3) && (conf_rank == 0); op++) {
        struct utofu_mrq_notice notice;

        switch (op) {
        case 0:
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], lcl, stadds[1], 8, 0,
                              CONF_LMRQ | CONF_RMRQ, NULL));
            break;
        case 1:
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 7, stadds[1], 8,
                                         0, CONF_LMRQ | CONF_RMRQ, NULL));
            break;
        case 2:
            CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1,
                                stadds[1], 0, CONF_LMRQ | CONF_RMRQ, NULL));
            break;
        }
        if (same) {
            CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
        } else {
            /* The VCQ ID may name a VCQ of rank 0's own job instead. */
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_PEER,
                      UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_MEMORY,
                      UTOFU_ERR_MRQ_RMT_LENGTH, UTOFU_ERR_MRQ_OTHER);
        }
    }
    conf_barrier();
    if ((conf_rank == 1) && !same) {
        CONF_CHECK_BYTES(words, sizeof(words), 0x44, "memory of another job");
        CONF_EXPECT_QUIET(&vcq);
    } else if (conf_rank == 1) {
        CONF_CHECK(words[0][0] == 8, "the operations of the same job gave %"
                   PRIu64, words[0][0]);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("4.1.3", other_job_is_out_of_reach, 2,
          "processes of different jobs cannot reach each other")
{
    across_jobs(false);
}

CONF_TEST("4.1.3", same_job_is_in_reach, 2,
          "processes of the same job reach each other")
{
    across_jobs(true);
}
