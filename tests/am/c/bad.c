/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bad.c - what nobody of ours sends: rank 2 forges by uTofu itself, while ranks 0
 * and 1 go on exchanging messages whose data and order are checked.
 */
#include "am_test.h"

#include <tofu_internal.h>
#include <tofu_am.h>

enum { VICTIM, HONEST, FORGER };
enum { WORD_STAGE = 0, WORD_DONE = 1, WORD_STOP = 2, WORD_SLOT = 3,
       WORD_MAILBOX = 4, WORD_NONCE = 5, WORD_GRANT = 6, WORD_GRANT_NONCE = 7,
       WORD_PAUSE = 8 };

#define NOTIFIED (UTOFU_ONESIDED_FLAG_STRONG_ORDER | \
                  UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)

static uint64_t next_of[MAX_RANKS], next_out;
static unsigned log_lines;

static void on_log(int level, const char *message)
{
    if (level <= 1) {
        ++log_lines;
        fprintf(stderr, "log: %s\n", message);
    }
}

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    struct am_head head = am_check(data, length);

    (void)arg;
    (void)flags;
    CHECK(head.from < MAX_RANKS);
    CHECK_EQ(head.number, next_of[head.from]);
    ++next_of[head.from];
    return TOFU_OK;
}

/* Progress, and one more message to `to` if there is room. */
static void traffic(struct ctx *ctx, int to)
{
    char            buffer[1000];
    size_t          length = (next_out % 3 == 0) ? 1000 : 24;
    uint64_t        word   = am_head((unsigned)ctx->rank, next_out);
    struct am_bytes bytes  = {buffer, length};
    intptr_t        ret;

    am_make(buffer, length, word);
    ret = (length > 32) ? tofu_ep_am_bcopy(ctx->ep[to], 1, am_pack, &bytes) :
                          tofu_ep_am_short(ctx->ep[to], 1, word, buffer + 8,
                                           (unsigned)length - 8);
    CHECK((ret >= 0) || (ret == TOFU_ERR_NO_RESOURCE));
    next_out += ret >= 0;
    core_idle(ctx->iface);
}

static uint64_t dropped(struct ctx *ctx)
{
    tofu_iface_stats_t stats;

    tofu_iface_get_stats(ctx->iface, &stats);
    return stats.dropped;
}

static uint64_t get(struct ctx *ctx, unsigned word)
{
    return atomic_load(&ctx->shared->word[word]);
}

static void set(struct ctx *ctx, unsigned word, uint64_t value)
{
    atomic_store(&ctx->shared->word[word], value);
}

/* Rank 0 exchanges messages with rank 1 until the forger has done a stage, all that
 * it should drop has come, and 200 more messages have. */
static void stage(struct ctx *ctx, unsigned n, unsigned drops, unsigned lines)
{
    uint64_t before = dropped(ctx), first;
    unsigned lines_before = log_lines;
    double   end = core_now() + 20;

    set(ctx, WORD_STAGE, n);
    while ((get(ctx, WORD_DONE) < n) || (dropped(ctx) - before < drops)) {
        traffic(ctx, HONEST);
        if (core_now() > end) {
            FAIL("stage %u: %llu of %u dropped", n,
                 (unsigned long long)(dropped(ctx) - before), drops);
        }
    }
    for (first = next_of[HONEST]; next_of[HONEST] < first + 200;) {
        traffic(ctx, HONEST);
        CHECK(core_now() < end);
    }
    printf("stage %u: %llu dropped, %u log lines\n", n,
           (unsigned long long)(dropped(ctx) - before), log_lines - lines_before);
    CHECK_EQ(dropped(ctx) - before, drops);
    CHECK_EQ(log_lines - lines_before, lines);
    CHECK_EQ(ctx->ep_errors, 0);
}

/* ------------------------------------------------------------ the forger */

