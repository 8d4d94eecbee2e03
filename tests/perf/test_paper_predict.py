# SPDX-License-Identifier: BSD-3-Clause
"""The paper's figures and the prediction, with a stand-in for the runner."""

import fake_runner
import pytest
import samples

import uct_tofu.perf
from uct_tofu.perf import measure, paper, predict, result


@pytest.fixture
def runner(monkeypatch):
    """runner(**changes) puts the stand-in where the runner would be."""

    def put(**changes):
        fake_runner.CALLS.clear()
        fake = fake_runner.module(**changes)
        monkeypatch.setattr(uct_tofu.perf, "runner", fake, raising=False)
        return fake

    put()
    monkeypatch.setenv("UCT_TOFU_BACKEND", "emulator")
    return put


def test_every_line_of_the_prediction_holds_for_the_published_figures(runner):
    outcomes = predict.predict(measure.Plan())
    assert len(outcomes) == len(predict.lines()) > 20
    for item in outcomes:
        assert item.value is not None, item.note
        assert abs(item.error) < 0.06, item.line.text
        assert item.verdict == ("holds" if item.line.is_judged else "")
    by_id = {item.line.figure.id: item for item in outcomes}
    assert not by_id["hw.put_latency_8B"].line.is_judged  # below 1 us
    assert by_id["utofu.lt.put.8B.1hop"].line.is_judged
    assert by_id["utofu.utf.piggyback_gain"].value == pytest.approx(260e-9)
    # all of it raw uTofu, timed
    assert {call[1:4] for call in fake_runner.CALLS} == {("utofu", "utofu", "timed")}


def test_each_line_asks_for_what_its_figure_is_about():
    by_id = {line.figure.id: line.wanted for line in predict.lines()}
    assert by_id["utofu.lt.put.8B.3hop"].options["hops"] == 3
    assert by_id["hw.put_latency_8B"].options["layout"] == "short"
    assert by_id["hw.put_latency_8B"].profile == "tofud:best"
    assert by_id["utofu.lt.put_bw.1024B"].sizes == (1024,)
    assert by_id["utofu.lt.put_bw.1024B"].options["window"] == 8
    assert by_id["hw.injection_rate"].options["params"] == {"tnis": 6}


def test_six_tnis_by_the_clock_of_the_model_and_it_says_so(runner):
    (item,) = predict.predict(measure.Plan(), only="six TNIs")
    assert item.value == pytest.approx(38.1e9, rel=0.01)
    assert "model's clock" in item.note and "12.7 GB/s" in item.note
    fast, slow = item.records
    assert fast.clock == "wall" and fast.bandwidth == pytest.approx(12.7e9, rel=0.01)
    # the record has what was measured; who reads it is told how it was
    assert slow.clock == "model" and slow.params["byte_times"] == predict.SLOWER
    assert slow.bandwidth == pytest.approx(38.1e9 / predict.SLOWER, rel=0.01)


def test_bandwidth_is_that_of_the_median_message(runner):
    """A pause of the host in the middle of a run is no property of the model."""

    def run(test, *, sizes, **arguments):
        time = sizes[0] / 6.3e9
        return [samples.record(test, p50=time, bandwidth=1e9, size=sizes[0])]

    runner(run=run)
    (item,) = predict.predict(measure.Plan(), only="put, window 8, 16 KiB")
    assert item.value == pytest.approx(6.3e9) and item.verdict == "holds"


def test_a_host_that_copies_fast_enough_needs_no_other_clock(runner):
    def run(test, **arguments):
        return [samples.record(test, p50=None, bandwidth=38e9, size=1 << 20)]

    runner(run=run)
    (item,) = predict.predict(measure.Plan(), only="six TNIs")
    assert (item.note, item.value, len(item.records)) == ("", 38e9, 1)


def test_a_line_that_is_off_does_not_hold(runner, run_perf):
    assert run_perf("predict", "--only", "put 8 B").exit_code == 0

    def run(test, **arguments):
        data = fake_runner.run(test, **arguments)
        data[0]["latency"] = samples.latency(data[0]["latency"]["p50"] * 1.11)
        return data

    runner(run=run)
    done = run_perf("predict", "--only", "put 8 B")
    assert done.exit_code == 1 and done.output.count("DOES NOT HOLD") == 3
    assert "+11.1 %" in done.output


def test_what_cannot_be_measured_is_told(runner, run_perf):
    def run(test, **arguments):
        raise RuntimeError("the kernel ended with 3")

    runner(run=run)
    done = run_perf("predict", "--only", "get")
    assert done.exit_code == 1 and "not measured" in done.output
    assert "the kernel ended with 3" in done.output.replace("\n", " ")

    runner(run=lambda test, **arguments: [samples.record(size=-1)])
    done = run_perf("predict", "--only", "put 8 B, 1 hop")
    assert done.exit_code == 1 and "size" in done.output

    runner(run=lambda test, **arguments: [])
    assert run_perf("predict", "--only", "put 8 B, 1 hop").exit_code == 1
    done = run_perf("predict", "--only", "nonsense")
    assert done.exit_code == 2 and "nonsense" in done.output


