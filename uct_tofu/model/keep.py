# SPDX-License-Identifier: BSD-3-Clause
"""The ring of large slots while handlers keep messages (tofu_am_keep.c), searched.

One loan between one sender and the receiver, for ever: messages, handlers inside
handlers that keep some of them, releases at any time, credit words at any delay and in
any number.  What is searched for: a message that is written over one that is unread,
being handled or kept; a message in a slot whose turn it is not; a credit word that is
ambiguous; and a sender that has no slot left although all that could be done was done,
short of releasing what is kept.

Counts are kept relative to what the sender last took note of, and slots relative to
the one whose turn it is at the receiver, so the search comes to an end.
"""

from __future__ import annotations

from typing import NamedTuple

from uct_tofu.model.explore import Found, Result, TooLarge
from uct_tofu.model.protocol import Violation

SMALL = -1  # a handler of a message in a small slot, of the same sender
COUNT_BITS = 8  # of large slots in the credit word

KEEP_MUTATIONS = {
    "no_mask": "the credit word says that no slot is passed over",
    "late_decision": "the word tells what is kept now, not what was decided",
    "no_settle": "turns that are passed over are not over by themselves",
    "all_kept": "all slots of a loan may be kept",
    "no_pass": "the sender uses slots that he was told to pass over",
}


class Ring(NamedTuple):
    """A loan of `count` large slots."""

    count: int
    depth: int = 1  # handlers inside each other
    words: int = 2  # credit words on their way, at most
    mutations: frozenset = frozenset()


class State(NamedTuple):
    """Both ends and what is between them; slot 0 is tofu_loan_t::next."""

    at: int = 0  # sender: tofu_chan_class_t::next
    left: int = 0
    passing: int = 0  # sender: tofu_chan_t::skip
    arrived: int = 0  # receiver
    consumed: int = 0
    reported: int = 0
    skip: int = 0
    kept: int = 0
    mrq: tuple = ()  # slots of messages that are not read
    stack: tuple = ()  # slots whose handlers run (SMALL: none), and may they keep
    words: tuple = ()  # credit words in flight: consumed, mask
    mailbox: tuple = (0, 0)
    due: bool = False


def initial(ring: Ring) -> State:
    """The loan as it was granted."""
    return State(left=ring.count)


def _rotate(mask: int, by: int, count: int) -> int:
    """Bit i of the mask becomes bit i - by."""
    return ((mask >> by) | (mask << (count - by))) & ((1 << count) - 1)


def _turn(ring: Ring, s: State, by: int = 1) -> State:
    """The receiver goes on to another slot."""
    n = ring.count
    by %= n
    if not by:
        return s
    words = tuple((c, _rotate(m, by, n)) for c, m in s.words)
    return s._replace(
        at=(s.at - by) % n,
        passing=_rotate(s.passing, by, n),
        skip=_rotate(s.skip, by, n),
        kept=_rotate(s.kept, by, n),
        mrq=tuple((slot - by) % n for slot in s.mrq),
        stack=tuple(
            (slot if slot == SMALL else (slot - by) % n, may) for slot, may in s.stack
        ),
        words=words,
        mailbox=(s.mailbox[0], _rotate(s.mailbox[1], by, n)),
    )


# ------------------------------------------------------------------- sender


def _pass(ring: Ring, s: State) -> State:
    """tofu_chan_pass."""
    if "no_pass" in ring.mutations:
        return s._replace(passing=0)
    while s.passing >> s.at & 1:
        s = s._replace(passing=s.passing & ~(1 << s.at), at=(s.at + 1) % ring.count)
    return s


def post(ring: Ring, s: State) -> State:
    """The sender writes a message into its next slot."""
    if s.at in s.mrq or s.at in (slot for slot, _ in s.stack) or s.kept >> s.at & 1:
        raise Violation(f"slot {s.at} is written over: {s}")
    s = s._replace(mrq=(*s.mrq, s.at), at=(s.at + 1) % ring.count, left=s.left - 1)
    return _pass(ring, s)


