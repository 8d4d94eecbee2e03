# SPDX-License-Identifier: BSD-3-Clause
"""The end of a "with" block, and memory of exactly the length asked for."""

import threading

import numpy as np
import pytest

from uct_tofu import (
    Backend,
    Endpoint,
    Iface,
    MemoryDomain,
    RemoteMemory,
    TofuBufferError,
    TofuInUseError,
    TofuRangeError,
    TofuThreadError,
    Vcq,
)


class Mistake(Exception):
    """Of the program in the block."""


def test_what_stopped_the_block_comes_out():
    """Not that its views and endpoints were still there; all can be closed later."""
    with (
        pytest.raises(Mistake) as caught,
        MemoryDomain() as md,
        Iface(md) as iface,
        md.alloc(100) as memory,
    ):
        ep = Endpoint(iface, iface.address)
        view = memory.array()
        raise Mistake
    assert caught.value.__context__ is None
    assert not view.any() and ep.flush().wait(30) is None
    with pytest.raises(TofuBufferError):
        memory.close()
    del view
    for item in (memory, ep, iface, md):
        item.close()


def test_a_block_that_ends_well_says_what_is_left():
    """The memory's error, and not those of all around it."""
    with (
        pytest.raises(TofuBufferError, match="1 views; delete the arrays") as caught,
        MemoryDomain() as md,
        Iface(md),
        md.alloc(100) as memory,
    ):
        view = memory.array()
    assert caught.value.__context__ is None
    del view
    memory.close()
    md.close()


def test_an_endpoint_that_is_left_is_said():
    left = pytest.raises(TofuInUseError, match="1 Endpoint open")
    with left, MemoryDomain() as md, Iface(md) as iface:
        ep = Endpoint(iface, iface.address)
    for item in (ep, iface, md):
        item.close()


def test_vcq():
    backend = Backend.load()
    buffer = np.zeros(8)
    tni = backend.onesided_tnis()[0]
    with pytest.raises(Mistake) as caught, Vcq(backend, tni) as vcq:
        memory = vcq.reg_mem(buffer)
        raise Mistake
    assert caught.value.__context__ is None
    assert vcq.id  # open still
    memory.dereg()
    vcq.free()
    with pytest.raises(RuntimeError, match="1 registered"), Vcq(backend, tni) as vcq:
        memory = vcq.reg_mem(buffer)
    memory.dereg()
    vcq.free()


def test_other_exceptions_are_not_hidden():
    """Only that something is in use gives way, here it is the wrong thread."""
    result = []
    with MemoryDomain() as md:
        iface = Iface(md)

        def work():
            try:
                with iface:
                    raise Mistake
            except TofuThreadError as error:
                result.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        iface.close()
    assert isinstance(result[0].__context__, Mistake)


def test_memory_is_as_long_as_asked():
    with MemoryDomain() as md, Iface(md) as iface, md.alloc(1000) as memory:
        assert len(memory) == memory.array().size == len(memoryview(memory)) == 1000
        assert memory.array("f8").shape == (125,)
        with (
            Endpoint(iface, iface.address) as ep,
            RemoteMemory(memory.export()) as remote,
        ):
            assert len(remote) == remote.size == 1000
            ep.put(b"x" * 1000, remote).wait(30)
            assert bytes(memory) == b"x" * 1000
            with pytest.raises(TofuRangeError):
                ep.put(b"x", remote, offset=1000)
