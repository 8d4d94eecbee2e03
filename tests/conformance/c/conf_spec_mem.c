/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_spec_mem.c - when registered memory may go (3.6), the smallest
 * registration, and STADDs of reserved STags (3.6.1.2 - 3.6.1.4).
 */
#include "harness.h"

#include <inttypes.h>
#include <sys/mman.h>

#define RMT_BAD_STADD UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_MEMORY

static const size_t sizes[] = {8, 300, 4096, 20000, 1 << 20};

/* A private mapping that really goes away when it is unmapped. */
static unsigned char *fresh(size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CONF_CHECK(map != MAP_FAILED, "mmap of %zu bytes", size);
    return map;
}

/* Rank 0 puts from memory that goes as soon as one notice is there. */
static void source_goes(bool at_tcq)
{
    struct conf_vcq vcq;
    struct conf_mem mem;
    unsigned char  *source;
    utofu_stadd_t   stadds[2], lcl;
    size_t          s;
    unsigned        r;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MALLOC, 1 << 20);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    for (s = 0; s < CONF_LEN(sizes); s++) {
        for (r = 1; r <= 20; r++) {
            if (conf_rank == 0) {
                source = fresh(sizes[s]);
                conf_fill(source, sizes[s], r);
                lcl = conf_reg(&vcq, source, sizes[s], 0);
                CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], lcl, stadds[1],
                                  sizes[s], r, CONF_TCQ | CONF_LMRQ,
                                  CONF_PTR(r)));
                if (at_tcq) {
                    CONF_EXPECT_TCQ(&vcq, CONF_PTR(r));
                } else {
                    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1],
                                    r, NULL);
                }
                conf_dereg(&vcq, lcl);
                munmap(source, sizes[s]);
                if (at_tcq) {
                    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1],
                                    r, NULL);
                } else {
                    CONF_EXPECT_TCQ(&vcq, CONF_PTR(r));
                }
            }
            conf_barrier();
            if (conf_rank == 1) {
                CONF_CHECK_FILL(mem.addr, sizes[s], r, "put from memory that "
                                "went after its notice");
            }
            conf_barrier();
        }
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("3.6", source_goes_after_tcq, 2,
          "after the TCQ entry of a put its source may be deregistered and "
          "released; the put still succeeds")
{
    source_goes(true);
}

CONF_TEST("3.6", source_goes_after_local_notice, 2,
          "after the local notice of a put its source may be deregistered and "
          "released, also when the TCQ was not read")
{
    source_goes(false);
}

