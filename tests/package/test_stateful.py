# SPDX-License-Identifier: BSD-3-Clause
"""A machine of hypothesis: objects made, used and closed in any order.

A model of each memory's bytes is kept beside it; what is refused has to be refused
for the reason that the model knows; at the end nothing is left.
"""

import gc
import os

import numpy as np
import pytest
from core_support import PATIENCE, until
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    rule,
)

from uct_tofu import (
    Endpoint,
    Iface,
    MemoryDomain,
    RemoteMemory,
    TofuBufferError,
    TofuClosedError,
    TofuInUseError,
    TofuRangeError,
)

SIZE = 40000


class Objects(RuleBasedStateMachine):
    """One process that reaches itself through several ifaces."""

    memories = Bundle("memories")
    ifaces = Bundle("ifaces")
    endpoints = Bundle("endpoints")

    @initialize()
    def open_domain(self):
        self.files = len(os.listdir("/proc/self/fd"))
        self.md = MemoryDomain(kept_registrations=2)
        self.open_memories, self.open_ifaces, self.open_eps = [], [], []
        self.sent, self.got = {}, {}

    # ---- objects

    @rule(target=memories)
    def allocate(self):
        memory = self.md.alloc(SIZE)
        return self._memory(memory)

    @rule(target=memories)
    def register(self):
        return self._memory(self.md.reg(bytearray(SIZE)))

    def _memory(self, memory):
        item = {
            "memory": memory,
            "remote": RemoteMemory(memory.export()),
            "model": np.zeros(SIZE, np.uint8),
        }
        self.open_memories.append(item)
        return item

    @rule(target=ifaces)
    def open_iface(self):
        if len(self.open_ifaces) >= 4:
            return self.open_ifaces[0]
        iface = Iface(self.md)
        got = self.got[id(iface)] = []
        iface.set_message_handler(1, lambda header, payload: got.append(header))
        self.open_ifaces.append(iface)
        return iface

    @rule(target=endpoints, source=ifaces, target_iface=ifaces)
    def connect(self, source, target_iface):
        if source not in self.open_ifaces or target_iface not in self.open_ifaces:
            with pytest.raises(TofuClosedError):
                Endpoint(source, target_iface.address)
            return None
        ep = Endpoint(source, target_iface.address)
        self.open_eps.append((ep, target_iface))
        return (ep, target_iface)

    # ---- traffic

    @rule(
        pair=endpoints,
        item=memories,
        offset=st.integers(-3, SIZE + 3),
        length=st.sampled_from([0, 1, 8, 33, 8192, 8193, 30000]),
        value=st.integers(1, 255),
    )
    def put_and_get(self, pair, item, offset, length, value):
        if pair is None:
            return
        ep, _ = pair
        data = np.full(length, value, np.uint8)
        if pair not in self.open_eps or item not in self.open_memories:
            with pytest.raises(TofuClosedError):
                ep.put(data, item["remote"], offset=offset)
            return
        if not 0 <= offset <= len(item["remote"]) - length:
            with pytest.raises(TofuRangeError):
                ep.put(data, item["remote"], offset=offset)
            return
        ep.put(data, item["remote"], offset=offset).wait(PATIENCE)
        end = min(offset + length, SIZE)
        item["model"][offset:end] = value
        whole = np.zeros(SIZE, np.uint8)
        ep.get(whole, item["remote"]).wait(PATIENCE)
        assert (whole == item["model"]).all()

    @rule(pair=endpoints, item=memories, length=st.sampled_from([3, 32, 9000]))
    def post_without_waiting(self, pair, item, length):
        """Operations whose requests nobody keeps; the model knows their bytes."""
        if pair in self.open_eps and item in self.open_memories:
            for _ in range(20):
                pair[0].put(np.full(length, 7, np.uint8), item["remote"])
            item["model"][:length] = 7
            pair[0].flush().wait(PATIENCE)

    @rule(pair=endpoints, length=st.sampled_from([0, 20, 9000, 60000]))
    def message(self, pair, length):
        if pair in self.open_eps:
            ep, target = pair
            number = self.sent[id(target)] = self.sent.get(id(target), 0) + 1
            request = ep.am(1, bytes(length), header=b"%d" % number)

            def over():
                target.progress()
                return request.done and len(self.got[id(target)]) == number

            until(ep.iface, over)
            assert self.got[id(target)][-1] == b"%d" % number

    @rule(item=memories)
    def look(self, item):
        if item in self.open_memories:
            with memoryview(item["memory"]) as view:
                assert bytes(view[:SIZE]) == item["model"].tobytes()
                if item["memory"].allocated:
                    with pytest.raises(TofuBufferError):
                        item["memory"].close()

    # ---- ends

    @rule(pair=consumes(endpoints))
    def close_endpoint(self, pair):
        if pair is not None:
            pair[0].close()
            pair[0].close()
            if pair in self.open_eps:
                self.open_eps.remove(pair)

    @rule(iface=ifaces)
    def close_iface(self, iface):
        if any(ep.iface is iface for ep, _ in self.open_eps):
            with pytest.raises(TofuInUseError):
                iface.close()
        elif not any(target is iface for _, target in self.open_eps):
            iface.close()
            iface.close()
            if iface in self.open_ifaces:
                self.open_ifaces.remove(iface)

    @rule(item=memories)
    def close_memory(self, item):
        item["remote"].close()
        item["memory"].close()
        item["memory"].close()
        if item in self.open_memories:
            self.open_memories.remove(item)

    @rule()
    def close_domain_too_early(self):
        if self.open_memories or self.open_ifaces:
            with pytest.raises(TofuInUseError):
                self.md.close()

    @rule()
    def collect(self):
        gc.collect()

    def teardown(self):
        if not hasattr(self, "md"):
            return
        for ep, _ in self.open_eps:
            ep.close()
        for iface in self.open_ifaces:
            iface.close()
        for item in self.open_memories:
            item["remote"].close()
            item["memory"].close()
        self.md.close()
        assert len(os.listdir("/proc/self/fd")) <= self.files + 8


TestObjects = Objects.TestCase
TestObjects.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
