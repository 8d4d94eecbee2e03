/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys that are made worthless, pointers from keys, endpoints that are ended. */
#include "core_test.h"


#define SIZE  ((size_t)5000)
#define NEWER 600 /* registrations made after an invalidation */

/* One operation with the key; how it ended: by its own status, its completion, or
 * (without a notice) the failure of the ep, which is a new one each time. */
static tofu_status_t try_key(struct ctx *ctx, int what, const tofu_rkey_t *rkey,
                             uint64_t base, char *local, tofu_mem_t *memh)
{
    tofu_iov_t    iov   = {local, 64, memh, 0, 1};
    uint64_t      value = ~0ull;
    tofu_status_t status;
    struct done   done;
    tofu_ep_t     *ep;
    double        end;

    CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0, &ep));
    ctx->ep_errors = 0;
    done_init(&done);
    switch (what) {
    case 0:
        status = RETRY(ctx, tofu_ep_put_zcopy(ep, &iov, 1, base, rkey,
                                              &done.comp));
        break;
    case 1:
        status = RETRY(ctx, tofu_ep_get_zcopy(ep, &iov, 1, base, rkey,
                                              &done.comp));
        break;
    case 2:
        status = RETRY(ctx, tofu_ep_atomic_fetch(ep, TOFU_ATOMIC_SWAP, 8, value,
                                                 local, (base + 7) & ~7ull, rkey,
                                                 &done.comp));
        break;
    default:
        status = RETRY(ctx, tofu_ep_put_short(ep, &value, 8, base, rkey));
    }
    if (status == TOFU_INPROGRESS) {
        status = done_wait(ctx, &done);
        CHECK_EQ(ctx->ep_errors, 0); /* the operation tells it, the ep lives */
    } else if ((what > 2) && (status == TOFU_OK)) {
        for (end = core_now() + 5; (status == TOFU_OK) && (core_now() < end);) {
            tofu_status_t flushed = tofu_ep_flush(ep, 0, NULL);
            tofu_iface_progress(ctx->iface);
            if (flushed == TOFU_OK) {
                break;
            }
            status = (ctx->ep_errors > 0) ? ctx->failed_status : TOFU_OK;
        }
    }
    while (tofu_ep_flush(ep, TOFU_FLUSH_CANCEL, NULL) != TOFU_OK) {
        tofu_iface_progress(ctx->iface);
    }
    tofu_ep_destroy(ep);
    return status;
}

/* A key is dead after its invalidation, also when other memory is registered, in
 * any number, after it; the first of them begins as a page does.  shift: where in a
 * page the memory of the key begins. */
static void dead_key_at(struct ctx *ctx, size_t shift)
{
    static tofu_mem_t *newer[NEWER];
    char        *other, *memory;
    tofu_rkey_t *rkey;
    tofu_mem_t  *memh;
    int         i, what;
    size_t      j;

    if (ctx->rank == 1) {
        other  = aligned_alloc(4096, NEWER * 5120);
        memset(other, 0, NEWER * SIZE);
        memory = aligned_alloc(4096, 16384);
        memset(memory, 7, 16384);
        memory += shift;
        CHECK_OK(tofu_mem_reg(ctx->md, memory, SIZE, TOFU_MEM_EXCLUSIVE, &memh));
        tofu_mkey_pack(memh, ctx->shared->rank[1].rkey);
        ctx->shared->rank[1].base = (uintptr_t)memory;
        core_barrier(ctx);
        core_barrier(ctx); /* it was used */
        CHECK(memory[0] != 7);
        memset(memory, 7, SIZE);
        CHECK_OK(tofu_mem_invalidate(memh));
        for (i = 0; i < NEWER; ++i) {
            CHECK_OK(tofu_mem_reg(ctx->md, other + i * SIZE, SIZE, 0, &newer[i]));
        }
        core_barrier(ctx);
        core_barrier(ctx); /* it was used again */
        for (j = 0; j < SIZE; ++j) {
            CHECK_EQ(memory[j], 7);
        }
        for (j = 0; j < NEWER * SIZE; ++j) {
            CHECK_EQ(other[j], 0);
        }
        for (i = 0; i < NEWER; ++i) {
            CHECK_OK(tofu_mem_dereg(newer[i]));
        }
        free(other);
        free(memory - shift);
    } else {
        memory = aligned_alloc(64, 4096);
        memset(memory, 1, 4096);
        CHECK_OK(tofu_mem_reg(ctx->md, memory, 4096, 0, &memh));
        core_barrier(ctx);
        CHECK_OK(tofu_rkey_unpack(ctx->shared->rank[1].rkey, 0, &rkey));
        for (what = 0; what < 4; ++what) {
            CHECK_OK(try_key(ctx, what, rkey, ctx->shared->rank[1].base, memory,
                             memh));
        }
        core_barrier(ctx);
        core_barrier(ctx);
        memset(memory, 1, 4096);
        for (what = 0; what < 4; ++what) {
            CHECK_EQ(try_key(ctx, what, rkey, ctx->shared->rank[1].base, memory,
                             memh),
                     TOFU_ERR_IO_ERROR);
        }
        for (j = 0; j < 64; ++j) {
            CHECK_EQ(memory[j], 1); /* nor was anything read */
        }
        core_barrier(ctx);
        tofu_rkey_release(rkey);
        CHECK_OK(tofu_mem_dereg(memh));
        free(memory);
    }
    core_barrier(ctx);
}

