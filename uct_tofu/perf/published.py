# SPDX-License-Identifier: BSD-3-Clause
"""Published figures of Tofu-D, to lay next to records.

``data/fugaku_published.json`` holds them, each with its source.  Here each one that
has a counterpart among our tests gets its name, and units become seconds, bytes per
second and operations per second.  Figures that are a model, a relation without a
number or of another machine state have no counterpart and stay in the file.
"""

from __future__ import annotations

import fnmatch
import functools
import json
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Figure",
    "Source",
    "any_figure",
    "figure",
    "figures",
    "published",
    "remarks",
]

# (test, quantity, ids).  One ping-pong is time and bandwidth at once: what its
# publisher gave is named here, Figure has the other one too.
_TESTS = (
    ("put_lat", "latency", ("utofu.lt.put.8B.*", "hw.put_latency_8B")),
    ("put_lat", "latency", ("utofu.lt.ringhop.*", "utofu.lt.handoff.*")),
    ("put_lat", "latency", ("utofu.lt.stripe.*.1tni",)),
    ("get", "latency", ("utofu.lt.get.8B.*",)),
    ("fadd", "latency", ("utofu.lt.armw8.8B.*",)),
    ("put_bw", "bandwidth", ("utofu.lt.put_bw.*", "utofu.utf.author_estimate")),
    ("put_bw", "bandwidth", ("hw.put_bw_per_tni", "hw.injection_rate")),
    ("get_bw", "bandwidth", ("utofu.lt.get_bw.*",)),
    ("put_rate", "interval", ("utofu.lt.g_1KiB",)),
    ("am_lat", "latency", ("utofu.utf.rtt.*",)),
    ("tag_lat", "latency", ("mpi.riken.pingpong.*", "mpi.julia.osu_latency.*")),
    ("tag_lat", "latency", ("mpi.mpichtofu.fj_pingpong.*",)),
    ("tag_lat", "bandwidth", ("tcp.ucx.1KiB", "tcp.ucx.2MiB_peak", "tcp.ucx.4MiB")),
    ("tag_lat", "bandwidth", ("mpi.fj.seed.*",)),
    ("barrier", "latency", ("mpi.riken.barrier.*", "mpi.utfvbg.*.barrier.*")),
    ("barrier", "latency", ("mpi.mpichtofu.fj_barrier.*",)),
    ("reduce", "latency", ("mpi.riken.allreduce8.*", "mpi.utfvbg.*.reduce.*")),
    ("reduce", "latency", ("mpi.bine.allreduce1.*",)),
    ("reg_mem", "latency", ("utofu.utf.mem_*",)),
)

# Relations and ratios without a time or rate of their own.
_REMARKS = {
    "pingpong_flag": ("uct.put_zcopy.order",),
    "mt_pingpong": ("ucp.mt_pingpong.speedup",),
    "gups": ("ucp.mt_gups.speedup",),
}

# Names of the same test in other programs and layers.
_ALIASES = {"get_lat": "get", "fadd_lat": "fadd"}

_UNITS = {"us": 1e-6, "ns": 1e-9, "GB/s": 1e9, "MB/s": 1e6}
_PINGPONGS = ("put_lat", "am_lat", "tag_lat")


@dataclass(frozen=True)
class Source:
    """Where a figure is from.

    Source: data/fugaku_published.json, field "source".
    """

    title: str
    authors: str
    year: int
    place: str  # DOI or repository; may be empty
    where: str  # in it

    @property
    def short(self) -> str:
        """A few words in Latin letters, for a plot.

        Source: data/fugaku_published.json.
        """
        title = self.title
        if not title.isascii():  # fonts of plots lack other letters
            title = title[title.find("(") + 1 :].rstrip(")")
        title = title if len(title) <= 96 else title[:92].rsplit(" ", 1)[0] + " ..."
        return f"{title} ({self.year})"

    def __str__(self):
        parts = (self.authors, self.title, str(self.year), self.place, self.where)
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Figure:
    """One published figure, in our units.

    ``latency`` in seconds, ``bandwidth`` in bytes per second, ``rate`` per second:
    what the figure says, None otherwise.  ``size`` is bytes, None when not known or
    when it is a limit.  ``low`` and ``high`` are the recorded range of the quantity
    as factors, 1 without one.  ``remark`` is what a reader of the number has to know:
    which statistic it is, processes of a node, what its publisher says against it.

    Source: data/fugaku_published.json.
    """

    id: str
    test: str
    layer: str
    operation: str
    quantity: str  # what the publisher gave: latency, bandwidth or rate
    latency: float | None
    bandwidth: float | None
    rate: float | None
    size: int | None
    hops: int | None
    nodes: int | None
    threads: int | None
    tnis: int | None
    low: float
    high: float
    conditions: str
    remark: str
    confidence: str
    source: Source


