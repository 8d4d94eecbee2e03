# SPDX-License-Identifier: BSD-3-Clause
"""Senders, one receiver and the network between them, as one state.

``moves`` says what can happen next, ``apply`` does one of it.  The network carries
operations of a (source, destination) pair in order; different pairs have nothing to
do with each other.  A sender may die at any step; what it has in flight lands or
is lost from some point on.  A put to a dead sender fails, which is told after
everything that the sender had in flight has landed, and so is that another has its
VCQ (the mutation ``late_delivery`` takes this assumption away).
"""

from __future__ import annotations

from typing import NamedTuple

from uct_tofu.model import protocol as p
from uct_tofu.model.sizes import GRANT, Sizes
from uct_tofu.model.storage import put


class System(NamedTuple):
    """A system to explore.

    Parameters
    ----------
    sizes : Sizes
    todo : tuple of tuple of int
        Messages that each sender sends, by endpoint.
    deaths, restarts : int
        How many senders may die, and how many of them have a successor, a process
        with the same VCQ that sends as much again.
    leave : bool
        A sender that has sent everything may close its endpoints and give its
        slots back.
    recall_always : bool
        Slots may be asked back at any time, not only when somebody waits.
    idle : bool
        A sender may give its slots back at any time when nobody of it waits for
        credit, as the core does with a channel that was not used for long.
    silent : bool
        Successors send nothing.
    """

    sizes: Sizes
    todo: tuple
    deaths: int = 0
    restarts: int = 0
    leave: bool = False
    recall_always: bool = False
    idle: bool = False
    silent: bool = False


class State(NamedTuple):
    """Everything."""

    senders: tuple
    receiver: p.Receiver
    up: tuple  # operations in flight, by sender, oldest first
    down: tuple
    deaths: int
    restarts: int


# Moves that need not happen: a run without them must come to an end too.
OPTIONAL = frozenset({"die", "lose", "restart", "idle"})


def initial(system: System) -> State:
    """Nobody has done anything."""
    n = len(system.todo)
    return State(
        tuple(p.new_sender(i, todo) for i, todo in enumerate(system.todo)),
        p.new_receiver(system.sizes, n),
        ((),) * n,
        ((),) * n,
        system.deaths,
        system.restarts,
    )


def moves(system: System, state: State) -> list[tuple]:
    """What can happen next, as (name, sender, more...)."""
    found = []
    bugs = system.sizes.mutations
    for s in state.senders:
        i = s.number
        if state.up[i]:
            found.append(("up", i, 0))
            if "no_strong_order" in bugs:
                found += [("up", i, k) for k in range(1, len(state.up[i]))]
        if state.down[i] and (
            "late_delivery" in bugs or not _is_early(s, state.up[i], state.down[i][0])
        ):
            found.append(("down", i))
        if not s.alive:
            if state.up[i]:
                found.append(("lose", i))
            if state.restarts:
                found.append(("restart", i))
            continue
        if state.deaths:
            found.append(("die", i))
        if p.channel_can_move(s):
            found.append(("channel", i))
        found += [("turn", i, e) for e, n in enumerate(s.todo) if n and _useful(s, e)]
        if s.state == p.OPEN and (
            s.recall == s.nonce or (system.leave and not any(s.todo))
        ):
            found.append(("release", i))
        elif system.idle and s.state == p.OPEN and not s.want:
            found.append(("idle", i))
    found += _receiver_moves(system, state)
    return found


def _is_early(s: p.Sender, up: tuple, op: tuple) -> bool:
    """Would the answer to an operation tell of a death before what is in flight?"""
    if not s.alive:
        return bool(up)
    return op[0] == "ask" and any(sent[-1][0] != s.incarnation for sent in up)


def _useful(s: p.Sender, ep: int) -> bool:
    """Would a turn of the endpoint change anything?"""
    if not s.starved[ep] or s.left or s.state == p.IDLE:
        return True
    if s.state != p.OPEN:
        return not s.want
    return s.recall == s.nonce or s.credit[1] != s.acked or not s.want


def _receiver_moves(system: System, state: State) -> list[tuple]:
    r = state.receiver
    sz = system.sizes
    if r.answered is not None:
        return [("free",)]
    found = []
    if r.stack:
        found.append(("end",))
    if r.mrq and len(r.stack) < sz.depth:
        found.append(("read",))
    if r.stack and len(r.stack) >= sz.depth:
        return found  # the handler does not call progress
    free_to_post = p.may_post_silent(sz, r)
    if free_to_post:
        for i in r.due:
            found.append(("report", i))
            if not (state.senders[i].alive or state.up[i]):
                found.append(("refused", i))
        if r.jobs and not r.short:
            found.append(("jobs",))
    if not r.mrq:
        found += [("reclaim", i) for i, loan in enumerate(r.loans)
                  if loan.gone and not loan.dead]  # fmt: skip
        if r.silent and ("late_errors" in sz.mutations or not any(state.down)):
            found.append(("seen_empty",))
    if r.stack:
        return found
    asked = r.short and any(job[2] == GRANT for job in r.jobs)
    for loan in r.loans:
        s = state.senders[loan.sender]
        if (
            (asked or (system.recall_always and s.alive))
            and not loan.dead
            and not loan.gone
            and (s.alive or "no_loan_probe" not in sz.mutations)
            and s.recall != loan.nonce
            and not any(op[0] == "recall" for op in state.down[loan.sender])
            and not any(n[:2] == ("gone", loan.sender) for n in r.mrq)
        ):
            found.append(("recall", loan.sender))
        elif (
            asked
            and not loan.dead
            and not loan.gone
            and s.alive
            and s.recall == loan.nonce  # it was asked for its slots
            and s.incarnation != loan.nonce[0]  # else its answer says nothing
            and "no_identity" not in sz.mutations
            and not any(op[0] == "ask" for op in state.down[loan.sender])
            and not any(n[:2] == ("other", loan.sender) for n in r.mrq)
        ):
            found.append(("ask", loan.sender))
    if system.restarts:
        jobs = {job[0] for job in r.jobs}
        for entry, claim in enumerate(r.claims):
            seen = r.seen[entry]
            if claim and entry not in jobs and (seen == 0 or (seen == 1 and not r.mrq)):
                found.append(("see", entry))
    if "no_claim_probe" not in sz.mutations:
        for entry, claim in enumerate(r.claims):
            if claim > 0 and not state.senders[claim - 1].alive:
                i = claim - 1
                if not any(op[0] == "probe" for op in state.down[i]) and not any(
                    n[:2] == ("gone", i) for n in r.mrq
                ):
                    found.append(("probe", i, entry))
    return found


