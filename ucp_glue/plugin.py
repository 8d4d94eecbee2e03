# SPDX-License-Identifier: BSD-3-Clause
"""Locate the plugin, hand it to UCX, and confirm that it appeared."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from uct_tofu import _paths

__all__ = ["Verification", "enable", "environment", "verify"]

TRANSPORT = "utofu"
VERIFY_TIMEOUT = 60.0  # seconds for each program; a busy machine takes its time
# Shared memory and sockets stay out, so that what runs is this transport; "self"
# carries what a process sends to itself.
SUGGESTED_TLS = "utofu,self"
# Connections by address and port are made by UCX's tcp, and only by it.
SOCKADDR_TLS = "utofu,tcp"


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


def tls_excludes(tls):
    """Whether a value of ``UCX_TLS`` keeps the transport out.

    Parameters
    ----------
    tls : str or None
        As in the environment; None and "" are UCX's default, which is all.

    Returns
    -------
    bool

    Source: UCX v1.22, UCX_TLS.
    """
    if not tls:
        return False
    if tls.startswith("^"):
        return TRANSPORT in tls[1:].split(",")
    return not {TRANSPORT, "all"} & set(tls.split(","))


def _loaded(library):
    """Files of every image of a library of UCX in this process."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) < 6:
            continue
        name = os.path.basename(parts[5])
        if re.match(rf"{library}(-[0-9a-f]+)?\.so", name) and parts[5] not in found:
            found.append(parts[5])
    return found


class _ComponentAttr(ctypes.Structure):
    """uct_component_attr_t; the mask keeps it right when fields are added."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64),
        ("name", ctypes.c_char * 16),  # UCT_COMPONENT_NAME_MAX
        ("md_resource_count", ctypes.c_uint),
        ("md_resources", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


def _domains_here(libuct):
    """How many memory domains of the transport this process' UCT lists."""
    uct = ctypes.CDLL(libuct)
    components, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_uint()
    uct.uct_query_components.restype = ctypes.c_int8  # ucs_status_t
    uct.uct_component_query.restype = ctypes.c_int8
    status = uct.uct_query_components(ctypes.byref(components), ctypes.byref(count))
    if status != 0:
        raise RuntimeError(f"{libuct}: uct_query_components returned status {status}")
    domains = 0
    for component in components[: count.value]:
        # 3: UCT_COMPONENT_ATTR_FIELD_NAME and _MD_RESOURCE_COUNT
        attr = _ComponentAttr(field_mask=3)
        status = uct.uct_component_query(ctypes.c_void_p(component), ctypes.byref(attr))
        if status == 0 and attr.name.decode(errors="replace") == TRANSPORT:
            domains += attr.md_resource_count
    uct.uct_release_component_list(components)
    return domains


def _register(libucs):
    """Load the plugin into a UCX that has looked for its plugins already."""
    # The same file that UCX itself would take, so that there is one image of it.
    directory = _paths.plugin_dir()
    name = os.path.basename(libucs)
    plugin = directory / f"libuct_utofu{name[name.index('.') :]}"
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
            f"{libucs}; its message is on stderr or in UCX's log"
        )


# Environments that were found good: nothing is started twice for the same one.
_verified = set()


def _verify_once():
    env = environment(tls=None)
    known = frozenset(
        (name, value)
        for name, value in env.items()
        if name.startswith(("UCX_", "UCT_TOFU_", "UTOFU_", "LD_"))
    )
    if known in _verified:
        return
    found = verify(env)
    if not found:
        raise RuntimeError(
            "UCX does not list the transport utofu: " + "; ".join(found.reasons)
        )
    _verified.add(known)


