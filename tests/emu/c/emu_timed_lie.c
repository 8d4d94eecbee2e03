/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_timed_lie.c - the timed mode, when what peers write about times is not true.
 */
#include "harness.h"

#include "own.h"

#include <sys/mman.h>
#include <time.h>

static uint64_t words[64] __attribute__((aligned(256)));

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* The notices that came from `origin` and were not read may be seen in ten years. */
static int postpone(struct emu_process *shm, utofu_vcq_id_t origin)
{
    int changed = 0;

    for (unsigned i = 0; i < shm->lanes; i++) {
        struct emu_lane *lane =
                (struct emu_lane *)(void *)((char *)shm + EMU_LANES_OFF(shm->session_entries) +
                                            i * EMU_LANE_SIZE(shm->lane_entries));
        struct emu_lane_entry *e = (struct emu_lane_entry *)((char *)lane + EMU_LANE_HEAD);

        if (lane->origin != origin) {
            continue;
        }
        for (unsigned k = 0; k + 1 < EMU_LANE_A; k += 2) {
            if (e[k].word & EMU_ENTRY_PAIR) { /* the second one has the time */
                uint64_t later  = emu_second_due(e[k + 1].word) + ((uint64_t)1 << 60);
                e[k + 1].word = emu_second_word(later) | (e[k + 1].word & EMU_ENTRY_NEXT_B);
                changed++;
            }
        }
    }
    return changed;
}

CONF_TEST("timed", timed_far_future, 3, "a peer's notice that is for ten years from now does not hide those of others")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct {
        utofu_vcq_id_t id;
        utofu_stadd_t  stadd;
    } mine, all[3];
    double end;
    int    code, seen[3] = {0, 0, 0};

    CONF_CHECK(setenv("UTOFU_EMU_TIMING", "tofud", 1) == 0, "setenv");
    conf_vcq_create(&vcq, 0, 0);
    mine.id    = vcq.id;
    mine.stadd = conf_reg(&vcq, words, sizeof(words), 0);
    conf_exchange(&mine, sizeof(mine), all);
    for (int round = 0; round < 2; round++) {
        conf_barrier();
        if (conf_rank != 0) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, all[0].id, 7, all[0].stadd + 8 * conf_rank, 8, conf_rank,
                                         CONF_RMRQ | CONF_LMRQ, NULL));
            CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "put");
        }
        conf_barrier();
        if (conf_rank == 0) {
            if (round == 1) { /* both lanes are known and looked at since the first */
                struct emu_process *shm = own_segment();
                CONF_CHECK(postpone(shm, all[1].id) > 0, "no notice of rank 1 was found");
                munmap(shm, shm->size);
            }
            end = now_s() + 5;
            while (((seen[1] <= round) || (seen[2] <= round)) && (now_s() < end)) {
                code = utofu_poll_mrq(vcq.hdl, 0, &notice);
                if (code == UTOFU_SUCCESS) {
                    CONF_CHECK((notice.edata == 1) || (notice.edata == 2), "EDATA %d", (int)notice.edata);
                    seen[notice.edata]++;
                } else {
                    CONF_CHECK(code == UTOFU_ERR_NOT_FOUND, "poll: %d", code);
                }
            }
            CONF_CHECK(seen[2] == round + 1, "%d notices of who tells the truth", seen[2]);
            CONF_CHECK(seen[1] == round + 1, "%d notices of who does not", seen[1]);
        }
    }
    conf_barrier();
}

CONF_TEST("timed", timed_clocks_far_off, 2, "clocks of the job that say when a TNI is free in a hundred years do not hold up puts")
{
    struct conf_vcq     vcq;
    utofu_stadd_t       stadds[2];
    struct emu_control *c;
    double              began;

    CONF_CHECK(setenv("UTOFU_EMU_TIMING", "tofud", 1) == 0, "setenv");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    c = own_control();
    for (unsigned n = 0; (conf_rank == 0) && (n < EMU_MAX_NODES); n++) {
        for (unsigned i = 0; i < EMU_NUM_TNIS; i++) {
            atomic_store(&c->clock[n].receive[i], (uint64_t)1 << 62);
        }
    }
    munmap(c, sizeof(*c));
    began = now_s();
    if (conf_rank == 0) {
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 7, stadds[1], 8, 1, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 1, NULL);
    }
    CONF_CHECK(now_s() - began < 5, "it took %.1f s", now_s() - began);
    conf_barrier();
    conf_vcq_close(&vcq);
}