static void dead_key(struct ctx *ctx)
{
    core_open(ctx, NULL, 0);
    dead_key_at(ctx, 0);
    dead_key_at(ctx, 48);
    dead_key_at(ctx, 256);
    core_close(ctx);
}

/* A get that the end of the registration meets half way does not succeed with
 * what the memory is used for next. */
static void torn(struct ctx *ctx)
{
    const size_t size = 1 << 20;
    unsigned     round, i;
    char         *memory;
    tofu_mem_t   *memh;
    tofu_rkey_t  *rkey;
    struct done  done;

    core_open(ctx, NULL, 0);
    memory = aligned_alloc(4096, size);
    memset(memory, 0, size);
    for (round = 1; round <= 200; ++round) {
        if (ctx->rank == 1) {
            memset(memory, 1, size);
            CHECK_OK(tofu_mem_reg(ctx->md, memory, size, TOFU_MEM_EXCLUSIVE,
                                  &memh));
            tofu_mkey_pack(memh, ctx->shared->rank[1].rkey);
            ctx->shared->rank[1].base = (uintptr_t)memory;
            core_barrier(ctx);
            while (atomic_load(&ctx->shared->word[0]) < round) {
                tofu_iface_progress(ctx->iface);
            }
            core_usleep(next_random(&ctx->shared->rank[1].length) % 300);
            CHECK_OK(tofu_mem_invalidate(memh));
            memset(memory, 2, size);
            core_barrier(ctx);
        } else {
            tofu_status_t status;
            unsigned      tries = 0;

            CHECK_OK(tofu_mem_reg(ctx->md, memory, size, 0, &memh));
            core_barrier(ctx);
            CHECK_OK(tofu_rkey_unpack(ctx->shared->rank[1].rkey, 0, &rkey));
            do {
                tofu_iov_t iov = {memory, size, memh, 0, 1};
                done_init(&done);
                CHECK_EQ(RETRY(ctx, tofu_ep_get_zcopy(
                                            ctx->ep[1], &iov, 1,
                                            ctx->shared->rank[1].base, rkey,
                                            &done.comp)),
                         TOFU_INPROGRESS);
                atomic_store(&ctx->shared->word[0], round);
                status = done_wait(ctx, &done);
                for (i = 0; (status == TOFU_OK) && (i < size); ++i) {
                    CHECK_EQ(memory[i], 1);
                }
            } while ((status == TOFU_OK) && (++tries < 100000));
            CHECK_EQ(status, TOFU_ERR_IO_ERROR);
            tofu_rkey_release(rkey);
            CHECK_OK(tofu_mem_dereg(memh));
            core_barrier(ctx);
        }
    }
    free(memory);
    core_close(ctx);
}

