# SPDX-License-Identifier: BSD-3-Clause
"""ucp_glue with asyncio, and connections by socket address."""

import pytest

COROUTINES = """
import asyncio

async def main():
    ctx, worker, ep = meet(errors=tls != "posix", **options)
    inbox = worker.am_messages(2)
    # a ping-pong, tasks beside each other, large and small
    for size in (8, 400_000):
        for turn in range(20):
            buffer = np.empty(size, np.uint8)
            if rank == 0:
                await ep.tag_send(pattern(size, turn), turn)
                assert await worker.tag_recv(buffer, turn) == size
            else:
                assert await worker.tag_recv(buffer, turn) == size
                await ep.tag_send(pattern(size, turn), turn)
            assert (buffer == pattern(size, turn)).all()
    async def one(number):
        buffer = np.empty(5000, np.uint8)
        received = worker.tag_recv(buffer, 100 + number)
        await ep.tag_send(pattern(5000, number), 100 + number)
        await received
        assert (buffer == pattern(5000, number)).all()
    await asyncio.gather(*(one(number) for number in range(30)))
    # a message that comes while the loop sleeps
    if rank == 0:
        await asyncio.sleep(0.3)
        await ep.am_send(2, b"late")
    else:
        ticks = 0
        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1
        ticking = asyncio.create_task(tick())
        async for message in inbox:
            assert message.data == b"late"
            break
        assert ticks > 0        # others ran meanwhile
        ticking.cancel()
    # a task that is cancelled takes nothing down; the receive stays
    buffer = bytearray(4)
    request = worker.tag_recv(buffer, 7)
    try:
        await asyncio.wait_for(asyncio.ensure_future(wait_for(request)), 0.05)
    except asyncio.TimeoutError:
        pass
    assert not request.done
    swap(b"", worker)
    await ep.tag_send(b"four", 7)
    await request
    assert buffer == b"four"
    await ep.flush()
    await worker.flush()
    swap(b"", worker)
    # idle: no busy loop
    if worker.event_fd is not None:
        worker.drive()
        before = time.process_time()
        await asyncio.sleep(1)
        assert time.process_time() - before < 0.5
    swap(b"", worker)
    ctx.close()

async def wait_for(request):
    return await request

asyncio.run(main())
"""


@pytest.mark.parametrize("tls", ["utofu", "posix", "tcp"])
def test_coroutines(pair, tls):
    pair(f"tls = {tls!r}; options = {{}}" + COROUTINES, tls)


def test_coroutines_that_poll(pair):
    """Without the feature "wakeup" there is no event descriptor."""
    pair(
        "tls = 'utofu'; options = dict(features=['tag', 'am'])" + COROUTINES, "utofu"
    )


def test_loops_one_after_another(script):
    """The worker goes along to a new loop; a handler's exception stops nothing."""
    script(
        """
import asyncio
ctx, worker, ep = loop()
seen = []
def handler(message):
    seen.append(message.data)
    raise KeyError(message.data)
worker.set_am_handler(1, handler)
async def main():
    complaints = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, what: complaints.append(what["exception"]))
    worker.drive()
    for number in range(3):
        ep.am_send(1, bytes([number]))
    end = time.monotonic() + PATIENCE
    while len(complaints) < 3 and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert [type(c) for c in complaints] == [KeyError] * 3, complaints
for _ in range(3):
    seen.clear()
    asyncio.run(main())
    assert seen == [b"\\0", b"\\1", b"\\2"], seen
ctx.close()
"""
    )


