# SPDX-License-Identifier: BSD-3-Clause
"""uct-tofu emu ls and clean."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("uct-tofu"))

# Says "ready", then holds what it has until its input ends.
HOLDER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <utofu.h>
static char memory[3][4096];
int main(int argc, char **argv)
{
    utofu_vcq_hdl_t a, b;
    utofu_stadd_t s;
    utofu_vbg_id_t gates[3];
    if (argc > 1) prctl(PR_SET_NAME, argv[1]);
    if (utofu_create_vcq(2, 0, &a)) return 1;
    if (utofu_create_vcq(4, UTOFU_VCQ_FLAG_EXCLUSIVE, &b)) return 2;
    for (int i = 0; i < 3; i++)
        if (utofu_reg_mem(a, memory[i], 4096, 0, &s)) return 3;
    if (utofu_dereg_mem(a, s, 0)) return 4;
    if (utofu_alloc_vbg(1, 3, 0, gates)) return 9;
    printf("ready\n");
    fflush(stdout);
    getchar();
    return 0;
}
"""


@pytest.fixture(scope="module")
def holder(compile_c):
    """A program with two VCQs, two registrations on the first, three gates."""
    return str(compile_c(HOLDER, name="holder"))


@pytest.fixture
def start(holder, processes, job):
    """start(name=..., **environment) -> a running holder."""

    def begin(name="holder", **environment):
        process = processes.start(
            [holder, name],
            stdin=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert process.stdout.readline() == "ready\n"
        return process

    return begin


@pytest.fixture
def emu(processes, job):
    """emu(verb) -> this test's job as a dict, None when it is not there."""

    def ask(verb):
        code, output = processes.run([COMMAND, "emu", verb, "--json"])
        assert code == 0, output
        data = json.loads(output)
        mine = [entry for entry in data["jobs"] if entry["job"] == job]
        assert len(mine) <= 1
        return mine[0] if mine else None

    return ask


def test_what_a_process_holds(start, emu):
    """ls names the process, its node, its VCQs and registrations."""
    process = start(UTOFU_EMU_COORDS="1,2,3,1,2,0")
    found = emu("ls")
    assert found["memory"] > 0
    (entry,) = found["processes"]
    assert (entry["slot"], entry["pid"]) == (0, process.pid)
    assert (entry["name"], entry["state"]) == ("holder", "running")
    assert entry["coords"] == [1, 2, 3, 1, 2, 0]
    assert entry["memory"] > 0 and entry["mrq_lanes"] == 0
    assert [
        (v["tni"], v["cq"], v["kind"], v["registrations"]) for v in entry["vcqs"]
    ] == [(2, 0, "shared", 2), (4, 8, "exclusive", 0)]


def test_lanes_are_counted(emu, compile_c, processes, job):
    """A VCQ that was put to with a notice has a lane."""
    program = compile_c(
        HOLDER.replace(
            'printf("ready',
            "utofu_vcq_id_t id; utofu_vcq_hdl_t c;\n"
            "    if (utofu_query_vcq_id(a, &id) || utofu_create_vcq(0, 0, &c)) return 5;\n"
            "    if (utofu_reg_mem(a, memory[2], 4096, 0, &s)) return 6;\n"
            "    utofu_stadd_t from;\n"
            "    if (utofu_reg_mem(c, memory[0], 4096, 0, &from)) return 7;\n"
            "    if (utofu_put(c, id, from, s, 8, 0,"
            " UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL)) return 8;\n"
            '    printf("ready',
        ),
        name="laned",
    )
    process = processes.start([str(program)], stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    (entry,) = emu("ls")["processes"]
    lanes = {v["tni"]: v["mrq_lanes"] for v in entry["vcqs"]}
    assert lanes == {0: 0, 2: 1, 4: 0} and entry["mrq_lanes"] == 1


def test_states(start, emu):
    """Running, stopped, and ended while others go on."""
    first, second, third = start(), start(), start()
    os.kill(second.pid, signal.SIGSTOP)
    third.kill()
    third.wait()
    deadline = time.monotonic() + 10
    while True:
        states = {p["pid"]: p["state"] for p in emu("ls")["processes"]}
        if states[second.pid] == "stopped" or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert states == {
        first.pid: "running",
        second.pid: "stopped",
        third.pid: "ended",
    }


def test_clean_takes_from_the_dead_only(start, emu):
    """What a killed process held is given back; others keep all they have."""
    first, second, stopped = start(), start(), start()
    second.kill()
    second.wait()
    os.kill(stopped.pid, signal.SIGSTOP)
    before = {p["pid"]: p for p in emu("ls")["processes"]}
    assert set(before) == {first.pid, second.pid, stopped.pid}
    done = emu("clean")
    assert done["error"] is None
    assert done["reclaimed"] == [
        {"slot": 1, "pid": second.pid, "cqs": 2, "vcqs": 2, "barrier_gates": 3}
    ]
    after = {p["pid"]: p for p in emu("ls")["processes"]}
    assert set(after) == {first.pid, stopped.pid}
    for pid in after:
        assert after[pid]["vcqs"] == before[pid]["vcqs"]
    assert emu("clean")["reclaimed"] == []


def test_a_job_goes_on_after_clean(start, emu):
    """The slot and the CQs that were given back serve the next process."""
    first = start(UTOFU_EMU_NODE="3")
    second = start(UTOFU_EMU_NODE="3")
    assert second.pid and emu("ls")["processes"][1]["vcqs"][0]["cq"] == 1
    second.kill()
    second.wait()
    emu("clean")
    third = start(UTOFU_EMU_NODE="3")
    entries = {p["pid"]: p for p in emu("ls")["processes"]}
    assert set(entries) == {first.pid, third.pid}
    assert entries[third.pid]["slot"] == 1
    assert entries[third.pid]["vcqs"][0]["cq"] == 1


def test_nothing_is_left_of_a_dead_job(start, emu):
    """When the last process is killed the job is gone, with no cleaning."""
    process = start()
    assert emu("ls") is not None
    process.kill()
    process.wait()
    assert emu("ls") is None and emu("clean") is None


def test_text(start, emu, processes, job):
    """The same in words; clean says what it did and what it found nothing of."""
    first, second = start(), start()
    code, output = processes.run([COMMAND, "emu", "ls"])
    assert code == 0 and f"job {job}: 2 in it" in output
    assert f"slot 0: pid {first.pid} holder, running, node 0,0,0,0,0,0" in output
    assert "VCQ: TNI 2, CQ 0 (shared), component 7: 2 registrations" in output
    code, output = processes.run([COMMAND, "emu", "clean"])
    assert code == 0 and f"job {job}: nothing to give back" in output
    second.kill()
    second.wait()
    code, output = processes.run([COMMAND, "emu", "clean"])
    assert code == 0
    assert (
        f"slot 1 of process {second.pid}, which has ended: "
        "gave back 2 CQs, 2 VCQ IDs, 3 barrier gates"
    ) in output


def test_odd_names(start, emu, processes):
    """Names of processes may hold anything; terminals get none of it."""
    name = 'a"\\\x1b[2J\té'
    start(name)
    (entry,) = emu("ls")["processes"]
    assert entry["name"] == name
    code, output = processes.run([COMMAND, "emu", "ls"])
    assert code == 0 and "\x1b" not in output and 'a"\\?[2J?é' in output


def test_odd_job_names(start, processes, monkeypatch):
    """A job name with odd characters is listed by the name that it got."""
    start(UTOFU_EMU_JOB="two words\n/../é")
    code, output = processes.run([COMMAND, "emu", "ls"])
    assert code == 0 and "job hash-" in output


@pytest.fixture
def real_control(start):
    """The head and the size of a true control segment, and its name."""
    process = start()
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        link = os.readlink(entry)
        if link.startswith("/memfd:utofu-emu:"):
            with open(entry, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                name = link[len("/memfd:") : -len(" (deleted)")]
                return file.read(4096), size, name
    raise AssertionError("the process has no control segment")


SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@pytest.mark.parametrize(
    ("change", "grow", "reason"),
    [
        (lambda b: b[:10], None, "too short"),
        (lambda b: b"", None, "too short"),
        (lambda b: b"\0" * len(b), 0, "magic number"),
        (lambda b: b[:8] + struct.pack("<I", 999) + b[12:], 0, "another version"),
        (lambda b: b[:16] + struct.pack("<Q", 5) + b[24:], 0, "another size"),
        (lambda b: b, -4096, "another size"),
        (lambda b: b, 4096, "another size"),
        (lambda b: b[:12] + struct.pack("<I", 12345) + b[16:], 0, "another user"),
        (lambda b: b[:24] + b"x" * 72 + b[96:], 0, "without a job name"),
        (None, 0, "not sealed"),
    ],
)
def test_forged_segments_are_refused(change, grow, reason, real_control, processes):
    """A memfd of that name with something else in it is told and left alone."""
    head, size, name = real_control
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(fd, change(head) if change else head)
        if grow is not None:
            os.ftruncate(fd, size + grow)
        before = os.pread(fd, 1 << 16, 0)
        if change:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        for verb in ("ls", "clean"):
            code, output = processes.run([COMMAND, "emu", verb, "--json"])
            assert code == 0, output
            mine = [e for e in json.loads(output)["refused"] if e["pid"] == os.getpid()]
            assert [e["fd"] for e in mine] == [fd]
            assert reason in mine[0]["reason"]
        code, output = processes.run([COMMAND, "emu", "ls"])
        told = f"process {os.getpid()}, descriptor {fd}: not used"
        assert code == 0 and told in output
        assert os.pread(fd, 1 << 16, 0) == before
    finally:
        os.close(fd)


def test_no_job_at_all(processes, tmp_path):
    """With no process of the emulator, ls and clean say so and succeed."""
    # what another PID namespace would show: a /proc without such processes
    if subprocess.run(
        ["unshare", "-Urpf", "--mount-proc", "true"], capture_output=True
    ).returncode:
        pytest.skip("no PID namespaces for users here")
    for verb in ("ls", "clean"):
        code, output = processes.run(
            ["unshare", "-Urpf", "--mount-proc", COMMAND, "emu", verb]
        )
        assert code == 0 and "nothing is there" in output
    assert not list(tmp_path.iterdir())


def test_a_job_of_another_namespace_is_named(holder, processes, job):
    """It can't be looked at, and is told by its name."""
    away = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*away, "true"], capture_output=True).returncode:
        pytest.skip("no such namespaces here")
    process = processes.start([*away, holder], stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    for verb in ("ls", "clean"):
        _, output = processes.run([COMMAND, "emu", verb])
        assert f"not used, job {job} is of another PID namespace" in output


def test_processes_that_end_meanwhile(holder, processes, job, emu):
    """ls and clean give whole answers while processes come and go."""
    churn = processes.start(
        [
            "sh",
            "-c",
            f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do '{holder}' churn </dev/null; done",
        ]
    )
    looks = 0
    while churn.poll() is None and looks < 60:
        for verb in ("ls", "clean"):
            code, output = processes.run([COMMAND, "emu", verb, "--json"])
            assert code == 0, output
            data = json.loads(output)
            assert data["refused"] == [] or all(
                "magic" in e["reason"] or "short" in e["reason"]
                for e in data["refused"]
            )
            for entry in data["jobs"]:
                if entry["job"] == job and verb == "clean":
                    # a process that ends by itself leaves nothing to give back
                    assert entry["error"] is None
        looks += 1
    assert looks > 0


def test_usage(processes):
    """The command names its verbs, and refuses others."""
    code, output = processes.run([COMMAND, "emu", "--help"])
    assert code == 0 and "ls" in output and "clean" in output
    assert processes.run([COMMAND, "emu", "remove"])[0] != 0
