# SPDX-License-Identifier: BSD-3-Clause
"""Vbg: gates, circuits in one process and between several, reductions."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from uct_tofu import Backend, ReduceOp, UtofuBusyError, UtofuError, Vbg, VbgSetting

LONG = 60  # seconds: for what comes at once on a machine that is not busy

#: A participant of a butterfly of four, or of an own circuit for each; reads the
#: IDs of all, prints its results as JSON.
PARTICIPANT = """
import json, sys
import numpy as np
from uct_tofu import Backend, ReduceOp, Vbg, VbgSetting

rank, size = int(sys.argv[1]), 4
backend = Backend.load()
tnis = backend.barrier_tnis()
vbg = Vbg(backend, tnis[rank % len(tnis)], 2)
print(json.dumps(vbg.ids), flush=True)
ids = json.loads(sys.stdin.readline())
assert backend.vbg_info(ids[rank][1])["coords"] == backend.coords()
vbg.set(
    VbgSetting(
        vbg_id=ids[rank][s],
        src_lcl_vbg_id=ids[rank][1 - s],
        src_rmt_vbg_id=ids[rank ^ (2 - s)][1 - s],
        dst_lcl_vbg_id=ids[rank][1 - s],
        dst_rmt_vbg_id=ids[rank ^ (1 + s)][1 - s],
    )
    for s in range(2)
)
print("set", flush=True)
assert sys.stdin.readline() == "go\\n"
results = {}
vbg.barrier()
vbg.wait_barrier(60)
for op in list(ReduceOp)[1:]:  # the first is what barrier() does
    if op is ReduceOp.BFPSUM:
        vbg.reduce_double(op, np.array([rank + 0.5, -rank, 1e300 if rank else -3e300]))
        results[op.name] = vbg.wait_reduce_double(60).tolist()
    else:
        data = np.array([rank + 3, 10 + rank, 2**63 + rank, 3], np.uint64)
        vbg.reduce_uint64(op, data)
        results[op.name] = vbg.wait_reduce_uint64(60).tolist()
print(json.dumps(results), flush=True)
vbg.reduce_uint64(ReduceOp.SUM if rank else ReduceOp.MAX, [1])
try:
    vbg.wait_reduce_uint64(60)
    print("no error", flush=True)
except Exception as error:
    print(error.name, flush=True)
