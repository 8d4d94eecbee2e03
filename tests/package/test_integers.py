# SPDX-License-Identifier: BSD-3-Clause
"""Where an integer belongs a float is refused, not cut; what is not sent is told."""

import copy
import pickle
import threading
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from core_support import PATIENCE, loopback, queued_message

from uct_tofu import Backend, Endpoint, Iface, MemoryDomain, RemoteKey, Vbg, Vcq

FLOATS = [1.5, 2.0, np.float64(8), np.float32(1), Decimal(8), Fraction(8), "8", None]


@pytest.fixture(scope="module")
def net():
    with loopback() as objects:
        yield objects


@pytest.mark.parametrize("value", FLOATS, ids=repr)
def test_raw_calls_refuse_what_is_no_integer(value):
    with Vcq(Backend.load(), 0) as vcq, vcq.reg_mem(bytearray(64)) as mem:
        for bad in range(4):
            arguments = [vcq.id, mem.stadd, mem.stadd, 8]
            arguments[bad] = value
            with pytest.raises(TypeError):
                vcq.put(*arguments)
        with pytest.raises(TypeError):
            vcq.put(vcq.id, mem.stadd, mem.stadd, 8, value)
        with pytest.raises(TypeError):
            vcq.armw8(vcq.id, 0, value, mem.stadd)
    with pytest.raises(TypeError):
        Vcq(Backend.load(), value)


@pytest.mark.parametrize("value", FLOATS, ids=repr)
def test_objects_refuse_what_is_no_integer(net, value):
    ep, remote, iface = net.ep, net.remote, net.iface
    calls = [
        lambda: ep.put_short(b"x", value, remote.key),
        lambda: ep.put_bcopy(b"x", value, remote.key),
        lambda: ep.get_bcopy(value, remote.address, remote.key),
        lambda: ep.am_short(1, value),
        lambda: ep.am_short(value, 1),
        lambda: ep.am(value, b""),
        lambda: ep.add(remote, value),
        lambda: ep.fetch_add(remote, 1, size=value),
        lambda: iface.set_message_handler(value, None),
        lambda: net.md.alloc(value),
        lambda: remote.at(value, "u1"),
        lambda: ep.compare_swap(remote, value, 1),
        lambda: remote.at(0, "u1", value),
        lambda: net.memory.array("u1", 1, offset=value),
    ]
    if value is not None:  # None is "not given"
        calls += [
            lambda: ep.put(b"x", remote, offset=value),
            lambda: ep.get(bytearray(1), remote, offset=value),
            lambda: ep.add(remote, 1, offset=value),
            lambda: Iface(net.md, tx_bounce=value),
            lambda: MemoryDomain(tni=value),
            lambda: MemoryDomain(tnis=[value]),
            lambda: net.memory.array("u1", value),
        ]
    for call in calls:
        with pytest.raises(TypeError):
            call()


def test_integers_of_every_kind_do(net):
    for value in (8, np.int64(8), np.uint8(8), np.array(8), True):
        net.ep.put(b"x", net.remote, offset=value).wait(PATIENCE)
        net.ep.put_short(b"x", np.uint64(net.remote.address), net.remote.key)
        net.ep.add(net.remote, value).wait(PATIENCE)
        net.ep.add(net.remote, value, size=4).wait(PATIENCE)
        assert net.memory.array("u1", [value, 1]).shape == (int(value), 1)
    assert net.memory.array("u1", np.int64(5)).shape == (5,)


def test_times_are_no_integers(net):
    with Iface(net.md) as idle, Endpoint(net.iface, idle.address) as ep:
        owner = threading.Thread(target=idle.claim)  # so that no wait of ours helps it
        owner.start()
        owner.join(PATIENCE)
        _check_times(queued_message(ep, 1, b"x"))
        idle.claim()
    assert net.ep.put(b"x", net.remote).wait(float("inf")) is None


