/* SPDX-License-Identifier: BSD-3-Clause */
/* What is refused before anything is posted; registrations, allocations, threads. */
#include "core_test.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

static void unpack_bytes(void *arg, const void *data, size_t length)
{
    if (length > 0) {
        memcpy(arg, data, length);
    }
}

/* Says that it packed so much. */
static size_t pack_length(void *dest, void *arg)
{
    (void)dest;
    return *(const size_t *)arg;
}

/* What must be refused before anything is posted. */
static void refusals(struct ctx *ctx)
{
    tofu_iface_stats_t before, after;
    tofu_mem_t         *memh, *other_memh, *ro;
    tofu_rkey_t        *ro_rkey;
    uint64_t           base, end;
    char               packed[BLOB], buffer[64];
    size_t             size = 8192;
    void               *address;
    char               *memory = malloc(65536);
    tofu_md_t          *other;
    struct done        done;

    core_open(ctx, NULL, 16384);
    base = ctx->shared->rank[0].base;
    end  = base + ctx->shared->rank[0].length;
    CHECK_OK(tofu_mem_reg(ctx->md, memory, 4096, 0, &memh));
    CHECK_OK(tofu_md_open(core_backend(), NULL, &other));
    CHECK_OK(tofu_mem_reg(other, memory, 4096, 0, &other_memh));
    CHECK_OK(tofu_mem_alloc(ctx->md, &size, TOFU_MEM_READ_ONLY, &address, &ro));
    tofu_mkey_pack(ro, packed);
    CHECK_OK(tofu_rkey_unpack(packed, 0, &ro_rkey));
    done_init(&done);
    tofu_iface_get_stats(ctx->iface, &before);

#define REFUSED(status, call) CHECK_EQ(call, status)
    tofu_ep_t *ep = ctx->ep[0];
    tofu_rkey_t *rkey = ctx->rkey[0];
    REFUSED(TOFU_ERR_OUT_OF_RANGE, tofu_ep_put_short(ep, buffer, 8, end - 7, rkey));
    REFUSED(TOFU_ERR_OUT_OF_RANGE, tofu_ep_put_short(ep, buffer, 8, base - 1, rkey));
    REFUSED(TOFU_ERR_OUT_OF_RANGE, tofu_ep_put_short(ep, buffer, 8, ~0ull, rkey));
    REFUSED(TOFU_ERR_INVALID_PARAM, tofu_ep_put_short(ep, buffer, 33, base, rkey));
    REFUSED(TOFU_ERR_OUT_OF_RANGE,
            tofu_ep_put_short(ep, buffer, 8, (uintptr_t)address, ro_rkey));
    tofu_iov_t iov = {memory, 4096, memh, 0, 1};
    REFUSED(TOFU_ERR_OUT_OF_RANGE,
            tofu_ep_put_zcopy(ep, &iov, 1, end - 4095, rkey, &done.comp));
    REFUSED(TOFU_ERR_OUT_OF_RANGE,
            tofu_ep_put_zcopy(ep, &iov, 1, (uintptr_t)address, ro_rkey, &done.comp));
    REFUSED(TOFU_ERR_OUT_OF_RANGE,
            tofu_ep_get_zcopy(ep, &iov, 1, end - 4095, rkey, &done.comp));
    iov.length = 4097;
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_put_zcopy(ep, &iov, 1, base, rkey, &done.comp));
    iov.length = 16;
    iov.buffer = memory - 1;
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_put_zcopy(ep, &iov, 1, base, rkey, &done.comp));
    iov.buffer = memory;
    iov.memh   = NULL;
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_put_zcopy(ep, &iov, 1, base, rkey, &done.comp));
    iov.memh = other_memh;
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_put_zcopy(ep, &iov, 1, base, rkey, &done.comp));
    iov.memh   = memh;
    iov.length = (size_t)1 << 63;
    iov.count  = 4;
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_put_zcopy(ep, &iov, 1, base, rkey, &done.comp));
    iov.length = 8;
    iov.stride = (size_t)-8;
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_put_zcopy(ep, &iov, 1, base, rkey, &done.comp));
    tofu_iov_t many[17];
    for (int i = 0; i < 17; ++i) {
        many[i] = (tofu_iov_t){memory, 1, memh, 0, 1};
    }
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_put_zcopy(ep, many, 17, base, rkey, &done.comp));
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_atomic_post(ep, TOFU_ATOMIC_ADD, 8, 1, base + 4, rkey));
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_atomic_post(ep, TOFU_ATOMIC_ADD, 2, 1, base, rkey));
    REFUSED(TOFU_ERR_OUT_OF_RANGE,
            tofu_ep_atomic_post(ep, TOFU_ATOMIC_ADD, 8, 1, end, rkey));
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_get_bcopy(ep, unpack_bytes, buffer, 8257, base, rkey, &done.comp));
    size = 8257; /* the window is larger, the limit is not */
    REFUSED(TOFU_ERR_INVALID_PARAM,
            tofu_ep_put_bcopy(ep, pack_length, &size, base, rkey));
    REFUSED(TOFU_ERR_INVALID_PARAM, tofu_ep_am_short(ep, 32, 0, NULL, 0));
    REFUSED(TOFU_ERR_INVALID_PARAM, tofu_ep_am_short(ep, 0, 0, buffer, 241));
    REFUSED(TOFU_ERR_INVALID_PARAM, tofu_mem_reg(ctx->md, memory, 0, 0, &memh));
    REFUSED(TOFU_ERR_INVALID_PARAM, tofu_mem_reg(ctx->md, NULL, 10, 0, &memh));
    tofu_iface_get_stats(ctx->iface, &after);
    CHECK_EQ(after.posts, before.posts);
    CHECK_EQ(done.called, 0);

    /* reading the read-only memory works */
    iov = (tofu_iov_t){memory, 64, memh, 0, 1};
    CHECK_EQ(RETRY(ctx, tofu_ep_get_zcopy(ep, &iov, 1, (uintptr_t)address,
                                          ro_rkey, &done.comp)),
             TOFU_INPROGRESS);
    CHECK_OK(done_wait(ctx, &done));

    tofu_rkey_release(ro_rkey);
    CHECK_OK(tofu_mem_free(ro));
    CHECK_OK(tofu_mem_dereg(other_memh));
    CHECK_OK(tofu_mem_dereg(memh));
    tofu_md_close(other);
    free(memory);
    core_close(ctx);
}

