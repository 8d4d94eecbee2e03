# SPDX-License-Identifier: BSD-3-Clause
"""The model of active messages: searched to the end, mutated, walked at random."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uct_tofu.model import Found, Sizes, System, explore, walk
from uct_tofu.model import protocol as p
from uct_tofu.model import system as m
from uct_tofu.model.cases import CASES, FINDS, mutant
from uct_tofu.model.explore import TooLarge
from uct_tofu.model.sizes import CONSTANTS, MUTATIONS, read_constants

CORE = Path(__file__).resolve().parents[2] / "cython" / "core"


def test_constants_are_those_of_the_core():
    """Numbers of the model are #defines of the C code."""
    headers = "".join(
        (CORE / name).read_text()
        for name in (
            "tofu_am.h", "tofu_objects.h", "tofu_internal.h", "tofu_am_recall.c",
            "tofu_progress.c",
        )
    )
    assert read_constants(headers) == CONSTANTS
    changed = re.sub(r"(TOFU_AM_MAX_SMALL\s+)64u", r"\g<1>65u", headers)
    assert read_constants(changed) != CONSTANTS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [n for n, case in CASES.items() if not case.large])
def test_every_state(name):
    """Each property holds in each state of the small systems."""
    seen = explore(CASES[name].system)
    assert seen.finals > 0
    assert seen.moves["read"] > 0 and seen.moves["end"] > 0
    if CASES[name].system.deaths:
        assert seen.moves["die"] > 0 and seen.moves["lose"] > 0
    assert (seen.moves.get("idle", 0) > 0) == CASES[name].system.idle


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutation_is_found(mutation):
    """Without any one of its rules the protocol is wrong, and the search sees it."""
    with pytest.raises(Found) as found:
        explore(mutant(mutation))
    assert found.value.trace
    assert "\n   1 " in str(found.value)  # the way there is shown


def test_each_mutation_has_a_case():
    """None is listed that is not tried."""
    assert set(FINDS) == set(MUTATIONS)


def test_limit():
    """A search that is cut short does not pass for a search."""
    with pytest.raises(TooLarge):
        explore(CASES["two"].system, limit=100)


def test_older_claims_are_freed():
    """A request ends what its sender claimed before, and only that."""
    sz = Sizes(slots=2, grant_entries=4, release_entries=1)
    r = p.new_receiver(sz, 2)._replace(
        claims=(1, 1, 2, 1, 0),
        seen=(2, 1, 2, 0, 0),
        requests=(None, None, None, (0, "grant", (0, 1)), None),
        mrq=(("request", 0, 3),),
    )
    assert p.read_notice(sz, r).claims == (0, 1, 2, 1, 0)


# ---------------------------------------------------------------- at random

systems = st.builds(
    System,
    sizes=st.builds(
        Sizes,
        slots=st.integers(2, 40),
        min_window=st.just(2),
        max_window=st.integers(2, 16),
        share=st.sampled_from([1, 4, 16]),
        grant_entries=st.integers(3, 8),
        release_entries=st.integers(2, 4),
        depth=st.integers(1, 3),
        budget=st.sampled_from([0, 1, 4]),
        nonces=st.just(2**32),
        mutations=st.just(frozenset()),
    ),
    todo=st.lists(
        st.lists(st.integers(0, 4), min_size=1, max_size=2).map(tuple),
        min_size=2,
        max_size=24,
    ).map(tuple),
    deaths=st.integers(0, 4),
    restarts=st.integers(0, 1),
    leave=st.booleans(),
    recall_always=st.booleans(),
    idle=st.booleans(),
)


@pytest.mark.timeout(300)
@settings(
    max_examples=100, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(system=systems, seed=st.integers(0, 2**32))
def test_many_senders(system, seed):
    """Tens of senders, sizes and schedules at random, deaths among them."""
    schedule = random.Random(seed)
    died = 0

    def choose(possible):
        nonlocal died
        move = schedule.choice(possible)
        if move[0] in m.OPTIONAL and schedule.random() < 0.9:
            move = schedule.choice(possible)
        died += move[0] == "die"
        return move

    taken = walk(system, choose, 600)
    assert taken["die"] == died <= system.deaths
    if not died and not system.sizes.budget:
        # what is credited is a part of what is sent: at most one per message
        assert taken["report"] <= sum(map(sum, system.todo))


def test_walk_sees_mutations():
    """The random walk is able to fail."""
    sizes = Sizes(
        slots=2, min_window=2, max_window=2, share=1, grant_entries=2,
        release_entries=0, mutations=frozenset({"shared_table"}),
    )  # fmt: skip
    system = System(sizes, ((3,),) * 8)
    with pytest.raises(Found):
        walk(system, lambda possible: possible[0], 2000)


def test_command():
    """python -m uct_tofu.model says what it searched."""
    done = subprocess.run(
        [sys.executable, "-m", "uct_tofu.model", "window", "two"],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\d+ states +\d+ transitions", done.stdout)) == 2
    assert "These hold in every state" in done.stdout
