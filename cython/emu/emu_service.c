/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_service.c - the one helper thread of a process, asleep in poll().
 *
 * It does what cannot be done from outside, and nothing of the data path:
 *  - watches the processes that this one talks to, so that operations towards one
 *    that ended fail at once;
 *  - hands descriptors of this process to peers of the same user where /proc
 *    refuses them (Yama, non-dumpable processes);
 *  - carries out ARMW on private memory, which only a thread of the owner can do
 *    atomically against the owner's own instructions.
 */
#include "emu_job.h"
#include "emu_modes.h"
#include "emu_now.h"
#include "emu_service.h"
#include "emu_vma.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNS EMU_MAX_PROCS
#define CONNS_EACH 16u /* of a process, which wants one: no process takes those of others */

/* -------------------------------------------------------- thread: serving */

/* A descriptor that peers may have: our memory, our segment, or a memfd with
 * registered memory */
static int servable_fd(int32_t fd)
{
    if (fd == EMU_FD_MEMORY) {
        return emu_g.self_mem_fd;
    }
    if (fd == EMU_FD_CONTROL) {
        return emu_g.control_fd;
    }
    if ((fd >= 0) && ((fd == emu_g.seg_fd) || (fd == emu_g.control_fd))) {
        return fd;
    }
    for (unsigned i = 0; i < EMU_MAX_SEGS; i++) { /* without the lock: who asks for it has read what was shown */
        if ((atomic_load(&emu_g.seg[i].gen) & 1) && (emu_g.seg[i].fd == fd)) {
            return fd;
        }
    }
    return -1;
}

