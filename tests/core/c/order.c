/* SPDX-License-Identifier: BSD-3-Clause */
/* flush, fence, completions, loader, performance attributes. */
#include "core_test.h"

#define WORDS 512

/* After a flush the memory of the peer holds everything, with no call there. */
static void flush(struct ctx *ctx)
{
    uint64_t    *window, value;
    unsigned    round, i;
    struct done done;

    core_open(ctx, NULL, WORDS * 8);
    window = (uint64_t *)ctx->window;
    for (round = 1; round <= 300; ++round) {
        if (ctx->rank == 0) {
            for (i = 0; i < WORDS; ++i) {
                value = round * 1000000ull + i;
                CHECK_OK(RETRY(ctx, tofu_ep_put_short(
                                            ctx->ep[1], &value, 8,
                                            ctx->shared->rank[1].base + i * 8,
                                            ctx->rkey[1])));
            }
            switch (round % 4) {
            case 0:
                core_flush(ctx, ctx->ep[1]);
                break;
            case 1: {
                tofu_status_t status;
                done_init(&done);
                while ((status = tofu_ep_flush(ctx->ep[1], 0, &done.comp)) ==
                       TOFU_ERR_NO_RESOURCE) {
                    tofu_iface_progress(ctx->iface);
                }
                CHECK_EQ(status, TOFU_INPROGRESS);
                CHECK_OK(done_wait(ctx, &done));
                break;
            }
            case 2: {
                tofu_status_t status;
                done_init(&done);
                while ((status = tofu_iface_flush(ctx->iface, 0, &done.comp)) ==
                       TOFU_ERR_NO_RESOURCE) {
                    tofu_iface_progress(ctx->iface);
                }
                CHECK_EQ(status, TOFU_INPROGRESS);
                CHECK_OK(done_wait(ctx, &done));
                break;
            }
            default: {
                tofu_status_t status;
                while ((status = tofu_iface_flush(ctx->iface, 0, NULL)) !=
                       TOFU_OK) {
                    CHECK((status == TOFU_INPROGRESS) ||
                          (status == TOFU_ERR_NO_RESOURCE));
                    tofu_iface_progress(ctx->iface);
                }
            }
            }
            /* nothing is left to flush */
            CHECK_OK(tofu_ep_flush(ctx->ep[1], 0, &done.comp));
            CHECK_OK(tofu_iface_flush(ctx->iface, 0, &done.comp));
        }
        core_barrier_asleep(ctx);
        if (ctx->rank == 1) {
            for (i = 0; i < WORDS; ++i) {
                CHECK_EQ(window[i], round * 1000000ull + i);
            }
        }
        core_barrier_asleep(ctx);
    }
    core_close(ctx);
}

/* Flushes of several kinds of operation in flight complete in order. */
static void flush_many(struct ctx *ctx)
{
    tofu_mem_t  *memh;
    size_t      length = 65536;
    void        *address;
    struct done zcopy[16], flushed[16];
    uint64_t    old[16];
    unsigned    round, i;

    core_open(ctx, NULL, 65536);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    for (round = 0; (round < 300) && (ctx->rank == 0); ++round) {
        for (i = 0; i < 16; ++i) {
            int peer = (int)(i % (unsigned)ctx->size);
            done_init(&zcopy[i]);
            done_init(&flushed[i]);
            if (i % 2) {
                tofu_iov_t iov = {address, 100 + i, memh, 0, 1};
                CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(
                                            ctx->ep[peer], &iov, 1,
                                            ctx->shared->rank[peer].base,
                                            ctx->rkey[peer], &zcopy[i].comp)),
                         TOFU_INPROGRESS);
            } else {
                CHECK_EQ(RETRY(ctx, tofu_ep_atomic_fetch(
                                            ctx->ep[peer], TOFU_ATOMIC_ADD, 8, 1,
                                            &old[i],
                                            ctx->shared->rank[peer].base + 4096,
                                            ctx->rkey[peer], &zcopy[i].comp)),
                         TOFU_INPROGRESS);
            }
            intptr_t s = (i % 4 == 3) ?
                                 RETRY(ctx, tofu_iface_flush(ctx->iface, 0, &flushed[i].comp)) :
                                 RETRY(ctx, tofu_ep_flush(ctx->ep[peer], 0,
                                                          &flushed[i].comp));
            CHECK_EQ(s, TOFU_INPROGRESS);
        }
        for (i = 0; i < 16; ++i) {
            CHECK_OK(done_wait(ctx, &flushed[i]));
            CHECK_EQ(zcopy[i].called, 1);
            CHECK_EQ(zcopy[i].comp.status, TOFU_OK);
        }
    }
    CHECK_OK(tofu_mem_free(memh));
    core_barrier(ctx);
    core_close(ctx);
}

