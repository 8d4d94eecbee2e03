# SPDX-License-Identifier: BSD-3-Clause
"""The record of one measurement, and files of such records (JSON Lines).

``schema.json`` beside this file says what a record holds.  Its name ends with the
version, ``uct-tofu-perf/1``.  Within a version fields are only added, never renamed
and never given another meaning: a reader ignores fields that it does not know, and
keeps them when it writes the record again.  Any other change is a new version, and a
reader refuses versions that it does not know.

Files come from other machines and people, so nothing in them is taken on trust.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import itertools
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "LATENCIES",
    "LAYERS",
    "SCHEMA",
    "Problem",
    "Record",
    "RecordError",
    "check",
    "dump_line",
    "load_line",
    "printable",
    "read",
    "scan",
    "schema",
    "write",
]

SCHEMA = "uct-tofu-perf/1"
LAYERS = ("utofu", "uct", "libuct", "ucp", "mpi")
LATENCIES = ("min", "p50", "p90", "p99", "p99.9", "max")  # in the order of size

MAX_LINE = 1 << 20  # bytes; a record is about one KiB
MAX_DEPTH = 8  # of objects and arrays in each other
MAX_INTEGER = 1 << 63
_MAX_TEXT = 200  # of a message


@dataclass(frozen=True)
class Problem:
    """What is wrong with a record: where in it, and why.

    Attributes
    ----------
    field : str
        For example ``latency.p50``; empty when it is not one field.
    reason : str
    is_unknown_field : bool
        Only a field that this version does not know.

    Source: schema.json.
    """

    field: str
    reason: str
    is_unknown_field: bool = False

    def __str__(self):
        return f"{self.field}: {self.reason}" if self.field else self.reason


class RecordError(ValueError):
    """A line is not a record.

    Attributes
    ----------
    file : str or None
    line : int or None
        Counted from 1.
    problems : list of Problem

    Source: schema.json.
    """

    def __init__(self, problems, *, file=None, line=None):
        self.problems = list(problems)
        self.file = file
        self.line = line
        where = "" if file is None else f"{printable(file)}:{line}: "
        super().__init__("; ".join(f"{where}{problem}" for problem in self.problems))


@dataclass
class Record:
    """One measurement; the attributes are the fields of the schema.

    Times are seconds, sizes bytes, bandwidths bytes per second, rates operations per
    second.  ``extra`` holds fields that this version does not know.

    Source: schema.json.
    """

    time: str
    test: str
    layer: str
    transport: str
    backend: dict | None
    versions: dict
    host: dict
    pinning: list | None
    processes: int
    threads: int
    layout: str | None
    size: int
    window: int | None
    iterations: int
    warmup: int
    repeats: int
    latency: dict | None
    bandwidth: float | None
    rate: float | None
    spread: dict
    counters: dict
    params: dict
    clock: str
    extra: dict = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: dict) -> Record:
        """A record of the dict of one line; a deep copy.

        Raises ``RecordError`` when it is none.

        Source: schema.json.
        """
        problems = [item for item in check(data) if not item.is_unknown_field]
        if problems:
            raise RecordError(problems)
        data = copy.deepcopy(data)
        names = {item.name for item in dataclasses.fields(cls)} - {"extra"}
        known = {name: data.pop(name) for name in names}
        del data["schema"]
        return cls(**known, extra=data)

    def to_dict(self) -> dict:
        """The dict of one line; a deep copy.

        Source: schema.json.
        """
        data = {"schema": SCHEMA, **dataclasses.asdict(self)}
        data.update(data.pop("extra"))
        return data


def printable(text, limit=_MAX_TEXT) -> str:
    """Text of unknown origin for one line of a terminal: escaped and cut.

    Source: unicode categories, str.isprintable.
    """
    text = "".join(
        letter if letter.isprintable() else ascii(letter)[1:-1]
        for letter in str(text)[: limit + 1]
    )
    return text if len(text) <= limit else text[:limit] + "..."


@functools.cache
def _schema_text():
    return Path(__file__).with_name("schema.json").read_text(encoding="utf-8")


def schema(*, strict: bool = False) -> dict:
    """The JSON schema of a record.

    Parameters
    ----------
    strict : bool
        Also refuse fields that are not in it.

    Source: schema.json; JSON Schema, draft 2020-12.
    """

    def close(part):
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict):
                part.setdefault("additionalProperties", False)
            for value in part.values():
                close(value)

    data = json.loads(_schema_text())
    if strict:
        close(data)
    return data


@functools.cache
def _validator():
    import jsonschema  # takes a while, and most commands do without

    return jsonschema.Draft202012Validator(schema(strict=True))


def _check_values(data):
    """Values that JSON has, and that nobody could print or reckon with."""
    stack = [((), data)]
    while stack:
        path, value = stack.pop()
        where = ".".join(printable(part, 40) for part in path)
        if len(path) > MAX_DEPTH:
            yield Problem(where, f"nested more than {MAX_DEPTH} deep")
        elif isinstance(value, dict):
            for name, item in value.items():
                if not _is_text(name):
                    yield Problem(where, "a field's name is not valid Unicode")
                stack.append(((*path, name), item))
        elif isinstance(value, list):
            stack += [((*path, number), item) for number, item in enumerate(value)]
        elif isinstance(value, str):
            if not _is_text(value):
                yield Problem(where, "not valid Unicode")
        elif isinstance(value, float):
            if not math.isfinite(value):
                yield Problem(where, "not a finite number")
        elif isinstance(value, int) and abs(value) >= MAX_INTEGER:
            yield Problem(where, "out of range: 2^63 or more")


def _is_text(value):
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False  # half of a surrogate pair, as "\ud800" makes it
    return True


def _check_sense(data):
    """What the schema can't say; the types are right."""
    latency = data["latency"]
    if latency is not None:
        for low, high in itertools.pairwise(LATENCIES):
            if latency[low] > latency[high]:
                yield Problem(f"latency.{low}", f"greater than {high}")
        if not latency["min"] <= latency["mean"] <= latency["max"]:
            yield Problem("latency.mean", "not between min and max")
    if latency is None and data["bandwidth"] is None and data["rate"] is None:
        yield Problem("", "no result: latency, bandwidth and rate are all null")
    values = data["spread"]["values"]
    if len(values) != data["repeats"]:
        yield Problem(
            "spread.values", f"{len(values)} values of {data['repeats']} repeats"
        )
    try:
        time = datetime.datetime.fromisoformat(data["time"].replace("Z", "+00:00"))
    except ValueError:
        yield Problem("time", "not a time by ISO 8601")
    else:
        if time.utcoffset() != datetime.timedelta(0):
            yield Problem("time", "not in UTC")


