/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_written.c - sessions and counters as another process, or a long time, leaves them: what others
 * see of this process is written by the test itself.
 */
#include "own.h"

#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define SESSION UTOFU_VCQ_FLAG_SESSION_MODE
#define START   UTOFU_ONESIDED_FLAG_SPS(1)

enum { STEP_LOCAL = 6 }; /* emu_session.h: about to write the local notice */

static struct emu_session *session_of(struct emu_process *own, const struct conf_vcq *vcq)
{
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        if ((own->vcq[i].vcq_id == vcq->id) && own->vcq[i].session) {
            return (void *)((char *)own + EMU_SESSIONS_OFF + i * EMU_SESSION_SIZE(own->session_entries));
        }
    }
    CONF_FAIL("no session of the VCQ");
}

/* A put with an SPS to a session that somebody has written into returns. */
static void post_to(void (*write)(struct emu_session *s))
{
    struct conf_vcq     vcq;
    struct emu_process *own;
    utofu_stadd_t       stadd, lcl;
    uint64_t            words[2] = {0, 0};
    int                 status;
    pid_t               child;

    conf_vcq_create(&vcq, 0, SESSION);
    stadd = conf_reg(&vcq, words, sizeof(words), 0);
    own   = own_segment();
    write(session_of(own, &vcq));
    child = fork();
    CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        struct conf_vcq from;
        uint64_t        word = 1;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGALRM, SIG_DFL);
        alarm(5);
        conf_vcq_create(&from, 0, 0);
        lcl = conf_reg(&from, &word, sizeof(word), 0);
        CONF_OK(utofu_put(from.hdl, vcq.id, lcl, stadd, 8, 0, START, NULL));
        _exit(0);
    }
    CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CONF_CHECK(status == 0, "the post: status 0x%x", status);
    munmap(own, (size_t)own->size);
}

static void one_under_way(struct emu_session *s)
{
    s->claimed = 1;
}

static void more_than_a_toq(struct emu_session *s)
{
    s->posted = UINT64_MAX / 2;
    s->credits += (uint64_t)1 << 40;
}

CONF_TEST("written", session_of_nonsense, 1, "who brings a Put to a session that somebody has written into goes on")
{
    post_to(one_under_way);
}

CONF_TEST("written", session_without_end, 1, "and to one with more descriptors than a TOQ has")
{
    post_to(more_than_a_toq);
}

CONF_TEST("written", many_announcements, 1, "a VCQ to which more than 2^31 lanes were announced is as any other")
{
    struct utofu_mrq_notice notice;
    struct emu_process     *own;
    struct conf_vcq         to, from;
    utofu_stadd_t           stadd;
    uint64_t                word = 0;

    conf_vcq_create(&to, 1, 0);
    stadd = conf_reg(&to, &word, sizeof(word), 0);
    own   = own_segment();
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        if (own->vcq[i].vcq_id == to.id) {
            own->vcq[i].epoch = 0x7ffffffd;
        }
    }
    munmap(own, (size_t)own->size);
    for (int i = 0; i < 8; i++) {
        conf_vcq_create(&from, 0, 0);
        CONF_OK(utofu_put_piggyback8(from.hdl, to.id, 5, stadd, 8, (uint64_t)i, CONF_RMRQ, NULL));
        CONF_OK(CONF_WAIT_MRQ(&to, &notice));
        CONF_CHECK(notice.edata == (uint64_t)i, "notice %d", (int)notice.edata);
        conf_vcq_close(&from);
    }
    conf_vcq_close(&to);
}

static void carrier(utofu_vcq_id_t relay, utofu_stadd_t stadd)
{
    struct conf_vcq vcq;
    utofu_stadd_t   lcl;
    uint64_t        word = 1;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) {
        _exit(77);
    }
    conf_vcq_create(&vcq, 0, 0);
    lcl = conf_reg(&vcq, &word, sizeof(word), 0);
    raise(SIGTRAP);
    utofu_put(vcq.hdl, relay, lcl, stadd, 8, 0, START, NULL);
    _exit(0);
}

/* A relay's Put fails, and who carried it is killed as it begins to tell so. */
static void fails_and_dies(unsigned long flags)
{
    struct utofu_mrq_notice notice;
    struct emu_process     *own;
    struct emu_session     *s;
    struct conf_vcq         relay, target;
    utofu_stadd_t           lcl, rmt;
    uint64_t                words[2] = {0, 0};
    int                     status, code;
    pid_t                   child;

    conf_timeout(120);
    conf_vcq_create(&relay, 1, SESSION);
    conf_vcq_create(&target, 2, 0);
    lcl = conf_reg(&relay, words, sizeof(words), 0);
    rmt = conf_reg(&target, words, sizeof(words), 0);
    CONF_OK(utofu_put(relay.hdl, target.id, lcl, rmt + 65536, 8, 7, flags | CONF_TCQ, CONF_PTR(5)));
    own   = own_segment();
    s     = session_of(own, &relay);
    child = fork();
    CONF_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        carrier(relay.id, lcl);
    }
    CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77)) {
        conf_skip("no ptrace here");
    }
    while ((s->step & 15) != STEP_LOCAL) {
        CONF_CHECK(WIFSTOPPED(status) && !ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), "it went on to its end: 0x%x",
                   status);
        CONF_CHECK(waitpid(child, &status, 0) == child, "waitpid");
    }
    kill(child, SIGKILL);
    do {
        CONF_CHECK(waitpid(child, &status, __WALL) == child, "waitpid");
    } while (WIFSTOPPED(status));
    CONF_EXPECT_TCQ(&relay, CONF_PTR(5));
    code = CONF_WAIT_MRQ(&relay, &notice);
    CONF_CHECK(code == UTOFU_ERR_MRQ_RMT_STADD, "the failure is told as %s", conf_code_name(code));
    CONF_CHECK(notice.edata == 7, "EDATA %d", (int)notice.edata);
    CONF_EXPECT_QUIET(&relay);
    munmap(own, (size_t)own->size);
}

CONF_TEST("written", failure_outlives_carrier, 1,
          "a relay is told that its Put failed, also when who carried it dies at that")
{
    fails_and_dies(0);
}

CONF_TEST("written", failure_outlives_carrier_notice, 1, "and that it did not succeed, where it wants a notice of that")
{
    fails_and_dies(CONF_LMRQ);
}
