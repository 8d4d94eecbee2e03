# SPDX-License-Identifier: BSD-3-Clause
"""The tables of active messages run and report; what UCX prints is understood."""

import json
import os
import re
import sys
import types
from pathlib import Path

import pytest

from uct_tofu import perftest

PERF = Path(__file__).resolve().parents[2] / "perf"

PRINTED = """\
[1.2] [vm:1 :0]   +-----------+-------------------------------------------+-------------+
[1.2] [vm:1 :0]   | perftest inter-node cfg#0                                           |
[1.2] [vm:1 :0]   | tagged message by ucp_tag_send* from host memory                    |
[1.2] [vm:1 :0]   +-----------+-------------------------------------------+-------------+
[1.2] [vm:1 :0]   |   Range   |                Description                |   Config    |
[1.2] [vm:1 :0]   +-----------+-------------------------------------------+-------------+
[1.2] [vm:1 :0]   |     0..24 | eager short                               | utofu/tofu0 |
[1.2] [vm:1 :0]   |  25..64K  | eager copy-in copy-out                    | utofu/tofu0 |
[1.2] [vm:1 :0]   | 65537..inf | (?) rendezvous zero-copy read from remote | utofu/tofu0 |
[1.2] [vm:1 :0]   +-----------+-------------------------------------------+-------------+
[1.2] [vm:1 :0]   | tagged message by ucp_tag_send*(multi) from host memory             |
[1.2] [vm:1 :0]   |    0..inf | many                                      | utofu/tofu0 |
"""


@pytest.fixture
def sweep(monkeypatch):
    """The module perf/protocol_sweep.py."""
    monkeypatch.syspath_prepend(str(PERF))
    import protocol_sweep

    return protocol_sweep


def test_protocols_are_read(sweep):
    tables = sweep.parse_protocols(PRINTED)
    assert len(tables) == 2
    assert tables[0][1][1] == (25, 65536, "eager copy-in copy-out utofu/tofu0")
    for size, text in ((24, "short"), (25, "copy-in"), (1 << 20, "rendezvous")):
        assert text in sweep.protocol_of(tables, "tag_lat", size)
    assert sweep.protocol_of(tables, "tag_bw", 8) == "many utofu/tofu0"
    assert sweep.protocol_of(tables, "ucp_get", 8) == "?"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize(
    ("only", "count"), [("2 threads", 2), ("tag_lat", 1), ("get_lat 4 KiB", 1)]
)
def test_cases_are_measured(processes, tmp_path, only, count):
    result = tmp_path / "result.json"
    command = [sys.executable, PERF / "am_table.py", "--quick", "--rounds", "1"]
    command += ["--only", only, "--json", result]
    code, output = processes.run([str(word) for word in command], timeout=110)
    assert code in (0, 1), output
    data = json.loads(result.read_text())
    assert len(data["results"]) == count
    for item in data["results"]:
        assert only in item["name"]
        assert item["ratio"] == pytest.approx(item["ours"] / item["peer"])
        lower_is_better = item["unit"] == "s"
        assert item["holds"] == (
            item["ratio"] <= item["bound"]
            if lower_is_better
            else item["ratio"] >= item["bound"]
        )
    assert (code == 0) == all(item["holds"] for item in data["results"])


def test_protocols_to_compare_with(sweep):
    """One setting for each protocol that is not the chosen one."""
    protocols = {"a": "short", "b": "copy-in", "c": "copy-in", "d": "zero-copy"}
    assert sweep.others("short", protocols) == ["b", "d"]
    assert sweep.others("rendezvous", protocols) == ["a", "b", "d"]
    # what could not be read may be another one each time
    assert sweep.others("?", {"a": "?", "b": "?"}) == ["a", "b"]


class Runs:
    """In place of a Sweep: fixed times and protocols."""

    TIMES = {"default": 1.0, "bcopy": 0.5, "zcopy": 2.0, "short/bcopy": None}

    def __init__(self):
        self.count = dict.fromkeys(self.TIMES, 0)

    def line(self):
        return 1.0

    def protocols(self, test, name, settings):
        return [("remote memory read", [(0, 100, f"protocol of {name}")])]

    def run(self, test, size, name, settings):
        self.count[name] += 1
        return self.TIMES[name]


def test_sweep_of_one_size(sweep):
    runs = Runs()
    result = sweep.sweep_one(runs, "ucp_get", 8, 3)
    assert result["best"] == "bcopy" and result["ratio"] == pytest.approx(2.0)
    assert result["medians"] == {"default": 1.0, "bcopy": 0.5, "zcopy": 2.0}
    assert runs.count == {"default": 3, "bcopy": 3, "zcopy": 1, "short/bcopy": 1}
    assert result["steady"] == 3 and result["protocol"] == "protocol of default"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("test", ["tag_bw", "ucp_am_bw", "ucp_put_bw", "ucp_get"])
def test_choice_in_the_timed_mode(sweep, test):
    """Where streams are limited by the link UCP takes what costs it the fewest steps:
    rendezvous was slower up to 24 KiB, and large puts went by copy."""
    bench = types.SimpleNamespace(cpus=perftest.choose_cpus(), line=None, seconds=0.1)
    tables = sweep.Sweep(bench, "tofud").protocols(test, "default", {})

    def chosen(size):
        return sweep.protocol_of(tables, test, size)

    if test in ("tag_bw", "ucp_am_bw"):
        for size in (512, 8 << 10, 24 << 10):
            assert not re.search(r"rendezvous|\?", chosen(size)), chosen(size)
        for size in (32 << 10, 1 << 20):
            assert "rendezvous zero-copy read" in chosen(size), chosen(size)
    else:
        for size in (8 << 10, 1 << 20):
            assert "zero-copy" in chosen(size), chosen(size)
