/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_stand_in.c - ARMW on private memory of a stopped process, by several initiators */
#include "own.h"

#include "harness.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

CONF_TEST("stand in", armw_on_stopped_is_atomic, 6,
          "ARMWs of several processes on private memory of one that is stopped, and goes on now and then, lose nothing "
          "(2.2.5)")
{
    enum { STOPPED = 300, BETWEEN = 40 };
    static _Alignas(8) uint64_t sum;
    struct conf_vcq             vcq;
    utofu_stadd_t               stadds[CONF_MAX_PROCS];
    struct utofu_mrq_notice     n;

    conf_timeout(120);
    CONF_CHECK(setenv("UTOFU_EMU_REHOME", "0", 1) == 0, "setenv");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &sum, sizeof(sum), stadds);
    for (unsigned i = 0; (conf_rank != 0) && (i < STOPPED + BETWEEN); i++) {
        if ((conf_rank == 1) && ((i == 0) || ((i > STOPPED) && (i % 4 == 0)))) {
            conf_stop(0);
        } else if ((conf_rank == 1) && (i >= STOPPED) && (i % 4 == 2)) {
            conf_continue(0);
        }
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[0], UTOFU_ARMW_OP_ADD, 1, stadds[0], 1, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&vcq, &n));
    }
    if (conf_rank == 1) {
        conf_continue(0);
    }
    conf_barrier();
    CONF_CHECK((conf_rank != 0) || (sum == (uint64_t)(conf_procs - 1) * (STOPPED + BETWEEN)), "%u were lost",
               (unsigned)((unsigned)(conf_procs - 1) * (STOPPED + BETWEEN) - sum));
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

CONF_TEST("stand in", armw_while_it_registers, 3,
          "an ARMW on private memory of a process that is stopped as it registers memory does not wait for that (1.2)")
{
    enum { STOPS = 2, STOPPED_S = 3, BYTES = 8 << 20 };
    static _Alignas(8) uint64_t sum;
    struct conf_vcq             vcq;
    utofu_stadd_t               stadds[CONF_MAX_PROCS], stadd;
    struct utofu_mrq_notice     n;
    char                       *memory;
    double                      began, most = 0;

    conf_timeout(120);
    CONF_CHECK(!setenv("UTOFU_EMU_REHOME", "0", 1) && !setenv("UTOFU_SWAP_PROTECT", "1", 1), "setenv");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &sum, sizeof(sum), stadds);
    conf_barrier();
    if (conf_rank == 0) { /* until it is killed: its helper thread mostly has to wait for that */
        memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        CONF_CHECK(memory != MAP_FAILED, "mmap");
        for (;;) {
            CONF_OK(utofu_reg_mem(vcq.hdl, memory, BYTES, 0, &stadd));
            conf_dereg(&vcq, stadd);
        }
    }
    for (unsigned i = 0; (conf_rank == 1) && (i < STOPS); i++) {
        usleep(100000 + 37000 * i);
        conf_stop(0);
        usleep(STOPPED_S * 1000000);
        conf_continue(0);
    }
    began = conf_now();
    while ((conf_rank == 2) && (conf_now() - began < STOPS * (STOPPED_S + 0.6))) {
        double post = conf_now();

        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[0], UTOFU_ARMW_OP_ADD, 1, stadds[0], 1, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&vcq, &n));
        most = (conf_now() - post > most) ? conf_now() - post : most;
    }
    CONF_CHECK(most < STOPPED_S - 1, "one took %.1f s", most);
    if (conf_rank == 2) { /* the other one has stopped it for the last time */
        conf_kill(0);
    }
}

/* A process that has ended */
static pid_t dead(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        _exit(0);
    }
    CONF_CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
    return pid;
}

/* Processes that never give the CPU of this one away, until it ends */
static void crowd(pid_t *pid, unsigned num)
{
    cpu_set_t one;
    int       cpu = sched_getcpu();

    CPU_ZERO(&one);
    CPU_SET((cpu < 0) ? 0 : cpu, &one);
    CONF_CHECK(!sched_setaffinity(0, sizeof(one), &one), "sched_setaffinity");
    for (unsigned i = 0; i < num; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) {
            }
        }
    }
}

CONF_TEST("stand in", mailboxes_of_the_dead, 2,
          "an ARMW on private memory does not wait for initiators that died, also on a busy machine")
{
    enum { CROWD = 5 };
    static _Alignas(8) uint64_t sum;
    struct conf_vcq             vcq;
    struct emu_process         *own;
    utofu_stadd_t               stadds[2];
    pid_t                       pid[CROWD];

    conf_timeout(120);
    CONF_CHECK(setenv("UTOFU_EMU_REHOME", "0", 1) == 0, "setenv");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &sum, sizeof(sum), stadds);
    if (conf_rank == 1) {
        own = own_segment();
        for (unsigned i = 0; i < EMU_MAILBOXES; i++) { /* as initiators leave them that are killed before the answer */
            own->mailbox[i].pid = dead();
            atomic_store(&own->mailbox[i].state, EMU_MBOX_DONE);
        }
        munmap(own, (size_t)own->size);
    }
    conf_barrier();
    if (conf_rank == 0) {
        crowd(pid, CROWD);
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1, stadds[1], 1, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 1, NULL);
        for (unsigned i = 0; i < CROWD; i++) {
            kill(pid[i], SIGKILL);
            waitpid(pid[i], NULL, 0);
        }
    }
    conf_barrier();
    CONF_CHECK((conf_rank != 1) || (sum == 1), "the sum is %u", (unsigned)sum);
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
