# SPDX-License-Identifier: BSD-3-Clause
"""Where an integer belongs a float is refused, not cut; what is not sent is told."""

import copy
import pickle
import threading
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from core_support import PATIENCE, loopback, queued_message

from uct_tofu import (
    Backend,
    Descriptors,
    Endpoint,
    Iface,
    MemoryDomain,
    OnesidedFlag,
    RemoteKey,
    RemoteMemory,
    TofuRangeError,
    Vbg,
    Vcq,
)

FLOATS = [1.5, 2.0, np.float64(8), np.float32(1), Decimal(8), Fraction(8), "8", None]


@pytest.fixture(scope="module")
def net():
    with loopback() as objects:
        yield objects


@pytest.mark.parametrize("value", FLOATS, ids=repr)
def test_raw_calls_refuse_what_is_no_integer(value):
    with Vcq(Backend.load(), 0) as vcq, vcq.reg_mem(bytearray(64)) as mem:
        for bad in range(4):
            arguments = [vcq.id, mem.stadd, mem.stadd, 8]
            arguments[bad] = value
            with pytest.raises(TypeError):
                vcq.put(*arguments)
        with pytest.raises(TypeError):
            vcq.put(vcq.id, mem.stadd, mem.stadd, 8, value)
        with pytest.raises(TypeError):
            vcq.armw8(vcq.id, 0, value, mem.stadd)
    with pytest.raises(TypeError):
        Vcq(Backend.load(), value)


@pytest.mark.parametrize("value", FLOATS, ids=repr)
def test_objects_refuse_what_is_no_integer(net, value):
    ep, remote, iface = net.ep, net.remote, net.iface
    calls = [
        lambda: ep.put_short(b"x", value, remote.key),
        lambda: ep.put_bcopy(b"x", value, remote.key),
        lambda: ep.get_bcopy(value, remote.address, remote.key),
        lambda: ep.am_short(1, value),
        lambda: ep.am_short(value, 1),
        lambda: ep.am(value, b""),
        lambda: ep.add(remote, value),
        lambda: ep.fetch_add(remote, 1, size=value),
        lambda: iface.set_message_handler(value, None),
        lambda: net.md.alloc(value),
        lambda: remote.at(value, "u1"),
        lambda: ep.compare_swap(remote, value, 1),
        lambda: remote.at(0, "u1", value),
        lambda: net.memory.array("u1", 1, offset=value),
    ]
    if value is not None:  # None is "not given"
        calls += [
            lambda: ep.put(b"x", remote, offset=value),
            lambda: ep.get(bytearray(1), remote, offset=value),
            lambda: ep.add(remote, 1, offset=value),
            lambda: Iface(net.md, tx_bounce=value),
            lambda: MemoryDomain(tni=value),
            lambda: MemoryDomain(tnis=[value]),
            lambda: net.memory.array("u1", value),
        ]
    for call in calls:
        with pytest.raises(TypeError):
            call()


def test_integers_of_every_kind_do(net):
    for value in (8, np.int64(8), np.uint8(8), np.array(8), True):
        net.ep.put(b"x", net.remote, offset=value).wait(PATIENCE)
        net.ep.put_short(b"x", np.uint64(net.remote.address), net.remote.key)
        net.ep.add(net.remote, value).wait(PATIENCE)
        net.ep.add(net.remote, value, size=4).wait(PATIENCE)
        assert net.memory.array("u1", [value, 1]).shape == (int(value), 1)
    assert net.memory.array("u1", np.int64(5)).shape == (5,)


def test_times_are_no_integers(net):
    with Iface(net.md) as idle, Endpoint(net.iface, idle.address) as ep:
        owner = threading.Thread(target=idle.claim)  # so that no wait of ours helps it
        owner.start()
        owner.join(PATIENCE)
        _check_times(queued_message(ep, 1, b"x"))
        idle.claim()
    assert net.ep.put(b"x", net.remote).wait(float("inf")) is None


def _check_times(request):
    for timeout in (0.0005, 0, -1, -0.5, np.float32(0.0001)):
        with pytest.raises(TimeoutError):
            request.wait(timeout)
    with pytest.raises(ValueError, match="NaN"):
        request.wait(float("nan"))
    for timeout in ("1", b"1", [1]):
        with pytest.raises(TypeError):
            request.wait(timeout)


