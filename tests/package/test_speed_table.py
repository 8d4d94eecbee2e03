# SPDX-License-Identifier: BSD-3-Clause
"""perf/speed_table.py and its kernels run and report; bounds are not judged here."""

import json
import os
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "perf" / "speed_table.py"

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"
)


@pytest.mark.parametrize(
    ("only", "count"),
    [("ping-pong 8 B", 1), ("latency 4 KiB", 2), ("bandwidth 64 KiB", 1), ("fadd", 1)],
)
def test_cases_are_measured(processes, tmp_path, only, count):
    result = tmp_path / "result.json"
    code, output = processes.run(
        [
            sys.executable,
            str(SCRIPT),
            "--quick",
            "--rounds",
            "1",
            "--only",
            only,
            "--json",
            str(result),
        ],
        timeout=110,
    )
    assert code in (0, 1), output
    assert ("DOES NOT HOLD" in output) == (code == 1), output
    data = json.loads(result.read_text())
    assert len(data["results"]) == count
    for item in data["results"]:
        assert only in item["name"]
        assert item["ours"] > 0 and item["peer"] > 0
        assert item["ratio"] == pytest.approx(item["ours"] / item["peer"])
        good = (
            item["ratio"] <= item["bound"]
            if item["unit"] == "s"
            else item["ratio"] >= item["bound"]
        )
        assert item["holds"] == good
    assert (code == 0) == all(item["holds"] for item in data["results"])
    assert data["host"]["rounds"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nosuch"], "no line has 'nosuch' in it"),
        (["--rounds", "0"], "'0' is not a number of 1 or more"),
        (["--rounds", "-1"], "'-1' is not a number of 1 or more"),
    ],
)
def test_nothing_to_measure(processes, words, said):
    code, output = processes.run(
        [sys.executable, str(SCRIPT), "--quick", *words], timeout=110
    )
    assert code == 2 and said in output, output
