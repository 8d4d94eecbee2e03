# SPDX-License-Identifier: BSD-3-Clause
"""Runs benchmark tests by the kernels and makes records of the common format.

Tests have ucx_perftest's names and meanings where it has them.  Each repeat is a
process pair (or more) of its own; a record has the medians over the repeats, and
their spread.
"""

from __future__ import annotations

import os
import platform
import shlex
import statistics
import time
from pathlib import Path

import uct_tofu
from uct_tofu import perftest
from uct_tofu.perf import kernels
from uct_tofu.perf.kernels import KernelError, NotThereError

__all__ = ["Job", "KernelError", "NotThereError", "canonical", "default_sizes"]
__all__ += ["in_turn", "run", "tests"]

SCHEMA = "uct-tofu-perf/1"
# Environment: a command that starts {n} processes on several nodes, as
# "mpiexec -n {n}"; without it a kernel forks.
LAUNCHER = "UCT_TOFU_PERF_LAUNCHER"
# ucx_perftest's names that are others here; "ucp_" in front is the layer.
ALIASES = {"get": "get_lat", "add": "add_mr"}
BANDWIDTH = ("put_bw", "get_bw", "am_bw", "tag_bw", "stream_bw", "put_rate")
RATES = (*BANDWIDTH, "add_mr", "gups", "many_to_one", "mt_pingpong")
WINDOWED = (*BANDWIDTH, "add_mr", "gups", "many_to_one")
ONE_WAY = ("put_lat", "am_lat", "add_lat", "tag_lat", "stream_lat", "mt_pingpong")
ONE_WAY += ("pingpong_flag", "pingpong_mrq")
EIGHT_BYTES = ("add_lat", "add_mr", "fadd", "swap", "cswap", "gups", "reduce")
NO_DATA = ("barrier", "ep_create")  # their size in records is 8
LIMIT = (120, 40)  # seconds until a kernel is given up: and for each of a repeat
NO_LAYOUT = ("barrier", "reduce", "reg_mem", "ep_create")
WINDOW = 32  # ucx_perftest's of put_bw
LATENCY = ("p50", "p90", "p99", "p99.9", "mean")
PUTS = ("put_lat", "put_bw", "put_rate", "pingpong_flag", "pingpong_mrq", "mt_pingpong")
# name -> tests that have it (None: the kernel knows), the layer that has it (None:
# any), smallest, largest
PARAMS = {
    "processes": (None, None, 2, 64),
    "senders": (("many_to_one",), None, 1, 63),
    "tnis": (("put_bw",), "utofu", 1, 6),
    "inject": (PUTS, "utofu", 0, 1),
    "piggyback": (PUTS, "utofu", 0, 1),
}
# Coordinates X,Y,Z,A,B,C: nodes that are 1, 2, 3 hops from the first one, and its
# six neighbours, each over a link of its own.
HERE = "0,0,0,0,0,0"
AWAY = ("0,0,0,1,0,0", "0,0,0,1,1,0", "0,0,0,1,1,1")
NEIGHBOURS = (
    "0,0,0,1,0,0",
    "0,0,0,0,1,0",
    "0,0,0,0,2,0",
    "0,0,0,0,0,1",
    "1,0,0,0,0,0",
    "0,1,0,0,0,0",
)
MOST_HOPS = 7  # three within a unit, and up to four units along X


def canonical(test: str, layer: str) -> str:
    """The name here of a test of ucx_perftest: ``ucp_put_lat`` is ``put_lat``.

    Source: ucx_perftest -h.
    """
    name = test.removeprefix("ucp_") if layer == "ucp" else test
    return ALIASES.get(name, name)


def tests(layer: str | None = None) -> dict[str, list[str]]:
    """Names of the tests of each layer, or of one.

    A layer that is not there (no UCX, no MPI) has an empty list; a layer that is
    asked for by name raises ``NotThereError``, or ``ValueError`` for an unknown name.
    Starts the kernels.

    Source: cython/perf.
    """
    if layer is not None:
        return {layer: list(kernels.tests_of(layer))}
    found = {}
    for name in kernels.LAYERS:
        try:
            found[name] = list(kernels.tests_of(name))
        except NotThereError:
            found[name] = []
    return found


