# SPDX-License-Identifier: BSD-3-Clause
"""uct_tofu.world(): small objects between ranks, under every launcher."""

import contextlib
import json
import os
import pickle
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uct_tofu import _kv_wire
from uct_tofu._kv_server import MAX_STRANGERS, Server
from uct_tofu._kv_wire import FRAME, MAX_VALUE, Client, pack, proof
from uct_tofu.errors import PeerFailedError, WorldError
from uct_tofu.world import World, _Alone

COMMAND = str(Path(sys.executable).with_name("uct-tofu"))
TOKEN = b"t" * 16


@pytest.fixture(params=["unix", "tcp"])
def kind(request):
    return request.param


@pytest.fixture
def server():
    with_tcp = Server(3, TOKEN, tcp=True)
    with_tcp.start()
    yield with_tcp
    with_tcp.stop()


def address(server, kind="unix"):
    return server.unix_address if kind == "unix" else f"tcp:127.0.0.1:{server.tcp_port}"


def make(server, rank, kind="unix", token=TOKEN):
    return World("launcher", rank, 3, Client([address(server, kind)], token, rank))


@pytest.fixture
def worlds(server, kind):
    return [make(server, rank, kind) for rank in range(3)]


def together(*functions):
    """Results, or exceptions, of calls made at the same time."""
    results = [None] * len(functions)

    def call(i):
        try:
            results[i] = functions[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive()
    return results


def test_put_and_get(worlds):
    worlds[0].put("key", {"a": [1, 2]})
    assert worlds[2].get("key") == {"a": [1, 2]}
    worlds[1].put("key", None)
    assert worlds[2].get("key", timeout=0) is None


def test_get_waits(worlds):
    def late():
        time.sleep(0.2)
        worlds[1].put("\u00e4 key", b"x" * 1000)

    assert together(lambda: worlds[0].get("\u00e4 key"), late)[0] == b"x" * 1000


def test_collectives(worlds):
    for i in range(3):
        got = together(*(lambda w=w: w.allgather((w.rank, i)) for w in worlds))
        assert got == [[(0, i), (1, i), (2, i)]] * 3
        got = together(*(lambda w=w: w.bcast(w.rank, root=2) for w in worlds))
        assert got == [2] * 3
        assert together(*(w.barrier for w in worlds)) == [None] * 3


def test_barrier_holds_until_the_last(worlds):
    order = []

    def early(w):
        w.barrier()
        order.append(w.rank)

    def late():
        time.sleep(0.3)
        order.append("late")
        worlds[2].barrier()

    together(lambda: early(worlds[0]), lambda: early(worlds[1]), late)
    assert order[0] == "late" and sorted(order[1:]) == [0, 1]


def test_timeouts_in_words(worlds):
    with pytest.raises(TimeoutError, match=r"rank 1: get\('none'\).*0\.1 s"):
        worlds[1].get("none", timeout=0.1)
    with pytest.raises(TimeoutError, match="rank 0: barrier.*ranks 1, 2 did not"):
        worlds[0].barrier(timeout=0.1)
    # It has taken part: the others complete, and the next one goes on.
    assert together(worlds[1].barrier, worlds[2].barrier) == [None, None]
    assert together(*(lambda w=w: w.allgather(1) for w in worlds)) == [[1] * 3] * 3
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="timeout"):
            worlds[0].get("none", timeout=wrong)


def test_large_values(worlds):
    data = os.urandom(MAX_VALUE - 100)
    worlds[0].put("large", data)
    assert worlds[1].get("large") == data
    with pytest.raises(ValueError, match=f"{MAX_VALUE}"):
        worlds[0].put("larger", bytes(MAX_VALUE))
    got = together(*(lambda w=w: w.allgather(data) for w in worlds))
    assert got == [[data] * 3] * 3


def test_wrong_arguments(worlds):
    with pytest.raises(TypeError, match="int"):
        worlds[0].put(3, 3)
    with pytest.raises(ValueError, match="1024"):
        worlds[0].get("k" * 1025)
    with pytest.raises(ValueError, match="no rank"):
        worlds[0].bcast(1, root=3)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        worlds[0].put("key", lambda: 1)


def test_store_is_bounded(server, monkeypatch):
    monkeypatch.setattr("uct_tofu._kv_server.MAX_REPLY", 2000)
    world = make(server, 0)
    world.put("a", bytes(1500))
    world.put("a", bytes(1600))  # replaces
    with pytest.raises(WorldError, match="2000 bytes"):
        world.put("b", bytes(1500))


def test_different_calls_are_told(worlds):
    # One of the two comes first and waits; the other is refused.
    with pytest.raises(TimeoutError):
        worlds[0].barrier(timeout=0.1)
    with pytest.raises(WorldError, match="rank 0 has called barrier and rank 1 allg"):
        worlds[1].allgather(1)
    with pytest.raises(WorldError, match="twice in collective call 0"):
        World("launcher", 0, 3, worlds[0]._client).barrier()


