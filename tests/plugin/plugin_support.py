# SPDX-License-Identifier: BSD-3-Clause
"""What the plugin's tests share besides fixtures."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "cython"


class Process:
    """A child with its output in files: no pipe can fill up and block it."""

    def __init__(self, args, env, directory, name):
        self.args = [str(arg) for arg in args]
        self.out_path = directory / f"{name}.out"
        self.err_path = directory / f"{name}.err"
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen = subprocess.Popen(
                self.args, env=env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, cwd=directory, start_new_session=True)

    @property
    def out(self):
        return self.out_path.read_text(errors="replace")

    @property
    def err(self):
        return self.err_path.read_text(errors="replace")

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def wait(self, timeout):
        """Wait for the end; a timeout is a failure that shows the output."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"timeout after {timeout} s: {self}")

    def check(self, timeout):
        if self.wait(timeout) != 0:
            pytest.fail(f"exit code {self.popen.returncode}: {self}")
        return self

    def __str__(self):
        return (f"{' '.join(self.args)}\n--- stdout\n{self.out}"
                f"\n--- stderr\n{self.err}")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def wait_listening(port, process, timeout=20):
    """Until the process accepts connections on that TCP port."""
    end = time.monotonic() + timeout
    entry = re.compile(rf":{port:04X} [0-9A-F]+:0000 0A ")
    while time.monotonic() < end:
        if process.popen.poll() is not None:
            pytest.fail(f"ended too early: {process}")
        if any(entry.search(pathlib.Path(f"/proc/net/{name}").read_text())
               for name in ("tcp", "tcp6")):
            return
        time.sleep(0.01)
    pytest.fail(f"not listening after {timeout} s: {process}")


def parse_csv(text):
    """Lines of numbers that ucx_perftest -v prints, without the test's name."""
    rows = []
    for line in text.splitlines():
        fields = line.strip().split(",")
        if re.fullmatch(r"t\d+", fields[0]):
            fields = fields[1:]
        try:
            rows.append([float(field) for field in fields])
        except ValueError:
            continue
    assert rows and all(len(row) >= 4 for row in rows), text
    return rows
