/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_bounds.c - UTOFU_EMU_BOUNDS=page: a registration reaches to the ends of the machine's pages.
 */
#include "harness.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 65536u

/* A block of pages of the machine, at such a page, and unmapped memory on both sides of it */
static char *pages(enum conf_kind kind, size_t size)
{
    char *room = mmap(NULL, size + 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *at;
    int   fd = -1;

    CONF_CHECK(room != MAP_FAILED, "no addresses");
    at = (char *)(((uintptr_t)room + 2 * PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    if (kind == CONF_MEM_MEMFD) {
        fd = memfd_create("bounds", 0);
        CONF_CHECK((fd >= 0) && (ftruncate(fd, (off_t)size) == 0), "memfd");
    }
    at = mmap(at, size, PROT_READ | PROT_WRITE, MAP_FIXED | ((fd < 0) ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED), fd, 0);
    CONF_CHECK(at != MAP_FAILED, "mmap");
    return at;
}

static uint64_t word_at(const char *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return v;
}

/* Rank 0 puts a word; code: of the notice */
static void put(struct conf_vcq *vcq, uint64_t value, utofu_stadd_t stadd, int code)
{
    CONF_POST(vcq->hdl, utofu_put_piggyback8(vcq->hdl, vcq->peer[1], value, stadd, 8, 9, CONF_LMRQ, NULL));
    if (code == UTOFU_SUCCESS) {
        CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq->peer[1], 9, NULL);
    } else {
        CONF_EXPECT_MRQ_ERROR(vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq->peer[1], 9, code);
    }
}

/* Two words in the middle of the second of three pages are registered. */
static void by_page(enum conf_kind kind)
{
    struct conf_vcq vcq;
    char           *at;
    utofu_stadd_t   one[2], two[2];

    setenv("UTOFU_EMU_BOUNDS", "page", 1);
    at = pages(kind, 3 * PAGE) + PAGE + 30000;
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, at, 8, one);
    conf_reg_all(&vcq, at + 800, 8, two);
    CONF_CHECK(two[conf_rank] == one[conf_rank] + 800, "the second is of the first one's page, and has no STADD of it");
    CONF_CHECK(one[conf_rank] % 256 == (uintptr_t)at % 256, "where in a line it is");
    if (conf_rank == 0) {
        put(&vcq, 1, one[1], UTOFU_SUCCESS);
        put(&vcq, 2, one[1] - 30000, UTOFU_SUCCESS);
        put(&vcq, 3, one[1] - 30000 + PAGE - 8, UTOFU_SUCCESS);
        put(&vcq, 4, one[1] - 30000 + PAGE - 4, UTOFU_ERR_MRQ_RMT_LENGTH);
        put(&vcq, 4, one[1] - 30000 + PAGE, UTOFU_ERR_MRQ_RMT_STADD);
        put(&vcq, 4, one[1] - 30008, UTOFU_ERR_MRQ_RMT_STADD);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK(word_at(at) == 1, "what was registered");
        CONF_CHECK(word_at(at - 30000) == 2, "its page's first word");
        CONF_CHECK(word_at(at - 30000 + PAGE - 8) == 3, "and last");
        CONF_CHECK((word_at(at - 30000 + PAGE) == 0) && (word_at(at - 30008) == 0), "the other pages");
    }
    conf_barrier();
    /* it is there as long as one of them is */
    conf_dereg(&vcq, one[conf_rank]);
    conf_barrier();
    if (conf_rank == 0) {
        put(&vcq, 5, one[1], UTOFU_SUCCESS);
    }
    conf_barrier();
    conf_dereg(&vcq, two[conf_rank]);
    CONF_CODE(utofu_dereg_mem(vcq.hdl, two[conf_rank], 0), UTOFU_ERR_INVALID_STADD);
    conf_barrier();
    if (conf_rank == 0) {
        put(&vcq, 6, one[1], UTOFU_ERR_MRQ_RMT_STADD);
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (word_at(at) == 5), "after the last was deregistered");
    conf_vcq_close(&vcq);
}

CONF_TEST("bounds", bounds_page_memfd, 2, "a region has its pages, 64 KiB each, and its STADD is the page's: mapped")
{
    by_page(CONF_MEM_MEMFD);
}

CONF_TEST("bounds", bounds_page_anon, 2, "the same of private memory")
{
    by_page(CONF_MEM_ANON);
}

CONF_TEST("bounds", bounds_page_hole, 2, "no further than there is memory, and the same for constants as by default")
{
    static const uint64_t constant[4096] = {1, 2, 3};
    struct conf_vcq       vcq;
    char                 *at, *end;
    utofu_stadd_t         stadds[2], here;

    setenv("UTOFU_EMU_BOUNDS", "page", 1);
    end = pages(CONF_MEM_ANON, 20480) + 20480; /* what is behind it is not mapped */
    at  = end - 4000;
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, at, 8, stadds);
    if (conf_rank == 0) {
        put(&vcq, 1, stadds[1] + 3992, UTOFU_SUCCESS);
        put(&vcq, 2, stadds[1] + 4000, UTOFU_ERR_MRQ_RMT_STADD);
        put(&vcq, 3, stadds[1] - 16480, UTOFU_SUCCESS);
        put(&vcq, 4, stadds[1] - 16488, UTOFU_ERR_MRQ_RMT_STADD);
        CONF_OK(utofu_reg_mem(vcq.hdl, (void *)(uintptr_t)&constant[1], 8, UTOFU_REG_MEM_FLAG_READ_ONLY, &here));
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], here, stadds[1], 8, 5, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 5, NULL);
        CONF_OK(utofu_dereg_mem(vcq.hdl, here, 0));
        CONF_CODE(utofu_reg_mem(vcq.hdl, (void *)(uintptr_t)&constant[1], 8, 0, &here), UTOFU_ERR_INVALID_ADDRESS);
        CONF_CODE(utofu_reg_mem(vcq.hdl, end, 8, 0, &here), UTOFU_ERR_INVALID_ADDRESS);
        CONF_CODE(utofu_reg_mem(vcq.hdl, at, SIZE_MAX - 4096, 0, &here), UTOFU_ERR_INVALID_ADDRESS, UTOFU_ERR_INVALID_SIZE);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK((word_at(at) == 2) && (word_at(end - 8) == 1) && (word_at(end - 20480) == 3), "what was put");
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("bounds", bounds_page_with_stag, 2, "a region with a STag of the program's has what is behind it on its page")
{
    struct conf_vcq vcq;
    char           *at;
    utofu_stadd_t   stadd, own;

    setenv("UTOFU_EMU_BOUNDS", "page", 1);
    at = pages(CONF_MEM_MEMFD, PAGE) + 256;
    conf_vcq_open(&vcq, 0, 0);
    CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, at, 256, 3, 0, &own));
    CONF_OK(utofu_query_stadd(vcq.peer[1], 3, &stadd));
    conf_barrier();
    if (conf_rank == 0) {
        put(&vcq, 1, stadd + PAGE - 264, UTOFU_SUCCESS);
        put(&vcq, 2, stadd + PAGE - 256, UTOFU_ERR_MRQ_RMT_STADD);
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (word_at(at + PAGE - 264) == 1), "what was put");
    conf_dereg(&vcq, own);
    conf_vcq_close(&vcq);
}

