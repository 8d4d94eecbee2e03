# SPDX-License-Identifier: BSD-3-Clause
"""The transport core as Python objects: data, lifetimes, errors."""

import gc
import math
import multiprocessing
import os
import re
import struct
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

from uct_tofu import (
    AtomicOp,
    Endpoint,
    Iface,
    Memory,
    MemoryDomain,
    RemoteKey,
    TofuCallerError,
    TofuError,
    TofuOperationError,
    TofuRangeError,
    TofuRetryError,
)


@pytest.fixture
def md():
    with MemoryDomain() as domain:
        yield domain


@pytest.fixture
def loop(md):
    """(md, iface, endpoint to itself, memory, its key)."""
    with md.alloc(1 << 20) as memory, Iface(md) as iface:
        with Endpoint(iface, iface.address, iface.device_address) as ep:
            with RemoteKey(memory.pack_rkey()) as key:
                yield md, iface, ep, memory, key
            finish(ep.flush)


def finish(post, *arguments, timeout=20.0, **kwargs):
    """Post, again while resources are short, and wait for the result."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            request = post(*arguments, **kwargs)
            break
        except TofuRetryError:
            post.__self__.iface.progress()
            assert time.monotonic() < deadline
    return request.wait(timeout) if request is not None else None


# --------------------------------------------------------------------- data


def test_puts_reach_the_memory(loop):
    md, iface, ep, memory, key = loop
    view = np.frombuffer(memory, dtype=np.uint8)
    limits = iface.query()
    for size in (1, 7, 8, limits["max_put_short"]):
        finish(ep.put_short, bytes(range(size)), memory.address + 100, key)
        finish(ep.flush)
        assert view[100 : 100 + size].tobytes() == bytes(range(size))
        assert view[100 + size] == 0
    data = np.random.default_rng(1).integers(0, 256, limits["max_put_bcopy"], np.uint8)
    finish(ep.put_bcopy, data, memory.address + 4001, key)
    finish(ep.flush)
    assert (view[4001 : 4001 + data.size] == data).all()
    source = np.random.default_rng(2).integers(0, 256, 300000, np.uint8)
    with md.reg(source) as local:
        finish(ep.put_zcopy, (local, 5, 299990), memory.address + 50001, key)
        assert (view[50001 : 50001 + 299990] == source[5:299995]).all()
        pieces = [(local, 0, 10), (local, 1000, 0), (local, 20, 30)]
        finish(ep.put_zcopy, pieces, memory.address, key)
        assert view[:40].tobytes() == source[:10].tobytes() + source[20:50].tobytes()
    del view


def test_gets_bring_the_memory(loop):
    md, iface, ep, memory, key = loop
    view = np.frombuffer(memory, dtype=np.uint8)
    view[:] = np.random.default_rng(3).integers(0, 256, view.size, np.uint8)
    size = iface.query()["max_get_bcopy"]
    for length in (1, 33, size):
        got = finish(ep.get_bcopy, length, memory.address + 13, key)
        assert got == view[13 : 13 + length].tobytes()
    target = np.zeros(200000, np.uint8)
    with md.reg(target) as local:
        assert finish(ep.get_zcopy, (local, 1, 199998), memory.address + 3, key) is None
    assert (target[1:-1] == view[3:200001]).all() and target[0] == target[-1] == 0
    del view


@pytest.mark.parametrize("size", [4, 8])
def test_atomics(loop, size):
    _, _, ep, memory, key = loop
    kind = np.dtype(f"u{size}")
    word = np.frombuffer(memory, dtype=kind)
    top = (1 << (8 * size)) - 1
    address = memory.address + size
    finish(ep.atomic_post, AtomicOp.ADD, -1, address, key, size=size)
    finish(ep.flush)
    assert word[1] == top
    assert finish(ep.atomic_fetch, AtomicOp.AND, 0xF0, address, key, size=size) == top
    assert finish(ep.atomic_fetch, AtomicOp.OR, 0x01, address, key, size=size) == 0xF0
    assert finish(ep.atomic_fetch, AtomicOp.XOR, 0xFF, address, key, size=size) == 0xF1
    assert finish(ep.atomic_fetch, AtomicOp.SWAP, top, address, key, size=size) == 0x0E
    assert finish(ep.atomic_fetch, AtomicOp.ADD, 1, address, key, size=size) == top
    assert finish(ep.atomic_cswap, 0, 77, address, key, size=size) == 0
    assert finish(ep.atomic_cswap, 0, 78, address, key, size=size) == 77
    assert word[1] == 77 and word[0] == 0 and word[2] == 0
    with pytest.raises(OverflowError):
        ep.atomic_post(AtomicOp.ADD, top + 1, address, key, size=size)
    with pytest.raises(TofuCallerError):
        ep.atomic_post(AtomicOp.ADD, 1, address + 1, key, size=size)
    del word


def test_active_messages(loop):
    md, iface, ep, memory, _ = loop
    limits = iface.query()
    arrived = []
    iface.set_am_handler(5, arrived.append)
    iface.set_am_handler(6, lambda data: arrived.append(len(data)))
    finish(ep.am_short, 5, 0x1122334455667788, b"tail")
    finish(ep.am_bcopy, 5, b"b" * 100)
    finish(ep.am_bcopy, 6, bytes(limits["max_am_bcopy"]))
    view = memoryview(memory)
    view[:6] = b"zcopy!"
    view.release()
    finish(ep.am_zcopy, 5, b"head", [(memory, 0, 5), (memory, 5, 1)])
    deadline = time.monotonic() + 10
    while len(arrived) < 4 and time.monotonic() < deadline:
        iface.progress()
    assert arrived == [
        struct.pack("=Q", 0x1122334455667788) + b"tail",
        b"b" * 100,
        limits["max_am_bcopy"],
        b"headzcopy!",
    ]
    stats = iface.stats()
    assert stats["am_rx"] == stats["am_tx"] == 4 and stats["dropped"] == 0


def test_am_polled(loop):
    """The number of senders without notices has a limit, and can be 0."""
    md = loop[0]
    with pytest.raises(TofuCallerError, match="tofu_iface_open"):
        Iface(md, am_polled=9)
    with Iface(md, am_polled=0) as iface:
        assert iface.stats()["am_polled"] == 0


@pytest.mark.parametrize("wanted", [True, False, None])
def test_am_in_place(md, wanted):
    """Messages are packed into the slot itself, by default too, or never."""
    came, data = [], bytes(range(256)) * 16
    with Iface(md, am_in_place=wanted) as iface:
        iface.set_am_handler(3, came.append)
        with Endpoint(iface, iface.address, iface.device_address) as ep:
            deadline = time.monotonic() + (0.3 if wanted is False else 20)
            while time.monotonic() < deadline and not iface.stats()["am_in_place"]:
                finish(ep.am_bcopy, 3, data)
                iface.progress()
            finish(ep.flush)
            assert bool(iface.stats()["am_in_place"]) is (wanted is not False)
            while len(came) < iface.stats()["am_tx"]:
                iface.progress()
    assert set(came) == {data}


def test_limits_are_refused(loop):
    _, iface, ep, memory, key = loop
    limits = iface.query()
    with pytest.raises(TofuCallerError, match="tofu_ep_put_short"):
        ep.put_short(bytes(limits["max_put_short"] + 1), memory.address, key)
    with pytest.raises(TofuCallerError, match="tofu_ep_put_bcopy"):
        ep.put_bcopy(bytes(limits["max_put_bcopy"] + 1), memory.address, key)
    with pytest.raises(TofuCallerError, match="tofu_ep_get_bcopy"):
        ep.get_bcopy(limits["max_get_bcopy"] + 1, memory.address, key)
    with pytest.raises(TofuCallerError, match="tofu_ep_am_short"):
        ep.am_short(1, 0, bytes(limits["max_am_short"] - 7))
    with pytest.raises(TofuCallerError, match="tofu_ep_am_bcopy"):
        ep.am_bcopy(1, bytes(limits["max_am_bcopy"] + 1))
    for am_id in (32, 255):
        with pytest.raises(TofuCallerError):
            ep.am_short(am_id, 0)
    with pytest.raises(TofuCallerError):
        ep.put_short(b"x", memory.address + len(memory), key)
    with pytest.raises(TofuCallerError):
        ep.put_short(b"x", memory.address - 1, key)
    with pytest.raises(ValueError, match="not inside"):
        ep.put_zcopy((memory, 1, len(memory)), memory.address, key)
    with pytest.raises(ValueError, match="not inside"):
        ep.put_zcopy((memory, 2**64 - 1, 2), memory.address, key)
    with pytest.raises(TofuRangeError, match="not inside"):
        ep.put_zcopy((memory, -1, 2), memory.address, key)


def test_another_domains_memory_is_refused(loop):
    _, _, ep, memory, key = loop
    with MemoryDomain() as other, other.alloc(4096) as foreign:
        with pytest.raises(ValueError, match="another MemoryDomain"):
            ep.put_zcopy(foreign, memory.address, key)


# ---------------------------------------------------------------- addresses


def test_keys_without_rails_are_short():
    """Nobody stripes, so there is nothing to say of further TNIs."""
    data = bytearray(1 << 20)
    for thresh, length in ((0, 48 + 5 * 16), (2 * sys.maxsize + 1, 48)):
        with MemoryDomain(stripe_thresh=thresh) as md, md.reg(data) as memory:
            packed = memory.pack_rkey()
            assert len(packed) == length == md.query()["rkey_packed_size"]
            with RemoteKey(packed):
                pass


def test_damaged_keys_and_addresses_are_refused(loop):
    _, iface, _, memory, _ = loop
    for good, make in (
        (memory.pack_rkey(), RemoteKey),
        (iface.address, lambda data: Endpoint(iface, data)),
    ):
        for length in range(len(good)):
            with pytest.raises(TofuError):
                make(good[:length])
        for bit in range(8 * len(good)):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << (bit % 8)
            with pytest.raises(TofuError):
                make(bytes(bad))
        with pytest.raises(TypeError):
            make(len(good))
        with pytest.raises(TypeError):
            make("x" * len(good))
    assert iface.unreachable_reason(iface.device_address, iface.address) is None
    assert iface.unreachable_reason(b"", iface.address)
    assert iface.unreachable_reason(b"x" * 16)
    assert iface.unreachable_reason(iface.device_address, b"x")


def test_is_connected(loop):
    md, iface, ep, _, _ = loop
    assert ep.is_connected(iface.address)
    with Iface(md) as other:
        assert not ep.is_connected(other.address)
    assert not ep.is_connected(b"")


# ---------------------------------------------------------------- lifetimes


def test_parents_refuse_to_close_first():
    md = MemoryDomain()
    memory = md.alloc(100)
    iface = Iface(md)
    ep = Endpoint(iface, iface.address)
    with pytest.raises(RuntimeError, match="1 Iface and 1 Memory"):
        md.close()
    with pytest.raises(RuntimeError, match="1 Endpoint"):
        iface.close()
    for item in (ep, iface, memory, md):
        item.close()
        item.close()
    for call in (ep.flush, iface.progress, memory.pack_rkey, md.query):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_allocated_memory_waits_for_its_views(md):
    memory = md.alloc(100)
    assert len(memory) >= 100
    view = np.frombuffer(memory, np.uint8)
    assert not view.any()
    with pytest.raises(BufferError):
        memory.close()
    del view
    memory.close()


@pytest.mark.parametrize("last", ["view", "memory"])
def test_views_of_registered_memory_hold_the_buffer(md, last):
    """They show the user's buffer, which may not move or go under them."""
    buffer = bytearray(200000)
    memory = md.reg(buffer)
    view = np.frombuffer(memory, np.uint8)[5:]
    copy = view[:]
    memory.close()
    memory.close()
    with pytest.raises(BufferError):
        buffer.clear()
    del view
    if last == "memory":
        del memory
    with pytest.raises(BufferError):
        buffer.clear()
    copy[0] = 7
    assert buffer[5] == 7
    del copy
    buffer.clear()


