/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_strict_order.c - what the guide promises of the order of operations is kept in the
 * strict mode, and no more than that.
 */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define TRIES  5000 /* to see what may happen */
#define ROUNDS 500  /* in which nothing that must not happen does */

static struct conf_vcq vcq;
static utofu_stadd_t   words_stadd;
static struct {
    _Alignas(256) _Atomic uint64_t x;
    _Alignas(256) uint64_t y;
    _Alignas(256) uint64_t z;
} words; /* private memory */

#define X (words_stadd)
#define Y (words_stadd + 256)
#define Z (words_stadd + 512)

static void words_open(void)
{
    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    conf_vcq_create(&vcq, 0, 0);
    words_stadd = conf_reg(&vcq, &words, sizeof(words), 0);
}

static void words_close(void)
{
    conf_dereg(&vcq, words_stadd);
    conf_vcq_close(&vcq);
}

/* The next notice is of this operation; good: it has succeeded */
static void expect(uint64_t edata, bool good, struct utofu_mrq_notice *n)
{
    int code = CONF_WAIT_MRQ(&vcq, n);

    CONF_CHECK((n->edata == edata) && ((code == UTOFU_SUCCESS) == good), "the notice is of operation %u with %s",
               (unsigned)n->edata, conf_code_name(code));
}

/* An operation without notices that fails; of three kinds */
static void post_bad(unsigned kind, uint64_t edata)
{
    utofu_stadd_t behind = words_stadd + sizeof(words);

    if (kind == 0) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 1, behind, 8, edata, 0, NULL));
    } else if (kind == 1) {
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.id, Y, behind, 8, edata, 0, NULL));
    } else {
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 1, behind, edata, 0, NULL));
    }
}

CONF_TEST("strict", strict_errors_in_order, 1,
          "an error of an operation without local notice is reported before what comes of later operations, and they "
          "do not hide it (2.2.10)")
{
    struct utofu_mrq_notice n;

    words_open();
    for (unsigned i = 0; i < ROUNDS; i++) {
        post_bad(i % 3, 1);
        post_bad((i / 3) % 3, 2);
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, i, Z, 8, 3, 0, NULL));
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, i, X, 8, 4, CONF_LMRQ, NULL));
        expect(1, false, &n);
        expect(2, false, &n);
        expect(4, true, &n);
    }
    CONF_EXPECT_QUIET(&vcq);
    words_close();
}

CONF_TEST("strict", strict_notice_of_private_is_of_one_put, 1,
          "the notice of a put to private memory says nothing about one before it")
{
    struct utofu_mrq_notice n;
    unsigned                late = 0;

    words_open();
    for (uint64_t i = 1; (i <= TRIES) && (late == 0); i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, i, X, 8, 1, 0, NULL));
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, i, Z, 8, 2, CONF_LMRQ, NULL));
        expect(2, true, &n);
        late += atomic_load(&words.x) != i;
    }
    CONF_CHECK(late > 0, "nothing was ever overtaken");
    words_close();
}

static _Atomic bool stop;

static void *count(void *arg)
{
    while (!atomic_load(&stop)) {
        atomic_fetch_add(&words.x, 1);
    }
    return arg;
}

CONF_TEST("strict", strict_strong_put_reads_last, 1,
          "a put with STRONG_ORDER reads its source after gets and ARMWs before it have read (2.2.10)")
{
    struct utofu_mrq_notice n;
    pthread_t               thread;

    words_open();
    CONF_CHECK(pthread_create(&thread, NULL, count, NULL) == 0, "pthread_create");
    for (unsigned i = 0; i < 2 * ROUNDS; i++) {
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.id, Y, X, 8, 1, CONF_LMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.id, X, Z, 8, 2, CONF_STRONG | CONF_LMRQ, NULL));
        expect(1, true, &n);
        expect(2, true, &n);
        CONF_CHECK(words.z >= words.y, "round %u: read before the get", i);

        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_OR, 0, X, 1, CONF_LMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.id, X, Z, 8, 2, CONF_STRONG | CONF_LMRQ, NULL));
        expect(1, true, &n);
        words.y = n.rmt_value;
        expect(2, true, &n);
        CONF_CHECK(words.z >= words.y, "round %u: read before the ARMW", i);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    words_close();
}

