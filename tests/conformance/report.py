# SPDX-License-Identifier: BSD-3-Clause
"""The conformance report: what the uTofu user's guide says, and what was found.

statements.toml lists every statement of the guide that a program can observe, with
the tests in c/ that check it.  This program runs the suite, or reads the JUnit file
of a run, and writes the statements with their results as a page:

    python tests/conformance/report.py -o docs/conformance.md
    python tests/conformance/report.py --utofu-lib DIR --utofu-machine -o FILE
    python tests/conformance/report.py --junit results.xml -o FILE
    python tests/conformance/report.py --missing

The page depends on the results only: no dates, times, paths or host names.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it there

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from test_conformance import Case, read_cases

CATALOGUE = HERE / "statements.toml"
PAGE = HERE.parents[1] / "docs" / "conformance.md"

# Why a statement has no test, or a test does not say everything.
REASONS = {
    "not_observable": "no program can observe it",
    "strict_only": "shows only in the strict mode, or in part",
    "timed_only": "shows only in the time things take",
    "differs": "the emulator differs",
    "no_test": "no test yet",
}

CHAPTERS = {
    1: "Overview",
    2: "Communication model",
    3: "Interface",
    4: "Use: jobs and environment",
    5: "Example programs",
    6: "Properties of the system",
    7: "Messages",
    9: "What programs rely on (sections 9.x are ours, not the guide's)",
}


@dataclass(frozen=True)
class Statement:
    """One statement of the guide and how it is checked."""

    id: str
    section: str
    text: str
    tests: tuple[str, ...] = ()
    also: str = ""  # a Python test file that checks it
    not_observable: str = ""
    strict_only: str = ""
    timed_only: str = ""
    differs: str = ""
    no_test: str = ""

    @property
    def reasons(self) -> dict[str, str]:
        return {key: getattr(self, key) for key in REASONS if getattr(self, key)}


def section_key(section: str) -> list[int]:
    """For sorting: sections are dotted numbers."""
    return [int(part) for part in section.split(".")]


def load_catalogue(path: Path = CATALOGUE) -> list[Statement]:
    """The statements in order of their sections; ValueError when one is malformed."""
    with path.open("rb") as file:
        entries = tomllib.load(file)["statement"]
    statements = []
    for entry in entries:
        try:
            made = Statement(**{**entry, "tests": tuple(entry.get("tests", ()))})
        except TypeError as error:
            raise ValueError(f"{entry.get('id')}: {error}") from error
        if not (made.tests or made.also or made.reasons):
            raise ValueError(f"{made.id}: neither a test nor a reason")
        if len(set(made.tests)) != len(made.tests):
            raise ValueError(f"{made.id}: a test is named twice")
        statements.append(made)
    if len({s.id for s in statements}) != len(statements):
        raise ValueError("two statements have the same id")
    return sorted(statements, key=lambda s: section_key(s.section))


def missing_tests(statements: list[Statement], cases: list[Case]) -> list[Case]:
    """Tests that no statement names."""
    named = {name for statement in statements for name in statement.tests}
    return [case for case in cases if case.name not in named]


def unknown_tests(statements: list[Statement], cases: list[Case]) -> set[str]:
    """Names in the catalogue that are no test."""
    named = {name for statement in statements for name in statement.tests}
    return named - {case.name for case in cases}


def read_junit(path: Path, cases: list[Case]) -> dict[str, str]:
    """ok, FAILED or skipped for the tests that ran; other tests are left out."""
    names = {f"test_{c.section.replace('.', '_')}_{c.name}": c.name for c in cases}
    results = {}
    for element in ElementTree.parse(path).getroot().iter("testcase"):
        name = names.get(element.get("name", ""))
        if name is None:
            continue
        kinds = {child.tag for child in element}
        if kinds & {"failure", "error"}:
            results[name] = "FAILED"
        else:
            results[name] = "skipped" if "skipped" in kinds else "ok"
    return results


def run_suite(options: list[str], junit: Path) -> None:
    """Run all conformance tests; what fails is in the file."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
    ]
    command += [f"--junitxml={junit}", *options, str(HERE / "test_conformance.py")]
    done = subprocess.run(command, check=False, cwd=HERE.parents[1], stdout=sys.stderr)
    if done.returncode not in (0, 1):  # 1: some tests failed
        raise SystemExit(f"pytest ended with {done.returncode}")


def library_identity(lib_dir: str | None, machine: bool) -> str:
    """What was tested: kind and versions."""
    if lib_dir is None:
        import uct_tofu

        lib_dir = uct_tofu.lib_dir()
        kind = f"the emulator of uct-tofu {uct_tofu.__version__}"
    else:
        kind = "a machine's library" if machine else "the emulator"
    library = ctypes.CDLL(str(Path(lib_dir) / "libtofucom.so"))
    versions = []
    for function in ("utofu_query_utofu_version", "utofu_query_tofu_version"):
        major, minor = ctypes.c_int(), ctypes.c_int()
        getattr(library, function)(ctypes.byref(major), ctypes.byref(minor))
        versions.append(f"{major.value}.{minor.value}")
    return f"{kind}; uTofu API {versions[0]}, Tofu interconnect {versions[1]}"


