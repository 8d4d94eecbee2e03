/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_spec_client.c - what uTofu programs in the wild rely on, whether or not
 * the guide promises it.  Sections 9.x are ours: 9.1 own notice before the
 * answer, 9.2 polling the end of a put, 9.3 IDs and STADDs that are constructed,
 * 9.4 answering the sender of a notice, 9.5 the mixture of features, and the
 * launcher's rank as the number of the node, 9.6 the topology.
 */
#include "harness.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static uint64_t load(const volatile void *address)
{
    return atomic_load_explicit((const volatile _Atomic uint64_t *)address,
                                memory_order_acquire);
}

static void wait_word(const volatile void *address, uint64_t value)
{
    double   end   = conf_now() + CONF_WAIT;
    unsigned spins = 0;

    conf_at(__FILE__, __LINE__, "waiting for a word");
    while (load(address) != value) {
        if (spins % 65536 == 0) {
            CONF_CHECK(conf_now() < end, "%" PRIu64 " does not arrive", value);
        }
        conf_relax(&spins);
    }
}

/* ------------------------------------------------ 9.1: notices of a ping-pong */

static void ping_pong_by_notice(enum conf_kind kind, size_t size)
{
    enum { ROUNDS = 600 };
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];
    unsigned        r, peer = 1 - conf_rank;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, kind, 2 * size);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    for (r = 0; r < ROUNDS; r++) {
        if (conf_rank == 1) {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[0], r % 256,
                            NULL);
            CONF_CHECK_FILL(mem.addr + size, size, r, "ping");
        }
        conf_fill(mem.addr, size, r + conf_rank);
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[peer], stadds[conf_rank],
                                     stadds[peer] + size, size, r % 256,
                                     CONF_LMRQ | CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[peer], r % 256,
                        NULL);
        if (conf_rank == 0) {
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[1], r % 256,
                            NULL);
            CONF_CHECK_FILL(mem.addr + size, size, r + 1, "pong");
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("9.1", client_own_notice_first, 2,
          "in a ping-pong by notices a process finds its own local notice "
          "before the remote notice of the answer, for small and large puts")
{
    ping_pong_by_notice(CONF_MEM_MEMFD, 8);
    ping_pong_by_notice(CONF_MEM_MALLOC, 64);
    ping_pong_by_notice(CONF_MEM_MALLOC, 20000);
}

/* ------------------------------------------------- 9.2: polling the last word */

/* The last word is there, hence all: looked at before the answer is sent. */
static void wait_whole(const uint64_t *in, size_t last, uint64_t value)
{
    uint64_t i;

    wait_word(&in[last], value);
    for (i = 0; i <= last; i++) {
        CONF_CHECK(load(&in[i]) == value, "%zu bytes: word %" PRIu64 " is %"
                   PRIu64 ", the last one %" PRIu64, 8 * last + 8, i,
                   load(&in[i]), value);
    }
}

CONF_TEST("9.2", client_ping_pong_by_memory, 2,
          "a ping-pong of STRONG_ORDER puts in which each side polls the last "
          "word in memory and no notice is asked for")
{
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC};
    static const size_t         sizes[] = {8, 24, 520, 8000};
    enum { ROUNDS = 500, MOST = 8192 };
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];
    uint64_t       *out, *in, r, i;
    size_t          k, s, last;
    int             peer = 1 - conf_rank;

    conf_vcq_open(&vcq, 0, 0);
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mem, kinds[k], 2 * MOST);
        conf_reg_all(&vcq, mem.addr, mem.size, stadds);
        out = (uint64_t *)mem.addr;
        in  = (uint64_t *)(mem.addr + MOST);
        for (s = 0; s < CONF_LEN(sizes); s++) {
            last = sizes[s] / 8 - 1;
            for (r = s * ROUNDS + 1; r <= (s + 1) * ROUNDS; r++) {
                if (conf_rank == 1) {
                    wait_whole(in, last, r);
                }
                for (i = 0; i <= last; i++) {
                    out[i] = r;
                }
                CONF_POST(vcq.hdl,
                          utofu_put(vcq.hdl, vcq.peer[peer], stadds[conf_rank],
                                    stadds[peer] + MOST, sizes[s], 0,
                                    CONF_STRONG, NULL));
                if (conf_rank == 0) {
                    wait_whole(in, last, r);
                }
            }
        }
        conf_barrier();
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
    }
    conf_vcq_close(&vcq);
}

/* ----------------------------------- 9.3: nothing but coordinates is exchanged */

