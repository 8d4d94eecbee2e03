# SPDX-License-Identifier: BSD-3-Clause
"""Sizes, times and rates as people read them: SI, but sizes in powers of 1024."""

from __future__ import annotations

__all__ = ["bandwidth_text", "quantity_text", "rate_text", "size_text", "time_text"]


def _digits(value, digits):
    """So many significant digits, no exponent."""
    return (
        f"{value:.{max(0, digits - (1 if value < 10 else 2 if value < 100 else 3))}f}"
    )


def size_text(size: int) -> str:
    """Bytes, as ``8 B``, ``4 KiB``, ``1 MiB``.

    Source: IEC 80000-13.
    """
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def time_text(seconds: float, digits: int = 3) -> str:
    """Seconds, as ``12.3 ns``, ``1.05 us``, ``3.20 ms``, ``1.50 s``.

    Source: SI.
    """
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return f"{_digits(seconds / factor, digits)} {unit}"
    return f"{_digits(seconds * 1e9, digits)} ns"


def bandwidth_text(value: float, digits: int = 3) -> str:
    """Bytes per second, as ``175 MB/s``, ``6.35 GB/s``.

    Source: SI.
    """
    if value >= 1e9:
        return f"{_digits(value / 1e9, digits)} GB/s"
    return f"{_digits(value / 1e6, digits)} MB/s"


def rate_text(value: float, digits: int = 3) -> str:
    """Operations per second, as ``3.41 M/s``, ``120 k/s``.

    Source: SI.
    """
    for factor, unit in ((1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s")):
        if value >= factor:
            return f"{_digits(value / factor, digits)} {unit}"
    return f"{_digits(value, digits)} /s"


_TEXTS = {"latency": time_text, "bandwidth": bandwidth_text, "rate": rate_text}


def quantity_text(quantity: str, value: float | None, digits: int = 3) -> str:
    """A latency, bandwidth or rate with its unit; ``-`` for None.

    Source: SI.
    """
    return "-" if value is None else _TEXTS[quantity](value, digits)
