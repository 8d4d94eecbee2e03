# SPDX-License-Identifier: BSD-3-Clause
"""Each test of each layer runs, verifies its data, and gives a record.

The kernels verify what arrives (bytes, counts, order, old values of atomics), so a
run that ends well has moved its data.  No speed is judged.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import uct_tofu
from uct_tofu.perf import kernels, runner

LAYOUTS = ("short", "bcopy", "zcopy", "contig")
NEEDED = {
    "utofu": {"put_lat", "put_bw", "put_rate", "get_lat", "get_bw", "add_lat"}
    | {"add_mr", "fadd", "swap", "cswap", "pingpong_flag", "pingpong_mrq"}
    | {"mt_pingpong", "gups", "barrier", "reduce", "reg_mem"},
    "uct": {"put_lat", "put_bw", "get_lat", "get_bw", "am_lat", "am_bw", "fadd"}
    | {"swap", "cswap", "add_lat", "add_mr", "pingpong_flag", "mt_pingpong", "gups"}
    | {"many_to_one", "reg_mem", "ep_create", "put_rate"},
    "ucp": {"put_lat", "put_bw", "get_lat", "get_bw", "am_lat", "am_bw", "tag_lat"}
    | {"tag_bw", "stream_lat", "stream_bw", "add_mr", "fadd", "swap", "cswap"}
    | {"pingpong_flag", "gups", "many_to_one", "reg_mem", "ep_create"},
}
NEEDED["libuct"] = NEEDED["uct"]


def check(record, test, layer, transport):
    """The common rules for a record."""
    assert record["schema"] == "uct-tofu-perf/1" and record["test"] == test
    assert record["layer"] == layer and record["transport"] == transport
    layouts = (None,) if test in runner.NO_LAYOUT else LAYOUTS
    assert record["layout"] in layouts and record["clock"] == "wall"
    assert record["versions"]["uct_tofu"] == uct_tofu.__version__
    assert set(record["host"]) == {"system", "machine", "cpu", "cores"}
    assert len(record["pinning"]) == record["processes"] * record["threads"]
    assert record["repeats"] == len(record["spread"]["values"])
    assert all(value > 0 for value in record["spread"]["values"])
    latency = record["latency"]
    assert latency["min"] > 0
    order = [latency[key] for key in ("min", "p50", "p90", "p99", "p99.9", "max")]
    assert order == sorted(order), latency
    assert latency["min"] <= latency["mean"] <= latency["max"]
    if "step" not in record["params"]:
        assert record["rate"] > 0
    if test in runner.BANDWIDTH:
        assert record["bandwidth"] == pytest.approx(record["rate"] * record["size"])
    else:
        assert record["bandwidth"] is None
    assert json.loads(json.dumps(record)) == record


def quick(test, layer, transport="utofu", **kwargs):
    kwargs.setdefault("repeats", 1)
    kwargs.setdefault("iterations", 200)
    return runner.run(test, layer=layer, transport=transport, **kwargs)


def names_of(layer):
    try:
        return kernels.tests_of(layer)
    except kernels.NotThereError:
        return ()


@pytest.mark.parametrize("layer", NEEDED)
def test_a_layer_has_its_tests(layer):
    assert NEEDED[layer] <= set(runner.tests(layer)[layer])


@pytest.mark.parametrize(
    ("layer", "test"),
    [(layer, test) for layer in kernels.LAYERS for test in names_of(layer)],
)
def test_each_test_runs(layer, test):
    transport = "mpi" if layer == "mpi" else "utofu"
    sizes = runner.default_sizes(test)[:4:3]  # at most 8 B and 4 KiB
    records = quick(test, layer, transport, sizes=sizes)
    assert records
    for record in records:
        check(record, test, layer, transport)
    if layer == "mpi":
        assert records[0]["backend"] is None and records[0]["versions"]["mpi"]
        return
    backend = records[0]["backend"]
    assert backend["kind"] == "emulator" and backend["mode"] == "fast"
    assert backend["library"] == "libtofucom.so" and backend["profile"] is None
    assert ("ucx" in records[0]["versions"]) == (layer in ("libuct", "ucp"))
    steps = [record["params"].get("step") for record in records]
    if test == "reg_mem":
        assert steps == ["first", "again", "dereg"]
    elif test == "ep_create":
        assert steps == ["create", "destroy"]
    else:
        assert not any(steps)


def test_mpi_is_skipped_in_words(monkeypatch):
    from uct_tofu.perf import mpi_kernel

    monkeypatch.setenv("MPICC", "no-such-compiler")
    for cached in (mpi_kernel.program, mpi_kernel._launcher, kernels.tests_of):
        cached.cache_clear()
    try:
        with pytest.raises(runner.NotThereError, match="no-such-compiler"):
            quick("put_lat", "mpi", "mpi")
        assert runner.tests()["mpi"] == []
    finally:
        for cached in (mpi_kernel.program, mpi_kernel._launcher, kernels.tests_of):
            cached.cache_clear()


@pytest.mark.parametrize(
    ("test", "transport", "layout"),
    [
        ("put_lat", "sysv", "short"),
        ("put_bw", "posix", "bcopy"),
        ("am_bw", "posix", "bcopy"),
        ("fadd", "sysv", None),
        ("put_lat", "cma", "zcopy"),
        ("am_lat", "tcp", "short"),
        ("put_bw", "utofu", "bcopy"),
        ("am_bw", "utofu", "zcopy"),
    ],
)
def test_transports_of_libuct(test, transport, layout):
    (record,) = quick(test, "libuct", transport, layout=layout, sizes=[64])
    check(record, test, "libuct", transport)
    assert (record["backend"] is None) == (transport != "utofu")


@pytest.mark.parametrize("tls", ["sysv", "tcp", "posix,cma"])
def test_transports_of_ucp(tls):
    for size in (8, 100_000):
        (record,) = quick("tag_bw", "ucp", tls, sizes=[size])
        check(record, "tag_bw", "ucp", tls)
        assert record["size"] == size and record["backend"] is None


def test_the_ucx_of_the_environment_goes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    wheel = kernels.environment("ucp", "utofu")["LD_LIBRARY_PATH"]
    assert wheel.split(":")[1:] == [str(tmp_path)]  # behind that of the wheel
    (tmp_path / "libuct.so.0").touch()
    own = kernels.environment("ucp", "utofu")["LD_LIBRARY_PATH"]
    assert own == str(tmp_path)
    monkeypatch.setenv("UTOFU_EMU_TIMING", "tofud")
    assert "UTOFU_EMU_TIMING" not in kernels.environment("ucp", "utofu")
    assert kernels.environment("ucp", "sysv")["UCX_TLS"] == "sysv"


@pytest.mark.parametrize("size", [1, 7, 8, 9, 32])
def test_short_sizes(size):
    """piggyback8, piggyback and utofu_put"""
    for layout in ("short", "zcopy"):
        (record,) = quick("put_lat", "utofu", sizes=[size], layout=layout)
        assert record["layout"] == layout and record["size"] == size


def test_large_sizes():
    for layer in ("utofu", "uct", "ucp"):
        quick("put_bw", layer, sizes=[1 << 20], iterations=20)
        quick("get_bw", layer, sizes=[1 << 20], iterations=20)


@pytest.mark.parametrize("layer", ["utofu", "uct", "libuct", "ucp"])
def test_threads(layer):
    for test in ("mt_pingpong", "gups"):
        (record,) = quick(test, layer, threads=2, iterations=50)
        check(record, test, layer, "utofu")
        assert record["threads"] == 2


def test_many_processes():
    for test, layer in (("many_to_one", "uct"), ("gups", "utofu"), ("gups", "uct")):
        params = {"senders": 4} if test == "many_to_one" else {"processes": 5}
        (record,) = quick(test, layer, params=params)
        assert record["processes"] == 5
    for count in (3, 4, 6):
        for test in ("barrier", "reduce"):
            (record,) = quick(test, "utofu", params={"processes": count}, iterations=20)
            assert record["processes"] == count


def test_records_of_repeats():
    seen = []
    records = runner.run(
        "put_bw",
        layer="uct",
        sizes=[8, 4096],
        repeats=3,
        seconds=0.005,
        window=4,
        progress=lambda *args: seen.append(args),
    )
    assert [record["size"] for record in records] == [8, 4096]
    for record in records:
        check(record, "put_bw", "uct", "utofu")
        assert record["repeats"] == 3 and record["window"] == 4
        values = record["spread"]["values"]
        assert record["rate"] == sorted(values)[1]
        assert record["spread"]["relative"] == pytest.approx(
            (max(values) - min(values)) / sorted(values)[1]
        )
        assert record["counters"]["posts"] > record["iterations"]
    assert [args[:2] for args in seen] == [(i, 6) for i in range(1, 7)]


def timed_until(is_enough, **kwargs):
    """Records of fadd in the timed mode, until one is as it has to be.

    A thread that the scheduler has held up takes no time for operations until its
    clock has caught up (docs/timing.md), so one run on a busy machine says little.
    """
    for _ in range(20):
        (record,) = quick("fadd", "utofu", mode="timed", iterations=500, **kwargs)
        if is_enough(record["latency"]["p50"]):
            return record
    pytest.fail(f"{kwargs}: {record['latency']}")


def test_timed_mode_and_hops():
    """The timed mode takes the machine's time at least; how near is not judged."""
    record = timed_until(lambda p50: 1.2e-6 < p50 < 1.45e-6)  # armw8, round trip
    assert record["backend"]["mode"] == "timed"
    assert record["backend"]["profile"] == "tofud"
    assert record["params"]["hops"] == 1
    assert timed_until(lambda p50: p50 > 1.55e-6, hops=3)["params"]["hops"] == 3
    (fast,) = quick("fadd", "utofu", iterations=500)
    assert fast["latency"]["min"] < 1.0e-6


