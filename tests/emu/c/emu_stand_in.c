/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_stand_in.c - ARMW on private memory of a stopped process, by several initiators */
#include "harness.h"

CONF_TEST("stand in", armw_on_stopped_is_atomic, 6,
          "ARMWs of several processes on private memory of one that is stopped, and goes on now and then, lose nothing "
          "(2.2.5)")
{
    enum { STOPPED = 300, BETWEEN = 40 };
    static _Alignas(8) uint64_t sum;
    struct conf_vcq             vcq;
    utofu_stadd_t               stadds[CONF_MAX_PROCS];
    struct utofu_mrq_notice     n;

    conf_timeout(120);
    CONF_CHECK(setenv("UTOFU_EMU_REHOME", "0", 1) == 0, "setenv");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &sum, sizeof(sum), stadds);
    for (unsigned i = 0; (conf_rank != 0) && (i < STOPPED + BETWEEN); i++) {
        if ((conf_rank == 1) && ((i == 0) || ((i > STOPPED) && (i % 4 == 0)))) {
            conf_stop(0);
        } else if ((conf_rank == 1) && (i >= STOPPED) && (i % 4 == 2)) {
            conf_continue(0);
        }
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[0], UTOFU_ARMW_OP_ADD, 1, stadds[0], 1, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&vcq, &n));
    }
    if (conf_rank == 1) {
        conf_continue(0);
    }
    conf_barrier();
    CONF_CHECK((conf_rank != 0) || (sum == (uint64_t)(conf_procs - 1) * (STOPPED + BETWEEN)), "%u were lost",
               (unsigned)((unsigned)(conf_procs - 1) * (STOPPED + BETWEEN) - sum));
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
