# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py over utofu: a ring of messages, then a sum. A plain MPI program.

With MPICH (pip install mpich mpi4py); for Open MPI see docs/mpi.md:

eval "$(uct-tofu env --tls utofu)"
MPICH_CH4_NETMOD=ucx MPICH_NOLOCAL=1 mpiexec -n 4 python docs/examples/mpi4py_ring.py

UCX_UTOFU_STATS=y before mpiexec shows how many messages utofu carried.
"""

import sys

import numpy as np

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    sys.exit(print(f"skipped: {error}"))

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size

mine = np.full(100_000, float(rank))
for _ in range(size):  # the array travels once around, each adds its rank
    came = np.empty_like(mine)
    comm.Sendrecv(mine, (rank + 1) % size, recvbuf=came, source=(rank - 1) % size)
    mine = came + rank
expected = sum(range(size))
assert (mine == rank + expected).all()

total = np.empty_like(mine)
comm.Allreduce(mine, total)
assert (total == (size + 1) * expected).all()
if rank == 0:
    print(f"around {size} ranks: {mine[0]:.0f}, summed up: {total[0]:.0f}")
