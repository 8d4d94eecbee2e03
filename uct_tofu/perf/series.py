# SPDX-License-Identifier: BSD-3-Clause
"""Records put together to curves: what differs only in its size is one series.

Records of the same thing at the same place of a curve are repeats: the series has
their median, and the smallest and largest value of all their repeats as its spread.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass, field

from uct_tofu.perf.result import LATENCIES, printable

__all__ = ["Point", "Series", "backend_text", "headline", "is_pingpong", "make_series"]

QUANTITIES = ("latency", "bandwidth", "rate")
# Parts of a series that its label always names, and those that it names if needed.
_ALWAYS = ("layer", "transport", "backend", "window", "unusual", "clock")
_IF_NEEDED = ("file", "layout", "options", "host", "versions")
# Options that say how was measured, not what.
_METHOD = ("batch",)
# Options without which a value is not what its label says (one hop is the usual).
_UNUSUAL = ("tnis", "inject", "piggyback", "oversubscribed", "hops")


@dataclass(frozen=True)
class Point:
    """One place of a series.

    ``latency`` has the medians of the percentiles, in seconds; ``bandwidth`` is
    bytes per second, ``rate`` operations per second.  ``spread`` has (smallest,
    largest) of each quantity that is there.

    Source: schema.json.
    """

    size: int
    threads: int
    processes: int
    latency: dict | None
    bandwidth: float | None
    rate: float | None
    spread: dict
    records: int
    layout: str | None

    def value(self, quantity: str) -> float | None:
        """latency (its median), bandwidth or rate; None when not measured.

        Source: schema.json.
        """
        if quantity == "latency":
            return None if self.latency is None else self.latency["p50"]
        return getattr(self, quantity)


@dataclass
class Series:
    """Points that differ in size, number of threads or of processes only.

    ``parts`` is what is common to them, by name, as text; ``label`` the parts that
    tell this series from the others of its comparison.

    Source: schema.json.
    """

    test: str
    parts: dict
    points: list
    options: dict
    label: str = ""
    sources: list = field(default_factory=list)  # of figures that are no records

    @property
    def mode(self) -> str:
        """fast, timed, tofu (the machine) or peer (no uTofu below it).

        Source: schema.json, field "backend".
        """
        return self.parts["mode"]

    def at(self, size: int, threads: int, processes: int) -> Point | None:
        """The point of this place, or None.

        Source: schema.json.
        """
        for point in self.points:
            if (point.size, point.threads, point.processes) == (
                size,
                threads,
                processes,
            ):
                return point
        return None


def is_pingpong(test: str) -> bool:
    """Whether a latency of the test is half a round trip of its data.

    Then size / latency is a bandwidth, as the paper's figures show it.

    Source: ucx_perftest -h; the paper, figures 4, 5 and 8.
    """
    return test in ("put_lat", "am_lat", "tag_lat", "stream_lat") or test.startswith(
        "pingpong"
    )


def headline(test: str, points) -> str:
    """The quantity that a test is about: latency, bandwidth or rate.

    Source: ucx_perftest -h, names of tests.
    """
    if test.endswith("_bw"):
        order = ("bandwidth", "rate", "latency")
    elif test.endswith(("_mr", "_rate")) or test in ("gups", "many_to_one"):
        order = ("rate", "bandwidth", "latency")
    else:
        order = ("latency", "rate", "bandwidth")
    counts = Counter(
        name for point in points for name in order if point.value(name) is not None
    )
    return max(order, key=lambda name: counts[name])


def backend_text(backend: dict | None) -> str:
    """A backend in few words; empty for UCX's own transports.

    Source: schema.json, field "backend".
    """
    if backend is None:
        return ""
    if backend["kind"] == "tofu":
        return "machine"
    text = f"emulator {backend['mode']}"
    if backend["mode"] == "timed" and backend["profile"] not in (None, "tofud"):
        text += f" {backend['profile']}"
    return text


def _mode(backend):
    if backend is None:
        return "peer"
    return "tofu" if backend["kind"] == "tofu" else backend["mode"]


def _plain(value):
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _words(options):
    return " ".join(f"{k}={_plain(v)}" for k, v in sorted(options.items()))


def _parts(record, file):
    options = {k: v for k, v in record.params.items() if k not in _METHOD}
    unusual = {
        k: options.pop(k)
        for k in _UNUSUAL
        if k in options and (k, options[k]) != ("hops", 1)
    }
    host = record.host
    return {
        "layer": record.layer,
        "transport": "" if record.transport == record.layer else record.transport,
        "backend": backend_text(record.backend),
        "mode": _mode(record.backend),
        "window": "" if record.window is None else f"window {record.window}",
        "unusual": _words(unusual),
        "options": _words(options),
        "clock": "" if record.clock == "wall" else f"{record.clock} clock",
        "file": file,
        "host": f"{host['cpu']}, {host['cores']} cores",
        "versions": " ".join(f"{k} {v}" for k, v in sorted(record.versions.items())),
    }


def _distance(a, b):
    return abs(math.log(a / b)) if a and b else math.inf


def _samples(record, quantity, value):
    """What each repeat of a record had.

    The values of a spread are of one quantity: the one that their median is next
    to.  They give the spread of the others by proportion.
    """
    values = record.spread["values"]
    middle = statistics.median(values)
    candidates = {
        "latency": record.latency and record.latency["p50"],
        "bandwidth": record.bandwidth,
        "rate": record.rate,
    }
    own = min(candidates, key=lambda name: _distance(candidates[name], middle))
    if (own == "latency") == (quantity == "latency"):
        return [value * item / middle for item in values]
    return [value * middle / item for item in values]


def _values(record):
    """Quantity to value."""
    time = record.latency and record.latency["p50"]
    bandwidth = record.bandwidth
    if bandwidth is None and time and record.size and is_pingpong(record.test):
        bandwidth = record.size / time
    values = {"latency": time, "bandwidth": bandwidth, "rate": record.rate}
    return {name: value for name, value in values.items() if value is not None}


def _point(place, records):
    found = [_values(record) for record in records]
    medians, spread = {}, {}
    for name in QUANTITIES:
        having = [(r, v[name]) for r, v in zip(records, found) if name in v]
        if having:
            medians[name] = statistics.median(value for _, value in having)
            samples = [s for r, v in having for s in _samples(r, name, v)]
            spread[name] = (
                min(*samples, medians[name]),
                max(*samples, medians[name]),
            )
    latencies = [record.latency for record in records if record.latency]
    latency = None
    if latencies:
        latency = {
            name: statistics.median(item[name] for item in latencies)
            for name in (*LATENCIES, "mean")
        }
    layouts = {record.layout for record in records}
    return Point(
        *place,
        latency,
        medians.get("bandwidth"),
        medians.get("rate"),
        spread,
        len(records),
        layouts.pop() if len(layouts) == 1 else None,
    )


def _place(record):
    return record.size, record.threads, record.processes


def _split_layouts(records):
    """One list, or one for each layout if some place was measured with several."""
    by_place = {}
    for record in records:
        by_place.setdefault(_place(record), set()).add(record.layout)
    if all(len(layouts) == 1 for layouts in by_place.values()):
        return [("", records)]
    layouts = sorted({record.layout or "" for record in records})
    return [
        (layout, [record for record in records if (record.layout or "") == layout])
        for layout in layouts
    ]


def _needed(members):
    """The parts without which two series of a test would have the same label.

    The file is among them as soon as there are several.
    """
    needed = []
    for name in _IF_NEEDED:
        seen = {}
        for item in members:
            label = () if name == "file" else (_label(item, needed),)
            seen.setdefault(label, set()).add(item.parts[name])
        if any(len(values) > 1 for values in seen.values()):
            needed.append(name)
    return needed


def _label(series, needed):
    words = [
        f"from {series.parts[name]}" if name == "file" else series.parts[name]
        for name in (*_ALWAYS, *sorted(needed, key=lambda name: name == "file"))
    ]
    return ", ".join(printable(word) for word in words if word)


def make_series(files: dict) -> list[Series]:
    """All series of some files, with labels that tell them apart.

    Parameters
    ----------
    files : dict of str to list of Record
        By a short name of the file.

    Source: schema.json.
    """
    groups = {}
    for file, records in files.items():
        for record in records:
            parts = _parts(record, file)
            key = (record.test, tuple(parts.items()))
            groups.setdefault(key, []).append(record)
    result = []
    for (test, parts), records in groups.items():
        for layout, members in _split_layouts(records):
            places = {}
            for record in members:
                places.setdefault(_place(record), []).append(record)
            points = [_point(place, places[place]) for place in sorted(places)]
            result.append(
                Series(
                    test, {**dict(parts), "layout": layout}, points, members[0].params
                )
            )
    by_test = {}
    for item in result:
        by_test.setdefault(item.test, []).append(item)
    for members in by_test.values():
        needed = _needed(members)
        for item in members:
            item.label = _label(item, needed)
    return result
