# SPDX-License-Identifier: BSD-3-Clause
# The source of tutorial.ipynb: python docs/notebook.py

# %% [markdown]
# # From a VCQ to asyncio
#
# This notebook starts with the uTofu API as it is, and goes up to messages that an event
# loop awaits. It needs nothing but `pip install .`, and runs on the emulator or on a Tofu
# machine. Both sides of each transfer are in this process, up to the last section.
# `docs/tutorial.py` is the same as a script; it saves its plots as PNG files.

# %%
import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from uct_tofu import (
    ArmwOp,
    Backend,
    Endpoint,
    Iface,
    MemoryDomain,
    MrqType,
    OnesidedFlag,
    RemoteMemory,
    TofuError,
    Vcq,
)

# %% [markdown]
# ## The library and its node
#
# `Backend` is the uTofu library: the machine's where there is one, else the emulator
# (`UCT_TOFU_BACKEND` decides). A node has six TNIs (Tofu network interfaces) and a place
# in a six-dimensional network.

# %%
backend = Backend.load()
print(backend.kind, "because", backend.reason)
print("TNIs", backend.onesided_tnis(), "at", backend.coords())
caps = backend.onesided_caps(0)
print("one put moves", caps["max_putget_size"], "bytes at most")

# %% [markdown]
# ## What is a VCQ?
#
# A process gives orders to a TNI through a VCQ, a virtual control queue. It is three
# queues in one: orders go into the TOQ, the TCQ tells that they have left, the MRQ that
# something has arrived. Its ID is its address in the whole machine.

# %%
here, there = Vcq(backend, 0), Vcq(backend, 1)
for vcq in (here, there):
    print(f"{vcq.id:#x}", backend.vcq_info(vcq.id))

# %% [markdown]
# The TNI reads and writes only memory that is registered with a VCQ. It then has a STADD,
# a Tofu address, for both sides to use. A put copies from one STADD to another, and
# nobody at the target has to do anything. What is told, and where, is said by flags.

# %%
source, target = np.arange(10.0), np.zeros(10)
source_memory, target_memory = here.reg_mem(source), there.reg_mem(target)
here.put(
    there.id,
    source_memory.stadd,
    target_memory.stadd,
    source.nbytes,
    edata=42,
    flags=OnesidedFlag.TCQ_NOTICE | OnesidedFlag.REMOTE_MRQ_NOTICE,
)
here.wait_tcq(timeout=10)
notice = there.wait_mrq(timeout=10)
print(notice.type.name, "with edata", notice.edata)
assert notice.type is MrqType.RMT_PUT and notice.edata == 42
assert (target == source).all()

# %% [markdown]
# Atomic operations are orders, too. The old value comes with the local notice.

# %%
counter = np.array([40], np.uint64)
counter_memory = there.reg_mem(counter)
here.armw8(
    there.id, ArmwOp.ADD, 2, counter_memory.stadd, flags=OnesidedFlag.LOCAL_MRQ_NOTICE
)
old = here.wait_mrq(timeout=10).rmt_value
print("it was", old, "and is", counter[0])
assert (old, counter[0]) == (40, 42)

# %% [markdown]
# A stride is many puts in one order: blocks of one length, at one distance. So a column
# of a matrix can be sent as it is. Here, every eighth column goes.

# %%
picture = np.add.outer(np.sin(np.linspace(0, 6, 64)), np.cos(np.linspace(0, 6, 64)))
copy = np.zeros_like(picture)
with here.reg_mem(picture) as mine, there.reg_mem(copy) as theirs:
    for column in range(0, 64, 8):
        at = column * 8
        here.put_stride(
            there.id,
            mine.stadd + at,
            theirs.stadd + at,
            length=8,
            stride=picture.strides[0],
            num_blocks=64,
            flags=OnesidedFlag.REMOTE_MRQ_NOTICE,
        )
        for _ in range(64):  # every block has a notice
            there.wait_mrq(timeout=10)
assert (copy[:, ::8] == picture[:, ::8]).all() and not copy[:, 1::8].any()

figure, axes = plt.subplots(1, 2, figsize=(7, 3))
for axis, data, title in zip(axes, (picture, copy), ("here", "there"), strict=True):
    axis.imshow(data)
    axis.set_title(title)
figure.savefig("tutorial-stride.png")

# %% [markdown]
# What was made is freed in the end: memory first, then its VCQ. In programs, `with`
# does that.

# %%
for item in (source_memory, target_memory, counter_memory, here, there):
    item.dereg() if hasattr(item, "dereg") else item.free()

# %% [markdown]
# ## The transport: put and get of any size
#
# The objects above `Vcq` have the names of UCX's lower layer. A `MemoryDomain` has the
# memory, an `Iface` the queues, an `Endpoint` leads to one other `Iface`. They split what
# is large, wait for room in queues, and register arrays when they are first used.
# Addresses and exported memory are bytes, for any way of sending them.

# %%
md = MemoryDomain()
iface, other = Iface(md), Iface(md)
memory = md.alloc(8 << 20)
ep, remote = Endpoint(iface, other.address), RemoteMemory(memory.export())

ep.put(np.arange(1000), remote).wait()
numbers = np.empty(10, np.int64)
ep.get(numbers, remote.at(500, np.int64, 10)).wait()
print(numbers)
assert numbers.tolist() == list(range(500, 510))
print("one more than", ep.fetch_add(remote, 1, offset=8).wait())

# %% [markdown]
# Each call returns a `Request`. Post many, and wait for the last, or for `ep.flush()`:
# that is how bandwidth is reached. The figures are of this machine and of this moment;
# `uct-tofu perf` measures with more care.


