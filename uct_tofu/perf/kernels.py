# SPDX-License-Identifier: BSD-3-Clause
"""The compiled kernels: where they are, their environment, one run of one.

A kernel is a program per layer, ``libexec/perf_LAYER`` in the package; that of MPI
is compiled when it is first used (see ``mpi_kernel``).  Sources: cython/perf.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from uct_tofu import _paths

__all__ = [
    "LAYERS",
    "KernelError",
    "NotThereError",
    "environment",
    "execute",
    "facts",
    "kernel",
    "tests_of",
]

LAYERS = ("utofu", "uct", "libuct", "ucp", "mpi")
NOT_THERE = 77  # exit code of a kernel: PERF_NOT_THERE in cython/perf/perf.h
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class KernelError(RuntimeError):
    """A kernel failed; the message names test and layer, and has what it printed.

    Source: cython/perf/perf_main.c.
    """


class NotThereError(KernelError):
    """The layer, the transport or this machine has no such test.

    Source: cython/perf/perf.h, PERF_NOT_THERE.
    """


def kernel(layer: str) -> list[str]:
    """The command that a kernel's options are added to.

    Raises ``ValueError`` for an unknown layer, ``NotThereError`` when the kernel
    was not built, or can't be (no MPI).  Does not block; compiles that of MPI.

    Source: cython/CMakeLists.txt, install rules.
    """
    if layer not in LAYERS:
        raise ValueError(f"the layers are {', '.join(LAYERS)}, not {layer!r}")
    if layer == "mpi":
        from uct_tofu.perf import mpi_kernel

        return [mpi_kernel.program()]
    path = _paths.package_dir() / "libexec" / f"perf_{layer}"
    if not path.is_file():
        raise NotThereError(
            f"the kernel of the layer {layer} was not built "
            f"(it needs UCX when the package is installed): no {path.name}"
        )
    return [str(path)]


def _has_own_ucx(value: str | None) -> bool:
    """Whether LD_LIBRARY_PATH leads to a UCX already."""
    return any(
        (Path(folder) / "libuct.so.0").exists()
        for folder in (value or "").split(os.pathsep)
        if folder
    )


def environment(
    layer: str, transport: str, *, mode: str = "fast", profile: str | None = None
) -> dict[str, str]:
    """Environment of a kernel.

    What the emulator reads is as the arguments say, whatever this process has; the
    job is one of its own.  UCX is that of ``LD_LIBRARY_PATH`` if it has one, else
    that of the libucx wheel; for the layer ucp ``UCX_TLS`` is the transport.

    Raises ``ImportError`` when libucx is missing and needed.

    Source: docs/emulator.md, docs/timing.md; UCX, UCX_TLS.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_EMU_")}
    env["UTOFU_EMU_JOB"] = f"perf-{os.getpid()}-{os.urandom(4).hex()}"
    if mode == "timed":
        env["UTOFU_EMU_TIMING"] = profile or "tofud"
    if layer in ("libuct", "ucp"):
        from ucp_glue import environment as ucx_environment

        own = env.get("LD_LIBRARY_PATH")
        env = ucx_environment(env, tls=None)
        if _has_own_ucx(own):
            env["LD_LIBRARY_PATH"] = own
        env.pop("UCX_TLS", None)
        if layer == "ucp":
            env["UCX_TLS"] = transport
    if layer in ("libuct", "ucp", "mpi"):  # an MPI's UCX may know no plugins
        env.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")
    return env


def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _runs_in_group(group):
    """Whether a process of the group has not ended; zombies have."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended just now
            # pid (name) state ppid pgrp ...
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state not in "ZX":
                return True
    return False


def _stop(process):
    """End a kernel and all it started; mpiexec ends what has groups of its own."""
    if process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.terminate()
            process.wait(3)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.wait()  # nobody else is left
        return
    process.wait()
    # who was killed gives its memory back first, and only its parent can wait for it
    deadline = time.monotonic() + 10
    while _runs_in_group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.001)


def execute(command, env, timeout: float, *, what: str) -> list[dict]:
    """Run a kernel to its end; returns the objects that it printed.

    Parameters
    ----------
    command : list of str
    env : dict of str
    timeout : float
        Seconds.
    what : str
        For messages: test, layer, size.

    Blocks.  Raises ``NotThereError`` or ``KernelError`` with what the kernel said.
    Leaves no process behind, whatever happens.

    Source: subprocess.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            raise KernelError(f"{what}: {command[0]} does not start: {error}") from None
        how = None
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            how = f"did not end within {timeout:.0f} s"
        finally:
            _stop(process)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    output, said = texts
    # both sides say the same when something is not there
    said = "\n".join(dict.fromkeys(said.strip().splitlines()))
    if how is None and process.returncode == NOT_THERE:
        raise NotThereError(f"{what}: {said}")
    if how is None and process.returncode < 0:
        how = f"was ended by {signal.Signals(-process.returncode).name}"
    elif how is None and process.returncode > 0:
        how = f"ended with {process.returncode}"
    if how is None and "UTOFU_EMU_TIMING" in said:
        how = "could not take the machine's time"  # the emulator goes on without
    if how is not None:
        raise KernelError(f"{what}: the kernel {how}\n{said}".rstrip())
    # an MPI may print warnings of its UCX between the records
    lines = [line for line in output.splitlines() if line.strip()]
    records = [line for line in lines if line.startswith("{")]
    said = "\n".join([said, *(line for line in lines if line not in records)]).strip()
    if said:
        print(f"{what}: {said}", file=sys.stderr)
    try:
        if not records:
            raise ValueError
        return [json.loads(line) for line in records]
    except ValueError:
        raise KernelError(f"{what}: the kernel printed\n{output}{said}") from None


@functools.lru_cache
def tests_of(layer: str) -> tuple[str, ...]:
    """Names of the tests that a layer has; starts its kernel.

    Raises as ``kernel`` and ``execute``.

    Source: cython/perf/perf_tests.c, perf_tests_more.c.
    """
    command = [*kernel(layer), "--list"]
    try:
        done = subprocess.run(
            command,
            check=False,
            env=environment(layer, "utofu"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise KernelError(f"tests of the layer {layer}: {error}") from None
    if done.returncode != 0:
        raise KernelError(f"tests of the layer {layer}: {done.stderr.strip()}")
    return tuple(done.stdout.split())


def facts(layer: str, env, *, what: str) -> dict:
    """What a kernel says of the library under it: ``backend``, ``ucx``.

    ``what`` is for messages.

    Raises as ``kernel`` and ``execute``.

    Source: cython/perf/perf_main.c.
    """
    said = execute([*kernel(layer), "--facts"], env, 60, what=what)
    if len(said) != 1:
        raise KernelError(f"{what}: the kernel told nothing about its library")
    return said[0]
