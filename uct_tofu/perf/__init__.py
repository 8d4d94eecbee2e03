# SPDX-License-Identifier: BSD-3-Clause
"""Benchmarks: records of measurements, their comparison, and published figures.

``uct-tofu perf`` is the command.  ``result`` has the format of a record,
``published`` the figures of the machine, ``series`` and ``compare`` lay records side
by side, ``plots`` and ``report`` show them, ``paper`` and ``predict`` measure what
they need by themselves.  ``scale`` is a simulator of what no one host has.
"""
