# SPDX-License-Identifier: BSD-3-Clause
"""``uct_tofu.world()``: the ranks of a job, and small objects between them.

For setup: addresses and keys of memory go through here, data go over the
transport.  Under ``uct-tofu run`` the launcher holds the values; under another
launcher rank 0 does, and PMI, PMIx or mpi4py tell the others where; a process
that was started alone is a world of one.  ``UCT_TOFU_BOOTSTRAP`` (auto, launcher,
pmi, pmix, mpi4py, single) overrides the choice.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import secrets
import socket
import sys
import threading

from uct_tofu._kv_wire import MAX_KEY, MAX_VALUE, Client, host_identity
from uct_tofu._seconds import seconds
from uct_tofu.errors import WorldError

__all__ = ["World", "world"]

# Seconds for which rank 0, which holds the values under mpiexec, waits at its end
# for the other ranks; and when it has failed, for them to be told.
LINGER = 10.0
LINGER_FAILED = 2.0
# Seconds that a wait has at most: some 30 years, as sockets can't have any number.
LONGEST = 1e9

RANK_VARIABLES = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LOCAL_SIZE_VARIABLES = (
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_LOCAL_SIZE",
)


def _number(names):
    """The first of these variables that is a number, or None."""
    for name in names:
        with contextlib.suppress(KeyError, ValueError):
            return int(os.environ[name])
    return None


class _Alone:
    """The calls of a ``Client`` for a world of one process and many threads."""

    def __init__(self):
        self._values = {}
        self._changed = threading.Condition()

    def call(self, header, *values, what, timeout=None):
        """As ``Client.call``.

        Source: uct_tofu/_kv_wire.py, protocol.
        """
        if header["op"] == "collective":
            return [*values]
        with self._changed:
            if header["op"] == "put":
                self._values[header["key"]] = values[0]
                self._changed.notify_all()
                return []
            key = header["key"]
            if not self._changed.wait_for(lambda: key in self._values, timeout):
                raise TimeoutError(
                    f"rank 0: {what}: nobody has put this key in {timeout:g} s"
                )
            return [self._values[key]]


class World:
    """The processes of a job and this one's place among them.

    Made by ``uct_tofu.world()``.  All methods may be called from any thread; the
    collective ones (allgather, bcast, barrier) in the same order in every rank.
    Blocking calls release the GIL.  Objects are pickled, 16 MiB at most each; a
    value is taken only from processes that hold the job's secret.

    Attributes
    ----------
    rank, size : int
        Number of this process, and how many there are.
    node : int
        Number of the node that this process is on, from 0 without gaps: the
        emulated node under ``uct-tofu run``, else the host.
    local_rank, local_size : int
        The same as rank and size among the processes of the node.
    bootstrap : str
        "launcher", "pmi", "pmix", "mpi4py" or "single".

    Source: docs/launcher.md.
    """

    def __init__(self, bootstrap, rank, size, client, *, node=0, local=(0, 1)):
        self.bootstrap = bootstrap
        self.rank = rank
        self.size = size
        self.node = node
        self.local_rank, self.local_size = local
        self._client = client
        self._lock = threading.Lock()
        self._collectives = 0

    def __repr__(self):
        return (
            f"<World rank {self.rank} of {self.size}, node {self.node}, "
            f"by {self.bootstrap}>"
        )

    @property
    def coords(self) -> tuple[int, ...]:
        """Coordinates X, Y, Z, A, B, C of this process' node in the Tofu network.

        The first use loads the uTofu library, the machine's or the emulator.
        Raises ``RuntimeError`` or ``UtofuError`` when there is none.

        Source: uTofu user's guide, utofu_query_my_coords.
        """
        from uct_tofu import Backend

        return tuple(Backend.load().coords())

    def put(self, key, obj):
        """Let all ranks ``get`` an object by this key; does not wait for them.

        Parameters
        ----------
        key : str
            1024 bytes in UTF-8 at most.  A second put replaces the value.
        obj : object
            Anything that pickles.

        Raises ``TypeError`` or ``ValueError`` for a key that is no str or too
        long, ``ValueError`` for an object above 16 MiB, ``WorldError`` when the
        server has ended; what pickling raises passes through.

        Source: docs/launcher.md.
        """
        self._check_key(key)
        data = self._pickled(obj, f"put({key!r})")
        self._client.call({"op": "put", "key": key}, data, what=f"put({key!r})")

    def get(self, key, timeout=None):
        """Wait until some rank has put this key, and return the object.

        Parameters
        ----------
        key : str
        timeout : float, optional
            Seconds; None waits for as long as the other ranks run.

        Raises ``TimeoutError``; ``PeerFailedError`` when a rank has failed, or
        all others have ended, before the key was put; ``TypeError``,
        ``ValueError``, ``WorldError`` as ``put``.

        Source: docs/launcher.md.
        """
        self._check_key(key)
        (data,) = self._client.call(
            {"op": "get", "key": key},
            what=f"get({key!r})",
            timeout=_seconds(timeout),
        )
        return pickle.loads(data)

    def allgather(self, obj, timeout=None) -> list:
        """Give an object to all ranks; returns those of all, by rank.

        Collective: waits for all ranks.  Each is 16 MiB at most, 1 GiB together.
        After a ``TimeoutError`` this rank has taken part: the others can
        complete, and its next collective call goes with their next.

        Raises ``TimeoutError``; ``PeerFailedError`` when a rank that has not
        taken part has ended; ``ValueError``, ``WorldError`` as ``put``.

        Source: docs/launcher.md.
        """
        data = self._pickled(obj, "allgather")
        return [pickle.loads(d) for d in self._collective("allgather", data, timeout)]

    def bcast(self, obj, root=0, timeout=None):
        """Rank ``root``'s object, in every rank; elsewhere ``obj`` is not looked at.

        Collective, but waits for the root only.  Raises ``ValueError`` for a
        root that is no rank, else as ``allgather``.

        Source: docs/launcher.md.
        """
        if type(root) is not int or not 0 <= root < self.size:
            raise ValueError(f"root {root!r} is no rank of a world of {self.size}")
        data = self._pickled(obj, "bcast") if root == self.rank else b""
        (data,) = self._collective("bcast", data, timeout, root=root)
        return pickle.loads(data)

    def barrier(self, timeout=None):
        """Wait until all ranks have called it.  Raises as ``allgather``.

        Source: docs/launcher.md.
        """
        self._collective("barrier", b"", timeout)

    def _collective(self, kind, data, timeout, root=None):
        timeout = _seconds(timeout)
        with self._lock:
            number = self._collectives
            self._collectives += 1
        header = {"op": "collective", "kind": kind, "number": number, "root": root}
        return self._client.call(
            header, data, what=f"{kind} (collective call {number})", timeout=timeout
        )

    @staticmethod
    def _check_key(key):
        if not isinstance(key, str):
            raise TypeError(f"a key is a str, not {type(key).__name__}")
        if len(key.encode()) > MAX_KEY:
            raise ValueError(
                f"the key {key[:20]!r}... has {len(key.encode())} bytes; "
                f"{MAX_KEY} is the most"
            )

    @staticmethod
    def _pickled(obj, what):
        data = pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
        if len(data) > MAX_VALUE:
            raise ValueError(
                f"{what}: the object has {len(data)} bytes when pickled; {MAX_VALUE} "
                "is the most.  Large data go over an endpoint."
            )
        return data


def _seconds(timeout):
    timeout = seconds(timeout)
    if timeout is not None and not 0 <= timeout < float("inf"):
        raise ValueError(f"timeout={timeout} is no number of seconds from 0 up")
    return timeout if timeout is None else min(timeout, LONGEST)


def _from_launcher():
    """The world of ``uct-tofu run``: everything is in the environment."""
    names = ("RANK", "SIZE", "NODE", "LOCAL_RANK", "LOCAL_SIZE")
    try:
        rank, size, node, *local = (int(os.environ[f"UCT_TOFU_{n}"]) for n in names)
        address = os.environ["UCT_TOFU_WORLD"]
        token = bytes.fromhex(os.environ["UCT_TOFU_TOKEN"])
    except (KeyError, ValueError) as error:
        raise WorldError(
            f"not started by uct-tofu run, or its variables were changed: {error}"
        ) from None
    client = Client([address], token, rank)
    return World("launcher", rank, size, client, node=node, local=local)


def _addresses(server):
    """Where ranks on other hosts may reach this one's TCP port."""
    hosts = []
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        hosts += [entry[4][0] for entry in found]
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # sends nothing; chooses the interface
        hosts.append(sock.getsockname()[0])
    # Loopback addresses lead others to themselves; they are tried last.
    hosts.sort(key=lambda host: host.startswith("127."))
    return [f"tcp:{host}:{server.tcp_port}" for host in dict.fromkeys(hosts)]


