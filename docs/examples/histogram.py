# SPDX-License-Identifier: BSD-3-Clause
"""A histogram whose bins are spread over all processes, by remote fetch-and-add.

Each process counts its own numbers where the bins are; nobody else has to do
anything for that. What was there before tells each number its place in the bin.

uct-tofu run -n 4 docs/examples/histogram.py
"""

import numpy as np

import uct_tofu
from uct_tofu import Endpoint, Iface, MemoryDomain, RemoteMemory

BINS, COUNT = 8, 500  # bins on each process, numbers of each process

world = uct_tofu.world()
random = np.random.default_rng(world.rank)
numbers = random.normal(BINS * world.size / 2, 3, COUNT)
numbers = numbers.clip(0, BINS * world.size - 1).astype(int)

with MemoryDomain() as md, Iface(md) as iface, md.alloc(BINS * 8) as memory:
    bins = memory.array(np.uint64)
    peers = world.allgather((iface.address, memory.export()))
    eps = [Endpoint(iface, address) for address, _ in peers]
    remotes = [RemoteMemory(exported) for _, exported in peers]

    requests = []
    for number in numbers:
        owner, bin = divmod(int(number), BINS)
        requests.append(eps[owner].fetch_add(remotes[owner], 1, offset=bin * 8))
    places = [request.wait() for request in requests]

    world.barrier()  # all have counted
    found = np.concatenate(world.allgather(bins.copy()))
    del bins
    for item in (*eps, *remotes):
        item.close()

# Every number of every process has a place of its own.
everything = world.allgather(list(zip(numbers.tolist(), places)))
taken = sorted(place for part in everything for place in part)
wanted = np.bincount([number for number, _ in taken], minlength=found.size)
assert (found == wanted).all()
assert taken == [(n, place) for n in range(found.size) for place in range(wanted[n])]
if world.rank == 0:
    print(found.sum(), "numbers in", found.size, "bins:", *found)
