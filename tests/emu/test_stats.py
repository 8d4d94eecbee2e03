# SPDX-License-Identifier: BSD-3-Clause
"""UTOFU_EMU_STATS: counts of known work (c/emu_stats_work.c)."""

import json
import os
import re
import subprocess

import pytest

EXPECTED = {
    "tni": 2,
    "put": 7,
    "piggyback": 2,
    "get": 1,
    "armw": 2,
    "nop": 1,
    "put_bytes": 3 * 1000 + 4 * 16 + 20 + 8,
    "get_bytes": 500,
    "tcq_notices": 3,
    "local_notices": 4,
    "remote_notices": 1,
    # 3 puts, 1 stride, 2 piggybacks, 2 post_toq, 1 nop; the get was held back
    "doorbells": 9,
    "mapped": 11,
    "syscalls": 0,
    "failed": 1,
    "reg_mapped": 1,
    "reg_moved": 0,
    "reg_private": 0,
    "private_because": "",
    "tcq_polls": 4,
    "tcq_found": 3,
    "mrq_polls": 7,
    "mrq_found": 6,
}


def run(program, value, name="stats_known_work", **extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
    env["UTOFU_EMU_JOB"] = f"stats-{os.getpid()}"
    env.update(extra)
    if value:
        env["UTOFU_EMU_STATS"] = value
    done = subprocess.run(
        [program, name],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_json_to_file(emu_tests, tmp_path):
    """One JSON object per VCQ is appended to the file, nothing goes to stderr."""
    file = tmp_path / "stats.json"
    file.write_text('{"before": 1}\n')
    assert "stats" not in run(emu_tests, f"json:{file}")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0] == {"before": 1}
    assert len(lines) == 2
    counts = lines[1]
    assert {k: counts[k] for k in EXPECTED} == EXPECTED
    assert set(counts) == set(EXPECTED) | {"pid", "vcq_id", "cq", "cmp"}


def test_json_to_stderr(emu_tests):
    lines = [s for s in run(emu_tests, "json").splitlines() if s.startswith("{")]
    assert len(lines) == 1
    assert json.loads(lines[0])["put"] == 7


def test_text(emu_tests):
    """The text says the same."""
    line = next(s for s in run(emu_tests, "1").splitlines() if "utofu: stats:" in s)
    assert re.search(r"TNI 2 CQ \d+ component \d+: put 7, piggyback 2 \(3092 bytes\)", line)
    assert "get 1 (500 bytes), armw 2, nop 1; " in line
    assert "doorbells 9; mapped 11, system calls 0, failed 1; " in line


def test_private_memory_and_why(emu_tests):
    """Registrations that were moved, and what kept the last one that was not."""
    for name, moved, why in (
        ("conditions", 3, "it is too large"),
        ("switched_off", 0, "it is not to be"),
    ):
        lines = run(emu_tests, "json", name).splitlines()
        counts = [json.loads(line) for line in lines if line.startswith("{")]
        assert sorted(c["reg_moved"] for c in counts) == [0, moved]
        (target,) = (c for c in counts if c["reg_private"] > 0)
        assert target["private_because"] == why
        text = run(emu_tests, "1", name)
        assert f"private {target['reg_private']}, the last because {why}\n" in text


def test_private_memory_in_the_strict_mode(emu_tests):
    error = run(emu_tests, "1", "stats_of_failures", UTOFU_EMU_STRICT="1")
    assert ", the last because the strict mode leaves memory where it is\n" in error


def test_a_full_device(emu_tests):
    error = run(emu_tests, "json:/dev/full")
    assert "utofu: UTOFU_EMU_STATS: can't write the counts to /dev/full: No space left on device\n" in error


def test_off(emu_tests):
    assert "stats" not in run(emu_tests, None)


def test_long_path_of_file(emu_tests, tmp_path):
    folder = tmp_path / ("x" * 200) / ("y" * 200)
    folder.mkdir(parents=True)
    assert "too long" not in run(emu_tests, f"json:{folder}/counts")
    assert (folder / "counts").stat().st_size > 0


def test_name_of_file_too_long(emu_tests):
    error = run(emu_tests, "json:" + "x" * 300)
    assert "the name of the file is too long" in error
    assert '"put": 7' in error


@pytest.mark.parametrize("strict", ["0", "1"])
def test_failures_in_the_tcq(emu_tests, tmp_path, strict):
    file = tmp_path / "stats.json"
    run(emu_tests, f"json:{file}", name="stats_of_failures", UTOFU_EMU_STRICT=strict)
    assert json.loads(file.read_text().splitlines()[0])["failed"] == 5


def objects(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_vcqs_that_were_refused(emu_tests):
    """Nothing is said of a VCQ that never was."""
    assert [c["cmp"] for c in objects(run(emu_tests, "json", "stats_of_none"))] == [3]


def test_failures_of_a_session(emu_tests):
    counts = {c["tni"]: c for c in objects(run(emu_tests, "json", "stats_of_a_session"))}
    assert counts[1]["put"] == 3
    assert counts[1]["failed"] == 2
    assert counts[0]["failed"] == 0


def test_name_of_file_is_that_of_the_start(emu_tests, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(emu_tests, "json:here.json", "stats_from_elsewhere")
    assert [c["tni"] for c in objects((tmp_path / "here.json").read_text())] == [1]


def test_a_pipe_without_a_reader_is_not_waited_for(emu_tests, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert f'can\'t write to "{pipe}"' in run(emu_tests, f"json:{pipe}")


@pytest.mark.parametrize("value", ["off", "no", "false", "0"])
def test_words_for_off(emu_tests, value):
    assert "stats" not in run(emu_tests, value)


def test_another_word_is_said(emu_tests):
    error = run(emu_tests, "jason")
    assert 'UTOFU_EMU_STATS="jason" is not 1, json or json:FILE; 1 is used' in error
    assert "put 7" in error
