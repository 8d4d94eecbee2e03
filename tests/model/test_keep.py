# SPDX-License-Identifier: BSD-3-Clause
"""The model of kept messages: searched to the end, mutated, walked at random."""

import random

import pytest

from uct_tofu.model import Found
from uct_tofu.model.explore import TooLarge
from uct_tofu.model.keep import (
    KEEP_MUTATIONS,
    RINGS,
    Ring,
    explore_ring,
    mutant_ring,
    walk_ring,
)
from uct_tofu.model.sizes import CONSTANTS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", RINGS)
def test_every_state(name):
    """Nothing is written over, and nobody is left without a slot."""
    seen = explore_ring(RINGS[name])
    assert seen.finals > 0
    for move in ("post", "keep", "release", "report", "look", "small"):
        assert seen.moves[move] > 0, move


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", KEEP_MUTATIONS)
def test_mutation_is_found(mutation):
    """Each rule is needed, and the search sees it."""
    with pytest.raises(Found) as found:
        explore_ring(mutant_ring(mutation))
    assert found.value.trace


def test_limit():
    """A search that is cut short does not pass for a search."""
    with pytest.raises(TooLarge):
        explore_ring(RINGS["ring"], limit=100)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [4, 7, CONSTANTS["TOFU_AM_MAX_LARGE"]])
def test_at_random(count):
    """Rings up to the largest that is lent, for long."""
    schedule = random.Random(count)
    taken = walk_ring(Ring(count, depth=3, words=4), schedule.choice, 50_000)
    assert taken["post"] >= taken["read"] + taken["offer"] > 1000
    assert taken["keep"] >= taken["release"] > 100


def test_walk_sees_mutations():
    """The random walk is able to fail."""
    ring = Ring(CONSTANTS["TOFU_AM_MAX_LARGE"], mutations=frozenset({"no_mask"}))
    with pytest.raises(Found):
        walk_ring(ring, random.Random(1).choice, 50_000)
