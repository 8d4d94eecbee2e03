/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_job.c - how processes of one user find each other, with nothing to set up
 * and nothing left behind.
 *
 * Every process of a job listens on an abstract Unix socket named after the user,
 * the job and its slot.  The kernel removes such names, and memfds, when their
 * process ends, however it ends; there is no file to clean.  A newcomer takes the
 * job's lock (binding a name is atomic), connects to the first slot that answers,
 * learns its pid from the kernel (and that it is the same user), and opens the
 * job's control memfd through /proc.  If nobody answers it makes a new one.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_modes.h"
#include "emu_now.h"
#include "emu_service.h"
#include "emu_vma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tofu_job.h"


struct emu_global emu_g = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .mem_lock = PTHREAD_MUTEX_INITIALIZER,
    .control_fd = -1, .seg_fd = -1, .listen_fd = -1, .wake_fd = -1, .self_mem_fd = -1
};

/* ------------------------------------------------------------------ names */

static int abstract_name(struct sockaddr_un *sa, socklen_t *len_p, const char *suffix)
{
    int n;

    memset(sa, 0, sizeof(*sa));
    sa->sun_family = AF_UNIX;
    n = snprintf(sa->sun_path + 1, sizeof(sa->sun_path) - 1, "utofu-emu/%u/%s/%s", (unsigned)geteuid(), emu_g.job,
                 suffix);
    if ((n < 0) || ((size_t)n >= sizeof(sa->sun_path) - 1)) {
        return -1;
    }
    *len_p = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return 0;
}

int emu_service_name(uint32_t slot, void *sa, unsigned *len_p)
{
    char      suffix[16];
    socklen_t len = 0;
    int       ret;

    snprintf(suffix, sizeof(suffix), "%u", slot);
    ret    = abstract_name(sa, &len, suffix);
    *len_p = len;
    return ret;
}

int emu_peer_credentials(int fd, pid_t *pid_p)
{
    struct ucred cred;
    socklen_t    len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
        return -1;
    }
    if (cred.uid != geteuid()) {
        return -2;
    }
    *pid_p = cred.pid;
    return (cred.pid > 0) ? 0 : -3;
}

/* The job's lock: a bound name.  Closing the socket, or dying, gives it back. */
static int job_lock(void)
{
    struct sockaddr_un sa;
    socklen_t          len;
    uint64_t           end;
    int                fd;

    if (abstract_name(&sa, &len, "lock")) {
        emu_message("job name \"%s\" is too long", emu_g.job);
        return -1;
    }
    /* Kept, so that the table of descriptors grows now and not with the lock: beside threads the kernel
     * waits for all CPUs then. */
    fd = emu_fd_keep(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        emu_message("socket failed: %s", strerror(errno));
        return -1;
    }
    end = emu_now() + EMU_LOCK_TIMEOUT_S * UINT64_C(1000000000);
    while (bind(fd, (struct sockaddr *)&sa, len)) {
        if ((errno != EADDRINUSE) || (emu_now() > end)) {
            emu_message("can't take the lock of job \"%s\": %s (held by a stopped process, or by another user; or is the host very busy?)",
                        emu_g.job, strerror(errno));
            close(fd);
            return -1;
        }
        emu_sleep(200000);
    }
    return fd;
}

/* ------------------------------------------------------------ our own part */

