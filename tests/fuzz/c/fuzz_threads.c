/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_threads.c - threads that use the library at the same time, in every way that
 * 2.5 of the guide allows; built with ThreadSanitizer, which reports what is not
 * ordered, and run without it for the counts.
 *
 *   fuzz_threads ROUNDS
 *
 * Two threads share a thread-safe VCQ, two have an exclusive VCQ each, one registers
 * on the shared VCQ while the others post to it, one makes and frees VCQs, two meet
 * in a barrier on thread-safe gates, one asks.  Targets are in another process, in a
 * memfd and in private memory, and in this one.
 *
 * What puts write is not read by another thread until all have ended: a thread that
 * polls for data would race with the put by design, and TSan can't know.  Words that
 * threads share are touched by ARMW only.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <utofu.h>

#define SIZE   262144u
#define SLOT   32768u /* of each poster */
#define LARGE  20000u /* taken by another path than small ones */
enum { IN_MEMFD, PRIVATE, KINDS };

struct target {
    _Atomic uint64_t id;
    uint64_t         stadd[KINDS];
    _Atomic int      stop;
};
static struct target *remote; /* shared with the other process */
static struct target  here;

static unsigned         rounds = 200;
static utofu_vcq_hdl_t  shared_vcq;
static pthread_mutex_t  out_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t posted_tcq, posted_mrq, seen_tcq, seen_mrq; /* of the shared VCQ */
static _Atomic uint64_t adds;                                      /* to word 0 of the other process' private memory */
static _Atomic bool     over;
static pthread_barrier_t together; /* everyone meets the other process at the same time */

static void fail(const char *what, int code)
{
    pthread_mutex_lock(&out_lock);
    fprintf(stderr, "fuzz_threads: %s: %d\n", what, code);
    fflush(stderr);
    _exit(3);
}

