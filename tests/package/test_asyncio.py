# SPDX-License-Identifier: BSD-3-Clause
"""Requests and messages in asyncio event loops."""

import asyncio
import gc
import multiprocessing
import os
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from core_support import PATIENCE, loopback, queued_message

from uct_tofu import (
    Endpoint,
    Iface,
    MemoryDomain,
    TofuInUseError,
    TofuOperationError,
    TofuRangeError,
    _loop,
)


@pytest.fixture
def net():
    with loopback() as objects:
        yield objects


def run(coroutine):
    """asyncio.run with a limit of time."""

    async def limited():
        return await asyncio.wait_for(coroutine, PATIENCE)

    return asyncio.run(limited(), debug=True)


def test_await_gives_the_result(net):
    async def main():
        assert await net.ep.put(b"abc", net.remote) is None
        assert await net.ep.put(np.ones(300000, np.uint8), net.remote) is None
        assert await net.ep.swap(net.remote, 7) == 0x0101010101010101
        assert await net.ep.fetch_add(net.remote, 1) == 7
        assert await net.ep.flush() is None and await net.iface.flush() is None
        data = bytearray(3)
        await asyncio.gather(*(net.ep.get(data, net.remote) for _ in range(5)))
        assert data[0] == 8
        with pytest.raises(TofuRangeError):
            await net.ep.put(b"x", net.remote, offset=-1)

    run(main())


def test_what_is_over_does_not_touch_the_loop(net):
    request = net.ep.put(b"abc", net.remote)
    request.wait(PATIENCE)
    word = net.ep.fetch_add(net.remote, 1)
    word.wait(PATIENCE)

    async def both():
        return await request, await word

    coroutine = both()  # no loop at all: it must end at the first step
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert stop.value.value == (None, int.from_bytes(b"abc", "little"))


def test_messages_are_awaited(net):
    async def main():
        async def receive():
            return [m async for m in net.iface.messages(3)]

        async def send():
            for i in range(200):
                await net.ep.am(3, bytes(i * 100), header=b"%d" % i)
                if i % 50 == 0:
                    await asyncio.sleep(0.01)
            stream = net.iface.messages(3)
            while received < 200:
                await asyncio.sleep(0.01)
            stream.close()

        received = 0

        async def count():
            nonlocal received
            async for message in net.iface.messages(3):
                assert message == (b"%d" % received, bytes(received * 100))
                received += 1

        await asyncio.gather(count(), send())
        assert received == 200

    run(main())


def test_no_message_between_two_loops_is_lost(net):
    async def take(number):
        got = []
        async for message in net.iface.messages(3):
            got.append(message.header)
            if len(got) == number:
                return got

    async def main():
        net.iface.messages(3)
        for i in range(10):
            net.ep.am(3, header=b"%d" % i)
        return await take(4) + await take(6)

    assert run(main()) == [b"%d" % i for i in range(10)]


def test_each_message_goes_to_one_task_also_when_one_is_cancelled(net):
    async def main():
        got = []

        async def take():
            async for message in net.iface.messages(3):
                got.append(message.header)

        tasks = [asyncio.create_task(take()) for _ in range(4)]
        await asyncio.sleep(0.01)
        for i in range(50):
            await net.ep.am(3, header=b"%d" % i)
            if i == 20:
                tasks.pop().cancel()
        while len(got) < 50:
            await asyncio.sleep(0.001)
        net.iface.messages(3).close()
        await asyncio.gather(*tasks)
        assert sorted(got, key=int) == [b"%d" % i for i in range(50)]

    run(main())


def test_closing_the_iface_ends_streams():
    async def main():
        with MemoryDomain() as md:
            iface = Iface(md)

            async def take():
                return [m async for m in iface.messages(3)]

            task = asyncio.create_task(take())
            await asyncio.sleep(0.02)
            iface.close()
            assert await task == []

    run(main())


def test_idle_loop_sleeps(net):
    """Someone awaits, nothing comes: no busy loop."""

    async def main():
        task = asyncio.ensure_future(anext(aiter(net.iface.messages(3))))
        await asyncio.sleep(0.1)
        polls = net.iface.stats()["polls"]
        await asyncio.sleep(1)
        polls = net.iface.stats()["polls"] - polls
        await net.ep.am(3, header=b"now")
        assert (await task).header == b"now"
        return polls

    # The core wakes up ten times per second with doorbells, a thousand times without;
    # a busy loop polls some ten thousand times, on a machine that is busy itself too.
    polls = asyncio.run(main())
    assert polls < 3000


