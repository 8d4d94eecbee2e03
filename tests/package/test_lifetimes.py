# SPDX-License-Identifier: BSD-3-Clause
"""Ends in any order: closing, collection, exit, fork; a clear error or nothing."""

import gc
import itertools
import os
import pickle
import random
import sys
import textwrap
import weakref

import numpy as np
import pytest
from core_support import PATIENCE, loopback, queued_message, until

from uct_tofu import (
    Endpoint,
    Iface,
    MemoryDomain,
    RemoteMemory,
    TofuClosedError,
    TofuError,
    TofuForkError,
    TofuInUseError,
)


def _family():
    md = MemoryDomain()
    memory = md.alloc(1 << 16)
    iface = Iface(md)
    ep = Endpoint(iface, iface.address)
    remote = RemoteMemory(memory.export())
    return {"md": md, "memory": memory, "iface": iface, "ep": ep, "remote": remote}


@pytest.mark.parametrize("order", [*itertools.permutations(("md", "memory", "iface"))])
@pytest.mark.parametrize("rest", [("ep", "remote"), ("remote", "ep")])
def test_closing_in_any_order_refuses_or_closes(order, rest):
    """With traffic; what is refused works on, and everything closes at last."""
    family = _family()
    ep, remote = family["ep"], family["remote"]
    requests = [ep.put(b"x", remote, offset=i) for i in range(5)]
    requests.append(ep.put(np.ones(30000, np.uint8), remote))
    requests.append(queued_message(ep, 1, bytes(5000)))
    waiting = [*order, *rest]
    refused = 0
    while waiting:
        name = waiting.pop(0)
        try:
            family[name].close()
        except TofuInUseError as error:
            assert "close" in str(error) or "complete" in str(error)
            waiting.append(name)
            refused += 1
            assert refused < 20
    assert refused > 0 or order[-1] == "md"
    for request in requests:
        assert request.done
    for item in family.values():
        item.close()
    for call in (
        lambda: ep.put(b"x", remote),
        family["iface"].progress,
        family["memory"].export,
        family["md"].query,
        lambda: family["iface"].event_fd,
        lambda: family["iface"].messages(1),
    ):
        with pytest.raises(TofuClosedError, match="closed"):
            call()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("seed", range(15))
def test_forgetting_in_any_order(seed):
    """References go in a random order, with operations in flight and cycles."""
    chance = random.Random(seed)
    family = _family()
    watched = [weakref.ref(family["iface"]), weakref.ref(family["memory"])]
    iface, ep, remote = family["iface"], family["ep"], family["remote"]
    data = np.ones(30000, np.uint8)
    extra = [ep.put(b"x", remote), ep.put(data, remote), ep.flush(), iface.flush()]
    extra.append(queued_message(ep, 1, bytearray(5000)))
    extra[-1].add_done_callback(lambda request, keep=family: None)
    iface.set_message_handler(2, lambda header, payload, keep=extra: None)
    extra += [iface.messages(3), family["memory"].array(), data]
    # Operations that are in flight keep the iface; only progress ends them.
    until(iface, lambda: extra[4].done and extra[2].done and extra[3].done)
    ep.flush().wait()  # the first message's request is over, too
    held = [*family.values(), *extra]
    family.clear()
    del iface, ep, remote, data
    extra.clear()
    chance.shuffle(held)
    while held:
        held.pop()
        if chance.random() < 0.3:
            gc.collect()
    gc.collect()
    assert [item() for item in watched] == [None, None]


def test_objects_do_not_pile_up():
    """Operations leave nothing: counted objects, registrations, open files."""

    def work(net):
        data = np.ones(20000, np.uint8)
        word = bytearray(8)
        for _ in range(50):
            net.ep.put(b"12345678", net.remote).wait(PATIENCE)
            net.ep.put(data, net.remote).wait(PATIENCE)
            net.ep.get(word, net.remote).wait(PATIENCE)
            net.ep.fetch_add(net.remote, 1).wait(PATIENCE)
            net.ep.am(1, data).wait(PATIENCE)
            for call in (lambda: net.ep.put(b"x", net.remote, offset=-1), set().pop):
                with pytest.raises((TofuError, KeyError)):
                    call()
        net.ep.flush().wait(PATIENCE)
        for _ in range(200):
            net.iface.progress()

    with loopback() as net:
        net.iface.set_message_handler(1, lambda header, payload: None)
        work(net)
        gc.collect()
        objects = len(gc.get_objects())
        blocks = sys.getallocatedblocks()
        files = len(os.listdir("/proc/self/fd"))
        work(net)
        gc.collect()
        assert len(gc.get_objects()) < objects + 50
        assert sys.getallocatedblocks() < blocks + 500
        assert len(os.listdir("/proc/self/fd")) <= files
        assert net.md.query()["num_registrations"] < 10


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_a_fork_is_refused_and_the_parent_goes_on():
    with loopback() as net:
        payload = bytearray(5000)
        request = queued_message(net.ep, 1, payload)
        pid = os.fork()
        if pid == 0:
            code = 0
            for call in (
                net.iface.progress,
                net.iface.flush,
                lambda: net.iface.address,
                lambda: net.iface.event_fd,
                lambda: net.iface.claim(),
                lambda: net.ep.put(b"x", net.remote),
                lambda: net.ep.am(1, b"x"),
                lambda: net.ep.add(net.remote, 1),
                net.ep.close,
                net.memory.export,
                net.md.query,
                net.memory.array,
                lambda: request.wait(1),
            ):
                try:
                    call()
                    code = 1
                except TofuForkError as error:
                    code |= 0 if "fork" in str(error) else 2
                except BaseException:
                    code |= 4
            net.__dict__.clear()
            del net, request
            gc.collect()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        net.ep.put(b"after", net.remote).wait(PATIENCE)
        request.wait(PATIENCE)
        assert net.memory.array()[:5].tobytes() == b"after"


