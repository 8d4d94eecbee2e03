/* SPDX-License-Identifier: BSD-3-Clause */
#include "core_test.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int this_rank = -1;

void core_fail(const char *file, int line, const char *fmt, ...)
{
    char    text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "rank %d: %s:%d: %s\n", this_rank, file, line, text);
    fflush(stderr);
    _exit(1);
}

double core_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void core_usleep(unsigned us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};

    while ((nanosleep(&t, &t) != 0) && (errno == EINTR)) {
    }
}

int core_stopped(pid_t pid)
{
    char path[64], text[256] = "", *state;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    CHECK(f != NULL);
    CHECK(fgets(text, sizeof(text), f) != NULL);
    fclose(f);
    state = strrchr(text, ')'); /* before it stands the name */
    return (state != NULL) && (state[2] == 'T');
}

const struct tofu_backend *core_backend(void)
{
    const struct tofu_backend *backend;
    char                      err[2048];

    if (tofu_backend_load(NULL, &backend, err, sizeof(err)) != 0) {
        FAIL("no backend: %s", err);
    }
    return backend;
}

static void on_ep_error(void *arg, tofu_ep_t *ep, tofu_status_t status)
{
    struct ctx *ctx = arg;

    ++ctx->ep_errors;
    ctx->failed_ep     = ep;
    ctx->failed_status = status;
}

int core_early;

void core_open(struct ctx *ctx, const tofu_iface_config_t *config, size_t window)
{
    const char          *shared = getenv("CORE_MAX_VCQS");
    tofu_iface_config_t c;
    tofu_md_config_t    md_config;
    tofu_md_attr_t      md_attr;
    tofu_iface_attr_t   attr;
    char                reason[256];
    int                 r;

    if (config != NULL) {
        c = *config;
    } else {
        tofu_iface_config_default(&c);
    }
    c.err_cb         = on_ep_error;
    c.err_arg        = ctx;
    c.early_complete = core_early;
    tofu_md_config_default(&md_config);
    if (shared != NULL) { /* ifaces that may have so many VCQs of their own */
        md_config.max_vcqs = (unsigned)atoi(shared);
    }
    CHECK_OK(tofu_md_open(core_backend(), &md_config, &ctx->md));
    CHECK_OK(tofu_iface_open(ctx->md, &c, &ctx->iface));
    tofu_md_query(ctx->md, &md_attr);
    tofu_iface_query(ctx->iface, &attr);
    CHECK(attr.iface_addr_len <= BLOB);
    CHECK(attr.device_addr_len <= BLOB);
    CHECK(md_attr.rkey_packed_size <= BLOB);
    CHECK(attr.max_notices <= attr.mrq_entries);
    tofu_iface_get_address(ctx->iface, ctx->shared->rank[ctx->rank].address);
    tofu_iface_get_device_address(ctx->iface,
                                  ctx->shared->rank[ctx->rank].device);
    ctx->shared->rank[ctx->rank].pid = getpid();
    if (window > 0) {
        void *address;
        ctx->window_size = window;
        CHECK_OK(tofu_mem_alloc(ctx->md, &ctx->window_size, 0, &address,
                                &ctx->window_memh));
        ctx->window = address;
        tofu_mkey_pack(ctx->window_memh, ctx->shared->rank[ctx->rank].rkey);
        ctx->shared->rank[ctx->rank].base   = (uintptr_t)address;
        ctx->shared->rank[ctx->rank].length = ctx->window_size;
    }
    core_barrier(ctx);
    for (r = 0; r < ctx->size; ++r) {
        if (!tofu_iface_is_reachable(ctx->iface, ctx->shared->rank[r].device,
                                     attr.device_addr_len,
                                     ctx->shared->rank[r].address,
                                     attr.iface_addr_len, reason,
                                     sizeof(reason))) {
            FAIL("rank %d is not reachable: %s", r, reason);
        }
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[r].address,
                                attr.iface_addr_len, &ctx->ep[r]));
        if (window > 0) {
            CHECK_OK(tofu_rkey_unpack(ctx->shared->rank[r].rkey,
                                      md_attr.rkey_packed_size,
                                      &ctx->rkey[r]));
        }
    }
    core_barrier(ctx);
}

void core_close(struct ctx *ctx)
{
    int r;

    for (r = 0; r < ctx->size; ++r) {
        if (ctx->ep[r] != NULL) {
            tofu_ep_destroy(ctx->ep[r]);
        }
        if (ctx->rkey[r] != NULL) {
            tofu_rkey_release(ctx->rkey[r]);
        }
    }
    core_barrier(ctx);
    if (ctx->window_memh != NULL) {
        CHECK_OK(tofu_mem_free(ctx->window_memh));
    }
    tofu_iface_close(ctx->iface);
    tofu_md_close(ctx->md);
}

tofu_iface_stats_t stats_of(struct ctx *ctx)
{
    tofu_iface_stats_t stats;

    tofu_iface_get_stats(ctx->iface, &stats);
    return stats;
}

