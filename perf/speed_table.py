#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the speed bounds of the transport against its peers.

Every bound is a ratio to something that runs in the same minutes on the same
two cores: utofu and its peer take turns, a ratio is formed in each round, and
the median of the rounds is held against the bound.  Stock ucx_perftest does the
measuring where it can; the kernels in kernels/ do it for memory from malloc and
for utofu_put without UCX.

The exit code is 0 when all bounds hold, 1 when one does not.
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
PINGPONG_SIZES = tuple(8 << (2 * i) for i in range(10)) + (4 << 20,)


@dataclass
class Case:
    """One line of the table; a measurement returns seconds or bytes per second."""

    name: str
    unit: str  # "s": lower is better, "B/s": higher is better
    bound: float
    ours: object
    peers: dict  # name -> measurement; the best of them counts

    def holds(self, ratio):
        return ratio <= self.bound if self.unit == "s" else ratio >= self.bound

    def best(self, values):
        return min(values) if self.unit == "s" else max(values)


def compile_kernels(folder):
    """Build the kernels against the installed headers; returns their paths."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    lib, include = uct_tofu.lib_dir(), uct_tofu.include_dir()
    ucx = _paths.ucx_dir()
    options = {
        "utofu_pingpong": [
            f"-I{include}",
            f"-L{lib}",
            "-ltofucom",
            f"-Wl,-rpath,{lib}",
        ],
        "uct_put": [
            f"-I{ucx}/include",
            f"-L{ucx}/lib",
            "-luct",
            "-lucs",
            f"-Wl,-rpath,{ucx}/lib",
            "-Wl,--allow-shlib-undefined",
        ],
    }
    result = {}
    for name, flags in options.items():
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

    def kernel(self, name, memory, size, *arguments, rate=False):
        """A measurement by a kernel: seconds, or bytes per second."""

        def once():
            env = perftest.tool_environment("put_lat", "utofu")

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
                return float(done.stdout.split()[1]) * (1 if "bw" in arguments else 2)

            each = self._repeat((name, memory, size, *arguments), run)
            seconds = each / (1 if "bw" in arguments else 2)
            return size / seconds if rate else seconds

        return once


def size_text(size):
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def make_cases(bench):
    tool, kernel = bench.tool, bench.kernel
    cases = [
        Case(
            "UCT put_lat 8 B short",
            "s",
            1.3,
            tool("put_lat", "utofu", 8, "short", "latency"),
            {"sysv": tool("put_lat", "sysv", 8, "short", "latency")},
        ),
        Case(
            "UCT put_bw 8 B short, per op",
            "s",
            1.5,
            tool("put_bw", "utofu", 8, "short", "latency"),
            {"sysv": tool("put_bw", "sysv", 8, "short", "latency")},
        ),
    ]
    for size in (64 << 10, 1 << 20):
        cases.append(
            Case(
                f"UCT put_bw {size_text(size)} zcopy",
                "B/s",
                0.9,
                tool("put_bw", "utofu", size, "zcopy", "bandwidth"),
                {
                    f"sysv {layout}": tool("put_bw", "sysv", size, layout, "bandwidth")
                    for layout in ("short", "bcopy")
                },
            )
        )
    cases += [
        Case(
            "UCT am_lat 8 B short",
            "s",
            1.5,
            tool("am_lat", "utofu", 8, "short", "latency"),
            {"sysv": tool("am_lat", "sysv", 8, "short", "latency")},
        ),
        Case(
            "UCT fadd 8 B",
            "s",
            2.0,
            tool("fadd", "utofu", 8, "short", "latency"),
            {"sysv": tool("fadd", "sysv", 8, "short", "latency")},
        ),
    ]
    # the kernel looks up pages one by one: it matters how many there are
    for where, memory in (("1 page", "malloc-page"), ("2 pages", "malloc")):
        cases.append(
            Case(
                f"malloc memory: put latency 4 KiB, {where}",
                "s",
                0.8,
                kernel("uct_put", memory, 4096, "lat", "utofu", "tofu0"),
                {"cma": kernel("uct_put", memory, 4096, "lat", "cma", "memory")},
            )
        )
    for size in (64 << 10, 1 << 20):
        cases.append(
            Case(
                f"malloc memory: put bandwidth {size_text(size)}",
                "B/s",
                0.95,
                kernel("uct_put", "malloc", size, "bw", "utofu", "tofu0", rate=True),
                {
                    "cma": kernel(
                        "uct_put", "malloc", size, "bw", "cma", "memory", rate=True
                    )
                },
            )
        )
    for size in PINGPONG_SIZES:
        cases.append(
            Case(
                f"UCT put_zcopy ping-pong {size_text(size)}",
                "s",
                1.10,
                kernel("uct_put", "memfd", size, "lat", "utofu", "tofu0"),
                {"utofu_put": kernel("utofu_pingpong", "memfd", size)},
            )
        )
    return cases


def value_text(case, value):
    if case.unit == "B/s":
        return f"{value / 1e9:.2f} GB/s"
    return f"{value * 1e9:.1f} ns" if value < 1e-5 else f"{value * 1e6:.2f} us"


def measure(cases, rounds, progress):
    """Take turns; returns one result per case."""
    samples = [{"ours": [], "peer": [], "ratio": []} for _ in cases]
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for case, sample in zip(cases, samples):
            names = ["ours", *case.peers]
            # Whoever goes second has the warmer machine: swap each round.
            values = {}
            for name in names if number % 2 == 0 else reversed(names):
                values[name] = (case.ours if name == "ours" else case.peers[name])()
            peer = case.best([values[name] for name in case.peers])
            sample["ours"].append(values["ours"])
            sample["peer"].append(peer)
            sample["ratio"].append(values["ours"] / peer)
    results = []
    for case, sample in zip(cases, samples):
        ratio = statistics.median(sample["ratio"])
        results.append(
            {
                "name": case.name,
                "unit": case.unit,
                "peers": list(case.peers),
                "ours": statistics.median(sample["ours"]),
                "peer": statistics.median(sample["peer"]),
                "ratio": ratio,
                "bound": case.bound,
                "holds": case.holds(ratio),
                "samples": sample,
            }
        )
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write all samples to FILE")
    parser.add_argument("--quick", action="store_true", help="3 short rounds")
    parser.add_argument("--rounds", type=int, default=None, help="default 5")
    parser.add_argument("--only", metavar="TEXT", help="only cases that contain TEXT")
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 5)
    cpus = perftest.choose_cpus()
    if cpus[0] == cpus[1]:
        sys.exit("only one CPU may be used: the bounds need two cores")
    # One job for all runs, apart from what else uses the emulator.
    os.environ.setdefault("UTOFU_EMU_JOB", f"speed-{os.getpid()}")
    backend = uct_tofu.Backend.load()
    host = {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ucx": _paths.ucx_version(),
        "uct_tofu": uct_tofu.__version__,
        "backend": backend.kind,
        "cpus": cpus,
        "rounds": rounds,
        "quick": options.quick,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(compile_kernels(folder), cpus, 0.1 if options.quick else 0.3)
        cases = [
            case
            for case in make_cases(bench)
            if not options.only or options.only in case.name
        ]
        try:
            results = measure(
                cases, rounds, lambda text: print(text, file=sys.stderr, flush=True)
            )
        except (perftest.PerftestError, subprocess.SubprocessError) as error:
            sys.exit(f"speed_table: {error}")
    print(
        f"utofu on {backend.kind}, UCX {host['ucx']}, {host['machine']}, CPUs "
        f"{cpus[0]} and {cpus[1]}, medians of {rounds} rounds"
    )
    line = "{:<36} {:>12} {:>12} {:<10} {:>6} {:>8}  {}"
    print(line.format("what", "utofu", "peer", "", "ratio", "bound", ""))
    for case, result in zip(cases, results):
        sign = "<=" if case.unit == "s" else ">="
        print(
            line.format(
                result["name"],
                value_text(case, result["ours"]),
                value_text(case, result["peer"]),
                result["peers"][0].split()[0],
                f"{result['ratio']:.2f}",
                f"{sign} {result['bound']:.2f}",
                "holds" if result["holds"] else "DOES NOT HOLD",
            )
        )
    if options.json:
        Path(options.json).write_text(
            json.dumps({"host": host, "results": results}, indent=1) + "\n"
        )
    return 0 if all(result["holds"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
