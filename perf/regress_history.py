# SPDX-License-Identifier: BSD-3-Clause
"""Entries of the guard's history, and what is slower in one than in others.

A ratio says how many times as long as its peer something takes, so more is slower
in every line.  An entry holds the ratio of each round; two entries are of the same
kind of machine when CPU model, number of cores and machine are the same, and only
such are held against each other; and only those of one method of measurement
(regress_set.METHOD; entries without one are of the first).
"""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass

SCHEMA = "uct-tofu-regress/1"
MACHINE = ("cpu", "cores", "machine")
LEAST = 0.05  # of a ratio: less is no news
LEAST_COUNT = 0.5  # instructions of an operation
FEWEST = 3  # rounds, for a spread that means something


class HistoryError(Exception):
    """The history can't be read, or has nothing to compare with."""


@dataclass(frozen=True)
class Verdict:
    """One line: its value before and now, and what that means.

    ``kind`` is ratio or count, ``word`` one of slower, faster, same, new, gone.
    """

    name: str
    kind: str
    before: float | None
    now: float | None
    word: str

    @property
    def change(self):
        """Relative change, or None."""
        if self.before is None or self.now is None:
            return None
        return self.now / self.before - 1


def _is_number(value):
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )


def check(entry):
    """Raise HistoryError when this is no entry."""
    if not isinstance(entry, dict) or entry.get("schema") != SCHEMA:
        raise HistoryError(f"no entry of the schema {SCHEMA}")
    for name in ("time", "commit", "cpu", "machine"):
        if not isinstance(entry.get(name), str):
            raise HistoryError(f"{name}: no text")
    for name in ("ratios", "counts"):
        if not isinstance(entry.get(name), dict):
            raise HistoryError(f"{name}: no object")
    for name, item in entry["ratios"].items():
        if not (isinstance(item, list) and item and all(map(_is_number, item))):
            raise HistoryError(f"ratios, {name}: no list of numbers above 0")
    for name, item in entry["counts"].items():
        if not _is_number(item):
            raise HistoryError(f"counts, {name}: no number above 0")


def read(path):
    """All entries of a file, oldest first; none when there is no file."""
    entries = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    entry = json.loads(line)
                    check(entry)
                except (ValueError, HistoryError) as error:
                    raise HistoryError(f"{path}:{number}: {error}") from None
                entries.append(entry)
    except FileNotFoundError:
        return []
    return entries


def append(path, entry):
    """Add one entry at the end."""
    check(entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def same_machine(one, other):
    return all(one.get(name) == other.get(name) for name in MACHINE)


def method(entry):
    return entry.get("method", 1)


def middle(values):
    """Both ends of their middle two thirds."""
    parts = statistics.quantiles(values, n=6, method="inclusive")
    return parts[0], parts[-1]


def judge_ratio(name, before, now):
    """before: rounds of all entries that are the measure; now: of the new one.

    It is slower when the median is above by more than LEAST and the middle two thirds
    of both do not touch: a machine that is unquiet widens them, and so raises no alarm.
    """
    old, new = statistics.median(before), statistics.median(now)
    word = "same"
    if min(len(before), len(now)) >= FEWEST:
        (low, high), (new_low, new_high) = middle(before), middle(now)
        if new > old * (1 + LEAST) and new_low > high:
            word = "slower"
        elif new * (1 + LEAST) < old and new_high < low:
            word = "faster"
    return Verdict(name, "ratio", old, new, word)


def judge(entries, new):
    """Verdicts on every line of the entry new, against those before it."""
    verdicts = []
    names = dict.fromkeys(n for e in [new, *entries] for n in e["ratios"])
    for name in names:
        before = [v for e in entries for v in e["ratios"].get(name, [])]
        now = new["ratios"].get(name)
        if before and now:
            verdicts.append(judge_ratio(name, before, now))
        elif now:
            verdicts.append(Verdict(name, "ratio", None, statistics.median(now), "new"))
        else:
            old = statistics.median(before)
            verdicts.append(Verdict(name, "ratio", old, None, "gone"))
    # counts are exact, but each compiler has its own
    same = [e for e in entries if e.get("compiler") == new.get("compiler")]
    for name, now in new["counts"].items():
        before = [e["counts"][name] for e in same if name in e["counts"]]
        if not before:
            verdicts.append(Verdict(name, "count", None, now, "new"))
            continue
        old = before[-1]
        word = "same"
        if abs(now - old) > LEAST_COUNT:
            word = "slower" if now > old else "faster"
        verdicts.append(Verdict(name, "count", old, now, word))
    return verdicts


def baseline(entries, new, *, last, since=None):
    """The entries that new is held against; new itself may be among entries.

    Parameters
    ----------
    last : int
        So many of the last ones of the same kind of machine.
    since : str, optional
        Those of this commit (all its digits) instead.

    Raises HistoryError when there are none, and says why.
    """
    others = [entry for entry in entries if entry is not new]
    if not others:
        raise HistoryError("there is no earlier entry to compare with")
    mine = [entry for entry in others if same_machine(entry, new)]
    if not mine:
        cpus = ", ".join(sorted({f"{e['cpu']} ({e.get('cores')})" for e in others}))
        raise HistoryError(
            f"no entry is of {new['cpu']} with {new.get('cores')} cores; there are "
            f"those of {cpus}. Ratios of different machines say nothing."
        )
    mine = [entry for entry in mine if method(entry) == method(new)]
    if not mine:
        raise HistoryError(
            f"no entry of this kind of machine was taken by method {method(new)}: the "
            "kernels measured something else then (METHOD in regress_set.py)"
        )
    if since is None:
        # what was tried in a changed tree is a measure only when nothing else is
        return ([entry for entry in mine if not entry.get("dirty")] or mine)[-last:]
    found = [e for e in mine if e["commit"] == since and not e.get("dirty")]
    if not found:
        raise HistoryError(f"no entry of this kind of machine is of {since[:12]}")
    return found
