# SPDX-License-Identifier: BSD-3-Clause
"""Options and fixtures of the conformance tests of a uTofu library.

The library under test is the one of the installed package; --utofu-lib names
another, for example that of a machine:

    pytest tests/conformance --utofu-lib=DIR [--utofu-include=DIR] [--utofu-machine]
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from parallel_cc import run_cc

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "c"


def pytest_addoption(parser):
    group = parser.getgroup("utofu", "conformance tests of a uTofu library")
    group.addoption(
        "--utofu-lib", metavar="DIR", help="directory of the libtofucom.so to test"
    )
    group.addoption(
        "--utofu-include", metavar="DIR", help="directory of the utofu.h to compile with"
    )
    group.addoption(
        "--utofu-machine",
        action="store_true",
        help="the library is a machine's: leave out what only an emulator can do",
    )
    group.addoption(
        "--aarch64-all",
        action="store_true",
        help="run all tests under user-mode qemu, not a sample",
    )


@dataclass(frozen=True)
class Library:
    """What is under test."""

    path: Path  # the file itself
    lib_dir: Path
    include_dir: Path
    machine: bool


@dataclass(frozen=True)
class Run:
    """How one run of a test program ended."""

    code: int
    stdout: str
    stderr: str
    leftover: bool  # a process of it was still there


@pytest.fixture(scope="session")
def utofu_library(pytestconfig) -> Library:
    lib = pytestconfig.getoption("--utofu-lib", None)
    include = pytestconfig.getoption("--utofu-include", None)
    if lib is None:
        import uct_tofu

        lib = uct_tofu.lib_dir()
        include = include or uct_tofu.include_dir()
    lib_dir = Path(lib).resolve()
    if include is None:
        include = HERE.parents[1] / "cython" / "abi"
    path = lib_dir / "libtofucom.so"
    assert path.is_file(), f"no libtofucom.so in {lib_dir}"
    return Library(
        path=path.resolve(),
        lib_dir=lib_dir,
        include_dir=Path(include).resolve(),
        machine=bool(pytestconfig.getoption("--utofu-machine", False)),
    )


def _compile(library: Library, sources: list[Path], target: Path) -> Path:
    cc = shlex.split(os.environ.get("CC", "cc"))
    command = [
        *cc,
        *("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra"),
        f"-I{library.include_dir}",
        f"-I{SOURCES}",
        *map(str, sources),
        *("-o", str(target)),
        *(f"-L{library.lib_dir}", "-ltofucom", f"-Wl,-rpath,{library.lib_dir}"),
        *("-pthread", "-ldl", "-lrt"),
    ]
    run_cc(command)
    return target


@pytest.fixture(scope="session")
def conformance_program(utofu_library, tmp_path_factory) -> Path:
    """All tests in one program."""
    target = tmp_path_factory.mktemp("conformance") / "conformance"
    return _compile(utofu_library, sorted(SOURCES.glob("*.c")), target)


@pytest.fixture(scope="session")
def selftest_program(utofu_library, tmp_path_factory) -> Path:
    """The harness with tests of its own."""
    target = tmp_path_factory.mktemp("conformance") / "selftest"
    sources = [p for p in sorted(SOURCES.glob("*.c")) if not p.name.startswith("conf_")]
    return _compile(utofu_library, [*sources, SOURCES / "selftest/selftest.c"], target)


def _group_exists(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def run_program(utofu_library, request):
    """Run a test program in its own process group and job; leave nothing behind."""

    def run(program: Path, *args: str, timeout: float = 100, **variables: str) -> Run:
        env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
        # The manual's defaults hold; other runs on this host are not concerned.
        env["UTOFU_EMU_JOB"] = f"conformance-{os.getpid()}-{abs(hash(request.node.nodeid))}"
        env["CONF_BACKEND"] = "machine" if utofu_library.machine else "emulator"
        env.update(variables)
        process = subprocess.Popen(
            [str(program), *args],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout)
            leftover = _group_exists(process.pid)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{' '.join(args)}: no end after {timeout} s") from error
        finally:
            if _group_exists(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return Run(process.returncode, stdout, stderr, leftover)

    return run