/* Memory: sharing of registrations, zeroed allocations, nothing left behind. */
static void memory(struct ctx *ctx)
{
    char           *buffer = malloc(1 << 20);
    tofu_md_config_t md_config;
    tofu_mem_t     *a, *b, *c, *d;
    tofu_md_attr_t attr;
    void           *address, *first = NULL;
    size_t         length, i, n0;
    uint64_t       random = 3;
    struct {
        tofu_mem_t *memh;
        char       *address;
        size_t     length;
    } block[32] = {{0}};

    core_open(ctx, NULL, 0);
    tofu_md_query(ctx->md, &attr);
    n0 = attr.num_registrations;
    CHECK_OK(tofu_mem_reg(ctx->md, buffer, 1 << 20, 0, &a));
    CHECK_OK(tofu_mem_reg(ctx->md, buffer + 5000, 100, 0, &b));
    CHECK(a == b);
    CHECK_OK(tofu_mem_reg(ctx->md, buffer + 5000, 100, TOFU_MEM_READ_ONLY, &c));
    CHECK(c != a);
    CHECK_OK(tofu_mem_reg(ctx->md, buffer + (1 << 19), 1 << 18, 0, &d));
    CHECK(d == a);
    tofu_mem_query(d, &address, &length);
    CHECK(((char *)address <= buffer + (1 << 19)) && (length >= 1 << 18));
    tofu_md_query(ctx->md, &attr);
    CHECK_EQ(attr.num_registrations, n0 + 2);
    CHECK_OK(tofu_mem_dereg(a));
    CHECK_OK(tofu_mem_dereg(b));
    CHECK_OK(tofu_mem_dereg(c));
    CHECK_OK(tofu_mem_dereg(d));
    tofu_md_query(ctx->md, &attr);
    CHECK_EQ(attr.num_registrations, n0);

    /* overlapping, not contained: two registrations, any order of release */
    CHECK_OK(tofu_mem_reg(ctx->md, buffer, 8192, 0, &a));
    CHECK_OK(tofu_mem_reg(ctx->md, buffer + 4096, 8192, 0, &b));
    CHECK_OK(tofu_mem_reg(ctx->md, buffer + 4096, 4096, 0, &c));
    CHECK(a != b);
    CHECK((c == a) || (c == b));
    CHECK_OK(tofu_mem_dereg(a));
    CHECK_OK(tofu_mem_dereg(c));
    CHECK_OK(tofu_mem_dereg(b));

    /* registering and using for ever leaks no STag */
    for (i = 0; i < 3000; ++i) {
        tofu_iov_t  iov;
        struct done done;
        char        packed[BLOB];
        tofu_rkey_t *rkey;

        CHECK_OK(tofu_mem_reg(ctx->md, buffer + i, 4096, 0, &a));
        tofu_mkey_pack(a, packed);
        CHECK_OK(tofu_rkey_unpack(packed, 0, &rkey));
        iov = (tofu_iov_t){buffer + i, 64, a, 0, 1};
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[0], &iov, 1,
                                              (uintptr_t)buffer + i + 2048, rkey,
                                              &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
        tofu_rkey_release(rkey);
        CHECK_OK(tofu_mem_dereg(a));
    }

    /* allocations: zeroed, apart from each other, reused */
    for (i = 0; i < 2000; ++i) {
        size_t k = next_random(&random) % 32;
        if (block[k].memh != NULL) {
            CHECK(matches(block[k].address, block[k].length, k));
            CHECK_OK(tofu_mem_free(block[k].memh));
            block[k].memh = NULL;
        } else {
            size_t j;
            length = 1 + next_random(&random) % 40000;
            CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address,
                                    &block[k].memh));
            CHECK_EQ((uintptr_t)address % 4096, 0);
            for (j = 0; j < length; ++j) {
                CHECK(((char *)address)[j] == 0);
            }
            fill(address, length, k);
            block[k].address = address;
            block[k].length  = length;
        }
    }
    for (i = 0; i < 32; ++i) {
        if (block[i].memh != NULL) {
            CHECK(matches(block[i].address, block[i].length, i));
            CHECK_OK(tofu_mem_free(block[i].memh));
        }
    }
    /* after all that the first page is free again: nothing was lost */
    for (i = 0; i < 3; ++i) {
        length = 1;
        CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &a));
        CHECK((first == NULL) || (first == address));
        first = address;
        CHECK_OK(tofu_mem_free(a));
    }
    length = (size_t)1 << 60;
    CHECK_EQ(tofu_mem_alloc(ctx->md, &length, 0, &address, &a),
             TOFU_ERR_NO_MEMORY);
    CHECK_EQ(length, (size_t)1 << 60);
    length = 0;
    CHECK_EQ(tofu_mem_alloc(ctx->md, &length, 0, &address, &a),
             TOFU_ERR_INVALID_PARAM);
    tofu_md_query(ctx->md, &attr);
    CHECK_EQ(attr.num_registrations, n0);

    /* small chunks: every large request gets an arena of its own */
    tofu_md_t *small;
    tofu_md_config_default(&md_config);
    md_config.arena_chunk = 65536;
    CHECK_OK(tofu_md_open(core_backend(), &md_config, &small));
    length = 1 << 20;
    CHECK_OK(tofu_mem_alloc(small, &length, 0, &address, &a));
    memset(address, 1, length);
    CHECK_OK(tofu_mem_free(a));
    tofu_md_close(small);
    md_config.tni = 1000;
    CHECK_EQ(tofu_md_open(core_backend(), &md_config, &small),
             TOFU_ERR_NO_DEVICE);
    free(buffer);
    core_close(ctx);
}

