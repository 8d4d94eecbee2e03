#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Holds `uct-tofu perf run` against stock ucx_perftest: the same tests, in turn.

Latencies are means, as ucx_perftest's "overall" is.  On a virtual machine runs of either
tool come in two states, of which the slow one takes two to four times as long, and which
of them a run has changes from one to the next.  So the ratio is that of the lower
quartiles: what both tools show in the fast state.  The medians are printed as well, and
with `stock itself`, the ratio of the quartiles of ucx_perftest's own rounds, say how
often the other state came.

The exit code is 0 when each ratio is within the bound, or the quartiles of both overlap.
"""

from __future__ import annotations

import os
import statistics
import sys

import click

from uct_tofu import perftest
from uct_tofu.perf import runner

KIB, MIB = 1 << 10, 1 << 20
BOUND = 1.2
# layer, transport, test, size, layout
CASES = (
    ("libuct", "utofu", "put_lat", 8, "short"),
    ("libuct", "utofu", "put_bw", 8, "short"),
    ("libuct", "utofu", "put_bw", MIB, "zcopy"),
    ("libuct", "utofu", "get_bw", MIB, "zcopy"),
    ("libuct", "utofu", "am_lat", 8, "short"),
    ("libuct", "utofu", "am_bw", 8, "short"),
    ("libuct", "utofu", "am_bw", 4 * KIB, "bcopy"),
    ("libuct", "utofu", "fadd", 8, "short"),
    ("libuct", "sysv", "fadd", 8, "short"),
    ("libuct", "sysv", "put_lat", 8, "short"),
    ("libuct", "sysv", "am_lat", 8, "short"),
    ("libuct", "posix", "am_lat", 8, "short"),
    ("ucp", "utofu", "tag_lat", 8, None),
    ("ucp", "utofu", "tag_bw", 8, None),
    ("ucp", "utofu", "tag_bw", MIB, None),
    ("ucp", "utofu", "put_lat", 8, None),
    ("ucp", "utofu", "fadd", 8, None),
    ("ucp", "sysv", "tag_lat", 8, None),
    ("ucp", "sysv,cma", "tag_bw", MIB, None),
)


def _stock(case, cpus, seconds):
    layer, transport, test, size, layout = case
    if layer == "ucp" and not test.startswith("tag"):
        test = f"ucp_{test}"
    row = perftest.run_calibrated(
        test, transport, size, seconds=seconds, layout=layout, cpus=cpus
    )
    return row.latency


def _ours(case, cpus, seconds):
    layer, transport, test, size, layout = case
    (record,) = runner.run(
        test,
        layer=layer,
        transport=transport,
        sizes=(size,),
        repeats=1,
        seconds=seconds,
        layout=layout,
        cpus=cpus,
    )
    return 1 / record["rate"] if test.endswith("_bw") else record["latency"]["mean"]


def _text(seconds):
    return f"{seconds * 1e9:.1f} ns" if seconds < 1e-6 else f"{seconds * 1e6:.2f} us"


@click.command(help="Hold `uct-tofu perf run` against stock ucx_perftest.")
@click.option("--rounds", type=click.IntRange(3), default=7, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.01), default=0.2, show_default=True)
@click.option("--only", metavar="TEXT", default="", help="Lines with TEXT in them.")
def main(rounds, seconds, only):
    """The program: measures in turn, prints the table."""
    os.environ.setdefault("UTOFU_EMU_JOB", f"stock-{os.getpid()}")
    cpus = perftest.choose_cpus()
    if cpus[0] == cpus[1]:
        sys.exit("only one CPU may be used: two cores are needed")
    names = {
        f"{layer} {transport} {test} {size} B": (layer, transport, test, size, layout)
        for layer, transport, test, size, layout in CASES
    }
    cases = {name: case for name, case in names.items() if only in name}
    if not cases:
        raise click.UsageError(f"--only: no line has {only!r} in it")
    sides = {"ours": _ours, "stock": _stock}
    taken = {name: {side: [] for side in sides} for name in cases}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for name, case in cases.items():
            order = list(sides) if number % 2 == 0 else list(reversed(sides))
            for side in order:
                taken[name][side].append(sides[side](case, cpus, seconds))
    agreed = True
    line = "{:<32}{:>10} {:>9} {:>6}   {:>9} {:>9} {:>13}  {}"
    print(line.format("lower quartile and median of", "perf run", "stock", "ratio",
                      "perf run", "stock", "stock itself", ""))  # fmt: skip
    for name, values in taken.items():
        quartiles = {s: statistics.quantiles(values[s], n=4) for s in sides}
        low, middle = ([quartiles[s][i] for s in sides] for i in range(2))
        ratio = low[0] / low[1]
        overlap = max(low) <= min(quartiles[s][2] for s in sides)
        holds = max(ratio, 1 / ratio) <= BOUND or overlap
        agreed = agreed and holds
        print(
            line.format(
                name,
                *map(_text, low),
                f"{ratio:.2f}",
                *map(_text, middle),
                f"{quartiles['stock'][2] / quartiles['stock'][0]:.2f}",
                "agree" if holds else "DO NOT AGREE",
            )
        )
    sys.exit(0 if agreed else 1)


if __name__ == "__main__":
    main()