/* Which registrations have a key of their own. */
static void exclusive(struct ctx *ctx)
{
    const unsigned excl = TOFU_MEM_EXCLUSIVE;
    char           *p = aligned_alloc(4096, 32768), packed[BLOB], local[8] = {0};
    tofu_mem_t     *a, *b, *c;
    tofu_rkey_t    *rkey;
    int            i;

    core_open(ctx, NULL, 0);
    memset(p, 0, 32768);
    (void)local;

    /* nobody else gets its registration, whoever came first */
    for (i = 0; i < 2; ++i) {
        CHECK_OK(tofu_mem_reg(ctx->md, p + 100, 5000, i ? excl : 0, &a));
        CHECK_OK(tofu_mem_reg(ctx->md, p + 100, 5000, i ? 0 : excl, &b));
        CHECK_OK(tofu_mem_reg(ctx->md, p + 200, 50, excl, &c));
        CHECK((a != b) && (b != c) && (a != c));
        tofu_mkey_pack(b, packed);
        CHECK_OK(tofu_rkey_unpack(packed, 0, &rkey));
        CHECK_OK(tofu_mem_invalidate(a));
        /* the other's key is as good as before */
        uint64_t value = 5 + i;
        CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[0], &value, 8,
                                              (uintptr_t)p + 104, rkey)));
        core_flush(ctx, ctx->ep[0]);
        CHECK_EQ(p[104], 5 + i);
        tofu_rkey_release(rkey);
        CHECK_OK(tofu_mem_invalidate(c));
        CHECK_OK(tofu_mem_dereg(b));
    }

    /* one that others share can't die, and says so */
    CHECK_OK(tofu_mem_reg(ctx->md, p, 5000, 0, &a));
    CHECK_OK(tofu_mem_reg(ctx->md, p + 8, 8, 0, &b));
    CHECK(a == b);
    CHECK_EQ(tofu_mem_invalidate(a), TOFU_ERR_BUSY);
    CHECK_OK(tofu_mem_dereg(a));
    CHECK_OK(tofu_mem_invalidate(b));
    /* whole pages have no other name */
    CHECK_OK(tofu_mem_reg(ctx->md, p, 8192, excl, &a));
    CHECK_OK(tofu_mem_reg(ctx->md, p, 8192, excl, &b));
    CHECK(a != b);
    CHECK_EQ(tofu_mem_invalidate(a), TOFU_ERR_BUSY);
    CHECK_OK(tofu_mem_dereg(b));
    CHECK_OK(tofu_mem_invalidate(a));

    /* in any number: STags come back */
    for (i = 0; i < 70000; ++i) {
        CHECK_OK(tofu_mem_reg(ctx->md, p + i % 4096, 100, excl, &a));
        CHECK_OK(tofu_mem_invalidate(a));
    }
    free(p);
    core_close(ctx);
}

static void pointer(struct ctx *ctx)
{
    char        *p = calloc(1, 4096), packed[BLOB];
    uint64_t    base = (uintptr_t)p;
    tofu_rkey_t *rkey;
    tofu_mem_t  *memh;
    void        *address = NULL;
    tofu_md_t   *other;

    core_open(ctx, NULL, 4096);
    CHECK_OK(tofu_md_open(core_backend(), NULL, &other));
    CHECK_OK(tofu_mem_reg(other, p, 4096, 0, &memh));
    tofu_mkey_pack(memh, packed);
    CHECK_OK(tofu_rkey_unpack(packed, 0, &rkey));
    CHECK_OK(tofu_rkey_ptr(rkey, base + 4095, &address));
    CHECK(address == p + 4095);
    CHECK_EQ(tofu_rkey_ptr(rkey, base + 4096, &address), TOFU_ERR_INVALID_ADDR);
    CHECK_EQ(tofu_rkey_ptr(rkey, base - 1, &address), TOFU_ERR_INVALID_ADDR);
    /* of this process or of none */
    CHECK_OK(tofu_rkey_ptr(ctx->rkey[ctx->rank],
                           ctx->shared->rank[ctx->rank].base, &address));
    CHECK(address == ctx->window);
    CHECK_EQ(tofu_rkey_ptr(ctx->rkey[1 - ctx->rank],
                           ctx->shared->rank[1 - ctx->rank].base, &address),
             TOFU_ERR_UNREACHABLE);
    CHECK_OK(tofu_mem_dereg(memh));
    CHECK_EQ(tofu_rkey_ptr(rkey, base, &address), TOFU_ERR_UNREACHABLE);
    tofu_md_close(other);
    CHECK_EQ(tofu_rkey_ptr(rkey, base, &address), TOFU_ERR_UNREACHABLE);
    tofu_rkey_release(rkey);
    free(p);
    core_close(ctx);
}

