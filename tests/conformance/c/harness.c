/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * harness.c - starts the ranks of one test, lets them exchange data, stops and
 * kills them on request, and turns their ends into one exit code.
 */
#include "harness.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_OK      0
#define EXIT_FAILED  1
#define EXIT_SKIPPED 77

/* Requests of a rank to the supervisor */
enum { REQ_EXCHANGE, REQ_STOP, REQ_CONTINUE, REQ_KILL, REQ_TIMEOUT };

struct request {
    uint32_t op;
    uint32_t arg;
    uint32_t size; /* bytes that follow */
    uint32_t pad;
};

struct rank {
    pid_t         pid;   /* 0: ended and waited for */
    int           fd;    /* supervisor's end */
    bool          waits; /* in an exchange */
    struct request req;
    unsigned char *data;
};

int conf_rank  = -1;
int conf_procs = 0;

unsigned conf_patience = 1;

static struct conf_test *tests     = NULL;
static struct conf_test *test_now  = NULL;
static int               rank_fd   = -1; /* this rank's end */
static const char       *library   = NULL;

static struct {
    const char *volatile file;
    const char *volatile what;
    volatile int         line;
    volatile bool        refusal; /* the call is to be refused */
} place;

void conf_register(struct conf_test *test)
{
    test->next = tests;
    tests      = test;
}

double conf_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec * 1e-9;
}

void conf_pin(void)
{
    cpu_set_t allowed, own;
    int       cpu, n = 0;

    if ((sched_getaffinity(0, sizeof(allowed), &allowed) != 0) ||
        (CPU_COUNT(&allowed) < 2)) {
        return;
    }
    n = conf_rank % CPU_COUNT(&allowed);
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && (n-- == 0)) {
            CPU_ZERO(&own);
            CPU_SET(cpu, &own);
            /* Where it is refused the test is weaker, not wrong. */
            (void)sched_setaffinity(0, sizeof(own), &own);
            return;
        }
    }
}

void conf_relax(unsigned *spins_p)
{
    /* Ranks may outnumber the CPUs: a waiter must let the other one run. */
    if ((++*spins_p % 256) == 0) {
        sched_yield();
    }
}

bool conf_is_emulator(void)
{
    const char *backend = getenv("CONF_BACKEND");

    return (backend == NULL) || (strcmp(backend, "machine") != 0);
}

const char *conf_symbol_file(const char *symbol)
{
    static char path[PATH_MAX];
    void       *address = dlsym(RTLD_DEFAULT, symbol);
    Dl_info     info;

    if ((address == NULL) || (dladdr(address, &info) == 0) ||
        (realpath(info.dli_fname, path) == NULL)) {
        return NULL;
    }
    return path;
}

/* -------------------------------------------------------------- verdicts */

void conf_at(const char *file, int line, const char *what)
{
    place.file    = file;
    place.what    = what;
    place.line    = line;
    place.refusal = false;
}

static bool are_refusals(const int *codes, size_t num_codes)
{
    for (size_t i = 0; i < num_codes; i++) {
        if ((codes[i] > UTOFU_ERR_INVALID_ARG) || (codes[i] < UTOFU_ERR_INVALID_DATA)) {
            return false;
        }
    }
    return true;
}

void conf_expects(const int *codes, size_t num_codes)
{
    place.refusal = !conf_is_emulator() && are_refusals(codes, num_codes);
}

static void print_verdict(const char *file, int line, const char *fmt,
                          va_list args)
{
    char message[2048];
    int  length;

    /* One write, so that lines of several ranks do not mix. */
    length = snprintf(message, sizeof(message), "%s:%d: rank %d: ", file, line,
                      conf_rank);
    length += vsnprintf(message + length, sizeof(message) - length - 1, fmt,
                        args);
    if (length > (int)sizeof(message) - 2) {
        length = sizeof(message) - 2;
    }
    message[length++] = '\n';
    if (write(STDERR_FILENO, message, length) < 0) {
        _exit(EXIT_FAILED);
    }
}

void conf_fail_at(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_verdict(file, line, fmt, args);
    va_end(args);
    _exit(EXIT_FAILED);
}

void conf_skip(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_verdict(test_now->name, 0, fmt, args);
    va_end(args);
    _exit(EXIT_SKIPPED);
}

