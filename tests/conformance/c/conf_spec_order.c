/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_spec_order.c - in which order memory is read and written, seen by CPUs
 * that change it or look at it meanwhile (2.2.10, 6.1.3.1).
 */
#include "harness.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define LINE 256

static uint64_t load(const volatile void *address)
{
    return atomic_load_explicit((const volatile _Atomic uint64_t *)address,
                                memory_order_acquire);
}

static void store(volatile void *address, uint64_t value)
{
    atomic_store_explicit((volatile _Atomic uint64_t *)address, value,
                          memory_order_release);
}

/* ------------------------------------------- lines, written without the flag */

/* Rank 0 puts lines of one word with these flags; rank 1 sees word poll of each
 * line change and then must see the whole line. */
static void whole_lines(enum conf_kind kind, size_t poll, unsigned long flags)
{
    static const size_t counts[] = {1, 2, 5, 16, 64};
    enum { ROUNDS = 4000, WORDS = LINE / 8 };
    struct conf_vcq vcq;
    struct conf_mem mem, ack;
    utofu_stadd_t   stadds[2], acks[2];
    uint64_t       *data, value, round, i;
    size_t          n, line, turn, more; /* words of one more line: a flag behind the data */
    unsigned        spins = 0;

    conf_timeout(60);
    conf_pin();
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, kind, 65 * LINE);
    conf_mem_alloc(&ack, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    conf_reg_all(&vcq, ack.addr, 4096, acks);
    data = (uint64_t *)mem.addr;
    for (round = 1; round <= ROUNDS; round++) {
        n     = counts[round % CONF_LEN(counts)];
        more  = round / CONF_LEN(counts) % 3;
        value = round * UINT64_C(0x9e3779b97f4a7c15);
        if (conf_rank == 0) {
            for (i = 0; i < n * WORDS + more; i++) {
                data[i] = value;
            }
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadds[0],
                                         stadds[1], n * LINE + more * 8, 0, flags,
                                         NULL));
            while (load(ack.addr) != round) {
                conf_relax(&spins);
            }
            if (flags & CONF_LMRQ) {
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 0,
                                NULL);
            }
            continue;
        }
        /* Begin with another line each time: whichever comes first is seen. */
        for (turn = 0; turn < n; turn++) {
            line = (round / CONF_LEN(counts) + turn) % n;
            while (load(&data[line * WORDS + poll]) != value) {
                if (++spins % 16384 == 0) {
                    sched_yield();
                }
            }
            for (i = WORDS; i-- > 0;) {
                CONF_CHECK(load(&data[line * WORDS + i]) == value,
                           "%s, %zu lines, round %" PRIu64 ": word %zu of line "
                           "%zu is new, word %" PRIu64 " is not",
                           conf_kind_name(kind), n, round, poll, line, i);
            }
        }
        while ((more != 0) && (load(&data[n * WORDS + more - 1]) != value)) {
            conf_relax(&spins);
        }
        CONF_CHECK((more < 2) || (load(&data[n * WORDS]) == value), "round %" PRIu64 ": the last word is new, the one "
                   "before it is not", round);
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[0], round,
                                                acks[0], 8, 0, CONF_STRONG,
                                                NULL));
        if (flags & CONF_RMRQ) {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[0], 0, NULL);
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_dereg(&vcq, acks[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
    conf_mem_free(&ack);
}

/* Both put at once, wait for their local notice and then look at what the other one put: one of them at least
 * sees it.  (A lock of two flags rests on that.) */
static void put_then_look(unsigned long flags, unsigned before)
{
    enum { ROUNDS = 30000 };
    struct conf_vcq vcq;
    struct conf_mem mem, seen;
    utofu_stadd_t   stadds[2], seens[2];
    uint64_t       *mine, *its, i, j;
    unsigned        other = 1 - (unsigned)conf_rank;

    conf_timeout(60);
    conf_pin();
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 8192);
    conf_mem_alloc(&seen, CONF_MEM_MEMFD, 2 * (ROUNDS + 1) * 8);
    memset(mem.addr, 0, mem.size);
    memset(seen.addr, 0, seen.size);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    conf_reg_all(&vcq, seen.addr, seen.size, seens);
    mine = (uint64_t *)seen.addr;
    its  = mine + ROUNDS + 1;
    conf_barrier();
    for (i = 1; i <= ROUNDS; i++) {
        for (unsigned k = 1; k <= before; k++) {
            CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[other], i, stadds[other] + 4096 + k * LINE, 8, 0,
                                                    flags, NULL));
        }
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[other], i, stadds[other] + (unsigned)conf_rank * LINE, 8,
                                                0, flags | CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[other], 0, NULL);
        mine[i] = load(mem.addr + other * LINE);
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_get(vcq.hdl, vcq.peer[1], seens[0] + (ROUNDS + 1) * 8, seens[1], (ROUNDS + 1) * 8, 0, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 0, NULL);
        for (i = 1; i <= ROUNDS; i++) {
            j = mine[i] + 1; /* the other one's round that was not seen yet */
            if ((j > 1) && (j <= ROUNDS)) {
                CONF_CHECK(its[j] >= i, "rank 0 did not see put %" PRIu64 " after its own %" PRIu64 ", nor rank 1 that "
                           "after its own", j, i);
            }
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_dereg(&vcq, seens[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
    conf_mem_free(&seen);
}

CONF_TEST("2.2.3", local_notice_then_look, 2,
          "after the local notice of a put nobody misses it who looks later: of two that put and then look at least one "
          "sees what the other one put")
{
    put_then_look(CONF_STRONG, 0);
    put_then_look(CONF_STRONG, 2);
    put_then_look(0, 0);
}

CONF_TEST("2.2.10", line_by_last_word_shared, 2,
          "a put without STRONG_ORDER is complete when the last word of every "
          "cache line of its target changed (shared memory)")
{
    whole_lines(CONF_MEM_MEMFD, LINE / 8 - 1, 0);
}

CONF_TEST("2.2.10", line_by_last_word_private, 2,
          "a put without STRONG_ORDER is complete when the last word of every "
          "cache line of its target changed (private memory)")
{
    whole_lines(CONF_MEM_ANON, LINE / 8 - 1, 0);
}

CONF_TEST("2.2.10", line_by_last_word_local_notice, 2,
          "the same of a put with a local notice (private memory)")
{
    whole_lines(CONF_MEM_ANON, LINE / 8 - 1, CONF_LMRQ);
}

CONF_TEST("2.2.10", line_by_last_word_remote_notice, 2,
          "the same of a put with a remote notice that nobody waits for "
          "(private memory)")
{
    whole_lines(CONF_MEM_ANON, LINE / 8 - 1, CONF_RMRQ);
}

CONF_TEST("2.2.10", line_by_last_word_strong, 2,
          "the same of each line of a put with STRONG_ORDER (private memory)")
{
    whole_lines(CONF_MEM_ANON, LINE / 8 - 1, CONF_STRONG);
}

/* A thread that sees what a get brings: the last word of each line, then the rest. */
struct watcher {
    pthread_t         thread;
    const uint64_t    *data;
    _Atomic(uint64_t) value, seen; /* what to wait for; what was seen whole */
    _Atomic(size_t)   lines;
};

static void *watch(void *arg)
{
    enum { WORDS = LINE / 8 };
    struct watcher *w    = arg;
    uint64_t        last = 0, value;
    size_t          n, turn, line, i;
    unsigned        spins = 0;

    for (;;) {
        while ((value = atomic_load(&w->value)) == last) {
            conf_relax(&spins);
        }
        if (value == UINT64_MAX) {
            return NULL;
        }
        n = atomic_load(&w->lines);
        for (turn = 0; turn < n; turn++) {
            line = (value + turn) % n;
            while (load(&w->data[line * WORDS + WORDS - 1]) != value) {
                if (++spins % 16384 == 0) {
                    sched_yield();
                }
            }
            for (i = WORDS; i-- > 0;) {
                CONF_CHECK(load(&w->data[line * WORDS + i]) == value,
                           "get of %zu lines, value %#" PRIx64 ": the last "
                           "word of line %zu is new, word %zu is not", n,
                           value, line, i);
            }
        }
        last = value;
        atomic_store(&w->seen, value);
    }
}

/* Rank 0 gets lines of one word while a thread of its own looks at them. */
static void whole_lines_of_get(enum conf_kind kind, unsigned long flags)
{
    static const size_t counts[] = {1, 2, 5, 16, 64};
    enum { ROUNDS = 2000, WORDS = LINE / 8 };
    struct conf_vcq vcq;
    struct conf_mem from, to;
    utofu_stadd_t   stadds[2], to_stadds[2];
    struct watcher  w = {0};
    uint64_t        value, round, i;
    size_t          n;
    unsigned        spins = 0;

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&from, kind, 64 * LINE);
    conf_mem_alloc(&to, CONF_MEM_ANON, 64 * LINE);
    conf_reg_all(&vcq, from.addr, from.size, stadds);
    conf_reg_all(&vcq, to.addr, to.size, to_stadds);
    memset(to.addr, 0, to.size);
    w.data = (const uint64_t *)to.addr;
    if (conf_rank == 0) {
        CONF_CHECK(pthread_create(&w.thread, NULL, watch, &w) == 0,
                   "pthread_create");
    }
    for (round = 1; round <= ROUNDS; round++) {
        n     = counts[round % CONF_LEN(counts)];
        value = round * UINT64_C(0x9e3779b97f4a7c15);
        if (conf_rank == 1) {
            for (i = 0; i < n * WORDS; i++) {
                ((uint64_t *)from.addr)[i] = value;
            }
        }
        conf_barrier();
        if (conf_rank == 0) {
            atomic_store(&w.lines, n);
            atomic_store(&w.value, value);
            CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], to_stadds[0],
                                         stadds[1], n * LINE, 0,
                                         flags | CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 0, NULL);
            while (atomic_load(&w.seen) != value) {
                conf_relax(&spins);
            }
        }
        conf_barrier();
    }
    if (conf_rank == 0) {
        atomic_store(&w.value, UINT64_MAX);
        pthread_join(w.thread, NULL);
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_dereg(&vcq, to_stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&from);
    conf_mem_free(&to);
}

