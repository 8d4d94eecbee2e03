# SPDX-License-Identifier: BSD-3-Clause
"""Sizes of the protocol: those of the C code, and smaller ones to search with."""

from __future__ import annotations

import re
from typing import NamedTuple

# Names of #defines in cython/core, and their values there.  tests/model holds
# them against the headers; nothing else in this package repeats a number.
CONSTANTS = {
    "TOFU_REQUEST_ENTRIES": 64,
    "TOFU_RELEASE_ENTRIES": 8,
    "TOFU_AM_MIN_WINDOW": 2,
    "TOFU_AM_MAX_SMALL": 64,
    "TOFU_AM_MAX_LARGE": 16,
    "TOFU_AM_POOL_SHARE": 16,
    "TOFU_INTERNAL_NOTICES": 16,
    "TOFU_AM_PROBE_MS": 100,
    "TOFU_AM_IDLE_MS": 100,
    "TOFU_AM_KEEP_MS": 1000,
    "TOFU_AM_KEEP_WINDOW": 8,
    "TOFU_AM_CHANS_PER_TICK": 32,
    "TOFU_RECALLS_PER_TICK": 8,
    "TOFU_RECALL_ROUNDS": 4,
    "TOFU_TICK_MS": 1,
    "TOFU_CLAIM_REST_MS": 1,
    "TOFU_CLAIM_DOUBLINGS": 3,
    "TOFU_NOTICES_MAX": 32,
}


def read_constants(text: str) -> dict[str, int]:
    """Values of the #defines of CONSTANTS in the text of C headers."""
    found = re.findall(r"^#define\s+(\w+)\s+(\d+)(?:u|ul|ull)?\b", text, re.M)
    return {name: int(value) for name, value in found if name in CONSTANTS}


class Sizes(NamedTuple):
    """What the protocol is parametrised by.

    ``mutations`` names rules that are left out, to see the search find what they
    are there for (``MUTATIONS``).
    """

    slots: int = 1024
    min_window: int = CONSTANTS["TOFU_AM_MIN_WINDOW"]
    max_window: int = CONSTANTS["TOFU_AM_MAX_SMALL"]
    share: int = CONSTANTS["TOFU_AM_POOL_SHARE"]
    grant_entries: int = (
        CONSTANTS["TOFU_REQUEST_ENTRIES"] - CONSTANTS["TOFU_RELEASE_ENTRIES"]
    )
    release_entries: int = CONSTANTS["TOFU_RELEASE_ENTRIES"]
    depth: int = 1  # handlers inside each other
    budget: int = 0  # silent puts until the MRQ is seen empty; 0: not modelled
    nonces: int = 2**32
    mutations: frozenset = frozenset()
    other: tuple = ()  # slots and largest window of the class that messages don't use

    @property
    def entries(self) -> int:
        """Entries of the request table."""
        return self.grant_entries + self.release_entries

    def table_range(self, request: str) -> tuple[int, int]:
        """First entry for a kind of request, and how many there are.

        With no entries of their own (a mutation), releases share the others.
        """
        if request == RELEASE and self.release_entries:
            return self.grant_entries, self.release_entries
        return 0, self.grant_entries

    def window(self, free: int, max_window: int | None = None) -> int:
        """Slots that a newcomer is lent when so many are free (tofu_pool_lend)."""
        most = self.max_window if max_window is None else max_window
        return max(min(free // self.share, most), self.min_window)

    def is_due(self, unreported: int, count: int) -> bool:
        """Must the sender be told (tofu_loan_is_due)?"""
        return unreported * 2 >= count

    def operations_per_message(self, free: int | None = None) -> float:
        """uTofu operations for one small message in a steady one-way stream."""
        window = self.window(self.slots if free is None else free)
        return 1 + 1 / -(-window // 2)


GRANT = "grant"
RELEASE = "release"

MUTATIONS = {
    "no_strong_order": "operations of one sender may overtake each other",
    "early_credit": "a slot is given back when its message is written, not read",
    "no_nonce_check": "credit is believed whatever loan it names",
    "release_first": "a release is looked at before messages that came earlier",
    "gone_at_once": "what a dead sender held is lent again with its notices unread",
    "nested_credit": "the inner handler gives back the outer one's slot",
    "take_over": "a sender that finds its own claim in an entry uses the entry",
    "free_probed": "what a probe says of a claim is believed of the next one",
    "free_all": "a request frees all other claims of its sender",
    "shared_table": "releases and requests for slots share all entries",
    "want_once": "a waiting endpoint says only once that it wants credit",
    "no_claim_probe": "nobody asks whether a claimant is alive",
    "no_loan_probe": "nobody asks whether a holder of slots is alive",
    "no_identity": "nobody asks whether a holder of slots is who was lent them",
    "no_budget": "credit and answers are sent whatever errors may come of it",
    "late_delivery": "a dead sender's puts land after its failure was reported",
    "late_errors": "a put fails after the MRQ was seen empty with it in flight",
}