#define OK(call) \
    do { \
        int code_ = (call); \
        if (code_ != UTOFU_SUCCESS) { \
            fail(#call, code_); \
        } \
    } while (0)

static char *memory(int kind)
{
    int   fd = (kind == IN_MEMFD) ? memfd_create("threads", MFD_CLOEXEC) : -1;
    char *p;

    if ((fd >= 0) && ftruncate(fd, SIZE)) {
        fail("ftruncate", 0);
    }
    p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, (fd >= 0) ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (p == MAP_FAILED) {
        fail("mmap", 0);
    }
    memset(p, 0, SIZE);
    return p;
}

static char *target_make(struct target *t, utofu_tni_id_t tni, utofu_vcq_hdl_t *hdl)
{
    utofu_vcq_id_t id;
    char          *mem[KINDS];

    OK(utofu_create_vcq(tni, UTOFU_VCQ_FLAG_THREAD_SAFE, hdl));
    OK(utofu_query_vcq_id(*hdl, &id));
    for (int k = 0; k < KINDS; k++) {
        mem[k] = memory(k);
        OK(utofu_reg_mem(*hdl, mem[k], SIZE, 0, &t->stadd[k]));
    }
    atomic_store(&t->id, id);
    return mem[PRIVATE];
}

/* The other process: reads its notices, and tells at the end what was added */
static int other_process(void)
{
    struct utofu_mrq_notice n;
    utofu_vcq_hdl_t         hdl;
    char                   *mem = target_make(remote, 1, &hdl);

    while (!atomic_load(&remote->stop)) {
        while (utofu_poll_mrq(hdl, 0, &n) == UTOFU_SUCCESS) {
        }
        usleep(200);
    }
    remote->stadd[0] = __atomic_load_n((uint64_t *)(void *)mem, __ATOMIC_SEQ_CST);
    OK(utofu_free_vcq(hdl));
    return 0;
}

/* One operation of each kind to slot `who` of a target: TCQ and local MRQ notices */
static void traffic(utofu_vcq_hdl_t hdl, unsigned who, unsigned i, uint64_t lcl, bool count)
{
    const unsigned long both = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    struct target      *t    = (i % 3 == 2) ? &here : remote;
    uint64_t            slot = 64 + SLOT * (uint64_t)who, rmt = t->stadd[(i / 3 + 1) % KINDS] + slot, id =
            atomic_load(&t->id);
    size_t              n    = (i % 4 == 1) ? LARGE : 1 + i % 256;
    int                 code;

    for (int op = 0; op < 5; op++) {
        unsigned long f = both | ((i % 16 == 0) ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0);
        if ((op == 4) && (i % 8 != 0)) {
            break; /* ARMW on private memory is slow */
        }
        do {
            switch (op) {
            case 0:
                code = utofu_put(hdl, id, lcl + slot, rmt, n, who, f, NULL);
                break;
            case 1:
                code = utofu_put_piggyback8(hdl, id, i, rmt + LARGE + 192, 8, who, f, NULL);
                break;
            case 2:
                code = utofu_get(hdl, id, lcl + slot, rmt, n, who, f, NULL);
                break;
            case 3:
                code = utofu_armw8(hdl, atomic_load(&here.id), UTOFU_ARMW_OP_XOR, i, here.stadd[PRIVATE] + 8,
                        who, f, NULL);
                break;
            default:
                code = utofu_armw8(hdl, atomic_load(&remote->id), UTOFU_ARMW_OP_ADD, 1, remote->stadd[PRIVATE],
                        who, f, NULL);
                adds += code == UTOFU_SUCCESS;
                break;
            }
        } while (code == UTOFU_ERR_BUSY);
        OK(code);
        if (count) {
            posted_tcq++;
            posted_mrq++;
        }
    }
}

static void *sharing(void *arg) /* posts to and polls the shared VCQ */
{
    unsigned                who = (unsigned)(uintptr_t)arg;
    char                   *mem = memory((int)(who % KINDS));
    struct utofu_mrq_notice n;
    utofu_stadd_t           lcl;
    void                   *cb;
    int                     code;

    OK(utofu_reg_mem(shared_vcq, mem, SIZE, 0, &lcl));
    pthread_barrier_wait(&together);
    for (unsigned i = 0; i < rounds; i++) {
        traffic(shared_vcq, who, i, lcl, true);
        while ((code = utofu_poll_tcq(shared_vcq, 0, &cb)) == UTOFU_SUCCESS) {
            seen_tcq++;
        }
        if (code != UTOFU_ERR_NOT_FOUND) {
            fail("poll_tcq", code);
        }
        while ((code = utofu_poll_mrq(shared_vcq, 0, &n)) == UTOFU_SUCCESS) {
            seen_mrq += !(n.notice_type & 1);
        }
        if (code != UTOFU_ERR_NOT_FOUND) {
            fail("poll_mrq", code);
        }
    }
    while ((seen_tcq < posted_tcq) || (seen_mrq < posted_mrq)) { /* of the other thread, too */
        while (utofu_poll_tcq(shared_vcq, 0, &cb) == UTOFU_SUCCESS) {
            seen_tcq++;
        }
        while (utofu_poll_mrq(shared_vcq, 0, &n) == UTOFU_SUCCESS) {
            seen_mrq += !(n.notice_type & 1);
        }
        sched_yield();
    }
    OK(utofu_dereg_mem(shared_vcq, lcl, 0));
    return NULL;
}

static void drain(utofu_vcq_hdl_t hdl, uint64_t want_tcq, uint64_t want_mrq)
{
    struct utofu_mrq_notice n;
    void                   *cb;
    int                     code = UTOFU_ERR_NOT_FOUND;

    for (uint64_t tcq = 0, mrq = 0; (tcq < want_tcq) || (mrq < want_mrq);) {
        tcq += (code = utofu_poll_tcq(hdl, 0, &cb)) == UTOFU_SUCCESS;
        mrq += (utofu_poll_mrq(hdl, 0, &n) == UTOFU_SUCCESS) && !(n.notice_type & 1);
        if ((code != UTOFU_SUCCESS) && (code != UTOFU_ERR_NOT_FOUND)) {
            fail("poll_tcq of an exclusive VCQ", code);
        }
    }
}

static void *alone(void *arg) /* an exclusive VCQ of its own */
{
    unsigned        who = (unsigned)(uintptr_t)arg;
    char           *mem = memory((int)(who % KINDS));
    utofu_vcq_hdl_t hdl;
    utofu_stadd_t   lcl;

    OK(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &hdl));
    OK(utofu_reg_mem(hdl, mem, SIZE, 0, &lcl));
    pthread_barrier_wait(&together);
    for (unsigned i = 0; i < rounds; i++) {
        traffic(hdl, who, i, lcl, false);
        drain(hdl, (i % 8 == 0) ? 5 : 4, (i % 8 == 0) ? 5 : 4);
    }
    OK(utofu_free_vcq(hdl));
    return NULL;
}

static void *registering(void *arg) /* on the VCQ that others post to */
{
    char *mem[KINDS] = {memory(IN_MEMFD), memory(PRIVATE)};

    (void)arg;
    while (!over) {
        utofu_stadd_t a, b, c;
        OK(utofu_reg_mem(shared_vcq, mem[0], SIZE, 0, &a));
        OK(utofu_reg_mem(shared_vcq, mem[1], SIZE, 0, &b));
        OK(utofu_reg_mem(shared_vcq, mem[0], SIZE, 0, &c));
        if (a != c) {
            fail("the same region has two STADDs", 0);
        }
        OK(utofu_dereg_mem(shared_vcq, a, 0));
        OK(utofu_dereg_mem(shared_vcq, b, 0));
        OK(utofu_dereg_mem(shared_vcq, c, 0));
        usleep(50);
    }
    return NULL;
}