int conf_check_code(const char *file, int line, const char *call, int rc,
                    const int *codes, size_t num_codes)
{
    char   expected[512] = "";
    size_t used          = 0;
    size_t i;

    for (i = 0; i < num_codes; i++) {
        if (rc == codes[i]) {
            return rc;
        }
    }
    if (!conf_is_emulator() && are_refusals(codes, num_codes)) {
        conf_skip("%s returned %s (%d): the library does not look at it", call,
                  conf_code_name(rc), rc);
    }
    for (i = 0; (i < num_codes) && (used < sizeof(expected)); i++) {
        used += snprintf(expected + used, sizeof(expected) - used, "%s%s",
                         (i == 0) ? "" : " or ", conf_code_name(codes[i]));
    }
    conf_fail_at(file, line, "%s returned %s (%d), expected %s", call,
                 conf_code_name(rc), rc, expected);
}

static void rank_timed_out(int signo)
{
    (void)signo;
    /* The process ends here, so that stdio's locks do not matter much: the
     * line is made with snprintf and written by write. */
    conf_fail_at((place.file == NULL) ? test_now->name : place.file,
                 place.line, "timed out; last step: %s",
                 (place.what == NULL) ? "none" : place.what);
}

static void rank_crashed(int signo)
{
    static const char text[] = "crashed; last step: ";
    const char       *what   = (place.what == NULL) ? "none" : place.what;

    if ((write(STDERR_FILENO, text, sizeof(text) - 1) < 0) ||
        (write(STDERR_FILENO, what, strlen(what)) < 0) ||
        (write(STDERR_FILENO, "\n", 1) < 0)) {
        _exit(EXIT_FAILED);
    }
    if (place.refusal) { /* it did not look at what it was given */
        _exit(EXIT_SKIPPED);
    }
    signal(signo, SIG_DFL);
    raise(signo);
}

/* ------------------------------------------------------- a rank's requests */

static void request(uint32_t op, uint32_t arg, const void *data, size_t size,
                    void *reply, size_t reply_size)
{
    unsigned char  buffer[sizeof(struct request) + CONF_MAX_MESSAGE];
    struct request req = {op, arg, (uint32_t)size, 0};
    ssize_t        got;
    char           ack;

    CONF_CHECK(size <= CONF_MAX_MESSAGE, "exchange of %zu bytes", size);
    memcpy(buffer, &req, sizeof(req));
    if (size > 0) {
        memcpy(buffer + sizeof(req), data, size);
    }
    do {
        got = send(rank_fd, buffer, sizeof(req) + size, MSG_NOSIGNAL);
    } while ((got < 0) && (errno == EINTR));
    CONF_CHECK(got == (ssize_t)(sizeof(req) + size),
               "send to the supervisor: %s", strerror(errno));
    if (reply_size == 0) {
        reply      = &ack;
        reply_size = 1;
    }
    do {
        got = recv(rank_fd, reply, reply_size, 0);
    } while ((got < 0) && (errno == EINTR));
    CONF_CHECK(got == (ssize_t)reply_size,
               "receive from the supervisor: got %zd bytes of %zu (%s)", got,
               reply_size, (got < 0) ? strerror(errno) : "closed");
}

void conf_exchange(const void *mine, size_t size, void *all)
{
    conf_at(__FILE__, __LINE__, "exchange between ranks");
    request(REQ_EXCHANGE, 0, mine, size, all, size * conf_procs);
}

void conf_barrier(void)
{
    conf_at(__FILE__, __LINE__, "barrier between ranks");
    request(REQ_EXCHANGE, 0, NULL, 0, NULL, 0);
}

void conf_stop(int rank)
{
    request(REQ_STOP, rank, NULL, 0, NULL, 0);
}

void conf_continue(int rank)
{
    request(REQ_CONTINUE, rank, NULL, 0, NULL, 0);
}

void conf_kill(int rank)
{
    request(REQ_KILL, rank, NULL, 0, NULL, 0);
}

void conf_timeout(unsigned seconds)
{
    alarm(seconds * conf_patience);
    request(REQ_TIMEOUT, seconds * conf_patience, NULL, 0, NULL, 0);
}

static _Noreturn void run_rank(int rank, int fd)
{
    conf_rank = rank;
    rank_fd   = fd;
    /* A rank must not outlive the supervisor. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, rank_timed_out);
    signal(SIGSEGV, rank_crashed);
    signal(SIGBUS, rank_crashed);
    alarm(CONF_TIMEOUT);
    test_now->run();
    /* Nobody leaves while a peer may still look at its memory. */
    conf_barrier();
    conf_at(__FILE__, __LINE__, "exit of the process");
    exit(EXIT_OK);
}

