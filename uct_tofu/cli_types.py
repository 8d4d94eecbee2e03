# SPDX-License-Identifier: BSD-3-Clause
"""Types of options of the command line."""

import contextlib
import math
import os
import stat

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


class Output(click.Path):
    """A file to write to when all is done: that it can be is found out before.

    What is in it stays until then, and no empty file is left when nothing is written.

    Source: click.Path.
    """

    def __init__(self, *, allow_dash=False):
        super().__init__(dir_okay=False, allow_dash=allow_dash)

    def convert(self, value, param, ctx):
        """The path; ``click.BadParameter`` when it can't be opened for writing.

        Source: click.ParamType.convert.
        """
        path = super().convert(value, param, ctx)
        if path == "-" and self.allow_dash:
            return path
        try:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISREG(os.stat(path).st_mode):
                    return path  # to open a FIFO or a device is to use it
                os.close(os.open(path, os.O_WRONLY))
                return path
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            os.unlink(path)
        except OSError as error:
            self.fail(f"{os.fspath(path)!r}: {error.strerror}.", param, ctx)
        return path
