# SPDX-License-Identifier: BSD-3-Clause
"""A process that ends a job's process groups when its launcher was killed.

The launcher runs this file by its path, so it imports nothing of the package.
On standard input come lines, "+GROUP" for a group to watch over and "-GROUP" for
one that has ended.  At the end of the input the groups that remain are killed:
the launcher empties the list when it ends by itself.
"""

import contextlib
import os
import signal
import sys

__all__ = []


def _main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    groups = set()
    for line in sys.stdin.buffer:
        # A launcher that was killed may have written half a line.
        if not line.endswith(b"\n"):
            break
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _main()
