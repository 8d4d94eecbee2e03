# SPDX-License-Identifier: BSD-3-Clause
"""Existing ucx-py programs over utofu, unchanged.

From outside: ``python -m ucp_glue.ucxpy script.py``.  From inside: ``enable()``
before ucx-py is used.  ``verify()`` tells whether ucx-py's data really goes over the
transport.  Importing this module does nothing and does not import its package ucp.
"""

from __future__ import annotations

from ucp_glue import _adapter
from ucp_glue.plugin import SOCKADDR_TLS, VERIFY_TIMEOUT

__all__ = ["enable", "verify"]

_PACKAGE = "ucp"
_ADVICE = "ucx-py has to be built from its source (docs/ucxx.md says how)"


def enable(*, tls=SOCKADDR_TLS, check=True):
    """Let ucx-py in this process, and in its children, use utofu.

    Parameters
    ----------
    tls : str or None, optional
        Value for ``UCX_TLS`` when the environment has none; tcp in it makes the
        connections, by address and port.  None leaves it unset.
    check : bool, optional
        Make sure that UCX lists the transport; may start programs, about half a
        second.

    Returns
    -------
    str
        "environment" or "registered", as ``ucp_glue.enable``.

    Raises ``ImportError`` when ucx-py is not installed; ``RuntimeError``, saying why,
    when ucx-py has made its context already or when the transport does not appear.
    Call it from one thread.  Blocks while it checks.

    Source: ucx-py, core.py; UCX, UCX_PLUGIN_PATH, UCX_TLS.
    """
    return _adapter.enable(_PACKAGE, _ADVICE, tls=tls, check=check)


def verify(env=None, *, timeout=VERIFY_TIMEOUT):
    """Send data with ucx-py in a child process and see that utofu carried it.

    Parameters
    ----------
    env : mapping of str, optional
        Environment to test; None is ``environment(tls=SOCKADDR_TLS)``.
    timeout : float
        Seconds for each program that is started.

    Returns
    -------
    ucp_glue.Verification
        With reasons in words when it was not utofu.

    Raises ``ImportError`` when ucx-py is not installed.  Starts child processes and
    waits for them.

    Source: UCX_UTOFU_STATS; ucx_info.
    """
    return _adapter.verify(_PACKAGE, _ADVICE, env=env, timeout=timeout)


if __name__ == "__main__":
    _adapter.command(_PACKAGE, _ADVICE)(prog_name="python -m ucp_glue.ucxpy")
