# SPDX-License-Identifier: BSD-3-Clause
"""The active-message protocol of cython/core/tofu_am*.c as pure functions.

States are immutable; a function takes one and returns a new one with the operations
that it posts.  (Who follows one way only, as uct_tofu.perf.scale does, may keep the
tables of a Receiver in place: see storage.)  What is abstracted: messages use one
class of slots (the two are granted and released together and otherwise do not meet;
``Sizes.other`` is the second one), message bytes, and time (a timeout is a step that
may be taken whenever its condition holds).

Operations are tuples.  Sender to receiver: ``("message", slot, (incarnation,
number))``, ``("claim", entry, nonce)``, ``("request", entry, kind, nonce)``.
Receiver to sender: ``("answer", nonce, kind, begin, count)``, ``("credit", nonce,
consumed)``, ``("recall", nonce)``, ``("ask", nonce)`` and ``("probe", entry)``, the
last three with a local notice.
"""

from __future__ import annotations

from typing import NamedTuple

from uct_tofu.model.sizes import GRANT, RELEASE, Sizes
from uct_tofu.model.storage import (
    add_loan,
    append,
    drop_loan,
    has_notice,
    loan_at_slot,
    loan_of,
    put,
    put_new,
    take,
)

IDLE, CLAIM, CLAIMING, CLAIMED, ASKED, OPEN = range(6)
NONE = (0, 0)  # no nonce


class Violation(Exception):
    """A property does not hold."""


# ------------------------------------------------------------------- sender


class Sender(NamedTuple):
    """tofu_chan_t, its mailbox, and the endpoints that use it."""

    number: int
    alive: bool = True
    incarnation: int = 0
    todo: tuple = ()  # messages that each endpoint has yet to send
    starved: tuple = ()  # ... and whether it was refused for want of credit
    sent: int = 0
    want: bool = False
    state: int = IDLE
    request: str = GRANT
    entry: int = 0
    old_value: int | None = None  # that a compare-and-swap brought, unread
    nonce: tuple = NONE
    last_nonce: int = 0
    begin: int = 0
    count: int = 0
    next: int = 0
    left: int = 0
    acked: int = 0
    credit: tuple = (NONE, 0)  # mailbox words: nonce, value
    answer: tuple = (NONE, None, 0, 0)
    recall: tuple = NONE


def new_sender(number: int, todo: tuple, incarnation: int = 0) -> Sender:
    """A process that has messages to send, by endpoint."""
    return Sender(
        number, incarnation=incarnation, todo=todo, starved=(False,) * len(todo)
    )


def _ask(sz: Sizes, s: Sender, request: str) -> Sender:
    first, entries = sz.table_range(request)
    return s._replace(
        state=CLAIM, request=request, entry=first + s.number % entries, old_value=None
    )


def want(sz: Sizes, s: Sender) -> Sender:
    """tofu_chan_want: somebody has no credit."""
    s = s._replace(want=True)
    if s.state != IDLE:
        return s
    last = s.last_nonce % sz.nonces + 1
    s = s._replace(
        nonce=(s.incarnation, last),
        last_nonce=last,
        credit=(NONE, 0),
        answer=(NONE, None, 0, 0),
        recall=NONE,
    )
    return _ask(sz, s, GRANT)


def release(sz: Sizes, s: Sender) -> Sender:
    """tofu_chan_release: give the slots back."""
    s = s._replace(begin=0, count=0, next=0, left=0, acked=0)
    return _ask(sz, s, RELEASE)


def look_for_credit(sz: Sizes, s: Sender) -> Sender:
    """tofu_chan_has_credit; there is some when left > 0 afterwards."""
    if s.left > 0 or s.state != OPEN:
        return s
    if s.recall == s.nonce:
        return release(sz, s)
    nonce, consumed = s.credit
    if nonce == s.nonce or "no_nonce_check" in sz.mutations:
        delta = consumed - s.acked
        if 0 <= delta <= s.count - s.left:
            s = s._replace(acked=consumed, left=s.left + delta)
    return s._replace(want=False) if s.left > 0 else s


