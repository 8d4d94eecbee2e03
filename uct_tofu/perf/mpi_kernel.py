# SPDX-License-Identifier: BSD-3-Clause
"""The kernel of the layer MPI: compiled by the mpicc that is there, on first use.

The package holds its sources; the program lives in a temporary folder until this
process ends.  ``MPICC`` and ``MPIEXEC`` name other programs than those beside
this Python or in ``PATH``.
"""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from uct_tofu import _paths
from uct_tofu.perf.kernels import NotThereError

__all__ = ["launch", "program"]

SOURCES = ("main", "options", "stat", "tests", "tests_more", "mpi")


def _find(variable, name, first=None):
    """Words of a command, or None."""
    if os.environ.get(variable):
        return shlex.split(os.environ[variable])
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    if first is not None:
        folders.insert(0, first)
    found = shutil.which(name, path=os.pathsep.join(folders))
    return [found] if found else None


@functools.lru_cache
def program() -> str:
    """Compile the kernel, once; its path.

    Blocks for seconds.  Raises ``NotThereError`` when there is no mpicc or mpiexec,
    or it does not compile, with what it said.

    Source: cython/perf/perf_mpi.c.
    """
    compiler = _find("MPICC", "mpicc")
    if compiler is None:
        raise NotThereError("layer mpi: there is no mpicc (an MPI, or MPICC=...)")
    _launcher()
    folder = tempfile.mkdtemp(prefix="uct-tofu-perf-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sources = _paths.package_dir() / "share" / "perf"
    output = os.path.join(folder, "perf_mpi")
    command = [*compiler, "-std=gnu11", "-O2", "-D_GNU_SOURCE"]
    command += [str(sources / f"perf_{name}.c") for name in SOURCES]
    command += ["-o", output, "-lpthread"]
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotThereError(f"layer mpi: {compiler[0]}: {error}") from None
    if done.returncode != 0:
        raise NotThereError(f"layer mpi: {compiler[0]} failed:\n{done.stderr.strip()}")
    return output


@functools.lru_cache
def _launcher():
    compiler = _find("MPICC", "mpicc")
    folder = os.path.dirname(shutil.which(compiler[0]) or "") if compiler else None
    command = _find("MPIEXEC", "mpiexec", folder)
    if command is None:
        raise NotThereError("layer mpi: there is no mpiexec (an MPI, or MPIEXEC=...)")
    try:
        said = subprocess.run(
            [*command, "--version"],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NotThereError(f"layer mpi: {command[0]}: {error}") from None
    if "OpenRTE" in said or "Open MPI" in said:
        command += ["--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
    return command


def launch(command: list[str], processes: int) -> list[str]:
    """The command that starts so many processes; the kernel pins them itself.

    Raises ``NotThereError`` when there is no mpiexec.

    Source: mpiexec of MPICH and Open MPI.
    """
    return [*_launcher(), "-n", str(processes), *command]
