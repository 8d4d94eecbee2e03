# SPDX-License-Identifier: BSD-3-Clause
"""A parameter server: workers fit a line through their own data, by active messages.

Rank 0 has the parameters. Each worker sends the gradient of a batch and gets the
parameters of the moment back; nobody waits for the slowest. A late gradient moves them
away again, so the result is what they are after everyone's last.

uct-tofu run -n 3 docs/examples/parameter_server.py
"""

import sys

import numpy as np

import uct_tofu
from uct_tofu import Endpoint, Iface, MemoryDomain

GRADIENT, PARAMETERS = 1, 2  # AM ids
STEPS, BATCH, RATE = 400, 32, 0.1
TRUTH = np.array([3.0, -2.0, 0.5, 7.0])


def serve(iface, eps):
    parameters = np.zeros_like(TRUTH)
    for _ in range(STEPS * len(eps)):
        message = iface.messages(GRADIENT).get(timeout=60)
        parameters -= RATE * np.frombuffer(message.payload)
        worker = int.from_bytes(message.header, "little")
        eps[worker].am(PARAMETERS, parameters).wait()
    for ep in eps.values():
        ep.am(PARAMETERS, parameters).wait()
    return parameters


def work(iface, ep, rank):
    random = np.random.default_rng(rank)
    parameters, answers = np.zeros_like(TRUTH), iface.messages(PARAMETERS)
    for _ in range(STEPS):
        inputs = random.normal(size=(BATCH, TRUTH.size))
        gradient = inputs.T @ (inputs @ (parameters - TRUTH)) / BATCH
        ep.am(GRADIENT, gradient, header=rank.to_bytes(2, "little")).wait()
        parameters = np.frombuffer(answers.get(timeout=60).payload)
    return np.frombuffer(answers.get(timeout=60).payload)


world = uct_tofu.world()
if world.size < 2:
    sys.exit("two processes or more, please")
with MemoryDomain() as md, Iface(md) as iface:
    addresses = world.allgather(iface.address)
    ranks = range(1, world.size) if world.rank == 0 else [0]
    eps = {rank: Endpoint(iface, addresses[rank]) for rank in ranks}
    found = serve(iface, eps) if world.rank == 0 else work(iface, eps[0], world.rank)
    world.barrier()
    for ep in eps.values():
        ep.close()

assert np.allclose(found, TRUTH, atol=1e-6), found
print("found", *found.round(3), "the truth is", *TRUTH)