def test_what_belongs_to_the_process_is_not_pickled(net):
    request = net.ep.put(b"x", net.remote)
    request.wait(PATIENCE)
    for item, hint in (
        (net.md, "make another"),
        (net.memory, r"export\(\)"),
        (net.remote, r"export\(\)"),
        (net.remote[:8], r"export\(\)"),
        (RemoteKey(net.memory.pack_rkey()), "pack_rkey"),
        (net.iface, "send its address"),
        (net.ep, "send the address"),
        (request, "Request"),
    ):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled") as told:
                attempt(item)
            assert told.match(hint)


def test_a_text_is_no_time(net):
    """In the same words as NaN."""
    request = net.ep.put(b"x", net.remote)
    with pytest.raises(TypeError, match="timeout must be .* or None, not str"):
        request.wait("1")
    request.wait(PATIENCE)


WRONG = pytest.mark.parametrize(
    "value",
    ["8", 1.5, -1, 2**64, 10**5000],
    ids=["text", "float", "negative", "large", "longest"],  # that can't be printed
)


@WRONG
def test_errors_name_the_argument(net, value):
    """Those of a typed argument of Cython do not."""
    ep, key, address = net.ep, net.remote.key, net.remote.address
    error = OverflowError if isinstance(value, int) else TypeError
    calls = [
        ("remote_addr", lambda: ep.put_short(b"x", value, key)),
        ("remote_addr", lambda: ep.put_bcopy(b"x", value, key)),
        ("remote_addr", lambda: ep.put_zcopy(net.memory, value, key)),
        ("remote_addr", lambda: ep.get_zcopy(net.memory, value, key)),
        ("remote_addr", lambda: ep.atomic_post(0, 1, value, key)),
        ("remote_addr", lambda: ep.atomic_cswap(0, 1, value, key)),
        ("length", lambda: ep.get_bcopy(value, address, key)),
        ("header", lambda: ep.am_short(1, value)),
        ("am_id", lambda: ep.am_short(value, 1)),
        ("am_id", lambda: ep.am_bcopy(value, b"")),
        ("size", lambda: ep.add(net.remote, 1, size=value)),
        ("size", lambda: ep.atomic_fetch(0, 1, address, key, size=value)),
        ("length", lambda: net.md.alloc(value)),
        ("tx_bounce", lambda: Iface(net.md, tx_bounce=value)),
        ("am_seg_size", lambda: Iface(net.md, am_seg_size=value)),
        ("am_backlog", lambda: Iface(net.md, am_backlog=value)),
        ("tni", lambda: MemoryDomain(tni=value)),
        ("stripe_thresh", lambda: MemoryDomain(stripe_thresh=value)),
        ("arena_chunk", lambda: MemoryDomain(arena_chunk=value)),
        ("tni", lambda: Vcq(Backend.load(), value)),
        ("cmp_id", lambda: Vcq(Backend.load(), 0, cmp_id=value)),
        ("count", lambda: Vbg(Backend.load(), 0, value)),
    ]
    if value != -1:  # in these it is an int, and outside of what can be
        calls += [
            ("am_id", lambda: ep.am(value)),
            ("am_id", lambda: net.iface.set_am_handler(value, None)),
            ("am_id", lambda: net.iface.messages(value)),
            ("an index in tnis", lambda: MemoryDomain(tnis=[value])),
        ]
    if error is TypeError:
        calls += [
            ("value", lambda: ep.add(net.remote, value)),
            ("compare", lambda: ep.compare_swap(net.remote, value, 1)),
        ]
    for name, call in calls:
        with pytest.raises(error, match=f"^{name} (must|is too)"):
            call()


POSTS = {
    "put": "lcl_stadd rmt_stadd length",
    "put_gap": "lcl_stadd rmt_stadd length mtu gap",
    "put_stride": "lcl_stadd rmt_stadd length stride num_blocks",
    "put_stride_gap": "lcl_stadd rmt_stadd length stride num_blocks mtu gap",
    "put_piggyback": "data rmt_stadd",
    "put_piggyback8": "value rmt_stadd length",
    "get": "lcl_stadd rmt_stadd length",
    "get_gap": "lcl_stadd rmt_stadd length mtu gap",
    "get_stride": "lcl_stadd rmt_stadd length stride num_blocks",
    "get_stride_gap": "lcl_stadd rmt_stadd length stride num_blocks mtu gap",
    "armw4": "op value rmt_stadd",
    "armw8": "op value rmt_stadd",
    "cswap4": "old_value new_value rmt_stadd",
    "cswap8": "old_value new_value rmt_stadd",
}