def look(ring: Ring, s: State) -> State:
    """tofu_chan_ack_large with what is in the mailbox."""
    n = ring.count
    delta, mask = s.mailbox
    if delta >= 1 << COUNT_BITS:
        raise Violation(f"the credit word is ambiguous: {s}")
    if not delta:
        return s
    ahead = s.left + bin(s.passing).count("1")
    used = n - ahead
    if not mask | s.passing and delta <= used:
        return _acked(s._replace(left=s.left + delta), delta)
    if delta > used and (ahead > 0 or delta > 3 * n):
        return s
    at, index, first = s.at, s.at + ahead, n
    if delta > n:
        at = index = (s.at + delta - n) % n
        first = delta
    left, passing = s.left, s.passing
    for _ in range(first, delta + n):
        bit = 1 << index % n
        if mask & bit:
            passing |= bit
        else:
            left += 1
        index += 1
    s = _pass(ring, s._replace(at=at, left=left, passing=passing))
    if s.left > n:
        raise Violation(f"{s.left} slots of {n}: {s}")
    return _acked(s, delta)


def _acked(s: State, delta: int) -> State:
    """Count from there from now on."""
    return s._replace(
        arrived=s.arrived - delta,
        consumed=s.consumed - delta,
        reported=s.reported - delta,
        words=tuple((c - delta, m) for c, m in s.words),
        mailbox=(0, s.mailbox[1]),
    )


# ----------------------------------------------------------------- receiver


def read(ring: Ring, s: State, offer: bool) -> State:
    """A notice is read, the handler begins; it is offered to keep the message."""
    slot, n = s.mrq[0], ring.count
    if slot != 0 or s.kept & 1:
        raise Violation(f"a message in slot {slot} is dropped: {s}")
    s = s._replace(mrq=s.mrq[1:], arrived=s.arrived + 1, stack=(*s.stack, (0, offer)))
    if offer:
        s = s._replace(kept=s.kept | 1)
    s = _turn(ring, s)
    while s.arrived - s.consumed < n and s.skip & 1:  # tofu_loan_pass
        s = _turn(ring, s._replace(arrived=s.arrived + 1))
    return s


def may_offer(ring: Ring, s: State) -> bool:
    """tofu_am_offer, for the slot whose turn it is."""
    most = ring.count if "all_kept" in ring.mutations else ring.count // 2
    return bin(s.kept).count("1") + 1 <= most


def end(ring: Ring, s: State, keep: bool) -> State:
    """The innermost handler returns, and keeps its message or not."""
    slot, offered = s.stack[-1]
    s = s._replace(stack=s.stack[:-1])
    if offered and not keep:
        s = s._replace(kept=s.kept & ~(1 << slot))
    if s.stack:
        return s  # the outermost one gives all of them back
    if s.kept | s.skip:
        s = _settle(ring, s)
    else:
        s = s._replace(consumed=s.arrived)
    return s._replace(due=s.due or (s.consumed - s.reported) * 2 >= ring.count)


def _decide(s: State, slot: int) -> State:
    """tofu_loan_decide."""
    bit = 1 << slot
    return s._replace(skip=s.skip & ~bit | s.kept & bit, consumed=s.consumed + 1)


def _settle(ring: Ring, s: State) -> State:
    """tofu_loan_settle."""
    n = ring.count
    slot = -(s.arrived - s.consumed) % n
    while s.consumed != s.arrived:
        s = _decide(s, slot)
        slot = (slot + 1) % n
    passed = 0
    while s.skip & 1 and "no_settle" not in ring.mutations:
        passed += 1
        if passed > 2 * n:
            raise Violation(f"slots are passed over without end: {s}")
        s = _turn(ring, s._replace(arrived=s.arrived + 1))
        s = _decide(s, n - 1)
    return s


