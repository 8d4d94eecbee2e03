# SPDX-License-Identifier: BSD-3-Clause
"""The key-value server of a job: in the launcher, or in rank 0 under mpiexec.

A thread with an event loop of its own.  It keeps values as bytes and never looks
into them.  What it sends and receives is in ``_kv_wire``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import os
import secrets
import socket
import struct
import threading

from uct_tofu._kv_wire import (
    CHALLENGE,
    FRAME,
    MAC,
    MAX_KEY,
    MAX_REPLY,
    MAX_VALUE,
    pack,
    proof,
)

__all__ = ["Server"]

MAX_REQUEST_HEADER = 16 << 10  # bytes
MAX_STRANGERS = 256  # connections that have not shown the token yet
FRAME_TIMEOUT = 60.0  # seconds for a stranger's proof, and for a request
BYE = b"\1"  # on a kept connection: the rank ends in order


class _Refused(Exception):
    """A request that gets an answer with a problem."""

    def __init__(self, problem, text, peer=None):
        self.reply = {"problem": problem, "text": text, "peer": peer}


def _ranks(ranks):
    """"rank 3" or "ranks 1, 2, 5", at most eight by number."""
    ranks = sorted(ranks)
    some = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {some}{more}"


class _Collective:
    def __init__(self, kind, first):
        self.kind = kind
        self.first = first  # the rank that came first, for messages
        self.values = {}


class Server:
    """Holds the values of a job of ``size`` ranks.

    Parameters
    ----------
    size : int
    token : bytes
        The job's secret.
    tcp : bool
        Listen on TCP as well, for ranks on other hosts.

    The sockets listen when the object is made; ``start`` begins to serve.

    Source: docs/launcher.md.
    """

    def __init__(self, size, token, *, tcp=False):
        self.size = size
        self._token = token
        self._store = {}
        self._stored = 0  # bytes
        self._collectives = {}
        self._finished = set()
        self._finished_below = 0  # all collectives below it are complete
        self._waiters = {}
        self._left = {}  # rank -> how it ended
        self._failure = None  # the first rank that failed
        self._strangers = 0
        self._tasks = set()
        self._all_left = threading.Event()
        self._loop = None
        self._thread = None
        backlog = max(128, 2 * size)
        self._sockets = []
        name = f"uct-tofu-{secrets.token_hex(8)}"
        sock = socket.socket(socket.AF_UNIX)
        sock.bind("\0" + name)
        sock.listen(backlog)
        self._sockets.append(sock)
        self.unix_address = f"unix:{name}"
        self.tcp_port = None
        if tcp:
            sock = socket.create_server(("", 0), backlog=backlog)
            self.tcp_port = sock.getsockname()[1]
            self._sockets.append(sock)

    # Called from any thread

    def start(self):
        """Serve, in a thread of this process.

        Source: asyncio.
        """
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)),
            name="uct-tofu-bootstrap",
            daemon=True,
        )
        self._thread.start()
        ready.wait()

    def stop(self):
        """End the thread and close the sockets; harmless when repeated.

        Source: asyncio.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            self._in_loop(self._end.set)
            thread.join()
        self.close_sockets()

    def close_sockets(self):
        """Close the listening sockets: in a child after fork, or at the end.

        Source: fork(2).
        """
        for sock in self._sockets:
            sock.close()

    def rank_left(self, rank, text, *, failed):
        """A rank has ended: who waits for it is told so.

        Source: docs/launcher.md.
        """
        self._in_loop(self._note_left, rank, text, failed)

    def wait_all_left(self, timeout):
        """Wait until all ranks have ended, for so many seconds at most.

        Source: docs/launcher.md.
        """
        return self._all_left.wait(timeout)

    def _in_loop(self, function, *arguments):
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    # In the thread

    async def _run(self, ready):
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        servers = []
        for sock in self._sockets:
            if sock.family == socket.AF_UNIX:
                start = asyncio.start_unix_server(self._accept, sock=sock)
            else:
                start = asyncio.start_server(self._accept, sock=sock)
            servers.append(await start)
        ready.set()
        await self._end.wait()
        for server in servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._converse(reader, writer)
        except (OSError, EOFError, asyncio.TimeoutError):
            pass  # the other side is gone, or never spoke
        except asyncio.CancelledError:
            if not self._end.is_set():
                raise
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _authenticate(self, reader, writer):
        """Whether the other side is of this job."""
        sock = writer.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("iII", data)[1] != os.geteuid():
                return False
        if self._strangers >= MAX_STRANGERS:
            return False
        self._strangers += 1
        try:
            ours = os.urandom(CHALLENGE)
            writer.write(ours)
            data = await asyncio.wait_for(
                reader.readexactly(CHALLENGE + MAC), FRAME_TIMEOUT
            )
        finally:
            self._strangers -= 1
        theirs, mac = data[:CHALLENGE], data[CHALLENGE:]
        if not hmac.compare_digest(mac, proof(self._token, b"client", ours, theirs)):
            return False
        writer.write(proof(self._token, b"server", ours, theirs))
        return True

    async def _converse(self, reader, writer):
        if not await self._authenticate(reader, writer):
            return
        try:
            request, value = await asyncio.wait_for(
                self._read_request(reader), FRAME_TIMEOUT
            )
            reply = await self._answer(request, value, reader)
            if reply is None:
                return
            header, values = {}, reply
        except _Refused as refused:
            request, header, values = {}, refused.reply, ()
        writer.write(pack(header, *values))
        await writer.drain()
        if request.get("op") == "join":
            await self._stay(request["rank"], reader)

    async def _read_request(self, reader):
        head, size = FRAME.unpack(await reader.readexactly(FRAME.size))
        if head > MAX_REQUEST_HEADER or size > MAX_VALUE:
            raise _Refused(
                "protocol",
                f"a request of {head} and {size} bytes is too large; a value has "
                f"{MAX_VALUE} bytes at most",
            )
        try:
            request = json.loads(await reader.readexactly(head))
        except (ValueError, RecursionError):
            raise _Refused("protocol", "the request's header is no JSON") from None
        value = await reader.readexactly(size)
        if not isinstance(request, dict):
            raise _Refused("protocol", "the request's header is no JSON object")
        rank, timeout = request.get("rank"), request.get("timeout")
        if type(rank) is not int or not 0 <= rank < self.size:
            raise _Refused(
                "protocol", f"{rank!r:.40} is no rank of this job of {self.size}"
            )
        good = timeout is None or (
            type(timeout) in (int, float) and 0 <= timeout < math.inf
        )
        if not good:
            raise _Refused("protocol", f"{timeout!r:.40} is no timeout in seconds")
        return request, value

    async def _answer(self, request, value, reader):
        """The values of the reply; None when the client has gone away."""
        op = request.get("op")
        if op == "put":
            self._put(self._key(request), value)
            return ()
        if op == "join":
            return ()
        if op == "get":
            work = self._get(self._key(request), request)
        elif op == "collective":
            work = self._collect(request, value)
        else:
            raise _Refused("protocol", f"{op!r:.40} is no operation")
        # A client that is killed, or gives up, must not stay in the lists.
        work = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _stay(self, rank, reader):
        """Until the rank says farewell, or its connection ends."""
        try:
            farewell = await reader.read(1)
        except OSError:
            farewell = b""
        if farewell == BYE:
            self._note_left(rank, "has ended", False)
        else:
            self._note_left(rank, "was killed, or ended with an error", True)

    def _key(self, request):
        key = request.get("key")
        if not isinstance(key, str) or len(key.encode(errors="replace")) > MAX_KEY:
            raise _Refused(
                "protocol", f"a key is a string of {MAX_KEY} bytes at most"
            )
        return key

    def _note_left(self, rank, text, failed):
        if rank in self._left:
            return
        self._left[rank] = text
        if failed and self._failure is None:
            self._failure = rank
        if len(self._left) == self.size:
            self._all_left.set()
        for name in list(self._waiters):
            self._notify(name)

    def _notify(self, name):
        for future in self._waiters.get(name, ()):
            if not future.done():
                future.set_result(None)

    async def _wait(self, name, ready, timeout):
        """Until ready() is true; False when the time is over."""
        until = None if timeout is None else self._loop.time() + timeout
        while not ready():
            future = self._loop.create_future()
            self._waiters.setdefault(name, set()).add(future)
            try:
                left = None if until is None else until - self._loop.time()
                await asyncio.wait_for(future, left)
            except asyncio.TimeoutError:
                return ready()
            finally:
                waiters = self._waiters[name]
                waiters.discard(future)
                if not waiters:
                    del self._waiters[name]
        return True

    def _check_failure(self):
        if self._failure is not None:
            rank = self._failure
            raise _Refused("peer", f"rank {rank} {self._left[rank]}", rank)

    def _put(self, key, value):
        total = self._stored - len(self._store.get(key, b"")) + len(value)
        if total > MAX_REPLY:
            raise _Refused(
                "full", f"the values of this job are {MAX_REPLY} bytes at most"
            )
        self._store[key] = value
        self._stored = total
        self._notify(("key", key))

    async def _get(self, key, request):
        def ready():
            if key in self._store:
                return True
            self._check_failure()
            others = set(range(self.size)) - {request["rank"]}
            if others and others <= self._left.keys():
                raise _Refused(
                    "peer",
                    "nobody has put this key, and all other ranks have ended",
                    min(others),
                )
            return False

        timeout = request["timeout"]
        if not await self._wait(("key", key), ready, timeout):
            raise _Refused("timeout", f"nobody has put this key in {timeout:g} s")
        return (self._store[key],)

    async def _collect(self, request, value):
        number, rank = request.get("number"), request["rank"]
        kind = request.get("kind")
        root = request.get("root")
        if type(number) is not int or number < 0 or not isinstance(kind, str):
            raise _Refused("protocol", "a collective call has a number and a kind")
        if root is not None and (type(root) is not int or not 0 <= root < self.size):
            raise _Refused("protocol", f"{root!r:.40} is no rank of this job")
        kind = kind[:40] if root is None else f"{kind[:40]} from rank {root}"
        if number < self._finished_below or number in self._finished:
            raise _Refused(
                "protocol", f"rank {rank} takes part twice in collective call {number}"
            )
        held = self._collectives.setdefault(number, _Collective(kind, rank))
        if held.kind != kind:
            raise _Refused(
                "mismatch",
                f"as collective call {number}, rank {held.first} has called "
                f"{held.kind} and rank {rank} {kind}",
            )
        if rank in held.values:
            raise _Refused(
                "protocol", f"rank {rank} takes part twice in collective call {number}"
            )
        if sum(map(len, held.values.values())) + len(value) > MAX_REPLY:
            raise _Refused(
                "full", f"the ranks' values are more than {MAX_REPLY} bytes together"
            )
        held.values[rank] = value
        if len(held.values) == self.size:
            self._finish(number)
        self._notify(("collective", number))

        def ready():
            if len(held.values) == self.size or root in held.values:
                return True
            for other, text in self._left.items():
                if other not in held.values and root in (None, other):
                    raise _Refused("peer", f"rank {other} {text}", other)
            self._check_failure()
            return False

        timeout = request["timeout"]
        if not await self._wait(("collective", number), ready, timeout):
            missing = set(range(self.size)) - held.values.keys()
            raise _Refused(
                "timeout",
                f"waited {timeout:g} s; {_ranks(missing)} did not take part",
            )
        if kind == "barrier":
            return ()
        if root is not None:
            return (held.values[root],)
        return tuple(held.values[rank] for rank in range(self.size))

    def _finish(self, number):
        del self._collectives[number]
        self._finished.add(number)
        while self._finished_below in self._finished:
            self._finished.discard(self._finished_below)
            self._finished_below += 1
