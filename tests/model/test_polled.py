# SPDX-License-Identifier: BSD-3-Clause
"""The model of messages without a notice: searched to the end, and mutated."""

import pytest

from uct_tofu.model import Found
from uct_tofu.model.explore import TooLarge
from uct_tofu.model.polled import (
    LOANS,
    POLLED_FINDS,
    POLLED_MUTATIONS,
    explore_loan,
    mutant_loan,
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LOANS)
def test_every_state(name):
    """Each message once and in order; nobody waits or sleeps for ever."""
    loan = LOANS[name]
    seen = explore_loan(loan)
    assert seen.finals > 0
    moves = ["look", "post", "large", "permit", "revoke", "poll", "read", "tick"]
    moves += ["arm", "timer"] if loan.sleep else []
    moves += ["die", "reclaim"] if loan.death else []
    for move in moves:
        assert seen.moves[move] > 0, move


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", POLLED_MUTATIONS)
def test_mutation_is_found(mutation):
    """Each rule is needed, and the search sees it."""
    with pytest.raises(Found) as found:
        explore_loan(mutant_loan(mutation))
    assert found.value.trace


def test_finds_are_mutations():
    """The table names what there is."""
    assert POLLED_FINDS.keys() <= POLLED_MUTATIONS.keys()
    assert set(POLLED_FINDS.values()) <= LOANS.keys()


def test_limit():
    """A search that is cut short does not pass for a search."""
    with pytest.raises(TooLarge):
        explore_loan(LOANS["polled"], limit=100)
