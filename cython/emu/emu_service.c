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
#include "emu_armw.h"
#include "emu_modes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNS       EMU_MAX_PROCS
#define FD_TIMEOUT_MS   2000
#define ARMW_WAIT_MS    5
#define ARMW_LOCK_MS    1000 /* the service thread waits for one that stands in */
#define STAND_IN_TRIES  (2 * ARMW_LOCK_MS / ARMW_WAIT_MS)
#define BESIDE_TRIES    (100 / ARMW_WAIT_MS)
#define ASK_EVERY       16 /* calls of emu_peer_is_there; between them the thread tells */

enum request_op { REQUEST_KICK = 1, REQUEST_FD, REQUEST_CARRIES };

struct request {
    uint32_t op;
    int32_t  fd;     /* REQUEST_FD: a descriptor of the receiver, or one of EMU_FD_ */
    uint64_t vcq_id; /* REQUEST_CARRIES: for whom the sender does */
};

static int futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return (int)syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* -------------------------------------------------------- thread: serving */

/* The address of size bytes at a STADD of ours that peers may write; mem_lock is
 * held, so it stays registered. */
static int armw_target(const struct emu_mailbox *m, void **addr_p)
{
    struct emu_vcq *vcq;
    uint64_t        off = EMU_STADD_OFF(m->stadd), word;
    struct iovec    lcl = {&word, m->size}, rmt;

    if ((m->vcq >= EMU_MAX_VCQS) || ((vcq = emu_g.vcq[m->vcq]) == NULL) || ((m->size != 4) && (m->size != 8))) {
        return UTOFU_ERR_MRQ_PEER;
    }
    const struct emu_stag *e = &vcq->stags[EMU_STADD_STAG(m->stadd)];
    if ((e->high != EMU_STADD_HIGH(m->stadd)) || (off < e->begin) || (off >= e->end)) {
        return UTOFU_ERR_MRQ_RMT_STADD;
    }
    if ((e->end - off < m->size) || (off % m->size)) {
        return UTOFU_ERR_MRQ_RMT_LENGTH;
    }
    if (e->flags & UTOFU_REG_MEM_FLAG_READ_ONLY) {
        return UTOFU_ERR_MRQ_RMT_MEMORY;
    }
    uint64_t addr = e->addr + (off - e->begin);
    /* registered memory may have been unmapped by mistake: ask before touching */
    rmt = (struct iovec){(void *)(uintptr_t)addr, m->size};
    if ((process_vm_readv((pid_t)syscall(SYS_gettid), &lcl, 1, &rmt, 1, 0) < 0) && (errno == EFAULT)) {
        return UTOFU_ERR_MRQ_RMT_MEMORY;
    }
    *addr_p = (void *)(uintptr_t)addr;
    return UTOFU_SUCCESS;
}

/* Who gets one of the locks whose holder died has nothing to repair: its ARMW was done or not. */
static bool armw_locked(pthread_mutex_t *lock, int ret)
{
    if (ret == EOWNERDEAD) {
        pthread_mutex_consistent(lock);
        ret = 0;
    }
    return ret == 0;
}

/* The ARMW, atomic also against who stands in for us: that one began while we were stopped, and
 * may be in the middle of it.  Not for ever: it may be stopped itself. */
static bool armw_serve(const struct emu_mailbox *m, void *addr, uint64_t *old_p)
{
    struct timespec ts;
    int             ret = pthread_mutex_trylock(&emu_g.shm->armw_lock);

    if (ret == EBUSY) {
        clock_gettime(CLOCK_REALTIME, &ts);
        ts.tv_sec += ARMW_LOCK_MS / 1000;
        ret = pthread_mutex_timedlock(&emu_g.shm->armw_lock, &ts);
    }
    if (!armw_locked(&emu_g.shm->armw_lock, ret)) {
        return false;
    }
    *old_p = emu_armw_direct(m->op, m->size, addr, m->operand, m->compare);
    pthread_mutex_unlock(&emu_g.shm->armw_lock);
    return true;
}

