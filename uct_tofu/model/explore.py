# SPDX-License-Identifier: BSD-3-Clause
"""Search all states of a small system, or walk at random through a large one."""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

from uct_tofu.model import system as m
from uct_tofu.model.protocol import Violation


class Found(Exception):
    """A property does not hold: why, and the moves that lead there."""

    def __init__(self, reason: str, trace: list):
        super().__init__(reason)
        self.reason = reason
        self.trace = trace

    def __str__(self):
        lines = "\n".join(
            f"{number:4} {' '.join(map(str, move))}"
            for number, move in enumerate(self.trace, 1)
        )
        return f"{self.reason}\n{lines}"


class Result(NamedTuple):
    """What a search saw."""

    states: int
    transitions: int
    finals: int
    moves: dict  # how often each kind of move was taken


class TooLarge(Exception):
    """More states than were allowed."""


def explore(system: m.System, limit: int = 2_000_000) -> Result:
    """Visit every state that can be reached; raises Found with a shortest trace.

    After that, look for states from which no final state can be reached by moves
    that the protocol itself makes (nobody needs to die to end a deadlock).
    """
    first = m.initial(system)
    number = {first: 0}
    parent: list = [None]  # (state, move) that led to each
    before: list = [[]]  # states from which each is reached by a needed move
    finals = []
    kinds: Counter = Counter()
    queue = deque([first])
    while queue:
        state = queue.popleft()
        here = number[state]
        if m.is_final(state):
            finals.append(here)
        for move in m.moves(system, state):
            kinds[move[0]] += 1
            try:
                after = m.apply(system, state, move)
            except Violation as violation:
                raise Found(str(violation), [*_trace(parent, here), move]) from None
            there = number.get(after)
            if there is None:
                there = number[after] = len(parent)
                if there >= limit:
                    raise TooLarge(f"more than {limit} states")
                parent.append((here, move))
                before.append([])
                queue.append(after)
            if move[0] not in m.OPTIONAL:
                before[there].append(here)
    lost = _cannot_end(before, finals)
    if lost:
        states = list(number)
        stuck = (at for at in lost if _is_stuck(system, states[at]))
        shown = lost[0] or lost[-1]  # from the very beginning: show a late one
        raise Found("no way to an end", _trace(parent, next(stuck, shown)))
    return Result(len(parent), kinds.total(), len(finals), dict(kinds))


def _trace(parent: list, at: int) -> list:
    trace = []
    while parent[at] is not None:
        at, move = parent[at]
        trace.append(move)
    return trace[::-1]


def _cannot_end(before: list, finals: list) -> list[int]:
    """The states from which no final one is reached."""
    ends = bytearray(len(before))
    todo = list(finals)
    for at in todo:
        ends[at] = 1
    while todo:
        for at in before[todo.pop()]:
            if not ends[at]:
                ends[at] = 1
                todo.append(at)
    return [at for at, end in enumerate(ends) if not end]


def _is_stuck(system: m.System, state: m.State) -> bool:
    return all(move[0] in m.OPTIONAL for move in m.moves(system, state))


def walk(system: m.System, choose, steps: int) -> Counter:
    """Take steps by choose(moves), then let everything end, in turn.

    Raises Found.  choose gets a list of moves and returns one of them, or None to
    end the walk.  Returns how often each kind of move was taken.
    """
    state = m.initial(system)
    trace: list = []

    def take(move):
        nonlocal state
        trace.append(move)
        try:
            state = m.apply(system, state, move)
        except Violation as violation:
            raise Found(str(violation), trace) from None

    for _ in range(steps):
        possible = m.moves(system, state)
        move = choose(possible) if possible else None
        if move is None:
            break
        take(move)
    _finish(system, lambda: state, take, trace)
    return Counter(move[0] for move in trace)


def _finish(system: m.System, state, take, trace: list) -> None:
    """Fairly: of the moves that are possible, the one not taken for longest."""
    last: dict = {}
    limit = len(trace) + 2000 * len(system.todo) + 100 * sum(map(sum, system.todo))
    while not m.is_final(state()):
        possible = [
            move
            for move in m.moves(system, state())
            if move[0] not in m.OPTIONAL and (move[0] != "up" or move[2] == 0)
        ]
        if not possible:
            raise Found("nothing can move", trace)
        if len(trace) > limit:
            raise Found("it does not come to an end", trace)
        move = min(possible, key=lambda one: last.get(one, -1))
        last[move] = len(trace)
        take(move)
