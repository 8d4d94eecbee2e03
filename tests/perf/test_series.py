# SPDX-License-Identifier: BSD-3-Clause
"""Records become curves: medians, spread, and labels that tell them apart."""

import pytest
import samples

from uct_tofu.perf.result import Record
from uct_tofu.perf.series import headline, make_series


def _series(*records, **files):
    files = files or {"a": records}
    return make_series(
        {name: [Record.from_dict(r) for r in items] for name, items in files.items()}
    )


def test_records_of_the_same_place_are_merged_by_median():
    (series,) = _series(*(samples.record(p50=t * 1e-6) for t in (1, 5, 2)))
    (point,) = series.points
    assert point.records == 3
    assert point.value("latency") == pytest.approx(2e-6)
    assert point.latency["p99"] == pytest.approx(2.4e-6)
    # the repeats of each are 2 % around it
    assert point.spread["latency"] == pytest.approx((0.98e-6, 5.1e-6))


def test_rates_are_merged_too():
    rates = (1e6, 7e6, 2e6)
    (series,) = _series(
        *(samples.record("put_bw", p50=None, rate=r, bandwidth=8 * r) for r in rates)
    )
    (point,) = series.points
    assert (point.rate, point.bandwidth) == pytest.approx((2e6, 16e6))


def test_the_spread_follows_the_quantity():
    """Repeats are recorded as times or as rates; the other one is their inverse."""
    spread = {"values": [1e-6, 2e-6, 8e-6], "relative": 3.5}
    (series,) = _series(samples.record(p50=2e-6, size=1000, spread=spread))
    assert series.points[0].spread["latency"] == pytest.approx((1e-6, 8e-6))
    # 1000 B in 2 us are 500 MB/s; derived, as a ping-pong has none of its own
    assert series.points[0].value("bandwidth") == pytest.approx(5e8)
    assert series.points[0].spread["bandwidth"] == pytest.approx((1.25e8, 1e9))
    spread = {"values": [1e6, 2e6, 8e6], "relative": 3.5}
    data = samples.record(
        "put_bw", p50=None, rate=2e6, bandwidth=2e9, size=1000, spread=spread
    )
    (series,) = _series(data)
    assert series.points[0].spread["rate"] == pytest.approx((1e6, 8e6))
    assert series.points[0].spread["bandwidth"] == pytest.approx((1e9, 8e9))


def test_only_pingpongs_have_a_derived_bandwidth():
    (series,) = _series(samples.record("get_lat", size=1000))
    assert series.points[0].value("bandwidth") is None


def test_a_sweep_is_one_series_whatever_layout_each_size_took():
    records = [
        samples.record(size=8, layout="short"),
        samples.record(size=4096, layout="bcopy"),
        samples.record(size=65536, layout="zcopy"),
    ]
    (series,) = _series(*records)
    assert [point.size for point in series.points] == [8, 4096, 65536]
    assert series.label == "utofu, emulator fast"
    # measured with two layouts each, they are two
    both = _series(*records, *({**r, "layout": "contig"} for r in records))
    assert sum(len(item.points) for item in both) == 6
    assert {item.parts["layout"] for item in both} == {
        "short",
        "bcopy",
        "zcopy",
        "contig",
    }


def test_what_differs_is_a_series_of_its_own_and_its_label_says_why():
    other_host = {**samples.HOST, "cpu": "Other CPU"}
    records = [
        samples.record(),
        samples.record(backend=samples.TIMED),
        samples.record(backend={**samples.TIMED, "profile": "tofud:best"}),
        samples.record(backend=samples.MACHINE),
        samples.record(backend=None, layer="libuct", transport="sysv"),
        samples.record(layer="ucp"),
        samples.record(params={"hops": 3}),
        samples.record(window=8),
        samples.record(host=other_host),
        samples.record(clock="model"),
        samples.record(versions={"uct_tofu": "9"}),
    ]
    series = _series(*records)
    assert len(series) == len(records)
    labels = [item.label for item in series]
    assert len(set(labels)) == len(labels)
    for text in ("emulator fast", "emulator timed", "tofud:best", "machine", "sysv"):
        assert any(text in label for label in labels)
    for text in ("hops=3", "window 8", "Other CPU", "model clock", "uct_tofu 9"):
        assert sum(text in label for label in labels) == 1
    assert [item.mode for item in series][:5] == [
        "fast",
        "timed",
        "timed",
        "tofu",
        "peer",
    ]


def test_a_label_says_no_more_than_is_needed():
    """The backend tells these apart, so hops and versions need not."""
    records = [
        samples.record(params={"hops": 1}),
        samples.record(backend=None, layer="mpi", transport="mpi", versions={}),
    ]
    labels = [item.label for item in _series(*records)]
    assert labels == ["utofu, emulator fast", "mpi"]


def test_how_it_was_timed_does_not_matter():
    records = [samples.record(params={"batch": n}) for n in (1, 16)]
    (series,) = _series(*records)
    assert series.points[0].records == 2


def test_files_are_kept_apart():
    series = _series(before=[samples.record()], after=[samples.record()])
    assert [item.label for item in series] == [
        "utofu, emulator fast, from before",
        "utofu, emulator fast, from after",
    ]


@pytest.mark.parametrize(
    ("test", "quantity"),
    [("put_lat", "latency"), ("put_bw", "bandwidth"), ("add_mr", "rate")],
)
def test_headline(test, quantity):
    record = samples.record(test, rate=1e6, bandwidth=1e9, size=1000)
    (series,) = _series(record)
    assert headline(test, series.points) == quantity
    # a test that lacks it shows what it has
    (series,) = _series(samples.record(test, p50=None, rate=1e6))
    assert headline(test, series.points) == "rate"
