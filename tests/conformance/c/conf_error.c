/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_error.c - failures of a communication: found by the origin in its TCQ
 * or MRQ, with the right code, asked for or not, and without harm to anything
 * else (2.2.12, 3.1.2.1, 3.7).
 */
#include "harness.h"

#include <inttypes.h>
#include <unistd.h>

#define SIZE 4096

#define TCQ_BAD_STADD UTOFU_ERR_TCQ_STADD, UTOFU_ERR_TCQ_MEMORY
#define RMT_BAD_STADD UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_MEMORY
#define LCL_BAD_STADD UTOFU_ERR_MRQ_LCL_STADD, UTOFU_ERR_MRQ_LCL_MEMORY

struct fixture {
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[CONF_MAX_PROCS];
    utofu_stadd_t   gone; /* was registered with the VCQ of rank 1, or ours */
    utofu_stadd_t   gone_here;
};

static void fixture_open(struct fixture *f, enum conf_kind kind)
{
    static unsigned char other[SIZE];
    utofu_stadd_t        gone[CONF_MAX_PROCS];

    conf_vcq_open(&f->vcq, 0, 0);
    conf_mem_alloc(&f->mem, kind, SIZE);
    memset(f->mem.addr, 0x3c, SIZE);
    conf_reg_all(&f->vcq, f->mem.addr, SIZE, f->stadds);
    f->gone_here = conf_reg_all(&f->vcq, other, SIZE, gone);
    f->gone      = gone[conf_procs - 1];
    conf_dereg(&f->vcq, f->gone_here);
    conf_barrier();
}

/* The VCQ still works, the memory of rank 1 is as it was. */
static void fixture_close(struct fixture *f)
{
    conf_barrier();
    CONF_CHECK_BYTES(f->mem.addr, SIZE, 0x3c, "memory of failed operations");
    conf_barrier();
    if (conf_rank == 0) {
        memset(f->mem.addr, 0x77, 8);
        CONF_OK(utofu_put(f->vcq.hdl, f->vcq.peer[1], f->stadds[0],
                          f->stadds[1] + 8, 8, 200,
                          CONF_TCQ | CONF_LMRQ | CONF_RMRQ, CONF_PTR(200)));
        CONF_EXPECT_TCQ(&f->vcq, CONF_PTR(200));
        CONF_EXPECT_MRQ(&f->vcq, UTOFU_MRQ_TYPE_LCL_PUT, f->vcq.peer[1], 200,
                        NULL);
    } else {
        /* No notice of a failed operation came before this one. */
        CONF_EXPECT_MRQ(&f->vcq, UTOFU_MRQ_TYPE_RMT_PUT, f->vcq.peer[0], 200,
                        NULL);
        CONF_CHECK_BYTES(f->mem.addr + 8, 8, 0x77, "put after failures");
    }
    CONF_EXPECT_QUIET(&f->vcq);
    conf_barrier();
    conf_dereg(&f->vcq, f->stadds[conf_rank]);
    conf_vcq_close(&f->vcq);
    conf_mem_free(&f->mem);
}

/* Each failure is tried without notices, with all of them, and in strong
 * order. */
static const unsigned long flag_sets[] = {
    0, CONF_TCQ | CONF_LMRQ | CONF_RMRQ, CONF_STRONG,
};

CONF_TEST("3.1.2.1", put_local_stadd, 2,
          "a put from a STADD that is not registered is a TCQ_STADD (or "
          "TCQ_MEMORY) error, asked for or not, with its cbdata, and is not "
          "sent")
{
    struct fixture f;
    utofu_stadd_t  bad[3];
    size_t         i, j;

    fixture_open(&f, CONF_MEM_MALLOC);
    bad[0] = f.gone_here;
    bad[1] = UINT64_MAX - 65535;
    CONF_OK(utofu_query_stadd(f.vcq.id, 3, &bad[2]));
    for (i = 0; (i < CONF_LEN(bad)) && (conf_rank == 0); i++) {
        for (j = 0; j < CONF_LEN(flag_sets); j++) {
            CONF_OK(utofu_put(f.vcq.hdl, f.vcq.peer[1], bad[i], f.stadds[1], 64,
                              1, flag_sets[j], CONF_PTR(i * 10 + j)));
            CONF_EXPECT_TCQ_ERROR(&f.vcq, CONF_PTR(i * 10 + j), TCQ_BAD_STADD);
            conf_expect_quiet(__FILE__, __LINE__, &f.vcq, 2);
        }
    }
    fixture_close(&f);
}

