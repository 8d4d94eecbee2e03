# SPDX-License-Identifier: BSD-3-Clause
"""Plots of a comparison with matplotlib: log axes, units, backends, sources.

Colours are those of Okabe and Ito, which people with any colour vision tell apart;
marker and line style differ as well.  The line style says what was below: solid the
emulator's fast mode, dashed its timed mode, dash-dotted the machine, dotted none of
these.  Published figures are points without a line, with their source below.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from uct_tofu.perf.compare import Comparison, TestComparison, ratio
from uct_tofu.perf.result import LATENCIES
from uct_tofu.perf.units import quantity_text, size_text

__all__ = [
    "COLOURS",
    "Plot",
    "all_plots",
    "curves",
    "percentiles",
    "ratios",
    "save",
    "to_bytes",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_PUBLISHED_MARKERS = ("o", "s", "^", "D", "v", "p", "<", "h", ">", "8")  # hollow
_LINES = {"fast": "-", "timed": "--", "tofu": "-.", "peer": ":"}
_UNITS = {
    "latency": ("latency, median [us]", 1e6),
    "bandwidth": ("bandwidth [GB/s]", 1e-9),
    "rate": ("rate [million operations/s]", 1e-6),
}
_AXES = {
    "size": "message size [B]",
    "threads": "threads",
    "processes": "processes or nodes",
}
_WIDTH, _HEIGHT = 7.2, 4.4  # inches of the axes
_LINE, _LEGEND_LINE = 0.15, 0.18  # inches of a line of small text, of the legend
_MAX_TICKS = 12  # labels along the x axis
_SETTINGS = {
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.35,
    "svg.hashsalt": "uct-tofu",  # the same file for the same data
}


@dataclass
class Plot:
    """A figure of matplotlib, its file's name without end, and its text.

    Source: matplotlib.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    drawn: dict = field(default_factory=dict)  # form to bytes


def _styles(series):
    """For each series: colour by what it is, line by backend, a marker of its own."""
    colours, styles = {}, []
    for number, item in enumerate(series):
        what = tuple(
            value
            for name, value in item.parts.items()
            if name not in ("backend", "mode", "host", "versions")
        )
        colour = colours.setdefault(what, len(colours))
        styles.append(
            {
                "color": COLOURS[colour % len(COLOURS)],
                "marker": _MARKERS[number % len(_MARKERS)],
                "linestyle": _LINES[item.mode],
                "markersize": 5,
                "linewidth": 1.5,
            }
        )
    return styles


def _size_label(value, _position=None):
    return size_text(round(value)).replace(" ", "\u2009").replace("\u2009B", "")


def _number_label(value, _position=None):
    return f"{value:g}"


