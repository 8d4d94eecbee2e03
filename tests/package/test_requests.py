# SPDX-License-Identifier: BSD-3-Clause
"""Requests: waiting, confirmation of small puts, callbacks, threads, dead peers."""

import multiprocessing
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from core_support import PATIENCE, loopback, queued_message, until

from uct_tofu import (
    Endpoint,
    Iface,
    MemoryDomain,
    RemoteMemory,
    TofuClosedError,
    TofuOperationError,
    TofuPeerError,
    TofuThreadError,
)


@pytest.fixture
def net():
    with loopback() as objects:
        yield objects


def test_put_is_done_when_it_is_there(net):
    request = net.ep.put(b"12345678", net.remote)
    assert request.wait(PATIENCE) is None
    assert request.done and request.status == 0
    assert net.memory.array()[:8].tobytes() == b"12345678"
    assert "Endpoint.put, done" in repr(request)


def test_one_flush_confirms_all_puts_before_it(net):
    requests = [net.ep.put(b"x", net.remote, offset=i) for i in range(50)]
    posts = net.iface.stats()["posts"]
    assert posts >= 50
    for request in requests[::-1]:
        request.wait(PATIENCE)
    assert net.iface.stats()["posts"] <= posts + 2
    requests = [net.ep.put(b"y", net.remote, offset=i) for i in range(50)]
    net.ep.flush().wait(PATIENCE)
    posts = net.iface.stats()["posts"]
    assert all(request.done for request in requests)
    assert net.iface.stats()["posts"] == posts


def test_many_puts_without_progress_wait_for_room(net):
    words = net.memory.array("u8")
    requests = [
        net.ep.put(np.uint64([i + 1]), net.remote, offset=8 * i) for i in range(30000)
    ]
    requests[-1].wait(PATIENCE)
    assert (words[:30000] == np.arange(1, 30001)).all()
    assert all(request.done for request in requests)
    totals = [net.ep.add(net.remote, 1) for _ in range(20000)]
    flush = net.iface.flush()
    assert totals[-1].wait(PATIENCE) is None and flush.wait(PATIENCE) is None
    assert words[0] == 20001
    del words


def test_polling_done_ends(net):
    request = net.ep.put(b"abc", net.remote)
    until(net.iface, lambda: request.done)
    request = net.ep.put(np.ones(1 << 20, np.uint8), net.remote)
    until(net.iface, lambda: request.done)


def test_callbacks_run_once_and_their_errors_are_raised(net):
    seen = []
    net.ep.put(b"abc", net.remote).add_done_callback(seen.append)
    until(net.iface, lambda: seen)
    done = seen[0]
    done.add_done_callback(seen.append)
    assert seen == [done, done]
    request = queued_message(net.ep, 1, bytes(100))

    def broken(request):
        raise KeyError("from the callback")

    request.add_done_callback(broken)
    with pytest.raises(KeyError, match="from the callback"):
        request.wait(PATIENCE)
    assert request.wait(PATIENCE) is None
    with pytest.raises(TypeError):
        request.add_done_callback(3)


def test_closing_the_endpoint_ends_what_is_not_known_to_be_over(net):
    with Endpoint(net.iface, net.iface.address) as other:
        flushed = other.put(b"a", net.remote)
        other.flush().wait(PATIENCE)
        unknown = other.put(b"b", net.remote)
    assert flushed.done and flushed.status == 0
    with pytest.raises(TofuOperationError, match="CANCELED"):
        unknown.wait(PATIENCE)
    for call in (lambda: other.put(b"c", net.remote), other.flush, other.fence):
        with pytest.raises(TofuClosedError, match="closed"):
            call()


