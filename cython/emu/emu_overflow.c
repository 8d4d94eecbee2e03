/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_overflow.c - the MRQ of a process overflows that does not poll (chapter 7).
 *
 * Whoever has a notice for which there is no room sees it, and tells the helper thread of the
 * process, which ends it.  (What that process sees itself ends it where it is seen.)
 */
#include "emu_path.h"
#include "emu_service.h"

#include <sys/socket.h>

static _Atomic bool wanted; /* somebody has told */

void emu_overflow_told(void)
{
    atomic_store(&wanted, true);
}

void emu_overflow_look(void)
{
    if (!atomic_load_explicit(&wanted, memory_order_relaxed)) {
        return;
    }
    atomic_store(&wanted, false);
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        struct emu_vcq *vcq = emu_g.vcqs[i].vcq;

        if ((vcq != NULL) && (atomic_load(&vcq->block->epoch) & EMU_EPOCH_OVERFLOW)) {
            emu_async_error("MRQ Overflow", vcq);
        }
    }
}

EMU_COLD void emu_overflow_tell(struct emu_peer *peer)
{
    struct emu_request look = {EMU_REQUEST_KICK, 0, 0};
    int                conn;

    atomic_fetch_or(&peer->block->epoch, EMU_EPOCH_OVERFLOW);
    emu_doorbell_check(peer->block);
    if (peer->overflow_told) {
        return;
    }
    emu_lock(&emu_g.lock);
    if (peer->proc->self) {
        emu_overflow_told();
        emu_overflow_look();
    } else {
        conn                = emu_service_connection(peer->proc);
        peer->overflow_told = (conn >= 0) && (send(conn, &look, sizeof(look), MSG_NOSIGNAL | MSG_DONTWAIT) > 0);
    }
    emu_unlock(&emu_g.lock);
}
