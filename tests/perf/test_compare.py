# SPDX-License-Identifier: BSD-3-Clause
"""Files side by side: ratios, what they are ratios to, tables and reports."""

import html.parser
import re
import subprocess
import sys

import pytest
import samples

from uct_tofu.perf import compare as compared
from uct_tofu.perf import result
from uct_tofu.perf.result import Record


def _files(**files):
    return {
        name: (f"{name}.jsonl", [Record.from_dict(item) for item in items])
        for name, items in files.items()
    }


def _ratios(comparison, test="put_lat"):
    (found,) = [item for item in comparison.tests if item.test == test]
    return {
        (row.label, row.size): row.ratio for row in found.rows if row.source is None
    }


def test_a_file_is_the_baseline():
    files = _files(
        before=[samples.record(p50=2e-6), samples.record(p50=4e-6, size=64)],
        after=[samples.record(p50=1e-6), samples.record(p50=6e-6, size=64)],
    )
    names = ("utofu, emulator fast, from before", "utofu, emulator fast, from after")
    expected = {
        (names[0], 8): 1,
        (names[0], 64): 1,
        (names[1], 8): 0.5,
        (names[1], 64): 1.5,
    }
    assert _ratios(compared.compare(files)) == pytest.approx(expected)  # the first
    for name in ("before", "before.jsonl", "file=before", "/some/where/before.jsonl"):
        made = compared.compare(files, baseline=name)
        assert _ratios(made) == pytest.approx(expected)
    made = compared.compare(files, baseline="after")
    assert _ratios(made)[names[0], 8] == pytest.approx(2)


def test_a_layer_is_the_baseline():
    files = _files(
        a=[
            samples.record(p50=1e-6),
            samples.record(p50=3e-6, layer="ucp"),
            samples.record(p50=10e-6, backend=samples.TIMED),
            samples.record(p50=20e-6, backend=samples.TIMED, layer="ucp"),
        ]
    )
    assert set(_ratios(compared.compare(files)).values()) == {None}  # one file
    ratios = _ratios(compared.compare(files, baseline="layer=utofu"))
    assert ratios["ucp, utofu, emulator fast", 8] == pytest.approx(3)
    assert ratios["ucp, utofu, emulator timed", 8] == pytest.approx(2)
    ratios = _ratios(compared.compare(files, baseline="backend=emulator fast"))
    assert ratios["utofu, emulator timed", 8] == pytest.approx(10)
    assert ratios["ucp, utofu, emulator timed", 8] == pytest.approx(20 / 3)
    ratios = _ratios(
        compared.compare(files, baseline="layer=utofu;backend=emulator fast")
    )
    assert ratios["ucp, utofu, emulator timed", 8] == pytest.approx(20)


def test_the_machine_is_held_against_the_timed_mode():
    files = _files(
        host=[
            samples.record(p50=0.1e-6),
            samples.record(p50=1e-6, backend=samples.TIMED),
        ],
        fugaku=[samples.record(p50=1.1e-6, backend=samples.MACHINE)],
    )
    ratios = _ratios(compared.compare(files))
    assert ratios["utofu, machine, from fugaku", 8] == pytest.approx(1.1)


def test_unlike_things_have_no_ratio():
    base = samples.record(params={"hops": 1}, window=8)
    for other in (
        samples.record(layer="mpi", params={"hops": 1}, window=8),
        samples.record(params={"hops": 3}, window=8),
        samples.record(params={"hops": 1}, window=16),
        samples.record(params={"hops": 1}, window=8, size=9),
        samples.record(params={"hops": 1}, window=8, threads=2),
        samples.record("get_lat", params={"hops": 1}, window=8),
    ):
        made = compared.compare(_files(a=[base], b=[other]))
        (ratio,) = [
            row.ratio for test in made.tests for row in test.rows if "b" in row.label
        ] or [made.tests[-1].rows[0].ratio]
        assert ratio is None
    # an option that only one of them knows is no difference
    made = compared.compare(_files(a=[base], b=[samples.record(params={}, p50=2e-6)]))
    assert 2 in [pytest.approx(row.ratio) for row in made.tests[0].rows]


def test_what_cannot_be_compared_is_told():
    files = _files(a=[samples.record()])
    for baseline, said in (
        ("layer=ucp", "fits nothing"),
        ("nosuchfile", "fits nothing"),
        ("color=red", "color"),
        ("=", "none of"),
    ):
        with pytest.raises(compared.CompareError, match=said):
            compared.compare(files, baseline=baseline)
    with pytest.raises(compared.CompareError, match="nosuch"):
        compared.compare(files, tests=["nosuch"])


def test_published_figures_are_rows_with_their_source():
    files = _files(a=[samples.record()])
    made = compared.compare(files, reference=True)
    rows = [row for row in made.tests[0].rows if row.source]
    first = next(row for row in rows if "ping-pong, 1 hop" in row.label)
    assert (first.size, first.value) == (8, pytest.approx(0.98e-6))
    assert (first.low, first.high) == pytest.approx((0.97e-6, 0.99e-6))
    assert not [row for row in compared.compare(files).tests[0].rows if row.source]


def test_files_of_one_name(tmp_path):
    paths = [tmp_path / name / "a.jsonl" for name in "xy"]
    for path in paths:
        path.parent.mkdir()
        result.write(path, [samples.record()])
    assert list(compared.load_files(paths)) == ["a", "a-2"]


