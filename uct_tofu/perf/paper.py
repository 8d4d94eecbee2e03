# SPDX-License-Identifier: BSD-3-Clause
"""The measured figures of the paper, made again: its figures 4, 5 and 8.

Figure 4 is a ping-pong of tagged messages over UCX's TCP transport, figure 5 the same
over MPI, figure 8 the ping-pong of figure 7 (data put, then flag put, the receiver
polls the flag) over uTofu, over UCT (put_zcopy) and over MPI.  All show bandwidth,
which is size / half a round trip, over message size.  The paper takes means; here it
is the median.

Only the text of the paper gives numbers; where it has none (figure 8), other
published figures of raw puts are drawn beside the curves.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from uct_tofu.perf import compare, plots, published, result
from uct_tofu.perf.measure import MeasureError, Plan, Wanted, measure
from uct_tofu.perf.report import (
    Document,
    Heading,
    Image,
    TableBlock,
    Text,
    add_sources,
    test_table,
    write_html,
    write_markdown,
)
from uct_tofu.perf.units import quantity_text, size_text

__all__ = ["FIGURES", "PaperFigure", "Run", "make_report", "measure_all", "wanted"]

SIZES = tuple(8 << shift for shift in (0, 3, 5, 7, 9, 11, 13, 15, 17, 18, 19))


@dataclass(frozen=True)
class PaperFigure:
    """One figure of the paper.

    ``figures`` are patterns of published ids drawn with it; empty is those of the
    test and layers.

    Source: the paper, sections 5 and 8.
    """

    name: str
    title: str
    test: str
    series: tuple  # (layer, transport)
    published: tuple
    text: str


FIGURES = (
    PaperFigure(
        "figure-4",
        "Figure 4: tagged ping-pong over UCX's TCP transport",
        "tag_lat",
        (("ucp", "tcp"),),
        ("tcp.",),
        "The paper ran TCP over IP on Tofu-D. Here it is TCP of this host, between "
        "two processes: the shape may be compared, not the height.",
    ),
    PaperFigure(
        "figure-5",
        "Figure 5: tagged ping-pong over MPI, and over UCP on uTofu",
        "tag_lat",
        (("mpi", "mpi"), ("ucp", "utofu")),
        ("mpi.",),
        "The paper ran Fujitsu MPI. Here it is the MPI that is there, over what it "
        "chooses by itself. UCP over this transport is what the paper lacked.",
    ),
    PaperFigure(
        "figure-8",
        "Figure 8: ping-pong of put and flag (figure 7) over uTofu, UCT and MPI",
        "pingpong_flag",
        (("utofu", "utofu"), ("uct", "utofu"), ("libuct", "utofu"), ("mpi", "mpi")),
        ("utofu.lt.put.8B.1hop", "utofu.lt.ringhop", "utofu.lt.handoff.near"),
        "The paper gives no numbers for its figure 8. The published points are single "
        "puts without a flag, so a curve with two puts lies below them.",
    ),
)


@dataclass
class Run:
    """What was measured, and what was not, with the reason.

    Source: runner.run.
    """

    records: list = field(default_factory=list)
    missing: list = field(default_factory=list)  # (Wanted, reason)

    @property
    def is_complete(self) -> bool:
        """Whether only optional measurements are missing.

        Source: Wanted.optional.
        """
        return all(item.optional for item, _ in self.missing)


def wanted(modes=("fast", "timed"), sizes=SIZES) -> list[Wanted]:
    """All calls of the runner, what matters most first.

    Parameters
    ----------
    modes : sequence of str
        Of the emulator; on the machine ``("fast",)``.
    sizes : sequence of int
        Bytes.

    Source: the paper, sections 5 and 8.
    """
    made = []
    for number in (2, 1, 0):
        figure = FIGURES[number]
        for layer, transport in figure.series:
            options = {"layout": "zcopy"} if layer in ("uct", "libuct") else {}
            for mode in modes if transport == "utofu" else ("fast",):
                made.append(
                    Wanted(
                        figure.test,
                        layer,
                        transport,
                        tuple(sizes),
                        mode,
                        "tofud" if mode == "timed" else None,
                        options,
                        optional=layer == "mpi",
                    )
                )
    return made


def measure_all(items, plan: Plan, path, *, progress=None) -> Run:
    """Measure; every record is in the file as soon as it is there.

    The curves take turns, with one repeat each: a machine that is faster or slower for
    a while, as virtual ones are, is so for all of them.  A record is one repeat.

    Parameters
    ----------
    items : list of Wanted
    plan : Plan
    path : path-like
        Records are added to this file.
    progress : callable, optional
        ``progress(number, of, text)`` before each.

    Blocks for minutes.  Raises ``OSError``; what can't be measured is in
    ``missing``.

    Source: runner.run.
    """
    run = Run()
    turn = dataclasses.replace(plan, repeats=1)
    left = list(items)
    for number in range(plan.repeats):
        for place, item in enumerate(items, 1):
            if item not in left or (number > 0 and plan.is_over):
                continue
            if progress is not None:
                done = number * len(items) + place
                progress(done, plan.repeats * len(items), str(item))
            try:
                records = measure(item, turn)
            except MeasureError as error:
                run.missing.append((item, str(error)))
                left.remove(item)
                continue
            result.write(path, records, append=True)
            run.records += records
    return run


def _published(figure):
    test = "put_lat" if figure.test == "pingpong_flag" else figure.test
    return [
        item
        for item in published.published(test)
        if item.id.startswith(figure.published) and item.size
    ]


def _figure_test(figure, comparison):
    """The comparison's test with only the series of a figure; None if it has none."""
    for test in comparison.tests:
        if test.test != figure.test:
            continue
        series = [
            item
            for item in test.series
            if (item.parts["layer"], item.parts["transport"] or item.parts["layer"])
            in figure.series
        ]
        if series:
            made = dataclasses.replace(
                test,
                series=series,
                quantity="bandwidth",
                figures=_published(figure),
                remarks=published.remarks(figure.test),
                baselines={},
                rows=[],
            )
            made.rows = compare.make_rows(made)
            return made
    return None


