# SPDX-License-Identifier: BSD-3-Clause
"""uct-tofu run: exit codes, output, signals, and that nothing is left."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from uct_tofu import _placement

COMMAND = str(Path(sys.executable).with_name("uct-tofu"))
RANK = "import os, sys, time, signal; rank = int(os.environ['UCT_TOFU_RANK'])\n"


@pytest.fixture
def script(tmp_path):
    """script(text) -> path of a Python program; it knows its rank."""

    def write(text):
        path = tmp_path / "program.py"
        path.write_text(RANK + text)
        return str(path)

    return write


@pytest.fixture
def run(processes, tmp_path):
    """run(*arguments) -> (exit code, stdout, stderr)."""

    def launch(*arguments, stdin=None, timeout=100, env=None):
        with (tmp_path / "stderr").open("w+b") as errors:
            process = processes.start(
                [COMMAND, "run", *arguments],
                stderr=errors,
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                text=False,
                cwd=tmp_path,
                env={**os.environ, **(env or {})},
            )
            output, _ = process.communicate(stdin, timeout=timeout)
            errors.seek(0)
            return process.returncode, output, errors.read().decode()

    return launch


def alive(pid):
    """Whether a process runs; a zombie that nobody reaps does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids, seconds=30):
    """Those of the processes that still run after so long."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


def test_every_line_has_its_rank(run, script):
    code, output, errors = run(
        "-n", "4", script("print('out', rank); print('err', rank, file=sys.stderr)")
    )
    assert code == 0, errors
    assert sorted(output.decode().splitlines()) == [f"[{r}] out {r}" for r in range(4)]
    assert sorted(errors.splitlines()) == [f"[{r}] err {r}" for r in range(4)]


def test_sixteen_ranks_do_not_mix(run, script):
    """Lines in pieces, with no newline at the end, larger than a pipe."""
    text = """
for i in range(20):
    for piece in range(10):
        os.write(1, b"%d:" % rank * 100)
    os.write(1, b"\\n" if i < 19 else b"end")
os.write(1, b"x" * 200000)
"""
    code, output, errors = run("-n", "16", script(text))
    assert code == 0, errors
    lines = output.decode().split("\n")
    assert lines.pop() == "" and len(lines) == 16 * 20
    for line in lines:
        rank, rest = re.fullmatch(r"\[(\d+)\] (.*)", line).groups()
        body = f"{rank}:" * 1000
        assert rest in (body, body + "end" + "x" * 200000)


def test_without_prefix_every_byte_is_kept(run, tmp_path):
    data = os.urandom(3 << 20) + b"no newline"
    (tmp_path / "data").write_bytes(data)
    code, output, _ = run("-n", "1", "--no-prefix", "cat", "data")
    assert code == 0 and output == data


def test_binary_with_prefix(run, script):
    """A carriage return or a zero ends no line."""
    code, output, _ = run("-n", "1", script(r"os.write(1, b'a\rb\0\xff\n\nc')"))
    assert code == 0 and output == b"[0] a\rb\0\xff\n[0] \n[0] c\n"


def test_a_line_that_never_ends_comes_in_pieces(run, script):
    code, output, _ = run("-n", "1", script("os.write(1, b'z' * (5 << 19))"))
    pieces = output.decode().splitlines()
    assert code == 0
    assert [len(p) - 4 for p in pieces] == [1 << 20, 1 << 20, 1 << 19]


def test_standard_input_is_rank_0s(run, script):
    text = "print(repr(sys.stdin.read()))"
    code, output, _ = run("-n", "3", script(text), stdin=b"hello")
    assert code == 0
    assert sorted(output.decode().splitlines()) == ["[0] 'hello'", "[1] ''", "[2] ''"]


@pytest.mark.parametrize(
    "how, wanted, said",
    [
        ("sys.exit(7)", 7, "ended with exit code 7"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "was killed by SIGSEGV"),
        ("raise ValueError('bad luck')", 1, "ended with exit code 1"),
    ],
)
def test_first_failure_ends_all(run, script, how, wanted, said):
    """The others would run for long, and one of them does not listen."""
    text = f"""
