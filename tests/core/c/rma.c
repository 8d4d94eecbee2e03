/* SPDX-License-Identifier: BSD-3-Clause */
/* put, get and atomics: sizes, guards, iov, splitting. */
#include "core_test.h"

#define GUARD 64
#define AREA  (1 << 20)

static size_t pack_bytes(void *dest, void *arg)
{
    tofu_iov_t *iov = arg;

    memcpy(dest, iov->buffer, iov->length);
    return iov->length;
}

static void unpack_bytes(void *arg, const void *data, size_t length)
{
    if (length > 0) {
        memcpy(arg, data, length);
    }
}

/* Check `length` bytes at offset of the peer's window as read from here, and that
 * GUARD bytes on each side are untouched. */
static void check_remote(struct ctx *ctx, const char *remote, size_t offset,
                         size_t length, uint64_t seed)
{
    size_t i;

    (void)ctx;
    if (!matches(remote + offset, length, seed)) {
        FAIL("%zu bytes at offset %zu are wrong", length, offset);
    }
    for (i = 0; i < GUARD; ++i) {
        if ((remote[offset - 1 - i] != 0) || (remote[offset + length + i] != 0)) {
            FAIL("guard of %zu bytes at %zu was written", length, offset);
        }
    }
}

enum { SHORT, BCOPY, ZCOPY };

static void put_one(struct ctx *ctx, int kind, char *source, tofu_mem_t *memh,
                    size_t length, uint64_t remote)
{
    tofu_iov_t    iov = {source, length, memh, 0, 1};
    tofu_status_t status;
    struct done   done;
    intptr_t      n;

    switch (kind) {
    case SHORT:
        CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[1], source,
                                              (unsigned)length, remote,
                                              ctx->rkey[1])));
        memset(source, 0xee, length); /* it may be reused at once */
        break;
    case BCOPY:
        n = RETRY(ctx, tofu_ep_put_bcopy(ctx->ep[1], pack_bytes, &iov, remote,
                                         ctx->rkey[1]));
        CHECK_EQ(n, length);
        memset(source, 0xee, length);
        break;
    default:
        done_init(&done);
        status = (tofu_status_t)RETRY(ctx, tofu_ep_put_zcopy(
                                                   ctx->ep[1], &iov, 1, remote,
                                                   ctx->rkey[1], &done.comp));
        if (length == 0) {
            CHECK_OK(status);
        } else {
            CHECK_EQ(status, TOFU_INPROGRESS);
            CHECK_OK(done_wait(ctx, &done));
        }
    }
}