struct forge {
    const struct tofu_functions *fn;
    utofu_vcq_hdl_t             vcq; /* not the core's */
    utofu_vcq_id_t              id, target;
    uint32_t                    incarnation; /* of the target */
    unsigned                    slots;       /* its STag for them */
};

static void drain(struct forge *f)
{
    struct utofu_mrq_notice notice;
    void                    *cbdata;

    while (f->fn->poll_tcq(f->vcq, 0, &cbdata) != UTOFU_ERR_NOT_FOUND) {
    }
    while (f->fn->poll_mrq(f->vcq, 0, &notice) != UTOFU_ERR_NOT_FOUND) {
    }
}

/* What the compare-and-swap that was just posted found. */
static uint64_t old_value(struct forge *f)
{
    struct utofu_mrq_notice notice;
    int                     code;

    do {
        code = f->fn->poll_mrq(f->vcq, 0, &notice);
    } while ((code == UTOFU_ERR_NOT_FOUND) ||
             (notice.notice_type != UTOFU_MRQ_TYPE_LCL_ARMW));
    CHECK_EQ(code, 0);
    return notice.rmt_value;
}

static void forge_open(struct ctx *ctx, struct forge *f)
{
    utofu_tni_id_t *tnis;
    size_t         n;

    f->fn = &core_backend()->fn;
    CHECK_EQ(f->fn->get_onesided_tnis(&tnis, &n), 0);
    CHECK_EQ(f->fn->create_vcq(tnis[0], 0, &f->vcq), 0);
    free(tnis);
    CHECK_EQ(f->fn->query_vcq_id(f->vcq, &f->id), 0);
    memcpy(&f->target, ctx->shared->rank[VICTIM].address + 8, 8);
    memcpy(&f->incarnation, ctx->shared->rank[VICTIM].address + 32, 4);
    f->slots = tofu_slots_stag(ctx->iface, 0, f->incarnation);
}

static void poke(struct forge *f, unsigned stag, uint64_t offset,
                 const void *data, size_t length, unsigned edata,
                 unsigned long flags)
{
    char          copy[32];
    utofu_stadd_t stadd;

    memcpy(copy, data, length);
    CHECK_EQ(f->fn->query_stadd(f->target, stag, &stadd), 0);
    while (f->fn->put_piggyback(f->vcq, f->target, copy, stadd + offset, length,
                                edata, flags, NULL) == UTOFU_ERR_BUSY) {
        drain(f);
    }
    drain(f);
}

static void wait_stage(struct ctx *ctx, unsigned n)
{
    WAIT_FOR(ctx, 40, get(ctx, WORD_STAGE) == n);
}

/* By the VCQ that slots are lent to: a message that is not one, in the slot whose
 * turn it is, and then a good one in the next.  A small one is too long, a large one ends
 * in front of where it should begin. */
static void abuse_slot(struct ctx *ctx, unsigned cls, size_t length)
{
    tofu_iface_t       *iface = ctx->iface;
    tofu_chan_class_t  *c     = &ctx->ep[VICTIM]->chan->cls[cls];
    static uint32_t    buffer[64] __attribute__((aligned(256)));
    utofu_stadd_t      stadd;

    WAIT_FOR(ctx, 20, c->left > 1);
    CHECK_EQ(iface->fn.reg_mem(iface->vcq, buffer, sizeof(buffer), 0, &stadd), 0);
    CHECK_EQ(iface->fn.put(iface->vcq, ctx->ep[VICTIM]->chan->vcq_id, stadd,
                           c->next, length,
                           TOFU_EDATA((cls == TOFU_AM_SMALL) ?
                                              TOFU_KIND_AM_SMALL :
                                              TOFU_KIND_AM_LARGE, 1),
                           NOTIFIED, NULL), 0);
    ctx->ep[VICTIM]->chan->turn += TOFU_TURN;
    --c->left;
    c->next += c->size;
    if (c->next == c->end) {
        c->next = c->begin;
    }
    core_usleep(1000);
    CHECK_EQ(iface->fn.dereg_mem(iface->vcq, stadd, 0), 0);
}

