/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_hostile.c - shared memory that lies.
 *
 * A victim's process segment is written over at random, through the victim's own
 * descriptor as any process of the user could, while two other processes put, get
 * and do ARMW with the victim and with each other.  What they do with each other
 * must stay right, every call of theirs must return, with a code of utofu.h, and
 * neither may crash.  The victim may do what it likes; it is started again.
 *
 *   fuzz_hostile SEED ROUNDS
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "emu_shm.h"

#define MEM 16384u

static struct emu_process head; /* of the victim, before it was damaged */

struct board {
    struct {
        _Atomic uint64_t id, stadd[2];
        _Atomic uint64_t beats; /* calls that returned */
    } p[3];
    _Atomic int stop;
};
enum { VICTIM = 2 };
static struct board *board;
static uint64_t      state, seed;

static uint64_t rnd(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15ull); /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static void fail(int me, const char *what, long value)
{
    fprintf(stderr, "fuzz_hostile: seed %llu process %d: %s (%ld)\n", (unsigned long long)seed, me, what, value);
    abort();
}

static char *memory(bool memfd)
{
    int   fd = memfd ? memfd_create("hostile", MFD_CLOEXEC) : -1;
    char *p;

    if (memfd && ((fd < 0) || ftruncate(fd, MEM))) {
        fail(-1, "memfd", fd);
    }
    p = mmap(NULL, MEM, PROT_READ | PROT_WRITE, memfd ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (p == MAP_FAILED) {
        fail(-1, "mmap", 0);
    }
    memset(p, 0, MEM);
    return p;
}

static utofu_vcq_hdl_t join(int me, char *mem[2])
{
    utofu_vcq_hdl_t hdl;
    utofu_vcq_id_t  id;
    utofu_stadd_t   stadd;
    int             code = utofu_create_vcq((utofu_tni_id_t)me, 0, &hdl);

    if (code != UTOFU_SUCCESS) {
        fail(me, "create_vcq", code);
    }
    for (int k = 0; k < 2; k++) {
        mem[k] = (mem[k] != NULL) ? mem[k] : memory(k == 0);
        if (utofu_reg_mem(hdl, mem[k], MEM, 0, &stadd) != UTOFU_SUCCESS) {
            fail(me, "reg_mem", k);
        }
        atomic_store(&board->p[me].stadd[k], stadd);
    }
    utofu_query_vcq_id(hdl, &id);
    atomic_store(&board->p[me].id, id);
    return hdl;
}

static void victim(void)
{
    char                   *mem[2] = {NULL, NULL};
    utofu_vcq_hdl_t         hdl    = join(VICTIM, mem);
    struct utofu_mrq_notice n;
    void                   *cb;

    for (unsigned i = 0; !atomic_load(&board->stop); i++) {
        int other = (int)(i & 1);
        utofu_put_piggyback8(hdl, atomic_load(&board->p[other].id), i,
                atomic_load(&board->p[other].stadd[0]) + 8192, 8, 1,
                             (i % 4) ? 0 : UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL);
        utofu_poll_tcq(hdl, 0, &cb);
        for (int k = 0; k < 100; k++) {
            utofu_poll_mrq(hdl, 0, &n);
        }
        usleep(100);
    }
}

static void code_ok(int me, int code)
{
    if ((code > 0) || (code < UTOFU_ERR_FATAL)) {
        fail(me, "no code of utofu.h", code);
    }
    atomic_fetch_add(&board->p[me].beats, 1);
}

/* With the other survivor: word `me` of its memory counts what we did there */
static void friendly(int me, utofu_vcq_hdl_t hdl, uint64_t *sum)
{
    int                     peer = !me, code, k = (int)(rnd() & 1);
    uint64_t                id = atomic_load(&board->p[peer].id), to =
            atomic_load(&board->p[peer].stadd[k]) + 8 * (uint64_t)me;
    struct utofu_mrq_notice n;
    double                  tries = 0;

    if (id == 0) {
        return;
    }
    code = utofu_armw8(hdl, id, UTOFU_ARMW_OP_ADD, 3, to, 77, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL);
    code_ok(me, code);
    if (code == UTOFU_ERR_BUSY) {
        return;
    }
    if (code != UTOFU_SUCCESS) {
        fail(me, "ARMW between survivors", code);
    }
    do { /* its notice is among those of the operations towards the victim */
        code = utofu_poll_mrq(hdl, 0, &n);
        if (++tries > 1e8) {
            fail(me, "a notice is lost", 0);
        }
    } while ((code == UTOFU_ERR_NOT_FOUND) || (n.edata != 77));
    if (code != UTOFU_SUCCESS) {
        fail(me, "ARMW between survivors failed", code);
    }
    if (n.rmt_value != sum[k]) {
        fail(me, "a word that only we write has changed", (long)(n.rmt_value - sum[k]));
    }
    sum[k] += 3;
}

static void towards_victim(int me, utofu_vcq_hdl_t hdl, utofu_stadd_t lcl)
{
    uint64_t      id = atomic_load(&board->p[VICTIM].id), to =
            atomic_load(&board->p[VICTIM].stadd[rnd() & 1]) + 8 * (rnd() % 500);
    unsigned long f  = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | ((rnd() % 4) ? 0 : UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) |
                      ((rnd() % 4) ? 0 : UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) |
                              ((rnd() % 4) ? 0 : UTOFU_ONESIDED_FLAG_STRONG_ORDER);

    switch (rnd() % 5) {
    case 0:
        code_ok(me, utofu_put(hdl, id, lcl + 4096, to, rnd() % 9000, 1, f, NULL));
        break;
    case 1:
        code_ok(me, utofu_get(hdl, id, lcl + 4096, to, rnd() % 9000, 1, f, NULL));
        break;
    case 2:
        code_ok(me, utofu_put_piggyback8(hdl, id, rnd(), to, 8, 1, f, NULL));
        break;
    case 3:
        code_ok(me, utofu_cswap8(hdl, id, 0, 1, to, 1, f, NULL));
        break;
    default:
        code_ok(me, utofu_armw4(hdl, id, UTOFU_ARMW_OP_ADD, 1, to, 1, f, NULL));
        break;
    }
}

static void survivor(int me)
{
    char                   *mem[2] = {NULL, NULL};
    utofu_vcq_hdl_t         hdl    = join(me, mem), second = 0;
    uint64_t                sum[2] = {0, 0};
    struct utofu_mrq_notice n;
    utofu_stadd_t           lcl    = atomic_load(&board->p[me].stadd[0]), lcl2 = 0;
    void                   *cb;

    for (unsigned i = 0; !atomic_load(&board->stop); i++) {
        friendly(me, hdl, sum);
        towards_victim(me, hdl, lcl);
        if (i % 50 == 0) { /* meets the victim anew, from its segment as it is now */
            if (second != 0) {
                code_ok(me, utofu_free_vcq(second));
            }
            if ((utofu_create_vcq((utofu_tni_id_t)(3 + me), 0, &second) != UTOFU_SUCCESS) ||
                (utofu_reg_mem(second, mem[0], MEM, 0, &lcl2) != UTOFU_SUCCESS)) {
                fail(me, "no second VCQ", 0);
            }
        }
        towards_victim(me, second, lcl2);
        for (int code = 0; code != UTOFU_ERR_NOT_FOUND;) {
            code_ok(me, code = utofu_poll_tcq(hdl, 0, &cb));
        }
        for (int code = 0; code != UTOFU_ERR_NOT_FOUND;) {
            code_ok(me, code = utofu_poll_mrq(hdl, 0, &n));
        }
        for (int code = 0; code != UTOFU_ERR_NOT_FOUND;) {
            code_ok(me, code = utofu_poll_tcq(second, 0, &cb));
        }
        for (int code = 0; code != UTOFU_ERR_NOT_FOUND;) {
            code_ok(me, code = utofu_poll_mrq(second, 0, &n));
        }
    }
}

static pid_t start(int me)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        state += (uint64_t)me * 7919;
        (me == VICTIM) ? victim() : survivor(me);
        exit(0);
    }
    return pid;
}

