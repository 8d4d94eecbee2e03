# SPDX-License-Identifier: BSD-3-Clause
"""The small systems that are searched completely, and what finds each mutation."""

from __future__ import annotations

from typing import NamedTuple

from uct_tofu.model.sizes import Sizes
from uct_tofu.model.system import System


class Case(NamedTuple):
    """A system, what it is there for, and whether it takes minutes."""

    about: str
    system: System
    large: bool = False


def _sizes(**changes) -> Sizes:
    small = {
        "slots": 1,
        "min_window": 1,
        "max_window": 2,
        "share": 1,
        "grant_entries": 1,
        "release_entries": 1,
        "nonces": 2,
    }
    return Sizes(**{**small, **changes})


CASES = {
    "window": Case(
        "one sender, a ring of two slots, credit in both directions of time",
        System(_sizes(slots=2), ((4,),), leave=True),
    ),
    "nested": Case(
        "handlers inside handlers on a ring of three",
        System(_sizes(slots=3, max_window=3, depth=3), ((6,),)),
    ),
    "two": Case(
        "two senders, slots for one: recall, release, grant",
        System(_sizes(slots=2), ((2,), (1,))),
    ),
    "endpoints": Case(
        "two endpoints on one channel, one of them on another",
        System(_sizes(), ((1, 1), (1,))),
    ),
    "entries": Case(
        "two entries for requests, so that neighbours are tried",
        System(_sizes(grant_entries=2), ((1,), (1,))),
    ),
    "death": Case(
        "a sender dies at any step while another waits for what it holds",
        System(_sizes(), ((1,), (1,)), deaths=1),
    ),
    "nested_death": Case(
        "the same with a window of two and handlers inside handlers",
        System(_sizes(slots=2, depth=2), ((2,), (1,)), deaths=1),
    ),
    "successor": Case(
        "a process with the VCQ of one that died goes on in its place",
        System(_sizes(grant_entries=3), ((1,),), deaths=2, restarts=2),
    ),
    "stale_credit": Case(
        "credit for a process that died comes to its successor",
        System(_sizes(grant_entries=2), ((2,),), deaths=1, restarts=1),
    ),
    "leftover": Case(  # fmt: skip
        "what a process that died claimed must not be lost to its successor",
        System(
            _sizes(grant_entries=2, release_entries=2), ((1,),), deaths=1,
            restarts=1, leave=True, recall_always=True,
        ),
    ),
    "successor_of_two": Case(
        "the same while another sender competes",
        System(_sizes(grant_entries=2), ((1,), (1,)), deaths=1, restarts=1),
        large=True,
    ),
    "silent_successor": Case(
        "a process with the VCQ of one that died with slots wants none",
        System(
            _sizes(grant_entries=2), ((1,), (1,)), deaths=1, restarts=1, silent=True
        ),
    ),
    "recall": Case(
        "slots are asked back and given back at any time",
        System(_sizes(), ((1,), (1,)), leave=True, recall_always=True),
    ),
    "idle": Case(
        "slots are given back between messages, also those that others wait for",
        System(_sizes(slots=2), ((2,), (1,)), idle=True),
    ),
    "idle_death": Case(
        "the same while a sender may die",
        System(_sizes(), ((1,), (1,)), deaths=1, idle=True),
        large=True,
    ),
    "budget": Case(
        "one silent put at a time may turn into an error",
        System(_sizes(slots=2, budget=1), ((2,), (1,)), deaths=1),
    ),
    "three": Case(
        "three senders, one entry, one slot",
        System(_sizes(), ((1,), (1,), (1,))),
        large=True,
    ),
    "both_die": Case(
        "two senders with two messages each, both of which may die",
        System(_sizes(slots=2), ((2,), (2,)), deaths=2),
        large=True,
    ),
}

# mutation -> case that must find it
FINDS = {
    "no_strong_order": "window",
    "early_credit": "nested",
    "no_nonce_check": "stale_credit",
    "release_first": "recall",
    "gone_at_once": "nested_death",
    "nested_credit": "nested",
    "take_over": "successor",
    "free_probed": "stale_credit",
    "free_all": "stale_credit",
    "shared_table": "two",
    "want_once": "endpoints",
    "no_claim_probe": "death",
    "no_loan_probe": "death",
    "no_identity": "silent_successor",
    "no_budget": "budget",
    "late_delivery": "death",
    "late_errors": "budget",
}


def mutant(mutation: str) -> System:
    """The case that must find a mutation, mutated."""
    system = CASES[FINDS[mutation]].system
    sizes = system.sizes._replace(mutations=frozenset({mutation}))
    if mutation == "shared_table":
        sizes = sizes._replace(release_entries=0)
    return system._replace(sizes=sizes)
