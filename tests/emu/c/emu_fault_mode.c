/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_fault_mode.c - UTOFU_EMU_FAULT: each kind of rule does what docs/faults.md
 * says, to the operations it names and to no others.
 */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t words[64];

static void open_with(struct conf_vcq *vcq, utofu_stadd_t *stadd, const char *rules)
{
    CONF_CHECK(setenv("UTOFU_EMU_FAULT", rules, 1) == 0, "setenv");
    memset(words, 0, sizeof(words));
    conf_vcq_create(vcq, 0, 0);
    *stadd = conf_reg(vcq, words, sizeof(words), 0);
}

/* The code with which a put of `value` into words[1] ends, whichever queue says so */
static int put_ends(struct conf_vcq *vcq, utofu_stadd_t stadd, uint64_t value, unsigned long path_flag)
{
    struct utofu_mrq_notice notice;
    void                   *cbdata = NULL;
    int                     tcq, mrq;

    words[0] = value;
    CONF_OK(utofu_put(vcq->hdl, vcq->id, stadd, stadd + 8, 8, 7, CONF_TCQ | CONF_LMRQ | path_flag, CONF_PTR(5)));
    tcq = CONF_WAIT_TCQ(vcq, &cbdata);
    CONF_CHECK(cbdata == CONF_PTR(5), "cbdata %p", cbdata);
    if (tcq != UTOFU_SUCCESS) {
        CONF_EXPECT_QUIET(vcq);
        return tcq;
    }
    mrq = CONF_WAIT_MRQ(vcq, &notice);
    CONF_CHECK((notice.notice_type == UTOFU_MRQ_TYPE_LCL_PUT) && (notice.edata == 7) && (notice.vcq_id == vcq->id),
               "the notice is of another operation");
    return mrq;
}

CONF_TEST("fault", fault_after_and_count, 1, "after=2:count=1 fails the third put and no other, and moves nothing")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;

    open_with(&vcq, &s, "put:after=2:count=1:error=MRQ_RMT_STADD");
    for (uint64_t i = 1; i <= 6; i++) {
        int want = (i == 3) ? UTOFU_ERR_MRQ_RMT_STADD : UTOFU_SUCCESS;
        int got  = put_ends(&vcq, s, i, 0);
        CONF_CHECK(got == want, "put %d ended with %s", (int)i, conf_code_name(got));
        CONF_CHECK(words[1] == ((i == 3) ? 2 : i), "put %d left %d", (int)i, (int)words[1]);
    }
}

CONF_TEST("fault", fault_tcq_error, 1, "a TCQ code is in the TCQ, with the callback data, and nowhere else")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;

    open_with(&vcq, &s, "any:every=2:error=TCQ_MEMORY");
    for (uint64_t i = 0; i < 6; i++) {
        int want = (i % 2 == 0) ? UTOFU_ERR_TCQ_MEMORY : UTOFU_SUCCESS;
        int got  = put_ends(&vcq, s, i + 1, 0);
        CONF_CHECK(got == want, "put %d ended with %s", (int)i, conf_code_name(got));
    }
}

CONF_TEST("fault", fault_other_kinds_go_on, 1, "a rule about gets leaves puts and ARMWs alone")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           s;

    open_with(&vcq, &s, "get:error=MRQ_PEER");
    CONF_CHECK(put_ends(&vcq, s, 3, 0) == UTOFU_SUCCESS, "a put failed");
    CONF_OK(utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 4, s + 8, 1, CONF_LMRQ, NULL));
    CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "an ARMW failed");
    CONF_CHECK(notice.rmt_value == 3, "old value %d", (int)notice.rmt_value);
    CONF_OK(utofu_get(vcq.hdl, vcq.id, s + 64, s + 8, 8, 2, CONF_LMRQ, NULL));
    CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_ERR_MRQ_PEER, "the get did not fail");
    CONF_CHECK((words[1] == 7) && (words[8] == 0), "words %d, %d", (int)words[1], (int)words[8]);
}

