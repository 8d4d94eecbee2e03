/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_gone.c - processes that have ended: who has their VCQ IDs next is reached at once,
 * and nothing stays of them, neither with those that knew them nor on their nodes.
 * Statements are of docs/emulator.md.
 */
#include "harness.h"

#include "own.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    pid_t          pid;
    int            from; /* it writes a byte for each notice that it gets */
    utofu_vcq_id_t id;
    utofu_stadd_t  stadd;
};

static void child_main(int to_parent, enum conf_kind kind)
{
    struct utofu_mrq_notice notice;
    struct conf_mem         mem;
    struct child            self = {.pid = getpid()};
    utofu_vcq_hdl_t         hdl;

    conf_mem_alloc(&mem, kind, 4096);
    if (utofu_create_vcq(conf_tni(0), 0, &hdl) || utofu_query_vcq_id(hdl, &self.id) ||
        utofu_reg_mem(hdl, mem.addr, mem.size, 0, &self.stadd) ||
        (write(to_parent, &self, sizeof(self)) != (ssize_t)sizeof(self))) {
        _exit(1);
    }
    for (;;) {
        while (utofu_poll_mrq(hdl, 0, &notice) != UTOFU_SUCCESS) {
        }
        if (write(to_parent, mem.addr, 1) != 1) {
            _exit(1);
        }
    }
}

static struct child child_start(enum conf_kind kind)
{
    struct child c;
    int          fd[2];
    pid_t        pid;

    CONF_CHECK(!pipe(fd), "pipe: %s", strerror(errno));
    pid = fork();
    CONF_CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the test fails */
        child_main(fd[1], kind);
    }
    close(fd[1]);
    CONF_CHECK(read(fd[0], &c, sizeof(c)) == (ssize_t)sizeof(c), "the child failed");
    c.from = fd[0];
    return c;
}

static void child_kill(const struct child *c)
{
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    close(c->from);
}

/* A put with notices to the child, which gets it */
static void child_put(struct conf_vcq *vcq, const struct child *c, uint64_t value)
{
    struct utofu_mrq_notice notice;
    struct pollfd           p = {c->from, POLLIN, 0};
    char                    byte = 0;

    CONF_OK(utofu_put_piggyback8(vcq->hdl, c->id, value, c->stadd, 8, 1, CONF_LMRQ | CONF_RMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(vcq, &notice));
    CONF_CHECK((poll(&p, 1, 10000) == 1) && (read(c->from, &byte, 1) == 1),
               "the local notice says success, and no remote one came");
    CONF_CHECK(byte == (char)value, "the notice came, the data (%d) did not", byte);
}

CONF_TEST("gone", put_to_a_successor, 1,
          "a process that has the VCQ ID of one that was killed is reached as soon as it says so")
{
    /* the service thread is not told of those that end: it asks every 250 ms, which is long
     * here, and has no connection to those whose memory is a memfd */
    struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
                                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog  prog     = {4, filter};
    struct conf_vcq    vcq;
    struct child       c;
    utofu_vcq_id_t     first = 0;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)) {
        conf_skip("no seccomp filters here");
    }
    conf_timeout(60);
    conf_vcq_create(&vcq, 0, 0);
    for (int round = 0; round < 20; round++) {
        c = child_start(CONF_MEM_MEMFD);
        CONF_CHECK((round == 0) || (c.id == first), "another VCQ ID: nothing is tested");
        first = c.id;
        child_put(&vcq, &c, (uint64_t)round + 1);
        child_put(&vcq, &c, (uint64_t)round + 101);
        child_kill(&c);
    }
    conf_vcq_close(&vcq);
}

static int count_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    int   n = 0, c;

    while ((c = getc(f)) != EOF) {
        n += c == '\n';
    }
    fclose(f);
    return n;
}

CONF_TEST("gone", nothing_stays_of_dead_peers, 1,
          "a process that talks to ever new ones keeps neither descriptors nor mappings of those that have ended")
{
    enum { FIRST = 5, ROUNDS = 45, SPARE = 8 }; /* of the last one or two something is left */
    struct conf_vcq vcq;
    struct child    c;
    int             fds = 0, maps = 0, more_fds, more_maps;

    conf_timeout(60);
    conf_vcq_create(&vcq, 0, 0);
    for (int round = 0; round < ROUNDS; round++) {
        c = child_start((round & 1) ? CONF_MEM_MEMFD : CONF_MEM_MALLOC);
        child_put(&vcq, &c, (uint64_t)round + 1);
        child_kill(&c);
        if (round == FIRST) {
            fds  = own_fds();
            maps = count_maps();
        }
    }
    /* its service thread does it, when it is told, and gets a CPU */
    for (int i = 0; i < 1000; i++) {
        more_fds  = own_fds() - fds;
        more_maps = count_maps() - maps;
        if ((more_fds <= SPARE) && (more_maps <= SPARE)) {
            break;
        }
        usleep(10000);
    }
    CONF_CHECK(more_fds <= SPARE, "%d descriptors more after %d processes", more_fds, ROUNDS - FIRST);
    CONF_CHECK(more_maps <= SPARE, "%d mappings more after %d processes", more_maps, ROUNDS - FIRST);
    conf_vcq_close(&vcq);
}