CONF_TEST("3.6", target_of_get_goes_after_notice, 2,
          "after the local notice of a get its target may be read, "
          "deregistered and released")
{
    struct conf_vcq vcq;
    struct conf_mem mem;
    unsigned char  *target;
    utofu_stadd_t   stadds[2], lcl;
    size_t          s;
    unsigned        r;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MALLOC, 1 << 20);
    conf_fill(mem.addr, mem.size, 5);
    conf_reg_all(&vcq, mem.addr, mem.size, stadds);
    for (s = 0; (s < CONF_LEN(sizes)) && (conf_rank == 0); s++) {
        for (r = 1; r <= 20; r++) {
            target = fresh(sizes[s]);
            lcl    = conf_reg(&vcq, target, sizes[s], 0);
            CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], lcl, stadds[1],
                                         sizes[s], r, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], r, NULL);
            conf_dereg(&vcq, lcl);
            CONF_CHECK_FILL(target, sizes[s], 5, "get");
            munmap(target, sizes[s]);
        }
    }
    conf_barrier();
    CONF_EXPECT_QUIET(&vcq);
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("3.6", remote_goes_after_remote_notice, 2,
          "after the remote notice of a put, get or ARMW its remote memory may "
          "be deregistered and released; the operation still succeeds")
{
    enum { ROUNDS = 30, SIZE = 8192 };
    static const int types[] = {UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_MRQ_TYPE_LCL_GET,
                                UTOFU_MRQ_TYPE_LCL_ARMW};
    static unsigned char local[SIZE];
    struct conf_vcq vcq;
    unsigned char  *target = NULL;
    utofu_stadd_t   stadd = 0, stadds[2], lcl;
    unsigned        r, op;

    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, local, sizeof(local), 0);
    for (r = 0; r < ROUNDS * CONF_LEN(types); r++) {
        op = r % CONF_LEN(types);
        if (conf_rank == 1) {
            target = fresh(SIZE);
            conf_fill(target, SIZE, 3);
            stadd = conf_reg(&vcq, target, SIZE, 0);
        } else if (op == 0) {
            conf_fill(local, SIZE, r);
        }
        conf_exchange(&stadd, sizeof(stadd), stadds);
        if (conf_rank == 1) {
            CONF_EXPECT_MRQ(&vcq, types[op] + 1, vcq.peer[0], r % 256, NULL);
            if (op == 0) {
                CONF_CHECK_FILL(target, SIZE, r, "put");
            }
            conf_dereg(&vcq, stadd);
            munmap(target, SIZE);
        } else {
            CONF_OK((op == 0) ? utofu_put(vcq.hdl, vcq.peer[1], lcl, stadds[1],
                                          SIZE, r % 256, CONF_LMRQ | CONF_RMRQ |
                                          CONF_TCQ, CONF_PTR(r)) :
                    (op == 1) ? utofu_get(vcq.hdl, vcq.peer[1], lcl, stadds[1],
                                          SIZE, r % 256, CONF_LMRQ | CONF_RMRQ |
                                          CONF_TCQ, CONF_PTR(r)) :
                                utofu_armw8(vcq.hdl, vcq.peer[1],
                                            UTOFU_ARMW_OP_ADD, 1, stadds[1],
                                            r % 256, CONF_LMRQ | CONF_RMRQ |
                                            CONF_TCQ, CONF_PTR(r)));
            CONF_EXPECT_MRQ(&vcq, types[op], vcq.peer[1], r % 256, NULL);
            CONF_EXPECT_TCQ(&vcq, CONF_PTR(r));
            if (op == 1) {
                CONF_CHECK_FILL(local, SIZE, 3, "get");
            }
        }
        conf_barrier();
    }
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.6", remote_goes_after_local_notice, 2,
          "after the local notice of an operation its remote memory may be "
          "deregistered; later operations on it fail, earlier ones do not")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd = 0, stadds[2], lcl;
    uint64_t        source = 1, word = 0;
    unsigned        r;

    conf_need_exact_bounds();
    conf_vcq_open(&vcq, 0, 0);
    lcl = conf_reg(&vcq, &source, sizeof(source), 0);
    for (r = 1; r <= 50; r++) {
        stadd = conf_reg(&vcq, &word, sizeof(word), 0);
        conf_exchange(&stadd, sizeof(stadd), stadds);
        if (conf_rank == 0) {
            source = r;
            conf_put_word(&vcq, vcq.peer[1], lcl, stadds[1]);
        }
        conf_barrier();
        CONF_CHECK((conf_rank == 0) || (word == r), "round %u: %" PRIu64, r,
                   word);
        conf_dereg(&vcq, stadd);
        conf_barrier();
        if (conf_rank == 0) {
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], lcl, stadds[1],
                                         8, r, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], r,
                                  RMT_BAD_STADD);
        }
        conf_barrier();
    }
    conf_dereg(&vcq, lcl);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.6", stadd_in_use_many_times, 2,
          "one STADD can be used by many operations at the same time, as "
          "source, as target and as target of ARMW")
{
    enum { NUM = 500 };
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[2];
    uint64_t                words[NUM + 1];
    unsigned                i;

    memset(words, 0, sizeof(words));
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    if (conf_rank == 0) {
        for (i = 0; i < NUM; i++) {
            words[i] = i + 1;
        }
        for (i = 0; i < NUM; i++) {
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1],
                                         stadds[0] + 8 * i, stadds[1] + 8 * i,
                                         8, i % 256, CONF_LMRQ, NULL));
            CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1],
                                           UTOFU_ARMW_OP_ADD, 1,
                                           stadds[1] + 8 * NUM, i % 256,
                                           CONF_LMRQ, NULL));
        }
        for (i = 0; i < 2 * NUM; i++) {
            CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
            CONF_CHECK(notice.edata == i / 2 % 256, "notice %u has EDATA %"
                       PRIu64, i, notice.edata);
        }
    }
    conf_barrier();
    for (i = 0; (i <= NUM) && (conf_rank == 1); i++) {
        CONF_CHECK(words[i] == ((i < NUM) ? i + 1 : NUM), "word %u is %" PRIu64,
                   i, words[i]);
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("3.1.2.1", region_of_whole_pages, 2,
          "what starts in a region and ends behind it is a LENGTH error, what starts "
          "before or behind it a STADD error, and nothing is written, here or there; "
          "also where the library knows a region by its pages")
{
    enum { PAGE = 2 << 20 }; /* the largest of the machine */
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    unsigned char          *block = fresh(4 * PAGE), *page;
    utofu_stadd_t           stadds[2];
    unsigned                i;

    /* one page, with another of ours before and behind it */
    page = (unsigned char *)(((uintptr_t)block + 2 * PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, page, PAGE, stadds);
    for (i = 0; (i < 2) && (conf_rank == 0); i++) {
        utofu_stadd_t lcl = stadds[0] + 64, rmt = stadds[1] + 64;
        /* the second time the local end is the wrong one */
        utofu_stadd_t *bad = (i == 0) ? &rmt : &lcl;
        utofu_stadd_t  begin = stadds[1 - i];

        memset(page, 0x11, 256);
#define GET(_at, ...) \
        do { \
            *bad = (_at); \
            CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], lcl, rmt, 16, 7, CONF_LMRQ, NULL)); \
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), __VA_ARGS__); \
        } while (0)
        GET(begin + PAGE - 16, UTOFU_SUCCESS);
        GET(begin + PAGE - 15, (i == 0) ? UTOFU_ERR_MRQ_RMT_LENGTH : UTOFU_ERR_MRQ_LCL_LENGTH);
        GET(begin + PAGE, (i == 0) ? UTOFU_ERR_MRQ_RMT_STADD : UTOFU_ERR_MRQ_LCL_STADD,
            (i == 0) ? UTOFU_ERR_MRQ_RMT_LENGTH : UTOFU_ERR_MRQ_LCL_LENGTH);
        GET(begin - 16, (i == 0) ? UTOFU_ERR_MRQ_RMT_STADD : UTOFU_ERR_MRQ_LCL_STADD,
            (i == 0) ? UTOFU_ERR_MRQ_RMT_MEMORY : UTOFU_ERR_MRQ_LCL_MEMORY);
