/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_large.c - blocks of more than a place of the memfd, of which little is written: they are
 * moved as small ones are, and take no memory for what nobody wrote (docs/emulator.md, Private memory).
 */
#include "freeze.h"
#include "harness.h"
#include "home.h"
#include "own.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u
#define MIB  ((size_t)1 << 20)

static char *addresses(size_t n)
{
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CONF_CHECK(p != MAP_FAILED, "mmap of %zu bytes: %s", n, strerror(errno));
    return p;
}

/* In KiB; "RssAnon", "RssShmem" */
static long resident(const char *what)
{
    FILE *f = fopen("/proc/self/status", "r");
    char  line[256];
    long  kib = -1;

    while ((kib < 0) && (fgets(line, sizeof(line), f) != NULL)) {
        if (!strncmp(line, what, strlen(what))) {
            kib = strtol(line + strlen(what) + 1, NULL, 10);
        }
    }
    fclose(f);
    return kib;
}

/* Where something is written: both ends, where places of the memfd begin, and some in between */
static size_t spot(size_t n, unsigned i)
{
    static const size_t at[] = {0, 100 * MIB + 17, 512 * MIB - PAGE, 960 * MIB - 8, 1024 * MIB, 1984 * MIB - 8};

    return (i < CONF_LEN(at)) ? at[i] : n - 64;
}
enum { SPOTS = 7 };

static void write_spots(char *block, size_t n, int value)
{
    for (unsigned i = 0; i < SPOTS; i++) {
        memset(block + spot(n, i), value + (int)i, 64);
    }
}

static void check_spots(const char *block, size_t n, int value, const char *when)
{
    for (unsigned i = 0; i < SPOTS; i++) {
        CONF_CHECK_BYTES(block + spot(n, i), 64, (uint8_t)(value + (int)i), when);
        if (spot(n, i) + 3 * PAGE < n) {
            CONF_CHECK_BYTES(block + spot(n, i) + 2 * PAGE, 64, 0, when);
        }
    }
}

static _Atomic bool stop;

static void *counts(void *arg)
{
    while (!atomic_load(&stop)) {
        ++*(volatile uint64_t *)arg;
    }
    return NULL;
}

/* Rank 0 puts to all spots of both blocks. */
static void put_spots(struct conf_vcq *vcq, const struct conf_mem *own, utofu_stadd_t mine, const utofu_stadd_t *stadd,
                      size_t n)
{
    for (unsigned b = 0; b < 2; b++) {
        for (unsigned i = 0; i < SPOTS; i++) {
            memset(own->addr, 50 + 100 * (int)b + (int)i, 64);
            CONF_OK(utofu_put(vcq->hdl, vcq->peer[1], mine, stadd[b] + spot(n, i), 64, i, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq->peer[1], i, NULL);
        }
    }
}

static void two_blocks(size_t n, bool threads)
{
    struct conf_vcq vcq;
    struct conf_mem own;
    utofu_stadd_t   stadd[2] = {0}, all[2][2], mine;
    char           *block[2];
    uint64_t       *count;
    pthread_t       thread;
    int             status;
    pid_t           pid;
    long            anonymous;

    conf_timeout(90);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&own, CONF_MEM_MEMFD, PAGE);
    mine = conf_reg(&vcq, own.addr, PAGE, 0);
    for (unsigned b = 0; b < 2; b++) {
        block[b] = addresses(n);
        write_spots(block[b], n, 10 + 100 * (int)b);
    }
    count     = (uint64_t *)(block[1] + 100 * MIB + 128); /* beside a spot */
    anonymous = resident("RssAnon:");
    if ((conf_rank == 1) && threads) {
        CONF_CHECK(pthread_create(&thread, NULL, counts, count) == 0, "pthread_create");
    }
    for (unsigned b = 0; (conf_rank == 1) && (b < 2); b++) {
        stadd[b] = conf_reg(&vcq, block[b], n, 0);
        CONF_CHECK((is_home(block[b]) && is_home(block[b] + n / 2) && is_home(block[b] + n - 1)) || may_take_long(),
                   "block %u", b);
        CONF_CHECK(own_home_bytes() <= (b + 1) * (SPOTS + 4) * PAGE, "the memfd has %" PRIu64 " bytes", own_home_bytes());
    }
    for (unsigned b = 0; (conf_rank == 1) && (b < 2); b++) {
        check_spots(block[b], n, 10 + 100 * (int)b, "registered");
    }
    conf_exchange(stadd, sizeof(stadd), all);
    if (conf_rank == 0) {
        put_spots(&vcq, &own, mine, all[1], n);
    }
    conf_barrier();
    if (conf_rank == 1) {
        pid = fork();
        CONF_CHECK(pid >= 0, "fork");
        if (pid == 0) {
            check_spots(block[0], n, 50, "in a child");
            check_spots(block[1], n, 150, "in a child");
            write_spots(block[0], n, 7);
            _exit(resident("RssAnon:") > anonymous + 4096);
        }
        CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "the child: 0x%x", (unsigned)status);
        for (unsigned b = 0; b < 2; b++) {
            check_spots(block[b], n, 50 + 100 * (int)b, "put");
            conf_dereg(&vcq, stadd[b]);
            CONF_CHECK(!is_home(block[b]) && !is_home(block[b] + n / 2) && !is_home(block[b] + n - 1), "block %u", b);
            check_spots(block[b], n, 50 + 100 * (int)b, "deregistered");
        }
        CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
        if (threads) {
            atomic_store(&stop, true);
            pthread_join(thread, NULL);
            CONF_CHECK(*count > 0, "nothing was counted");
        }
    }
    conf_vcq_close(&vcq);
    conf_mem_free(&own);
}

