/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_control.c - the control segment of a job: which processes there are, and who has
 * which CQs and barrier gates of which node.
 *
 * A memfd that every process of the job has open: a newcomer takes it from a member,
 * through /proc, and the first one makes it.  What a process had that died, its lock as well, is
 * given back by whoever needs it.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_now.h"
#include "emu_service.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LEAVE_MS 500 /* in which a process that ends has closed all that it had */

bool emu_control_lock(void)
{
    /* Of one that ended in the middle there is nothing to roll back: every change under it is one word, or is
     * redone from the owner fields by emu_control_reclaim. */
    if (emu_shared_lock(&emu_g.control->lock, EMU_LOCK_TIMEOUT_S * 1000) == EMU_SHARED_NOT) {
        emu_message("the control segment of job \"%s\" stayed locked for %d s", emu_g.job, EMU_LOCK_TIMEOUT_S);
        return false;
    }
    return true;
}

void emu_control_unlock(void)
{
    emu_shared_unlock(&emu_g.control->lock);
}

void emu_vcq_gone(const struct emu_vcq *vcq)
{
    uint32_t gen = vcq->gen;

    /* only that generation: a process that closed all its descriptors may have lost its slot */
    atomic_compare_exchange_strong(&emu_g.control->vcq_gen[vcq->slot][vcq->index], &gen, gen + 1);
}

bool emu_vcq_reclaimed(const struct emu_vcq *vcq)
{
    const struct emu_proc_slot *slot = &emu_g.control->slot[vcq->slot];

    return (slot->gen != vcq->slot_gen) || (atomic_load(&slot->state) != EMU_SLOT_LIVE);
}

void emu_control_reclaim(uint32_t slot)
{
    struct emu_control *c = emu_g.control;

    /* First of all, whoever knows its VCQs is to look them up again: their IDs may be
     * another process' as soon as the CQs are free. */
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        uint32_t gen = atomic_load(&c->vcq_gen[slot][i]);
        if (gen & 1) {
            atomic_compare_exchange_strong(&c->vcq_gen[slot][i], &gen, gen + 1);
        }
    }
    for (unsigned n = 0; n < EMU_MAX_NODES; n++) {
        struct emu_node *node = &c->node[n];

        if (atomic_load(&node->key) == 0) {
            break; /* nodes are taken in order and keep their place */
        }
        for (unsigned q = 0; q < EMU_NODE_CQS; q++) {
            if ((node->cq[q].kind != EMU_CQ_FREE) && (node->cq[q].owner == slot)) {
                for (unsigned m = 0; m < EMU_NUM_CMPS; m++) {
                    atomic_store(&node->vcq[q * EMU_NUM_CMPS + m], 0);
                }
                node->cq[q].users = 0;
                node->cq[q].kind  = EMU_CQ_FREE;
            }
        }
        emu_gates_reclaim(n, slot);
    }
    atomic_store(&c->slot[slot].state, EMU_SLOT_FREE);
}

static void reclaim_dead(uint32_t slot)
{
    if ((slot < EMU_MAX_PROCS) && (slot != emu_g.slot) && !emu_slot_alive(&emu_g.control->slot[slot])) {
        emu_control_reclaim(slot);
    }
}

void emu_node_reclaim(uint32_t n)
{
    struct emu_node *node = &emu_g.control->node[n];
    uint32_t         asked = EMU_MAX_PROCS; /* mostly one owner has several in a row */

    for (unsigned q = 0; q < EMU_NODE_CQS; q++) {
        if ((node->cq[q].kind != EMU_CQ_FREE) && (node->cq[q].owner != asked)) {
            asked = node->cq[q].owner;
            reclaim_dead(asked);
        }
    }
    for (unsigned g = 0; g < EMU_NODE_GATES; g++) {
        if ((atomic_load(&node->gate[g].id) != 0) && (node->gate[g].owner != asked)) {
            asked = node->gate[g].owner;
            reclaim_dead(asked);
        }
    }
}

static bool control_valid(const struct emu_control *c)
{
    return (c->magic == EMU_MAGIC) && (c->version == EMU_SHM_VERSION) && (c->uid == geteuid()) &&
           (c->size == sizeof(*c)) && (memchr(c->job, '\0', sizeof(c->job)) != NULL) && !strcmp(c->job, emu_g.job);
}

#define OTHER_NAMESPACE -3

/* 0; -1: not now; -2: it is not one of this job and version; OTHER_NAMESPACE: nobody there can be told from
 * one that has ended */
static int control_map(int fd)
{
    struct stat         st;
    struct emu_control *c;
    const char         *differs;

    if (fstat(fd, &st)) {
        return -1;
    }
    if ((st.st_size != (off_t)sizeof(*c)) || !emu_memfd_stays(fd)) {
        return -2;
    }
    c = emu_map_unlocked(NULL, sizeof(*c), PROT_READ | PROT_WRITE, fd, 0);
    if (c == MAP_FAILED) {
        return -1;
    }
    if (!control_valid(c)) {
        munmap(c, sizeof(*c));
        return -2;
    }
    differs = emu_namespace_differs(c->ns);
    if (differs != NULL) {
        munmap(c, sizeof(*c));
        emu_message("job \"%s\" is one of another %s namespace: another UTOFU_EMU_JOB is needed here", emu_g.job, differs);
        errno = EXDEV;
        return OTHER_NAMESPACE;
    }
    emu_g.control    = c;
    emu_g.control_fd = emu_fd_keep(fd);
    return 0;
}