/* Rank 0 puts to rank 1 and reads back; rank 1 checks by plain loads. */
static void put_get(struct ctx *ctx)
{
    static const size_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 63, 64,
                                   65, 255, 256, 257, 1920, 4095, 4097, 8191,
                                   8192, 65537, 500001};
    tofu_iface_attr_t   attr;
    tofu_mem_t          *memh;
    size_t              length = AREA;
    void                *address;
    char                *buffer;
    unsigned            i, kind, shift, checks = 0;

    core_open(ctx, NULL, AREA);
    tofu_iface_query(ctx->iface, &attr);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    buffer = address;
    for (kind = SHORT; kind <= ZCOPY; ++kind) {
        size_t max = (kind == SHORT) ? attr.max_put_short :
                     (kind == BCOPY) ? attr.max_put_bcopy :
                                       AREA / 2;
        for (i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
            for (shift = 0; (shift < 3) && (sizes[i] <= max); ++shift) {
                size_t   offset = GUARD + 256 + shift * 5;
                size_t   n      = sizes[i];
                uint64_t seed   = kind * 1000 + i * 10 + shift;

                ++checks;
                if (ctx->rank == 0) {
                    struct done done;
                    tofu_iov_t  iov = {buffer + AREA / 2 + 3, n, memh, 0, 1};

                    fill(buffer + shift, n, seed);
                    put_one(ctx, (int)kind, buffer + shift, memh, n,
                            ctx->shared->rank[1].base + offset);
                    /* after the fence it reads what was put before */
                    CHECK_OK(tofu_ep_fence(ctx->ep[1]));
                    done_init(&done);
                    if (n == 0) {
                        CHECK_OK(RETRY(ctx, tofu_ep_get_zcopy(
                                         ctx->ep[1], &iov, 1,
                                         ctx->shared->rank[1].base + offset,
                                         ctx->rkey[1], &done.comp)));
                    } else {
                        CHECK_EQ(RETRY(ctx, tofu_ep_get_zcopy(
                                         ctx->ep[1], &iov, 1,
                                         ctx->shared->rank[1].base + offset,
                                         ctx->rkey[1], &done.comp)),
                                 TOFU_INPROGRESS);
                        CHECK_OK(done_wait(ctx, &done));
                        CHECK(matches(iov.buffer, n, seed));
                    }
                    if ((n > 0) && (n <= attr.max_get_bcopy)) {
                        memset(buffer + AREA / 2, 0, n + 8);
                        done_init(&done);
                        CHECK_EQ(RETRY(ctx, tofu_ep_get_bcopy(
                                         ctx->ep[1], unpack_bytes,
                                         buffer + AREA / 2, n,
                                         ctx->shared->rank[1].base + offset,
                                         ctx->rkey[1], &done.comp)),
                                 TOFU_INPROGRESS);
                        CHECK_OK(done_wait(ctx, &done));
                        CHECK(matches(buffer + AREA / 2, n, seed));
                    }
                    core_flush(ctx, ctx->ep[1]);
                }
                core_barrier_asleep(ctx);
                if (ctx->rank == 1) {
                    check_remote(ctx, ctx->window, offset, n, seed);
                    memset(ctx->window, 0, n + 1024);
                }
                core_barrier_asleep(ctx);
            }
        }
    }
    CHECK(checks > 150);
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* iovs with strides, empty entries and several registrations, split in pieces of
 * 1000 bytes, with so few operations in flight that they have to be continued. */