class _Member:
    """This process' part in a world whose values rank 0 holds."""

    def __init__(self, exchange):
        self.pid = os.getpid()
        self.exchange = exchange
        self.rank, self.size = exchange.rank, exchange.size
        self.server = self.sock = None
        if self.rank == 0:
            from uct_tofu._kv_server import Server

            token = secrets.token_bytes(16)
            one_host = _number(LOCAL_SIZE_VARIABLES) == self.size
            self.server = Server(self.size, token, tcp=not one_host)
            self.server.start()
            about = {
                "token": token.hex(),
                "host": host_identity(),
                "unix": self.server.unix_address,
                "tcp": [] if one_host else _addresses(self.server),
            }
            # Hexadecimal, since PMI's values may not hold spaces.
            text = json.dumps(about).encode().hex()
        about = json.loads(bytes.fromhex(exchange.share(text if self.server else "")))
        near = [about["unix"]] if about["host"] == host_identity() else []
        self.client = Client(
            near + about["tcp"], bytes.fromhex(about["token"]), self.rank, holder=0
        )
        if self.server is None:
            # Ends with this process, however that ends: the server notices.
            self.sock = self.client.connect("joining the world")
            self.client.request(self.sock, {"op": "join"}, what="joining the world")
        atexit.register(self.leave)
        os.register_at_fork(after_in_child=self.forget)

    def forget(self):
        """In a child after fork: the membership is the parent's.

        Source: fork(2).
        """
        if self.sock is not None:
            self.sock.close()
        if self.server is not None:
            self.server.close_sockets()

    def leave(self):
        """At the end of the process: say so; rank 0 then waits for the others.

        Source: docs/launcher.md.
        """
        if os.getpid() != self.pid:
            return
        # Set when an exception has ended the main program.
        failed = getattr(sys, "last_type", None) is not None
        if self.server is not None:
            text = "ended with an exception" if failed else "has ended"
            self.server.rank_left(0, text, failed=failed)
            self.server.wait_all_left(LINGER_FAILED if failed else LINGER)
            self.server.stop()
        else:
            with contextlib.suppress(OSError):
                if not failed:
                    self.sock.sendall(b"\1")
                self.sock.close()
        _close_exchange(self.exchange, self.pid)


