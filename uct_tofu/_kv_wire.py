# SPDX-License-Identifier: BSD-3-Clause
"""What goes over the sockets of the key-value bootstrap, and its client.

Every call has a connection of its own:

    server -> client   16 bytes, the server's challenge S
    client -> server   16 bytes, the client's challenge C; HMAC(token, "client" S C)
    server -> client   HMAC(token, "server" S C)
    client -> server   one request: a frame
    server -> client   one reply: a frame

A frame is two 32-bit numbers in network order (size of the header, size of the
payload), the header in JSON, and the payload.  Nothing is read from a client,
and nothing it sent is looked at, before it has shown that it knows the token.
So a stranger can neither read values nor place a pickle, and neither the token
nor anything that can be used again is visible on the wire.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import struct
import time

from uct_tofu.errors import PeerFailedError, WorldError

__all__ = [
    "Client",
    "CHALLENGE",
    "FRAME",
    "MAC",
    "MAX_HEADER",
    "MAX_KEY",
    "MAX_REPLY",
    "MAX_VALUE",
    "host_identity",
    "pack",
    "proof",
]

CHALLENGE = 16  # bytes
MAC = 32  # bytes of an HMAC-SHA256
FRAME = struct.Struct("!II")
MAX_KEY = 1024  # bytes in UTF-8
MAX_VALUE = 16 << 20  # bytes of one pickled object
MAX_REPLY = 1 << 30  # bytes: allgather returns the values of all ranks
MAX_HEADER = 1 << 20  # bytes: a reply lists the sizes of all ranks' values
# Seconds for a connection and its handshake, on a machine that is overloaded.
CONNECT_TIMEOUT = 60.0
TCP_TIMEOUT = 15.0  # a host may have addresses that lead nowhere
# Seconds that the server's own timeout may be late before the client gives up.
LATE = 60.0


def proof(token: bytes, side: bytes, server: bytes, client: bytes) -> bytes:
    """What a side sends to show that it knows the token.

    Source: RFC 2104.
    """
    return hmac.digest(token, side + server + client, "sha256")


def pack(header: dict, *values: bytes) -> bytes:
    """A frame; the header gets the sizes of the values.

    Source: the top of this file.
    """
    text = json.dumps({**header, "sizes": [len(v) for v in values]}).encode()
    size = sum(map(len, values))
    return b"".join([FRAME.pack(len(text), size), text, *values])


def host_identity() -> str:
    """Same for processes that reach each other's abstract Unix sockets.

    Source: proc(5), random/boot_id; unix(7); network_namespaces(7).
    """
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/net"))
    return "/".join(parts)


class _Closed(Exception):
    """The server's end of the connection is closed."""


def _read(sock, size):
    """Exactly so many bytes."""
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise _Closed(f"after {len(data)} of {size} bytes")
        data += piece
    return bytes(data)


