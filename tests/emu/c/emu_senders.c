/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_senders.c - an MRQ with several senders is one queue: a notice that was there when another
 * one was sent is seen before it.
 */
#include "harness.h"

#include "own.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SENDERS = 5, SLOT = 8, SLOTS = 512 };

static uint64_t words[SLOTS] __attribute__((aligned(256)));

enum kind { PUT, PIGGYBACK, PIGGYBACK8, GET, ARMW, KINDS };

static int type_of(enum kind kind)
{
    return (kind == GET) ? UTOFU_MRQ_TYPE_RMT_GET : (kind == ARMW) ? UTOFU_MRQ_TYPE_RMT_ARMW : UTOFU_MRQ_TYPE_RMT_PUT;
}

/* With a notice for the target, which is there when the local one is */
static void send(const struct conf_vcq *vcq, utofu_vcq_id_t to, utofu_stadd_t lcl, utofu_stadd_t rmt, enum kind kind,
                 unsigned edata)
{
    utofu_vcq_hdl_t hdl   = vcq->hdl;
    unsigned long   flags = CONF_LMRQ | CONF_RMRQ;
    char            data[16] = "sixteen bytes..";

    switch (kind) {
    case PUT:
        CONF_POST(hdl, utofu_put(hdl, to, lcl, rmt, SLOT, edata, flags, NULL));
        break;
    case PIGGYBACK:
        CONF_POST(hdl, utofu_put_piggyback(hdl, to, data, rmt, SLOT, edata, flags, NULL));
        break;
    case PIGGYBACK8:
        CONF_POST(hdl, utofu_put_piggyback8(hdl, to, edata, rmt, SLOT, edata, flags, NULL));
        break;
    case GET:
        CONF_POST(hdl, utofu_get(hdl, to, lcl, rmt, SLOT, edata, flags, NULL));
        break;
    default:
        CONF_POST(hdl, utofu_armw8(hdl, to, UTOFU_ARMW_OP_ADD, 1, rmt, edata, flags, NULL));
        break;
    }
    CONF_EXPECT_MRQ(vcq, type_of(kind) - 1, to, edata, NULL);
}

/* Which sender is next, and with what: neither round robin nor in blocks of one size */
static unsigned turn(unsigned i)
{
    return (i * i / 3 + i / 7 + i) % SENDERS;
}
static enum kind kind_of(unsigned i)
{
    return (enum kind)((i * 7 + i / 11) % KINDS);
}

/* Let a VCQ's stamps go on from there. */
static void set_stamps(const struct conf_vcq *vcq, uint64_t stamps)
{
    struct emu_process *shm = own_segment();

    for (unsigned v = 0; v < EMU_MAX_VCQS; v++) {
        if (shm->vcq[v].vcq_id == vcq->id) {
            shm->vcq[v].stamps = stamps;
        }
    }
    munmap(shm, shm->size);
}

/* One thread sends from VCQs of its own to another one, which reads them in bursts. */
static void one_thread(unsigned total, unsigned burst)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         from[SENDERS], to;
    utofu_stadd_t           lcl[SENDERS], rmt;
    unsigned                read = 0;

    conf_vcq_create(&to, 0, 0);
    rmt = conf_reg(&to, words, sizeof(words), 0);
    for (unsigned s = 0; s < SENDERS; s++) {
        conf_vcq_create(&from[s], s, 0);
        lcl[s] = conf_reg(&from[s], words, sizeof(words), 0);
    }
    for (unsigned i = 0; i < total; i++) {
        unsigned s = turn(i);

        if (i == burst) { /* the bits of a stamp go round */
            set_stamps(&to, EMU_ENTRY_STAMP_MASK - burst / 2);
        }
        send(&from[s], to.id, lcl[s] + SLOT * (i % 64), rmt + SLOT * (64 + i % 64), kind_of(i), i % 256);
        if ((i % burst != burst - 1) && (i != total - 1)) {
            continue;
        }
        for (; read <= i; read++) {
            enum kind kind = kind_of(read);

            s = turn(read);
            CONF_EXPECT_MRQ(&to, type_of(kind), from[s].id, read % 256, &notice);
            CONF_CHECK(notice.rmt_stadd == rmt + SLOT * (64 + read % 64) + ((kind == ARMW) ? 0 : SLOT),
                       "notice %u, kind %d: rmt_stadd is wrong", read, kind);
            CONF_CHECK((kind != GET) || (notice.lcl_stadd == lcl[s] + SLOT * (read % 64) + SLOT),
                       "notice %u: lcl_stadd is wrong", read);
        }
    }
    CONF_EXPECT_QUIET(&to);
    for (unsigned s = 0; s < SENDERS; s++) {
        conf_vcq_close(&from[s]);
    }
    conf_vcq_close(&to);
}

