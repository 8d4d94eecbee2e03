# SPDX-License-Identifier: BSD-3-Clause
"""What peers can make an iface store is bounded, and what goes beyond is told."""

import struct
import time

import pytest
from core_support import PATIENCE, loopback, until

from uct_tofu import TofuOperationError, TofuRetryError

PART = 8000  # bytes of data of a part
MAGIC = 0x7554


def _first(stream, total):
    return struct.pack("=IBBHQQ", 0, 2, 0, MAGIC, stream, total) + bytes(PART)


def _more(stream, offset, length):
    return struct.pack("=IBBHQQ", 0, 3, 0, MAGIC, stream, offset) + bytes(length)


def _send(net, data, errors=None):
    """What a hostile sender sends, in its own format; progress may raise."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return net.ep.am_bcopy(5, data)
        except TofuRetryError:
            assert time.monotonic() < deadline
        try:
            net.iface.progress()
        except TofuOperationError as error:
            if errors is not None:
                errors.append(str(error))


def _arrivals(net):
    """Progress until nothing comes; what progress raised, in words."""
    errors = []
    quiet = 0
    while quiet < 1000:
        try:
            quiet = quiet + 1 if net.iface.progress() == 0 else 0
        except TofuOperationError as error:
            errors.append(str(error))
            quiet = 0
    return errors


def test_incomplete_messages_give_way_longest_idle_first():
    got = []
    with loopback(am_backlog=100000) as net:
        net.iface.set_message_handler(5, lambda _, payload: got.append(len(payload)))
        for stream in range(1, 6):  # of 9 KiB each in memory, with one part missing
            _send(net, _first(stream, PART + stream))
        _send(net, _first(9, 80000))
        errors = _arrivals(net)
        assert len(errors) == 1 and "am_backlog of 100000 bytes" in errors[0]
        _send(net, _more(5, PART, 5))  # the youngest of them is kept
        assert _arrivals(net) == [] and got == [PART + 5]
        _send(net, _more(1, PART, 1))  # the oldest is gone
        with pytest.raises(ValueError, match="message is not known"):
            until(net.iface, lambda: False)


def test_dead_senders_leave_no_more_than_the_backlog():
    with loopback(am_backlog=1 << 20) as net:
        net.iface.set_message_handler(5, print)
        errors = []
        for stream in range(1, 201):
            _send(net, _first(stream, 1 << 20), errors)
            errors += _arrivals(net)
        assert len(errors) > 150  # eight of them fit
        assert all("1 incomplete messages" in error for error in errors)


# more than one is dropped in a call: those that progress does not raise go to sys.unraisablehook
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_large_messages_within_the_backlog_arrive_beside_dead_ones():
    got = []
    with loopback(am_backlog=1 << 20) as net:
        net.iface.set_message_handler(5, lambda _, payload: got.append(len(payload)))
        for stream in range(1, 101):
            _send(net, _first(stream, 500000))
        _arrivals(net)
        for _ in range(5):
            net.ep.am(5, bytes(1 << 20))
            _arrivals(net)
    assert got == [1 << 20] * 5


def test_message_larger_than_the_backlog_is_refused():
    got = []
    with loopback(am_backlog=50000) as net:
        net.iface.set_message_handler(5, lambda _, payload: got.append(len(payload)))
        net.ep.am(5, bytes(50001))
        with pytest.raises(TofuOperationError, match="50001 bytes comes for AM id 5"):
            until(net.iface, lambda: False)
        assert _arrivals(net) == [] and got == []  # nothing about its further parts
        net.ep.am(5, bytes(50000))
        until(net.iface, lambda: got)
    assert got == [50000]


def test_every_error_is_told(monkeypatch):
    """progress raises one; the others go to sys.unraisablehook."""
    unraised = []
    monkeypatch.setattr("sys.unraisablehook", lambda args: unraised.append(args))
    with loopback() as net:
        raised = []
        for i in range(3):
            net.ep.am(4, b"", header=b"%d" % i)

        def handler(header, payload):
            raised.append(header)
            raise KeyError(header)

        net.iface.set_message_handler(4, handler)
        errors = []
        deadline = time.monotonic() + PATIENCE
        while len(raised) < 3 or not errors:
            try:
                net.iface.progress()
            except KeyError as error:
                errors.append(error)
            assert time.monotonic() < deadline
    errors += [args.exc_value for args in unraised]
    assert sorted(error.args for error in errors) == [(b"0",), (b"1",), (b"2",)]
    assert unraised[0].object is net.iface  # they came together


def test_without_a_handler_nothing_stays():
    with loopback(am_backlog=20000) as net:
        net.iface.set_message_handler(5, print)
        for stream in range(1, 21):
            _send(net, _first(stream, 15000))
            assert _arrivals(net) == []
            net.iface.set_message_handler(5, None)
            net.iface.set_message_handler(5, print)


def test_untaken_messages_of_a_stream_are_bounded(monkeypatch):
    unraised = []  # of several that came together one is raised
    monkeypatch.setattr("sys.unraisablehook", lambda args: unraised.append(args))
    with loopback(am_backlog=10000) as net:
        stream = net.iface.messages(3)
        for i in range(20):
            net.ep.am(3, bytes(744), header=b"%04d" % i)  # 1004 bytes with overhead
        errors = _arrivals(net)
        assert len(stream) == 9 and len(errors) + len(unraised) == 11
        assert "9 messages wait" in errors[0] and "TOFU_ERR_NO_MEMORY" in errors[0]
        assert [stream.get().header for _ in range(9)] == [
            b"%04d" % i for i in range(9)
        ]
        net.ep.am(3, b"room again")
        assert stream.get(PATIENCE).payload == b"room again"