/* Ends of an endpoint that its user asks for. */
static void ended_ep(struct ctx *ctx)
{
    uint64_t    base = ctx->shared->rank[0].base, value = 1;
    tofu_ep_t   *ep;
    struct done done[2], flushed;

    core_open(ctx, NULL, 4096);
    base = ctx->shared->rank[0].base;
    tofu_iov_t iov = {ctx->window, 64, ctx->window_memh, 0, 1};

    /* flush with cancel: silent */
    CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0, &ep));
    CHECK_OK(RETRY(ctx, tofu_ep_put_short(ep, &value, 8, base, ctx->rkey[0])));
    while (tofu_ep_flush(ep, TOFU_FLUSH_CANCEL, NULL) != TOFU_OK) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK_EQ(*(uint64_t *)ctx->window, 1); /* what was sent did arrive */
    CHECK_EQ(tofu_ep_put_short(ep, &value, 8, base, ctx->rkey[0]),
             TOFU_ERR_CANCELED);
    CHECK_EQ(tofu_ep_am_short(ep, 1, 0, NULL, 0), TOFU_ERR_CANCELED);
    CHECK_EQ(tofu_ep_put_zcopy(ep, &iov, 1, base, ctx->rkey[0], NULL),
             TOFU_ERR_CANCELED);
    CHECK_EQ(tofu_ep_flush(ep, 0, NULL), TOFU_ERR_CANCELED);
    CHECK_OK(tofu_ep_flush(ep, TOFU_FLUSH_CANCEL, NULL));
    tofu_iface_progress(ctx->iface);
    CHECK_EQ(ctx->ep_errors, 0);
    tofu_ep_destroy(ep);

    /* invalidation: in flight and flush say it, the handler is called once */
    CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0, &ep));
    done_init(&done[0]);
    done_init(&done[1]);
    done_init(&flushed);
    CHECK_EQ(tofu_ep_put_zcopy(ep, &iov, 1, base + 1000, ctx->rkey[0],
                               &done[0].comp), TOFU_INPROGRESS);
    CHECK_EQ(tofu_ep_get_zcopy(ep, &iov, 1, base + 2000, ctx->rkey[0],
                               &done[1].comp), TOFU_INPROGRESS);
    CHECK_EQ(tofu_ep_flush(ep, 0, &flushed.comp), TOFU_INPROGRESS);
    CHECK_OK(tofu_ep_invalidate(ep));
    CHECK_OK(tofu_ep_invalidate(ep));
    CHECK_OK(tofu_ep_put_short(ep, NULL, 0, 0, ctx->rkey[0])); /* not yet */
    CHECK_EQ(ctx->ep_errors, 0); /* from progress only */
    CHECK_EQ(done_wait(ctx, &done[0]), TOFU_ERR_CANCELED);
    CHECK_EQ(done_wait(ctx, &done[1]), TOFU_ERR_CANCELED);
    CHECK_EQ(done_wait(ctx, &flushed), TOFU_ERR_CANCELED);
    for (int i = 0; i < 100; ++i) {
        tofu_iface_progress(ctx->iface);
    }
    CHECK_EQ(ctx->ep_errors, 1);
    CHECK(ctx->failed_ep == ep);
    CHECK_EQ(ctx->failed_status, TOFU_ERR_CANCELED);
    tofu_ep_destroy(ep);

    /* another one to the same peer is none the worse */
    CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[0], &value, 8, base,
                                          ctx->rkey[0])));
    tofu_iface_flush(ctx->iface, 0, NULL); /* its status is that of the ends above */
    core_flush(ctx, ctx->ep[0]);
    core_close(ctx);
}