static void iov_split(struct ctx *ctx)
{
    tofu_iface_config_t config;
    uint64_t            random = 42;
    unsigned            round;

    tofu_iface_config_default(&config);
    config.rndv_split  = 1000;
    config.tx_notified = 8;
    core_open(ctx, &config, AREA);
    for (round = 0; round < 60; ++round) {
        tofu_iov_t  iov[16];
        tofu_mem_t  *memh[16];
        char        *memory[16];
        char        *expected = malloc(AREA);
        size_t      total = 0, cnt, i, offset = GUARD + round % 7;
        struct done done;
        unsigned    b;

        cnt = 1 + next_random(&random) % 16;
        for (i = 0; i < cnt; ++i) {
            iov[i].length = next_random(&random) % 4 ?
                                    next_random(&random) % 2000 :
                                    0;
            iov[i].count  = (unsigned)(next_random(&random) % 4);
            iov[i].stride = iov[i].length + next_random(&random) % 50;
            memory[i]     = calloc(4, 2100);
            fill(memory[i], 4 * 2100, round * 100 + i);
            iov[i].buffer = memory[i] + i % 3;
            memh[i]       = NULL;
            if (ctx->rank == 0) {
                CHECK_OK(tofu_mem_reg(ctx->md, memory[i], 4 * 2100, 0,
                                      &memh[i]));
            }
            iov[i].memh = memh[i];
            for (b = 0; b < iov[i].count; ++b) {
                memcpy(expected + total,
                       (char *)iov[i].buffer +
                               (iov[i].count > 1 ? b * iov[i].stride : 0),
                       iov[i].length);
                total += iov[i].length;
            }
        }
        if (ctx->rank == 0) {
            intptr_t status;

            done_init(&done);
            status = RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[1], iov, cnt,
                                                  ctx->shared->rank[1].base +
                                                          offset,
                                                  ctx->rkey[1], &done.comp));
            if (total == 0) {
                CHECK_OK(status);
            } else {
                CHECK_EQ(status, TOFU_INPROGRESS);
                /* whatever of it is not posted yet goes before this */
                uint32_t mark = round + 1;
                CHECK_OK(RETRY(ctx, tofu_ep_put_short(
                                            ctx->ep[1], &mark, sizeof(mark),
                                            ctx->shared->rank[1].base +
                                                    AREA - 8,
                                            ctx->rkey[1])));
                CHECK_OK(done_wait(ctx, &done));
            }
            core_flush(ctx, ctx->ep[1]);
            /* and back, scattered */
            for (i = 0; i < cnt; ++i) {
                memset(memory[i], 0, 4 * 2100);
            }
            done_init(&done);
            status = RETRY(ctx, tofu_ep_get_zcopy(ctx->ep[1], iov, cnt,
                                                  ctx->shared->rank[1].base +
                                                          offset,
                                                  ctx->rkey[1], &done.comp));
            if (total > 0) {
                CHECK_EQ(status, TOFU_INPROGRESS);
                CHECK_OK(done_wait(ctx, &done));
            }
            for (i = 0, total = 0; i < cnt; ++i) {
                for (b = 0; b < iov[i].count; ++b) {
                    CHECK(!memcmp(expected + total,
                                  (char *)iov[i].buffer +
                                          (iov[i].count > 1 ?
                                                   b * iov[i].stride :
                                                   0),
                                  iov[i].length));
                    total += iov[i].length;
                }
            }
        }
        core_barrier_asleep(ctx);
        if (ctx->rank == 1) {
            CHECK(!memcmp(ctx->window + offset, expected, total));
            for (i = 0; i < GUARD; ++i) {
                CHECK((offset < i + 1) || (ctx->window[offset - 1 - i] == 0));
                CHECK(ctx->window[offset + total + i] == 0);
            }
            memset(ctx->window, 0, total + 1024);
        }
        core_barrier_asleep(ctx);
        for (i = 0; i < cnt; ++i) {
            if (memh[i] != NULL) {
                CHECK_OK(tofu_mem_dereg(memh[i]));
            }
            free(memory[i]);
        }
        free(expected);
    }
    core_close(ctx);
}

