/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_lines.c - programs that do without the order of cache lines in private memory
 * (docs/emulator.md, Order): what they still may rely on.
 */
#include "harness.h"

#include <tofu_vcq.h>

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE 256

static uint64_t load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Rank 1 sees the last word of a STRONG_ORDER put, or a notice, then all of it; and a
 * get brings what is there. */
static void without_lines(bool by_page)
{
    static const size_t sizes[] = {96, 256, 700, 4096, 8200, 65536};
    enum { ROUNDS = 600, MOST = 65536 / 8 };
    struct conf_vcq         vcq;
    struct conf_mem         mem, ack;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[2], acks[2], hint;
    uint64_t               *data, value, round, i;
    size_t                  words;
    unsigned                spins = 0;
    bool                    notify;

    conf_timeout(60);
    conf_pin();
    setenv("UTOFU_EMU_REHOME", "0", 1); /* by the kernel, not by stores */
    conf_vcq_open(&vcq, 0, 0);
    if (by_page) {
        int   fd   = memfd_create(TOFU_UNORDERED_MEMFD, MFD_CLOEXEC);
        void *page = MAP_FAILED;

        CONF_CHECK((fd >= 0) && (ftruncate(fd, 4096) == 0), "memfd");
        page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        CONF_CHECK(page != MAP_FAILED, "mmap");
        close(fd);
        CONF_OK(utofu_reg_mem(vcq.hdl, page, 4096, UTOFU_REG_MEM_FLAG_READ_ONLY, &hint));
    }
    conf_mem_alloc(&mem, CONF_MEM_ANON, 65536);
    conf_mem_alloc(&ack, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    conf_reg_all(&vcq, ack.addr, 4096, acks);
    data = (uint64_t *)(void *)mem.addr;
    for (round = 1; round <= ROUNDS; round++) {
        words  = sizes[round % CONF_LEN(sizes)] / 8;
        value  = round * UINT64_C(0x9e3779b97f4a7c15);
        notify = (round & 1) != 0;
        if (conf_rank == 0) {
            for (i = 0; i < words; i++) {
                data[i] = value + i;
            }
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], words * 8, 7,
                                         notify ? CONF_RMRQ : CONF_STRONG, NULL));
            while (load((const uint64_t *)(void *)ack.addr) != round) {
                conf_relax(&spins);
            }
            memset(data, 0, words * 8);
            CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], words * 8, 8, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 8, &notice);
            for (i = 0; i < words; i++) {
                CONF_CHECK(data[i] == value + i, "round %" PRIu64 ": word %" PRIu64 " of a get", round, i);
            }
            CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[1], round, acks[1], 8, 0, CONF_STRONG, NULL));
            continue;
        }
        if (notify) {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[0], 7, &notice);
        }
        while (load(&data[words - 1]) != value + words - 1) {
            CONF_CHECK(!notify, "round %" PRIu64 ": a notice before its data", round);
            conf_relax(&spins);
        }
        for (i = words; i-- > 0;) {
            CONF_CHECK(load(&data[i]) == value + i, "round %" PRIu64 ", %zu words: the last is new, word %" PRIu64
                       " is not", round, words, i);
        }
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[0], round, acks[0], 8, 0, CONF_STRONG, NULL));
        while (load((const uint64_t *)(void *)ack.addr) != round) { /* it was fetched */
            conf_relax(&spins);
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_dereg(&vcq, acks[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
    conf_mem_free(&ack);
}

CONF_TEST("lines", lines_unordered_by_page, 2,
          "a VCQ with the page of tofu_vcq.h: STRONG_ORDER and notices hold, gets are right")
{
    without_lines(true);
}

CONF_TEST("lines", lines_unordered_by_variable, 2, "the same with UTOFU_EMU_LINES=unordered")
{
    setenv("UTOFU_EMU_LINES", "unordered", 1);
    without_lines(false);
}

CONF_TEST("lines", lines_wrong_variable, 1, "a wrong UTOFU_EMU_LINES is said, and lines are in order")
{
    utofu_vcq_hdl_t hdl;

    setenv("UTOFU_EMU_LINES", "sideways", 1);
    CONF_OK(utofu_create_vcq(0, 0, &hdl));
    CONF_OK(utofu_free_vcq(hdl));
}

/* Where a put to [at, at + n) is seen to have come so far, all before it is there, too. */
static bool all_before(const uint64_t *data, size_t words, uint64_t value, size_t step)
{
    for (size_t i = words; i-- > 0;) {
        if ((i % step == 0) && (load(&data[i]) == value + i)) {
            for (size_t k = i; k-- > 0;) {
                CONF_CHECK(load(&data[k]) == value + k, "of %zu words, word %zu is new, word %zu is not", words, i, k);
            }
            return i + step >= words;
        }
    }
    return false;
}

CONF_TEST("lines", lines_of_large_puts, 2,
          "puts of 0.7 to 1.1 MiB to mapped memory, from and to any place, write what they are to, in ascending order "
          "of cache lines, and nothing else")
{
    static const size_t sizes[] = {768 << 10, (768 << 10) - 8, (768 << 10) + 8, (768 << 10) + 2200, 900000, 1100000 - 32};
    enum { MOST = 1100000, ROUNDS = 600, GUARD = 4096 };
    struct conf_vcq vcq;
    struct conf_mem mem, ack;
    utofu_stadd_t   stadds[2], acks[2];
    unsigned        spins = 0;

    conf_timeout(60);
    conf_pin();
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, MOST + 2 * GUARD + 512);
    conf_mem_alloc(&ack, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    conf_reg_all(&vcq, ack.addr, 4096, acks);
    memset(mem.addr, 0x5a, mem.size);
    conf_barrier();
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        size_t    n = sizes[round % CONF_LEN(sizes)], from = GUARD + round * 40 % 256, to = GUARD + round * 24 % 512;
        uint64_t  value = round << 32;
        uint64_t *data  = (uint64_t *)(void *)(mem.addr + (conf_rank == 0 ? from : to));

        if (conf_rank == 0) {
            for (size_t i = 0; i < n / 8; i++) {
                data[i] = value + i;
            }
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadds[0] + from, stadds[1] + to, n, 7, CONF_STRONG, NULL));
            while (load((const uint64_t *)(void *)ack.addr) != round) {
                conf_relax(&spins);
            }
            continue;
        }
        while (!all_before(data, n / 8, value, 32 - round % 8)) {
            conf_relax(&spins);
        }
        while (load(&data[n / 8 - 1]) != value + n / 8 - 1) {
            conf_relax(&spins);
        }
        all_before(data, n / 8, value, 1);
        CONF_CHECK_BYTES(mem.addr, to, 0x5a, "before it");
        CONF_CHECK_BYTES(mem.addr + to + n, mem.size - to - n, 0x5a, "behind it");
        memset(data, 0x5a, n);
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[0], round, acks[0], 8, 0, CONF_STRONG, NULL));
    }
    conf_barrier();
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
    conf_mem_free(&ack);
}
