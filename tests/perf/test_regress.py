# SPDX-License-Identifier: BSD-3-Clause
"""perf/regress.py: what got slower is found, noise is not; no time is judged here."""

import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[2] / "perf"
SCRIPT = PERF / "regress.py"
sys.path.insert(0, str(PERF))
import regress_history as history
import regress_set

sys.path.remove(str(PERF))

LINES = [line.name for line in regress_set.LINES]


def noisy(rng, middle=1.0, sigma=0.03, rounds=7):
    return [middle * rng.lognormvariate(0, sigma) for _ in range(rounds)]


def entry(commit="a" * 40, ratios=None, **more):
    """An entry of a machine that there is not."""
    made = {
        "schema": history.SCHEMA,
        "time": "2026-01-02T03:04:05Z",
        "commit": commit,
        "dirty": False,
        "cpu": "Some CPU",
        "cores": 2,
        "machine": "x86_64",
        "load": 0.1,
        "compiler": "cc 1.0",
        "rounds": 7,
        "ratios": ratios or {},
        "counts": {},
    }
    return {**made, **more}


def write(path, *entries):
    path.write_text("".join(json.dumps(item) + "\n" for item in entries))
    return path


@pytest.fixture
def regress(processes, tmp_path):
    """regress(*arguments) -> (exit code, output)."""

    def run(*arguments, script=SCRIPT):
        command = [sys.executable, str(script), *map(str, arguments)]
        return processes.run(command, cwd=tmp_path, timeout=110)

    return run


@pytest.mark.parametrize("sigma", [0.01, 0.03, 0.1, 0.3])
def test_noise_is_not_found(sigma):
    rng = random.Random(f"noise {sigma}")
    found = 0
    for _ in range(500):
        before = [v for _ in range(3) for v in noisy(rng, sigma=sigma)]
        verdict = history.judge_ratio("x", before, noisy(rng, sigma=sigma))
        found += verdict.word != "same"
    assert found <= 1, found


@pytest.mark.parametrize(("sigma", "factor"), [(0.01, 1.08), (0.03, 1.2), (0.1, 1.6)])
def test_what_got_slower_is_found(sigma, factor):
    rng = random.Random(f"slower {sigma}")
    for _ in range(200):
        before = [v for _ in range(3) for v in noisy(rng, sigma=sigma)]
        now = noisy(rng, middle=factor, sigma=sigma)
        assert history.judge_ratio("x", before, now).word == "slower"
        assert history.judge_ratio("x", now, before).word == "faster"


def test_less_than_a_twentieth_is_no_news():
    assert history.judge_ratio("x", [1.0] * 7, [1.04] * 7).word == "same"
    assert history.judge_ratio("x", [1.0] * 7, [1.06] * 7).word == "slower"
    # two rounds have no spread that means something
    assert history.judge_ratio("x", [1.0] * 7, [2.0] * 2).word == "same"


def test_a_single_bad_round_decides_nothing():
    rng = random.Random(4)
    before = noisy(rng)
    assert history.judge_ratio("x", before, [*noisy(rng, rounds=6), 9.0]).word == "same"
    assert history.judge_ratio("x", [*before, 0.01], noisy(rng)).word == "same"


def test_counts_are_exact_and_of_one_compiler():
    def words(old, new, **more):
        before = entry(counts={"put instructions": old})
        now = entry(counts={"put instructions": new}, **more)
        return [v.word for v in history.judge([before], now)]

    assert words(100.0, 101.0) == ["slower"]
    assert words(100.0, 99.0) == ["faster"]
    assert words(100.0, 100.0) == ["same"]
    assert words(100.0, 200.0, compiler="cc 2.0") == ["new"]


