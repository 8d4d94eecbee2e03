/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_carrier_step.c - session mode when who brings a Put is killed after any number of
 * instructions in its call: what was started is carried out once, while the relays sleep.
 * In its first such call a carrier maps what it needs, some 300,000 instructions; there it is
 * killed after some time instead.
 *
 *   rank 0: for each round a child, which is the carrier
 *   rank 1: a relay to rank 2, with an SPS
 *   rank 2: a relay to rank 3
 *   rank 3: receives
 */
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define SESSION UTOFU_VCQ_FLAG_SESSION_MODE
#define ALL     (CONF_TCQ | CONF_LMRQ | CONF_RMRQ)
#define START   UTOFU_ONESIDED_FLAG_SPS(1)

enum { ROUNDS = 100, STEPS = 3300, MICROSECONDS = 2000, BYTES = 256, EDATA_CARRIER = 200 };

struct place { /* what each rank tells the others */
    utofu_vcq_id_t id;
    utofu_stadd_t  stadd;
};

static void carrier(const struct place *place, bool warm)
{
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   lcl;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    conf_vcq_create(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, BYTES);
    lcl = conf_reg(&vcq, mem.addr, BYTES, 0);
    if (warm) {
        CONF_OK(utofu_put(vcq.hdl, place[1].id, lcl, place[1].stadd, 8, EDATA_CARRIER - 1, CONF_LMRQ | START, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, place[1].id, EDATA_CARRIER - 1, NULL);
    }
    raise(SIGTRAP);
    utofu_put(vcq.hdl, place[1].id, lcl, place[1].stadd, 8, EDATA_CARRIER, CONF_RMRQ | START, NULL);
    raise(SIGTRAP);
    _exit(0);
}

/* Let it run from its first SIGTRAP on, then kill it: after so many instructions, if it has made
 * such a call before, or after so many microseconds. */
static void run_carrier(const struct place *place, bool warm, unsigned number)
{
    pid_t  child = fork();
    double end;
    int    status;

    CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        carrier(place, warm);
    }
    CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CONF_CHECK(WIFSTOPPED(status) && (WSTOPSIG(status) == SIGTRAP), "the carrier: status 0x%x", status);
    for (unsigned i = 0; warm && (i < number % STEPS); i++) {
        CONF_CHECK(!ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), "PTRACE_SINGLESTEP: %s", strerror(errno));
        CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
        if (!WIFSTOPPED(status)) {
            return;
        }
        CONF_CHECK(WSTOPSIG(status) == SIGTRAP, "the carrier: status 0x%x", status);
    }
    if (!warm) {
        end = conf_now() + (number % MICROSECONDS) * 1e-6;
        CONF_CHECK(!ptrace(PTRACE_CONT, child, NULL, NULL), "PTRACE_CONT: %s", strerror(errno));
        while (conf_now() < end) {
        }
    }
    kill(child, SIGKILL);
    do { /* it may have got to its second SIGTRAP before */
        CONF_CHECK(waitpid(child, &status, __WALL) == child, "waitpid");
    } while (WIFSTOPPED(status));
}

static bool may_trace(void)
{
    pid_t child = fork();
    int   status;
    bool  ok;

    if (child == 0) {
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? 1 : 0);
    }
    ok = (child > 0) && (waitpid(child, &status, 0) == child) && WIFEXITED(status) && (WEXITSTATUS(status) == 0);
    return ok;
}

/* What came: notices of each kind of one rank in a round */
struct came {
    unsigned remote, local, tcq, other, warm_remote, warm_local;
};

static void read_all(const struct conf_vcq *vcq, struct came *c, double seconds, unsigned enough)
{
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    double                  end   = conf_now() + seconds;
    unsigned                spins = 0;
    int                     code;

    do {
        code = utofu_poll_mrq(vcq->hdl, 0, &notice);
        if (code != UTOFU_ERR_NOT_FOUND) {
            CONF_CHECK(code == UTOFU_SUCCESS, "utofu_poll_mrq: %d", code);
            if (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT) {
                c->remote += notice.edata != 1;
                c->warm_remote += notice.edata == 1;
            } else {
                c->local += notice.edata != 1;
                c->warm_local += notice.edata == 1;
            }
        }
        code = utofu_poll_tcq(vcq->hdl, 0, &cbdata);
        if (code != UTOFU_ERR_NOT_FOUND) {
            CONF_CHECK((code == UTOFU_SUCCESS) || (code == UTOFU_ERR_TCQ_OTHER), "utofu_poll_tcq: %d", code);
            c->tcq += code == UTOFU_SUCCESS;
            c->other += code == UTOFU_ERR_TCQ_OTHER;
        }
        conf_relax(&spins);
    } while ((conf_now() < end) && ((enough == 0) || (c->remote < enough)));
}

