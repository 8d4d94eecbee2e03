/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_boot.c - processes that are forked, or meet at a rendezvous file; perf_mpi.c
 * has its own way.
 *
 * Without --rendezvous rank 0 forks the others and has a socket to each.  With
 * --rendezvous=FILE a launcher (mpiexec, a job system) starts every process; rank
 * and number are in its environment.  Rank 0 listens, writes "port key name address ..."
 * to FILE in a file system that all share, and the others connect to what answers.
 * Only this user can read FILE; who does not know the key of this run is hung up on.
 */
#include "perf.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY_LENGTH 32 /* hexadecimal digits */

struct hello { /* a process to rank 0, first of all */
    char     key[KEY_LENGTH];
    uint64_t rank;
};

static int   fds[PERF_MAX_PROCS]; /* rank 0: to each; others: [0] to rank 0 */
static pid_t children[PERF_MAX_PROCS];
static bool  is_there[PERF_MAX_PROCS]; /* rank 0, in step: has come */
static int   num_there;

static void io_all(int fd, void *data, size_t length, bool is_write)
{
    ssize_t ret;

    for (size_t done = 0; done < length; done += (size_t)ret) {
        ret = is_write ? send(fd, (char*)data + done, length - done, MSG_NOSIGNAL) :
                         recv(fd, (char*)data + done, length - done, 0);
        if ((ret < 0) && (errno == EINTR)) {
            ret = 0;
            continue;
        }
        PERF_CHECK(ret > 0, "the other process is gone: %s",
                   ret ? strerror(errno) : "end of file");
    }
}

/* A child that ends with an error takes the run with it: the others may be polling
 * memory that it was to write. */
static void on_child(int number)
{
    static const char text[] = "a process of the run was killed\n";
    int               saved = errno, status;
    pid_t             pid;

    (void)number;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < PERF_MAX_PROCS; ++i) {
            if (children[i] == pid) {
                children[i] = 0;
            }
        }
        if (!WIFEXITED(status)) {
            if (write(2, text, sizeof(text) - 1) < 0) { /* nothing can be done */
            }
            _exit(1);
        } else if (WEXITSTATUS(status) != 0) {
            _exit(WEXITSTATUS(status)); /* it said why */
        }
    }
    errno = saved;
}

static void fork_all(struct perf_proc *proc)
{
    pid_t parent = getpid();
    int   pair[2], i;

    signal(SIGCHLD, on_child);
    for (i = 1; i < proc->size; ++i) {
        PERF_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0,
                   "socketpair: %s", strerror(errno));
        children[i] = fork();
        PERF_CHECK(children[i] >= 0, "fork: %s", strerror(errno));
        if (children[i] == 0) {
            signal(SIGCHLD, SIG_DFL);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            PERF_CHECK(getppid() == parent, "rank 0 is gone");
            memset(children, 0, sizeof(children));
            for (int j = 1; j < i; ++j) {
                close(fds[j]);
            }
            close(pair[0]);
            fds[0]     = pair[1];
            proc->rank = i;
            return;
        }
        close(pair[1]);
        fds[i] = pair[0];
    }
}

static int launcher_number(const char *const *names, const char *what)
{
    for (; *names != NULL; ++names) {
        if (getenv(*names) != NULL) {
            return atoi(getenv(*names));
        }
    }
    PERF_FAIL("--rendezvous: no launcher told the %s in the environment", what);
}

static int launcher_rank(void)
{
    static const char *const names[] = {"PERF_RANK", "PMIX_RANK", "PMI_RANK",
                                        "OMPI_COMM_WORLD_RANK", NULL};

    return launcher_number(names, "rank");
}