if rank == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid", os.getpid())
if rank == 1:
    while not os.path.exists("go"):
        time.sleep(0.01)
    {how}
if rank == 2:
    time.sleep(1)
    open("go", "w").close()
time.sleep(1000)
"""
    code, output, errors = run("-n", "3", "--grace", "0.5", script(text))
    assert code == wanted
    assert re.search(rf"rank 1 \(process \d+\) {said}", errors), errors
    pids = [int(p) for p in re.findall(rb"pid (\d+)", output)]
    assert len(pids) == 3 and not wait_gone(pids)


def test_timeout(run, script):
    started = time.monotonic()
    program = script("time.sleep(rank * 1000)")
    code, _, errors = run("-n", "2", "--timeout", "1", program)
    assert code == 124 and time.monotonic() - started < 90
    assert "not ended after 1 s: ranks 1;" in errors


def test_what_ranks_started_ends_with_them(run, script):
    """Also when all ranks ended well."""
    text = """
import subprocess
child = subprocess.Popen(["sleep", "1000"])
print("pid", child.pid)
"""
    code, output, _ = run("-n", "2", script(text))
    pids = [int(p) for p in re.findall(rb"pid (\d+)", output)]
    assert code == 0 and len(pids) == 2 and not wait_gone(pids)


def _start_and_read(processes, command, count):
    """Start, and read the process ids that the ranks print."""
    process = processes.start([COMMAND, "run", *command])
    pids = []
    while len(pids) < count:
        line = process.stdout.readline()
        assert line, "the launcher ended early"
        pids += [int(p) for p in re.findall(r"pid (\d+)", line)]
    return process, pids


PIDS = """
import subprocess
child = subprocess.Popen(["sleep", "1000"])
print("pid", child.pid, "pid", os.getpid(), flush=True)
time.sleep(1000)
"""


def test_killed_launcher_leaves_nothing(processes, script):
    process, pids = _start_and_read(processes, ["-n", "3", script(PIDS)], 6)
    try:
        assert all(map(alive, pids))
        os.kill(process.pid, signal.SIGKILL)
        assert not wait_gone(pids)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_forwarded(processes, script, number):
    text = f"""
def handler(number, frame):
    print("got", number, flush=True)
    sys.exit(50 + rank)
if rank == 0:
    signal.signal({int(number)}, handler)
print("pid", os.getpid(), flush=True)
time.sleep(1000)
"""
    process, pids = _start_and_read(processes, ["-n", "1", script(text)], 1)
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert f"got {int(number)}" in output
    assert process.returncode == 50 and not wait_gone(pids)


def test_user_signals_do_not_end_the_job(processes, script):
    text = """
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
print("pid", os.getpid(), flush=True)
time.sleep(1000)
"""
    process, pids = _start_and_read(processes, ["-n", "2", script(text)], 2)
    os.kill(process.pid, signal.SIGUSR1)
    process.communicate(timeout=60)
    assert process.returncode == 0 and not wait_gone(pids)


def test_reader_that_goes_away_ends_the_job(processes, script):
    """As in "uct-tofu run ... | head"."""
    text = """
print("pid", os.getpid(), flush=True)
while True:
    print("x" * 1000, flush=True)
