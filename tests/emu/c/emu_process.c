/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_process.c - what the emulator promises about processes: fork, exec, users,
 * death, permissions.  Statements are of docs/emulator.md.
 */
#include "harness.h"

#include "own.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* From now on the listed system calls of this process fail with that errno. */
static void refuse_syscalls(const int *numbers, size_t count, int error)
{
    struct sock_filter filter[32];
    unsigned           n = 0;

    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                               offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                                   SECCOMP_RET_ERRNO | (unsigned)error);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = {(unsigned short)n, filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)) {
        conf_skip("no seccomp filters here");
    }
}

/* Rank 0 puts size bytes into rank 1's memory of this kind and gets them back. */
static void round_trip(struct conf_vcq *vcq, enum conf_kind kind, size_t size, unsigned seed)
{
    struct conf_mem mem, tmp;
    utofu_stadd_t   stadds[CONF_MAX_PROCS], lcl;

    conf_mem_alloc(&mem, kind, size);
    conf_mem_alloc(&tmp, CONF_MEM_MALLOC, size);
    memset(mem.addr, 0, size);
    conf_reg_all(vcq, mem.addr, size, stadds);
    if (conf_rank == 0) {
        conf_fill(tmp.addr, size, seed);
        lcl = conf_reg(vcq, tmp.addr, size, 0);
        CONF_OK(utofu_put(vcq->hdl, vcq->peer[1], lcl, stadds[1], size, 1, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq->peer[1], 1, NULL);
        memset(tmp.addr, 0, size);
        CONF_OK(utofu_get(vcq->hdl, vcq->peer[1], lcl, stadds[1], size, 2, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq->peer[1], 2, NULL);
        CONF_CHECK_FILL(tmp.addr, size, seed, "what was put and got back");
        conf_dereg(vcq, lcl);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK_FILL(mem.addr, size, seed, "what arrived");
    }
    conf_dereg(vcq, stadds[conf_rank]);
    conf_mem_free(&mem);
    conf_mem_free(&tmp);
}

CONF_TEST("process", test_emu_without_process_vm, 2,
          "where the kernel refuses process_vm_writev, private memory is reached all the same")
{
    const int       calls[] = {SYS_process_vm_writev, SYS_process_vm_readv};
    struct conf_vcq vcq;

    refuse_syscalls(calls, 2, EPERM);
    conf_vcq_open(&vcq, 0, 0);
    round_trip(&vcq, CONF_MEM_MALLOC, 3 * 1024 * 1024 + 5, 1);
    round_trip(&vcq, CONF_MEM_MEMFD, 3 * 1024 * 1024 + 5, 2);
    conf_vcq_close(&vcq);
}

CONF_TEST("process", test_emu_strong_order_without_process_vm, 2,
          "there too the last word of a STRONG_ORDER put is visible last")
{
    enum { SIZE = 4096, WORDS = SIZE / 8, ROUNDS = 20000 };
    const int          calls[] = {SYS_process_vm_writev, SYS_process_vm_readv};
    volatile uint64_t *words   = aligned_alloc(SIZE, SIZE);
    uint64_t          *source  = aligned_alloc(SIZE, SIZE);
    struct conf_vcq    vcq;
    utofu_stadd_t      stadds[CONF_MAX_PROCS], lcl;

    refuse_syscalls(calls, 2, EPERM);
    memset((void *)words, 0, SIZE);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, (void *)words, SIZE, stadds);
    if (conf_rank == 0) {
        lcl = conf_reg(&vcq, source, SIZE, 0);
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            for (unsigned i = 0; i < WORDS; i++) {
                source[i] = round;
            }
            CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], lcl, stadds[1], SIZE, 0, CONF_STRONG, NULL));
        }
    } else {
        for (uint64_t last = 0; last < ROUNDS;) {
            last = __atomic_load_n(&words[WORDS - 1], __ATOMIC_ACQUIRE);
            for (unsigned i = 0; i < WORDS - 1; i++) {
                CONF_CHECK(words[i] >= last, "word %u is of put %llu, the last word of put %llu", i,
                           (unsigned long long)words[i], (unsigned long long)last);
            }
        }
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("process", test_emu_without_procmap_query, 2,
          "on kernels that answer no questions about mappings by ioctl, /proc/self/maps is read")
{
    const int       calls[] = {SYS_ioctl, SYS_pidfd_open};
    struct conf_vcq vcq;

    refuse_syscalls(calls, 2, ENOTTY);
    conf_vcq_open(&vcq, 0, 0);
    for (int kind = 0; kind < CONF_MEM_NUM; kind++) {
        if (kind != CONF_MEM_STACK) {
            round_trip(&vcq, (enum conf_kind)kind, 200 * 1024 + 3, (unsigned)kind + 1);
        }
    }
    conf_vcq_close(&vcq);
}

CONF_TEST("process", test_emu_non_dumpable, 2,
          "processes that /proc hides from each other pass descriptors through the service thread")
{
    struct conf_vcq vcq;

    if ((geteuid() == 0) && setresuid(65534, 65534, 65534)) {
        conf_skip("can't become an ordinary user");
    }
    /* joined while dumpable, hidden afterwards */
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    conf_vcq_open(&vcq, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    conf_barrier();
    round_trip(&vcq, CONF_MEM_MALLOC, 100 * 1024, 1);
    round_trip(&vcq, CONF_MEM_MEMFD, 100 * 1024, 2);
    conf_vcq_close(&vcq);
}

CONF_TEST("process", joined_while_hidden, 2,
          "a process finds the job when /proc hides the only one that is in it")
{
    struct conf_vcq vcq;

    if ((geteuid() == 0) && setresuid(65534, 65534, 65534)) {
        conf_skip("can't become an ordinary user");
    }
    prctl(PR_SET_DUMPABLE, conf_rank, 0, 0, 0);
    if (conf_rank == 1) {
        conf_barrier();
    }
    conf_num_tnis(); /* the first call: joins */
    if (conf_rank == 0) {
        conf_barrier();
    }
    conf_vcq_open(&vcq, 0, 0);
    round_trip(&vcq, CONF_MEM_MEMFD, 1000, 1);
    conf_vcq_close(&vcq);
}

CONF_TEST("process", test_emu_two_users, 2, "processes of two users cannot reach each other")
{
    struct conf_vcq vcq;
    uint64_t        word = 1;

    if (geteuid() != 0) {
        conf_skip("needs two users: run as root");
    }
    if ((conf_rank == 1) && setresuid(65534, 65534, 65534)) {
        CONF_FAIL("setresuid: %s", strerror(errno));
    }
    conf_vcq_open(&vcq, 0, 0);
    conf_reg(&vcq, &word, sizeof(word), 0);
    /* each sees only the processes of its own user: the same ID is its own VCQ
     * (rank 0 and 1 are both the first process of their network) */
    CONF_CHECK(vcq.peer[0] == vcq.peer[1], "ranks of two users share a network");
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("process", test_emu_fork_child_is_another_process, 1,
          "after fork the child has no handles of its parent, and can join as a process of its own")
{
    struct conf_vcq vcq;
    uint64_t        word = 0;
    utofu_stadd_t   stadd;
    int             status;
    pid_t           pid;

    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, &word, sizeof(word), 0);
    for (int round = 0; round < 3; round++) {
        pid = fork();
        CONF_CHECK(pid >= 0, "fork: %s", strerror(errno));
        if (pid == 0) {
            utofu_vcq_hdl_t hdl;
            void           *cbdata;
            if ((utofu_put_piggyback8(vcq.hdl, vcq.id, 1, stadd, 8, 0, 0, NULL) != UTOFU_ERR_INVALID_VCQ_HDL) ||
                (utofu_poll_tcq(vcq.hdl, 0, &cbdata) != UTOFU_ERR_INVALID_VCQ_HDL) ||
                (utofu_free_vcq(vcq.hdl) != UTOFU_ERR_INVALID_VCQ_HDL)) {
                _exit(2);
            }
            if (utofu_create_vcq(conf_tni(0), 0, &hdl)) {
                _exit(3);
            }
            if (utofu_put_piggyback8(hdl, vcq.id, (uint64_t)round + 7, stadd, 8, (uint64_t)round, CONF_RMRQ, NULL)) {
                _exit(4);
            }
            _exit(0);
        }
        waitpid(pid, &status, 0);
        CONF_CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0), "the child ended with %#x", status);
        struct utofu_mrq_notice notice;
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
        CONF_CHECK(word == (uint64_t)round + 7, "the child's put did not arrive");
        CONF_CHECK(notice.vcq_id != vcq.id, "the child has the VCQ ID of its parent");
    }
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
}