def apply(system: System, state: State, move: tuple) -> State:
    """The state after a move; raises Violation."""
    name = move[0]
    if name in _RECEIVER:
        return _apply_receiver(system, state, move)
    i = move[1]
    s = state.senders[i]
    if name == "up":
        return _up(system, state, s, move[2])
    if name == "down":
        op, rest = state.down[i][0], state.down[i][1:]
        state = state._replace(down=put(state.down, i, rest))
        if s.alive and op[0] == "ask":
            return state._replace(
                receiver=p.holder_answers(
                    system.sizes, state.receiver, i, s.incarnation, op
                )
            )
        if s.alive:
            return _with_sender(state, p.receive_down(s, op))
        return state._replace(
            receiver=p.post_failed(system.sizes, state.receiver, i, op)
        )
    if name == "turn":
        return _posted(state, *p.turn(system.sizes, s, move[2]))
    if name == "channel":
        return _posted(state, *p.channel_step(system.sizes, s))
    if name in ("release", "idle"):
        return _with_sender(state, p.release(system.sizes, s))
    if name == "die":
        gone = p.Sender(i, alive=False, incarnation=s.incarnation, sent=s.sent)
        return _with_sender(state, gone)._replace(deaths=state.deaths - 1)
    if name == "lose":
        return state._replace(up=put(state.up, i, ()))
    if name == "restart":
        todo = (0,) * len(system.todo[i]) if system.silent else system.todo[i]
        heir = p.new_sender(i, todo, s.incarnation + 1)
        return _with_sender(state, heir)._replace(restarts=state.restarts - 1)
    raise ValueError(move)


def _with_sender(state: State, s: p.Sender) -> State:
    return state._replace(senders=put(state.senders, s.number, s))


def _posted(state: State, s: p.Sender, ops: tuple) -> State:
    state = _with_sender(state, s)
    if ops:
        up = state.up[s.number] + ops
        state = state._replace(up=put(state.up, s.number, up))
    return state


def _up(system: System, state: State, s: p.Sender, k: int) -> State:
    i = s.number
    op = state.up[i][k]
    r, old = p.receive_up(system.sizes, state.receiver, i, op)
    state = state._replace(
        up=put(state.up, i, state.up[i][:k] + state.up[i][k + 1 :]), receiver=r
    )
    # the answer to a compare-and-swap: of no interest after a restart
    if old is not None and s.state == p.CLAIMING and s.nonce == op[2]:
        state = _with_sender(state, s._replace(old_value=old))
    return state


_RECEIVER = frozenset(
    {"free", "end", "read", "report", "refused", "see", "jobs", "reclaim",
     "seen_empty", "recall", "ask", "probe"}
)  # fmt: skip


def _apply_receiver(system: System, state: State, move: tuple) -> State:
    sz, r, name = system.sizes, state.receiver, move[0]
    to, ops = None, ()
    if name == "free":
        r = p.free_answered(r)
    elif name == "end":
        r = p.end_handler(sz, r)
    elif name == "read":
        r = p.read_notice(sz, r)
    elif name == "report":
        to = move[1]
        r, ops = p.report(sz, r, to)
    elif name == "refused":  # the post itself says that the sender is dead
        r = p.borrower_gone(sz, r, move[1])
    elif name == "jobs":
        r, to, ops = p.jobs_step(sz, r)
    elif name == "reclaim":
        r = p.reclaim(r, move[1])
    elif name == "see":
        r = p.see_claim(r, move[1])
    elif name == "seen_empty":
        r = r._replace(silent=0)
    elif name in ("recall", "ask"):
        to = move[1]
        at = p.find_loan(r, to)
        ops = ((name, r.loans[at].nonce),)
    else:
        to, ops = move[1], (("probe", move[2]),)
        r = r._replace(probed=put(r.probed, move[2], True))
    state = state._replace(receiver=r)
    if to is not None:
        state = state._replace(down=put(state.down, to, state.down[to] + ops))
    return state


def is_final(state: State) -> bool:
    """All that the living sent was delivered, and nobody waits for anything."""
    r = state.receiver
    return (
        not any(state.up)
        and not any(state.down)
        and not (r.mrq or r.jobs or r.stack or r.due)
        # a claim of a predecessor is freed by the next request
        and all(not c or state.senders[c - 1].incarnation for c in r.claims)
        and all(not c or state.senders[c - 1].alive for c in r.claims)
        and r.answered is None
        and all(
            s.state in (p.IDLE, p.OPEN)
            and not any(s.todo)
            and (s.sent == 0 or r.delivered[s.number] == (s.incarnation, s.sent))
            for s in state.senders
            if s.alive
        )
        and not any(loan.gone or loan.dead for loan in r.loans)
    )