CONF_TEST("senders", senders_of_one_thread, 1, "notices of several VCQs are read as they were sent, of all kinds")
{
    one_thread(3000, 17);
    one_thread(3000, 1000);
}

CONF_TEST("senders", senders_of_one_thread_many, 1, "also where more of them wait than a lane keeps at hand")
{
    one_thread(40000, 20000);
}

CONF_TEST("senders", senders_of_one_thread_strict, 1, "also in the strict mode, when each is complete before the next")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    one_thread(600, 17);
}

CONF_TEST("senders", senders_of_one_thread_timed, 1, "also in the timed mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_TIMING", "tofud", 1), "setenv");
    one_thread(2000, 17);
}

/* Ranks 1 and on pass a token: who has it sends a notice to rank 0, and passes it on when that is complete.
 * Rank 0 reads at once, or after pauses. */
static void token(unsigned total)
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[CONF_MAX_PROCS], lcl;
    unsigned        others = (unsigned)conf_procs - 1, spins = 0;
    int             next   = 1 + conf_rank % (int)others;
    struct conf_mem mem;

    conf_timeout(100 * conf_patience);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, sizeof(words));
    memset(mem.addr, 0, mem.size);
    lcl = conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    conf_barrier();
    for (unsigned i = 0; i < total; i++) {
        unsigned holder = 1 + i % others;

        if (conf_rank == 0) {
            if ((i % 97 == 0) && (i / 97 % 2)) {
                usleep(300);
            }
            CONF_EXPECT_MRQ(&vcq, type_of(kind_of(i)), vcq.peer[holder], i % 256, NULL);
        } else if (conf_rank == (int)holder) {
            volatile uint64_t *have = (uint64_t *)(void *)mem.addr;
            double             end  = conf_now() + CONF_WAIT;

            while (*have != i) {
                conf_relax(&spins);
                CONF_CHECK(conf_now() < end, "the token %u does not come", i);
            }
            send(&vcq, vcq.peer[0], lcl + SLOT * 8, stadds[0] + SLOT * 8 * holder, kind_of(i), i % 256);
            CONF_POST(vcq.hdl,
                      utofu_put_piggyback8(vcq.hdl, vcq.peer[next], i + 1, stadds[next], SLOT, 0, CONF_STRONG, NULL));
        }
    }
    conf_barrier();
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("senders", senders_pass_a_token, 3, "a notice that was sent because of another one is read after it")
{
    token(20000);
}

CONF_TEST("senders", senders_pass_a_token_of_more, 6, "also among more processes than CPUs")
{
    token(2000);
}

CONF_TEST("senders", senders_pass_a_token_strict, 3, "also in the strict mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    token(400);
}

CONF_TEST("senders", senders_pass_a_token_timed, 3, "also in the timed mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_TIMING", "tofud", 1), "setenv");
    token(400);
}

CONF_TEST("senders", senders_that_come_and_go, 1, "also where each notice is the first and last one of its VCQ")
{
    enum { VCQS = 60 };
    struct conf_vcq from, to;
    utofu_stadd_t   rmt;

    conf_vcq_create(&to, 0, 0);
    rmt = conf_reg(&to, words, sizeof(words), 0);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < VCQS; i++) {
            conf_vcq_create(&from, i, 0);
            send(&from, to.id, 0, rmt + SLOT * i, PIGGYBACK8, i);
            conf_vcq_close(&from);
        }
        for (unsigned i = 0; i < VCQS; i++) {
            struct utofu_mrq_notice notice;

            CONF_OK(CONF_WAIT_MRQ(&to, &notice));
            CONF_CHECK(notice.edata == i, "round %u: notice %u instead of %u", round, (unsigned)notice.edata, i);
        }
    }
    CONF_EXPECT_QUIET(&to);
    conf_vcq_close(&to);
}

