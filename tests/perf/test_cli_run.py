# SPDX-License-Identifier: BSD-3-Clause
"""uct-tofu perf run and list."""

import json
import sys
from pathlib import Path

import click
import pytest

import samples

from uct_tofu.perf import cli_run, result

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
        (["-s", "8abc"], "'8abc' is not a size"),
        (["-d", "memory"], "-d is for the layer libuct"),
        (["--layer", "ucp", "-D", "zcopy"], "-D is for the layers"),
        (["--layer", "utofu", "-t", "barrier", "-s", "8,64"], "sends nothing"),
        (["-t", "ep_create", "-s", "8"], "sends nothing"),
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


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["put_bw", "tnis=6", "--layer", "uct"], "tnis is for put_bw of the layer"),
        (["put_lat", "tnis=2"], "tnis is for put_bw of the layer utofu, not for put_"),
        (["put_bw", "tnis=7"], "tnis is 1 to 6, not 7"),
        (["put_bw", "tnis=6", "-p", "processes=9"], "tnis and processes one says it"),
        (["gups", "processes=1"], "processes is 2 to 64, not 1"),
        (["put_lat", "inject=1", "--layer", "uct"], "inject is for put_lat, put_bw"),
        (["get_lat", "inject=1"], "inject is for put_lat, put_bw"),
        (["put_lat", "piggyback=1", "--layer", "ucp"], "piggyback is for put_lat, "),
        (["put_lat", "piggyback=1", "-D", "zcopy"], "is the layout short, not zcopy"),
        (["put_lat", "piggyback=2"], "piggyback is 0 to 1, not 2"),
        (["put_lat", "senders=1", "--layer", "uct"], "senders is for many_to_one"),
        (
            ["many_to_one", "senders=2", "-p", "processes=5", "--layer", "uct"],
            "of the params senders and processes one says it all",
        ),
        (["get_lat", "tnis=1", "-D", "short"], "tnis is for put_bw"),
        (["gups", "processes=2", "-D", "short"], "short of utofu is a piggyback"),
    ],
)
def test_a_param_that_would_have_no_effect(cli, words, reason):
    """The record had it, or the target found bytes that nobody had put."""
    layer = [] if "--layer" in words else ["--layer", "utofu"]
    test, param, *more = words
    code, output = cli(
        *["run", "-t", test, "-p", param, *more, *layer],
        *["-s", "8", "-n", "10", "-r", "1", "-o", "x"],
    )
    assert code == 1 and reason in output, output
    assert len(output.splitlines()) == 2


def test_one_that_fails_keeps_no_other_from_being_measured(cli, tmp_path):
    """The layer utofu has no layout bcopy, which its kernel finds out."""
    code, output = cli(
        *["run", "-t", "put_lat", "--layer", "utofu", "--layer", "uct", "-D", "bcopy"],
        *["-s", "8", "-n", "10", "-r", "1", "-o", "x"],
    )
    assert code == 1 and "the layouts of uTofu are short (piggyback)" in output
    assert [r.layer for r in result.read(tmp_path / "x")] == ["uct"]


def test_a_record_is_not_added_to_a_line_that_was_cut(cli, tmp_path):
    """Both were lost."""
    path = tmp_path / "x"
    result.write(path, [samples.record()])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    words = ["run", "-n", "10", "-r", "1", "-s", "8", "-o", "x"]
    assert cli(*words)[0] == cli(*words)[0] == 0
    assert len(result.read(path)) == 3
    path.write_bytes(path.read_bytes()[:-9])
    result.write(path, [samples.record()], append=True)
    assert [record is not None for _, record, _ in result.scan(path)] == [1, 1, 0, 1]


def test_a_terminal_shows_what_was_measured_before_it_is_interrupted(
    monkeypatch, capsys
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(KeyboardInterrupt), cli_run._shown() as (show, progress):
        progress(1, 2, "put_lat")
        show(samples.record(p50=1.25e-6))
        raise KeyboardInterrupt
    assert "1.250" in capsys.readouterr().out


def test_mpi_with_threads_leaves_nothing_in_shm(cli):
    """It was refused after MPI_Init, whose segment stayed."""
    shm = Path("/dev/shm")
    before = set(shm.iterdir())
    words = ["run", "-t", "mt_pingpong", "--layer", "mpi", "-T", "2", "-s", "8"]
    code, output = cli(*words, "-n", "10", "-r", "1")
    if "has one thread" not in output:
        pytest.skip(output)
    assert code == 1
    assert not [path for path in set(shm.iterdir()) - before if "mpich" in path.name]
