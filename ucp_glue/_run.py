# SPDX-License-Identifier: BSD-3-Clause
"""What ``python -m ucp_glue`` and the adapters share: start a program over utofu.

The program replaces the process that was asked for it, so its exit code, its
signals and its terminal are its own.
"""

from __future__ import annotations

import os
import shutil
import sys

import click

from ucp_glue.plugin import environment, verify


def argv(words):
    """Command line for what the user named.

    Parameters
    ----------
    words : sequence of str
        ``script.py ...``, ``-m module ...`` and ``-c code ...`` are for this
        Python; anything else is a program of its own.

    Returns
    -------
    list of str

    Raises ``click.UsageError`` when there is no such program.

    Source: python(1).
    """
    first = words[0]
    if first in ("-m", "-c"):
        if len(words) < 2:
            raise click.UsageError(
                f"{first} needs a {'module' if first == '-m' else 'text'}"
            )
        return [sys.executable, *words]
    if first.endswith(".py"):
        if not os.path.isfile(first):
            raise click.UsageError(f"there is no file {first}")
        return [sys.executable, *words]
    program = shutil.which(first)
    if program is None:
        raise click.UsageError(f"there is no program {first}")
    return [program, *words[1:]]


def replace(command, env):
    """Become the program; returns only by exception.

    Raises ``click.ClickException`` when the kernel refuses.

    Source: execve(2).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(command[0], command, env)
    except OSError as error:
        raise click.ClickException(f"{command[0]}: {error.strerror}") from error


def prepare(tls, *, check=True, say=False):
    """Environment for a program, and that the transport works in it.

    Parameters
    ----------
    tls : str or None
        Value for ``UCX_TLS``; None keeps the environment's, or else leaves it out.
    check : bool
        Run ``verify``.
    say : bool
        Print on stderr what was found.

    Returns
    -------
    dict

    Raises ``click.ClickException`` that says why not.  Starts child processes and
    waits for them.

    Source: UCX_TLS; ucx_info.
    """
    env = environment(tls=None)
    if tls is not None:
        env["UCX_TLS"] = tls
    if check:
        found = verify(env, ucp=True)
        if not found:
            raise click.ClickException(
                "UCX does not use the transport utofu:\n  " + "\n  ".join(found.reasons)
            )
        if say:
            click.echo(
                f"ucp_glue: UCX {found.ucx_version}, utofu on "
                f"{', '.join(found.devices)}, UCP chose {', '.join(found.lanes)} "
                f"(UCX_TLS={env.get('UCX_TLS', '')})",
                err=True,
            )
    return env
