# SPDX-License-Identifier: BSD-3-Clause
"""The emulator's timed mode held against published figures of raw uTofu.

Each line is a figure, the test that measures the same, and the error.  Lines of about
1 us and more, and those of bandwidth, are judged: within 10 % at the median.
"""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from uct_tofu.perf import published
from uct_tofu.perf.measure import MeasureError, Plan, Wanted, measure
from uct_tofu.perf.report import Document, Heading, TableBlock, Text, add_sources
from uct_tofu.perf.result import Record
from uct_tofu.perf.units import quantity_text, size_text

__all__ = ["LIMIT", "NOT_COVERED", "Line", "Outcome", "document", "lines", "predict"]

LIMIT = 0.10  # largest error that holds
JUDGED_FROM = 0.95e-6  # seconds; "about 1 us"
SLOWER = 32  # a byte takes so many times as long where the host can't copy so fast
_BYTE = 0.1575  # ns; parameter "byte" of the profile "tofud"

NOT_COVERED = (
    (
        "Congestion beyond the first link of a route and the receiving TNI, and so "
        "all-to-all on many nodes (utofu.lt.a2a_agg.*, mpi.riken.exchange.*)."
    ),
    (
        "The processor: calls take what this host takes. UCT, UCP and MPI in timed "
        "mode are this host's software above Tofu-D's hardware, not A64FX's."
    ),
    (
        "System noise, interrupts, cold memory and caches, memory bandwidth, the "
        "place of a CMG (hw.put_latency_far), packets of an MTU."
    ),
    "Registration of memory (utofu.utf.mem_*): calls at the host's speed.",
    "Overlap of computation with one's own puts: the call that posts waits.",
    (
        "Assumed, as no figure is published: when the TCQ notice and the local "
        "notice of a put come, two processes on one node."
    ),
    (
        "Barriers and reductions of more nodes than processes fit here "
        "(mpi.riken.barrier.*, mpi.utfvbg.*)."
    ),
    ("Cache injection: its gain is known from a difference of unlike set-ups only."),
)


@dataclass(frozen=True)
class Line:
    """A published figure and how to measure the same.

    Source: data/fugaku_published.json.
    """

    figure: published.Figure
    wanted: Wanted
    text: str
    minuend: Wanted | None = None  # the line is a difference: this less ``wanted``

    @property
    def quantity(self) -> str:
        """What is compared: latency or bandwidth.

        Source: data/fugaku_published.json.
        """
        return "bandwidth" if self.figure.latency is None else "latency"

    @property
    def expected(self) -> float:
        """The published value, in seconds or bytes per second.

        Source: data/fugaku_published.json.
        """
        return getattr(self.figure, self.quantity)

    @property
    def is_big(self) -> bool:
        """Whether the host may be too slow to copy what it is about.

        Source: perf/tni_table.py.
        """
        return self.quantity == "bandwidth" and self.wanted.sizes[0] >= 1 << 20

    @property
    def is_judged(self) -> bool:
        """Whether its error counts.

        Source: JUDGED_FROM.
        """
        return self.quantity == "bandwidth" or self.expected >= JUDGED_FROM


@dataclass
class Outcome:
    """A line and what was measured; ``value`` None with the reason in ``note``.

    Source: runner.run.
    """

    line: Line
    value: float | None
    records: list = field(default_factory=list)
    note: str = ""

    @property
    def error(self) -> float | None:
        """(measured - published) / published.

        Source: data/fugaku_published.json.
        """
        if self.value is None:
            return None
        return self.value / self.line.expected - 1

    @property
    def verdict(self) -> str:
        """holds, DOES NOT HOLD, not measured, or empty when it is not judged.

        Source: LIMIT.
        """
        if self.value is None:
            return "not measured"
        if not self.line.is_judged:
            return ""
        return "holds" if abs(self.error) <= LIMIT else "DOES NOT HOLD"


def _line(name, test, text, *, size=None, profile="tofud", **options):
    figure = published.figure(name)
    size = size or figure.size
    options.setdefault("hops", figure.hops or 1)
    return Line(
        figure,
        Wanted(test, "utofu", "utofu", (size,), "timed", profile, options),
        f"{text} {size_text(size)}, {options['hops']} hop"
        + ("s" if options["hops"] > 1 else ""),
    )