/* Requests of many endpoints that want the same scarce thing get it in turn. */
#define EPS      40
#define REQUESTS 50

struct sender {
    tofu_pending_req_t req;
    struct ctx         *ctx;
    tofu_ep_t          *ep;
    unsigned           sent, least; /* least: of all when it sent the last time */
    struct done        done[REQUESTS];
};

static struct sender senders[EPS];
static unsigned      spread;

static int8_t send_some(tofu_pending_req_t *self)
{
    struct sender *s   = (struct sender *)self;
    tofu_iov_t    iov  = {s->ctx->window, 4096, s->ctx->window_memh, 0, 1};
    unsigned      least = ~0u, i;
    tofu_status_t status;

    status = tofu_ep_put_zcopy(s->ep, &iov, 1, s->ctx->shared->rank[0].base + 8192,
                               s->ctx->rkey[0], &s->done[s->sent].comp);
    if (status == TOFU_ERR_NO_RESOURCE) {
        return status;
    }
    CHECK_EQ(status, TOFU_INPROGRESS);
    ++s->sent;
    for (i = 0; i < EPS; ++i) {
        least = (senders[i].sent < least) ? senders[i].sent : least;
    }
    spread = (s->sent - least > spread) ? s->sent - least : spread;
    return (s->sent == REQUESTS) ? TOFU_OK : TOFU_INPROGRESS;
}

static void fair(struct ctx *ctx)
{
    tofu_iface_config_t config;
    struct done         block[4];
    unsigned            i, j, left;

    tofu_iface_config_default(&config);
    config.tx_notified    = 4;
    config.early_complete = 0;
    core_open(ctx, &config, 65536);
    tofu_iov_t iov = {ctx->window, 4096, ctx->window_memh, 0, 1};
    for (i = 0; i < EPS; ++i) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0,
                                &senders[i].ep));
        senders[i].ctx      = ctx;
        senders[i].req.func = send_some;
        for (j = 0; j < REQUESTS; ++j) {
            done_init(&senders[i].done[j]);
        }
    }
    /* nothing is left, so that all have to queue */
    for (i = 0; i < 4; ++i) {
        done_init(&block[i]);
        j = (unsigned)tofu_ep_put_zcopy(ctx->ep[0], &iov, 1,
                                        ctx->shared->rank[0].base + 8192,
                                        ctx->rkey[0], &block[i].comp);
        CHECK(((tofu_status_t)j == TOFU_INPROGRESS) ||
              ((tofu_status_t)j == TOFU_ERR_NO_RESOURCE));
        block[i].called = ((tofu_status_t)j == TOFU_INPROGRESS) ? 0 : 1;
    }
    for (i = 0; i < EPS; ++i) {
        CHECK_EQ(tofu_ep_put_zcopy(senders[i].ep, &iov, 1,
                                   ctx->shared->rank[0].base + 8192,
                                   ctx->rkey[0], &senders[i].done[0].comp),
                 TOFU_ERR_NO_RESOURCE);
        CHECK_OK(tofu_ep_pending_add(senders[i].ep, &senders[i].req));
    }
    do {
        tofu_iface_progress(ctx->iface);
        for (left = 0, i = 0; i < EPS; ++i) {
            left += REQUESTS - senders[i].sent;
        }
    } while (left > 0);
    CHECK(spread <= 1); /* nobody gets two turns before everybody had one */
    for (i = 0; i < EPS; ++i) {
        for (j = 0; j < REQUESTS; ++j) {
            CHECK_OK(done_wait(ctx, &senders[i].done[j]));
        }
        tofu_ep_destroy(senders[i].ep);
    }
    for (i = 0; i < 4; ++i) {
        while (!block[i].called) {
            tofu_iface_progress(ctx->iface);
        }
    }
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"dead_key", 2, 60, dead_key, 0},
        {"torn", 2, 90, torn, 0},
        {"exclusive", 1, 60, exclusive, 0},
        {"pointer", 2, 30, pointer, 0},
        {"ended_ep", 1, 30, ended_ep, 0},
        {"fair", 1, 60, fair, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
