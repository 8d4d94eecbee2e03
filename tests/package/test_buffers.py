# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint.put and get: kinds of buffers, sizes, ranges, registrations."""

import array
import gc
import mmap
import struct

import numpy as np
import pytest
from core_support import PATIENCE, loopback, queued_message, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uct_tofu import (
    MemoryDomain,
    RemoteMemory,
    TofuBufferError,
    TofuClosedError,
    TofuContiguityError,
    TofuDtypeError,
    TofuKeyError,
    TofuRangeError,
    TofuReadOnlyError,
)


@pytest.fixture
def net():
    with loopback() as objects:
        yield objects


def _bytes(seed, size):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [0, 1, 8, 32, 33, 8191, 8192, 8193, 65536, 300001])
def test_every_size_goes_and_comes_back(net, size):
    view = net.memory.array()
    view[:] = 0xEE
    data = _bytes(size, size)
    assert net.ep.put(data, net.remote, offset=13).wait(PATIENCE) is None
    assert (view[13 : 13 + size] == data).all()
    assert (view[:13] == 0xEE).all() and (view[13 + size :] == 0xEE).all()
    back = np.full(size + 2, 0xDD, np.uint8)
    net.ep.get(back[1:-1], net.remote, offset=13).wait(PATIENCE)
    assert (back[1:-1] == data).all() and back[0] == back[-1] == 0xDD
    del view


RECORD = np.dtype([("a", "i4"), ("b", "f8", 3)])


@pytest.mark.parametrize("count", [3, 4000])
@pytest.mark.parametrize(
    "dtype",
    ["u1", "?", "i2", ">f4", "f8", "c16", "M8[ns]", "S5", "U3", RECORD],
    ids=str,
)
def test_any_plain_dtype(net, dtype, count):
    size = count * np.dtype(dtype).itemsize
    data = np.frombuffer(bytes(i % 2 for i in range(size)), dtype)
    net.ep.put(data, net.remote).wait(PATIENCE)
    back = np.zeros(count, dtype)
    net.ep.get(back, net.remote).wait(PATIENCE)
    assert back.tobytes() == data.tobytes()


def _mapped(data):
    area = mmap.mmap(-1, len(data))
    area[:] = data
    return area


@pytest.mark.parametrize("size", [24, 20000])
@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: memoryview(bytearray(data)).cast("d"),
        lambda data: array.array("d", data),
        _mapped,
        lambda data: np.frombuffer(data, "f8").reshape(-1, 1),
    ],
    ids=["bytes", "bytearray", "memoryview", "cast", "array", "mmap", "numpy"],
)
def test_any_contiguous_buffer(net, make, size):
    data = _bytes(size, size).tobytes()
    net.ep.put(make(data), net.remote).wait(PATIENCE)
    assert net.memory.array()[:size].tobytes() == data
    target = make(bytes(size))
    if memoryview(target).readonly:
        with pytest.raises(TofuReadOnlyError, match=r"Endpoint\.get.*read-only"):
            net.ep.get(target, net.remote)
    else:
        net.ep.get(target, net.remote).wait(PATIENCE)
        assert memoryview(target).tobytes() == data


def test_fortran_order_goes_as_it_lies(net):
    data = np.asfortranarray(np.arange(2000.0).reshape(40, 50))
    net.ep.put(data, net.remote).wait(PATIENCE)
    back = np.zeros((40, 50), order="F")
    net.ep.get(back, net.remote).wait(PATIENCE)
    assert (back == data).all()


def test_strided_array_is_refused_in_words_and_goes_as_pieces(net):
    grid = np.arange(64 * 64, dtype="f8").reshape(64, 64)
    for call in (net.ep.put, net.ep.get):
        with pytest.raises(TofuContiguityError) as caught:
            call(grid[:, 3], net.remote)
        for word in ("float64", "(64,)", "(512,)", "ascontiguousarray"):
            assert word in str(caught.value)
    with pytest.raises(TofuContiguityError, match="Endpoint.am"):
        net.ep.am(1, grid[::2])
    with net.md.reg(grid) as memory:
        pieces = [(memory, 8 * (64 * row + 3), 8) for row in range(16)]
        net.ep.put(pieces, net.remote).wait(PATIENCE)
        assert (net.memory.array("f8", 16) == grid[:16, 3]).all()
        net.memory.array("f8", 16)[:] = -1
        net.ep.get(pieces, net.remote).wait(PATIENCE)
        assert (grid[:16, 3] == -1).all() and (grid[:16, 4] >= 0).all()
        with pytest.raises(Exception, match="at most 16"):
            net.ep.put(pieces + pieces[:1], net.remote)
        with pytest.raises(TofuRangeError, match="not inside"):
            net.ep.put([(memory, -8, 8)], net.remote)