/* The process segment, among the descriptors of the victim */
static char *segment_of(pid_t pid, struct emu_process *head)
{
    char           name[64], *p = NULL;
    struct dirent *ent;
    DIR           *d;

    snprintf(name, sizeof(name), "/proc/%d/fd", (int)pid);
    d = opendir(name);
    while ((d != NULL) && (p == NULL) && ((ent = readdir(d)) != NULL)) {
        struct stat        st;
        char               path[400];
        int                fd;

        snprintf(path, sizeof(path), "%s/%s", name, ent->d_name);
        if (stat(path, &st) || !S_ISREG(st.st_mode) || ((fd = open(path, O_RDWR | O_CLOEXEC)) < 0)) {
            continue;
        }
        if ((pread(fd, head, sizeof(*head), 0) == (ssize_t)sizeof(*head)) && (head->magic == EMU_MAGIC) &&
            (head->size == (uint64_t)st.st_size) && (head->pid == pid)) {
            p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        }
        close(fd);
    }
    if (d != NULL) {
        closedir(d);
    }
    return (p == MAP_FAILED) ? NULL : p;
}

/* head: the header as it was */
static void corrupt(char *seg, const struct emu_process *head)
{
    struct emu_process *shm = (struct emu_process *)(void *)seg;
    struct emu_stag    *tag = (struct emu_stag *)(void *)(seg + EMU_STAGS_OFF) + EMU_NUM_STAGS_USER + rnd() % 2;
    uint64_t            off, span;

    switch (rnd() % 9) {
    case 0:
        off = 0, span = 64; /* magic, version, sizes, counts */
        break;
    case 1:
        off = offsetof(struct emu_process, mailbox), span = 4 * sizeof(struct emu_mailbox);
        break;
    case 2:
        off = offsetof(struct emu_process, vcq), span = 2 * sizeof(struct emu_vcq_block);
        break;
    case 3:
        off = offsetof(struct emu_process, seg), span = 4 * sizeof(struct emu_seg);
        break;
    case 4: /* values that look right */
        shm->size            = (rnd() & 1) ? head->size : ~(uint64_t)0;
        shm->lane_entries    = 1u << (rnd() % 22);
        shm->session_entries = 1u << (rnd() % 22);
        shm->vcq[0].mrq_entries = 1u << (rnd() % 22);
        return;
    case 5:
        atomic_store(&shm->lanes, (uint32_t)(rnd() % (2 * EMU_MAX_LANES)));
        return;
    case 6: /* more of a memfd than there is, elsewhere in the victim, another kind */
        tag->end     = tag->begin + (rnd() >> (rnd() % 64));
        tag->seg_off = rnd() >> (rnd() % 64);
        tag->addr    = rnd() >> (rnd() % 64);
        tag->kind    = (uint32_t)(rnd() % 3);
        atomic_fetch_add(&tag->seq, (rnd() & 1) ? 1 : 2);
        return;
    case 7:
        off = EMU_STAGS_OFF + EMU_NUM_STAGS_USER * sizeof(struct emu_stag), span = 4 * sizeof(struct emu_stag);
        break;
    default:
        off  = EMU_LANES_OFF(head->session_entries) + (rnd() % 4) * EMU_LANE_SIZE(head->lane_entries);
        off += (rnd() & 1) ? EMU_LANE_HEAD : 0;
        span = 1024;
        break;
    }
    off += rnd() % span;
    for (unsigned n = 1u << (rnd() % 4); n > 0; n--) {
        seg[off++] = (rnd() & 1) ? (char)rnd() : (rnd() & 1) ? 0 : (char)0xff;
    }
}

