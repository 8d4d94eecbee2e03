# SPDX-License-Identifier: BSD-3-Clause
"""perf/fugaku: the scripts, with a stand-in for the job system and the emulator."""

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOP = HERE.parents[1]
KIT = TOP / "perf" / "fugaku"
SCRIPTS = sorted(KIT.glob("*.sh"))
JOBS = [path for path in SCRIPTS if "#PJM" in path.read_text()]
BIN = Path(sys.executable).parent

spec = importlib.util.spec_from_file_location("places", KIT / "places.py")
places = importlib.util.module_from_spec(spec)
spec.loader.exec_module(places)


class Machine:
    """A folder with a copy of the kit, and the programs of a job system."""

    def __init__(self, folder, processes):
        self.processes = processes
        self.kit = folder / "tree" / "perf" / "fugaku"
        shutil.copytree(KIT, self.kit, ignore=shutil.ignore_patterns("__pycache__"))
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("pjsub", "mpiexec"):
            self.program(name, f'exec {sys.executable} {HERE}/stand_in/{name}.py "$@"')
        mpiexec = BIN / "mpiexec"
        self.mpiexec = str(mpiexec) if mpiexec.exists() else shutil.which("mpiexec")
        # as in a virtual environment that build.sh made: what jobs use of it
        self.venv = folder / "venv"
        (self.venv / "bin").mkdir(parents=True)
        for name in ("uct-tofu", "python"):
            (self.venv / "bin" / name).write_text(
                f'#!/bin/sh\nexec {BIN}/{name} "$@"\n'
            )
            (self.venv / "bin" / name).chmod(0o755)

    def program(self, name, text):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
        path = f"{self.bin}:{os.defpath}"
        env |= {"PATH": path, "STAND_IN_PATH": path}
        return {**env, **{k: str(v) for k, v in more.items()}}

    def run(self, *command, timeout=60, **env):
        return self.processes.run(
            [*map(str, command)],
            cwd=self.kit,
            env=self.environment(**env),
            timeout=timeout,
        )

    def submit(self, script, *options, timeout=500, nodes=12, **variables):
        """Run a job to its end: (exit code, output, records)."""
        given = {
            "UCT_TOFU_BACKEND": "emulator",
            "UCT_TOFU_VENV": self.venv,
            "STAND_IN_MPIEXEC": self.mpiexec,
            "REPEATS": 1,
            "SECONDS_EACH": 0.001,
            "MOST_BYTES": 8,
            "MPICC": BIN / "mpicc",
            **variables,
        }
        words = ["pjsub", "-g", "group", *options]
        for name, value in given.items():
            words += ["-x", f"{name}={value}"]
        code, output = self.run(*words, script, timeout=timeout, STAND_IN_NODES=nodes)
        assert code == 0, output
        number = re.search(r"Job (\d+) submitted", output).group(1)
        (text,) = self.kit.glob(f"*.{number}.out")
        records = self.kit / f"results-{number}.jsonl"
        lines = records.read_text().splitlines() if records.exists() else []
        assert not list(self.kit.glob(".tmp-*")) and not list(self.kit.glob(".perf-*"))
        return (
            int(text.with_suffix(".code").read_text()),
            text.read_text(),
            [json.loads(line) for line in lines],
        )


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


@pytest.fixture
def machine(processes, tmp_path):
    made = Machine(tmp_path, processes)
    if made.mpiexec is None:
        pytest.skip("no MPICH")
    return made


