# SPDX-License-Identifier: BSD-3-Clause
"""Discrete events: senders and one receiver of the checked model, in time.

What happens is decided by uct_tofu.model.protocol; here is only when: what a step
takes, when an operation lands, and what the core does by the clock (ticks, recalls,
idle channels, rests between claims).  All times are nanoseconds.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict

import numpy as np

from uct_tofu.model import protocol as p
from uct_tofu.model.sizes import CONSTANTS, GRANT, RELEASE, Sizes
from uct_tofu.model.storage import LoanTable, NoticeQueue, Table
from uct_tofu.perf.scale.claims import ParkedClaims
from uct_tofu.perf.scale.nodes import BYTES, SLOT_HEADER, Costs, Node, Peer

MS = 1e6
TICK = CONSTANTS["TOFU_TICK_MS"] * MS
KEEP = CONSTANTS["TOFU_AM_KEEP_MS"] * MS
KEEP_WINDOW = CONSTANTS["TOFU_AM_KEEP_WINDOW"]
PROBE = CONSTANTS["TOFU_AM_PROBE_MS"] * MS
CHANS_PER_TICK = CONSTANTS["TOFU_AM_CHANS_PER_TICK"]
RECALLS_PER_TICK = CONSTANTS["TOFU_RECALLS_PER_TICK"]
RECALL_ROUNDS = CONSTANTS["TOFU_RECALL_ROUNDS"]
NOTICES_MAX = CONSTANTS["TOFU_NOTICES_MAX"]
# After the first round of the table, and how often it doubles: tofu_chan_claimed.
CLAIM_REST = CONSTANTS["TOFU_CLAIM_REST_MS"] * MS
DOUBLINGS = CONSTANTS["TOFU_CLAIM_DOUBLINGS"]
CLAIM_KEY = 0x9E3779B97F4A7C15  # TOFU_CLAIM_KEY
TURNS_PER_RUN = 64  # of those that wait, in one call of progress
STUCK = 30_000 * MS  # without a message for so long: nothing will come any more
NEXT_TO_NOTHING = 10.0  # landings are not put off by less


def _shares(count):
    """Of the pauses between rounds of claims, what each sender takes: 0.5 to 1.5.

    As in tofu_chan_claimed, by a hash of what it is.
    """
    hashes = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(CLAIM_KEY)
    return 0.5 + (hashes >> np.uint64(56)).astype(float) / 256


class Simulation:
    """Messages of some senders to one receiver.

    Parameters
    ----------
    sizes : Sizes
        The pools; ``sizes.slots`` are those that the messages go to.
    costs : Costs
    places : list of tuple
        Of each sender: hops, first link to the receiver, first link back.
    messages : int
        That each of them sends.
    length : int
        Bytes of a message, as they travel but for the header of a large slot.
    large : bool
        The messages go to large slots.
    mirror : bool
        All senders and the receiver are one node: by symmetry, what it sends to
        others comes to it from others (docs/scale.md).
    active : int, optional
        How many senders are at work at a time; the next one begins when one is
        done.  By default all.
    park : bool
        Use ParkedClaims; else each try to claim an entry is simulated.

    Source: docs/active-messages.md, docs/timing.md.
    """

    def __init__(
        self, sizes: Sizes, costs: Costs, places, messages: int, *, length: int,
        large: bool = False, mirror: bool = False, active: int | None = None,
        park: bool = True,
    ):  # fmt: skip
        n = len(places)
        self.sizes, self.costs = sizes, costs
        self.per_byte = costs.parameters.per_byte
        self.length = length + (SLOT_HEADER if large else 0)
        self.total = n * messages
        self.receiver = p.new_receiver(sizes, n, Table, NoticeQueue, LoanTable)
        self.senders = [p.new_sender(i, (messages,)) for i in range(n)]
        self.home = Node(0.0)
        self.peers = []
        for i, (hops, up, down) in enumerate(places):
            # ticks of different nodes have nothing to do with each other
            node = self.home if mirror else Node(i * 0.6180339887 % 1 * TICK)
            half = costs.atomic(hops) / 2
            self.peers.append(Peer(node, hops, half, up, down))
        self.parked = None
        self.rests = CLAIM_REST * _shares(n)
        if park:
            self.parked = {
                GRANT: ParkedClaims(n, sizes.grant_entries, self.rests, DOUBLINGS),
                RELEASE: ParkedClaims(n, sizes.release_entries, self.rests, DOUBLINGS),
            }
        self.events: list = []
        self.number = 0
        self.counts: Counter = Counter()
        self.peaks: Counter = Counter()
        self.lenders: OrderedDict = OrderedDict()  # -> messages, when looked at last
        self.recalled: set = set()  # of them, those that were asked
        self.lent = [0, 0]  # slots of the class in use, and of the other
        self.loan_slots: dict = {}
        self.claimed_at: dict = {}  # entry -> when
        self.busy = 0.0  # of the receiver's CPU
        self.end = 0.0
        self.next_sender = 0
        for _ in range(n if active is None else min(active, n)):
            self._start_next(0.0)

    # ------------------------------------------------------------------ events

    def run(self) -> Simulation:
        """Until the last message was handled; returns itself.

        Raises ``RuntimeError`` when nothing more can happen before, and
        ``Violation`` when the protocol is broken.

        Source: uct_tofu/model/protocol.py.
        """
        while self.counts["delivered"] < self.total:
            if not self.events or self.events[0][0] > self.end + STUCK:
                raise RuntimeError(
                    f"the simulation stands still after {self.counts['delivered']} "
                    f"of {self.total} messages"
                )
            time, _, call, args = heapq.heappop(self.events)
            call(time, *args)
        for parked in (self.parked or {}).values():
            self.counts["claim"] += parked.tries_until(time)
        return self

    def _at(self, time, call, *args):
        self.number += 1
        heapq.heappush(self.events, (time, self.number, call, args))

    def _wake(self, time, node):
        if node.run_at is None:
            node.run_at = max(time, node.cpu_free)
            self._at(node.run_at, self._run_node, node)

    def _ready(self, time, i):
        peer = self.peers[i]
        if not peer.is_ready:
            peer.is_ready = True
            peer.node.ready.append(i)
        self._wake(time, peer.node)

    def _start_next(self, time):
        if self.next_sender < len(self.senders):
            self._ready(time, self.next_sender)
            self.next_sender += 1

    def _run_node(self, time, node):
        """One call of progress: notices, requests, then those that wait."""
        node.run_at = None
        now = time
        if node is self.home:
            now = self._serve(now)
        for _ in range(TURNS_PER_RUN):
            if not node.ready or (node is self.home and self._is_answering()):
                break
            i = node.ready.popleft()
            self.peers[i].is_ready = False
            now, again = self._step(now, i)
            if again:
                self.peers[i].is_ready = True
                node.ready.append(i)
        node.cpu_free = now
        if node.ready or (
            node is self.home and (self._is_answering() or self.receiver.mrq)
        ):
            self._wake(now, node)

    # ---------------------------------------------------------------- receiver

    def _is_answering(self):
        r = self.receiver
        return r.answered is not None or bool(r.jobs and not r.short)

    def _serve(self, time):
        """Notices, then one request after the other; each takes effect when it ends."""
        began = time
        if self.receiver.answered is None:
            time = self._read(time)
        else:
            self._free_answered(time)
        if self.receiver.jobs and not self.receiver.short:
            time = self._answer(time)
        if self.receiver.short and self.receiver.jobs:
            self._want_tick(time, self.home)
        self.busy += time - began
        return time

    def _read(self, time):
        cost = self.costs.parameters.poll
        for _ in range(NOTICES_MAX):
            if not self.receiver.mrq:
                break
            time += cost
            self.counts["notices"] += 1
            r = p.read_notice(self.sizes, self.receiver)
            if r.stack:
                time += self.costs.handler
                r = p.end_handler(self.sizes, r)
                self.counts["delivered"] += 1
                self.end = time
            self.receiver = r
            for i in r.due:
                self.receiver, ops = p.report(self.sizes, self.receiver, i)
                time = self._send_down(time, i, ops[0])
                if self.receiver.short:
                    time = self._take_turns(time, i)
        return time

    def _take_turns(self, time, i):
        """tofu_lender_take_turns: it used its slots, and others wait."""
        loan = self.receiver.loans[p.find_loan(self.receiver, i)]
        if (
            i not in self.recalled
            and loan.arrived >= RECALL_ROUNDS * loan.count
            and len(self.recalled) < len(self.receiver.jobs)
        ):
            time = self._ask_back(time, i, loan)
        return time

    def _ask_back(self, time, i, loan):
        self.recalled.add(i)
        return self._send_down(time, i, ("recall", loan.nonce))

    def _answer(self, time):
        self.receiver, to, ops = p.jobs_step(self.sizes, self.receiver)
        if to is None:
            return time
        op = ops[0]
        if op[2] == GRANT:
            self.lenders[to] = 0
            loan = self.receiver.loans[p.find_loan(self.receiver, to)]
            self.loan_slots[to] = (loan.count, loan.other[1] if loan.other else 0)
            self._lend(self.loan_slots[to], 1)
        elif to in self.lenders:
            del self.lenders[to]
            self.recalled.discard(to)
            self._lend(self.loan_slots.pop(to), -1)
        return self._send_down(time, to, op)

    def _free_answered(self, time):
        entry = self.receiver.answered
        self.receiver = p.free_answered(self.receiver)
        held = time - self.claimed_at.pop(entry, time)
        self.counts["probe_claim"] += int(held // PROBE)
        self._entry_freed(time, entry)

    def _lend(self, slots, sign):
        for which in (0, 1):
            self.lent[which] += sign * slots[which]
        self._peak("loans", len(self.lenders))
        self._peak("slots_lent", self.lent[0])
        self._peak("other_slots_lent", self.lent[1])

    def _peak(self, name, value):
        if value > self.peaks[name]:
            self.peaks[name] = value

    def _send_down(self, time, i, op):
        peer, length = self.peers[i], BYTES[op[0]]
        self.counts[op[0]] += 1
        if op[0] == "answer":
            self.counts[f"answer_{op[2]}"] += 1
        self._post(self.home, time, length, peer, self._land_down, i, op, up=False)
        return time + self.costs.parameters.post

    def _recall(self, time):
        """tofu_am_recall: as many as wait, of holders that sent nothing, else any.

        The core asks 16 at once and the others in later calls of progress, which
        are microseconds away.
        """
        left, asked = len(self.receiver.jobs), 0
        for _ in range(len(self.lenders)):
            if left == asked:
                break
            i, seen = self.lenders.popitem(last=False)
            loan = self.receiver.loans[p.find_loan(self.receiver, i)]
            self.lenders[i] = loan.arrived
            if loan.arrived == seen:
                time = self._ask_back(time, i, loan)
                asked += 1
        if not asked:
            for _ in range(min(RECALLS_PER_TICK, len(self.lenders))):
                i, seen = self.lenders.popitem(last=False)
                loan = self.receiver.loans[p.find_loan(self.receiver, i)]
                self.lenders[i] = seen
                time = self._ask_back(time, i, loan)
        return time

    # ----------------------------------------------------------------- network

    def _post(self, node, time, length, peer, call, i, op, *, up):
        """A put leaves a node; what it does happens when it has landed."""
        costs, data = self.costs, length * self.per_byte
        link = peer.link_up if up else peer.link_down
        start = node.depart(time, data, costs.parameters.message_gap, link)
        way = costs.one_way(length, peer.hops) - data
        last = peer.last_up if up else peer.last_down
        reached = max(start + way, last)  # STRONG_ORDER
        if up:
            peer.last_up = reached
        else:
            peer.last_down = reached
        self._at(reached, self._reach, self.home if up else peer.node, data,
                 call, i, op)  # fmt: skip

    def _reach(self, time, node, data, call, i, op):
        """The TNI over there takes one message after the other."""
        landed = max(time, node.receive_free) + data
        node.receive_free = landed
        if landed - time > NEXT_TO_NOTHING:
            self._at(landed, call, i, op)
        else:
            call(landed, i, op)

    def _land_up(self, time, i, op):
        r, old = p.receive_up(self.sizes, self.receiver, i, op)
        self.receiver = r
        if op[0] == "claim":
            self._claim_landed(time, i, op, old)
            return
        self._peak("mrq", len(r.mrq))
        self._wake(time, self.home)

    def _land_down(self, time, i, op):
        s = self.senders[i] = p.receive_down(self.senders[i], op)
        waits = s.starved[0] and s.todo[0] > 0
        if op[0] == "answer" or waits:
            self._ready(time, i)
        elif op[0] == "recall":
            self._want_tick(time, self.peers[i].node)

    # ------------------------------------------------------------------ claims

    def _claim_landed(self, time, i, op, old):
        peer = self.peers[i]
        self.counts["claim"] += 1
        peer.tries += 1
        if old == 0:
            self.claimed_at[op[1]] = time
        elif self.parked:
            request = self.senders[i].request
            parked = self.parked[request]
            first, _ = self.sizes.table_range(request)
            period = 2 * peer.half + self.costs.parameters.poll
            parked.add(i, time, op[1] - first, peer.tries, period)
            self._peak("parked", len(parked))
            self._look_for_free(time, i, parked, first)
            return
        self._at(time + peer.half, self._old_value, i, old)

    def _old_value(self, time, i, old):
        self.senders[i] = self.senders[i]._replace(old_value=old)
        self._ready(time, i)

    def _look_for_free(self, time, i, parked, first):
        """Entries that are free just now, and that i may be the first to try."""
        for entry in range(parked.entries):
            if self.receiver.claims[first + entry] == 0:
                found = parked.next_try(entry, time, _one(i))
                self._at(found[1], self._parked_try, first, entry, found)

    def _entry_freed(self, time, entry):
        if not self.parked:
            return
        is_grant = entry < self.sizes.grant_entries
        first = 0 if is_grant else self.sizes.grant_entries
        self._find_claimant(time, first, entry - first)

    def _find_claimant(self, time, first, entry):
        parked = self.parked[RELEASE if first else GRANT]
        found = parked.next_try(entry, time)
        if found is not None:
            self._at(found[1], self._parked_try, first, entry, found)

    def _parked_try(self, time, first, entry, found):
        i, _, tries = found
        parked = self.parked[RELEASE if first else GRANT]
        if self.receiver.claims[first + entry] != 0:
            return  # who comes first when it is free again, is asked then
        if i not in parked or parked.next_try(entry, time, _one(i)) != found:
            self._find_claimant(time, first, entry)
            return
        peer = self.peers[i]
        peer.tries = parked.remove(i, tries - 1)
        self.counts["claim"] += tries - 1
        s = self.senders[i] = self.senders[i]._replace(entry=first + entry)
        self._land_up(time, i, ("claim", s.entry, s.nonce))

    # ----------------------------------------------------------------- senders

    def _step(self, time, i):
        """One move of a sender: (time after it, can it go on?)."""
        s, peer, sz = self.senders[i], self.peers[i], self.sizes
        if p.channel_can_move(s):
            return self._channel_step(time, i, s, peer)
        if not s.todo[0] or (s.want and s.state not in (p.IDLE, p.OPEN)):
            return time, False
        was = s.state
        s, ops = p.turn(sz, s, 0)
        self.senders[i] = s
        if not ops:
            if s.state == p.CLAIM:  # it asks for slots, or gives back recalled ones
                self.counts["released_recalled"] += was == p.OPEN
                self._asks(time, i, was)
            return time, s.state == p.CLAIM
        self.counts["message"] += 1
        peer.used = time
        self._post(peer.node, time, self.length, peer, self._land_up, i, ops[0],
                   up=True)  # fmt: skip
        time += self.costs.parameters.post
        if s.todo[0] == 0:
            self._start_next(time)
            self._at(self._tick_after(time + KEEP, peer.node), self._look_idle,
                     peer.node)  # fmt: skip
        return time, s.todo[0] > 0

    def _channel_step(self, time, i, s, peer):
        if s.state == p.CLAIM and time < peer.pause:
            self._at(peer.pause, self._ready, i)
            return time, False
        was = s.state
        s, ops = p.channel_step(self.sizes, s)
        self.senders[i] = s
        if was == p.CLAIMING:  # it read the answer to its compare-and-swap
            self.counts["sender_notices"] += 1
            time += self.costs.parameters.poll
            entries = self.sizes.table_range(s.request)[1]
            if s.state == p.CLAIM and peer.tries % entries == 0:
                rounds = min(peer.tries // entries - 1, DOUBLINGS)
                peer.pause = time + self.rests[i] * 2**rounds
        elif ops and ops[0][0] == "claim":
            start = peer.node.depart(
                time, 0.0, self.costs.parameters.message_gap, peer.link_up
            )
            landed = max(start + peer.half, peer.last_up)
            peer.last_up = landed
            self._at(landed, self._land_up, i, ops[0])
            time += self.costs.parameters.post
        elif ops:
            self.counts["request"] += 1
            self._waited(time, peer)
            self._post(peer.node, time, BYTES["request"], peer, self._land_up, i,
                       ops[0], up=True)  # fmt: skip
            time += self.costs.parameters.post
        elif s.state == p.OPEN:
            self._waited(time, peer)
            peer.since = None
            peer.node.channels.append(i)
            self._peak("channels", len(peer.node.channels))
        elif s.state == p.CLAIM:  # released, and it wants slots again
            self._asks(time, i, p.IDLE)
        return time, p.channel_can_move(s) or s.todo[0] > 0

    def _asks(self, time, i, was):
        """A sender begins to claim an entry."""
        peer = self.peers[i]
        if was == p.OPEN:
            peer.node.channels.remove(i)
        peer.tries = 0
        peer.since = time if self.senders[i].want else None

    def _waited(self, time, peer):
        """Who waits probes the receiver every 100 ms."""
        if peer.since is not None:
            self.counts["probe_receiver"] += int((time - peer.since) // PROBE)
            peer.since = time

    # ------------------------------------------------------------------- ticks

    def _tick_after(self, time, node):
        ticks = (time - node.phase) // TICK + 1
        return node.phase + ticks * TICK

    def _want_tick(self, time, node):
        if node.tick_at is None:
            node.tick_at = self._tick_after(time, node)
            self._at(node.tick_at, self._tick, node)

    def _look_idle(self, time, node):
        """A channel of this node may have been idle for long."""
        if node.tick_at is None:
            self._tick(time, node)

    def _tick(self, time, node):
        """tofu_am_tick, when there is something to do."""
        node.tick_at = None
        now = max(time, node.cpu_free)
        if node is self.home and self.receiver.short and self.receiver.jobs:
            now = self._recall(now)
            self._want_tick(time, node)
        for _ in range(min(CHANS_PER_TICK, len(node.channels))):
            i = node.channels.popleft()
            node.channels.append(i)
            self._tick_channel(now, i)
        node.cpu_free = now
        if any(self._is_recalled(i) for i in node.channels):
            self._want_tick(time, node)

    def _is_recalled(self, i):
        s = self.senders[i]
        return s.recall == s.nonce

    def _tick_channel(self, time, i):
        s, peer = self.senders[i], self.peers[i]
        recalled = self._is_recalled(i)
        used = s.todo[0] or s.want or s.count >= KEEP_WINDOW or time - peer.used < KEEP
        if used and not recalled:
            return
        self.counts["released_recalled" if recalled else "released_idle"] += 1
        self.senders[i] = p.release(self.sizes, s)
        self._asks(time, i, p.OPEN)
        self._ready(time, i)


def _one(i):
    return np.array([i])
