# SPDX-License-Identifier: BSD-3-Clause
"""Barrier and reductions of the network itself: virtual barrier gates (VBGs).

A butterfly: in stage s each process exchanges with the one whose rank differs in
bit s. Gate 0 starts and ends the circuit; gate s gets what stage s - 1 sent.

uct-tofu run -n 4 docs/examples/barrier_reduce.py
"""

import sys
import time

import uct_tofu
from uct_tofu import Backend, ReduceOp, Vbg, VbgSetting

TIMEOUT = 60  # seconds

world = uct_tofu.world()
rank, stages = world.rank, world.size.bit_length() - 1
if stages < 2 or world.size != 1 << stages:
    sys.exit("4, 8, 16, ... processes, please")
backend = Backend.load()
tnis = backend.barrier_tnis()

with Vbg(backend, tnis[rank % len(tnis)], stages) as vbg:
    gates = world.allgather(vbg.ids)
    settings = []
    for stage in range(stages):
        before, after = (stage - 1) % stages, (stage + 1) % stages
        settings.append(
            VbgSetting(
                vbg.ids[stage],
                src_lcl_vbg_id=vbg.ids[before],
                src_rmt_vbg_id=gates[rank ^ (1 << before)][before],
                dst_lcl_vbg_id=vbg.ids[after],
                dst_rmt_vbg_id=gates[rank ^ (1 << stage)][after],
            )
        )
    vbg.set(settings)
    world.barrier()  # all gates are wired

    entered = time.monotonic()
    vbg.barrier()
    vbg.wait_barrier(TIMEOUT)
    left = time.monotonic()
    times = world.allgather((entered, left))
    assert max(t[0] for t in times) <= min(t[1] for t in times)

    vbg.reduce_double(ReduceOp.BFPSUM, [rank + 0.5, 1.0])
    total, count = vbg.wait_reduce_double(TIMEOUT)
    assert (total, count) == (world.size**2 / 2, world.size)
    vbg.reduce_uint64(ReduceOp.MAXLOC, [(rank * 7) % world.size, rank])
    largest, where = vbg.wait_reduce_uint64(TIMEOUT)
    assert (where * 7) % world.size == largest == world.size - 1
    world.barrier()  # nobody frees gates that others use

print(f"sum {total}, of {count:.0f}; the largest is {largest}, on rank {where}")
