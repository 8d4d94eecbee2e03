/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_doorbell.c - sleeping until a notice comes (abi/tofu_doorbell.h).  Nobody here
 * has a timer beside the doorbell: a wake-up that is lost is a sleep that runs into
 * its limit with a notice in the queue.
 */
#include "harness.h"

#include <tofu_doorbell.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SLEEP_MS 4000  /* in which a ring must come */
#define ROUNDS   20000 /* of two that wake each other */
#define FEW      1500  /* in the modes that take their time */
#define PAGE     65536

struct bell {
    int                  fd, file;
    struct sockaddr_un   name;
    socklen_t            length;
    struct tofu_doorbell *page;
    utofu_stadd_t        stadd;
};

struct side {
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
    struct bell     bell;
};

/* A page that is right in all respects; seal 0: it could be cut off. */
static void bell_make(struct bell *bell, int seal)
{
    int fd = memfd_create(TOFU_DOORBELL_MEMFD, MFD_ALLOW_SEALING);

    *bell        = (struct bell){.name = {.sun_family = AF_UNIX}, .length = sizeof(bell->name)};
    bell->fd     = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CONF_CHECK((bell->fd >= 0) && (fd >= 0), "no socket or memfd");
    CONF_CHECK(bind(bell->fd, (struct sockaddr *)&bell->name, sizeof(sa_family_t)) == 0, "bind");
    CONF_CHECK(getsockname(bell->fd, (struct sockaddr *)&bell->name, &bell->length) == 0, "getsockname");
    CONF_CHECK(ftruncate(fd, PAGE) == 0, "ftruncate");
    CONF_CHECK(!seal || (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0), "seal");
    bell->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CONF_CHECK(bell->page != MAP_FAILED, "mmap");
    bell->page->magic       = TOFU_DOORBELL_MAGIC;
    bell->page->version     = TOFU_DOORBELL_VERSION;
    bell->page->name_length = (uint32_t)(bell->length - offsetof(struct sockaddr_un, sun_path) - 1);
    memcpy(bell->page->name, bell->name.sun_path + 1, bell->page->name_length);
    bell->file = fd; /* open while it is registered */
}

static void bell_register(struct side *side)
{
    CONF_OK(utofu_reg_mem(side->vcq.hdl, side->bell.page, PAGE, UTOFU_REG_MEM_FLAG_READ_ONLY, &side->bell.stadd));
}

static void bell_free(struct bell *bell)
{
    munmap(bell->page, PAGE);
    close(bell->file);
    close(bell->fd);
}

static void side_open(struct side *side)
{
    conf_vcq_open(&side->vcq, 0, 0);
    conf_mem_alloc(&side->mem, CONF_MEM_MEMFD, 4096);
    memset(side->mem.addr, 0, 4096);
    conf_reg_all(&side->vcq, side->mem.addr, 4096, side->stadds);
}

static void side_close(struct side *side)
{
    conf_barrier();
    conf_dereg(&side->vcq, side->stadds[conf_rank]);
    conf_vcq_close(&side->vcq);
    conf_mem_free(&side->mem);
}

static unsigned drain(struct bell *bell)
{
    unsigned n = 0;
    char     c;

    while (recv(bell->fd, &c, 1, MSG_DONTWAIT) >= 0) {
        n++;
    }
    return n;
}

static uint32_t state(const struct side *side)
{
    return atomic_load(&side->bell.page->state);
}

/* The steps of the header's comment; true: it may sleep. */
static bool arm(struct side *side, struct utofu_mrq_notice *notice, int *code_p)
{
    void *cbdata;

    drain(&side->bell);
    atomic_store(&side->bell.page->state, TOFU_DOORBELL_ARM);
    while (utofu_poll_tcq(side->vcq.hdl, 0, &cbdata) != UTOFU_ERR_NOT_FOUND) {
    }
    *code_p = utofu_poll_mrq(side->vcq.hdl, 0, notice);
    return (*code_p == UTOFU_ERR_NOT_FOUND) && (state(side) == TOFU_DOORBELL_ARMED);
}

static bool rings_within(struct side *side, int ms)
{
    struct pollfd p = {.fd = side->bell.fd, .events = POLLIN};

    return poll(&p, 1, ms) == 1;
}

/* The next notice, asleep until it is there; counts the sleeps.  Where nothing came
 * for long, the machine may only be slow: what must not be is a notice in the queue
 * and no ring, also not a while later. */
