# SPDX-License-Identifier: BSD-3-Clause
"""Put, get, atomics and active messages of ucp_glue."""

import pytest


@pytest.mark.parametrize("kind", ["alloc", "map"])
@pytest.mark.parametrize("tls", ["utofu", "posix,cma", "tcp"])
def test_put_get(pair, tls, kind):
    pair(
        f"tls, kind = {tls!r}, {kind!r}"
        """
ctx, worker, ep = meet(errors="posix" not in tls)
size = 2_000_003
array = np.zeros(size, np.uint8)
memory = ctx.alloc(size) if kind == "alloc" else ctx.map(array)
view = np.frombuffer(memory, np.uint8)
assert len(memory) == size and view.nbytes == size and not view.any()
remote = ep.unpack(swap(memory.pack_rkey()))
assert remote.size == size
for turn, (offset, length) in enumerate(
        [(0, 0), (0, 1), (5, 8), (4093, 100), (77, 9000), (1, size - 1), (0, size)]):
    if rank == 0:
        ep.put(pattern(length, turn), remote, offset=offset).wait(PATIENCE)
        ep.flush().wait(PATIENCE)
        back = np.full(length + 1, 0xEE, np.uint8)
        ep.get(back[:length], remote, offset=offset).wait(PATIENCE)
        assert (back[:length] == pattern(length, turn)).all() and back[-1] == 0xEE
    swap(b"", worker)
    if rank == 1:
        assert (view[offset : offset + length] == pattern(length, turn)).all()
    swap(b"", worker)
# nothing outside of the memory is reached, and nothing was in flight after it
whole = bytearray(size)
for offset, length in [(-1, 1), (size, 1), (size + 1, 0), (1, size), (2**62, 8)]:
    for call in (ep.put, ep.get):
        text = raises(ucp_glue.UcpCallerError, call, memoryview(whole)[:length], remote,
                      offset=offset)
        assert "OUT_OF_RANGE" in text and str(offset) in text, text
ep.put(b"", remote, offset=size).wait(PATIENCE)
worker.flush().wait(PATIENCE)
worker.fence()
assert "0 in flight" in repr(worker)
swap(b"", worker)
remote.close()
raises(ucp_glue.UcpClosedError, ep.put, b"", remote)
del view
memory.close()
raises(ucp_glue.UcpClosedError, len, memory)
swap(b"", worker)
ctx.close()
""",
        tls,
    )


@pytest.mark.parametrize("tls", ["utofu", "posix", "tcp"])
def test_atomics(pair, tls):
    """Both processes work on the words of rank 0 at the same time."""
    pair(
        """
ctx, worker, ep = meet(errors=False)
memory = ctx.alloc(4096)
words = np.frombuffer(memory, np.uint64)
remote = ep.unpack(swap(memory.pack_rkey()))
if rank == 1:
    for size in (4, 8):
        top = (1 << 8 * size) - 1
        at = dict(offset=64, size=size)
        ep.swap(remote, 0, offset=64).wait(PATIENCE)
        assert ep.fetch_add(remote, 5, **at).wait(PATIENCE) == 0
        assert ep.fetch_add(remote, -6, **at).wait(PATIENCE) == 5
        assert ep.fetch_and(remote, 0xF0F0, **at).wait(PATIENCE) == top
        assert ep.fetch_or(remote, 0x0F, **at).wait(PATIENCE) == 0xF0F0
        assert ep.fetch_xor(remote, 0xFF, **at).wait(PATIENCE) == 0xF0FF
        assert ep.swap(remote, top, **at).wait(PATIENCE) == 0xF000
        assert ep.compare_swap(remote, 1, 2, **at).wait(PATIENCE) == top
        assert ep.compare_swap(remote, top, 3, **at).wait(PATIENCE) == top
        ep.add(remote, 4, **at)
        ep.flush().wait(PATIENCE)
        ep.or_(remote, 0x18, **at)
        ep.flush().wait(PATIENCE)
        ep.and_(remote, 0x1B, **at)
        ep.flush().wait(PATIENCE)
        ep.xor(remote, 0xFF, **at)
        ep.flush().wait(PATIENCE)
        # only the word itself was touched
        assert ep.fetch_add(remote, 0, offset=64).wait(PATIENCE) == 0x1B ^ 0xFF
        assert ep.fetch_add(remote, 0, offset=72).wait(PATIENCE) == 0
    requests = [ep.fetch_add(remote, 1) for _ in range(300)]
    assert sorted(r.wait(PATIENCE) for r in requests) == list(range(300))
    at = dict(offset=8)
    raises(OverflowError, ep.add, remote, 1 << 64, **at)
    raises(OverflowError, ep.add, remote, -(1 << 63) - 1, **at)
    raises(OverflowError, ep.add, remote, 1 << 32, size=4, **at)
    raises(ValueError, ep.add, remote, 1, offset=4)
    raises(ValueError, ep.add, remote, 1, size=2)
    raises(ucp_glue.UcpCallerError, ep.fetch_add, remote, 1, offset=4096)
    raises(ucp_glue.UcpCallerError, ep.fetch_add, remote, 1, offset=-8)
swap(b"", worker)
if rank == 0:
    assert words[0] == 300
swap(b"", worker)
del words
ctx.close()
""",
        tls,
    )


