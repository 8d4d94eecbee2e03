/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core_neighbours.c - one sender that puts to several neighbour nodes at once.
 *
 * One process per neighbour owns the memory and sits; each is on an emulated node
 * of its own.  The sender keeps WINDOW puts in flight to each, by one iface that may
 * use so many TNIs (UCX_UTOFU_TNIS): which endpoint uses which is for it to say.
 *
 * Usage: core_neighbours <cpu0> <cpu1> <memory> <size> <iterations> stream <tnis>
 *                        <neighbours>
 * (memory is not used; printed is the time per put of all together)
 */
#define _GNU_SOURCE
#include "core_common.h"

#define WINDOW         4
#define NEIGHBOURS_MAX 6
#define MKEY_MAX       256

/* Nodes one hop away from 0,0,0,0,0,0, each over a link of its own. */
static const char *const coords[NEIGHBOURS_MAX] = {
    "0,0,0,1,0,0", "0,0,0,0,1,0", "0,0,0,0,2,0",
    "0,0,0,0,0,1", "1,0,0,0,0,0", "0,1,0,0,0,0"
};

struct target {
    struct core_address address;
    char                key[MKEY_MAX];
    uint64_t            memory;
};

struct lane {
    tofu_ep_t         *ep;
    tofu_rkey_t       *rkey;
    struct target     target;
    tofu_iov_t        iov;
    tofu_completion_t comp[WINDOW];
    int               busy[WINDOW];
};

static struct lane lanes[NEIGHBOURS_MAX];
static long        completed;
static size_t      size;

static void on_done(tofu_completion_t *comp)
{
    int i, k;

    PERF_CHECK(comp->status == TOFU_OK, "put_zcopy: %s",
               tofu_status_string(comp->status));
    for (i = 0; i < NEIGHBOURS_MAX; ++i) {
        for (k = 0; k < WINDOW; ++k) {
            if (comp == &lanes[i].comp[k]) {
                lanes[i].busy[k] = 0;
                ++completed;
            }
        }
    }
}

static tofu_mem_t *memory_of(tofu_md_t *md, void **memory_p)
{
    tofu_mem_t *memh;
    size_t     length = size;

    CORE_CHECK(tofu_mem_alloc(md, &length, 0, memory_p, &memh));
    memset(*memory_p, 1, length);
    return memh;
}

/* The process of a neighbour. */
static void sit(const struct perf_pair *pair, int index)
{
    static struct target mine, unused;
    tofu_iface_t         *iface;
    tofu_mem_t           *memh;
    tofu_md_t            *md;
    void                 *memory;

    setenv("UTOFU_EMU_COORDS", coords[index], 1);
    md    = core_md(0);
    iface = core_iface(md, NULL, NULL, NULL);
    memh  = memory_of(md, &memory);
    core_address(iface, &mine.address);
    tofu_mkey_pack(memh, mine.key);
    mine.memory = (uintptr_t)memory;
    perf_exchange(pair, &mine, &unused, sizeof(mine));
    perf_barrier(pair); /* passive until the end */
    tofu_iface_close(iface);
    CORE_CHECK(tofu_mem_free(memh));
    tofu_md_close(md);
    exit(0);
}

/* Post where there is room; returns how many puts were done at once. */
static long post(struct lane *lane, long *left)
{
    tofu_status_t status;
    long          done = 0;
    int           k;

    for (k = 0; (k < WINDOW) && (*left > 0); ++k) {
        if (lane->busy[k]) {
            continue;
        }
        lane->comp[k] = (tofu_completion_t){.func = on_done, .count = 1};
        status = tofu_ep_put_zcopy(lane->ep, &lane->iov, 1, lane->target.memory,
                                   lane->rkey, &lane->comp[k]);
        if (status == TOFU_ERR_NO_RESOURCE) {
            break;
        }
        PERF_CHECK((status == TOFU_OK) || (status == TOFU_INPROGRESS),
                   "tofu_ep_put_zcopy: %s", tofu_status_string(status));
        lane->busy[k]  = (status == TOFU_INPROGRESS);
        done          += (status == TOFU_OK);
        --*left;
    }
    return done;
}

static void stream(tofu_iface_t *iface, int neighbours, long iterations)
{
    double times[PERF_CHUNKS], start;
    long   left[NEIGHBOURS_MAX], total;
    int    chunk, i;

    for (chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        total     = neighbours * iterations;
        completed = 0;
        for (i = 0; i < neighbours; ++i) {
            left[i] = iterations;
        }
        start = perf_now();
        while (completed < total) {
            /* all before the first poll, which waits in the timed mode */
            for (i = 0; i < neighbours; ++i) {
                completed += post(&lanes[i], &left[i]);
            }
            tofu_iface_progress(iface);
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    perf_report(times, neighbours * iterations);
}

int main(int argc, char **argv)
{
    static struct target unused;
    struct perf_pair     pairs[NEIGHBOURS_MAX];
    tofu_md_config_t     config;
    tofu_iface_t         *iface;
    tofu_mem_t           *memh;
    tofu_md_t            *md;
    void                 *memory;
    int                  i, tnis, neighbours, failed = 0;
    long                 iterations;

    PERF_CHECK((argc == 9) && !strcmp(argv[6], "stream"),
               "usage: %s cpu0 cpu1 memory size iterations stream tnis "
               "neighbours", argv[0]);
    size       = strtoull(argv[4], NULL, 0);
    tnis       = atoi(argv[7]);
    neighbours = atoi(argv[8]);
    PERF_CHECK((size > 0) && (tnis >= 1) && (tnis <= NEIGHBOURS_MAX) &&
               (neighbours >= 1) && (neighbours <= NEIGHBOURS_MAX),
               "arguments out of range");
    iterations = atol(argv[5]) / (PERF_CHUNKS * neighbours) + WINDOW;
    for (i = 0; i < neighbours; ++i) {
        perf_pair_start(&pairs[i], atoi(argv[1]), atoi(argv[2]));
        if (pairs[i].rank == 1) {
            sit(&pairs[i], i);
        }
    }
    setenv("UTOFU_EMU_COORDS", "0,0,0,0,0,0", 1);
    tofu_md_config_default(&config);
    config.tni_mask = (1u << tnis) - 1;
    md              = core_md_config(&config);
    iface           = core_iface(md, NULL, NULL, NULL);
    memh            = memory_of(md, &memory);
    for (i = 0; i < neighbours; ++i) {
        struct lane *lane = &lanes[i];

        perf_exchange(&pairs[i], &unused, &lane->target, sizeof(unused));
        lane->ep = core_connect(iface, &lane->target.address);
        CORE_CHECK(tofu_rkey_unpack(lane->target.key, 0, &lane->rkey));
        lane->iov = (tofu_iov_t){.buffer = memory, .length = size, .memh = memh,
                                 .count = 1};
    }
    stream(iface, neighbours, iterations);
    core_flush(iface);
    for (i = 0; i < neighbours; ++i) {
        tofu_rkey_release(lanes[i].rkey);
        tofu_ep_destroy(lanes[i].ep);
        perf_barrier(&pairs[i]);
    }
    tofu_iface_close(iface);
    CORE_CHECK(tofu_mem_free(memh));
    tofu_md_close(md);
    for (i = 0; i < neighbours; ++i) {
        failed |= perf_pair_end(&pairs[i]);
    }
    return failed;
}