/* One operation of more than utofu's 2^24 - 1 bytes. */
static void big(struct ctx *ctx)
{
    const size_t length = ((size_t)40 << 20) + 12345;
    tofu_mem_t   *memh;
    size_t       size = length;
    void         *address;
    struct done  done;

    core_open(ctx, NULL, length + 4096);
    if (ctx->rank == 0) {
        CHECK_OK(tofu_mem_alloc(ctx->md, &size, 0, &address, &memh));
        fill(address, length, 7);
        tofu_iov_t iov = {address, length, memh, 0, 1};
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[1], &iov, 1,
                                              ctx->shared->rank[1].base + 1,
                                              ctx->rkey[1], &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
    }
    core_barrier(ctx);
    if (ctx->rank == 1) {
        CHECK(ctx->window[0] == 0);
        CHECK(matches(ctx->window + 1, length, 7));
        CHECK(ctx->window[length + 1] == 0);
    } else {
        memset(address, 0, length);
        tofu_iov_t iov = {address, length, memh, 0, 1};
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_get_zcopy(ctx->ep[1], &iov, 1,
                                              ctx->shared->rank[1].base + 1,
                                              ctx->rkey[1], &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
        CHECK(matches(address, length, 7));
        CHECK_OK(tofu_mem_free(memh));
    }
    core_barrier(ctx);
    core_close(ctx);
}

/* Every operation once by hand, then sums that all ranks add to at once. */
static void atomics(struct ctx *ctx)
{
    static const struct {
        tofu_atomic_op_t op;
        uint64_t         value, result;
    } ops[] = {
        {TOFU_ATOMIC_ADD, 5, 0xff00ff00ff00ff0full + 5},
        {TOFU_ATOMIC_AND, 0x0ff0, 0xff00ff00ff00ff0full & 0x0ff0},
        {TOFU_ATOMIC_OR, 0xf0, 0xff00ff00ff00ff0full | 0xf0},
        {TOFU_ATOMIC_XOR, 0x123456789abcdefull,
         0xff00ff00ff00ff0full ^ 0x123456789abcdefull},
        {TOFU_ATOMIC_SWAP, 77, 77}
    };
    unsigned         i, size, fetch;
    _Atomic uint64_t *cell;
    struct done      done;
    uint64_t         base, old;

    core_open(ctx, NULL, 65536);
    base = ctx->shared->rank[1].base;
    for (size = 4; size <= 8; size += 4) {
        uint64_t mask = (size == 4) ? 0xffffffffu : ~0ull;
        for (i = 0; i < 5; ++i) {
            for (fetch = 0; fetch <= 1; ++fetch) {
                if (!fetch && (ops[i].op == TOFU_ATOMIC_SWAP)) {
                    CHECK_EQ(tofu_ep_atomic_post(ctx->ep[1], ops[i].op, size, 1,
                                                 base, ctx->rkey[1]),
                             TOFU_ERR_UNSUPPORTED);
                    continue;
                }
                if (ctx->rank == 1) {
                    memset(ctx->window, 0xaa, 32);
                    uint64_t start = 0xff00ff00ff00ff0full;
                    memcpy(ctx->window + 8, &start, size);
                }
                core_barrier_asleep(ctx);
                if (ctx->rank == 0) {
                    old = 0;
                    if (fetch) {
                        done_init(&done);
                        CHECK_EQ(RETRY(ctx, tofu_ep_atomic_fetch(
                                                ctx->ep[1], ops[i].op, size,
                                                ops[i].value, &old, base + 8,
                                                ctx->rkey[1], &done.comp)),
                                 TOFU_INPROGRESS);
                        CHECK_OK(done_wait(ctx, &done));
                        CHECK_EQ(old, 0xff00ff00ff00ff0full & mask);
                    } else {
                        CHECK_OK(RETRY(ctx, tofu_ep_atomic_post(
                                                ctx->ep[1], ops[i].op, size,
                                                ops[i].value, base + 8,
                                                ctx->rkey[1])));
                    }
                    core_flush(ctx, ctx->ep[1]);
                }
                core_barrier_asleep(ctx);
                if (ctx->rank == 1) {
                    uint64_t now = 0;
                    memcpy(&now, ctx->window + 8, size);
                    CHECK_EQ(now, ops[i].result & mask);
                    CHECK_EQ((uint8_t)ctx->window[7], 0xaa);
                    CHECK_EQ((uint8_t)ctx->window[8 + size], 0xaa);
                }
                core_barrier_asleep(ctx);
            }
        }
    }

    /* compare and swap: one that misses, one that hits */
    if (ctx->rank == 0) {
        uint64_t v = 0;
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_atomic_cswap(ctx->ep[1], 8, 1, 2, &v,
                                                 base + 64, ctx->rkey[1],
                                                 &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
        CHECK_EQ(v, 0);
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_atomic_cswap(ctx->ep[1], 8, 0, 9, &v,
                                                 base + 64, ctx->rkey[1],
                                                 &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
        CHECK_EQ(v, 0);
        uint32_t w = 1;
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_atomic_cswap(ctx->ep[1], 4, 9, 10, &w,
                                                 base + 64, ctx->rkey[1],
                                                 &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
        CHECK_EQ(w, 9);
    }
    core_barrier(ctx);
    if (ctx->rank == 1) {
        CHECK_EQ(*(uint64_t *)(ctx->window + 64), 10);
    }

    /* all ranks at once, and the owner's CPU */
    cell = (_Atomic uint64_t *)(ctx->window + 128);
    core_barrier(ctx);
    for (i = 0; i < 5000; ++i) {
        if (ctx->rank == 1) {
            atomic_fetch_add(cell, 1);
        } else if (i % 2) {
            CHECK_OK(RETRY(ctx, tofu_ep_atomic_post(ctx->ep[1],
                                                    TOFU_ATOMIC_ADD, 8, 1,
                                                    base + 128, ctx->rkey[1])));
        } else {
            done_init(&done);
            CHECK_EQ(RETRY(ctx, tofu_ep_atomic_fetch(
                                        ctx->ep[1], TOFU_ATOMIC_ADD, 8, 1, &old,
                                        base + 128, ctx->rkey[1], &done.comp)),
                     TOFU_INPROGRESS);
            CHECK_OK(done_wait(ctx, &done));
        }
    }
    core_flush(ctx, ctx->ep[1]);
    core_barrier(ctx);
    if (ctx->rank == 1) {
        CHECK_EQ(atomic_load(cell), 5000 * ctx->size);
    }
    core_barrier(ctx);
    core_close(ctx);
}

static uint64_t early_next;

static int8_t on_early(void *arg, void *data, size_t length, unsigned flags)
{
    uint64_t number;

    (void)arg;
    (void)flags;
    CHECK_EQ(length, sizeof(number));
    memcpy(&number, data, sizeof(number));
    CHECK_EQ(number, early_next);
    ++early_next;
    return TOFU_OK;
}

/* Started: complete at once, or when done_wait says so. */
static void finish(struct ctx *ctx, struct done *done, tofu_status_t status,
                   unsigned *at_once_p)
{
    if (status == TOFU_OK) {
        ++*at_once_p;
        CHECK_EQ(done->called, 0);
    } else {
        CHECK_EQ(status, TOFU_INPROGRESS);
        CHECK_EQ(done->called, 0); /* but by progress */
        CHECK_OK(done_wait(ctx, done));
    }
}

/* Operations that may complete while they are posted, with messages coming in
 * between: each completes once and right, and no message is lost or overtaken. */
static void early(struct ctx *ctx)
{
    enum { ROUNDS = 20000, SIZE = 200 };
    unsigned    peer    = 1 - ctx->rank, at_once = 0, copied = 0;
    uint64_t    base, i, old = 0;
    tofu_mem_t  *memh;
    struct done done;
    char        *buffer;

    core_early = 1;
    core_open(ctx, NULL, 65536);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 4, on_early, NULL));
    buffer = malloc(2 * SIZE);
    CHECK_OK(tofu_mem_reg(ctx->md, buffer, 2 * SIZE, 0, &memh));
    base = ctx->shared->rank[peer].base;
    core_barrier(ctx);
    for (i = 0; i < ROUNDS; ++i) {
        tofu_iov_t put = {buffer, SIZE, memh, 0, 1};
        tofu_iov_t get = {buffer + SIZE, SIZE, memh, 0, 1};

        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[peer], 4, i, NULL, 0)));
        fill(buffer, SIZE, i);
        done_init(&done);
        finish(ctx, &done,
               (tofu_status_t)RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[peer], &put, 1,
                                                           base, ctx->rkey[peer],
                                                           &done.comp)),
               &at_once);
        done_init(&done);
        finish(ctx, &done,
               (tofu_status_t)RETRY(ctx, tofu_ep_get_zcopy(ctx->ep[peer], &get, 1,
                                                           base, ctx->rkey[peer],
                                                           &done.comp)),
               &at_once);
        CHECK(matches(buffer + SIZE, SIZE, i));
        memset(buffer + SIZE, 0, SIZE);
        done_init(&done);
        finish(ctx, &done,
               (tofu_status_t)RETRY(ctx, tofu_ep_get_bcopy(
                                                 ctx->ep[peer], unpack_bytes,
                                                 buffer + SIZE, SIZE, base,
                                                 ctx->rkey[peer], &done.comp)),
               &copied);
        CHECK(matches(buffer + SIZE, SIZE, i));
        done_init(&done);
        finish(ctx, &done,
               (tofu_status_t)RETRY(ctx, tofu_ep_atomic_fetch(
                                                 ctx->ep[peer], TOFU_ATOMIC_ADD,
                                                 8, 1, &old, base + 4096,
                                                 ctx->rkey[peer], &done.comp)),
               &at_once);
        CHECK_EQ(old, i);
        if (i % 64 == 0) {
            core_flush(ctx, ctx->ep[peer]);
        }
    }
    while (early_next < ROUNDS) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK(at_once > 0);
    CHECK(copied > 0);
    core_barrier(ctx);
    CHECK_EQ(*(uint64_t *)(ctx->window + 4096), ROUNDS);
    CHECK_OK(tofu_mem_dereg(memh));
    free(buffer);
    core_barrier(ctx);
    core_close(ctx);
}