EXITS = {
    "nothing closed, traffic in flight": """
        requests = [ep.put(b"x" * 8, remote) for _ in range(20000)]
        requests += [ep.am(1, bytes(20000)) for _ in range(50)]
        iface.set_message_handler(1, print)
    """,
    "references in a cycle": """
        requests = [ep.put(np.ones(100000), remote), ep.flush()]
        iface.set_message_handler(1, lambda h, p, keep=(iface, ep, requests): None)
        ep.am(1, b"never received")
    """,
    "sys.exit in a handler": """
        iface.set_message_handler(1, lambda header, payload: sys.exit(0))
        ep.am(1, b"x")
        while True:
            iface.progress()
    """,
    "an asyncio loop that awaits": """
        import asyncio
        async def main():
            tasks = [asyncio.ensure_future(anext(iface.messages(i))) for i in range(5)]
            await asyncio.sleep(0.05)
            await ep.am(1, b"x")
        asyncio.run(main())
    """,
    "a daemon thread that waits": """
        import threading
        def run():
            with Iface(md) as other, Endpoint(other, iface.address) as there:
                while True:
                    request = there.am(1, bytes(8000))
                    if not request.done:
                        request.wait()
        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.3)
    """,
    "found when the modules are gone": """
        import codecs           # its registry goes after the modules' names
        from uct_tofu import Backend, Vcq
        kept = [ep, iface, memory, remote, md, Vcq(Backend.load(), 0)]
        codecs.register_error("kept", lambda error, kept=kept: None)
    """,
    "messages kept by views": """
        kept = []
        iface.set_message_handler(1, lambda h, view: kept.append(view[:]), view=True)
        ep.am(1, bytes(5000))
        while not kept:
            iface.progress()
        array = np.frombuffer(kept[0], np.uint8)
    """,
}


@pytest.mark.parametrize("case", EXITS)
def test_interpreter_exit(processes, tmp_path, job, case):
    program = textwrap.dedent(
        """
        import sys, time
        import numpy as np
        from uct_tofu import Endpoint, Iface, MemoryDomain, RemoteMemory
        md = MemoryDomain()
        memory = md.alloc(1 << 20)
        iface = Iface(md)
        ep = Endpoint(iface, iface.address)
        remote = RemoteMemory(memory.export())
        """
    ) + textwrap.dedent(EXITS[case])
    script = tmp_path / "program.py"
    script.write_text(program)
    before = set(os.listdir("/dev/shm"))
    code, output = processes.run(
        [sys.executable, "-X", "faulthandler", str(script)], cwd=tmp_path
    )
    assert code == 0, output
    assert "Fatal" not in output and "Traceback" not in output, output
    assert "Error in" not in output, output     # what a __del__ raised, at the end
    left = {name for name in set(os.listdir("/dev/shm")) - before if job in name}
    assert not left


def test_exceptions_go_through_pickle():
    """As multiprocessing sends them to the parent."""
    with loopback() as net:
        for call in (
            lambda: net.ep.put(b"x", net.remote, offset=-1),
            lambda: net.ep.put(np.ones((4, 4))[:, 1], net.remote),
            lambda: RemoteMemory(b"nonsense"),
        ):
            with pytest.raises(TofuError) as caught:
                call()
            copy = pickle.loads(pickle.dumps(caught.value))
            assert type(copy) is type(caught.value)
            assert str(copy) == str(caught.value)
            assert (copy.call, copy.status) == (caught.value.call, caught.value.status)


ARGUMENTS = ((), (1,), (1, 2), (b"x", None), (b"x", 1, None), (1, 2, None, None))


@pytest.mark.parametrize("name", ["Endpoint", "Iface", "Memory", "MemoryDomain"])
def test_objects_without_init_refuse_everything(name):
    _use_everything(name)


@pytest.mark.parametrize("name", ["RemoteKey", "RemoteMemory", "Request"])
def test_values_without_init_refuse_everything(name):
    _use_everything(name)


def _use_everything(name):
    """What __new__ alone makes: exceptions, never a crash."""
    import uct_tofu

    item = getattr(uct_tofu, name).__new__(getattr(uct_tofu, name))
    calls = 0
    for member in dir(type(item)):
        if member.startswith("__") and member not in (
            "__repr__",
            "__len__",
            "__getitem__",
            "__await__",
            "__enter__",
        ):
            continue
        for arguments in ARGUMENTS:
            try:
                value = getattr(item, member)
                if callable(value):
                    value(*arguments)
            except Exception:
                calls += 1
    assert calls > 0
    with loopback() as net:
        for call in (net.ep.put, net.ep.get):
            for arguments in ((bytearray(9), item), (item, net.remote), ([item], item)):
                with pytest.raises((TofuError, TypeError)):
                    call(*arguments)
        if name == "RemoteMemory":
            with pytest.raises(TofuClosedError):
                net.ep.add(item, 1)
