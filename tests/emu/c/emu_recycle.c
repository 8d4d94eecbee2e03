/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_recycle.c - what one VCQ leaves to the next: its index in the process, with the STag
 * table that belongs to it, and MRQ lanes, of which a process has a limited number.
 */
#include "harness.h"

#include "own.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAG 5u

static uint64_t words[3][32] __attribute__((aligned(256)));

/* ------------------------------------------------------------- VCQs of two threads */

struct other { /* what the other thread does */
    utofu_vcq_hdl_t gone; /* free this, ... */
    utofu_cmp_id_t  cmp;  /* ... or create with an ID that is used */
    _Atomic int     tid;
    int             code;
};

static void *other_thread(void *arg)
{
    struct other   *o = arg;
    utofu_vcq_hdl_t hdl;

    atomic_store(&o->tid, (int)syscall(SYS_gettid));
    o->code = (o->gone != 0) ? utofu_free_vcq(o->gone) : utofu_create_vcq_with_cmp_id(conf_tni(0), o->cmp, 0, &hdl);
    return NULL;
}

/* The thread sleeps, or a while has gone by (then the test finds less). */
static void wait_asleep(_Atomic int *tid)
{
    double end = conf_now() + 2;
    char   path[64], line[256], *state;

    while (conf_now() < end) {
        FILE *f;
        usleep(1000);
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(tid));
        f = fopen(path, "r");
        if (f == NULL) {
            continue;
        }
        state = (fgets(line, sizeof(line), f) != NULL) ? strrchr(line, ')') : NULL;
        fclose(f);
        if ((state != NULL) && (state[2] == 'S')) {
            return;
        }
    }
}

/* The other thread is held up in the middle, where it says what its VCQ did: into a pipe
 * that nobody reads. */
static void meanwhile(bool create)
{
    char            path[64], stats[96];
    struct other    other = {.cmp = 3};
    struct conf_vcq first, gone, fresh;
    utofu_stadd_t   stadd;
    pthread_t       thread;
    int             fd;

    snprintf(path, sizeof(path), "emu-recycle-%d", (int)getpid());
    snprintf(stats, sizeof(stats), "json:%s", path);
    CONF_CHECK(mkfifo(path, 0600) == 0, "mkfifo: %s", strerror(errno));
    CONF_CHECK(setenv("UTOFU_EMU_STATS", stats, 1) == 0, "setenv");
    CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(0), other.cmp, 0, &first.hdl));
    if (!create) {
        conf_vcq_create(&gone, 1, 0);
        CONF_OK(utofu_reg_mem_with_stag(gone.hdl, words[1], 256, STAG, 0, &stadd));
        other.gone = gone.hdl;
    }
    CONF_CHECK(pthread_create(&thread, NULL, other_thread, &other) == 0, "pthread_create");
    wait_asleep(&other.tid);
    conf_vcq_create(&fresh, 2, 0);
    CONF_OK(utofu_reg_mem_with_stag(fresh.hdl, words[2], 256, STAG, 0, &stadd));
    fd = open(path, O_RDONLY | O_NONBLOCK);
    CONF_CHECK(fd >= 0, "open: %s", strerror(errno));
    unlink(path);
    CONF_CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
    CONF_CHECK(other.code == (create ? UTOFU_ERR_USED : UTOFU_SUCCESS), "%s", conf_code_name(other.code));
    words[2][0] = 77;
    conf_put_word(&fresh, fresh.id, stadd, stadd + 8);
    CONF_CHECK(words[2][1] == 77, "the put did not arrive");
    conf_dereg(&fresh, stadd);
    conf_vcq_close(&fresh);
    CONF_OK(utofu_free_vcq(first.hdl));
    close(fd);
}

CONF_TEST("recycle", vcq_made_while_another_goes, 1, "a VCQ that is freed takes nothing from one that is created meanwhile")
{
    meanwhile(false);
}

CONF_TEST("recycle", vcq_made_while_another_fails, 1, "nor does one that could not be created")
{
    meanwhile(true);
}

#define COMES 150 /* VCQs of a thread */

