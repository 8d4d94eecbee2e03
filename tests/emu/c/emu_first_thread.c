/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_first_thread.c - the first thread of a program ends by pthread_exit, and others go on: of such
 * a process /proc/PID has neither memory nor descriptors any more.
 */
#include "harness.h"
#include "home.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (96u << 10)

static bool first_is_there(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    bool  is = (f != NULL) && (fgetc(f) != EOF);

    if (f != NULL) {
        fclose(f);
    }
    return is;
}

static void wait_for(struct conf_vcq *vcq, int type)
{
    CONF_EXPECT_MRQ(vcq, type, vcq->peer[1 - conf_rank], 3, NULL);
}

/* Both ranks put into the other's memory at `theirs`, get it back, and add to a word of it. */
static void exchange(struct conf_vcq *vcq, struct conf_mem *own, utofu_stadd_t mine, char *memory,
                     utofu_stadd_t theirs, size_t n, unsigned seed)
{
    uint64_t word;

    conf_fill(own->addr, n, seed + (unsigned)conf_rank);
    conf_barrier();
    CONF_OK(utofu_put(vcq->hdl, vcq->peer[1 - conf_rank], mine, theirs, n, 3, CONF_LMRQ, NULL));
    wait_for(vcq, UTOFU_MRQ_TYPE_LCL_PUT);
    conf_barrier();
    CONF_CHECK_FILL(memory, n, seed + 1 - (unsigned)conf_rank, "what was put");
    memset(own->addr, 0, n);
    CONF_OK(utofu_get(vcq->hdl, vcq->peer[1 - conf_rank], mine, theirs, n, 3, CONF_LMRQ, NULL));
    wait_for(vcq, UTOFU_MRQ_TYPE_LCL_GET);
    CONF_CHECK_FILL(own->addr, n, seed + (unsigned)conf_rank, "what the get brought");
    conf_barrier();
    memset(memory, 0, 8);
    conf_barrier();
    CONF_OK(utofu_armw8(vcq->hdl, vcq->peer[1 - conf_rank], UTOFU_ARMW_OP_ADD, 5, theirs, 3, CONF_LMRQ, NULL));
    wait_for(vcq, UTOFU_MRQ_TYPE_LCL_ARMW);
    conf_barrier();
    memcpy(&word, memory, 8);
    CONF_CHECK(word == 5, "the word is %llu", (unsigned long long)word);
}

static void fork_and_write(char *memory)
{
    int   status;
    pid_t pid;

    memset(memory, 0x5a, BYTES);
    pid = fork();
    CONF_CHECK(pid >= 0, "fork");
    if (pid == 0) {
        bool right = memory[BYTES - 1] == 0x5a;

        memset(memory, 0x11, BYTES);
        _exit(right ? 0 : 3);
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0),
               "the child ended with 0x%x", (unsigned)status);
    CONF_CHECK_BYTES(memory, BYTES, 0x5a, "after a child wrote there");
}

static void *goes_on(void *arg)
{
    struct conf_vcq vcq;
    struct conf_mem own, shared;
    utofu_vcq_hdl_t early;
    utofu_stadd_t   mine, stadds[2], all[2][2];
    char           *memory = malloc(BYTES);

    while (first_is_there()) {
        usleep(1000);
    }
    if (conf_rank == 0) { /* rank 1 joins a job of which this is all */
        CONF_OK(utofu_create_vcq(0, 0, &early));
    }
    conf_barrier();
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&own, CONF_MEM_MEMFD, BYTES);
    conf_mem_alloc(&shared, CONF_MEM_MEMFD, BYTES);
    mine      = conf_reg(&vcq, own.addr, BYTES, 0);
    stadds[0] = conf_reg(&vcq, memory, BYTES, 0);
    stadds[1] = conf_reg(&vcq, shared.addr, BYTES, 0);
    conf_exchange(stadds, sizeof(stadds), all);
    for (unsigned k = 0; k < 2; k++) {
        exchange(&vcq, &own, mine, (k == 0) ? memory : shared.addr, all[1 - conf_rank][k], BYTES, 3);
        exchange(&vcq, &own, mine, (k == 0) ? memory : shared.addr, all[1 - conf_rank][k], 64, 7);
    }
    fork_and_write(memory);
    conf_barrier();
    conf_dereg(&vcq, stadds[0]);
    CONF_CHECK(!is_home(memory), "it does not go back");
    CONF_CHECK_BYTES(memory, BYTES, 0x5a, "after deregistration");
    conf_vcq_close(&vcq);
    if (conf_rank == 0) {
        CONF_OK(utofu_free_vcq(early));
    }
    conf_barrier();
    exit(0);
    return arg;
}

CONF_TEST("threads", first_thread_ends, 2,
          "when the first thread has ended by pthread_exit, another joins the job, registers, puts, gets and forks as ever")
{
    pthread_t thread;

    CONF_CHECK(pthread_create(&thread, NULL, goes_on, NULL) == 0, "pthread_create");
    pthread_exit(NULL);
}

static void say(void)
{
    (void)!write(STDOUT_FILENO, "e", 1);
}

static void *last_one(void *arg)
{
    struct conf_vcq vcq;

    conf_vcq_create(&vcq, 1, 0);
    usleep(100000);
    return arg;
}

/* main of a child: its first thread ends, and then the last */
static void ends_thread_by_thread(int out)
{
    struct conf_vcq vcq;
    pthread_t       thread;

    dup2(out, STDOUT_FILENO);
    atexit(say);
    conf_vcq_create(&vcq, 0, 0);
    CONF_CHECK(pthread_create(&thread, NULL, last_one, NULL) == 0, "pthread_create");
    pthread_exit(NULL);
}

CONF_TEST("threads", last_thread_ends, 1,
          "with the last thread of the program the process ends as by exit(0), although the library has threads of its own")
{
    static const char *const modes[] = {"UTOFU_EMU_STATS", "UTOFU_EMU_STRICT", "UTOFU_EMU_TIMING"};

    for (unsigned k = 0; k < 3; k++) {
        double end = conf_now() + 10;
        int    fds[2], status = 0;
        char   said;
        pid_t  pid, got = 0;

        CONF_CHECK(pipe(fds) == 0, "pipe");
        pid = fork();
        CONF_CHECK(pid >= 0, "fork");
        if (pid == 0) {
            setenv(modes[k], (k < 2) ? ((k == 0) ? "0" : "1") : "tofud", 1);
            close(fds[0]);
            ends_thread_by_thread(fds[1]);
        }
        close(fds[1]);
        while ((got == 0) && (conf_now() < end)) {
            usleep(10000);
            got = waitpid(pid, &status, WNOHANG);
        }
        if (got == 0) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
        }
        CONF_CHECK((got == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0), "%s: it ended with 0x%x", modes[k],
                   (unsigned)status);
        CONF_CHECK((read(fds[0], &said, 1) == 1) && (said == 'e'), "%s: handlers of atexit did not run", modes[k]);
        close(fds[0]);
    }
}
