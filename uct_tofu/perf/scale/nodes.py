# SPDX-License-Identifier: BSD-3-Clause
"""What a node has that can be busy, and what an operation takes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from uct_tofu.perf import tofud_model as timing

SLOT_HEADER = 16  # bytes in front of a message in a large slot
BYTES = {"request": 32, "answer": 32, "credit": 8, "recall": 8}


@dataclass(frozen=True)
class Costs:
    """What takes how long.

    Parameters
    ----------
    parameters : tofud_model.Parameters
        Of the network and of the calls.
    handler : float
        Of the handler of a message, ns.

    Source: docs/timing.md, docs/scale.md.
    """

    parameters: timing.Parameters
    handler: float = 0.0

    def one_way(self, length: int, hops: int) -> float:
        """From the post of a put until the target can see it, ns.

        Parameters
        ----------
        length : int
            bytes
        hops : int
            0 on the same node: one hop less than to a neighbour.

        Source: cython/emu/emu_timing.c, emu_timing_plan.
        """
        return timing.put(
            self.parameters, length, hops,
            piggyback=length <= timing.PIGGYBACK_MAX,
        )  # fmt: skip

    def atomic(self, hops: int) -> float:
        """From the post of a compare-and-swap until its answer, ns.

        Source: cython/emu/emu_timing.c, emu_timing_plan.
        """
        return timing.armw(self.parameters, hops)


class Node:
    """When the CPU, the command queue, the TNI and the links of a node are free.

    ``ready`` holds the senders of this node that can do something, ``channels`` those
    that hold slots.  All times are ns.

    Source: cython/emu/emu_timing.c, struct emu_clock.
    """

    __slots__ = (
        "channels", "cpu_free", "cq_free", "links", "phase", "ready",
        "receive_free", "run_at", "tick_at", "tni_free",
    )  # fmt: skip

    def __init__(self, phase: float):
        self.phase = phase  # of its ticks
        self.cpu_free = self.cq_free = self.tni_free = self.receive_free = 0.0
        self.links: dict = {}
        self.run_at = self.tick_at = None
        self.ready: deque = deque()
        self.channels: deque = deque()

    def depart(self, time: float, data: float, gap: float, link) -> float:
        """When an operation that is posted now leaves; takes what it needs.

        Parameters
        ----------
        time, data, gap : float
            Now, what its bytes take on a link, and the least time between two
            operations of one queue, ns.
        link : int or None
            The first link of its way; None within the node.

        Source: cython/emu/emu_timing.c, emu_timing_plan.
        """
        start = max(time, self.cq_free, self.tni_free)
        if link is not None:
            start = max(start, self.links.get(link, 0.0))
            self.links[link] = start + data
        self.tni_free = start + data
        self.cq_free = start + max(data, gap)
        return start


class Peer:
    """What the simulator knows of a sender besides its protocol state.

    Source: cython/core/tofu_am.h, struct tofu_chan.
    """

    __slots__ = (
        "half", "hops", "is_ready", "last_down", "last_up", "link_down", "link_up",
        "node", "pause", "since", "tries", "used",
    )  # fmt: skip

    def __init__(self, node: Node, hops: int, half: float, link_up, link_down):
        self.node = node
        self.hops = hops
        self.half = half  # of a compare-and-swap, ns
        self.link_up, self.link_down = link_up, link_down
        self.last_up = self.last_down = 0.0  # when the last operation landed
        self.pause = 0.0  # no claim before this time
        self.tries = 0  # to claim an entry
        self.since = None  # it waits for slots since then
        self.used = 0.0  # when it sent something last
        self.is_ready = False
