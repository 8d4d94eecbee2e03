# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint.am, handlers, views of messages, streams."""

import asyncio
import gc
import struct

import numpy as np
import pytest
from core_support import PATIENCE, loopback, queued_message, until

from uct_tofu import (
    Endpoint,
    Iface,
    TofuBufferError,
    TofuCallerError,
    TofuClosedError,
    TofuInUseError,
    TofuOperationError,
    TofuRangeError,
)

SIZES = (0, 1, 23, 24, 25, 8183, 8184, 8185, 16336, 100000, 1 << 20)


@pytest.fixture
def net():
    with loopback() as objects:
        yield objects


def _payload(size):
    return np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("header", [b"", b"h" * 24, b"head" * 5000])
def test_messages_of_every_size_arrive_whole_and_in_order(net, view, header):
    got = []
    net.iface.set_message_handler(
        7, lambda head, payload: got.append((head, bytes(payload))), view=view
    )
    for size in SIZES:
        net.ep.am(7, _payload(size), header=header)
    until(net.iface, lambda: len(got) == len(SIZES))
    assert got == [(header, _payload(size)) for size in SIZES]


def test_first_message_left_when_its_request_is_done(net):
    """Who waited for the first message may end, or do something else for ever."""
    got = []
    with Iface(net.md) as sender:
        net.iface.set_message_handler(1, lambda header, payload: got.append(payload))
        with Endpoint(sender, net.iface.address) as ep:
            request = ep.am(1, b"first")
            assert not request.done
            request.wait(PATIENCE)  # the target is this thread's: it works, too
            assert sender.stats()["am_tx"] == 1
            assert ep.am(1, b"second").done
    until(net.iface, lambda: len(got) == 2)
    assert got == [b"first", b"second"]


def test_awaited_first_message_needs_no_help(net):
    """The target is an iface of the same thread that nobody else drives."""
    got = []
    net.iface.set_message_handler(1, lambda header, payload: got.append(payload))

    async def send():
        with Iface(net.md) as sender, Endpoint(sender, net.iface.address) as ep:
            await asyncio.wait_for(_am(ep), PATIENCE)

    async def _am(ep):
        await ep.am(1, b"first")

    asyncio.run(send())
    until(net.iface, lambda: got == [b"first"])


def test_large_messages_of_several_endpoints_mix(net):
    got = []
    net.iface.set_message_handler(1, lambda header, payload: got.append(payload))
    with Endpoint(net.iface, net.iface.address) as other:
        requests = []
        for size in (200000, 200001):
            requests += [net.ep.am(1, _payload(size)), other.am(1, _payload(size + 9))]
        until(net.iface, lambda: len(got) == 4)
        assert all(request.done for request in requests)
    assert sorted(map(len, got)) == [200000, 200001, 200009, 200010]
    assert all(payload == _payload(len(payload)) for payload in got)


def test_queued_messages_keep_their_order(net):
    got = []
    net.iface.set_message_handler(1, lambda header, payload: got.append(header))
    requests = [
        net.ep.am(1, bytes(i % 3 * 6000), header=b"%d" % i) for i in range(5000)
    ]
    assert not requests[-1].done
    with pytest.raises(TimeoutError, match="5000|AM id 1"):
        requests[-1].wait(0)
    until(net.iface, lambda: len(got) == 5000)
    assert got == [b"%d" % i for i in range(5000)]
    assert all(request.status == 0 for request in requests)


@pytest.mark.parametrize("size", [4, 5000])
@pytest.mark.parametrize("plain", [False, True])
def test_view_ends_with_the_handler(net, size, plain):
    seen = []
    if plain:
        net.iface.set_am_handler(2, seen.append, view=True)
        net.ep.am_bcopy(2, _payload(size))
    else:
        net.iface.set_message_handler(2, lambda _, view: seen.append(view), view=True)
        net.ep.am(2, _payload(size))
    until(net.iface, lambda: seen)
    with pytest.raises(ValueError, match="released"):
        bytes(seen[0])
    assert net.iface.stats()["am_held"] == 0


@pytest.mark.parametrize("keep", [lambda view: view[:], lambda view: np.asarray(view)])
@pytest.mark.parametrize("size", [4, 5000])
def test_what_is_made_of_a_view_keeps_the_message(net, keep, size):
    kept = []
    net.iface.set_message_handler(2, lambda _, view: kept.append(keep(view)), view=True)
    for i in range(5):
        net.ep.am(2, _payload(size + i))
    until(net.iface, lambda: len(kept) == 5)
    net.iface.set_message_handler(2, lambda _, payload: None)
    for _ in range(2000):  # other messages do not overwrite it
        net.ep.am(2, b"z" * size)
        net.iface.progress()
    assert [bytes(item) for item in kept] == [_payload(size + i) for i in range(5)]
    held = net.iface.stats()["am_held"]  # the others are copies, small ones always
    assert 0 < held <= 5 if size > 1000 else held < 5
    kept.clear()
    gc.collect()
    net.iface.progress()
    assert net.iface.stats()["am_held"] == 0


def test_iface_waits_for_kept_messages():
    from uct_tofu import Iface, MemoryDomain

    with MemoryDomain() as md:
        iface = Iface(md)
        kept = []
        iface.set_message_handler(2, lambda _, view: kept.append(view[:]), view=True)
        with Endpoint(iface, iface.address) as ep:
            ep.am(2, _payload(5000))
            until(iface, lambda: kept)
        with pytest.raises(TofuBufferError, match="1 messages"):
            iface.close()
        assert bytes(kept[0]) == _payload(5000)
        kept.pop().release()
        iface.close()


