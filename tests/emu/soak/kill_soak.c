/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kill_soak.c - processes that talk to each other are killed at any point of any
 * operation, and replaced; every operation of the others must end within seconds.
 *
 *     kill_soak SECONDS SEED
 *
 * Prints "ops OPS kills KILLS errors ERRORS" and exits 0; 1 when a survivor hung,
 * crashed or saw a code that is not one of the guide's.
 */
#include <utofu.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS    6
#define MEM_SIZE   (64 * 1024)
#define OP_TIMEOUT 8.0 /* seconds; the machine may be busy */

struct slot {
    _Atomic uint64_t version; /* odd while it is written */
    utofu_vcq_id_t   id;
    utofu_stadd_t    stadd[2]; /* shared and private memory */
    utofu_vcq_id_t   session;  /* a VCQ in session mode ... */
    utofu_stadd_t    session_stadd; /* ... and shared memory registered with it */
    utofu_vbg_id_t   gates[2]; /* a circuit of two with the neighbour */
    _Atomic uint64_t ops, errors;
};

static struct slot *table;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t rng(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

#define WORKER_CHECK(cond, ...) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "worker %d: ", index); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            _exit(1); \
        } \
    } while (0)

/* What has come, of the session-mode VCQ, which others make work */
static void session_drain(int index, utofu_vcq_hdl_t vcq)
{
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    int                     rc;

    for (int i = 0; i < 8; i++) {
        rc = utofu_poll_tcq(vcq, 0, &cbdata);
        WORKER_CHECK((rc == UTOFU_SUCCESS) || (rc == UTOFU_ERR_NOT_FOUND) ||
                             ((rc <= UTOFU_ERR_TCQ_OTHER) && (rc >= UTOFU_ERR_TCQ_LENGTH)),
                     "TCQ of the session: %d", rc);
        rc = utofu_poll_mrq(vcq, 0, &notice);
        WORKER_CHECK((rc == UTOFU_SUCCESS) || (rc == UTOFU_ERR_NOT_FOUND) ||
                             ((rc <= UTOFU_ERR_MRQ_OTHER) && (rc >= UTOFU_ERR_MRQ_RMT_LENGTH)),
                     "MRQ of the session: %d", rc);
    }
}

/* A barrier with the neighbour, which may be gone, new, or in the middle of one */
static void barrier_step(int index, const struct slot *me, const struct slot *other)
{
    struct utofu_vbg_setting set[2] = {
        {me->gates[0], me->gates[1], UTOFU_VBG_ID_NULL, me->gates[1], other->gates[1], {UTOFU_PATH_COORD_NULL, 0, 0}},
        {me->gates[1], me->gates[0], other->gates[0], me->gates[0], UTOFU_VBG_ID_NULL, {UTOFU_PATH_COORD_NULL, 0, 0}}};
    static utofu_vbg_id_t known;
    uint64_t              sum = 1;
    int                   rc;

    if (known != other->gates[0]) {
        known = other->gates[0];
        rc    = utofu_set_vbg(set, 2);
        WORKER_CHECK(rc == UTOFU_SUCCESS, "utofu_set_vbg: %d", rc);
    }
    rc = utofu_reduce_uint64(me->gates[0], UTOFU_REDUCE_OP_SUM, &sum, 1, 0);
    WORKER_CHECK((rc == UTOFU_SUCCESS) || (rc == UTOFU_ERR_BUSY), "utofu_reduce_uint64: %d", rc);
    rc = utofu_poll_reduce_uint64(me->gates[0], 0, &sum);
    WORKER_CHECK((rc == UTOFU_ERR_NOT_COMPLETED) || (rc == UTOFU_ERR_BARRIER_MISMATCH) ||
                         ((rc == UTOFU_SUCCESS) && (sum == 2)),
                 "utofu_poll_reduce_uint64: %d, sum %llu", rc, (unsigned long long)sum);
}