@functools.cache
def _records():
    path = Path(__file__).with_name("data") / "fugaku_published.json"
    items = json.loads(path.read_text(encoding="utf-8"))
    return {item["id"]: item for item in items}


def _source(item):
    source = item["source"]
    place = source["doi_or_repo"]
    if place.startswith("seed "):  # a number of a collection, of no use elsewhere
        place = ""
    return Source(
        source["title"], source["authors"], source["year"], place, source["where"]
    )


def _remark(item):
    kind, comma, statistic = item["metric"].partition(", ")
    said = [statistic] if comma and kind in ("time", "CPU time of the call") else []
    if item.get("processes_per_node", 1) > 1:
        said.append(f"{item['nodes']} nodes of {item['processes_per_node']} processes")
    said += [word for word in ("unstable", "an outlier") if word in item["conditions"]]
    return ", ".join(said)


def _figure(test, quantity, item):
    value = item.get("half_round_trip_us")
    value = item["value"] * _UNITS[item["unit"]] if value is None else value * 1e-6
    low, high = (
        limit / item["value"] for limit in item.get("range", [item["value"]] * 2)
    )
    size = item["message_size_bytes"]
    latency = bandwidth = rate = None
    if quantity == "latency":
        latency = value
        if test in _PINGPONGS and size:
            bandwidth = size / value
    elif quantity == "bandwidth":
        bandwidth = value
        if test in _PINGPONGS and size:
            latency = size / value
    else:
        quantity, rate = "rate", 1 / value
        bandwidth = size / value
    return Figure(
        item["id"],
        test,
        item["layer"],
        item["operation"],
        quantity,
        latency,
        bandwidth,
        rate,
        size,
        item["hops"],
        item["nodes"],
        item["threads"],
        item.get("tnis"),
        low,
        high,
        item["conditions"],
        _remark(item),
        item["confidence"],
        _source(item),
    )


@functools.cache
def figures() -> tuple[Figure, ...]:
    """All figures that have a counterpart among our tests.

    Raises ``LookupError`` when a name here is in no record of the file.

    Source: data/fugaku_published.json.
    """
    result = []
    for test, quantity, patterns in _TESTS:
        for pattern in patterns:
            names = fnmatch.filter(_records(), pattern)
            if not names:
                raise LookupError(f"fugaku_published.json has no record {pattern}")
            result += [_figure(test, quantity, _records()[name]) for name in names]
    return tuple(result)


def figure(name: str) -> Figure:
    """The figure of this id.  Raises ``LookupError``.

    Source: data/fugaku_published.json.
    """
    for item in figures():
        if item.id == name:
            return item
    raise LookupError(f"no published figure {name!r} has a counterpart among the tests")


def any_figure(name: str) -> Figure:
    """A time of the file whether or not a test measures it; its test is empty.

    Raises ``LookupError``.

    Source: data/fugaku_published.json.
    """
    item = _records().get(name)
    if item is None or item["value"] is None or item["unit"] not in ("us", "ns"):
        raise LookupError(f"no published time {name!r}")
    return _figure("", "latency", item)


def published(
    test: str,
    *,
    layer: str | None = None,
    size: int | None = None,
    hops: int | None = None,
) -> list[Figure]:
    """Figures of one of our tests, by size.

    Parameters
    ----------
    test : str
        ``get_lat`` is ``get``, ``fadd_lat`` is ``fadd``.
    layer : str, optional
        Of the figure: utofu, uct, ucp, mpi, tcp, hardware.
    size : int, optional
        Bytes.
    hops : int, optional

    Source: data/fugaku_published.json.
    """
    test = _ALIASES.get(test, test)
    found = [
        item
        for item in figures()
        if item.test == test
        and layer in (None, item.layer)
        and size in (None, item.size)
        and hops in (None, item.hops)
    ]
    return sorted(found, key=lambda item: (item.layer, item.size or 0, item.id))


def remarks(test: str) -> list[str]:
    """What was published on a test without a time or rate of its own, in sentences.

    Source: data/fugaku_published.json.
    """
    result = []
    for name in _REMARKS.get(test, ()):
        item = _records()[name]
        said = item.get("statement") or f"{item['value']} {item['unit']}"
        result.append(f"{item['operation']}: {said} ({_source(item)})")
    return result