CONF_TEST("9.3", client_constructs_ids_and_stadds, 2,
          "processes that know of each other only coordinates construct the "
          "VCQ IDs and STADDs of their peers and put to them on every TNI")
{
    enum { STAG = 17, CMP = 2, SIZE = 4096 };
    struct conf_vcq vcq;
    unsigned char  *memory;
    utofu_vcq_hdl_t hdls[6];
    utofu_vcq_id_t  id, peer_id;
    utofu_stadd_t   lcl, rmt;
    utofu_cq_id_t   cq;
    utofu_tni_id_t  tni;
    uint16_t        extra;
    uint8_t         coords[6], all[2][6];
    size_t          t;

    CONF_OK(utofu_query_my_coords(coords));
    conf_exchange(coords, sizeof(coords), all);
    if (memcmp(all[0], all[1], 6) == 0) {
        conf_skip("both processes are on one node");
    }
    memory = aligned_alloc(SIZE, 6 * SIZE);
    memset(memory, 0, 6 * SIZE);
    for (t = 0; t < conf_num_tnis(); t++) {
        CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(t), CMP, 0, &hdls[t]));
        CONF_OK(utofu_reg_mem_with_stag(hdls[t], memory + t * SIZE, SIZE, STAG,
                                        0, &lcl));
    }
    conf_barrier(); /* the peer has made its VCQs */
    for (t = 0; t < conf_num_tnis(); t++) {
        memset(&vcq, 0, sizeof(vcq));
        vcq.hdl = hdls[t];
        CONF_OK(utofu_query_vcq_id(hdls[t], &id));
        CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
        CONF_OK(utofu_construct_vcq_id(all[1 - conf_rank], conf_tni(t), cq, CMP,
                                       &peer_id));
        CONF_OK(utofu_query_stadd(peer_id, STAG, &rmt));
        CONF_OK(utofu_put_piggyback8(hdls[t], peer_id, 100 * t + conf_rank + 1,
                                     rmt + 8 * t, 8, t, CONF_LMRQ | CONF_RMRQ,
                                     NULL));
        CONF_EXPECT_BOTH(&vcq, peer_id, t);
        CONF_CHECK(*(uint64_t *)(memory + t * SIZE + 8 * t) ==
                           100 * t + 2 - conf_rank, "TNI %d: %" PRIu64
                   " arrived", conf_tni(t),
                   *(uint64_t *)(memory + t * SIZE + 8 * t));
    }
    conf_barrier();
    for (t = 0; t < conf_num_tnis(); t++) {
        CONF_OK(utofu_free_vcq(hdls[t]));
    }
    free(memory);
}

/* -------------------------------------------- 9.4: the notice names the sender */

CONF_TEST("9.4", client_answers_to_notice, 4,
          "a server that knows no client answers the VCQ ID in a remote "
          "notice; it compares equal to the ID that the client sent before, "
          "whatever path the request took")
{
    enum { ROUNDS = 50, STAG = 3 };
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    unsigned char          *memory = aligned_alloc(4096, 4096);
    utofu_stadd_t           stadd, rmt;
    utofu_vcq_id_t          id;
    uint8_t                 path[3];
    unsigned                r, i, known;

    memset(memory, 0, 4096);
    conf_vcq_open(&vcq, 0, 0);
    CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, memory, 4096, STAG, 0, &stadd));
    conf_barrier();
    for (r = 0; (r < ROUNDS * 3) && (conf_rank == 0); r++) {
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
        for (known = i = 1; i < 4; i++) {
            known = (notice.vcq_id == vcq.peer[i]) ? 10 + i : known;
        }
        CONF_CHECK((notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT) &&
                           (known >= 10), "type %d from 0x%" PRIx64
                   ", which is no client's ID", notice.notice_type,
                   notice.vcq_id);
        CONF_OK(utofu_query_stadd(notice.vcq_id, STAG, &rmt));
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, notice.vcq_id,
                                                notice.edata + 1, rmt + 64, 8,
                                                notice.edata, CONF_RMRQ, NULL));
    }
    for (r = 0; (r < ROUNDS) && (conf_rank != 0); r++) {
        path[0] = r % 2;
        path[1] = r % 3;
        path[2] = r / 2 % 2;
        id      = vcq.peer[0];
        CONF_OK(utofu_set_vcq_id_path(&id, path));
        CONF_OK(utofu_query_stadd(id, STAG, &rmt));
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, id, r,
                                                rmt + 8 * conf_rank, 8,
                                                64 * conf_rank + r, CONF_RMRQ,
                                                NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[0],
                        64 * conf_rank + r, NULL);
        CONF_CHECK(*(uint64_t *)(memory + 64) == 64u * conf_rank + r + 1,
                   "the answer is %" PRIu64, *(uint64_t *)(memory + 64));
    }
    conf_barrier();
    CONF_EXPECT_QUIET(&vcq);
    conf_vcq_close(&vcq);
    free(memory);
}

