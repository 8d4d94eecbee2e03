/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_mem.c - registering memory and what STADDs mean (3.6).
 */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#define REMOTE_STADD UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_MEMORY

CONF_TEST("3.6.1.1", same_region_twice, 2,
          "the same region has the same STADD each time and stays registered "
          "until it was deregistered as often; then a put is an error at the "
          "origin and changes nothing")
{
    struct conf_vcq vcq;
    utofu_stadd_t   first, second, stadds[2];
    uint64_t        words[16], source = 77;
    utofu_stadd_t   lcl;

    conf_need_exact_bounds();
    memset(words, 0, sizeof(words));
    conf_vcq_open(&vcq, 0, 0);
    lcl    = conf_reg(&vcq, &source, sizeof(source), 0);
    first  = conf_reg(&vcq, words, sizeof(words), 0);
    second = conf_reg(&vcq, words, sizeof(words), 0);
    CONF_CHECK(first == second, "0x%" PRIx64 ", then 0x%" PRIx64, first,
               second);
    conf_exchange(&first, sizeof(first), stadds);
    if (conf_rank == 1) {
        conf_dereg(&vcq, first);
        conf_barrier();
        conf_barrier();
        CONF_CHECK(words[3] == 77, "the put did not arrive");
        conf_dereg(&vcq, first);
        conf_barrier();
        conf_barrier();
        CONF_CHECK(words[4] == 0, "memory changed after its deregistration");
        CONF_CODE(utofu_dereg_mem(vcq.hdl, first, 0), UTOFU_ERR_INVALID_STADD);
    } else {
        conf_barrier();
        conf_put_word(&vcq, vcq.peer[1], lcl, stadds[1] + 3 * 8);
        conf_barrier();
        conf_barrier();
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], lcl, stadds[1] + 4 * 8, 8, 5, 0,
                          NULL));
        CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 5,
                              REMOTE_STADD);
        conf_barrier();
        conf_dereg(&vcq, first);
        conf_dereg(&vcq, first);
    }
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.6", overlapping_regions, 2,
          "overlapping regions may be registered; every STADD reaches its own "
          "bytes; one goes and the others stay")
{
    struct conf_vcq vcq;
    unsigned char   bytes[4096];
    utofu_stadd_t   mine[3], all[6], lcl;
    uint64_t        source = UINT64_C(0x1122334455667788);

    memset(bytes, 0, sizeof(bytes));
    conf_vcq_open(&vcq, 0, 0);
    lcl     = conf_reg(&vcq, &source, sizeof(source), 0);
    mine[0] = conf_reg(&vcq, bytes, 2048, 0);
    mine[1] = conf_reg(&vcq, bytes + 1000, 2048, 0);
    mine[2] = conf_reg(&vcq, bytes, sizeof(bytes), 0);
    conf_exchange(mine, sizeof(mine), all);
    if (conf_rank == 0) {
        conf_put_word(&vcq, vcq.peer[1], lcl, all[3] + 1200);
        conf_put_word(&vcq, vcq.peer[1], lcl, all[4] + 300);
        conf_put_word(&vcq, vcq.peer[1], lcl, all[5] + 4088);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK(memcmp(bytes + 1200, &source, 8) == 0, "first STADD");
        CONF_CHECK(memcmp(bytes + 1300, &source, 8) == 0, "second STADD");
        CONF_CHECK(memcmp(bytes + 4088, &source, 8) == 0, "third STADD");
        memset(bytes, 0, sizeof(bytes));
    }
    conf_dereg(&vcq, mine[1]);
    conf_barrier();
    if (conf_rank == 0) {
        conf_put_word(&vcq, vcq.peer[1], lcl, all[3] + 1200);
        conf_put_word(&vcq, vcq.peer[1], lcl, all[5] + 2000);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK(memcmp(bytes + 1200, &source, 8) == 0, "first STADD, later");
        CONF_CHECK(memcmp(bytes + 2000, &source, 8) == 0, "third STADD, later");
    }
    conf_dereg(&vcq, mine[0]);
    conf_dereg(&vcq, mine[2]);
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.6", many_regions, 2,
          "thousands of regions can be registered at once, each with its own "
          "STADD")
{
    enum { REGIONS = 4000, SIZE = 40 };
    static utofu_stadd_t mine[REGIONS], all[2 * REGIONS];
    struct conf_vcq      vcq;
    unsigned char       *bytes = calloc(REGIONS, SIZE);
    uint64_t             source;
    utofu_stadd_t        lcl;
    size_t               i;

    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, &source, sizeof(source), 0);
    for (i = 0; i < REGIONS; i++) {
        mine[i] = conf_reg(&vcq, bytes + i * SIZE, SIZE, 0);
    }
    conf_exchange(mine, sizeof(mine), all);
    for (i = 0; (i < REGIONS) && (conf_rank == 0); i++) {
        source = i + 1;
        conf_put_word(&vcq, vcq.peer[1], lcl, all[REGIONS + i] + i % 32);
    }
    conf_barrier();
    for (i = 0; (i < REGIONS) && (conf_rank == 1); i++) {
        source = i + 1;
        CONF_CHECK(memcmp(bytes + i * SIZE + i % 32, &source, 8) == 0,
                   "region %zu was not reached", i);
    }
    for (i = 0; i < REGIONS; i++) {
        conf_dereg(&vcq, mine[(i * 7) % REGIONS]);
    }
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
    free(bytes);
}