CONF_TEST("senders", senders_to_itself, 1, "a VCQ's own notices come after those that were there before")
{
    struct conf_vcq vcq, other;
    utofu_stadd_t   stadd;

    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&other, 1, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    send(&other, vcq.id, 0, stadd, PIGGYBACK8, 1);
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd + 8, SLOT, 2, CONF_RMRQ, NULL));
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, other.id, 1, NULL);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.id, 2, NULL);
    send(&other, vcq.id, 0, stadd, PIGGYBACK8, 3);
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd + 8, SLOT, 4, CONF_LMRQ | CONF_RMRQ, NULL));
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, other.id, 3, NULL);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.id, 4, NULL);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 4, NULL);
    /* of its own operations, too, a local notice comes after what was there before */
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd + 8, SLOT, 5, CONF_RMRQ, NULL));
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd + 8, SLOT, 6, CONF_LMRQ | CONF_RMRQ, NULL));
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd + 8, SLOT, 7, CONF_LMRQ | CONF_RMRQ, NULL));
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.id, 5, NULL);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.id, 6, NULL);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 6, NULL);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.id, 7, NULL);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 7, NULL);
    CONF_EXPECT_QUIET(&vcq);
    conf_vcq_close(&other);
    conf_vcq_close(&vcq);
}

/* Puts to itself around one to another VCQ, and that one's answer */
static void answer_beside_itself(unsigned rounds)
{
    struct conf_vcq         vcq, other;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadd, far;
    unsigned                early = 0;

    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&other, 1, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    far   = conf_reg(&other, words, sizeof(words), 0);
    for (unsigned i = 0; i < rounds; i++) {
        bool seen[5] = {false}; /* of EDATA 2: local */

        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd, SLOT, 1, CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, other.id, i, far + 64, SLOT, 2, CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&other, UTOFU_MRQ_TYPE_RMT_PUT, vcq.id, 2, NULL);
        CONF_POST(other.hdl, utofu_put_piggyback8(other.hdl, vcq.id, 9, stadd + 8, SLOT, 3, CONF_RMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd + 16, SLOT, 4, CONF_RMRQ, NULL));
        for (unsigned k = 0; k < 5; k++) {
            CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
            early += (notice.edata == 3) && !seen[2];
            CONF_CHECK((notice.edata != 1) || (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT) || seen[1],
                       "round %u: its own local notice before the one for the target", i);
            seen[notice.edata] = true;
        }
    }
    CONF_CHECK(early == 0, "%u of %u answers before the local notice of what they answer", early, rounds);
    conf_vcq_close(&other);
    conf_vcq_close(&vcq);
}

CONF_TEST("senders", answer_beside_puts_to_itself, 1,
          "an answer comes after the local notice of what it answers, also where the VCQ puts to itself besides")
{
    answer_beside_itself(100);
}

CONF_TEST("senders", answer_beside_puts_to_itself_timed, 1, "also in the timed mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_TIMING", "tofud", 1), "setenv");
    answer_beside_itself(1000);
}

CONF_TEST("senders", answer_beside_puts_to_itself_strict, 1, "also in the strict mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    answer_beside_itself(3000);
}