def test_death_wakes_those_who_wait(server, worlds):
    def die():
        time.sleep(0.3)
        server.rank_left(2, "was killed by SIGKILL", failed=True)

    first, second, _ = together(
        lambda: worlds[0].get("none"), lambda: worlds[1].barrier(), die
    )
    for error in (first, second):
        assert isinstance(error, PeerFailedError) and error.rank == 2
        assert "rank 2 was killed by SIGKILL" in str(error)
    assert pickle.loads(pickle.dumps(first)).rank == 2
    worlds[0].put("there", 1)
    assert worlds[1].get("there") == 1  # what is there can still be had
    with pytest.raises(PeerFailedError):
        worlds[1].get("none")


def test_end_of_a_rank_wakes_those_who_need_it(server, worlds):
    server.rank_left(2, "has ended", failed=False)
    with pytest.raises(PeerFailedError, match="rank 2 has ended"):
        worlds[0].barrier()
    with pytest.raises(TimeoutError):
        worlds[0].get("none", timeout=0.1)  # rank 1 may still put it
    server.rank_left(1, "has ended", failed=False)
    with pytest.raises(PeerFailedError, match="all other ranks have ended"):
        worlds[0].get("none")


def test_server_that_ends_wakes_all(server, worlds):
    def end():
        time.sleep(0.3)
        server.stop()

    error, _ = together(lambda: worlds[0].get("none"), end)
    assert isinstance(error, WorldError) and "launcher has ended" in str(error)
    with pytest.raises(WorldError):
        worlds[0].put("key", 1)


def test_threads_share_a_world(worlds):
    world = worlds[0]
    jobs = [lambda i=i: world.get(f"key-{i}") for i in range(20)]
    jobs += [lambda i=i: world.put(f"key-{i}", i) for i in range(20)]
    assert together(*jobs)[:20] == list(range(20))


def test_single_process():
    world = World("single", 0, 1, _Alone())
    world.barrier()
    assert world.allgather("x") == ["x"] and world.bcast(5) == 5
    got, _ = together(lambda: world.get("key"), lambda: world.put("key", 3))
    assert got == 3
    with pytest.raises(TimeoutError, match="get"):
        world.get("none", timeout=0.1)


# Strangers


def raw(server, kind="unix"):
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect("\0" + server.unix_address.removeprefix("unix:"))
    else:
        sock = socket.create_connection(("127.0.0.1", server.tcp_port))
    sock.settimeout(60)
    return sock


def read_all(sock):
    data = b""
    while True:
        try:
            piece = sock.recv(4096)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def member(server):
    """A raw connection that has shown the token."""
    sock = raw(server)
    challenge = sock.recv(16)
    sock.sendall(b"c" * 16 + proof(TOKEN, b"client", challenge, b"c" * 16))
    assert sock.recv(32) == proof(TOKEN, b"server", challenge, b"c" * 16)
    return sock


def test_wrong_token_gets_nothing(server, kind):
    make(server, 0).put("secret", 1)
    with pytest.raises(WorldError, match="refused"):
        make(server, 1, kind, token=b"x" * 16).get("secret")
    with raw(server, kind) as sock:
        challenge = sock.recv(16)
        # The server's own proof does not serve as a client's.
        sock.sendall(b"c" * 16 + proof(TOKEN, b"server", challenge, b"c" * 16))
        assert read_all(sock) == b""