def report(ring: Ring, s: State) -> State:
    """tofu_lender_report."""
    mask = s.skip
    if "no_mask" in ring.mutations:
        mask = 0
    if "late_decision" in ring.mutations:
        mask = s.kept
    return s._replace(
        words=(*s.words, (s.consumed, mask)), reported=s.consumed, due=False
    )


# -------------------------------------------------------------------- search


def steps(ring: Ring, s: State) -> list[tuple]:
    """What comes by itself, as (name, state): until then nobody need do anything."""
    found = []
    if s.mrq and len(s.stack) < ring.depth:
        found.append(("read", read(ring, s, False)))
        if may_offer(ring, s):
            found.append(("offer", read(ring, s, True)))
    if s.stack:
        found.append(("end", end(ring, s, False)))
        if s.stack[-1][1]:
            found.append(("keep", end(ring, s, True)))
    if s.due and len(s.words) < ring.words:
        found.append(("report", report(ring, s)))
    if s.words:
        landed = s._replace(mailbox=s.words[0], words=s.words[1:])
        found.append(("land", landed))
    seen = look(ring, s)
    if seen != s:
        found.append(("look", seen))
    return found


def choices(ring: Ring, s: State) -> list[tuple]:
    """What somebody may do or not."""
    found = []
    if s.left > 0:
        found.append(("post", post(ring, s)))
    handled = {slot for slot, _ in s.stack}
    for slot in range(ring.count):
        if s.kept >> slot & 1 and slot not in handled:
            found.append(("release", s._replace(kept=s.kept & ~(1 << slot))))
    if len(s.stack) < ring.depth - 1:
        small = s._replace(stack=(*s.stack, (SMALL, False)))
        found.append(("small", small))
    if not s.stack and s.consumed != s.reported and len(s.words) < ring.words:
        found.append(("report early", report(ring, s)))  # with one of small slots
    return found


def explore_ring(ring: Ring, limit: int = 2_000_000) -> Result:
    """Visit every state; raises Found with the moves that lead to a fault."""
    first = initial(ring)
    number, parent, kinds, quiet = {first: 0}, [None], {}, 0
    queue = [first]

    def trace(at, *more):
        moves = []
        while parent[at] is not None:
            at, name = parent[at]
            moves.append((name,))
        return [*moves[::-1], *more]

    for here, s in enumerate(queue):
        try:
            by_itself = steps(ring, s)
            found = by_itself + choices(ring, s)
        except Violation as violation:
            raise Found(str(violation), trace(here)) from None
        if not by_itself:
            quiet += 1
            if s.left == 0:
                raise Found(f"the sender has no slot and gets none: {s}", trace(here))
        for name, after in found:
            kinds[name] = kinds.get(name, 0) + 1
            if after not in number:
                number[after] = len(parent)
                parent.append((here, name))
                queue.append(after)
                if len(parent) >= limit:
                    raise TooLarge(f"more than {limit} states")
    return Result(len(queue), sum(kinds.values()), quiet, kinds)


def walk_ring(ring: Ring, choose, length: int) -> dict:
    """Take `length` moves by choose(moves); returns how often each was taken."""
    s, names, kinds = initial(ring), [], {}
    for _ in range(length):
        try:
            by_itself = steps(ring, s)
            if not by_itself and s.left == 0:
                raise Violation(f"the sender has no slot and gets none: {s}")
            name, s = choose(by_itself + choices(ring, s))
        except Violation as violation:
            raise Found(str(violation), names[-100:]) from None
        names.append((name,))
        kinds[name] = kinds.get(name, 0) + 1
    return kinds


# What is searched: with `depth` 3 two of the handlers may be of small slots.
RINGS = {
    "ring": Ring(4, depth=3),
    "ring_of_five": Ring(5, depth=2, words=3),
}
LARGE_RINGS = {"ring_of_six": Ring(6, depth=2)}


def mutant_ring(mutation: str) -> Ring:
    """A ring without one of its rules."""
    return RINGS["ring"]._replace(mutations=frozenset({mutation}))