class Client:
    """Calls the server of a job; any thread may, and a child after fork.

    Parameters
    ----------
    addresses : list of str
        ``unix:NAME`` (abstract) or ``tcp:HOST:PORT``, tried in this order.
    token : bytes
        The job's secret.
    rank : int
        Of this process.
    holder : int, optional
        The rank that holds the values; None: the launcher.

    Source: uct_tofu/_kv_wire.py, protocol.
    """

    def __init__(self, addresses, token, rank, holder=None):
        self.holder = holder
        self.addresses = list(addresses)
        self.token = token
        self.rank = rank

    def _connect_one(self, address):
        kind, _, rest = address.partition(":")
        if kind == "unix":
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(CONNECT_TIMEOUT)
                until = time.monotonic() + CONNECT_TIMEOUT
                while True:
                    try:
                        sock.connect("\0" + rest)
                        return sock
                    except BlockingIOError:  # the server's queue is full
                        if time.monotonic() > until:
                            raise
                        time.sleep(0.01)
            except BaseException:
                sock.close()
                raise
        if kind == "tcp":
            host, _, port = rest.rpartition(":")
            sock = socket.create_connection(
                (host.strip("[]"), int(port)), TCP_TIMEOUT
            )
            sock.settimeout(CONNECT_TIMEOUT)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock
        raise ValueError(f"{address!r} is neither unix:NAME nor tcp:HOST:PORT")

    def _gone(self, where, why):
        """The exception for a server that is no more there."""
        if self.holder is not None:
            return PeerFailedError(
                f"{where}: rank {self.holder}, which holds the values, has ended, or "
                f"refused this process: {why}",
                self.holder,
            )
        return WorldError(
            f"{where}: the launcher has ended, or refused this process: {why}"
        )

    def connect(self, what):
        """A connection on which both sides have shown that they know the token.

        Raises ``WorldError`` when no address answers.

        Source: uct_tofu/_kv_wire.py, protocol.
        """
        where = f"rank {self.rank}: {what}"
        failures = []
        for address in self.addresses:
            try:
                sock = self._connect_one(address)
                break
            except (OSError, ValueError) as error:
                failures.append(f"{address}: {error}")
        else:
            raise self._gone(where, "; ".join(failures) or "no address")
        try:
            theirs = _read(sock, CHALLENGE)
            ours = os.urandom(CHALLENGE)
            sock.sendall(ours + proof(self.token, b"client", theirs, ours))
            answer = _read(sock, MAC)
            if not hmac.compare_digest(
                answer, proof(self.token, b"server", theirs, ours)
            ):
                raise WorldError(f"{where}: the server does not know the job's token")
            return sock
        except (OSError, _Closed) as error:
            sock.close()
            raise self._gone(where, error) from error
        except BaseException:
            sock.close()
            raise

    def call(self, header, *values, what, timeout=None):
        """One request and its reply.

        Parameters
        ----------
        header : dict
        values : bytes
            Payload.
        what : str
            The call in words, for messages.
        timeout : float, optional
            Seconds; the server keeps it.

        Returns the list of values in the reply.  Raises ``TimeoutError``,
        ``PeerFailedError``, ``WorldError``.  Blocks, without the GIL.

        Source: uct_tofu/_kv_wire.py, protocol.
        """
        with self.connect(what) as sock:
            return self.request(sock, header, *values, what=what, timeout=timeout)

    def request(self, sock, header, *values, what, timeout=None):
        """As ``call``, on a connection that is there and stays.

        Source: uct_tofu/_kv_wire.py, protocol.
        """
        where = f"rank {self.rank}: {what}"
        frame = pack({**header, "rank": self.rank, "timeout": timeout}, *values)
        try:
            # The server tells a timeout in words; this one is for a server that
            # is stopped.
            sock.settimeout(None if timeout is None else timeout + LATE)
            try:
                sock.sendall(frame)
            except (BrokenPipeError, ConnectionResetError):
                pass  # a server that refuses early has said why
            head, size = FRAME.unpack(_read(sock, FRAME.size))
            if head > MAX_HEADER or size > MAX_REPLY:
                raise WorldError(
                    f"{where}: the reply's size is nonsense: {head} and {size} bytes"
                )
            reply = json.loads(_read(sock, head))
            payload = _read(sock, size)
            sizes = reply["sizes"]
            if sum(sizes) != size:
                raise WorldError(f"{where}: the reply's parts do not make {size} bytes")
        except TimeoutError:
            raise TimeoutError(
                f"{where}: no answer of the bootstrap server within {timeout:g} s and "
                f"{LATE:g} s more"
            ) from None
        except (OSError, _Closed) as error:
            raise self._gone(where, f"the connection broke: {error}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorldError(f"{where}: the reply cannot be read: {error!r}") from error
        problem = reply.get("problem")
        if problem == "timeout":
            raise TimeoutError(f"{where}: {reply.get('text')}")
        if problem == "peer":
            raise PeerFailedError(f"{where}: {reply.get('text')}", reply.get("peer"))
        if problem is not None:
            raise WorldError(f"{where}: {reply.get('text')}")
        parts, at = [], 0
        for one in sizes:
            parts.append(payload[at : at + one])
            at += one
        return parts
