/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_session_order.c - session mode: the local notice of a Put comes after the remote notice of the Put
 * that started it, and before an answer; also when who carries it dies.
 */
#include "harness.h"

#include "emu_session.h"
#include "own.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOT = 8 };

static uint64_t words[64] __attribute__((aligned(256)));

static struct emu_session *session_of(struct emu_process *shm, utofu_vcq_id_t id)
{
    for (unsigned v = 0; v < EMU_MAX_VCQS; v++) {
        if (shm->vcq[v].vcq_id == id) {
            return (struct emu_session *)(void *)((char *)shm + EMU_SESSIONS_OFF +
                                                  v * EMU_SESSION_SIZE(shm->session_entries));
        }
    }
    CONF_FAIL("no session");
}

CONF_TEST("session", local_notice_of_a_session, 1,
          "in session mode a local notice comes after that of the Put that started its own, and before the answer")
{
    struct conf_vcq first, relay, last;
    utofu_stadd_t   lcl, at_relay, at_last;

    conf_vcq_create(&first, 0, 0);
    conf_vcq_create(&relay, 1, UTOFU_VCQ_FLAG_SESSION_MODE);
    conf_vcq_create(&last, 2, 0);
    lcl      = conf_reg(&first, words, sizeof(words), 0);
    at_relay = conf_reg(&relay, words, sizeof(words), 0);
    at_last  = conf_reg(&last, words, sizeof(words), 0);
    for (unsigned i = 0; i < 3000; i++) {
        unsigned edata = i % 200, self = i % 5 == 0;

        CONF_POST(relay.hdl, utofu_put(relay.hdl, self ? relay.id : last.id, at_relay, (self ? at_relay : at_last) + SLOT,
                                       SLOT, edata, CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_POST(first.hdl, utofu_put(first.hdl, relay.id, lcl, at_relay, SLOT, edata + 1,
                                       CONF_RMRQ | UTOFU_ONESIDED_FLAG_SPS(1), NULL));
        CONF_POST(last.hdl, utofu_put_piggyback8(last.hdl, relay.id, i, at_relay + 2 * SLOT, SLOT, edata + 2, CONF_RMRQ,
                                                 NULL));
        CONF_EXPECT_MRQ(&relay, UTOFU_MRQ_TYPE_RMT_PUT, first.id, edata + 1, NULL);
        CONF_EXPECT_MRQ(self ? &relay : &last, UTOFU_MRQ_TYPE_RMT_PUT, relay.id, edata, NULL);
        CONF_EXPECT_MRQ(&relay, UTOFU_MRQ_TYPE_LCL_PUT, self ? relay.id : last.id, edata, NULL);
        CONF_EXPECT_MRQ(&relay, UTOFU_MRQ_TYPE_RMT_PUT, last.id, edata + 2, NULL);
        if (i % 500 == 499) {
            void *cbdata;

            CONF_CODE(utofu_poll_tcq(relay.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
            CONF_CODE(utofu_poll_tcq(first.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
            CONF_CODE(utofu_poll_tcq(last.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        }
    }
    CONF_EXPECT_QUIET(&relay);
    conf_vcq_close(&last);
    conf_vcq_close(&relay);
    conf_vcq_close(&first);
}

/* A relay's Put to `last`, and what there is of it when a carrier was killed: `written` by test, as no
 * process is killed at one instruction on purpose. */
struct scene {
    struct conf_vcq     first, relay, last;
    utofu_stadd_t       lcl, at_relay, at_last;
    struct emu_process *shm;
    struct emu_session *session;
};

static void scene_open(struct scene *s)
{
    conf_vcq_create(&s->first, 0, 0);
    conf_vcq_create(&s->relay, 1, UTOFU_VCQ_FLAG_SESSION_MODE);
    conf_vcq_create(&s->last, 2, 0);
    s->lcl      = conf_reg(&s->first, words, sizeof(words), 0);
    s->at_relay = conf_reg(&s->relay, words, sizeof(words), 0);
    s->at_last  = conf_reg(&s->last, words, sizeof(words), 0);
    s->shm      = own_segment();
    s->session  = session_of(s->shm, s->relay.id);
}

static void scene_close(struct scene *s)
{
    munmap(s->shm, s->shm->size);
    conf_vcq_close(&s->last);
    conf_vcq_close(&s->relay);
    conf_vcq_close(&s->first);
}

/* Rank 1 starts a Put of rank 0, who looks for its notice all the time. */
static void owner_polls(unsigned vcqs, unsigned rounds)
{
    struct utofu_mrq_notice first, second;
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    _Atomic uint64_t       *ready;
    unsigned                early = 0, spins = 0;
    void                   *cbdata;

    conf_timeout(60 * conf_patience);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    ready = (_Atomic uint64_t *)(void *)mem.addr;
    conf_pin();
    for (unsigned v = 0; v < vcqs; v++) {
        conf_vcq_open(&vcq, 0, (conf_rank == 0) ? UTOFU_VCQ_FLAG_SESSION_MODE : 0);
        memset(mem.addr, 0, mem.size);
        conf_reg_all(&vcq, mem.addr, mem.size, stadds);
        conf_barrier();
        for (unsigned i = 1; i <= rounds; i++) {
            if (conf_rank == 0) { /* its Put tells the other rank that it may be started: by the next one's data */
                CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], SLOT, 1, CONF_LMRQ, NULL));
                CONF_OK(CONF_WAIT_MRQ(&vcq, &first));
                CONF_OK(CONF_WAIT_MRQ(&vcq, &second));
                early += (first.notice_type != UTOFU_MRQ_TYPE_RMT_PUT) || (second.notice_type != UTOFU_MRQ_TYPE_LCL_PUT);
                CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
            } else {
                double end = conf_now() + CONF_WAIT;

                atomic_store(&ready[1], i);
                CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[0], stadds[1] + SLOT, stadds[0], SLOT, 2,
                                             CONF_RMRQ | UTOFU_ONESIDED_FLAG_SPS(1), NULL));
                while (atomic_load(&ready[0]) != i) {
                    CONF_CHECK(conf_now() < end, "round %u", i);
                    conf_relax(&spins);
                }
                CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
            }
        }
        conf_barrier();
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_vcq_close(&vcq);
    }
    CONF_CHECK(early == 0, "%u of %u were read before that of the Put that started it", early, vcqs * rounds);
    conf_mem_free(&mem);
}

CONF_TEST("session", local_notice_while_its_owner_polls, 2, "also when its owner looks for it all the time")
{
    owner_polls(1, 20000);
}

CONF_TEST("session", local_notice_beside_a_first_one, 2, "also where that Put is its sender's first one")
{
    owner_polls(300, 2);
}

CONF_TEST("session", local_notice_beside_a_first_one_strict, 2, "also in the strict mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    owner_polls(50, 4);
}

CONF_TEST("session", local_notice_of_a_killed_starter, 2,
          "who is killed before he tells what he started keeps no local notice back, who is stopped not for long")
{
    struct scene s;

    if (conf_rank == 0) {
        scene_open(&s);
        CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, 9, CONF_LMRQ, NULL));
    }
    for (int dead = 0; dead < 2; dead++) { /* rank 1 has started something */
        uint64_t who = (uint64_t)getpid(), all[2];

        conf_exchange(&who, sizeof(who), all);
        if (conf_rank == 0) {
            double before = conf_now();

            s.session->untold[dead].word = dead ? 0x3ffffffe : all[1];
            s.session->credits++;
            CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_LCL_PUT, s.last.id, 9 + (unsigned)dead, NULL);
            CONF_CHECK(dead || (conf_now() - before > 0.05), "it did not wait");
            CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, 10, CONF_LMRQ, NULL));
        }
        conf_barrier();
    }
    if (conf_rank == 0) {
        CONF_OK(utofu_put(s.first.hdl, s.relay.id, s.lcl, s.at_relay, SLOT, 1,
                          CONF_RMRQ | UTOFU_ONESIDED_FLAG_SPS(1), NULL));
        CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_RMT_PUT, s.first.id, 1, NULL);
        CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_LCL_PUT, s.last.id, 10, NULL);
        scene_close(&s);
    }
}

