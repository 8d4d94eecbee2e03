# SPDX-License-Identifier: BSD-3-Clause
"""docs/building.md says gcc or clang: what is written in C compiles with the latter without a warning."""

import shutil
import subprocess
from pathlib import Path

import pytest

CYTHON = Path(__file__).parents[2] / "cython"
FOLDERS = {"emu": ["abi", "emu"], "core": ["abi", "core"]}


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
@pytest.mark.parametrize("folder", FOLDERS)
def test_clang(folder, tmp_path):
    done = subprocess.run(
        [
            "clang",
            *("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-c"),
            *[f"-I{CYTHON / include}" for include in FOLDERS[folder]],
            *map(str, sorted((CYTHON / folder).glob("*.c"))),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
