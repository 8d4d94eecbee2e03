/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_many.c - private memory that was moved (docs/emulator.md, Private memory), of programs
 * that register many blocks, or one after the other on the same pages: each is the program's and no
 * other's, and that it is many does not keep them from being moved.
 */
#include "harness.h"
#include "home.h"
#include "own.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE   4096u
#define MIB    ((size_t)1 << 20)
#define BLOCKS 600u

static char *pages(size_t n)
{
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CONF_CHECK(p != MAP_FAILED, "mmap: %s", strerror(errno));
    return p;
}

static void *waits(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg)) {
        usleep(1000);
    }
    return NULL;
}

static char *many;

static char *nth(unsigned i)
{
    return many + i * 2 * PAGE;
}

static unsigned not_what_was_written(unsigned add)
{
    unsigned wrong = 0;

    for (unsigned i = 0; i < BLOCKS; i++) {
        wrong += (nth(i)[0] != (char)(i + add)) || (nth(i)[PAGE - 1] != (char)(i + add));
    }
    return wrong;
}

static void write_all(unsigned add)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        memset(nth(i), (char)(i + add), PAGE);
    }
}

/* A child has all of them, and they are its own. */
static void fork_and_look(const char *when)
{
    int   status;
    pid_t pid = fork();

    CONF_CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        bool right = not_what_was_written(1) == 0;

        write_all(7);
        _exit(right ? 0 : 3);
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0),
               "%s: the child ended with 0x%x", when, (unsigned)status);
    CONF_CHECK(not_what_was_written(1) == 0, "%s: %u blocks have what the child wrote", when, not_what_was_written(1));
}

CONF_TEST("rehome", many_blocks_and_a_child, 1,
          "hundreds of blocks are moved, a child has its own of each, beside a thread, too, and all go back")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd[BLOCKS];
    _Atomic bool    stop  = false;
    unsigned        moved = 0;
    pthread_t       thread;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    many = pages(BLOCKS * 2 * PAGE);
    write_all(1);
    for (unsigned i = 0; i < BLOCKS; i++) {
        stadd[i] = conf_reg(&vcq, nth(i), PAGE, 0);
        moved += is_home(nth(i));
        if (moved == 0) {
            conf_skip("memory is not moved here");
        }
    }
    CONF_CHECK(moved == BLOCKS, "%u of %u are moved", moved, BLOCKS);
    fork_and_look("alone");
    CONF_CHECK(pthread_create(&thread, NULL, waits, (void *)&stop) == 0, "pthread_create");
    fork_and_look("beside a thread");
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < BLOCKS; i++) {
        conf_dereg(&vcq, stadd[i]);
    }
    moved = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        moved += is_home(nth(i));
    }
    CONF_CHECK((moved == 0) && (not_what_was_written(1) == 0), "%u are still moved, %u are wrong", moved,
               not_what_was_written(1));
    CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
    conf_vcq_close(&vcq);
}

/* Other blocks are moved, and back, until each place of the memfd has been used. */
static void use_all_places(struct conf_vcq *vcq, const char *kept, size_t n, int value)
{
    enum { TURNS = 1100 };
    char *other = pages(2 * TURNS * PAGE);

    for (unsigned i = 0; i < TURNS; i++) {
        utofu_stadd_t stadd;

        memset(other + i * 2 * PAGE, 0x11, PAGE);
        stadd = conf_reg(vcq, other + i * 2 * PAGE, PAGE, 0);
        memset(other + i * 2 * PAGE, 0x22, PAGE);
        conf_dereg(vcq, stadd);
        CONF_CHECK_BYTES(kept, n, (uint8_t)value, "of the program, while another block is registered");
        if (i % 100 == 99) {
            usleep(100000); /* else moving takes too great a part of the time */
        }
    }
    munmap(other, 2 * TURNS * PAGE);
}