sys.stdin.readline()  # nobody frees before all are done
vbg.free()
"""


@pytest.fixture
def backend():
    return Backend.load()


@pytest.fixture
def circuit(backend):
    """A circuit of one: signals from gate to gate."""
    with Vbg(backend, backend.barrier_tnis()[0], 3) as vbg:
        ids = vbg.ids
        vbg.set(
            VbgSetting(
                ids[i], src_lcl_vbg_id=ids[i - 1], dst_lcl_vbg_id=ids[(i + 1) % 3]
            )
            for i in range(3)
        )
        yield vbg


def test_gates_are_described(backend):
    tni = backend.barrier_tnis()[-1]
    with Vbg(backend, tni, 4, thread_safe=True) as vbg:
        assert len(vbg) == len(set(vbg.ids)) == 4
        for number in vbg.ids:
            info = backend.vbg_info(number)
            assert info["tni"] == tni == vbg.tni
            assert info["coords"] == backend.coords()
        assert "4 VBGs" in repr(vbg)
    assert "freed" in repr(vbg)
    caps = backend.barrier_caps(tni)
    assert all(caps["reduce_ops"] & (1 << op) for op in ReduceOp)


def test_barrier_and_reductions(circuit):
    for _ in range(3):
        circuit.barrier()
        circuit.wait_barrier(LONG)
    circuit.barrier()
    while not circuit.poll_barrier():
        pass
    for data in ([1, 2, 2**64 - 1], np.array([5, 6], np.uint64), (7,)):
        circuit.reduce_uint64(ReduceOp.SUM, data)
        result = circuit.wait_reduce_uint64(LONG)
        assert result.dtype == np.uint64 and result.tolist() == list(data)
        result[0] = 0  # one's own
    circuit.reduce_double(ReduceOp.BFPSUM, [0.5, -2])
    while (result := circuit.poll_reduce_double()) is None:
        pass
    assert result.dtype == np.float64 and result.tolist() == [0.5, -2]
    circuit.reduce_uint64(ReduceOp.MAX, [8] * 6)
    while (result := circuit.poll_reduce_uint64()) is None:
        pass
    assert result.tolist() == [8] * 6


def test_wrong_data_is_refused_and_starts_nothing(circuit):
    for data, error in (
        ([1.5], TypeError),
        (np.array([1.0]), TypeError),
        (["1"], TypeError),
        (5, TypeError),
        ([-1], OverflowError),
        ([2**64], OverflowError),
        ([], UtofuError),
        ([1] * 7, UtofuError),
        (range(10**5), UtofuError),
    ):
        with pytest.raises(error):
            circuit.reduce_uint64(ReduceOp.SUM, data)
    for data, error in (
        ([None], TypeError),
        (["x"], TypeError),
        ([1.0] * 4, UtofuError),
    ):
        with pytest.raises(error):
            circuit.reduce_double(ReduceOp.BFPSUM, data)
    for start, op in (
        (circuit.reduce_uint64, ReduceOp.BFPSUM),
        (circuit.reduce_uint64, ReduceOp.BARRIER),
        (circuit.reduce_double, ReduceOp.SUM),
        (circuit.reduce_uint64, 99),
        (circuit.reduce_uint64, -1),
    ):
        with pytest.raises(UtofuError) as caught:
            start(op, [1])
        assert caught.value.name == "UTOFU_ERR_INVALID_OP"
    for poll in (
        circuit.poll_barrier,
        circuit.poll_reduce_uint64,
        circuit.poll_reduce_double,
        circuit.wait_barrier,
    ):
        with pytest.raises(UtofuBusyError, match="none of this kind was started"):
            poll()


def test_one_at_a_time(circuit):
    circuit.barrier()
    with pytest.raises(UtofuBusyError, match="one is under way"):
        circuit.reduce_uint64(ReduceOp.SUM, [1])
    circuit.wait_barrier(LONG)


def test_settings_are_checked(backend):
    tni = backend.barrier_tnis()[0]
    with Vbg(backend, tni, 2) as vbg, Vbg(backend, tni, 2) as other:
        first, second = vbg.ids
        for settings, error in (
            ([], UtofuError),
            ([VbgSetting(second)], UtofuError),
            ([VbgSetting(first), VbgSetting(other.ids[1])], UtofuError),
            ([VbgSetting(first, dst_lcl_vbg_id=12345)], UtofuError),
            ([VbgSetting(first)] * 3, UtofuError),
            ([VbgSetting(None)], UtofuError),
            ([VbgSetting("first")], TypeError),
            ([VbgSetting(first, 1.5)], TypeError),
            ([(first, -1)], OverflowError),
            ([VbgSetting(first, dst_path_coords=(0, 0))], ValueError),
            ([VbgSetting(first, dst_path_coords=(0, 0, 256))], OverflowError),
            ([()], TypeError),
            (5, TypeError),
        ):
            with pytest.raises(error):
                vbg.set(settings)
            with pytest.raises(UtofuError) as caught:
                vbg.barrier()
            assert caught.value.name == "UTOFU_ERR_NOT_AVAILABLE"
        with pytest.raises(UtofuError) as caught:
            far = other.ids[1]
            vbg.set([VbgSetting(first, dst_rmt_vbg_id=far, dst_path_coords=(0, 3, 0))])
        assert caught.value.name == "UTOFU_ERR_INVALID_PATH"


def test_gates_that_cannot_be_had(backend):
    tni = backend.barrier_tnis()[0]
    for arguments, error, word in (
        ((1000,), UtofuError, "TNI 1000"),
        ((tni, 0), UtofuError, "INVALID_NUMBER"),
        ((tni, 10**5), UtofuError, "UTOFU_ERR_FULL"),
        ((tni, -1), OverflowError, "negative"),
        ((tni, 2**62), MemoryError, "VBG IDs"),
    ):
        with pytest.raises(error, match=word):
            Vbg(backend, *arguments)


def test_wait_ends_and_keeps_the_gates(backend):
    """A gate whose packet never comes."""
    tni = backend.barrier_tnis()[0]
    with Vbg(backend, tni, 1) as vbg, Vbg(backend, tni, 1) as other:
        far = other.ids[0]
        vbg.set([VbgSetting(vbg.ids[0], src_rmt_vbg_id=far, dst_rmt_vbg_id=far)])
        vbg.barrier()
        assert vbg.poll_barrier() is False
        with pytest.raises(TimeoutError, match="utofu_poll_barrier.* 0.05 s.*VBGs"):
            vbg.wait_barrier(0.05)
        outcome = []

        def wait():
            try:
                vbg.wait_barrier(2)
            except TimeoutError:
                outcome.append("ended")

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        with pytest.raises(RuntimeError, match="waits on 1 VBGs"):
            vbg.free()
        thread.join(LONG)
        assert outcome == ["ended"]


def test_lifetimes(backend):
    tni = backend.barrier_tnis()[0]
    vbg = Vbg(backend, tni)
    vbg.free()
    vbg.free()
    for use in (lambda: vbg.ids, vbg.barrier, vbg.poll_barrier, lambda: vbg.set([])):
        with pytest.raises(RuntimeError, match="freed"):
            use()
    for _ in range(40):  # more than a TNI has
        forgotten = Vbg(backend, tni, 5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del forgotten
            gc.collect()
        assert [w.category for w in caught] == [ResourceWarning]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_after_fork_is_refused_and_harms_nothing(circuit):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            circuit.barrier()
        except RuntimeError as error:
            code = 0 if "fork" in str(error) else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    circuit.barrier()
    circuit.wait_barrier(LONG)


def test_between_processes(processes, job):
    """Four exchange their VBG IDs, and reduce by every operation."""
    started = [
        processes.start(
            [sys.executable, "-c", PARTICIPANT, str(rank)], stdin=subprocess.PIPE
        )
        for rank in range(4)
    ]

    def tell(text):
        for process in started:
            process.stdin.write(text + "\n")
            process.stdin.flush()

    def hear():
        return [process.stdout.readline().strip() for process in started]

    tell(json.dumps([json.loads(line) for line in hear()]))
    assert hear() == ["set"] * 4
    tell("go")
    results = [json.loads(line) for line in hear()]
    assert all(result == results[0] for result in results)
    (result, *_) = results
    values = [[r + 3, 10 + r, 2**63 + r, 3] for r in range(4)]
    columns = list(zip(*values, strict=True))
    assert result["SUM"] == [sum(column) % 2**64 for column in columns]
    assert result["MAX"] == [max(column) for column in columns]
    assert result["MAXLOC"] == values[3]
    assert result["BAND"] == [np.bitwise_and.reduce(np.array(c, "u8")) for c in columns]
    assert result["BOR"] == [np.bitwise_or.reduce(np.array(c, "u8")) for c in columns]
    assert result["BXOR"] == [np.bitwise_xor.reduce(np.array(c, "u8")) for c in columns]
    assert result["BFPSUM"] == [8.0, -6.0, 0.0]
    assert hear() == ["UTOFU_ERR_BARRIER_MISMATCH"] * 4
    tell("free")
    for process in started:
        assert process.wait(LONG) == 0


def test_wait_is_interrupted(processes, job):
    code = (
        "from uct_tofu import *\n"
        "b = Backend.load(); t = b.barrier_tnis()[0]\n"
        "v, w = Vbg(b, t), Vbg(b, t)\n"
        "v.set([VbgSetting(v.ids[0], src_rmt_vbg_id=w.ids[0])])\n"
        "v.barrier(); print('waiting', flush=True)\n"
        "try: v.wait_barrier()\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "v.free(); w.free()\n"
    )
    process = processes.start([sys.executable, "-c", code])
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LONG)
    assert out == "interrupted\n" and process.returncode == 0
