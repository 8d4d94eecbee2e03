/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_peer.c - other processes and their VCQs as seen from here: found by VCQ ID,
 * their segments mapped.
 *
 * All of this is the slow path of the first operation towards something; what it
 * finds is kept until the VCQ, or the peer, goes away.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_modes.h"
#include "emu_service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---------------------------------------------------------------- processes */

/* Stands for the peer of the last operation when there is none: never up to date */
static _Atomic uint32_t no_generation;
struct emu_peer         emu_no_peer = {.gen_p = &no_generation, .gen = 1};

static bool mrq_size_valid(uint32_t n)
{
    return (n >= 2048) && (n <= EMU_MRQ_MAX) && !(n & (n - 1));
}

/* What a peer says of its segment is taken once and checked against its size. */
static bool segment_valid(struct emu_peer_process *p, uint64_t size)
{
    const volatile struct emu_process *shm = p->shm;

    p->lane_entries    = shm->lane_entries;
    p->session_entries = shm->session_entries;
    return (shm->magic == EMU_MAGIC) && (shm->version == EMU_SHM_VERSION) && (shm->size == size) &&
           mrq_size_valid(p->lane_entries) && mrq_size_valid(p->session_entries) &&
           (EMU_PROCESS_SIZE(p->lane_entries, p->session_entries) <= size);
}

struct emu_peer_process *emu_peer_process_get(uint32_t slot)
{
    struct emu_proc_slot    *s   = &emu_g.control->slot[slot];
    uint32_t                 gen = s->gen;
    struct emu_peer_process *p;
    struct stat              st;

    for (p = emu_g.procs; p != NULL; p = p->next) {
        if ((p->slot == slot) && ((p->gen == gen) || p->self)) { /* what others write there does not end this process */
            return atomic_load(&p->dead) ? NULL : p;
        }
        if (p->slot == slot) {
            emu_peer_process_lost(p); /* the service thread does not know yet */
        }
    }
    if ((slot != emu_g.slot) && ((atomic_load(&s->state) != EMU_SLOT_LIVE) || !emu_slot_alive(s))) {
        return NULL;
    }
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return NULL;
    }
    p->slot   = slot;
    p->gen    = gen;
    p->pid    = s->pid;
    p->pidfd  = -1;
    p->seg_fd = -1;
    p->mem_fd = -1;
    p->conn_fd = -1;
    p->self   = slot == emu_g.slot;
    if (p->self) {
        p->shm             = emu_g.shm;
        p->lane_entries    = emu_g.env.lane_entries;
        p->session_entries = emu_g.env.mrq_entries_session;
        p->seg_fd          = emu_fd_dup(emu_g.seg_fd);
        if (p->seg_fd < 0) {
            emu_message("can't make another descriptor of the process segment: %s", strerror(errno));
            free(p);
            return NULL;
        }
    } else {
        p->seg_fd = emu_fd_keep(emu_peer_fd(p, s->seg_fd, O_RDWR));
        /* the descriptor must be that segment, and the segment one of ours */
        if ((p->seg_fd < 0) || fstat(p->seg_fd, &st) || (st.st_dev != s->seg_dev) || (st.st_ino != s->seg_ino) ||
            ((uint64_t)st.st_size < EMU_STAGS_OFF) || !emu_memfd_stays(p->seg_fd)) {
            goto err_free;
        }
        p->shm = emu_map_unlocked(NULL, EMU_STAGS_OFF, PROT_READ | PROT_WRITE, p->seg_fd, 0);
        if (p->shm == MAP_FAILED) {
            p->shm = NULL;
            goto err_free;
        }
        if (!segment_valid(p, (uint64_t)st.st_size)) {
            static pid_t told;
            if (told != p->pid) {
                told = p->pid;
                emu_message("the segment of process %d is not one of this version; ignored", (int)p->pid);
            }
            goto err_free;
        }
#ifdef SYS_pidfd_open
        p->pidfd = emu_fd_keep((int)syscall(SYS_pidfd_open, p->pid, 0));
#endif
        if (!emu_slot_alive(s) || (s->gen != gen)) {
            goto err_free; /* the pid may be another process by now */
        }
    }
    p->next     = emu_g.procs;
    emu_g.procs = p;
    emu_service_wake(); /* it watches the newcomer from now on */
    return p;

err_free:
    if (p->shm != NULL) {
        munmap(p->shm, EMU_STAGS_OFF);
    }
    if (p->seg_fd >= 0) {
        close(p->seg_fd);
    }
    if (p->pidfd >= 0) {
        close(p->pidfd);
    }
    if (p->conn_fd >= 0) {
        close(p->conn_fd);
    }
    free(p);
    return NULL;
}

bool emu_peer_process_alive(const struct emu_peer_process *p)
{
    const struct emu_proc_slot *s = &emu_g.control->slot[p->slot];

    /* the slot may be another process' by now */
    return !atomic_load(&p->dead) && (s->gen == p->gen) && emu_slot_alive(s);
}

/* The process has ended: every operation towards its VCQs sees a new generation.
 * The first who notices does it for all peers, unless its slot was given away already. */
