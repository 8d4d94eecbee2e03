# SPDX-License-Identifier: BSD-3-Clause
"""Locate the plugin, hand it to UCX, and confirm that it appeared."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from uct_tofu import _paths

__all__ = ["Verification", "enable", "environment", "verify"]

TRANSPORT = "utofu"
# Shared memory and sockets stay out, so that what runs is this transport; "self"
# carries what a process sends to itself.
SUGGESTED_TLS = "utofu,self"


def environment(base=None, *, tls=SUGGESTED_TLS):
    """Environment for a program that shall use UCX with the uTofu transport.

    Parameters
    ----------
    base : mapping of str, optional
        What to start from; None is ``os.environ``.
    tls : str or None
        Value for ``UCX_TLS`` unless ``base`` has one; None leaves it out, and
        UCX then chooses among all transports.

    Returns
    -------
    dict
        A copy of ``base`` with the plugin's directory in ``UCX_PLUGIN_PATH`` and
        the libucx wheel's libraries first in ``LD_LIBRARY_PATH``.

    Raises ``ImportError`` when a package is missing.  Starts nothing.

    Source: UCX, UCX_PLUGIN_PATH, UCX_TLS; ld.so(8).
    """
    env = dict(os.environ if base is None else base)
    env["UCX_PLUGIN_PATH"] = _paths.prepend_path(
        str(_paths.plugin_dir()), env.get("UCX_PLUGIN_PATH")
    )
    env["LD_LIBRARY_PATH"] = _paths.prepend_path(
        str(_paths.ucx_lib_dir()), env.get("LD_LIBRARY_PATH")
    )
    if tls is not None:
        env.setdefault("UCX_TLS", tls)
    return env


def _loaded_libucs():
    """Files of every libucs that is mapped into this process."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) < 6:
            continue
        is_libucs = re.match(r"libucs(-[0-9a-f]+)?\.so", os.path.basename(parts[5]))
        if is_libucs and parts[5] not in found:
            found.append(parts[5])
    return found


def enable():
    """Give UCX in this process, and in its children, the uTofu transport.

    Before libucs is loaded it is enough to set ``UCX_PLUGIN_PATH``.  Afterwards
    the variable is read no more, so the plugin is loaded and registered by hand;
    that counts for every UCP context made later, not for existing ones.
    Harmless when repeated.

    Returns
    -------
    str
        "environment" or "registered": which of the two was done.

    Raises ``RuntimeError`` when libucs is loaded and refuses (for example
    another version of UCX), or when two copies of it are loaded.  Call it from
    one thread, before the program makes UCP contexts.

    Source: UCX v1.22, src/ucs/sys/module.c.
    """
    directory = str(_paths.plugin_dir())
    os.environ["UCX_PLUGIN_PATH"] = _paths.prepend_path(
        directory, os.environ.get("UCX_PLUGIN_PATH")
    )
    libucs = _loaded_libucs()
    if not libucs:
        return "environment"
    if len(libucs) > 1:
        raise RuntimeError(
            "two copies of libucs are loaded, the plugin can serve only one: "
            + ", ".join(libucs)
        )
    # The same file that UCX itself would take, so that there is one image of it.
    name = os.path.basename(libucs[0])
    plugin = Path(directory) / f"libuct_utofu{name[name.index('.') :]}"
    if not plugin.exists():
        plugin = plugin.with_name("libuct_utofu.so")
    try:
        library = ctypes.CDLL(str(plugin))
    except OSError as error:
        raise RuntimeError(f"the plugin does not load: {error}") from error
    library.ucs_module_global_init.argtypes = []
    library.ucs_module_global_init.restype = ctypes.c_int8  # ucs_status_t
    status = library.ucs_module_global_init()
    if status != 0:
        raise RuntimeError(
            f"{plugin}: ucs_module_global_init returned status {status} for "
            f"{libucs[0]}; its message is on stderr or in UCX's log"
        )
    return "registered"


@dataclass
class Verification:
    """What ``verify`` found; true in a condition when all is well.

    Source: ucx_info -d.
    """

    ok: bool
    reasons: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    transports: list[str] = field(default_factory=list)
    ucx_version: str = ""

    def __bool__(self):
        return self.ok


def _run(command, env, timeout):
    return subprocess.run(
        command,
        check=False,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def _why_not(env, timeout):
    """Reasons why UCX does not list the transport, found by trying the parts."""
    reasons = []
    plugin = _paths.plugin_dir() / "libuct_utofu.so.0"
    if not plugin.is_file():
        return [f"the plugin is missing: {plugin}"]
    tried = _run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(plugin)!r})"],
        env,
        timeout,
    )
    if tried.returncode != 0:
        reasons.append("the plugin does not load: " + tried.stdout.strip()[-300:])
    tried = _run(
        [
            sys.executable,
            "-c",
            "import uct_tofu; uct_tofu.Backend.load(); uct_tofu.MemoryDomain().close()",
        ],
        env,
        timeout,
    )
    if tried.returncode != 0:
        last = tried.stdout.strip().splitlines()[-1:] or ["no message"]
        reasons.append("the backend does not work: " + last[0])
    noisy = {**env, "UCX_MODULE_LOG_LEVEL": "debug", "UCX_LOG_LEVEL": "info"}
    tried = _run([str(_paths.ucx_tool("ucx_info")), "-d"], noisy, timeout)
    reasons += [
        line.strip()
        for line in tried.stdout.splitlines()
        if "utofu" in line and "UCX" in line and line.startswith("[")
    ][:5]
    for name in ("UCX_TLS", "UCX_MODULES"):
        if env.get(name):
            reasons.append(f"{name}={env[name]} may exclude it")
    return reasons or ["no cause was found; UCX_LOG_LEVEL=debug ucx_info -d says more"]


def verify(env=None, *, timeout=30.0):
    """Run the wheel's ``ucx_info`` and see whether it lists the transport.

    Parameters
    ----------
    env : mapping of str, optional
        Environment to test; None is ``environment(tls=None)``.
    timeout : float
        Seconds for each program that is started.

    Returns
    -------
    Verification
        With reasons in words when the transport is not listed.

    Raises nothing but ``ImportError`` for missing packages.  Starts child
    processes and waits for them.

    Source: ucx_info -d, ucx_info -v.
    """
    env = environment(tls=None) if env is None else dict(env)
    try:
        tool = str(_paths.ucx_tool("ucx_info"))
        version = _run([tool, "-v"], env, timeout).stdout
        listing = _run([tool, "-d"], env, timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Verification(False, [f"ucx_info cannot be run: {error}"])
    match = re.search(r"Library version: (\S+)", version)
    found = Verification(False, ucx_version=match.group(1) if match else "")
    transport = None
    for line in listing.stdout.splitlines():
        match = re.match(r"#\s+(Transport|Device): (\S+)", line)
        if not match:
            continue
        if match.group(1) == "Transport":
            transport = match.group(2)
            if transport not in found.transports:
                found.transports.append(transport)
        elif transport == TRANSPORT:
            found.devices.append(match.group(2))
    if listing.returncode != 0:
        found.reasons.append(
            f"ucx_info -d ended with {listing.returncode}: "
            + listing.stdout.strip()[-300:]
        )
    elif TRANSPORT in found.transports and found.devices:
        found.ok = True
        return found
    try:
        found.reasons += _why_not(env, timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        found.reasons.append(f"while looking for the cause: {error}")
    return found
