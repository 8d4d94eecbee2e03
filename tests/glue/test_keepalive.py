# SPDX-License-Identifier: BSD-3-Clause
"""UCP's keepalive to a peer that does not listen."""

STUCK = """
ctx = ucp_glue.Context()
worker = ctx.worker()
if rank == 1:
    listener = worker.listen(0, "127.0.0.1")
    swap(str(listener.port).encode())
    served = listener.accept(PATIENCE)
    served.tag_send(b"x", 1).wait(PATIENCE)
    swap(b"")                               # and is busy until then
else:
    address = "127.0.0.1", int(swap(b""))
    first = worker.connect(address)
    first.tag_recv(bytearray(1), 1).wait(PATIENCE)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        worker.wait(0.001)                  # the peer lends no more slots
    connecting = [worker.connect(address) for _ in range(2)]
    first.close_nb(force=True)
    worker.progress()
    connecting[0].close_nb(force=True)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        worker.wait(0.001)
    swap(b"")
ctx.close(force=True)
"""


def test_keepalive_without_room(pair):
    """UCX remembers whom it had no room to ask, and not that he has gone.

    It fell over that in one run of three, when it was told that there was no room.
    """
    pair(STUCK, "utofu,tcp", UCX_LOG_LEVEL="fatal", UCX_KEEPALIVE_INTERVAL="10ms")
