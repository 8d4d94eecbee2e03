/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel_put.c - the system calls that reach another process's private memory, alone.
 *
 * A ping-pong as in raw_utofu.c and uct_put.c, with nothing but the call: pwrite
 * writes to the other's /proc/PID/mem, cma is process_vm_writev.  It tells what is left
 * for a library to win or lose.
 *
 * Usage: kernel_put <cpu0> <cpu1> <memory> <size> <iterations> <lat> <pwrite|cma>
 */
#define _GNU_SOURCE
#include "common.h"

#include <fcntl.h>
#include <sys/uio.h>

static struct perf_pair pair;
static uint8_t          *memory, *out; /* what comes in, what goes out */
static uint64_t         there;         /* the other's `memory` */
static pid_t            pid;
static int              fd = -1;       /* the other's memory; -1: cma */
static size_t           size;

static void send_out(uint8_t value)
{
    struct iovec lcl = {out, size}, rmt = {(void *)(uintptr_t)there, size};
    ssize_t      n;

    out[size - 1] = value;
    n = (fd >= 0) ? pwrite(fd, out, size, (off_t)there) :
                    process_vm_writev(pid, &lcl, 1, &rmt, 1, 0);
    PERF_CHECK(n == (ssize_t)size, "%s: %s", (fd >= 0) ? "pwrite" : "process_vm_writev",
               (n < 0) ? strerror(errno) : "short");
}

static void wait_for(uint8_t value)
{
    volatile const uint8_t *last = &memory[size - 1];

    while (*last != value) {
    }
}

static void pingpong(long iterations)
{
    double  times[PERF_CHUNKS], start;
    uint8_t value = 0;

    for (int chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        for (long i = 0; i < iterations; ++i) {
            value = value % 251 + 1;
            if (pair.rank == 0) {
                send_out(value);
                wait_for(value);
            } else {
                wait_for(value);
                send_out(value);
            }
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    if (pair.rank == 0) {
        perf_report(times, 2 * iterations);
    }
}

int main(int argc, char **argv)
{
    uint64_t mine;
    char     path[64];

    PERF_CHECK((argc == 8) && !strcmp(argv[6], "lat") &&
               (!strcmp(argv[7], "pwrite") || !strcmp(argv[7], "cma")),
               "usage: %s cpu0 cpu1 memory size iterations lat pwrite|cma", argv[0]);
    perf_pair_start(&pair, atoi(argv[1]), atoi(argv[2]));
    pid  = pair.rank ? getppid() : pair.child;
    size = strtoull(argv[4], NULL, 0);
    PERF_CHECK(size > 0, "size 0");
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* where yama asks for it */
    memory = perf_memory(argv[3], size);
    out    = perf_memory(argv[3], size);
    mine   = (uintptr_t)memory;
    perf_exchange(&pair, &mine, &there, sizeof(mine));
    if (!strcmp(argv[7], "pwrite")) {
        snprintf(path, sizeof(path), "/proc/%d/mem", pid);
        fd = open(path, O_RDWR | O_CLOEXEC);
        PERF_CHECK(fd >= 0, "%s: %s", path, strerror(errno));
    }
    perf_barrier(&pair);
    pingpong(atol(argv[5]));
    perf_barrier(&pair);
    return perf_pair_end(&pair);
}
