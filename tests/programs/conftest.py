# SPDX-License-Identifier: BSD-3-Clause
"""An MPI for the programs here: that of the mpich package of this Python."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def _mpi_tool(name):
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: pip install mpich (part of the extra 'test')")
    return found


def _uct_tofu(*arguments):
    """What the command prints, as words of a shell."""
    command = str(Path(sys.executable).with_name("uct-tofu"))
    output = subprocess.run(
        [command, *arguments], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return shlex.split(output)


@pytest.fixture(scope="session")
def uct_tofu_flags():
    """uct_tofu_flags(*options of cflags) -> words for the compiler's line."""
    return lambda *options: [*_uct_tofu("cflags", *options), *_uct_tofu("libs")]


@pytest.fixture(scope="session")
def mpicc(cc, uct_tofu_flags, tmp_path_factory):
    """mpicc(name, language="c", flags=None) -> program of c/<name>.c."""
    folder = tmp_path_factory.mktemp("mpi")
    built = {}

    def build(name, language="c", flags=None):
        flags = uct_tofu_flags() if flags is None else flags
        key = (name, language, *flags)
        if key in built:
            return built[key]
        output = folder / f"{name}-{len(built)}"
        tool = "mpicc" if language == "c" else "mpicxx"
        source = [str(HERE / "c" / f"{name}.c")]
        if language != "c":
            source = ["-x", "c++", *source, "-x", "none"]
        warnings = ["-O1", "-g", "-Wall", "-Wextra", "-Werror"]
        command = [_mpi_tool(tool), *warnings, *source, "-o", str(output), *flags]
        env = dict(os.environ)
        if language == "c":
            env["MPICH_CC"] = shlex.join(cc)
        done = subprocess.run(
            [*command, "-lm"], capture_output=True, text=True, env=env, timeout=60
        )
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr}"
        built[key] = output
        return output

    return build


@pytest.fixture
def mpiexec(processes, job):
    """mpiexec(count, program, **environment) -> output; asserts success."""

    def run(count, program, *arguments, **environment):
        env = {**os.environ, "HYDRA_LAUNCHER": "fork", **environment}
        code, output = processes.run(
            [_mpi_tool("mpiexec"), "-n", str(count), str(program), *arguments],
            env=env,
            timeout=100,
        )
        assert code == 0, f"exit code {code}\n{output}"
        return output

    return run
