/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_lifetime.c - memory, VCQs and processes that go away, or come back, while
 * others know them (3.3.1, 3.6).
 */
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#define TNI_VCQS (9 * 8) /* tables 6.2 and 6.3 */

CONF_TEST("3.6", register_again_elsewhere, 2,
          "memory that is registered, deregistered and released again and "
          "again is always reached where it is now")
{
    enum { ROUNDS = 100 };
    static const enum conf_kind kinds[] = {CONF_MEM_ANON, CONF_MEM_MEMFD,
                                           CONF_MEM_MALLOC,
                                           CONF_MEM_ANON_SHARED};
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2], lcl;
    uint64_t        source;
    int             round;

    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, &source, sizeof(source), 0);
    for (round = 0; round < ROUNDS; round++) {
        conf_mem_alloc(&mem, kinds[round % CONF_LEN(kinds)],
                       8192 + round % 5 * 4096);
        conf_reg_all(&vcq, mem.addr, mem.size, stadds);
        if (conf_rank == 0) {
            source = round + 1;
            conf_put_word(&vcq, vcq.peer[1], lcl, stadds[1] + mem.size - 8);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK(*(uint64_t *)(mem.addr + mem.size - 8) ==
                               (uint64_t)round + 1,
                       "round %d: the put did not reach the %s", round,
                       conf_kind_name(mem.kind));
        }
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
        conf_barrier();
    }
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.6", shrunk_file, 2,
          "a put into a mapping whose file was cut off meanwhile ends, with "
          "success or an error, and harms neither process")
{
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    struct utofu_mrq_notice notice;
    size_t                  page = sysconf(_SC_PAGESIZE);
    utofu_stadd_t           stadds[2], lcl;
    uint64_t                source = 1;
    void                   *cbdata;
    int                     rc;

    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, &source, sizeof(source), 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4 * page);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    if (conf_rank == 0) {
        /* The peer's memory has been used before it shrinks. */
        conf_put_word(&vcq, vcq.peer[1], lcl, stadds[1] + 3 * page);
    }
    conf_barrier();
    if (conf_rank == 1) {
        /* A sealed file cannot shrink, which is as good an answer. */
        if (ftruncate(mem.fd, page) != 0) {
            CONF_CHECK(errno == EPERM, "ftruncate: %s", strerror(errno));
        }
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], lcl, stadds[1] + 3 * page + 8,
                          8, 9, CONF_LMRQ | CONF_TCQ, NULL));
        rc = CONF_CODE(CONF_WAIT_TCQ(&vcq, &cbdata), UTOFU_SUCCESS,
                       UTOFU_ERR_TCQ_MEMORY, UTOFU_ERR_TCQ_OTHER);
        if (rc == UTOFU_SUCCESS) {
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_SUCCESS,
                      UTOFU_ERR_MRQ_RMT_MEMORY, UTOFU_ERR_MRQ_OTHER,
                      UTOFU_ERR_MRQ_RMT_STADD);
        }
        conf_put_word(&vcq, vcq.peer[1], lcl, stadds[1]);
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (*(uint64_t *)mem.addr == 1),
               "the page that was left was not reached");
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("3.6", unmapped_memory, 2,
          "a put to registered memory that was unmapped meanwhile ends, with "
          "success or an error, and harms neither process")
{
    static const enum conf_kind kinds[] = {CONF_MEM_ANON, CONF_MEM_MEMFD};
    struct conf_vcq             vcq;
    struct conf_mem             mem;
    struct utofu_mrq_notice     notice;
    utofu_stadd_t               stadds[2], lcl;
    uint64_t                    source = 1, word = 0, words[2];
    size_t                      k;

    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, &source, sizeof(source), 0);
    words[conf_rank] = conf_reg(&vcq, &word, sizeof(word), 0);
    conf_exchange(&words[conf_rank], sizeof(words[0]), words);
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mem, kinds[k], 16384);
        conf_reg_all(&vcq, mem.addr, mem.size, stadds);
        if (conf_rank == 0) {
            conf_put_word(&vcq, vcq.peer[1], lcl, stadds[1]);
        }
        conf_barrier();
        if (conf_rank == 1) {
            conf_mem_free(&mem);
        }
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], lcl, stadds[1], 8, 1,
                              CONF_LMRQ, NULL));
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_SUCCESS,
                      UTOFU_ERR_MRQ_RMT_MEMORY, UTOFU_ERR_MRQ_OTHER,
                      UTOFU_ERR_MRQ_RMT_STADD);
            source = k + 5;
            conf_put_word(&vcq, vcq.peer[1], lcl, words[1]);
            conf_mem_free(&mem);
        }
        conf_barrier();
        CONF_CHECK((conf_rank == 0) || (word == k + 5),
                   "the put after the failed one did not arrive");
        conf_dereg(&vcq, stadds[conf_rank]);
    }
    conf_dereg(&vcq, words[conf_rank]);
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.6", freed_vcq_takes_its_stadds, 2,
          "a put to a VCQ that was freed with memory registered, and was "
          "reached before, is an MRQ_PEER error and leaves the memory alone")
{
    struct conf_vcq vcq, second;
    uint64_t        word = 0, source = 3;
    utofu_stadd_t   stadds[2], lcl;

    conf_vcq_open(&vcq, 0, 0);
    conf_vcq_open(&second, 0, 0);
    lcl = conf_reg(&second, &source, sizeof(source), 0);
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    if (conf_rank == 0) {
        conf_put_word(&second, vcq.peer[1], lcl, stadds[1]);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK(word == 3, "the first put did not arrive");
        word = 0;
    }
    conf_vcq_close(&vcq);
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_put(second.hdl, vcq.peer[1], lcl, stadds[1], 8, 2, 0,
                          NULL));
        CONF_EXPECT_MRQ_ERROR(&second, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 2,
                              UTOFU_ERR_MRQ_PEER);
    }
    conf_barrier();
    CONF_CHECK(word == 0, "a put reached memory of a freed VCQ");
    conf_dereg(&second, lcl);
    conf_vcq_close(&second);
}