def _close_exchange(exchange, pid):
    """At the end of the process, but not of a child that it forked."""
    if os.getpid() == pid:
        with contextlib.suppress(OSError, WorldError):
            exchange.close()


def _from_exchange(name, kind):
    from uct_tofu import _exchange

    exchange = getattr(_exchange, kind)()
    if exchange.size == 1:
        atexit.register(_close_exchange, exchange, os.getpid())
        return World(name, 0, 1, _Alone())
    member = _Member(exchange)
    made = World(name, member.rank, member.size, member.client)
    hosts = made.allgather(host_identity())
    mine = hosts[made.rank]
    made.node = list(dict.fromkeys(hosts)).index(mine)
    made.local_rank = hosts[: made.rank].count(mine)
    made.local_size = hosts.count(mine)
    return made


_WAYS = {
    "launcher": _from_launcher,
    "pmi": lambda: _from_exchange("pmi", "Pmi1"),
    "pmix": lambda: _from_exchange("pmix", "Pmix"),
    "mpi4py": lambda: _from_exchange("mpi4py", "Mpi4py"),
    "single": lambda: World("single", 0, 1, _Alone()),
}


def _candidates():
    """The ways that the environment suggests, best first."""
    if os.environ.get("UCT_TOFU_WORLD"):
        return ["launcher"]
    ways = []
    if "mpi4py.MPI" in sys.modules:
        ways.append("mpi4py")
    if os.environ.get("PMI_FD") or os.environ.get("PMI_PORT"):
        ways.append("pmi")
    if os.environ.get("PMIX_RANK"):
        ways.append("pmix")
    if ways or _number(RANK_VARIABLES) is not None:
        ways.append("mpi4py")
    return list(dict.fromkeys(ways)) or ["single"]


def _choose():
    wanted = os.environ.get("UCT_TOFU_BOOTSTRAP") or "auto"
    if wanted != "auto":
        if wanted not in _WAYS:
            raise WorldError(
                f"UCT_TOFU_BOOTSTRAP={wanted} is not auto or one of "
                + ", ".join(_WAYS)
            )
        try:
            return _WAYS[wanted]()
        except (KeyError, ValueError, OSError, ImportError) as error:
            raise WorldError(
                f"UCT_TOFU_BOOTSTRAP={wanted} does not work here: {error!r}"
            ) from error
    failures = []
    for way in _candidates():
        try:
            return _WAYS[way]()
        except (WorldError, KeyError, ValueError, OSError, ImportError) as error:
            failures.append(f"{way}: {error!r}")
    if _number(SIZE_VARIABLES) == 1:
        return _WAYS["single"]()
    raise WorldError(
        "this process was started by a launcher, but cannot meet the other ranks: "
        + "; ".join(failures)
        + " (docs/launcher.md)"
    )


_world = None
_world_lock = threading.Lock()


def world() -> World:
    """The world of this process; the same object whenever it is called.

    The first call is collective under mpiexec, and waits for all ranks there.
    Under ``uct-tofu run``, and in a process that was started alone, it does not
    wait.  A child made by ``fork`` has its parent's rank.

    Raises ``WorldError`` when a launcher's variables are there but no way to
    meet the other ranks works; the message lists what was tried.

    Source: docs/launcher.md.
    """
    global _world
    with _world_lock:
        if _world is None:
            _world = _choose()
        return _world