static void *come_and_go(void *arg)
{
    unsigned                t = (unsigned)(uintptr_t)arg;
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           stadd;
    double                  end;
    int                     code;

    for (unsigned i = 0; i < COMES; i++) {
        CONF_OK(utofu_create_vcq(conf_tni(t), 0, &vcq.hdl));
        CONF_OK(utofu_query_vcq_id(vcq.hdl, &vcq.id));
        CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, words[t], 256, STAG, 0, &stadd));
        CONF_OK(utofu_put(vcq.hdl, vcq.id, stadd, stadd + 8, 8, i % 251, CONF_LMRQ, NULL));
        end = conf_now() + CONF_WAIT;
        while ((code = utofu_poll_mrq(vcq.hdl, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
            CONF_CHECK(conf_now() < end, "no notice in round %u", i);
        }
        CONF_CHECK((code == UTOFU_SUCCESS) && (notice.edata == i % 251), "%s in round %u", conf_code_name(code), i);
        if (i % 2) {
            CONF_OK(utofu_dereg_mem(vcq.hdl, stadd, 0));
        }
        CONF_OK(utofu_free_vcq(vcq.hdl));
    }
    return NULL;
}

static void threads_come_and_go(void)
{
    pthread_t thread[3];

    conf_timeout(100);
    for (uintptr_t t = 0; t < 3; t++) {
        CONF_CHECK(pthread_create(&thread[t], NULL, come_and_go, (void *)t) == 0, "pthread_create");
    }
    for (unsigned t = 0; t < 3; t++) {
        CONF_CHECK(pthread_join(thread[t], NULL) == 0, "pthread_join");
    }
}

CONF_TEST("recycle", vcqs_come_and_go, 1, "threads create, use and free VCQs without disturbing each other")
{
    threads_come_and_go();
}

CONF_TEST("recycle", vcqs_come_and_go_strict, 1, "also in the strict mode")
{
    CONF_CHECK(setenv("UTOFU_EMU_STRICT", "1", 1) == 0, "setenv");
    threads_come_and_go();
}

/* --------------------------------------------------------------------------- lanes */

static struct emu_lane *lane_at(struct emu_process *shm, uint32_t i)
{
    return (struct emu_lane *)(void *)((char *)shm + EMU_LANES_OFF(shm->session_entries) +
                                       i * EMU_LANE_SIZE(shm->lane_entries));
}

/* One notice from a VCQ that never sent any; where it is has been told before. */
static void first_notice(struct conf_vcq *mine, size_t tni, utofu_vcq_id_t to, utofu_stadd_t where, unsigned edata)
{
    conf_vcq_create(mine, tni, 0);
    CONF_POST(mine->hdl, utofu_put_piggyback8(mine->hdl, to, 1, where, 8, edata, CONF_RMRQ | CONF_STRONG, NULL));
}

static unsigned take_one(const struct conf_vcq *vcq)
{
    struct utofu_mrq_notice notice;
    int                     code = CONF_WAIT_MRQ(vcq, &notice);

    CONF_CHECK(code == UTOFU_SUCCESS, "%s", conf_code_name(code));
    return (unsigned)notice.edata;
}

static void take_none(const struct conf_vcq *vcq)
{
    struct utofu_mrq_notice notice;

    CONF_CODE(utofu_poll_mrq(vcq->hdl, 0, &notice), UTOFU_ERR_NOT_FOUND);
}

/* What the ranks share: made before they are forked.  The library's calls of fallocate come
 * here, as a program may define what it does not need of the C library. */
static struct board {
    _Atomic int go, done;
} *board;
static bool hold_up;

