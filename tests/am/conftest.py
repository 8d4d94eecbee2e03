# SPDX-License-Identifier: BSD-3-Clause
"""The core, loader and emulator of this tree, and the programs of this folder."""

from pathlib import Path

import pytest
from parallel_cc import run_all, run_cc

HERE = Path(__file__).resolve().parent
CYTHON = HERE.parents[1] / "cython"
HARNESS = HERE.parent / "core" / "c"  # core_test.[ch]
PROGRAMS = sorted(path.stem for path in (HERE / "c").glob("*.c"))


def build(cc, folder, sanitize):
    """Compile the libraries and all programs into a folder."""
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Werror"]
    flags += [f"-I{CYTHON / 'core'}", f"-I{CYTHON / 'abi'}", f"-I{HARNESS}"]
    checked = ["-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
               "-fno-sanitize-recover=undefined"] if sanitize else ["-O2"]  # fmt: skip
    run_cc([*cc, *flags, "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
            "-Wl,-soname,libtofucom.so",
            f"-Wl,--version-script={CYTHON / 'emu' / 'libtofucom.map'}",
            *sorted((CYTHON / "emu").glob("*.c")),
            "-Wl,-z,defs", "-o", folder / "libtofucom.so", "-lpthread"])  # fmt: skip
    run_cc([*cc, *flags, *checked, "-fPIC", "-shared",
            *sorted((CYTHON / "core").glob("*.c")),
            *sorted((CYTHON / "abi").glob("*.c")),
            "-o", folder / "libtofu_core.so", "-lpthread", "-ldl"])  # fmt: skip
    common = folder / "core_test.o"
    run_cc([*cc, *flags, *checked, "-c", HARNESS / "core_test.c", "-o", common])
    run_all([*cc, *flags, *checked, HERE / "c" / f"{name}.c", common,
             "-o", folder / name, f"-L{folder}",
             "-ltofu_core", "-Wl,-rpath,$ORIGIN", "-lpthread"]
            for name in PROGRAMS)  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def plain(cc, tmp_path_factory):
    """Folder of the programs as users build them."""
    return build(cc, tmp_path_factory.mktemp("am"), sanitize=False)


@pytest.fixture(scope="session")
def sanitized(cc, tmp_path_factory):
    """Folder of the programs with sanitizers."""
    return build(cc, tmp_path_factory.mktemp("am-san"), sanitize=True)
