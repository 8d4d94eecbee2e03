# SPDX-License-Identifier: BSD-3-Clause
"""The format of records: what is one, what is refused, and how that is told."""

import copy
import dataclasses
import json
import os
import stat

import jsonschema
import pytest
import samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uct_tofu.perf import result


def test_the_schema_is_one_and_names_every_field():
    jsonschema.Draft202012Validator.check_schema(result.schema())
    names = {item.name for item in dataclasses.fields(result.Record)} - {"extra"}
    assert set(result.schema()["required"]) == names | {"schema"}
    assert set(result.schema()["properties"]) == names | {"schema"}
    assert result.schema()["properties"]["schema"]["const"] == result.SCHEMA
    assert tuple(result.schema()["properties"]["layer"]["enum"]) == result.LAYERS


def test_records_survive_a_file(tmp_path):
    path = tmp_path / "a.jsonl"
    data = samples.laptop()
    assert result.write(path, data) == len(data)
    records = result.read(path)
    assert [record.to_dict() for record in records] == data
    assert result.write(path, records[:3], append=True) == 3
    assert len(result.read(path)) == len(data) + 3
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


def test_nothing_is_written_when_one_record_is_bad(tmp_path):
    path = tmp_path / "a.jsonl"
    result.write(path, [samples.record()])
    before = path.read_bytes()
    for append in (False, True):
        with pytest.raises(result.RecordError, match="size"):
            result.write(
                path, [samples.record(), samples.record(size=-1)], append=append
            )
        assert path.read_bytes() == before
    with pytest.raises(result.RecordError):
        result.dump_line(samples.record(p50=float("nan")))


def test_a_field_of_a_later_version_is_kept_and_noted(tmp_path, run_perf):
    path = tmp_path / "a.jsonl"
    data = samples.record(power={"watts": 3})
    result.write(path, [data])
    (record,) = result.read(path)
    assert record.extra == {"power": {"watts": 3}} and record.to_dict() == data
    done = run_perf("validate", path)
    assert done.exit_code == 0 and "note:" in done.output and "power" in done.output
    done = run_perf("validate", "--strict", path)
    assert done.exit_code == 1 and "note:" not in done.output


def _without(name):
    return lambda data: data.pop(name)


def _with(*path, value):
    def change(data):
        for name in path[:-1]:
            data = data[name]
        data[path[-1]] = value

    return change


