#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Holds UCP's own choice of protocol against every protocol that can be forced.

For each operation and size, stock ucx_perftest over utofu runs once as it is, and once
with each setting of FORCED that leads to another protocol, as UCX_PROTO_INFO=y names
them; they take turns, and a round in which the time of a cache line between the CPUs
changed is run again.  The ratio is the time of the default over that of the fastest
other protocol, by medians of ratios: no more than 1.00 says that UCP chose the best one.
In the timed mode the emulator takes the time of Tofu-D.

The exit code is 0 when no ratio is above --limit, 1 when one is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from table_common import (
    Bench,
    compile_kernels,
    count_of,
    host_info,
    take_turns,
)

from uct_tofu import perftest
from uct_tofu.perf.units import size_text

SIZES = (8, 64, 512, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 1 << 20, 4 << 20)
EAGER = {"UCX_RNDV_THRESH": "inf"}
RNDV = {"UCX_RNDV_THRESH": "0"}
# name -> settings; those of rendezvous matter to two-sided operations only
COPY = {
    "short/bcopy": {"UCX_ZCOPY_THRESH": "inf"},
    "zcopy": {"UCX_ZCOPY_THRESH": "0"},
    "bcopy": {"UCX_BCOPY_THRESH": "0", "UCX_ZCOPY_THRESH": "inf"},
}
TWO_SIDED = {
    **{f"eager {name}": {**EAGER, **settings} for name, settings in COPY.items()},
    **{
        f"rndv {scheme}": {**RNDV, "UCX_RNDV_SCHEME": scheme}
        for scheme in ("get_zcopy", "put_zcopy", "am")
    },
}
TESTS = {
    "tag_lat": TWO_SIDED,
    "tag_bw": TWO_SIDED,
    "ucp_am_lat": TWO_SIDED,
    "ucp_am_bw": TWO_SIDED,
    "ucp_put_lat": COPY,
    "ucp_put_bw": COPY,
    "ucp_get": COPY,
}
# Ways of UCX_PROTO_INFO, by the first words of a table's title
TITLES = {
    "tag": "tagged message",
    "am": "active message",
    "put": "remote memory write",
    "get": "remote memory read",
}
# After the first round who took so many times as long as the fastest is left out.
HOPELESS = 1.5
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(text):
    """Bytes of UCX's notation, e.g. 8256, 64K, inf."""
    if text == "inf":
        return float("inf")
    match = re.fullmatch(r"([\d.]+)([KMG]?)B?", text)
    return int(float(match[1]) * UNITS[match[2]]) if match else None


def parse_protocols(text):
    """Tables of UCX_PROTO_INFO: [(title, [(first, last, protocol), ...]), ...].

    A table has its title in the line above the first one with a range; a range is
    first..last, in bytes.
    """
    tables = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 3:
            continue
        span = re.fullmatch(r"(\S+?)\.\.(\S+)", cells[1])
        if span is None and byte_count(cells[1]) is not None:
            span = re.fullmatch(r"(\S+)()", cells[1])
        if span is not None and tables:
            first = byte_count(span[1])
            last = byte_count(span[2]) if span[2] else first
            if first is not None and last is not None:
                how = " ".join(cell for cell in cells[2:] if cell)
                tables[-1][1].append((first, last, how))
        elif span is None and len(cells) == 3 and cells[1]:
            tables.append((cells[1], []))
    return [table for table in tables if table[1]]


def protocol_of(tables, test, size):
    """The protocol that the table of this operation names for a size, or "?".

    UCP has tables of their own for a stream of operations, "(multi)".
    """
    key = test.removeprefix("ucp_").split("_")[0]
    fitting = [
        (title, rows)
        for title, rows in tables
        if TITLES[key] in title and "fast-completion" not in title
    ]
    if test.endswith("_bw"):
        fitting.sort(key=lambda table: "multi" not in table[0])
    for _, rows in fitting:
        for first, last, how in rows:
            if first <= size <= last:
                return how
    return "?"


class Sweep:
    """Runs ucx_perftest with settings, with iterations found once for each."""

    def __init__(self, bench, timing):
        self.cpus = bench.cpus
        self.line = bench.line
        self.seconds = bench.seconds
        self.timing = timing
        self.iterations = {}
        self.tables = {}

    def environment(self, test, settings):
        env = perftest.tool_environment(test, "utofu")
        env.pop("UTOFU_EMU_TIMING", None)
        if self.timing != "fast":
            env["UTOFU_EMU_TIMING"] = self.timing
        env.update(settings)
        return env

    def run(self, test, size, name, settings):
        """Seconds of one operation; None when it can't be done this way."""
        env = self.environment(test, settings)
        key = test, size, name
        trips = 2 if test.endswith("_lat") else 1
        try:
            if key not in self.iterations:
                row = perftest.run(
                    test, "utofu", size, cpus=self.cpus, iterations=50, env=env
                )
                each = max(row.latency * trips, 1e-9)
                self.iterations[key] = int(min(1e6, max(50, self.seconds / each)))
            count = self.iterations[key]
            row = perftest.run(
                test, "utofu", size, cpus=self.cpus, iterations=count, env=env
            )
        except perftest.PerftestError as error:
            if name == "default":
                raise
            print(f"{test} {size} {name}: {error}", file=sys.stderr)
            return None
        return row.latency

    def protocols(self, test, name, settings):
        """Tables that UCX prints with these settings; they are of all sizes."""
        if (test, name) not in self.tables:
            env = self.environment(test, {"UCX_PROTO_INFO": "y", **settings})
            tool = perftest._paths.ucx_tool("ucx_perftest")
            command = [str(tool), "-t", test, "-s", "8", "-n", "10", "-w", "2"]
            said = perftest.pair_on_port(
                [*command, "-c", str(self.cpus[0])],
                [command[0], "127.0.0.1", *command[1:], "-c", str(self.cpus[1])],
                env,
                20,
                what=f"ucx_perftest {test}",
            )
            self.tables[test, name] = parse_protocols(said)
        return self.tables[test, name]