def test_closing_tells_what_has_not_left(net):
    """Silently dropped are neither those with a request nor those without."""
    other = Endpoint(net.iface, net.iface.address)
    held = queued_message(other, 1, bytes(100))
    told = []
    other.am(1, b"watched").add_done_callback(told.append)
    for _ in range(3):
        other.am(1, bytes(100))
    flush = other.flush()
    words = "closed before 3 of its operations left.*: they are dropped; flush"
    with pytest.warns(ResourceWarning, match=words) as warned:
        other.close()
    assert len(warned) == 1 and warned[0].filename == __file__
    assert repr(net.ep)[:9] == str(warned[0].message)[:9] == "<Endpoint"
    words = (
        r"Endpoint.am: TOFU_ERR_CANCELED \(-16\): the endpoint was closed before it "
        r"left, flush\(\) first: AM id 1, 0 bytes of header and 100 of payload, <Endp"
    )
    with pytest.raises(TofuOperationError, match=words):
        held.result()
    assert [request.status for request in (*told, flush)] == [-16, -16]
    other.close()  # says nothing more


def test_closing_after_a_flush_or_with_requests_held_says_nothing(net):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Endpoint(net.iface, net.iface.address) as other:
            queued_message(other, 1, bytes(100))
            other.am(1, bytes(100))
            other.flush().wait(PATIENCE)
        with Endpoint(net.iface, net.iface.address) as other:
            held = [queued_message(other, 1, bytes(100)), other.am(1, b"")]
    assert [request.status for request in held] == [-16, -16]


WAITER = """
from uct_tofu import Endpoint, Iface, MemoryDomain
import threading
with MemoryDomain() as md, Iface(md) as iface, Iface(md) as idle:
    # The peer never progresses, not even as one of the thread that waits, so that
    # its slots run out and the last waits.
    thread = threading.Thread(target=idle.claim)
    thread.start()
    thread.join()
    with Endpoint(iface, idle.address) as ep:
        while True:
            request = ep.am(1, bytes(8000))
            if not request.done:
                break
            iface.progress()
        print("waiting", flush=True)
        try:
            request.wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    idle.claim()
"""


def test_keyboard_interrupt_ends_wait(processes, tmp_path):
    import sys

    process = processes.start([sys.executable, "-c", WAITER], cwd=tmp_path)
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert output == "interrupted\n" and process.returncode == 0


# -------------------------------------------------------------------- threads


def _in_thread(call):
    """What the call raised, in another thread."""
    result = []

    def run():
        try:
            result.append(call())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    return result[0]


def test_another_thread_is_refused_and_may_take_over(net):
    for call in (
        net.iface.progress,
        net.iface.flush,
        net.iface.close,
        net.ep.flush,
        net.ep.close,
        lambda: net.ep.put(b"x", net.remote),
        lambda: net.ep.am(1, b"x"),
        lambda: net.ep.add(net.remote, 1),
        lambda: net.ep.put_short(b"x", net.remote.address, net.remote.key),
    ):
        error = _in_thread(call)
        assert isinstance(error, TofuThreadError), call
        assert "claim" in str(error)

    def take():
        net.iface.claim()
        return net.ep.put(b"taken", net.remote).wait(PATIENCE)

    assert _in_thread(take) is None
    assert net.memory.array()[:5].tobytes() == b"taken"
    with pytest.raises(TofuThreadError):
        net.iface.progress()
    net.iface.claim()
    net.iface.progress()


