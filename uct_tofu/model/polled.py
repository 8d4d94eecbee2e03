# SPDX-License-Identifier: BSD-3-Clause
"""Messages without a notice (tofu_am_polled.c), searched: one loan, for ever.

Small messages with and without a notice and large ones in any mixture; permits given,
asked back and given again; credit; puts that take any time, in order per direction; a
receiver that begins to sleep; a sender that is held up between looking at its permit
and posting; its death.  What is searched for: a message that is delivered twice, out of
order or never; a slot that is written too early; a sleeper that nothing wakes; and a
sender that gets no credit.

Turns are kept relative to the message that is delivered next, and modulo ``turns`` in
the tails, as they are on the wire; slots relative to the one whose turn it is.
"""

from __future__ import annotations

from typing import NamedTuple

from uct_tofu.model.explore import Found, Result, TooLarge
from uct_tofu.model.protocol import Violation

NONE, GIVEN, ASKED_BACK = range(3)  # TOFU_PERMIT_*

POLLED_MUTATIONS = {
    "no_drain": "a notice is handled before the messages without notice before it",
    "no_turn": "a tail does not say how many messages were sent before",
    "no_clear": "a message with a notice leaves the old tail in its slot",
    "no_round": "a permit may stay for any number of other messages",
    "old_tails": "tails of the permit before stay in the slots",
    "forget": "who has asked for the permit looks at the slots no more",
    "no_answer": "the sender does not answer, the receiver does not wait for it",
    "long_sleep": "with a permit that is not back it sleeps as without",
    "no_last_look": "a loan ends without a look at its slots",
}


class Loan(NamedTuple):
    """A loan of `count` small slots and one large."""

    count: int = 2
    turns: int = 32  # what the tail counts modulo
    round: int = 2  # TOFU_PERMIT_ROUND
    flight: int = 2  # puts on their way, each direction
    sleep: bool = False
    death: bool = False
    mutations: frozenset = frozenset()


class State(NamedTuple):
    """Both ends and what is between them; message 0 is delivered next."""

    # sender
    at: int = 0  # slot of its next small message, from the receiver's on
    left: int = 0
    large: int = 1
    turn: int = 0
    key: bool = False
    seen: tuple = ()  # the permit word
    looked: str = ""  # "p", "n": what it is about to post
    dead: bool = False
    # on their way, and the mailbox
    up: tuple = ()
    down: tuple = ()
    word: tuple = ()  # permit
    credit: tuple = (0, 0)  # not yet taken note of
    # receiver
    tails: tuple = ()  # per slot: turn, or None
    unread: frozenset = frozenset()  # (slot or -1, message) that came
    mrq: tuple = ()
    permit: int = NONE
    serial: int = 0  # of the last permit, modulo 2
    row: int = 0  # messages since the last without a notice
    used: tuple = (0, 0)  # consumed, not reported
    sleepy: bool = False
    armed: str = ""  # "soon", "late"
    over: bool = False


def initial(loan: Loan) -> State:
    """The loan as it was granted."""
    return State(left=loan.count, tails=(None,) * loan.count)


def ready(loan: Loan, s: State) -> bool:
    """tofu_lender_ready."""
    if s.permit == NONE or ("forget" in loan.mutations and s.permit == ASKED_BACK):
        return False
    if "no_turn" in loan.mutations:
        return s.tails[0] is not None
    return s.tails[0] == 0


def _deliver(loan: Loan, s: State, turn: int, slot: int | None) -> State:
    """Message `turn` is handled; all counts go on by one."""
    came = {number: where for where, number in s.unread}
    if turn != 0 or 0 not in came:
        raise Violation(f"message {turn} is delivered now: {s}")

    def older(item):
        return (item[0], *item[1:-1], item[-1] - 1)

    def turned(item):
        return (item[0], (item[1] - 1) % loan.count, item[2])

    del came[0]
    tails, at = s.tails, s.at
    up, mrq = (tuple(older(item) for item in items) for items in (s.up, s.mrq))
    if slot is not None:
        if slot != 0:
            raise Violation(f"a message in slot {slot} is dropped: {s}")
        tails, at = (*tails[1:], tails[0]), (at - 1) % loan.count
        up, mrq = (
            tuple(turned(item) if len(item) == 3 else item for item in items)
            for items in (up, mrq)
        )
        came = {
            number: (where - 1) % loan.count if where >= 0 else where
            for number, where in came.items()
        }
    used = (s.used[0] + (slot is not None), s.used[1] + (slot is None))
    return s._replace(
        tails=tuple(t if t is None else (t - 1) % loan.turns for t in tails),
        at=at,
        up=up,
        mrq=mrq,
        turn=s.turn - 1,
        unread=frozenset((where, number - 1) for number, where in came.items()),
        used=used,
        row=min(s.row + 1, loan.round),
    )