static size_t pack_nothing(void *dest, void *arg)
{
    (void)dest;
    ++*(unsigned *)arg;
    return 0;
}

static void unpack_nothing(void *arg, const void *data, size_t length)
{
    (void)data;
    CHECK_EQ(length, 0);
    ++*(unsigned *)arg;
}

/* No bytes: no key is looked at, and nothing is sent. */
static void nothing(struct ctx *ctx)
{
    const tofu_rkey_t *keys[] = {NULL, (const tofu_rkey_t *)~(uintptr_t)0};
    tofu_iov_t        iov     = {NULL, 0, NULL, 0, 1};
    unsigned          i, called = 0;

    core_open(ctx, NULL, AREA);
    for (i = 0; i < 2; ++i) {
        tofu_ep_t *ep = ctx->ep[1 - ctx->rank];
        CHECK_OK(tofu_ep_put_short(ep, NULL, 0, 0, keys[i]));
        CHECK_EQ(tofu_ep_put_bcopy(ep, pack_nothing, &called, 0, keys[i]), 0);
        CHECK_OK(tofu_ep_get_bcopy(ep, unpack_nothing, &called, 0, 0, keys[i],
                                   NULL));
        CHECK_OK(tofu_ep_put_zcopy(ep, &iov, 1, 0, keys[i], NULL));
        CHECK_OK(tofu_ep_get_zcopy(ep, &iov, 1, 0, keys[i], NULL));
        CHECK_OK(tofu_ep_get_zcopy(ep, NULL, 0, 0, keys[i], NULL));
    }
    CHECK_EQ(called, 4);
    core_barrier(ctx);
    core_close(ctx);
}