def test_atomics_need_no_error_handling(script):
    """UCX 1.22 has none otherwise: said in words, before it would be logged."""
    output = script(
        """
ctx, worker, ep = loop(errors=True)
memory = ctx.alloc(64)
remote = ep.unpack(memory.pack_rkey())
text = raises(ucp_glue.UcpCallerError, ep.fetch_add, remote, 1)
assert "error_handling=False" in text, text
ctx.close()
only = ucp_glue.Context(["rma", "amo32"])
worker = only.worker()
ep = worker.connect(worker.address, error_handling=False)
memory = only.alloc(64)
remote = ep.unpack(memory.pack_rkey())
assert "amo64" in raises(ValueError, ep.add, remote, 1)
only.close()
"""
    )
    assert "ERROR" not in output, output


def test_keys_and_addresses_are_checked(script):
    script(
        """
ctx, worker, ep = loop()
memory = ctx.map(bytearray(100))
packed = memory.pack_rkey()
for bad in (b"", b"UGLK", packed[:-1], packed + b"x", packed[:20] + b"?" + packed[21:],
            worker.address, bytes(200)):
    raises(ValueError, ep.unpack, bad)
for bad in (b"", packed, worker.address[:-1], bytes(100)):
    raises(ValueError, worker.connect, bad)
raises(TypeError, ep.unpack, 3)
raises(TypeError, worker.connect, None)
raises(TypeError, ep.put, b"", None)
other = worker.connect(worker.address)
remote = other.unpack(packed)
text = raises(ValueError, ep.put, b"x", remote)
assert "belongs to" in text
fixed = ctx.map(b"fixed bytes", read_only=True)
remote = ep.unpack(fixed.pack_rkey())
back = bytearray(5)
ep.get(back, remote).wait(PATIENCE)
assert back == b"fixed" and remote.read_only
raises(ValueError, ep.put, b"x", remote)
raises(BufferError, ctx.map, b"fixed bytes")
raises(ValueError, ctx.map, bytearray())
raises(ValueError, ctx.alloc, 0)
raises(OverflowError, ctx.alloc, -1)
raises(ucp_glue.UcpSystemError, ctx.alloc, 1 << 60)
ctx.close()
""",
        UCX_LOG_LEVEL="fatal",
    )


@pytest.mark.parametrize("tls", ["utofu", "posix", "tcp"])
def test_active_messages(pair, tls):
    """Short, eager, rendezvous; header and payload; by handler, inbox, recv."""
    pair(
        f"tls = {tls!r}"
        """
ctx, worker, ep = meet(errors=tls != "posix")
SIZES = [0, 1, 8, 1024, 1025, 20_000, 2_000_000]
automatic, explicit, handled = (worker.am_messages(1),
    worker.am_messages(65535, rendezvous="explicit"), [])
worker.set_am_handler(7, handled.append)
swap(b"", worker)
sent = []
for turn, size in enumerate(SIZES):
    for am_id in (1, 65535, 7):
        for protocol in (None, "eager", "rndv"):
            sent.append(ep.am_send(am_id, pattern(size, turn), header=bytes([turn]) * turn,
                                   protocol=protocol, reply=protocol is None))
def check(message, protocol, data):
    turn = SIZES.index(message.length)
    assert message.header == bytes([turn]) * turn
    assert bytes(data) == pattern(message.length, turn).tobytes()
for _ in range(3 * len(SIZES)):
    message = automatic.get(PATIENCE)
    check(message, None, message.data)
    assert message.recv().wait(PATIENCE) == message.data if not message.rendezvous else 1
rendezvous = 0
for _ in range(3 * len(SIZES)):
    message = explicit.get(PATIENCE)
    assert (message.data is None) == message.rendezvous
    rendezvous += message.rendezvous
    if message.length:
        short = bytearray(message.length - 1)
        raises(ucp_glue.UcpTruncatedError, message.recv, short)
    buffer = np.zeros(message.length + 2, np.uint8)
    assert message.recv(buffer).wait(PATIENCE) is buffer
    check(message, None, buffer[: message.length])
    assert not buffer[message.length :].any()
    if message.rendezvous:
        raises(RuntimeError, message.recv)
# those that were asked for, and the 2 MB that UCX decides about
assert rendezvous >= len([size for size in SIZES if size]) and rendezvous < 21, rendezvous
progress_until(worker, lambda: len(handled) == 3 * len(SIZES))
for message in handled:
    check(message, None, message.data)
assert any(message.endpoint is ep for message in handled)
assert any(message.endpoint is None for message in handled)
for request in sent:
    request.wait(PATIENCE)
text = raises(ValueError, ep.am_send, 1, b"", header=bytes(worker.max_am_header + 1))
assert str(worker.max_am_header) in text
raises(ValueError, ep.am_send, -1)
raises(ValueError, ep.am_send, 65536)
raises(ValueError, ep.am_send, 1, protocol="fast")
raises(TypeError, worker.set_am_handler, 1, 5)
raises(ValueError, worker.set_am_handler, 65536, print)
swap(b"", worker)
worker.set_am_handler(7, None)
ctx.close()
""",
        tls,
    )


def test_am_without_a_handler(script):
    """A large message that nobody takes: the error says who misses what."""
    script("""
ctx, worker, ep = loop()
text = raises(ucp_glue.UcpCallerError, ep.am_send(9, bytes(1_000_000)).wait, PATIENCE)
assert "ucp_am_send_nbx" in text and "the peer has no handler" in text, text
ctx.close(force=True)
""")