def default_sizes(test: str) -> tuple[int, ...]:
    """Message sizes, in bytes, that a test has with every layer and transport.

    Source: ucx_perftest -h; limits of the transports.
    """
    if test in (*EIGHT_BYTES, *NO_DATA, "many_to_one", "put_rate", "mt_pingpong"):
        return (8,)
    if test == "reg_mem":
        return (4096, 65536, 1 << 20)
    return perftest.default_sizes(test)


def _layout(layer, transport, test, size):
    if layer in ("ucp", "mpi"):
        return "contig"
    if layer == "utofu":
        return "zcopy"
    verb = "am_lat" if test == "many_to_one" else test
    if "pingpong" in test:
        verb = "put_lat"
    elif test in EIGHT_BYTES or test in ("reg_mem", "ep_create"):
        return "short"
    return perftest.default_layout(verb, "utofu" if layer == "uct" else transport, size)


def _coords(count, hops, tnis):
    """Where processes are on the emulator, in order of rank."""
    if tnis > 1:
        places = [NEIGHBOURS[i % len(NEIGHBOURS)] for i in range(count - 1)]
    elif hops <= len(AWAY):
        places = [AWAY[hops - 1]]
    else:
        places = [f"{hops - len(AWAY)},0,0,1,1,1"]
    # further ones on nodes of their own, a unit of twelve after the other along Z
    for i in range(len(places) + 1, count):
        a, b, c = i % 2, i // 2 % 3, i // 6 % 2
        places.append(f"0,0,{1 + i // 12},{a},{b},{c}")
    return ";".join([HERE, *places])


def _host():
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "cpu model")):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": cpu,
        "cores": os.cpu_count() or 1,
    }


def _pinning(cpus, count):
    """A CPU for each process and thread; different cores as long as there are."""
    if cpus is None:
        cpus = dict.fromkeys(perftest.choose_cpus())
        if count > len(cpus):
            cpus = dict.fromkeys([*cpus, *sorted(os.sched_getaffinity(0))])
    allowed = os.sched_getaffinity(0)
    cpus = list(cpus)
    bad = [cpu for cpu in cpus if cpu not in allowed]
    if bad or not cpus:
        raise ValueError(
            f"this process may not run on CPU {', '.join(map(str, bad)) or '(none)'}; "
            f"it may on {', '.join(map(str, sorted(allowed)))}"
        )
    return [cpus[i % len(cpus)] for i in range(count)]


def _check_params(test, layer, params, layout):
    """``ValueError`` for what would be in the record, and have no effect."""
    unknown = set(params) - set(PARAMS)
    if unknown:
        raise ValueError(
            f"unknown params {', '.join(sorted(unknown))}; "
            f"there are {', '.join(PARAMS)}"
        )
    for name, value in params.items():
        names, only, low, high = PARAMS[name]
        if test not in (names or (test,)) or only not in (None, layer):
            where = f" of the layer {only}" if only else ""
            raise ValueError(
                f"the param {name} is for {', '.join(names)}{where}, "
                f"not for {test} of the layer {layer}"
            )
        if not low <= value <= high:
            raise ValueError(f"the param {name} is {low} to {high}, not {value}")
    for name in ("senders", "tnis"):
        if name in params and "processes" in params:
            raise ValueError(f"of the params {name} and processes one says it all")
    if layer == "utofu" and layout == "short" and test not in PUTS:
        raise ValueError(f"the layout short of utofu is a piggyback, not for {test}")
    if params.get("piggyback") and layout not in (None, "short"):
        raise ValueError(f"the param piggyback is the layout short, not {layout}")


def _processes(test, params):
    """How many, and the number of TNIs."""
    tnis = int(params.get("tnis", 1))
    count = 4 if test == "many_to_one" else 2
    if tnis > 1:
        count = tnis + 1
    if "senders" in params:
        count = int(params["senders"]) + 1
    return int(params.get("processes", count)), tnis


