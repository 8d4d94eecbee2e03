# SPDX-License-Identifier: BSD-3-Clause
"""Tagged messages and streams of ucp_glue."""

import pytest


@pytest.mark.parametrize("tls", ["utofu", "posix", "tcp", "all"])
def test_sizes(pair, tls):
    """From nothing to megabytes, expected and unexpected, both ways; with UCX_TLS
    a list of one, nothing else carries."""
    pair(
        f"tls = {tls!r}"
        """
# UCX's own shared memory knows no errors
ctx, worker, ep = meet(errors=tls != "posix")
for turn, size in enumerate([0, 1, 8, 33, 1000, 8192, 8193, 100_000, 3_000_001]):
    for first in (0, 1):
        if rank == first:
            ep.tag_send(pattern(size, turn), turn).wait(PATIENCE)
        else:
            if turn % 2:    # unexpected: it is there before the receive
                progress_until(worker, lambda: worker.tag_probe(turn))
                assert worker.tag_probe(turn) == (turn, size)
            buffer = np.full(size + 3, 0xEE, np.uint8)
            request = worker.tag_recv(buffer, turn)
            assert request.wait(PATIENCE) == size
            assert request.sender_tag == turn
            assert (buffer[:size] == pattern(size, turn)).all()
            assert (buffer[size:] == 0xEE).all()
if tls != "all":
    assert {t.split("/")[0] for t in ep.transports} == {tls}, ep.transports
swap(b"", worker)
ctx.close()
""",
        tls,
    )


def test_dtypes(script):
    """NumPy arrays of any contiguous dtype, and whatever else has a buffer."""
    script(
        """
import array, mmap
ctx, worker, ep = loop()
record = np.dtype([("Offset", "i4"), ("value", "f8")])
for kind in [*"?bBhHiIlLqQefdFD", record, "S5", "U3", ">i4"]:
    size = np.dtype(kind).itemsize * 12
    source = (pattern(size) % 2).view(kind).reshape(3, 4)
    target = np.empty_like(source)
    request = worker.tag_recv(target, 1)
    ep.tag_send(source, 1).wait(PATIENCE)
    assert request.wait(PATIENCE) == source.nbytes
    assert target.tobytes() == source.tobytes(), kind
source = np.array(5.0)
for target in (bytearray(8), array.array("d", [0]), mmap.mmap(-1, 8),
               memoryview(bytearray(8)), np.array(0.0)):
    request = worker.tag_recv(target, 2)
    ep.tag_send(source, 2).wait(PATIENCE)
    assert request.wait(PATIENCE) == 8
    assert memoryview(target).tobytes() == source.tobytes()
ctx.close()
"""
    )


def test_wrong_buffers(script):
    script(
        """
ctx, worker, ep = loop()
strided = np.zeros((4, 4))[:, ::2]
text = raises(BufferError, ep.tag_send, strided, 1)
assert "(4, 2)" in text and "C-contiguous" in text, text
raises(BufferError, ep.tag_send, np.zeros((4, 4), order="F"), 1)
text = raises(BufferError, worker.tag_recv, bytes(4), 1)
assert "writable" in text
fixed = np.zeros(4)
fixed.flags.writeable = False
raises(BufferError, worker.tag_recv, fixed, 1)
text = raises(TypeError, ep.tag_send, np.array([object()]), 1)
assert "Python objects" in text, text
raises(TypeError, ep.tag_send, np.zeros(2, [("a", "i4"), ("b", "O")]), 1)
raises(TypeError, ep.tag_send, 5, 1)
raises(TypeError, ep.tag_send, "text", 1)
raises(TypeError, ep.tag_send, None, 1)
raises(OverflowError, ep.tag_send, b"", -1)
raises(OverflowError, ep.tag_send, b"", 1 << 64)
raises(TypeError, ep.tag_send, b"", "tag")
assert "0 in flight" in repr(worker), worker
data = bytearray(100)
request = worker.tag_recv(data, 9)
raises(BufferError, data.extend, b"more")      # the request holds it
ep.tag_send(b"x", 9)
assert request.wait(PATIENCE) == 1
data.extend(b"more")
ctx.close()
"""
    )