CONF_TEST("3.6.1.1", full_then_free, 1,
          "when no STADD is left utofu_reg_mem says FULL, and one "
          "deregistration makes room for one registration")
{
    enum { MOST = 70000 };
    static utofu_stadd_t stadds[MOST];
    struct conf_vcq      vcq;
    unsigned char       *bytes = calloc(MOST, 8);
    size_t               n, i;
    int                  rc = UTOFU_SUCCESS;

    conf_vcq_create(&vcq, 0, 0);
    for (n = 0; n < MOST; n++) {
        rc = CONF_CODE(utofu_reg_mem(vcq.hdl, bytes + n * 8, 8, 0, &stadds[n]),
                       UTOFU_SUCCESS, UTOFU_ERR_FULL);
        if (rc != UTOFU_SUCCESS) {
            break;
        }
    }
    CONF_CHECK(n > 256, "only %zu regions could be registered", n);
    conf_dereg(&vcq, stadds[n / 3]);
    CONF_OK(utofu_reg_mem(vcq.hdl, bytes + n / 3 * 8, 8, 0, &stadds[n / 3]));
    if (rc == UTOFU_ERR_FULL) {
        CONF_CODE(utofu_reg_mem(vcq.hdl, bytes + n * 8, 8, 0, &stadds[n]),
                  UTOFU_ERR_FULL);
    }
    for (i = 0; i < n; i++) {
        conf_dereg(&vcq, stadds[i]);
    }
    conf_vcq_close(&vcq);
    free(bytes);
    if (rc != UTOFU_ERR_FULL) {
        conf_need_exact_bounds(); /* those on one page may be one region */
        CONF_CHECK(!conf_is_emulator(), "a VCQ of 65536 STags took %zu regions", n);
        conf_skip("more than %zu regions can be registered", n);
    }
}

CONF_TEST("3.6", offset_arithmetic, 2,
          "STADD plus an offset is the address plus the offset, anywhere in a "
          "large region, at both ends of an operation")
{
    enum { SIZE = 48 << 20 };
    struct conf_vcq vcq;
    unsigned char  *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                                 -1, 0);
    utofu_stadd_t   stadds[2];
    size_t          at, i;

    static const size_t places[] = {0, 1, 4095, 65536, 1 << 20, (16 << 20) - 3,
                                    (32 << 20) + 5, SIZE - 333};

    CONF_CHECK(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, bytes, SIZE, stadds);
    for (i = 0; i < CONF_LEN(places); i++) {
        at = places[CONF_LEN(places) - 1 - i];
        if (conf_rank == 0) {
            conf_fill(bytes + at, 333, i);
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0] + at,
                              stadds[1] + places[i], 333, 0, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 0, NULL);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK_FILL(bytes + places[i], 333, i, "put at an offset");
        }
        conf_barrier();
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    munmap(bytes, SIZE);
}