CONF_TEST("senders", puts_to_itself_overlap_timed, 1,
          "both remote notices of two puts to itself are due before the first local one, which waits for an answer")
{
    enum { ROUNDS = 200 };
    struct conf_vcq         vcq;
    struct utofu_mrq_notice n[4];
    utofu_stadd_t           stadd;
    unsigned                both = 0;

    CONF_CHECK(!setenv("UTOFU_EMU_TIMING", "tofud", 1), "setenv");
    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        CONF_POST(vcq.hdl, utofu_put_stride(vcq.hdl, vcq.id, stadd, stadd + 64, SLOT, SLOT, 2, 1, CONF_LMRQ | CONF_RMRQ, NULL));
        for (unsigned k = 0; k < 4; k++) {
            CONF_OK(CONF_WAIT_MRQ(&vcq, &n[k]));
        }
        CONF_CHECK((n[0].notice_type == UTOFU_MRQ_TYPE_RMT_PUT) && (n[0].rmt_stadd == stadd + 64 + SLOT), "first %u", i);
        CONF_CHECK((n[3].notice_type == UTOFU_MRQ_TYPE_LCL_PUT) && (n[3].rmt_stadd == stadd + 64 + 2 * SLOT), "last %u", i);
        both += n[1].notice_type == UTOFU_MRQ_TYPE_RMT_PUT;
    }
    CONF_CHECK(both > ROUNDS / 4, "only in %u of %u rounds", both, (unsigned)ROUNDS); /* not where the CPU was taken */
    conf_vcq_close(&vcq);
}

CONF_TEST("senders", puts_to_itself_starve_nobody, 1,
          "a VCQ that has put to itself, and has local notices all the time, reads what others have sent as well")
{
    struct conf_vcq         vcq, other;
    struct utofu_mrq_notice notice = {.edata = 0};
    utofu_stadd_t           stadd;
    unsigned                polls = 0;

    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&other, 1, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd, SLOT, 1, CONF_LMRQ, NULL));
    CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd, SLOT, 1, CONF_LMRQ, NULL));
    send(&other, vcq.id, 0, stadd + 8, PIGGYBACK8, 2);
    for (; (notice.edata != 2) && (polls < 100); polls++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.id, 9, stadd, SLOT, 1, CONF_LMRQ, NULL));
        CONF_OK(utofu_poll_mrq(vcq.hdl, 0, &notice));
    }
    CONF_CHECK(notice.edata == 2, "not after %u polls", polls);
    conf_vcq_close(&other);
    conf_vcq_close(&vcq);
}

/* Fill the MRQ by notices of each kind, of which the first sender's last ones have no stamps. */
CONF_TEST("senders", senders_fill_the_mrq, 1, "an MRQ holds as many notices of several senders as of one, of any kind")
{
    enum { ENTRIES = 2048 };
    struct conf_vcq from[2], to;
    utofu_stadd_t   lcl[2], rmt;

    CONF_CHECK(!setenv("UTOFU_NUM_MRQ_ENTRIES", "2048", 1), "setenv");
    conf_vcq_create(&to, 0, 0);
    rmt = conf_reg(&to, words, sizeof(words), 0);
    for (unsigned s = 0; s < 2; s++) {
        conf_vcq_create(&from[s], s, 0);
        lcl[s] = conf_reg(&from[s], words, sizeof(words), 0);
    }
    for (unsigned kind = 0; kind < KINDS; kind++) {
        for (unsigned i = 0; i < ENTRIES; i++) {
            send(&from[i < 3], to.id, lcl[i < 3], rmt, (enum kind)kind, i % 256);
        }
        for (unsigned i = 0; i < ENTRIES; i++) {
            CONF_EXPECT_MRQ(&to, type_of((enum kind)kind), from[i < 3].id, i % 256, NULL);
        }
    }
    CONF_EXPECT_QUIET(&to);
    for (unsigned s = 0; s < 2; s++) {
        conf_vcq_close(&from[s]);
    }
    conf_vcq_close(&to);
}

/* The entries of the first ring of that sender's lane */
static struct emu_lane_entry *entries_of(struct emu_process *shm, utofu_vcq_id_t origin)
{
    for (unsigned i = 0; i < shm->lanes; i++) {
        struct emu_lane *lane = (struct emu_lane *)(void *)((char *)shm + EMU_LANES_OFF(shm->session_entries) +
                                                            i * EMU_LANE_SIZE(shm->lane_entries));
        if (lane->origin == origin) {
            return (struct emu_lane_entry *)(void *)((char *)lane + EMU_LANE_HEAD);
        }
    }
    CONF_FAIL("no lane");
}