CONF_TEST("fault", fault_prepared_too, 1, "prepared operations meet the same faults")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           s;
    uint64_t                desc[16];
    size_t                  size;
    int                     codes[3];

    open_with(&vcq, &s, "piggyback:after=1:count=1:error=MRQ_OTHER");
    CONF_OK(utofu_prepare_put_piggyback8(vcq.hdl, vcq.id, 9, s, 8, 1, CONF_LMRQ, desc, &size));
    for (int i = 0; i < 3; i++) {
        CONF_OK(utofu_post_toq(vcq.hdl, desc, size, NULL));
        codes[i] = CONF_WAIT_MRQ(&vcq, &notice);
    }
    CONF_CHECK((codes[0] == UTOFU_SUCCESS) && (codes[1] == UTOFU_ERR_MRQ_OTHER) && (codes[2] == UTOFU_SUCCESS),
               "codes %d %d %d", codes[0], codes[1], codes[2]);
}

CONF_TEST("fault", fault_seeded, 1, "prob draws the same faults from the same seed, and others from another")
{
    char first[3][65];

    for (int run = 0; run < 3; run++) {
        int   fds[2];
        pid_t child;

        CONF_CHECK(pipe(fds) == 0, "pipe");
        child = fork();
        if (child == 0) {
            struct conf_vcq vcq;
            utofu_stadd_t   s;
            char            seen[64];

            setenv("UTOFU_EMU_SEED", (run == 2) ? "77" : "5", 1);
            open_with(&vcq, &s, "put:prob=0.5:error=MRQ_PEER");
            for (int i = 0; i < 64; i++) {
                seen[i] = (put_ends(&vcq, s, i, 0) == UTOFU_SUCCESS) ? '.' : 'x';
            }
            _exit(write(fds[1], seen, 64) != 64);
        }
        close(fds[1]);
        memset(first[run], 0, 65);
        CONF_CHECK(read(fds[0], first[run], 64) == 64, "the child wrote nothing");
        close(fds[0]);
        waitpid(child, NULL, 0);
    }
    CONF_CHECK(strchr(first[0], 'x') && strchr(first[0], '.'), "%s", first[0]);
    CONF_CHECK(!strcmp(first[0], first[1]), "seed 5: %s, then %s", first[0], first[1]);
    CONF_CHECK(strcmp(first[0], first[2]), "seeds 5 and 77: %s", first[0]);
}

CONF_TEST("fault", fault_dead_peer, 2, "a node that is said to be dead is dead from that operation on, others are not")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[2];
    uint8_t                 coords[6], all[2][6];
    char                    rule[80];

    /* coordinates are known before rules are read: the same node as without rules */
    snprintf(rule, sizeof(rule), "0,0,0,0,0,%d", conf_rank);
    setenv("UTOFU_EMU_COORDS", rule, 1);
    if (conf_rank == 0) {
        setenv("UTOFU_EMU_FAULT", "any:peer=0,0,0,0,0,1:after=2:dead", 1);
    }
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    CONF_OK(utofu_query_my_coords(coords));
    conf_exchange(coords, 6, all);
    if (conf_rank == 0) {
        for (int i = 0; i < 5; i++) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], i, stadds[1], 8, i, CONF_LMRQ, NULL));
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), (i < 2) ? UTOFU_SUCCESS : UTOFU_ERR_MRQ_PEER);
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[0], i, stadds[0], 8, i, CONF_LMRQ, NULL));
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_SUCCESS);
        }
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (words[0] == 1), "%d arrived", (int)words[0]);
    conf_vcq_close(&vcq);
}

/* Each kind of operation towards each rank, after the third put to rank 1 has killed it */
static void dead_for_all(const char *rules)
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           s[3];
    char                    coords[32];

    snprintf(coords, sizeof(coords), "0,0,0,0,0,%d", conf_rank); /* 0, 1 and a node of another A */
    setenv("UTOFU_EMU_COORDS", (conf_rank == 2) ? "0,0,0,1,0,0" : coords, 1);
    if (conf_rank == 0) {
        setenv("UTOFU_EMU_FAULT", rules, 1);
    }
    memset(words, 0, sizeof(words));
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), s);
    for (int i = 0; (i < 3) && (conf_rank == 0); i++) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], s[0], s[1], 8, i, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), (i < 2) ? UTOFU_SUCCESS : UTOFU_ERR_MRQ_PEER);
    }
    for (int to = 0; (to < 3) && (conf_rank == 0); to++) {
        int want = (to == 1) ? UTOFU_ERR_MRQ_PEER : UTOFU_SUCCESS;

        CONF_OK(utofu_get(vcq.hdl, vcq.peer[to], s[0] + 8, s[to] + 16, 8, 1, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), want);
        CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[to], UTOFU_ARMW_OP_ADD, 1, s[to] + 24, 2, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), want);
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[to], 5, s[to] + 32, 8, 3, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), want);
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[to], s[0], s[to], 8, 4, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), want);
    }
    conf_barrier();
    CONF_CHECK(words[3] == (conf_rank != 1), "%d ARMWs arrived", (int)words[3]);
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("fault", fault_dead_for_all_kinds, 3, "a node is dead for operations of every kind, whatever kind killed it")
{
    dead_for_all("put:peer=0,0,0,0,0,1:after=2:dead");
}

