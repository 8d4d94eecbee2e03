# SPDX-License-Identifier: BSD-3-Clause
"""perf/raw_table.py and timing_table.py run and report; no speed is judged here."""

import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from uct_tofu.perf import tofud_model

PERF = Path(__file__).resolve().parents[2] / "perf"

#: They measure on CPUs that they pin themselves to, and share on a busy machine.
pytestmark = pytest.mark.timeout(300)

needs_two_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"
)


@pytest.fixture
def perf_module(monkeypatch):
    """perf_module(name) -> a module of perf/."""
    monkeypatch.syspath_prepend(str(PERF))
    return importlib.import_module


def run_script(processes, tmp_path, script, only, *options):
    """Run a table with --only; returns (exit code, output, its JSON)."""
    result = tmp_path / "result.json"
    command = [sys.executable, str(PERF / script), "--quick", "--only", only]
    code, output = processes.run(
        [*command, "--json", str(result), *options], timeout=280
    )
    assert code in (0, 1), output
    return code, output, json.loads(result.read_text())


@needs_two_cpus
@pytest.mark.parametrize(
    ("only", "count"),
    [
        ("lat 8 B", 10),
        ("lat+notice 4 KiB", 1),
        ("rate+notice 8 B piggyback8", 1),
        ("rate 8 B", 2),
        ("4 KiB put strong", 2),
        ("malloc: lat 64 KiB", 1),
        ("stack: lat 64 KiB", 1),
        ("shared anonymous: lat 64 KiB", 1),
        ("malloc beside a thread: lat 64 KiB", 1),
        ("kernel alone", 3),
        ("empty poll", 4),
    ],
)
def test_raw_lines_are_measured(processes, tmp_path, only, count):
    code, output, data = run_script(
        processes, tmp_path, "raw_table.py", only, "--rounds", "1"
    )
    assert len(data["results"]) == count
    for item in data["results"]:
        assert only in item["name"] and item["name"] in output
        assert item["ours"] > 0 and item["peer"] > 0
        assert item["ratio"] == pytest.approx(item["ours"] / item["peer"])
        if only == "kernel alone":
            assert item["bound"] is None and item["holds"]  # for information
            continue
        assert item["holds"] == (item["ratio"] <= item["bound"])
    assert (code == 0) == all(item["holds"] for item in data["results"])
    assert ("DOES NOT HOLD" in output) == (code == 1), output


class NamesOnly:
    """Stands for a Bench: says what it would measure."""

    def __init__(self):
        self.with_variables = []

    def kernel(self, *arguments, rate=False, variables=()):
        if variables:
            self.with_variables.append((arguments, dict(variables)))
        return ("kernel", *arguments)

    def tool(self, *arguments):
        # period() calls what it gets, but only when measured
        return ("tool", *arguments)


def test_raw_bounds_and_peers(perf_module):
    bench = NamesOnly()
    cases = perf_module("raw_table").make_cases(bench)
    kept = [c for c in cases if "kept private" in c.name]
    unordered = [c.ours[1:] for c in kept if "lines unordered" in c.name]
    environment = {"UTOFU_EMU_REHOME": "0"}
    assert bench.with_variables == [
        (
            case.ours[1:],
            environment
            | ({"UTOFU_EMU_LINES": "unordered"} if "lines" in case.name else {}),
        )
        for case in kept
    ]
    # each is measured with the lines in order, and where memory may be moved, as well
    ordered = [c.ours[1:] for c in kept if "lines unordered" not in c.name]
    assert len(unordered) == 6 and set(unordered) <= set(ordered)
    assert ordered == [c.ours[1:] for c in cases if c.name.startswith("malloc: ")]
    assert len({case.name for case in cases}) == len(cases)
    alone = [case for case in cases if case.bound is None]
    assert [case.ours[1:3] for case in alone[:2]] == [("kernel_put", "malloc-page")] * 2
    for case in alone:
        assert case.ours[:-1] == case.peers["cma"][:-1]
        assert (case.ours[-1], case.peers["cma"][-1]) == ("pwrite", "cma")
    cases = [case for case in cases if case.bound is not None]
    bounds = {}
    for case in cases:
        assert case.unit == "s" and case.ours[:2] == ("kernel", "raw_utofu")
        _, _, memory, size, test, how, *order = case.ours
        bounds.setdefault((memory.split("-")[0], test, *order), {}).setdefault(
            size, set()
        ).add((how, case.bound))
        # the peer moves as many bytes, in memory of the same kind
        for peer in case.peers.values():
            if isinstance(peer, tuple) and peer[0] == "kernel":
                assert peer[1:5] == ("uct_put", memory, size, "lat")
            elif isinstance(peer, tuple):
                assert peer[2] == ("sysv" if memory == "memfd" else "cma")
                assert peer[3] == size

    def of(*key):
        return {
            size: {bound for _, bound in values} for size, values in bounds[key].items()
        }

    mapped = of("memfd", "lat", "strong")
    assert {8, 4096, 65536, 1 << 20} <= set(mapped)
    assert all(mapped[size] == {1.3 if size <= 4096 else 1.1} for size in mapped)
    assert set().union(*of("memfd", "notice").values()) == {1.0}
    assert of("memfd", "rate") == {8: {0.7}}
    assert of("memfd", "notice_rate") == {8: {0.6}}
    malloc = of("malloc", "lat")
    assert {8, 4096, 65536, 1 << 20} <= set(malloc)
    assert all(malloc[size] == {0.7 if size <= 4096 else 1.0} for size in malloc)
    assert of("malloc", "lat", "strong") == {4096: {1.3}}
    assert {how for how, _ in bounds["memfd", "poll_mrq"][8]} == {"0", "1", "8"}
    assert {how for how, _ in bounds["memfd", "poll_tcq"][8]} == {"0"}
    limits = [case.peers["limit"]() for case in cases if "limit" in case.peers]
    assert limits == [10e-9] * 4
    # 8 bytes by the shortest way and by an ordinary put
    hows = {how for how, _ in bounds["memfd", "lat", "strong"][8]}
    assert hows == {"piggyback8", "put"}