CONF_TEST("3.3.1.2", recreated_vcq, 2,
          "a VCQ that is freed and made again with the same component ID, "
          "hence the same VCQ ID, takes operations and notices of peers that "
          "knew the one before, and none that were meant for it")
{
    enum { ROUNDS = 60 };
    struct conf_vcq vcq, mine;
    uint64_t        words[2], source;
    utofu_stadd_t   stadds[2], lcl;
    utofu_vcq_id_t  first[2];
    int             round;

    conf_vcq_open(&mine, 0, 0);
    lcl = conf_reg(&mine, &source, sizeof(source), 0);
    for (round = 0; round < ROUNDS; round++) {
        memset(&vcq, 0, sizeof(vcq));
        words[0] = words[1] = 0;
        CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(1), 6, 0, &vcq.hdl));
        CONF_OK(utofu_query_vcq_id(vcq.hdl, &vcq.id));
        conf_exchange(&vcq.id, sizeof(vcq.id), vcq.peer);
        if (round == 0) {
            memcpy(first, vcq.peer, sizeof(first));
        }
        CONF_CHECK(memcmp(first, vcq.peer, sizeof(first)) == 0,
                   "round %d: another VCQ ID", round);
        conf_reg_all(&vcq, words, sizeof(words), stadds);
        if (conf_rank == 0) {
            source = round + 1;
            CONF_POST(mine.hdl,
                      utofu_put(mine.hdl, vcq.peer[1], lcl, stadds[1] + 8, 8,
                                round, CONF_LMRQ | CONF_RMRQ, NULL));
            CONF_EXPECT_MRQ(&mine, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], round,
                            NULL);
            /* Some notices are never read. */
            CONF_POST(mine.hdl,
                      utofu_put(mine.hdl, vcq.peer[1], lcl, stadds[1], 8,
                                200, CONF_LMRQ | CONF_RMRQ, NULL));
            CONF_EXPECT_MRQ(&mine, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 200,
                            NULL);
        } else {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, mine.peer[0], round,
                            NULL);
            CONF_CHECK(words[1] == (uint64_t)round + 1, "round %d: data",
                       round);
        }
        conf_barrier();
        conf_vcq_close(&vcq);
        conf_barrier();
    }
    conf_dereg(&mine, lcl);
    conf_vcq_close(&mine);
}

CONF_TEST("3.3.1.3", resources_return_after_kill, 2,
          "the VCQs that a process held can be had again after it was killed")
{
    utofu_vcq_hdl_t hdls[TNI_VCQS];
    unsigned        n, taken = 0, counts[2];
    double          end = 0;

    CONF_CHECK(setenv("UTOFU_NUM_SESSION_MODE_CQS", "0", 1) == 0, "setenv");
    /* Rank 1 takes every VCQ of a TNI; where both ranks are processes of one
     * node, rank 0 can have none of them as long as it lives. */
    while ((conf_rank == 1) && (taken < TNI_VCQS) &&
           (utofu_create_vcq(conf_tni(0), 0, &hdls[taken]) == UTOFU_SUCCESS)) {
        taken++;
    }
    conf_exchange(&taken, sizeof(taken), counts);
    CONF_CHECK(counts[1] > 0, "rank 1 got no VCQ");
    if (conf_rank == 1) {
        conf_barrier(); /* killed here */
        CONF_FAIL("rank 1 is alive");
    }
    conf_kill(1);
    end = conf_now() + 5;
    for (n = 0; n < counts[1];) {
        if (utofu_create_vcq(conf_tni(0), 0, &hdls[n]) == UTOFU_SUCCESS) {
            n++;
        } else {
            CONF_CHECK(conf_now() < end, "%u of %u VCQs after 5 s", n,
                       counts[1]);
        }
    }
    while (n > 0) {
        CONF_OK(utofu_free_vcq(hdls[--n]));
    }
}
