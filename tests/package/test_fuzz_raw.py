# SPDX-License-Identifier: BSD-3-Clause
"""Random calls on the uTofu objects, in any order and with any arguments.

Whatever is called ends with a result or with one of a few exceptions that say in
words what is wrong; nothing beside the registered memory changes; and nothing is
left.  test_asan.py runs the same under AddressSanitizer.  For more of it:
UCT_TOFU_FUZZ_EXAMPLES=1000 pytest tests/package/test_fuzz_raw.py
"""

import gc
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from uct_tofu import (
    Backend,
    Descriptors,
    OnesidedFlag,
    ReduceOp,
    RegisteredMemory,
    UtofuError,
    Vbg,
    VbgSetting,
    Vcq,
)

EXAMPLES = int(os.environ.get("UCT_TOFU_FUZZ_EXAMPLES", "25"))
SEARCH = EXAMPLES > 25  # new examples, instead of a fixed few
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    derandomize=not SEARCH,
    database=None,
    # shrinking takes minutes: only when someone looks for failures
    phases=[Phase.generate, Phase.shrink] if SEARCH else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)
CLASSES = (Vcq, RegisteredMemory, Descriptors, Vbg)
GUARD = 64
FILL = 0xA5

#: What a call may raise, beside UtofuError.
CLEAR = (
    TypeError,
    ValueError,
    OverflowError,
    BufferError,
    MemoryError,
    RuntimeError,
    TimeoutError,
)

EDGES = [e for b in (0, 8, 16, 24, 31, 32, 63, 64) for e in (2**b - 1, 2**b, 2**b + 1)]
NUMBERS = st.sampled_from([*EDGES, -1, -(2**63), 2**200]) | st.integers(0, 2**64)
ODD = st.sampled_from([None, "text", b"bytes", 1.5, float("nan"), [], object()])
SMALL = st.integers(-1, 300)
FLAGS = st.lists(st.sampled_from(list(OnesidedFlag)), max_size=4).map(sum)
PICK = st.integers(0, 7)

#: The arguments of the posting methods after the remote VCQ, as kinds.
POSTS = {
    "put": "lln",
    "put_gap": "llngg",
    "put_stride": "llnsb",
    "put_stride_gap": "llnsbgg",
    "put_piggyback": "dl",
    "put_piggyback8": "vln",
    "get": "lln",
    "get_gap": "llngg",
    "get_stride": "llnsb",
    "get_stride_gap": "llnsbgg",
    "armw4": "ovl",
    "armw8": "ovl",
    "cswap4": "vvl",
    "cswap8": "vvl",
}


def open_files():
    return len(os.listdir("/proc/self/fd"))


def shared_files():
    return {p.name for p in Path("/dev/shm").iterdir() if "tofu" in p.name}


def living():
    gc.collect()
    return sum(isinstance(item, CLASSES) for item in gc.get_objects())


def buffers():
    sizes = st.integers(0, 20000)
    return st.one_of(
        sizes.map(bytearray),
        sizes.map(bytes),
        st.just("text"),
        st.just(None),
        st.just(3),
        sizes.map(lambda n: np.zeros(n)[::2]),
        sizes.map(lambda n: np.zeros((n % 50, 4), order="F")),
        sizes.map(lambda n: np.zeros(n % 100, "M8[s]")),
        st.just(np.zeros(3, object)),
        sizes.map(lambda n: memoryview(bytearray(n))),
    )