def _merge(results, test, size, layout_options):
    """One record of what the repeats gave, as far as the kernel knows."""
    first = results[0]
    latencies = [item["latency"] for item in results if item["latency"]]
    latency = None
    if latencies:
        latency = {k: statistics.median(x[k] for x in latencies) for k in LATENCY}
        latency["min"] = min(x["min"] for x in latencies)
        latency["max"] = max(x["max"] for x in latencies)
    rates = [item["rate"] for item in results if "rate" in item]
    if test in ONE_WAY:  # a round trip is two messages
        rates = [2 * rate for rate in rates]
    rate = statistics.median(rates) if rates else None
    values = rates if test in RATES else [x["p50"] for x in latencies] or rates
    params = dict(layout_options)
    if first["batch"] != 1:
        params["batch"] = first["batch"]
    if first["oversubscribed"]:
        params["oversubscribed"] = True
    if "step" in first:
        params["step"] = first["step"]
    return {
        "processes": first["processes"],
        "threads": first["threads"],
        "size": size,
        "window": first["window"] if test in WINDOWED else None,
        "iterations": first["iterations"],
        "warmup": first["warmup"],
        "repeats": len(results),
        "latency": latency,
        "bandwidth": rate * size if test in BANDWIDTH and rate else None,
        "rate": rate,
        "spread": {
            "values": values,
            "relative": (max(values) - min(values)) / statistics.median(values),
        },
        "counters": {
            name: statistics.median(item["counters"][name] for item in results)
            for name in first["counters"]
        },
        "params": params,
    }