/* The host by its name, and by its addresses where the name leads nowhere. */
static void write_addresses(FILE *out, int port, const char *key)
{
    struct ifaddrs *all, *one;
    char           text[256];

    PERF_CHECK((gethostname(text, sizeof(text)) == 0) && (getifaddrs(&all) == 0),
               "rendezvous: %s", strerror(errno));
    text[sizeof(text) - 1] = '\0';
    fprintf(out, "%d %.*s %s", port, KEY_LENGTH, key, text);
    for (one = all; one != NULL; one = one->ifa_next) {
        if ((one->ifa_addr != NULL) && (one->ifa_addr->sa_family == AF_INET) &&
            !(one->ifa_flags & IFF_LOOPBACK) &&
            (getnameinfo(one->ifa_addr, sizeof(struct sockaddr_in), text,
                         sizeof(text), NULL, 0, NI_NUMERICHOST) == 0)) {
            fprintf(out, " %s", text);
        }
    }
    fprintf(out, "\n");
    freeifaddrs(all);
}

static void make_key(char *key)
{
    uint8_t bytes[KEY_LENGTH / 2];
    char    digits[3];

    PERF_CHECK(getrandom(bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes),
               "getrandom: %s", strerror(errno));
    for (size_t i = 0; i < sizeof(bytes); ++i) {
        snprintf(digits, sizeof(digits), "%02x", bytes[i]);
        memcpy(key + 2 * i, digits, 2);
    }
}

/* One of the run has come: true.  Anybody can connect to a port: a stranger is not
 * waited for, nor does he end the run. */
static bool is_of_the_run(int peer, const char *key, struct hello *hello)
{
    struct timeval seconds = {.tv_sec = 5}, forever = {.tv_sec = 0};
    uint8_t        differ  = 0;

    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &seconds, sizeof(seconds));
    if (recv(peer, hello, sizeof(*hello), MSG_WAITALL) != (ssize_t)sizeof(*hello)) {
        return false;
    }
    for (size_t i = 0; i < KEY_LENGTH; ++i) {
        differ |= (uint8_t)(hello->key[i] ^ key[i]);
    }
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
    return differ == 0;
}

static void accept_all(struct perf_proc *proc, const char *file)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t          length  = sizeof(address);
    char               name[4096], key[KEY_LENGTH];
    struct hello       hello;
    int                fd, peer, one = 1, missing = proc->size - 1;
    FILE               *out;

    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PERF_CHECK((fd >= 0) && (bind(fd, (void*)&address, sizeof(address)) == 0) &&
               (listen(fd, PERF_MAX_PROCS) == 0) &&
               (getsockname(fd, (void*)&address, &length) == 0),
               "rendezvous: %s", strerror(errno));
    snprintf(name, sizeof(name), "%s.new", file);
    unlink(name);
    peer = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    out  = (peer >= 0) ? fdopen(peer, "w") : NULL;
    PERF_CHECK(out != NULL, "%s: %s", name, strerror(errno));
    make_key(key);
    write_addresses(out, ntohs(address.sin_port), key);
    PERF_CHECK((fclose(out) == 0) && (rename(name, file) == 0), "%s: %s", file,
               strerror(errno));
    while (missing > 0) {
        peer = accept(fd, NULL, NULL);
        PERF_CHECK(peer >= 0, "accept: %s", strerror(errno));
        if (!is_of_the_run(peer, key, &hello)) {
            close(peer);
            continue;
        }
        setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        PERF_CHECK((hello.rank > 0) && (hello.rank < (uint64_t)proc->size) &&
                   !fds[hello.rank],
                   "rendezvous: rank %lu came twice, or is not one of %d",
                   (unsigned long)hello.rank, proc->size);
        fds[hello.rank] = peer;
        --missing;
    }
    close(fd);
    unlink(file);
}