static void send_to_victim(struct ctx *ctx, uint64_t n)
{
    for (n += next_out; next_out < n;) {
        traffic(ctx, VICTIM);
    }
    core_flush(ctx, ctx->ep[VICTIM]);
}

static void forger(struct ctx *ctx)
{
    uint64_t     junk[4] = {0x1111, 0x2222, 0x3333, 0x4444}, word;
    struct forge f;
    unsigned     i, slot;

    forge_open(ctx, &f);
    wait_stage(ctx, 1); /* an id without a handler */
    for (i = 0; i < 10; ++i) {
        CHECK_OK(RETRY(ctx, tofu_ep_am_short(ctx->ep[VICTIM], 9, i, NULL, 0)));
    }
    core_flush(ctx, ctx->ep[VICTIM]);
    set(ctx, WORD_DONE, 1);

    wait_stage(ctx, 2); /* notices of every EDATA, where no message of ours ends */
    slot = (unsigned)get(ctx, WORD_SLOT);
    for (i = 0; i < 256; ++i) {
        /* behind the message in a slot of rank 1; the scratch page */
        poke(&f, f.slots,
             (slot + i % 64) * TOFU_AM_SMALL_SIZE + TOFU_MAX_SHORT + 8, junk, 1,
             i, NOTIFIED);
        poke(&f, TOFU_STAG_SCRATCH, 512, junk, 8, i, NOTIFIED);
    }
    set(ctx, WORD_DONE, 2);

    wait_stage(ctx, 3); /* requests in entries that are not claimed, or out of place */
    for (i = 0; i < 64; ++i) {
        poke(&f, TOFU_STAG_REQUEST, i * 64 + 40, junk, 8,
             TOFU_EDATA(TOFU_KIND_REQUEST, 0), NOTIFIED);
    }
    set(ctx, WORD_DONE, 3);

    wait_stage(ctx, 4); /* bad messages in slots of its own; good ones after them */
    send_to_victim(ctx, 6);
    abuse_slot(ctx, TOFU_AM_SMALL, 48);
    abuse_slot(ctx, TOFU_AM_LARGE, TOFU_AM_FRONT - 1);
    send_to_victim(ctx, 300);
    set(ctx, WORD_DONE, 4);

    wait_stage(ctx, 5); /* credits and answers that were never given */
    i    = (unsigned)get(ctx, WORD_MAILBOX) * 64;
    word = 5000 | (((get(ctx, WORD_NONCE) >> 32) + 128) & 0xff) << 24 |
           (get(ctx, WORD_NONCE) & 0xffff) << 48;
    poke(&f, TOFU_STAG_MAILBOX, i, &word, 8, 0, 0);
    word = (get(ctx, WORD_NONCE) + 2) << 32 | TOFU_ANSWER_RELEASED;
    poke(&f, TOFU_STAG_MAILBOX, i + 32, &word, 8, 0, 0);
    word = get(ctx, WORD_NONCE) + 2;
    poke(&f, TOFU_STAG_MAILBOX, i + 40, &word, 8, 0, 0);
    poke(&f, TOFU_STAG_MAILBOX, i + 8, junk, 16, 0, 0);
    set(ctx, WORD_DONE, 5);

    /* a grant of slots that do not exist, in place of this rank's own answer */
    while (get(ctx, WORD_STAGE) != 6) {
        sched_yield();
    }
    i       = (unsigned)get(ctx, WORD_GRANT) * 64;
    junk[0] = 1000000 | 50ull << 32;
    junk[1] = 1000000 | 50ull << 32;
    junk[3] = (get(ctx, WORD_GRANT_NONCE) + 2) << 32 | TOFU_ANSWER_GRANTED;
    poke(&f, TOFU_STAG_MAILBOX, i + 8, junk, 32, 0,
         UTOFU_ONESIDED_FLAG_STRONG_ORDER);
    set(ctx, WORD_DONE, 6);
    while (get(ctx, WORD_STAGE) != 7) {
        sched_yield();
    }
    junk[3] = get(ctx, WORD_GRANT_NONCE) << 32 | TOFU_ANSWER_GRANTED;
    poke(&f, TOFU_STAG_MAILBOX, i + 8, junk, 32, 0,
         UTOFU_ONESIDED_FLAG_STRONG_ORDER);
    set(ctx, WORD_DONE, 7);
    core_barrier_asleep(ctx); /* or it would answer itself */
    CHECK_EQ(f.fn->free_vcq(f.vcq), 0);
}