@needs_two_cpus
@pytest.mark.parametrize(
    ("only", "count"),
    [
        ("put 8 B", 3),
        ("piggyback", 3),
        ("MRQ notice", 3),
        ("put 64 KiB", 3),
        ("round trip", 6),
        ("exchange", 3),
        ("message gap", 1),
        ("2 TNIs", 2),
        ("gap 8", 1),
        ("barrier", 1),
    ],
)
def test_timing_lines_are_measured(processes, tmp_path, only, count):
    code, output, data = run_script(processes, tmp_path, "timing_table.py", only)
    assert len(data["results"]) == count
    assert data["host"]["backend"] == "emulator"
    for item in data["results"]:
        assert item["model_ns"] > 0 and item["name"] in output
        if not item["supported"]:
            assert only in ("gap 8", "barrier"), item
            continue
        assert 0 < item["median_ns"] <= item["p99_ns"]
        assert item["error_ns"] == pytest.approx(item["median_ns"] - item["model_ns"])
    judged = [item["holds"] for item in data["results"] if item["judged"]]
    assert (code == 0) == all(judged)
    assert ("DOES NOT HOLD" in output) == (code == 1), output


@needs_two_cpus
def test_timing_peer_waits_and_stores(processes, tmp_path):
    """The peer of the timed mode's lines is never faster than what it waits for."""
    code, output, data = run_script(processes, tmp_path, "timing_table.py", "no library")
    (item,) = data["results"]
    assert code == 0 and not item["judged"]
    assert 1000 < item["median_ns"] <= item["p99_ns"]
    assert f"p99 {item['p99_ns'] - item['median_ns']:+.0f}: the host's" in output


# Of the loop without the library, what it takes beside puts on idle and on busy cores
IDLE = [1200.0] * 298 + [9000.0] * 2
BUSY = [1200.0] * 290 + [1300.0] * 10


def test_timing_verdicts(perf_module, capsys):
    table = perf_module("timing_table")

    def judge(times, expected=1000.0, is_one_way=True):
        line = table.Line("x", 1, expected, (), (), is_one_way=is_one_way)
        (result,) = table.measure([line], 3, lambda _: times and (times, IDLE * 2))
        table.print_table([result])
        out = capsys.readouterr().out
        assert ("DOES NOT HOLD" in out) == (result["judged"] and not result["holds"])
        return result["judged"], result["holds"]

    assert judge([1000.0] * 100) == (True, True)
    assert judge([1029.0] * 100) == (True, True)
    assert judge([1031.0] * 100) == (True, False)
    assert judge([969.0] * 100) == (True, False)
    assert judge([1000.0] * 98 + [1061.0] * 2) == (True, False)
    assert judge([1000.0] * 99 + [9000.0]) == (True, True)
    assert judge([3000.0] * 100, 3000.0) == (False, True)
    assert judge([1000.0] * 100, is_one_way=False) == (False, True)
    assert judge(None) == (True, False)


