#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures what the Python objects cost over the transport core below them.

Both sides do the same from one process to itself, on the same CPU, in turns:
kernels/core_ops.c in C, this file in Python.  Each measurement is a new process, as
where its memory happens to be makes a difference of some per cent.  Of each round the
difference (or the ratio) is taken, and the median of the rounds is held against the
bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from table_common import compile_kernels, count_of, host_info

from uct_tofu import Endpoint, Iface, MemoryDomain, RemoteMemory, TofuRetryError

CHUNKS = 25  # as the kernels: the median of so many, after some to warm up
WARMUP = 3
LARGE = 1 << 20

# name, what the kernel calls it, size, kind of bound, bound; seconds
CASES = (
    ("put_short 8 B", "put_short", 8, "over", 400e-9),
    ("await put 8 B", "put_wait", 8, "total", 5e-6),
    ("put of a NumPy array, 1 MiB", "put_zcopy", LARGE, "bandwidth", 0.95),
    ("am_short 8 B to a handler", "am", 8, "over", 1e-6),
)
LIMITS = {
    "over": ("time over C", lambda ours, core: ours - core),
    "total": ("time", lambda ours, core: ours),
    "bandwidth": ("bandwidth / C", lambda ours, core: core / ours),
}


class Objects:
    """What the measured loops use; each returns seconds per operation."""

    def __init__(self):
        self.md = MemoryDomain()
        self.memory = self.md.alloc(LARGE)
        self.iface = Iface(self.md)
        self.ep = Endpoint(self.iface, self.iface.address)
        self.remote = RemoteMemory(self.memory.export())
        self.data = np.ones(LARGE, np.uint8)  # once: its first put registers it
        self.handled = 0
        self.iface.set_am_handler(3, self._on_am)

    def close(self):
        self.ep.flush().wait()
        for item in (self.ep, self.iface, self.remote, self.memory, self.md):
            item.close()

    def _on_am(self, data):
        self.handled += 1

    def put_short(self, count):
        put, progress = self.ep.put_short, self.iface.progress
        data, address, key = bytes(8), self.remote.address, self.remote.key
        start = time.perf_counter()
        for _ in range(count):
            while True:
                try:
                    put(data, address, key)
                    break
                except TofuRetryError:
                    progress()
        return (time.perf_counter() - start) / count

    async def put_wait(self, count):
        put, data, remote = self.ep.put, bytes(8), self.remote
        start = time.perf_counter()
        for _ in range(count):
            await put(data, remote)
        return (time.perf_counter() - start) / count

    def put_zcopy(self, count):
        put, data, remote = self.ep.put, self.data, self.remote
        start = time.perf_counter()
        for _ in range(count):
            put(data, remote).wait()
        return (time.perf_counter() - start) / count

    def am(self, count):
        send, progress = self.ep.am_short, self.iface.progress
        start = time.perf_counter()
        for _ in range(count):
            self.handled = 0
            while True:
                try:
                    send(3, 0)
                    break
                except TofuRetryError:
                    progress()
            while not self.handled:
                progress()
        return (time.perf_counter() - start) / count


def measure_here(what, count):
    """Median over chunks of one loop, seconds per operation."""
    objects = Objects()
    each = max(count // CHUNKS, 1)
    loop = getattr(objects, what)

    def chunks():
        return [loop(each) for _ in range(WARMUP + CHUNKS)]

    async def async_chunks():
        return [await loop(each) for _ in range(WARMUP + CHUNKS)]

    if asyncio.iscoroutinefunction(loop):
        times = asyncio.run(async_chunks())
    else:
        times = chunks()
    objects.close()
    return statistics.median(times[WARMUP:])


def run(command):
    """The words that a measurement prints."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=90
    )
    if done.returncode != 0:
        words = " ".join(map(str, command))
        sys.exit(f"{words}: ended with {done.returncode}\n{done.stderr}")
    return done.stdout.split()


def python_side(what, count):
    """By this file in another process; it inherits the CPU."""
    return float(run([sys.executable, __file__, "--one", what, str(count)])[0])


def core_side(kernel, cpu, what, size, count):
    """The same by the kernel."""
    return float(run([kernel, str(cpu), what, str(size), str(count)])[1])


def value_text(kind, value):
    if kind == "bandwidth":
        return f"{value:.2f}"
    return f"{value * 1e9:.0f} ns"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write all samples to FILE")
    parser.add_argument("--quick", action="store_true", help="3 short rounds")
    parser.add_argument("--rounds", type=count_of, default=None, help="default 15")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(measure_here(options.one[0], int(options.one[1])))
        return 0
    rounds = options.rounds or (3 if options.quick else 15)
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [cpu])
    os.environ.setdefault("UTOFU_EMU_JOB", f"python_table-{os.getpid()}")
    samples = {case[0]: {"python": [], "core": [], "value": []} for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        kernel = compile_kernels(folder, ("core_ops",))["core_ops"]
        for number in range(rounds):
            for name, what, size, kind, _ in CASES:
                count = 2000 if size == LARGE else 200000
                count //= 10 if options.quick else 1
                if number % 2:  # who goes second has the warmer machine
                    core = core_side(kernel, cpu, what, size, count)
                    ours = python_side(what, count)
                else:
                    ours = python_side(what, count)
                    core = core_side(kernel, cpu, what, size, count)
                sample = samples[name]
                sample["python"].append(ours)
                sample["core"].append(core)
                sample["value"].append(LIMITS[kind][1](ours, core))
    line = "{:<30} {:>10} {:>10} {:>6}  {:<14} {:>8} {:>11}  {}"
    print(line.format("what", "Python", "C", "ratio", "bound on", "value", "bound", ""))
    all_hold = True
    results = []
    for name, _, _, kind, bound in CASES:
        sample = samples[name]
        ours = statistics.median(sample["python"])
        core = statistics.median(sample["core"])
        value = statistics.median(sample["value"])
        holds = value >= bound if kind == "bandwidth" else value <= bound
        all_hold &= holds
        sign = ">=" if kind == "bandwidth" else "<="
        print(
            line.format(
                name,
                f"{ours * 1e9:.0f} ns",
                f"{core * 1e9:.0f} ns",
                f"{ours / core:.2f}",
                LIMITS[kind][0],
                value_text(kind, value),
                f"{sign} {value_text(kind, bound)}",
                "holds" if holds else "DOES NOT HOLD",
            )
        )
        results.append(
            {
                "name": name,
                "kind": kind,
                "bound": bound,
                "median": value,
                "rounds": sample,
            }
        )
    if options.json:
        host = host_info([cpu], rounds, options.quick)
        Path(options.json).write_text(
            json.dumps({"host": host, "results": results}, indent=1) + "\n"
        )
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
