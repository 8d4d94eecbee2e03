# SPDX-License-Identifier: BSD-3-Clause
"""Forwards what the ranks print, whole lines at a time, from one thread.

One thread reads all pipes and writes both outputs, so lines cannot mix.  It may
block in a write when the reader of our output is slow; the ranks then block in
turn, and the thread that watches over them does not.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import threading
import time

__all__ = ["Forwarder"]

READ_BYTES = 1 << 16
# A line that is longer goes out in pieces of this size.
MAX_LINE = 1 << 20
# On a terminal, what a rank printed without ending the line (a prompt) is shown
# after so many seconds of silence.
IDLE_SECONDS = 0.2
# When all ranks have ended, a pipe that something else still holds open is read
# until it has been silent for so long.
DRAIN_SECONDS = 0.5


class _Stream:
    def __init__(self, fd, output, prefix):
        self.fd = fd
        self.output = output  # file descriptor
        self.prefix = prefix
        self.held = bytearray()  # a line that has not ended
        self.open_line = False  # its beginning has been written


class Forwarder:
    """Copies pipes to file descriptors with a prefix for each line.

    Parameters
    ----------
    on_broken : callable
        ``on_broken(output, error)``, called once, in the thread, when an output cannot
        be written any more: its file descriptor, and the ``OSError``.

    Source: docs/launcher.md.
    """

    def __init__(self, on_broken):
        self._on_broken = on_broken
        self._broken = False
        self._selector = selectors.DefaultSelector()
        self._streams = []
        self._finishing = threading.Event()
        self._open_stream = {}  # output -> the stream whose line is unfinished there
        self._thread = threading.Thread(
            target=self._run, name="uct-tofu-output", daemon=True
        )

    def add(self, fd, output, prefix):
        """Forward a pipe; before ``start``.  The pipe is closed at its end.

        Parameters
        ----------
        fd : int
        output : int
            File descriptor; a terminal gets unfinished lines too.
        prefix : bytes
            Empty: every byte goes out as it came.

        Source: pipe(7).
        """
        os.set_blocking(fd, False)
        stream = _Stream(fd, output, prefix)
        self._streams.append(stream)
        self._selector.register(fd, selectors.EVENT_READ, stream)

    def start(self):
        """Begin, in a thread.

        Source: threading.
        """
        self._thread.start()

    def finish(self):
        """All ranks have ended: what is in the pipes is the last.

        Source: pipe(7).
        """
        self._finishing.set()

    def join(self, timeout=None):
        """Wait; True when everything has been written.

        Source: threading.
        """
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self):
        terminals = any(os.isatty(s.output) for s in self._streams)
        last_data = time.monotonic()
        while self._selector.get_map():
            events = self._selector.select(0.1 if terminals else 0.25)
            for key, _ in events:
                self._read(key.data)
            now = time.monotonic()
            if events:
                last_data = now
            elif self._finishing.is_set() and now - last_data > DRAIN_SECONDS:
                for key in list(self._selector.get_map().values()):
                    self._end(key.data)
            if terminals and now - last_data > IDLE_SECONDS:
                for stream in self._streams:
                    if stream.held and os.isatty(stream.output):
                        self._write_part(stream)
        self._selector.close()

    def _read(self, stream):
        try:
            data = os.read(stream.fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(stream)
            return
        stream.held += data
        end = stream.held.rfind(b"\n") + 1
        if end:
            self._write_lines(stream, bytes(stream.held[:end]))
            del stream.held[:end]
        while len(stream.held) >= MAX_LINE:
            piece = bytes(stream.held[:MAX_LINE])
            del stream.held[:MAX_LINE]
            # With prefixes each piece is a line of its own; nobody's text gets
            # into the middle of another's.
            self._write_lines(stream, piece + (b"\n" if stream.prefix else b""))

    def _end(self, stream):
        self._selector.unregister(stream.fd)
        os.close(stream.fd)
        if stream.held:
            data = bytes(stream.held)
            stream.held.clear()
            self._write_lines(stream, data + (b"\n" if stream.prefix else b""))
        elif stream.open_line and stream.prefix:
            self._close_line(stream.output)

    def _close_line(self, output):
        """End the line that some rank has begun there."""
        stream = self._open_stream.pop(output, None)
        if stream is not None:
            stream.open_line = False
            if stream.prefix:
                self._write(output, b"\n")

    def _write_lines(self, stream, data):
        """Complete lines; the first may continue what was shown of it."""
        if stream.open_line:
            self._open_stream.pop(stream.output)
            stream.open_line = False
            begun = True
        else:
            self._close_line(stream.output)
            begun = False
        if stream.prefix:
            # Not splitlines(), for which a carriage return ends a line as well.
            lines = data.split(b"\n")[:-1]
            data = b"".join(stream.prefix + line + b"\n" for line in lines)
            if begun:
                data = data[len(stream.prefix) :]
        self._write(stream.output, data)

    def _write_part(self, stream):
        if stream.open_line:
            data = b""
        else:
            self._close_line(stream.output)
            data = stream.prefix
            stream.open_line = True
            self._open_stream[stream.output] = stream
        data += bytes(stream.held)
        stream.held.clear()
        self._write(stream.output, data)

    def _write(self, output, data):
        view = memoryview(data)
        while view and not self._broken:
            try:
                view = view[os.write(output, view) :]
            except BlockingIOError:
                select.select([], [output], [])
            except OSError as error:
                self._broken = True
                with contextlib.suppress(Exception):
                    self._on_broken(output, error)
