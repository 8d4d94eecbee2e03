/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_huge.c - memory of hugetlbfs, where the system has such pages: peers reach all of it, whether they map it or,
 * where it is private, by the kernel, as no part of such a page can be moved.
 */
#include "harness.h"
#include "home.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB   ((size_t)1 << 20)
#define BYTES (4 * MIB) /* two pages, mostly */

static char *map_kind(unsigned kind)
{
    int   fd = (kind == 2) ? memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB) : -1;
    char *p  = MAP_FAILED;

    if ((kind != 2) || ((fd >= 0) && !ftruncate(fd, BYTES))) {
        p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                 (kind == 0) ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB :
                 (kind == 1) ? MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB : MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    return (p == MAP_FAILED) ? NULL : p;
}

CONF_TEST("memory", huge_pages, 2, "memory on huge pages, private, shared or of a memfd, is as any other, whole or in part")
{
    static const size_t from[] = {0, 2 * MIB, 104}, size[] = {BYTES, 2 * MIB, 3 * MIB + 8};
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           all[2];

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    for (unsigned k = 0; k < 9; k++) {
        size_t   n = size[k / 3] - 8, own = from[k / 3];
        char    *p = map_kind(k % 3);
        bool     any[2], has = p != NULL;

        conf_exchange(&has, sizeof(has), any);
        if (!any[0] || !any[1]) {
            conf_skip("no huge pages here");
        }
        memset(p, 0x33, BYTES);
        conf_fill(p + own, n, conf_rank + k);
        memset(p + own + n, 0, 8);
        conf_reg_all(&vcq, p + own, n + 8, all);
        CONF_CHECK(!is_home(p + own), "a huge page was moved");
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], all[0], all[1], n, 3, CONF_LMRQ | CONF_STRONG, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 3, NULL);
            CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 9, all[1] + n, 5, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 5, &notice);
            CONF_CHECK(notice.rmt_value == 0, "the value before is %" PRIu64, (uint64_t)notice.rmt_value);
            memset(p + own, 0, n);
            CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], all[0], all[1], n, 7, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 7, NULL);
        }
        conf_barrier();
        CONF_CHECK_FILL(p + own, n, k, "what was put, or got back");
        CONF_CHECK(p[own + n] == ((conf_rank == 1) ? 9 : 0), "the word is %d", p[own + n]);
        CONF_CHECK_BYTES(p, own, 0x33, "what is before it");
        CONF_CHECK_BYTES(p + own + n + 8, BYTES - own - n - 8, 0x33, "what is after it");
        conf_dereg(&vcq, all[conf_rank]);
        CONF_CHECK(!munmap(p, BYTES), "munmap: %s", strerror(errno));
    }
    conf_vcq_close(&vcq);
}
