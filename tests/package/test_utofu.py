# SPDX-License-Identifier: BSD-3-Clause
"""Loader, and the uTofu API as Python objects."""

import gc
import json
import os
import subprocess
import sys
import time
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest

import uct_tofu
from uct_tofu import ArmwOp, Backend, MrqType, OnesidedFlag, UtofuError, Vcq

ABI = json.loads(
    (Path(__file__).resolve().parent.parent / "abi" / "utofu_abi.json").read_text()
)
NOTICES = (
    OnesidedFlag.TCQ_NOTICE
    | OnesidedFlag.LOCAL_MRQ_NOTICE
    | OnesidedFlag.REMOTE_MRQ_NOTICE
)


def python(code, timeout=60, **env):
    """Run code in a new interpreter; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def backend():
    return Backend.load()


@pytest.fixture
def vcqs(backend):
    """Two VCQs of this process."""
    tni = backend.onesided_tnis()[0]
    with Vcq(backend, tni) as first, Vcq(backend, tni) as second:
        yield first, second


def drain(poll, count, timeout=10.0):
    """Poll until there are `count` results, then make sure there is no more."""
    found, deadline = [], time.monotonic() + timeout
    while len(found) < count:
        item = poll()
        if item is not None:
            found.append(item)
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
    assert poll() is None
    return found


# ------------------------------------------------------------------- loader


def test_backend_is_described(backend):
    assert backend.kind in ("tofu", "emulator")
    assert Path(backend.path).is_file()
    assert backend.reason
    assert backend.utofu_version == (1, 0)
    assert len(backend.coords()) == 6
    tnis = backend.onesided_tnis()
    assert tnis
    caps = backend.onesided_caps(tnis[0])
    fields = {
        field["name"] for field in ABI["structs"]["utofu_onesided_caps"]["fields"]
    }
    assert set(caps) == fields
    assert caps["max_putget_size"] == 16777215
    assert caps["max_piggyback_size"] == 32


def test_backend_cannot_be_made_by_hand():
    with pytest.raises(TypeError):
        Backend()


def test_emulator_is_the_packaged_file():
    path = python(
        "import uct_tofu; print(uct_tofu.Backend.load().path)",
        UCT_TOFU_BACKEND="emulator",
    ).strip()
    assert Path(path).samefile(uct_tofu.emulator_path())


def test_unknown_choice_names_the_variable():
    out = python(
        "import uct_tofu\n"
        "try: uct_tofu.Backend.load()\n"
        "except RuntimeError as e: print(e)",
        UCT_TOFU_BACKEND="nonsense",
    )
    assert "nonsense" in out


def test_missing_machine_library_is_an_error():
    """ "tofu" never falls back to the emulator."""
    out = python(
        "import uct_tofu\n"
        "try: print(uct_tofu.Backend.load('tofu').kind)\n"
        "except RuntimeError as e: print('refused:', e)"
    )
    assert out.startswith("refused: ") or out == "tofu\n"


def test_packaged_emulator_on_the_path_is_not_the_machine(lib_dir):
    """Found by the machine's name, our file is still the emulator."""
    out = python(
        "import uct_tofu; print(uct_tofu.Backend.load().kind)",
        LD_LIBRARY_PATH=str(lib_dir),
        UCT_TOFU_BACKEND="auto",
    )
    assert out == "emulator\n"


def test_second_choice_must_agree():
    out = python(
        "import uct_tofu\n"
        "uct_tofu.Backend.load('emulator'); uct_tofu.Backend.load()\n"
        "uct_tofu.Backend.load('emulator')\n"
        "try: uct_tofu.Backend.load('tofu')\n"
        "except RuntimeError as e: print('refused')",
        UCT_TOFU_BACKEND="auto",
    )
    assert out == "refused\n"


def test_importing_loads_no_library():
    out = python(
        "import uct_tofu, ucp_glue\n"
        "maps = open('/proc/self/maps').read()\n"
        "print([name for name in ('libtofucom', 'libucs') if name in maps])"
    )
    assert out == "[]\n"


