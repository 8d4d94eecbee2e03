# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures for tests of the UCP-level objects.

Each test's code runs in processes of its own: UCX reads its variables once, when it
is loaded.  ``script`` runs one process, ``pair`` two that meet through files.
"""

import os
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import gc, os, sys, time
import numpy as np
import ucp_glue

rank, folder = int(sys.argv[1]), sys.argv[2]
PATIENCE = float(os.environ.get("PATIENCE", 60))  # a failure, not a measure
_turn = 0


def swap(data, worker=None):
    '''Give bytes to the other process and get what it gives.'''
    global _turn
    mine, its = (f"{folder}/{_turn}.{r}" for r in (rank, 1 - rank))
    with open(mine + ".tmp", "wb") as file:
        file.write(data)
    os.rename(mine + ".tmp", mine)
    end = time.monotonic() + PATIENCE
    while not os.path.exists(its):
        assert time.monotonic() < end, f"nothing from the other process: {its}"
        if worker is not None:
            worker.progress()
        time.sleep(0.001)
    _turn += 1
    with open(its, "rb") as file:
        return file.read()


def progress_until(worker, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        worker.wait(0.05)
        assert time.monotonic() < end


def pattern(size, seed=0):
    return (np.arange(size, dtype=np.uint32) * 31 + seed * 7 + 1).astype(np.uint8)


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert type(error) is kind or kind in (ValueError, RuntimeError), type(error)
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


def loop(errors=True, **options):
    '''A context, its worker, and an endpoint from the worker to itself.'''
    ctx = ucp_glue.Context(**options)
    worker = ctx.worker()
    return ctx, worker, worker.connect(worker.address, error_handling=errors)


def meet(errors=True, **options):
    '''A context, its worker, and an endpoint to the other process.'''
    ctx = ucp_glue.Context(**options)
    worker = ctx.worker()
    return ctx, worker, worker.connect(swap(worker.address), error_handling=errors)

"""


@pytest.fixture
def ucx_env(job):
    """ucx_env(tls, **more) -> environment without other UCX variables."""

    def make(tls, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("UCX_")}
        if tls is not None:
            env["UCX_TLS"] = tls
        env["PYTHONWARNINGS"] = "error::ResourceWarning"
        env["PYTHONFAULTHANDLER"] = "1"
        return {**env, **more}

    return make


def _write(tmp_path, code):
    path = tmp_path / "program.py"
    path.write_text(PRELUDE + textwrap.dedent(code) + "\nprint('ok')\n")
    return [sys.executable, str(path)]


@pytest.fixture
def script(processes, tmp_path, ucx_env):
    """script(code, tls="utofu", **environment) -> output; it must end well."""

    def run(code, tls="utofu", timeout=100, expect=0, **more):
        command = [*_write(tmp_path, code), "0", str(tmp_path)]
        status, output = processes.run(command, timeout, env=ucx_env(tls, **more))
        assert status == expect, output
        assert expect != 0 or output.endswith("ok\n"), output
        return output

    return run


@pytest.fixture
def pair(processes, tmp_path, ucx_env):
    """pair(code, tls="utofu", **environment) -> outputs of rank 0 and 1."""

    def run(code, tls="utofu", timeout=100, expect=(0, 0), **more):
        command = _write(tmp_path, code)
        started = []
        for rank in range(2):
            with open(tmp_path / f"out.{rank}", "w") as out:
                started.append(
                    processes.start(
                        [*command, str(rank), str(tmp_path)],
                        env=ucx_env(tls, **more),
                        stdout=out,
                    )
                )
        for process in started:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                processes.stop_all()
        outputs = [(tmp_path / f"out.{rank}").read_text() for rank in range(2)]
        statuses = tuple(process.returncode for process in started)
        assert statuses == expect, "\n".join([str(statuses), *outputs])
        return outputs

    return run