"""
    process, pids = _start_and_read(processes, ["-n", "2", script(text)], 2)
    process.stdout.close()
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE
    assert not wait_gone(pids)


# Who ends is held up by nobody: what is left of the line comes when no rank runs.
LATE = """
import subprocess
subprocess.Popen(["sleep", "3"], start_new_session=True)
os.write(1, b"no end")
"""


@pytest.mark.parametrize("text", [LATE, "print('hi')"], ids=["late", "at once"])
def test_full_disk_is_a_failure_and_said(processes, script, text):
    with open("/dev/full", "w") as full:
        command = [COMMAND, "run", "-n", "2", script(text)]
        process = processes.start(command, stdout=full, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=60)
    said = "uct-tofu run: standard output: No space left on device\n"
    assert (process.returncode, errors) == (1, said)


def test_reader_that_has_gone_when_the_last_line_comes(processes, script):
    command = [COMMAND, "run", "-n", "2", script(LATE)]
    process = processes.start(command, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(timeout=60) == 141


def test_prompt_appears_on_a_terminal(processes, script):
    """A line without its end is shown, coloured; the answer reaches rank 0."""
    ours, theirs = pty.openpty()
    text = "if rank == 0: print('answer', input('name? '))"
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    processes.start(
        [COMMAND, "run", "-n", "2", script(text)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
    )
    os.close(theirs)
    seen = b""
    deadline = time.monotonic() + 60
    try:
        for wanted, answer in ((b"name? ", b"me\n"), (b"answer me", b"")):
            while wanted not in seen and time.monotonic() < deadline:
                if select.select([ours], [], [], 1)[0]:
                    seen += os.read(ours, 1000)
            assert wanted in seen, seen
            os.write(ours, answer)
    finally:
        os.close(ours)
    assert b"\x1b[36m[0]\x1b[0m name? " in seen


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["no-such-program"], 127, "no such program"),
        (["missing.py"], 2, "no such file"),
        (["-n", "0", "true"], 2, "range"),
        (["--shape", "0x1", "true"], 2, "one to three numbers"),
        (["-n", "13", "--shape", "1x1x1", "true"], 2, "need 13 nodes"),
        (["--env", "nonsense", "true"], 2, "NAME=VALUE"),
        ([], 2, "no program"),
        (["/dev/null"], 126, "not executable"),
        (["--timeout", "nan", "true"], 2, "not a number"),
        (["--grace", "nan", "true"], 2, "not a number"),
    ],
)
def test_bad_arguments(run, arguments, code, said):
    got, _, errors = run(*arguments)
    assert got == code and said in errors


SHAPE = "UTOFU_EMU_SHAPE=1,1,1"


@pytest.mark.parametrize(
    "arguments, variable, said",
    [
        (["-n", "13"], "1,1,1", "need 13 nodes; UTOFU_EMU_SHAPE=1,1,1 has 12"),
        (["-n", "13", "--env", SHAPE], "2,1,1", "need 13 nodes; UTOFU_EMU_SHAPE=1,1,1"),
        (["-n", "13", "--shape", "2", "--env", SHAPE], "", "UTOFU_EMU_SHAPE=1,1,1 has 12"),
        (["-n", "13", "--shape", "1"], "2,1,1", "need 13 nodes; --shape has 12"),
        (["-n", "13", "--shape", "2"], "1,1,1", None),
        (["-n", "13", "--ppn", "2"], "1,1,1", None),
        (["-n", "13", "--env", "UTOFU_EMU_NODE=3"], "1,1,1", None),
        (["-n", "2"], "0,1,1", None),
        (["-n", "2"], "1x1x1", None),
    ],
)
def test_a_shape_of_the_environment(run, arguments, variable, said):
    """It is looked at before the ranks start, as --shape is."""
    got, _, errors = run(*arguments, "true", env={"UTOFU_EMU_SHAPE": variable})
    assert got == (2 if said else 0), errors
    assert (said or "") in errors


@pytest.mark.parametrize("seconds", ["inf", "1e12", "1e7"])
def test_a_time_beyond_what_one_can_wait(run, seconds):
    """An OverflowError of the selector, once."""
    code, output, errors = run("--timeout", seconds, "--grace", seconds, "echo", "here")
    assert (code, output.strip(), errors) == (0, b"[0] here", "")


def test_module_and_executable(run, tmp_path):
    (tmp_path / "given.py").write_text("import sys; print(sys.argv[1:])")
    code, output, errors = run(
        "-n", "2", "-m", "given", "-n", "3", env={"PYTHONPATH": str(tmp_path)}
    )
    assert code == 0, errors
    assert sorted(output.splitlines()) == [b"[0] ['-n', '3']", b"[1] ['-n', '3']"]
    code, output, _ = run("-n", "1", "echo", "--pin", "-x")
    assert code == 0 and output == b"[0] --pin -x\n"


def test_environment_of_ranks(run, script):
    """Nodes, a job of their own, UCX; nothing of another launcher."""
    text = """
names = ("UTOFU_EMU_NODE", "UCT_TOFU_LOCAL_RANK", "UCT_TOFU_LOCAL_SIZE",
         "UTOFU_EMU_SHAPE", "UCX_TLS", "MINE", "PMI_FD", "UTOFU_EMU_COORDS")
