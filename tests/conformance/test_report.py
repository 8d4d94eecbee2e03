# SPDX-License-Identifier: BSD-3-Clause
"""The catalogue of statements, the report made of it, and docs/conformance.md."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report
from test_conformance import read_cases

CASES = read_cases()
STATEMENTS = report.load_catalogue()


def test_every_test_is_in_the_catalogue():
    missing = report.missing_tests(STATEMENTS, CASES)
    assert not missing, f"add them to statements.toml: {[c.name for c in missing]}"


def test_the_catalogue_names_tests_that_exist():
    assert not report.unknown_tests(STATEMENTS, CASES)
    for statement in STATEMENTS:
        if statement.also:
            assert (report.HERE.parents[1] / statement.also).is_file(), statement.id


def test_a_section_with_tests_is_in_the_catalogue():
    """A test is not hidden under a statement of another chapter only."""
    chapters = {s.section.split(".")[0] for s in STATEMENTS}
    assert {c.section.split(".")[0] for c in CASES} <= chapters


def test_statements_are_well_formed():
    for statement in STATEMENTS:
        assert re.fullmatch(rf"{re.escape(statement.section)}-\d+", statement.id)
        assert statement.text == statement.text.strip() != ""
        # What nobody can observe has no test, and what is tested is not "untested".
        assert not (statement.tests and (statement.not_observable or statement.no_test))


def test_the_page_in_the_tree_is_current():
    """docs/conformance.md has the statements and tests that exist, whatever it found."""
    page = report.PAGE.read_text()
    made = report.render(STATEMENTS, {}, "nothing")
    assert report.shape(page) == report.shape(made), (
        "run: python tests/conformance/report.py -o docs/conformance.md"
    )


def test_the_page_in_the_tree_is_of_a_whole_run():
    page = report.PAGE.read_text()
    assert "not run" not in page
    assert not re.search(r"(?<![\w./])/(home|root|tmp|work|usr|var|opt)/", page)


def test_the_shape_shows_what_matters():
    made = report.render(STATEMENTS, {}, "nothing")
    results = {c.name: "ok" for c in CASES}
    assert report.shape(made) == report.shape(report.render(STATEMENTS, results, "x"))
    changed = [replace(STATEMENTS[0], text="something else"), *STATEMENTS[1:]]
    assert report.shape(made) != report.shape(report.render(changed, results, "x"))
    some = next(i for i, s in enumerate(STATEMENTS) if s.tests)
    changed = [*STATEMENTS]
    changed[some] = replace(changed[some], tests=("other",))
    assert report.shape(made) != report.shape(report.render(changed, results, "x"))


def statement(*tests: str, **reasons: str) -> report.Statement:
    return report.Statement("2.1-1", "2.1", "it holds", tests, **reasons)


def test_totals_add_up():
    """Checked, not to be observed, and the rest: all statements."""
    lines = report.totals(STATEMENTS, {})[:3]
    whole, *parts = map(int, re.findall(r"\d+", "".join(lines)))
    assert whole == sum(parts) == len(STATEMENTS)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"a": "ok", "b": "ok"}, "ok"),
        ({"a": "ok", "b": "FAILED"}, "FAILED: `b`"),
        ({"a": "FAILED", "b": "skipped"}, "FAILED: `a`"),
        ({"a": "ok"}, "not run"),
        ({"a": "skipped", "b": "ok"}, "ok (in part)"),
        ({"a": "skipped", "b": "skipped"}, "skipped"),
    ],
)
def test_verdict(found, expected):
    assert report.verdict(statement("a", "b"), found) == expected


def test_verdict_gives_reasons():
    assert report.verdict(statement(not_observable="why"), {}) == (
        "no program can observe it"
    )
    assert report.verdict(statement("a", differs="how"), {"a": "ok"}) == (
        "ok; the emulator differs"
    )
    assert "how" in report.render([statement("a", differs="how")], {"a": "ok"}, "x")


def test_results_of_a_run_are_read(tmp_path):
    junit = tmp_path / "results.xml"
    cases = [
        report.Case("2.1", name, 1, "it holds")
        for name in ("good", "bad", "left", "late")
    ]
    junit.write_text(
        "<testsuites><testsuite>"
        '<testcase name="test_2_1_good"/>'
        '<testcase name="test_2_1_bad"><failure>text</failure></testcase>'
        '<testcase name="test_2_1_left"><skipped/></testcase>'
        '<testcase name="test_harness_verdict[x]"><error/></testcase>'
        "</testsuite></testsuites>"
    )
    results = report.read_junit(junit, cases)
    assert results == {"good": "ok", "bad": "FAILED", "left": "skipped"}
    page = report.render([statement("good", "bad", "left", "late")], results, "x")
    assert "- 4 tests: 1 ok, 1 FAILED, 1 skipped, 1 not run" in page


@pytest.mark.parametrize(
    "text",
    [
        '[[statement]]\nsection = "2"\nid = "2-1"\ntext = "x"\n',  # neither test nor reason
        '[[statement]]\nsection = "2"\nid = "2-1"\ntext = "x"\ntests = ["a", "a"]\n',
        '[[statement]]\nsection = "2"\nid = "2-1"\ntext = "x"\ntest = ["a"]\n',
        '[[statement]]\nsection = "2"\nid = "2-1"\ntext = "x"\ntests = ["a"]\n' * 2,
    ],
)
def test_a_malformed_catalogue_is_refused(tmp_path, text):
    path = tmp_path / "statements.toml"
    path.write_text(text)
    with pytest.raises(ValueError):
        report.load_catalogue(path)


def test_missing_tests_are_reported(monkeypatch, capsys):
    extra = report.Case("2.1", "not_there_yet", 1, "it holds")
    monkeypatch.setattr(report, "read_cases", lambda: [*CASES, extra])
    assert report.main(["--missing"]) == 1
    assert "not_there_yet" in capsys.readouterr().out
