/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core_ops.c - single operations of the core from one process to itself, as
 * python_table.py has them in Python.
 *
 * put_short  puts of 8 bytes, one after the other; progress when there is no room
 * put_wait   a put of 8 bytes and the flush that confirms it
 * put_zcopy  a put of <size> bytes, waited for
 * am         an am_short of 8 bytes, and progress until its handler was called
 *
 * Usage: core_ops <cpu> <what> <size> <iterations>
 */
#define _GNU_SOURCE
#include "core_common.h"

static unsigned handled, done;

static int8_t on_am(void *arg, void *data, size_t length, unsigned flags)
{
    ++handled;
    return TOFU_OK;
}

static void on_done(tofu_completion_t *comp)
{
    PERF_CHECK(comp->status == TOFU_OK, "an operation: %s",
               tofu_status_string(comp->status));
    ++done;
}

/* Wait for an operation that returned status. */
static void finish(tofu_iface_t *iface, tofu_status_t status)
{
    PERF_CHECK((status == TOFU_OK) || (status == TOFU_INPROGRESS), "a post: %s",
               tofu_status_string(status));
    while ((status == TOFU_INPROGRESS) && !done) {
        tofu_iface_progress(iface);
    }
}

int main(int argc, char **argv)
{
    double              times[PERF_CHUNKS], start;
    tofu_md_t           *md;
    tofu_iface_t        *iface;
    tofu_ep_t           *ep;
    tofu_mem_t          *target, *source;
    tofu_rkey_t         *rkey;
    tofu_md_attr_t      attr;
    struct core_address address;
    tofu_completion_t   comp;
    tofu_status_t       status;
    tofu_iov_t          iov = {0};
    char                packed[256];
    void                *memory, *buffer;
    const char          *what;
    size_t              size, length;
    uint64_t            value = 0;
    long                iterations, i;
    cpu_set_t           set;
    int                 chunk;

    PERF_CHECK(argc == 5, "usage: %s cpu what size iterations", argv[0]);
    what       = argv[2];
    size       = strtoull(argv[3], NULL, 0);
    iterations = (atol(argv[4]) + PERF_CHUNKS - 1) / PERF_CHUNKS;
    PERF_CHECK((size > 0) && (iterations > 0), "size and iterations");
    alarm(PERF_TIME_LIMIT);
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[1]), &set);
    PERF_CHECK(sched_setaffinity(0, sizeof(set), &set) == 0,
               "sched_setaffinity: %s", strerror(errno));

    md    = core_md(TOFU_TNI_AUTO);
    iface = core_iface(md, NULL, on_am, NULL);
    core_address(iface, &address);
    ep     = core_connect(iface, &address);
    length = size;
    CORE_CHECK(tofu_mem_alloc(md, &length, 0, &memory, &target));
    /* allocated, and so aligned, as the memory of a NumPy array is */
    buffer = malloc(size);
    PERF_CHECK(buffer != NULL, "no memory");
    memset(buffer, 1, size);
    CORE_CHECK(tofu_mem_reg(md, buffer, size, 0, &source));
    tofu_md_query(md, &attr);
    PERF_CHECK(attr.rkey_packed_size <= sizeof(packed), "a long rkey");
    tofu_mkey_pack(target, packed);
    CORE_CHECK(tofu_rkey_unpack(packed, attr.rkey_packed_size, &rkey));
    iov.buffer = buffer;
    iov.length = size;
    iov.memh   = source;
    iov.count  = 1;

    for (chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        for (i = 0; i < iterations; ++i) {
            comp = (tofu_completion_t){.func = on_done, .count = 1};
            done = 0;
            if (!strcmp(what, "put_short") || !strcmp(what, "put_wait")) {
                while ((status = tofu_ep_put_short(ep, &value, 8,
                                                   (uintptr_t)memory, rkey)) ==
                       TOFU_ERR_NO_RESOURCE) {
                    tofu_iface_progress(iface);
                }
                PERF_CHECK(status == TOFU_OK, "put_short: %s",
                           tofu_status_string(status));
                if (what[4] == 'w') {
                    finish(iface, tofu_ep_flush(ep, 0, &comp));
                }
            } else if (!strcmp(what, "put_zcopy")) {
                finish(iface, tofu_ep_put_zcopy(ep, &iov, 1, (uintptr_t)memory,
                                                rkey, &comp));
            } else {
                PERF_CHECK(!strcmp(what, "am"), "unknown: %s", what);
                handled = 0;
                core_am(iface, ep, value, NULL, 0);
                while (!handled) {
                    tofu_iface_progress(iface);
                }
            }
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    core_flush(iface);
    perf_report(times, iterations);
    tofu_rkey_release(rkey);
    tofu_ep_destroy(ep);
    tofu_iface_close(iface);
    CORE_CHECK(tofu_mem_dereg(source));
    CORE_CHECK(tofu_mem_free(target));
    tofu_md_close(md);
    return 0;
}
