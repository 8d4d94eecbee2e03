/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_strict.c - UTOFU_EMU_STRICT=1 shows what the guide allows and a kind network
 * seldom does, and keeps what the guide promises.  Each of the first kind must be
 * seen within some thousands of tries, none of the second kind ever fail.
 */
#include "harness.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES  5000 /* to see what may happen */
#define ROUNDS 400  /* in which nothing that must not happen does */
#define SIZE   4096

struct side {
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
};

static void side_open(struct side *side)
{
    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    conf_vcq_open(&side->vcq, 0, 0);
    conf_mem_alloc(&side->mem, CONF_MEM_MEMFD, 2 * SIZE);
    memset(side->mem.addr, 0, 2 * SIZE);
    conf_reg_all(&side->vcq, side->mem.addr, 2 * SIZE, side->stadds);
}

static void side_close(struct side *side)
{
    conf_barrier();
    conf_dereg(&side->vcq, side->stadds[conf_rank]);
    conf_vcq_close(&side->vcq);
    conf_mem_free(&side->mem);
}

static uint64_t load(const struct side *side, size_t offset)
{
    return atomic_load((_Atomic uint64_t *)(void *)(side->mem.addr + offset));
}

static void store(struct side *side, size_t offset, uint64_t value)
{
    atomic_store((_Atomic uint64_t *)(void *)(side->mem.addr + offset), value);
}

/* From the lower half of this rank's memory to the upper half of a rank's */
static void put(struct side *side, int to, size_t offset, size_t length, unsigned long flags)
{
    CONF_POST(side->vcq.hdl, utofu_put(side->vcq.hdl, side->vcq.peer[to], side->stadds[conf_rank] + offset,
                                       side->stadds[to] + SIZE + offset, length, 1, flags, CONF_PTR(1)));
}

static void wait_local(struct side *side)
{
    CONF_EXPECT_MRQ(&side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, side->vcq.id, 1, NULL);
}

CONF_TEST("strict", test_emu_strict_source_is_read_late, 1,
          "a source that is overwritten before the TCQ notice spoils the data; after it, it never does")
{
    struct side side;
    unsigned    spoiled = 0, i, early;

    side_open(&side);
    for (early = 0; early < 2; early++) {
        for (i = 1; (i <= (early ? TRIES : ROUNDS)) && (spoiled == 0); i++) {
            store(&side, 0, i);
            put(&side, 0, 0, 8, CONF_TCQ | CONF_LMRQ);
            if (!early) {
                CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
            }
            store(&side, 0, UINT64_MAX);
            if (early) {
                CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
            }
            wait_local(&side);
            spoiled += load(&side, SIZE) != i;
        }
        CONF_CHECK((spoiled > 0) == early, early ? "a source overwritten too early never mattered" :
                                                   "a source overwritten after the TCQ notice was sent");
    }
    side_close(&side);
}

CONF_TEST("strict", strict_source_is_often_late, 1, "so it does in one put of ten and more, in a row and after a pause")
{
    enum { PUTS = 1000 };
    struct side side;
    unsigned    spoiled = 0;

    side_open(&side);
    for (uint64_t i = 1; i <= PUTS; i++) {
        if (i > PUTS / 2) {
            usleep(20);
        }
        store(&side, 0, i);
        put(&side, 0, 0, 8, CONF_TCQ | CONF_LMRQ);
        store(&side, 0, UINT64_MAX);
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
        wait_local(&side);
        spoiled += load(&side, SIZE) != i;
        CONF_CHECK((i != PUTS / 2) || (spoiled >= PUTS / 20), "in a row: %u of %u were late", spoiled, PUTS / 2);
    }
    CONF_CHECK(spoiled >= PUTS / 10, "%u of %u were late", spoiled, PUTS);
    side_close(&side);
}

CONF_TEST("strict", test_emu_strict_tcq_is_not_arrival, 1,
          "after its TCQ notice a put may still be under way, after its local notice it is not")
{
    struct side side;
    unsigned    late = 0, i;

    side_open(&side);
    for (i = 1; (i <= ROUNDS) || ((i <= TRIES) && (late == 0)); i++) {
        store(&side, 0, i);
        put(&side, 0, 0, 8, CONF_TCQ | CONF_LMRQ);
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
        late += load(&side, SIZE) != i;
        wait_local(&side);
        CONF_CHECK(load(&side, SIZE) == i, "round %u: the local notice came before the data", i);
    }
    CONF_CHECK(late > 0, "every put had arrived at its TCQ notice");
    side_close(&side);
}