/* Put, fence, AM: the handler sees what was put.  Strong order or not. */
static uint64_t fenced;
static uint64_t *fence_window;

static int8_t on_fenced(void *arg, void *data, size_t length, unsigned flags)
{
    uint64_t number;
    unsigned i;

    (void)length;
    (void)flags;
    memcpy(&number, data, 8);
    CHECK_EQ(number, fenced + 1);
    for (i = 0; i < 4; ++i) {
        if (fence_window[i * 512] != number) {
            FAIL("message %llu came before its put: word %u is %llu",
                 (unsigned long long)number, i,
                 (unsigned long long)fence_window[i * 512]);
        }
    }
    fenced = number;
    atomic_store((_Atomic uint64_t *)arg, number);
    return TOFU_OK;
}

static void fence_with(struct ctx *ctx, int strong)
{
    tofu_iface_config_t config;
    tofu_iface_stats_t  before, after;
    uint64_t            number;
    unsigned            i;

    tofu_iface_config_default(&config);
    config.strong_order = strong;
    core_open(ctx, &config, 65536);
    fence_window = (uint64_t *)ctx->window;
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 7, on_fenced,
                                       &ctx->shared->word[0]));
    core_barrier(ctx);
    for (number = 1; number <= 2000; ++number) {
        if (ctx->rank == 0) {
            for (i = 0; i < 4; ++i) {
                CHECK_OK(RETRY(ctx, tofu_ep_put_short(
                                            ctx->ep[1], &number, 8,
                                            ctx->shared->rank[1].base + i * 4096,
                                            ctx->rkey[1])));
            }
            if (number % 3 == 0) {
                CHECK_OK(tofu_iface_fence(ctx->iface));
            } else {
                CHECK_OK(tofu_ep_fence(ctx->ep[1]));
            }
            /* the emulator does things in order anyhow, so look whether a flush
             * put goes before the message, every time */
            tofu_iface_get_stats(ctx->iface, &before);
            CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[1], 7, number, NULL,
                                                 0)));
            tofu_iface_get_stats(ctx->iface, &after);
            CHECK((after.posts - after.credit_tx) -
                          (before.posts - before.credit_tx) >= 2);
            if (number % 5 == 0) {
                /* and back: the put comes after the message was seen */
                CHECK_OK(tofu_ep_fence(ctx->ep[1]));
            }
            while (atomic_load(&ctx->shared->word[0]) < number) {
                tofu_iface_progress(ctx->iface);
            }
        } else {
            while (fenced < number) {
                tofu_iface_progress(ctx->iface);
            }
        }
    }
    core_barrier(ctx);
    core_close(ctx);
}

static void fence(struct ctx *ctx)
{
    fence_with(ctx, 1);
}

static void fence_weak(struct ctx *ctx)
{
    fence_with(ctx, 0);
}

/* Puts, fence, get of the same words: it reads what was put.  STRONG_ORDER alone does
 * not say so (2.2.10). */
