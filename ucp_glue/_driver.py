# SPDX-License-Identifier: BSD-3-Clause
"""Progress of a worker by an asyncio event loop.

The loop watches the worker's event descriptor.  UCX makes it readable only after it
was armed, and refuses to arm while there is something to do.  So each round
progresses until nothing happens, and a moment longer, and then arms; when that is refused it goes for
another round.  Everything that is posted asks for a round (``kick``), for UCX may
need progress for it that raises no event.  So no wake-up is lost and an idle loop
sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref

# Calls of progress in one round, after which others in the loop have their turn.
ROUND = 100
# Seconds after the last event in which the loop polls instead of sleeping: an answer
# that is on its way costs less so than by waking up.
LINGER = 200e-6
# Seconds between rounds of a worker without an event descriptor: from, up to.
POLL_FIRST = 0.0
POLL_STEP = 50e-6
POLL_LAST = 1e-3


class Driver:
    """Progresses one worker in one loop; made by ``attach``.

    Source: UCX v1.22, ucp_worker_arm.
    """

    def __init__(self, worker, loop):
        self._worker = weakref.ref(worker)  # the loop must not keep it alive
        self.loop = loop
        self.waiters = 0
        self._thread = threading.get_ident()
        self._fd = worker.event_fd
        self._pause = POLL_FIRST
        self._handle = None
        self._linger_until = 0.0
        if self._fd is not None:
            loop.add_reader(self._fd, self._round)

    def kick(self):
        """Ask for a round soon; from any thread.

        Source: UCX v1.22, ucp_worker_progress.
        """
        if threading.get_ident() != self._thread:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self.kick)
            return
        self._pause = POLL_FIRST
        if self._handle is None and not self.loop.is_closed():
            self._handle = self.loop.call_soon(self._scheduled)

    def _scheduled(self):
        self._handle = None
        self._round()

    def _round(self):
        worker = self._worker()
        if worker is None:
            return
        try:
            for count in range(ROUND):
                if not worker.progress():
                    break
            if count > 0:
                self._linger_until = time.monotonic() + LINGER
            if count == ROUND - 1 or time.monotonic() < self._linger_until:
                self.kick()
            elif self._fd is None:
                self._poll(worker)
            elif not worker.arm():
                self.kick()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # A handler's, most likely; more may be waiting behind it.
            self.loop.call_exception_handler(
                {"message": f"exception in progress of {worker!r}", "exception": error}
            )
            if worker._driver is self:
                self.kick()

    def _poll(self, worker):
        if self._handle is None and (self.waiters or worker._has_requests):
            self._handle = self.loop.call_later(self._pause, self._scheduled)
            self._pause = min(self._pause + POLL_STEP, POLL_LAST)

    def close(self):
        """Leave the loop; harmless when it has ended.

        Source: UCX v1.22, ucp_worker_get_efd.
        """
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._fd is not None and not self.loop.is_closed():
            with contextlib.suppress(RuntimeError, OSError, ValueError):
                self.loop.remove_reader(self._fd)


def attach(worker):
    """The driver of the worker in the running loop.

    Raises ``RuntimeError`` without one, or when another loop that still lives
    drives the worker.

    Source: UCX v1.22, ucp_worker_arm.
    """
    loop = asyncio.get_running_loop()
    driver = worker._driver
    if driver is not None:
        if driver.loop is loop:
            return driver
        if driver.loop.is_running():
            raise RuntimeError(f"{worker!r} is driven by another event loop")
        driver.close()
    driver = worker._driver = Driver(worker, loop)
    return driver


def wake(future):
    """Complete a future from whatever thread made progress.

    Source: Python, asyncio.loop.call_soon_threadsafe.
    """
    loop = future.get_loop()
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(_set, future)


def _set(future):
    if not future.done():
        future.set_result(None)


def future_of(request):
    """A future that is done when the request is.

    Source: UCX v1.22, ucp_request_check_status.
    """
    driver = attach(request.worker)
    future = driver.loop.create_future()
    thread = driver._thread

    def over(_):
        driver.waiters -= 1
        driver._linger_until = time.monotonic() + LINGER
        if threading.get_ident() == thread:
            _set(future)
        else:
            wake(future)

    driver.waiters += 1
    request.add_done_callback(over)
    driver.kick()
    return future