static int slot_claim(void)
{
    struct emu_control *c = emu_g.control;
    struct stat         st;

    emu_g.listen_fd = emu_fd_keep(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if ((emu_g.listen_fd < 0) || fstat(emu_g.listen_fd, &st)) {
        emu_message("can't make a socket: %s", strerror(errno));
        return -1;
    }
    emu_g.listen_dev = st.st_dev;
    emu_g.listen_ino = st.st_ino;
    for (uint32_t slot = 0; slot < EMU_MAX_PROCS; slot++) {
        struct sockaddr_un sa;
        unsigned           len;

        emu_service_name(slot, &sa, &len);
        if (bind(emu_g.listen_fd, (struct sockaddr *)&sa, len)) {
            continue; /* taken */
        }
        if (listen(emu_g.listen_fd, 1024)) {
            emu_message("can't listen at a socket: %s", strerror(errno));
            return -1;
        }
        emu_g.slot = slot;
        if (!emu_control_lock()) {
            return -1;
        }
        /* the name was free, so whoever had the slot is gone */
        emu_control_reclaim(slot);
        c->slot[slot].gen++;
        emu_g.gen = c->slot[slot].gen;
        emu_control_unlock();
        return 0;
    }
    emu_message("job \"%s\" has %u processes already", emu_g.job, EMU_MAX_PROCS);
    return -1;
}

/* Something of the node is taken, or a process is on it that has taken nothing yet. */
static bool node_used(struct emu_control *c, uint32_t n)
{
    bool used = emu_gates_used(&c->node[n]);

    for (unsigned q = 0; !used && (q < EMU_NODE_CQS); q++) {
        used = c->node[n].cq[q].kind != EMU_CQ_FREE;
    }
    for (uint32_t slot = 0; !used && (slot < EMU_MAX_PROCS); slot++) {
        used = (slot != emu_g.slot) && (atomic_load(&c->slot[slot].state) == EMU_SLOT_LIVE) &&
               (c->slot[slot].node == n) && emu_slot_alive(&c->slot[slot]);
    }
    return used;
}

static int node_claim(void)
{
    struct emu_control *c   = emu_g.control;
    uint64_t            key = emu_coords_key(emu_g.coords);
    int                 ret = -1;

    if (!emu_control_lock()) {
        return -1;
    }
    for (uint32_t n = 0; n < EMU_MAX_NODES; n++) {
        uint64_t have = atomic_load(&c->node[n].key);
        if ((have == 0) || (have == key)) {
            atomic_store(&c->node[n].key, key);
            emu_g.node = n;
            ret        = 0;
            /* what processes had that were killed: the first CQs are those that peers predict */
            emu_node_reclaim(n);
            break;
        }
    }
    for (uint32_t n = 0; (ret != 0) && (n < EMU_MAX_NODES); n++) {
        if (!node_used(c, n)) { /* full: take the place of a node without users */
            atomic_store(&c->node[n].key, key);
            emu_g.node = n;
            ret        = 0;
        }
    }
    emu_control_unlock();
    if (ret != 0) {
        emu_message("job \"%s\" has %u nodes already", emu_g.job, EMU_MAX_NODES);
    }
    return ret;
}

/* What a user can do about it */
static const char *hint(int err)
{
    return (err == EFBIG) ? " (ulimit -f)" : "";
}

static int segment_create(void)
{
    struct emu_proc_slot *slot = &emu_g.control->slot[emu_g.slot];
    uint64_t              size = EMU_PROCESS_SIZE(emu_g.env.lane_entries, emu_g.env.mrq_entries_session);
    struct stat           st;

    emu_g.seg_fd = emu_memfd("utofu-emu-process", size);
    if ((emu_g.seg_fd < 0) || fstat(emu_g.seg_fd, &st)) {
        emu_message("can't make a process segment of %llu bytes (sparse): %s%s", (unsigned long long)size,
                    strerror(errno), hint(errno));
        return -1;
    }
    emu_g.shm = emu_map_unlocked(NULL, EMU_STAGS_OFF, PROT_READ | PROT_WRITE, emu_g.seg_fd, 0);
    if (emu_g.shm == MAP_FAILED) {
        emu_g.shm = NULL;
        emu_message("can't map the process segment: %s", strerror(errno));
        return -1;
    }
    emu_g.shm->version         = EMU_SHM_VERSION;
    emu_g.shm->lane_entries    = emu_g.env.lane_entries;
    emu_g.shm->session_entries = emu_g.env.mrq_entries_session;
    emu_g.shm->pid             = getpid();
    emu_g.shm->size    = size;
    emu_g.shm->magic   = EMU_MAGIC;

    slot->pid        = getpid();
    slot->start_time = emu_start_time(getpid());
    slot->seg_fd     = emu_g.seg_fd;
    slot->seg_dev    = st.st_dev;
    slot->seg_ino    = st.st_ino;
    slot->node       = emu_g.node;
    slot->joined     = atomic_fetch_add(&emu_g.control->joined, 1);
    slot->exclusive_cqs = (int8_t)emu_g.env.exclusive_cqs;
    slot->session_cqs   = (int8_t)emu_g.env.session_cqs;
    emu_idle_join(emu_g.control, emu_g.slot);
    atomic_store_explicit(&slot->state, EMU_SLOT_LIVE, memory_order_release);
    return 0;
}

bool emu_fds_ours(void)
{
    struct stat st;

    return (emu_g.listen_fd >= 0) && !fstat(emu_g.listen_fd, &st) && (st.st_dev == emu_g.listen_dev) &&
           (st.st_ino == emu_g.listen_ino);
}

void *emu_segment_map(int seg_fd, uint64_t off, uint64_t size, int prot)
{
    if ((seg_fd < 0) || !emu_fds_ours()) {
        errno = EBADF;
        return MAP_FAILED;
    }
    return emu_map_unlocked(NULL, size, prot, seg_fd, (off_t)off);
}

static void close_fd(int *fd, bool ours)
{
    if (ours && (*fd >= 0)) {
        close(*fd);
    }
    *fd = -1;
}

extern void __lsan_ignore_object(const void *object) __attribute__((weak)); /* the checker's, if there is one */

void emu_left(const void *block)
{
    /* in the strict mode what the checker has about it may be out of reach, too (emu_dontfork.c) */
    if ((__lsan_ignore_object != NULL) && (block != NULL) && !emu_g.env.strict) {
        __lsan_ignore_object(block);
    }
}

/* Forget everything without touching what is shared: after fork, in the child,
 * and after a failed start.  Mappings that peers or threads may use stay. */
static void forget(void)
{
    bool ours = (emu_g.listen_fd < 0) || emu_fds_ours();

    close_fd(&emu_g.control_fd, ours);
    close_fd(&emu_g.seg_fd, ours);
    close_fd(&emu_g.listen_fd, ours);
    close_fd(&emu_g.wake_fd, ours);
    close_fd(&emu_g.self_mem_fd, ours);
    for (unsigned i = 0; i < emu_g.seg_high; i++) {
        const struct emu_seg *seg = &emu_g.seg[i]; /* the parent's, which goes on with it */
        struct stat           st;

        if ((atomic_load(&seg->gen) & 1) && !fstat(seg->fd, &st) && (st.st_dev == seg->dev) && (st.st_ino == seg->ino)) {
            close(seg->fd);
        }
    }
    memset(emu_g.seg, 0, emu_g.seg_high * sizeof(*emu_g.seg));
    emu_g.seg_high = 0;
    if (emu_g.control != NULL) {
        munmap(emu_g.control, sizeof(*emu_g.control));
        emu_g.control = NULL;
    }
    /* in the strict mode the heap may be out of reach here (emu_dontfork.c) */
    for (struct emu_peer_process *p = emu_g.env.strict ? NULL : emu_g.procs; p != NULL; p = p->next) {
        int mem_fd = p->mem_fd, conn_fd = p->conn_fd;
        close_fd(&p->pidfd, ours);
        close_fd(&p->seg_fd, ours);
        close_fd(&mem_fd, ours);
        close_fd(&conn_fd, ours);
        emu_peer_let_go(p); /* the memory that it has mapped stays as long as somebody has it */
    }
    emu_left(emu_g.procs);
    emu_g.procs = NULL;
    emu_g.self  = NULL;
    emu_g.shm   = NULL;
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        emu_left(atomic_load(&emu_g.vcqs[i].vcq));
        atomic_store(&emu_g.vcqs[i].hdl, 0);
        atomic_store(&emu_g.vcqs[i].vcq, NULL);
    }
    emu_service_forget();
    emu_relay_forget();
    atomic_store(&emu_g.ready, false);
}