static void fence_then_get(struct ctx *ctx)
{
    size_t        length = 4096;
    tofu_mem_t    *memh;
    void          *address;
    uint64_t      number, base, *words;
    unsigned      i;

    core_open(ctx, NULL, 65536);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    words = address;
    base  = ctx->shared->rank[1].base;
    for (number = 1; (number <= 1000) && (ctx->rank == 0); ++number) {
        tofu_iov_t  iov = {&words[8 * (number % 2)], 8 * 8, memh, 0, 1};
        tofu_iov_t  put = {&words[128], 8, memh, 0, 1};
        struct done done, zcopy;
        uint64_t    stats = 0;

        words[128] = number;
        done_init(&zcopy);
        for (i = 0; i < 8; ++i) {
            if ((number % 3 == 0) && (i == 7)) {
                CHECK_EQ(RETRY(ctx, tofu_ep_put_zcopy(ctx->ep[1], &put, 1, base + i * 8,
                                                      ctx->rkey[1], &zcopy.comp)),
                         TOFU_INPROGRESS);
            } else {
                CHECK_OK(RETRY(ctx, tofu_ep_put_short(ctx->ep[1], &number, 8, base + i * 8,
                                                      ctx->rkey[1])));
            }
        }
        if (number % 2 == 0) {
            CHECK_OK(tofu_iface_fence(ctx->iface));
        } else {
            CHECK_OK(tofu_ep_fence(ctx->ep[1]));
        }
        done_init(&done);
        CHECK_EQ(RETRY(ctx, tofu_ep_get_zcopy(ctx->ep[1], &iov, 1, base, ctx->rkey[1],
                                              &done.comp)),
                 TOFU_INPROGRESS);
        CHECK_OK(done_wait(ctx, &done));
        for (i = 0; i < 8; ++i) {
            stats += ((uint64_t *)iov.buffer)[i] == number;
        }
        CHECK_EQ(stats, 8);
        if (number % 3 == 0) {
            CHECK_OK(done_wait(ctx, &zcopy));
        }
    }
    core_barrier(ctx);
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* Ops in flight when their ep is destroyed, or the iface closed: every completion
 * is called, once. */
static void abandoned(struct ctx *ctx)
{
    tofu_iface_config_t config;
    tofu_mem_t          *memh;
    size_t              length = 65536;
    void                *address;
    struct done         done[64], flushed;
    tofu_iface_t        *iface;
    tofu_ep_t           *ep;
    tofu_iov_t          iov;
    unsigned            i, pass;

    core_open(ctx, NULL, 65536);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    iov = (tofu_iov_t){address, 2000, memh, 0, 1};
    tofu_iface_config_default(&config);
    config.early_complete = 0; /* operations are to be in flight */
    config.rndv_split  = 100;
    config.tx_notified = 8;
    for (pass = 0; pass < 3; ++pass) {
        unsigned posted = 0;

        CHECK_OK(tofu_iface_open(ctx->md, &config, &iface));
        CHECK_OK(tofu_ep_create(iface, ctx->shared->rank[0].address, 0, &ep));
        for (i = 0; i < 64; ++i) {
            done_init(&done[i]);
        }
        done_init(&flushed);
        iov.length = 50;
        for (i = 0; i < 4; ++i) {
            CHECK_EQ(tofu_ep_put_zcopy(ep, &iov, 1, ctx->shared->rank[0].base,
                                       ctx->rkey[0], &done[posted].comp),
                     TOFU_INPROGRESS);
            ++posted;
        }
        if (pass == 2) {
            CHECK_EQ(tofu_ep_flush(ep, 0, &flushed.comp), TOFU_INPROGRESS);
        }
        iov.length = 2000; /* stops after some pieces */
        CHECK_EQ(tofu_ep_put_zcopy(ep, &iov, 1, ctx->shared->rank[0].base,
                                   ctx->rkey[0], &done[posted].comp),
                 TOFU_INPROGRESS);
        ++posted;
        CHECK_EQ(tofu_ep_put_zcopy(ep, &iov, 1, ctx->shared->rank[0].base,
                                   ctx->rkey[0], &done[posted].comp),
                 TOFU_ERR_NO_RESOURCE);
        if (pass == 1) {
            /* what is not posted is dropped, the rest completes */
            while (tofu_ep_flush(ep, TOFU_FLUSH_CANCEL, NULL) != TOFU_OK) {
                tofu_iface_progress(iface);
            }
            CHECK_EQ(done[4].called, 1);
            CHECK_EQ(done[4].comp.status, TOFU_ERR_CANCELED);
            for (i = 0; i < 4; ++i) {
                CHECK_EQ(done[i].comp.status, TOFU_OK);
            }
        }
        tofu_ep_destroy(ep);
        if (pass != 2) {
            for (i = 0; i < 100; ++i) {
                tofu_iface_progress(iface);
            }
            for (i = 0; i < posted; ++i) {
                CHECK_EQ(done[i].called, 1);
            }
        }
        tofu_iface_close(iface);
        for (i = 0; i < posted; ++i) {
            CHECK_EQ(done[i].called, 1);
        }
        CHECK_EQ(flushed.called, pass == 2);
    }
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

static void loader(struct ctx *ctx)
{
    const struct tofu_backend *backend, *again;
    char                      err[2048];

    (void)ctx;
    CHECK(tofu_backend_load("nonsense", &backend, err, sizeof(err)) == -1);
    CHECK(strstr(err, "nonsense") != NULL);
    CHECK(tofu_backend_load("tofu", &backend, err, sizeof(err)) == -1);
    CHECK(strstr(err, "libtofucom.so") != NULL);
    CHECK(tofu_backend_load("tofu", &backend, err, 8) == -1); /* no room */
    CHECK(strlen(err) == 7);
    CHECK(tofu_backend_load("emulator", &backend, err, sizeof(err)) == 0);
    CHECK(backend->kind == TOFU_BACKEND_EMULATOR);
    CHECK(backend->num_tnis > 0);
    CHECK(strstr(backend->path, "libtofucom.so") != NULL);
    CHECK(tofu_backend_load(NULL, &again, err, sizeof(err)) == 0);
    CHECK(again == backend);
    CHECK(tofu_backend_load("tofu", &again, err, sizeof(err)) == -1);
    CHECK(strstr(err, "already") != NULL);
    CHECK(!strcmp(tofu_code_name(UTOFU_ERR_MRQ_PEER), "UTOFU_ERR_MRQ_PEER"));
    CHECK(tofu_code_name(12345) != NULL);
    CHECK_EQ(tofu_status_from_code(UTOFU_ERR_BUSY), TOFU_ERR_NO_RESOURCE);
    CHECK_EQ(tofu_status_from_code(12345), TOFU_ERR_IO_ERROR);
    /* every function of the table is there */
#define X(ret, name, args) CHECK(backend->fn.name != NULL);
#include <tofu_dl_functions.h>
#undef X
}

/* The TOQ as seen by an iface: full as long as `full` says so. */
static int full;
static struct tofu_backend toq_backend;

static int full_put_piggyback8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t id, uint64_t data,
                               utofu_stadd_t stadd, size_t length, uint64_t edata,
                               unsigned long flags, void *cbdata)
{
    return full ? UTOFU_ERR_BUSY :
                  core_backend()->fn.put_piggyback8(vcq, id, data, stadd, length, edata,
                                                    flags, cbdata);
}

static int full_cswap8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t id, uint64_t old_value,
                       uint64_t new_value, utofu_stadd_t stadd, uint64_t edata,
                       unsigned long flags, void *cbdata)
{
    return full ? UTOFU_ERR_BUSY :
                  core_backend()->fn.cswap8(vcq, id, old_value, new_value, stadd, edata,
                                            flags, cbdata);
}