def test_hops_of_the_machine_are_what_is_told(monkeypatch):
    """The runner does not choose nodes there, so it knows no distance by itself."""
    facts = kernels.facts

    def of_the_machine(*words, **named):
        found = facts(*words, **named)
        return {**found, "backend": {**found["backend"], "kind": "tofu"}}

    monkeypatch.setattr(kernels, "facts", of_the_machine)
    (record,) = quick("fadd", "utofu")
    assert record["backend"]["kind"] == "tofu" and "hops" not in record["params"]
    (record,) = quick("fadd", "utofu", hops=3)
    assert record["params"]["hops"] == 3


def test_a_profile_is_named_without_its_folder(tmp_path):
    profile = tmp_path / "slow.profile"
    profile.write_text("armw = 20000\n")
    record = timed_until(lambda p50: p50 > 19e-6, profile=str(profile))
    assert record["backend"]["profile"] == "slow.profile"


def test_six_tnis_to_six_neighbours():
    (record,) = quick(
        "put_bw", "utofu", sizes=[4096], window=4, params={"tnis": 6, "inject": 1}
    )
    assert record["processes"] == 7 and record["params"]["tnis"] == 6
    assert record["params"]["inject"] == 1


@pytest.mark.parametrize("options", [{"warmup": 1}, {"iterations": 2}])
def test_each_target_gets_a_put_in_short_phases(options):
    """Phases of fewer puts than TNIs: warm-up, and trials where time decides."""
    (record,) = quick("put_bw", "utofu", sizes=[8], params={"tnis": 6}, **options)
    assert record["processes"] == 7


