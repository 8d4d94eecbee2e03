# SPDX-License-Identifier: BSD-3-Clause
"""How a state of the protocol keeps tables and queues.

A search keeps every state it has seen, so its states are made of tuples, and a step
copies what it changes.  Who follows one way from beginning to end drops each state
for the next: for him ``Table`` and ``NoticeQueue`` are changed in place, at a cost
that does not grow with their length.  The functions take both.
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


def put(items, at: int, value):
    """The table with another value at one place."""
    if type(items) is Table:
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