def test_wrong_kinds_have_classes_of_their_own(net):
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    closed = net.md.alloc(64)
    closed.close()
    released = memoryview(b"abc")
    released.release()
    for kind, call, item in (
        (TofuDtypeError, net.ep.put, np.array([None, 1])),
        (TofuDtypeError, net.ep.put, memoryview(np.array([None, 1]))),
        (TofuDtypeError, net.md.reg, np.array([None, 1])),
        (TofuReadOnlyError, net.ep.get, frozen),
        (TofuReadOnlyError, net.md.reg, b"abc"),
        (TofuClosedError, net.ep.put, closed),
        (TofuBufferError, net.ep.put, released),
    ):
        with pytest.raises(kind):
            call(item) if call == net.md.reg else call(item, net.remote)
    for item in (3, "text", None, object()):
        with pytest.raises(TypeError, match=r"Endpoint\.put: a buffer is needed"):
            net.ep.put(item, net.remote)
    with pytest.raises(TypeError, match="RemoteMemory"):
        net.ep.put(b"x", net.remote.key)
    net.ep.put(frozen, net.remote).wait(PATIENCE)


# -------------------------------------------------------------------- ranges


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    offset=st.one_of(st.integers(-10, 5010), st.integers(-(2**70), 2**70)),
    length=st.integers(0, 5000),
)
def test_only_what_fits_is_written(net, offset, length):
    part = net.remote[1000:6000]
    view = net.memory.array()
    view[:10000] = 0
    data = np.full(length, 7, np.uint8)
    if 0 <= offset and offset + length <= 5000:
        net.ep.put(data, part, offset=offset).wait(PATIENCE)
        assert (view[1000 + offset : 1000 + offset + length] == 7).all()
        assert np.count_nonzero(view[:10000]) == length
    else:
        for call in (net.ep.put, net.ep.get):
            with pytest.raises(TofuRangeError) as caught:
                call(data, part, offset=offset)
            for word in (call.__name__, f"{length} bytes", str(offset), "5000 bytes"):
                assert word in str(caught.value)
        assert not view[:10000].any()
    del view


