# SPDX-License-Identifier: BSD-3-Clause
"""How a state of the protocol keeps tables and queues.

A search keeps every state it has seen, so its states are made of tuples, and a step
copies what it changes.  Who follows one way from beginning to end drops each state
for the next: for him ``Table``, ``NoticeQueue`` and ``LoanTable`` are changed in place,
at a cost that does not grow with their length.  The functions take both.
"""

from __future__ import annotations

from collections import deque


class Table(list):
    """A table that is changed in place: the state before is lost."""


class NoticeQueue(deque):
    """An MRQ that is changed in place, and knows which notices are in it."""

    def __init__(self):
        super().__init__()
        self._named: set = set()

    def push(self, notice: tuple) -> None:
        """A notice (kind, sender, where) comes."""
        self._named.add((notice[0], notice[2]))
        self.append(notice)

    def pull(self) -> tuple:
        """The oldest notice goes."""
        notice = self.popleft()
        self._named.discard((notice[0], notice[2]))
        return notice

    def has(self, kind: str, where) -> bool:
        """Is there a notice of this kind about this slot or entry?"""
        return (kind, where) in self._named


class LoanTable:
    """Loans that are changed in place, at most one of each sender.

    The place of a loan is the number of its sender.
    """

    def __init__(self):
        self._of: dict = {}
        self._owner: dict = {}  # slot -> sender

    def __iter__(self):
        return iter(self._of.values())

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, at: int):
        return self._of[at]

    def __setitem__(self, at: int, loan) -> None:
        self._of[at] = loan

    def add(self, loan) -> None:
        """A sender is lent slots; ``ValueError`` when it holds some."""
        if loan.sender in self._of:
            raise ValueError(f"sender {loan.sender} holds a loan")
        self._of[loan.sender] = loan
        for slot in range(loan.begin, loan.begin + loan.count):
            self._owner[slot] = loan.sender

    def drop(self, at: int) -> None:
        """The slots of a sender are free."""
        loan = self._of.pop(at)
        for slot in range(loan.begin, loan.begin + loan.count):
            del self._owner[slot]

    def at_slot(self, slot: int) -> int | None:
        """Whose loan has the slot."""
        return self._owner.get(slot)

    def of(self, sender: int, nonce: tuple | None) -> int | None:
        """Where the loan of a sender is that can be used, or the one of a nonce."""
        loan = self._of.get(sender)
        if loan is None or (loan.dead if nonce is None else loan.nonce != nonce):
            return None
        return sender


def put(items, at: int, value):
    """The table with another value at one place."""
    if type(items) is Table or type(items) is LoanTable:
        items[at] = value
        return items
    return (*items[:at], value, *items[at + 1 :])


def put_new(items: tuple, value) -> tuple:
    """The values with one more, unless it is there already."""
    return items if value in items else (*items, value)


def append(queue, notice: tuple):
    """The queue with one more notice."""
    if type(queue) is NoticeQueue:
        queue.push(notice)
        return queue
    return (*queue, notice)


def take(queue, at: int) -> tuple:
    """A notice, and the queue without it."""
    if type(queue) is NoticeQueue:
        if at != 0:
            raise ValueError("a queue that is kept in place is read from its head")
        return queue.pull(), queue
    return queue[at], queue[:at] + queue[at + 1 :]


def has_notice(queue, kind: str, where) -> bool:
    """Is there a notice of this kind about this slot or entry?"""
    if type(queue) is NoticeQueue:
        return queue.has(kind, where)
    return any(n[0] == kind and n[2] == where for n in queue)


def add_loan(loans, loan):
    """The loans with one more."""
    if type(loans) is LoanTable:
        loans.add(loan)
        return loans
    return (*loans, loan)


def drop_loan(loans, at: int):
    """The loans without one."""
    if type(loans) is LoanTable:
        loans.drop(at)
        return loans
    return loans[:at] + loans[at + 1 :]


def loan_at_slot(loans, slot: int) -> int | None:
    """Where the loan is that has the slot."""
    if type(loans) is LoanTable:
        return loans.at_slot(slot)
    for at, loan in enumerate(loans):
        if loan.begin <= slot < loan.begin + loan.count:
            return at
    return None


def loan_of(loans, sender: int, nonce: tuple | None = None) -> int | None:
    """Where the loan of a sender is: the one that is not dead, or that of a nonce."""
    if type(loans) is LoanTable:
        return loans.of(sender, nonce)
    for at, loan in enumerate(loans):
        if loan.sender == sender:
            if not loan.dead if nonce is None else loan.nonce == nonce:
                return at
    return None
