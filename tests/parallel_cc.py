# SPDX-License-Identifier: BSD-3-Clause
"""Runs the C compiler for tests: a command's sources one per CPU, as the compiler
itself takes one after the other."""

import os
import shlex
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LINKER = ("-l", "-L", "-Wl,", "-shared")


def _run(words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr}"


def run_cc(words):
    """Run a command of the compiler; AssertionError, with its messages, when it fails."""
    words = [str(w) for w in words]
    sources = [w for w in words if w.endswith(".c")]
    if len(sources) < 2 or "-c" in words:
        _run(words)
        return
    output = words.index("-o") + 1
    flags = [w for i, w in enumerate(words) if i not in (output - 1, output)]
    flags = [w for w in flags if w not in sources and not w.startswith(LINKER)]
    with tempfile.TemporaryDirectory() as folder:
        objects = {s: str(Path(folder, f"{i}.o")) for i, s in enumerate(sources)}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda s: _run([*flags, "-c", s, "-o", objects[s]]), sources))
        _run([objects.get(w, w) for w in words])


def run_all(commands):
    """The same for commands that do not depend on each other."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run_cc, commands))
