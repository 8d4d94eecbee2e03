/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_limits.c - limits of the process (setrlimit) end in codes, not in the end of the program */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK ((size_t)1 << 20)

static void limit(int what, rlim_t value)
{
    struct rlimit r;

    CONF_CHECK(getrlimit(what, &r) == 0, "getrlimit");
    if ((r.rlim_max != RLIM_INFINITY) && ((value == RLIM_INFINITY) || (value > r.rlim_max))) {
        conf_skip("the limit is lower than that");
    }
    r.rlim_cur = value;
    CONF_CHECK(setrlimit(what, &r) == 0, "setrlimit");
}

/* SIGXFSZ is neither pending nor blocked */
static void check_signal(void)
{
    sigset_t set;

    CONF_CHECK((sigpending(&set) == 0) && !sigismember(&set, SIGXFSZ), "SIGXFSZ is pending");
    CONF_CHECK((pthread_sigmask(SIG_BLOCK, NULL, &set) == 0) && !sigismember(&set, SIGXFSZ), "SIGXFSZ is blocked");
}

CONF_TEST("limits", file_size_at_first_call, 1,
          "with a file size limit the first call fails with OUT_OF_RESOURCE, and works when the limit is lifted")
{
    struct conf_vcq vcq;
    utofu_vcq_hdl_t hdl;

    signal(SIGXFSZ, SIG_DFL);
    limit(RLIMIT_FSIZE, (rlim_t)1 << 30);
    CONF_CODE(utofu_create_vcq(0, 0, &hdl), UTOFU_ERR_OUT_OF_RESOURCE);
    check_signal();
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    conf_vcq_create(&vcq, 0, 0);
    conf_vcq_close(&vcq);
}

CONF_TEST("limits", file_size_at_registration, 1,
          "memory that may not go into a file for such a limit is registered all the same")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd[3];
    unsigned char  *mem = mmap(NULL, 3 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CONF_CHECK(mem != MAP_FAILED, "mmap");
    memset(mem, 7, 3 * BLOCK);
    signal(SIGXFSZ, SIG_DFL);
    conf_vcq_create(&vcq, 0, 0);
    if (getenv("EMU_LIMIT_LATE") != NULL) {
        stadd[0] = conf_reg(&vcq, mem, BLOCK / 2, 0); /* the file is there, writing to it is what fails */
    }
    limit(RLIMIT_FSIZE, 4096);
    if (getenv("EMU_LIMIT_LATE") == NULL) {
        stadd[0] = conf_reg(&vcq, mem, BLOCK / 2, 0);
    }
    stadd[1] = conf_reg(&vcq, mem + BLOCK, BLOCK / 2, 0);
    stadd[2] = conf_reg(&vcq, mem + 2 * BLOCK, BLOCK / 2, 0);
    check_signal();
    memset(mem, 9, BLOCK / 2);
    conf_put_word(&vcq, vcq.id, stadd[0], stadd[1]);
    CONF_CHECK_BYTES(mem + BLOCK, 8, 9, "what was put");
    CONF_CHECK_BYTES(mem + BLOCK + 8, BLOCK / 2, 7, "what is behind it");
    for (unsigned i = 0; i < 3; i++) {
        conf_dereg(&vcq, stadd[i]);
    }
    CONF_CHECK_BYTES(mem + 2 * BLOCK, BLOCK, 7, "the rest");
    conf_vcq_close(&vcq);
    munmap(mem, 3 * BLOCK);
}

CONF_TEST("limits", no_descriptor_at_registration, 1,
          "a registration of good memory by a process without free descriptors is not an INVALID_ADDRESS")
{
    static char     good[100];
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;
    int             fd[64], num = 0, code;

    conf_vcq_create(&vcq, 0, 0);
    limit(RLIMIT_NOFILE, 64);
    while ((num < 64) && ((fd[num] = open("/dev/null", O_RDONLY)) >= 0)) {
        num++;
    }
    CONF_CHECK((num < 64) && (errno == EMFILE), "descriptors are left");
    code = CONF_CODE(utofu_reg_mem(vcq.hdl, good, sizeof(good), 0, &stadd), UTOFU_SUCCESS, UTOFU_ERR_OUT_OF_RESOURCE);
    while (num > 0) {
        close(fd[--num]);
    }
    if (code != UTOFU_SUCCESS) {
        stadd = conf_reg(&vcq, good, sizeof(good), 0);
    }
    conf_dereg(&vcq, stadd);
    CONF_CODE(utofu_reg_mem(vcq.hdl, (void *)8, 8, 0, &stadd), UTOFU_ERR_INVALID_ADDRESS);
    conf_vcq_close(&vcq);
}

/* A process on another node than all before it makes a VCQ and takes barrier gates, and ends without a word. */
static void one_node(unsigned n)
{
    char            coords[32];
    utofu_vcq_hdl_t hdl;
    utofu_vbg_id_t  ids[16];
    int             status;
    pid_t           pid = fork();

    CONF_CHECK(pid >= 0, "fork");
    if (pid == 0) {
        snprintf(coords, sizeof(coords), "%u,%u,%u,0,0,0", n % 8, n / 8 % 8, 1 + n / 64);
        setenv("UTOFU_EMU_SHAPE", "8,8,24", 1);
        setenv("UTOFU_EMU_COORDS", coords, 1);
        _exit((utofu_create_vcq(0, 0, &hdl) != UTOFU_SUCCESS) || (utofu_alloc_vbg(0, 16, 0, ids) != UTOFU_SUCCESS));
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0),
               "the process on node %u ended with 0x%x", n, status);
}

CONF_TEST("limits", more_nodes_than_a_job_has, 2,
          "a job that has had 1024 nodes gives the place of one without processes to the next, and who lives keeps theirs")
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadds[2];
    uint64_t        words[2] = {5 + (uint64_t)conf_rank, 0};

    conf_timeout(120);
    setenv("UTOFU_EMU_SHAPE", "8,8,24", 1);
    setenv("UTOFU_EMU_COORDS", (conf_rank == 0) ? "0,0,0,0,0,0" : "1,0,0,0,0,0", 1);
    if (conf_rank == 0) {
        conf_vcq_create(&vcq, 0, 0);
    }
    conf_barrier();
    for (unsigned n = 0; (n < 1100) && (conf_rank == 1); n++) {
        one_node(n);
    }
    if (conf_rank == 1) {
        conf_vcq_create(&vcq, 0, 0);
    }
    conf_exchange(&vcq.id, sizeof(vcq.id), vcq.peer);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    conf_put_word(&vcq, vcq.peer[1 - conf_rank], stadds[conf_rank], stadds[1 - conf_rank] + sizeof(words[0]));
    conf_barrier();
    CONF_CHECK(words[1] == 6 - (uint64_t)conf_rank, "the word is %lu", (unsigned long)words[1]);
    conf_vcq_close(&vcq);
}