def test_server_without_the_token_is_not_believed():
    """A client unpickles nothing from it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def fake():
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"s" * 16)
            sock.recv(48)
            sock.sendall(b"x" * 32 + pack({}, pickle.dumps("evil")))
            with contextlib.suppress(ConnectionResetError):
                sock.recv(1)

    thread = threading.Thread(target=fake)
    thread.start()
    client = Client([f"tcp:127.0.0.1:{listener.getsockname()[1]}"], TOKEN, 0)
    with pytest.raises(WorldError, match="does not know the job's token"):
        World("launcher", 0, 2, client).get("key")
    thread.join(60)
    listener.close()


@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=200))
def test_hostile_bytes_from_a_stranger(fuzzed, data):
    with raw(fuzzed) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        assert len(read_all(sock)) == 16  # the challenge, and no more
    make(fuzzed, 0).put("alive", data)
    assert make(fuzzed, 1).get("alive") == data


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3),
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["put", "get", "collective", "evil"]) | values,
        "rank": st.integers(-1, 3) | values,
        "timeout": st.just(0.01),
        "key": values,
        "number": values,
        "kind": values,
        "root": values,
    },
)


@settings(max_examples=100, deadline=None)
@given(header=headers.map(lambda h: {"timeout": 0, **h}), value=st.binary(max_size=9))
def test_nonsense_from_a_member_is_answered(fuzzed, header, value):
    with member(fuzzed) as sock:
        sock.sendall(pack(header, value))
        reply = read_all(sock)
    head, size = FRAME.unpack(reply[:8])
    assert len(reply) == 8 + head + size
    json.loads(reply[8 : 8 + head])


@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=60))
def test_hostile_bytes_from_a_member(fuzzed, data):
    with member(fuzzed) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        reply = read_all(sock)
    assert reply == b"" or FRAME.unpack(reply[:8])[1] == 0
    make(fuzzed, 0).put("alive", data)
    assert make(fuzzed, 1).get("alive") == data


@pytest.fixture(scope="module")
def fuzzed():
    server = Server(3, TOKEN)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    "frame, said",
    [
        (FRAME.pack(1 << 30, 0), "too large"),
        (FRAME.pack(2, MAX_VALUE + 1) + b"{}", "too large"),
        (FRAME.pack(9000, 0) + b"[" * 9000, "JSON"),
        (FRAME.pack(2, 0) + b"[]", "JSON object"),
    ],
)
def test_frames_that_are_refused(fuzzed, frame, said):
    with member(fuzzed) as sock:
        sock.sendall(frame)
        assert said in read_all(sock).decode(errors="replace")


def test_silent_strangers_do_not_stop_the_job(server):
    silent = [raw(server) for _ in range(50)]
    make(server, 0).put("key", 1)
    assert make(server, 1).get("key") == 1
    for sock in silent:
        sock.close()


def test_strangers_are_bounded(server):
    crowd = [raw(server) for _ in range(MAX_STRANGERS)]
    for sock in crowd:
        assert len(sock.recv(16)) == 16
    with raw(server) as sock:
        assert read_all(sock) == b""
    for sock in crowd:
        sock.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # the server has to notice
        try:
            make(server, 0).put("key", 1)
            return
        except WorldError:
            time.sleep(0.05)
    pytest.fail("the server does not recover")


@pytest.mark.parametrize(
    "answer, said",
    [
        (FRAME.pack(1 << 31, 0), "nonsense"),
        (FRAME.pack(5, 0) + b"nojso", "cannot be read"),
        (FRAME.pack(2, 0) + b"{}", "cannot be read"),
        (pack({}, b"abc")[:-1], "connection broke"),
        (b"", "connection broke"),
    ],
)
def test_truncated_or_false_replies(monkeypatch, answer, said):
    ours, theirs = socket.socketpair()
    theirs.sendall(answer)
    theirs.shutdown(socket.SHUT_WR)
    client = Client([], TOKEN, 0)
    monkeypatch.setattr(client, "connect", lambda what: ours)
    with pytest.raises(WorldError, match=said):
        client.call({"op": "put"}, what="put('key')")
    theirs.close()


def test_stopped_server_is_noticed(monkeypatch):
    """The client's own limit, when the server does not keep the timeout."""
    ours, theirs = socket.socketpair()
    client = Client([], TOKEN, 0)
    monkeypatch.setattr(client, "connect", lambda what: ours)
    monkeypatch.setattr(_kv_wire, "LATE", 0.1)
    with pytest.raises(TimeoutError, match="no answer"):
        client.call({"op": "get"}, what="get('key')", timeout=0.1)
    theirs.close()


# Under launchers

PROGRAM = """
import os, sys, uct_tofu
world = uct_tofu.world()
assert world is uct_tofu.world()
n = world.size
world.put(f"key-{world.rank}", {"rank": world.rank})
assert world.get(f"key-{(world.rank + 1) % n}", 60) == {"rank": (world.rank + 1) % n}
assert world.allgather(world.rank) == list(range(n))
assert world.bcast(world.rank, root=n - 1) == n - 1
world.barrier(60)
if os.fork() == 0:  # the same rank, and its end is not the parent's
    world.put(f"child-{world.rank}", os.getpid())
    sys.exit(0)
os.wait()
if n > 1:  # the values of a world of one are in the process
    world.get(f"child-{world.rank}", 60)
world.barrier(60)
place = (world.node, world.local_rank, world.local_size)
os.write(1, f"{world.bootstrap} {world.rank} {n} {place}\\n".encode())
"""

FAILING = """
import os, signal, sys, time, traceback, uct_tofu
def whole(*error):
    # one write, since several processes have the same output
    os.write(2, "".join(traceback.format_exception(*error)).encode())
sys.excepthook = whole
world = uct_tofu.world()
world.barrier()
if world.rank == BAD:
    END
try:
    world.barrier()
except uct_tofu.errors.PeerFailedError as error:
    os.write(1, f"told of {error.rank}\\n".encode())
    time.sleep(1)  # so that the others are told as well
    raise
"""