void emu_peer_process_lost(struct emu_peer_process *p)
{
    if (p->self || atomic_exchange(&p->dead, true)) {
        return;
    }
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        uint32_t gen = atomic_load(&emu_g.control->vcq_gen[p->slot][i]);
        /* in this order: a generation that was there while the slot was still its own is not
         * that of a VCQ of the next owner, and does not come again */
        if ((gen & 1) && (__atomic_load_n(&emu_g.control->slot[p->slot].gen, __ATOMIC_SEQ_CST) == p->gen)) {
            atomic_compare_exchange_strong(&emu_g.control->vcq_gen[p->slot][i], &gen, gen + 1);
        }
    }
}

void emu_peer_processes_clean(void)
{
    struct emu_peer_process **link = &emu_g.procs, *p;

    while ((p = *link) != NULL) {
        if (atomic_load(&p->dead) && (p->pidfd >= 0)) {
            close(p->pidfd);
            p->pidfd = -1;
        }
        if (!atomic_load(&p->dead) || (atomic_load(&p->users) != 0)) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        emu_peer_unmap(p);
        munmap(p->shm, EMU_STAGS_OFF);
        close(p->seg_fd);
        if (p->mem_fd >= 0) {
            close(p->mem_fd);
        }
        if (p->conn_fd >= 0) {
            close(p->conn_fd);
        }
        free(p->segs);
        free(p);
    }
}

/* A peer of the process is gone; with the last one of a dead process all that is kept
 * of it can go. */
static void process_leave(struct emu_peer_process *p)
{
    if (atomic_fetch_sub(&p->users, 1) == 1) {
        emu_service_wake();
    }
}

/* --------------------------------------------------------------------- VCQs */

uint32_t emu_node_of(const uint8_t coords[6])
{
    uint64_t key = emu_coords_key(coords);

    for (uint32_t n = 0; n < EMU_MAX_NODES; n++) {
        uint64_t have = atomic_load_explicit(&emu_g.control->node[n].key, memory_order_acquire);
        if (have == key) {
            return n;
        }
        if (have == 0) {
            break;
        }
    }
    return EMU_MAX_NODES;
}

static void peer_free(struct emu_peer *peer)
{
    if (peer->tx.lane != NULL) {
        emu_lane_close(peer->tx.lane, peer->proc->lane_entries);
    }
    while (peer->carried != NULL) {
        struct emu_carried_lane *c = peer->carried;
        peer->carried              = c->next;
        munmap(c->lane, EMU_LANE_SIZE(peer->proc->lane_entries));
        free(c);
    }
    emu_relay_untold(peer);
    if (peer->session != NULL) {
        munmap(peer->session, EMU_SESSION_SIZE(peer->proc->session_entries));
    }
    munmap(peer->stags, EMU_STAGS_SIZE);
    for (unsigned i = 0; i < EMU_NUM_STAGS / EMU_REGION_PAGE; i++) {
        if (peer->regions[i] != emu_no_regions) {
            free(peer->regions[i]);
        }
    }
    process_leave(peer->proc);
    free(peer->bounce);
    free(peer);
}

void emu_peers_release(struct emu_vcq *vcq)
{
    for (unsigned h = 0; h < EMU_PEER_HASH; h++) {
        while (vcq->hash[h] != NULL) {
            struct emu_peer_alias *a = vcq->hash[h];
            vcq->hash[h]             = a->next;
            free(a);
        }
    }
    while (vcq->peers != NULL) {
        struct emu_peer *p = vcq->peers;
        vcq->peers         = p->next;
        peer_free(p);
    }
    vcq->last = &emu_no_peer;
}

static unsigned alias_hash(uint64_t id)
{
    return (unsigned)((id * 0x9e3779b97f4a7c15ull) >> 56) % EMU_PEER_HASH;
}

/* Forget a peer whose VCQ is gone, under all its names; a VCQ made again under
 * the same ID is another peer. */
static void peer_forget(struct emu_vcq *vcq, struct emu_peer *peer)
{
    for (unsigned h = 0; h < EMU_PEER_HASH; h++) {
        struct emu_peer_alias **link = &vcq->hash[h];
        while (*link != NULL) {
            struct emu_peer_alias *a = *link;
            if (a->peer == peer) {
                *link = a->next;
                free(a);
            } else {
                link = &a->next;
            }
        }
    }
    for (struct emu_peer **link = &vcq->peers; *link != NULL; link = &(*link)->next) {
        if (*link == peer) {
            *link = peer->next;
            break;
        }
    }
    vcq->last    = &emu_no_peer;
    vcq->last_id = 0;
    if (vcq->carrying) {
        peer->next     = vcq->graveyard;
        vcq->graveyard = peer;
    } else {
        peer_free(peer);
    }
}

#define FORGET_MOST 16u /* at a time: that keeps up with those that come */

/* Whoever talks to ever new VCQs is not to keep what it has of those that are gone: nobody
 * may name them again. */