def turn(sz: Sizes, s: Sender, ep: int) -> tuple[Sender, tuple]:
    """An endpoint with messages gets its turn: post one, or wait for credit."""
    was_starved = s.starved[ep]
    s = look_for_credit(sz, s)
    if s.left == 0:
        s = s._replace(starved=put(s.starved, ep, True))
        if was_starved and "want_once" in sz.mutations:
            return s, ()
        return want(sz, s), ()
    op = ("message", s.next, (s.incarnation, s.sent))
    following = s.next + 1
    if following == s.begin + s.count:
        following = s.begin
    s = s._replace(
        next=following,
        left=s.left - 1,
        sent=s.sent + 1,
        todo=put(s.todo, ep, s.todo[ep] - 1),
        starved=put(s.starved, ep, False),
    )
    return s, (op,)


def channel_can_move(s: Sender) -> bool:
    """Has channel_step anything to do?"""
    return (
        s.state in (CLAIM, CLAIMED)
        or (s.state == CLAIMING and s.old_value is not None)
        or (s.state == ASKED and s.answer[0] == s.nonce and s.answer[1] == s.request)
    )


def channel_step(sz: Sizes, s: Sender) -> tuple[Sender, tuple]:
    """tofu_chans_progress and tofu_chan_claimed for one channel."""
    if s.state == CLAIM:
        return s._replace(state=CLAIMING), (("claim", s.entry, s.nonce),)
    if s.state == CLAIMED:
        op = ("request", s.entry, s.request, s.nonce)
        return s._replace(state=ASKED), (op,)
    if s.state == CLAIMING:
        own = s.number + 1 if "take_over" in sz.mutations else 0
        if s.old_value in (0, own):
            return s._replace(state=CLAIMED, old_value=None), ()
        first, entries = sz.table_range(s.request)
        entry = first + (s.entry + 1 - first) % entries
        return s._replace(state=CLAIM, entry=entry, old_value=None), ()
    _, kind, begin, count = s.answer
    if kind == GRANT:
        return s._replace(
            state=OPEN, want=False, begin=begin, count=count, next=begin, left=count,
            acked=0,
        ), ()  # fmt: skip
    wanted = s.want
    s = s._replace(state=IDLE, want=False)
    return (want(sz, s) if wanted else s), ()


def receive_down(s: Sender, op: tuple) -> Sender:
    """A put of the receiver lands in the sender's mailbox."""
    if op[0] == "answer":
        return s._replace(answer=op[1:])
    if op[0] == "credit":
        return s._replace(credit=op[1:])
    if op[0] == "recall":
        return s._replace(recall=op[1])
    return s  # a probe writes to the scratch page


# ----------------------------------------------------------------- receiver


class Loan(NamedTuple):
    """tofu_lender_t with its tofu_loan_t."""

    sender: int
    nonce: tuple
    begin: int
    count: int
    next: int
    arrived: int = 0
    consumed: int = 0
    reported: int = 0
    depth: int = 0  # handlers of its messages that run
    dead: bool = False  # take the slots back when depth is 0
    gone: bool = False  # the sender ended; its messages may be here yet
    other: tuple = ()  # first and number of the slots of the other class


class Receiver(NamedTuple):
    """tofu_am_t, its memory and its MRQ."""

    content: tuple  # of each slot: (sender, message) that nobody consumed, or None
    claims: tuple  # of each entry of the request table: 0, or number of who + 1
    requests: tuple  # ... (sender, kind, nonce) as written last
    seen: tuple  # ... 1: the claim was there at a tick, 2: and the MRQ empty since
    probed: tuple  # ... by a probe in flight
    loans: tuple = ()
    jobs: tuple = ()  # (entry, sender, kind, nonce)
    mrq: tuple = ()
    short: bool = False  # tofu_am_t::short_of_slots
    due: tuple = ()  # senders to be told what was consumed
    stack: tuple = ()  # handlers that run: (loan's sender, nonce, slot, message)
    answered: int | None = None  # entry whose answer is out, to be freed
    silent: int = 0  # silent puts since the MRQ was seen empty
    delivered: tuple = ()  # by sender: incarnation and number of the next message


def new_receiver(
    sz: Sizes, senders: int, table: type = tuple, queue: type = tuple,
    loans: type = tuple,
) -> Receiver:  # fmt: skip
    """Nothing lent, nothing asked; tables, queue and loans of the types given."""
    return Receiver(
        content=table((None,) * sz.slots),
        claims=table((0,) * sz.entries),
        requests=table((None,) * sz.entries),
        seen=table((0,) * sz.entries),
        probed=table((False,) * sz.entries),
        mrq=queue(),
        loans=loans(),
        delivered=table(((0, 0),) * senders),
    )