@pytest.mark.parametrize("size", [9, 500_000])
def test_truncated(script, size):
    """Eager and rendezvous: the receive fails, the guard stays, the next works."""
    script(
        f"size = {size}"
        """
ctx, worker, ep = loop()
buffer = np.full(size, 0xEE, np.uint8)
request = worker.tag_recv(buffer[: size - 1], 1)
sent = ep.tag_send(pattern(size), 1)
text = raises(ucp_glue.UcpTruncatedError, request.wait, PATIENCE)
assert "ucp_tag_recv_nbx" in text and "MESSAGE_TRUNCATED" in text, text
assert f"{size - 1} bytes" in text, text
assert request.done and request.status == -9
raises(ucp_glue.UcpTruncatedError, request.result)
assert buffer[-1] == 0xEE
try:
    sent.wait(PATIENCE)     # UCX tells the sender of a rendezvous, or not
except ucp_glue.UcpError:
    pass
request = worker.tag_recv(buffer, 1)
ep.tag_send(pattern(size, 1), 1)
assert request.wait(PATIENCE) == size and (buffer == pattern(size, 1)).all()
ctx.close()
"""
    )


def test_masks_sync_and_cancel(script):
    script(
        """
ctx, worker, ep = loop()
buffer = bytearray(8)
any_low = worker.tag_recv(buffer, 0xAB00, 0xFF00)
ep.tag_send(b"first", 0x1200)
ep.tag_send(b"second", 0xAB07)
assert any_low.wait(PATIENCE) == 6 and any_low.sender_tag == 0xAB07
assert worker.tag_probe(0xAB07) is None
assert worker.tag_recv(buffer, 0x1200).wait(PATIENCE) == 5
# over only when it is matched
request = ep.tag_send(b"sync", 3, sync=True)
for _ in range(200):
    worker.progress()
assert not request.done
raises(TimeoutError, request.wait, 0.01)
raises(RuntimeError, request.result)
raises(TypeError, request.cancel)
assert worker.tag_recv(buffer, 3).wait(PATIENCE) == 4
request.wait(PATIENCE)
# a cancelled receive takes no message
request = worker.tag_recv(buffer, 4)
request.cancel()
raises(ucp_glue.UcpCanceledError, request.wait, PATIENCE)
request.cancel()
ep.tag_send(b"later", 4)
assert worker.tag_recv(buffer, 4).wait(PATIENCE) == 5
ctx.close()
"""
    )


@pytest.mark.parametrize("tls", ["utofu", "tcp"])
def test_stream(pair, tls):
    pair(
        """
ctx, worker, ep = meet()
for size in (1, 100, 20_000, 1_000_000):
    data = pattern(size, rank)
    sent = [ep.stream_send(data[: size // 3]), ep.stream_send(data[size // 3 :])]
    buffer = np.empty(size, np.uint8)
    assert ep.stream_recv(buffer).wait(PATIENCE) == size
    assert (buffer == pattern(size, 1 - rank)).all()
    for request in sent:
        request.wait(PATIENCE)
raises(ValueError, ep.stream_recv, bytearray())
swap(b"", worker)
ctx.close()
""",
        tls,
    )


NO_TCP = """
with ucp_glue.Context() as ctx, ctx.worker() as worker:
    told = []
    with worker.listen(0, "127.0.0.1") as listener:
        ep = worker.connect(("127.0.0.1", listener.port),
                            on_error=lambda ep, error: told.append(str(error)))
        try:
            ep.tag_send(b"hello", 1).wait(PATIENCE)
        except ucp_glue.UcpUnreachableError as error:
            assert "UCS_ERR_UNREACHABLE" in str(error), error
            assert "needs tcp in UCX_TLS" in str(error), error
        else:
            raise AssertionError("it arrived")
        end = time.monotonic() + PATIENCE
        while not told and time.monotonic() < end:
            worker.progress()
        assert "needs tcp in UCX_TLS" in told[0], told
        assert "failed with UCS_ERR_UNREACHABLE" in repr(ep), ep
"""


def test_by_port_without_tcp(script):
    """It can't be; the failure says what is missing."""
    script(NO_TCP, "utofu")