CONF_TEST("rehome", large_blocks, 2,
          "blocks of 2.5 GiB of which little is written are moved, and go back, with little memory, and a child has its "
          "copy")
{
    two_blocks(2500 * MIB + PAGE, false);
}

CONF_TEST("rehome", larger_blocks, 2, "the same of blocks of 20 GiB")
{
    two_blocks(20000 * MIB + PAGE, false);
}

CONF_TEST("rehome", large_blocks_beside_a_thread, 2, "the same while a thread writes there")
{
    if (!can_freeze()) {
        conf_skip("neither userfaultfd nor ptrace: nothing is moved beside threads");
    }
    two_blocks(2500 * MIB + PAGE, true);
}

CONF_TEST("rehome", large_and_small, 1,
          "large and small blocks that come and go have places of their own, and stay private where there are none")
{
    enum { BLOCKS = 60 };
    struct conf_vcq vcq;
    char           *block[BLOCKS];
    size_t          size[BLOCKS];
    utofu_stadd_t   stadd[BLOCKS];
    unsigned        seed = 11, moved = 0, stayed = 0;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    memset(block, 0, sizeof(block));
    for (unsigned round = 0; round < 600; round++) {
        unsigned r = (seed = seed * 1103515245u + 12345u) >> 8, i = r % BLOCKS;

        if (block[i] != NULL) {
            for (size_t at = 0; at < size[i]; at += size[i] / 8) {
                CONF_CHECK_BYTES(block[i] + at, 16, (uint8_t)(i + 1), "registered");
            }
            conf_dereg(&vcq, stadd[i]);
            CONF_CHECK_BYTES(block[i], 16, (uint8_t)(i + 1), "deregistered");
            munmap(block[i], size[i]);
            block[i] = NULL;
            continue;
        }
        size[i]  = ((r / BLOCKS) % 3 == 0) ? 64 * PAGE : ((r / BLOCKS) % 9000) * MIB + 8 * PAGE;
        block[i] = addresses(size[i]);
        for (size_t at = 0; at < size[i]; at += size[i] / 8) {
            memset(block[i] + at, (int)(i + 1), 16);
        }
        stadd[i] = conf_reg(&vcq, block[i], size[i], 0);
        *(is_home(block[i]) ? &moved : &stayed) += 1;
    }
    CONF_CHECK(moved > 3, "%u moved, %u stayed", moved, stayed);
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", large_blocks_fill_it, 1,
          "the largest blocks are moved while there is room for them in the memfd, and time, and small ones again later")
{
    enum { BLOCKS = 130 };
    size_t          n = 8192 * MIB;
    struct conf_vcq vcq;
    char           *block[BLOCKS], *small = addresses(PAGE);
    utofu_stadd_t   stadd[BLOCKS], one;
    unsigned        moved = 0;
    bool            again = false;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        block[i] = addresses(n);
        memset(block[i] + n - 16, (int)i, 16);
        stadd[i] = conf_reg(&vcq, block[i], n, 0);
        moved += is_home(block[i]) && is_home(block[i] + n - 1);
    }
    CONF_CHECK((moved > 2) && (moved <= own_home_places() / 33), "%u are moved", moved);
    for (unsigned i = 0; i < BLOCKS; i++) {
        CONF_CHECK_BYTES(block[i] + n - 16, 16, (uint8_t)i, "registered");
        conf_dereg(&vcq, stadd[i]);
        CONF_CHECK_BYTES(block[i] + n - 16, 16, (uint8_t)i, "deregistered");
        munmap(block[i], n);
    }
    CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
    memset(small, 3, PAGE);
    for (double until = conf_now() + 60; !again && (conf_now() < until); usleep(100000)) {
        one   = conf_reg(&vcq, small, PAGE, 0);
        again = is_home(small);
        conf_dereg(&vcq, one);
        CONF_CHECK_BYTES(small, PAGE, 3, "a small one");
    }
    CONF_CHECK(again, "nothing is moved any more");
    conf_vcq_close(&vcq);
}