CONF_TEST("bounds", bounds_page_stack, 2, "a variable on the stack, of which more is used than was registered")
{
    struct conf_vcq vcq;
    volatile double local[16] = {0};
    utofu_stadd_t   stadds[2], all[2];
    double         *there;

    setenv("UTOFU_EMU_BOUNDS", "page", 1);
    conf_vcq_open(&vcq, 0, 0);
    there = (double *)(void *)pages(CONF_MEM_MEMFD, PAGE);
    for (int i = 0; i < 16; i++) {
        there[i] = i + 0.5;
    }
    conf_reg_all(&vcq, there, PAGE, all);
    for (int round = 0; round < 3; round++) { /* each time anew, as programs do */
        conf_reg_all(&vcq, (void *)&local[0], 8, stadds);
        if (conf_rank == 0) {
            local[9] = 0;
            CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], stadds[0] + 9 * 8, all[1] + 9 * 8, 8, 5, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 5, NULL);
            CONF_CHECK((local[9] == 9.5) && (local[8] == 0) && (local[10] == 0), "round %d: what was got", round);
        }
        conf_barrier();
        conf_dereg(&vcq, stadds[conf_rank]);
    }
    conf_dereg(&vcq, all[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("bounds", bounds_exact, 2, "by default a region ends where the guide says")
{
    struct conf_vcq vcq;
    char           *at;
    utofu_stadd_t   stadds[2];

    unsetenv("UTOFU_EMU_BOUNDS");
    at = pages(CONF_MEM_ANON, PAGE) + 64;
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, at, 8, stadds);
    if (conf_rank == 0) {
        put(&vcq, 1, stadds[1], UTOFU_SUCCESS);
        put(&vcq, 2, stadds[1] + 1, UTOFU_ERR_MRQ_RMT_LENGTH);
        put(&vcq, 2, stadds[1] + 8, UTOFU_ERR_MRQ_RMT_STADD);
        put(&vcq, 2, stadds[1] - 8, UTOFU_ERR_MRQ_RMT_STADD);
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || ((word_at(at) == 1) && (word_at(at + 8) == 0) && (word_at(at - 8) == 0)), "what was put");
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

/* Rank 1 registers the begin of a page of the machine, of which the program replaces, and protects, other parts. */
static void torn(bool replaced)
{
    enum { PART = 4096 };
    struct conf_vcq vcq;
    char           *at, *part;
    utofu_stadd_t   one[2], two[2];

    setenv("UTOFU_EMU_BOUNDS", "page", 1);
    at = pages(CONF_MEM_ANON, PAGE);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, at, 64, one);
    if (replaced) {
        CONF_CHECK(munmap(at + PAGE - PART, PART) == 0, "munmap");
    }
    part = mmap(at + PAGE / 2, PART, replaced ? PROT_READ | PROT_WRITE : PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CONF_CHECK(part != MAP_FAILED, "mmap");
    part = replaced ? part : at + PART;
    conf_reg_all(&vcq, part, 64, two);
    if (conf_rank == 0) {
        put(&vcq, 7, one[1], UTOFU_SUCCESS);
        put(&vcq, 8, two[1], UTOFU_SUCCESS);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK(word_at(at) == 7, "what was registered first");
        CONF_CHECK(word_at(part) == 8, "and then");
    }
    conf_barrier();
    conf_dereg(&vcq, two[conf_rank]);
    conf_dereg(&vcq, one[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("bounds", bounds_page_replaced, 2, "what the program has put in the place of a neighbour is reached when it is registered")
{
    torn(true);
}

CONF_TEST("bounds", bounds_page_protected, 2, "a neighbour that may not be used any more takes nothing away")
{
    torn(false);
}
