# SPDX-License-Identifier: BSD-3-Clause
"""Errors for wrong arguments say which is meant."""

import pytest


@pytest.mark.parametrize(
    "value",
    ["'8'", "1.5", "-1", "1 << 64", "10**5000"],
    ids=["text", "float", "negative", "large", "longest"],  # that can't be printed
)
def test_errors_name_the_integer(script, value):
    script(
        f"value = {value}"
        """
ctx, worker, ep = loop(errors=False)
memory = ctx.alloc(64)
remote = ep.unpack(memory.pack_rkey())
data = bytearray(8)
error = OverflowError if isinstance(value, int) else TypeError


def named(name, call, *args, **kwargs):
    text = raises(error, call, *args, **kwargs)
    assert text.startswith((f"{name} must ", f"{name} is too ")), text


named("length", ctx.alloc, value)
named("tag", ep.tag_send, data, value)
for owner in (ep, worker):
    named("tag", owner.tag_recv, data, value)
    named("mask", owner.tag_recv, data, 0, value)
named("tag", worker.tag_probe, value)
named("mask", worker.tag_probe, 0, value)
if value != -1:     # in these it is an int, and outside of what can be
    named("am_id", ep.am_send, value)
    named("am_id", worker.set_am_handler, value, None)
    named("am_id", worker.am_messages, value)
    named("offset", ep.put, data, remote, offset=value)
    named("offset", ep.get, data, remote, offset=value)
    for name in ("add", "and_", "or_", "xor", "swap",
                 "fetch_add", "fetch_and", "fetch_or", "fetch_xor"):
        named("offset", getattr(ep, name), remote, 1, offset=value)
        named("size", getattr(ep, name), remote, 1, size=value)
        if value != 1 << 64:
            named("value", getattr(ep, name), remote, value)
    named("offset", ep.compare_swap, remote, 1, 2, offset=value)
    named("size", ep.compare_swap, remote, 1, 2, size=value)
    named("compare", ep.compare_swap, remote, value, 2)
    named("value", ep.compare_swap, remote, 1, value)
if error is TypeError:
    named("backlog", worker.am_messages, 1, backlog=value)
    named("port", worker.listen, value)
    named("port", worker.connect, ("127.0.0.1", value))
else:
    for call, at in ((worker.listen, value), (worker.connect, ("127.0.0.1", value))):
        if value != 10**5000:
            assert str(value) in raises(ValueError, call, at)
        assert "0 to 65535 can be" in raises(ValueError, call, at)
assert "0 in flight" in repr(worker), worker
ctx.close()
"""
    )


def test_errors_name_what_is_no_integer(script):
    script(
        """
ctx, worker, ep = loop()
memory = ctx.alloc(64)
remote = ep.unpack(memory.pack_rkey())
address = "address must be a worker's address (bytes-like), or (host, port), not "
for kind, start, call in (
    (TypeError, address + "NoneType", lambda: worker.connect(None)),
    (TypeError, address + "list", lambda: worker.connect(["127.0.0.1", 5])),
    (ValueError, address + "a tuple of 1", lambda: worker.connect(("h",))),
    (TypeError, "host must be a str, not int", lambda: worker.connect((5, 5))),
    (TypeError, "host must be a str, not int", lambda: worker.listen(0, 5)),
    (TypeError, "packed must be bytes-like, not int", lambda: ep.unpack(5)),
    (TypeError, "header must be bytes-like, not str",
     lambda: ep.am_send(1, header="h")),
    (TypeError, "payload must be a buffer", lambda: ep.am_send(1, "text")),
    (TypeError, "buffer must be a buffer", lambda: ep.tag_send("text")),
    (TypeError, "buffer must be a buffer", lambda: ep.stream_recv("text")),
    (TypeError, "buffer must be a buffer", lambda: ep.put(5, remote)),
    (TypeError, "buffer must be a buffer", lambda: ctx.map(5)),
    (TypeError, "value must be an integer, not NoneType",
     lambda: ep.compare_swap(remote, 1, None)),
    (TypeError, "features must be an iterable of names",
     lambda: ucp_glue.Context(5)),
    (TypeError, "config must be a mapping of str to str, not int",
     lambda: ucp_glue.Context(config=5)),
    (TypeError, "config's names must be str, not int",
     lambda: ucp_glue.Context(config={5: 6})),
    (TypeError, "name must be a str or None, not int",
     lambda: ucp_glue.Context(name=5)),
):
    text = raises(kind, call)
    assert text.startswith(start), text
ctx.close()
"""
    )


def test_a_range_comes_before_alignment(script):
    script(
        """
ctx, worker, ep = loop(errors=False)
memory = ctx.alloc(64)
remote = ep.unpack(memory.pack_rkey())
for offset in (-1, -4, 61, 65, 1 << 40):
    text = raises(ucp_glue.UcpCallerError, ep.fetch_add, remote, 1, offset=offset)
    assert f"8 bytes at offset {offset} of " in text, text
assert "multiple of 8" in raises(ValueError, ep.fetch_add, remote, 1, offset=4)
assert ep.fetch_add(remote, 1, offset=np.int64(56)).wait(PATIENCE) == 0
ctx.close()
"""
    )