def test_names_of_ucx_perftest():
    assert quick("ucp_get", "ucp")[0]["test"] == "get_lat"
    assert runner.canonical("get", "uct") == "get_lat"
    assert runner.canonical("ucp_add", "ucp") == "add_mr"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"test": "nonsense"}, runner.NotThereError, "no test 'nonsense'"),
        ({"layer": "ether"}, ValueError, "layers are utofu"),
        ({"mode": "slow"}, ValueError, "fast and timed"),
        ({"sizes": [0]}, ValueError, "size 0"),
        ({"sizes": []}, ValueError, "a size"),
        ({"repeats": 0}, ValueError, "repeats"),
        ({"hops": 8}, ValueError, "7 hops"),
        ({"transport": "sysv"}, ValueError, "has the transport utofu"),
        ({"params": {"colour": 1}}, ValueError, "unknown params colour"),
        ({"params": {"processes": 3}}, runner.KernelError, "has 2 processes"),
        ({"cpus": [4095]}, ValueError, "CPU 4095"),
        ({"layout": "short", "sizes": [33]}, runner.KernelError, "takes 32 bytes"),
        ({"sizes": [1 << 24], "layer": "utofu"}, runner.KernelError, "16777215"),
        (
            {"layer": "libuct", "transport": "sysv", "layout": "zcopy"},
            runner.NotThereError,
            "sysv has no such operation of layout zcopy",
        ),
        (
            {"layer": "libuct", "transport": "aether"},
            runner.NotThereError,
            "no transport aether",
        ),
        (
            {"layer": "libuct", "transport": "sysv", "mode": "timed"},
            ValueError,
            "no timed mode",
        ),
        ({"test": "am_lat", "sizes": [4]}, runner.KernelError, "at least 8"),
        (
            {"mode": "timed", "profile": "/no/file"},
            runner.KernelError,
            "UTOFU_EMU_TIMING: can't open",
        ),
    ],
)
def test_errors_are_in_words(arguments, error, words):
    arguments = {"test": "put_lat", "layer": "uct", **arguments}
    with pytest.raises(error, match=words) as raised:
        quick(arguments.pop("test"), **arguments)
    if error is not ValueError and "test" not in arguments:
        assert arguments["layer"] in str(raised.value)


