/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_relay.c - when who carries for a session-mode VCQ ends in the middle, somebody goes on,
 * also while the VCQ's owner sleeps or is stopped.
 *
 * A carrier tells the process of the VCQ, when it maps its session, and those of the VCQ's
 * targets, before it first writes there (emu_service_carries).  When that connection is over,
 * at the carrier's end, each of them looks whether there is anything left to be done, in a
 * thread that lives as long as that takes: the service thread never waits for a lock.
 */
#include "emu_modes.h"
#include "emu_path.h"
#include "emu_service.h"
#include "emu_vma.h"

#include <signal.h>
#include <stdlib.h>

#define CARRIED_MAX 4096u /* VCQs for which others carry; beyond that their owners go on when they poll */

/* ------------------------------------------------------------- the carrier */

struct emu_carried_told {
    uint32_t                 slot, gen; /* of the process */
    struct emu_carried_told *next;
};

static void tell(struct emu_peer *owner, struct emu_peer_process *proc)
{
    struct emu_carried_told *t;

    for (t = owner->told; t != NULL; t = t->next) {
        if ((t->slot == proc->slot) && (t->gen == proc->gen)) {
            return;
        }
    }
    if (proc->self || owner->proc->self || ((t = malloc(sizeof(*t))) == NULL)) {
        return; /* what ends with this process is over */
    }
    *t          = (struct emu_carried_told){proc->slot, proc->gen, owner->told};
    owner->told = t;
    emu_service_carries(proc, owner->id);
}

void emu_relay_owner(struct emu_peer *owner)
{
    tell(owner, owner->proc);
}

void emu_relay_target(struct emu_peer *owner, struct emu_peer *target)
{
    tell(owner, target->proc);
}

void emu_relay_untold(struct emu_peer *owner)
{
    while (owner->told != NULL) {
        struct emu_carried_told *t = owner->told;

        owner->told = t->next;
        free(t);
    }
}

/* ------------------------------------------------------ who goes on */

static struct { /* of the service thread */
    unsigned num;
    struct {
        int      conn;
        uint64_t id;
    } vcq[CARRIED_MAX];
} carried;

static struct {
    pthread_mutex_t lock;
    pthread_t       thread;
    bool            made, running;
    _Atomic bool    stop;
    unsigned        num;
    uint64_t        id[CARRIED_MAX];
} rest = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void go_on(uint64_t id)
{
    static struct emu_vcq via; /* there is one thread */

    via.last = &emu_no_peer;
    emu_session_go_on(&via, id);
    emu_peers_release(&via);
}

static void *rest_main(void *arg)
{
    sigset_t faults;
    uint64_t id;

    (void)arg;
    sigemptyset(&faults);
    sigaddset(&faults, SIGBUS); /* of files that are cut off */
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
    for (;;) {
        pthread_mutex_lock(&rest.lock);
        if ((rest.num == 0) || emu_relay_ends()) {
            break;
        }
        id = rest.id[--rest.num];
        pthread_mutex_unlock(&rest.lock);
        go_on(id);
    }
    rest.running = false;
    pthread_mutex_unlock(&rest.lock);
    emu_service_wake(); /* to be waited for */
    return NULL;
}

void emu_relay_told(int conn, uint64_t id)
{
    for (unsigned i = 0; i < carried.num; i++) {
        if ((carried.vcq[i].conn == conn) && (carried.vcq[i].id == id)) {
            return;
        }
    }
    if (carried.num < CARRIED_MAX) {
        carried.vcq[carried.num].conn = conn;
        carried.vcq[carried.num].id   = id;
        carried.num++;
    }
}

void emu_relay_lost(int conn)
{
    bool     any = false;
    unsigned i   = 0;

    while (i < carried.num) {
        if (carried.vcq[i].conn != conn) {
            i++;
            continue;
        }
        pthread_mutex_lock(&rest.lock);
        if (rest.num < CARRIED_MAX) {
            rest.id[rest.num++] = carried.vcq[i].id;
            any                 = true;
        }
        pthread_mutex_unlock(&rest.lock);
        carried.vcq[i] = carried.vcq[--carried.num];
    }
    if (!any) {
        return;
    }
    emu_relay_reap();
    pthread_mutex_lock(&rest.lock);
    if (!rest.running && !emu_relay_ends()) {
        emu_rehome_beside(true);
        rest.made = rest.running = emu_thread_start(&rest.thread, rest_main, NULL) == 0;
        emu_rehome_beside(rest.made);
    }
    pthread_mutex_unlock(&rest.lock);
}

void emu_relay_reap(void)
{
    bool ended;

    pthread_mutex_lock(&rest.lock);
    ended = rest.made && !rest.running;
    pthread_mutex_unlock(&rest.lock);
    if (ended) {
        pthread_join(rest.thread, NULL);
        rest.made = false;
        emu_rehome_beside(false);
    }
}

bool emu_relay_ends(void)
{
    return atomic_load_explicit(&rest.stop, memory_order_relaxed);
}

void emu_relay_stop(void)
{
    atomic_store(&rest.stop, true);
    if (rest.made) {
        pthread_join(rest.thread, NULL);
    }
    emu_relay_forget();
}

void emu_relay_forget(void)
{
    carried.num = 0;
    rest.num    = 0;
    rest.made = rest.running = false;
    atomic_store(&rest.stop, false);
    pthread_mutex_init(&rest.lock, NULL);
}