CONF_TEST("fault", fault_dead_alone, 3, "a rule without peer= kills the node of the operation that it is about, and no other")
{
    dead_for_all("put:after=2:dead");
}

CONF_TEST("fault", fault_dead_count, 2, "with count=N it kills so many times")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           s[2];

    setenv("UTOFU_EMU_COORDS", (conf_rank == 1) ? "0,0,0,0,0,1" : "0,0,0,0,0,0", 1);
    setenv("UTOFU_EMU_FAULT", "any:after=1:count=2:dead", 1);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), s);
    for (int i = 0; i < 5; i++) { /* these go to nobody */
        CONF_OK(utofu_nop(vcq.hdl, 0, NULL));
    }
    for (int i = 0; i < 5; i++) {
        int to = i % 2;

        CONF_OK(utofu_put(vcq.hdl, vcq.peer[to], s[conf_rank], s[to], 8, i, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), (i == 0) ? UTOFU_SUCCESS : UTOFU_ERR_MRQ_PEER);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("fault", fault_every, 1, "every=N is about the first of what after= leaves, and each Nth after it")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;

    open_with(&vcq, &s, "put:after=2:every=3:error=MRQ_OTHER");
    for (int i = 0; i < 12; i++) {
        int want = ((i >= 2) && ((i - 2) % 3 == 0)) ? UTOFU_ERR_MRQ_OTHER : UTOFU_SUCCESS;
        int got  = put_ends(&vcq, s, (uint64_t)i + 1, 0);
        CONF_CHECK(got == want, "put %d ended with %s", i, conf_code_name(got));
    }
}

CONF_TEST("fault", fault_busy_and_short_toq, 1, "busy makes a call return BUSY; toq=N leaves a TOQ N entries")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;
    void           *cbdata;

    open_with(&vcq, &s, "nop:after=3:count=2:busy;toq=10");
    for (int i = 0; i < 3; i++) {
        CONF_OK(utofu_nop(vcq.hdl, CONF_TCQ, NULL));
    }
    CONF_CODE(utofu_nop(vcq.hdl, CONF_TCQ, NULL), UTOFU_ERR_BUSY);
    CONF_CODE(utofu_nop(vcq.hdl, CONF_TCQ, NULL), UTOFU_ERR_BUSY);
    for (int i = 3; i < 10; i++) {
        CONF_OK(utofu_nop(vcq.hdl, CONF_TCQ, NULL));
    }
    CONF_CODE(utofu_nop(vcq.hdl, CONF_TCQ, NULL), UTOFU_ERR_BUSY);
    CONF_OK(utofu_poll_tcq(vcq.hdl, 0, &cbdata));
    CONF_OK(utofu_nop(vcq.hdl, CONF_TCQ, NULL));
    CONF_CODE(utofu_put_stride(vcq.hdl, vcq.id, s, s + 256, 8, 16, 11, 0, 0, NULL), UTOFU_ERR_INVALID_NUMBER);
}

CONF_TEST("fault", fault_busy_in_the_middle, 1,
          "busy rules look at each block and at each descriptor of a call, of which none is posted then")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           s;
    uint64_t                desc[64];
    size_t                  size, more;
    int                     put, get;

    open_with(&vcq, &s, "put:after=4:count=2:busy;get:after=1:busy");
    CONF_OK(utofu_put_stride(vcq.hdl, vcq.id, s, s + 256, 8, 16, 4, 1, CONF_LMRQ, NULL));
    for (int i = 0; i < 4; i++) {
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
    }
    CONF_CODE(utofu_put(vcq.hdl, vcq.id, s, s + 8, 8, 1, CONF_LMRQ, NULL), UTOFU_ERR_BUSY);
    words[1] = 1;
    CONF_CODE(utofu_put_stride(vcq.hdl, vcq.id, s, s + 8, 8, 16, 2, 1, CONF_LMRQ, NULL), UTOFU_ERR_BUSY);
    CONF_OK(utofu_prepare_put(vcq.hdl, vcq.id, s, s + 8, 8, 2, CONF_LMRQ, desc, &size));
    CONF_OK(utofu_prepare_get(vcq.hdl, vcq.id, s + 16, s, 8, 3, CONF_LMRQ, (char *)desc + size, &more));
    CONF_OK(utofu_post_toq(vcq.hdl, desc, size + more, NULL)); /* the first get */
    put = CONF_WAIT_MRQ(&vcq, &notice);
    get = CONF_WAIT_MRQ(&vcq, &notice);
    CONF_CHECK((put == UTOFU_SUCCESS) && (get == UTOFU_SUCCESS), "%d %d", put, get);
    words[1] = 1;
    CONF_CODE(utofu_post_toq(vcq.hdl, desc, size + more, NULL), UTOFU_ERR_BUSY);
    CONF_EXPECT_QUIET(&vcq);
    CONF_CHECK(words[1] == 1, "the put before it was posted");
}

