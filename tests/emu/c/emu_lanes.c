/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_lanes.c - an MRQ stops looking at senders that were silent for long, and hears
 * them again; it has thousands of senders; and the first notice of each, for which there
 * is no lane yet, is that of a put that stores once.
 */
#include "harness.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define SENDS 400 /* of each sender */

static void pause_us(unsigned us)
{
    double end = conf_now() + us * 1e-6;

    while (conf_now() < end) {
    }
}

static void put8(const struct conf_vcq *vcq, int to, utofu_stadd_t where, unsigned edata)
{
    CONF_POST(vcq->hdl, utofu_put_piggyback8(vcq->hdl, vcq->peer[to], 1, where, 8, edata, CONF_RMRQ | CONF_STRONG,
                                             CONF_PTR(1)));
}

/* Rank 0 reads; the others send after pauses of all lengths around the time after which
 * they are not looked at any more.  Each notice is acknowledged before the next one,
 * so one that is lost is missed at once. */
static void silent_senders(void)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    unsigned                next[CONF_MAX_PROCS] = {0}, total = 0, sends = SENDS;
    double                  last;
    int                     code, r;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    memset(mem.addr, 0, 4096);
    conf_reg_all(&vcq, mem.addr, 4096, stadds);
    conf_barrier();
    if (conf_rank == 0) {
        last = conf_now();
        while (total < sends * (unsigned)(conf_procs - 1)) {
            code = utofu_poll_mrq(vcq.hdl, 0, &notice);
            if (code == UTOFU_ERR_NOT_FOUND) {
                CONF_CHECK(conf_now() - last < CONF_WAIT, "a notice is missing: %u %u %u of %u", next[1], next[2],
                           next[3], sends);
                continue;
            }
            last = conf_now();
            CONF_CHECK(code == UTOFU_SUCCESS, "%s", conf_code_name(code));
            for (r = 1; (r < conf_procs) && (vcq.peer[r] != notice.vcq_id); r++) {
            }
            CONF_CHECK((r < conf_procs) && (notice.edata == next[r] % 251), "rank %d, edata %u after %u", r,
                       (unsigned)notice.edata, next[r]);
            next[r]++;
            total++;
            put8(&vcq, r, stadds[r], 7);
        }
    } else {
        for (unsigned i = 0; i < sends; i++) {
            pause_us((i * 37 + (unsigned)conf_rank * 101) % 700);
            put8(&vcq, 0, stadds[0] + 8 * (unsigned)conf_rank, i % 251);
            last = conf_now();
            while ((code = utofu_poll_mrq(vcq.hdl, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
                CONF_CHECK(conf_now() - last < CONF_WAIT, "no acknowledgement of %u", i);
            }
            CONF_CHECK((code == UTOFU_SUCCESS) && (notice.edata == 7), "%s", conf_code_name(code));
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("lanes", test_emu_lanes_silent_senders, 4, "a sender that was silent for any time is heard")
{
    silent_senders();
}

CONF_TEST("lanes", test_emu_lanes_silent_senders_strict, 3, "also in the strict mode")
{
    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    silent_senders();
}

#define MANY 40 /* VCQs of a rank, on a node of its own */

CONF_TEST("lanes", test_emu_lanes_thousands, 16, "thousands of VCQs send their first notice to one")
{
    static struct conf_vcq  mine[MANY];
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct conf_mem         mem;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    unsigned                total = 0, rounds = 4, round;
    double                  last;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, 4096, stadds);
    /* each round with VCQs that are new, though their IDs are not */
    for (round = 0; round < rounds; round++) {
        if (conf_rank > 0) {
            for (unsigned i = 0; i < MANY; i++) {
                conf_vcq_create(&mine[i], i, 0);
                mine[i].peer[0] = vcq.peer[0];
                put8(&mine[i], 0, stadds[0], 3);
            }
        } else {
            last = conf_now();
            while (total < (round + 1) * MANY * (unsigned)(conf_procs - 1)) {
                if (utofu_poll_mrq(vcq.hdl, 0, &notice) == UTOFU_SUCCESS) {
                    total++;
                    last = conf_now();
                }
                CONF_CHECK(conf_now() - last < 3 * CONF_WAIT, "%u notices", total);
            }
        }
        conf_barrier();
        for (unsigned i = 0; (conf_rank > 0) && (i < MANY); i++) {
            conf_vcq_close(&mine[i]);
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

/* Rank 1 takes the data away as soon as it sees the last word, before the notice: whoever
 * stores again brings it back.  Every round has a new sender, so no lane. */
CONF_TEST("lanes", first_notice_stores_once, 2, "a put with a notice stores its data once, the first one of a VCQ, too")
{
    enum { ROUNDS = 60, BYTES = 4096 };
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq, mine;
    struct conf_mem         mem;
    utofu_stadd_t           stadds[2], source;
    _Atomic uint64_t       *last;
    double                  end;

    conf_timeout(60);
    conf_pin();
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, BYTES);
    memset(mem.addr, (conf_rank == 0) ? 0x5a : 0, BYTES);
    last = (_Atomic uint64_t *)(void *)((char *)mem.addr + BYTES - 8);
    conf_reg_all(&vcq, mem.addr, BYTES, stadds);
    for (unsigned round = 0; round < ROUNDS; round++) {
        conf_barrier();
        if (conf_rank == 0) {
            conf_vcq_create(&mine, round % 6, 0);
            mine.peer[1] = vcq.peer[1];
            CONF_OK(utofu_reg_mem(mine.hdl, mem.addr, BYTES, 0, &source));
            /* so that VCQ and memory of rank 1 are known, and only the lane is not */
            CONF_POST(mine.hdl, utofu_put(mine.hdl, vcq.peer[1], source, stadds[1], 8, 0, CONF_STRONG, NULL));
            CONF_POST(mine.hdl, utofu_put(mine.hdl, vcq.peer[1], source, stadds[1], BYTES, 1, CONF_RMRQ | CONF_STRONG,
                                          NULL));
        } else {
            end = conf_now() + CONF_WAIT;
            while (atomic_load_explicit(last, memory_order_acquire) == 0) {
                CONF_CHECK(conf_now() < end, "no data in round %u", round);
            }
            atomic_store(last, 0);
            while (utofu_poll_mrq(vcq.hdl, 0, &notice) != UTOFU_SUCCESS) {
                CONF_CHECK(conf_now() < end, "no notice in round %u", round);
            }
            CONF_CHECK(atomic_load(last) == 0, "round %u: the data came twice", round);
        }
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_dereg_mem(mine.hdl, source, 0));
            conf_vcq_close(&mine);
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}