def _kernels_of(job):
    """Process ids whose environment has this job."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if f"UTOFU_EMU_JOB={job}".encode() in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                pass
    return found


@pytest.mark.parametrize("victim", ["parent", "child"])
def test_a_killed_kernel_takes_the_others_with_it(processes, victim):
    env = kernels.environment("uct", "utofu")
    job = env["UTOFU_EMU_JOB"]
    command = [*kernels.kernel("uct"), "--test=put_lat", "--iterations=1000000000"]
    kernel = processes.start([*command, "--limit=100"], env=env)
    deadline = time.monotonic() + 60
    while len(_kernels_of(job)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.5)
    ids = _kernels_of(job)
    assert len(ids) == 2 and kernel.pid in ids
    child = next(number for number in ids if number != kernel.pid)
    os.kill(kernel.pid if victim == "parent" else child, signal.SIGKILL)
    output, _ = kernel.communicate(timeout=60)
    if victim == "child":
        assert kernel.returncode == 1 and "was killed" in output
    while _kernels_of(job) and time.monotonic() < deadline + 60:
        time.sleep(0.01)
    assert not _kernels_of(job)


def test_a_run_that_takes_too_long_is_ended():
    env = kernels.environment("uct", "utofu")
    command = [*kernels.kernel("uct"), "--test=put_lat", "--iterations=1000000000"]
    with pytest.raises(kernels.KernelError, match="within its limit"):
        kernels.execute([*command, "--limit=1"], env, 60, what="put_lat")
    with pytest.raises(kernels.KernelError, match="did not end within 1 s"):
        kernels.execute([*command, "--limit=100"], env, 1, what="put_lat")
    assert not _kernels_of(env["UTOFU_EMU_JOB"])


BIG = """
import os, sys, time
if not os.fork():
    kept = b"x" * (1 << 28)
    with open(sys.argv[1], "w") as file:
        print(os.getpid(), file=file)
