# SPDX-License-Identifier: BSD-3-Clause
"""MPI one-sided: every operation, under every kind of synchronization."""

import numpy as np
from mpi4py import MPI
from mpi_check import LENGTHS, RANK, SIZE, WORLD, check, equal, main, pattern

RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def _window(nbytes, allocate):
    """A window, and its memory as bytes."""
    if allocate:
        window = MPI.Win.Allocate(nbytes, 1, comm=WORLD)
        memory = np.frombuffer(window.tomemory(), np.uint8)
    else:
        memory = np.zeros(nbytes, np.uint8)
        window = MPI.Win.Create(memory, 1, comm=WORLD)
    memory[:] = 0
    WORLD.Barrier()
    return window, memory


def _put_get(allocate, enter, leave):
    window, memory = _window(LENGTHS[-1] + 8, allocate)
    for number, length in enumerate(LENGTHS):
        data = pattern(length, RANK + number)  # lives until the put is complete
        enter(window)
        window.Put(data, RIGHT, 3)
        leave(window)
        enter(window)
        got = np.full(length, 0xEE, np.uint8)
        window.Get(got, LEFT, 3)
        leave(window)
        equal(got, pattern(length, (LEFT - 1) % SIZE + number), "get", length)
        window.Lock(RANK)
        equal(memory[3 : 3 + length], pattern(length, LEFT + number), "put", length)
        window.Unlock(RANK)
        WORLD.Barrier()
    window.Free()


def fence():
    """Put and get between fences, on memory of both kinds."""
    for allocate in (False, True):
        _put_get(allocate, MPI.Win.Fence, MPI.Win.Fence)


def lock_all():
    """Passive target: lock_all, flush, unlock_all with barriers between."""

    def leave(window):
        window.Flush_all()
        window.Unlock_all()
        WORLD.Barrier()

    for allocate in (False, True):
        _put_get(allocate, MPI.Win.Lock_all, leave)


def post_start():
    """Post-start-complete-wait with the neighbour on either side."""
    window, memory = _window(1 << 16, True)
    origin = WORLD.group.Incl([LEFT])
    target = WORLD.group.Incl([RIGHT])
    for turn in range(20):
        length = 10 * turn * turn + 1
        window.Post(origin)
        window.Start(target)
        data = pattern(length, RANK + turn)
        window.Put(data, RIGHT)
        window.Complete()
        window.Wait()
        equal(memory[:length], pattern(length, LEFT + turn), "turn", turn)
    WORLD.Barrier()
    window.Free()


def exclusive_lock():
    """Everybody reads, changes and writes one counter under an exclusive lock."""
    window, memory = _window(64, True)
    value = np.zeros(1, np.int64)
    for _ in range(50):
        window.Lock(0, MPI.LOCK_EXCLUSIVE)
        window.Get(value, 0)
        window.Flush(0)
        value += 1
        window.Put(value, 0)
        window.Unlock(0)
    WORLD.Barrier()
    window.Lock(0, MPI.LOCK_SHARED)
    window.Get(value, 0)
    window.Unlock(0)
    equal(value, [50 * SIZE], "counter")
    window.Free()


def accumulate():
    """Sums of all ranks into one place, of several types and lengths."""
    for kind in (np.int32, np.int64, np.float64):
        for count in (1, 7, 1000, 40000):
            window, memory = _window(count * np.dtype(kind).itemsize, True)
            data = (np.arange(count) + RANK).astype(kind)
            window.Fence()
            for _ in range(3):
                window.Accumulate(data, 0, op=MPI.SUM)
            window.Fence()
            if RANK == 0:
                expected = 3 * (np.arange(count) * SIZE + SIZE * (SIZE - 1) // 2)
                equal(memory.view(kind), expected.astype(kind), "sum", kind, count)
            WORLD.Barrier()
            window.Free()


def fetch_and_op():
    """Each value of a counter is given out once; bits of all ranks arrive."""
    for kind in (np.int32, np.int64):
        window, memory = _window(64, True)
        window.Lock_all()
        one, old, seen = np.ones(1, kind), np.zeros(1, kind), []
        for _ in range(100):
            window.Fetch_and_op(one, old, 0, op=MPI.SUM)
            window.Flush(0)
            seen.append(int(old[0]))
        check(seen == sorted(set(seen)), "not rising", seen)
        every = sorted(sum(WORLD.allgather(seen), []))
        check(every == list(range(100 * SIZE)), "given out twice or never")
        bit = np.array([1 << RANK], kind)
        window.Fetch_and_op(bit, old, SIZE - 1, 8, op=MPI.BOR)
        window.Flush(SIZE - 1)
        WORLD.Barrier()
        window.Fetch_and_op(bit, old, SIZE - 1, 8, op=MPI.NO_OP)
        window.Flush(SIZE - 1)
        equal(old, [(1 << SIZE) - 1], "bits")
        window.Get_accumulate(one, old, SIZE - 1, 8, op=MPI.NO_OP)
        window.Flush(SIZE - 1)
        equal(old, [(1 << SIZE) - 1], "get_accumulate")
        window.Unlock_all()
        WORLD.Barrier()
        window.Free()


def compare_and_swap():
    """A lock made of compare and swap guards a counter made of get and put."""
    window, memory = _window(64, True)
    window.Lock_all()
    free, mine = np.zeros(1, np.int64), np.full(1, RANK + 1, np.int64)
    old, value = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for _ in range(20):
        while True:
            window.Compare_and_swap(mine, free, old, 0, 0)
            window.Flush(0)
            if old[0] == 0:
                break
            check(1 <= old[0] <= SIZE, "held by", old[0])
        window.Get(value, 0, 8)
        window.Flush(0)
        value += 1
        window.Put(value, 0, 8)
        window.Flush(0)
        window.Compare_and_swap(free, mine, old, 0, 0)
        window.Flush(0)
        equal(old, mine, "the lock was taken from its holder")
    WORLD.Barrier()
    window.Get(value, 0, 8)
    window.Flush(0)
    equal(value, [20 * SIZE], "counter")
    window.Unlock_all()
    WORLD.Barrier()
    window.Free()


def requests():
    """Rput and Rget, completed as requests."""
    window, memory = _window(1 << 18, False)
    window.Lock_all()
    data = [pattern(10000, RANK + i) for i in range(10)]
    MPI.Request.Waitall([window.Rput(data[i], RIGHT, i * 10000) for i in range(10)])
    window.Flush_all()
    WORLD.Barrier()
    got = [np.zeros(10000, np.uint8) for _ in range(10)]
    MPI.Request.Waitall([window.Rget(got[i], RIGHT, i * 10000) for i in range(10)])
    for i in range(10):
        equal(got[i], data[i], "request", i)
    window.Unlock_all()
    WORLD.Barrier()
    window.Free()


def dynamic():
    """Memory attached to a window after it was made."""
    window = MPI.Win.Create_dynamic(comm=WORLD)
    memory = np.zeros(100000, np.uint8)
    window.Attach(memory)
    addresses = WORLD.allgather(MPI.Get_address(memory))
    window.Lock_all()
    data = pattern(100000, RANK)
    window.Put(data, RIGHT, addresses[RIGHT])
    window.Flush_all()
    WORLD.Barrier()
    window.Unlock_all()
    equal(memory, pattern(100000, LEFT), "dynamic")
    window.Detach(memory)
    WORLD.Barrier()
    window.Free()


main(fence, lock_all, post_start, exclusive_lock, accumulate, fetch_and_op,
     compare_and_swap, requests, dynamic)
