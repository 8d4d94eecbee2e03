# SPDX-License-Identifier: BSD-3-Clause
"""Builds the C programs that test what is the emulator's own."""

import os
import shlex
import sysconfig
from pathlib import Path

import pytest
from parallel_cc import run_cc

import uct_tofu

HERE = Path(__file__).parent
HARNESS = HERE.parent / "conformance" / "c"
EMULATOR = Path(__file__).parents[2] / "cython"


def compiler():
    cc = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shlex.split(cc)[:1]


def build(output, sources, include, libdir=None, flags=()):
    command = [
        *compiler(),
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O2",
        "-g",
        *flags,
        *[f"-I{d}" for d in include],
        *map(str, sources),
        "-o",
        str(output),
    ]
    if libdir is not None:
        command += [f"-L{libdir}", "-ltofucom", f"-Wl,-rpath,{libdir}"]
    command.append("-lpthread")
    run_cc(command)
    return output


def harness_sources():
    return [HARNESS / f"{name}.c" for name in ("harness", "codes", "memory", "queues", "circuit")]


@pytest.fixture(scope="session")
def emu_tests(tmp_path_factory):
    """The test program, against the installed header and library."""
    return build(
        tmp_path_factory.mktemp("emu") / "emu_tests",
        [*sorted((HERE / "c").glob("*.c")), *harness_sources()],
        [uct_tofu.include_dir(), EMULATOR / "abi", EMULATOR / "emu", HARNESS],
        uct_tofu.lib_dir(),
    )


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    """Emulator and tests built from source with AddressSanitizer and UBSan."""
    out = tmp_path_factory.mktemp("emu-asan")
    flags = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1"]
    build(
        out / "libtofucom.so",
        sorted((EMULATOR / "emu").glob("*.c")),
        [EMULATOR / "abi"],
        flags=[
            *flags,
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-Wl,-soname,libtofucom.so",
            f"-Wl,--version-script={EMULATOR / 'emu' / 'libtofucom.map'}",
        ],
    )
    build(
        out / "emu_tests",
        [*sorted((HERE / "c").glob("*.c")), *harness_sources()],
        [EMULATOR / "abi", EMULATOR / "emu", HARNESS],
        out,
        flags,
    )
    build(
        out / "kill_soak",
        [HERE / "soak" / "kill_soak.c"],
        [EMULATOR / "abi"],
        out,
        flags,
    )
    return out


@pytest.fixture(scope="session")
def kill_soak(tmp_path_factory):
    return build(
        tmp_path_factory.mktemp("soak") / "kill_soak",
        [HERE / "soak" / "kill_soak.c"],
        [uct_tofu.include_dir()],
        uct_tofu.lib_dir(),
    )


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """A program that is checked for leaks, against the installed library."""
    return build(
        tmp_path_factory.mktemp("leaks") / "forks",
        [HERE / "leaks" / "forks.c"],
        [uct_tofu.include_dir()],
        uct_tofu.lib_dir(),
        ["-fsanitize=address"],
    )


@pytest.fixture(scope="session")
def slow_join(tmp_path_factory):
    return build(
        tmp_path_factory.mktemp("join") / "slow_join",
        [HERE / "join" / "slow_join.c"],
        [uct_tofu.include_dir()],
        uct_tofu.lib_dir(),
    )