def receive_up(sz: Sizes, r: Receiver, sender: int, op: tuple):
    """An operation of a sender takes effect here: (receiver, old value or None)."""
    if op[0] == "message":
        _, slot, message = op
        if r.content[slot] is not None:
            raise Violation(
                f"slot {slot} with {r.content[slot]} is overwritten by {sender}"
            )
        notice = ("message", sender, slot)
        r = r._replace(content=put(r.content, slot, (sender, message)))
        if "early_credit" in sz.mutations:
            for at, loan in enumerate(r.loans):
                if loan.sender == sender and not loan.dead:
                    loan = loan._replace(consumed=loan.consumed + 1)
                    r = r._replace(
                        loans=put(r.loans, at, loan), due=put_new(r.due, sender)
                    )
        return _notice(sz, r, notice), None
    if op[0] == "claim":
        old = r.claims[op[1]]
        if old == 0:
            r = r._replace(claims=put(r.claims, op[1], sender + 1))
        return r, old
    _, entry, kind, nonce = op
    r = r._replace(requests=put(r.requests, entry, (sender, kind, nonce)))
    return _notice(sz, r, ("request", sender, entry)), None


def _notice(sz: Sizes, r: Receiver, notice: tuple) -> Receiver:
    """The MRQ grows: hold it against the bound of tofu_attr_bound."""
    if notice[0] in ("message", "request"):
        if has_notice(r.mrq, notice[0], notice[2]):
            raise Violation(f"two notices of {notice[::2]} in the MRQ")
    elif notice[0] == "error" and sz.budget:
        if sum(n[0] == "error" for n in r.mrq) >= sz.budget:
            raise Violation(f"more than {sz.budget} errors in the MRQ")
    return r._replace(mrq=append(r.mrq, notice))


def post_failed(sz: Sizes, r: Receiver, sender: int, op: tuple) -> Receiver:
    """The sender is dead, and the put to it ends as an error notice here."""
    if op[0] == "probe":
        return _notice(sz, r, ("gone", sender, op[1]))
    if op[0] in ("recall", "ask"):
        return _notice(sz, r, ("gone", sender, None))
    return _notice(sz, r, ("error", sender, None))


def holder_answers(
    sz: Sizes, r: Receiver, sender: int, incarnation: int, op: tuple
) -> Receiver:
    """Who has the VCQ of a holder of slots was asked who it is: another tells."""
    if incarnation == op[1][0]:
        return r
    return _notice(sz, r, ("other", sender, op[1]))


def may_post_silent(sz: Sizes, r: Receiver) -> bool:
    """tofu_iface_post_limited, for puts whose only notice would be an error."""
    return not sz.budget or r.silent < sz.budget or "no_budget" in sz.mutations


def _posted_silent(sz: Sizes, r: Receiver) -> Receiver:
    if sz.budget and r.silent < sz.budget:
        return r._replace(silent=r.silent + 1)
    return r


def find_loan(r: Receiver, sender: int) -> int | None:
    """Index of the loan of a sender: tofu_peer_t::lender."""
    return loan_of(r.loans, sender)


def read_notice(sz: Sizes, r: Receiver) -> Receiver:
    """tofu_iface_progress reads one notice; a message's handler begins."""
    at = 0
    if "release_first" in sz.mutations:
        at = next(
            (i for i, n in enumerate(r.mrq)
             if n[0] == "request" and r.requests[n[2]][1] == RELEASE), 0,
        )  # fmt: skip
    (kind, sender, where), rest = take(r.mrq, at)
    r = r._replace(mrq=rest)
    if kind == "message":
        return _read_message(r, sender, where)
    if kind == "request":
        return _read_request(sz, r, sender, where)
    if kind == "other":  # tofu_am_holder_is
        at = loan_of(r.loans, sender, where)
        return r if at is None or r.loans[at].dead else _mark_gone(r, at)
    if kind == "gone" and where is not None and r.claims[where] == sender + 1:
        # not if it was freed since: the claim may be a successor's by now
        if r.probed[where] or "free_probed" in sz.mutations:
            r = _free_entry(r, where)
    return borrower_gone(sz, r, sender)


