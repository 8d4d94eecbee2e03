/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_remap.c - what peers have mapped is mapped again: for writing, or since something else is there. */
#include "harness.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (1u << 20)

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

/* What the program has at `at`, or anywhere: memory of its own, or of a file that it closes */
static char *map_there(bool of_file, void *at)
{
    int   flags = (at != NULL) ? MAP_FIXED : 0, fd = of_file ? memfd_create("mine", MFD_CLOEXEC) : -1;
    char *p;

    CONF_CHECK(!of_file || ((fd >= 0) && (ftruncate(fd, BYTES) == 0)), "memfd_create");
    p = mmap(at, BYTES, PROT_READ | PROT_WRITE, flags | (of_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), fd, 0);
    CONF_CHECK(p != MAP_FAILED, "mmap");
    if (of_file) {
        close(fd);
    }
    return p;
}

CONF_TEST("remap", released_and_registered_again, 2,
          "memory that was released without being deregistered, and other memory at the same place that is registered: a "
          "peer reaches what is there now, and each goes when it is deregistered")
{
    struct conf_vcq vcq;
    struct conf_mem own;
    utofu_stadd_t   mine, stadd[2] = {0}, all[2];
    char           *p = NULL;

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&own, CONF_MEM_MEMFD, BYTES);
    mine = conf_reg(&vcq, own.addr, BYTES, 0);
    for (unsigned step = 0; step < 8; step++) { /* bit 0: then, bit 1: at first, a file; bit 2: the peer was there before */
        if (conf_rank == 1) {
            p        = map_there(step & 2, NULL);
            stadd[0] = conf_reg(&vcq, p, BYTES, 0);
        }
        conf_exchange(&stadd[0], sizeof(stadd[0]), all);
        if ((conf_rank == 0) && (step & 4)) {
            memset(own.addr, 0x10, 64);
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], mine, all[1], 64, step, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], step, NULL);
        }
        conf_barrier();
        if (conf_rank == 1) {
            munmap(p, BYTES);
            p = map_there(step & 1, p);
            memset(p, 0x20, BYTES);
            stadd[1] = conf_reg(&vcq, p, BYTES, 0);
        }
        conf_exchange(&stadd[1], sizeof(stadd[1]), all);
        if (conf_rank == 0) {
            memset(own.addr, 0x30 + (int)step, 64);
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], mine, all[1] + 128, 64, step, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], step, NULL);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK_BYTES(p, 128, 0x20, "before it");
            CONF_CHECK_BYTES(p + 128, 64, 0x30 + step, "what was put");
            CONF_CHECK_BYTES(p + 192, BYTES - 192, 0x20, "behind it");
            conf_dereg(&vcq, stadd[0]);
            conf_dereg(&vcq, stadd[1]);
            CONF_CHECK_BYTES(p + 128, 64, 0x30 + step, "deregistered");
            munmap(p, BYTES);
        }
    }
    conf_dereg(&vcq, mine);
    conf_mem_free(&own);
    conf_vcq_close(&vcq);
}
