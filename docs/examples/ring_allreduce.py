# SPDX-License-Identifier: BSD-3-Clause
"""Ring all-reduce: the sum of the arrays of all processes, in all processes.

In each of 2 (n - 1) steps everybody puts one n-th of the array into the memory of the
next one. A fence keeps the message that says so behind the data.

uct-tofu run -n 4 docs/examples/ring_allreduce.py
"""

import numpy as np

import uct_tofu
from uct_tofu import Endpoint, Iface, MemoryDomain, RemoteMemory

COUNT = 100_000  # numbers of each chunk
ARRIVED = 1  # AM id


def allreduce(world, chunks, iface, inbox):
    """Add up all ranks' ``chunks``; there is room for each step in ``inbox``."""
    came, arrived = inbox.array("f8", (2 * world.size, COUNT)), iface.messages(ARRIVED)
    peers = world.allgather((iface.address, inbox.export()))
    address, exported = peers[(world.rank + 1) % world.size]
    with Endpoint(iface, address) as ep, RemoteMemory(exported) as remote:
        for step in range(2 * (world.size - 1)):
            mine = (world.rank - step) % world.size
            ep.put(chunks[mine], remote.at(step * COUNT, "f8", COUNT))
            ep.fence()
            ep.am(ARRIVED)
            arrived.get(timeout=60)
            if step < world.size - 1:  # sums travel once around
                chunks[mine - 1] += came[step]
            else:  # and so do the results
                chunks[mine - 1] = came[step]
        ep.flush().wait()


world = uct_tofu.world()
numbers = np.arange(world.size * COUNT) * (world.rank + 1.0)
chunks = numbers.reshape(world.size, COUNT)
length = 2 * numbers.nbytes
with MemoryDomain() as md, Iface(md) as iface, md.alloc(length) as inbox:
    allreduce(world, chunks, iface, inbox)
    world.barrier()

factor = sum(range(1, world.size + 1))
assert (numbers == np.arange(numbers.size) * factor).all()
print(f"{numbers.size} sums, the last is {numbers[-1]:.0f}")