def test_ifaces_of_several_threads(net):
    """Each thread puts and waits; endpoints that others forget harm nobody."""
    errors = []
    doomed = [[Endpoint(net.iface, net.iface.address)] for _ in range(200)]
    stop = threading.Event()

    def work(number):
        try:
            with Iface(net.md) as iface, Endpoint(iface, iface.address) as ep:
                data = np.full(100000, number, np.uint8)
                part = net.remote[number * 100000 :]
                back = np.zeros_like(data)
                for _ in range(30):
                    ep.put(data, part).wait(PATIENCE)
                    ep.get(back, part).wait(PATIENCE)
                    assert (back == number).all()
        except BaseException as error:
            errors.append(error)

    def forget():
        while doomed and not stop.is_set():
            doomed.pop().clear()
            time.sleep(0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    threads.append(threading.Thread(target=forget))
    with pytest.warns(ResourceWarning):
        for thread in threads:
            thread.start()
        big = np.ones(500000, np.uint8)
        while doomed:
            net.ep.put(big, net.remote, offset=500000).wait(PATIENCE)
        for thread in threads:
            thread.join(PATIENCE)
    stop.set()
    assert not errors
    net.iface.progress()


def test_waiting_lets_other_threads_run(net):
    """A thread counts while another waits for it: for a message that it triggers."""
    with Iface(net.md) as iface:
        told = threading.Event()
        counted = []

        def count():
            while not told.is_set():
                counted.append(1)
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        with Endpoint(iface, net.iface.address) as ep:
            stuck = queued_message(ep, 1, bytes(8000))
            owner = threading.Thread(target=net.iface.claim)
            owner.start()
            owner.join(PATIENCE)
            thread.start()
            with pytest.raises(TimeoutError):
                stuck.wait(0.5)  # net.iface is another thread's: it makes no progress
            net.iface.claim()
            told.set()
            thread.join(PATIENCE)
            assert len(counted) > 5
            net.iface.set_message_handler(1, lambda header, payload: None)
            until(net.iface, lambda: iface.progress() + stuck.done and stuck.done)


# ----------------------------------------------------------------- dead peers


def _serve(pipe):
    md = MemoryDomain()
    memory = md.alloc(1 << 18)
    iface = Iface(md)
    pipe.send((iface.device_address, iface.address, memory.export()))
    pipe.recv()


def test_dead_peer_ends_everything_with_one_class():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        assert here.poll(PATIENCE), "the peer did not start"
        device, address, exported = here.recv()
        with MemoryDomain() as md, Iface(md) as iface:
            remote = RemoteMemory(exported)
            with Endpoint(iface, address, device) as ep:
                ep.put(b"alive", remote).wait(PATIENCE)
                back = bytearray(5)
                ep.get(back, remote).wait(PATIENCE)
                assert back == b"alive"
                queued = queued_message(ep, 1, bytes(8000))
                put = ep.put(b"later", remote)
                process.kill()
                process.join()
                for request in (queued, put):
                    with pytest.raises(TofuPeerError) as caught:
                        request.wait(PATIENCE)
                    assert isinstance(caught.value, ConnectionError)
                for call in (
                    lambda: ep.put(b"x", remote),
                    lambda: ep.put(bytes(100000), remote),
                    lambda: ep.get(bytearray(8), remote),
                    lambda: ep.am(1, b"x"),
                    lambda: ep.add(remote, 1),
                    ep.flush,
                ):
                    with pytest.raises(TofuPeerError):
                        call()
            remote.close()
    finally:
        process.kill()
        process.join()


def test_a_put_does_not_tell_of_an_earlier_failure(net):
    gone = net.md.alloc(1 << 20)
    remote = RemoteMemory(gone.export())
    gone.close()
    for fails in (
        lambda: net.ep.get(bytearray(8), remote),
        lambda: net.ep.put(bytes(100_000), remote),
        lambda: net.ep.fetch_add(remote, 1),
    ):
        with pytest.raises(TofuOperationError):
            fails().wait(PATIENCE)
        net.ep.put(b"good", net.remote).wait(PATIENCE)
        with pytest.raises(TofuOperationError):
            fails().wait(PATIENCE)
        request = net.ep.put(b"good", net.remote)
        with pytest.raises(TofuOperationError):
            net.ep.flush().wait(PATIENCE)  # tells it once
        request.wait(PATIENCE)
    remote.close()


def test_a_small_put_that_fails_ends_its_endpoint_and_says_so(net):
    gone = net.md.alloc(4096)
    remote = RemoteMemory(gone.export())
    gone.close()
    with Endpoint(net.iface, net.iface.address) as ep:
        with pytest.raises(TofuOperationError, match=r"4 bytes at 0x\w+ of the peer"):
            ep.put(b"lost", remote).wait(PATIENCE)
        with pytest.raises(TofuOperationError, match="failed before; close it"):
            ep.get(bytearray(8), net.remote)
    remote.close()