has_plugin = "/ucx" in os.environ["UCX_PLUGIN_PATH"]
print(*(os.environ.get(name) for name in names), has_plugin)
print("job", os.environ["UTOFU_EMU_JOB"])
"""
    code, output, errors = run(
        *("-n", "3", "--ppn", "2", "--shape", "2x1", "--tls", "utofu,tcp"),
        *("--env", "MINE=a=b", script(text)),
        env={
            "PMI_FD": "3",
            "UTOFU_EMU_COORDS": "0,0,0,1,1,1",
            "UTOFU_EMU_JOB": "theirs",
        },
    )
    assert code == 0, errors
    lines = sorted(line for line in output.decode().splitlines() if " job " not in line)
    rest = "2,1,1 utofu,tcp a=b None None True"
    assert lines == [f"[0] 0 0 2 {rest}", f"[1] 0 1 2 {rest}", f"[2] 1 0 1 {rest}"]
    jobs = set(re.findall(r"job (\S+)", output.decode()))
    assert len(jobs) == 1 and jobs != {"theirs"}


def test_pinning(run, script):
    """Distinct CPUs as far as there are, in turn; all with --no-pin."""
    cpus = sorted(os.sched_getaffinity(0))
    text = "print(sorted(os.sched_getaffinity(0)))"
    code, output, _ = run("-n", str(len(cpus) + 1), script(text))
    found = re.findall(r"\[(\d+)\] \[(\d+)\]", output.decode())
    assert code == 0 and len(found) == len(cpus) + 1
    count = {cpu: [int(c) for _, c in found].count(cpu) for cpu in cpus}
    assert sorted(count.values()) == [1] * (len(cpus) - 1) + [2]
    code, output, _ = run("-n", "1", "--no-pin", script(text))
    assert code == 0 and output.decode() == f"[0] {cpus}\n"


def test_distinct_cores_come_first(tmp_path):
    """Two sockets of two cores of two threads."""
    for cpu in range(8):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{cpu // 2 % 2}\n")
        (topology / "core_id").write_text(f"{cpu % 2}\n")
    assert _placement.cpu_order(range(8), tmp_path) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert _placement.cpu_order([0, 4, 5, 1], tmp_path) == [0, 1, 4, 5]
    assert _placement.cpu_order([7, 3, 2], tmp_path) == [2, 3, 7]
    assert _placement.cpu_order([3, 1], tmp_path / "none") == [1, 3]


def test_last_rank_of_an_unfilled_node():
    got = [(p.node, p.local_rank, p.local_size) for p in _placement.places(5, 3, False)]
    assert got == [(0, 0, 3), (0, 1, 3), (0, 2, 3), (1, 0, 2), (1, 1, 2)]


def test_ranks_reach_each_other(run, script):
    """A put to the neighbour over the transport; addresses by the world."""
    text = """
import uct_tofu
world = uct_tofu.world()
with uct_tofu.MemoryDomain() as md, uct_tofu.Iface(md) as iface, md.alloc(64) as target:
    peers = world.allgather((iface.address, target.address, target.pack_rkey()))
    address, remote, rkey = peers[(rank + 1) % world.size]
    with uct_tofu.Endpoint(iface, address) as ep, uct_tofu.RemoteKey(rkey) as key:
        with md.reg(bytearray([rank + 1] * 64)) as source:
            ep.put_zcopy(source, remote, key).wait()
        world.barrier()
        assert bytes(target)[0] == (rank - 1) % world.size + 1
        world.barrier()
    print("coords", *world.coords)
"""
    code, output, errors = run("-n", "3", script(text))
    assert code == 0, errors
    assert len(set(output.decode().splitlines())) == 3


def test_a_program_of_this_folder_is_named_with_it(run, tmp_path, monkeypatch):
    """It was "not executable", which it is."""
    program = tmp_path / "prog"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    code, _, errors = run("prog")
    assert code == 127 and "that of this folder is ./prog" in errors
    assert run("./prog")[0] == 0
    program.chmod(0o644)
    assert run("prog")[0] == 126
