# SPDX-License-Identifier: BSD-3-Clause
"""uct-tofu perf run and list."""

import json
import sys
from pathlib import Path

import click
import pytest

from uct_tofu.perf import cli_run

COMMAND = str(Path(sys.executable).with_name("uct-tofu"))


@pytest.fixture
def cli(processes, tmp_path):
    """cli(*arguments) -> (exit code, output), in an empty directory."""

    def run(*arguments):
        return processes.run([COMMAND, "perf", *arguments], cwd=tmp_path, timeout=110)

    return run


def test_run_prints_lines_and_writes_records(cli, tmp_path):
    arguments = ["run", "-t", "put_lat", "-t", "put_bw", "--layer", "uct", "-s", "8,64"]
    arguments += ["-n", "100", "-w", "10", "-O", "4", "-r", "2", "-o", "r.jsonl"]
    code, output = cli(*arguments)
    assert code == 0, output
    lines = output.splitlines()
    assert lines[0].split()[:3] == ["test", "layer", "transport"] and len(lines) == 5
    records = [
        json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()
    ]
    assert [(r["test"], r["size"]) for r in records] == [
        ("put_lat", 8),
        ("put_lat", 64),
        ("put_bw", 8),
        ("put_bw", 64),
    ]
    for record in records:
        assert record["iterations"] == 100 and record["warmup"] == 10
        assert record["repeats"] == 2
    assert [r["window"] for r in records] == [None, None, 4, 4]
    code, output = cli("run", "-n", "50", "-r", "1", "-o", "r.jsonl")
    assert code == 0 and len((tmp_path / "r.jsonl").read_text().splitlines()) > 4


@pytest.mark.parametrize(("cpus", "crowded"), [("0,1", None), ("0,0", True)])
def test_a_cpu_twice_is_one(cli, tmp_path, cpus, crowded):
    arguments = ["run", "-t", "put_lat", "--layer", "utofu", "-s", "8", "-n", "100"]
    code, output = cli(*arguments, "-r", "1", "-c", cpus, "-o", "r.jsonl")
    assert code == 0, output
    (line,) = (tmp_path / "r.jsonl").read_text().splitlines()
    assert json.loads(line)["params"].get("oversubscribed") is crowded


def test_run_over_transports(cli):
    code, output = cli(
        *["run", "-t", "am_lat", "--layer", "libuct", "-x", "sysv", "-x", "cma"],
        *["-s", "8", "-n", "50", "-r", "1"],
    )
    # cma has no messages: said in words, and the rest is measured
    assert code == 1 and "cma has no such operation" in output
    assert any(
        line.split()[:3] == ["am_lat", "libuct", "sysv"] for line in output.splitlines()
    )


@pytest.mark.parametrize("layers", [[], ["--layer", "utofu", "--layer", "mpi"]])
def test_a_transport_that_no_layer_has_a_use_for(cli, layers):
    code, output = cli("run", "-t", "put_lat", "-x", "sysv", "-s", "8", *layers)
    assert code == 2 and "-x is for the layers libuct and ucp" in output


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-t", "nope"], "no test 'nope' of uct; there are put_lat, put_bw, "),
        (["-t", "tag_lat", "--layer", "utofu", "--layer", "uct"], "of utofu, uct; "),
    ],
)
def test_a_test_that_no_layer_has(cli, words, names):
    code, output = cli("run", *words)
    assert code == 2 and names in output and "p50" not in output
    lines = [line for line in output.splitlines() if "put_bw" in line]
    assert len(lines) == 1


def test_a_test_that_one_of_the_layers_has(cli):
    words = ["-t", "am_lat", "--layer", "utofu", "--layer", "uct", "-s", "8"]
    code, output = cli("run", *words, "-n", "10", "-r", "1")
    assert code == 1 and "the layer utofu has no test 'am_lat'" in output
    assert output.splitlines()[-1].split()[:2] == ["am_lat", "uct"]


def test_timed_with_and_without_a_profile(cli, tmp_path):
    common = ["run", "-t", "fadd", "--layer", "utofu", "-n", "50", "-r", "1", "-o", "x"]
    for words, profile in ((["--timed"], "tofud"), (["--timed=tofud:best"], None)):
        code, output = cli(*common, *words)
        assert code == 0, output
        record = json.loads((tmp_path / "x").read_text().splitlines()[-1])
        assert record["backend"]["mode"] == "timed"
        assert record["backend"]["profile"] == (profile or "tofud:best")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-t", "nonsense"], "no test 'nonsense'"),
        (["-s", "0"], "is not a size"),
        (["-s", "64:8"], "ends before it begins"),
        (["-c", "a"], "not a list of CPUs"),
        (["-c", "4095"], "CPU 4095"),
        (["-p", "colour=1"], "unknown params colour"),
        (["-o", "no/such/folder"], "no/such/folder"),
    ],
)
def test_errors(cli, arguments, words):
    code, output = cli("run", "-n", "10", "-r", "1", *arguments)
    assert code in (1, 2) and words in output and "Traceback" not in output


def test_sizes():
    assert cli_run.sizes_of(None, None, ["8,1K", "2K:8K"]) == (
        8,
        1024,
        2048,
        4096,
        8192,
    )
    assert cli_run.sizes_of(None, None, []) is None
    with pytest.raises(click.BadParameter):
        cli_run.sizes_of(None, None, ["x"])


def test_list(cli):
    code, output = cli("list")
    assert code == 0
    names = {line.split(":")[0]: line.split()[1:] for line in output.splitlines()}
    assert "pingpong_mrq" in names["utofu"] and "tag_lat" in names["ucp"]
    assert "tag_lat" not in names["uct"] and "mpi" in names


@pytest.mark.parametrize("layer", ["utofu", "uct", "ucp"])
@pytest.mark.parametrize(("test", "size"), [("fadd", 16), ("gups", 64), ("fadd", 4)])
def test_atomics_are_of_8_bytes(cli, layer, test, size):
    """What was measured had 8, the record another size."""
    words = ["run", "-t", test, "--layer", layer, "-n", "10", "-r", "1"]
    code, output = cli(*words, "-s", str(size))
    assert code == 2 and f"is of 8 bytes, not of {size}" in output


def test_an_output_without_a_name(cli):
    code, output = cli("run", "-n", "10", "-r", "1", "-o", "")
    assert code == 1 and "No such file" in output
