#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the speed bounds of active messages, of UCP, of idle peers and threads.

UCT and UCP lines are ratios to UCX's shared memory in the same rounds, by stock
ucx_perftest; UCP put and get use kernels/ucp_rma.c, whose memory is from malloc.
The last lines compare the transport with itself: a ping-pong with and without idle
peers (kernels/core_idle.c), two threads and one (kernels/core_threads.c).

The exit code is 0 when all bounds hold, 1 when one does not.
"""

from __future__ import annotations

import sys

from table_common import Case, run_table

from uct_tofu.perf.units import size_text

KERNELS = ("ucp_rma", "core_idle", "core_threads")
IDLE_PEERS = 1000
MIB = 1 << 20
# UCX_TLS of the peer that copies between processes
CMA = "sysv,cma"


def inverse(measurement):
    """Seconds each, from operations per second, and the other way round."""
    return lambda: 1 / measurement()


def uct_lines(bench):
    tool = bench.tool

    def per_message(transport):
        # the rate: ucx_perftest rounds times to 1 ns
        return inverse(tool("am_bw", transport, 8, "short", "rate"))

    big = 8 << 10
    return [
        Case(
            "UCT am_lat 8 B short",
            "s",
            1.0,
            tool("am_lat", "utofu", 8, "short", "latency"),
            {"sysv": tool("am_lat", "sysv", 8, "short", "latency")},
        ),
        Case(
            "UCT am_bw 8 B short, per message",
            "s",
            1.0,
            per_message("utofu"),
            {"sysv": per_message("sysv")},
        ),
        # sysv has no am_zcopy, and its am_short ends far below
        *(
            Case(
                f"UCT am_bw 8 KiB {layout}",
                "B/s",
                0.9,
                tool("am_bw", "utofu", big, layout, "bandwidth"),
                {"sysv bcopy": tool("am_bw", "sysv", big, "bcopy", "bandwidth")},
            )
            for layout in ("bcopy", "zcopy")
        ),
    ]


def ucp_lines(bench):
    tool = bench.tool
    cases = [
        Case(
            "UCP tag_lat 8 B",
            "s",
            1.1,
            tool("tag_lat", "utofu", 8, None, "latency"),
            {"sysv": tool("tag_lat", "sysv", 8, None, "latency")},
        ),
        Case(
            "UCP tag_bw 1 MiB",
            "B/s",
            0.95,
            tool("tag_bw", "utofu", MIB, None, "bandwidth"),
            {CMA: tool("tag_bw", CMA, MIB, None, "bandwidth")},
        ),
    ]
    for test in ("put_lat", "put_bw", "get_lat", "get_bw"):
        is_rate = test.endswith("_bw")
        for size in (4 << 10, 64 << 10, MIB):

            def kernel(tls, test=test, size=size, is_rate=is_rate):
                return bench.kernel("ucp_rma", "malloc", size, test, tls, rate=is_rate)

            cases.append(
                Case(
                    f"UCP malloc memory: {test} {size_text(size)}",
                    "B/s" if is_rate else "s",
                    1.0,
                    kernel("utofu"),
                    {CMA: kernel(CMA)},
                )
            )
    return cases


def idle_line(bench):
    def latency(peers):
        return bench.kernel("core_idle", "none", 16, "lat", str(peers))

    return [
        Case(
            f"am_lat 8 B, {IDLE_PEERS} idle peers",
            "s",
            1.1,
            latency(IDLE_PEERS),
            {"no idle peers": latency(0)},
        )
    ]


def thread_lines(bench):
    def rate(test, size, threads):
        return inverse(
            bench.kernel("core_threads", "none", size, test, str(threads))
        )

    # a message of 8 bytes has its header of 8 bytes before it
    return [
        Case(
            f"2 threads: {name} per second",
            "op/s",
            1.8,
            rate(test, size, 2),
            {"1 thread": rate(test, size, 1)},
        )
        for name, test, size in (
            ("puts of 8 B", "put_rate", 8),
            ("AMs of 8 B", "am_rate", 16),
        )
    ]


def make_cases(bench):
    parts = (uct_lines, ucp_lines, idle_line, thread_lines)
    return [case for part in parts for case in part(bench)]


def main():
    return run_table("am_table", __doc__, KERNELS, make_cases)


if __name__ == "__main__":
    sys.exit(main())