time.sleep(60)
"""


def test_a_child_that_takes_long_to_end_is_waited_for(tmp_path):
    """One that was killed is there until its memory is given back."""
    env, file = kernels.environment("uct", "utofu"), tmp_path / "id"
    for _ in range(3):
        with pytest.raises(kernels.KernelError, match="did not end within 3 s"):
            kernels.execute([sys.executable, "-c", BIG, str(file)], env, 3, what="big")
        with contextlib.suppress(FileNotFoundError):  # else only a zombie may be left
            stat = Path(f"/proc/{file.read_text().strip()}/stat").read_text()
            assert stat.rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(
    "words", [["--size=x"], ["--size=0"], ["--colour=1"], ["--cpus=a"], ["size"]]
)
def test_bad_options_of_a_kernel(words):
    command = [*kernels.kernel("uct"), *words]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "perf_uct" in done.stderr and not done.stdout


def test_processes_that_a_launcher_starts(processes, tmp_path):
    """The rendezvous of processes that mpiexec or a job system starts."""
    env = kernels.environment("uct", "utofu")
    command = [*kernels.kernel("uct"), "--test=am_lat", "--iterations=100"]
    command += ["--layout=bcopy", f"--rendezvous={tmp_path / 'meet'}"]
    started = [
        processes.start(command, env={**env, "PMIX_RANK": str(rank)}) for rank in (1, 0)
    ]
    outputs = [process.communicate(timeout=100)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert outputs[0] == ""
    assert json.loads(outputs[1])["iterations"] == 100
    assert not list(tmp_path.iterdir())


def test_a_host_name_that_leads_nowhere(processes, tmp_path):
    """Rank 0 is also found by its addresses."""
    meet, key = tmp_path / "meet", "0123456789abcdef" * 2
    command = [*kernels.kernel("uct"), "--test=am_lat", f"--rendezvous={meet}"]
    env = {**kernels.environment("uct", "utofu"), "PMIX_RANK": "1"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(100)
        port = server.getsockname()[1]
        meet.write_text(f"{port} {key} no-such-host.invalid 127.0.0.1\n")
        process = processes.start(command, env=env)
        peer, _ = server.accept()
        with peer:
            peer.settimeout(100)
            hello = peer.recv(40, socket.MSG_WAITALL)
            assert struct.unpack("=32sQ", hello) == (key.encode(), 1)
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 1 and "the other process is gone" in output
    meet.write_text(f"{port} {key} no-such-host.invalid\n")
    code, output = processes.run(command, env=env, timeout=100)
    assert code == 1 and "answers at no address" in output
    meet.write_text(f"{port} no-such-host.invalid\n")
    code, output = processes.run(command, env=env, timeout=100)
    assert code == 1 and "has no key" in output


def test_a_stranger_at_the_rendezvous(processes, tmp_path):
    """Who does not know the key is hung up on, and the run goes on."""
    meet = tmp_path / "meet"
    env = kernels.environment("uct", "utofu")
    command = [*kernels.kernel("uct"), "--test=am_lat", "--iterations=100"]
    command += [f"--rendezvous={meet}"]
    first = processes.start(command, env={**env, "PMIX_RANK": "0"})
    deadline = time.monotonic() + 100
    while not meet.exists():
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    assert meet.stat().st_mode & 0o077 == 0
    port, key = meet.read_text().split()[:2]
    wrong = bytes(reversed(key.encode()))
    for hello in (b"", b"x", struct.pack("=32sQ", wrong, 1), wrong + b"\0" * 100):
        with socket.create_connection(("127.0.0.1", int(port)), 100) as stranger:
            stranger.sendall(hello)
            with contextlib.suppress(OSError):  # it may be hung up on already
                stranger.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
    second = processes.start(command, env={**env, "PMIX_RANK": "1"})
    output, _ = first.communicate(timeout=100)
    second.communicate(timeout=100)
    assert (first.returncode, second.returncode) == (0, 0), output
    assert json.loads(output)["iterations"] == 100


def test_a_launcher_starts_the_processes(monkeypatch, tmp_path):
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    if mpiexec is None:
        pytest.skip("no mpiexec beside this Python")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(runner.LAUNCHER, f"{mpiexec} -n {{n}}")
    (record,) = quick("put_lat", "uct", sizes=[8])
    check(record, "put_lat", "uct", "utofu")
    monkeypatch.setenv(runner.LAUNCHER, f"{mpiexec} -n 1")  # one is missing
    with pytest.raises(runner.KernelError, match="put_lat of the layer uct"):
        monkeypatch.setattr(runner, "LIMIT", (2, 0))
        quick("put_lat", "uct", sizes=[8])
    assert not list(tmp_path.iterdir())


def test_a_size_beyond_the_memory_is_refused():
    with pytest.raises(ValueError, match="need .* bytes for their data"):
        quick("put_lat", "uct", sizes=[8, 1 << 40])