static void worker(int index, uint64_t seed)
{
    utofu_vcq_hdl_t         vcq, session;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           lcl;
    char                   *mem[2], *buf;
    int                     fd, rc;

    fd     = memfd_create("soak", MFD_CLOEXEC);
    mem[1] = malloc(MEM_SIZE + 64);
    buf    = malloc(MEM_SIZE);
    WORKER_CHECK((fd >= 0) && (ftruncate(fd, MEM_SIZE) == 0) && (mem[1] != NULL) && (buf != NULL), "memory");
    mem[0] = mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(buf, index, MEM_SIZE);
    rc = utofu_create_vcq(0, 0, &vcq);
    WORKER_CHECK(rc == UTOFU_SUCCESS, "utofu_create_vcq: %d", rc);
    struct slot *me = &table[index];
    atomic_fetch_add(&me->version, me->version & 1 ? 2 : 1);
    utofu_query_vcq_id(vcq, &me->id);
    for (int k = 0; k < 2; k++) {
        rc = utofu_reg_mem(vcq, mem[k], MEM_SIZE, 0, &me->stadd[k]);
        WORKER_CHECK(rc == UTOFU_SUCCESS, "utofu_reg_mem: %d", rc);
    }
    rc = utofu_create_vcq(1, UTOFU_VCQ_FLAG_SESSION_MODE, &session);
    WORKER_CHECK(rc == UTOFU_SUCCESS, "utofu_create_vcq: %d", rc);
    utofu_query_vcq_id(session, &me->session);
    rc = utofu_reg_mem(session, mem[0], MEM_SIZE, 0, &me->session_stadd);
    WORKER_CHECK(rc == UTOFU_SUCCESS, "utofu_reg_mem: %d", rc);
    rc = utofu_alloc_vbg(2, 2, 0, me->gates);
    WORKER_CHECK(rc == UTOFU_SUCCESS, "utofu_alloc_vbg: %d", rc);
    rc = utofu_reg_mem(vcq, buf, MEM_SIZE, 0, &lcl);
    WORKER_CHECK(rc == UTOFU_SUCCESS, "utofu_reg_mem: %d", rc);
    atomic_fetch_add(&me->version, 1);

    for (;;) {
        struct slot   peer, *p = &table[rng(&seed) % WORKERS];
        uint64_t      version = atomic_load(&p->version), off, len;
        unsigned long flags   = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
        double        end;
        void         *cbdata;
        int           kind = (int)(rng(&seed) & 1), what = (int)(rng(&seed) % 12);

        memcpy(&peer, p, sizeof(peer));
        if ((version & 1) || (version == 0) || (atomic_load(&p->version) != version)) {
            continue;
        }
        off = rng(&seed) % (MEM_SIZE / 2) & ~7ull;
        len = rng(&seed) % ((rng(&seed) & 1) ? 64 : MEM_SIZE / 2);
        flags |= (rng(&seed) & 1) ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0;
        flags |= (rng(&seed) & 1) ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0;
        if (what == 11) {
            p       = &table[index ^ 1];
            version = atomic_load(&p->version);
            memcpy(&peer, p, sizeof(peer));
            if (!(version & 1) && (version != 0) && (atomic_load(&p->version) == version)) {
                barrier_step(index, me, &peer);
            }
            continue;
        }
        if (what >= 8) {
            /* something for others to start, then start something of the peer's */
            rc = utofu_put(session, peer.id, me->session_stadd + off, peer.stadd[kind] + off, len, 5,
                           flags | UTOFU_ONESIDED_FLAG_SPS(1), &seed);
            WORKER_CHECK((rc == UTOFU_SUCCESS) || (rc == UTOFU_ERR_BUSY), "post to the session: %d", rc);
            session_drain(index, session);
            rc = utofu_put(vcq, peer.session, lcl + off, peer.session_stadd + off, len, 6,
                           flags | UTOFU_ONESIDED_FLAG_SPS(1 + what % 3), &seed);
        } else if (what < 4) {
            rc = utofu_put(vcq, peer.id, lcl + off, peer.stadd[kind] + off, len, 1, flags, &seed);
        } else if (what < 6) {
            rc = utofu_get(vcq, peer.id, lcl + off, peer.stadd[kind] + off, len, 2, flags, &seed);
        } else if (what < 7) {
            rc = utofu_put_piggyback8(vcq, peer.id, len, peer.stadd[kind] + off, 8, 3, flags, &seed);
        } else {
            rc = utofu_armw8(vcq, peer.id, UTOFU_ARMW_OP_ADD, 1, peer.stadd[kind] + off, 4, flags, &seed);
        }
        WORKER_CHECK(rc == UTOFU_SUCCESS, "post %d: %d", what, rc);
        end = now() + OP_TIMEOUT;
        while ((rc = utofu_poll_tcq(vcq, 0, &cbdata)) == UTOFU_ERR_NOT_FOUND) {
            WORKER_CHECK(now() < end, "no TCQ entry for operation %d", what);
        }
        WORKER_CHECK((rc == UTOFU_SUCCESS) && (cbdata == &seed), "TCQ: %d", rc);
        /* the local notice, and whatever others sent meanwhile: who leaves that has an overflow some day */
        for (int local = UTOFU_ERR_NOT_FOUND, got = 0; (local == UTOFU_ERR_NOT_FOUND) || (got != UTOFU_ERR_NOT_FOUND);
             rc = local) {
            got = utofu_poll_mrq(vcq, 0, &notice);
            WORKER_CHECK(now() < end, "no local notice for operation %d", what);
            if ((got != UTOFU_ERR_NOT_FOUND) && !(notice.notice_type & 1)) {
                local = got;
            }
        }
        WORKER_CHECK((rc == UTOFU_SUCCESS) || ((rc <= UTOFU_ERR_MRQ_OTHER) && (rc >= UTOFU_ERR_MRQ_RMT_LENGTH)),
                     "MRQ of operation %d: %d", what, rc);
        atomic_fetch_add(&me->ops, 1);
        atomic_fetch_add(&me->errors, rc != UTOFU_SUCCESS);
    }
}