static void peers_forget_gone(struct emu_vcq *vcq)
{
    struct emu_peer *next;
    unsigned         n = 0;

    for (struct emu_peer *p = vcq->peers; (p != NULL) && (n < FORGET_MOST); p = next) {
        next = p->next;
        if (atomic_load_explicit(p->gen_p, memory_order_acquire) != p->gen) {
            peer_forget(vcq, p);
            n++;
        }
    }
}

void emu_peers_bury(struct emu_vcq *vcq)
{
    while (vcq->graveyard != NULL) {
        struct emu_peer *p = vcq->graveyard;
        vcq->graveyard     = p->next;
        peer_free(p);
    }
}

static int peer_create(struct emu_vcq *vcq, const struct emu_vcq_name *name, uint64_t canon, struct emu_peer **peer_p)
{
    uint32_t                 n    = emu_node_of(name->coords);
    const struct emu_node   *node = &emu_g.control->node[n % EMU_MAX_NODES];
    struct emu_peer_process *proc;
    struct emu_peer         *peer;
    uint64_t                 owner;
    uint32_t                 index;

    if (n == EMU_MAX_NODES) {
        return UTOFU_ERR_MRQ_PEER;
    }
    owner = atomic_load(&node->vcq[(name->tni * EMU_NUM_CQS + name->cq) * EMU_NUM_CMPS + name->cmp]);
    index = EMU_VCQ_OWNER_INDEX(owner);
    if ((owner == 0) || (EMU_VCQ_OWNER_SLOT(owner) >= EMU_MAX_PROCS) || (index >= EMU_MAX_VCQS)) {
        return UTOFU_ERR_MRQ_PEER;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    emu_lock(&emu_g.lock);
    proc = emu_peer_process_get(EMU_VCQ_OWNER_SLOT(owner));
    if (proc != NULL) {
        atomic_fetch_add(&proc->users, 1); /* it stays while the peer does */
    }
    emu_unlock(&emu_g.lock);
    if (proc == NULL) {
        free(peer);
        return UTOFU_ERR_MRQ_PEER;
    }
    peer->id    = canon;
    peer->proc  = proc;
    peer->vcq   = index;
    peer->block = &proc->shm->vcq[index];
    peer->gen_p = &emu_g.control->vcq_gen[proc->slot][index];
    peer->gen   = atomic_load_explicit(peer->gen_p, memory_order_acquire);
    /* the slot may have been given away since: then that generation is another process' */
    if (!(peer->gen & 1) || (peer->block->vcq_id != canon) ||
        (__atomic_load_n(&emu_g.control->slot[proc->slot].gen, __ATOMIC_ACQUIRE) != proc->gen)) {
        process_leave(proc);
        free(peer);
        return UTOFU_ERR_MRQ_PEER;
    }
    peer->stags = emu_segment_map(proc->seg_fd, EMU_STAGS_OFF + index * EMU_STAGS_SIZE, EMU_STAGS_SIZE, PROT_READ);
    if (peer->stags == MAP_FAILED) {
        process_leave(proc);
        free(peer);
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < EMU_NUM_STAGS / EMU_REGION_PAGE; i++) {
        peer->regions[i] = emu_no_regions;
    }
    peer->next = vcq->peers;
    vcq->peers = peer;
    *peer_p    = peer;
    return UTOFU_SUCCESS;
}

int emu_peer_find(struct emu_vcq *vcq, uint64_t id, struct emu_peer **peer_p)
{
    struct emu_peer_alias *a;
    struct emu_vcq_name    name;
    struct emu_peer       *peer = NULL;
    unsigned               h    = alias_hash(id);
    uint64_t               canon;
    int                    code;

again:
    for (a = vcq->hash[h]; a != NULL; a = a->next) {
        if (a->id == id) {
            if (atomic_load_explicit(a->peer->gen_p, memory_order_acquire) != a->peer->gen) {
                peer_forget(vcq, a->peer);
                goto again;
            }
            vcq->last    = a->peer;
            vcq->last_id = id;
            *peer_p      = a->peer;
            return UTOFU_SUCCESS;
        }
    }
    if (!emu_vcq_id_decode(id, &name)) {
        return UTOFU_ERR_INVALID_VCQ_ID;
    }
    memcpy(name.path, name.coords + 3, 3);
    canon = emu_vcq_id_encode(&name);
    for (struct emu_peer *p = vcq->peers; p != NULL; p = p->next) {
        if (p->id == canon) {
            if (atomic_load_explicit(p->gen_p, memory_order_acquire) != p->gen) {
                peer_forget(vcq, p);
                break;
            }
            peer = p;
            break;
        }
    }
    if (peer == NULL) {
        peers_forget_gone(vcq);
        code = peer_create(vcq, &name, canon, &peer);
        if (code != UTOFU_SUCCESS) {
            return code;
        }
    }
    a = malloc(sizeof(*a));
    if (a == NULL) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    a->id        = id;
    a->peer      = peer;
    a->next      = vcq->hash[h];
    vcq->hash[h] = a;
    vcq->last    = peer;
    vcq->last_id = id;
    *peer_p      = peer;
    return UTOFU_SUCCESS;
}
