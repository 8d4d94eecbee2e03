# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a job on this host and sees to it that all of them end.

Used by ``uct-tofu run``.  The ranks are sessions of their own.  When the launcher
is killed, the kernel kills them, and the guard kills what they have started.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time

import click

from uct_tofu import _guard, _placement
from uct_tofu._forward import Forwarder
from uct_tofu._kv_server import Server

__all__ = ["TIMED_OUT", "Launcher"]

LOOK_S = 3600.0  # a wait is no longer; selectors can't have any
TIMED_OUT = 124  # exit code, as that of timeout(1)
COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Rank:
    def __init__(self, place, process):
        self.place = place
        self.process = process
        self.pid = process.pid  # and its process group; not reaped before the end
        self.pidfd = os.pidfd_open(process.pid)
        self.code = None  # 128 + signal, as a shell has it

    def look(self):
        """How it ended, in words; it stays a zombie, so that its number stays."""
        options = os.WEXITED | os.WNOWAIT | os.WNOHANG
        info = os.waitid(os.P_PID, self.pid, options)
        if info is None:
            return None
        if info.si_code == os.CLD_EXITED:
            self.code = info.si_status
            return f"ended with exit code {self.code}"
        self.code = 128 + info.si_status
        return f"was killed by {_signal_name(info.si_status)}"

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class Launcher:
    """One job: ``run`` starts it, waits for it, and leaves nothing of it.

    Parameters
    ----------
    command : list of str
        Program and arguments, the same in each rank.
    size : int
        Number of ranks.
    ppn : int
        Ranks on each emulated node.
    pin : bool
        One CPU for each rank.
    prefix : bool
        "[RANK] " before each line.
    timeout : float, optional
        Seconds for the whole job.
    grace : float
        Seconds between asking ranks to end and killing them.
    tls : str, optional
        Value for ``UCX_TLS``.
    shape : tuple of 3 int, optional
        The emulated network in units of 12 nodes.
    extra : mapping of str, optional
        Further variables for the ranks; they win over all others.

    Source: docs/launcher.md.
    """

    def __init__(
        self,
        command,
        size,
        *,
        ppn=1,
        pin=True,
        prefix=True,
        timeout=None,
        grace=5.0,
        tls=None,
        shape=None,
        extra=None,
    ):
        self.command = list(command)
        self.size = size
        self.places = _placement.places(size, ppn, pin)
        self.prefix = prefix
        self.timeout = timeout
        self.grace = grace
        self.extra = dict(extra or {})
        job = f"run-{os.getpid()}-{secrets.token_hex(4)}"
        self._env = _placement.base_environment(
            os.environ, tls=tls, shape=shape, job=job
        )
        self._ranks = []
        self._code = 0  # the first failing rank's
        self._ending = None  # time of the last resort, when the job is being ended
        self._killed = False
        self._broken = None  # output that can't be written: (descriptor, OSError)

    def run(self) -> int:
        """Start the ranks and wait for them; returns the exit code.

        That of the first rank that failed, 128 + N when signal N killed it, 124
        after the timeout, 141 when nobody reads the output, 1 when it can't be
        written, else 0.  Raises ``OSError`` when the program cannot be
        started.  Call it from the main thread: it handles signals meanwhile.

        Source: docs/launcher.md.
        """
        wake_read, self._wake = os.pipe()
        for fd in (wake_read, self._wake):
            os.set_blocking(fd, False)
        # The handlers do nothing; the number arrives through the pipe.  What is
        # ignored (nohup) stays so, here and in the ranks.
        old = {
            number: signal.signal(number, lambda *_: None)
            for number in FORWARDED
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        old_wake = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        token = secrets.token_bytes(16)
        self._server = Server(self.size, token)
        self._forwarder = Forwarder(self._on_broken)
        self._selector = selectors.DefaultSelector()
        self._selector.register(wake_read, selectors.EVENT_READ)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", _guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            # No thread runs before the last fork: a child of a process with
            # threads could inherit a lock that is taken.
            for place in self.places:
                self._start(place, token)
            self._server.start()
            self._forwarder.start()
            self._watch(wake_read)
            self._sweep()
            self._flush(wake_read)
        finally:
            self._sweep()
            with contextlib.suppress(OSError):
                self._guard.stdin.close()
            self._guard.wait()
            self._server.stop()
            signal.set_wakeup_fd(old_wake)
            for number, handler in old.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(wake_read)
            os.close(self._wake)
        return self._code

    def _say(self, text):
        with contextlib.suppress(OSError):
            os.write(2, f"uct-tofu run: {text}\n".encode())

    def _on_broken(self, output, error):
        """In the forwarder's thread: an output can't be written any more."""
        self._broken = output, error
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    def _tell_guard(self, sign, rank):
        with contextlib.suppress(OSError):
            self._guard.stdin.write(b"%c%d\n" % (sign, rank.pid))
            self._guard.stdin.flush()

    def _prefix(self, place, output):
        if not self.prefix:
            return b""
        text = f"[{place.rank}]"
        if os.isatty(output) and not os.environ.get("NO_COLOR"):
            text = click.style(text, fg=COLOURS[place.rank % len(COLOURS)])
        return text.encode() + b" "

    def _start(self, place, token):
        env = _placement.rank_environment(
            self._env, place, self._server.unix_address, token
        )
        env.update(self.extra)
        launcher = os.getpid()

        def prepare():
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != launcher:  # it ended before the kernel was told
                os._exit(127)
            if place.cpu is not None:
                os.sched_setaffinity(0, {place.cpu})

        process = subprocess.Popen(
            self.command,
            env=env,
            stdin=None if place.rank == 0 and _stdin_is_ours() else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=prepare,
        )
        rank = _Rank(place, process)
        self._ranks.append(rank)
        self._tell_guard(b"+", rank)
        for pipe, output in ((process.stdout, 1), (process.stderr, 2)):
            # The forwarder closes its own descriptor, this object its own.
            prefix = self._prefix(place, output)
            self._forwarder.add(os.dup(pipe.fileno()), output, prefix)
            pipe.close()
        self._selector.register(rank.pidfd, selectors.EVENT_READ, rank)

    def _running(self):
        return [rank for rank in self._ranks if rank.code is None]

    def _watch(self, wake_read):
        """Until every rank has ended."""
        deadline = None
        if self.timeout is not None:
            deadline = time.monotonic() + self.timeout
        while self._running():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                deadline = None
                names = ", ".join(str(r.place.rank) for r in self._running())
                self._say(
                    f"not ended after {self.timeout:g} s: ranks {names}; ending them"
                )
                self._end(TIMED_OUT, signal.SIGTERM)
            if self._ending is not None and now >= self._ending and not self._killed:
                self._kill()
            limits = [deadline, None if self._killed else self._ending]
            limits = [limit - now for limit in limits if limit is not None]
            wait = min(max(0.0, min(limits)), LOOK_S) if limits else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    self._on_signals(wake_read)
                else:
                    self._on_exit(key.data)

    def _on_exit(self, rank):
        how = rank.look()
        if how is None:
            return
        self._selector.unregister(rank.pidfd)
        self._server.rank_left(rank.place.rank, how, failed=rank.code != 0)
        if rank.code != 0 and self._ending is None:
            others = "; ending the others" if self._running() else ""
            self._say(f"rank {rank.place.rank} (process {rank.pid}) {how}{others}")
            self._end(rank.code, signal.SIGTERM)
        elif rank.code != 0 and self._code == 0:
            self._code = rank.code  # a signal was forwarded, and it failed of it

    def _end(self, code, number):
        """Ask all ranks to end, and set the time when they are killed."""
        if self._code == 0:
            self._code = code
        for rank in self._running():
            rank.signal(number)
            rank.signal(signal.SIGCONT)  # a stopped one cannot end
        if self._ending is None:
            self._ending = time.monotonic() + self.grace

    def _kill(self):
        self._killed = True
        names = ", ".join(str(r.place.rank) for r in self._running())
        self._say(f"killing what has not ended: ranks {names}")
        for rank in self._running():
            rank.signal(signal.SIGKILL)

    def _on_signals(self, wake_read):
        with contextlib.suppress(BlockingIOError):
            for number in os.read(wake_read, 256):
                self._on_signal(number)
        if self._broken and self._ending is None:
            self._end(self._broken_code(), signal.SIGTERM)

    def _broken_code(self):
        """The exit code: nobody reads the output, or a disk is full."""
        _, error = self._broken
        return 128 + signal.SIGPIPE if error.errno == errno.EPIPE else 1

    def _on_signal(self, number):
        if number == signal.SIGINT and self._ending is not None:
            self._kill()  # somebody is impatient
        elif number in ENDING:
            # What the ranks make of it decides the exit code.
            self._end(0, number)
        elif number == signal.SIGTSTP:
            for rank in self._running():
                rank.signal(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif number in FORWARDED:
            for rank in self._running():
                rank.signal(number)

    def _sweep(self):
        """Kill what is left of the ranks' groups, then let their numbers go."""
        for rank in self._ranks:
            rank.signal(signal.SIGKILL)
        for rank in self._ranks:
            rank.process.wait()
            self._tell_guard(b"-", rank)
            os.close(rank.pidfd)
        self._ranks = []

    def _flush(self, wake_read):
        """Write what the ranks printed; an ending signal gives the rest up."""
        self._forwarder.finish()
        while not self._forwarder.join(0.05) and not self._broken:
            with contextlib.suppress(BlockingIOError):
                ending = [number for number in os.read(wake_read, 256) if number in ENDING]
                if ending:
                    self._code = self._code or 128 + ending[0]
                    return
        if self._broken:  # perhaps after the last rank ended
            self._code = self._code or self._broken_code()
            output, error = self._broken
            if error.errno != errno.EPIPE:
                name = "standard output" if output == 1 else "standard error"
                self._say(f"{name}: {error.strerror}")


def _stdin_is_ours() -> bool:
    """False in a shell's background job, where reading would steal its input."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True  # no terminal