int main(int argc, char **argv)
{
    double   end;
    pid_t    pid[WORKERS];
    uint64_t seed, kills = 0, ops = 0, errors = 0;
    int      status, failed = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: %s SECONDS SEED\n", argv[0]);
        return 2;
    }
    end   = now() + atof(argv[1]);
    seed  = strtoull(argv[2], NULL, 0) * 2654435769u + 88172645463325252ull;
    table = mmap(NULL, sizeof(*table) * WORKERS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < WORKERS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            worker(i, rng(&seed) ^ (uint64_t)i);
        }
    }
    while ((now() < end) && !failed) {
        int             i  = (int)(rng(&seed) % WORKERS);
        struct timespec ts = {0, (long)(rng(&seed) % 6000000)};

        nanosleep(&ts, NULL);
        if (rng(&seed) % 4 == 0) { /* a pause, so that it dies in the middle of something of others */
            kill(pid[i], SIGSTOP);
            ts.tv_nsec = 3000000;
            nanosleep(&ts, NULL);
        }
        kill(pid[i], SIGKILL);
        kills++;
        waitpid(pid[i], &status, 0);
        failed = !WIFSIGNALED(status) || (WTERMSIG(status) != SIGKILL);
        rng(&seed);
        pid[i] = fork();
        if (pid[i] == 0) {
            worker(i, rng(&seed) ^ kills);
        }
    }
    /* survivors must still be at work, not stuck */
    if (!failed) {
        uint64_t before[WORKERS];
        for (int i = 0; i < WORKERS; i++) {
            before[i] = atomic_load(&table[i].ops);
        }
        sleep(3);
        for (int i = 0; i < WORKERS; i++) {
            if (atomic_load(&table[i].ops) == before[i]) {
                fprintf(stderr, "worker %d does nothing any more\n", i);
                failed = 1;
            }
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], &status, 0);
        if (!WIFSIGNALED(status) || (WTERMSIG(status) != SIGKILL)) {
            fprintf(stderr, "worker %d ended by itself: %#x\n", i, status);
            failed = 1;
        }
        ops += atomic_load(&table[i].ops);
        errors += atomic_load(&table[i].errors);
    }
    printf("ops %llu kills %llu errors %llu\n", (unsigned long long)ops, (unsigned long long)kills,
           (unsigned long long)errors);
    return failed;
}