struct refused {
    tofu_pending_req_t req;
    tofu_ep_t          *ep;
    struct done        done;
    int                calls;
};

static int8_t run_refused(tofu_pending_req_t *req)
{
    struct refused *r = (struct refused *)req;
    tofu_status_t  status;

    full = (r->calls++ < 3);
    if (!full) {
        status = tofu_ep_flush(r->ep, 0, &r->done.comp);
        CHECK_EQ(status, TOFU_INPROGRESS);
        return TOFU_OK;
    }
    CHECK_EQ(tofu_ep_flush(r->ep, 0, &r->done.comp), TOFU_ERR_NO_RESOURCE);
    full = 0; /* now there is room; it will be found when the request is called again */
    CHECK_EQ(tofu_ep_flush(r->ep, 0, &r->done.comp), TOFU_ERR_NO_RESOURCE);
    return TOFU_ERR_NO_RESOURCE;
}

/* A flush that was refused in a queued request is refused until that returns: who tries
 * twice would have started two. */
static void flush_refused(struct ctx *ctx)
{
    struct refused r;
    uint64_t       value = 0x1122334455667788ull;
    tofu_iface_t   *second;
    tofu_md_t      *md;

    core_open(ctx, NULL, 4096);
    toq_backend                   = *core_backend();
    toq_backend.fn.put_piggyback8 = full_put_piggyback8;
    toq_backend.fn.cswap8         = full_cswap8;
    CHECK_OK(tofu_md_open(&toq_backend, NULL, &md));
    CHECK_OK(tofu_iface_open(md, NULL, &second));
    memset(&r, 0, sizeof(r));
    CHECK_OK(tofu_ep_create(second, ctx->shared->rank[0].address, 0, &r.ep));
    done_init(&r.done);
    CHECK_OK(tofu_ep_put_short(r.ep, &value, 8, ctx->shared->rank[0].base,
                               ctx->rkey[0]));
    full = 1;
    CHECK_EQ(tofu_ep_flush(r.ep, 0, NULL), TOFU_ERR_NO_RESOURCE);
    CHECK_OK(tofu_ep_pending_add(r.ep, &r.req));
    r.req.func = run_refused;
    while (!r.done.called) {
        tofu_iface_progress(second);
        tofu_iface_progress(ctx->iface);
    }
    CHECK_EQ(r.calls, 4);
    CHECK_EQ(r.done.called, 1);
    CHECK(!memcmp(ctx->window, &value, 8));
    CHECK_EQ(tofu_ep_flush(r.ep, 0, NULL), TOFU_OK);
    tofu_ep_destroy(r.ep);
    tofu_iface_close(second);
    tofu_md_close(md);
    core_close(ctx);
}

