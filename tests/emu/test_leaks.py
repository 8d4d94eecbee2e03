# SPDX-License-Identifier: BSD-3-Clause
"""Children of a program that is checked for leaks end well, whatever they had of their parent."""

import subprocess

import pytest
from test_emulator import environment


@pytest.mark.parametrize("swap_protect", ["0", "1"])
@pytest.mark.parametrize("uses", [0, 1])
@pytest.mark.parametrize("generations", [1, 3])
def test_children_leak_nothing(forks, generations, uses, swap_protect):
    done = subprocess.run(
        [forks, str(generations), str(uses)],
        env=environment("leaks", UTOFU_SWAP_PROTECT=swap_protect, ASAN_OPTIONS="detect_leaks=1"),
        capture_output=True,
        text=True,
        timeout=100,
    )
    if "LeakSanitizer has encountered a fatal error" in done.stderr:
        pytest.skip("LeakSanitizer can't look here")  # beneath a debugger, for example
    assert done.returncode == 0, done.stderr
    assert "ERROR: LeakSanitizer" not in done.stderr