CONF_TEST("strict", strict_strong_tcq_is_not_arrival, 1,
          "STRONG_ORDER or not, after its TCQ notice a put may not have arrived")
{
    struct utofu_mrq_notice n;
    unsigned                late = 0;

    words_open();
    for (uint64_t i = 1; (i <= TRIES) && (late == 0); i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, i, X, 8, 1, CONF_STRONG | CONF_TCQ | CONF_LMRQ, NULL));
        CONF_EXPECT_TCQ(&vcq, NULL);
        late += atomic_load(&words.x) != i;
        expect(1, true, &n);
        CONF_CHECK(atomic_load(&words.x) == i, "round %d: the local notice came first", (int)i);
    }
    CONF_CHECK(late > 0, "each had arrived");
    words_close();
}

CONF_TEST("strict", strict_strong_get_overtakes_put, 1,
          "a get with STRONG_ORDER may read before a put before it has written (2.2.10 orders reads after reads)")
{
    struct utofu_mrq_notice n;
    unsigned                old = 0;

    words_open();
    for (uint64_t i = 1; (i <= TRIES) && (old == 0); i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, i, X, 8, 1, CONF_STRONG | CONF_LMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.id, Y, X, 8, 2, CONF_STRONG | CONF_LMRQ, NULL));
        expect(1, true, &n);
        expect(2, true, &n);
        CONF_CHECK((words.y == i) || (words.y == i - 1), "round %d: it read %d", (int)i, (int)words.y);
        old += words.y != i;
    }
    CONF_CHECK(old > 0, "each read what the put wrote");
    words_close();
}

CONF_TEST("strict", strict_strong_get_after_armw, 1, "it reads after an ARMW before it, which is a read as well")
{
    struct utofu_mrq_notice n;

    words_open();
    for (uint64_t i = 1; i <= 2 * ROUNDS; i++) {
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_SWAP, i, X, 1, CONF_LMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.id, Y, X, 8, 2, CONF_STRONG | CONF_LMRQ, NULL));
        expect(1, true, &n);
        expect(2, true, &n);
        CONF_CHECK(words.y == i, "round %d: it read %d", (int)i, (int)words.y);
    }
    words_close();
}

CONF_TEST("strict", strict_remote_notice_of_get, 1,
          "the remote notice of a get says that it has read; the data may arrive later (2.2.4)")
{
    struct utofu_mrq_notice n;
    unsigned                late = 0;
    bool                    told[2];

    words_open();
    for (uint64_t i = 1; (i <= ROUNDS) || ((i <= TRIES) && (late == 0)); i++) {
        atomic_store(&words.x, i);
        words.y = 0;
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.id, Y, X, 8, 1, CONF_LMRQ | CONF_RMRQ, NULL));
        for (told[0] = told[1] = false; !told[0] || !told[1];) {
            expect(1, true, &n);
            told[n.notice_type == UTOFU_MRQ_TYPE_RMT_GET] = true;
            if (n.notice_type == UTOFU_MRQ_TYPE_RMT_GET) {
                late += __atomic_load_n(&words.y, __ATOMIC_ACQUIRE) != i;
                atomic_store(&words.x, i + 1000000); /* the target's to change now */
            }
        }
        CONF_CHECK(words.y == i, "round %d: it brought %d", (int)i, (int)words.y);
    }
    CONF_CHECK(late > 0, "the data was always there");
    words_close();
}