CONF_TEST("3.6.2.1", read_only_source, 2,
          "memory registered READ_ONLY, writable or not, can be the source of "
          "a put and of a get")
{
    static const unsigned char constant[64] = "read only data of the program";
    struct conf_vcq            vcq;
    unsigned char              bytes[64], target[64];
    utofu_stadd_t              mine[3], all[6];
    size_t                     i;

    memset(target, 0, sizeof(target));
    conf_fill(bytes, sizeof(bytes), conf_rank);
    conf_vcq_open(&vcq, 0, 0);
    mine[0] = conf_reg(&vcq, (void *)constant, sizeof(constant),
                       UTOFU_REG_MEM_FLAG_READ_ONLY);
    mine[1] = conf_reg(&vcq, bytes, sizeof(bytes),
                       UTOFU_REG_MEM_FLAG_READ_ONLY);
    mine[2] = conf_reg(&vcq, target, sizeof(target), 0);
    conf_exchange(mine, sizeof(mine), all);
    for (i = 0; (i < 2) && (conf_rank == 0); i++) {
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], mine[i], all[5] + i * 32, 32, i,
                          CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], i, NULL);
        CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], mine[2] + i * 32, all[3 + i],
                          32, i, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], i, NULL);
    }
    conf_barrier();
    CONF_CHECK(memcmp(target, constant, 32) == 0, "constant data");
    CONF_CHECK_FILL(target + 32, 32, 1 - conf_rank, "READ_ONLY data");
    for (i = 0; i < 3; i++) {
        conf_dereg(&vcq, mine[i]);
    }
    conf_vcq_close(&vcq);
}

/* The error of the one operation under way: a TCQ or an MRQ code. */
static int wait_error(const struct conf_vcq *vcq)
{
    double                  end   = conf_now() + CONF_WAIT;
    unsigned                spins = 0;
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    int                     rc;

    do {
        rc = utofu_poll_tcq(vcq->hdl, 0, &cbdata);
        if (rc == UTOFU_ERR_NOT_FOUND) {
            rc = utofu_poll_mrq(vcq->hdl, 0, &notice);
        }
        conf_relax(&spins);
    } while ((rc == UTOFU_ERR_NOT_FOUND) && (conf_now() < end));
    return rc;
}

CONF_TEST("3.6.2.1", write_to_read_only, 2,
          "a put, piggyback put or ARMW to a READ_ONLY STADD, or a get into "
          "one, is reported as an error and changes nothing; the same memory "
          "registered without the flag can be written")
{
    struct conf_vcq  vcq;
    struct conf_mem  mem;
    utofu_stadd_t    mine[2], all[4];
    uint64_t         value = 5;
    enum conf_kind   kind;
    int              op, rc;

    for (op = 0; op < 8; op++) {
        kind = (op % 2) ? CONF_MEM_MEMFD : CONF_MEM_MALLOC;
        conf_vcq_open(&vcq, 0, 0);
        conf_mem_alloc(&mem, kind, 256);
        memset(mem.addr, 0x55, mem.size);
        mine[0] = conf_reg(&vcq, mem.addr, mem.size,
                           UTOFU_REG_MEM_FLAG_READ_ONLY);
        mine[1] = conf_reg(&vcq, mem.addr, mem.size, 0);
        conf_exchange(mine, sizeof(mine), all);
        if (conf_rank == 0) {
            switch (op / 2) {
            case 0:
                CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], mine[1], all[2], 8, 3,
                                  0, NULL));
                break;
            case 1:
                CONF_OK(utofu_put_piggyback(vcq.hdl, vcq.peer[1], &value,
                                            all[2], 8, 3, 0, NULL));
                break;
            case 2:
                CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1,
                                    all[2], 3, 0, NULL));
                break;
            case 3:
                CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], mine[0], all[3], 8, 3,
                                  0, NULL));
                break;
            }
            rc = CONF_CODE(wait_error(&vcq), UTOFU_ERR_TCQ_OTHER,
                           UTOFU_ERR_TCQ_MEMORY, UTOFU_ERR_TCQ_STADD,
                           UTOFU_ERR_MRQ_OTHER, UTOFU_ERR_MRQ_RMT_MEMORY,
                           UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_LCL_MEMORY,
                           UTOFU_ERR_MRQ_LCL_STADD);
            /* which of them the guide leaves open; what is not accessible is meant */
            CONF_CHECK(!conf_is_emulator() ||
                               (rc == ((op / 2 == 3) ? UTOFU_ERR_MRQ_LCL_MEMORY : UTOFU_ERR_MRQ_RMT_MEMORY)),
                       "operation %d: %s", op / 2, conf_code_name(rc));
            CONF_CHECK_BYTES(mem.addr, mem.size, 0x55, "READ_ONLY memory here");
        }
        conf_barrier();
        CONF_CHECK_BYTES(mem.addr, mem.size, 0x55, "READ_ONLY memory");
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], value, all[3], 8,
                                         4, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 4, NULL);
        }
        conf_barrier();
        CONF_CHECK((conf_rank == 0) || (*(uint64_t *)mem.addr == value),
                   "the memory cannot be written by its other STADD");
        conf_dereg(&vcq, mine[0]);
        conf_dereg(&vcq, mine[1]);
        conf_vcq_close(&vcq);
        conf_mem_free(&mem);
    }
}

