/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_process.c - children of a process that uses uTofu (6.1.4.1), and the end
 * of a process whose MRQ overflows (chapter 7).
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Rank 0 puts to and gets from rank 1 and back. */
static void still_works(const struct conf_vcq *vcq, const utofu_stadd_t *stadds,
                        uint64_t *words, uint64_t value)
{
    int peer = 1 - conf_rank;

    words[0] = value + conf_rank;
    CONF_POST(vcq->hdl, utofu_put(vcq->hdl, vcq->peer[peer], stadds[conf_rank],
                                  stadds[peer] + 8, 8, 1, CONF_LMRQ | CONF_RMRQ,
                                  NULL));
    CONF_EXPECT_BOTH(vcq, vcq->peer[peer], 1); /* in either order */
    CONF_CHECK(words[1] == value + peer, "the put of the peer is not there");
    conf_barrier();
}

CONF_TEST("6.1.4.1", children_leave_parent_alone, 2,
          "a child process that exits, or runs another program, changes "
          "nothing for the VCQs and registered memory of its parent")
{
    static uint64_t words[512]; /* a page of its own would hide mistakes */
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2], shared[2];
    pid_t           child;
    int             status, i;

    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, words, sizeof(words), stadds);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, 4096);
    conf_reg_all(&vcq, mem.addr, mem.size, shared);
    still_works(&vcq, stadds, words, 10);
    still_works(&vcq, shared, (uint64_t *)mem.addr, 20);
    for (i = 0; i < 3; i++) {
        fflush(NULL);
        child = (i < 2) ? fork() : vfork();
        CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
        if (child == 0) {
            if (i == 0) {
                exit(0); /* runs what the library does at exit */
            } else if (i == 1) {
                _exit(0);
            }
            execlp("true", "true", (char *)NULL);
            _exit(127);
        }
        CONF_CHECK((waitpid(child, &status, 0) == child) && (status == 0),
                   "child %d ended with status 0x%x", i, status);
        conf_barrier();
        still_works(&vcq, stadds, words, 30 + i * 10);
        still_works(&vcq, shared, (uint64_t *)mem.addr, 70 + i * 10);
    }
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_dereg(&vcq, shared[conf_rank]);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}

/* Rank 1's child is the target: it takes no notice until num of each other rank wait. */
static void unread_notices(unsigned num, bool overflows, int ready, int go)
{
    char                    byte;
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[CONF_MAX_PROCS];
    uint64_t                word = 0;
    unsigned                all  = num * (unsigned)(conf_procs - 1), i;
    int                     rc;

    /* Of the target alone: what fails when it has ended is reported to the senders, many at a time, and is not
     * to overflow theirs. */
    CONF_CHECK((conf_rank != 1) || (setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1) == 0), "setenv");
    conf_vcq_open(&vcq, 1, 0); /* not the one that a message would name by chance */
    if (conf_rank == 1) {
        uint8_t        coords[6];
        utofu_tni_id_t tni;
        utofu_cq_id_t  cq;
        uint16_t       extra;

        CONF_OK(utofu_query_vcq_info(vcq.id, coords, &tni, &cq, &extra));
        fprintf(stderr, "target: TNI %d CQ %d\n", tni, cq);
    }
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    if (conf_rank != 1) {
        conf_barrier();
    }
    for (i = 0; (i < num) && (conf_rank != 1); i++) {
        CONF_POST(vcq.hdl,
                  utofu_put_piggyback8(vcq.hdl, vcq.peer[1], i, stadds[1], 8,
                                       i % 256, CONF_RMRQ, NULL));
        /* What finds no room may be reported as the peer's failure. */
        CONF_CODE(utofu_poll_mrq(vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND,
                  overflows ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_NOT_FOUND,
                  overflows ? UTOFU_ERR_MRQ_OTHER : UTOFU_ERR_NOT_FOUND);
    }
    if (conf_rank == 1) { /* it may be ended before it looks, so its parent takes part in the barriers */
        CONF_CHECK(write(ready, "", 1) == 1, "write: %s", strerror(errno));
        CONF_CHECK(read(go, &byte, 1) == 1, "read: %s", strerror(errno));
    } else {
        conf_barrier();
    }
    for (i = 0; (conf_rank == 1) && (i < all); i++) {
        rc = CONF_WAIT_MRQ(&vcq, &notice);
        CONF_CHECK(!overflows || (i < all / 2), "%u notices were kept", i);
        CONF_OK(rc);
        CONF_CHECK((conf_procs > 2) || (notice.edata == i % 256), "notice %u", i);
    }
    if (conf_rank != 1) {
        conf_barrier();
        CONF_OK(utofu_free_vcq(vcq.hdl));
    }
}