CONF_TEST("session", local_notices_beside_a_stopped_starter, 2,
          "who is stopped before he tells what he started holds up the next local notice, and none after it")
{
    struct scene s;
    uint64_t     who = (uint64_t)getpid(), all[2];
    double       before;

    conf_exchange(&who, sizeof(who), all);
    if (conf_rank == 0) {
        scene_open(&s);
        s.session->untold[0].word = all[1];
        before                    = conf_now();
        for (unsigned i = 0; i < 20; i++) {
            CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, i, CONF_LMRQ, NULL));
            CONF_OK(utofu_put(s.first.hdl, s.relay.id, s.lcl, s.at_relay, SLOT, 1, UTOFU_ONESIDED_FLAG_SPS(1), NULL));
            CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_LCL_PUT, s.last.id, i, NULL);
        }
        CONF_CHECK(conf_now() - before > 0.05, "it did not wait");
        CONF_CHECK(conf_now() - before < 1, "20 of them took %.3f s", conf_now() - before);
        scene_close(&s);
    }
    conf_barrier();
}

CONF_TEST("session", local_notice_of_a_dead_carrier, 1, "a local notice has the place that who began its Put gave it")
{
    struct scene s;

    scene_open(&s);
    CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, 9, CONF_LMRQ, NULL));
    CONF_OK(utofu_put(s.first.hdl, s.relay.id, s.lcl, s.at_relay, SLOT, 1, CONF_RMRQ, NULL));
    /* a carrier began, moved the data and was killed */
    for (unsigned v = 0; v < EMU_MAX_VCQS; v++) {
        if (s.shm->vcq[v].vcq_id == s.relay.id) {
            s.session->stamp = EMU_ENTRY_STAMPED | (uint64_t)s.shm->vcq[v].stamps++ << EMU_ENTRY_STAMP_SHIFT;
        }
    }
    s.session->step = (uint64_t)1 << EMU_STEP_DEATHS_SHIFT | EMU_STEP_MOVED;
    s.session->credits++;
    CONF_OK(utofu_put(s.last.hdl, s.relay.id, s.at_last, s.at_relay, SLOT, 2, CONF_RMRQ, NULL)); /* the answer */
    CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_RMT_PUT, s.first.id, 1, NULL);
    CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_LCL_PUT, s.last.id, 9, NULL);
    CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_RMT_PUT, s.last.id, 2, NULL);
    scene_close(&s);
}