CONF_TEST("3.6.2.1", write_to_known_read_only, 2,
          "so is each operation, again and again, after the origin has read there and written elsewhere, "
          "also when the program chose the STag")
{
    static const unsigned long flags[] = {0, CONF_LMRQ, CONF_LMRQ | CONF_STRONG};
    struct conf_vcq            vcq;
    struct conf_mem            mem;
    utofu_stadd_t              mine[3], all[6];
    uint64_t                   value = 5;

    for (int kind = 0; kind < 2; kind++) {
        conf_vcq_open(&vcq, 0, 0);
        conf_mem_alloc(&mem, kind ? CONF_MEM_MEMFD : CONF_MEM_ANON, 256);
        memset(mem.addr, 0x55, mem.size);
        mine[0] = conf_reg(&vcq, mem.addr, mem.size, 0);
        mine[1] = conf_reg(&vcq, mem.addr, mem.size, UTOFU_REG_MEM_FLAG_READ_ONLY);
        CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, mem.addr, mem.size, 3, UTOFU_REG_MEM_FLAG_READ_ONLY, &mine[2]));
        conf_exchange(mine, sizeof(mine), all);
        for (int i = 0; (i < 2 * 3 * 5) && (conf_rank == 0); i++) {
            utofu_stadd_t ro   = all[4 + i % 2];
            unsigned long flag = flags[i / 2 % 3];

            CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], mine[0], ro, 8, 3, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 3, NULL);
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], mine[0], all[3] + 64, 8, 4, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 4, NULL);
            for (int again = 0; again < 3; again++) {
                switch (i / 6) {
                case 0:
                    CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], mine[0] + 128, ro, 8, 3, flag, NULL));
                    break;
                case 1:
                    CONF_OK(utofu_put_piggyback(vcq.hdl, vcq.peer[1], &value, ro, 8, 3, flag, NULL));
                    break;
                case 2:
                    CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], value, ro, 8, 3, flag, NULL));
                    break;
                case 3:
                    CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1, ro, 3, flag, NULL));
                    break;
                default:
                    CONF_OK(utofu_put_stride(vcq.hdl, vcq.peer[1], mine[0] + 128, ro, 8, 16, 1, 3, flag, NULL));
                }
                CONF_CODE(wait_error(&vcq), UTOFU_ERR_TCQ_OTHER, UTOFU_ERR_MRQ_OTHER, UTOFU_ERR_MRQ_RMT_MEMORY,
                          UTOFU_ERR_MRQ_RMT_STADD);
            }
        }
        CONF_EXPECT_QUIET(&vcq);
        conf_barrier();
        CONF_CHECK_BYTES(mem.addr, mem.size, 0x55, "READ_ONLY memory");
        conf_barrier();
        for (int i = 0; i < 3; i++) {
            conf_dereg(&vcq, mine[i]);
        }
        conf_vcq_close(&vcq);
        conf_mem_free(&mem);
    }
}

