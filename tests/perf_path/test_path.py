# SPDX-License-Identifier: BSD-3-Clause
"""The post path: no system call, no allocation, no locked instruction.

quiet.c runs 10,000 operations with a filter on system calls and counted calls of
malloc; step.c executes some of them one instruction at a time and looks at each.
Both are also run with a fault put in, which they must find.
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CORE = HERE.parents[1] / "cython" / "core"
ABI = HERE.parents[1] / "cython" / "abi"
POSTS = ("put_short", "am_short")
OPERATIONS = 16  # as many as fit without progress
NOT_HERE = 77


@pytest.fixture(scope="module")
def programs(compile_c, lib_dir):
    """Both programs, on the installed core."""
    flags = [f"-I{CORE}", f"-I{ABI}", f"-L{lib_dir}", "-ltofu_core", "-O2",
             f"-Wl,-rpath,{lib_dir}", "-Wl,-z,now"]  # fmt: skip
    return {
        name: compile_c(
            [HERE / "c" / f"{name}.c", HERE / "c" / "path.c"], *flags, name=name
        )
        for name in ("quiet", "step")
    }


@pytest.fixture(autouse=True)
def fast_mode(monkeypatch, job):
    """The emulator's fast mode, in a job of the test's own."""
    monkeypatch.setenv("UCT_TOFU_BACKEND", "emulator")
    monkeypatch.delenv("UTOFU_EMU_TIMING", raising=False)
    # faults are another path
    monkeypatch.delenv("UTOFU_EMU_FAULT", raising=False)


def run(processes, command):
    code, output = processes.run([str(word) for word in command], timeout=100)
    if code == NOT_HERE:
        pytest.skip(f"not possible here: {output.strip()}")
    return code, output


@pytest.mark.parametrize("operation", POSTS)
def test_quiet(processes, programs, operation):
    """10,000 operations with progress: no system call and no allocation."""
    code, output = run(processes, [programs["quiet"], operation])
    assert code == 0, output
    assert "quiet" in output


@pytest.mark.parametrize(
    ("fault", "text"), [("syscall", "system call"), ("malloc", "of malloc or free")]
)
def test_quiet_finds_faults(processes, programs, fault, text):
    code, output = run(processes, [programs["quiet"], "put_short", fault])
    assert code == 1, output
    assert text in output


def counts(processes, programs, operation, *fault):
    """{library: (instructions, atomics, system calls)} of OPERATIONS operations."""
    code, output = run(processes, [programs["step"], operation, OPERATIONS, *fault])
    assert code == 0, output
    found = re.findall(r"^(\S+) instructions (\d+) atomic (\d+) syscall (\d+)$",
                       output, re.MULTILINE)  # fmt: skip
    assert found, output
    return {name: tuple(map(int, numbers)) for name, *numbers in found}


@pytest.mark.parametrize("operation", [*POSTS, "progress", "am_receive"])
def test_no_locked_instruction(processes, programs, operation):
    """Neither the core nor the queues of the emulator lock anything."""
    result = counts(processes, programs, operation)
    for name in ("libtofu_core.so", "libtofucom.so"):
        # at least a call and a return each: it is the path that was looked at
        assert result[name][0] > 5 * OPERATIONS, result
    for name, (_, atomics, calls) in result.items():
        assert (atomics, calls) == (0, 0), (name, result)


def test_step_finds_faults(processes, programs):
    for fault, index in (("atomic", 1), ("syscall", 2)):
        result = counts(processes, programs, "put_short", fault)
        assert sum(item[index] for item in result.values()) == 1, result


def test_endpoints_do_not_know_each_other(processes, programs, monkeypatch):
    """The next endpoint costs the same when there are 2,000 (a walk over them: 12,000 instructions more)."""
    monkeypatch.setenv("UTOFU_EMU_SHAPE", "24,23,24")
    result = counts(processes, programs, "ep_create")
    assert 100 * OPERATIONS < result["libtofu_core.so"][0] < 10000 * OPERATIONS, result