/* A hostile sender's stamps: it may be read before others, or after them, and nothing more is in its hands. */
CONF_TEST("senders", senders_with_false_stamps, 1, "a sender whose stamps are false does not hide others' notices")
{
    struct emu_lane_entry *e;
    struct emu_process    *shm;
    struct conf_vcq        from[2], to;
    utofu_stadd_t          rmt;
    unsigned               read[2] = {0, 0}, changed = 0;

    conf_vcq_create(&to, 0, 0);
    rmt = conf_reg(&to, words, sizeof(words), 0);
    conf_vcq_create(&from[0], 1, 0);
    conf_vcq_create(&from[1], 2, 0);
    for (unsigned i = 0; i < 200; i++) {
        send(&from[i % 2], to.id, 0, rmt, PIGGYBACK8, i);
    }
    shm = own_segment();
    e   = entries_of(shm, from[1].id);
    for (unsigned k = 0; k < 100; k++) {
        if (e[k].word & EMU_ENTRY_STAMPED) {
            e[k].word ^= (0x5a5a5a5au * k & EMU_ENTRY_STAMP_MASK) << EMU_ENTRY_STAMP_SHIFT;
            changed++;
        }
    }
    CONF_CHECK(changed >= 90, "%u stamps", changed);
    for (unsigned i = 0; i < 200; i++) {
        struct utofu_mrq_notice notice;

        CONF_OK(CONF_WAIT_MRQ(&to, &notice));
        unsigned s = notice.vcq_id == from[1].id;
        CONF_CHECK(notice.edata == 2 * read[s] + s, "notice %u of sender %u has EDATA %u", read[s], s,
                   (unsigned)notice.edata);
        read[s]++;
    }
    CONF_EXPECT_QUIET(&to);
    munmap(shm, shm->size);
    conf_vcq_close(&from[1]);
    conf_vcq_close(&from[0]);
    conf_vcq_close(&to);
}

/* Two VCQs send to a third one, that posts with local notices from time to time, after which some more are sent. */
static void local_among_remote(unsigned total, unsigned burst, unsigned after)
{
    struct conf_vcq from[2], to;
    utofu_stadd_t   lcl[2], mine, rmt[2];

    conf_vcq_create(&to, 0, 0);
    mine = conf_reg(&to, words, sizeof(words), 0);
    for (unsigned s = 0; s < 2; s++) {
        conf_vcq_create(&from[s], s, 0);
        rmt[s] = lcl[s] = conf_reg(&from[s], words, sizeof(words), 0);
    }
    for (unsigned i = 0; i < total; i += burst) {
        /* one sender in the first half */
        for (unsigned k = 0; k < burst; k++) {
            unsigned s = (i >= total / 2) && (k % 3 == 0);

            send(&from[s], to.id, lcl[s] + SLOT, mine + SLOT, kind_of(i + k), k % 256);
        }
        if (i % (2 * burst)) {
            CONF_POST(to.hdl, utofu_put(to.hdl, from[i % 2].id, mine, rmt[i % 2], SLOT, 1, CONF_LMRQ, NULL));
        } else {
            uint64_t desc[8];
            size_t   size;

            CONF_OK(utofu_prepare_armw8(to.hdl, from[i % 2].id, UTOFU_ARMW_OP_ADD, 1, rmt[i % 2], 1, CONF_LMRQ, desc,
                                        &size));
            CONF_POST(to.hdl, utofu_post_toq(to.hdl, desc, size, NULL));
        }
        for (unsigned k = 0; k < after; k++) {
            send(&from[0], to.id, lcl[0] + SLOT, mine + SLOT, kind_of(i + k), k);
        }
        for (unsigned k = 0; k < burst; k++) {
            CONF_EXPECT_MRQ(&to, type_of(kind_of(i + k)), from[(i >= total / 2) && (k % 3 == 0)].id, k % 256, NULL);
        }
        CONF_EXPECT_MRQ(&to, (i % (2 * burst)) ? UTOFU_MRQ_TYPE_LCL_PUT : UTOFU_MRQ_TYPE_LCL_ARMW, from[i % 2].id, 1, NULL);
        for (unsigned k = 0; k < after; k++) {
            CONF_EXPECT_MRQ(&to, type_of(kind_of(i + k)), from[0].id, k, NULL);
        }
    }
    CONF_EXPECT_QUIET(&to);
    for (unsigned s = 0; s < 2; s++) {
        conf_vcq_close(&from[s]);
    }
    conf_vcq_close(&to);
}

