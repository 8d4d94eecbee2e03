/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_target.c - one-sidedness: every kind of memory is reached, whatever its
 * process does or does not do meanwhile (2.2.3, 2.2.4).
 */
#include "harness.h"

#include <inttypes.h>
#include <unistd.h>

#define SIZE 20000

static const size_t lengths[] = {8, 100, 4096, 12345};

/* Rank 0 puts to and gets from memory of rank 1, for one pair of kinds. */
static void exchange_kinds(const struct conf_vcq *vcq, enum conf_kind local,
                           enum conf_kind remote)
{
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];
    unsigned        seed = local * 16 + remote;
    size_t          i;

    conf_mem_alloc(&mem, (conf_rank == 0) ? local : remote, SIZE);
    conf_reg_all(vcq, mem.addr, mem.size, stadds);
    for (i = 0; i < CONF_LEN(lengths); i++) {
        if (conf_rank == 0) {
            conf_fill(mem.addr + 3, lengths[i], seed + i);
            CONF_OK(utofu_put(vcq->hdl, vcq->peer[1], stadds[0] + 3,
                              stadds[1] + 101, lengths[i], i, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq->peer[1], i, NULL);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK_FILL(mem.addr + 101, lengths[i], seed + i,
                            conf_kind_name(remote));
            /* What the CPU stores is what a get sees. */
            conf_fill(mem.addr + 200, lengths[i], seed + i + 1);
        }
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_get(vcq->hdl, vcq->peer[1], stadds[0] + 77,
                              stadds[1] + 200, lengths[i], i, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq->peer[1], i, NULL);
            CONF_CHECK_FILL(mem.addr + 77, lengths[i], seed + i + 1,
                            conf_kind_name(local));
        }
        conf_barrier();
    }
    conf_dereg(vcq, stadds[conf_rank]);
    conf_mem_free(&mem);
}

