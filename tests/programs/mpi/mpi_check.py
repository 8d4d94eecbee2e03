# SPDX-License-Identifier: BSD-3-Clause
"""What the MPI programs here share: the communicator, patterns of bytes, the end.

A failed check in one rank ends the job: the others would wait for it forever.
"""

import sys
import traceback

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK = WORLD.rank
SIZE = WORLD.size

# Around every switch of protocol: inline, one slot, several slots, rendezvous.
LENGTHS = [0, 1, 7, 8, 24, 33, 100, 1000, 4096, 8000, 8192, 8193, 20000, 65536,
           262145, 1 << 20, 4 << 20]


def pattern(length, seed):
    """Bytes that differ between seeds and between places of one message."""
    index = np.arange(length, dtype=np.uint32)
    return ((index * 13 + (index >> 9) + seed * 31) & 0xFF).astype(np.uint8)


def check(condition, *what):
    """Raise with the rank and `what` when the condition does not hold."""
    if not condition:
        raise AssertionError(f"rank {RANK}: " + " ".join(map(str, what)))


def equal(got, expected, *what):
    """All elements are equal; says which is the first that is not."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape or not (got == expected).all():
        where = "shape"
        if got.shape == expected.shape:
            where = f"element {np.flatnonzero((got != expected).ravel())[0]}"
        check(False, *what, where, got.ravel()[:8], expected.ravel()[:8])


def main(*tests):
    """Run the tests in order; rank 0 prints each name, then ok.

    Arguments of the program are names of tests to leave out.
    """
    check(set(sys.argv[1:]) <= {test.__name__ for test in tests}, "no such test")
    try:
        for test in tests:
            if test.__name__ in sys.argv[1:]:
                continue
            test()
            WORLD.Barrier()
            if RANK == 0:
                print(test.__name__, flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        WORLD.Abort(1)
    if RANK == 0:
        print("ok", flush=True)
