/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_cut_off.c - files of a peer that become shorter while they are registered, or of which there are many: what
 * goes there fails, and nobody ends, or runs out of addresses.
 */
#include "harness.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE 4096u

/* Two pages of a file that can be cut off */
static char *two_pages(int *fd_p)
{
    char *base;

    *fd_p = memfd_create("program", MFD_CLOEXEC);
    CONF_CHECK((*fd_p >= 0) && !ftruncate(*fd_p, 2 * PAGE), "memfd_create");
    base = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd_p, 0);
    CONF_CHECK(base != MAP_FAILED, "mmap");
    return base;
}

static int put_there(struct conf_vcq *vcq, utofu_stadd_t stadd)
{
    struct utofu_mrq_notice notice;

    CONF_POST(vcq->hdl, utofu_put_piggyback8(vcq->hdl, vcq->peer[1], 7, stadd, 8, 1, CONF_LMRQ, NULL));
    return CONF_CODE(CONF_WAIT_MRQ(vcq, &notice), UTOFU_SUCCESS, UTOFU_ERR_MRQ_RMT_MEMORY);
}

CONF_TEST("cut off", cut_off_for_all, 2,
          "where a peer's file has become shorter an operation fails by whatever registration and VCQ it comes")
{
    struct conf_vcq vcq[2];
    utofu_stadd_t   mine[2] = {0, 0}, all[2][2];
    char           *base;
    int             fd;

    conf_vcq_open(&vcq[0], 0, 0);
    conf_vcq_open(&vcq[1], 1, 0);
    vcq[1].peer[1] = vcq[0].peer[1]; /* one target, two ways to it */
    if (conf_rank == 1) {
        base    = two_pages(&fd);
        mine[0] = conf_reg(&vcq[0], base, 2 * PAGE, 0);
        mine[1] = conf_reg(&vcq[0], base, PAGE + 64, 0);
    }
    conf_exchange(mine, sizeof(mine), all);
    for (int cut = 0; cut < 2; cut++) {
        for (int i = 0; (conf_rank == 0) && (i < 8); i++) {
            int code = put_there(&vcq[i % 2], all[1][i / 2 % 2] + PAGE);

            CONF_CHECK(code == (cut ? UTOFU_ERR_MRQ_RMT_MEMORY : UTOFU_SUCCESS), "put %d: %d", i, code);
        }
        conf_barrier();
        if ((cut == 0) && (conf_rank == 1)) {
            CONF_CHECK(!ftruncate(fd, PAGE), "ftruncate");
        }
        conf_barrier();
    }
    /* what the file still has is reached */
    CONF_CHECK((conf_rank == 1) || (put_there(&vcq[0], all[1][0]) == UTOFU_SUCCESS), "the first page");
    conf_barrier();
}

CONF_TEST("cut off", cut_off_of_many, 2, "nor does it end anybody who has mapped more than 1024 such files")
{
    enum { FILES = 1100 };
    struct rlimit        files = {4 * FILES, 4 * FILES};
    static utofu_stadd_t mine[FILES], all[2][FILES];
    struct conf_vcq      vcq;
    int                  fd[FILES];

    if (setrlimit(RLIMIT_NOFILE, &files)) {
        conf_skip("no %u descriptors", (unsigned)files.rlim_cur);
    }
    conf_vcq_open(&vcq, 0, 0);
    for (int i = 0; (conf_rank == 1) && (i < FILES); i++) {
        mine[i] = conf_reg(&vcq, two_pages(&fd[i]), 2 * PAGE, 0);
    }
    conf_exchange(mine, sizeof(mine), all);
    for (int cut = 0; cut < 2; cut++) {
        for (int i = 0; (conf_rank == 0) && (i < FILES); i++) {
            int code = put_there(&vcq, all[1][i] + PAGE);

            CONF_CHECK(code == (cut ? UTOFU_ERR_MRQ_RMT_MEMORY : UTOFU_SUCCESS), "put %d: %d", i, code);
        }
        conf_barrier();
        for (int i = 0; (conf_rank == 1) && (i < FILES); i++) {
            CONF_CHECK(!ftruncate(fd[i], PAGE), "ftruncate");
        }
        conf_barrier();
    }
}

/* GiB */
static long addresses(void)
{
    long  pages = 0;
    FILE *f     = fopen("/proc/self/statm", "r");

    CONF_CHECK((f != NULL) && (fscanf(f, "%ld", &pages) == 1), "statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024) >> 20;
}

CONF_TEST("cut off", file_of_each_transfer, 2,
          "a peer that registers a new file for each transfer, a large and sparse one, does not take all addresses")
{
    enum { TIMES = 50 };
    const size_t    size = (size_t)64 << 30;
    struct conf_vcq vcq;
    utofu_stadd_t   mine = 0, all[2];
    char           *base = NULL;
    int             fd   = -1;
    long            before;

    conf_vcq_open(&vcq, 0, 0);
    before = addresses();
    for (int i = 0; i < TIMES; i++) {
        if (conf_rank == 1) {
            fd   = memfd_create("program", MFD_CLOEXEC);
            base = ((fd < 0) || ftruncate(fd, (off_t)size)) ? MAP_FAILED :
                                                              mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
            CONF_CHECK(base != MAP_FAILED, "a file of %zu bytes", size);
            mine = conf_reg(&vcq, base, PAGE, 0);
        }
        conf_exchange(&mine, sizeof(mine), all);
        CONF_CHECK((conf_rank == 1) || (put_there(&vcq, all[1] + 8) == UTOFU_SUCCESS), "put %d", i);
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK(base[8] == 7, "transfer %d", i);
            conf_dereg(&vcq, mine);
            munmap(base, size);
            close(fd);
        }
    }
    CONF_CHECK(addresses() - before <= 4 * 64, "%ld GiB of addresses more", addresses() - before);
    conf_barrier();
}
