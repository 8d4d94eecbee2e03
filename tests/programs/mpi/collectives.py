# SPDX-License-Identifier: BSD-3-Clause
"""MPI collectives on NumPy arrays, and communicators made by split and dup."""

import numpy as np
from mpi4py import MPI
from mpi_check import RANK, SIZE, WORLD, check, equal, main, pattern

COUNTS = [1, 10, 1000, 20000, 300000]


def bcast():
    for root in range(SIZE):
        for count in COUNTS:
            data = pattern(count, root) if RANK == root else np.zeros(count, np.uint8)
            WORLD.Bcast(data, root)
            equal(data, pattern(count, root), "root", root, "count", count)


def reductions():
    total = SIZE * (SIZE + 1) // 2
    for count in COUNTS:
        data = np.arange(count, dtype=np.float64) * (RANK + 1)
        result = np.empty(count)
        WORLD.Allreduce(data, result, MPI.SUM)
        equal(result, np.arange(count, dtype=np.float64) * total, "allreduce", count)
        WORLD.Reduce(data, result, MPI.MAX, root=SIZE - 1)
        if RANK == SIZE - 1:
            equal(result, np.arange(count, dtype=np.float64) * SIZE, "reduce", count)
        scanned = np.empty(count, np.int64)
        WORLD.Scan(np.full(count, RANK + 1), scanned, MPI.SUM)
        check((scanned == (RANK + 1) * (RANK + 2) // 2).all(), "scan", count)
        WORLD.Exscan(np.full(count, RANK + 1), scanned, MPI.SUM)
        if RANK > 0:
            check((scanned == RANK * (RANK + 1) // 2).all(), "exscan", count)
        part = np.empty(count, np.int64)
        WORLD.Reduce_scatter_block(np.arange(count * SIZE), part, MPI.SUM)
        equal(part, np.arange(RANK * count, (RANK + 1) * count) * SIZE, "scatter")
    check(WORLD.allreduce(RANK + 1) == total, "allreduce of objects")


def exchange():
    for count in COUNTS:
        out = np.concatenate([pattern(count, RANK * 7 + peer) for peer in range(SIZE)])
        into = np.empty(count * SIZE, np.uint8)
        WORLD.Alltoall(out, into)
        equal(into, np.concatenate([pattern(count, peer * 7 + RANK)
                                    for peer in range(SIZE)]), "alltoall", count)
        WORLD.Allgather(pattern(count, RANK), into)
        everybody = np.concatenate([pattern(count, peer) for peer in range(SIZE)])
        equal(into, everybody, "allgather", count)
        into[:] = 0
        WORLD.Gather(pattern(count, RANK), into if RANK == 0 else None, root=0)
        if RANK == 0:
            equal(into, everybody, "gather", count)
        part = np.empty(count, np.uint8)
        WORLD.Scatter(everybody if RANK == 0 else None, part, root=0)
        equal(part, pattern(count, RANK), "scatter", count)


def uneven():
    counts = [(peer * 1000) + 1 for peer in range(SIZE)]
    into = np.empty(sum(counts), np.uint8)
    WORLD.Allgatherv(pattern(counts[RANK], RANK), [into, counts])
    expected = [pattern(counts[peer], peer) for peer in range(SIZE)]
    equal(into, np.concatenate(expected), "allgatherv")
    out = np.concatenate([pattern((RANK + peer) * 500, RANK) for peer in range(SIZE)])
    sizes = [(RANK + peer) * 500 for peer in range(SIZE)]
    into = np.empty(sum(sizes), np.uint8)
    WORLD.Alltoallv([out, sizes], [into, sizes])
    equal(into, np.concatenate([pattern(sizes[peer], peer) for peer in range(SIZE)]),
          "alltoallv")


def nonblocking():
    """Several collectives of one communicator in flight, while messages go on."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    results = [np.empty(5000) for _ in range(5)]
    inputs = [np.full(5000, RANK + 1.0 + i) for i in range(5)]
    requests = [WORLD.Iallreduce(inputs[i], results[i], MPI.SUM) for i in range(5)]
    requests.append(WORLD.Ibarrier())
    message, got = pattern(100000, RANK), np.empty(100000, np.uint8)
    requests += [WORLD.Irecv(got, left, 9), WORLD.Isend(message, right, 9)]
    MPI.Request.Waitall(requests)
    for i in range(5):
        check((results[i] == SIZE * (SIZE + 1) / 2 + SIZE * i).all(), "iallreduce", i)
    equal(got, pattern(100000, left), "message")


def barrier():
    """Nobody leaves before the last has come."""
    count = np.zeros(1, np.int64)
    window = MPI.Win.Create(count, 8, comm=WORLD) if RANK == 0 else MPI.Win.Create(
        None, comm=WORLD)
    one, old = np.ones(1, np.int64), np.zeros(1, np.int64)
    for turn in range(20):
        window.Lock(0)
        window.Fetch_and_op(one, old, 0)
        window.Unlock(0)
        WORLD.Barrier()
        window.Lock(0)
        window.Fetch_and_op(one, old, 0, op=MPI.NO_OP)
        window.Unlock(0)
        check(old[0] == SIZE * (turn + 1), "left the barrier at", old[0])
        WORLD.Barrier()
    window.Free()


def communicators():
    parity = WORLD.Split(RANK % 2, key=-RANK)
    members = [rank for rank in reversed(range(SIZE)) if rank % 2 == RANK % 2]
    check(parity.size == len(members), "size", parity.size)
    check(parity.allgather(RANK) == members, "order of the split")
    duplicate = WORLD.Dup()
    # The same tag in two communicators: each message goes to its own.
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got = [np.zeros(10, np.int64) for _ in range(2)]
    requests = [duplicate.Irecv(got[1], left, 1), WORLD.Irecv(got[0], left, 1)]
    requests += [WORLD.Isend(np.full(10, RANK), right, 1),
                 duplicate.Isend(np.full(10, RANK + 100), right, 1)]
    MPI.Request.Waitall(requests)
    check((got[0] == left).all() and (got[1] == left + 100).all(), "mixed up", got)
    alone = WORLD.Split(RANK)
    check(alone.size == 1 and alone.allreduce(5) == 5, "alone")
    grid = WORLD.Create_cart([SIZE], periods=[True])
    source, dest = grid.Shift(0, 1)
    check((source, dest) == (left, right), "neighbours", source, dest)
    out = np.zeros(2, np.int64)
    grid.Neighbor_allgather(np.array([RANK]), out)
    equal(out, [left, right], "neighbours' values")
    for comm in (parity, duplicate, alone, grid):
        comm.Free()


main(bcast, reductions, exchange, uneven, nonblocking, barrier, communicators)
