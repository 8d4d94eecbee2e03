# SPDX-License-Identifier: BSD-3-Clause
"""UCX from Python: tagged messages, then active messages in an asyncio event loop.

Rank 0 answers what the others ask. UCX's own variables apply, for example UCX_TLS.

uct-tofu run -n 3 docs/examples/glue_tag.py
"""

import asyncio
import sys

import numpy as np

import ucp_glue
import uct_tofu

QUESTION, ANSWER = 1, 2  # AM ids
SIZE = 100_000  # numbers; large enough for rendezvous

world = uct_tofu.world()
if world.size < 2:
    sys.exit("two processes or more, please")


async def serve(worker, eps, questions):
    for rank in range(1, world.size):
        data = np.empty(SIZE)
        await worker.tag_recv(data, tag=rank)
        await eps[rank].tag_send(data * 2, tag=rank)
    for _ in range(1, world.size):
        question = await anext(questions)
        numbers = np.frombuffer(question.data)
        rank = int(question.header)
        await eps[rank].am_send(ANSWER, np.cumsum(numbers))
    await worker.flush()


async def ask(worker, ep, answers):
    back = np.empty(SIZE)
    received = worker.tag_recv(back, tag=world.rank)
    await ep.tag_send(np.full(SIZE, 1.0 * world.rank), tag=world.rank)
    await received
    assert (back == 2 * world.rank).all()

    await ep.am_send(QUESTION, np.ones(SIZE), header=b"%d" % world.rank)
    async for answer in answers:
        return back.sum(), np.frombuffer(answer.data)[-1]


with ucp_glue.Context() as context, context.worker() as worker:
    messages = worker.am_messages(QUESTION if world.rank == 0 else ANSWER)
    addresses = world.allgather(worker.address)
    eps = [worker.connect(address) for address in addresses]
    if world.rank == 0:
        asyncio.run(serve(worker, eps, messages))
    else:
        sums = asyncio.run(ask(worker, eps[0], messages))
        print("sums by tag and by AM:", *sums, "over", *eps[0].transports)
    world.barrier()
