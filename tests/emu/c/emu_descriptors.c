/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_descriptors.c - descriptors of the library beside those of the program, and what happens when
 * there are none; signals and cancellation meanwhile.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child returned, which has a job of its own process */
static int in_child(int (*run)(void))
{
    pid_t child = fork();
    int   status;

    CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(run());
    }
    CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CONF_CHECK(WIFEXITED(status), "the child: status 0x%x", status);
    return WEXITSTATUS(status);
}

/* A VCQ and a put to itself; where it ends */
static int use_the_library(void)
{
    static char     memory[2][8192] __attribute__((aligned(4096)));
    utofu_vcq_hdl_t hdl;
    utofu_vcq_id_t  id;
    utofu_stadd_t   from, to;

    if (utofu_create_vcq(1, 0, &hdl) || utofu_query_vcq_id(hdl, &id)) {
        return 1;
    }
    if (utofu_reg_mem(hdl, memory[0], sizeof(memory[0]), 0, &from) ||
        utofu_reg_mem(hdl, memory[1], sizeof(memory[1]), 0, &to)) {
        return 2;
    }
    memory[0][5] = 77;
    return (utofu_put(hdl, id, from, to, 8192, 1, CONF_RMRQ, NULL) || (memory[1][5] != 77)) ? 3 : 0;
}

static int without_streams(void)
{
    int code;

    close(0);
    close(1);
    close(2);
    code = use_the_library();
    for (int fd = 0; (code == 0) && (fd <= 2); fd++) {
        code = (fcntl(fd, F_GETFD) >= 0) ? 10 + fd : 0;
    }
    return code;
}

CONF_TEST("descriptors", streams_are_not_taken, 1,
          "a program that has closed its standard streams does not print into what the library has open")
{
    int code = in_child(without_streams);

    CONF_CHECK(code == 0, "%s (%d)", (code < 10) ? "the library does not work" : "descriptor 0, 1 or 2 is taken", code);
}

static int with_others_instead(void)
{
    struct stat st;
    int         fd;

    if (use_the_library()) {
        return 1;
    }
    syscall(SYS_close_range, 3u, ~0u, 0u);
    fd = memfd_create("program", MFD_CLOEXEC);
    if ((fd < 0) || ftruncate(fd, (off_t)1 << 40)) {
        return 77;
    }
    for (int i = 0; i < 900; i++) {
        (void)!dup(fd);
    }
    use_the_library(); /* which may say that it can't */
    return (fstat(fd, &st) || (st.st_blocks != 0)) ? 2 : 0;
}

CONF_TEST("descriptors", closed_descriptors_are_not_used, 1,
          "what a program opens after it has closed all descriptors is not written to by their numbers")
{
    int code = in_child(with_others_instead);

    if (code == 77) {
        conf_skip("no sparse memfd");
    }
    CONF_CHECK(code == 0, "%s", (code == 1) ? "the library does not work" : "the program's file has data now");
}

/* Opens what there may be; the last one's number, for give_back */
static int take_all(void)
{
    struct rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    int           fd, last = -1;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 400;
    CONF_CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit: %s", strerror(errno));
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
        last = fd;
    }
    CONF_CHECK(errno == EMFILE, "open: %s", strerror(errno));
    return last;
}

static void give_back(void)
{
    struct stat null, st;

    CONF_CHECK(!stat("/dev/null", &null), "/dev/null");
    for (int fd = 3; fd < 400; fd++) {
        if (!fstat(fd, &st) && (st.st_rdev == null.st_rdev) && S_ISCHR(st.st_mode)) {
            close(fd);
        }
    }
}

