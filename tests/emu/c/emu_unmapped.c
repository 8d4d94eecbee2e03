/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_unmapped.c - a local buffer that was unmapped while it is registered.  What is
 * reported, is so once, and the VCQ goes on.
 */
#include "harness.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Puts of rank 0 from such a buffer, and gets into it, to and from memory of a kind of rank 1 */
static void unmapped(enum conf_kind kind, size_t size, bool gets)
{
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2], here, there;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, (conf_rank == 0) ? CONF_MEM_ANON : kind, size);
    memset(mem.addr, 1 + conf_rank, size);
    conf_reg_all(&vcq, mem.addr, size, stadds);
    here  = stadds[0];
    there = stadds[1];
    if (conf_rank == 0) {
        /* so that the library has mapped what it needs, and nothing comes where the hole is */
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], here, there, size, 5, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 5, NULL);
        CONF_CHECK(munmap(mem.addr + size / 2, size / 2) == 0, "munmap");
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], here, there, size, 1, CONF_TCQ, CONF_PTR(1)));
        CONF_EXPECT_TCQ_ERROR(&vcq, CONF_PTR(1), UTOFU_ERR_TCQ_MEMORY);
        if (gets) {
            CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], here, there, size, 2, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 2, UTOFU_ERR_MRQ_LCL_MEMORY);
        }
        CONF_EXPECT_QUIET(&vcq);
        /* the half that is there */
        memset(mem.addr, 7, size / 2);
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], here, there, size / 2, 3, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 3, NULL);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK_BYTES(mem.addr, size / 2, 7, "what was put");
        CONF_CHECK(munmap(mem.addr + size / 2, size / 2) == 0, "munmap");
    }
    conf_barrier();
    /* the target's half that is not there: that is the remote side */
    if ((conf_rank == 0) && (kind == CONF_MEM_ANON)) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], here, there + size / 2, size / 2, 4, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 4, UTOFU_ERR_MRQ_RMT_MEMORY);
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("unmapped", unmapped_strict, 2, "in the strict mode it is reported, whatever the other side is")
{
    setenv("UTOFU_EMU_STRICT", "1", 1);
    unmapped(CONF_MEM_MEMFD, 8192, true);
    unmapped(CONF_MEM_MEMFD, 8 << 20, true);
}

CONF_TEST("unmapped", unmapped_strict_private, 2, "the same, with private memory on the other side")
{
    setenv("UTOFU_EMU_STRICT", "1", 1);
    setenv("UTOFU_EMU_REHOME", "0", 1);
    unmapped(CONF_MEM_ANON, 8192, true);
    unmapped(CONF_MEM_ANON, 8 << 20, true);
}

CONF_TEST("unmapped", unmapped_by_the_kernel, 2, "where the kernel copies what is put, it is reported in the fast mode as well")
{
    setenv("UTOFU_EMU_REHOME", "0", 1);
    unmapped(CONF_MEM_ANON, 8192, false);
    unmapped(CONF_MEM_ANON, 8 << 20, false);
}

/* Up to so much the kernel copies a get at once, into the place itself */
#define BY_THE_KERNEL 64

static void may_not_be_used(void)
{
    enum { SIZE = 8192 };
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];

    setenv("UTOFU_EMU_REHOME", "0", 1);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_ANON, SIZE);
    memset(mem.addr, 1 + conf_rank, SIZE);
    conf_reg_all(&vcq, mem.addr, SIZE, stadds);
    if (conf_rank == 0) {
        const size_t puts[] = {8, 64, SIZE};

        CONF_CHECK(mprotect(mem.addr, SIZE, PROT_NONE) == 0, "mprotect");
        for (int i = 0; i < 3; i++) {
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], puts[i], 1, CONF_TCQ, CONF_PTR(1)));
            CONF_EXPECT_TCQ_ERROR(&vcq, CONF_PTR(1), UTOFU_ERR_TCQ_MEMORY);
        }
        CONF_CHECK(mprotect(mem.addr, SIZE, PROT_READ) == 0, "mprotect");
        CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], BY_THE_KERNEL, 2, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 2, UTOFU_ERR_MRQ_LCL_MEMORY);
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], SIZE, 3, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 3, NULL);
        CONF_EXPECT_QUIET(&vcq);
    }
    conf_barrier();
    CONF_CHECK_BYTES(mem.addr, SIZE, 1, "what was put");
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("unmapped", protected_by_the_kernel, 2, "memory that may not be used any more is told of the side whose it is")
{
    may_not_be_used();
}