def test_compare_names_what_got_slower(regress, tmp_path):
    rng = random.Random(1)
    entries = [
        entry(f"{i:040x}", {name: noisy(rng) for name in LINES}) for i in range(5)
    ]
    path = write(tmp_path / "h.jsonl", *entries)
    code, output = regress("compare", "--history", path)
    assert code == 0 and "nothing got slower" in output, output

    slow = {name: noisy(rng) for name in LINES}
    slow["uct am_lat 8 B"] = noisy(rng, middle=1.3)
    slow["uct fadd"] = noisy(rng, middle=0.7)
    path = write(tmp_path / "h.jsonl", *entries, entry("f" * 40, slow, dirty=True))
    code, output = regress("compare", "--history", path)
    assert code == 1, output
    assert output.splitlines()[-1] == "slower: uct am_lat 8 B"
    assert "ffffffffffff, with changes" in output
    (line,) = [text for text in output.splitlines() if text.startswith("uct fadd")]
    assert line.endswith("faster")
    shown = [text for text in output.splitlines() if " -> " in text]
    assert len(shown) == 2
    code, output = regress("compare", "--history", path, "--all")
    assert sum(" -> " in text for text in output.splitlines()) == len(LINES)


def test_only_the_same_kind_of_machine_counts(regress, tmp_path):
    fast, slow = {"uct fadd": [1.0] * 7}, {"uct fadd": [2.0] * 7}
    other = entry(ratios=fast, cpu="Other CPU")
    path = write(tmp_path / "h.jsonl", other, entry(ratios=slow))
    code, output = regress("compare", "--history", path)
    assert code == 2 and "Other CPU" in output
    path = write(tmp_path / "h.jsonl", entry(ratios=fast), other, entry(ratios=slow))
    code, output = regress("compare", "--history", path)
    assert code == 1 and "slower: uct fadd" in output


def test_only_the_same_method_counts():
    old, now = entry(), entry("b" * 40, method=2)
    with pytest.raises(history.HistoryError, match="by method 2"):
        history.baseline([old, now], now, last=3)
    assert history.baseline([old, entry("c" * 40), now], old, last=3) == [
        entry("c" * 40)
    ]


def test_a_changed_tree_is_no_measure_where_there_is_another():
    clean, tried = entry(), entry(dirty=True)
    new = entry("b" * 40)
    assert history.baseline([clean, tried, new], new, last=3) == [clean]
    assert history.baseline([tried, new], new, last=3) == [tried]


def test_last_and_since():
    entries = [entry(f"{i:040x}") for i in range(6)]
    new = entries[-1]
    assert history.baseline(entries, new, last=2) == entries[3:5]
    assert history.baseline(entries, new, last=9) == entries[:5]
    assert history.baseline(entries, new, last=2, since=f"{1:040x}") == [entries[1]]
    with pytest.raises(history.HistoryError, match="is of ffffffffffff"):
        history.baseline(entries, new, last=2, since="f" * 40)
    with pytest.raises(history.HistoryError, match="no earlier entry"):
        history.baseline([new], new, last=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no entry"),
        ("{\n", "h.jsonl:1"),
        ('{"schema": "other/1"}\n', "no entry of the schema"),
        (json.dumps(entry(ratios={"x": [0]})) + "\n", "ratios, x"),
        (json.dumps(entry(ratios={"x": []})) + "\n", "ratios, x"),
        (json.dumps(entry(ratios={"x": [1e999]})) + "\n", "ratios, x"),
        (json.dumps(entry(counts={"x": True})) + "\n", "counts, x"),
        (json.dumps(entry(commit=None)) + "\n", "commit"),
        (json.dumps(entry()) + "\n", "no earlier entry"),
    ],
)
def test_what_is_no_history_is_said(regress, tmp_path, text, said):
    path = tmp_path / "h.jsonl"
    path.write_text(text)
    code, output = regress("compare", "--history", path)
    assert code == 2 and said in output, output
    assert "Traceback" not in output


def test_history_has_a_column_for_each_entry(regress, tmp_path):
    path = write(
        tmp_path / "h.jsonl",
        entry("1" * 40, {"uct fadd": [1.0, 3.0, 2.0]}),
        entry("2" * 40, {"uct fadd": [4.0], "new": [5.0]}, counts={"put": 123.0}),
    )
    code, output = regress("history", "--history", path)
    assert code == 0, output
    rows = {line[:28].strip(): line[28:].split() for line in output.splitlines()}
    assert rows["uct fadd"] == ["2.000", "4.000"]
    assert rows["new"] == ["-", "5.000"]
    assert rows["put"] == ["-", "123.000"]
    code, output = regress("history", "--history", path, "-n", 1, "--only", "fadd")
    assert code == 0 and "1.000" not in output and "new" not in output


