/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_armw_private.c - ARMW on memory that only its owner can reach by instructions: a mailbox
 * in the owner's segment, and its helper thread, which does it atomically against the owner's own
 * instructions (2.2.5).
 */
#include "emu_armw.h"
#include "emu_job.h"
#include "emu_now.h"
#include "emu_service.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ARMW_WAIT_MS   5
#define ARMW_LOCK_MS   1000 /* the owner waits for one that stands in */
#define STAND_IN_TRIES (2 * ARMW_LOCK_MS / ARMW_WAIT_MS)
#define BESIDE_TRIES   (100 / ARMW_WAIT_MS)
#define HELD_TRIES     (1000 / ARMW_WAIT_MS) /* it holds its threads itself, or was stopped just then */
#define ANSWER_MS      5000 /* then it has failed, as nothing waits for another process (1.2) */

static int futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return (int)syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* ------------------------------------------------------------------- owner */

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* The program may have made it read-only since it was registered; on older kernels nobody can say. */
static bool writable(uintptr_t addr)
{
    static int can_ask; /* 0: not known; -1: no */
    char       here    = 0;
    uintptr_t  page    = (uintptr_t)sysconf(_SC_PAGESIZE);

    if (can_ask == 0) {
        can_ask = madvise((void *)((uintptr_t)&here & ~(page - 1)), page, MADV_POPULATE_WRITE) ? -1 : 1;
    }
    return (can_ask < 0) || !madvise((void *)(addr & ~(page - 1)), page, MADV_POPULATE_WRITE) ||
           ((errno != EINVAL) && (errno != EFAULT) && (errno != ENOMEM));
}

/* The address of size bytes at a STADD of ours that peers may write; mem_lock is
 * held, so it stays registered.  Each field is read once: others can write them at any time. */
static int armw_target(const struct emu_mailbox *m, uint8_t size, void **addr_p)
{
    struct emu_vcq *vcq;
    uint64_t        stadd = __atomic_load_n(&m->stadd, __ATOMIC_RELAXED), off = EMU_STADD_OFF(stadd), word;
    uint32_t        index = __atomic_load_n(&m->vcq, __ATOMIC_RELAXED);
    struct iovec    lcl   = {&word, size}, rmt;

    if ((index >= EMU_MAX_VCQS) || ((vcq = emu_g.vcqs[index].vcq) == NULL) || ((size != 4) && (size != 8))) {
        return UTOFU_ERR_MRQ_PEER;
    }
    const struct emu_stag *e = &vcq->stags[EMU_STADD_STAG(stadd)];
    if ((e->high != EMU_STADD_HIGH(stadd)) || (off < e->begin) || (off >= e->end)) {
        return UTOFU_ERR_MRQ_RMT_STADD;
    }
    if ((e->end - off < size) || (off % size)) {
        return UTOFU_ERR_MRQ_RMT_LENGTH;
    }
    if (e->flags & UTOFU_REG_MEM_FLAG_READ_ONLY) {
        return UTOFU_ERR_MRQ_RMT_MEMORY;
    }
    uint64_t addr = e->addr + (off - e->begin);
    /* registered memory may have been unmapped by mistake: ask before touching */
    rmt = (struct iovec){(void *)(uintptr_t)addr, size};
    if (((process_vm_readv((pid_t)syscall(SYS_gettid), &lcl, 1, &rmt, 1, 0) < 0) && (errno == EFAULT)) ||
        !writable(addr)) {
        return UTOFU_ERR_MRQ_RMT_MEMORY;
    }
    *addr_p = (void *)(uintptr_t)addr;
    return UTOFU_SUCCESS;
}

/* The ARMW, atomic also against who stands in for us: that one began while we were stopped, and
 * may be in the middle of it.  Not for ever: it may be stopped itself.  (Who gets one of the locks whose holder
 * died has nothing to repair: its ARMW was done or not.) */