def test_registered_buffer_is_held(md):
    buffer = bytearray(100)
    with md.reg(buffer) as memory:
        assert len(memory) == 100
        with pytest.raises(BufferError):
            buffer.clear()
        memoryview(memory)[0] = 7
    assert buffer[0] == 7
    buffer.clear()
    with pytest.raises(BufferError):
        md.reg(b"read-only")
    with md.reg(b"read-only", read_only=True) as memory:
        with pytest.raises(TypeError):
            memoryview(memory)[0] = 1
    with pytest.raises(TofuCallerError):
        md.reg(bytearray())


def test_registrations_are_counted(md):
    before = md.query()["num_registrations"]
    buffer = bytearray(100000)
    with md.reg(buffer):
        assert md.query()["num_registrations"] == before + 1
    assert md.query()["num_registrations"] == before


def test_operation_in_flight_holds_what_it_uses(loop):
    md, iface, ep, memory, _ = loop
    source = md.reg(bytearray(b"y" * 5000))
    key = RemoteKey(memory.pack_rkey())
    request = ep.put_zcopy(source, memory.address, key)
    if not request.done:
        with pytest.raises(RuntimeError, match="in flight"):
            source.close()
        with pytest.raises(RuntimeError, match="in flight"):
            key.close()
        with pytest.raises(RuntimeError):
            request.result()
    request.wait(20)
    assert request.done and request.status == 0
    source.close()
    key.close()


