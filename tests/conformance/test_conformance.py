# SPDX-License-Identifier: BSD-3-Clause
"""Conformance of a uTofu library with the user's guide.

The tests are C functions in c/conf_*.c that touch nothing but utofu.h.  Each is
one test here, named after its section, e.g. test_3_7_1_1_put_length_zero; its
docstring is the statement it checks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCES = Path(__file__).resolve().parent / "c"
DEFINITION = re.compile(
    r'^CONF_TEST\(\s*"([0-9.]+)",\s*(\w+),\s*(\d+),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)',
    re.MULTILINE,
)
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Case(NamedTuple):
    section: str
    name: str
    procs: int
    statement: str


def read_cases() -> list[Case]:
    cases = []
    for source in sorted(SOURCES.glob("conf_*.c")):
        for section, name, procs, text in DEFINITION.findall(source.read_text()):
            statement = "".join(STRING.findall(text))
            cases.append(Case(section, name, int(procs), statement))
    return sorted(cases, key=lambda c: ([int(n) for n in c.section.split(".")], c.name))


CASES = read_cases()


def check(
    case: Case, conformance_program, run_program, utofu_library, timeout=100, **variables
):
    """Run a test in its own job; what it says is the verdict."""
    run = run_program(
        conformance_program, case.name, str(utofu_library.path), timeout=timeout, **variables
    )
    report = f"{case.section}: {case.statement}\n{run.stdout}{run.stderr}"
    # Not a word of this run counts unless the right library was loaded.
    assert f"library {utofu_library.path}\n" in run.stdout, report
    assert not run.leftover, f"a process was left behind\n{report}"
    if run.code == 77:
        pytest.skip(run.stderr.strip() or case.name)
    assert run.code == 0, report
    assert run.stdout.endswith(f"{case.name} ok\n"), report


def make_test(case: Case):
    def test(conformance_program, run_program, utofu_library):
        check(case, conformance_program, run_program, utofu_library)

    test.__doc__ = f"{case.section}: {case.statement}"
    test.__name__ = f"test_{case.section.replace('.', '_')}_{case.name}"
    test.__qualname__ = test.__name__
    return test


for _case in CASES:
    _test = make_test(_case)
    globals()[_test.__name__] = _test


def test_every_test_is_run(conformance_program, run_program):
    """The program holds exactly the tests that were found in its sources."""
    run = run_program(conformance_program, "--list")
    listed = set()
    for line in run.stdout.splitlines():
        section, name, procs, statement = line.split("\t")
        listed.add(Case(section, name, int(procs), statement))
    assert listed == set(CASES)
    assert len(listed) == len(CASES) == len({c.name for c in CASES})
    definitions = sum(
        len(re.findall(r"^CONF_TEST\(", p.read_text(), re.MULTILINE))
        for p in SOURCES.glob("conf_*.c")
    )
    assert definitions == len(CASES)


def test_other_library_is_refused(
    conformance_program, run_program, utofu_library, tmp_path
):
    """A run against another library than the one named fails."""
    other = tmp_path / "libtofucom.so"
    other.write_bytes(utofu_library.path.read_bytes())
    run = run_program(conformance_program, "all_functions_exist", str(other))
    assert run.code == 1
    assert "was loaded" in run.stderr


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("exchange_passes", 0, ""),
        ("killed_rank_passes", 0, ""),
        ("one_rank_fails", 1, "rank 1: this rank fails"),
        ("wrong_code_fails", 1, "returned UTOFU_ERR_INVALID_POINTER (-513), expected"),
        ("crash_fails", 1, "ended by signal 11"),
        ("hang_fails", 1, "timed out; last step: waiting forever"),
        ("early_exit_fails", 1, "early_exit_fails failed"),
        ("skip_skips", 77, "nothing to test"),
        ("no_such_test", 2, "no test has this name"),
    ],
)
def test_harness_verdict(selftest_program, run_program, name, code, message):
    """The harness passes, fails and skips what it must, and leaves no process."""
    run = run_program(selftest_program, name)
    assert run.code == code, run
    assert message in run.stdout + run.stderr, run
    assert not run.leftover, run