CONF_TEST("3.6", every_kind_of_memory, 2,
          "memory of the heap, the stack, the program, private and shared "
          "mappings can be source and target, in every combination")
{
    _Alignas(16) unsigned char frame[CONF_STACK_SIZE];
    struct conf_vcq vcq;
    int             local, remote;

    conf_mem_lend_stack(frame + 40, sizeof(frame) - 40);
    conf_vcq_open(&vcq, 0, 0);
    for (local = 0; local < CONF_MEM_NUM; local++) {
        for (remote = 0; remote < CONF_MEM_NUM; remote++) {
            exchange_kinds(&vcq, local, remote);
        }
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("2.2.1", same_process, 1,
          "two VCQs of one process, and a VCQ with itself, communicate like "
          "those of two processes, from and to every kind of memory")
{
    _Alignas(16) unsigned char frame[CONF_STACK_SIZE];
    struct conf_vcq         a, b;
    struct conf_vcq        *to;
    struct conf_mem         source, target;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           from, at;
    int                     kind, self, i, local, remote;

    conf_mem_lend_stack(frame, sizeof(frame));
    conf_vcq_create(&a, 0, 0);
    conf_vcq_create(&b, 1, 0);
    for (kind = 0; kind < CONF_MEM_NUM; kind++) {
        for (self = 0; self < 2; self++) {
            to = self ? &a : &b;
            conf_mem_alloc(&source, CONF_MEM_MALLOC, SIZE);
            conf_mem_alloc(&target, kind, SIZE);
            from = conf_reg(&a, source.addr, SIZE, 0);
            at   = conf_reg(to, target.addr, SIZE, 0);
            conf_fill(source.addr, SIZE, kind);
            CONF_OK(utofu_put(a.hdl, to->id, from, at, SIZE, kind,
                              CONF_TCQ | CONF_LMRQ | CONF_RMRQ, CONF_PTR(9)));
            CONF_EXPECT_TCQ(&a, CONF_PTR(9));
            for (i = local = remote = 0; i < 2; i++) {
                CONF_OK(CONF_WAIT_MRQ((self || (i == 0)) ? &a : &b, &notice));
                CONF_CHECK(notice.edata == (uint64_t)kind, "EDATA");
                CONF_CHECK(notice.rmt_stadd == at + SIZE, "rmt_stadd");
                if (notice.notice_type == UTOFU_MRQ_TYPE_LCL_PUT) {
                    local++;
                    CONF_CHECK(notice.vcq_id == to->id, "peer of the origin");
                } else {
                    CONF_CHECK(notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT,
                               "notice type %d", notice.notice_type);
                    remote++;
                    CONF_CHECK(notice.vcq_id == a.id, "peer of the target");
                }
            }
            CONF_CHECK((local == 1) && (remote == 1), "%d local, %d remote",
                       local, remote);
            CONF_CHECK_FILL(target.addr, SIZE, kind, conf_kind_name(kind));
            conf_fill(target.addr, SIZE, kind + 1);
            CONF_OK(utofu_get(a.hdl, to->id, from, at, SIZE, kind, CONF_LMRQ,
                              NULL));
            CONF_EXPECT_MRQ(&a, UTOFU_MRQ_TYPE_LCL_GET, to->id, kind, NULL);
            CONF_CHECK_FILL(source.addr, SIZE, kind + 1, "get");
            *(uint64_t *)(target.addr + 8 - (uintptr_t)target.addr % 8) = 40;
            CONF_OK(utofu_armw8(a.hdl, to->id, UTOFU_ARMW_OP_ADD, 2,
                                at + 8 - (uintptr_t)target.addr % 8, kind,
                                CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&a, UTOFU_MRQ_TYPE_LCL_ARMW, to->id, kind, &notice);
            CONF_CHECK(notice.rmt_value == 40, "old value %" PRIu64,
                       notice.rmt_value);
            CONF_EXPECT_QUIET(&a);
            CONF_EXPECT_QUIET(&b);
            conf_dereg(&a, from);
            conf_dereg(to, at);
            conf_mem_free(&target);
            conf_mem_free(&source);
        }
    }
    conf_vcq_close(&a);
    conf_vcq_close(&b);
}

CONF_TEST("2.2.3", notices_of_one_operation, 2,
          "what one operation tells comes in the order of its steps: when the "
          "local notice was read, its TCQ entry is there and the target finds "
          "its notice; a VCQ that is its own target reads that one first")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice first, second;
    utofu_stadd_t           all[2], from, at;
    uint64_t                word[8] = {0};
    void                    *cbdata;
    int                     kind, turn, self, read = 0;

    conf_vcq_open(&vcq, 0, 0);
    from = conf_reg_all(&vcq, word, sizeof(word), all);
    for (turn = 0; turn < 60; turn++) {
        kind = turn % 3;
        self = turn / 3 % 2;
        at   = all[self ? conf_rank : !conf_rank];
        if (self || (conf_rank == 0)) {
            utofu_vcq_id_t to = vcq.peer[self ? conf_rank : 1];

            CONF_OK((kind == 0) ? utofu_put(vcq.hdl, to, from, at + 32, 8, turn,
                                            CONF_TCQ | CONF_LMRQ | CONF_RMRQ, NULL) :
                    (kind == 1) ? utofu_get(vcq.hdl, to, from, at + 32, 8, turn,
                                            CONF_TCQ | CONF_LMRQ | CONF_RMRQ, NULL) :
                                  utofu_armw8(vcq.hdl, to, UTOFU_ARMW_OP_ADD, 1, at + 40, turn,
                                              CONF_TCQ | CONF_LMRQ | CONF_RMRQ, NULL));
            CONF_OK(CONF_WAIT_MRQ(&vcq, &first));
            CONF_OK(utofu_poll_tcq(vcq.hdl, 0, &cbdata));
            if (self) {
                CONF_OK(CONF_WAIT_MRQ(&vcq, &second));
                CONF_CHECK((first.notice_type == 2 * kind + 1) && (second.notice_type == 2 * kind),
                           "operation %d: notices of types %d and %d", kind, first.notice_type,
                           second.notice_type);
            }
        }
        conf_barrier();
        if (!self && (conf_rank == 1)) {
            CONF_OK(utofu_poll_mrq(vcq.hdl, 0, &first));
            CONF_CHECK(first.edata == (uint64_t)turn, "EDATA %d", (int)first.edata);
            read++;
        }
        conf_barrier();
    }
    CONF_CHECK(read == (conf_rank ? 30 : 0), "%d notices of the other", read);
    conf_dereg(&vcq, from);
    conf_vcq_close(&vcq);
}

CONF_TEST("2.2.1", two_vcqs_are_separate, 2,
          "what one VCQ starts and receives is reported to this VCQ only, also "
          "when both share a CQ")
{
    struct conf_vcq a, b;
    uint64_t        words[4];
    utofu_stadd_t   sa[2], sb[2];
    int             i;

    memset(words, 0, sizeof(words));
    conf_vcq_open(&a, 0, 0);
    conf_vcq_open(&b, 0, 0);
    conf_reg_all(&a, words, sizeof(words), sa);
    conf_reg_all(&b, words, sizeof(words), sb);
    for (i = 0; i < 20; i++) {
        if (conf_rank == 0) {
            CONF_OK(utofu_put(a.hdl, b.peer[1], sa[0], sb[1] + 8, 8, i,
                              CONF_TCQ | CONF_LMRQ | CONF_RMRQ, CONF_PTR(i)));
            CONF_OK(utofu_put(b.hdl, a.peer[1], sb[0], sa[1] + 16, 8, i + 100,
                              CONF_TCQ | CONF_LMRQ | CONF_RMRQ,
                              CONF_PTR(i + 100)));
            CONF_EXPECT_TCQ(&b, CONF_PTR(i + 100));
            CONF_EXPECT_TCQ(&a, CONF_PTR(i));
            CONF_EXPECT_MRQ(&b, UTOFU_MRQ_TYPE_LCL_PUT, a.peer[1], i + 100,
                            NULL);
            CONF_EXPECT_MRQ(&a, UTOFU_MRQ_TYPE_LCL_PUT, b.peer[1], i, NULL);
        } else {
            CONF_EXPECT_MRQ(&b, UTOFU_MRQ_TYPE_RMT_PUT, a.peer[0], i, NULL);
            CONF_EXPECT_MRQ(&a, UTOFU_MRQ_TYPE_RMT_PUT, b.peer[0], i + 100,
                            NULL);
        }
    }
    CONF_EXPECT_QUIET(&a);
    CONF_EXPECT_QUIET(&b);
    conf_barrier();
    conf_dereg(&a, sa[conf_rank]);
    conf_dereg(&b, sb[conf_rank]);
    conf_vcq_close(&a);
    conf_vcq_close(&b);
}

CONF_TEST("2.2.3", target_only_polls_memory, 2,
          "a put arrives while its target does nothing but load from memory, "
          "for every kind of memory")
{
    _Alignas(16) unsigned char frame[CONF_STACK_SIZE];
    struct conf_vcq    vcq;
    struct conf_mem    mem;
    utofu_stadd_t      stadds[2];
    volatile uint64_t *word;
    uint64_t           round;
    unsigned           spins = 0;
    double             end;
    int                kind;

    conf_mem_lend_stack(frame, sizeof(frame));
    conf_vcq_open(&vcq, 0, 0);
    for (kind = 0; kind < CONF_MEM_NUM; kind++) {
        conf_mem_alloc(&mem, kind, SIZE);
        conf_reg_all(&vcq, mem.addr, SIZE, stadds);
        CONF_CHECK((uintptr_t)mem.addr % 8 == 0, "%s is not aligned",
                   conf_kind_name(kind));
        word = (uint64_t *)(mem.addr + 8);
        end  = conf_now() + CONF_WAIT;
        /* Ping-pong by memory alone; notices are not asked for. */
        for (round = 1; round <= 200; round++) {
            if (conf_rank == 0) {
                CONF_POST(vcq.hdl,
                          utofu_put_piggyback8(vcq.hdl, vcq.peer[1], round,
                                               stadds[1] + 8, 8, 0, CONF_STRONG,
                                               NULL));
            }
            while (*word != round) {
                CONF_CHECK(conf_now() < end, "round %" PRIu64 ", %s: no put",
                           round, conf_kind_name(kind));
                conf_relax(&spins);
            }
            if (conf_rank == 1) {
                CONF_POST(vcq.hdl,
                          utofu_put_piggyback8(vcq.hdl, vcq.peer[0], round,
                                               stadds[0] + 8, 8, 0, CONF_STRONG,
                                               NULL));
            }
        }
        CONF_EXPECT_QUIET(&vcq);
        conf_barrier();
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("2.2.3", stopped_target, 2,
          "puts, piggyback puts and gets complete while the target process is "
          "stopped; its notices are there when it goes on")
{
    enum { PER_KIND = 40 };
    static const enum conf_kind kinds[] = {CONF_MEM_MALLOC, CONF_MEM_MEMFD,
                                           CONF_MEM_STATIC, CONF_MEM_SHM,
                                           CONF_MEM_ANON};
    struct conf_vcq vcq;
    struct conf_mem mems[CONF_LEN(kinds)];
    utofu_stadd_t   mine[CONF_LEN(kinds)], all[2 * CONF_LEN(kinds)], rmt;
    struct conf_mem source;
    utofu_stadd_t   lcl;
    size_t          k;
    int             i;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&source, CONF_MEM_MALLOC, 2 * SIZE);
    lcl = conf_reg(&vcq, source.addr, source.size, 0);
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mems[k], kinds[k], SIZE);
        conf_fill(mems[k].addr, 1000, k);
        mine[k] = conf_reg(&vcq, mems[k].addr, SIZE, 0);
    }
    conf_exchange(mine, sizeof(mine), all);
    if (conf_rank == 0) {
        conf_stop(1);
        for (k = 0; k < CONF_LEN(kinds); k++) {
            rmt = all[CONF_LEN(kinds) + k];
            for (i = 0; i < PER_KIND; i++) {
                conf_fill(source.addr, 3000, i);
                CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], lcl, rmt + 2000, 3000,
                                  i, CONF_LMRQ | CONF_RMRQ, NULL));
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], i,
                                NULL);
                CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], i,
                                             rmt + 6000, 8, i, CONF_LMRQ,
                                             NULL));
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], i,
                                NULL);
                CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], lcl + SIZE, rmt + 2000,
                                  3000, i, CONF_LMRQ, NULL));
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], i,
                                NULL);
                CONF_CHECK_FILL(source.addr + SIZE, 3000, i,
                                "get from a stopped process");
            }
            CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], lcl + SIZE, rmt, 1000, 0,
                              CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 0, NULL);
            CONF_CHECK_FILL(source.addr + SIZE, 1000, k,
                            conf_kind_name(kinds[k]));
        }
        conf_continue(1);
    }
    conf_barrier();
    for (k = 0; (k < CONF_LEN(kinds)) && (conf_rank == 1); k++) {
        CONF_CHECK_FILL(mems[k].addr + 2000, 3000, PER_KIND - 1,
                        conf_kind_name(kinds[k]));
        for (i = 0; i < PER_KIND; i++) {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[0], i, NULL);
        }
    }
    CONF_EXPECT_QUIET(&vcq);
    conf_barrier();
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_dereg(&vcq, mine[k]);
        conf_mem_free(&mems[k]);
    }
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
    conf_mem_free(&source);
}