/* ------------------------------------------------------------- the others */

static void honest(struct ctx *ctx)
{
    while (!get(ctx, WORD_STOP)) {
        traffic(ctx, VICTIM);
        if (get(ctx, WORD_PAUSE) == 1) {
            set(ctx, WORD_PAUSE, 2);
            while (get(ctx, WORD_PAUSE) == 2) {
                core_usleep(1000);
            }
        }
    }
    core_flush(ctx, ctx->ep[VICTIM]);
    core_barrier(ctx);
}

static void victim(struct ctx *ctx)
{
    tofu_chan_t *chan;
    double      end;
    uint64_t    sent;
    unsigned    quiet;

    WAIT_FOR(ctx, 20, next_of[HONEST] > 0);
    while (next_out < 10) {
        traffic(ctx, HONEST);
    }
    set(ctx, WORD_SLOT, ctx->ep[HONEST]->peer->lender->loan[0].begin);
    stage(ctx, 1, 10, 1);
    stage(ctx, 2, 512, 2); /* as messages, and as requests */
    stage(ctx, 3, 64, 0);
    stage(ctx, 4, 2, 0);
    WAIT_FOR(ctx, 20, next_of[FORGER] == 306);

    /* while rank 1 tells nothing, and all credit is used: what the forger says of
     * it is not believed, and what rank 1 says later is */
    set(ctx, WORD_PAUSE, 1);
    WAIT_FOR(ctx, 20, get(ctx, WORD_PAUSE) == 2);
    for (quiet = 0; quiet < 20000; ++quiet) { /* the last report may be on its way */
        sent = next_out;
        traffic(ctx, HONEST);
        quiet = (sent == next_out) ? quiet : 0;
    }
    sent = next_out;
    chan = ctx->ep[HONEST]->chan;
    CHECK((chan->cls[0].left == 0) || (chan->cls[1].left == 0));
    CHECK_EQ(chan->state, TOFU_CHAN_OPEN);
    set(ctx, WORD_MAILBOX, chan->mailbox_index);
    /* and the count of large ones, so that the forger can be far from it */
    set(ctx, WORD_NONCE, chan->nonce | (uint64_t)chan->cls[1].acked << 32);
    set(ctx, WORD_STAGE, 5);
    WAIT_FOR(ctx, 20, get(ctx, WORD_DONE) == 5);
    for (end = core_now() + 0.05; core_now() < end;) {
        traffic(ctx, HONEST);
        CHECK_EQ(next_out, sent);
        CHECK_EQ(chan->state, TOFU_CHAN_OPEN);
    }
    set(ctx, WORD_PAUSE, 0);
    end = core_now() + 20;
    while (next_out < sent + 1000) {
        traffic(ctx, HONEST);
        CHECK(core_now() < end);
    }
    CHECK_EQ(chan->state, TOFU_CHAN_OPEN);
    CHECK_EQ(chan->nonce, get(ctx, WORD_NONCE) & 0xffffffffu);
    CHECK_EQ(ctx->ep_errors, 0);

    /* rank 2 does not call progress now, so the answer is the forged one */
    CHECK_OK(tofu_ep_am_short(ctx->ep[FORGER], 1, 0, NULL, 0)); /* it waits */
    chan = ctx->ep[FORGER]->chan;
    WAIT_FOR(ctx, 20, chan->state == TOFU_CHAN_ASKED);
    set(ctx, WORD_GRANT, chan->mailbox_index);
    set(ctx, WORD_GRANT_NONCE, chan->nonce);
    set(ctx, WORD_STAGE, 6); /* of another loan */
    WAIT_FOR(ctx, 20, get(ctx, WORD_DONE) == 6);
    for (end = core_now() + 0.05; core_now() < end;) {
        traffic(ctx, HONEST);
        CHECK_EQ(chan->state, TOFU_CHAN_ASKED);
        CHECK_EQ(ctx->ep_errors, 0);
    }
    set(ctx, WORD_STAGE, 7); /* of this one */
    end = core_now() + 20;
    while (ctx->ep_errors == 0) {
        traffic(ctx, HONEST);
        CHECK(core_now() < end);
    }
    CHECK(ctx->failed_ep == ctx->ep[FORGER]);
    CHECK_EQ(ctx->failed_status, TOFU_ERR_IO_ERROR);
    for (sent = next_of[HONEST]; next_of[HONEST] < sent + 200;) {
        traffic(ctx, HONEST);
        CHECK(core_now() < end);
    }
    CHECK_EQ(ctx->ep_errors, 1);
    set(ctx, WORD_STOP, 1);
    core_flush(ctx, ctx->ep[HONEST]);
    core_barrier(ctx);
}