static bool armw_serve(const struct emu_mailbox *m, uint8_t size, void *addr, uint64_t *old_p)
{
    if (emu_shared_lock(&emu_g.shm->armw_lock, ARMW_LOCK_MS) == EMU_SHARED_NOT) {
        return false;
    }
    *old_p = emu_armw_direct(m->op, size, addr, m->operand, m->compare);
    emu_shared_unlock(&emu_g.shm->armw_lock);
    return true;
}

/* mem_lock is held: what is taken is done soon, unless this process is stopped */
static void mailbox_serve(struct emu_mailbox *m)
{
    uint32_t posted = EMU_MBOX_POSTED, taken = EMU_MBOX_TAKEN;
    uint8_t  size;
    void    *addr;
    int      code;

    if (!atomic_compare_exchange_strong(&m->state, &posted, EMU_MBOX_TAKEN)) {
        return;
    }
    size = __atomic_load_n(&m->size, __ATOMIC_RELAXED);
    code = armw_target(m, size, &addr);
    if ((code == UTOFU_SUCCESS) && !armw_serve(m, size, addr, &m->result)) {
        code = UTOFU_ERR_MRQ_OTHER;
    }
    m->code = code;
    if (!atomic_compare_exchange_strong(&m->state, &taken, EMU_MBOX_DONE)) {
        atomic_store(&m->state, EMU_MBOX_FREE);
    }
    futex(&m->state, FUTEX_WAKE, INT_MAX, NULL);
}

void emu_mailboxes_serve(void)
{
    bool posted = false;

    for (unsigned i = 0; i < EMU_MAILBOXES; i++) {
        posted |= atomic_load(&emu_g.shm->mailbox[i].state) == EMU_MBOX_POSTED;
    }
    if (posted) { /* while this process waits, and is stopped perhaps, others can stand in */
        pthread_mutex_lock(&emu_g.mem_lock);
        for (unsigned i = 0; i < EMU_MAILBOXES; i++) {
            mailbox_serve(&emu_g.shm->mailbox[i]);
        }
        pthread_mutex_unlock(&emu_g.mem_lock);
    }
}

/* --------------------------------------------------------------- initiator */

static bool armw_stopped_target(int fd, int op, unsigned size, uint64_t operand, uint64_t compare, uint64_t addr,
                                uint64_t *old_p)
{
    uint64_t old = 0, value;

    /* no functions that are cancellation points: the VCQ may be locked */
    if ((fd < 0) || (syscall(SYS_pread64, fd, &old, (long)size, addr) != (long)size)) {
        return false;
    }
    value = emu_armw_value(op, old, operand, compare);
    if (syscall(SYS_pwrite64, fd, &value, (long)size, addr) != (long)size) {
        return false;
    }
    *old_p = old;
    return true;
}

/* It is stopped, and not for a moment by its own doing: its threads would go on in the middle. */
static bool stands_still(struct emu_peer_process *proc, unsigned tries)
{
    return emu_process_stopped(proc->pid) && (!atomic_load(&proc->shm->held) || (tries > HELD_TRIES));
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

    if (emu_shared_try(&shm->stand_in) == EMU_SHARED_NOT) {
        return false;
    }
    alone = emu_shared_try(&shm->armw_lock) != EMU_SHARED_NOT;
    if ((alone || (tries >= BESIDE_TRIES)) && stands_still(proc, tries)) {
        done = atomic_compare_exchange_strong(&m->state, &posted, EMU_MBOX_CLAIMED);
    }
    if (done) {
        *code_p = armw_stopped_target(fd, op, size, operand, compare, addr, old_p) ? UTOFU_SUCCESS :
                                                                                     UTOFU_ERR_MRQ_RMT_MEMORY;
    }
    if (alone) {
        emu_shared_unlock(&shm->armw_lock);
    }
    emu_shared_unlock(&shm->stand_in);
    return done;
}

#define MBOX_PID_SHIFT 8 /* Linux' process numbers have 22 bits */
#define RECLAIM_TRIES  64u

