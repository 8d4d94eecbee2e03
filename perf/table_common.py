# SPDX-License-Identifier: BSD-3-Clause
"""What the tables of this folder share: kernels, single measurements, rounds, output.

Every bound is a ratio to something that runs in the same minutes on the same two
cores: the measured thing and its peer take turns, a ratio is formed in each round,
and the median of the rounds is held against the bound.

The two CPUs of a virtual machine may be near each other, or far, and that changes while
it runs: the time of a cache line from one to the other is measured around each
measurement, and a round in which it changed is run again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uct_tofu
from uct_tofu import _paths, perftest

KERNELS = Path(__file__).resolve().parent / "kernels"
# What a kernel is linked to; the others are pure uTofu programs.
UCT_KERNELS = ("uct_put",)
UCP_KERNELS = ("ucp_rma",)
PLAIN_KERNELS = ("line",)  # to nothing
CORE_KERNELS = ("core_idle", "core_neighbours", "core_ops", "core_threads")
# The core's headers are not installed: they are those of this tree.
CYTHON = KERNELS.parents[1] / "cython"
# A round is steady when the times of a cache line around its measurements differ by no
# more than this; else it is run again, so often at most.
STEADY = 1.5
TRIES = 8
# Arguments of kernels whose iterations are not ping-pongs.
ONE_WAY = {"bw", "stream", "rate", "notice_rate", "poll_tcq", "poll_mrq"}
ONE_WAY |= {"put_rate", "am_rate", "put_bw", "get_bw", "get_lat"}


@dataclass
class Case:
    """One line of the table; a measurement returns seconds or bytes per second."""

    name: str
    unit: str  # "s": lower is better; "B/s", "op/s": higher is better
    bound: float | None  # None: for information
    ours: object
    peers: dict  # name -> measurement; the best of them counts

    def holds(self, ratio):
        if self.bound is None:
            return True
        return ratio <= self.bound if self.unit == "s" else ratio >= self.bound

    def best(self, values):
        return min(values) if self.unit == "s" else max(values)


def compile_kernels(folder, names):
    """Build the kernels against the installed headers; returns their paths."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    lib, include = uct_tofu.lib_dir(), uct_tofu.include_dir()
    ucx = _paths.ucx_dir()
    utofu_flags = [f"-I{include}", f"-L{lib}", "-ltofucom", f"-Wl,-rpath,{lib}"]
    uct_flags = [
        f"-I{ucx}/include",
        f"-L{ucx}/lib",
        "-luct",
        "-lucs",
        f"-Wl,-rpath,{ucx}/lib",
        "-Wl,--allow-shlib-undefined",
    ]
    core_flags = [f"-I{CYTHON / 'core'}", f"-I{CYTHON / 'abi'}", f"-L{lib}"]
    core_flags += ["-ltofu_core", f"-Wl,-rpath,{lib}", "-lpthread", "-ldl"]
    result = {}
    for name in names:
        flags = utofu_flags
        if name in UCT_KERNELS:
            flags = uct_flags
        elif name in UCP_KERNELS:
            flags = [*uct_flags, "-lucp"]
        elif name in CORE_KERNELS:
            flags = core_flags
        elif name in PLAIN_KERNELS:
            flags = ["-lpthread"]
        result[name] = str(Path(folder) / name)
        source = str(KERNELS / f"{name}.c")
        subprocess.run(
            [*compiler, "-O2", "-Wall", source, "-o", result[name], *flags], check=True
        )
    return result


class Bench:
    """Runs single measurements of a fixed length on two fixed cores."""

    def __init__(self, kernels, cpus, seconds):
        self.kernels = kernels
        self.cpus = cpus
        self.seconds = seconds
        self.iterations = {}  # found once per measurement, then kept

    def line(self):
        """Seconds that a cache line takes now from one of the CPUs to the other."""
        command = [self.kernels["line"], *map(str, self.cpus)]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=30
        )
        return float(done.stdout.split()[1]) * 1e-9

    def _repeat(self, key, run):
        """Call run(iterations) -> seconds each, with a fitting number."""
        if key not in self.iterations:
            each = run(200)
            self.iterations[key] = int(
                min(2_000_000, max(200, self.seconds / max(each, 1e-9)))
            )
        return run(self.iterations[key])

    def tool(self, test, transport, size, layout, field):
        """A measurement by ucx_perftest: the given field of its result."""

        def once():
            rows = []

            def run(iterations):
                rows.append(
                    perftest.run(
                        test,
                        transport,
                        size,
                        layout=layout,
                        cpus=self.cpus,
                        iterations=iterations,
                    )
                )
                return rows[-1].latency * (2 if test.endswith("_lat") else 1)

            self._repeat((test, transport, size, layout), run)
            return getattr(rows[-1], field)

        return once

    def kernel(self, name, memory, size, *arguments, rate=False, variables=()):
        """A measurement by a kernel: seconds, or bytes per second.

        variables: pairs that the kernel finds in its environment besides.
        """
        # a kernel prints one-way times; an iteration of a ping-pong is two
        trips = 1 if ONE_WAY.intersection(arguments) else 2

        def once():
            env = perftest.tool_environment("put_lat", "utofu") | dict(variables)

            def run(iterations):
                command = [self.kernels[name], *map(str, self.cpus), memory]
                command += [str(size), str(iterations), *arguments]
                done = subprocess.run(
                    command,
                    check=False,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=90,
                )
                if done.returncode != 0:
                    raise perftest.PerftestError(
                        f"{' '.join(command[3:])}: ended with {done.returncode}\n"
                        + done.stderr
                    )
                return float(done.stdout.split()[1]) * trips

            each = self._repeat((name, memory, size, *arguments, *variables), run)
            seconds = each / trips
            return size / seconds if rate else seconds

        return once