def _order_table(test):
    """Bandwidth of each layer divided by uTofu's, in the same mode."""
    rows = []
    for base in test.series:
        if base.parts["layer"] != "utofu":
            continue
        others = [
            item
            for item in test.series
            if item is not base
            and item.parts["file"] == base.parts["file"]
            and (
                item.parts["backend"] == base.parts["backend"]
                or (item.mode == "peer" and base.mode != "timed")
            )
        ]
        for item in others:
            for point in item.points:
                value = compare.ratio(point, base, "bandwidth")
                if value is not None:
                    bandwidth = quantity_text("bandwidth", point.bandwidth)
                    size = size_text(point.size)
                    rows.append([size, item.label, bandwidth, f"{value:.3f}"])
    columns = ["size", "what", "bandwidth", "of uTofu's"]
    right = ("size", "bandwidth", "of uTofu's")
    return TableBlock("Order of the layers", columns, rows, right)


def make_report(files: dict, folder, missing=()) -> list[Path]:
    """Draw the figures and write the report; returns the files.

    Parameters
    ----------
    files : dict
        As from ``compare.load_files``.
    folder : path-like
        Gets ``figure-N.png`` and ``.svg``, ``report.html`` and ``report.md``.
    missing : sequence of (Wanted, str)

    Raises ``OSError``, ``compare.CompareError`` when no figure has data.

    Source: the paper, figures 4, 5 and 8.
    """
    folder = Path(folder)
    comparison = compare.compare(files)
    document = Document("uct-tofu perf paper")
    document.add(
        Text(
            "Bandwidth over message size, as in the figures of the paper: size / half "
            "a round trip, medians. Emulator fast is what this host can do, emulator "
            "timed a model of Tofu-D, the published points are the machine's."
        ),
        Heading("Measured on"),
        Text(list(comparison.hosts)),
    )
    written = []
    for figure in FIGURES:
        test = _figure_test(figure, comparison)
        document.add(Heading(figure.title), Text(figure.text))
        if test is None:
            document.add(Text("Not measured."))
            continue
        for quantity, suffix in (("bandwidth", ""), ("latency", "-latency")):
            plot = plots.curves(test, "size", quantity, title=figure.title)
            if plot is None:
                continue
            plot.name = figure.name + suffix
            written += [plots.save(plot, folder, form) for form in ("png", "svg")]
            document.add(Image(plot))
        document.add(*(Text(f"Published: {text}.") for text in test.remarks))
        if figure.test == "pingpong_flag":
            document.add(_order_table(test))
        document.add(test_table(test, None))
        add_sources(document, test.figures)
    if not written:
        raise compare.CompareError("the files have no record of a figure of the paper")
    if missing:
        document.add(Heading("Not measured"), Text([reason for _, reason in missing]))
    write_html(document, folder / "report.html")
    write_markdown(document, folder / "report.md", image_folder=folder)
    return [*written, folder / "report.html", folder / "report.md"]