def test_forgotten_request_still_completes(loop):
    md, iface, ep, memory, key = loop
    source = md.reg(bytearray(b"z" * 5000))
    called = []
    request = ep.put_zcopy(source, memory.address, key)
    request.add_done_callback(lambda done: called.append(done.status))
    alive = weakref.ref(request)
    del request
    gc.collect()
    finish(ep.flush)
    deadline = time.monotonic() + 10
    while not called and time.monotonic() < deadline:
        iface.progress()
    assert called == [0]
    gc.collect()
    assert alive() is None
    source.close()


def test_closing_cancels_what_is_in_flight(md):
    with md.alloc(4096) as memory, RemoteKey(memory.pack_rkey()) as key:
        iface = Iface(md)
        ep = Endpoint(iface, iface.address)
        request = ep.put_zcopy(memory, memory.address, key)
        ep.close()
        iface.close()
        assert request.done
        if request.status != 0:
            with pytest.raises(TofuOperationError, match="CANCELED"):
                request.result()


def test_cycles_are_collected():
    """A handler that refers to its iface does not keep it for ever."""
    for _ in range(60):
        md = MemoryDomain()
        iface = Iface(md)
        ep = Endpoint(iface, iface.address)
        memory = md.alloc(4096)
        iface.set_am_handler(1, lambda data, i=iface, e=ep, m=memory: None)
        alive = weakref.ref(iface)
        with pytest.warns(ResourceWarning):
            del md, iface, ep, memory
            gc.collect()
        assert alive() is None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_after_fork_harms_nothing(loop):
    md, iface, ep, memory, key = loop
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            iface.progress()
        except RuntimeError as error:
            code = 0 if "fork" in str(error) else 2
        del md, iface, ep, memory, key, loop
        gc.collect()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finish(ep.put_short, b"after", memory.address, key)
    finish(ep.flush)
    with memoryview(memory) as view:
        assert bytes(view[:5]) == b"after"