int main(int argc, char **argv)
{
    unsigned rounds = (argc > 2) ? (unsigned)atoi(argv[2]) : 100, crashes = 0, hits = 0;
    uint64_t last[2] = {0, 0};
    pid_t    pid[3];
    int      status, bad = 0;

    seed = state = (argc > 1) ? strtoull(argv[1], NULL, 0) : 1;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) {
        pid[i] = start(i);
    }
    for (unsigned r = 0; (r < rounds) && !bad; r++) {
        char *seg = NULL;

        while (atomic_load(&board->p[VICTIM].id) == 0) {
            usleep(500);
        }
        usleep(3000 + (useconds_t)(rnd() % 4000));
        seg = segment_of(pid[VICTIM], &head);
        for (unsigned k = (unsigned)(rnd() % 20); (seg != NULL) && (k > 0); k--, hits++) {
            corrupt(seg, &head);
            usleep((useconds_t)(rnd() % 400));
        }
        if (seg != NULL) {
            munmap(seg, (size_t)head.size);
        }
        for (int i = 0; (i < 2) && !bad; i++) { /* both still return from their calls */
            for (int wait = 0; (atomic_load(&board->p[i].beats) == last[i]) && !bad; wait++) {
                usleep(2000);
                if (wait == 10000) {
                    fprintf(stderr, "fuzz_hostile: seed %llu: process %d (%d) hangs in a call\n",
                            (unsigned long long)seed, i,
                            (int)pid[i]);
                    bad = 1;
                }
                if (waitpid(pid[i], &status, WNOHANG) == pid[i]) {
                    fprintf(stderr, "fuzz_hostile: seed %llu: survivor %d ended with %x\n",
                            (unsigned long long)seed, i, status);
                    bad    = 1;
                    pid[i] = -1;
                }
            }
            last[i] = atomic_load(&board->p[i].beats);
        }
        atomic_store(&board->p[VICTIM].id, 0);
        if (waitpid(pid[VICTIM], &status, WNOHANG) == pid[VICTIM]) {
            crashes++;
        } else {
            kill(pid[VICTIM], SIGKILL);
            waitpid(pid[VICTIM], &status, 0);
        }
        pid[VICTIM] = start(VICTIM);
    }
    atomic_store(&board->stop, 1);
    for (int i = 0; i < 3; i++) {
        if (pid[i] > 0) {
            if (bad || (i == VICTIM)) {
                kill(pid[i], SIGKILL);
            }
            if ((waitpid(pid[i], &status, 0) == pid[i]) && (i != VICTIM) && (status != 0) && !bad) {
                fprintf(stderr, "fuzz_hostile: seed %llu: survivor %d ended with %x\n",
                        (unsigned long long)seed, i, status);
                bad = 1;
            }
        }
    }
    printf("rounds %u writes %u victim ended %u calls %llu\n", rounds, hits, crashes,
           (unsigned long long)(atomic_load(&board->p[0].beats) + atomic_load(&board->p[1].beats)));
    return bad;
}