def test_shellcheck():
    tool = shutil.which("shellcheck", path=f"{BIN}:{os.environ['PATH']}")
    if tool is None:
        pytest.skip("no shellcheck")
    names = [path.name for path in SCRIPTS]
    done = subprocess.run(
        [tool, "-x", *names], check=False, cwd=KIT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_scripts_name_no_place_of_a_machine():
    for path in KIT.iterdir():
        if path.is_file():
            text = re.sub(r"^#!.*", "", path.read_text())
            # devices and the tools of the system that POSIX shells rely on
            found = re.findall(
                r"(?<![\w.$}*/)~-])/(?:opt|home|vol|usr|work|data)\b", text
            )
            assert not found, f"{path.name}: {found}"


def test_requirements_are_the_packages():
    """What pip needs without an index is what pyproject.toml asks for."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    wanted = project["build-system"]["requires"] + project["project"]["dependencies"]
    wanted = {text.partition(";")[0].strip() for text in wanted}
    lines = (KIT / "requirements.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    assert wanted <= listed, wanted - listed


@pytest.mark.parametrize("script", JOBS, ids=lambda path: path.name)
def test_the_job_system_takes_the_directives(machine, script):
    path = machine.kit / script.name
    directives = [x for x in path.read_text().splitlines() if x.startswith("#PJM")]
    assert len(directives) > 2
    path.write_text("\n".join(["#!/bin/sh", *directives, "echo $PJM_NODE"]) + "\n")
    code, output, _ = machine.submit(script.name, nodes=48)
    assert (code, output.strip() in ("1", "2", "12", "48")) == (0, True)


@pytest.mark.parametrize(
    "line",
    ["#PJM --other 1", "#PJM -L vnode=2", '#PJM --mpi "shape=2"', "#PJM -L node=2y3"]
    + ["#PJM -L node=4x6x2x2", "#PJM -L rscgrp=tiny", "#PJM -L node=2:torus", "#PJM"],
)
def test_the_stand_in_refuses_what_it_does_not_know(machine, line):
    text = f"#!/bin/sh\n#PJM -L elapse=00:01:00\n{line}\ntrue\n"
    (machine.kit / "bad.sh").write_text(text)
    code, output = machine.run("pjsub", "-g", "group", "bad.sh")
    assert code != 0 and "ERR" in output, output


def test_the_stand_ins_mpiexec_is_strict(machine):
    env = {"STAND_IN_MPIEXEC": machine.mpiexec}
    code, output = machine.run("mpiexec", "-n", 1, "true", **env)
    assert code != 0 and "outside of a job" in output
    env |= {"PJM_JOBID": 1, "PJM_MPI_PROC": 2}
    code, output = machine.run("mpiexec", "-n", 3, "true", **env)
    assert code != 0 and "2 processes" in output
    code, output = machine.run("mpiexec", "--bind-to", "none", "true", **env)
    assert code != 0 and "--bind-to" in output
    code, output = machine.run("mpiexec", "-n", 2, "sh", "-c", "echo $PMIX_RANK", **env)
    assert (code, output) == (0, ""), "output goes to files"
    for rank in (0, 1):
        path = machine.kit / f"output.1/0/1/stdout.1.{rank}"
        assert path.read_text() == f"{rank}\n"


@pytest.mark.timeout(600)
def test_two_nodes(machine):
    code, output, records = machine.submit("two_nodes.sh")
    assert code == 0, output
    layers = {record["layer"] for record in records}
    assert layers == {"utofu", "uct", "libuct", "ucp", "mpi"}
    tests = {record["test"] for record in records if record["layer"] == "utofu"}
    assert {"put_lat", "get_lat", "fadd", "put_bw", "pingpong_flag"} <= tests
    # the job's: two processes, by mpiexec
    assert {record["processes"] for record in records} == {2}
    assert "perf compare" not in output and "not measured" not in output


@pytest.mark.timeout(600)
def test_unit(machine):
    code, output, records = machine.submit("unit.sh")
    assert code == 0, output
    hops = [
        (record["test"], record["params"]["hops"])
        for record in records
        if record["test"] in ("put_lat", "get_lat")
    ]
    assert hops == [(t, h) for h in (1, 2, 3) for t in ("put_lat", "get_lat")]
    senders = {
        r["params"].get("senders") for r in records if r["test"] == "many_to_one"
    }
    assert senders == {1, 3, 7, 11}
    assert max(r["processes"] for r in records if r["test"] == "barrier") == 12


@pytest.mark.timeout(600)
def test_neighbours(machine):
    code, output, records = machine.submit("neighbours.sh", "-L", "node=2x3x2:torus")
    assert code == 0, output
    assert "rank 0 and its 4 neighbours" in output
    tnis = [r["params"]["tnis"] for r in records if r["test"] == "put_bw"]
    assert sorted(set(tnis)) == [1, 2, 3, 4]


def test_what_fails_is_told_at_the_end_and_the_rest_is_measured(machine):
    script = machine.kit / "two_nodes.sh"
    lines = [
        "measure --layer utofu -t no_such_test",
        "measure --layer utofu -t put_lat -s 8",
        "finish",
    ]
    text = script.read_text().partition("uct-tofu info\n")[0]
    script.write_text(text + "\n".join(lines) + "\n")
    code, output, records = machine.submit("two_nodes.sh")
    assert code == 1
    assert output.splitlines()[-1] == "  --layer utofu -t no_such_test"
    assert [record["test"] for record in records] == ["put_lat"]


def test_a_job_needs_its_folder_and_its_package(machine):
    code, output = machine.run("sh", "two_nodes.sh", UCT_TOFU_BACKEND="emulator")
    assert code == 1 and "pjsub" in output
    code, output, _ = machine.submit("two_nodes.sh", UCT_TOFU_VENV=machine.kit / "no")
    assert code == 1 and "build.sh" in output
    done = subprocess.run(
        ["sh", "-c", ". ./perf/fugaku/env.sh"],
        check=False,
        cwd=TOP,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "cd perf/fugaku" in done.stderr


def test_libtofucom_is_found_beside_mpiexec(machine, tmp_path):
    show = '. ./env.sh; echo "$LD_LIBRARY_PATH"'
    command = ("sh", "-c", show)
    env = {"LD_LIBRARY_PATH": "", "UCT_TOFU_BACKEND": "tofu"}
    code, output = machine.run(*command, **env)
    assert code == 1 and "no libtofucom.so" in output
    folder = tmp_path / "lang" / "lib64"
    folder.mkdir(parents=True)
    (folder / "libtofucom.so").touch()
    code, output = machine.run(*command, UCT_TOFU_LIB_DIR=folder, **env)
    assert (code, output.strip()) == (0, str(folder))
    code, output = machine.run(*command, **{**env, "LD_LIBRARY_PATH": f"/x:{folder}"})
    assert (code, output.strip()) == (0, f"/x:{folder}")
    # a link, as alternatives make them
    (tmp_path / "lang" / "bin").mkdir()
    (machine.bin / "mpiexec").rename(tmp_path / "lang" / "bin" / "mpiexec")
    (machine.bin / "mpiexec").symlink_to(tmp_path / "lang" / "bin" / "mpiexec")
    code, output = machine.run(*command, **env)
    assert (code, output.strip()) == (0, str(folder))


@pytest.mark.parametrize("has_fcc", [False, True])
@pytest.mark.parametrize("has_wheels", [False, True])
def test_build_asks_for_the_right_things(machine, has_fcc, has_wheels):
    """With a Python that only writes down what it is to do."""
    log = machine.kit / "log"
    note = f'echo "$CC: $*" >>{log}'
    machine.program("pip", note)
    machine.program("old", "exit 1")
    making = f'mkdir -p "$3/bin" && cp {machine.bin}/pip "$3/bin/pip"'
    making += f' && cp {machine.bin}/pip "$3/bin/uct-tofu"'
    machine.program("python3", f'if [ "$2" = venv ]; then {making}; fi')
    machine.program("gcc", "true")
    if has_fcc:
        machine.program("fcc", "true")
    if has_wheels:
        (machine.kit / "wheels").mkdir()
    venv = machine.kit / "made"
    given = {"UCT_TOFU_VENV": venv, "PYTHON": "python3"}
    code, output, _ = machine.submit("build.sh", **given)
    assert code == 0, output
    first, second, third = log.read_text().splitlines()
    assert "install -q" in first and first.endswith("-r requirements.txt")
    assert second.startswith("fcc -Nclang: " if has_fcc else "gcc: ")
    assert "--no-build-isolation" in second and second.endswith(" ../..")
    for line in (first, second):
        assert ("--no-index --find-links=" in line) == has_wheels
    assert third == ": info"
    code, output, _ = machine.submit("build.sh", **{**given, "PYTHON": "old"})
    assert code == 1 and "older than 3.10" in output
    code, output, _ = machine.submit("build.sh", UCT_TOFU_CC="nocc -x", **given)
    assert code == 1 and "no compiler nocc" in output


def test_fetch_asks_for_the_nodes_processor(machine):
    log = machine.kit / "log"
    machine.program("python", f'echo "$*" >{log}')
    code, output = machine.run(
        "sh", "fetch.sh", PYTHON="python", UCT_TOFU_PYTHON_VERSION="3.12"
    )
    assert code == 0, output
    words = log.read_text().split()
    assert words[:5] == ["-m", "pip", "download", "-d", "wheels"]
    assert "manylinux2014_aarch64" in words and "3.12" in words
    assert words[-2:] == ["-r", "requirements.txt"]


def test_launch_picks_ranks(machine):
    env = {"STAND_IN_MPIEXEC": machine.mpiexec, "PJM_JOBID": 1, "PJM_MPI_PROC": 5}
    env |= {"TMPDIR": machine.kit}
    show = 'echo "part $PERF_RANK of rank $PMIX_RANK"; echo said >&2'
    words = ["sh", "launch.sh", "-n", 2, "sh", "-c", show]
    code, output = machine.run(*words, UCT_TOFU_RANKS="4 0 2", **env)
    lines = sorted(output.splitlines())
    assert code == 0
    assert lines == ["part 0 of rank 4", "part 1 of rank 0", "said", "said"]
    code, output = machine.run(*words, UCT_TOFU_RANKS="4", **env)
    assert code == 2 and "names 1" in output
    code, output = machine.run("sh", "launch.sh", "-n", 2, "sh", "-c", "exit 77", **env)
    assert code == 77
    code, output = machine.run("sh", "launch.sh", "-n", 9, "true", **env)
    assert code != 0 and "5 processes" in output
    code, output = machine.run("sh", "launch.sh", "true")
    assert code == 2 and "usage" in output
    assert not list(machine.kit.glob("out-*"))


def test_launch_ends_what_it_started(machine, processes, tmp_path):
    pids = tmp_path / "pids"
    env = {"STAND_IN_MPIEXEC": machine.mpiexec, "PJM_JOBID": 1, "PJM_MPI_PROC": 2}
    process = processes.start(
        ["sh", "launch.sh", "-n", "2", "sh", "-c", f"echo $$ >>{pids}; exec sleep 600"],
        cwd=machine.kit,
        env=machine.environment(TMPDIR=machine.kit, **env),
    )
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143
    started = [int(word) for word in pids.read_text().split()]
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    assert not list(machine.kit.glob("out-*"))


# ------------------------------------------------------------------- places.py


def box(x, y, z):
    """Places of so many whole units."""
    sizes = (x, y, z, 2, 3, 2)
    return dict(enumerate(itertools.product(*map(range, sizes))))


@pytest.mark.parametrize(
    ("units", "most"), [((1, 1, 1), 4), ((2, 1, 1), 5), ((2, 2, 1), 6), ((3, 3, 3), 10)]
)
def test_neighbours_are_one_link_away(units, most):
    nodes = box(*units)
    found = places.neighbours(nodes, 99)
    assert len(found) == most + 1 and len(set(found)) == len(found)
    for other in found[1:]:
        assert places.distance(nodes[found[0]], nodes[other]) == 1
    assert len(places.neighbours(nodes, 3)) == 4


def test_b_is_a_ring_and_a_and_c_are_not():
    here = (0, 0, 0, 0, 0, 0)
    assert places.distance(here, (0, 0, 0, 0, 2, 0)) == 1
    assert places.distance(here, (0, 0, 0, 1, 2, 1)) == 3
    assert places.distance(here, (2, 1, 0, 0, 0, 0)) == 3


def test_pairs_have_the_distance():
    nodes = box(1, 1, 1)
    for hops in (1, 2, 3):
        one, other = places.pair(nodes, hops)
        assert places.distance(nodes[one], nodes[other]) == hops
    assert places.pair(nodes, 4) is None


def test_ranks_of_one_node_are_no_neighbours_twice():
    nodes = {0: (0,) * 6, 1: (0, 0, 0, 0, 0, 1), 2: (0, 0, 0, 0, 0, 1)}
    assert places.neighbours(nodes, 6) == [0, 1]


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("", ("pair", "1"), "no line"),
        ("0 0 0 0 0 0 0\n", ("pair", "1"), "does not have two nodes with 1"),
        ("0 0 0 0 0 0 0\n", ("neighbours", "6"), "does not have two nodes"),
        ("0 0 0 0 0 0 0\n", ("pair", "x"), "no number"),
        ("0 0 0 0 0 0 0\n", ("other", "1"), "places.py show"),
    ],
)
def test_places_says_what_is_missing(processes, tmp_path, text, words, said):
    path = tmp_path / "places"
    path.write_text(text)
    command = [sys.executable, str(KIT / "places.py"), *words, str(path)]
    code, output = processes.run(command)
    assert code == 1 and said in output, output
