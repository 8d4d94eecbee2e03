# SPDX-License-Identifier: BSD-3-Clause
"""The fixed set of the guard: what is measured, and against which peer.

A peer is what does the same on the same two cores in the same minute: UCX's sysv
(messages, puts, atomics) and cma (bulk), or the layer below.  Lines may be added.  A
line that is changed gets another name, since its history would mean nothing.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from uct_tofu.perf import runner

KIB, MIB = 1 << 10, 1 << 20

# Of the kernels: raised when what they do in a test changes, so that ratios from before
# are another thing.  2: the target of a stream of puts or atomics reads what is written,
# and the clock is read after each operation, as in ucx_perftest.
METHOD = 2


@dataclass(frozen=True)
class Side:
    """One measurement; layout None is the one that fits the size."""

    layer: str
    transport: str = "utofu"
    layout: str | None = None


@dataclass(frozen=True)
class Line:
    """A test, its two sides and the size of a message in bytes."""

    name: str
    test: str
    size: int
    ours: Side
    peer: Side


RAW, CORE = Side("utofu"), Side("uct")
UCT, UCP = Side("libuct"), Side("ucp")
SYSV, CMA = Side("libuct", "sysv"), Side("libuct", "cma")
UCP_SYSV, UCP_CMA = Side("ucp", "sysv"), Side("ucp", "sysv,cma")

LINES = (
    Line("raw put_lat 8 B", "put_lat", 8, RAW, SYSV),
    Line("raw put_bw 1 MiB", "put_bw", MIB, RAW, SYSV),
    Line("core put_lat 8 B", "put_lat", 8, CORE, RAW),
    Line("core am_lat 8 B", "am_lat", 8, CORE, SYSV),
    Line("core am_bw 8 B", "am_bw", 8, CORE, SYSV),
    Line("uct put_lat 8 B", "put_lat", 8, UCT, SYSV),
    Line("uct put_bw 8 B", "put_bw", 8, UCT, SYSV),
    Line("uct put_bw 1 MiB", "put_bw", MIB, UCT, SYSV),
    Line("uct get_bw 1 MiB", "get_bw", MIB, UCT, CMA),
    Line("uct am_lat 8 B", "am_lat", 8, UCT, SYSV),
    Line("uct am_bw 8 B", "am_bw", 8, UCT, SYSV),
    Line("uct am_bw 4 KiB", "am_bw", 4 * KIB, UCT, SYSV),
    Line("uct fadd", "fadd", 8, UCT, SYSV),
    Line("ucp tag_lat 8 B", "tag_lat", 8, UCP, UCP_SYSV),
    Line("ucp tag_bw 8 B", "tag_bw", 8, UCP, UCP_SYSV),
    Line("ucp tag_bw 1 MiB", "tag_bw", MIB, UCP, UCP_CMA),
)


def seconds_of(record):
    """What a record says, as seconds: of an operation, or of a message in a stream."""
    if record["test"].endswith("_bw"):
        return 1 / record["rate"]
    return record["latency"]["p50"]


def once(line, side, seconds):
    """Measure one side; blocks for little more than so many seconds.

    Raises what runner.run raises.
    """
    (record,) = runner.run(
        line.test,
        layer=side.layer,
        transport=side.transport,
        sizes=(line.size,),
        repeats=1,
        seconds=seconds,
        layout=side.layout,
    )
    return seconds_of(record)


def measure(lines, rounds, seconds, *, progress, measure_once=once):
    """Ratios of each line, of every round: our time by the peer's.

    Returns (name -> ratios, name -> why it could not be measured).  The sides take
    turns, in each round in the other order: who goes second has the warmer machine.
    """
    ratios = {line.name: [] for line in lines}
    failed = {}
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for line in lines:
            if line.name in failed:
                continue
            sides = ["ours", "peer"] if number % 2 == 0 else ["peer", "ours"]
            try:
                times = {
                    s: measure_once(line, getattr(line, s), seconds) for s in sides
                }
            except (runner.KernelError, ValueError, ImportError, OSError) as error:
                failed[line.name] = str(error)
                continue
            ratios[line.name].append(times["ours"] / times["peer"])
    good = {name: values for name, values in ratios.items() if name not in failed}
    return good, failed


def text(values):
    """The median of ratios and their range, for people."""
    middle = statistics.median(values)
    return f"{middle:.3f} ({min(values):.3f} to {max(values):.3f})"