class RawObjects(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.backend = Backend.load()
        self.vcqs, self.memories, self.batches, self.vbgs = [], [], [], []
        self.guarded = []

    # ------------------------------------------------------------------ help

    def attempt(self, call, *args, **kwargs):
        """The result, or None after an exception that is clear."""
        try:
            return call(*args, **kwargs)
        except UtofuError as error:
            assert error.name.startswith("UTOFU_ERR_") and error.code < 0
            assert str(error).startswith(error.call) and ": " in str(error)
        except CLEAR as error:
            assert str(error), repr(error)
        return None

    @staticmethod
    def one(items, pick):
        return items[pick % len(items)] if items else None

    def vcq_id(self, pick, number):
        vcq = self.one(self.vcqs, pick)
        found = None if vcq is None or pick == 7 else self.attempt(lambda: vcq.id)
        return number if found is None else found

    def stadd(self, pick, number):
        memory = self.one(self.memories, pick)
        found = None
        if memory is not None and pick != 7:
            found = self.attempt(memory.stadd_at, number % 5000)
        return number if found is None else found

    def arguments(self, data, kinds):
        for kind in kinds:
            if data.draw(st.integers(0, 40)) == 0:
                yield data.draw(ODD)
            elif kind == "l":
                yield self.stadd(data.draw(PICK), data.draw(NUMBERS))
            elif kind in "nsgb":
                yield data.draw(SMALL if data.draw(PICK) else NUMBERS)
            elif kind == "d":
                yield data.draw(st.binary(max_size=40))
            elif kind == "o":
                yield data.draw(st.integers(-1, 7))
            else:
                yield data.draw(NUMBERS)

    # ----------------------------------------------------------------- rules

    @initialize()
    def start(self):
        """A VCQ with memory, so that much can succeed."""
        vcq = Vcq(self.backend, 0)
        array = np.full(8192 + 2 * GUARD, FILL, np.uint8)
        self.vcqs.append(vcq)
        self.memories.append(vcq.reg_mem(array[GUARD:-GUARD]))
        self.guarded.append(array)

    @rule(
        tni=st.integers(0, 6) | NUMBERS | ODD,
        options=st.fixed_dictionaries(
            {},
            optional={
                "exclusive": st.booleans(),
                "thread_safe": st.booleans(),
                "session_mode": st.booleans(),
                "cmp_id": st.integers(0, 8) | NUMBERS | ODD,
            },
        ),
    )
    def make_vcq(self, tni, options):
        vcq = self.attempt(Vcq, self.backend, tni, **options)
        if vcq is not None:
            self.vcqs.append(vcq)

    @rule(pick=PICK, buffer=buffers(), read_only=st.booleans(), stag=st.none() | SMALL)
    def register(self, pick, buffer, read_only, stag):
        vcq = self.one(self.vcqs, pick)
        memory = self.attempt(vcq.reg_mem, buffer, read_only=read_only, stag=stag)
        if memory is not None:
            size = getattr(buffer, "nbytes", None)
            assert memory.length == (len(buffer) if size is None else size)
            self.memories.append(memory)

    @rule(pick=PICK)
    def register_guarded(self, pick):
        array = np.full(4096 + 2 * GUARD, FILL, np.uint8)
        memory = self.attempt(self.one(self.vcqs, pick).reg_mem, array[GUARD:-GUARD])
        if memory is not None:
            self.memories.append(memory)
            self.guarded.append(array)

    @rule(data=st.data(), name=st.sampled_from(sorted(POSTS)), batch=st.booleans())
    def post(self, data, name, batch):
        poster = self.one(self.batches if batch else self.vcqs, data.draw(PICK))
        if poster is None:
            return
        remote = self.vcq_id(data.draw(PICK), data.draw(NUMBERS))
        options = {"flags": data.draw(FLAGS), "edata": data.draw(st.integers(0, 256))}
        if not batch:
            options["cbdata"] = data.draw(NUMBERS)
        arguments = self.arguments(data, POSTS[name])
        self.attempt(getattr(poster, name), remote, *arguments, **options)

    @rule(pick=PICK, flags=FLAGS | NUMBERS | ODD, batch=st.booleans())
    def nop(self, pick, flags, batch):
        poster = self.one(self.batches if batch else self.vcqs, pick)
        if poster is not None:
            self.attempt(poster.nop, flags)

    @rule(pick=PICK)
    def prepare(self, pick):
        batch = self.attempt(Descriptors, self.one(self.vcqs, pick))
        if batch is not None:
            self.batches.append(batch)

    @rule(pick=PICK, other=PICK, clear=st.booleans())
    def post_batch(self, pick, other, clear):
        batch = self.one(self.batches, pick)
        if batch is None:
            self.attempt(self.one(self.vcqs, other).post_toq)
            return
        self.attempt(batch.vcq.post_toq, batch)
        self.attempt(self.one(self.vcqs, other).post_toq, batch)
        if clear:
            batch.clear()

    @rule(pick=PICK, turns=st.integers(1, 20))
    def poll(self, pick, turns):
        vcq = self.one(self.vcqs, pick)
        for _ in range(turns):
            self.attempt(vcq.poll_tcq)
            self.attempt(vcq.poll_mrq)
        self.attempt(vcq.wait_tcq, 0)
        self.attempt(vcq.wait_mrq, 0)
        for count in (vcq.num_unread_mrq, vcq.num_unread_tcq):
            number = self.attempt(count)
            assert number is None or number >= 0

    @rule(pick=PICK, offset=NUMBERS | SMALL | ODD, length=NUMBERS | SMALL | ODD)
    def part(self, pick, offset, length):
        memory = self.one(self.memories, pick)
        found = self.attempt(memory.stadd_at, offset, length)
        if found is not None:
            assert 0 <= offset <= memory.length - length

    @rule(
        number=NUMBERS,
        pick=PICK,
        coords=st.none() | st.lists(st.integers(-1, 256), max_size=7) | ODD,
        small=SMALL | ODD,
    )
    def ask(self, number, pick, coords, small):
        backend, vcq_id = self.backend, self.vcq_id(pick, number)
        self.attempt(backend.vcq_info, vcq_id)
        self.attempt(backend.vbg_info, number)
        self.attempt(backend.query_stadd, vcq_id, small)
        self.attempt(backend.set_vcq_id_path, vcq_id, coords)
        self.attempt(backend.path_id, vcq_id, coords)
        self.attempt(backend.path_coords, vcq_id, small)
        self.attempt(backend.construct_vcq_id, coords, small, 0, 0)
        self.attempt(backend.onesided_caps, small)
        self.attempt(backend.barrier_caps, number)

    @rule(tni=st.integers(0, 6) | NUMBERS, count=st.integers(0, 40) | NUMBERS | ODD)
    def make_vbg(self, tni, count):
        vbg = self.attempt(Vbg, self.backend, tni, count)
        if vbg is not None:
            self.vbgs.append(vbg)

    @rule(pick=PICK, proper=st.booleans(), data=st.data())
    def set_vbg(self, pick, proper, data):
        vbg = self.one(self.vbgs, pick)
        ids = None if vbg is None else self.attempt(lambda: vbg.ids)
        if not ids:
            return
        if proper and len(ids) > 1:
            count = len(ids)
            ring = [
                VbgSetting(ids[i], ids[i - 1], None, ids[(i + 1) % count])
                for i in range(count)
            ]
        else:
            own = st.sampled_from(ids)
            field = st.none() | own | NUMBERS
            ring = data.draw(
                st.lists(st.tuples(*[field] * 5) | st.tuples(own) | ODD, max_size=4)
            )
        self.attempt(vbg.set, ring)

    @rule(
        pick=PICK,
        op=st.sampled_from(list(ReduceOp)) | NUMBERS,
        data=st.lists(st.integers(0, 9) | NUMBERS | ODD, max_size=8) | ODD,
    )
    def circuit(self, pick, op, data):
        vbg = self.one(self.vbgs, pick)
        if vbg is None:
            return
        self.attempt(vbg.barrier)
        self.attempt(vbg.poll_barrier)
        self.attempt(vbg.reduce_uint64, op, data)
        self.attempt(vbg.poll_reduce_uint64)
        self.attempt(vbg.reduce_double, op, data)
        self.attempt(vbg.poll_reduce_double)
        for wait in (vbg.wait_barrier, vbg.wait_reduce_uint64, vbg.wait_reduce_double):
            self.attempt(wait, 0)

    @rule(pick=PICK)
    def free(self, pick):
        """Refused while memory is registered; the object stays in the list."""
        self.attempt(self.one(self.vcqs, pick).free)
        self.attempt(self.one(self.memories, pick).dereg)
        if self.vbgs:
            self.attempt(self.one(self.vbgs, pick).free)

    @rule(pick=PICK)
    def forget(self, pick):
        """Lose the reference; garbage collection frees what nobody else has."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for items in (self.vcqs, self.memories):
                if len(items) > 1:
                    items.pop(pick % len(items))
            for items in (self.batches, self.vbgs):
                if items:
                    items.pop(pick % len(items))
            gc.collect()

    @rule(pick=PICK)
    def look(self, pick):
        for items in (self.vcqs, self.memories, self.batches, self.vbgs):
            if items:
                item = self.one(items, pick)
                assert repr(item)
                for name in ("id", "stadd", "address", "length", "ids", "nbytes"):
                    self.attempt(getattr, item, name, None)

    def teardown(self):
        for memory in self.memories:
            memory.dereg()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            self.memories.clear()
            gc.collect()
            for item in [*self.vcqs, *self.vbgs]:
                item.free()
        for array in self.guarded:
            assert (array[:GUARD] == FILL).all() and (array[-GUARD:] == FILL).all()


@pytest.mark.timeout(600)
def test_random_calls():
    Vcq(Backend.load(), 0).free()  # the library opens its own files once
    run_state_machine_as_test(RawObjects, settings=SETTINGS)
    files, shared = open_files(), shared_files()
    assert living() == 0
    run_state_machine_as_test(RawObjects, settings=settings(SETTINGS, max_examples=5))
    assert living() == 0
    assert open_files() <= files and shared_files() <= shared
