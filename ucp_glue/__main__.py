# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp_glue [options] -- program args``: a program on UCX over utofu."""

from __future__ import annotations

import os

import click

from ucp_glue import _run
from ucp_glue.plugin import SOCKADDR_TLS, SUGGESTED_TLS


@click.command(
    context_settings={
        "help_option_names": ["-h", "--help"],
        # What follows the program's name belongs to the program.
        "allow_interspersed_args": False,
        "ignore_unknown_options": True,
    }
)
@click.option(
    "--tls",
    default=None,
    metavar="LIST",
    help="UCX_TLS for the program, in place of the environment's. "
    f"[default: the environment's, else {SUGGESTED_TLS}]",
)
@click.option(
    "--sockaddr",
    is_flag=True,
    help="For programs that connect by address and port (ucxx, ucx-py): the same "
    f"as --tls {SOCKADDR_TLS}.",
)
@click.option("--no-verify", is_flag=True, help="Don't look whether UCX uses utofu.")
@click.option("-v", "--verbose", is_flag=True, help="Print what UCX chose, on stderr.")
@click.argument("words", nargs=-1, required=True, metavar="[--] PROGRAM [ARGS]...")
def main(tls, sockaddr, no_verify, verbose, words):
    """Run PROGRAM with UCX and its uTofu transport.

    PROGRAM is a Python script (name.py), "-m MODULE" or "-c CODE" for this Python,
    or any executable. It gets UCX_PLUGIN_PATH, LD_LIBRARY_PATH and UCX_TLS. When
    UCX would not use utofu, this says why and ends with 1; else PROGRAM takes
    this process' place, so exit code and signals are its own.
    """
    if sockaddr and tls is not None:
        raise click.UsageError("--sockaddr and --tls exclude each other")
    command = _run.argv(words)
    if sockaddr:
        tls = SOCKADDR_TLS
    elif tls is None and not os.environ.get("UCX_TLS"):
        tls = SUGGESTED_TLS
    env = _run.prepare(tls, check=not no_verify, say=verbose)
    _run.replace(command, env)


if __name__ == "__main__":
    main(prog_name="python -m ucp_glue")