@WRONG
@pytest.mark.parametrize("method", POSTS)
def test_errors_of_posts_name_the_argument(method, value):
    error = OverflowError if isinstance(value, int) else TypeError
    with Vcq(Backend.load(), 0) as vcq, vcq.reg_mem(bytearray(64)) as mem:
        right = dict.fromkeys(["rmt_vcq_id", *POSTS[method].split()], 8)
        right |= {"rmt_vcq_id": vcq.id, "rmt_stadd": mem.stadd, "edata": 0, "flags": 0}
        if "data" in right:
            right["data"] = b"x"
        for target, more in ((vcq, {"cbdata": 0}), (Descriptors(vcq), {})):
            for name in (right | more).keys() - {"data"}:
                if name == "op" and value == -1:  # the library's to refuse
                    continue
                with pytest.raises(error, match=f"^{name} (must|is too)"):
                    getattr(target, method)(**(right | more | {name: value}))
        assert vcq.poll_tcq() is None and vcq.poll_mrq() is None
        if "data" in right:
            with pytest.raises(TypeError, match="^data must be a buffer .* not str"):
                getattr(vcq, method)(**(right | {"data": "text"}))


@WRONG
def test_errors_of_raw_calls_name_the_argument(value):
    error = OverflowError if isinstance(value, int) else TypeError
    backend = Backend.load()
    with Vcq(backend, 0) as vcq, Vbg(backend, 0) as vbg:
        at = vcq.id
        calls = [
            ("stag", lambda: vcq.reg_mem(bytearray(8), stag=value)),
            ("flags", lambda: vcq.nop(value)),
            ("cbdata", lambda: vcq.nop(0, value)),
            ("cbdata", lambda: vcq.post_toq(cbdata=value)),
            ("flags", lambda: Descriptors(vcq).nop(value)),
            ("tni", lambda: backend.onesided_caps(value)),
            ("tni", lambda: backend.barrier_caps(value)),
            ("tni", lambda: backend.construct_vcq_id([0] * 6, value, 0, 0)),
            ("cq", lambda: backend.construct_vcq_id([0] * 6, 0, value, 0)),
            ("cmp_id", lambda: backend.construct_vcq_id([0] * 6, 0, 0, value)),
            (
                r"coords\[5\]",
                lambda: backend.construct_vcq_id([0] * 5 + [value], 0, 0, 0),
            ),
            ("vcq_id", lambda: backend.vcq_info(value)),
            ("vcq_id", lambda: backend.query_stadd(value, 0)),
            ("stag", lambda: backend.query_stadd(at, value)),
            ("vcq_id", lambda: backend.set_vcq_id_path(value)),
            ("vcq_id", lambda: backend.path_id(value)),
            (r"path_coords\[1\]", lambda: backend.path_id(at, (0, value, 0))),
            ("vcq_id", lambda: backend.path_coords(value, 0)),
            ("path_id", lambda: backend.path_coords(at, value)),
            ("vbg_id", lambda: backend.vbg_info(value)),
            ("src_lcl_vbg_id", lambda: vbg.set([(vbg.ids[0], value)])),
            ("a value in data", lambda: vbg.reduce_uint64(6, [1, value])),
        ]
        if value != -1:
            calls += [
                ("op", lambda: vbg.reduce_uint64(value, [1])),
                ("op", lambda: vbg.reduce_double(value, [1])),
            ]
        if value in ("8", 10**5000):
            calls.append(("a value in data", lambda: vbg.reduce_double(7, [value])))
        for name, call in calls:
            with pytest.raises(error, match=f"^{name} (must|is too)"):
                call()


