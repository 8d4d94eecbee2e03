# SPDX-License-Identifier: BSD-3-Clause
"""Each process writes into its neighbour's memory, and reads from it.

uct-tofu run -n 2 docs/examples/hello_put_get.py
"""

import numpy as np

import uct_tofu
from uct_tofu import Endpoint, Iface, MemoryDomain, RemoteMemory

COUNT = 1000

world = uct_tofu.world()
neighbour = (world.rank + 1) % world.size

with MemoryDomain() as md, Iface(md) as iface, md.alloc(2 * COUNT * 8) as memory:
    # The first half is for the neighbour to write, the second for it to read.
    words = memory.array(np.int64)
    words[COUNT:] = np.arange(COUNT) + world.rank
    peers = world.allgather((iface.address, memory.export()))

    address, exported = peers[neighbour]
    with Endpoint(iface, address) as ep, RemoteMemory(exported) as remote:
        ep.put(np.full(COUNT, world.rank), remote).wait()
        got = np.empty(COUNT, np.int64)
        ep.get(got, remote, offset=COUNT * 8).wait()

    world.barrier()  # now the other one's put is complete, too
    writer = (world.rank - 1) % world.size
    assert (words[:COUNT] == writer).all()
    assert (got == np.arange(COUNT) + neighbour).all()
    print(f"written here: {words[:COUNT].sum()}, read from {neighbour}: {got.sum()}")
    del words  # or the memory cannot be freed