static void control_name(char *buf, size_t size)
{
    snprintf(buf, size, "utofu-emu:%s", emu_g.job);
}

/* The same of what a member's helper thread passes */
static int control_asked_for(int conn)
{
    int fd = emu_service_fd(conn, EMU_FD_CONTROL), ret = (fd < 0) ? -1 : control_map(fd);

    if ((fd >= 0) && (ret != 0)) {
        close(fd);
    }
    return ret;
}

/* The control memfd of a live member: found among its descriptors by name, checked by content.  Where
 * they can't be seen (it is not dumpable, its first thread has ended, there is no /proc here, its user
 * namespace is another one) it has to pass it itself.  As control_map; -2: it has none of this job and version. */
static int control_from_member(pid_t pid, int conn)
{
    char           dir[40], name[96], want[128], path[320], link[256];
    struct dirent *ent;
    DIR           *d;
    int            fd, ret = -2;

    control_name(name, sizeof(name));
    snprintf(want, sizeof(want), "/memfd:%s (deleted)", name);
    snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)pid);
    d = opendir(dir);
    while ((ret != 0) && (ret != OTHER_NAMESPACE) && (d != NULL) && ((ent = readdir(d)) != NULL)) {
        snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        if (n <= 0) {
            if ((n < 0) && (errno == EACCES)) {
                ret = -1;
                break;
            }
            continue;
        }
        link[n] = '\0';
        if (!strcmp(link, want)) {
            fd  = open(path, O_RDWR | O_CLOEXEC);
            ret = (fd >= 0) ? control_map(fd) : -1;
            if ((fd >= 0) && (ret != 0)) {
                close(fd);
            }
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    if (ret == OTHER_NAMESPACE) {
        errno = EXDEV;
        return ret;
    }
    return ((d == NULL) || (ret == -1) || ((ret != 0) && emu_first_thread_ended(pid))) ? control_asked_for(conn) : ret;
}

/* The member ends, or executes another program: it has closed its end. */
static bool has_left(int conn)
{
    struct pollfd p = {conn, POLLRDHUP, 0};

    return (poll(&p, 1, 0) < 0) || (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static int control_create(void)
{
    struct emu_control *c;
    char                name[96];
    int                 fd;

    control_name(name, sizeof(name));
    fd = emu_memfd(name, sizeof(*c));
    if (fd < 0) {
        return -1;
    }
    c = emu_map_unlocked(NULL, sizeof(*c), PROT_READ | PROT_WRITE, fd, 0);
    if (c == MAP_FAILED) {
        close(fd);
        return -1;
    }
    c->version = EMU_SHM_VERSION;
    c->uid     = geteuid();
    c->size    = sizeof(*c);
    strcpy(c->job, emu_g.job);
    emu_namespaces(c->ns);
    c->magic         = EMU_MAGIC;
    emu_g.control    = c;
    emu_g.control_fd = fd;
    return 0;
}

/* The control segment of the member that has this name.  0; 1: nobody has it, or who has is no member; -1: a member
 * does not give it; -2: nobody can be asked; OTHER_NAMESPACE.  errno */
static int control_of(const struct sockaddr_un *sa, unsigned len, pid_t *pid_p)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), ret, error;

    if (fd < 0) {
        return -2;
    }
    *pid_p = 0;
    if (connect(fd, (const struct sockaddr *)sa, len)) {
        ret = (errno == ECONNREFUSED) ? 1 : -2; /* EAGAIN: it has not answered so many that no more can ask */
    } else {
        switch (emu_peer_credentials(fd, pid_p)) {
        case 0:
            ret = control_from_member(*pid_p, fd);
            break;
        case -3: /* of another PID namespace */
            ret = control_asked_for(fd);
            break;
        case -2:
            ret = -2;
            break;
        default:
            error = errno;
            close(fd);
            errno = error;
            return -2;
        }
        /* it may be ending right now; another member may answer */
        for (int i = 0; (ret == -1) && (i < LEAVE_MS) && !has_left(fd); i++) {
            emu_sleep(1000000);
        }
        ret = ((ret == -2) || ((ret == -1) && has_left(fd))) ? 1 : ret;
    }
    error = (ret == -1) ? EACCES : errno;
    close(fd);
    errno = error;
    return ret;
}

int emu_control_open(void)
{
    pid_t out_of_reach = 0, pid;
    int   why          = 0;

    if (!emu_proc_is_ours()) {
        emu_message("/proc is that of another PID namespace (unshare has --mount-proc)");
        errno = EXDEV;
        return -1;
    }
    for (uint32_t slot = 0; slot < EMU_MAX_PROCS; slot++) {
        struct sockaddr_un sa;
        unsigned           len;
        int                ret;

        if (emu_service_name(slot, &sa, &len)) {
            return -1;
        }
        ret = control_of(&sa, len, &pid);
        if ((ret == 0) || (ret == OTHER_NAMESPACE)) {
            return (ret == 0) ? 0 : -1;
        }
        if (ret < 0) {
            why          = errno;
            out_of_reach = pid;
        }
    }
    if (why != 0) { /* one of our own would make two jobs of one name, which do not see each other */
        if (out_of_reach != 0) {
            emu_message("process %d is in job \"%s\", but does not give its control segment", (int)out_of_reach, emu_g.job);
        } else {
            emu_message("who is in job \"%s\" can't be asked", emu_g.job);
        }
        errno = why;
        return -1;
    }
    return control_create();
}
