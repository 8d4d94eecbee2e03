# SPDX-License-Identifier: BSD-3-Clause
"""Active messages at scale and under faults.

Nothing here judges by the clock: numbers of operations and instructions are exact,
and limits of time are those after which something hangs.
"""

import os
import re

import pytest

LEAST_MRQ = "2Ki"


def run(processes, job, program, case, timeout=100, **settings):
    """Run a case of a program; returns what it printed."""
    environment = dict(os.environ, UTOFU_EMU_JOB=job, UCT_TOFU_BACKEND="emulator")
    environment.update({name: str(value) for name, value in settings.items()})
    code, output = processes.run([program, case], timeout=timeout, env=environment)
    assert code == 0, output[-6000:]
    assert f"{case}: ok" in output
    assert "ERROR: " not in output, output[-6000:]  # of a sanitizer
    print(output)
    return output


@pytest.mark.timeout(250)
@pytest.mark.parametrize("case", ["flood", "flood_threads"])
def test_flood(processes, job, plain, case):
    """64 senders x 10,000 messages, the least MRQ, a receiver that sleeps."""
    output = run(processes, job, plain / "scale", case, timeout=240,
                 AM_MESSAGES=10000, UTOFU_NUM_MRQ_ENTRIES=LEAST_MRQ)  # fmt: skip
    assert int(re.search(r"slept (\d+) times", output).group(1)) > 10


@pytest.mark.timeout(150)
@pytest.mark.parametrize("case", ["ops", "window"])
def test_cost(processes, job, plain, case):
    """At most 1.05 operations a message, and no round trip in front of any."""
    run(processes, job, plain / "scale", case)


def instructions(processes, job, plain, peers):
    """Of calls of progress that find nothing: the core's, and with ticks."""
    output = run(processes, job, plain / "idle", "idle", timeout=200,
                 AM_PEERS=peers, AM_BACK=min(peers, 50))  # fmt: skip
    if "no tracing" in output:
        pytest.skip("processes can't be traced here")
    found = re.search(r"core (\d+), ticks (\d+), whole (\d+)", output)
    return [int(number) for number in found.groups()]


@pytest.mark.timeout(500)
def test_idle_peers(processes, job, plain):
    """What the core does when nothing is to do does not grow with idle peers.

    AM_IDLE_PEERS=10000 takes two minutes: 24 processes, 10,000 ifaces.
    """
    number = int(os.environ.get("AM_IDLE_PEERS", "400"))
    for attempt in "abc":  # something may come late, of what was sent before
        one = instructions(processes, f"{job}-1{attempt}", plain, 1)
        many = instructions(processes, f"{job}-n{attempt}", plain, number)
        more = [abs(of_many - of_one) / of_one for of_one, of_many in zip(one, many, strict=True)]
        # the emulator too: it looks at the lane that spoke last
        if more[0] <= 0.01 and more[1] <= 0.01 and more[2] <= 0.05:
            return
    pytest.fail(f"{one} with one peer, {many} with {number}")


@pytest.mark.timeout(150)
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("step", [*range(1, 12), 16, 19, 20])
def test_killed_sender(processes, job, plain, step, after):
    """Killed before or after a step: the others go on, all comes back."""
    output = run(processes, job, plain / "killed", "killed", timeout=110,
                 AM_KILL_AT=step, AM_KILL_AFTER=after)  # fmt: skip
    assert "did all of its" not in output, "there is no such step"


@pytest.mark.timeout(80)
def test_silent_sender(processes, job, plain):
    """A sender dies that nobody sends to, nor wants slots of: all comes back."""
    run(processes, job, plain / "killed", "silent")


@pytest.mark.timeout(350)
@pytest.mark.parametrize(("case", "runs"), [("exhaust2", 600), ("exhaust4", 400)])
def test_exhaustion(processes, job, plain, case, runs):
    """1,000 runs of handlers that reply when no credit is left: no deadlock."""
    run(processes, job, plain / "exhaust", case, timeout=320, AM_RUNS=runs)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("case", ["forged", "addresses", "oversized", "successor"])
def test_bad_input(processes, job, plain, case):
    """Dropped or refused, counted, logged once; real messages go on."""
    run(processes, job, plain / "bad", case)


@pytest.mark.timeout(250)
@pytest.mark.parametrize(
    "case", ["forged", "fuzz", "addresses", "oversized", "successor"]
)
def test_bad_input_sanitized(processes, job, sanitized, case):
    """The same, and forged puts at random, with sanitizers."""
    run(processes, job, sanitized / "bad", case, AM_SECONDS=10)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("step", [2, 3, 5])
def test_killed_sender_sanitized(processes, job, sanitized, step):
    """Nothing is used after it was taken back."""
    run(processes, job, sanitized / "killed", "killed", timeout=110,
        AM_KILL_AT=step, AM_KILL_AFTER=1)  # fmt: skip