class Job:
    """One test, to be measured: its sizes are its steps.

    Parameters
    ----------
    test : str
        A name of ``tests()``, or ucx_perftest's name of it.
    layer : {"utofu", "uct", "libuct", "ucp", "mpi"}
    transport : str
        libuct: UCX's transport; ucp: the value of ``UCX_TLS``; mpi: a name for the
        record.
    sizes : sequence of int, optional
        Bytes; None is ``default_sizes(test)``.
    repeats : int
    seconds : float
        Of each repeat; ``iterations`` takes its place.
    mode : {"fast", "timed"}
        Of the emulator; ``profile`` is what ``UTOFU_EMU_TIMING`` names.
    threads : int
        Of each process, with an iface, worker or VCQ each.
    window : int, optional
        Operations in flight, of tests that have a window.
    hops : int, optional
        Between the two nodes, 1 to 7.  The emulator's nodes are chosen so (None: 1);
        on the machine it only says how the job was placed.
    layout : str, optional
        short, bcopy, zcopy; None chooses by transport and size.  Of raw uTofu:
        short is a piggyback, zcopy utofu_put.
    params : dict, optional
        processes (gups, barrier, reduce, many_to_one), senders (many_to_one); of
        utofu: tnis (put_bw over so many TNIs, to a neighbour each), inject (puts with
        CACHE_INJECTION), piggyback (1: layout short).
    cpus : sequence of int, optional
        For processes and threads in turn; None chooses different cores.
    device : str, optional
        Of libuct.
    iterations, warmup : int, optional

    Raises ``ValueError`` for arguments that make no sense, ``NotThereError`` for what
    the layer, transport or machine does not have, ``KernelError`` when a kernel can't
    tell what it runs on, ``ImportError`` when libucx is missing.

    Source: ucx_perftest -h; cython/perf.
    """

    def __init__(
        self,
        test,
        *,
        layer,
        transport="utofu",
        sizes=None,
        repeats=5,
        seconds=0.3,
        mode="fast",
        profile=None,
        threads=1,
        window=None,
        hops=None,
        layout=None,
        params=None,
        cpus=None,
        device=None,
        iterations=None,
        warmup=None,
    ):
        test = canonical(test, layer)
        if mode not in ("fast", "timed"):
            raise ValueError(f"the modes are fast and timed, not {mode!r}")
        if test not in kernels.tests_of(layer):
            raise NotThereError(
                f"the layer {layer} has no test {test!r}; "
                f"it has {', '.join(kernels.tests_of(layer))}"
            )
        if layer in ("utofu", "uct") and transport != "utofu":
            raise ValueError(
                f"the layer {layer} has the transport utofu, not {transport}"
            )
        if layer == "mpi" and transport == "utofu":
            transport = "mpi"  # what is under it, it chooses itself
        sizes = default_sizes(test) if sizes is None else tuple(sizes)
        numbers = {"repeats": repeats, "threads": threads, "window": window}
        numbers |= {"hops": hops, "iterations": iterations}
        numbers |= {f"size {s}": s for s in sizes}
        for name, value in numbers.items():
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(
                    f"{name} has to be an integer of 1 or more, not {value!r}"
                )
        if not sizes or (hops or 1) > MOST_HOPS or not seconds > 0:
            raise ValueError(f"a size, 1 to {MOST_HOPS} hops, and more than 0 seconds")
        params = dict(params or {})
        _check_params(test, layer, params, layout)
        if params.get("piggyback"):
            layout = "short"
        options = {
            "threads": threads,
            "window": window,
            "seconds": seconds,
            "hops": hops,
            "device": device,
        }
        self.test, self.layer, self.transport = test, layer, transport
        self.options, self.params = options, params
        self.repeats, self.iterations, self.warmup = repeats, iterations, warmup
        self.steps = [
            (size, layout or _layout(layer, transport, test, size)) for size in sizes
        ]
        self.found = {}  # number of a step -> iterations that fill the time
        self.taken = {}  # number of a step -> results of the kernel, by its own step
        self.what = f"{test} of the layer {layer} over {transport}"
        self.meeting = None
        self.count, tnis = _processes(test, params)
        self.pinning = _pinning(cpus, self.count * options["threads"])
        self.env = kernels.environment(layer, transport, mode=mode, profile=profile)
        self.command = kernels.kernel(layer)
        self.backend = self._backend(mode, profile)
        self.versions = {"uct_tofu": uct_tofu.__version__}
        if layer in ("libuct", "ucp"):
            self.versions["ucx"] = kernels.facts("ucp", self.env, what=self.what)["ucx"]
        self.words = [
            f"--test={test}",
            f"--procs={self.count}",
            f"--threads={options['threads']}",
            f"--window={options['window'] or WINDOW}",
            f"--seconds={options['seconds']}",
            f"--cpus={','.join(map(str, self.pinning))}",
            f"--tnis={tnis}",
            f"--inject={int(bool(params.get('inject')))}",
        ]
        if layer == "libuct":
            device = options["device"] or perftest.DEVICES.get(transport)
            self.words.append(f"--transport={transport}")
            if device:
                self.words.append(f"--device={device}")
        if self.is_emulated:
            self.words.append(
                f"--coords={_coords(self.count, options['hops'] or 1, tnis)}"
            )
        self._check_memory(max(sizes))

    @property
    def is_emulated(self) -> bool:
        """Whether it runs on the emulator.

        Source: schema.json, field "backend".
        """
        return self.backend is not None and self.backend["kind"] == "emulator"

    def _check_memory(self, size):
        """Refuse what the host would swap, or kill, for: data to send and to get."""
        needed = 2 * size * self.count * self.options["threads"]
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > there:
            raise ValueError(
                f"{self.what}, {size} B: {self.count} processes of "
                f"{self.options['threads']} threads need {needed} bytes for their "
                f"data, and the host has {there}"
            )

    def _backend(self, mode, profile):
        """Which uTofu library is used, if one is."""
        uses = self.layer in ("utofu", "uct") or (
            self.layer in ("libuct", "ucp") and "utofu" in self.transport.split(",")
        )
        if not uses:
            if mode == "timed":
                raise ValueError(
                    f"{self.transport} has no timed mode: it is of the emulator"
                )
            return None
        found = kernels.facts("utofu", self.env, what=self.what)["backend"]
        if mode == "timed" and found["kind"] != "emulator":
            raise ValueError("the timed mode is of the emulator; this is the machine")
        name = None
        if mode == "timed":
            name = profile or "tofud"
            name = os.path.basename(name) if os.sep in name else name
        return {**found, "mode": mode, "profile": name}

    def measure(self, step):
        """Take one more repeat of a step.

        Parameters
        ----------
        step : int
            A number of ``steps``, which are (size, layout).

        Blocks.  Raises ``KernelError`` when the kernel fails, ``NotThereError`` when
        it finds that something is missing.

        Source: ucx_perftest -h; cython/perf.
        """
        size, layout = self.steps[step]
        what = f"{self.what}, {size} B, {layout}"
        limit = LIMIT[0] + LIMIT[1] * self.options["seconds"]
        words = [f"--size={size}", f"--layout={layout}", f"--limit={limit}"]
        # what the first repeat found to be enough, the others take as well
        iterations = self.found.get(step, self.iterations)
        if iterations is not None:
            words.append(f"--iterations={iterations}")
        if self.warmup is not None:
            words.append(f"--warmup={self.warmup}")
        command = self._launch([*self.command, *self.words, *words])
        try:
            items = kernels.execute(command, self.env, limit + 30, what=what)
        finally:
            if self.meeting is not None:  # rank 0 removes it if all came
                Path(self.meeting).unlink(missing_ok=True)
        if not items:
            raise KernelError(f"{what}: the kernel printed no result")
        groups = self.taken.setdefault(step, {})
        for item in items:
            self.found[step] = item["iterations"]
            if "mpi" in item:
                self.versions["mpi"] = item["mpi"]
            groups.setdefault(item.get("step"), []).append(item)

    def records(self, step):
        """The records of the repeats that were taken of a step.

        Source: schema.json.
        """
        groups = self.taken[step].values()
        return [self._record(group, *self.steps[step]) for group in groups]

    def _launch(self, command):
        """What starts the processes: the kernel, or a launcher if one is told."""
        launcher = os.environ.get(LAUNCHER)
        if self.layer == "mpi":
            from uct_tofu.perf import mpi_kernel

            return mpi_kernel.launch(command, self.count)
        if not launcher:
            return command
        # in the working folder, which the nodes of a job share
        name = f".perf-{os.getpid()}-{os.urandom(4).hex()}"
        self.meeting = os.path.abspath(name)
        words = [w.replace("{n}", str(self.count)) for w in shlex.split(launcher)]
        return [*words, *command, f"--rendezvous={self.meeting}"]

    def _record(self, results, size, layout):
        params = dict(self.params)
        if self.is_emulated:
            params["hops"] = self.options["hops"] or 1
        elif self.backend is not None and self.options["hops"] is not None:
            params["hops"] = self.options["hops"]  # as the processes were placed
        return {
            "schema": SCHEMA,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "test": self.test,
            "layer": self.layer,
            "transport": self.transport,
            "backend": self.backend,
            "versions": self.versions,
            "host": _host(),
            "pinning": self.pinning,
            "layout": None if self.test in NO_LAYOUT else layout,
            "clock": "wall",
            **_merge(results, self.test, size, params),
        }


