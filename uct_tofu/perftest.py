# SPDX-License-Identifier: BSD-3-Clause
"""Runs stock ucx_perftest between two pinned processes of this host.

Used by ``uct-tofu perftest`` and by perf/speed_table.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from uct_tofu import _paths

__all__ = [
    "MIB",
    "PerftestError",
    "Row",
    "choose_cpus",
    "default_layout",
    "default_sizes",
    "is_ucp",
    "pair",
    "pair_on_port",
    "run",
    "run_calibrated",
    "tests",
    "tool_environment",
]

MIB = 1 << 20

DEVICES = {"utofu": "tofu0", "tcp": "lo"}  # the others call theirs "memory"
# Largest message that goes in one short operation of utofu: put, the piggyback; am, what
# a small slot has room for.
UTOFU_SHORT = 32
UTOFU_AM_SHORT = 248
UTOFU_AM_BCOPY = 8256
# Another program may take a port between our look and ucx_perftest's bind.
PORT_TRIES = 5
PORT_TAKEN = "Address already in use"
UCP_PREFIXES = ("tag_", "ucp_", "stream_")
ATOMICS = ("add", "fadd", "swap", "cswap")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class PerftestError(RuntimeError):
    """A side of ucx_perftest failed; the message holds what it printed.

    Source: ucx_perftest.
    """


@dataclass
class Row:
    """Result of one run: times in seconds, bandwidth in bytes per second.

    Source: ucx_perftest -v.
    """

    test: str
    transport: str
    layout: str
    size: int
    iterations: int
    latency_p50: float
    latency: float
    bandwidth: float
    rate: float

    def as_dict(self):
        """dict of the fields.

        Source: ucx_perftest -v.
        """
        return asdict(self)


def is_ucp(test: str) -> bool:
    """Whether a test is one of UCP; then UCX_TLS chooses the transport.

    Source: ucx_perftest -h.
    """
    return test.startswith(UCP_PREFIXES)


def default_layout(test: str, transport: str, size: int) -> str:
    """The fastest data layout that a UCT test of this size has.

    Source: ucx_perftest -h; limits of the transports.
    """
    base = test.split("_")[0]
    if base in ATOMICS:
        return "short"
    if base == "get":
        return "bcopy" if transport in ("sysv", "posix") else "zcopy"
    if transport in ("sysv", "posix", "self"):
        return "short" if base == "put" or size <= 64 else "bcopy"
    if transport == "tcp":
        return "zcopy" if base == "put" else "bcopy"
    if transport != "utofu":
        return "zcopy"
    if size <= (UTOFU_AM_SHORT if base == "am" else UTOFU_SHORT):
        return "short"
    return "bcopy" if base == "am" and size <= UTOFU_AM_BCOPY else "zcopy"


def default_sizes(test: str) -> tuple[int, ...]:
    """Message sizes, in bytes, that a test has with every transport.

    Source: ucx_perftest -h; limits of the transports.
    """
    if test.removeprefix("ucp_").split("_")[0] in ATOMICS:
        return (8,)
    sizes = (8, 64, 512, 4096, 32768, 262144, 4194304)
    if test.startswith("am_"):  # UCT: one receive segment
        return tuple(size for size in sizes if size <= 4096)
    return sizes


def choose_cpus() -> tuple[int, int]:
    """Two CPUs on different cores, as far as this process may use them.

    The same number twice means that there is only one CPU.

    Source: sched_getaffinity(2); /sys/devices/system/cpu.
    """
    cpus = sorted(os.sched_getaffinity(0))
    first = cpus[0]
    siblings = set()
    with contextlib.suppress(OSError, ValueError):
        text = Path(
            f"/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list"
        ).read_text()
        for part in text.strip().split(","):
            low, _, high = part.partition("-")
            siblings.update(range(int(low), int(high or low) + 1))
    for cpu in cpus[1:]:
        if cpu not in siblings:
            return first, cpu
    return first, cpus[-1]


def tool_environment(test: str, transport: str) -> dict[str, str]:
    """Environment for both sides: stock UCX, the plugin, a job of its own.

    Source: UCX, UCX_PLUGIN_PATH; docs/laptop.md.
    """
    from ucp_glue import environment

    env = environment(tls=None)
    env.pop("UCX_TLS", None)
    if is_ucp(test):
        env["UCX_TLS"] = transport
    env.setdefault("UTOFU_EMU_JOB", f"perftest-{os.getpid()}")
    env.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")
    return env


def tests() -> tuple[str, ...]:
    """Names of the tests that this ucx_perftest has; empty when it does not tell.

    Raises ``ImportError`` when there is no UCX.

    Source: ucx_perftest -h.
    """
    tool = str(_paths.ucx_tool("ucx_perftest"))
    try:
        said = subprocess.run(
            [tool, "-h"],
            check=False,
            env=tool_environment("", ""),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(re.findall(r"^ +(\w+) - UC[TP] ", said, re.MULTILINE))


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _is_listening(port: int) -> bool:
    """Without connecting: the server takes exactly one connection."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    return True
    return False


def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _start(command, env, output):
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def _stop(process):
    """End a process and everything it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _text(output):
    output.flush()
    output.seek(0)
    return output.read().decode(errors="replace")


def _messages(text):
    """What a side printed, without ucx_perftest's banner and header."""
    banner = (
        "Waiting for connection",
        "Accepted connection",
        "+--",
        "|",
        "iterations,",
    )
    lines = (line for line in text.splitlines() if not line.startswith(banner))
    return "\n".join(line for line in lines if line.strip())