def value_text(case, value):
    if case.unit == "B/s":
        return f"{value / 1e9:.2f} GB/s"
    if case.unit == "op/s":
        return f"{value / 1e6:.2f} M/s"
    return f"{value * 1e9:.1f} ns" if value < 1e-5 else f"{value * 1e6:.2f} us"


def take_turns(measurements, names, line, tries=TRIES):
    """One value for each name, times of a cache line around them, and: are they equal?

    measurements: name -> measurement.
    """
    for _ in range(tries):
        values, lines = {}, [line()]
        for name in names:
            values[name] = measurements[name]()
            lines.append(line())
        if max(lines) <= STEADY * min(lines):
            return values, lines, True
    return values, lines, False


def measure(cases, rounds, progress, line=lambda: 1.0, tries=TRIES):
    """Take turns; returns one result per case.

    line: measures the time of a cache line between the CPUs, in seconds.
    tries: how often a round is run at most, until it is steady.
    """
    samples = [
        {"ours": [], "peer": [], "ratio": [], "line": [], "steady": []} for _ in cases
    ]
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for case, sample in zip(cases, samples):
            names = ["ours", *case.peers]
            # Whoever goes second has the warmer machine: swap each round.
            order = names if number % 2 == 0 else names[::-1]
            values, lines, steady = take_turns(
                {"ours": case.ours, **case.peers}, order, line, tries
            )
            peer = case.best([values[name] for name in case.peers])
            sample["ours"].append(values["ours"])
            sample["peer"].append(peer)
            sample["ratio"].append(values["ours"] / peer)
            sample["line"].append(statistics.median(lines))
            sample["steady"].append(steady)
    results = []
    for case, sample in zip(cases, samples):
        # without a steady round the others are better than nothing, and said so
        kept = [i for i in range(rounds) if sample["steady"][i]] or range(rounds)
        ours, peer, ratio, near = (
            statistics.median(sample[what][i] for i in kept)
            for what in ("ours", "peer", "ratio", "line")
        )
        results.append(
            {
                "name": case.name,
                "unit": case.unit,
                "peers": list(case.peers),
                "ours": ours,
                "peer": peer,
                "ratio": ratio,
                "line": near,
                "steady": sum(sample["steady"]),
                "bound": case.bound,
                "holds": case.holds(ratio),
                "samples": sample,
            }
        )
    return results


def host_info(cpus, rounds, quick):
    """What the results depend on, for the JSON file."""
    return {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ucx": _paths.ucx_version(),
        "uct_tofu": uct_tofu.__version__,
        "backend": uct_tofu.Backend.load().kind,
        "cpus": cpus,
        "rounds": rounds,
        "quick": quick,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def count_of(text):
    """The value of an option that counts: an int of 1 or more.

    Raises ``argparse.ArgumentTypeError``.
    """
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def run_table(program, description, kernels, make_cases):
    """The program of one table; returns its exit code.

    program names it in messages and jobs, kernels are the files to build, and
    make_cases(bench) returns its lines.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write all samples to FILE")
    parser.add_argument("--quick", action="store_true", help="3 short rounds, each run once")
    parser.add_argument("--rounds", type=count_of, default=None, help="default 5")
    parser.add_argument("--only", metavar="TEXT", help="only cases that contain TEXT")
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 5)
    cpus = perftest.choose_cpus()
    if cpus[0] == cpus[1]:
        sys.exit("only one CPU may be used: the bounds need two cores")
    # One job for all runs, apart from what else uses the emulator.
    os.environ.setdefault("UTOFU_EMU_JOB", f"{program}-{os.getpid()}")
    host = host_info(cpus, rounds, options.quick)
    with tempfile.TemporaryDirectory() as folder:
        seconds = 0.03 if options.quick else 0.3
        bench = Bench(compile_kernels(folder, [*kernels, "line"]), cpus, seconds)
        cases = [
            case
            for case in make_cases(bench)
            if not options.only or options.only in case.name
        ]
        if not cases:
            parser.error(f"--only: no line has {options.only!r} in it")
        try:
            results = measure(
                cases,
                rounds,
                lambda text: print(text, file=sys.stderr, flush=True),
                bench.line,
                tries=1 if options.quick else TRIES,
            )
        except (perftest.PerftestError, subprocess.SubprocessError) as error:
            sys.exit(f"{program}: {error}")
    print(
        f"utofu on {host['backend']}, UCX {host['ucx']}, {host['machine']}, CPUs "
        f"{cpus[0]} and {cpus[1]}, medians of {rounds} rounds"
    )
    line = "{:<36} {:>12} {:>12} {:<10} {:>6} {:>8} {:>7}  {}"
    print(line.format("what", "utofu", "peer", "", "ratio", "bound", "line", ""))
    for case, result in zip(cases, results):
        bound, verdict = "-", ""
        if case.bound is not None:
            bound = f"{'<=' if case.unit == 's' else '>='} {case.bound:.2f}"
            verdict = "holds" if result["holds"] else "DOES NOT HOLD"
        print(
            line.format(
                result["name"],
                value_text(case, result["ours"]),
                value_text(case, result["peer"]),
                result["peers"][0].split()[0],
                f"{result['ratio']:.2f}",
                bound,
                f"{result['line'] * 1e9:.0f} ns",
                verdict if result["steady"] else f"{verdict} (never steady)",
            ).rstrip()
        )
    if options.json:
        Path(options.json).write_text(
            json.dumps({"host": host, "results": results}, indent=1) + "\n"
        )
    return 0 if all(result["holds"] for result in results) else 1