CONF_TEST("strict", strict_source_on_two_pages, 1,
          "where the source goes on on another page the two parts of a line are written one after the other, with "
          "STRONG_ORDER the second one last (2.2.10, 6.1.3.1)")
{
    enum { PAGE = 65536, HALF = 128 };
    static _Alignas(PAGE) char   source[2 * PAGE];
    static _Alignas(256) char    line[256];
    struct utofu_mrq_notice      n;
    utofu_stadd_t                from, to;
    _Atomic unsigned char       *first = (_Atomic unsigned char *)line, *second = (_Atomic unsigned char *)line + HALF;
    unsigned                     seen[2] = {0, 0};

    words_open();
    from = conf_reg(&vcq, source, sizeof(source), 0);
    to   = conf_reg(&vcq, line, sizeof(line), 0);
    for (unsigned i = 1; (i <= ROUNDS) || ((i <= 4 * TRIES) && ((seen[0] == 0) || (seen[1] == 0))); i++) {
        unsigned char value = (unsigned char)i, a, b;
        bool          strong = i % 2;

        memset(source + PAGE - HALF, value, 2 * HALF);
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.id, from + PAGE - HALF, to, 2 * HALF, 1,
                                     CONF_LMRQ | (strong ? CONF_STRONG : 0), NULL));
        do { /* what is to be new is looked at first, and the other one after it */
            a = atomic_load(first);
            b = atomic_load(second);
            seen[0] += (a == value) && (b != value);
            a = atomic_load(second);
            b = atomic_load(first);
            seen[1] += (a == value) && (b != value);
            CONF_CHECK(!strong || (a != value) || (b == value), "round %u: with STRONG_ORDER the second part was first", i);
        } while (utofu_poll_mrq(vcq.hdl, 0, &n) == UTOFU_ERR_NOT_FOUND);
        CONF_CHECK_BYTES(line, sizeof(line), value, "the line");
    }
    CONF_CHECK(seen[0] > 0, "the first part was never seen alone");
    CONF_CHECK(seen[1] > 0, "the second part was never seen alone");
    conf_dereg(&vcq, from);
    conf_dereg(&vcq, to);
    words_close();
}

CONF_TEST("strict", strict_freed_before_it_is_sent, 1,
          "what has not left when its VCQ is freed may not be carried out; what has a TCQ notice is")
{
    struct conf_vcq v;
    utofu_stadd_t   at;
    unsigned        lost = 0;

    words_open();
    for (uint64_t i = 1; (i <= ROUNDS) || ((i <= TRIES) && (lost == 0)); i++) {
        conf_vcq_create(&v, 0, 0);
        at = conf_reg(&v, &words, sizeof(words), 0);
        CONF_OK(utofu_put_piggyback8(v.hdl, v.id, i, at, 8, 1, CONF_TCQ, NULL));
        if (i % 2) {
            CONF_EXPECT_TCQ(&v, NULL);
        }
        CONF_OK(utofu_free_vcq(v.hdl));
        CONF_CHECK((i % 2 == 0) || (atomic_load(&words.x) == i), "round %d: it was sent, and lost", (int)i);
        lost += atomic_load(&words.x) != i;
    }
    CONF_CHECK(lost > 0, "nothing was lost");
    words_close();
}

CONF_TEST("strict", strict_puts_with_notices_overtake, 2,
          "a put overtakes another one also where both have local notices: these come in order, and before the answer "
          "of who has seen the later one, from whichever VCQ")
{
    static _Alignas(256) _Atomic uint64_t place[64]; /* private memory */
    struct conf_vcq                       mine, second;
    utofu_stadd_t                         stadds[2], from[2];
    unsigned                              seen = 0, spins;

    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    conf_timeout(60 * conf_patience);
    conf_vcq_open(&mine, 0, 0);
    conf_vcq_open(&second, 1, 0);
    conf_reg_all(&mine, place, sizeof(place), stadds);
    conf_reg_all(&second, place, sizeof(place), from);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        conf_barrier();
        if (conf_rank == 0) {
            CONF_POST(mine.hdl, utofu_put_piggyback8(mine.hdl, mine.peer[1], i, stadds[1], 8, 1, CONF_LMRQ, NULL));
            CONF_POST(mine.hdl, utofu_put_piggyback8(mine.hdl, mine.peer[1], i, stadds[1] + 256, 8, 2, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&mine, UTOFU_MRQ_TYPE_LCL_PUT, mine.peer[1], 1, NULL);
            CONF_EXPECT_MRQ(&mine, UTOFU_MRQ_TYPE_LCL_PUT, mine.peer[1], 2, NULL);
            CONF_EXPECT_MRQ(&mine, UTOFU_MRQ_TYPE_RMT_PUT, (i % 2) ? mine.peer[1] : second.peer[1], 3, NULL);
        } else {
            const struct conf_vcq *by = (i % 2) ? &mine : &second;

            for (spins = 0; atomic_load(&place[32]) != i;) {
                conf_relax(&spins);
            }
            seen += atomic_load(&place[0]) != i;
            CONF_POST(by->hdl, utofu_put_piggyback8(by->hdl, mine.peer[0], i, stadds[0], 8, 3, CONF_RMRQ, NULL));
        }
    }
    CONF_CHECK((conf_rank == 0) || (seen > 0), "nothing was ever overtaken");
    conf_barrier();
    conf_vcq_close(&second);
    conf_vcq_close(&mine);
}