/* A child with a VCQ and registered memory that executes another program when a byte comes to its pipe */
struct executes {
    utofu_vcq_id_t id;
    utofu_stadd_t  stadd;
    pid_t          pid;
    int            go;
};

static struct executes start_executes(void)
{
    struct executes child = {0, 0, 0, -1};
    int             to_parent[2], go[2];
    pid_t           pid;
    char            c = 0;

    CONF_CHECK(!pipe(to_parent) && !pipe(go), "pipe");
    pid = fork();
    if (pid == 0) {
        static uint64_t words[32];
        utofu_vcq_hdl_t hdl;
        if (utofu_create_vcq(0, 0, &hdl) || utofu_query_vcq_id(hdl, &child.id) ||
            utofu_reg_mem(hdl, words, sizeof(words), 0, &child.stadd) ||
            (write(to_parent[1], &child, sizeof(child)) < 0) || (read(go[0], &c, 1) != 1)) {
            _exit(1);
        }
        execlp("sleep", "sleep", "20", (char *)NULL);
        _exit(1);
    }
    CONF_CHECK(read(to_parent[0], &child, sizeof(child)) == (ssize_t)sizeof(child), "the child failed");
    child.pid = pid;
    child.go  = go[1];
    return child;
}

static void execute(const struct executes *child)
{
    CONF_CHECK(write(child->go, "", 1) == 1, "write");
    usleep(300000);
}

