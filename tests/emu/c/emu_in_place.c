/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_in_place.c - a put from the very memory that it goes to, which the program has mapped
 * as well: it copies nothing, and all else is as ever.
 */
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE  65536
#define BYTES 4096

static char *map_fd(int fd, size_t offset)
{
    char *base = mmap(NULL, SIZE - offset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

    CONF_CHECK(base != MAP_FAILED, "mmap");
    return base;
}

static void check(const char *data, int value, const char *what)
{
    for (int i = 0; i < BYTES; i++) {
        CONF_CHECK(data[i] == (char)(value + i % 7), "%s: byte %d", what, i);
    }
}

static void write_to(char *data, int value)
{
    for (int i = 0; i < BYTES; i++) {
        data[i] = (char)(value + i % 7);
    }
}

/* What rank 0 puts, from where, to which place at rank 1 */
static const struct {
    const char *what;
    int        file;          /* 0: rank 0's own, 1: rank 1's, 2: the same, mapped from 8192 on */
    size_t     from, to;      /* offsets in the file */
} puts_of[] = {
    {"in place", 1, 4096, 4096},
    {"in place, from a part that is mapped", 2, 12288, 12288},
    {"not to a page's begin", 1, 20488, 20488},
    {"elsewhere in the file", 1, 0, 32768},
    {"elsewhere, by the other mapping", 2, 8192, 40960},
    {"the same offset in another file", 0, 24576, 24576},
    {"the same offset in the registrations", 2, 8192 + 49152, 49152},
};

CONF_TEST("copies", put_in_place, 2, "a put from memory that is its target, mapped twice, is right, "
                                       "and one from other parts or files copies")
{
    struct {
        int pid, fd;
    } mine, all[2];
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[2], own[3];
    char                   *base[3], path[64];
    int                     fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING), theirs;

    CONF_CHECK((fd >= 0) && (ftruncate(fd, SIZE) == 0), "memfd");
    base[0] = map_fd(fd, 0);
    mine.pid = (int)getpid();
    mine.fd  = fd;
    conf_exchange(&mine, sizeof(mine), all);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, base[0], SIZE, stadds);
    if (conf_rank == 0) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", all[1].pid, all[1].fd);
        theirs = open(path, O_RDWR | O_CLOEXEC);
        CONF_CHECK(theirs >= 0, "open %s", path);
        base[1] = map_fd(theirs, 0);
        base[2] = map_fd(theirs, 8192);
        own[0]  = stadds[0];
        own[1]  = conf_reg(&vcq, base[1], SIZE, UTOFU_REG_MEM_FLAG_READ_ONLY);
        own[2]  = conf_reg(&vcq, base[2], SIZE - 8192, 0);
    }
    for (size_t n = 0; n < 3 * CONF_LEN(puts_of); n++) {
        size_t i = n % CONF_LEN(puts_of), f = (size_t)puts_of[i].file, skip = (f == 2) ? 8192 : 0;
        int    value = (int)n * 3 + 1;

        if (conf_rank == 0) {
            memset(base[1] + puts_of[i].to, 0, BYTES);
            write_to(base[f] + puts_of[i].from - skip, value);
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], own[f] + puts_of[i].from - skip,
                                         stadds[1] + puts_of[i].to, BYTES, 5, CONF_RMRQ | CONF_STRONG, NULL));
        } else {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[0], 5, &notice);
            CONF_CHECK(notice.rmt_stadd == stadds[1] + puts_of[i].to + BYTES, "%s: the notice's address",
                       puts_of[i].what);
            check(base[0] + puts_of[i].to, value, puts_of[i].what);
        }
        conf_barrier();
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("copies", in_place_cut_off, 2, "nor is it a success when the file has become shorter")
{
    struct {
        int pid, fd;
    } mine = {(int)getpid(), -1}, all[2];
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[2];
    char                    path[64], *data;
    int                     fd;

    fd      = memfd_create("program", MFD_CLOEXEC);
    mine.fd = fd;
    CONF_CHECK((fd >= 0) && !ftruncate(fd, SIZE), "memfd_create");
    conf_exchange(&mine, sizeof(mine), all);
    if (conf_rank == 0) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", all[1].pid, all[1].fd);
        fd = open(path, O_RDWR);
        CONF_CHECK(fd >= 0, "%s", path);
    }
    data = map_fd(fd, 0);
    memset(data, 1, SIZE);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, data, SIZE, stadds);
    if (conf_rank == 0) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0] + 32768, stadds[1] + 32768, 512, 1, CONF_TCQ, NULL));
        CONF_EXPECT_TCQ(&vcq, NULL);
        CONF_CHECK(!ftruncate(fd, 4096), "ftruncate");
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0] + 32768, stadds[1] + 32768, 512, 2, CONF_TCQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_RMT_MEMORY);
        CONF_CHECK(notice.edata == 2, "EDATA %d", (int)notice.edata);
    }
    conf_barrier();
}
