# SPDX-License-Identifier: BSD-3-Clause
"""MPI point to point: ping-pong, storms both ways, wildcards, probe, order."""

import numpy as np
from mpi4py import MPI
from mpi_check import LENGTHS, RANK, SIZE, WORLD, check, equal, main, pattern


def pingpong():
    """Every length there and back, between neighbours, by every kind of send."""
    peer = RANK ^ 1
    if peer >= SIZE:
        return
    sends = [WORLD.Send, WORLD.Ssend]
    for number, length in enumerate(LENGTHS):
        for send in sends:
            for turn in range(2):
                if (RANK & 1) == turn:
                    send(pattern(length, RANK + number), dest=peer, tag=number)
                else:
                    data = np.full(length, 0xEE, np.uint8)
                    status = MPI.Status()
                    WORLD.Recv(data, source=peer, tag=number, status=status)
                    equal(data, pattern(length, peer + number), "length", length)
                    equal(status.Get_count(), length, "count")


def unexpected():
    """Messages that lie there before the receive is posted."""
    for number, length in enumerate(LENGTHS):
        request = WORLD.Isend(pattern(length, RANK), (RANK + 1) % SIZE, tag=number)
        status = MPI.Status()
        WORLD.Probe((RANK - 1) % SIZE, number, status)
        equal(status.Get_count(), length, "probed count")
        data = np.full(length, 0xEE, np.uint8)
        WORLD.Recv(data, (RANK - 1) % SIZE, tag=number)
        equal(data, pattern(length, (RANK - 1) % SIZE), "length", length)
        request.Wait()


def storm():
    """Everybody sends 300 messages to everybody while receiving theirs."""
    count = 300
    lengths = [LENGTHS[i % 13] for i in range(count)]
    requests, sent, received = [], [], []
    for i, length in enumerate(lengths):
        for peer in range(SIZE):
            data = np.full(length, 0xEE, np.uint8)
            received.append((data, peer, i))
            requests.append(WORLD.Irecv(data, peer, tag=7))
    for i, length in enumerate(lengths):
        for peer in range(SIZE):
            data = pattern(length, i * 5 + RANK)
            sent.append(data)
            requests.append(WORLD.Isend(data, peer, tag=7))
    MPI.Request.Waitall(requests)
    for data, peer, i in received:
        equal(data, pattern(lengths[i], i * 5 + peer), "from", peer, "message", i)


def large_storm():
    """Eight messages of 1 MiB both ways at once: many rendezvous in flight."""
    size, count = 1 << 20, 8
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    received = [np.zeros(size, np.uint8) for _ in range(count)]
    requests = [WORLD.Irecv(received[i], left, tag=i) for i in reversed(range(count))]
    sent = [pattern(size, RANK * 10 + i) for i in range(count)]
    requests += [WORLD.Isend(sent[i], right, tag=i) for i in range(count)]
    MPI.Request.Waitall(requests)
    for i in range(count):
        equal(received[i], pattern(size, left * 10 + i), "message", i)


def wildcard():
    """Rank 0 receives from anybody, any tag; in order of each sender."""
    _wildcard(_receive_any)


def wildcard_probe():
    """The same, with a probe that says from whom the next message is."""
    _wildcard(_probe_any)


def _receive_any(buffer, status):
    WORLD.Recv(buffer, MPI.ANY_SOURCE, MPI.ANY_TAG, status)


def _probe_any(buffer, status):
    WORLD.Mprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status).Recv(buffer)


def _wildcard(receive):
    count = 100
    if RANK != 0:
        for i in range(count):
            WORLD.Send(pattern(i * 100, RANK + i), dest=0, tag=i)
        return
    following = dict.fromkeys(range(1, SIZE), 0)
    buffer = np.empty(count * 100, np.uint8)
    for _ in range(count * (SIZE - 1)):
        status = MPI.Status()
        receive(buffer, status)
        source, tag = status.Get_source(), status.Get_tag()
        check(following[source] == tag, "tag", tag, "from", source, "too early")
        following[source] += 1
        equal(status.Get_count(), tag * 100, "count")
        equal(buffer[: tag * 100], pattern(tag * 100, source + tag), "data")


def persistent_and_partial():
    """Persistent requests, a vector type, Sendrecv and a truncated receive."""
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    out, into = np.zeros(1000), np.zeros(1000)
    requests = [WORLD.Send_init(out, right, 3), WORLD.Recv_init(into, left, 3)]
    for turn in range(20):
        out[:] = RANK * 1000 + turn
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        check((into == left * 1000 + turn).all(), "turn", turn)
    for request in requests:
        request.Free()

    matrix = np.arange(300 * 300, dtype=np.int32).reshape(300, 300) + RANK
    column = MPI.INT32_T.Create_vector(300, 1, 300).Commit()
    got = np.zeros(300, np.int32)
    WORLD.Sendrecv([matrix, 1, column], right, 4, got, left, 4)
    equal(got, np.arange(300) * 300 + left, "column")
    column.Free()

    short = np.full(100, 0xEE, np.uint8)
    request = WORLD.Isend(pattern(40, RANK), right, 5)
    status = MPI.Status()
    WORLD.Recv(short, left, 5, status)
    request.Wait()
    equal(status.Get_count(), 40, "count of a shorter message")
    equal(short[:40], pattern(40, left), "shorter message")
    check((short[40:] == 0xEE).all(), "written beyond the message")


def objects():
    """Pickled objects, as most mpi4py programs send them."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    request = WORLD.isend({"rank": RANK, "data": list(range(10000))}, right)
    got = WORLD.recv(source=left)
    request.wait()
    check(got == {"rank": left, "data": list(range(10000))}, "object")


main(pingpong, unexpected, storm, large_storm, wildcard, wildcard_probe,
     persistent_and_partial, objects)
