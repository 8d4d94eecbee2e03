# SPDX-License-Identifier: BSD-3-Clause
"""Every program in docs/examples, started as its docstring says.

They check their results themselves; here what they print is compared with results
that are computed in another way, without the transport.
"""

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ucp_glue

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
BIN = Path(sys.executable).parent


def commands(name):
    """The command lines in an example's docstring, as lists of words."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))
    lines = [line for line in docstring.splitlines() if f"docs/examples/{name}" in line]
    return [shlex.split(line) for line in lines]


@pytest.fixture
def run(processes, tmp_path):
    """run(example, **variables) -> output lines by rank, of the documented command.

    ``count`` replaces the documented number of processes.
    """

    def start(name, count=None, code=0, **variables):
        (words,) = commands(name)
        env = {
            k: v for k, v in os.environ.items() if not k.startswith(("UCX_", "UCT_"))
        }
        env |= {"PATH": f"{BIN}:{env['PATH']}", "PYTHONWARNINGS": "default"}
        env |= variables
        while "=" in words[0]:  # variables before the command
            variable, value = words.pop(0).split("=", 1)
            env.setdefault(variable, value)
        if count is not None:
            words[words.index("-n") + 1] = str(count)
        words[-1] = str(ROOT / words[-1])
        ended, output = processes.run(words, timeout=400, env=env, cwd=tmp_path)
        assert ended == code, output
        # Nothing is left open, nothing was refused.
        assert "Warning" not in output and "Traceback" not in output, output
        lines = {}
        for line in output.splitlines():
            rank, text = re.fullmatch(r"(?:\[(\d+)\] )?(.*)", line).groups()
            lines.setdefault(int(rank or 0), []).append(text)
        return lines

    return start


def numbers(line):
    """All numbers in a line."""
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", line)]


def test_each_is_short_described_and_tested():
    table = (EXAMPLES / "README.md").read_text()
    tests = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 60, path.name
        assert f"]({path.name})" in table, path.name
        assert f'"{path.name}"' in tests, path.name
        assert len(commands(path.name)) == 1, path.name
    for name in re.findall(r"\]\(([^)]+)\)", table):
        assert (EXAMPLES / name).exists(), name


@pytest.mark.parametrize("count", [2, 3])
def test_hello(run, count):
    lines = run("hello_put_get.py", count)
    for rank in range(count):
        before, after = (rank - 1) % count, (rank + 1) % count
        read = sum(after + i for i in range(1000))
        assert lines[rank] == [
            f"written here: {1000 * before}, read from {after}: {read}"
        ]


def heat(rows, columns, steps):
    """Means of the rows of a plate whose upper border is hot, point by point."""
    plate = np.zeros((rows + 2, columns + 2))
    plate[0] = 1
    kernel = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    for _ in range(steps):
        around = sum(np.roll(plate, shift, (0, 1)) for shift in kernel) / 4
        plate[1:-1, 1:-1] = around[1:-1, 1:-1]
    return plate[1:-1, 1:-1].mean(axis=1)


@pytest.mark.parametrize("count", [1, 4, 6])
def test_halo(run, count):
    (line,) = run("halo_2d.py", count)[0]
    assert np.allclose(numbers(line), heat(48, 48, 100)[::4], atol=2e-9)


PARAMETERS_FOUND = "found 3.0 -2.0 0.5 7.0 the truth is 3.0 -2.0 0.5 7.0"


def test_parameter_server(run):
    lines = run("parameter_server.py")
    assert lines == {rank: [PARAMETERS_FOUND] for rank in range(3)}


@pytest.mark.parametrize("name", ["glue_tag.py", "parameter_server.py"])
def test_alone_there_is_nobody_to_talk_to(run, name):
    lines = run(name, 1, code=1)
    assert lines[0][0] == "two processes or more, please"


def test_parameter_server_with_a_late_gradient(processes, tmp_path):
    late_worker = Path(__file__).with_name("late_worker.py")
    words = [BIN / "uct-tofu", "run", "-n", "3", late_worker]
    words += [EXAMPLES / "parameter_server.py"]
    ended, output = processes.run(words, timeout=400, cwd=tmp_path)
    assert ended == 0, output
    assert output.count(PARAMETERS_FOUND) == 3, output


def test_histogram(run):
    (line,) = run("histogram.py")[0]
    drawn = [np.random.default_rng(rank).normal(16, 3, 500) for rank in range(4)]
    bins, _ = np.histogram(np.concatenate(drawn), bins=range(33))
    assert numbers(line) == [2000, 32, *bins]


@pytest.mark.parametrize("count", [1, 4, 5])
def test_ring_allreduce(run, count):
    lines = run("ring_allreduce.py", count)
    size = 100_000 * count
    last = (size - 1) * count * (count + 1) // 2
    said = f"{size} sums, the last is {last}"
    assert lines == {rank: [said] for rank in range(count)}


def test_raw_pingpong(run):
    (line,) = run("raw_pingpong.py")[0]
    assert line.startswith("the number came back as 4000, ")


@pytest.mark.parametrize("count", [4, 8])
def test_barrier_reduce(run, count):
    lines = run("barrier_reduce.py", count)
    total = sum(rank + 0.5 for rank in range(count))
    where = next(r for r in range(count) if r * 7 % count == count - 1)
    said = f"sum {total}, of {count}; the largest is {count - 1}, on rank {where}"
    assert lines == {rank: [said] for rank in range(count)}


def test_backend_choice(run):
    lines = run("backend_choice.py")
    assert (
        lines[0][0].startswith("emulator: ")
        and "TNIs [0, 1, 2, 3, 4, 5]" in lines[0][1]
    )
    here, there = "(0, 0, 0, 0, 0, 0)", "(0, 0, 0, 0, 0, 1)"
    assert lines[0][2] == f"1 MiB from {here} to {there} is there"
    assert lines[1] == [f"1 MiB from {there} to {here} is there"]


def test_backend_choice_without_the_machine(run, monkeypatch):
    """The variable decides, and says so: there is no silent way to the emulator."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    lines = run("backend_choice.py", 1, code=1, UCT_TOFU_BACKEND="tofu")
    assert lines[0][0].startswith("no such backend: ") and "libtofucom" in lines[0][0]


