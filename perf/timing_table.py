#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lays the emulator's timed mode and the model of Tofu-D side by side.

kernels/timed_utofu.c takes single times of operations between emulated nodes, with
UTOFU_EMU_TIMING set; tofud_model.py says what they should be.  A line has the median
over the rounds of each round's median and 99th percentile.  One-way times whose
model is 0.5 to 2 us are judged: the median within 30 ns of the model, the 99th
percentile no more than 60 ns above it.  That is said of two idle cores.  Whether they are
says a loop without the library, which waits for 1 us on each side and stores.  It runs
before and after each 500 puts, 300 times: of puts between two whose 99th percentile is within
60 ns of the median, the cores are idle, and only these count.  If they are less than three
quarters of a round it is taken again, up to 8 times, and does not count after that; of a
line none of whose rounds counts, which says so, all do.  The first two lines say what the
host does by itself: puts with the timing off, and that loop.

The exit code is 0 when all of these hold, 1 when one does not.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from table_common import compile_kernels, count_of, host_info

from uct_tofu import perftest
from uct_tofu.perf import tofud_model as model
from uct_tofu.perf.units import size_text

MEDIAN_LIMIT, P99_LIMIT = 30.0, 60.0
JUDGED = (500.0, 2000.0)
NOT_SUPPORTED = 77  # exit code of the kernel
BARE = "no library: 1 us, a store"
BARE_NS = 1000  # what it waits before each store
TRIES = 8  # of a round, until enough of it had idle cores
IDLE_SHARE = 0.75  # of a round, that is enough
BLOCK, BARE_BLOCK = 500, 300  # of the kernel: puts, and turns of the loop between them
HERE = "0,0,0,0,0,0"
# Nodes of the same unit, so many hops away.
AWAY = {1: "0,0,0,1,0,0", 2: "0,0,0,1,1,0", 3: "0,0,0,1,1,1"}
# Nodes one hop away, each over a link of its own.
NEIGHBOURS = (
    "0,0,0,1,0,0",
    "0,0,0,0,1,0",
    "0,0,0,0,2,0",
    "0,0,0,0,0,1",
    "1,0,0,0,0,0",
    "0,1,0,0,0,0",
)


@dataclass
class Line:
    """One line: what to measure, and what the model says."""

    name: str
    hops: int
    expected: float
    arguments: tuple  # of the kernel: size, test, tnis, window, gap
    targets: tuple
    weight: int = 1  # how much longer than a small put: so much fewer iterations
    is_one_way: bool = False

    @property
    def is_judged(self):
        return self.is_one_way and JUDGED[0] <= self.expected <= JUDGED[1]


def latency_lines(p):
    lines = []
    puts = [("piggyback8", 8, 1), ("put", 8, 1), ("put", 1 << 10, 1)]
    puts += [("put", 64 << 10, 10), ("put", 1 << 20, 100), ("notice", 8, 1)]
    for test, size, weight in puts:
        text = {"notice": "put with MRQ notice", "piggyback8": "put piggyback"}
        for hops, target in AWAY.items():
            expected = model.put(p, size, hops, piggyback=test == "piggyback8")
            lines.append(
                Line(
                    f"{text.get(test, 'put')} {size_text(size)}",
                    hops,
                    expected,
                    (size, test, 1, 1, 0),
                    (target,),
                    weight,
                    is_one_way=True,
                )
            )
    for test, text, expected in (
        ("exchange", "exchange of puts, 8 B", functools.partial(model.put, p, 8)),
        ("get", "get 8 B, round trip", functools.partial(model.get, p, 8)),
        ("armw8", "armw8, round trip", functools.partial(model.armw, p)),
    ):
        for hops, target in AWAY.items():
            lines.append(
                Line(text, hops, expected(hops), (8, test, 1, 1, 0), (target,))
            )
    return lines