def _read_message(r: Receiver, sender: int, slot: int) -> Receiver:
    at = loan_at_slot(r.loans, slot)
    if at is None:
        raise Violation(f"message of {sender} in slot {slot}, which is not lent")
    loan = r.loans[at]
    if loan.sender != sender or loan.dead or loan.next != slot:
        raise Violation(f"message of {sender} in slot {slot}, not its turn: {loan}")
    if r.content[slot] is None or r.content[slot][0] != sender:
        raise Violation(f"slot {slot} holds {r.content[slot]}, not {sender}'s")
    message = r.content[slot][1]
    expected = r.delivered[sender]
    if message[0] > expected[0]:
        expected = (message[0], 0)
    if message != expected:
        raise Violation(f"{sender}: message {message}, expected {expected}")
    following = slot + 1
    if following == loan.begin + loan.count:
        following = loan.begin
    loan = loan._replace(
        next=following, arrived=loan.arrived + 1, depth=loan.depth + 1
    )
    return r._replace(
        loans=put(r.loans, at, loan),
        delivered=put(r.delivered, sender, (message[0], message[1] + 1)),
        stack=(*r.stack, (sender, loan.nonce, slot, message)),
    )


def end_handler(sz: Sizes, r: Receiver) -> Receiver:
    """The innermost handler returns: tofu_am_deliver after the call."""
    sender, nonce, slot, message = r.stack[-1]
    r = r._replace(stack=r.stack[:-1])
    if r.content[slot] != (sender, message):
        raise Violation(f"slot {slot} changed under the handler of {message}")
    at = loan_of(r.loans, sender, nonce)
    loan = r.loans[at]
    loan = loan._replace(depth=loan.depth - 1)
    r = r._replace(loans=put(r.loans, at, loan))
    if loan.depth > 0 and "nested_credit" not in sz.mutations:
        return r  # in ring order: the outer handler gives both back
    if loan.depth == 0:
        r = _clear(r, loan, sender)
    elif "nested_credit" in sz.mutations:
        r = r._replace(content=put(r.content, slot, None))
    if loan.dead and loan.depth == 0:
        return _take_back(r, at)
    if "early_credit" in sz.mutations:
        return r
    loan = loan._replace(consumed=loan.arrived)
    r = r._replace(loans=put(r.loans, at, loan))
    if not loan.gone and sz.is_due(loan.consumed - loan.reported, loan.count):
        r = r._replace(due=put_new(r.due, sender))
    return r


def _clear(r: Receiver, loan: Loan, sender: int) -> Receiver:
    """Slots of a loan whose messages were delivered are free for new ones."""
    content = r.content
    for slot in range(loan.begin, loan.begin + loan.count):
        held = content[slot]
        if held and held[0] == sender and not has_notice(r.mrq, "message", slot):
            content = put(content, slot, None)
    return r._replace(content=content)


def _take_back(r: Receiver, at: int) -> Receiver:
    return r._replace(loans=drop_loan(r.loans, at), short=False)


def reclaim(r: Receiver, at: int) -> Receiver:
    """tofu_lender_reclaim."""
    loan = r.loans[at]
    r = r._replace(due=tuple(x for x in r.due if x != loan.sender))
    if loan.depth > 0:
        return r._replace(loans=put(r.loans, at, loan._replace(dead=True)))
    return _take_back(r, at)


def report(sz: Sizes, r: Receiver, sender: int) -> tuple[Receiver, tuple]:
    """tofu_lender_report."""
    at = find_loan(r, sender)
    loan = r.loans[at]
    r = r._replace(
        due=tuple(x for x in r.due if x != sender),
        loans=put(r.loans, at, loan._replace(reported=loan.consumed)),
    )
    return _posted_silent(sz, r), (("credit", loan.nonce, loan.consumed),)


def _read_request(sz: Sizes, r: Receiver, sender: int, entry: int) -> Receiver:
    if r.claims[entry] != sender + 1 or r.requests[entry] is None:
        return r  # dropped: the entry is another's
    who, kind, nonce = r.requests[entry]
    if who != sender:
        raise Violation(f"entry {entry} holds a request of {who}, not of {sender}")
    older = {j[0] for j in r.jobs} | {e for e, seen in enumerate(r.seen) if seen == 2}
    for other, claim in enumerate(r.claims):  # tofu_am_free_older
        if claim == sender + 1 and other != entry:
            if other in older or "free_all" in sz.mutations:
                r = _free_entry(r, other)
    jobs = tuple(j for j in r.jobs if j[0] != entry)
    return r._replace(jobs=(*jobs, (entry, sender, kind, nonce)), short=False)


