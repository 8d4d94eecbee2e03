# SPDX-License-Identifier: BSD-3-Clause
"""Programs that were linked elsewhere, in other languages, or not at all."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "c" / "self_put.c"
ABI = json.loads((HERE.parent / "abi" / "utofu_abi.json").read_text())


@pytest.fixture(scope="module")
def elsewhere(cc, include_dir, tmp_path_factory):
    """(program, folder of the library that it was linked against).

    That library has all functions, and each of them only fails.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    text = "\n".join(f"int {name}(void) {{ return -77; }}" for name in ABI["functions"])
    (folder / "dummy.c").write_text(text + "\n")
    library = folder / "libtofucom.so"
    program = folder / "self_put"
    for command in (
        [*cc, "-shared", "-fPIC", "-Wl,-soname,libtofucom.so", "-o", str(library)]
        + [str(folder / "dummy.c")],
        [*cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{include_dir}"]
        + [str(SOURCE), "-o", str(program), f"-L{folder}", "-ltofucom"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    return program, folder


def _environment(**changes):
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD",)}
    env.update({k: str(v) for k, v in changes.items()})
    return env


def test_the_other_library_fails(elsewhere, processes, job):
    """What the next two tests start from: its own library is of no use."""
    program, folder = elsewhere
    code, output = processes.run(
        [str(program)], env=_environment(LD_LIBRARY_PATH=folder)
    )
    assert (code, output) == (10, "no TNI\n")


def test_by_library_path(elsewhere, processes, job, lib_dir):
    """LD_LIBRARY_PATH puts the emulator in the place of the other library."""
    program, folder = elsewhere
    code, output = processes.run(
        [str(program)],
        env=_environment(LD_LIBRARY_PATH=f"{lib_dir}{os.pathsep}{folder}"),
    )
    assert (code, output) == (0, "self_put ok\n")


def test_by_preload(elsewhere, processes, job, lib_dir):
    """So does LD_PRELOAD, over a library that is found."""
    program, folder = elsewhere
    code, output = processes.run(
        [str(program)],
        env=_environment(
            LD_LIBRARY_PATH=folder, LD_PRELOAD=Path(lib_dir) / "libtofucom.so"
        ),
    )
    assert (code, output) == (0, "self_put ok\n")


def test_by_dlopen(compile_c, processes, job, lib_dir):
    """A program that is linked against nothing loads it, by path or by name."""
    program = compile_c([SOURCE], "-DBY_DLOPEN", name="dlopened", link=False)
    by_path = processes.run([str(program), str(Path(lib_dir) / "libtofucom.so")])
    by_name = processes.run(
        [str(program)], env=_environment(LD_LIBRARY_PATH=lib_dir)
    )
    assert by_path == by_name == (0, "self_put ok\n")


def test_cxx(include_dir, lib_dir, processes, job, tmp_path):
    """A C++ program is compiled without a warning, linked, and runs."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ is installed")
    program = tmp_path / "cxx"
    command = ["g++", "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-pedantic"]
    command += ["-Werror", f"-I{include_dir}", str(SOURCE), "-o", str(program)]
    command += [f"-L{lib_dir}", "-ltofucom", f"-Wl,-rpath,{lib_dir}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert processes.run([str(program)]) == (0, "self_put ok\n")