def in_turn(jobs, *, progress=None, absent=None):
    """Measure jobs side by side; yields their records, step by step.

    One repeat of each before the next of any: a machine that is faster or slower for
    a while, as virtual ones are, is so for all of them.

    Parameters
    ----------
    jobs : sequence of Job
    progress : callable, optional
        ``progress(number, of, text)`` before each repeat.
    absent : callable, optional
        ``absent(job, error)`` for a job that fails, or finds, when it runs, that
        something is not there; the others go on.  None: the error is raised.

    Blocks.  Raises ``KernelError`` when a kernel fails, ``NotThereError``.

    Source: ucx_perftest -h; cython/perf.
    """
    left = list(jobs)
    of = sum(len(job.steps) * job.repeats for job in left)
    done = 0
    for step in range(max((len(job.steps) for job in left), default=0)):
        members = [job for job in left if step < len(job.steps)]
        for number in range(max((job.repeats for job in members), default=0)):
            for job in [job for job in members if number < job.repeats]:
                done += 1
                if progress is not None:
                    size = f"{job.steps[step][0]} B"
                    progress(
                        done, of, f"{job.test} {job.layer} {job.transport} {size}"
                    )
                try:
                    job.measure(step)
                except KernelError as error:
                    if absent is None:
                        raise
                    absent(job, error)
                    members.remove(job)
                    left.remove(job)
        for job in members:
            yield from job.records(step)


def run(test, *, progress=None, **arguments) -> list[dict]:
    """Measure one test; returns a record for each size (and step, as of reg_mem).

    ``arguments`` are those of ``Job``, ``progress`` is that of ``in_turn``.

    Blocks.  Raises what these raise.

    Source: ucx_perftest -h; cython/perf.
    """
    return list(in_turn([Job(test, **arguments)], progress=progress))