def pair(server, client, env, timeout, *, what, ready=None):
    """Run two commands to their end, the second when the first is ready.

    Parameters
    ----------
    server, client : list of str
    env : dict of str
    timeout : float
        Seconds for both together.
    what : str
        For messages.
    ready : callable, optional
        True when the server can be reached; None starts both at once.

    Returns the client's output.  Raises ``PerftestError`` with the output of
    the side that failed.  Leaves no process behind, whatever happens.

    Source: subprocess.
    """
    deadline = time.monotonic() + timeout
    processes = []
    with tempfile.TemporaryFile() as server_out, tempfile.TemporaryFile() as client_out:
        outputs = {"server": server_out, "client": client_out}

        def failed(side, how):
            said = [
                f"{name}: {text}"
                for name, text in ((n, _messages(_text(o))) for n, o in outputs.items())
                if text
            ]
            return PerftestError("\n".join([f"{what}: the {side} {how}", *said]))

        try:
            processes.append(_start(server, env, server_out))
            while ready is not None and not ready():
                if processes[0].poll() is not None:
                    raise failed("server", f"ended with {processes[0].returncode}")
                if time.monotonic() > deadline:
                    raise failed("server", f"was not ready after {timeout:.0f} s")
                time.sleep(0.005)
            processes.append(_start(client, env, client_out))
            sides = dict(zip(("server", "client"), processes, strict=True))
            while sides:
                for side, process in list(sides.items()):
                    code = process.poll()
                    if code is None:
                        continue
                    if code != 0:
                        time.sleep(0.1)  # the other side may say why
                        raise failed(side, f"ended with {code}")
                    del sides[side]
                if time.monotonic() > deadline:
                    raise failed("client", f"did not end within {timeout:.0f} s")
                time.sleep(0.002)
            return _text(client_out)
        finally:
            for process in processes:
                _stop(process)


def pair_on_port(server, client, env, timeout, *, what):
    """As ``pair``, for two sides of ucx_perftest, on a port that is free.

    The option for the port is added to both commands.  Raises ``PerftestError``.

    Source: ucx_perftest -h.
    """
    for attempt in range(PORT_TRIES):
        port = _free_port()
        option = ["-p", str(port)]
        try:
            return pair(
                [*server, *option],
                [*client, *option],
                env,
                timeout,
                what=what,
                ready=lambda port=port: _is_listening(port),
            )
        except PerftestError as error:
            if PORT_TAKEN not in str(error) or attempt == PORT_TRIES - 1:
                raise


def run(
    test,
    transport,
    size,
    *,
    layout=None,
    device=None,
    iterations=1000,
    warmup=None,
    cpus=None,
    timeout=60.0,
    extra=(),
    env=None,
) -> Row:
    """One ucx_perftest between two processes.

    Parameters
    ----------
    test : str
        Name of the test, e.g. ``put_lat``.
    transport : str
        UCT transport; for a UCP test the value of ``UCX_TLS``.
    size : int
        Message size, bytes.
    layout, device : str, optional
        UCT only; None chooses.
    iterations, warmup : int
    cpus : tuple of 2 int, optional
        For server and client; None chooses.
    timeout : float
        Seconds.
    extra : sequence of str
        Further options for both sides.
    env : dict, optional
        None is ``tool_environment(test, transport)``.

    Raises ``PerftestError``.

    Source: ucx_perftest -h.
    """
    tool = str(_paths.ucx_tool("ucx_perftest"))
    env = tool_environment(test, transport) if env is None else env
    cpus = choose_cpus() if cpus is None else cpus
    if warmup is None:
        warmup = max(1, min(10000, iterations // 10))
    options = ["-t", test, "-s", str(size)]
    options += ["-n", str(iterations), "-w", str(warmup)]
    if is_ucp(test):
        layout = layout or "contig"
        if layout != "contig":
            options += ["-D", layout]
    else:
        layout = layout or default_layout(test, transport, size)
        options += ["-x", transport, "-D", layout]
        options += ["-d", device or DEVICES.get(transport, "memory")]
    options += list(extra)
    what = f"ucx_perftest {test} over {transport}, {size} B, {layout}"
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 2 * size > there:  # from one process to another: it would be killed, or never end
        raise PerftestError(f"{what}: needs {2 * size} bytes, and the host has {there}")
    text = pair_on_port(
        [tool, *options, "-c", str(cpus[0])],
        [tool, "127.0.0.1", *options, "-c", str(cpus[1]), "-f", "-v"],
        env,
        timeout,
        what=what,
    )
    for line in reversed(text.splitlines()):
        fields = line.split(",")
        try:
            values = [float(x) for x in fields]
        except ValueError:
            continue
        if len(values) >= 8:
            return Row(
                test,
                transport,
                layout,
                size,
                int(values[0]),
                values[1] * 1e-6,
                values[3] * 1e-6,
                values[5] * MIB,
                values[7],
            )
    raise PerftestError(f"{what}: no result line in the client's output\n{text}")


def run_calibrated(test, transport, size, *, seconds=0.5, most=1_000_000, **kwargs):
    """As ``run``, with as many iterations as fit into ``seconds``.

    A short run first finds out how long one takes.  Raises ``PerftestError``.

    Source: ucx_perftest -h.
    """
    trial = run(test, transport, size, iterations=200, warmup=20, **kwargs)
    # A latency test does two messages an iteration and reports the time of one.
    each = trial.latency * (2 if test.endswith("_lat") else 1)
    iterations = int(min(most, max(200, seconds / max(each, 1e-9))))
    return run(test, transport, size, iterations=iterations, **kwargs)