def verdict(statement: Statement, results: dict[str, str]) -> str:
    """The last column: worst result first."""
    found = [results.get(name, "not run") for name in statement.tests]
    parts = []
    if statement.tests:
        worst = [k for k in ("FAILED", "not run", "skipped") if k in found]
        parts.append(worst[0] if worst else "ok")
        if worst and worst[0] == "FAILED":
            failed = [n for n in statement.tests if results.get(n) == "FAILED"]
            parts[0] = "FAILED: " + ", ".join(f"`{n}`" for n in failed)
        if worst and worst[0] == "skipped" and "ok" in found:
            parts[0] = "ok (in part)"
    parts += [REASONS[key] for key in statement.reasons]
    return "; ".join(parts) or "elsewhere"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _checks(statement: Statement) -> str:
    names = [f"`{name}`" for name in statement.tests]
    if statement.also:
        names.append(f"`{statement.also}`")
    return " ".join(names)


def totals(statements: list[Statement], results: dict[str, str]) -> list[str]:
    """Lines that count statements and tests."""
    tests = sorted({name for s in statements for name in s.tests})
    counts = {
        kind: sum(results.get(name, "not run") == kind for name in tests)
        for kind in ("ok", "FAILED", "skipped", "not run")
    }
    unchecked = [s for s in statements if not (s.tests or s.also)]
    checked = len(statements) - len(unchecked)
    lines = [f"- {len(statements)} statements; {checked} are checked by tests"]
    for key, reason in REASONS.items():
        number = sum(key in s.reasons for s in statements)
        if number:
            lines.append(f"- {number}: {reason}")
        if key == "not_observable":
            number = sum(not s.not_observable for s in unchecked)
            lines.append(
                f"- {number}: not checked by a test here, for one of these reasons, "
                "which some that are checked have too:"
            )
    parts = [f"{number} {kind}" for kind, number in counts.items() if number]
    lines.append(f"- {len(tests)} tests: {', '.join(parts)}")
    return lines


def render(statements: list[Statement], results: dict[str, str], identity: str) -> str:
    """The page."""
    lines = [
        "# Conformance with the uTofu user's guide",
        "",
        "<!-- Made by tests/conformance/report.py: do not edit. -->",
        "",
        "Every statement of the guide (chapters 2, 3, 4.3, 6 and 7, some of 1 and 5) in",
        "our words, by section; the tests of `tests/conformance/c` that check it; and",
        "what they found. The tests touch nothing but `utofu.h` and run against any",
        "`libtofucom.so`, the machine's too:",
        "",
        "```",
        "python tests/conformance/report.py [--utofu-lib DIR] [--utofu-machine] -o FILE",
        "```",
        "",
        f"Under test: {identity}.",
        "",
        "## Totals",
        "",
        *totals(statements, results),
    ]
    chapter = None
    for statement in statements:
        if section_key(statement.section)[0] != chapter:
            chapter = section_key(statement.section)[0]
            lines += ["", f"## {chapter}. {CHAPTERS[chapter]}", ""]
            lines += [
                "| section | statement | tests | result |",
                "| --- | --- | --- | --- |",
            ]
        cells = [statement.section, _cell(statement.text), _checks(statement)]
        lines.append(f"| {' | '.join(cells)} | {verdict(statement, results)} |")
    for key, reason in REASONS.items():
        chosen = [s for s in statements if key in s.reasons]
        if chosen:
            lines += ["", f"## {reason[0].upper()}{reason[1:]}", ""]
            lines += ["| section | statement | why |", "| --- | --- | --- |"]
        for statement in chosen:
            cells = [
                statement.section,
                _cell(statement.text),
                _cell(statement.reasons[key]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def shape(page: str) -> str:
    """The page without what depends on a run: results, totals and library."""
    lines = []
    heading = ""
    for line in page.splitlines():
        heading = line if line.startswith("## ") else heading
        if line.startswith("Under test: ") or (
            heading == "## Totals" and line[:1] == "-"
        ):
            continue
        cells = line.split(" | ")
        lines.append(
            " | ".join(cells[:3]) if line.startswith("| ") and len(cells) == 4 else line
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Write the page; 1 when a test failed or something is not in the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--utofu-lib", metavar="DIR", help="directory of libtofucom.so")
    parser.add_argument("--utofu-include", metavar="DIR", help="directory of utofu.h")
    parser.add_argument(
        "--utofu-machine", action="store_true", help="it is a machine's"
    )
    parser.add_argument(
        "--junit", metavar="FILE", type=Path, help="a run that was made"
    )
    parser.add_argument(
        "--missing", action="store_true", help="tests not in the catalogue"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path)
    args = parser.parse_args(arguments)

    statements, cases = load_catalogue(), read_cases()
    missing = missing_tests(statements, cases)
    unknown = unknown_tests(statements, cases)
    for case in missing:
        print(f"not in the catalogue: {case.section} {case.name}: {case.statement}")
    for name in sorted(unknown):
        print(f"no such test: {name}")
    if args.missing:
        return int(bool(missing or unknown))

    options = [f"--utofu-lib={args.utofu_lib}"] if args.utofu_lib else []
    options += [f"--utofu-include={args.utofu_include}"] if args.utofu_include else []
    options += ["--utofu-machine"] if args.utofu_machine else []
    if args.junit is not None:
        results = read_junit(args.junit, cases)
    else:
        with tempfile.TemporaryDirectory() as directory:
            junit = Path(directory) / "results.xml"
            run_suite(options, junit)
            results = read_junit(junit, cases)
    page = render(
        statements, results, library_identity(args.utofu_lib, args.utofu_machine)
    )
    if args.output is None:
        sys.stdout.write(page)
    else:
        args.output.write_text(page)
    return int(bool(missing or unknown or "FAILED" in results.values()))


if __name__ == "__main__":
    sys.exit(main())