CONF_TEST("session", lane_of_a_dead_carrier, 1, "a carrier that is killed while it says how far its lane is loses nothing")
{
    struct emu_session_lane *lane;
    struct scene             s;

    scene_open(&s);
    lane = &s.session->lane[0];
    CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, 9, CONF_RMRQ, NULL));
    CONF_OK(utofu_put(s.first.hdl, s.relay.id, s.lcl, s.at_relay, SLOT, 1, UTOFU_ONESIDED_FLAG_SPS(1), NULL));
    /* the notice is there, of what follows anything may be written */
    lane->at[lane->current & 1].wr_a ^= 0x55;
    lane->at[lane->current & 1].next ^= 0x55;
    lane->current ^= 1;
    s.session->started     = 0;
    s.session->claimed     = 0;
    s.session->lane_before = 0;
    s.session->step        = (uint64_t)1 << EMU_STEP_DEATHS_SHIFT | EMU_STEP_NOTIFYING;
    CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, 10, CONF_RMRQ, NULL));
    CONF_OK(utofu_put(s.first.hdl, s.relay.id, s.lcl, s.at_relay, SLOT, 1, UTOFU_ONESIDED_FLAG_SPS(1), NULL));
    CONF_EXPECT_MRQ(&s.last, UTOFU_MRQ_TYPE_RMT_PUT, s.relay.id, 9, NULL);
    CONF_EXPECT_MRQ(&s.last, UTOFU_MRQ_TYPE_RMT_PUT, s.relay.id, 10, NULL);
    CONF_EXPECT_QUIET(&s.last);
    scene_close(&s);
}

CONF_TEST("session", local_notice_waits_for_its_own_starter, 2,
          "a local notice waits for who started its Put, whoever else was waited for before")
{
    struct utofu_mrq_notice notice;
    struct scene            s;
    uint64_t                who = (uint64_t)getpid(), all[2];

    conf_exchange(&who, sizeof(who), all);
    if (conf_rank == 0) {
        scene_open(&s);
        CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, 1, CONF_LMRQ, NULL));
        s.session->untold[0].word = all[1]; /* rank 1 starts it, and has not told it yet */
        s.session->credits++;
        CONF_CODE(utofu_poll_mrq(s.relay.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
        s.session->untold[0].word = 0;
        CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, 2, CONF_LMRQ, NULL));
        usleep(150000);
        s.session->untold[1].word = all[1]; /* now the next one */
        s.session->credits++;
        CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_LCL_PUT, s.last.id, 1, NULL);
        for (double end = conf_now() + 0.01; conf_now() < end;) {
            CONF_CODE(utofu_poll_mrq(s.relay.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
        }
        s.session->untold[1].word = 0;
        s.session->untold[2].word = all[1]; /* who starts something else is not waited for */
        CONF_OK(utofu_poll_mrq(s.relay.hdl, 0, &notice));
        CONF_CHECK(notice.edata == 2, "EDATA %d", (int)notice.edata);
        s.session->untold[2].word = 0;
        scene_close(&s);
    }
    conf_barrier();
}

