# SPDX-License-Identifier: BSD-3-Clause
"""``uct-tofu perf``: the group of the benchmark commands."""

from __future__ import annotations

import click

from uct_tofu.perf import cli_compare, cli_run, cli_scale


@click.group("perf")
def perf():
    """Measure, compare with the machine's published figures, predict."""


cli_run.register(perf)
cli_compare.register(perf)
cli_scale.register(perf)