static void forged(struct ctx *ctx)
{
    tofu_set_log(on_log);
    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    core_barrier(ctx);
    if (ctx->rank == VICTIM) {
        victim(ctx);
    } else if (ctx->rank == HONEST) {
        honest(ctx);
    } else {
        forger(ctx);
    }
    core_close(ctx);
}

/* ------------------------------------------------------------------- fuzz */

/* One forged put that leaves alone what ranks 0 and 1 have in flight: the first 32
 * bytes of small slots, messages in large ones, claimed entries, and mailboxes in
 * use.  Everything else may be written to by anybody who knows the VCQ ID. */
static void fuzz_one(struct ctx *ctx, struct forge *f, uint64_t *random)
{
    uint64_t      data[4], x = next_random(random), offset;
    size_t        length = 1 + (x >> 8) % 32;
    unsigned      i, edata = (unsigned)(x >> 16) & 0xff;
    unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER;

    for (i = 0; i < 4; ++i) {
        data[i] = next_random(random) % 2 ? next_random(random) :
                                            next_random(random) % 64;
    }
    if (x & 1) {
        flags |= UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
    }
    switch ((x >> 1) % 5) {
    case 0: /* of a small slot what no message of 24 bytes is in */
        offset = (x >> 24) % 1024 * TOFU_AM_SMALL_SIZE + TOFU_MAX_SHORT +
                 (x >> 40) % (TOFU_POLLED_TAIL - 2 * TOFU_MAX_SHORT - 24);
        poke(f, f->slots, offset, data, length, edata, flags);
        break;
    case 1: /* behind the message in a large slot, over its end sometimes */
        offset = 1024 * TOFU_AM_SMALL_SIZE + (x >> 24) % 512 * 8448 + 2000 + (x >> 40) % 6400;
        poke(f, f->slots, offset, data, length, edata, flags);
        break;
    case 2: /* scratch, its recall word too */
        poke(f, TOFU_STAG_SCRATCH, (x >> 24) % 4000, data, length, edata, flags);
        break;
    case 3: /* mailboxes that are not in use */
        offset = ((f->incarnation >> 7) + 64 + (x >> 24) % 900) % 1024 * 64 + (x >> 40) % 33;
        poke(f, TOFU_STAG_MAILBOX, offset, data, length, edata, flags);
        break;
    default: { /* an entry, properly claimed, then a request that is nearly good */
        unsigned      entry = (x >> 24) % 64;
        utofu_stadd_t stadd;

        drain(f);
        CHECK_EQ(f->fn->query_stadd(f->target, TOFU_STAG_REQUEST, &stadd), 0);
        CHECK_EQ(f->fn->cswap8(f->vcq, f->target, 0, f->id ^ TOFU_CLAIM_KEY,
                               stadd + entry * 64, 0,
                               UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                       UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                               NULL), 0);
        data[1] = old_value(f);
        drain(f);
        if ((data[1] != 0) && (data[1] != (f->id ^ TOFU_CLAIM_KEY))) {
            break; /* the honest one's: its request would be lost */
        }
        data[0] = x << 32 | TOFU_REQUEST_MAGIC << 16 | (x >> 32) % 4;
        data[1] = next_random(random);
        data[2] = (x >> 40) % 4 ? f->id : data[1];
        /* sometimes wrong, sometimes for who had the VCQ before */
        data[3] = data[0] ^ data[1] ^ data[2] ^ f->incarnation ^
                  ((uint64_t)((x >> 44) % 4 == 0) << 40) ^ ((x >> 48) % 4 == 0);
        poke(f, TOFU_STAG_REQUEST, entry * 64 + 8, data, 32,
             TOFU_EDATA(TOFU_KIND_REQUEST, 0),
             UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                     UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
    }
    }
    (void)ctx;
}

/* Batches of 64, each read by the victim before the next, so that it is not the
 * MRQ that ends it. */
static void fuzz(struct ctx *ctx)
{
    double       end;
    uint64_t     random = am_setting("AM_SEED", 1), batches = 0, first;
    struct forge f;
    unsigned     i;

    tofu_set_log(on_log);
    core_open(ctx, NULL, 0);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    core_barrier(ctx);
    end = core_now() + am_setting("AM_SECONDS", 3);
    if (ctx->rank == HONEST) {
        honest(ctx);
    } else if (ctx->rank == FORGER) {
        forge_open(ctx, &f);
        while (core_now() < end) {
            for (i = 0; i < 64; ++i) {
                fuzz_one(ctx, &f, &random);
            }
            set(ctx, WORD_DONE, ++batches);
            WAIT_FOR(ctx, 20, get(ctx, WORD_STAGE) == batches);
        }
        CHECK_EQ(f.fn->free_vcq(f.vcq), 0);
        set(ctx, WORD_STOP, 2);
        core_barrier(ctx);
    } else {
        while (get(ctx, WORD_STOP) == 0) {
            uint64_t done = get(ctx, WORD_DONE);

            for (i = 0; i < 16; ++i) {
                traffic(ctx, HONEST);
            }
            set(ctx, WORD_STAGE, done);
        }
        batches = get(ctx, WORD_DONE);
        end     = core_now() + 20;
        core_flush(ctx, ctx->ep[HONEST]);
        first = next_of[HONEST];
        core_barrier(ctx);
        printf("%llu forged puts, %llu dropped, %u log lines; %llu messages came\n",
               (unsigned long long)batches * 64,
               (unsigned long long)dropped(ctx), log_lines,
               (unsigned long long)first);
        CHECK(dropped(ctx) > batches);
        CHECK(first > 500);
        CHECK(log_lines <= 3); /* one of each kind */
        CHECK_EQ(ctx->ep_errors, 0);
    }
    core_close(ctx);
}

/* -------------------------------------------------------------- addresses */

static uint32_t crc32_of(const unsigned char *p, size_t size)
{
    uint32_t crc = ~0u;
    int      i;

    while (size-- > 0) {
        crc ^= *p++;
        for (i = 0; i < 8; ++i) {
            crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1));
        }
    }
    return ~crc;
}

