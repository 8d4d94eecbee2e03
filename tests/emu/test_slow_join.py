# SPDX-License-Identifier: BSD-3-Clause
"""Processes that begin together on a busy host."""

import subprocess

from test_emulator import environment


def test_nobody_waits_for_what_is_slow_in_another(slow_join):
    done = subprocess.run(
        [slow_join], env=environment("slow"), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