/* Of three operations to one target the first is late by a fault: what somebody else sends comes meanwhile. */
static void behind_a_delayed_put(unsigned long first, unsigned long second)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         target, other;
    utofu_stadd_t           rmt;
    double                  began;

    CONF_CHECK(setenv("UTOFU_EMU_FAULT", "put:count=1:delay=500000", 1) == 0, "setenv");
    words_open();
    conf_vcq_create(&target, 1, 0);
    conf_vcq_create(&other, 2, 0);
    rmt   = conf_reg(&target, &words, sizeof(words), 0);
    began = conf_now();
    CONF_POST(vcq.hdl, utofu_put(vcq.hdl, target.id, X, rmt, 8, 1, first, NULL));
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, target.id, 1, rmt + 256, 8, 2, second, NULL));
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, target.id, 1, rmt + 512, 8, 3, CONF_LMRQ, NULL));
    usleep(50000); /* the last one could have arrived by now */
    CONF_POST(other.hdl, utofu_put_piggyback8(other.hdl, vcq.id, 1, Z, 8, 4, CONF_RMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
    CONF_CHECK((notice.edata == 4) && (conf_now() - began < 0.4), "EDATA %d after %.3f s", (int)notice.edata,
               conf_now() - began);
    if (first & CONF_LMRQ) {
        expect(1, true, &notice);
    }
    expect(2, true, &notice);
    expect(3, true, &notice);
    conf_vcq_close(&other);
    conf_vcq_close(&target);
    words_close();
}

CONF_TEST("strict", strict_delayed_put_holds_nobody_up, 1,
          "while a put is late by a fault, notices of others come, whatever follows that put")
{
    behind_a_delayed_put(CONF_LMRQ, CONF_LMRQ);
}

CONF_TEST("strict", strict_strong_behind_delayed_put, 1,
          "so they do where that put has no notice, and one with STRONG_ORDER waits for it")
{
    behind_a_delayed_put(0, CONF_LMRQ | CONF_STRONG);
}

CONF_TEST("strict", strict_count_of_unread_notices, 1,
          "utofu_query_num_unread_mrq does not count what a poll does not return yet")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         target, other;
    utofu_stadd_t           rmt;
    unsigned                wrong = 0;

    words_open();
    conf_vcq_create(&target, 1, 0);
    conf_vcq_create(&other, 2, 0);
    rmt = conf_reg(&target, &words, sizeof(words), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, target.id, 1, rmt, 8, 1, CONF_LMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, target.id, 1, rmt + 256, 8, 2, CONF_LMRQ, NULL));
        CONF_POST(other.hdl, utofu_put_piggyback8(other.hdl, vcq.id, 1, Z, 8, 3, CONF_RMRQ, NULL));
        for (unsigned got = 0; got < 3;) {
            size_t unread;
            int    code;

            CONF_OK(utofu_query_num_unread_mrq(vcq.hdl, &unread));
            code = (unread > 0) ? utofu_poll_mrq(vcq.hdl, 0, &notice) : UTOFU_ERR_NOT_FOUND;
            wrong += (unread > 0) && (code != UTOFU_SUCCESS);
            got += code == UTOFU_SUCCESS;
            sched_yield();
        }
    }
    CONF_CHECK(wrong == 0, "%u polls returned nothing, though there was something to read", wrong);
    conf_vcq_close(&other);
    conf_vcq_close(&target);
    words_close();
}