@pytest.mark.parametrize("tls", ["utofu,tcp", "tcp"])
def test_listener(pair, tls):
    """The connection is made over tcp; utofu carries where it is allowed."""
    pair(
        f"tls = {tls!r}"
        """
import asyncio
ctx = ucp_glue.Context()
worker = ctx.worker()
told = []
if rank == 0:
    listener = worker.listen(host="127.0.0.1", on_error=lambda ep, error:
                             told.append(error))
    assert listener.host == "127.0.0.1" and listener.port > 0
    swap(str(listener.port).encode())
    ep = listener.accept(PATIENCE)
else:
    port = int(swap(b""))
    ep = worker.connect(("127.0.0.1", port), on_error=lambda ep, error:
                        told.append(error))
for size in (10, 1_000_000):
    buffer = np.empty(size, np.uint8)
    request = ep.tag_recv(buffer, rank)
    ep.tag_send(pattern(size, rank), 1 - rank).wait(PATIENCE)
    assert request.wait(PATIENCE) == size and (buffer == pattern(size, 1 - rank)).all()
assert any(t.startswith("utofu/") for t in ep.transports) == tls.startswith("utofu")
# The client leaves; the server's receive ends with an error, and it is told once.
swap(b"", worker)
if rank == 1:
    ep.close()
    assert not ep.alive
    raises(ucp_glue.UcpClosedError, ep.tag_send, b"", 1)
else:
    request = ep.tag_recv(bytearray(1), 99)
    text = raises(ucp_glue.UcpConnectionError, request.wait, PATIENCE)
    assert "CONNECTION_RESET" in text, text
    assert [type(error) for error in told] == [ucp_glue.UcpConnectionError], told
    assert not ep.alive
    raises(ucp_glue.UcpConnectionError, ep.tag_send, b"", 1)
    ep.close()
    # a second one, in coroutines
    async def serve():
        other = await listener.accept_async()
        data = bytearray(5)
        await other.tag_recv(data, 1)
        assert data == b"hello"
        await other.tag_send(b"again", 2)
        listener.close()
        await other.close_nb()
    asyncio.run(serve())
if rank == 1:
    async def client():
        other = worker.connect(("127.0.0.1", port))
        await other.tag_send(b"hello", 1)
        data = bytearray(5)
        await other.tag_recv(data, 2)
        assert data == b"again"
        await other.close_nb()
    asyncio.run(client())
swap(b"", worker)
ctx.close()
""",
        tls,
    )


def test_listener_refuses_and_closes(pair):
    """A handler's listener; a port that nobody listens on; clients nobody accepts."""
    pair(
        """
import asyncio
ctx = ucp_glue.Context()
worker = ctx.worker()
if rank == 0:
    eps = []
    listener = worker.listen(0, "127.0.0.1", eps.append)
    raises(RuntimeError, listener.accept, 1)
    silent = worker.listen(0, "127.0.0.1")
    raises(TimeoutError, silent.accept, 0.05)
    raises(ucp_glue.UcpRetryError, worker.listen, silent.port, "127.0.0.1")
    raises(ValueError, worker.listen, 70000)
    raises(ValueError, worker.connect, ("127.0.0.1", -1))
    swap(f"{listener.port} {silent.port}".encode())
    progress_until(worker, lambda: eps)
    listener.close()
    raises(ucp_glue.UcpClosedError, listener.accept)
    eps[0].tag_send(b"x", 1).wait(PATIENCE)
    swap(b"", worker)
    progress_until(worker, lambda: silent.pending == 1)
    silent.close()
    assert silent.pending == 0 and "1 endpoints" in repr(worker), worker
    # inside a coroutine that waits
    async def main():
        third = worker.listen(0, "127.0.0.1")
        waiting = asyncio.create_task(third.accept_async())
        await asyncio.sleep(0.01)
        third.close()
        try:
            await waiting
        except ucp_glue.UcpClosedError:
            return
        raise AssertionError
    asyncio.run(main())
    swap(b"", worker)
else:
    one, two = map(int, swap(b"").split())
    ep = worker.connect(("127.0.0.1", one))
    worker.tag_recv(bytearray(1), 1).wait(PATIENCE)
    lost = worker.connect(("127.0.0.1", two))
    request = lost.tag_recv(bytearray(1), 5)
    swap(b"", worker)
    raises(ucp_glue.UcpConnectionError, request.wait, PATIENCE)
    nobody = worker.connect(("127.0.0.1", two))
    request = nobody.tag_recv(bytearray(1), 6)
    raises(ucp_glue.UcpConnectionError, request.wait, PATIENCE)
    swap(b"", worker)
ctx.close()
""",
        "utofu,tcp",
        UCX_LOG_LEVEL="fatal",
    )
