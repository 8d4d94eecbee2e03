/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_env.c - the five environment variables (4.3.2).  Each rank sets them
 * before it calls uTofu for the first time.
 */
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SESSION   UTOFU_VCQ_FLAG_SESSION_MODE
#define EXCLUSIVE UTOFU_VCQ_FLAG_EXCLUSIVE
#define CQS       9  /* of a TNI */
#define TNI_VCQS  72 /* of a TNI */

static void set(const char *name, const char *value)
{
    CONF_CHECK(((value == NULL) ? unsetenv(name) : setenv(name, value, 1)) == 0,
               "%s: %s", name, strerror(errno));
}

/* Make VCQs of a kind until there are no more; no two of these kinds are on the
 * same CQ. */
static size_t make_all(size_t tni, unsigned long flags, utofu_vcq_hdl_t *hdls)
{
    utofu_cq_id_t  cqs[TNI_VCQS + 1];
    utofu_vcq_id_t id;
    utofu_tni_id_t tni_id;
    uint16_t       extra;
    uint8_t        coords[6];
    size_t         n, i;

    for (n = 0; n <= TNI_VCQS; n++) {
        if (CONF_CODE(utofu_create_vcq(conf_tni(tni), flags, &hdls[n]),
                      UTOFU_SUCCESS, UTOFU_ERR_NOT_AVAILABLE,
                      (flags & SESSION) ? UTOFU_ERR_NOT_AVAILABLE :
                                          UTOFU_ERR_FULL) != UTOFU_SUCCESS) {
            return n;
        }
        CONF_OK(utofu_query_vcq_id(hdls[n], &id));
        CONF_OK(utofu_query_vcq_info(id, coords, &tni_id, &cqs[n], &extra));
        for (i = 0; (i < n) && (flags & EXCLUSIVE); i++) {
            CONF_CHECK(cqs[i] != cqs[n], "two VCQs are on CQ %d", cqs[n]);
        }
    }
    CONF_FAIL("more VCQs than a TNI has");
}

static void free_all(utofu_vcq_hdl_t *hdls, size_t num)
{
    while (num > 0) {
        CONF_OK(utofu_free_vcq(hdls[--num]));
    }
}

/* What is exact holds where a node runs nothing else: an emulator's. */
static void emulator_only(void)
{
    if (!conf_is_emulator()) {
        conf_skip("a machine's CQs are shared with other libraries");
    }
}

CONF_TEST("4.3.2.2", env_session_cqs, 6,
          "UTOFU_NUM_SESSION_MODE_CQS says how many CQs of a TNI can be used "
          "for session-mode VCQs, 3 when it is not set; then create is "
          "NOT_AVAILABLE, on that TNI; what is freed can be had again")
{
    static const struct {
        const char *value;
        size_t      least, most;
    } cases[6] = {{NULL, 3, 3}, {"0", 0, 0}, {"1", 1, 1},
                  {"3", 3, 3},  {"6", 6, 6}, {"100", 8, CQS}};
    utofu_vcq_hdl_t hdls[TNI_VCQS + 1], other;
    size_t          n;
    int             round;

    emulator_only();
    set("UTOFU_NUM_SESSION_MODE_CQS", cases[conf_rank].value);
    for (round = 0; round < 3; round++) {
        n = make_all(0, SESSION, hdls);
        CONF_CHECK((n >= cases[conf_rank].least) && (n <= cases[conf_rank].most),
                   "%zu session-mode VCQs", n);
        if (n > 0) {
            CONF_OK(utofu_free_vcq(hdls[n / 2]));
            CONF_OK(utofu_create_vcq(conf_tni(0), SESSION, &hdls[n / 2]));
            CONF_OK(utofu_create_vcq(conf_tni(1), SESSION, &other));
            CONF_OK(utofu_free_vcq(other));
        }
        CONF_CODE(utofu_create_vcq(conf_tni(0), SESSION, &other),
                  UTOFU_ERR_NOT_AVAILABLE);
        free_all(hdls, n);
    }
}

CONF_TEST("4.3.2.2", env_session_cqs_reserved, 1,
          "the CQs that were asked for by UTOFU_NUM_SESSION_MODE_CQS are left "
          "when no VCQ of another kind can be made")
{
    utofu_vcq_hdl_t shared[TNI_VCQS + 1], exclusive[TNI_VCQS + 1],
            session[TNI_VCQS + 1];
    size_t s, e, n;

    emulator_only();
    set("UTOFU_NUM_SESSION_MODE_CQS", "4");
    e = make_all(0, EXCLUSIVE, exclusive);
    s = make_all(0, 0, shared);
    n = make_all(0, SESSION, session);
    CONF_CHECK(n == 4, "%zu session-mode VCQs, %zu exclusive, %zu shared", n, e,
               s);
    CONF_CHECK(e + n <= CQS, "%zu CQs", e + n);
    free_all(exclusive, e);
    s += make_all(0, 0, shared + s);
    CONF_CHECK(s == (CQS - 4) * 8, "%zu shared VCQs on the other CQs", s);
}

