# SPDX-License-Identifier: BSD-3-Clause
"""Things that arrive in progress, to be waited for one by one."""

from __future__ import annotations

import time
from collections import deque

from ucp_glue import _driver
from ucp_glue.errors import UcpClosedError

__all__ = ["Inbox"]


class Inbox:
    """Queue of messages or connections that a worker's progress fills.

    ``len(inbox)`` tells how many wait.  ``async for item in inbox`` takes them as
    they come, until it is closed.

    Parameters
    ----------
    worker : Worker
        Whose progress fills it.

    Source: UCX v1.22, ucp_am_recv_callback_t, ucp_listener_conn_callback_t.
    """

    def __init__(self, worker):
        self._worker = worker
        self._items = deque()
        self._waiters = deque()
        self._closed = False

    def __len__(self):
        return len(self._items)

    def put(self, item):
        """Add an item; what the handler does.

        Source: UCX v1.22, ucp_am_recv_callback_t.
        """
        self._items.append(item)
        self._wake()

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

        Raises ``TimeoutError``, ``UcpClosedError``, and what ``Worker.progress``
        raises.  Blocks without the GIL, on the worker's thread.

        Source: UCX v1.22, ucp_worker_progress.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._items:
            self._check_open()
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                self._worker.progress()
                if self._items:
                    break
                raise TimeoutError(f"nothing came in {timeout} s")
            self._worker.wait(left)
        return self._items.popleft()

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
        return self._items.popleft()

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
        left = list(self._items)
        self._items.clear()
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