/* Whole addresses (their checksum is right) that are not for us. */
static void addresses(struct ctx *ctx)
{
    static const struct {
        const char *what;
        size_t     offset, bytes;
        uint32_t   value;
        const char *reason;
    } bad[] = {
        {"magic", 0, 4, 0x12345678, "not an iface address"},
        {"version", 4, 2, 2, "version 2"},
        {"small slots of another size", 6, 2, 128, "can't be"},
        {"one small slot", 16, 4, 1, "can't be"},
        {"no large slot", 20, 4, 0, "can't be"},
        {"large slots too small", 24, 4, 64, "can't be"},
        {"a lead over the end of its slot", 27, 1, 255, "can't be"},
        {"shorter messages", 28, 4, 100, "am_seg_size"},
        {"a port that can't be", 7, 1, 64, "port 64"},
        {"no VCQ ID", 8, 8, 0xffffffff, "no VCQ ID"},
        {"of who had this VCQ before", 32, 4, 0x5eed, "is gone"}
    };
    unsigned char bytes[TOFU_ADDRESS_SIZE];
    char          reason[256];
    tofu_ep_t     *ep = NULL;
    unsigned      i, before;
    uint32_t      crc;

    tofu_set_log(on_log);
    core_open(ctx, NULL, 0);
    for (i = 0; i < sizeof(bad) / sizeof(*bad); ++i) {
        memcpy(bytes, ctx->shared->rank[0].address, sizeof(bytes));
        memset(bytes + bad[i].offset, 0xff, bad[i].bytes);
        memcpy(bytes + bad[i].offset, &bad[i].value,
               (bad[i].bytes < 4) ? bad[i].bytes : 4);
        crc = crc32_of(bytes, 36);
        memcpy(bytes + 36, &crc, 4);
        before = log_lines;
        if (tofu_ep_create(ctx->iface, bytes, sizeof(bytes), &ep) == TOFU_OK) {
            FAIL("accepted: %s", bad[i].what);
        }
        CHECK_EQ(log_lines - before, 1);
        CHECK(!tofu_iface_is_reachable(ctx->iface, ctx->shared->rank[0].device, 0,
                                       bytes, 0, reason, sizeof(reason)));
        if (strstr(reason, bad[i].reason) == NULL) {
            FAIL("%s: refused with \"%s\"", bad[i].what, reason);
        }
    }
    core_close(ctx);
}

