# SPDX-License-Identifier: BSD-3-Clause
"""The tables of active messages run and report; what UCX prints is understood."""

import json
import os
import sys
from pathlib import Path

import pytest

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