# ------------------------------------------------------------------- sender


def _note(loan: Loan, s: State) -> State:
    """tofu_chan_permit."""
    if s.word == s.seen:
        return s
    if s.word[0] == "permit":
        return s._replace(key=True, seen=s.word)
    if "no_answer" not in loan.mutations:
        s = s._replace(up=(*s.up, ("answer", s.turn)))
    return s._replace(key=False, seen=s.word)


def _post(loan: Loan, s: State, kind: str) -> State:
    slot = s.at
    unread = {item[1] for item in s.up if len(item) == 3}
    unread |= {where for where, _ in s.unread}
    if s.left > loan.count or slot in unread:
        raise Violation(f"slot {slot} is written over: {s}")
    return s._replace(
        up=(*s.up, (kind, slot, s.turn)),
        at=(slot + 1) % loan.count,
        left=s.left - 1,
        turn=s.turn + 1,
        looked="",
    )


def _sender(loan: Loan, s: State) -> list[tuple]:
    found = []
    if s.dead or len(s.up) >= loan.flight:
        return found
    if s.looked:
        return [("post", _post(loan, s, s.looked))]
    if s.left > 0:
        noted = _note(loan, s)
        if noted.key:
            found.append(("look", noted._replace(looked="p")))
        found.append(("look", noted._replace(looked="n")))
    if s.large > 0:
        after = s._replace(
            up=(*s.up, ("large", s.turn)), turn=s.turn + 1, large=s.large - 1
        )
        found.append(("large", after))
    return found


def _sender_by_itself(loan: Loan, s: State) -> list[tuple]:
    """Its tick, and credit when it has none."""
    found = []
    if s.dead or s.looked or len(s.up) >= loan.flight:
        return found
    if s.word != s.seen:
        found.append(("tick", _note(loan, s)))
    if s.credit != (0, 0):
        s = _note(loan, s)
        after = s._replace(
            left=s.left + s.credit[0], large=s.large + s.credit[1], credit=(0, 0)
        )
        found.append(("take", after))
    return found


# ------------------------------------------------------------------ network


def _land_up(loan: Loan, s: State) -> State:
    item, s = s.up[0], s._replace(up=s.up[1:])
    if item[0] != "answer":
        where = item[1] if len(item) == 3 else -1
        s = s._replace(unread=s.unread | {(where, item[-1])})
    if item[0] == "p":
        if s.armed == "late":
            raise Violation(f"a message comes to a sleeper and does not wake: {s}")
        tails = list(s.tails)
        tails[item[1]] = item[2] % loan.turns
        return s._replace(tails=tuple(tails))
    return s._replace(mrq=(*s.mrq, item), armed="")


def _land_down(s: State) -> State:
    item, s = s.down[0], s._replace(down=s.down[1:])
    if item[0] == "credit":
        small, large = s.credit
        return s._replace(credit=(small + item[1], large + item[2]))
    return s._replace(word=item)


# ----------------------------------------------------------------- receiver


def poll(loan: Loan, s: State) -> State:
    """tofu_am_take_polled."""
    fresh = (0, s.tails[0]) in s.unread
    s = _deliver(loan, s, s.tails[0] if fresh else -1, 0)
    return s._replace(row=0)


def read(loan: Loan, s: State) -> State:
    """A notice, when all before it was delivered."""
    item, s = s.mrq[0], s._replace(mrq=s.mrq[1:])
    if item[0] == "answer":
        # nobody looks at tails before the next permit, which clears them
        keep = "old_tails" in loan.mutations
        tails = s.tails if keep else (None,) * loan.count
        return s._replace(permit=NONE, tails=tails)
    if item[0] == "large":
        return _deliver(loan, s, item[1], None)
    if s.permit != NONE and "no_clear" not in loan.mutations:
        s = s._replace(tails=(None, *s.tails[1:]))
    return _deliver(loan, s, item[2], item[1])


def _report(loan: Loan, s: State) -> State:
    """Credit, and the rule of TOFU_PERMIT_ROUND."""
    s = s._replace(down=(*s.down, ("credit", *s.used)), used=(0, 0))
    if s.permit == GIVEN and s.row >= loan.round and "no_round" not in loan.mutations:
        s = _revoke(loan, s)
    return s


def _revoke(loan: Loan, s: State) -> State:
    after = NONE if "no_answer" in loan.mutations else ASKED_BACK
    return s._replace(down=(*s.down, ("revoke", s.serial)), permit=after)


