# SPDX-License-Identifier: BSD-3-Clause
"""Series of several files side by side, with ratios and published figures."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from uct_tofu.perf import published, result
from uct_tofu.perf.series import Point, Series, headline, make_series

__all__ = [
    "CompareError",
    "Comparison",
    "Row",
    "TestComparison",
    "compare",
    "load_files",
    "make_rows",
    "ratio",
]

# What may be asked of a baseline, besides the name of a file.
BASELINE_PARTS = ("layer", "transport", "backend", "layout", "file")
# What must not differ between a point and its baseline unless asked for.
_ALIKE = ("layer", "transport", "layout")
_METHOD = ("batch",)
_OF_NODES = ("barrier", "reduce")


class CompareError(ValueError):
    """The files have nothing to compare, or the baseline is in none of them.

    Source: Comparison.
    """


@dataclass(frozen=True)
class Row:
    """One line of a table: a point of a series, or a published figure.

    ``value`` is of the test's headline quantity, ``low`` and ``high`` its spread;
    ``ratio`` is value / value of the baseline, None without one.

    Source: schema.json; data/fugaku_published.json.
    """

    size: int | None
    threads: int | None
    processes: int | None
    label: str
    value: float
    low: float
    high: float
    p99: float | None = None
    bandwidth: float | None = None
    rate: float | None = None
    ratio: float | None = None
    source: published.Source | None = None


@dataclass
class TestComparison:
    """One test: its series, rows, figures, and what it is about.

    Source: Comparison.
    """

    __test__ = False  # not for pytest

    test: str
    quantity: str
    series: list
    rows: list
    figures: list = field(default_factory=list)
    remarks: list = field(default_factory=list)
    baselines: dict = field(default_factory=dict)  # id(series) to Series

    @property
    def axes(self) -> list[str]:
        """What varies along its series: of size, threads and processes.

        At least one; published barriers are over nodes, so that is theirs.

        Source: schema.json.
        """
        usual = "processes" if self.test in _OF_NODES else "size"
        varying = [
            name
            for name in ("size", "threads", "processes")
            if any(
                len({getattr(point, name) for point in item.points}) > 1
                for item in self.series
            )
        ]
        return varying or [usual]


@dataclass
class Comparison:
    """All tests of some files.

    Source: issue "Benchmarks, and emulator against Fugaku".
    """

    files: dict  # short name to path
    tests: list
    baseline: str | None
    hosts: list  # in words, one for each host that measured


def load_files(paths) -> dict:
    """Records of files, by a short name: the file's without its end.

    Raises ``OSError``, ``result.RecordError``.

    Source: JSON Lines.
    """
    files = {}
    for path in paths:
        name = stem = os.path.splitext(os.path.basename(os.fspath(path)))[0]
        number = 2
        while name in files:
            name = f"{stem}-{number}"
            number += 1
        files[name] = (os.fspath(path), result.read(path))
    return files


def _parse_baseline(text, names):
    """Parts that a series must have to be a baseline."""
    wanted = {}
    for word in text.split(";"):
        part, is_pair, value = word.partition("=")
        if not is_pair:
            part, value = "file", os.path.splitext(os.path.basename(word))[0]
            if word in names:
                value = word
        if part not in BASELINE_PARTS:
            raise CompareError(
                f"baseline {word!r}: {part!r} is none of {', '.join(BASELINE_PARTS)}"
            )
        wanted[part] = value.strip()
    if wanted.get("transport") == wanted.get("layer"):
        wanted.pop("transport", None)  # "utofu" of layer utofu is not in its label
    return wanted


def _agrees(one: Series, other: Series, wanted):
    """Whether points of the two may be held against each other."""
    if not set(_ALIKE) & set(wanted) and any(
        one.parts[part] != other.parts[part] for part in _ALIKE
    ):
        return False
    windows = {item.parts["window"] for item in (one, other)} - {""}
    if len(windows) > 1:
        return False
    return all(
        one.options[name] == other.options[name]
        for name in set(one.options) & set(other.options)
        if name not in _METHOD
    )


def _find_baseline(item, candidates, wanted):
    """The candidate that has most in common with a series, or None."""
    fitting = [other for other in candidates if _agrees(item, other, wanted)]
    if not fitting:
        return None

    def alike(other):
        order = ("file", "host", "backend", "unusual", "options", "window", "versions")
        same = sum(
            (item.parts[name] == other.parts[name]) << (len(order) - rank)
            for rank, name in enumerate(order)
        )
        # The machine's counterpart is the timed mode, which is made after it.
        return same, {item.mode, other.mode} == {"tofu", "timed"}

    return max(fitting, key=alike)


def ratio(point: Point, baseline: Series | None, quantity: str) -> float | None:
    """value / value of the baseline at the same place; None when it has none.

    Source: Comparison.
    """
    other = baseline and baseline.at(point.size, point.threads, point.processes)
    mine = point.value(quantity)
    theirs = other.value(quantity) if other else None
    return mine / theirs if mine is not None and theirs else None


def make_rows(test: TestComparison) -> list[Row]:
    """The lines of a test's table, by size: series, then published figures.

    Source: schema.json; data/fugaku_published.json.
    """
    rows = []
    for item in test.series:
        for point in item.points:
            value = point.value(test.quantity)
            if value is None:
                continue
            low, high = point.spread[test.quantity]
            rows.append(
                Row(
                    point.size,
                    point.threads,
                    point.processes,
                    item.label,
                    value,
                    low,
                    high,
                    p99=point.latency and point.latency["p99"],
                    bandwidth=point.bandwidth,
                    rate=point.rate,
                    ratio=ratio(point, test.baselines.get(id(item)), test.quantity),
                )
            )
    for figure in test.figures:
        value = getattr(figure, test.quantity)
        if value is None:
            continue
        what = f"published {figure.layer}: {figure.operation}"
        if figure.hops:
            what += f", {figure.hops} hop" + "s" * (figure.hops > 1)
        if figure.remark:
            what += f", {figure.remark}"
        rows.append(
            Row(
                figure.size,
                figure.threads,
                figure.nodes if test.test in _OF_NODES else None,
                what,
                value,
                value * figure.low,
                value * figure.high,
                bandwidth=figure.bandwidth,
                rate=figure.rate,
                source=figure.source,
            )
        )
    rows.sort(
        key=lambda row: (
            row.size is None,
            row.size or 0,
            row.threads or 0,
            row.processes or 0,
        )
    )
    return rows


def _host_texts(files):
    texts = {}
    for name, (_, records) in files.items():
        for record in records:
            host = record.host
            text = "{system}, {machine}, {cpu}, {cores} cores".format(**host)
            versions = ", ".join(
                f"{k} {v}" for k, v in sorted(record.versions.items()) if v
            )
            texts[result.printable(f"{name}: {text}; {versions}", 600)] = None
    return list(texts)


def compare(
    files: dict,
    *,
    baseline: str | None = None,
    tests=(),
    reference: bool = False,
) -> Comparison:
    """Lay files side by side.

    Parameters
    ----------
    files : dict
        As from ``load_files``.
    baseline : str, optional
        A file (its name, or path), or parts of a series as ``layer=utofu``, several
        joined by ``;``.  None: the first of several files; none of a single one.
        A point is held against the series of the baseline with the same test,
        window and options, and, unless the baseline names one of them, the same
        layer, transport and layout.
    tests : sequence of str
        Only these; empty is all.
    reference : bool
        Add the published figures.

    Raises ``CompareError``.

    Source: issue "Benchmarks, and emulator against Fugaku".
    """
    if baseline is None and len(files) > 1:
        baseline = next(iter(files))
    wanted = None if baseline is None else _parse_baseline(baseline, files)
    records = {name: items for name, (_, items) in files.items()}
    found = list(dict.fromkeys(r.test for items in records.values() for r in items))
    for name in tests:
        if name not in found:
            raise CompareError(f"test {name!r} is in no file; there are {found}")
    chosen = [name for name in found if not tests or name in tests]
    all_series = make_series(records)
    if wanted is not None:
        candidates = [
            item
            for item in all_series
            if all(item.parts[part] == value for part, value in wanted.items())
        ]
        if not candidates:
            raise CompareError(f"baseline {baseline!r} fits nothing in the files")
    compared = []
    for name in chosen:
        series = [item for item in all_series if item.test == name]
        points = [point for item in series for point in item.points]
        test = TestComparison(name, headline(name, points), series, [])
        if reference:
            test.figures = published.published(name)
            test.remarks = published.remarks(name)
        if wanted is not None:
            mine = [item for item in candidates if item.test == name]
            for item in series:
                other = _find_baseline(item, mine, wanted)
                if other is not None:
                    test.baselines[id(item)] = other
        test.rows = make_rows(test)
        compared.append(test)
    paths = {name: path for name, (path, _) in files.items()}
    return Comparison(paths, compared, baseline, _host_texts(files))