def test_rounds_take_turns():
    """Each side once a round, the other first in every other round."""
    calls = []

    def once(line, side, seconds):
        calls.append(side)
        return {"ours": 3.0, "peer": 2.0}[side.transport]

    ours, peer = regress_set.Side("libuct", "ours"), regress_set.Side("libuct", "peer")
    line = regress_set.Line("x", "put_lat", 8, ours, peer)
    good, failed = regress_set.measure(
        [line], 3, 0.1, progress=lambda text: None, measure_once=once
    )
    assert good == {"x": [1.5] * 3} and not failed
    assert calls == [ours, peer, peer, ours, ours, peer]


def test_a_line_that_fails_is_told_and_the_others_are_measured():
    def once(line, side, seconds):
        if line.name == "uct fadd":
            raise ValueError("this one can't")
        return 1.0

    good, failed = regress_set.measure(
        regress_set.LINES, 2, 0.1, progress=lambda text: None, measure_once=once
    )
    assert failed == {"uct fadd": "this one can't"}
    assert set(good) == set(LINES) - {"uct fadd"}


def test_lines_have_names_of_their_own():
    assert len(set(LINES)) == len(LINES)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("name", ["core put_lat 8 B", "uct am_bw 8 B", "ucp tag_lat"])
def test_run_adds_an_entry(regress, tmp_path, name):
    path = tmp_path / "results" / "h.jsonl"
    words = ["run", "--history", path, "--rounds", 1, "--seconds", 0.001]
    words += ["--no-counts", "--stale-ok", "--only", name]
    if shutil.which("git") is None or not (PERF.parent / ".git").exists():
        code, output = regress(*words)
        assert code == 2 and "git tree" in output
        return
    code, output = regress(*words)
    assert code == 0, output
    (made,) = history.read(path)
    ((line, values),) = made["ratios"].items()
    assert line.startswith(name) and len(values) == 1
    # rounded twice: five digits in the entry, three places on the screen
    shown = float(re.search(r"^\S.* (\S+) \(\S+ to \S+\)$", output, re.M).group(1))
    assert abs(shown - statistics.median(values)) < 0.00106
    head = subprocess.run(
        ["git", "-C", str(PERF), "rev-parse", "HEAD"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert made["commit"] == head
    assert os.uname().nodename not in path.read_text().replace(made["cpu"], "")


def test_run_knows_a_changed_tree_and_a_stale_package(regress, tmp_path):
    """A tree of its own, with a source that is newer than what is installed."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    top = tmp_path / "tree"
    # without the history of this tree: the one that is made is looked at
    ignored = shutil.ignore_patterns("__pycache__", "results")
    shutil.copytree(PERF, top / "perf", ignore=ignored)
    (top / "cython").mkdir()
    source = top / "cython" / "new.c"
    source.write_text("int x;\n")
    git = ["git", "-C", str(top), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True, stdin=subprocess.DEVNULL)
    script = top / "perf" / "regress.py"
    words = ["run", "--only", "core put_lat", "--rounds", 1, "--seconds", 0.001]
    words += ["--no-counts"]
    code, output = regress(*words, script=script)
    assert code == 2 and "new.c is newer" in output
    os.utime(source, (1, 1))
    code, output = regress(*words, script=script)
    assert code == 0, output
    assert "changes" not in output
    source.write_text("int y;\n")
    code, output = regress(*words, "--stale-ok", script=script)
    assert code == 0 and "the tree has changes" in output
    first, second = history.read(top / "perf" / "results" / "regress.jsonl")
    assert (first["dirty"], second["dirty"]) == (False, True)
    # git and history work with a file that was never added
    code, output = regress("compare", script=script)
    assert code == 0, output
    code, output = regress("compare", "--since", "HEAD", script=script)
    assert code == 0, output
    code, output = regress("compare", "--since", "nothing", script=script)
    assert code == 2 and "no commit" in output