CONF_TEST("senders", local_notice_among_remote, 1, "a local notice comes after all that were there when its operation was posted")
{
    local_among_remote(600, 3, 3);
    local_among_remote(30000, 3000, 3);
}

CONF_TEST("senders", local_notice_among_remote_strict, 1, "also in the strict mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    local_among_remote(300, 3, 0); /* what is posted next may come before it */
}

CONF_TEST("senders", local_notice_beside_a_stream, 2, "and those that come meanwhile do not hold the operation up")
{
    enum { NUM = 100000 };
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    unsigned                remote = 0, local = 0;

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    conf_barrier();
    for (unsigned i = 0; (i < NUM) && (conf_rank == 1); i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[0], i, stadds[0] + SLOT, SLOT, i % 256, CONF_RMRQ, NULL));
    }
    for (unsigned i = 0; (i < NUM / 100) && (conf_rank == 0); i++) {
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[1], i, stadds[1], SLOT, i % 256, CONF_LMRQ, NULL));
        if (i % 10 == 9) {
            do {
                CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
                CONF_CHECK(notice.edata == ((notice.notice_type == UTOFU_MRQ_TYPE_LCL_PUT) ? local++ : remote++) % 256,
                           "EDATA %u after %u remote and %u local ones", (unsigned)notice.edata, remote, local);
            } while (local <= i);
        }
    }
    while ((conf_rank == 0) && (remote < NUM)) {
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
        CONF_CHECK((notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT) && (notice.edata == remote % 256), "remote %u", remote);
        remote++;
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("senders", senders_without_stamps, 1, "a sender that leaves its stamps out does not hide others' notices")
{
    enum { POLLS = 2000 };
    struct emu_lane_entry  *e;
    struct emu_process     *shm;
    struct utofu_mrq_notice notice;
    struct conf_vcq         good, bad, to;
    utofu_stadd_t           rmt;
    unsigned                seen = 0;

    conf_vcq_create(&to, 0, 0);
    rmt = conf_reg(&to, words, sizeof(words), 0);
    conf_vcq_create(&good, 1, 0);
    conf_vcq_create(&bad, 2, 0);
    send(&good, to.id, 0, rmt, PIGGYBACK8, 1);
    send(&bad, to.id, 0, rmt, PIGGYBACK8, 1);
    CONF_EXPECT_MRQ(&to, UTOFU_MRQ_TYPE_RMT_PUT, good.id, 1, NULL);
    CONF_EXPECT_MRQ(&to, UTOFU_MRQ_TYPE_RMT_PUT, bad.id, 1, NULL);
    shm = own_segment();
    e   = entries_of(shm, bad.id);
    send(&good, to.id, 0, rmt, PIGGYBACK8, 2);
    for (unsigned i = 1; i < POLLS; i++) { /* there is always one of them */
        send(&bad, to.id, 0, rmt, PIGGYBACK8, 3);
        e[i % EMU_LANE_A].word &= ~EMU_ENTRY_STAMPED;
        CONF_OK(utofu_poll_mrq(to.hdl, 0, &notice));
        seen += notice.edata == 2;
    }
    CONF_CHECK(seen == 1, "in %u polls the other one was seen %u times", POLLS, seen);
    munmap(shm, shm->size);
    conf_vcq_close(&bad);
    conf_vcq_close(&good);
    conf_vcq_close(&to);
}

/* A sender has its stamp, and stores its notice late: while the target gathers what is there. */
static struct {
    struct emu_lane_entry *entry;
    uint64_t               word;
    _Atomic int            go;
} held;

static void *store_late(void *arg)
{
    double end;

    (void)arg;
    while (!held.go) {
    }
    for (end = conf_now() + 300e-6; conf_now() < end;) {
    }
    __atomic_store_n(&held.entry->word, held.word, __ATOMIC_RELEASE);
    return NULL;
}

CONF_TEST("senders", local_notice_beside_a_late_one, 1,
          "a remote notice that is stored late keeps no other one from coming before the local one")
{
    enum { NUM = 100000 };
    struct utofu_mrq_notice notice;
    struct emu_process     *shm;
    struct conf_vcq         from[2], to;
    utofu_stadd_t           mine, rmt;
    pthread_t               thread;
    unsigned                before = 0;
    void                   *cbdata;

    conf_vcq_create(&to, 0, 0);
    mine = conf_reg(&to, words, sizeof(words), 0);
    for (unsigned s = 0; s < 2; s++) {
        conf_vcq_create(&from[s], s + 1, 0);
        send(&from[s], to.id, 0, mine, PIGGYBACK8, s);
        CONF_EXPECT_MRQ(&to, UTOFU_MRQ_TYPE_RMT_PUT, from[s].id, s, NULL);
    }
    rmt        = conf_reg(&from[0], words, sizeof(words), 0);
    shm        = own_segment();
    held.entry = entries_of(shm, from[0].id) + 1;
    send(&from[0], to.id, 0, mine, PIGGYBACK8, 9);
    held.word        = held.entry->word;
    held.entry->word = 0;
    CONF_CHECK(!pthread_create(&thread, NULL, store_late, NULL), "pthread_create");
    for (unsigned i = 0; i < NUM; i++) {
        CONF_OK(utofu_put_piggyback8(from[1].hdl, to.id, 1, mine, 8, i % 256, CONF_RMRQ, NULL));
        if (i % 1024 == 0) {
            CONF_CODE(utofu_poll_tcq(from[1].hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        }
    }
    held.go = 1;
    CONF_POST(to.hdl, utofu_put(to.hdl, from[0].id, mine, rmt, SLOT, 1, CONF_LMRQ, NULL));
    do {
        CONF_OK(CONF_WAIT_MRQ(&to, &notice));
        before += notice.vcq_id == from[1].id;
    } while (notice.notice_type != UTOFU_MRQ_TYPE_LCL_PUT);
    CONF_CHECK(before == NUM, "%u of %u", before, NUM);
    pthread_join(thread, NULL);
    munmap(shm, shm->size);
    conf_vcq_close(&from[1]);
    conf_vcq_close(&from[0]);
    conf_vcq_close(&to);
}

/* Of a put without notices: one that was there is read before the error. */
static void error_after_remote(void)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         other, vcq;
    utofu_stadd_t           stadd;

    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&other, 1, 0);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    send(&other, vcq.id, 0, stadd, PIGGYBACK8, 5);
    CONF_POST(vcq.hdl, utofu_put(vcq.hdl, other.id, stadd, stadd, SLOT, 6, 0, NULL)); /* no STADD of the other one's */
    usleep(100000);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, other.id, 5, NULL);
    CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD);
    conf_vcq_close(&other);
    conf_vcq_close(&vcq);
}