/* Of initiators that died */
static void mailboxes_reclaim(struct emu_process *shm)
{
    for (unsigned i = 0; i < EMU_MAILBOXES; i++) {
        struct emu_mailbox *m     = &shm->mailbox[i];
        uint32_t            state = atomic_load(&m->state), kind = state & ((1u << MBOX_PID_SHIFT) - 1);
        pid_t               pid = (state != kind) ? (pid_t)(state >> MBOX_PID_SHIFT) : m->pid;

        if (((kind == EMU_MBOX_CLAIMED) || (kind == EMU_MBOX_DONE)) && (pid > 0) && kill(pid, 0) && (errno == ESRCH)) {
            atomic_compare_exchange_strong(&m->state, &state, EMU_MBOX_FREE);
        }
    }
}

/* NULL: the target has gone, or all are taken for too long, *code_p */
static struct emu_mailbox *mailbox_claim(struct emu_peer *peer, int *code_p)
{
    struct emu_process *shm = peer->proc->shm;
    uint64_t            end = emu_now() + ANSWER_MS * UINT64_C(1000000);

    for (unsigned tries = 0; atomic_load(peer->gen_p) == peer->gen; tries++) {
        for (unsigned i = 0; i < EMU_MAILBOXES; i++) {
            struct emu_mailbox *m    = &shm->mailbox[i];
            uint32_t            free = EMU_MBOX_FREE;

            /* whose claim it is comes with it: m->pid is that of the last one yet */
            if (atomic_compare_exchange_strong(&m->state, &free, EMU_MBOX_CLAIMED | (uint32_t)getpid() << MBOX_PID_SHIFT)) {
                m->pid = getpid();
                return m;
            }
        }
        if (emu_now() > end) {
            *code_p = UTOFU_ERR_MRQ_OTHER;
            return NULL;
        }
        /* all taken, perhaps by the dead: seen at once, as on a busy machine each yield takes long */
        if (tries % RECLAIM_TRIES == 0) {
            mailboxes_reclaim(shm);
        } else {
            sched_yield();
        }
    }
    *code_p = UTOFU_ERR_MRQ_PEER;
    return NULL;
}

int emu_service_armw(struct emu_peer *peer, int op, unsigned size, uint64_t operand, uint64_t compare, uint64_t stadd,
                     uint64_t addr, uint64_t *old_p)
{
    const struct timespec wait = {0, ARMW_WAIT_MS * 1000000L};
    struct emu_request    kick = {EMU_REQUEST_KICK, 0, 0};
    unsigned              tries = 0;
    uint64_t              end;
    int                   code = UTOFU_ERR_MRQ_PEER, conn;
    struct emu_mailbox   *m    = mailbox_claim(peer, &code);

    if (m == NULL) {
        return code;
    }
    m->vcq     = peer->vcq;
    m->op      = (uint8_t)op;
    m->size    = (uint8_t)size;
    m->stadd   = stadd;
    m->operand = operand;
    m->compare = compare;
    atomic_store(&m->state, EMU_MBOX_POSTED);
    end = emu_now() + ANSWER_MS * UINT64_C(1000000);

    emu_lock(&emu_g.lock);
    conn = emu_service_connection(peer->proc);
    if (conn >= 0) {
        (void)!send(conn, &kick, sizeof(kick), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    emu_unlock(&emu_g.lock);
    /* It executes another program by now: where there was no connection, nobody has told. */
    if ((conn < 0) && !emu_peer_process_alive(peer->proc)) {
        emu_peer_process_lost(peer->proc);
    }

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
        if (emu_now() >= end) { /* its helper thread does not answer: stopped in the middle; or without a descriptor */
            if (!atomic_compare_exchange_strong(&m->state, &state,
                                                (state == EMU_MBOX_TAKEN) ? EMU_MBOX_ABANDONED : EMU_MBOX_FREE)) {
                continue;
            }
            return UTOFU_ERR_MRQ_OTHER;
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
            tries  = emu_process_stopped(peer->proc->pid) ? tries + 1 : 0;
            if ((tries != 0) && stands_still(peer->proc, tries) &&
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
