# SPDX-License-Identifier: BSD-3-Clause
"""Ping-pong on the uTofu API: puts of 8 bytes, and the notices they leave.

Each put makes an entry in the target's MRQ (message receive queue), with a byte of the
sender's choice (edata), and one in the sender's TCQ (transmit complete queue).

uct-tofu run -n 2 docs/examples/raw_pingpong.py
"""

import sys
import time

import numpy as np

import uct_tofu
from uct_tofu import Backend, MrqType, OnesidedFlag, Vcq

ROUNDS, TIMEOUT = 2000, 60  # seconds
FLAGS = OnesidedFlag.TCQ_NOTICE | OnesidedFlag.REMOTE_MRQ_NOTICE

world = uct_tofu.world()
if world.size != 2:
    sys.exit("two processes, please")
backend = Backend.load()
send, receive = np.zeros(1, np.uint64), np.zeros(1, np.uint64)

vcq = Vcq(backend, backend.onesided_tnis()[0])
with vcq, vcq.reg_mem(send) as source, vcq.reg_mem(receive) as target:
    peer_vcq, peer_stadd = world.allgather((vcq.id, target.stadd))[1 - world.rank]

    def put(value):
        vcq.wait_tcq(TIMEOUT)  # the one before has left
        send[0] = value
        vcq.put(peer_vcq, source.stadd, peer_stadd, 8, value % 256, FLAGS)

    def wait():
        notice = vcq.wait_mrq(TIMEOUT)
        assert notice.type is MrqType.RMT_PUT and notice.vcq_id == peer_vcq
        assert notice.edata == receive[0] % 256
        return int(receive[0])

    vcq.nop(OnesidedFlag.TCQ_NOTICE)  # the first has none before it
    start = time.perf_counter()
    if world.rank == 0:
        put(1)
    for _ in range(ROUNDS - 1 + world.rank):
        put(wait() + 1)  # each adds one to what it got
    if world.rank == 0:
        assert wait() == 2 * ROUNDS
    seconds = time.perf_counter() - start
    vcq.wait_tcq(TIMEOUT)
    world.barrier()

if world.rank == 0:
    one_way = seconds / (2 * ROUNDS)
    print(f"the number came back as {receive[0]}, {one_way * 1e6:.2f} us each way")
