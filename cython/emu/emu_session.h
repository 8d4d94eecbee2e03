/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_session.h - the session of a VCQ (2.2.8), as its owner (emu_session.c) and who
 * carries for it (emu_session_carry.c) both see it.
 *
 * `credits` is the sum of the SPSs that arrived; as long as fewer descriptors were
 * started and there are any, they start.  One carrier at a time: the lock is only
 * ever tried, since its holder looks again after giving it back, so nobody waits
 * for a process that is stopped.
 *
 * A carrier may die in the middle of an operation.  `step` says how far it got, so that
 * the next one goes on there; who that is: emu_relay.c.  What has an effect outside is
 * counted there (a lane, the local notices, credit), so it is known whether it happened:
 * unless the target has been given credit since, maybe by others.  Then the operation ends
 * with an error in the TCQ.
 */
#ifndef EMU_SESSION_H
#define EMU_SESSION_H

#include "emu_modes.h"
#include "emu_path.h"

#include <errno.h>

/* The upper bits of `credits` are the VCQ's generation: what arrives for the VCQ that had this
 * index before is not for the one that has it now. */
#define EMU_CREDIT_GEN_SHIFT 48
#define EMU_CREDIT_MASK      (((uint64_t)1 << EMU_CREDIT_GEN_SHIFT) - 1)
#define EMU_CREDIT_GEN(gen)  ((uint64_t)(gen) << EMU_CREDIT_GEN_SHIFT)

/* `step`: the number of the operation, how many died in it, and what was done of it */
enum emu_step {
    EMU_STEP_NONE,
    EMU_STEP_MOVED,     /* the data */
    EMU_STEP_CREDITING, /* the target has no credit yet when it has credit_before */
    EMU_STEP_CREDITED,
    EMU_STEP_NOTIFYING, /* the remote notice is written when its lane is beyond lane_before */
    EMU_STEP_NOTIFIED,
    EMU_STEP_LOCAL      /* the local notice, of `outcome`, is written when there are more than local_before */
};
#define EMU_STEP_DEATHS_SHIFT 4
#define EMU_STEP_DEATHS_MAX   3u /* then it is the operation that kills */
#define EMU_STEP_NUMBER_SHIFT 8

/* (A session with more descriptors than a TOQ holds is none: somebody wrote into it.) */
EMU_INLINE bool emu_session_startable(struct emu_session *s)
{
    uint64_t claimed = atomic_load(&s->claimed);

    return (claimed < (atomic_load(&s->credits) & EMU_CREDIT_MASK)) &&
           (atomic_load(&s->posted) - claimed - 1 < EMU_SESSION_TOQ);
}

/* There is something to do, or a carrier is doing it, or died. */
EMU_INLINE bool emu_session_pending(struct emu_session *s)
{
    return emu_session_startable(s) || (atomic_load(&s->started) != atomic_load(&s->claimed));
}

/* False: there is a carrier. */
bool emu_session_try_lock(struct emu_session *s);

/* The lane is one towards this target, not towards a process that had its VCQ ID before. */
EMU_INLINE bool emu_session_leads_to(const struct emu_session_lane *l, const struct emu_peer *target)
{
    return (l->target_slot == target->proc->slot) && (l->target_process == target->proc->gen) &&
           (l->target_vcq == target->vcq) && (l->target_gen == target->gen);
}

#endif /* EMU_SESSION_H */