CONF_TEST("9.4", client_finds_armw_in_rmt_value, 2,
          "a remote notice of an ARMW has the STADD of the word in rmt_value, "
          "too, where utf looks for it")
{
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    uint64_t               *memory = aligned_alloc(4096, 4096);
    utofu_stadd_t           stadd, all[2];
    unsigned                i;

    memset(memory, 0, 4096);
    conf_vcq_open(&vcq, 0, 0);
    stadd = conf_reg(&vcq, memory, 4096, 0);
    conf_exchange(&stadd, sizeof(stadd), all);
    for (i = 0; (i < 40) && (conf_rank == 0); i++) {
        CONF_POST(vcq.hdl, utofu_armw4(vcq.hdl, vcq.peer[1],
                                       UTOFU_ARMW_OP_ADD, i, all[1] + 8 * i, i,
                                       CONF_RMRQ, NULL));
        CONF_POST(vcq.hdl, utofu_cswap8(vcq.hdl, vcq.peer[1], i, 1,
                                        all[1] + 8 * i, i, CONF_RMRQ, NULL));
    }
    for (i = 0; (i < 80) && (conf_rank == 1); i++) {
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_ARMW, vcq.peer[0], i / 2,
                        &notice);
        CONF_CHECK((notice.rmt_value == stadd + 8 * (i / 2)) &&
                           (notice.rmt_stadd == notice.rmt_value),
                   "rmt_value 0x%" PRIx64 ", rmt_stadd 0x%" PRIx64,
                   notice.rmt_value, notice.rmt_stadd);
    }
    conf_barrier();
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
    free(memory);
}

/* ---------------------------------------------------- 9.5: the whole mixture */

CONF_TEST("9.5", client_mixture, 4,
          "THREAD_SAFE VCQs on all TNIs, with injected puts, piggyback puts, "
          "gets and fetch-and-add at once towards all peers and all three "
          "kinds of notice: every operation is reported once and is right")
{
    enum { ROUNDS = 40, WORDS = 512 };
    struct conf_vcq         vcqs[6];
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[6][CONF_MAX_PROCS];
    static uint64_t         words[6][WORDS];
    unsigned                local[6] = {0}, remote[6] = {0}, r, t, p, want, num;
    uint64_t                sum = 0;
    double                  end = conf_now() + CONF_WAIT;
    int                     rc;

    num = (unsigned)conf_num_tnis();
    num = (num > 6) ? 6 : num;
    for (t = 0; t < num; t++) {
        conf_vcq_open(&vcqs[t], t, UTOFU_VCQ_FLAG_THREAD_SAFE);
        words[t][conf_rank] = 1000 + conf_rank; /* before anybody gets it */
        conf_reg_all(&vcqs[t], words[t], sizeof(words[t]), stadds[t]);
    }
    conf_barrier();
    want = ROUNDS * 4 * (conf_procs - 1); /* notices of a kind on each VCQ */
    for (r = 0; r < ROUNDS; r++) {
        for (t = 0; t < num; t++) {
            struct conf_vcq *v   = &vcqs[t];
            /* in order, as the last round is to be what stays */
            unsigned long    all = CONF_TCQ | CONF_LMRQ | CONF_RMRQ | CONF_STRONG;

            for (p = 0; p < (unsigned)conf_procs; p++) {
                utofu_stadd_t rmt = stadds[t][p] + 1024 + 256 * conf_rank;

                if (p == (unsigned)conf_rank) {
                    continue;
                }
                CONF_POST(v->hdl, utofu_put(v->hdl, v->peer[p],
                                            stadds[t][conf_rank] + 8 * conf_rank,
                                            rmt, 8, r, all |
                                            UTOFU_ONESIDED_FLAG_CACHE_INJECTION,
                                            CONF_PTR(1)));
                CONF_POST(v->hdl, utofu_put_piggyback8(v->hdl, v->peer[p], r + 1,
                                                       rmt + 8, 8, r, all,
                                                       CONF_PTR(2)));
                CONF_POST(v->hdl, utofu_get(v->hdl, v->peer[p],
                                            stadds[t][conf_rank] + 512 + 8 * p,
                                            stadds[t][p] + 8 * p, 8, r, all,
                                            CONF_PTR(3)));
                CONF_POST(v->hdl, utofu_armw8(v->hdl, v->peer[p],
                                              UTOFU_ARMW_OP_ADD, 1,
                                              stadds[t][p] + 256, r, all,
                                              CONF_PTR(4)));
            }
        }
    }
    for (t = 0; t < num; t++) {
        while ((local[t] < want) || (remote[t] < want)) {
            rc = CONF_CODE(utofu_poll_mrq(vcqs[t].hdl, 0, &notice),
                           UTOFU_SUCCESS, UTOFU_ERR_NOT_FOUND);
            if (rc == UTOFU_SUCCESS) {
                *((notice.notice_type % 2 == 0) ? &local[t] : &remote[t]) += 1;
                sum += (notice.notice_type == UTOFU_MRQ_TYPE_LCL_ARMW) ?
                               notice.rmt_value : 0;
            }
            CONF_CHECK(conf_now() < end, "TNI %d: %u local, %u remote notices",
                       vcqs[t].tni, local[t], remote[t]);
        }
    }
    conf_barrier();
    for (t = 0; t < num; t++) {
        CONF_CHECK(words[t][32] == ROUNDS * (uint64_t)(conf_procs - 1),
                   "the counter is %" PRIu64, words[t][32]);
        for (p = 0; p < (unsigned)conf_procs; p++) {
            if (p != (unsigned)conf_rank) {
                CONF_CHECK((words[t][128 + 32 * p] == 1000 + p) &&
                                   (words[t][128 + 32 * p + 1] == ROUNDS),
                           "rank %u wrote %" PRIu64 ", %" PRIu64, p,
                           words[t][128 + 32 * p], words[t][128 + 32 * p + 1]);
                CONF_CHECK(words[t][64 + p] == 1000 + p, "got %" PRIu64
                           " from rank %u", words[t][64 + p], p);
            }
        }
        while (utofu_poll_tcq(vcqs[t].hdl, 0, &(void *){NULL}) ==
               UTOFU_SUCCESS) {
        }
        CONF_EXPECT_QUIET(&vcqs[t]);
        conf_dereg(&vcqs[t], stadds[t][conf_rank]);
        conf_vcq_close(&vcqs[t]);
    }
    CONF_CHECK(sum > 0, "no ARMW saw another's");
}

