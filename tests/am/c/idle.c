/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * idle.c - what progress costs when AM_PEERS peers, which once were sent a message
 * (AM_BACK of them sent one, too), are idle: instructions, counted one by one by a tracer.  Once
 * with the library, once with a utofu_poll_mrq that finds nothing at no cost, so
 * that what the core does itself is seen.
 *
 * The peers are ifaces of other processes, 426 of each, which is what a node of
 * six TNIs has VCQs for, less one md per TNI.
 */
#include "am_test.h"

#include <tofu_internal.h> /* the functions that an iface calls */
#include <tofu_am.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define TNIS      6
#define TNI_VCQS  72
#define PER_RANK  (TNIS * (TNI_VCQS - 1))
#define MAX_PEERS 10224
#define CALLS     192   /* 3 looks at the clock */
#define MAX_STEPS 100000

struct board {
    uint8_t          address[MAX_PEERS][BLOB];
    _Atomic unsigned ready, sent, received, over;
    _Atomic unsigned stage; /* of what is measured: 1 begun, 2 ended */
    _Atomic unsigned steps, attached;
    _Atomic int      error;
};

static struct board *board;
static unsigned     peers, back;

/* ------------------------------------------------------------------ clock */

/* The core's clock: the real one, or one that goes on by `clock_step` ms whenever
 * it is looked at, so that how many ticks fall into a measurement is known. */
static int      clock_fake;
static uint64_t clock_ms, clock_step;

int clock_gettime(clockid_t id, struct timespec *t)
{
    if (!clock_fake) {
        return (int)syscall(SYS_clock_gettime, id, t);
    }
    clock_ms  += clock_step;
    t->tv_sec  = (time_t)(clock_ms / 1000);
    t->tv_nsec = (long)(clock_ms % 1000) * 1000000;
    return 0;
}

/* ----------------------------------------------------------------- tracer */

/* Counts the instructions of process `pid` in stage 1. */
static void trace(pid_t pid)
{
    unsigned steps = 0;
    int      status;

    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0) {
        atomic_store(&board->error, 1);
        _exit(0);
    }
    if ((ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0) ||
        (waitpid(pid, &status, __WALL) != pid)) {
        atomic_store(&board->error, 1);
        _exit(0);
    }
    atomic_store(&board->attached, 1);
    while (atomic_load(&board->stage) < 2) {
        if ((ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0) ||
            (waitpid(pid, &status, __WALL) != pid) || !WIFSTOPPED(status)) {
            _exit(1);
        }
        steps += atomic_load(&board->stage) == 1;
        if (steps >= MAX_STEPS) {
            break; /* let it run: this is more than any bound */
        }
    }
    atomic_store(&board->steps, steps);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    _exit(0);
}

static int poll_nothing(utofu_vcq_hdl_t vcq, unsigned long flags,
                        struct utofu_mrq_notice *notice)
{
    (void)vcq;
    (void)flags;
    (void)notice;
    return UTOFU_ERR_NOT_FOUND;
}

/* Instructions of CALLS calls that find nothing, while the clock goes on by step_ms
 * with every look at it; -1: no tracing here. */
static long measure(struct ctx *ctx, unsigned step_ms, int (*poll)(
        utofu_vcq_hdl_t, unsigned long, struct utofu_mrq_notice *))
{
    int (*poll_before)(utofu_vcq_hdl_t, unsigned long,
                       struct utofu_mrq_notice *) = ctx->iface->fn.poll_mrq;
    pid_t    me = getpid(), tracer;
    unsigned i, found = 0;
    int      status;

    atomic_store(&board->stage, 0);
    atomic_store(&board->attached, 0);
    tracer = fork();
    CHECK(tracer >= 0);
    if (tracer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        trace(me);
    }
    prctl(PR_SET_PTRACER, tracer, 0, 0, 0);
    while (!atomic_load(&board->attached)) {
        if (atomic_load(&board->error)) {
            waitpid(tracer, &status, 0);
            return -1;
        }
    }
    if (poll != NULL) {
        ctx->iface->fn.poll_mrq = poll;
    }
    clock_fake = 1;
    clock_step = 0;
    for (i = 0; i < 192; ++i) { /* the tick that the time till now makes due */
        tofu_iface_progress(ctx->iface);
    }
    ctx->iface->calls = 0;
    clock_step        = step_ms;
    atomic_store(&board->stage, 1);
    for (i = 0; i < CALLS; ++i) {
        found += tofu_iface_progress(ctx->iface);
    }
    atomic_store(&board->stage, 2);
    clock_fake              = 0;
    ctx->iface->fn.poll_mrq = poll_before;
    CHECK_EQ(waitpid(tracer, &status, 0), tracer);
    CHECK_EQ(status, 0);
    CHECK_EQ(found, 0);
    return (long)atomic_load(&board->steps);
}