CONF_TEST("3.6.1.1", memory_that_cannot_be_registered, 1,
          "size 0, a null address, memory that is not there, wraps around or "
          "is not writable without READ_ONLY are refused")
{
    struct conf_vcq vcq;
    size_t          page  = sysconf(_SC_PAGESIZE);
    unsigned char  *bytes = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    utofu_stadd_t   stadd, known;

    CONF_CHECK(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
    memset(bytes, 1, 3 * page);
    munmap(bytes + page, page);
    conf_vcq_create(&vcq, 0, 0);
#define REFUSED(_addr, _size, ...) \
    CONF_CODE(utofu_reg_mem(vcq.hdl, _addr, _size, 0, &stadd), __VA_ARGS__)
    REFUSED(bytes, 0, UTOFU_ERR_INVALID_SIZE);
    REFUSED(NULL, 8, UTOFU_ERR_INVALID_POINTER, UTOFU_ERR_INVALID_ADDRESS);
    REFUSED(bytes + page, 8, UTOFU_ERR_INVALID_ADDRESS);
    REFUSED(bytes, 3 * page, UTOFU_ERR_INVALID_ADDRESS);
    REFUSED(bytes + page - 1, 2, UTOFU_ERR_INVALID_ADDRESS);
    REFUSED(bytes, SIZE_MAX, UTOFU_ERR_INVALID_SIZE, UTOFU_ERR_INVALID_ADDRESS);
    REFUSED((void *)(UINTPTR_MAX - 7), 8, UTOFU_ERR_INVALID_ADDRESS);
    mprotect(bytes, page, PROT_READ);
    REFUSED(bytes, page, UTOFU_ERR_INVALID_ADDRESS, UTOFU_ERR_NOT_AVAILABLE);
    mprotect(bytes, page, PROT_READ | PROT_WRITE); /* that it is known already changes nothing */
    CONF_OK(utofu_reg_mem(vcq.hdl, bytes, page, 0, &known));
    mprotect(bytes, page, PROT_READ);
    REFUSED(bytes, page, UTOFU_ERR_INVALID_ADDRESS, UTOFU_ERR_NOT_AVAILABLE);
    mprotect(bytes, page, PROT_READ | PROT_WRITE);
    CONF_OK(utofu_reg_mem(vcq.hdl, bytes, page, 0, &stadd));
    CONF_CHECK(stadd == known, "another STADD");
    conf_dereg(&vcq, stadd);
    conf_dereg(&vcq, known);
    mprotect(bytes, page, PROT_READ);
    CONF_OK(utofu_reg_mem(vcq.hdl, bytes, page, UTOFU_REG_MEM_FLAG_READ_ONLY,
                          &stadd));
    conf_dereg(&vcq, stadd);
    mprotect(bytes, page, PROT_NONE);
    CONF_CODE(utofu_reg_mem(vcq.hdl, bytes, page, UTOFU_REG_MEM_FLAG_READ_ONLY,
                            &stadd), UTOFU_ERR_INVALID_ADDRESS,
              UTOFU_ERR_NOT_AVAILABLE);
    CONF_OK(utofu_reg_mem(vcq.hdl, bytes + 2 * page, page, 0, &stadd));
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.6.1.4", deregister_arguments, 1,
          "what is no start of a registration is INVALID_STADD, flags of "
          "utofu_dereg_mem and unknown ones of utofu_reg_mem INVALID_FLAGS")
{
    struct conf_vcq vcq;
    uint64_t        words[8];
    utofu_stadd_t   stadd, got;
    unsigned        bit;

    conf_need_exact_bounds();
    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    CONF_CODE(utofu_dereg_mem(vcq.hdl, stadd + 8, 0), UTOFU_ERR_INVALID_STADD);
    CONF_CODE(utofu_dereg_mem(vcq.hdl, UINT64_MAX, 0), UTOFU_ERR_INVALID_STADD);
    CONF_CODE(utofu_dereg_mem(vcq.hdl, 0, 0), UTOFU_ERR_INVALID_STADD);
    CONF_CODE(utofu_dereg_mem(vcq.hdl, stadd & ~(UINT64_C(0xff) << 56), 0),
              UTOFU_ERR_INVALID_STADD);
    CONF_CODE(utofu_dereg_mem(vcq.hdl, UINT64_C(3) << 40, 0),
              UTOFU_ERR_INVALID_STADD);
    CONF_CODE(utofu_dereg_mem(vcq.hdl, stadd ^ (UINT64_C(1) << 62), 0),
              UTOFU_ERR_INVALID_STADD);
    for (bit = 0; bit < 64; bit++) {
        CONF_CODE(utofu_dereg_mem(vcq.hdl, stadd, 1UL << bit),
                  UTOFU_ERR_INVALID_FLAGS);
        if (bit > 0) {
            CONF_CODE(utofu_reg_mem(vcq.hdl, words, 8, 1UL << bit, &got),
                      UTOFU_ERR_INVALID_FLAGS);
        }
    }
    CONF_CODE(utofu_reg_mem(vcq.hdl, words, 8, 0, NULL),
              UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_reg_mem(0, words, 8, 0, &got), UTOFU_ERR_INVALID_VCQ_HDL);
    CONF_CODE(utofu_reg_mem_with_stag(0, words, 256, 0, 0, &got),
              UTOFU_ERR_INVALID_VCQ_HDL);
    CONF_CODE(utofu_dereg_mem(0, stadd, 0), UTOFU_ERR_INVALID_VCQ_HDL);
    conf_dereg(&vcq, stadd);
    CONF_CODE(utofu_dereg_mem(vcq.hdl, stadd, 0), UTOFU_ERR_INVALID_STADD);
    conf_vcq_close(&vcq);
}
