#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the speed bounds of utofu.h alone against UCX's shared-memory transports.

"mapped" is a shared memfd mapping, which peers can map; the rest is any other
memory.  The kernel kernels/raw_utofu.c does what ucx_perftest does: the same
ping-pong with a look at the last byte, the same stream of operations.  Peers are
stock ucx_perftest and, for memory from malloc, kernels/uct_put.c on cma with the
same memory; the best peer counts.  The time of an empty poll is held against a
number of nanoseconds.  "kept private": with UTOFU_EMU_REHOME=0, the way of memory that the
emulator may not make a mapping of; "lines unordered": and with UTOFU_EMU_LINES=unordered,
because cma promises no order of cache lines either.  "kernel alone" has no bound: it is
pwrite to /proc/PID/mem, which is how small puts reach such memory, against
process_vm_writev, which is cma.

The exit code is 0 when all bounds hold, 1 when one does not.
"""

from __future__ import annotations

import sys

from table_common import Case, run_table

from uct_tofu.perf.units import size_text

POLL_LIMIT = 10e-9


def how_to_put(size):
    """The function of utofu.h that a program would take for this size."""
    return "piggyback8" if size <= 8 else "piggyback" if size <= 32 else "put"


def mapped_latency(bench):
    """Put ping-pong into memory that the peer maps."""
    cases = []
    variants = [(size, how_to_put(size)) for size in (8, 32, 64, 512, 4096)]
    variants += [(8, "put"), (64 << 10, "put"), (1 << 20, "put")]
    for size, how in sorted(variants):
        layouts = ("short",) if size <= 32 else ("short", "bcopy")
        cases.append(
            Case(
                f"mapped: lat {size_text(size)} {how}",
                "s",
                1.3 if size <= 4096 else 1.1,
                bench.kernel("raw_utofu", "memfd", size, "lat", how, "strong"),
                {
                    f"sysv {layout}": bench.tool(
                        "put_lat", "sysv", size, layout, "latency"
                    )
                    for layout in layouts
                },
            )
        )
    return cases


def layout_of_am(size):
    """The layout that sysv has for an active message of this size."""
    return "short" if size <= 64 else "bcopy"


def notice_latency(bench):
    """Put ping-pong that the target notices by its MRQ."""
    variants = ((8, "piggyback8"), (8, "put"), (32, "piggyback"), (4096, "put"))
    return [
        Case(
            f"mapped: lat+notice {size_text(size)} {how}",
            "s",
            1.0,
            bench.kernel("raw_utofu", "memfd", size, "notice", how),
            {
                "sysv am": bench.tool(
                    "am_lat", "sysv", size, layout_of_am(size), "latency"
                )
            },
        )
        for size, how in variants
    ]


def period(rate):
    """Seconds each, from operations per second: ucx_perftest rounds times to 1 ns."""
    return lambda: 1 / rate()


def rates(bench):
    """Time of one 8-byte put in a stream of them."""
    cases = []
    for test, text, bound, peer in (
        ("rate", "rate", 0.7, "put_bw"),
        ("notice_rate", "rate+notice", 0.6, "am_bw"),
    ):
        for how in ("piggyback8", "put"):
            cases.append(
                Case(
                    f"mapped: {text} 8 B {how}",
                    "s",
                    bound,
                    bench.kernel("raw_utofu", "memfd", 8, test, how),
                    {
                        f"sysv {peer}": period(
                            bench.tool(peer, "sysv", 8, "short", "rate")
                        )
                    },
                )
            )
    return cases


def malloc_latency(bench):
    """Put ping-pong into memory that peers can't map by themselves."""

    def case(size, how, memory, bound, order=(), stock=False, kept=False, lines=True):
        kind, _, how_it_is = memory.partition("-")
        where = "2 pages" if kind == "malloc" and how_it_is != "page" else "1 page"
        text = {"shared": "shared anonymous"}.get(kind, kind)
        text += (" beside a thread" if how_it_is == "thread" else "")
        text += ", kept private" if kept else ""
        text += "" if lines else ", lines unordered"
        text += f": lat {size_text(size)} {how}"
        if size == 4096:
            text += " strong" if order else f", {where}"
        peers = {"cma": bench.kernel("uct_put", memory, size, "lat", "cma", "memory")}
        if stock:
            peers["cma stock"] = bench.tool("put_lat", "cma", size, "zcopy", "latency")
        variables = (("UTOFU_EMU_REHOME", "0"),) if kept else ()
        variables += () if lines else (("UTOFU_EMU_LINES", "unordered"),)
        ours = bench.kernel(
            "raw_utofu", memory, size, "lat", how, *order, variables=variables
        )
        return Case(text, "s", bound, ours, peers)

    big = (64 << 10, 256 << 10, 1 << 20)

    def all_sizes(**what):
        return [
            *(
                case(size, how_to_put(size), "malloc-page", 0.7, stock=True, **what)
                for size in (8, 64, 512, 4096)
            ),
            case(8, "put", "malloc-page", 0.7, stock=True, **what),
            case(4096, "put", "malloc", 0.7, **what),
            # cma gives no order: this line pays for what its peer does not have
            case(4096, "put", "malloc-page", 1.3, ("strong",), stock=True, **what),
            *(case(size, "put", "malloc", 1.0, **what) for size in big),
        ]

    return [
        *all_sizes(),
        *(case(size, how_to_put(size), "stack", 0.7) for size in (8, 64, 512, 4096)),
        *(case(size, "put", "stack", 1.0) for size in big),
        # a block among others, in a process that has another thread
        *(case(size, how_to_put(size), "malloc-thread", 0.7) for size in (8, 64, 512, 4096)),
        *(case(size, "put", "malloc-thread", 1.0) for size in big),
        *(case(size, how_to_put(size), "stack-thread", 0.7) for size in (8, 4096)),
        # of a user who may not open the kernel's file of it
        *(case(size, how_to_put(size), "shared", 0.7) for size in (8, 64, 512, 4096)),
        *(case(size, "put", "shared", 1.0) for size in big),
        # where the emulator may not move it: only the kernel can reach it
        *all_sizes(kept=True),
        # up to 64 B it is the same
        case(512, "put", "malloc-page", 0.7, stock=True, kept=True, lines=False),
        case(4096, "put", "malloc-page", 0.7, stock=True, kept=True, lines=False),
        case(4096, "put", "malloc", 0.7, kept=True, lines=False),
        *(case(size, "put", "malloc", 1.0, kept=True, lines=False) for size in big),
    ]