def test_parts_of_remote_memory(net):
    words = net.memory.array("i4")
    net.ep.put(np.int32([5, 6]), net.remote.at(10, "i4", 2)).wait(PATIENCE)
    net.ep.put(b"\x01", net.remote[-1:]).wait(PATIENCE)
    assert list(words[9:13]) == [0, 5, 6, 0] and net.memory.array()[-1] == 1
    assert len(net.remote[100:]) == net.remote.size - 100
    assert net.remote[8:24].at(1, "u8").address == net.remote.address + 16
    with pytest.raises(TofuRangeError):
        net.ep.put(bytes(9), net.remote.at(3, "f8"))
    for index in (-1, net.remote.size // 4):
        with pytest.raises(TofuRangeError, match="elements of 4 bytes"):
            net.remote.at(index, "i4")
    with pytest.raises(TofuRangeError):
        net.remote[: net.remote.size + 1]
    with pytest.raises(ValueError, match="step"):
        net.remote[::2]
    with pytest.raises(TypeError):
        net.remote[3]
    del words


def test_memory_as_array(net):
    grid = net.memory.array("f4", (3, 5), offset=64)
    grid[2, 4] = 1.5
    assert net.memory.array()[64 + 56 : 64 + 60].tobytes() == struct.pack("=f", 1.5)
    size = len(net.memory)
    assert net.memory.array("f8").shape == (size // 8,)
    for arguments in (("f8", size), ("f8", -1)):
        with pytest.raises(TofuRangeError):
            net.memory.array(*arguments)
    with pytest.raises(TofuRangeError):
        net.memory.array("f8", 1, offset=size - 7)
    with pytest.raises(TofuRangeError):
        net.memory.array("f8", 1, offset=-8)
    with pytest.raises(TofuDtypeError):
        net.memory.array(object)
    with pytest.raises(TofuBufferError, match="views"):
        net.memory.close()
    del grid


def test_exported_bytes(net):
    exported = net.memory.export()
    for bit in range(8 * len(exported)):
        bad = bytearray(exported)
        bad[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(TofuKeyError):
            RemoteMemory(bytes(bad))
    for length in range(len(exported)):
        with pytest.raises(TofuKeyError):
            RemoteMemory(exported[:length])
    with net.md.alloc(64, read_only=True) as memory:
        with RemoteMemory(memory.export()) as remote:
            assert remote.read_only
            with pytest.raises(TofuReadOnlyError, match="Endpoint.put"):
                net.ep.put(b"x", remote)
            with pytest.raises(TofuReadOnlyError, match="Endpoint.add"):
                net.ep.add(remote, 1)
            net.ep.get(bytearray(8), remote).wait(PATIENCE)
        with pytest.raises(TofuClosedError):
            net.ep.get(bytearray(8), remote)


def test_memory_of_another_network_is_refused(net):
    """As Memory.export writes it, but for the number of the network."""
    import zlib

    exported = bytearray(net.memory.export())
    exported[16] ^= 1
    exported[4:8] = struct.pack("<I", zlib.crc32(exported[8:]))
    with RemoteMemory(bytes(exported)) as remote:
        with pytest.raises(TofuKeyError, match="another network"):
            net.ep.put(b"x", remote)


@pytest.mark.parametrize("size", [4, 8])
def test_atomics(net, size):
    word = net.memory.array(f"u{size}")
    top = (1 << (8 * size)) - 1
    kind = {"offset": size, "size": size}
    ep, remote = net.ep, net.remote
    assert ep.add(remote, -1, **kind).wait(PATIENCE) is None
    assert word[1] == top
    for call, value, old in (
        (ep.fetch_and, 0xF0, top),
        (ep.fetch_or, 1, 0xF0),
        (ep.fetch_xor, 0xFF, 0xF1),
        (ep.swap, top, 0x0E),
        (ep.fetch_add, 1, top),
    ):
        assert call(remote, value, **kind).wait(PATIENCE) == old
    assert ep.compare_swap(remote, 0, 77, **kind).wait(PATIENCE) == 0
    assert ep.compare_swap(remote, 0, 78, **kind).wait(PATIENCE) == 77
    assert word[1] == 77 and word[0] == 0 and word[2] == 0
    with pytest.raises(TofuRangeError, match="aligned"):
        ep.add(remote, 1, offset=size + 1, size=size)
    with pytest.raises(TofuRangeError):
        ep.swap(remote, 1, offset=len(net.memory), size=size)
    with pytest.raises(OverflowError):
        ep.add(remote, top + 1, size=size)
    with pytest.raises(ValueError, match="4 or 8"):
        ep.add(remote, 1, size=2)
    del word


# ------------------------------------------------------------- registrations


def _registered(md):
    return md.query()["num_registrations"]


def test_an_array_is_registered_once_and_until_it_goes(net):
    before = _registered(net.md)
    data = np.zeros(100000, np.uint8)
    for first in (0, 5, 50000):
        net.ep.put(data[first : first + 40000], net.remote).wait(PATIENCE)
        assert _registered(net.md) == before + 1
    with pytest.raises(ValueError, match="resize"):
        data.resize(10, refcheck=False)  # it would move what is registered
    del data
    gc.collect()
    assert _registered(net.md) == before
    other = np.ones(100000, np.uint8)
    net.ep.put(other, net.remote).wait(PATIENCE)
    assert (net.memory.array()[:100000] == 1).all()


def test_other_buffers_are_registered_for_an_operation(net):
    before = _registered(net.md)
    data = bytearray(100000)
    net.ep.put(data, net.remote).wait(PATIENCE)
    assert _registered(net.md) == before
    data.clear()  # nothing holds it
    net.ep.put(net.memory.array()[:50000], net.remote, offset=60000).wait(PATIENCE)
    assert _registered(net.md) == before


def test_kept_registrations_are_bounded():
    with loopback(md_options={"kept_registrations": 3}) as net:
        before = _registered(net.md)
        arrays = [np.full(20000, i, np.uint8) for i in range(8)]
        for _ in range(2):
            for i, data in enumerate(arrays):
                net.ep.put(data, net.remote).wait(PATIENCE)
                assert (net.memory.array()[:20000] == i).all()
        assert _registered(net.md) == before + 3
    with loopback(md_options={"kept_registrations": 0}) as net:
        before = _registered(net.md)
        net.ep.put(arrays[0], net.remote).wait(PATIENCE)
        assert _registered(net.md) == before
    with pytest.raises(ValueError, match="kept_registrations"):
        MemoryDomain(kept_registrations=-1)


def test_read_only_registration_becomes_writable(net):
    data = np.zeros(20000, np.uint8)
    data.flags.writeable = False
    net.ep.put(data, net.remote).wait(PATIENCE)
    net.memory.array()[:20000] = 9
    data.flags.writeable = True
    net.ep.get(data, net.remote).wait(PATIENCE)
    assert (data == 9).all()


def test_buffer_is_held_while_the_operation_waits(net):
    net.iface.set_message_handler(1, lambda header, payload: None)
    payload = bytearray(b"p" * 5000)
    request = queued_message(net.ep, 1, payload)
    with pytest.raises(BufferError):
        payload.clear()
    until(net.iface, lambda: request.done)
    payload.clear()
    assert request.wait() is None
