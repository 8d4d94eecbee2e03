# SPDX-License-Identifier: BSD-3-Clause
"""What endpoints to all nodes of Fugaku cost one process: bytes and seconds.

One process makes 158,975 endpoints to constructed addresses, one on each other node
of a network of 24 x 23 x 24 units, with its own iface configured by default.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import uct_tofu

HERE = Path(__file__).resolve().parent
CORE, ABI = (HERE.parent / "cython" / name for name in ("core", "abi"))
FUGAKU = (24, 23, 24)

MIB = 1 << 20
# what -> (bound, how it is written)
BOUNDS = {
    "seconds": (1.0, "{:.3f} s"),
    "resident_bytes": (64 * MIB, "{:,.0f} B"),
    "allocated_bytes": (64 * MIB, "{:,.0f} B"),
    "ep_struct_bytes": (256, "{:,.0f} B"),
    "receive_bytes": (8 * MIB, "{:,.0f} B"),
}


def compile_kernel(folder):
    """Build core and kernel of this tree: the kernel knows structures of the core.

    The installed libtofucom is beside them, where the loader looks for it.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    folder = Path(folder)
    emulator = folder / "libtofucom.so"
    emulator.symlink_to(Path(uct_tofu.lib_dir()) / emulator.name)
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", f"-I{CORE}", f"-I{ABI}"]
    sources = [str(path) for part in (CORE, ABI) for path in part.glob("*.c")]
    core = ["-fPIC", "-shared", "-o", str(folder / "libtofu_core.so")]
    subprocess.run([*compiler, *flags, *sources, *core, "-lpthread", "-ldl"], check=True)
    program = str(folder / "endpoints")
    link = [f"-L{folder}", "-ltofu_core", f"-Wl,-rpath,{folder}"]
    kernel = str(HERE / "kernels" / "endpoints.c")
    subprocess.run([*compiler, *flags, kernel, "-o", program, *link], check=True)
    return program


def measure(program, shape):
    """One run: name -> number."""
    env = dict(os.environ, UTOFU_EMU_SHAPE=",".join(map(str, shape)))
    env["UTOFU_EMU_JOB"] = f"endpoints-{os.getpid()}"
    done = subprocess.run(
        [program, *map(str, shape)], env=env, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"endpoints: ended with {done.returncode}\n{done.stderr}")
    rows = (line.split() for line in done.stdout.splitlines())
    return {name: float(value) for name, value in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default=",".join(map(str, FUGAKU)), help="X,Y,Z")
    parser.add_argument("--runs", type=int, default=3, help="the fastest counts")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    options = parser.parse_args()
    shape = [int(part) for part in options.shape.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        program = compile_kernel(folder)
        runs = [measure(program, shape) for _ in range(options.runs)]
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    count = best["endpoints"]
    print(f"{count:,.0f} endpoints, network of {options.shape} units")
    failed = []
    for name, (bound, form) in BOUNDS.items():
        holds = best[name] <= bound
        print(f"{name:<18} {form.format(best[name]):>16}  <= {form.format(bound):>16}  "
              f"{'holds' if holds else 'DOES NOT HOLD'}")  # fmt: skip
        if not holds:
            failed.append(name)
    each = best["allocated_bytes"] / count
    print(f"each: {each:.0f} B allocated, {best['seconds'] / count * 1e9:.0f} ns; "
          f"destroyed in {best['destroy_seconds']:.3f} s")  # fmt: skip
    if options.json:
        Path(options.json).write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
