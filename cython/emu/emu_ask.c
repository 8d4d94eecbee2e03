/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_ask.c - what this process asks another one's helper thread for (emu_service.c): is it
 * there, its descriptors where /proc refuses them, a look at its mailboxes.
 */
#include "emu_job.h"
#include "emu_service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define FD_TIMEOUT_MS 2000
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
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
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
    char byte;

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
    return (recv(proc->conn_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) && ((errno == EAGAIN) || (errno == EWOULDBLOCK));
}

static int receive_fd(int conn)
{
    union {
        struct cmsghdr align;
        char           buf[CMSG_SPACE(sizeof(int))];
    } control;
    char            status;
    struct iovec    iov = {&status, 1};
    struct msghdr   msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
    struct cmsghdr *c;
    int             fd = -1;

    if (recvmsg(conn, &msg, MSG_CMSG_CLOEXEC) != 1) {
        return -1;
    }
    c = CMSG_FIRSTHDR(&msg);
    if ((c != NULL) && (c->cmsg_level == SOL_SOCKET) && (c->cmsg_type == SCM_RIGHTS) &&
        (c->cmsg_len == CMSG_LEN(sizeof(int)))) {
        memcpy(&fd, CMSG_DATA(c), sizeof(int));
    }
    return fd;
}

int emu_service_fd(int conn, int fd)
{
    struct emu_request req = {EMU_REQUEST_FD, fd, 0};

    wait_not_for_ever(conn);
    return (send(conn, &req, sizeof(req), MSG_NOSIGNAL) == (ssize_t)sizeof(req)) ? receive_fd(conn) : -1;
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

int emu_peer_fd(struct emu_peer_process *proc, int fd, int open_flags)
{
    char path[64];
    int  conn, got, refusal;

    if (fd == EMU_FD_MEMORY) {
        snprintf(path, sizeof(path), "/proc/%d/mem", (int)proc->pid);
    } else {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)proc->pid, fd);
    }
    got = open(path, open_flags | O_CLOEXEC);
    if (got >= 0) {
        return got;
    }
    refusal = errno;
    conn    = emu_service_connection(proc);
    if (conn >= 0) {
        got = emu_service_fd(conn, fd);
    }
    if (got < 0) {
        errno = refusal; /* why /proc said no is what a user can act on */
    }
    return got;
}
