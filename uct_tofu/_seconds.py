# SPDX-License-Identifier: BSD-3-Clause
"""Timeouts of Python's callers, checked in one place."""

from __future__ import annotations

import math

__all__ = ["seconds"]


def seconds(timeout):
    """A timeout in seconds as a float, or None, which is no limit.

    Raises ``TypeError`` for what is no real number, a text too, and ``ValueError``
    for NaN: it compares with nothing, so that a wait for it would not end.

    Source: math.isnan.
    """
    if timeout is None:
        return None
    try:
        is_nan = math.isnan(timeout)
    except TypeError:
        raise TypeError(
            "timeout must be a number of seconds or None, not "
            f"{type(timeout).__name__}"
        ) from None
    if is_nan:
        raise ValueError("timeout must be a number of seconds or None, not NaN")
    return float(timeout)