#undef GET
        for (unsigned k = 0; (k < 3) && (i == 0); k++) { /* and puts */
            static const long at[] = {PAGE - 15, PAGE, -16};

            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadds[0] + 64, stadds[1] + at[k], 16, 8, CONF_LMRQ,
                                         NULL));
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), (k == 0) ? UTOFU_ERR_MRQ_RMT_LENGTH : UTOFU_ERR_MRQ_RMT_STADD,
                      (k == 0) ? UTOFU_ERR_MRQ_RMT_LENGTH :
                      (k == 1) ? UTOFU_ERR_MRQ_RMT_LENGTH :
                                 UTOFU_ERR_MRQ_RMT_MEMORY);
        }
    }
    conf_barrier();
    CONF_CHECK_BYTES(page - 256, 256, 0, "what is before the region");
    CONF_CHECK_BYTES(page + PAGE, 256, 0, "what is behind the region");
    if (conf_rank == 1) {
        CONF_CHECK_BYTES(page + PAGE - 256, 256, 0, "its end");
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
    munmap(block, 4 * PAGE);
}

CONF_TEST("3.6.1.1", one_byte, 2,
          "one byte at any address can be registered; a put of one byte fits, "
          "of two does not")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd, stadds[2];
    unsigned char   bytes[16];
    unsigned        i;

    conf_need_exact_bounds();
    memset(bytes, 0xcc, sizeof(bytes));
    conf_vcq_open(&vcq, 0, 0);
    for (i = 1; i < 9; i++) {
        stadd = conf_reg(&vcq, bytes + i, 1, 0);
        conf_exchange(&stadd, sizeof(stadd), stadds);
        if (conf_rank == 0) {
            bytes[i] = (unsigned char)i;
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], 1, i,
                              CONF_LMRQ | CONF_TCQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], i, NULL);
            CONF_EXPECT_TCQ(&vcq, NULL);
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 0, stadds[1], 2,
                                         i, 0, NULL));
            CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], i,
                                  UTOFU_ERR_MRQ_RMT_LENGTH);
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK(bytes[i] == i, "byte %u is 0x%02x", i, bytes[i]);
            CONF_CHECK_BYTES(bytes + i + 1, sizeof(bytes) - i - 1, 0xcc,
                             "the next bytes");
        }
        conf_dereg(&vcq, stadd);
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("3.6.1.3", query_stadd_of_stag, 2,
          "utofu_query_stadd gives the same STADD each time, of an ID with any "
          "path, whether or not the STag is in use")
{
    struct conf_vcq vcq;
    unsigned char  *memory = aligned_alloc(4096, 4096);
    utofu_vcq_id_t  id;
    utofu_stadd_t   first, stadd, registered;
    uint8_t         path[3] = {1, 2, 1};
    int             r, i;

    conf_vcq_open(&vcq, 0, 0);
    for (r = 0; r < 2; r++) {
        id = vcq.peer[r];
        CONF_OK(utofu_query_stadd(id, 9, &first));
        CONF_OK(utofu_set_vcq_id_path(&id, path));
        for (i = 0; i < 3; i++) {
            CONF_OK(utofu_query_stadd((i == 1) ? id : vcq.peer[r], 9, &stadd));
            CONF_CHECK(stadd == first, "0x%" PRIx64 ", then 0x%" PRIx64, first,
                       stadd);
            if ((i == 0) && (r == conf_rank)) {
                CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, memory, 4096, 9, 0,
                                                &registered));
                CONF_CHECK(registered == first, "registered as 0x%" PRIx64
                           ", predicted 0x%" PRIx64, registered, first);
            }
        }
    }
    conf_dereg(&vcq, registered);
    conf_vcq_close(&vcq);
    free(memory);
}

