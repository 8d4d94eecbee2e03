# SPDX-License-Identifier: BSD-3-Clause
"""Which node and which CPU a rank gets, and what its environment tells it."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from uct_tofu import _paths

__all__ = ["Place", "base_environment", "cpu_order", "places", "rank_environment"]

# Variables of other launchers: a rank must not take itself for theirs.
FOREIGN = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "MPI_LOCAL", "MV2_COMM_")
# Where the emulator's processes are; the launcher says it by UTOFU_EMU_NODE.
PLACES = ("UTOFU_EMU_COORDS", "UTOFU_EMU_PPN", "UTOFU_EMU_NODE")


@dataclass(frozen=True)
class Place:
    """Where a rank runs; ``cpu`` is None when it is not pinned.

    Source: docs/launcher.md.
    """

    rank: int
    size: int
    node: int
    local_rank: int
    local_size: int
    cpu: int | None


def cpu_order(cpus=None, root="/sys/devices/system/cpu") -> list[int]:
    """CPUs this process may use: one of each core first, then their siblings.

    Parameters
    ----------
    cpus : iterable of int, optional
        None is this process' affinity.
    root : str
        Folder with the kernel's description.

    Source: sched_getaffinity(2); /sys/devices/system/cpu.
    """
    cores = {}
    for cpu in sorted(os.sched_getaffinity(0) if cpus is None else cpus):
        topology = Path(root) / f"cpu{cpu}" / "topology"
        try:
            core = tuple(
                (topology / name).read_text().strip()
                for name in ("physical_package_id", "core_id")
            )
        except OSError:
            core = cpu  # no description: a core of its own
        cores.setdefault(core, []).append(cpu)
    ordered = []
    while cores:
        ordered += [core.pop(0) for core in cores.values()]
        cores = {name: core for name, core in cores.items() if core}
    return ordered


def places(size, ppn, pin) -> list[Place]:
    """The place of each rank: ``ppn`` neighbouring ranks a node.

    Source: docs/launcher.md.
    """
    cpus = cpu_order() if pin else [None]
    return [
        Place(
            rank,
            size,
            rank // ppn,
            rank % ppn,
            min(ppn, size - rank // ppn * ppn),
            cpus[rank % len(cpus)],
        )
        for rank in range(size)
    ]


def _machine_has_library():
    """Whether programs find a libtofucom.so without our help."""
    wanted = os.environ.get("UCT_TOFU_BACKEND") or "auto"
    if wanted != "auto":
        return wanted != "emulator"
    try:
        ctypes.CDLL("libtofucom.so")
    except OSError:
        return False
    return True


def base_environment(base, *, tls=None, shape=None, job):
    """What is the same for all ranks.

    Parameters
    ----------
    base : mapping of str
    tls : str, optional
        Value for ``UCX_TLS``; None keeps that of ``base``, or suggests one.
    shape : tuple of 3 int, optional
        Units of 12 nodes along X, Y, Z.
    job : str
        Name of the emulator's job.

    Source: docs/launcher.md.
    """
    from ucp_glue import environment

    env = {
        name: value
        for name, value in base.items()
        if not name.startswith(FOREIGN) and name not in PLACES
    }
    if tls is not None:
        env["UCX_TLS"] = tls
    try:
        env = environment(env)
    except ImportError:
        pass  # no UCX: the Python objects and uTofu programs need none
    if not _machine_has_library():
        paths = env.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        ours = str(_paths.lib_dir())
        if ours not in paths:
            env["LD_LIBRARY_PATH"] = os.pathsep.join([*filter(None, paths), ours])
    env["UTOFU_EMU_JOB"] = job
    if shape is not None:
        env["UTOFU_EMU_SHAPE"] = ",".join(map(str, shape))
    # Lines appear when they are printed, and none is lost when a rank is killed.
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def rank_environment(env, place, address, token) -> dict[str, str]:
    """A rank's environment: that of the job, and its own place.

    Source: docs/launcher.md.
    """
    return {
        **env,
        "UCT_TOFU_WORLD": address,
        "UCT_TOFU_TOKEN": token.hex(),
        "UCT_TOFU_RANK": str(place.rank),
        "UCT_TOFU_SIZE": str(place.size),
        "UCT_TOFU_NODE": str(place.node),
        "UCT_TOFU_LOCAL_RANK": str(place.local_rank),
        "UCT_TOFU_LOCAL_SIZE": str(place.local_size),
        # The emulator's node, and the share of the node that the transport takes.
        "UTOFU_EMU_NODE": str(place.node),
        "MPI_LOCALRANKID": str(place.local_rank),
        "MPI_LOCALNRANKS": str(place.local_size),
    }