static void overflow(unsigned num, bool overflows)
{
    char    text[4096] = "";
    size_t  used       = 0;
    ssize_t got;
    int     fds[2], ready[2], go[2], status, tni, cq, right_tni, right_cq;
    char   *message, byte;
    pid_t   child;

    if (conf_rank != 1) {
        unread_notices(num, overflows, -1, -1);
        return;
    }
    /* This process never calls uTofu: it sees how its child ends. */
    CONF_CHECK((pipe(fds) == 0) && (pipe(ready) == 0) && (pipe(go) == 0),
               "pipe: %s", strerror(errno));
    child = fork();
    CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(CONF_TIMEOUT);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(ready[0]);
        close(go[1]);
        unread_notices(num, overflows, ready[1], go[0]);
        _exit(0);
    }
    close(fds[1]);
    close(ready[1]);
    CONF_CHECK(read(ready[0], &byte, 1) == 1, "the child has not begun");
    conf_barrier(); /* the senders begin */
    conf_barrier(); /* and have sent all */
    CONF_CHECK(write(go[1], "", 1) == 1, "write: %s", strerror(errno));
    close(ready[0]);
    close(go[0]);
    close(go[1]);
    while ((used < sizeof(text) - 1) &&
           ((got = read(fds[0], text + used, sizeof(text) - 1 - used)) > 0)) {
        used += got;
    }
    close(fds[0]);
    CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
    conf_barrier();
    if (!overflows) {
        CONF_CHECK(status == 0, "status 0x%x: %s", status, text);
        return;
    }
    CONF_CHECK(status != 0, "the process went on");
    message = strstr(text, "utofu: asynchronous error: MRQ Overflow on TNI ");
    CONF_CHECK((message != NULL) &&
                       (sscanf(message, "utofu: asynchronous error: MRQ "
                               "Overflow on TNI %d CQ %d", &tni, &cq) == 2),
               "status 0x%x, message: %s", status, text);
    message = strstr(text, "target: ");
    CONF_CHECK((message != NULL) &&
                       (sscanf(message, "target: TNI %d CQ %d", &right_tni,
                               &right_cq) == 2) &&
                       (tni == right_tni) && (cq == right_cq),
               "it names another CQ: %s", text);
}

CONF_TEST("4.3.2.3", mrq_holds_its_entries, 2,
          "an MRQ of UTOFU_NUM_MRQ_ENTRIES = 2Ki keeps 2000 notices that "
          "nobody reads")
{
    overflow(2000, false);
}

CONF_TEST("4.3.2.3", mrq_holds_those_of_all, 4,
          "the same of three senders, with 660 notices each")
{
    overflow(660, false);
}

CONF_TEST("7", mrq_overflow_by_several, 4,
          "notices of three senders, of which none fills the MRQ, overflow it "
          "together")
{
    overflow(1500, true);
}

CONF_TEST("7", mrq_overflow, 2,
          "a process whose MRQ gets far more notices than it has entries ends "
          "with the message of chapter 7; the sender goes on")
{
    overflow(20000, true);
}
