/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_spec_model.c - the communication model (chapter 2): whose resources are
 * whose, and what a notice says about remote memory.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------- 2.1: the unit is a process */

/* The calls of a process that uses a handle it did not make; 0 when all were
 * refused, else the number of the call that was not. */
static int foreign_calls(utofu_vcq_hdl_t hdl, utofu_vcq_id_t id)
{
    static uint64_t         word;
    struct utofu_mrq_notice notice;
    utofu_vcq_id_t          got;
    utofu_stadd_t           stadd;
    void                   *cbdata;
    int                     i;

    const int codes[] = {
        utofu_query_vcq_id(hdl, &got),
        utofu_reg_mem(hdl, &word, sizeof(word), 0, &stadd),
        utofu_put_piggyback8(hdl, id, 1, 0, 8, 0, 0, NULL),
        utofu_nop(hdl, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL),
        utofu_poll_tcq(hdl, 0, &cbdata),
        utofu_poll_mrq(hdl, 0, &notice),
        utofu_free_vcq(hdl),
    };

    for (i = 0; i < (int)CONF_LEN(codes); i++) {
        if (codes[i] != UTOFU_ERR_INVALID_VCQ_HDL) {
            return i + 1;
        }
    }
    return 0;
}

CONF_TEST("2.1", handle_of_another_process, 2,
          "a VCQ handle that another process made is INVALID_VCQ_HDL here, and "
          "its VCQ is none the worse")
{
    struct conf_vcq vcq;
    utofu_vcq_hdl_t hdls[2] = {0, 0}, hdl = 0;
    utofu_vcq_id_t  ids[2], id = 0;
    int             call;

    if (conf_rank == 0) {
        conf_vcq_create(&vcq, 0, 0);
        hdl = vcq.hdl;
        id  = vcq.id;
    } else {
        conf_num_tnis(); /* the process uses the library, but has no VCQ */
    }
    conf_exchange(&hdl, sizeof(hdl), hdls);
    conf_exchange(&id, sizeof(id), ids);
    if (conf_rank == 1) {
        call = foreign_calls(hdls[0], ids[0]);
        CONF_CHECK(call == 0, "call %d took the handle of another process",
                   call);
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_nop(vcq.hdl, CONF_TCQ, CONF_PTR(3)));
        CONF_EXPECT_TCQ(&vcq, CONF_PTR(3));
        CONF_EXPECT_QUIET(&vcq);
        conf_vcq_close(&vcq);
    }
}

CONF_TEST("2.1", handle_of_the_parent, 1,
          "a child process cannot use the VCQs of its parent, and the parent "
          "goes on using them")
{
    struct conf_vcq vcq;
    pid_t           child;
    int             status;

    if (!conf_is_emulator()) {
        conf_skip("the guide does not say which code a child gets");
    }
    conf_vcq_create(&vcq, 0, 0);
    fflush(NULL);
    child = fork();
    CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(CONF_TIMEOUT);
        _exit(foreign_calls(vcq.hdl, vcq.id));
    }
    CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CONF_CHECK(status == 0, "call %d took the parent's handle (status 0x%x)",
               WEXITSTATUS(status), status);
    CONF_OK(utofu_nop(vcq.hdl, CONF_TCQ, CONF_PTR(4)));
    CONF_EXPECT_TCQ(&vcq, CONF_PTR(4));
    conf_vcq_close(&vcq);
}

struct taker {
    const struct conf_vcq  *vcq;
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    int                     tcq, mrq;
};

static void *take(void *arg)
{
    struct taker *t = arg;

    t->tcq = CONF_WAIT_TCQ(t->vcq, &t->cbdata);
    t->mrq = CONF_WAIT_MRQ(t->vcq, &t->notice);
    return NULL;
}

CONF_TEST("2.1", completion_in_another_thread, 2,
          "what one thread started another thread of the process can find "
          "completed")
{
    struct conf_vcq vcq;
    struct taker    taker;
    utofu_stadd_t   stadds[2];
    uint64_t        words[2] = {0, 0};
    pthread_t       thread;
    int             i;

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    for (i = 1; (i <= 20) && (conf_rank == 0); i++) {
        words[0] = i;
        memset(&taker, 0, sizeof(taker));
        taker.vcq = &vcq;
        CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1] + 8, 8, i,
                          CONF_TCQ | CONF_LMRQ, CONF_PTR(i)));
        CONF_CHECK(pthread_create(&thread, NULL, take, &taker) == 0,
                   "pthread_create");
        pthread_join(thread, NULL);
        CONF_CHECK((taker.tcq == UTOFU_SUCCESS) && (taker.cbdata == CONF_PTR(i)),
                   "the thread found TCQ %d, cbdata %p", taker.tcq,
                   taker.cbdata);
        CONF_CHECK(taker.mrq == UTOFU_SUCCESS, "the thread found MRQ %d",
                   taker.mrq);
        conf_check_notice(__FILE__, __LINE__, &taker.notice,
                          UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], i);
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (words[1] == 20), "the puts did not arrive");
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

/* -------------------------------------------------- 2.2.2: STADDs and their CQ */