def test_glue_tag(run):
    lines = run("glue_tag.py")
    assert 0 not in lines
    for rank in (1, 2):
        said = (
            f"sums by tag and by AM: {2.0 * rank * 100_000} 100000.0 over utofu/tofu0"
        )
        assert lines[rank] == [said]


def test_ucxx(run, ucxx_path):
    lines = run("ucxx_send_recv.py", PYTHONPATH=ucxx_path, UCX_WARN_UNUSED_ENV_VARS="n")
    assert lines == {1: ["8000000 bytes came back, reversed"]}


@pytest.mark.parametrize("name", ["ucxx", "distributed_ucxx"])
def test_missing_packages_are_said(run, name):
    """Where the package is not there; a Python without it runs the example."""
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    example = "ucxx_send_recv.py" if name == "ucxx" else "dask_cluster.py"
    for lines in run(example).values():
        assert lines[0].startswith(f"skipped: {name} is not installed")
        assert "docs/ucxx.md" in lines[0] and len(lines) == 1


@pytest.fixture(scope="session")
def pip_target(tmp_path_factory):
    """pip_target(package, *words) -> folder for the path; "" when it is installed."""

    def install(package, *words):
        if importlib.util.find_spec(package) is not None:
            return ""
        folder = tmp_path_factory.mktemp(package)
        command = [sys.executable, "-m", "pip", "install", "--quiet"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, "--target", str(folder), *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            pytest.skip(f"pip can't fetch {package}: {done.stderr[-500:]}")
        return str(folder)

    return install


def test_dask(run, pip_target, ucxx_path):
    folders = [
        ucxx_path,
        pip_target("distributed_ucxx", "--no-deps", "distributed-ucxx-cu12"),
        pip_target("distributed", "distributed"),
    ]
    lines = run(
        "dask_cluster.py",
        PYTHONPATH=os.pathsep.join(filter(None, folders)),
        UCX_WARN_UNUSED_ENV_VARS="n",
        UCX_UTOFU_STATS="y",
    )[0]
    assert f"ucxx: the sum is {sum(range(1_000_000))}" in lines, lines


def test_mpi4py(run, pip_target):
    """Over MPICH, which the tests need anyway; utofu carried the messages."""
    environment = ucp_glue.environment({}, tls="utofu")
    lines = run(
        "mpi4py_ring.py",
        PYTHONPATH=pip_target("mpi4py", "--no-deps", "mpi4py>=4"),
        HYDRA_LAUNCHER="fork",
        UCX_UTOFU_STATS="y",
        **environment,
    )
    output = "\n".join(lines[0])
    assert f"around 4 ranks: {sum(range(4))}, summed up: {5 * 6}" in output
    sent = [int(x) for x in re.findall(r"utofu: process \d+: messages (\d+)", output)]
    assert len(sent) == 4 and min(sent) >= 4, output