def enable(*, tls=SOCKADDR_TLS, check=True):
    """Give UCX in this process, and in its children, the uTofu transport.

    Before libucs is loaded it is enough to set ``UCX_PLUGIN_PATH``.  Afterwards
    the variable is read no more, so the plugin is loaded and registered by hand;
    that counts for every UCP context made later, not for existing ones.
    Harmless when repeated.

    Parameters
    ----------
    tls : str or None, optional
        Value for ``UCX_TLS`` when the environment has none; the default also has
        what connections by address and port need.  None leaves it unset, and UCX
        then chooses among all transports.
    check : bool, optional
        Make sure that the transport appears: in this process when UCX is loaded,
        else in a ``ucx_info`` that is started for it (once per environment,
        about half a second).

    Returns
    -------
    str
        "environment" or "registered": which of the two was done.

    Raises ``RuntimeError``, saying why, when the transport does not appear, when
    libucs is loaded and refuses (for example another version of UCX), or when
    two copies of it are loaded; ``ImportError`` when a package is missing.  Warns
    (``RuntimeWarning``) when ``UCX_TLS`` is set and keeps the transport out.  Call
    it from one thread, before the program makes UCP contexts.  Blocks while it
    checks.

    Source: UCX v1.22, src/ucs/sys/module.c; UCX_TLS.
    """
    if tls is not None:
        os.environ.setdefault("UCX_TLS", tls)
    if tls_excludes(os.environ.get("UCX_TLS")):
        warnings.warn(
            f"UCX_TLS={os.environ['UCX_TLS']} keeps {TRANSPORT} out: UCX will not "
            "use it",
            RuntimeWarning,
            stacklevel=2,
        )
    return bring(check=check)


def bring(*, check):
    """What ``enable`` does but for ``UCX_TLS``: the plugin's directory, and
    registration where UCX is loaded.

    Parameters, result, errors and rules as of ``enable``.

    Source: UCX v1.22, src/ucs/sys/module.c.
    """
    os.environ["UCX_PLUGIN_PATH"] = _paths.prepend_path(
        str(_paths.plugin_dir()), os.environ.get("UCX_PLUGIN_PATH")
    )
    libucs = _loaded("libucs")
    if not libucs:
        if check:
            _verify_once()
        return "environment"
    if len(libucs) > 1:
        raise RuntimeError(
            "two copies of libucs are loaded, the plugin can serve only one: "
            + ", ".join(libucs)
        )
    _register(libucs[0])
    libuct = _loaded("libuct")
    if check and libuct and not _domains_here(libuct[0]):
        reasons = _why_not(environment(tls=None), VERIFY_TIMEOUT)
        raise RuntimeError(
            f"{libuct[0]} does not list the transport utofu: " + "; ".join(reasons)
        )
    return "registered"


@dataclass
class Verification:
    """What ``verify`` found; true in a condition when all is well.

    ``ok``: the transport is there; ``reasons``: in words why not; ``devices``: its
    devices; ``transports``: all that UCX lists; ``ucx_version``: of ``ucx_info``;
    ``lanes``: transports that UCP chose for an endpoint, when that was asked for.

    Source: ucx_info -d, ucx_info -e.
    """

    ok: bool
    reasons: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    transports: list[str] = field(default_factory=list)
    ucx_version: str = ""
    lanes: list[str] = field(default_factory=list)

    def __bool__(self):
        return self.ok


def run_tool(command, env, timeout):
    """Run a program to its end, output and errors together as text.

    Returns ``subprocess.CompletedProcess``.  Raises ``OSError`` and
    ``subprocess.TimeoutExpired``.

    Source: subprocess.
    """
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


def _said(log):
    """Lines of UCX's log that are about the transport, without time and process."""
    found = []
    for line in log.splitlines():
        match = re.match(r"\[[^]]*\] \[[^]]*\]\s*(.*)", line)
        # UCX has its own words for a value that it can't parse, once for each look
        if match and (
            "UTOFU" in line
            or ("UCX" in line and ("utofu" in line or "Invalid value" in line))
        ):
            text = " ".join(match.group(1).split())
            if text not in found:
                found.append(text)
    return found