CONF_TEST("4.3.2.1", env_exclusive_cqs, 3,
          "the CQs that were asked for by UTOFU_NUM_EXCLUSIVE_CQS are left for "
          "EXCLUSIVE VCQs when no VCQ of another kind can be made")
{
    static const char *const values[3] = {"1", "4", "7"};
    utofu_vcq_hdl_t          shared[TNI_VCQS + 1], exclusive[TNI_VCQS + 1];
    size_t                   s, e;

    emulator_only();
    set("UTOFU_NUM_EXCLUSIVE_CQS", values[conf_rank]);
    set("UTOFU_NUM_SESSION_MODE_CQS", "0");
    s = make_all(0, 0, shared);
    CONF_CHECK((s > 0) && (s <= (size_t)(CQS - atoi(values[conf_rank])) * 8),
               "%zu shared VCQs", s);
    e = make_all(0, EXCLUSIVE, exclusive);
    CONF_CHECK(e >= (size_t)atoi(values[conf_rank]), "%zu exclusive VCQs", e);
    free_all(exclusive, e);
    free_all(shared, s);
}

CONF_TEST("4.3.2.2", env_exclusive_before_session, 2,
          "when there are fewer CQs than the two variables ask for, the "
          "exclusive ones are reserved first")
{
    utofu_vcq_hdl_t exclusive[TNI_VCQS + 1], session[TNI_VCQS + 1];
    size_t          e, n, wanted = (conf_rank == 0) ? 6 : 7;

    emulator_only();
    set("UTOFU_NUM_EXCLUSIVE_CQS", (conf_rank == 0) ? "6" : "7");
    set("UTOFU_NUM_SESSION_MODE_CQS", (conf_rank == 0) ? "6" : NULL);
    n = make_all(0, SESSION, session);
    CONF_CHECK((n >= 1) && (n <= CQS - wanted), "%zu session-mode VCQs", n);
    e = make_all(0, EXCLUSIVE, exclusive);
    CONF_CHECK(e >= wanted, "%zu exclusive VCQs after %zu session-mode ones", e, n);
    free_all(session, n);
    free_all(exclusive, e);
}

CONF_TEST("4.3.2.1", env_cqs_of_a_node, 2,
          "the CQs that a process asked for by the two variables are left when "
          "another process of its node takes all that it can get")
{
    utofu_vcq_hdl_t hdls[TNI_VCQS + 1], own;
    size_t          n, session = 0, exclusive = 0;

    emulator_only();
    set("UTOFU_EMU_NODE", "3");
    if (conf_rank == 1) {
        set("UTOFU_NUM_EXCLUSIVE_CQS", "2");
        set("UTOFU_NUM_SESSION_MODE_CQS", "3");
        CONF_OK(utofu_create_vcq(conf_tni(1), 0, &own));
    }
    conf_barrier();
    if (conf_rank == 0) {
        n = make_all(0, EXCLUSIVE, hdls);
        CONF_CHECK((n > 0) && (n <= CQS - 5), "%zu exclusive VCQs", n);
        n += make_all(0, 0, hdls + n);
        CONF_CHECK(n > 0, "%zu VCQs", n);
    }
    conf_barrier();
    if (conf_rank == 1) {
        session   = make_all(0, SESSION, hdls);
        exclusive = make_all(0, EXCLUSIVE, hdls + session);
        CONF_CHECK((session == 3) && (exclusive == 2),
                   "%zu session-mode VCQs and %zu exclusive ones", session,
                   exclusive);
    }
    conf_barrier();
}

/* ------------------------------------------------------------ MRQ sizes */

/* Rank 0 sends num notices to a VCQ of rank 1's child, which reads none before
 * all were sent.  Returns in the child only when all were there. */
