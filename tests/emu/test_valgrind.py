# SPDX-License-Identifier: BSD-3-Clause
"""Programs run under valgrind's memcheck, and it has nothing to say of the emulator."""

import shutil
import subprocess

import pytest
from test_emulator import environment

# Without threads of their own and signals, which valgrind 3.19 can end by itself with.
CASES = ("put_in_place", "lines_of_large_puts", "stats_known_work")


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind here")
@pytest.mark.parametrize("name", CASES)
def test_memcheck_is_silent(emu_tests, name):
    done = subprocess.run(
        ["valgrind", "-q", "--error-exitcode=9", emu_tests, name],
        cwd=emu_tests.parent,
        env=environment(name),
        capture_output=True,
        text=True,
        timeout=110,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "uninitialised" not in done.stderr
