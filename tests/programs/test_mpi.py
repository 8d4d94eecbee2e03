# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs (mpi/*.py, with mpi4py) over stock UCX and this transport alone.

Two MPIs from PyPI, each in a virtual environment of its own: both bundle an
older UCX, in whose place LD_LIBRARY_PATH puts the one that the plugin is for.
The programs check all data themselves.  That the data went over the transport,
and not through shared memory of the MPI, is seen in the emulator's counts.
docs/mpi.md says the same for users.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ucp_glue

HERE = Path(__file__).resolve().parent

# MPICH 5.0.2 has two faults on any transport of UCX.  A receive from any source
# hangs when shared memory is off.  Its handler of active messages crashes when a
# rendezvous completes inside the call that receives the data, as a get between
# processes of one host may; one-sided operations use it.
LEAVE_OUT = {("mpich", "p2p"): ["wildcard"]}
VARIABLES = {("mpich", "windows"): {"UCX_RNDV_SCHEME": "am"}}

# What each program must have moved at least, per process: kinds of operations
# and bytes.  The lengths of mpi_check.LENGTHS add up to 5.6 MB.
LEAST = {
    "p2p": {"ops": 500, "bytes": 10_000_000},
    "collectives": {"ops": 300, "bytes": 3_000_000},
    "windows": {"ops": 300, "bytes": 10_000_000},
}


@pytest.fixture(scope="session")
def mpi_venv(tmp_path_factory):
    """mpi_venv(package) -> bin folder of an environment with it and mpi4py."""
    made = {}

    def make(package):
        if package not in made:
            folder = tmp_path_factory.mktemp(package)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
            steps = [
                [sys.executable, "-m", "venv", str(folder)],
                [*pip, "--disable-pip-version-check", package, "mpi4py>=4", "numpy"],
            ]
            made[package] = folder / "bin"
            for step in steps:
                done = subprocess.run(
                    step, capture_output=True, text=True, timeout=110
                )
                if done.returncode != 0:
                    made[package] = f"{' '.join(step)}\n{done.stderr[-2000:]}"
                    break
        if isinstance(made[package], str):
            pytest.skip(f"{package} can't be installed: {made[package]}")
        return made[package]

    return make


def command_line(package, folder, count):
    """The launcher's words, and the variables that it and the MPI need."""
    if package == "mpich":
        return [str(folder / "mpiexec"), "-n", str(count)], {
            "HYDRA_LAUNCHER": "fork",
            "MPICH_CH4_NETMOD": "ucx",
            "MPICH_NOLOCAL": "1",
        }
    options = {
        "pml": "ucx",
        "osc": "ucx",
        "opal_common_ucx_tls": "any",
        "opal_common_ucx_devices": "any",
        "coll": "^sm,xhc,han",
    }
    words = [word for name, value in options.items() for word in ("--mca", name, value)]
    mpiexec = [str(folder / "mpiexec"), "-n", str(count), "--oversubscribe", *words]
    return mpiexec, {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }


@pytest.fixture
def mpi(mpi_venv, processes, job, tmp_path):
    """mpi(package, count, program) -> output; checks that it ran over utofu."""

    def run(package, count, program, **environment):
        folder = mpi_venv(package)
        launcher, variables = command_line(package, folder, count)
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("UCX_", "OMPI_", "PMIX_", "PMI_", "MPI"))
        }
        counts = tmp_path / "counts.json"
        env = {
            **ucp_glue.environment(clean, tls="utofu"),
            **variables,
            **VARIABLES.get((package, program), {}),
            "UCX_LOG_LEVEL": "info",
            "UCT_TOFU_BACKEND": "emulator",
            "UTOFU_EMU_STATS": f"json:{counts}",
            **environment,
        }
        leave_out = LEAVE_OUT.get((package, program), [])
        script = HERE / "mpi" / f"{program}.py"
        code, output = processes.run(
            [*launcher, str(folder / "python"), str(script), *leave_out],
            env=env,
            timeout=100,
            cwd=tmp_path,
        )
        assert code == 0, f"exit code {code}\n{output}"
        assert "\nok\n" in output, output
        assert "UCX  ERROR" not in output and "UTOFU ERROR" not in output, output
        went_over_utofu(output, counts, count, LEAST[program])
        return output

    return run


def went_over_utofu(output, counts, processes, least):
    """UCX 1.22 was used, made lanes of utofu only, and every process used them."""
    assert "Version 1.22." in output, output
    lanes = [line for line in output.splitlines() if " cfg#" in line]
    assert any("utofu/tofu0" in line for line in lanes), output
    for other in ("tcp/", "self/memory", "posix/", "sysv/", "cma/"):
        assert not any(other in line for line in lanes), output
    ops, moved = {}, {}
    for line in counts.read_text().splitlines():
        entry = json.loads(line)
        pid = entry["pid"]
        ops[pid] = ops.get(pid, 0) + sum(
            entry[kind] for kind in ("put", "piggyback", "get", "armw")
        )
        moved[pid] = moved.get(pid, 0) + entry["put_bytes"] + entry["get_bytes"]
    assert len(ops) == processes, (ops, output)
    assert min(ops.values()) >= least["ops"], ops
    assert sum(moved.values()) >= least["bytes"] * processes, moved


@pytest.mark.timeout(240)  # the first of each MPI installs it
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("program", ["p2p", "collectives", "windows"])
@pytest.mark.parametrize("package", ["mpich", "openmpi"])
def test_mpi(package, program, count, mpi):
    """Every program of mpi/, with two and with four processes."""
    mpi(package, count, program)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("package", ["mpich", "openmpi"])
@pytest.mark.parametrize("scheme", ["put_zcopy", "get_zcopy", "am"])
def test_rendezvous(package, scheme, mpi):
    """Large messages by each way that UCP knows; all but tiny ones are large."""
    mpi(package, 2, "p2p", UCX_RNDV_SCHEME=scheme, UCX_RNDV_THRESH="1k")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("package", ["mpich", "openmpi"])
def test_one_node(package, mpi):
    """All ranks on one emulated node."""
    mpi(package, 4, "collectives", UTOFU_EMU_PPN="4")