def clean_environment():
    names = ("PMI", "OMPI", "UCT_TOFU_WORLD", "UCT_TOFU_BOOTSTRAP")
    env = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return env


def hydra():
    """MPICH's mpiexec: that of this Python's mpich package."""
    found = Path(sys.executable).with_name("mpiexec.hydra")
    if not found.exists():
        pytest.skip("no mpiexec.hydra: pip install mpich (part of the extra 'test')")
    return [str(found), "-launcher", "fork"]


def open_mpi():
    found = shutil.which("mpiexec.openmpi") or shutil.which("prterun")
    if found is None:
        pytest.skip("no Open MPI (Debian: openmpi-bin)")
    return [found, "--oversubscribe"]


LAUNCHERS = {
    "launcher": lambda: [COMMAND, "run", "--no-prefix"],
    "pmi": hydra,
    "pmi-port": lambda: [*hydra(), "-pmi-port"],
    "pmix": open_mpi,
}


@pytest.fixture(params=LAUNCHERS)
def launched(request, processes, tmp_path):
    """launched(count, text) -> (exit code, output); its .name is the bootstrap."""

    def run(count, text):
        program = tmp_path / "program.py"
        program.write_text(text)
        command = [*LAUNCHERS[request.param](), "-n", str(count)]
        return processes.run(
            [*command, sys.executable, str(program)],
            env=clean_environment(),
            timeout=100,
        )

    run.name = request.param.partition("-")[0]
    return run


def test_world_under_a_launcher(launched):
    code, output = launched(3, PROGRAM)
    assert code == 0, output
    own = launched.name == "launcher"
    for rank in range(3):
        place = (rank, 0, 1) if own else (0, rank, 3)
        assert f"{launched.name} {rank} 3 {place}" in output.splitlines(), output


def test_one_process(launched):
    code, output = launched(1, PROGRAM)
    assert code == 0, output
    assert f"{launched.name} 0 1 (0, 0, 1)" in output


@pytest.mark.parametrize("bad", [0, 1])
def test_exception_in_a_rank_ends_the_job(launched, bad):
    text = FAILING.replace("BAD", str(bad)).replace("END", "raise ValueError('bad')")
    code, output = launched(3, text)
    assert code != 0 and "ValueError: bad" in output, output


def test_rank_that_just_ends(launched):
    """With exit code 0, so that no launcher minds; the others wait for it."""
    if launched.name == "pmix":
        pytest.skip("Open MPI ends the others before they can tell")
    text = FAILING.replace("BAD", "0").replace("END", "raise SystemExit(0)")
    code, output = launched(2, text)
    assert code != 0 and "told of 0" in output, output


def test_alone(processes, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    code, output = processes.run(
        [sys.executable, str(program)], env=clean_environment()
    )
    assert code == 0 and output == "single 0 1 (0, 0, 1)\n"


@pytest.mark.parametrize(
    "variables, said",
    [
        ({"UCT_TOFU_BOOTSTRAP": "magic"}, "is not auto or one of launcher, pmi"),
        ({"UCT_TOFU_BOOTSTRAP": "launcher"}, "not started by uct-tofu run"),
        ({"UCT_TOFU_BOOTSTRAP": "pmi"}, "UCT_TOFU_BOOTSTRAP=pmi does not work here"),
        ({"PMI_FD": "77", "PMI_RANK": "1", "PMI_SIZE": "2"}, "PMI_FD=77 is not open"),
        ({"UCT_TOFU_WORLD": "unix:x", "UCT_TOFU_RANK": "1"}, "not started by uct-tofu"),
    ],
)
def test_no_way_to_meet(processes, variables, said):
    code, output = processes.run(
        [sys.executable, "-c", "import uct_tofu; uct_tofu.world()"],
        env={**clean_environment(), **variables},
    )
    assert code == 1 and "WorldError" in output and said in output, output


def test_choice_can_be_overridden(processes):
    code, output = processes.run(
        [sys.executable, "-c", "import uct_tofu; print(uct_tofu.world().bootstrap)"],
        env={**clean_environment(), "PMI_FD": "77", "UCT_TOFU_BOOTSTRAP": "single"},
    )
    assert code == 0 and output == "single\n"


@pytest.mark.parametrize("timeout", ["1", b"1", [1]])
def test_a_text_is_no_time(worlds, timeout):
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None"):
        worlds[0].get("none", timeout)


@pytest.mark.parametrize("timeout", [1e10, 1e300])
def test_a_time_beyond_what_one_can_wait(worlds, timeout):
    """An OverflowError of the socket, once."""
    worlds[0].put("there", 1)
    assert [world.get("there", timeout) for world in worlds] == [1] * len(worlds)
