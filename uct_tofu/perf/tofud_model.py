# SPDX-License-Identifier: BSD-3-Clause
"""What Tofu-D takes for an operation, by a small model with published figures.

The timed mode of the emulator is meant to take these times; perf/timing_table.py
holds the two next to each other, and uct_tofu.perf.scale reckons with them.  All
times are in nanoseconds, sizes in bytes, hops are at least 1.  Each parameter names
the records of fugaku_published.json that it is from.  The profiles are those of the
emulator: "tofud" is what a plain loop sees, "tofud:best" the smallest published
latency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PIGGYBACK_MAX = 32


@dataclass(frozen=True)
class Parameters:
    """One profile."""

    # one-way, post to seen, ordinary put of 8 B to a neighbour: utofu.lt.put.8B.1hop
    put: float = 980.0
    # what a piggyback takes less: utofu.utf.piggyback_gain
    piggyback_saves: float = 260.0
    # what cache injection takes less: utofu.no_injection
    injection_saves: float = 230.0
    # what a put takes more from large_from bytes on: utofu.large_step
    large_step: float = 250.0
    large_from: int = 256
    # each hop after the first, one way: utofu.lt.hop.put
    hop: float = 75.0
    # time per byte of a TNI and of a link: hw.put_bw_per_tni, utofu.lt.put_bw.large
    per_byte: float = 0.1575
    # all TNIs of a node together: hw.injection_rate
    node_per_byte: float = 1 / 38.1
    # between two messages of one VCQ: utofu.lt.g_1KiB
    message_gap: float = 290.0
    # round trips seen by the initiator at no hops: utofu.lt.get.8B.1hop, .armw8.8B.1hop
    get: float = 1345.0
    armw: float = 1185.0
    # model.barrier.fit
    barrier: float = 600.0
    barrier_per_level: float = 500.0
    # CPU time of a post, an upper bound: utofu.utf.send_post
    post: float = 150.0
    # CPU time of a poll that finds a notice: assumed, as in cython/core/tofu_attr.c
    poll: float = 80.0


PROFILES = {
    "tofud": Parameters(),
    # hw.put_latency_8B, taken as that of a piggyback; with or without injection
    "tofud:best": Parameters(put=750.0, injection_saves=0.0),
}


def put(p, size, hops, *, piggyback=False, injection=False):
    """One way, from the post until the target sees the last byte or the notice."""
    time = p.put + p.hop * (hops - 1) + size * p.per_byte
    if piggyback:
        if size > PIGGYBACK_MAX:
            raise ValueError(f"a piggyback holds {PIGGYBACK_MAX} bytes, not {size}")
        time -= p.piggyback_saves
    if injection:
        time -= p.injection_saves
    if size >= p.large_from:
        time += p.large_step
    return time


def get(p, size, hops):
    """Round trip, until the initiator has the local notice."""
    return p.get + 2 * p.hop * hops + size * p.per_byte


def armw(p, hops):
    """Round trip, until the initiator has the old value."""
    return p.armw + 2 * p.hop * hops


def stream(p, size, *, tnis=1, neighbours=1, gap=0):
    """Time per put in a stream that is spread over TNIs and neighbours.

    One link takes no more than one TNI, so further TNIs help with further
    neighbours only; gap is that of utofu_put_gap.
    """
    lanes = min(tnis, neighbours)
    one = max(p.message_gap, size * p.per_byte * (gap + 8) / 8)
    return max(one / lanes, size * p.node_per_byte)


def barrier(p, nodes):
    """From the start of the barrier until its end is seen."""
    return p.barrier + p.barrier_per_level * math.log2(nodes)
