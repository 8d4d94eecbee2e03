#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the speed bounds of the transport against its peers.

Every bound is a ratio to something that runs in the same minutes on the same
two cores: utofu and its peer take turns, a ratio is formed in each round, and
the median of the rounds is held against the bound.  Stock ucx_perftest does the
measuring where it can; the kernels in kernels/ do it for memory from malloc and
for utofu_put without UCX.

The exit code is 0 when all bounds hold, 1 when one does not.
"""

from __future__ import annotations

import sys

from table_common import Case, run_table

from uct_tofu.perf.units import size_text

PINGPONG_SIZES = tuple(8 << (2 * i) for i in range(10)) + (4 << 20,)


def make_cases(bench):
    tool, kernel = bench.tool, bench.kernel
    cases = [
        Case(
            "UCT put_lat 8 B short",
            "s",
            1.3,
            tool("put_lat", "utofu", 8, "short", "latency"),
            {"sysv": tool("put_lat", "sysv", 8, "short", "latency")},
        ),
        Case(
            "UCT put_bw 8 B short, per op",
            "s",
            1.5,
            tool("put_bw", "utofu", 8, "short", "latency"),
            {"sysv": tool("put_bw", "sysv", 8, "short", "latency")},
        ),
    ]
    for size in (64 << 10, 1 << 20):
        cases.append(
            Case(
                f"UCT put_bw {size_text(size)} zcopy",
                "B/s",
                0.9,
                tool("put_bw", "utofu", size, "zcopy", "bandwidth"),
                {
                    f"sysv {layout}": tool("put_bw", "sysv", size, layout, "bandwidth")
                    for layout in ("short", "bcopy")
                },
            )
        )
    cases += [
        Case(
            "UCT am_lat 8 B short",
            "s",
            1.5,
            tool("am_lat", "utofu", 8, "short", "latency"),
            {"sysv": tool("am_lat", "sysv", 8, "short", "latency")},
        ),
        Case(
            "UCT fadd 8 B",
            "s",
            2.0,
            tool("fadd", "utofu", 8, "short", "latency"),
            {"sysv": tool("fadd", "sysv", 8, "short", "latency")},
        ),
    ]
    # the kernel looks up pages one by one: it matters how many there are
    for where, memory in (("1 page", "malloc-page"), ("2 pages", "malloc")):
        cases.append(
            Case(
                f"malloc memory: put latency 4 KiB, {where}",
                "s",
                0.8,
                kernel("uct_put", memory, 4096, "lat", "utofu", "tofu0"),
                {"cma": kernel("uct_put", memory, 4096, "lat", "cma", "memory")},
            )
        )
    for size in (64 << 10, 1 << 20):
        cases.append(
            Case(
                f"malloc memory: put bandwidth {size_text(size)}",
                "B/s",
                0.95,
                kernel("uct_put", "malloc", size, "bw", "utofu", "tofu0", rate=True),
                {
                    "cma": kernel(
                        "uct_put", "malloc", size, "bw", "cma", "memory", rate=True
                    )
                },
            )
        )
    for size in PINGPONG_SIZES:
        cases.append(
            Case(
                f"UCT put_zcopy ping-pong {size_text(size)}",
                "s",
                1.10,
                kernel("uct_put", "memfd", size, "lat", "utofu", "tofu0"),
                {"utofu_put": kernel("utofu_pingpong", "memfd", size)},
            )
        )
    return cases


def main():
    return run_table(
        "speed_table", __doc__, ("utofu_pingpong", "uct_put"), make_cases
    )


if __name__ == "__main__":
    sys.exit(main())
