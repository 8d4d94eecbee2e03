#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guards our own speed: a fixed set as ratios to peers, and its history.

run measures the installed package and adds an entry to perf/results/regress.jsonl,
compare says what got slower, history prints the medians of the last entries.  An
entry has ratios, instruction counts, the commit, the date, and the kind of machine.

Exit codes: 0 good, 1 something got slower (compare) or could not be measured (run),
2 there is nothing to run or to compare, and why.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import regress_history as history
import regress_set

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
HISTORY = HERE / "results" / "regress.jsonl"


def stop(reason):
    click.echo(f"regress: {reason}", err=True)
    sys.exit(2)


def git(*words):
    """What git says of this tree, or None."""
    command = ["git", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def tree():
    """(commit, whether the tree has changes besides the history)."""
    commit = git("rev-parse", "HEAD")
    if commit is None:
        stop("this is no git tree: an entry needs a commit")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".",
                  ":(exclude)perf/results")  # fmt: skip
    return commit, bool(changed)


def stale():
    """A native source that was changed after the package was installed, or None."""
    import uct_tofu

    built = (Path(uct_tofu.lib_dir()) / "libtofucom.so").stat().st_mtime
    for path in sorted((ROOT / "cython").rglob("*")):
        if path.suffix in (".c", ".h", ".map") and path.stat().st_mtime > built:
            return path.relative_to(ROOT)
    return None


def cpu_model():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "cpu model")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def compiler():
    """Name and version of the compiler that instructions are counted with."""
    command = [*shlex.split(os.environ.get("CC", "cc")), "--version"]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.splitlines()[0] if done.stdout else ""


def instruction_counts():
    """Operation -> instructions, by perf/instructions.py; or why there are none."""
    if platform.machine() != "x86_64":
        return {}, "instructions are counted on x86-64 only"
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "counts.json"
        command = [sys.executable, str(HERE / "instructions.py"), "--json", str(output)]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=900
            )
        except subprocess.SubprocessError as error:
            return {}, str(error)
        if not output.exists():
            return {}, done.stderr.strip() or f"ended with {done.returncode}"
        data = json.loads(output.read_text())
    return {f"{name} instructions": v["instructions"] for name, v in data.items()}, ""


def make_entry(ratios, counts, rounds):
    import uct_tofu
    from uct_tofu import _paths

    commit, dirty = tree()
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "schema": history.SCHEMA,
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "dirty": dirty,
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "method": regress_set.METHOD,
        "load": round(os.getloadavg()[0], 1),
        "versions": {"uct_tofu": uct_tofu.__version__, "ucx": _paths.ucx_version()},
        "compiler": compiler(),
        "rounds": rounds,
        "ratios": {k: [float(f"{v:.5g}") for v in vs] for k, vs in ratios.items()},
        "counts": counts,
    }


def title(entry):
    mark = ", with changes" if entry.get("dirty") else ""
    return f"{entry['commit'][:12]}{mark} ({entry['time'][:10]})"


file_option = click.option(
    "--history",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=HISTORY,
    help="The file of entries; default perf/results/regress.jsonl.",
)


@click.group(help=__doc__.split("\n\n")[0])
def main():
    pass