/* More ifaces than a node has VCQs, as they share; then a clear refusal; none is lost. */
static void many_ifaces(struct ctx *ctx)
{
    tofu_iface_config_t config;
    enum { VCQS = 432, MANY = 2000 }; /* VCQS: of a node */
    static tofu_iface_t *iface[MANY];
    tofu_status_t       status;
    unsigned            n, first = 0, pass;

    core_open(ctx, NULL, 0);
    tofu_iface_config_default(&config);
    config.rx_slots       = 4;
    config.rx_short_slots = 4;
    config.tx_bounce      = 2;
    for (pass = 0; pass < 2; ++pass) {
        for (n = 0; n < MANY; ++n) {
            status = tofu_iface_open(ctx->md, &config, &iface[n]);
            if (status != TOFU_OK) {
                CHECK_EQ(status, TOFU_ERR_NO_DEVICE);
                break;
            }
        }
        CHECK((n > VCQS) && (n < MANY));
        CHECK((pass == 0) || (n == first));
        first = n;
        while (n > 0) {
            tofu_iface_close(iface[--n]);
        }
    }
    core_close(ctx);
}

/* An ep is abandoned with operations in flight: then their buffers are free, though
 * messages of the peer come meanwhile, which are not lost. */
static int8_t abandoned_message(void *arg, void *data, size_t length, unsigned flags)
{
    uint64_t *came = arg, number;

    (void)flags;
    CHECK_EQ(length, sizeof(number));
    memcpy(&number, data, sizeof(number));
    CHECK_EQ(number, *came);
    ++*came;
    return TOFU_OK;
}