static void end_executes(const struct executes *child)
{
    int status;

    kill(child->pid, SIGKILL);
    waitpid(child->pid, &status, 0);
}

CONF_TEST("process", test_emu_exec_is_the_end, 1,
          "a process that executes another program is gone: nothing is written into the new program")
{
    struct executes         child = start_executes();
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;

    conf_vcq_create(&vcq, 0, 0);
    CONF_OK(utofu_put_piggyback8(vcq.hdl, child.id, 1, child.stadd, 8, 1, CONF_LMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
    execute(&child);
    CONF_OK(utofu_put_piggyback8(vcq.hdl, child.id, 1, child.stadd, 8, 2, CONF_LMRQ, NULL));
    CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_PEER, UTOFU_ERR_MRQ_RMT_MEMORY);
    end_executes(&child);
    conf_vcq_close(&vcq);
}

CONF_TEST("process", armw_after_exec, 1,
          "an ARMW to a process that executes another program by now is MRQ_PEER, soon, also when it is the first")
{
    struct executes         child;
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    double                  start;

    setenv("UTOFU_EMU_REHOME", "0", 1); /* else it is done from here */
    child = start_executes();
    conf_vcq_create(&vcq, 0, 0);
    CONF_OK(utofu_put_piggyback8(vcq.hdl, child.id, 1, child.stadd, 8, 1, CONF_LMRQ, NULL));
    CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
    execute(&child);
    start = conf_now();
    for (int i = 0; i < 2; i++) {
        CONF_OK(utofu_armw8(vcq.hdl, child.id, UTOFU_ARMW_OP_ADD, 1, child.stadd, 2, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_PEER);
    }
    CONF_CHECK(conf_now() - start < 4, "%.1f s", conf_now() - start);
    end_executes(&child);
    conf_vcq_close(&vcq);
}

CONF_TEST("process", test_emu_foreign_listener, 2,
          "a socket that has the name of a process slot but no segment behind it is passed over")
{
    struct conf_vcq    vcq;
    struct sockaddr_un sa;
    int                fd = -1;

    if (conf_rank == 0) {
        const char *job = getenv("UTOFU_EMU_JOB");
        int         n;
        memset(&sa, 0, sizeof(sa));
        sa.sun_family = AF_UNIX;
        n  = snprintf(sa.sun_path + 1, sizeof(sa.sun_path) - 1, "utofu-emu/%u/%s/0", (unsigned)geteuid(),
                      (job != NULL) ? job : "default");
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n))) {
            conf_skip("slot 0 of the job is in use: %s", strerror(errno));
        }
        CONF_CHECK(listen(fd, 1) == 0, "listen: %s", strerror(errno));
    }
    conf_barrier();
    conf_vcq_open(&vcq, 0, 0);
    CONF_CHECK(vcq.peer[0] != vcq.peer[1], "the ranks did not find each other");
    round_trip(&vcq, CONF_MEM_MALLOC, 1000, 1);
    conf_vcq_close(&vcq);
    if (fd >= 0) {
        close(fd);
    }
}

CONF_TEST("process", test_emu_nothing_leaks, 2,
          "making and freeing VCQs, registrations and lanes thousands of times leaves no descriptor behind")
{
    struct conf_mem mem;
    int             fds = 0;

    conf_timeout(120);
    for (int round = 0; round < 400; round++) {
        struct conf_vcq vcq;
        utofu_stadd_t   stadds[CONF_MAX_PROCS];

        conf_vcq_open(&vcq, (size_t)round, 0);
        conf_mem_alloc(&mem, (round & 1) ? CONF_MEM_MEMFD : CONF_MEM_SHM, 8192);
        conf_reg_all(&vcq, mem.addr, 8192, stadds);
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[!conf_rank], 5, stadds[!conf_rank], 8, 9, CONF_RMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_PUT, vcq.peer[!conf_rank], 9, NULL);
        conf_barrier();
        conf_dereg(&vcq, stadds[conf_rank]);
        conf_mem_free(&mem);
        conf_vcq_close(&vcq);
        conf_barrier();
        if (round == 20) {
            fds = own_fds();
        }
    }
    CONF_CHECK(own_fds() <= fds, "%d descriptors, %d before", own_fds(), fds);
}