static void sleep_for(struct side *side, struct utofu_mrq_notice *notice, unsigned *sleeps_p)
{
    int code;

    for (;;) {
        if (arm(side, notice, &code)) {
            ++*sleeps_p;
            while (!rings_within(side, SLEEP_MS)) {
                code = utofu_poll_mrq(side->vcq.hdl, 0, notice);
                if (code != UTOFU_ERR_NOT_FOUND) {
                    CONF_CHECK(rings_within(side, SLEEP_MS), "a notice is there and nobody rang");
                    return;
                }
            }
        } else if (code != UTOFU_ERR_NOT_FOUND) {
            CONF_CHECK(code == UTOFU_SUCCESS, "a notice of failure: %s", conf_code_name(code));
            return;
        }
    }
}

static void put(struct side *side, int to, unsigned edata, unsigned long flags)
{
    CONF_POST(side->vcq.hdl, utofu_put_piggyback8(side->vcq.hdl, side->vcq.peer[to], 1, side->stadds[to], 8, edata,
                                                  flags, CONF_PTR(1)));
}

/* Busy for a time that goes through all values, so that what comes finds the other
 * side at every point of its way to sleep. */
static void linger(unsigned round)
{
    for (volatile unsigned i = 0; i < (round * 7919u) % 4000u; i++) {
    }
}

static void ping_pong(unsigned rounds)
{
    struct utofu_mrq_notice notice;
    struct side             side;
    unsigned                sleeps = 0;

    conf_timeout(120);
    side_open(&side);
    bell_make(&side.bell, 1);
    bell_register(&side);
    if (atomic_load(&side.bell.page->acknowledged) == 0) {
        conf_skip("no membarrier here: the emulator has no doorbells");
    }
    conf_barrier();
    for (unsigned i = 0; i < rounds; i++) {
        if ((i + (unsigned)conf_rank) % 2 == 0) {
            linger(i);
            put(&side, !conf_rank, i % 251, CONF_RMRQ | CONF_STRONG);
        } else {
            sleep_for(&side, &notice, &sleeps);
            CONF_CHECK(notice.edata == i % 251, "round %u: notice of %u", i, (unsigned)notice.edata);
        }
    }
    CONF_CHECK(sleeps > 0, "it never slept");
    side_close(&side);
    bell_free(&side.bell);
}

CONF_TEST("doorbell", test_emu_doorbell_two_wake_each_other, 2, "whoever sleeps armed is woken by the next notice")
{
    ping_pong(ROUNDS);
}

CONF_TEST("doorbell", test_emu_doorbell_strict, 2, "also by notices that the strict mode delivers late")
{
    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    ping_pong(FEW);
}

