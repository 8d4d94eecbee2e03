# SPDX-License-Identifier: BSD-3-Clause
"""Who sends what to whom, which part of it is simulated, and what stands for the rest.

Up to ``exact`` nodes one process is simulated with all the senders that it ever has.
Above, the counts of two simulated sizes are continued, and the outcome says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from uct_tofu.model.sizes import CONSTANTS, Sizes
from uct_tofu.perf import tofud_model as timing
from uct_tofu.perf.scale.memory import CONFIG, process_bytes
from uct_tofu.perf.scale.network import Network
from uct_tofu.perf.scale.nodes import Costs
from uct_tofu.perf.scale.simulator import Simulation

EXACT = 4096  # nodes that are simulated by default
# Half of so many are more than ever hold slots at a time (two each of 512), so that
# what comes on top is more turns of the same kind.
EXACT_LEAST = 1024
SMALL_MAX = 32  # bytes of a message that goes to a small slot
MS = 1e6
# Senders that wait for an entry or for slots, for a time that grows with their
# number: these counts grow with the square of the nodes.
QUADRATIC = frozenset({"claim", "probe_receiver"})


@dataclass(frozen=True)
class Case:
    """One run.

    Parameters
    ----------
    workload : str
        One of ``WORKLOADS``.
    nodes : int
        2 to 158,976, with one process each.
    messages : int
        From each sender to each of its receivers.
    size : int
        Bytes of a message as it travels (with the 8 of am_short's header).
    profile : str
        One of ``tofud_model.PROFILES``.
    handler : float
        What the handler of a message takes, ns.

    Source: docs/scale.md.
    """

    workload: str
    nodes: int
    messages: int = 16
    size: int = 32
    profile: str = "tofud"
    handler: float = 0.0

    def check(self) -> None:
        """Raise ``ValueError`` for what cannot be simulated.

        Source: docs/scale.md.
        """
        if self.workload not in WORKLOADS:
            raise ValueError(
                f"workload {self.workload!r} is none of {', '.join(WORKLOADS)}"
            )
        Network(max(self.nodes, 1))
        if self.nodes < 2:
            raise ValueError(f"nobody to send to among {self.nodes} nodes")
        if self.messages < 1:
            raise ValueError(f"messages must be 1 or more, not {self.messages}")
        if not 8 <= self.size <= CONFIG["am_seg_size"]:
            raise ValueError(
                f"a message has 8 to {CONFIG['am_seg_size']} bytes, not {self.size}"
            )
        if self.profile not in timing.PROFILES:
            raise ValueError(
                f"profile {self.profile!r} is none of {', '.join(timing.PROFILES)}"
            )
        if self.handler < 0:
            raise ValueError("a handler takes no negative time")


@dataclass(frozen=True)
class Outcome:
    """What came of a run; times in ns, of one process that receives.

    ``based_on`` names the simulated sizes that were continued; empty when this size
    was simulated itself.

    Source: docs/scale.md.
    """

    case: Case
    senders: int
    time: float
    busy: float
    counts: dict
    peaks: dict
    memory: dict
    based_on: tuple = field(default=())

    @property
    def messages(self) -> int:
        """Messages that the process receives.

        Source: docs/scale.md.
        """
        return self.senders * self.case.messages

    @property
    def control(self) -> float:
        """Operations that carry no message, of senders and receiver together.

        Source: docs/active-messages.md, Who holds what.
        """
        names = ("claim", "request", "answer", "credit", "recall")
        return sum(self.counts.get(name, 0) for name in (*names, *PROBES))


PROBES = ("probe_claim", "probe_receiver")


def sizes_for(size: int) -> Sizes:
    """The pools of a default iface, that which takes messages of a size first.

    Source: cython/core/tofu_am.c, tofu_am_open.
    """
    small = CONFIG["rx_short_slots"], CONSTANTS["TOFU_AM_MAX_SMALL"]
    large = CONFIG["rx_slots"], CONSTANTS["TOFU_AM_MAX_LARGE"]
    used, other = (small, large) if size <= SMALL_MAX else (large, small)
    return Sizes(slots=used[0], max_window=used[1], other=other)


def _to_one(network: Network) -> list:
    """Each node but the first, to that one."""
    return [
        (
            network.hops(node, 0),
            network.first_link(node, 0),
            network.first_link(0, node),
        )
        for node in range(1, network.nodes)
    ]


def _mirrored(network: Network, others) -> list:
    """What the first node sends to each of others comes to it from the other side."""
    places = []
    for node in others:
        opposite = tuple(
            (n - c) % n for c, n in zip(network.coords(node), network.size)
        )
        back = network.first_link(0, network.node(opposite))
        places.append((network.hops(0, node), network.first_link(0, node), back))
    return places


def _to_all(network: Network) -> list:
    return _mirrored(network, range(1, network.nodes))


def _to_neighbours(network: Network) -> list:
    return _mirrored(network, network.neighbours(0))


@dataclass(frozen=True)
class Workload:
    """What the nodes of a workload do; see docs/scale.md.

    Source: docs/scale.md.
    """

    about: str
    places: Callable
    mirror: bool
    active: int | None = None
    always_exact: bool = False


WORKLOADS = {
    "many-to-one": Workload("every node sends to one", _to_one, mirror=False),
    "all-to-all": Workload(
        "every node sends to every other, to 32 at a time", _to_all, mirror=True,
        active=CONFIG["tx_bounce"] // 4,
    ),
    "neighbours": Workload(
        "every node sends to its neighbours on the network", _to_neighbours,
        mirror=True, always_exact=True,
    ),
}  # fmt: skip


def simulate(case: Case, *, park: bool = True) -> Outcome:
    """Simulate a run message by message.

    Parameters
    ----------
    case : Case
    park : bool
        As of ``Simulation``.

    Raises ``ValueError`` for a case that cannot be.  Takes about a millisecond of
    CPU time per sender.

    Source: uct_tofu/model/protocol.py.
    """
    case.check()
    workload = WORKLOADS[case.workload]
    done = Simulation(
        sizes_for(case.size),
        Costs(timing.PROFILES[case.profile], case.handler),
        workload.places(Network(case.nodes)),
        case.messages,
        length=case.size,
        large=case.size > SMALL_MAX,
        mirror=workload.mirror,
        active=workload.active,
        park=park,
    ).run()
    return _outcome(case, len(done.senders), done.end, done.busy / done.end,
                    dict(done.counts), dict(done.peaks))  # fmt: skip


def _outcome(case, senders, time, busy, counts, peaks, based_on=()) -> Outcome:
    mirror = WORKLOADS[case.workload].mirror
    memory = process_bytes(
        endpoints=senders if mirror else 0,
        sent_to=senders if mirror else 0,
        known=senders,
        open_=int(peaks.get("channels", 0)) if mirror else 0,
        loans=int(peaks.get("loans", 0)),
    )
    return Outcome(case, senders, time, busy, counts, peaks, memory, based_on)


def run_workload(case: Case, *, exact: int = EXACT, cache: dict | None = None):
    """A run, simulated up to ``exact`` nodes and continued from there.

    Parameters
    ----------
    case : Case
    exact : int
        Nodes, 1024 or more when one of the larger ones is to be continued.
    cache : dict, optional
        Keeps simulated runs for those that are continued from them.

    Returns
    -------
    Outcome

    Raises ``ValueError`` as ``simulate`` does.

    Source: docs/scale.md, Beyond.
    """
    case.check()
    cache = {} if cache is None else cache

    def simulated(nodes):
        one = replace(case, nodes=nodes)
        if one not in cache:
            cache[one] = simulate(one)
        return cache[one]

    if case.nodes <= exact or WORKLOADS[case.workload].always_exact:
        return simulated(case.nodes)
    if exact < EXACT_LEAST:
        raise ValueError(
            f"{case.nodes} nodes can't be continued from {exact}: at least "
            f"{EXACT_LEAST} must be simulated"
        )
    return _continued(case, simulated(exact // 2), simulated(exact))


def _continued(case: Case, one: Outcome, two: Outcome) -> Outcome:
    """What grows with the senders goes on growing; peaks that are bounded stay."""
    senders = case.nodes - 1
    n, m = one.senders, two.senders

    def straight(a, b):
        return b + (b - a) / (m - n) * (senders - m)

    def square(a, b):  # with those that wait, which are all but a few
        return max(0.0, straight(math.sqrt(a), math.sqrt(b))) ** 2

    counts = {}
    for name, value in two.counts.items():
        grow = square if name in QUADRATIC else straight
        if WORKLOADS[case.workload].active:
            grow = straight  # no more wait than are at work at a time
        counts[name] = max(0.0, grow(one.counts.get(name, 0), value))
    peaks = dict(two.peaks)
    if not WORKLOADS[case.workload].active and "parked" in peaks:
        peaks["parked"] = straight(one.peaks.get("parked", 0), peaks["parked"])
    time = straight(one.time, two.time)
    busy = straight(one.time * one.busy, two.time * two.busy) / time
    based_on = (one.case.nodes, two.case.nodes)
    return _outcome(case, senders, time, busy, counts, peaks, based_on)
