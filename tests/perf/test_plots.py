# SPDX-License-Identifier: BSD-3-Clause
"""Plots: log axes, units, one legend entry a series, points where they belong."""

import itertools
import xml.etree.ElementTree

import pytest
import samples

from uct_tofu.perf import compare as compared
from uct_tofu.perf import plots
from uct_tofu.perf.result import Record


def _comparison(*records, reference=True, **arguments):
    files = {"a": ("a.jsonl", [Record.from_dict(item) for item in records])}
    return compared.compare(files, reference=reference, **arguments)


@pytest.fixture(scope="module")
def laptop():
    """All plots of the sample of one host, by name."""
    made = _comparison(*samples.laptop(), baseline="layer=utofu")
    return {plot.name: plot for plot in plots.all_plots(made)}


def _axes(plot):
    (axes,) = plot.figure.axes
    return axes


def _legend(plot):
    (legend,) = plot.figure.legends
    return [entry.get_text().replace("\n", " ") for entry in legend.get_texts()]


def test_all_kinds_are_there(laptop):
    assert len(laptop) == len(set(laptop))
    for name in (
        "put_lat-latency-size",
        "put_lat-bandwidth-size",
        "put_lat-ratio-size",
        "put_lat-percentiles",
        "put_bw-bandwidth-size",
        "gups-rate-threads",
        "gups-ratio-threads",
    ):
        assert name in laptop


def test_axes_are_logarithmic_and_say_their_units(laptop):
    labels = {
        "put_lat-latency-size": ("message size [B]", "latency, median [us]"),
        "put_bw-bandwidth-size": ("message size [B]", "bandwidth [GB/s]"),
        "gups-rate-threads": ("threads", "rate [million operations/s]"),
        "put_lat-ratio-size": ("message size [B]", "latency / baseline"),
    }
    for name, expected in labels.items():
        axes = _axes(laptop[name])
        assert (axes.get_xlabel(), axes.get_ylabel()) == expected
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    axes = _axes(laptop["put_lat-percentiles"])
    assert axes.get_yscale() == "log" and "[us]" in axes.get_ylabel()


def test_every_series_is_drawn_with_its_numbers():
    records = samples.sweep("put_lat", 1e-6, 1e-9, sizes=(8, 1024))
    (test,) = _comparison(*records, reference=False).tests
    plot = plots.curves(test, "size", "latency")
    line = _axes(plot).lines[0]
    assert list(line.get_xdata()) == [8, 1024]
    assert list(line.get_ydata()) == pytest.approx([1.008, 2.024])
    # bars from the smallest to the largest repeat, 2 % each way
    (bars,) = [item for item in _axes(plot).collections if len(item.get_segments())]
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((1.008 * 0.98, 1.008 * 1.02))
    assert "smallest and largest repeat" in plot.caption
    assert _legend(plot) == ["utofu, emulator fast"]
    assert plots.curves(test, "size", "rate") is None