CONF_TEST("strict", test_emu_strict_notice_is_of_one_put, 1,
          "the notice of a put says nothing about one before it, unless it has STRONG_ORDER")
{
    struct side side;
    unsigned    late = 0, i, strong;

    side_open(&side);
    for (strong = 2; strong-- > 0;) {
        for (i = 1; (i <= (strong ? ROUNDS : TRIES)) && (late == 0); i++) {
            store(&side, 0, i + strong * 100000);
            put(&side, 0, 0, 8, 0);
            put(&side, 0, 512, 8, CONF_LMRQ | (strong ? CONF_STRONG : 0));
            wait_local(&side);
            late += load(&side, SIZE) != i + strong * 100000;
        }
        CONF_CHECK((late > 0) == !strong, strong ? "STRONG_ORDER overtook" : "nothing was ever overtaken");
    }
    side_close(&side);
}

CONF_TEST("strict", test_emu_strict_puts_overtake, 2,
          "who polls memory sees a later put first, at times, and with STRONG_ORDER never")
{
    struct side side;
    unsigned    spins, i, strong, seen = 0, stop;

    side_open(&side);
    for (strong = 0; strong < 2; strong++) {
        for (i = 1, stop = 0; !stop; i++) {
            unsigned all[2];

            if (conf_rank == 0) {
                store(&side, 0, i + strong * 100000);
                store(&side, 512, i + strong * 100000);
                put(&side, 1, 0, 8, 0);
                put(&side, 1, 512, 8, CONF_LMRQ | (strong ? CONF_STRONG : 0));
                CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.peer[1], 1, NULL);
            } else {
                for (spins = 0; load(&side, SIZE + 512) != i + strong * 100000;) {
                    conf_relax(&spins);
                }
                seen += load(&side, SIZE) != i + strong * 100000;
                for (spins = 0; load(&side, SIZE) != i + strong * 100000;) {
                    conf_relax(&spins);
                }
            }
            stop = strong ? (i >= ROUNDS) : ((seen > 0) || (i >= TRIES));
            conf_exchange(&stop, sizeof(stop), all);
            stop = all[1];
        }
        if (conf_rank == 1) {
            CONF_CHECK((seen > 0) == !strong, strong ? "STRONG_ORDER overtook" : "nothing was ever overtaken");
        }
        seen = 0;
    }
    side_close(&side);
}

CONF_TEST("strict", test_emu_strict_cache_lines, 2,
          "the last cache line of a put is there before others, at times, and with STRONG_ORDER never")
{
    struct side side;
    unsigned    spins, i, k, strong, seen = 0, stop;

    side_open(&side);
    for (strong = 0; strong < 2; strong++) {
        for (i = 1, stop = 0; !stop; i++) {
            unsigned all[2];
            uint64_t value = i + strong * 100000;

            if (conf_rank == 0) {
                for (k = 0; k < SIZE; k += 8) {
                    store(&side, k, value);
                }
                put(&side, 1, 0, SIZE, CONF_LMRQ | (strong ? CONF_STRONG : 0));
                CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_PUT, side.vcq.peer[1], 1, NULL);
            } else {
                for (spins = 0; load(&side, 2 * SIZE - 8) != value;) {
                    conf_relax(&spins);
                }
                for (k = SIZE - 256; k > 0; k -= 256) {
                    seen += load(&side, SIZE + k - 8) != value;
                }
            }
            stop = strong ? (i >= ROUNDS) : ((seen > 0) || (i >= TRIES));
            conf_exchange(&stop, sizeof(stop), all);
            stop = all[1];
        }
        if (conf_rank == 1) {
            CONF_CHECK((seen > 0) == !strong, strong ? "the last cache line was not the last" :
                                                       "the last cache line was always the last");
        }
        seen = 0;
    }
    side_close(&side);
}

CONF_TEST("strict", test_emu_strict_get_is_not_there, 1,
          "after its TCQ notice the data of a get may not be there, after its local notice it is")
{
    struct side side;
    unsigned    late = 0, i;

    side_open(&side);
    for (i = 1; (i <= ROUNDS) || ((i <= TRIES) && (late == 0)); i++) {
        store(&side, SIZE, i);
        CONF_OK(utofu_get(side.vcq.hdl, side.vcq.id, side.stadds[0], side.stadds[0] + SIZE, 8, 2, CONF_TCQ | CONF_LMRQ,
                          CONF_PTR(2)));
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(2));
        late += load(&side, 0) != i;
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_LCL_GET, side.vcq.id, 2, NULL);
        CONF_CHECK(load(&side, 0) == i, "round %u: the local notice came before the data", i);
    }
    CONF_CHECK(late > 0, "every get was done at its TCQ notice");
    side_close(&side);
}