/* --------------------------------------------------------------- messages */

static unsigned seen;

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    (void)data;
    (void)length;
    (void)flags;
    ++seen;
    if (arg != NULL) {
        ++*(unsigned *)arg;
    }
    return TOFU_OK;
}

static void open_config(tofu_iface_config_t *config)
{
    tofu_iface_config_default(config);
    config->am_seg_size = 64;
}

static void hub(struct ctx *ctx)
{
    tofu_iface_config_t config;
    tofu_ep_t           **ep = calloc(peers, sizeof(*ep));
    char                *taken = calloc(peers, 1);
    double              end, quiet;
    unsigned            i;
    long                core, ticks, whole;

    open_config(&config);
    config.rx_slots       = 32768; /* for 2,048 peers that keep what they have */
    config.rx_short_slots = 65536;
    config.tx_notified    = 1024;
    CHECK_OK(tofu_md_open(core_backend(), NULL, &ctx->md));
    CHECK_OK(tofu_iface_open(ctx->md, &config, &ctx->iface));
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    tofu_iface_get_address(ctx->iface, ctx->shared->rank[0].address);
    atomic_store(&ctx->shared->word[0], 1);
    WAIT_FOR(ctx, 100, atomic_load(&board->ready) == peers);
    for (i = 0; i < peers; ++i) {
        CHECK_OK(tofu_ep_create(ctx->iface, board->address[i], 0, &ep[i]));
    }
    /* ask all for credit, then send as it comes */
    for (i = 0; i < peers; ++i) {
        /* it may be taken before there is credit */
        taken[i] = tofu_ep_am_short(ep[i], 1, i, NULL, 0) == TOFU_OK;
        core_idle(ctx->iface);
    }
    for (i = 0; i < peers; ++i) {
        WAIT_FOR(ctx, 100, taken[i] ||
                                   (tofu_ep_am_short(ep[i], 1, i, NULL, 0) ==
                                    TOFU_OK));
    }
    WAIT_FOR(ctx, 100, (seen == back) &&
                               (atomic_load(&board->received) == peers));
    /* all is told that there is to tell */
    end   = core_now() + 60;
    quiet = core_now() + 0.3;
    while (core_now() < quiet) {
        if (tofu_iface_progress(ctx->iface) > 0) {
            CHECK(core_now() < end);
            quiet = core_now() + 0.3;
        }
    }
    /* who has nothing to say gives its slots back, and nobody looks at who was
     * silent for long */
    for (i = 0; i < peers; ++i) {
        WAIT_FOR(ctx, 100, ep[i]->chan->state == TOFU_CHAN_IDLE);
    }
    atomic_store(&board->over, 1);
    for (i = 0; i < 400000; ++i) {
        tofu_iface_progress(ctx->iface);
    }
    clock_ms = (uint64_t)(core_now() * 1000);
    core     = measure(ctx, 0, poll_nothing);
    if (core < 0) {
        printf("no tracing\n");
    } else {
        ticks = measure(ctx, 10, poll_nothing);
        whole = measure(ctx, 0, NULL);
        printf("%u peers, %u calls: core %ld, ticks %ld, whole %ld\n", peers,
               CALLS, core, ticks, whole);
        CHECK(core > CALLS);
        CHECK(ticks > core);
        CHECK(whole > core);
    }
    CHECK_EQ(ctx->ep_errors, 0);
    for (i = 0; i < peers; ++i) {
        tofu_ep_destroy(ep[i]);
    }
    free(ep);
    free(taken);
    atomic_store(&board->over, 2);
    tofu_iface_close(ctx->iface);
    tofu_md_close(ctx->md);
}