# ------------------------------------------------------------------ callbacks


def test_callback_errors_come_out_of_progress(loop):
    _, iface, ep, memory, key = loop

    def broken(data):
        raise KeyError("from the handler")

    iface.set_am_handler(3, broken)
    finish(ep.am_short, 3, 0)
    deadline = time.monotonic() + 10
    with pytest.raises(KeyError, match="from the handler"):
        while time.monotonic() < deadline:
            iface.progress()
    iface.progress()  # raised once

    iface.set_am_handler(3, lambda data: iface.close())
    finish(ep.am_short, 3, 0)
    with pytest.raises(RuntimeError, match="callbacks|Endpoint"):
        while time.monotonic() < deadline:
            iface.progress()


def test_handlers_may_send_and_progress(loop):
    _, iface, ep, _, _ = loop
    seen = []

    def reply(data):
        ep.am_short(2, 1)
        iface.progress()

    iface.set_am_handler(1, reply)
    iface.set_am_handler(2, seen.append)
    finish(ep.am_short, 1, 0)
    deadline = time.monotonic() + 10
    while not seen and time.monotonic() < deadline:
        iface.progress()
    assert len(seen) == 1


def test_removed_handler_drops(loop):
    _, iface, ep, _, _ = loop
    iface.set_am_handler(4, lambda data: None)
    iface.set_am_handler(4, None)
    finish(ep.am_short, 4, 0)
    finish(ep.flush)
    deadline = time.monotonic() + 10
    while iface.stats()["dropped"] == 0 and time.monotonic() < deadline:
        iface.progress()
    assert iface.stats()["dropped"] == 1


