# SPDX-License-Identifier: BSD-3-Clause
"""Heat in a plate: Jacobi steps on NumPy arrays, distributed in two dimensions.

Each process puts its edges into its neighbours' halos: rows in one block, columns as
a stride of blocks of one number. MRQ notices tell the receiver that they are there.

uct-tofu run -n 4 docs/examples/halo_2d.py
"""

import numpy as np

import uct_tofu
from uct_tofu import Backend, OnesidedFlag, Vcq

N, STEPS, FLAGS = 48, 100, OnesidedFlag.TCQ_NOTICE | OnesidedFlag.REMOTE_MRQ_NOTICE


def jacobi(old, new):
    up, down, left, right = old[:-2], old[2:], old[1:-1, :-2], old[1:-1, 2:]
    new[1:-1, 1:-1] = ((up + down)[:, 1:-1] + (left + right)) / 4


world = uct_tofu.world()
high = 2 - world.size % 2  # rows of processes
wide = world.size // high
y, x = divmod(world.rank, wide)
rows, cols = N // high, N // wide  # points of each process
grid = np.zeros((2, rows + 2, cols + 2))  # two, so that no halo changes in use
grid[:, 0] = y == 0  # the border above the plate is hot
copy, line, one = grid.strides

backend = Backend.load()
with Vcq(backend, backend.onesided_tnis()[0]) as vcq, vcq.reg_mem(grid) as memory:
    peers = world.allgather((vcq.id, memory.stadd))
    edges = [  # neighbour; where here, where there; bytes of a block, number of blocks
        (y - 1, x, line + one, (rows + 1) * line + one, cols * one, 1),
        (y + 1, x, rows * line + one, one, cols * one, 1),
        (y, x - 1, line + one, line + (cols + 1) * one, one, rows),
        (y, x + 1, line + cols * one, line, one, rows),
    ]
    edges = [e for e in edges if 0 <= e[0] < high and 0 <= e[1] < wide]
    blocks, arrived = sum(count for *_, count in edges), [0, 0]
    for now in (step % 2 for step in range(STEPS)):
        for a, b, here, there, length, count in edges:
            vcq_id, stadd = peers[a * wide + b]
            where = memory.stadd + now * copy + here, stadd + now * copy + there
            vcq.put_stride(vcq_id, *where, length, line, count, edata=now, flags=FLAGS)
        while arrived[now] < blocks:  # a neighbour may be one step ahead
            arrived[vcq.wait_mrq(60).edata] += 1
        arrived[now] = 0
        jacobi(grid[now], grid[1 - now])
        for _ in range(blocks):
            vcq.wait_tcq(60)  # until then an edge must not change
    parts = world.allgather(grid[STEPS % 2, 1:-1, 1:-1])

if world.rank == 0:
    plate = np.block([parts[r : r + wide] for r in range(0, world.size, wide)])
    print("from top to bottom:", *plate.mean(axis=1).round(9)[::4])