def _receiver_by_itself(loan: Loan, s: State) -> list[tuple]:
    found = []
    is_ready = ready(loan, s)
    if s.armed == "soon":
        found.append(("timer", s._replace(armed="")))
    if s.armed:
        return found
    if is_ready:
        found.append(("poll", poll(loan, s)))
    if s.mrq and (not is_ready or "no_drain" in loan.mutations):
        found.append(("read", read(loan, s)))
    if s.used != (0, 0) and len(s.down) < loan.flight:
        found.append(("report", _report(loan, s)))
    if s.dead and not s.up and not s.mrq and not s.over:
        if not is_ready or "no_last_look" in loan.mutations:
            if s.unread:
                raise Violation(f"messages of a dead sender are lost: {s}")
            found.append(("reclaim", s._replace(over=True)))
    return found


def _receiver(loan: Loan, s: State) -> list[tuple]:
    found = []
    if s.armed:
        return found
    room = len(s.down) < loan.flight
    if s.permit == NONE and not s.sleepy and room and not s.dead:
        serial = s.serial ^ 1
        tails = s.tails if "old_tails" in loan.mutations else (None,) * loan.count
        after = s._replace(
            down=(*s.down, ("permit", serial)), serial=serial, permit=GIVEN,
            tails=tails, row=0,
        )  # fmt: skip
        found.append(("permit", after))
    if s.permit == GIVEN and room and not s.dead:
        found.append(("revoke", _revoke(loan, s)))
    if loan.sleep and not s.sleepy:
        found.append(("sleepy", s._replace(sleepy=True)))
    if s.sleepy:
        found.append(("awake", s._replace(sleepy=False)))
    if s.sleepy and not ready(loan, s) and not s.mrq and s.used == (0, 0):
        asked = s.permit != GIVEN  # else it is asked for as soon as there is room
        late = s.permit == NONE or "long_sleep" in loan.mutations
        if asked:
            found.append(("arm", s._replace(armed="late" if late else "soon")))
    return found


# -------------------------------------------------------------------- search


def steps(loan: Loan, s: State) -> list[tuple]:
    """What comes by itself, as (name, state)."""
    if s.over:
        return []
    found = []
    if s.up:
        found.append(("land", _land_up(loan, s)))
    if s.down:
        found.append(("land", _land_down(s)))
    return found + _receiver_by_itself(loan, s) + _sender_by_itself(loan, s)


def choices(loan: Loan, s: State) -> list[tuple]:
    """What somebody may do or not."""
    if s.over:
        return []
    found = _sender(loan, s) + _receiver(loan, s)
    if loan.death and not s.dead:
        found.append(("die", s._replace(dead=True, looked="")))
    return found


def _check_quiet(loan: Loan, s: State) -> None:
    """Nothing comes by itself any more."""
    if s.unread or s.turn:
        raise Violation(f"a message is never delivered: {s}")
    if not s.dead and not s.looked and (s.left, s.large) != (loan.count, 1):
        raise Violation(f"the sender gets no credit: {s}")
    if s.dead and not s.over and not s.armed:
        raise Violation(f"what was lent does not come back: {s}")


def explore_loan(loan: Loan, limit: int = 3_000_000) -> Result:
    """Visit every state; raises Found with the moves that lead to a fault."""
    first = initial(loan)
    number, parent, kinds, quiet = {first: 0}, [None], {}, 0
    queue = [first]

    def trace(at):
        moves = []
        while parent[at] is not None:
            at, name = parent[at]
            moves.append((name,))
        return moves[::-1]

    for here, s in enumerate(queue):
        try:
            by_itself = steps(loan, s)
            found = by_itself + choices(loan, s)
            if not by_itself:
                quiet += 1
                _check_quiet(loan, s)
        except Violation as violation:
            raise Found(str(violation), trace(here)) from None
        for name, after in found:
            kinds[name] = kinds.get(name, 0) + 1
            if after not in number:
                number[after] = len(parent)
                parent.append((here, name))
                queue.append(after)
                if len(parent) >= limit:
                    raise TooLarge(f"more than {limit} states")
    return Result(len(queue), sum(kinds.values()), quiet, kinds)


LOANS = {
    "polled": Loan(),
    "polled_few_turns": Loan(round=1, turns=12, flight=1),
    "polled_asleep": Loan(round=1, turns=24, flight=1, sleep=True),
    "polled_death": Loan(round=1, turns=24, flight=1, death=True),
}
LARGE_LOANS = {"polled_three": Loan(count=3, turns=48)}

# Which loan shows what a rule is there for.  Few turns, or old tails grow older for
# long before one fits.
POLLED_FINDS = {
    "old_tails": "polled_few_turns",
    "long_sleep": "polled_asleep",
    "no_last_look": "polled_death",
}


def mutant_loan(mutation: str) -> Loan:
    """A loan without one of its rules."""
    loan = LOANS[POLLED_FINDS.get(mutation, "polled")]
    return loan._replace(mutations=frozenset({mutation}))