def stream_lines(p):
    def line(name, size, weight, *, tnis=1, neighbours=1, window=4, gap=0):
        expected = model.stream(p, size, tnis=tnis, neighbours=neighbours, gap=gap)
        arguments = (size, "stream", tnis, window, gap)
        return Line(name, 1, expected, arguments, NEIGHBOURS[:neighbours], weight)

    mib = 1 << 20
    return [
        line("message gap, puts of 1 KiB", 1 << 10, 10, window=8),
        line("1 MiB puts, 1 TNI", mib, 400),
        line("1 MiB puts, 2 TNIs, 1 peer", mib, 400, tnis=2),
        line("1 MiB puts, 2 TNIs, 2 peers", mib, 400, tnis=2, neighbours=2),
        line("1 MiB puts, 6 TNIs, 6 peers", mib, 400, tnis=6, neighbours=6),
        line("1 MiB puts, gap 8 (50 %)", mib, 400, gap=8),
        line("1 MiB puts, gap 24 (25 %)", mib, 400, gap=24),
    ]


def host_line():
    """What a put takes here by itself; it has no model."""
    return Line("timing off: 8 B put", 1, 0.0, (8, "put", 1, 1, 0), (AWAY[1],))


def bare_line():
    """The same without the library: what the host does to a loop that waits."""
    return Line(BARE, 1, 0.0, (BARE_NS, "bare", 1, 1, 0), (AWAY[1],))


def make_lines(p):
    barrier = Line(
        "barrier of 2", 1, model.barrier(p, 2), (8, "barrier", 1, 1, 0), (AWAY[1],)
    )
    return [host_line(), bare_line(), *latency_lines(p), *stream_lines(p), barrier]


