# SPDX-License-Identifier: BSD-3-Clause
"""The kernels on uTofu and on the core, built for aarch64 and run under qemu."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CYTHON = Path(__file__).resolve().parents[2] / "cython"
CC = "aarch64-linux-gnu-gcc"
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
SYSROOT = Path("/usr/aarch64-linux-gnu")

pytestmark = pytest.mark.skipif(shutil.which(CC) is None, reason=f"no {CC}")


def build(output, sources, *flags):
    command = [CC, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{CYTHON / folder}" for folder in ("abi", "core")]
    command += [*map(str, sources), "-o", str(output), *flags, "-lpthread", "-ldl"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("aarch64")
    shared = ("-shared", "-fPIC", "-Wl,-z,defs")
    build(
        out / "libtofucom.so",
        sorted((CYTHON / "emu").glob("*.c")),
        *(*shared, "-fvisibility=hidden", "-Wl,-soname,libtofucom.so"),
        f"-Wl,--version-script={CYTHON / 'emu' / 'libtofucom.map'}",
    )
    sources = [*(CYTHON / "abi").glob("*.c"), *(CYTHON / "core").glob("*.c")]
    build(out / "libtofu_core.so", sources, *shared)
    common = ("main", "options", "boot", "stat", "tests", "tests_more", "facts")
    for layer, more in (("utofu", ("utofu", "circuit")), ("uct", ("uct",))):
        build(
            out / f"perf_{layer}",
            [CYTHON / "perf" / f"perf_{name}.c" for name in (*common, *more)],
            *(f"-L{out}", "-ltofu_core", f"-Wl,-rpath,{out}"),
        )
    return out


@pytest.mark.skipif(QEMU is None or not SYSROOT.exists(), reason="no user-mode qemu")
@pytest.mark.parametrize(
    ("layer", "test", "layout"),
    [
        ("utofu", "put_lat", "zcopy"),
        ("utofu", "fadd", "zcopy"),
        ("utofu", "barrier", "zcopy"),
        ("uct", "put_bw", "short"),
        ("uct", "am_bw", "bcopy"),
    ],
)
def test_kernels_run(processes, folder, layer, test, layout):
    env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
    env |= {"UTOFU_EMU_JOB": f"aarch64-{os.getpid()}-{test}"}
    env |= {"UCT_TOFU_BACKEND": "emulator"}
    command = [QEMU, "-L", str(SYSROOT), str(folder / f"perf_{layer}")]
    command += [f"--test={test}", f"--layout={layout}", "--iterations=100"]
    code, output = processes.run([*command, "--limit=90"], env=env, timeout=100)
    assert code == 0, output
    record = json.loads(output.splitlines()[-1])
    assert record["latency"]["p50"] > 0
    assert record["backend"]["library"] == "libtofucom.so"
