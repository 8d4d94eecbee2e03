# SPDX-License-Identifier: BSD-3-Clause
"""The simulator's small cases are those of the real core on the emulator."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from uct_tofu import Iface, MemoryDomain
from uct_tofu.model.sizes import CONSTANTS, Sizes
from uct_tofu.perf import tofud_model
from uct_tofu.perf.scale import memory
from uct_tofu.perf.scale import simulator as sim
from uct_tofu.perf.scale.nodes import Costs
from uct_tofu.perf.scale.workloads import sizes_for

CYTHON = Path(__file__).resolve().parents[2] / "cython"

RECEIVER = """
import json, sys
from uct_tofu import Iface, MemoryDomain

total, small, large = map(int, sys.argv[1:])
# the simulation gives a notice to every message
with MemoryDomain() as md, Iface(
    md, rx_short_slots=small, rx_slots=large, am_polled=0
) as iface:
    last = {}
    def handler(data):
        sender, number = divmod(int.from_bytes(data[:8], "little"), 1 << 32)
        assert number == last.get(sender, -1) + 1, (sender, number, last)
        last[sender] = number
    iface.set_am_handler(1, handler)
    print(json.dumps({"address": iface.address.hex(), "query": iface.query()}),
          flush=True)
    while iface.stats()["am_rx"] < total:
        iface.progress()
    print(json.dumps(iface.stats()), flush=True)
    sys.stdin.read()  # the others look at their mailboxes until all is done
"""

# The first message is taken before there are slots, and goes to a large one.
SENDER = """
import json, select, sys
from uct_tofu import Endpoint, Iface, MemoryDomain, TofuRetryError

me, messages, stays = map(int, sys.argv[1:4])
address = bytes.fromhex(sys.argv[4])
with MemoryDomain() as md, Iface(md) as iface:
    ep = Endpoint(iface, address)
    print("ready", flush=True)
    sys.stdin.readline()
    sent = 0
    while sent <= messages:
        try:
            ep.am_short(1, (me << 32) + sent, b"")
            sent += 1
        except TofuRetryError:
            pass
        iface.progress()
    print("sent", flush=True)
    # who makes no progress gives nothing back, also not when it is idle
    while not select.select([sys.stdin], [], [], 0.01 * (1 - stays))[0]:
        if stays:
            iface.progress()
    print(json.dumps(iface.stats()), flush=True)
    sys.stdin.readline()
    ep.close()
