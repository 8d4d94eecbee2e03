# SPDX-License-Identifier: BSD-3-Clause
"""``uct-tofu run``: a program in several processes of this host."""

from __future__ import annotations

import os
import re
import shutil
import sys

import click

from uct_tofu.cli_types import Number

MAX_RANKS = 1024  # the emulator's limit for a job
NODES_PER_UNIT = 12


def _shape(context, parameter, text):
    """Up to three numbers, as 2x1x1 or 2,1,1; the missing ones are 1."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in re.split("[x,]", text.lower())]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or not all(1 <= n <= 255 for n in numbers):
        raise click.BadParameter(
            f"{text!r} is not one to three numbers from 1 to 255, such as 2x1x1"
        )
    return tuple(numbers + [1] * (3 - len(numbers)))


def _network(shape, extra):
    """The units of the network and what says so; None where it has its usual size."""
    text = extra.get("UTOFU_EMU_SHAPE")
    if text is None and shape is not None:
        return shape, "--shape"
    if text is None:
        text = os.environ.get("UTOFU_EMU_SHAPE", "")
    if re.fullmatch(r"\d+,\d+,\d+", text, re.ASCII):
        numbers = tuple(map(int, text.split(",")))
        if all(1 <= n <= 255 for n in numbers):
            return numbers, f"UTOFU_EMU_SHAPE={text}"
    return None  # the emulator says what it can't use


def _variables(context, parameter, texts):
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or "\0" in text:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        values[name] = value
    return values


def _command(module, arguments):
    """The words to execute: for a module, a Python file, or any program."""
    if not arguments:
        raise click.UsageError("no program: give a script, -m MODULE or an executable")
    if module:
        return [sys.executable, "-m", *arguments]
    first = arguments[0]
    if first.endswith((".py", ".pyc", ".pyz")):
        if not os.path.isfile(first):
            raise click.UsageError(f"no such file: {first}")
        return [sys.executable, *arguments]
    found = shutil.which(first)
    if found is None:
        there = os.path.exists(first)
        reason = "not executable" if there else "no such program"
        if os.path.isfile(first) and os.access(first, os.X_OK):  # without a folder
            there = False
            reason = f"no such program in PATH; that of this folder is ./{first}"
        click.echo(f"uct-tofu run: {first}: {reason}", err=True)
        sys.exit(126 if there else 127)
    return [found, *arguments[1:]]


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@click.option(
    "-n", "size", type=click.IntRange(1, MAX_RANKS), default=1, show_default=True,
    help="Number of processes (ranks).",
)  # fmt: skip
@click.option(
    "--ppn", type=click.IntRange(1, MAX_RANKS), default=1, show_default=True,
    help="Ranks on each emulated node.",
)  # fmt: skip
@click.option(
    "--shape", callback=_shape, metavar="XxYxZ",
    help="Size of the emulated network in units of 2 x 3 x 2 nodes: one to three "
    "numbers, also with commas; those that are missing are 1.",
)  # fmt: skip
@click.option("--pin/--no-pin", default=True, help="One CPU for each rank (default).")
@click.option("--tls", help="Value for UCX_TLS, e.g. 'utofu,tcp'.")
@click.option(
    "--timeout", type=Number(min=0, min_open=True), metavar="SECONDS",
    help="End the job after so long, with exit code 124.",
)  # fmt: skip
@click.option(
    "--grace", type=Number(min=0), default=5.0, show_default=True,
    metavar="SECONDS", help="Between asking ranks to end and killing them.",
)  # fmt: skip
@click.option(
    "--env", "extra", multiple=True, callback=_variables, metavar="NAME=VALUE",
    help="A variable for the ranks; repeatable.",
)  # fmt: skip
@click.option(
    "--prefix/--no-prefix", default=True,
    help="'[RANK] ' before each line of output (default).",
)  # fmt: skip
@click.option("-m", "module", is_flag=True, help="A Python module, as with python -m.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(size, ppn, shape, pin, tls, timeout, grace, extra, prefix, module, arguments):
    """Run a program in N processes on this host, and end all when one fails.

    The program is a Python script, a module (-m), or any executable.  Each rank
    is on an emulated node of its own (see --ppn), in an emulator job of their
    own, with the environment in which UCX finds the transport; Python programs
    learn the rest from uct_tofu.world().

    UTOFU_EMU_COORDS, UTOFU_EMU_NODE, UTOFU_EMU_PPN and UTOFU_EMU_JOB of the
    environment do not count (give them by --env); UTOFU_EMU_SHAPE does, without
    --shape.

    The exit code is that of the first rank that failed, 128 + N when signal N
    killed it, 124 after the timeout, 127 when there is no such program (2: no
    such Python file), 141 when nobody reads the output, 1 when it can't be written.
    """
    from uct_tofu.launcher import Launcher

    command = _command(module, list(arguments))
    nodes = -(-size // ppn)
    network = _network(shape, extra)
    if network is not None and not {"UTOFU_EMU_COORDS", "UTOFU_EMU_NODE"} & extra.keys():
        (x, y, z), named = network
        room = NODES_PER_UNIT * x * y * z
        if nodes > room:
            raise click.UsageError(
                f"{size} ranks, {ppn} a node, need {nodes} nodes; {named} has {room}"
            )
    launcher = Launcher(
        command,
        size,
        ppn=ppn,
        pin=pin,
        prefix=prefix,
        timeout=timeout,
        grace=grace,
        tls=tls,
        shape=shape,
        extra=extra,
    )
    try:
        code = launcher.run()
    except OSError as error:
        click.echo(f"uct-tofu run: {command[0]}: {error}", err=True)
        code = 126
    sys.exit(code)
