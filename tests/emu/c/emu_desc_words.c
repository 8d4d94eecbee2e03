/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_desc_words.c - the words of prepared descriptors that programs write into, as the public libfabric
 * provider for Tofu does (docs/emulator.md); by the guide a descriptor is opaque.
 */
#include "harness.h"

#include <pthread.h>

static struct conf_vcq vcq;
static uint64_t        memory[64] __attribute__((aligned(256)));
static utofu_stadd_t   stadd;
static uint64_t        desc[32];

static void begin(void)
{
    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, memory, sizeof(memory), 0);
    memset(memory, 0, sizeof(memory));
}

static void post(size_t words)
{
    CONF_OK(utofu_post_toq(vcq.hdl, desc, words * 8, CONF_PTR(3)));
}

CONF_TEST("descriptors", words_of_armw, 1, "an ARMW of 8 bytes has 32, the operand in word 3")
{
    size_t size = 0;

    begin();
    CONF_OK(utofu_prepare_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 1, stadd, 4, CONF_LMRQ | CONF_TCQ, desc, &size));
    CONF_CHECK((size == 32) && (desc[3] == 1), "%zu bytes", size);
    desc[3] = 41;
    post(4);
    CONF_CHECK(memory[0] == 41, "%d", (int)memory[0]);
    CONF_EXPECT_TCQ(&vcq, CONF_PTR(3));
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.id, 4, NULL);
}

CONF_TEST("descriptors", words_of_cswap, 1, "a compare and swap has 64, what is compared in word 1, the new value in word 7")
{
    size_t size = 0;

    begin();
    memory[0] = 7;
    CONF_OK(utofu_prepare_cswap8(vcq.hdl, vcq.id, 0, 0, stadd, 4, CONF_LMRQ, desc, &size));
    CONF_CHECK(size == 64, "%zu bytes", size);
    desc[1] = 7;
    desc[7] = 9;
    post(8);
    CONF_CHECK(memory[0] == 9, "%d", (int)memory[0]);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.id, 4, NULL);
}

CONF_TEST("descriptors", words_of_piggyback, 1, "a piggyback put has 64, data in words 7, 1, 2 and 3, the STADD in word 6")
{
    uint64_t data[4] = {1, 2, 3, 4};
    size_t   size    = 0;

    begin();
    CONF_OK(utofu_prepare_put_piggyback(vcq.hdl, vcq.id, data, stadd, 32, 0, 0, desc, &size));
    CONF_CHECK((size == 64) && (desc[7] == 1) && (desc[1] == 2) && (desc[3] == 4), "%zu bytes", size);
    desc[7] = 11;
    desc[2] = 13;
    desc[6] += 64;
    post(8);
    CONF_CHECK((memory[8] == 11) && (memory[9] == 2) && (memory[10] == 13) && (memory[11] == 4) && (memory[0] == 0),
               "%d %d %d %d", (int)memory[8], (int)memory[9], (int)memory[10], (int)memory[11]);
}

CONF_TEST("descriptors", words_of_put, 1, "a put's length is in the upper half of word 1, its STADDs in words 2 and 3")
{
    size_t size = 0;

    begin();
    memory[5] = 55;
    CONF_OK(utofu_prepare_put(vcq.hdl, vcq.id, 0, 0, 0, 6, CONF_LMRQ, desc, &size));
    desc[1] += (uint64_t)8 << 32;
    desc[2] = stadd + 80;
    desc[3] = stadd + 40;
    post(size / 8);
    CONF_CHECK(memory[10] == 55, "%d", (int)memory[10]);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 6, NULL);
    desc[1] += (uint64_t)1 << 56;
    CONF_CODE(utofu_post_toq(vcq.hdl, desc, size, NULL), UTOFU_ERR_INVALID_DESC);
}

CONF_TEST("descriptors", words_of_nop, 1, "a NOP has 32, also one that a program has made, and one post has several kinds")
{
    size_t size = 0, nop = 0;

    begin();
    CONF_OK(utofu_prepare_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 1, stadd, 0, 0, desc, &size));
    memset(desc + 4, 0, 32);
    *(uint8_t *)&desc[4] |= 2;
    CONF_OK(utofu_prepare_nop(vcq.hdl, CONF_TCQ, desc + 8, &nop));
    CONF_CHECK((size == 32) && (nop == 32), "%zu, %zu bytes", size, nop);
    CONF_OK(utofu_prepare_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 2, stadd, 0, CONF_TCQ, desc + 12, &size));
    post(16);
    CONF_CHECK(memory[0] == 3, "%d", (int)memory[0]);
    for (int i = 0; i < 3; i++) {
        CONF_EXPECT_TCQ(&vcq, CONF_PTR(3));
    }
    CONF_EXPECT_QUIET(&vcq);
}

