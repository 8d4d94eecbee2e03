# SPDX-License-Identifier: BSD-3-Clause
"""An OpenSHMEM program over stock UCX and this transport alone.

The OpenSHMEM is that of an installed Open MPI (Debian: openmpi-bin and
libopenmpi-dev), with the UCX of the libucx wheel in the place of its own.  The
program checks all data itself; that it went over the transport is seen in UCX's
lanes and the emulator's counts.  docs/mpi.md says the same for users.
"""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import ucp_glue

SOURCE = Path(__file__).resolve().parent / "c" / "shmem_check.c"
PACKAGES = "Debian: openmpi-bin libopenmpi-dev"

OPTIONS = {
    "pml": "ucx",
    "spml": "ucx",
    "osc": "ucx",
    "opal_common_ucx_tls": "any",
    "opal_common_ucx_devices": "any",
}

# What each PE must have done at least; shmem_check.c does more of each.
LEAST = {"piggyback": 100, "get": 8, "armw": 1000, "put_bytes": 1_300_000,
         "get_bytes": 1_300_000}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program, compiled by oshcc; skips where there is no OpenSHMEM on UCX."""
    for tool in ("oshcc", "oshrun", "oshmem_info"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}: no OpenSHMEM is installed ({PACKAGES})")
    info = subprocess.run(
        ["oshmem_info", "--parsable"], capture_output=True, text=True, timeout=60
    )
    if "mca:spml:ucx:" not in info.stdout:
        pytest.skip("the OpenSHMEM that is installed has no component for UCX")
    output = tmp_path_factory.mktemp("shmem") / "shmem_check"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    command = ["oshcc", *flags, str(SOURCE), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr}"
    return output


def environment(counts):
    """Of the launcher: nothing of another launcher, UCX with utofu only."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UCX_", "OMPI_", "PMIX_", "PMI_", "MPI", "SHMEM_"))
    }
    return {
        **ucp_glue.environment(clean, tls="utofu"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "UCX_LOG_LEVEL": "info",
        "UCT_TOFU_BACKEND": "emulator",
        "UTOFU_EMU_STATS": f"json:{counts}",
    }


def lanes_are_ours(output):
    """UCX 1.22 was used, and the lanes of memory and atomics are of utofu only."""
    assert "Version 1.22." in output, output
    lanes = [line for line in output.splitlines() if " cfg#" in line]
    assert any(
        "inter-node" in line and "rma(utofu/tofu0)" in line
        and "amo(utofu/tofu0)" in line
        for line in lanes
    ), output  # fmt: skip
    for other in ("tcp/", "self/memory", "posix/", "sysv/", "cma/"):
        assert not any(other in line for line in lanes), output


def counts_of(path):
    """Sums of the emulator's counts by process."""
    sums = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        mine = sums.setdefault(entry["pid"], dict.fromkeys(LEAST, 0))
        for kind in LEAST:
            mine[kind] += entry[kind]
    return sums


@pytest.mark.parametrize("pes", [2, 4])
def test_shmem(pes, program, processes, job, tmp_path):
    """Puts, gets, atomics, waits, barriers and collectives."""
    words = [
        word for name, value in OPTIONS.items() for word in ("--mca", name, value)
    ]
    counts = tmp_path / "counts.json"
    code, output = processes.run(
        ["oshrun", "-n", str(pes), "--oversubscribe", *words, str(program)],
        env=environment(counts),
        timeout=100,
        cwd=tmp_path,
    )
    for pe in range(pes):
        assert f"PE {pe} of {pes}: ok" in output, f"exit code {code}\n{output}"
    lanes_are_ours(output)
    if code != 0:
        # shmem_finalize crashes on other transports of UCX, too; all is checked
        # and said by then, but the counts may be lost with the process
        assert "exited on signal" in output, f"exit code {code}\n{output}"
        return
    assert "UCX  ERROR" not in output and "UTOFU ERROR" not in output, output
    sums = counts_of(counts)
    assert len(sums) == pes, sums
    for kind, least in LEAST.items():
        assert min(mine[kind] for mine in sums.values()) >= least, (kind, sums)