def test_errors_of_raw_calls_name_what_is_no_integer():
    backend = Backend.load()
    with (
        Vcq(backend, 0) as vcq,
        vcq.reg_mem(bytearray(64)) as mem,
        Vbg(backend, 0) as vbg,
    ):
        for text, call in (
            ("buffer must be a buffer .* not str", lambda: vcq.reg_mem("text")),
            ("offset must be an integer, not str", lambda: mem.stadd_at("x")),
            ("length must be an integer, not str", lambda: mem.stadd_at(0, "x")),
            ("path_id must be an integer, not str", lambda: OnesidedFlag.path("x")),
            ("steps must be an integer, not float", lambda: OnesidedFlag.sps(1.5)),
            (
                "path_coords must be a sequence .* int",
                lambda: backend.path_id(vcq.id, 5),
            ),
            ("settings must be an iterable .* int", lambda: vbg.set(5)),
            ("data must be a sequence of .* int", lambda: vbg.reduce_uint64(6, 5)),
            ("data must be a sequence of .* int", lambda: vbg.reduce_double(7, 5)),
        ):
            with pytest.raises(TypeError, match=f"^{text}"):
                call()
        with pytest.raises(ValueError, match="0 bytes from offset more than 2"):
            mem.stadd_at(10**5000)


@pytest.mark.parametrize("value", ["8", 1.5, b"8"], ids=repr)
def test_errors_of_objects_name_offsets_and_counts(net, value):
    ep, remote, memory = net.ep, net.remote, net.memory
    for name, call in (
        ("offset", lambda: ep.put(b"x", remote, offset=value)),
        ("offset", lambda: ep.get(bytearray(1), remote, offset=value)),
        ("offset", lambda: ep.put([(memory, 0, 8)], remote, offset=value)),
        ("offset", lambda: ep.add(remote, 1, offset=value)),
        ("offset", lambda: ep.compare_swap(remote, 1, 2, offset=value)),
        ("a piece's offset", lambda: ep.put([(memory, value, 8)], remote)),
        ("a piece's length", lambda: ep.put([(memory, 0, value)], remote)),
        ("index", lambda: remote.at(value, "u1")),
        ("count", lambda: remote.at(0, "u1", value)),
        ("offset", lambda: memory.array("u1", 1, offset=value)),
        ("a length in shape", lambda: memory.array("u1", [value])),
        ("kept_registrations", lambda: MemoryDomain(kept_registrations=value)),
    ):
        with pytest.raises(TypeError, match=f"^{name} must be an integer, not"):
            call()


def test_errors_of_objects_name_what_is_no_bytes(net):
    iface, ep = net.iface, net.ep
    for name, call in (
        ("address", lambda: Endpoint(iface, None)),
        ("device_address", lambda: Endpoint(iface, iface.address, 5)),
        ("device_address", lambda: iface.unreachable_reason("text")),
        ("address", lambda: iface.unreachable_reason(iface.device_address, 5)),
        ("address", lambda: ep.is_connected(5)),
        ("exported", lambda: RemoteMemory(5)),
        ("packed", lambda: RemoteKey("key")),
        ("header", lambda: ep.am(1, b"", header="text")),
        ("header", lambda: ep.am_zcopy(1, "text", net.memory)),
    ):
        with pytest.raises(TypeError, match=f"^{name} must be bytes-like, not "):
            call()
    with pytest.raises(TypeError, match="^tnis must be an iterable of .*, not int"):
        MemoryDomain(tnis=5)
    with pytest.raises(TypeError, match="^shape must be an integer or .*, not float"):
        net.memory.array("u1", 1.5)


def test_what_is_too_long_to_be_printed_is_told(net):
    """Python refuses to print such an integer, in words of its own."""
    huge = 10**5000
    for call in (
        lambda: net.ep.put(b"x", net.remote, offset=huge),
        lambda: net.ep.put([(net.memory, huge, 1)], net.remote),
        lambda: net.remote.at(huge, "u1"),
    ):
        with pytest.raises(TofuRangeError, match="more than 2"):
            call()
    with pytest.raises(OverflowError, match="^value is too large: -2147483648 to 429"):
        net.ep.add(net.remote, huge, size=4)
    with pytest.raises(OverflowError, match="^compare is too small"):
        net.ep.compare_swap(net.remote, -huge, 1)


def test_what_index_raises_is_raised(net):
    class Odd:
        def __index__(self):
            raise LookupError("odd")

    for call in (
        lambda: net.ep.put_short(b"x", Odd(), net.remote.key),
        lambda: net.ep.put(b"x", net.remote, offset=Odd()),
        lambda: net.ep.am(Odd()),
    ):
        with pytest.raises(LookupError, match="odd"):
            call()
    with Vcq(Backend.load(), 0) as vcq:
        for target in (vcq, Descriptors(vcq)):
            with pytest.raises(LookupError, match="odd"):
                target.put(vcq.id, 0, Odd(), 8)