/* ------------------------------------------------------------- supervisor */

static void kill_all(struct rank *ranks)
{
    int i;

    for (i = 0; i < conf_procs; i++) {
        if (ranks[i].pid > 0) {
            kill(ranks[i].pid, SIGKILL);
        }
    }
    for (i = 0; i < conf_procs; i++) {
        if (ranks[i].pid > 0) {
            waitpid(ranks[i].pid, NULL, 0);
            ranks[i].pid = 0;
        }
    }
}

static void reply_exchange(struct rank *ranks)
{
    static unsigned char all[CONF_MAX_PROCS * CONF_MAX_MESSAGE];
    size_t               size = 0;
    char                 ack  = 0;
    int                  i;

    for (i = 0; i < conf_procs; i++) {
        if (ranks[i].pid == 0) {
            continue;
        }
        if (!ranks[i].waits) {
            return;
        }
        size = ranks[i].req.size;
    }
    memset(all, 0, size * conf_procs);
    for (i = 0; i < conf_procs; i++) {
        if ((ranks[i].pid != 0) && (ranks[i].req.size == size)) {
            memcpy(all + i * size, ranks[i].data, size);
        }
    }
    for (i = 0; i < conf_procs; i++) {
        if (!ranks[i].waits) {
            continue;
        }
        ranks[i].waits = false;
        /* A rank that asked for another size finds its reply too short. */
        if (size > 0) {
            (void)!send(ranks[i].fd, all, size * conf_procs, MSG_NOSIGNAL);
        } else {
            (void)!send(ranks[i].fd, &ack, 1, MSG_NOSIGNAL);
        }
    }
}

/* Returns the verdict of a rank that ended by itself. */
static int wait_rank(struct rank *ranks, int i)
{
    int status;

    waitpid(ranks[i].pid, &status, 0);
    ranks[i].pid = 0;
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "rank %d ended by signal %d (%s)\n", i,
                WTERMSIG(status), strsignal(WTERMSIG(status)));
        return EXIT_FAILED;
    }
    return WEXITSTATUS(status);
}

/* Returns 0, or the verdict that ends the test. */
static int serve(struct rank *ranks, int i, double *deadline_p)
{
    static unsigned char buffer[sizeof(struct request) + CONF_MAX_MESSAGE];
    struct request       req;
    struct rank         *target;
    int                  status;
    ssize_t              got;

    got = recv(ranks[i].fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if ((got < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
        return EXIT_OK;
    }
    if (got < (ssize_t)sizeof(req)) {
        status = wait_rank(ranks, i);
        reply_exchange(ranks);
        return status;
    }
    memcpy(&req, buffer, sizeof(req));
    target = &ranks[req.arg % conf_procs];
    switch (req.op) {
    case REQ_EXCHANGE:
        ranks[i].req   = req;
        ranks[i].waits = true;
        memcpy(ranks[i].data, buffer + sizeof(req), req.size);
        reply_exchange(ranks);
        return EXIT_OK;
    case REQ_STOP:
        kill(target->pid, SIGSTOP);
        waitpid(target->pid, &status, WUNTRACED);
        if (!WIFSTOPPED(status)) {
            fprintf(stderr, "rank %d ended instead of stopping\n",
                    (int)(target - ranks));
            target->pid = 0;
            return EXIT_FAILED;
        }
        break;
    case REQ_CONTINUE:
        kill(target->pid, SIGCONT);
        break;
    case REQ_KILL:
        kill(target->pid, SIGKILL);
        waitpid(target->pid, &status, 0);
        target->pid   = 0;
        target->waits = false;
        break;
    case REQ_TIMEOUT:
        *deadline_p = conf_now() + req.arg + 5;
        break;
    }
    (void)!send(ranks[i].fd, &req, 1, MSG_NOSIGNAL);
    if (req.op == REQ_KILL) {
        reply_exchange(ranks);
    }
    return EXIT_OK;
}

static int supervise(struct rank *ranks)
{
    double        deadline = conf_now() + CONF_TIMEOUT + 5;
    struct pollfd fds[CONF_MAX_PROCS];
    int           index[CONF_MAX_PROCS];
    int           i, n, status;

    for (;;) {
        n = 0;
        for (i = 0; i < conf_procs; i++) {
            if (ranks[i].pid != 0) {
                fds[n].fd     = ranks[i].fd;
                fds[n].events = POLLIN;
                index[n++]    = i;
            }
        }
        if (n == 0) {
            return EXIT_OK;
        }
        if (conf_now() > deadline) {
            fprintf(stderr, "%s: timed out, %d ranks left\n", test_now->name,
                    n);
            return EXIT_FAILED;
        }
        if (poll(fds, n, 200) <= 0) {
            continue;
        }
        for (i = 0; i < n; i++) {
            if ((fds[i].revents != 0) && (ranks[index[i]].pid != 0)) {
                status = serve(ranks, index[i], &deadline);
                if (status != EXIT_OK) {
                    return status;
                }
            }
        }
    }
}

static int run_test(void)
{
    struct rank ranks[CONF_MAX_PROCS];
    int         fds[CONF_MAX_PROCS][2];
    int         i, j, status;

    conf_procs = test_now->procs;
    memset(ranks, 0, sizeof(ranks));
    for (i = 0; i < conf_procs; i++) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds[i]) !=
            0) {
            perror("socketpair");
            return EXIT_FAILED;
        }
        ranks[i].fd   = fds[i][0];
        ranks[i].data = malloc(CONF_MAX_MESSAGE);
    }
    fflush(NULL);
    for (i = 0; i < conf_procs; i++) {
        ranks[i].pid = fork();
        if (ranks[i].pid < 0) {
            perror("fork");
            ranks[i].pid = 0;
            kill_all(ranks);
            return EXIT_FAILED;
        }
        if (ranks[i].pid == 0) {
            for (j = 0; j < conf_procs; j++) {
                close(fds[j][0]);
                if (j != i) {
                    close(fds[j][1]);
                }
            }
            run_rank(i, fds[i][1]);
        }
    }
    for (i = 0; i < conf_procs; i++) {
        close(fds[i][1]);
    }
    status = supervise(ranks);
    if (status == EXIT_FAILED) {
        /* Others may be about to say what they see of the same fault. */
        usleep(50000);
    }
    kill_all(ranks);
    for (i = 0; i < conf_procs; i++) {
        close(ranks[i].fd);
        free(ranks[i].data);
    }
    return status;
}

