/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_swap.c - UTOFU_SWAP_PROTECT: memory is locked as long as it is registered, and what the
 * program locks itself stays locked (4.3.2.5).
 */
#include "harness.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char  *memory;
static size_t page;

/* In KiB; -1: not known */
static long locked(void)
{
    char  line[256];
    long  kib  = -1;
    FILE *file = fopen("/proc/self/status", "r");

    while ((kib < 0) && (file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if (sscanf(line, "VmLck: %ld kB", &kib) != 1) {
            kib = -1;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

#define EXPECT_PAGES(_n, _when) \
    CONF_CHECK(locked() == (long)((_n) * page / 1024), "%ld KiB are locked, not %zu pages, " _when, locked(), (size_t)(_n))

/* Two VCQs, and 64 pages that nothing else is on */
static void open_two(struct conf_vcq vcq[2])
{
    struct rlimit limit;

    page = (size_t)sysconf(_SC_PAGESIZE);
    CONF_CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0, "getrlimit");
    if ((limit.rlim_cur != RLIM_INFINITY) && (limit.rlim_cur < 64 * page)) {
        conf_skip("so much can't be locked here");
    }
    memory = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CONF_CHECK(memory != MAP_FAILED, "mmap");
    memset(memory, 1, 64 * page);
    setenv("UTOFU_SWAP_PROTECT", "1", 1);
    conf_vcq_create(&vcq[0], 0, 0);
    conf_vcq_create(&vcq[1], 1, 0);
    if (locked() != 0) {
        conf_skip("something is locked already");
    }
    /* AddressSanitizer makes nothing of it */
    if (mlock(memory, page) || (locked() != (long)(page / 1024)) || munlock(memory, page)) {
        conf_skip("memory can't be locked here");
    }
}

CONF_TEST("swap", swap_two_vcqs, 1, "memory that is registered with two VCQs is locked until it is with none")
{
    struct conf_vcq vcq[2];
    utofu_stadd_t   s[2];

    open_two(vcq);
    for (int round = 0; round < 4; round++) {
        s[0] = conf_reg(&vcq[0], memory, 16 * page, 0);
        s[1] = conf_reg(&vcq[1], memory, 16 * page, 0);
        EXPECT_PAGES(16, "registered twice");
        conf_dereg(&vcq[round & 1], s[round & 1]);
        EXPECT_PAGES(16, "registered once");
        if (round & 2) {
            conf_vcq_close(&vcq[!(round & 1)]); /* which deregisters */
            conf_vcq_create(&vcq[!(round & 1)], !(round & 1), 0);
        } else {
            conf_dereg(&vcq[!(round & 1)], s[!(round & 1)]);
        }
        EXPECT_PAGES(0, "not registered");
    }
}

CONF_TEST("swap", swap_shared_pages, 1, "a page stays locked until the last of the regions on it goes")
{
    struct conf_vcq vcq[2];
    utofu_stadd_t   a, b, c;

    open_two(vcq);
    a = conf_reg(&vcq[0], memory + 100, 100, 0);
    b = conf_reg(&vcq[0], memory + 300, 100, 0);
    conf_dereg(&vcq[0], b);
    EXPECT_PAGES(1, "one of two regions is left");
    b = conf_reg(&vcq[1], memory + page / 2, 4 * page, 0); /* pages 0 to 4 */
    c = conf_reg(&vcq[0], memory + 2 * page, page, 0);
    EXPECT_PAGES(5, "three regions");
    conf_dereg(&vcq[1], b);
    EXPECT_PAGES(2, "the first and the third page");
    conf_dereg(&vcq[0], a);
    EXPECT_PAGES(1, "the third page");
    conf_dereg(&vcq[0], c);
    EXPECT_PAGES(0, "none");
}

CONF_TEST("swap", swap_own_locks, 1, "what the program had locked before stays locked, and nothing else does")
{
    struct conf_vcq vcq[2];
    utofu_stadd_t   a, b;

    open_two(vcq);
    CONF_CHECK(mlock(memory + 4 * page, 8 * page) == 0, "mlock"); /* pages 4 to 11 */
    a = conf_reg(&vcq[0], memory + 2 * page, 4 * page, 0);        /* 2 to 5 */
    EXPECT_PAGES(10, "the first region");
    b = conf_reg(&vcq[1], memory + page, 19 * page, 0); /* 1 to 19 */
    EXPECT_PAGES(19, "both regions");
    conf_dereg(&vcq[0], a);
    EXPECT_PAGES(19, "the larger one is left");
    a = conf_reg(&vcq[0], memory + 10 * page, 3 * page, 0); /* 10 to 12 */
    conf_dereg(&vcq[1], b);
    EXPECT_PAGES(9, "pages 4 to 12");
    conf_dereg(&vcq[0], a);
    EXPECT_PAGES(8, "the program's own");
    CONF_CHECK(munlock(memory + 4 * page, 8 * page) == 0, "munlock");
    EXPECT_PAGES(0, "and these were where they had been");
}

CONF_TEST("swap", swap_after_fork, 1, "a child, which has no locks of its parent's, locks what it registers itself")
{
    struct conf_vcq vcq[2];
    utofu_stadd_t   a;
    pid_t           child;
    int             status;

    open_two(vcq);
    a     = conf_reg(&vcq[0], memory, 4 * page, 0);
    child = fork();
    if (child == 0) {
        EXPECT_PAGES(0, "in the child");
        conf_vcq_create(&vcq[0], 0, 0);
        a = conf_reg(&vcq[0], memory + page, page, 0);
        EXPECT_PAGES(1, "registered in the child");
        conf_dereg(&vcq[0], a);
        EXPECT_PAGES(0, "deregistered in the child");
        _exit(0);
    }
    CONF_CHECK((waitpid(child, &status, 0) == child) && (status == 0), "the child failed");
    EXPECT_PAGES(4, "in the parent");
    conf_dereg(&vcq[0], a);
    EXPECT_PAGES(0, "in the end");
}