CONF_TEST("3.1.2.1", local_stadd_of_nothing, 2,
          "a put of no bytes from a STADD that is not registered is a TCQ_STADD (or TCQ_MEMORY) error, "
          "too, whatever the STADD; a registered one is none")
{
    struct fixture f;
    utofu_stadd_t  bad[4];
    size_t         i, j;

    fixture_open(&f, CONF_MEM_MALLOC);
    bad[0] = f.gone_here;
    bad[1] = UINT64_MAX - 65535;
    bad[2] = 0; /* what a program has that never set it */
    CONF_OK(utofu_query_stadd(f.vcq.id, 3, &bad[3]));
    for (i = 0; (i < CONF_LEN(bad)) && (conf_rank == 0); i++) {
        for (j = 0; j < CONF_LEN(flag_sets); j++) {
            CONF_OK(utofu_put(f.vcq.hdl, f.vcq.peer[1], bad[i], f.stadds[1], 0,
                              1, flag_sets[j], CONF_PTR(i * 10 + j)));
            CONF_EXPECT_TCQ_ERROR(&f.vcq, CONF_PTR(i * 10 + j), TCQ_BAD_STADD);
            CONF_OK(utofu_put(f.vcq.hdl, f.vcq.peer[1], f.stadds[0], f.stadds[1], 0,
                              1, CONF_TCQ, CONF_PTR(100)));
            CONF_EXPECT_TCQ(&f.vcq, CONF_PTR(100));
            conf_expect_quiet(__FILE__, __LINE__, &f.vcq, 2);
        }
    }
    fixture_close(&f);
}