/* Returns how many operations were given up: who died between giving credit and saying so. */
static unsigned round_of(unsigned number, unsigned when)
{
    struct place    place[4], mine = {0, 0};
    struct conf_vcq vcq = {0};
    struct conf_mem mem = {0};
    struct came     came[4], c = {0};
    bool            warm = number % 2, started, all[4];
    size_t          unread = 0;

    if (conf_rank != 0) {
        conf_vcq_create(&vcq, 0, (conf_rank == 3) ? 0 : SESSION);
        conf_mem_alloc(&mem, CONF_MEM_MEMFD, BYTES);
        conf_fill(mem.addr, BYTES, number + (unsigned)conf_rank);
        mine = (struct place){vcq.id, conf_reg(&vcq, mem.addr, BYTES, 0)};
    }
    conf_exchange(&mine, sizeof(mine), place);
    if ((conf_rank == 1) || (conf_rank == 2)) {
        unsigned long sps = (conf_rank == 1) ? START : 0;

        for (uint64_t edata = warm ? 1 : 2; edata <= 2; edata++) {
            CONF_OK(utofu_put(vcq.hdl, place[conf_rank + 1].id, mine.stadd, place[conf_rank + 1].stadd, BYTES, edata,
                              ALL | sps, CONF_PTR(edata)));
        }
    }
    conf_barrier();
    if (conf_rank == 0) {
        run_carrier(place, warm, when);
    }
    conf_barrier();
    /* the carrier is dead: who has its notice, which reading a number does not change? */
    if (conf_rank == 1) {
        CONF_OK(utofu_query_num_unread_mrq(vcq.hdl, &unread));
    }
    started = unread > (warm ? 1 : 0);
    conf_exchange(&started, sizeof(started), all);
    if (conf_rank == 3) {
        read_all(&vcq, &c, all[1] ? CONF_WAIT : 0.01, 1); /* the others sleep */
        read_all(&vcq, &c, 0.002, 0);
    }
    conf_barrier();
    if ((conf_rank == 1) || (conf_rank == 2)) {
        read_all(&vcq, &c, 0.002, 0);
    }
    conf_barrier(); /* what they went on with themselves has come */
    if (conf_rank == 3) {
        read_all(&vcq, &c, 0.002, 0);
    }
    conf_exchange(&c, sizeof(c), came);
    for (int i = 1; i < 4; i++) {
        CONF_CHECK((came[i].remote <= 1) && (came[i].local <= 1) && (came[i].tcq + came[i].other <= 2u + warm),
                   "round %u, at %u: rank %d has %u remote notices, %u local ones, %u + %u in the TCQ", number, when,
                   i, came[i].remote, came[i].local, came[i].tcq, came[i].other);
    }
    if (came[1].other + came[2].other == 0) {
        CONF_CHECK((came[1].remote == 0) || ((came[1].local == 1) && (came[2].remote == 1) && (came[2].local == 1) &&
                                             (came[3].remote == 1)),
                   "round %u, at %u: it had the notice, %u %u; then %u %u; then %u", number, when, came[1].remote,
                   came[1].local, came[2].remote, came[2].local, came[3].remote);
        CONF_CHECK((came[1].local == came[2].remote) && (came[2].remote == came[2].local) &&
                   (came[2].local == came[3].remote) && (came[1].tcq == came[1].local + came[1].warm_local),
                   "round %u, at %u: rank 1 %u local, %u TCQ; rank 2 %u remote, %u local; rank 3 %u", number, when,
                   came[1].local, came[1].tcq, came[2].remote, came[2].local, came[3].remote);
    }
    if ((conf_rank == 3) && (c.remote == 1) && (came[1].other + came[2].other == 0)) {
        unsigned char expected[BYTES];

        conf_fill(expected, BYTES, number + 1);
        CONF_CHECK(!memcmp(mem.addr + 8, expected + 8, BYTES - 8), "round %u, at %u: what was relayed", number, when);
    }
    if (conf_rank != 0) {
        conf_dereg(&vcq, mine.stadd);
        CONF_OK(utofu_free_vcq(vcq.hdl));
        conf_mem_free(&mem);
    }
    return came[1].other + came[2].other;
}

CONF_TEST("carrier", carrier_dies_at_any_instruction, 4,
          "who brings a Put is killed at any instruction of its call: what it started goes on, once, and if its "
          "notice came all of it")
{
    const char *seed  = getenv("EMU_SEED"), *rounds = getenv("EMU_ROUNDS");
    unsigned    state = (seed == NULL) ? 1 : (unsigned)atoi(seed), num = (rounds == NULL) ? ROUNDS : (unsigned)atoi(rounds);
    unsigned    given_up = 0;

    if (!may_trace()) {
        conf_skip("no ptrace here");
    }
    conf_timeout(60 + num);
    for (unsigned i = 0; i < num; i++) {
        state = state * 1103515245u + 12345u;
        given_up += round_of(i, state >> 8);
    }
    CONF_CHECK(given_up <= 1 + num / 50, "%u operations given up in %u rounds", given_up, num);
}