def others(chosen, protocols):
    """Names of the settings that lead to another protocol than the default's.

    One of several settings that lead to the same one is enough; "?" may be anything.
    """
    seen, names = {chosen} - {"?"}, []
    for name, protocol in protocols.items():
        if protocol not in seen:
            names.append(name)
            seen |= {protocol} - {"?"}
    return names


def sweep_one(sweep, test, size, rounds):
    """One line of the table: medians of all settings, and the ratio."""
    settings = {"default": {}, **TESTS[test]}
    protocols = {
        name: protocol_of(sweep.protocols(test, name, value), test, size)
        for name, value in settings.items()
    }
    chosen = protocols.pop("default")
    names = ["default", *others(chosen, protocols)]
    times = {name: [] for name in names}
    measurements = {
        name: lambda name=name: sweep.run(test, size, name, settings[name])
        for name in names
    }
    steady = 0
    for number in range(rounds):
        order = names if number % 2 == 0 else names[::-1]
        values, _, is_steady = take_turns(measurements, order, sweep.line)
        steady += is_steady
        for name, value in values.items():
            times[name].append(value)
        # None: it can't be done this way
        limit = HOPELESS * min(value for value in values.values() if value is not None)
        names = [
            name
            for name in names
            if name == "default" or (values[name] is not None and values[name] <= limit)
        ]
    medians = {
        name: statistics.median(values)
        for name, values in times.items()
        if None not in values
    }
    best, ratio = None, 1.0
    if len(medians) > 1:
        best = min(set(medians) - {"default"}, key=medians.get)
        pairs = zip(times["default"], times[best])
        ratio = statistics.median(own / other for own, other in pairs)
    return {
        "test": test,
        "size": size,
        "medians": medians,
        "best": best,
        "ratio": ratio,
        "steady": steady,
        "protocol": chosen,
    }


def sweep_all(bench, timings, tests, sizes, rounds):
    """The table, printed line by line; its results."""
    results = []
    line = "{:<12} {:>8} {:>11} {:>11}  {:<18} {:>6}  {}"
    for timing in timings:
        sweep = Sweep(bench, timing)
        print(f"mode {timing}, medians of {rounds} rounds")
        print(
            line.format("test", "size", "chosen", "best", "other", "ratio", "chosen is")
        )
        for test in tests:
            for size in sizes:
                result = sweep_one(sweep, test, size, rounds)
                result["timing"] = timing
                results.append(result)
                medians, best = result["medians"], result["best"]
                text = line.format(
                    test,
                    size_text(size),
                    f"{medians['default'] * 1e6:.3f} us",
                    f"{medians[best] * 1e6:.3f} us" if best else "-",
                    best or "-",
                    f"{result['ratio']:.2f}",
                    result["protocol"],
                )
                print(text + ("" if result["steady"] else " (never steady)"), flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write all medians to FILE")
    parser.add_argument("--quick", action="store_true", help="1 short round")
    parser.add_argument("--rounds", type=count_of, default=None, help="default 3")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="tests whose name has TEXT in it"
    )
    parser.add_argument("--sizes", metavar="N,N,...", help="bytes, in place of all")
    parser.add_argument(
        "--timing", default="fast,tofud", help="modes: fast, tofud, a profile's file"
    )
    parser.add_argument("--limit", type=float, default=1.1, help="default 1.1")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 3)
    sizes = [int(n) for n in options.sizes.split(",")] if options.sizes else SIZES
    tests = [test for test in TESTS if options.only in test]
    if not tests:
        parser.error(f"--only: none of {', '.join(TESTS)}")
    cpus = perftest.choose_cpus()
    if cpus[0] == cpus[1]:
        sys.exit("only one CPU may be used: two processes need two cores")
    os.environ.setdefault("UTOFU_EMU_JOB", f"protocol_sweep-{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        kernels = compile_kernels(folder, ["line"])
        bench = Bench(kernels, cpus, 0.02 if options.quick else 0.2)
        try:
            results = sweep_all(bench, options.timing.split(","), tests, sizes, rounds)
        except (perftest.PerftestError, subprocess.SubprocessError) as error:
            sys.exit(f"protocol_sweep: {error}")
    worst = max(results, key=lambda result: result["ratio"])
    print(
        f"worst: {worst['test']} {size_text(worst['size'])} in mode "
        f"{worst['timing']}: {worst['ratio']:.2f}, limit {options.limit:.2f}"
    )
    if options.json:
        host = host_info(cpus, rounds, options.quick)
        Path(options.json).write_text(
            json.dumps({"host": host, "results": results}, indent=1) + "\n"
        )
    return 0 if worst["ratio"] <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
