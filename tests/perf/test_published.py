# SPDX-License-Identifier: BSD-3-Clause
"""The published figures: each name exists, each unit is right, each has a source."""

import json
from importlib import resources

import pytest

from uct_tofu.perf import paper, predict, published

DATA = json.loads(
    resources.files("uct_tofu.perf")
    .joinpath("data/fugaku_published.json")
    .read_text(encoding="utf-8")
)


def test_the_data_are_installed_and_have_sources():
    assert len(DATA) > 200
    assert len({item["id"] for item in DATA}) == len(DATA)
    for item in DATA:
        assert item["source"]["title"] and item["source"]["year"] > 2000
        assert item["confidence"] and item["layer"] and item["operation"]


def test_every_mapped_id_exists():
    """A pattern or name that fits nothing raises."""
    ids = {item["id"] for item in DATA}
    figures = published.figures()
    assert len(figures) > 120
    for figure in figures:
        assert figure.id in ids
        assert figure.source.title and figure.source.year
    for line in predict.lines():
        assert line.figure.id in ids
    for figure in paper.FIGURES:
        assert paper._published(figure)


def test_a_name_that_fits_nothing_is_told(monkeypatch):
    monkeypatch.setattr(published, "_TESTS", (("put_lat", "latency", ("no.such.*",)),))
    with pytest.raises(LookupError, match=r"no\.such"):
        published.figures.__wrapped__()
    for find in (published.figure, published.any_figure):
        with pytest.raises(LookupError, match="nonsense"):
            find("nonsense")
    with pytest.raises(LookupError, match="tnis"):
        published.any_figure("hw.tnis")  # a number, but no time


@pytest.mark.parametrize(
    ("name", "quantity", "value"),
    [
        ("utofu.lt.put.8B.1hop", "latency", 0.98e-6),
        ("utofu.lt.get.8B.1hop", "latency", 1.495e-6),
        ("utofu.lt.armw8.8B.1hop", "latency", 1.335e-6),
        ("hw.put_latency_8B", "latency", 0.49e-6),
        ("hw.injection_rate", "bandwidth", 38.1e9),
        ("utofu.lt.put_bw.1024B", "bandwidth", 3.49e9),
        ("tcp.ucx.2MiB_peak", "bandwidth", 175e6),
        ("mpi.fj.seed.1KiB", "bandwidth", 490e6),
        # its publisher gave the time; and a round trip in the other case
        ("mpi.riken.pingpong.4194304B", "bandwidth", 4194304 / 668e-6),
        ("utofu.utf.rtt.8B", "latency", 0.765e-6),
        ("tcp.ucx.1KiB", "latency", 1024 / 25e6),
        ("utofu.lt.g_1KiB", "rate", 1 / 293e-9),
    ],
)
def test_units(name, quantity, value):
    assert getattr(published.figure(name), quantity) == pytest.approx(value)


def test_the_data_agree_with_the_throughput_that_they_also_have():
    by_id = {item["id"]: item for item in DATA}
    checked = 0
    for figure in published.figures():
        said = by_id[figure.id].get("throughput_MB_s")
        if said and said > 1000 and figure.bandwidth:
            assert figure.bandwidth == pytest.approx(said * 1e6, rel=0.01)
            checked += 1
    assert checked > 5


def test_range_and_selection():
    figure = published.figure("utofu.lt.put.8B.2hop")
    assert (figure.low, figure.high) == pytest.approx((1.04 / 1.06, 1.08 / 1.06))
    hops = published.published("put_lat", layer="utofu", size=8, hops=2)
    assert [item.id for item in hops] == ["utofu.lt.put.8B.2hop"]
    names = [item.id for item in published.published("get_lat")]
    assert names == [item.id for item in published.published("get")] and len(names) == 3
    assert published.published("no_such_test") == []


def test_what_has_no_number_is_said_in_words():
    (said,) = published.remarks("pingpong_flag")
    assert "UCT" in said and "figure 8" in said
    assert "37.8" in published.remarks("gups")[0]
    assert published.remarks("put_lat") == []


def test_sources_for_plots_are_in_letters_that_fonts_have():
    for figure in published.figures():
        assert figure.source.short.isascii() and len(figure.source.short) > 12
        assert "seed" not in str(figure.source)
