/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_strict_order.c - what the guide promises of the order of operations is kept in the
 * strict mode, and no more than that.
 */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>

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
