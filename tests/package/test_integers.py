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

from uct_tofu import Backend, Endpoint, Iface, MemoryDomain, RemoteKey, Vcq

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