"""


def many_to_one(processes, senders, messages, small, large, *, stays=False):
    """Run it on the emulator: query and counters of the receiver, and of all senders.

    stays: senders go on with progress when they are done, so that slots come back.
    """
    env = {**os.environ, "UCT_TOFU_BACKEND": "emulator"}

    def start(script, *arguments):
        command = [sys.executable, "-c", script, *map(str, arguments)]
        return processes.start(
            command, env=env, stdin=subprocess.PIPE, stderr=None, bufsize=1
        )

    def tell(process):
        process.stdin.write("\n")
        process.stdin.flush()

    to = start(RECEIVER, senders * (messages + 1), small, large)
    first = json.loads(to.stdout.readline())
    by = [
        start(SENDER, i, messages, int(stays), first["address"])
        for i in range(senders)
    ]
    for process in by:
        assert process.stdout.readline() == "ready\n"
    for process in by:
        tell(process)
    stats = json.loads(to.stdout.readline())
    found = []
    for process in by:
        assert process.stdout.readline() == "sent\n"
        tell(process)
        found.append(json.loads(process.stdout.readline()))
    for process in [*by, to]:
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    return first["query"], stats, found


def simulated(sizes, senders, messages):
    """The same in the simulator; its small messages only."""
    costs = Costs(tofud_model.PROFILES["tofud"])
    places = [(1, None, None)] * senders
    return sim.Simulation(sizes, costs, places, messages, length=8).run()


def probes(stats, messages, requests):
    """Local notices of a receiver: of probes and recalls, which are posts as well."""
    return stats["notices"] - messages - requests


@pytest.mark.timeout(300)
@pytest.mark.parametrize("senders", [2, 5, 8])
def test_counts_when_there_are_slots_for_all(job, processes, senders):
    """Messages, credits, grants and notices are equal."""
    messages = 600
    for _ in range(3):
        query, to, by = many_to_one(processes, senders, messages, 1024, 512)
        if to["credit_rx"] == senders:
            break  # else a process did not run for a second, and gave its slots back
    done = simulated(sizes_for(8), senders, messages)
    total = senders * (messages + 1)
    assert to["am_rx"] == sum(one["am_tx"] for one in by) == total
    assert done.counts["delivered"] == done.counts["message"] == senders * messages
    # nobody gave anything back: one request each
    assert to["credit_rx"] == done.counts["request"] == senders
    others = probes(to, total, senders)
    assert others >= 0 and to["dropped"] == 0
    expected = done.counts["credit"] + done.counts["answer_grant"]
    assert to["credit_tx"] - others == expected
    assert done.counts["notices"] == total - senders + senders
    for one in by:
        # a claim and a probe have a notice each, the request has none
        assert one["credit_tx"] == one["notices"] + 1
    assert sum(one["notices"] for one in by) >= senders <= done.counts["claim"]
    # the core counts what one call of progress reads, the simulator what is there
    assert to["mrq_peak"] <= CONSTANTS["TOFU_NOTICES_MAX"]
    assert 0 < done.peaks["mrq"] <= done.peaks["slots_lent"] + senders
    assert done.peaks["mrq"] <= memory.mrq_bound() == query["max_notices"]
    assert query["mrq_entries"] == memory.MRQ_ENTRIES


@pytest.mark.timeout(240)
def test_counts_when_slots_are_recalled(job, processes):
    """Slots for two of four: the number of turns is free, the rest follows from it."""
    senders, messages = 4, 40
    _, to, by = many_to_one(processes, senders, messages, 4, 4, stays=True)
    sizes = Sizes(slots=4, max_window=64, other=(4, 16))
    done = simulated(sizes, senders, messages)
    total = senders * (messages + 1)
    assert to["am_rx"] == sum(one["am_tx"] for one in by) == total
    # windows of two: each message is credited, each request answered
    requests = to["credit_rx"]
    assert to["credit_tx"] - probes(to, total, requests) == total + requests
    assert done.counts["credit"] == done.counts["delivered"] == senders * messages
    # all but the two that hold slots at the end gave them back
    assert requests >= senders + senders - 2
    assert done.counts["answer_grant"] >= senders
    assert done.counts["answer_grant"] - done.counts["answer_release"] in (1, 2)
    assert done.counts["released_recalled"] >= senders - 2
    assert done.peaks["loans"] == 2 and done.peaks["slots_lent"] == 4


WINDOWS = """
import json, sys
from contextlib import ExitStack
from uct_tofu import Endpoint, Iface, MemoryDomain, TofuRetryError

senders, small, large = map(int, sys.argv[1:])
with ExitStack() as stack:
    md = stack.enter_context(MemoryDomain())
    to = stack.enter_context(
        Iface(md, rx_short_slots=small, rx_slots=large, am_polled=0)
    )
    came = []
    to.set_am_handler(1, came.append)
    ifaces = [stack.enter_context(Iface(md)) for _ in range(senders)]
    eps = [Endpoint(iface, to.address) for iface in ifaces]
    for ep in eps:
        ep.am_short(1, 0, b"")
    while len(came) < senders:  # these went by large slots: all hold slots
        to.progress()
        for iface in ifaces:
            iface.progress()
    windows = []
    for ep in eps:
        count = 0
        try:
            while True:
                ep.am_short(1, 0, b"")
                count += 1
        except TofuRetryError:
            windows.append(count)
    print(json.dumps(windows))
    for ep in eps:
        ep.close()
"""


@pytest.mark.parametrize("small, large", [(1024, 512), (100, 512), (40, 32), (64, 18)])
def test_slots_in_use(job, processes, small, large):
    """Eight senders hold as many slots each in the core as in the simulator."""
    senders = 8
    code, output = processes.run(
        [sys.executable, "-c", WINDOWS, str(senders), str(small), str(large)],
        env={**os.environ, "UCT_TOFU_BACKEND": "emulator"}, timeout=100,
    )  # fmt: skip
    assert code == 0, output
    windows = json.loads(output.splitlines()[-1])
    sizes = Sizes(slots=small, max_window=64, other=(large, 16))
    done = simulated(sizes, senders, 1)
    assert sorted(windows) == sorted(slots for slots, _ in done.loan_slots.values())
    assert sum(windows) == done.peaks["slots_lent"]


TURNS = """
import json, sys
from contextlib import ExitStack
from uct_tofu import Endpoint, Iface, MemoryDomain, TofuRetryError