CONF_TEST("rehome", made_longer_while_registered, 1,
          "what the program made longer, or moved, while it was registered stays its own when it is deregistered, whatever "
          "is registered then")
{
    struct conf_vcq vcq;
    char           *block = pages(64 * PAGE), *elsewhere = pages(8 * PAGE), *moved;
    utofu_stadd_t   stadd;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    memset(block, 0x5a, 4 * PAGE);
    stadd = conf_reg(&vcq, block, 4 * PAGE, 0);
    if (!is_home(block)) {
        conf_skip("memory is not moved here");
    }
    munmap(block + 4 * PAGE, 60 * PAGE);
    CONF_CHECK(mremap(block, 4 * PAGE, 8 * PAGE, 0) == block, "mremap: %s", strerror(errno));
    memset(block, 0x77, 8 * PAGE);
    conf_dereg(&vcq, stadd);
    use_all_places(&vcq, block, 8 * PAGE, 0x77);

    memset(elsewhere, 0x5b, 4 * PAGE);
    stadd = conf_reg(&vcq, elsewhere, 4 * PAGE, 0);
    CONF_CHECK(is_home(elsewhere), "it is not moved");
    moved = mremap(elsewhere, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, block + 32 * PAGE);
    CONF_CHECK(moved == block + 32 * PAGE, "mremap: %s", strerror(errno));
    memset(moved, 0x78, 8 * PAGE);
    conf_dereg(&vcq, stadd);
    use_all_places(&vcq, moved, 8 * PAGE, 0x78);
    CONF_CHECK_BYTES(block, 8 * PAGE, 0x77, "the first");
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", unmapped_among_many, 1,
          "a block that is unmapped and then deregistered gives its memory back at once, also among many that stay")
{
    enum { STAY = 40 };
    struct conf_vcq vcq;
    char           *stay = pages(STAY * 2 * PAGE), *block = pages(8 * MIB);
    utofu_stadd_t   stadd[STAY], gone;
    uint64_t        before;

    conf_vcq_open(&vcq, 0, 0);
    for (unsigned i = 0; i < STAY; i++) {
        memset(stay + i * 2 * PAGE, 0x5a, PAGE);
        stadd[i] = conf_reg(&vcq, stay + i * 2 * PAGE, PAGE, 0);
    }
    if (!is_home(stay)) {
        conf_skip("memory is not moved here");
    }
    before = own_home_bytes();
    memset(block, 0x33, 8 * MIB);
    gone = conf_reg(&vcq, block, 8 * MIB, 0);
    CONF_CHECK(is_home(block) && (own_home_bytes() >= before + 8 * MIB), "it is not moved");
    munmap(block, 8 * MIB);
    conf_dereg(&vcq, gone);
    CONF_CHECK(own_home_bytes() == before, "%" PRIu64 " bytes, %" PRIu64 " before", own_home_bytes(), before);
    for (unsigned i = 0; i < STAY; i++) {
        conf_dereg(&vcq, stadd[i]);
        CONF_CHECK_BYTES(stay + i * 2 * PAGE, PAGE, 0x5a, "of those that stay");
    }
    CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", blocks_that_hang_together, 1,
          "registrations that share a page each with the next are moved, far beyond what the first of them has room for")
{
    enum { LINKS = 30 };
    struct conf_vcq vcq;
    size_t          n     = 66 * MIB; /* of such only what was written takes time */
    char           *block = pages(LINKS * n + PAGE);
    utofu_stadd_t   stadd[LINKS];

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    for (unsigned i = 0; i < LINKS; i++) { /* each begins in the page that the one before ends in */
        memset(block + i * n, (int)(i + 1), PAGE);
        stadd[i] = conf_reg(&vcq, block + i * n, n + 64, 0);
        if (!is_home(block + i * n + PAGE)) {
            CONF_CHECK(i == 0, "link %u is not moved", i);
            conf_skip("memory is not moved here");
        }
    }
    for (unsigned i = LINKS; i-- > 0;) {
        CONF_CHECK_BYTES(block + i * n, PAGE, (uint8_t)(i + 1), "while it is registered");
        conf_dereg(&vcq, stadd[i]);
        CONF_CHECK_BYTES(block + i * n, PAGE, (uint8_t)(i + 1), "when it is not");
        CONF_CHECK(!is_home(block + i * n + PAGE), "link %u does not go back", i);
    }
    CONF_CHECK(own_home_bytes() == 0, "%" PRIu64 " bytes are left", own_home_bytes());
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", churn_beside_what_stays, 1,
          "a program that registers for each transfer, beside a block on the same page that stays, is left with its "
          "memory where it is before long")
{
    enum { CYCLES = 1000000 };
    struct conf_vcq vcq;
    char           *block = pages(8 * PAGE);
    utofu_stadd_t   kept, stadd;
    bool            moved = true;
    unsigned        n;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    memset(block, 0x5a, 8 * PAGE);
    kept = conf_reg(&vcq, block, 64, 0);
    if (!is_home(block)) {
        conf_skip("memory is not moved here");
    }
    for (n = 0; (n < CYCLES) && moved; n++) {
        stadd = conf_reg(&vcq, block + 64, 6 * PAGE, 0);
        moved = (n % 100 != 0) || is_home(block + 2 * PAGE);
        CONF_CHECK((n > 0) || moved, "not moved at first");
        conf_dereg(&vcq, stadd);
    }
    CONF_CHECK(!moved, "moved %u times", n);
    CONF_CHECK(is_home(block), "what stays is there no more");
    conf_dereg(&vcq, kept);
    CONF_CHECK_BYTES(block, 8 * PAGE, 0x5a, "at the end");
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", churn_of_one_block, 1,
          "a block that is registered for each transfer is soon left where it is, others are moved, and it again after a "
          "while")
{
    enum { CYCLES = 100000 };
    struct conf_vcq vcq;
    char           *block = pages(2 * PAGE), *other = pages(2 * PAGE);
    utofu_stadd_t   stadd, stays;
    bool            moved = true;
    double          begun = conf_now();
    unsigned        n;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    memset(block, 0x5a, 2 * PAGE);
    for (n = 0; (n < CYCLES) && moved; n++) {
        stadd = conf_reg(&vcq, block, 2 * PAGE, 0);
        moved = (n % 16 != 0) || is_home(block); /* to look takes long: those for which it is looked are not in vain */
        if ((n == 0) && !moved) {
            conf_skip("memory is not moved here");
        }
        conf_dereg(&vcq, stadd);
    }
    CONF_CHECK(!moved, "moved %u times", n);
    CONF_CHECK(conf_now() - begun < 20, "it took %.1f s", conf_now() - begun);
    stays = conf_reg(&vcq, other, 2 * PAGE, 0);
    CONF_CHECK(is_home(other), "another block is not moved");
    for (moved = false, begun = conf_now(); !moved && (conf_now() - begun < 30);) {
        usleep(100000);
        stadd = conf_reg(&vcq, block, 2 * PAGE, 0);
        moved = is_home(block);
        conf_dereg(&vcq, stadd);
    }
    CONF_CHECK(moved, "it is not moved any more");
    conf_dereg(&vcq, stays);
    CONF_CHECK_BYTES(block, 2 * PAGE, 0x5a, "at the end");
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", windows_leave_no_mappings, 1, "of windows of any size that were registered here and there no mapping is left")
{
    enum { WINDOWS = 100 };
    static const size_t sizes[] = {17 * PAGE, 64 * PAGE, 300 * PAGE};
    struct conf_vcq     vcq;
    unsigned            before, after;

    conf_vcq_open(&vcq, 0, 0);
    for (unsigned k = 0; k < CONF_LEN(sizes); k++) {
        size_t all   = 2 * WINDOWS * sizes[k];
        char  *block = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        CONF_CHECK(block != MAP_FAILED, "mmap: %s", strerror(errno));
        for (size_t i = 0; i < all; i += PAGE) {
            block[i] = (char)(1 + i / PAGE % 100);
        }
        before = own_mappings("");
        for (unsigned i = 0; i < WINDOWS; i++) {
            conf_dereg(&vcq, conf_reg(&vcq, block + 2 * i * sizes[k], sizes[k], 0));
        }
        after = own_mappings("");
        CONF_CHECK(after < before + WINDOWS / 2, "%zu bytes: %u mappings, then %u", sizes[k], before, after);
        for (size_t i = 0; i < all; i += PAGE) {
            CONF_CHECK((block[i] == (char)(1 + i / PAGE % 100)) && (block[i + 1] == 0), "page %zu", i / PAGE);
        }
        munmap(block, all);
    }
    conf_vcq_close(&vcq);
}