CONF_TEST("fault", fault_largest_seed, 1, "the largest seed draws as any other")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;
    int             failed = 0;

    setenv("UTOFU_EMU_SEED", "18446744073709551615", 1);
    open_with(&vcq, &s, "put:prob=0.1:error=MRQ_PEER");
    for (int i = 0; i < 500; i++) {
        failed += put_ends(&vcq, s, i, 0) != UTOFU_SUCCESS;
    }
    CONF_CHECK((failed > 10) && (failed < 200), "%d of 500 failed", failed);
}

CONF_TEST("fault", fault_delay, 1, "a delayed put has its TCQ notice first and arrives after the delay, not before")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           s;
    double                  start;

    open_with(&vcq, &s, "put:delay=30000");
    words[0] = 5;
    start    = conf_now();
    CONF_OK(utofu_put(vcq.hdl, vcq.id, s, s + 8, 8, 1, CONF_TCQ | CONF_LMRQ, NULL));
    CONF_EXPECT_TCQ(&vcq, NULL);
    CONF_CHECK((words[1] == 0) || (conf_now() - start >= 0.03), "it arrived at once");
    CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "it failed");
    CONF_CHECK(conf_now() - start >= 0.03, "it arrived after %g s", conf_now() - start);
    CONF_CHECK(words[1] == 5, "nothing arrived");
}

CONF_TEST("fault", fault_calls, 1, "reg and vcq make registrations and new VCQs fail")
{
    struct conf_vcq vcq;
    utofu_vcq_hdl_t other;
    utofu_stadd_t   s, s2;

    open_with(&vcq, &s, "reg:after=1:count=1:error=FULL;vcq:after=1:error=OUT_OF_RESOURCE");
    CONF_CODE(utofu_reg_mem(vcq.hdl, words, 16, 0, &s2), UTOFU_ERR_FULL);
    CONF_OK(utofu_reg_mem(vcq.hdl, words, 16, 0, &s2));
    CONF_CODE(utofu_create_vcq(vcq.tni, 0, &other), UTOFU_ERR_OUT_OF_RESOURCE);
}

CONF_TEST("fault", fault_short_mrq, 1, "mrq=N ends a process whose MRQ holds more, with the message of chapter 7")
{
    char  text[512] = "";
    int   fds[2], status;
    pid_t child;

    /* this process never calls uTofu: it sees how its child ends */
    CONF_CHECK(pipe(fds) == 0, "pipe");
    child = fork();
    if (child == 0) {
        struct utofu_mrq_notice notice;
        struct conf_vcq         vcq;
        utofu_stadd_t           s;

        dup2(fds[1], STDERR_FILENO);
        open_with(&vcq, &s, "mrq=20");
        for (int i = 0; i < 20; i++) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.id, i, s, 8, i, CONF_RMRQ, NULL));
        }
        CONF_OK(utofu_poll_mrq(vcq.hdl, 0, &notice)); /* 20 are not too many */
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.id, 1, s, 8, 1, CONF_RMRQ, NULL));
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.id, 1, s, 8, 1, CONF_RMRQ, NULL));
        usleep(5000);
        utofu_poll_mrq(vcq.hdl, 0, &notice);
        _exit(0);
    }
    close(fds[1]);
    CONF_CHECK(read(fds[0], text, sizeof(text) - 1) > 0, "no message");
    waitpid(child, &status, 0);
    CONF_CHECK(WIFSIGNALED(status), "status 0x%x: %s", status, text);
    CONF_CHECK(strstr(text, "utofu: asynchronous error: MRQ Overflow on TNI ") != NULL, "message: %s", text);
}

