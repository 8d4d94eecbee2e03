# SPDX-License-Identifier: BSD-3-Clause
"""``uct-tofu perf scale``."""

from __future__ import annotations

import os
from pathlib import Path

import click
from rich.console import Console

from uct_tofu.cli_types import Number, Output, naming, reason_of
from uct_tofu.perf.scale import WORKLOADS, Case, run_workload
from uct_tofu.perf.scale.network import FULL_NODES
from uct_tofu.perf.scale.workloads import EXACT, EXACT_LEAST
from uct_tofu.perf.tofud_model import PROFILES

NODES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536, FULL_NODES)
COLUMNS = 110  # of the tables where the output is no terminal


def _nodes(context, parameter, text):
    found = []
    for part in text.split(","):
        try:
            found.append(int(part))
        except ValueError:
            raise click.BadParameter(f"{part!r} is not a number of nodes") from None
        if not 2 <= found[-1] <= FULL_NODES:
            raise click.BadParameter(f"{found[-1]} is not 2 to {FULL_NODES} nodes")
    return sorted(set(found))


@click.command("scale")
@click.option(
    "--workload", "workloads", multiple=True, type=click.Choice(list(WORKLOADS)),
    help="Only these; by default all.",
)
@click.option(
    "--nodes", default=",".join(map(str, NODES)), show_default=True, callback=_nodes,
    help="Numbers of nodes, 2 to 158976.",
)
@click.option(
    "--messages", default=16, show_default=True, type=click.IntRange(1, 100_000),
    help="From each sender to each of its receivers.",
)
@click.option(
    "--size", default=32, show_default=True, type=click.IntRange(8, 8256),
    help="Bytes of a message as it travels.",
)
@click.option(
    "--handler", default=0.0, show_default=True, type=Number(0, 1e6),
    metavar="NS", help="What the handler of a message takes, nanoseconds.",
)
@click.option(
    "--profile", default="tofud", show_default=True, type=click.Choice(list(PROFILES)),
    help="Of the timing model.",
)
@click.option(
    "--processes-per-node", "processes", default=1, show_default=True,
    type=click.IntRange(1, 54),
    help="Counts memory, VCQs and CQs for so many; the simulation has one.",
)
@click.option(
    "--exact", default=EXACT, show_default=True,
    type=click.IntRange(EXACT_LEAST, FULL_NODES),
    help="Up to so many nodes all is simulated; above, counts are continued.",
)
@click.option(
    "-o", "--output", type=Output(), help="Write records there."
)  # fmt: skip
@click.option("--plots", type=click.Path(file_okay=False), help="Write plots there.")
@click.option(
    "--format", "form", default="png", show_default=True,
    type=click.Choice(["png", "svg"]), help="Of the plots.",
)  # fmt: skip
def scale(
    workloads, nodes, messages, size, handler, profile, processes, exact, output,
    plots, form,
):  # fmt: skip
    """Simulate active messages among up to 158,976 nodes, by the model's clock.

    The checked model of the protocol runs in the time of the Tofu-D model
    (docs/scale.md).  Numbers are those of one receiving process; a line that begins
    with ~ was continued from two simulated sizes.
    """
    from uct_tofu.perf.scale import report

    console = Console(width=None if os.isatty(1) else COLUMNS, highlight=False)
    records: list = []
    for name in workloads or WORKLOADS:
        cache: dict = {}
        found = []
        for number in nodes:
            case = Case(name, number, messages, size, profile, handler)
            outcome = run_workload(case, exact=exact, cache=cache)
            found.append(report.record(outcome, processes))
        console.print(report.table(name, found))
        records += found
    counts = records[0]["counters"]
    console.print(
        f"Of a node's 432 VCQs {counts['vcqs']} are taken ({counts['vcqs_most']} when "
        f"large blocks use all TNIs), of its 54 CQs {counts['cqs']} "
        f"({counts['cqs_most']}).  Bound of the MRQ: {counts['mrq_bound']} of "
        f"{counts['mrq_entries']} entries."
    )
    try:
        if output:
            with naming(output):
                Path(output).write_text(report.dump(records), encoding="utf-8")
        if plots:
            from uct_tofu.perf.scale.plots import draw

            with naming(plots):
                paths = draw(records, plots, form)
            for path in paths:
                console.print(f"wrote {path.name}")
    except OSError as error:
        raise click.ClickException(reason_of(error)) from None
    except ImportError as error:
        raise click.ClickException(f"plots need matplotlib: {error}") from None


def register(group) -> None:
    """Add the command to a click group.

    Source: uct_tofu/perf/cli.py.
    """
    group.add_command(scale)