static void *creating(void *arg) /* VCQs come and go, and put while they are there */
{
    (void)arg;
    for (unsigned i = 0; !over; i++) {
        utofu_vcq_hdl_t hdl;
        OK(utofu_create_vcq((utofu_tni_id_t)(i % 6), (i & 1) ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0, &hdl));
        OK(utofu_put_piggyback8(hdl, atomic_load(&remote->id), i, remote->stadd[i / 2 % KINDS] + SIZE - 64, 8, 1,
                                UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL));
        OK(utofu_armw8(hdl, atomic_load(&remote->id), UTOFU_ARMW_OP_OR, 1, remote->stadd[IN_MEMFD] + SIZE - 56, 1,
                       UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
        drain(hdl, 1, 1);
        OK(utofu_free_vcq(hdl));
    }
    return NULL;
}

static void *asking(void *arg)
{
    (void)arg;
    while (!over) {
        utofu_tni_id_t *tnis;
        uint8_t         coords[6];
        size_t          n;
        int             major, minor;
        utofu_vcq_id_t  id;

        OK(utofu_query_num_unread_tcq(shared_vcq, &n));
        OK(utofu_query_num_unread_mrq(shared_vcq, &n));
        OK(utofu_query_vcq_id(shared_vcq, &id));
        OK(utofu_query_my_coords(coords));
        OK(utofu_get_onesided_tnis(&tnis, &n));
        free(tnis);
        utofu_query_tofu_version(&major, &minor);
        usleep(100);
    }
    return NULL;
}

static utofu_vbg_id_t gates[2][2];

static void *meeting(void *arg) /* a barrier between two threads, each with a circuit end */
{
    int me = (int)(uintptr_t)arg, code;

    for (unsigned i = 0; i < rounds; i++) {
        OK(utofu_barrier(gates[me][0], 0));
        while ((code = utofu_poll_barrier(gates[me][0], 0)) == UTOFU_ERR_NOT_COMPLETED) {
            sched_yield();
        }
        OK(code);
    }
    return NULL;
}

static bool gates_make(void)
{
    for (int m = 0; m < 2; m++) {
        int code = utofu_alloc_vbg(2, 2, UTOFU_VBG_FLAG_THREAD_SAFE, gates[m]);
        if (code == UTOFU_ERR_NOT_SUPPORTED) {
            return false;
        }
        OK(code);
    }
    for (int m = 0; m < 2; m++) {
        const utofu_vbg_id_t    *g = gates[m], *peer = gates[!m];
        struct utofu_vbg_setting s[2] = {
            {g[0], g[1], peer[1], g[1], peer[1], {UTOFU_PATH_COORD_NULL, 0, 0}},
            {g[1], g[0], peer[0], g[0], peer[0], {UTOFU_PATH_COORD_NULL, 0, 0}},
        };
        OK(utofu_set_vbg(s, 2));
    }
    return true;
}

int main(int argc, char **argv)
{
    pthread_t       t[8];
    utofu_vcq_hdl_t mine;
    bool            barrier;
    pid_t           pid;
    int             status, n = 0;

    if (argc > 1) {
        rounds = (unsigned)atoi(argv[1]);
    }
    alarm(80);
    remote = mmap(NULL, sizeof(*remote), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid    = fork(); /* before there is a thread */
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return other_process();
    }
    while (atomic_load(&remote->id) == 0) {
        usleep(1000);
    }
    target_make(&here, 0, &mine);
    OK(utofu_create_vcq(0, UTOFU_VCQ_FLAG_THREAD_SAFE, &shared_vcq));
    barrier = gates_make();
    pthread_barrier_init(&together, NULL, 4);

    pthread_create(&t[n++], NULL, sharing, (void *)0);
    pthread_create(&t[n++], NULL, sharing, (void *)1);
    pthread_create(&t[n++], NULL, alone, (void *)2);
    pthread_create(&t[n++], NULL, alone, (void *)3);
    if (barrier) {
        pthread_create(&t[n++], NULL, meeting, (void *)0);
        pthread_create(&t[n++], NULL, meeting, (void *)1);
    }
    pthread_t helper[3];
    pthread_create(&helper[0], NULL, registering, NULL);
    pthread_create(&helper[1], NULL, creating, NULL);
    pthread_create(&helper[2], NULL, asking, NULL);
    for (int i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
    }
    over = true;
    for (int i = 0; i < 3; i++) {
        pthread_join(helper[i], NULL);
    }
    for (int m = 0; barrier && (m < 2); m++) {
        OK(utofu_free_vbg(gates[m], 2));
    }
    atomic_store(&remote->stop, 1);
    if ((waitpid(pid, &status, 0) != pid) || (status != 0)) {
        fail("the other process", status);
    }
    OK(utofu_free_vcq(shared_vcq));
    OK(utofu_free_vcq(mine));
    if (remote->stadd[0] != adds) {
        fprintf(stderr, "fuzz_threads: %llu of %llu additions\n", (unsigned long long)remote->stadd[0],
                (unsigned long long)adds);
        return 4;
    }
    printf("posted %llu additions %llu barrier %d\n", (unsigned long long)posted_tcq, (unsigned long long)adds,
            barrier);
    return 0;
}