/* Threads register, allocate and release with one md, also what the iface's
 * thread used, while that goes on. */
#define THREADS 3

struct thread_args {
    struct ctx  *ctx;
    char        *buffer;
    uint64_t    random;
    _Atomic int *stop;
    _Atomic(tofu_mem_t *) *given;
};

static void *registrar(void *arg)
{
    struct thread_args *a = arg;
    tofu_mem_t         *memh;
    size_t             length;
    void               *address;

    while (!atomic_load(a->stop)) {
        size_t offset = next_random(&a->random) % 500000;
        size_t size   = 1 + next_random(&a->random) % 500000;

        CHECK_OK(tofu_mem_reg(a->ctx->md, a->buffer + offset, size, 0, &memh));
        tofu_mem_query(memh, &address, &length);
        CHECK(((char *)address <= a->buffer + offset) &&
              ((char *)address + length >= a->buffer + offset + size));
        CHECK_OK(tofu_mem_dereg(memh));
        length = size;
        CHECK_OK(tofu_mem_alloc(a->ctx->md, &length, 0, &address, &memh));
        ((char *)address)[length - 1] = 1;
        CHECK_OK(tofu_mem_free(memh));
        memh = atomic_exchange(a->given, NULL);
        if (memh != NULL) {
            CHECK_OK(tofu_mem_dereg(memh));
        }
    }
    return NULL;
}

