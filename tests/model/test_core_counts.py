# SPDX-License-Identifier: BSD-3-Clause
"""The counters of the real core are those that the model says."""

import json
import os
import subprocess
import sys

import pytest

from uct_tofu.model import Sizes
from uct_tofu.model import protocol as p
from uct_tofu.model import system as m

MESSAGES = 4096

# Two interfaces of one process: whose turn it is, the program decides.
PROGRAM = """
import json, sys
from uct_tofu import Endpoint, Iface, MemoryDomain, TofuRetryError

messages, slots, polled = map(int, sys.argv[1:])
with (MemoryDomain() as md, Iface(md) as by,
      Iface(md, rx_short_slots=slots, am_polled=polled) as to):
    numbers = []
    def handler(data):
        numbers.append(int.from_bytes(data[:8], "little"))
    to.set_am_handler(1, handler)
    ep = Endpoint(by, to.address)
    ep.am_short(1, 0, b"")  # is taken before there are slots, for a large one
    sent = 1
    while len(numbers) <= messages:
        try:
            while sent <= messages:
                ep.am_short(1, sent, b"")
                sent += 1
        except TofuRetryError:
            pass
        by.progress()
        to.progress()
    assert numbers == list(range(messages + 1))
    print(json.dumps({"to": to.stats(), "by": by.stats()}))
    ep.close()
"""


def model_counts(slots):
    """Counts of one sender's stream in the model, in the same turns."""
    sizes = Sizes(slots=slots)
    system = m.System(sizes, ((MESSAGES,),))
    state = m.initial(system)
    counts = dict.fromkeys(("message", "claim", "request", "answer", "credit"), 0)
    notices = 0
    order = ("channel", "up", "read", "end", "jobs", "free", "report", "down", "turn")
    while True:
        possible = {move[0]: move for move in m.moves(system, state)}
        name = next((n for n in order if n in possible), None)
        if name is None or m.is_final(state):
            break
        if name == "up":
            counts[state.up[0][0][0]] += 1
        elif name == "down":
            counts[state.down[0][0][0]] += 1
        notices += name == "read"
        state = m.apply(system, state, possible[name])
    assert m.is_final(state)
    assert state.senders[0].state == p.OPEN
    return counts, notices, sizes


def core_counts(slots, polled, folder):
    """Counters of receiver and sender in the same stream in the core."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(MESSAGES), str(slots), str(polled)],
        env={**os.environ, "UCT_TOFU_BACKEND": "emulator",
             "UTOFU_EMU_JOB": f"counts{os.getpid()}"},
        capture_output=True, text=True, timeout=100, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stats = json.loads(done.stdout)
    return stats["to"], stats["by"]


@pytest.mark.parametrize("slots", [1024, 100, 2])
def test_counts(slots, tmp_path):
    """Messages, credit messages and notices of a stream of small messages."""
    counts, notices, sizes = model_counts(slots)
    to, by = core_counts(slots, 0, tmp_path)
    assert to["am_polled"] == 0
    assert by["am_tx"] == to["am_rx"] == MESSAGES + 1
    assert counts["message"] == MESSAGES
    # claim and request; a busy machine may take the 100 ms that call for a probe
    probes = by["notices"] - counts["claim"]
    assert probes >= 0
    assert by["credit_tx"] - probes == counts["claim"] + counts["request"] == 2
    assert to["credit_rx"] == counts["request"] == by["credit_rx"] == 1
    assert to["credit_tx"] == counts["credit"] + counts["answer"]
    assert notices == MESSAGES + 1
    assert to["notices"] == notices + 1
    assert to["dropped"] == by["dropped"] == 0
    assert to["polls"] > 0 and by["polls"] > 0
    # in the steady state
    operations = (by["posts"] + to["posts"] - 4 - probes) / MESSAGES
    assert abs(operations - sizes.operations_per_message()) < 2 / MESSAGES


@pytest.mark.parametrize("slots", [1024, 100, 2])
def test_counts_without_notices(slots, tmp_path):
    """A permit adds its own word and takes away notices, nothing else."""
    counts, notices, sizes = model_counts(slots)
    to, by = core_counts(slots, 4, tmp_path)
    assert by["am_tx"] == to["am_rx"] == MESSAGES + 1
    # a busy machine may take so long that permits go back, or that it is probed
    probes = by["notices"] - counts["claim"]
    answers = by["credit_tx"] - probes - 2
    words = to["credit_tx"] - counts["credit"] - counts["answer"]
    assert probes >= 0 and answers >= 0
    assert words >= 1 + 2 * answers
    assert to["notices"] + to["am_polled"] == notices + 1 + answers
    # the sender sees the permit with the message after it: a window at most before
    assert to["am_polled"] >= MESSAGES - (words + 1) * sizes.max_window
    assert to["dropped"] == by["dropped"] == 0
    operations = by["posts"] + to["posts"] - 4 - probes - answers - words
    assert (
        abs(operations / MESSAGES - sizes.operations_per_message()) < 2 / MESSAGES
    )


def test_default_needs_no_more_than_agreed():
    """At most 1.05 operations per small message between two peers."""
    assert Sizes().operations_per_message() <= 1.05
    # two slots, the least: each message is answered
    assert Sizes(slots=2).operations_per_message() == 2
