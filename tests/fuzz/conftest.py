# SPDX-License-Identifier: BSD-3-Clause
"""Builds the emulator and the fuzzing programs from source, with sanitizers."""

import os
import shlex
import sysconfig
from pathlib import Path

import pytest
from parallel_cc import run_cc

HERE = Path(__file__).parent
CYTHON = HERE.parents[1] / "cython"


def pytest_addoption(parser):
    parser.addoption(
        "--fuzz-seconds",
        type=float,
        default=None,
        help="how long the fuzzers of tests/fuzz run in all (default: a fixed, "
        "short list of seeds); also UCT_TOFU_FUZZ_SECONDS",
    )


@pytest.fixture(scope="session")
def fuzz_seconds(request):
    """How long to go on with new seeds; None: the short, fixed list."""
    # the option is unknown when pytest was started for all of tests/
    given = request.config.getoption("fuzz_seconds", default=None)
    if given is None:
        given = os.environ.get("UCT_TOFU_FUZZ_SECONDS")
    return None if given is None else float(given)


def compile_c(output, sources, *flags):
    cc = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(cc)[:1], "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g"]
    command += ["-fno-omit-frame-pointer", *flags]
    run_cc([*command, *sources, "-o", output])


class Build:
    """A folder with the library and programs, built with one sanitizer."""

    def __init__(self, folder, sanitizer):
        self.folder = folder
        self.flags = [f"-fsanitize={sanitizer}", f"-I{CYTHON / 'abi'}"]
        emu = CYTHON / "emu"
        compile_c(
            folder / "libtofucom.so",
            sorted(emu.glob("*.c")),
            *self.flags,
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            # fences are not modelled by TSan; where one matters, the words
            # around it are atomic
            *(["-Wno-tsan"] if sanitizer == "thread" else []),
            "-Wl,-soname,libtofucom.so",
            f"-Wl,--version-script={emu / 'libtofucom.map'}",
            "-lpthread",
        )

    def program(self, name, *sources):
        output = self.folder / name
        if not output.exists():
            compile_c(
                output,
                [HERE / "c" / s for s in sources],
                *self.flags,
                f"-I{CYTHON / 'emu'}",
                f"-L{self.folder}",
                f"-Wl,--no-as-needed,-rpath,{self.folder}",
                "-ltofucom",
                "-lpthread",
            )
        return output


@pytest.fixture(scope="session")
def asan(tmp_path_factory):
    return Build(tmp_path_factory.mktemp("fuzz-asan"), "address,undefined")


@pytest.fixture(scope="session")
def tsan(tmp_path_factory):
    return Build(tmp_path_factory.mktemp("fuzz-tsan"), "thread")
