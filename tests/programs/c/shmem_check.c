/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shmem_check.c - OpenSHMEM over the transport: puts, gets, atomics, strided and
 * non-blocking transfers, point-to-point waits, barriers and collectives.
 *
 * PEs stand in a ring.  Each checks what came to it; the end is told by one line
 * of every PE, before shmem_finalize, which may crash with stock UCX (docs/mpi.md).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shmem.h>

#define MOST (1 << 20)

static int me, pes;

#define CHECK(cond) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "PE %d, %s:%d: not so: %s\n", me, __FILE__, __LINE__, #cond); \
            shmem_global_exit(3); \
        } \
    } while (0)

static const size_t lengths[] = {1, 7, 8, 24, 33, 1000, 8192, 8193, 65536, 262145, MOST};

static unsigned char byte_at(size_t i, int pe, unsigned round)
{
    return (unsigned char)(i * 13 + (i >> 9) + (unsigned)pe * 31 + round * 7);
}

static void fill(unsigned char *p, size_t length, int pe, unsigned round)
{
    for (size_t i = 0; i < length; i++) {
        p[i] = byte_at(i, pe, round);
    }
}

static int matches(const unsigned char *p, size_t length, int pe, unsigned round)
{
    for (size_t i = 0; i < length; i++) {
        if (p[i] != byte_at(i, pe, round)) {
            return 0;
        }
    }
    return 1;
}

/* To the right, then from the left; one byte behind the end stays as it was. */
static void put_get(unsigned char *heap, unsigned char *local)
{
    int right = (me + 1) % pes, left = (me + pes - 1) % pes;

    for (unsigned round = 0; round < sizeof(lengths) / sizeof(*lengths); round++) {
        size_t length = lengths[round];

        memset(heap, 0xee, MOST + 8);
        shmem_barrier_all();
        fill(local, length, me, round);
        if (round % 2) {
            shmem_putmem(heap, local, length, right);
        } else {
            shmem_putmem_nbi(heap, local, length, right);
        }
        shmem_barrier_all(); /* puts are complete */
        CHECK(matches(heap, length, left, round));
        CHECK(heap[length] == 0xee);

        memset(local, 0, length);
        if (round % 2) {
            shmem_getmem(local, heap, length, right);
        } else {
            shmem_getmem_nbi(local, heap, length, right);
            shmem_quiet();
        }
        CHECK(matches(local, length, me, round)); /* what was put there */
        shmem_barrier_all();
    }
}

static void strided(long *heap)
{
    long mine[16];
    int  right = (me + 1) % pes, left = (me + pes - 1) % pes;

    for (int i = 0; i < 16; i++) {
        mine[i] = me * 100 + i;
        heap[i] = -1;
    }
    shmem_barrier_all();
    shmem_long_iput(heap, mine, 2, 1, 8, right);
    shmem_barrier_all();
    for (int i = 0; i < 16; i++) {
        CHECK(heap[i] == ((i % 2) ? -1 : left * 100 + i / 2));
    }
}

/* All PEs count on PE 0; each old value is seen once. */
static void atomics(long *heap)
{
    enum { TIMES = 500 };
    long *counter = heap, *swapped = heap + 1, *bits = heap + 2, *seen = heap + 8, old, sum = 0;

    memset(heap, 0, 64 * sizeof(*heap));
    shmem_barrier_all();
    for (int i = 0; i < TIMES; i++) {
        old = shmem_long_atomic_fetch_inc(counter, 0);
        CHECK((old >= 0) && (old < (long)TIMES * pes));
        sum += old;
    }
    shmem_long_atomic_add(seen, sum, 0);
    for (int i = 0; i < TIMES; i++) { /* an addition made of compare-and-swap */
        old = shmem_long_atomic_fetch(swapped, 0);
        for (;;) {
            long found = shmem_long_atomic_compare_swap(swapped, old, old + me + 1, 0);
            if (found == old) {
                break;
            }
            old = found;
        }
    }
    shmem_long_atomic_fetch_add(bits, 1l << me, 0);
    shmem_barrier_all();
    if (me == 0) {
        long all = (long)TIMES * pes;
        CHECK(*counter == all);
        CHECK(*seen == all * (all - 1) / 2);
        CHECK(*swapped == (long)TIMES * pes * (pes + 1) / 2);
        CHECK(*bits == (1l << pes) - 1);
        CHECK(shmem_long_atomic_swap(counter, -5, 0) == all);
        CHECK(*counter == -5);
    }
    shmem_barrier_all();
    CHECK(shmem_long_atomic_fetch(counter, 0) == -5);
    shmem_barrier_all();
}

/* A number travels round the ring: data, fence, flag. */
static void ring(long *heap)
{
    enum { ROUNDS = 50 };
    long *data = heap, *flag = heap + 32, value;
    int  right = (me + 1) % pes;

    memset(heap, 0, 64 * sizeof(*heap));
    shmem_barrier_all();
    for (long round = 1; round <= ROUNDS; round++) {
        if (me != 0) {
            shmem_long_wait_until(flag, SHMEM_CMP_EQ, round);
            CHECK(*data == round * 1000 + me - 1);
        }
        value = round * 1000 + me;
        shmem_long_put(data, &value, 1, right);
        shmem_fence();
        shmem_long_put(flag, &round, 1, right);
        if (me == 0) {
            shmem_long_wait_until(flag, SHMEM_CMP_EQ, round);
            CHECK(*data == round * 1000 + pes - 1);
        }
    }
    shmem_barrier_all();
}

static long reduce_work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 8];
static long sync_word[SHMEM_REDUCE_SYNC_SIZE + SHMEM_BCAST_SYNC_SIZE];

static void collectives(long *heap)
{
    for (size_t i = 0; i < sizeof(sync_word) / sizeof(*sync_word); i++) {
        sync_word[i] = SHMEM_SYNC_VALUE;
    }
    for (int i = 0; i < 4; i++) {
        heap[i]      = (me + 1) * (i + 1);
        heap[16 + i] = 0;
        heap[32 + i] = (me == 1) ? 7000 + i : -1;
        heap[48 + i] = -1;
    }
    shmem_barrier_all();
    shmem_long_sum_to_all(heap + 16, heap, 4, 0, 0, pes, reduce_work, sync_word);
    shmem_broadcast64(heap + 48, heap + 32, 4, 1, 0, 0, pes, sync_word + SHMEM_REDUCE_SYNC_SIZE);
    shmem_barrier_all();
    for (int i = 0; i < 4; i++) {
        CHECK(heap[16 + i] == (long)pes * (pes + 1) / 2 * (i + 1));
        CHECK((me == 1) || (heap[48 + i] == 7000 + i));
    }
    shmem_barrier_all();
}

int main(void)
{
    unsigned char *bytes, *local;
    long          *words;

    shmem_init();
    me  = shmem_my_pe();
    pes = shmem_n_pes();
    CHECK(pes >= 2);
    bytes = shmem_malloc(MOST + 8);
    words = shmem_calloc(64, sizeof(*words));
    local = malloc(MOST);
    CHECK((bytes != NULL) && (words != NULL) && (local != NULL));
    put_get(bytes, local);
    strided(words);
    atomics(words);
    ring(words);
    collectives(words);
    shmem_barrier_all();
    printf("PE %d of %d: ok\n", me, pes);
    fflush(stdout);
    shmem_barrier_all(); /* all have said so, before any ends */
    shmem_finalize();
    return 0;
}
