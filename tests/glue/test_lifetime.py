# SPDX-License-Identifier: BSD-3-Clause
"""Dead peers, closing in any order, threads, fork, handlers that raise."""

import pytest


@pytest.mark.parametrize("tls", ["utofu", "tcp"])
def test_dead_peer(pair, tls):
    """All that is in flight ends with an error, and the endpoint is told once."""
    pair(
        """
import signal
ctx, worker, _ = meet()
_.close()
told = []
ep = worker.connect(swap(worker.address), on_error=lambda ep, error: told.append(error))
if rank == 1:
    worker.connect  # nothing is received here: rendezvous stay in flight
    swap(b"", worker)
    os.kill(os.getpid(), signal.SIGKILL)
ep.tag_send(b"x", 1).wait(PATIENCE)
received = ep.tag_recv(bytearray(10), 5)
others = worker.tag_recv(bytearray(10), 6)
large = bytearray(4_000_000)
sent = ep.tag_send(large, 7)
swap(b"", worker)
text = raises(ucp_glue.UcpConnectionError, received.wait, PATIENCE)
assert "ucp_tag_recv_nbx" in text, text
try:
    sent.wait(PATIENCE)
except ucp_glue.UcpError:
    pass
else:
    raise AssertionError("a rendezvous to a dead peer succeeded")
del sent
large.extend(b"free again")
assert len(told) == 1 and isinstance(told[0], ucp_glue.UcpConnectionError), told
assert not ep.alive and not others.done
raises(ucp_glue.UcpConnectionError, ep.flush)
ep.close()
assert len(told) == 1
# the worker lives
self_ep = worker.connect(worker.address)
self_ep.tag_send(b"alive", 6)
assert others.wait(PATIENCE) == 5
ctx.close()
""",
        tls,
        expect=(0, -9),
        UCX_KEEPALIVE_INTERVAL="100ms",
        UCX_LOG_LEVEL="fatal",
    )


ORDERS = ["ep", "key", "worker", "memory", "ctx"]


def test_closing_in_any_order(script):
    """Also twice, and with operations in flight; later use is a clear error."""
    script(
        f"ORDERS = {ORDERS}"
        """
import itertools
for order in list(itertools.permutations(ORDERS))[::7]:
    ctx, worker, ep = loop()
    memory = ctx.map(bytearray(100_000))
    key = ep.unpack(memory.pack_rkey())
    objects = dict(ctx=ctx, worker=worker, ep=ep, key=key, memory=memory)
    never = worker.tag_recv(bytearray(8), 1)
    large = ep.tag_send(bytes(1_000_000), 2)
    ended = []
    never.add_done_callback(ended.append)
    waits = dict(force=True)        # nobody receives the large message
    for name in order:
        objects[name].close(**waits if name in ("ctx", "worker", "ep") else {})
        objects[name].close()
    assert never.done and large.done and ended == [never]
    raises(ucp_glue.UcpCanceledError, never.result)
    for call in (worker.progress, worker.flush, lambda: worker.tag_recv(bytearray(1)),
                 ep.flush, lambda: ep.put(b"", key), ctx.worker, memory.pack_rkey,
                 lambda: worker.connect(b""), lambda: ctx.alloc(5), worker.signal):
        raises(ucp_glue.UcpClosedError, call)
    assert all("closed" in repr(o) for o in objects.values()), objects
""",
        UCX_LOG_LEVEL="error",
    )


