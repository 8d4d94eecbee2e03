# SPDX-License-Identifier: BSD-3-Clause
"""What the adapters for Python packages on UCX share.

ucxx and ucx-py look alike from here: both load the UCX of the libucx package,
make one UCP context at their first use, connect by address and port, and ask for
error handling.  What they need is this transport's plugin, ``UCX_TLS`` with tcp
for the connections, and a libucx package that no other package has replaced.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import warnings

import click

from ucp_glue import _run, plugin

# Sends to itself through a listener and an endpoint; both packages have these.
_PROBE = """
import asyncio
import inspect
import numpy as np
import {package} as package

COUNT = {count}
# ucxx gives peers 5 s to introduce themselves, too little for a busy machine;
# ucx-py takes it from its environment
PATIENT = {{"connect_timeout": {timeout}}}
if "connect_timeout" not in inspect.signature(package.create_listener).parameters:
    PATIENT = {{}}

async def main():
    served = asyncio.get_running_loop().create_future()

    async def serve(endpoint):
        try:
            data = np.empty(8192, dtype=np.uint8)
            for _ in range(COUNT):
                await endpoint.recv(data)
                await endpoint.send(data)
            served.set_result(None)
        except Exception as error:
            served.set_exception(error)

    listener = package.create_listener(serve, **PATIENT)
    endpoint = await package.create_endpoint("127.0.0.1", listener.port, **PATIENT)
    sent = np.arange(8192, dtype=np.uint8)
    back = np.zeros_like(sent)
    for _ in range(COUNT):
        await endpoint.send(sent)
        await endpoint.recv(back)
    await served
    await endpoint.close()
    listener.close()
    assert (sent == back).all(), "what came back is not what was sent"

asyncio.run(main())
print("{package}", package.__version__, "UCX", package.get_ucx_version())
"""
_PROBE_COUNT = 16
# Of UCX_TLS: with these alone, UCX makes no connections by address and port.
_NO_CONNECTIONS = {
    *("utofu", "self", "sm", "shm", "mm", "posix", "sysv"),
    *("cma", "knem", "xpmem"),
}


def find(package, advice):
    """Make sure that a package is installed; it is not imported.

    Raises ``ImportError`` with ``advice`` when it is not.

    Source: importlib.
    """
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"{package} is not installed in this Python: {advice}")


def enable(package, advice, *, tls, check):
    """``plugin.enable`` for a program that uses ``package``.

    Raises as ``plugin.enable`` does, ``ImportError`` without the package, and
    ``RuntimeError`` when the package has made its UCP context already.  Warns when
    ``UCX_TLS`` has nothing that makes connections.

    Source: ucxx and ucx-py, core.py.
    """
    find(package, advice)
    core = sys.modules.get(f"{package}.core")
    if getattr(core, "_ctx", None) is not None:
        raise RuntimeError(
            f"{package} has made its UCP context already, which keeps the transports "
            f"it has: call enable() before {package} is used, or {package}.reset() "
            "before enable()"
        )
    allowed = os.environ.get("UCX_TLS") or tls or "all"
    if set(allowed.split(",")) <= _NO_CONNECTIONS:
        warnings.warn(
            f"UCX_TLS={allowed} has no tcp, without which {package} makes no "
            f"connections by address and port; use UCX_TLS={plugin.SOCKADDR_TLS}",
            RuntimeWarning,
            stacklevel=3,
        )
    return plugin.enable(tls=tls, check=check)


def verify(package, advice, *, env, timeout):
    """Send data with ``package`` in a child process; see that utofu carried it.

    Returns a ``Verification``, with reasons when it did not.

    Raises ``ImportError`` without the package.

    Source: UCX_UTOFU_STATS.
    """
    find(package, advice)
    if env is None:
        env = plugin.environment(tls=plugin.SOCKADDR_TLS)
    env = {**env, "UCX_UTOFU_STATS": "y", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    env.setdefault("UCXPY_CONNECT_TIMEOUT", str(timeout))
    found = plugin.verify(env, timeout=timeout)
    if not found:
        return found
    probe = _PROBE.format(package=package, count=_PROBE_COUNT, timeout=timeout)
    found.ok = False
    try:
        done = plugin.run_tool([sys.executable, "-c", probe], env, timeout)
    except subprocess.TimeoutExpired:
        found.reasons.append(f"a transfer with {package} did not end in {timeout} s")
        return found
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        found.reasons.append(f"a transfer with {package} failed: {last[0]}")
        return found
    # Each interface that the process had says what it sent.
    sent = re.findall(r"utofu: process \d+: messages (\d+) sent", done.stdout)
    messages = sum(map(int, sent))
    # Both directions of each round go through the same process.
    if messages >= 2 * _PROBE_COUNT:
        found.ok = True
        found.lanes.append(plugin.TRANSPORT)
    else:
        found.reasons.append(
            f"{package} sent data with UCX_TLS={env.get('UCX_TLS', '')}, but utofu "
            f"carried {messages} of {2 * _PROBE_COUNT} messages"
        )
    return found


def command(package, advice):
    """The click command of ``python -m ucp_glue.<adapter>``.

    Source: click.
    """

    @click.command(
        context_settings={
            "help_option_names": ["-h", "--help"],
            "allow_interspersed_args": False,
            "ignore_unknown_options": True,
        },
        help=f"Run PROGRAM, which uses {package}, over utofu.\n\n"
        'PROGRAM is a Python script (name.py), "-m MODULE" or "-c CODE" for this '
        "Python, or any executable. When UCX would not use utofu, this says why and "
        "ends with 1; else PROGRAM takes this process' place.",
    )
    @click.option(
        "--tls",
        default=None,
        metavar="LIST",
        help="UCX_TLS for the program, in place of the environment's. "
        f"[default: the environment's, else {plugin.SOCKADDR_TLS}]",
    )
    @click.option(
        "--check",
        is_flag=True,
        help=f"First send data with {package} and see that utofu carried it; "
        "PROGRAM may be left out.",
    )
    @click.option("-v", "--verbose", is_flag=True, help="Print what UCX chose.")
    @click.argument("words", nargs=-1, metavar="[PROGRAM [ARGS]...]")
    def main(tls, check, verbose, words):
        if not words and not check:
            raise click.UsageError("a PROGRAM is needed, or --check")
        program = _run.argv(words) if words else None
        try:
            find(package, advice)
        except ImportError as error:
            raise click.ClickException(str(error)) from error
        if tls is None and not os.environ.get("UCX_TLS"):
            tls = plugin.SOCKADDR_TLS
        env = _run.prepare(tls, say=verbose)
        if check:
            found = verify(package, advice, env=env, timeout=plugin.VERIFY_TIMEOUT)
            if not found:
                raise click.ClickException("\n  ".join(found.reasons))
            click.echo(f"{package} sends over utofu, UCX {found.ucx_version}", err=True)
        if program is not None:
            _run.replace(program, env)

    return main