/* A connected socket, or -1; an address may lead nowhere, so not for long. */
static int try_connect(const char *host, const char *port)
{
    struct addrinfo hints   = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct timeval  seconds = {.tv_sec = 5}, forever = {.tv_sec = 0};
    struct addrinfo *found;
    int             fd, ret;

    if (getaddrinfo(host, port, &hints, &found) != 0) {
        return -1;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PERF_CHECK(fd >= 0, "socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &seconds, sizeof(seconds));
    ret = connect(fd, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (ret != 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof(forever));
    return fd;
}

static void connect_to(struct perf_proc *proc, const char *file)
{
    struct hello hello = {.rank = (uint64_t)proc->rank};
    char         line[4096], *port, *key, *host, *rest;
    int          one = 1;
    FILE         *in;

    while ((in = fopen(file, "r")) == NULL) {
        usleep(10000); /* the alarm ends it */
    }
    PERF_CHECK(fgets(line, sizeof(line), in) != NULL, "%s is empty", file);
    fclose(in);
    port = strtok_r(line, " \n", &rest);
    key  = strtok_r(NULL, " \n", &rest);
    PERF_CHECK((key != NULL) && (strlen(key) == KEY_LENGTH), "%s has no key", file);
    memcpy(hello.key, key, KEY_LENGTH);
    fds[0] = -1;
    while ((port != NULL) && (fds[0] < 0) &&
           ((host = strtok_r(NULL, " \n", &rest)) != NULL)) {
        fds[0] = try_connect(host, port);
    }
    PERF_CHECK(fds[0] >= 0, "rendezvous: rank 0 answers at no address of %s", file);
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    io_all(fds[0], &hello, sizeof(hello), true);
}

static void sock_start(struct perf_proc *proc)
{
    proc->size = proc->opt->procs;
    if (proc->opt->rendezvous == NULL) {
        proc->shared = mmap(NULL, PERF_PAGE, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        PERF_CHECK(proc->shared != MAP_FAILED, "mmap: %s", strerror(errno));
        fork_all(proc);
        return;
    }
    proc->rank = launcher_rank();
    PERF_CHECK((proc->rank >= 0) && (proc->rank < proc->size),
               "the launcher's rank is %d, the test has %d processes", proc->rank,
               proc->size);
    if (proc->rank == 0) {
        accept_all(proc, proc->opt->rendezvous);
    } else {
        connect_to(proc, proc->opt->rendezvous);
    }
}

static void sock_allgather(struct perf_proc *proc, const void *mine, void *all,
                           size_t length)
{
    if (proc->rank == 0) {
        memcpy(all, mine, length);
        for (int i = 1; i < proc->size; ++i) {
            io_all(fds[i], (char*)all + i * length, length, false);
        }
        for (int i = 1; i < proc->size; ++i) {
            io_all(fds[i], all, length * (size_t)proc->size, true);
        }
    } else {
        io_all(fds[0], (void*)mine, length, true);
        io_all(fds[0], all, length * (size_t)proc->size, false);
    }
}

static bool readable(int fd, bool wait)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return (poll(&poll_fd, 1, wait ? -1 : 0) > 0);
}

static bool sock_step(struct perf_proc *proc, uint64_t *value, bool is_new, bool wait)
{
    char byte = 'b';
    int  i;

    if (proc->rank > 0) {
        if (is_new) {
            io_all(fds[0], &byte, 1, true);
        }
        if (!readable(fds[0], wait)) {
            return false;
        }
        io_all(fds[0], value, sizeof(*value), false);
        return true;
    }
    if (is_new) {
        memset(is_there, 0, sizeof(is_there));
        num_there = 1;
    }
    for (i = 1; i < proc->size; ++i) {
        if (!is_there[i] && readable(fds[i], wait)) {
            io_all(fds[i], &byte, 1, false);
            is_there[i] = true;
            ++num_there;
        }
    }
    if (num_there < proc->size) {
        return false;
    }
    for (i = 1; i < proc->size; ++i) {
        io_all(fds[i], value, sizeof(*value), true);
    }
    return true;
}

static int sock_stop(struct perf_proc *proc)
{
    int i, status, code = 0;

    if (proc->rank > 0) {
        return 0;
    }
    signal(SIGCHLD, SIG_DFL); /* those that end now are waited for here */
    for (i = 1; i < proc->size; ++i) {
        if ((children[i] > 0) && (waitpid(children[i], &status, 0) > 0) &&
            !(WIFEXITED(status) && (WEXITSTATUS(status) == 0))) {
            code = 1;
        }
    }
    return code;
}

const struct perf_boot perf_boot = {
    .start     = sock_start,
    .allgather = sock_allgather,
    .step      = sock_step,
    .stop      = sock_stop
};
