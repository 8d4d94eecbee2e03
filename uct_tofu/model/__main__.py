# SPDX-License-Identifier: BSD-3-Clause
"""``python -m uct_tofu.model``: search the small systems and say what was seen."""

from __future__ import annotations

import time

import click

from uct_tofu.model.cases import CASES, FINDS, mutant
from uct_tofu.model.explore import Found, TooLarge, explore
from uct_tofu.model.keep import (
    KEEP_MUTATIONS,
    LARGE_RINGS,
    RINGS,
    explore_ring,
    mutant_ring,
)
from uct_tofu.model.polled import (
    LARGE_LOANS,
    LOANS,
    POLLED_MUTATIONS,
    explore_loan,
    mutant_loan,
)
from uct_tofu.model.sizes import MUTATIONS

PROPERTIES = (
    "no slot is written before its message was consumed, nor under its handler",
    "each message is delivered once, in order per sender; all of a living sender",
    "one notice at most per slot and per entry, errors within their budget",
    "from every state there is a way to the end by the protocol's own steps",
    "what a dead sender held comes back when somebody waits for it",
    "kept messages are not written over, and take nobody his last slot",
    "messages without notice come once, in order with all others, and wake in time",
)


def _run(name: str, system, limit: int, search=explore) -> tuple[str, bool]:
    began = time.monotonic()
    try:
        seen = search(system, limit)
    except Found as found:
        return str(found), True
    except TooLarge as reason:
        return f"{name:16} {reason}: not searched to the end", False
    seconds = time.monotonic() - began
    return (
        f"{name:16} {seen.states:9} states {seen.transitions:9} transitions "
        f"{seen.finals:6} final {seconds:7.1f} s",
        False,
    )


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(CASES)))
@click.option("--large", is_flag=True, help="Those that take minutes, too.")
@click.option("--mutations", is_flag=True, help="Leave out one rule at a time.")
@click.option("--limit", default=5_000_000, show_default=True, help="States.")
def main(names, large, mutations, limit):
    """Search the states of small systems of the active-message protocol.

    Exit status 1 when a property does not hold, or when a mutation is not found.
    """
    failed = False
    if mutations:
        for name, text in MUTATIONS.items():
            report, found = _run(name, mutant(name), limit)
            click.echo(f"{name} ({text}), case {FINDS[name]}:\n{report}\n")
            failed |= not found
        for name, text in KEEP_MUTATIONS.items():
            report, found = _run(name, mutant_ring(name), limit, explore_ring)
            click.echo(f"{name} ({text}), kept messages:\n{report}\n")
            failed |= not found
        for name, text in POLLED_MUTATIONS.items():
            report, found = _run(name, mutant_loan(name), limit, explore_loan)
            click.echo(f"{name} ({text}), messages without notice:\n{report}\n")
            failed |= not found
        raise SystemExit(failed)
    for name, case in CASES.items():
        if name in names or (not names and (large or not case.large)):
            click.echo(f"{name}: {case.about}")
            report, found = _run(name, case.system, limit)
            click.echo(report)
            failed |= found
    rings = {**RINGS, **LARGE_RINGS} if large else RINGS
    for name, ring in {} if names else rings.items():
        click.echo(f"{name}: {ring.count} large slots, messages are kept")
        report, found = _run(name, ring, limit, explore_ring)
        click.echo(report)
        failed |= found
    loans = {**LOANS, **LARGE_LOANS} if large else LOANS
    for name, loan in {} if names else loans.items():
        click.echo(f"{name}: {loan.count} small slots, messages without notice")
        report, found = _run(name, loan, limit, explore_loan)
        click.echo(report)
        failed |= found
    if not failed:
        click.echo("These hold in every state:")
        for text in PROPERTIES:
            click.echo(f"  {text}")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