CONF_TEST("descriptors", words_of_puts_of_libfabric, 1,
          "where a put's length was added to the lower half of word 1 it is taken, in both halves it is not")
{
    size_t size = 0;

    begin();
    memory[5] = 55;
    CONF_OK(utofu_prepare_put(vcq.hdl, vcq.id, stadd, stadd, 0, 6, CONF_LMRQ, desc, &size));
    desc[1] += 8;
    desc[2] += 80;
    desc[3] += 40;
    post(size / 8);
    CONF_CHECK(memory[10] == 55, "%d", (int)memory[10]);
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.id, 6, NULL);
    desc[1] += (uint64_t)8 << 32;
    CONF_CODE(utofu_post_toq(vcq.hdl, desc, size, NULL), UTOFU_ERR_INVALID_DESC);
    CONF_EXPECT_QUIET(&vcq);
}

/* One of 64 bytes, and two of 32 in its place */
static uint64_t wide[8], narrow[8];
static bool     enough;

static void *writes(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
        for (unsigned i = 0; i < 100; i++) {
            for (unsigned k = 0; k < 8; k++) {
                __atomic_store_n(&desc[k], (i % 2) ? wide[k] : narrow[k], __ATOMIC_RELAXED);
            }
        }
    }
    return NULL;
}

CONF_TEST("descriptors", words_while_posted, 1,
          "descriptors that another thread writes meanwhile are never more than the TOQ has room for")
{
    size_t    size = 0;
    pthread_t thread;
    void     *cbdata;
    unsigned  most = 0;

    begin();
    CONF_OK(utofu_prepare_put(vcq.hdl, vcq.id, stadd, stadd + 64, 8, 0, CONF_TCQ, wide, &size));
    CONF_CHECK(size == 64, "%zu bytes", size);
    narrow[0] = narrow[4] = 2;
    while (utofu_nop(vcq.hdl, CONF_TCQ, NULL) == UTOFU_SUCCESS) {
        most++;
    }
    CONF_CHECK(!pthread_create(&thread, NULL, writes, NULL), "pthread_create");
    for (unsigned round = 0; round < 100000; round++) {
        unsigned n = 0;

        CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_SUCCESS, UTOFU_ERR_TCQ_STADD); /* room for one */
        CONF_CODE(utofu_post_toq(vcq.hdl, desc, 64, NULL), UTOFU_SUCCESS, UTOFU_ERR_INVALID_DESC, UTOFU_ERR_BUSY);
        while (utofu_nop(vcq.hdl, CONF_TCQ, NULL) == UTOFU_SUCCESS) {
            CONF_CHECK(n++ == 0, "room for more than %u", most);
        }
    }
    __atomic_store_n(&enough, true, __ATOMIC_RELAXED);
    CONF_CHECK(!pthread_join(thread, NULL), "pthread_join");
}

CONF_TEST("descriptors", words_of_anything, 1, "any change of a descriptor gives a code, and reaches nothing else")
{
    unsigned char *bytes = (unsigned char *)desc;
    size_t         size = 0;
    void          *cbdata;
    struct utofu_mrq_notice notice;

    begin();
    for (unsigned round = 0; round < 20000; round++) {
        uint64_t data[4] = {1, 2, 3, 4};

        switch (round % 7) {
        case 0:
            CONF_OK(utofu_prepare_put(vcq.hdl, vcq.id, stadd, stadd + 256, 64, 1, CONF_LMRQ, desc, &size));
            break;
        case 1:
            CONF_OK(utofu_prepare_get_gap(vcq.hdl, vcq.id, stadd, stadd + 256, 64, 1, CONF_LMRQ, 256, 3, desc, &size));
            break;
        case 2:
            CONF_OK(utofu_prepare_put_piggyback(vcq.hdl, vcq.id, data, stadd, 32, 0, CONF_LMRQ, desc, &size));
            break;
        case 3:
            CONF_OK(utofu_prepare_armw4(vcq.hdl, vcq.id, UTOFU_ARMW_OP_XOR, 5, stadd, 0, CONF_LMRQ, desc, &size));
            break;
        case 4:
            CONF_OK(utofu_prepare_armw8(vcq.hdl, vcq.id, UTOFU_ARMW_OP_ADD, 5, stadd, 0, CONF_LMRQ, desc, &size));
            break;
        case 5:
            CONF_OK(utofu_prepare_nop(vcq.hdl, CONF_TCQ, desc, &size));
            break;
        default:
            CONF_OK(utofu_prepare_cswap4(vcq.hdl, vcq.id, 5, 6, stadd, 0, CONF_LMRQ, desc, &size));
        }
        for (unsigned k = 0; k < 1 + round % 3; k++) {
            bytes[(unsigned)rand() % size] ^= (unsigned char)(1u << ((unsigned)rand() % 8));
        }
        CONF_CODE(utofu_post_toq(vcq.hdl, desc, size, NULL), UTOFU_SUCCESS, UTOFU_ERR_INVALID_DESC, UTOFU_ERR_BUSY);
        while (utofu_poll_tcq(vcq.hdl, 0, &cbdata) != UTOFU_ERR_NOT_FOUND) {
        }
        while (utofu_poll_mrq(vcq.hdl, 0, &notice) != UTOFU_ERR_NOT_FOUND) {
        }
    }
}
