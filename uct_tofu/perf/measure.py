# SPDX-License-Identifier: BSD-3-Clause
"""What ``paper`` and ``predict`` ask the runner for: the only place that calls it."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field

from uct_tofu.perf import result

# What the runner raises; ImportError when libucx is not there.
_ERRORS = (
    RuntimeError,
    OSError,
    ValueError,
    ImportError,
    subprocess.SubprocessError,
)

__all__ = ["MeasureError", "Plan", "Wanted", "measure"]


class MeasureError(RuntimeError):
    """A measurement could not be made; the message says which and why.

    Source: runner.run.
    """


@dataclass(frozen=True)
class Wanted:
    """One call of the runner.

    ``optional`` is for what a machine may lack, as an MPI.

    Source: runner.run.
    """

    test: str
    layer: str
    transport: str = "utofu"
    sizes: tuple = (8,)
    mode: str = "fast"
    profile: str | None = None
    options: dict = field(default_factory=dict)  # further arguments of the runner
    optional: bool = False

    def __str__(self):
        words = [self.test, self.layer]
        if self.transport != self.layer:
            words.append(self.transport)
        if self.transport == "utofu":
            words.append(self.profile or self.mode)
        for name, value in self.options.items():
            pairs = value.items() if isinstance(value, dict) else [(name, value)]
            words += [f"{key}={item}" for key, item in pairs]
        return " ".join(words)


@dataclass
class Plan:
    """How long to measure.

    ``repeats`` of ``seconds`` for each size; nothing is begun ``limit`` seconds
    after the start.

    Source: runner.run.
    """

    repeats: int = 3
    seconds: float = 0.2
    limit: float = 480.0
    start: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether the limit has passed.

        Source: time.monotonic.
        """
        return time.monotonic() - self.start > self.limit


def measure(wanted: Wanted, plan: Plan) -> list[result.Record]:
    """Run one test; blocks until it ends.

    Raises ``MeasureError``, also for records that are none.

    Source: runner.run.
    """
    try:
        from uct_tofu.perf import runner
    except ImportError as error:
        raise MeasureError(f"{wanted}: there is no runner: {error}") from error
    if plan.is_over:
        raise MeasureError(f"{wanted}: not begun, {plan.limit:.0f} s were over")
    try:
        data = runner.run(
            wanted.test,
            layer=wanted.layer,
            transport=wanted.transport,
            sizes=list(wanted.sizes),
            repeats=plan.repeats,
            seconds=plan.seconds,
            mode=wanted.mode,
            profile=wanted.profile,
            **wanted.options,
        )
    except _ERRORS as error:
        raise MeasureError(f"{wanted}: {error}") from error
    try:
        return [result.Record.from_dict(item) for item in data]
    except result.RecordError as error:
        raise MeasureError(f"{wanted}: the runner's record: {error}") from error
