# SPDX-License-Identifier: BSD-3-Clause
"""Messages that nobody takes are bounded, and what goes beyond is told."""

BACKLOG = """
ctx, worker, ep = loop()
errors = []

def run(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        try:
            worker.progress()
        except ucp_glue.UcpSystemError as error:
            errors.append(str(error))

def send(inbox, count, size, **options):
    '''Messages that arrive or are dropped; how many are.'''
    before, dropped = len(inbox) + inbox.dropped, inbox.dropped
    requests = [ep.am_send(1, pattern(size, number), header=b"%d" % (number % 10),
                           **options) for number in range(count)]
    run(lambda: len(inbox) + inbox.dropped == before + count)
    run(lambda: all(request.done for request in requests))
    for request in requests:
        request.result()
    return inbox.dropped - dropped
"""


def test_messages_beyond_the_backlog_are_dropped(script):
    script(
        BACKLOG
        + """
inbox = worker.am_messages(1, backlog=10_000)
assert send(inbox, 30, 743) == 20               # 1000 bytes each, so 10 of them
assert len(inbox) == 10 and len(errors) == 1, errors
assert "UCS_ERR_NO_MEMORY" in errors[0] and "10 messages wait in" in errors[0]
assert "of AM id 1" in errors[0] and "backlog of 10000 bytes" in errors[0]
# the oldest stay; with room there is a new one, and the next drop is told again
for number in range(10):
    message = inbox.get(PATIENCE)
    assert message.header == b"%d" % number
    assert message.data == pattern(743, number).tobytes()
    if number < 2:
        assert send(inbox, 3, 743) == 2
assert len(errors) == 3 and len(inbox) == 2
# held by UCX as they come, larger than what there may be
assert send(inbox, 1, 20_000, protocol="eager") == 1
assert send(inbox, 1, 7_000, protocol="eager") == 0
assert len(inbox) == 3
for _ in range(3):
    inbox.get(PATIENCE)
# all that was admitted is free again: exactly as many fit as in the beginning
assert send(inbox, 11, 743) == 1 and len(inbox) == 10
inbox = worker.am_messages(1, backlog=0)
assert send(inbox, 1, 0) == 1
raises(ValueError, worker.am_messages, 1, backlog=-1)
raises(TypeError, worker.am_messages, 1, backlog=1.5)
ctx.close()
"""
    )


def test_announced_payloads_count_when_they_are_fetched(script):
    script(
        BACKLOG
        + """
import tracemalloc
inbox = worker.am_messages(1, backlog=2_500_000)
data = pattern(1_000_000)
tracemalloc.start()             # what Python allocates: the payloads
requests = [ep.am_send(1, data, header=b"h", protocol="rndv") for _ in range(12)]
run(lambda: len(inbox) + inbox.dropped == 12 and all(r.done for r in requests))
assert (len(inbox), inbox.dropped) == (2, 10)
assert tracemalloc.get_traced_memory()[1] < 3_000_000
assert len(errors) == 1 and "one of 1000001 bytes" in errors[0], errors
for _ in range(2):
    assert inbox.get(PATIENCE).data == data.tobytes()
assert send(inbox, 3, 1_000_000, protocol="rndv") == 1
# these stay with their sender until they are wanted
later = worker.am_messages(1, rendezvous="explicit", backlog=1_000)
requests = [ep.am_send(1, pattern(1_000_000), protocol="rndv") for _ in range(5)]
run(lambda: len(later) + later.dropped == 5)
assert (len(later), later.dropped) == (3, 2)
while len(later):
    message = later.get(PATIENCE)
    assert message.recv().wait(PATIENCE) == pattern(1_000_000).tobytes()
for request in requests:
    request.wait(PATIENCE)
ctx.close()
"""
    )


def test_what_is_no_time(script):
    """A text, and NaN, for which closing a worker took for ever."""
    script(
        """
ctx, worker, ep = loop()
inbox = worker.am_messages(1)
for wait in (inbox.get, worker.wait, lambda time: worker.close(timeout=time),
             lambda time: ctx.close(timeout=time)):
    for time_, error in (("1", TypeError), ([], TypeError), (float("nan"), ValueError)):
        text = raises(error, wait, time_)
        assert "timeout must be a number of seconds or None, not " in text, text
ctx.close(timeout=None)
"""
    )