static void unread_notices(unsigned num, unsigned long flags, bool overflows,
                           int ready, int go)
{
    char                    byte;
    struct conf_vcq         vcq;
    struct utofu_mrq_notice notice;
    utofu_stadd_t           stadds[2];
    uint64_t                word = 0;
    unsigned                i;

    conf_vcq_open(&vcq, 0, (conf_rank == 1) ? flags : 0);
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    if (conf_rank == 0) {
        conf_barrier();
    }
    for (i = 0; (i < num) && (conf_rank == 0); i++) {
        CONF_POST(vcq.hdl,
                  utofu_put_piggyback8(vcq.hdl, vcq.peer[1], i, stadds[1], 8,
                                       i % 256, CONF_RMRQ, NULL));
        /* What finds no room may be reported as the peer's failure. */
        CONF_CODE(utofu_poll_mrq(vcq.hdl, 0, &notice), UTOFU_ERR_NOT_FOUND,
                  overflows ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_NOT_FOUND,
                  overflows ? UTOFU_ERR_MRQ_OTHER : UTOFU_ERR_NOT_FOUND);
    }
    if (conf_rank == 0) {
        /* None is left that could reach a VCQ made later under the same ID. */
        CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], stadds[0], stadds[1],
                                     8, 0, CONF_LMRQ, NULL));
        do {
            CONF_CODE(CONF_WAIT_MRQ(&vcq, &notice), UTOFU_SUCCESS,
                      overflows ? UTOFU_ERR_MRQ_PEER : UTOFU_SUCCESS,
                      overflows ? UTOFU_ERR_MRQ_OTHER : UTOFU_SUCCESS);
        } while (notice.notice_type != UTOFU_MRQ_TYPE_LCL_GET);
    }
    if (conf_rank == 0) {
        conf_barrier();
        conf_barrier();
        CONF_OK(utofu_free_vcq(vcq.hdl));
        return;
    }
    /* It may be ended before it looks, so its parent takes part in the barriers. */
    CONF_CHECK(write(ready, "", 1) == 1, "write: %s", strerror(errno));
    CONF_CHECK(read(go, &byte, 1) == 1, "read: %s", strerror(errno));
    for (i = 0; i < num; i++) {
        CONF_OK(CONF_WAIT_MRQ(&vcq, &notice));
        CONF_CHECK(notice.edata == i % 256, "notice %u", i);
    }
}

/* Does an MRQ with this setting keep so many notices? */
static void try_mrq(const char *name, const char *value, unsigned long flags,
                    unsigned num, bool overflows)
{
    char    text[4096] = "";
    size_t  used       = 0;
    ssize_t got;
    int     fds[2], ready[2], go[2], status, tni, cq;
    char   *message, byte, after;
    pid_t   child;

    if (conf_rank == 0) {
        unread_notices(num, flags, overflows, -1, -1);
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
        set(name, value);
        unread_notices(num, flags, overflows, ready[1], go[0]);
        _exit(0);
    }
    close(fds[1]);
    close(ready[1]);
    CONF_CHECK(read(ready[0], &byte, 1) == 1, "the child has not begun");
    conf_barrier(); /* rank 0 begins */
    conf_barrier(); /* and has sent all */
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
        CONF_CHECK(status == 0, "%s=%s, %u notices: status 0x%x: %s", name,
                   value ? value : "(not set)", num, status, text);
        return;
    }
    CONF_CHECK(status != 0, "%s=%s: %u notices were kept", name,
               value ? value : "(not set)", num);
    message = strstr(text, "utofu: asynchronous error: MRQ Overflow on TNI ");
    CONF_CHECK((message != NULL) &&
                       (sscanf(message, "utofu: asynchronous error: MRQ "
                               "Overflow on TNI %d CQ %d%c", &tni, &cq, &after) == 3) && (after == '\n'),
               "%s=%s, %u notices: status 0x%x, message: %s", name,
               value ? value : "(not set)", num, status, text);
}

/* So many entries are kept (but for a few), and far fewer than three times. */
static void check_mrq(const char *name, const char *value, unsigned long flags,
                      unsigned entries)
{
    try_mrq(name, value, flags, entries - 48, false);
    try_mrq(name, value, flags, 3 * entries, true);
}

CONF_TEST("4.3.2.3", env_mrq_spellings, 2,
          "UTOFU_NUM_MRQ_ENTRIES can be a number or 2Ki, 8Ki..., with capitals "
          "or not")
{
    static const char name[] = "UTOFU_NUM_MRQ_ENTRIES";

    check_mrq(name, "2048", 0, 2048);
    check_mrq(name, "2Ki", 0, 2048);
    check_mrq(name, "2ki", 0, 2048);
    check_mrq(name, "2KI", 0, 2048);
    check_mrq(name, "8192", 0, 8192);
    check_mrq(name, "8kI", 0, 8192);
}

CONF_TEST("4.3.2.3", env_mrq_large_spellings, 2,
          "so can the larger numbers of entries")
{
    static const char name[] = "UTOFU_NUM_MRQ_ENTRIES";

    conf_timeout(60);
    check_mrq(name, "32Ki", 0, 32768);
    check_mrq(name, "128kI", 0, 131072);
}

