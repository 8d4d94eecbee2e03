# SPDX-License-Identifier: BSD-3-Clause
"""ucxx over utofu; nothing but the line with enable() has to do with it.

uct-tofu run --tls utofu,tcp -n 2 docs/examples/ucxx_send_recv.py

tcp makes the connection, by address and port; utofu carries the data.
"""

import asyncio
import sys

import numpy as np

import ucp_glue.ucxx
import uct_tofu

try:
    ucp_glue.ucxx.enable()
    import ucxx
except ImportError as error:
    sys.exit(print(f"skipped: {error}"))

world = uct_tofu.world()
SIZE = 1_000_000


async def server():
    finished = asyncio.Event()

    async def serve(ep):
        data = np.empty(SIZE)
        await ep.recv(data)
        await ep.send(data[::-1].copy())
        await ep.close()
        finished.set()

    listener = ucxx.create_listener(serve)
    world.put("port", listener.port)
    await finished.wait()
    while listener.active_clients:
        await asyncio.sleep(0)


async def client():
    ep = await ucxx.create_endpoint("127.0.0.1", world.get("port", timeout=60))
    data, back = np.random.default_rng(0).random(SIZE), np.empty(SIZE)
    await ep.send(data)
    await ep.recv(back)
    await ep.close()
    assert (back == data[::-1]).all()
    print(f"{back.nbytes} bytes came back, reversed")


asyncio.run(server() if world.rank == 0 else client())