CONF_TEST("doorbell", test_emu_doorbell_timed, 2, "also in the timed mode")
{
    CONF_CHECK(setenv("UTOFU_EMU_TIMING", "tofud", 1) == 0, "setenv");
    ping_pong(FEW);
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

CONF_TEST("doorbell", doorbell_opens_no_descriptor, 2,
          "who rings for the first time opens nothing: programs count descriptors around calls")
{
    struct utofu_mrq_notice notice;
    struct side             side;
    unsigned                sleeps = 0, before;

    side_open(&side);
    bell_make(&side.bell, 1);
    bell_register(&side);
    if (atomic_load(&side.bell.page->acknowledged) == 0) {
        conf_skip("no membarrier here: the emulator has no doorbells");
    }
    conf_barrier();
    if (conf_rank == 1) { /* awake: what a first notice needs */
        put(&side, 0, 1, CONF_RMRQ);
    } else {
        CONF_EXPECT_MRQ(&side.vcq, UTOFU_MRQ_TYPE_RMT_PUT, side.vcq.peer[1], 1, NULL);
    }
    conf_barrier();
    if (conf_rank == 0) {
        sleep_for(&side, &notice, &sleeps);
        CONF_CHECK(sleeps > 0, "it never slept");
    } else {
        usleep(100000);
        before = open_descriptors();
        put(&side, 0, 2, CONF_RMRQ);
        CONF_CHECK(open_descriptors() == before, "%u descriptors, then %u", before, open_descriptors());
    }
    side_close(&side);
    bell_free(&side.bell);
}

CONF_TEST("doorbell", test_emu_doorbell_many_senders, 4, "several senders at once: all notices come, in order")
{
    struct utofu_mrq_notice notice;
    struct side             side;
    unsigned                next[CONF_MAX_PROCS] = {0}, sleeps = 0;

    conf_timeout(120);
    side_open(&side);
    bell_make(&side.bell, 1);
    bell_register(&side);
    if (atomic_load(&side.bell.page->acknowledged) == 0) {
        conf_skip("no membarrier here: the emulator has no doorbells");
    }
    conf_barrier();
    if (conf_rank == 0) {
        for (unsigned n = 0; n < 3 * (ROUNDS / 4); n++) {
            int from = 1;

            sleep_for(&side, &notice, &sleeps);
            while (notice.vcq_id != side.vcq.peer[from]) {
                CONF_CHECK(++from < conf_procs, "a notice of nobody");
            }
            CONF_CHECK(notice.edata == next[from]++ % 251, "out of order from rank %d", from);
        }
        CONF_CHECK(sleeps > 0, "it never slept");
    } else {
        for (unsigned i = 0; i < ROUNDS / 4; i++) {
            linger(i + (unsigned)conf_rank);
            if (i % 64 == 0) {
                usleep(200);
            }
            put(&side, 0, i % 251, CONF_RMRQ | CONF_STRONG);
        }
    }
    side_close(&side);
    bell_free(&side.bell);
}

/* The notice is sent when the other side is just about to sleep: it is told so, and
 * a wait that goes through all values follows.  A look too few, or a barrier too few,
 * and some of these notices are seen by neither look nor ring. */
CONF_TEST("doorbell", test_emu_doorbell_caught_arming, 2, "a notice that comes while the doorbell is armed is not lost")
{
    struct utofu_mrq_notice notice;
    struct side             side;
    unsigned                sleeps = 0;

    conf_timeout(120);
    side_open(&side);
    bell_make(&side.bell, 1);
    bell_register(&side);
    if (atomic_load(&side.bell.page->acknowledged) == 0) {
        conf_skip("no membarrier here: the emulator has no doorbells");
    }
    conf_barrier();
    if (conf_rank == 0) {
        for (unsigned i = 0, spins = 0;; i++) {
            while (utofu_poll_mrq(side.vcq.hdl, 0, &notice) == UTOFU_ERR_NOT_FOUND) {
                conf_relax(&spins);
            }
            if (notice.edata == 1) {
                break;
            }
            for (volatile unsigned k = 0; k < (i * 7919u) % 1500u; k++) {
            }
            put(&side, 1, 0, CONF_RMRQ | CONF_STRONG);
        }
    } else {
        double end = conf_now() + 15;

        for (unsigned i = 0; (i < 3 * ROUNDS) && (conf_now() < end); i++) {
            put(&side, 0, 0, CONF_RMRQ | CONF_STRONG);
            sleep_for(&side, &notice, &sleeps);
        }
        put(&side, 0, 1, CONF_RMRQ | CONF_STRONG);
    }
    side_close(&side);
    bell_free(&side.bell);
}

static void own_completions(void)
{
    struct utofu_mrq_notice notice;
    struct side             side;
    unsigned                sleeps = 0;
    int                     code;

    conf_timeout(60);
    side_open(&side);
    bell_make(&side.bell, 1);
    bell_register(&side);
    if (atomic_load(&side.bell.page->acknowledged) == 0) {
        conf_skip("no membarrier here: the emulator has no doorbells");
    }
    for (unsigned i = 0; i < 200; i++) {
        /* posted after arming: its completion is one more thing that comes */
        while (!arm(&side, &notice, &code)) {
        }
        put(&side, 0, i, CONF_LMRQ | CONF_STRONG);
        CONF_CHECK(rings_within(&side, SLEEP_MS), "the local notice of put %u did not ring", i);
        sleep_for(&side, &notice, &sleeps);
        CONF_CHECK(notice.edata == i, "notice of %u", (unsigned)notice.edata);
        while (!arm(&side, &notice, &code)) {
        }
        put(&side, 0, i, CONF_TCQ | CONF_STRONG);
        CONF_CHECK(rings_within(&side, SLEEP_MS), "the TCQ notice of put %u did not ring", i);
        CONF_EXPECT_TCQ(&side.vcq, CONF_PTR(1));
    }
    side_close(&side);
    bell_free(&side.bell);
}

CONF_TEST("doorbell", test_emu_doorbell_own_completions, 1, "what the sleeper posted itself wakes it")
{
    own_completions();
}

CONF_TEST("doorbell", test_emu_doorbell_own_completions_strict, 1, "the same when it completes later")
{
    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    own_completions();
}

CONF_TEST("doorbell", test_emu_doorbell_not_with_work, 1, "nothing is armed while a queue has an entry")
{
    struct utofu_mrq_notice notice;
    struct side             side;
    void                   *cbdata;

    side_open(&side);
    bell_make(&side.bell, 1);
    bell_register(&side);
    if (atomic_load(&side.bell.page->acknowledged) == 0) {
        conf_skip("no membarrier here: the emulator has no doorbells");
    }
    put(&side, 0, 1, CONF_LMRQ | CONF_RMRQ | CONF_TCQ);
    atomic_store(&side.bell.page->state, TOFU_DOORBELL_ARM);
    CONF_OK(utofu_poll_mrq(side.vcq.hdl, 0, &notice));
    CONF_CHECK(state(&side) == TOFU_DOORBELL_ARM, "armed with a notice in the MRQ");
    CONF_OK(utofu_poll_mrq(side.vcq.hdl, 0, &notice));
    CONF_CHECK(state(&side) == TOFU_DOORBELL_ARM, "armed by a poll that found something");
    CONF_CODE(utofu_poll_mrq(side.vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    CONF_CHECK(state(&side) == TOFU_DOORBELL_ARM, "armed with an entry in the TCQ");
    CONF_OK(utofu_poll_tcq(side.vcq.hdl, 0, &cbdata));
    CONF_CODE(utofu_poll_mrq(side.vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    CONF_CHECK(state(&side) == TOFU_DOORBELL_ARMED, "not armed with empty queues");
    CONF_CHECK(drain(&side.bell) == 0, "it rang before anything came");
    /* one ring for one arming */
    put(&side, 0, 2, CONF_RMRQ);
    put(&side, 0, 3, CONF_RMRQ);
    CONF_CHECK(drain(&side.bell) == 1, "not one ring");
    side_close(&side);
    bell_free(&side.bell);
}

CONF_TEST("doorbell", test_emu_doorbell_hostile, 1,
          "pages that are not in order are plain memory; strangers, scribbling and unmapping do no harm")
{
    struct utofu_mrq_notice notice;
    struct side             side;
    struct bell             second, *bell = &side.bell;
    utofu_stadd_t           stadd;
    unsigned                sleeps = 0;
    int                     code;

    side_open(&side);
    for (int wrong = 0; wrong < 5; wrong++) {
        bell_make(bell, wrong != 0);
        bell->page->magic       += wrong == 1;
        bell->page->version     += wrong == 2;
        bell->page->name_length  = (wrong == 3) ? 0 : (wrong == 4) ? UINT32_MAX : bell->page->name_length;
        bell_register(&side);
        CONF_CHECK(atomic_load(&bell->page->acknowledged) == 0, "page %d was taken for a doorbell", wrong);
        CONF_OK(utofu_dereg_mem(side.vcq.hdl, bell->stadd, 0));
        bell_free(bell);
    }
    bell_make(bell, 1);
    bell_register(&side);
    if (atomic_load(&bell->page->acknowledged) == 0) {
        conf_skip("no membarrier here: the emulator has no doorbells");
    }
    bell_make(&second, 1);
    CONF_OK(utofu_reg_mem(side.vcq.hdl, second.page, PAGE, UTOFU_REG_MEM_FLAG_READ_ONLY, &stadd));
    CONF_CHECK(atomic_load(&second.page->acknowledged) == 0, "a second doorbell of one VCQ");
    CONF_OK(utofu_dereg_mem(side.vcq.hdl, stadd, 0));

    /* datagrams of strangers, until no more go in: one more ring need not */
    while (!arm(&side, &notice, &code)) {
    }
    while (sendto(second.fd, "hello", 5, MSG_DONTWAIT, (struct sockaddr *)&bell->name, bell->length) == 5) {
    }
    put(&side, 0, 7, CONF_RMRQ);
    CONF_CHECK(rings_within(&side, 0), "not readable");
    sleep_for(&side, &notice, &sleeps);
    CONF_CHECK(notice.edata == 7, "another notice");

    /* the name and the rest are read once */
    memset(bell->page, 0xff, offsetof(struct tofu_doorbell, state));
    atomic_store(&bell->page->state, 77);
    CONF_CODE(utofu_poll_mrq(side.vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    CONF_CHECK(state(&side) == 77, "a state that is none was changed");
    while (!arm(&side, &notice, &code)) {
    }
    put(&side, 0, 8, CONF_RMRQ);
    CONF_CHECK(rings_within(&side, SLEEP_MS), "it rang somewhere else");
    sleep_for(&side, &notice, &sleeps);

    /* the socket is gone; then the mapping too, without a word to the library */
    while (!arm(&side, &notice, &code)) {
    }
    close(bell->fd);
    close(bell->file);
    put(&side, 0, 9, CONF_RMRQ);
    CONF_OK(utofu_poll_mrq(side.vcq.hdl, 0, &notice));
    munmap(bell->page, PAGE);
    CONF_CODE(utofu_poll_mrq(side.vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
    CONF_OK(utofu_dereg_mem(side.vcq.hdl, bell->stadd, 0));

    /* after deregistration the next one is taken; nobody rings the old one */
    *bell = second;
    bell_register(&side);
    CONF_CHECK(atomic_load(&bell->page->acknowledged) == 1, "not taken");
    while (!arm(&side, &notice, &code)) {
    }
    CONF_OK(utofu_dereg_mem(side.vcq.hdl, bell->stadd, 0));
    CONF_CHECK((atomic_load(&bell->page->acknowledged) == 0) && (state(&side) == TOFU_DOORBELL_IDLE), "not let go");
    put(&side, 0, 10, CONF_RMRQ);
    CONF_CHECK(drain(bell) == 0, "it rang after deregistration");
    side_close(&side);
    bell_free(bell);
}
