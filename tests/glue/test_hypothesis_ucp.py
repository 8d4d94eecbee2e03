# SPDX-License-Identifier: BSD-3-Clause
"""Arguments and orders that nobody thought of: hypothesis, in a process of its own."""

import pytest

CODE = """
import weakref
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
quiet = settings(max_examples=150, deadline=None, database=None,
                 suppress_health_check=list(HealthCheck))
ctx, worker, ep = loop(errors=False)
SIZE = 4096
memory = ctx.alloc(SIZE)
view = np.frombuffer(memory, np.uint8)
remote = ep.unpack(memory.pack_rkey())
inbox = worker.am_messages(3)
"""

PROPERTIES = {
    "ranges": """
@quiet
@given(st.integers(-2**63, 2**63 - 1) | st.integers(-10, SIZE + 10),
       st.integers(0, SIZE + 5), st.booleans())
def check(offset, length, is_get):
    view[:] = pattern(SIZE)
    buffer = np.full(length, 0xAA, np.uint8)
    call = ep.get if is_get else ep.put
    if 0 <= offset and offset + length <= SIZE:
        call(buffer, remote, offset=offset).wait(PATIENCE)
        ep.flush().wait(PATIENCE)
        expected = pattern(SIZE)
        if is_get:
            assert (buffer == expected[offset : offset + length]).all()
        else:
            expected[offset : offset + length] = 0xAA
        assert (view == expected).all()
    else:
        text = raises(ucp_glue.UcpCallerError, call, buffer, remote, offset=offset)
        assert f"at offset {offset} of" in text, text   # refused here, not by UCX
        assert (view == pattern(SIZE)).all()
""",
    "atomics": """
@quiet
@given(st.sampled_from(["fetch_add", "fetch_and", "fetch_or", "fetch_xor", "swap"]),
       st.sampled_from([4, 8]), st.integers(0, 2**64 - 1),
       st.integers(-2**65, 2**65) | st.integers(-3, 3))
def check(name, size, old, value):
    bits = 8 * size
    old %= 1 << bits
    view[:16].view(f"u{size}")[0] = old
    if not -(1 << bits - 1) <= value < 1 << bits:
        raises(OverflowError, getattr(ep, name), remote, value, size=size)
        return
    assert getattr(ep, name)(remote, value, size=size).wait(PATIENCE) == old
    expected = {"fetch_add": old + value, "fetch_and": old & value,
                "fetch_or": old | value, "fetch_xor": old ^ value, "swap": value}[name]
    assert int(view[:16].view(f"u{size}")[0]) == expected % (1 << bits)
""",
    "messages": """
@quiet
@given(st.binary(max_size=300), st.integers(0, 60_000), st.integers(0, 2**64 - 1),
       st.sampled_from([None, "eager", "rndv"]))
def check(header, size, tag, protocol):
    data = pattern(size, tag % 251)
    sent = ep.am_send(3, data, header=header, protocol=protocol)
    message = inbox.get(PATIENCE)
    sent.wait(PATIENCE)
    assert message.header == header and bytes(message.data) == data.tobytes()
    buffer = np.empty(size, np.uint8)
    request = worker.tag_recv(buffer, tag)
    ep.tag_send(data, tag).wait(PATIENCE)
    assert request.wait(PATIENCE) == size and request.sender_tag == tag
    assert (buffer == data).all()
""",
    "damaged": """
@quiet
@given(st.data())
def check(data):
    for good, call in ((worker.address, worker.connect),
                       (memory.pack_rkey(), ep.unpack)):
        where = data.draw(st.integers(0, len(good) - 1))
        flip = data.draw(st.integers(1, 255))
        bad = bytearray(good)
        bad[where] ^= flip
        raises(ValueError, call, bytes(bad))
        raises(ValueError, call, good[:where])
""",
    "life": """
# Any sequence of opening, posting and closing: only the documented exceptions.
STEPS = ["context", "worker", "ep", "memory", "key", "recv", "send", "put", "am",
         "progress", "flush", "close", "forget", "collect"]
@settings(quiet, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), max_size=40))
def check(steps):
    pools = {name: [] for name in ("context", "worker", "ep", "memory", "key", "request")}
    made = []                           # weakly: they may be forgotten and go
    def new_context():
        pools["context"].append(ucp_glue.Context())
        made.append(weakref.ref(pools["context"][-1]))
    new_context()
    def pick(kind, number):
        return pools[kind][number % len(pools[kind])]
    for step, number in steps:
        try:
            if step == "context":
                if len(pools["context"]) < 2:
                    new_context()
            elif step == "worker":
                if len(pools["worker"]) < 3:
                    pools["worker"].append(pick("context", number).worker())
            elif step == "ep":
                worker = pick("worker", number)
                pools["ep"].append(worker.connect(worker.address))
            elif step == "memory":
                pools["memory"].append(pick("context", number).map(bytearray(5000)))
            elif step == "key":
                pools["key"].append(pick("ep", number).unpack(
                    pick("memory", number).pack_rkey()))
            elif step == "recv":
                pools["request"].append(pick("ep", number).tag_recv(bytearray(100_000), 1))
            elif step == "send":
                pools["request"].append(pick("ep", number).tag_send(
                    bytes([10, 100_000][number % 2]), number % 3))
            elif step == "put":
                pools["request"].append(pick("ep", number).put(bytes(5000),
                                                               pick("key", number)))
            elif step == "am":
                pools["request"].append(pick("ep", number).am_send(1, bytes(200_000),
                                                                   protocol="rndv"))
            elif step == "progress":
                pick("worker", number).progress()
            elif step == "flush":
                pools["request"].append(pick("ep", number).flush())
            elif step == "close":
                kind = ["context", "worker", "ep", "memory", "key"][number % 5]
                force = {"force": True} if number % 5 < 3 else {}
                pick(kind, number // 2).close(**force)
            elif step == "forget":
                kind = list(pools)[number % 6]
                pools[kind].pop(number % len(pools[kind]))
            elif step == "collect":
                gc.collect()
        except (ZeroDivisionError, ucp_glue.UcpClosedError):
            pass                        # an empty pool; a closed object
        except (ValueError, RuntimeError) as error:
            assert "belongs to" in str(error) or "in flight" in str(error), error
    # also those that were forgotten: a request in flight keeps its context
    for context in filter(None, [reference() for reference in made]):
        context.close(force=True)
    for request in pools["request"]:
        assert request.done
    pools.clear()
    gc.collect()
""",
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_property(script, name):
    end = "\ncheck()\ndel view\nctx.close()\n"
    script(CODE + PROPERTIES[name] + end, PYTHONWARNINGS="ignore",
           UCX_LOG_LEVEL="error")