/* A process on that node, which says its first CQ */
static pid_t start_on_node(const char *node, int *cq_p)
{
    int   fd[2], cq = -1;
    pid_t pid;

    CONF_CHECK(!pipe(fd), "pipe: %s", strerror(errno));
    pid = fork();
    if (pid == 0) {
        utofu_vcq_hdl_t hdl;
        utofu_vcq_id_t  id;
        utofu_tni_id_t  tni;
        utofu_cq_id_t   got;
        uint16_t        extra;
        uint8_t         coords[6];

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("UTOFU_EMU_NODE", node, 1);
        if (utofu_create_vcq_with_cmp_id(conf_tni(0), 0, 0, &hdl) || utofu_query_vcq_id(hdl, &id) ||
            utofu_query_vcq_info(id, coords, &tni, &got, &extra)) {
            _exit(1);
        }
        cq = got;
        if (write(fd[1], &cq, sizeof(cq)) < 0) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(fd[1]);
    CONF_CHECK(read(fd[0], &cq, sizeof(cq)) == (ssize_t)sizeof(cq), "the process on node %s failed", node);
    close(fd[0]);
    *cq_p = cq;
    return pid;
}

CONF_TEST("gone", first_cq_after_a_kill, 1,
          "a process that takes the place of one that was killed has the same first CQ, whatever slot it has")
{
    pid_t pid[3];
    int   cq;

    pid[0] = start_on_node("100", &cq);
    pid[1] = start_on_node("101", &cq);
    pid[2] = start_on_node("102", &cq);
    CONF_CHECK(cq == 0, "the first CQ is number %d", cq);
    for (int i = 1; i < 3; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
    pid[2] = start_on_node("102", &cq); /* in the slot of the one on node 101 */
    kill(pid[0], SIGKILL);
    kill(pid[2], SIGKILL);
    waitpid(pid[0], NULL, 0);
    waitpid(pid[2], NULL, 0);
    CONF_CHECK(cq == 0, "the first CQ is number %d", cq);
}

CONF_TEST("gone", exec_gives_back, 1, "a process that executes another program has no CQs and no gates any more")
{
    utofu_vcq_hdl_t hdl;
    utofu_vbg_id_t  vbg;
    int             ready[2], go[2], code = 0;
    pid_t           pid;
    char            c = 0;

    setenv("UTOFU_EMU_NODE", "103", 1);
    CONF_CHECK(!pipe(ready) && !pipe(go), "pipe: %s", strerror(errno));
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (utofu_create_vcq(conf_tni(0), UTOFU_VCQ_FLAG_EXCLUSIVE, &hdl) == UTOFU_SUCCESS) {
        }
        while (utofu_alloc_vbg(conf_tni(0), 1, 0, &vbg) == UTOFU_SUCCESS) {
        }
        if ((write(ready[1], &c, 1) != 1) || (read(go[0], &c, 1) != 1)) {
            _exit(1);
        }
        execlp("sleep", "sleep", "50", (char *)NULL);
        _exit(1);
    }
    CONF_CHECK(read(ready[0], &c, 1) == 1, "read");
    CONF_CODE(utofu_create_vcq(conf_tni(0), 0, &hdl), UTOFU_ERR_FULL);
    CONF_CHECK(write(go[1], &c, 1) == 1, "write");
    for (int i = 0; i < 1000; i++) { /* until it has done so */
        code = utofu_create_vcq(conf_tni(0), 0, &hdl);
        if (code == UTOFU_SUCCESS) {
            break;
        }
        usleep(10000);
    }
    CONF_OK(code);
    CONF_OK(utofu_alloc_vbg(conf_tni(0), 1, 0, &vbg));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

CONF_TEST("gone", many_unread_notices, 2,
          "with a limit for the MRQ, or in the strict mode, polling goes on however many notices are unread")
{
    enum { NOTICES = 700000 };
    static uint64_t         words[64] __attribute__((aligned(256)));
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    size_t                  unread = 1;
    void                   *cbdata;

    conf_timeout(100);
    setenv("UTOFU_NUM_MRQ_ENTRIES", "2Mi", 1);
    setenv("UTOFU_EMU_FAULT", "mrq=2000000", 1);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    if (conf_rank == 1) {
        for (int i = 0; i < NOTICES; i++) {
            CONF_POST(vcq.hdl, utofu_put_piggyback8(vcq.hdl, vcq.peer[0], 1, stadds[0], 8, 0, CONF_RMRQ, NULL));
        }
        while (unread != 0) {
            utofu_poll_tcq(vcq.hdl, 0, &cbdata);
            CONF_OK(utofu_query_num_unread_tcq(vcq.hdl, &unread));
        }
    }
    conf_barrier();
    for (int i = 0; (conf_rank == 0) && (i < NOTICES); i++) {
        CONF_OK(utofu_poll_mrq(vcq.hdl, 0, &notice));
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}