static int8_t on_nothing(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg, (void)data, (void)flags;
    FAIL("a message of %zu bytes for another", length);
    return TOFU_OK;
}

/* Rank 0 has the address of who had the VCQ of rank 1 before, or shared it: what it sends
 * there does not come to rank 1, and its endpoint fails; one to rank 1 itself is fine
 * after that. */
static void successor(struct ctx *ctx)
{
    unsigned char bytes[TOFU_ADDRESS_SIZE];
    char          text[8] = "a word", reason[256];
    tofu_ep_t     *ep;
    tofu_status_t status;
    uint32_t      crc;
    unsigned      round, errors = 0;

    core_open(ctx, NULL, 0);
    if (ctx->rank == 1) {
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 2, on_nothing, NULL));
        CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
        core_barrier(ctx);
        while (next_of[0] < 10) {
            tofu_iface_progress(ctx->iface);
        }
        core_barrier(ctx);
        core_close(ctx);
        return;
    }
    tofu_ep_destroy(ctx->ep[1]);
    ctx->ep[1] = NULL;
    for (round = 0; round < 6; ++round) {
        memcpy(bytes, ctx->shared->rank[1].address, sizeof(bytes));
        if (round < 3) {
            bytes[32 + round] ^= 0x20;
        } else {
            bytes[7] = (unsigned char)(20 + round * 5); /* a port where nobody is */
        }
        crc = crc32_of(bytes, 36);
        memcpy(bytes + 36, &crc, 4);
        /* not to be seen from here */
        CHECK(tofu_iface_is_reachable(ctx->iface, ctx->shared->rank[1].device, 0,
                                      bytes, 0, reason, sizeof(reason)));
        CHECK_OK(tofu_ep_create(ctx->iface, bytes, sizeof(bytes), &ep));
        do {
            status = tofu_ep_am_short(ep, 2, 0, text, sizeof(text));
            tofu_iface_progress(ctx->iface);
        } while ((ctx->ep_errors == errors) &&
                 ((status == TOFU_OK) || (status == TOFU_ERR_NO_RESOURCE)));
        while (ctx->ep_errors == errors) {
            tofu_iface_progress(ctx->iface);
        }
        CHECK_EQ(ctx->ep_errors, ++errors);
        CHECK(ctx->failed_ep == ep);
        CHECK_EQ(ctx->failed_status, TOFU_ERR_ENDPOINT_TIMEOUT);
        CHECK_EQ(tofu_ep_am_short(ep, 2, 0, text, sizeof(text)),
                 TOFU_ERR_ENDPOINT_TIMEOUT);
        tofu_ep_destroy(ep);
    }
    CHECK_OK(tofu_ep_create(ctx->iface, ctx->shared->rank[1].address,
                            TOFU_ADDRESS_SIZE, &ctx->ep[1]));
    core_barrier(ctx);
    while (next_out < 10) {
        traffic(ctx, 1);
    }
    core_flush(ctx, ctx->ep[1]);
    core_barrier(ctx);
    CHECK_EQ(ctx->ep_errors, errors);
    core_close(ctx);
}