/* Take all VCQs of the node's TNI: no CQ is left for an exclusive VCQ, so that an
 * iface has a place wherever one of these is freed. */
static void take_vcqs(unsigned tni, utofu_vcq_hdl_t *vcq)
{
    const struct tofu_functions *fn = &core_backend()->fn;
    utofu_tni_id_t              *tnis;
    size_t                      n;
    unsigned                    i;

    CHECK_EQ(fn->get_onesided_tnis(&tnis, &n), 0);
    for (i = 0; i < TNI_VCQS; ++i) {
        CHECK_EQ(fn->create_vcq(tnis[tni], UTOFU_VCQ_FLAG_THREAD_SAFE, &vcq[i]),
                 0);
    }
    free(tnis);
}

static void spoke(struct ctx *ctx)
{
    static tofu_iface_t *iface[PER_RANK];
    static tofu_ep_t    *ep[PER_RANK];
    static unsigned     got[PER_RANK], sent[PER_RANK];
    utofu_vcq_hdl_t     vcq[TNIS][TNI_VCQS];
    tofu_md_t           *md[TNIS];
    tofu_iface_config_t config;
    tofu_md_config_t    md_config;
    unsigned            first = (unsigned)(ctx->rank - 1) * PER_RANK;
    unsigned            n = peers - first, i, done = 0;

    if (first >= peers) {
        return;
    }
    n = (n > PER_RANK) ? PER_RANK : n;
    while (!atomic_load(&ctx->shared->word[0])) {
        core_usleep(1000);
    }
    open_config(&config);
    config.rx_slots       = 2;
    config.rx_short_slots = 2;
    config.tx_bounce      = 1;
    config.tx_notified    = 4;
    for (i = 0; i < TNIS; ++i) {
        take_vcqs(i, vcq[i]);
        CHECK_EQ(core_backend()->fn.free_vcq(vcq[i][0]), 0);
        tofu_md_config_default(&md_config);
        md_config.tni         = i;
        md_config.arena_chunk = 1 << 20;
        CHECK_OK(tofu_md_open(core_backend(), &md_config, &md[i]));
    }
    for (i = 0; i < n; ++i) {
        CHECK_EQ(core_backend()->fn.free_vcq(vcq[i % TNIS][1 + i / TNIS]), 0);
        CHECK_OK(tofu_iface_open(md[i % TNIS], &config, &iface[i]));
        CHECK_OK(tofu_iface_set_am_handler(iface[i], 1, on_message, &got[i]));
        tofu_iface_get_address(iface[i], board->address[first + i]);
        CHECK_OK(tofu_ep_create(iface[i], ctx->shared->rank[0].address, 0,
                                &ep[i]));
        atomic_fetch_add(&board->ready, 1);
    }
    while (done < n) {
        unsigned events = 0;

        for (i = 0, done = 0; i < n; ++i) {
            events += tofu_iface_progress(iface[i]);
            if (first + i >= back) {
                sent[i] = 1;
            }
            if (!sent[i]) {
                sent[i] = tofu_ep_am_short(ep[i], 1, i, NULL, 0) == TOFU_OK;
            }
            if (got[i] == 1) {
                got[i] = 2;
                atomic_fetch_add(&board->received, 1);
            }
            done += sent[i] && (got[i] == 2);
        }
        if (events == 0) {
            core_usleep(100);
        }
    }
    /* slots that they are asked for they give back */
    while (!atomic_load(&board->over)) {
        for (i = 0; i < n; ++i) {
            tofu_iface_progress(iface[i]);
        }
        core_usleep(500);
    }
    while (atomic_load(&board->over) < 2) {
        core_usleep(5000);
    }
    _exit(0); /* the idle peers need no closing */
}

static void idle(struct ctx *ctx)
{
    if (ctx->rank == 0) {
        hub(ctx);
    } else {
        spoke(ctx);
    }
}

int main(int argc, char **argv)
{
    static struct test_case cases[] = {{"idle", 25, 400, idle, 0}};

    peers = am_setting("AM_PEERS", 1);
    peers = (peers > MAX_PEERS) ? MAX_PEERS : peers;
    back  = am_setting("AM_BACK", peers);
    back  = (back > peers) ? peers : back;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    return core_main(argc, argv, cases, 1);
}