CONF_TEST("2.2.10", line_of_get_by_last_word_shared, 2,
          "what a get writes is complete when the last word of every cache "
          "line changed (from shared memory)")
{
    whole_lines_of_get(CONF_MEM_MEMFD, 0);
}

CONF_TEST("2.2.10", line_of_get_by_last_word_private, 2,
          "what a get writes is complete when the last word of every cache "
          "line changed (from private memory)")
{
    whole_lines_of_get(CONF_MEM_ANON, 0);
}

CONF_TEST("2.2.10", line_of_get_by_last_word_strong, 2,
          "the same of a get with STRONG_ORDER (from private memory)")
{
    whole_lines_of_get(CONF_MEM_ANON, CONF_STRONG);
}

CONF_TEST("2.2.10", line_by_any_word, 2,
          "a cache line of the target changes as a whole: whichever word of it "
          "is seen to change, the others have changed too")
{
    if (conf_is_emulator()) {
        conf_skip("no CPU stores 256 bytes at once: docs/emulator.md, Order");
    }
    whole_lines(CONF_MEM_MEMFD, 3, 0);
}

/* -------------------------------------------------- reads under STRONG_ORDER */

/* A thread that counts: it writes the words in this order, then begins anew. */
struct counter {
    pthread_t         thread;
    volatile uint64_t *first;
    volatile uint64_t *second;
    _Atomic bool      stop;
};

