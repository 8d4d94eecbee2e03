/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_ask.c - what this process asks another one's helper thread for (emu_service.c): is it
 * there, its descriptors where /proc refuses them, a look at its mailboxes.
 */
#include "emu_job.h"
#include "emu_now.h"
#include "emu_service.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define FD_TIMEOUT_MS 2000
#define ANSWERS_MAX   256 /* that one may have to throw away: their numbers come again then */
#define ASK_EVERY     16 /* calls of emu_peer_is_there; between them the thread tells */

static void wait_not_for_ever(int conn)
{
    struct timeval tv = {FD_TIMEOUT_MS / 1000, FD_TIMEOUT_MS % 1000 * 1000};

    setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(conn, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    fcntl(conn, F_SETFL, 0); /* it may not have waited until it was connected */
}

int emu_service_connection(struct emu_peer_process *proc)
{
    struct sockaddr_un sa;
    unsigned           len;
    pid_t              pid;
    int                fd;

    if (proc->conn_fd >= 0) {
        return proc->conn_fd;
    }
    fd = emu_fd_keep(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        return -1;
    }
    wait_not_for_ever(fd);
    if (emu_service_name(proc->slot, &sa, &len) || connect(fd, (struct sockaddr *)&sa, len) ||
        emu_peer_credentials(fd, &pid) || (pid != proc->pid)) {
        close(fd);
        return -1;
    }
    proc->conn_fd = fd;
    return fd;
}

bool emu_peer_is_there(struct emu_peer_process *proc)
{
    struct timespec at_once = {0, 0}; /* the call may write what is left of it */
    struct pollfd   hears;

    if (proc->conn_fd < 0) {
        emu_lock(&emu_g.lock);
        emu_service_connection(proc);
        emu_unlock(&emu_g.lock);
        if (proc->conn_fd < 0) {
            return false;
        }
        emu_service_wake(); /* it watches the connection from now on */
    } else if (++proc->calls % ASK_EVERY) {
        return !atomic_load_explicit(&proc->dead, memory_order_acquire);
    }
    /* the kernel closes the other end at exit and at exec, before anything else
     * can have the pid or the address space */
    hears = (struct pollfd){proc->conn_fd, POLLRDHUP, 0};
    /* no function that is a cancellation point: the VCQ may be locked */
    return (syscall(SYS_ppoll, &hears, 1, &at_once, NULL, 0) >= 0) && !(hears.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Something has come, before `end` */
static bool comes(int conn, uint64_t end)
{
    struct pollfd hears = {conn, POLLIN, 0};
    uint64_t      now;

    while ((now = emu_now()) < end) {
        int n = poll(&hears, 1, (int)((end - now) / 1000000u) + 1);

        if ((n > 0) || ((n < 0) && (errno != EINTR))) {
            return n > 0;
        }
    }
    return false;
}

/* The descriptor of a message, or -1; whatever else came with it is closed. */
static int only_fd(struct msghdr *msg)
{
    int got = -1, fd;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        size_t num = ((c->cmsg_level == SOL_SOCKET) && (c->cmsg_type == SCM_RIGHTS)) ?
                             (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

        for (size_t i = 0; i < num; i++) {
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (got < 0) {
                got = fd;
            } else {
                close(fd);
            }
        }
    }
    return got;
}

/* The next answer, and what came with it: a descriptor, or -1.  false: none came in time */
static bool receive_fd(int conn, uint64_t end, char *number_p, int *fd_p)
{
    union {
        struct cmsghdr align;
        char           buf[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec  iov = {number_p, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
    ssize_t       n;

    *fd_p = -1;
    if (!comes(conn, end)) {
        return false;
    }
    n = recvmsg(conn, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n >= 0) {
        *fd_p = only_fd(&msg);
    }
    if ((n == 1) && !(msg.msg_flags & MSG_CTRUNC)) { /* else there was one, and no number free for it here */
        return true;
    }
    if (*fd_p >= 0) {
        close(*fd_p);
    }
    return false;
}

int emu_service_fd(int conn, int fd)
{
    static _Atomic unsigned requests;
    struct emu_request      req = {EMU_REQUEST_FD, fd, atomic_fetch_add(&requests, 1) & 0xff};
    uint64_t                end = emu_now() + FD_TIMEOUT_MS * UINT64_C(1000000);
    char                    number;
    int                     got = -1;

    wait_not_for_ever(conn);
    if (send(conn, &req, sizeof(req), MSG_NOSIGNAL) != (ssize_t)sizeof(req)) {
        return -2;
    }
    /* what comes first may be the answer to one that was not waited for to the end */
    for (int i = 0; (i < ANSWERS_MAX) && receive_fd(conn, end, &number, &got); i++) {
        if (number == (char)req.vcq_id) {
            return got;
        }
        if (got >= 0) {
            close(got);
        }
    }
    return -2;
}

void emu_service_carries(struct emu_peer_process *proc, uint64_t vcq_id)
{
    struct emu_request req = {EMU_REQUEST_CARRIES, 0, vcq_id};
    int            conn;

    emu_lock(&emu_g.lock);
    conn = emu_service_connection(proc);
    if (conn >= 0) {
        (void)!send(conn, &req, sizeof(req), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    emu_unlock(&emu_g.lock);
    emu_service_wake(); /* it watches the connection from now on */
}

/* Once: a limit that is met will be met again */
static void say_no_descriptor(const struct emu_peer_process *proc, int why)
{
    static _Atomic bool said;

    if (((why == EMFILE) || (why == ENFILE) || (why == ENOMEM)) && !atomic_exchange(&said, true)) {
        emu_message("can't reach process %d, and perhaps others: %s", (int)proc->pid, strerror(why));
    }
}

int emu_peer_fd(struct emu_peer_process *proc, int fd, int open_flags)
{
    char path[64];
    int  conn, got, refusal;

    if (fd == EMU_FD_MEMORY) {
        snprintf(path, sizeof(path), "/proc/%d/mem", (int)proc->pid);
    } else {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)proc->pid, fd);
    }
    /* by now it may be anything of that number: a FIFO would let us wait, and a terminal become ours */
    got = open(path, open_flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (got >= 0) {
        return got;
    }
    refusal = errno;
    conn    = emu_service_connection(proc);
    if (conn >= 0) {
        got = emu_service_fd(conn, fd);
    }
    if (got < 0) {
        say_no_descriptor(proc, refusal);
        errno = (got == -2) ? ETIMEDOUT : refusal; /* why /proc said no is what a user can act on */
    }
    return (got < 0) ? -1 : got;
}