def _scale(axes, which, values, *, is_size=False):
    """A log axis with ticks that say numbers, not exponents."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    values = [value for value in values if value]
    base = 2 if which == "x" else 10
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=base)
    axis.set_major_formatter(FuncFormatter(_size_label if is_size else _number_label))
    if not values:
        return
    if which == "x":
        # The sizes themselves if their labels have room, else powers of two.
        places = sorted(set(values))
        powers = math.log2(places[-1] / places[0])
        gaps = [math.log2(high / low) for low, high in itertools.pairwise(places)]
        if all(gap >= powers / _MAX_TICKS for gap in gaps):
            axis.set_major_locator(FixedLocator(places))
        else:
            axis.set_major_locator(LogLocator(2 ** math.ceil(powers / _MAX_TICKS)))
        axis.set_minor_locator(NullLocator())
    elif max(values) / min(values) < 5:
        axis.set_major_locator(MaxNLocator(8, steps=(1, 2, 2.5, 5, 10)))
        axis.set_minor_locator(NullLocator())
    elif max(values) / min(values) < 30:
        axis.set_minor_formatter(FuncFormatter(_number_label))
        axis.set_minor_locator(LogLocator(10, subs=(1, 2, 3, 5)))
    else:
        axis.set_minor_formatter(NullFormatter())


def _plain(text):
    """Without formulas: matplotlib reads what is between two dollar signs."""
    return text.replace("$", r"\$")


class _Page:
    """A figure that grows: axes, a legend below them, small text below that."""

    def __init__(self, title):
        with matplotlib.rc_context(_SETTINGS):
            self.figure = Figure()
            FigureCanvasAgg(self.figure)
            self.axes = self.figure.add_subplot()
        self.axes.set_title(_plain(title), fontsize=11)
        self.entries = []  # of the legend: (handle, label)
        self.notes = []

    def _legend(self):
        """(keyword arguments, height in inches)"""
        columns = 2 if len(self.entries) > 3 else 1
        labels = [
            textwrap.fill(_plain(label), 54 if columns == 2 else 100)
            for _, label in self.entries
        ]
        lines = [label.count("\n") + 1 for label in labels]
        half = -(-len(lines) // columns)
        height = max(sum(lines[:half]), sum(lines[half:])) * _LEGEND_LINE + 0.2
        handles = [handle for handle, _ in self.entries]
        return {"handles": handles, "labels": labels, "ncols": columns}, height

    def finish(self):
        legend, legend_height = self._legend()
        text = "\n".join(textwrap.fill(_plain(note), 118) for note in self.notes)
        small = (text.count("\n") + 1) * _LINE + 0.1 if text else 0
        bottom = 0.55 + legend_height + small
        height = 0.35 + _HEIGHT + bottom
        width = _WIDTH + 0.85 + 0.2
        self.figure.set_size_inches(width, height)
        self.figure.subplots_adjust(
            left=0.85 / width,
            right=1 - 0.2 / width,
            top=1 - 0.35 / height,
            bottom=bottom / height,
        )
        self.figure.legend(
            **legend,
            loc="upper center",
            bbox_to_anchor=(0.5, (bottom - 0.5) / height),
            fontsize=8.5,
            handlelength=3.4,
            frameon=False,
        )
        if text:
            place = (0.15 / width, 0.08 / height)
            self.figure.text(*place, text, fontsize=7.5, va="bottom", linespacing=1.2)
        return self.figure


def _place_number(figure, axis):
    """Where a published figure belongs on an axis, None for a limit."""
    if axis == "size":
        return figure.size or None
    return figure.threads if axis == "threads" else figure.nodes


def _draw_published(page, test, axis, quantity):
    """Points, one marker for each source and operation; limits as thin lines."""
    groups = {}
    for item in test.figures:
        value = getattr(item, quantity)
        if value is None or (axis == "size" and item.size == 0):
            continue
        where = _place_number(item, axis)
        name = f"{item.layer}: {item.operation}"
        if where is None:
            tnis = f", {item.tnis} TNIs" if item.tnis and item.tnis > 1 else ""
            name += f"{tnis}, {quantity_text(quantity, value)}"
        key = (where is None, name, item.source.short)
        groups.setdefault(key, []).append((where, value, item))
    sources, drawn = {}, []
    for number, ((is_limit, name, short), members) in enumerate(groups.items()):
        mark = sources.setdefault(short, len(sources) + 1)
        label = f"published, {name} [{mark}]"
        scaled = [(x, y * _UNITS[quantity][1], item) for x, y, item in members]
        if is_limit:
            for _, y, _ in scaled:
                line = page.axes.axhline(y, color="0.35", lw=0.9, ls=(0, (1, 2)))
            page.entries.append((line, label))
        else:
            _draw_ranges(page, scaled, quantity)
            (points,) = page.axes.plot(
                [x for x, _, _ in scaled],
                [y for _, y, _ in scaled],
                linestyle="none",
                marker=_PUBLISHED_MARKERS[number % len(_PUBLISHED_MARKERS)],
                color="0.1",
                markersize=7,
                markeredgewidth=1.2,
                fillstyle="none",
                zorder=5,
            )
            page.entries.append((points, label))
        drawn += [(x, y) for x, y, _ in scaled]
    page.notes += [f"[{mark}] {short}" for short, mark in sources.items()]
    return drawn


def _draw_ranges(page, scaled, quantity):
    """The recorded range of published figures that have one."""
    for x, y, item in scaled:
        if item.low < item.high:
            factors = (item.low, item.high)
            if _is_inverse(item, quantity):
                factors = (1 / item.high, 1 / item.low)
            page.axes.vlines(x, y * factors[0], y * factors[1], color="0.1", lw=0.9)


def _is_inverse(figure, quantity) -> bool:
    """Whether a value was made of the other quantity: time of bandwidth."""
    return (figure.quantity == "latency") != (quantity == "latency")


def _constant_text(test, axis):
    """What all points of a plot have in common, of the other axes."""
    words = []
    points = [point for item in test.series for point in item.points]
    for name, unit in (("size", None), ("threads", "thread"), ("processes", "process")):
        values = {getattr(point, name) for point in points}
        if name == axis or len(values) != 1:
            continue
        value = values.pop()
        if unit is None:
            if value:
                words.append(size_text(value))
        elif value > 1:
            words.append(f"{value} {unit}{'es' if unit == 'process' else 's'}")
    return ", ".join(words)


def _filter(item, axis, test):
    """Points along one axis: at the smallest place of the other axes."""
    others = [name for name in ("size", "threads", "processes") if name != axis]
    first = min(
        (tuple(getattr(p, n) for n in others) for p in item.points), default=None
    )
    return [p for p in item.points if tuple(getattr(p, n) for n in others) == first]


def curves(
    test: TestComparison, axis: str, quantity: str, *, title: str | None = None
) -> Plot | None:
    """A quantity (latency, bandwidth, rate) over size, threads or processes.

    None when no series has the quantity.

    Source: the paper, figures 4, 5 and 8.
    """
    label, factor = _UNITS[quantity]
    constant = _constant_text(test, axis)
    title = title or f"{test.test}: {quantity} over {axis}" + (
        f" ({constant})" if constant else ""
    )
    page = _Page(title)
    drawn = []
    has_spread = False
    for item, style in zip(test.series, _styles(test.series), strict=True):
        points = [
            p
            for p in _filter(item, axis, test)
            if p.value(quantity) is not None and getattr(p, axis) > 0
        ]
        if not points:
            continue
        xs = [getattr(p, axis) for p in points]
        ys = [p.value(quantity) * factor for p in points]
        low = [y - p.spread[quantity][0] * factor for y, p in zip(ys, points)]
        high = [p.spread[quantity][1] * factor - y for y, p in zip(ys, points)]
        has_spread = has_spread or any(low) or any(high)
        drawn_line = page.axes.errorbar(
            xs,
            ys,
            yerr=[[max(0, v) for v in low], [max(0, v) for v in high]],
            elinewidth=0.9,
            capsize=2,
            **style,
        )
        page.entries.append((drawn_line, item.label))
        drawn += zip(xs, ys)
    if not drawn:
        return None
    if has_spread:
        page.notes.append("Bars: smallest and largest repeat.")
    drawn += _draw_published(page, test, axis, quantity)
    _scale(page.axes, "x", [x for x, _ in drawn], is_size=axis == "size")
    _scale(page.axes, "y", [y for _, y in drawn])
    page.axes.set_xlabel(_AXES[axis])
    page.axes.set_ylabel(label)
    caption = " ".join(page.notes)
    name = f"{test.test}-{quantity}-{axis}"
    return Plot(name, title, caption, page.finish())


def ratios(test: TestComparison, axis: str, baseline: str) -> Plot | None:
    """The headline quantity divided by that of the baseline, over an axis.

    None when no series has a baseline other than itself.

    Source: compare.ratio.
    """
    faster = "lower" if test.quantity == "latency" else "higher"
    title = f"{test.test}: {test.quantity} / baseline ({baseline})"
    page = _Page(title)
    drawn = []
    for item, style in zip(test.series, _styles(test.series), strict=True):
        other = test.baselines.get(id(item))
        if other is None or other is item:
            continue
        points = [
            (getattr(p, axis), ratio(p, other, test.quantity))
            for p in _filter(item, axis, test)
            if getattr(p, axis) > 0
        ]
        points = [(x, y) for x, y in points if y is not None]
        if points:
            (line,) = page.axes.plot(
                *zip(*points, strict=True),
                **style,
            )
            page.entries.append((line, f"{item.label}  /  {other.label}"))
            drawn += points
    if not drawn:
        return None
    page.axes.axhline(1, color="0.3", lw=1)
    page.notes.append(f"1 is the baseline; {faster} is faster.")
    _scale(page.axes, "x", [x for x, _ in drawn], is_size=axis == "size")
    _scale(page.axes, "y", [y for _, y in drawn] + [1])
    page.axes.set_xlabel(_AXES[axis])
    page.axes.set_ylabel(f"{test.quantity} / baseline")
    return Plot(f"{test.test}-ratio-{axis}", title, " ".join(page.notes), page.finish())


def percentiles(test: TestComparison) -> Plot | None:
    """From the fastest operation to the slowest one, at the smallest size.

    None when no latency was measured.

    Source: schema.json, field "latency".
    """
    sizes = [p.size for item in test.series for p in item.points if p.latency]
    if not sizes:
        return None
    size = min(sizes)
    title = f"{test.test}: percentiles of latency ({size_text(size)})"
    page = _Page(title)
    drawn = []
    for item, style in zip(test.series, _styles(test.series), strict=True):
        points = [p for p in item.points if p.latency and p.size == size]
        if not points:
            continue
        ys = [points[0].latency[name] * 1e6 for name in LATENCIES]
        ys = [y or None for y in ys]  # a log axis has no 0
        (line,) = page.axes.plot(
            range(len(LATENCIES)),
            ys,
            **style,
        )
        page.entries.append((line, item.label))
        drawn += [y for y in ys if y]
    page.axes.set_xticks(range(len(LATENCIES)), LATENCIES)
    _scale(page.axes, "y", drawn)
    page.axes.set_xlabel("percentile")
    page.axes.set_ylabel("latency [us]")
    return Plot(f"{test.test}-percentiles", title, "", page.finish())


def all_plots(comparison: Comparison) -> list[Plot]:
    """All plots that the data of a comparison have.

    Blocks for about half a second each.

    Source: issue "Benchmarks, and emulator against Fugaku".
    """
    made = []
    for test in comparison.tests:
        for axis in test.axes:
            names = ("latency", "bandwidth") if axis == "size" else ()
            names = dict.fromkeys((test.quantity, *names))
            made += [curves(test, axis, name) for name in names]
            if comparison.baseline is not None:
                made.append(ratios(test, axis, comparison.baseline))
        made.append(percentiles(test))
    return [plot for plot in made if plot is not None]


def to_bytes(plot: Plot, form: str) -> bytes:
    """A plot as ``png`` or ``svg``; drawn once for each.

    Source: matplotlib, Figure.savefig.
    """
    if form in plot.drawn:
        return plot.drawn[form]
    metadata = {"Date": None} if form == "svg" else None
    buffer = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        plot.figure.savefig(buffer, format=form, dpi=130, metadata=metadata)
    plot.drawn[form] = buffer.getvalue()
    return plot.drawn[form]


def save(plot: Plot, folder, form: str) -> Path:
    """Write a plot as ``png`` or ``svg``; returns its path.  Raises ``OSError``.

    Source: matplotlib, Figure.savefig.
    """
    path = Path(folder) / f"{plot.name}.{form}"
    path.write_bytes(to_bytes(plot, form))
    return path