def check(data) -> list[Problem]:
    """What is wrong with the dict of one line; empty when nothing is.

    Fields that the schema does not know are among them, marked as such: they make
    no record wrong.

    Source: schema.json.
    """
    problems = list(_check_values(data))
    if problems:
        return problems
    if isinstance(data, dict) and data.get("schema") != SCHEMA:
        found = data.get("schema")
        return [Problem("schema", f"{printable(repr(found), 60)}, not {SCHEMA!r}")]
    for error in _validator().iter_errors(data):
        path = ".".join(printable(part, 40) for part in error.absolute_path)
        unknown = error.validator == "additionalProperties"
        problems.append(Problem(path, printable(error.message), unknown))
    if all(problem.is_unknown_field for problem in problems):
        problems += _check_sense(data)
    return problems


def _no_constant(name):
    raise ValueError(f"{name} is not JSON")


def _no_doubles(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {printable(double, 40)!r} is there twice")
    return result


def load_line(line: bytes):
    """The JSON of one line, not yet checked.

    Raises ``RecordError`` when it is not JSON: NaN and Infinity, a field that is
    there twice, nesting without end, bytes that are not UTF-8.

    Source: RFC 8259.
    """
    try:
        return json.loads(
            line.decode("utf-8"),
            parse_constant=_no_constant,
            object_pairs_hook=_no_doubles,
        )
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start}"
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:
        reason = f"not JSON: {printable(error)}"
    raise RecordError([Problem("", reason)])


def dump_line(record: Record | dict) -> str:
    """One line, without its end.

    Raises ``RecordError`` when it would not be a record.

    Source: schema.json.
    """
    data = record.to_dict() if isinstance(record, Record) else record
    problems = [item for item in check(data) if not item.is_unknown_field]
    if problems:
        raise RecordError(problems)
    return json.dumps(data, allow_nan=False, ensure_ascii=False)


def scan(path):
    """Go through a file; yields (line number, Record or None, list of Problem).

    Empty lines are passed over.  A line with problems other than unknown fields
    gives no record.  Raises ``OSError``.

    Source: JSON Lines.
    """
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                reason = f"longer than {MAX_LINE} bytes"
                yield number, None, [Problem("", reason)]
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE)
                continue
            if not line.strip():
                continue
            try:
                data = load_line(line)
            except RecordError as error:
                yield number, None, error.problems
                continue
            problems = check(data)
            good = all(problem.is_unknown_field for problem in problems)
            yield number, Record.from_dict(data) if good else None, problems


def read(path) -> list[Record]:
    """All records of a file, in its order.

    Raises ``RecordError`` for the first line that is no record, and for a file with
    no record at all; ``OSError``.

    Source: JSON Lines.
    """
    records = []
    number = 0
    for number, record, problems in scan(path):
        if record is None:
            raise RecordError(problems, file=os.fspath(path), line=number)
        records.append(record)
    if not records:
        raise RecordError([Problem("", "no record")], file=os.fspath(path), line=number)
    return records


def ends_a_line(path) -> bool:
    """Whether what is added to a file begins a line: of one that was cut it does not.

    True also for a file that may not be read.  Raises ``OSError``.

    Source: JSON Lines.
    """
    if not os.path.isfile(path) or not os.path.getsize(path):
        return True
    if not os.access(path, os.R_OK):
        return True
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def has_records(path) -> bool:
    """Whether a file is there whose first line is a record, of any version.

    False for a file that may not be read.  Raises ``OSError``.

    Source: JSON Lines.
    """
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        return False
    with open(path, "rb") as file:
        try:
            data = load_line(file.readline(MAX_LINE))
        except RecordError:
            return False
    return isinstance(data, dict) and "schema" in data


def write(path, records, *, append: bool = False) -> int:
    """Write records to a file; returns how many.

    A file is replaced in one step, or appended to; a device or a FIFO is written to.
    Raises ``RecordError`` before anything is written; ``OSError``.

    Source: JSON Lines.
    """
    lines = [dump_line(record) + "\n" for record in records]
    data = "".join(lines).encode("utf-8")
    if append:
        begin = b"" if ends_a_line(path) else b"\n"
        with open(path, "ab") as file:
            file.write(begin + data)
        return len(lines)
    path = Path(path)
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return len(lines)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(data)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return len(lines)