CONF_TEST("fault", fault_bad_rules, 1, "rules that are not understood are ignored, and the others hold")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;

    open_with(&vcq, &s, "putt:error=MRQ_PEER;put;put:error=NONSENSE;put:error=FULL;reg:delay=3;toq=0;mrq=x;put:after=-1:"
                        "error=MRQ_PEER;put:peer=1,2:error=MRQ_PEER;;:;put:after=1:count=1:error=MRQ_OTHER");
    CONF_CHECK(put_ends(&vcq, s, 1, 0) == UTOFU_SUCCESS, "the first put failed");
    CONF_CHECK(put_ends(&vcq, s, 2, 0) == UTOFU_ERR_MRQ_OTHER, "the second put did not fail");
    CONF_CHECK(put_ends(&vcq, s, 3, 0) == UTOFU_SUCCESS, "the third put failed");
}

CONF_TEST("fault", fault_empty_rules, 1, "rules that could do nothing are not understood either")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;

    open_with(&vcq, &s, "put:busy:error=MRQ_PEER;put:every=0:error=MRQ_PEER;nop:dead;nop:error=MRQ_PEER;"
                        "nop:peer=0,0,0,0,0,0:error=TCQ_OTHER;put:peer=0,0,0,0,0,2:error=MRQ_PEER");
    for (int i = 0; i < 3; i++) {
        CONF_CHECK(put_ends(&vcq, s, i, 0) == UTOFU_SUCCESS, "put %d failed", i);
        CONF_OK(utofu_nop(vcq.hdl, CONF_TCQ, NULL));
        CONF_CHECK(CONF_WAIT_TCQ(&vcq, &(void *){NULL}) == UTOFU_SUCCESS, "nop %d failed", i);
    }
}

CONF_TEST("fault", fault_busy_is_one_rule, 1, "a call that is refused by one rule is counted by no other")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;
    static const int want[4] = {UTOFU_ERR_BUSY, UTOFU_SUCCESS, UTOFU_ERR_BUSY, UTOFU_SUCCESS};

    open_with(&vcq, &s, "put:busy:count=1;put:busy:after=1:count=1");
    for (unsigned i = 0; i < 4; i++) {
        CONF_CODE(utofu_put(vcq.hdl, vcq.id, s, s + 8, 8, 0, 0, NULL), want[i]);
    }
}

CONF_TEST("fault", fault_any_and_nop, 1, "a NOP does not use up what can't be of a NOP")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;
    void           *cbdata;

    open_with(&vcq, &s, "any:error=MRQ_PEER:count=1");
    CONF_OK(utofu_nop(vcq.hdl, CONF_TCQ, CONF_PTR(1)));
    CONF_CODE(CONF_WAIT_TCQ(&vcq, &cbdata), UTOFU_SUCCESS);
    CONF_CHECK(put_ends(&vcq, s, 1, 0) == UTOFU_ERR_MRQ_PEER, "the put did not fail");
    CONF_CHECK(put_ends(&vcq, s, 2, 0) == UTOFU_SUCCESS, "the second put failed");
}

CONF_TEST("fault", fault_registered_again, 1, "a registration of a known region is one, too")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s, again;

    open_with(&vcq, &s, "reg:after=2:count=1:error=FULL");
    CONF_OK(utofu_reg_mem(vcq.hdl, words, sizeof(words), 0, &again));
    CONF_CODE(utofu_reg_mem(vcq.hdl, words, sizeof(words), 0, &again), UTOFU_ERR_FULL);
    CONF_OK(utofu_reg_mem(vcq.hdl, words, sizeof(words), 0, &again));
}

CONF_TEST("fault", fault_busy_starts_what_is_held, 1, "BUSY by a rule starts what DELAY_START held back, as a full TOQ does")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s;

    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    open_with(&vcq, &s, "put:after=3:busy:count=1");
    for (int i = 0; i < 3; i++) {
        CONF_OK(utofu_put(vcq.hdl, vcq.id, s, s + 8, 8, 0, CONF_TCQ | UTOFU_ONESIDED_FLAG_DELAY_START, CONF_PTR(i + 1)));
    }
    CONF_CODE(utofu_put(vcq.hdl, vcq.id, s, s + 8, 8, 0, CONF_TCQ, NULL), UTOFU_ERR_BUSY);
    for (int i = 0; i < 3; i++) {
        CONF_EXPECT_TCQ(&vcq, CONF_PTR(i + 1));
    }
}

