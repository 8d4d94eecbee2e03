# SPDX-License-Identifier: BSD-3-Clause
"""Benchmarks and models of speed: the command ``uct-tofu perf``."""