static void *count(void *arg)
{
    struct counter *c = arg;
    uint64_t        n;

    for (n = 1; !atomic_load_explicit(&c->stop, memory_order_relaxed); n++) {
        store(c->first, n);
        store(c->second, n);
    }
    return NULL;
}

static void counter_start(struct counter *c, void *first, void *second)
{
    c->first  = first;
    c->second = second;
    atomic_store(&c->stop, false);
    CONF_CHECK(pthread_create(&c->thread, NULL, count, c) == 0,
               "pthread_create");
}

static void counter_stop(struct counter *c)
{
    atomic_store(&c->stop, true);
    pthread_join(c->thread, NULL);
}

enum { READ_SIZE = 65536, READ_VALUES = 20 };
#define READ_TIME 0.1 /* seconds that a loop of reads takes at least */

/* Goes on for a while, until the counting thread really ran meanwhile; on a
 * machine that is busy with other things a few values must do. */
struct pace {
    double   least, most, last_resort;
    uint64_t last;
    unsigned values;
};

static struct pace pace_start(void)
{
    double now = conf_now();

    return (struct pace){now + READ_TIME, now + 0.5, now + CONF_WAIT, 0, 0};
}

static bool pace_goes_on(struct pace *pace, uint64_t value)
{
    double now = conf_now();

    if (value == pace->last) {
        sched_yield(); /* to the thread that counts */
    } else {
        pace->values++;
        pace->last = value;
    }
    if (pace->values < 2) {
        CONF_CHECK(now < pace->last_resort, "the other side does not count");
        return true;
    }
    return now < ((pace->values < READ_VALUES) ? pace->most : pace->least);
}

