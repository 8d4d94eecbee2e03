#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures how puts spread over TNIs, in the timed mode.

One sender on six TNIs puts 1 MiB messages to six neighbour nodes, each over a
link of its own, against six times one TNI to one neighbour; and six TNIs to one
neighbour against one TNI to it: one link is what both have.  Two
cores can't copy six times 6.35 GB/s, so all bandwidths of the emulator are divided
by SCALE, by a profile of its own: ratios are not touched by that.

Which endpoint uses which TNI is the choice of the iface (docs/tnis.md).
The exit code is 0 when all bounds hold, 1 when one does not.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from table_common import Case, run_table

from uct_tofu.perf import tofud_model as model

SCALE = 32
MIB = 1 << 20


def write_profile(path):
    """A profile with bandwidths divided by SCALE; the rest is that of tofud."""
    byte = model.Parameters().per_byte * SCALE
    path.write_text(f"# tofud with bandwidths / {SCALE}\nbyte = {byte:.6f}\n")


def make_cases(bench):
    def rate(tnis, neighbours):
        return bench.kernel(
            "core_neighbours", "none", MIB, "stream", str(tnis), str(neighbours),
            rate=True,
        )  # fmt: skip

    def put_time(tnis, neighbours):
        once = rate(tnis, neighbours)
        return lambda: MIB / once()

    one = rate(1, 1)
    return [
        Case(
            "6 TNIs, 6 neighbours, 1 MiB",
            "B/s",
            0.9,
            rate(6, 6),
            {"6x one TNI": lambda: 6 * one()},
        ),
        # two lines: a link's rate is neither missed nor exceeded
        Case(
            "1 neighbour: 6 TNIs to 1, time",
            "s",
            1.05,
            put_time(6, 1),
            {"1 TNI": put_time(1, 1)},
        ),
        Case(
            "1 neighbour: 1 TNI to 6, time",
            "s",
            1.05,
            put_time(1, 1),
            {"6 TNIs": put_time(6, 1)},
        ),
    ]


def main():
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "slow.profile"
        write_profile(profile)
        os.environ["UTOFU_EMU_TIMING"] = str(profile)
        return run_table("tni_table", __doc__, ("core_neighbours",), make_cases)


if __name__ == "__main__":
    sys.exit(main())
