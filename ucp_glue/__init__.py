# SPDX-License-Identifier: BSD-3-Clause
"""Makes stock UCX find the uTofu transport.

``environment()`` for programs that are started, ``enable()`` for this process,
``verify()`` to know whether the transport really appears and, if not, why.
"""

from ucp_glue.plugin import Verification, enable, environment, verify

__all__ = ["Verification", "enable", "environment", "verify"]