struct reads {
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];
    uint64_t        got[READ_SIZE / 8];
    utofu_stadd_t   got_stadds[2];
};

static void reads_open(struct reads *r, enum conf_kind kind)
{
    conf_timeout(60);
    conf_vcq_open(&r->vcq, 0, 0);
    conf_mem_alloc(&r->mem, kind, READ_SIZE);
    conf_reg_all(&r->vcq, r->mem.addr, READ_SIZE, r->stadds);
    conf_reg_all(&r->vcq, r->got, sizeof(r->got), r->got_stadds);
}

static void reads_close(struct reads *r)
{
    conf_dereg(&r->vcq, r->stadds[conf_rank]);
    conf_dereg(&r->vcq, r->got_stadds[conf_rank]);
    conf_vcq_close(&r->vcq);
    conf_mem_free(&r->mem);
}

/* A get of word A, then a STRONG_ORDER get of word B, which the target's CPU
 * writes before A: B must not be older. */
static void get_after_get(enum conf_kind kind)
{
    static struct reads r;
    struct counter      c;
    struct pace         pace;

    reads_open(&r, kind);
    if (conf_rank == 1) {
        counter_start(&c, r.mem.addr + 4096, r.mem.addr);
        conf_barrier();
        counter_stop(&c);
    }
    pace = pace_start();
    while ((conf_rank == 0) && pace_goes_on(&pace, r.got[0])) {
        CONF_POST(r.vcq.hdl, utofu_get(r.vcq.hdl, r.vcq.peer[1],
                                       r.got_stadds[0], r.stadds[1], 8, 1, 0,
                                       NULL));
        CONF_POST(r.vcq.hdl, utofu_get(r.vcq.hdl, r.vcq.peer[1],
                                       r.got_stadds[0] + 8, r.stadds[1] + 4096,
                                       8, 2, CONF_STRONG | CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&r.vcq, UTOFU_MRQ_TYPE_LCL_GET, r.vcq.peer[1], 2, NULL);
        CONF_CHECK(r.got[1] >= r.got[0], "the first get read %" PRIu64
                   ", the second, later, %" PRIu64, r.got[0], r.got[1]);
    }
    if (conf_rank == 0) {
        conf_barrier();
    }
    reads_close(&r);
}

CONF_TEST("2.2.10", strong_get_reads_after_get_shared, 2,
          "a STRONG_ORDER get reads after the get before it has read (shared "
          "memory)")
{
    get_after_get(CONF_MEM_MEMFD);
}

CONF_TEST("2.2.10", strong_get_reads_after_get_private, 2,
          "a STRONG_ORDER get reads after the get before it has read (private "
          "memory)")
{
    get_after_get(CONF_MEM_ANON);
}

/* An operation that reads memory in which the CPU writes a word of the last line
 * before one of the first line: the last line is read last, so its word must not
 * be older.  get: rank 0 reads rank 1's memory; put: rank 0's own is read. */
static void last_line_read_last(enum conf_kind kind, bool get)
{
    static const size_t sizes[] = {512, 1024, 4096, 16384, READ_SIZE};
    static struct reads r;
    struct counter      c;
    struct pace         pace;
    size_t              s, size, late;

    reads_open(&r, kind);
    for (s = 0; s < 2 * CONF_LEN(sizes); s++) {
        size = sizes[s / 2];
        late = size / 8 - ((s % 2 == 0) ? 1 : LINE / 8); /* of the last line */
        memset(r.mem.addr, 0, size);
        conf_barrier();
        if (conf_rank == (get ? 1 : 0)) {
            counter_start(&c, r.mem.addr + 8 * late, r.mem.addr);
        }
        /* Short copies are over soon: more of them are needed to meet one. */
        pace = pace_start();
        pace.least += (size <= 1024) ? READ_TIME : 0;
        while ((conf_rank == 0) && pace_goes_on(&pace, r.got[0])) {
            if (get) {
                CONF_POST(r.vcq.hdl,
                          utofu_get(r.vcq.hdl, r.vcq.peer[1], r.got_stadds[0],
                                    r.stadds[1], size, 1,
                                    CONF_STRONG | CONF_LMRQ, NULL));
                CONF_EXPECT_MRQ(&r.vcq, UTOFU_MRQ_TYPE_LCL_GET, r.vcq.peer[1],
                                1, NULL);
            } else {
                /* To itself: the result is looked at here. */
                CONF_POST(r.vcq.hdl,
                          utofu_put(r.vcq.hdl, r.vcq.id, r.stadds[0],
                                    r.got_stadds[0], size, 1,
                                    CONF_STRONG | CONF_LMRQ, NULL));
                CONF_EXPECT_MRQ(&r.vcq, UTOFU_MRQ_TYPE_LCL_PUT, r.vcq.id, 1,
                                NULL);
            }
            CONF_CHECK(r.got[late] >= r.got[0], "%s of %zu bytes from %s: "
                       "word 0 is %" PRIu64 ", word %zu, read later, %" PRIu64,
                       get ? "get" : "put", size, conf_kind_name(kind),
                       r.got[0], late, r.got[late]);
        }
        conf_barrier();
        if (conf_rank == (get ? 1 : 0)) {
            counter_stop(&c);
        }
    }
    reads_close(&r);
}

CONF_TEST("6.1.3.1", last_line_read_last_get_shared, 2,
          "a STRONG_ORDER get reads the last cache line of its source after "
          "the others (shared memory)")
{
    last_line_read_last(CONF_MEM_MEMFD, true);
}

CONF_TEST("6.1.3.1", last_line_read_last_get_private, 2,
          "a STRONG_ORDER get reads the last cache line of its source after "
          "the others (private memory)")
{
    last_line_read_last(CONF_MEM_ANON, true);
}

CONF_TEST("6.1.3.1", last_line_read_last_put, 2,
          "a STRONG_ORDER put reads the last cache line of its source after "
          "the others")
{
    last_line_read_last(CONF_MEM_ANON, false);
}

static _Atomic uint64_t counted[64]; /* [0] is counted up first, then [8] */
static _Atomic bool     counted_enough;

static void *counts(void *arg)
{
    (void)arg;
    for (uint64_t i = 1; !atomic_load(&counted_enough); i++) {
        atomic_store(&counted[0], i);
        atomic_store(&counted[8], i);
    }
    return NULL;
}

CONF_TEST("2.2.10", strong_put_reads_after_get, 1,
          "a STRONG_ORDER put reads its source after an earlier get to the same VCQ has read")
{
    enum { ROUNDS = 1500 };
    struct conf_vcq vcq;
    utofu_stadd_t   s, g;
    static uint64_t got[16];
    pthread_t       t;

    conf_vcq_create(&vcq, 0, 0);
    s = conf_reg(&vcq, (void *)counted, sizeof(counted), 0);
    g = conf_reg(&vcq, got, sizeof(got), 0);
    CONF_CHECK(pthread_create(&t, NULL, counts, NULL) == 0, "thread");
    for (int r = 0; r < ROUNDS; r++) {
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.id, g, s + 64, 8, 1, CONF_LMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.id, s, g + 64, 8, 2, CONF_LMRQ | CONF_STRONG, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.id, 1, NULL);
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 2, NULL);
        CONF_CHECK(got[8] >= got[0], "round %d: the put has %" PRIu64 ", the get before it %" PRIu64, r, got[8], got[0]);
    }
    atomic_store(&counted_enough, true);
    pthread_join(t, NULL);
    conf_dereg(&vcq, s);
    conf_dereg(&vcq, g);
    conf_vcq_close(&vcq);
}