CONF_TEST("descriptors", armw_without_an_answer, 2,
          "an ARMW on private memory of a process without free descriptors ends, and works when there are some again")
{
    static uint64_t         word __attribute__((aligned(4096)));
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           stadds[2];
    double                  began;

    setenv("UTOFU_EMU_REHOME", "0", 1);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    if (conf_rank == 1) {
        take_all();
    }
    conf_barrier();
    if (conf_rank == 0) {
        began = conf_now();
        CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1, stadds[1], 0, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_SUCCESS, UTOFU_ERR_MRQ_OTHER, UTOFU_ERR_MRQ_PEER);
        CONF_CHECK(conf_now() - began < 20, "it took %.0f s", conf_now() - began);
    }
    conf_barrier();
    if (conf_rank == 1) {
        give_back();
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_OK(utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_SWAP, 9, stadds[1], 0, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (word == 9), "%d", (int)word);
    conf_vcq_close(&vcq);
}

/* What the library says of it is in the file that stands in for stderr. */
static void check_is_said(int said, const char *words)
{
    char    text[4096];
    ssize_t n = pread(said, text, sizeof(text) - 1, 0);

    text[(n > 0) ? n : 0] = '\0';
    CONF_CHECK(strstr(text, words) != NULL, "it says: %s", text);
}

CONF_TEST("descriptors", memory_of_a_peer_later, 2,
          "a process that has had no descriptor for a peer's memory says so, and reaches it when it has one")
{
    int                     said = memfd_create("stderr", MFD_CLOEXEC), before = dup(2), code;
    static uint64_t         word __attribute__((aligned(4096)));
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           stadds[2];

    setenv("UTOFU_EMU_REHOME", "0", 1);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    if (conf_rank == 0) {
        /* the peer is known then, its memory is not */
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 1, stadds[1] + ((uint64_t)900 << 40), 8, 0, CONF_LMRQ, NULL));
        CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD);
        CONF_CHECK((said >= 0) && (before >= 0) && (dup2(said, 2) == 2), "stderr");
        take_all();
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 2, stadds[1], 8, 0, CONF_LMRQ, NULL));
        code = CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_SUCCESS, UTOFU_ERR_MRQ_PEER, UTOFU_ERR_MRQ_OTHER);
        dup2(before, 2);
        if (code != UTOFU_SUCCESS) {
            check_is_said(said, "Too many open files");
        }
        give_back();
        CONF_OK(utofu_put_piggyback8(vcq.hdl, vcq.peer[1], 3, stadds[1], 8, 0, CONF_LMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
    }
    conf_barrier();
    CONF_CHECK((conf_rank == 0) || (word == 3), "%d", (int)word);
    conf_vcq_close(&vcq);
}

static struct conf_vcq shared_vcq;
static utofu_stadd_t   shared_stadds[2];

/* (AddressSanitizer does not know that a frame goes when its thread is cancelled.) */
__attribute__((no_sanitize_address)) static void *adds(void *arg)
{
    struct utofu_mrq_notice notice;

    (void)arg;
    for (;;) {
        utofu_armw8(shared_vcq.hdl, shared_vcq.peer[1], UTOFU_ARMW_OP_ADD, 1, shared_stadds[1], 0, CONF_LMRQ, NULL);
        utofu_poll_mrq(shared_vcq.hdl, 0, &notice);
        pthread_testcancel();
    }
    return NULL;
}