def test_many_kept_messages_come_as_copies_and_none_is_lost(net):
    kept = []
    net.iface.set_message_handler(2, lambda _, view: kept.append(view[:]), view=True)
    for i in range(3000):
        net.ep.am(2, struct.pack("=Q", i) + bytes(4000))
    until(net.iface, lambda: len(kept) == 3000)
    assert [struct.unpack("=Q", view[:8])[0] for view in kept] == list(range(3000))
    assert 0 < net.iface.stats()["am_held"] < 3000
    kept.clear()


def test_failing_handler_loses_no_other_message(net):
    got = []

    def handler(header, payload):
        got.append(header)
        if header == b"3":
            raise KeyError("the third")

    net.iface.set_message_handler(5, handler)
    for i in range(10):
        net.ep.am(5, b"", header=b"%d" % i)
    with pytest.raises(KeyError, match="the third"):
        until(net.iface, lambda: len(got) == 10)
        net.iface.progress()
    until(net.iface, lambda: len(got) == 10)
    assert got == [b"%d" % i for i in range(10)]


def test_what_is_no_message_is_dropped_with_an_error(net):
    got = []
    net.iface.set_message_handler(5, lambda header, payload: got.append(header))
    first = struct.pack("=IBBHQQ", 0, 2, 0, 0x7554, 9, 100)
    more = struct.pack("=IBBHQQ", 0, 3, 0, 0x7554, 9, 50)
    forged = [
        struct.pack("=Q", 77),
        b"tiny",
        struct.pack("=IBBH", 1000, 1, 0, 0x7554) + b"header is not that long",
        struct.pack("=IBBH", 0, 9, 0, 0x7554),
        struct.pack("=IBBHQQ", 0, 3, 0, 0x7554, 9, 0) + b"more without a first",
        struct.pack("=IBBHQQ", 200, 2, 0, 0x7554, 9, 100) + b"header over total",
        first + bytes(100),
        first[:20],
    ]
    for data in forged:
        net.ep.am_bcopy(5, data)
        with pytest.raises(TofuCallerError, match="not from Endpoint.am"):
            until(net.iface, lambda: False)
    net.ep.am_bcopy(5, first + bytes(40))  # and the next part is not at 40
    net.ep.am_bcopy(5, more + bytes(50))
    with pytest.raises(TofuCallerError, match="not from Endpoint.am"):
        until(net.iface, lambda: False)
    net.ep.am(5, b"", header=b"good")
    until(net.iface, lambda: got)
    assert got == [b"good"]


def test_impossible_length_is_refused_not_believed(net):
    net.iface.set_message_handler(5, print)
    net.ep.am_bcopy(5, struct.pack("=IBBHQQ", 0, 2, 0, 0x7554, 9, 1 << 62) + b"x")
    with pytest.raises(TofuOperationError, match="am_backlog"):
        until(net.iface, lambda: False)


def test_bad_ids_and_handlers(net):
    for am_id in (-1, 32, 1 << 20):
        for call in (
            lambda am_id: net.ep.am(am_id, b""),
            lambda am_id: net.iface.set_message_handler(am_id, None),
            net.iface.messages,
        ):
            with pytest.raises(TofuRangeError, match="0 to 31"):
                call(am_id)
    with pytest.raises(TypeError, match="callable"):
        net.iface.set_message_handler(1, 5)
    with pytest.raises(TypeError):
        net.ep.am(1, b"", header="text")


def test_stream_without_a_loop(net):
    stream = net.iface.messages(3)
    assert net.iface.messages(3) is stream
    net.ep.am(3, b"payload", header=b"header")
    message = stream.get(PATIENCE)
    assert message == (b"header", b"payload") and message.payload == b"payload"
    with pytest.raises(TimeoutError):
        stream.get(0)
    net.ep.am(3, b"waits")
    until(net.iface, lambda: len(stream) == 1)
    stream.close()
    stream.close()
    assert stream.get() == (b"", b"waits")
    with pytest.raises(TofuClosedError):
        stream.get()
    net.iface.set_message_handler(3, print)
    with pytest.raises(TofuInUseError, match="has a handler"):
        net.iface.messages(3)


def test_closing_the_endpoint_ends_queued_messages(net):
    with Endpoint(net.iface, net.iface.address) as other:
        request = queued_message(other, 1, bytes(100))
    assert request.done and request.status < 0
    with pytest.raises(Exception, match="CANCELED"):
        request.result()


def test_timeout_says_that_messages_were_dropped(net):
    """One that came before there was a stream for it."""
    with pytest.raises(TimeoutError) as caught:
        net.iface.messages(6).get(timeout=0.1)
    assert "dropped" not in str(caught.value)
    net.ep.am(5, b"too early").wait(PATIENCE)
    until(net.iface, lambda: net.iface.stats()["dropped"] == 1)
    with pytest.raises(TimeoutError, match="the iface dropped 1 before.*stream yet"):
        net.iface.messages(5).get(timeout=0.1)


def test_a_stream_waits_for_no_nan(net):
    """It compares with nothing, so the wait had no end."""
    stream = net.iface.messages(1)
    with pytest.raises(ValueError, match="not NaN"):
        stream.get(timeout=float("nan"))


@pytest.mark.parametrize("timeout", ["1", b"1", [1]])
def test_a_stream_waits_for_no_text(net, timeout):
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None"):
        net.iface.messages(1).get(timeout)