struct told { /* what a child says: itself first, then the notices that it gets */
    utofu_vcq_id_t vcq_id;
    uint64_t       value; /* STADD; EDATA */
};

static pid_t start_child(int *from_child, struct told *child)
{
    int   to_parent[2];
    pid_t pid;

    CONF_CHECK(!pipe(to_parent), "pipe");
    pid = fork();
    if (pid == 0) {
        static char             word[256];
        struct utofu_mrq_notice notice;
        struct told             out;
        utofu_vcq_hdl_t         hdl;
        if (utofu_create_vcq(conf_tni(1), 0, &hdl) || utofu_query_vcq_id(hdl, &out.vcq_id) ||
            utofu_reg_mem(hdl, word, sizeof(word), 0, &out.value)) {
            _exit(1);
        }
        while (write(to_parent[1], &out, sizeof(out)) == (ssize_t)sizeof(out)) {
            while (utofu_poll_mrq(hdl, 0, &notice) != UTOFU_SUCCESS) {
            }
            out = (struct told){notice.vcq_id, notice.edata};
        }
        _exit(1);
    }
    close(to_parent[1]);
    *from_child = to_parent[0];
    CONF_CHECK(read(*from_child, child, sizeof(*child)) == (ssize_t)sizeof(*child), "the child failed");
    return pid;
}

CONF_TEST("process", session_to_a_successor, 1,
          "a session-mode VCQ whose target ended writes to the process that has the VCQ ID now in a lane of its own")
{
    struct conf_vcq vcq, session;
    struct conf_mem mem;
    struct told     child, notice;
    utofu_stadd_t   lcl, session_lcl;
    utofu_vcq_id_t  first = 0;
    pid_t           pid;
    int             fd, status;

    conf_timeout(60);
    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_create(&session, 0, UTOFU_VCQ_FLAG_SESSION_MODE);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    lcl         = conf_reg(&vcq, mem.addr, mem.size, 0);
    session_lcl = conf_reg(&session, mem.addr, mem.size, 0);
    for (int round = 0; round < 3; round++) {
        pid = start_child(&fd, &child);
        CONF_CHECK((round == 0) || (child.vcq_id == first), "another VCQ ID: nothing is tested");
        first = child.vcq_id;
        for (int i = 0; i < 3 * round; i++) { /* of the plain VCQ: they have the first lane */
            CONF_OK(utofu_put(vcq.hdl, child.vcq_id, lcl, child.value, 8, 1, CONF_RMRQ, NULL));
            CONF_CHECK(read(fd, &notice, sizeof(notice)) == (ssize_t)sizeof(notice), "read");
            CONF_CHECK((notice.vcq_id == vcq.id) && (notice.value == 1), "%#llx", (unsigned long long)notice.vcq_id);
        }
        for (int i = 0; i < 2; i++) {
            CONF_OK(utofu_put(session.hdl, child.vcq_id, session_lcl, child.value, 8, 9, CONF_RMRQ, NULL));
            CONF_OK(utofu_put(vcq.hdl, session.id, lcl, session_lcl + 512, 8, 0, UTOFU_ONESIDED_FLAG_SPS(1), NULL));
            CONF_CHECK(read(fd, &notice, sizeof(notice)) == (ssize_t)sizeof(notice), "read");
            CONF_CHECK((notice.vcq_id == session.id) && (notice.value == 9),
                       "round %d: a notice of %#llx, EDATA %d, instead of the session's", round,
                       (unsigned long long)notice.vcq_id, (int)notice.value);
        }
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        close(fd);
        usleep(100000); /* until it is known that the child has ended */
    }
    conf_vcq_close(&session);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

CONF_TEST("process", query_stadd_first, 2, "utofu_query_stadd, as the first call too, knows IDs of the whole network")
{
    struct conf_vcq vcq;
    utofu_vcq_id_t  id = 0, ids[2];
    utofu_stadd_t   stadd;

    setenv("UTOFU_EMU_SHAPE", "16,16,16", 1);
    setenv("UTOFU_EMU_COORDS", (conf_rank == 0) ? "0,0,0,0,0,0" : "12,0,0,0,0,0", 1);
    if (conf_rank == 1) {
        conf_vcq_create(&vcq, 0, 0);
        id = vcq.id;
    }
    conf_exchange(&id, sizeof(id), ids);
    if (conf_rank == 0) {
        CONF_OK(utofu_query_stadd(ids[1], 3, &stadd));
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_OK(utofu_free_vcq(vcq.hdl));
    }
}