def test_sleeping_loop_is_woken_by_a_message(net):
    """A peer in another thread sends while the loop sleeps; none is lost."""
    stop = threading.Event()
    addresses = []
    ready = threading.Event()

    def echo():
        with Iface(net.md) as iface, Endpoint(iface, net.iface.address) as ep:
            stream = iface.messages(1)
            addresses.append(iface.address)
            ready.set()
            while not stop.is_set():
                try:
                    message = stream.get(0.05)
                except TimeoutError:
                    continue
                time.sleep(0.001)  # so that the loop is asleep
                ep.am(2, message.payload, header=message.header).wait(PATIENCE)
            ep.flush().wait(PATIENCE)

    async def main():
        with Endpoint(net.iface, addresses[0]) as ep:
            stream = net.iface.messages(2)
            for i in range(100):
                await ep.am(1, bytes(i * 300), header=b"%d" % i)
                message = await anext(stream)
                assert message == (b"%d" % i, bytes(i * 300))
            await ep.flush()

    thread = threading.Thread(target=echo)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        run(main())
    finally:
        stop.set()
        thread.join(PATIENCE)


def _echo_process(pipe):
    """Sends each message back, from a loop of its own, until an empty one."""

    async def main():
        with MemoryDomain() as md, Iface(md) as iface:
            pipe.send(iface.address)
            with Endpoint(iface, pipe.recv()) as ep:
                async for message in iface.messages(1):
                    await ep.am(2, message.payload, header=message.header)
                    if not message.payload:
                        break
                await ep.flush()
                pipe.recv()  # the peer is not done with this iface before

    asyncio.run(main())


def test_two_processes_with_a_loop_each(net):
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_echo_process, args=(there,), daemon=True)
    process.start()
    try:
        assert here.poll(PATIENCE), "the peer did not start"
        address = here.recv()
        here.send(net.iface.address)

        async def main():
            with Endpoint(net.iface, address) as ep:
                for size in (1, 20, 5000, 100000, 0):
                    await ep.am(1, b"m" * size, header=b"%d" % size)
                    message = await anext(net.iface.messages(2))
                    assert message == (b"%d" % size, b"m" * size)
                await ep.flush()

        run(main())
        here.send("end")
        process.join(PATIENCE)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()


def test_several_ifaces_in_one_loop(net):
    async def main():
        with Iface(net.md) as other, Endpoint(other, net.iface.address) as there:
            with Endpoint(net.iface, other.address) as back:

                async def pong():
                    async for message in other.messages(1):
                        await there.am(1, message.payload)
                        if not message.payload:
                            return

                task = asyncio.create_task(pong())
                stream = net.iface.messages(1)
                for size in (5, 20000, 1, 100000, 0):
                    await back.am(1, bytes(size))
                    assert len((await anext(stream)).payload) == size
                await task
                await asyncio.gather(back.flush(), there.flush())

    run(main())


def test_loops_of_several_threads(net):
    failures = []

    def work(number):
        async def main():
            with Iface(net.md) as iface, Endpoint(iface, iface.address) as ep:
                part = net.remote[number * 200000 :]
                data = np.full(200000, number, np.uint8)
                back = np.zeros_like(data)
                stream = iface.messages(0)
                for i in range(30):
                    await ep.put(data, part)
                    await ep.get(back, part)
                    assert (back == number).all()
                    await ep.am(0, header=b"%d" % i)
                    assert (await anext(stream)).header == b"%d" % i

        try:
            run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert not failures


def test_cancelled_await_leaves_the_operation_going(net):
    net.iface.set_message_handler(1, lambda header, payload: None)
    payload = bytearray(b"p" * 5000)

    async def main():
        request = queued_message(net.ep, 1, payload)
        task = asyncio.ensure_future(_loop.wait_for(request))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not request.done:
            await asyncio.sleep(0.001)
        return weakref.ref(request)

    gone = run(main())
    gc.collect()
    assert gone() is None
    payload.clear()  # nothing holds it any more