CONF_TEST("fault", fault_of_two_the_later, 1, "of two rules that fail an operation the later wins, and both count it; of calls the first")
{
    struct conf_vcq vcq;
    utofu_stadd_t   s, again;

    open_with(&vcq, &s, "put:count=2:error=MRQ_PEER;put:count=1:error=MRQ_OTHER;"
                        "reg:after=1:count=1:error=FULL;reg:after=1:count=1:error=FATAL");
    CONF_CODE(put_ends(&vcq, s, 1, 0), UTOFU_ERR_MRQ_OTHER);
    CONF_CODE(put_ends(&vcq, s, 2, 0), UTOFU_ERR_MRQ_PEER);
    CONF_CODE(put_ends(&vcq, s, 3, 0), UTOFU_SUCCESS);
    CONF_CODE(utofu_reg_mem(vcq.hdl, words, sizeof(words), 0, &again), UTOFU_ERR_FULL);
    CONF_CODE(utofu_reg_mem(vcq.hdl, words, sizeof(words), 0, &again), UTOFU_ERR_FATAL);
    CONF_OK(utofu_reg_mem(vcq.hdl, words, sizeof(words), 0, &again));
}

CONF_TEST("fault", fault_two_nodes_die, 1, "with count=2 two nodes die, however often the first is spoken to")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           s;
    utofu_vcq_id_t          far[3];

    open_with(&vcq, &s, "any:dead:count=2");
    for (unsigned k = 0; k < 3; k++) { /* nobody is there; the codes are the same, the counts are not */
        uint8_t coords[6] = {1, 1, (uint8_t)(1 + k), 0, 0, 0};

        CONF_OK(utofu_construct_vcq_id(coords, 0, 0, 0, &far[k]));
    }
    for (unsigned i = 0; i < 3; i++) {
        CONF_OK(utofu_put(vcq.hdl, far[0], s, s, 8, 0, 0, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_PEER);
    }
    CONF_CHECK(put_ends(&vcq, s, 1, 0) == UTOFU_ERR_MRQ_PEER, "the second node is alive");
    CONF_OK(utofu_put(vcq.hdl, far[2], s, s, 8, 0, 0, NULL));
    CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_PEER);
    CONF_CHECK(put_ends(&vcq, s, 1, 0) == UTOFU_ERR_MRQ_PEER, "the second node has come to life");
}

static atomic_bool enough;

static struct {
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;
} poster[2];

/* Nothing else: what forks beside a thread that allocates memory may find AddressSanitizer locked. */
static void *put_on(void *arg)
{
    struct conf_vcq *vcq = &poster[(intptr_t)arg].vcq;
    utofu_stadd_t    s   = poster[(intptr_t)arg].stadd;
    void            *cbdata;

    while (!enough) {
        CONF_OK(utofu_put(vcq->hdl, vcq->id, s, s + 8, 8, 0, CONF_TCQ, NULL));
        CONF_CHECK(CONF_WAIT_TCQ(vcq, &cbdata) == UTOFU_SUCCESS, "a put failed");
    }
    return NULL;
}

CONF_TEST("fault", fault_and_fork, 1, "a child that was made while another thread posted joins the job, whatever the rules")
{
    char     *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_t thread[2];

    CONF_CHECK(memory != MAP_FAILED, "mmap");
    CONF_CHECK(setenv("UTOFU_EMU_FAULT", "get:after=1000000000:error=MRQ_OTHER", 1) == 0, "setenv");
    for (intptr_t i = 0; i < 2; i++) {
        conf_vcq_create(&poster[i].vcq, (unsigned)i, 0);
        poster[i].stadd = conf_reg(&poster[i].vcq, memory + 64 * i, 64, 0);
    }
    for (intptr_t i = 0; i < 2; i++) {
        CONF_CHECK(pthread_create(&thread[i], NULL, put_on, (void *)i) == 0, "pthread_create");
    }
    usleep(20000);
    for (int i = 0; i < 100; i++) {
        int   status;
        pid_t child = fork();

        if (child == 0) {
            utofu_vcq_hdl_t hdl;
            alarm(10);
            _exit(utofu_create_vcq(2, 0, &hdl) != UTOFU_SUCCESS);
        }
        CONF_CHECK((waitpid(child, &status, 0) == child) && (status == 0), "child %d ended with %#x", i, (unsigned)status);
    }
    enough = true;
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
    }
}
