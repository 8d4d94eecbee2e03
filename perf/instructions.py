#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts the instructions of the post path, by layer and by function.

The core and the emulator of this tree are compiled with symbols; the tracer of
tests/perf_path executes the operation one instruction at a time between two marks, so
that the numbers are exact and do not depend on what else runs.  put_short and
am_short are posts of 8 bytes, am_receive is a progress call per message that has
come, of which one call delivers up to 16 that have no notice, progress is one that finds
nothing; am_bcopy packs 64 bytes, and copies them once more.  x86-64 only.

The tests in tests/perf_path hold the same path against what it must not have; this
program prints, and judges only that: it ends with 1 when an operation has a system
call or a locked instruction.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CYTHON = ROOT / "cython"
SOURCES = ROOT / "tests" / "perf_path" / "c"
OPERATIONS = ("put_short", "am_short", "am_bcopy", "am_receive", "progress")
LAYERS = {"libtofu_core.so": "core", "libtofucom.so": "emulator"}
# of a window of 16 large slots, half may be on its way back
FEWER = {"am_bcopy": 8}
NOT_HERE = 77


def build(folder):
    """Compile libraries and tracer as the package does, but with symbols."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    common = ["-std=gnu11", "-O2", "-g", f"-I{CYTHON / 'abi'}"]
    shared = ["-fPIC", "-shared"]

    def run(*words):
        subprocess.run([*compiler, *common, *map(str, words)], check=True)

    run(*shared, "-D_GNU_SOURCE", "-fvisibility=hidden", "-Wl,-soname,libtofucom.so",
        f"-Wl,--version-script={CYTHON / 'emu' / 'libtofucom.map'}",
        *sorted((CYTHON / "emu").glob("*.c")),
        "-o", folder / "libtofucom.so", "-lpthread")  # fmt: skip
    run(*shared, "-D_GNU_SOURCE", f"-I{CYTHON / 'core'}",
        f"-Wl,--version-script={CYTHON / 'libtofu_core.map'}",
        *sorted((CYTHON / "core").glob("*.c")), *sorted((CYTHON / "abi").glob("*.c")),
        "-o", folder / "libtofu_core.so", "-lpthread", "-ldl")  # fmt: skip
    run(f"-I{CYTHON / 'core'}", SOURCES / "step.c", SOURCES / "path.c",
        "-o", folder / "step", f"-L{folder}", "-ltofu_core",
        "-Wl,-rpath,$ORIGIN", "-Wl,-z,now")  # fmt: skip


class Symbols:
    """Functions of a library by offset."""

    def __init__(self, path):
        text = subprocess.run(
            ["nm", str(path)], check=True, capture_output=True, text=True
        ).stdout
        rows = (line.split() for line in text.splitlines())
        self.rows = sorted(
            (int(row[0], 16), row[2])
            for row in rows
            if len(row) == 3 and row[1] in "tTwWi"
        )
        self.starts = [row[0] for row in self.rows]

    def find(self, offset):
        place = bisect.bisect_right(self.starts, offset) - 1
        return self.rows[place][1] if place >= 0 else "?"


def trace(folder, symbols, operation, count):
    """Counter of (layer, function), and how many of them are forbidden ones."""
    env = dict(os.environ, UCT_TOFU_BACKEND="emulator")
    env["UTOFU_EMU_JOB"] = f"instructions-{os.getpid()}"
    env.pop("UTOFU_EMU_TIMING", None)
    done = subprocess.run(
        [str(folder / "step"), operation, str(count), "trace"],
        check=False,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    if done.returncode == NOT_HERE:
        sys.exit(f"instructions: {done.stderr.strip() or 'tracing is not allowed'}")
    if done.returncode != 0:
        sys.exit(f"instructions: {operation}: {done.returncode}\n{done.stderr}")
    found, forbidden = Counter(), 0
    for line in done.stdout.splitlines():
        words = line.split()
        if words[0] in ("at", "atomic"):
            file, offset = words[1], int(words[2], 16)
            if file == "step":
                continue  # the loop around the operation
            layer = LAYERS.get(file, file)
            name = symbols[file].find(offset) if file in symbols else ""
            found[layer, name] += 1
        if words[0] == "atomic" or (words[-2] == "syscall" and words[-1] != "0"):
            forbidden += 1
    return found, forbidden


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the counts to FILE")
    parser.add_argument("--only", metavar="TEXT", default="", help="operations")
    parser.add_argument("--count", type=int, default=16, help="operations each, <= 16")
    options = parser.parse_args()
    if not 1 <= options.count <= 16:
        parser.error("--count: 1 .. 16, for so many fit without progress")
    if not any(options.only in operation for operation in OPERATIONS):
        parser.error(f"--only: no operation has {options.only!r} in it")
    results, bad = {}, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        symbols = {file: Symbols(folder / file) for file in LAYERS}
        for operation in OPERATIONS:
            if options.only not in operation:
                continue
            count = min(options.count, FEWER.get(operation, options.count))
            found, forbidden = trace(folder, symbols, operation, count)
            total = sum(found.values()) / count
            print(f"{operation}: {total:.1f} instructions", end="")
            print(f", {forbidden} FORBIDDEN" if forbidden else "")
            layers = Counter()
            for (layer, _), number in found.items():
                layers[layer] += number
            for layer, number in layers.most_common():
                print(f"  {layer:<34}{number / count:>8.1f}")
                for (of, function), part in found.most_common():
                    if of == layer and function:
                        print(f"    {function:<32}{part / count:>8.1f}")
            bad += forbidden
            results[operation] = {
                "instructions": total,
                "forbidden": forbidden,
                "functions": {
                    f"{layer}:{function}": number / count
                    for (layer, function), number in found.most_common()
                },
            }
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