static void abandoned_buffers(struct ctx *ctx)
{
    enum { PASSES = 60, PIECE = 3000, PIECES = 4, MESSAGES = 20 };
    char          expected[PIECE];
    tofu_mem_t    *memh;
    size_t        length = (PIECES + 1) * PIECE;
    void          *address;
    char          *buffer;
    struct done   done[PIECES + 1];
    tofu_ep_t     *ep;
    uint64_t      came = 0, sent = 0;
    unsigned      i, k, pass;

    core_open(ctx, NULL, PIECES * PIECE);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    buffer = address;
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 3, abandoned_message, &came));
    core_barrier(ctx);
    for (pass = 0; pass < PASSES; ++pass) {
        if (ctx->rank == 1) {
            for (i = 0; i < MESSAGES; ++i, ++sent) {
                CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[0], 3, sent, NULL, 0)));
            }
        } else {
            CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address, 0, &ep));
            for (i = 0; i <= PIECES; ++i) {
                tofu_iov_t iov = {buffer + i * PIECE, PIECE, memh, 0, 1};
                intptr_t   status;

                fill(buffer + i * PIECE, PIECE, pass * 8 + i);
                done_init(&done[i]);
                status = (i < PIECES) ?
                                 RETRY(ctx, tofu_ep_put_zcopy(ep, &iov, 1,
                                                              ctx->shared->rank[1].base +
                                                                      i * PIECE,
                                                              ctx->rkey[1], &done[i].comp)) :
                                 RETRY(ctx, tofu_ep_get_zcopy(ep, &iov, 1,
                                                              ctx->shared->rank[1].base,
                                                              ctx->rkey[1], &done[i].comp));
                CHECK_EQ(status, TOFU_INPROGRESS);
            }
            tofu_ep_abandon(ep);
            for (i = 0; i <= PIECES; ++i) {
                CHECK_EQ(done[i].called, 1);
            }
            memset(buffer, 0x5a, length);
            core_usleep(1000);
            for (i = 0; i < 100; ++i) {
                tofu_iface_progress(ctx->iface);
            }
            for (i = 0; i < length; ++i) {
                CHECK_EQ(buffer[i], 0x5a);
            }
        }
        core_barrier(ctx);
        for (k = 0; (ctx->rank == 1) && (k < PIECES); ++k) {
            fill(expected, PIECE, pass * 8 + k);
            CHECK(!memcmp(ctx->window + k * PIECE, expected, PIECE));
        }
        core_barrier(ctx);
    }
    if (ctx->rank == 0) {
        PROGRESS_UNTIL(ctx, 10, came == PASSES * MESSAGES);
    }
    core_barrier(ctx);
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

/* What does not come within a second is not waited for, and not by each ep anew. */
static void abandoned_stuck(struct ctx *ctx)
{
    enum { EPS = 3, LENGTH = 1000 };
    tofu_mem_t  *memh;
    size_t      length = LENGTH;
    void        *address;
    struct done done[EPS];
    tofu_ep_t   *ep[EPS];
    tofu_iov_t  iov;
    double      begin, took;
    unsigned    i;

    CHECK(setenv("UTOFU_EMU_FAULT", "put:delay=2500000", 1) == 0);
    core_open(ctx, NULL, EPS * LENGTH);
    CHECK_OK(tofu_mem_alloc(ctx->md, &length, 0, &address, &memh));
    fill(address, LENGTH, 1);
    iov = (tofu_iov_t){address, LENGTH, memh, 0, 1};
    for (i = 0; i < EPS; ++i) {
        CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[0].address, 0, &ep[i]));
        done_init(&done[i]);
        CHECK_EQ(tofu_ep_put_zcopy(ep[i], &iov, 1,
                                   ctx->shared->rank[0].base + i * LENGTH,
                                   ctx->rkey[0], &done[i].comp),
                 TOFU_INPROGRESS);
    }
    begin = core_now();
    for (i = 0; i < EPS; ++i) {
        tofu_ep_abandon(ep[i]);
        CHECK_EQ(done[i].called, 1);
        CHECK_EQ(done[i].comp.status, TOFU_ERR_CANCELED);
        took = core_now() - begin;
        CHECK((took > 0.9) && (took < 2));
    }
    PROGRESS_UNTIL(ctx, 10, matches(ctx->window + (EPS - 1) * LENGTH, LENGTH, 1));
    PROGRESS_UNTIL(ctx, 10, tofu_iface_flush(ctx->iface, 0, NULL) == TOFU_OK);
    for (i = 0; i < EPS; ++i) {
        CHECK_EQ(done[i].called, 1);
    }
    CHECK_OK(tofu_mem_free(memh));
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"flush", 2, 60, flush, 0},
        {"flush_many", 3, 60, flush_many, 0},
        {"fence", 2, 60, fence, 0},
        {"fence_weak", 2, 60, fence_weak, 0},
        {"fence_then_get", 2, 60, fence_then_get, 0},
        {"flush_refused", 1, 30, flush_refused, 0},
        {"abandoned", 1, 30, abandoned, 0},
        {"abandoned_buffers", 2, 40, abandoned_buffers, 0},
        {"abandoned_stuck", 1, 40, abandoned_stuck, 0},
        {"loader", 1, 30, loader, 0},
        {"many_ifaces", 1, 60, many_ifaces, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