def test_garbage_in_any_order(script):
    """Forgotten objects are warned about and released; nothing is used afterwards."""
    output = script(
        """
import itertools, random, warnings
random.seed(1)
warnings.simplefilter("always", ResourceWarning)
for turn in range(60):
    ctx, worker, ep = loop()
    memory = ctx.map(np.zeros(5000, np.uint8))
    key = ep.unpack(memory.pack_rkey())
    message = []
    worker.set_am_handler(1, message.append, rendezvous="explicit")
    inbox = worker.am_messages(2)
    ep.am_send(1, bytes(3_000_000), protocol="rndv" if turn % 2 else None)
    request = ep.put(bytes(5000), key)
    if turn % 3:
        progress_until(worker, lambda: message)
    objects = [ctx, worker, ep, memory, key, message, inbox, request]
    if turn % 4 == 0:
        objects.append(objects)     # a cycle: the collector's order
    random.shuffle(objects)
    del ctx, worker, ep, memory, key, message, inbox, request
    if turn % 4:
        while objects:
            objects.pop()
    del objects
    gc.collect()
left = [o for o in gc.get_objects() if isinstance(o, (ucp_glue.Context, ucp_glue.Worker))]
assert not left, left
# the worker itself closes what was forgotten
ctx, worker, ep = loop()
for _ in range(3):
    worker.connect(worker.address)
gc.collect()
assert "4 endpoints" in repr(worker)
progress_until(worker, lambda: "1 endpoints" in repr(worker))
ctx.close()
""",
        UCX_LOG_LEVEL="error",
    )
    assert "ResourceWarning" in output and "Endpoint" in output
    assert "Traceback" not in output, output


@pytest.mark.parametrize("what", ["closed by the end", "thread"])
def test_end_of_interpreter(script, what):
    """With traffic in flight, and with a thread inside UCX."""
    script(
        f"what = {what!r}"
        """
import threading
ctx, worker, ep = loop(multi_thread=what == "thread")
never = worker.tag_recv(bytearray(1_000_000), 1)
large = ep.tag_send(bytes(1_000_000), 2)
if what == "thread":
    def run():
        while True:
            worker.wait()
    threading.Thread(target=run, daemon=True).start()
    time.sleep(0.2)
""",
        PYTHONWARNINGS="default",
    )


def test_found_when_the_modules_are_gone(script):
    """Warnings of what was not closed, when there are no names left to call."""
    output = script(
        """
import codecs           # its registry goes after the modules' names
ctx, worker, ep = loop()
kept = [ep, worker, ctx.alloc(4096), ctx]
codecs.register_error("kept", lambda error, kept=kept: None)
""",
        PYTHONWARNINGS="default",
    )
    assert "Traceback" not in output and "Exception ignored" not in output, output
    assert "Error in" not in output, output


def test_handlers_that_raise(script):
    """Each exception is raised from progress or wait, once; nothing else is lost."""
    script(
        """
ctx, worker, ep = loop()
got = []
def handler(message):
    got.append(message.data)
    if message.data != b"fine":
        raise KeyError(message.data)
worker.set_am_handler(1, handler)
for data in (b"one", b"fine", b"two"):
    ep.am_send(1, data)
errors = []
end = time.monotonic() + PATIENCE
while (len(got) < 3 or len(errors) < 2) and time.monotonic() < end:
    try:
        worker.progress()
    except KeyError as error:
        errors.append(error.args[0])
assert got == [b"one", b"fine", b"two"] and errors == [b"one", b"two"], (got, errors)
for _ in range(50):
    worker.progress()
# from wait() of something else; the request itself is not harmed
request = worker.tag_recv(bytearray(4), 3)
def callback(request):
    raise ZeroDivisionError
request.add_done_callback(callback)
ep.tag_send(b"four", 3)
raises(ZeroDivisionError, request.wait, PATIENCE)
assert request.wait(PATIENCE) == 4
raises(ZeroDivisionError, request.add_done_callback, callback)
# a handler may post, progress, wait and close
def busy(message):
    buffer = bytearray(6)
    request = worker.tag_recv(buffer, 4)
    ep.tag_send(b"nested", 4)
    assert request.wait(PATIENCE) == 6
    got.append(bytes(buffer))
    ctx.close()
worker.set_am_handler(2, busy)
ep.am_send(2, bytes(5000))
raises(ucp_glue.UcpClosedError, lambda: [worker.wait(PATIENCE) for _ in range(1000)])
assert got[-1] == b"nested"
"""
    )


