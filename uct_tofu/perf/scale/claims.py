# SPDX-License-Identifier: BSD-3-Clause
"""Senders that find every entry of a request table taken, without an event per try.

Such a sender tries one entry after the other, and rests after each round of the
table (tofu_chan_claimed).  A try that fails changes nothing, and when the next ones
come to the receiver is known.  So nothing is simulated until an entry becomes free:
then the sender whose try comes to it first is looked up.
"""

from __future__ import annotations

import numpy as np


class ParkedClaims:
    """Senders whose compare-and-swap failed and who go on trying.

    Parameters
    ----------
    senders : int
        How many there can be; they are named by their number.
    entries : int
        Entries of the table that they try.
    rest : float or array of float
        Pause after the first round of the table, ns; of all, or of each sender.
    doublings : int
        How many of the next pauses are twice as long as the one before.

    Source: cython/core/tofu_am_chan.c, tofu_chan_claimed.
    """

    def __init__(self, senders: int, entries: int, rest, doublings: int = 0):
        self.entries = entries
        self.rest = np.broadcast_to(rest, senders)
        self.doublings = doublings
        self._landed = np.zeros(senders)  # ns: when the last simulated try failed
        self._entry = np.zeros(senders, dtype=np.int64)  # ... and at which entry
        self._tries = np.zeros(senders, dtype=np.int64)  # ... and which try it was
        self._period = np.zeros(senders)  # ns from one try to the next
        self._parked = np.zeros(senders, dtype=bool)

    def __len__(self) -> int:
        return int(self._parked.sum())

    def __contains__(self, sender: int) -> bool:
        return bool(self._parked[sender])

    def add(self, sender, time, entry, tries, period):
        """Try number ``tries`` of a sender failed at an entry.

        Parameters
        ----------
        sender, entry, tries : int
        time, period : float
            When it failed, and from one try to the next, ns.

        Source: cython/core/tofu_am_chan.c, tofu_chan_claimed.
        """
        self._landed[sender], self._entry[sender] = time, entry
        self._tries[sender], self._period[sender] = tries, period
        self._parked[sender] = True

    def remove(self, sender, tries):
        """A sender is simulated again; returns its tries so far, that one counted.

        Source: cython/core/tofu_am_chan.c, tofu_chan_claimed.
        """
        self._parked[sender] = False
        return int(self._tries[sender]) + tries

    def next_try(self, entry, time, senders=None):
        """Who is first to try an entry, from a time on.

        Parameters
        ----------
        entry : int
        time : float
            ns
        senders : numpy.ndarray of int, optional
            Only these; by default all that are here.

        Returns
        -------
        tuple of (int, float, int) or None
            The sender, when, ns, and how many tries after the one it is here for.

        Source: cython/core/tofu_am_chan.c, tofu_chan_claimed.
        """
        who = np.flatnonzero(self._parked) if senders is None else senders
        if len(who) == 0:
            return None
        n, tries = self.entries, self._tries[who]
        count = (entry - self._entry[who] - 1) % n + 1
        at = self._time(who, tries + count)
        for _ in range(self.doublings + 1):  # rounds after which pauses still grow
            late = at < time
            if not late.any():
                break
            count = count + n * late
            at = self._time(who, tries + count)
        last = n * self._period[who] + self.rest[who] * 2**self.doublings
        count = count + n * np.maximum(0, np.ceil((time - at) / last)).astype(int)
        at = self._time(who, tries + count)
        best = int(np.argmin(at))
        return int(who[best]), float(at[best]), int(count[best])

    def _time(self, who, number):
        """When try ``number`` of each of some senders fails."""
        tries = self._tries[who]
        pauses = self._pauses(who, (number - 1) // self.entries)
        pauses = pauses - self._pauses(who, (tries - 1) // self.entries)
        return self._landed[who] + (number - tries) * self._period[who] + pauses

    def _pauses(self, who, rounds):
        """The first pauses, of so many rounds, together."""
        growing = np.minimum(rounds, self.doublings)
        same = rounds - growing
        return self.rest[who] * (2.0**growing - 1 + same * 2.0**self.doublings)

    def tries_until(self, time) -> int:
        """Tries of all that are here that came until a time, after the first.

        Source: cython/core/tofu_am_chan.c, tofu_chan_claimed.
        """
        who = np.flatnonzero(self._parked)
        if len(who) == 0:
            return 0
        n, period = self.entries, self._period[who]

        def fitting(at, most):  # of tries that follow each other from a time on
            gone = np.maximum(0, time - at)
            return np.minimum(most, np.floor(gone / period)).astype(int)

        left = -self._tries[who] % n  # those before the first pause
        at, rounds = self._landed[who], (self._tries[who] + left) // n
        total = fitting(at, left)
        going = total == left
        at = at + left * period
        for _ in range(self.doublings + 1):  # rounds after which pauses still grow
            at = at + self._pauses(who, rounds) - self._pauses(who, rounds - 1)
            begun = fitting(at, n)
            total += np.where(going, begun, 0)
            going &= begun == n
            at, rounds = at + n * period, rounds + 1
        pause = self.rest[who] * 2**self.doublings
        whole, part = np.divmod(np.maximum(0, time - at), n * period + pause)
        part = np.minimum(n, np.floor(np.maximum(0, part - pause) / period))
        return int(np.sum(total + np.where(going, whole * n + part, 0)))