def lines() -> list[Line]:
    """All lines, in the order of the report.

    Source: data/fugaku_published.json; uct_tofu/perf/tofud_model.py.
    """
    put, piggyback = {"layout": "zcopy"}, {"layout": "short"}
    result = [
        _line(f"utofu.lt.put.8B.{hops}hop", "put_lat", "put", **put)
        for hops in (1, 2, 3)
    ]
    result.append(
        _line(
            "hw.put_latency_8B",
            "put_lat",
            "put, piggyback, best case (profile tofud:best)",
            profile="tofud:best",
            **piggyback,
        )
    )
    put_line, gain = result[0], published.any_figure("utofu.utf.piggyback_gain")
    wanted = dataclasses.replace(put_line.wanted, options={**piggyback, "hops": 1})
    result.append(
        Line(gain, wanted, "what a piggyback of 8 B takes less", put_line.wanted)
    )
    for test, name, text in (
        ("get_lat", "get", "get, round trip"),
        ("fadd", "armw8", "armw8, round trip"),
    ):
        result += [
            _line(f"utofu.lt.{name}.8B.{hops}hop", test, text) for hops in (1, 2, 3)
        ]
    for size in (2080, 8320, 66560):
        result.append(
            _line(f"utofu.lt.ringhop.{size}B", "put_lat", "put, ring step", **put)
        )
    result += [
        _line("utofu.lt.handoff.near.12KiB", "put_lat", "put, handoff", **put),
        _line("utofu.lt.handoff.far.12KiB", "put_lat", "put, handoff", **put),
        _line("utofu.lt.handoff.near.3MiB", "put_lat", "put, handoff", **put),
    ]
    for test in ("put_bw", "get_bw"):
        text = f"{test.removesuffix('_bw')}, window 8,"
        more = put if test == "put_bw" else {}
        result += [
            _line(f"utofu.lt.{test}.{name}", test, text, window=8, **more)
            for name in ("1024B", "4096B", "large")
        ]
    big = {"size": 1 << 20, "window": 4, **put}
    result += [
        _line("hw.put_bw_per_tni", "put_bw", "put, one TNI,", **big),
        _line(
            "hw.injection_rate",
            "put_bw",
            "put, six TNIs to six neighbours,",
            params={"tnis": 6},
            # not by time: each TNI has to have some
            iterations=240,
            warmup=24,
            **big,
        ),
    ]
    return result


def _value(records: list[Record], line):
    """The quantity that a line is about."""
    for record in records:
        if line.quantity == "latency" and record.latency:
            return record.latency["p50"]
        if line.quantity == "bandwidth" and record.latency and not line.is_big:
            # By the median time of a message: what the host does besides lengthens
            # the whole run, which record.bandwidth is of.  Not of big ones: they
            # complete in bursts when the host is slow to copy.
            return record.size / record.latency["p50"]
        if line.quantity == "bandwidth" and record.bandwidth:
            return record.bandwidth
    raise MeasureError(f"{line.wanted}: no record with a {line.quantity}")


def _by_model_clock(line, plan):
    """Measure with bytes that take longer, and count the result as often."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "slow.profile"
        profile.write_text(f"byte = {_BYTE * SLOWER}\n")
        wanted = dataclasses.replace(line.wanted, profile=str(profile))
        records = measure(wanted, plan)
    for record in records:
        record.clock = "model"
        record.params["byte_times"] = SLOWER
        record.backend["profile"] = f"tofud, byte x {SLOWER}"
    return records, _value(records, line) * SLOWER


def _measure_line(line, plan):
    try:
        records = measure(line.wanted, plan)
        value = _value(records, line)
        if line.minuend is not None:
            more = measure(line.minuend, plan)
            return Outcome(line, _value(more, line) - value, records + more)
        if not line.is_big or value >= line.expected * (1 - LIMIT):
            return Outcome(line, value, records)
        slow, scaled = _by_model_clock(line, plan)
    except MeasureError as error:
        return Outcome(line, None, note=str(error))
    note = (
        f"by the model's clock: this host copied {quantity_text('bandwidth', value)}, "
        f"so a byte took {SLOWER} times as long, and the result is times {SLOWER}"
    )
    return Outcome(line, scaled, records + slow, note)


def predict(
    plan: Plan,
    *,
    progress=None,
    only: str | None = None,
    outcomes: list[Outcome] | None = None,
) -> list[Outcome]:
    """Measure all lines, in the emulator's timed mode.

    Parameters
    ----------
    plan : Plan
    progress : callable, optional
        ``progress(number, of, text)`` before each line.
    only : str, optional
        Only lines whose text has this in it.
    outcomes : list, optional
        Where they go to one by one, so that they are there when it is interrupted.

    Blocks for minutes.  What can't be measured says so in its outcome.

    Source: runner.run.
    """
    chosen = [line for line in lines() if not only or only in line.text]
    outcomes = [] if outcomes is None else outcomes
    for number, line in enumerate(chosen, 1):
        if progress is not None:
            progress(number, len(chosen), line.text)
        outcomes.append(_measure_line(line, plan))
    return outcomes


def _row(outcome):
    line = outcome.line
    value = quantity_text(line.quantity, outcome.value, 4)
    error = "-" if outcome.error is None else f"{100 * outcome.error:+.1f} %"
    published_text = quantity_text(line.quantity, line.expected, 4)
    name = line.figure.id
    return [line.text, published_text, value, error, outcome.verdict, name]


def document(outcomes) -> Document:
    """The report: table, notes, what is not covered, sources.

    Source: data/fugaku_published.json.
    """
    made = Document("uct-tofu perf predict")
    made.add(
        Text(
            "Published figures of raw uTofu on Fugaku, and the same measured here on "
            "the emulator in its timed mode (medians). Lines of about 1 us and more "
            f"and those of bandwidth are judged: within {100 * LIMIT:.0f} %. The model's "
            "parameters are from the figures of 8 B, of one TNI and of 1 KiB with a "
            "window: there the table says whether the emulator keeps its model. The "
            "handoffs and the bandwidths of get are no input of it."
        ),
        TableBlock(
            "Prediction",
            ["what", "published", "timed emulator", "error", "verdict", "figure"],
            [_row(outcome) for outcome in outcomes],
            ("published", "timed emulator", "error"),
        ),
    )
    notes = [f"{item.line.text}: {item.note}." for item in outcomes if item.note]
    if notes:
        made.add(Heading("Notes"), Text(notes))
    made.add(Heading("What the model does not cover"), Text(list(NOT_COVERED)))
    add_sources(made, [outcome.line.figure for outcome in outcomes])
    return made