CONF_TEST("senders", error_among_remote, 1, "so does an error whose operation asked for no notice")
{
    error_after_remote();
}

CONF_TEST("senders", error_among_remote_strict, 1, "also in the strict mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    error_after_remote();
}

/* Rank 1's notice is there before rank 0 posts, and rank 0 looks at once, or when its own is due, too. */
CONF_TEST("senders", local_notice_among_remote_timed, 2, "in the timed mode, too, a local notice comes after one that was there")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];

    CONF_CHECK(!setenv("UTOFU_EMU_TIMING", "tofud", 1), "setenv");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    for (unsigned i = 0; i < 200; i++) {
        enum kind kind = kind_of(i);

        if (conf_rank == 1) {
            send(&vcq, vcq.peer[0], stadds[1], stadds[0] + SLOT, kind, i);
        }
        conf_barrier();
        if (conf_rank == 0) {
            struct utofu_mrq_notice notice;

            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[i % 2], stadds[0], stadds[i % 2] + SLOT, SLOT, i, CONF_LMRQ, NULL));
            usleep((i % 3) * 50);
            CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
            CONF_CHECK(notice.notice_type == type_of(kind), "round %u: type %d first", i, notice.notice_type);
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[i % 2], i, NULL);
        }
        conf_barrier();
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