def _free_entry(r: Receiver, entry: int) -> Receiver:
    return r._replace(
        claims=put(r.claims, entry, 0),
        requests=put(r.requests, entry, None),
        seen=put(r.seen, entry, 0),
        probed=put(r.probed, entry, False),
        jobs=tuple(j for j in r.jobs if j[0] != entry),
    )


def borrower_gone(sz: Sizes, r: Receiver, sender: int) -> Receiver:
    """tofu_am_borrower_gone: it posts nothing any more."""
    at = find_loan(r, sender)
    if at is not None:
        if "gone_at_once" in sz.mutations:
            r = reclaim(r, at)
        else:
            r = _mark_gone(r, at)
    for job in r.jobs:
        if job[1] == sender:
            r = _free_entry(r, job[0])
    return r


def _mark_gone(r: Receiver, at: int) -> Receiver:
    loan = r.loans[at]
    return r._replace(
        loans=put(r.loans, at, loan._replace(gone=True)),
        due=tuple(x for x in r.due if x != loan.sender),
    )


def find_run(sz: Sizes, r: Receiver) -> tuple[int, int]:
    """tofu_pool_find: first and length of the slots for a newcomer; length 0: no."""
    lent = [(loan.begin, loan.count) for loan in r.loans]
    return _find_in_pool(sz, sz.slots, sz.max_window, lent)


def _find_other(sz: Sizes, r: Receiver) -> tuple:
    """The same in the pool of the other class, when there is one."""
    if not sz.other:
        return ()
    return _find_in_pool(sz, *sz.other, [loan.other for loan in r.loans])


def _find_in_pool(
    sz: Sizes, slots: int, max_window: int, lent: list
) -> tuple[int, int]:
    """The first free run that is long enough, else the first of the longest."""
    free = slots - sum(count for _, count in lent)
    if free < sz.min_window:
        return 0, 0
    wanted = sz.window(free, max_window)
    best = begin = end = 0
    for first, count in [*sorted(lent), (slots, 0)]:
        run = min(first - end, wanted)
        if run > best:
            best, begin = run, end
            if best == wanted:
                break
        end = first + count
    return begin, (best if best >= sz.min_window else 0)


def jobs_step(sz: Sizes, r: Receiver) -> tuple[Receiver, int | None, tuple]:
    """tofu_jobs_progress answers one request: (receiver, to whom, operations).

    The entry is freed by free_answered, the next step of the receiver.
    """
    no_slots = False
    for entry, sender, kind, nonce in r.jobs:
        at = find_loan(r, sender)
        if kind == RELEASE:
            if at is not None and r.loans[at].nonce == nonce:
                r = reclaim(r, at)
            return _answer(sz, r, entry, sender, (nonce, RELEASE, 0, 0))
        if no_slots:
            continue
        if at is not None:  # who had this VCQ before died without a word
            r = _mark_gone(r, at)
            no_slots = True
            continue
        begin, count = find_run(sz, r)
        other = _find_other(sz, r)
        if count == 0 or other[1:] == (0,):
            no_slots = True
            continue
        loan = Loan(sender, nonce, begin, count, begin, other=other)
        r = r._replace(loans=add_loan(r.loans, loan))
        return _answer(sz, r, entry, sender, (nonce, GRANT, begin, count))
    return r._replace(short=no_slots), None, ()


def _answer(sz: Sizes, r: Receiver, entry: int, sender: int, body: tuple):
    r = r._replace(answered=entry, jobs=tuple(j for j in r.jobs if j[0] != entry))
    return _posted_silent(sz, r), sender, (("answer", *body),)


def see_claim(r: Receiver, entry: int) -> Receiver:
    """tofu_am_check_claims at a tick."""
    return r._replace(seen=put(r.seen, entry, r.seen[entry] + 1))


def free_answered(r: Receiver) -> Receiver:
    """tofu_entry_free after the answer."""
    return _free_entry(r, r.answered)._replace(answered=None)

