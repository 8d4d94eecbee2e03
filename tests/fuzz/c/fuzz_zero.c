/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_zero.c - nothing, and from nowhere: operations of length 0, immediate data at
 * NULL, remote memory that this process has no address of.  The random calls of
 * fuzz_main.c meet the pair too seldom in the slow modes.
 *
 *   fuzz_zero
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utofu.h>

#define SIZE 65536

struct side {
    utofu_vcq_hdl_t hdl;
    utofu_vcq_id_t  id;
    utofu_stadd_t   s;
};

static void check(int ok, const char *what)
{
    if (!ok) {
        puts(what);
        fflush(stdout);
        _exit(1);
    }
}

static void open_side(struct side *side, void *memory, unsigned long flags)
{
    utofu_tni_id_t *tnis;
    size_t          num;

    check((utofu_get_onesided_tnis(&tnis, &num) == UTOFU_SUCCESS) && (num > 0), "TNIs");
    check(utofu_create_vcq(tnis[0], 0, &side->hdl) == UTOFU_SUCCESS, "create_vcq");
    check(utofu_query_vcq_id(side->hdl, &side->id) == UTOFU_SUCCESS, "query_vcq_id");
    check(utofu_reg_mem(side->hdl, memory, SIZE, flags, &side->s) == UTOFU_SUCCESS, "reg_mem");
    free(tnis);
}

/* What was posted is over, however it ends. */
static void drain(utofu_vcq_hdl_t hdl, unsigned posted)
{
    struct utofu_mrq_notice notice;
    void                   *cbdata;

    for (unsigned done = 0; done < posted;) {
        done += (utofu_poll_tcq(hdl, 0, &cbdata) != UTOFU_ERR_NOT_FOUND);
        (void)utofu_poll_mrq(hdl, 0, &notice);
    }
}

static unsigned accepted(int code, const char *call)
{
    check((code == UTOFU_SUCCESS) || (code == UTOFU_ERR_INVALID_ARG), call);
    return code == UTOFU_SUCCESS;
}

/* All kinds, by call and by descriptor; returns how many were posted. */
static unsigned nothing(utofu_vcq_hdl_t hdl, utofu_vcq_id_t id, utofu_stadd_t lcl, utofu_stadd_t rmt, unsigned long f)
{
    _Alignas(8) char desc[4096]; /* more than any max_toq_desc_size */
    size_t           at = 0, size;
    unsigned         posted;

    posted = accepted(utofu_put_piggyback(hdl, id, NULL, rmt, 0, 1, f, NULL), "put_piggyback");
    posted += accepted(utofu_put_piggyback8(hdl, id, 7, rmt, 0, 1, f, NULL), "put_piggyback8");
    posted += accepted(utofu_put(hdl, id, lcl, rmt, 0, 1, f, NULL), "put");
    posted += accepted(utofu_get(hdl, id, lcl, rmt, 0, 1, f, NULL), "get");
    if (accepted(utofu_prepare_put_piggyback(hdl, id, NULL, rmt, 0, 1, f, desc, &size), "prepare_put_piggyback")) {
        at += size;
    }
    if (accepted(utofu_prepare_put(hdl, id, lcl, rmt, 0, 1, f, desc + at, &size), "prepare_put")) {
        at += size;
    }
    if (accepted(utofu_prepare_get(hdl, id, lcl, rmt, 0, 1, f, desc + at, &size), "prepare_get")) {
        at += size;
    }
    drain(hdl, posted);
    if (at > 0) {
        check(utofu_post_toq(hdl, desc, at, NULL) == UTOFU_SUCCESS, "post_toq");
        posted++; /* the last one's notice */
        drain(hdl, 1);
    }
    return posted;
}

int main(void)
{
    static const unsigned long flags[] = {
        UTOFU_ONESIDED_FLAG_TCQ_NOTICE, UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER,
        UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE};
    struct side own, other;
    int         told[2];
    unsigned    posted = 0;
    pid_t       child;
    char       *memory;

    check(pipe(told) == 0, "pipe");
    child = fork();
    check(child >= 0, "fork");
    memory = mmap(NULL, SIZE, (child == 0) ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "mmap");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_side(&other, memory, UTOFU_REG_MEM_FLAG_READ_ONLY);
        check(write(told[1], &other, sizeof(other)) == sizeof(other), "write");
        for (;;) {
            pause();
        }
    }
    close(told[1]);
    memset(memory, 0x5a, SIZE);
    open_side(&own, memory, 0);
    check(read(told[0], &other, sizeof(other)) == sizeof(other), "the other process");
    for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        posted += nothing(own.hdl, own.id, own.s, own.s + 64, flags[i]);
        posted += nothing(own.hdl, other.id, own.s, other.s, flags[i]);
        posted += nothing(own.hdl, own.id, 0, own.s, flags[i]); /* STADD 0 is nobody's */
        posted += nothing(own.hdl, own.id, own.s, 0, flags[i]);
    }
    for (unsigned i = 0; i < SIZE; i++) {
        check(memory[i] == 0x5a, "a byte changed");
    }
    check(utofu_free_vcq(own.hdl) == UTOFU_SUCCESS, "free_vcq");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    munmap(memory, SIZE);
    printf("posted %u\n", posted);
    return 0;
}