static void threads(struct ctx *ctx)
{
    char                  *buffer = calloc(1, 1 << 20);
    _Atomic int           stop = 0;
    _Atomic(tofu_mem_t *) given[THREADS];
    struct thread_args    args[THREADS];
    pthread_t             thread[THREADS];
    tofu_md_attr_t        attr;
    uint64_t              random = 1;
    size_t                n0;
    int                   i;

    core_open(ctx, NULL, 65536);
    tofu_md_query(ctx->md, &attr);
    n0 = attr.num_registrations;
    for (i = 0; i < THREADS; ++i) {
        atomic_init(&given[i], NULL);
        args[i] = (struct thread_args){ctx, buffer, (uint64_t)i, &stop,
                                       &given[i]};
        CHECK_EQ(pthread_create(&thread[i], NULL, registrar, &args[i]), 0);
    }
    for (i = 0; i < 3000; ++i) {
        char        *p = buffer + next_random(&random) % 500000;
        tofu_mem_t  *memh, *none = NULL;
        struct done done;

        CHECK_OK(tofu_mem_reg(ctx->md, p, 1000, 0, &memh));
        tofu_iov_t iov = {p, 1000, memh, 0, 1};
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[0], &iov, 1,
                                              ctx->shared->rank[0].base,
                                              ctx->rkey[0], &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
        /* another thread releases it, sometimes */
        if (!atomic_compare_exchange_strong(&given[i % THREADS], &none, memh)) {
            CHECK_OK(tofu_mem_dereg(memh));
        }
    }
    atomic_store(&stop, 1);
    for (i = 0; i < THREADS; ++i) {
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
        if (given[i] != NULL) {
            CHECK_OK(tofu_mem_dereg(given[i]));
        }
    }
    tofu_md_query(ctx->md, &attr);
    CHECK_EQ(attr.num_registrations, n0);
    free(buffer);
    core_close(ctx);
}

static unsigned count_threads(void)
{
    DIR      *dir = opendir("/proc/self/task");
    unsigned n    = 0;

    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static volatile sig_atomic_t signalled;
static pthread_t             by;

static void on_signal(int number)
{
    (void)number;
    by        = pthread_self();
    signalled = 1;
}

/* What an iface says of itself is measured once, with a thread that is gone then and that no
 * signal went to; the caller may run where it might. */
static void attributes(struct ctx *ctx)
{
    struct itimerval  often = {{0, 20}, {0, 20}}, never = {{0, 0}, {0, 0}};
    tofu_iface_attr_t attr[3];
    unsigned          before, i;
    cpu_set_t         allowed, after;

    CHECK(signal(SIGALRM, on_signal) != SIG_ERR);
    for (i = 0; i < 3; ++i) {
        memset(&attr[i], 0, sizeof(attr[i]));
        core_open(ctx, NULL, 4096);
        before = count_threads();
        CHECK_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
        CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
        tofu_iface_query(ctx->iface, &attr[i]);
        CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
        CHECK(!signalled || pthread_equal(by, pthread_self()));
        CHECK_EQ(count_threads(), before);
        CHECK_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
        CHECK(CPU_EQUAL(&allowed, &after));
        core_close(ctx);
        CHECK_EQ(memcmp(&attr[i], &attr[0], sizeof(attr[i])), 0);
    }
    /* what only fetches into a buffer first is never dearer, and nothing is free */
    CHECK(attr[0].get_bcopy_overhead > 0);
    CHECK(attr[0].get_bcopy_overhead <= attr[0].rma_overhead);
    CHECK((attr[0].put_bcopy_overhead > 0) &&
          (attr[0].put_bcopy_overhead <= attr[0].rma_overhead));
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"refusals", 1, 30, refusals, 0},
        {"memory", 1, 60, memory, 0},
        {"threads", 1, 60, threads, 0},
        {"attributes", 1, 30, attributes, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