CONF_TEST("4.3.2.3", env_mrq_nearest, 2,
          "other values of UTOFU_NUM_MRQ_ENTRIES count as the nearest of the "
          "six, the larger one of two that are equally near")
{
    static const char name[] = "UTOFU_NUM_MRQ_ENTRIES";

    check_mrq(name, "0", 0, 2048);
    check_mrq(name, "1", 0, 2048);
    check_mrq(name, "-5", 0, 2048);
    check_mrq(name, "2049", 0, 2048);
    check_mrq(name, "5119", 0, 2048);
    check_mrq(name, "5120", 0, 8192);
    check_mrq(name, "8191", 0, 8192);
    check_mrq(name, "20479", 0, 8192);
    check_mrq(name, "4Ki", 0, 2048);
    check_mrq(name, "5ki", 0, 8192);
    check_mrq(name, "19KI", 0, 8192);
    try_mrq(name, "20480", 0, 32000, false);
    check_mrq(name, "20480", 0, 32768);
    try_mrq(name, "81920", 0, 100000, false);
}

CONF_TEST("4.3.2.3", env_mrq_large, 2,
          "UTOFU_NUM_MRQ_ENTRIES is 131072 when it is not set, and can be more")
{
    static const char name[] = "UTOFU_NUM_MRQ_ENTRIES";

    try_mrq(name, "32Ki", 0, 32700, false);
    check_mrq(name, NULL, 0, 131072);
    try_mrq(name, "512ki", 0, 200000, false);
    try_mrq(name, "327680", 0, 200000, false);
}

CONF_TEST("4.3.2.3", env_mrq_largest, 2,
          "UTOFU_NUM_MRQ_ENTRIES can be 2Mi, which is what larger values are")
{
    static const char name[] = "UTOFU_NUM_MRQ_ENTRIES";

    conf_timeout(60);
    try_mrq(name, "2mI", 0, 1100000, false);
    try_mrq(name, "99999999999", 0, 530000, false);
    try_mrq(name, "1310720", 0, 530000, false);
}

CONF_TEST("4.3.2.4", env_mrq_session, 2,
          "UTOFU_NUM_MRQ_ENTRIES_SESSION does the same for session-mode VCQs; "
          "each of the two variables is of no concern to the other kind of VCQ")
{
    static const char name[]  = "UTOFU_NUM_MRQ_ENTRIES";
    static const char sname[] = "UTOFU_NUM_MRQ_ENTRIES_SESSION";

    emulator_only();
    check_mrq(sname, "2Ki", SESSION, 2048);
    check_mrq(sname, "5120", SESSION, 8192);
    check_mrq(sname, "2048", SESSION | UTOFU_VCQ_FLAG_THREAD_SAFE, 2048);
    try_mrq(sname, "2Ki", 0, 20000, false);
    try_mrq(name, "2Ki", SESSION, 20000, false);
    try_mrq(sname, NULL, SESSION, 131000, false);
}

/* -------------------------------------------------------- swapping */

static size_t locked_bytes(void)
{
    char   line[256];
    size_t kib   = 0;
    bool   found = false;
    FILE  *file  = fopen("/proc/self/status", "r");

    CONF_CHECK(file != NULL, "/proc/self/status: %s", strerror(errno));
    while (!found && (fgets(line, sizeof(line), file) != NULL)) {
        found = sscanf(line, "VmLck: %zu kB", &kib) == 1;
    }
    fclose(file);
    CONF_CHECK(found, "no VmLck in /proc/self/status");
    return kib * 1024;
}

CONF_TEST("4.3.2.5", env_swap_protect, 8,
          "with UTOFU_SWAP_PROTECT=1, or anything but 0, registered memory is "
          "locked; by default and with 0 it is not; beyond the limit of the "
          "process it can be registered all the same")
{
    enum { SIZE = 1 << 20 };
    static const char *const values[8] = {NULL, "0", "+00", "1", "2", "1", "yes", "-1"};
    struct rlimit            limit;
    struct conf_vcq          vcq;
    struct conf_mem          mem;
    utofu_stadd_t            stadds[8];
    size_t                   before, after;
    int                      peer = (conf_rank + 1) % conf_procs;

    set("UTOFU_SWAP_PROTECT", values[conf_rank]);
    CONF_CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0, "getrlimit");
    if (conf_rank == 5) { /* nothing can be locked without a privilege */
        limit.rlim_cur = limit.rlim_max = 0;
        CONF_CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
    }
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_ANON, SIZE);
    before = locked_bytes();
    conf_reg_all(&vcq, mem.addr, SIZE, stadds);
    after = locked_bytes();
    if (conf_rank < 3) {
        CONF_CHECK(after == before, "%zu bytes were locked", after - before);
    } else if (limit.rlim_cur >= before + SIZE) {
        CONF_CHECK(after >= before + SIZE, "%zu bytes were locked",
                   after - before);
    }
    CONF_OK(utofu_put(vcq.hdl, vcq.peer[peer], stadds[conf_rank],
                      stadds[peer] + SIZE / 2, SIZE / 2, 1, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[peer], 1, NULL);
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    CONF_CHECK(locked_bytes() <= before, "%zu bytes that are not registered any more are locked",
               locked_bytes() - before);
    conf_vcq_close(&vcq);
    conf_mem_free(&mem);
}
