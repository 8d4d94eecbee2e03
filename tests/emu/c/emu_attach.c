/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_attach.c - shared memory that has no descriptor, of owners who may not open the file of a mapping: peers
 * attach System V segments by their number, and map shared anonymous memory that both had before a fork.
 */
#include "own.h"

#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  4096u
#define BYTES (16 * PAGE)

struct segment {
    int               id;
    _Atomic uint64_t *words;
};

/* Nobody finds it later: as MPI libraries do, it is removed as soon as it is attached. */
static struct segment segment_new(size_t size)
{
    struct segment s;

    s.id    = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    s.words = shmat(s.id, NULL, 0);
    CONF_CHECK((s.id >= 0) && (s.words != (void *)-1), "shmget, shmat: %s", strerror(errno));
    CONF_CHECK(!shmctl(s.id, IPC_RMID, NULL), "shmctl");
    return s;
}

static unsigned long attached(int id)
{
    struct shmid_ds ds;

    CONF_CHECK(!shmctl(id, IPC_STAT, &ds), "shmctl: %s", strerror(errno));
    return (unsigned long)ds.shm_nattch;
}

/* How many mappings this process has, and how many of them are of the file that is at addr */
static unsigned mappings(const void *addr, unsigned *of_it)
{
    unsigned           num = 0;
    unsigned long      ino = 0;
    char               line[512];
    FILE              *f;

    for (int turn = 0; turn < 2; turn++) {
        num = *of_it = 0;
        f   = fopen("/proc/self/maps", "r");
        CONF_CHECK(f != NULL, "maps");
        while (fgets(line, sizeof(line), f) != NULL) {
            unsigned long begin, end, off, inode;

            CONF_CHECK(sscanf(line, "%lx-%lx %*s %lx %*s %lu", &begin, &end, &off, &inode) == 4, "%s", line);
            ino = ((begin <= (uintptr_t)addr) && ((uintptr_t)addr < end)) ? inode : ino;
            *of_it += inode == ino;
            num++;
        }
        fclose(f);
    }
    return num;
}