/* A child has no service thread and is not its parent: it joins anew, as another
 * process, when it calls the library.  Handles of the parent are invalid in it. */
static void fork_prepare(void)
{
    emu_lock(&emu_g.mem_lock); /* no handler of a signal runs until the child has its memory */
    emu_lock(&emu_g.lock);
    emu_rehome_fork_prepare();
}

static void fork_parent(void)
{
    emu_rehome_fork_parent();
    emu_unlock(&emu_g.lock);
    emu_unlock(&emu_g.mem_lock);
}

static void fork_child(void)
{
    emu_rehome_fork_child(); /* first of all: until then what it writes is its parent's */
    emu_unlock(&emu_g.lock); /* of the one thread that there is, which took them */
    emu_shared_lock_fork_child();
    emu_threads_forget();
    emu_last_thread_forked();
    emu_wire_forget();
    emu_inject_forget();
    emu_dontfork_forget();
    emu_swap_forget();
    if (atomic_load(&emu_g.ready)) {
        forget();
    }
    emu_unlock(&emu_g.mem_lock);
}

/* When the library is loaded: so a child has its memory (emu_rehome.c) before what others
 * do at fork. */
static void __attribute__((constructor)) watch_forks(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void slot_free(void)
{
    if (emu_control_lock()) {
        if (emu_g.control->slot[emu_g.slot].gen == emu_g.gen) { /* not lost, see emu_vcq_gone */
            emu_control_reclaim(emu_g.slot);
        }
        emu_control_unlock();
    }
}

/* Leave the job: VCQs go away, peers see it.  Not by atexit: handlers that were registered before
 * the first call, and destructors of C++ objects made before it, may still communicate. */
static void __attribute__((destructor)) leave(void)
{
    if (!atomic_load(&emu_g.ready) || (emu_g.pid != getpid()) || emu_ending()) {
        return;
    }
    emu_wire_stop();
    bool locked = emu_lock_soon(&emu_g.lock); /* other threads may be making, and freeing, such */
    emu_stats_print();
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        const struct emu_vcq *vcq = atomic_load(&emu_g.vcqs[i].vcq);

        if (vcq != NULL) {
            emu_vcq_gone(vcq);
        }
    }
    if (locked) {
        pthread_mutex_unlock(&emu_g.lock);
    }
    emu_service_stop();
    slot_free();
    atomic_store(&emu_g.ready, false);
}