CONF_TEST("unmapped", protected_timed, 2, "and in the timed mode")
{
    setenv("UTOFU_EMU_TIMING", "tofud", 1);
    may_not_be_used();
}

CONF_TEST("unmapped", unmapped_timed, 2, "and in the timed mode")
{
    setenv("UTOFU_EMU_REHOME", "0", 1);
    setenv("UTOFU_EMU_TIMING", "tofud", 1);
    unmapped(CONF_MEM_ANON, 8192, false);
    unmapped(CONF_MEM_ANON, 8 << 20, false);
}

CONF_TEST("unmapped", unmapped_own_target, 1,
          "in the strict mode it is reported of the remote side when that is the process itself")
{
    struct conf_vcq vcq;
    struct conf_mem mem, hole;
    utofu_stadd_t   here, there;
    uint64_t        word = 5;

    setenv("UTOFU_EMU_STRICT", "1", 1);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 8192);
    conf_mem_alloc(&hole, CONF_MEM_ANON, 8192);
    memset(mem.addr, 1, 8192);
    memset(hole.addr, 2, 8192);
    here  = conf_reg(&vcq, mem.addr, 8192, 0);
    there = conf_reg(&vcq, hole.addr, 8192, 0);
    conf_put_word(&vcq, vcq.id, here, there); /* so that nothing comes where the hole is */
    CONF_CHECK(munmap(hole.addr + 4096, 4096) == 0, "munmap");
    CONF_OK(utofu_put(vcq.hdl, vcq.id, here, there, 8192, 1, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 1, UTOFU_ERR_MRQ_RMT_MEMORY);
    CONF_OK(utofu_get(vcq.hdl, vcq.id, here, there, 8192, 2, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.id, 2, UTOFU_ERR_MRQ_RMT_MEMORY);
    CONF_OK(utofu_put_piggyback(vcq.hdl, vcq.id, &word, there + 4096, 8, 3, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 3, UTOFU_ERR_MRQ_RMT_MEMORY);
    CONF_OK(utofu_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 1, there + 4096, 4, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.id, 4, UTOFU_ERR_MRQ_RMT_MEMORY);
    /* beside it there is something, and padding reaches no further */
    CONF_OK(utofu_put_piggyback(vcq.hdl, vcq.id, &word, there + 4096 - 8, 8, 5, CONF_LMRQ | UTOFU_ONESIDED_FLAG_PADDING,
                                NULL));
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 5, NULL);
    CONF_CHECK(!memcmp(hole.addr + 4096 - 8, &word, 8), "what was put beside the hole");
    CONF_EXPECT_QUIET(&vcq);
    conf_dereg(&vcq, there);
    conf_dereg(&vcq, here);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("unmapped", unmapped_own_target_ahead, 1,
          "and so it is when an operation behind it, which wants a notice, is under way already")
{
    struct conf_vcq         vcq;
    struct conf_mem         mem, hole;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           there, gone;
    int                     code;

    setenv("UTOFU_EMU_STRICT", "1", 1);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_ANON, 8192);
    conf_mem_alloc(&hole, CONF_MEM_ANON, 8192);
    memset(mem.addr, 1, 8192);
    memset(hole.addr, 2, 8192);
    there = conf_reg(&vcq, mem.addr, 8192, 0);
    gone  = conf_reg(&vcq, hole.addr, 8192, 0);
    CONF_CHECK(munmap(hole.addr + 4096, 4096) == 0, "munmap");
    for (int i = 0; i < 100; i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 5, gone + 6144, 8, 1, 0, NULL));
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 5, there, 8, 2, CONF_LMRQ, NULL));
        code = CONF_WAIT_MRQ(&vcq, &notice);
        CONF_CHECK((code == UTOFU_ERR_MRQ_RMT_MEMORY) && (notice.edata == 1), "%s of %d", conf_code_name(code),
                   (int)notice.edata);
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
        CONF_CHECK(notice.edata == 2, "EDATA %d", (int)notice.edata);
    }
}