def test_threads(script):
    """One thread's worker refuses others; a multi-threaded one serves them all."""
    script(
        """
import threading
ctx, worker, ep = loop()
failures = []
def other():
    for call in (worker.progress, ep.flush, worker.close, lambda: ep.tag_send(b"")):
        failures.append(raises(ucp_glue.UcpThreadError, call))
thread = threading.Thread(target=other); thread.start(); thread.join()
assert len(failures) == 4 and "multi_thread=True" in failures[0]
ctx.close()
ctx, worker, ep = loop(multi_thread=True)
errors = []
def work(number):
    try:
        for turn in range(150):
            size = 200_000 if turn % 50 == 0 else 64
            buffer = np.empty(size, np.uint8)
            tag = (number << 32) | turn
            request = worker.tag_recv(buffer, tag)
            sent = ep.tag_send(pattern(size, tag % 97), tag)
            assert request.wait(PATIENCE) == size
            sent.wait(PATIENCE)
            assert (buffer == pattern(size, tag % 97)).all()
    except BaseException as error:
        errors.append(error)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors
assert "0 in flight" in repr(worker)
ctx.close()
"""
    )


def test_wait_is_interruptible(script):
    script(
        """
import _thread, signal, threading
ctx, worker, ep = loop()
request = worker.tag_recv(bytearray(1), 1)
# asleep or spinning, it notices; other threads run meanwhile
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
raises(KeyboardInterrupt, request.wait, PATIENCE)
before = time.process_time()
raises(TimeoutError, request.wait, 1)
assert time.process_time() - before < 0.6       # it slept
assert not worker.wait(0.01)
ctx.close()
"""
    )


def test_fork(script):
    """Every object of the parent is a clear error in the child, and harmless."""
    script(
        """
ctx, worker, ep = loop()
memory = ctx.alloc(100)
key = ep.unpack(memory.pack_rkey())
request = worker.tag_recv(bytearray(1), 1)
pid = os.fork()
if pid == 0:
    status = 1
    try:
        for call in (worker.progress, worker.close, ep.flush, ep.close, ctx.close,
                     memory.close, memory.pack_rkey, lambda: ep.put(b"", key),
                     request.wait, request.cancel, lambda: ctx.transports):
            assert "fork" in raises(RuntimeError, call), call
        del ctx, worker, ep, memory, key, request
        gc.collect()
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(pid, 0)[1] == 0
ep.tag_send(b"x", 1)
assert request.wait(PATIENCE) == 1
ctx.close()
"""
    )


def test_what_stopped_a_block_comes_out(script):
    """Not that its memory was still in use; that is said when nothing else is."""
    script("""
class Mistake(Exception):
    pass

for kind in (Mistake, BufferError):
    try:
        with ucp_glue.Context() as ctx, ctx.worker() as worker, ctx.alloc(100) as memory:
            view = np.frombuffer(memory, np.uint8)
            if kind is Mistake:
                raise Mistake
    except kind as error:
        assert error.__context__ is None, error
        assert kind is Mistake or "1 views; delete the arrays" in str(error), error
    else:
        raise AssertionError("nothing came out")
    del view
    ctx.close()
""")


def test_more_workers_than_vcqs(script):
    """A node has 432 VCQs; more workers share them, and are told so."""
    output = script(
        """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
count, needed = 450, 4096  # UCX opens 6 descriptors for each worker
if soft < needed:
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))
ctx = ucp_glue.Context()
workers = [ctx.worker() for _ in range(count)]
eps = [worker.connect(workers[i - 1].address) for i, worker in enumerate(workers)]
received = [bytearray(5000) for _ in workers]
pending = [worker.tag_recv(received[i], tag=7) for i, worker in enumerate(workers)]
pending += [ep.tag_send(bytes([i % 251]) * 5000, tag=7) for i, ep in enumerate(eps)]
end = time.monotonic() + PATIENCE
while not all(request.done for request in pending):
    for worker in workers:
        worker.progress()
    assert time.monotonic() < end
for i in range(count):
    assert received[i - 1] == bytes([i % 251]) * 5000, i
for ep in eps:
    ep.close(force=True)
for worker in workers:
    worker.close()
ctx.close()
"""
    )
    assert output.count("shares VCQ") == 1, output
