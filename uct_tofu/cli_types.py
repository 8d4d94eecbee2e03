# SPDX-License-Identifier: BSD-3-Clause
"""Types of options of the command line."""

import math

import click


class Number(click.FloatRange):
    """A number in a range, which NaN is in for click: it compares with nothing.

    Source: click.FloatRange.
    """

    def convert(self, value, param, ctx):
        """The number as float; ``click.BadParameter`` when it is none, or outside.

        Source: click.ParamType.convert.
        """
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number