senders, messages, slots = map(int, sys.argv[1:])
with ExitStack() as stack:
    md = stack.enter_context(MemoryDomain())
    to = stack.enter_context(
        Iface(md, rx_short_slots=slots, rx_slots=slots, am_polled=0)
    )
    came = []
    to.set_am_handler(1, came.append)
    ifaces = [stack.enter_context(Iface(md)) for _ in range(senders)]
    eps = [Endpoint(iface, to.address) for iface in ifaces]
    todo = [messages] * senders
    while len(came) < senders * messages:
        to.progress()
        for i in range(senders):
            try:
                while todo[i]:
                    eps[i].am_short(1, 0, b"")
                    todo[i] -= 1
            except TofuRetryError:
                pass
            ifaces[i].progress()
    print(json.dumps(to.stats()))
    for ep in eps:
        ep.close()
"""


@pytest.mark.parametrize(
    "senders, messages, slots", [(20, 40, 4), (30, 5, 16), (40, 3, 32)]
)
def test_turns(job, processes, senders, messages, slots):
    """Ten times as many senders as slots: they take turns, as in the simulator."""
    code, output = processes.run(
        [sys.executable, "-c", TURNS, *map(str, (senders, messages, slots))],
        env={**os.environ, "UCT_TOFU_BACKEND": "emulator"}, timeout=100,
    )  # fmt: skip
    assert code == 0, output
    to = json.loads(output.splitlines()[-1])
    done = simulated(
        Sizes(slots=slots, max_window=64, other=(slots, 16)), senders, messages
    )
    assert to["am_rx"] == done.counts["delivered"] == senders * messages
    # Holders are asked when they used their slots, in both; ticks, of which the core
    # has more for its messages take longer here, come on top.  Who holds slots sends.
    assert to["credit_rx"] >= 0.8 * done.counts["request"]
    assert to["credit_rx"] <= senders * messages / 2 + senders
    recalls = probes(to, to["am_rx"], to["credit_rx"])  # and probes: a busy machine
    assert recalls >= 0.7 * done.counts["recall"] > 0


def test_numbers_of_the_core(compile_c, processes):
    """Sizes of structures, and numbers that the C code has without a name."""
    program = compile_c(
        '#include "tofu_am.h"\n#include <stdio.h>\n'
        "int main(void) {\n"
        '    printf("%zu %zu %zu %zu %zu %zu %u", sizeof(tofu_peer_t),\n'
        "           sizeof(tofu_ep_t), sizeof(tofu_chan_t),\n"
        "           sizeof(struct tofu_lender), sizeof(tofu_mailbox_t),\n"
        "           sizeof(tofu_entry_t), TOFU_MAILBOX_SEGMENT);\n"
        "    return 0;\n}\n",
        f"-I{CYTHON / 'core'}", f"-I{CYTHON / 'abi'}", "-D_GNU_SOURCE",
        "-Wno-unused-parameter", link=False,
    )  # fmt: skip
    code, output = processes.run([str(program)])
    assert code == 0
    peer, ep, chan, lender, mailbox, entry, segment = map(int, output.split())
    assert peer <= memory.PEER and ep <= memory.ENDPOINT
    assert chan == memory.CHANNEL and lender <= memory.LOAN
    assert (mailbox, entry) == (memory.MAILBOX, memory.TABLE_ENTRY)
    assert segment == memory.MAILBOX_SEGMENT
    text = (CYTHON / "core" / "tofu_am_chan.c").read_text()
    rest = "(TOFU_CLAIM_REST_MS * 1000u * share / 256u << shift);"
    assert rest in text and "(rounds < TOFU_CLAIM_DOUBLINGS)" in text
    assert "128 + ((iface->vcq_id * TOFU_CLAIM_KEY) >> 56);" in text
    assert f"{sim.CLAIM_KEY:#x}ull" in (CYTHON / "core" / "tofu_am.h").read_text()


def test_defaults_are_those_of_the_core(job, monkeypatch):
    """What an iface says of itself."""
    monkeypatch.setenv("UCT_TOFU_BACKEND", "emulator")
    with MemoryDomain() as md, Iface(md) as iface:
        query = iface.query()
    assert query["max_notices"] == memory.mrq_bound()
    assert query["mrq_entries"] == memory.MRQ_ENTRIES