# ---------------------------------------------------------------------- VCQ


def test_vcq_id_and_parts(backend, vcqs):
    first, second = vcqs
    assert first.id != second.id
    info = backend.vcq_info(first.id)
    assert info["coords"] == backend.coords()
    assert info["tni"] == first.tni


def test_put_notices_and_data(vcqs):
    first, second = vcqs
    source = np.arange(1000, dtype=np.uint8)
    target = np.zeros(1200, dtype=np.uint8)
    with first.reg_mem(source) as lcl, second.reg_mem(target) as rmt:
        first.put(
            second.id,
            lcl.stadd,
            rmt.stadd + 100,
            1000,
            edata=7,
            flags=NOTICES,
            cbdata=0x1234,
        )
        assert drain(first.poll_tcq, 1) == [0x1234]
        (local,) = drain(first.poll_mrq, 1)
        (remote,) = drain(second.poll_mrq, 1)
        assert (local.type, local.vcq_id, local.edata) == (
            MrqType.LCL_PUT,
            second.id,
            7,
        )
        assert (remote.type, remote.vcq_id, remote.edata) == (
            MrqType.RMT_PUT,
            first.id,
            7,
        )
        assert remote.rmt_stadd == rmt.stadd + 1100
        assert (target[100:1100] == source).all()
        assert not target[:100].any() and not target[1100:].any()


def test_piggyback_get_and_atomics(vcqs):
    first, second = vcqs
    target = np.zeros(64, dtype=np.uint8)
    fetched = np.zeros(64, dtype=np.uint8)
    words = target.view(np.uint64)
    with second.reg_mem(target) as rmt, first.reg_mem(fetched) as lcl:
        local = OnesidedFlag.LOCAL_MRQ_NOTICE
        first.put_piggyback(second.id, b"twelve bytes", rmt.stadd, flags=local)
        first.put_piggyback8(second.id, 0x0102030405060708, rmt.stadd + 16, flags=local)
        drain(first.poll_mrq, 2)
        assert target[:12].tobytes() == b"twelve bytes"
        assert words[2] == 0x0102030405060708
        first.get(second.id, lcl.stadd, rmt.stadd, 64, flags=local)
        (notice,) = drain(first.poll_mrq, 1)
        assert notice.type == MrqType.LCL_GET and notice.lcl_stadd == lcl.stadd + 64
        assert (fetched == target).all()
        words[4] = 40
        first.armw8(second.id, ArmwOp.ADD, 2, rmt.stadd + 32, flags=local)
        first.cswap8(second.id, 42, 99, rmt.stadd + 32, flags=local)
        first.armw4(second.id, ArmwOp.XOR, 0xFFFFFFFF, rmt.stadd + 40, flags=local)
        first.cswap4(second.id, 1, 2, rmt.stadd + 40, flags=local)
        notices = drain(first.poll_mrq, 4)
        assert [n.rmt_value for n in notices] == [40, 42, 0, 0xFFFFFFFF]
        assert words[4] == 99
        first.nop(OnesidedFlag.TCQ_NOTICE, cbdata=5)
        assert 5 in drain(first.poll_tcq, 1)


def test_reserved_stag_is_predictable(backend, vcqs):
    first, second = vcqs
    alignment = backend.onesided_caps(first.tni)["stag_address_alignment"]
    raw = np.zeros(3 * alignment, dtype=np.uint8)
    start = -raw.ctypes.data % alignment
    with second.reg_mem(raw[start : start + alignment], stag=9) as mem:
        assert mem.stadd == backend.query_stadd(second.id, 9)