static void send_fd(int conn, int fd, char number)
{
    union {
        struct cmsghdr align;
        char           buf[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec  iov = {&number, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        msg.msg_control    = control.buf;
        msg.msg_controllen = sizeof(control.buf);
        struct cmsghdr *c  = CMSG_FIRSTHDR(&msg);
        c->cmsg_level      = SOL_SOCKET;
        c->cmsg_type       = SCM_RIGHTS;
        c->cmsg_len        = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    sendmsg(conn, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Returns false when the connection is over */
static bool serve_connection(int conn)
{
    struct emu_request req;
    ssize_t        n = recv(conn, &req, sizeof(req), MSG_DONTWAIT);

    if (n < 0) {
        return (errno == EAGAIN) || (errno == EINTR);
    }
    if (n != (ssize_t)sizeof(req)) {
        return false; /* closed, or not one of ours */
    }
    switch (req.op) {
    case EMU_REQUEST_KICK:
        emu_rehome_release(); /* it waits for mem_lock, and has nothing on the heap */
        emu_mailboxes_serve();
        emu_rehome_hold();
        emu_overflow_told();
        return true;
    case EMU_REQUEST_FD:
        send_fd(conn, servable_fd(req.fd), (char)req.vcq_id);
        return true;
    case EMU_REQUEST_CARRIES:
        emu_relay_told(conn, req.vcq_id);
        return true;
    default:
        return false;
    }
}

/* ------------------------------------------------------- thread: main loop */

/* What can't be done now is tried again soon, at no great price. */
static void rest(void)
{
    emu_sleep(5000000);
}

/* It is made again when somebody wants it. */
static void connection_lost(struct emu_peer_process *p)
{
    int fd;

    if (pthread_mutex_trylock(&emu_g.lock) != 0) {
        rest(); /* whoever has it may be waiting for an answer over it */
        return;
    }
    fd = atomic_exchange(&p->conn_fd, -1);
    if (fd >= 0) {
        close(fd);
    }
    pthread_mutex_unlock(&emu_g.lock);
}

static bool told_to_stop(void)
{
    uint64_t count;

    return (read(emu_g.wake_fd, &count, sizeof(count)) == (ssize_t)sizeof(count)) && (count >= ((uint64_t)1 << 32));
}

struct watched {
    struct emu_peer_process *proc; /* NULL: a connection of a peer to us */
};

struct conn {
    int   fd;
    pid_t pid; /* whose it is */
};

static unsigned conns_of(const struct conn *all, unsigned num, pid_t pid)
{
    unsigned of = 0;

    for (unsigned i = 0; i < num; i++) {
        of += all[i].pid == pid;
    }
    return of;
}

/* What the thread works with; a forked child has these, and not the thread. */
static struct pollfd  *fds;
static struct watched *what; /* each of them is */
static struct conn    *conns;

static void *service_main(void *arg)
{
    unsigned nconns = 0, cap = 0;
    bool     stop = false;

    (void)arg;
    emu_rehome_hold(); /* before it has anything of the heap */
    conns = calloc(MAX_CONNS, sizeof(*conns));
    while (!stop && (conns != NULL)) {
        unsigned n = 2, peers = 0;
        bool     blind = false; /* some peer can only be asked now and then */

        /* Who holds the lock may be waiting for a peer's service thread, and that
         * peer for ours: never wait here, serve connections meanwhile. */
        bool locked = pthread_mutex_trylock(&emu_g.lock) == 0;
        if (locked) {
            emu_peer_processes_clean();
            emu_overflow_look();
        }
        for (struct emu_peer_process *p = locked ? emu_g.procs : NULL; p != NULL; p = p->next) {
            peers++;
        }
        if (cap < 2 + nconns + 2 * peers) {
            cap                 = 2 * (2 + nconns + 2 * peers);
            struct pollfd  *f   = realloc(fds, cap * sizeof(*fds));
            struct watched *w   = realloc(what, cap * sizeof(*what));
            fds                 = (f != NULL) ? f : fds;
            what                = (w != NULL) ? w : what;
            if ((f == NULL) || (w == NULL)) {
                if (locked) {
                    pthread_mutex_unlock(&emu_g.lock);
                }
                break;
            }
        }
        fds[0] = (struct pollfd){emu_g.wake_fd, POLLIN, 0};
        fds[1] = (struct pollfd){emu_g.listen_fd, POLLIN, 0};
        for (unsigned i = 0; i < nconns; i++, n++) {
            fds[n]  = (struct pollfd){conns[i].fd, POLLIN, 0};
            what[n] = (struct watched){NULL};
        }
        for (struct emu_peer_process *p = locked ? emu_g.procs : NULL; p != NULL; p = p->next) {
            if (p->self || atomic_load(&p->dead)) {
                continue;
            }
            blind   = blind || (p->pidfd < 0);
            fds[n]  = (struct pollfd){p->pidfd, POLLIN, 0};
            what[n] = (struct watched){p};
            n++;
            if (p->conn_fd >= 0) {
                fds[n]  = (struct pollfd){p->conn_fd, POLLRDHUP, 0}; /* also at exec */
                what[n] = (struct watched){p};
                n++;
            }
        }
        if (locked) {
            pthread_mutex_unlock(&emu_g.lock);
        }

        /* What the kernel writes at its end may be lost to a move: then it is told again. */
        emu_rehome_release();
        int ready = poll(fds, n, !locked ? 5 : emu_last_thread_watched() ? EMU_LAST_THREAD_MS : blind ? 250 : -1);
        emu_last_thread_look();
        emu_rehome_hold();
        if (!emu_fds_ours()) {
            emu_rehome_release();
            for (;;) {
                pause(); /* nothing to do any more, but threads are counted (emu_rehome_may.c) */
            }
        }
        if (ready < 0) { /* more descriptors than a limit that was lowered since, say: it may be raised again */
            stop = told_to_stop();
            rest();
            continue;
        }
        emu_relay_reap();
        if (fds[0].revents) {
            stop = told_to_stop();
        }
        for (unsigned i = 2; i < n; i++) {
            struct emu_peer_process *p = what[i].proc;

            if ((p != NULL) && ((fds[i].revents & (POLLIN | POLLRDHUP | POLLHUP | POLLERR)) || (p->pidfd < 0))) {
                /* its helper thread may have closed our connection only, for want of memory, say; where that
                 * can't be seen, it may have executed another program */
                if (((fds[i].revents != 0) && (fds[i].fd == p->pidfd)) || !emu_peer_process_alive(p) ||
                    ((fds[i].revents != 0) && !emu_slot_seen(&emu_g.control->slot[p->slot]))) {
                    emu_peer_process_lost(p);
                } else if (fds[i].revents != 0) {
                    connection_lost(p);
                }
            }
        }
        for (unsigned i = nconns; i-- > 0;) {
            if (fds[2 + i].revents && !serve_connection(conns[i].fd)) {
                emu_relay_lost(conns[i].fd);
                close(conns[i].fd);
                conns[i] = conns[--nconns];
            }
        }
        if (fds[1].revents) {
            int   fd = emu_fd_keep(accept4(emu_g.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
            pid_t pid;
            int   who = (fd >= 0) ? emu_peer_credentials(fd, &pid) : -1;
            if (fd >= 0) {
                /* -3: of another PID namespace; it will be refused for that, when it sees the job */
                if ((nconns < MAX_CONNS) && ((who == 0) || (who == -3)) &&
                    (conns_of(conns, nconns, pid) < CONNS_EACH)) {
                    conns[nconns++] = (struct conn){fd, pid};
                } else {
                    close(fd);
                }
            } else {
                rest(); /* there is none free: it goes on asking */
            }
        }
    }
    emu_g.service_running = false; /* for want of memory, perhaps: it is counted no more (emu_rehome_may.c) */
    emu_rehome_release();
    for (unsigned i = 0; i < nconns; i++) {
        close(conns[i].fd);
    }
    free(conns);
    free(fds);
    free(what);
    conns = NULL;
    fds   = NULL;
    what  = NULL;
    return NULL;
}

int emu_service_start(void)
{
    sigset_t all, old;
    int      ret;

    emu_g.wake_fd     = emu_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    emu_g.self_mem_fd = emu_fd_keep(emu_open_own("mem", O_RDWR));
    if ((emu_g.self_mem_fd < 0) && emu_own_first_thread_ended()) {
        emu_g.self_mem_fd = emu_fd_keep(emu_open_own("mem", O_RDWR));
    }
    /* A process that is not dumpable (it changed its user) may not open its own
     * memory; peers then can't reach its private memory, but the rest works. */
    if (emu_g.wake_fd < 0) {
        emu_message("can't start the service thread: %s", strerror(errno));
        return -1;
    }
    /* the program's signals are for the program's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    ret = emu_thread_start(&emu_g.service, service_main, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (ret) {
        emu_message("can't start the service thread: %s", strerror(ret));
        return -1;
    }
    emu_g.service_running = true;
    return 0;
}

void emu_service_wake(void)
{
    uint64_t one = 1;

    if ((emu_g.wake_fd >= 0) && emu_fds_ours()) {
        (void)!write(emu_g.wake_fd, &one, sizeof(one));
    }
}

void emu_service_forget(void)
{
    emu_left(fds);
    emu_left(what);
    emu_left(conns);
    fds                   = NULL;
    what                  = NULL;
    conns                 = NULL;
    emu_g.service_running = false;
}

void emu_service_stop(void)
{
    uint64_t stop = (uint64_t)1 << 32;

    /* else it is asleep, and nothing can wake it */
    if (emu_g.service_running && emu_fds_ours()) {
        (void)!write(emu_g.wake_fd, &stop, sizeof(stop));
        if (!pthread_equal(pthread_self(), emu_g.service)) { /* it may be the one that calls exit */
            pthread_join(emu_g.service, NULL);
        }
        emu_g.service_running = false;
        emu_relay_stop();
    }
}