def run_kernel(kernel, cpus, env, line, iterations):
    """Times in ns, and those of the loop without the library, which may be none.

    None when the library does not support the operation.
    """
    size, *rest = line.arguments
    command = [kernel, *cpus, size, max(20, iterations // line.weight), *rest]
    command = [str(word) for word in (*command, HERE, *line.targets)]
    if not line.expected:
        env = {name: env[name] for name in env if name != "UTOFU_EMU_TIMING"}
    done = subprocess.run(
        command,
        check=False,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    if done.returncode == NOT_SUPPORTED:
        return None
    if done.returncode != 0:
        raise perftest.PerftestError(
            f"{' '.join(command[3:])}: ended with {done.returncode}\n{done.stderr}"
        )
    found = {}
    for text in done.stdout.splitlines():
        name, *words = text.split()
        found[name] = [float(word) for word in words]
    return found["ns"], found.get("bare", [])


def percentile(values, percent):
    """The smallest value that so many percent of the values do not exceed."""
    values = sorted(values)
    return values[-(-len(values) * percent // 100) - 1]


def is_steady(times):
    """Whether the loop without the library had two cores for itself."""
    return percentile(times, 99) - statistics.median(times) <= P99_LIMIT


def idle_part(times, bare):
    """The times of the blocks that had idle cores before and after."""
    steady = [
        is_steady(bare[at : at + BARE_BLOCK]) for at in range(0, len(bare), BARE_BLOCK)
    ]
    return [
        time
        for number, idle in enumerate(zip(steady, steady[1:]))
        if all(idle)
        for time in times[number * BLOCK : (number + 1) * BLOCK]
    ]


def run_idle(line, run):
    """The times of a line that count, and whether the cores were idle for them."""
    times = []
    for _ in range(TRIES):
        result = run(line)
        if result is None:
            break
        times = result[0]
        idle = idle_part(*result)
        if len(idle) >= IDLE_SHARE * len(times):
            return idle, True
    return times, False


def measure(lines, rounds, run):
    """Take turns; returns one result per line."""
    samples = [([], []) for _ in lines]  # of rounds with busy cores, and with idle ones
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for line, sample in zip(lines, samples):
            if line.is_judged:
                times, idle = run_idle(line, run)
            else:
                times, idle = (run(line) or ([],))[0], True
            if times:
                sample[idle].append((statistics.median(times), percentile(times, 99)))
    results = []
    for line, (busy, sample) in zip(lines, samples):
        idle_rounds = len(sample)
        sample = sample or busy
        result = {"name": line.name, "hops": line.hops, "model_ns": line.expected}
        result["judged"] = line.is_judged
        result["supported"] = bool(sample)
        result["idle_rounds"] = idle_rounds
        if sample:
            median = statistics.median(value for value, _ in sample)
            p99 = statistics.median(value for _, value in sample)
            result["median_ns"], result["p99_ns"] = median, p99
            result["error_ns"] = median - line.expected
            result["rounds"] = sample
            result["holds"] = (
                abs(result["error_ns"]) <= MEDIAN_LIMIT
                and p99 - line.expected <= P99_LIMIT
            )
        else:
            result["holds"] = False
        results.append(result)
    return results


def tail(result):
    """How far a line's 99th percentile is beyond its model; beyond its median without one."""
    return result["p99_ns"] - (result["model_ns"] or result["median_ns"])


def print_table(results):
    layout = "{:<28} {:>4} {:>10} {:>10} {:>10} {:>9} {:>7}  {}"
    heads = ("operation", "hops", "model ns", "median ns", "p99 ns", "error ns", "%")
    print(layout.format(*heads, "").rstrip())
    for item in results:
        expected = item["model_ns"]
        start = (item["name"], item["hops"], f"{expected:.0f}" if expected else "-")
        if not item["supported"]:
            verdict = "not supported" + (", DOES NOT HOLD" if item["judged"] else "")
            print(layout.format(*start, "-", "-", "-", "-", verdict))
            continue
        verdict = ("DOES NOT HOLD", "holds")[item["holds"]] if item["judged"] else ""
        numbers = (item["median_ns"], item["p99_ns"])
        cells = [f"{number:.0f}" for number in numbers]
        if expected:
            percent = 100 * item["error_ns"] / expected
            cells += [f"{item['error_ns']:+.0f}", f"{percent:+.1f}"]
        else:
            cells += ["-", "-"]
        if item["name"] == BARE:
            verdict = f"p99 {tail(item):+.0f}: the host's"
        elif item["judged"] and tail(item) > P99_LIMIT:
            verdict += f", p99 {tail(item):+.0f}"
        if item["judged"] and not item["idle_rounds"]:
            verdict += ", the cores were never idle"
        print(layout.format(*start, *cells, verdict).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    parser.add_argument("--profile", choices=tuple(model.PROFILES), default="tofud")
    parser.add_argument("--quick", action="store_true", help="1 short round")
    parser.add_argument("--rounds", type=count_of, default=None, help="default 11")
    parser.add_argument("--only", metavar="TEXT", help="only lines that contain TEXT")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 11)
    iterations = 1000 if options.quick else 10000
    cpus = perftest.choose_cpus()
    if cpus[0] == cpus[1]:
        sys.exit("only one CPU may be used: the timed mode needs two cores")
    # the emulator, and nodes where this program says
    os.environ["UCT_TOFU_BACKEND"] = "emulator"
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UTOFU_EMU_")
    }
    env["UTOFU_EMU_JOB"] = f"timing_table-{os.getpid()}"
    env["UTOFU_EMU_TIMING"] = options.profile
    host = host_info(cpus, rounds, options.quick)
    lines = [
        line
        for line in make_lines(model.PROFILES[options.profile])
        if not options.only or options.only in line.name
    ]
    if not lines:
        parser.error(f"--only: no line has {options.only!r} in it")
    with tempfile.TemporaryDirectory() as folder:
        kernel = compile_kernels(folder, ("timed_utofu",))["timed_utofu"]
        run = functools.partial(run_kernel, kernel, cpus, env)
        try:
            results = measure(lines, rounds, lambda line: run(line, iterations))
        except (perftest.PerftestError, subprocess.SubprocessError) as error:
            sys.exit(f"timing_table: {error}")
    print(
        f"UTOFU_EMU_TIMING={options.profile}, {host['machine']}, CPUs {cpus[0]} and "
        f"{cpus[1]}, medians of {rounds} rounds"
    )
    print_table(results)
    if options.json:
        host["profile"] = options.profile
        Path(options.json).write_text(
            json.dumps({"host": host, "results": results}, indent=1) + "\n"
        )
    return 0 if all(item["holds"] for item in results if item["judged"]) else 1


if __name__ == "__main__":
    sys.exit(main())
