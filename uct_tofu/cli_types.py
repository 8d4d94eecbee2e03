# SPDX-License-Identifier: BSD-3-Clause
"""Types of options of the command line, and what is said of files that fail."""

import contextlib
import errno
import math
import os
import stat

import click

# What a write gives when the file is at fault, not the program.
OUTPUT_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextlib.contextmanager
def naming(path):
    """Gives an ``OSError`` the name of a file: that of a write has none.

    Source: write(2).
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and path != "-":
            error.filename = os.fspath(path)
        raise


def reason_of(error):
    """What an error says; of a file "FILE: No such file or directory".

    That of the standard output is raised again: it is the same in all commands
    (uct_tofu/cli.py), and a closed pipe is none.

    Source: errno(3).
    """
    if not isinstance(error, OSError):
        return str(error)
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno in (errno.EPIPE, *OUTPUT_FAILS):
        raise error
    return str(error)


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