static void barrier(struct ctx *ctx, int progress)
{
    _Atomic unsigned *n = &ctx->shared->arrived[ctx->barriers++];
    unsigned         spins = 0;

    CHECK(ctx->barriers < sizeof(ctx->shared->arrived) / sizeof(*n));
    atomic_fetch_add(n, 1);
    while (atomic_load(n) < (unsigned)ctx->size) {
        if (progress && (ctx->iface != NULL)) {
            tofu_iface_progress(ctx->iface);
        }
        if (++spins % 16 == 0) {
            sched_yield();
        }
    }
}

void core_barrier(struct ctx *ctx)
{
    barrier(ctx, 1);
}

void core_barrier_asleep(struct ctx *ctx)
{
    barrier(ctx, 0);
}

static void on_done(tofu_completion_t *self)
{
    ++((struct done *)self)->called;
}

void done_init(struct done *done)
{
    done->comp.func   = on_done;
    done->comp.count  = 1;
    done->comp.status = TOFU_OK;
    done->called      = 0;
}

tofu_status_t done_wait(struct ctx *ctx, struct done *done)
{
    while (done->called == 0) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK_EQ(done->called, 1);
    return (tofu_status_t)done->comp.status;
}

void core_flush(struct ctx *ctx, tofu_ep_t *ep)
{
    tofu_status_t status;

    while (((status = tofu_ep_flush(ep, 0, NULL)) == TOFU_INPROGRESS) ||
           (status == TOFU_ERR_NO_RESOURCE)) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK_OK(status);
}

uint64_t next_random(uint64_t *state)
{
    uint64_t x = (*state += 0x9e3779b97f4a7c15ull); /* splitmix64 */

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

void fill(void *buffer, size_t length, uint64_t seed)
{
    unsigned char *p = buffer;
    uint64_t      x  = 0;
    size_t        i;

    for (i = 0; i < length; ++i) {
        if (i % 8 == 0) {
            x = next_random(&seed);
        }
        p[i]   = (unsigned char)x;
        x    >>= 8;
    }
}

int matches(const void *buffer, size_t length, uint64_t seed)
{
    const unsigned char *p = buffer;
    uint64_t            x  = 0;
    size_t              i;

    for (i = 0; i < length; ++i) {
        if (i % 8 == 0) {
            x = next_random(&seed);
        }
        if (p[i] != (unsigned char)x) {
            return 0;
        }
        x >>= 8;
    }
    return 1;
}

static int run_case(const struct test_case *c)
{
    double        limit = core_now() + c->limit_s;
    struct shared *shared;
    pid_t         pid[MAX_RANKS];
    int           r, left = c->ranks, failed = 0;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    for (r = 0; r < c->ranks; ++r) {
        pid[r] = fork();
        if (pid[r] == 0) {
            struct ctx *ctx = calloc(1, sizeof(*ctx));
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            this_rank   = r;
            ctx->rank   = r;
            ctx->size   = c->ranks;
            ctx->shared = shared;
            c->run(ctx);
            free(ctx);
            exit(0); /* not _exit: sanitizers report then */
        }
        if (pid[r] < 0) {
            perror("fork");
            return 1;
        }
    }
    while ((left > 0) && (core_now() < limit) && !failed) {
        int   status;
        pid_t ended = waitpid(-1, &status, WNOHANG);

        if (ended <= 0) {
            core_usleep(2000);
            continue;
        }
        for (r = 0; (r < c->ranks) && (pid[r] != ended); ++r) {
        }
        if (r == c->ranks) {
            continue;
        }
        pid[r] = 0;
        --left;
        if (WIFSIGNALED(status) && !((c->may_die >> r) & 1)) {
            fprintf(stderr, "%s: rank %d: signal %d\n", c->name, r,
                    WTERMSIG(status));
            failed = 1;
        } else if (WIFEXITED(status) && (WEXITSTATUS(status) != 0)) {
            fprintf(stderr, "%s: rank %d: exit %d\n", c->name, r,
                    WEXITSTATUS(status));
            failed = 1;
        }
    }
    if ((left > 0) && !failed) {
        fprintf(stderr, "%s: %d ranks did not end within %u s\n", c->name, left,
                c->limit_s);
        failed = 1;
    }
    for (r = 0; r < c->ranks; ++r) {
        if (pid[r] > 0) {
            kill(pid[r], SIGKILL);
            waitpid(pid[r], NULL, 0);
        }
    }
    return failed;
}

int core_main(int argc, char **argv, const struct test_case *cases, size_t n)
{
    size_t i;
    int    failed = 0, found = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if ((argc == 2) && !strcmp(argv[1], "list")) {
        for (i = 0; i < n; ++i) {
            printf("%s %u\n", cases[i].name, cases[i].limit_s);
        }
        return 0;
    }
    for (i = 0; i < n; ++i) {
        if ((argc < 2) || !strcmp(argv[1], cases[i].name)) {
            found   = 1;
            int bad = run_case(&cases[i]);
            printf("%s: %s\n", cases[i].name, bad ? "FAILED" : "ok");
            failed |= bad;
        }
    }
    if (!found) {
        fprintf(stderr, "no case %s\n", (argc > 1) ? argv[1] : "");
        return 2;
    }
    return failed;
}
