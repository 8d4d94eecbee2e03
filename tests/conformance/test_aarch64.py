# SPDX-License-Identifier: BSD-3-Clause
"""Emulator and conformance suite, cross-built for aarch64 and run by user-mode qemu.

Memory order is that of the host then; what this shows is that both are clean C for
the machine's processor, and that nothing but the atomics depends on x86.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from parallel_cc import run_cc

HERE = Path(__file__).parent
CYTHON = HERE.parents[1] / "cython"
CC = "aarch64-linux-gnu-gcc"
QEMU = next(filter(shutil.which, ("qemu-aarch64-static", "qemu-aarch64")), None)
SYSROOT = Path("/usr/aarch64-linux-gnu")

# One in so many is run; all of them take minutes: --aarch64-all
EVERY = 12

pytestmark = pytest.mark.skipif(shutil.which(CC) is None, reason=f"no {CC}")


def build(output, sources, *flags):
    command = [CC, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
    run_cc([*command, f"-I{CYTHON / 'abi'}", *sources, "-o", output, *flags])


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("aarch64")
    build(
        out / "libtofucom.so",
        sorted((CYTHON / "emu").glob("*.c")),
        *("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libtofucom.so"),
        f"-Wl,--version-script={CYTHON / 'emu' / 'libtofucom.map'}",
        *("-Wl,-z,defs", "-lpthread"),
    )
    build(
        out / "conformance",
        sorted((HERE / "c").glob("*.c")),
        *(f"-I{HERE / 'c'}", f"-L{out}", "-ltofucom", f"-Wl,-rpath,{out}"),
        *("-pthread", "-ldl", "-lrt", "-Wno-unused-parameter"),
    )
    return out / "conformance"


def test_builds_without_a_warning(program):
    assert program.exists()


def test_header_in_cxx(tmp_path):
    """The header alone, in C++, with all warnings."""
    cxx = "aarch64-linux-gnu-g++"
    if shutil.which(cxx) is None:
        pytest.skip(f"no {cxx}")
    source = tmp_path / "header.cpp"
    source.write_text('#include <utofu.h>\nint main() { return UTOFU_SUCCESS; }\n')
    done = subprocess.run(
        [cxx, "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{CYTHON / 'abi'}"]
        + ["-fsyntax-only", str(source)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(900)
@pytest.mark.skipif(QEMU is None or not SYSROOT.exists(), reason="no user-mode qemu")
def test_conformance_under_qemu(program, request):
    run = [QEMU, "-L", str(SYSROOT), str(program)]
    listed = subprocess.run([*run, "--list"], capture_output=True, text=True, check=True)
    names = [line.split("\t")[1] for line in listed.stdout.splitlines()]
    step = 1 if request.config.getoption("--aarch64-all", False) else EVERY
    failed = {}
    for name in names[::step]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
        env |= {"UTOFU_EMU_JOB": f"aarch64-{os.getpid()}-{name}", "CONF_BACKEND": "emulator"}
        done = subprocess.run(
            [*run, name], env=env, capture_output=True, text=True, timeout=120
        )
        if done.returncode not in (0, 77):
            failed[name] = done.stdout + done.stderr
    assert not failed, "\n".join(f"{k}: {v}" for k, v in failed.items())