CONF_TEST("3.6.1.2", stag_gone_after_dereg, 2,
          "a reserved STag reaches nothing before it is registered and after "
          "it is deregistered, and new memory when it is registered again")
{
    struct conf_vcq vcq;
    unsigned char  *memory = aligned_alloc(4096, 8192);
    utofu_stadd_t   there, stadd;
    int             step;

    memset(memory, 0, 8192);
    conf_vcq_open(&vcq, 0, 0);
    CONF_OK(utofu_query_stadd(vcq.peer[1], 200, &there));
    for (step = 0; step < 5; step++) { /* nothing, A, nothing, B, nothing */
        if ((conf_rank == 1) && (step % 2 == 1)) {
            CONF_OK(utofu_reg_mem_with_stag(vcq.hdl, memory + step / 2 * 4096,
                                            4096, 200, 0, &stadd));
        } else if ((conf_rank == 1) && (step > 0)) {
            conf_dereg(&vcq, stadd);
        }
        conf_barrier();
        if (conf_rank == 0) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], step + 1,
                                         there + 512, 8, step, CONF_LMRQ,
                                         NULL));
            if (step % 2 == 1) {
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], step,
                                NULL);
            } else {
                CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1],
                                      step, RMT_BAD_STADD);
            }
        }
        conf_barrier();
    }
    if (conf_rank == 1) {
        CONF_CHECK(*(uint64_t *)(memory + 512) == 2, "the first memory has %"
                   PRIu64, *(uint64_t *)(memory + 512));
        CONF_CHECK(*(uint64_t *)(memory + 4096 + 512) == 4, "the second memory "
                   "has %" PRIu64, *(uint64_t *)(memory + 4096 + 512));
    }
    conf_vcq_close(&vcq);
    free(memory);
}