def test_refused_calls_name_call_and_code(backend, vcqs):
    first, second = vcqs
    with pytest.raises(UtofuError) as caught:
        Vcq(backend, 1000)
    assert caught.value.call == "utofu_create_vcq"
    assert caught.value.name == "UTOFU_ERR_INVALID_TNI_ID"
    assert caught.value.code == ABI["enums"]["utofu_return_code"][caught.value.name]
    assert "1000" in str(caught.value)
    with pytest.raises(UtofuError) as caught:
        first.put_piggyback(second.id, bytes(33), 0)
    assert caught.value.name == "UTOFU_ERR_INVALID_SIZE"


def test_failed_operation_carries_its_notice(vcqs):
    first, second = vcqs
    source = np.zeros(64, dtype=np.uint8)
    target = np.zeros(64, dtype=np.uint8)
    with first.reg_mem(source) as lcl:
        gone = second.reg_mem(target)
        stadd = gone.stadd
        gone.dereg()
        first.put(
            second.id,
            lcl.stadd,
            stadd,
            64,
            edata=3,
            flags=OnesidedFlag.LOCAL_MRQ_NOTICE,
        )
        deadline = time.monotonic() + 10
        with pytest.raises(UtofuError) as caught:
            while time.monotonic() < deadline:
                assert first.poll_mrq() is None
        assert caught.value.name == "UTOFU_ERR_MRQ_RMT_STADD"
        assert caught.value.notice.edata == 3
        assert caught.value.notice.vcq_id == second.id


# ---------------------------------------------------------------- lifetimes


def test_vcq_refuses_to_go_before_its_memory(backend):
    vcq = Vcq(backend, backend.onesided_tnis()[0])
    mem = vcq.reg_mem(bytearray(100))
    with pytest.raises(RuntimeError, match="1 registered"):
        vcq.free()
    mem.dereg()
    mem.dereg()
    vcq.free()
    vcq.free()
    with pytest.raises(RuntimeError, match="freed"):
        vcq.id
    with pytest.raises(RuntimeError, match="deregistered"):
        mem.stadd


def test_registered_buffer_is_held(backend):
    with Vcq(backend, backend.onesided_tnis()[0]) as vcq:
        buffer = bytearray(100)
        with vcq.reg_mem(buffer):
            with pytest.raises(BufferError):
                buffer.extend(b"x")
        buffer.extend(b"x")
        array = np.zeros(10)
        alive = weakref.ref(array)
        mem = vcq.reg_mem(array)
        del array
        gc.collect()
        assert alive() is not None
        mem.dereg()
        gc.collect()
        assert alive() is None


def test_unsuitable_buffers_are_refused(vcqs):
    first, _ = vcqs
    with pytest.raises(BufferError):
        first.reg_mem(b"read-only")
    with first.reg_mem(b"read-only", read_only=True) as mem:
        assert mem.length == 9
    with pytest.raises((BufferError, ValueError)):
        first.reg_mem(np.zeros((8, 8))[:, ::2])
    with pytest.raises(UtofuError):
        first.reg_mem(bytearray())
    with pytest.raises(TypeError):
        first.reg_mem("text")


def test_forgotten_objects_warn_and_are_freed(backend):
    """Even as a cycle that only the collector finds."""
    tni = backend.onesided_tnis()[0]
    for _ in range(100):  # more than a TNI has VCQs
        vcq = Vcq(backend, tni)
        mem = vcq.reg_mem(bytearray(4096))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del vcq, mem
            gc.collect()
        assert sum(issubclass(w.category, ResourceWarning) for w in caught) == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_after_fork_is_refused_and_harms_nothing(backend):
    with Vcq(backend, backend.onesided_tnis()[0]) as vcq:
        mem = vcq.reg_mem(bytearray(100))
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                vcq.poll_mrq()
            except RuntimeError as error:
                code = 0 if "fork" in str(error) else 2
            del mem, vcq
            gc.collect()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        vcq.put_piggyback8(vcq.id, 1, mem.stadd, flags=OnesidedFlag.LOCAL_MRQ_NOTICE)
        drain(vcq.poll_mrq, 1)
        mem.dereg()