static void __attribute__((constructor)) board_make(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void await(_Atomic int *word)
{
    double   end   = conf_now() + CONF_WAIT;
    unsigned spins = 0;

    while (atomic_load(word) == 0) {
        CONF_CHECK(conf_now() < end, "the other rank does not come");
        conf_relax(&spins);
    }
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    int code = (int)syscall(SYS_fallocate, fd, mode, offset, length);

    if (hold_up && (mode & FALLOC_FL_PUNCH_HOLE)) {
        hold_up = false;
        atomic_store(&board->go, 1);
        await(&board->done);
    }
    return code;
}

CONF_TEST("recycle", lane_is_claimed_once, 3, "while one sender empties a lane that was another's, nobody else gets it")
{
    struct conf_vcq vcq, mine;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
    unsigned        got = 0;

    CONF_CHECK(board != MAP_FAILED, "mmap");
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, 4096, stadds);
    /* the first lanes have been used: the one before last has been given back */
    for (unsigned i = 0; i < 3; i++) {
        if (conf_rank == 1) {
            first_notice(&mine, 1, vcq.peer[0], stadds[0], i);
        } else if (conf_rank == 0) {
            CONF_CHECK(take_one(&vcq) == i, "another notice");
        }
        conf_barrier();
        if (conf_rank == 1) {
            conf_vcq_close(&mine);
        }
        conf_barrier();
    }
    if (conf_rank == 0) { /* as if all lanes had been */
        atomic_store(&own_segment()->lanes, EMU_MAX_LANES);
    }
    conf_barrier();
    if (conf_rank == 1) {
        hold_up = true;
        first_notice(&mine, 1, vcq.peer[0], stadds[0], 1);
        CONF_CHECK(!hold_up, "no lane was emptied");
    } else if (conf_rank == 2) {
        await(&board->go);
        first_notice(&mine, 1, vcq.peer[0], stadds[0], 2);
        atomic_store(&board->done, 1);
    } else {
        got |= take_one(&vcq);
        got |= take_one(&vcq);
        CONF_CHECK(got == 3, "a notice came twice");
        take_none(&vcq);
    }
    conf_barrier();
    if (conf_rank > 0) { /* each has its own */
        CONF_POST(mine.hdl, utofu_put_piggyback8(mine.hdl, vcq.peer[0], 1, stadds[0], 8, (unsigned)conf_rank,
                                                 CONF_RMRQ | CONF_STRONG, NULL));
        conf_barrier();
        conf_vcq_close(&mine);
    } else {
        got = take_one(&vcq);
        CONF_CHECK((got | take_one(&vcq)) == 3, "a notice came twice");
        conf_barrier();
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("recycle", lane_outlives_its_reader, 2, "a sender whose target is gone does not close the lane of another")
{
    struct conf_vcq vcq, gone, old, mine, more;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS], where[CONF_MAX_PROCS];

    conf_vcq_open(&vcq, 0, 0);
    conf_vcq_open(&gone, 1, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, 4096, stadds);
    conf_reg_all(&gone, words, sizeof(words), where);
    if (conf_rank == 1) {
        first_notice(&old, 2, gone.peer[0], where[0], 1);
        conf_barrier();
    } else {
        CONF_CHECK(take_one(&gone) == 1, "another notice");
        conf_vcq_close(&gone);
        atomic_store(&own_segment()->lanes, EMU_MAX_LANES);
        conf_barrier();
    }
    conf_barrier();
    if (conf_rank == 1) {
        first_notice(&mine, 3, vcq.peer[0], stadds[0], 2);
        conf_barrier();
        conf_vcq_close(&old);
        first_notice(&more, 4, vcq.peer[0], stadds[0], 3); /* the target looks what is closed */
        conf_barrier();
        CONF_POST(mine.hdl, utofu_put_piggyback8(mine.hdl, vcq.peer[0], 1, stadds[0], 8, 4, CONF_RMRQ, NULL));
        conf_barrier();
        conf_vcq_close(&more);
        conf_vcq_close(&mine);
        conf_vcq_close(&gone);
    } else {
        CONF_CHECK(take_one(&vcq) == 2, "another notice");
        conf_barrier();
        CONF_CHECK(take_one(&vcq) == 3, "another notice");
        conf_barrier();
        CONF_CHECK(take_one(&vcq) == 4, "another notice");
        take_none(&vcq);
        conf_barrier();
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

/* Pages that this thread touched for the first time: each lane that is mapped and looked at
 * is one. */
static long faults(void)
{
    struct rusage use;

    CONF_CHECK(getrusage(RUSAGE_THREAD, &use) == 0, "getrusage");
    return use.ru_minflt;
}

#define FEW_FAULTS ((long)EMU_MAX_LANES / 4)

CONF_TEST("recycle", polls_after_many_lanes, 2, "when all lanes have been used at some time, a new sender costs the poll no more than before")
{
    struct conf_vcq vcq, mine;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
    long            before = 0;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, 4096, stadds);
    if (conf_rank == 0) {
        atomic_store(&own_segment()->lanes, EMU_MAX_LANES - 2);
    }
    conf_barrier();
    for (unsigned i = 0; i < 8; i++) {
        if (conf_rank == 1) {
            first_notice(&mine, 1, vcq.peer[0], stadds[0], i);
        } else {
            before = faults();
            CONF_CHECK(take_one(&vcq) == i, "another notice");
            take_none(&vcq);
            CONF_CHECK(faults() - before < FEW_FAULTS, "%ld page faults for notice %u", faults() - before, i);
        }
        conf_barrier();
        if (conf_rank == 1) {
            conf_vcq_close(&mine);
        }
        conf_barrier();
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

#define LOST 3u

CONF_TEST("recycle", lanes_of_the_dead_are_given_back, 2, "a sender that finds no lane makes the target give back those of dead senders, some with every poll")
{
    struct utofu_mrq_notice notice;
    struct emu_process     *shm = NULL;
    struct emu_lane        *used;
    struct conf_vcq         vcq, mine, more;
    struct conf_mem         mem;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    long                    before;

    conf_timeout(100);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, 4096, stadds);
    if (conf_rank == 1) {
        first_notice(&mine, 1, vcq.peer[0], stadds[0], 1);
    } else {
        CONF_CHECK(take_one(&vcq) == 1, "another notice");
        shm = own_segment();
        used = lane_at(shm, 0);
        CONF_CHECK(atomic_load(&used->owner) != 0, "the first lane is not used");
        for (uint32_t i = 1; i < EMU_MAX_LANES; i++) { /* all are that sender's */
            lane_at(shm, i)->vcq     = used->vcq;
            lane_at(shm, i)->vcq_gen = used->vcq_gen;
            atomic_store(&lane_at(shm, i)->owner, atomic_load(&used->owner));
        }
        atomic_store(&shm->lanes, EMU_MAX_LANES);
    }
    conf_barrier();
    if (conf_rank == 1) {
        first_notice(&more, 2, vcq.peer[0], stadds[0], 2);
        CONF_CHECK(CONF_WAIT_MRQ(&more, &notice) == UTOFU_ERR_MRQ_OTHER, "there was a lane");
    }
    conf_barrier();
    if (conf_rank == 0) {
        /* some of them were opened by a process that died before it said so */
        for (uint32_t i = 0; i < LOST; i++) {
            atomic_fetch_xor(&lane_at(shm, 9000 + 100 * i)->owner, (uint64_t)1 << 16);
        }
        for (unsigned i = 0; i < 2 * EMU_MAX_LANES / 32; i++) {
            before = faults();
            take_none(&vcq);
            CONF_CHECK(faults() - before < FEW_FAULTS, "%ld page faults", faults() - before);
        }
    }
    conf_barrier();
    for (unsigned i = 0; i < LOST; i++) {
        if (conf_rank == 1) {
            CONF_POST(more.hdl, utofu_put_piggyback8(more.hdl, vcq.peer[0], 1, stadds[0], 8, 3, CONF_RMRQ, NULL));
        } else {
            CONF_CHECK(take_one(&vcq) == 3, "another notice");
            take_none(&vcq);
        }
        conf_barrier();
        if (conf_rank == 1) {
            conf_vcq_close(&more);
            conf_vcq_create(&more, 2, 0);
        }
        conf_barrier();
    }
    if (conf_rank == 1) {
        conf_vcq_close(&more);
        conf_vcq_close(&mine);
    } else { /* nobody's, as they were */
        for (uint32_t i = 1; i < EMU_MAX_LANES; i++) {
            atomic_store(&lane_at(shm, i)->owner, 0);
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

/* The rings of a lane take what a burst of notices has filled of them. */
CONF_TEST("recycle", lanes_give_memory_back, 1, "of senders that are gone, and were read, no memory is left but a page each")
{
    enum { SENDERS = 100, NOTICES = 20000, WARM = 5 };
    struct utofu_mrq_notice notice;
    struct conf_vcq         target, sender;
    struct conf_mem         mem;
    utofu_stadd_t           there;
    uint64_t                before = 0, after;

    conf_timeout(100);
    conf_vcq_create(&target, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    there = conf_reg(&target, mem.addr, 4096, 0);
    for (unsigned i = 0; i < WARM + SENDERS; i++) {
        if (i == WARM) {
            before = own_segment_bytes();
        }
        conf_vcq_create(&sender, i % 6, 0);
        for (unsigned k = 0; k < NOTICES; k++) {
            CONF_POST(sender.hdl, utofu_put_piggyback8(sender.hdl, target.id, k, there, 8, k & 255, CONF_RMRQ, NULL));
        }
        for (unsigned k = 0; k < NOTICES; k++) {
            CONF_OK(CONF_WAIT_MRQ(&target, &notice));
            CONF_CHECK(notice.edata == (k & 255), "EDATA %d of notice %u", (int)notice.edata, k);
        }
        conf_vcq_close(&sender);
        CONF_CHECK(utofu_poll_mrq(target.hdl, 0, &notice) == UTOFU_ERR_NOT_FOUND, "one notice too many");
    }
    after = own_segment_bytes();
    CONF_CHECK((before > 0) && (after < before + SENDERS * 65536), "%llu bytes, then %llu", (unsigned long long)before,
               (unsigned long long)after);
    conf_dereg(&target, there);
    conf_vcq_close(&target);
    conf_mem_free(&mem);
}
