# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the core's Python objects share."""

import contextlib
import time
from types import SimpleNamespace

from uct_tofu import Endpoint, Iface, MemoryDomain, RemoteMemory

PATIENCE = 60.0  # seconds; the machine may be busy with other things


@contextlib.contextmanager
def loopback(size=1 << 20, md_options=None, **iface_options):
    """An endpoint to its own iface, and memory that it reaches."""
    with (
        MemoryDomain(**(md_options or {})) as md,
        md.alloc(size) as memory,
        Iface(md, **iface_options) as iface,
        Endpoint(iface, iface.address, iface.device_address) as ep,
        RemoteMemory(memory.export()) as remote,
    ):
        yield SimpleNamespace(md=md, memory=memory, iface=iface, ep=ep, remote=remote)
        ep.flush().wait(PATIENCE)


def until(iface, condition):
    """Progress until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        iface.progress()
        assert time.monotonic() < deadline, "it did not come"


def queued_message(ep, am_id, payload):
    """Send messages without progress until one waits for resources: that one.

    The first to a peer may not be done either, but is taken, without its buffer.
    """
    for number in range(100000):
        request = ep.am(am_id, payload)
        if number > 0 and not request.done:
            return request
    raise AssertionError("resources never end")
