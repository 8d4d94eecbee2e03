# SPDX-License-Identifier: BSD-3-Clause
"""perf/table_common.py: rounds in which the machine changed do not count."""

import itertools
import sys
from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[2] / "perf"
sys.path.insert(0, str(PERF))
import table_common

sys.path.remove(str(PERF))


class Machine:
    """CPUs that are near or far, by turns; what takes one line or so takes as long."""

    def __init__(self, states):
        self.states = itertools.cycle(states)
        self.state = next(self.states)

    def line(self):
        return self.state

    def takes(self, factor):
        def once():
            value = factor * self.state
            self.state = next(self.states)
            return value

        return once


def table(machine, rounds, **how):
    case = table_common.Case(
        "a line", "s", 1.3, machine.takes(1.2), {"sysv": machine.takes(1.0)}
    )
    return table_common.measure([case], rounds, lambda text: None, machine.line, **how)[0]


def test_steady():
    result = table(Machine([30e-9]), 3)
    assert result["steady"] == 3
    assert result["ratio"] == pytest.approx(1.2)
    assert result["line"] == pytest.approx(30e-9)


def test_changes_are_left_out():
    """Every third measurement or so is on another machine, in either order of turns."""
    result = table(Machine([30e-9] * 5 + [120e-9] * 4), 5)
    assert result["steady"] == 5
    assert result["ratio"] == pytest.approx(1.2)
    assert result["holds"]


def test_never_steady():
    """It is said, and there are numbers all the same."""
    result = table(Machine([30e-9, 120e-9]), 3)
    assert result["steady"] == 0
    assert result["ratio"] != pytest.approx(1.2)


@pytest.mark.parametrize(("how", "runs"), [({"tries": 1}, 1), ({}, table_common.TRIES)])
def test_runs_of_a_round(how, runs):
    """One that is not steady is run again, but not with --quick."""
    machine, lines = Machine([30e-9, 120e-9]), []
    read_line = machine.line
    machine.line = lambda: lines.append(read_line()) or lines[-1]
    assert table(machine, 2, **how)["steady"] == 0
    assert len(lines) == 2 * runs * 3  # around ours and the peer's