static int join_locked(void)
{
    int code = UTOFU_ERR_OUT_OF_RESOURCE;
    int lock;

    emu_g.pid = getpid();
    tofu_job_name(emu_g.job, sizeof(emu_g.job));
    emu_env_read(&emu_g.env);

    emu_fence_register(); /* others wait for the lock: not with it */
    lock = job_lock();
    if (lock < 0) {
        return code;
    }
    if (emu_control_open()) {
        emu_message("can't open or make the control segment of job \"%s\": %s%s", emu_g.job, strerror(errno),
                    hint(errno));
        goto err_forget;
    }
    if (slot_claim()) {
        goto err_forget;
    }
    code = emu_topology_init();
    if (code != UTOFU_SUCCESS) {
        goto err_forget;
    }
    code = UTOFU_ERR_OUT_OF_RESOURCE;
    if (node_claim() || segment_create()) {
        goto err_forget;
    }
    emu_timing_join();
    emu_fence_join();
    emu_doorbell_open();
    /* where the Yama module restricts ptrace, let peers of this user reach us */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (emu_service_start()) {
        goto err_forget;
    }
    emu_g.self = emu_peer_process_get(emu_g.slot);
    if (emu_g.self == NULL) {
        emu_service_stop();
        goto err_forget;
    }
    close(lock);
    atomic_store_explicit(&emu_g.ready, true, memory_order_release);
    return UTOFU_SUCCESS;

err_forget:
    if (emu_g.shm != NULL) { /* others may have seen it in the job already */
        slot_free();
        munmap(emu_g.shm, EMU_STAGS_OFF); /* no thread has it */
    }
    forget();
    close(lock);
    return code;
}

int emu_join(void)
{
    int code = UTOFU_SUCCESS;

    emu_lock(&emu_g.lock);
    if (!atomic_load(&emu_g.ready)) {
        code = join_locked();
    }
    emu_unlock(&emu_g.lock);
    return code;
}