/* What a sender must not send is refused, not cut. */
static void oversized(struct ctx *ctx)
{
    static char       big[9000];
    tofu_iov_t        iov   = {big, 8192, NULL, 0, 1};
    tofu_iface_attr_t attr;
    uint64_t          posts;
    tofu_iface_stats_t stats;

    core_open(ctx, NULL, 0);
    tofu_iface_query(ctx->iface, &attr);
    CHECK_OK(tofu_iface_set_am_handler(ctx->iface, 1, on_message, NULL));
    while (next_of[0] < 10) { /* to itself, so there is credit */
        traffic(ctx, 0);
    }
    core_flush(ctx, ctx->ep[0]);
    tofu_iface_get_stats(ctx->iface, &stats);
    posts = stats.posts;
    CHECK_EQ(tofu_ep_am_short(ctx->ep[0], 1, 0, big,
                              (unsigned)attr.max_am_short - 7),
             TOFU_ERR_INVALID_PARAM);
    CHECK_EQ(tofu_ep_am_short(ctx->ep[0], 1, 0, big, ~0u), TOFU_ERR_INVALID_PARAM);
    CHECK_EQ(tofu_ep_am_short(ctx->ep[0], 32, 0, big, 8), TOFU_ERR_INVALID_PARAM);
    iov.length = attr.max_am_short + 1;
    CHECK(tofu_ep_am_short_iov(ctx->ep[0], 1, &iov, 1) < 0);
    iov.length = attr.max_am_zcopy;
    CHECK(tofu_ep_am_zcopy(ctx->ep[0], 1, big, 1, &iov, 1, NULL) < 0);
    iov.length = 8;
    CHECK(tofu_ep_am_zcopy(ctx->ep[0], 1, big, (unsigned)attr.max_am_hdr + 1,
                           &iov, 1, NULL) < 0);
    CHECK(tofu_ep_am_zcopy(ctx->ep[0], 99, big, 0, &iov, 1, NULL) < 0);
    tofu_iface_get_stats(ctx->iface, &stats);
    CHECK_EQ(stats.posts, posts);
    core_close(ctx);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"forged", 3, 90, forged, 0},
        {"fuzz", 3, 90, fuzz, 0},
        {"addresses", 1, 30, addresses, 0},
        {"successor", 2, 30, successor, 0},
        {"oversized", 1, 30, oversized, 0}
    };
    return core_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