@main.command()
@file_option
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(1e-4),
    default=0.15,
    show_default=True,
    help="Of one side of one line.",
)
@click.option("--only", default="", metavar="TEXT", help="Lines with TEXT in them.")
@click.option("--no-counts", is_flag=True, help="Count no instructions.")
@click.option("--no-record", is_flag=True, help="Print, and add no entry.")
@click.option("--stale-ok", is_flag=True, help="Sources may be newer than what runs.")
def run(path, rounds, seconds, only, no_counts, no_record, stale_ok):
    """Measure, print, and add an entry to the history.

    Needs two idle cores, and the package installed from this tree.
    """
    if len(os.sched_getaffinity(0)) < 2:
        stop("only one CPU may be used: ratios need two cores")
    lines = [line for line in regress_set.LINES if only in line.name]
    if not lines:
        stop(f"no line has {only!r} in it")
    newer = stale()
    if newer is not None and not stale_ok:
        stop(f"{newer} is newer than the installed package: install it again")
    if tree()[1]:
        click.echo("the tree has changes: the entry is marked so", err=True)
    if not no_record:
        read(path)  # before minutes are spent
    ratios, failed = regress_set.measure(
        lines, rounds, seconds, progress=lambda text: click.echo(text, err=True)
    )
    counts, why = ({}, "") if no_counts else instruction_counts()
    for name, values in ratios.items():
        click.echo(f"{name:<28}{regress_set.text(values)}")
    for name, value in counts.items():
        click.echo(f"{name:<28}{value:.1f}")
    for name, reason in failed.items():
        click.echo(f"{name}: not measured: {reason}", err=True)
    if why:
        click.echo(f"instructions: {why}", err=True)
    if not ratios:
        sys.exit(1)
    entry = make_entry(ratios, counts, rounds)
    if not no_record:
        history.append(path, entry)
        click.echo(f"added {title(entry)} to {path.name}", err=True)
    sys.exit(1 if failed else 0)


def read(path):
    try:
        return history.read(path)
    except (history.HistoryError, OSError) as error:
        stop(error)


@main.command()
@file_option
@click.option(
    "--last",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Against so many entries before the newest.",
)
@click.option("--since", metavar="COMMIT", help="Against the entries of this commit.")
@click.option("--all", "everything", is_flag=True, help="Also lines with no news.")
def compare(path, last, since, everything):
    """Say what is slower in the newest entry than before, beyond the spread."""
    entries = read(path)
    if not entries:
        stop(f"{path.name} has no entry: regress.py run makes one")
    new = entries[-1]
    if since is not None:
        since = git("rev-parse", "--verify", f"{since}^{{commit}}") or stop(
            f"{since} is no commit of this tree"
        )
    try:
        against = history.baseline(entries, new, last=last, since=since)
    except history.HistoryError as error:
        stop(error)
    click.echo(f"{title(new)} against " + "; ".join(map(title, against)))
    if new.get("load", 0) > 1 or any(e.get("load", 0) > 1 for e in against):
        click.echo("the machine was not quiet in all of them (load above 1)")
    verdicts = history.judge(against, new)
    for v in verdicts:
        if v.word == "same" and not everything:
            continue
        before = "-" if v.before is None else f"{v.before:.3f}"
        now = "-" if v.now is None else f"{v.now:.3f}"
        change = "" if v.change is None else f"{100 * v.change:+.1f} %"
        click.echo(f"{v.name:<28}{before:>10} -> {now:<10}{change:>9}  {v.word}")
    slower = [v.name for v in verdicts if v.word == "slower"]
    click.echo(f"slower: {', '.join(slower)}" if slower else "nothing got slower")
    sys.exit(1 if slower else 0)


@main.command("history")
@file_option
@click.option("-n", "number", type=click.IntRange(1), default=6, show_default=True)
@click.option("--only", default="", metavar="TEXT", help="Lines with TEXT in them.")
def show_history(path, number, only):
    """Print the medians of the last entries, a column each, the newest to the right."""
    entries = read(path)[-number:]
    if not entries:
        stop(f"{path.name} has no entry: regress.py run makes one")
    for mark, entry in enumerate(entries, 1):
        click.echo(f"{mark}: {title(entry)}, {entry['cpu']}, load {entry.get('load')}")
    columns = "".join(f"{mark:>9}" for mark in range(1, len(entries) + 1))
    click.echo(f"{'':<28}{columns}")
    for part in ("ratios", "counts"):
        for name in dict.fromkeys(name for e in entries for name in e[part]):
            if only not in name:
                continue
            cells = ""
            for entry in entries:
                value = entry[part].get(name)
                middle = value
                if isinstance(value, list):
                    middle = statistics.median(value)
                cells += f"{'-' if middle is None else f'{middle:.3f}':>9}"
            click.echo(f"{name:<28}{cells}")


if __name__ == "__main__":
    main()