def test_the_terminal_has_tables(run_perf, laptop_file, machine_file):
    done = run_perf("compare", laptop_file, machine_file, "--reference", "published")
    assert done.exit_code == 0, done.output
    for text in ("put_lat", "980 ns", "6.35 GB/s", "emulator timed", "below 1 is fas"):
        assert text in done.output
    assert "published: multithreaded GUPs" in done.output
    only = run_perf("compare", laptop_file, "--test", "gups").output
    assert "gups" in only and "put_lat" not in only and "ratio" not in only


def test_errors_of_the_command(run_perf, laptop_file, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    for words, said in (
        ((bad,), "bad.jsonl:1: schema"),
        ((tmp_path / "none.jsonl",), "none.jsonl"),
        ((laptop_file, "--baseline", "layer=uucp"), "fits nothing"),
        (
            (laptop_file, "--test", "gups", "--html", tmp_path / "no" / "x.html"),
            "x.html",
        ),
    ):
        done = run_perf("compare", *words)
        assert done.exit_code == 2 and said in done.output, done.output


class _Page(html.parser.HTMLParser):
    """Collects what a page refers to, and checks that its tags close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.refers, self.images, self.rows = [], [], 0, []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.refers += [value for name, value in attrs if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        self.images += tag == "img"
        assert tag != "script"
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += 1
        if tag not in ("img", "meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.timeout(600)  # draws much
def test_reports(run_perf, laptop_file, machine_file, tmp_path):
    page, text, plots = (tmp_path / name for name in ("r.html", "r.md", "plots"))
    done = run_perf(
        *("compare", laptop_file, machine_file, "--reference", "published"),
        *("--html", page, "--markdown", text, "--plots", plots, "--format", "svg"),
        *("--test", "put_lat", "--test", "gups"),
    )
    assert done.exit_code == 0, done.output
    seen = _Page(page.read_text())
    drawn = sorted(path.name for path in plots.iterdir())
    assert seen.images == len(drawn) == 5
    # nothing from elsewhere
    assert all(ref.startswith("data:image/svg+xml;base64,") for ref in seen.refers)
    for name in (
        "put_lat-latency-size.svg",
        "put_lat-bandwidth-size.svg",
        "put_lat-percentiles.svg",
        "put_lat-ratio-size.svg",
        "gups-rate-threads.svg",
    ):
        assert name in drawn
    markdown = text.read_text()
    links = re.findall(r"!\[[^]]*\]\(([^)]+)\)", markdown)
    assert len(links) == len(drawn)
    assert all((tmp_path / link).is_file() for link in links)
    widths = {}
    for table in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
        lines = table.splitlines()
        widths[lines[0]] = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    assert widths and all(len(counts) == 1 for counts in widths.values())
    for whole in (page.read_text(), markdown):
        assert "The Tofu Interconnect D" in whole and "Some CPU" in whole


def test_names_in_files_cannot_change_a_report(run_perf, tmp_path):
    evil = "<script>x</script>|`[a](b)"
    data = [
        samples.record(host={**samples.HOST, "cpu": evil}, params={"note": evil}),
        samples.record(params={"note": "[bold]$x_{$ plain"}, p50=2e-6),
    ]
    path = tmp_path / "a.jsonl"
    result.write(path, data)
    page, text = tmp_path / "r.html", tmp_path / "r.md"
    done = run_perf("compare", path, "--html", page, "--markdown", text)
    assert done.exit_code == 0, done.output
    assert "[bold]" in done.output  # no markup of the terminal's
    _Page(page.read_text())  # asserts that there is no script
    assert "<script>" not in text.read_text().replace("\\<", "")


def test_files_that_fail_are_named(run_perf, tmp_path, laptop_file):
    missing = tmp_path / "missing.jsonl"
    done = run_perf("compare", laptop_file, missing)
    assert done.exit_code == 2
    assert done.stderr == f"{missing}: No such file or directory\n"
    done = run_perf("compare", laptop_file, "--html", "/dev/full")
    assert done.exit_code == 2
    assert done.stderr == "/dev/full: No space left on device\n"
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "uct_tofu", "perf", "compare", laptop_file]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.stderr == "Error: standard output: No space left on device\n"


@pytest.mark.parametrize("option", ["--html", "--markdown"])
def test_a_report_does_not_replace_records(run_perf, laptop_file, option):
    """As the shell gives them of "--html *.jsonl"."""
    before = laptop_file.read_bytes()
    for command in (["compare", laptop_file], ["predict"]):
        done = run_perf(*command, option, laptop_file)
        assert done.exit_code == 2 and "has records, and is no report" in done.output
    assert laptop_file.read_bytes() == before


def test_labels_say_what_would_mislead():
    def label(*items, test="put_lat", reference=False):
        made = compared.compare(_files(a=items), reference=reference)
        (found,) = [item for item in made.tests if item.test == test]
        return [row.label for row in found.rows]

    assert label(samples.record(clock="model")) == ["utofu, emulator fast, model clock"]
    params = {"hops": 1, "tnis": 6, "oversubscribed": True}
    (text,) = label(samples.record(params=params))
    assert text == "utofu, emulator fast, oversubscribed=true tnis=6"
    (text,) = label(samples.record("put_bw", window=8), test="put_bw")
    assert text == "utofu, emulator fast, window 8"
    words = label(samples.record("barrier"), test="barrier", reference=True)
    assert sum("maximum over ranks, mean of 100000" in word for word in words) == 22
    assert sum("unstable" in word for word in words) == 12
    assert any("384 nodes of 4 processes" in word for word in words)
    assert any("an outlier" in word for word in words)
    words = label(samples.record("reg_mem"), test="reg_mem", reference=True)
    assert any("maximum over a run up to 16 MiB" in word for word in words)
