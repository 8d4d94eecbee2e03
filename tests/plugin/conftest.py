# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the plugin's tests: stock UCX, the plugin beside it, processes.

Every process runs in a session of its own that is killed as a whole, and in an
emulated network of its own (UTOFU_EMU_JOB), so that tests do not meet.
"""
import importlib.util
import itertools
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from plugin_support import Process, free_port, parse_csv, wait_listening

_jobs = itertools.count()


@pytest.fixture(scope="session")
def ucx():
    """Folder of the stock UCX wheel."""
    spec = importlib.util.find_spec("libucx")
    assert spec is not None, "the libucx wheel is not installed"
    path = pathlib.Path(spec.submodule_search_locations[0])
    assert (path / "bin" / "ucx_info").exists()
    return path


@pytest.fixture(scope="session")
def plugin_dir():
    """Folder of the installed plugin, for UCX_PLUGIN_PATH."""
    import uct_tofu

    path = pathlib.Path(uct_tofu.plugin_dir())
    assert (path / "libuct_utofu.so.0").exists()
    return path


@pytest.fixture
def env(ucx, plugin_dir):
    """Environment of a UCX program with the plugin, on a fresh network."""
    result = {key: value for key, value in os.environ.items()
              if not key.startswith(("UCX_", "UTOFU_", "UCT_TOFU_", "PMI", "OMPI_"))}
    result["LD_LIBRARY_PATH"] = str(ucx / "lib")
    result["UCX_PLUGIN_PATH"] = str(plugin_dir)
    result["UCT_TOFU_BACKEND"] = "emulator"
    result["UTOFU_EMU_JOB"] = f"plugin-test-{os.getpid()}-{next(_jobs)}"
    return result


@pytest.fixture
def start(tmp_path):
    """start(args, env) -> Process; all are killed at the end of the test."""
    processes = []

    def function(args, env):
        process = Process(args, env, tmp_path, f"p{len(processes)}")
        processes.append(process)
        return process

    yield function
    for process in processes:
        process.kill()


@pytest.fixture
def run(start):
    """run(args, env, timeout) -> finished Process, exit code 0."""
    return lambda args, env, timeout=60: start(args, env).check(timeout)


@pytest.fixture
def perftest(ucx, start, tmp_path):
    """Both sides of ucx_perftest, one connection for several tests of one set-up.

    perftest(options, tests, env) -> numbers of each test; `tests` are options
    that differ between the tests.
    """
    serial = itertools.count()

    def function(options, tests, env, timeout=90):
        batch = tmp_path / f"batch{next(serial)}"
        batch.write_text("".join(f"t{i} {' '.join(map(str, test))}\n"
                                 for i, test in enumerate(tests)))
        port = free_port()
        command = [ucx / "bin" / "ucx_perftest", *options, "-b", batch, "-f", "-v",
                   "-p", port]
        server = start(command, env)
        wait_listening(port, server)
        client = start([command[0], "127.0.0.1", *command[1:]], env)
        if client.wait(timeout) != 0:
            server.kill()
            pytest.fail(f"client: {client}\nserver: {server}")
        server.check(timeout)
        for side in (client, server):
            for word in ("ERROR", "WARN", "Assertion"):
                assert word not in side.err + side.out, str(side)
        rows = parse_csv(client.out)
        assert len(rows) == len(tests), str(client)
        return rows

    return function


@pytest.fixture(scope="session")
def build(ucx, tmp_path_factory):
    """build(source, libs) -> executable, compiled against stock UCX."""
    directory = tmp_path_factory.mktemp("build")
    cc = os.environ.get("CC") or shutil.which("cc") or "gcc"

    def function(source, libs=("uct", "ucs"), flags=()):
        source = pathlib.Path(source)
        target = directory / source.stem
        command = [cc, "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall",
                   "-Wextra", "-isystem", str(ucx / "include"), *flags,
                   str(source), "-o", str(target), f"-L{ucx / 'lib'}",
                   f"-Wl,-rpath-link,{ucx / 'lib'}",
                   *[f"-l{lib}" for lib in libs], "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        return target

    return function


@pytest.fixture
def python():
    return sys.executable