/* ------------------------------------------------------------ command line */

static void list_tests(void)
{
    struct conf_test *test;

    for (test = tests; test != NULL; test = test->next) {
        printf("%s\t%s\t%d\t%s\n", test->section, test->name, test->procs,
               test->statement);
    }
}

/* The library named on the command line is the one that is loaded. */
static int check_library(const char *expected)
{
    char path[PATH_MAX];

    library = conf_symbol_file("utofu_create_vcq");
    if (library == NULL) {
        fprintf(stderr, "utofu_create_vcq is not defined by any library\n");
        return EXIT_FAILED;
    }
    printf("library %s\n", library);
    if ((expected != NULL) && ((realpath(expected, path) == NULL) ||
                               (strcmp(path, library) != 0))) {
        fprintf(stderr, "the library under test is %s, but %s was loaded\n",
                expected, library);
        return EXIT_FAILED;
    }
    return EXIT_OK;
}

int main(int argc, char **argv)
{
    const char *patience = getenv("CONF_PATIENCE");
    int         status;

    if ((patience != NULL) && (atoi(patience) > 0)) {
        conf_patience = (unsigned)atoi(patience);
    }
    if ((argc == 2) && (strcmp(argv[1], "--list") == 0)) {
        list_tests();
        return EXIT_OK;
    }
    if ((argc != 2) && (argc != 3)) {
        fprintf(stderr,
                "usage: %s --list\n       %s NAME [LIBRARY-FILE]\n", argv[0],
                argv[0]);
        return 2;
    }
    for (test_now = tests; test_now != NULL; test_now = test_now->next) {
        if (strcmp(test_now->name, argv[1]) == 0) {
            break;
        }
    }
    if (test_now == NULL) {
        fprintf(stderr, "%s: no test has this name\n", argv[1]);
        return 2;
    }
    status = check_library((argc == 3) ? argv[2] : NULL);
    if (status == EXIT_OK) {
        status = run_test();
    }
    printf("%s %s\n", test_now->name,
           (status == EXIT_OK)      ? "ok" :
           (status == EXIT_SKIPPED) ? "skipped" :
                                      "failed");
    return (status == EXIT_OK) || (status == EXIT_SKIPPED) ? status :
                                                             EXIT_FAILED;
}
