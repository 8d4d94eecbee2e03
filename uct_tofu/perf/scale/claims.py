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
    rest : float
        Pause after each round of the table, ns.

    Source: cython/core/tofu_am_chan.c, tofu_chan_claimed.
    """

    def __init__(self, senders: int, entries: int, rest: float):
        self.entries = entries
        self.rest = rest
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
        n, tries, period = self.entries, self._tries[who], self._period[who]
        first = (entry - self._entry[who] - 1) % n + 1
        rests = (tries + first - 1) // n - (tries - 1) // n
        at = self._landed[who] + first * period + rests * self.rest
        rounds = np.maximum(0, np.ceil((time - at) / (n * period + self.rest)))
        at += rounds * (n * period + self.rest)
        best = int(np.argmin(at))
        count = int(first[best] + rounds[best] * n)
        return int(who[best]), float(at[best]), count

    def tries_until(self, time) -> int:
        """Tries of all that are here that came until a time, after the first.

        Source: cython/core/tofu_am_chan.c, tofu_chan_claimed.
        """
        who = np.flatnonzero(self._parked)
        if len(who) == 0:
            return 0
        n, period, gone = self.entries, self._period[who], time - self._landed[who]
        first = -self._tries[who] % n  # those before the first rest
        begun = np.minimum(first, np.floor(np.maximum(0, gone) / period))
        later = np.maximum(0, gone - first * period)
        rounds, part = np.divmod(later, n * period + self.rest)
        part = np.minimum(n, np.floor(np.maximum(0, part - self.rest) / period))
        return int(np.sum(begun + rounds * n + part))
