/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_order_ledger.c - senders that are not in step: of two notices of which one was complete before the other one
 * was sent, that one is read first.  Senders keep a ledger of when they began and when they were told.
 */
#include "harness.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 500000, AHEAD = 2000 };

/* Of all ranks */
static struct ledger {
    _Atomic uint64_t hours;             /* a clock that each look moves on */
    _Atomic uint64_t taken, sent, got;  /* numbers; what was sent and read */
    _Atomic uint32_t over;
    struct {
        _Atomic uint64_t began, told; /* 0: not yet */
    } of[MOST];
} *ledger;

static uint64_t words[MOST + 1];

static void ledger_open(void)
{
    struct {
        int pid, fd;
    } mine = {getpid(), -1}, all[CONF_MAX_PROCS];
    char path[64];
    int  fd;

    if (conf_rank == 0) {
        mine.fd = memfd_create("ledger", 0);
        CONF_CHECK((mine.fd >= 0) && !ftruncate(mine.fd, sizeof(*ledger)), "memfd");
    }
    conf_exchange(&mine, sizeof(mine), all);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", all[0].pid, all[0].fd);
    fd = open(path, O_RDWR);
    CONF_CHECK(fd >= 0, "open of %s", path);
    ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CONF_CHECK(ledger != MAP_FAILED, "mmap");
    close(fd);
    conf_barrier();
}

/* A put, a get or an ARMW, and its local notice */
static void send(const struct conf_vcq *vcq, utofu_vcq_id_t to, utofu_stadd_t lcl, utofu_stadd_t rmt, uint64_t t)
{
    const unsigned long flags = CONF_LMRQ | CONF_RMRQ;
    int                 type;

    rmt += 8 * t;
    switch (t % 3) {
    case 0:
        type = UTOFU_MRQ_TYPE_LCL_PUT;
        CONF_POST(vcq->hdl, utofu_put_piggyback8(vcq->hdl, to, t, rmt, 8, t % 256, flags, NULL));
        break;
    case 1:
        type = UTOFU_MRQ_TYPE_LCL_GET;
        CONF_POST(vcq->hdl, utofu_get(vcq->hdl, to, lcl, rmt, 8, t % 256, flags, NULL));
        break;
    default:
        type = UTOFU_MRQ_TYPE_LCL_ARMW;
        CONF_POST(vcq->hdl, utofu_armw8(vcq->hdl, to, UTOFU_ARMW_OP_ADD, 1, rmt, t % 256, flags, NULL));
    }
    ledger->sent++;
    CONF_EXPECT_MRQ(vcq, type, to, t % 256, NULL);
}

/* Bursts of up to 300, each of a new VCQ */
static void send_bursts(utofu_vcq_id_t to, utofu_stadd_t rmt)
{
    unsigned        seed = (unsigned)conf_rank;
    uint64_t        word = 0, t = 0;
    struct conf_vcq vcq;
    utofu_stadd_t   lcl;

    while (!ledger->over && (t < MOST)) {
        conf_vcq_create(&vcq, (size_t)rand_r(&seed) % 6, 0);
        lcl = conf_reg(&vcq, &word, sizeof(word), 0);
        for (int n = rand_r(&seed) % 300; (n >= 0) && !ledger->over; n--) {
            while ((ledger->sent > ledger->got + AHEAD) && !ledger->over) {
                usleep(200);
            }
            t = ledger->taken++;
            if (t >= MOST) {
                break;
            }
            ledger->of[t].began = ++ledger->hours;
            send(&vcq, to, lcl, rmt, t);
            ledger->of[t].told = ++ledger->hours;
        }
        conf_dereg(&vcq, lcl);
        conf_vcq_close(&vcq);
    }
}

static void read_in_order(const struct conf_vcq *to, utofu_stadd_t rmt, double seconds)
{
    struct utofu_mrq_notice notice;
    uint64_t                latest = 0, early = 0, polls = 0, t;
    double                  now = conf_now(), end = now + seconds;

    for (; (now < end + 0.3) || (ledger->got < ledger->sent); now = conf_now()) {
        ledger->over = now >= end;
        if (++polls % 5000 == 0) {
            usleep(1 + polls / 5000 % 3000); /* many wait then */
        }
        if (CONF_CODE(utofu_poll_mrq(to->hdl, 0, &notice), UTOFU_SUCCESS, UTOFU_ERR_NOT_FOUND) == UTOFU_ERR_NOT_FOUND) {
            continue;
        }
        ledger->got++;
        t = (notice.rmt_stadd - rmt) / 8 - (notice.notice_type != UTOFU_MRQ_TYPE_RMT_ARMW);
        CONF_CHECK((t < MOST) && (notice.edata == t % 256), "notice %llu", (unsigned long long)t);
        early += (ledger->of[t].told != 0) && (ledger->of[t].told < latest);
        latest = (ledger->of[t].began > latest) ? ledger->of[t].began : latest;
    }
    CONF_CHECK(early == 0, "%llu of %llu were read after one that was sent later", (unsigned long long)early,
               (unsigned long long)ledger->got);
    CONF_CHECK(ledger->got > 100, "only %llu were sent", (unsigned long long)ledger->got);
}

static void senders_in_ledger(double seconds)
{
    struct conf_vcq to;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];

    conf_timeout(60 * conf_patience);
    ledger_open();
    conf_vcq_open(&to, 0, 0);
    conf_reg_all(&to, words, sizeof(words), stadds);
    conf_barrier();
    if (conf_rank == 0) {
        read_in_order(&to, stadds[0], seconds);
    } else {
        send_bursts(to.peer[0], stadds[0]);
    }
    conf_barrier();
    conf_vcq_close(&to);
    munmap(ledger, sizeof(*ledger));
}

CONF_TEST("senders", senders_in_a_ledger, 3, "of notices of several processes, one that was complete before another began is read first")
{
    senders_in_ledger(1);
}

CONF_TEST("senders", senders_in_a_ledger_timed, 3, "also in the timed mode, where threads lag behind its clock")
{
    CONF_CHECK(!setenv("UTOFU_EMU_TIMING", "tofud", 1), "setenv");
    senders_in_ledger(3);
}

CONF_TEST("senders", senders_in_a_ledger_strict, 3, "also in the strict mode")
{
    CONF_CHECK(!setenv("UTOFU_EMU_STRICT", "1", 1), "setenv");
    senders_in_ledger(2);
}
