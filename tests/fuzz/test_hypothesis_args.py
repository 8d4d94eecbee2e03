# SPDX-License-Identifier: BSD-3-Clause
"""Properties of all 65 functions, by hypothesis, on the installed library.

Calls are made in a process of their own (worker.py), so that a crash is a failing
example, which hypothesis shrinks, and not the end of pytest.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import prototypes
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prototypes import PROTOTYPES

import uct_tofu

HERE = Path(__file__).parent
#: Another library than the installed one, for those who work on it.
LIBRARY = (
    os.environ.get("UCT_TOFU_FUZZ_LIBRARY")
    or Path(uct_tofu.lib_dir()) / "libtofucom.so"
)
ABI = json.loads((HERE.parent / "abi" / "utofu_abi.json").read_text())
CODES = ABI["enums"]["utofu_return_code"]
FLAGS = {k: v for k, v in ABI["defines"].items() if "_ONESIDED_FLAG_" in k}
NOTICES = (
    FLAGS["UTOFU_ONESIDED_FLAG_TCQ_NOTICE"]
    | FLAGS["UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE"]
)
FILL = 0x5A
SHAPE = (8, 8, 16, 2, 3, 2)
EXAMPLES = int(os.environ.get("UCT_TOFU_FUZZ_EXAMPLES", "30"))

SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=os.environ.get("UCT_TOFU_FUZZ_EXAMPLES") is None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Caller:
    """The worker, started again whenever a call has ended it."""

    def __init__(self):
        self.process = None

    def start(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
        env["UTOFU_EMU_JOB"] = f"args-{os.getpid()}"
        self.process = subprocess.Popen(
            [sys.executable, HERE / "worker.py", LIBRARY],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert json.loads(self.process.stdout.readline()) == "ready"

    def __call__(self, name, *args):
        answer = self.ask(name, args)
        return answer["code"], [bytes.fromhex(out) for out in answer["outs"]]

    def ask(self, name, args):
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(json.dumps([name, args]) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait(30)
            self.process = None
            pytest.fail(f"{name}{args} ended the process: {status}")
        answer = json.loads(line)
        assert answer["broken"] is None, f"{name}{args}: {answer['broken']}"
        return answer

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(30)


@pytest.fixture(scope="module")
def call():
    caller = Caller()
    yield caller
    caller.stop()


def value(out):
    return int.from_bytes(out, "little")


def vcq_id(call, i=0):
    code, (out,) = call("utofu_query_vcq_id", ["hdl", i], ["out", 8])
    assert code == 0
    return value(out)


# ------------------------------------------------------- any argument, any function


def numbers(bits):
    edges = [e for b in (0, 8, 16, 24, 32, 40, 63) for e in (2**b - 1, 2**b, 2**b + 1)]
    edges += [-1, -2, -8, -256]
    return st.sampled_from([e % 2**bits for e in edges]) | st.integers(0, 2**bits - 1)


LIMITS = {
    "tni": 6,
    "cq": 9,
    "cmp": 8,
    "stag": 256,
    "armw_op": 6,
    "reduce_op": 9,
    "edata": 256,
}


def pointer(word):
    null = st.none()
    if word == "cb":
        return numbers(64)
    if word == "desc":
        return (
            st.just(["desc"])
            | null
            | st.binary(min_size=64, max_size=64).map(lambda b: ["odd", b.hex()])
        )
    if word == "data":
        return st.binary(min_size=64, max_size=64).map(lambda b: ["in", b.hex()]) | null
    if word == "memory":  # any address at all: the library can tell
        inside = st.integers(0, 15).map(lambda k: ["mem", 256 * k]) | st.integers(
            0, 4095
        ).map(lambda k: ["mem", k])
        return inside | st.integers(0, 4095).map(lambda k: ["hole", k]) | null
    size = int(word.lstrip(">").split(":")[-1])
    if word.startswith(">"):
        return st.just(["out", size]) | null
    if word.startswith("need:"):
        return st.just(["out", size])
    if size > 16:  # drawn as one number: hypothesis is slow with long lists
        return (
            st.integers(0, 2**32).map(lambda k: ["in", Random(k).randbytes(size).hex()])
            | null
        )
    small = st.lists(
        st.sampled_from([0, 0, 1, 1, 2, 255]), min_size=size, max_size=size
    ).map(bytes)
    return (small | st.binary(min_size=size, max_size=size)).map(
        lambda b: ["in", b.hex()]
    ) | null


def argument(word):
    if prototypes.is_pointer(word):
        return pointer(word)
    hostile = numbers(prototypes.bits(word))
    if word == "hdl":
        live = st.integers(0, 2).map(lambda i: ["hdl", i])
        return live | live | live | st.just(["stale"]) | hostile
    if word == "rmt_id":
        live = st.integers(0, 2).map(lambda i: ["id", i])
        return live | live | hostile
    if word.endswith("_stadd"):
        inside = st.integers(0, 4096 + 8).map(lambda k: ["stadd", k])
        return inside | inside | hostile
    if word == "op_flags":
        known = st.lists(st.sampled_from(sorted(FLAGS.values()))).map(
            lambda f: sum(set(f))
        )
        return known | known | hostile
    if word == "length":
        return st.integers(0, 40) | st.integers(0, 4100) | hostile
    if word == "size":  # a range that starts in the memory may go on into the heap
        return st.sampled_from([0, 1, 255, 256, 2**63, 2**64 - 1])
    if word == "blocks":
        return st.sampled_from([0, 1, 2, 5, 2048, 2049, 2**32, 2**58, 2**64 - 1])
    if word in ("vbgs", "settings", "count", "desc_size"):
        # as many as the array has, or more than can be
        most = {"vbgs": 64, "settings": 5, "count": 16, "desc_size": 64}[word]
        huge = (
            []
            if word in ("settings", "desc_size", "vbgs")
            else [2**32, 2**61, 2**64 - 1]
        )
        return st.integers(0, most) | st.sampled_from([0, *huge])
    if word in LIMITS:
        return st.integers(0, LIMITS[word] - 1) | hostile
    if word in ("flags", "vcq_flags"):
        return st.integers(0, 3) | hostile
    return hostile


def test_the_table_is_the_abi():
    assert sorted(PROTOTYPES) == sorted(ABI["functions"])


@pytest.mark.parametrize("name", PROTOTYPES)
def test_any_arguments(call, name):
    """A code of utofu.h; outputs only on success; nothing else is harmed."""
    words = PROTOTYPES[name]

    @SETTINGS
    @given(st.tuples(*map(argument, words)))
    def any_arguments(args):
        code, outs = call(name, *args)
        if "version" in name:
            return
        assert code in CODES.values()
        # poll functions report a failed operation with its notice
        if code < 0 and not -257 <= code <= -128:
            given_bytes = [
                bytes.fromhex(a[1]) if a[0] == "in" else bytes([FILL]) * a[1]
                for a in args
                if isinstance(a, list) and a[0] in ("in", "out")
            ]
            assert outs == given_bytes, "written without success"
        for word, arg in zip(words, args, strict=True):
            if arg is None and word.startswith(">"):
                assert code < 0, "succeeded without room for the result"
            if word == "hdl" and not (isinstance(arg, list) and arg[0] == "hdl"):
                assert code < 0, "succeeded without a VCQ"
            if word == "edata" and arg > 255:
                assert code < 0, "succeeded with too large EDATA"

    any_arguments()


# ---------------------------------------------------------------------- properties

coords = st.tuples(*(st.integers(0, n - 1) for n in SHAPE)).map(bytes)
paths = st.tuples(*(st.integers(0, n - 1) for n in SHAPE[3:])).map(bytes)


@SETTINGS
@given(coords, st.integers(0, 5), st.integers(0, 8), st.integers(0, 7), paths)
def test_vcq_id_round_trip(call, c, tni, cq, cmp, path):
    code, outs = call(
        "utofu_construct_vcq_id", ["in", c.hex()], tni, cq, cmp, ["out", 8]
    )
    assert code == 0
    code, outs = call(
        "utofu_set_vcq_id_path", ["in", outs[-1].hex()], ["in", path.hex()]
    )
    assert code == 0
    code, parts = call(
        "utofu_query_vcq_info",
        value(outs[0]),
        ["out", 6],
        ["out", 2],
        ["out", 2],
        ["out", 2],
    )
    assert code == 0
    assert parts[0] == c and [value(p) for p in parts[1:]] == [tni, cq, cmp]


@SETTINGS
@given(paths)
def test_path_id_round_trip(call, path):
    code, outs = call("utofu_get_path_id", ["id", 0], ["in", path.hex()], ["out", 1])
    assert code == 0
    code, back = call("utofu_get_path_coords", ["id", 0], outs[-1][0], ["out", 3])
    assert code == 0 and back == [path]


@SETTINGS
@given(st.integers(1, 6), st.integers(0, 15), st.integers(1, 4))
def test_registrations_are_counted(call, times, page, blocks):
    blocks = min(blocks, 16 - page)
    if (page, blocks) == (0, 16):
        return
    stadds = set()
    for _ in range(times):
        code, (out,) = call(
            "utofu_reg_mem",
            ["hdl", 1],
            ["mem", 256 * page],
            256 * blocks,
            0,
            ["out", 8],
        )
        assert code == 0
        stadds.add(value(out))
    (stadd,) = stadds
    for _ in range(times):
        assert call("utofu_dereg_mem", ["hdl", 1], stadd, 0)[0] == 0
    assert (
        call("utofu_dereg_mem", ["hdl", 1], stadd, 0)[0]
        == CODES["UTOFU_ERR_INVALID_STADD"]
    )


# Operations of VCQ 0 with itself.  The first half of the memory is the source.

SIZE, HALF = 4096, 2048
PATTERN = bytes(i * 7 % 251 for i in range(SIZE))
PUT, GET, ARMW = 0, 2, 4  # types of local notices


def run(call, *calls):
    answer = call.ask("run", [[name, list(args)] for name, *args in calls])
    return (
        answer["codes"],
        answer["tcq"],
        answer["mrq"],
        bytes.fromhex(answer["memory"]),
    )


@SETTINGS
@given(
    st.sampled_from(["put", "get"]),
    st.integers(0, HALF - 1),
    st.integers(0, HALF - 1),
    st.integers(0, HALF) | st.integers(0, 40),
)
def test_data_goes_where_it_is_sent(call, op, source, target, n):
    """... and nowhere else, for all lengths and alignments."""
    n = min(n, HALF - max(source, target))
    local, remote = (source, HALF + target) if op == "put" else (HALF + target, source)
    codes, tcq, mrq, memory = run(
        call,
        (
            f"utofu_{op}",
            ["hdl", 0],
            ["id", 0],
            ["stadd", local],
            ["stadd", remote],
            n,
            9,
            NOTICES,
            77,
        ),
    )
    assert codes == [0] and tcq == [[0, 77]]
    assert [m[:3] for m in mrq] == [[0, PUT if op == "put" else GET, 9]]
    expected = bytearray(PATTERN)
    expected[HALF + target : HALF + target + n] = PATTERN[source : source + n]
    assert memory == bytes(expected)


OPS = {
    1: lambda a, b: b,
    2: lambda a, b: a + b,
    3: int.__xor__,
    4: int.__and__,
    5: int.__or__,
}


@SETTINGS
@given(
    st.lists(
        st.tuples(
            st.sampled_from([4, 8]),
            st.integers(1, 6),
            st.integers(0, 2**64 - 1),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_armw_against_a_model(call, steps):
    model = bytearray(PATTERN)
    calls, old_values = [], []
    for size, op, operand, word in steps:
        operand %= 2 ** (8 * size)
        off = 8 * word + (4 if size == 4 and operand & 1 else 0)
        old = value(model[off : off + size])
        where = [["stadd", off], 3, NOTICES, 5]
        if op == 6:  # every other compare-and-swap has the value right
            compare = old if operand & 2 else operand
            calls.append(
                (f"utofu_cswap{size}", ["hdl", 0], ["id", 0], compare, operand, *where)
            )
            new = operand if compare == old else old
        else:
            calls.append(
                (f"utofu_armw{size}", ["hdl", 0], ["id", 0], op, operand, *where)
            )
            new = OPS[op](old, operand) % 2 ** (8 * size)
        model[off : off + size] = new.to_bytes(size, "little")
        old_values.append(old)
    codes, _, mrq, memory = run(call, *calls)
    assert codes == [0] * len(steps)
    assert [(m[0], m[1], m[3]) for m in mrq] == [(0, ARMW, old) for old in old_values]
    assert memory == bytes(model)


@SETTINGS
@given(
    st.sampled_from([n for n in PROTOTYPES if f"utofu_prepare_{n[6:]}" in PROTOTYPES]),
    st.data(),
)
def test_prepared_is_posted(call, name, data):
    """Preparing and posting a descriptor does what the posting function does."""
    right = {
        "hdl": st.just(["hdl", 0]),
        "rmt_id": st.just(["id", 0]),
        "lcl_stadd": st.integers(0, 512).map(lambda k: ["stadd", k]),
        "rmt_stadd": st.integers(0, 64).map(lambda k: ["stadd", HALF + 8 * k]),
        "length": st.integers(0, 8 if name.endswith("8") else 32),
        "stride": st.integers(32, 96),
        "blocks": st.integers(1, 10),
        "mtu": st.sampled_from([256, 512, 1024, 1920]),
        "gap": st.integers(0, 255),
        "edata": st.integers(0, 255),
        "op_flags": st.just(NOTICES)
        | st.sampled_from([0, *FLAGS.values()]).map(lambda f: f | NOTICES),
        "data": st.binary(min_size=32, max_size=32).map(lambda b: ["in", b.hex()]),
        "armw_op": st.integers(1, 5),
        "cb": st.just(4711),
    }
    delay = FLAGS["UTOFU_ONESIDED_FLAG_DELAY_START"]
    args = [
        data.draw(right.get(word, numbers(prototypes.bits(word))), label=word)
        for word in PROTOTYPES[name]
    ]
    args = [
        a & ~delay if w == "op_flags" else a
        for w, a in zip(PROTOTYPES[name], args, strict=True)
    ]
    direct = run(call, (name, *args))
    prepare = (f"utofu_prepare_{name[6:]}", *args[:-1], ["desc"], ["out", 8])
    posted = run(
        call, prepare, ("utofu_post_toq", ["hdl", 0], ["desc"], ["desc_size"], args[-1])
    )
    assert direct[0] == [0] and posted[0] == [0, 0]
    assert direct[1:] == posted[1:]