def _why_not(env, timeout):
    """Reasons why UCX does not list the transport, found by trying the parts."""
    reasons = []
    version = _paths.ucx_version()
    if [int(n) for n in re.findall(r"\d+", version)[:2]] != [1, 22]:
        # pip replaces it, with no more than a warning, for packages that pin UCX.
        reasons.append(
            f"UCX {version} of the libucx package is not 1.22; another package may "
            "have replaced it: pip install 'libucx-cu12>=1.22,<1.23'"
        )
    plugin = _paths.plugin_dir() / "libuct_utofu.so.0"
    if not plugin.is_file():
        return [f"the plugin is missing: {plugin}"]
    tried = run_tool(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(plugin)!r})"],
        env,
        timeout,
    )
    if tried.returncode != 0:
        reasons.append("the plugin does not load: " + tried.stdout.strip()[-300:])
    tried = run_tool(
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
    tried = run_tool([str(_paths.ucx_tool("ucx_info")), "-d"], noisy, timeout)
    reasons += _said(tried.stdout)[:5]
    if env.get("UCX_MODULES"):
        reasons.append(f"UCX_MODULES={env['UCX_MODULES']} may exclude it")
    if not reasons:
        reasons.append("no cause was found; UCX_LOG_LEVEL=debug ucx_info -d says more")
    # UCX's and the plugin's messages do not all name the variable that they are about
    settings = sorted(
        f"{name}={value}"
        for name, value in env.items()
        if name.startswith("UCX_UTOFU_") or name == "UCT_TOFU_BACKEND"
    )
    if settings:
        reasons.append("set in the environment: " + ", ".join(settings))
    return reasons


def _ask_ucp(found, tool, env, timeout):
    """Let UCP make an endpoint, for which UCX_TLS counts; fills in ``lanes``."""
    made = run_tool([tool, "-u", "t", "-e"], env, timeout)
    for name in re.findall(r"lane\[\d+\]:\s+\d+:(\w+)/", made.stdout):
        if name not in found.lanes:
            found.lanes.append(name)
    if TRANSPORT in found.lanes:
        return
    found.ok = False
    tls = env.get("UCX_TLS")
    setting = f"UCX_TLS={tls}" if tls else "UCX_TLS is not set and"
    if found.lanes:
        found.reasons.append(f"{setting} makes UCP use {', '.join(found.lanes)}")
    else:
        lines = made.stdout.strip().splitlines()
        said = [line for line in lines if "ERROR" in line] or lines[-1:]
        said = said[0] if said else f"ucx_info -e ended with {made.returncode}"
        found.reasons.append(f"{setting} gives UCP no endpoint: {said}")


def verify(env=None, *, timeout=VERIFY_TIMEOUT, ucp=False):
    """Run the wheel's ``ucx_info`` and see whether it lists the transport.

    Parameters
    ----------
    env : mapping of str, optional
        Environment to test; None is ``environment(tls=None)``.
    timeout : float
        Seconds for each program that is started.
    ucp : bool
        Also let UCP make an endpoint and see that it uses the transport; here
        ``UCX_TLS`` of ``env`` counts.

    Returns
    -------
    Verification
        With reasons in words when the transport is not listed or not used.

    Raises nothing but ``ImportError`` for missing packages.  Starts child
    processes and waits for them.

    Source: ucx_info -d, ucx_info -v, ucx_info -e.
    """
    env = environment(tls=None) if env is None else dict(env)
    try:
        tool = str(_paths.ucx_tool("ucx_info"))
        version = run_tool([tool, "-v"], env, timeout).stdout
        listing = run_tool([tool, "-d"], env, timeout)
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
        try:
            if ucp:
                _ask_ucp(found, tool, env, timeout)
        except (OSError, subprocess.TimeoutExpired) as error:
            found.ok = False
            found.reasons.append(f"ucx_info -e cannot be run: {error}")
        return found
    try:
        found.reasons += _why_not(env, timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        found.reasons.append(f"while looking for the cause: {error}")
    return found