/* A large get is never complete when it returns, and its completion is called by
 * progress; a smaller one may be.  Of this process, where all is done at once. */
static void late(struct ctx *ctx)
{
    static const size_t sizes[] = {4095, 4096, 65536, 1 << 20};
    enum { ROUNDS = 300 };
    size_t      most = sizes[3], i, round;
    unsigned    at_once;
    tofu_mem_t  *memh;
    struct done done;
    char        *buffer;

    core_early = 1;
    core_open(ctx, NULL, most);
    buffer = malloc(most);
    CHECK_OK(tofu_mem_reg(ctx->md, buffer, most, 0, &memh));
    for (i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        fill(ctx->window, sizes[i], i);
        at_once = 0;
        for (round = 0; round < ROUNDS; ++round) {
            tofu_iov_t iov = {buffer, sizes[i], memh, 0, 1};

            memset(buffer, 0, 64);
            done_init(&done);
            finish(ctx, &done,
                   (tofu_status_t)RETRY(ctx, tofu_ep_get_zcopy(
                                                     ctx->ep[0], &iov, 1,
                                                     (uintptr_t)ctx->window,
                                                     ctx->rkey[0], &done.comp)),
                   &at_once);
            CHECK(matches(buffer, 64, i));
        }
        CHECK(matches(buffer, sizes[i], i));
        CHECK_EQ(at_once > 0, sizes[i] < 4096);
    }
    CHECK_OK(tofu_mem_dereg(memh));
    free(buffer);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"put_get", 2, 60, put_get, 0},
        {"iov_split", 2, 60, iov_split, 0},
        {"big", 2, 60, big, 0},
        {"atomics", 3, 60, atomics, 0},
        {"early", 2, 60, early, 0},
        {"late", 1, 60, late, 0},
        {"nothing", 2, 60, nothing, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