CONF_TEST("2.2.2", stadds_unique_in_cq, 1,
          "regions that are registered with VCQs of one CQ at the same time "
          "have different STADDs")
{
    enum { VCQS = 8, REGIONS = 16 };
    static uint64_t memory[VCQS][REGIONS][16];
    utofu_vcq_hdl_t hdls[VCQS];
    utofu_stadd_t   stadds[VCQS * REGIONS];
    utofu_vcq_id_t  id;
    utofu_tni_id_t  tni;
    utofu_cq_id_t   cq, first_cq = 0;
    uint8_t         coords[6];
    uint16_t        extra;
    int             v, r, n = 0, i, j;

    for (v = 0; v < VCQS; v++) {
        CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(0), v, 0, &hdls[v]));
        CONF_OK(utofu_query_vcq_id(hdls[v], &id));
        CONF_OK(utofu_query_vcq_info(id, coords, &tni, &cq, &extra));
        first_cq = (v == 0) ? cq : first_cq;
        CONF_CHECK(cq == first_cq, "component %d is on CQ %d, not %d", v, cq,
                   first_cq);
    }
    for (r = 0; r < REGIONS; r++) {
        for (v = 0; v < VCQS; v++) {
            CONF_OK(utofu_reg_mem(hdls[v], memory[v][r], sizeof(memory[v][r]),
                                  0, &stadds[n++]));
        }
    }
    for (i = 0; i < n; i++) {
        for (j = 0; j < i; j++) {
            CONF_CHECK(stadds[i] != stadds[j], "region %d of component %d and "
                       "region %d of component %d have STADD 0x%" PRIx64,
                       i / VCQS, i % VCQS, j / VCQS, j % VCQS, stadds[i]);
        }
    }
    for (i = 0; i < n; i++) {
        CONF_OK(utofu_dereg_mem(hdls[i % VCQS], stadds[i], 0));
    }
    for (v = 0; v < VCQS; v++) {
        CONF_OK(utofu_free_vcq(hdls[v]));
    }
}

/* ----------------------------------------- 2.2.3, 2.2.5: what a notice promises */

/* Rank 0 looks at rank 1's memory itself, through a mapping of the same file. */
static volatile uint64_t *map_peer_file(int fd)
{
    struct {
        int pid, fd;
    } mine = {(int)getpid(), fd}, all[2];
    char  path[64];
    void *map;
    int   opened;

    conf_exchange(&mine, sizeof(mine), all);
    if (conf_rank == 1) {
        conf_barrier();
        return NULL;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", all[1].pid, all[1].fd);
    opened = open(path, O_RDWR);
    CONF_CHECK(opened >= 0, "%s: %s", path, strerror(errno));
    map = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, opened, 0);
    CONF_CHECK(map != MAP_FAILED, "mmap: %s", strerror(errno));
    close(opened);
    conf_barrier();
    return map;
}

CONF_TEST("2.2.3", local_notice_means_written, 2,
          "when the local notice of a put or an ARMW is found, the remote "
          "memory has its new contents, up to the last byte")
{
    static const size_t sizes[] = {8, 32, 256, 4096, 65536, 1 << 20};
    enum { ROUNDS = 60 };
    struct conf_vcq    vcq;
    struct conf_mem    mem;
    utofu_stadd_t      stadds[2];
    volatile uint64_t *there;
    uint64_t          *here, value;
    size_t             s, last;
    unsigned           r;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 1 << 20);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    there = map_peer_file(mem.fd);
    here  = (uint64_t *)mem.addr;
    for (s = 0; (s < CONF_LEN(sizes)) && (conf_rank == 0); s++) {
        last = sizes[s] / 8 - 1;
        for (r = 1; r <= ROUNDS; r++) {
            value   = s * ROUNDS + r;
            here[0] = here[last / 2] = here[last] = value;
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1],
                              sizes[s], r, CONF_LMRQ | CONF_TCQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], r, NULL);
            CONF_CHECK((there[0] == value) && (there[last / 2] == value) &&
                               (there[last] == value),
                       "put of %zu bytes: %" PRIu64 ", %" PRIu64 ", %" PRIu64
                       " at its local notice, expected %" PRIu64, sizes[s],
                       there[0], there[last / 2], there[last], value);
            CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1000,
                                stadds[1] + 8 * last, r, CONF_LMRQ | CONF_TCQ,
                                NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], r,
                            NULL);
            CONF_CHECK(there[last] == value + 1000, "ARMW: %" PRIu64
                       " at its local notice, expected %" PRIu64, there[last],
                       value + 1000);
            CONF_EXPECT_TCQ(&vcq, NULL);
            CONF_EXPECT_TCQ(&vcq, NULL);
        }
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("2.2.5", remote_notice_of_armw, 2,
          "when the remote notice of an ARMW is found the word is changed, in "
          "shared and in private memory")
{
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MALLOC};
    enum { ROUNDS = 200 };
    struct conf_vcq    vcq;
    struct conf_mem    mem;
    utofu_stadd_t      stadds[2];
    volatile uint64_t *word;
    uint64_t           r;
    size_t             k;

    conf_vcq_open(&vcq, 0, 0);
    for (k = 0; k < CONF_LEN(kinds); k++) {
        conf_mem_alloc(&mem, kinds[k], 4096);
        conf_reg_all(&vcq, mem.addr, mem.size, stadds);
        word = (volatile uint64_t *)(mem.addr + 128);
        for (r = 1; r <= ROUNDS; r++) {
            if (conf_rank == 0) {
                CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_SWAP, r,
                                    stadds[1] + 128, r, CONF_RMRQ | CONF_LMRQ,
                                    NULL));
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], r,
                                NULL);
            } else {
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_ARMW, vcq.peer[0], r,
                                NULL);
                CONF_CHECK(*word == r, "%s: the word is %" PRIu64 " at notice %"
                           PRIu64, conf_kind_name(kinds[k]), *word, r);
            }
            conf_barrier();
        }
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
    }
    conf_vcq_close(&vcq);
}
