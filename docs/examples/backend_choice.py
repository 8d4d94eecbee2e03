# SPDX-License-Identifier: BSD-3-Clause
"""The same program on the machine's uTofu library and on the emulator.

UCT_TOFU_BACKEND chooses: tofu, emulator, or auto (the machine's where there is one).

UCT_TOFU_BACKEND=emulator uct-tofu run -n 2 docs/examples/backend_choice.py
"""

import sys

import numpy as np

import uct_tofu
from uct_tofu import Backend, Endpoint, Iface, MemoryDomain, RemoteMemory

world = uct_tofu.world()
try:
    backend = Backend.load()
except RuntimeError as error:
    sys.exit(f"no such backend: {error}")

if world.rank == 0:
    print(f"{backend.kind}: {backend.reason}")
    print(f"uTofu {backend.utofu_version}, TNIs {backend.onesided_tnis()}")

with MemoryDomain(backend) as md, Iface(md) as iface, md.alloc(1 << 20) as memory:
    peers = world.allgather((iface.address, memory.export(), backend.coords()))
    address, exported, coords = peers[(world.rank + 1) % world.size]
    with Endpoint(iface, address) as ep, RemoteMemory(exported) as remote:
        data = np.random.default_rng(0).bytes(1 << 20)
        ep.put(data, remote).wait()
    world.barrier()
    assert bytes(memory) == data
print(f"1 MiB from {backend.coords()} to {coords} is there")