# ------------------------------------------------------------- two processes


def _serve(pipe):
    """A peer that only loads from its memory, then is killed."""
    md = MemoryDomain()
    memory = md.alloc(1 << 16)
    iface = Iface(md)
    pipe.send((iface.device_address, iface.address, memory.address, memory.pack_rkey()))
    view = memoryview(memory)
    while view[65535] != 42:
        time.sleep(0)
    pipe.send(bytes(view[:65536]))
    pipe.recv()


@pytest.fixture
def peer():
    """A process with memory, and how to reach it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    assert here.poll(30), "the peer did not start"
    yield process, here, here.recv()
    process.kill()
    process.join()


def test_peer_that_only_loads_sees_the_put(peer, md):
    process, pipe, (device, address, remote, packed) = peer
    data = np.random.default_rng(4).integers(0, 256, 65536, np.uint8)
    data[-1] = 42
    with md.reg(data) as local, Iface(md) as iface, RemoteKey(packed) as key:
        with Endpoint(iface, address, device) as ep:
            finish(ep.put_zcopy, local, remote, key)
            assert pipe.poll(20)
            assert pipe.recv() == data.tobytes()
            assert finish(ep.get_bcopy, 100, remote, key) == data[:100].tobytes()


def test_dead_peer_is_an_error_in_seconds(peer, md):
    process, _, (device, address, remote, packed) = peer
    failed = []
    with Iface(md, on_error=lambda ep, error: failed.append((ep, error))) as iface:
        with Endpoint(iface, address, device) as ep, RemoteKey(packed) as key:
            with Endpoint(iface, iface.address) as other, md.alloc(64) as own:
                finish(ep.put_short, b"alive", remote, key)
                finish(ep.flush)
                process.kill()
                process.join()
                start = time.monotonic()
                with pytest.raises(TofuOperationError):
                    while time.monotonic() - start < 15:
                        finish(ep.put_short, b"x", remote, key)
                        finish(ep.flush)
                while not failed and time.monotonic() - start < 10:
                    iface.progress()
                assert time.monotonic() - start < 10
                for post in (lambda: ep.put_short(b"x", remote, key), ep.flush):
                    with pytest.raises(TofuOperationError):
                        post()
                for _ in range(1000):
                    iface.progress()
                assert [item[0] for item in failed] == [ep]
                assert isinstance(failed[0][1], TofuOperationError)
                failed.clear()
                # The other endpoint of the iface goes on.
                with RemoteKey(own.pack_rkey()) as own_key:
                    finish(other.put_short, b"on", own.address, own_key)
                    finish(other.flush)
                with memoryview(own) as view:
                    assert bytes(view[:2]) == b"on"


def test_failed_flush_fails_the_endpoint(peer, md):
    """The peer dies between a put and its flush: only the flush can notice."""
    process, _, (device, address, remote, packed) = peer
    failed = []
    with Iface(md, on_error=lambda ep, error: failed.append(ep)) as iface:
        with Endpoint(iface, address, device) as ep, RemoteKey(packed) as key:
            finish(ep.put_short, b"alive", remote, key)
            finish(ep.flush)
            finish(ep.put_short, b"last", remote, key)
            process.kill()
            process.join()
            time.sleep(0.2)  # a death is known after some milliseconds
            with pytest.raises(TofuOperationError):
                finish(ep.flush)
            for _ in range(1000):
                iface.progress()
            assert failed == [ep]
            for post in (lambda: ep.put_short(b"x", remote, key), ep.flush):
                with pytest.raises(TofuOperationError):
                    post()


# ------------------------------------------------------------------- errors


def test_status_table_is_total():
    """errors.py names each status of tofu.h with its value and a class."""
    from pathlib import Path

    from uct_tofu import errors

    header = Path(__file__).resolve().parents[2] / "cython" / "core" / "tofu.h"
    found = {
        int(value): name
        for name, value in re.findall(
            r"(TOFU_(?:OK|INPROGRESS|ERR_\w+))\s*=\s*(-?\d+)", header.read_text()
        )
    }
    assert len(found) > 15
    assert found == errors.STATUS_NAMES
    for status in found:
        if status < 0:
            error = errors.status_error("call", status, "object")
            assert type(error) is not TofuError and isinstance(error, TofuError)
            assert error.status == status and found[status] in str(error)
            assert "call" in str(error) and "object" in str(error)


def test_objects_cannot_be_made_by_hand():
    for cls in (Memory,):
        with pytest.raises(TypeError):
            cls()


SHARE = """
import sys
from uct_tofu import Iface, MemoryDomain
domain = MemoryDomain()
iface = Iface(domain)
domain.alloc(1 << 20)
print("ok", flush=True)
sys.stdin.readline()
"""


def test_full_node(tmp_path):
    """48 processes of a node, as a starter numbers them, all find a place."""
    environment = dict(
        os.environ,
        UTOFU_EMU_JOB=f"full{os.getpid()}",
        UTOFU_EMU_NODE="0",
        UCT_TOFU_BACKEND="emulator",
        MPI_LOCALNRANKS="48",
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SHARE],
            env={**environment, "MPI_LOCALRANKID": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for rank in range(48)
    ]
    try:
        assert [p.stdout.readline() for p in processes] == ["ok\n"] * 48
        for process in processes:
            process.stdin.close()
        assert [process.wait(60) for process in processes] == [0] * 48
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_tnis_is_a_list_of_indices():
    with pytest.raises(TypeError):
        MemoryDomain(tnis=0)


@pytest.mark.parametrize("tnis", [[], (), range(0)])
def test_no_index_is_not_all(tnis):
    with pytest.raises(ValueError, match="tnis is empty"):
        MemoryDomain(tnis=tnis)


def test_infinite_stripe_thresh():
    """As UCX_UTOFU_STRIPE_THRESH=inf: nobody stripes, so keys have no rails."""
    with (
        MemoryDomain(stripe_thresh=math.inf) as md,
        md.reg(bytearray(1 << 20)) as memory,
    ):
        assert len(memory.pack_rkey()) == 48
    for thresh in (1.5, -math.inf, math.nan):
        with pytest.raises(TypeError):
            MemoryDomain(stripe_thresh=thresh)


@pytest.mark.parametrize("local", ["", "text", b"", b"x", bytearray(), {}, None, 5])
def test_what_are_no_pieces(loop, local):
    """Empty ones passed as a list without pieces, which is no bytes."""
    _, _, ep, memory, key = loop
    for zcopy in (ep.put_zcopy, ep.get_zcopy):
        with pytest.raises(TypeError, match="local must be a Memory"):
            zcopy(local, memory.address, key)
    with pytest.raises(TypeError, match="local must be a Memory"):
        ep.am_zcopy(1, b"", local)
    finish(ep.put_zcopy, [], memory.address, key)