CONF_TEST("strict", test_emu_strict_delay_start, 1,
          "DELAY_START may hold operations back until another one, or utofu_post_toq, starts them, and may not")
{
    struct side side;
    unsigned    held = 0, early = 0, i;
    double      end;

    side_open(&side);
    for (i = 1; (i <= TRIES) && ((i <= 40) || (held == 0) || (early == 0)); i++) {
        store(&side, 0, i);
        for (unsigned k = 0; k < 3; k++) {
            put(&side, 0, 0, 8, CONF_TCQ | CONF_LMRQ | UTOFU_ONESIDED_FLAG_DELAY_START);
        }
        for (end = conf_now() + 0.002; (load(&side, SIZE) != i) && (conf_now() < end); usleep(100)) {
        }
        early += load(&side, SIZE) == i;
        held += load(&side, SIZE) != i;
        if (i % 2 == 0) {
            CONF_OK(utofu_nop(side.vcq.hdl, 0, NULL));
        } else {
            CONF_OK(utofu_post_toq(side.vcq.hdl, NULL, 0, NULL));
        }
        for (unsigned k = 0; k < 3; k++) {
            CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
            wait_local(&side);
        }
        CONF_CHECK(load(&side, SIZE) == i, "data");
    }
    CONF_CHECK(held > 0, "nothing was held back");
    CONF_CHECK(early > 0, "all was held back");
    side_close(&side);
}

CONF_TEST("strict", test_emu_strict_padding, 1,
          "a padded piggyback put makes the rest of its cache lines undefined, and touches no others")
{
    struct side    side;
    unsigned char *line;
    unsigned       i, changed = 0;

    side_open(&side);
    line = side.mem.addr + SIZE + 1024;
    memset(side.mem.addr + SIZE, 0x11, SIZE);
    CONF_OK(utofu_put_piggyback8(side.vcq.hdl, side.vcq.id, UINT64_C(0x2222222222222222),
                                 side.stadds[0] + SIZE + 1024 + 40, 8, 1,
                                 CONF_LMRQ | UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_PADDING, NULL));
    wait_local(&side);
    CONF_CHECK_BYTES(line + 40, 8, 0x22, "the data");
    CONF_CHECK_BYTES(side.mem.addr + SIZE, 1024, 0x11, "before the cache line");
    CONF_CHECK_BYTES(line + 256, SIZE - 1024 - 256, 0x11, "behind the cache line");
    for (i = 0; i < 256; i++) {
        changed += ((i < 40) || (i >= 48)) && (line[i] != 0x11);
    }
    CONF_CHECK(changed > 0, "the rest of the cache line is as before");
    side_close(&side);
}

CONF_TEST("strict", strict_padding_beyond_the_region, 2,
          "of another process, mapped or private, and beyond what is registered of the line, as it is the line that is written")
{
    struct conf_vcq vcq;

    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    conf_vcq_open(&vcq, 0, 0);
    for (int shared = 0; shared < 2; shared++) {
        struct conf_mem mem;
        utofu_stadd_t   stadds[2];
        unsigned char  *line;

        conf_mem_alloc(&mem, shared ? CONF_MEM_MEMFD : CONF_MEM_ANON, 2 * SIZE);
        memset(mem.addr, 0x11, 2 * SIZE);
        line = mem.addr + SIZE - 256; /* the last one of a page */
        conf_reg_all(&vcq, line + 64, 16, stadds);
        if (conf_rank == 0) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], UINT64_C(0x2222222222222222), stadds[1] + 8, 8, 1,
                                         CONF_LMRQ | UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_PADDING, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 1, NULL);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK_BYTES(line + 72, 8, 0x22, "the data");
            CONF_CHECK_BYTES(line, 72, 0xa5, "the line before the data");
            CONF_CHECK_BYTES(line + 80, 176, 0xa5, "the line behind the data");
            CONF_CHECK_BYTES(mem.addr, SIZE - 256, 0x11, "before the line");
            CONF_CHECK_BYTES(line + 256, SIZE, 0x11, "behind the line");
        }
        conf_barrier();
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("strict", strict_registered_pages_and_fork, 1,
          "a child has no pages with registered memory; it has them again when the last registration is gone, and the "
          "parent has them all the time (6.1.4.1)")
{
    static char     memory[3][4096] __attribute__((aligned(4096)));
    struct conf_vcq vcq;
    utofu_stadd_t   a, b;

    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    conf_vcq_create(&vcq, 0, 0);
    memset(memory, 1, sizeof(memory));
    a = conf_reg(&vcq, memory[1] + 100, 8, 0);
    b = conf_reg(&vcq, memory[1] + 2000, 8, 0); /* on the same page */
    for (int step = 0; step < 3; step++) {
        for (int page = 0; page < 3; page++) {
            bool  gone = (page == 1) && (step < 2);
            int   status;
            pid_t child = fork();

            if (child == 0) {
                _exit(((volatile char *)memory[page])[0] != 1);
            }
            CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
            CONF_CHECK(gone ? WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV) :
                              WIFEXITED(status) && (WEXITSTATUS(status) == 0),
                       "step %d, page %d: status 0x%x", step, page, status);
            CONF_CHECK(memory[page][0] == 1, "the parent lost its page");
        }
        if (step < 2) {
            conf_dereg(&vcq, (step == 0) ? a : b);
        }
    }
    conf_vcq_close(&vcq);
}