BAD = {
    "layer missing": (_without("layer"), "layer"),
    "layer unknown": (_with("layer", value="verbs"), "layer"),
    "other version": (_with("schema", value="uct-tofu-perf/2"), "schema"),
    "size negative": (_with("size", value=-1), "size"),
    "size a text": (_with("size", value="8"), "size"),
    "size huge": (_with("size", value=10**30), "size"),
    "boolean for a number": (_with("iterations", value=True), "iterations"),
    "p50 zero": (_with("latency", "p50", value=0), "latency.p50"),
    "p50 huge": (_with("latency", "p50", value=1e300), "latency.p50"),
    "p50 missing": (lambda d: d["latency"].pop("p50"), "p50"),
    "mean out of range": (_with("latency", "mean", value=1.0), "latency.mean"),
    "no result": (_with("latency", value=None), "no result"),
    "repeats do not fit": (_with("repeats", value=7), "spread.values"),
    "no repeats": (_with("spread", "values", value=[]), "spread.values"),
    "time": (_with("time", value="yesterday"), "time"),
    "time without zone": (_with("time", value="2026-01-02T03:04:05"), "UTC"),
    "time of another zone": (_with("time", value="2026-01-02T03:04:05+09:00"), "UTC"),
    "test with a slash": (_with("test", value="../../x"), "test"),
    "test with an escape": (_with("test", value="\x1b[2Jx"), "test"),
    "library with a path": (
        _with("backend", value={**samples.EMULATOR, "library": "/a/b.so"}),
        "backend.library",
    ),
    "backend kind": (
        _with("backend", value={**samples.EMULATOR, "kind": "other"}),
        "backend.kind",
    ),
    "deep params": (
        _with("params", value=json.loads("[" * 50 + "]" * 50)),
        "nested",
    ),
    "surrogate": (_with("params", value={"a": "\ud800"}), "Unicode"),
    "surrogate in a name": (_with("params", value={"\ud800": 1}), "Unicode"),
    "infinite": (_with("bandwidth", value=float("inf")), "finite"),
    "huge integer in params": (_with("params", value={"n": 10**400}), "params.n"),
    "clock": (_with("clock", value="sun"), "clock"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_record_says_which_field(name):
    change, said = BAD[name]
    data = copy.deepcopy(samples.record())
    assert result.check(data) == []
    change(data)
    problems = result.check(data)
    assert problems and said in " ".join(map(str, problems))
    with pytest.raises(result.RecordError, match=said.replace(".", r"\.")):
        result.Record.from_dict(data)


GOOD_LINE = json.dumps(samples.record()).encode()

HOSTILE = {
    "NaN": GOOD_LINE.replace(b'"size": 8', b'"size": NaN'),
    "Infinity": GOOD_LINE.replace(b'"size": 8', b'"size": -Infinity'),
    "overflow": GOOD_LINE.replace(b'"size": 8', b'"size": 1e999'),
    "digits": GOOD_LINE.replace(b'"size": 8', b'"size": ' + b"9" * 5000),
    "nesting": b"[" * 200_000,
    "nested params": GOOD_LINE.replace(
        b'"params": {}', b'"params": {"a": ' + b"[" * 900 + b"]" * 900 + b"}"
    ),
    "bytes": b"\xff\xfe\x00",
    "twice": GOOD_LINE.replace(b'"size": 8', b'"size": 8, "size": 9'),
    "cut": GOOD_LINE[:100],
    "number": b"7",
    "array": b"[]",
    "null": b"null",
    "nul": b"\0",
    "long": GOOD_LINE + b" " * (1 << 21),
    "escape": b'{"schema": "\\u001b[2J\\u0007"}',
    "escape in a name": GOOD_LINE.replace(
        b'"counters": {}', b'"counters": {"\\u001b[2J": "x"}'
    ),
    "carriage return": GOOD_LINE[:-1] + b"\r\0",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lines_are_told_and_the_rest_is_read(name, tmp_path, run_perf):
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD_LINE + b"\n" + HOSTILE[name] + b"\n\n" + GOOD_LINE + b"\n")
    done = run_perf("validate", path)
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[-1] == f"{path}: 2 good, 1 bad"
    assert all(line.startswith(f"{path}:2: ") for line in lines[:-1]) and lines[:-1]
    assert all(len(line) < 600 and line.isprintable() for line in lines)
    with pytest.raises(result.RecordError) as caught:
        result.read(path)
    assert caught.value.line == 2 and caught.value.file == str(path)


def test_validate_of_files_that_are_no_files(tmp_path, run_perf):
    good, empty = tmp_path / "good.jsonl", tmp_path / "empty.jsonl"
    result.write(good, [samples.record()])
    empty.write_text("\n\n")
    assert run_perf("validate", good).exit_code == 0
    done = run_perf("validate", good, empty)
    assert done.exit_code == 1 and "no record" in done.output
    done = run_perf("validate", tmp_path / "none", good)
    assert done.exit_code == 2 and "1 good, 0 bad" in done.output
    assert run_perf("validate", tmp_path).exit_code == 2
    with pytest.raises(result.RecordError, match="no record"):
        result.read(empty)


def test_many_bad_lines_do_not_flood(tmp_path, run_perf):
    path = tmp_path / "a.jsonl"
    path.write_text("x\n" * 1000)
    done = run_perf("validate", path)
    assert done.exit_code == 1 and len(done.output.splitlines()) < 30
    assert "0 good, 1000 bad" in done.output


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(samples.record())), ANY)
def test_no_value_of_a_field_is_a_crash(name, value):
    """Either it is a record, and then it survives, or it is told what is wrong."""
    data = samples.record()
    data[name] = value
    problems = result.check(data)
    if any(not problem.is_unknown_field for problem in problems):
        assert all(str(problem).isprintable() for problem in problems)
    else:
        line = result.dump_line(data).encode()
        assert result.Record.from_dict(result.load_line(line)).to_dict() == data


def test_a_fifo_stays_one(tmp_path):
    """Only files are replaced: root's /dev/null would be a file afterwards."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert result.write(fifo, [samples.record()]) == 1
        assert stat.S_ISFIFO(fifo.stat().st_mode)
        assert json.loads(os.read(reader, 1 << 16))["schema"] == result.SCHEMA
    finally:
        os.close(reader)
