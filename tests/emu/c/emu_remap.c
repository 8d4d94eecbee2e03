/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_remap.c - a file that peers mapped read-only is mapped again for writing. */
#include "harness.h"

CONF_TEST("remap", read_only_then_writable, 2,
          "a memfd that was registered READ_ONLY and read by a peer takes its puts when it is registered again")
{
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];
    uint64_t       *words;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 65536);
    words = (uint64_t *)(void *)mem.addr;
    for (int step = 0; step < 2; step++) {
        utofu_stadd_t lcl = conf_reg(&vcq, mem.addr + 32768, 4096, 0);
        utofu_stadd_t mine =
                conf_reg(&vcq, mem.addr, 4096, ((conf_rank == 1) && (step == 0)) ? UTOFU_REG_MEM_FLAG_READ_ONLY : 0);

        conf_exchange(&mine, sizeof(mine), stadds);
        if (conf_rank == 0) {
            if (step == 0) {
                CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], lcl, stadds[1], 8, 1, CONF_LMRQ, NULL));
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 1, NULL);
            } else {
                words[4096] = 42;
                conf_put_word(&vcq, vcq.peer[1], lcl, stadds[1]);
            }
        }
        conf_barrier();
        if (step == 1) {
            CONF_CHECK((conf_rank == 0) || (words[0] == 42), "%d arrived", (int)words[0]);
        }
    }
    conf_vcq_close(&vcq);
}
