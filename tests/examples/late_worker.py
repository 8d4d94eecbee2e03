# SPDX-License-Identifier: BSD-3-Clause
"""An example, with worker 2's first gradient held back until worker 1 is nearly done.

Arguments: the example. Files in the current folder say whose turn it is.
"""

import runpy
import sys
import time
from pathlib import Path

import uct_tofu

STEP = 390  # of worker 1, of 400


def wait_for(name):
    end = time.monotonic() + 60
    while not Path(name).exists():
        assert time.monotonic() < end, name
        time.sleep(0.001)


class LateEndpoint(uct_tofu.Endpoint):
    """What the example finds as uct_tofu.Endpoint."""

    sent = 0

    def am(self, *args, **kwargs):
        worker = int.from_bytes(kwargs.get("header", b""), "little")  # 0: the server
        self.sent += 1
        if worker == 1 and self.sent == STEP:
            Path("begin").touch()
            wait_for("arrived")
        if worker == 2 and self.sent == 1:
            wait_for("begin")
        operation = super().am(*args, **kwargs)
        if worker == 2 and self.sent == 1:
            operation.wait()
            Path("arrived").touch()
        return operation


uct_tofu.Endpoint = LateEndpoint
runpy.run_path(sys.argv[1], run_name="__main__")