static void serve_mailboxes(void)
{
    for (unsigned i = 0; i < EMU_MAILBOXES; i++) {
        struct emu_mailbox *m        = &emu_g.shm->mailbox[i];
        uint32_t            expected = EMU_MBOX_POSTED;
        void               *addr;

        if (!atomic_compare_exchange_strong(&m->state, &expected, EMU_MBOX_TAKEN)) {
            continue;
        }
        pthread_mutex_lock(&emu_g.mem_lock);
        m->code = armw_target(m, &addr);
        if ((m->code == UTOFU_SUCCESS) && !armw_serve(m, addr, &m->result)) {
            m->code = UTOFU_ERR_MRQ_OTHER;
        }
        pthread_mutex_unlock(&emu_g.mem_lock);
        atomic_store(&m->state, EMU_MBOX_DONE);
        futex(&m->state, FUTEX_WAKE, INT_MAX, NULL);
    }
}

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
    for (unsigned i = 0; i < atomic_load(&emu_g.shm->seg_high); i++) {
        if ((atomic_load(&emu_g.shm->seg[i].gen) & 1) && (emu_g.shm->seg[i].fd == fd)) {
            return fd;
        }
    }
    return -1;
}

static void send_fd(int conn, int fd)
{
    union {
        struct cmsghdr align;
        char           buf[CMSG_SPACE(sizeof(int))];
    } control;
    char          status = (fd >= 0) ? 1 : 0;
    struct iovec  iov    = {&status, 1};
    struct msghdr msg    = {.msg_iov = &iov, .msg_iovlen = 1};

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
    struct request req;
    ssize_t        n = recv(conn, &req, sizeof(req), MSG_DONTWAIT);

    if (n < 0) {
        return (errno == EAGAIN) || (errno == EINTR);
    }
    if (n != (ssize_t)sizeof(req)) {
        return false; /* closed, or not one of ours */
    }
    switch (req.op) {
    case REQUEST_KICK:
        emu_rehome_release(); /* it waits for mem_lock, and has nothing on the heap */
        serve_mailboxes();
        emu_rehome_hold();
        return true;
    case REQUEST_FD:
        send_fd(conn, servable_fd(req.fd));
        return true;
    case REQUEST_CARRIES:
        emu_relay_told(conn, req.vcq_id);
        return true;
    default:
        return false;
    }
}

/* ------------------------------------------------------- thread: main loop */

struct watched {
    struct emu_peer_process *proc; /* NULL: a connection of a peer to us */
};