CONF_TEST("descriptors", cancelled_in_a_call, 2,
          "a thread that is cancelled gives back a thread-safe VCQ, also while it has to do with a stopped process")
{
    static uint64_t word __attribute__((aligned(4096)));
    pthread_t       thread;
    void           *cbdata;

    setenv("UTOFU_EMU_REHOME", "0", 1);
    conf_vcq_open(&shared_vcq, 0, (conf_rank == 0) ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0);
    conf_reg_all(&shared_vcq, &word, sizeof(word), shared_stadds);
    conf_barrier();
    for (int round = 0; (round < 5) && (conf_rank == 0); round++) {
        conf_stop(1);
        CONF_CHECK(!pthread_create(&thread, NULL, adds, NULL), "pthread_create");
        usleep(20000 + 1000 * (unsigned)round);
        CONF_CHECK(!pthread_cancel(thread) && !pthread_join(thread, NULL), "pthread_cancel");
        conf_continue(1);
        CONF_CODE(utofu_poll_tcq(shared_vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    }
    conf_barrier();
}

CONF_TEST("descriptors", sigbus_that_was_sent, 2, "SIGBUS that somebody sends ends a process, as ever")
{
    struct conf_vcq vcq;
    char           *memory;
    utofu_stadd_t   stadds[2] = {0, 0};
    utofu_vcq_id_t  ids[2] = {0, 0};
    int             fd, status;
    pid_t           child;

    if (conf_rank == 1) {
        conf_vcq_create(&vcq, 0, 0);
        fd     = memfd_create("program", MFD_CLOEXEC); /* that may become shorter: so there is a handler */
        memory = ((fd < 0) || ftruncate(fd, 65536)) ? MAP_FAILED :
                                                      mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CONF_CHECK(memory != MAP_FAILED, "a memfd: %s", strerror(errno));
        stadds[1] = conf_reg(&vcq, memory, 65536, 0);
        ids[1]    = vcq.id;
    }
    conf_exchange(&(utofu_stadd_t){stadds[conf_rank]}, sizeof(stadds[0]), stadds);
    conf_exchange(&(utofu_vcq_id_t){ids[conf_rank]}, sizeof(ids[0]), ids);
    if (conf_rank == 0) {
        child = fork();
        CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
        if (child == 0) {
            struct utofu_mrq_notice notice;

            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGBUS, SIG_DFL);
            conf_vcq_create(&vcq, 0, 0);
            CONF_OK(utofu_put_piggyback8(vcq.hdl, ids[1], 1, stadds[1], 8, 0, CONF_LMRQ, NULL));
            CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
            kill(getpid(), SIGBUS);
            _exit(0);
        }
        CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
        CONF_CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGBUS), "status 0x%x", status);
    }
    conf_barrier();
}

static long mapped_mib(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long  pages = 0;

    CONF_CHECK((f != NULL) && (fscanf(f, "%ld", &pages) == 1), "/proc/self/statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024) / 1024;
}

/* Rank 1 registers the same memory for each transfer. */
static void register_again(char *memory, size_t size)
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           stadds[2], mine;
    char                    source[64] = "";
    long                    before = 0;

    conf_vcq_open(&vcq, 0, 0);
    mine = (conf_rank == 0) ? conf_reg(&vcq, source, sizeof(source), 0) : 0;
    for (int i = 0; i < 40; i++) {
        if (conf_rank == 1) {
            mine = conf_reg(&vcq, memory, size, 0);
        }
        conf_exchange(&mine, sizeof(mine), stadds);
        if (conf_rank == 0) {
            source[0] = (char)i;
            CONF_OK(utofu_put(vcq.hdl, vcq.peer[1], mine, stadds[1], 64, 0, CONF_LMRQ, NULL));
            CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
            before = (i == 4) ? mapped_mib() : before;
        }
        conf_barrier();
        if (conf_rank == 1) {
            CONF_CHECK(memory[0] == (char)i, "transfer %d brought %d", i, memory[0]);
            conf_dereg(&vcq, mine);
        }
    }
    CONF_CHECK((conf_rank == 1) || (mapped_mib() < before + 2048), "%ld MiB were mapped, %ld are", before, mapped_mib());
    conf_barrier();
}

CONF_TEST("descriptors", registered_for_each_transfer, 2,
          "memory that is registered for each transfer is mapped by the peer once")
{
    static char memory[1 << 20] __attribute__((aligned(4096)));

    register_again(memory, sizeof(memory));
}

CONF_TEST("descriptors", file_for_each_transfer, 2, "the same of a file of 1 GiB")
{
    size_t size = (size_t)1 << 30;
    int    fd   = memfd_create("program", MFD_CLOEXEC);
    char  *memory;

    memory = ((fd < 0) || ftruncate(fd, (off_t)size)) ? MAP_FAILED :
                                                         mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CONF_CHECK(memory != MAP_FAILED, "a memfd: %s", strerror(errno));
    register_again(memory, size);
}
