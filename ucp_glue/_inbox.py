# SPDX-License-Identifier: BSD-3-Clause
"""Things that arrive in progress, to be waited for one by one."""

from __future__ import annotations

import time
from collections import deque

from uct_tofu._seconds import seconds

from ucp_glue import _driver
from ucp_glue.errors import UcpClosedError, status_error

__all__ = ["BACKLOG", "OVERHEAD", "Inbox"]

# Bytes that the messages of one inbox may occupy, when the program does not say.
BACKLOG = 1 << 30
# Bytes that a message takes besides its header and payload, about.
OVERHEAD = 256
_NO_MEMORY = -4  # UCS_ERR_NO_MEMORY


class Inbox:
    """Queue of messages or connections that a worker's progress fills.

    ``len(inbox)`` tells how many wait.  ``async for item in inbox`` takes them as
    they come, until it is closed.

    Messages that nobody takes may occupy ``backlog`` bytes.  What comes beyond is
    dropped, the newest; to its sender it looks delivered, for UCX has no way to
    refuse it.  ``Worker.progress`` raises ``UcpSystemError`` (UCS_ERR_NO_MEMORY)
    for the first that is dropped after a message was taken, ``dropped`` counts all.

    Parameters
    ----------
    worker : Worker
        Whose progress fills it.
    am_id : int, optional
        Of the messages, for errors.
    backlog : int
        Bytes, 256 for each message besides its header and payload.

    Attributes
    ----------
    backlog : int
    dropped : int
        Messages that were dropped.

    Source: UCX v1.22, ucp_am_recv_callback_t, ucp_listener_conn_callback_t.
    """

    def __init__(self, worker, am_id=None, backlog=BACKLOG):
        self._worker = worker
        self._am_id = am_id
        self.backlog = backlog
        self.dropped = 0
        self._bytes = 0  # that items, and payloads on their way, occupy
        self._is_told = False
        self._items = deque()  # with their bytes
        self._waiters = deque()
        self._closed = False

    def __len__(self):
        return len(self._items)

    def __repr__(self):
        of = "" if self._am_id is None else f" of AM id {self._am_id}"
        return f"<Inbox{of}, {len(self._items)} wait>"

    def admit(self, size):
        """Make room for a message that is coming; what the worker does.

        Parameters
        ----------
        size : int
            Bytes of header and payload.

        Returns False when the message is to be dropped.

        Raises ``UcpError`` for the first that is dropped.

        Source: UCX v1.22, ucp_am_recv_callback_t.
        """
        if self._bytes + OVERHEAD + size <= self.backlog:
            self._bytes += OVERHEAD + size
            return True
        self.dropped += 1
        if self._is_told:
            return False
        self._is_told = True
        raise status_error(
            "Inbox",
            _NO_MEMORY,
            f"{len(self._items)} messages wait in {self!r} of {self._worker!r}, and "
            f"one of {size} bytes came beyond the backlog of {self.backlog} bytes; "
            "dropped, as will be those that come before one is taken",
        )

    def forget(self, size):
        """A message that was admitted does not come after all.

        Parameters
        ----------
        size : int
            As for ``admit``.

        Source: UCX v1.22, ucp_am_recv_data_nbx.
        """
        self._bytes -= OVERHEAD + size

    def put(self, item, size=-OVERHEAD):
        """Add an item.

        Parameters
        ----------
        item : object
        size : int, optional
            As for ``admit``; without it, an item that was not admitted and that is
            not counted.

        Source: UCX v1.22, ucp_am_recv_callback_t, ucp_listener_conn_callback_t.
        """
        self._items.append((item, OVERHEAD + size))
        self._wake()

    def _take(self):
        item, size = self._items.popleft()
        self._bytes -= size
        self._is_told = False
        return item

    def _wake(self):
        for future in self._waiters:
            _driver.wake(future)
        self._waiters.clear()

    def get(self, timeout=None):
        """Take the oldest item, waiting for one if need be.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns the item.

        Raises ``TimeoutError``, ``UcpClosedError``, what ``Worker.progress`` raises,
        and ``TypeError`` or ``ValueError`` for what is no time.  Blocks without the
        GIL, on the worker's thread.

        Source: UCX v1.22, ucp_worker_progress.
        """
        limit = seconds(timeout)
        end = None if limit is None else time.monotonic() + limit
        while not self._items:
            self._check_open()
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                self._worker.progress()
                if self._items:
                    break
                raise TimeoutError(f"nothing came in {timeout} s")
            self._worker.wait(left)
        return self._take()

    async def get_async(self):
        """Take the oldest item in a coroutine, waiting for one if need be.

        Raises ``UcpClosedError``.

        Source: UCX v1.22, ucp_worker_arm.
        """
        while not self._items:
            self._check_open()
            driver = _driver.attach(self._worker)
            future = driver.loop.create_future()
            self._waiters.append(future)
            driver.waiters += 1
            driver.kick()
            try:
                await future
            finally:
                driver.waiters -= 1
        return self._take()

    def _check_open(self):
        if self._closed:
            raise UcpClosedError("closed; nothing will come any more")

    def close(self):
        """Wake those that wait; they get ``UcpClosedError``.

        Returns
        -------
        list
            What nobody took.

        Source: UCX v1.22, ucp_listener_destroy.
        """
        left = [self._take() for _ in range(len(self._items))]
        self._closed = True
        self._wake()
        return left

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self.get_async()
        except UcpClosedError:
            raise StopAsyncIteration from None