static void *service_main(void *arg)
{
    struct pollfd  *fds     = NULL;
    struct watched *what    = NULL;
    int            *conns   = NULL;
    unsigned        nconns = 0, cap = 0;
    bool            stop = false;

    (void)arg;
    emu_rehome_hold(); /* before it has anything of the heap */
    conns = calloc(MAX_CONNS, sizeof(int));
    while (!stop && (conns != NULL)) {
        unsigned n = 2, peers = 0;
        bool     blind = false; /* some peer can only be asked now and then */

        /* Who holds the lock may be waiting for a peer's service thread, and that
         * peer for ours: never wait here, serve connections meanwhile. */
        bool locked = pthread_mutex_trylock(&emu_g.lock) == 0;
        if (locked) {
            emu_peer_processes_clean();
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
            fds[n]  = (struct pollfd){conns[i], POLLIN, 0};
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
        int ready = poll(fds, n, !locked ? 5 : blind ? 250 : -1);
        emu_rehome_hold();
        if (!emu_fds_ours()) {
            emu_rehome_release();
            for (;;) {
                pause(); /* nothing to do any more, but threads are counted (emu_rehome_may.c) */
            }
        }
        if (ready < 0) {
            continue;
        }
        emu_relay_reap();
        if (fds[0].revents) {
            uint64_t count;
            if (read(emu_g.wake_fd, &count, sizeof(count)) == (ssize_t)sizeof(count)) {
                stop = count >= ((uint64_t)1 << 32);
            }
        }
        for (unsigned i = 2; i < n; i++) {
            struct emu_peer_process *p = what[i].proc;

            if ((p != NULL) && ((fds[i].revents & (POLLIN | POLLRDHUP | POLLHUP | POLLERR)) ||
                                ((p->pidfd < 0) && !emu_peer_process_alive(p)))) {
                emu_peer_process_lost(p);
            }
        }
        for (unsigned i = nconns; i-- > 0;) {
            if (fds[2 + i].revents && !serve_connection(conns[i])) {
                emu_relay_lost(conns[i]);
                close(conns[i]);
                conns[i] = conns[--nconns];
            }
        }
        if (fds[1].revents) {
            int   fd = accept4(emu_g.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            pid_t pid;
            if (fd >= 0) {
                if ((nconns < MAX_CONNS) && (emu_peer_credentials(fd, &pid) == 0)) {
                    conns[nconns++] = fd;
                } else {
                    close(fd);
                }
            }
        }
    }
    emu_rehome_release();
    for (unsigned i = 0; i < nconns; i++) {
        close(conns[i]);
    }
    free(conns);
    free(fds);
    free(what);
    return NULL;
}

int emu_service_start(void)
{
    sigset_t all, old;
    int      ret;

    emu_g.wake_fd     = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    emu_g.self_mem_fd = emu_open_own("mem", O_RDWR);
    if ((emu_g.self_mem_fd < 0) && emu_own_first_thread_ended()) {
        emu_g.self_mem_fd = emu_open_own("mem", O_RDWR);
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

void emu_service_stop(void)
{
    uint64_t stop = (uint64_t)1 << 32;

    /* else it is asleep, and nothing can wake it */
    if (emu_g.service_running && emu_fds_ours()) {
        (void)!write(emu_g.wake_fd, &stop, sizeof(stop));
        pthread_join(emu_g.service, NULL);
        emu_g.service_running = false;
        emu_relay_stop();
    }
}

/* ---------------------------------------------------- asking another process */

static void wait_not_for_ever(int conn)
{
    struct timeval tv = {FD_TIMEOUT_MS / 1000, FD_TIMEOUT_MS % 1000 * 1000};

    setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(conn, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    fcntl(conn, F_SETFL, 0); /* it may not have waited until it was connected */
}

/* A connection to the peer's service thread, which must be of the expected pid */
static int connection(struct emu_peer_process *proc)
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
        connection(proc);
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
    struct request req = {REQUEST_FD, fd, 0};

    wait_not_for_ever(conn);
    return (send(conn, &req, sizeof(req), MSG_NOSIGNAL) == (ssize_t)sizeof(req)) ? receive_fd(conn) : -1;
}

void emu_service_carries(struct emu_peer_process *proc, uint64_t vcq_id)
{
    struct request req = {REQUEST_CARRIES, 0, vcq_id};
    int            conn;

    emu_lock(&emu_g.lock);
    conn = connection(proc);
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
    conn    = connection(proc);
    if (conn >= 0) {
        got = emu_service_fd(conn, fd);
    }
    if (got < 0) {
        errno = refusal; /* why /proc said no is what a user can act on */
    }
    return got;
}

/* ------------------------------------------------------- ARMW: initiator side */

static bool armw_stopped_target(int fd, int op, unsigned size, uint64_t operand, uint64_t compare, uint64_t addr,
                                uint64_t *old_p)
{
    uint64_t old = 0, value;

    if ((fd < 0) || (pread(fd, &old, size, (off_t)addr) != (ssize_t)size)) {
        return false;
    }
    value = emu_armw_value(op, old, operand, compare);
    if (pwrite(fd, &value, size, (off_t)addr) != (ssize_t)size) {
        return false;
    }
    *old_p = old;
    return true;
}

/* A stopped target can't answer and can't touch the memory either: a network interface would go
 * on, so we do it from here, one of the initiators at a time.  It may go on in the middle; its
 * service thread then waits for us.  If the target was stopped while it had the lock itself, for
 * an instruction or two, we go ahead beside it when it stays stopped.  false: not now. */
static bool armw_stand_in(struct emu_peer_process *proc, struct emu_mailbox *m, unsigned tries, int op, unsigned size,
                          uint64_t operand, uint64_t compare, uint64_t addr, uint64_t *old_p, int *code_p)
{
    struct emu_process *shm    = proc->shm;
    uint32_t            posted = EMU_MBOX_POSTED;
    bool                done   = false, alone;
    int                 fd     = emu_peer_mem_fd(proc); /* which takes another lock, at times */

    if (!armw_locked(&shm->stand_in, pthread_mutex_trylock(&shm->stand_in))) {
        return false;
    }
    alone = armw_locked(&shm->armw_lock, pthread_mutex_trylock(&shm->armw_lock));
    if ((alone || (tries >= BESIDE_TRIES)) && emu_process_stopped(proc->pid)) {
        done = atomic_compare_exchange_strong(&m->state, &posted, EMU_MBOX_CLAIMED);
    }
    if (done) {
        *code_p = armw_stopped_target(fd, op, size, operand, compare, addr, old_p) ? UTOFU_SUCCESS :
                                                                                     UTOFU_ERR_MRQ_RMT_MEMORY;
    }
    if (alone) {
        pthread_mutex_unlock(&shm->armw_lock);
    }
    pthread_mutex_unlock(&shm->stand_in);
    return done;
}

static struct emu_mailbox *mailbox_claim(struct emu_peer *peer)
{
    struct emu_process *shm = peer->proc->shm;

    for (unsigned tries = 0; atomic_load(peer->gen_p) == peer->gen; tries++) {
        for (unsigned i = 0; i < EMU_MAILBOXES; i++) {
            struct emu_mailbox *m    = &shm->mailbox[i];
            uint32_t            free = EMU_MBOX_FREE;

            if (atomic_compare_exchange_strong(&m->state, &free, EMU_MBOX_CLAIMED)) {
                m->pid = getpid();
                return m;
            }
        }
        /* all taken: by initiators that wait, or that died */
        if (tries % 1000 == 999) {
            for (unsigned i = 0; i < EMU_MAILBOXES; i++) {
                struct emu_mailbox *m     = &shm->mailbox[i];
                uint32_t            state = atomic_load(&m->state);

                if (((state == EMU_MBOX_CLAIMED) || (state == EMU_MBOX_DONE)) && (m->pid > 0) && kill(m->pid, 0) &&
                    (errno == ESRCH)) {
                    atomic_compare_exchange_strong(&m->state, &state, EMU_MBOX_FREE);
                }
            }
        }
        sched_yield();
    }
    return NULL;
}

int emu_service_armw(struct emu_peer *peer, int op, unsigned size, uint64_t operand, uint64_t compare, uint64_t stadd,
                     uint64_t addr, uint64_t *old_p)
{
    const struct timespec wait = {0, ARMW_WAIT_MS * 1000000L};
    struct request        kick = {REQUEST_KICK, 0, 0};
    struct emu_mailbox   *m    = mailbox_claim(peer);
    unsigned              tries = 0;
    int                   code, conn;

    if (m == NULL) {
        return UTOFU_ERR_MRQ_PEER;
    }
    m->vcq     = peer->vcq;
    m->op      = (uint8_t)op;
    m->size    = (uint8_t)size;
    m->stadd   = stadd;
    m->operand = operand;
    m->compare = compare;
    atomic_store(&m->state, EMU_MBOX_POSTED);

    emu_lock(&emu_g.lock);
    conn = connection(peer->proc);
    if (conn >= 0) {
        (void)!send(conn, &kick, sizeof(kick), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    emu_unlock(&emu_g.lock);

    for (;;) {
        uint32_t state = atomic_load(&m->state);

        if (state == EMU_MBOX_DONE) {
            code   = ((m->code <= UTOFU_ERR_MRQ_OTHER) && (m->code >= UTOFU_ERR_MRQ_RMT_LENGTH)) ? m->code :
                     (m->code == UTOFU_SUCCESS)                                                   ? UTOFU_SUCCESS :
                                                                                                    UTOFU_ERR_MRQ_OTHER;
            *old_p = m->result;
            break;
        }
        if ((state != EMU_MBOX_POSTED) && (state != EMU_MBOX_TAKEN)) {
            return UTOFU_ERR_MRQ_OTHER; /* somebody wrote into it: not ours any more */
        }
        if (futex(&m->state, FUTEX_WAIT, state, &wait) && (errno == ETIMEDOUT)) {
            uint32_t posted = EMU_MBOX_POSTED;

            if (atomic_load(peer->gen_p) != peer->gen) {
                /* Nobody will take it, or a dead process holds it.  While a live
                 * one holds it, it is not ours to give back: wait. */
                if (atomic_compare_exchange_strong(&m->state, &posted, EMU_MBOX_FREE) ||
                    !emu_peer_process_alive(peer->proc)) {
                    return UTOFU_ERR_MRQ_PEER;
                }
                continue;
            }
            tries = emu_process_stopped(peer->proc->pid) ? tries + 1 : 0;
            if ((tries != 0) &&
                armw_stand_in(peer->proc, m, tries, op, size, operand, compare, addr, old_p, &code)) {
                break;
            }
            /* somebody who stood in for it was stopped, too */
            if ((tries >= STAND_IN_TRIES) && atomic_compare_exchange_strong(&m->state, &posted, EMU_MBOX_CLAIMED)) {
                code = UTOFU_ERR_MRQ_OTHER;
                break;
            }
        }
    }
    atomic_store(&m->state, EMU_MBOX_FREE);
    return code;
}