CONF_TEST("3.6.1.2", stags_of_vcqs_of_one_cq, 2,
          "every VCQ has its own reserved STags, also when VCQs share a CQ: the "
          "same STag of each reaches its own memory")
{
    enum { VCQS = 4, STAG = 5, SIZE = 256 };
    struct conf_vcq vcqs[VCQS];
    unsigned char  *memory = aligned_alloc(4096, VCQS * SIZE);
    utofu_stadd_t   stadd, there;
    uint64_t       *word;
    int             v;

    memset(memory, 0, VCQS * SIZE);
    for (v = 0; v < VCQS; v++) {
        memset(&vcqs[v], 0, sizeof(vcqs[v]));
        CONF_OK(utofu_create_vcq_with_cmp_id(conf_tni(0), v, 0, &vcqs[v].hdl));
        CONF_OK(utofu_query_vcq_id(vcqs[v].hdl, &vcqs[v].id));
        conf_exchange(&vcqs[v].id, sizeof(vcqs[v].id), vcqs[v].peer);
        CONF_OK(utofu_reg_mem_with_stag(vcqs[v].hdl, memory + v * SIZE, SIZE,
                                        STAG, 0, &stadd));
    }
    conf_barrier();
    for (v = 0; (v < VCQS) && (conf_rank == 0); v++) {
        CONF_OK(utofu_query_stadd(vcqs[v].peer[1], STAG, &there));
        CONF_OK(utofu_put_piggyback8(vcqs[0].hdl, vcqs[v].peer[1], 70 + v,
                                     there + 16, 8, v, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcqs[0], UTOFU_MRQ_TYPE_LCL_PUT, vcqs[v].peer[1], v,
                        NULL);
    }
    conf_barrier();
    for (v = 0; v < VCQS; v++) {
        word = (uint64_t *)(memory + v * SIZE + 16);
        CONF_CHECK(*word == ((conf_rank == 1) ? 70u + v : 0u),
                   "the memory of VCQ %d has %" PRIu64, v, *word);
        CONF_OK(utofu_query_stadd(vcqs[v].id, STAG, &stadd));
        conf_dereg(&vcqs[v], stadd);
        conf_vcq_close(&vcqs[v]);
    }
    free(memory);
}

CONF_TEST("3.6", registered_with_two_vcqs, 2,
          "memory that is registered with two VCQs is reached through both; "
          "deregistered from one it is reached through the other")
{
    struct conf_vcq a, b;
    utofu_stadd_t   lcl_a, lcl_b, at_a[2], at_b[2];
    uint64_t        words[4] = {0, 0, 0, 0}, source = 8;

    conf_need_exact_bounds();
    conf_vcq_open(&a, 0, 0);
    conf_vcq_open(&b, 0, 0);
    lcl_a = conf_reg(&a, &source, 8, 0);
    lcl_b = conf_reg(&b, &source, 8, 0);
    conf_reg_all(&a, words, sizeof(words), at_a);
    conf_reg_all(&b, words, sizeof(words), at_b);
    if (conf_rank == 0) {
        conf_put_word(&a, a.peer[1], lcl_a, at_a[1]);
        conf_put_word(&b, b.peer[1], lcl_b, at_b[1] + 8);
    }
    conf_barrier();
    conf_dereg(&a, at_a[conf_rank]);
    conf_barrier();
    if (conf_rank == 0) {
        conf_put_word(&b, b.peer[1], lcl_b, at_b[1] + 16);
        CONF_OK(utofu_put(a.hdl, a.peer[1], lcl_a, at_a[1] + 24, 8, 3, 0,
                          NULL));
        CONF_EXPECT_MRQ_ERROR(&a, UTOFU_MRQ_TYPE_LCL_PUT, a.peer[1], 3,
                              RMT_BAD_STADD);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK((words[0] == 8) && (words[1] == 8) && (words[2] == 8) &&
                           (words[3] == 0), "the words are %" PRIu64 ", %"
                   PRIu64 ", %" PRIu64 ", %" PRIu64, words[0], words[1],
                   words[2], words[3]);
    }
    conf_dereg(&b, at_b[conf_rank]);
    conf_dereg(&a, lcl_a);
    conf_dereg(&b, lcl_b);
    conf_vcq_close(&a);
    conf_vcq_close(&b);
}
