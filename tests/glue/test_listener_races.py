# SPDX-License-Identifier: BSD-3-Clause
"""Listeners that close while clients come; UCX itself does not survive that."""

import pytest

LATE = """
import socket, struct
words = struct.pack("<QB7x", 64, 0) + bytes(64)     # a message of UCX's tcp manager
for turn, (when, spoken) in enumerate([("listener", b""), ("worker", b""),
                                       ("listener", words[:20])]):
    ctx = ucp_glue.Context()
    worker = ctx.worker()
    listener = worker.listen(0, "127.0.0.1")
    strangers = [socket.create_connection(("127.0.0.1", listener.port), PATIENCE)
                 for _ in range(3)]
    for stranger in strangers:
        stranger.sendall(spoken)
    time.sleep(0.2)                                 # UCX's thread accepts them
    worker.progress()
    known = worker.connect(("127.0.0.1", listener.port))
    served = listener.accept(PATIENCE)
    received = served.tag_recv(bytearray(5), 1)
    known.tag_send(b"hello", 1).wait(PATIENCE)
    {"listener": listener, "worker": worker}[when].close()
    if when == "listener":
        assert received.wait(PATIENCE) == 5         # connections live on
        answer = known.tag_recv(bytearray(6), 2)
        served.tag_send(b"answer", 2).wait(PATIENCE)
        assert answer.wait(PATIENCE) == 6
    for stranger in strangers:
        try:
            stranger.sendall(words[len(spoken):])
        except OSError:
            pass                                    # it was told already
    if when == "listener":
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            worker.progress()
    for stranger in strangers:
        try:
            assert stranger.recv(1) == b""
        except ConnectionError:
            pass
        stranger.close()
    if when == "listener":                          # the port is free again
        worker.listen(listener.port, "127.0.0.1").close()
        closing = known.close_nb(), served.close_nb()
        for request in closing:
            request.wait(PATIENCE)
    ctx.close()
"""


@pytest.mark.parametrize("tls", ["utofu,tcp", "tcp"])
def test_clients_that_speak_after_the_close(script, tls):
    """They have connected to the socket, and not sent what UCX waits for."""
    script(LATE, tls, UCX_LOG_LEVEL="fatal", UCX_TCP_CM_REUSEADDR="y")


STORM = """
import threading
turns, multi = 60, {multi}
ctx = ucp_glue.Context(multi_thread=multi)
worker = ctx.worker()
path = folder + "/port"
if rank == 0:
    over = threading.Event()

    def wait():
        while not over.is_set():
            try:
                worker.wait(0.01)
            except ucp_glue.UcpError:
                pass                        # of a client that has gone

    other = threading.Thread(target=wait)
    if multi:
        other.start()
    served = []

    def serve(ep):
        served.append(ep)
        ep.tag_send(b"x", 1)

    swap(b"", worker)
    for turn in range(turns):
        listener = worker.listen(0, "127.0.0.1", serve)
        with open(path + ".new", "w") as file:
            file.write(str(listener.port))
        os.rename(path + ".new", path)
        end = time.monotonic() + turn % 8 * 0.002
        while time.monotonic() < end:
            try:
                worker.progress()
            except ucp_glue.UcpError:
                pass
        listener.close()
        while served:
            served.pop().close_nb(force=True)
    over.set()
    if multi:
        other.join()
    os.rename(path, path + ".old")
else:
    swap(b"", worker)
    while not os.path.exists(path):
        time.sleep(0.001)
    end = time.monotonic() + PATIENCE
    while os.path.exists(path):
        assert time.monotonic() < end       # the server has died
        try:
            with open(path) as file:
                port = int(file.read())
        except FileNotFoundError:
            break
        try:
            ep = worker.connect(("127.0.0.1", port))
            ep.tag_recv(bytearray(1), 1).wait(0.05)
        except (TimeoutError, ucp_glue.UcpError):
            pass
        ep.close_nb(force=True)
ctx.close(force=True)
"""


@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("tls", ["utofu,tcp", "tcp"])
def test_clients_that_come_while_listeners_close(pair, tls, multi):
    pair(STORM.replace("{multi}", str(multi)), tls, UCX_LOG_LEVEL="fatal")