def test_report_of_the_prediction(runner, run_perf, tmp_path):
    page, text, data = (tmp_path / name for name in ("p.html", "p.md", "p.jsonl"))
    done = run_perf("predict", "--html", page, "--markdown", text, "-o", data)
    assert done.exit_code == 0, done.output
    for whole in (page.read_text(), text.read_text(), done.output):
        for words in ("38.1", "0.98", "model does not cover", "Congestion"):
            assert words in whole or (words == "0.98" and "980" in whole)
        assert "CLUSTER 2018" in whole.replace("\n", " ")
    assert len(result.read(data)) >= len(predict.lines())


def test_the_plan_ends(runner):
    plan = measure.Plan(limit=0.0)
    outcomes = predict.predict(plan)
    assert {item.verdict for item in outcomes} == {"not measured"}
    assert not fake_runner.CALLS and "0 s were over" in outcomes[0].note


@pytest.mark.timeout(600)  # draws much
def test_paper(runner, run_perf, tmp_path):
    folder = tmp_path / "paper"
    done = run_perf("paper", folder)
    assert done.exit_code == 0, done.output
    names = {path.name for path in folder.iterdir()}
    for figure in ("figure-4", "figure-5", "figure-8"):
        assert {f"{figure}.png", f"{figure}.svg", f"{figure}-latency.png"} <= names
    assert {"results.jsonl", "report.html", "report.md"} <= names
    asked = {call[:4] for call in fake_runner.CALLS}
    for mode in ("fast", "timed"):
        for layer in ("utofu", "uct", "libuct"):
            assert ("pingpong_flag", layer, "utofu", mode) in asked
        assert ("tag_lat", "ucp", "utofu", mode) in asked
    # by itself, MPI has no timed mode
    assert {call[1:4] for call in asked if call[1] == "mpi"} == {("mpi", "mpi", "fast")}
    assert ("tag_lat", "ucp", "tcp", "fast") in asked
    report = (folder / "report.md").read_text()
    for text in ("Figure 4", "Figure 5", "Figure 8", "Order of the layers", "0.952"):
        assert text in report
    # once more, without measuring
    fake_runner.CALLS.clear()
    again = tmp_path / "again"
    done = run_perf("paper", again, "--from", folder / "results.jsonl")
    assert done.exit_code == 0 and not fake_runner.CALLS
    assert (again / "figure-8.svg").read_bytes() == (
        folder / "figure-8.svg"
    ).read_bytes()


@pytest.mark.timeout(600)  # draws much
def test_paper_without_an_mpi_and_without_more(runner, run_perf, tmp_path):
    def run(test, *, layer, **arguments):
        if layer in absent:
            raise RuntimeError(f"no {layer} here")
        return fake_runner.run(test, layer=layer, **arguments)

    runner(run=run)
    absent = ("mpi",)
    done = run_perf("paper", tmp_path / "a")
    assert done.exit_code == 0 and "no mpi here" in done.output
    assert "no mpi here" in (tmp_path / "a" / "report.md").read_text()
    absent = ("mpi", "uct")
    done = run_perf("paper", tmp_path / "b")
    assert done.exit_code == 1 and "no uct here" in done.output
    absent = result.LAYERS
    done = run_perf("paper", tmp_path / "c")
    assert done.exit_code == 2
    # what was measured before is not lost by a run that measures nothing
    before = (tmp_path / "b" / "results.jsonl").read_bytes()
    done = run_perf("paper", tmp_path / "b")
    assert done.exit_code == 2 and "nothing could be measured" in done.output
    assert (tmp_path / "b" / "results.jsonl").read_bytes() == before


def test_on_the_machine_there_is_one_mode():
    items = paper.wanted(("fast",))
    assert {item.mode for item in items} == {"fast"}
    assert len(items) == 7


@pytest.mark.parametrize("option", ["-o", "--html", "--markdown"])
@pytest.mark.parametrize("name", ["no/x", ""])
def test_outputs_are_looked_at_before(runner, run_perf, tmp_path, option, name):
    """Not after minutes of measuring."""
    path = tmp_path / name if name else ""
    done = run_perf("predict", "--only", "put 8 B, 1 hop", option, path)
    assert done.exit_code == 2 and "No such file" in done.output
    assert not fake_runner.CALLS


def test_an_output_stays_until_there_is_a_new_one(runner, run_perf, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("what was there")
    for path in (old, new):
        done = run_perf("predict", "--only", "nonsense", "-o", path)
        assert done.exit_code == 2
    assert old.read_text() == "what was there" and not new.exists()


def test_a_prediction_that_is_interrupted_keeps_what_it_has(runner, run_perf, tmp_path):
    def stops(test, **options):
        if len(fake_runner.CALLS) == 2:
            raise KeyboardInterrupt
        return fake_runner.run(test, **options)

    runner(run=stops)
    path = tmp_path / "records"
    done = run_perf("predict", "--only", "put 8 B", "-o", path)
    assert done.exit_code == 1 and "Aborted" in done.output  # click's, of ^C
    assert "put 8 B, 1 hop" in done.output and len(result.read(path)) == 2
