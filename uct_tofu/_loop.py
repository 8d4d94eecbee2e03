# SPDX-License-Identifier: BSD-3-Clause
"""Ifaces in asyncio event loops: who drives them, and messages to iterate over.

An iface is driven in a loop as long as something that is awaited is not over: its
event descriptor is watched, progress runs when it becomes readable, and it is armed
before each sleep.  So an idle loop sleeps, and no wake-up is lost.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import time
import weakref
from typing import NamedTuple

from uct_tofu._seconds import seconds
from uct_tofu.errors import (
    TofuClosedError,
    TofuError,
    TofuForkError,
    TofuOperationError,
    TofuThreadError,
)

# Progress with events is repeated so often before the loop's other tasks get a turn.
_TURNS = 64
# Seconds between looks where the system gives no event descriptor.
_POLL = 0.001


def tell(iface, error, loop=None):
    """Hand what a handler or callback raised to the event loop.

    The task that happens to drive the iface is not who made the mistake.

    Parameters
    ----------
    iface : Iface
    error : BaseException
        What is no ``Exception`` is raised all the same.
    loop : asyncio.AbstractEventLoop, optional
        None is the running one.

    Source: asyncio, loop.call_exception_handler.
    """
    loop = loop or asyncio.get_running_loop()
    loop.call_exception_handler(
        {"message": f"exception in a callback of {iface!r}", "exception": error}
    )
    if not isinstance(error, Exception):
        raise error


class Driver:
    """Drives one iface in one event loop, for as long as somebody waits.

    Parameters
    ----------
    iface : Iface
    loop : asyncio.AbstractEventLoop
        The running one; it stays usable when it is closed before the iface.

    Only for the thread of both.  Does not block.

    Source: cython/core/tofu.h, tofu_iface_event_arm.
    """

    def __init__(self, iface, loop):
        self._iface = weakref.ref(iface)
        self._loop = weakref.ref(loop)
        self._waiting = 0
        self._fd = None  # while it is watched
        self._handle = None  # of the next run

    @property
    def loop(self):
        """The event loop, None when it is gone.

        Source: uct_tofu/_loop.py.
        """
        return self._loop()

    def enter(self):
        """Somebody waits; to be followed by one ``leave``.

        Source: uct_tofu/_loop.py.
        """
        self._waiting += 1
        if self._handle is None:
            self._handle = self.loop.call_soon(self._run)

    def leave(self):
        """Somebody waits no more.

        Source: uct_tofu/_loop.py.
        """
        self._waiting -= 1

    def stop(self):
        """Leave the loop, which may be closed already.

        Source: asyncio, loop.remove_reader.
        """
        loop = self.loop
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._fd is not None and loop is not None and not loop.is_closed():
            loop.remove_reader(self._fd)
        self._fd = None

    def _readable(self):
        if self._waiting == 0:
            self.stop()  # a late sign; watching goes on until here to save calls
        else:
            self._run()

    def _run(self):
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        iface, loop = self._iface(), self.loop
        if iface is None or self._waiting == 0:
            return
        delay = 0
        try:
            for _ in range(_TURNS):
                if iface.progress() == 0:
                    delay = self._sleep(iface, loop)
                    break
        except TofuClosedError:
            return  # by a callback, and all that waited was told
        except BaseException as error:  # what a handler or callback raised
            tell(iface, error, loop)
        if self._waiting == 0 or delay is None or self._handle is not None:
            return
        if delay == 0:
            self._handle = loop.call_soon(self._run)
        else:
            self._handle = loop.call_later(delay, self._run)

    def _sleep(self, iface, loop):
        """Watch and arm; returns after how many seconds to run, None: when told."""
        if self._waiting == 0:
            return None
        try:
            if self._fd is None:
                fd = iface.event_fd
                loop.add_reader(fd, self._readable)
                self._fd = fd
            return None if iface.arm() else 0
        except (TofuError, OSError, NotImplementedError):
            return _POLL  # no descriptor, or a loop that cannot watch it


def _wake(future, drivers, request):
    """A request is over: tell the future of who awaits it, if it still is there."""
    for driver in drivers:
        driver.leave()
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(None)


async def wait_for(request):
    """What ``await request`` does when the request is in flight.

    Cancelling it leaves the operation going.  Raises and returns what
    ``Request.result`` does.

    Source: uct_tofu/_loop.py.
    """
    loop = asyncio.get_running_loop()
    ifaces = [request.iface, request._target()]
    drivers = [iface._driver(loop) for iface in ifaces if iface is not None]
    future = loop.create_future()
    for driver in drivers:
        driver.enter()
    request.add_done_callback(functools.partial(_wake, future, drivers))
    await future
    return request.result()


class Message(NamedTuple):
    """An active message: ``header`` and ``payload``, both bytes.

    Source: cython/uct_tofu/_am.pxi.
    """

    header: bytes
    payload: bytes


def _occupied(message):
    """Bytes that a message takes with the three objects that it is made of."""
    return len(message.header) + len(message.payload) + 256


class MessageStream:
    """The messages of one id, in the order of their arrival.

    Made by ``Iface.messages``.  An asynchronous iterator; ``get`` is for programs
    without an event loop.  Several tasks may iterate: each message goes to one.
    Messages that nobody takes wait here; ``len(stream)`` is how many.  They may
    occupy ``am_backlog`` bytes (``Iface``) in all: what comes beyond is dropped,
    which ``progress`` raises as ``TofuOperationError``.

    Only for the thread that owns the iface.

    Source: cython/core/tofu.h, tofu_iface_set_am_handler.
    """

    def __init__(self, iface, am_id):
        self._queue = collections.deque()
        self._bytes = 0  # that the queue occupies
        self._futures = collections.deque()
        self._iface = iface
        self._am_id = am_id
        iface.set_message_handler(am_id, self._arrived)

    def __len__(self):
        return len(self._queue)

    def __repr__(self):
        state = "ended" if self._iface is None else f"of {self._iface!r}"
        return f"<MessageStream of AM id {self._am_id}, {state}>"

    def _arrived(self, header, payload):
        message = Message(header, payload)
        if self._bytes + _occupied(message) > self._iface.am_backlog:
            raise TofuOperationError(
                "MessageStream",
                -4,  # TOFU_ERR_NO_MEMORY
                f"{len(self._queue)} messages wait in {self!r}, and one of "
                f"{len(payload)} bytes came beyond the am_backlog of "
                f"{self._iface.am_backlog} bytes; dropped",
            )
        self._queue.append(message)
        self._bytes += _occupied(message)
        self._wake_one()

    def _take(self):
        message = self._queue.popleft()
        self._bytes -= _occupied(message)
        return message

    def _wake_one(self):
        while self._futures:
            future = self._futures.popleft()
            if not future.done() and not future.get_loop().is_closed():
                future.set_result(None)
                return

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self._queue and self._iface is not None:
            try:
                self._iface.progress()
            except (TofuClosedError, TofuThreadError, TofuForkError):
                raise
            except BaseException as error:
                tell(self._iface, error)
        while not self._queue:
            if self._iface is None:
                raise StopAsyncIteration
            loop = asyncio.get_running_loop()
            driver = self._iface._driver(loop)
            future = loop.create_future()
            self._futures.append(future)
            driver.enter()
            try:
                await future
            except BaseException:
                if future.done() and not future.cancelled() and self._queue:
                    self._wake_one()  # it was told of a message that it leaves
                raise
            finally:
                driver.leave()
        return self._take()

    def get(self, timeout=None):
        """Take a message; wait for one if there is none.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever, 0 looks once.

        Returns
        -------
        Message

        Raises ``TimeoutError``, ``TofuClosedError`` when the stream has ended, what
        a handler raised, and ``TypeError`` or ``ValueError`` for what is no time.
        Polls, and lets others run meanwhile.

        Source: cython/core/tofu.h, tofu_iface_progress.
        """
        left = seconds(timeout)
        deadline = None if left is None else time.monotonic() + left
        while not self._queue:
            if self._iface is None:
                raise TofuClosedError("MessageStream.get", -5, repr(self))
            if self._iface.progress() == 0 and not self._queue:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(
                        f"{self!r}: no message in {timeout} s{self._dropped()}"
                    )
                time.sleep(0)
        return self._take()

    def _dropped(self):
        """Words for a timeout: perhaps the message came before there was a stream."""
        count = self._iface.stats()["dropped"]
        if count == 0:
            return ""
        return (
            f"; the iface dropped {count} before, for example of ids that had no "
            "handler or stream yet"
        )

    def end(self):
        """The iface is closed: who waits gets the end, after what came.

        Source: uct_tofu/_loop.py.
        """
        self._iface = None
        while self._futures:
            self._wake_one()

    def close(self):
        """Take no more messages: later ones are dropped; harmless when repeated.

        Source: cython/core/tofu.h, tofu_iface_set_am_handler.
        """
        iface = self._iface
        if iface is not None:
            iface._forget_stream(self._am_id)
            self.end()