def kernel_alone(bench):
    """The two system calls that the lines before this come down to."""
    return [
        Case(
            f"kernel alone: {size_text(size)}, {where}",
            "s",
            None,
            bench.kernel("kernel_put", memory, size, "lat", "pwrite"),
            {"cma": bench.kernel("kernel_put", memory, size, "lat", "cma")},
        )
        for size, memory, where in (
            (8, "malloc-page", "1 page"),
            (4096, "malloc-page", "1 page"),
            (4096, "malloc", "2 pages"),
        )
    ]


def polls(bench):
    """An empty poll, against a constant."""
    return [
        Case(
            f"empty poll of the {queue.upper()}"
            + (f", {senders} sender{'s' * (senders > 1)} known" if senders else ""),
            "s",
            1.0,
            bench.kernel("raw_utofu", "memfd", 8, f"poll_{queue}", str(senders)),
            {"limit": lambda: POLL_LIMIT},
        )
        for queue, senders in (("tcq", 0), ("mrq", 0), ("mrq", 1), ("mrq", 8))
    ]


def make_cases(bench):
    parts = (mapped_latency, notice_latency, rates, malloc_latency, kernel_alone, polls)
    return [case for part in parts for case in part(bench)]


def main():
    return run_table("raw_table", __doc__, ("raw_utofu", "uct_put", "kernel_put"), make_cases)


if __name__ == "__main__":
    sys.exit(main())