def test_published_points_have_place_and_source(laptop):
    plot = laptop["put_lat-latency-size"]
    points = {
        (x, round(y, 3))
        for line in _axes(plot).lines
        if line.get_fillstyle() == "none"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    assert {(8, 0.98), (8, 1.06), (8, 1.13), (8, 0.49)} <= points
    assert any("published" in text and "[1]" in text for text in _legend(plot))
    assert "The Tofu Interconnect D (2018)" in plot.caption
    limits = [
        text for text in _legend(laptop["put_bw-bandwidth-size"]) if "TNI" in text
    ]
    assert any("38.1 GB/s" in text for text in limits)


def test_barriers_are_over_nodes():
    """Also when ours is of one number only: the published ones are of many."""
    (test,) = _comparison(samples.record("barrier")).tests
    assert test.axes == ["processes"]
    plot = plots.curves(test, "processes", "latency")
    assert _axes(plot).get_xlabel() == "processes or nodes"
    assert any(384 in line.get_xdata() for line in _axes(plot).lines)
    assert 384 in [row.processes for row in test.rows if row.source]


def test_without_a_reference_there_are_none():
    made = _comparison(*samples.laptop(), reference=False)
    for plot in plots.all_plots(made):
        assert not any("published" in text for text in _legend(plot))


def test_series_are_told_apart_without_colour(laptop):
    for plot in laptop.values():
        lines = [
            line for line in _axes(plot).lines if line.get_marker() not in "|_None"
        ]
        lines = [line for line in lines if line.get_fillstyle() != "none"]
        styles = [(line.get_marker(), line.get_linestyle()) for line in lines]
        assert len(set(styles)) == len(styles)
        assert all(line.get_color() in plots.COLOURS for line in lines)
    # by what was below: fast, timed, none
    used = {
        line.get_linestyle() for line in _axes(laptop["put_lat-latency-size"]).lines
    }
    assert {"-", "--", ":"} <= used


def test_percentiles_rise_from_left_to_right():
    (test,) = _comparison(samples.record(p50=2e-6)).tests
    (line,) = _axes(plots.percentiles(test)).lines
    assert list(line.get_ydata()) == pytest.approx([1.9, 2, 2.1, 2.4, 5, 60])
    ticks = [
        tick.get_text() for tick in _axes(plots.percentiles(test)).get_xticklabels()
    ]
    assert ticks == ["min", "p50", "p90", "p99", "p99.9", "max"]


def _overlap(boxes):
    return any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.timeout(600)  # draws much
def test_texts_are_inside_and_do_not_overlap(laptop):
    for plot in laptop.values():
        figure, axes = plot.figure, _axes(plot)
        figure.canvas.draw()
        whole = figure.bbox
        for axis in (axes.xaxis, axes.yaxis):
            boxes = [
                tick.label1.get_window_extent()
                for tick in axis.get_major_ticks() + axis.get_minor_ticks()
                if tick.label1.get_text()
                and tick.label1.get_visible()
                and axis.get_view_interval()[0]
                <= tick.get_loc()
                <= axis.get_view_interval()[1]
            ]
            assert len(boxes) >= 2 and not _overlap(boxes), plot.name
        parts = [figure.legends[0].get_window_extent(), axes.title.get_window_extent()]
        parts += [text.get_window_extent() for text in figure.texts]
        parts += [axes.xaxis.label.get_window_extent()]
        parts += [axes.yaxis.label.get_window_extent()]
        assert not _overlap(parts), plot.name
        for box in parts:
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1, plot.name
            assert whole.y0 <= box.y0 and box.y1 <= whole.y1, plot.name


@pytest.mark.timeout(600)  # draws much
@pytest.mark.filterwarnings("error")
def test_odd_data_are_drawn_without_a_warning(tmp_path):
    """One point only, size 0, a minimum of 0, long names."""
    latency = {**samples.latency(1e-6), "min": 0}
    for records in (
        [samples.record()],
        [samples.record(size=0)],
        [samples.record(latency=latency)],
        [samples.record("reg_mem", size=size) for size in (0, 1, 1 << 40)],
        [samples.record(params={"note": "$x_{$ " + "y" * 150}), samples.record()],
        [samples.record("barrier", processes=n, size=0) for n in (2, 3, 4, 1000)],
    ):
        for number, plot in enumerate(plots.all_plots(_comparison(*records))):
            plot.name = str(number)
            assert plots.save(plot, tmp_path, "png").stat().st_size > 5000


def test_files(laptop, tmp_path):
    plot = laptop["put_lat-latency-size"]
    png = plots.save(plot, tmp_path, "png")
    assert png.name == "put_lat-latency-size.png"
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    svg = plots.save(plot, tmp_path, "svg")
    root = xml.etree.ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg")
    assert plots.to_bytes(plot, "svg") == svg.read_bytes()  # same data, same file