/* ARMWs and a put to what is registered at the second page, one after the other */
static void reach(const struct conf_vcq *vcq, utofu_vcq_id_t id, utofu_stadd_t stadd, uint64_t before)
{
    struct utofu_mrq_notice notice;

    CONF_POST(vcq->hdl, utofu_armw8(vcq->hdl, id, UTOFU_ARMW_OP_ADD, 5, stadd + 8, 5, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_ARMW, id, 5, &notice);
    CONF_CHECK(notice.rmt_value == before, "the value before is %llu", (unsigned long long)notice.rmt_value);
    CONF_POST(vcq->hdl, utofu_put_piggyback8(vcq->hdl, id, 99, stadd + 16, 8, 6, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_PUT, id, 6, NULL);
}

CONF_TEST("attach", system_v_segment, 2,
          "peers attach a System V segment by its number, also one that is removed: all of it or a part, also when its "
          "owner is stopped")
{
    struct conf_vcq vcq;
    utofu_stadd_t   all[2];
    struct segment  s = segment_new(BYTES + 100), of[2];

    own_may_not_open_mappings();
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, (char *)s.words + PAGE, BYTES - 2 * PAGE, all);
    conf_exchange(&s, sizeof(s), of);
    s.words[PAGE / 8 + 1] = 7;
    CONF_CHECK(attached(s.id) == 1, "%lu have it", attached(s.id));
    conf_barrier();
    if (conf_rank == 0) {
        conf_stop(1);
        reach(&vcq, vcq.peer[1], all[1], 7);
        CONF_CHECK(attached(of[1].id) == 2, "it is not attached");
        conf_continue(1);
    }
    conf_barrier();
    CONF_CHECK(s.words[PAGE / 8 + 1] == ((conf_rank == 1) ? 12 : 7), "the word is %llu",
               (unsigned long long)s.words[PAGE / 8 + 1]);
    CONF_CHECK(s.words[PAGE / 8 + 2] == ((conf_rank == 1) ? 99 : 0), "the next one");
    conf_dereg(&vcq, all[conf_rank]);
    conf_vcq_close(&vcq);
    shmdt((void *)s.words);
}

CONF_TEST("attach", system_v_segments_one_by_one, 2,
          "a peer that registers a new System V segment each time takes no more mappings of others, and what it released "
          "goes away")
{
    struct conf_vcq vcq;
    utofu_stadd_t   all[2];
    struct segment  s[2], of[2];
    unsigned        first = 0, num, here;

    own_may_not_open_mappings();
    conf_vcq_open(&vcq, 0, 0);
    for (int i = 0; i < 100; i++) {
        if (conf_rank == 1) {
            s[i % 2] = segment_new(BYTES);
        }
        conf_reg_all(&vcq, (conf_rank == 1) ? (void *)s[i % 2].words : (void *)&s, sizeof(s), all);
        if (conf_rank == 0) {
            reach(&vcq, vcq.peer[1], all[1], 0);
            num   = mappings(&vcq, &here);
            first = (i == 2) ? num : first;
            CONF_CHECK((i <= 2) || (num <= first + 4), "%u mappings, and %u of the third", num, first);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK((s[i % 2].words[1] == 5) && (s[i % 2].words[2] == 99), "what was put");
            CONF_CHECK(attached(s[i % 2].id) == 2, "it is not attached");
            shmdt((void *)s[i % 2].words);
        }
        conf_dereg(&vcq, all[conf_rank]);
        conf_exchange(&s[i % 2], sizeof(s[0]), of);
        if ((conf_rank == 1) && (i >= 2)) {
            struct shmid_ds ds;

            CONF_CHECK(shmctl(s[(i + 1) % 2].id, IPC_STAT, &ds) != 0, "the one before is there still");
        }
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("attach", system_v_segment_of_huge_pages, 2,
          "a System V segment of huge pages is reached, also one that ends within a page, and nothing stays attached that is "
          "not mapped")
{
    static const size_t sizes[] = {4 << 20, (2 << 20) + PAGE};
    struct conf_vcq     vcq;
    utofu_stadd_t       all[2];
    int                 id, of[2];
    char               *base;

    own_may_not_open_mappings();
    conf_vcq_open(&vcq, 0, 0);
    for (size_t i = 0; i < CONF_LEN(sizes); i++) {
        id = shmget(IPC_PRIVATE, sizes[i], IPC_CREAT | SHM_HUGETLB | 0600);
        if (id < 0) {
            conf_skip("no huge pages for a segment: %s", strerror(errno));
        }
        base = shmat(id, NULL, 0);
        CONF_CHECK(!shmctl(id, IPC_RMID, NULL) && (base != (void *)-1), "shmat: %s", strerror(errno));
        for (int again = 0; again < 3; again++) {
            conf_reg_all(&vcq, base + PAGE, 2 * PAGE, all);
            conf_exchange(&id, sizeof(id), of);
            if (conf_rank == 0) {
                reach(&vcq, vcq.peer[1], all[1], 5 * (uint64_t)again);
                CONF_CHECK(attached(of[1]) <= 2, "%lu have it", attached(of[1]));
            }
            conf_barrier();
            conf_dereg(&vcq, all[conf_rank]);
        }
        CONF_CHECK((conf_rank == 0) || (*(uint64_t *)(void *)(base + PAGE + 8) == 15), "what was added");
        conf_barrier();
        shmdt(base);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("attach", system_v_segment_read_only, 2, "of a segment that its owner has attached to read, peers read")
{
    struct conf_vcq vcq;
    utofu_stadd_t   all[2], own, mine;
    uint64_t        words[4] = {0};
    struct segment  s = segment_new(BYTES), of[2];
    uint64_t       *view = shmat(s.id, NULL, SHM_RDONLY);

    CONF_CHECK(view != (void *)-1, "shmat");
    own_may_not_open_mappings();
    s.words[3] = 33;
    conf_vcq_open(&vcq, 0, 0);
    mine = conf_reg(&vcq, view, BYTES, UTOFU_REG_MEM_FLAG_READ_ONLY);
    own  = conf_reg(&vcq, words, sizeof(words), 0);
    conf_exchange(&mine, sizeof(mine), all);
    conf_exchange(&s, sizeof(s), of);
    if (conf_rank == 0) {
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], own, all[1] + 8, 24, 5, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 5, NULL);
        CONF_CHECK(words[2] == 33, "it read %llu", (unsigned long long)words[2]);
        CONF_CHECK(attached(of[1].id) == 3, "it is not attached");
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

/* Shared anonymous memory, of a process that may not open its file */
static _Atomic uint64_t *shared_words(void)
{
    _Atomic uint64_t *words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CONF_CHECK(words != MAP_FAILED, "mmap");
    own_may_not_open_mappings();
    words[PAGE / 8 + 1] = 7;
    return words;
}

/* What a child of the test has registered */
struct shown {
    utofu_vcq_id_t id;
    utofu_stadd_t  stadd;
};

/* A child that registers words and waits for the end of its input.  No VCQ was there before. */
static pid_t child_that_shows(_Atomic uint64_t *words, struct shown *shown, int *go)
{
    int   told[2], ends[2];
    pid_t pid;
    char  c;

    CONF_CHECK(!pipe(told) && !pipe(ends), "pipe");
    pid = fork();
    if (pid == 0) {
        utofu_vcq_hdl_t hdl;

        close(ends[1]);
        if (utofu_create_vcq(conf_tni(0), 0, &hdl) || utofu_query_vcq_id(hdl, &shown->id) ||
            utofu_reg_mem(hdl, (char *)(uintptr_t)words + PAGE, BYTES - 2 * PAGE, 0, &shown->stadd) ||
            (write(told[1], shown, sizeof(*shown)) != (ssize_t)sizeof(*shown)) || (read(ends[0], &c, 1) != 0)) {
            _exit(1);
        }
        _exit((words[PAGE / 8 + 1] == 12) ? 0 : 2);
    }
    close(told[1]);
    close(ends[0]);
    CONF_CHECK(read(told[0], shown, sizeof(*shown)) == (ssize_t)sizeof(*shown), "the child failed");
    close(told[0]);
    *go = ends[1];
    return pid;
}

static void child_ends(pid_t pid, int go)
{
    int status;

    close(go);
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "the child: %x", (unsigned)status);
}

CONF_TEST("attach", shared_memory_of_one_parent, 1,
          "shared anonymous memory from before a fork is mapped by those who have it, also when its owner is stopped")
{
    _Atomic uint64_t *words = shared_words();
    struct conf_vcq   vcq;
    struct shown      shown;
    unsigned          of_it;
    pid_t             pid;
    int               go, status;

    pid = child_that_shows(words, &shown, &go);
    conf_vcq_create(&vcq, 0, 0);
    CONF_CHECK(!mprotect((void *)words, BYTES, PROT_READ), "mprotect"); /* what is mapped of its own is as it was */
    kill(pid, SIGSTOP);
    CONF_CHECK((waitpid(pid, &status, WUNTRACED) == pid) && WIFSTOPPED(status), "it does not stop");
    reach(&vcq, shown.id, shown.stadd, 7);
    mappings((void *)words, &of_it);
    CONF_CHECK(of_it == 2, "%u mappings of it", of_it);
    CONF_CHECK((words[PAGE / 8 + 1] == 12) && (words[PAGE / 8 + 2] == 99), "it is other memory");
    kill(pid, SIGCONT);
    child_ends(pid, go);
    munmap((void *)words, BYTES);
    conf_vcq_close(&vcq);
}

CONF_TEST("attach", shared_memory_that_was_unmapped, 1,
          "who has unmapped shared anonymous memory, or never had it, reaches it by the kernel")
{
    _Atomic uint64_t *words = shared_words();
    struct conf_vcq   vcq;
    struct shown      shown;
    pid_t             pid;
    int               go;

    pid = child_that_shows(words, &shown, &go);
    munmap((void *)words, BYTES);
    conf_vcq_create(&vcq, 0, 0);
    reach(&vcq, shown.id, shown.stadd, 7);
    child_ends(pid, go);
    conf_vcq_close(&vcq);
}

/* What a liar shows of its segment, which peers are to look at next */
static void lie(int fd, uint64_t ino, uint64_t dev_by)
{
    struct emu_process *own = own_segment();

    for (unsigned i = 0; i < 16; i++) {
        own->seg[i].fd  = fd;
        own->seg[i].ino = ino;
        own->seg[i].dev += dev_by;
    }
    munmap(own, (size_t)own->size);
}

CONF_TEST("attach", segments_of_liars, 2,
          "a peer that shows another number or place than its segment has is reached by the kernel, and nothing else is")
{
    struct conf_vcq vcq;
    utofu_stadd_t   all[2], mine;
    struct segment  s = segment_new(BYTES), other = segment_new(BYTES);
    const struct {
        int      fd;
        uint64_t ino, dev_by;
    } lies[] = {
        {EMU_SEG_BY_NUMBER, (uint64_t)other.id, 1}, {EMU_SEG_BY_NUMBER, UINT64_MAX, 0}, {EMU_SEG_BY_NUMBER, INT32_MAX, 0},
        {EMU_SEG_INHERITED, (uint64_t)other.id, 0}, {EMU_SEG_INHERITED, 0, 0},          {-1, (uint64_t)other.id, 0},
        {INT32_MIN, (uint64_t)other.id, 0},         {-4, (uint64_t)other.id, 0},
    };

    own_may_not_open_mappings();
    conf_vcq_open(&vcq, 0, 0);
    s.words[PAGE / 8 + 1]     = 7;
    other.words[PAGE / 8 + 1] = other.words[PAGE / 8 + 2] = 44;
    for (size_t i = 0; i < CONF_LEN(lies); i++) {
        mine = conf_reg(&vcq, (char *)s.words + PAGE, BYTES - 2 * PAGE, 0);
        if (conf_rank == 1) {
            lie(lies[i].fd, lies[i].ino, lies[i].dev_by);
        }
        conf_exchange(&mine, sizeof(mine), all);
        if (conf_rank == 0) {
            reach(&vcq, vcq.peer[1], all[1], 7 + 5 * i);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK(s.words[PAGE / 8 + 1] == 12 + 5 * i, "%zu: the word is %llu", i,
                       (unsigned long long)s.words[PAGE / 8 + 1]);
            CONF_CHECK((other.words[PAGE / 8 + 1] == 44) && (other.words[PAGE / 8 + 2] == 44), "%zu: the other", i);
        }
        conf_dereg(&vcq, mine);
    }
    conf_vcq_close(&vcq);
}