def test_loop_that_was_closed_while_something_was_awaited(net):
    """The rest goes on without the loop, or in another; nothing is leaked."""
    loop = asyncio.new_event_loop()
    request = queued_message(net.ep, 1, bytes(5000))

    async def start():
        task = asyncio.ensure_future(_loop.wait_for(request))
        await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(start())
    loop.close()
    gone = weakref.ref(loop)
    request.wait(PATIENCE)
    run(_put(net))
    task._log_destroy_pending = False
    del task, loop
    gc.collect()
    assert gone() is None


async def _put(net):
    await net.ep.am(1, bytes(9000))
    await net.ep.put(bytes(200000), net.remote)
    await net.iface.flush()


def test_many_loops_one_after_the_other_leave_no_descriptors(net):
    async def main():
        net.ep.am(2, b"x")
        await anext(net.iface.messages(2))

    run(main())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        run(main())
    assert len(os.listdir("/proc/self/fd")) <= before


def test_handler_errors_go_to_the_loop(net):
    seen = []

    def broken(header, payload):
        raise KeyError("in the handler")

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: seen.append(context))
        net.iface.set_message_handler(1, broken)
        stream = net.iface.messages(2)
        task = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.01)
        await net.ep.am(1)
        await net.ep.am(2, header=b"good")
        assert (await task).header == b"good"

    run(main())
    assert len(seen) == 1 and "callback" in seen[0]["message"]


def test_failed_operation_raises_in_the_task(net):
    async def main():
        ep = Endpoint(net.iface, net.iface.address)
        request = queued_message(ep, 1, bytes(100))
        task = asyncio.ensure_future(_loop.wait_for(request))
        await asyncio.sleep(0)
        if not request.done:
            ep.close()
            with pytest.raises(TofuOperationError, match="CANCELED"):
                await task
        else:
            ep.close()
            await task

    run(main())


def test_without_an_event_descriptor_it_polls(net, monkeypatch):
    class NoReader(asyncio.SelectorEventLoop):
        def add_reader(self, fd, callback, *args):
            if "Driver" in repr(callback):
                raise NotImplementedError("as a proactor loop does")
            return super().add_reader(fd, callback, *args)

    async def main():
        task = asyncio.create_task(anext(net.iface.messages(3)))
        await asyncio.sleep(0.05)
        net.ep.am(3, header=b"polled")
        return (await asyncio.wait_for(task, PATIENCE)).header

    loop = NoReader()
    try:
        assert loop.run_until_complete(main()) == b"polled"
    finally:
        loop.close()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout")
def test_timeout_around_an_await(net):
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(net.iface.messages(5))
        net.ep.am(5, header=b"after")
        assert (await anext(net.iface.messages(5))).header == b"after"

    run(main())


@pytest.mark.parametrize("wait", ["request", "stream"])
def test_handlers_exception_goes_to_the_loop_not_to_who_awaits(wait):
    """Whoever drives the iface, now or from the loop."""
    told = []

    def fails(header, payload):
        raise ZeroDivisionError("in the handler")

    async def main():
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: told.append(context)
        )
        with loopback() as net:
            net.iface.set_message_handler(4, fails)
            stream = net.iface.messages(5)
            for _ in range(3):  # then both know each other, and messages come at once
                net.ep.am(5, b"first")
                await stream.__anext__()
            net.ep.am(5, b"good")
            net.ep.am(4, b"")
            if wait == "request":
                await net.ep.flush()
            else:
                message = await asyncio.wait_for(stream.__anext__(), PATIENCE)
                assert message.payload == b"good"
            while not told:
                await net.ep.flush()

    run(main())
    assert type(told[0]["exception"]) is ZeroDivisionError
    assert "<Iface" in told[0]["message"]


@pytest.mark.parametrize("setter", ["set_message_handler", "set_am_handler"])
def test_no_handler_takes_the_place_of_a_stream(setter):
    """The stream would have waited for ever, and its close have taken the handler."""

    async def main():
        with loopback() as net:
            stream = net.iface.messages(5)
            for handler in (print, None):
                with pytest.raises(TofuInUseError, match="AM id 5 .*Stream"):
                    getattr(net.iface, setter)(5, handler)
            net.ep.am(5, b"here")
            message = await asyncio.wait_for(stream.__anext__(), PATIENCE)
            assert message.header == b"here" or message.payload == b"here"
            stream.close()
            getattr(net.iface, setter)(5, print)

    run(main())
