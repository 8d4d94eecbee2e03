# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures for the tests of the benchmarks' records and reports."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from uct_tofu.perf import result
from uct_tofu.perf.cli import perf

sys.path.insert(0, str(Path(__file__).resolve().parent))

import samples


@pytest.fixture
def run_perf():
    """run_perf(*words) -> click's result of ``uct-tofu perf ...``."""

    def run(*words):
        done = CliRunner().invoke(perf, [str(word) for word in words])
        assert done.exception is None or isinstance(done.exception, SystemExit), (
            done.exc_info
        )
        return done

    return run


@pytest.fixture
def laptop_file(tmp_path):
    """A file of records of one host."""
    path = tmp_path / "laptop.jsonl"
    result.write(path, samples.laptop())
    return path


@pytest.fixture
def machine_file(tmp_path):
    """A file of records that say that they are of the machine."""
    path = tmp_path / "machine.jsonl"
    result.write(path, samples.machine())
    return path