/* ARMW on memory of a stopped process. */
static void armw_while_stopped(enum conf_kind kind, bool must_complete)
{
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[2];
    double                  begin;
    int                     i;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, kind, 4096);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    if (conf_rank == 0) {
        conf_stop(1);
        begin = conf_now();
        for (i = 0; i < 20; i++) {
            CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1,
                                stadds[1] + 16, i, CONF_LMRQ | CONF_STRONG, NULL));
            if (must_complete) {
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], i,
                                &notice);
                CONF_CHECK(notice.rmt_value == (uint64_t)i, "old value");
            }
        }
        /* 1.2: every function returns in finite time. */
        CONF_CHECK(conf_now() - begin < 2, "posting took %.1f s",
                   conf_now() - begin);
        conf_continue(1);
        for (i = 0; (i < 20) && !must_complete; i++) {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], i,
                            &notice);
            CONF_CHECK(notice.rmt_value == (uint64_t)i, "old value");
        }
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (*(uint64_t *)(mem.addr + 16) == 20),
               "sum %" PRIu64, *(uint64_t *)(mem.addr + 16));
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("2.2.5", stopped_target_armw_shared, 2,
          "ARMW on shared memory completes while the target process is "
          "stopped")
{
    armw_while_stopped(CONF_MEM_MEMFD, true);
}

CONF_TEST("1.2", stopped_target_armw_private, 2,
          "posting an ARMW on private memory of a stopped process returns at "
          "once, and the operation completes when the process goes on")
{
    armw_while_stopped(CONF_MEM_ANON, false);
}

CONF_TEST("2.2.3", sleeping_target_many_puts, 2,
          "thousands of puts complete while the target sleeps in the kernel")
{
    enum { NUM = 5000 };
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];
    uint64_t        i;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_ANON, NUM * 8);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    for (i = 0; (i < NUM) && (conf_rank == 0); i++) {
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], i * 3 + 1,
                                     stadds[1] + i * 8, 8, i % 256, CONF_LMRQ,
                                     NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], i % 256,
                        NULL);
        if (i % 64 == 0) {
            void *cbdata;
            CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        }
    }
    conf_barrier();
    for (i = 0; (i < NUM) && (conf_rank == 1); i++) {
        CONF_CHECK(((uint64_t *)mem.addr)[i] == i * 3 + 1, "word %" PRIu64, i);
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}