CONF_TEST("session", stamps_are_for_notices, 1, "operations of a session-mode VCQ without notices take no stamps")
{
    struct scene s;
    uint64_t     before = 0, after = 0;

    scene_open(&s);
    for (unsigned i = 0; i < 101; i++) {
        CONF_OK(utofu_put(s.relay.hdl, s.last.id, s.at_relay, s.at_last, SLOT, 1, (i == 50) ? CONF_LMRQ : 0, NULL));
        CONF_OK(utofu_nop(s.relay.hdl, 0, NULL));
        CONF_OK(utofu_put(s.first.hdl, s.relay.id, s.lcl, s.at_relay, SLOT, 1, UTOFU_ONESIDED_FLAG_SPS(2), NULL));
        for (unsigned v = 0; v < EMU_MAX_VCQS; v++) {
            after = (s.shm->vcq[v].vcq_id == s.relay.id) ? (uint64_t)s.shm->vcq[v].stamps : after;
        }
        before = (i == 0) ? after : before;
    }
    CONF_EXPECT_MRQ(&s.relay, UTOFU_MRQ_TYPE_LCL_PUT, s.last.id, 1, NULL);
    CONF_CHECK(after == before + 1, "%llu stamps of one notice", (unsigned long long)(after - before));
    scene_close(&s);
}

/* Rank 1 shows a VCQ of its, and memory; rank 0's relay puts to it, and it has the notice. */
static void relayed_to(struct conf_vcq *relay, struct conf_vcq *first, struct conf_vcq *target, utofu_stadd_t here,
                       utofu_stadd_t at_relay)
{
    struct {
        utofu_vcq_id_t id;
        utofu_stadd_t  stadd;
    } mine = {0, 0}, all[2];

    if (conf_rank == 1) {
        mine.id    = target->id;
        mine.stadd = conf_reg(target, words, sizeof(words), 0);
    }
    conf_exchange(&mine, sizeof(mine), all);
    if (conf_rank == 0) {
        CONF_POST(relay->hdl, utofu_put(relay->hdl, all[1].id, at_relay, all[1].stadd, SLOT, 5, CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_POST(first->hdl, utofu_put(first->hdl, relay->id, here, at_relay, SLOT, 0, UTOFU_ONESIDED_FLAG_SPS(1), NULL));
        CONF_EXPECT_MRQ(relay, UTOFU_MRQ_TYPE_LCL_PUT, all[1].id, 5, NULL);
    }
    conf_barrier();
    if (conf_rank == 1) {
        struct utofu_mrq_notice notice;

        CONF_OK(CONF_WAIT_MRQ(target, &notice));
        CONF_CHECK((notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT) && (notice.edata == 5), "another notice");
    }
    conf_barrier();
}

static void with_component(struct conf_vcq *vcq, utofu_cmp_id_t component)
{
    vcq->tni = conf_tni(0);
    CONF_OK(utofu_create_vcq_with_cmp_id(vcq->tni, component, 0, &vcq->hdl));
    CONF_OK(utofu_query_vcq_id(vcq->hdl, &vcq->id));
}

CONF_TEST("session", relay_to_an_id_that_came_back, 2,
          "the notice of a relay's Put comes to the VCQ that has the ID now, whatever had it before")
{
    struct conf_vcq relay = {0}, first = {0}, target[4] = {{0}};
    utofu_stadd_t   here = 0, at_relay = 0;

    if (conf_rank == 0) {
        conf_vcq_create(&relay, 1, UTOFU_VCQ_FLAG_SESSION_MODE);
        conf_vcq_create(&first, 2, 0);
        here     = conf_reg(&first, words, sizeof(words), 0);
        at_relay = conf_reg(&relay, words, sizeof(words), 0);
    } else {
        with_component(&target[0], 1);
    }
    relayed_to(&relay, &first, &target[0], here, at_relay);
    if (conf_rank == 1) { /* the third takes the place of the first, whose ID the fourth has */
        with_component(&target[1], 2);
        conf_vcq_close(&target[0]);
        with_component(&target[2], 3);
        with_component(&target[3], 1);
        CONF_CHECK(target[3].id == target[0].id, "the ID is another one");
    }
    relayed_to(&relay, &first, &target[3], here, at_relay);
}