static void node_from(const char *variable)
{
    uint8_t coords[6], all[3][6];
    char    rank[16];
    int     i, n;

    if (!conf_is_emulator()) {
        conf_skip("a machine knows its nodes");
    }
    snprintf(rank, sizeof(rank), "%d", 12 + conf_rank);
    CONF_CHECK(setenv(variable, rank, 1) == 0, "setenv");
    CONF_CHECK(setenv("UTOFU_EMU_PPN", "2", 1) == 0, "setenv");
    CONF_OK(utofu_query_my_coords(coords));
    conf_exchange(coords, sizeof(coords), all);
    for (i = 0; i < conf_procs; i++) {
        for (n = 0; n < i; n++) {
            CONF_CHECK((memcmp(all[i], all[n], 6) == 0) == (i / 2 == n / 2),
                       "%s: ranks %d and %d of two processes a node", variable,
                       12 + i, 12 + n);
        }
    }
}

CONF_TEST("9.5", client_rank_of_pmix, 3,
          "PMIX_RANK says which node a process is on, UTOFU_EMU_PPN how many "
          "processes share one")
{
    node_from("PMIX_RANK");
}

CONF_TEST("9.5", client_rank_of_pmi, 3,
          "PMI_RANK says which node a process is on")
{
    node_from("PMI_RANK");
}

CONF_TEST("9.5", client_rank_of_openmpi, 3,
          "OMPI_COMM_WORLD_RANK says which node a process is on")
{
    node_from("OMPI_COMM_WORLD_RANK");
}

CONF_TEST("9.1", own_notice_first_both_there, 2,
          "a process that polls only when the answer to its put is there finds its own local notice first")
{
    enum { ROUNDS = 200 };
    struct conf_vcq    vcq;
    utofu_stadd_t      stadds[2];
    volatile uint64_t *words = calloc(8, 8);
    unsigned           spins = 0, r;

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, (void *)words, 64, stadds);
    for (r = 1; r <= ROUNDS; r++) {
        if (conf_rank == 1) {
            while (words[0] != r) {
                conf_relax(&spins);
            }
        }
        CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[1 - conf_rank], r, stadds[1 - conf_rank], 8, r % 256,
                                                conf_rank ? CONF_RMRQ : (CONF_LMRQ | CONF_STRONG), NULL));
        if (conf_rank == 0) {
            while (words[0] != r) {
                conf_relax(&spins);
            }
            usleep(100); /* the answer's notice is there as well */
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], r % 256, NULL);
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[1], r % 256, NULL);
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