def _check_times(request):
    for timeout in (0.0005, 0, -1, -0.5, np.float32(0.0001)):
        with pytest.raises(TimeoutError):
            request.wait(timeout)
    with pytest.raises(ValueError, match="NaN"):
        request.wait(float("nan"))
    for timeout in ("1", b"1", [1]):
        with pytest.raises(TypeError):
            request.wait(timeout)


def test_what_belongs_to_the_process_is_not_pickled(net):
    request = net.ep.put(b"x", net.remote)
    request.wait(PATIENCE)
    for item, hint in (
        (net.md, "make another"),
        (net.memory, r"export\(\)"),
        (net.remote, r"export\(\)"),
        (net.remote[:8], r"export\(\)"),
        (RemoteKey(net.memory.pack_rkey()), "pack_rkey"),
        (net.iface, "send its address"),
        (net.ep, "send the address"),
        (request, "Request"),
    ):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled") as told:
                attempt(item)
            assert told.match(hint)


def test_a_text_is_no_time(net):
    """In the same words as NaN."""
    request = net.ep.put(b"x", net.remote)
    with pytest.raises(TypeError, match="timeout must be .* or None, not str"):
        request.wait("1")
    request.wait(PATIENCE)


@pytest.mark.parametrize(
    "value",
    ["8", 1.5, -1, 2**64, 10**5000],
    ids=["text", "float", "negative", "large", "longest"],  # that can't be printed
)
def test_errors_name_the_argument(net, value):
    """Those of a typed argument of Cython do not."""
    ep, key, address = net.ep, net.remote.key, net.remote.address
    error = OverflowError if isinstance(value, int) else TypeError
    calls = [
        ("remote_addr", lambda: ep.put_short(b"x", value, key)),
        ("remote_addr", lambda: ep.put_bcopy(b"x", value, key)),
        ("remote_addr", lambda: ep.put_zcopy(net.memory, value, key)),
        ("remote_addr", lambda: ep.get_zcopy(net.memory, value, key)),
        ("remote_addr", lambda: ep.atomic_post(0, 1, value, key)),
        ("remote_addr", lambda: ep.atomic_cswap(0, 1, value, key)),
        ("length", lambda: ep.get_bcopy(value, address, key)),
        ("header", lambda: ep.am_short(1, value)),
        ("am_id", lambda: ep.am_short(value, 1)),
        ("am_id", lambda: ep.am_bcopy(value, b"")),
        ("size", lambda: ep.add(net.remote, 1, size=value)),
        ("size", lambda: ep.atomic_fetch(0, 1, address, key, size=value)),
        ("length", lambda: net.md.alloc(value)),
        ("tx_bounce", lambda: Iface(net.md, tx_bounce=value)),
        ("am_seg_size", lambda: Iface(net.md, am_seg_size=value)),
        ("am_backlog", lambda: Iface(net.md, am_backlog=value)),
        ("tni", lambda: MemoryDomain(tni=value)),
        ("stripe_thresh", lambda: MemoryDomain(stripe_thresh=value)),
        ("arena_chunk", lambda: MemoryDomain(arena_chunk=value)),
        ("tni", lambda: Vcq(Backend.load(), value)),
        ("cmp_id", lambda: Vcq(Backend.load(), 0, cmp_id=value)),
        ("count", lambda: Vbg(Backend.load(), 0, value)),
    ]
    if value != -1:  # in these it is an int, and outside of what can be
        calls += [
            ("am_id", lambda: ep.am(value)),
            ("am_id", lambda: net.iface.set_am_handler(value, None)),
            ("am_id", lambda: net.iface.messages(value)),
            ("an index in tnis", lambda: MemoryDomain(tnis=[value])),
        ]
    if error is TypeError:
        calls += [
            ("value", lambda: ep.add(net.remote, value)),
            ("compare", lambda: ep.compare_swap(net.remote, value, 1)),
        ]
    for name, call in calls:
        with pytest.raises(error, match=f"^{name} (must|is too)"):
            call()