CONF_TEST("3.1.2.1", put_local_length, 2,
          "a put that starts in a registered region and ends behind it is a "
          "TCQ_LENGTH error; one byte less is none")
{
    struct fixture f;
    size_t         j;

    fixture_open(&f, CONF_MEM_ANON);
    for (j = 0; (j < CONF_LEN(flag_sets)) && (conf_rank == 0); j++) {
        CONF_OK(utofu_put(f.vcq.hdl, f.vcq.peer[1], f.stadds[0] + SIZE - 63,
                          f.stadds[1], 64, 1, flag_sets[j], CONF_PTR(j)));
        CONF_EXPECT_TCQ_ERROR(&f.vcq, CONF_PTR(j), UTOFU_ERR_TCQ_LENGTH);
        CONF_OK(utofu_put(f.vcq.hdl, f.vcq.peer[1], f.stadds[0], f.stadds[1],
                          SIZE + 1, 1, flag_sets[j], CONF_PTR(j)));
        CONF_EXPECT_TCQ_ERROR(&f.vcq, CONF_PTR(j), UTOFU_ERR_TCQ_LENGTH);
        CONF_OK(utofu_put(f.vcq.hdl, f.vcq.peer[1], f.stadds[0] + SIZE,
                          f.stadds[1], 1, 1, flag_sets[j], CONF_PTR(j)));
        CONF_EXPECT_TCQ_ERROR(&f.vcq, CONF_PTR(j), UTOFU_ERR_TCQ_LENGTH,
                              UTOFU_ERR_TCQ_STADD);
        CONF_OK(utofu_put(f.vcq.hdl, f.vcq.peer[1], f.stadds[0] + SIZE - 64,
                          f.stadds[1] + SIZE - 64, 64, 2, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&f.vcq, UTOFU_MRQ_TYPE_LCL_PUT, f.vcq.peer[1], 2, NULL);
    }
    fixture_close(&f);
}

CONF_TEST("2.2.2", stadd_of_another_vcq, 2,
          "a STADD is good only for the VCQ it was registered with")
{
    struct fixture  f;
    struct conf_vcq other;

    fixture_open(&f, CONF_MEM_MEMFD);
    conf_vcq_open(&other, 1, 0);
    if (conf_rank == 0) {
        CONF_OK(utofu_put(other.hdl, f.vcq.peer[1], f.stadds[0], f.stadds[1], 8,
                          1, 0, CONF_PTR(1)));
        CONF_EXPECT_TCQ_ERROR(&other, CONF_PTR(1), TCQ_BAD_STADD);
        CONF_OK(utofu_put_piggyback8(f.vcq.hdl, other.peer[1], 5, f.stadds[1],
                                     8, 1, 0, CONF_PTR(1)));
        CONF_EXPECT_MRQ_ERROR(&f.vcq, UTOFU_MRQ_TYPE_LCL_PUT, other.peer[1], 1,
                              RMT_BAD_STADD);
    }
    conf_barrier();
    conf_vcq_close(&other);
    fixture_close(&f);
}

enum op { PUT, PIGGYBACK, GET, ARMW4, CSWAP8, NUM_OPS };

static int post(struct fixture *f, enum op op, utofu_vcq_id_t to,
                utofu_stadd_t rmt, size_t length, uint64_t edata,
                unsigned long flags, void *cbdata)
{
    utofu_vcq_hdl_t hdl = f->vcq.hdl;

    switch (op) {
    case PUT:
        return utofu_put(hdl, to, f->stadds[0], rmt, length, edata, flags,
                         cbdata);
    case PIGGYBACK:
        return utofu_put_piggyback(hdl, to, f->mem.addr, rmt,
                                   (length < 32) ? length : 32, edata, flags,
                                   cbdata);
    case GET:
        return utofu_get(hdl, to, f->stadds[0], rmt, length, edata, flags,
                         cbdata);
    case ARMW4:
        return utofu_armw4(hdl, to, UTOFU_ARMW_OP_ADD, 1, rmt, edata, flags,
                           cbdata);
    case CSWAP8:
        return utofu_cswap8(hdl, to, UINT64_C(0x3c3c3c3c3c3c3c3c), 1, rmt,
                            edata, flags, cbdata);
    case NUM_OPS:
        break;
    }
    return UTOFU_ERR_FATAL;
}

static int type_of(enum op op)
{
    return (op <= PIGGYBACK) ? UTOFU_MRQ_TYPE_LCL_PUT :
           (op == GET)       ? UTOFU_MRQ_TYPE_LCL_GET :
                               UTOFU_MRQ_TYPE_LCL_ARMW;
}

/* The packet leaves, so a TCQ entry that was asked for is a success (2.2.12);
 * the error is in the MRQ. */
#define EXPECT_REMOTE_ERROR(_f, _op, _peer, _edata, _flags, _cbdata, ...) \
    do { \
        if ((_flags) & CONF_TCQ) { \
            CONF_EXPECT_TCQ(&(_f)->vcq, _cbdata); \
        } \
        CONF_EXPECT_MRQ_ERROR(&(_f)->vcq, type_of(_op), _peer, _edata, \
                              __VA_ARGS__); \
        conf_expect_quiet(__FILE__, __LINE__, &(_f)->vcq, 1); \
    } while (0)

CONF_TEST("3.1.2.1", remote_stadd, 2,
          "an operation on a remote STADD that is not registered is an "
          "MRQ_RMT_STADD (or MRQ_RMT_MEMORY) error of the origin, asked for or "
          "not, whose notice names the operation; the target sees nothing")
{
    struct fixture f;
    utofu_stadd_t  bad[3];
    size_t         i, j;
    int            op;

    fixture_open(&f, CONF_MEM_MALLOC);
    bad[0] = f.gone;
    bad[1] = UINT64_MAX - 65535;
    CONF_OK(utofu_query_stadd(f.vcq.peer[1], 200, &bad[2]));
    for (i = 0; (i < CONF_LEN(bad)) && (conf_rank == 0); i++) {
        for (j = 0; j < CONF_LEN(flag_sets); j++) {
            for (op = 0; op < NUM_OPS; op++) {
                CONF_POST(f.vcq.hdl,
                          post(&f, op, f.vcq.peer[1], bad[i], 64, op + 20,
                               flag_sets[j], CONF_PTR(op)));
                EXPECT_REMOTE_ERROR(&f, op, f.vcq.peer[1], (uint64_t)op + 20,
                                    flag_sets[j], CONF_PTR(op), RMT_BAD_STADD);
            }
        }
    }
    fixture_close(&f);
}

CONF_TEST("3.7.6.1", error_fields, 2,
          "the notice of an operation that failed remotely has the fields of its "
          "kind: end of the data, local for get and remote for put, the word of an "
          "ARMW, EDATA, and the VCQ ID with the default path, whatever path it took")
{
    struct utofu_mrq_notice notice;
    struct fixture          f;
    utofu_vcq_id_t          to;
    uint8_t                 path[3] = {1, 2, 0};
    int                     op, way, code;

    fixture_open(&f, CONF_MEM_ANON);
    for (way = 0; (way < 2) && (conf_rank == 0); way++) {
        to = f.vcq.peer[1];
        if (way == 1) {
            CONF_OK(utofu_set_vcq_id_path(&to, path));
        }
        for (op = 0; op < NUM_OPS; op++) {
            utofu_stadd_t bad  = f.gone + 8;
            unsigned long flag = (op % 2) ? CONF_LMRQ : 0;

            CONF_POST(f.vcq.hdl, post(&f, op, to, bad, 24, op + 40, flag, NULL));
            code = CONF_WAIT_MRQ(&f.vcq, &notice);
            CONF_CODE(code, RMT_BAD_STADD);
            CONF_CHECK(notice.notice_type == type_of(op), "type %d",
                       notice.notice_type);
            CONF_CHECK(notice.vcq_id == f.vcq.peer[1], "VCQ ID %" PRIx64,
                       (uint64_t)notice.vcq_id);
            CONF_CHECK(notice.edata == (uint64_t)op + 40, "EDATA %" PRIu64,
                       notice.edata);
            if (op == GET) {
                CONF_CHECK(notice.lcl_stadd == f.stadds[0] + 24,
                           "local STADD of a get: %" PRIx64,
                           (uint64_t)notice.lcl_stadd);
            } else {
                CONF_CHECK(notice.rmt_stadd == bad + ((op <= PIGGYBACK) ? 24 : 0),
                           "remote STADD of operation %d: %" PRIx64, op,
                           (uint64_t)notice.rmt_stadd);
            }
        }
    }
    fixture_close(&f);
}

static void remote_length(enum conf_kind kind)
{
    struct fixture f;
    size_t         j;
    int            op;

    fixture_open(&f, kind);
    for (j = 0; (j < CONF_LEN(flag_sets)) && (conf_rank == 0); j++) {
        for (op = 0; op <= GET; op++) {
            CONF_POST(f.vcq.hdl,
                      post(&f, op, f.vcq.peer[1], f.stadds[1] + SIZE - 31, 32,
                           op, flag_sets[j], CONF_PTR(op)));
            EXPECT_REMOTE_ERROR(&f, op, f.vcq.peer[1], (uint64_t)op,
                                flag_sets[j], CONF_PTR(op),
                                UTOFU_ERR_MRQ_RMT_LENGTH);
        }
        for (op = 0; op < NUM_OPS; op++) {
            CONF_POST(f.vcq.hdl,
                      post(&f, op, f.vcq.peer[1], f.stadds[1] + SIZE, 8, op,
                           flag_sets[j], CONF_PTR(op)));
            EXPECT_REMOTE_ERROR(&f, op, f.vcq.peer[1], (uint64_t)op,
                                flag_sets[j], CONF_PTR(op),
                                UTOFU_ERR_MRQ_RMT_LENGTH,
                                UTOFU_ERR_MRQ_RMT_STADD);
        }
    }
    fixture_close(&f);
}

CONF_TEST("3.1.2.1", remote_length_private, 2,
          "an operation that starts in a registered remote region and ends "
          "behind it is an MRQ_RMT_LENGTH error and writes nothing (private "
          "memory)")
{
    conf_need_exact_bounds();
    remote_length(CONF_MEM_MALLOC);
}

CONF_TEST("3.1.2.1", remote_length_shared, 2,
          "an operation that starts in a registered remote region and ends "
          "behind it is an MRQ_RMT_LENGTH error and writes nothing (shared "
          "memory)")
{
    conf_need_exact_bounds();
    remote_length(CONF_MEM_MEMFD_PART);
}

CONF_TEST("3.1.2.1", get_local_stadd, 2,
          "a get into a STADD that is not registered is an MRQ_LCL_STADD (or "
          "MRQ_LCL_MEMORY) error, into too little room MRQ_LCL_LENGTH")
{
    struct fixture f;
    size_t         j;

    conf_need_exact_bounds();
    fixture_open(&f, CONF_MEM_MALLOC);
    for (j = 0; (j < CONF_LEN(flag_sets)) && (conf_rank == 0); j++) {
        CONF_OK(utofu_get(f.vcq.hdl, f.vcq.peer[1], f.gone_here, f.stadds[1],
                          64, 5, flag_sets[j] & ~CONF_RMRQ, CONF_PTR(j)));
        EXPECT_REMOTE_ERROR(&f, GET, f.vcq.peer[1], 5, flag_sets[j],
                            CONF_PTR(j), LCL_BAD_STADD);
        CONF_OK(utofu_get(f.vcq.hdl, f.vcq.peer[1], f.stadds[0] + SIZE - 63,
                          f.stadds[1], 64, 6, flag_sets[j] & ~CONF_RMRQ,
                          CONF_PTR(j)));
        EXPECT_REMOTE_ERROR(&f, GET, f.vcq.peer[1], 6, flag_sets[j],
                            CONF_PTR(j), UTOFU_ERR_MRQ_LCL_LENGTH);
    }
    fixture_close(&f);
}

CONF_TEST("2.2.4", get_told_before_it_failed, 2,
          "a get whose data can't be written where it came from has been read "
          "by then: its target is told, with or without an error here")
{
    struct fixture          f;
    struct utofu_mrq_notice notice;

    conf_need_exact_bounds();
    fixture_open(&f, CONF_MEM_MALLOC);
    if (conf_rank == 0) {
        CONF_OK(utofu_get(f.vcq.hdl, f.vcq.peer[1], f.stadds[0] + SIZE - 63,
                          f.stadds[1] + 8, 64, 6, CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ_ERROR(&f.vcq, UTOFU_MRQ_TYPE_LCL_GET, f.vcq.peer[1], 6,
                              UTOFU_ERR_MRQ_LCL_LENGTH);
    } else {
        CONF_EXPECT_MRQ(&f.vcq, UTOFU_MRQ_TYPE_RMT_GET, f.vcq.peer[0], 6,
                        &notice);
        CONF_CHECK(notice.rmt_stadd == f.stadds[1] + 72, "remote STADD 0x%" PRIx64,
                   notice.rmt_stadd);
    }
    fixture_close(&f);
}

CONF_TEST("3.1.2.1", peer_that_is_not_there, 2,
          "an operation towards a VCQ that was never made, or freed, or of a "
          "node where nothing runs, is an MRQ_PEER error")
{
    struct fixture  f;
    struct conf_vcq freed;
    utofu_vcq_id_t  ids[3];
    uint8_t         coords[6];
    utofu_tni_id_t  tni;
    utofu_cq_id_t   cq;
    uint16_t        extra;
    size_t          i, j, n = 2;
    int             op;

    fixture_open(&f, CONF_MEM_MALLOC);
    conf_vcq_open(&freed, 1, 0);
    conf_vcq_close(&freed);
    conf_barrier();
    CONF_OK(utofu_query_vcq_info(f.vcq.peer[1], coords, &tni, &cq, &extra));
    ids[0] = freed.peer[1];
    CONF_OK(utofu_construct_vcq_id(coords, tni, 8, 7, &ids[1]));
    /* The last node of the A, B, C group is used by neither rank. */
    coords[3] = 1;
    coords[4] = 2;
    coords[5] = 1;
    if (utofu_construct_vcq_id(coords, 5, 8, 7, &ids[2]) == UTOFU_SUCCESS) {
        n = 3;
    }
    for (i = 0; (i < n) && (conf_rank == 0); i++) {
        for (j = 0; j < CONF_LEN(flag_sets); j++) {
            for (op = 0; op < NUM_OPS; op++) {
                CONF_POST(f.vcq.hdl,
                          post(&f, op, ids[i], f.stadds[1], 64, op,
                               flag_sets[j], CONF_PTR(op)));
                EXPECT_REMOTE_ERROR(&f, op, ids[i], (uint64_t)op, flag_sets[j],
                                    CONF_PTR(op), UTOFU_ERR_MRQ_PEER);
            }
        }
    }
    fixture_close(&f);
}

/* One put towards a rank; *dead_p is set when it ends in MRQ_PEER. */
static void put_or_peer(struct fixture *f, int to, bool *dead_p)
{
    struct utofu_mrq_notice notice;

    CONF_POST(f->vcq.hdl,
              utofu_put(f->vcq.hdl, f->vcq.peer[to], f->stadds[0],
                        f->stadds[to] + 64, 64, to, CONF_LMRQ | CONF_RMRQ,
                        NULL));
    if (CONF_CODE(CONF_WAIT_MRQ(&f->vcq, &notice), UTOFU_SUCCESS,
                  UTOFU_ERR_MRQ_PEER) != UTOFU_SUCCESS) {
        *dead_p = true;
    }
    conf_check_notice(__FILE__, __LINE__, &notice, UTOFU_MRQ_TYPE_LCL_PUT,
                      f->vcq.peer[to], to);
}

static void peer_killed(enum conf_kind kind)
{
    struct fixture          f;
    struct utofu_mrq_notice notice;
    bool                    dead = false, other_dead = false;
    double                  begin;
    unsigned                sent = 0, got, spins = 0;
    unsigned                counts[3];

    fixture_open(&f, kind);
    if (conf_rank == 1) {
        conf_barrier();
        CONF_FAIL("rank 1 is alive");
    } else if (conf_rank == 0) {
        put_or_peer(&f, 1, &dead);
        CONF_CHECK(!dead, "rank 1 is dead too early");
        conf_kill(1);
        begin = conf_now();
        while (!dead) {
            put_or_peer(&f, 1, &dead);
            put_or_peer(&f, 2, &other_dead);
            sent++;
            CONF_CHECK(conf_now() - begin < 5, "no MRQ_PEER for 5 s");
            usleep(100);
        }
        for (got = 0; got < 50; got++, sent++) {
            dead = false;
            put_or_peer(&f, 1, &dead);
            CONF_CHECK(dead, "a put to a dead process succeeded");
            put_or_peer(&f, 2, &other_dead);
        }
        CONF_CHECK(!other_dead, "rank 2 was reported dead as well");
        conf_exchange(&sent, sizeof(sent), counts);
    } else {
        conf_exchange(&sent, sizeof(sent), counts);
        for (got = 0; got < counts[0]; got++) {
            CONF_EXPECT_MRQ(&f.vcq, UTOFU_MRQ_TYPE_RMT_PUT, f.vcq.peer[0], 2,
                            &notice);
            conf_relax(&spins);
        }
    }
    CONF_EXPECT_QUIET(&f.vcq);
    conf_barrier();
    conf_dereg(&f.vcq, f.stadds[conf_rank]);
    conf_vcq_close(&f.vcq);
    conf_mem_free(&f.mem);
}

CONF_TEST("3.1.2.1", peer_killed_private, 3,
          "operations towards a process that was killed end in MRQ_PEER within "
          "seconds; those towards others go on (private memory)")
{
    peer_killed(CONF_MEM_MALLOC);
}

CONF_TEST("3.1.2.1", peer_killed_shared, 3,
          "operations towards a process that was killed end in MRQ_PEER within "
          "seconds; those towards others go on (shared memory)")
{
    peer_killed(CONF_MEM_MEMFD);
}

CONF_TEST("3.1.2.1", peer_killed_armw, 4,
          "an ARMW on private memory of a process that is killed meanwhile, or "
          "stopped and then killed, ends in success or MRQ_PEER, and those "
          "after it in MRQ_PEER")
{
    struct fixture          f;
    struct utofu_mrq_notice notice;
    uint64_t                first, seen;
    unsigned                count;
    double                  begin;
    int                     to, rc;

    fixture_open(&f, CONF_MEM_ANON);
    memcpy(&first, f.mem.addr, sizeof(first));
    if ((conf_rank == 1) || (conf_rank == 2)) {
        conf_barrier();
        CONF_FAIL("rank %d is alive", conf_rank);
    }
    for (to = 1; to <= 2; to++) {
        /* Rank 0 operates without pause, rank 3 is the one that kills. */
        conf_at(__FILE__, __LINE__, "ARMW to a process that is killed");
        if (conf_rank == 3) {
            do { /* until rank 0 has begun, whenever it gets a CPU */
                CONF_POST(f.vcq.hdl,
                          utofu_get(f.vcq.hdl, f.vcq.peer[to], f.stadds[3], f.stadds[to] + 64, 8, 1, CONF_LMRQ, NULL));
                CONF_CODE(CONF_WAIT_MRQ(&f.vcq, &notice), UTOFU_SUCCESS);
                memcpy(&seen, f.mem.addr, sizeof(seen));
            } while (seen == first);
            usleep(20000);
            if (to == 2) {
                conf_stop(to);
                usleep(20000);
            }
            conf_kill(to);
            continue;
        }
        begin = conf_now();
        for (count = 0, rc = UTOFU_SUCCESS; rc == UTOFU_SUCCESS; count++) {
            CONF_POST(f.vcq.hdl,
                      utofu_armw8(f.vcq.hdl, f.vcq.peer[to], UTOFU_ARMW_OP_ADD,
                                  1, f.stadds[to] + 64, 1, CONF_LMRQ, NULL));
            rc = CONF_CODE(CONF_WAIT_MRQ(&f.vcq, &notice), UTOFU_SUCCESS,
                           UTOFU_ERR_MRQ_PEER);
            CONF_CHECK(conf_now() - begin < 5, "no MRQ_PEER for 5 s");
        }
        CONF_CHECK(count > 1, "rank %d was dead at once", to);
        for (count = 0; count < 20; count++) {
            CONF_POST(f.vcq.hdl,
                      utofu_armw8(f.vcq.hdl, f.vcq.peer[to], UTOFU_ARMW_OP_ADD,
                                  1, f.stadds[to] + 64, 1, CONF_LMRQ, NULL));
            CONF_CODE(CONF_WAIT_MRQ(&f.vcq, &notice), UTOFU_ERR_MRQ_PEER);
        }
    }
    CONF_EXPECT_QUIET(&f.vcq);
    conf_barrier();
    conf_dereg(&f.vcq, f.stadds[conf_rank]);
    conf_vcq_close(&f.vcq);
    conf_mem_free(&f.mem);
}

CONF_TEST("2.2.12", sender_killed, 6,
          "processes killed in the middle of their puts harm neither the "
          "target nor other senders")
{
    enum { NUM = 6000, SURVIVOR = 5 };
    struct fixture          f;
    struct utofu_mrq_notice notice;
    unsigned                got[6] = {0}, spins = 0;
    int                     i, from, victim = 1;

    fixture_open(&f, CONF_MEM_MEMFD);
    /* The victims do not know when they end. */
    for (i = 0; (conf_rank != 0) && ((i < NUM) || (conf_rank != SURVIVOR));
         i++) {
        CONF_POST(f.vcq.hdl,
                  utofu_put(f.vcq.hdl, f.vcq.peer[0], f.stadds[conf_rank],
                            f.stadds[0] + conf_rank * 512, 500, i % 256,
                            CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&f.vcq, UTOFU_MRQ_TYPE_LCL_PUT, f.vcq.peer[0], i % 256,
                        NULL);
        /* Several senders share a CPU: take turns in small steps. */
        conf_relax(&spins);
    }
    while ((conf_rank == 0) && (got[SURVIVOR] < NUM)) {
        CONF_OK(CONF_WAIT_MRQ(&f.vcq, &notice));
        for (from = 1; (from < SURVIVOR) &&
                       (notice.vcq_id != f.vcq.peer[from]); from++) {
        }
        conf_check_notice(__FILE__, __LINE__, &notice, UTOFU_MRQ_TYPE_RMT_PUT,
                          f.vcq.peer[from], got[from] % 256);
        got[from]++;
        if ((victim < SURVIVOR) && (got[victim] > 10u * victim) &&
            (got[SURVIVOR] > NUM / 8u * victim)) {
            conf_kill(victim++);
        }
    }
    for (; (conf_rank == 0) && (victim < SURVIVOR); victim++) {
        conf_kill(victim);
    }
    conf_barrier();
    conf_dereg(&f.vcq, f.stadds[conf_rank]);
    conf_vcq_close(&f.vcq);
    conf_mem_free(&f.mem);
}

CONF_TEST("3.7", errors_between_successes, 2,
          "failed operations among good ones: every operation is reported "
          "once, in order, the failed ones as such")
{
    enum { NUM = 300 };
    struct fixture          f;
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    int                     i, rc;

    fixture_open(&f, CONF_MEM_MALLOC);
    for (i = 0; (i < NUM) && (conf_rank == 0); i++) {
        /* Every third fails at the origin, every fifth at the target. */
        CONF_OK(utofu_put(f.vcq.hdl, f.vcq.peer[1],
                          (i % 3 == 0) ? f.gone_here : f.stadds[0],
                          (i % 5 == 0) ? f.gone : f.stadds[1], 16, i % 256,
                          CONF_TCQ | CONF_LMRQ, CONF_PTR(i)));
        rc = CONF_WAIT_TCQ(&f.vcq, &cbdata);
        CONF_CHECK(cbdata == CONF_PTR(i), "operation %d: cbdata %p", i, cbdata);
        if (i % 3 == 0) {
            CONF_CODE(rc, TCQ_BAD_STADD);
            continue;
        }
        CONF_OK(rc);
        rc = CONF_WAIT_MRQ(&f.vcq, &notice);
        conf_check_notice(__FILE__, __LINE__, &notice, UTOFU_MRQ_TYPE_LCL_PUT,
                          f.vcq.peer[1], i % 256);
        if (i % 5 == 0) {
            CONF_CODE(rc, RMT_BAD_STADD);
        } else {
            CONF_OK(rc);
        }
    }
    fixture_close(&f);
}

CONF_TEST("2.2.10", errors_in_order_vcq_freed, 1,
          "local notices of one remote VCQ stay in order, although it is freed "
          "before those of earlier operations were polled")
{
    enum { LARGE = 1 << 23, ROUNDS = 20 };
    static const size_t     sizes[] = {8, 4096, LARGE};
    struct conf_vcq         from, to;
    struct conf_mem         source, target;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           src, dst;
    size_t                  i;
    int                     op, round;

    conf_mem_alloc(&source, CONF_MEM_MEMFD, LARGE);
    conf_mem_alloc(&target, CONF_MEM_MEMFD, LARGE);
    conf_vcq_open(&from, 0, 0);
    src = conf_reg(&from, source.addr, LARGE, 0);
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < CONF_LEN(sizes); i++) {
            for (op = PUT; op <= GET; op += GET - PUT) {
                conf_vcq_open(&to, 1, 0);
                dst = conf_reg(&to, target.addr, LARGE, 0);
                CONF_POST(from.hdl, (op == PUT) ?
                          utofu_put(from.hdl, to.id, src, dst, sizes[i], 1,
                                    CONF_LMRQ, NULL) :
                          utofu_get(from.hdl, to.id, src, dst, sizes[i], 1,
                                    CONF_LMRQ, NULL));
                conf_dereg(&to, dst);
                conf_vcq_close(&to);
                CONF_POST(from.hdl,
                          utofu_put_piggyback8(from.hdl, to.id, 5, dst, 8, 2,
                                               CONF_LMRQ, NULL));
                CONF_CODE(CONF_WAIT_MRQ(&from, &notice), UTOFU_SUCCESS,
                          UTOFU_ERR_MRQ_PEER, RMT_BAD_STADD);
                conf_check_notice(__FILE__, __LINE__, &notice, type_of(op),
                                  to.id, 1);
                CONF_CODE(CONF_WAIT_MRQ(&from, &notice), UTOFU_ERR_MRQ_PEER);
                conf_check_notice(__FILE__, __LINE__, &notice,
                                  UTOFU_MRQ_TYPE_LCL_PUT, to.id, 2);
            }
        }
    }
    conf_dereg(&from, src);
    conf_vcq_close(&from);
    conf_mem_free(&source);
    conf_mem_free(&target);
}