# %%
def bandwidth(size, window):
    """Bytes a second of puts of one size, the best of five rounds."""
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(window):
            ep.put(data, remote)
        ep.flush().wait()
        rounds.append(time.perf_counter() - start)
    assert np.array_equal(memory.array(np.uint8, size), data)
    return size * window / min(rounds)


def latency(size):
    """Seconds of one put until it is confirmed, the median of fifty."""
    data, times = bytes(size), []
    for _ in range(50):
        start = time.perf_counter()
        ep.put(data, remote).wait()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


sizes = [1 << power for power in range(3, 23)]
bandwidths = {
    window: [bandwidth(size, window) / 1e9 for size in sizes] for window in (1, 32)
}
latencies = [latency(size) * 1e6 for size in sizes]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for window, values in bandwidths.items():
    left.loglog(sizes, values, marker=".", base=2, label=f"{window} in flight")
left.set(xlabel="size, bytes", ylabel="put bandwidth, GB/s")
left.legend()
right.loglog(sizes, latencies, marker=".", base=2)
right.set(xlabel="size, bytes", ylabel="put latency, us")
figure.savefig("tutorial-bandwidth.png")
print(f"up to {max(bandwidths[32]):.2f} GB/s; 8 bytes take {latencies[0]:.1f} us")

# %% [markdown]
# ## Active messages
#
# A message has an ID, a header and a payload, and calls a handler at the target: there
# something has to run. An iface works inside `progress()`, `wait()` and `get()`, the
# sender's too: so flush before doing something else for long.

# %%
received = []
other.set_message_handler(1, lambda header, payload: received.append((header, payload)))
ep.am(1, np.arange(4.0), header=b"first")
while not received:
    iface.progress()
    other.progress()
header, payload = received.pop()
print(header, np.frombuffer(payload))
assert header == b"first" and np.frombuffer(payload).tolist() == [0, 1, 2, 3]

# %% [markdown]
# Or messages wait in a stream until somebody takes them. Make it, or set the handler,
# before the peer can send: a message that finds neither is dropped.

# %%
stream = other.messages(2)
for number in range(3):
    ep.am(2, b"payload" * 10_000, header=b"%d" % number)
iface.flush()
lengths = {}
while len(lengths) < 3:
    iface.progress()
    other.progress()
    while len(stream):
        message = stream.get()
        lengths[message.header] = len(message.payload)
print(lengths)
assert lengths == {b"0": 70_000, b"1": 70_000, b"2": 70_000}

# %% [markdown]
# ## Mistakes
#
# What cannot work is refused with the reason. A strided array, for example:

# %%
try:
    ep.put(np.zeros((4, 4))[:, 1], remote)
except TofuError as error:
    print(type(error).__name__, error, sep=": ")
    refused = error
assert refused.call == "Endpoint.put"

# %%
for item in (ep, remote, other, iface, memory, md):
    item.close()

# %% [markdown]
# ## asyncio
#
# Requests can be awaited, and messages iterated over. While nothing happens the event
# loop sleeps on the iface's event descriptor. A notebook has an event loop of its own, so
# this one runs in a thread; an iface belongs to the thread that makes it.


# %%
async def server(iface, client_address, count):
    with Endpoint(iface, client_address) as ep:
        async for message in iface.messages(1):
            numbers = np.frombuffer(message.payload)
            await ep.am(2, np.sqrt(numbers), header=message.header)
            count -= 1
            if count == 0:
                await ep.flush()
                return


async def client(iface, server_address, count):
    answers, messages = {}, iface.messages(2)  # before the first can come
    with Endpoint(iface, server_address) as ep:
        for number in range(count):
            await ep.am(1, np.full(1000, float(number)), header=b"%d" % number)
        async for message in messages:
            answers[int(message.header)] = np.frombuffer(message.payload)[0]
            if len(answers) == count:
                return answers


async def main(count=20):
    with MemoryDomain() as md, Iface(md) as one, Iface(md) as two:
        _, answers = await asyncio.gather(
            server(one, two.address, count), client(two, one.address, count)
        )
        return answers


roots = {}
thread = threading.Thread(target=lambda: roots.update(asyncio.run(main())))
thread.start()
thread.join()
assert all(np.isclose(root**2, number) for number, root in roots.items())

figure, axis = plt.subplots(figsize=(5, 3), layout="constrained")
axis.plot(sorted(roots), [roots[number] for number in sorted(roots)], "o")
axis.set(xlabel="asked", ylabel="answered")
figure.savefig("tutorial-asyncio.png")
print(len(roots), "answers")

# %% [markdown]
# ## Several processes
#
# `uct-tofu run -n 4 program` starts four, each on a node of its own, and
# `uct_tofu.world()` lets them exchange addresses. More programs are in `docs/examples`.

# %%
program = Path("tutorial-hello.py")
program.write_text("""
import uct_tofu
from uct_tofu import Endpoint, Iface, MemoryDomain

world = uct_tofu.world()
with MemoryDomain() as md, Iface(md) as iface:
    messages = iface.messages(1)
    addresses = world.allgather(iface.address)
    with Endpoint(iface, addresses[(world.rank + 1) % world.size]) as ep:
        ep.am(1, b"hello from rank %d" % world.rank)
        ep.flush().wait()
        print(messages.get(timeout=60).payload.decode())
        world.barrier()
""")
launcher = [sys.executable, "-m", "uct_tofu", "run", "-n", "4", str(program)]
done = subprocess.run(
    launcher, check=False, capture_output=True, text=True, timeout=120
)
print(done.stdout, done.stderr)
assert sorted(line[4:] for line in done.stdout.splitlines()) == [
    f"hello from rank {rank}" for rank in range(4)
]
