# SPDX-License-Identifier: BSD-3-Clause
"""UCX from Python, over the uTofu transport or any other.

``environment()`` for programs that are started, ``enable()`` for this process,
``verify()`` to know whether the transport really appears and, if not, why.

``Context``, ``Worker``, ``Endpoint``, ``Listener``, ``Memory``, ``RemoteKey`` and
``Request`` are UCX's UCP layer: tagged messages, active messages, streams, put, get,
atomics on anything with a buffer, blocking or awaited.  Importing this package loads
no UCX; the first use of one of these names does.
"""

from __future__ import annotations

import pkgutil

from ucp_glue.errors import (
    UcpCallerError,
    UcpCanceledError,
    UcpClosedError,
    UcpConnectionError,
    UcpError,
    UcpRetryError,
    UcpSystemError,
    UcpThreadError,
    UcpTimeoutError,
    UcpTruncatedError,
    UcpUnreachableError,
)
from ucp_glue.plugin import Verification, enable, environment, verify

# In the root of a clone Python finds this folder before the installed package;
# the extension module is in the latter.
__path__ = pkgutil.extend_path(__path__, __name__)

# Public names of the extension module, loaded on first use.
_EXTENSION = [
    "AmMessage",
    "Context",
    "Endpoint",
    "Inbox",
    "Listener",
    "Memory",
    "RemoteKey",
    "Request",
    "Worker",
    "ucx_version",
]

__all__ = [
    "UcpCallerError",
    "UcpCanceledError",
    "UcpClosedError",
    "UcpConnectionError",
    "UcpError",
    "UcpRetryError",
    "UcpSystemError",
    "UcpThreadError",
    "UcpTimeoutError",
    "UcpTruncatedError",
    "UcpUnreachableError",
    "Verification",
    "enable",
    "environment",
    "verify",
]
__all__ += _EXTENSION


def __getattr__(name):
    if name not in _EXTENSION:
        raise AttributeError(f"module 'ucp_glue' has no attribute {name!r}")
    from ucp_glue import _load

    value = getattr(_load.extension(), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_EXTENSION})