def test_timing_counts_blocks_of_idle_cores(perf_module):
    table = perf_module("timing_table")
    times = [0.0] * table.BLOCK + [1.0] * table.BLOCK + [2.0] * 10

    def counted(*loops):
        assert all(len(loop) == table.BARE_BLOCK for loop in loops)
        return sorted(set(table.idle_part(times, sum(loops, []))))

    assert counted(IDLE, IDLE, IDLE, IDLE) == [0.0, 1.0, 2.0]
    assert table.idle_part(times, IDLE * 4) == times
    assert counted(BUSY, IDLE, IDLE, IDLE) == [1.0, 2.0]
    assert counted(IDLE, BUSY, IDLE, IDLE) == [2.0]
    assert counted(IDLE, IDLE, IDLE, BUSY) == [0.0, 1.0]
    assert counted(IDLE, IDLE, BUSY, BUSY) == [0.0]
    assert counted(IDLE, BUSY, BUSY, IDLE) == []
    assert table.is_steady([1200.0] * 99 + [9000.0])
    assert table.is_steady([1200.0] * 98 + [1260.0] * 2)
    assert not table.is_steady([1200.0] * 98 + [1261.0] * 2)


def test_timing_counts_rounds_of_idle_cores(perf_module, capsys):
    table = perf_module("timing_table")
    line = table.Line("x", 1, 1000.0, (), (), is_one_way=True)

    def measure(idle, one_way=True):
        """Times grow with each run, so that the result says which of them counted."""
        runs, loops = iter(range(1000)), iter(idle)
        line.is_one_way = one_way

        def run(_):
            # a block, and a third of one: cores that are busy before the first, or after the last
            time = 1000.0 + next(runs)
            first, last = {"idle": (IDLE, IDLE), "less": (BUSY, IDLE), "most": (IDLE, BUSY)}[
                next(loops, "idle")
            ]
            size = table.BLOCK
            return [time] * (size + size // 3), first + IDLE + last

        (result,) = table.measure([line], 3, run)
        table.print_table([result])
        ever = "never idle" not in capsys.readouterr().out
        return [median - 1000 for median, _ in result["rounds"]], ever

    assert measure([]) == ([0, 1, 2], True)
    # three quarters of it are enough, one quarter is not
    assert measure(["most"]) == ([0, 1, 2], True)
    assert measure(["less"]) == ([1, 2, 3], True)
    # a round that has no idle cores in 8 tries
    assert measure(["less"] * 8) == ([8, 9], True)
    assert measure(["less"] * 24) == ([7, 15, 23], False)
    # who is not judged is not asked about
    assert measure(["less"] * 24, one_way=False) == ([0, 1, 2], True)


# Published figures in ns that the model was made from, and two that it was not.
PUBLISHED = [
    ("put", (8, 1), 980),
    ("put", (8, 2), 1060),
    ("put", (8, 3), 1130),
    ("get", (8, 1), 1495),
    ("get", (8, 2), 1650),
    ("get", (8, 3), 1800),
    ("armw", (1,), 1335),
    ("armw", (2,), 1490),
    ("armw", (3,), 1630),
    ("put", (12 << 10, 1), 3170),
    ("put", (3 << 20, 1), 496900),
]


@pytest.mark.parametrize(("operation", "arguments", "published"), PUBLISHED)
def test_model_is_near_the_published(operation, arguments, published):
    model = tofud_model
    value = getattr(model, operation)(model.PROFILES["tofud"], *arguments)
    assert value == pytest.approx(published, rel=0.01)


def test_model_of_streams_and_barriers():
    model = tofud_model
    p, mib = model.PROFILES["tofud"], 1 << 20
    one = model.stream(p, mib)
    assert mib / one == pytest.approx(6.35, rel=0.01)  # GB/s
    assert model.stream(p, mib, tnis=6) == one  # one link
    assert model.stream(p, mib, tnis=2, neighbours=2) == pytest.approx(one / 2)
    six = model.stream(p, mib, tnis=6, neighbours=6)
    assert mib / six == pytest.approx(38.1, rel=0.01)
    assert model.stream(p, mib, gap=8) == pytest.approx(2 * one)
    assert model.stream(p, mib, gap=24) == pytest.approx(4 * one)
    assert 1024 / model.stream(p, 1024) == pytest.approx(3.49, rel=0.02)
    assert model.barrier(p, 384) == pytest.approx(4320, rel=0.21)
    fastest = model.put(p, 8, 1, piggyback=True, injection=True)
    assert fastest == pytest.approx(490, rel=0.01)
    best = model.PROFILES["tofud:best"]
    assert model.put(best, 8, 1, piggyback=True) == pytest.approx(490, rel=0.01)
    with pytest.raises(ValueError, match="32"):
        model.put(p, 33, 1, piggyback=True)
